/* device_file.h: the devices, the state of their ports and whose the host's addresses are, in the
 * node's folder: for the node that takes over after a crash. A node that ends in good order takes
 * the file with it.
 */
#ifndef NODE_DAEMON_DEVICE_FILE_H
#define NODE_DAEMON_DEVICE_FILE_H

#include "node/daemon/folder.h"
#include "node/node.h"

enum port_will {
	PORT_AUTO, /* as the link is */
	PORT_DOWN,
	PORT_UP,
};

/* A device and its port. */
struct device_left {
	u64 id; /* 0: no device */
	char name[NODE_DEVICE_NAME];
	enum port_will will;
	u16 downs;
};

struct device_file {
	bool first;  /* the node is the first of its network namespace */
	u64 next_id; /* no device has had this id or one above */
	struct device_left devices[NODE_DEVICES];
};

/* Replaces the file in one step. 0 or a negative errno. Without a folder there is nothing to do. */
int device_file_write(const struct folder *f, const struct device_file *p);
/* What an earlier node has left: false and *p untouched if there is nothing, or nothing that makes
 * sense: ids are below next_id and names are names of devices, each once. */
bool device_file_read(const struct folder *f, struct device_file *p);

#endif
