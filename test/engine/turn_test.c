/* turn_test.c: on a path on which the initiator may copy by itself, what is long and stands behind
 * others waits until it is alone, and is copied then; in its place, and not in packets. */
#include "watch.h"

#include <string.h>

enum { LONG = 32 << 10, SHORT = 4 << 10, MARK = 100, THERE = 64 << 10 };

struct turn {
	struct net net;
	struct ibt_qp *qp[2];
	struct watch watch;
};

static void turn_open(struct turn *t, bool direct)
{
	struct net_config cfg = { .delay_ns = 1000, .reliable = true, .direct = direct };
	struct net_qp how = net_qp_defaults(IBV_QPT_RC);

	how.all_signalled = false;
	net_open(&t->net, &cfg);
	net_pair(&t->net, t->qp, &how);
	watch_begin(&t->watch, &t->net);
}

static void turn_close(struct turn *t)
{
	ibt_qp_destroy(t->qp[0]);
	ibt_qp_destroy(t->qp[1]);
	net_close(&t->net);
}

/* Side 0 sends MARK bytes of 7 to `THERE` of side 1, unsignalled, and then does `op` there. */
static void turn_post(struct turn *t, enum ibv_wr_opcode op, u32 length)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr send = net_wr(&sge[0], &t->net.side[0], IBV_WR_SEND, 1, 0, MARK);
	struct ibv_send_wr wr = net_wr(&sge[1], &t->net.side[0], op, 2, THERE, length);

	send.send_flags = 0;
	send.next = &wr;
	wr.send_flags = IBV_SEND_SIGNALED;
	net_wr_remote(&wr, &t->net.side[1], THERE);
	memset(t->net.side[0].memory, 7, MARK);
	net_post_recv(&t->net.side[1], t->qp[1], 3, THERE, MARK);
	net_post(t->qp[0], &send);
}

static void turn_expect_done(struct turn *t)
{
	struct ibv_wc wc = net_wc(&t->net.side[0].send_cq);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 2);
	wc = net_wc(&t->net.side[1].recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, MARK);
}

/* It has read what the SEND ahead of it has put there. */
static void turn__long_read_waits_and_is_copied(void **state)
{
	static struct turn t;

	turn_open(&t, true);
	turn_post(&t, IBV_WR_RDMA_READ, LONG);
	net_run(&t.net, NS_PER_MS);
	turn_expect_done(&t);
	assert_int_equal(watch_count(&t.watch, 0, OP(READ_REQUEST)), 0);
	assert_int_equal(t.net.side[0].memory[THERE + MARK - 1], 7);
	assert_int_equal(t.net.side[0].memory[THERE + MARK], 0);
	turn_close(&t);
}

/* It stays after the SEND ahead of it. */
static void turn__long_write_waits_and_is_copied(void **state)
{
	const u32 writes = OP(WRITE_FIRST) | OP(WRITE_MIDDLE) | OP(WRITE_LAST) | OP(WRITE_ONLY);
	static struct turn t;

	turn_open(&t, true);
	memset(t.net.side[0].memory + THERE, 9, LONG);
	turn_post(&t, IBV_WR_RDMA_WRITE, LONG);
	assert_int_equal(t.net.side[1].memory[THERE + LONG - 1], 0);
	net_run(&t.net, NS_PER_MS);
	turn_expect_done(&t);
	assert_int_equal(watch_count(&t.watch, 0, writes), 0);
	assert_int_equal(t.net.side[1].memory[THERE], 9);
	assert_int_equal(t.net.side[1].memory[THERE + LONG - 1], 9);
	turn_close(&t);
}

static void turn_read_goes_at_once(bool direct, u32 length)
{
	static struct turn t;

	turn_open(&t, direct);
	turn_post(&t, IBV_WR_RDMA_READ, length);
	assert_int_equal(watch_count(&t.watch, 0, OP(READ_REQUEST)), 1);
	net_run(&t.net, NS_PER_MS);
	turn_expect_done(&t);
	turn_close(&t);
}

/* A short one costs little in packets, and its answer comes sooner. */
static void turn__short_read_goes_at_once(void **state)
{
	turn_read_goes_at_once(true, SHORT);
}

/* Who cannot copy by himself has nothing to wait for. */
static void turn__without_direct_access_nothing_waits(void **state)
{
	turn_read_goes_at_once(false, LONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(turn__long_read_waits_and_is_copied),
		cmocka_unit_test(turn__long_write_waits_and_is_copied),
		cmocka_unit_test(turn__short_read_goes_at_once),
		cmocka_unit_test(turn__without_direct_access_nothing_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
