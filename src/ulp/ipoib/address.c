/* address.c: hardware addresses, groups and their MGIDs.
 * In:    addresses    Out: addresses
 * Runs:  any thread; pure functions    Locks: none
 * Spec:  RFC 4391, 4 (MGIDs) and 9.1.1 (hardware addresses)
 */
#include <string.h>

#include "ulp/ipoib/frame.h"

enum { SIGNATURE_V4 = 0x401b, SIGNATURE_V6 = 0x601b };

bool ipoib_ip_is_v4(const u8 ip[16])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(ip, mapped, sizeof(mapped)) == 0;
}

bool ipoib_ip_is_none(const u8 ip[16])
{
	static const u8 none[16], none_v4[16] = { [10] = 0xff, [11] = 0xff };

	return memcmp(ip, none, 16) == 0 || memcmp(ip, none_v4, 16) == 0;
}

bool ipoib_ip_is_group(const u8 ip[16])
{
	return ipoib_ip_is_v4(ip) ? ip[12] >> 4 == 0xe : ip[0] == 0xff;
}

bool ipoib_ip_fits(const u8 ip[16], const struct ipoib_prefix *prefix)
{
	u32 whole = prefix->bits / 8, rest = prefix->bits % 8;

	if (prefix->bits > 128 || memcmp(ip, prefix->ip, whole) != 0)
		return false;
	return rest == 0 || (ip[whole] ^ prefix->ip[whole]) >> (8 - rest) == 0;
}

bool ipoib_ip_is_broadcast(const u8 ip[16])
{
	return ipoib_ip_is_v4(ip) && memcmp(ip + 12, "\xff\xff\xff\xff", 4) == 0;
}

bool ipoib_ip_is_broadcast_of(const u8 ip[16], const struct ipoib_prefix *prefix)
{
	if (!ipoib_ip_is_v4(prefix->ip) || prefix->bits > 126 || !ipoib_ip_fits(ip, prefix))
		return false;
	for (u32 bit = prefix->bits; bit < 128; bit++)
		if ((ip[bit / 8] & 0x80 >> bit % 8) == 0)
			return false;
	return true;
}

void ipoib_ip_solicited(const u8 ip[16], u8 group[16])
{
	static const u8 net[13] = { 0xff, 2, [11] = 1, [12] = 0xff };

	memcpy(group, net, sizeof(net));
	memcpy(group + 13, ip + 13, 3);
}

void ipoib_mgid(const u8 ip[16], u16 pkey, u8 scope, u8 mgid[16])
{
	bool v4 = ipoib_ip_is_v4(ip);
	u16 signature = v4 ? SIGNATURE_V4 : SIGNATURE_V6;

	memset(mgid, 0, 16);
	mgid[0] = 0xff;
	mgid[1] = 0x10 | (scope & 15);
	mgid[2] = (u8)(signature >> 8);
	mgid[3] = (u8)signature;
	/* the full member's P_Key, whichever membership the port has */
	mgid[4] = (u8)(pkey >> 8 | 0x80);
	mgid[5] = (u8)pkey;
	if (!v4) {
		memcpy(mgid + 6, ip + 6, 10);
		return;
	}
	memcpy(mgid + 12, ip + 12, 4);
	if (!ipoib_ip_is_broadcast(ip))
		mgid[12] &= 15;
}

bool ipoib_hw_is_valid(const struct ipoib_hw *hw)
{
	static const u8 none[16];
	const u8 *gid = ipoib_hw_gid(hw);

	/* QP0 and QP1 take MADs; 0xffffff is the multicast QPN */
	return ipoib_hw_qpn(hw) > 1 && ipoib_hw_qpn(hw) != 0xffffff && gid[0] != 0xff &&
	       memcmp(gid + 8, none, 8) != 0;
}

void ipoib_hw_make(struct ipoib_hw *out, u32 qpn, const u8 gid[16])
{
	out->raw[0] = 0; /* no connected mode */
	out->raw[1] = (u8)(qpn >> 16);
	out->raw[2] = (u8)(qpn >> 8);
	out->raw[3] = (u8)qpn;
	memcpy(out->raw + 4, gid, 16);
}

u32 ipoib_hw_qpn(const struct ipoib_hw *hw)
{
	return (u32)hw->raw[1] << 16 | (u32)hw->raw[2] << 8 | hw->raw[3];
}
