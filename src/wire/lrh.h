/* lrh.h: InfiniBand's link layer on the wire: the headers in front of the transport's, and both
 * CRCs behind.
 *
 *	LRH | GRH, if LNH says so | BTH | extension headers | payload | padding | ICRC | VCRC
 *
 * Pure functions: no system call, no lock, no memory but the caller's.
 * Spec: IBA vol 1, 7.7 (LRH), 8.3 (GRH), 7.8 (CRCs)
 */
#ifndef WIRE_LRH_H
#define WIRE_LRH_H

#include "wire/roce.h"

enum {
	LRH_BYTES = 8,
	LRH_GRH = 40,
	LRH_HEADERS_MAX = LRH_BYTES + LRH_GRH,
	LRH_VCRC = 2,
	LRH_VL_SMP = 15, /* of SMPs, and of nothing else */
};

struct lrh {
	u16 slid, dlid;
	u8 sl, vl;
} OWNED_BY(the caller);

/* Writes the LRH, and the GRH of `grh` (its GIDs, traffic class, hop limit and flow label) unless
 * that is NULL. `length`: of what follows, from the BTH to the ICRC; a multiple of 4. Returns how
 * many bytes. */
u32 lrh_pack(const struct lrh *h, const struct roce_flow *grh, u32 length, u8 out[LRH_HEADERS_MAX]);

/* Begins the ICRC: covers what is invariant of the `link` bytes that lrh_pack wrote and of the
 * `bytes` transport headers behind them. The rest as roce_icrc_begin says. */
u32 lrh_icrc_begin(const u8 *packet, u32 link, u32 bytes);

/* The VCRC of a packet from the LRH to the ICRC. Sent least significant byte first. */
u16 lrh_vcrc(const u8 *packet, u32 bytes);

#endif
