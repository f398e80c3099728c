/* window.h: how much may be in flight to one destination, and whose turn it is. */
#ifndef IBT_LOSSY_WINDOW_H
#define IBT_LOSSY_WINDOW_H

#include "ibt/ibt_qp.h"

/* What `packets` with `bytes` in all count: bytes, and a charge per packet. */
u32 window_cost(u32 packets, u32 bytes);
/* Takes room for `cost`, and for as much of the `left` of its message, which includes this packet,
 * as one burst or turn. False: the queue pair waits for its turn, and is run then. A probe always
 * gets room, uncounted. */
bool window_reserve(struct ibt_qp *qp, u32 cost, u32 left) REQUIRES(qp->req.sq_lock);
/* Gives back all room but what is in flight. `acked` bytes have arrived: the limit may grow. */
void window_settle(struct ibt_qp *qp, u32 acked) REQUIRES(qp->req.sq_lock);
/* The peer has answered a probe: from now on its packets count. */
void window_count_probe(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* log2 of how much longer the requests of a READ may be, so that max_rd_atomic of them, of
 * `cost` each unstretched, fill a window that has grown with the RTT. */
u8 window_stretch(struct ibt_qp *qp, u32 cost) REQUIRES(qp->req.sq_lock);
/* Takes the queue pair off the list of those that wait. */
void window_unlist(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Leaves the destination: gives all room back, waits no more. */
void window_leave(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Packets were lost: lowers the limit by a quarter, once within rtt_us. */
void window_cut(struct ibt_qp *qp, u32 rtt_us, u64 now_ns) REQUIRES(qp->req.sq_lock);
/* An RTT was measured: the minimum decides how far the limit may grow. */
void window_measured(struct ibt_qp *qp, u32 rtt_us) REQUIRES(qp->req.sq_lock);
/* The queue pair's destination, with a reference, if queue pairs wait there: for sched_wake, after
 * sq_lock has been released. NULL: none waits. */
struct path_dest *window_claim(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* The next queue pair whose turn it is, if the window has room for that; NULL: none. It cannot go
 * until window_turn_over. */
struct ibt_qp *window_pop(struct path_window *w);
/* The turn has been used. */
void window_turn_over(struct path_window *w, struct ibt_qp *qp);
/* Waits until no thread is between window_pop and window_turn_over with this queue pair, which
 * is on no list. May block. */
void window_quiesce(struct ibt_qp *qp);

#endif
