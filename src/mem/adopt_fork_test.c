/* adopt_fork_test.c: what a forked child has of adopted memory: a copy, from its first moment on,
 * unless the application wanted otherwise. NO_THREAD_SAFETY: see adopt_kit.h.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "mem/adopt_kit.h"

static u8 *memory; /* of each test; filled, adopted */
static bool handler_touches = true;
static bool handler_saw_it; /* in the child; the handler is older than the first region */

static void look_in_child(void)
{
	if (!handler_touches)
		return;
	handler_saw_it = memory[7] == pattern(7);
	memory[8] = 99;
}

static int setup(void **state) NO_THREAD_SAFETY
{
	memory = new_memory();
	wait_until_alone();
	assert_int_not_equal(enter(memory, BYTES), 0);
	return 0;
}

static int teardown(void **state) NO_THREAD_SAFETY
{
	leave(memory, BYTES);
	assert_false(is_shared(memory));
	munmap(memory, BYTES);
	memory = NULL;
	for (u32 i = 0; i < ADOPT_REGIONS; i++)
		assert_false(region_is_used(&adopt.regions[i]));
	return 0;
}

static int child_had_it_in_the_handler(void)
{
	return handler_saw_it && memory[8] == 99 && memory[9] == pattern(9) ? 0 : 1;
}

static void fork__handlers_of_the_application_see_the_copy(void **state)
{
	assert_int_equal(in_child(child_had_it_in_the_handler), 0);
	check(memory, BYTES);
}

static FILE *stream;

static int child_uses_the_stream(void)
{
	return fputs("x", stream) >= 0 && fflush(stream) == 0 ? 0 : 1;
}

static void *thread_returns(void *arg)
{
	return arg;
}

/* The C library resets its streams in the child before any handler runs (if there ever was a
 * thread), and memory that was freed while it was registered may be a stream by now. */
static void fork__a_stream_lies_in_adopted_memory(void **state) NO_THREAD_SAFETY
{
	u64 n = 16 * PAGE; /* of the heap */
	u8 *p = aligned_alloc(PAGE, n), *after = malloc(100);
	const uintptr_t begin = (uintptr_t)p;
	FILE *opened[100];
	pthread_t t;
	int count = 0;

	assert_int_equal(pthread_create(&t, NULL, thread_returns, NULL), 0);
	pthread_join(t, NULL);
	wait_until_alone();
	memset(p, 1, n);
	assert_int_not_equal(enter(p, n), 0);
	free(p);
	for (stream = NULL; stream == NULL && count < 100; count++) {
		opened[count] = fopen("/dev/null", "w");
		assert_non_null(opened[count]);
		if ((uintptr_t)opened[count] - begin < n)
			stream = opened[count];
	}
	assert_non_null(stream);
	assert_int_equal(in_child(child_uses_the_stream), 0);
	assert_int_equal(child_uses_the_stream(), 0);
	adopt_leave(begin, n, true);
	while (count > 0)
		fclose(opened[--count]);
	free(after);
}

static int child_has_a_hole(void)
{
	unsigned char resident[BYTES / PAGE];

	return mincore(memory, BYTES, resident) != 0 ? 0 : 1;
}

static void fork__not_inherited_if_so_advised_before(void **state)
{
	leave(memory, BYTES);
	assert_int_equal(madvise(memory, BYTES, MADV_DONTFORK), 0);
	assert_int_not_equal(enter(memory, BYTES), 0);
	handler_touches = false;
	assert_int_equal(in_child(child_has_a_hole), 0);
	handler_touches = true;
	check(memory, BYTES);
}

static int child_writes(void)
{
	for (u64 i = 0; i < BYTES; i++)
		if (i != 8 && memory[i] != pattern(i))
			return 1;
	memset(memory, 1, BYTES); /* the parent then looks at its own */
	return 0;
}

/* As libraries do that think that nobody else gives such advice. */
static void fork__not_shared_though_advised_to_inherit(void **state)
{
	assert_int_equal(madvise(memory, BYTES, MADV_DOFORK), 0);
	assert_int_equal(in_child(child_writes), 0);
	check(memory, BYTES);
}

static void fork__without_a_descriptor_left(void **state)
{
	struct rlimit before, none;

	getrlimit(RLIMIT_NOFILE, &before);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(in_child(child_writes), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	check(memory, BYTES);
}

static int child_may_not_write(void)
{
	FILE *f = fopen("/dev/zero", "r");
	bool may;

	setvbuf(f, NULL, _IONBF, 0);
	may = fread(memory, 1, 1, f) == 1;
	return !may && memory[1] == pattern(1) && memory[PAGE] == pattern(PAGE) ? 0 : 1;
}

static int child_opens_and_looks(void)
{
	if (mprotect(memory, PAGE, PROT_READ) != 0)
		return 1;
	for (u64 i = 0; i < BYTES; i++)
		if (memory[i] != pattern(i))
			return 2;
	return 0;
}

static void fork__keeps_protection(void **state)
{
	handler_touches = false;
	assert_int_equal(mprotect(memory, PAGE, PROT_READ), 0);
	assert_int_equal(in_child(child_may_not_write), 0);
	assert_int_equal(mprotect(memory, PAGE, PROT_NONE), 0);
	assert_int_equal(in_child(child_opens_and_looks), 0);
	assert_int_equal(mprotect(memory, PAGE, PROT_READ | PROT_WRITE), 0);
	handler_touches = true;
	check(memory, BYTES);
}

/* A second fork finds all as the first did, and no copy is left in the parent. */
static void fork__again_and_again(void **state) NO_THREAD_SAFETY
{
	unsigned char resident[BYTES / PAGE];

	for (int i = 0; i < 20; i++)
		assert_int_equal(in_child(child_writes), 0);
	check(memory, BYTES);
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (!region_is_used(r))
			continue;
		memset(resident, 0, sizeof(resident));
		assert_int_equal(mincore((void *)(uintptr_t)r->stash, BYTES, resident), 0);
		for (u64 at = 0; at < BYTES / PAGE; at++)
			assert_int_equal(resident[at] & 1, 0);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(fork__handlers_of_the_application_see_the_copy),
		T(fork__a_stream_lies_in_adopted_memory),
		T(fork__not_inherited_if_so_advised_before),
		T(fork__not_shared_though_advised_to_inherit),
		T(fork__without_a_descriptor_left),
		T(fork__keeps_protection),
		T(fork__again_and_again),
	};

	setenv("ANYVERBS_ADOPT", "1", 1);
	if (!adopt_is_on()) {
		fprintf(stderr, "SKIPPED: no adoption here (another allocator, or a sanitizer)\n");
		return 77;
	}
	pthread_atfork(NULL, NULL, look_in_child);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
