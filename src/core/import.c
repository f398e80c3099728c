/* import.c: reads the file behind another process' context, and finds its memory here.
 * In: a descriptor, handles, lists of maps    Out: entries, addresses
 * Runs: the application's threads             Locks: none
 */
#include "core/import.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/vma.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
	IMPORT_SEALS = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL,
	IMPORT_AT_ONCE = 64,	/* entries in a read */
	IMPORT_PIECES = 1 << 17, /* maps of a process, at most; the usual limit is 65,530 */
	IMPORT_PATH = 64,
};

/* ---- the file -------------------------------------------------------------------------------- */

bool ib_import_is_context(int fd)
{
	const int seals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

	return (fcntl(fd, F_GET_SEALS) & (seals | INT_MIN)) == seals;
}

/* The head as it is, of a file that may be read. */
static int import_head(int fd, struct export_head *head)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 && errno == EBADF)
		return -EBADF;
	if (seals < 0 || (seals & IMPORT_SEALS) != IMPORT_SEALS ||
	    pread(fd, head, sizeof(*head), 0) != (ssize_t)sizeof(*head))
		return -EOPNOTSUPP;
	head->place[EXPORT_PLACE - 1] = 0;
	return head->magic == EXPORT_MAGIC ? 0 : -ENODEV;
}

static int import_entry(int fd, const struct export_head *head, enum ib_uobject_kind kind,
			u32 handle, struct export_entry *entry)
{
	struct export_entry at[IMPORT_AT_ONCE];

	for (u32 i = 0; handle && i < EXPORT_ENTRIES; i += IMPORT_AT_ONCE) {
		off_t from = (off_t)(EXPORT_HEAD + i * sizeof(at[0]));

		if (pread(fd, at, sizeof(at), from) != (ssize_t)sizeof(at))
			return -EOPNOTSUPP;
		for (u32 j = 0; j < IMPORT_AT_ONCE; j++)
			if (at[j].handle == handle && at[j].kind == (u8)kind) {
				*entry = at[j];
				return 0;
			}
	}
	if (!head->unlisted)
		return -ENOENT;
	log_warn("import", "%u: the exporter has had more objects than its descriptor shows",
		 handle);
	return -EOPNOTSUPP;
}

/* Does it still show the same? Then all fields of the copy are of one instant. */
static int import_again(int fd, const struct export_entry *before)
{
	struct export_head head;
	struct export_entry now;
	int error = import_head(fd, &head);

	if (!error)
		error = import_entry(fd, &head, before->kind, before->handle, &now);
	return error ? error : memcmp(&now, before, sizeof(now)) ? -ENOENT : 0;
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* One map, or a part of it. */
struct import_piece {
	u64 start, end; /* addresses */
	u64 offset;	/* of start, in the file */
	u64 device, inode;
	bool sysv;   /* a segment of shmget, whose inode is an identifier */
	bool shared; /* what one process stores there, others that map the file see */
	bool write;
} OWNED_BY(the caller);

/* Of one process, in ascending order. */
struct import_pieces {
	u64 from, to; /* maps that touch this range are wanted */
	bool all;     /* false: only shared ones */
	struct import_piece *at;
	u32 count, room;
	bool full; /* no memory for more */
	/* the file of the context, and whether it is mapped for writing */
	u64 device, inode;
	bool exports;
} OWNED_BY(the caller);

static bool import_starts(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

static struct import_piece *import_grow(struct import_pieces *p)
{
	u32 room = p->room ? 2 * p->room : 64;
	struct import_piece *more;

	if (p->count < p->room)
		return &p->at[p->count++];
	more = room > IMPORT_PIECES ? NULL : realloc(p->at, room * sizeof(*more));
	if (!more) {
		p->full = true;
		return NULL;
	}
	p->at = more;
	p->room = room;
	return &p->at[p->count++];
}

/* Memory of the stack's own, as adopted regions have, may leave its file at any time. */
static void import_see(const struct vma *m, void *arg)
{
	bool shared = m->shared && m->inode && m->prot & PROT_READ &&
		      !import_starts(m->name, "/memfd:anyverbs-");
	struct import_pieces *p = arg;
	struct import_piece *piece;

	if (m->shared && m->prot & PROT_WRITE && m->device == p->device && m->inode == p->inode)
		p->exports = true;
	if (m->start >= p->to || m->end <= p->from || !(shared || p->all))
		return;
	piece = import_grow(p);
	if (piece)
		*piece = (struct import_piece){ .start = m->start,
						.end = m->end,
						.offset = m->offset,
						.device = m->device,
						.inode = m->inode,
						.sysv = import_starts(m->name, "/SYSV"),
						.shared = shared,
						.write = m->prot & PROT_WRITE };
}

/* Reads the exporter's maps: is it the process that has the file mapped for writing? */
static int import_exporter(int fd, const struct export_head *head, struct import_pieces *p)
{
	char path[IMPORT_PATH];
	struct stat st;
	bool whole;
	int maps;

	if (fstat(fd, &st))
		return -EBADF;
	p->device = st.st_dev;
	p->inode = st.st_ino;
	snprintf(path, sizeof(path), "/proc/%d/maps", head->pid);
	maps = open(path, O_RDONLY | O_CLOEXEC);
	if (maps < 0) {
		int error = errno == ENOENT || errno == ESRCH ? ENODEV : errno;

		log_warn("import", "%s: %s", path, strerror(errno));
		return -error;
	}
	whole = vma_each(maps, import_see, p);
	close(maps);
	if (p->full)
		return -ENOMEM;
	if (!p->exports)
		log_warn("import", "process %d has not opened this context, or has ended",
			 head->pid);
	return p->exports && whole ? 0 : -ENODEV;
}

static const struct import_piece *import_piece_at(const struct import_pieces *p, u64 addr)
{
	u32 low = 0, high = p->count;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (p->at[middle].end <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->count && p->at[low].start <= addr ? &p->at[low] : NULL;
}

static bool import_is_one_file(const struct import_piece *a, const struct import_piece *b)
{
	return a->device == b->device && a->inode == b->inode && a->sysv == b->sysv;
}

/* Is all of the exporter's range the same memory as what begins at `here`? */
static bool import_matches(const struct import_pieces *theirs, const struct import_pieces *own,
			   u64 here, bool *writable)
{
	u64 length = theirs->to - theirs->from, step;

	*writable = true;
	for (u64 done = 0; done < length; done += step) {
		u64 there = theirs->from + done, at = here + done;
		const struct import_piece *t = import_piece_at(theirs, there);
		const struct import_piece *o = import_piece_at(own, at);

		if (!t || !o || !import_is_one_file(t, o) ||
		    t->offset + (there - t->start) != o->offset + (at - o->start))
			return false;
		*writable &= o->write;
		step = t->end - there < o->end - at ? t->end - there : o->end - at;
	}
	return true;
}

/* The first place that may be written, else one that may be read. */
static bool import_locate(const struct import_pieces *theirs, const struct import_pieces *own,
			  u64 *here, bool *writable)
{
	const struct import_piece *first = import_piece_at(theirs, theirs->from);
	bool found = false, write;
	u64 offset;

	if (!first)
		return false;
	offset = first->offset + (theirs->from - first->start);
	for (u32 i = 0; i < own->count; i++) {
		const struct import_piece *o = &own->at[i];
		u64 at = o->start + (offset - o->offset);

		if (!import_is_one_file(first, o) || offset - o->offset >= o->end - o->start ||
		    !import_matches(theirs, own, at, &write) || (found && !write))
			continue;
		*here = at;
		*writable = write;
		found = true;
		if (write)
			break;
	}
	return found;
}

/* Is it all there, and all such memory that other processes can have, too? */
static bool import_is_shared(const struct import_pieces *p)
{
	u64 at = p->from;

	for (u32 i = 0; i < p->count && p->at[i].shared && p->at[i].start <= at; i++)
		at = p->at[i].end;
	return at >= p->to;
}

static int import_look_here(const struct import_pieces *theirs, u32 handle, u64 *here,
			    bool *writable)
{
	struct import_pieces own = { .to = UINT64_MAX };
	int maps = vma_open();
	bool whole = maps >= 0 && vma_each(maps, import_see, &own), found = false;

	if (maps >= 0)
		close(maps);
	if (whole && !own.full)
		found = import_locate(theirs, &own, here, writable);
	free(own.at);
	if (own.full)
		return -ENOMEM;
	if (!found)
		log_warn("import", "region %u: this process has not mapped its memory in one piece",
			 handle);
	return found ? 0 : -EOPNOTSUPP;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Does the exporter have the context open? */
static int import_alive(int fd)
{
	struct import_pieces none = { 0 };
	struct export_head head;
	int error = import_head(fd, &head);

	return error ? error : import_exporter(fd, &head, &none);
}

int ib_import_device(int fd, struct export_head *head)
{
	int error = import_head(fd, head);

	return error ? error : import_alive(fd);
}

int ib_import_find(int fd, enum ib_uobject_kind kind, u32 handle, struct export_entry *entry)
{
	struct export_head head;
	int error = import_alive(fd);

	if (!error)
		error = import_head(fd, &head);
	return error ? error : import_entry(fd, &head, kind, handle, entry);
}

/* An exporter that ends loses its maps and its descriptors one by one: what is missing then says
 * nothing. */
static int import_missing(int fd, int error)
{
	int gone = import_alive(fd);

	return gone ? gone : error;
}

int ib_import_memory(int fd, const struct export_entry *entry, u64 *here, bool *writable)
{
	struct import_pieces theirs = { .from = entry->addr,
					.to = entry->addr + entry->length,
					.all = true };
	struct export_head head;
	int error = import_head(fd, &head);

	if (error)
		return error;
	if (!entry->plain || theirs.to <= theirs.from) {
		log_warn("import", "region %u is not of the exporter's ordinary memory",
			 entry->handle);
		return -EOPNOTSUPP;
	}
	error = import_exporter(fd, &head, &theirs);
	if (!error && !import_is_shared(&theirs)) {
		error = import_missing(fd, -EOPNOTSUPP);
		if (error == -EOPNOTSUPP)
			log_warn("import", "region %u: some of its memory is the exporter's alone",
				 entry->handle);
	}
	if (!error)
		error = import_look_here(&theirs, entry->handle, here, writable);
	free(theirs.at);
	return error ? error : import_again(fd, entry);
}

/* Is it the file of that inode, where memory files are? Asks no file system that could make this
 * process wait. */
static bool import_is_inode(int path, u64 device, u64 inode)
{
	struct statx st;

	return !statx(path, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == device && st.stx_ino == inode;
}

int ib_import_open(int fd, const struct export_entry *entry)
{
	struct export_head head;
	struct stat st;
	char path[IMPORT_PATH];
	int error = import_head(fd, &head), named, opened = -1;

	if (error || fstat(fd, &st))
		return error ? error : -EBADF;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", head.pid, entry->fd);
	named = open(path, O_PATH | O_CLOEXEC);
	if (named < 0)
		return import_missing(fd, -ENOENT);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", named);
	if (import_is_inode(named, st.st_dev, entry->inode))
		opened = open(path, O_RDWR | O_CLOEXEC);
	close(named);
	if (opened < 0)
		return -ENOENT;
	error = import_again(fd, entry);
	if (!error)
		return fd_own(opened);
	close(opened);
	return error;
}
