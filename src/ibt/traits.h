/* traits.h: what the transport types of queue pairs differ in. A type that comes is a line of the
 * table in traits.c; no other file of the engine asks which type a queue pair has. A packet
 * names the type of the queue pair that takes it: with XRC another one than its sender's. */
#ifndef IBT_TRAITS_H
#define IBT_TRAITS_H

#include "base/compiler.h"

enum ibt_trait {
	TRAIT_CONNECTED = 1 << 0, /* one peer, known from RTR on: its packets alone are taken */
	TRAIT_RELIABLE = 1 << 1,  /* acknowledges, repeats, and reads the peer's memory */
	TRAIT_SRQ = 1 << 2,	  /* its receives may come from an SRQ */
	TRAIT_TAGS = 1 << 3,	  /* ... from one that matches tags */
	TRAIT_FAST = 1 << 4,	  /* may take the fast paths, and copy directly: RC */
	TRAIT_INITIATOR = 1 << 5, /* XRC: sends requests, each of which names an SRQ of the peer */
	TRAIT_TARGET = 1 << 6,	  /* XRC: executes such requests, and sends none */
	TRAIT_PROXY = 1 << 7,	  /* ... for a target of another process: proxy.h */
};

struct ibt_traits {
	u8 traits FIXED; /* enum ibt_trait */
	/* pkt.qp_type of its packets: the type of the queue pair that takes them */
	u8 packet_type FIXED;
};

/* 1 << enum ibv_wr_opcode of each request that a queue pair sends, by its packet_type. Connected
 * types take those that touch this side only, too (post_fill_rare). */
enum { IBT_PACKET_TYPES = 11 };
extern const u32 ibt_opcodes[IBT_PACKET_TYPES];

/* The traits of an enum ibv_qp_type; NULL: a type that the engine does not have. */
const struct ibt_traits *ibt_traits_of(u32 type);

#endif
