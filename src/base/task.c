/* task.c: the state of another process.
 * In: /proc    Out: a letter    Runs: any thread    Locks: none
 */
#include "base/task.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

char task_state(pid_t pid)
{
	char text[128], path[32];
	const char *end;
	ssize_t n;
	int fd;

	if (pid <= 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[MAX(n, (ssize_t)0)] = '\0';
	end = strrchr(text, ')'); /* of its name, which may have anything in it */
	return end != NULL && end[1] == ' ' ? end[2] : 0;
}
