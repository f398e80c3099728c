/* lids.h: what a capture must know of the fabric that the node carries: whose LIDs are whose.
 */
#ifndef ANYVERBS_LIDS_H
#define ANYVERBS_LIDS_H

#include "capture/capture.h"
#include "fabric.h"

/* Begins with zeroes. */
struct lids {
	struct plan plan; /* plan.map NULL: the node carries no fabric */
	u64 generation;   /* of the map, when the table was made */
	u64 made_ns;
	u32 port[FABRIC_MLID_FIRST]; /* FABRIC_NONE: no port has the LID */
};

/* Looks for the node's fabric; the one that was found before stays if it is the same, or if there
 * is none now. True: there is one. */
bool lids_read(struct lids *l, int node);
/* frames.find_way of frames in the fabric. */
void lids_find_way(struct lids *l, const struct capture_lids *w, struct frames_way *way);
void lids_close(struct lids *l);

#endif
