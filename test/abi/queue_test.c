/* queue_test.c: libibverbs' queues and events, seen from a program: what is passed through
 * untouched, what is converted, who waits for whom. The device is toy.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "toy.h"

/* A PD, a CQ on a channel and a QP: what nearly every test here needs. */
struct kit {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct kit kit_open(void **state, enum ibv_qp_type type)
{
	struct kit k = { .ctx = ((struct toy_door *)*state)->context };
	struct ibv_qp_init_attr init = { .qp_type = type, .cap = { .max_send_wr = 4 } };

	k.pd = ibv_alloc_pd(k.ctx);
	k.channel = ibv_create_comp_channel(k.ctx);
	k.cq = ibv_create_cq(k.ctx, 8, &k, k.channel, 0);
	assert_non_null(k.cq);
	init.send_cq = init.recv_cq = k.cq;
	k.qp = ibv_create_qp(k.pd, &init);
	assert_non_null(k.qp);
	return k;
}

static void kit_close(struct kit *k)
{
	assert_int_equal(ibv_destroy_qp(k->qp), 0);
	assert_int_equal(ibv_destroy_cq(k->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(k->channel), 0);
	assert_int_equal(ibv_dealloc_pd(k->pd), 0);
}

static void kit_sleep_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

/* ---- completion queues ----------------------------------------------------------------------- */

static void cq_create__arguments(void **state)
{
	struct ibv_context *ctx = ((struct toy_door *)*state)->context;
	static const struct {
		int cqe, vector;
	} bad[] = { { 0, 0 }, { -1, 0 }, { 8, -1 }, { 8, 2 }, { TOY_MAX_CQE + 1, 0 } };
	struct ibv_cq *cq;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		errno = 0;
		assert_null(ibv_create_cq(ctx, bad[i].cqe, NULL, NULL, bad[i].vector));
		assert_int_equal(errno, EINVAL);
	}
	cq = ibv_create_cq(ctx, TOY_MAX_CQE, (void *)5, NULL, 1);
	assert_non_null(cq);
	assert_int_equal(cq->cqe, TOY_MAX_CQE - 1);
	assert_ptr_equal(cq->cq_context, (void *)5);
	assert_int_equal(ibv_resize_cq(cq, 20), 0);
	assert_int_equal(cq->cqe, 20);
	assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, TOY_MAX_CQE + 1), EINVAL);
	assert_int_equal(cq->cqe, 20);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void cq_destroy__busy_while_a_qp_uses_it(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);

	assert_int_equal(ibv_destroy_cq(k.cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(k.channel), EBUSY);
	kit_close(&k);
}

static void cq_poll__hands_out_what_came(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_wc in = { .wr_id = 9, .status = IBV_WC_REM_ACCESS_ERR, .byte_len = 77 }, out[4];

	assert_int_equal(ibv_poll_cq(k.cq, 4, out), 0);
	toy_complete(toy_seen.cq, &in);
	assert_int_equal(ibv_poll_cq(k.cq, 4, out), 1);
	assert_memory_equal(out, &in, sizeof(in));
	kit_close(&k);
}

static void cq_ex__reads_by_field(void **state)
{
	struct ibv_context *ctx = ((struct toy_door *)*state)->context;
	struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_wc one = { .wr_id = 1, .byte_len = 10, .opcode = IBV_WC_RECV };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);

	assert_non_null(cq);
	assert_int_equal(ibv_start_poll(cq, &poll), ENOENT);
	toy_complete(toy_seen.cq, &one);
	one.wr_id = 2;
	toy_complete(toy_seen.cq, &one);
	assert_int_equal(ibv_start_poll(cq, &poll), 0);
	assert_int_equal(cq->wr_id, 1);
	assert_int_equal(ibv_wc_read_byte_len(cq), 10);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	assert_int_equal(ibv_next_poll(cq), 0);
	assert_int_equal(cq->wr_id, 2);
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	assert_int_equal(ibv_start_poll(cq, &poll), ENOENT);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	assert_null(ibv_create_cq_ex(ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
}

/* ---- completion events ----------------------------------------------------------------------- */

static void *complete_after_a_while(void *cq)
{
	struct ibv_wc wc = { .wr_id = 3 };

	kit_sleep_ms(30);
	toy_complete(cq, &wc);
	return NULL;
}

static void cq_event__waiter_drives_the_engine(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	pthread_t thread;

	assert_int_equal(ibv_req_notify_cq(k.cq, 0), 0);
	toy_seen.waits = 0;
	pthread_create(&thread, NULL, complete_after_a_while, toy_seen.cq);
	assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), 0);
	pthread_join(thread, NULL);
	assert_ptr_equal(cq, k.cq);
	assert_ptr_equal(context, k.cq->cq_context);
	assert_true(toy_seen.waits >= 1);
	ibv_ack_cq_events(cq, 1);
	ibv_ack_cq_events(cq, 0);
	kit_close(&k);
}

static void cq_event__nonblocking_descriptor(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_cq *cq;
	void *context;

	fcntl(k.channel->fd, F_SETFL, fcntl(k.channel->fd, F_GETFL) | O_NONBLOCK);
	errno = 0;
	assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	kit_close(&k);
}

struct ack_later {
	struct ibv_cq *cq;
	int acked;
};

static void *ack_after_a_while(void *arg)
{
	struct ack_later *later = arg;

	kit_sleep_ms(30);
	__atomic_store_n(&later->acked, 1, __ATOMIC_RELEASE);
	ibv_ack_cq_events(later->cq, 1);
	return NULL;
}

static void cq_destroy__waits_for_acknowledgement(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_wc wc = { .wr_id = 1 };
	struct ack_later later = { .cq = k.cq };
	struct ibv_cq *cq;
	void *context;
	pthread_t thread;

	assert_int_equal(ibv_req_notify_cq(k.cq, 1), 0);
	toy_complete(toy_seen.cq, &wc);
	assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), 0);
	assert_int_equal(ibv_destroy_qp(k.qp), 0);
	pthread_create(&thread, NULL, ack_after_a_while, &later);
	assert_int_equal(ibv_destroy_cq(k.cq), 0);
	assert_int_equal(__atomic_load_n(&later.acked, __ATOMIC_ACQUIRE), 1);
	pthread_join(thread, NULL);
	assert_int_equal(ibv_destroy_comp_channel(k.channel), 0);
	assert_int_equal(ibv_dealloc_pd(k.pd), 0);
}

struct destruction {
	struct ibv_cq *cq;
	int done;
};

static void *destroy_cq(void *arg)
{
	struct destruction *d = arg;

	if (ibv_destroy_cq(d->cq) == 0)
		__atomic_store_n(&d->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Several events may be acknowledged by one call. */
static void cq_destroy__after_several_were_acknowledged_at_once(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct destruction d = { .cq = k.cq };
	struct ibv_wc wc = { .wr_id = 1 };
	struct ibv_cq *cq;
	pthread_t thread;
	void *context;
	bool done;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(ibv_req_notify_cq(k.cq, 0), 0);
		toy_complete(toy_seen.cq, &wc);
		assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), 0);
	}
	assert_int_equal(ibv_destroy_qp(k.qp), 0);
	ibv_ack_cq_events(k.cq, 3);
	pthread_create(&thread, NULL, destroy_cq, &d);
	for (int i = 0; i < 1000 && !__atomic_load_n(&d.done, __ATOMIC_ACQUIRE); i++)
		kit_sleep_ms(10);
	done = __atomic_load_n(&d.done, __ATOMIC_ACQUIRE);
	for (int i = 0; i < 3 && !done; i++)
		ibv_ack_cq_events(k.cq, 1); /* lets the thread go on */
	pthread_join(thread, NULL);
	assert_int_equal(ibv_destroy_comp_channel(k.channel), 0);
	assert_int_equal(ibv_dealloc_pd(k.pd), 0);
	assert_true(done);
}

static int signals_caught;

static void signal_catch(int number)
{
	signals_caught++;
}

struct interruption {
	pthread_t target;
	struct ib_cq *cq;
	int done;
};

static void *interrupt_then_complete(void *arg)
{
	struct interruption *i = arg;

	kit_sleep_ms(30);
	pthread_kill(i->target, SIGUSR1);
	kit_sleep_ms(30);
	return complete_after_a_while(i->cq);
}

/* Again and again: the first may come before the wait has begun. */
static void *interrupt_until_done(void *arg)
{
	struct interruption *i = arg;

	while (!__atomic_load_n(&i->done, __ATOMIC_ACQUIRE)) {
		kit_sleep_ms(10);
		pthread_kill(i->target, SIGUSR1);
	}
	return NULL;
}

/* As a read from a device would: a signal whose handler asks for restart is not seen. */
static void cq_event__signals(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct interruption i = { .target = pthread_self(), .cq = toy_seen.cq };
	struct sigaction action = { .sa_handler = signal_catch, .sa_flags = SA_RESTART }, before;
	struct ibv_cq *cq;
	void *context;
	pthread_t thread;

	sigaction(SIGUSR1, &action, &before);
	signals_caught = 0;
	ibv_req_notify_cq(k.cq, 0);
	pthread_create(&thread, NULL, interrupt_then_complete, &i);
	assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), 0);
	assert_int_equal(signals_caught, 1);
	pthread_join(thread, NULL);
	ibv_ack_cq_events(cq, 1);

	action.sa_flags = 0;
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, interrupt_until_done, &i);
	assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), -1);
	assert_int_equal(errno, EINTR);
	__atomic_store_n(&i.done, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	sigaction(SIGUSR1, &before, NULL);
	kit_close(&k);
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

static void qp_create__writes_capabilities_back(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UC,
					 .send_cq = k.cq,
					 .recv_cq = k.cq,
					 .qp_context = &k,
					 .sq_sig_all = 1,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 5 } };
	struct ibv_qp *qp = ibv_create_qp(k.pd, &init);
	struct ibv_qp_init_attr queried;
	struct ibv_qp_attr attr;

	assert_non_null(qp);
	assert_int_equal(init.cap.max_send_wr, TOY_MAX_WR);
	assert_int_equal(init.cap.max_recv_wr, 5);
	assert_int_equal(init.cap.max_inline_data, TOY_MAX_INLINE);
	assert_int_equal(qp->qp_num, 0x4711);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_int_equal(toy_seen.qp->qp_type, IB_QPT_UC);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &queried), 0);
	assert_ptr_equal(queried.qp_context, &k);
	assert_ptr_equal(queried.send_cq, k.cq);
	assert_int_equal(queried.sq_sig_all, 1);
	assert_int_equal(queried.qp_type, IBV_QPT_UC);
	assert_int_equal(queried.cap.max_send_wr, TOY_MAX_WR);
	assert_null(ibv_qp_to_qp_ex(qp));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	kit_close(&k);
}

static void qp_create__bad_attributes(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	static const struct {
		int type, error;
	} cases[] = { { IBV_QPT_RAW_PACKET, EOPNOTSUPP },
		      { IBV_QPT_XRC_SEND, EOPNOTSUPP },
		      { 0, EINVAL },
		      { 77, EINVAL } };
	struct ibv_qp_init_attr init = { .send_cq = k.cq, .recv_cq = k.cq };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		init.qp_type = cases[i].type;
		assert_null(ibv_create_qp(k.pd, &init));
		assert_int_equal(errno, cases[i].error);
	}
	init.qp_type = IBV_QPT_RC;
	init.recv_cq = NULL;
	assert_null(ibv_create_qp(k.pd, &init));
	assert_int_equal(errno, EINVAL);
	init.recv_cq = k.cq;
	toy_seen.fail = -ENOMEM;
	assert_null(ibv_create_qp(k.pd, &init));
	assert_int_equal(errno, ENOMEM);
	kit_close(&k);
}

static void qp_modify__converts_attributes(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_2048,
				    .dest_qp_num = 99,
				    .rq_psn = 5,
				    .max_dest_rd_atomic = 3,
				    .min_rnr_timer = 12,
				    .ah_attr = { .is_global = 1, .port_num = 1 } };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_modify_qp(k.qp, &attr, mask), 0);
	assert_int_equal(toy_seen.modify_mask, mask);
	assert_int_equal(toy_seen.modify.path_mtu, IB_MTU_2048);
	assert_int_equal(toy_seen.modify.dest_qp_num, 99);
	assert_int_equal(toy_seen.modify.ah_attr.ah_flags, IB_AH_GRH);
	assert_int_equal(k.qp->state, IBV_QPS_RTR);
	memset(&attr, 0xee, sizeof(attr));
	assert_int_equal(ibv_query_qp(k.qp, &attr, mask, &init), 0);
	assert_int_equal(attr.dest_qp_num, 99);
	assert_int_equal(attr.min_rnr_timer, 12);
	assert_int_equal(attr.ah_attr.is_global, 1);
	attr.qp_state = IBV_QPS_RTS;
	toy_seen.fail = -EINVAL;
	assert_int_equal(ibv_modify_qp(k.qp, &attr, IBV_QP_STATE), EINVAL);
	assert_int_equal(k.qp->state, IBV_QPS_RTR);
	kit_close(&k);
}

static void qp_post__passes_pointers_through(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_send_wr send = { .wr_id = 1, .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = { .wr_id = 2 }, *bad_recv = NULL;

	assert_int_equal(ibv_post_send(k.qp, &send, &bad_send), 0);
	assert_ptr_equal(toy_seen.send, &send);
	assert_int_equal(ibv_post_recv(k.qp, &recv, &bad_recv), 0);
	assert_ptr_equal(toy_seen.recv, &recv);
	toy_seen.fail = -ENOMEM;
	assert_int_equal(ibv_post_send(k.qp, &send, &bad_send), ENOMEM);
	assert_ptr_equal(bad_send, &send);
	toy_seen.fail = -EINVAL;
	assert_int_equal(ibv_post_recv(k.qp, &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	kit_close(&k);
}

static void qp_post__datagram_names_its_ah(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_UD);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(k.pd, &attr);
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .wr.ud.ah = ah }, *bad;

	assert_int_equal(ibv_post_send(k.qp, &send, &bad), 0);
	assert_ptr_equal(toy_seen.send_ah, container_of(ah, struct ib_uverbs_ah, ibv)->ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	kit_close(&k);
}

static void qp__groups_order_and_ece(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_UD);
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 1 } };
	struct ibv_ece ece = { 0 };

	assert_int_equal(ibv_attach_mcast(k.qp, &group, 0), 0);
	assert_memory_equal(toy_seen.group, group.raw, 16);
	assert_int_equal(ibv_detach_mcast(k.qp, &group, 0), 0);
	for (int op = IBV_WR_RDMA_WRITE; op <= IBV_WR_DRIVER1; op++)
		for (uint32_t flags = 0; flags <= 8; flags++) /* 1: as bits, of later headers */
			assert_int_equal(ibv_query_qp_data_in_order(k.qp, op, flags), 0);
	assert_int_equal(ibv_set_ece(k.qp, &ece), 0);
	assert_int_equal(ibv_query_ece(k.qp, &ece), EOPNOTSUPP);
	ece.vendor_id = 1;
	assert_int_equal(ibv_set_ece(k.qp, &ece), EOPNOTSUPP);
	ece.vendor_id = 0;
	ece.comp_mask = 1;
	assert_int_equal(ibv_set_ece(k.qp, &ece), EINVAL);
	kit_close(&k);
}

/* ---- the ibv_wr_* way to post ---------------------------------------------------------------- */

static struct ibv_qp_ex *kit_create_wr_qp(struct kit *k, enum ibv_qp_type type, uint64_t flags)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.send_cq = k->cq,
		.recv_cq = k->cq,
		.pd = k->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = flags,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(k->ctx, &attr);

	return qp ? ibv_qp_to_qp_ex(qp) : NULL;
}

static void wr__builds_one_list(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_qp_ex *qp = kit_create_wr_qp(
		&k, IBV_QPT_RC, IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE);
	struct ibv_send_wr *first;
	char text[] = "payload";

	assert_non_null(qp);
	ibv_wr_start(qp);
	qp->wr_id = 11;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, 0x99, 0x1234);
	ibv_wr_set_sge(qp, 7, 0x5678, 100);
	qp->wr_id = 12;
	qp->wr_flags = 0;
	ibv_wr_send_imm(qp, 0xabcd);
	ibv_wr_set_inline_data(qp, text, sizeof(text));
	memset(text, 0, sizeof(text));
	assert_int_equal(ibv_wr_complete(qp), 0);
	assert_int_equal(toy_seen.chain, 2);
	first = toy_seen.send;
	assert_int_equal(first->wr_id, 11);
	assert_int_equal(first->opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(first->send_flags, IBV_SEND_SIGNALED);
	assert_int_equal(first->wr.rdma.rkey, 0x99);
	assert_true(first->wr.rdma.remote_addr == 0x1234);
	assert_int_equal(first->sg_list[0].length, 100);
	assert_int_equal(first->next->imm_data, 0xabcd);
	assert_string_equal((char *)toy_seen.last_inline, "payload");
	assert_int_equal(ibv_destroy_qp(&qp->qp_base), 0);
	kit_close(&k);
}

static int post_many(struct ibv_qp_ex *qp, u32 count)
{
	ibv_wr_start(qp);
	for (u32 i = 0; i < count; i++) {
		qp->wr_id = i;
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, 1, i, 1);
	}
	return ibv_wr_complete(qp);
}

/* More requests than the first arrays hold: pointers into them are set when they stand still. */
static void wr__grows_to_the_queue_and_no_further(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_qp_ex *qp = kit_create_wr_qp(&k, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	struct ibv_send_wr *wr;

	assert_int_equal(post_many(qp, TOY_MAX_WR), 0);
	assert_int_equal(toy_seen.chain, TOY_MAX_WR);
	wr = toy_seen.send;
	for (u32 i = 0; i < TOY_MAX_WR; i++, wr = wr->next)
		assert_true(wr && wr->wr_id == i && wr->sg_list[0].addr == i);
	assert_null(wr);
	toy_seen.send = NULL;
	assert_int_equal(post_many(qp, TOY_MAX_WR + 1), ENOMEM);
	assert_null(toy_seen.send);
	assert_int_equal(ibv_destroy_qp(&qp->qp_base), 0);
	kit_close(&k);
}

static void wr__refuses_what_was_not_asked_for(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_qp_ex *qp = kit_create_wr_qp(&k, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
	struct ibv_sge five[TOY_MAX_SGE + 1] = { { 0 } };
	char large[TOY_MAX_INLINE + 1] = { 0 };

	toy_seen.send = NULL;
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_rdma_write(qp, 1, 2);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, ARRAY_LEN(five), five);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, large, sizeof(large));
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_set_sge(qp, 1, 2, 3);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send_tso(qp, large, 1, 1);
	assert_int_equal(ibv_wr_complete(qp), EOPNOTSUPP);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	assert_null(toy_seen.send);
	ibv_wr_start(qp);
	assert_int_equal(ibv_wr_complete(qp), 0);
	assert_null(toy_seen.send);
	assert_int_equal(ibv_destroy_qp(&qp->qp_base), 0);
	assert_null(kit_create_wr_qp(&k, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE));
	assert_int_equal(errno, EOPNOTSUPP);
	kit_close(&k);
}

/* ---- shared receive queues ------------------------------------------------------------------- */

static void srq__create_modify_post(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_srq_init_attr init = { .srq_context = &k,
					  .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(k.pd, &init);
	struct ibv_srq_attr attr = { .srq_limit = 4 };
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	uint32_t number;

	assert_non_null(srq);
	assert_int_equal(init.attr.max_wr, 11);
	assert_ptr_equal(srq->srq_context, &k);
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_modify_srq(srq, &attr, 1 << 9), EINVAL);
	assert_int_equal(ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 4);
	assert_int_equal(attr.max_wr, 11);
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	assert_ptr_equal(toy_seen.srq_recv, &recv);
	assert_int_equal(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	kit_close(&k);
}

static void srq_create_ex__basic_only(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_srq_init_attr_ex attr = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							  IBV_SRQ_INIT_ATTR_PD,
					     .srq_type = IBV_SRQT_BASIC,
					     .pd = k.pd,
					     .attr = { .max_wr = 2 } };
	struct ibv_srq *srq = ibv_create_srq_ex(k.ctx, &attr);

	assert_non_null(srq);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	attr.srq_type = IBV_SRQT_XRC;
	assert_null(ibv_create_srq_ex(k.ctx, &attr)); /* of no domain */
	assert_int_equal(errno, EINVAL);
	attr.comp_mask = 0;
	assert_null(ibv_create_srq_ex(k.ctx, &attr));
	assert_int_equal(errno, EINVAL);
	kit_close(&k);
}

/* ---- asynchronous events --------------------------------------------------------------------- */

static void async_event__of_a_port(void **state)
{
	struct toy_door *door = *state;
	struct ib_event event = { .device = door->toy,
				  .event = IB_EVENT_PORT_ERR,
				  .element.port_num = 1 };
	struct ibv_async_event got;

	ib_dispatch_event(&event);
	assert_int_equal(ibv_get_async_event(door->context, &got), 0);
	assert_int_equal(got.event_type, IBV_EVENT_PORT_ERR);
	assert_int_equal(got.element.port_num, 1);
	ibv_ack_async_event(&got);
	fcntl(door->context->async_fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(ibv_get_async_event(door->context, &got), -1);
	assert_int_equal(errno, EAGAIN);
}

struct ack_async {
	struct ibv_async_event event;
	int acked;
};

static void *ack_async_after_a_while(void *arg)
{
	struct ack_async *later = arg;

	kit_sleep_ms(30);
	__atomic_store_n(&later->acked, 1, __ATOMIC_RELEASE);
	ibv_ack_async_event(&later->event);
	return NULL;
}

static void async_event__destroy_waits_for_acknowledgement(void **state)
{
	struct toy_door *door = *state;
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ib_event event = { .device = door->toy,
				  .event = IB_EVENT_QP_FATAL,
				  .element.qp = toy_seen.qp };
	struct ack_async later = { .acked = 0 };
	pthread_t thread;

	ib_dispatch_event(&event);
	assert_int_equal(ibv_get_async_event(door->context, &later.event), 0);
	assert_int_equal(later.event.event_type, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(later.event.element.qp, k.qp);
	pthread_create(&thread, NULL, ack_async_after_a_while, &later);
	assert_int_equal(ibv_destroy_qp(k.qp), 0);
	assert_int_equal(__atomic_load_n(&later.acked, __ATOMIC_ACQUIRE), 1);
	pthread_join(thread, NULL);
	assert_int_equal(ibv_destroy_cq(k.cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(k.channel), 0);
	assert_int_equal(ibv_dealloc_pd(k.pd), 0);
}

/* An object of each kind with two events, of another type each. */
struct eventful {
	struct kit kit;
	struct ibv_srq *srq;
	int kind;
};

enum { OF_CQ, OF_QP, OF_SRQ, OF_KINDS };

static struct eventful eventful_open(void **state, int kind)
{
	static const enum ib_event_type types[OF_KINDS][2] = {
		{ IB_EVENT_CQ_ERR, IB_EVENT_CQ_ERR },
		{ IB_EVENT_QP_FATAL, IB_EVENT_COMM_EST },
		{ IB_EVENT_SRQ_LIMIT_REACHED, IB_EVENT_SRQ_ERR },
	};
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct eventful e = { .kit = kit_open(state, IBV_QPT_RC), .kind = kind };
	struct ib_event event = { .device = ((struct toy_door *)*state)->toy };

	e.srq = ibv_create_srq(e.kit.pd, &init);
	assert_non_null(e.srq);
	if (kind == OF_CQ)
		event.element.cq = toy_seen.cq;
	else if (kind == OF_QP)
		event.element.qp = toy_seen.qp;
	else
		event.element.srq = toy_seen.srq;
	for (int i = 0; i < 2; i++) {
		event.event = types[kind][i];
		ib_dispatch_event(&event);
	}
	return e;
}

static void *eventful_object(const struct eventful *e)
{
	return e->kind == OF_CQ ? (void *)e->kit.cq : e->kind == OF_QP ? (void *)e->kit.qp : e->srq;
}

/* All are destroyed; of the object itself this may wait for acknowledgements. */
static void eventful_close(struct eventful *e)
{
	if (e->kind == OF_SRQ)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_destroy_qp(e->kit.qp), 0);
	assert_int_equal(ibv_destroy_cq(e->kit.cq), 0);
	if (e->kind != OF_SRQ)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_destroy_comp_channel(e->kit.channel), 0);
	assert_int_equal(ibv_dealloc_pd(e->kit.pd), 0);
}

static void async_event__destroy_waits_for_every_kind(void **state)
{
	struct toy_door *door = *state;

	for (int kind = 0; kind < OF_KINDS; kind++) {
		struct eventful e = eventful_open(state, kind);
		struct ack_async later = { .acked = 0 };
		struct ibv_async_event first;
		pthread_t thread;

		assert_int_equal(ibv_get_async_event(door->context, &first), 0);
		assert_int_equal(ibv_get_async_event(door->context, &later.event), 0);
		assert_ptr_equal(first.element.qp, eventful_object(&e));
		assert_ptr_equal(later.event.element.qp, eventful_object(&e));
		/* one of two is not enough */
		ibv_ack_async_event(&first);
		pthread_create(&thread, NULL, ack_async_after_a_while, &later);
		eventful_close(&e);
		assert_int_equal(__atomic_load_n(&later.acked, __ATOMIC_ACQUIRE), 1);
		pthread_join(thread, NULL);
	}
}

/* Events that nobody fetched go with their object, of whatever kind. */
static void async_event__withdrawn_with_the_object(void **state)
{
	struct toy_door *door = *state;
	struct pollfd p = { .fd = door->context->async_fd, .events = POLLIN };
	struct ibv_async_event got;

	fcntl(door->context->async_fd, F_SETFL, O_NONBLOCK);
	for (int kind = 0; kind < OF_KINDS; kind++) {
		struct eventful e = eventful_open(state, kind);

		assert_int_equal(poll(&p, 1, 10000), 1);
		eventful_close(&e);
		assert_int_equal(ibv_get_async_event(door->context, &got), -1);
		assert_int_equal(errno, EAGAIN);
		assert_int_equal(poll(&p, 1, 0), 0);
	}
}

/* Another thread of the program that waits for the counts, as the header offers it. */
struct counts_wait {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	const uint32_t *counter;
	uint32_t until;
	pthread_t thread;
};

static void *counts_await(void *arg)
{
	struct counts_wait *w = arg;

	pthread_mutex_lock(w->mutex);
	while (*w->counter < w->until)
		pthread_cond_wait(w->cond, w->mutex);
	pthread_mutex_unlock(w->mutex);
	return NULL;
}

static void ack_next_async(struct ibv_context *ctx, struct ib_event event, const void *object)
{
	struct ibv_async_event got;

	ib_dispatch_event(&event);
	assert_int_equal(ibv_get_async_event(ctx, &got), 0);
	assert_ptr_equal(got.element.cq, object);
	ibv_ack_async_event(&got);
}

#define COUNTS_WAIT(object, field, count)                                                          \
	{ .mutex = &(object)->mutex,                                                               \
	  .cond = &(object)->cond,                                                                 \
	  .counter = &(object)->field,                                                             \
	  .until = (count) }

static void ack_async_event__counts_in_its_object(void **state)
{
	struct toy_door *door = *state;
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4 } };
	struct ibv_srq *srq = ibv_create_srq(k.pd, &init);
	struct ib_event of_cq = { .device = door->toy,
				  .event = IB_EVENT_CQ_ERR,
				  .element.cq = toy_seen.cq };
	struct ib_event of_qp = { .device = door->toy,
				  .event = IB_EVENT_QP_FATAL,
				  .element.qp = toy_seen.qp };
	struct ib_event of_srq = { .device = door->toy,
				   .event = IB_EVENT_SRQ_LIMIT_REACHED,
				   .element.srq = toy_seen.srq };
	struct counts_wait waits[] = { COUNTS_WAIT(k.cq, async_events_completed, 2),
				       COUNTS_WAIT(k.qp, events_completed, 2),
				       COUNTS_WAIT(srq, events_completed, 2) };

	for (size_t i = 0; i < ARRAY_LEN(waits); i++)
		pthread_create(&waits[i].thread, NULL, counts_await, &waits[i]);
	for (uint32_t i = 1; i <= 2; i++) {
		ack_next_async(k.ctx, of_cq, k.cq);
		ack_next_async(k.ctx, of_qp, k.qp);
		ack_next_async(k.ctx, of_srq, srq);
		for (size_t w = 0; w < ARRAY_LEN(waits); w++)
			assert_int_equal(*waits[w].counter, i);
	}
	for (size_t i = 0; i < ARRAY_LEN(waits); i++)
		pthread_join(waits[i].thread, NULL);
	assert_int_equal(k.cq->comp_events_completed, 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	kit_close(&k);
}

static void ack_cq_events__counts_all_it_is_told(void **state)
{
	struct kit k = kit_open(state, IBV_QPT_RC);
	struct counts_wait wait = COUNTS_WAIT(k.cq, comp_events_completed, 3);
	struct ibv_wc wc = { .wr_id = 1 };
	struct ibv_cq *cq;
	void *context;

	pthread_create(&wait.thread, NULL, counts_await, &wait);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ibv_req_notify_cq(k.cq, 0), 0);
		toy_complete(toy_seen.cq, &wc);
		assert_int_equal(ibv_get_cq_event(k.channel, &cq, &context), 0);
	}
	assert_int_equal(k.cq->comp_events_completed, 0);
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(k.cq->comp_events_completed, 1);
	ibv_ack_cq_events(cq, 2);
	assert_int_equal(k.cq->comp_events_completed, 3);
	assert_int_equal(k.cq->async_events_completed, 0);
	pthread_join(wait.thread, NULL);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_DOOR(test) cmocka_unit_test_setup_teardown(test, toy_door_open, toy_door_close)
		WITH_DOOR(cq_create__arguments),
		WITH_DOOR(cq_destroy__busy_while_a_qp_uses_it),
		WITH_DOOR(cq_poll__hands_out_what_came),
		WITH_DOOR(cq_ex__reads_by_field),
		WITH_DOOR(cq_event__waiter_drives_the_engine),
		WITH_DOOR(cq_event__nonblocking_descriptor),
		WITH_DOOR(cq_destroy__waits_for_acknowledgement),
		WITH_DOOR(cq_destroy__after_several_were_acknowledged_at_once),
		WITH_DOOR(cq_event__signals),
		WITH_DOOR(qp_create__writes_capabilities_back),
		WITH_DOOR(qp_create__bad_attributes),
		WITH_DOOR(qp_modify__converts_attributes),
		WITH_DOOR(qp_post__passes_pointers_through),
		WITH_DOOR(qp_post__datagram_names_its_ah),
		WITH_DOOR(qp__groups_order_and_ece),
		WITH_DOOR(wr__builds_one_list),
		WITH_DOOR(wr__grows_to_the_queue_and_no_further),
		WITH_DOOR(wr__refuses_what_was_not_asked_for),
		WITH_DOOR(srq__create_modify_post),
		WITH_DOOR(srq_create_ex__basic_only),
		WITH_DOOR(async_event__of_a_port),
		WITH_DOOR(async_event__destroy_waits_for_acknowledgement),
		WITH_DOOR(async_event__destroy_waits_for_every_kind),
		WITH_DOOR(async_event__withdrawn_with_the_object),
		WITH_DOOR(ack_async_event__counts_in_its_object),
		WITH_DOOR(ack_cq_events__counts_all_it_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
