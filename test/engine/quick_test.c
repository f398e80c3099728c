/* quick_test.c: the shortest way of small SENDs: when it is taken, and what becomes of a list that
 * the path takes in parts. */
#include "watch.h"

#include <string.h>

enum { LIST = 20, ROOM = 3 };

struct quick {
	struct net net;
	struct ibt_qp *qp[2];
	struct ibv_send_wr wr[LIST];
	struct ibv_sge sge[LIST];
};

static void quick_open_as(struct quick *q, u32 room, bool receives)
{
	struct net_config cfg = { .seed = 1, .delay_ns = 1000, .reliable = true };
	struct net_qp how = net_qp_defaults(IBV_QPT_RC);

	cfg.room[1] = room;
	how.depth = 2 * LIST;
	net_open(&q->net, &cfg);
	q->qp[0] = net_qp_create(&q->net, 0, 0x11, &how);
	q->qp[1] = net_qp_create(&q->net, 1, 0x22, &how);
	net_qp_connect(&q->net, 0, q->qp[0], 0x22, &how);
	how.receives = receives;
	net_qp_connect(&q->net, 1, q->qp[1], 0x11, &how);
	for (u32 i = 0; i < LIST; i++)
		net_post_recv(&q->net.side[1], q->qp[1], i, 4096 + 64 * i, 64);
}

static void quick_open(struct quick *q, u32 room)
{
	quick_open_as(q, room, false);
}

static void quick_close(struct quick *q)
{
	ibt_qp_destroy(q->qp[0]);
	ibt_qp_destroy(q->qp[1]);
	net_close(&q->net);
}

/* A list of SENDs, numbered, each of some bytes of its own. */
static void quick_post(struct quick *q, u32 first, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		u32 at = first + i;

		q->wr[i] = net_wr(&q->sge[i], &q->net.side[0], IBV_WR_SEND, at, 8 * at, 8);
		q->wr[i].next = i + 1 < n ? &q->wr[i + 1] : NULL;
		memset(q->net.side[0].memory + 8 * at, (int)at + 1, 8);
	}
	net_post(q->qp[0], q->wr);
}

static void quick_expect(struct quick *q, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		const u8 *got = q->net.side[1].memory + 4096 + 64 * i;
		struct ibv_wc wc = net_wc(&q->net.side[1].recv_cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, 8);
		assert_int_equal(got[0], i + 1);
		assert_int_equal(got[7], i + 1);
		wc = net_wc(&q->net.side[0].send_cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
}

/* Here the path shows a sender by another address than the one that packets are sent to, and says
 * that the two are the same. */
static void quick__is_taken_whatever_address_the_other_end_has(void **state)
{
	static struct quick q;

	quick_open(&q, 0);
	quick_post(&q, 0, 1);
	net_run(&q.net, NS_PER_MS);
	quick_post(&q, 1, 2);
	net_run(&q.net, NS_PER_MS);
	assert_int_equal(q.net.briefs, 2); /* the first one has told */
	quick_expect(&q, 3);
	quick_close(&q);
}

/* A consumer that only receives need not go on to RTS; that the connection is established it hears
 * once, from the first message. */
static void quick__is_taken_by_who_only_receives(void **state)
{
	static struct quick q;

	quick_open_as(&q, 0, true);
	quick_post(&q, 0, 1);
	net_run(&q.net, NS_PER_MS);
	assert_int_equal(q.net.side[1].events[IBV_EVENT_COMM_EST], 1);
	quick_post(&q, 1, 2);
	net_run(&q.net, NS_PER_MS);
	assert_int_equal(q.net.briefs, 2);
	assert_int_equal(q.net.side[1].events[IBV_EVENT_COMM_EST], 1);
	quick_expect(&q, 3);
	quick_close(&q);
}

static void quick__list_in_parts_arrives_in_order_and_once(void **state)
{
	static struct quick q;

	quick_open(&q, ROOM);
	quick_post(&q, 0, LIST);
	net_run(&q.net, NS_PER_S);
	quick_expect(&q, LIST);
	quick_close(&q);
}

/* What is too long for the short way, or has more than one piece, goes the other in its place. */
static void quick__list_of_both_kinds_keeps_its_order(void **state)
{
	static struct quick q;

	quick_open(&q, 0);
	for (u32 i = 0; i < 3; i++) {
		q.wr[i] = net_wr(&q.sge[i], &q.net.side[0], IBV_WR_SEND, i, 64 * i,
				 i == 1 ? 33 : 32);
		q.wr[i].next = i < 2 ? &q.wr[i + 1] : NULL;
	}
	net_post(q.qp[0], q.wr);
	net_run(&q.net, NS_PER_MS);
	for (u32 i = 0; i < 3; i++) {
		struct ibv_wc wc = net_wc(&q.net.side[1].recv_cq);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, i == 1 ? 33 : 32);
	}
	quick_close(&q);
}

/* The way to the peer is full when an acknowledgement is owed to it: that rides on the first of a
 * list, which the path does not take, and must not be forgotten with it. */
static void quick__refused_list_gives_its_acknowledgement_back(void **state)
{
	static struct quick q;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	quick_open(&q, 1);
	net_post_recv(&q.net.side[0], q.qp[0], 7, 8192, 64);
	q.net.cfg.delay_ns = NS_PER_MS;
	quick_post(&q, 0, 1);
	q.net.cfg.delay_ns = 1000;
	wr = net_wr(&sge, &q.net.side[1], IBV_WR_SEND, 70, 0, 8);
	wr.send_flags = IBV_SEND_SIGNALED;
	net_post(q.qp[1], &wr);
	assert_true(net_step(&q.net));
	assert_int_equal(net_wc(&q.net.side[0].recv_cq).wr_id, 7);
	quick_post(&q, 1, 2);
	assert_int_equal(cq_peek(&q.net.side[1].send_cq, 1), 0);
	net_run(&q.net, NS_PER_S);
	wc = net_wc(&q.net.side[1].send_cq);
	assert_int_equal(wc.wr_id, 70);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	quick_expect(&q, 3);
	quick_close(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quick__is_taken_whatever_address_the_other_end_has),
		cmocka_unit_test(quick__is_taken_by_who_only_receives),
		cmocka_unit_test(quick__list_in_parts_arrives_in_order_and_once),
		cmocka_unit_test(quick__list_of_both_kinds_keeps_its_order),
		cmocka_unit_test(quick__refused_list_gives_its_acknowledgement_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
