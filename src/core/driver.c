/* driver.c: knows the software adapters of this build and asks them for devices when somebody
 * first wants some.
 * In: constructors of driver rooms; doors    Out: ib_driver.probe, lists of devices
 * Runs: the thread that asks    Locks: the probing turn, across probes
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/fork.h"
#include "core/core_priv.h"

static struct {
	/* covers all below; a second asker waits for the first's devices */
	struct turn turn GUARDS_ITSELF;
	struct list_head drivers OWNED_BY(turn.held);
} registry = { .drivers = LIST_HEAD_INIT(registry.drivers) };

/* A constructor's call: no other thread yet. */
void ib_driver_add(struct ib_driver *driver)
{
	list_push_back(&registry.drivers, &driver->node);
}

static bool driver_is_due(const struct ib_driver *driver)
{
	if (driver->result < 0)
		return clock_now_ns() >= driver->retry_at_ns;
	return driver->result == DRIVER_NEW;
}

static void driver_probe_one(struct ib_driver *driver)
{
	int err = driver->probe();

	driver->result = err < 0 ? err : DRIVER_READY;
	if (err < 0) {
		driver->retry_at_ns = clock_now_ns() + NS_PER_S;
		log_debug("core", "driver %s has no device: error %d", driver->name, -err);
	}
}

int driver_probe_all(void)
{
	int first_error = 0;

	if (turn_is_mine(&registry.turn)) /* a probe that asks for devices */
		return 0;
	turn_enter(&registry.turn);
	list_for_each(driver, &registry.drivers, struct ib_driver, node) {
		if (driver_is_due(driver))
			driver_probe_one(driver);
		if (driver->result < 0 && !first_error)
			first_error = driver->result;
	}
	turn_leave(&registry.turn);
	return first_error;
}

/* The list of drivers does not change any more. */
static void driver_drop_in_child(void)
{
	turn_init(&registry.turn);
	list_for_each(driver, &registry.drivers, struct ib_driver, node)
		driver->result = DRIVER_NEW;
}
FORK_MAKES_ANEW(FORK_DRIVERS, &registry.turn.held, .child = driver_drop_in_child);

/* Holds every living device; at most `max` are stored. Returns how many there were. */
static u32 driver_devices_collect(struct ib_device **list, u32 max)
{
	struct ib_device_core *core;
	u64 serial = 0;
	u32 count = 0;

	while ((core = registry_next(serial, true))) {
		serial = core->serial;
		if (count < max)
			list[count] = core->device;
		else
			registry_put(core);
		count++;
	}
	return count;
}

/* Not from within a probe, whose devices are being registered. The list of drivers does not change
 * any more. */
static void driver_settle_all(void) NO_THREAD_SAFETY
{
	if (turn_is_mine(&registry.turn))
		return;
	list_for_each(driver, &registry.drivers, struct ib_driver, node)
		if (driver->settle)
			driver->settle();
}

int ib_uverbs_get_devices(struct ib_device ***list)
{
	int err = driver_probe_all();
	u32 room = 8;

	driver_settle_all();
	for (;;) {
		struct ib_device **found = calloc(room + 1, sizeof(*found));

		if (!found)
			return -ENOMEM;
		u32 count = driver_devices_collect(found, room);

		if (count <= room && (count || !err)) {
			*list = found;
			return (int)count;
		}
		ib_uverbs_put_devices(found);
		if (count <= room)
			return err;
		room = count * 2;
	}
}

void ib_uverbs_put_devices(struct ib_device **list)
{
	if (!list)
		return;
	for (struct ib_device **device = list; *device; device++)
		registry_put((*device)->core);
	free(list);
}
