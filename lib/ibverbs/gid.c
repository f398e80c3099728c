/* gid.c: a port's tables of GIDs and P_Keys, and a destination's link address.
 * In: the core's tables      Out: entries      Runs: the application's threads      Locks: none
 */
#include <arpa/inet.h>
#include <string.h>

#include "door.h"

AV_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			    union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int error = index < 0 ? -EINVAL
			      : ib_uverbs_query_gid_entry(door_context(context)->ib, port_num,
							  (u32)index, &entry);

	/* An empty entry reads as zeroes here; only the newer calls report it. */
	if (error == -ENODATA)
		memset(gid, 0, sizeof(*gid));
	else if (error)
		return door_minus_one(error);
	else
		*gid = entry.gid;
	return 0;
}
DOOR_DEFAULT(ibv_query_gid);

static void gid_copy_entry(void *to, size_t size, const struct ibv_gid_entry *from)
{
	memset(to, 0, size);
	memcpy(to, from, MIN(size, sizeof(*from)));
}

AV_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
				struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;
	int error;

	if (flags)
		return EOPNOTSUPP;
	memset(&full, 0, sizeof(full));
	error = ib_uverbs_query_gid_entry(door_context(context)->ib, port_num, gid_index, &full);
	if (error)
		return door_errno(error);
	full.gid_index = gid_index;
	full.port_num = port_num;
	gid_copy_entry(entry, entry_size, &full);
	return 0;
}

/* Appends one port's entries from *count on. -EINVAL: more than fit. */
static int gid_list_port(struct door_context *c, u32 port, char *entries, size_t max, size_t size,
			 size_t *count)
{
	struct ib_port_attr attr;
	int error = ib_query_port(c->ib, (u8)port, &attr);

	if (error)
		return error;
	for (u32 i = 0; i < (u32)attr.gid_tbl_len; i++) {
		struct ibv_gid_entry full;

		memset(&full, 0, sizeof(full));
		error = ib_uverbs_query_gid_entry(c->ib, port, i, &full);
		if (error == -ENODATA)
			continue;
		if (error)
			return error;
		if (*count == max)
			return -EINVAL;
		full.gid_index = i;
		full.port_num = port;
		gid_copy_entry(entries + (*count)++ * size, size, &full);
	}
	return 0;
}

AV_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				       size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct door_context *c = door_context(context);
	size_t count = 0;
	int error;

	if (flags)
		return -EOPNOTSUPP;
	if (!max_entries || !entry_size)
		return -EINVAL;
	for (u32 port = 1; port <= c->ib->phys_port_cnt; port++) {
		error = gid_list_port(c, port, (char *)entries, max_entries, entry_size, &count);
		if (error)
			return -door_errno(error);
	}
	return (ssize_t)count;
}

AV_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	u16 value = 0;
	int error = index < 0 || index > UINT16_MAX ? -EINVAL
						    : ib_query_pkey(door_context(context)->ib,
								    port_num, (u16)index, &value);

	if (error)
		return door_minus_one(error);
	*pkey = htons(value);
	return 0;
}
DOOR_DEFAULT(ibv_query_pkey);

AV_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	struct ib_device *dev = door_context(context)->ib;
	struct ib_port_attr attr;
	int error = ib_query_port(dev, port_num, &attr);
	u16 value;

	if (error)
		return door_minus_one(error);
	for (u16 i = 0; i < attr.pkey_tbl_len; i++)
		if (!ib_query_pkey(dev, port_num, i, &value) && htons(value) == pkey)
			return i;
	return door_minus_one(-EINVAL);
}

/* A link-local GID contains its port's Ethernet address, extended to 64 bits, with the universal
 * bit inverted. */
static void gid_mac_of_link_local(const uint8_t gid[16], uint8_t mac[ETHERNET_LL_SIZE])
{
	memcpy(mac, gid + 8, 3);
	memcpy(mac + 3, gid + 13, 3);
	mac[0] ^= 2;
}

/* A group's address follows from its GID: IPv4's take 23 bits of it, IPv6's the last 4 bytes. */
static void gid_mac_of_group(const uint8_t gid[16], uint8_t mac[ETHERNET_LL_SIZE])
{
	static const uint8_t ipv4_prefix[12] = { 0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

	if (!memcmp(gid, ipv4_prefix, sizeof(ipv4_prefix))) {
		memcpy(mac, (const uint8_t[]){ 0x01, 0x00, 0x5e }, 3);
		mac[3] = gid[13] & 0x7f;
		memcpy(mac + 4, gid + 14, 2);
		return;
	}
	mac[0] = mac[1] = 0x33;
	memcpy(mac + 2, gid + 12, 4);
}

/* Resolves only GIDs that contain the address: the paths need no link address, and no neighbour
 * table is read. */
AV_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					  uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	const uint8_t *gid = attr->grh.dgid.raw;

	if (!attr->is_global)
		return EINVAL;
	if (gid[0] == 0xff)
		gid_mac_of_group(gid, eth_mac);
	else if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 && gid[11] == 0xff && gid[12] == 0xfe)
		gid_mac_of_link_local(gid, eth_mac);
	else
		return EHOSTUNREACH;
	if (vid)
		*vid = 0xffff;
	return 0;
}
