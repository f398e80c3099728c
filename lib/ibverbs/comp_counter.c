/* comp_counter.c: completion counters, of rdma-core 65: how many requests of queue pairs have
 * ended, or how many bytes they had.
 * In: queue pairs, kinds of requests    Out: numbers    Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "base/op_counter.h"
#include "door.h"

enum { COMP_COUNTERS = 65536 }; /* of this process, at most */
enum comp_counter_type { COMP_COUNTER_WRS, COMP_COUNTER_BYTES, COMP_COUNTER_TYPES };

/* The layouts of later headers. */
struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
	uint64_t comp_count_max_value, err_count_max_value;
} FIXED;

struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask;
	uint32_t type;
	uint32_t flags;
} OWNED_BY(the caller);

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask;
	uint32_t op_mask;
} OWNED_BY(the caller);

struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters;
	uint32_t supported_qp_attach_ops;
} OWNED_BY(the caller);

struct door_comp_counter {
	struct ibv_comp_cntr ibv FIXED;
	struct op_counter values GUARDS_ITSELF;
	int users ATOMIC_ONLY; /* queue pairs, once for each attachment */
};

struct door_count {
	struct door_count *next FIXED;
	struct door_comp_counter *counter FIXED;
};

static int comp_counters; /* atomic: how many there are */

AV_EXPORT int _ibv_query_comp_cntr_caps(struct ibv_context *context,
					struct ibv_comp_cntr_caps *caps, size_t size);
AV_EXPORT struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
						     struct ibv_comp_cntr_init_attr *attr);
AV_EXPORT int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
AV_EXPORT int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
				      struct ibv_qp_attach_comp_cntr_attr *attr);
AV_EXPORT int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
AV_EXPORT int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
AV_EXPORT int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
AV_EXPORT int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
AV_EXPORT int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
AV_EXPORT int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);

static struct op_counter *counter_of(struct ibv_comp_cntr *counter)
{
	return &((struct door_comp_counter *)counter)->values;
}

/* ---- capabilities, creation ------------------------------------------------------------------ */

int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps,
			      size_t size)
{
	const struct ib_uverbs_ops *ops = door_context(context)->ops;
	struct ibv_comp_cntr_caps full = { .max_value = UINT64_MAX,
					   .max_counters = COMP_COUNTERS,
					   .supported_qp_attach_ops = ops->counted_ops };

	if (!ops->attach_counter)
		return EOPNOTSUPP;
	memset(caps, 0, size);
	memcpy(caps, &full, MIN(size, sizeof(full)));
	return 0;
}

struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attr)
{
	struct door_context *c = door_context(context);
	struct door_comp_counter *counter;

	if (!c->ops->attach_counter)
		return door_null(-EOPNOTSUPP);
	if (attr->comp_mask || attr->flags || attr->type >= COMP_COUNTER_TYPES)
		return door_null(-EINVAL);
	if (__atomic_add_fetch(&comp_counters, 1, __ATOMIC_RELAXED) > COMP_COUNTERS ||
	    !(counter = calloc(1, sizeof(*counter)))) {
		__atomic_sub_fetch(&comp_counters, 1, __ATOMIC_RELAXED);
		return door_null(-ENOMEM);
	}
	counter->values.counts_bytes = attr->type == COMP_COUNTER_BYTES;
	counter->ibv = (struct ibv_comp_cntr){ .context = context,
					       .handle = ib_ucontext_new_handle(c->ucontext),
					       .comp_count_max_value = UINT64_MAX,
					       .err_count_max_value = UINT64_MAX };
	context_get(c);
	return &counter->ibv;
}

int ibv_destroy_comp_cntr(struct ibv_comp_cntr *ibv)
{
	struct door_comp_counter *counter = (struct door_comp_counter *)ibv;
	struct door_context *c = door_context(ibv->context);

	/* Pairs with the release in counts_leave: no queue pair counts any more. */
	if (__atomic_load_n(&counter->users, __ATOMIC_ACQUIRE))
		return EBUSY;
	free(counter);
	__atomic_sub_fetch(&comp_counters, 1, __ATOMIC_RELAXED);
	context_put(c);
	return 0;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

static void counts_add(struct door_qp *qp, struct door_count *count,
		       struct door_comp_counter *counter)
{
	count->counter = counter;
	count->next = __atomic_load_n(&qp->counts, __ATOMIC_RELAXED);
	/* The list is read only when the queue pair is destroyed. */
	while (!__atomic_compare_exchange_n(&qp->counts, &count->next, count, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *ibv,
			    struct ibv_qp_attach_comp_cntr_attr *attr)
{
	const struct ib_uverbs_ops *ops = door_context(qp->context)->ops;
	struct door_comp_counter *counter = (struct door_comp_counter *)ibv;
	struct door_count *count;
	int error;

	if (!ops->attach_counter)
		return EOPNOTSUPP;
	if (attr->comp_mask || !context_is_same(ibv->context, qp->context))
		return EINVAL;
	count = calloc(1, sizeof(*count));
	if (!count)
		return ENOMEM;
	__atomic_fetch_add(&counter->users, 1, __ATOMIC_RELAXED);
	error = ops->attach_counter(door_qp(qp)->ib, &counter->values, attr->op_mask);
	if (error) {
		__atomic_fetch_sub(&counter->users, 1, __ATOMIC_RELEASE);
		free(count);
		return door_errno(error);
	}
	counts_add(door_qp(qp), count, counter);
	return 0;
}

void counts_leave(struct door_qp *qp)
{
	struct door_count *next;

	for (struct door_count *count = __atomic_load_n(&qp->counts, __ATOMIC_RELAXED); count;
	     count = next) {
		next = count->next;
		/* Pairs with the acquire in ibv_destroy_comp_cntr. */
		__atomic_fetch_sub(&count->counter->users, 1, __ATOMIC_RELEASE);
		free(count);
	}
}

/* ---- values ---------------------------------------------------------------------------------- */

int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	__atomic_store_n(&counter_of(counter)->done, value, __ATOMIC_RELAXED);
	return 0;
}

int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	__atomic_store_n(&counter_of(counter)->failed, value, __ATOMIC_RELAXED);
	return 0;
}

int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	__atomic_fetch_add(&counter_of(counter)->done, amount, __ATOMIC_RELAXED);
	return 0;
}

int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount)
{
	__atomic_fetch_add(&counter_of(counter)->failed, amount, __ATOMIC_RELAXED);
	return 0;
}

/* Acquire pairs with the release in op_counter_add: what has been counted is to be seen. */
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	*value = __atomic_load_n(&counter_of(counter)->done, __ATOMIC_ACQUIRE);
	return 0;
}

int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	*value = __atomic_load_n(&counter_of(counter)->failed, __ATOMIC_ACQUIRE);
	return 0;
}
