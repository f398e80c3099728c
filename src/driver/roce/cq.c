/* cq.c: completion queues as the midlayer and the doors see them.
 * In: polls, arms    Out: completions, driving the engine on the way    Runs: any thread
 * Locks: the CQ's
 */
#include "driver/roce/roce.h"

#include <errno.h>
#include <stdlib.h>

#include "core/convert.h"

static void cq_run_handler(struct cq *q)
{
	struct roce_cq *cq = container_of(q, struct roce_cq, q);

	if (cq->ib.comp_handler != NULL)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

static void cq_overflowed(struct cq *q)
{
	struct roce_cq *cq = container_of(q, struct roce_cq, q);
	struct ib_event ev = { .device = cq->ib.device,
			       .event = IB_EVENT_CQ_ERR,
			       .element.cq = &cq->ib };

	path_count(shm_path(roce_dev(cq->ib.device)->a.shm), COUNT_CQ_OVERFLOW);
	ib_dispatch_event(&ev);
}

/* The consumer's own part lies where its context points. */
static void cq_fetch_qp(const void *owner)
{
	const struct roce_qp *qp = owner;

	ibt_qp_fetch(roce_engine(qp));
	__builtin_prefetch(qp->ib.qp_context);
}

/* A program that sleeps on one channel for both of its queues may take a message's event for that
 * of its own request, which is acknowledged a little later, and poll too early: from then on it is
 * one completion behind. ib_send_lat -e does so with a CQ of one. */
static u32 cq_entries(int cqe)
{
	return MAX((u32)cqe, (u32)ROCE_LEAST_CQE);
}

static struct roce_cq *cq_new(struct roce_device *dev, int cqe)
{
	struct roce_cq *cq;
	int err = cqe < 1 || cqe > ROCE_MAX_CQE ? -EINVAL : roce_attach(dev);

	if (err != 0)
		return ERR_PTR(err);
	if (__atomic_add_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED) > ROCE_MAX_CQ ||
	    (cq = aligned_alloc(CACHE_LINE, (sizeof(*cq) + CACHE_LINE - 1) / CACHE_LINE *
						    CACHE_LINE)) == NULL) {
		__atomic_sub_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	*cq = (struct roce_cq){ .ib.device = &dev->ib };
	err = cq_init(&cq->q, cq_entries(cqe));
	if (err != 0) {
		__atomic_sub_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED);
		free(cq);
		return ERR_PTR(err);
	}
	cq->q.fetch = cq_fetch_qp;
	cq->q.overflow = cq_overflowed;
	cq->q.eager = dev->eager_ib;
	cq->ib.cqe = (int)cq->q.capacity;
	lock_acquire(&dev->id_lock);
	list_push_back(&dev->cqs, &cq->node);
	lock_release(&dev->id_lock);
	return cq;
}

static struct ib_cq *cq_create(struct ib_device *ib, int cqe, int vector)
{
	struct roce_cq *cq = cq_new(roce_dev(ib), cqe);

	if (IS_ERR(cq))
		return ERR_PTR(PTR_ERR(cq));
	cq_sink_to_handler(&cq->q, vector_get((u32)vector), cq_run_handler);
	return &cq->ib;
}

static int cq_destroy(struct ib_cq *ib)
{
	struct roce_cq *cq = ROCE_OF(cq, ib);
	struct roce_device *dev = roce_dev(ib->device);

	lock_acquire(&dev->id_lock);
	list_remove(&cq->node);
	lock_release(&dev->id_lock);
	cq_fini(&cq->q);
	__atomic_sub_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED);
	free(cq);
	return 0;
}

struct ib_cq *roce_uverbs_create_cq(struct ib_device *ib, int cqe, u32 vector, struct channel *ch,
				    void *cookie)
{
	struct roce_cq *cq = cq_new(roce_dev(ib), cqe);
	int err;

	if (IS_ERR(cq))
		return ERR_PTR(PTR_ERR(cq));
	cq->q.eager = roce_dev(ib)->eager_door;
	if (ch == NULL)
		return &cq->ib;
	err = cq_sink_to_channel(&cq->q, ch, cookie);
	if (err != 0) {
		cq_destroy(&cq->ib);
		return ERR_PTR(err);
	}
	return &cq->ib;
}

static NOINLINE int cq_drive_and_poll(struct roce_cq *cq, int n, struct ibv_wc *wc)
{
	int got;

	cq_expect(&cq->q, n, wc);
	progress_drive(roce_dev(cq->ib.device));
	got = cq_expected(n);
	return cq_looks_empty(&cq->q) ? got : got + cq_pop(&cq->q, n - got, wc + got);
}

int roce_uverbs_poll_cq(struct ib_cq *ib, int n, struct ibv_wc *wc)
{
	struct roce_cq *cq = ROCE_OF(cq, ib);

	return cq_looks_empty(&cq->q) ? cq_drive_and_poll(cq, n, wc) : cq_pop(&cq->q, n, wc);
}

static int cq_poll(struct ib_cq *ib, int n, struct ib_wc *wc)
{
	struct roce_cq *cq = ROCE_OF(cq, ib);
	struct cqe e;
	int got = 0;

	if (cq_looks_empty(&cq->q))
		progress_drive(roce_dev(ib->device));
	while (got < n && cq_pop_cqe(&cq->q, 1, &e) == 1) {
		struct roce_qp *qp = e.qp;

		ib_convert_wc(&e.wc, &qp->ib, &wc[got]);
		wc[got].port_num = 1;
		got++;
	}
	return got;
}

void roce_uverbs_ack_cq_events(struct ib_cq *ib, u32 events)
{
	channel_ack(&ROCE_OF(cq, ib)->q.source, events);
}

static int cq_resize_ib(struct ib_cq *ib, int cqe)
{
	struct roce_cq *cq = ROCE_OF(cq, ib);
	int err;

	if (cqe < 1 || cqe > ROCE_MAX_CQE)
		return -EINVAL;
	lock_acquire(&cq->size_lock);
	err = cq_resize(&cq->q, (u32)cqe);
	if (err == 0)
		/* pairs with the door's load */
		__atomic_store_n(&ib->cqe, (int)cq->q.capacity, __ATOMIC_SEQ_CST);
	lock_release(&cq->size_lock);
	return err;
}

static int cq_peek_ib(struct ib_cq *ib, int count)
{
	return cq_peek(&ROCE_OF(cq, ib)->q, count);
}

static int cq_req_notify(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	int ret = cq_arm(&ROCE_OF(cq, ib)->q, (u32)flags);

	if (ret >= 0)
		progress_armed(roce_dev(ib->device));
	return ret;
}

static int cq_req_ncomp(struct ib_cq *ib, int count)
{
	int err = count <= 0 ? -EINVAL : cq_arm_ncomp(&ROCE_OF(cq, ib)->q, (u32)count);

	if (err == 0)
		progress_armed(roce_dev(ib->device));
	return err;
}

void roce_fill_cq(struct ib_device *ib)
{
	ib->create_cq = cq_create;
	ib->destroy_cq = cq_destroy;
	ib->resize_cq = cq_resize_ib;
	ib->poll_cq = cq_poll;
	ib->peek_cq = cq_peek_ib;
	ib->req_notify_cq = cq_req_notify;
	ib->req_ncomp_notif = cq_req_ncomp;
}
