/* capture.h: recording what all processes send and receive.
 *
 * CAPTURE is a plain request with the memory file as its descriptor. Every process gets the file
 * with EV_CAPTURE, a process that attaches later too, until the connection of the recorder ends;
 * then EV_CAPTURE comes without a descriptor. -EBUSY: another connection captures.
 */
#ifndef NODE_PROTOCOL_CAPTURE_H
#define NODE_PROTOCOL_CAPTURE_H

#include "node/protocol/head.h"

enum {
	PROTO_CAPTURE = PROTO_TYPE(PROTO_SERVICE_CAPTURE, 0),
	PROTO_EV_CAPTURE = PROTO_TYPE(PROTO_SERVICE_CAPTURE, PROTO_EVENT_OP + 0),
};

#endif
