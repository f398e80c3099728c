/* table_test.c: keys: what registration accepts, how keys change, who is waited for. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "mem/mem_priv.h"

enum { PD = 7, QPN = 0x123 };
#define RW (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct mem_table table;
static u8 memory[4096];

static int setup(void **state)
{
	return mem_table_init(&table, NULL);
}

static int teardown(void **state)
{
	mem_table_fini(&table);
	return 0;
}

static struct mem_region region(u32 access)
{
	return (struct mem_region){ .addr = (uintptr_t)memory,
				    .length = sizeof(memory),
				    .iova = (uintptr_t)memory,
				    .access = access,
				    .pd = PD,
				    .flags = MEM_CONTIGUOUS };
}

static u32 registered(u32 access)
{
	struct mem_region r = region(access);
	u32 key = 0;

	assert_int_equal(mem_register(&table, &r, &key), 0);
	assert_int_not_equal(key, 0);
	return key;
}

static bool valid(u32 key)
{
	u32 piece;

	return mem_local(&table, PD, key, (uintptr_t)memory, 1, 0, &piece) != NULL;
}

static int refused(struct mem_region r)
{
	u32 key = 0xabcd;
	int err = mem_register(&table, &r, &key);

	if (err)
		assert_int_equal(key, 0xabcd);
	return err;
}

static void mem_register__key_is_valid_and_its_neighbours_are_not(void **state)
{
	for (int i = 0; i < 5000; i++) {
		u32 key = registered(RW);

		assert_true(valid(key));
		assert_false(valid(key + 1));
		assert_false(valid(key - 1));
		if (i & 1)
			assert_int_equal(mem_deregister(&table, key), 0);
	}
	assert_false(valid(0));
}

static void mem_register__keys_are_scattered(void **state)
{
	u32 rising = 0, tags = 0, last = registered(0);

	for (int i = 0; i < 1000; i++) {
		u32 key = registered(0);

		rising += mem_index(key) == mem_index(last) + 1;
		tags += (key & 0xfff) == (last & 0xfff);
		last = key;
	}
	assert_in_range(rising, 0, 50);
	assert_in_range(tags, 0, 50);
}

/* Nobody who has no key of a process knows where its keys are. */
static void mem_register__keys_of_each_table_lie_elsewhere(void **state)
{
	enum { TABLES = 64, REGION_BITS = MEM_INDEX_BITS - 4 };
	struct mem_region r = region(RW);
	u32 regions = 0, low = 0;

	for (int i = 0; i < TABLES; i++) {
		struct mem_table other;
		u32 key;

		assert_int_equal(mem_table_init(&other, NULL), 0);
		assert_int_equal(mem_register(&other, &r, &key), 0);
		regions |= 1u << (mem_index(key) >> REGION_BITS);
		low += mem_index(key) < 4096;
		mem_table_fini(&other);
	}
	/* of 16; a fair draw misses more than eight of them once in 10^17 */
	assert_in_range(__builtin_popcount(regions), 8, 16);
	assert_in_range(low, 0, TABLES / 4);
}

/* Neighbours share pages, wherever they lie. */
static void mem_register__few_keys_are_in_few_places(void **state)
{
	static u8 seen[MEM_MAX_KEYS / 256];
	u32 places = 0;

	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < 2000; i++) {
		u32 key = registered(0), place = mem_index(key) / 256;

		places += !seen[place];
		seen[place] = 1;
	}
	assert_in_range(places, 8, 9);
}

static void mem_register__next_key_of_an_index_differs(void **state)
{
	static u32 seen[MEM_MAX_KEYS];

	for (int i = 0; i < 20000; i++) {
		u32 key = registered(0);

		assert_int_not_equal(seen[mem_index(key)], key);
		seen[mem_index(key)] = key;
		assert_int_equal(mem_deregister(&table, key), 0);
		assert_false(valid(key));
	}
}

static void mem_register__access_rules(void **state)
{
	u32 lw = IBV_ACCESS_LOCAL_WRITE;

	assert_int_equal(refused(region(IBV_ACCESS_REMOTE_WRITE)), -EINVAL);
	assert_int_equal(refused(region(IBV_ACCESS_REMOTE_ATOMIC)), -EINVAL);
	assert_int_equal(refused(region(IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ)),
			 -EINVAL);
	assert_int_equal(refused(region(1 << 10)), -EINVAL);
	assert_int_equal(refused(region(1u << 31)), -EINVAL);
	assert_int_equal(refused(region(IBV_ACCESS_REMOTE_READ)), 0);
	assert_int_equal(refused(region(lw | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)),
			 0);
	assert_int_equal(refused(region(lw | IBV_ACCESS_RELAXED_ORDERING)), 0);
	assert_int_equal(refused(region(lw | IBV_ACCESS_ON_DEMAND)), 0);
	assert_int_equal(refused(region(IBV_ACCESS_OPTIONAL_RANGE)), 0);
	assert_int_equal(refused(region(lw | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB)), 0);
}

static void mem_register__range_may_end_at_the_top_but_not_wrap(void **state)
{
	struct mem_region r = region(0);

	r.iova = UINT64_MAX - r.length + 1;
	assert_int_equal(refused(r), 0);
	r.iova++;
	assert_int_equal(refused(r), -EINVAL);
	r = region(0);
	r.addr = UINT64_MAX - 10;
	assert_int_equal(refused(r), -EINVAL);
	r.length = UINT64_MAX;
	r.addr = 0;
	r.iova = 2;
	assert_int_equal(refused(r), -EINVAL);
}

static void mem_register__flags_name_one_kind(void **state)
{
	struct mem_region r = region(0);
	u32 bad[] = { 0,
		      MEM_CONTIGUOUS | MEM_PAGES,
		      MEM_CONTIGUOUS | MEM_WINDOW_TYPE2,
		      MEM_CONTIGUOUS | 64,
		      MEM_ALL | MEM_WINDOW,
		      MEM_ZERO_BASED };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		r.flags = bad[i];
		assert_int_equal(refused(r), -EINVAL);
	}
}

static void mem_register__page_list_must_hold_the_range(void **state)
{
	u64 pages[2] = { 0x10000, 0x20000 };
	struct mem_region r = { .iova = 0x1000,
				.length = 8192,
				.flags = MEM_PAGES,
				.pd = PD,
				.pages = pages,
				.page_count = 2,
				.page_shift = 12 };

	assert_int_equal(refused(r), 0);
	r.iova++;
	assert_int_equal(refused(r), -EINVAL);
	r.length--;
	assert_int_equal(refused(r), 0);
	r.page_count = 0;
	assert_int_equal(refused(r), -EINVAL);
	r.length = 0;
	assert_int_equal(refused(r), 0);
	r.page_count = 2;
	r.pages = NULL;
	assert_int_equal(refused(r), -EINVAL);
	r.pages = pages;
	r.page_shift = 64;
	assert_int_equal(refused(r), -EINVAL);
}

static void mem_register__fills_the_table_and_says_so(void **state)
{
	struct mem_region r = region(0);
	u32 key, first = registered(0), more;
	int err, count = 1;

	while ((err = mem_register(&table, &r, &key)) == 0)
		count++;
	assert_int_equal(err, -ENOMEM);
	assert_int_equal(count, MEM_MAX_KEYS - 1);
	assert_int_equal(mem_reserve(&table, PD, 0, &more), -ENOMEM);
	assert_int_equal(mem_deregister(&table, first), 0);
	assert_int_equal(mem_register(&table, &r, &more), 0);
	assert_int_equal(mem_index(more), mem_index(first));
}

static void mem_deregister__only_a_live_key_once(void **state)
{
	u32 key = registered(RW);

	assert_int_equal(mem_deregister(&table, 0), -EINVAL);
	assert_int_equal(mem_deregister(&table, key + 1), -EINVAL);
	assert_int_equal(mem_deregister(&table, key ^ 0x100), -EINVAL);
	assert_int_equal(mem_deregister(&table, UINT32_MAX), -EINVAL);
	assert_true(valid(key));
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_deregister(&table, key), -EINVAL);
}

struct drained {
	u32 key, calls;
	bool was_invalid, was_taken;
};

static bool drain_look(void *arg, u32 index)
{
	struct drained *d = arg;
	struct mem_region r = region(0);
	u32 other;

	assert_int_equal(index, mem_index(d->key));
	d->calls++;
	d->was_invalid = !valid(d->key);
	/* The table stays usable meanwhile, and the index is not given to anybody else. */
	for (int i = 0; i < 300; i++) {
		assert_int_equal(mem_register(&table, &r, &other), 0);
		d->was_taken |= mem_index(other) == index;
	}
	return true;
}

static void mem_deregister__drains_between_clearing_and_reuse(void **state)
{
	struct drained d = { .key = registered(RW) };

	table.drain = drain_look;
	table.drain_arg = &d;
	assert_int_equal(mem_deregister(&table, d.key), 0);
	assert_int_equal(d.calls, 1);
	assert_true(d.was_invalid);
	assert_false(d.was_taken);
}

/* A peer is stopped in the middle of a write. */
static bool drain_in_vain(void *arg, u32 index)
{
	*(u32 *)arg += 1;
	return false;
}

static void mem_deregister__in_vain_leaves_the_key(void **state)
{
	u32 key = registered(RW), calls = 0;

	table.drain = drain_in_vain;
	table.drain_arg = &calls;
	table.quiesce = NULL;
	assert_int_equal(mem_deregister(&table, key), -EBUSY);
	assert_int_equal(calls, 1);
	assert_true(valid(key));
	table.drain = NULL;
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_false(valid(key));
}

static void mem_replace__in_vain_leaves_the_key(void **state)
{
	struct mem_region r = region(0);
	u32 key, other, calls = 0;

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	table.drain = drain_in_vain;
	table.drain_arg = &calls;
	other = key;
	assert_int_equal(mem_replace(&table, &other, &r), -EBUSY);
	assert_int_equal(other, key);
	assert_int_equal(mem_unbind(&table, key, PD), -EBUSY);
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), -EBUSY);
	assert_int_equal(calls, 3);
	assert_true(valid(key));
	table.drain = NULL;
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	assert_false(valid(key));
}

static u32 quiesced, quiesced_key;

static void quiesce_look(void *arg)
{
	assert_ptr_equal(arg, &quiesced);
	assert_false(valid(quiesced_key));
	quiesced++;
}

static void mem_deregister__waits_for_the_engine_but_invalidate_does_not(void **state)
{
	struct mem_region r = region(0);
	u32 key;

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	table.quiesce = quiesce_look;
	table.drain_arg = &quiesced;
	quiesced = 0;
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	assert_int_equal(quiesced, 0);
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	quiesced_key = key;
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_int_equal(quiesced, 1);
	quiesced_key = key;
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(quiesced, 2);
}

static u32 waits;

static bool drain_count(void *arg, u32 index)
{
	waits++;
	return true;
}

static void quiesce_count(void *arg)
{
	waits++;
}

/* No peer copies by it alone, and its owner may not sleep when he maps an FMR anew. */
static void mem_replace__of_pages_waits_for_nobody(void **state)
{
	u64 pages[2] = { (uintptr_t)memory, (uintptr_t)memory + 4096 };
	struct mem_region list = { .length = 4096,
				   .iova = 0x10000,
				   .access = RW,
				   .pd = PD,
				   .flags = MEM_PAGES,
				   .pages = pages,
				   .page_count = 1,
				   .page_shift = 12 };
	struct mem_region plain = region(0);
	u32 key;

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	table.drain = drain_count;
	table.quiesce = quiesce_count;
	waits = 0;
	for (int i = 0; i < 3; i++)
		assert_int_equal(mem_replace(&table, &key, &list), 0);
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	assert_int_equal(waits, 0);
	assert_int_equal(mem_replace(&table, &key, &plain), 0);
	assert_int_equal(mem_replace(&table, &key, &list), 0);
	assert_int_equal(waits, 2);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(waits, 3); /* our own engine */
}

static void mem_reserve__names_an_index_without_content(void **state)
{
	u32 key;

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	assert_false(valid(key));
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), -EINVAL);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_deregister(&table, key), -EINVAL);
}

static void mem_replace__old_key_ends_new_one_begins(void **state)
{
	struct mem_region r = region(0);
	u32 old, key;

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	for (int i = 0; i < 600; i++) {
		old = key;
		assert_int_equal(mem_replace(&table, &key, &r), 0);
		assert_int_equal(mem_index(key), mem_index(old));
		assert_int_not_equal(key, old);
		assert_true(valid(key));
		assert_false(valid(old));
		assert_false(valid(old + 1));
		assert_false(valid(key + 1));
	}
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	assert_false(valid(key));
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_true(valid(key));
}

static void mem_replace__changes_an_ordinary_region(void **state)
{
	struct mem_region r = region(0);
	u32 old = registered(RW), key = old, piece;

	r.pd = PD + 1;
	r.length = 10;
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_false(valid(old));
	assert_false(valid(key));
	assert_non_null(mem_local(&table, PD + 1, key, r.addr, 10, 0, &piece));
	assert_null(mem_local(&table, PD + 1, key, r.addr, 11, 0, &piece));
	assert_int_equal(mem_replace(&table, &old, &r), -EINVAL);
	assert_int_equal(mem_deregister(&table, old), -EINVAL);
	assert_int_equal(mem_deregister(&table, key), 0);
}

static void mem_replace__failure_leaves_the_old_content(void **state)
{
	struct mem_region r = region(IBV_ACCESS_REMOTE_WRITE);
	u32 key = registered(RW), same = key;

	assert_int_equal(mem_replace(&table, &key, &r), -EINVAL);
	assert_int_equal(key, same);
	assert_true(valid(key));
}

static void mem_invalidate__needs_pd_and_key_and_no_ordinary_region(void **state)
{
	struct mem_region r = region(0);
	u32 ordinary = registered(RW), key;

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_int_equal(mem_invalidate(&table, ordinary, PD, QPN), -EINVAL);
	assert_int_equal(mem_invalidate(&table, key, PD + 1, QPN), -EINVAL);
	assert_int_equal(mem_invalidate(&table, key ^ 1, PD, QPN), -EINVAL);
	assert_int_equal(mem_invalidate(&table, 0, PD, QPN), -EINVAL);
	assert_true(valid(key) && valid(ordinary));
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), -EINVAL);
}

static struct mem_region window(u32 parent, u32 flags)
{
	return (struct mem_region){ .addr = (uintptr_t)memory + 16,
				    .length = 64,
				    .iova = (uintptr_t)memory + 16,
				    .pd = PD,
				    .qpn = QPN,
				    .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
				    .flags = MEM_WINDOW | flags,
				    .parent = parent };
}

static void mem_replace__window_needs_a_fit_parent(void **state)
{
	u32 mw = IBV_ACCESS_MW_BIND;
	u32 parent = registered(RW | mw), plain = registered(RW), read = registered(mw), key;
	struct mem_region w = window(parent, 0);

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	w.parent = plain;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w.parent = read; /* no local write */
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w.parent = parent + 1;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w.parent = key;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w = window(parent, 0);
	w.pd = PD + 1;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w = window(parent, 0);
	w.length = sizeof(memory) - 15;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w.addr--, w.iova--;
	assert_int_equal(mem_replace(&table, &key, &w), 0);
	w = window(parent, 0);
	w.addr = (uintptr_t)memory - 1;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	w = window(parent, 0);
	w.access |= IBV_ACCESS_LOCAL_WRITE;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
}

static void mem_deregister__parent_with_windows_is_busy(void **state)
{
	u32 parent = registered(RW | IBV_ACCESS_MW_BIND), two, one;
	struct mem_region r = region(RW), w = window(parent, 0);

	assert_int_equal(mem_reserve(&table, PD, 0, &one), 0);
	assert_int_equal(mem_reserve(&table, PD, 0, &two), 0);
	assert_int_equal(mem_replace(&table, &one, &w), 0);
	assert_int_equal(mem_replace(&table, &one, &w), 0);
	assert_int_equal(mem_replace(&table, &two, &w), 0);
	assert_int_equal(mem_deregister(&table, parent), -EBUSY);
	assert_int_equal(mem_replace(&table, &parent, &r), -EBUSY);
	assert_int_equal(mem_unbind(&table, one, PD), 0);
	assert_int_equal(mem_deregister(&table, parent), -EBUSY);
	assert_int_equal(mem_deregister(&table, two), 0);
	assert_int_equal(mem_deregister(&table, parent), 0);
	assert_int_equal(mem_deregister(&table, one), 0);
}

static void mem_invalidate__spares_a_window_of_type_1(void **state)
{
	u32 parent = registered(RW | IBV_ACCESS_MW_BIND), key;
	struct mem_region w = window(parent, 0);

	assert_int_equal(mem_reserve(&table, PD, 0, &key), 0);
	assert_int_equal(mem_replace(&table, &key, &w), 0);
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), -EINVAL);
	assert_int_equal(mem_unbind(&table, key, PD + 1), -EINVAL);
	assert_int_equal(mem_deregister(&table, parent), -EBUSY);
	assert_int_equal(mem_unbind(&table, key, PD), 0);
	assert_int_equal(mem_unbind(&table, key, PD), -EINVAL);
	assert_int_equal(mem_deregister(&table, parent), 0);
	assert_int_equal(mem_deregister(&table, key), 0);
}

/* A region that can be invalidated is kept by a window, as one that can be deregistered is. */
static void mem_invalidate__keeps_the_region_of_a_window(void **state)
{
	struct mem_region r = region(RW | IBV_ACCESS_MW_BIND), w;
	u32 parent, key;

	assert_int_equal(mem_reserve(&table, PD, 0, &parent), 0);
	assert_int_equal(mem_replace(&table, &parent, &r), 0);
	assert_int_equal(mem_reserve(&table, PD, MEM_WINDOW_TYPE2, &key), 0);
	w = window(parent, MEM_WINDOW_TYPE2);
	assert_int_equal(mem_replace(&table, &key, &w), 0);
	assert_int_equal(mem_invalidate(&table, parent, PD, QPN), -EBUSY);
	assert_int_equal(mem_unbind(&table, parent, PD), -EBUSY);
	assert_true(valid(parent));
	assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	assert_int_equal(mem_invalidate(&table, parent, PD, QPN), 0);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_deregister(&table, parent), 0);
}

static void mem_replace__type2_window_takes_the_low_bits_it_is_given(void **state)
{
	u32 parent = registered(RW | IBV_ACCESS_MW_BIND), key, wanted;
	struct mem_region w = window(parent, MEM_WINDOW_TYPE2);

	assert_int_equal(mem_reserve(&table, PD, MEM_WINDOW_TYPE2, &key), 0);
	assert_int_equal(key & 0xff, 0);
	for (u32 low = 0; low < 256; low++) {
		wanted = (key & ~0xffu) | low;
		key = wanted;
		assert_int_equal(mem_replace(&table, &key, &w), 0);
		assert_int_equal(key, wanted);
		assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
		assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
	}
	wanted = key ^ 0x100;
	assert_int_equal(mem_replace(&table, &wanted, &w), -EINVAL);
	assert_int_equal(mem_replace(&table, &key, &w), 0);
	/* Whoever deallocates it may know an older low part. */
	assert_int_equal(mem_deregister(&table, key ^ 0x5a), 0);
	assert_int_equal(mem_deregister(&table, parent), 0);
}

static void mem_replace__type2_window_needs_its_domain_and_length(void **state)
{
	u32 parent = registered(RW | IBV_ACCESS_MW_BIND), key, other, plain;
	struct mem_region w = window(parent, MEM_WINDOW_TYPE2), type1 = window(parent, 0);

	assert_int_equal(mem_reserve(&table, PD, MEM_WINDOW_TYPE2, &key), 0);
	assert_int_equal(mem_reserve(&table, PD + 1, MEM_WINDOW_TYPE2, &other), 0);
	assert_int_equal(mem_reserve(&table, PD, 0, &plain), 0);
	assert_int_equal(mem_replace(&table, &other, &w), -EINVAL);
	assert_int_equal(mem_replace(&table, &plain, &w), -EINVAL);
	assert_int_equal(mem_replace(&table, &key, &type1), -EINVAL);
	w.length = 0;
	assert_int_equal(mem_replace(&table, &key, &w), -EINVAL);
	assert_int_equal(mem_deregister(&table, parent), 0);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_deregister(&table, other), 0);
	assert_int_equal(mem_deregister(&table, plain), 0);
}

/* Only its own QP ends it, one by one or all at once. */
static void mem_unbind_qp__ends_what_is_bound_to_it(void **state)
{
	u32 parent = registered(RW | IBV_ACCESS_MW_BIND), keys[3];
	struct mem_region w = window(parent, MEM_WINDOW_TYPE2);

	for (u32 i = 0; i < 3; i++) {
		w.qpn = i == 2 ? QPN + 1 : QPN;
		assert_int_equal(mem_reserve(&table, PD, MEM_WINDOW_TYPE2, &keys[i]), 0);
		assert_int_equal(mem_replace(&table, &keys[i], &w), 0);
	}
	assert_int_equal(mem_invalidate(&table, keys[0], PD, QPN + 1), -EINVAL);
	mem_unbind_qp(&table, QPN);
	assert_int_equal(mem_invalidate(&table, keys[0], PD, QPN), -EINVAL);
	assert_int_equal(mem_invalidate(&table, keys[1], PD, QPN), -EINVAL);
	assert_int_equal(mem_deregister(&table, parent), -EBUSY);
	assert_int_equal(mem_invalidate(&table, keys[2], PD, QPN + 1), 0);
	assert_int_equal(mem_deregister(&table, parent), 0);
	for (u32 i = 0; i < 3; i++)
		assert_int_equal(mem_deregister(&table, keys[i]), 0);
}

static void mem_modify__changes_rights_and_domain_alone(void **state)
{
	u32 key = registered(RW), reserved, before = key;
	u64 piece;

	assert_int_equal(mem_reserve(&table, PD, 0, &reserved), 0);
	assert_int_equal(mem_modify(&table, key, PD + 1, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(key, before);
	assert_null(mem_remote(&table, PD, QPN, key, (uintptr_t)memory, 8, 0, &piece));
	assert_null(mem_remote(&table, PD + 1, QPN, key, (uintptr_t)memory, 8,
			       IBV_ACCESS_REMOTE_WRITE, &piece));
	assert_ptr_equal(mem_remote(&table, PD + 1, QPN, key, (uintptr_t)memory, 8,
				    IBV_ACCESS_REMOTE_READ, &piece),
			 memory);
	assert_int_equal(mem_modify(&table, key, PD, IBV_ACCESS_REMOTE_WRITE), -EINVAL);
	assert_int_equal(mem_modify(&table, key, PD, 1 << 10), -EINVAL);
	assert_int_equal(mem_modify(&table, key ^ 1, PD, RW), -EINVAL);
	assert_int_equal(mem_modify(&table, reserved, PD, RW), -EINVAL);
	assert_int_equal(mem_modify(&table, 0, PD, RW), -EINVAL);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_deregister(&table, reserved), 0);
}

/* ---- fast registration ---- */

static void mem_fast__stages_registers_and_ends(void **state)
{
	u64 pages[3] = { (uintptr_t)memory & ~0xfffull, 0x5000, (uintptr_t)memory & ~0xfffull };
	struct mem_region r = { .length = 8,
				.iova = (uintptr_t)memory,
				.flags = MEM_PAGES,
				.pages = pages,
				.page_count = 1,
				.page_shift = 12 };
	u32 key, ordinary = registered(RW);
	u64 piece;

	assert_int_equal(mem_fast_reserve(&table, PD, 0, &key), -EINVAL);
	assert_int_equal(mem_fast_reserve(&table, PD, 2, &key), 0);
	assert_int_equal(mem_fast_register(&table, key, PD, RW), -EINVAL); /* nothing staged */
	assert_int_equal(mem_fast_stage(&table, ordinary, &r), -EINVAL);
	r.page_count = 3;
	assert_int_equal(mem_fast_stage(&table, key, &r), -EINVAL);
	r.page_count = 1;
	r.length = 1 << 20;
	assert_int_equal(mem_fast_stage(&table, key, &r), -EINVAL);
	r.length = 8;
	assert_int_equal(mem_fast_stage(&table, key, &r), 0);
	assert_null(mem_remote(&table, PD, QPN, key, r.iova, 8, IBV_ACCESS_REMOTE_READ, &piece));
	assert_int_equal(mem_fast_register(&table, key, PD + 1, RW), -EINVAL);
	assert_int_equal(mem_fast_register(&table, key, PD, IBV_ACCESS_REMOTE_WRITE), -EINVAL);
	assert_int_equal(mem_replace(&table, &key, &r), -EINVAL); /* that is for FMRs */
	for (u32 low = 0; low < 256; low += 51) {
		key = (key & ~0xffu) | low;
		assert_int_equal(mem_fast_register(&table, key, PD, RW), 0);
		assert_int_equal(mem_fast_register(&table, key, PD, RW), -EINVAL); /* it is valid */
		piece = 8;
		assert_ptr_equal(mem_remote(&table, PD, QPN, key, r.iova, 8,
					    IBV_ACCESS_REMOTE_READ, &piece),
				 memory);
		assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0);
		assert_int_equal(mem_invalidate(&table, key, PD, QPN), 0); /* it is free */
		assert_int_equal(mem_invalidate(&table, key, PD + 1, QPN), -EINVAL);
		assert_int_equal(mem_invalidate(&table, key ^ 1, PD, QPN), -EINVAL);
		assert_int_equal(mem_unbind(&table, key, PD), -EINVAL);
	}
	assert_int_equal(mem_fast_register(&table, key, PD, RW), 0);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_fast_register(&table, key, PD, RW), -EINVAL);
	assert_int_equal(mem_fast_stage(&table, key, &r), -EINVAL);
	assert_int_equal(mem_deregister(&table, ordinary), 0);
}

static void mem_table_init__uses_the_entries_it_is_given(void **state)
{
	size_t bytes = MEM_MAX_KEYS * sizeof(struct mem_entry);
	struct mem_entry *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct mem_region r = region(RW);
	struct mem_table t;
	u32 key;

	assert_ptr_not_equal(shared, MAP_FAILED);
	assert_int_equal(sizeof(struct mem_entry), 64);
	assert_int_equal(mem_table_init(&t, shared), 0);
	assert_int_equal(mem_register(&t, &r, &key), 0);
	assert_int_equal(shared[mem_index(key)].key, key);
	assert_int_equal(shared[mem_index(key)].pd, PD);
	assert_int_equal(shared[mem_index(key)].addr, (uintptr_t)memory);
	mem_table_fini(&t);
	assert_int_equal(shared[mem_index(key)].key, 0);
	munmap(shared, bytes);
}

static void mem_table_fini__frees_page_lists(void **state)
{
	u64 pages[2] = { 0x10000, 0x20000 };
	struct mem_region r = { .length = 8192,
				.flags = MEM_PAGES,
				.pages = pages,
				.page_count = 2,
				.page_shift = 12 };
	u32 key;

	/* The leak checker is the judge. */
	for (int i = 0; i < 10; i++)
		assert_int_equal(mem_register(&table, &r, &key), 0);
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_int_equal(mem_deregister(&table, key), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A key made while peers are away is away, too; and none is shared any more. */
static bool away_look(void *arg, u32 index) NO_THREAD_SAFETY
{
	u32 key = *(u32 *)arg, other;
	struct mem_region r = region(RW);

	assert_int_equal(index, MEM_EVERY_KEY);
	assert_true(valid(key));
	assert_int_equal(table.entries[mem_index(key)].flags, MEM_CONTIGUOUS | MEM_AWAY);
	assert_int_equal(table.entries[mem_index(key)].shared, 0);
	r.shared = 8192;
	assert_int_equal(mem_register(&table, &r, &other), 0);
	assert_int_equal(table.entries[mem_index(other)].flags, MEM_CONTIGUOUS | MEM_AWAY);
	assert_int_equal(table.entries[mem_index(other)].shared, 0);
	*(u32 *)arg = other;
	return true;
}

static bool away_in_vain(void *arg, u32 index)
{
	table.drain = NULL;
	mem_exclude_peers(&table);
	return false;
}

/* Meanwhile a fork has excluded all peers: the key comes back without its place in the file. */
static void mem_exclude_peers__while_a_key_is_hidden(void **state)
{
	struct mem_region r = region(RW);
	u32 key;

	r.shared = 4096;
	assert_int_equal(mem_register(&table, &r, &key), 0);
	table.drain = away_in_vain;
	assert_int_equal(mem_deregister(&table, key), -EBUSY);
	assert_true(valid(key));
	assert_int_equal(table.entries[mem_index(key)].flags, MEM_CONTIGUOUS | MEM_AWAY);
	assert_int_equal(table.entries[mem_index(key)].shared, 0);
	mem_admit_peers(&table);
	assert_int_equal(table.entries[mem_index(key)].flags, MEM_CONTIGUOUS);
	assert_int_equal(mem_deregister(&table, key), 0);
}

static void mem_exclude_peers__until_they_are_admitted(void **state)
{
	struct mem_region r = region(RW);
	u32 key, other;

	r.shared = 4096;
	assert_int_equal(mem_register(&table, &r, &key), 0);
	assert_int_equal(table.entries[mem_index(key)].shared, 4096);
	other = key;
	table.drain_arg = &other;
	table.drain = away_look;
	mem_exclude_peers(&table);
	table.drain = NULL;
	assert_int_not_equal(other, key);
	mem_admit_peers(&table);
	assert_int_equal(table.entries[mem_index(key)].flags, MEM_CONTIGUOUS);
	assert_int_equal(table.entries[mem_index(other)].flags, MEM_CONTIGUOUS);
	assert_true(valid(key) && valid(other));
	assert_int_equal(mem_replace(&table, &key, &r), 0);
	assert_int_equal(table.entries[mem_index(key)].shared, 0);
}

static void mem_exclude_peers__what_stays_shared(void **state)
{
	struct mem_region r = region(RW);
	u32 key, other;

	r.shared = 4096;
	r.flags |= MEM_STAYS_SHARED;
	assert_int_equal(mem_register(&table, &r, &key), 0);
	mem_exclude_peers(&table);
	assert_int_equal(table.entries[mem_index(key)].flags,
			 MEM_CONTIGUOUS | MEM_AWAY | MEM_STAYS_SHARED);
	assert_int_equal(table.entries[mem_index(key)].shared, 4096);
	r.shared = 8192;
	assert_int_equal(mem_register(&table, &r, &other), 0);
	mem_admit_peers(&table);
	assert_int_equal(table.entries[mem_index(key)].flags, MEM_CONTIGUOUS | MEM_STAYS_SHARED);
	assert_int_equal(table.entries[mem_index(other)].shared, 8192);
	table.drain = away_in_vain;
	assert_int_equal(mem_deregister(&table, key), -EBUSY);
	assert_int_equal(table.entries[mem_index(key)].shared, 4096);
	mem_admit_peers(&table);
	assert_int_equal(mem_deregister(&table, key), 0);
	assert_int_equal(mem_deregister(&table, other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(mem_register__key_is_valid_and_its_neighbours_are_not),
		TEST(mem_register__keys_are_scattered),
		TEST(mem_register__keys_of_each_table_lie_elsewhere),
		TEST(mem_register__few_keys_are_in_few_places),
		TEST(mem_register__next_key_of_an_index_differs),
		TEST(mem_register__access_rules),
		TEST(mem_register__range_may_end_at_the_top_but_not_wrap),
		TEST(mem_register__flags_name_one_kind),
		TEST(mem_register__page_list_must_hold_the_range),
		TEST(mem_register__fills_the_table_and_says_so),
		TEST(mem_deregister__only_a_live_key_once),
		TEST(mem_deregister__drains_between_clearing_and_reuse),
		TEST(mem_deregister__in_vain_leaves_the_key),
		TEST(mem_replace__in_vain_leaves_the_key),
		TEST(mem_replace__of_pages_waits_for_nobody),
		TEST(mem_deregister__waits_for_the_engine_but_invalidate_does_not),
		TEST(mem_reserve__names_an_index_without_content),
		TEST(mem_replace__old_key_ends_new_one_begins),
		TEST(mem_replace__changes_an_ordinary_region),
		TEST(mem_replace__failure_leaves_the_old_content),
		TEST(mem_replace__window_needs_a_fit_parent),
		TEST(mem_replace__type2_window_takes_the_low_bits_it_is_given),
		TEST(mem_invalidate__needs_pd_and_key_and_no_ordinary_region),
		TEST(mem_invalidate__spares_a_window_of_type_1),
		TEST(mem_invalidate__keeps_the_region_of_a_window),
		TEST(mem_replace__type2_window_needs_its_domain_and_length),
		TEST(mem_unbind_qp__ends_what_is_bound_to_it),
		TEST(mem_modify__changes_rights_and_domain_alone),
		TEST(mem_fast__stages_registers_and_ends),
		TEST(mem_deregister__parent_with_windows_is_busy),
		TEST(mem_table_init__uses_the_entries_it_is_given),
		TEST(mem_exclude_peers__until_they_are_admitted),
		TEST(mem_exclude_peers__what_stays_shared),
		TEST(mem_exclude_peers__while_a_key_is_hidden),
		TEST(mem_table_fini__frees_page_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
