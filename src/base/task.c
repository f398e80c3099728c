/* task.c: the state of another process.
 * In: /proc    Out: a letter, a verdict    Runs: any thread    Locks: none
 */
#include "base/task.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

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
