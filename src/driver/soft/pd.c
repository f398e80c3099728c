/* pd.c: protection domains: each has a number, which a key and the queue pair that uses it must
 * share. */
#include "driver/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

static struct ib_pd *pd_alloc(struct ib_device *ib)
{
	struct soft_device *dev = soft_dev(ib);
	int err = soft_attach(dev);
	struct soft_pd *pd;

	if (err != 0)
		return ERR_PTR(err);
	if (__atomic_add_fetch(&dev->pd_count, 1, __ATOMIC_RELAXED) > SOFT_MAX_PD ||
	    (pd = calloc(1, sizeof(*pd))) == NULL) {
		__atomic_sub_fetch(&dev->pd_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	pd->number = seat_pd_number(&the_seat);
	return &pd->ib;
}

static int pd_dealloc(struct ib_pd *ib)
{
	__atomic_sub_fetch(&soft_dev(ib->device)->pd_count, 1, __ATOMIC_RELAXED);
	free(SOFT_OF(pd, ib));
	return 0;
}

u32 soft_pd_number(struct ib_pd *pd)
{
	return SOFT_OF(pd, pd)->number;
}

void soft_fill_pd(struct ib_device *ib)
{
	ib->alloc_pd = pd_alloc;
	ib->dealloc_pd = pd_dealloc;
}
