/* request.c: requests for the way to an address.
 *
 * The route is asked for in the caller's thread. A request waits on the queue only while its
 * neighbour is not known: it looks again after 1 ms, 2 ms, ... at most ADDR_AGAIN_NS. A caller that
 * may sleep waits likewise in its own thread, and needs no request.
 * In:    addresses, the kernel's answers      Out: ways, callbacks
 * Runs:  any thread; callbacks on the queue   Locks: addr_instance.lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "addr/addr.h"
#include "base/clock.h"

#define ADDR_FIRST_NS NS_PER_MS
#define ADDR_AGAIN_NS (100 * NS_PER_MS)

struct addr_request {
	struct list_head node OWNED_BY(addr_instance.lock);
	bool cancelled OWNED_BY(addr_instance.lock); /* whoever said so frees it */
	bool telling OWNED_BY(addr_instance.lock);   /* `teller` calls the callback */
	pthread_t teller OWNED_BY(addr_instance.lock);
	struct work work GUARDS_ITSELF;
	struct addr_instance *instance FIXED;
	struct rdma_addr_client *client FIXED;
	struct addr_way way FIXED;
	struct rdma_dev_addr *addr FIXED;
	u64 deadline_ns FIXED;
	u64 wait_ns OWNED_BY(the queue);
	void (*callback)(int status, struct sockaddr *src_addr, struct rdma_dev_addr *addr,
			 void *context) FIXED;
	void *context FIXED;
};

/* ---- ways ------------------------------------------------------------------------------------ */

int addr_route(struct addr_instance *a, const u8 to[16], const u8 *from, u32 ifindex,
	       struct addr_way *out)
{
	static const u8 none[16];
	struct addr_way way;
	bool fixed = from != NULL && memcmp(from, none, 16) != 0;
	int err = a->ops->route(to, fixed ? from : NULL, ifindex, &way.route);

	if (err != 0)
		return err;
	if (fixed)
		memcpy(way.route.source, from, 16);
	memcpy(way.to, to, 16);
	*out = way;
	return 0;
}

static void addr_take_link(const struct host_link *l, struct rdma_dev_addr *out)
{
	memcpy(out->src_dev_addr, l->address, IB_ADDR_LEN);
	memcpy(out->broadcast, l->broadcast, IB_ADDR_LEN);
	out->dev_type = l->type;
	out->bound_dev_if = (int)l->ifindex;
}

/* The route to an address of this host leads to the loopback interface: its own one is looked for.
 */
static u32 addr_interface(struct addr_instance *a, const struct addr_way *way)
{
	u32 ifindex = way->route.ifindex;

	if (way->route.local)
		(void)a->ops->address(way->to, 0, &ifindex);
	return ifindex;
}

int addr_link(struct addr_instance *a, const struct addr_way *way, struct rdma_dev_addr *out)
{
	u32 ifindex = addr_interface(a, way);
	struct in6_addr to;
	struct host_link l;
	int err = a->ops->link(ifindex, &l);

	if (err != 0)
		return err;
	addr_take_link(&l, out);
	out->hoplimit = way->route.hop_limit;
	memset(out->dst_dev_addr, 0, IB_ADDR_LEN);
	memcpy(&to, way->to, sizeof(to));
	if (way->route.local || l.no_arp) {
		memcpy(out->dst_dev_addr, out->src_dev_addr, IB_ADDR_LEN);
		return 0;
	}
	if (rdma_is_multicast_addr(&to)) {
		rdma_get_mcast_mac(&to, out->dst_dev_addr);
		return 0;
	}
	err = addr_neighbour(a, ifindex, way->route.next, out->dst_dev_addr);
	return err == -EOPNOTSUPP ? 0 : err;
}

int addr_link_wait(struct addr_instance *a, const struct addr_way *way, int timeout_ms,
		   struct rdma_dev_addr *out)
{
	u64 now = clock_now_ns(), wait_ns = ADDR_FIRST_NS;
	u64 deadline_ns = now + (u64)MAX(timeout_ms, 0) * NS_PER_MS;
	int err;

	while ((err = addr_link(a, way, out)) == -ENODATA && now < deadline_ns) {
		clock_sleep_ns(MIN(wait_ns, deadline_ns - now));
		wait_ns = MIN(2 * wait_ns, ADDR_AGAIN_NS);
		now = clock_now_ns();
	}
	return err == -ENODATA ? -ETIMEDOUT : err;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Nobody has the request any more. */
static void addr_request_free(struct addr_request *r)
{
	struct addr_instance *a = r->instance;

	lock_acquire(&a->lock);
	a->request_count--;
	if (r->client != NULL)
		r->client->requests--;
	cond_wake(&a->idle);
	lock_release(&a->lock);
	free(r);
}

/* Begins the telling. False: the request is cancelled. */
static bool addr_request_begin_telling(struct addr_request *r)
{
	struct addr_instance *a = r->instance;
	bool mine;

	lock_acquire(&a->lock);
	mine = !r->cancelled;
	if (mine) {
		r->telling = true;
		r->teller = pthread_self();
	}
	lock_release(&a->lock);
	return mine;
}

static void addr_request_tell(struct addr_request *r, int status)
{
	struct addr_instance *a = r->instance;
	struct sockaddr_storage src;
	union ib_gid gid;

	if (!addr_request_begin_telling(r))
		return;
	memset(&src, 0, sizeof(src));
	memcpy(gid.raw, r->way.route.source, 16);
	rdma_gid2ip((struct sockaddr *)&src, &gid);
	r->callback(status, (struct sockaddr *)&src, r->addr, r->context);
	lock_acquire(&a->lock);
	list_remove(&r->node);
	lock_release(&a->lock);
	addr_request_free(r);
}

/* Looks again later. */
static void addr_request_again(struct addr_request *r, u64 now)
{
	struct addr_instance *a = r->instance;

	lock_acquire(&a->lock);
	r->wait_ns = MIN(2 * r->wait_ns, ADDR_AGAIN_NS);
	if (!r->cancelled)
		work_push_at(&r->work, MIN(now + r->wait_ns, r->deadline_ns));
	lock_release(&a->lock);
}

static void addr_request_run(struct work *w)
{
	struct addr_request *r = container_of(w, struct addr_request, work);
	struct rdma_dev_addr found;
	int err = addr_link(r->instance, &r->way, &found);
	u64 now = clock_now_ns();

	if (err == -ENODATA && now < r->deadline_ns) {
		addr_request_again(r, now);
		return;
	}
	if (err == 0)
		*r->addr = found;
	addr_request_tell(r, err == -ENODATA ? -ETIMEDOUT : err);
}

static int addr_request_add(struct addr_instance *a, struct addr_request *r)
{
	int err = -ENOMEM;

	lock_acquire(&a->lock);
	if (a->request_count < ADDR_REQUESTS) {
		a->request_count++;
		if (r->client != NULL)
			r->client->requests++;
		list_push_back(&a->requests, &r->node);
		work_push(&r->work);
		err = 0;
	}
	lock_release(&a->lock);
	return err;
}

int addr_wait(struct addr_instance *a, struct rdma_addr_client *client,
	      const struct addr_way *way, struct rdma_dev_addr *addr, int timeout_ms,
	      void (*callback)(int status, struct sockaddr *src_addr, struct rdma_dev_addr *addr,
			       void *context),
	      void *context)
{
	int err = work_queue_begin(a->queue);
	struct addr_request *r;

	if (err != 0)
		return err;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->instance = a;
	r->client = client;
	r->way = *way;
	r->addr = addr;
	r->deadline_ns = clock_now_ns() + (u64)MAX(timeout_ms, 0) * NS_PER_MS;
	r->wait_ns = ADDR_FIRST_NS / 2;
	r->callback = callback;
	r->context = context;
	work_init(&r->work, a->queue, addr_request_run);
	err = addr_request_add(a, r);
	if (err != 0)
		free(r);
	return err;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Waits until no other thread is in the callback for *addr, and takes the request out of the list.
 * NULL: there is none, or this is its callback. */
static struct addr_request *addr_request_take(struct addr_instance *a,
					      const struct rdma_dev_addr *addr)
	REQUIRES(&a->lock)
{
again:
	list_for_each(r, &a->requests, struct addr_request, node) {
		if (r->addr != addr)
			continue;
		if (r->telling && pthread_equal(r->teller, pthread_self()))
			return NULL;
		if (r->telling) {
			cond_wait(&a->idle, &a->lock);
			goto again;
		}
		r->cancelled = true;
		list_remove(&r->node);
		return r;
	}
	return NULL;
}

void addr_cancel(struct addr_instance *a, const struct rdma_dev_addr *addr)
{
	struct addr_request *r;

	lock_acquire(&a->lock);
	r = addr_request_take(a, addr);
	lock_release(&a->lock);
	if (r == NULL)
		return;
	work_cancel_wait(&r->work);
	addr_request_free(r);
}

void addr_client_wait(struct addr_instance *a, const struct rdma_addr_client *client)
{
	lock_acquire(&a->lock);
	while (client->requests > 0)
		cond_wait(&a->idle, &a->lock);
	lock_release(&a->lock);
}

/* ---- instances ------------------------------------------------------------------------------- */

void addr_init(struct addr_instance *a, const struct addr_ops *ops, struct work_queue *queue)
{
	memset(a, 0, sizeof(*a));
	a->ops = ops;
	a->queue = queue;
	lock_init(&a->lock);
	list_init(&a->requests);
	lock_acquire(&a->lock);
	a->watch.fd = -1;
	lock_release(&a->lock);
}

void addr_close(struct addr_instance *a)
{
	lock_acquire(&a->lock);
	if (a->watch.fd >= 0)
		a->ops->watch_close(&a->watch);
	lock_release(&a->lock);
}
