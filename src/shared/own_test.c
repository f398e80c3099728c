/* own_test.c: memory of the stack's libraries in the memory file, in one process and its child. */
#include "shared/adopt_kit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Another map of the file at that offset, as a peer has it. */
static u8 *peer_map(u64 offset, u64 length)
{
	u8 *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, adopt_file_fd(),
		     (off_t)offset);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static u64 offset_of(const u8 *p, u64 length)
{
	return own_offset((uintptr_t)p, length);
}

static void own_alloc__lies_in_the_file(void **state)
{
	u8 *p = own_alloc(BYTES), *peer;
	u64 offset;

	assert_non_null(p);
	assert_true(is_zero(p, BYTES));
	offset = offset_of(p, BYTES);
	assert_int_equal(offset, ADOPT_OWN_OFFSET);
	peer = peer_map(offset, BYTES);
	fill(peer, BYTES);
	check(p, BYTES);
	munmap(peer, BYTES);
	assert_true(own_free(p));
}

static void own_alloc__takes_the_first_gap(void **state)
{
	u8 *a = own_alloc(BYTES), *b = own_alloc(1), *c = own_alloc(BYTES), *d;
	u64 first = offset_of(a, 1);

	assert_int_equal(offset_of(b, PAGE), first + BYTES);
	assert_int_equal(offset_of(c, 1), first + BYTES + PAGE);
	assert_true(own_free(b));
	d = own_alloc(2 * PAGE);
	assert_int_equal(offset_of(d, 1), first + 2 * BYTES + PAGE);
	b = own_alloc(PAGE);
	assert_int_equal(offset_of(b, 1), first + BYTES);
	assert_true(own_free(a) && own_free(b) && own_free(c) && own_free(d));
}

static void own_free__leaves_zeroes(void **state)
{
	u8 *p = own_alloc(BYTES);
	u64 offset = offset_of(p, BYTES);

	fill(p, BYTES);
	assert_true(own_free(p));
	assert_false(own_free(p));
	p = own_alloc(BYTES);
	assert_int_equal(offset_of(p, BYTES), offset);
	assert_true(is_zero(p, BYTES));
	assert_true(own_free(p));
}

static void own_free__locked_memory(void **state)
{
	u8 *p = own_alloc(BYTES);

	fill(p, BYTES);
	assert_int_equal(mlock(p, BYTES), 0);
	assert_true(own_free(p));
	p = own_alloc(BYTES);
	assert_true(is_zero(p, BYTES));
	assert_true(own_free(p));
}

static void own_offset__of_one_buffer_only(void **state)
{
	u8 *a = own_alloc(BYTES), *b = own_alloc(BYTES), other;

	assert_int_equal(offset_of(a + 100, 17), ADOPT_OWN_OFFSET + 100);
	assert_int_equal(offset_of(a, BYTES + 1), 0);
	assert_int_equal(offset_of(&other, 1), 0);
	assert_int_equal(own_offset((uintptr_t)a, UINT64_MAX), 0);
	assert_true(own_free(a));
	assert_int_equal(offset_of(a, 1), 0);
	assert_true(own_free(b));
	assert_int_equal(offset_of(b, 1), 0);
}

static void own_alloc__lengths_that_are_none(void **state)
{
	assert_null(own_alloc(0));
	assert_null(own_alloc(ADOPT_SLOT_BYTES + 1));
	assert_null(own_alloc(UINT64_MAX));
}

static void run_child(const u8 *theirs)
{
	u8 *p;

	if (look_at(theirs).found || offset_of(theirs, 1) != 0 || own_free((u8 *)theirs))
		_exit(1);
	p = own_alloc(BYTES);
	if (p == NULL || !is_zero(p, BYTES) || offset_of(p, BYTES) != ADOPT_OWN_OFFSET)
		_exit(2);
	fill(p, BYTES);
	_exit(0);
}

/* The parent's stays shared, and the child has none of it, but may have its own. */
static void fork__is_not_inherited(void **state)
{
	u8 *p = own_alloc(BYTES), *peer;
	u64 offset = offset_of(p, BYTES);
	int status;
	pid_t child;

	fill(p, BYTES);
	peer = peer_map(offset, BYTES);
	child = fork();
	if (child == 0)
		run_child(p);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	check(p, BYTES);
	assert_true(is_shared(p));
	assert_int_equal(offset_of(p, BYTES), offset);
	memset(peer, 5, BYTES);
	assert_int_equal(p[BYTES - 1], 5);
	munmap(peer, BYTES);
	assert_true(own_free(p));
}

/* Adopted memory goes back before a fork; own memory stays beside it. */
static void fork__beside_adopted_memory(void **state)
{
	u8 *adopted, *p = own_alloc(BYTES);
	int status;
	pid_t child;

	if (!adopt_is_on())
		skip();
	wait_until_alone();
	adopted = new_memory();
	fill(p, BYTES);
	assert_int_not_equal(enter(adopted, BYTES), 0);
	child = fork();
	if (child == 0)
		_exit(look_at(p).found);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_false(is_shared(adopted));
	assert_true(is_shared(p));
	check(adopted, BYTES);
	check(p, BYTES);
	leave(adopted, BYTES);
	munmap(adopted, BYTES);
	assert_true(own_free(p));
}

static void limits__ordinary_memory(void **state)
{
	struct rlimit before, limit;
	u8 *p;

	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	if (before.rlim_cur != RLIM_INFINITY)
		skip();
	limit = (struct rlimit){ .rlim_cur = 1ull << 40, .rlim_max = before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	assert_null(own_alloc(BYTES));
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	p = own_alloc(BYTES);
	assert_non_null(p);
	assert_true(own_free(p));
}

/* The application has closed all descriptors: what there is goes on and is freed. */
static void descriptor__is_closed(void **state)
{
	u8 *p = own_alloc(BYTES), *peer;
	int fd, status;
	pid_t child;

	peer = peer_map(offset_of(p, BYTES), BYTES);
	fill(p, BYTES);
	fd = dup(adopt_file_fd());
	close(adopt_file_fd());
	assert_null(own_alloc(BYTES));
	check(p, BYTES);
	child = fork();
	if (child == 0)
		_exit(look_at(p).found);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(own_free(p));
	assert_true(is_zero(peer, BYTES));
	assert_int_equal(dup2(fd, adopt_file_fd()), adopt_file_fd());
	close(fd);
	munmap(peer, BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_alloc__lies_in_the_file),
		cmocka_unit_test(own_alloc__takes_the_first_gap),
		cmocka_unit_test(own_free__leaves_zeroes),
		cmocka_unit_test(own_free__locked_memory),
		cmocka_unit_test(own_offset__of_one_buffer_only),
		cmocka_unit_test(own_alloc__lengths_that_are_none),
		cmocka_unit_test(fork__is_not_inherited),
		cmocka_unit_test(fork__beside_adopted_memory),
		cmocka_unit_test(limits__ordinary_memory),
		cmocka_unit_test(descriptor__is_closed),
	};

	setenv("ANYVERBS_ADOPT", "1", 1);
	if (!allow_own()) {
		fprintf(stderr, "SKIPPED: no memory file here (strict accounting)\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
