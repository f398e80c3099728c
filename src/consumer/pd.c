/* pd.c: protection domains with keys of their own for all of memory.
 * In: consumers    Out: a domain and, inside it, a region    Runs: the caller    Locks: none
 */
#include <errno.h>

#include "base/log.h"
#include "consumer/consumer_priv.h"

/* The region behind the domain's keys. */
static int consumer_pd_add_keys(struct ib_pd *pd)
{
	int access = IB_ACCESS_LOCAL_WRITE;

	if (pd->flags & IB_PD_UNSAFE_GLOBAL_RKEY)
		access |= IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE;
	struct ib_mr *mr = ib_get_dma_mr(pd, access);

	if (IS_ERR(mr))
		return (int)PTR_ERR(mr);
	pd->internal_mr = mr;
	pd->local_dma_lkey = mr->lkey;
	if (pd->flags & IB_PD_UNSAFE_GLOBAL_RKEY)
		pd->unsafe_global_rkey = mr->rkey;
	return 0;
}

struct ib_pd *ib_alloc_pd_linux61(struct ib_device *device, unsigned int flags)
{
	struct ib_pd *pd;
	int err;

	if (device == NULL || (flags & ~(unsigned int)IB_PD_UNSAFE_GLOBAL_RKEY))
		return ERR_PTR(-EINVAL);
	if (!core_serves_linux61(device))
		return ERR_PTR(-EOPNOTSUPP);
	pd = ib_alloc_pd(device);
	if (IS_ERR(pd))
		return pd;
	pd->flags = flags;
	err = consumer_pd_add_keys(pd);
	if (err == 0)
		return pd;
	ib_dealloc_pd(pd);
	return ERR_PTR(err);
}

/* The region counts as one use. A domain of ib_alloc_pd has none. */
void ib_dealloc_pd_linux61(struct ib_pd *pd)
{
	struct ib_mr *mr;

	if (pd == NULL)
		return;
	mr = core_serves_linux61(pd->device) ? pd->internal_mr : NULL;
	if (__atomic_load_n(&pd->usecnt, __ATOMIC_ACQUIRE) > (mr != NULL) ||
	    (mr != NULL && ib_dereg_mr(mr) != 0)) {
		log_warn("consumer", "a domain of device %s is in use and stays", pd->device->name);
		return;
	}
	ib_dealloc_pd(pd);
}
