/* raw_rq.c: receive queues for whole frames: of a raw packet queue pair, or a work queue.
 * In: receive requests, frames    Out: completions
 * Runs: posters; whoever has a frame    Locks: rq_lock, then the CQ's
 */
#include <errno.h>

#include "driver/soft/raw.h"

int soft_rq_init(struct soft_rq *rq, const struct queue_memory *memory, u32 *max_wr, u32 *max_sge)
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	int err;

	if (*max_wr > IBT_MAX_WR || *max_sge > IBT_MAX_SGE)
		return -EINVAL;
	if (*max_wr != 0 && *max_sge == 0)
		*max_sge = 1;
	rq->memory = (struct wqe_memory){ .from = memory, .kind = QUEUE_RECV };
	err = wqe_ring_init(&rq->ring, *max_wr, 0, *max_sge, &rq->memory);
	*max_wr = rq->ring.size;
	/* a work queue may be gone when its completions are polled */
	cq_source_init(&rq->source, NULL, CQ_APART);
	return err;
}

void soft_rq_fini(struct soft_rq *rq) NO_THREAD_SAFETY
{
	wqe_ring_fini(&rq->ring, &rq->memory);
}

/* Completes the oldest request. False: the CQ has overflowed. */
static bool soft_rq_complete(struct soft_rq *rq, enum ibv_wc_status status, u32 length)
	REQUIRES(rq->rq_lock)
{
	struct recv_wqe *w = wqe_recv_at(&rq->ring, rq->tail++);
	struct cqe *e = cq_reserve(rq->cq);

	if (likely(e)) {
		cqe_set(e, w->wr_id, status, IBV_WC_RECV, length, rq->number, 0,
			rq->is_of_qp ? &rq->source : &cq_source_none, rq->tail);
		cq_commit(rq->cq, e, false);
	}
	return e != NULL;
}

static void soft_rq_fail(struct soft_rq *rq) REQUIRES(rq->rq_lock)
{
	rq->state = SOFT_RQ_FAILED;
	while (rq->tail != rq->head)
		(void)soft_rq_complete(rq, IBV_WC_WR_FLUSH_ERR, 0);
}

void soft_rq_set(struct soft_rq *rq, enum soft_rq_state state)
{
	lock_acquire(&rq->rq_lock);
	if (state == SOFT_RQ_FAILED)
		soft_rq_fail(rq);
	else if (state == SOFT_RQ_RESET)
		rq->tail = rq->head;
	rq->state = state;
	lock_release(&rq->rq_lock);
}

void soft_rq_free_places(struct soft_rq *rq)
{
	lock_acquire(&rq->rq_lock);
	cq_polled(&rq->source, rq->head);
	lock_release(&rq->rq_lock);
}

enum soft_rq_state soft_rq_state(struct soft_rq *rq)
{
	enum soft_rq_state state;

	lock_acquire(&rq->rq_lock);
	state = rq->state;
	lock_release(&rq->rq_lock);
	return state;
}

void soft_rq_unplug(struct soft_rq *rq)
{
	lock_acquire(&rq->rq_lock);
	rq->unplugged = true;
	if (rq->state != SOFT_RQ_RESET)
		soft_rq_fail(rq);
	lock_release(&rq->rq_lock);
}

int soft_rq_post(struct soft_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err;

	lock_acquire(&rq->rq_lock);
	err = rq->unplugged ? -EIO : rq->state == SOFT_RQ_RESET ? -EINVAL : 0;
	for (; wr != NULL && err == 0; wr = wr->next) {
		if (cq_source_used(&rq->source, rq->head, rq->tail) >= rq->ring.size) {
			err = -ENOMEM;
			break;
		}
		err = wqe_fill_recv(&rq->ring, wqe_recv_at(&rq->ring, rq->head), wr);
		if (err != 0)
			break;
		rq->head++;
	}
	if (rq->state == SOFT_RQ_FAILED)
		soft_rq_fail(rq);
	lock_release(&rq->rq_lock);
	if (err != 0 && bad != NULL)
		*bad = wr;
	return err;
}

static void soft_rq_fill(struct soft_rq *rq, const u8 *frame, u32 length) REQUIRES(rq->rq_lock)
{
	struct recv_wqe *w = wqe_recv_at(&rq->ring, rq->tail);
	struct mem_cursor cursor = { .sge = w->sge, .count = w->sge_count };
	int err = mem_scatter(&the_seat.a.mem, rq->pd, &cursor, frame, length);
	enum ibv_wc_status status = err == 0	      ? IBV_WC_SUCCESS
				    : err == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR
						       : IBV_WC_LOC_PROT_ERR;

	if (!soft_rq_complete(rq, status, length) || err != 0)
		soft_rq_fail(rq);
}

void soft_rq_deliver(struct soft_rq *rq, const u8 *frame, u32 length)
{
	lock_acquire(&rq->rq_lock);
	if (rq->state == SOFT_RQ_READY && rq->tail != rq->head)
		soft_rq_fill(rq, frame, length);
	lock_release(&rq->rq_lock);
}
