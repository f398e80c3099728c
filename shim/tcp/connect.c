/* connect.c: connects by rsocket, and by TCP where nobody answers.
 * In: connect()    Out: a connection of one of the two kinds
 * Runs: any thread    Locks: table.lock; silent.lock, a leaf
 *
 * The node of this host, and that of a host that has one, refuse at once what nobody listens for. A
 * host without rsockets says nothing: connect() waits CONNECT_MS for it, and for SILENT_MS asks it
 * no more. Also a non-blocking socket waits that long, and then says EINPROGRESS: programs know
 * that of TCP, and some, Java's selectors among them, wait for the socket to become writable.
 *
 * A port below 1,024 of another host is TCP's, unless ANYVERBS_LOW_PORTS names it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "rsockets.h"

NEXT_SLOT(connect);
NEXT_SLOT(dup3);

enum { CONNECT_MS = 1000, SILENT_MS = 60000, SILENT_HOSTS = 64 };

struct silent_host {
	u8 address[16];
	u64 until_ms;
} OWNED_BY(silent.lock);

/* Hosts that do not answer. */
static struct {
	struct lock lock;
	struct silent_host hosts[SILENT_HOSTS] GUARDED_BY(lock);
	u32 next GUARDED_BY(lock);
} silent;
FORK_TAKES(FORK_SHIM_SILENT, &silent.lock);

/* An IPv4 address in IPv6's clothes becomes itself, which is what rsockets take. */
static bool connect_target(const struct sockaddr *addr, socklen_t size, struct address *out)
{
	const struct sockaddr_in6 *six = (const void *)addr;
	struct sockaddr_in *four = (void *)&out->store;

	if (addr == NULL || size < sizeof(*four) || size > sizeof(out->store))
		return false;
	memset(out, 0, sizeof(*out));
	if (addr->sa_family == AF_INET6 && size >= sizeof(*six) &&
	    IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
		four->sin_family = AF_INET;
		four->sin_port = six->sin6_port;
		memcpy(&four->sin_addr, six->sin6_addr.s6_addr + 12, 4);
		out->size = sizeof(*four);
		return true;
	}
	memcpy(&out->store, addr, size);
	out->size = addr->sa_family == AF_INET ? sizeof(*four) : sizeof(*six);
	return addr->sa_family == AF_INET || (addr->sa_family == AF_INET6 && size >= sizeof(*six));
}

/* TCP's port below 1,024 is a privileged program's, and clients trust it for that. An RDMA port
 * need not be: the first node of a host has the host's addresses, and may be any user's. So RDMA
 * leads to such a port only in this node, which is this user's, or where the user says so. */
static bool connect_trusts(const struct address *a)
{
	const struct sockaddr_in6 *six = (const void *)&a->store;
	const struct sockaddr_in *four = (const void *)&a->store;
	bool v4 = a->store.ss_family == AF_INET, named = false;
	u16 port = ntohs(v4 ? four->sin_port : six->sin6_port);
	const char *value;

	if (port >= IPPORT_RESERVED ||
	    (v4 ? four->sin_addr.s_addr == htonl(INADDR_LOOPBACK)
		: IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)))
		return true;
	value = env_text("ANYVERBS_LOW_PORTS");
	if (value != NULL && !env_means_ports(value, port, &named))
		env_refuse("ANYVERBS_LOW_PORTS", value, "ports, or all");
	return named;
}

static void silent_key(const struct address *a, u8 key[16])
{
	memset(key, 0, 16);
	if (a->store.ss_family == AF_INET)
		memcpy(key + 12, &((const struct sockaddr_in *)&a->store)->sin_addr, 4);
	else
		memcpy(key, &((const struct sockaddr_in6 *)&a->store)->sin6_addr, 16);
}

static bool silent_is(const struct address *a)
{
	u64 now = now_ms();
	bool found = false;
	u8 key[16];

	silent_key(a, key);
	lock_acquire(&silent.lock);
	for (u32 i = 0; i < SILENT_HOSTS && !found; i++)
		found = silent.hosts[i].until_ms > now &&
			memcmp(silent.hosts[i].address, key, 16) == 0;
	lock_release(&silent.lock);
	return found;
}

static void silent_add(const struct address *a)
{
	u8 key[16];

	silent_key(a, key);
	lock_acquire(&silent.lock);
	memcpy(silent.hosts[silent.next].address, key, 16);
	silent.hosts[silent.next].until_ms = now_ms() + SILENT_MS;
	silent.next = (silent.next + 1) % SILENT_HOSTS;
	lock_release(&silent.lock);
}

/* Each descriptor of the sock becomes one of `with`. `fd` is one of them. */
static int connect_replace(const struct sock *s, int fd, int with)
{
	u32 others = s->slots - 1;

	if (NEXT(dup3)(with, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
		return -1;
	for (int i = 0; i < FD_LIMIT && others > 0; i++) {
		if (i == fd || __atomic_load_n(&table_socks[i], __ATOMIC_ACQUIRE) != s)
			continue;
		(void)NEXT(dup3)(with, i, fcntl(i, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
		others--;
	}
	return fd;
}

/* The pair of a connection; pair[0] is `fd`, or if that is -1 a new descriptor. */
static int connect_pair(const struct sock *s, int fd, int flags, int pair[2])
{
	int moved;

	if (socketpair(AF_UNIX, SOCK_STREAM | (flags & (SOCK_NONBLOCK | SOCK_CLOEXEC)), 0, pair) !=
	    0)
		return -1;
	pair[1] = fd_own(pair[1]);
	(void)fcntl(pair[1], F_SETFD, FD_CLOEXEC);
	(void)fcntl(pair[1], F_SETFL, O_NONBLOCK);
	if (fd < 0)
		return 0;
	moved = connect_replace(s, fd, pair[0]);
	close(pair[0]);
	pair[0] = moved;
	if (moved >= 0)
		return 0;
	close(pair[1]);
	return -1;
}

/* As the program's address family has it: a listener of IPv6 hears of IPv4's peers, too. */
static void connect_name(struct address *a, int domain)
{
	const struct sockaddr_in four = *(const struct sockaddr_in *)&a->store;
	struct sockaddr_in6 *six = (void *)&a->store;

	if (domain != AF_INET6 || a->store.ss_family != AF_INET)
		return;
	memset(six, 0, sizeof(*six));
	six->sin6_family = AF_INET6;
	six->sin6_port = four.sin_port;
	six->sin6_addr.s6_addr[10] = six->sin6_addr.s6_addr[11] = 0xff;
	memcpy(six->sin6_addr.s6_addr + 12, &four.sin_addr, 4);
	a->size = sizeof(*six);
}

/* A node's device has a loopback address of its own; TCP would have taken 127.0.0.1, and servers
 * look for that. */
static void connect_loopback(struct address *a)
{
	struct sockaddr_in6 *six = (void *)&a->store;
	struct sockaddr_in *four = (void *)&a->store;
	in_addr_t localhost = htonl(INADDR_LOOPBACK);

	if (a->size == 0)
		return;
	if (four->sin_family == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
		four->sin_addr.s_addr = localhost;
	if (six->sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) &&
	    six->sin6_addr.s6_addr[12] == IN_LOOPBACKNET)
		memcpy(six->sin6_addr.s6_addr + 12, &localhost, sizeof(localhost));
}

/* The address that the program has not named itself, a client's own or a server's peer's, is as
 * TCP's. */
static void connect_names(struct sock *s, bool client)
{
	bool bound = s->local.size != 0;

	s->local.size = s->peer.size = sizeof(s->local.store);
	if (rcalls.getsockname(s->rfd, (void *)&s->local.store, &s->local.size) != 0)
		s->local.size = 0;
	if (rcalls.getpeername(s->rfd, (void *)&s->peer.store, &s->peer.size) != 0)
		s->peer.size = 0;
	if (!client || !bound)
		connect_loopback(client ? &s->local : &s->peer);
	connect_name(&s->local, s->domain);
	connect_name(&s->peer, s->domain);
}

/* Makes a sock that has begun as a TCP socket, or a new one, that of the rsocket. */
static int connection_become(struct sock *s, int fd, int rfd, int flags)
{
	bool nonblock = (flags & SOCK_NONBLOCK) != 0;
	int pair[2];

	__atomic_store_n(&s->nonblock, nonblock, __ATOMIC_RELAXED);
	s->rfd = rfd;
	connect_names(s, fd >= 0);
	(void)rcalls.fcntl(rfd, F_SETFL, nonblock ? O_NONBLOCK : 0);
	if (connect_pair(s, fd, flags, pair) != 0)
		return -1;
	s->far = pair[1];
	inherit_name(s->far, s);
	(void)service_begin(); /* _exit() in a signal handler finds it */
	sock_set_kind(s, SOCK_DIRECT);
	return pair[0];
}

int connection_open(int rfd, int domain, int flags)
{
	struct sock *s = sock_new(SOCK_DIRECT, domain);
	int fd, saved;

	if (s == NULL) {
		rsocket_end(rfd);
		errno = ENOMEM;
		return -1;
	}
	fd = connection_become(s, -1, rfd, flags);
	if (fd >= FD_LIMIT) {
		close(fd);
		errno = EMFILE;
		fd = -1;
	}
	if (fd >= 0) {
		table_add(fd, s);
		return fd;
	}
	saved = errno;
	sock_put(s);
	errno = saved;
	return -1;
}

/* Waits for the end of a connect that has begun. 0, or an errno. */
static int connect_await(int rfd)
{
	struct pollfd p = { .fd = rfd, .events = POLLOUT };
	u64 until = now_ms() + CONNECT_MS, now;
	socklen_t size = sizeof(int);
	int err, ready;

	for (;;) {
		now = now_ms();
		ready = now >= until ? 0 : rcalls.poll(&p, 1, (int)(until - now));
		if (ready == 0)
			return ETIMEDOUT;
		if (ready > 0)
			break;
		if (errno != EINTR)
			return errno;
	}
	if (rcalls.getsockopt(rfd, SOL_SOCKET, SO_ERROR, &err, &size) != 0)
		return errno;
	return err;
}

/* The address that the program has bound, if any; the port too, if it can be had. */
static int connect_bind(int rfd, const struct sock *s, const struct address *target)
{
	struct address a;

	if (s->local.size == 0 ||
	    !connect_target((const void *)&s->local.store, s->local.size, &a) ||
	    a.store.ss_family != target->store.ss_family)
		return 0;
	if (rcalls.bind(rfd, (void *)&a.store, a.size) == 0)
		return 0;
	if (a.store.ss_family == AF_INET)
		((struct sockaddr_in *)&a.store)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&a.store)->sin6_port = 0;
	return rcalls.bind(rfd, (void *)&a.store, a.size);
}

/* This process may be the peer, and accept in the thread that connects: its listeners do not wait
 * for forks (service.c). */
static void connect_want(struct sock *s)
{
	if (sock_kind(s) == SOCK_LISTENER &&
	    !__atomic_exchange_n(&s->wanted, true, __ATOMIC_ACQ_REL))
		service_wake();
}

/* A connected rsocket, or -1. */
static int connect_rsocket(const struct sock *s, const struct address *target)
{
	int rfd, err;

	if (silent_is(target) || !rcalls_load())
		return -1;
	rfd = rsocket_new(target->store.ss_family);
	if (rfd < 0)
		return -1;
	option_carry(s, rfd);
	(void)rcalls.fcntl(rfd, F_SETFL, O_NONBLOCK);
	if (service_listens())
		table_each(connect_want);
	err = connect_bind(rfd, s, target);
	if (err == 0)
		err = rcalls.connect(rfd, (const void *)&target->store, target->size);
	if (err != 0)
		err = errno == EINPROGRESS ? connect_await(rfd) : errno;
	if (err == 0)
		return rfd;
	log_debug("rsockets", "connect by rsocket: %s; by TCP then", strerror(err));
	rsocket_end(rfd);
	if (err == ETIMEDOUT)
		silent_add(target);
	return -1;
}

/* A non-blocking connect that has succeeded, as a program sees TCP's. */
static int connect_later(struct sock *s)
{
	__atomic_store_n(&s->connecting, true, __ATOMIC_RELEASE);
	sock_rearm(s, REARM_OUT);
	errno = EINPROGRESS;
	return -1;
}

/* By rsocket, which takes CONNECT_MS at most: a thread is not cancelled meanwhile. 0; -1: errno;
 * 1: it cannot be. */
static int connect_quietly(struct sock *s, int fd, const struct sockaddr *addr, socklen_t size)
{
	struct address target;
	int flags = __atomic_load_n(&s->nonblock, __ATOMIC_RELAXED) ? SOCK_NONBLOCK : 0;
	int saved = errno, rfd = -1;
	QUIET();

	if (connect_target(addr, size, &target) && connect_trusts(&target))
		rfd = connect_rsocket(s, &target);
	errno = saved;
	if (rfd < 0)
		return 1;
	if (connection_become(s, fd, rfd, flags) < 0)
		return -1;
	errno = saved;
	return flags == 0 ? 0 : connect_later(s);
}

static int connect_fresh(struct sock *s, int fd, const struct sockaddr *addr, socklen_t size)
{
	int err = connect_quietly(s, fd, addr, size);

	return err <= 0 ? err : NEXT(connect)(fd, addr, size);
}

/* The program asks for the outcome of a connect that has said EINPROGRESS. */
static int connect_again(struct sock *s)
{
	if (__atomic_exchange_n(&s->connecting, false, __ATOMIC_ACQ_REL))
		return 0;
	errno = EISCONN;
	return -1;
}

static bool connect_is_away(const struct sockaddr *addr, socklen_t size)
{
	return addr != NULL && size >= sizeof(addr->sa_family) && addr->sa_family == AF_UNSPEC;
}

/* As TCP does: the peer hears of a reset, and the socket may connect again or listen. A new socket
 * takes all descriptors, with the options, and without the address that was bound. */
static int connect_leave(struct call *c, int fd)
{
	const struct linger abort = { .l_onoff = 1, .l_linger = 0 };
	struct sock *s = c->s;
	bool nonblock = __atomic_load_n(&s->nonblock, __ATOMIC_RELAXED) != 0;
	int fresh = socket(s->domain, SOCK_STREAM | (nonblock ? SOCK_NONBLOCK : 0), 0);
	QUIET();

	if (fresh < 0)
		return -1;
	option_repeat(s, fresh);
	if (sock_kind(s) == SOCK_DIRECT)
		(void)rcalls.setsockopt(s->rfd, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
	c->s = NULL;
	sock_put(s); /* the last descriptor's end finds no call inside, and says no goodbye */
	for (int i = 0; i < FD_LIMIT; i++)
		if (i != fd && __atomic_load_n(&table_socks[i], __ATOMIC_ACQUIRE) == s)
			(void)dup3(fresh, i, fcntl(i, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
	(void)dup3(fresh, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
	close(fresh);
	return 0;
}

AV_EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t size)
{
	CALL c = call_begin(fd);

	if (c.s == NULL)
		return NEXT(connect)(fd, addr, size);
	switch (sock_kind(c.s)) {
	case SOCK_FRESH:
		return connect_fresh(c.s, fd, addr, size);
	case SOCK_DIRECT:
	case SOCK_KERNEL:
		return connect_is_away(addr, size) ? connect_leave(&c, fd) : connect_again(c.s);
	default:
		return NEXT(connect)(fd, addr, size);
	}
}
