/* task_test.c: processes that live, end and are gone. */
#include "base/task.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* A child that waits until it is killed. */
static pid_t child_begin(bool dumpable)
{
	char done;
	pid_t child;
	int ready[2];

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		(void)prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0);
		(void)!write(ready[1], &done, 1);
		for (;;)
			pause();
	}
	assert_true(child > 0);
	assert_int_equal(read(ready[0], &done, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

static void child_end(pid_t child)
{
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void task_of__a_process_until_it_has_ended(void **state)
{
	pid_t child = child_begin(true);
	int fd = (int)syscall(SYS_pidfd_open, child, 0);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(task_of(fd), child);
	child_end(child);
	assert_int_equal(task_of(fd), 0);
	close(fd);
	assert_int_equal(task_of(fd), 0);
	assert_int_equal(task_of(-1), 0);
}

static void task_of__not_of_another_descriptor(void **state)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(task_of(fd), 0);
	close(fd);
}

/* The capability to trace anything is above it. */
static void task_shows_files__not_if_not_dumpable(void **state)
{
	pid_t open = child_begin(true), closed = child_begin(false);

	(void)state;
	assert_true(task_shows_files(getpid()));
	assert_true(task_shows_files(open));
	if (prctl(PR_CAPBSET_READ, CAP_SYS_PTRACE, 0, 0, 0) != 1 || geteuid() != 0)
		assert_false(task_shows_files(closed));
	child_end(open);
	child_end(closed);
	assert_false(task_shows_files(open));
	assert_false(task_shows_files(0));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(task_is_exiting__of_a_child),
		cmocka_unit_test(task_is_exiting__of_nobody),
		cmocka_unit_test(task_of__a_process_until_it_has_ended),
		cmocka_unit_test(task_of__not_of_another_descriptor),
		cmocka_unit_test(task_shows_files__not_if_not_dumpable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
