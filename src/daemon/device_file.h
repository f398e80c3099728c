/* device_file.h: a file in the node's folder for the node that takes over after a crash: the
 * devices, the state of their ports, and whether this node shows the host's addresses. A node that
 * ends normally removes the file.
 */
#ifndef DAEMON_DEVICE_FILE_H
#define DAEMON_DEVICE_FILE_H

#include "daemon/folder.h"
#include "node/node.h"

enum port_will {
	PORT_AUTO, /* follows the link */
	PORT_DOWN,
	PORT_UP,
};

/* A device and its port. */
struct device_left {
	u64 id; /* 0: no device */
	char name[NODE_DEVICE_NAME];
	enum port_will will;
	u16 downs;
} OWNED_BY(the daemon);

struct device_file {
	bool first;  /* the node is the first of its network namespace */
	u64 next_id; /* greater than every id in use so far */
	struct device_left devices[NODE_DEVICES];
} OWNED_BY(the daemon);

/* Replaces the file in one step. 0 or a negative errno. Does nothing without a folder. */
int device_file_write(const struct folder *f, const struct device_file *p);
/* Reads the file of an earlier node. False and *p untouched if there is none, or it is invalid: ids
 * must be below next_id, and names be device names, each once. */
bool device_file_read(const struct folder *f, struct device_file *p);

#endif
