/* slot.h: slots of the QPN space. SLOT_TAKE is a plain request. */
#ifndef NODE_PROTOCOL_SLOT_H
#define NODE_PROTOCOL_SLOT_H

#include "node/protocol/head.h"

enum {
	PROTO_SLOT_TAKE = PROTO_TYPE(PROTO_SERVICE_SLOT, 0),
	PROTO_SLOT_CLAIM = PROTO_TYPE(PROTO_SERVICE_SLOT, 1),
};

enum { PROTO_SLOT_BYTES = NODE_SLOTS / 8 };

struct proto_slot_reply {
	struct proto_head head;
	u32 slot;
	u32 generation; /* number of owners that the slot has had */
} OWNED_BY(the caller);

/* After RESUME. Descriptor: the slots file as the process holds it. The reply is the same struct:
 * those slots that are still the process' own, and the slots file that it holds from now on. */
struct proto_slot_claim {
	struct proto_head head;
	u8 slots[PROTO_SLOT_BYTES]; /* a bit per slot */
} OWNED_BY(the caller);

#endif
