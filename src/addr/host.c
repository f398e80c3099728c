/* host.c: the instance of this process: it asks the kernel.
 * In:    -            Out: struct addr_instance, begun on first use
 * Runs:  any thread; callbacks on the thread "anyverbs/addr"
 * Locks: none of its own
 */
#include <pthread.h>

#include "addr/addr.h"
#include "base/fork.h"

static const struct addr_ops host_ops = {
	.route = host_route_find,
	.link = host_link_find,
	.address = host_address_find,
	.neighbour = host_neighbour_find,
	.probe = host_neighbour_probe,
	.watch_open = host_watch_open,
	.watch_close = host_watch_close,
	.watch_read = host_watch_read,
};

static struct addr_host {
	pthread_once_t once GUARDS_ITSELF;
	struct work_queue queue GUARDS_ITSELF;
	struct addr_instance instance GUARDS_ITSELF;
	bool begun ATOMIC_ONLY;
} addr_own = { .once = PTHREAD_ONCE_INIT };

/* The only thread. Requests are the parent's, and so is what its watch tells. */
static void addr_host_drop_in_child(void) NO_THREAD_SAFETY
{
	if (!__atomic_load_n(&addr_own.begun, __ATOMIC_ACQUIRE))
		return;
	host_watch_close(&addr_own.instance.watch);
	addr_init(&addr_own.instance, &host_ops, &addr_own.queue);
	work_queue_drop_in_child(&addr_own.queue);
}
FORK_MAKES_ANEW(FORK_ADDR, &addr_own.instance.lock, .child = addr_host_drop_in_child);

static void addr_host_start(void)
{
	work_queue_init(&addr_own.queue, "anyverbs/addr", false);
	addr_init(&addr_own.instance, &host_ops, &addr_own.queue);
	__atomic_store_n(&addr_own.begun, true, __ATOMIC_RELEASE);
}

struct addr_instance *addr_host(void)
{
	pthread_once(&addr_own.once, addr_host_start);
	return &addr_own.instance;
}
