/* gone_test.c: a sender that destroys its queue pair right after a long SEND and goes on with its
 * buffer: the receiver's buffer then holds what it held or what was sent, never what came later.
 * In: nothing    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <signal.h>
#include <sys/wait.h>

#include "pair.h"

enum {
	BYTES = 1 << 20,
	SHORT = 8,
	ROUNDS = 300,
	SPINS = 200000, /* at most, between the post and the end of the queue pair */
	WAS = 1,       /* seeds: of the receive buffer before */
	SENT = 2,
	LATER = 3,
};

/* Two pairs of queue pairs: one to destroy, one whose messages come behind. */
static void open_two(void)
{
	pair_open(&(struct side_options){ .type = IBV_QPT_RC,
					  .qps = 2,
					  .bytes = BYTES + SHORT,
					  .mr_access = -1,
					  .qp_access = -1,
					  .cqe = 4096,
					  .recv_cqe = 4096 });
}

static void prepare(uint32_t length)
{
	struct side_wr room = end_wr(&pair.b, 0, length), behind = end_wr(&pair.b, BYTES, SHORT);

	end_fill(&pair.a, 0, length, SENT);
	end_fill(&pair.b, 0, length, WAS);
	end_recv(&pair.b, 0, &room, 1);
	behind.wr_id = 7;
	end_recv(&pair.b, 1, &behind, 1);
}

static void send_and_leave(uint32_t length, uint32_t spins)
{
	struct side_wr w = end_op(&pair.a, IBV_WR_SEND, 0, length, &pair.b, 0);

	end_send(&pair.a, 0, &w);
	for (volatile uint32_t i = 0; i < spins; i++)
		;
	end_destroy_qp(&pair.a, 0);
	end_fill(&pair.a, 0, length, LATER);
}

/* A message sent after it by the other queue pair: when that has come, the long one has been
 * received, or never will be. */
static void settle(void)
{
	struct side_wr w = end_op(&pair.a, IBV_WR_SEND, BYTES, SHORT, &pair.b, 0);
	struct ibv_wc wc;

	end_send(&pair.a, 1, &w);
	do
		assert_int_equal(end_poll(&pair.b, RECVS, 1, PAIR_WAIT_MS, &wc), 1);
	while (wc.wr_id != 7);
	do
		assert_int_equal(end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc), 1);
	while (wc.qp_num != pair.a.at.qpn[1]);
}

/* The receiver is stopped until the sender has done all that: the packet waits in the ring. */
static void gone__before_the_receiver_looks(void **state)
{
	static const uint32_t lengths[] = { 4096, 65536, BYTES };

	if (pair_is_one_process())
		skip();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		open_two();
		prepare(lengths[i]);
		assert_int_equal(kill(pair.b.pid, SIGSTOP), 0);
		assert_int_equal(waitpid(pair.b.pid, NULL, WUNTRACED), pair.b.pid);
		send_and_leave(lengths[i], 0);
		assert_int_equal(kill(pair.b.pid, SIGCONT), 0);
		settle();
		end_check_either(&pair.b, 0, lengths[i], WAS, SENT);
		pair_teardown(NULL);
	}
}

/* At every moment of the receiver's work, as chance will have it. */
static void gone__while_the_receiver_copies(void **state)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t length = i % 2 != 0 ? BYTES : 65536;

		open_two();
		prepare(length);
		send_and_leave(length, i * (SPINS / ROUNDS));
		settle();
		end_check_either(&pair.b, 0, length, WAS, SENT);
		pair_teardown(NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(gone__before_the_receiver_looks, pair_teardown),
		cmocka_unit_test_teardown(gone__while_the_receiver_copies, pair_teardown),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("gone", tests, pair_group_setup, pair_group_teardown);
}
