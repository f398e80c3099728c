/* process_test.h: what tests ask of processes: what became of a child, and what their own one has
 * open.
 */
#ifndef BASE_PROCESS_TEST_H
#define BASE_PROCESS_TEST_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Waits for its end: its exit status, or 1000 and the signal that ended it. */
static inline int child_verdict(pid_t child)
{
	int status;

	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* What fn answers in a child, as above. */
static inline int in_child(int (*fn)(void))
{
	pid_t child = fork();

	if (child == 0)
		_exit(fn());
	return child_verdict(child);
}

/* How many descriptors are open, and a constant more. */
static inline int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		count++;
	closedir(d);
	return count;
}

#endif
