/* slots.h: the owner of each slot of the QPN space.
 *
 * A slot is taken by a byte lock on the slots file. The lock belongs to an open file description
 * that the node makes for each process and hands to it: so it lasts as long as the process, node or
 * no node, and the next node sees what is taken.
 */
#ifndef DAEMON_SLOTS_H
#define DAEMON_SLOTS_H

#include "node/protocol.h"

enum { SLOTS_MAGIC = 0x61764e53, SLOTS_FIRST = 1 /* slot 0 holds QP0 and QP1: the node's own */ };

/* The file. Locks are on bytes behind its end, so that they cover no data: SLOTS_LOCKS + slot. */
struct slots_file {
	u32 magic;
	u32 cursor;	  /* where the search for the next slot begins */
	u64 next_process; /* numbers below it have been given out */
	u32 generation[NODE_SLOTS];
	/* a bit for each slot whose process takes packets over the wire only; 0 of a free one */
	u64 wire_only[NODE_SLOTS / 64];
} OWNED_BY(the daemon);

enum { SLOTS_LOCKS = 65536 };

struct slots {
	int fd;
	/* a copy: changes are written with write(), so a full file system raises no SIGBUS */
	struct slots_file file;
	u64 owner[NODE_SLOTS]; /* process number; 0: none that has claimed it */
	u64 rest_until_ns[NODE_SLOTS];
	u64 rest_ns;
	/* slots that were locked when this node began: their processes have not claimed them yet */
	bool absent[NODE_SLOTS];
	u32 absent_count;
} OWNED_BY(the daemon);

/* dir_fd -1: kept in memory only. -ENOSPC: no room for the file; or another errno. */
int slots_open(struct slots *s, int dir_fd, u64 rest_ns);
void slots_close(struct slots *s);
/* Opens a description of the slots file for a process; or -errno. */
int slots_describe(const struct slots *s);
/* Tells whether `fd`, sent by a process, is a description of this slots file. */
bool slots_same_file(const struct slots *s, int fd);
/* Returns a number that no process has had. */
u64 slots_next_process(struct slots *s);
/* Takes a free slot for `process`: locks it through `fd`. The slot or -ENOSPC. */
int slots_take(struct slots *s, u64 process, int fd, u64 now_ns);
/* Has a returning process claim a slot: 0, -EEXIST if another process has it. */
int slots_claim(struct slots *s, u64 process, int fd, u32 slot);
/* Unlocks everything that `fd` holds and `process` does not own. */
void slots_tidy(struct slots *s, u64 process, int fd);
/* Frees all slots of `process`; they rest before they are reused. */
void slots_release(struct slots *s, u64 process, int fd, u64 now_ns);
/* Notes for each slot of `process` whether it is reached over the wire only
 * (node_self.wire_only): in the file, for the next node has to know it before the process has come
 * back. Forgotten when the slot is free. */
void slots_note_wire_only(struct slots *s, u64 process, bool wire_only);
/* Returns the owner's process number; 0: free; UINT64_MAX: held by a process that has not come back
 * yet. */
u64 slots_owner(const struct slots *s, u32 slot);
/* Tells whether a process of an earlier node lives and has not come back yet. Forgets what is noted
 * of slots whose processes have ended. */
bool slots_has_absent(struct slots *s);
u32 slots_count(const struct slots *s, u64 process, u16 *first, u32 max);

#endif
