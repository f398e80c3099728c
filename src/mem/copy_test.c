/* copy_test.c: gather and scatter over lists, and the order in which a copy becomes visible. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "mem/mem_priv.h"

enum { PD = 1, SPACE = 16384, LISTS = 20000 };

static struct mem_table table;
static u8 memory[SPACE], expected[SPACE], flat[SPACE], back[SPACE];
static u32 key, read_key;

static int setup(void **state)
{
	struct mem_region r = { .addr = (uintptr_t)memory,
				.iova = (uintptr_t)memory,
				.length = SPACE,
				.pd = PD,
				.flags = MEM_CONTIGUOUS,
				.access = IBV_ACCESS_LOCAL_WRITE };

	for (int i = 0; i < SPACE; i++) {
		memory[i] = (u8)(i * 7);
		flat[i] = (u8)(i * 13 + 1);
	}
	if (mem_table_init(&table, NULL) < 0 || mem_register(&table, &r, &key) < 0)
		return -1;
	r.access = 0;
	return mem_register(&table, &r, &read_key);
}

static int teardown(void **state)
{
	mem_table_fini(&table);
	return 0;
}

static struct ibv_sge sge(u32 offset, u32 length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory + offset,
				 .length = length,
				 .lkey = key };
}

static u64 random_next(u64 *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* Disjoint elements, a few of them empty with a bad key. */
static u32 random_list(u64 *seed, struct ibv_sge *list)
{
	u32 count = 1 + (u32)random_next(seed) % 32, at = 0;

	for (u32 i = 0; i < count; i++) {
		u32 length = random_next(seed) % 4 ? (u32)random_next(seed) % 200 : 0;

		at += (u32)random_next(seed) % 50;
		list[i] = sge(at, length);
		at += length;
		if (!length)
			list[i] = (struct ibv_sge){ .lkey = 0xdead };
	}
	return count;
}

static u64 random_step(u64 *seed, u64 left)
{
	u64 step = 1 + random_next(seed) % 300;

	return MIN(step, left);
}

/* The model: byte by byte. */
static void model_scatter(const struct ibv_sge *list, u32 count, const u8 *src, u64 n)
{
	for (u32 i = 0; i < count; i++)
		for (u32 j = 0; j < list[i].length && n; j++, n--)
			expected[list[i].addr - (uintptr_t)memory + j] = *src++;
}

static void mem_scatter__agrees_with_a_model(void **state)
{
	u64 seed = 5;

	for (int round = 0; round < LISTS / 20; round++) {
		struct ibv_sge list[32];
		struct mem_cursor c = { .sge = list }, g;
		u64 total, n, done = 0;

		c.count = random_list(&seed, list);
		g = c;
		total = mem_list_length(list, (int)c.count);
		n = total ? random_next(&seed) % (total + 1) : 0;
		memcpy(expected, memory, SPACE);
		model_scatter(list, c.count, flat, n);
		while (done < n) {
			u64 step = random_step(&seed, n - done);

			assert_int_equal(mem_scatter(&table, PD, &c, flat + done, step), 0);
			done += step;
		}
		assert_memory_equal(memory, expected, SPACE);
		for (done = 0; done < n;) {
			u64 step = random_step(&seed, n - done);

			assert_int_equal(mem_gather(&table, PD, &g, back + done, step), 0);
			done += step;
		}
		assert_memory_equal(back, flat, n);
		assert_int_equal(mem_scatter(&table, PD, &c, flat, total - n), 0);
		assert_int_equal(mem_scatter(&table, PD, &c, flat, 1), -EMSGSIZE);
	}
}

static void mem_scatter__refuses_what_the_key_does_not_allow(void **state)
{
	struct ibv_sge list[3] = { sge(0, 10), sge(20, 10), sge(40, 10) };
	struct mem_cursor c = { .sge = list, .count = 3 };

	list[1].lkey = read_key;
	memcpy(expected, memory, SPACE);
	memcpy(expected, flat, 10);
	assert_int_equal(mem_scatter(&table, PD, &c, flat, 30), -EACCES);
	assert_memory_equal(memory, expected, SPACE);
	assert_int_equal(c.index * 100 + c.offset, 100);
	c = (struct mem_cursor){ .sge = list, .count = 3 };
	assert_int_equal(mem_gather(&table, PD, &c, back, 30), 0);
	c = (struct mem_cursor){ .sge = list, .count = 3 };
	assert_int_equal(mem_gather(&table, PD + 1, &c, back, 1), -EACCES);
	list[0].addr = (uintptr_t)memory + SPACE - 9;
	assert_int_equal(mem_gather(&table, PD, &c, back, 10), -EACCES);
	list[0].addr = UINT64_MAX - 4;
	c.offset = 8;
	assert_int_equal(mem_gather(&table, PD, &c, back, 1), -EACCES);
}

static void mem_scatter__nothing_needs_nothing(void **state)
{
	struct ibv_sge bad = { .lkey = 0xdead };
	struct mem_cursor c = { .sge = &bad, .count = 1 }, none = { 0 };

	assert_int_equal(mem_scatter(&table, PD, &c, flat, 0), 0);
	assert_int_equal(mem_gather(&table, PD, &c, back, 0), 0);
	assert_int_equal(mem_scatter(&table, PD, &none, flat, 0), 0);
	assert_int_equal(mem_scatter(&table, PD, &none, flat, 1), -EMSGSIZE);
	assert_int_equal(mem_gather(&table, PD, &c, back, 1), -EMSGSIZE);
}

static void mem_pieces__lists_and_moves(void **state)
{
	struct ibv_sge list[4] = { sge(0, 10), sge(20, 0), sge(40, 10), sge(50, 10) };
	struct mem_cursor c = { .sge = list, .count = 4 };
	struct iovec iov[4];

	assert_int_equal(mem_pieces(&table, PD, &c, 15, 0, iov, 4), 2);
	assert_ptr_equal(iov[0].iov_base, memory);
	assert_int_equal(iov[0].iov_len, 10);
	assert_ptr_equal(iov[1].iov_base, memory + 40);
	assert_int_equal(iov[1].iov_len, 5);
	/* Elements that adjoin make one piece. */
	assert_int_equal(mem_pieces(&table, PD, &c, 15, IBV_ACCESS_LOCAL_WRITE, iov, 4), 1);
	assert_int_equal(iov[0].iov_len, 15);
	assert_int_equal(mem_pieces(&table, PD, &c, 1, 0, iov, 4), -EMSGSIZE);
	c = (struct mem_cursor){ .sge = list, .count = 4 };
	assert_int_equal(mem_pieces(&table, PD, &c, 30, 0, iov, 1), -E2BIG);
	assert_int_equal(c.index * 100 + c.offset, 0);
	list[2].lkey = read_key;
	assert_int_equal(mem_pieces(&table, PD, &c, 30, IBV_ACCESS_LOCAL_WRITE, iov, 4), -EACCES);
	assert_int_equal(c.index * 100 + c.offset, 0);
	assert_int_equal(mem_pieces(&table, PD, &c, 0, 0, iov, 4), 0);
}

static void mem_scatter__over_a_page_list(void **state)
{
	static _Alignas(4096) u8 pages_of[4 * 4096];
	u64 pages[] = { (uintptr_t)pages_of + 8192, (uintptr_t)pages_of };
	struct mem_region r = { .iova = 0x9000 + 10,
				.length = 8000,
				.pd = PD,
				.flags = MEM_PAGES,
				.pages = pages,
				.page_count = 2,
				.page_shift = 12,
				.access = IBV_ACCESS_LOCAL_WRITE };
	struct ibv_sge one = { .addr = 0x9000 + 10, .length = 8000 };
	struct mem_cursor c = { .sge = &one, .count = 1 };

	assert_int_equal(mem_register(&table, &r, &one.lkey), 0);
	assert_int_equal(mem_scatter(&table, PD, &c, flat, 8000), 0);
	assert_memory_equal(pages_of + 8192 + 10, flat, 4086);
	assert_memory_equal(pages_of, flat + 4086, 8000 - 4086);
	c.offset = 4000;
	assert_int_equal(mem_gather(&table, PD, &c, back, 4000), 0);
	assert_memory_equal(back, flat + 4000, 4000);
}

static void mem_copy_ordered__copies_any_size_and_alignment(void **state)
{
	for (u32 n = 0; n < 300; n++)
		for (u32 shift = 0; shift < 64; shift++) {
			memcpy(expected, memory, SPACE);
			memcpy(expected + 16 + shift % 8, flat + shift / 8, n);
			assert_int_equal(mem_copy_ordered(memory + 16 + shift % 8, flat + shift / 8,
							  n),
					 0);
			assert_memory_equal(memory, expected, 512);
		}
	assert_int_equal(mem_copy_ordered(memory, flat, SPACE), 0);
	assert_memory_equal(memory, flat, SPACE);
}

static void mem_copy_ordered__ends_may_overlap(void **state)
{
	for (int by = -100; by <= 100; by++) {
		memcpy(memory, flat, SPACE);
		memcpy(expected, flat, SPACE);
		memmove(expected + 200 + by, expected + 200, 500);
		assert_int_equal(mem_copy_ordered(memory + 200 + by, memory + 200, 500), 0);
		assert_memory_equal(memory, expected, SPACE);
	}
}

/* ---- order as another thread sees it ---- */

static struct {
	u8 *at;
	u32 n, rounds, torn;
} watched;

/* Watches the last byte and then looks at all others; answers in the first byte of `back`. */
static void *watch(void *arg)
{
	for (u32 round = 1; round <= watched.rounds; round++) {
		u8 want = (u8)round;

		while (__atomic_load_n(&watched.at[watched.n - 1], __ATOMIC_ACQUIRE) != want)
			cpu_relax();
		for (u32 i = 0; i < watched.n; i++)
			watched.torn += __atomic_load_n(&watched.at[i], __ATOMIC_RELAXED) != want;
		__atomic_store_n(back, want, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void copy_while_watched(u8 *at, u32 n, u32 rounds)
{
	pthread_t watcher;

	memset(memory, 0, SPACE);
	memset(back, 0, 1);
	watched.at = at;
	watched.n = n;
	watched.rounds = rounds;
	watched.torn = 0;
	assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
	for (u32 round = 1; round <= rounds; round++) {
		memset(flat, (int)(u8)round, n);
		assert_int_equal(mem_copy_ordered(at, flat, n), 0);
		while (__atomic_load_n(back, __ATOMIC_ACQUIRE) != (u8)round)
			cpu_relax();
	}
	pthread_join(watcher, NULL);
	assert_int_equal(watched.torn, 0);
}

static void mem_copy_ordered__last_byte_comes_last(void **state)
{
	u32 sizes[] = { 2, 8, 13, 64, 65, 200, 1024, 9000 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		copy_while_watched(memory + i, sizes[i], 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(mem_scatter__agrees_with_a_model),
		TEST(mem_scatter__refuses_what_the_key_does_not_allow),
		TEST(mem_scatter__nothing_needs_nothing),
		TEST(mem_scatter__over_a_page_list),
		TEST(mem_pieces__lists_and_moves),
		TEST(mem_copy_ordered__copies_any_size_and_alignment),
		TEST(mem_copy_ordered__ends_may_overlap),
		TEST(mem_copy_ordered__last_byte_comes_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
