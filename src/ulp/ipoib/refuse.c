/* refuse.c: the ICMP message which says that a neighbour does not answer, as a host makes it for
 * packets of its own. It comes from the neighbour's address, for a kernel takes no packet with an
 * address of its own as the source.
 * In:    packets that cannot be sent         Out: ICMP messages
 * Runs:  any thread; pure functions          Locks: none
 * Spec:  RFC 1122, 3.2.2; RFC 4443, 2.4 and 3.1
 */
#include <string.h>

#include "ulp/ipoib/frame.h"

enum {
	REFUSE_V4 = 20,
	REFUSE_V6 = 40,
	REFUSE_ICMP = 8,     /* type, code, checksum, four zeroes */
	REFUSE_QUOTES_V4 = 28, /* of the packet: its header and 8 bytes */
	REFUSE_QUOTES_V6 = 80,
	PROTOCOL_ICMP = 1,
	PROTOCOL_ICMP6 = 58,
};

static u32 ipoib_refuse_sum(u32 sum, const u8 *at, u32 size)
{
	for (u32 i = 0; i < size; i++)
		sum += i % 2 == 0 ? (u32)at[i] << 8 : at[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void ipoib_refuse_put16(u8 *at, u32 value)
{
	at[0] = (u8)(value >> 8);
	at[1] = (u8)value;
}

static u32 ipoib_refuse_v4(const u8 *packet, u32 size, u8 *out)
{
	u32 head = (packet[0] & 15) * 4u, quotes = MIN(MIN(size, head + 8), (u32)REFUSE_QUOTES_V4);
	u32 bytes = REFUSE_ICMP + quotes;
	bool is_part = ((packet[6] & 0x1f) | packet[7]) != 0;

	/* of ICMP only what asks for an echo: no message about a message */
	if (head != REFUSE_V4 || size < head + 8 || is_part ||
	    (packet[9] == PROTOCOL_ICMP && packet[head] != 8))
		return 0;
	memset(out, 0, REFUSE_V4 + REFUSE_ICMP);
	out[0] = 0x45;
	ipoib_refuse_put16(out + 2, REFUSE_V4 + bytes);
	out[8] = 64;
	out[9] = PROTOCOL_ICMP;
	memcpy(out + 12, packet + 16, 4);
	memcpy(out + 16, packet + 12, 4);
	ipoib_refuse_put16(out + 10, ~ipoib_refuse_sum(0, out, REFUSE_V4));
	out[REFUSE_V4] = 3;	/* destination unreachable ... */
	out[REFUSE_V4 + 1] = 1; /* the host */
	memcpy(out + REFUSE_V4 + REFUSE_ICMP, packet, quotes);
	ipoib_refuse_put16(out + REFUSE_V4 + 2, ~ipoib_refuse_sum(0, out + REFUSE_V4, bytes));
	return REFUSE_V4 + bytes;
}

static u32 ipoib_refuse_v6(const u8 *packet, u32 size, u8 *out)
{
	u32 quotes = MIN(size, (u32)REFUSE_QUOTES_V6), bytes = REFUSE_ICMP + quotes, sum;

	if (size < REFUSE_V6 + 8 || (packet[6] == PROTOCOL_ICMP6 && packet[REFUSE_V6] != 128))
		return 0;
	memset(out, 0, REFUSE_V6 + REFUSE_ICMP);
	out[0] = 0x60;
	ipoib_refuse_put16(out + 4, bytes);
	out[6] = PROTOCOL_ICMP6;
	out[7] = 64;
	memcpy(out + 8, packet + 24, 16);
	memcpy(out + 24, packet + 8, 16);
	out[REFUSE_V6] = 1;	/* destination unreachable ... */
	out[REFUSE_V6 + 1] = 3; /* its address */
	memcpy(out + REFUSE_V6 + REFUSE_ICMP, packet, quotes);
	sum = ipoib_refuse_sum(bytes + PROTOCOL_ICMP6, out + 8, 32);
	ipoib_refuse_put16(out + REFUSE_V6 + 2, ~ipoib_refuse_sum(sum, out + REFUSE_V6, bytes));
	return REFUSE_V6 + bytes;
}

u32 ipoib_frame_refuse(const u8 *packet, u32 size, u8 out[REFUSAL_BYTES])
{
	if (size >= REFUSE_V4 && packet[0] >> 4 == 4)
		return ipoib_refuse_v4(packet, size, out);
	if (size >= REFUSE_V6 && packet[0] >> 4 == 6)
		return ipoib_refuse_v6(packet, size, out);
	return 0;
}
