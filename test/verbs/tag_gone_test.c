/* tag_gone_test.c: tag matching when something ends: a sender that is killed or stopped, a queue
 * pair that is destroyed under its messages, a device that is unplugged, a process that forks.
 * Every signalled operation and every entry that a message has taken completes exactly once.
 * In: messages of a sender (tag_bed.h)    Out: verdicts    Runs: cmocka    Locks: none
 */
#include "tag_bed.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRIES = 16, ROOM = 1 << 19 };

#define DEVICE(what) VERBS_COMMAND " device " what

static struct tag_message message(uint32_t i, uint8_t opcode)
{
	return (struct tag_message){ .opcode = opcode,
				     .tag = i + 1,
				     .bytes = opcode == IBV_TMH_EAGER ? ROOM - 64 : 0,
				     .seed = i,
				     .data_bytes = ROOM / 2 };
}

/* What has become of each entry. */
struct ready_fd {
	int matched[ENTRIES], ended[ENTRIES], valid[ENTRIES];
};

/* Until nothing comes for a while. */
static void ready_fd_take(struct ready_fd *t)
{
	struct tag_got got;

	while (tag_try_next(&got, 10 * PAIR_QUIET_MS)) {
		assert_true(got.wr_id < ENTRIES);
		if (got.flags & IBV_WC_TM_MATCH)
			t->matched[got.wr_id]++;
		if (got.flags & IBV_WC_TM_DATA_VALID)
			t->valid[got.wr_id]++;
		if ((got.flags & IBV_WC_TM_DATA_VALID) || got.status != IBV_WC_SUCCESS)
			t->ended[got.wr_id]++;
	}
}

/* Each entry that was taken has ended once; the others can be deleted. */
static void ready_fd_check(const struct ready_fd *t, const uint32_t *handles)
{
	for (uint32_t i = 0; i < ENTRIES; i++) {
		bool taken = t->matched[i] || t->ended[i];

		assert_true(t->matched[i] <= 1);
		assert_int_equal(t->ended[i], taken);
		assert_int_equal(tag_try_op(IBV_WR_TAG_DEL, 100 + i, handles[i], IBV_OPS_SIGNALED,
					    0),
				 0);
		tag_expect_op(IBV_WC_TM_DEL, 100 + i, taken ? IBV_WC_TM_ERR : IBV_WC_SUCCESS);
	}
}

static void post_entries(uint32_t *handles)
{
	for (uint32_t i = 0; i < ENTRIES; i++)
		handles[i] = tag_add(i, i + 1, TAG_EXACT, ROOM * i, ROOM);
}

/* ---- the sender ends ------------------------------------------------------------------------- */

/* Puts the receiver's queue pairs into ERR, as its own errors would. */
static void fail_queue_pairs(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	for (int i = 0; i < TAG_QPS; i++)
		assert_int_equal(ibv_modify_qp(bed.qp[i], &attr, IBV_QP_STATE), 0);
}

/* Killed `after_us` after its last post, in whatever it does then. */
static void sender_killed(uint8_t opcode, useconds_t after_us)
{
	uint32_t handles[ENTRIES];
	struct ready_fd t = { 0 };

	if (!tag_has_child())
		skip();
	tag_open(NULL);
	post_entries(handles);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		struct tag_message m = message(i, opcode);

		m.qp = i % TAG_QPS;
		tag_sender_recv(m.qp);
		tag_send(&m);
	}
	usleep(after_us);
	tag_sender_signal(SIGKILL);
	ready_fd_take(&t);
	fail_queue_pairs();
	ready_fd_take(&t);
	ready_fd_check(&t, handles);
	tag_close();
}

static void sender__killed_in_eager_messages(void **state)
{
	sender_killed(IBV_TMH_EAGER, 0);
}

static void sender__killed_in_rendezvous(void **state)
{
	sender_killed(IBV_TMH_RNDV, 0);
}

static void sender__killed_a_little_later(void **state)
{
	sender_killed(IBV_TMH_RNDV, 300);
}

/* Stopped, so that nobody answers or acknowledges, then killed. */
static void sender__killed_while_it_is_stopped(void **state)
{
	uint32_t handles[ENTRIES];
	struct ready_fd t = { 0 };

	if (!tag_has_child())
		skip();
	tag_open(NULL);
	post_entries(handles);
	for (uint32_t i = 0; i < 2; i++) {
		struct tag_message m = message(i, i ? IBV_TMH_RNDV : IBV_TMH_EAGER);

		tag_sender_recv(0);
		tag_send(&m);
	}
	tag_sender_signal(SIGSTOP);
	ready_fd_take(&t);
	tag_sender_signal(SIGKILL);
	fail_queue_pairs();
	ready_fd_take(&t);
	ready_fd_check(&t, handles);
	tag_close();
}

/* ---- the receiver's objects end -------------------------------------------------------------- */

static void queue_pair__destroyed_under_its_messages(void **state)
{
	uint32_t handles[ENTRIES];
	struct ready_fd t = { 0 };

	tag_open(NULL);
	post_entries(handles);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		struct tag_message m = message(i, i % 2 ? IBV_TMH_RNDV : IBV_TMH_EAGER);

		tag_sender_recv(0);
		tag_send(&m);
	}
	assert_int_equal(ibv_destroy_qp(bed.qp[0]), 0);
	bed.qp[0] = NULL;
	ready_fd_take(&t);
	ready_fd_check(&t, handles);
	tag_close();
}

static void queue_pair__reset_under_its_messages(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	uint32_t handles[ENTRIES];
	struct ready_fd t = { 0 };

	tag_open(NULL);
	post_entries(handles);
	for (uint32_t i = 0; i < ENTRIES; i++) {
		struct tag_message m = message(i, i % 2 ? IBV_TMH_EAGER : IBV_TMH_RNDV);

		tag_sender_recv(0);
		tag_send(&m);
	}
	assert_int_equal(ibv_modify_qp(bed.qp[0], &attr, IBV_QP_STATE), 0);
	ready_fd_take(&t);
	ready_fd_check(&t, handles);
	tag_close();
}

/* Everything goes while nobody has polled. */
static void all__destroyed_with_entries_and_messages_under_way(void **state)
{
	uint32_t handles[ENTRIES];

	for (int round = 0; round < 5; round++) {
		tag_open(NULL);
		post_entries(handles);
		for (uint32_t i = 0; i < ENTRIES / 2; i++) {
			struct tag_message m = message(i, i % 2 ? IBV_TMH_EAGER : IBV_TMH_RNDV);

			tag_sender_recv(0);
			tag_send(&m);
		}
		for (int i = 0; i < TAG_QPS; i++) {
			assert_int_equal(ibv_destroy_qp(bed.qp[i]), 0);
			bed.qp[i] = NULL;
		}
		assert_int_equal(ibv_destroy_srq(bed.srq), 0);
		bed.srq = NULL;
		tag_close();
	}
}

/* ---- the device ends ------------------------------------------------------------------------- */

static void run(const char *command)
{
	int status = system(command);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void await_device(const char *name)
{
	uint64_t end = now_ms() + PAIR_WAIT_MS;
	struct ibv_context *ctx;

	while (!(ctx = device_open(name)) && now_ms() < end)
		usleep(1000);
	assert_non_null(ctx);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void device__unplugged_answers_eio(void **state)
{
	const struct tag_options on_roce1 = { .device = "roce1" };
	struct tag_message m = message(0, IBV_TMH_EAGER);
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t end;
	int error;

	await_device("roce1");
	tag_open(&on_roce1);
	tag_add(0, 1, TAG_EXACT, 0, ROOM);
	tag_add(1, 2, TAG_EXACT, 0, ROOM);
	tag_send(&m);
	tag_expect_match(0, &m);
	run(DEVICE("remove roce1"));
	end = now_ms() + PAIR_WAIT_MS;
	do
		error = tag_try_op(IBV_WR_TAG_SYNC, 1, 0, 0, 0);
	while (error != EIO && now_ms() < end);
	assert_int_equal(error, EIO);
	do
		error = ibv_start_poll(bed.cq, &attr);
	while (error == ENOENT && now_ms() < end);
	assert_int_equal(error, EIO);
	tag_close();
	run(DEVICE("add roce1"));
	await_device("roce1");
}

/* ---- the receiver forks ---------------------------------------------------------------------- */

/* The child has a copy of everything, and none of it does anything. */
static void fork__leaves_the_list_to_the_parent(void **state)
{
	struct tag_message m = message(0, IBV_TMH_EAGER);
	int status, child;

	tag_open(NULL);
	tag_add(0, 1, TAG_EXACT, 0, ROOM);
	tag_add(1, 2, TAG_EXACT, ROOM, ROOM);
	child = fork();
	if (child == 0) {
		struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC }, *bad;

		(void)ibv_post_srq_ops(bed.srq, &wr, &bad);
		for (int i = 0; i < TAG_QPS; i++)
			if (ibv_destroy_qp(bed.qp[i]) != 0)
				_exit(1);
		_exit(ibv_destroy_srq(bed.srq) != 0 ||
		      ibv_destroy_cq(ibv_cq_ex_to_cq(bed.cq)) != 0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	tag_send(&m);
	tag_expect_match(0, &m);
	tag_check(0, m.bytes, m.seed);
	m = message(1, IBV_TMH_RNDV);
	tag_sender_recv(0);
	tag_send(&m);
	tag_expect_match(1, &m);
	tag_check(ROOM, m.data_bytes, m.seed);
	tag_close();
}

#define TEST(name) cmocka_unit_test_teardown(name, tag_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sender__killed_in_eager_messages),
		TEST(sender__killed_in_rendezvous),
		TEST(sender__killed_a_little_later),
		TEST(sender__killed_while_it_is_stopped),
		TEST(queue_pair__destroyed_under_its_messages),
		TEST(queue_pair__reset_under_its_messages),
		TEST(all__destroyed_with_entries_and_messages_under_way),
		TEST(device__unplugged_answers_eio),
		TEST(fork__leaves_the_list_to_the_parent),
	};

	setenv("ANYVERBS_DEVICES", "roce0,roce1", 1);
	pair_supervise();
	return cmocka_run_group_tests(tests, tag_group_setup, tag_group_teardown);
}
