/* port_file.h: the port's state in the node's folder: for the node that takes over after a crash. A
 * node that ends in good order takes the file with it.
 */
#ifndef NODE_DAEMON_PORT_FILE_H
#define NODE_DAEMON_PORT_FILE_H

#include "node/daemon/folder.h"
#include "node/node.h"

/* 0 or a negative errno. Without a folder there is nothing to do. */
int port_file_write(const struct folder *f, const struct node_config *c);
/* Brings port_up and port_downs to what an earlier node has left; untouched if there is nothing, or
 * nothing that makes sense. */
void port_file_read(const struct folder *f, struct node_config *c);

#endif
