/* wq.c: receive work queues, and tables of them.
 * In: consumers, doors    Out: the driver's ib_device_ops    Runs: the caller    Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "core/core_priv.h"

enum {
	WQ_ATTR_MIN = sizeof(struct ib_wq_init_attr),
	WQ_MODIFY_MIN = sizeof(struct ib_wq_attr),
	WQ_TABLE_MIN = sizeof(struct ib_rwq_ind_table_init_attr),
	WQ_TABLE_LOG_MAX = 16, /* beyond what any driver takes */
};

/* ---- work queues ----------------------------------------------------------------------------- */

static int core_wq_check(const struct ib_pd *pd, const struct ib_wq_init_attr *init)
{
	if (!extended_has_wq(pd->device))
		return -EOPNOTSUPP;
	if (init->wq_type != IB_WQT_RQ)
		return -EINVAL;
	return !init->cq || init->cq->device != pd->device ? -EINVAL : 0;
}

struct ib_wq *ib_create_wq(struct ib_pd *pd, struct ib_wq_init_attr *init)
{
	struct ib_wq_init_attr own;
	struct ib_wq *wq;
	int err = extended_take_attr(&own, sizeof(own), init, init->size, WQ_ATTR_MIN);

	if (!err)
		err = core_wq_check(pd, &own);
	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	if (!use_get(&own.cq->usecnt)) {
		use_put(&pd->usecnt);
		return ERR_PTR(-EINVAL);
	}
	wq = DRIVER_CALL(pd->device->core->ops.create_wq(pd, &own));
	if (IS_ERR(wq)) {
		use_put(&own.cq->usecnt);
		use_put(&pd->usecnt);
		return wq;
	}
	wq->device = pd->device;
	wq->pd = pd;
	wq->cq = own.cq;
	wq->wq_type = own.wq_type;
	wq->state = IB_WQS_RESET;
	wq->usecnt = 0;
	init->max_wr = own.max_wr;
	init->max_sge = own.max_sge;
	return wq;
}

static int core_wq_check_move(const struct ib_wq *wq, const struct ib_wq_attr *attr, u32 mask)
{
	enum ib_wq_state now = __atomic_load_n(&wq->state, __ATOMIC_RELAXED);

	if (mask & ~(u32)(IB_WQ_STATE | IB_WQ_CUR_STATE | IB_WQ_FLAGS))
		return -EINVAL;
	if ((mask & IB_WQ_CUR_STATE) && (u32)attr->curr_wq_state > IB_WQS_ERR)
		return -EINVAL;
	if ((mask & IB_WQ_STATE) && (u32)attr->wq_state > IB_WQS_ERR)
		return -EINVAL;
	if ((mask & IB_WQ_STATE) && attr->wq_state == IB_WQS_RDY && now == IB_WQS_ERR)
		return -EINVAL;
	return 0;
}

int ib_modify_wq(struct ib_wq *wq, const struct ib_wq_attr *attr, u32 mask)
{
	struct ib_wq_attr own;
	int err = extended_take_attr(&own, sizeof(own), attr, attr->size, WQ_MODIFY_MIN);

	if (!err)
		err = core_wq_check_move(wq, &own, mask);
	if (!err)
		err = DRIVER_CALL(wq->device->core->ops.modify_wq(wq, &own, mask));
	if (!err && (mask & IB_WQ_STATE))
		__atomic_store_n(&wq->state, own.wq_state, __ATOMIC_RELAXED);
	return err;
}

int ib_destroy_wq(struct ib_wq *wq)
{
	struct ib_pd *pd = wq->pd;
	struct ib_cq *cq = wq->cq;
	int err;

	if (!use_claim(&wq->usecnt))
		return -EBUSY;
	err = DRIVER_CALL(wq->device->core->ops.destroy_wq(wq));
	if (err) {
		use_unclaim(&wq->usecnt);
		return err;
	}
	use_put(&cq->usecnt);
	use_put(&pd->usecnt);
	return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void core_table_put(struct ib_wq **list, u32 count)
{
	for (u32 i = 0; i < count; i++)
		use_put(&list[i]->usecnt);
	free(list);
}

/* A copy of the list, each queue counted once for each place. ERR_PTR. */
static struct ib_wq **core_table_get(const struct ib_device *device, struct ib_wq *const *list,
				     u32 count)
{
	struct ib_wq **copy = malloc(count * sizeof(struct ib_wq *));

	if (!copy)
		return ERR_PTR(-ENOMEM);
	for (u32 i = 0; i < count; i++) {
		copy[i] = list[i];
		if (copy[i] && copy[i]->device == device && use_get(&copy[i]->usecnt))
			continue;
		core_table_put(copy, i);
		return ERR_PTR(-EINVAL);
	}
	return copy;
}

struct ib_rwq_ind_table *
ib_create_rwq_ind_table(struct ib_device *device, const struct ib_rwq_ind_table_init_attr *init)
{
	struct ib_rwq_ind_table_init_attr own;
	struct ib_rwq_ind_table *table;
	struct ib_wq **list;
	int err = extended_take_attr(&own, sizeof(own), init, init->size, WQ_TABLE_MIN);

	if (!err && !extended_has_wq(device))
		err = -EOPNOTSUPP;
	if (!err && (own.log_ind_tbl_size > WQ_TABLE_LOG_MAX || !own.ind_tbl))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	list = core_table_get(device, own.ind_tbl, 1u << own.log_ind_tbl_size);
	if (IS_ERR(list))
		return ERR_PTR(PTR_ERR(list));
	table = DRIVER_CALL(device->core->ops.create_rwq_ind_table(device, &own));
	if (IS_ERR(table)) {
		core_table_put(list, 1u << own.log_ind_tbl_size);
		return table;
	}
	table->device = device;
	table->usecnt = 0;
	table->log_ind_tbl_size = own.log_ind_tbl_size;
	table->ind_tbl = list;
	return table;
}

int ib_destroy_rwq_ind_table(struct ib_rwq_ind_table *table)
{
	u32 count = 1u << table->log_ind_tbl_size;
	struct ib_wq **list = table->ind_tbl;
	int err;

	if (!use_claim(&table->usecnt))
		return -EBUSY;
	err = DRIVER_CALL(table->device->core->ops.destroy_rwq_ind_table(table));
	if (err)
		use_unclaim(&table->usecnt);
	else
		core_table_put(list, count);
	return err;
}
