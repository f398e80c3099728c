/* port_file.h: the port's state and whose the host's addresses are, in the node's folder: for the
 * node that takes over after a crash. A node that ends in good order takes the file with it.
 */
#ifndef NODE_DAEMON_PORT_FILE_H
#define NODE_DAEMON_PORT_FILE_H

#include "node/daemon/folder.h"

enum port_will {
	PORT_AUTO, /* as the link is */
	PORT_DOWN,
	PORT_UP,
};

struct port_file {
	enum port_will will;
	u16 downs;
	bool first; /* the node is the first of its network namespace */
};

/* 0 or a negative errno. Without a folder there is nothing to do. */
int port_file_write(const struct folder *f, const struct port_file *p);
/* What an earlier node has left; untouched if there is nothing, or nothing that makes sense. */
void port_file_read(const struct folder *f, struct port_file *p);

#endif
