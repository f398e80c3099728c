/* ib_fmr_pool.h: a pool of fast memory regions that are mapped often and unmapped in batches.
 *
 * Unmapping an FMR is dear, so a pool does it for many at once, on a thread of its own: an FMR
 * that is given back stays mapped on its device until it has been remapped as often as the
 * device allows, then it is dirty, and once dirty_watermark of them are, the pool cleans. With
 * `cache` a mapping that is asked for again is found and shared.
 */
#ifndef IB_FMR_POOL_H
#define IB_FMR_POOL_H

#include <rdma/ib_verbs.h>

struct ib_fmr_pool;

struct ib_fmr_pool_param {
	int max_pages_per_fmr;
	int page_shift;
	enum ib_access_flags access;
	int pool_size;       /* FMRs in the pool */
	int dirty_watermark; /* dirty FMRs that make the pool clean */
	/* Called on the pool's thread after each cleaning; may be NULL. */
	void (*flush_function)(struct ib_fmr_pool *pool, void *arg);
	void *flush_arg;
	unsigned cache : 1;
};

/* One mapping, the pool's; consumers read `fmr` (lkey, rkey) and pass it back. The pool's lock
 * covers the rest. */
struct ib_pool_fmr {
	struct ib_fmr *fmr;
	struct ib_fmr_pool *pool;
	struct list_head list;
	struct ib_pool_fmr *cache_next; /* in its bucket */
	int ref_count;                  /* how often it is given out now */
	int remap_count;                /* mappings since it was last clean */
	u64 io_virtual_address;
	int page_list_len;
	u64 page_list[]; /* with `cache` only */
};

/* Creates a pool of params->pool_size FMRs in the domain, with a thread of its own;
 * ib_destroy_fmr_pool ends both. *params is read during the call only.
 * ERR_PTR: -EINVAL (sizes), -ENOSYS (the device has no FMRs), -ENOMEM, or what the driver says.
 * May block. */
AV_EXPORT struct ib_fmr_pool *ib_create_fmr_pool(struct ib_pd *pd,
						 struct ib_fmr_pool_param *params);

/* Frees the pool, its FMRs and its thread. Every mapping must have been given back. May block. 0 or
 * the driver's errno. */
AV_EXPORT int ib_destroy_fmr_pool(struct ib_fmr_pool *pool);

/* Returns when every FMR given back before the call is unmapped on the device. May block. 0 or the
 * driver's errno. */
AV_EXPORT int ib_flush_fmr_pool(struct ib_fmr_pool *pool);

/* Maps the pages page_list[0..list_len) at io_virtual_address, or shares such a mapping of the
 * cache. The caller holds the mapping until ib_fmr_pool_unmap. Never blocks. ERR_PTR: -EINVAL
 * (list_len), -EAGAIN (all FMRs are given out or dirty: cleaning has begun), or what the driver
 * says. */
AV_EXPORT struct ib_pool_fmr *ib_fmr_pool_map_phys(struct ib_fmr_pool *pool_handle, u64 *page_list,
						   int list_len, u64 io_virtual_address);

/* Gives a mapping back; its keys may still work until the next cleaning. Never blocks. 0;
 * -EINVAL: nobody holds it. */
AV_EXPORT int ib_fmr_pool_unmap(struct ib_pool_fmr *fmr);

#endif
