/* consumer.h: what the room `consumer` needs of the midlayer beyond ib_*. */
#ifndef CORE_CONSUMER_H
#define CORE_CONSUMER_H

#include <rdma/ib_verbs.h>

#include "base/compiler.h"

/* How a kind of clients is told of a device. Both may block. */
struct client_calls {
	/* Non-zero: the client does not want the device, and is not told of its end. */
	int (*add)(struct ib_client *client, struct ib_device *device);
	void (*remove)(struct ib_client *client, struct ib_device *device);
} FIXED;

/* ib_register_client for clients of that kind; `calls` is never freed. ib_unregister_client ends
 * it. */
int core_client_register(struct ib_client *client, const struct client_calls *calls);

/* Has the driver's headers the fields that ib_linux61.h uses? */
bool core_serves_linux61(const struct ib_device *device);

#endif
