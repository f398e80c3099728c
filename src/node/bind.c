/* bind.c: port numbers of the RDMA CM as byte locks on the slots file.
 * In:    spaces, ports and addresses             Out: locks that last as long as the process
 * Runs:  any thread that may sleep               Locks: bind_table.lock
 *
 * The kernel walks all locks of the file for each new one. So a process that has many ports takes
 * further ones, those for which any number will do, from blocks that it locks as one.
 *
 * Locks of one description never meet each other, so the ports of this process are kept in a table
 * as well and compared there.
 */
#include "node/bind.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/log.h"

/* A byte's number: 1, space (2 bits), host of a fabric (16), port (16), address (28: family and
 * what follows). All lie far behind the slots' own bytes. */
enum { BIND_SPACE_SHIFT = 60, BIND_HOST_SHIFT = 44, BIND_PORT_SHIFT = 28, BIND_V6_SHIFT = 27 };
/* Names of domain.c: 1, name (61). They lie between the slots' bytes and the ports'. */
enum { BIND_NAME_BITS = 61 };
/* As the kernel's own default range for sockets. */
enum { BIND_FIRST_FREE = 32768, BIND_LAST_FREE = 60999 };
enum { BIND_BUCKETS = 1024, BIND_SPACES = 4, BIND_PORTS = 1 << 16 };
enum {
	BIND_ALONE = 256, /* ports of a space with a lock of their own, from which on ... */
	BIND_BLOCK = 64,  /* ... blocks of so many ports are locked as one */
	BIND_BLOCK_TRIES = 32,
};

#define BIND_V6 ((u64)1 << BIND_V6_SHIFT)

/* Consecutive ports. No port of a block that is locked has a lock of its own. */
struct bind_block {
	u16 taken;   /* of its ports, while it is locked */
	bool locked; /* for all addresses */
} OWNED_BY(bind_table.lock);

static struct bind_table {
	struct lock lock;
	int fd GUARDED_BY(lock); /* a description of the slots file + 1; 0: none */
	/* of that file: the application may close any descriptor, and use its number */
	dev_t device GUARDED_BY(lock);
	ino_t inode GUARDED_BY(lock);
	bool lost GUARDED_BY(lock); /* a message has said that it did */
	/* struct node_port, by space and port: no range reaches beyond its port */
	struct list_head taken[BIND_BUCKETS] GUARDED_BY(lock);
	struct bind_block blocks[BIND_SPACES][BIND_PORTS / BIND_BLOCK] GUARDED_BY(lock);
	u32 alone[BIND_SPACES] GUARDED_BY(lock); /* ports with a lock of their own */
	/* of the block whose ports are given out now; 0: none. None is given out twice, so that a
	 * number rests */
	u16 next[BIND_SPACES] GUARDED_BY(lock);
	u32 generation GUARDED_BY(lock); /* 0: untouched yet; counts forks */
	u16 host GUARDED_BY(lock); /* of the fabric; 0: none */
} bind_table;

static void bind_forget_all(void) REQUIRES(bind_table.lock)
{
	for (u32 i = 0; i < BIND_BUCKETS; i++)
		list_init(&bind_table.taken[i]);
	memset(bind_table.blocks, 0, sizeof(bind_table.blocks));
	memset(bind_table.alone, 0, sizeof(bind_table.alone));
	memset(bind_table.next, 0, sizeof(bind_table.next));
}

static void bind_prepare(void) REQUIRES(bind_table.lock)
{
	if (bind_table.generation > 0)
		return;
	bind_table.generation = 1;
	bind_forget_all();
}

/* The ports of this process that may share a byte with *p. */
static struct list_head *bind_bucket(const struct node_port *p) REQUIRES(bind_table.lock)
{
	return &bind_table.taken[(p->first >> BIND_PORT_SHIFT) % BIND_BUCKETS];
}

/* ---- which bytes ----------------------------------------------------------------------------- */

/* 27 bits that two addresses share only by chance (FNV-1a). Then one is refused to the second. */
static u64 bind_hash(const struct in6_addr *a)
{
	u64 hash = 0xcbf29ce484222325ull;

	for (u32 i = 0; i < sizeof(a->s6_addr); i++)
		hash = (hash ^ a->s6_addr[i]) * 0x100000001b3ull;
	return (hash ^ hash >> BIND_V6_SHIFT) & (BIND_V6 - 1);
}

static void bind_range_v4(struct node_port *p, const struct in6_addr *mapped)
{
	bool any = memcmp(mapped->s6_addr + 12, &(u32){ INADDR_ANY }, 4) == 0;

	p->first = any ? 0 : bind_hash(mapped);
	p->last = any ? BIND_V6 - 1 : p->first;
}

static void bind_range_v6(struct node_port *p, const struct in6_addr *a, bool v6only)
{
	if (IN6_IS_ADDR_V4MAPPED(a)) {
		bind_range_v4(p, a);
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
	struct in6_addr mapped = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;

	switch (want->addr->sa_family) {
	case AF_INET:
		memcpy(&sin, want->addr, sizeof(sin));
		memcpy(mapped.s6_addr + 12, &sin.sin_addr, 4);
		bind_range_v4(p, &mapped);
		return 0;
	case AF_INET6:
		memcpy(&sin6, want->addr, sizeof(sin6));
		bind_range_v6(p, &sin6.sin6_addr, want->v6only);
		return 0;
	default:
		return -EAFNOSUPPORT;
	}
}

static u64 bind_base(enum node_port_space space, u16 port) REQUIRES(bind_table.lock)
{
	return 1ull << 62 | (u64)space << BIND_SPACE_SHIFT |
	       (u64)bind_table.host << BIND_HOST_SHIFT | (u64)port << BIND_PORT_SHIFT;
}

/* ---- locks ----------------------------------------------------------------------------------- */

/* Tells whether the number still stands for the slots file. */
static bool bind_has_file(void) REQUIRES(bind_table.lock)
{
	struct stat st;
	bool has = fstat(bind_table.fd - 1, &st) == 0 && st.st_dev == bind_table.device &&
		   st.st_ino == bind_table.inode;

	if (!has && !bind_table.lost)
		log_error("node", "the application has closed descriptors of this library: no port "
				  "can be bound, and nobody connected, while this process lives");
	bind_table.lost = !has;
	return has;
}

static int bind_lock(short type, u64 first, u64 last) REQUIRES(bind_table.lock)
{
	struct flock l = { .l_type = type,
			   .l_whence = SEEK_SET,
			   .l_start = (off_t)first,
			   .l_len = (off_t)(last - first + 1) };

	if (bind_table.fd == 0)
		return 0;
	if (!bind_has_file())
		return -EBADF;
	if (fcntl(bind_table.fd - 1, F_OFD_SETLK, &l) == 0)
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
	list_for_each(q, bind_bucket(p), struct node_port, node)
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

		list_for_each(q, bind_bucket(p), struct node_port, node) {
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

/* ---- blocks ---------------------------------------------------------------------------------- */

static u32 bind_space_of(const struct node_port *p)
{
	return (u32)(p->first >> BIND_SPACE_SHIFT) % BIND_SPACES;
}

static u32 bind_number_of(const struct node_port *p)
{
	return (u32)(p->first >> BIND_PORT_SHIFT) % BIND_PORTS / BIND_BLOCK;
}

static struct bind_block *bind_block_of(const struct node_port *p) REQUIRES(bind_table.lock)
{
	return &bind_table.blocks[bind_space_of(p)][bind_number_of(p)];
}

static int bind_block_lock(short type, u32 space, u32 number) REQUIRES(bind_table.lock)
{
	u64 first = bind_base((enum node_port_space)space, (u16)(number * BIND_BLOCK));

	return bind_lock(type, first, first + ((u64)BIND_BLOCK << BIND_PORT_SHIFT) - 1);
}

/* Unlocks a block of which no port is taken, unless ports are given out of it. */
static void bind_block_settle(u32 space, u32 number) REQUIRES(bind_table.lock)
{
	struct bind_block *b = &bind_table.blocks[space][number];
	u16 next = bind_table.next[space];

	if (!b->locked || b->taken > 0 || (next != 0 && next / BIND_BLOCK == number))
		return;
	b->locked = false;
	(void)bind_block_lock(F_UNLCK, space, number);
}

/* Has this process a port of the block? */
static bool bind_block_is_used(u32 space, u32 number) REQUIRES(bind_table.lock)
{
	for (u32 i = 0; i < BIND_BLOCK; i++) {
		struct node_port p = {
			.first = bind_base((enum node_port_space)space,
					   (u16)(number * BIND_BLOCK + i)),
		};

		list_for_each(q, bind_bucket(&p), struct node_port, node)
			if (q->first >> BIND_PORT_SHIFT == p.first >> BIND_PORT_SHIFT)
				return true;
	}
	return false;
}

/* Begins anywhere, so that a number that was just given back rests. */
static u32 bind_random(void)
{
	u32 r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t)sizeof(r))
		r = (u32)(clock_now_ns() * 0x9e3779b97f4a7c15ull >> 32);
	return r;
}

/* Locks a block, out of which ports are given from now on. False: none was found free. */
static bool bind_block_begin(u32 space) REQUIRES(bind_table.lock)
{
	u32 first = BIND_FIRST_FREE / BIND_BLOCK, end = (BIND_LAST_FREE + 1) / BIND_BLOCK;

	for (u32 i = 0; i < BIND_BLOCK_TRIES; i++) {
		u32 number = first + bind_random() % (end - first);
		struct bind_block *b = &bind_table.blocks[space][number];

		if (b->locked || bind_block_is_used(space, number) ||
		    bind_block_lock(F_WRLCK, space, number) != 0)
			continue;
		*b = (struct bind_block){ .locked = true };
		bind_table.next[space] = (u16)(number * BIND_BLOCK);
		return true;
	}
	return false;
}

/* ---- taking and giving ----------------------------------------------------------------------- */

/* Locks the bytes of a port, unless its block is. */
static int bind_hold(const struct node_port *p, short type) REQUIRES(bind_table.lock)
{
	struct bind_block *b = bind_block_of(p);
	int err = b->locked ? 0 : bind_lock(type, p->first, p->last);

	if (err == 0 && b->locked)
		b->taken++;
	else if (err == 0)
		bind_table.alone[bind_space_of(p)]++;
	return err;
}

/* Of a port that has left the list. */
static void bind_let_go(const struct node_port *p) REQUIRES(bind_table.lock)
{
	struct bind_block *b = bind_block_of(p);

	if (b->locked) {
		b->taken--;
		bind_block_settle(bind_space_of(p), bind_number_of(p));
	} else {
		bind_table.alone[bind_space_of(p)]--;
		bind_unlock(p);
	}
}

/* Changes the lock of a port that is held. */
static int bind_change(const struct node_port *p, short type) REQUIRES(bind_table.lock)
{
	return bind_block_of(p)->locked ? 0 : bind_lock(type, p->first, p->last);
}

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
	err = bind_hold(p, want->shared ? F_RDLCK : F_WRLCK);
	if (err < 0)
		return err;
	p->port = port;
	p->shared = want->shared;
	p->generation = bind_table.generation;
	list_push_back(bind_bucket(p), &p->node);
	return 0;
}

/* The next port out of a block. -EADDRINUSE: there is no block. */
static int bind_take_of_block(struct node_port *p, const struct node_port_want *want)
	REQUIRES(bind_table.lock)
{
	u16 *next = &bind_table.next[want->space];
	int err = -EADDRINUSE;

	while (err == -EADDRINUSE && (*next != 0 || bind_block_begin(want->space))) {
		u16 port = *next;

		*next = (port + 1) % BIND_BLOCK == 0 ? 0 : (u16)(port + 1);
		err = bind_take(p, want, port);
		bind_block_settle(want->space, port / BIND_BLOCK);
	}
	return err;
}

static int bind_take_alone(struct node_port *p, const struct node_port_want *want)
	REQUIRES(bind_table.lock)
{
	u32 count = BIND_LAST_FREE - BIND_FIRST_FREE + 1, begin = bind_random() % count;
	int err = -EADDRINUSE;

	for (u32 i = 0; i < count && err == -EADDRINUSE; i++)
		err = bind_take(p, want, (u16)(BIND_FIRST_FREE + (begin + i) % count));
	return err == -EADDRINUSE ? -EADDRNOTAVAIL : err;
}

static int bind_take_any(struct node_port *p, const struct node_port_want *want)
	REQUIRES(bind_table.lock)
{
	struct node_port_want alone = *want;
	int err = -EADDRINUSE;

	/* one that is shared is not free */
	alone.shared = false;
	if (bind_table.alone[want->space] >= BIND_ALONE)
		err = bind_take_of_block(p, &alone);
	if (err == -EADDRINUSE)
		err = bind_take_alone(p, &alone);
	if (err == 0)
		p->shared = want->shared;
	return err;
}

int node_port_take(struct node_port *p, const struct node_port_want *want)
{
	int err;

	lock_acquire(&bind_table.lock);
	bind_prepare();
	err = want->port != 0 ? bind_take(p, want, want->port) : bind_take_any(p, want);
	if (err == 0 && p->shared)
		(void)bind_change(p, F_RDLCK); /* of any: it was taken alone */
	lock_release(&bind_table.lock);
	return err;
}

/* Asks the kernel, which knows the setting and the rights of the namespace: a socket that is
 * bound already is told EACCES before EINVAL, so nothing is bound. */
int node_port_permit(u16 port)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE ? -errno : 0; /* no IPv4: no such ports */
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0) {
		at.sin_port = htons(port);
		if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 && errno == EACCES)
			err = -EACCES;
	}
	close(fd);
	return err;
}

int node_port_own(struct node_port *p)
{
	int err = 0;

	lock_acquire(&bind_table.lock);
	if (p->generation != 0 && p->generation == bind_table.generation && p->shared) {
		err = bind_is_ours(p, false) ? -EADDRINUSE
					     : bind_change(p, F_WRLCK);
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
		bind_let_go(p);
	}
	p->generation = 0;
	lock_release(&bind_table.lock);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void bind_take_block_again(u32 space, u32 number) REQUIRES(bind_table.lock)
{
	if (bind_table.blocks[space][number].locked &&
	    bind_block_lock(F_WRLCK, space, number) < 0)
		log_warn("node", "a port from %u on is another process' too", number * BIND_BLOCK);
}

/* The node that came without the folder has another file. */
static void bind_take_again(void) REQUIRES(bind_table.lock)
{
	for (u32 i = 0; i < BIND_BUCKETS; i++)
		list_for_each(p, &bind_table.taken[i], struct node_port, node)
			if (bind_change(p, p->shared ? F_RDLCK : F_WRLCK) < 0)
				log_warn("node", "port %u of the RDMA CM is another process' too",
					 p->port);
	for (u32 space = 0; space < BIND_SPACES; space++)
		for (u32 i = 0; i < BIND_PORTS / BIND_BLOCK; i++)
			bind_take_block_again(space, i);
}

void bind_use(int slots_fd)
{
	int fd = slots_fd < 0 ? -1 : fd_own_copy(slots_fd);
	struct stat st = { .st_ino = 0 };
	int before;

	if (fd >= 0)
		(void)fstat(fd, &st);
	lock_acquire(&bind_table.lock);
	bind_prepare();
	before = bind_table.fd != 0 && bind_has_file() ? bind_table.fd : 0;
	bind_table.fd = fd + 1;
	bind_table.device = st.st_dev;
	bind_table.inode = st.st_ino;
	bind_take_again();
	lock_release(&bind_table.lock);
	if (before != 0)
		close(before - 1);
}

static u64 bind_name_byte(u64 name)
{
	return 1ull << BIND_NAME_BITS | (name & ((1ull << BIND_NAME_BITS) - 1));
}

int bind_name_lock(short type, u64 name)
{
	u64 byte = bind_name_byte(name);
	int err;

	lock_acquire(&bind_table.lock);
	err = bind_lock(type, byte, byte);
	lock_release(&bind_table.lock);
	return err;
}

bool bind_name_is_held(u64 name)
{
	struct flock l = { .l_type = F_WRLCK,
			   .l_whence = SEEK_SET,
			   .l_start = (off_t)bind_name_byte(name),
			   .l_len = 1 };
	bool held;

	lock_acquire(&bind_table.lock);
	held = bind_table.fd != 0 && bind_has_file() &&
	       fcntl(bind_table.fd - 1, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
	lock_release(&bind_table.lock);
	return held;
}

void bind_set_host(u16 host)
{
	lock_acquire(&bind_table.lock);
	bind_table.host = host;
	lock_release(&bind_table.lock);
}

/* The parent's ports are not the child's. */
static void bind_drop_in_child(void) NO_THREAD_SAFETY
{
	if (bind_table.generation == 0)
		return;
	if (bind_table.fd != 0)
		close(bind_table.fd - 1);
	bind_table.fd = 0;
	bind_forget_all();
	bind_table.generation++;
}
FORK_MAKES_ANEW(FORK_BINDS, &bind_table.lock, .child = bind_drop_in_child);
