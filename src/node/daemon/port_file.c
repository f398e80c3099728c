/* port_file.c: one line, "auto 3 first" or "down 4 later": what was asked for, how often the port
 * went down, and whether the node is the first of its network namespace.
 * In:    the port's state              Out: FOLDER/port, replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "node/daemon/port_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PORT_FILE_TEXT = 32 };

static const char *const port_wills[] = {
	[PORT_AUTO] = "auto", [PORT_DOWN] = "down", [PORT_UP] = "up"
};

int port_file_write(const struct folder *f, const struct port_file *p)
{
	char text[PORT_FILE_TEXT];

	if (f->fd < 0)
		return 0;
	snprintf(text, sizeof(text), "%s %u %s\n", port_wills[p->will], p->downs,
		 p->first ? "first" : "later");
	return folder_put(f, "port", text);
}

void port_file_read(const struct folder *f, struct port_file *p)
{
	char text[PORT_FILE_TEXT], word[8], rank[8];
	unsigned count;
	ssize_t n;
	int fd;

	if (f->fd < 0)
		return;
	fd = openat(f->fd, "port", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n < 0)
		return;
	text[n] = '\0';
	if (sscanf(text, "%7s %5u %7s", word, &count, rank) != 3 || count > UINT16_MAX)
		return;
	for (size_t i = 0; i < ARRAY_LEN(port_wills); i++) {
		if (strcmp(word, port_wills[i]) != 0)
			continue;
		*p = (struct port_file){ .will = (enum port_will)i,
					 .downs = (u16)count,
					 .first = strcmp(rank, "first") == 0 };
	}
}
