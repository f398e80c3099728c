/* main.c: the program around modules that bring none: anyverbs/module.h says how it is used.
 * In:    arguments, lines, signals   Out: calls of the modules, what is read of their files
 * Runs:  the main thread, and one that waits for signals        Locks: none
 */
#include <anyverbs/module.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 4096 };

static struct task_struct *main_task;
static int main_stop[2]; /* a pipe: readable once a signal has come */

/* The second signal ends the program, whatever a module does. */
static void *main_wait_for_signals(void *set)
{
	int signal;

	sigwait(set, &signal);
	if (write(main_stop[1], "", 1) < 0)
		_exit(1);
	anyverbs_interrupt(main_task);
	sigwait(set, &signal);
	_exit(128 + signal);
}

/* Before there are threads, which so do not get the signals. 0: well. */
static int main_take_signals(void)
{
	static sigset_t set;
	pthread_t thread;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	main_task = anyverbs_current();
	if (pipe(main_stop) != 0 || pthread_create(&thread, NULL, main_wait_for_signals, &set) != 0)
		return 1;
	pthread_detach(thread);
	return 0;
}

static int main_fail(const char *what, long err)
{
	fprintf(stderr, "%s: %s\n", what, strerror((int)-err));
	return 1;
}

static int main_set_param(char *argument)
{
	char *value = strchr(argument, '=');
	int err;

	if (!value)
		return main_fail(argument, -EINVAL);
	*value++ = '\0';
	err = anyverbs_module_param(argument, value);
	return err ? main_fail(argument, err) : 0;
}

/* "NAME TEXT", where `line[size]` may be overwritten, or "NAME". */
static int main_do_line(char *line, size_t size)
{
	char *space = memchr(line, ' ', size), *text;
	ssize_t n;

	line[size] = space ? '\n' : '\0';
	if (space) {
		*space = '\0';
		n = anyverbs_proc_write(line, space + 1, (size_t)(line + size - space));
		return n < 0 ? main_fail(line, n) : 0;
	}
	if (size == 0)
		return 0;
	n = anyverbs_proc_read(line, &text);
	if (n < 0)
		return main_fail(line, n);
	fwrite(text, 1, (size_t)n, stdout);
	fflush(stdout);
	free(text);
	return 0;
}

/* More bytes; 0: the input has ended, or a signal has come. */
static size_t main_read(char *buffer, size_t room)
{
	struct pollfd from[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
				  { .fd = main_stop[0], .events = POLLIN } };
	ssize_t n;

	while (poll(from, 2, -1) < 0)
		;
	if (from[1].revents)
		return 0;
	n = read(STDIN_FILENO, buffer, room);
	return n > 0 ? (size_t)n : 0;
}

/* A line that does not fit is an error, and the last one. */
static int main_do_lines(void)
{
	char buffer[LINE + 1], *end;
	size_t have = 0, got, size;
	int failed = 0;

	while ((got = main_read(buffer + have, LINE - have)) > 0) {
		have += got;
		while ((end = memchr(buffer, '\n', have)) != NULL) {
			size = (size_t)(end - buffer);
			failed |= main_do_line(buffer, size);
			have -= size + 1;
			memmove(buffer, end + 1, have);
		}
		if (have == LINE)
			return main_fail("a line", -EMSGSIZE);
	}
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0, err;

	if (main_take_signals() != 0)
		return 1;
	for (int i = 1; i < argc; i++)
		failed |= main_set_param(argv[i]);
	if (failed)
		return failed;
	err = anyverbs_modules_init();
	if (err)
		return main_fail("module_init", err);
	failed = main_do_lines();
	anyverbs_uninterrupt(); /* what ends a module may wait */
	anyverbs_modules_exit();
	return failed;
}
