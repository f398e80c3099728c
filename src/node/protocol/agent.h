/* agent.h: which process receives the unsolicited MADs of a class. Both replies are plain. The MADs
 * come as EV_MAD (listen.h).
 */
#ifndef NODE_PROTOCOL_AGENT_H
#define NODE_PROTOCOL_AGENT_H

#include "node/protocol/head.h"

enum {
	/* -EINVAL: an agent of the node overlaps; -EAGAIN: not all processes that had agents at the
	 * last node have come back */
	PROTO_AGENT = PROTO_TYPE(PROTO_SERVICE_AGENT, 0),
	PROTO_AGENT_END = PROTO_TYPE(PROTO_SERVICE_AGENT, 1),
};

struct proto_agent {
	struct proto_head head;
	struct node_agent agent;
	u32 slot; /* of the process */
	u32 held; /* the process had it at the last node; else 0 */
} OWNED_BY(the caller);

#endif
