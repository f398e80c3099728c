/* source.h: judging the ICRC of received packets, by what is known of the hosts and source ports
 * that they come from. Computing it is roce.h's.
 *
 * Pure functions: no system call, no lock, no memory but the caller's.
 */
#ifndef WIRE_SOURCE_H
#define WIRE_SOURCE_H

#include "wire/roce.h"

/* What is remembered of a remote address, so that its packets' ICRC can be judged although a UDP
 * socket shows neither IPv4's identification nor its DF bit, which the ICRC covers. All zeroes in
 * the beginning; one thread at a time. Some hosts have one counter for all that they send (Linux's
 * rxe), some one for each socket, which begins anywhere (Linux's connected sockets): hence by host
 * and by source port. */
enum {
	ROCE_TRACKS = 4,
	ROCE_STRANGERS = 4,
	ROCE_AHEAD = 256,
	ROCE_BEHIND = 64,
	ROCE_PORTS = 64,
	ROCE_SOURCE_PREFIXES = 8,
};
/* Of which connection a packet is, and its place there. */
struct roce_place {
	u32 dqpn, psn;
} OWNED_BY(the caller);
/* What came from one source port lately. */
struct roce_port {
	struct roce_place place; /* of the last packet accepted */
	u64 seen_ms; /* when the last packet was accepted */
	u16 sport;
	u16 last;  /* its identification */
	u16 head;  /* the last one of a datagram that came alone, or first among joined ones */
	u8 step;   /* the next such is expected to be this much greater: 0 or 1 */
	bool known; /* else nothing has come yet */
	bool shared; /* counts on from the host's last one, not from its own */
	bool df;
	u8 strangers; /* packets since the last accepted one that had a far identification */
	bool stranger_df;
	u16 stranger; /* the last one's */
} OWNED_BY(the caller);
struct roce_source {
	u16 track[ROCE_TRACKS]; /* identifications seen last, the latest one first */
	u8 tracks;		/* how many of them are in use */
	bool wild;		/* identifications follow no order: any is accepted */
	bool df;		/* of the last packet accepted */
	u16 id;
	u16 head, step; /* as a port's */
	struct roce_unshift unshift;
	u64 seen_ms;	/* when track[0] was */
	struct roce_port port[ROCE_PORTS];
	struct roce_trial trial; /* cut.c's; only to compute less */
	/* a lane's port has one for itself, by its low bits; only to compute less */
	struct roce_prefix prefix[ROCE_SOURCE_PREFIXES];
} OWNED_BY(the caller);

/* Is the ICRC right that ends the UDP payload `data` of `length` bytes, received from f->sgid for
 * f->dgid? f->id is its place among those that were joined with it, 0 for the first or where it is
 * alone: only a hint. f->df is not looked at; `now_ms` is any clock that goes on.
 *
 * IPv6: exact. IPv4: a CRC is linear, so the difference between the ICRC received and the one
 * computed for an expected identification says by itself which identification and flags the sender
 * must have had, if any; no search. Accepted are: fragment bits as an unfragmented packet has them;
 * DF as before; an identification up to ROCE_AHEAD after or ROCE_BEHIND before the last one of its
 * source port, one of the last ones of the host, or 0 (batches are numbered from 0), or 0 with
 * either DF; or as far on as the PSN shows that packets of this connection have been lost. The
 * first packet of a source port may have any, for a new socket begins anywhere. One
 * that is far is dropped and remembered: if the next one of that port follows it, or after
 * ROCE_STRANGERS in a row, it is believed.
 *
 * A packet that was hit so that its CRC is arbitrary passes with probability
 *	2^-32	IPv6
 *	2^-15	the first packet of an IPv4 source's port; ROCE_PORTS ports at most are remembered
 *	2^-21	later ones (at most 7 * 321 + 1 of 2^32 values), plus 2^-30 for each track and
 *		millisecond of silence: hosts advance identifications with time
 *	2^-16	a source whose identifications follow no order
 * beside what the link's and UDP's own checksums have let through. */
bool roce_icrc_matches(struct roce_source *s, const struct roce_flow *f, const u8 *data, u32 length,
		       u64 now_ms);
/* The same of two joined packets, `all` bytes of which the first has `first`; each is as long as a
 * packet may be. True if both are right and have the identifications that are expected next: then
 * f->id and f->df are the second one's. Else nothing is remembered of either. */
bool roce_icrc_is_expected_pair(struct roce_source *s, struct roce_flow *f, const u8 *data,
				u32 first, u32 all, u64 now_ms);

#endif
