/* fdstore.h: keeps the UDP sockets open while there is no node.
 *
 * If a socket of a group is closed the kernel moves the last one to its place, and datagrams go
 * astray. So every socket, and the table that says which slot has which, lies as a message in the
 * queue of a socket pair, and every process holds the end from which it could be received: when the
 * node dies, nothing is closed as long as one process lives. The first process that comes back
 * gives the queue to the next node (daemon_udp_adopt), which moves its content to one of its own.
 */
#ifndef DAEMON_FDSTORE_H
#define DAEMON_FDSTORE_H

#include "base/compiler.h"
#include "node/node.h"

enum {
	FDSTORE_MEMBERS = NODE_SLOTS, /* of one group */
	/* Sockets in the queue. The kernel limits a user's descriptors in flight, of all programs
	 * together, to RLIMIT_NOFILE, which is often 1024 */
	FDSTORE_MAX = 256,
	/* The row of the socket that makes this node the first of its network namespace */
	FDSTORE_FIRST_ROW = NODE_GIDS + 1,
};

/* In a memfd, row by row in the node's order of groups. */
struct fdstore_table {
	u32 magic, reserved;
	u16 slot_of[NODE_GIDS][FDSTORE_MEMBERS]; /* 0: nobody's */
} OWNED_BY(the daemon);

/* One socket in the queue: the data beside its descriptor. */
struct fdstore_item {
	u32 magic;
	u32 row, index; /* of its group, and its place there */
	u32 ifindex;
	u8 gid[16];
} OWNED_BY(the daemon);

struct fdstore {
	int in;	 /* the node writes */
	int out; /* processes hold */
	int table_fd;
	struct fdstore_table *table; /* mapped */
	u32 count;
} OWNED_BY(the daemon);

/* 0 or a negative errno. */
int fdstore_open(struct fdstore *k);
void fdstore_close(struct fdstore *k);
/* Appends a socket to the queue; the descriptor stays the caller's. -ENOSPC: no room, the socket
 * will not outlive the node. */
int fdstore_add(struct fdstore *k, const struct fdstore_item *item, int fd);
/* Empties the queue but for the table. */
void fdstore_clear(struct fdstore *k);

/* The queue of a dead node: the descriptors are the reader's until fdstore_discard. */
struct fdstore_found {
	struct fdstore_table table;
	u32 count;
	struct fdstore_item items[FDSTORE_MAX];
	int fds[FDSTORE_MAX]; /* -1: taken */
} OWNED_BY(the daemon);

/* Receives all items at the end that a process held. 0; -ENODATA: none (another process was
 * faster), or invalid ones. */
int fdstore_receive(int out, struct fdstore_found *f);
void fdstore_discard(struct fdstore_found *f);

#endif
