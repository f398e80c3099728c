/* place.h: the possible places of a node's private folder. The client side and the daemon use it.
 * */
#ifndef NODE_PLACE_H
#define NODE_PLACE_H

#include <sys/socket.h>
#include <sys/un.h>

#include "anyverbs/kernel.h"

enum { PLACE_COUNT = 4, PLACE_PATH = 192 };

/* Opens the folder of node `name` in the place with this index, in the order in which they are
 * tried: mode 0700, ours, one per network namespace. `make`: makes it if need be. The descriptor
 * and its path; -ENODEV: there is no such place; else why it cannot be used. */
int place_open(int index, const char *name, bool make, char path[PLACE_PATH]);
/* The address of the socket in an open folder; returns its length. Good while the descriptor is
 * open. */
socklen_t place_address(int folder, const char *path, struct sockaddr_un *out);
/* The socket's name in the folder. */
#define PLACE_SOCKET "socket"

#endif
