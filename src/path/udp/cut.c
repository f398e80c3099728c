/* cut.c: finds the packets in a joined datagram whose segment length the kernel was not asked for.
 *
 * Joined packets have one length, but for the last, which may be shorter; and each ends with an
 * ICRC that is right for no other length. The last cut of the same total length is tried first: it
 * is right again and again for a message joined with an acknowledgement.
 *
 * In: bytes    Out: lengths    Runs: the receiving thread    Locks: poll_lock
 */
#include "path/udp/udp_priv.h"

enum {
	CUT_LEAST = ROCE_BTH + ROCE_ICRC,
	CUT_RETH = 16, /* header bytes between BTH and a whole MTU of payload */
	CUT_MTU_LEAST = 256,
};

static u16 *cut_known(struct udp_cut *c, u32 bytes)
{
	return bytes / 4 < UDP_CUT_LENGTHS ? &c->segment[bytes / 4] : NULL;
}

void cut_learn(struct udp_cut *c, u32 bytes, u32 segment)
{
	u16 *known = cut_known(c, bytes);

	if (known != NULL)
		*known = segment >= bytes ? 0 : (u16)segment;
}

bool cut_expected(struct udp_cut *c, struct roce_source *s, const struct roce_flow *f,
		  const u8 *data, u32 bytes, u64 now_ms, u32 *segment)
{
	const u16 *known = cut_known(c, bytes);

	*segment = known == NULL ? 0 : *known;
	if (roce_icrc_is_expected(s, f, data, *segment == 0 ? bytes : *segment, now_ms))
		return true;
	if (*segment == 0 || !roce_icrc_is_expected(s, f, data, bytes, now_ms))
		return false;
	*segment = 0;
	return true;
}

/* Tells whether each packet has a right ICRC if it is cut so. */
static bool cut_is_right(const struct roce_source *s, const struct roce_flow *f, const u8 *data,
			 u32 bytes, u64 now_ms, u32 segment)
{
	struct roce_source trial = *s;
	struct roce_flow flow = *f;

	for (; bytes != 0; flow.id++) {
		u32 length = MIN(bytes, segment);

		if (!roce_icrc_matches(&trial, &flow, data, length, now_ms))
			return false;
		data += length;
		bytes -= length;
	}
	return true;
}

/* Long packets are full: a whole MTU behind one of a few headers. */
static u32 cut_find_full(const struct roce_source *s, const struct roce_flow *f, const u8 *data,
			 u32 bytes, u64 now_ms)
{
	for (u32 mtu = CUT_MTU_LEAST; mtu <= ROCE_MTU_MAX; mtu *= 2)
		for (u32 more = 0; more <= CUT_RETH; more += 4) {
			u32 segment = CUT_LEAST + more + mtu;

			if (segment < bytes && cut_is_right(s, f, data, bytes, now_ms, segment))
				return segment;
		}
	return 0;
}

void cut_find(struct udp_cut *c, const struct roce_source *s, const struct roce_flow *f,
	      const u8 *data, u32 bytes, u64 now_ms, u32 *segment)
{
	u32 last = MIN(bytes - MIN(bytes, 4u), (u32)ROCE_UDP_MAX);

	*segment = cut_find_full(s, f, data, bytes, now_ms);
	for (u32 at = CUT_LEAST; at <= last && *segment == 0; at += 4)
		if (cut_is_right(s, f, data, bytes, now_ms, at))
			*segment = at;
	/* 0: a single packet, or no cut was right */
	cut_learn(c, bytes, *segment);
}
