/* steer.h: which process of a node a MAD is for, by the identity that its transaction ID or
 * communication ID carries. The kernel's steering program (daemon/udp_program.c) says the same in
 * its own words. Pure functions.
 */
#ifndef NODE_STEER_H
#define NODE_STEER_H

#include "base/compiler.h"

enum {
	STEER_MAD = 256,
	STEER_SLOT_SHIFT = 22, /* the slot's place in 32 bits of an ID */
	/* where fields of a MAD lie */
	STEER_CLASS = 1,
	STEER_METHOD = 3,
	STEER_TID = 8,
	STEER_ATTRIBUTE = 16,
	STEER_MODIFIER = 20,
	STEER_LOCAL_ID = 24,  /* CM: local communication ID, SIDR request ID */
	STEER_REMOTE_ID = 28, /* CM: remote communication ID */
	STEER_SERVICE_ID = 32, /* REQ and SIDR_REQ */
	STEER_REQ_PRIVATE = 164, STEER_SIDR_REQ_PRIVATE = 40, /* private data */
	/* values */
	STEER_CLASS_BM = 5,
	STEER_CLASS_CM = 7,
	STEER_METHOD_RESPONSE = 0x80,
	STEER_METHOD_TRAP_REPRESS = 7,
	STEER_BM_RESPONSE = 1, /* in the attribute modifier */
	STEER_CM_REQ = 0x10,
	STEER_CM_REJ = 0x12,
	STEER_CM_SIDR_REQ = 0x17,
	STEER_CM_SIDR_REP = 0x18,
};

enum steer_by {
	STEER_BY_SLOT,	  /* *slot is the process' */
	STEER_BY_SERVICE, /* whoever listens on *service_id (host order) */
	STEER_BY_AGENT,	  /* the agent that takes it: unsolicited, and names no process */
};

/* `mad` has STEER_MAD bytes of any content. */
enum steer_by steer_mad(const u8 *mad, u32 *slot, u64 *service_id);
/* A REJ of a CM that has given up before it knew its peer's ID: that finds its own by the GUID and
 * the ID of the sender. So any process of the node may be the receiver. */
bool steer_names_nobody(const u8 *mad);
/* The slot of the process that sends a REQ or SIDR_REQ, if it is of this node. */
u32 steer_sender(const u8 *mad);
/* Where the private data of a REQ or SIDR_REQ begins, which has 92 bytes at least. */
static inline const u8 *steer_private(const u8 *mad)
{
	return mad + (mad[STEER_ATTRIBUTE + 1] == STEER_CM_REQ ? STEER_REQ_PRIVATE
								: STEER_SIDR_REQ_PRIVATE);
}

#endif
