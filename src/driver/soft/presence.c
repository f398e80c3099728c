/* presence.c: registers a device with core, and takes it away again.
 * In: the adapter's wish    Out: registration, DEVICE_FATAL, clients' remove
 * Runs: threads that may call clients and wait for peers, so never the engine's. One thread more
 * (anyverbs/unplug) for each device that has left, which waits for its users
 * Locks: none. `state` decides whose a device is:
 *
 *   NEW, REFUSED -> REGISTERING    one thread alone, which registers it
 *   REGISTERING -> REGISTERED, REFUSED    by that thread; one that wants to take it away waits
 *   NEW, REFUSED, REGISTERED -> LEAVING -> GONE    one thread alone; nothing follows
 */
#include "driver/soft/soft.h"

#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

enum { PRESENCE_LOOK_US = 1000 }; /* between looks at a registration that another thread makes */

/* Pairs with the loads in soft_leave, soft_is_settled and soft_has_left. */
static void presence_set(struct soft_device *dev, enum soft_state state)
{
	__atomic_store_n(&dev->state, state, __ATOMIC_RELEASE);
}

/* False: it was not in this state any more; *was is the present one. */
static bool presence_move(struct soft_device *dev, u32 *was, enum soft_state to)
{
	return __atomic_compare_exchange_n(&dev->state, was, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

int soft_register(struct soft_device *dev)
{
	u32 was = __atomic_load_n(&dev->state, __ATOMIC_RELAXED);
	int err;

	if ((was != SOFT_NEW && was != SOFT_REFUSED) ||
	    !presence_move(dev, &was, SOFT_REGISTERING))
		return 0;
	err = ib_register_device(&dev->ib);
	if (err != 0)
		log_error("device", "device %s is not registered: error %d", dev->ib.name, -err);
	presence_set(dev, err != 0 ? SOFT_REFUSED : SOFT_REGISTERED);
	return err;
}

bool soft_is_settled(const struct soft_device *dev)
{
	u32 state = __atomic_load_n(&dev->state, __ATOMIC_ACQUIRE);

	return state == SOFT_REGISTERED || state == SOFT_REFUSED;
}

bool soft_has_left(const struct soft_device *dev)
{
	return __atomic_load_n(&dev->state, __ATOMIC_ACQUIRE) == SOFT_GONE;
}

/* True, with a warning: consumers have not freed everything before their removes returned. Other
 * objects stand on these, but for device memory and counters. */
static bool presence_is_in_use(const struct soft_device *dev)
{
	u32 pds = __atomic_load_n(&dev->pd_count, __ATOMIC_RELAXED);
	u32 cqs = __atomic_load_n(&dev->cq_count, __ATOMIC_RELAXED);
	u32 srqs = __atomic_load_n(&dev->srq_count, __ATOMIC_RELAXED);
	u32 xrcds = __atomic_load_n(&dev->xrcd_count, __ATOMIC_RELAXED);
	u32 tables = __atomic_load_n(&dev->table_count, __ATOMIC_RELAXED);

	if ((pds | cqs | srqs | xrcds | tables) == 0)
		return false;
	log_warn("device",
		 "device %s has gone, but domains (%u), CQs (%u), SRQs (%u), XRC domains "
		 "(%u), tables of work queues (%u) of it are left",
		 dev->ib.name, pds, cqs, srqs, xrcds, tables);
	return true;
}

/* Ends when the last user has closed the device. Its memory stays for those that end an object
 * later. */
static void *presence_unregister(void *arg)
{
	struct soft_device *dev = arg;

	pthread_setname_np(pthread_self(), "anyverbs/unplug");
	ib_unregister_device(&dev->ib);
	if (!presence_is_in_use(dev) && dev->kind->closed != NULL)
		dev->kind->closed(dev);
	return NULL;
}

/* The state before; SOFT_LEAVING, SOFT_GONE: it is not this call's to take away. */
static enum soft_state presence_claim(struct soft_device *dev)
{
	u32 was = __atomic_load_n(&dev->state, __ATOMIC_ACQUIRE);

	while (was != SOFT_LEAVING && was != SOFT_GONE) {
		if (was != SOFT_REGISTERING && presence_move(dev, &was, SOFT_LEAVING))
			break;
		usleep(PRESENCE_LOOK_US);
		was = __atomic_load_n(&dev->state, __ATOMIC_ACQUIRE);
	}
	return (enum soft_state)was;
}

void soft_leave(struct soft_device *dev)
{
	enum soft_state was = presence_claim(dev);

	if (was == SOFT_LEAVING || was == SOFT_GONE)
		return;
	dev->kind->leave(dev);
	if (was == SOFT_REGISTERED)
		ib_device_unlist(&dev->ib);
	presence_set(dev, SOFT_GONE);
	if (was != SOFT_REGISTERED) {
		/* No user. Its memory stays, since a probe may hold a pointer to it. */
		soft_set_removed(dev);
		return;
	}
	soft_unplug(dev);
	while (thread_start("anyverbs/unplug", THREAD_STACK, NULL, presence_unregister, dev) != 0)
		usleep(THREAD_AGAIN_MS * 1000);
}
