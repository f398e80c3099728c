/* import.c: contexts of other processes and their objects, by descriptor and handle.
 * In: a descriptor that came by SCM_RIGHTS or exec, handles
 * Out: objects of this process that stand for the exporter's
 * Runs: the application's threads
 * Locks: none
 *
 * Nothing here names the exporter's objects afterwards: a domain, a region and a map of this
 * process' own go on when the exporter's, or the exporter, have gone.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "core/import.h"
#include "door.h"

/* Lives as long as the import: its objects may outlive each ibv_pd. */
struct door_stand_in {
	struct door_stand_in *next FIXED;
	struct ib_pd *ib FIXED;
	struct ib_uobject uobj GUARDS_ITSELF;
};

/* ---- contexts -------------------------------------------------------------------------------- */

/* This process' device that the head names, with a reference; NULL: none. */
static struct door_device *import_device(const struct export_head *head)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct door_device *found = NULL;

	for (struct ibv_device **at = list; at && *at && !found; at++)
		if (door_device(*at)->guid == head->guid && !strcmp((*at)->ibdev_path, head->place))
			found = door_device(*at);
	if (found)
		device_get(found);
	if (list)
		ibv_free_device_list(list);
	return found;
}

static int import_make(int cmd_fd, struct door_device *device, struct ib_ucontext **ucontext)
{
	struct door_file *file = file_create(device, NULL);

	if (!file)
		return -ENOMEM;
	file->is_import = true;
	*ucontext = ib_ucontext_import(cmd_fd, file, file_release);
	if (*ucontext)
		return 0;
	file_release(file);
	return -ENOMEM;
}

int import_ucontext(int cmd_fd, struct ib_ucontext **ucontext)
{
	struct door_device *device;
	struct export_head head;
	int error;

	*ucontext = ib_import_is_context(cmd_fd) ? ib_ucontext_find(cmd_fd) : NULL;
	if (*ucontext)
		return 0;
	error = ib_import_device(cmd_fd, &head);
	if (error)
		return error;
	device = import_device(&head);
	if (!device)
		return -ENODEV;
	error = import_make(cmd_fd, device, ucontext);
	device_put(device);
	return error;
}

void import_close(struct door_file *file)
{
	struct door_stand_in *next, *s = __atomic_load_n(&file->stand_ins, __ATOMIC_ACQUIRE);

	for (; s; s = next) {
		next = s->next;
		ib_dealloc_pd(s->ib);
		free(s);
	}
}

/* ---- objects --------------------------------------------------------------------------------- */

static int import_find(struct door_context *c, enum ib_uobject_kind kind, u32 handle,
		       struct export_entry *entry)
{
	return ib_import_find(c->verbs.context.cmd_fd, kind, handle, entry);
}

static void import_keep(struct door_file *file, struct door_stand_in *s)
{
	s->next = __atomic_load_n(&file->stand_ins, __ATOMIC_RELAXED);
	/* release pairs with import_close's acquire */
	while (!__atomic_compare_exchange_n(&file->stand_ins, &s->next, s, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

static int import_stand_in(struct door_context *c, u32 handle)
{
	struct door_stand_in *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->ib = ib_alloc_pd(c->ib);
	if (IS_ERR(s->ib)) {
		int error = (int)PTR_ERR(s->ib);

		free(s);
		return error;
	}
	if (ib_uobject_stand_in(c->ucontext, &s->uobj, IB_UOBJECT_PD, handle, s->ib)) {
		import_keep(c->file, s);
		return 0;
	}
	ib_dealloc_pd(s->ib); /* another thread was faster */
	free(s);
	return 0;
}

int import_domain(struct door_context *c, u32 handle, struct ib_uobject *uobj, struct ib_pd **pd)
{
	struct export_entry entry;
	int error = import_find(c, IB_UOBJECT_PD, handle, &entry);

	if (error)
		return error;
	*pd = ib_uobject_share(c->ucontext, IB_UOBJECT_PD, handle, false, uobj);
	if (*pd)
		return 0;
	error = import_stand_in(c, handle);
	if (!error)
		*pd = ib_uobject_share(c->ucontext, IB_UOBJECT_PD, handle, false, uobj);
	return error;
}

int import_memory(struct door_context *c, u32 handle, struct ib_dm **dm)
{
	struct export_entry entry;
	int fd, error = import_find(c, IB_UOBJECT_DM, handle, &entry);
	struct ib_dm *made;

	if (error)
		return error;
	if (entry.fd < 0) {
		log_warn("import", "device memory %u: the exporter could make no file for it",
			 handle);
		return -EOPNOTSUPP;
	}
	fd = ib_import_open(c->verbs.context.cmd_fd, &entry);
	if (fd < 0)
		return fd;
	made = ib_uverbs_map_dm(c->ib, fd, entry.addr, entry.length);
	close(fd);
	if (IS_ERR(made))
		return (int)PTR_ERR(made);
	*dm = made;
	return 0;
}

int import_region(struct door_context *c, u32 handle, struct export_entry *entry)
{
	const u32 change = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC;
	int error = import_find(c, IB_UOBJECT_MR, handle, entry);
	bool writable;
	u64 here;

	if (!error)
		error = ib_import_memory(c->verbs.context.cmd_fd, entry, &here, &writable);
	if (error)
		return error;
	entry->addr = here;
	if (!writable)
		entry->access &= ~change;
	return 0;
}
