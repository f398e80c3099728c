/* port_test.c: a port that goes down and comes up: what programs are told, and what becomes of
 * their traffic.
 * In: connections, and the command that sets the port    Out: verdicts
 * Runs: cmocka, and a child that sets the port           Locks: none
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum {
	BYTES = 4 << 20,
	WORD = 3 << 20, /* where the atomics count */
	RESULT = WORD + 64,
	TIMEOUT_8MS = 11,
	TIMEOUT_134MS = 15,
	TIMEOUT_2S = 19, /* eight tries: 17 s, in which a busy machine takes the port up again */
	DOWN_MS = 100,
	BURST = 16,
	SMALL = 3000,
	LARGE = 300000, /* is copied by its receiver */
};

#define PORT(state) VERBS_COMMAND " port " state

static int port_run(const char *command)
{
	int status = system(command);

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The next event of the port that this end hears; others are passed over. */
static int port_next_event(struct end *e, int timeout_ms)
{
	struct side_reply r;

	do
		r = end_event(e, timeout_ms);
	while (r.event.type >= 0 && r.event.type != IBV_EVENT_PORT_ERR &&
	       r.event.type != IBV_EVENT_PORT_ACTIVE && r.event.type != IBV_EVENT_GID_CHANGE);
	return r.event.type;
}

/* Sets the port and waits until both ends have it so. */
static void port_set(bool up)
{
	int type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;

	assert_int_equal(port_run(up ? PORT("up") : PORT("down")), 0);
	assert_int_equal(port_next_event(&pair.a, PAIR_WAIT_MS), type);
	assert_int_equal(port_next_event(&pair.b, PAIR_WAIT_MS), type);
}

static pid_t flapping; /* the child that takes the port down and up; 0: none */

/* Up again, also after a test that failed. */
static int port_teardown(void **state)
{
	int failed;

	if (flapping > 0)
		waitpid(flapping, NULL, 0);
	flapping = 0;
	failed = port_run(PORT("up"));

	pair_teardown(state);
	return failed;
}

static void port_open(int type, uint8_t timeout, uint8_t retry)
{
	struct side_options o = {
		.type = type, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_link l;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = pair_default_link(&pair.b, 0);
	l.timeout = timeout;
	l.retry_cnt = retry;
	pair_connect(1, &l, &l);
	if (type == IBV_QPT_UD)
		end_ah(&pair.a, &pair.b.at.gid);
}

/* ---- what programs are told ---- */

static struct ibv_context *port_open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	assert_non_null(list);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static bool port_has_event(struct ibv_context *ctx, int timeout_ms)
{
	return fd_is_readable(ctx->async_fd, timeout_ms);
}

/* The event, and what the port says when it comes. */
static void port_expect(struct ibv_context *ctx, enum ibv_event_type type,
			enum ibv_port_state port_state, int phys_state)
{
	struct ibv_async_event ev;
	struct ibv_port_attr attr;

	assert_true(port_has_event(ctx, PAIR_WAIT_MS));
	assert_int_equal(ibv_get_async_event(ctx, &ev), 0);
	assert_int_equal(ev.event_type, type);
	assert_int_equal(ev.element.port_num, 1);
	ibv_ack_async_event(&ev);
	assert_int_equal(ibv_query_port(ctx, 1, &attr), 0);
	assert_int_equal(attr.state, port_state);
	assert_int_equal(attr.phys_state, phys_state);
}

static void port__says_so(void **state)
{
	struct ibv_context *ctx = port_open_device();

	for (int i = 0; i < 3; i++) {
		assert_int_equal(port_run(PORT("down")), 0);
		port_expect(ctx, IBV_EVENT_PORT_ERR, IBV_PORT_DOWN, 3);
		assert_int_equal(port_run(PORT("roce0 down")), 0);
		assert_int_equal(port_run(PORT("up")), 0);
		port_expect(ctx, IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE, 5);
	}
	/* no other: the GIDs are as they were */
	assert_false(port_has_event(ctx, PAIR_QUIET_MS));
	ibv_close_device(ctx);
}

static void port__every_end_hears_it(void **state)
{
	port_open(IBV_QPT_RC, TIMEOUT_134MS, 7);
	port_set(false);
	port_set(true);
	assert_int_equal(port_next_event(&pair.a, PAIR_QUIET_MS), -1);
	assert_int_equal(port_next_event(&pair.b, 0), -1);
}

/* ---- connections ---- */

static void expect_retries_exhausted(enum ibv_wr_opcode op)
{
	struct side_wr w = end_op(&pair.a, op, 0, 8, &pair.b, WORD), room = end_wr(&pair.b, 0, 8);
	uint64_t begin = now_ms(), before;

	end_recv(&pair.b, 0, &room, 1);
	before = end_word(&pair.b, WORD);
	end_fill(&pair.a, 0, 8, begin);
	w.compare = 1;
	end_send_many(&pair.a, 0, &w, 2, 0);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_RETRY_EXC_ERR).wr_id, 1);
	/* the first try and three more, each 8.4 ms */
	assert_in_range(now_ms() - begin, 33, 15000);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_WR_FLUSH_ERR).wr_id, 2);
	end_expect_state(&pair.a, 0, IBV_QPS_ERR);
	end_expect_state(&pair.b, 0, IBV_QPS_RTS);
	end_expect_none(&pair.b, RECVS);
	assert_int_equal(end_word(&pair.b, WORD), before);
}

static void port__stays_down(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		port_open(IBV_QPT_RC, TIMEOUT_8MS, 3);
		port_set(false);
		expect_retries_exhausted(ops[i]);
		port_set(true);
		pair_teardown(NULL);
	}
}

/* What was posted meanwhile goes when it is up again, once. */
static void port__comes_up_in_time(void **state)
{
	struct side_wr w, room;

	port_open(IBV_QPT_RC, TIMEOUT_2S, 7);
	w = end_op(&pair.a, IBV_WR_SEND, 0, SMALL, &pair.b, 0);
	room = end_wr(&pair.b, 0, SMALL);
	end_recv(&pair.b, 0, &room, BURST);
	end_fill(&pair.a, 0, SMALL, 5);
	port_set(false);
	end_send_many(&pair.a, 0, &w, BURST, 0);
	end_expect_none(&pair.a, SENDS);
	end_expect_none(&pair.b, RECVS);
	port_set(true);
	end_expect_in_order(&pair.a, SENDS, BURST, 1, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, BURST, 1, IBV_WC_SUCCESS);
	end_check(&pair.b, 0, SMALL, 5);
	end_expect_none(&pair.b, RECVS);
}

/* One round of a stream: each kind of request once or more, everything checked. */
static void stream_round(uint64_t round)
{
	struct side_wr send = end_op(&pair.a, IBV_WR_SEND, 0, SMALL, &pair.b, 0);
	struct side_wr large = end_op(&pair.a, IBV_WR_SEND, 0, LARGE, &pair.b, 0);
	struct side_wr add =
		end_op(&pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, RESULT, 8, &pair.b, WORD);
	struct side_wr read = end_op(&pair.a, IBV_WR_RDMA_READ, 1 << 20, LARGE, &pair.b, 1 << 20);
	struct side_wr write = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, LARGE, &pair.b, 2 << 20);
	struct side_wr room = end_wr(&pair.b, 0, LARGE);

	end_fill(&pair.a, 0, LARGE, round);
	end_fill(&pair.b, 1 << 20, LARGE, ~round);
	end_recv(&pair.b, 0, &room, BURST + 1);
	end_send_many(&pair.a, 0, &send, BURST, 0);
	add.compare = 1;
	end_send(&pair.a, 0, &add);
	end_send(&pair.a, 0, &read);
	end_send(&pair.a, 0, &write);
	end_send(&pair.a, 0, &large);
	end_expect_in_order(&pair.a, SENDS, BURST, 1, IBV_WC_SUCCESS);
	for (int i = 0; i < 4; i++)
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, BURST + 1, 1, IBV_WC_SUCCESS);
	end_check(&pair.b, 0, LARGE, round);
	end_check(&pair.b, 2 << 20, LARGE, round);
	end_check(&pair.a, 1 << 20, LARGE, ~round);
	assert_int_equal(end_word(&pair.a, RESULT), round);
}

static void port_flap(int times, unsigned int down_ms, unsigned int up_ms)
{
	flapping = fork();
	if (flapping != 0)
		return;
	for (int i = 0; i < times; i++) {
		if (port_run(PORT("down")) != 0)
			_exit(1);
		usleep(down_ms * 1000);
		if (port_run(PORT("up")) != 0)
			_exit(1);
		usleep(up_ms * 1000);
	}
	_exit(0);
}

/* The port goes down at any moment of a stream; nothing is lost, nothing done twice. */
static void stream_across(void)
{
	uint64_t round = 0;
	int status;

	while (waitpid(flapping, &status, WNOHANG) == 0)
		stream_round(round++);
	flapping = 0;
	assert_int_equal(status, 0);
	stream_round(round);
	end_expect_none(&pair.b, RECVS);
	assert_int_equal(end_word(&pair.b, WORD), round + 1);
}

static void port__stream_survives(void **state)
{
	port_open(IBV_QPT_RC, TIMEOUT_2S, 7);
	port_flap(5, DOWN_MS, DOWN_MS);
	stream_across();
}

/* So short that a process may not see it down at all. */
static void port__stream_survives_short_ones(void **state)
{
	/* The last one is over before the tries are, also under a sanitizer. */
	port_open(IBV_QPT_RC, TIMEOUT_2S, 7);
	port_flap(8, 0, 50);
	stream_across();
}

/* ---- datagrams, and connections that promise nothing ---- */

static void expect_lost(int type)
{
	struct side_wr w, room;

	port_open(type, TIMEOUT_134MS, 7);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	room = end_wr(&pair.b, 0, SMALL);
	end_recv(&pair.b, 0, &room, 2);
	end_send(&pair.a, 0, &w);
	assert_int_equal(end_expect(&pair.b, RECVS, IBV_WC_SUCCESS).wr_id, 1);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	port_set(false);
	end_send(&pair.a, 0, &w);
	/* as good as sent */
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	port_set(true);
	end_expect_none(&pair.b, RECVS);
	end_send(&pair.a, 0, &w);
	assert_int_equal(end_expect(&pair.b, RECVS, IBV_WC_SUCCESS).wr_id, 2);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
}

static void port__datagrams_are_lost(void **state)
{
	expect_lost(IBV_QPT_UD);
}

static void port__unreliable_messages_are_lost(void **state)
{
	expect_lost(IBV_QPT_UC);
}

#define TEST(fn) cmocka_unit_test_teardown(fn, port_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(port__says_so),
		TEST(port__every_end_hears_it),
		TEST(port__stays_down),
		TEST(port__comes_up_in_time),
		TEST(port__stream_survives),
		TEST(port__stream_survives_short_ones),
		TEST(port__datagrams_are_lost),
		TEST(port__unreliable_messages_are_lost),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("port", tests, pair_group_setup, pair_group_teardown);
}
