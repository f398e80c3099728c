/* access_test.c: lookups: bounds, rights, windows, page lists; a random comparison with a model. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "mem/mem_priv.h"

enum { PD = 7, QPN = 0x123, PAGE = 4096 };
#define LOCAL IBV_ACCESS_LOCAL_WRITE
#define ALL_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct mem_table table;
static _Alignas(4096) u8 memory[8 * PAGE];

static int setup(void **state)
{
	return mem_table_init(&table, NULL);
}

static int teardown(void **state)
{
	mem_table_fini(&table);
	return 0;
}

static u32 add(struct mem_region r)
{
	u32 key = 0;

	assert_int_equal(mem_register(&table, &r, &key), 0);
	return key;
}

static u32 add_memory(u64 iova, u64 length, u32 access)
{
	return add((struct mem_region){ .addr = (uintptr_t)memory,
					.iova = iova,
					.length = length,
					.access = access,
					.pd = PD,
					.flags = MEM_CONTIGUOUS });
}

static void *local(u32 key, u64 addr, u32 length, u32 access)
{
	u32 piece;
	void *p = mem_local(&table, PD, key, addr, length, access, &piece);

	if (p)
		assert_int_equal(piece, length);
	return p;
}

static void *remote(u32 key, u64 va, u64 length, u32 access)
{
	u64 piece;
	void *p = mem_remote(&table, PD, QPN, key, va, length, access, &piece);

	if (p)
		assert_int_equal(piece, length);
	return p;
}

static void mem_local__bounds(void **state)
{
	u64 a = (uintptr_t)memory;
	u32 key = add_memory(a, 1000, LOCAL);

	assert_ptr_equal(local(key, a, 1000, LOCAL), memory);
	assert_ptr_equal(local(key, a + 999, 1, 0), memory + 999);
	assert_null(local(key, a, 1001, 0));
	assert_null(local(key, a + 999, 2, 0));
	assert_null(local(key, a + 1000, 1, 0));
	assert_null(local(key, a - 1, 1, 0));
	assert_null(local(key, a - 1, 2, 0));
	assert_null(local(key, a, UINT32_MAX, 0));
	assert_null(local(key, UINT64_MAX, 1, 0));
	assert_null(local(key, 0, 1, 0));
}

static void mem_remote__bounds_do_not_overflow(void **state)
{
	u64 top = UINT64_MAX - 999;
	u32 key = add_memory(top, 1000, LOCAL | ALL_REMOTE);
	u32 low = add_memory(0, 1000, LOCAL | ALL_REMOTE);

	assert_ptr_equal(remote(key, top, 1000, IBV_ACCESS_REMOTE_READ), memory);
	assert_ptr_equal(remote(key, UINT64_MAX, 1, IBV_ACCESS_REMOTE_READ), memory + 999);
	assert_null(remote(key, UINT64_MAX, 2, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(key, 0, 1, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(key, top, UINT64_MAX, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(key, top + 1, UINT64_MAX, IBV_ACCESS_REMOTE_READ));
	assert_ptr_equal(remote(low, 999, 1, IBV_ACCESS_REMOTE_READ), memory + 999);
	assert_null(remote(low, 999, UINT64_MAX - 998, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(low, UINT64_MAX, 2, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(low, 1000, UINT64_MAX, IBV_ACCESS_REMOTE_READ));
}

static void mem_local__zero_length_needs_no_key(void **state)
{
	u32 piece = 9;
	u64 run = 9;

	assert_non_null(mem_local(&table, PD, 0xdeadbeef, 0, 0, LOCAL, &piece));
	assert_int_equal(piece, 0);
	assert_non_null(mem_remote(&table, PD, QPN, 0, 0, 0, IBV_ACCESS_REMOTE_WRITE, &run));
	assert_int_equal(run, 0);
}

static void mem_local__rights(void **state)
{
	u64 a = (uintptr_t)memory;
	u32 read = add_memory(a, 100, 0), write = add_memory(a, 100, LOCAL), piece;

	assert_non_null(local(read, a, 100, 0));
	assert_null(local(read, a, 100, LOCAL));
	assert_non_null(local(write, a, 100, LOCAL));
	assert_null(remote(write, a, 100, IBV_ACCESS_REMOTE_READ));
	assert_null(mem_local(&table, PD + 1, write, a, 100, LOCAL, &piece));
}

static void mem_remote__rights(void **state)
{
	u32 rights[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
			 IBV_ACCESS_REMOTE_ATOMIC };
	u64 a = (uintptr_t)memory, piece;

	for (int has = 0; has < 3; has++) {
		u32 key = add_memory(a, 100, LOCAL | rights[has]);

		for (int want = 0; want < 3; want++)
			assert_int_equal(remote(key, a, 8, rights[want]) != NULL, has == want);
		assert_null(mem_remote(&table, PD + 1, QPN, key, a, 8, rights[has], &piece));
	}
}

static void mem_local__whole_address_space(void **state)
{
	u32 key = add(
		(struct mem_region){ .pd = PD, .flags = MEM_ALL, .access = LOCAL | ALL_REMOTE });
	u64 a = (uintptr_t)memory;
	void *hole = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_equal(local(key, a, 100, LOCAL), memory);
	assert_ptr_equal(remote(key, a + 5, 100, IBV_ACCESS_REMOTE_WRITE), memory + 5);
	assert_null(remote(key, (uintptr_t)hole, 8, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(key, UINT64_MAX - 7, 8, IBV_ACCESS_REMOTE_WRITE));
	munmap(hole, PAGE);
	assert_null(remote(key, (uintptr_t)hole, 8, IBV_ACCESS_REMOTE_WRITE));
}

/* Pages 3, 4, 1 of `memory`, from byte 100 of the first. */
static u32 add_pages(u32 access)
{
	u64 pages[] = { (uintptr_t)memory + 3 * PAGE, (uintptr_t)memory + 4 * PAGE,
			(uintptr_t)memory + 1 * PAGE };

	return add((struct mem_region){ .iova = 0x70000 + 100,
					.length = 3 * PAGE - 100,
					.pd = PD,
					.flags = MEM_PAGES,
					.access = access,
					.pages = pages,
					.page_count = 3,
					.page_shift = 12 });
}

static void mem_local__translates_pages(void **state)
{
	u32 key = add_pages(LOCAL | ALL_REMOTE), piece;
	u64 run;

	assert_ptr_equal(mem_local(&table, PD, key, 0x70000 + 100, 50, LOCAL, &piece),
			 memory + 3 * PAGE + 100);
	assert_int_equal(piece, 50);
	/* Two adjoining pages are one piece; the third lies elsewhere. */
	mem_local(&table, PD, key, 0x70000 + 100, 3 * PAGE - 100, LOCAL, &piece);
	assert_int_equal(piece, 2 * PAGE - 100);
	assert_ptr_equal(
		mem_remote(&table, PD, QPN, key, 0x72000 + 7, 20, IBV_ACCESS_REMOTE_READ, &run),
		memory + PAGE + 7);
	assert_int_equal(run, 20);
	assert_null(mem_local(&table, PD, key, 0x70000 + 99, 1, LOCAL, &piece));
	assert_null(mem_local(&table, PD, key, 0x73000, 1, LOCAL, &piece));
	assert_ptr_equal(mem_local(&table, PD, key, 0x73000 - 1, 1, LOCAL, &piece),
			 memory + 2 * PAGE - 1);
}

static struct mem_region window_of(u32 parent, u64 addr, u64 length, u64 iova, u32 flags)
{
	return (struct mem_region){ .addr = addr,
				    .length = length,
				    .iova = iova,
				    .pd = PD,
				    .qpn = QPN,
				    .access = IBV_ACCESS_REMOTE_READ,
				    .flags = MEM_WINDOW | flags,
				    .parent = parent };
}

static void mem_remote__windows(void **state)
{
	u64 a = 0x5000, piece;
	u32 parent = add_memory(a, 1000, LOCAL | IBV_ACCESS_MW_BIND);
	u32 one = add(window_of(parent, a + 10, 20, a + 10, 0));
	u32 two = add(window_of(parent, a + 10, 20, a + 10, MEM_WINDOW_TYPE2));
	u32 zero = add(window_of(parent, a + 10, 20, 0, MEM_ZERO_BASED));

	assert_ptr_equal(remote(one, a + 10, 20, IBV_ACCESS_REMOTE_READ), memory + 10);
	assert_null(remote(one, a + 10, 21, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(one, a + 9, 1, IBV_ACCESS_REMOTE_READ));
	assert_null(remote(one, a + 10, 1, IBV_ACCESS_REMOTE_WRITE));
	assert_null(local(one, a + 10, 1, 0));
	assert_non_null(
		mem_remote(&table, PD, QPN + 1, one, a + 10, 1, IBV_ACCESS_REMOTE_READ, &piece));
	assert_ptr_equal(remote(two, a + 29, 1, IBV_ACCESS_REMOTE_READ), memory + 29);
	assert_null(
		mem_remote(&table, PD, QPN + 1, two, a + 10, 1, IBV_ACCESS_REMOTE_READ, &piece));
	assert_ptr_equal(remote(zero, 19, 1, IBV_ACCESS_REMOTE_READ), memory + 29);
	assert_null(remote(zero, 20, 1, IBV_ACCESS_REMOTE_READ));
}

static void mem_remote__window_onto_pages(void **state)
{
	u32 parent = add_pages(LOCAL | IBV_ACCESS_MW_BIND);
	u32 key = add(window_of(parent, 0x71000 + 5, PAGE, 0, MEM_ZERO_BASED));
	u64 run;

	assert_ptr_equal(mem_remote(&table, PD, QPN, key, 0, PAGE, IBV_ACCESS_REMOTE_READ, &run),
			 memory + 4 * PAGE + 5);
	assert_int_equal(run, PAGE - 5);
	assert_ptr_equal(
		mem_remote(&table, PD, QPN, key, PAGE - 5, 5, IBV_ACCESS_REMOTE_READ, &run),
		memory + PAGE);
	assert_null(mem_remote(&table, PD, QPN, key, PAGE, 1, IBV_ACCESS_REMOTE_READ, &run));
}

/* ---- random comparison with a model ---- */

enum { MODEL_REGIONS = 64, MODEL_STEPS = 200000 };

static struct {
	u32 key;
	u64 iova, length;
	u32 access, pd;
} model[MODEL_REGIONS];

static u64 random_next(u64 *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 17 ^ *seed >> 41;
}

/* An address near the edges of things. */
static u64 random_address(u64 *seed, int i)
{
	u64 near = random_next(seed) % 5 - 2;

	switch (random_next(seed) % 5) {
	case 0:
		return model[i].iova + near;
	case 1:
		return model[i].iova + model[i].length + near;
	case 2:
		return near;
	case 3:
		return model[i].iova + model[i].length / 2;
	default:
		return random_next(seed) << 30;
	}
}

static void model_replace(u64 *seed, int i)
{
	struct mem_region r = { .addr = (uintptr_t)memory, .flags = MEM_CONTIGUOUS };

	if (model[i].key)
		assert_int_equal(mem_deregister(&table, model[i].key), 0);
	r.length = model[i].length = random_next(seed) % (4 * PAGE);
	r.iova = model[i].iova = random_next(seed) % 3 ? random_next(seed) << 13
						       : UINT64_MAX - r.length + 1;
	r.pd = model[i].pd = (u32)random_next(seed) % 3;
	r.access = model[i].access = LOCAL | ((u32)random_next(seed) & ALL_REMOTE);
	if (mem_register(&table, &r, &model[i].key) < 0)
		model[i].key = 0;
}

static void mem_remote__agrees_with_a_model(void **state)
{
	u64 seed = 20240917, piece;
	u32 hits = 0;

	memset(model, 0, sizeof(model));
	for (int step = 0; step < MODEL_STEPS; step++) {
		int i = (int)(random_next(&seed) % MODEL_REGIONS);
		u64 va, length;
		u32 pd, want = IBV_ACCESS_REMOTE_WRITE << random_next(&seed) % 3;
		__extension__ unsigned __int128 end, top;
		bool ok;
		void *p;

		if (step % 16 == 0 || !model[i].key)
			model_replace(&seed, i);
		va = random_address(&seed, i);
		length = random_next(&seed) % 4 ? 1 + random_next(&seed) % 16
						: random_address(&seed, i) | 1;
		pd = random_next(&seed) % 8 ? model[i].pd : (u32)random_next(&seed) % 3;
		end = va, end += length;
		top = model[i].iova, top += model[i].length;
		ok = model[i].key && pd == model[i].pd && (model[i].access & want) == want &&
		     va >= model[i].iova && end <= top;
		p = mem_remote(&table, pd, QPN, model[i].key, va, length, want, &piece);
		assert_int_equal(p != NULL, ok);
		if (ok)
			assert_ptr_equal(p, memory + (va - model[i].iova));
		hits += ok;
	}
	assert_in_range(hits, MODEL_STEPS / 100, MODEL_STEPS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(mem_local__bounds),
		TEST(mem_local__zero_length_needs_no_key),
		TEST(mem_local__rights),
		TEST(mem_local__whole_address_space),
		TEST(mem_local__translates_pages),
		TEST(mem_remote__bounds_do_not_overflow),
		TEST(mem_remote__rights),
		TEST(mem_remote__windows),
		TEST(mem_remote__window_onto_pages),
		TEST(mem_remote__agrees_with_a_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
