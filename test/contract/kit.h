/* kit.h: one round of every verb that may not sleep: address handles, posts and polls of RC and UD,
 * arming, FMRs, a pool, a window, an SRQ, the caches, ib_dispatch_event.
 */
#ifndef TEST_CONTRACT_KIT_H
#define TEST_CONTRACT_KIT_H

#include "rig.h"

/* Everything that they need, made beforehand by a thread that may sleep. */
struct kit {
	struct link rc, ud;
	struct ib_ah *group_ah;
	struct ib_srq *srq;
	struct ib_srq *tags; /* a tag-matching one, and its CQ; NULL: the device has none */
	struct ib_cq *tags_cq;
	struct ib_fmr *fmr;
	struct ib_mw *mw;
	struct ib_fmr_pool *pool;
	int rounds, failures, first_failure; /* line; atomic */
	int done;
};

extern struct kit kit;

/* Makes and destroys the objects; kit_close fails the test if a round has failed. */
void kit_open(void);
void kit_close(void);
/* One round, from any context. At most 100 between kit_open and kit_close. */
void kit_round(void);
/* No assertion: this runs on threads that cmocka does not know. */
void kit_expect(bool ok, int line);

#define EXPECT(condition) kit_expect(condition, __LINE__)

#endif
