/* pd.c: protection domains, the midlayer's one to one.
 * In: a context      Out: domains      Runs: the application's threads      Locks: none
 */
#include <stdlib.h>

#include "door.h"

AV_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct door_context *c = door_context(context);
	struct door_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return door_null(-ENOMEM);
	pd->ib = ib_alloc_pd(c->ib);
	if (IS_ERR(pd->ib)) {
		long error = PTR_ERR(pd->ib);

		free(pd);
		return door_null((int)error);
	}
	pd->ibv.context = context;
	pd->ibv.handle = context_new_handle(c);
	context_get(c);
	return &pd->ibv;
}
DOOR_DEFAULT(ibv_alloc_pd);

AV_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct door_context *c = door_context(pd->context);
	int error = ib_dealloc_pd(door_pd(pd)->ib);

	if (error)
		return door_errno(error);
	free(pd);
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_dealloc_pd);
