/* listen.c: listen and accept: a listener hears TCP and rsockets at one address.
 * In: the program's calls    Out: connections of both kinds
 * Runs: any thread    Locks: service.lock
 *
 * The kernel keeps the TCP listener, which children inherit. A process that waits for it or accepts
 * has the rsocket that listens beside it, if no other process has the port already; listen() itself
 * makes one, too, and a fork gives it up unless the process has waited. So the worker that a server
 * forks takes it over.
 *
 * The kernel's listener is non-blocking, also to a program that inherits it by exec and does not
 * know: a mark at the file says that this is the shim's doing.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "anyverbs/rsocket.h"
#include "rsockets.h"

NEXT_SLOT(listen);
NEXT_SLOT(accept);
NEXT_SLOT(accept4);
NEXT_SLOT(getsockname);
NEXT_SLOT(getsockopt);

enum { LISTEN_TRY_MS = 100 };

/* The mark: F_SETSIG of a file that never sends signals. A program that sets O_NONBLOCK itself
 * takes it away (option.c). */
enum { LISTEN_MARK = SIGIO };

void listener_mark(int fd, bool on)
{
	if (fcntl(fd, F_GETSIG) == (on ? 0 : LISTEN_MARK))
		(void)fcntl(fd, F_SETSIG, on ? LISTEN_MARK : 0);
}

/* An rsocket that listens where `fd` does; -1: the port is another process', or no device there. A
 * fork may give it up, and then nobody must be connected to it: it accepts on demand until a
 * request comes for a listener that is no longer young (service.c). */
static int listener_open(const struct sock *s, int fd)
{
	struct sockaddr_storage at;
	socklen_t size = sizeof(at);
	int rfd, on = 1;

	if (NEXT(getsockname)(fd, (void *)&at, &size) != 0)
		return -1;
	rfd = rsocket_new(at.ss_family);
	if (rfd < 0)
		return -1;
	option_carry(s, rfd);
	(void)rcalls.fcntl(rfd, F_SETFL, O_NONBLOCK);
	(void)rcalls.setsockopt(rfd, SOL_RDMA, RDMA_ACCEPT_ON_DEMAND, &on, sizeof(on));
	if (rcalls.bind(rfd, (void *)&at, size) == 0 &&
	    rcalls.listen(rfd, s->backlog) == 0)
		return rfd;
	log_debug("rsockets", "cannot listen by rsocket: %s", strerror(errno));
	rsocket_end(rfd);
	return -1;
}

/* shutdown() ends a listener. */
static bool listener_listens(int fd)
{
	int on = 1;
	socklen_t size = sizeof(on);

	return NEXT(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on != 0;
}

/* Tries to have the port. Threads that come at once: the first one tries. */
static void listener_claim(struct sock *s, int fd)
{
	u64 now = now_ms(), before = __atomic_load_n(&s->tried_ms, __ATOMIC_RELAXED);
	int bell, rfd;
	QUIET();

	if (now - before < LISTEN_TRY_MS ||
	    !__atomic_compare_exchange_n(&s->tried_ms, &before, now, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED) ||
	    !rcalls_load() || !listener_listens(fd))
		return;
	rfd = listener_open(s, fd);
	if (rfd < 0)
		return;
	bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bell < 0) {
		rsocket_end(rfd);
		return;
	}
	s->rfd = rfd;
	s->begun = false;
	__atomic_store_n(&s->bell, fd_own(bell), __ATOMIC_RELEASE);
	if (!service_listen(s))
		service_withdraw(s);
}

void listener_want(struct sock *s, int fd)
{
	int saved = errno;
	bool before = __atomic_exchange_n(&s->wanted, true, __ATOMIC_ACQ_REL);

	if (__atomic_load_n(&s->bell, __ATOMIC_ACQUIRE) < 0)
		listener_claim(s, fd);
	else if (!before)
		service_wake();
	errno = saved;
}

int listener_retry_ms(struct sock *s)
{
	if (__atomic_load_n(&s->bell, __ATOMIC_ACQUIRE) >= 0 || !rcalls_load())
		return -1;
	return LISTEN_TRY_MS;
}

void listener_shut(struct sock *s, int fd)
{
	sock_set_kind(s, SOCK_FRESH);
	service_withdraw(s);
	(void)sock_set_nonblock(s, fd, __atomic_load_n(&s->nonblock, __ATOMIC_ACQUIRE));
}

AV_EXPORT int listen(int fd, int backlog)
{
	int flags, err, saved;
	struct sock *s;
	QUIET();

	err = NEXT(listen)(fd, backlog);
	saved = errno;
	s = err == 0 ? sock_get(fd) : NULL;
	if (s == NULL)
		return err;
	if (sock_kind(s) == SOCK_FRESH) {
		s->backlog = backlog;
		/* A wait for both kinds must not end in an accept that blocks for one. */
		flags = fcntl(fd, F_GETFL);
		sock_set_nonblock(s, fd, true);
		__atomic_store_n(&s->nonblock, (flags & O_NONBLOCK) != 0, __ATOMIC_RELEASE);
		listener_mark(fd, (flags & O_NONBLOCK) == 0);
		sock_set_kind(s, SOCK_LISTENER);
		/* a thread that left accept() after shutdown() has tried in vain */
		__atomic_store_n(&s->tried_ms, 0, __ATOMIC_RELAXED);
		listener_claim(s, fd);
	}
	sock_put(s);
	errno = saved;
	return 0;
}

/* A descriptor of a connection that the service has accepted. -1: errno. */
static int accept_open(const struct sock *s, int rfd, struct sockaddr *addr, socklen_t *size,
		       int flags)
{
	struct address none = { .size = 0 };
	struct sock *c;
	int got;
	QUIET();

	got = connection_open(rfd, s->domain, flags);
	if (got < 0)
		return got;
	c = sock_get(got);
	if (c != NULL)
		option_inherit(c, s);
	if (addr != NULL)
		(void)address_give(c != NULL ? &c->peer : &none, addr, size);
	if (c != NULL)
		sock_put(c);
	return got;
}

/* A connection of either kind that is there. -1: EAGAIN, or another errno. */
static int accept_ready(struct sock *s, int fd, struct sockaddr *addr, socklen_t *size, int flags)
{
	int rfd = service_accept(s), got;

	if (rfd < 0) {
		got = NEXT(accept4)(fd, addr, size, flags);
		if (got >= 0 || errno != EAGAIN)
			return got;
		rfd = service_accept_late(s);
		errno = EAGAIN;
	}
	return rfd < 0 ? -1 : accept_open(s, rfd, addr, size, flags);
}

static int accept_wait(struct sock *s, int fd, struct sockaddr *addr, socklen_t *size, int flags)
{
	socklen_t room = size != NULL ? *size : 0;
	int got, timeout = __atomic_load_n(&s->timeout_ms[0], __ATOMIC_RELAXED);
	int saved = errno;

	for (;;) {
		struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .events = POLLIN } };
		int ready, most = listener_retry_ms(s);

		if (size != NULL)
			*size = room;
		listener_want(s, fd);
		errno = saved;
		got = accept_ready(s, fd, addr, size, flags);
		if (got >= 0 || errno != EAGAIN || __atomic_load_n(&s->nonblock, __ATOMIC_ACQUIRE))
			return got;
		p[1].fd = __atomic_load_n(&s->bell, __ATOMIC_ACQUIRE);
		if (most < 0 || (timeout > 0 && timeout < most))
			most = timeout > 0 ? timeout : -1;
		ready = poll(p, 2, most);
		if (ready < 0 && !(errno == EINTR && signal_restarts()))
			return -1;
		if (ready != 0 || timeout <= 0)
			continue;
		timeout -= most;
		if (timeout <= 0) {
			errno = EAGAIN;
			return -1;
		}
	}
}

static int accept_any(struct sock *s, int fd, struct sockaddr *addr, socklen_t *size, int flags)
{
	int got;

	if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) {
		errno = EINVAL;
		return -1;
	}
	got = accept_wait(s, fd, addr, size, flags);
	sock_rearm(s, REARM_IN);
	return got;
}

/* A listener that this program has inherited by exec, and that does not block against its wish. */
static struct sock *accept_adopt(int fd)
{
	int domain = AF_INET, saved = errno;
	socklen_t size = sizeof(domain);
	struct sock *s = NULL;

	if ((unsigned)fd < FD_LIMIT && fcntl(fd, F_GETSIG) == LISTEN_MARK &&
	    NEXT(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0)
		s = sock_new(SOCK_LISTENER, domain);
	if (s != NULL) {
		table_add(fd, s);
		s = sock_get(fd);
	}
	errno = saved;
	return s;
}

static int accept_plain(int fd, struct sockaddr *addr, socklen_t *size, int flags)
{
	int got = NEXT(accept4)(fd, addr, size, flags);
	CALL c = { .s = NULL };

	if (got >= 0 || errno != EAGAIN)
		return got;
	c = call_begin_plain();
	c.s = accept_adopt(fd);
	return c.s == NULL ? got : accept_any(c.s, fd, addr, size, flags);
}

AV_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *size, int flags)
{
	CALL c = call_begin(fd);

	if (c.s == NULL)
		return accept_plain(fd, addr, size, flags);
	return sock_kind(c.s) == SOCK_LISTENER ? accept_any(c.s, fd, addr, size, flags) :
						 NEXT(accept4)(fd, addr, size, flags);
}

AV_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *size)
{
	CALL c = call_begin(fd);

	if (c.s == NULL)
		return accept_plain(fd, addr, size, 0);
	return sock_kind(c.s) == SOCK_LISTENER ? accept_any(c.s, fd, addr, size, 0) :
						 NEXT(accept)(fd, addr, size);
}
