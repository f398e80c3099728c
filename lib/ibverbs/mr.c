/* mr.c: memory regions.
 * In: addresses of the application
 * Out: keys
 * Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "door.h"

enum {
	MR_ACCESS_REMOTE_CHANGE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	MR_ACCESS_PLAIN = IBV_ACCESS_LOCAL_WRITE | MR_ACCESS_REMOTE_CHANGE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |
			  IBV_ACCESS_ON_DEMAND | DOOR_ACCESS_FLUSH_GLOBAL,
	MR_ACCESS_KNOWN = MR_ACCESS_PLAIN | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB,
};

/* Unknown bits of the optional range are hints and may be ignored; any other unknown bit is an
 * error. */
static int mr_check_access(unsigned int access)
{
	access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & ~(unsigned int)MR_ACCESS_KNOWN)
		return -EINVAL;
	if ((access & MR_ACCESS_REMOTE_CHANGE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static struct ibv_mr *mr_fill(struct door_mr *mr, struct ibv_pd *pd)
{
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.handle = mr->uobj.handle;
	mr->ibv.lkey = mr->ib->lkey;
	mr->ibv.rkey = mr->ib->rkey;
	pd_hold(pd);
	context_get(door_context(pd->context));
	return &mr->ibv;
}

/* Shows the region to importers. `memory`: of this process, at `addr`; NULL: other memory. */
static void mr_list(struct door_mr *mr, const struct export_entry *memory)
{
	struct export_entry entry = memory ? *memory : (struct export_entry){ 0 };

	entry.handle = mr->uobj.handle;
	entry.kind = IB_UOBJECT_MR;
	entry.plain = memory != NULL;
	mr->listed = ib_export_add(door_context(mr->ibv.context)->file->export, &entry);
}

static struct ibv_mr *mr_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				  unsigned int access)
{
	struct door_context *c = door_context(pd->context);
	int error = pd_is_gone(pd) ? -EINVAL : mr_check_access(access);
	struct door_mr *mr;

	if (error)
		return door_null(error);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return door_null(-ENOMEM);
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	mr->ib = ib_uverbs_reg_user_mr(door_pd(pd)->ib, (uintptr_t)addr, length, iova,
				       access & MR_ACCESS_PLAIN);
	if (IS_ERR(mr->ib)) {
		error = (int)PTR_ERR(mr->ib);
		free(mr);
		return door_null(error);
	}
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	ib_uobject_add(c->ucontext, &mr->uobj, IB_UOBJECT_MR, mr->ib);
	mr_fill(mr, pd);
	mr_list(mr, &(struct export_entry){ .addr = (uintptr_t)addr,
					    .length = length,
					    .iova = iova,
					    .access = access & MR_ACCESS_PLAIN });
	return &mr->ibv;
}

AV_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return mr_register(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}
DOOR_DEFAULT(ibv_reg_mr);

AV_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					 uint64_t iova, int access)
{
	return mr_register(pd, addr, length, iova, (unsigned int)access);
}

AV_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, unsigned int access)
{
	return mr_register(pd, addr, length, iova, access);
}

/* As rdma-core's, the region's `addr` is the offset. */
AV_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					   uint64_t iova, int fd, int access)
{
	unsigned int rights = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	struct door_context *c = door_context(pd->context);
	struct door_mr *mr;
	int error;

	if (pd_is_gone(pd))
		return door_null(-EINVAL);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return door_null(-ENOMEM);
	mr->ib = ib_uverbs_reg_dmabuf_mr(door_pd(pd)->ib, offset, length, iova, fd, (int)rights);
	if (IS_ERR(mr->ib)) {
		error = (int)PTR_ERR(mr->ib);
		free(mr);
		return door_null(error);
	}
	mr->ibv.addr = (void *)(uintptr_t)offset;
	mr->ibv.length = length;
	ib_uobject_add(c->ucontext, &mr->uobj, IB_UOBJECT_MR, mr->ib);
	mr_fill(mr, pd);
	mr_list(mr, NULL);
	return &mr->ibv;
}

_Static_assert((int)IBV_REREG_MR_CHANGE_TRANSLATION == (int)IB_MR_REREG_TRANS &&
		       (int)IBV_REREG_MR_CHANGE_PD == (int)IB_MR_REREG_PD &&
		       (int)IBV_REREG_MR_CHANGE_ACCESS == (int)IB_MR_REREG_ACCESS,
	       "same flags");

static int mr_check_rereg(const struct ibv_mr *mr, int flags, struct ibv_pd *pd, const void *addr,
			  size_t length, int access)
{
	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED ||
	    door_mr((struct ibv_mr *)mr)->uobj.gone)
		return -EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!length || !addr))
		return -EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD && !pd_is_usable(pd, mr->context))
		return -EINVAL;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return access ? -EINVAL : 0;
	return mr_check_access((unsigned int)access);
}

static void mr_list_rereg(struct door_mr *mr, int flags, const struct ib_uverbs_rereg *to)
{
	struct ib_export *export = door_context(mr->ibv.context)->file->export;
	struct export_entry entry;

	if (!ib_export_get(export, mr->listed, &entry))
		return;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		entry.addr = to->start;
		entry.length = to->length;
		entry.iova = to->iova;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		entry.access = (u32)to->access;
	ib_export_change(export, mr->listed, &entry);
}

static void mr_show_rereg(struct door_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			  size_t length)
{
	mr->ibv.lkey = mr->ib->lkey;
	mr->ibv.rkey = mr->ib->rkey;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->ibv.addr = addr;
		mr->ibv.length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		pd_hold(pd);
		pd_release(__atomic_exchange_n(&mr->ibv.pd, pd, __ATOMIC_ACQ_REL));
	}
}

/* On any failure the region is as it was, also where the man page allows less
 * (IBV_REREG_MR_ERR_CMD). Ranges need no mark for fork (fork.c), so the codes about those never
 * come. */
AV_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			   size_t length, int access)
{
	int error = mr_check_rereg(mr, flags, pd, addr, length, access);
	struct ib_uverbs_rereg to = { .start = (uintptr_t)addr,
				      .length = length,
				      .iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr,
				      .access = access & (int)MR_ACCESS_PLAIN };

	if (error) {
		errno = -error;
		return IBV_REREG_MR_ERR_INPUT;
	}
	to.pd = flags & IBV_REREG_MR_CHANGE_PD ? door_pd(pd)->ib : NULL;
	error = ib_uverbs_rereg_user_mr(door_mr(mr)->ib, flags, &to);
	if (error) {
		errno = -error;
		return IBV_REREG_MR_ERR_CMD;
	}
	mr_list_rereg(door_mr(mr), flags, &to);
	mr_show_rereg(door_mr(mr), flags, pd, addr, length);
	return 0;
}

/* Its local key reads zeros and takes what is written; it has no remote one. */
struct ibv_mr *mr_alloc_null(struct ibv_pd *pd)
{
	struct door_context *c = door_context(pd->context);
	struct door_mr *mr = pd_is_gone(pd) ? NULL : calloc(1, sizeof(*mr));
	long error = pd_is_gone(pd) ? -EINVAL : -ENOMEM;

	if (!mr)
		return door_null((int)error);
	mr->ib = ib_uverbs_alloc_null_mr(door_pd(pd)->ib);
	if (IS_ERR(mr->ib)) {
		error = PTR_ERR(mr->ib);
		free(mr);
		return door_null((int)error);
	}
	ib_uobject_add(c->ucontext, &mr->uobj, IB_UOBJECT_MR, mr->ib);
	mr_fill(mr, pd);
	mr_list(mr, NULL);
	return &mr->ibv;
}

struct ibv_mr *mr_register_dm(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			      unsigned int access)
{
	struct door_context *c = door_context(pd->context);
	int error = mr_check_access(access);
	struct door_mr *mr;

	if (pd_is_gone(pd) || door_dm(dm)->uobj.gone || !context_is_same(dm->context, pd->context))
		error = -EINVAL;
	if (error)
		return door_null(error);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return door_null(-ENOMEM);
	mr->ib = ib_uverbs_reg_dm_mr(door_pd(pd)->ib, door_dm(dm)->ib, offset, length,
				     (int)(access & (MR_ACCESS_PLAIN | IBV_ACCESS_ZERO_BASED)));
	if (IS_ERR(mr->ib)) {
		error = (int)PTR_ERR(mr->ib);
		free(mr);
		return door_null(error);
	}
	mr->ibv.length = length;
	ib_uobject_add(c->ucontext, &mr->uobj, IB_UOBJECT_MR, mr->ib);
	mr_fill(mr, pd);
	mr_list(mr, NULL);
	return &mr->ibv;
}

int mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	      struct ibv_sge *sg_list, uint32_t num_sges)
{
	if (pd_is_gone(pd) || !sg_list)
		return EINVAL;
	return door_errno(
		ib_uverbs_advise_mr(door_pd(pd)->ib, advice, flags, sg_list, num_sges));
}

/* Frees the region without a call to the midlayer. */
static void mr_free(struct door_mr *mr, bool destroyed)
{
	struct door_context *c = door_context(mr->ibv.context);

	ib_uobject_remove(c->ucontext, &mr->uobj, destroyed);
	if (destroyed)
		ib_export_remove(c->file->export, mr->listed);
	pd_release(mr->ibv.pd);
	free(mr);
	context_put(c);
}

AV_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct door_mr *mr = door_mr(ibv);
	int error;

	if (mr->uobj.gone)
		return EINVAL;
	error = ib_dereg_mr(mr->ib);
	if (error)
		return door_errno(error);
	mr_free(mr, true);
	return 0;
}
DOOR_DEFAULT(ibv_dereg_mr);

/* A region of this process' own, over its own map of the exporter's memory. */
static struct ibv_mr *mr_import(struct ibv_pd *pd, uint32_t number)
{
	struct export_entry entry;
	int error = import_region(door_context(pd->context), number, &entry);
	struct ibv_mr *mr;

	if (error)
		return door_null(error);
	mr = mr_register(pd, (void *)(uintptr_t)entry.addr, entry.length, entry.iova, entry.access);
	if (!mr)
		return NULL;
	door_mr(mr)->is_import = true;
	mr->handle = number;
	mr->addr = NULL;
	return mr;
}

/* The address in the exporter is not told: it stays NULL. */
AV_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t number)
{
	struct door_context *c = door_context(pd->context);
	struct door_mr *mr;

	if (import_names(c, number))
		return mr_import(pd, number);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return door_null(-ENOMEM);
	mr->ib = ib_uobject_share(c->ucontext, IB_UOBJECT_MR, number, false, &mr->uobj);
	if (!mr->ib) {
		free(mr);
		return door_null(-ENOENT);
	}
	mr->listed = ib_export_find(c->file->export, number);
	return mr_fill(mr, pd);
}

/* A region that a window still names stays: the midlayer's ends with the process. */
AV_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	int error = door_mr(mr)->is_import ? ib_dereg_mr(door_mr(mr)->ib) : 0;

	if (error)
		log_warn("import", "region %u: %s, it stays registered", mr->handle,
			 strerror(-error));
	mr_free(door_mr(mr), false);
}
