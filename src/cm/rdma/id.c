/* id.c: identifiers of the RDMA CM: their states, the consumer's handler, their end.
 * In:    calls of consumers, turns of the other files     Out: the consumer's handler
 * Runs:  consumers' threads, the work queue's, the IB CM's; may block
 * Locks: cma.lock, a leaf; a turn of the handler (busy) is no lock
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "cm/rdma/cma_priv.h"

struct cma cma = { .ids = LIST_HEAD_INIT(cma.ids), .devices = LIST_HEAD_INIT(cma.devices) };

static u32 cma_random_psn(void)
{
	u32 r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t)sizeof(r))
		r = (u32)clock_now_ns();
	return r & 0xffffff;
}

struct cma_id *cma_id_new(rdma_cm_event_handler handler, void *context, enum rdma_port_space ps,
			  enum ib_qp_type qp_type)
{
	struct cma_id *id = calloc(1, sizeof(*id));

	if (id == NULL)
		return NULL;
	id->id.event_handler = handler;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	id->seq_num = cma_random_psn();
	list_init(&id->listeners);
	list_init(&id->groups);
	work_init(&id->work, &cma.queue, cma_resolved);
	work_init(&id->change, &cma.queue, cma_address_changed);
	lock_acquire(&cma.lock);
	list_push_back(&cma.ids, &id->node);
	lock_release(&cma.lock);
	return id;
}

struct rdma_cm_id *rdma_create_id(rdma_cm_event_handler event_handler, void *context,
				  enum rdma_port_space ps, enum ib_qp_type qp_type)
{
	struct cma_id *id;
	int err;

	if (event_handler == NULL ||
	    (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IB && ps != RDMA_PS_IPOIB))
		return ERR_PTR(-EINVAL);
	err = cma_start();
	if (err < 0)
		return ERR_PTR(err);
	id = cma_id_new(event_handler, context, ps, qp_type);
	return id != NULL ? &id->id : ERR_PTR(-ENOMEM);
}

/* ---- states ---------------------------------------------------------------------------------- */

bool cma_move(struct cma_id *id, enum cma_state from, enum cma_state to)
{
	bool moved;

	lock_acquire(&cma.lock);
	moved = id->state == from;
	if (moved)
		id->state = to;
	lock_release(&cma.lock);
	return moved;
}

bool cma_is_in(struct cma_id *id, enum cma_state state)
{
	return cma_move(id, state, state);
}

bool cma_enter_to(struct cma_id *id, enum cma_state state, enum cma_state to)
{
	bool entered;

	lock_acquire(&cma.lock);
	while (id->busy && id->state == state)
		cond_wait(&id->idle, &cma.lock);
	entered = id->state == state;
	if (entered) {
		id->busy = true;
		id->state = to;
	}
	lock_release(&cma.lock);
	return entered;
}

bool cma_enter(struct cma_id *id, enum cma_state state)
{
	return cma_enter_to(id, state, state);
}

bool cma_enter_alive(struct cma_id *id)
{
	bool entered;

	lock_acquire(&cma.lock);
	while (id->busy && id->state < CMA_REMOVED)
		cond_wait(&id->idle, &cma.lock);
	entered = id->state < CMA_REMOVED;
	id->busy |= entered;
	lock_release(&cma.lock);
	return entered;
}

void cma_leave(struct cma_id *id)
{
	lock_acquire(&cma.lock);
	id->busy = false;
	cond_wake(&id->idle);
	lock_release(&cma.lock);
}

/* A turn in which no handler is called. */
void rdma_lock_handler(struct rdma_cm_id *cm_id)
{
	struct cma_id *id = cma_id(cm_id);

	if (cm_id == NULL)
		return;
	lock_acquire(&cma.lock);
	while (id->busy)
		cond_wait(&id->idle, &cma.lock);
	id->busy = true;
	lock_release(&cma.lock);
}

void rdma_unlock_handler(struct rdma_cm_id *cm_id)
{
	if (cm_id != NULL)
		cma_leave(cma_id(cm_id));
}

int cma_tell(struct cma_id *id, struct rdma_cm_event *event)
{
	return id->id.event_handler(&id->id, event);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What the id waits for is not told any more. */
static void cma_id_silence(struct cma_id *id)
{
	rdma_addr_cancel(&id->dev_addr);
	cma_path_cancel(id);
	work_cancel_wait(&id->work);
	work_cancel_wait(&id->change);
}

/* Nobody finds the id any more, and no handler of it runs. */
static void cma_id_free(struct cma_id *id)
{
	lock_acquire(&cma.lock);
	while (id->busy || id->refs > 0)
		cond_wait(&id->idle, &cma.lock);
	list_remove(&id->node);
	cond_wake(&cma.id_gone);
	lock_release(&cma.lock);
	node_port_give(&id->port);
	free(id);
}

/* Takes the connection from the id: the caller ends it. */
static struct ib_cm_id *cma_close(struct cma_id *id)
{
	struct ib_cm_id *ib;

	lock_acquire(&cma.lock);
	id->state = CMA_DESTROYING;
	ib = id->ib;
	id->ib = NULL;
	cond_wake(&id->idle); /* those who wait for a turn see that there is none */
	lock_release(&cma.lock);
	return ib;
}

void rdma_destroy_id(struct rdma_cm_id *cm_id)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_cm_id *ib;

	if (cm_id == NULL)
		return;
	ib = cma_close(id);
	cma_id_silence(id);
	cma_mcast_leave_all(id);
	cma_unlisten(id, NULL);
	if (ib != NULL)
		ib_destroy_cm_id(ib);
	cma_id_free(id);
}

void cma_end_in_handler(struct cma_id *id)
{
	(void)cma_close(id);
	cma_leave(id);
	cma_id_silence(id);
	cma_mcast_leave_all(id);
	cma_id_free(id);
}

/* ---- options --------------------------------------------------------------------------------- */

struct cma_options cma_options_of(struct cma_id *id)
{
	struct cma_options copy;

	lock_acquire(&cma.lock);
	copy = id->options;
	lock_release(&cma.lock);
	return copy;
}

void rdma_set_service_type(struct rdma_cm_id *cm_id, int tos)
{
	struct cma_id *id = cma_id(cm_id);

	if (cm_id == NULL)
		return;
	lock_acquire(&cma.lock);
	id->options.tos = (u8)tos;
	lock_release(&cma.lock);
}

/* It may be taken back only while the id has no port, and be set until the id listens. */
int rdma_set_reuseaddr(struct rdma_cm_id *cm_id, int reuse)
{
	struct cma_id *id = cma_id(cm_id);
	int err = 0;

	if (cm_id == NULL)
		return -EINVAL;
	lock_acquire(&cma.lock);
	if (id->state == CMA_IDLE || (reuse != 0 && id->state != CMA_LISTEN))
		id->options.reuse = reuse != 0;
	else
		err = -EINVAL;
	lock_release(&cma.lock);
	return err;
}

int rdma_set_afonly(struct rdma_cm_id *cm_id, int afonly)
{
	struct cma_id *id = cma_id(cm_id);
	int err = 0;

	if (cm_id == NULL)
		return -EINVAL;
	lock_acquire(&cma.lock);
	if (id->state == CMA_IDLE || id->state == CMA_ADDR_BOUND)
		id->options.afonly = afonly != 0;
	else
		err = -EINVAL;
	lock_release(&cma.lock);
	return err;
}

int rdma_set_ack_timeout(struct rdma_cm_id *cm_id, u8 timeout)
{
	struct cma_id *id = cma_id(cm_id);

	if (cm_id == NULL || cm_id->qp_type != IB_QPT_RC)
		return -EINVAL;
	lock_acquire(&cma.lock);
	id->options.ack_timeout = 0x80 | (timeout & 31);
	lock_release(&cma.lock);
	return 0;
}

int rdma_set_min_rnr_timer(struct rdma_cm_id *cm_id, u8 min_rnr_timer)
{
	struct cma_id *id = cma_id(cm_id);

	if (cm_id == NULL || cm_id->qp_type != IB_QPT_RC || min_rnr_timer > 31)
		return -EINVAL;
	lock_acquire(&cma.lock);
	id->options.min_rnr_timer = 0x80 | min_rnr_timer;
	lock_release(&cma.lock);
	return 0;
}
