/* plug.c: registers devices that appear and unplugs devices that disappear.
 * In: the table of devices (config.c)    Out: registrations, DEVICE_FATAL, clients' remove
 * Runs: the plug thread, one at a time, while the table has changes; core's probe registers the
 * first devices. One thread more for each device that has left and still has users
 * Locks: plug_lock, a leaf
 *
 * The plug thread calls clients and waits for peers, so it is not the engine's. It unplugs before
 * it registers, so that the name of a device that was removed and added again is free.
 */
#include "driver/roce/roce.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
	PLUG_LOOK_US = 1000,   /* between looks at a registration that another thread makes */
	PLUG_SETTLE_US = 100,  /* between looks at the table */
	PLUG_SETTLE_MS = 5000, /* for which a list of devices waits for it at most */
};

/* This thread calls clients: what it waits for would not come. */
static __thread bool plug_is_me;

static struct {
	struct lock plug_lock;
	bool running GUARDED_BY(plug_lock);
	bool again GUARDED_BY(plug_lock); /* the table has changed since the thread's last pass */
} plug;

static int plug_register_one(struct roce_device *dev)
{
	u32 was = __atomic_load_n(&dev->state, __ATOMIC_RELAXED);
	int err;

	if ((was != ROCE_NEW && was != ROCE_REFUSED) ||
	    !__atomic_compare_exchange_n(&dev->state, &was, ROCE_REGISTERING, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return 0;
	err = ib_register_device(&dev->soft.ib);
	if (err != 0)
		log_error("roce", "device %s is not registered: error %d", dev->soft.ib.name, -err);
	/* pairs with the load in plug_out */
	__atomic_store_n(&dev->state, err != 0 ? ROCE_REFUSED : ROCE_REGISTERED, __ATOMIC_RELEASE);
	return err;
}

int adapter_plug_register(void)
{
	int first = 0;

	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct roce_device *dev = adapter_config_device(i);
		int err = dev == NULL ? 0 : plug_register_one(dev);

		if (first == 0)
			first = err;
	}
	return first;
}

/* Ends when the last user has closed the device. */
static void *plug_free(void *arg)
{
	struct roce_device *dev = arg;

	pthread_setname_np(pthread_self(), "anyverbs/unplug");
	ib_unregister_device(&dev->soft.ib);
	adapter_config_forget(dev);
	ib_dealloc_device(&dev->soft.ib);
	return NULL;
}

static void plug_out(struct roce_device *dev)
{
	u32 state;
	int err;

	while ((state = __atomic_load_n(&dev->state, __ATOMIC_ACQUIRE)) == ROCE_REGISTERING)
		usleep(PLUG_LOOK_US);
	adapter_general_remove(dev);
	if (state == ROCE_REGISTERED)
		ib_device_unlist(&dev->soft.ib);
	/* pairs with the load in adapter_config_is_settled */
	__atomic_store_n(&dev->unlisted, true, __ATOMIC_RELEASE);
	if (state != ROCE_REGISTERED)
		/* never registered: no user. Its memory stays, since a probe may hold a pointer to
		 * it */
		return;
	soft_unplug(&dev->soft);
	err = progress_spawn(plug_free, dev);
	if (err != 0)
		log_warn("roce", "clients do not hear that %s is gone: error %d",
			 dev->soft.ib.name, -err);
}

/* False: the table has not changed since the last pass, and the thread ends. */
static bool plug_goes_on(void)
{
	bool again;

	lock_acquire(&plug.plug_lock);
	again = plug.again;
	plug.again = false;
	plug.running = again;
	lock_release(&plug.plug_lock);
	return again;
}

static void *plug_main(void *arg)
{
	struct roce_device *dev;

	pthread_setname_np(pthread_self(), "anyverbs/plug");
	plug_is_me = true;
	while (plug_goes_on()) {
		while ((dev = adapter_config_next_left()) != NULL)
			plug_out(dev);
		(void)adapter_plug_register();
	}
	return NULL;
}

void adapter_plug_changed(void)
{
	bool start;
	int err;

	lock_acquire(&plug.plug_lock);
	plug.again = true;
	start = !plug.running;
	plug.running = true;
	lock_release(&plug.plug_lock);
	err = start ? progress_spawn(plug_main, NULL) : 0;
	if (err == 0)
		return;
	log_warn("roce", "devices that came or went are not shown yet: error %d", -err);
	lock_acquire(&plug.plug_lock);
	plug.running = false;
	lock_release(&plug.plug_lock);
}

void adapter_plug_settle(void)
{
	u64 deadline = clock_now_ns() + PLUG_SETTLE_MS * NS_PER_MS;

	if (plug_is_me || !seat_is_attached(&the_seat) || node_fabric_host() != NULL)
		return;
	while (!adapter_config_is_settled(&the_seat) && clock_now_ns() < deadline)
		usleep(PLUG_SETTLE_US);
}

void adapter_plug_drop_in_child(void) NO_THREAD_SAFETY
{
	lock_init(&plug.plug_lock);
	plug.running = plug.again = false;
}
