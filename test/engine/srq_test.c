/* srq_test.c: what a queue pair with a receive queue of its own does, one with a shared receive
 * queue does too; what RC does, UC and UD do too.
 */
#include "watch.h"

#include <errno.h>

enum { MTU = 1024, SLOT = 16 << 10, QKEY = 7, REQUESTS = 8 };

struct bed {
	struct net net;
	struct ibt_qp *qp[2];
	struct ibt_srq *srq;
	struct watch watch;
};

static struct bed bed;

/* The receiver, side 1, has an SRQ of `size` and `pd`, or with size 0 a receive queue of its own.
 */
static void bed_open_of(enum ibv_qp_type type, bool reliable, u32 size, u32 pd)
{
	struct net_qp q = net_qp_defaults(type);
	struct net_side *s = &bed.net.side[1];

	q.timeout = 10;
	net_open(&bed.net, &(struct net_config){ .seed = 1,
						 .delay_ns = 10000,
						 .reliable = reliable,
						 .mtu = MTU });
	bed.srq = NULL;
	bed.qp[0] = net_qp_create(&bed.net, 0, 0x11, &q);
	if (size != 0)
		assert_int_equal(
			ibt_srq_create(s->ibt,
				       &(struct ibt_srq_init){
					       .pd = pd, .max_wr = size, .max_sge = 2, .owner = s },
				       &bed.srq),
			0);
	q.srq = bed.srq;
	bed.qp[1] = net_qp_create(&bed.net, 1, 0x22, &q);
	net_qp_connect(&bed.net, 0, bed.qp[0], 0x22, &q);
	net_qp_connect(&bed.net, 1, bed.qp[1], 0x11, &q);
	watch_begin(&bed.watch, &bed.net);
}

static void bed_open(enum ibv_qp_type type, bool reliable, u32 size)
{
	bed_open_of(type, reliable, size, 1);
}

static void bed_close(void)
{
	net_run(&bed.net, NS_PER_S);
	ibt_qp_destroy(bed.qp[0]);
	ibt_qp_destroy(bed.qp[1]);
	if (bed.srq != NULL)
		ibt_srq_destroy(bed.srq);
	net_close(&bed.net);
}

static void bed_recv(u64 wr_id)
{
	struct net_side *s = &bed.net.side[1];
	struct ibv_sge sge = { .addr = (u64)(uintptr_t)s->memory + wr_id * SLOT,
			       .length = SLOT,
			       .lkey = s->key };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(bed.srq != NULL ? ibt_srq_post(bed.srq, &wr, &bad)
					 : ibt_post_recv(bed.qp[1], &wr, &bad),
			 0);
}

static void bed_send(u64 wr_id, u32 length)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr =
		net_wr(&sge, &bed.net.side[0], IBV_WR_SEND, wr_id, (u32)wr_id * SLOT, length);

	net_post(bed.qp[0], &wr);
}

static void bed_expect(u64 wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = net_wc(&bed.net.side[1].recv_cq);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.qp_num, 0x22);
}

static void bed_expect_none(void)
{
	assert_int_equal(cq_peek(&bed.net.side[1].recv_cq, 1), 0);
}

static void bed_fail(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
}

static bool lose_the_rest(struct net *net, int from, struct pkt *p)
{
	return p->opcode == PKT_SEND_MIDDLE || p->opcode == PKT_SEND_LAST;
}

/* ---- a receive request that is half filled ---- */

static void half_filled(enum ibv_qp_type type, bool reliable, u32 srq_size)
{
	bed_open(type, reliable, srq_size);
	bed_recv(1);
	bed_recv(2);
	bed_recv(3);
	bed_send(1, 100);
	net_run(&bed.net, NS_PER_MS);
	bed_expect(1, IBV_WC_SUCCESS);
	bed.net.tap = lose_the_rest;
	bed_send(2, 3 * MTU);
	net_run(&bed.net, NS_PER_MS);
	bed_expect_none();
	bed_fail();
	bed_expect(2, IBV_WC_WR_FLUSH_ERR);
	if (srq_size == 0)
		bed_expect(3, IBV_WC_WR_FLUSH_ERR);
	/* the others of an SRQ are everybody's */
	bed_expect_none();
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_QP_LAST_WQE_REACHED], srq_size != 0);
	bed_close();
}

static void half_filled__is_flushed(void **state)
{
	half_filled(IBV_QPT_RC, false, 0);
	half_filled(IBV_QPT_UC, false, 0);
	half_filled(IBV_QPT_RC, true, 0);
}

static void half_filled__of_a_shared_queue_is_flushed(void **state)
{
	half_filled(IBV_QPT_RC, false, REQUESTS);
	half_filled(IBV_QPT_UC, false, REQUESTS);
	half_filled(IBV_QPT_RC, true, REQUESTS);
}

/* A message that does not come to its end leaves its request to the next one of the queue pair. */
static void half_filled__of_an_unreliable_queue_pair_is_used_again(void **state)
{
	bed_open(IBV_QPT_UC, false, REQUESTS);
	bed_recv(1);
	bed_recv(2);
	bed.net.tap = lose_the_rest;
	bed_send(1, 3 * MTU);
	net_run(&bed.net, NS_PER_MS);
	bed_expect_none();
	bed.net.tap = NULL;
	bed_send(2, 3 * MTU);
	bed_send(3, 100);
	net_run(&bed.net, NS_PER_MS);
	bed_expect(1, IBV_WC_SUCCESS);
	bed_expect(2, IBV_WC_SUCCESS);
	bed_expect_none();
	bed_close();
}

/* A RESET forgets it, completes nothing, and the next message begins with a request of its own. */
static void half_filled__of_a_shared_queue_is_forgotten(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	bed_open(IBV_QPT_RC, false, REQUESTS);
	bed_recv(1);
	bed_recv(2);
	bed.net.tap = lose_the_rest;
	bed_send(1, 3 * MTU);
	net_run(&bed.net, NS_PER_MS);
	assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	bed_expect_none();
	bed_close();
}

/* The peer's process has died: what it had begun is flushed, and nobody waits for the rest. */
static void peer_dies(u32 srq_size)
{
	struct net_side *s = &bed.net.side[1];

	bed_open(IBV_QPT_RC, true, srq_size);
	bed_recv(1);
	bed_recv(2);
	bed.net.tap = lose_the_rest;
	bed_send(1, 3 * MTU);
	net_run(&bed.net, NS_PER_MS);
	s->path.user_ops->dead(s->path.user, &s->from.dest);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	bed_expect(1, IBV_WC_WR_FLUSH_ERR);
	if (srq_size == 0)
		bed_expect(2, IBV_WC_WR_FLUSH_ERR);
	bed_expect_none();
	assert_int_equal(s->events[IBV_EVENT_QP_LAST_WQE_REACHED], srq_size != 0);
	bed_close();
}

static void half_filled__by_a_peer_that_dies(void **state)
{
	peer_dies(0);
	peer_dies(REQUESTS);
}

/* Nothing is outstanding when the peer dies: the next request says so, and what follows is
 * flushed. */
static void peer_dies_unnoticed(bool error_asked_for)
{
	struct net_side *s = &bed.net.side[1];
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct ibv_sge sge;
	struct ibv_wc wc;

	bed_open(IBV_QPT_RC, true, 0);
	s->path.user_ops->dead(s->path.user, &s->from.dest);
	assert_int_equal(ibt_qp_state(bed.qp[1]), IBV_QPS_ERR);
	if (error_asked_for)
		assert_int_equal(ibt_qp_modify(bed.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	for (u64 id = 1; id <= 3; id++) {
		struct ibv_send_wr wr = net_wr(&sge, s, IBV_WR_SEND, id, 0, 8);

		net_post(bed.qp[1], &wr);
		wc = net_wc(&s->send_cq);
		assert_int_equal(wc.wr_id, id);
		assert_int_equal(wc.status, id == 1 && !error_asked_for ? IBV_WC_RETRY_EXC_ERR
								: IBV_WC_WR_FLUSH_ERR);
	}
	bed_close();
}

static void idle__when_the_peer_dies(void **state)
{
	peer_dies_unnoticed(false);
	peer_dies_unnoticed(true);
}

/* ---- whose memory ---- */

/* The SRQ's PD judges its buffers, also where the queue pair has another one. */
static void shared__buffers_are_of_its_pd(void **state)
{
	struct net_side *s = &bed.net.side[1];
	struct mem_region r = { .access = IBV_ACCESS_LOCAL_WRITE,
				.pd = 2,
				.flags = MEM_CONTIGUOUS };
	u32 first;

	bed_open_of(IBV_QPT_RC, true, REQUESTS, 2);
	r.addr = r.iova = (u64)(uintptr_t)s->memory;
	r.length = NET_MEMORY;
	first = s->key;
	assert_int_equal(mem_register(&s->mem, &r, &s->key), 0);
	bed_recv(1);
	s->key = first;
	bed_recv(2);
	bed_send(1, 100);
	bed_send(2, 100);
	net_run(&bed.net, NS_PER_MS);
	bed_expect(1, IBV_WC_SUCCESS);
	bed_expect(2, IBV_WC_LOC_PROT_ERR);
	bed_close();
}

/* ---- completions that find no room ---- */

static void overflows(enum ibv_qp_type type, u32 srq_size)
{
	static const u8 gid[16] = { 0xfe, 0x80 };
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = type,
			 .flags = type == IBV_QPT_UD ? PKT_HAS_GRH : 0,
			 .dqpn = 0x22,
			 .sqpn = type == IBV_QPT_UD ? 0x11 : 0,
			 .psn = 100,
			 .qkey = QKEY,
			 .sgid = gid,
			 .dgid = gid };
	struct cq *cq = &bed.net.side[1].recv_cq;

	bed_open(type, false, srq_size);
	if (type == IBV_QPT_UD)
		net_qp_datagrams(bed.qp[1], QKEY, IBV_QPS_RTR);
	cq_fini(cq);
	assert_int_equal(cq_init(cq, 2), 0);
	for (u64 id = 1; id <= 4; id++)
		bed_recv(id);
	for (u32 i = 0; i < 3; i++, p.psn++) {
		enum ibv_qp_state due = i < 2 ? IBV_QPS_RTR : IBV_QPS_ERR;

		net_inject(&bed.net, 1, &p, NULL);
		assert_int_equal(ibt_qp_state(bed.qp[1]) == IBV_QPS_ERR, due == IBV_QPS_ERR);
		assert_int_equal(bed.net.side[1].events[IBV_EVENT_QP_FATAL], i == 2);
	}
	bed_expect(1, IBV_WC_SUCCESS);
	bed_expect(2, IBV_WC_SUCCESS);
	bed_expect_none();
	bed_close();
}

static void completion_queue__overflows(void **state)
{
	overflows(IBV_QPT_RC, 0);
	overflows(IBV_QPT_UC, 0);
	overflows(IBV_QPT_UD, 0);
}

static void completion_queue__overflows_beside_a_shared_queue(void **state)
{
	overflows(IBV_QPT_RC, REQUESTS);
	overflows(IBV_QPT_UD, REQUESTS);
}

/* ---- retries without a receive request ---- */

/* Between two messages that are taken there may be as many RNR retries as agreed, each time. */
static void rnr_progress(bool reliable, u32 srq_size)
{
	struct ibv_qp_attr a = { .rnr_retry = 3 };
	u64 naks = 0;

	bed_open(IBV_QPT_RC, reliable, srq_size);
	assert_int_equal(ibt_qp_modify(bed.qp[0], &a, IBV_QP_RNR_RETRY, NULL, NULL), 0);
	for (u64 id = 1; id <= 4; id++) {
		bed_send(id, 3 * MTU);
		while (bed.net.side[1].counters[COUNT_TX_RNR] < naks + 3)
			assert_true(net_step(&bed.net));
		naks += 3;
		bed_recv(id);
		net_run(&bed.net, 10 * NS_PER_MS);
		bed_expect(id, IBV_WC_SUCCESS);
		assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_SUCCESS);
	}
	bed_send(5, 3 * MTU);
	net_run(&bed.net, NS_PER_S);
	assert_int_equal(net_wc(&bed.net.side[0].send_cq).status, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(bed.net.side[1].counters[COUNT_TX_RNR], naks + 4);
	bed_close();
}

static void rnr__progress_renews_the_budget(void **state)
{
	rnr_progress(false, 0);
	rnr_progress(true, 0);
	rnr_progress(false, REQUESTS);
	rnr_progress(true, REQUESTS);
}

/* ---- the limit ---- */

static void expect_limits(u32 n)
{
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_SRQ_LIMIT_REACHED], n);
}

static void send_and_take(u64 id)
{
	bed_send(id, 100);
	net_run(&bed.net, NS_PER_MS);
	bed_expect(id, IBV_WC_SUCCESS);
}

/* Each arm gives one event, the second as the first, at the first request as at the last. */
static void limit__once_per_arm(void **state)
{
	struct ibv_srq_attr a = { .srq_limit = 3 };

	bed_open(IBV_QPT_RC, false, REQUESTS);
	for (u64 id = 0; id < REQUESTS; id++)
		bed_recv(id);
	assert_int_equal(ibt_srq_modify(bed.srq, &a, IBV_SRQ_LIMIT), 0);
	for (u64 id = 0; id < REQUESTS; id++) {
		send_and_take(id);
		expect_limits(id >= 5);
	}
	ibt_srq_query(bed.srq, &a);
	assert_int_equal(a.srq_limit, 0);
	for (u64 id = 0; id < REQUESTS; id++)
		bed_recv(id);
	a.srq_limit = REQUESTS;
	assert_int_equal(ibt_srq_modify(bed.srq, &a, IBV_SRQ_LIMIT), 0);
	send_and_take(0);
	expect_limits(2);
	a.srq_limit = 1;
	assert_int_equal(ibt_srq_modify(bed.srq, &a, IBV_SRQ_LIMIT), 0);
	for (u64 id = 1; id < REQUESTS; id++) {
		send_and_take(id);
		expect_limits(2 + (id == REQUESTS - 1));
	}
	bed_close();
}

/* ---- another size ---- */

/* What waits stays, in order, also where it goes round the end of the ring; more than it holds is
 * refused, and so is a size below what waits. */
static void resize__keeps_what_waits(void **state)
{
	struct ibv_srq_attr a = { .max_wr = 2 * REQUESTS };
	struct ibv_recv_wr wr = { .wr_id = 99 }, *bad = NULL;
	u32 size;

	bed_open(IBV_QPT_RC, false, REQUESTS);
	ibt_srq_query(bed.srq, &a);
	size = a.max_wr;
	for (u64 id = 0; id < size; id++)
		bed_recv(id);
	assert_int_equal(ibt_srq_post(bed.srq, &wr, &bad), -ENOMEM);
	assert_ptr_equal(bad, &wr);
	for (u64 id = 0; id < 5; id++)
		send_and_take(id);
	for (u64 id = 0; id < 5; id++)
		bed_recv(size + id);
	a.max_wr = size / 2;
	assert_int_equal(ibt_srq_modify(bed.srq, &a, IBV_SRQ_MAX_WR), -EINVAL);
	a.max_wr = 2 * size;
	assert_int_equal(ibt_srq_modify(bed.srq, &a, IBV_SRQ_MAX_WR), 0);
	for (u64 id = 5; id < size; id++)
		bed_recv(size + id);
	for (u64 id = 5; id < 2 * size; id++)
		send_and_take(id);
	bed_expect_none();
	bed_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_filled__is_flushed),
		cmocka_unit_test(half_filled__of_a_shared_queue_is_flushed),
		cmocka_unit_test(half_filled__of_an_unreliable_queue_pair_is_used_again),
		cmocka_unit_test(half_filled__of_a_shared_queue_is_forgotten),
		cmocka_unit_test(half_filled__by_a_peer_that_dies),
		cmocka_unit_test(idle__when_the_peer_dies),
		cmocka_unit_test(shared__buffers_are_of_its_pd),
		cmocka_unit_test(completion_queue__overflows),
		cmocka_unit_test(completion_queue__overflows_beside_a_shared_queue),
		cmocka_unit_test(rnr__progress_renews_the_budget),
		cmocka_unit_test(limit__once_per_arm),
		cmocka_unit_test(resize__keeps_what_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
