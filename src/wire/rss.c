/* rss.c: the hash by which receive-side scaling chooses a queue.
 * In: fields of a frame    Out: 32 bits    Runs: anywhere    Locks: none
 * Spec: Toeplitz' hash as network adapters have it: each set bit of the input adds (XOR) the 32
 * bits of the key that begin at the same place
 */
#include <string.h>

#include "wire/ether.h"

enum { RSS_INPUT = 16 + 16 + 2 + 2 };
_Static_assert(RSS_INPUT + 4 <= RSS_KEY, "the key has a window for each bit");

u32 rss_toeplitz(const u8 key[RSS_KEY], const u8 *data, u32 length)
{
	u32 window = (u32)key[0] << 24 | (u32)key[1] << 16 | (u32)key[2] << 8 | key[3], hash = 0;

	for (u32 i = 0; i < length; i++)
		for (u32 bit = 0; bit < 8; bit++) {
			if (data[i] & 0x80u >> bit)
				hash ^= window;
			window = window << 1 | (key[i + 4] >> (7 - bit) & 1);
		}
	return hash;
}

static u32 rss_add(u8 *to, u32 length, bool wanted, const u8 *from, u32 n)
{
	if (!wanted)
		return length;
	memcpy(to + length, from, n);
	return length + n;
}

u32 rss_hash(const u8 key[RSS_KEY], u32 fields, const struct ether_key *frame)
{
	u32 ip = frame->l3 == 4 ? 4 : frame->l3 == 6 ? 16 : 0;
	u32 source = frame->l3 == 4 ? RSS_SRC_IPV4 : frame->l3 == 6 ? RSS_SRC_IPV6 : 0;
	u32 sport = frame->l4 == ETHER_TCP   ? RSS_SRC_PORT_TCP
		    : frame->l4 == ETHER_UDP ? RSS_SRC_PORT_UDP
					     : 0;
	u8 input[RSS_INPUT];
	u32 n = 0;

	/* the bit of a destination follows that of its source */
	n = rss_add(input, n, (fields & source) != 0, frame->src_ip, ip);
	n = rss_add(input, n, (fields & source << 1) != 0, frame->dst_ip, ip);
	n = rss_add(input, n, (fields & sport) != 0, frame->sport, 2);
	n = rss_add(input, n, (fields & sport << 1) != 0, frame->dport, 2);
	return rss_toeplitz(key, input, n);
}
