/* adopt_look.c: asks the kernel about this process: threads, maps, holders of pages.
 *
 * In: /proc/self    Out: yes or no; pieces
 * Runs: verbs that register memory, fork's handlers    Locks: none; the pieces are adopt.lock's
 *
 * The answer is no where the kernel's cannot be read or is unusual.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lines.h"
#include "base/vma.h"
#include "shared/adopt_priv.h"
#include "shared/born_priv.h"

enum {
	/* registrations per count of all maps, which takes reading the list */
	LOOK_COUNT_EVERY = 64,
	LOOK_GROWTH = 4,       /* maps that each adopted region may add meanwhile */
};

bool look_is_alone(void)
{
	struct stat st;

	/* /proc/self/task has a folder per thread, beside . and .. */
	return stat("/proc/self/task", &st) == 0 &&
	       st.st_nlink == 3u + adopt_engine_runs;
}

struct look_advised {
	void (*fn)(u64 start, u64 end, bool withheld, void *arg);
	void *arg;
	struct vma m; /* the map that the lines describe */
} OWNED_BY(the caller);

/* "VmFlags: rd wr mr mw me dc wf": DONTCOPY, WIPEONFORK. */
static bool look_smaps_line(const char *line, void *arg)
{
	struct look_advised *a = arg;
	bool withheld;

	if (vma_parse(line, &a->m) || strncmp(line, "VmFlags:", 8) != 0)
		return true;
	withheld = strstr(line, " dc") != NULL;
	if (withheld || strstr(line, " wf") != NULL)
		a->fn(a->m.start, a->m.end, withheld, a->arg);
	return true;
}

bool look_advice(void (*fn)(u64 start, u64 end, bool withheld, void *arg), void *arg)
{
	struct look_advised a = { .fn = fn, .arg = arg };
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
	bool all = fd >= 0 && lines_each(fd, look_smaps_line, &a);

	if (fd >= 0)
		close(fd);
	return all;
}

bool look_keep(void)
{
	int fd = fd_own(vma_open());
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	adopt.maps_fd = fd;
	adopt.maps_inode = st.st_ino;
	return true;
}

static bool look_is_kept(void) REQUIRES(&adopt.lock)
{
	struct stat st;

	return fstat(adopt.maps_fd, &st) == 0 && st.st_ino == adopt.maps_inode;
}

void look_drop(void)
{
	if (look_is_kept())
		close(adopt.maps_fd);
	adopt.maps_fd = -1;
}

static bool look_map_is_ours(const struct vma *m) REQUIRES(&adopt.lock)
{
	return m->shared && m->inode == adopt.inode && m->device == adopt.device;
}

/* Calls fn for every shared map of a file, and possibly for other maps. False: the list cannot be
 * read. */
static bool look_shared_files(int fd, void (*fn)(const struct vma *m, void *arg), void *arg)
	REQUIRES(&adopt.lock)
{
	struct vma_name name;
	struct vma m;
	u64 at = 0;
	int found;

	while ((found = vma_at_shared_file(fd, at, &m)) == 1) {
		/* The list may hold a thousand maps of our file, and finding names takes time. */
		if (!look_map_is_ours(&m))
			found = vma_at(fd, m.start, &m, &name);
		if (found != 1)
			return false;
		fn(&m, arg);
		at = m.end;
	}
	return found == 0 || (at == 0 && vma_each(fd, fn, arg));
}

/* Returns the list of maps that is kept open, or a new one if that was closed; -1. look_done
 * follows. */
static int look_own(void) REQUIRES(&adopt.lock)
{
	if (look_is_kept())
		return adopt.maps_fd;
	adopt.maps_fd = -1;
	return vma_open();
}

static void look_done(int fd) REQUIRES(&adopt.lock)
{
	if (fd >= 0 && fd != adopt.maps_fd)
		close(fd);
}

struct look_plain {
	u64 at, end; /* the rest that is not yet known to be plain */
	u32 maps;
	bool held;
} OWNED_BY(the caller);

static bool look_map_is_plain(const struct vma *m)
{
	return !m->shared && m->inode == 0 && m->prot == (PROT_READ | PROT_WRITE) &&
	       (m->name[0] == '\0' || strcmp(m->name, "[heap]") == 0 ||
		strncmp(m->name, "[anon:", 6) == 0);
}

/* Maps of AIO and io_uring: requests in progress may name any page. */
static bool look_map_is_for_requests(const struct vma *m)
{
	return strncmp(m->name, "/[aio]", 6) == 0 || strstr(m->name, "[io_uring]") != NULL;
}

static void look_at_plain(const struct vma *m, void *arg)
{
	struct look_plain *p = arg;

	p->maps++;
	if (m->start <= p->at && p->at < m->end && look_map_is_plain(m))
		p->at = m->end;
	p->held |= look_map_is_for_requests(m);
}

/* Tells whether a line like "VmPin:	       0 kB" has another number than 0. */
static bool look_status_has(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at == NULL || strtoull(at + strlen(name), NULL, 10) != 0;
}

bool look_is_held(void)
{
	char status[4096];
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, status, sizeof(status) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return true;
	status[n] = '\0';
	return look_status_has(status, "\nVmPin:") || look_status_has(status, "\nVmLck:");
}

/* False: this kernel has no such query. */
static bool look_at_range(int fd, struct look_plain *p) REQUIRES(&adopt.lock)
{
	struct vma_name name;
	struct vma m;
	u64 before;
	int found;

	do {
		before = p->at;
		found = vma_at(fd, before, &m, &name);
		if (found == 1)
			look_at_plain(&m, p);
	} while (p->at < p->end && p->at != before);
	return found >= 0 && look_shared_files(fd, look_at_plain, p);
}

/* Checks the range and the requests always, all maps now and then. */
static bool look_judge(struct look_plain *p) REQUIRES(&adopt.lock)
{
	struct look_plain all = *p;
	int fd = look_own();
	bool known = fd >= 0;

	if (known && (adopt.looks % LOOK_COUNT_EVERY == 0 || !look_at_range(fd, p))) {
		known = vma_each(fd, look_at_plain, &all);
		*p = all;
		adopt.maps = p->maps;
		adopt.looks = 0;
	}
	look_done(fd);
	adopt.looks++;
	return known;
}

bool look_is_plain(u64 start, u64 end)
{
	struct look_plain p = { .at = start, .end = end };

	if (look_is_held() || !look_judge(&p))
		return false;
	return p.at >= p.end && !p.held && adopt.maps + LOOK_GROWTH * adopt.looks < allow_maps();
}

struct look_bounds {
	u64 at, start, end; /* end 0: not found */
} OWNED_BY(the caller);

static void look_at_bounds(const struct vma *m, void *arg)
{
	struct look_bounds *b = arg;

	if (m->start <= b->at && b->at < m->end) {
		b->start = m->start;
		b->end = m->end;
	}
}

bool look_bounds(u64 at, u64 *start, u64 *end)
{
	struct look_bounds b = { .at = at };
	struct vma m;
	int fd = look_own(), found = fd < 0 ? -EBADF : vma_at(fd, at, &m, NULL);

	if (found == 1)
		look_at_bounds(&m, &b);
	else if (found < 0 && fd >= 0)
		vma_each(fd, look_at_bounds, &b);
	look_done(fd);
	*start = b.start;
	*end = b.end;
	return b.end != 0;
}

struct look_ours {
	u64 at, end, offset; /* the rest that is not yet known to be the file's */
	int prot;
} OWNED_BY(the caller);

/* NO_THREAD_SAFETY: called by look_is_ours, which holds the lock. */
static void look_at_ours(const struct vma *m, void *arg) NO_THREAD_SAFETY
{
	struct look_ours *o = arg;

	if (m->start > o->at || o->at >= m->end || !look_map_is_ours(m) ||
	    m->offset + (o->at - m->start) != o->offset || (m->prot & o->prot) != o->prot)
		return;
	o->offset += m->end - o->at;
	o->at = m->end;
}

/* False: this kernel has no such query. */
static bool look_query_ours(int fd, struct look_ours *o) REQUIRES(&adopt.lock)
{
	struct vma m;
	u64 before;
	int found;

	do {
		before = o->at;
		found = vma_at(fd, before, &m, NULL);
		if (found == 1)
			look_at_ours(&m, o);
	} while (found == 1 && o->at < o->end && o->at != before);
	return found >= 0;
}

bool look_is_ours(u64 start, u64 end, u64 offset, int prot)
{
	const struct look_ours all = { .at = start, .end = end, .offset = offset, .prot = prot };
	struct look_ours o = all;
	bool known;
	int fd;

	/* The application may have replaced the descriptor: only a list of this process' maps knows
	 * the file there. */
	if (look_query_ours(adopt.maps_fd, &o) && o.at >= o.end)
		return true;
	o = all;
	fd = look_own();
	known = fd >= 0 && (look_query_ours(fd, &o) || vma_each(fd, look_at_ours, &o));
	look_done(fd);
	return known && o.at >= o.end;
}

struct look_want {
	u64 offset, length;
	bool failed;
} OWNED_BY(the caller);

static bool pieces_grow(struct adopt_pieces *p)
{
	u32 space = p->space == 0 ? 64 : p->space * 2;
	/* a fork needs the list when shared memory is incomplete */
	bool before = born_set_busy(true);
	struct adopt_piece *at = realloc(p->at, space * sizeof(*at));

	born_set_busy(before);
	if (at == NULL)
		return false;
	p->at = at;
	p->space = space;
	return true;
}

/* NO_THREAD_SAFETY: called by look_pieces, which holds the lock. */
static void look_at_piece(const struct vma *m, void *arg) NO_THREAD_SAFETY
{
	struct look_want *want = arg;
	struct adopt_pieces *p = &adopt.pieces;

	p->held |= look_map_is_for_requests(m);
	if (!look_map_is_ours(m) || m->offset - want->offset >= want->length ||
	    m->offset - ADOPT_OWN_OFFSET < ADOPT_SLOT_BYTES)
		return;
	for (u64 at = m->start, stop; at < m->end; at = stop) {
		u8 heir = (u8)born_at_fork(at, m->end, &stop);

		if (p->count == p->space && !pieces_grow(p)) {
			want->failed = true;
			return;
		}
		p->at[p->count++] = (struct adopt_piece){ .start = at,
							  .end = stop,
							  .offset = m->offset + (at - m->start),
							  .prot = m->prot,
							  .heir = heir };
	}
}

bool look_pieces(u64 offset, u64 length)
{
	struct look_want want = { .offset = offset, .length = length };

	int fd = look_own();
	bool known;

	adopt.pieces.count = 0;
	adopt.pieces.held = false;
	known = fd >= 0 && look_shared_files(fd, look_at_piece, &want);
	look_done(fd);
	return known && !want.failed;
}
