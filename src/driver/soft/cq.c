/* cq.c: the methods of completion queues.
 * In: polls, arms    Out: completions, driving the engine on the way    Runs: any thread
 * Locks: the CQ's
 */
#include "driver/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/convert.h"

enum {
	CQ_FLAGS_SIDE = IB_CQ_FLAGS_WALLCLOCK | IB_CQ_FLAGS_TM_INFO,
	CQ_FLAGS_KNOWN =
		IB_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_CQ_FLAGS_IGNORE_OVERRUN | CQ_FLAGS_SIDE,
};

static void soft_cq_run_handler(struct cq *q)
{
	struct soft_cq *cq = container_of(q, struct soft_cq, q);

	if (cq->ib.comp_handler != NULL)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

static void soft_cq_overflowed(struct cq *q)
{
	struct soft_cq *cq = container_of(q, struct soft_cq, q);
	struct ib_event ev = { .device = cq->ib.device,
			       .event = IB_EVENT_CQ_ERR,
			       .element.cq = &cq->ib };

	path_count(shm_path(the_seat.a.shm), COUNT_CQ_OVERFLOW);
	ib_dispatch_event(&ev);
}

/* The device's part of the queue pair lies where its context points. */
static void soft_cq_fetch_qp(const void *owner)
{
	const struct soft_qp *qp = owner;

	ibt_qp_fetch(soft_engine(qp));
	__builtin_prefetch(qp->ib.qp_context);
}

/* Adds room for a few entries. A program that sleeps on one channel for both of its CQs may take
 * the event of a received message for that of its own request, which is acknowledged a little
 * later, and poll too early: from then on it is one completion behind. ib_send_lat -e does so with
 * a CQ of one entry. */
static u32 soft_cq_entries(int cqe)
{
	return MAX((u32)cqe, (u32)SOFT_LEAST_CQE);
}

/* Applies the creation flags, before the CQ is used. */
static int soft_cq_extend(struct cq *q, u32 flags)
{
	int err = 0;

	if ((flags & IB_CQ_FLAGS_TIMESTAMP_COMPLETION) != 0)
		cq_keep_timestamps(q);
	if ((flags & CQ_FLAGS_SIDE) != 0)
		err = cq_keep_sides(q);
	if (err == 0 && (flags & IB_CQ_FLAGS_IGNORE_OVERRUN) != 0)
		err = cq_ignore_overrun(q);
	return err;
}

static int soft_cq_check_attr(const struct ib_cq_init_attr *attr)
{
	if ((attr->flags & ~(u32)CQ_FLAGS_KNOWN) != 0)
		return -EOPNOTSUPP;
	return attr->cqe < 1 || attr->cqe > SOFT_MAX_CQE ? -EINVAL : 0;
}

static struct soft_cq *soft_cq_new(struct soft_device *dev, const struct ib_cq_init_attr *attr,
				   const struct queue_memory *memory)
{
	struct soft_cq *cq;
	int err = soft_cq_check_attr(attr);

	if (err == 0)
		err = soft_attach(dev);
	if (err != 0)
		return ERR_PTR(err);
	if (__atomic_add_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED) > SOFT_MAX_CQ ||
	    (cq = aligned_alloc(CACHE_LINE, (sizeof(*cq) + CACHE_LINE - 1) / CACHE_LINE *
						    CACHE_LINE)) == NULL) {
		__atomic_sub_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	*cq = (struct soft_cq){ .ib.device = &dev->ib, .flags = attr->flags,
				.generation = seat_generation(&the_seat) };
	err = cq_init_in(&cq->q, soft_cq_entries(attr->cqe), memory);
	if (err == 0)
		err = soft_cq_extend(&cq->q, attr->flags);
	if (err != 0) {
		cq_fini(&cq->q);
		__atomic_sub_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED);
		free(cq);
		return ERR_PTR(err);
	}
	cq->q.fetch = soft_cq_fetch_qp;
	cq->q.credit = ibt_credit;
	cq->q.overflow = soft_cq_overflowed;
	cq->q.eager = __atomic_load_n(&dev->eager_ib, __ATOMIC_RELAXED);
	cq->ib.cqe = (int)cq->q.capacity;
	lock_acquire(&dev->list_lock);
	list_push_back(&dev->cqs, &cq->node);
	lock_release(&dev->list_lock);
	return cq;
}

struct ib_cq *soft_create_cq(struct ib_device *ib, const struct ib_cq_init_attr *attr)
{
	struct vector *v = vector_get((u32)attr->comp_vector);
	int err = vector_start(v);
	struct soft_cq *cq;

	if (err != 0)
		return ERR_PTR(err);
	cq = soft_cq_new(soft_dev(ib), attr, NULL);
	if (IS_ERR(cq))
		return ERR_PTR(PTR_ERR(cq));
	cq_sink_to_handler(&cq->q, v, soft_cq_run_handler);
	cq->q.owing = &the_seat.sleepers;
	return &cq->ib;
}

static struct ib_cq *soft_cq_create(struct ib_device *ib, int cqe, int vector)
{
	struct ib_cq_init_attr attr = { .size = sizeof(attr), .cqe = cqe, .comp_vector = vector };

	return soft_create_cq(ib, &attr);
}

static int soft_cq_destroy(struct ib_cq *ib)
{
	struct soft_cq *cq = SOFT_OF(cq, ib);
	struct soft_device *dev = soft_dev(ib->device);

	lock_acquire(&dev->list_lock);
	list_remove(&cq->node);
	lock_release(&dev->list_lock);
	cq_fini(&cq->q);
	__atomic_sub_fetch(&dev->cq_count, 1, __ATOMIC_RELAXED);
	free(cq);
	return 0;
}

struct ib_cq *soft_uverbs_create_cq(struct ib_device *ib, const struct ib_uverbs_cq_attr *attr)
{
	struct soft_cq *cq = soft_cq_new(soft_dev(ib), &attr->cq, attr->memory);
	int err;

	if (IS_ERR(cq))
		return ERR_PTR(PTR_ERR(cq));
	cq->q.eager = __atomic_load_n(&soft_dev(ib)->eager_door, __ATOMIC_RELAXED);
	if (attr->channel == NULL)
		return &cq->ib;
	err = cq_sink_to_channel(&cq->q, attr->channel, attr->cookie);
	if (err != 0) {
		soft_cq_destroy(&cq->ib);
		return ERR_PTR(err);
	}
	/* a thread that sleeps without a descriptor counts itself: progress_sleep_begin */
	if (channel_fd(attr->channel) >= 0)
		cq->q.owing = &the_seat.sleepers;
	return &cq->ib;
}

/* Result of a poll that found `got` entries: -EIO behind the last one if the device is gone. */
static int soft_cq_answer(const struct soft_cq *cq, int got)
{
	return got != 0 || soft_is_live(soft_dev(cq->ib.device)) ? got : soft_check(cq->ib.device);
}

/* Polls without driving the engine: the seat is not taken, or the device is gone. */
static int soft_cq_poll_idle(struct soft_cq *cq, int n, struct ibv_wc *wc)
{
	return soft_cq_answer(cq, cq_pop(&cq->q, n, wc));
}

static NOINLINE int soft_cq_drive_and_poll(struct soft_cq *cq, int n, struct ibv_wc *wc)
{
	int got;

	if (unlikely(!soft_is_live(soft_dev(cq->ib.device))))
		return soft_cq_poll_idle(cq, n, wc);
	cq_expect(&cq->q, n, wc);
	progress_drive();
	got = cq_expected(n);
	return cq_looks_empty(&cq->q) ? got : got + cq_pop(&cq->q, n - got, wc + got);
}

int soft_uverbs_poll_cq(struct ib_cq *ib, int n, struct ibv_wc *wc)
{
	struct soft_cq *cq = SOFT_OF(cq, ib);

	return cq_looks_empty(&cq->q) ? soft_cq_drive_and_poll(cq, n, wc) : cq_pop(&cq->q, n, wc);
}

/* Completions of a tag-matching SRQ name no queue pair. */
static void soft_cq_convert(const struct cqe *e, struct ib_wc *wc)
{
	struct soft_qp *qp = cq_source_qp(e->source);

	ib_convert_wc(&e->wc, qp == NULL ? NULL : &qp->ib, wc);
	if (qp != NULL)
		wc->port_num = __atomic_load_n(&qp->port, __ATOMIC_RELAXED);
}

/* Where a poll puts what it takes: of each pair of arrays one may be missing. */
struct soft_poll {
	u32 flags; /* what the CQ was created for */
	struct ibv_wc *user_wc;
	struct ib_wc *wc;
	struct ib_wc_side *side;
} OWNED_BY(the caller);

static void soft_cq_side(const struct cqe *e, const struct cqe_side *side, u32 flags,
			 struct ib_wc_side *out)
{
	*out = (struct ib_wc_side){ 0 };
	if ((flags & IB_CQ_FLAGS_TM_INFO) != 0) {
		out->tm_tag = side->tag;
		out->tm_priv = side->priv;
	}
	if ((flags & IB_CQ_FLAGS_TIMESTAMP_COMPLETION) != 0)
		out->timestamp = e->timestamp_ns;
	if ((flags & IB_CQ_FLAGS_WALLCLOCK) != 0)
		out->wallclock_ns = side->wall_ns;
}

/* One entry, for cq_pop_each. That bypasses cq_hand, whose completions have no side data. */
static void soft_cq_take(const struct cqe *e, const struct cqe_side *side, int i, void *arg)
{
	const struct soft_poll *p = arg;

	if (p->wc != NULL)
		soft_cq_convert(e, &p->wc[i]);
	else
		p->user_wc[i] = e->wc;
	if (p->side != NULL)
		soft_cq_side(e, side, p->flags, &p->side[i]);
}

static int soft_cq_take_each(struct soft_cq *cq, int n, struct soft_poll *p)
{
	if (cq_looks_empty(&cq->q) && soft_is_live(soft_dev(cq->ib.device)))
		progress_drive();
	p->flags = cq->flags;
	return soft_cq_answer(cq, cq_pop_each(&cq->q, n, soft_cq_take, p));
}

int soft_uverbs_poll_cq_ex(struct ib_cq *ib, int n, struct ibv_wc *wc, struct ib_wc_side *side)
{
	return soft_cq_take_each(SOFT_OF(cq, ib), n,
				 &(struct soft_poll){ .user_wc = wc, .side = side });
}

int soft_poll_cq(struct ib_cq *ib, int n, struct ib_wc *wc, struct ib_wc_side *side)
{
	return soft_cq_take_each(SOFT_OF(cq, ib), n, &(struct soft_poll){ .wc = wc, .side = side });
}

int soft_query_clock(struct ib_device *ib, u64 *raw)
{
	int err = soft_check(ib);

	if (err == 0)
		*raw = clock_now_ns();
	return err;
}

static int soft_cq_poll(struct ib_cq *ib, int n, struct ib_wc *wc)
{
	return soft_cq_take_each(SOFT_OF(cq, ib), n, &(struct soft_poll){ .wc = wc });
}

void soft_uverbs_ack_cq_events(struct ib_cq *ib, u32 events)
{
	channel_ack(&SOFT_OF(cq, ib)->q.source, events);
}

static int soft_cq_resize_ib(struct ib_cq *ib, int cqe)
{
	struct soft_cq *cq = SOFT_OF(cq, ib);
	int err;

	if (cqe < 1 || cqe > SOFT_MAX_CQE)
		return -EINVAL;
	err = soft_check(ib->device);
	if (err != 0)
		return err;
	lock_acquire(&cq->size_lock);
	err = cq_resize(&cq->q, (u32)cqe);
	if (err == 0)
		/* pairs with the door's load */
		__atomic_store_n(&ib->cqe, (int)cq->q.capacity, __ATOMIC_SEQ_CST);
	lock_release(&cq->size_lock);
	return err;
}

static int soft_cq_peek_ib(struct ib_cq *ib, int count)
{
	int err = soft_check(ib->device);

	return err != 0 ? err : cq_peek(&SOFT_OF(cq, ib)->q, count);
}

/* A device that goes takes arms until it has flushed everything (soft_unplug): a consumer that
 * polls, finds nothing and arms is told of what is flushed afterwards. Pairs with the release of
 * `live` there: behind -EIO every completion can be polled. */
static int soft_cq_req_notify(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct soft_device *dev = soft_dev(ib->device);
	int ret = __atomic_load_n(&dev->live, __ATOMIC_ACQUIRE) ? 0 : soft_check(ib->device);

	if (ret == 0)
		ret = cq_arm(&SOFT_OF(cq, ib)->q, (u32)flags);
	if (ret >= 0)
		progress_armed(&the_seat);
	return ret;
}

static int soft_cq_req_ncomp(struct ib_cq *ib, int count)
{
	int err = soft_check(ib->device);

	if (err == 0 && count <= 0)
		err = -EINVAL;
	if (err == 0)
		err = cq_arm_ncomp(&SOFT_OF(cq, ib)->q, (u32)count);
	if (err == 0)
		progress_armed(&the_seat);
	return err;
}

static int soft_cq_modify(struct ib_cq *ib, u16 count, u16 period_us)
{
	const struct cq_clock clock = { .timers = &the_seat.a.timers,
					.kick = progress_timer_kick,
					.arg = &the_seat };
	struct soft_cq *cq = SOFT_OF(cq, ib);
	int err = soft_check(ib->device);

	if (err == 0 && !soft_is_ours(cq->generation))
		err = -EIO;
	return err != 0 ? err : cq_moderate(&cq->q, &clock, count, period_us);
}

void soft_fill_cq(struct ib_device *ib)
{
	ib->create_cq = soft_cq_create;
	ib->modify_cq = soft_cq_modify;
	ib->destroy_cq = soft_cq_destroy;
	ib->resize_cq = soft_cq_resize_ib;
	ib->poll_cq = soft_cq_poll;
	ib->peek_cq = soft_cq_peek_ib;
	ib->req_notify_cq = soft_cq_req_notify;
	ib->req_ncomp_notif = soft_cq_req_ncomp;
}
