/* reach.c: maps slots of peers' memory files.
 *
 * In: requests of threads that post    Out: maps, found by posting threads without a lock
 * Runs: the engine's thread, and threads that bury links    Locks: shm.lock to find links
 */
#include "path/shm/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/task.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum {
	/* bytes of the shortest map, so that the slot's next region fits too */
	REACH_MIN = 256 << 10,
	/* Pages are made present before a store has to fault on each: at most so many bytes of a
	 * map, or of all maps made for one connection; and so many per step, in about 0.3 ms. */
	REACH_TOUCH = 64 << 20,
	REACH_TOUCH_ONCE = 4 << 20,
	/* When a connection is made, so many regions that the peer shows, none longer than that,
	 * are mapped before a request needs them, unless so many maps exist already: room for
	 * requested maps remains. */
	REACH_SHOWN = 16,
	REACH_SHOWN_LONGEST = 256 << 20,
	REACH_SHOWN_MAPS = 256,
};

/* maps of this process; written by the engine's thread, read by threads that connect */
static u32 reach_count;

static u32 reach_maps(void)
{
	return __atomic_load_n(&reach_count, __ATOMIC_RELAXED);
}

static void reach_count_by(s32 n)
{
	__atomic_store_n(&reach_count, reach_count + (u32)n, __ATOMIC_RELAXED);
}

static void reach_ring(struct shm *shm)
{
	__atomic_store_n(&shm->reach_wanted, true, __ATOMIC_RELEASE); /* pairs with reach_serve */
	shm->cfg.kick(shm->cfg.kick_arg);
}

void reach_want(struct shm_link *l, u64 slot, u64 length)
{
	if (__atomic_load_n(&l->reach_none, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&l->want_slot, __ATOMIC_RELAXED) != 0 || length > ADOPT_SLOT_BYTES)
		return;
	/* Threads that race request one of theirs; a length of another slot is harmless. */
	__atomic_store_n(&l->want_length, length, __ATOMIC_RELAXED);
	/* Pairs with reach_serve_link. */
	__atomic_store_n(&l->want_slot, slot, __ATOMIC_RELEASE);
	reach_ring(l->shm);
}

static bool reach_has(const struct shm_link *l, u64 slot, u64 length)
{
	const struct reach *r = __atomic_load_n(&l->reach, __ATOMIC_ACQUIRE);
	const struct reach_map *m =
		r == NULL ? NULL
			  : __atomic_load_n(&r->slots[slot % ADOPT_REGIONS], __ATOMIC_ACQUIRE);

	return m != NULL && m->slot == slot && length <= m->length;
}

/* Returns the slot of a region that the peer shows and that is mapped without a request; 0:
 * none. */
static u64 reach_shown(const struct shm_link *l, u32 i, u64 *length)
{
	const struct adopt_shown *s = &l->board->memory.at[i];
	u64 offset = __atomic_load_n(&s->offset, __ATOMIC_ACQUIRE); /* region_show */
	u64 slot = offset >> ADOPT_SLOT_SHIFT;

	/* A torn read gives the length of another region: such a map is useless and harmless. */
	*length = __atomic_load_n(&s->length, __ATOMIC_RELAXED);
	return *length <= REACH_SHOWN_LONGEST && !reach_has(l, slot, *length) ? slot : 0;
}

static u32 reach_shown_count(const struct shm_link *l)
{
	return board_shown_count(&l->board->memory.high, REACH_SHOWN);
}

void reach_want_shown(struct shm_link *l)
{
	u64 length, found = 0;
	u32 n;

	if (l->self || !l->direct || __atomic_load_n(&l->reach_none, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&l->shown_none, __ATOMIC_RELAXED) || reach_maps() >= REACH_SHOWN_MAPS)
		return;
	n = reach_shown_count(l);
	for (u32 i = 0; i < n; i++)
		found |= reach_shown(l, i, &length);
	if (found == 0)
		return;
	__atomic_store_n(&l->want_shown, true, __ATOMIC_RELEASE); /* pairs with reach_serve_link */
	reach_ring(l->shm);
}

u8 *reach_address(struct shm_link *l, u64 addr, u64 length)
{
	const struct adopt_table *t = &l->board->memory;
	u32 high = board_shown_count(&t->high, ADOPT_REGIONS);

	for (u32 i = 0; i < high; i++) {
		const struct adopt_shown *s = &t->at[i];
		u64 offset = __atomic_load_n(&s->offset, __ATOMIC_ACQUIRE); /* region_show */
		u64 from = addr - __atomic_load_n(&s->addr, __ATOMIC_RELAXED);
		u64 size = __atomic_load_n(&s->length, __ATOMIC_RELAXED);

		if (offset != 0 && from < size && length <= size - from)
			return reach_find(l, offset + from, length, offset + size);
	}
	return NULL;
}

/* Opens the file with this inode that the peer has open as `theirs`. The kernel says the peer's
 * number, by the node's pidfd, and it is the peer's if the kernel says the same behind O_PATH,
 * which opens nothing. A file with another inode is not opened. */
static int reach_open_by_number(const struct shm_link *l, s32 theirs, u64 inode)
{
	pid_t pid = task_of(l->pid_fd);
	struct stat st;
	char path[64];
	int at, fd = -1;

	if (pid == 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)theirs);
	at = open(path, O_PATH | O_CLOEXEC);
	if (at < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	if (fstat(at, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == inode &&
	    task_of(l->pid_fd) == pid)
		fd = open(path, O_RDWR | O_CLOEXEC);
	close(at);
	return fd;
}

/* Opens the peer's descriptor: by the right to attach to the peer, which reading its memory needs,
 * too, or by the right to read it, which Yama leaves. Neither opens one of a process that is not
 * dumpable. */
static int reach_open_fd(const struct shm_link *l)
{
	s32 theirs = __atomic_load_n(&l->board->memory_fd, __ATOMIC_RELAXED);
	u64 inode = __atomic_load_n(&l->board->memory_inode, __ATOMIC_RELAXED);
	int fd = (int)syscall(SYS_pidfd_getfd, l->pid_fd, theirs, 0);

	if (fd < 0) /* an older kernel, or no permission */
		fd = reach_open_by_number(l, theirs, inode);
	if (fd >= 0 && !adopt_is_file(fd, inode)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static struct reach *reach_open(struct shm_link *l)
{
	struct reach *r = l->reach;

	if (r != NULL)
		return r;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return NULL;
	r->fd = link_take_spare(l->shm) ? fd_own(reach_open_fd(l)) : -ENFILE;
	if (r->fd < 0) {
		if (r->fd != -ENFILE)
			link_give_spare(l->shm);
		free(r);
		return NULL;
	}
	__atomic_store_n(&l->reach, r, __ATOMIC_RELEASE); /* pairs with reach_find */
	return r;
}

static u64 reach_round(u64 length)
{
	u64 n = REACH_MIN;

	while (n < length)
		n *= 2;
	return n;
}

/* Makes more of the map present, where the file has content; holes stay. MADV_POPULATE_READ serves,
 * since the map is shared and writable, and costs a third of MADV_POPULATE_WRITE. If the kernel
 * refuses, each page faults at its first use. */
static void reach_touch(const struct reach *r, struct reach_map *m)
{
	u64 slot = m->slot << ADOPT_SLOT_SHIFT, end = m->touch, n;
	/* Read each time: the owner may have ended the region and dropped its pages. */
	off_t data = lseek(r->fd, (off_t)(slot + m->touched), SEEK_DATA);
	off_t hole = data < 0 ? -1 : lseek(r->fd, data, SEEK_HOLE);

	m->touched = hole < 0 ? end : MIN((u64)data - slot, end);
	if (hole >= 0)
		end = MIN((u64)hole - slot, end);
	n = MIN(end - m->touched, (u64)REACH_TOUCH_ONCE);
	if (n != 0 && madvise(m->base + m->touched, n, MADV_POPULATE_READ) != 0)
		n = end - m->touched;
	m->touched += n;
}

/* One step, so that the thread is soon free for other work. False: all maps are done. */
static bool reach_touch_next(struct reach *r)
{
	struct reach_map *m = r->maps;

	while (m != NULL && m->touched == m->touch)
		m = m->next;
	if (m != NULL)
		reach_touch(r, m);
	return m != NULL;
}

/* The file is sealed against shrinking, so every byte of the map may be touched. The first `touch`
 * bytes will be. */
static bool reach_map(struct reach *r, u64 slot, u64 length, u64 touch)
{
	u64 bytes = reach_round(length);
	struct reach_map *m;
	void *p;

	if (!adopt_may_map(reach_maps()) || slot >= ADOPT_FILE_BYTES >> ADOPT_SLOT_SHIFT)
		return false;
	m = malloc(sizeof(*m));
	if (m == NULL)
		return false;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, r->fd,
		 (off_t)(slot << ADOPT_SLOT_SHIFT));
	if (p == MAP_FAILED) {
		free(m);
		return false;
	}
	madvise(p, bytes, MADV_DONTFORK);
	madvise(p, bytes, MADV_DONTDUMP); /* the owner's core file has it */
	*m = (struct reach_map){
		.slot = slot, .base = p, .length = bytes, .touch = touch, .next = r->maps
	};
	r->maps = m;
	reach_count_by(1);
	/* Pairs with reach_find. */
	__atomic_store_n(&r->slots[slot % ADOPT_REGIONS], m, __ATOMIC_RELEASE);
	return true;
}

/* Maps the regions that the peer shows, within the limits; false: one cannot be mapped. */
static bool reach_map_shown(const struct shm_link *l, struct reach *r)
{
	u32 n = reach_shown_count(l);
	u64 left = REACH_TOUCH; /* limits the time that a service with many regions takes */

	for (u32 i = 0; i < n && reach_maps() < REACH_SHOWN_MAPS; i++) {
		u64 length, slot = reach_shown(l, i, &length), touch = MIN(length, left);

		if (slot == 0)
			continue;
		if (!reach_map(r, slot, length, touch))
			return false;
		left -= touch;
	}
	return true;
}

/* Maps without a request, so a failure is ignored: a request may succeed later. The peer may show a
 * region a moment before it shows its file. */
static void reach_serve_shown(struct shm_link *l)
{
	struct reach *r = link_state(l) == LINK_UP ? reach_open(l) : NULL;

	if (r == NULL || !reach_map_shown(l, r))
		__atomic_store_n(&l->shown_none, true, __ATOMIC_RELAXED);
}

static void reach_serve_wanted(struct shm_link *l, u64 slot)
{
	u64 length = __atomic_load_n(&l->want_length, __ATOMIC_RELAXED);
	struct reach *r = link_state(l) == LINK_UP ? reach_open(l) : NULL;

	if (r == NULL || (!reach_has(l, slot, length) &&
			  !reach_map(r, slot, length, MIN(length, (u64)REACH_TOUCH)))) {
		log_info("shm", "memory of process %d cannot be mapped: errno %d", (int)l->pid,
			 errno);
		__atomic_store_n(&l->reach_none, true, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&l->want_slot, 0, __ATOMIC_RELAXED);
}

static void reach_serve_link(struct shm_link *l, void *arg)
{
	u64 slot = __atomic_load_n(&l->want_slot, __ATOMIC_ACQUIRE); /* pairs with reach_want */

	/* pairs with reach_want_shown */
	if (__atomic_exchange_n(&l->want_shown, false, __ATOMIC_ACQUIRE))
		reach_serve_shown(l);
	if (slot != 0)
		reach_serve_wanted(l, slot);
	if (l->reach != NULL && link_state(l) == LINK_UP && reach_touch_next(l->reach))
		reach_ring(l->shm); /* other work first */
}

void reach_serve(struct shm *shm)
{
	if (!__atomic_load_n(&shm->reach_wanted, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&shm->reach_wanted, false, __ATOMIC_SEQ_CST);
	shm_each_link(shm, reach_serve_link, NULL);
}

void reach_close(struct shm_link *l)
{
	struct reach *r = l->reach;

	l->reach = NULL;
	while (r != NULL && r->maps != NULL) {
		struct reach_map *m = r->maps;

		r->maps = m->next;
		munmap(m->base, m->length);
		free(m);
		reach_count_by(-1);
	}
	if (r != NULL) {
		close(r->fd);
		link_give_spare(l->shm);
	}
	free(r);
}

void reach_drop_in_child(struct shm_link *l)
{
	if (l->reach != NULL)
		close(l->reach->fd);
	reach_count = 0;
}
