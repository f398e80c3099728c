/* notice.h: the notice board: what every process of a node may read without asking: configuration
 * and multicast groups.
 *
 * A sealed memfd that the node writes and processes map read-only. `seq` is odd while the node
 * writes; a reader copies and looks again. A node that dies in the middle leaves it odd for ever:
 * readers give up after some tries and take what they see, for each entry is judged again by the
 * process that it names.
 */
#ifndef NODE_NOTICE_H
#define NODE_NOTICE_H

#include "node/node.h"

enum { NOTICE_MAGIC = 0x61764e42, NOTICE_MEMBERS = NODE_MEMBERS, NOTICE_TRIES = 100 };

struct notice_member {
	u8 gid[16];
	u64 process; /* 0: free */
	u32 qpn;
	u32 reserved;
};

struct notice {
	u32 magic;
	u32 seq;
	u32 members; /* entries in use lie below this index */
	u32 reserved;
	struct node_config devices[NODE_DEVICES]; /* id 0: free */
	struct notice_member member[NOTICE_MEMBERS];
};

/* Maps the board read-only, after checking that it can neither shrink nor be another size. NULL if
 * it is not one. */
const struct notice *notice_map(int fd);
void notice_unmap(const struct notice *n);
/* One device of the board, index below NODE_DEVICES, as one state of it. Its texts have ends, and
 * it has one port. */
void notice_read_device(const struct notice *n, u32 index, struct node_config *out);
/* The id of a device; 0: nobody has the index. */
u64 notice_device_id(const struct notice *n, u32 index);
int notice_read_members(const struct notice *n, const u8 gid[16], u32 from,
			struct node_member *out, int max);

/* The node's side: a new board (*fd is what processes map), NULL and -errno in *err on failure. */
struct notice *notice_create(int *fd, int *err);
/* Between these two the writer changes what it likes. */
void notice_write_begin(struct notice *n);
void notice_write_end(struct notice *n);

#endif
