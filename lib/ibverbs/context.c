/* context.c: an opened device.
 * In: a device of the list
 * Out: a context with its slots filled, a descriptor that names it, a queue of events
 * Runs: threads that open and close
 * Locks: none
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limit.h"
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
	c->verbs.query_rt_values = query_rt_values;
	c->verbs.modify_qp_rate_limit = qp_limit_rate;
	c->verbs.advise_mr = mr_advise;
	c->verbs.alloc_dm = dm_alloc;
	c->verbs.free_dm = dm_free;
	c->verbs.reg_dm_mr = mr_register_dm;
	c->verbs.alloc_td = pd_alloc_td;
	c->verbs.dealloc_td = pd_dealloc_td;
	c->verbs.alloc_parent_domain = pd_alloc_parent_domain;
	c->verbs.alloc_null_mr = mr_alloc_null;
	c->verbs.create_cq_ex = cq_create_ex;
	c->verbs.modify_cq = cq_modify;
	c->verbs.post_srq_ops = srq_post_ops;
	c->verbs.create_srq_ex = srq_create_ex;
	c->verbs.create_qp_ex = qp_create_ex;
	c->verbs.open_xrcd = xrc_open_xrcd;
	c->verbs.close_xrcd = xrc_close_xrcd;
	c->verbs.get_srq_num = xrc_get_srq_num;
	c->verbs.open_qp = xrc_open_qp;
	c->verbs.ibv_create_flow = flow_create;
	c->verbs.ibv_destroy_flow = flow_destroy;
	c->verbs.ABI_placeholder1 = (void (*)(void))flow_create;
	c->verbs.ABI_placeholder2 = (void (*)(void))flow_destroy;
	c->verbs.create_counters = counters_create;
	c->verbs.destroy_counters = counters_destroy;
	c->verbs.attach_counters_point_flow = counters_attach;
	c->verbs.read_counters = counters_read;
	c->verbs.create_wq = wq_create;
	c->verbs.modify_wq = wq_modify;
	c->verbs.destroy_wq = wq_destroy;
	c->verbs.create_rwq_ind_table = wq_create_table;
	c->verbs.destroy_rwq_ind_table = wq_destroy_table;
	c->verbs.sz = offsetof(struct door_context, verbs) + sizeof(struct verbs_context);
	c->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

static void context_fill(struct door_context *c, struct ib_ucontext *ucontext, int cmd_fd)
{
	struct ibv_context *ctx = &c->verbs.context;
	struct door_file *file = ib_ucontext_owner(ucontext);
	struct door_device *d = file->device;

	c->ucontext = ucontext;
	c->file = file;
	c->ib = d->ib;
	c->ops = d->ib->uverbs;
	__atomic_store_n(&c->refs, 1, __ATOMIC_RELAXED);
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
	pthread_mutex_destroy(&c->verbs.context.mutex);
	ib_ucontext_put(c->ucontext);
	free(c);
}

void context_get(struct door_context *c)
{
	__atomic_fetch_add(&c->refs, 1, __ATOMIC_RELAXED);
}

void context_put(struct door_context *c)
{
	/* Release: this holder's writes; acquire: all other holders' before the memory is freed.
	 * Partner: itself. */
	if (__atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) == 0)
		context_free(c);
}

/* Makes a context of the ucontext over a descriptor, and owns both on success. */
static struct ibv_context *context_create(struct ib_ucontext *ucontext, int cmd_fd, int *error)
{
	struct door_context *c = calloc(1, sizeof(*c));

	*error = -ENOMEM;
	if (!c)
		return NULL;
	c->async = async_queue_create(error);
	if (!c->async)
		goto free_context;
	context_fill(c, ucontext, cmd_fd);
	INIT_IB_EVENT_HANDLER(&c->handler, c->ib, async_on_device);
	*error = ib_register_event_handler(&c->handler);
	/* In a forked child the midlayer has dropped the parent's devices: contexts of them work
	 * on, without events. */
	if (*error == -ENODEV && !ib_device_is_listed(c->ib))
		*error = 0;
	if (*error)
		goto free_queue;
	__atomic_fetch_add(&c->file->open, 1, __ATOMIC_RELAXED);
	return &c->verbs.context;
free_queue:
	async_queue_destroy(c->async);
free_context:
	free(c);
	return NULL;
}

struct door_file *file_create(struct door_device *device, struct ib_export *export)
{
	struct door_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	device_get(device);
	file->device = device;
	file->export = export;
	return file;
}

void file_release(void *owner)
{
	struct door_file *file = owner;

	import_close(file);
	ib_export_close(file->export);
	device_put(file->device);
	free(file);
}

/* A ucontext keeps the file; a context keeps its ucontext. Takes `export`. */
static struct ib_ucontext *context_name(struct door_device *device, struct ib_export *export,
					int cmd_fd)
{
	struct door_file *file = file_create(device, export);
	struct ib_ucontext *ucontext = NULL;

	if (file)
		ucontext = ib_ucontext_create(cmd_fd, file, file_release);
	else
		ib_export_close(export);
	if (file && !ucontext)
		file_release(file);
	if (ucontext)
		ib_export_begin(export, device->ibv.ibdev_path, device->guid);
	return ucontext;
}

/* A forked child, whose parent has got the list, has no devices before it looks for them. */
static bool context_device_is_there(struct ib_device *ib)
{
	struct ib_device **list;

	if (ib_device_is_listed(ib))
		return true;
	if (ib_uverbs_get_devices(&list) < 0)
		return false;
	ib_uverbs_put_devices(list);
	return ib_device_is_listed(ib);
}

/* ibv_devinfo and others do not tell the errno. */
static struct ibv_context *context_refuse(int error)
{
	static pid_t said ATOMIC_ONLY;

	if (limit_refuses(error))
		limit_say(&said, "verbs", "a device cannot be opened", error);
	return door_null(error);
}

AV_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context;
	struct ib_ucontext *ucontext;
	struct ib_export *export;
	int cmd_fd, error = -ENOMEM;

	if (!device)
		return door_null(-EINVAL);
	/* held by the list that the application still has */
	if (!context_device_is_there(door_device(device)->ib))
		return door_null(-ENODEV);
	/* The file's inode names the context also after dup(), and poll() reports it ready as a
	 * device. */
	cmd_fd = ib_export_open(&export);
	if (cmd_fd < 0)
		return context_refuse(cmd_fd);
	ucontext = context_name(door_device(device), export, cmd_fd);
	if (!ucontext)
		goto close_fd;
	context = context_create(ucontext, cmd_fd, &error);
	if (context)
		return context;
	ib_ucontext_put(ucontext);
close_fd:
	close(cmd_fd);
	return context_refuse(error);
}
DOOR_DEFAULT(ibv_open_device);

/* Of a context of this process, or of a parent before the fork: one more context, which shares its
 * objects. Of another process: import.c. */
AV_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *context = NULL;
	struct ib_ucontext *ucontext;
	struct ib_device_attr attr;
	struct door_file *file;
	int error = import_ucontext(cmd_fd, &ucontext);

	if (error)
		return door_null(error);
	file = ib_ucontext_owner(ucontext);
	error = ib_query_device(file->device->ib, &attr); /* -EIO: it is gone */
	if (!error)
		context = context_create(ucontext, cmd_fd, &error);
	if (context)
		return context;
	ib_ucontext_put(ucontext);
	return door_null(error);
}

/* As the kernel ends the objects of a file that nobody has open any more, as far as others see it:
 * no peer reaches the application's memory, and what it sends is not answered. The objects' memory
 * stays for the application, whose pointers lead to it; it may destroy them. An XRC target belongs
 * to its domain. */
static void context_end_objects(struct door_context *c)
{
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	u32 count;
	void **qps = ib_uobject_list(c->ucontext, IB_UOBJECT_QP, &count);

	for (u32 i = 0; i < count; i++) {
		struct ib_qp *qp = qps[i];

		if (qp->qp_type != IB_QPT_XRC_TGT)
			ib_modify_qp(qp, &reset, IB_QP_STATE);
	}
	free(qps);
}

AV_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct door_context *c;

	if (!context)
		return door_minus_one(-EINVAL);
	c = door_context(context);
	ib_unregister_event_handler(&c->handler);
	/* Each closer's own calls come before; partner: itself */
	if (__atomic_sub_fetch(&c->file->open, 1, __ATOMIC_ACQ_REL) == 0) {
		ib_ucontext_unname(c->ucontext);
		ib_export_end(c->file->export);
		context_end_objects(c);
	}
	async_queue_close(c->async);
	close(context->cmd_fd);
	context->cmd_fd = -1;
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_close_device);
