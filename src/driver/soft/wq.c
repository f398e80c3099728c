/* wq.c: receive work queues, and the tables that spread frames over them.
 * In: verbs, frames' fields    Out: receive queues    Runs: any thread
 * Locks: list_lock for the device's list
 */
#include <errno.h>
#include <stdlib.h>

#include "driver/soft/raw.h"

const struct ib_rss_caps soft_rss_caps = {
	.supported_qpts = 1u << IB_QPT_RAW_PACKET,
	.max_rwq_indirection_tables = RAW_MAX_TABLES,
	.max_rwq_indirection_table_size = 1u << RAW_MAX_TABLE_LOG,
	.rx_hash_fields_mask = RSS_FIELDS,
	.rx_hash_function = IB_RX_HASH_FUNC_TOEPLITZ,
};

/* One more of the device's objects of a kind. */
static int soft_wq_count(u32 *count, u32 limit)
{
	if (__atomic_add_fetch(count, 1, __ATOMIC_RELAXED) <= limit)
		return 0;
	__atomic_sub_fetch(count, 1, __ATOMIC_RELAXED);
	return -ENOMEM;
}

/* ---- work queues ---- */

static int soft_wq_begin(struct soft_wq *wq, struct ib_pd *pd, struct ib_wq_init_attr *init)
{
	int err = init->max_wr == 0 ? -EINVAL
				    : soft_rq_init(&wq->rq, NULL, &init->max_wr, &init->max_sge);

	if (err == 0)
		err = seat_qpn_take(&the_seat, &wq->index, &wq->ib.wq_num);
	if (err != 0) {
		soft_rq_fini(&wq->rq);
		return err;
	}
	wq->generation = seat_generation(&the_seat);
	wq->rq.cq = &SOFT_OF(cq, init->cq)->q;
	wq->rq.pd = soft_pd_number(pd);
	wq->rq.number = wq->ib.wq_num;
	cq_names_no_qp(wq->rq.cq);
	return 0;
}

struct ib_wq *soft_create_wq(struct ib_pd *pd, struct ib_wq_init_attr *init)
{
	struct soft_device *dev = soft_dev(pd->device);
	int err = init->create_flags != 0 || dev->kind->carrier == NULL ? -EOPNOTSUPP
									   : soft_attach(dev);
	struct soft_wq *wq;

	if (err == 0)
		err = soft_wq_count(&dev->wq_count, RAW_MAX_WQ);
	if (err != 0)
		return ERR_PTR(err);
	wq = calloc(1, sizeof(*wq));
	err = wq == NULL ? -ENOMEM : soft_wq_begin(wq, pd, init);
	if (err != 0) {
		__atomic_sub_fetch(&dev->wq_count, 1, __ATOMIC_RELAXED);
		free(wq);
		return ERR_PTR(err);
	}
	lock_acquire(&dev->list_lock);
	list_push_back(&dev->wqs, &wq->node);
	if (soft_check(&dev->ib) != 0)
		soft_rq_unplug(&wq->rq);
	lock_release(&dev->list_lock);
	return &wq->ib;
}

int soft_modify_wq(struct ib_wq *ib, const struct ib_wq_attr *attr, u32 mask)
{
	static const enum soft_rq_state states[] = { [IB_WQS_RESET] = SOFT_RQ_RESET,
						     [IB_WQS_RDY] = SOFT_RQ_READY,
						     [IB_WQS_ERR] = SOFT_RQ_FAILED };
	struct soft_wq *wq = SOFT_OF(wq, ib);
	enum soft_rq_state now = soft_rq_state(&wq->rq);
	int err = soft_check(ib->device);

	if (err != 0)
		return err;
	if ((mask & IB_WQ_FLAGS) && attr->flags_mask != 0)
		return -EOPNOTSUPP;
	if ((mask & IB_WQ_CUR_STATE) && states[attr->curr_wq_state] != now)
		return -EINVAL;
	if (!(mask & IB_WQ_STATE))
		return 0;
	if (attr->wq_state == IB_WQS_RDY && now == SOFT_RQ_FAILED)
		return -EINVAL;
	soft_rq_set(&wq->rq, states[attr->wq_state]);
	return 0;
}

int soft_destroy_wq(struct ib_wq *ib)
{
	struct soft_wq *wq = SOFT_OF(wq, ib);
	struct soft_device *dev = soft_dev(ib->device);

	if (soft_is_ours(wq->generation)) {
		lock_acquire(&dev->list_lock);
		list_remove(&wq->node);
		lock_release(&dev->list_lock);
		seat_qpn_give(&the_seat, wq->index);
	}
	__atomic_sub_fetch(&dev->wq_count, 1, __ATOMIC_RELAXED);
	soft_rq_fini(&wq->rq);
	free(wq);
	return 0;
}

/* ---- tables ---- */

struct ib_rwq_ind_table *
soft_create_table(struct ib_device *ib, const struct ib_rwq_ind_table_init_attr *init)
{
	struct soft_device *dev = soft_dev(ib);
	struct soft_table *table;
	int err = init->log_ind_tbl_size > RAW_MAX_TABLE_LOG ? -EINVAL : soft_check(ib);

	if (err == 0)
		err = soft_wq_count(&dev->table_count, RAW_MAX_TABLES);
	if (err != 0)
		return ERR_PTR(err);
	table = calloc(1, sizeof(*table));
	if (table == NULL) {
		__atomic_sub_fetch(&dev->table_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(-ENOMEM);
	}
	table->ib.ind_tbl_num = __atomic_add_fetch(&dev->table_number, 1, __ATOMIC_RELAXED);
	return &table->ib;
}

int soft_destroy_table(struct ib_rwq_ind_table *ib)
{
	__atomic_sub_fetch(&soft_dev(ib->device)->table_count, 1, __ATOMIC_RELAXED);
	free(SOFT_OF(table, ib));
	return 0;
}

struct soft_rq *soft_table_choose(const struct ib_rwq_ind_table *table,
				  const struct ib_rx_hash_conf *hash, const struct ether_key *key)
{
	u32 value = rss_hash(hash->key, (u32)hash->fields_mask, key);
	struct ib_wq *wq = table->ind_tbl[value & ((1u << table->log_ind_tbl_size) - 1)];

	return &SOFT_OF(wq, wq)->rq;
}
