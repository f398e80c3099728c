/* place.h: the possible places of a node's private folder. The client side and the daemon use it.
 * */
#ifndef NODE_PLACE_H
#define NODE_PLACE_H

#include <sys/socket.h>
#include <sys/un.h>

#include "anyverbs/kernel.h"

enum { PLACE_COUNT = 4, PLACE_PATH = 192 };

/* Which processes of its user a node serves. */
enum place_scope {
	PLACE_NETWORK, /* those of one network namespace */
	/* all: a node that carries a fabric, whose hosts have namespaces of their own */
	PLACE_MACHINE,
};

/* What this process wants: ANYVERBS_HOST names a host of a fabric. */
enum place_scope place_scope_wanted(void);

/* Opens the folder of node `name` in the place with this index, in the order in which they are
 * tried: mode 0700, ours, one per scope. `make`: makes it if need be. The descriptor and its path;
 * -ENODEV: there is no such place; else why it cannot be used. */
int place_open(int index, enum place_scope scope, const char *name, bool make,
	       char path[PLACE_PATH]);
/* Tells whether a process holds a slot of the node with this open folder: of the node that is up,
 * or of one that has ended, and whose next node it wants. */
bool place_in_use(int folder);
/* The address of the socket in an open folder; returns its length. Good while the descriptor is
 * open. */
socklen_t place_address(int folder, const char *path, struct sockaddr_un *out);
/* The socket's name in the folder. */
#define PLACE_SOCKET "socket"

#endif
