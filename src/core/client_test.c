/* client_test.c: clients and devices that come and go, in every order. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/core_priv.h"
#include "core/service.h"
#include "core/test_support/fake_device.h"

/* What happened, as "A+fake0 B+fake0 B-fake0 ". */
static struct {
	struct lock lock;
	char text[4096];
} story;

static void story_clear(void)
{
	lock_acquire(&story.lock);
	story.text[0] = '\0';
	lock_release(&story.lock);
}

static void story_tell(char who, char what, const struct ib_device *device)
{
	lock_acquire(&story.lock);
	size_t length = strlen(story.text);

	snprintf(story.text + length, sizeof(story.text) - length, "%c%c%s ", who, what,
		 device->name);
	lock_release(&story.lock);
}

static struct ib_client client_a, client_b, client_c;
static int data_a, data_b;

static void a_add(struct ib_device *device)
{
	ib_set_client_data(device, &client_a, &data_a);
	story_tell('A', '+', device);
}

static void a_remove(struct ib_device *device)
{
	assert_ptr_equal(ib_get_client_data(device, &client_a), &data_a);
	story_tell('A', '-', device);
}

/* Uses the device as long as it may, and relies on A being there before and after it. */
static void b_add(struct ib_device *device)
{
	struct ib_pd *pd = ib_alloc_pd(device);

	assert_false(IS_ERR(pd));
	assert_ptr_equal(ib_get_client_data(device, &client_a), &data_a);
	ib_set_client_data(device, &client_b, pd);
	story_tell('B', '+', device);
}

static void b_remove(struct ib_device *device)
{
	assert_ptr_equal(ib_get_client_data(device, &client_a), &data_a);
	assert_int_equal(ib_dealloc_pd(ib_get_client_data(device, &client_b)), 0);
	story_tell('B', '-', device);
}

static struct ib_client client_a = { .name = "a", .add = a_add, .remove = a_remove };
static struct ib_client client_b = { .name = "b", .add = b_add, .remove = b_remove };
static struct ib_client client_c = { .name = "c" };

static struct fake_device *fake_plug(void)
{
	struct fake_device *fake = fake_create("fake%d");

	assert_int_equal(ib_register_device(&fake->ib), 0);
	return fake;
}

static void fake_unplug(struct fake_device *fake)
{
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
}

static void ib_register_client__devices_first(void **state)
{
	struct fake_device *one = fake_plug(), *two = fake_plug();

	story_clear();
	assert_int_equal(ib_register_client(&client_a), 0);
	assert_int_equal(ib_register_client(&client_b), 0);
	assert_string_equal(story.text, "A+fake0 A+fake1 B+fake0 B+fake1 ");
	story_clear();
	ib_unregister_client(&client_b);
	ib_unregister_client(&client_a);
	assert_string_equal(story.text, "B-fake1 B-fake0 A-fake1 A-fake0 ");
	fake_unplug(one);
	fake_unplug(two);
}

static void ib_register_device__clients_first(void **state)
{
	story_clear();
	assert_int_equal(ib_register_client(&client_a), 0);
	assert_int_equal(ib_register_client(&client_b), 0);
	struct fake_device *fake = fake_plug();

	assert_string_equal(story.text, "A+fake0 B+fake0 ");
	story_clear();
	fake_unplug(fake);
	assert_string_equal(story.text, "B-fake0 A-fake0 ");
	story_clear();
	ib_unregister_client(&client_a);
	ib_unregister_client(&client_b);
	assert_string_equal(story.text, "");
}

static void ib_register_client__twice(void **state)
{
	assert_int_equal(ib_register_client(&client_c), 0);
	assert_int_equal(ib_register_client(&client_c), -EEXIST);
	ib_unregister_client(&client_c);
	ib_unregister_client(&client_c);
	assert_int_equal(ib_register_client(NULL), -EINVAL);
}

static void ib_set_client_data__unknown_client(void **state)
{
	struct fake_device *fake = fake_plug();

	ib_set_client_data(&fake->ib, &client_c, &data_b);
	assert_null(ib_get_client_data(&fake->ib, &client_c));
	fake_unplug(fake);
}

static void ib_client__without_callbacks(void **state)
{
	assert_int_equal(ib_register_client(&client_c), 0);
	struct fake_device *fake = fake_plug();

	ib_set_client_data(&fake->ib, &client_c, &data_b);
	assert_ptr_equal(ib_get_client_data(&fake->ib, &client_c), &data_b);
	fake_unplug(fake);
	ib_unregister_client(&client_c);
}

/* ---- a client that registers another from its add -------------------------------------------- */

static void nest_add(struct ib_device *device)
{
	story_tell('N', '+', device);
	assert_int_equal(ib_register_client(&client_a), 0);
}

static void nest_remove(struct ib_device *device)
{
	ib_unregister_client(&client_a);
	story_tell('N', '-', device);
}

static void ib_register_client__from_add(void **state)
{
	struct ib_client nest = { .name = "nest", .add = nest_add, .remove = nest_remove };
	struct fake_device *fake = fake_plug();

	story_clear();
	assert_int_equal(ib_register_client(&nest), 0);
	assert_string_equal(story.text, "N+fake0 A+fake0 ");
	story_clear();
	ib_unregister_client(&nest);
	assert_string_equal(story.text, "A-fake0 N-fake0 ");
	fake_unplug(fake);
}

static struct ib_client client_leaver;

static void leaver_remove(struct ib_device *device)
{
	ib_unregister_client(&client_leaver);
	story_tell('L', '-', device);
}

static struct ib_client client_leaver = { .name = "leaver", .remove = leaver_remove };

static void ib_unregister_client__from_its_remove(void **state)
{
	struct fake_device *one, *two;

	assert_int_equal(ib_register_client(&client_leaver), 0);
	one = fake_plug();
	two = fake_plug();
	story_clear();
	fake_unplug(one);
	assert_string_equal(story.text, "L-fake1 L-fake0 ");
	fake_unplug(two);
	assert_string_equal(story.text, "L-fake1 L-fake0 ");
}

/* ---- unregistering waits --------------------------------------------------------------------- */

static int unplugged;

static void *unplug_thread(void *arg)
{
	ib_unregister_device(arg);
	fake_bump(&unplugged);
	return NULL;
}

static void ib_unregister_device__waits_for_holders(void **state)
{
	struct fake_device *fake = fake_plug();
	struct ib_device **list, **later;
	pthread_t thread;

	unplugged = 0;
	assert_int_equal(ib_uverbs_get_devices(&list), 1);
	assert_ptr_equal(list[0], &fake->ib);
	assert_null(list[1]);
	pthread_create(&thread, NULL, unplug_thread, &fake->ib);
	while (registry_is_alive(fake->ib.core))
		sched_yield();
	/* Leaving: nobody new gets it, its holder may still use it. */
	assert_int_equal(ib_uverbs_get_devices(&later), 0);
	ib_uverbs_put_devices(later);
	struct ib_pd *pd = ib_alloc_pd(list[0]);

	assert_false(IS_ERR(pd));
	assert_int_equal(ib_dealloc_pd(pd), 0);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	assert_int_equal(fake_count(&unplugged), 0);
	ib_uverbs_put_devices(list);
	pthread_join(thread, NULL);
	assert_int_equal(unplugged, 1);
	fake_destroy(fake);
}

static int slow_inside, slow_go;

static void slow_add(struct ib_device *device)
{
	fake_bump(&slow_inside);
	assert_true(fake_await(&slow_go, 1));
	story_tell('S', '+', device);
}

static void slow_remove(struct ib_device *device)
{
	story_tell('S', '-', device);
}

static struct ib_client client_slow = { .name = "slow", .add = slow_add, .remove = slow_remove };

static void *register_slow_thread(void *arg)
{
	assert_int_equal(ib_register_client(&client_slow), 0);
	return NULL;
}

/* The device leaves while a client's add is still busy with it: remove comes after. */
static void ib_unregister_device__waits_for_add(void **state)
{
	struct fake_device *fake = fake_plug();
	struct ib_device **list;
	pthread_t adder, leaver;

	unplugged = slow_inside = slow_go = 0;
	story_clear();
	pthread_create(&adder, NULL, register_slow_thread, NULL);
	assert_true(fake_await(&slow_inside, 1));
	pthread_create(&leaver, NULL, unplug_thread, &fake->ib);
	while (registry_is_alive(fake->ib.core))
		sched_yield();
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	assert_int_equal(fake_count(&unplugged), 0);
	assert_int_equal(ib_uverbs_get_devices(&list), 0); /* known still, but not to newcomers */
	ib_uverbs_put_devices(list);
	fake_bump(&slow_go);
	pthread_join(adder, NULL);
	pthread_join(leaver, NULL);
	assert_string_equal(story.text, "S+fake0 S-fake0 ");
	ib_unregister_client(&client_slow);
	fake_destroy(fake);
}

/* ---- services -------------------------------------------------------------------------------- */

static void service_add(struct ib_device *device)
{
	story_tell('V', '+', device);
}

static void service_remove(struct ib_device *device)
{
	story_tell('V', '-', device);
}

static struct core_service service = {
	.client = { .name = "service", .add = service_add, .remove = service_remove }
};

static void user_add(struct ib_device *device)
{
	assert_int_equal(core_service_begin(&service), 0);
	story_tell('U', '+', device);
}

static void user_remove(struct ib_device *device)
{
	story_tell('U', '-', device);
}

static struct ib_client client_user = { .name = "user", .add = user_add, .remove = user_remove };

/* Begun by a client that is there already, it is the first on each device all the same. */
static void core_service_begin__comes_before_other_clients(void **state)
{
	struct fake_device *one = fake_plug(), *two;

	story_clear();
	assert_int_equal(ib_register_client(&client_a), 0);
	assert_int_equal(ib_register_client(&client_user), 0);
	assert_string_equal(story.text, "A+fake0 V+fake0 U+fake0 ");
	story_clear();
	two = fake_plug();
	assert_string_equal(story.text, "V+fake1 A+fake1 U+fake1 ");
	story_clear();
	fake_unplug(one);
	fake_unplug(two);
	assert_string_equal(story.text, "U-fake0 A-fake0 V-fake0 U-fake1 A-fake1 V-fake1 ");
	ib_unregister_client(&client_user);
	ib_unregister_client(&client_a);
	core_service_end(&service);
}

static int meet_inside;

/* Two threads are inside their device's turn when both begin the service. */
static void meet_add(struct ib_device *device)
{
	fake_bump(&meet_inside);
	assert_true(fake_await(&meet_inside, 2));
	user_add(device);
}

static struct ib_client client_meet = { .name = "meet", .add = meet_add, .remove = user_remove };

static void *plug_thread(void *arg)
{
	return fake_plug();
}

static void core_service_begin__inside_the_adds_of_two_devices(void **state)
{
	pthread_t threads[2];
	void *fakes[2];

	meet_inside = 0;
	story_clear();
	assert_int_equal(ib_register_client(&client_meet), 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, plug_thread, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &fakes[i]);
	for (int i = 0; i < 2; i++) {
		struct ib_device *device = &((struct fake_device *)fakes[i])->ib;
		char service_told[80], user_told[80];

		snprintf(service_told, sizeof(service_told), "V+%s ", device->name);
		snprintf(user_told, sizeof(user_told), "U+%s ", device->name);
		assert_non_null(strstr(story.text, service_told));
		assert_true(strstr(story.text, service_told) < strstr(story.text, user_told));
		fake_unplug(fakes[i]);
	}
	ib_unregister_client(&client_meet);
	core_service_end(&service);
}

static void *begin_thread(void *arg)
{
	assert_int_equal(core_service_begin(&service), 0);
	return NULL;
}

/* A thread outside has every device when it returns, also one whose turn another thread has. */
static void core_service_begin__waits_outside(void **state)
{
	struct fake_device *fake = fake_plug();
	pthread_t adder, beginner;

	slow_inside = slow_go = 0;
	story_clear();
	pthread_create(&adder, NULL, register_slow_thread, NULL);
	assert_true(fake_await(&slow_inside, 1));
	pthread_create(&beginner, NULL, begin_thread, NULL);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	assert_false(core_service_is_settled(&service));
	fake_bump(&slow_go);
	pthread_join(beginner, NULL);
	assert_string_equal(story.text, "S+fake0 V+fake0 ");
	pthread_join(adder, NULL);
	ib_unregister_client(&client_slow);
	core_service_end(&service);
	fake_unplug(fake);
}

static void lingering_remove(struct ib_device *device)
{
	fake_bump(&slow_inside);
	assert_true(fake_await(&slow_go, 1));
}

static struct ib_client client_lingering = { .name = "lingering", .remove = lingering_remove };

static void *unregister_lingering_thread(void *arg)
{
	ib_unregister_client(&client_lingering);
	return NULL;
}

static bool late_begins;

static void late_add(struct ib_device *device)
{
	if (late_begins)
		user_add(device);
}

static struct ib_client client_late = { .name = "late", .add = late_add };

/* The thread that has the other device's turn adds it to the service when it leaves. */
static void core_service_begin__inside_while_a_client_is_removed(void **state)
{
	struct fake_device *one = fake_plug(), *two;
	pthread_t leaver;

	slow_inside = slow_go = late_begins = 0;
	assert_int_equal(ib_register_client(&client_late), 0);
	assert_int_equal(ib_register_client(&client_lingering), 0);
	pthread_create(&leaver, NULL, unregister_lingering_thread, NULL);
	assert_true(fake_await(&slow_inside, 1));
	late_begins = true;
	story_clear();
	two = fake_plug();
	assert_string_equal(story.text, "V+fake1 U+fake1 ");
	fake_bump(&slow_go);
	pthread_join(leaver, NULL);
	assert_string_equal(story.text, "V+fake1 U+fake1 V+fake0 ");
	fake_unplug(two);
	fake_unplug(one);
	ib_unregister_client(&client_late);
	core_service_end(&service);
}

/* ---- everything at once ---------------------------------------------------------------------- */

enum { STORM_ROUNDS = 200 };
static int storm_wrong;

static void *storm_devices(void *arg)
{
	for (int i = 0; i < STORM_ROUNDS; i++)
		fake_unplug(fake_plug());
	return NULL;
}

static void *storm_clients(void *arg)
{
	for (int i = 0; i < STORM_ROUNDS; i++) {
		if (ib_register_client(arg))
			fake_bump(&storm_wrong);
		ib_unregister_client(arg);
	}
	return NULL;
}

/* Each add must have exactly one remove, and they never overlap: the flag is plain, so that TSan
 * sees an overlap too. */
static int storm_there[3];

static void storm_add(struct ib_device *device, struct ib_client *client, int *balance)
{
	struct ib_pd *pd = ib_alloc_pd(device);

	ib_set_client_data(device, client, pd);
	__atomic_add_fetch(balance, 1, __ATOMIC_RELAXED);
}

static void storm_remove(struct ib_device *device, struct ib_client *client, int *balance)
{
	struct ib_pd *pd = ib_get_client_data(device, client);

	if (!pd || ib_dealloc_pd(pd))
		fake_bump(&storm_wrong);
	__atomic_sub_fetch(balance, 1, __ATOMIC_RELAXED);
}

static struct ib_client storm_one, storm_two;

static void storm_one_add(struct ib_device *device)
{
	storm_add(device, &storm_one, &storm_there[0]);
}

static void storm_one_remove(struct ib_device *device)
{
	storm_remove(device, &storm_one, &storm_there[0]);
}

static void storm_two_add(struct ib_device *device)
{
	storm_add(device, &storm_two, &storm_there[1]);
}

static void storm_two_remove(struct ib_device *device)
{
	storm_remove(device, &storm_two, &storm_there[1]);
}

static struct core_service storm_service;

static void storm_service_add(struct ib_device *device)
{
	storm_add(device, &storm_service.client, &storm_there[2]);
}

static void storm_service_remove(struct ib_device *device)
{
	storm_remove(device, &storm_service.client, &storm_there[2]);
}

static struct core_service storm_service = { .client = { .add = storm_service_add,
							 .remove = storm_service_remove } };
static struct ib_client storm_one = { .add = storm_one_add, .remove = storm_one_remove };
static struct ib_client storm_two = { .add = storm_two_add, .remove = storm_two_remove };

static void *storm_services(void *arg)
{
	for (int i = 0; i < STORM_ROUNDS; i++) {
		if (core_service_begin(arg))
			fake_bump(&storm_wrong);
		core_service_end(arg);
	}
	return NULL;
}

static void hotplug__storm(void **state)
{
	pthread_t threads[5];

	storm_wrong = 0;
	pthread_create(&threads[0], NULL, storm_devices, NULL);
	pthread_create(&threads[1], NULL, storm_devices, NULL);
	pthread_create(&threads[2], NULL, storm_clients, &storm_one);
	pthread_create(&threads[3], NULL, storm_clients, &storm_two);
	pthread_create(&threads[4], NULL, storm_services, &storm_service);
	for (u32 i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(storm_wrong, 0);
	assert_int_equal(storm_there[0], 0);
	assert_int_equal(storm_there[1], 0);
	assert_int_equal(storm_there[2], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_register_client__devices_first),
		cmocka_unit_test(ib_register_device__clients_first),
		cmocka_unit_test(ib_register_client__twice),
		cmocka_unit_test(ib_set_client_data__unknown_client),
		cmocka_unit_test(ib_client__without_callbacks),
		cmocka_unit_test(ib_register_client__from_add),
		cmocka_unit_test(ib_unregister_client__from_its_remove),
		cmocka_unit_test(ib_unregister_device__waits_for_holders),
		cmocka_unit_test(ib_unregister_device__waits_for_add),
		cmocka_unit_test(core_service_begin__comes_before_other_clients),
		cmocka_unit_test(core_service_begin__inside_the_adds_of_two_devices),
		cmocka_unit_test(core_service_begin__waits_outside),
		cmocka_unit_test(core_service_begin__inside_while_a_client_is_removed),
		cmocka_unit_test(hotplug__storm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
