/* sm.h: a small subnet manager for tests: it asks and sets by SMPs only, as any other.
 */
#ifndef FABRIC_TEST_SM_H
#define FABRIC_TEST_SM_H

#include "fabric/test_support/bed.h"

/* A way by hops. */
struct sm_way {
	u8 hops;
	u8 path[64]; /* path[1] to path[hops] */
} OWNED_BY(the test);

/* One SMP and its answer. Returns the answer, or NULL: there was none. data: 64 bytes, NULL:
 * zeroes. */
const struct fabric_mad *sm_directed(struct bed *b, u32 port, const struct sm_way *w, u8 method,
				     u16 attribute, u32 modifier, const u8 *data);
const struct fabric_mad *sm_by_lid(struct bed *b, u32 port, u16 dlid, u8 method, u16 attribute,
				   u32 modifier, const u8 *data);
/* A GMP of the class performance management. data: 192 bytes. */
const struct fabric_mad *sm_perf(struct bed *b, u32 port, u16 dlid, u8 method, u16 attribute,
				 const u8 *data);
/* The status, without the direction bit. */
u16 sm_status(const struct fabric_mad *m);

/* Discovers the fabric from a CA's port by directed routes, gives out LIDs, fills the tables by
 * shortest paths and brings every link to ACTIVE. Returns how many nodes it has found. */
u32 sm_sweep(struct bed *b, u32 port);

#endif
