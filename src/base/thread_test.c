/* thread_test.c: what is told, and what begins later, where the system refuses threads. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/process_test.h"
#include "base/pthread_test.h"
#include "base/thread.h"
#include "base/work.h"

static u32 ran, wakes;
static u64 now = NS_PER_S;

static u64 test_clock(void)
{
	return now;
}

static void test_has_run(void)
{
	__atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
	futex_wake(&ran, 1);
}

static void *test_run(void *arg)
{
	test_has_run();
	return NULL;
}

static void test_wait(u32 before)
{
	while (__atomic_load_n(&ran, __ATOMIC_SEQ_CST) == before)
		futex_sleep(&ran, before);
}

static void test_wake(void)
{
	wakes++;
}

static void test_begin_three(void *arg)
{
	struct thread one = THREAD_INIT("test/vec1", THREAD_STACK, test_run, NULL),
		      two = THREAD_INIT("test/vec22", THREAD_STACK, test_run, NULL),
		      other = THREAD_INIT("test/other", THREAD_STACK, test_run, NULL);

	assert_int_equal(thread_begin(&one), -EAGAIN);
	assert_int_equal(thread_begin(&two), -EAGAIN);
	assert_int_equal(thread_begin(&other), -EAGAIN);
	assert_false(thread_is_there(&one));
}

/* One line for each kind, unasked; a call that comes later may do better. */
static void thread_begin__says_each_kind_once(void **state)
{
	struct thread t = THREAD_INIT("test/other", THREAD_STACK, test_run, NULL);
	u32 before = ran;
	char text[2048];
	const char *vec;

	pthread_refused = true;
	hear(test_begin_three, NULL, text, sizeof(text));
	vec = strstr(text, "test/vec1:");
	assert_non_null(vec);
	assert_null(strstr(text, "test/vec22"));
	assert_non_null(strstr(text, "test/other: Resource temporarily unavailable"));
	hear(test_begin_three, NULL, text, sizeof(text));
	assert_string_equal(text, "");
	pthread_refused = false;
	assert_int_equal(thread_begin(&t), 0);
	test_wait(before);
	assert_int_equal(thread_begin(&t), 0); /* it is there: no second one */
	assert_true(thread_is_there(&t));
}

static struct thread late = THREAD_INIT("test/late", THREAD_STACK, test_run, NULL);

static void test_begin_space(void *arg)
{
	struct thread t = THREAD_INIT("test/space", THREAD_STACK, test_run, NULL);

	assert_int_equal(thread_begin(&t), -EAGAIN);
}

/* Its stack may not fit. */
static void thread_begin__names_the_address_space(void **state)
{
	struct rlimit before, low;
	char text[1024];

	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	low = before;
	low.rlim_cur = MIN((rlim_t)1 << 50, before.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	pthread_refused = true;
	hear(test_begin_space, NULL, text, sizeof(text));
	pthread_refused = false;
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_non_null(strstr(text, "test/space: Resource temporarily unavailable (RLIMIT_AS "));
}

static void test_begin_late(void *arg)
{
	thread_begin_later(&late);
	thread_begin_later(&late);
}

/* What no call waits for begins as soon as it can. */
static void thread_begin_later__asks_again(void **state)
{
	u32 before = ran, woken = wakes;
	char text[1024];

	thread_on_waiting(test_wake);
	pthread_refused = true;
	hear(test_begin_late, NULL, text, sizeof(text));
	assert_non_null(strstr(text, "test/late"));
	assert_int_equal(wakes, woken + 1);
	assert_int_equal(thread_wait_ms(-1), THREAD_AGAIN_MS);
	now += NS_PER_S;
	thread_retry();
	assert_int_equal(ran, before);
	pthread_refused = false;
	now += NS_PER_S;
	thread_retry();
	test_wait(before);
	assert_int_equal(thread_wait_ms(-1), -1);
	thread_ended(&late);
	thread_begin_later(&late);
	test_wait(before + 1);
}

static struct work_queue queue;
static struct work work;

static void test_work(struct work *w)
{
	test_has_run();
}

static void test_push(void *arg)
{
	assert_int_equal(work_queue_begin(&queue), -EAGAIN);
	work_push(&work);
}

/* A work that was pushed without a thread waits for one. */
static void work_push__waits_for_a_thread(void **state)
{
	u32 before = ran;
	char text[1024];

	work_queue_init(&queue, "test/queue", false);
	work_init(&work, &queue, test_work);
	pthread_refused = true;
	hear(test_push, NULL, text, sizeof(text));
	assert_non_null(strstr(text, "test/queue"));
	assert_int_equal(ran, before);
	pthread_refused = false;
	assert_int_equal(work_queue_begin(&queue), 0);
	test_wait(before);
	assert_int_equal(thread_wait_ms(-1), -1);
}

static void *test_push_first(void *arg)
{
	__atomic_store_n(&pthread_slow, true, __ATOMIC_RELAXED);
	work_push(arg);
	return NULL;
}

/* Its thread has begun, and sleeps again, before who began it has returned. */
static void work_push__wakes_a_thread_that_another_one_begins(void **state)
{
	static struct work_queue begun; /* its thread stays */
	static struct work first, second;
	u32 before = ran;
	pthread_t pusher;

	work_queue_init(&begun, "test/begun", false);
	work_init(&first, &begun, test_work);
	work_init(&second, &begun, test_work);
	assert_int_equal(pthread_create(&pusher, NULL, test_push_first, &first), 0);
	test_wait(before);
	usleep(10000); /* it goes to sleep */
	work_push(&second);
	for (int i = 0; i < 10000 && __atomic_load_n(&ran, __ATOMIC_SEQ_CST) == before + 1; i++)
		usleep(1000);
	assert_int_equal(__atomic_load_n(&ran, __ATOMIC_SEQ_CST), before + 2);
	pthread_join(pusher, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread_begin__says_each_kind_once),
		cmocka_unit_test(thread_begin__names_the_address_space),
		cmocka_unit_test(thread_begin_later__asks_again),
		cmocka_unit_test(work_push__waits_for_a_thread),
		cmocka_unit_test(work_push__wakes_a_thread_that_another_one_begins),
	};

	clock_set_source(test_clock);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
