/* device.c: what rsockets ask of their device beyond the verbs.
 * In:    contexts of libibverbs            Out: buffers, sleeps that drive the device
 * Runs:  any thread                        Locks: none of its own
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../ibverbs/door.h"
#include "device.h"

/* The device's way of sleeping; NULL: not known yet. Contexts that race store the same. */
static const struct ib_sleep_ops *device_sleep;

void rsocket_device_use(struct ibv_context *verbs)
{
	__atomic_store_n(&device_sleep, door_context(verbs)->ops->sleep, __ATOMIC_RELEASE);
}

const struct ib_sleep_ops *rsocket_device_sleep(void)
{
	return __atomic_load_n(&device_sleep, __ATOMIC_ACQUIRE);
}

bool rsocket_store(struct ibv_qp *qp, u32 rkey, u64 va, const void *from, u32 length)
{
	const struct ib_uverbs_ops *ops = door_context(qp->context)->ops;

	return ops->store != NULL && ops->store(door_qp(qp)->ib, rkey, va, from, length);
}

bool rsocket_hears_of_death(struct ibv_qp *qp)
{
	return rsocket_store(qp, 0, 0, NULL, 0);
}

static bool buffer_alloc(struct rsocket_buffer *b, struct ibv_context *verbs, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;

	b->ib = door_context(verbs)->ib;
	b->at = ib_uverbs_alloc_buffer(b->ib, whole);
	if (b->at != NULL)
		return true;
	b->ib = NULL;
	b->at = aligned_alloc(page, whole);
	if (b->at != NULL)
		memset(b->at, 0, whole);
	return b->at != NULL;
}

static void buffer_free(struct rsocket_buffer *b)
{
	if (b->ib != NULL)
		ib_uverbs_free_buffer(b->ib, b->at);
	else
		free(b->at);
	b->at = NULL;
}

int rsocket_buffer_create(struct rsocket_buffer *b, struct ibv_pd *pd, size_t size, int access)
{
	int err;

	if (!buffer_alloc(b, pd->context, size))
		return -ENOMEM;
	b->mr = ibv_reg_mr(pd, b->at, size, access);
	if (b->mr != NULL)
		return 0;
	err = -errno;
	buffer_free(b);
	return err;
}

void rsocket_buffer_destroy(struct rsocket_buffer *b)
{
	if (b->at == NULL)
		return;
	/* A peer that is stopped inside a copy may still write there. */
	if (ibv_dereg_mr(b->mr) == 0)
		buffer_free(b);
	*b = (struct rsocket_buffer){ .at = NULL };
}
