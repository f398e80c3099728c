/* raw_full_test.c: the places in the queues of raw packet queue pairs, and completions that outlive
 * their queue pair for a moment.
 * In: nothing      Out: verdicts; 77: not root      Runs: cmocka      Locks: none
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw_bed.h"

#include <cmocka.h>

static struct raw_end a, b;

static int setup(void **state)
{
	raw_bed_open();
	raw_open(&a, 4);
	raw_open(&b, 4);
	return 0;
}

static int teardown(void **state)
{
	raw_close(&a);
	raw_close(&b);
	raw_bed_close();
	return 0;
}

static int try_recv(struct raw_end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->memory, RAW_ROOM, e->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

/* Fills the queue; says how many it took. */
static uint32_t fill_recv(struct raw_end *e)
{
	uint32_t n = 0;

	while (n < 1000 && try_recv(e) == 0)
		n++;
	assert_int_equal(try_recv(e), ENOMEM);
	return n;
}

static void places__are_free_when_completions_are_polled(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	uint32_t size = fill_recv(&b) + 4; /* setup has posted four */
	struct ibv_wc wc;

	for (uint16_t i = 0; i < 3; i++)
		raw_send(&a, 1, i);
	assert_int_equal(try_recv(&b), ENOMEM);
	assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
	assert_int_equal(fill_recv(&b), 1);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_RESET), 0);
	assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 0);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_INIT), 0);
	assert_int_equal(fill_recv(&b), size);
	assert_int_equal(raw_modify(b.qp, IBV_QPS_RTR), 0);
	raw_send(&a, 1, 1);
	assert_int_equal(ibv_destroy_flow(flow), 0);
	assert_int_equal(ibv_destroy_qp(b.qp), 0);
	b.qp = NULL;
	assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 0);
}

#ifndef __SANITIZE_THREAD__
/* The completions that the child has a copy of go with its copy of the queue pair. */
static void fork__a_child_destroys_its_copy(void **state)
{
	struct ibv_flow *flow = raw_flow(&b, 1, 0);
	struct ibv_wc wc;
	int status, pid;

	raw_send(&a, 1, 1);
	pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(ibv_destroy_flow(flow) != 0 || ibv_destroy_qp(b.qp) != 0 ||
		      ibv_poll_cq(b.cq, 1, &wc) > 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	raw_expect_to(&b, 1, 1);
	assert_int_equal(ibv_destroy_flow(flow), 0);
	assert_int_equal(status, 0);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(places__are_free_when_completions_are_polled, setup,
						teardown),
#ifndef __SANITIZE_THREAD__ /* its runtime starts no thread in a forked child */
		cmocka_unit_test_setup_teardown(fork__a_child_destroys_its_copy, setup, teardown),
#endif
	};

	if (!raw_bed_make()) {
		fprintf(stderr, "SKIPPED: no network namespace with a veth pair can be made\n");
		return RAW_SKIPPED;
	}
	return cmocka_run_group_tests_name("raw_full", tests, NULL, NULL);
}
