/* source.c: whether a received packet's ICRC is right, although a UDP socket does not show IPv4's
 * identification and DF, which the ICRC covers. The difference to the ICRC of an expected packet
 * tells which ones the sender must have used (roce_icrc_explain); what is known of the sender's
 * host and source port tells whether it may have.
 * In: packets, what is known of a source    Out: verdicts; the source, updated
 * Runs: one thread at a time for a source    Locks: none
 * Spec: IBA vol 1, A17.3.3
 */
#include "wire/source.h"

#include <endian.h>
#include <string.h>

enum { BTH_DQPN = 5, BTH_PSN = 9 };

/* ---- which identifications a source may have ---- */

static bool source_is_near(u16 id, u16 track, u32 ahead)
{
	return (u16)(id - track) <= ahead || (u16)(track - id) <= ROCE_BEHIND;
}

/* Hosts advance identifications with time. */
static u32 source_ahead(u64 seen_ms, u64 now_ms)
{
	return ROCE_AHEAD + 4 * (u32)MIN(now_ms - seen_ms, (u64)(1u << 14));
}

/* The index of the track that `id` lies near, or s->tracks. */
static u32 source_track(const struct roce_source *s, u16 id, u64 now_ms)
{
	u32 ahead, i = 0;

	if (likely(s->tracks != 0 && (u16)(id - s->track[0]) <= 1))
		return 0;
	ahead = source_ahead(s->seen_ms, now_ms);
	while (i < s->tracks && !source_is_near(id, s->track[i], ahead))
		i++;
	return i;
}

static struct roce_port *source_port(struct roce_source *s, u16 sport)
{
	return &s->port[(sport ^ sport >> 6 ^ sport >> 12) % ROCE_PORTS];
}

/* Have packets from there been accepted, not long ago? */
static bool source_port_is_known(const struct roce_port *p, u16 sport)
{
	return p->known && p->sport == sport;
}

/* As the port counts by itself. `first`: alone, or first among joined ones. */
static u16 source_port_next(const struct roce_port *p, bool first)
{
	return first ? (u16)(p->head + p->step) : (u16)(p->last + 1);
}

/* What the next packet of this port is expected to have. */
static u16 source_next(struct roce_source *s, u16 sport, bool first)
{
	const struct roce_port *p = source_port(s, sport);

	if (source_port_is_known(p, sport) && !p->shared)
		return source_port_next(p, first);
	return first ? (u16)(s->head + s->step) : (u16)(s->track[0] + 1);
}

/* The next one of the host is judged by this one. `i` is its track, or s->tracks: it gets one. */
static void source_accept(struct roce_source *s, u32 i, u16 id, bool first, u64 now_ms)
{
	if (first && s->tracks != 0 && (u16)(id - s->head) <= 1)
		s->step = id - s->head;
	if (first)
		s->head = id;
	if (i == s->tracks && s->tracks < ROCE_TRACKS)
		s->tracks++;
	i = MIN(i, ROCE_TRACKS - 1u);
	if (unlikely(i != 0))
		memmove(s->track + 1, s->track, i * sizeof(s->track[0]));
	s->track[0] = id;
	s->seen_ms = now_ms;
}

/* The next one of the port. `before`: of the host, in the packet before. */
static void source_port_accept(struct roce_port *p, u16 before, const struct roce_flow *f,
			       bool first, u64 now_ms)
{
	if (!source_port_is_known(p, f->sport))
		*p = (struct roce_port){
			.known = true, .sport = f->sport, .head = f->id, .df = f->df
		};
	else if (f->id == source_port_next(p, first))
		p->shared = false;
	else if ((u16)(f->id - before) <= 1)
		p->shared = true;
	if (first && (u16)(f->id - p->head) <= 1)
		p->step = f->id - p->head;
	if (first)
		p->head = f->id;
	if (f->id != 0)
		p->df = f->df;
	p->last = f->id;
	p->strangers = 0;
	p->seen_ms = now_ms;
}

/* One that is far: is it believed by now? */
static bool source_port_believe(struct roce_source *s, struct roce_port *p, u16 id, bool df)
{
	bool again = p->strangers != 0 && df == p->stranger_df;
	bool follows = again && source_is_near(id, p->stranger, ROCE_AHEAD);

	p->strangers = again ? p->strangers + 1 : 1;
	p->stranger = id;
	p->stranger_df = df;
	if (follows || p->strangers < ROCE_STRANGERS)
		return follows;
	s->wild = true;
	return true;
}

/* Packets between the last accepted one and this were lost, if both are of one connection: so far
 * has the identification gone on, too. */
static bool source_port_is_behind_gap(const struct roce_port *p, const struct roce_place *at,
				      u16 id)
{
	return at->dqpn == p->place.dqpn &&
	       source_is_near(id, p->last + (u16)(at->psn - p->place.psn), ROCE_AHEAD);
}

/* Is it near the last one of its port, which has accepted some? */
static bool source_port_owns(const struct roce_port *p, const struct roce_place *at,
		      const struct roce_flow *f, u64 now_ms)
{
	return source_port_is_known(p, f->sport) &&
	       (source_is_near(f->id, p->last, source_ahead(p->seen_ms, now_ms)) ||
		source_port_is_behind_gap(p, at, f->id));
}

/* The packet has f->id and f->df, if any. */
static bool source_judge(struct roce_source *s, const struct roce_place *at,
			 const struct roce_flow *f, bool first, u64 now_ms)
{
	struct roce_port *p = source_port(s, f->sport);
	u16 before = s->track[0];
	bool known = source_port_is_known(p, f->sport), own = false, common;
	/* where the host's counter stands if this is an identification of it: near a track, or of a
	 * port whose last one was */
	u32 i = source_track(s, f->id, now_ms);

	if (unlikely(i == s->tracks)) {
		own = source_port_owns(p, at, f, now_ms);
		if (own)
			i = source_track(s, p->last, now_ms);
	}
	/* the host's one counter, or batches from 0 */
	common = i != s->tracks || source_is_near(f->id, 0, ROCE_AHEAD);
	if (known && f->id != 0 && !((common || own || s->wild) && f->df == p->df)) {
		if (!source_port_believe(s, p, f->id, f->df))
			return false;
		common = true;
	}
	if (common || s->tracks == 0)
		source_accept(s, i, f->id, first, now_ms);
	source_port_accept(p, before, f, first, now_ms);
	p->place = *at;
	s->id = f->id;
	s->df = f->df;
	return true;
}

static u32 icrc_24_bits(const u8 *at)
{
	return (u32)at[0] << 16 | (u32)at[1] << 8 | at[2];
}

static u32 icrc_received(const u8 *data, u32 length)
{
	u32 received;

	memcpy(&received, data + length - ROCE_ICRC, ROCE_ICRC);
	return le32toh(received);
}

static struct roce_place icrc_place(const u8 *bth)
{
	return (struct roce_place){ icrc_24_bits(bth + BTH_DQPN), icrc_24_bits(bth + BTH_PSN) };
}

/* Says in `e` what is expected of a packet of this flow, and how far its ICRC is from that. */
static u32 source_difference(struct roce_source *s, const struct roce_flow *f, const u8 *data,
			     u32 length, struct roce_flow *e)
{
	const struct roce_port *p = source_port(s, f->sport);

	*e = *f;
	e->id = source_next(s, f->sport, f->id == 0);
	e->df = source_port_is_known(p, f->sport) ? p->df : s->df;
	return roce_icrc_whole(&s->prefix[f->sport % ROCE_SOURCE_PREFIXES], e, data, length) ^
	       icrc_received(data, length);
}

bool roce_icrc_matches(struct roce_source *s, const struct roce_flow *f, const u8 *data, u32 length,
		       u64 now_ms)
{
	struct roce_place at;
	struct roce_flow e;
	u32 difference;

	if (length < ROCE_BTH + ROCE_ICRC || length > ROCE_UDP_MAX)
		return false;
	difference = source_difference(s, f, data, length, &e);
	if (!roce_gid_is_ipv4(f->dgid))
		return difference == 0;
	at = icrc_place(data);
	return (difference == 0 || roce_icrc_explain(&s->unshift, difference, length, &e)) &&
	       source_judge(s, &at, &e, f->id == 0, now_ms);
}

bool roce_icrc_is_expected_pair(struct roce_source *s, struct roce_flow *f, const u8 *data,
				u32 first, u32 all, u64 now_ms)
{
	const u8 *second = data + first;
	struct roce_place at, then;
	struct roce_flow e, next;

	if (source_difference(s, f, data, first, &e) != 0)
		return false;
	next = e;
	next.id++;
	if (roce_icrc_whole(&s->prefix[f->sport % ROCE_SOURCE_PREFIXES], &next, second,
			    all - first) != icrc_received(second, all - first))
		return false;
	f->id = next.id;
	f->df = next.df;
	if (!roce_gid_is_ipv4(f->dgid))
		return true;
	at = icrc_place(data);
	then = icrc_place(second);
	return source_judge(s, &at, &e, true, now_ms) &&
	       source_judge(s, &then, &next, false, now_ms);
}
