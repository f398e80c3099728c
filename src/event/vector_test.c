/* vector_test.c: handlers run on the vector's thread, one at a time, merged, and never after a
 * flush. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process_test.h"
#include "base/pthread_test.h"
#include "event/event.h"

enum { MANY = 20000, WAIT_TURNS = 20000, WAIT_US = 500 };

struct test_item {
	struct vector_item item;
	u32 ran;
	u32 inside;   /* threads in the handler now */
	u32 overlaps; /* times that it was more than one */
	u32 hold;     /* the handler stays while 1; it says with 2 that it stays */
	u32 again;    /* how often the handler queues its own item */
	u32 wrong;    /* it was not on a vector's thread, or inside a driver call */
	u32 unmasked; /* signals that the thread would take */
	char name[16];
};

static u32 test_load(u32 *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void test_add(u32 *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_ACQ_REL);
}

static bool test_wait_for(u32 *word, u32 value)
{
	for (int i = 0; i < WAIT_TURNS && test_load(word) != value; i++)
		usleep(WAIT_US);
	return test_load(word) == value;
}

static void test_note_thread(struct test_item *x)
{
	sigset_t set;

	pthread_getname_np(pthread_self(), x->name, sizeof(x->name));
	pthread_sigmask(SIG_BLOCK, NULL, &set);
	x->unmasked = !sigismember(&set, SIGINT) + !sigismember(&set, SIGCHLD) +
		      !sigismember(&set, SIGUSR1);
	x->wrong += !vector_in_handler() || event_driver_depth != 0;
}

static void test_handler(struct vector_item *item)
{
	struct test_item *x = container_of(item, struct test_item, item);

	if (__atomic_fetch_add(&x->inside, 1, __ATOMIC_ACQ_REL) != 0)
		test_add(&x->overlaps);
	test_note_thread(x);
	if (test_load(&x->hold)) {
		__atomic_store_n(&x->hold, 2, __ATOMIC_RELEASE);
		while (test_load(&x->hold))
			usleep(WAIT_US);
	}
	if (x->again > 0) {
		x->again--;
		vector_item_queue(item);
	}
	__atomic_fetch_sub(&x->inside, 1, __ATOMIC_ACQ_REL);
	test_add(&x->ran);
}

static void test_item_init(struct test_item *x, struct vector *v)
{
	memset(x, 0, sizeof(*x));
	vector_item_init(&x->item, v, test_handler);
}

static void vector_get__takes_the_index_modulo_the_count(void **state)
{
	u32 count = vector_count();

	assert_true(count >= 1);
	assert_int_equal(count, vector_count());
	assert_ptr_equal(vector_get(0), vector_get(count));
	if (count > 1)
		assert_ptr_not_equal(vector_get(0), vector_get(1));
}

/* Those of vectors: a sanitizer has threads of its own. */
static int test_count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	char path[sizeof("/proc/self/task//comm") + NAME_MAX], name[16];
	struct dirent *entry;
	int count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		f = fopen(path, "re");
		if (f == NULL)
			continue; /* ".", "..", or it has ended */
		count += fgets(name, sizeof(name), f) != NULL &&
			 strncmp(name, "anyverbs/vec", 12) == 0;
		fclose(f);
	}
	closedir(dir);
	return count;
}

/* The first test of all, for no vector has been used yet. */
static void vector_item_queue__starts_the_thread_at_first_use(void **state)
{
	int before = test_count_threads();
	struct test_item x;

	test_item_init(&x, vector_get(0));
	vector_item_flush(&x.item);
	assert_int_equal(test_count_threads(), before);
	for (u32 i = 1; i <= 2; i++) {
		vector_item_queue(&x.item);
		assert_true(test_wait_for(&x.ran, i));
		assert_int_equal(test_count_threads(), before + 1);
	}
	vector_item_flush(&x.item);
}

static void *test_queue_first(void *arg)
{
	__atomic_store_n(&pthread_slow, true, __ATOMIC_RELAXED);
	vector_item_queue(arg);
	return NULL;
}

/* The vector's thread has begun, and sleeps again, before who began it has returned. */
static void vector_item_queue__wakes_a_thread_that_another_one_begins(void **state)
{
	struct vector *v = vector_get(1);
	struct test_item first, second;
	pthread_t thread;

	if (v == vector_get(0))
		skip();
	test_item_init(&first, v);
	test_item_init(&second, v);
	assert_int_equal(pthread_create(&thread, NULL, test_queue_first, &first.item), 0);
	assert_true(test_wait_for(&first.ran, 1));
	usleep(10000); /* it goes to sleep */
	vector_item_queue(&second.item);
	assert_true(test_wait_for(&second.ran, 1));
	pthread_join(thread, NULL);
	vector_item_flush(&second.item);
}

static void vector_item_queue__runs_on_a_quiet_thread_of_its_own(void **state)
{
	struct test_item x;

	test_item_init(&x, vector_get(0));
	assert_false(vector_in_handler());
	event_driver_depth++; /* as inside a verb */
	vector_item_queue(&x.item);
	event_driver_depth--;
	assert_true(test_wait_for(&x.ran, 1));
	vector_item_flush(&x.item);
	assert_int_equal(x.wrong, 0);
	assert_int_equal(x.unmasked, 0);
	assert_string_equal(x.name, "anyverbs/vec0");
	assert_int_equal(test_load(&x.ran), 1);
}

static void vector_item_queue__merges_while_queued_and_not_while_running(void **state)
{
	struct test_item first, x;

	test_item_init(&first, vector_get(0));
	test_item_init(&x, vector_get(0));
	first.hold = 1;
	vector_item_queue(&first.item);
	assert_true(test_wait_for(&first.hold, 2));
	vector_item_queue(&x.item);
	vector_item_queue(&x.item);
	vector_item_queue(&x.item);
	vector_item_queue(&first.item); /* it runs: once more */
	vector_item_queue(&first.item); /* and this merges */
	__atomic_store_n(&first.hold, 0, __ATOMIC_RELEASE);
	assert_true(test_wait_for(&first.ran, 2));
	assert_true(test_wait_for(&x.ran, 1));
	usleep(20000);
	assert_int_equal(test_load(&x.ran), 1);
	assert_int_equal(test_load(&first.ran), 2);
	vector_item_flush(&first.item);
	vector_item_flush(&x.item);
}

static void vector_item_queue__from_its_own_handler_runs_again(void **state)
{
	struct test_item x;

	test_item_init(&x, vector_get(0));
	x.again = 10;
	vector_item_queue(&x.item);
	assert_true(test_wait_for(&x.ran, 11));
	vector_item_flush(&x.item);
	assert_int_equal(x.overlaps, 0);
}

static void *test_queue_thread(void *arg)
{
	struct test_item *x = arg;

	for (int i = 0; i < MANY; i++)
		vector_item_queue(&x->item);
	return NULL;
}

static void vector_item_queue__never_overlaps_nor_loses_the_last(void **state)
{
	struct test_item x;
	pthread_t thread[2];
	u32 ran;

	test_item_init(&x, vector_get(1));
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, test_queue_thread, &x);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	ran = test_load(&x.ran);
	vector_item_queue(&x.item);
	for (int i = 0; i < WAIT_TURNS && test_load(&x.ran) <= ran; i++)
		usleep(WAIT_US);
	assert_true(test_load(&x.ran) > ran);
	vector_item_flush(&x.item);
	assert_int_equal(x.overlaps, 0);
	assert_true(test_load(&x.ran) <= 2 * MANY + 1);
}

static void *test_release_thread(void *arg)
{
	u32 *hold = arg;

	usleep(20000);
	__atomic_store_n(hold, 0, __ATOMIC_RELEASE);
	return NULL;
}

static void vector_item_flush__waits_for_the_running_and_withdraws_the_queued(void **state)
{
	struct test_item running, queued;
	pthread_t thread;

	test_item_init(&running, vector_get(0));
	test_item_init(&queued, vector_get(0));
	running.hold = 1;
	vector_item_queue(&running.item);
	assert_true(test_wait_for(&running.hold, 2));
	vector_item_queue(&queued.item);
	vector_item_queue(&running.item);
	vector_item_flush(&queued.item); /* at once, though the vector is busy */
	pthread_create(&thread, NULL, test_release_thread, &running.hold);
	vector_item_flush(&running.item);
	assert_int_equal(test_load(&running.hold), 0);
	assert_int_equal(test_load(&running.ran), 1);
	usleep(20000);
	assert_int_equal(test_load(&running.ran), 1);
	assert_int_equal(test_load(&queued.ran), 0);
	pthread_join(thread, NULL);
}

static void test_flush_self(struct vector_item *item)
{
	struct test_item *x = container_of(item, struct test_item, item);

	vector_item_queue(item);
	/* would wait for itself for ever; takes back the queueing instead */
	vector_item_flush(item);
	test_add(&x->ran);
}

static void vector_item_flush__from_its_own_handler_only_unqueues(void **state)
{
	struct test_item x;

	test_item_init(&x, vector_get(0));
	x.item.fn = test_flush_self;
	vector_item_queue(&x.item);
	assert_true(test_wait_for(&x.ran, 1));
	vector_item_flush(&x.item);
	usleep(20000);
	assert_int_equal(test_load(&x.ran), 1);
}

/* In the child: the vectors work again, also for an item that the parent's thread was just
 * running. */
static int test_child(struct test_item *busy)
{
	struct test_item x;

	busy->hold = 0;
	vector_item_flush(&busy->item);
	test_item_init(&x, vector_get(0));
	vector_item_queue(&x.item);
	vector_item_queue(&busy->item);
	if (!test_wait_for(&x.ran, 1) || !test_wait_for(&busy->ran, 1))
		return 1;
	vector_item_flush(&busy->item);
	return x.wrong || busy->overlaps > 1;
}

static void fork__child_starts_afresh(void **state)
{
	struct test_item busy;
	int verdict;
	pid_t child;

#ifdef __SANITIZE_THREAD__
	skip(); /* it does not follow threads started in a child of a threaded process */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
	skip();
#endif
#endif
	test_item_init(&busy, vector_get(0));
	busy.hold = 1;
	vector_item_queue(&busy.item);
	assert_true(test_wait_for(&busy.hold, 2));
	child = fork();
	if (child == 0) {
		busy.inside = 0;
		_exit(test_child(&busy));
	}
	verdict = child_verdict(child);
	__atomic_store_n(&busy.hold, 0, __ATOMIC_RELEASE);
	vector_item_flush(&busy.item);
	assert_int_equal(test_load(&busy.ran), 1);
	assert_int_equal(verdict, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vector_item_queue__starts_the_thread_at_first_use),
		cmocka_unit_test(vector_item_queue__wakes_a_thread_that_another_one_begins),
		cmocka_unit_test(vector_get__takes_the_index_modulo_the_count),
		cmocka_unit_test(vector_item_queue__runs_on_a_quiet_thread_of_its_own),
		cmocka_unit_test(vector_item_queue__merges_while_queued_and_not_while_running),
		cmocka_unit_test(vector_item_queue__from_its_own_handler_runs_again),
		cmocka_unit_test(vector_item_queue__never_overlaps_nor_loses_the_last),
		cmocka_unit_test(vector_item_flush__waits_for_the_running_and_withdraws_the_queued),
		cmocka_unit_test(vector_item_flush__from_its_own_handler_only_unqueues),
		cmocka_unit_test(fork__child_starts_afresh),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
