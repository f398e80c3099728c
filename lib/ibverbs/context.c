/* context.c: an opened device.
 * In: a device of the list
 * Out: a context with its slots filled, a descriptor that names it, a queue of events
 * Runs: openers and closers
 * Locks: door_context.lock (channel counts; inside the other files)
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "door.h"

/* Every release's clients find a slot by its distance from the context: the newest layout serves
 * all. */
_Static_assert(offsetof(struct door_context, verbs.context) == 368,
	       "ibv_context of the newest release");
_Static_assert(offsetof(struct door_context, verbs) + sizeof(struct verbs_context) == 696,
	       "verbs_context");
_Static_assert(offsetof(struct door_device, ib) >= 712, "what providers read behind ibv_device");

static void context_fill_ops(struct door_context *c)
{
	struct ibv_context_ops *ops = &c->verbs.context.ops;

	ops->alloc_mw = mw_alloc;
	ops->bind_mw = mw_bind;
	ops->dealloc_mw = mw_dealloc;
	ops->poll_cq = cq_poll;
	ops->req_notify_cq = cq_req_notify;
	ops->post_srq_recv = srq_post_recv;
	ops->post_send = qp_post_send;
	ops->post_recv = qp_post_recv;
	c->verbs.query_port = query_port;
	c->verbs.query_device_ex = query_device_ex;
	c->verbs.create_cq_ex = cq_create_ex;
	c->verbs.create_srq_ex = srq_create_ex;
	c->verbs.create_qp_ex = qp_create_ex;
	c->verbs.sz = offsetof(struct door_context, verbs) + sizeof(struct verbs_context);
	c->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

static void context_fill(struct door_context *c, struct door_device *d, int cmd_fd)
{
	struct ibv_context *ctx = &c->verbs.context;

	c->device = d;
	c->ib = d->ib;
	c->ops = d->ib->uverbs;
	c->refs = 1;
	ctx->device = &d->ibv;
	ctx->cmd_fd = cmd_fd;
	ctx->async_fd = async_queue_fd(c->async);
	ctx->num_comp_vectors = d->ib->num_comp_vectors ? d->ib->num_comp_vectors : 1;
	pthread_mutex_init(&ctx->mutex, NULL);
	context_fill_ops(c);
}

static void context_free(struct door_context *c)
{
	async_queue_destroy(c->async);
	close(c->verbs.context.cmd_fd);
	pthread_mutex_destroy(&c->verbs.context.mutex);
	device_put(c->device);
	free(c);
}

void context_get(struct door_context *c)
{
	__atomic_fetch_add(&c->refs, 1, __ATOMIC_RELAXED);
}

void context_put(struct door_context *c)
{
	/* Release: what this holder wrote; acquire: what all others did before the memory goes.
	 * Partner: itself. */
	if (__atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) == 0)
		context_free(c);
}

u32 context_new_handle(struct door_context *c)
{
	return __atomic_add_fetch(&c->last_handle, 1, __ATOMIC_RELAXED);
}

AV_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct door_context *c;
	int cmd_fd, error = -ENOMEM;

	if (!device)
		return door_null(-EINVAL);
	c = calloc(1, sizeof(*c));
	if (!c)
		return door_null(-ENOMEM);
	/* A file of its own: its inode names the context also after dup(), and poll() finds it
	 * ready as it would a device. */
	cmd_fd = memfd_create("anyverbs-context", MFD_CLOEXEC);
	if (cmd_fd < 0) {
		error = -errno;
		goto free_context;
	}
	c->async = async_queue_create(&error);
	if (!c->async) {
		error = error > 0 ? -error : error;
		goto close_fd;
	}
	device_get(door_device(device));
	context_fill(c, door_device(device), cmd_fd);
	INIT_IB_EVENT_HANDLER(&c->handler, c->ib, async_on_device);
	error = ib_register_event_handler(&c->handler);
	if (error) {
		context_put(c);
		return door_null(error);
	}
	return &c->verbs.context;
close_fd:
	close(cmd_fd);
free_context:
	free(c);
	return door_null(error);
}
DOOR_DEFAULT(ibv_open_device);

AV_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct door_context *c;

	if (!context)
		return door_minus_one(-EINVAL);
	c = door_context(context);
	ib_unregister_event_handler(&c->handler);
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_close_device);
