/* compat_test.c: a program linked with libibverbs of 2006: other versions of the names, other
 * layouts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "toy.h"

/* The fields that such a program read, at the offsets that it was compiled with. */
struct old_context {
	void *device;
	void *methods[27];
	int cmd_fd, async_fd, num_comp_vectors;
};
struct old_pd {
	struct old_context *context;
	uint32_t handle;
};
struct old_mr {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle, lkey, rkey;
};
struct old_cq {
	struct old_context *context;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};
struct old_srq {
	struct old_context *context;
	void *srq_context;
	struct old_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};
struct old_qp {
	struct old_context *context;
	void *qp_context;
	struct old_pd *pd;
	struct old_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};
struct old_qp_init_attr {
	void *qp_context;
	struct old_cq *send_cq, *recv_cq;
	void *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};
struct old_send_wr {
	struct old_send_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	int send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			void *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
	} wr;
};
struct old_recv_wr {
	struct old_recv_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
};

enum { OLD_POLL_CQ = 7, OLD_REQ_NOTIFY_CQ = 8, OLD_POST_SEND = 21, OLD_POST_RECV = 22 };

/* The old version of a call, with the type of a pointer to one that returns RESULT and takes the
 * rest. */
static void *old_symbol(const char *name)
{
	void *symbol = dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.0");

	if (!symbol)
		fail_msg("%s@IBVERBS_1.0 is missing", name);
	return symbol;
}
#define OLD(result, name, ...) ((result(*)(__VA_ARGS__))old_symbol(#name))

struct old_kit {
	struct ib_device *toy;
	void **list;
	struct old_context *ctx;
	struct old_pd *pd;
	struct ibv_comp_channel *channel;
	struct old_cq *cq;
	struct old_qp *qp;
};

static void *old_find_toy(void **list)
{
	for (; *list; list++)
		if (!strcmp(OLD(const char *, ibv_get_device_name, void *)(*list), "toy0"))
			return *list;
	return NULL;
}

static int old_kit_open(void **state)
{
	struct old_kit *k = calloc(1, sizeof(*k));
	struct old_qp_init_attr init = { .qp_type = IBV_QPT_RC, .qp_context = k };

	*state = k;
	k->toy = toy_create();
	k->list = OLD(void **, ibv_get_device_list, int *)(NULL);
	assert_non_null(k->list);
	k->ctx = OLD(struct old_context *, ibv_open_device, void *)(old_find_toy(k->list));
	assert_non_null(k->ctx);
	k->pd = OLD(struct old_pd *, ibv_alloc_pd, struct old_context *)(k->ctx);
	k->channel = ibv_create_comp_channel((struct ibv_context *)k->ctx);
	assert_non_null(k->channel);
	k->cq = OLD(struct old_cq *, ibv_create_cq, struct old_context *, int, void *,
		    struct ibv_comp_channel *, int)(k->ctx, 8, k, k->channel, 0);
	assert_non_null(k->cq);
	init.send_cq = init.recv_cq = k->cq;
	k->qp = OLD(struct old_qp *, ibv_create_qp, struct old_pd *,
		    struct old_qp_init_attr *)(k->pd, &init);
	assert_non_null(k->qp);
	assert_int_equal(init.cap.max_send_wr, TOY_MAX_WR);
	return 0;
}

static int old_kit_close(void **state)
{
	struct old_kit *k = *state;

	assert_int_equal(OLD(int, ibv_destroy_qp, void *)(k->qp), 0);
	assert_int_equal(OLD(int, ibv_destroy_cq, void *)(k->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(k->channel), 0);
	assert_int_equal(OLD(int, ibv_dealloc_pd, void *)(k->pd), 0);
	assert_int_equal(OLD(int, ibv_close_device, void *)(k->ctx), 0);
	OLD(void, ibv_free_device_list, void **)(k->list);
	toy_destroy(k->toy);
	free(k);
	return 0;
}

static void compat__objects_in_the_old_layout(void **state)
{
	struct old_kit *k = *state;
	char buffer[16];
	struct old_mr *mr = OLD(struct old_mr *, ibv_reg_mr, struct old_pd *, void *, size_t,
				int)(k->pd, buffer, sizeof(buffer), 0);

	assert_non_null(mr);
	assert_int_equal(mr->lkey, 0x1000);
	assert_int_equal(mr->rkey, 0x2000);
	assert_ptr_equal(mr->pd, k->pd);
	assert_int_equal(OLD(int, ibv_dereg_mr, void *)(mr), 0);
	assert_true(k->ctx->cmd_fd > 0 && k->ctx->async_fd > 0);
	assert_int_equal(k->ctx->num_comp_vectors, 2);
	assert_int_equal(k->qp->qp_num, 0x4711);
	assert_ptr_equal(k->qp->send_cq, k->cq);
	assert_int_equal(k->cq->cqe, TOY_MAX_CQE - 1);
}

static void compat__queries(void **state)
{
	struct old_kit *k = *state;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	union ibv_gid gid;

	assert_int_equal(OLD(int, ibv_query_device, void *, void *)(k->ctx, &device), 0);
	assert_int_equal(device.max_cqe, TOY_MAX_CQE);
	assert_int_equal(OLD(int, ibv_query_port, void *, uint8_t, void *)(k->ctx, 1, &port), 0);
	assert_int_equal(port.gid_tbl_len, TOY_GIDS);
	assert_int_equal(OLD(int, ibv_query_gid, void *, uint8_t, int, void *)(k->ctx, 1, 1, &gid),
			 0);
	assert_int_equal(gid.raw[15], 7);
}

static void compat__qp_attributes(void **state)
{
	struct old_kit *k = *state;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct old_qp_init_attr init;
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;

	assert_int_equal(OLD(int, ibv_modify_qp, void *, void *, int)(k->qp, &attr, mask), 0);
	assert_int_equal(k->qp->state, IBV_QPS_INIT);
	assert_int_equal(
		OLD(int, ibv_query_qp, void *, void *, int, void *)(k->qp, &attr, mask, &init), 0);
	assert_ptr_equal(init.qp_context, k);
	assert_ptr_equal(init.recv_cq, k->cq);
}

static void compat__data_path(void **state)
{
	struct old_kit *k = *state;
	struct old_send_wr second = { .wr_id = 2, .opcode = IBV_WR_SEND };
	struct old_send_wr first = { .next = &second, .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE };
	struct old_send_wr *bad = NULL;
	struct old_recv_wr recv = { .wr_id = 3 }, *bad_recv = NULL;
	struct ibv_wc wc[4];
	int (*post_send)(void *, void *, void *) = k->ctx->methods[OLD_POST_SEND];
	int (*post_recv)(void *, void *, void *) = k->ctx->methods[OLD_POST_RECV];
	int (*poll)(void *, int, void *) = k->ctx->methods[OLD_POLL_CQ];

	assert_int_equal(post_send(k->qp, &first, &bad), 0);
	assert_int_equal(poll(k->cq, 4, wc), 2);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[1].wr_id, 2);
	assert_int_equal(post_recv(k->qp, &recv, &bad_recv), 0);
	toy_seen.fail = -ENOMEM;
	assert_int_equal(post_send(k->qp, &first, &bad), ENOMEM);
	assert_ptr_equal(bad, &first);
	toy_seen.fail = -EINVAL;
	assert_int_equal(post_recv(k->qp, &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
}

static void compat__events_name_old_objects(void **state)
{
	struct old_kit *k = *state;
	struct ib_event event = { .device = k->toy,
				  .event = IB_EVENT_QP_FATAL,
				  .element.qp = toy_seen.qp };
	struct ibv_wc wc = { .wr_id = 1 };
	struct ibv_async_event async;
	struct old_cq *cq = NULL;
	void *context = NULL;
	int (*arm)(void *, int) = k->ctx->methods[OLD_REQ_NOTIFY_CQ];

	assert_int_equal(arm(k->cq, 0), 0);
	toy_complete(toy_seen.cq, &wc);
	assert_int_equal(OLD(int, ibv_get_cq_event, void *, struct old_cq **,
			     void **)(k->channel, &cq, &context),
			 0);
	assert_ptr_equal(cq, k->cq);
	assert_ptr_equal(context, k);
	OLD(void, ibv_ack_cq_events, void *, unsigned int)(cq, 1);
	ib_dispatch_event(&event);
	assert_int_equal(OLD(int, ibv_get_async_event, void *, void *)(k->ctx, &async), 0);
	assert_ptr_equal(async.element.qp, k->qp);
	OLD(void, ibv_ack_async_event, void *)(&async);
}

/* The kinds of objects whose asynchronous events a program acknowledges. */
static void compat_expect_event(struct old_kit *k, struct ib_event event, void *object)
{
	struct ibv_async_event async;

	ib_dispatch_event(&event);
	assert_int_equal(OLD(int, ibv_get_async_event, void *, void *)(k->ctx, &async), 0);
	assert_ptr_equal(async.element.cq, object);
	OLD(void, ibv_ack_async_event, void *)(&async);
}

static void compat__acknowledgements_are_counted(void **state)
{
	struct old_kit *k = *state;
	struct ibv_srq_init_attr init = { .srq_context = k, .attr = { .max_wr = 4 } };
	struct old_srq *srq = OLD(void *, ibv_create_srq, void *, void *)(k->pd, &init);
	struct ib_event cq_event = { .device = k->toy,
				     .event = IB_EVENT_CQ_ERR,
				     .element.cq = toy_seen.cq };
	struct ib_event qp_event = { .device = k->toy,
				     .event = IB_EVENT_QP_FATAL,
				     .element.qp = toy_seen.qp };
	struct ib_event srq_event = { .device = k->toy,
				      .event = IB_EVENT_SRQ_LIMIT_REACHED,
				      .element.srq = toy_seen.srq };

	assert_non_null(srq);
	for (uint32_t i = 1; i <= 2; i++) {
		compat_expect_event(k, cq_event, k->cq);
		assert_int_equal(k->cq->async_events_completed, i);
		compat_expect_event(k, qp_event, k->qp);
		assert_int_equal(k->qp->events_completed, i);
		compat_expect_event(k, srq_event, srq);
		assert_int_equal(srq->events_completed, i);
	}
	/* comes back only if the door has acknowledged the right objects' events */
	assert_int_equal(OLD(int, ibv_destroy_srq, void *)(srq), 0);
}

static void compat__completion_events_are_counted(void **state)
{
	struct old_kit *k = *state;
	struct ibv_wc wc = { .wr_id = 1 };
	struct old_cq *cq = NULL;
	void *context = NULL;
	int (*arm)(void *, int) = k->ctx->methods[OLD_REQ_NOTIFY_CQ];

	for (int i = 0; i < 3; i++) {
		assert_int_equal(arm(k->cq, 0), 0);
		toy_complete(toy_seen.cq, &wc);
		assert_int_equal(OLD(int, ibv_get_cq_event, void *, struct old_cq **,
				     void **)(k->channel, &cq, &context),
				 0);
	}
	assert_int_equal(k->cq->comp_events_completed, 0);
	OLD(void, ibv_ack_cq_events, void *, unsigned int)(cq, 1);
	assert_int_equal(k->cq->comp_events_completed, 1);
	OLD(void, ibv_ack_cq_events, void *, unsigned int)(cq, 0);
	OLD(void, ibv_ack_cq_events, void *, unsigned int)(cq, 2);
	assert_int_equal(k->cq->comp_events_completed, 3);
	assert_int_equal(k->cq->async_events_completed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_KIT(test) cmocka_unit_test_setup_teardown(test, old_kit_open, old_kit_close)
		WITH_KIT(compat__objects_in_the_old_layout),
		WITH_KIT(compat__queries),
		WITH_KIT(compat__qp_attributes),
		WITH_KIT(compat__data_path),
		WITH_KIT(compat__events_name_old_objects),
		WITH_KIT(compat__acknowledgements_are_counted),
		WITH_KIT(compat__completion_events_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
