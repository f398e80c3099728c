/* ways_test.c: whatever a program does to a map of its own has the effect on born memory that it
 * has on ordinary memory: each thing is done to one of either kind, and the two are compared.
 */
#include <errno.h>
#include <pthread.h>

#include "born_kit.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { PAGES = 64, BYTES = PAGES * PAGE };

/* One of either kind; the byte of a page says which page it is. */
static char *both[2];

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		both[i] = i == 0 ? map_long(BYTES) : map_ordinary(BYTES);
		for (int page = 0; page < PAGES; page++)
			memset(both[i] + page * PAGE, page + 1, PAGE);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		munmap(both[i], BYTES);
	return 0;
}

/* Have they the same bytes and protections, page by page, and the same holes? */
static void both_are_equal(void)
{
	for (int page = 0; page < PAGES; page++) {
		struct map m[2] = { map_of(both[0] + page * PAGE), map_of(both[1] + page * PAGE) };
		/* a free page of the arena is a map without rights */
		bool there[2] = { m[0].there && m[0].prot[0] == 'r',
				  m[1].there && m[1].prot[0] == 'r' };

		assert_int_equal(there[0], there[1]);
		if (there[0]) {
			assert_memory_equal(m[0].prot, m[1].prot, 3);
			assert_memory_equal(both[0] + page * PAGE, both[1] + page * PAGE, PAGE);
		}
	}
}

struct range {
	size_t at, length;
};

static void advise_both(int advice, struct range r)
{
	int result[2], error[2];

	for (int i = 0; i < 2; i++) {
		errno = 0;
		result[i] = madvise(both[i] + r.at, r.length, advice);
		error[i] = errno;
	}
	if (result[0] != result[1] || error[0] != error[1])
		fail_msg("advice %d at %zu+%zu: %d/%d, but %d/%d of ordinary memory", advice, r.at,
			 r.length, result[0], error[0], result[1], error[1]);
	both_are_equal();
}

static const int advices[] = {
	MADV_NORMAL,
	MADV_RANDOM,
	MADV_SEQUENTIAL,
	MADV_WILLNEED,
	MADV_DONTNEED,
	MADV_REMOVE,
	MADV_MERGEABLE,
	MADV_HUGEPAGE,
	MADV_NOHUGEPAGE,
	MADV_DONTDUMP,
	MADV_DODUMP,
	MADV_DONTFORK,
	MADV_DOFORK,
	MADV_WIPEONFORK,
	MADV_KEEPONFORK,
	MADV_COLD,
	MADV_PAGEOUT,
	MADV_UNMERGEABLE,
	MADV_POPULATE_READ,
	MADV_POPULATE_WRITE,
	MADV_FREE,
	MADV_DONTNEED_LOCKED,
	12345,
};

/* All of it, one page, some, misaligned, nothing, a length that is no page's. */
static const struct range ranges[] = { { 0, BYTES },  { PAGE, PAGE }, { 5 * PAGE, 9 * PAGE },
				       { 100, PAGE }, { PAGE, 0 },    { 2 * PAGE, 5000 } };

static void advise_all(void)
{
	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
		for (size_t k = 0; k < sizeof(ranges) / sizeof(ranges[0]); k++) {
			if (advices[i] == MADV_FREE) /* ordinary memory may keep its bytes */
				for (int both_i = 0; both_i < 2; both_i++)
					madvise(both[both_i], BYTES, MADV_DONTNEED);
			advise_both(advices[i], ranges[k]);
		}
}

static void advice__has_the_same_effect(void **state)
{
	(void)state;
	advise_all();
}

static void advice__of_what_may_not_be_written(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(mprotect(both[i] + 4 * PAGE, 8 * PAGE, PROT_READ), 0);
	advise_all();
}

static void advice__of_what_is_locked(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		if (mlock(both[i] + PAGE, 4 * PAGE) != 0)
			skip();
	advise_all();
}

/* The kernel does what it can and then says ENOMEM. */
static void advice__across_holes(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(munmap(both[i] + 6 * PAGE, 2 * PAGE), 0);
	advise_both(MADV_DONTNEED, (struct range){ 4 * PAGE, 8 * PAGE });
	advise_both(MADV_DONTDUMP, (struct range){ 4 * PAGE, 8 * PAGE });
	advise_both(MADV_DONTFORK, (struct range){ 4 * PAGE, 8 * PAGE });
	advise_both(MADV_WIPEONFORK, (struct range){ 6 * PAGE, 2 * PAGE });
}

static void advice__gives_the_pages_back(void **state)
{
	uint64_t before = file_bytes();

	(void)state;
	assert_int_equal(madvise(both[0] + 8 * PAGE, 16 * PAGE, MADV_DONTNEED), 0);
	assert_int_equal(before - file_bytes(), 16 * PAGE);
	assert_int_equal(madvise(both[0] + 30 * PAGE, 16 * PAGE, MADV_FREE), 0);
	assert_int_equal(before - file_bytes(), 32 * PAGE);
}

/* ---- fork ---- */

/* Advised: 0 to 3 withheld, 4 to 7 wiped, 8 to 11 both, 12 to 15 both and taken back. */
static void advise_for_fork(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(madvise(both[i], 4 * PAGE, MADV_DONTFORK), 0);
		assert_int_equal(madvise(both[i] + 4 * PAGE, 4 * PAGE, MADV_WIPEONFORK), 0);
		assert_int_equal(madvise(both[i] + 8 * PAGE, 8 * PAGE, MADV_WIPEONFORK), 0);
		assert_int_equal(madvise(both[i] + 8 * PAGE, 8 * PAGE, MADV_DONTFORK), 0);
		assert_int_equal(madvise(both[i] + 12 * PAGE, 4 * PAGE, MADV_DOFORK), 0);
		assert_int_equal(madvise(both[i] + 12 * PAGE, 4 * PAGE, MADV_KEEPONFORK), 0);
	}
}

/* A page's number, 0 if it was wiped, -1 if nothing is there. */
static int page_says(const char *p)
{
	struct map m = map_of(p);

	if (!m.there || m.prot[0] != 'r')
		return -1;
	return m.shared ? -2 : is_all(p, PAGE, *p) ? *p : -3;
}

static int child_compares(void)
{
	for (int page = 0; page < PAGES; page++)
		if (page_says(both[0] + page * PAGE) != page_says(both[1] + page * PAGE))
			return 1 + page;
	return 0;
}

static int child_compares_and_so_does_its_own(void)
{
	int verdict = child_compares();

	if (verdict != 0)
		return verdict;
	for (int i = 0; i < 2; i++)
		memset(both[i] + 4 * PAGE, 77, 4 * PAGE);
	return in_child(child_compares) + (page_says(both[0] + 4 * PAGE) == 77 ? 0 : 100);
}

static void fork__advice_holds_for_children_and_theirs(void **state)
{
	(void)state;
	advise_for_fork();
	assert_int_equal(in_child(child_compares_and_so_does_its_own), 0);
	/* and is forgotten with the memory */
	teardown(NULL);
	setup(NULL);
	assert_int_equal(in_child(child_compares), 0);
	assert_int_equal(both[0][0], 1);
}

/* ---- maps over it ---- */

static void put_both(size_t page, size_t count, int prot, int flags, int fd)
{
	char *got[2];
	int error[2];

	for (int i = 0; i < 2; i++) {
		errno = 0;
		got[i] = mmap(both[i] + page * PAGE, count * PAGE, prot, flags, fd, 0);
		error[i] = errno;
		if (error[i] == 0)
			assert_ptr_equal(got[i], both[i] + page * PAGE);
		else
			assert_ptr_equal(got[i], MAP_FAILED);
	}
	assert_int_equal(error[0], error[1]);
	both_are_equal();
}

enum { FRESH = MAP_PRIVATE | MAP_ANONYMOUS };

static void put__fresh_memory_over_part_is_born_too(void **state)
{
	uint64_t before = file_bytes();

	(void)state;
	put_both(4, 8, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED, -1);
	assert_true(is_born(both[0] + 4 * PAGE) && is_all(both[0] + 4 * PAGE, 8 * PAGE, 0));
	assert_true(is_all(both[0] + 12 * PAGE, PAGE, 13));
	assert_true(file_bytes() <= before);
	put_both(4, 8, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED_NOREPLACE, -1);
	put_both(60, 4, PROT_READ, FRESH | MAP_FIXED_NOREPLACE, -1);
}

static void put__into_a_hole_without_replacing(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(munmap(both[i] + 4 * PAGE, 8 * PAGE), 0);
	put_both(3, 2, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED_NOREPLACE, -1);
	put_both(4, 2, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED_NOREPLACE, -1);
	put_both(6, 2, PROT_READ, FRESH | MAP_FIXED_NOREPLACE, -1);
	put_both(6, 4, PROT_READ, FRESH | MAP_FIXED_NOREPLACE, -1);
	put_both(8, 4, PROT_READ, FRESH | MAP_FIXED_NOREPLACE, -1);
}

/* What runtimes do that give memory back by a reservation, and take it again. */
static void put__reserved_and_taken_again(void **state)
{
	uint64_t before = file_bytes();

	(void)state;
	put_both(4, 8, PROT_NONE, FRESH | MAP_FIXED | MAP_NORESERVE, -1);
	assert_int_equal(before - file_bytes(), 8 * PAGE);
	assert_true(faults(both[0] + 4 * PAGE));
	for (int i = 0; i < 2; i++)
		assert_int_equal(mprotect(both[i] + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE), 0);
	assert_true(is_all(both[0] + 4 * PAGE, 4 * PAGE, 0));
	memset(both[0] + 4 * PAGE, 1, PAGE);
	memset(both[1] + 4 * PAGE, 1, PAGE);
	put_both(4, 8, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED, -1);
	assert_true(is_born(both[0] + 4 * PAGE));
}

/* A file's pages are the file's, to the end of the map; then the place is the arena's again. */
static void put__a_file_over_part(void **state)
{
	int fd = fileno(tmpfile());
	char *next;

	(void)state;
	assert_int_equal(ftruncate(fd, 8 * PAGE), 0);
	assert_int_equal(pwrite(fd, "here", 4, 0), 4);
	put_both(4, 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd);
	assert_memory_equal(both[0] + 4 * PAGE, "here", 4);
	advise_both(MADV_DONTNEED, (struct range){ 4 * PAGE, 8 * PAGE });
	assert_memory_equal(both[0] + 4 * PAGE, "here", 4);
	assert_int_equal(munmap(both[0], BYTES), 0);
	assert_true(faults(both[0] + 4 * PAGE));
	next = map_long(BYTES);
	assert_ptr_equal(next, both[0]);
	assert_true(is_all(next, BYTES, 0));
	memset(next, 1, BYTES);
	assert_int_equal(pread(fd, next, 4, 0), 4);
	assert_memory_equal(next, "here", 4);
	close(fd);
}

static void put__bad_arguments(void **state)
{
	(void)state;
	put_both(4, 0, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED, -1);
	put_both(4, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, -1);
	for (int i = 0; i < 2; i++)
		assert_ptr_equal(mmap(both[i] + 7, PAGE, PROT_READ, FRESH | MAP_FIXED, -1, 0),
				 MAP_FAILED);
	both_are_equal();
}

/* Other memory moved onto it is not the file's, and what lay there has gone. */
static void put__moved_onto_it(void **state)
{
	char *other = map_ordinary(2 * PAGE);
	uint64_t before = file_bytes();

	(void)state;
	memset(other, 99, 2 * PAGE);
	assert_ptr_equal(mremap(other, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				both[0] + 4 * PAGE),
			 both[0] + 4 * PAGE);
	assert_true(is_all(both[0] + 4 * PAGE, 2 * PAGE, 99) && !is_born(both[0] + 4 * PAGE));
	assert_int_equal(before - file_bytes(), 2 * PAGE);
	assert_int_equal(in_child(child_compares), 5); /* the first page that differs */
}

/* ---- mremap ---- */

struct move {
	size_t at, length, wanted;
	int flags;
};

static void mremap__refuses_what_the_kernel_refuses(void **state)
{
	const struct move moves[] = {
		{ 0, 0, PAGE, MREMAP_MAYMOVE },
		{ 0, PAGE, 0, MREMAP_MAYMOVE },
		{ 100, PAGE, 2 * PAGE, MREMAP_MAYMOVE },
		{ 0, BYTES, 2 * BYTES, 64 },
		{ 0, PAGE, PAGE, MREMAP_FIXED },
		{ 0, PAGE, PAGE, MREMAP_DONTUNMAP },
		{ 0, PAGE, 2 * PAGE, MREMAP_DONTUNMAP | MREMAP_MAYMOVE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		int error[2];

		for (int k = 0; k < 2; k++) {
			errno = 0;
			assert_ptr_equal(mremap(both[k] + moves[i].at, moves[i].length,
						moves[i].wanted, moves[i].flags, NULL),
					 MAP_FAILED);
			error[k] = errno;
		}
		if (error[0] != error[1])
			fail_msg("move %zu: %d, but %d of ordinary memory", i, error[0], error[1]);
	}
	assert_int_equal(munmap(both[0] + 4 * PAGE, PAGE), 0); /* a hole cannot be moved */
	assert_ptr_equal(mremap(both[0], BYTES, 2 * BYTES, MREMAP_MAYMOVE), MAP_FAILED);
	assert_int_equal(errno, EFAULT);
}

static void mremap__keeps_protection_and_advice(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		char *wall = mmap(both[i] + BYTES, PAGE, PROT_NONE, FRESH | MAP_FIXED_NOREPLACE, -1,
				  0), *moved;

		assert_true(wall == both[i] + BYTES || errno == EEXIST);
		assert_int_equal(mprotect(both[i], BYTES, PROT_READ), 0);
		assert_int_equal(madvise(both[i], BYTES, MADV_WIPEONFORK), 0);
		moved = mremap(both[i], BYTES, 2 * BYTES, MREMAP_MAYMOVE);
		assert_ptr_not_equal(moved, MAP_FAILED);
		assert_int_equal(is_born(moved), i == 0);
		assert_memory_equal(map_of(moved).prot, "r--", 3);
		assert_memory_equal(map_of(moved + 2 * BYTES - PAGE).prot, "r--", 3);
		if (wall == both[i] + BYTES)
			munmap(wall, PAGE);
		both[i] = moved;
	}
	both_are_equal();
	assert_int_equal(in_child(child_compares), 0);
	for (int i = 0; i < 2; i++)
		munmap(both[i] + BYTES, BYTES);
}

static void mremap__leaves_an_empty_map_if_so_asked(void **state)
{
	char *moved[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		moved[i] = mremap(both[i], 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
				  NULL);
		assert_ptr_not_equal(moved[i], MAP_FAILED);
	}
	both_are_equal();
	assert_true(is_all(both[0], 4 * PAGE, 0));
	assert_memory_equal(moved[0], moved[1], 4 * PAGE);
	moved[0][0] = 55;
	assert_int_equal(both[0][0], 0);
	for (int i = 0; i < 2; i++)
		munmap(moved[i], 4 * PAGE);
}

/* The kernel makes a place free, and likes to give it to whoever asks next: us. */
static void mremap__into_a_hole(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		char *hole = map_ordinary(BYTES);

		assert_int_equal(munmap(hole, BYTES), 0);
		assert_ptr_equal(mremap(both[i], BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, hole),
				 hole);
		for (int page = 0; page < PAGES; page++)
			assert_true(is_all(hole + page * PAGE, PAGE, (char)(page + 1)));
		assert_int_equal(munmap(hole, BYTES), 0);
	}
}

/* Of what shrinks the kernel looks at the beginning only, and unmaps the rest whatever it is: then
 * it is the arena's again. */
static void mremap__shrinks_over_other_maps_and_holes(void **state)
{
	char *next;

	(void)state;
	put_both(20, 2, PROT_READ, FRESH | MAP_FIXED, -1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(munmap(both[i] + 30 * PAGE, 2 * PAGE), 0);
		assert_ptr_equal(mremap(both[i], BYTES, 40 * PAGE, 0), both[i]);
	}
	both_are_equal();
	for (int i = 0; i < 2; i++)
		assert_ptr_equal(mremap(both[i], BYTES, 10 * PAGE, MREMAP_MAYMOVE), both[i]);
	both_are_equal();
	next = map_long(BYTES - 10 * PAGE);
	assert_ptr_equal(next, both[0] + 10 * PAGE);
	assert_true(is_all(next, BYTES - 10 * PAGE, 0));
}

/* Some kernels move several maps at once; the arena's pages would stay marked where they were. */
static void mremap__not_of_what_is_born_in_part(void **state)
{
	char *elsewhere = map_ordinary(BYTES);

	(void)state;
	put_both(20, 2, PROT_READ, FRESH | MAP_FIXED, -1);
	errno = 0;
	assert_ptr_equal(mremap(both[0], BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere),
			 MAP_FAILED);
	assert_int_equal(errno, EFAULT);
	both_are_equal();
	assert_int_equal(munmap(elsewhere, BYTES), 0);
}

/* ---- lengths that are no whole number of pages, and those that are none at all ---- */

/* Nothing that is given out from here on, nor its bytes, may lie in [p, p + n). */
static void nothing_comes_over(const char *p, size_t n, char value)
{
	char *map = map_long(16 * PAGE), *block = malloc(LONG);

	memset(map, 101, 16 * PAGE);
	memset(block, 102, LONG);
	assert_true(is_all(p, n, value));
	assert_int_equal(munmap(map, 16 * PAGE), 0);
	free(block);
	assert_true(is_all(p, n, value));
}

static size_t up(size_t n)
{
	return (n + PAGE - 1) / PAGE * PAGE;
}

static const struct range moves_onto[] = { /* of which length, which is wanted */
	{ 2 * PAGE, PAGE + 1 },
	{ PAGE + 1, PAGE + 1 },
	{ PAGE + 1, 2 * PAGE },
	{ 2 * PAGE - 1, 3 * PAGE - 1 },
	{ 3 * PAGE, 1 },
};

/* From outside, from inside, where it is the application's own, and from inside where it is born;
 * what is behind it is free. */
static void length__of_what_is_moved_onto_it(void **state)
{
	const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;

	(void)state;
	for (size_t i = 0; i < 3 * sizeof(moves_onto) / sizeof(moves_onto[0]); i++) {
		size_t n = moves_onto[i / 3].at, wanted = moves_onto[i / 3].length;
		char *from = i % 3 == 0 ? map_ordinary(up(n)) : both[0] + BYTES - up(n);

		if (i % 3 == 1)
			assert_ptr_equal(mmap(from, n, PROT_READ | PROT_WRITE,
					      FRESH | MAP_FIXED | MAP_NORESERVE, -1, 0), from);
		memset(from, 99, up(n));
		assert_int_equal(munmap(both[0], BYTES - up(n)), 0);
		assert_ptr_equal(mremap(from, n, wanted, flags, both[0]), both[0]);
		n = up(n) < up(wanted) ? up(n) : up(wanted);
		nothing_comes_over(both[0], n, 99);
		assert_false(map_of(both[0] + up(wanted)).prot[0] == 'r');
		memset(both[0] + n, 99, up(wanted) - n);
		nothing_comes_over(both[0], up(wanted), 99);
		teardown(NULL);
		setup(NULL);
	}
}

static void length_put(char *p, size_t n, int prot, int flags)
{
	assert_int_equal(munmap(p, 40 * PAGE), 0);
	assert_ptr_equal(mmap(p, n, prot, flags, -1, 0), p);
	if (p == both[0] + PAGE)
		nothing_comes_over(p, up(n), 0);
}

static void length_put_born(char *p, size_t n)
{
	length_put(p, n, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED);
}

static void length_put_other(char *p, size_t n)
{
	length_put(p, n, PROT_READ, FRESH | MAP_FIXED);
}

static void length_put_free(char *p, size_t n)
{
	length_put(p, n, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED_NOREPLACE);
}

static void length_unmap(char *p, size_t n)
{
	assert_int_equal(munmap(p, n), 0);
}

static void length_advise(char *p, size_t n)
{
	assert_int_equal(madvise(p, n, MADV_DONTNEED), 0);
}

static void length_protect(char *p, size_t n)
{
	assert_int_equal(mprotect(p, n, PROT_READ), 0);
}

static void length_shrink(char *p, size_t n)
{
	assert_ptr_equal(mremap(p, 40 * PAGE - 1, n, 0), p);
}

/* What it was before is as long as `n`; both the old and the new place can be looked at. */
static void length_move(char *p, size_t n)
{
	assert_ptr_equal(mremap(p, n, n + PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 20 * PAGE),
			 p + 20 * PAGE);
}

static void length__of_other_calls(void **state)
{
	void (*const calls[])(char *p, size_t n) = {
		length_put_born, length_put_other, length_put_free, length_unmap,
		length_advise,   length_protect,   length_shrink,   length_move,
	};
	const size_t lengths[] = { 1, PAGE - 1, PAGE + 1, 5 * PAGE - 7 };

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]) * 4; i++) {
		for (int k = 0; k < 2; k++)
			calls[i / 4](both[k] + PAGE, lengths[i % 4]);
		both_are_equal();
		teardown(NULL);
		setup(NULL);
	}
}

/* Is the call refused, of either kind by the same error, and nothing changed? */
#define BOTH_REFUSE(call) \
	do { \
		int error[2]; \
\
		for (int i = 0; i < 2; i++) { \
			char *p = both[i]; \
\
			errno = 0; \
			if ((long)(call) != -1) \
				fail_msg("%s: not refused (%d)", #call, i); \
			error[i] = errno; \
		} \
		if (error[0] != error[1]) \
			fail_msg("%s: %d, but %d of ordinary memory", #call, error[0], error[1]); \
		both_are_equal(); \
	} while (0)

/* They end where there are no addresses, or before they begin. */
static const size_t absurd[] = { SIZE_MAX, SIZE_MAX - PAGE + 2, -2ul * PAGE, 1ul << 60 };

static void refused__lengths(void **state)
{
	const int rw = PROT_READ | PROT_WRITE, moves = MREMAP_MAYMOVE | MREMAP_FIXED;
	char *elsewhere = map_ordinary(BYTES);

	(void)state;
	for (size_t k = 0; k < sizeof(absurd) / sizeof(absurd[0]); k++) {
		size_t n = absurd[k];

		BOTH_REFUSE(munmap(p + 16 * PAGE, n));
		BOTH_REFUSE(mmap(p + 16 * PAGE, n, rw, FRESH | MAP_FIXED, -1, 0));
		BOTH_REFUSE(mmap(p + 16 * PAGE, n, rw, FRESH | MAP_FIXED_NOREPLACE, -1, 0));
		BOTH_REFUSE(mremap(p + 16 * PAGE, n, PAGE, MREMAP_MAYMOVE));
		BOTH_REFUSE(mremap(p + 16 * PAGE, PAGE, n, MREMAP_MAYMOVE));
		BOTH_REFUSE(mremap(p + 16 * PAGE, PAGE, n, 0));
		BOTH_REFUSE(mremap(p + 16 * PAGE, PAGE, n, moves, elsewhere));
		BOTH_REFUSE(mremap(elsewhere, PAGE, n, moves, p + 16 * PAGE));
		if (n != 1ul << 60) /* of which the kernel does what it can */
			BOTH_REFUSE(madvise(p + 16 * PAGE, n, MADV_DONTNEED));
	}
	assert_int_equal(munmap(elsewhere, BYTES), 0);
}

static void refused__other_arguments(void **state)
{
	const int rw = PROT_READ | PROT_WRITE;

	(void)state;
	BOTH_REFUSE(mmap(p, PAGE, rw, MAP_PRIVATE | MAP_FIXED_NOREPLACE, -1, 0));
	BOTH_REFUSE(mmap(p, PAGE, rw, MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
	BOTH_REFUSE(mmap(p, PAGE, rw, FRESH | MAP_FIXED_NOREPLACE, -1, 1));
	BOTH_REFUSE(mmap(p, PAGE, rw, FRESH | MAP_FIXED, -1, 1));
	BOTH_REFUSE(mmap(NULL, p == NULL ? 0 : BYTES, rw, FRESH, -1, PAGE + 1));
	BOTH_REFUSE(munmap(p + 1, PAGE));
	for (int i = 0; i < 2; i++)
		assert_int_equal(munmap(both[i] + 4 * PAGE, 8 * PAGE), 0);
	BOTH_REFUSE(madvise(p + 4 * PAGE, 8 * PAGE, 12345));
	BOTH_REFUSE(madvise(p + 4 * PAGE, 8 * PAGE, MADV_DONTNEED));
}

/* ---- special maps ---- */

static void special__maps_are_the_kernels(void **state)
{
	const int flags[] = { FRESH | MAP_NORESERVE, FRESH | MAP_STACK, FRESH | MAP_GROWSDOWN,
			      FRESH | MAP_POPULATE, MAP_SHARED | MAP_ANONYMOUS };

	(void)state;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		char *p = mmap(NULL, LONG, PROT_READ | PROT_WRITE, flags[i], -1, 0);
		unsigned char there = 0;

		assert_ptr_not_equal(p, MAP_FAILED);
		assert_false(is_born(p));
		assert_int_equal(mincore(p + LONG - PAGE, PAGE, &there), 0);
		assert_int_equal(there & 1, (flags[i] & MAP_POPULATE) != 0);
		p[LONG - 1] = 1;
		assert_int_equal(munmap(p, LONG), 0);
	}
}

/* 1 TiB of addresses, of which bits are made use of, by mprotect and by maps. */
static void special__reserved_and_used_bit_by_bit(void **state)
{
	const size_t all = 1ull << 40;
	char *p = mmap(NULL, all, PROT_NONE, FRESH | MAP_NORESERVE, -1, 0);

	(void)state;
	assert_ptr_not_equal(p, MAP_FAILED);
	for (size_t at = 0; at < all; at += all / 16) {
		char *half = p + at + LONG;

		assert_int_equal(mprotect(p + at, LONG, PROT_READ | PROT_WRITE), 0);
		assert_ptr_equal(mmap(half, LONG, PROT_READ | PROT_WRITE, FRESH | MAP_FIXED, -1, 0),
				 half);
		memset(p + at, 1, 2 * LONG);
		assert_false(is_born(p + at) || is_born(half));
		assert_int_equal(madvise(p + at, 2 * LONG, MADV_DONTNEED), 0);
		assert_true(is_all(p + at, 2 * LONG, 0));
	}
	assert_int_equal(munmap(p, all), 0);
}

static void special__more_than_there_is_memory(void **state)
{
	size_t more = (size_t)sysconf(_SC_PHYS_PAGES) * PAGE + LONG;
	void *p = mmap(NULL, more, PROT_READ | PROT_WRITE, FRESH, -1, 0);

	(void)state;
	if (p != MAP_FAILED) { /* the kernel's decision */
		assert_false(is_born(p));
		munmap(p, more);
	}
}

static void locked__pages_are_there_and_counted(void **state)
{
	unsigned char there[PAGES];
	char *fresh = map_long(BYTES);

	(void)state;
	if (mlock(fresh, BYTES) != 0)
		skip();
	assert_int_equal(mincore(fresh, BYTES, there), 0);
	for (int i = 0; i < PAGES; i++)
		assert_int_equal(there[i] & 1, 1);
	assert_int_equal(madvise(fresh, BYTES, MADV_DONTNEED), -1);
	assert_int_equal(munlock(fresh, BYTES), 0);
	assert_int_equal(madvise(fresh, BYTES, MADV_DONTNEED), 0);
	assert_int_equal(munmap(fresh, BYTES), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(advice__has_the_same_effect),
		T(advice__of_what_may_not_be_written),
		T(advice__of_what_is_locked),
		T(advice__across_holes),
		T(advice__gives_the_pages_back),
		T(fork__advice_holds_for_children_and_theirs),
		T(put__fresh_memory_over_part_is_born_too),
		T(put__into_a_hole_without_replacing),
		T(put__reserved_and_taken_again),
		T(put__a_file_over_part),
		T(put__bad_arguments),
		T(put__moved_onto_it),
		T(mremap__refuses_what_the_kernel_refuses),
		T(mremap__keeps_protection_and_advice),
		T(mremap__leaves_an_empty_map_if_so_asked),
		T(mremap__into_a_hole),
		T(mremap__shrinks_over_other_maps_and_holes),
		T(mremap__not_of_what_is_born_in_part),
		T(length__of_what_is_moved_onto_it),
		T(length__of_other_calls),
		T(refused__lengths),
		T(refused__other_arguments),
		T(special__maps_are_the_kernels),
		T(special__reserved_and_used_bit_by_bit),
		T(special__more_than_there_is_memory),
		T(locked__pages_are_there_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
