/* adopt_fork_test.c: what a forked child has of adopted memory: a copy, from its first moment on,
 * unless the application wanted otherwise. NO_THREAD_SAFETY: see adopt_kit.h.
 */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "shared/adopt_kit.h"

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

/* ---- beside other threads ---- */

enum { TORN_FORKS = 40 };

static bool beside_stop;

/* x, in the first page, is stored before y, in the last one: nobody ever sees y > x. */
static volatile u64 *torn_x(void)
{
	return (volatile u64 *)(void *)memory;
}

static volatile u64 *torn_y(void)
{
	return (volatile u64 *)(void *)(memory + BYTES - sizeof(u64));
}

static void *torn_count(void *arg)
{
	for (u64 i = 1; !__atomic_load_n(&beside_stop, __ATOMIC_RELAXED); i++) {
		__atomic_store_n(torn_x(), i, __ATOMIC_RELEASE);
		__atomic_store_n(torn_y(), i, __ATOMIC_RELEASE);
	}
	return arg;
}

/* A child's snapshot is of one instant, and does not change. */
static int torn_look(void)
{
	u64 y = *torn_y(), x = *torn_x();

	if (y > x)
		return 1;
	usleep(100);
	return *torn_x() == x && *torn_y() == y ? 0 : 2;
}

/* Its memory is adopted, then it has a thread, then it forks. */
static int torn_parent(void)
{
	pthread_t t;
	int verdict;

	new_credit();
	*torn_x() = *torn_y() = 0;
	if (enter(memory, BYTES) == 0 || pthread_create(&t, NULL, torn_count, NULL) != 0)
		return 10;
	while (*torn_y() < 1000)
		sched_yield();
	verdict = in_child(torn_look);
	if (verdict == 0)
		verdict = in_child(torn_look);
	beside_stop = true;
	pthread_join(t, NULL);
	leave(memory, BYTES);
	return verdict != 0 ? verdict : *torn_x() == *torn_y() ? 0 : 3;
}

static void fork__one_instant_beside_threads(void **state)
{
	leave(memory, BYTES);
	for (int i = 0; i < TORN_FORKS; i++)
		assert_int_equal(in_child(torn_parent), 0);
	assert_int_not_equal(enter(memory, BYTES), 0);
}

static void *beside_malloc(void *arg)
{
	void *held[64] = { NULL };

	for (u32 i = 1; !__atomic_load_n(&beside_stop, __ATOMIC_RELAXED); i = i * 1664525 + 1) {
		free(held[i >> 26]);
		held[i >> 26] = malloc(16 + (i >> 20) % 2000);
	}
	for (int i = 0; i < 64; i++)
		free(held[i]);
	return arg;
}

static int child_uses_malloc(void)
{
	void *held[200];

	for (int i = 0; i < 200; i++)
		if ((held[i] = malloc(16 + (u32)i * 37 % 4000)) == NULL)
			return 1;
	for (int i = 0; i < 200; i++)
		free(held[i]);
	return 0;
}

/* As registration caches do. */
static int heap_parent(void)
{
	u8 *from = (u8 *)(((uintptr_t)malloc(1 << 16) + PAGE - 1) & ~(PAGE - 1)), *to;
	pthread_t t;
	int verdict = 0;

	mallopt(M_ARENA_MAX, 1);
	free(malloc(100 * PAGE));
	to = (u8 *)((uintptr_t)sbrk(0) & ~(PAGE - 1));
	new_credit();
	if (enter(from, (u64)(to - from)) == 0)
		return 10;
	if (pthread_create(&t, NULL, beside_malloc, NULL) != 0)
		return 11;
	for (int i = 0; i < 4 && verdict == 0; i++)
		verdict = in_child(child_uses_malloc);
	beside_stop = true;
	pthread_join(t, NULL);
	leave(from, (u64)(to - from));
	return verdict;
}

static void fork__the_heap_beside_threads(void **state)
{
	leave(memory, BYTES);
	for (int i = 0; i < TORN_FORKS; i++)
		assert_int_equal(in_child(heap_parent), 0);
	assert_int_not_equal(enter(memory, BYTES), 0);
}

static int child_heeds_advice(void)
{
	unsigned char resident[2];

	if (mincore(memory, 2 * PAGE, resident) == 0)
		return 1;
	if (!is_zero(memory + 2 * PAGE, 2 * PAGE))
		return 2;
	memory[2 * PAGE] = 1; /* not in its own child */
	for (u64 i = 4 * PAGE; i < BYTES; i++)
		if (memory[i] != pattern(i))
			return 3;
	return 0;
}

static int child_and_its_own_heed_advice(void)
{
	int verdict = child_heeds_advice();

	return verdict != 0 ? verdict : 10 * in_child(child_heeds_advice);
}

static void *thread_waits(void *arg)
{
	while (!__atomic_load_n(&beside_stop, __ATOMIC_RELAXED))
		usleep(100);
	return arg;
}

/* Advice from before the registration, though the memory is a private map of a file now. */
static void fork__heeds_advice_beside_threads(void **state)
{
	pthread_t t;

	leave(memory, BYTES);
	assert_int_equal(madvise(memory, 2 * PAGE, MADV_DONTFORK), 0);
	assert_int_equal(madvise(memory + 2 * PAGE, 2 * PAGE, MADV_WIPEONFORK), 0);
	assert_int_not_equal(enter(memory, BYTES), 0);
	handler_touches = beside_stop = false;
	assert_int_equal(pthread_create(&t, NULL, thread_waits, NULL), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(in_child(child_and_its_own_heed_advice), 0);
	check(memory, BYTES);
	beside_stop = true;
	pthread_join(t, NULL);
	handler_touches = true;
}

static u64 file_kb(void) NO_THREAD_SAFETY
{
	struct stat st;

	assert_int_equal(fstat(adopt.fd, &st), 0);
	return (u64)st.st_blocks / 2;
}

/* The first fork gives all back, of the file's pages, too; later ones have nothing to do. What is
 * registered afterwards is not adopted. */
static void fork__gives_all_back_once(void **state)
{
	u8 *p;

	assert_int_not_equal(file_kb(), 0);
	handler_touches = false;
	assert_int_equal(in_child(child_writes), 0);
	assert_int_equal(file_kb(), 0);
	assert_false(is_shared(memory));
	p = map_private(BYTES);
	assert_int_equal(enter(p, BYTES), 0);
	leave(p, BYTES);
	munmap(p, BYTES);
	assert_int_equal(in_child(child_writes), 0);
	handler_touches = true;
	check(memory, BYTES);
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
		T(fork__one_instant_beside_threads),
		T(fork__the_heap_beside_threads),
		T(fork__heeds_advice_beside_threads),
		T(fork__gives_all_back_once),
	};

	if (!adopt_kit_runs())
		return 77;
	pthread_atfork(NULL, NULL, look_in_child);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
