/* grh.h: the 40 bytes in front of a datagram's payload. */
#ifndef IBT_RECEIVE_GRH_H
#define IBT_RECEIVE_GRH_H

#include "ibt/ibt_qp.h"

/* Writes the IPv6 header of the datagram `p`, or its IPv4 header in the last 20 bytes. */
void grh_fill(u8 grh[IBT_GRH], const struct pkt *p);
/* Is the GID an IPv4 address mapped to IPv6? */
bool grh_is_v4(const u8 gid[16]);
/* Fills in where a datagram came from: the GRH's flag, SLID, SL and destination path bits. Without
 * LIDs (RoCE) the SL says what the 40 bytes in front of the payload hold (annex A17): 1 a GRH
 * as IPv6 has it, 2 an IPv4 header. Consumers that check the destination need it. */
void grh_wc_route(const struct ibt_qp *qp, const struct pkt *p, struct ibv_wc *wc);

#endif
