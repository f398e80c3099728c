/* srq.c: the methods of shared receive queues.
 * In: verbs    Out: the engine's shared receive queues
 * Runs: any thread    Locks: list_lock for the device's list
 */
#include "driver/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

static int soft_srq_init_engine(struct soft_srq *srq, struct ib_pd *pd,
			   const struct ib_srq_init_attr_ex *init)
{
	struct ibt_srq_init e = { .pd = SOFT_OF(pd, pd)->number,
				  .max_wr = init->base.attr.max_wr,
				  .max_sge = init->base.attr.max_sge,
				  .max_num_tags = init->max_num_tags,
				  .max_ops = init->max_ops,
				  .owner = srq,
				  .memory = init->memory };

	if (init->srq_type == IB_SRQT_TM)
		e.tm_cq = &SOFT_OF(cq, init->cq)->q;
	return ibt_srq_create(the_seat.a.ibt, &e, &srq->engine);
}

static int soft_srq_check_type(const struct ib_srq_init_attr_ex *init)
{
	if (init->srq_type == IB_SRQT_TM)
		return 0;
	if (init->srq_type != IB_SRQT_BASIC && init->srq_type != IB_SRQT_XRC)
		return -EOPNOTSUPP;
	return init->max_num_tags != 0 || init->max_ops != 0 ? -EINVAL : 0;
}

/* Its number is one of a queue pair, so that it names the process, too. */
static int soft_srq_enter_domain(struct soft_srq *srq, const struct ib_srq_init_attr_ex *init)
{
	int err = seat_qpn_take(&the_seat, &srq->index, &srq->ib.srq_num);

	if (err != 0)
		return err;
	err = ibt_srq_enter_domain(srq->engine, &SOFT_OF(cq, init->cq)->q, init->xrcd->number,
				   srq->ib.srq_num);
	if (err != 0)
		seat_qpn_give(&the_seat, srq->index);
	return err;
}

static int soft_srq_create_engine(struct soft_srq *srq, struct ib_pd *pd,
				  const struct ib_srq_init_attr_ex *init)
{
	int err = soft_srq_init_engine(srq, pd, init);

	srq->generation = seat_generation(&the_seat);
	if (err != 0 || init->srq_type != IB_SRQT_XRC)
		return err;
	err = soft_srq_enter_domain(srq, init);
	if (err != 0)
		ibt_srq_destroy(srq->engine);
	return err;
}

struct ib_srq *soft_create_srq(struct ib_pd *pd, struct ib_srq_init_attr_ex *init)
{
	struct soft_device *dev = soft_dev(pd->device);
	struct ib_srq_attr *attr = &init->base.attr;
	struct ibv_srq_attr made;
	struct soft_srq *srq;
	int err = soft_srq_check_type(init);

	if (err == 0)
		err = soft_attach(dev);
	srq = err == 0 ? calloc(1, sizeof(*srq)) : NULL;
	if (srq == NULL)
		return ERR_PTR(err != 0 ? err : -ENOMEM);
	if (__atomic_add_fetch(&dev->srq_count, 1, __ATOMIC_RELAXED) > SOFT_MAX_SRQ)
		err = -ENOMEM;
	if (err == 0)
		err = soft_srq_create_engine(srq, pd, init);
	if (err != 0) {
		__atomic_sub_fetch(&dev->srq_count, 1, __ATOMIC_RELAXED);
		free(srq);
		return ERR_PTR(err);
	}
	ibt_srq_query(srq->engine, &made);
	attr->max_wr = made.max_wr;
	attr->max_sge = made.max_sge;
	lock_acquire(&dev->list_lock);
	list_push_back(&dev->srqs, &srq->node);
	if (soft_check(&dev->ib) != 0)
		ibt_srq_unplug(srq->engine);
	lock_release(&dev->list_lock);
	return &srq->ib;
}

static struct ib_srq *soft_srq_create(struct ib_pd *pd, struct ib_srq_init_attr *init)
{
	struct ib_srq_init_attr_ex ex = { .size = sizeof(ex), .base = *init };
	struct ib_srq *srq = soft_create_srq(pd, &ex);

	if (!IS_ERR(srq))
		init->attr = ex.base.attr;
	return srq;
}

/* One layout: src/core sees to that. */
int soft_post_srq_ops(struct ib_srq *ib, struct ib_ops_wr *wr, struct ib_ops_wr **bad)
{
	return ibt_srq_post_ops(SOFT_OF(srq, ib)->engine, (struct ibv_ops_wr *)wr,
				(struct ibv_ops_wr **)bad);
}

static int soft_srq_modify(struct ib_srq *ib, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask)
{
	struct ibv_srq_attr a = { .max_wr = attr->max_wr,
				  .max_sge = attr->max_sge,
				  .srq_limit = attr->srq_limit };

	int err = soft_check(ib->device);

	return err != 0 ? err : ibt_srq_modify(SOFT_OF(srq, ib)->engine, &a, (int)mask);
}

static int soft_srq_query(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	struct ibv_srq_attr a;
	int err = soft_check(ib->device);

	if (err != 0)
		return err;
	ibt_srq_query(SOFT_OF(srq, ib)->engine, &a);
	*attr = (struct ib_srq_attr){ .max_wr = a.max_wr,
				      .max_sge = a.max_sge,
				      .srq_limit = a.srq_limit };
	return 0;
}

static int soft_srq_destroy(struct ib_srq *ib)
{
	struct soft_srq *srq = SOFT_OF(srq, ib);
	struct soft_device *dev = soft_dev(ib->device);

	lock_acquire(&dev->list_lock);
	list_remove(&srq->node);
	lock_release(&dev->list_lock);
	if (ib->srq_num != 0 && soft_is_ours(srq->generation)) {
		ibt_srq_leave_domain(srq->engine);
		seat_qpn_give(&the_seat, srq->index);
	}
	ibt_srq_destroy(srq->engine);
	__atomic_sub_fetch(&dev->srq_count, 1, __ATOMIC_RELAXED);
	free(srq);
	return 0;
}

int soft_uverbs_post_srq_recv(struct ib_srq *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ibt_srq_post(SOFT_OF(srq, ib)->engine, wr, bad);
}

void soft_fill_srq(struct ib_device *ib)
{
	ib->create_srq = soft_srq_create;
	ib->modify_srq = soft_srq_modify;
	ib->query_srq = soft_srq_query;
	ib->destroy_srq = soft_srq_destroy;
}
