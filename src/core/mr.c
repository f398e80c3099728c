/* mr.c: memory regions, memory windows and fast memory regions.
 * In: consumers    Out: the driver's methods    Runs: the caller    Locks: none
 */
#include <unistd.h>

#include "core/core_priv.h"

/* Remote writers and atomics change local memory: IBA vol 1, 10.6.3. */
static int access_check(int access)
{
	bool remote_changes = access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC);

	return remote_changes && !(access & IB_ACCESS_LOCAL_WRITE) ? -EINVAL : 0;
}

/* Fills the new region's fields, or gives back its hold on the PD. */
static struct ib_mr *ib_mr_finish(struct ib_mr *mr, struct ib_pd *pd)
{
	if (IS_ERR(mr)) {
		use_put(&pd->usecnt);
		return mr;
	}
	mr->device = pd->device;
	mr->pd = pd;
	mr->usecnt = 0;
	extended_mr_clear(mr);
	return mr;
}

struct ib_mr *ib_get_dma_mr(struct ib_pd *pd, int access)
{
	int err = access_check(access);

	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	return ib_mr_finish(DRIVER_CALL(pd->device->get_dma_mr(pd, access)), pd);
}

struct ib_mr *ib_reg_phys_mr(struct ib_pd *pd, struct ib_phys_buf *bufs, int count, int access,
			     u64 *iova_start)
{
	struct ib_device *device = pd->device;
	int err = access_check(access);

	if (!device->reg_phys_mr)
		return ERR_PTR(-ENOSYS);
	if (!err && (count < 1 || !use_get(&pd->usecnt)))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	return ib_mr_finish(DRIVER_CALL(device->reg_phys_mr(pd, bufs, count, access, iova_start)),
			    pd);
}

struct ib_mr *ib_uverbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	const struct ib_uverbs_ops *ops = pd->device->uverbs;
	int err = access_check(access);

	if (!err && (start + length < start || iova + length < iova))
		err = -EINVAL;
	if (!err && access & IBV_ACCESS_ON_DEMAND && !ops->advise_mr)
		err = -EOPNOTSUPP;
	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	return ib_mr_finish(DRIVER_CALL(ops->reg_user_mr(pd, start, length, iova, access)), pd);
}

/* A DMA buffer has pages of its own: the region's addresses must lie in theirs as its bytes do. */
static int reg_dmabuf_check(u64 offset, u64 length, u64 iova, int access)
{
	const int known = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
			  IB_ACCESS_REMOTE_ATOMIC;
	u64 page = (u64)sysconf(_SC_PAGESIZE);

	if (access & ~known || length == 0 || (offset ^ iova) & (page - 1))
		return -EINVAL;
	return offset + length < offset || iova + length < iova ? -EINVAL : access_check(access);
}

struct ib_mr *ib_uverbs_reg_dmabuf_mr(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
				      int access)
{
	const struct ib_uverbs_ops *ops = pd->device->uverbs;
	int err = ops->reg_dmabuf_mr ? reg_dmabuf_check(offset, length, iova, access) : -EOPNOTSUPP;

	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	return ib_mr_finish(
		DRIVER_CALL(ops->reg_dmabuf_mr(pd, offset, length, iova, fd, access)), pd);
}

void *ib_uverbs_alloc_buffer(struct ib_device *dev, u64 length)
{
	const struct ib_uverbs_ops *ops = dev->uverbs;

	return ops->alloc_buffer && ops->free_buffer ? DRIVER_CALL(ops->alloc_buffer(dev, length)) :
						       NULL;
}

void ib_uverbs_free_buffer(struct ib_device *dev, void *buffer)
{
	event_driver_depth++;
	dev->uverbs->free_buffer(dev, buffer);
	event_driver_depth--;
}

struct ib_mr *ib_uverbs_alloc_null_mr(struct ib_pd *pd)
{
	const struct ib_uverbs_ops *ops = pd->device->uverbs;

	if (!ops->alloc_null_mr)
		return ERR_PTR(-EOPNOTSUPP);
	if (!use_get(&pd->usecnt))
		return ERR_PTR(-EINVAL);
	return ib_mr_finish(DRIVER_CALL(ops->alloc_null_mr(pd)), pd);
}

static int rereg_check(const struct ib_mr *mr, int mask, const struct ib_uverbs_rereg *to)
{
	bool moves = mask & IB_MR_REREG_TRANS;

	if (!mask || mask & ~(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS))
		return -EINVAL;
	if (moves && (!to->length || to->start + to->length < to->start ||
		      to->iova + to->length < to->iova))
		return -EINVAL;
	if (mask & IB_MR_REREG_PD && (!to->pd || to->pd->device != mr->device))
		return -EINVAL;
	return mask & IB_MR_REREG_ACCESS ? access_check(to->access) : 0;
}

int ib_uverbs_rereg_user_mr(struct ib_mr *mr, int mask, const struct ib_uverbs_rereg *to)
{
	const struct ib_uverbs_ops *ops = mr->device->uverbs;
	struct ib_pd *old;
	int err = rereg_check(mr, mask, to);

	if (err)
		return err;
	if (!ops->rereg_user_mr)
		return -EOPNOTSUPP;
	/* Nobody else deregisters or changes it meanwhile. */
	if (!use_claim(&mr->usecnt))
		return -EBUSY;
	old = mr->pd;
	if (mask & IB_MR_REREG_PD && !use_get(&to->pd->usecnt)) {
		err = -EINVAL;
		goto unclaim;
	}
	err = DRIVER_CALL(ops->rereg_user_mr(mr, mask, to));
	if (!(mask & IB_MR_REREG_PD))
		goto unclaim;
	if (!err)
		mr->pd = to->pd;
	use_put(err ? &to->pd->usecnt : &old->usecnt);
unclaim:
	use_unclaim(&mr->usecnt);
	return err;
}

struct ib_dm *ib_uverbs_alloc_dm(struct ib_device *dev, u64 length, u32 align)
{
	const struct ib_uverbs_ops *ops = dev->uverbs;
	struct ib_dm *dm;

	if (!ops->alloc_dm)
		return ERR_PTR(-EOPNOTSUPP);
	if (!length)
		return ERR_PTR(-EINVAL);
	dm = DRIVER_CALL(ops->alloc_dm(dev, length, align));
	if (IS_ERR(dm))
		return dm;
	dm->device = dev;
	dm->length = length;
	return dm;
}

int ib_uverbs_free_dm(struct ib_dm *dm)
{
	return DRIVER_CALL(dm->device->uverbs->free_dm(dm));
}

int ib_uverbs_dm_file(struct ib_dm *dm, u64 *offset)
{
	const struct ib_uverbs_ops *ops = dm->device->uverbs;

	return ops->dm_file ? DRIVER_CALL(ops->dm_file(dm, offset)) : -1;
}

struct ib_dm *ib_uverbs_map_dm(struct ib_device *dev, int fd, u64 offset, u64 length)
{
	const struct ib_uverbs_ops *ops = dev->uverbs;
	struct ib_dm *dm;

	if (!ops->map_dm)
		return ERR_PTR(-EOPNOTSUPP);
	dm = DRIVER_CALL(ops->map_dm(dev, fd, offset, length));
	if (IS_ERR(dm))
		return dm;
	dm->device = dev;
	dm->length = length;
	return dm;
}

struct ib_mr *ib_uverbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *dm, u64 offset, u64 length,
				  int access)
{
	const struct ib_uverbs_ops *ops = pd->device->uverbs;
	int err = access_check(access);

	if (!err && (pd->device != dm->device || length > dm->length ||
		     offset > dm->length - length || !use_get(&pd->usecnt)))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	return ib_mr_finish(DRIVER_CALL(ops->reg_dm_mr(pd, dm, offset, length, access)), pd);
}

int ib_uverbs_copy_dm(struct ib_dm *dm, u64 offset, void *host, u64 length, bool out)
{
	if (length > dm->length || offset > dm->length - length)
		return -EFAULT;
	return DRIVER_CALL(dm->device->uverbs->copy_dm(dm, offset, host, length, out));
}

int ib_uverbs_advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice, u32 flags,
			const struct ibv_sge *sge, u32 count)
{
	const struct ib_uverbs_ops *ops = pd->device->uverbs;

	if (!ops->advise_mr)
		return -EOPNOTSUPP;
	return DRIVER_CALL(ops->advise_mr(pd, advice, flags, sge, count));
}

int ib_rereg_phys_mr(struct ib_mr *mr, int mask, struct ib_pd *pd, struct ib_phys_buf *bufs,
		     int count, int access, u64 *iova_start)
{
	struct ib_pd *old_pd = mr->pd;
	bool moves = mask & IB_MR_REREG_PD;
	int err = mask & IB_MR_REREG_ACCESS ? access_check(access) : 0;

	if (!mr->device->rereg_phys_mr)
		return -ENOSYS;
	if (__atomic_load_n(&mr->usecnt, __ATOMIC_RELAXED))
		return -EBUSY;
	if (!err && moves && (!pd || pd->device != mr->device || !use_get(&pd->usecnt)))
		err = -EINVAL;
	if (err)
		return err;
	err = DRIVER_CALL(mr->device->rereg_phys_mr(mr, mask, pd, bufs, count, access, iova_start));
	if (!moves)
		return err;
	if (!err)
		mr->pd = pd;
	use_put(err ? &pd->usecnt : &old_pd->usecnt);
	return err;
}

int ib_query_mr(struct ib_mr *mr, struct ib_mr_attr *attr)
{
	if (!mr->device->query_mr)
		return -ENOSYS;
	return DRIVER_CALL(mr->device->query_mr(mr, attr));
}

int ib_dereg_mr(struct ib_mr *mr)
{
	struct ib_pd *pd;
	int err;

	if (!mr)
		return -EINVAL;
	pd = mr->pd;
	if (!use_claim(&mr->usecnt))
		return -EBUSY;
	err = DRIVER_CALL(mr->device->dereg_mr(mr));
	if (err)
		use_unclaim(&mr->usecnt);
	else
		use_put(&pd->usecnt);
	return err;
}

/* ---- fast registration ----------------------------------------------------------------------- */

struct ib_mr *ib_alloc_mr(struct ib_pd *pd, enum ib_mr_type mr_type, u32 max_num_sg)
{
	const struct ib_device_ops *ops;
	struct ib_mr *mr;

	if (!pd)
		return ERR_PTR(-EINVAL);
	ops = &pd->device->core->ops;
	if (!ops->alloc_mr || !ops->map_mr_sg)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || !use_get(&pd->usecnt))
		return ERR_PTR(-EINVAL);
	mr = ib_mr_finish(DRIVER_CALL(ops->alloc_mr(pd, mr_type, max_num_sg)), pd);
	if (!IS_ERR(mr)) {
		mr->type = mr_type;
		mr->iova = mr->length = mr->page_size = 0;
	}
	return mr;
}

int ib_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int sg_nents, unsigned int *sg_offset,
		 unsigned int page_size)
{
	const struct ib_device_ops *ops;

	if (!mr || !sg)
		return -EINVAL;
	ops = &mr->device->core->ops;
	if (!ops->map_mr_sg)
		return -EOPNOTSUPP;
	if (mr->type > IB_MR_TYPE_SG_GAPS) /* not of ib_alloc_mr */
		return -EINVAL;
	if (!page_size || page_size & (page_size - 1))
		return -EINVAL;
	mr->page_size = page_size;
	return DRIVER_CALL(ops->map_mr_sg(mr, sg, sg_nents, sg_offset));
}

/* Lists the pages of [from, from + length) behind those that end at `end`. Returns where it ended:
 * behind the last page that was taken, or at the end. */
static u64 sg_take_pages(struct ib_mr *mr, u64 from, u64 length, u64 end,
			 int (*set_page)(struct ib_mr *mr, u64 page), int *err)
{
	u64 size = mr->page_size, page = from & ~(size - 1);

	/* Meets the last element inside a page, which is listed already. */
	if (from == end && from != page)
		page += size;
	for (; page < from + length && !*err; page += size)
		*err = set_page(mr, page);
	return *err ? MAX(page - size, from) : from + length;
}

int ib_sg_to_pages(struct ib_mr *mr, struct scatterlist *sg, int sg_nents, unsigned int *sg_offset,
		   int (*set_page)(struct ib_mr *mr, u64 page))
{
	u64 mask = (u64)mr->page_size - 1, end = 0;
	unsigned int skip = sg_offset ? *sg_offset : 0;
	int err = 0, i = 0;

	if (sg_nents <= 0 || skip > sg_dma_len(sg))
		return -EINVAL;
	mr->iova = sg_dma_address(sg) + skip;
	mr->length = 0;
	for (; sg && i < sg_nents; sg = sg_next(sg), i++, skip = 0) {
		u64 from = sg_dma_address(sg) + skip, length = sg_dma_len(sg) - skip, taken;

		if (i && from != end && ((end | from) & mask))
			break;
		taken = sg_take_pages(mr, from, length, end, set_page, &err) - from;
		mr->length += taken;
		end = from + taken;
		if (err) {
			skip += (unsigned int)taken;
			break;
		}
	}
	if (sg_offset)
		*sg_offset = err ? skip : 0;
	return i || !err || mr->length ? i : err;
}

/* ---- memory windows -------------------------------------------------------------------------- */

static struct ib_mw *ib_mw_finish(struct ib_mw *mw, struct ib_pd *pd)
{
	if (IS_ERR(mw)) {
		use_put(&pd->usecnt);
		return mw;
	}
	mw->device = pd->device;
	mw->pd = pd;
	return mw;
}

struct ib_mw *ib_alloc_mw(struct ib_pd *pd)
{
	if (!pd->device->alloc_mw)
		return ERR_PTR(-ENOSYS);
	if (!use_get(&pd->usecnt))
		return ERR_PTR(-EINVAL);
	return ib_mw_finish(DRIVER_CALL(pd->device->alloc_mw(pd)), pd);
}

struct ib_mw *ib_uverbs_alloc_mw2(struct ib_pd *pd)
{
	const struct ib_uverbs_ops *ops = pd->device->uverbs;

	if (!ops->alloc_mw2)
		return ERR_PTR(-EOPNOTSUPP);
	if (!use_get(&pd->usecnt))
		return ERR_PTR(-EINVAL);
	return ib_mw_finish(DRIVER_CALL(ops->alloc_mw2(pd)), pd);
}

int ib_bind_mw(struct ib_qp *qp, struct ib_mw *mw, struct ib_mw_bind *bind)
{
	if (!qp->device->bind_mw)
		return -ENOSYS;
	if (mw->device != qp->device || (bind->mr && bind->mr->device != qp->device))
		return -EINVAL;
	return DRIVER_CALL(qp->device->bind_mw(qp, mw, bind));
}

int ib_dealloc_mw(struct ib_mw *mw)
{
	struct ib_pd *pd = mw->pd;
	int err;

	if (!mw->device->dealloc_mw)
		return -ENOSYS;
	err = DRIVER_CALL(mw->device->dealloc_mw(mw));
	if (!err)
		use_put(&pd->usecnt);
	return err;
}

/* ---- fast memory regions --------------------------------------------------------------------- */

struct ib_fmr *ib_alloc_fmr(struct ib_pd *pd, int access, struct ib_fmr_attr *attr)
{
	int err = access_check(access);
	struct ib_fmr *fmr;

	if (!pd->device->alloc_fmr)
		return ERR_PTR(-ENOSYS);
	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	fmr = DRIVER_CALL(pd->device->alloc_fmr(pd, access, attr));
	if (IS_ERR(fmr)) {
		use_put(&pd->usecnt);
		return fmr;
	}
	fmr->device = pd->device;
	fmr->pd = pd;
	list_init(&fmr->list);
	return fmr;
}

int ib_map_phys_fmr(struct ib_fmr *fmr, u64 *page_list, int list_len, u64 iova)
{
	if (!fmr->device->map_phys_fmr)
		return -ENOSYS;
	if (list_len < 0)
		return -EINVAL;
	return DRIVER_CALL(fmr->device->map_phys_fmr(fmr, page_list, list_len, iova));
}

int ib_unmap_fmr(struct list_head *fmr_list)
{
	struct ib_device *device;

	if (list_empty(fmr_list))
		return 0;
	device = list_first(fmr_list, struct ib_fmr, list)->device;
	if (!device->unmap_fmr)
		return -ENOSYS;
	list_for_each(fmr, fmr_list, struct ib_fmr, list)
		if (fmr->device != device)
			return -EINVAL;
	return DRIVER_CALL(device->unmap_fmr(fmr_list));
}

int ib_dealloc_fmr(struct ib_fmr *fmr)
{
	struct ib_pd *pd = fmr->pd;
	int err;

	if (!fmr->device->dealloc_fmr)
		return -ENOSYS;
	err = DRIVER_CALL(fmr->device->dealloc_fmr(fmr));
	if (!err)
		use_put(&pd->usecnt);
	return err;
}
