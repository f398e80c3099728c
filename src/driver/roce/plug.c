/* plug.c: has devices registered that appear, and taken away that disappear.
 * In: the table of devices (config.c)    Out: soft_register, soft_leave
 * Runs: the plug thread, one at a time, while the table has changes; core's probe registers the
 * first devices
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
#include "base/fork.h"
#include "base/thread.h"

enum {
	PLUG_SETTLE_US = 100,  /* between looks at the table */
	PLUG_SETTLE_MS = 5000, /* for which a list of devices waits for it at most */
};

/* This thread calls clients: what it waits for would not come. */
static __thread bool plug_is_me;

static void *plug_main(void *arg);

static struct {
	struct lock plug_lock;
	struct thread thread GUARDS_ITSELF; /* ends when the table has no more changes */
	bool again GUARDED_BY(plug_lock); /* the table has changed since the thread's last pass */
} plug = { .thread = THREAD_INIT("anyverbs/plug", THREAD_STACK, plug_main, NULL) };

int adapter_plug_register(void)
{
	int first = 0;

	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct roce_device *dev = adapter_config_device(i);
		int err = dev == NULL ? 0 : soft_register(&dev->soft);

		if (first == 0)
			first = err;
	}
	return first;
}

/* False: the table has not changed since the last pass, and the thread ends. */
static bool plug_goes_on(void)
{
	bool again;

	lock_acquire(&plug.plug_lock);
	again = plug.again;
	plug.again = false;
	if (!again)
		thread_ended(&plug.thread);
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
			soft_leave(&dev->soft);
		(void)adapter_plug_register();
	}
	return NULL;
}

void adapter_plug_changed(void)
{
	lock_acquire(&plug.plug_lock);
	plug.again = true;
	lock_release(&plug.plug_lock);
	thread_begin_later(&plug.thread);
}

void adapter_plug_settle(void)
{
	u64 deadline = clock_now_ns() + PLUG_SETTLE_MS * NS_PER_MS;

	if (plug_is_me || !seat_is_attached(&the_seat) || node_fabric_host() != NULL)
		return;
	while (!adapter_config_is_settled(&the_seat) && clock_now_ns() < deadline)
		usleep(PLUG_SETTLE_US);
}

/* The plug thread is the parent's. */
static void plug_drop_in_child(void) NO_THREAD_SAFETY
{
	plug.again = false;
	thread_reset_in_child(&plug.thread);
}
FORK_TAKES(FORK_PLUG, &plug.plug_lock, .child = plug_drop_in_child);
