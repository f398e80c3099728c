/* cq.c: the pocket adapter's completion queues and vectors.
 * In: completions    Out: polls, handlers on the vectors' threads
 * Runs: any thread; one thread per vector    Locks: the CQ's, then the vector's
 */
#include "pocket.h"

#include <signal.h>
#include <time.h>

static struct pocket_cq *cq_of(struct ib_cq *ib)
{
	return (struct pocket_cq *)ib;
}

/* ---- vectors --------------------------------------------------------------------------------- */

static void vector_queue(struct pocket_cq *cq)
{
	struct pocket_vector *v = cq->vector;

	pthread_mutex_lock(&v->lock);
	if (!cq->queued) {
		cq->queued = true;
		cq->next = NULL;
		if (v->last)
			v->last->next = cq;
		else
			v->first = cq;
		v->last = cq;
		pthread_cond_signal(&v->work);
	}
	pthread_mutex_unlock(&v->lock);
}

/* With the lock: what is to run next, out of the queue. */
static struct pocket_cq *vector_take(struct pocket_vector *v)
{
	struct pocket_cq *cq = v->first;

	if (!cq)
		return NULL;
	v->first = cq->next;
	if (!v->first)
		v->last = NULL;
	cq->queued = false;
	return cq;
}

static void vector_run(struct pocket_vector *v, struct pocket_cq *cq)
{
	v->running = cq;
	pthread_mutex_unlock(&v->lock);
	if (cq->ib.comp_handler)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	pthread_mutex_lock(&v->lock);
	v->running = NULL;
	pthread_cond_broadcast(&v->idle);
}

static void *vector_main(void *arg)
{
	struct pocket_vector *v = arg;
	struct pocket_cq *cq;

	pthread_mutex_lock(&v->lock);
	while (!v->stop) {
		cq = vector_take(v);
		if (cq)
			vector_run(v, cq);
		else
			pthread_cond_wait(&v->work, &v->lock);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

/* Returns when the handler is neither queued nor running. */
static void vector_flush(struct pocket_cq *cq)
{
	struct pocket_vector *v = cq->vector;
	struct pocket_cq **at, *before = NULL;

	pthread_mutex_lock(&v->lock);
	for (at = &v->first; *at; before = *at, at = &(*at)->next) {
		if (*at != cq)
			continue;
		*at = cq->next;
		if (v->last == cq)
			v->last = before;
		break;
	}
	cq->queued = false;
	while (v->running == cq)
		pthread_cond_wait(&v->idle, &v->lock);
	pthread_mutex_unlock(&v->lock);
}

int pocket_vectors_start(struct pocket_device *d)
{
	sigset_t all, before;
	int err = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int i = 0; i < POCKET_VECTORS && !err; i++) {
		struct pocket_vector *v = &d->vectors[i];

		pthread_mutex_init(&v->lock, NULL);
		pthread_cond_init(&v->work, NULL);
		pthread_cond_init(&v->idle, NULL);
		err = pthread_create(&v->thread, NULL, vector_main, v);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

void pocket_vectors_stop(struct pocket_device *d)
{
	for (int i = 0; i < POCKET_VECTORS; i++) {
		struct pocket_vector *v = &d->vectors[i];

		pthread_mutex_lock(&v->lock);
		v->stop = true;
		pthread_cond_signal(&v->work);
		pthread_mutex_unlock(&v->lock);
		pthread_join(v->thread, NULL);
	}
}

/* ---- creation and end ------------------------------------------------------------------------ */

/* Nanoseconds. */
static u64 pocket_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

static u32 ring_size(int cqe)
{
	u32 size = 1;

	while (size < (u32)cqe)
		size *= 2;
	return size;
}

static struct ib_cq *cq_create(struct ib_device *ib, int cqe, int comp_vector)
{
	struct pocket_cq *cq;

	if (cqe > POCKET_MAX_CQE)
		return ERR_PTR(-EINVAL);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return ERR_PTR(-ENOMEM);
	cq->size = ring_size(cqe);
	cq->ring = calloc(cq->size, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return ERR_PTR(-ENOMEM);
	}
	pthread_mutex_init(&cq->lock, NULL);
	cq->vector = &pocket_of(ib)->vectors[comp_vector];
	cq->ib.cqe = (int)cq->size;
	return &cq->ib;
}

/* Of the flags it has one. */
static struct ib_cq *cq_create_ex(struct ib_device *ib, const struct ib_cq_init_attr *attr)
{
	struct ib_cq *made;

	if (attr->flags & ~(u32)IB_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return ERR_PTR(-EOPNOTSUPP);
	made = cq_create(ib, attr->cqe, attr->comp_vector);
	if (!IS_ERR(made))
		cq_of(made)->timed = attr->flags & IB_CQ_FLAGS_TIMESTAMP_COMPLETION;
	return made;
}

static int cq_destroy(struct ib_cq *ib)
{
	struct pocket_cq *cq = cq_of(ib);

	vector_flush(cq);
	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq);
	return 0;
}

/* With the lock. */
static bool arm_count_is_due(struct pocket_cq *cq)
{
	bool due = cq->ncomp && cq->head - cq->tail >= cq->ncomp;

	if (due)
		cq->ncomp = 0;
	return due;
}

static int cq_resize(struct ib_cq *ib, int cqe)
{
	struct pocket_cq *cq = cq_of(ib);
	u32 size = ring_size(cqe);
	struct pocket_entry *ring = cqe > POCKET_MAX_CQE ? NULL : calloc(size, sizeof(*ring));
	struct pocket_entry *old = ring;
	int err = ring ? -EINVAL : -ENOMEM;
	bool fire = false;

	pthread_mutex_lock(&cq->lock);
	if (ring && cq->head - cq->tail <= size) {
		for (u32 i = cq->tail; i != cq->head; i++)
			ring[i % size] = cq->ring[i % cq->size];
		old = cq->ring;
		cq->ring = ring;
		cq->size = size;
		ib->cqe = (int)size;
		cq->ncomp = cq->ncomp < size ? cq->ncomp : size;
		fire = arm_count_is_due(cq);
		err = 0;
	}
	pthread_mutex_unlock(&cq->lock);
	free(old);
	if (fire)
		vector_queue(cq);
	return err;
}

/* ---- notification: all with the CQ's lock ---------------------------------------------------- */

static bool arm_spend(struct pocket_cq *cq, bool wakes)
{
	bool fire = cq->armed == IB_CQ_NEXT_COMP || (cq->armed == IB_CQ_SOLICITED && wakes);

	if (fire)
		cq->armed = 0;
	return arm_count_is_due(cq) || fire;
}

void pocket_push(struct ib_cq *ib, const struct ib_wc *wc, bool solicited)
{
	struct pocket_cq *cq = cq_of(ib);
	bool wakes = solicited || wc->status != IB_WC_SUCCESS, fire = false, lost = false;

	pthread_mutex_lock(&cq->lock);
	if (cq->overflowed || cq->head - cq->tail == cq->size) {
		lost = !cq->overflowed;
		cq->overflowed = true;
	} else {
		cq->ring[cq->head++ % cq->size] =
			(struct pocket_entry){ *wc, cq->timed ? pocket_clock() : 0 };
		if (wakes)
			cq->wakes_end = cq->head;
		fire = arm_spend(cq, wakes);
	}
	pthread_mutex_unlock(&cq->lock);
	if (fire)
		vector_queue(cq);
	if (lost)
		pocket_event(ib->device, IB_EVENT_CQ_ERR, ib);
}

static int cq_arm(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct pocket_cq *cq = cq_of(ib);
	bool fire = false;
	int missed;

	pthread_mutex_lock(&cq->lock);
	if (cq->armed != IB_CQ_NEXT_COMP)
		cq->armed = flags & IB_CQ_SOLICITED_MASK;
	missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail;
	if (pocket_of(ib->device)->eager && cq->head != cq->tail)
		fire = arm_spend(cq, (s32)(cq->wakes_end - cq->tail) > 0);
	pthread_mutex_unlock(&cq->lock);
	if (fire)
		vector_queue(cq);
	return missed;
}

static int cq_arm_count(struct ib_cq *ib, int count)
{
	struct pocket_cq *cq = cq_of(ib);
	bool fire = false;
	int err = 0;

	pthread_mutex_lock(&cq->lock);
	if ((u32)count > cq->size)
		err = -EINVAL;
	else if (cq->head - cq->tail >= (u32)count)
		fire = true;
	else
		cq->ncomp = (u32)count;
	pthread_mutex_unlock(&cq->lock);
	if (fire)
		vector_queue(cq);
	return err;
}

/* ---- polling --------------------------------------------------------------------------------- */

static int cq_poll(struct ib_cq *ib, int n, struct ib_wc *wc)
{
	struct pocket_cq *cq = cq_of(ib);
	int got = 0;

	pthread_mutex_lock(&cq->lock);
	while (got < n && cq->tail != cq->head)
		wc[got++] = cq->ring[cq->tail++ % cq->size].wc;
	pthread_mutex_unlock(&cq->lock);
	return got;
}

static int cq_poll_ex(struct ib_cq *ib, int n, struct ib_wc *wc, struct ib_wc_side *side)
{
	struct pocket_cq *cq = cq_of(ib);
	int got;

	pthread_mutex_lock(&cq->lock);
	for (got = 0; got < n && cq->tail != cq->head; got++) {
		const struct pocket_entry *e = &cq->ring[cq->tail++ % cq->size];

		wc[got] = e->wc;
		side[got] = (struct ib_wc_side){ .timestamp = e->time };
	}
	pthread_mutex_unlock(&cq->lock);
	return got;
}

static int query_clock(struct ib_device *ib, u64 *raw)
{
	*raw = pocket_clock();
	return 0;
}

static int cq_peek(struct ib_cq *ib, int n)
{
	struct pocket_cq *cq = cq_of(ib);
	u32 waiting;

	pthread_mutex_lock(&cq->lock);
	waiting = cq->head - cq->tail;
	pthread_mutex_unlock(&cq->lock);
	return waiting < (u32)n ? (int)waiting : n;
}

/* A queue pair that is gone takes its completions along. */
void pocket_forget(struct ib_cq *ib, const struct ib_qp *qp)
{
	struct pocket_cq *cq = cq_of(ib);
	u32 kept;

	pthread_mutex_lock(&cq->lock);
	kept = cq->tail;
	for (u32 i = cq->tail; i != cq->head; i++)
		if (cq->ring[i % cq->size].wc.qp != qp)
			cq->ring[kept++ % cq->size] = cq->ring[i % cq->size];
	cq->head = kept;
	pthread_mutex_unlock(&cq->lock);
}

const struct ib_device_ops pocket_ops = {
	IB_DEVICE_OPS_SIZES,
	.create_cq = cq_create_ex,
	.poll_cq = cq_poll_ex,
	.query_clock = query_clock,
};

void pocket_cq_methods(struct ib_device *ib)
{
	ib->num_comp_vectors = POCKET_VECTORS;
	ib->create_cq = cq_create;
	ib->destroy_cq = cq_destroy;
	ib->resize_cq = cq_resize;
	ib->poll_cq = cq_poll;
	ib->peek_cq = cq_peek;
	ib->req_notify_cq = cq_arm;
	ib->req_ncomp_notif = cq_arm_count;
}
