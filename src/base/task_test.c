/* task_test.c: processes that live, end and are gone. */
#include "base/task.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

static void task_is_exiting__of_a_child(void **state)
{
	siginfo_t info;
	pid_t child = fork();

	(void)state;
	if (child == 0) {
		pause();
		_exit(0);
	}
	assert_true(child > 0);
	assert_false(task_is_exiting(child));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_true(task_is_exiting(child));
	assert_int_equal(task_state(child), 'Z');
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_false(task_is_exiting(child));
	assert_int_equal(task_state(child), 0);
}

static void task_is_exiting__of_nobody(void **state)
{
	(void)state;
	assert_false(task_is_exiting(0));
	assert_false(task_is_exiting(getpid()));
	assert_int_equal(task_state(getpid()), 'R');
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(task_is_exiting__of_a_child),
		cmocka_unit_test(task_is_exiting__of_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
