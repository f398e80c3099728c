/* fork_test.c: a process that forks while its threads are inside verbs: whatever lock one of them
 * holds at that moment, the child, which has none of them, does not wait for it.
 * In: -    Out: -    Runs: the test's threads; children
 */
#include "rig.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 60, CHILD_LIMIT_S = 20, SRQ_SIZE = 4096 };

static struct ib_srq *srq;
static struct ib_cq *cq;
static struct ib_fmr *fmr;
static struct ib_ah *ah;
static int stop, inside;

/* Holds the SRQ's lock most of the time: a resize copies what waits. */
static void *srq_main(void *arg)
{
	struct ib_srq_attr attr;

	for (u32 i = 0; !count_get(&stop); i++) {
		attr.max_wr = i % 2 ? SRQ_SIZE : 2 * SRQ_SIZE;
		if (ib_modify_srq(srq, &attr, IB_SRQ_MAX_WR) == 0)
			count_add(&inside);
	}
	return NULL;
}

static void *cq_main(void *arg)
{
	for (u32 i = 0; !count_get(&stop); i++)
		ib_resize_cq(cq, i % 2 ? 16 : 4096);
	return NULL;
}

static void *fmr_main(void *arg)
{
	struct list_head list = { &fmr->list, &fmr->list };
	u64 page = (uintptr_t)rig.buf;

	fmr->list.next = fmr->list.prev = &list;
	while (!count_get(&stop)) {
		ib_map_phys_fmr(fmr, &page, 1, 0x10000);
		ib_unmap_fmr(&list);
	}
	fmr->list.next = fmr->list.prev = &fmr->list;
	return NULL;
}

static void *ah_main(void *arg)
{
	struct ib_ah_attr attr;

	while (!count_get(&stop))
		ib_query_ah(ah, &attr);
	return NULL;
}

/* Each call comes back, whatever it says. */
static void child_main(void)
{
	struct ib_srq_attr attr;
	struct ib_wc wc;
	struct ib_ah_attr ah_attr;
	u64 page = (uintptr_t)rig.buf;

	signal(SIGALRM, SIG_DFL);
	alarm(CHILD_LIMIT_S);
	ib_query_srq(srq, &attr);
	ib_poll_cq(cq, 1, &wc);
	ib_peek_cq(cq, 1);
	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	ib_map_phys_fmr(fmr, &page, 1, 0x10000);
	ib_query_ah(ah, &ah_attr);
	_exit(0);
}

static void fill_srq(void)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = SRQ_SIZE, .max_sge = 1 } };
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	srq = rig_ok(ib_create_srq(rig.pd, &init));
	for (int i = 0; i < SRQ_SIZE; i++)
		assert_int_equal(ib_post_srq_recv(srq, &wr, NULL), 0);
}

static void fork__waits_for_no_thread_that_is_gone(void **state)
{
	static void *(*const mains[])(void *) = { srq_main, cq_main, fmr_main, ah_main };
	struct ib_fmr_attr fa = { .max_pages = 1, .max_maps = 255, .page_shift = 12 };
	struct ib_ah_attr way = rig_way(&rig.gid);
	pthread_t t[4];
	int status;

	fill_srq();
	cq = rig_cq(16);
	ah = rig_ok(ib_create_ah(rig.pd, &way));
	fmr = rig_ok(ib_alloc_fmr(rig.pd, RIG_ALL & ~IB_ACCESS_MW_BIND, &fa));
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, mains[i], NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		assert_true(rig_await(&inside, 1));
		pid_t pid = fork();

		if (pid == 0)
			child_main();
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	count_add(&stop);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_destroy_srq(srq), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(fork__waits_for_no_thread_that_is_gone, rig_setup),
	};

	return rig_run_tests(tests);
}
