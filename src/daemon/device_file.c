/* device_file.c: a line for the node, "first 3" or "later 3" with the next id, and one for each
 * device: index, id, name, what was asked of its port, how often the port went down:
 * "1 2 roce1 auto 0".
 * In:    devices and their ports       Out: FOLDER/devices, replaced in one step
 * Runs:  the daemon's only thread      Locks: none
 */
#include "daemon/device_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "node/address.h"

enum { DEVICE_FILE_TEXT = 1024 };

static const char *const port_wills[] = {
	[PORT_AUTO] = "auto", [PORT_DOWN] = "down", [PORT_UP] = "up"
};

int device_file_write(const struct folder *f, const struct device_file *p)
{
	char text[DEVICE_FILE_TEXT];
	int n;

	if (f->fd < 0)
		return 0;
	n = snprintf(text, sizeof(text), "%s %llu\n", p->first ? "first" : "later",
		     (unsigned long long)p->next_id);
	for (u32 i = 0; i < NODE_DEVICES; i++) {
		const struct device_left *l = &p->devices[i];

		if (l->id != 0)
			n += snprintf(text + n, sizeof(text) - (size_t)n, "%u %llu %s %s %u\n", i,
				      (unsigned long long)l->id, l->name, port_wills[l->will],
				      l->downs);
	}
	return folder_put(f, "devices", text);
}

static bool device_file_has(const struct device_file *p, const char *name)
{
	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (p->devices[i].id != 0 && strcmp(p->devices[i].name, name) == 0)
			return true;
	return false;
}

/* Parses one line of a device. */
static bool device_file_take(const char *line, struct device_file *p)
{
	char name[NODE_DEVICE_NAME], word[8];
	unsigned index, downs;
	unsigned long long id;

	if (sscanf(line, "%2u %18llu %31s %7s %5u", &index, &id, name, word, &downs) != 5 ||
	    index >= NODE_DEVICES || p->devices[index].id != 0 || id == 0 || id >= p->next_id ||
	    downs > UINT16_MAX || !address_device_valid(name) || device_file_has(p, name))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(port_wills); i++) {
		struct device_left *l = &p->devices[index];

		if (strcmp(word, port_wills[i]) != 0)
			continue;
		*l = (struct device_left){ .id = id,
					   .will = (enum port_will)i,
					   .downs = (u16)downs };
		memcpy(l->name, name, sizeof(l->name));
		return true;
	}
	return false;
}

static bool device_file_parse(char *text, struct device_file *p)
{
	char rank[8], *save = NULL, *line = strtok_r(text, "\n", &save);
	unsigned long long next_id;

	memset(p, 0, sizeof(*p));
	if (line == NULL || sscanf(line, "%7s %18llu", rank, &next_id) != 2)
		return false;
	p->first = strcmp(rank, "first") == 0;
	p->next_id = next_id;
	while ((line = strtok_r(NULL, "\n", &save)) != NULL)
		if (!device_file_take(line, p))
			return false;
	return p->devices[0].id != 0;
}

bool device_file_read(const struct folder *f, struct device_file *p)
{
	char text[DEVICE_FILE_TEXT];
	struct device_file found;
	ssize_t n;
	int fd;

	if (f->fd < 0)
		return false;
	fd = openat(f->fd, "devices", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	if (!device_file_parse(text, &found))
		return false;
	*p = found;
	return true;
}
