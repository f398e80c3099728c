/* psn_test.c: the two ends of a connection count different PSNs, for one of them was reset, or
 * given a wrong number: over a reliable path, where no timer runs, its requests end as on a
 * wire. */
#include "net.h"

#include <string.h>

enum {
	COUNT = 3,
	TIMEOUT_NS = 4096 << 14, /* of net_qp_defaults */
	RETRIES = 3,
	LONG = 6 * 4096, /* as many packets */
	PULLED = 17 * 4096, /* likewise, or one that the receiver copies by itself */
	PAGES = 512,	    /* of which half is copied with one packet */
	PAGE_SHIFT = 12,
};

static const enum ibv_wr_opcode psn_ops[] = {
	IBV_WR_SEND,	  IBV_WR_RDMA_WRITE,	       IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

static struct net_config psn_path(bool reliable)
{
	return (struct net_config){ .seed = 1, .delay_ns = 10000, .reliable = reliable };
}

/* Side 1 expects what is `off` ahead of what side 0 begins with. */
static void psn_open(struct net *net, const struct net_config *cfg, struct ibt_qp *qp[2], u32 off,
		     u8 retry_cnt)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	net_open(net, cfg);
	q.retry_cnt = retry_cnt;
	qp[0] = net_qp_create(net, 0, 0x11, &q);
	qp[1] = net_qp_create(net, 1, 0x22, &q);
	net_qp_connect(net, 0, qp[0], 0x22, &q);
	q.rq_psn = (q.rq_psn + off) & 0xffffff;
	net_qp_connect(net, 1, qp[1], 0x11, &q);
}

static void psn_close(struct net *net, struct ibt_qp *qp[2])
{
	ibt_qp_destroy(qp[0]);
	ibt_qp_destroy(qp[1]);
	net_close(net);
}

static void psn_post(struct net *net, struct ibt_qp *qp[2], enum ibv_wr_opcode op, u32 count,
		     u32 length)
{
	for (u32 i = 0; i < count; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = net_wr(&sge, &net->side[0], op, i, 0, length);

		net_post_recv(&net->side[1], qp[1], i, 0, length);
		if (op != IBV_WR_SEND)
			net_wr_remote(&wr, &net->side[1], 0);
		net_post(qp[0], &wr);
	}
}

static void psn_expect_failure(struct net *net, struct ibt_qp *qp[2], u32 count)
{
	for (u32 i = 0; i < count; i++) {
		struct ibv_wc wc = net_wc(&net->side[0].send_cq);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, i == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(ibt_qp_state(qp[0]), IBV_QPS_ERR);
	assert_int_equal(ibt_qp_state(qp[1]), IBV_QPS_RTS);
}

/* Its requests begin `ahead` of what they began with before. */
static void psn_reset(struct net *net, int side, struct ibt_qp *qp, u8 retry_cnt,
		      u32 ahead)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	assert_int_equal(ibt_qp_modify(qp, &a, IBV_QP_STATE, NULL, NULL), 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT,
				  .port_num = 1,
				  .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						     IBV_ACCESS_REMOTE_READ |
						     IBV_ACCESS_REMOTE_ATOMIC };
	assert_int_equal(
		ibt_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL, NULL),
		0);
	q.retry_cnt = retry_cnt;
	q.sq_psn += ahead;
	net_qp_connect(net, side, qp, side == 0 ? 0x22 : 0x11, &q);
}

/* How long it took. */
static u64 psn_differs(const struct net_config *cfg, enum ibv_wr_opcode op, u32 off, u32 count,
		       u8 retry_cnt)
{
	struct ibt_qp *qp[2];
	struct net net;
	struct ibv_wc wc;
	u64 took;

	psn_open(&net, cfg, qp, off, retry_cnt);
	took = net_now();
	psn_post(&net, qp, op, count, 8);
	while (ibt_qp_state(qp[0]) == IBV_QPS_RTS && net_step(&net))
		;
	took = net_now() - took;
	psn_expect_failure(&net, qp, count);
	assert_int_equal(cq_pop(&net.side[1].recv_cq, 1, &wc), 0);
	psn_close(&net, qp);
	return took;
}

/* One more wait than on a wire: what is heard first may be of an earlier connection. */
static void psn__peer_expects_other_numbers(void **state)
{
	static const u32 offs[] = { 1000, -1000u, -1u, 1 << 22, -(1u << 22), 1 << 23 };

	for (u32 i = 0; i < 6 * 6 * 2; i++) {
		enum ibv_wr_opcode op = psn_ops[i % 6];
		u32 off = offs[i / 6 % 6], count = i < 36 ? 1 : COUNT;
		struct net_config cfg = psn_path(true);
		u64 took = psn_differs(&cfg, op, off, count, RETRIES);

		assert_in_range(took, (RETRIES + 1ull) * TIMEOUT_NS, (RETRIES + 3ull) * TIMEOUT_NS);
		took = psn_differs(&cfg, op, off, count, 0);
		assert_in_range(took, TIMEOUT_NS, 3ull * TIMEOUT_NS);
		cfg.reliable = false;
		took = psn_differs(&cfg, op, off, count, RETRIES);
		assert_in_range(took, (RETRIES + 1ull) * TIMEOUT_NS, (RETRIES + 3ull) * TIMEOUT_NS);
	}
}

/* Nor while the peer waits for what it has refused, or for what it has asked for again. */
static void psn__peer_waits_for_what_it_has_refused(void **state)
{
	for (u32 behind = 0; behind < 2 * 6; behind++) {
		struct net_config cfg = psn_path(true);
		struct ibt_qp *qp[2];
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct net net;

		psn_open(&net, &cfg, qp, 0, RETRIES);
		/* what follows the refused one is dropped */
		for (u32 i = 0; i <= behind / 6; i++) {
			wr = net_wr(&sge, &net.side[0], IBV_WR_SEND, i, 0, 8);
			net_post(qp[0], &wr);
		}
		net_run(&net, NS_PER_MS);
		psn_reset(&net, 0, qp[0], RETRIES, 1000);
		psn_post(&net, qp, psn_ops[behind % 6], COUNT, 8);
		net_run(&net, 100 * NS_PER_S);
		psn_expect_failure(&net, qp, COUNT);
		psn_close(&net, qp);
	}
}

/* So far apart that what the peer waits for seems to lie ahead of the READ's last packet. */
static void psn__half_of_all_numbers_apart(void **state)
{
	struct net_config cfg = psn_path(true);
	struct ibt_qp *qp[2];
	struct net net;

	psn_open(&net, &cfg, qp, 1 - (1u << 23), RETRIES);
	psn_post(&net, qp, IBV_WR_RDMA_READ, 1, LONG);
	net_run(&net, 100 * NS_PER_S);
	psn_expect_failure(&net, qp, 1);
	psn_close(&net, qp);
}

/* The word of it finds no room at first. */
static void psn__word_of_it_finds_no_room(void **state)
{
	static const u32 offs[] = { 1000, -1000u };

	for (u32 i = 0; i < 6 * 2; i++) {
		struct net_config cfg = psn_path(true);
		struct net_qp q = net_qp_defaults(IBV_QPT_UC);
		struct ibt_qp *qp[2], *other;
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct net net;

		cfg.room[0] = 1;
		psn_open(&net, &cfg, qp, offs[i / 6], RETRIES);
		other = net_qp_create(&net, 1, 0x33, &q);
		net_qp_connect(&net, 1, other, 0x44, &q);
		net.cfg.delay_ns = NS_PER_MS;
		wr = net_wr(&sge, &net.side[1], IBV_WR_SEND, 1, 0, 8);
		net_post(other, &wr);
		net.cfg.delay_ns = 10000;
		psn_post(&net, qp, psn_ops[i % 6], 1, 8);
		net_run(&net, 100 * NS_PER_S);
		psn_expect_failure(&net, qp, 1);
		ibt_qp_destroy(other);
		psn_close(&net, qp);
	}
}

/* One that was used, anew. */
static void psn_forget(struct net *net)
{
	struct ibv_wc wc;

	while (cq_pop(&net->side[0].send_cq, 1, &wc) == 1 ||
	       cq_pop(&net->side[1].recv_cq, 1, &wc) == 1)
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* An end that was used is reset and begins with the numbers of then: the other one knows them as
 * duplicates, or not at all. */
static void psn__one_end_is_reset(void **state)
{
	for (u32 i = 0; i < 6; i++) {
		struct net_config cfg = psn_path(true);
		struct ibt_qp *qp[2];
		struct net net;
		struct ibv_wc wc;

		psn_open(&net, &cfg, qp, 0, RETRIES);
		psn_post(&net, qp, IBV_WR_SEND, 50, 8);
		net_run(&net, NS_PER_S);
		psn_forget(&net);
		psn_reset(&net, 0, qp[0], RETRIES, 0);
		psn_post(&net, qp, psn_ops[i], COUNT, 8);
		net_run(&net, 100 * NS_PER_S);
		psn_expect_failure(&net, qp, COUNT);
		assert_int_equal(cq_pop(&net.side[1].recv_cq, 1, &wc), 0);
		psn_close(&net, qp);
	}
}

/* The acknowledgement rides on a message of the peer, of either form. The short one is known once
 * the other one has been heard. */
static void psn__acknowledged_along_with_a_message(void **state)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = IBV_QPT_RC,
			 .dqpn = 0x11,
			 .sqpn = 0x22,
			 .psn = 100,
			 .ack_psn = 1100 };

	for (u32 small = 0; small < 2; small++) {
		struct net_config cfg = psn_path(true);
		struct ibt_qp *qp[2];
		struct pkt_brief b;
		struct net net;
		struct path *path = &net.side[0].path;

		psn_open(&net, &cfg, qp, 0, 7);
		net_post_recv(&net.side[0], qp[0], 1, 0, 8);
		net_post_recv(&net.side[0], qp[0], 2, 0, 8);
		net.cfg.delay_ns = 10 * NS_PER_S;
		psn_post(&net, qp, IBV_WR_SEND, 1, 8);
		p.flags = small ? 0 : PKT_HAS_ACK;
		net_inject(&net, 0, &p, NULL);
		assert_true((timer_next_ns(&net.side[0].timers) == TIMER_NEVER) == small);
		b = (struct pkt_brief){ PKT_BRIEF_KIND | PKT_HAS_ACK << 8, 8, 0x22ull << 32 | 0x11,
					1100ull << 32 | 101 };
		if (small)
			assert_true(path->user_ops->receive_brief(
				path->user, &net.side[0].from.dest, &b, "12345678"));
		assert_true(timer_next_ns(&net.side[0].timers) != TIMER_NEVER);
		net_run(&net, 100 * NS_PER_S);
		assert_int_equal(net_wc(&net.side[0].send_cq).status, IBV_WC_SUCCESS);
		psn_close(&net, qp);
	}
}

static void psn_inject(struct net *net, u8 syndrome, u32 psn)
{
	struct pkt p = { .opcode = PKT_ACK,
			 .qp_type = IBV_QPT_RC,
			 .syndrome = syndrome,
			 .dqpn = 0x11,
			 .sqpn = 0x22,
			 .psn = psn };

	net_inject(net, 0, &p, NULL);
}

/* Many words of another connection while something is outstanding, whose peer takes its time. */
static void psn_disturb(struct net *net, struct ibt_qp *qp[2], enum ibv_wr_opcode op)
{
	net->cfg.delay_ns = 10 * NS_PER_S;
	psn_post(net, qp, op, COUNT, 8);
	for (u32 n = 0; n < 10; n++) {
		psn_inject(net, AETH_ACK, 5000 + n);
		psn_inject(net, AETH_NAK | NAK_PSN_SEQUENCE, 7000 + n);
		psn_inject(net, AETH_NAK | NAK_PSN_SEQUENCE, 50 + n);
		psn_inject(net, AETH_ACK, 50 + n);
	}
	net_run(net, 100 * NS_PER_S);
	for (u32 n = 0; n < COUNT; n++)
		assert_int_equal(net_wc(&net->side[0].send_cq).status, IBV_WC_SUCCESS);
	psn_forget(net);
}

/* What another connection has left on the way fails nobody: not even one that may not retry, nor
 * the next with the same numbers. */
static void psn__words_of_another_connection_fail_nobody(void **state)
{
	for (u32 i = 0; i < 6; i++) {
		struct net_config cfg = psn_path(true);
		struct ibt_qp *qp[2];
		struct net net;

		psn_open(&net, &cfg, qp, 0, 0);
		psn_disturb(&net, qp, psn_ops[i]);
		psn_reset(&net, 0, qp[0], 0, 0);
		psn_reset(&net, 1, qp[1], 0, 0);
		psn_disturb(&net, qp, psn_ops[i]);
		psn_close(&net, qp);
	}
}

/* Nor does what is told an idle queue pair. */
static void psn__an_idle_one_hears_nothing(void **state)
{
	struct net_config cfg = psn_path(true);
	struct ibt_qp *qp[2];
	struct net net;

	psn_open(&net, &cfg, qp, 0, 0);
	psn_inject(&net, AETH_ACK, 5000);
	psn_inject(&net, AETH_NAK | NAK_PSN_SEQUENCE, 50);
	assert_true(timer_next_ns(&net.side[0].timers) == TIMER_NEVER);
	psn_post(&net, qp, IBV_WR_SEND, 1, 8);
	net_run(&net, 100 * NS_PER_S);
	assert_int_equal(net_wc(&net.side[0].send_cq).status, IBV_WC_SUCCESS);
	psn_close(&net, qp);
}

/* After a step back an acknowledgement may be ahead of what has been sent again, but never of what
 * was sent before. */
static void psn__ahead_of_what_is_sent_again(void **state)
{
	struct net_config cfg = psn_path(true);
	struct ibt_qp *qp[2];
	struct net net;

	psn_open(&net, &cfg, qp, 0, 0);
	psn_post(&net, qp, IBV_WR_SEND, 2, LONG); /* 100 to 111 */
	net.cfg.room[1] = 14;
	psn_inject(&net, AETH_NAK | NAK_PSN_SEQUENCE, 100); /* sends 100, 101 */
	psn_inject(&net, AETH_ACK, 103);
	psn_inject(&net, AETH_ACK, 111);
	assert_true(timer_next_ns(&net.side[0].timers) == TIMER_NEVER);
	psn_inject(&net, AETH_ACK, 112);
	assert_true(timer_next_ns(&net.side[0].timers) != TIMER_NEVER);
	net_run(&net, 100 * NS_PER_S);
	assert_int_equal(net_wc(&net.side[0].send_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(net_wc(&net.side[0].send_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(net_wc(&net.side[1].recv_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(net_wc(&net.side[1].recv_cq).status, IBV_WC_SUCCESS);
	psn_close(&net, qp);
}

static bool psn_loses_first_ack(struct net *net, int from, struct pkt *p)
{
	u32 *lost = net->tap_arg;

	return from == 1 && p->opcode == PKT_ACK && (*lost)++ == 0;
}

static void psn_expect_success(struct net *net, u32 count)
{
	struct ibv_wc wc;

	for (u32 i = 0; i < count; i++) {
		assert_int_equal(net_wc(&net->side[0].send_cq).status, IBV_WC_SUCCESS);
		assert_int_equal(net_wc(&net->side[1].recv_cq).status, IBV_WC_SUCCESS);
	}
	assert_int_equal(cq_pop(&net->side[1].recv_cq, 1, &wc), 0);
	assert_memory_equal(net->side[1].memory, net->side[0].memory, PULLED);
}

static void psn_open_direct(struct net *net, struct ibt_qp *qp[2])
{
	struct net_config cfg = psn_path(true);

	cfg.direct = true;
	psn_open(net, &cfg, qp, 0, RETRIES);
	for (u32 i = 0; i < PULLED; i++)
		net->side[0].memory[i] = net->side[1].memory[i] = (u8)(i * 7 + i / 256);
}

/* The peer has executed a request, but its acknowledgement is lost. Whether one end can reach the
 * other's memory has changed meanwhile: the request has as many packets as before all the same, and
 * what follows it has numbers that the peer awaits. */
static void psn__another_way_when_sent_again(void **state)
{
	static const struct {
		enum ibv_wr_opcode op;
		u32 length;
	} cases[] = { { IBV_WR_RDMA_WRITE_WITH_IMM, LONG }, { IBV_WR_SEND, PULLED } };

	for (u32 i = 0; i < 2 * 4; i++) {
		u32 length = cases[i / 4].length, lost = 0;
		struct ibt_qp *qp[2];
		static struct net net;

		psn_open_direct(&net, qp);
		memset(net.side[1].memory, 0, length);
		net.cfg.direct = (i & 1) != 0;
		net.tap = psn_loses_first_ack;
		net.tap_arg = &lost;
		psn_post(&net, qp, cases[i / 4].op, 1, length);
		net_run(&net, NS_PER_MS);
		assert_int_equal(lost, 1);
		net.cfg.direct = (i & 2) != 0;
		ibt_qp_suspect_loss(qp[0]);
		net_run(&net, NS_PER_S);
		psn_expect_success(&net, 1);
		psn_post(&net, qp, IBV_WR_SEND, 1, 8);
		net_run(&net, NS_PER_S);
		psn_expect_success(&net, 1);
		psn_close(&net, qp);
	}
}

/* The receiver has executed nothing of what it cannot read, nor of what came behind: that goes in
 * other packets, and with other numbers. */
static void psn__receiver_cannot_read(void **state)
{
	struct ibt_qp *qp[2];
	static struct net net;

	psn_open_direct(&net, qp);
	memset(net.side[1].memory, 0, PULLED);
	net.cfg.unreadable = true;
	psn_post(&net, qp, IBV_WR_SEND, 1, 8);
	psn_post(&net, qp, IBV_WR_SEND, COUNT, PULLED);
	psn_post(&net, qp, IBV_WR_SEND, 1, 8);
	net_run(&net, NS_PER_S);
	psn_expect_success(&net, COUNT + 2);
	psn_close(&net, qp);
}

/* Its word comes a second time, when it has executed all of that as it was sent since. */
static void psn__late_word_of_what_cannot_be_read(void **state)
{
	struct ibt_qp *qp[2];
	static struct net net;

	psn_open_direct(&net, qp);
	net.cfg.unreadable = true;
	psn_post(&net, qp, IBV_WR_SEND, 1, PULLED);
	psn_post(&net, qp, IBV_WR_RDMA_WRITE_WITH_IMM, 1, LONG);
	net_run(&net, 15000);
	net.cfg.direct = false;
	net_run(&net, 20000);
	net.cfg.direct = true;
	psn_inject(&net, AETH_NAK | NAK_CANNOT_PULL, 100);
	net_run(&net, NS_PER_S);
	psn_expect_success(&net, 2);
	psn_post(&net, qp, IBV_WR_SEND, 1, 8);
	net_run(&net, NS_PER_S);
	psn_expect_success(&net, 1);
	psn_close(&net, qp);
}

static u8 *psn_page(struct net_side *s, u32 i)
{
	u64 first = ((u64)(uintptr_t)s->memory >> PAGE_SHIFT) + 1;
	u32 at = i < PAGES / 2 ? i : PAGES / 2 + PAGES - 1 - i;

	return (u8 *)(uintptr_t)((first + at) << PAGE_SHIFT);
}

/* A list of pages: the first half in order, the second in as many pieces as pages. */
static u32 psn_register_pages(struct net_side *s, u64 iova)
{
	static u64 pages[PAGES];
	struct mem_region r = { .iova = iova,
				.length = (u64)PAGES << PAGE_SHIFT,
				.pd = 1,
				.flags = MEM_PAGES,
				.pages = pages,
				.page_count = PAGES,
				.page_shift = PAGE_SHIFT,
				.access = IBV_ACCESS_LOCAL_WRITE };
	u32 key = 0;

	for (u32 i = 0; i < PAGES; i++)
		pages[i] = (u64)(uintptr_t)psn_page(s, i);
	assert_int_equal(mem_register(&s->mem, &r, &key), 0);
	return key;
}

/* Of memory in more pieces than are copied at once the receiver copies a part at a time, also where
 * it finds that in the middle of the message, when no word of it could change the numbers. */
static void psn__receiver_has_many_pieces(void **state)
{
	enum { LENGTH = PAGES << PAGE_SHIFT, IOVA = 1 << 30 };
	struct ibt_qp *qp[2];
	static struct net net;

	for (u32 from = 0; from <= PAGES / 2; from += PAGES / 4) {
		u32 length = LENGTH - (from << PAGE_SHIFT);
		struct ibv_sge to, sge;
		struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad;
		struct ibv_send_wr wr;

		psn_open_direct(&net, qp);
		wr = net_wr(&sge, &net.side[0], IBV_WR_SEND, 0, 0, length);
		to = (struct ibv_sge){ .addr = IOVA + (from << PAGE_SHIFT),
				       .length = length,
				       .lkey = psn_register_pages(&net.side[1], IOVA) };
		for (u32 i = 0; i < (u32)LENGTH; i++)
			net.side[0].memory[i] = (u8)(i * 7 + i / 256);
		assert_int_equal(ibt_post_recv(qp[1], &recv, &bad), 0);
		net_post(qp[0], &wr);
		net_run(&net, NS_PER_S);
		assert_int_equal(net_wc(&net.side[0].send_cq).status, IBV_WC_SUCCESS);
		assert_int_equal(net_wc(&net.side[1].recv_cq).status, IBV_WC_SUCCESS);
		for (u32 i = from; i < PAGES; i++)
			assert_memory_equal(psn_page(&net.side[1], i),
					    net.side[0].memory +
						    ((size_t)(i - from) << PAGE_SHIFT),
					    1 << PAGE_SHIFT);
		psn_close(&net, qp);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(psn__peer_expects_other_numbers),
		cmocka_unit_test(psn__peer_waits_for_what_it_has_refused),
		cmocka_unit_test(psn__half_of_all_numbers_apart),
		cmocka_unit_test(psn__word_of_it_finds_no_room),
		cmocka_unit_test(psn__one_end_is_reset),
		cmocka_unit_test(psn__acknowledged_along_with_a_message),
		cmocka_unit_test(psn__words_of_another_connection_fail_nobody),
		cmocka_unit_test(psn__an_idle_one_hears_nothing),
		cmocka_unit_test(psn__ahead_of_what_is_sent_again),
		cmocka_unit_test(psn__another_way_when_sent_again),
		cmocka_unit_test(psn__receiver_cannot_read),
		cmocka_unit_test(psn__late_word_of_what_cannot_be_read),
		cmocka_unit_test(psn__receiver_has_many_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
