/* wq.c: receive work queues, and the tables that spread frames over them.
 * In: libibverbs' attributes, receive requests
 * Out: the midlayer, the driver
 * Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>

#include "door.h"

_Static_assert((int)IB_WQS_ERR == IBV_WQS_ERR && (int)IB_WQ_FLAGS == IBV_WQ_ATTR_FLAGS,
	       "the two enumerations agree");

struct door_wq {
	struct ibv_wq ibv OWNED_BY(the application);
	struct ib_wq *ib FIXED;
	int (*post_recv)(struct ib_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) FIXED;
};

static struct door_wq *door_wq(struct ibv_wq *wq)
{
	return (struct door_wq *)wq;
}

static int wq_post_recv(struct ibv_wq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct door_wq *wq = door_wq(ibv);

	return -wq->post_recv(wq->ib, wr, bad);
}

static int wq_check(const struct ibv_context *context, const struct ibv_wq_init_attr *init)
{
	if (init->comp_mask & ~(uint32_t)(IBV_WQ_INIT_ATTR_RESERVED - 1))
		return -EINVAL;
	if (!pd_is_usable(init->pd, context) || !init->cq ||
	    !context_is_same(init->cq->context, context))
		return -EINVAL;
	return 0;
}

static void wq_fill(struct door_wq *wq, struct ibv_context *context,
		    const struct ibv_wq_init_attr *init)
{
	wq->ibv.context = context;
	wq->ibv.pd = init->pd;
	wq->ibv.cq = init->cq;
	wq->ibv.wq_num = wq->ib->wq_num;
	wq->ibv.handle = ib_ucontext_new_handle(door_context(context)->ucontext);
	wq->ibv.state = IBV_WQS_RESET;
	wq->ibv.wq_type = init->wq_type;
	wq->ibv.post_recv = wq_post_recv;
	wq->post_recv = door_context(context)->ops->post_wq_recv;
}

struct ibv_wq *wq_create(struct ibv_context *context, struct ibv_wq_init_attr *init)
{
	struct ib_wq_init_attr ib = { .size = sizeof(ib),
				      .wq_type = (enum ib_wq_type)init->wq_type,
				      .max_wr = init->max_wr,
				      .max_sge = init->max_sge };
	int error = wq_check(context, init);
	struct door_wq *wq;

	if (error)
		return door_null(error);
	if (init->comp_mask & IBV_WQ_INIT_ATTR_FLAGS)
		ib.create_flags = init->create_flags;
	ib.cq = door_cq(init->cq)->ib;
	wq = calloc(1, sizeof(*wq));
	if (!wq)
		return door_null(-ENOMEM);
	wq->ib = ib_create_wq(door_pd(init->pd)->ib, &ib);
	if (IS_ERR(wq->ib)) {
		long err = PTR_ERR(wq->ib);

		free(wq);
		return door_null((int)err);
	}
	wq_fill(wq, context, init);
	init->max_wr = ib.max_wr;
	init->max_sge = ib.max_sge;
	pd_hold(init->pd);
	context_get(door_context(context));
	return &wq->ibv;
}

int wq_modify(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	struct ib_wq_attr ib = { .size = sizeof(ib),
				 .wq_state = (enum ib_wq_state)attr->wq_state,
				 .curr_wq_state = (enum ib_wq_state)attr->curr_wq_state,
				 .flags = attr->flags,
				 .flags_mask = attr->flags_mask };
	int error = ib_modify_wq(door_wq(wq)->ib, &ib, attr->attr_mask);

	if (!error && (attr->attr_mask & IBV_WQ_ATTR_STATE))
		wq->state = attr->wq_state;
	return door_errno(error);
}

int wq_destroy(struct ibv_wq *wq)
{
	struct door_context *c = door_context(wq->context);
	int error = ib_destroy_wq(door_wq(wq)->ib);

	if (error)
		return door_errno(error);
	pd_release(wq->pd);
	free(door_wq(wq));
	context_put(c);
	return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The midlayer's queues; NULL with *error. */
static struct ib_wq **table_list(const struct ibv_context *context,
				 const struct ibv_rwq_ind_table_init_attr *init, int *error)
{
	u32 count = 1u << init->log_ind_tbl_size;
	struct ib_wq **list = calloc(count, sizeof(struct ib_wq *));

	*error = list ? 0 : -ENOMEM;
	for (u32 i = 0; i < count && !*error; i++) {
		if (init->ind_tbl[i] && context_is_same(init->ind_tbl[i]->context, context))
			list[i] = door_wq(init->ind_tbl[i])->ib;
		else
			*error = -EINVAL;
	}
	if (!*error)
		return list;
	free(list);
	return NULL;
}

/* The largest table that is read: a driver has its own limit. */
enum { TABLE_LOG_MAX = 16 };

struct ibv_rwq_ind_table *wq_create_table(struct ibv_context *context,
					  struct ibv_rwq_ind_table_init_attr *init)
{
	struct ib_rwq_ind_table_init_attr ib = { .size = sizeof(ib),
						 .log_ind_tbl_size = init->log_ind_tbl_size };
	struct door_table *table;
	int error = -EINVAL;

	if (init->comp_mask || !init->ind_tbl || init->log_ind_tbl_size > TABLE_LOG_MAX)
		return door_null(-EINVAL);
	ib.ind_tbl = table_list(context, init, &error);
	if (!ib.ind_tbl)
		return door_null(error);
	table = calloc(1, sizeof(*table));
	if (!table) {
		free(ib.ind_tbl);
		return door_null(-ENOMEM);
	}
	table->ib = ib_create_rwq_ind_table(door_context(context)->ib, &ib);
	free(ib.ind_tbl);
	if (IS_ERR(table->ib)) {
		long err = PTR_ERR(table->ib);

		free(table);
		return door_null((int)err);
	}
	table->ibv.context = context;
	table->ibv.ind_tbl_num = (int)table->ib->ind_tbl_num;
	table->ibv.ind_tbl_handle = (int)ib_ucontext_new_handle(door_context(context)->ucontext);
	context_get(door_context(context));
	return &table->ibv;
}

int wq_destroy_table(struct ibv_rwq_ind_table *ibv)
{
	struct door_context *c = door_context(ibv->context);
	struct door_table *table = door_table(ibv);
	int error = ib_destroy_rwq_ind_table(table->ib);

	if (error)
		return door_errno(error);
	free(table);
	context_put(c);
	return 0;
}
