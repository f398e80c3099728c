/* lines.c: a text file of the kernel's, line by line.
 *
 * In: a descriptor    Out: calls, one for each line
 * Runs: any thread    Locks: none
 */
#include "base/lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Takes whole lines off the buffer; returns how many bytes are left over, or -1. */
static ssize_t lines_take(char *buffer, size_t n, bool (*fn)(const char *line, void *arg),
			  void *arg)
{
	char *line = buffer, *end = buffer + n, *stop;

	while ((stop = memchr(line, '\n', (size_t)(end - line))) != NULL) {
		*stop = '\0';
		if (!fn(line, arg))
			return -1;
		line = stop + 1;
	}
	memmove(buffer, line, (size_t)(end - line));
	return end - line;
}

bool lines_each(int fd, bool (*fn)(const char *line, void *arg), void *arg)
{
	char buffer[LINES_LONGEST]; /* the kernel gives about a page at once */
	ssize_t left = 0, n = -1;
	off_t at = 0;

	while (left >= 0 && left < LINES_LONGEST) {
		n = pread(fd, buffer + left, sizeof(buffer) - (size_t)left, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += n;
		left = lines_take(buffer, (size_t)(left + n), fn, arg);
	}
	return n == 0 && left == 0;
}
