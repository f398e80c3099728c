/* wake_test.c: a message that is sent at any step of the engine's thread on its way to sleep is
 * received, although nobody polls.
 *
 * The thread is stopped before each lock that it takes, one after the other (a build with
 * AV_LOCK_WATCH tells), and meanwhile the message goes. What is seen is memory, for every verb
 * would look for messages by itself.
 */
#include "../contract/rig.h"

#include <sys/prctl.h>

#include "base/lock.h"

enum {
	STEPS = 32,        /* more than there are: 12, and some for another wake */
	QUIET_MS = 10,     /* without a step: it sleeps */
	PATIENCE_MS = 20,  /* for a step, and for a sender who may want what the thread holds */
	STOPPED_MS = 2000, /* at most, whatever happens */
	LENGTH = 8,
	/* of the buffer: where messages come; they are sent from its beginning */
	LANDING_AT = 4096,
};

static struct link l, other;
static int step, wanted_step; /* of the engine's thread; 0: none is wanted */
static __thread int is_engine; /* 1: yes, -1: no */
static int stopped, goes, sent;

static bool thread_is_engine(void)
{
	char name[16];

	if (is_engine == 0)
		is_engine = prctl(PR_GET_NAME, name) == 0 && strcmp(name, "anyverbs/engine") == 0
				    ? 1
				    : -1;
	return is_engine > 0;
}

static void stop_at_step(const struct lock *lock, enum lock_step what)
{
	if (what != LOCK_WANTED || !thread_is_engine() ||
	    count_add(&step) != __atomic_load_n(&wanted_step, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&stopped, 1, __ATOMIC_RELEASE); /* pairs with await_or_not */
	for (int ms = 0; ms < STOPPED_MS && !count_get(&goes); ms++)
		rig_sleep_ms(1);
}

/* Waits until *c is set, or for so long. */
static bool await_or_not(const int *c)
{
	for (int ms = 0; ms < PATIENCE_MS && !count_get(c); ms++)
		rig_sleep_ms(1);
	return count_get(c) != 0;
}

/* The thread has taken no lock for a while. */
static void await_sleep(void)
{
	int before;

	do {
		before = count_get(&step);
		rig_sleep_ms(QUIET_MS);
	} while (count_get(&step) != before);
}

static bool landed(int which)
{
	for (int ms = 0; ms < RIG_WAIT_MS; ms++) {
		if (__atomic_load_n(&rig.buf[LANDING_AT + which * LENGTH], __ATOMIC_ACQUIRE) != 0)
			return true;
		rig_sleep_ms(1);
	}
	return false;
}

static void *send_other(void *arg)
{
	rig_send_bytes(other.a, 2, 0, LENGTH, 0);
	__atomic_store_n(&sent, 1, __ATOMIC_RELEASE); /* pairs with await_or_not */
	return NULL;
}

/* One message wakes the thread, which stops at its step; the other message goes; the thread goes
 * on. False: it had not so many steps, or was not so fast: then the message came when it slept. */
static bool try_step(int at)
{
	pthread_t sender;
	bool had;

	memset(rig.buf + LANDING_AT, 0, 2 * LENGTH);
	rig_recv(l.b, 1, LANDING_AT, LENGTH);
	rig_recv(other.b, 2, LANDING_AT + LENGTH, LENGTH);
	await_sleep();
	stopped = goes = sent = 0;
	__atomic_store_n(&wanted_step, count_get(&step) + at, __ATOMIC_RELEASE);
	rig_send_bytes(l.a, 1, 0, LENGTH, 0);
	had = await_or_not(&stopped);
	assert_int_equal(pthread_create(&sender, NULL, send_other, NULL), 0);
	await_or_not(&sent);
	__atomic_store_n(&goes, 1, __ATOMIC_RELEASE); /* pairs with stop_at_step */
	pthread_join(sender, NULL);
	if (!landed(0) || !landed(1))
		fail_msg("a message at step %d of the engine's thread is not received", at);
	__atomic_store_n(&wanted_step, 0, __ATOMIC_RELEASE);
	rig_drain(l.rcq, 1);
	rig_drain(l.scq, 1);
	rig_drain(other.rcq, 1);
	rig_drain(other.scq, 1);
	return had;
}

static void engine__receives_what_comes_at_any_step(void **state)
{
	int steps = 0;

	memset(rig.buf, 0x11, LENGTH);
	link_open(&l, IB_QPT_RC, NULL);
	link_open(&other, IB_QPT_RC, NULL);
	lock_watch = stop_at_step;
	for (int at = 1; at <= STEPS; at++)
		steps += try_step(at);
	lock_watch = NULL;
	link_close(&other);
	link_close(&l);
	print_message("%d steps\n", steps);
	assert_in_range(steps, 1, STEPS - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(engine__receives_what_comes_at_any_step, rig_setup),
	};

	return rig_run_tests(tests);
}
