/* adopt_move.c: pages into the file, and back.
 *
 * In: a region    Out: the same bytes at the same address, in other pages
 * Runs: verbs that register memory    Locks: adopt.lock
 *
 * In: the application's map is copied, empty, to the stash (adopt_stash.c). Chunk by chunk, the
 * kernel copies the pages into the file, and the file is mapped over them, in one step. A store of
 * another thread between the two would be lost, so no other thread may run. Another process that
 * reads the memory finds its bytes at every instant. Only where a map cannot be copied is its first
 * page moved to the stash: then nothing is at that page's address between two system calls.
 * Out, while no other thread runs: the chunk is copied into the stash, which mremap puts back over
 * the file's map, in one step.
 * Out, beside other threads: the file is mapped privately in place of the shared map, in one step,
 * so that no store is lost. Then every page is made private, and the file's are dropped. The slot
 * is not used again, since the map stays a map of it.
 * Pages stay in while a request may hold them: a request of AIO or io_uring in progress would end
 * in pages that the application no longer has. The region lingers, invisible to peers, and is tried
 * again.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/mem.h"
#include "shared/adopt_priv.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void *move_pointer(u64 addr)
{
	return (void *)(uintptr_t)addr;
}

/* Copies all bytes between memory and the file. */
static int move_bytes(int fd, bool write, u64 at, u64 length, u64 offset)
{
	for (u64 done = 0; done < length;) {
		void *p = move_pointer(at + done);
		off_t where = (off_t)(offset + done);
		ssize_t n = write ? pwrite(fd, p, length - done, where) :
				    pread(fd, p, length - done, where);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (u64)n;
	}
	return 0;
}

static int move_write(u64 from, u64 length, u64 offset) REQUIRES(&adopt.lock)
{
	return move_bytes(adopt.fd, true, from, length, offset);
}

int move_read(u64 to, u64 length, const struct adopt_piece *p, u64 at)
{
	void *from = move_pointer(p->start + at);

	if (adopt_file_is_there() &&
	    move_bytes(adopt.fd, false, to, length, p->offset + at) == 0)
		return 0;
	if ((p->prot & PROT_READ) == 0 && mprotect(from, length, p->prot | PROT_READ) != 0)
		return -errno;
	memcpy(move_pointer(to), from, length);
	return (p->prot & PROT_READ) == 0 && mprotect(from, length, p->prot) != 0 ? -errno : 0;
}

/* Moves maps with their pages over any map at `to`. Kernels before Linux 6.17 move one map per
 * call. */
static int move_map(u64 from, u64 length, u64 to)
{
	void *p = mremap(move_pointer(from), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
			 move_pointer(to));
	u64 page = (u64)sysconf(_SC_PAGESIZE), half = length / 2 & ~(page - 1);
	int err;

	if (p != MAP_FAILED)
		return 0;
	if (errno != EFAULT || half == 0)
		return -errno;
	err = move_map(from, half, to);
	return err != 0 ? err : move_map(from + half, length - half, to + half);
}

/* Drops pages where fallocate is forbidden. */
static bool move_drop_by_map(u64 offset, u64 length) REQUIRES(&adopt.lock)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, adopt.fd,
		       (off_t)offset);
	bool dropped = p != MAP_FAILED && madvise(p, length, MADV_REMOVE) == 0;

	if (p != MAP_FAILED)
		munmap(p, length);
	return dropped;
}

static void move_drop_pages(u64 offset, u64 length) REQUIRES(&adopt.lock)
{
	if (!adopt_file_is_there() ||
	    (fallocate(adopt.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
		       (off_t)length) != 0 &&
	     !move_drop_by_map(offset, length)))
		log_debug("mem", "pages of the file stay: errno %d", errno);
}

/* Finds where content of [offset, offset + length) of the file begins (SEEK_DATA) or ends
 * (SEEK_HOLE), from `at` on; length: nowhere. If the kernel does not tell, all of it is content. */
static u64 move_seek(u64 offset, u64 length, u64 at, int whence) REQUIRES(&adopt.lock)
{
	off_t found = lseek(adopt.fd, (off_t)(offset + at), whence);

	if (found < 0)
		return whence == SEEK_DATA && errno != ENXIO ? MIN(at, length) : length;
	return MIN((u64)found - offset, length);
}

int move_content(u64 to, u64 length, const struct adopt_piece *p, u64 at)
{
	u64 offset = p->offset + at, stop;
	int err = 0;

	if (!adopt_file_is_there())
		return move_read(to, length, p, at);
	for (u64 from = move_seek(offset, length, 0, SEEK_DATA); from < length && err == 0;
	     from = move_seek(offset, length, stop, SEEK_DATA)) {
		stop = move_seek(offset, length, from, SEEK_HOLE);
		/* Populates in one call; else the read faults once per page. */
		madvise(move_pointer(to + from), stop - from, MADV_POPULATE_WRITE);
		err = move_read(to + from, stop - from, p, at + from);
	}
	return err;
}

/* Puts `n` bytes back, from `at` in the piece on, by way of the empty memory at `place`. */
static int chunk_out(const struct adopt_piece *p, u64 place, u64 at, u64 n) REQUIRES(&adopt.lock)
{
	int err = mprotect(move_pointer(place), n, PROT_READ | PROT_WRITE) != 0 ? -errno : 0;

	if (err == 0)
		err = move_content(place, n, p, at);
	return err != 0 ? err : move_map(place, n, p->start + at);
}

/* Maps the file over memory that the application uses. The bytes stay the same, so a sanitizer is
 * not to see it: its interceptor of mmap records a store to every byte, a race with any access of
 * another thread. */
static bool move_map_file(void *addr, u64 n, int prot, int flags, u64 offset) REQUIRES(&adopt.lock)
{
	return syscall(SYS_mmap, addr, n, prot, flags | MAP_FIXED, adopt.fd, offset) != -1;
}

/* ---- into the file ---- */

static struct adopt_piece piece_of(const struct adopt_region *r, u64 at, u64 n)
{
	return (struct adopt_piece){ .start = r->addr + at,
				     .end = r->addr + at + n,
				     .offset = r->offset + at,
				     .prot = PROT_READ | PROT_WRITE };
}

/* Puts [at, at + n) of the region back from the file. */
static void chunk_restore(const struct adopt_region *r, u64 at, u64 n) REQUIRES(&adopt.lock)
{
	const struct adopt_piece p = piece_of(r, at, n);

	if (chunk_out(&p, r->stash + at, 0, n) != 0)
		log_error("mem", "memory at %#llx stays shared", (unsigned long long)p.start);
}

/* Maps the file over the chunk. Populates it: the application has touched these pages and expects
 * no faults. */
static int chunk_map(const struct adopt_region *r, u64 at, u64 n) REQUIRES(&adopt.lock)
{
	void *addr = move_pointer(r->addr + at);

	if (!move_map_file(addr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			   r->offset + at) ||
	    madvise(addr, n, MADV_DONTFORK) != 0)
		return -errno;
	return 0;
}

static int chunk_in(const struct adopt_region *r, u64 at, u64 n) REQUIRES(&adopt.lock)
{
	int err = move_write(r->addr + at, n, r->offset + at);

	if (err != 0)
		return err;
	err = chunk_map(r, at, n);
	if (err != 0)
		chunk_restore(r, at, n);
	return err;
}

/* Moves the first page of a map that could not be copied to the stash, where its map grows to all
 * `n` bytes. */
static int page_in(const struct adopt_region *r, u64 at, u64 n, u64 page) REQUIRES(&adopt.lock)
{
	u64 addr = r->addr + at, stash = r->stash + at;
	int err = move_write(addr, page, r->offset + at);

	if (err != 0)
		return err;
	if (mremap(move_pointer(addr), page, n, MREMAP_MAYMOVE | MREMAP_FIXED,
		   move_pointer(stash)) == MAP_FAILED)
		return -errno;
	err = chunk_map(r, at, page);
	if (err == 0 && madvise(move_pointer(stash), page, MADV_DONTNEED) != 0) /* locked pages */
		err = -errno;
	if (err != 0 && move_map(stash, page, addr) != 0)
		log_error("mem", "memory at %#llx is lost", (unsigned long long)addr);
	return err;
}

/* Adopts [*done, *done + n) of the region, which is one map. *done counts the bytes that are in. */
static int map_in(const struct adopt_region *r, u64 n, u64 *done) REQUIRES(&adopt.lock)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), end = *done + n;
	int err = 0;

	/* A map without any write forgets its place when it moves, and would not merge with its
	 * neighbours again. */
	if (mem_populate(r->addr + *done, 1, true) != 0)
		log_debug("mem", "memory at %#llx cannot be written",
			  (unsigned long long)(r->addr + *done));
	if (!stash_copy_map(r->addr + *done, n, r->stash + *done)) {
		err = page_in(r, *done, n, page);
		*done += err == 0 ? page : 0;
	}
	while (err == 0 && *done < end) {
		u64 chunk = MIN((u64)ADOPT_CHUNK, end - *done);

		err = chunk_in(r, *done, chunk);
		*done += err == 0 ? chunk : 0;
	}
	return err;
}

static void move_in_undo(const struct adopt_region *r, u64 done) REQUIRES(&adopt.lock)
{
	for (u64 at = 0; at < done; at += ADOPT_CHUNK)
		chunk_restore(r, at, MIN((u64)ADOPT_CHUNK, done - at));
	munmap(move_pointer(r->stash), r->length);
	move_drop_pages(r->offset, ADOPT_SLOT_BYTES);
}

int move_in(struct adopt_region *r)
{
	u64 start, end, done = 0;
	int err = 0;

	r->stash = stash_reserve(r->length);
	if (r->stash == 0)
		return -ENOMEM;
	/* Refused if the stash is locked: then every new map would be (MCL_FUTURE). */
	if (madvise(move_pointer(r->stash), r->length, MADV_DONTNEED) != 0) {
		munmap(move_pointer(r->stash), r->length);
		return -EPERM;
	}
	while (err == 0 && done < r->length) {
		u64 addr = r->addr + done;

		err = look_bounds(addr, &start, &end) ?
			      map_in(r, MIN(end, r->addr + r->length) - addr, &done) :
			      -EFAULT;
	}
	if (err != 0)
		move_in_undo(r, done);
	else if (mprotect(move_pointer(r->stash), r->length, PROT_NONE) != 0)
		log_info("mem", "mlockall would fill the stash: errno %d", errno);
	return err;
}

/* ---- out of the file ---- */

/* Tells whether the piece lies where the region was, neither moved nor grown. */
static bool piece_is_home(const struct adopt_region *r, const struct adopt_piece *p)
{
	return p->start - r->addr == p->offset - r->offset && p->start >= r->addr &&
	       p->end <= r->addr + r->length;
}

/* Tells whether the application has made another map of the same bytes (mremap). */
static bool piece_has_twin(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		const struct adopt_piece *q = &adopt.pieces.at[i];

		if (q->start != p->start && q->end != p->end &&
		    q->offset < p->offset + (p->end - p->start) &&
		    p->offset < q->offset + (q->end - q->start))
			return true;
	}
	return false;
}

/* Moves out chunk by chunk, so that at most one chunk exists twice. Returns how many bytes are
 * out. */
static u64 piece_out_alone(const struct adopt_piece *p, u64 place) REQUIRES(&adopt.lock)
{
	u64 length = p->end - p->start;
	bool drop = !piece_has_twin(p);

	for (u64 at = 0; at < length; at += ADOPT_CHUNK) {
		u64 n = MIN((u64)ADOPT_CHUNK, length - at);

		if (chunk_out(p, place + at, at, n) != 0)
			return at;
		if (p->prot != (PROT_READ | PROT_WRITE) &&
		    mprotect(move_pointer(p->start + at), n, p->prot) != 0)
			log_warn("mem", "memory keeps its old protection: errno %d", errno);
		if (drop)
			move_drop_pages(p->offset + at, n);
	}
	return length;
}

/* Makes every page with content private by writing to it, and drops the file's page. A protection
 * that forbids writing is lifted meanwhile: the map is private, so only this process could misuse
 * it. */
static bool piece_own_pages(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	u64 length = p->end - p->start, from, n;
	bool drop = !piece_has_twin(p), ours = true;

	if ((p->prot & PROT_WRITE) == 0 &&
	    mprotect(move_pointer(p->start), length, PROT_READ | PROT_WRITE) != 0)
		return false;
	for (from = move_seek(p->offset, length, 0, SEEK_DATA); from < length && ours;
	     from = move_seek(p->offset, length, from + n, SEEK_DATA)) {
		n = MIN((u64)ADOPT_CHUNK,
			move_seek(p->offset, length, from, SEEK_HOLE) - from);
		ours = mem_populate(p->start + from, n, true) == 0;
		if (ours && drop)
			move_drop_pages(p->offset + from, n);
	}
	if (p->prot != (PROT_READ | PROT_WRITE) &&
	    mprotect(move_pointer(p->start), length, p->prot) != 0)
		return false;
	return ours;
}

/* False: it stays a shared map. */
static bool piece_out_in_place(struct adopt_region *r, const struct adopt_piece *p)
	REQUIRES(&adopt.lock)
{
	u64 n = p->end - p->start;

	if (!adopt_file_is_there() ||
	    !move_map_file(move_pointer(p->start), n, p->prot, MAP_PRIVATE, p->offset))
		return false;
	if (!piece_own_pages(p)) {
		log_error("mem", "pages of memory at %#llx stay the file's",
			  (unsigned long long)p->start);
		r->keeps = true;
	}
	return true;
}

struct adopt_region *region_of_piece(const struct adopt_piece *p)
{
	struct adopt_region *r = &adopt.regions[(p->offset >> ADOPT_SLOT_SHIFT) % ADOPT_REGIONS];

	return region_is_used(r) && p->offset - r->offset < ADOPT_SLOT_BYTES ? r : NULL;
}

/* For born memory, which has no stash, and for memory that the application has moved or grown. */
static u64 piece_out_elsewhere(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	u64 length = p->end - p->start, done;
	void *place = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (place == MAP_FAILED)
		return 0;
	done = piece_out_alone(p, (u64)(uintptr_t)place);
	if (done < length)
		munmap((u8 *)place + done, length - done);
	return done;
}

bool move_piece_out(struct adopt_region *r, const struct adopt_piece *p, bool alone, bool *clean)
{
	struct adopt_piece rest = *p;
	u64 done = 0;

	if (alone && !region_is_born(r) && piece_is_home(r, p))
		done = piece_out_alone(p, r->stash + (p->start - r->addr));
	else if (alone)
		done = piece_out_elsewhere(p);
	rest.start += done;
	rest.offset += done;
	if (rest.start == rest.end)
		return true;
	*clean = false;
	if (piece_out_in_place(r, &rest))
		return true;
	log_error("mem", "memory at %#llx stays shared for now", (unsigned long long)rest.start);
	return false;
}

void move_finish(const struct adopt_region *r)
{
	if (!region_is_born(r))
		munmap(move_pointer(r->stash), r->length);
	if (!r->keeps)
		move_drop_pages(r->offset, ADOPT_SLOT_BYTES);
}

/* Not all is out: reserves the part of the stash that was used before anything else maps there. */
static void move_keep_stash(const struct adopt_region *r, bool alone) REQUIRES(&adopt.lock)
{
	if (alone && mmap(move_pointer(r->stash), r->length, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
			  0) == MAP_FAILED)
		log_error("mem", "no stash at %#llx: errno %d", (unsigned long long)r->stash,
			  errno);
}

enum move_result move_out(struct adopt_region *r, bool alone)
{
	bool clean = true, all = look_pieces(r->offset, ADOPT_SLOT_BYTES);

	if (!all || (adopt.pieces.count != 0 && (adopt.pieces.held || look_is_held())))
		return MOVE_NOT_YET;
	for (u32 i = 0; i < adopt.pieces.count; i++)
		all &= move_piece_out(r, &adopt.pieces.at[i], alone, &clean);
	if (!all) {
		move_keep_stash(r, alone);
		r->unclean = true;
		return MOVE_NOT_YET;
	}
	move_finish(r);
	return clean ? MOVE_DONE : MOVE_UNCLEAN;
}
