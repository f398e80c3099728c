/* qp.c: queue pairs.
 * In: libibverbs' attributes, and work requests that pass through as they are
 * Out: the midlayer, the driver
 * Runs: the application's threads
 * Locks: none
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "core/convert_attr.h"
#include "door.h"

_Static_assert((int)IB_QPT_RC == IBV_QPT_RC && (int)IB_QPT_UD == IBV_QPT_UD, "the types agree");

static bool qp_is_target(const struct door_qp *qp)
{
	return qp->ex.qp_base.qp_type == IBV_QPT_XRC_RECV;
}

/* What a program asks for. */
struct qp_wish {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr *init;
	struct ibv_xrcd *xrcd; /* XRC_RECV only */
	struct ibv_rwq_ind_table *table; /* RAW_PACKET only; then it has no queues of its own */
	const struct ibv_rx_hash_conf *hash; /* with `table` */
	bool wr_api;
	uint64_t wr_flags; /* IBV_QP_EX_WITH_*, with wr_api */
} OWNED_BY(the caller);

/* A CQ that is needed, or one that is not looked at. */
static bool qp_cq_is_right(const struct qp_wish *w, const struct ibv_cq *cq, bool needed)
{
	return !needed || (cq && context_is_same(cq->context, w->context));
}

/* The domain of an XRC target is all that it has. */
static int qp_check_target(const struct qp_wish *w)
{
	if (!w->xrcd || !context_is_same(w->xrcd->context, w->context))
		return -EINVAL;
	if (w->wr_api)
		return -EOPNOTSUPP;
	return w->pd && !pd_is_usable(w->pd, w->context) ? -EINVAL : 0;
}

/* A queue pair with a table receives by that, and sends nothing. */
static int qp_check_table(const struct qp_wish *w)
{
	if (w->init->qp_type != IBV_QPT_RAW_PACKET)
		return -EOPNOTSUPP;
	if (w->wr_api || !w->hash || !context_is_same(w->table->context, w->context))
		return -EINVAL;
	if (w->init->send_cq || w->init->recv_cq || w->init->srq)
		return -EINVAL;
	return pd_is_usable(w->pd, w->context) ? 0 : -EINVAL;
}

static int qp_check_init(const struct qp_wish *w)
{
	const struct ibv_qp_init_attr *init = w->init;
	bool receives = init->qp_type != IBV_QPT_XRC_SEND;

	if (w->table)
		return qp_check_table(w);
	switch (init->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_RAW_PACKET:
		break;
	case IBV_QPT_XRC_RECV:
		return qp_check_target(w);
	case IBV_QPT_DRIVER:
		return -EOPNOTSUPP;
	default:
		return -EINVAL;
	}
	if (!pd_is_usable(w->pd, w->context))
		return -EINVAL;
	if (!qp_cq_is_right(w, init->send_cq, true) || !qp_cq_is_right(w, init->recv_cq, receives))
		return -EINVAL;
	return receives && init->srq && !context_is_same(init->srq->context, w->context) ? -EINVAL :
											   0;
}

void qp_fill(struct door_qp *qp, struct ibv_context *context, struct ibv_pd *pd,
	     const struct ibv_qp_init_attr *init)
{
	const struct ib_uverbs_ops *ops = door_context(context)->ops;
	struct ibv_qp *ibv = &qp->ex.qp_base;

	ibv->context = context;
	ibv->qp_context = init->qp_context;
	ibv->pd = pd;
	ibv->send_cq = init->send_cq;
	ibv->recv_cq = init->recv_cq;
	ibv->srq = init->srq;
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = init->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	qp->post_send = init->qp_type == IBV_QPT_RAW_PACKET ? ops->post_raw_send : ops->post_send;
	qp->post_recv = init->qp_type == IBV_QPT_RAW_PACKET ? ops->post_raw_recv : ops->post_recv;
	qp->sq_sig_all = init->sq_sig_all;
}

static void qp_read_table(const struct qp_wish *w, struct ib_qp_init_attr_ex *ib)
{
	const struct ibv_rx_hash_conf *from = w->hash;

	ib->rwq_ind_tbl = door_table(w->table)->ib;
	ib->rx_hash.fields_mask = from->rx_hash_fields_mask;
	ib->rx_hash.function = from->rx_hash_function;
	ib->rx_hash.key_len = from->rx_hash_key ? from->rx_hash_key_len : 0;
	if (from->rx_hash_key)
		memcpy(ib->rx_hash.key, from->rx_hash_key,
		       MIN(from->rx_hash_key_len, (u8)sizeof(ib->rx_hash.key)));
}

static int qp_create_below(struct door_qp *qp, const struct qp_wish *w, void *target)
{
	struct ibv_qp_init_attr *init = w->init;
	struct ib_qp_init_attr_ex ib = {
		.size = sizeof(ib),
		.base = { .event_handler = w->xrcd ? target_on_event : async_on_qp,
			  .qp_context = w->xrcd ? target : &qp->ex.qp_base,
			  .sq_sig_type = init->sq_sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR,
			  .qp_type = (enum ib_qp_type)init->qp_type },
		.xrcd = w->xrcd ? door_xrcd(w->xrcd)->ib : NULL,
		.memory = w->xrcd ? NULL : pd_memory(w->pd),
	};
	bool receives = !w->xrcd && !w->table && init->qp_type != IBV_QPT_XRC_SEND;

	if (w->table)
		qp_read_table(w, &ib);
	if (!w->xrcd && !w->table)
		ib.base.send_cq = door_cq(init->send_cq)->ib;
	if (receives)
		ib.base.recv_cq = door_cq(init->recv_cq)->ib;
	if (receives && init->srq)
		ib.base.srq = door_srq(init->srq)->ib;
	memcpy(&ib.base.cap, &init->cap, sizeof(ib.base.cap));
	qp->ib = ib_create_qp_ex(w->pd ? door_pd(w->pd)->ib : NULL, &ib);
	if (IS_ERR(qp->ib))
		return (int)PTR_ERR(qp->ib);
	memcpy(&init->cap, &ib.base.cap, sizeof(init->cap));
	qp->cap = init->cap;
	return 0;
}

LINE_ASSERT_SPARE(struct door_qp, counts);

void qp_enter(struct door_qp *qp)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;
	struct door_context *c = door_context(ibv->context);

	ibv->qp_num = qp->ib->qp_num;
	ib_uobject_add(c->ucontext, &qp->uobj, IB_UOBJECT_QP, qp->ib);
	ibv->handle = qp->uobj.handle;
	if (ibv->pd)
		pd_hold(ibv->pd);
	context_get(c);
}

/* The attributes begin alike in both of libibverbs' structures. */
static struct ibv_qp *qp_create(const struct qp_wish *w)
{
	int error = qp_check_init(w);
	void *target = NULL;
	struct door_qp *qp;

	if (error)
		return door_null(error);
	qp = line_alloc(sizeof(*qp));
	if (!qp)
		return door_null(-ENOMEM);
	qp_fill(qp, w->context, w->pd, w->init);
	if (w->wr_api)
		error = wr_init(qp, w->wr_flags);
	if (!error && w->xrcd) {
		target = target_create(qp, door_xrcd(w->xrcd));
		error = target ? 0 : -ENOMEM;
	}
	if (!error)
		error = qp_create_below(qp, w, target);
	if (error) {
		if (target)
			target_free(qp);
		else
			wr_fini(qp);
		free(qp);
		return door_null(error);
	}
	qp_enter(qp);
	if (target)
		target_show(qp);
	return &qp->ex.qp_base;
}

AV_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct qp_wish w = { .context = pd->context, .pd = pd, .init = init };

	return qp_create(&w);
}
DOOR_DEFAULT(ibv_create_qp);

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	struct qp_wish w = { .context = context, .init = (struct ibv_qp_init_attr *)attr };

	if (attr->comp_mask & ~known)
		return door_null(-EOPNOTSUPP);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)
		return door_null(-EOPNOTSUPP);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_PD)
		w.pd = attr->pd;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && attr->qp_type == IBV_QPT_XRC_RECV)
		w.xrcd = attr->xrcd;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_RX_HASH)
		w.hash = &attr->rx_hash_conf;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE)
		w.table = attr->rwq_ind_tbl;
	if (!w.table && (attr->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)))
		return door_null(-EINVAL);
	w.wr_api = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	w.wr_flags = w.wr_api ? attr->send_ops_flags : 0;
	return qp_create(&w);
}

AV_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return !qp_is_target(door_qp(qp)) && door_qp(qp)->batch ? &door_qp(qp)->ex : NULL;
}

/* Programs name the attributes of both ends of XRC alike. */
static int qp_known_mask(const struct ibv_qp *qp, int mask)
{
	switch (qp->qp_type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

static bool qp_is_connected(const struct ibv_qp *qp)
{
	return qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC ||
	       qp->qp_type == IBV_QPT_XRC_SEND || qp->qp_type == IBV_QPT_XRC_RECV;
}

AV_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ib_qp *to = door_qp(qp)->ib;
	struct ib_qp_attr ib;
	int error = 0;

	ib_convert_ibv_qp_attr(attr, &ib);
	if ((mask & IBV_QP_AV) && qp_is_connected(qp))
		error = ib_uverbs_find_neighbour(to->device, &ib.ah_attr);
	if (!error)
		error = ib_modify_qp(to, &ib, qp_known_mask(qp, mask));
	if (!error && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return door_errno(error);
}
DOOR_DEFAULT(ibv_modify_qp);

/* `typical_pkt_sz` helps an adapter that counts in packets; here each frame is counted as it is. */
int qp_limit_rate(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	struct ib_uverbs_rate rate = { .kbps = attr->rate_limit,
				       .burst = attr->max_burst_sz,
				       .typical_packet = attr->typical_pkt_sz };

	if (attr->comp_mask)
		return EINVAL;
	return door_errno(ib_uverbs_set_rate(door_qp(qp)->ib, &rate));
}

AV_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			   struct ibv_qp_init_attr *init)
{
	struct ib_qp_init_attr ib_init;
	struct ib_qp_attr ib;
	int error;

	memset(&ib_init, 0, sizeof(ib_init));
	memset(&ib, 0, sizeof(ib));
	error = ib_query_qp(door_qp(qp)->ib, &ib, mask, &ib_init);
	if (error)
		return door_errno(error);
	ib_convert_qp_attr(&ib, attr);
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = door_qp(qp)->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = door_qp(qp)->sq_sig_all,
	};
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return 0;
}
DOOR_DEFAULT(ibv_query_qp);

/* An XRC target goes with the last of its handles. */
static int qp_destroy_below(struct door_qp *qp)
{
	int error;

	if (!qp_is_target(qp))
		return ib_destroy_qp(qp->ib);
	if (!target_leave(qp))
		return 0;
	error = ib_destroy_qp(qp->ib);
	if (error)
		target_keep(qp);
	else
		target_free(qp);
	return error;
}

AV_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct door_context *c = door_context(qp->context);
	int error = qp_destroy_below(door_qp(qp));

	if (error)
		return door_errno(error);
	async_queue_forget(c->async, qp);
	counts_leave(door_qp(qp));
	ib_uobject_remove(c->ucontext, &door_qp(qp)->uobj, true);
	if (qp->pd)
		pd_release(qp->pd);
	if (!qp_is_target(door_qp(qp)))
		wr_fini(door_qp(qp));
	free(door_qp(qp));
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_destroy_qp);

/* Copies inside a message are the C library's or the kernel's, which promise no order: only the
 * last 8 bytes of an RDMA WRITE become visible behind all others (mem_copy_ordered). No answer of
 * this call says just that, so it is "no". */
AV_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

/* No device here has a vendor's extensions to negotiate. */
AV_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (ece->comp_mask)
		return EINVAL;
	return ece->vendor_id ? EOPNOTSUPP : 0;
}

AV_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

int qp_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct door_qp *qp = door_qp(ibv);

	return -qp->post_send(qp->ib, wr, bad);
}

int qp_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct door_qp *qp = door_qp(ibv);

	return -qp->post_recv(qp->ib, wr, bad);
}
