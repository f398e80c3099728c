/* bed.h: an engine with memory, keys and queue pairs for a hostile peer, and what must stay whole.
 *
 * Memory holds three regions between bytes that no key gives away: open to the peer, open but of
 * another protection domain, and for receiving only. Seven queue pairs: RC, RC with an SRQ, UC, UD,
 * an RC one that is not connected, an XRC initiator and a target, whose requests may name one SRQ.
 */
#ifndef TEST_FUZZ_BED_H
#define TEST_FUZZ_BED_H

#include "ibt/ibt.h"
#include "input.h"
#include "node/node.h"

enum {
	BED_QPS = 7,
	BED_SRQ_QP = 1,
	BED_UC_QP = 2,
	BED_UD_QP = 3,
	BED_LOOSE_QP = 4,
	BED_XRC_INI = 5,
	BED_XRC_TGT = 6,
	BED_KEYS = 3,
	BED_OPEN_AT = 4104,
	BED_OPEN_BYTES = 30000,
	BED_RECEIVE_AT = 52008,
	BED_RECEIVE_KEY = 2,
	BED_PSN = 77,
	BED_QKEY = 0x1234,
	BED_OUR_SLOT = 5,
	BED_PEER_SLOT = 6,
};

#define BED_DOMAIN (IBT_XRC_SHARED | 1)

extern const u8 bed_types[BED_QPS];

struct bed {
	struct timer_set timers;
	struct mem_table mem;
	struct ibt *ibt;
	struct cq cq;
	struct ibt_srq *srq, *xrc_srq;
	struct ibt_qp *qp[BED_QPS];
	struct ibt_counters counters[BED_QPS];
	u32 key[BED_KEYS];
	u8 *memory;
	struct path *path;
	struct path_dest *peer; /* whom the queue pairs are connected to */
	enum ibv_mtu mtu;
};

/* Once. `keys`: where the table of keys lies; NULL: nobody else sees it. */
void bed_open(struct bed *b, struct mem_entry *keys, struct path *path, struct path_dest *peer,
	      enum ibv_mtu mtu);
/* Before each input: all queue pairs anew, with receive requests. */
void bed_connect(struct bed *b);
/* After each: receives what is left, takes all completions, and looks at the memory. */
void bed_check(struct bed *b);
void bed_post_send(struct bed *b, int i, u8 how);
u32 bed_psn(struct bed *b, int i); /* that queue pair i expects next */

static inline u32 bed_qpn(int i)
{
	return BED_OUR_SLOT << NODE_INDEX_BITS | (u32)(i + 2);
}

/* The queue pair that a byte of an input means. */
static inline int bed_pick(u8 byte)
{
	return byte < 0xf0 ? byte % BED_XRC_INI : BED_XRC_INI + byte % 2;
}

/* The number of the SRQ that requests to the target may name. */
static inline u32 bed_srqn(void)
{
	return bed_qpn(BED_QPS);
}

static inline u32 bed_peer_qpn(int i)
{
	return BED_PEER_SLOT << NODE_INDEX_BITS | (u32)(i + 2);
}

#endif
