/* room_test.c: a reliable path without room: who waits for it is set going once per call, and
 * nothing that is owed is forgotten. */
#include "watch.h"

#include <string.h>

struct room {
	struct net net;
	struct ibt_qp *blocker;
};

/* The way from side `from` has room for one packet, and that is taken for a millisecond. */
static void room_open(struct room *r, int from)
{
	struct net_config cfg = { .seed = 1, .delay_ns = 10000, .reliable = true };
	struct net_qp q = net_qp_defaults(IBV_QPT_UC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	cfg.room[1 - from] = 1;
	net_open(&r->net, &cfg);
	r->blocker = net_qp_create(&r->net, from, 0x33, &q);
	net_qp_connect(&r->net, from, r->blocker, 0x44, &q);
	r->net.cfg.delay_ns = NS_PER_MS;
	wr = net_wr(&sge, &r->net.side[from], IBV_WR_SEND, 1, 0, 8);
	net_post(r->blocker, &wr);
	(void)net_wc(&r->net.side[from].send_cq);
	r->net.cfg.delay_ns = cfg.delay_ns;
}

static void room_close(struct room *r)
{
	ibt_qp_destroy(r->blocker);
	net_close(&r->net);
}

static bool room_av_of(struct ibv_ah *ah, u32 pd, struct path_av *av)
{
	*av = (struct path_av){ .dgid = { 0xfe, 0x80 }, .sgid = { 0xfe, 0x80 } };
	return true;
}

/* A queue pair for datagrams on side 0 with one that waits for room. */
static struct ibt_qp *room_post_datagram(struct room *r)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_UD);
	struct ibt_qp *qp = net_qp_create(&r->net, 0, 0x11, &q);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	net_qp_datagrams(qp, 7, IBV_QPS_RTS);
	wr = net_wr(&sge, &r->net.side[0], IBV_WR_SEND, 1, 0, 8);
	wr.wr.ud.ah = (struct ibv_ah *)&sge; /* only its presence counts here */
	wr.wr.ud.remote_qpn = 0x22;
	wr.wr.ud.remote_qkey = 7;
	assert_int_equal(ibt_post_send(qp, &wr, &bad, room_av_of), 0);
	assert_true(path_is_awaited(&r->net.side[0].dest.dest));
	return qp;
}

static void room_say_writable(struct room *r)
{
	struct net_side *s = &r->net.side[0];

	s->path.user_ops->writable(s->path.user, &s->dest.dest);
}

/* It comes back to the list of those who wait, but is not taken from there again. */
static void room__datagram_is_tried_once_per_call(void **state)
{
	static struct room r;
	struct ibt_qp *qp;
	u64 before;

	room_open(&r, 0);
	qp = room_post_datagram(&r);
	before = r.net.side[0].counters[COUNT_TX_BLOCKED];
	room_say_writable(&r);
	assert_int_equal(r.net.side[0].counters[COUNT_TX_BLOCKED], before + 1);
	assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	net_run(&r.net, 10 * NS_PER_MS);
	assert_int_equal(net_wc(&r.net.side[0].send_cq).status, IBV_WC_SUCCESS);
	ibt_qp_destroy(qp);
	room_close(&r);
}

static void room_post_to(struct room *r, struct ibt_qp *qp, u64 wr_id, u32 qpn)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	wr = net_wr(&sge, &r->net.side[0], IBV_WR_SEND, wr_id, 0, 8);
	wr.wr.ud.ah = (struct ibv_ah *)&sge; /* only its presence counts here */
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = 7;
	assert_int_equal(ibt_post_send(qp, &wr, &bad, room_av_of), 0);
}

static void room_post_again(struct room *r, struct ibt_qp *qp, u64 wr_id)
{
	room_post_to(r, qp, wr_id, 0x22);
}

/* The receiver stands still: one datagram waits in vain, the next is dropped at once. Once there
 * was room again, the next that finds none waits as the first did. */
static void room__datagram_waits_anew_after_there_was_room(void **state)
{
	static struct room r;
	struct cq *cq = &r.net.side[0].send_cq;
	struct ibt_qp *qp;

	room_open(&r, 0);
	r.net.side[1].held_up = true;
	qp = room_post_datagram(&r);
	net_run(&r.net, 2 * NS_PER_S);
	assert_int_equal(net_wc(cq).wr_id, 1);
	room_post_again(&r, qp, 2);
	assert_int_equal(net_wc(cq).wr_id, 2);
	r.net.side[1].held_up = false;
	net_run(&r.net, 10 * NS_PER_MS);
	r.net.side[1].held_up = true;
	room_post_again(&r, qp, 3); /* takes the room */
	assert_int_equal(net_wc(cq).wr_id, 3);
	room_post_again(&r, qp, 4);
	net_run(&r.net, 100 * NS_PER_MS);
	assert_int_equal(cq_peek(cq, 1), 0);
	r.net.side[1].held_up = false;
	net_run(&r.net, 10 * NS_PER_MS);
	assert_int_equal(net_wc(cq).wr_id, 4);
	ibt_qp_destroy(qp);
	room_close(&r);
}

/* A receiver that stands still costs one wait, whatever goes to others in between. */
static void room__datagram_to_another_says_nothing(void **state)
{
	static struct room r;
	struct cq *cq = &r.net.side[0].send_cq;
	struct ibt_qp *qp;

	room_open(&r, 0);
	r.net.side[0].second.to = 0; /* another receiver, with room */
	r.net.side[1].held_up = true;
	qp = room_post_datagram(&r);
	net_run(&r.net, 2 * NS_PER_S);
	assert_int_equal(net_wc(cq).wr_id, 1);
	for (u64 id = 2; id < 10; id++) {
		room_post_to(&r, qp, id, id % 2 == 0 ? NET_SECOND_QPN : 0x22);
		assert_int_equal(net_wc(cq).wr_id, id);
	}
	r.net.side[1].held_up = false;
	net_run(&r.net, 10 * NS_PER_MS);
	ibt_qp_destroy(qp);
	room_close(&r);
}

/* A path may wait until nobody is blocked any more, as after a death. */
static void room__nobody_waits_when_who_did_has_gone(void **state)
{
	static struct room r;

	room_open(&r, 0);
	ibt_qp_destroy(room_post_datagram(&r));
	for (int i = 0; i < 3 && path_is_awaited(&r.net.side[0].dest.dest); i++)
		room_say_writable(&r);
	assert_false(path_is_awaited(&r.net.side[0].dest.dest));
	room_close(&r);
}

static void room_post(struct room *r, struct ibt_qp *qp, enum ibv_wr_opcode opcode, u64 wr_id)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &r->net.side[0], opcode, wr_id, 0, 8);

	if (opcode == IBV_WR_RDMA_READ)
		net_wr_remote(&wr, &r->net.side[1], 1 << 20);
	net_post(qp, &wr);
}

/* There is room for an answer, but not for the acknowledgement behind it: a requester on a reliable
 * path has no timer and would wait for ever. */
static void room__acknowledgement_waits_behind_an_answer(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibt_qp *qp[2];
	static struct room r;

	room_open(&r, 1);
	net_pair(&r.net, qp, &q);
	net_post_recv(&r.net.side[1], qp[1], 7, 64, 64);
	room_post(&r, qp[0], IBV_WR_RDMA_READ, 1);
	room_post(&r, qp[0], IBV_WR_SEND, 2);
	net_run(&r.net, 10 * NS_PER_S);
	for (u64 id = 1; id <= 2; id++) {
		struct ibv_wc wc = net_wc(&r.net.side[0].send_cq);

		assert_int_equal(wc.wr_id, id);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_int_equal(net_wc(&r.net.side[1].recv_cq).wr_id, 7);
	ibt_qp_destroy(qp[0]);
	ibt_qp_destroy(qp[1]);
	room_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(room__datagram_is_tried_once_per_call),
		cmocka_unit_test(room__datagram_waits_anew_after_there_was_room),
		cmocka_unit_test(room__datagram_to_another_says_nothing),
		cmocka_unit_test(room__nobody_waits_when_who_did_has_gone),
		cmocka_unit_test(room__acknowledgement_waits_behind_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
