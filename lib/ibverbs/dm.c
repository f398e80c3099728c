/* dm.c: device memory and its regions.
 * In: lengths, copies, handles      Out: device memory      Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "door.h"

static int dm_copy_in(struct ibv_dm *dm, uint64_t offset, const void *host, size_t length)
{
	return door_errno(ib_uverbs_copy_dm(door_dm(dm)->ib, offset, (void *)(uintptr_t)host,
					    length, false));
}

static int dm_copy_out(void *host, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	return door_errno(ib_uverbs_copy_dm(door_dm(dm)->ib, offset, host, length, true));
}

static struct ibv_dm *dm_fill(struct door_dm *dm, struct ibv_context *context)
{
	dm->ibv.context = context;
	dm->ibv.memcpy_to_dm = dm_copy_in;
	dm->ibv.memcpy_from_dm = dm_copy_out;
	dm->ibv.handle = dm->uobj.handle;
	context_get(door_context(context));
	return &dm->ibv;
}

/* Shows it to importers. */
static void dm_list(struct door_dm *dm, struct door_context *c)
{
	struct export_entry entry = { .handle = dm->uobj.handle,
				      .kind = IB_UOBJECT_DM,
				      .length = dm->ib->length };
	struct stat st;

	entry.fd = ib_uverbs_dm_file(dm->ib, &entry.addr);
	if (entry.fd >= 0 && !fstat(entry.fd, &st))
		entry.inode = st.st_ino;
	dm->listed = ib_export_add(c->file->export, &entry);
}

struct ibv_dm *dm_alloc(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct door_context *c = door_context(context);
	struct door_dm *dm;

	if (attr->comp_mask)
		return door_null(-EINVAL);
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return door_null(-ENOMEM);
	dm->ib = ib_uverbs_alloc_dm(c->ib, attr->length, attr->log_align_req);
	if (IS_ERR(dm->ib)) {
		int error = (int)PTR_ERR(dm->ib);

		free(dm);
		return door_null(error);
	}
	ib_uobject_add(c->ucontext, &dm->uobj, IB_UOBJECT_DM, dm->ib);
	dm_list(dm, c);
	return dm_fill(dm, context);
}

static void dm_drop(struct door_dm *dm, bool destroyed)
{
	struct door_context *c = door_context(dm->ibv.context);

	ib_uobject_remove(c->ucontext, &dm->uobj, destroyed);
	if (destroyed)
		ib_export_remove(c->file->export, dm->listed);
	free(dm);
	context_put(c);
}

int dm_free(struct ibv_dm *ibv)
{
	struct door_dm *dm = door_dm(ibv);
	int error;

	if (dm->uobj.gone)
		return EINVAL;
	error = ib_uverbs_free_dm(dm->ib);
	if (error)
		return door_errno(error);
	dm_drop(dm, true);
	return 0;
}

/* A map of this process' own, of the exporter's memory. */
static int dm_import(struct door_dm *dm, struct door_context *c, uint32_t handle)
{
	int error = import_memory(c, handle, &dm->ib);

	if (error)
		return error;
	dm->is_import = true;
	ib_uobject_add(c->ucontext, &dm->uobj, IB_UOBJECT_DM, dm->ib);
	return 0;
}

AV_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	struct door_context *c = door_context(context);
	struct door_dm *dm = calloc(1, sizeof(*dm));
	int error = -ENOENT;

	if (!dm)
		return door_null(-ENOMEM);
	if (import_names(c, dm_handle))
		error = dm_import(dm, c, dm_handle);
	else
		dm->ib = ib_uobject_share(c->ucontext, IB_UOBJECT_DM, dm_handle, false, &dm->uobj);
	if (!dm->ib) {
		free(dm);
		return door_null(error);
	}
	dm->listed = ib_export_find(c->file->export, dm_handle);
	dm_fill(dm, context);
	dm->ibv.handle = dm_handle;
	return &dm->ibv;
}

/* A map whose region still exists stays until the process ends. */
AV_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	int error = door_dm(dm)->is_import ? ib_uverbs_free_dm(door_dm(dm)->ib) : 0;

	if (error)
		log_warn("import", "device memory %u: %s, it stays mapped", dm->handle,
			 strerror(-error));
	dm_drop(door_dm(dm), false);
}
