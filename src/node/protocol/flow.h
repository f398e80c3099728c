/* flow.h: flow rules of raw packet queue pairs, of all processes of the node: each process must
 * know which frames go to others. FLOW_END's reply is plain.
 */
#ifndef NODE_PROTOCOL_FLOW_H
#define NODE_PROTOCOL_FLOW_H

#include "node/protocol/head.h"

enum {
	/* -EINVAL: no rule; -ENODEV: no such device; -ENOSPC: there are NODE_FLOWS */
	PROTO_FLOW = PROTO_TYPE(PROTO_SERVICE_FLOW, 0),
	PROTO_FLOW_END = PROTO_TYPE(PROTO_SERVICE_FLOW, 1),
};

struct proto_flow {
	struct proto_head head;
	struct node_flow flow; /* FLOW_END reads its serial only */
	u32 held; /* the process had it at the last node, with this serial; else 0 */
	u32 reserved;
} OWNED_BY(the caller);

struct proto_flow_reply {
	struct proto_head head;
	u64 serial;
} OWNED_BY(the caller);

#endif
