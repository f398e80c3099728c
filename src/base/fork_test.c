/* fork_test.c: parts by rank, and both kinds of locks. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fork.h"

enum { FORKS = 200, CHILD_SECONDS = 60, SKIPPED = 77 };

static char test_order[32];

static void test_note(char what)
{
	size_t n = strlen(test_order);

	if (n + 1 < sizeof(test_order))
		test_order[n] = what;
}

#define TEST_NOTE(name, what)                                                                      \
	static void name(void)                                                                     \
	{                                                                                          \
		test_note(what);                                                                   \
	}
TEST_NOTE(last_before, 'l')
TEST_NOTE(last_after, 'L')
TEST_NOTE(last_child, '3')
TEST_NOTE(first_before, 'f')
TEST_NOTE(first_after, 'F')
TEST_NOTE(first_child, '1')
TEST_NOTE(middle_before, 'm')
TEST_NOTE(middle_after, 'M')
TEST_NOTE(middle_child, '2')

FORK_HOOK(FORK_MEMORY, .before = last_before, .after = last_after, .child = last_child);
FORK_HOOK(FORK_SHIM_SOCKS, .before = first_before, .after = first_after, .child = first_child);
FORK_HOOK(FORK_SEAT, .before = middle_before, .after = middle_after, .child = middle_child);

/* Runs `child` in a child; how that ended. */
static int test_child(int (*child)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(CHILD_SECONDS);
		_exit(child());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int order_in_child(void)
{
	return strcmp(test_order, "fml321") != 0;
}

static void fork__runs_parts_by_rank(void **state)
{
	memset(test_order, 0, sizeof(test_order));
	assert_int_equal(test_child(order_in_child), 0);
	assert_string_equal(test_order, "fmlLMF");
	assert_true(fork_is_watched());
}

static struct lock taken_lock, anew_lock;
static volatile int taken_first, taken_second, anew_made;
static bool test_stop; /* atomic */

static void anew_child(void)
{
	anew_made = 1;
}
FORK_TAKES(FORK_CLIENTS, &taken_lock);
FORK_MAKES_ANEW(FORK_STEER, &anew_lock, .child = anew_child);

static void *taken_run(void *arg) NO_THREAD_SAFETY
{
	while (!__atomic_load_n(&test_stop, __ATOMIC_RELAXED)) {
		lock_acquire(&taken_lock);
		taken_first++;
		for (int i = 0; i < 100; i++)
			cpu_relax();
		taken_second++;
		lock_release(&taken_lock);
	}
	return NULL;
}

static int taken_in_child(void) NO_THREAD_SAFETY
{
	int wrong;

	lock_acquire(&taken_lock);
	wrong = taken_first != taken_second;
	lock_release(&taken_lock);
	return wrong;
}

static void fork_takes__child_finds_the_state_whole(void **state)
{
	pthread_t thread;

	test_stop = false;
	assert_int_equal(pthread_create(&thread, NULL, taken_run, NULL), 0);
	for (int i = 0; i < FORKS; i++)
		assert_int_equal(test_child(taken_in_child), 0);
	__atomic_store_n(&test_stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}

static int anew_in_child(void) NO_THREAD_SAFETY
{
	lock_acquire(&anew_lock);
	return !anew_made;
}

static void fork_makes_anew__fork_does_not_wait(void **state) NO_THREAD_SAFETY
{
	lock_acquire(&anew_lock);
	assert_int_equal(test_child(anew_in_child), 0);
	assert_false(lock_try(&anew_lock));
	assert_int_equal(anew_made, 0);
	lock_release(&anew_lock);
}

static struct fork_mark mark;

static int mark_is_here(void)
{
	return fork_is_marked_here(&mark);
}

static int mark_of_grandchild(void)
{
	if (getpid() != 1 || unshare(CLONE_NEWPID) != 0)
		return SKIPPED;
	mark = fork_mark_here();
	return mark_is_here() ? WEXITSTATUS(test_child(mark_is_here)) : 2;
}

static int mark_in_namespace(void)
{
	if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
		return SKIPPED;
	return WEXITSTATUS(test_child(mark_of_grandchild));
}

static void fork_mark__is_not_the_childs(void **state)
{
	mark = fork_mark_here();
	assert_true(mark_is_here());
	assert_int_equal(test_child(mark_is_here), 0);
}

/* Parent and child are process 1 of their namespaces. */
static void fork_mark__is_not_the_childs_of_the_same_number(void **state)
{
	int status = test_child(mark_in_namespace);

	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
		print_message("SKIPPED: no namespace of processes to be had\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fork__runs_parts_by_rank),
		cmocka_unit_test(fork_takes__child_finds_the_state_whole),
		cmocka_unit_test(fork_makes_anew__fork_does_not_wait),
		cmocka_unit_test(fork_mark__is_not_the_childs),
		cmocka_unit_test(fork_mark__is_not_the_childs_of_the_same_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
