/* export.c: the file behind a context's descriptor, written by the process that opened it.
 * In: objects that come and go      Out: entries of the file
 * Runs: the application's threads   Locks: ib_export.lock
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/memfile.h"
#include "core/export.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { EXPORT_BYTES = EXPORT_HEAD + EXPORT_ENTRIES * sizeof(struct export_entry) };

struct ib_export {
	struct lock lock;
	u8 *file FIXED; /* the one writable map; a forked child does not have it */
	struct fork_mark owner FIXED;
	u32 used GUARDED_BY(lock); /* entries that have ever been in use; they lie in front */
	u32 free_count GUARDED_BY(lock);
	u16 free[EXPORT_ENTRIES] GUARDED_BY(lock); /* of those, the ones that are not now */
};

/* In a forked child the file is the parent's. */
static bool export_is_ours(const struct ib_export *e)
{
	return e && fork_is_marked_here(&e->owner);
}

static struct export_head *export_head(const struct ib_export *e)
{
	return (struct export_head *)e->file;
}

/* Entries count from 1. */
static struct export_entry *export_entry(const struct ib_export *e, u32 number)
{
	return (struct export_entry *)(e->file + EXPORT_HEAD) + (number - 1);
}

/* The map, if it is there and can stay the only writable one. */
static void *export_map(int fd)
{
	void *p = mmap(NULL, EXPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (!madvise(p, EXPORT_BYTES, MADV_DONTFORK) &&
	    !fcntl(fd, F_ADD_SEALS,
		   F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return p;
	munmap(p, EXPORT_BYTES);
	return NULL;
}

/* A file with the lowest number that is free, as any that the program is told. */
static int export_create(void)
{
	int fd = memfile_create("anyverbs-context", EXPORT_BYTES);
	int low = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (low < 0)
		return fd;
	close(fd);
	return low;
}

/* Negative: the file cannot be shown. */
static int export_open(struct ib_export *e)
{
	int fd = export_create();

	if (fd < 0)
		return fd;
	e->owner = fork_mark_here();
	e->file = export_map(fd);
	if (e->file)
		return fd;
	close(fd);
	return -1;
}

/* The file takes no bytes: a program that writes commands to it, as to the kernel's device, gets
 * EPERM. */
static int export_open_empty(void)
{
	int fd = memfd_create("anyverbs-context", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0)
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	return fd;
}

int ib_export_open(struct ib_export **export)
{
	struct ib_export *e = calloc(1, sizeof(*e));
	int fd = e ? export_open(e) : -1;

	*export = e;
	if (fd < 0) {
		free(e);
		*export = NULL;
		fd = export_open_empty();
	}
	return fd < 0 ? -errno : fd_shown(fd);
}

void ib_export_begin(struct ib_export *e, const char *place, u64 guid)
{
	struct export_head *h;

	if (!export_is_ours(e))
		return;
	h = export_head(e);
	lock_acquire(&e->lock);
	h->pid = e->owner.pid;
	h->guid = guid;
	memcpy(h->place, place, strnlen(place, EXPORT_PLACE - 1));
	/* Behind the rest; importers, which read the file, have no order of their own: a head that
	 * is begun once is complete or not there. */
	__atomic_store_n(&h->magic, EXPORT_MAGIC, __ATOMIC_RELEASE);
	lock_release(&e->lock);
}

void ib_export_end(struct ib_export *e)
{
	if (export_is_ours(e))
		__atomic_store_n(&export_head(e)->magic, 0, __ATOMIC_RELEASE);
}

void ib_export_close(struct ib_export *e)
{
	if (export_is_ours(e)) {
		ib_export_end(e);
		munmap(e->file, EXPORT_BYTES);
	}
	free(e);
}

/* Shows no entry while the fields change. Importers read twice, and take what has not changed. */
static void export_write(struct ib_export *e, u32 number, const struct export_entry *entry)
	REQUIRES(e->lock)
{
	struct export_entry *at = export_entry(e, number);

	__atomic_store_n(&at->handle, 0, __ATOMIC_SEQ_CST);
	at->kind = entry->kind;
	at->plain = entry->plain;
	at->access = entry->access;
	at->fd = entry->fd;
	at->addr = entry->addr;
	at->length = entry->length;
	at->iova = entry->iova;
	at->inode = entry->inode;
	__atomic_store_n(&at->handle, entry->handle, __ATOMIC_RELEASE);
}

u32 ib_export_add(struct ib_export *e, const struct export_entry *entry)
{
	u32 number = 0;

	if (!export_is_ours(e))
		return 0;
	lock_acquire(&e->lock);
	if (e->free_count)
		number = e->free[--e->free_count] + 1u;
	else if (e->used < EXPORT_ENTRIES)
		number = ++e->used;
	else
		export_head(e)->unlisted++;
	if (number)
		export_write(e, number, entry);
	lock_release(&e->lock);
	return number;
}

u32 ib_export_find(struct ib_export *e, u32 handle)
{
	u32 number = 0;

	if (!export_is_ours(e))
		return 0;
	lock_acquire(&e->lock);
	for (u32 i = 1; !number && i <= e->used; i++)
		if (export_entry(e, i)->handle == handle)
			number = i;
	lock_release(&e->lock);
	return number;
}

void ib_export_change(struct ib_export *e, u32 number, const struct export_entry *entry)
{
	if (!number || !export_is_ours(e))
		return;
	lock_acquire(&e->lock);
	export_write(e, number, entry);
	lock_release(&e->lock);
}

bool ib_export_get(struct ib_export *e, u32 number, struct export_entry *entry)
{
	if (!number || !export_is_ours(e))
		return false;
	lock_acquire(&e->lock);
	*entry = *export_entry(e, number);
	lock_release(&e->lock);
	return true;
}

void ib_export_remove(struct ib_export *e, u32 number)
{
	if (!number || !export_is_ours(e))
		return;
	lock_acquire(&e->lock);
	__atomic_store_n(&export_entry(e, number)->handle, 0, __ATOMIC_SEQ_CST);
	e->free[e->free_count++] = (u16)(number - 1);
	lock_release(&e->lock);
}
