/* driver_test.c: when drivers are probed, and what a forked child finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rdma/ib_cache.h>

#include "base/process_test.h"
#include "base/clock.h"
#include "base/fork.h"
#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static int probes, probe_result;
static struct fake_device *probed;
static u64 now = NS_PER_S;

static u64 test_clock(void)
{
	return now;
}

static int probe(void)
{
	struct ib_device **list;

	fake_bump(&probes);
	assert_int_equal(ib_uverbs_get_devices(&list),
			 0); /* from within: no second probe, no deadlock */
	ib_uverbs_put_devices(list);
	if (probe_result)
		return probe_result;
	probed = fake_create("probed%d");
	return ib_register_device(&probed->ib);
}

static struct ib_driver driver = { .name = "test", .probe = probe };

static void drop_device(void)
{
	ib_unregister_device(&probed->ib);
	fake_destroy(probed);
}

static void *ask(void *arg)
{
	struct ib_device **list;

	if (ib_uverbs_get_devices(&list) != 1)
		return arg;
	ib_uverbs_put_devices(list);
	return NULL;
}

/* Nothing is probed before somebody asks; a failure is reported, and tried again after a second. */
static void driver_probe__failure_and_retry(void **state)
{
	struct ib_device **list;

	assert_int_equal(probes, 0);
	probe_result = -ECONNREFUSED;
	assert_int_equal(ib_uverbs_get_devices(&list), -ECONNREFUSED);
	assert_int_equal(probes, 1);
	assert_int_equal(ib_uverbs_get_devices(&list), -ECONNREFUSED);
	assert_int_equal(probes, 1);
	now += NS_PER_S;
	assert_int_equal(ib_uverbs_get_devices(&list), -ECONNREFUSED);
	assert_int_equal(probes, 2);
	now += NS_PER_S;
	probe_result = 0;
}

static void driver_probe__once_for_many(void **state)
{
	pthread_t threads[4];
	void *failed;

	for (u32 i = 0; i < ARRAY_LEN(threads); i++)
		pthread_create(&threads[i], NULL, ask, &driver);
	for (u32 i = 0; i < ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(probes, 3);
}

static int added;

static void on_add(struct ib_device *device)
{
	added++;
}

static struct ib_client client = { .name = "test", .add = on_add };

static void ib_register_client__sees_probed_devices(void **state)
{
	assert_int_equal(ib_register_client(&client), 0);
	assert_int_equal(added, 1);
}

/* What the child does; the parent's device is `inherited`. */
static int child_life(struct fake_device *inherited, struct ib_pd *pd)
{
	struct ib_device **list;

	alarm(10);
	/* Inherited objects can still be used and given up. */
	if (ib_dealloc_pd(pd))
		return 1;
	ib_unregister_device(&inherited->ib);
	if (added != 1)
		return 2;
	/* A device of its own, by a probe of its own, under a name that is free here. */
	if (ib_uverbs_get_devices(&list) != 1 || list[0] == &inherited->ib)
		return 3;
	if (strcmp(list[0]->name, "probed0") || probes != 4)
		return 4;
	/* The parent's client is forgotten and can register again. */
	if (added != 1 || ib_register_client(&client) || added != 2)
		return 5;
	ib_uverbs_put_devices(list);
	ib_unregister_client(&client);
	drop_device();
	return 0;
}

static void fork__child_probes_again(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&probed->ib);
	pid_t child = fork();

	if (child == 0)
		_exit(child_life(probed, pd));
	assert_int_equal(child_verdict(child), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	assert_int_equal(probes, 3);
}

static int handled;

static void on_event(struct ib_event_handler *handler, struct ib_event *event)
{
	fake_bump(&handled);
}

/* The child registers again what it had before the fork: holders, handlers, groups and objects
 * are those that it inherited. */
static int child_continues(struct ib_device **list, struct ib_event_handler *handler,
			   struct ib_qp *qp)
{
	struct ib_event event = { .device = &probed->ib, .event = IB_EVENT_SM_CHANGE };
	union ib_gid group = { .raw = { 0xff, 0x12 } };

	alarm(10);
	if (ib_register_device(&probed->ib))
		return 1;
	if (ib_destroy_qp(qp) != -EBUSY || ib_detach_mcast(qp, &group, 0) || ib_destroy_qp(qp))
		return 2;
	ib_dispatch_event(&event);
	if (!fake_await(&handled, 1) || ib_unregister_event_handler(handler))
		return 3;
	ib_uverbs_put_devices(list);
	ib_unregister_device(&probed->ib);
	return 0;
}

static void ib_register_device__again_in_child(void **state)
{
	union ib_gid group = { .raw = { 0xff, 0x12 } };
	struct ib_device **list;
	struct ib_event_handler handler;

	assert_int_equal(ib_uverbs_get_devices(&list), 1);
	INIT_IB_EVENT_HANDLER(&handler, &probed->ib, on_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	struct ib_pd *pd = ib_alloc_pd(&probed->ib);
	struct ib_cq *cq = ib_create_cq(&probed->ib, NULL, NULL, NULL, 1, 0);
	struct ib_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IB_QPT_UD };
	struct ib_qp *qp = ib_create_qp(pd, &init);

	assert_int_equal(ib_attach_mcast(qp, &group, 0), 0);
	pid_t child = fork();

	if (child == 0)
		_exit(child_continues(list, &handler, qp));
	assert_int_equal(child_verdict(child), 0);
	assert_int_equal(ib_detach_mcast(qp, &group, 0), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
	ib_uverbs_put_devices(list);
}

static bool asks_before_forks;

/* As a room's handler does that waits for a lock whose holder calls core. */
static void ask_before_fork(void)
{
	u8 lmc;

	if (asks_before_forks && ib_get_cached_lmc(&probed->ib, 1, &lmc) == 0)
		asks_before_forks = false;
}

FORK_HOOK(FORK_SA, .before = ask_before_fork);

/* Rooms call core with their locks held. */
static void fork__takes_locks_of_rooms_before_core(void **state)
{
	pid_t child;

	asks_before_forks = true;
	alarm(10);
	child = fork();
	if (child == 0)
		_exit(0);
	alarm(0);
	assert_int_equal(child_verdict(child), 0);
	assert_false(asks_before_forks);
}

static void end(void **state)
{
	ib_unregister_client(&client);
	drop_device();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(driver_probe__failure_and_retry),
		cmocka_unit_test(driver_probe__once_for_many),
		cmocka_unit_test(ib_register_client__sees_probed_devices),
		cmocka_unit_test(fork__child_probes_again),
		cmocka_unit_test(ib_register_device__again_in_child),
		cmocka_unit_test(fork__takes_locks_of_rooms_before_core),
		cmocka_unit_test(end),
	};

	clock_set_source(test_clock);
	ib_driver_add(&driver);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
