/* pd.c: protection domains: a number that keys and queue pairs must agree on. */
#include "driver/roce/roce.h"

#include <errno.h>
#include <stdlib.h>

static struct ib_pd *pd_alloc(struct ib_device *ib)
{
	struct roce_device *dev = roce_dev(ib);
	int err = roce_attach(dev);
	struct roce_pd *pd;

	if (err != 0)
		return ERR_PTR(err);
	if (__atomic_add_fetch(&dev->pd_count, 1, __ATOMIC_RELAXED) > ROCE_MAX_PD ||
	    (pd = calloc(1, sizeof(*pd))) == NULL) {
		__atomic_sub_fetch(&dev->pd_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	pd->number = __atomic_add_fetch(&dev->next_pd, 1, __ATOMIC_RELAXED);
	return &pd->ib;
}

static int pd_dealloc(struct ib_pd *ib)
{
	__atomic_sub_fetch(&roce_dev(ib->device)->pd_count, 1, __ATOMIC_RELAXED);
	free(ROCE_OF(pd, ib));
	return 0;
}

void roce_fill_pd(struct ib_device *ib)
{
	ib->alloc_pd = pd_alloc;
	ib->dealloc_pd = pd_dealloc;
}
