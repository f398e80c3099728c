/* srq.c: the shared receive queue.
 * In: receive requests of consumers
 * Out: copies of them, for whichever queue pair has a message; the limit event
 * Runs: any thread    Locks: the SRQ's, a leaf    Spec: IBA vol 1, 10.2.9
 */
#include <errno.h>
#include <stdlib.h>

#include "ibt/instance.h"
#include "ibt/receive/srq.h"

enum { SRQ_MAX_WR = IBT_MAX_WR };

static u32 srq_last_tm_id;

static int srq_init_tags(struct ibt_srq *srq, const struct ibt_srq_init *init)
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	int err;

	if (init->max_num_tags == 0 || init->max_num_tags > IBT_TM_MAX_TAGS || init->max_ops == 0 ||
	    init->max_ops > IBT_TM_MAX_OPS)
		return -EINVAL;
	srq->rndvs = calloc(init->max_num_tags, sizeof(*srq->rndvs));
	if (srq->rndvs == NULL)
		return -ENOMEM;
	err = tag_list_init(&srq->tags, init->max_num_tags, IBT_TM_MAX_SGE);
	if (err != 0) {
		free(srq->rndvs);
		return err;
	}
	srq->tm_cq = srq->own_cq = init->tm_cq;
	srq->max_ops = init->max_ops;
	srq->tm_id = __atomic_add_fetch(&srq_last_tm_id, 1, __ATOMIC_RELAXED);
	/* Its receives name no queue pair: they outlive it. */
	cq_names_no_qp(init->tm_cq);
	return 0;
}

int ibt_srq_create(struct ibt *ibt, const struct ibt_srq_init *init, struct ibt_srq **out)
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	struct ibt_srq *srq;
	int err;

	if (init->max_wr == 0 || init->max_wr > SRQ_MAX_WR || init->max_sge > IBT_MAX_SGE)
		return -EINVAL;
	srq = calloc(1, sizeof(*srq));
	if (srq == NULL)
		return -ENOMEM;
	srq->memory = (struct wqe_memory){ .from = init->memory, .kind = QUEUE_SRQ };
	err = wqe_ring_init(&srq->ring, init->max_wr, 0, init->max_sge, &srq->memory);
	if (err == 0 && init->tm_cq != NULL)
		err = srq_init_tags(srq, init);
	if (err != 0) {
		wqe_ring_fini(&srq->ring, &srq->memory);
		free(srq);
		return err;
	}
	srq->ibt = ibt;
	srq->pd = init->pd;
	srq->max_sge = srq->ring.max_sge;
	srq->owner = init->owner;
	/* completions that name no queue pair may outlive what they would free a place of */
	srq->frees_early = ibt->cfg.frees_early || srq->own_cq != NULL;
	*out = srq;
	return 0;
}

void ibt_srq_destroy(struct ibt_srq *srq) NO_THREAD_SAFETY /* nobody else has it any more */
{
	if (srq_matches_tags(srq)) {
		tag_list_destroy(&srq->tags);
		free(srq->rndvs);
	}
	wqe_ring_fini(&srq->ring, &srq->memory);
	free(srq);
}

void ibt_srq_orphan(struct ibt_srq *srq) NO_THREAD_SAFETY /* the child has one thread */
{
	lock_init(&srq->lock);
	lock_init(&srq->order_lock);
	srq->number = 0; /* its table is the parent's */
}

void ibt_srq_unplug(struct ibt_srq *srq)
{
	lock_acquire(&srq->lock);
	srq->unplugged = true;
	lock_release(&srq->lock);
}

/* A ring with its memory. */
struct srq_room {
	struct wqe_ring ring;
	struct wqe_memory memory;
} OWNED_BY(the caller);

/* Moves the requests to *room, and leaves there what they lay in. */
static int srq_move(struct ibt_srq *srq, struct srq_room *room) REQUIRES(srq->lock)
{
	struct srq_room old = { srq->ring, srq->memory };

	if (room->ring.size < srq->head - srq->tail)
		return -EINVAL;
	for (u32 i = srq->tail; i != srq->head; i++)
		memcpy(wqe_recv_at(&room->ring, i), wqe_recv_at(&srq->ring, i), room->ring.stride);
	srq->ring = room->ring;
	srq->memory = room->memory;
	*room = old;
	return 0;
}

/* Memory comes and goes without the lock: an allocator of the application may call verbs. */
static int srq_room_init(struct ibt_srq *srq, u32 max_wr, struct srq_room *room)
{
	if (max_wr == 0 || max_wr > SRQ_MAX_WR)
		return -EINVAL;
	lock_acquire(&srq->lock);
	room->memory = srq->memory;
	lock_release(&srq->lock);
	room->memory.is_given = false;
	return wqe_ring_init(&room->ring, max_wr, 0, srq->max_sge, &room->memory);
}

int ibt_srq_modify(struct ibt_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
	struct srq_room room = { 0 };
	int err = 0;

	if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
		return -EINVAL;
	if (resizes)
		err = srq_room_init(srq, attr->max_wr, &room);
	if (err != 0)
		return err;
	lock_acquire(&srq->lock);
	if (mask & IBV_SRQ_LIMIT && attr->srq_limit > (resizes ? attr->max_wr : srq->ring.size))
		err = -EINVAL;
	if (err == 0 && resizes)
		err = srq_move(srq, &room);
	if (err == 0 && mask & IBV_SRQ_LIMIT)
		srq->limit = attr->srq_limit;
	lock_release(&srq->lock);
	wqe_ring_fini(&room.ring, &room.memory);
	return err;
}

void ibt_srq_query(struct ibt_srq *srq, struct ibv_srq_attr *attr)
{
	lock_acquire(&srq->lock);
	attr->max_wr = srq->ring.size;
	attr->max_sge = srq->max_sge;
	attr->srq_limit = srq->limit;
	lock_release(&srq->lock);
}

/* A child that was forked beside a poll may count completions as polled that it then polls: what
 * waits has a place in any case. */
static u32 srq_used(const struct ibt_srq *srq) REQUIRES(srq->lock)
{
	u32 freed = __atomic_load_n(&srq->freed, __ATOMIC_RELAXED);

	return srq->head - (srq->frees_early || (s32)(freed - srq->tail) > 0 ? srq->tail : freed);
}

int ibt_srq_post(struct ibt_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err;

	lock_acquire(&srq->lock);
	err = srq->unplugged ? -EIO : 0;
	for (; wr != NULL && err == 0; wr = wr->next) {
		if (srq_used(srq) >= srq->ring.size)
			err = -ENOMEM;
		else
			err = wqe_fill_recv(&srq->ring, wqe_recv_at(&srq->ring, srq->head), wr);
		if (err != 0)
			break;
		srq->head++;
	}
	lock_release(&srq->lock);
	if (err != 0 && bad != NULL)
		*bad = wr;
	return err;
}

bool srq_take_held(struct ibt_srq *srq, struct recv_wqe *copy, bool *fire)
{
	const struct recv_wqe *w = wqe_recv_at(&srq->ring, srq->tail);

	if (srq->head == srq->tail)
		return false;
	memcpy(copy, w, sizeof(*w) + w->sge_count * sizeof(w->sge[0]));
	srq->tail++;
	*fire = srq->limit != 0 && srq->head - srq->tail < srq->limit;
	if (*fire)
		srq->limit = 0;
	return true;
}

void srq_limit(struct ibt_srq *srq)
{
	srq->ibt->cfg.async(srq->ibt->cfg.arg, NULL, srq, IBV_EVENT_SRQ_LIMIT_REACHED);
}

bool srq_take(struct ibt_srq *srq, struct recv_wqe *copy)
{
	bool fire = false, any;

	lock_acquire(&srq->lock);
	any = srq_take_held(srq, copy, &fire);
	lock_release(&srq->lock);
	if (unlikely(fire))
		srq_limit(srq);
	return any;
}

void *ibt_srq_owner(const struct ibt_srq *srq)
{
	return srq->owner;
}
