/* state_test.c: what queue pairs do in each state: flushing, draining, errors of the send queue
 * and the way back, shared receive queues, and the asynchronous events of all that.
 * In: connections driven through states    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "pair.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

enum { BYTES = 1 << 20 };

static struct side_options plain(int type)
{
	return (struct side_options){
		.type = type, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
}

static void open_plain(int type)
{
	struct side_options o = plain(type);

	pair_open(&o);
}

/* ---- flushing ---- */

/* Both queues are handed back whole, in order, unsignalled ones as well; later posts too. */
static void flush__everything_in_order(void **state)
{
	struct side_wr w, r;

	open_plain(IBV_QPT_RC);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 1000, &pair.b, 0);
	r = end_wr(&pair.a, 0, 1000);
	w.wr_id = 1000;
	w.flags = 0;
	end_recv(&pair.a, 0, &r, 40);
	end_send_many(&pair.a, 0, &w, 50, 7); /* nobody receives them */
	end_state(&pair.a, 0, IBV_QPS_ERR);
	end_expect_in_order(&pair.a, SENDS, 50, 1000, IBV_WC_WR_FLUSH_ERR);
	end_expect_in_order(&pair.a, RECVS, 40, 1, IBV_WC_WR_FLUSH_ERR);
	w.wr_id = 5000;
	r.wr_id = 6000;
	end_send_many(&pair.a, 0, &w, 20, 0);
	end_recv(&pair.a, 0, &r, 30);
	end_expect_in_order(&pair.a, SENDS, 20, 5000, IBV_WC_WR_FLUSH_ERR);
	end_expect_in_order(&pair.a, RECVS, 30, 6000, IBV_WC_WR_FLUSH_ERR);
	end_expect_none(&pair.a, SENDS);
	end_expect_none(&pair.a, RECVS);
}

/* RESET forgets what was posted and what had completed; the pair works again afterwards. */
static void flush__reset_forgets(void **state)
{
	int type = (int)(uintptr_t)*state;
	struct side_wr w, r;

	open_plain(type);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 1000, &pair.b, 0);
	r = end_wr(&pair.b, 0, 1040);
	end_recv(&pair.b, 0, &r, 5);
	end_send_many(&pair.a, 0, &w, 3, 0);
	usleep(20000);
	end_state(&pair.a, 0, IBV_QPS_RESET);
	end_state(&pair.b, 0, IBV_QPS_RESET);
	end_expect_none(&pair.a, SENDS);
	end_expect_none(&pair.b, RECVS);
	pair_connect(1, NULL, NULL);
	r.wr_id = 70;
	w.wr_id = 80;
	end_recv(&pair.b, 0, &r, 5);
	end_send_many(&pair.a, 0, &w, 5, 0);
	end_expect_in_order(&pair.a, SENDS, 5, 80, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, 5, 70, IBV_WC_SUCCESS);
}

/* What the peer sent before the queue pair was connected once more is not of that connection,
 * though a late retransmission has the PSN that comes next, and no thread may have received it. */
static void reset__takes_nothing_sent_before(void **state)
{
	struct side_link to_a, to_b;
	struct side_wr w;
	uint64_t word;

	open_plain(IBV_QPT_UC);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 8, &pair.b, 0);
	to_a = pair_default_link(&pair.a, 0);
	to_b = pair_default_link(&pair.b, 0);
	word = end_word(&pair.b, 0);
	for (uint64_t round = 1; round <= 200; round++) {
		end_state(&pair.a, 0, IBV_QPS_RESET);
		end_state(&pair.b, 0, IBV_QPS_RESET);
		end_connect(&pair.a, 0, &to_b);
		end_fill(&pair.a, 0, 8, round);
		end_send(&pair.a, 0, &w);
		end_connect(&pair.b, 0, &to_a);
		usleep(200);
		assert_int_equal(end_word(&pair.b, 0), word);
	}
	end_send(&pair.a, 0, &w);
	for (int ms = 0; ms < PAIR_WAIT_MS && end_word(&pair.b, 0) == word; ms++)
		usleep(1000);
	assert_int_not_equal(end_word(&pair.b, 0), word);
}

/* A queue pair with an SRQ says when it has taken its last request. */
static void flush__last_wqe_reached(void **state)
{
	struct side_options o = plain(IBV_QPT_RC);

	o.srq_wr = 16;
	o.qps = 2;
	pair_open(&o);
	end_state(&pair.b, 1, IBV_QPS_ERR);
	end_expect_event(&pair.b, IBV_EVENT_QP_LAST_WQE_REACHED, pair.b.at.qpn[1]);
	assert_int_equal(end_event(&pair.b, 50).event.type, -1);
}

/* ---- SQE ---- */

/* UC and UD: an error of a send stops the send queue only; receives go on, and RTS is one step. */
static void sqe__recovers(void **state)
{
	int type = (int)(uintptr_t)*state;
	struct side_wr good, bad, back, room_a, room_b;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };

	open_plain(type);
	good = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	back = end_op(&pair.b, IBV_WR_SEND, 0, 100, &pair.a, 0);
	bad = good;
	bad.sge[0].lkey++;
	room_a = end_wr(&pair.a, 4096, 140);
	room_b = end_wr(&pair.b, 4096, 140);
	end_recv(&pair.a, 0, &room_a, 4);
	end_recv(&pair.b, 0, &room_b, 4);
	end_send(&pair.a, 0, &bad);
	end_send_many(&pair.a, 0, &good, 3, 0);
	end_expect(&pair.a, SENDS, IBV_WC_LOC_PROT_ERR);
	end_expect_in_order(&pair.a, SENDS, 3, 1, IBV_WC_WR_FLUSH_ERR);
	end_expect_state(&pair.a, 0, IBV_QPS_SQE);
	end_send(&pair.b, 0, &back);
	end_expect(&pair.a, RECVS, IBV_WC_SUCCESS);
	end_expect_none(&pair.b, RECVS);
	assert_int_equal(end_try_modify(&pair.a, 0, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	end_send_many(&pair.a, 0, &good, 4, 0);
	end_expect(&pair.b, SENDS, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.a, SENDS, 4, 1, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, 4, 1, IBV_WC_SUCCESS);
}

/* ---- SQD ---- */

static int drain(struct end *e, bool notify)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify };

	return end_try_modify(e, 0, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

/* An idle queue is drained at once; requests wait until RTS. */
static void sqd__idle(void **state)
{
	struct side_wr w, r;

	open_plain(IBV_QPT_RC);
	assert_int_equal(drain(&pair.a, true), 0);
	end_expect_event(&pair.a, IBV_EVENT_SQ_DRAINED, pair.a.at.qpn[0]);
	assert_int_equal(end_query(&pair.a, 0).query.attr.sq_draining, 0);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 100);
	end_recv(&pair.b, 0, &r, 5);
	end_send_many(&pair.a, 0, &w, 5, 0);
	end_expect_none(&pair.a, SENDS);
	end_expect_none(&pair.b, RECVS);
	end_state(&pair.a, 0, IBV_QPS_RTS);
	end_expect_in_order(&pair.a, SENDS, 5, 1, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, 5, 1, IBV_WC_SUCCESS);
}

/* What has begun is finished first, also what waits for RNR; what has not, waits. */
static void sqd__finishes_what_has_begun(void **state)
{
	struct side_wr w, r;

	open_plain(IBV_QPT_RC);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 30000, &pair.b, 0);
	r = end_wr(&pair.b, 0, 30000);
	end_send_many(&pair.a, 0, &w, 3, 0);
	usleep(10000);
	assert_int_equal(drain(&pair.a, true), 0);
	w.wr_id = 10;
	end_send_many(&pair.a, 0, &w, 2, 0);
	assert_int_equal(end_event(&pair.a, 50).event.type, -1);
	assert_int_equal(end_query(&pair.a, 0).query.attr.sq_draining, 1);
	end_recv(&pair.b, 0, &r, 10);
	end_expect_in_order(&pair.a, SENDS, 3, 1, IBV_WC_SUCCESS);
	end_expect_event(&pair.a, IBV_EVENT_SQ_DRAINED, pair.a.at.qpn[0]);
	end_expect_none(&pair.a, SENDS);
	assert_int_equal(end_query(&pair.a, 0).query.attr.sq_draining, 0);
	end_state(&pair.a, 0, IBV_QPS_RTS);
	end_expect_in_order(&pair.a, SENDS, 2, 10, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, 5, 1, IBV_WC_SUCCESS);
}

/* Without the wish, no event; and a responder in SQD answers as ever. */
static void sqd__silent_and_answering(void **state)
{
	struct side_wr w;

	open_plain(IBV_QPT_RC);
	assert_int_equal(drain(&pair.b, false), 0);
	end_fill(&pair.b, 0, 5000, 5);
	w = end_op(&pair.a, IBV_WR_RDMA_READ, 0, 5000, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.a, 0, 5000, 5);
	assert_int_equal(end_event(&pair.b, 50).event.type, -1);
}

/* The wish is for one time. */
static void sqd__asked_anew_each_time(void **state)
{
	open_plain(IBV_QPT_RC);
	assert_int_equal(drain(&pair.a, true), 0);
	end_expect_event(&pair.a, IBV_EVENT_SQ_DRAINED, pair.a.at.qpn[0]);
	end_state(&pair.a, 0, IBV_QPS_RTS);
	end_state(&pair.a, 0, IBV_QPS_SQD);
	assert_int_equal(end_event(&pair.a, 50).event.type, -1);
}

/* ---- events ---- */

/* A first message that comes in RTR, once. */
static void event__communication_established(void **state)
{
	struct side_options o = plain((int)(uintptr_t)*state);
	struct side_wr w, r;
	struct side_link l;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = pair_default_link(&pair.a, 0);
	l.until = IBV_QPS_RTR;
	pair_connect(1, NULL, &l);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 100);
	end_recv(&pair.b, 0, &r, 3);
	end_send_many(&pair.a, 0, &w, 3, 0);
	end_expect_in_order(&pair.b, RECVS, 3, 1, IBV_WC_SUCCESS);
	end_expect_event(&pair.b, IBV_EVENT_COMM_EST, pair.b.at.qpn[0]);
	assert_int_equal(end_event(&pair.b, 50).event.type, -1);
}

/* A request that the responder refuses in RTR moves the queue pair to ERR at once. From there no
 * step leads to RTS. */
static void event__access_error_in_rtr(void **state)
{
	struct side_options o = plain(IBV_QPT_RC);
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				   .rnr_retry = 7, .max_rd_atomic = 1 };
	struct side_wr w;
	struct side_link l;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = pair_default_link(&pair.a, 0);
	l.until = IBV_QPS_RTR;
	pair_connect(1, NULL, &l);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 100, &pair.b, 0);
	w.rkey = 0xdeadbeef;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_ACCESS_ERR);
	end_expect_event(&pair.b, IBV_EVENT_COMM_EST, pair.b.at.qpn[0]);
	end_expect_event(&pair.b, IBV_EVENT_QP_ACCESS_ERR, pair.b.at.qpn[0]);
	end_expect_state(&pair.b, 0, IBV_QPS_ERR);
	assert_int_equal(end_try_modify(&pair.b, 0, &rts, conn_mask(IBV_QPT_RC, IBV_QPS_RTS)),
			 EINVAL);
}

/* A receive queue's own fault: fatal, and said. */
static void event__fatal(void **state)
{
	struct side_wr w, r;

	open_plain(IBV_QPT_RC);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 100);
	r.sge[0].lkey++;
	end_recv(&pair.b, 0, &r, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_OP_ERR);
	end_expect_event(&pair.b, IBV_EVENT_QP_FATAL, pair.b.at.qpn[0]);
}

/* A CQ that is too small says so once, and the queue pair fails with it. What the CQ holds can
 * still be polled, in order. */
static void event__cq_overflows(void **state)
{
	int type = (int)(uintptr_t)*state;
	struct side_options a = plain(type), b = a;
	struct side_wr w, r;

	b.recv_cqe = 8;
	pair_open_two(&a, &b);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 140); /* a datagram's header takes 40 */
	end_recv(&pair.b, 0, &r, 40);
	end_send_many(&pair.a, 0, &w, 40, 0);
	end_expect_event(&pair.b, IBV_EVENT_CQ_ERR, 0);
	end_expect_event(&pair.b, IBV_EVENT_QP_FATAL, pair.b.at.qpn[0]);
	end_expect_state(&pair.b, 0, IBV_QPS_ERR);
	end_expect_in_order(&pair.b, RECVS, 8, 1, IBV_WC_SUCCESS);
	end_expect_none(&pair.b, RECVS);
	assert_int_equal(end_event(&pair.b, 50).event.type, -1);
}

/* The same of the sender's. */
static void overflow_of_sends(int type, enum ibv_wr_opcode op)
{
	struct side_options a = plain(type), b = a;
	struct side_wr w, r;

	a.cqe = 8;
	pair_open_two(&a, &b);
	w = end_op(&pair.a, op, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 140); /* a datagram's header takes 40 */
	end_recv(&pair.b, 0, &r, 40);
	end_send_many(&pair.a, 0, &w, 40, 0);
	end_expect_event(&pair.a, IBV_EVENT_CQ_ERR, 0);
	end_expect_event(&pair.a, IBV_EVENT_QP_FATAL, pair.a.at.qpn[0]);
	end_expect_state(&pair.a, 0, IBV_QPS_ERR);
	end_expect_in_order(&pair.a, SENDS, 8, 1, IBV_WC_SUCCESS);
	end_expect_none(&pair.a, SENDS);
	assert_int_equal(end_event(&pair.a, 50).event.type, -1);
}

static void event__send_cq_overflows(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_READ };
	int type = (int)(uintptr_t)*state;
	unsigned count = type == IBV_QPT_UD ? 1 : type == IBV_QPT_UC ? 2 : 3;

	for (unsigned i = 0; i < count; i++) {
		overflow_of_sends(type, ops[i]);
		pair_teardown(state);
	}
}

/* Who asked for one entry and is some completions behind has not lost his queue pair. */
static void event__a_small_cq_bears_a_lag(void **state)
{
	struct side_options a = plain(IBV_QPT_RC), b = a;
	struct side_wr w;

	a.cqe = 1;
	pair_open_two(&a, &b);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 100, &pair.b, 0);
	end_send_many(&pair.a, 0, &w, 8, 0);
	end_expect_in_order(&pair.a, SENDS, 8, 1, IBV_WC_SUCCESS);
	end_expect_none(&pair.a, SENDS);
}

/* ---- shared receive queues ---- */

/* Four connections take from one queue: every request is used once, every message arrives once. */
static void srq__shared(void **state)
{
	enum { QPS = 4, EACH = 30, SIZE = 3000 };
	int type = (int)(uintptr_t)*state;
	struct side_options a = plain(type), b = a;
	bool seen[QPS * EACH] = { false };
	uint32_t of_qp[QPS] = { 0 };
	struct side_wr w, r;

	a.qps = b.qps = QPS;
	b.srq_wr = QPS * EACH;
	pair_open_two(&a, &b);
	r = end_wr(&pair.b, 0, SIZE + 40);
	r.wr_id = 0;
	end_recv(&pair.b, 0, &r, QPS * EACH);
	for (uint32_t q = 0; q < QPS; q++) {
		w = end_op(&pair.a, IBV_WR_SEND, 0, SIZE, &pair.b, 0);
		w.remote_qpn = pair.b.at.qpn[q];
		end_send_many(&pair.a, q, &w, EACH, 0);
	}
	for (uint32_t i = 0; i < QPS * EACH; i++) {
		struct ibv_wc wc = end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);

		assert_true(wc.wr_id < QPS * EACH);
		assert_false(seen[wc.wr_id]);
		seen[wc.wr_id] = true;
		for (uint32_t q = 0; q < QPS; q++)
			of_qp[q] += wc.qp_num == pair.b.at.qpn[q];
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	}
	for (uint32_t q = 0; q < QPS; q++)
		assert_int_equal(of_qp[q], EACH);
}

/* Fires once when fewer are left than the limit, and is then disarmed. */
static void srq__limit(void **state)
{
	struct side_options a = plain(IBV_QPT_RC), b = a;
	struct side_wr w, r;

	b.srq_wr = 32;
	pair_open_two(&a, &b);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 100);
	end_recv(&pair.b, 0, &r, 20);
	end_srq_limit(&pair.b, 10);
	end_send_many(&pair.a, 0, &w, 10, 0);
	end_expect_in_order(&pair.b, RECVS, 10, 1, IBV_WC_SUCCESS);
	assert_int_equal(end_event(&pair.b, 50).event.type, -1);
	end_send(&pair.a, 0, &w);
	end_expect_event(&pair.b, IBV_EVENT_SRQ_LIMIT_REACHED, 0);
	end_send_many(&pair.a, 0, &w, 5, 0);
	assert_int_equal(end_event(&pair.b, 50).event.type, -1);
}

/* Empty: RNR, and the waiting message takes the next request that anybody posts. */
static void srq__empty_means_rnr(void **state)
{
	struct side_options a = plain(IBV_QPT_RC), b = a;
	struct side_wr w, r;

	a.qps = b.qps = 3;
	b.srq_wr = 16;
	pair_open_two(&a, &b);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 100);
	for (uint32_t q = 0; q < 3; q++)
		end_send(&pair.a, q, &w);
	end_expect_none(&pair.a, SENDS);
	for (uint32_t q = 0; q < 3; q++) {
		end_recv(&pair.b, 0, &r, 1);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	}
}

/* ---- datagrams ---- */

/* A wrong Q_Key, a wrong number, no receive request: dropped without a word, and nothing breaks. */
static void datagram__dropped(void **state)
{
	struct side_options o = plain(IBV_QPT_UD);
	struct side_wr w, r, witness;

	o.qps = 2;
	pair_open(&o);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	witness = w;
	witness.remote_qpn = pair.b.at.qpn[1];
	r = end_wr(&pair.b, 0, 140);
	end_recv(&pair.b, 1, &r, 1);
	end_send(&pair.a, 0, &w); /* no receive request */
	end_send(&pair.a, 0, &witness);
	for (int i = 0; i < 2; i++)
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS); /* so the one before it has come, too */
	end_recv(&pair.b, 0, &r, 5);
	w.qkey++;
	end_send(&pair.a, 0, &w);
	w.qkey--;
	w.remote_qpn ^= 0x1000;
	end_send(&pair.a, 0, &w);
	w.remote_qpn ^= 0x1000 ^ 0x400000;
	end_send(&pair.a, 0, &w);
	for (int i = 0; i < 3; i++)
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_expect_none(&pair.b, RECVS);
	w.remote_qpn ^= 0x400000;
	w.qkey = 0x80000000; /* the sender's own: the same here */
	end_send(&pair.a, 0, &w);
	assert_int_equal(end_expect(&pair.b, RECVS, IBV_WC_SUCCESS).wr_id, 1);
}

/* The GRH names the sender: an address handle made from it leads back. */
static void datagram__reply(void **state)
{
	struct side_wr w, r, back, room;
	struct ibv_wc wc;

	open_plain(IBV_QPT_UD);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 4096, 140);
	room = end_wr(&pair.a, 8192, 140);
	end_recv(&pair.b, 0, &r, 1);
	end_recv(&pair.a, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	wc = end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 140);
	end_ah_from_wc(&pair.b, 4096);
	back = end_op(&pair.b, IBV_WR_SEND, 0, 100, &pair.a, 0);
	back.remote_qpn = wc.src_qp;
	end_fill(&pair.b, 0, 100, 6);
	end_send(&pair.b, 0, &back);
	wc = end_expect(&pair.a, RECVS, IBV_WC_SUCCESS);
	assert_int_equal(wc.src_qp, pair.b.at.qpn[0]);
	end_check(&pair.a, 8192 + 40, 100, 6);
}

static const union ibv_gid group = { .raw = { 0xff, 0x0e, [11] = 0x42, [15] = 0x17 } };

static void group_expect(struct end *e, bool member, uint64_t seed)
{
	if (!member) {
		end_expect_none(e, RECVS);
		return;
	}
	assert_int_equal(end_expect(e, RECVS, IBV_WC_SUCCESS).byte_len, 140);
	end_check(e, 4096 + 40, 100, seed);
}

/* Members get it wherever they are, the sender too if it is one; others do not. */
static void datagram__multicast(void **state)
{
	struct side_options o = plain(IBV_QPT_UD);
	struct end *ends[3] = { &pair.a, &pair.b, &pair.c };
	static const int members[] = { 7, 6, 1, 2, 5, 0 };

	for (int i = 0; i < 3; i++) {
		struct side_link l;
		struct side_wr room;

		end_open(ends[i], &o);
		l = pair_default_link(ends[i], 0);
		end_connect(ends[i], 0, &l);
		end_ah(ends[i], &group);
		room = end_wr(ends[i], 4096, 140);
		end_recv(ends[i], 0, &room, 20);
	}
	for (size_t k = 0; k < ELEMENTS(members); k++) {
		struct side_wr w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);

		for (int i = 0; i < 3; i++)
			if (members[k] & 1 << i)
				assert_int_equal(end_try_mcast(ends[i], 0, &group, false), 0);
		w.remote_qpn = 0xffffff;
		end_fill(&pair.a, 0, 100, 50 + k);
		end_send(&pair.a, 0, &w);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		for (int i = 0; i < 3; i++)
			group_expect(ends[i], members[k] & 1 << i, 50 + k);
		for (int i = 0; i < 3; i++)
			if (members[k] & 1 << i)
				assert_int_equal(end_try_mcast(ends[i], 0, &group, true), 0);
	}
}

static void datagram__multicast_mistakes(void **state)
{
	union ibv_gid unicast = { .raw = { 0xfe, 0x80, [15] = 1 } };

	open_plain(IBV_QPT_UD);
	assert_int_equal(end_try_mcast(&pair.a, 0, &unicast, false), EINVAL);
	assert_int_equal(end_try_mcast(&pair.a, 0, &group, true), EINVAL);
	pair_teardown(NULL);
	open_plain(IBV_QPT_RC);
	assert_int_equal(end_try_mcast(&pair.a, 0, &group, false), EINVAL);
}

#define TEST(fn) cmocka_unit_test_teardown(fn, pair_teardown)
#define TYPED(fn, type) \
	{ #fn " " #type, fn, NULL, pair_teardown, (void *)(uintptr_t)(IBV_QPT_##type) }

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(flush__everything_in_order),
		TYPED(flush__reset_forgets, RC),
		TYPED(flush__reset_forgets, UC),
		TYPED(flush__reset_forgets, UD),
		TEST(reset__takes_nothing_sent_before),
		TEST(flush__last_wqe_reached),
		TYPED(sqe__recovers, UC),
		TYPED(sqe__recovers, UD),
		TEST(sqd__idle),
		TEST(sqd__finishes_what_has_begun),
		TEST(sqd__silent_and_answering),
		TEST(sqd__asked_anew_each_time),
		TYPED(event__communication_established, RC),
		TYPED(event__communication_established, UC),
		TEST(event__access_error_in_rtr),
		TEST(event__fatal),
		TYPED(event__cq_overflows, RC),
		TYPED(event__cq_overflows, UC),
		TYPED(event__cq_overflows, UD),
		TYPED(event__send_cq_overflows, RC),
		TYPED(event__send_cq_overflows, UC),
		TYPED(event__send_cq_overflows, UD),
		TEST(event__a_small_cq_bears_a_lag),
		TYPED(srq__shared, RC),
		TYPED(srq__shared, UD),
		TEST(srq__limit),
		TEST(srq__empty_means_rnr),
		TEST(datagram__dropped),
		TEST(datagram__reply),
		TEST(datagram__multicast_mistakes),
		/* The last: a group of IPv6 does not go over UDP from the IPv4 address that this
		 * runs on then; path/udp/udp_test.c has groups on the wire. */
		TEST(datagram__multicast),
	};
	size_t count = sizeof(tests) / sizeof(tests[0]) - side_on_wire();

	pair_supervise();
	return _cmocka_run_group_tests("state", tests, count, pair_group_setup,
				       pair_group_teardown);
}
