/* will.h: the file in which a process leaves MADs for its death. The node reads it then.
 *
 * A memory file that the process writes and maps, and that no child inherits mapped. A slot has two
 * halves: the process writes the one that is not in force and then says that it is, so that
 * whenever it dies one whole will is in force, or none. The node trusts nothing in it.
 */
#ifndef NODE_WILL_H
#define NODE_WILL_H

#include "node/node.h"

enum { WILL_MAGIC = 0x61764e58 };

struct will_slot {
	u32 word; /* 0: empty; 1, 2: which half is in force, counted from 1 */
	u32 reserved;
	struct node_will half[2];
	u64 pad[5];
} OWNED_BY(the process that writes the file);

struct will_file {
	u32 magic;
	u32 used; /* slots at and behind this index were never written */
	u64 pad[31];
	struct will_slot slots[NODE_WILLS];
} OWNED_BY(the process that writes the file);

_Static_assert(sizeof(struct will_slot) == 384 && offsetof(struct will_file, slots) == 256,
	       "slots lie in lines");

/* This process' own file; all zeroes: none yet. */
struct will_store {
	struct lock lock;
	struct will_file *file GUARDED_BY(lock); /* mapped */
	int fd GUARDED_BY(lock);		 /* of `file` */
	bool failed GUARDED_BY(lock);		 /* cannot be made; logged */
};

/* What node_will_set does, in the store alone. */
int will_set(struct will_store *s, u32 index, const struct node_will *will);
/* What node_will_next does, in the store alone. */
bool will_next(struct will_store *s, u32 *index, struct node_will *out);
/* A duplicate of the file's descriptor, the caller's; -ENOENT: there is no file. */
int will_describe(struct will_store *s);
/* Of a file: slots at and behind this index were never written; 0: it is none. */
u32 will_used(int fd);
void will_close(struct will_store *s);
/* In a forked child: the mapping is the parent's alone. */
void will_drop_in_child(struct will_store *s);

#endif
