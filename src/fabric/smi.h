/* smi.h: MADs on their way: the subnet management interface of every port, and GMPs.
 */
#ifndef FABRIC_SMI_H
#define FABRIC_SMI_H

#include "fabric/fabric_priv.h"
#include "fabric/route.h"

/* Bytes of a MAD's packet, from the LRH to the ICRC: what counters count. */
enum { HOP_MAD_BYTES = 8 + 12 + 8 + FABRIC_MAD + 4 };

/* An SMP leaves: from the software or the SMA of a CA's port, or from a switch's port 0. *m is
 * changed on the way. */
void smi_send(struct fabric *f, u32 port, struct fabric_mad *m);
/* A GMP, or another datagram that carries a MAD. */
void gmp_send(struct fabric *f, u32 port, struct fabric_mad *m);

/* Counts a MAD at both ends of a link. */
void hop_count(struct fabric *f, u32 out, u32 in, bool mcast);
/* Shows a MAD that crosses a link to who looks on. */
void hop_show(struct fabric *f, struct fabric_packet *k, u32 out, u32 in);
/* One MAD over one link: counts it at both ends, or what has dropped it. False: dropped. */
bool hop_cross(struct fabric *f, struct fabric_packet *k, u32 out, u8 in_number, u32 *in);
/* A MAD by its LID from a CA's port, or from port 0 of a switch. Returns the port of a CA, or the
 * port 0 of a switch, that has the LID, or FABRIC_NONE: dropped. *in: the port by which it came.
 */
u32 hop_by_lid(struct fabric *f, struct fabric_packet *k, u32 from, u32 *in);

#endif
