/* process_test.h: what tests ask of processes: what became of a child, what their own one has open
 * and what it says.
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

/* Reads what `fn` writes to standard error. */
static inline void hear(void (*fn)(void *arg), void *arg, char *text, size_t size)
{
	int ends[2], before = dup(STDERR_FILENO);
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	fn(arg);
	dup2(before, STDERR_FILENO);
	close(before);
	close(ends[1]);
	n = read(ends[0], text, size - 1);
	text[n > 0 ? n : 0] = '\0';
	close(ends[0]);
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
