/* client.c: clients by Linux 6.1's structure: they may refuse a device, and get their data with its
 * end.
 * In: registrations    Out: ib_client_linux61.add and .remove    Runs: the registering thread
 * Locks: the device's turn across callbacks
 */
#include <errno.h>

#include "consumer/consumer_priv.h"

static struct ib_client_linux61 *consumer_client_of(struct ib_client *base)
{
	return container_of(base, struct ib_client_linux61, base);
}

static int consumer_client_add(struct ib_client *base, struct ib_device *device)
{
	struct ib_client_linux61 *client = consumer_client_of(base);

	if (!core_serves_linux61(device))
		return -EOPNOTSUPP;
	return client->add != NULL ? client->add(device) : 0;
}

static void consumer_client_remove(struct ib_client *base, struct ib_device *device)
{
	struct ib_client_linux61 *client = consumer_client_of(base);

	if (client->remove != NULL)
		client->remove(device, ib_get_client_data(device, base));
}

int ib_register_client_linux61(struct ib_client_linux61 *client)
{
	static const struct client_calls calls = { .add = consumer_client_add,
						   .remove = consumer_client_remove };

	if (client == NULL)
		return -EINVAL;
	client->base = (struct ib_client){ .name = client->name };
	return core_client_register(&client->base, &calls);
}

void ib_unregister_client_linux61(struct ib_client_linux61 *client)
{
	if (client != NULL)
		ib_unregister_client(&client->base);
}
