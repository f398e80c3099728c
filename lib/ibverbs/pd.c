/* pd.c: protection domains, the midlayer's one to one; parent domains and thread domains over them.
 * In: a context      Out: domains      Runs: the application's threads      Locks: none
 */
#include <stdlib.h>

#include "door.h"

static struct door_pd *pd_fill(struct door_pd *pd, struct ibv_context *context)
{
	pd->ibv.context = context;
	pd->ibv.handle = pd->uobj.handle;
	pd->refs = 1;
	context_get(door_context(context));
	return pd;
}

AV_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct door_context *c = door_context(context);
	struct door_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return door_null(-ENOMEM);
	pd->ib = ib_alloc_pd(c->ib);
	if (IS_ERR(pd->ib)) {
		long error = PTR_ERR(pd->ib);

		free(pd);
		return door_null((int)error);
	}
	ib_uobject_add(c->ucontext, &pd->uobj, IB_UOBJECT_PD, pd->ib);
	pd->listed = ib_export_add(c->file->export, &(struct export_entry){
							    .handle = pd->uobj.handle,
							    .kind = IB_UOBJECT_PD });
	return &pd_fill(pd, context)->ibv;
}
DOOR_DEFAULT(ibv_alloc_pd);

/* Frees the domain without a call to the midlayer. */
static void pd_free(struct door_pd *pd, bool destroyed)
{
	struct door_context *c = door_context(pd->ibv.context);

	ib_uobject_remove(c->ucontext, &pd->uobj, destroyed);
	if (destroyed)
		ib_export_remove(c->file->export, pd->listed);
	pd_release(&pd->ibv);
	context_put(c);
}

void pd_hold(struct ibv_pd *pd)
{
	__atomic_add_fetch(&door_pd(pd)->refs, 1, __ATOMIC_RELAXED);
}

void pd_release(struct ibv_pd *pd)
{
	if (__atomic_sub_fetch(&door_pd(pd)->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(door_pd(pd));
}

static int pd_dealloc_parent_domain(struct door_pd *pd)
{
	struct door_pd *parent = pd->parent;

	if (__atomic_load_n(&pd->refs, __ATOMIC_ACQUIRE) > 1)
		return EBUSY;
	if (pd->td)
		__atomic_sub_fetch(&pd->td->users, 1, __ATOMIC_RELAXED);
	pd_free(pd, false);
	pd_release(&parent->ibv);
	return 0;
}

/* The exporter's domain is the exporter's to destroy. */
static int pd_end_import(struct door_pd *pd)
{
	if (__atomic_load_n(&pd->refs, __ATOMIC_ACQUIRE) > 1)
		return EBUSY;
	pd_free(pd, false);
	return 0;
}

AV_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct door_pd *pd = door_pd(ibv);
	int error;

	if (pd->parent)
		return pd_dealloc_parent_domain(pd);
	if (pd->uobj.gone)
		return EINVAL;
	if (import_names(door_context(ibv->context), pd->uobj.handle))
		return pd_end_import(pd);
	if (ib_uobject_is_blocked(door_context(ibv->context)->ucontext, &pd->uobj))
		return EBUSY;
	error = ib_dealloc_pd(pd->ib);
	if (error)
		return door_errno(error);
	pd_free(pd, true);
	return 0;
}
DOOR_DEFAULT(ibv_dealloc_pd);

AV_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t number)
{
	struct door_context *c = door_context(context);
	struct door_pd *pd = calloc(1, sizeof(*pd));
	int error = -ENOENT;

	if (!pd)
		return door_null(-ENOMEM);
	if (import_names(c, number))
		error = import_domain(c, number, &pd->uobj, &pd->ib);
	else
		pd->ib = ib_uobject_share(c->ucontext, IB_UOBJECT_PD, number, false, &pd->uobj);
	if (!pd->ib) {
		free(pd);
		return door_null(error);
	}
	pd->listed = ib_export_find(c->file->export, number);
	return &pd_fill(pd, context)->ibv;
}

AV_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	pd_free(door_pd(pd), false);
}

/* ---- the program's allocators ---------------------------------------------------------------- */

/* The kinds of memory that the callbacks are told: above RDMA_DRIVER_UNKNOWN (0) in the upper half,
 * which is the driver of every device here. */
static uint64_t pd_resource_type(enum queue_kind kind)
{
	return kind;
}

static void *pd_memory_get(const struct queue_memory *m, size_t bytes, size_t align,
			   enum queue_kind kind)
{
	struct door_pd *pd = container_of(m, struct door_pd, memory);
	void *p = pd->alloc(&pd->ibv, pd->pd_context, bytes, align, pd_resource_type(kind));

	return p == IBV_ALLOCATOR_USE_DEFAULT ? QUEUE_MEMORY_OWN : p;
}

static void pd_memory_put(const struct queue_memory *m, void *memory, enum queue_kind kind)
{
	struct door_pd *pd = container_of(m, struct door_pd, memory);

	pd->free(&pd->ibv, pd->pd_context, memory, pd_resource_type(kind));
}

static void pd_take_allocators(struct door_pd *pd, const struct ibv_parent_domain_init_attr *attr)
{
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->pd_context = attr->pd_context;
	if (!(attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS))
		return;
	pd->memory = (struct queue_memory){ .get = pd_memory_get, .put = pd_memory_put };
	pd->alloc = attr->alloc;
	pd->free = attr->free;
}

/* ---- parent domains -------------------------------------------------------------------------- */

/* DOOR_PARENT_DOMAIN_UNPROTECTED allows memory that a guest does not keep from its host, for
 * devices that reach no other (IBV_DEVICE_CC_DMA_BOUNCE). Buffers here stay plain. */
static int pd_check_parent_attr(struct ibv_context *context,
				const struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			       DOOR_PARENT_DOMAIN_UNPROTECTED;

	if (!attr->pd || !context_is_same(attr->pd->context, context) ||
	    door_pd(attr->pd)->parent)
		return -EINVAL;
	if (attr->td && !context_is_same(attr->td->context, context))
		return -EINVAL;
	if (attr->comp_mask & ~known)
		return -EOPNOTSUPP;
	return (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) &&
			       (!attr->alloc || !attr->free) ?
		       -EINVAL :
		       0;
}

struct ibv_pd *pd_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr)
{
	int error = pd_check_parent_attr(context, attr);
	struct door_pd *pd;

	if (error)
		return door_null(error);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return door_null(-ENOMEM);
	pd->ib = ib_uobject_share(door_context(context)->ucontext, IB_UOBJECT_PD,
				  door_pd(attr->pd)->uobj.handle, true, &pd->uobj);
	if (!pd->ib) { /* destroyed through another import */
		free(pd);
		return door_null(-EINVAL);
	}
	pd->parent = door_pd(attr->pd);
	pd_hold(attr->pd);
	pd->td = attr->td ? door_td(attr->td) : NULL;
	if (pd->td)
		__atomic_add_fetch(&pd->td->users, 1, __ATOMIC_RELAXED);
	pd_take_allocators(pd, attr);
	return &pd_fill(pd, context)->ibv;
}

/* ---- thread domains -------------------------------------------------------------------------- */

struct ibv_td *pd_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct door_td *td;

	if (attr->comp_mask)
		return door_null(-EINVAL);
	td = calloc(1, sizeof(*td));
	if (!td)
		return door_null(-ENOMEM);
	td->ibv.context = context;
	context_get(door_context(context));
	return &td->ibv;
}

int pd_dealloc_td(struct ibv_td *ibv)
{
	struct door_context *c = door_context(ibv->context);

	if (__atomic_load_n(&door_td(ibv)->users, __ATOMIC_RELAXED))
		return EBUSY;
	free(ibv);
	context_put(c);
	return 0;
}
