/* watch_test.c: the verbs that may not sleep, under a watch of every call that may block and of
 * every lock: from a thread that blocks all signals, from handlers, and while another thread is
 * stopped inside a verb that does sleep, on the same objects.
 * In: -    Out: -    Runs: the test's threads, vectors, the midlayer's event thread
 */
#include "watch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "kit.h"

static void round_watched(void)
{
	watch_sleepless(true);
	kit_round();
	watch_sleepless(false);
}

/* ---- the watch sees -------------------------------------------------------------------------- */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *takes_it_sleepless(void *arg)
{
	watch_sleepless(true);
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
	return NULL;
}

static void watch__sees_both_kinds_of_breach(void **state)
{
	int saved = dup(2), null = open("/dev/null", O_WRONLY);
	pthread_t t;

	watch_begin();
	watch_sleepless(true);
	usleep(1);
	watch_sleepless(false);
	assert_int_equal(pthread_create(&t, NULL, takes_it_sleepless, NULL), 0);
	pthread_join(t, NULL);
	usleep(1); /* nothing is held: no breach */
	pthread_mutex_lock(&held);
	usleep(1);
	pthread_mutex_unlock(&held);
	dup2(null, 2);
	int breaches = watch_end();

	dup2(saved, 2);
	close(saved);
	close(null);
	assert_int_equal(breaches, 2);
	assert_true(watch_seen() >= 3);
}

/* ---- from where ------------------------------------------------------------------------------ */

static void *blocked_main(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (int i = 0; i < 10; i++)
		round_watched();
	return NULL;
}

static void never_sleep__watched_with_all_signals_blocked(void **state)
{
	pthread_t t;

	kit_open();
	watch_begin();
	assert_int_equal(pthread_create(&t, NULL, blocked_main, NULL), 0);
	pthread_join(t, NULL);
	assert_int_equal(watch_end(), 0);
	kit_close();
}

static void round_handler(struct ib_cq *cq, void *context)
{
	struct ib_wc wc;

	round_watched();
	EXPECT(ib_poll_cq(cq, 1, &wc) == 1);
	EXPECT(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) == 0);
	count_add(&kit.done);
}

static void never_sleep__watched_from_a_completion_handler(void **state)
{
	kit_open();
	for (int v = 0; v < rig.dev->num_comp_vectors; v++) {
		struct ib_cq *cq = rig_handler_cq(round_handler, NULL, 64, v);
		struct link trigger;

		kit.done = 0;
		link_open(&trigger, IB_QPT_RC, cq);
		watch_begin();
		assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
		for (int i = 0; i < 3; i++) {
			link_ping(&trigger, 1, 0);
			assert_true(rig_await(&kit.done, i + 1));
		}
		assert_int_equal(watch_end(), 0);
		link_close(&trigger);
	}
	kit_close();
}

static void round_event(struct ib_event_handler *handler, struct ib_event *event)
{
	if (event->event != IB_EVENT_PORT_ACTIVE)
		return;
	round_watched();
	count_add(&kit.done);
}

static void never_sleep__watched_from_an_event_handler(void **state)
{
	struct ib_event event = { .device = rig.dev,
				  .event = IB_EVENT_PORT_ACTIVE,
				  .element.port_num = 1 };
	struct ib_event_handler handler;

	kit_open();
	INIT_IB_EVENT_HANDLER(&handler, rig.dev, round_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	watch_begin();
	for (int i = 0; i < 3; i++)
		ib_dispatch_event(&event);
	assert_true(rig_await(&kit.done, 3));
	assert_int_equal(watch_end(), 0);
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
	kit_close();
}

/* ---- beside a thread that sits in a verb that sleeps ----------------------------------------- */

static void sleeper_modify_qp(void)
{
	struct ib_qp_attr attr = { .min_rnr_timer = IB_RNR_TIMER_000_64 };

	EXPECT(ib_modify_qp(kit.rc.b, &attr, IB_QP_MIN_RNR_TIMER) == 0);
}

static void sleeper_query_qp(void)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	EXPECT(ib_query_qp(kit.rc.a, &attr, IB_QP_STATE, &init) == 0);
}

/* On the same CQs, SRQ and PD, through all states. */
static void sleeper_qp_comes_and_goes(void)
{
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, kit.rc.scq, kit.rc.rcq, kit.srq);
	struct ib_qp *qp = ib_create_qp(rig.pd, &init);

	EXPECT(!IS_ERR(qp));
	if (IS_ERR(qp))
		return;
	EXPECT(rig_try_init(qp) == 0);
	EXPECT(rig_try_rtr(qp, &rig.gid, qp->qp_num) == 0);
	EXPECT(rig_try_rts(qp) == 0);
	EXPECT(rig_try_state(qp, IB_QPS_ERR) == 0);
	EXPECT(ib_destroy_qp(qp) == 0);
}

static void sleeper_resize_cq(void)
{
	EXPECT(!rig.dev->resize_cq || ib_resize_cq(kit.rc.rcq, 1000) == 0);
}

static void sleeper_cq_comes_and_goes(void)
{
	struct ib_cq *cq = ib_create_cq(rig.dev, round_handler, NULL, NULL, 16, 0);

	EXPECT(!IS_ERR(cq) && ib_destroy_cq(cq) == 0);
}

static void sleeper_srq(void)
{
	struct ib_srq_attr attr;

	EXPECT(ib_query_srq(kit.srq, &attr) == 0);
	attr.srq_limit = 1;
	EXPECT(ib_modify_srq(kit.srq, &attr, IB_SRQ_LIMIT) == 0);
}

static void sleeper_regions(void)
{
	struct ib_phys_buf page = { (uintptr_t)rig.buf, RIG_PAGE };
	struct ib_mr *all = ib_get_dma_mr(rig.pd, IB_ACCESS_LOCAL_WRITE), *mr;
	u64 iova = 0;

	EXPECT(!IS_ERR(all) && ib_dereg_mr(all) == 0);
	if (!rig.dev->reg_phys_mr)
		return;
	mr = ib_reg_phys_mr(rig.pd, &page, 1, IB_ACCESS_LOCAL_WRITE, &iova);
	EXPECT(!IS_ERR(mr) && ib_dereg_mr(mr) == 0);
}

static void sleeper_unmap_fmr(void)
{
	struct list_head list = { &kit.fmr->list, &kit.fmr->list };

	kit.fmr->list.next = kit.fmr->list.prev = &list;
	EXPECT(ib_unmap_fmr(&list) == 0);
	kit.fmr->list.next = kit.fmr->list.prev = &kit.fmr->list;
	EXPECT(ib_flush_fmr_pool(kit.pool) == 0);
}

static void sleeper_mcast(void)
{
	union ib_gid group = { .raw = { 0xff, 0x0e, [15] = 98 } };

	EXPECT(ib_attach_mcast(kit.ud.b, &group, 0) == 0);
	EXPECT(ib_detach_mcast(kit.ud.b, &group, 0) == 0);
}

static void sleeper_device(void)
{
	struct ib_device_attr attr;
	struct ib_port_attr port;
	union ib_gid gid;

	EXPECT(ib_query_device(rig.dev, &attr) == 0);
	EXPECT(ib_query_port(rig.dev, 1, &port) == 0);
	EXPECT(ib_query_gid(rig.dev, 1, 0, &gid) == 0);
}

static void no_event(struct ib_event_handler *handler, struct ib_event *event)
{
}

static void sleeper_event_handler(void)
{
	struct ib_event_handler handler;

	INIT_IB_EVENT_HANDLER(&handler, rig.dev, no_event);
	EXPECT(ib_register_event_handler(&handler) == 0);
	EXPECT(ib_unregister_event_handler(&handler) == 0);
}

/* A client's callbacks may sleep: here they do. */
static void slow_client(struct ib_device *device)
{
	usleep(1);
}

static void sleeper_client(void)
{
	struct ib_client client = { .name = "slow", .add = slow_client, .remove = slow_client };

	EXPECT(ib_register_client(&client) == 0);
	ib_unregister_client(&client);
}

static const struct sleeper {
	const char *name;
	void (*call)(void);
} sleepers[] = {
	{ "modify_qp", sleeper_modify_qp },
	{ "query_qp", sleeper_query_qp },
	{ "a queue pair comes and goes", sleeper_qp_comes_and_goes },
	{ "resize_cq", sleeper_resize_cq },
	{ "a CQ comes and goes", sleeper_cq_comes_and_goes },
	{ "modify_srq", sleeper_srq },
	{ "regions come and go", sleeper_regions },
	{ "unmap_fmr", sleeper_unmap_fmr },
	{ "attach_mcast", sleeper_mcast },
	{ "query_device", sleeper_device },
	{ "register_event_handler", sleeper_event_handler },
	{ "register_client", sleeper_client },
};

enum { SLEEPERS = sizeof(sleepers) / sizeof(sleepers[0]) };

static int sleeper_done;

static void *sleeper_main(void *arg)
{
	watch_parkable(true);
	((const struct sleeper *)arg)->call();
	watch_parkable(false);
	count_add(&sleeper_done);
	return NULL;
}

/* Wherever inside of it the other thread is about to sleep, a round goes through. */
static int rounds_beside(const struct sleeper *s)
{
	int stops = 0;
	pthread_t t;

	sleeper_done = 0;
	assert_int_equal(pthread_create(&t, NULL, sleeper_main, (void *)(uintptr_t)s), 0);
	while (watch_await_parked(&sleeper_done)) {
		if (stops++ < 3)
			round_watched();
		watch_unpark();
	}
	pthread_join(t, NULL);
	return stops;
}

static void never_sleep__beside_a_thread_that_does(void **state)
{
	int stops = 0;

	kit_open();
	watch_begin();
	round_watched(); /* makes known which locks must be short */
	for (int i = 0; i < SLEEPERS; i++) {
		int stopped = rounds_beside(&sleepers[i]);

		print_message("%s: stopped at %d calls\n", sleepers[i].name, stopped);
		stops += stopped;
	}
	assert_int_equal(watch_end(), 0);
	assert_true(stops > 0); /* the slow client at least */
	kit_close();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(watch__sees_both_kinds_of_breach),
		cmocka_unit_test_setup(never_sleep__watched_with_all_signals_blocked, rig_setup),
		cmocka_unit_test_setup(never_sleep__watched_from_a_completion_handler, rig_setup),
		cmocka_unit_test_setup(never_sleep__watched_from_an_event_handler, rig_setup),
		cmocka_unit_test_setup(never_sleep__beside_a_thread_that_does, rig_setup),
	};

	if (!watch_sees_locks())
		print_message("this libanyverbs does not tell of its locks\n");
	return rig_run_tests(tests);
}
