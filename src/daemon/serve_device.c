/* serve_device.c: devices and their ports.
 * In:    PORT, DEVICE_READ, _ADD, _REMOVE     Out: the table of devices
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>

#include "daemon/service.h"

static int serve_port(struct request *r)
{
	const struct proto_port *q = &r->q->port;
	int index = q->device[0] == '\0' ? 0 : devices_find(r->daemon, q->device);

	if (index < 0 || q->port != 1)
		return -ENODEV;
	if (q->up > 1)
		return -EINVAL;
	devices_set_port(r->daemon, (u32)index, q->up != 0);
	service_status(r, 0);
	return 0;
}

static int serve_device_read(struct request *r)
{
	const struct node_config *devices = r->daemon->directory->devices;
	struct proto_device_reply reply;
	u32 i = r->q->device_read.index;

	while (i < NODE_DEVICES && devices[i].id == 0)
		i++;
	if (i >= NODE_DEVICES)
		return -ENODEV;
	memset(&reply, 0, sizeof(reply));
	reply.index = i;
	reply.config = devices[i];
	service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

/* Copies the name with a terminating zero. */
static int serve_device_change(struct request *r, int (*change)(struct daemon *d, const char *name))
{
	char name[NODE_DEVICE_NAME];
	int err;

	memcpy(name, r->q->device_name.name, sizeof(name));
	if (memchr(name, '\0', sizeof(name)) == NULL)
		return -EINVAL;
	err = change(r->daemon, name);
	if (err == 0)
		service_status(r, 0);
	return err;
}

static int serve_device_add(struct request *r)
{
	return serve_device_change(r, devices_add);
}

static int serve_device_remove(struct request *r)
{
	return serve_device_change(r, devices_remove);
}

static const struct service_rule serve_device_rules[] = {
	[PROTO_OP(PROTO_PORT)] = { serve_port, sizeof(struct proto_port), 0,
				   SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_DEVICE_READ)] = { serve_device_read, sizeof(struct proto_device_read), 0,
					  SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_DEVICE_ADD)] = { serve_device_add, sizeof(struct proto_device_name), 0,
					 SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_DEVICE_REMOVE)] = { serve_device_remove, sizeof(struct proto_device_name),
					    0, SERVICE_FROM(PROC_TOOL) },
};

const struct service device_service = {
	.rules = serve_device_rules,
	.rule_count = ARRAY_LEN(serve_device_rules),
};
