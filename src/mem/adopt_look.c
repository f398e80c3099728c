/* adopt_look.c: what the kernel says of this process: who runs, what is mapped, who holds pages.
 *
 * In: /proc/self    Out: yes or no; pieces
 * Runs: verbs that register memory, fork's handlers    Locks: none; the pieces are adopt.lock's
 *
 * Whatever cannot be read, or looks unusual, is a no.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "mem/adopt_priv.h"
#include "mem/born_priv.h"

enum {
	LOOK_LINE = LOOK_NAME,
	LOOK_BUFFER = 16384,
	LOOK_COUNT_EVERY = 64, /* so often all maps are counted, which takes reading the list */
	LOOK_GROWTH = 4,       /* so many more there may be for each region adopted */
};

bool look_is_alone(void)
{
	struct stat st;

	/* A folder for each thread, beside . and .. */
	return stat("/proc/self/task", &st) == 0 &&
	       st.st_nlink == 3u + adopt_engine_runs;
}

static bool look_hex(const char **at, char end, u64 *value)
{
	const char *s = *at;
	u64 v = 0;

	for (; *s != end; s++) {
		if (*s >= '0' && *s <= '9')
			v = v << 4 | (u64)(*s - '0');
		else if (*s >= 'a' && *s <= 'f')
			v = v << 4 | (u64)(*s - 'a' + 10);
		else
			return false;
	}
	*value = v;
	*at = s + 1;
	return true;
}

/* start-end rwxp offset major:minor inode name */
static bool look_parse(const char *line, struct look_map *m)
{
	const char *perms;
	char *rest;
	u64 major, minor;

	if (!look_hex(&line, '-', &m->start) || !look_hex(&line, ' ', &m->end))
		return false;
	perms = line;
	if (strnlen(perms, 5) < 5)
		return false;
	m->prot = (perms[0] == 'r' ? PROT_READ : 0) | (perms[1] == 'w' ? PROT_WRITE : 0) |
		  (perms[2] == 'x' ? PROT_EXEC : 0);
	m->shared = perms[3] == 's';
	line += 5;
	if (!look_hex(&line, ' ', &m->offset) || !look_hex(&line, ':', &major) ||
	    !look_hex(&line, ' ', &minor))
		return false;
	m->device = makedev((u32)major, (u32)minor);
	m->inode = strtoull(line, &rest, 10);
	m->name = rest + strspn(rest, " ");
	return true;
}

/* Takes whole lines off the buffer; returns how many bytes are left over, or -1. */
static ssize_t look_lines(char *buffer, size_t n, bool (*fn)(const char *line, void *arg),
			  void *arg)
{
	char *line = buffer, *end = buffer + n, *stop;

	while ((stop = memchr(line, '\n', (size_t)(end - line))) != NULL) {
		*stop = '\0';
		if (!fn(line, arg))
			return -1;
		line = stop + 1;
	}
	memmove(buffer, line, (size_t)(end - line));
	return end - line;
}

bool look_text(int fd, bool (*fn)(const char *line, void *arg), void *arg)
{
	char buffer[LOOK_BUFFER];
	ssize_t left = 0, n = -1;
	off_t at = 0;

	while (left >= 0 && left < LOOK_BUFFER - LOOK_LINE) {
		n = pread(fd, buffer + left, sizeof(buffer) - (size_t)left, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += n;
		left = look_lines(buffer, (size_t)(left + n), fn, arg);
	}
	return n == 0 && left == 0;
}

struct look_each {
	void (*fn)(const struct look_map *m, void *arg);
	void *arg;
};

static bool look_map_line(const char *line, void *arg)
{
	const struct look_each *each = arg;
	struct look_map m;

	if (!look_parse(line, &m))
		return false;
	each->fn(&m, each->arg);
	return true;
}

bool look_maps(int fd, void (*fn)(const struct look_map *m, void *arg), void *arg)
{
	struct look_each each = { fn, arg };

	return look_text(fd, look_map_line, &each);
}

struct look_advised {
	void (*fn)(u64 start, u64 end, bool withheld, void *arg);
	void *arg;
	struct look_map m; /* of which the lines are */
};

/* "VmFlags: rd wr mr mw me dc wf": DONTCOPY, WIPEONFORK. */
static bool look_smaps_line(const char *line, void *arg)
{
	struct look_advised *a = arg;
	bool withheld;

	if (look_parse(line, &a->m) || strncmp(line, "VmFlags:", 8) != 0)
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
	bool all = fd >= 0 && look_text(fd, look_smaps_line, &a);

	if (fd >= 0)
		close(fd);
	return all;
}

int look_open(void)
{
	return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

bool look_keep(void)
{
	int fd = look_open();
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

static bool look_map_is_ours(const struct look_map *m) REQUIRES(&adopt.lock)
{
	return m->shared && m->inode == adopt.inode && m->device == adopt.device;
}

/* Calls fn for every shared map of a file, and perhaps for others. False: they are not known. */
static bool look_shared_files(int fd, void (*fn)(const struct look_map *m, void *arg), void *arg)
	REQUIRES(&adopt.lock)
{
	struct look_name name;
	struct look_map m;
	u64 at = 0;
	int found;

	while ((found = look_query_shared_file(fd, at, &m)) == 1) {
		/* There may be a thousand of ours, and finding names takes time. */
		if (!look_map_is_ours(&m))
			found = look_query(fd, m.start, &m, &name);
		if (found != 1)
			return false;
		fn(&m, arg);
		at = m.end;
	}
	return found == 0 || (at == 0 && look_maps(fd, fn, arg));
}

/* The list of maps that is kept, or a new one if it has been closed; -1. look_done follows. */
static int look_own(void) REQUIRES(&adopt.lock)
{
	if (look_is_kept())
		return adopt.maps_fd;
	adopt.maps_fd = -1;
	return look_open();
}

static void look_done(int fd) REQUIRES(&adopt.lock)
{
	if (fd >= 0 && fd != adopt.maps_fd)
		close(fd);
}

struct look_plain {
	u64 at, end; /* what is not yet known to be plain */
	u32 maps;
	bool held;
};

static bool look_map_is_plain(const struct look_map *m)
{
	return !m->shared && m->inode == 0 && m->prot == (PROT_READ | PROT_WRITE) &&
	       (m->name[0] == '\0' || strcmp(m->name, "[heap]") == 0 ||
		strncmp(m->name, "[anon:", 6) == 0);
}

/* Requests that the kernel works on by itself may be on their way to any page. */
static bool look_map_is_for_requests(const struct look_map *m)
{
	return strncmp(m->name, "/[aio]", 6) == 0 || strstr(m->name, "[io_uring]") != NULL;
}

static void look_at_plain(const struct look_map *m, void *arg)
{
	struct look_plain *p = arg;

	p->maps++;
	if (m->start <= p->at && p->at < m->end && look_map_is_plain(m))
		p->at = m->end;
	p->held |= look_map_is_for_requests(m);
}

/* A line of numbers like "VmPin:	       0 kB" that is not 0. */
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

/* False: this kernel cannot be asked so. */
static bool look_at_range(int fd, struct look_plain *p) REQUIRES(&adopt.lock)
{
	struct look_name name;
	struct look_map m;
	u64 before;
	int found;

	do {
		before = p->at;
		found = look_query(fd, before, &m, &name);
		if (found == 1)
			look_at_plain(&m, p);
	} while (p->at < p->end && p->at != before);
	return found >= 0 && look_shared_files(fd, look_at_plain, p);
}

/* Of the range and of requests always, of all maps now and then. */
static bool look_judge(struct look_plain *p) REQUIRES(&adopt.lock)
{
	struct look_plain all = *p;
	int fd = look_own();
	bool known = fd >= 0;

	if (known && (adopt.looks % LOOK_COUNT_EVERY == 0 || !look_at_range(fd, p))) {
		known = look_maps(fd, look_at_plain, &all);
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

struct look_ours {
	u64 at, end, offset; /* what is not yet known to be ours */
	int prot;
};

/* NO_THREAD_SAFETY: called by look_is_ours, which has the lock. */
static void look_at_ours(const struct look_map *m, void *arg) NO_THREAD_SAFETY
{
	struct look_ours *o = arg;

	if (m->start > o->at || o->at >= m->end || !look_map_is_ours(m) ||
	    m->offset + (o->at - m->start) != o->offset || (m->prot & o->prot) != o->prot)
		return;
	o->offset += m->end - o->at;
	o->at = m->end;
}

/* False: this kernel cannot be asked so. */
static bool look_query_ours(int fd, struct look_ours *o) REQUIRES(&adopt.lock)
{
	struct look_map m;
	u64 before;
	int found;

	do {
		before = o->at;
		found = look_query(fd, before, &m, NULL);
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

	/* Whatever the descriptor is by now: nothing but a list of our maps knows our file
	 * there. */
	if (look_query_ours(adopt.maps_fd, &o) && o.at >= o.end)
		return true;
	o = all;
	fd = look_own();
	known = fd >= 0 && (look_query_ours(fd, &o) || look_maps(fd, look_at_ours, &o));
	look_done(fd);
	return known && o.at >= o.end;
}

struct look_want {
	u64 offset, length;
	bool failed;
};

static bool pieces_grow(struct adopt_pieces *p)
{
	u32 space = p->space == 0 ? 64 : p->space * 2;
	/* a fork needs the list when shared memory is not all there */
	bool before = born_set_busy(true);
	struct adopt_piece *at = realloc(p->at, space * sizeof(*at));

	born_set_busy(before);
	if (at == NULL)
		return false;
	p->at = at;
	p->space = space;
	return true;
}

/* NO_THREAD_SAFETY: called by look_pieces, which has the lock. */
static void look_at_piece(const struct look_map *m, void *arg) NO_THREAD_SAFETY
{
	struct look_want *want = arg;
	struct adopt_pieces *p = &adopt.pieces;

	p->held |= look_map_is_for_requests(m);
	if (!look_map_is_ours(m) || m->offset - want->offset >= want->length)
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
