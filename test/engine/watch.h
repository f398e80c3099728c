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

#define OP(name) (1u << PKT_##name)
#define OP_READ_ANSWERS (OP(READ_FIRST) | OP(READ_MIDDLE) | OP(READ_LAST) | OP(READ_ONLY))
#define OP_ALL UINT32_MAX

#endif
