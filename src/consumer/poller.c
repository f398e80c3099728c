/* poller.c: completion queues that hand each completion to the `done` of its request.
 * In:    events of the CQ (ib_req_notify_cq)    Out: the consumer's `done`
 * Runs:  a turn: the CQ's vector or its worker; IB_POLL_DIRECT: the caller
 * Locks: none of its own
 *
 * A turn polls until the CQ is empty and arms it; where the arm says that a completion may have
 * come before it, the turn is queued again, so no event is missed. After its budget of completions
 * the turn goes to the end of the queue.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "consumer/consumer_priv.h"

enum {
	POLLER_BATCH_DIRECT = 8,
	POLLER_BUDGET_VECTOR = 256,
	POLLER_BUDGET_WORKER = 65536,
	POLLER_LOOK_US = 1000, /* between looks at the turns of a CQ */
};

static void poller_hand(struct ib_cq *cq, struct ib_wc *wc, int count)
{
	for (int i = 0; i < count; i++)
		if (likely(wc[i].wr_cqe != NULL))
			wc[i].wr_cqe->done(cq, &wc[i]);
}

/* Returns how many were taken; budget -1: until none waits. */
static int poller_take(struct ib_cq *cq, int budget, struct ib_wc *wc, int batch)
{
	int taken = 0, want, got;

	do {
		want = budget < 0 ? batch : MIN(batch, budget - taken);
		got = ib_poll_cq(cq, want, wc);
		if (got <= 0)
			break;
		poller_hand(cq, wc, got);
		taken += got;
	} while (got == batch && taken != budget);
	return taken;
}

int ib_process_cq_direct(struct ib_cq *cq, int budget)
{
	struct ib_wc wc[POLLER_BATCH_DIRECT];

	return cq == NULL ? -EINVAL : poller_take(cq, budget, wc, POLLER_BATCH_DIRECT);
}

/* True: a completion may have come before the arm. A CQ that cannot be armed is of a device that is
 * gone, and no event will come: what was flushed since the last poll is taken here. */
static bool poller_arm(struct poller *p)
{
	int missed = ib_req_notify_cq(p->cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS);

	if (missed < 0)
		(void)poller_take(p->cq, -1, p->wc, POLLER_BATCH);
	return missed > 0;
}

/* True: the turn is to come again. */
static bool poller_turn(struct poller *p, int budget)
{
	bool missed;

	if (__atomic_load_n(&p->stopped, __ATOMIC_ACQUIRE))
		return false;
	if (poller_take(p->cq, budget, p->wc, POLLER_BATCH) >= budget)
		return true;
	missed = poller_arm(p);
	/* pairs with the load in poller_await_turn */
	__atomic_add_fetch(&p->turns, 1, __ATOMIC_RELEASE);
	return missed;
}

static void poller_on_vector(struct vector_item *item)
{
	struct poller *p = container_of(item, struct poller, item);

	if (poller_turn(p, POLLER_BUDGET_VECTOR))
		vector_item_queue(item);
}

static void poller_on_worker(struct work *work)
{
	struct poller *p = container_of(work, struct poller, work);

	if (poller_turn(p, POLLER_BUDGET_WORKER))
		work_push(work);
}

static void poller_queue(struct poller *p)
{
	if (p->context == IB_POLL_SOFTIRQ)
		vector_item_queue(&p->item);
	else
		work_push(&p->work);
}

/* The second turn that ends has begun after the call. */
void poller_await_turn(struct poller *p)
{
	u32 before = __atomic_load_n(&p->turns, __ATOMIC_ACQUIRE);

	while (__atomic_load_n(&p->turns, __ATOMIC_ACQUIRE) - before < 2) {
		poller_queue(p);
		usleep(POLLER_LOOK_US);
	}
}

/* The CQ's event. */
static void poller_event(struct ib_cq *cq, void *context)
{
	struct poller *p = __atomic_load_n(&cq->poller, __ATOMIC_ACQUIRE);

	if (p != NULL && !__atomic_load_n(&p->stopped, __ATOMIC_ACQUIRE))
		poller_queue(p);
}

static void poller_free(struct poller *p)
{
	if (p->worker != NULL)
		worker_put(p->worker);
	free(p);
}

/* ERR_PTR: -EAGAIN, -ENOMEM. */
static struct poller *poller_make(enum ib_poll_context context, int comp_vector)
{
	struct poller *p = calloc(1, sizeof(*p));
	int err;

	if (p == NULL)
		return ERR_PTR(-ENOMEM);
	p->context = context;
	p->comp_vector = comp_vector;
	list_init(&p->node);
	vector_item_init(&p->item, vector_get((u32)comp_vector), poller_on_vector);
	if (context != IB_POLL_WORKQUEUE && context != IB_POLL_UNBOUND_WORKQUEUE)
		return p;
	p->worker = worker_get(&err);
	if (p->worker == NULL) {
		free(p);
		return ERR_PTR(err);
	}
	work_init(&p->work, &p->worker->queue, poller_on_worker);
	return p;
}

struct ib_cq *ib_alloc_cq(struct ib_device *device, void *private, int nr_cqe, int comp_vector,
			  enum ib_poll_context poll_ctx)
{
	bool direct = poll_ctx == IB_POLL_DIRECT;
	struct poller *p;
	struct ib_cq *cq;

	if (device == NULL || (u32)poll_ctx > IB_POLL_DIRECT || comp_vector < 0)
		return ERR_PTR(-EINVAL);
	if (!core_serves_linux61(device))
		return ERR_PTR(-EOPNOTSUPP);
	p = poller_make(poll_ctx, comp_vector);
	if (IS_ERR(p))
		return (struct ib_cq *)p;
	cq = ib_create_cq(device, direct ? NULL : poller_event, NULL, private, nr_cqe, comp_vector);
	if (IS_ERR(cq)) {
		poller_free(p);
		return cq;
	}
	p->cq = cq;
	/* pairs with poller_event's load */
	__atomic_store_n(&cq->poller, p, __ATOMIC_RELEASE);
	if (!direct)
		ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	return cq;
}

struct ib_cq *ib_alloc_cq_any(struct ib_device *device, void *private, int nr_cqe,
			      enum ib_poll_context poll_ctx)
{
	static u32 last ATOMIC_ONLY;
	u32 vector = 0;

	if (device != NULL && device->num_comp_vectors > 1)
		vector = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED) %
			 (u32)device->num_comp_vectors;
	return ib_alloc_cq(device, private, nr_cqe, (int)vector, poll_ctx);
}

/* No turn runs after this, but for one that an event queues which comes meanwhile: that one sees
 * `stopped`. */
static void poller_flush(struct poller *p)
{
	if (p->context == IB_POLL_SOFTIRQ)
		vector_item_flush(&p->item);
	else if (p->worker != NULL)
		work_cancel_wait(&p->work);
}

void ib_free_cq(struct ib_cq *cq)
{
	struct poller *p = cq != NULL ? poller_of(cq) : NULL;
	const char *device = p != NULL ? cq->device->name : "?";

	if (p == NULL)
		return;
	if (__atomic_load_n(&cq->usecnt, __ATOMIC_ACQUIRE) != 0 || !list_empty(&p->node)) {
		log_warn("consumer", "a CQ of device %s is in use and is not freed", device);
		return;
	}
	/* pairs with poller_turn's and poller_event's loads */
	__atomic_store_n(&p->stopped, true, __ATOMIC_RELEASE);
	poller_flush(p);
	/* ib_destroy_cq takes no CQ that polls itself; pairs with poller_event's load */
	__atomic_store_n(&cq->poller, NULL, __ATOMIC_RELEASE);
	if (ib_destroy_cq(cq) != 0) {
		log_warn("consumer", "device %s does not destroy a CQ", device);
		return;
	}
	poller_flush(p);
	poller_free(p);
}
