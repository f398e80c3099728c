/* quick.h: the shortest way of a small SEND. */
#ifndef IBT_SEND_QUICK_H
#define IBT_SEND_QUICK_H

#include "ibt/ibt_qp.h"

/* path_user.receive_brief: delivers a small SEND and takes its piggybacked acknowledgement.
 * `user`: the engine. False: nothing is delivered, engine_receive is to have it. Takes sq_lock,
 * then rq_lock, one at a time. */
bool quick_receive(void *user, struct path_dest *from, const struct pkt_brief *b,
		   const void *payload);
/* path_user.receive_run: delivers the first packets of one connection in a row; returns how many.
 * Takes rq_lock. */
u32 quick_receive_run(void *user, struct path_dest *from, const struct pkt_brief *b,
		      const void *const *payload, u32 n);

#endif
