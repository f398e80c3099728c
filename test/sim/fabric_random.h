/* fabric_random.h: what the files of the random fabrics share.
 *
 *   fabric_random.c   topologies, cables, nodes, members; what holds at rest
 *   fabric_again.c    managers that go and return, subscriptions, limits that are used up
 */
#ifndef SIM_FABRIC_RANDOM_H
#define SIM_FABRIC_RANDOM_H

#include "sm/test_support/rig.h"

enum { GROUPS_MADE = 5 };

extern struct rig r;

u32 random_below(u32 n);
/* The first port of a CA. */
u32 random_ca(void);
/* A host asks to join a group, which the first one creates. Returns the response; NULL: none. */
const struct fabric_mad *ask_to_join(u32 port, u32 group);
const struct fabric_mad *ask_to_leave(u32 port, u32 group);
/* Members of each group reach each other, and MLIDs without a group reach nobody. */
void check_groups(u32 from);

/* The port is about to ask the SA: its next transaction ID is the port's. */
void again_note(u32 port);
/* The port may be a member of the group from now on, or is none. */
void again_note_member(u32 port, u32 group, bool may_be);
/* Draws the limits, and which hosts answer reports. */
void again_begin(void);
/* A manager at the port, with the limits. */
void again_add(u32 port);
/* A manager goes, or comes back; a host subscribes, or ends its subscription, or comes back from
 * another fabric. */
void again_strike(void);
/* At least one manager is there from now on. */
void again_return(void);
/* The master whose SA the port can ask; NULL: none. */
struct sm *again_master(u32 port);
/* At rest: all leave, and all come again until the limits are used up. */
void again_rest(u32 port);

#endif
