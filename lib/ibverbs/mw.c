/* mw.c: memory windows: of both types; binds of type 1. Those of type 2 are work requests.
 * In: a region and a range
 * Out: a key of its own
 * Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>

#include "door.h"

struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct door_context *c = door_context(pd->context);
	struct door_mw *mw;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return door_null(-EINVAL);
	if (pd_is_gone(pd))
		return door_null(-EINVAL);
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return door_null(-ENOMEM);
	mw->ib = type == IBV_MW_TYPE_1 ? ib_alloc_mw(door_pd(pd)->ib)
				       : ib_uverbs_alloc_mw2(door_pd(pd)->ib);
	if (IS_ERR(mw->ib)) {
		long error = PTR_ERR(mw->ib);

		free(mw);
		return door_null((int)error);
	}
	mw->ibv.context = pd->context;
	mw->ibv.pd = pd;
	mw->ibv.rkey = mw->ib->rkey;
	ib_uobject_add(c->ucontext, &mw->uobj, IB_UOBJECT_MW, mw->ib);
	mw->ibv.handle = mw->uobj.handle;
	mw->ibv.type = type;
	pd_hold(pd);
	context_get(c);
	return &mw->ibv;
}

int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	const struct ibv_mw_bind_info *info = &bind->bind_info;
	struct ib_mw_bind ib = {
		.mr = info->mr ? door_mr(info->mr)->ib : NULL,
		.wr_id = bind->wr_id,
		.addr = info->addr,
		.length = (u32)info->length,
		.send_flags = (int)bind->send_flags,
		.mw_access_flags = (int)info->mw_access_flags,
	};
	int error;

	if (mw->type != IBV_MW_TYPE_1 || info->length > UINT32_MAX ||
	    (info->mr && door_mr(info->mr)->uobj.gone))
		return EINVAL;
	error = ib_bind_mw(door_qp(qp)->ib, door_mw(mw)->ib, &ib);
	if (!error)
		mw->rkey = door_mw(mw)->ib->rkey;
	return door_errno(error);
}

int mw_dealloc(struct ibv_mw *mw)
{
	struct door_context *c = door_context(mw->context);
	int error = ib_dealloc_mw(door_mw(mw)->ib);

	if (error)
		return door_errno(error);
	ib_uobject_remove(c->ucontext, &door_mw(mw)->uobj, true);
	pd_release(mw->pd);
	free(mw);
	context_put(c);
	return 0;
}
