/* compat_1_0.c: devices, contexts, domains, regions, address handles and queries for programs
 * linked with libibverbs 1.0.
 * In: objects of that release (compat_1_0.h)
 * Out: the same call on today's object behind it
 * Runs: the application's threads
 * Locks: old_lock (the list of old contexts)
 */
#include <stdlib.h>

#include "base/fork.h"
#include "compat_1_0.h"

AV_EXPORT struct old_device **old_get_device_list(int *num);
AV_EXPORT void old_free_device_list(struct old_device **list);
AV_EXPORT const char *old_get_device_name(struct old_device *device);
AV_EXPORT __be64 old_get_device_guid(struct old_device *device);
AV_EXPORT struct old_context *old_open_device(struct old_device *device);
AV_EXPORT int old_close_device(struct old_context *context);
AV_EXPORT int old_query_device(struct old_context *context, struct ibv_device_attr *attr);
AV_EXPORT int old_query_port(struct old_context *context, uint8_t port,
			     struct _compat_ibv_port_attr *attr);
AV_EXPORT int old_query_gid(struct old_context *context, uint8_t port, int index,
			    union ibv_gid *gid);
AV_EXPORT int old_query_pkey(struct old_context *context, uint8_t port, int index, __be16 *pkey);
AV_EXPORT struct old_pd *old_alloc_pd(struct old_context *context);
AV_EXPORT int old_dealloc_pd(struct old_pd *pd);
AV_EXPORT struct old_mr *old_reg_mr(struct old_pd *pd, void *addr, size_t length, int access);
AV_EXPORT int old_dereg_mr(struct old_mr *mr);
AV_EXPORT struct old_ah *old_create_ah(struct old_pd *pd, struct ibv_ah_attr *attr);
AV_EXPORT int old_destroy_ah(struct old_ah *ah);

static struct lock old_lock;
static struct list_head old_contexts GUARDED_BY(old_lock) = LIST_HEAD_INIT(old_contexts);
FORK_TAKES(FORK_OLD_CONTEXTS, &old_lock);

/* Calls without a version of their own (completion channels) get old contexts from old programs. */
struct ibv_context *old_or_new_context(struct ibv_context *context)
{
	struct ibv_context *real = context;

	lock_acquire(&old_lock);
	list_for_each(c, &old_contexts, struct old_context, node)
		if ((void *)c == (void *)context)
			real = c->real;
	lock_release(&old_lock);
	return real;
}

/* The slot before the first entry holds today's list. */
struct old_device **old_get_device_list(int *num)
{
	int count = 0;
	struct ibv_device **real = ibv_get_device_list(&count);
	struct old_device **list, *devices;

	if (num)
		*num = 0;
	if (!real)
		return NULL;
	list = calloc((size_t)count + 2, sizeof(*list));
	devices = calloc((size_t)count + 1, sizeof(*devices));
	if (!list || !devices) {
		free(list);
		free(devices);
		ibv_free_device_list(real);
		return door_null(-ENOMEM);
	}
	list[0] = (struct old_device *)real;
	for (int i = 0; i < count; i++) {
		devices[i].real = real[i];
		list[i + 1] = &devices[i];
	}
	if (!count)
		free(devices);
	if (num)
		*num = count;
	return list + 1;
}
DOOR_OLD(old_get_device_list, ibv_get_device_list);

void old_free_device_list(struct old_device **list)
{
	struct ibv_device **real;

	if (!list)
		return;
	real = (struct ibv_device **)list[-1];
	free(list[0]);
	ibv_free_device_list(real);
	free(list - 1);
}
DOOR_OLD(old_free_device_list, ibv_free_device_list);

const char *old_get_device_name(struct old_device *device)
{
	return ibv_get_device_name(device->real);
}
DOOR_OLD(old_get_device_name, ibv_get_device_name);

__be64 old_get_device_guid(struct old_device *device)
{
	return ibv_get_device_guid(device->real);
}
DOOR_OLD(old_get_device_guid, ibv_get_device_guid);

struct old_context *old_open_device(struct old_device *device)
{
	struct old_context *context = calloc(1, sizeof(*context));

	if (!context)
		return door_null(-ENOMEM);
	context->real = ibv_open_device(device->real);
	if (!context->real) {
		free(context);
		return NULL;
	}
	context->device = device;
	context->cmd_fd = context->real->cmd_fd;
	context->async_fd = context->real->async_fd;
	context->num_comp_vectors = context->real->num_comp_vectors;
	old_fill_methods(context);
	lock_acquire(&old_lock);
	list_push_back(&old_contexts, &context->node);
	lock_release(&old_lock);
	return context;
}
DOOR_OLD(old_open_device, ibv_open_device);

int old_close_device(struct old_context *context)
{
	int error = ibv_close_device(context->real);

	if (error)
		return error;
	lock_acquire(&old_lock);
	list_remove(&context->node);
	lock_release(&old_lock);
	free(context);
	return 0;
}
DOOR_OLD(old_close_device, ibv_close_device);

int old_query_device(struct old_context *context, struct ibv_device_attr *attr)
{
	return ibv_query_device(context->real, attr);
}
DOOR_OLD(old_query_device, ibv_query_device);

int old_query_port(struct old_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return ibv_query_port(context->real, port, attr);
}
DOOR_OLD(old_query_port, ibv_query_port);

int old_query_gid(struct old_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	return ibv_query_gid(context->real, port, index, gid);
}
DOOR_OLD(old_query_gid, ibv_query_gid);

int old_query_pkey(struct old_context *context, uint8_t port, int index, __be16 *pkey)
{
	return ibv_query_pkey(context->real, port, index, pkey);
}
DOOR_OLD(old_query_pkey, ibv_query_pkey);

struct old_pd *old_alloc_pd(struct old_context *context)
{
	struct old_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return door_null(-ENOMEM);
	pd->real = ibv_alloc_pd(context->real);
	if (!pd->real) {
		free(pd);
		return NULL;
	}
	pd->context = context;
	pd->handle = pd->real->handle;
	return pd;
}
DOOR_OLD(old_alloc_pd, ibv_alloc_pd);

int old_dealloc_pd(struct old_pd *pd)
{
	int error = ibv_dealloc_pd(pd->real);

	if (!error)
		free(pd);
	return error;
}
DOOR_OLD(old_dealloc_pd, ibv_dealloc_pd);

struct old_mr *old_reg_mr(struct old_pd *pd, void *addr, size_t length, int access)
{
	struct old_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return door_null(-ENOMEM);
	mr->real = ibv_reg_mr(pd->real, addr, length, access);
	if (!mr->real) {
		free(mr);
		return NULL;
	}
	mr->context = pd->context;
	mr->pd = pd;
	mr->handle = mr->real->handle;
	mr->lkey = mr->real->lkey;
	mr->rkey = mr->real->rkey;
	return mr;
}
DOOR_OLD(old_reg_mr, ibv_reg_mr);

int old_dereg_mr(struct old_mr *mr)
{
	int error = ibv_dereg_mr(mr->real);

	if (!error)
		free(mr);
	return error;
}
DOOR_OLD(old_dereg_mr, ibv_dereg_mr);

struct old_ah *old_create_ah(struct old_pd *pd, struct ibv_ah_attr *attr)
{
	struct old_ah *ah = calloc(1, sizeof(*ah));

	if (!ah)
		return door_null(-ENOMEM);
	ah->real = ibv_create_ah(pd->real, attr);
	if (!ah->real) {
		free(ah);
		return NULL;
	}
	ah->context = pd->context;
	ah->pd = pd;
	ah->handle = ah->real->handle;
	return ah;
}
DOOR_OLD(old_create_ah, ibv_create_ah);

int old_destroy_ah(struct old_ah *ah)
{
	int error = ibv_destroy_ah(ah->real);

	if (!error)
		free(ah);
	return error;
}
DOOR_OLD(old_destroy_ah, ibv_destroy_ah);
