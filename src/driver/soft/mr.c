/* mr.c: memory regions, windows and fast memory regions over the key table.
 * In: ranges and page lists    Out: keys    Runs: any thread; map_phys_fmr never blocks
 * Locks: the key table's
 */
#include "driver/soft/soft.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "shared/shared.h"

/* False: the region belongs to the parent of this process; its key is invalid here. */
static struct soft_mr *mr_new(struct soft_device *dev)
{
	struct soft_mr *mr;
	int err = soft_attach(dev);

	if (err != 0)
		return ERR_PTR(err);
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return ERR_PTR(-ENOMEM);
	mr->generation = seat_generation(&the_seat);
	return mr;
}

struct ib_mr *soft_mr_register(struct ib_pd *pd, const struct mem_region *region)
{
	struct soft_device *dev = soft_dev(pd->device);
	struct soft_mr *mr = mr_new(dev);
	u32 key;
	int err;

	if (IS_ERR(mr))
		return ERR_PTR(PTR_ERR(mr));
	err = mem_register(&the_seat.a.mem, region, &key);
	if (err != 0) {
		free(mr);
		return ERR_PTR(err);
	}
	mr->ib.lkey = mr->ib.rkey = key;
	mr->addr = region->addr;
	mr->length = region->length;
	mr->iova = region->iova;
	mr->access = (int)region->access;
	return &mr->ib;
}

/* Peers find the file on the board before any key that names it. */
static void mr_show_file(struct board *b)
{
	u64 inode;
	int fd;

	if (!adopt_file(&fd, &inode))
		return;
	__atomic_store_n(&b->memory_fd, fd, __ATOMIC_RELAXED);
	__atomic_store_n(&b->memory_inode, inode, __ATOMIC_RELAXED);
}

/* Own memory is of the file as long as it exists: it is neither adopted nor given back. Its pages
 * need not be present: an absent one is made by who touches it first, here or at a peer. */
static bool mr_is_own(struct mem_region *region)
{
	region->shared = own_offset(region->addr, region->length);
	region->flags |= region->shared != 0 ? MEM_STAYS_SHARED : 0;
	return region->shared != 0;
}

/* Makes the pages of `region` present and adopts them; adopt_leave ends it. */
static int mr_adopt(struct mem_region *region, bool write)
{
	int err;

	region->shared = adopt_again(region->addr, region->length, write);
	if (region->shared == 0) {
		err = mem_populate(region->addr, region->length, write);
		if (err != 0)
			return err;
		region->shared = adopt_enter(region->addr, region->length);
	}
	return 0;
}

/* Registers memory that may be adopted, or is own. */
static struct ib_mr *mr_register_adopted(struct ib_pd *pd, struct mem_region *region, bool write)
{
	struct ib_mr *mr;
	bool own, adopts;
	int err = soft_attach(soft_dev(pd->device));

	if (err != 0)
		return ERR_PTR(err);
	own = the_seat.direct && mr_is_own(region);
	adopts = the_seat.direct && !own;
	if (adopts)
		err = mr_adopt(region, write);
	else if (!own)
		err = mem_populate(region->addr, region->length, write);
	if (err != 0)
		return ERR_PTR(err);
	if (region->shared != 0)
		mr_show_file(the_seat.a.board);
	mr = soft_mr_register(pd, region);
	if (!adopts)
		return mr;
	if (IS_ERR(mr))
		adopt_leave(region->addr, region->length, true);
	else
		SOFT_OF(mr, mr)->entered = true;
	return mr;
}

void *soft_uverbs_alloc_buffer(struct ib_device *dev, u64 length)
{
	return own_alloc(length);
}

void soft_uverbs_free_buffer(struct ib_device *dev, void *buffer)
{
	own_free(buffer);
}

struct ib_mr *soft_uverbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	struct mem_region region = { .addr = start,
				     .length = length,
				     .iova = iova,
				     .access = (u32)access,
				     .pd = soft_pd_number(pd),
				     .flags = MEM_CONTIGUOUS };
	bool write = (access & (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
				IB_ACCESS_REMOTE_ATOMIC)) != 0;

	if (access & IBV_ACCESS_HUGETLB)
		return ERR_PTR(-EINVAL);
	if ((access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC)) != 0 &&
	    (access & IB_ACCESS_LOCAL_WRITE) == 0)
		return ERR_PTR(-EINVAL);
	if (access & IBV_ACCESS_ZERO_BASED)
		region.iova = 0;
	if (access & IBV_ACCESS_ON_DEMAND)
		return soft_mr_on_demand(pd, &region);
	return length == 0 ? ERR_PTR(-EINVAL) : mr_register_adopted(pd, &region, write);
}

/* ---- rereg ---- */

/* The old memory is no more reached by the region's key. */
static void mr_leave(const struct soft_mr *mr, u32 stuck)
{
	if (mr->entered)
		adopt_leave(mr->addr, mr->length, shm_stuck(the_seat.a.shm) == stuck);
}

/* Other memory, under another key: peers that know the old one must not reach the new memory at
 * addresses that mean something else there. */
static int mr_move(struct soft_mr *mr, const struct ib_uverbs_rereg *to, u32 pd, int access)
{
	bool write = access & (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			       IB_ACCESS_REMOTE_ATOMIC);
	struct mem_region region = { .addr = to->start,
				     .length = to->length,
				     .iova = to->iova,
				     .access = (u32)access,
				     .pd = pd,
				     .flags = MEM_CONTIGUOUS };
	u32 key = mr->ib.lkey, stuck = shm_stuck(the_seat.a.shm);
	int err = mr->entered ? mr_adopt(&region, write) :
				mem_populate(region.addr, region.length, write);

	if (err != 0)
		return err;
	if (region.shared != 0)
		mr_show_file(the_seat.a.board);
	err = mem_replace(&the_seat.a.mem, &key, &region);
	if (err != 0) {
		if (mr->entered)
			adopt_leave(region.addr, region.length, true);
		return err;
	}
	mr_leave(mr, stuck);
	mr->addr = region.addr;
	mr->length = region.length;
	mr->iova = region.iova;
	mr->ib.lkey = mr->ib.rkey = key;
	return 0;
}

/* The same memory under the same key. */
static int mr_change(struct soft_mr *mr, u32 pd, int access)
{
	bool write = access & IB_ACCESS_LOCAL_WRITE && !(mr->access & IB_ACCESS_LOCAL_WRITE);
	int err = write ? mem_populate(mr->addr, mr->length, true) : 0;

	return err != 0 ? err : mem_modify(&the_seat.a.mem, mr->ib.lkey, pd, (u32)access);
}

int soft_uverbs_rereg_user_mr(struct ib_mr *ib, int mask, const struct ib_uverbs_rereg *to)
{
	struct soft_mr *mr = SOFT_OF(mr, ib);
	u32 pd = soft_pd_number(mask & IB_MR_REREG_PD ? to->pd : ib->pd);
	int access = mask & IB_MR_REREG_ACCESS ? to->access : mr->access;
	int err = soft_check(ib->device);

	if (err != 0 || !soft_is_ours(mr->generation))
		return -EIO;
	if (mr->dm != NULL || mr->mapping != NULL ||
	    (mr->access | access) & IBV_ACCESS_ON_DEMAND) /* as mlx5 */
		return -EOPNOTSUPP;
	err = mask & IB_MR_REREG_TRANS ? mr_move(mr, to, pd, access) : mr_change(mr, pd, access);
	if (err == 0)
		mr->access = access;
	return err;
}

struct ib_mr *soft_uverbs_alloc_null_mr(struct ib_pd *pd)
{
	struct mem_region region = { .access = IB_ACCESS_LOCAL_WRITE,
				     .pd = soft_pd_number(pd),
				     .flags = MEM_NULL };

	return soft_mr_register(pd, &region);
}

static struct ib_mr *mr_get_dma(struct ib_pd *pd, int access)
{
	struct mem_region region = { .addr = 0,
				     .length = UINT64_MAX,
				     .iova = 0,
				     .access = (u32)access,
				     .pd = soft_pd_number(pd),
				     .flags = MEM_ALL };

	adopt_enter_all();
	return soft_mr_register(pd, &region);
}

/* Lists the pages of the buffers. Only the first buffer may begin, and only the last may end,
 * inside a page. */
static int mr_list_pages(const struct ib_phys_buf *bufs, int count, u32 shift, u64 *pages, u32 max)
{
	u64 size = 1ull << shift;
	u32 n = 0;

	for (int i = 0; i < count; i++) {
		u64 begin = bufs[i].addr, end = begin + bufs[i].size;

		if ((i > 0 && begin % size != 0) || (i < count - 1 && end % size != 0) ||
		    end < begin)
			return -EINVAL;
		for (u64 at = begin & ~(size - 1); at < end; at += size) {
			if (n == max)
				return -ENOMEM;
			if (pages != NULL)
				pages[n] = at;
			n++;
		}
	}
	return (int)n;
}

static struct ib_mr *mr_reg_phys(struct ib_pd *pd, struct ib_phys_buf *bufs, int count, int access,
				 u64 *iova)
{
	const u32 shift = 12;
	int pages = count <= 0 ? -EINVAL : mr_list_pages(bufs, count, shift, NULL, 1u << 24);
	struct mem_region region = { .access = (u32)access,
				     .pd = soft_pd_number(pd),
				     .flags = MEM_PAGES,
				     .page_shift = shift };
	struct ib_mr *mr;
	u64 *list;

	adopt_enter_all();
	if (pages <= 0)
		return ERR_PTR(pages == 0 ? -EINVAL : pages);
	list = calloc((size_t)pages, sizeof(*list));
	if (list == NULL)
		return ERR_PTR(-ENOMEM);
	mr_list_pages(bufs, count, shift, list, (u32)pages);
	for (int i = 0; i < count; i++)
		region.length += bufs[i].size;
	/* The offset inside the first page is the same in address and iova. */
	region.iova = (*iova & ~0xfffull) | (bufs[0].addr & 0xfff);
	region.addr = bufs[0].addr;
	region.pages = list;
	region.page_count = (u32)pages;
	mr = soft_mr_register(pd, &region);
	if (!IS_ERR(mr))
		*iova = region.iova;
	free(list);
	return mr;
}

static int mr_query(struct ib_mr *ib, struct ib_mr_attr *attr)
{
	struct soft_mr *mr = SOFT_OF(mr, ib);
	int err = soft_check(ib->device);

	if (err != 0)
		return err;
	*attr = (struct ib_mr_attr){ .pd = ib->pd,
				     .device_virt_addr = mr->iova,
				     .size = mr->length,
				     .mr_access_flags = mr->access,
				     .lkey = ib->lkey,
				     .rkey = ib->rkey };
	return 0;
}

static void mr_free(struct soft_mr *mr)
{
	if (mr->dm != NULL)
		soft_dm_put(mr->dm);
	if (mr->mapping != NULL)
		munmap(mr->mapping, mr->mapped);
	free(mr);
}

static int mr_dereg(struct ib_mr *ib)
{
	struct soft_mr *mr = SOFT_OF(mr, ib);
	u32 stuck;
	int err;

	if (!soft_is_ours(mr->generation)) {
		mr_free(mr);
		return 0;
	}
	stuck = shm_stuck(the_seat.a.shm);
	err = mem_deregister(&the_seat.a.mem, ib->lkey);
	if (err != 0)
		return err;
	mr_leave(mr, stuck);
	mr_free(mr);
	return 0;
}

/* ---- memory windows: bound by a verb (type 1), or by requests of the engine (type 2) ---- */

static struct ib_mw *mw_new(struct ib_pd *pd, u32 flags)
{
	struct soft_device *dev = soft_dev(pd->device);
	int err = soft_attach(dev);
	struct soft_mw *mw = err == 0 ? calloc(1, sizeof(*mw)) : NULL;

	if (mw == NULL)
		return ERR_PTR(err != 0 ? err : -ENOMEM);
	err = mem_reserve(&the_seat.a.mem, soft_pd_number(pd), flags, &mw->ib.rkey);
	if (err != 0) {
		free(mw);
		return ERR_PTR(err);
	}
	mw->generation = seat_generation(&the_seat);
	return &mw->ib;
}

static struct ib_mw *mw_alloc(struct ib_pd *pd)
{
	return mw_new(pd, 0);
}

struct ib_mw *soft_uverbs_alloc_mw2(struct ib_pd *pd)
{
	return mw_new(pd, MEM_WINDOW_TYPE2);
}

static int mw_unbind(struct soft_device *dev, struct ib_mw *mw)
{
	int err = mem_unbind(&the_seat.a.mem, mw->rkey, soft_pd_number(mw->pd));

	return err == -EINVAL ? 0 : err; /* it was not bound */
}

static int mw_bind_range(struct soft_device *dev, struct ib_mw *mw, const struct ib_mw_bind *bind)
{
	bool zero_based = bind->mw_access_flags & IBV_ACCESS_ZERO_BASED;
	struct mem_region region = { .addr = bind->addr,
				     .length = bind->length,
				     .iova = zero_based ? 0 : bind->addr,
				     .access = (u32)bind->mw_access_flags & ~IBV_ACCESS_LOCAL_WRITE,
				     .pd = soft_pd_number(mw->pd),
				     .flags = MEM_WINDOW };

	if (bind->mr == NULL || bind->mr->pd != mw->pd)
		return -EINVAL;
	region.parent = bind->mr->lkey;
	return mem_replace(&the_seat.a.mem, &mw->rkey, &region);
}

/* Binds at once, so that the caller knows the new key; the completion keeps the order of the send
 * queue. Length 0 unbinds. A request that would be refused or flushed binds nothing, unless other
 * threads fill the queue meanwhile. */
static int mw_bind(struct ib_qp *qp, struct ib_mw *mw, struct ib_mw_bind *bind)
{
	struct soft_device *dev = soft_dev(qp->device);
	struct ibt_qp *engine = soft_engine(SOFT_OF(qp, qp));
	int err = soft_check(qp->device);

	if (err != 0)
		return err;
	if (qp->pd != mw->pd || (qp->qp_type != IB_QPT_RC && qp->qp_type != IB_QPT_UC))
		return -EINVAL;
	err = ibt_may_send(engine);
	if (err == 0)
		err = bind->length == 0 ? mw_unbind(dev, mw) : mw_bind_range(dev, mw, bind);
	return err != 0 && err != -EPIPE ?
		       err :
		       ibt_post_bound(engine, bind->wr_id, (u32)bind->send_flags);
}

static int mw_dealloc(struct ib_mw *ib)
{
	struct soft_mw *mw = SOFT_OF(mw, ib);
	int err = 0;

	if (soft_is_ours(mw->generation))
		err = mem_deregister(&the_seat.a.mem, ib->rkey);
	if (err == 0)
		free(mw);
	return err;
}

/* ---- fast memory regions ---- */

static struct ib_fmr *fmr_alloc(struct ib_pd *pd, int access, struct ib_fmr_attr *attr)
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	struct soft_device *dev = soft_dev(pd->device);
	int err = soft_attach(dev);
	struct soft_fmr *fmr;
	u32 key;

	adopt_enter_all();
	if (err != 0 || attr->max_pages <= 0 || attr->page_shift < 12 || attr->page_shift > 30 ||
	    attr->max_maps < 1 || attr->max_maps > SOFT_MAX_FMR_MAPS)
		return ERR_PTR(err != 0 ? err : -EINVAL);
	fmr = calloc(1, sizeof(*fmr));
	if (fmr == NULL)
		return ERR_PTR(-ENOMEM);
	err = mem_reserve(&the_seat.a.mem, soft_pd_number(pd), 0, &key);
	if (err != 0) {
		free(fmr);
		return ERR_PTR(err);
	}
	fmr->attr = *attr;
	fmr->access = access;
	fmr->generation = seat_generation(&the_seat);
	fmr->key = fmr->ib.lkey = fmr->ib.rkey = key;
	return &fmr->ib;
}

static int fmr_map(struct ib_fmr *ib, u64 *pages, int count, u64 iova)
{
	struct soft_fmr *fmr = SOFT_OF(fmr, ib);
	u64 size = 1ull << fmr->attr.page_shift;
	struct mem_region region = { .length = (u64)count * size,
				     .iova = iova,
				     .access = (u32)fmr->access,
				     .pd = soft_pd_number(ib->pd),
				     .flags = MEM_PAGES,
				     .pages = pages,
				     .page_count = (u32)count,
				     .page_shift = fmr->attr.page_shift };
	int err = soft_check(ib->device);

	if (err != 0 || !soft_is_ours(fmr->generation))
		return -EIO;
	if (count <= 0 || count > fmr->attr.max_pages || iova % size != 0)
		return -EINVAL;
	lock_acquire(&fmr->lock);
	err = fmr->maps >= fmr->attr.max_maps ? -EINVAL :
						mem_replace(&the_seat.a.mem, &fmr->key, &region);
	if (err == 0) {
		ib->lkey = ib->rkey = fmr->key;
		fmr->maps++;
	}
	lock_release(&fmr->lock);
	return err;
}

static int fmr_unmap_one(struct ib_fmr *ib)
{
	struct soft_fmr *fmr = SOFT_OF(fmr, ib);
	int err;

	if (!soft_is_ours(fmr->generation))
		return 0;
	lock_acquire(&fmr->lock);
	err = mem_unbind(&the_seat.a.mem, fmr->key, soft_pd_number(ib->pd));
	fmr->maps = 0;
	lock_release(&fmr->lock);
	return err == -EINVAL ? 0 : err; /* it was not mapped */
}

/* After this the consumer may free the pages. Unlike an invalidation of one key it waits for copies
 * of the own engine, once for the whole list. */
static int fmr_unmap(struct list_head *list)
{
	struct mem_table *mem = NULL;
	int first = 0;

	list_for_each(ib, list, struct ib_fmr, list) {
		int err = fmr_unmap_one(ib);

		mem = &the_seat.a.mem;
		if (first == 0)
			first = err;
	}
	if (mem != NULL && mem->quiesce != NULL)
		mem->quiesce(mem->drain_arg);
	return first;
}

static int fmr_dealloc(struct ib_fmr *ib)
{
	struct soft_fmr *fmr = SOFT_OF(fmr, ib);
	int err = 0;

	if (soft_is_ours(fmr->generation))
		err = mem_deregister(&the_seat.a.mem, fmr->ib.lkey);
	if (err == 0)
		free(fmr);
	return err;
}

void soft_fill_mr(struct ib_device *ib)
{
	ib->get_dma_mr = mr_get_dma;
	ib->reg_phys_mr = mr_reg_phys;
	ib->query_mr = mr_query;
	ib->dereg_mr = mr_dereg;
	ib->alloc_mw = mw_alloc;
	ib->bind_mw = mw_bind;
	ib->dealloc_mw = mw_dealloc;
	ib->alloc_fmr = fmr_alloc;
	ib->map_phys_fmr = fmr_map;
	ib->unmap_fmr = fmr_unmap;
	ib->dealloc_fmr = fmr_dealloc;
}
