/* task.c: the state of another process.
 * In: /proc    Out: a letter, a number, a verdict    Runs: any thread    Locks: none
 */
#include "base/task.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/lines.h"

enum { TASK_TEXT = 128, TASK_EXITING = 4 /* the kernel's PF_EXITING */ };

/* Reads what /proc/PID/stat says behind the name. NULL: nothing. */
static const char *task_read(pid_t pid, char text[TASK_TEXT])
{
	char path[32];
	const char *end;
	ssize_t n;
	int fd;

	if (pid <= 0)
		return NULL;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	n = read(fd, text, TASK_TEXT - 1);
	close(fd);
	text[MAX(n, (ssize_t)0)] = '\0';
	end = strrchr(text, ')'); /* of its name, which may have anything in it */
	return end != NULL && end[1] == ' ' ? end + 2 : NULL;
}

char task_state(pid_t pid)
{
	char text[TASK_TEXT];
	const char *state = task_read(pid, text);

	return state != NULL ? *state : 0;
}

bool task_is_exiting(pid_t pid)
{
	char text[TASK_TEXT];
	const char *state = task_read(pid, text);
	unsigned int flags;

	return state != NULL && sscanf(state, "%*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & TASK_EXITING) != 0;
}

/* The line of a pidfd. It says 0 for a process of another PID namespace, -1 for one that has
 * ended. */
static bool task_take_number(const char *line, void *arg)
{
	static const char name[] = "Pid:";
	pid_t *pid = arg;

	if (strncmp(line, name, sizeof(name) - 1) == 0)
		*pid = (pid_t)strtol(line + sizeof(name) - 1, NULL, 10);
	return true;
}

pid_t task_of(int pid_fd)
{
	char path[48];
	pid_t pid = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pid_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	(void)lines_each(fd, task_take_number, &pid);
	close(fd);
	return MAX(pid, (pid_t)0);
}

bool task_shows_files(pid_t pid)
{
	char path[32], target;

	if (pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return readlink(path, &target, sizeof(target)) >= 0;
}
