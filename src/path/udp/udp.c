/* udp.c: the path's table: destinations, when to poll the sockets, the port's state.
 *
 * An empty poll costs next to nothing while no queue pair uses this path. Polls make the system
 * call that looks at the sockets only while datagrams come (`credit`), and at intervals while a
 * queue pair holds a destination. Any other datagram wakes a sleeping thread through epoll_fd; it
 * calls udp_look, which renews the credit.
 *
 * In: packets of the engine, datagrams    Out: datagrams, calls of path_user
 * Runs: any thread; receiving is one thread at a time    Locks: poll_lock, then tx_lock, then lock
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum {
	UDP_CREDIT = 16384, /* polls behind a datagram that look for the next one */
	UDP_HOT = 256,      /* of those, the first, which all look ... */
	UDP_EAGER = 4,      /* ... and then one of so many */
	UDP_LAZY = 64,      /* without credit, one of so many while there are connections */
};

/* ---- destinations ---- */

static struct path_dest *udp_dest_get(struct path *p, const struct path_av *av, u32 qpn)
{
	struct udp *udp = udp_of(p);
	struct udp_key key = { .flow_label = av->flow_label,
			       .slot = (u16)(qpn >> NODE_INDEX_BITS),
			       .traffic_class = av->traffic_class,
			       .hops = av->hop_limit == 0 ? UDP_DEFAULT_HOPS : av->hop_limit,
			       .lane = lanes_of(udp, av->sport) };
	struct udp_dest *d;

	memcpy(key.remote, av->dgid, 16);
	memcpy(key.local, av->sgid, 16);
	lock_acquire(&udp->lock);
	d = dest_look(udp, &key);
	if (unlikely(d == NULL && key.lane != 0)) {
		lock_release(&udp->lock);
		lanes_open(udp, &key, av->sport);
		lock_acquire(&udp->lock);
	}
	if (d == NULL)
		d = dest_find(udp, &key);
	if (d != NULL)
		d->refs++;
	lock_release(&udp->lock);
	if (d == NULL)
		return NULL;
	__atomic_fetch_add(&udp->connections, 1, __ATOMIC_RELAXED);
	path_wake(&udp->path);
	return &d->dest;
}

struct path_dest *udp_group_dest(struct udp *udp, const struct path_av *av)
{
	struct path_av to = *av;

	group_gid(av->dgid, to.dgid);
	to.sport = 0;
	if (roce_gid_is_ipv4(to.dgid) != roce_gid_is_ipv4(av->sgid) ||
	    !udp_has_source(udp, av->sgid))
		return NULL;
	return udp_dest_get(&udp->path, &to, UDP_GROUP_QPN);
}

static void udp_dest_hold(struct path_dest *dest)
{
	struct udp_dest *d = udp_dest_of(dest);

	lock_acquire(&d->udp->lock);
	d->refs++;
	lock_release(&d->udp->lock);
	__atomic_fetch_add(&d->udp->connections, 1, __ATOMIC_RELAXED);
}

static void udp_dest_put(struct path_dest *dest)
{
	struct udp_dest *d = udp_dest_of(dest);
	struct udp *udp = d->udp;

	lock_acquire(&udp->lock);
	d->refs--;
	lock_release(&udp->lock);
	__atomic_fetch_sub(&udp->connections, 1, __ATOMIC_RELAXED);
}

static struct path_dest *udp_dest_nowhere(struct path *p)
{
	struct udp *udp = udp_of(p);

	udp_dest_hold(&udp->nowhere->dest);
	return &udp->nowhere->dest;
}

/* The kernel resolves addresses by itself. */
static int udp_dest_resolve(struct path_dest *d)
{
	return udp_dest_of(d)->nowhere ? -ENETUNREACH : 0;
}

static bool udp_dest_same(const struct path_dest *d, const struct path_dest *from)
{
	const struct udp_dest *a = container_of(d, const struct udp_dest, dest);
	const struct udp_dest *b = container_of(from, const struct udp_dest, dest);

	return memcmp(a->key.remote, b->key.remote, 16) == 0 &&
	       memcmp(a->key.local, b->key.local, 16) == 0;
}

static bool udp_dest_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	return false; /* unknown on this path */
}

static int udp_direct(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		      int iovcnt)
{
	return -EOPNOTSUPP;
}

static bool udp_pullable(struct path_dest *d)
{
	return false;
}

static int udp_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
		    const struct iovec *ours, int m, u64 bytes)
{
	return -EOPNOTSUPP;
}

/* ---- receiving ---- */

/* System calls inside a verb go through syscall(): their functions are cancellation points, and
 * locks are held. */
int udp_ready(const struct udp *udp, struct epoll_event *ev, int max)
{
	long n = syscall(SYS_epoll_pwait, udp->epoll_fd, ev, max, 0, NULL, 0);

	/* The sockets that the events point to are complete: pairs with the release in
	 * sockets_add. */
	(void)__atomic_load_n(&udp->sockets_shown, __ATOMIC_ACQUIRE);
	return n < 0 ? 0 : (int)n;
}

/* Deferred work, when no datagram has come. */
static void udp_idle(struct udp *udp) REQUIRES(udp->poll_lock)
{
	list_for_each_safe(d, &udp->owing, struct udp_dest, owing) {
		udp->path.user_ops->batch_end(udp->path.user, &d->dest, true);
		if (!path_owes_acks(&d->dest))
			list_remove(&d->owing);
	}
	if (unlikely(__atomic_load_n(&udp->dest_count, __ATOMIC_RELAXED) > UDP_DESTS_KEPT))
		dest_reap(udp);
}

/* Tells whether this poll looks at the sockets. */
static bool udp_wants_look(struct udp *udp)
{
	u32 polls = __atomic_load_n(&udp->polls, __ATOMIC_RELAXED) + 1;
	u32 credit = __atomic_load_n(&udp->credit, __ATOMIC_RELAXED);

	__atomic_store_n(&udp->polls, polls, __ATOMIC_RELAXED);
	if (credit == 0)
		return polls % UDP_LAZY == 0;
	__atomic_store_n(&udp->credit, credit - 1, __ATOMIC_RELAXED);
	return credit > UDP_CREDIT - UDP_HOT || polls % UDP_EAGER == 0;
}

/* Nothing has come at the usual sockets, and the engine requests proof that no packet is left
 * anywhere. */
static NOINLINE int udp_find_empty(struct udp *udp, int budget) REQUIRES(udp->poll_lock)
{
	int n = receive_everywhere(udp, budget);

	if (n == 0) {
		__atomic_store_n(&udp->empty_wanted, false, __ATOMIC_RELAXED);
		path_found_empty(&udp->path);
	}
	return n;
}

static int udp_poll_locked(struct udp *udp, int budget) REQUIRES(udp->poll_lock)
{
	int n = receive_some(udp, budget);

	if (n == 0 && unlikely(__atomic_load_n(&udp->empty_wanted, __ATOMIC_RELAXED)))
		n = udp_find_empty(udp, budget);
	if (n != 0)
		__atomic_store_n(&udp->credit, UDP_CREDIT, __ATOMIC_RELAXED);
	else
		udp_idle(udp);
	if (unlikely(__atomic_load_n(&udp->any_stuck, __ATOMIC_RELAXED)))
		send_retry(udp);
	return n;
}

/* `must` makes no difference: a sleeping thread watches the sockets themselves. */
static int udp_poll(struct path *p, int budget, bool must)
{
	struct udp *udp = udp_of(p);
	int n;

	if (likely(__atomic_load_n(&udp->connections, __ATOMIC_RELAXED) == 0 &&
		   __atomic_load_n(&udp->credit, __ATOMIC_RELAXED) == 0))
		return 0;
	if (!__atomic_load_n(&udp->any_rest, __ATOMIC_RELAXED) && !udp_wants_look(udp) && !must)
		return 0;
	if (must)
		lock_acquire(&udp->poll_lock);
	else if (!lock_try(&udp->poll_lock))
		return 0;
	n = udp_poll_locked(udp, budget);
	lock_release(&udp->poll_lock);
	return n;
}

/* Has the very next poll look. */
static void udp_look_next(struct udp *udp)
{
	__atomic_store_n(&udp->credit, UDP_CREDIT, __ATOMIC_RELAXED);
	path_wake(&udp->path);
	__atomic_store_n(&udp->polls, UDP_LAZY - 1, __ATOMIC_RELAXED);
}

bool udp_look(struct udp *udp)
{
	struct epoll_event ev;

	if (!__atomic_load_n(&udp->any_rest, __ATOMIC_RELAXED) && udp_ready(udp, &ev, 1) == 0)
		return false;
	udp_look_next(udp);
	return true;
}

static void udp_want_look(struct path *p)
{
	struct udp *udp = udp_of(p);

	__atomic_store_n(&udp->empty_wanted, true, __ATOMIC_RELAXED);
	udp_look_next(udp);
}

int udp_wait_fd(const struct udp *udp)
{
	return udp->epoll_fd;
}

static void udp_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	struct udp *udp = udp_of(p);

	lock_acquire(&udp->poll_lock);
	fn(arg);
	lock_release(&udp->poll_lock);
}

static const struct path_ops udp_ops = {
	.name = "udp",
	.dest_get = udp_dest_get,
	.dest_nowhere = udp_dest_nowhere,
	.dest_hold = udp_dest_hold,
	.dest_put = udp_dest_put,
	.resolve = udp_dest_resolve,
	.same = udp_dest_same,
	.send = send_packet,
	.flush = send_flush,
	.batches_lost = send_batches_lost,
	.peer_silent = send_peer_silent,
	.direct = udp_direct,
	.pullable = udp_pullable,
	.pull = udp_pull,
	.poll = udp_poll,
	.want_look = udp_want_look,
	.holds = udp_dest_holds,
	.exclude = udp_exclude,
};

/* ---- open and close ---- */

static int udp_open(struct udp *udp) NO_THREAD_SAFETY /* not yet visible to other threads */
{
	list_init(&udp->owing);
	list_init(&udp->heard);
	list_init(&udp->groups);
	list_init(&udp->stuck);
	udp->inbox = inbox_create();
	if (udp->inbox == NULL || dest_open(udp) != 0)
		return -ENOMEM;
	udp->epoll_fd = fd_own(epoll_create1(EPOLL_CLOEXEC));
	return udp->epoll_fd < 0 ? -errno : 0;
}

static void udp_close(struct udp *udp) NO_THREAD_SAFETY /* visible to no other thread any more */
{
	sockets_close_all(udp);
	group_free_all(udp);
	dest_free_all(udp);
	send_free_spare(udp);
	inbox_destroy(udp->inbox);
	if (udp->epoll_fd >= 0)
		close(udp->epoll_fd);
	free(udp);
}

struct udp *udp_create(const struct udp_config *cfg, int *err)
{
	struct udp *udp = aligned_alloc(CACHE_LINE, sizeof(*udp));

	*err = -ENOMEM;
	if (udp == NULL)
		return NULL;
	memset(udp, 0, sizeof(*udp));
	udp->cfg = *cfg;
	udp->epoll_fd = -1;
	__atomic_store_n(&udp->connect_ports, (u32)(clock_now_ns() / NS_PER_US), __ATOMIC_RELAXED);
	udp->path.ops = &udp_ops;
	udp->path.idle = true;
	udp->path.counters = cfg->counters;
	udp->path.guarantees = (struct path_guarantees){ .mtu = ROCE_MTU_MAX };
	*err = udp_open(udp);
	if (*err != 0) {
		udp_close(udp);
		return NULL;
	}
	return udp;
}

void udp_destroy(struct udp *udp)
{
	udp_close(udp);
}

struct path *udp_path(struct udp *udp)
{
	return &udp->path;
}
