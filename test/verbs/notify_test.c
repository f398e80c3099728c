/* notify_test.c: what an arm over the door raises for completions that wait already.
 * In: messages of this process to itself    Out: verdicts    Runs: cmocka    Locks: none
 *
 * VERBS_VARIANT says what is expected: `eager` (the default of the door, and with
 * ANYVERBS_STRICT_NOTIFY=0) raises an event at once, `strict` does not.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "pair.h"
#include "../late.h"

enum { DEPTH = 16, QUEUES = 3, ASKED_FOR_NEXT = 0, ASKED_FOR_SOLICITED = 1 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint64_t words[2];
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq;

/* A receive CQ on the channel, and a connection whose messages complete there. */
struct line {
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
};
static struct line lines[QUEUES];

static bool is_eager(void)
{
	const char *variant = getenv("VERBS_VARIANT");

	return variant == NULL || strstr(variant, "strict") == NULL;
}

/* ---- connections ----------------------------------------------------------------------------- */

static struct ibv_qp *line_qp(struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr init = { .send_cq = send_cq,
					 .recv_cq = recv_cq,
					 .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

static void line_open_on(struct line *l, struct ibv_cq *cq)
{
	uint8_t gid_index = side_on_wire() ? 1 : 0; /* a link-local address reaches no other host */
	struct ibv_qp_attr a;
	union ibv_gid gid;

	assert_non_null(cq);
	assert_int_equal(ibv_query_gid(ctx, CONN_PORT, gid_index, &gid), 0);
	a = conn_attr(0, &gid, gid_index);
	l->cq = cq;
	l->from = line_qp(cq);
	l->to = line_qp(cq);
	assert_int_equal(conn_pair(l->to, l->from, &a), 0);
}

static void line_open(struct line *l)
{
	line_open_on(l, ibv_create_cq(ctx, DEPTH, l, channel, 0));
}

static void line_close_qps(struct line *l)
{
	assert_int_equal(ibv_destroy_qp(l->from), 0);
	assert_int_equal(ibv_destroy_qp(l->to), 0);
}

static void line_close(struct line *l)
{
	line_close_qps(l);
	assert_int_equal(ibv_destroy_cq(l->cq), 0);
	*l = (struct line){ 0 };
}

static void line_post_recv(struct line *l)
{
	struct ibv_sge to = { (uintptr_t)&words[1], 8, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(l->to, &recv, &bad), 0);
}

/* When this returns the message's completion waits: the sender has its own. */
static void line_message(struct line *l, int flags)
{
	struct ibv_sge from = { (uintptr_t)&words[0], 8, mr->lkey };
	struct ibv_send_wr send = { .sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED | (unsigned int)flags };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	line_post_recv(l);
	assert_int_equal(ibv_post_send(l->from, &send, &bad), 0);
	while (ibv_poll_cq(send_cq, 1, &wc) == 0)
		continue;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void line_take(struct line *l, int count)
{
	struct ibv_wc wc[DEPTH];

	assert_int_equal(ibv_poll_cq(l->cq, DEPTH, wc), count);
}

static void line_arm(struct line *l, int solicited_only)
{
	assert_int_equal(ibv_req_notify_cq(l->cq, solicited_only), 0);
}

/* The line whose event comes; NULL: none does. */
static struct line *event_of(int timeout_ms)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, timeout_ms) != 1) {
		late("event", timeout_ms);
		return NULL;
	}
	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
	assert_ptr_equal(((struct line *)context)->cq, cq);
	ibv_ack_cq_events(cq, 1);
	return context;
}

static void expect_event(struct line *l)
{
	assert_ptr_equal(event_of(PAIR_WAIT_MS), l);
}

static void expect_silence(void)
{
	assert_null(event_of(PAIR_QUIET_MS));
}

/* After an arm, with completions waiting that it asks for. */
static void expect_if_eager(struct line *l)
{
	if (is_eager())
		expect_event(l);
	expect_silence();
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void arm__consumed_by_what_waits(void **state)
{
	struct line *l = &lines[0];

	line_open(l);
	line_message(l, 0);
	expect_silence();
	line_arm(l, ASKED_FOR_NEXT);
	expect_if_eager(l);
	line_message(l, 0); /* raises an event only if the arm has raised none */
	if (!is_eager())
		expect_event(l);
	expect_silence();
	line_take(l, 2);
	line_close(l);
}

static void arm__not_for_what_was_delivered_and_polled(void **state)
{
	struct line *l = &lines[0];

	line_open(l);
	line_arm(l, ASKED_FOR_NEXT);
	line_message(l, 0);
	expect_event(l);
	line_take(l, 1);
	line_arm(l, ASKED_FOR_NEXT);
	expect_silence();
	line_message(l, 0);
	expect_event(l);
	line_take(l, 1);
	line_close(l);
}

static void arm__solicited_waits_for_its_kind(void **state)
{
	struct line *l = &lines[0];

	line_open(l);
	line_message(l, 0);
	line_message(l, 0);
	line_arm(l, ASKED_FOR_SOLICITED);
	expect_silence();
	line_message(l, IBV_SEND_SOLICITED);
	expect_event(l);
	line_message(l, 0);
	line_arm(l, ASKED_FOR_SOLICITED); /* one solicited waits, not as the last */
	expect_if_eager(l);
	line_take(l, 4);
	line_message(l, 0);
	if (is_eager())
		line_arm(l, ASKED_FOR_SOLICITED);
	expect_silence();
	line_close(l);
}

static void arm__solicited_takes_errors(void **state)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct line *l = &lines[0];

	line_open(l);
	line_post_recv(l);
	assert_int_equal(ibv_modify_qp(l->to, &error, IBV_QP_STATE), 0);
	line_arm(l, ASKED_FOR_SOLICITED);
	expect_if_eager(l);
	line_take(l, 1);
	line_close(l);
}

/* What a destroyed queue pair leaves behind is no longer there to wait. */
static void arm__solicited_of_a_destroyed_queue_pair(void **state)
{
	struct line *l = &lines[0], other = { 0 };

	line_open(l);
	line_open_on(&other, l->cq);
	line_message(l, 0);
	line_message(&other, IBV_SEND_SOLICITED);
	line_close_qps(&other);
	line_arm(l, ASKED_FOR_SOLICITED);
	expect_silence();
	line_take(l, 1);
	line_close(l);
}

/* Arms between the event and the poll, takes one completion for each event, as perftest does. */
static void arm__right_after_an_event(void **state)
{
	struct line *l = &lines[0];
	struct ibv_wc wc;

	line_open(l);
	line_arm(l, ASKED_FOR_NEXT);
	line_message(l, 0);
	line_message(l, 0);
	for (int i = 0; i < 2; i++) {
		/* strict: the second message came before any arm that could tell of it */
		if (i == 0 || is_eager())
			expect_event(l);
		line_arm(l, ASKED_FOR_NEXT);
		assert_int_equal(ibv_poll_cq(l->cq, 1, &wc), 1);
	}
	expect_silence();
	line_message(l, 0);
	expect_event(l);
	line_take(l, 1);
	line_close(l);
}

/* A program that reads the channel until it is empty has to be told of all that waits (UCX). */
static void arm__after_the_channel_was_found_empty(void **state)
{
	int flags = fcntl(channel->fd, F_GETFL);
	struct line *l = &lines[0];
	struct ibv_cq *cq;
	void *context;

	line_open(l);
	line_arm(l, ASKED_FOR_NEXT);
	line_message(l, 0);
	expect_event(l);
	fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), -1);
	fcntl(channel->fd, F_SETFL, flags);
	line_arm(l, ASKED_FOR_NEXT);
	expect_if_eager(l);
	line_take(l, 1);
	line_close(l);
}

static void arm__extended_queue(void **state)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = DEPTH,
					    .cq_context = &lines[0],
					    .channel = channel,
					    .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(ctx, &attr);
	struct line *l = &lines[0];

	assert_non_null(ex);
	line_open_on(l, ibv_cq_ex_to_cq(ex));
	line_message(l, 0);
	line_arm(l, ASKED_FOR_NEXT);
	expect_if_eager(l);
	assert_int_equal(ibv_start_poll(ex, &poll_attr), 0);
	assert_int_equal(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	line_arm(l, ASKED_FOR_NEXT);
	expect_silence();
	line_close(l);
}

static void arm__resized_queue(void **state)
{
	struct line *l = &lines[0];

	line_open(l);
	line_message(l, 0);
	line_message(l, IBV_SEND_SOLICITED);
	line_arm(l, ASKED_FOR_NEXT);
	assert_int_equal(ibv_resize_cq(l->cq, 4 * DEPTH), 0); /* while its event waits */
	expect_if_eager(l);
	line_arm(l, ASKED_FOR_SOLICITED);
	expect_if_eager(l);
	assert_int_equal(ibv_resize_cq(l->cq, 4), 0);
	line_take(l, 2);
	line_arm(l, ASKED_FOR_NEXT);
	expect_silence();
	line_close(l);
}

static void arm__several_queues_on_one_channel(void **state)
{
	struct line *got;
	int seen = 0;

	for (int i = 0; i < QUEUES; i++) {
		line_open(&lines[i]);
		if (i != 1)
			line_message(&lines[i], 0);
	}
	for (int i = 0; i < QUEUES; i++)
		line_arm(&lines[i], ASKED_FOR_NEXT);
	while ((got = event_of(PAIR_QUIET_MS)) != NULL) {
		int number = (int)(got - lines);

		assert_false(seen & 1 << number);
		seen |= 1 << number;
	}
	assert_int_equal(seen, is_eager() ? 1 << 0 | 1 << 2 : 0);
	line_message(&lines[1], 0);
	expect_event(&lines[1]);
	for (int i = 0; i < QUEUES; i++)
		line_close(&lines[i]);
}

static void destroy_cq__with_an_event_waiting(void **state)
{
	line_open(&lines[0]);
	line_open(&lines[1]);
	line_message(&lines[0], 0);
	line_message(&lines[1], 0);
	line_arm(&lines[0], ASKED_FOR_NEXT);
	line_arm(&lines[1], ASKED_FOR_NEXT);
	line_close(&lines[0]);
	expect_if_eager(&lines[1]);
	line_close(&lines[1]);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int notify_setup(void **state)
{
	ctx = device_open(NULL);
	if (ctx == NULL)
		return -1;
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, words, sizeof(words), IBV_ACCESS_LOCAL_WRITE);
	channel = ibv_create_comp_channel(ctx);
	send_cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	return mr == NULL || channel == NULL || send_cq == NULL ? -1 : 0;
}

static int notify_teardown(void **state)
{
	int err = ibv_destroy_cq(send_cq);

	err |= ibv_destroy_comp_channel(channel);
	err |= ibv_dereg_mr(mr);
	err |= ibv_dealloc_pd(pd);
	err |= ibv_close_device(ctx);
	return err;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(arm__consumed_by_what_waits),
		cmocka_unit_test(arm__not_for_what_was_delivered_and_polled),
		cmocka_unit_test(arm__solicited_waits_for_its_kind),
		cmocka_unit_test(arm__solicited_takes_errors),
		cmocka_unit_test(arm__solicited_of_a_destroyed_queue_pair),
		cmocka_unit_test(arm__right_after_an_event),
		cmocka_unit_test(arm__after_the_channel_was_found_empty),
		cmocka_unit_test(arm__extended_queue),
		cmocka_unit_test(arm__resized_queue),
		cmocka_unit_test(arm__several_queues_on_one_channel),
		cmocka_unit_test(destroy_cq__with_an_event_waiting),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, notify_setup, notify_teardown);
}
