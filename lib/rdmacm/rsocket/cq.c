/* cq.c: completion queues of rsockets.
 * In:    completions                       Out: threads that run again
 * Runs:  rsocket_cq_notify on whichever thread completes, the rest on the application's
 * Locks: none; wait_queue.lock under that of the completion channel
 */
#include "cq.h"

#include "device.h"
#include "event/event.h"

enum { RSOCKET_INLINE_MIN = 32 }; /* an entry of the table, or of a mapping */

/* The next completion of an armed CQ: in its producer's context, with the channel's lock. */
static void rsocket_cq_notify(void *cookie)
{
	rsocket_cq_tell(((struct ibv_cq *)cookie)->cq_context);
}

int rsocket_cq_create(struct rsocket_cq *c, struct ibv_context *verbs, u32 entries,
		      struct wait_queue *waiters)
{
	int err = 0;

	rsocket_device_use(verbs);
	c->waiters = waiters;
	channel_notify_next(rsocket_cq_notify);
	c->channel = ibv_create_comp_channel(verbs);
	channel_notify_next(NULL);
	if (c->channel == NULL)
		return -errno;
	c->cq = ibv_create_cq(verbs, (int)entries, c, c->channel, 0);
	if (c->cq != NULL)
		return 0;
	err = -errno;
	rsocket_cq_destroy(c);
	return err;
}

void rsocket_cq_destroy(struct rsocket_cq *c)
{
	if (c->cq != NULL)
		ibv_destroy_cq(c->cq);
	if (c->channel != NULL)
		ibv_destroy_comp_channel(c->channel);
	c->cq = NULL;
	c->channel = NULL;
}

void rsocket_cq_arm(struct rsocket_cq *c)
{
	/* before the CQ can tell of anything; pairs with rsocket_cq_tell */
	__atomic_store_n(&c->armed, 1, __ATOMIC_SEQ_CST);
	(void)ibv_req_notify_cq(c->cq, 0);
}

int rsocket_qp_create(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_init_attr wanted = *attr;
	u32 bytes = wanted.cap.max_inline_data;

	while (rdma_create_qp(id, pd, attr) != 0) {
		if (errno != EINVAL || bytes <= RSOCKET_INLINE_MIN)
			return -errno;
		bytes = MAX(bytes / 2, (u32)RSOCKET_INLINE_MIN);
		*attr = wanted;
		attr->cap.max_inline_data = bytes;
	}
	return 0;
}
