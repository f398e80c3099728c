/* qp.c: queue pairs by Linux 6.1's attributes.
 * In: consumers    Out: the midlayer's calls of 2007    Runs: the caller    Locks: none
 */
#include <errno.h>
#include <stdlib.h>

#include "consumer/consumer_priv.h"

static void consumer_qp_take_caps(struct ib_qp_cap *to, const struct ib_qp_cap_linux61 *from)
{
	*to = (struct ib_qp_cap){ .max_send_wr = from->max_send_wr,
				  .max_recv_wr = from->max_recv_wr,
				  .max_send_sge = from->max_send_sge,
				  .max_recv_sge = from->max_recv_sge,
				  .max_inline_data = from->max_inline_data };
}

/* max_rdma_ctxs stays. */
static void consumer_qp_give_caps(struct ib_qp_cap_linux61 *to, const struct ib_qp_cap *from)
{
	to->max_send_wr = from->max_send_wr;
	to->max_recv_wr = from->max_recv_wr;
	to->max_send_sge = from->max_send_sge;
	to->max_recv_sge = from->max_recv_sge;
	to->max_inline_data = from->max_inline_data;
}

/* 0, -EINVAL, -EOPNOTSUPP. */
static int consumer_qp_take_init(struct ib_qp_init_attr_ex *to, const struct ib_pd *pd,
			const struct ib_qp_init_attr_linux61 *from)
{
	if (pd == NULL || from == NULL)
		return -EINVAL;
	if (from->create_flags != 0 || from->source_qpn != 0 || !core_serves_linux61(pd->device))
		return -EOPNOTSUPP;
	*to = (struct ib_qp_init_attr_ex){ .size = sizeof(*to),
					   .xrcd = from->xrcd,
					   .rwq_ind_tbl = from->rwq_ind_tbl };
	to->base = (struct ib_qp_init_attr){ .event_handler = from->event_handler,
					     .qp_context = from->qp_context,
					     .send_cq = from->send_cq,
					     .recv_cq = from->recv_cq,
					     .srq = from->srq,
					     .sq_sig_type = from->sq_sig_type,
					     .qp_type = from->qp_type,
					     .port_num = (u8)from->port_num };
	consumer_qp_take_caps(&to->base.cap, &from->cap);
	to->base.cap.max_send_wr = rw_add_requests(pd->device, from->cap.max_send_wr,
						   from->cap.max_rdma_ctxs);
	return 0;
}

/* Of a queue pair that was just created. On failure it is the caller's to destroy. */
static int consumer_qp_prepare(struct ib_qp *qp, struct ib_qp_init_attr_linux61 *init,
			       const struct ib_qp_cap *granted)
{
	int err = rw_prepare(qp, granted->max_send_sge, init->cap.max_rdma_ctxs);

	if (err == 0)
		consumer_qp_give_caps(&init->cap, granted);
	return err;
}

struct ib_qp *ib_create_qp_linux61(struct ib_pd *pd, struct ib_qp_init_attr_linux61 *init)
{
	struct ib_qp_init_attr_ex own;
	int err = consumer_qp_take_init(&own, pd, init);
	struct ib_qp *qp;

	if (err != 0)
		return ERR_PTR(err);
	qp = ib_create_qp_ex(pd, &own);
	if (IS_ERR(qp))
		return qp;
	err = consumer_qp_prepare(qp, init, &own.base.cap);
	if (err == 0)
		return qp;
	ib_destroy_qp_linux61(qp);
	return ERR_PTR(err);
}

/* A queue pair that cannot be destroyed keeps its regions. */
int ib_destroy_qp_linux61(struct ib_qp *qp)
{
	struct consumer_pools *pools;
	int err;

	if (qp == NULL)
		return -EINVAL;
	if (__atomic_load_n(&qp->usecnt, __ATOMIC_ACQUIRE) != 0)
		return -EBUSY;
	pools = core_serves_linux61(qp->device) ? consumer_pools_of(qp) : NULL;
	if (pools != NULL)
		consumer_pools_empty(qp);
	err = ib_destroy_qp(qp);
	if (err == 0)
		free(pools);
	return err;
}

/* Of *init are filled what the queue pair was created with and the older structure has. */
int ib_query_qp_linux61(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			struct ib_qp_init_attr_linux61 *init)
{
	struct ib_qp_init_attr own = { .qp_type = IB_QPT_RC };
	int err = qp != NULL && attr != NULL && init != NULL ? ib_query_qp(qp, attr, mask, &own) :
							       -EINVAL;

	if (err != 0)
		return err;
	*init = (struct ib_qp_init_attr_linux61){ .event_handler = own.event_handler,
						  .qp_context = own.qp_context,
						  .send_cq = own.send_cq,
						  .recv_cq = own.recv_cq,
						  .srq = own.srq,
						  .sq_sig_type = own.sq_sig_type,
						  .qp_type = own.qp_type,
						  .port_num = own.port_num };
	consumer_qp_give_caps(&init->cap, &own.cap);
	return 0;
}

int rdma_create_qp_linux61(struct rdma_cm_id *id, struct ib_pd *pd,
			   struct ib_qp_init_attr_linux61 *init)
{
	struct ib_qp_init_attr_ex own;
	int err = id != NULL ? consumer_qp_take_init(&own, pd, init) : -EINVAL;

	if (err == 0 && (own.xrcd != NULL || own.rwq_ind_tbl != NULL))
		err = -EOPNOTSUPP;
	if (err == 0)
		err = rdma_create_qp(id, pd, &own.base);
	if (err != 0)
		return err;
	err = consumer_qp_prepare(id->qp, init, &own.base.cap);
	if (err != 0)
		rdma_destroy_qp_linux61(id);
	return err;
}

void rdma_destroy_qp_linux61(struct rdma_cm_id *id)
{
	struct consumer_pools *pools;

	if (id == NULL || id->qp == NULL)
		return;
	pools = core_serves_linux61(id->qp->device) ? consumer_pools_of(id->qp) : NULL;
	if (pools != NULL)
		consumer_pools_empty(id->qp);
	rdma_destroy_qp(id);
	free(pools);
}
