/* cut.c: finds the packets in a datagram whose segment length the kernel was not asked for.
 *
 * Joined packets have one length, but for the last, which may be shorter. Each begins with a BTH
 * of this path and ends with an ICRC. The content of an honest message may imitate both. So a cut
 * counts only if no other one is right, and the whole datagram is no packet for any identification.
 * How near an identification is to earlier ones proves nothing here: others may have the sender
 * skip some.
 *
 * A message and its acknowledgement come most often. If both have the identifications that are
 * expected next, no CRC over the whole is needed (roce_icrc_is_pair_possible).
 *
 * In: bytes    Out: lengths    Runs: the receiving thread    Locks: poll_lock
 */
#include "path/udp/udp_priv.h"

enum {
	CUT_MIN = ROCE_BTH + ROCE_ICRC,
	CUT_ACK = ROCE_BTH + 4 + ROCE_ICRC,
	CUT_OPCODE = 0x1f, /* without the transport */
};

/* The first place from `at` on where a packet that the path takes may begin, or `bytes`. */
static u32 cut_next(const u8 *data, u32 bytes, u32 at)
{
	while (at + CUT_MIN <= bytes && !roce_may_begin(data + at))
		at += 4;
	return at + CUT_MIN <= bytes ? at : bytes;
}

/* Does a packet begin wherever this cut has one? */
static bool cut_has_beginnings(const u8 *data, u32 bytes, u32 segment)
{
	u32 at = segment;

	while (at + CUT_MIN <= bytes && roce_may_begin(data + at))
		at += segment;
	return at >= bytes;
}

static bool cut_is_possible(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
			    u32 bytes, u32 segment)
{
	if (!cut_has_beginnings(data, bytes, segment))
		return false;
	for (; bytes != 0; bytes -= MIN(bytes, segment), data += segment)
		if (!roce_icrc_is_possible(x, f, data, MIN(bytes, segment)))
			return false;
	return true;
}

/* Does nothing but an acknowledgement begin at `at` or behind? */
static bool cut_is_before_ack(const u8 *data, u32 bytes, u32 at)
{
	return bytes - at == CUT_ACK && (data[at] & CUT_OPCODE) == PKT_ACK && at <= ROCE_UDP_MAX &&
	       cut_next(data, bytes, at + 4) == bytes;
}

/* Tries all possible cuts. */
static NOINLINE bool cut_search(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
				u32 bytes, u32 *segment)
{
	u32 right = roce_icrc_is_possible(x, f, data, bytes);

	for (u32 at = cut_next(data, bytes, CUT_MIN); at < bytes && at <= ROCE_UDP_MAX && right < 2;
	     at = cut_next(data, bytes, at + 4))
		if (cut_is_possible(x, f, data, bytes, at)) {
			right++;
			*segment = at;
		}
	return right < 2;
}

bool cut_find(struct roce_source *s, const struct roce_flow *f, const u8 *data, u32 bytes,
	      u64 now_ms, struct udp_cut *cut)
{
	u32 at = cut_next(data, bytes, CUT_MIN);
	struct roce_flow second = *f;

	*cut = (struct udp_cut){ .segment = 0 };
	if (likely(at == bytes))
		return true;
	if (likely(cut_is_before_ack(data, bytes, at)) &&
	    roce_icrc_is_expected_pair(s, &second, data, at, bytes, now_ms)) {
		*cut = (struct udp_cut){ .segment = at, .judged = true };
		return !roce_icrc_is_pair_possible(&s->trial, &second, data, at, bytes);
	}
	return cut_search(&s->trial, f, data, bytes, &cut->segment);
}
