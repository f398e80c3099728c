/* counters.c: counters of flow rules, and which index of an application's array shows which.
 * In: what an index is to count    Out: values    Runs: the application's threads
 * Locks: counters_lock
 */
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "door.h"

enum { COUNTER_POINTS = 8192 }; /* of one handle, at most */

_Static_assert((int)IB_COUNTER_PACKETS == (int)IBV_COUNTER_PACKETS &&
		       (int)IB_COUNTER_BYTES == (int)IBV_COUNTER_BYTES,
	       "the kinds agree");

/* The points of all counters: one lock, which a fork can take. */
static struct lock counters_lock ONE_AT_A_TIME;
FORK_TAKES(FORK_COUNTERS, &counters_lock);

struct ibv_counters *counters_create(struct ibv_context *context,
				     struct ibv_counters_init_attr *attr)
{
	struct door_context *c = door_context(context);
	struct door_counters *counters;

	if (attr->comp_mask)
		return door_null(-EINVAL);
	counters = calloc(1, sizeof(*counters));
	if (!counters)
		return door_null(-ENOMEM);
	counters->ib = ib_create_counters(c->ib);
	if (IS_ERR(counters->ib)) {
		int error = (int)PTR_ERR(counters->ib);

		free(counters);
		return door_null(error);
	}
	counters->ibv.context = context;
	context_get(c);
	return &counters->ibv;
}

int counters_destroy(struct ibv_counters *ibv) NO_THREAD_SAFETY /* the caller has it alone */
{
	struct door_counters *counters = door_counters(ibv);
	struct door_context *c = door_context(ibv->context);
	int error = ib_destroy_counters(counters->ib);

	if (error)
		return door_errno(error);
	free(counters->points);
	free(counters);
	context_put(c);
	return 0;
}

static int counters_add_point(struct door_counters *counters, u32 index,
			      enum ib_counters_description what) REQUIRES(counters_lock)
{
	struct door_counter_point *points;

	if (counters->point_count == COUNTER_POINTS)
		return ENOMEM;
	points = realloc(counters->points, (counters->point_count + 1) * sizeof(*points));
	if (!points)
		return ENOMEM;
	points[counters->point_count++] =
		(struct door_counter_point){ .index = index, .what = what };
	counters->points = points;
	return 0;
}

/* Only statically, before a rule names the counters: `flow` says that it is to be otherwise. */
int counters_attach(struct ibv_counters *ibv, struct ibv_counter_attach_attr *attr,
		    struct ibv_flow *flow)
{
	struct door_counters *counters = door_counters(ibv);
	u64 now[IB_COUNTER_KINDS];
	int error;

	if (flow || attr->comp_mask || (u32)attr->counter_desc >= IB_COUNTER_KINDS)
		return EOPNOTSUPP;
	if (attr->index == UINT32_MAX) /* no array has it */
		return EINVAL;
	error = ib_read_counters(counters->ib, now); /* -EIO: the device is gone */
	if (error)
		return door_errno(error);
	if (__atomic_load_n(&counters->ib->usecnt, __ATOMIC_RELAXED))
		return EBUSY;
	lock_acquire(&counters_lock);
	error = counters_add_point(counters, attr->index,
				   (enum ib_counters_description)attr->counter_desc);
	lock_release(&counters_lock);
	return error;
}

/* False: the array is too short for an index. */
static bool counters_fits(const struct door_counters *counters, u32 count) REQUIRES(counters_lock)
{
	for (u32 i = 0; i < counters->point_count; i++)
		if (counters->points[i].index >= count)
			return false;
	return true;
}

int counters_read(struct ibv_counters *ibv, uint64_t *values, uint32_t count, uint32_t flags)
{
	struct door_counters *counters = door_counters(ibv);
	u64 now[IB_COUNTER_KINDS];
	int error;

	if (!values || flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED)
		return EINVAL;
	error = ib_read_counters(counters->ib, now);
	if (error)
		return door_errno(error);
	lock_acquire(&counters_lock);
	if (counters_fits(counters, count)) {
		memset(values, 0, count * sizeof(*values));
		for (u32 i = 0; i < counters->point_count; i++)
			values[counters->points[i].index] += now[counters->points[i].what];
	} else {
		error = EINVAL;
	}
	lock_release(&counters_lock);
	return error;
}
