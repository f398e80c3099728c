/* slots.c: slots as byte locks of open file descriptions.
 * In:    requests for slots            Out: locks and a file that outlive the node
 * Runs:  the daemon's only thread
 * Locks: bytes SLOTS_LOCKS + slot of DIR/slots, through each process' own description
 */
#include "daemon/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/folder.h"

/* Chooses where process numbers begin: far from those of a node that left no file. */
static u64 slots_random(void)
{
	u64 r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t)sizeof(r))
		r = clock_now_ns() * 0x9e3779b97f4a7c15ull ^ (u64)getpid();
	return r >> 2;
}

/* Initializes an empty file. */
static void slots_format(struct slots_file *f)
{
	memset(f, 0, sizeof(*f));
	f->magic = SLOTS_MAGIC;
	f->next_process = slots_random() + 1;
	f->cursor = SLOTS_FIRST;
}

/* Writes a field of the copy to its place in the file, whose space is reserved. */
static int slots_save(struct slots *s, const void *field, size_t size)
{
	off_t at = (const char *)field - (const char *)&s->file;
	ssize_t n = pwrite(s->fd, field, size, at);

	if (n == (ssize_t)size)
		return 0;
	return n < 0 ? -errno : -ENOSPC;
}

/* Reserves the space of the whole file, and reads its content into the copy. */
_Static_assert(sizeof(struct slots_file) <= FOLDER_SLOTS, "the folder reserves it");

static int slots_load(struct slots *s)
{
	int err = posix_fallocate(s->fd, 0, sizeof(s->file));

	if (err != 0)
		return -err;
	if (pread(s->fd, &s->file, sizeof(s->file), 0) != (ssize_t)sizeof(s->file))
		return -EIO;
	if (s->file.magic == SLOTS_MAGIC && s->file.next_process != 0)
		return 0;
	slots_format(&s->file);
	return slots_save(s, &s->file, sizeof(s->file));
}

static int slots_lock(int fd, int type, u32 first, u32 count)
{
	struct flock l = { .l_type = (short)type,
			   .l_whence = SEEK_SET,
			   .l_start = SLOTS_LOCKS + (off_t)first,
			   .l_len = count };

	return fcntl(fd, F_OFD_SETLK, &l) < 0 ? -errno : 0;
}

/* Tells whether any of these bytes is locked, through whichever description but the node's own. */
static bool slots_is_locked(const struct slots *s, u32 first, u32 count)
{
	struct flock l = { .l_type = F_WRLCK,
			   .l_whence = SEEK_SET,
			   .l_start = SLOTS_LOCKS + (off_t)first,
			   .l_len = count };

	return fcntl(s->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

/* Marks the slots of processes that have outlived the last node. */
static void slots_mark_absent(struct slots *s)
{
	if (!slots_is_locked(s, 0, NODE_SLOTS))
		return;
	for (u32 slot = SLOTS_FIRST; slot < NODE_SLOTS; slot++) {
		s->absent[slot] = slots_is_locked(s, slot, 1);
		s->absent_count += s->absent[slot];
	}
}

/* Writes a word to the file only where it changes. */
static void slots_set_wire_only(struct slots *s, u32 slot, bool wire_only)
{
	u64 *word = &s->file.wire_only[slot / 64], bit = 1ull << slot % 64;

	if (((*word & bit) != 0) == wire_only)
		return;
	*word ^= bit;
	(void)slots_save(s, word, sizeof(*word));
}

/* Forgets what is noted of slots whose processes have ended while there was no node. */
static void slots_tidy_wire_only(struct slots *s)
{
	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		if (!s->absent[slot])
			slots_set_wire_only(s, slot, false);
}

bool slots_has_absent(struct slots *s)
{
	for (u32 slot = SLOTS_FIRST; slot < NODE_SLOTS && s->absent_count > 0; slot++) {
		if (!s->absent[slot])
			continue;
		if (s->owner[slot] == 0) {
			if (slots_is_locked(s, slot, 1))
				return true;
			slots_set_wire_only(s, slot, false);
		}
		s->absent[slot] = false;
		s->absent_count--;
	}
	return false;
}

int slots_open(struct slots *s, int dir_fd, u64 rest_ns)
{
	int err;

	memset(s, 0, sizeof(*s));
	s->rest_ns = rest_ns;
	s->fd = dir_fd >= 0
			? openat(dir_fd, "slots", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
			: memfd_create("anyverbs-slots", MFD_CLOEXEC);
	if (s->fd < 0)
		return -errno;
	err = slots_load(s);
	if (err < 0) {
		close(s->fd);
		return err;
	}
	slots_mark_absent(s);
	slots_tidy_wire_only(s);
	/* without a folder: does not begin with the slots that an earlier node gave out first */
	if (dir_fd < 0)
		s->file.cursor = (u32)(s->file.next_process % NODE_SLOTS);
	return 0;
}

void slots_close(struct slots *s)
{
	close(s->fd);
}

int slots_describe(const struct slots *s)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool slots_same_file(const struct slots *s, int fd)
{
	struct stat a, b;
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !(flags & O_PATH) &&
	       fstat(fd, &a) == 0 && fstat(s->fd, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

u64 slots_next_process(struct slots *s)
{
	u64 process = s->file.next_process++;

	(void)slots_save(s, &s->file.next_process, sizeof(s->file.next_process));
	return process;
}

static int slots_give(struct slots *s, u64 process, u32 slot)
{
	s->owner[slot] = process;
	s->file.generation[slot]++;
	(void)slots_save(s, &s->file.generation[slot], sizeof(s->file.generation[slot]));
	return (int)slot;
}

/* Finds the slot to take next: the first free one behind the cursor that does not rest; else the
 * free one that has rested longest. */
static int slots_search(struct slots *s, int fd, u64 now_ns, bool resting)
{
	int best = -1;

	for (u32 i = 0; i < NODE_SLOTS; i++) {
		u32 slot = (s->file.cursor + i) % NODE_SLOTS;

		if (slot < SLOTS_FIRST || s->owner[slot] != 0 ||
		    (s->rest_until_ns[slot] > now_ns) != resting)
			continue;
		if (resting && best >= 0 && s->rest_until_ns[best] <= s->rest_until_ns[slot])
			continue;
		/* held by a survivor of an earlier node */
		if (slots_lock(fd, F_WRLCK, slot, 1) < 0)
			continue;
		if (!resting)
			return (int)slot;
		if (best >= 0)
			slots_lock(fd, F_UNLCK, (u32)best, 1);
		best = (int)slot;
	}
	return best;
}

int slots_take(struct slots *s, u64 process, int fd, u64 now_ns)
{
	int slot = slots_search(s, fd, now_ns, false);

	if (slot < 0)
		slot = slots_search(s, fd, now_ns, true);
	if (slot < 0)
		return -ENOSPC;
	s->file.cursor = ((u32)slot + 1) % NODE_SLOTS;
	(void)slots_save(s, &s->file.cursor, sizeof(s->file.cursor));
	return slots_give(s, process, (u32)slot);
}

int slots_claim(struct slots *s, u64 process, int fd, u32 slot)
{
	if (slot < SLOTS_FIRST || slot >= NODE_SLOTS ||
	    (s->owner[slot] != 0 && s->owner[slot] != process) ||
	    slots_lock(fd, F_WRLCK, slot, 1) < 0)
		return -EEXIST;
	s->owner[slot] = process;
	return 0;
}

void slots_tidy(struct slots *s, u64 process, int fd)
{
	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		if (s->owner[slot] != process)
			slots_lock(fd, F_UNLCK, slot, 1);
}

void slots_release(struct slots *s, u64 process, int fd, u64 now_ns)
{
	for (u32 slot = 0; slot < NODE_SLOTS; slot++) {
		if (s->owner[slot] != process)
			continue;
		s->owner[slot] = 0;
		slots_set_wire_only(s, slot, false);
		s->rest_until_ns[slot] = now_ns + s->rest_ns;
	}
	/* explicitly: a child of the process may still hold the description. Its ports, too, whose
	 * bytes lie behind (node/bind.c) */
	slots_lock(fd, F_UNLCK, 0, 0);
}

u64 slots_owner(const struct slots *s, u32 slot)
{
	if (s->owner[slot] != 0)
		return s->owner[slot];
	return slots_is_locked(s, slot, 1) ? UINT64_MAX : 0;
}

void slots_note_wire_only(struct slots *s, u64 process, bool wire_only)
{
	for (u32 slot = SLOTS_FIRST; slot < NODE_SLOTS; slot++)
		if (s->owner[slot] == process)
			slots_set_wire_only(s, slot, wire_only);
}

u32 slots_count(const struct slots *s, u64 process, u16 *first, u32 max)
{
	u32 count = 0;

	for (u32 slot = 0; slot < NODE_SLOTS; slot++) {
		if (s->owner[slot] != process)
			continue;
		if (count < max)
			first[count] = (u16)slot;
		count++;
	}
	return count;
}
