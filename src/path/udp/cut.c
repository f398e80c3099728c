/* cut.c: finds the packets in a datagram whose segment length the kernel was not asked for.
 *
 * Joined packets have one length, but for the last, which may be shorter. Each begins with a BTH
 * of this path and ends with an ICRC. The content of an honest message may imitate both, and the
 * rest of one message may complete another one. So a cut is found only if no other one, and not the
 * whole datagram as one packet either, could be right for any identification.
 *
 * In: bytes    Out: lengths    Runs: the receiving thread    Locks: poll_lock
 */
#include "path/udp/udp_priv.h"

enum { CUT_LEAST = ROCE_BTH + ROCE_ICRC };

/* The first place from `at` on where a packet that the path takes may begin, or `bytes`. */
static u32 cut_next(const u8 *data, u32 bytes, u32 at)
{
	while (at + CUT_LEAST <= bytes && !roce_may_begin(data + at))
		at += 4;
	return at + CUT_LEAST <= bytes ? at : bytes;
}

/* Does a packet begin wherever this cut has one? */
static bool cut_has_beginnings(const u8 *data, u32 bytes, u32 segment)
{
	u32 at = segment;

	while (at + CUT_LEAST <= bytes && roce_may_begin(data + at))
		at += segment;
	return at >= bytes;
}

static bool cut_is_possible(struct roce_source *s, const struct roce_flow *f, const u8 *data,
			    u32 bytes, u32 segment)
{
	for (; bytes != 0; bytes -= MIN(bytes, segment), data += segment)
		if (!roce_icrc_is_possible(s, f, data, MIN(bytes, segment)))
			return false;
	return true;
}

bool cut_find(struct roce_source *s, const struct roce_flow *f, const u8 *data, u32 bytes,
	      u32 *segment)
{
	u32 at = cut_next(data, bytes, CUT_LEAST), right, last = 0;

	*segment = 0;
	if (likely(at == bytes))
		return true;
	right = roce_icrc_is_possible(s, f, data, bytes);
	for (; at < bytes && at <= ROCE_UDP_MAX; at = cut_next(data, bytes, at + 4)) {
		if (!cut_has_beginnings(data, bytes, at))
			continue;
		if (last != 0 && cut_is_possible(s, f, data, bytes, last)) {
			right++;
			*segment = last;
		}
		last = at;
	}
	/* the only one that is left needs no proof: each packet is judged afterwards */
	if (last != 0 && (right == 0 || cut_is_possible(s, f, data, bytes, last))) {
		right++;
		*segment = last;
	}
	return right <= 1;
}
