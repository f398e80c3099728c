/* odp.c: on-demand paging: regions whose memory comes and goes while their key is valid.
 * In: ranges, advice    Out: keys, pages made present    Runs: any thread    Locks: none
 *
 * An adapter with on-demand paging asks the kernel for each page when an operation needs it. Here
 * every copy is by a processor of this process (base/fault.h): it faults pages in by itself, and
 * one that finds no page, or a read-only one, ends as an error completion. So such a region only
 * has to be left alone: nothing is made present, its pages are not adopted, for the application may
 * map others in their place, and peers send packets (MEM_ON_DEMAND).
 */
#include <errno.h>

#include "driver/soft/soft.h"
#include "shared/shared.h"

enum {
	ODP_XRC = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV | IB_ODP_SUPPORT_WRITE |
		  IB_ODP_SUPPORT_READ | IB_ODP_SUPPORT_ATOMIC | IB_ODP_SUPPORT_SRQ_RECV,
	ODP_RC = ODP_XRC | IB_ODP_SUPPORT_FLUSH | IB_ODP_SUPPORT_ATOMIC_WRITE,
	/* no SRQ */
	ODP_UC = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV | IB_ODP_SUPPORT_WRITE,
	ODP_UD = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV | IB_ODP_SUPPORT_SRQ_RECV,
};

const struct ib_odp_caps soft_odp_caps = {
	.general_caps = IB_ODP_SUPPORT | IB_ODP_SUPPORT_IMPLICIT,
	.rc_odp_caps = ODP_RC,
	.uc_odp_caps = ODP_UC,
	.ud_odp_caps = ODP_UD,
	.xrc_odp_caps = ODP_XRC,
};

struct ib_mr *soft_mr_on_demand(struct ib_pd *pd, struct mem_region *region)
{
	bool implicit = region->length == SIZE_MAX;
	struct ib_mr *mr;
	int err = soft_attach(soft_dev(pd->device));

	if (err != 0)
		return ERR_PTR(err);
	if (region->length == 0 || (implicit && (region->addr != 0 || region->iova != 0)))
		return ERR_PTR(-EINVAL);
	region->flags |= MEM_ON_DEMAND;
	if (implicit) {
		region->flags = MEM_ALL | MEM_ON_DEMAND;
		adopt_enter_all();
	} else if (the_seat.direct) {
		adopt_hold(region->addr, region->length);
	}
	mr = soft_mr_register(pd, region);
	if (implicit || !the_seat.direct)
		return mr;
	if (IS_ERR(mr))
		adopt_leave(region->addr, region->length, true);
	else
		SOFT_OF(mr, mr)->entered = true;
	return mr;
}

/* ---- advice ---------------------------------------------------------------------------------- */

/* Says where the range lies in this process. */
static int odp_find(u32 pd, const struct ibv_sge *sge, bool write, u64 *addr)
{
	struct mem_entry e;
	u64 offset;
	int err = mem_describe(&the_seat.a.mem, sge->lkey, &e);

	if (err != 0)
		return err;
	if (e.flags & MEM_WINDOW || !(e.access & IBV_ACCESS_ON_DEMAND))
		return -EINVAL;
	if (e.pd != pd || (write && !(e.access & IBV_ACCESS_LOCAL_WRITE)))
		return -EPERM;
	offset = sge->addr - e.iova;
	if (sge->length > e.length || offset > e.length - sge->length)
		return -EFAULT;
	*addr = e.addr + offset;
	return 0;
}

int soft_uverbs_advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice, u32 flags,
			  const struct ibv_sge *sge, u32 count)
{
	bool write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	bool wait = flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
	int err = soft_attach(soft_dev(pd->device));

	if (err != 0)
		return err;
	if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return -EOPNOTSUPP;
	if (flags & ~(u32)IB_UVERBS_ADVISE_MR_FLAG_FLUSH || count == 0)
		return -EINVAL;
	for (u32 i = 0; i < count; i++) {
		u64 addr;

		err = odp_find(soft_pd_number(pd), &sge[i], write, &addr);
		if (err == 0 && advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
			err = mem_prefetch(addr, sge[i].length, write, wait);
		if (err != 0)
			return err;
	}
	return 0;
}
