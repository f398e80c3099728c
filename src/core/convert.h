/* convert.h: work requests and completions between the midlayer's layout and libibverbs'.
 *
 * A driver whose data path is in libibverbs' layout (ib_device.uverbs) makes its ib_* side of
 * these: post_send, post_recv and post_srq_recv need nothing (registration fills in
 * ib_convert_post_*), poll_cq calls ib_convert_wc. All of this never blocks, allocates nothing,
 * takes no lock, and runs in any context.
 */
#ifndef CORE_CONVERT_H
#define CORE_CONVERT_H

#include "core/uverbs.h"

/* One request, without `next`. The list of SGEs is shared, not copied. `ah` is what a datagram's
 * request will point at; it must live as long as `out`. -EINVAL: an opcode that has no such form
 * (LSO, BIND_MW, REG_MR) or that no one knows. */
int ib_convert_send_wr(const struct ib_qp *qp, const struct ib_send_wr *in, struct ibv_send_wr *out,
		       struct ib_uverbs_ah *ah);
/* The way back; a datagram's ah must have been made as part of an ib_uverbs_ah. */
int ib_convert_ibv_send_wr(const struct ib_qp *qp, const struct ibv_send_wr *in,
			   struct ib_send_wr *out);
void ib_convert_recv_wr(const struct ib_recv_wr *in, struct ibv_recv_wr *out);
void ib_convert_ibv_recv_wr(const struct ibv_recv_wr *in, struct ib_recv_wr *out);
/* `qp`: the queue pair that the completion belongs to; NULL: a list operation of an SRQ. A field
 * that ibv_wc lacks (port_num) becomes 0. */
void ib_convert_wc(const struct ibv_wc *in, struct ib_qp *qp, struct ib_wc *out);
void ib_convert_ib_wc(const struct ib_wc *in, struct ibv_wc *out);

/* Whole methods for a driver with uverbs->post_*: each request is converted and handed on by
 * itself. */
int ib_convert_post_send(struct ib_qp *qp, struct ib_send_wr *wr, struct ib_send_wr **bad);
int ib_convert_post_recv(struct ib_qp *qp, struct ib_recv_wr *wr, struct ib_recv_wr **bad);
int ib_convert_post_srq_recv(struct ib_srq *srq, struct ib_recv_wr *wr, struct ib_recv_wr **bad);

#endif
