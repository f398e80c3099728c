/* proxy.h: the other end of forward.h: a process executes, by its SRQs and its memory, what XRC
 * targets of other processes hand to it. */
#ifndef IBT_XRC_PROXY_H
#define IBT_XRC_PROXY_H

#include "ibt/ibt_qp.h"

/* All of them inside the callbacks of the first path, which guard the proxies. */

/* A packet of a target (PKT_TYPE_FORWARDED). Takes the proxy's rq_lock. The payload may change
 * meanwhile: it is copied once. */
void proxy_receive(struct ibt *ibt, struct path_dest *from, const struct pkt *p,
		   const void *payload);
/* The process at `dest` has died, and its targets with it: what a message of theirs has taken of an
 * SRQ completes with WR_FLUSH_ERR. */
void proxy_peer_died(struct ibt *ibt, const struct path_dest *dest);
/* The engine ends: no path calls it any more. */
void proxy_free_all(struct ibt *ibt);

#endif
