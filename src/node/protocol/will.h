/* will.h: the file in which a process leaves MADs for its death (node/will.h). WILL is a plain
 * request with the file as its descriptor, and its reply is plain. A later file takes the place of
 * an earlier one. -EINVAL: not such a file. */
#ifndef NODE_PROTOCOL_WILL_H
#define NODE_PROTOCOL_WILL_H

#include "node/protocol/head.h"

enum {
	PROTO_WILL = PROTO_TYPE(PROTO_SERVICE_WILL, 0),
};

#endif
