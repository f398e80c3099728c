/* xrc.c: XRC domains, SRQ numbers, and handles of XRC targets.
 *
 * An XRC target may have many handles: the queue pair that ibv_create_qp_ex returned, and one for
 * each ibv_open_qp. All name one queue pair of the midlayer, which is destroyed with the last of
 * them; each gets its events.
 *
 * In: descriptors, numbers    Out: the midlayer's domains, handles, events
 * Runs: the application's threads; target_on_event: the midlayer's
 * Locks: target_lock
 */
#include <stdlib.h>

#include "base/fork.h"
#include "base/line.h"
#include "door.h"

struct door_target {
	struct list_head node OWNED_BY(target_lock); /* target_known, once it is shown */
	struct list_head handles OWNED_BY(target_lock); /* door_handle.node */
	struct ib_qp *ib FIXED;
	struct door_xrcd *xrcd FIXED; /* by which it was created; with a reference */
};

struct door_handle {
	struct list_head node OWNED_BY(target_lock); /* door_target.handles */
	struct door_target *target FIXED;
	struct door_xrcd *xrcd FIXED; /* by which it was created or opened; it uses that */
	struct door_qp *qp FIXED;
};

static struct lock target_lock;
static struct list_head target_known GUARDED_BY(target_lock) = LIST_HEAD_INIT(target_known);
FORK_TAKES(FORK_XRC_TARGETS, &target_lock);

/* ---- domains --------------------------------------------------------------------------------- */

struct ibv_xrcd *xrc_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct ib_xrcd_init_attr ib = { .size = sizeof(ib), .fd = attr->fd,
					.oflags = attr->oflags };
	struct door_context *c = door_context(context);
	struct door_xrcd *xrcd;

	if (attr->comp_mask & ~needed)
		return door_null(-EOPNOTSUPP);
	if (attr->comp_mask != needed)
		return door_null(-EINVAL);
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return door_null(-ENOMEM);
	xrcd->ib = ib_open_xrcd(c->ib, &ib);
	if (IS_ERR(xrcd->ib)) {
		long error = PTR_ERR(xrcd->ib);

		free(xrcd);
		return door_null((int)error);
	}
	xrcd->ibv.context = context;
	__atomic_store_n(&xrcd->refs, 1, __ATOMIC_RELAXED);
	context_get(c);
	return &xrcd->ibv;
}

static void xrcd_get(struct door_xrcd *xrcd)
{
	__atomic_fetch_add(&xrcd->refs, 1, __ATOMIC_RELAXED);
}

static void xrcd_put(struct door_xrcd *xrcd)
{
	struct door_context *c = door_context(xrcd->ibv.context);

	/* As context_put. */
	if (__atomic_sub_fetch(&xrcd->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	ib_close_xrcd(xrcd->ib);
	free(xrcd);
	context_put(c);
}

void xrcd_use(struct door_xrcd *xrcd)
{
	__atomic_fetch_add(&xrcd->users, 1, __ATOMIC_RELAXED);
	xrcd_get(xrcd);
}

void xrcd_unuse(struct door_xrcd *xrcd)
{
	__atomic_fetch_sub(&xrcd->users, 1, __ATOMIC_RELEASE); /* pairs with xrc_close_xrcd */
	xrcd_put(xrcd);
}

/* A target that was created by it, and that others keep open, does not hold it back. */
int xrc_close_xrcd(struct ibv_xrcd *xrcd)
{
	if (__atomic_load_n(&door_xrcd(xrcd)->users, __ATOMIC_ACQUIRE) != 0) /* xrcd_unuse */
		return EBUSY;
	xrcd_put(door_xrcd(xrcd));
	return 0;
}

int xrc_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	if (!door_srq(srq)->xrcd)
		return EOPNOTSUPP; /* as mlx5 answers */
	*number = door_srq(srq)->ib->srq_num;
	return 0;
}

/* ---- targets and their handles --------------------------------------------------------------- */

static struct door_handle *handle_create(struct door_qp *qp, struct door_xrcd *xrcd)
{
	struct door_handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	list_init(&h->node);
	h->qp = qp;
	h->xrcd = xrcd;
	xrcd_use(xrcd);
	return h;
}

static void handle_free(struct door_handle *h)
{
	xrcd_unuse(h->xrcd);
	free(h);
}

void *target_create(struct door_qp *qp, struct door_xrcd *xrcd)
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	struct door_target *t = calloc(1, sizeof(*t));
	struct door_handle *h = t ? handle_create(qp, xrcd) : NULL;

	if (!h) {
		free(t);
		return NULL;
	}
	list_init(&t->node);
	list_init(&t->handles);
	list_push_back(&t->handles, &h->node);
	t->xrcd = xrcd;
	xrcd_get(xrcd);
	h->target = t;
	qp->handle = h;
	return t;
}

void target_on_event(struct ib_event *event, void *target)
{
	struct door_target *t = target;

	lock_acquire(&target_lock);
	list_for_each(h, &t->handles, struct door_handle, node)
		async_on_qp(event, &h->qp->ex.qp_base);
	lock_release(&target_lock);
}

void target_show(struct door_qp *qp)
{
	struct door_target *t = qp->handle->target;

	t->ib = qp->ib;
	lock_acquire(&target_lock);
	list_push_back(&target_known, &t->node);
	lock_release(&target_lock);
}

void target_free(struct door_qp *qp)
{
	struct door_target *t = qp->handle->target;

	handle_free(qp->handle);
	xrcd_put(t->xrcd);
	free(t);
}

bool target_leave(struct door_qp *qp)
{
	struct door_target *t = qp->handle->target;
	bool last;

	lock_acquire(&target_lock);
	list_remove(&qp->handle->node);
	last = list_empty(&t->handles);
	if (last)
		list_remove(&t->node);
	lock_release(&target_lock);
	if (!last)
		handle_free(qp->handle);
	return last;
}

void target_keep(struct door_qp *qp)
{
	struct door_target *t = qp->handle->target;

	lock_acquire(&target_lock);
	list_push_back(&t->handles, &qp->handle->node);
	list_push_back(&target_known, &t->node);
	lock_release(&target_lock);
}

/* Enters one more handle. False: its domain has no such target. */
static bool target_open(struct door_handle *h, uint32_t number)
{
	const struct ib_xrcd *xrcd = h->xrcd->ib;
	struct door_target *found = NULL;

	lock_acquire(&target_lock);
	list_for_each(t, &target_known, struct door_target, node)
		if (t->ib->qp_num == number && t->ib->device == xrcd->device &&
		    t->xrcd->ib->number == xrcd->number)
			found = t;
	if (found)
		list_push_back(&found->handles, &h->node);
	lock_release(&target_lock);
	h->target = found;
	return found;
}

static int qp_check_open(const struct ibv_context *context, const struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
				IBV_QP_OPEN_ATTR_TYPE;

	if (attr->comp_mask & ~(uint32_t)(IBV_QP_OPEN_ATTR_RESERVED - 1))
		return -EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed || attr->qp_type != IBV_QPT_XRC_RECV)
		return -EINVAL;
	return !attr->xrcd || !context_is_same(attr->xrcd->context, context) ? -EINVAL : 0;
}

struct ibv_qp *xrc_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	bool has_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_XRC_RECV,
					 .qp_context = has_context ? attr->qp_context : NULL };
	int error = qp_check_open(context, attr);
	struct door_qp *qp;

	if (error)
		return door_null(error);
	qp = line_alloc(sizeof(*qp));
	if (!qp)
		return door_null(-ENOMEM);
	qp_fill(qp, context, NULL, &init);
	qp->handle = handle_create(qp, door_xrcd(attr->xrcd));
	if (!qp->handle) {
		free(qp);
		return door_null(-ENOMEM);
	}
	if (!target_open(qp->handle, attr->qp_num)) {
		handle_free(qp->handle);
		free(qp);
		return door_null(-EINVAL);
	}
	qp->ib = qp->handle->target->ib;
	qp_enter(qp);
	return &qp->ex.qp_base;
}
