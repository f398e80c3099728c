/* address.h: which node this process belongs to, and where it listens. Both the client side and the
 * daemon use it. */
#ifndef NODE_ADDRESS_H
#define NODE_ADDRESS_H

#include <sys/socket.h>
#include <sys/un.h>

#include "node/node.h"

enum { NODE_NAME_MAX = 32 };

/* The node that ANYVERBS_NODE names, "default" without it: letters, digits, '.', '_', '-', at most
 * 31. -EINVAL. */
int address_node_name(char name[NODE_NAME_MAX]);
bool address_name_valid(const char *name);
/* Tells whether a device may have this name: "roce" and a number of at most four digits. */
bool address_device_valid(const char *name);
/* The devices that a node begins with if ANYVERBS_DEVICES is `text` (NULL: not set): roce0, and the
 * others that are named, each once, in this order. Returns how many, and fills the rest of `names`
 * with zeroes. Calls `refuse` for each name that is none, or one too many. */
u32 address_devices(const char *text, char names[NODE_DEVICES][NODE_DEVICE_NAME],
		    void (*refuse)(const char *name));
/* A node listens at the first of so many abstract addresses that no other user has. */
enum { ADDRESS_NAMES = 16 };
/* Makes the abstract address with this index of this user's node `name`; returns its length. */
socklen_t address_make(const char *name, u32 index, struct sockaddr_un *out);
/* Tells whether this user's number is no other's. In a user namespace the kernel shows all users
 * that are not mapped there by one number, the overflow UID, and a user may be mapped to it. Then
 * nothing tells a stranger at an abstract address: the node listens in its folder only, which the
 * kernel keeps others out of. */
bool address_user_is_unique(void);
/* Tells whether the other end of a connected socket runs as this user. *pid: the peer's in any
 * case, as this process sees it (may be 0). */
bool address_peer_is_mine(int fd, s32 *pid);
/* Tells whose process listens there: 0 for this user's, -EACCES for another's, or the error of
 * socket() or connect(). *pid as above, set for 0 and -EACCES. Nothing that a listener sends
 * reaches this process, for a descriptor may be one whose close waits. */
int address_probe(const struct sockaddr_un *addr, socklen_t length, s32 *pid);
/* Inodes of this process' namespaces; 0 where unknown, and for the host's first user namespace. */
u64 address_user_ns(void);
u64 address_net_ns(void);
u64 address_pid_ns(void);

#endif
