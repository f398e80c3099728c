/* watch.h: what was sent over the path in memory, and which of it is to be lost. */
#ifndef ENGINE_WATCH_H
#define ENGINE_WATCH_H

#include "net.h"

/* Packets are lost from this one on (counted from 1) of those that match. */
struct watch_drop {
	int from; /* side */
	u32 opcodes; /* bits of enum pkt_opcode */
	u32 first, count;
	u32 met;
};

struct watch {
	u32 count;
	struct {
		int from;
		struct pkt pkt;
	} seen[NET_SEEN];
	struct watch_drop drop[4];
};

/* Watches everything that is sent from now on. */
void watch_begin(struct watch *w, struct net *net);
/* How many packets with one of the opcodes a side has sent. */
u32 watch_count(const struct watch *w, int from, u32 opcodes);
/* The n-th of them, from 0 on. */
const struct pkt *watch_nth(const struct watch *w, int from, u32 opcodes, u32 n);

/* Two queue pairs, and what their path carries. */
struct pair {
	struct net net;
	struct ibt_qp *qp[2];
	struct watch watch;
};

void pair_open(struct pair *r, const struct net_config *cfg, const struct net_qp *q);
/* Nothing may be left on the way. */
void pair_close(struct pair *r);
/* The next completion of side 0's send queue. */
void pair_expect(struct pair *r, u64 wr_id, enum ibv_wc_status status);

#define OP(name) (1u << PKT_##name)
#define OP_READ_ANSWERS (OP(READ_FIRST) | OP(READ_MIDDLE) | OP(READ_LAST) | OP(READ_ONLY))
#define OP_ALL UINT32_MAX

#endif
