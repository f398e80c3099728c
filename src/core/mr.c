/* mr.c: memory regions, memory windows and fast memory regions.
 * In: consumers    Out: the driver's methods    Runs: the caller    Locks: none
 */
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
	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	return ib_mr_finish(DRIVER_CALL(ops->reg_user_mr(pd, start, length, iova, access)), pd);
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
	struct ib_pd *pd = mr->pd;
	int err;

	if (!use_claim(&mr->usecnt))
		return -EBUSY;
	err = DRIVER_CALL(mr->device->dereg_mr(mr));
	if (err)
		use_unclaim(&mr->usecnt);
	else
		use_put(&pd->usecnt);
	return err;
}

/* ---- memory windows -------------------------------------------------------------------------- */

struct ib_mw *ib_alloc_mw(struct ib_pd *pd)
{
	struct ib_mw *mw;

	if (!pd->device->alloc_mw)
		return ERR_PTR(-ENOSYS);
	if (!use_get(&pd->usecnt))
		return ERR_PTR(-EINVAL);
	mw = DRIVER_CALL(pd->device->alloc_mw(pd));
	if (IS_ERR(mw)) {
		use_put(&pd->usecnt);
		return mw;
	}
	mw->device = pd->device;
	mw->pd = pd;
	return mw;
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
