/* fmr_pool.c: maps from a pool of FMRs and cleans the used ones in batches.
 * In: consumers    Out: ib_map_phys_fmr, ib_unmap_fmr
 * Runs: the caller; cleaning on the pool's thread
 * Locks: pool->lock, held across map_phys_fmr (which never blocks), never across unmap_fmr or the
 * consumer's function
 *
 * An FMR is on the free list (clean or still mapped), on the dirty list, being cleaned, or given
 * out (on no list).
 */
#include <pthread.h>
#include <rdma/ib_fmr_pool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cond.h"
#include "base/fork.h"
#include "base/thread.h"
#include "core/core_priv.h"

enum {
	POOL_BUCKETS = 256,
	POOL_DEFAULT_REMAPS = 32,
	POOL_MAX_PAGES = 1 << 20,
	POOL_MAX_SIZE = 1 << 20
};

struct ib_fmr_pool {
	struct lock lock;
	struct list_head free GUARDED_BY(lock);  /* the longest unused first */
	struct list_head dirty GUARDED_BY(lock); /* must be unmapped before they are mapped again */
	int dirty_count GUARDED_BY(lock);
	struct ib_pool_fmr **buckets PT_GUARDED_BY(lock); /* NULL: no cache */
	int size FIXED; /* how many there are */
	int max_pages FIXED, max_remaps FIXED, watermark FIXED;
	struct ib_pool_fmr **members FIXED;
	void (*flush_function)(struct ib_fmr_pool *pool, void *arg) FIXED;
	void *flush_arg FIXED;
	u32 wanted ATOMIC_ONLY;  /* cleanings asked for; the thread waits for it to change */
	u32 done ATOMIC_ONLY;    /* cleanings that have been; flushers wait for it to change */
	u32 all ATOMIC_ONLY;     /* the next cleaning is a flush: of all that is mapped */
	u32 stop ATOMIC_ONLY;    /* the thread is to end */
	struct fork_mark owner FIXED; /* the process that has the thread */
	pthread_t thread FIXED;
};

static u32 cache_hash(u64 first_page)
{
	return (u32)((first_page * 0x9e3779b97f4a7c15ull) >> 56) % POOL_BUCKETS;
}

static bool cache_matches(const struct ib_pool_fmr *fmr, const u64 *pages, int count, u64 iova)
{
	return fmr->io_virtual_address == iova && fmr->page_list_len == count &&
	       memcmp(fmr->page_list, pages, (size_t)count * sizeof(u64)) == 0;
}

static struct ib_pool_fmr *cache_find(struct ib_fmr_pool *pool, const u64 *pages, int count,
				      u64 iova) REQUIRES(&pool->lock)
{
	struct ib_pool_fmr *fmr = pool->buckets ? pool->buckets[cache_hash(pages[0])] : NULL;

	while (fmr && !cache_matches(fmr, pages, count, iova))
		fmr = fmr->cache_next;
	return fmr;
}

static void cache_insert(struct ib_fmr_pool *pool, struct ib_pool_fmr *fmr, const u64 *pages,
			 int count, u64 iova) REQUIRES(&pool->lock)
{
	struct ib_pool_fmr **bucket;

	if (!pool->buckets)
		return;
	memcpy(fmr->page_list, pages, (size_t)count * sizeof(u64));
	fmr->page_list_len = count;
	fmr->io_virtual_address = iova;
	bucket = &pool->buckets[cache_hash(pages[0])];
	fmr->cache_next = *bucket;
	*bucket = fmr;
}

/* Harmless if it is not there. */
static void cache_remove(struct ib_fmr_pool *pool, struct ib_pool_fmr *fmr) REQUIRES(&pool->lock)
{
	struct ib_pool_fmr **link;

	if (!pool->buckets || !fmr->page_list_len)
		return;
	link = &pool->buckets[cache_hash(fmr->page_list[0])];
	while (*link && *link != fmr)
		link = &(*link)->cache_next;
	if (*link)
		*link = fmr->cache_next;
	fmr->page_list_len = 0;
}

/* ---- cleaning -------------------------------------------------------------------------------- */

/* Moves to `batch` the dirty ones and with `all` also those free ones that are still mapped. */
static void pool_collect(struct ib_fmr_pool *pool, bool all, struct list_head *batch)
{
	lock_acquire(&pool->lock);
	list_splice(&pool->dirty, batch);
	pool->dirty_count = 0;
	list_for_each_safe(fmr, &pool->free, struct ib_pool_fmr, list) {
		if (!all || !fmr->remap_count)
			continue;
		list_remove(&fmr->list);
		list_push_back(batch, &fmr->list);
	}
	list_for_each(fmr, batch, struct ib_pool_fmr, list)
		cache_remove(pool, fmr);
	lock_release(&pool->lock);
}

/* Unmaps on the device, all with one call, and makes the FMRs free. */
static void pool_clean(struct ib_fmr_pool *pool, bool all)
{
	struct list_head batch = LIST_HEAD_INIT(batch), fmrs = LIST_HEAD_INIT(fmrs);

	pool_collect(pool, all, &batch);
	if (list_empty(&batch))
		return;
	list_for_each(fmr, &batch, struct ib_pool_fmr, list) {
		list_push_back(&fmrs, &fmr->fmr->list);
		fmr->remap_count = 0;
	}
	int err = ib_unmap_fmr(&fmrs);

	if (err)
		log_warn("core", "FMRs cannot be unmapped: error %d", -err);
	list_for_each_safe(fmr, &fmrs, struct ib_fmr, list)
		list_remove(&fmr->list);
	lock_acquire(&pool->lock);
	list_splice(&batch, &pool->free);
	lock_release(&pool->lock);
}

static void pool_flushed(struct ib_fmr_pool *pool)
{
	if (pool->flush_function)
		pool->flush_function(pool, pool->flush_arg);
}

/* Pairs with the acquire in pool_thread. */
static u32 pool_want_cleaning(struct ib_fmr_pool *pool)
{
	u32 ticket = __atomic_add_fetch(&pool->wanted, 1, __ATOMIC_RELEASE);

	futex_wake(&pool->wanted, INT32_MAX);
	return ticket;
}

static void *pool_thread(void *arg)
{
	struct ib_fmr_pool *pool = arg;

	while (!__atomic_load_n(&pool->stop, __ATOMIC_ACQUIRE)) {
		u32 wanted = __atomic_load_n(&pool->wanted, __ATOMIC_ACQUIRE);

		if (wanted == __atomic_load_n(&pool->done, __ATOMIC_RELAXED)) {
			futex_sleep(&pool->wanted, wanted);
			continue;
		}
		pool_clean(pool, __atomic_exchange_n(&pool->all, 0, __ATOMIC_RELAXED));
		pool_flushed(pool);
		/* Pairs with the acquire in pool_wait_done: the batch is unmapped. */
		__atomic_store_n(&pool->done, wanted, __ATOMIC_RELEASE);
		futex_wake(&pool->done, INT32_MAX);
	}
	return NULL;
}

/* Tickets count on for ever; their difference is right across the wrap. */
static void pool_wait_done(struct ib_fmr_pool *pool, u32 ticket)
{
	u32 done;

	while ((s32)((done = __atomic_load_n(&pool->done, __ATOMIC_ACQUIRE)) - ticket) < 0)
		futex_sleep(&pool->done, done);
}

/* A forked child has the pool but not its thread. */
static bool pool_has_thread(const struct ib_fmr_pool *pool)
{
	return fork_is_marked_here(&pool->owner);
}

int ib_flush_fmr_pool(struct ib_fmr_pool *pool)
{
	if (pool_has_thread(pool)) {
		__atomic_store_n(&pool->all, 1, __ATOMIC_RELAXED);
		pool_wait_done(pool, pool_want_cleaning(pool));
	} else {
		pool_clean(pool, true);
		pool_flushed(pool);
	}
	return 0;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static bool pool_fmr_is_worn(const struct ib_fmr_pool *pool, const struct ib_pool_fmr *fmr)
{
	return fmr->remap_count >= pool->max_remaps;
}

/* A mapping that the cache knows: given out already, free, or dirty. */
static struct ib_pool_fmr *pool_share(struct ib_fmr_pool *pool, struct ib_pool_fmr *fmr)
	REQUIRES(&pool->lock)
{
	if (fmr->ref_count++ == 0) {
		list_remove(&fmr->list);
		pool->dirty_count -= pool_fmr_is_worn(pool, fmr);
	}
	return fmr;
}

/* Maps the longest unused FMR anew. */
static struct ib_pool_fmr *pool_map(struct ib_fmr_pool *pool, u64 *pages, int count, u64 iova)
	REQUIRES(&pool->lock)
{
	struct list_head *first = list_pop_front(&pool->free);
	struct ib_pool_fmr *fmr;
	int err;

	if (!first)
		return ERR_PTR(-EAGAIN);
	fmr = list_entry(first, struct ib_pool_fmr, list);
	cache_remove(pool, fmr);
	err = ib_map_phys_fmr(fmr->fmr, pages, count, iova);
	if (err) {
		list_push_back(&pool->free, &fmr->list);
		return ERR_PTR(err);
	}
	fmr->remap_count++;
	fmr->ref_count = 1;
	cache_insert(pool, fmr, pages, count, iova);
	return fmr;
}

struct ib_pool_fmr *ib_fmr_pool_map_phys(struct ib_fmr_pool *pool, u64 *page_list, int list_len,
					 u64 io_virtual_address)
{
	struct ib_pool_fmr *fmr;

	if (list_len < 1 || list_len > pool->max_pages)
		return ERR_PTR(-EINVAL);
	lock_acquire(&pool->lock);
	fmr = cache_find(pool, page_list, list_len, io_virtual_address);
	if (fmr)
		fmr = pool_share(pool, fmr);
	else
		fmr = pool_map(pool, page_list, list_len, io_virtual_address);
	if (PTR_ERR(fmr) == -EAGAIN && pool->dirty_count)
		pool_want_cleaning(pool);
	lock_release(&pool->lock);
	return fmr;
}

/* True if the pool should clean now. */
static bool pool_take_back(struct ib_fmr_pool *pool, struct ib_pool_fmr *fmr) REQUIRES(&pool->lock)
{
	if (--fmr->ref_count)
		return false;
	if (!pool_fmr_is_worn(pool, fmr)) {
		list_push_back(&pool->free, &fmr->list);
		return false;
	}
	list_push_back(&pool->dirty, &fmr->list);
	return ++pool->dirty_count >= pool->watermark;
}

int ib_fmr_pool_unmap(struct ib_pool_fmr *fmr)
{
	struct ib_fmr_pool *pool = fmr->pool;

	lock_acquire(&pool->lock);
	bool given_out = fmr->ref_count > 0;
	if (given_out && pool_take_back(pool, fmr))
		pool_want_cleaning(pool); /* under the lock: afterwards the pool may be gone */
	lock_release(&pool->lock);
	return given_out ? 0 : -EINVAL;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

static int pool_start_thread(struct ib_fmr_pool *pool)
{
	return thread_start("fmr pool", 0, &pool->thread, pool_thread, pool);
}

static void pool_stop_thread(struct ib_fmr_pool *pool)
{
	if (!pool_has_thread(pool))
		return;
	__atomic_store_n(&pool->stop, 1, __ATOMIC_RELEASE);
	pool_want_cleaning(pool);
	pthread_join(pool->thread, NULL);
}

static int pool_dealloc_fmrs(struct ib_fmr_pool *pool)
{
	int err = 0;

	for (int i = 0; i < pool->size; i++) {
		if (!pool->members[i])
			continue;
		int one = ib_dealloc_fmr(pool->members[i]->fmr);

		if (one)
			err = one;
		free(pool->members[i]);
	}
	return err;
}

static void pool_free(struct ib_fmr_pool *pool) NO_THREAD_SAFETY /* nobody else knows it */
{
	free(pool->members);
	free(pool->buckets);
	free(pool);
}

static int pool_add_fmr(struct ib_fmr_pool *pool, struct ib_pd *pd, int index,
			const struct ib_fmr_pool_param *params)
{
	size_t pages = params->cache ? (size_t)params->max_pages_per_fmr : 0;
	struct ib_fmr_attr attr = { .max_pages = params->max_pages_per_fmr,
				    .max_maps = pool->max_remaps,
				    .page_shift = (u8)params->page_shift };
	struct ib_pool_fmr *fmr = calloc(1, sizeof(*fmr) + pages * sizeof(u64));

	if (!fmr)
		return -ENOMEM;
	fmr->pool = pool;
	fmr->fmr = ib_alloc_fmr(pd, params->access, &attr);
	if (IS_ERR(fmr->fmr)) {
		int err = (int)PTR_ERR(fmr->fmr);

		free(fmr);
		return err;
	}
	pool->members[index] = fmr;
	lock_acquire(&pool->lock);
	list_push_back(&pool->free, &fmr->list);
	lock_release(&pool->lock);
	return 0;
}

static int pool_max_remaps(struct ib_device *device)
{
	struct ib_device_attr attr = { 0 };

	if (ib_query_device(device, &attr) || attr.max_map_per_fmr < 1)
		return POOL_DEFAULT_REMAPS;
	return attr.max_map_per_fmr;
}

static struct ib_fmr_pool *pool_alloc(struct ib_pd *pd, const struct ib_fmr_pool_param *params)
	NO_THREAD_SAFETY /* nobody else knows it */
{
	struct ib_fmr_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->members = calloc((size_t)params->pool_size, sizeof(struct ib_pool_fmr *));
	pool->buckets = params->cache ? calloc(POOL_BUCKETS, sizeof(struct ib_pool_fmr *)) : NULL;
	if (!pool->members || (params->cache && !pool->buckets)) {
		pool_free(pool);
		return NULL;
	}
	list_init(&pool->free);
	list_init(&pool->dirty);
	pool->size = params->pool_size;
	pool->max_pages = params->max_pages_per_fmr;
	pool->max_remaps = pool_max_remaps(pd->device);
	pool->watermark = MAX(params->dirty_watermark, 1);
	pool->flush_function = params->flush_function;
	pool->flush_arg = params->flush_arg;
	pool->owner = fork_mark_here();
	return pool;
}

static int pool_check(const struct ib_device *device, const struct ib_fmr_pool_param *params)
{
	if (!device->alloc_fmr || !device->dealloc_fmr || !device->map_phys_fmr ||
	    !device->unmap_fmr)
		return -ENOSYS;
	if (params->pool_size < 1 || params->pool_size > POOL_MAX_SIZE ||
	    params->max_pages_per_fmr < 1 || params->max_pages_per_fmr > POOL_MAX_PAGES ||
	    params->page_shift < 0 || params->page_shift > 63)
		return -EINVAL;
	return 0;
}

struct ib_fmr_pool *ib_create_fmr_pool(struct ib_pd *pd, struct ib_fmr_pool_param *params)
{
	int err = pool_check(pd->device, params);
	struct ib_fmr_pool *pool;

	if (err)
		return ERR_PTR(err);
	pool = pool_alloc(pd, params);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	for (int i = 0; i < pool->size && !err; i++)
		err = pool_add_fmr(pool, pd, i, params);
	if (!err)
		err = pool_start_thread(pool);
	if (err) {
		pool_dealloc_fmrs(pool);
		pool_free(pool);
		return ERR_PTR(err);
	}
	return pool;
}

static int pool_count_given_out(struct ib_fmr_pool *pool)
{
	int count = 0;

	lock_acquire(&pool->lock);
	for (int i = 0; i < pool->size; i++)
		count += pool->members[i]->ref_count > 0;
	lock_release(&pool->lock);
	return count;
}

int ib_destroy_fmr_pool(struct ib_fmr_pool *pool)
{
	int in_use = pool_count_given_out(pool);

	pool_stop_thread(pool);
	if (in_use)
		log_warn("core", "an FMR pool is destroyed while %d of its mappings are in use",
			 in_use);
	pool_clean(pool, true);
	int err = pool_dealloc_fmrs(pool);

	pool_free(pool);
	return err;
}
