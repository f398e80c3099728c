/* trap.h: notices to the subnet manager, sent until it represses them.
 */
#ifndef FABRIC_TRAP_H
#define FABRIC_TRAP_H

#include "fabric/fabric_priv.h"
#include "fabric/format.h"

enum { TRAP_DETAILS = 54 }; /* bytes of a notice's data */

/* A port with a trap that is not repressed, or that has sent one lately. */
struct trap_slot {
	u32 port;
	u64 due_ns;				/* of the next one, or of the slot's end */
	u64 tid[FABRIC_TRAPS];			/* of the latest trap of each kind */
	u8 details[FABRIC_TRAPS][TRAP_DETAILS]; /* of the security traps */
} OWNED_BY(the thread of the owner);

struct trap_set {
	struct trap_slot *slots;
	u32 count, room;
	u32 *slot_of; /* for each port its slot + 1; 0: none */
	u64 due_ns;   /* the earliest of the slots */
	u32 sequence; /* of transaction IDs */
} OWNED_BY(the thread of the owner);

int trap_init(struct fabric *f);
void trap_destroy(struct fabric *f);

/* Raises a trap of the port (FABRIC_TRAP_128 and so on). For 128, 144 and 256 to 258 the port is
 * the one with the node's LID. Without a known subnet manager nothing happens. */
void trap_raise(struct fabric *f, u32 port, enum fabric_trap_bit bit);
void trap_bad_mkey(struct fabric *f, u32 home, const struct fabric_mad *m);
void trap_bad_key(struct fabric *f, u32 home, const struct fabric_violation *v);
/* Counts a bad P_Key or Q_Key, and tells it. */
void violation_note(struct fabric *f, u32 port, const struct fabric_violation *v);
/* A TrapRepress has reached the node. False: it is for no trap of the node's own. */
bool trap_repress(struct fabric *f, u32 home, const struct fabric_mad *m);
/* Sends the traps whose time has come. */
void trap_run(struct fabric *f);

#endif
