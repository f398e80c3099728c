/* bind.c: port numbers of the RDMA CM as byte locks on the slots file.
 * In:    spaces, ports and addresses             Out: locks that last as long as the process
 * Runs:  any thread that may sleep               Locks: bind_table.lock
 *
 * Locks of one description never meet each other, so the ports of this process are kept in a list
 * as well and compared there.
 */
#include "node/bind.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

/* A byte's number: 1, space (2 bits), port (16), address (44 bits: family and what follows). All
 * lie far behind the slots' own bytes. */
enum { BIND_SPACE_SHIFT = 60, BIND_PORT_SHIFT = 44, BIND_V6_SHIFT = 43 };
/* As the kernel's own default range for sockets. */
enum { BIND_FIRST_FREE = 32768, BIND_LAST_FREE = 60999 };

#define BIND_V6 (1ull << BIND_V6_SHIFT)

static struct bind_table {
	struct lock lock;
	int fd GUARDED_BY(lock); /* a description of the slots file + 1; 0: none */
	struct list_head taken GUARDED_BY(lock); /* struct node_port */
	u32 generation GUARDED_BY(lock); /* 0: untouched yet; counts forks */
} bind_table;

static void bind_prepare(void) REQUIRES(bind_table.lock)
{
	if (bind_table.generation > 0)
		return;
	bind_table.generation = 1;
	list_init(&bind_table.taken);
}

/* ---- which bytes ----------------------------------------------------------------------------- */

/* 43 bits that two addresses share only by chance (FNV-1a). Then one is refused to the second. */
static u64 bind_hash(const struct in6_addr *a)
{
	u64 hash = 0xcbf29ce484222325ull;

	for (u32 i = 0; i < sizeof(a->s6_addr); i++)
		hash = (hash ^ a->s6_addr[i]) * 0x100000001b3ull;
	return (hash ^ hash >> BIND_V6_SHIFT) & (BIND_V6 - 1);
}

static void bind_range_v4(struct node_port *p, u32 address)
{
	p->first = address;
	p->last = address != INADDR_ANY ? address : BIND_V6 - 1;
}

static void bind_range_v6(struct node_port *p, const struct in6_addr *a, bool v6only)
{
	u32 v4;

	if (IN6_IS_ADDR_V4MAPPED(a)) {
		memcpy(&v4, a->s6_addr + 12, sizeof(v4));
		bind_range_v4(p, ntohl(v4));
	} else if (IN6_IS_ADDR_UNSPECIFIED(a)) {
		p->first = v6only ? BIND_V6 : 0;
		p->last = 2 * BIND_V6 - 1;
	} else {
		p->first = p->last = BIND_V6 | bind_hash(a);
	}
}

/* The bytes of the address, without space and port. */
static int bind_range(struct node_port *p, const struct node_port_want *want)
{
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;

	switch (want->addr->sa_family) {
	case AF_INET:
		memcpy(&sin, want->addr, sizeof(sin));
		bind_range_v4(p, ntohl(sin.sin_addr.s_addr));
		return 0;
	case AF_INET6:
		memcpy(&sin6, want->addr, sizeof(sin6));
		bind_range_v6(p, &sin6.sin6_addr, want->v6only);
		return 0;
	default:
		return -EAFNOSUPPORT;
	}
}

static u64 bind_base(enum node_port_space space, u16 port)
{
	return 1ull << 62 | (u64)space << BIND_SPACE_SHIFT | (u64)port << BIND_PORT_SHIFT;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static int bind_lock(short type, u64 first, u64 last) REQUIRES(bind_table.lock)
{
	struct flock l = { .l_type = type,
			   .l_whence = SEEK_SET,
			   .l_start = (off_t)first,
			   .l_len = (off_t)(last - first + 1) };

	if (bind_table.fd == 0 || fcntl(bind_table.fd - 1, F_OFD_SETLK, &l) == 0)
		return 0;
	return errno == EAGAIN || errno == EACCES ? -EADDRINUSE : -errno;
}

static bool bind_overlaps(const struct node_port *a, const struct node_port *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* Whether another port of this process keeps *p from being taken. */
static bool bind_is_ours(const struct node_port *p, bool shared) REQUIRES(bind_table.lock)
{
	list_for_each(q, &bind_table.taken, struct node_port, node)
		if (q != p && bind_overlaps(p, q) && !(shared && q->shared))
			return true;
	return false;
}

/* Unlocks the bytes of a port that has left the list, but for those that others of this process
 * have. */
static void bind_unlock(const struct node_port *p) REQUIRES(bind_table.lock)
{
	u64 at = p->first;

	while (at <= p->last) {
		u64 end = p->last; /* of the bytes from `at` on that nobody else has */
		u64 skip = 0;	   /* somebody else has those up to here */

		list_for_each(q, &bind_table.taken, struct node_port, node) {
			if (q->first <= at && at <= q->last)
				skip = q->last + 1;
			else if (q->first > at && q->first <= end)
				end = q->first - 1;
		}
		if (skip == 0)
			(void)bind_lock(F_UNLCK, at, end);
		at = skip != 0 ? skip : end + 1;
	}
}

/* ---- taking and giving ----------------------------------------------------------------------- */

static int bind_take(struct node_port *p, const struct node_port_want *want, u16 port)
	REQUIRES(bind_table.lock)
{
	u64 base = bind_base(want->space, port);
	int err = bind_range(p, want);

	if (err < 0)
		return err;
	p->first += base;
	p->last += base;
	if (bind_is_ours(p, want->shared))
		return -EADDRINUSE;
	err = bind_lock(want->shared ? F_RDLCK : F_WRLCK, p->first, p->last);
	if (err < 0)
		return err;
	p->port = port;
	p->shared = want->shared;
	p->generation = bind_table.generation;
	list_push_back(&bind_table.taken, &p->node);
	return 0;
}

/* Begins anywhere, so that a number that was just given back rests. */
static u32 bind_random(void)
{
	u32 r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t)sizeof(r))
		r = (u32)(clock_now_ns() * 0x9e3779b97f4a7c15ull >> 32);
	return r;
}

static int bind_take_any(struct node_port *p, const struct node_port_want *want)
	REQUIRES(bind_table.lock)
{
	u32 count = BIND_LAST_FREE - BIND_FIRST_FREE + 1, begin = bind_random() % count;
	struct node_port_want alone = *want;
	int err;

	/* one that is shared is not free */
	alone.shared = false;
	for (u32 i = 0; i < count; i++) {
		err = bind_take(p, &alone, (u16)(BIND_FIRST_FREE + (begin + i) % count));
		if (err == 0)
			p->shared = want->shared;
		if (err != -EADDRINUSE)
			return err;
	}
	return -EADDRNOTAVAIL;
}

int node_port_take(struct node_port *p, const struct node_port_want *want)
{
	int err;

	lock_acquire(&bind_table.lock);
	bind_prepare();
	err = want->port != 0 ? bind_take(p, want, want->port) : bind_take_any(p, want);
	if (err == 0 && p->shared)
		(void)bind_lock(F_RDLCK, p->first, p->last); /* of any: it was taken alone */
	lock_release(&bind_table.lock);
	return err;
}

int node_port_own(struct node_port *p)
{
	int err = 0;

	lock_acquire(&bind_table.lock);
	if (p->generation != 0 && p->generation == bind_table.generation && p->shared) {
		err = bind_is_ours(p, false) ? -EADDRINUSE
					     : bind_lock(F_WRLCK, p->first, p->last);
		if (err == 0)
			p->shared = false;
	}
	lock_release(&bind_table.lock);
	return err;
}

void node_port_give(struct node_port *p)
{
	lock_acquire(&bind_table.lock);
	if (p->generation != 0 && p->generation == bind_table.generation) {
		list_remove(&p->node);
		bind_unlock(p);
	}
	p->generation = 0;
	lock_release(&bind_table.lock);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The node that came without the folder has another file. */
static void bind_take_again(void) REQUIRES(bind_table.lock)
{
	list_for_each(p, &bind_table.taken, struct node_port, node)
		if (bind_lock(p->shared ? F_RDLCK : F_WRLCK, p->first, p->last) < 0)
			log_warn("node", "port %u of the RDMA CM is another process' too", p->port);
}

void bind_use(int slots_fd)
{
	int fd = slots_fd < 0 ? -1 : fcntl(slots_fd, F_DUPFD_CLOEXEC, 0);
	int before;

	lock_acquire(&bind_table.lock);
	bind_prepare();
	before = bind_table.fd;
	bind_table.fd = fd + 1;
	bind_take_again();
	lock_release(&bind_table.lock);
	if (before != 0)
		close(before - 1);
}

/* another thread of the parent may have held the lock */
void bind_drop_in_child(void) NO_THREAD_SAFETY
{
	lock_init(&bind_table.lock);
	if (bind_table.fd != 0)
		close(bind_table.fd - 1);
	bind_table.fd = 0;
	list_init(&bind_table.taken);
	bind_table.generation++;
}
