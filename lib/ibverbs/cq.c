/* cq.c: completion queues.
 * In: completions of the driver, in libibverbs' layout already
 * Out: ibv_poll_cq, events on a channel
 * Runs: the application's threads
 * Locks: none
 */
#include <pthread.h>
#include <stdlib.h>

#include "door.h"

static void cq_count_on_channel(struct ibv_comp_channel *channel, int change)
{
	/* Release: a CQ that goes was done with the channel. Partner: ibv_destroy_comp_channel. */
	if (channel)
		__atomic_fetch_add(&channel->refcnt, change, __ATOMIC_RELEASE);
}

static void cq_fill(struct door_cq *cq, struct ibv_context *context, void *cq_context,
		    struct ibv_comp_channel *channel)
{
	cq->ex.context = context;
	cq->ex.channel = channel;
	cq->ex.cq_context = cq_context;
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
}

/* What a program asks for. */
struct cq_wish {
	struct ibv_context *context;
	int cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	int vector;
	u32 flags; /* enum ib_cq_creation_flags */
	struct ibv_pd *parent_domain;
} OWNED_BY(the caller);

static struct door_cq *cq_make(const struct cq_wish *w, int *error)
{
	struct ibv_comp_channel *channel = w->channel;
	struct ibv_context *context = w->context;
	struct door_context *c = door_context(context);
	struct ib_uverbs_cq_attr attr = {
		.cq = { .size = sizeof(attr.cq),
			.flags = w->flags,
			.cqe = w->cqe,
			.comp_vector = w->vector },
		.event_handler = async_on_cq,
		.memory = pd_memory(w->parent_domain),
	};
	struct ibv_cq *ibv;
	struct door_cq *cq;

	*error = -EINVAL;
	if (w->cqe < 1 || w->vector < 0 || w->vector >= context->num_comp_vectors)
		return NULL;
	if (channel && !context_is_same(channel->context, context))
		return NULL;
	*error = -ENOMEM;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	ibv = ibv_cq_ex_to_cq(&cq->ex);
	cq_fill(cq, context, w->cq_context, channel);
	cq->poll = c->ops->poll_cq;
	attr.channel = channel ? door_channel(channel)->ch : NULL;
	attr.cookie = attr.cq_context = ibv;
	cq->ib = ib_uverbs_create_cq(c->ib, &attr);
	if (IS_ERR(cq->ib)) {
		*error = (int)PTR_ERR(cq->ib);
		free(cq);
		return NULL;
	}
	cq->ex.cqe = cq->ib->cqe;
	ib_uobject_add(c->ucontext, &cq->uobj, IB_UOBJECT_CQ, cq->ib);
	cq->ex.handle = cq->uobj.handle;
	context_get(c);
	cq_count_on_channel(channel, 1);
	return cq;
}

AV_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector)
{
	struct cq_wish w = { .context = context,
			     .cqe = cqe,
			     .cq_context = cq_context,
			     .channel = channel,
			     .vector = comp_vector };
	int error;
	struct door_cq *cq = cq_make(&w, &error);

	return cq ? ibv_cq_ex_to_cq(&cq->ex) : door_null(error);
}
DOOR_DEFAULT(ibv_create_cq);

/* What the driver is asked for. Nothing sets VLAN tags, which stay in raw packets, nor flow tags,
 * which no rule gives: they are 0. -EOPNOTSUPP: something else is wanted. */
static int cq_flags_below(const struct ibv_cq_init_attr_ex *attr, u32 flags, u32 *below)
{
	const uint64_t known = IBV_CREATE_CQ_SUP_WC_FLAGS;

	if ((attr->wc_flags & ~known) || (flags & ~(u32)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
							 IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)))
		return -EOPNOTSUPP;
	*below = 0;
	if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		*below |= IB_CQ_FLAGS_TIMESTAMP_COMPLETION;
	if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		*below |= IB_CQ_FLAGS_WALLCLOCK;
	if (attr->wc_flags & IBV_WC_EX_WITH_TM_INFO)
		*below |= IB_CQ_FLAGS_TM_INFO;
	if (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
		*below |= IB_CQ_FLAGS_IGNORE_OVERRUN;
	return 0;
}

struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	u32 flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct cq_wish w = { .context = context,
			     .cq_context = attr->cq_context,
			     .channel = attr->channel };
	int error = cq_flags_below(attr, flags, &w.flags);
	struct door_cq *cq;

	if (error)
		return door_null(error);
	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return door_null(-EOPNOTSUPP);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		w.parent_domain = attr->parent_domain;
		if (!w.parent_domain || !context_is_same(w.parent_domain->context, context) ||
		    !door_pd(w.parent_domain)->parent)
			return door_null(-EINVAL);
	}
	if (attr->cqe > INT32_MAX || attr->comp_vector > INT32_MAX)
		return door_null(-EINVAL);
	w.cqe = (int)attr->cqe;
	w.vector = (int)attr->comp_vector;
	cq = cq_make(&w, &error);
	if (!cq)
		return door_null(error);
	cq->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	if (w.parent_domain) {
		cq->parent_domain = w.parent_domain;
		pd_hold(w.parent_domain);
	}
	cq_ex_init(cq, attr->wc_flags);
	return &cq->ex;
}

/* Shows the size in `*shown`. Other threads may change it meanwhile: each loads it again after it
 * has stored it, so the last store has the last size. */
void cq_show_size(const struct ib_cq *ib, int *shown)
{
	int cqe;

	do {
		/* pairs with the driver's store */
		cqe = __atomic_load_n(&ib->cqe, __ATOMIC_SEQ_CST);
		__atomic_store_n(shown, cqe, __ATOMIC_SEQ_CST);
	} while (__atomic_load_n(&ib->cqe, __ATOMIC_SEQ_CST) != cqe);
}

AV_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	int error = cqe < 1 ? -EINVAL : ib_resize_cq(door_cq(cq)->ib, cqe);

	if (!error)
		cq_show_size(door_cq(cq)->ib, &cq->cqe);
	return door_errno(error);
}
DOOR_DEFAULT(ibv_resize_cq);

int cq_modify(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
		return EOPNOTSUPP;
	return door_errno(ib_modify_cq(door_cq(cq)->ib, attr->moderate.cq_count,
				       attr->moderate.cq_period));
}

AV_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct door_context *c = door_context(cq->context);
	/* Returns when every event is acknowledged and no handler runs: no new event can reach the
	 * queue. */
	int error = ib_destroy_cq(door_cq(cq)->ib);

	if (error)
		return door_errno(error);
	async_queue_forget(c->async, cq);
	ib_uobject_remove(c->ucontext, &door_cq(cq)->uobj, true);
	cq_count_on_channel(cq->channel, -1);
	if (door_cq(cq)->parent_domain)
		pd_release(door_cq(cq)->parent_domain);
	free(cq);
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_destroy_cq);

int cq_poll(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct door_cq *cq = door_cq(ibv);

	return cq->poll(cq->ib, n, wc);
}

int cq_req_notify(struct ibv_cq *cq, int solicited_only)
{
	return door_errno(ib_req_notify_cq(door_cq(cq)->ib,
					   solicited_only ? IB_CQ_SOLICITED : IB_CQ_NEXT_COMP));
}
