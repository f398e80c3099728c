/* client.c: tells clients of devices: add when both are there, remove before either goes.
 * In: registrations of clients and devices    Out: ib_client.add and .remove
 * Runs: the registering thread
 * Locks: the device's turn across callbacks; clients.lock and core->lock not
 *
 * Each registration of a client or a device lets the device "catch up": under the device's turn
 * it adds every client that the device lacks, the oldest first. A client therefore sees a device
 * only after all older clients have seen it, whichever threads race. One pair of client and device
 * never sees add and remove at once.
 *
 * Services (service.h) come before the others: first in the order of adds, last in that of removes.
 * A thread inside a turn that begins one tries the turns of other devices only; whoever leaves a
 * turn looks whether a service has been added to the list meanwhile.
 */
#include <stdlib.h>

#include "base/fork.h"
#include "core/consumer.h"
#include "core/core_priv.h"
#include "core/service.h"

/* A registered client. Apart from it, so that its owner may free it after ib_unregister_client
 * in any state. */
struct client_entry {
	struct list_head node OWNED_BY(clients.lock);
	struct ib_client *client FIXED;
	bool service FIXED;
	const struct client_calls *calls FIXED;
};

static struct {
	struct lock lock;
	/* services, then others, both in the order of registration */
	struct list_head entries GUARDED_BY(lock);
} clients = { .entries = LIST_HEAD_INIT(clients.entries) };

static struct client_pair *pair_find(struct ib_device_core *core, const struct ib_client *client)
	REQUIRES(&core->lock)
{
	list_for_each(pair, &core->pairs, struct client_pair, node)
		if (pair->client == client)
			return pair;
	return NULL;
}

void *ib_get_client_data(struct ib_device *device, struct ib_client *client)
{
	struct ib_device_core *core = device->core;

	if (!core)
		return NULL;
	lock_acquire(&core->lock);
	struct client_pair *pair = pair_find(core, client);
	void *data = pair ? pair->data : NULL;
	lock_release(&core->lock);
	return data;
}

void ib_set_client_data(struct ib_device *device, struct ib_client *client, void *data)
{
	struct ib_device_core *core = device->core;
	struct client_pair *pair = NULL;

	if (core) {
		lock_acquire(&core->lock);
		pair = pair_find(core, client);
		if (pair)
			pair->data = data;
		lock_release(&core->lock);
	}
	if (!pair)
		log_warn("core", "client %s keeps no data for device %s: it was not added",
			 client->name ? client->name : "?", device->name);
}

/* The oldest client, or service, that the device lacks. NULL: none. */
static struct client_entry *pair_missing(struct ib_device_core *core, bool service)
	REQUIRES(&clients.lock, &core->lock)
{
	list_for_each(entry, &clients.entries, struct client_entry, node)
		if ((entry->service || !service) && !pair_find(core, entry->client))
			return entry;
	return NULL;
}

static void pair_insert(struct ib_device_core *core, struct client_pair *pair) REQUIRES(&core->lock)
{
	struct list_head *last = &core->pairs;

	if (!pair->service) {
		list_push_back(&core->pairs, &pair->node);
		return;
	}
	list_for_each(other, &core->pairs, struct client_pair, node)
		if (other->service)
			last = &other->node;
	list_insert(&pair->node, last, last->next);
}

/* Puts `pair` on the device for the oldest client, or service, that it lacks. False: it lacks
 * none. */
static bool pair_claim_next(struct ib_device_core *core, struct client_pair *pair, bool service)
{
	lock_acquire(&clients.lock);
	lock_acquire(&core->lock);
	struct client_entry *entry = pair_missing(core, service);

	if (entry) {
		pair->client = entry->client;
		pair->calls = entry->calls;
		pair->service = entry->service;
		pair_insert(core, pair);
	}
	lock_release(&core->lock);
	lock_release(&clients.lock);
	return entry != NULL;
}

static bool pair_lacks_service(struct ib_device_core *core)
{
	lock_acquire(&clients.lock);
	lock_acquire(&core->lock);
	bool lacks = pair_missing(core, true) != NULL;

	lock_release(&core->lock);
	lock_release(&clients.lock);
	return lacks;
}

/* A client that refuses the device keeps no data for it. */
static void pair_add(struct ib_device_core *core, struct client_pair *pair)
{
	pair->refused = pair->calls->add(pair->client, core->device) != 0;
	if (!pair->refused)
		return;
	lock_acquire(&core->lock);
	pair->data = NULL;
	lock_release(&core->lock);
}

/* Inside the turn: adds the device to all clients, or services, that it lacks. False: no memory. */
static bool core_client_tell(struct ib_device_core *core, bool service)
{
	while (registry_is_alive(core)) {
		struct client_pair *pair = calloc(1, sizeof(*pair));

		if (!pair) {
			log_error("core", "no memory to tell clients of device %s",
				  core->device->name);
			return false;
		}
		if (!pair_claim_next(core, pair, service)) {
			free(pair);
			break;
		}
		pair_add(core, pair);
	}
	return true;
}

/* A service that began meanwhile has found the turn taken. */
static void core_client_leave(struct ib_device_core *core)
{
	bool told = true;

	turn_leave(&core->turn);
	while (told && registry_is_alive(core) && pair_lacks_service(core) &&
	       turn_try(&core->turn)) {
		told = core_client_tell(core, true);
		turn_leave(&core->turn);
	}
}

void core_client_catch_up(struct ib_device_core *core)
{
	turn_enter(&core->turn);
	(void)core_client_tell(core, false);
	core_client_leave(core);
}

/* Calls the client's remove; its data stays readable until that has returned. */
static void pair_remove(struct ib_device_core *core, struct client_pair *pair)
{
	pair->removing = true;
	if (!pair->refused)
		pair->calls->remove(pair->client, core->device);
	lock_acquire(&core->lock);
	list_remove(&pair->node);
	lock_release(&core->lock);
	free(pair);
}

static struct client_pair *pair_last(struct ib_device_core *core)
{
	struct client_pair *last = NULL;

	lock_acquire(&core->lock);
	list_for_each(pair, &core->pairs, struct client_pair, node)
		if (!pair->removing)
			last = pair;
	lock_release(&core->lock);
	return last;
}

void core_client_remove_all(struct ib_device_core *core)
{
	struct client_pair *pair;

	turn_enter(&core->turn);
	while ((pair = pair_last(core)))
		pair_remove(core, pair);
	turn_leave(&core->turn);
}

static void core_client_remove_one(struct ib_device_core *core, struct ib_client *client)
{
	turn_enter(&core->turn);
	lock_acquire(&core->lock);
	struct client_pair *pair = pair_find(core, client);
	lock_release(&core->lock);
	if (pair && !pair->removing)
		pair_remove(core, pair);
	core_client_leave(core);
}

static bool core_client_is_listed(const struct ib_client *client) REQUIRES(&clients.lock)
{
	list_for_each(entry, &clients.entries, struct client_entry, node)
		if (entry->client == client)
			return true;
	return false;
}

static void core_client_enter(struct client_entry *entry) REQUIRES(&clients.lock)
{
	struct list_head *last = &clients.entries;

	if (!entry->service) {
		list_push_back(&clients.entries, &entry->node);
		return;
	}
	list_for_each(other, &clients.entries, struct client_entry, node)
		if (other->service)
			last = &other->node;
	list_insert(&entry->node, last, last->next);
}

static int core_client_insert(struct ib_client *client, const struct client_calls *calls,
			      bool service)
{
	struct client_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	entry->client = client;
	entry->calls = calls;
	entry->service = service;
	lock_acquire(&clients.lock);
	bool listed = core_client_is_listed(client);

	if (!listed)
		core_client_enter(entry);
	lock_release(&clients.lock);
	if (listed)
		free(entry);
	return listed ? -EEXIST : 0;
}

/* False: it is not registered. */
static bool core_client_extract(struct ib_client *client)
{
	struct client_entry *found = NULL;

	lock_acquire(&clients.lock);
	list_for_each(entry, &clients.entries, struct client_entry, node)
		if (entry->client == client)
			found = entry;
	if (found)
		list_remove(&found->node);
	lock_release(&clients.lock);
	free(found);
	return found != NULL;
}

/* A driver whose probe fails is no error here: its devices may come later. */
int core_client_register(struct ib_client *client, const struct client_calls *calls)
{
	struct ib_device_core *core;
	u64 serial = 0;
	int err;

	driver_probe_all();
	err = core_client_insert(client, calls, false);
	if (err)
		return err;
	while ((core = registry_next(serial, true))) {
		serial = core->serial;
		core_client_catch_up(core);
		registry_put(core);
	}
	return 0;
}

static int core_client_add(struct ib_client *client, struct ib_device *device)
{
	if (client->add)
		client->add(device);
	return 0;
}

static void core_client_remove(struct ib_client *client, struct ib_device *device)
{
	if (client->remove)
		client->remove(device);
}

static const struct client_calls core_client_calls = { .add = core_client_add,
						       .remove = core_client_remove };

int ib_register_client(struct ib_client *client)
{
	return client ? core_client_register(client, &core_client_calls) : -EINVAL;
}

void ib_unregister_client(struct ib_client *client)
{
	struct ib_device_core *core;
	u64 serial = UINT64_MAX;

	if (!client || !core_client_extract(client))
		return;
	while ((core = registry_previous(serial))) {
		serial = core->serial;
		core_client_remove_one(core, client);
		registry_put(core);
	}
}

/* ---- services -------------------------------------------------------------------------------- */

/* Adds every device to the services. `waits`: also those whose turn another thread has. */
static void core_service_tell(bool waits)
{
	struct ib_device_core *core;
	u64 serial = 0;

	while ((core = registry_next(serial, true))) {
		serial = core->serial;
		if (waits)
			turn_enter(&core->turn);
		if (waits || turn_try(&core->turn)) {
			(void)core_client_tell(core, true);
			core_client_leave(core);
		}
		registry_put(core);
	}
}

/* Unless another thread has ended it meanwhile. */
static void core_service_settle(struct core_service *s)
{
	lock_acquire(&clients.lock);
	/* pairs with the load in core_service_is_settled */
	if (core_client_is_listed(&s->client))
		__atomic_store_n(&s->settled, true, __ATOMIC_RELEASE);
	lock_release(&clients.lock);
}

int core_service_begin(struct core_service *s)
{
	bool waits = turn_self == 0;
	int err;

	if (core_service_is_settled(s))
		return 0;
	driver_probe_all();
	err = core_client_insert(&s->client, &core_client_calls, true);
	if (err && err != -EEXIST)
		return err;
	core_service_tell(waits);
	if (waits)
		core_service_settle(s);
	return 0;
}

void core_service_end(struct core_service *s)
{
	__atomic_store_n(&s->settled, false, __ATOMIC_RELAXED);
	ib_unregister_client(&s->client);
}

/* Entries of the parent's clients are left to the parent's memory: nobody may be called. */
static void core_client_drop_in_child(void) NO_THREAD_SAFETY
{
	list_init(&clients.entries);
}
FORK_TAKES(FORK_CLIENTS, &clients.lock, .child = core_client_drop_in_child);
