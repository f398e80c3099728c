/* event_test.c: on a wire the acknowledgement of a message goes before the event that its
 * completion raises, so that who is woken cannot answer before it.
 * In: a receiver's CQ, armed or not    Out: what it holds when the acknowledgement is sent
 * Runs: cmocka, one thread    Locks: none
 */
#include "watch.h"

enum { FEW = 4, BYTES = 8 };

struct event {
	struct net net;
	struct ibt_qp *qp[2];
	u32 acks;
	u32 held[FEW + 1]; /* completions that the receiver's CQ held at each acknowledgement */
};

static bool event_tap(struct net *net, int from, struct pkt *p)
{
	struct event *e = net->tap_arg;

	if (from != 1 || p->opcode != PKT_ACK)
		return false;
	assert_true(e->acks <= FEW);
	e->held[e->acks++] = (u32)cq_peek(&net->side[1].recv_cq, FEW);
	return false;
}

/* Messages that come together are one batch. */
static void event_open(struct event *e, bool reliable)
{
	struct net_config cfg = { .seed = 1, .delay_ns = 1000, .reliable = reliable };
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	q.depth = 2 * FEW;
	net_open(&e->net, &cfg);
	net_pair(&e->net, e->qp, &q);
	e->acks = 0;
	e->net.tap = event_tap;
	e->net.tap_arg = e;
	for (u32 i = 0; i < FEW; i++)
		net_post_recv(&e->net.side[1], e->qp[1], i, 4096 + BYTES * i, BYTES);
}

static void event_send(struct event *e, u32 n, u32 flags)
{
	for (u32 i = 0; i < n; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr =
			net_wr(&sge, &e->net.side[0], IBV_WR_SEND, i, BYTES * i, BYTES);

		wr.send_flags = IBV_SEND_SIGNALED | flags;
		net_post(e->qp[0], &wr);
	}
	net_run(&e->net, NS_PER_MS);
	for (u32 i = 0; i < n; i++) {
		assert_int_equal(net_wc(&e->net.side[0].send_cq).status, IBV_WC_SUCCESS);
		assert_int_equal(net_wc(&e->net.side[1].recv_cq).status, IBV_WC_SUCCESS);
	}
}

static void event_close(struct event *e)
{
	ibt_qp_destroy(e->qp[0]);
	ibt_qp_destroy(e->qp[1]);
	net_close(&e->net);
}

/* Sends one message to a CQ that is armed like this (0: not at all); returns what it held. */
static u32 event_held_at(bool reliable, u32 arm, u32 flags)
{
	static struct event e;

	event_open(&e, reliable);
	if (arm != 0)
		assert_int_equal(cq_arm(&e.net.side[1].recv_cq, arm), 0);
	event_send(&e, 1, flags);
	assert_int_equal(e.acks, 1);
	event_close(&e);
	return e.held[0];
}

static void event__acknowledgement_goes_first(void **state)
{
	assert_int_equal(event_held_at(false, CQ_NEXT_COMP, 0), 0);
	assert_int_equal(event_held_at(false, CQ_SOLICITED, IBV_SEND_SOLICITED), 0);
}

static void event__nobody_is_woken(void **state)
{
	assert_int_equal(event_held_at(false, 0, 0), 1);
	assert_int_equal(event_held_at(false, CQ_SOLICITED, 0), 1);
}

/* There the answer may take it along. */
static void event__not_within_a_host(void **state)
{
	assert_int_equal(event_held_at(true, CQ_NEXT_COMP, 0), 1);
}

static void event__second_completion_is_waited_for(void **state)
{
	static struct event e;

	event_open(&e, false);
	assert_int_equal(cq_arm_ncomp(&e.net.side[1].recv_cq, 2), 0);
	event_send(&e, 2, 0);
	assert_int_equal(e.held[0], 1);
	event_close(&e);
}

/* Only one of a batch raises the event; the others are acknowledged together in its end. */
static void event__once_in_a_batch(void **state)
{
	static struct event e;

	event_open(&e, false);
	assert_int_equal(cq_arm(&e.net.side[1].recv_cq, CQ_NEXT_COMP), 0);
	event_send(&e, FEW, 0);
	assert_int_equal(e.acks, 2);
	assert_int_equal(e.held[0], 0);
	assert_int_equal(e.held[1], FEW);
	event_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(event__acknowledgement_goes_first),
		cmocka_unit_test(event__nobody_is_woken),
		cmocka_unit_test(event__not_within_a_host),
		cmocka_unit_test(event__second_completion_is_waited_for),
		cmocka_unit_test(event__once_in_a_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
