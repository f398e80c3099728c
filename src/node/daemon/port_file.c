/* port_file.c: one line, "up 3" or "down 4": the state, and how often it went down.
 * In:    the configuration             Out: FOLDER/port, replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "node/daemon/port_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PORT_FILE_TEXT = 32 };

int port_file_write(const struct folder *f, const struct node_config *c)
{
	char text[PORT_FILE_TEXT];

	if (f->fd < 0)
		return 0;
	snprintf(text, sizeof(text), "%s %u\n", c->port_up ? "up" : "down", c->port_downs);
	return folder_put(f, "port", text);
}

void port_file_read(const struct folder *f, struct node_config *c)
{
	char text[PORT_FILE_TEXT], word[8];
	unsigned downs;
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
	if (sscanf(text, "%7s %5u", word, &downs) != 2 || downs > UINT16_MAX)
		return;
	if (strcmp(word, "up") != 0 && strcmp(word, "down") != 0)
		return;
	c->port_up = word[0] == 'u';
	c->port_downs = (u16)downs;
}
