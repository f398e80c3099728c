/* device.h: devices and their ports: processes read them on the directory, tools ask for them.
 * EV_CONFIG says that the directory has changed: a plain message.
 */
#ifndef NODE_PROTOCOL_DEVICE_H
#define NODE_PROTOCOL_DEVICE_H

#include "node/protocol/head.h"

enum {
	PROTO_PORT = PROTO_TYPE(PROTO_SERVICE_DEVICE, 0),
	PROTO_DEVICE_READ = PROTO_TYPE(PROTO_SERVICE_DEVICE, 1),
	PROTO_DEVICE_ADD = PROTO_TYPE(PROTO_SERVICE_DEVICE, 2),
	PROTO_DEVICE_REMOVE = PROTO_TYPE(PROTO_SERVICE_DEVICE, 3),
	PROTO_EV_CONFIG = PROTO_TYPE(PROTO_SERVICE_DEVICE, PROTO_EVENT_OP + 0),
};

/* Sets a port's state; the reply comes when the configuration and the sysfs tree say so. -ENODEV:
 * no such device or port. */
struct proto_port {
	struct proto_head head;
	char device[NODE_DEVICE_NAME]; /* empty: the first device */
	u32 port;
	u32 up;
} OWNED_BY(the caller);

/* Asks for the first device whose index is this or above. -ENODEV: there is none. */
struct proto_device_read {
	struct proto_head head;
	u32 index;
	u32 reserved;
} OWNED_BY(the caller);

struct proto_device_reply {
	struct proto_head head;
	u32 index;
	u32 reserved;
	struct node_config config;
} OWNED_BY(the caller);

/* DEVICE_ADD, DEVICE_REMOVE; the reply is plain, and comes when the directory and the sysfs tree
 * say so. Its status is that of devices_add or devices_remove. */
struct proto_device_name {
	struct proto_head head;
	char name[NODE_DEVICE_NAME];
} OWNED_BY(the caller);

#endif
