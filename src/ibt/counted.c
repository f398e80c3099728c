/* counted.c: counters of what a queue pair has completed, signalled or not.
 * In:    requests that end    Out: op_counter of the consumer
 * Runs:  whoever completes    Locks: sq_lock, then rq_lock, to attach
 *
 * A queue pair with a counter takes no fast path: each of its send requests has WQE_COUNTED, and
 * its receive source is marked, so that the paths of all others test nothing more.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/op_counter.h"
#include "ibt/counted.h"

struct counted {
	struct op_counter *of[IBT_COUNTS]; /* by the place of enum ibt_count's bit; NULL: none */
} WRITTEN_UNDER(requester.sq_lock, responder.rq_lock);

static u32 counted_kind(u8 opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return IBT_COUNT_SEND;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBT_COUNT_WRITE;
	case IBV_WR_RDMA_READ:
		return IBT_COUNT_READ;
	default:
		return 0;
	}
}

static void counted_add(const struct counted *counted, u32 kind, bool ok, u32 bytes)
{
	struct op_counter *c = kind != 0 ? counted->of[__builtin_ctz(kind)] : NULL;

	if (c != NULL)
		op_counter_add(c, ok, bytes);
}

/* The flag may be an application's that sets bits which nobody has defined. */
void counted_send(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status)
{
	if (qp->resp.counted != NULL)
		counted_add(qp->resp.counted, counted_kind(w->opcode), status == IBV_WC_SUCCESS,
			    w->length);
}

void counted_recv(struct ibt_qp *qp, enum ibv_wc_status status, u32 length)
{
	if (qp->resp.counted != NULL)
		counted_add(qp->resp.counted, IBT_COUNT_RECV, status == IBV_WC_SUCCESS, length);
}

/* 0; -EINVAL: the state; -EBUSY: one of the kinds has a counter; -ENOMEM. */
static int counted_prepare(struct ibt_qp *qp, u32 kinds) REQUIRES(qp->req.sq_lock)
	REQUIRES(qp->resp.rq_lock)
{
	if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
		return qp->unplugged ? -EIO : -EINVAL;
	if (qp->resp.counted == NULL)
		qp->resp.counted = calloc(1, sizeof(*qp->resp.counted));
	if (qp->resp.counted == NULL)
		return -ENOMEM;
	for (u32 i = 0; i < IBT_COUNTS; i++)
		if ((kinds & 1u << i) != 0 && qp->resp.counted->of[i] != NULL)
			return -EBUSY;
	return 0;
}

static int counted_attach(struct ibt_qp *qp, struct op_counter *counter, u32 kinds)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	int err = counted_prepare(qp, kinds);

	if (err != 0)
		return err;
	for (u32 i = 0; i < IBT_COUNTS; i++)
		if ((kinds & 1u << i) != 0)
			qp->resp.counted->of[i] = counter;
	qp->post_flags |= WQE_COUNTED;
	qp->resp.marked = true;
	qp->quick = false;
	return 0;
}

int ibt_qp_attach_counter(struct ibt_qp *qp, struct op_counter *counter, u32 kinds)
{
	int err;

	if (kinds == 0 || (kinds & ~(u32)IBT_COUNT_KNOWN) != 0 || qp_is_target(qp) ||
	    (qp->srq != NULL && srq_matches_tags(qp->srq)))
		return kinds == 0 ? -EINVAL : -EOPNOTSUPP;
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	err = counted_attach(qp, counter, kinds);
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
	return err;
}
