/* traits.h: what the transport types of queue pairs differ in. A type that comes is a line of the
 * table in traits.c; no other file of the engine asks which type a queue pair has. A packet
 * names the type that its opcode belongs to. */
#ifndef IBT_TRAITS_H
#define IBT_TRAITS_H

#include "base/compiler.h"

enum ibt_trait {
	TRAIT_CONNECTED = 1 << 0, /* one peer, known from RTR on: its packets alone are taken */
	TRAIT_RELIABLE = 1 << 1,  /* acknowledges, repeats, and reads the peer's memory */
	TRAIT_SRQ = 1 << 2,	  /* its receives may come from an SRQ */
	TRAIT_TAGS = 1 << 3,	  /* ... from one that matches tags */
};

struct ibt_traits {
	/* 1 << enum ibv_wr_opcode of each request that it sends. Connected types take those that
	 * touch this side only, too (post_fill_local) */
	u32 opcodes FIXED;
	u8 traits FIXED; /* enum ibt_trait */
};

/* The traits of an enum ibv_qp_type; NULL: a type that the engine does not have. */
const struct ibt_traits *ibt_traits_of(u32 type);

#endif
