/* option.c: getsockopt, setsockopt, ioctl, fcntl.
 * In: the program's calls    Out: answers as a TCP socket gives them
 * Runs: any thread    Locks: option.lock, a leaf
 *
 * A connection keeps the options that were set, judged by a TCP socket that lives for one call; a
 * second one, which nobody changes, has the defaults.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "rsockets.h"

AV_EXPORT int fcntl64(int fd, int command, ...);

NEXT_SLOT(socket);
NEXT_SLOT(getsockopt);
NEXT_SLOT(setsockopt);
NEXT_SLOT(ioctl);
NEXT_SLOT(fcntl);

enum { OPTION_BYTES = 256, PEEK_BYTES = 65536 };

/* A variable that holds any option. */
#define OPTION_ROOM(name)                                                                          \
	_Alignas(struct sock_option) u8 name##_room[sizeof(struct sock_option) + OPTION_BYTES];    \
	struct sock_option *name = (struct sock_option *)name##_room

static struct {
	struct lock lock;
	int defaults[2] GUARDED_BY(lock); /* TCP sockets of IPv4 and IPv6, and 1; 0: none yet */
} option;
FORK_TAKES(FORK_SHIM_OPTION, &option.lock);

/* The socket with the defaults of a family; -1: errno. */
static int option_default(int domain)
{
	int six = domain == AF_INET6, fd;

	lock_acquire(&option.lock);
	fd = option.defaults[six] - 1;
	lock_release(&option.lock);
	if (fd >= 0)
		return fd;
	fd = NEXT(socket)(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	fd = fd_own(fd);
	lock_acquire(&option.lock);
	if (option.defaults[six] == 0) { /* no other thread was faster */
		option.defaults[six] = fd + 1;
		fd = -1;
	}
	lock_release(&option.lock);
	if (fd >= 0)
		close(fd);
	return option_default(domain);
}

static struct sock_option *option_find(const struct sock *s, int level, int name)
{
	struct sock_option *o = s->options;

	while (o != NULL && (o->level != level || o->name != name))
		o = o->next;
	return o;
}

/* `size` is OPTION_BYTES at most. */
static void option_keep(struct sock *s, int level, int name, int given, const void *value,
			socklen_t size)
{
	struct sock_option *o;

	lock_acquire(&option.lock);
	o = option_find(s, level, name);
	if (o == NULL) {
		o = malloc(sizeof(*o) + OPTION_BYTES);
		if (o != NULL) {
			*o = (struct sock_option){ s->options, level, name, 0, 0 };
			s->options = o;
		}
	}
	if (o != NULL) {
		memcpy(o->value, value, size);
		o->size = size;
		o->given = given;
	}
	lock_release(&option.lock);
}

void option_free(struct sock *s)
{
	while (s->options != NULL) {
		struct sock_option *o = s->options;

		s->options = o->next;
		free(o);
	}
}

static bool option_is_rdma(int level, int name)
{
	if (level == SOL_SOCKET)
		return name == SO_KEEPALIVE || name == SO_LINGER || name == SO_OOBINLINE ||
		       name == SO_REUSEADDR || name == SO_SNDBUF || name == SO_RCVBUF;
	if (level == IPPROTO_TCP)
		return name == TCP_NODELAY || name == TCP_MAXSEG;
	return level == IPPROTO_IPV6 && name == IPV6_V6ONLY;
}

/* A copy of the i-th option. False: there are no more. */
static bool option_copy(const struct sock *s, u32 i, struct sock_option *out)
{
	struct sock_option *o;

	lock_acquire(&option.lock);
	for (o = s->options; o != NULL && i > 0; i--)
		o = o->next;
	if (o != NULL)
		memcpy(out, o, sizeof(*o) + o->size);
	lock_release(&option.lock);
	return o != NULL;
}

void option_carry(const struct sock *s, int rfd)
{
	OPTION_ROOM(o);

	for (u32 i = 0; option_copy(s, i, o); i++) {
		bool buffer = o->level == SOL_SOCKET &&
			      (o->name == SO_SNDBUF || o->name == SO_RCVBUF);

		if (option_is_rdma(o->level, o->name))
			(void)rcalls.setsockopt(rfd, o->level, o->name,
						buffer ? (void *)&o->given : o->value,
						buffer ? sizeof(o->given) : o->size);
	}
}

void option_repeat(const struct sock *s, int fd)
{
	OPTION_ROOM(o);

	for (u32 i = 0; option_copy(s, i, o); i++) {
		bool buffer = o->level == SOL_SOCKET &&
			      (o->name == SO_SNDBUF || o->name == SO_RCVBUF);

		(void)setsockopt(fd, o->level, o->name, buffer ? (void *)&o->given : o->value,
				 buffer ? sizeof(o->given) : o->size);
	}
}

void option_inherit(struct sock *s, const struct sock *listener)
{
	OPTION_ROOM(o);

	for (u32 i = 0; option_copy(listener, i, o); i++)
		option_keep(s, o->level, o->name, o->given, o->value, o->size);
	for (int i = 0; i < 2; i++)
		__atomic_store_n(&s->timeout_ms[i],
				 __atomic_load_n(&listener->timeout_ms[i], __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
}

/* SO_RCVTIMEO, SO_SNDTIMEO. */
static void option_timeout(struct sock *s, int name, const void *value, socklen_t size)
{
	struct timeval t;

	if (size < sizeof(t))
		return;
	memcpy(&t, value, sizeof(t));
	__atomic_store_n(&s->timeout_ms[name == SO_SNDTIMEO],
			 (int)MIN((u64)t.tv_sec * 1000 + (u64)(t.tv_usec + 999) / 1000,
				  2000000000ULL),
			 __ATOMIC_RELAXED);
}

/* Sets it on a TCP socket, and keeps what that has then. */
static int option_try(struct sock *s, int fd, int level, int name, const void *value,
		      socklen_t size)
{
	u8 now[OPTION_BYTES];
	socklen_t got = sizeof(now);
	int err = NEXT(setsockopt)(fd, level, name, value, size), saved = errno, given = 0;

	if (err == 0 && size >= sizeof(given))
		memcpy(&given, value, sizeof(given));
	if (err == 0 && NEXT(getsockopt)(fd, level, name, now, &got) == 0)
		option_keep(s, level, name, given, now, got);
	errno = saved;
	return err;
}

/* The socket lives for this call. */
static int option_set(struct sock *s, int level, int name, const void *value, socklen_t size)
{
	int fd = NEXT(socket)(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -1;
	err = option_try(s, fd, level, name, value, size);
	close(fd);
	if (err == 0 && option_is_rdma(level, name) && s->rfd >= 0)
		(void)rcalls.setsockopt(s->rfd, level, name, value, size);
	return err;
}

/* Also the sock of a connection that came by exec, whose options of SOL_SOCKET are the pair's. */
static struct sock *option_sock(int fd, int level, int name)
{
	struct sock *s = sock_get(fd);

	if (s != NULL || (level == SOL_SOCKET && name != SO_DOMAIN && name != SO_PROTOCOL))
		return s;
	return inherit_get(fd);
}

AV_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	enum sock_kind kind;
	struct sock *s;
	int err;
	QUIET();

	s = option_sock(fd, level, name);
	if (s == NULL)
		return NEXT(setsockopt)(fd, level, name, value, size);
	kind = sock_kind(s);
	if (kind == SOCK_DIRECT || kind == SOCK_KERNEL) {
		err = option_set(s, level, name, value, size);
	} else {
		err = option_try(s, fd, level, name, value, size);
	}
	if (err == 0 && level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
		option_timeout(s, name, value, size);
		if (kind == SOCK_KERNEL)
			(void)NEXT(setsockopt)(fd, level, name, value, size);
	}
	sock_put(s);
	return err;
}

/* What was set, else false. */
static bool option_kept(const struct sock *s, int level, int name, void *value, socklen_t *size)
{
	struct sock_option *o;

	lock_acquire(&option.lock);
	o = option_find(s, level, name);
	if (o != NULL) {
		*size = MIN(*size, o->size);
		memcpy(value, o->value, *size);
	}
	lock_release(&option.lock);
	return o != NULL;
}

static int option_get(struct sock *s, int fd, int level, int name, void *value, socklen_t *size)
{
	int defaults;

	if (value == NULL || size == NULL) {
		errno = EFAULT;
		return -1;
	}
	if (level == SOL_SOCKET && name == SO_ERROR)
		return sock_kind(s) == SOCK_DIRECT ?
			       rcalls.getsockopt(s->rfd, level, name, value, size) :
			       NEXT(getsockopt)(fd, level, name, value, size);
	if (option_kept(s, level, name, value, size))
		return 0;
	defaults = option_default(s->domain);
	return defaults < 0 ? -1 : NEXT(getsockopt)(defaults, level, name, value, size);
}

AV_EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	enum sock_kind kind;
	struct sock *s;
	int err;
	QUIET();

	s = option_sock(fd, level, name);
	if (s == NULL)
		return NEXT(getsockopt)(fd, level, name, value, size);
	kind = sock_kind(s);
	err = kind == SOCK_DIRECT || kind == SOCK_KERNEL ?
		      option_get(s, fd, level, name, value, size) :
		      NEXT(getsockopt)(fd, level, name, value, size);
	sock_put(s);
	return err;
}

/* ---- ioctl and fcntl ---- */

/* What could be read at once, up to PEEK_BYTES: rsockets have no call that counts. */
static int option_readable(const struct sock *s)
{
	void *buf = malloc(PEEK_BYTES);
	ssize_t n = -1;
	int saved = errno;

	if (buf != NULL)
		n = rcalls.recv(s->rfd, buf, PEEK_BYTES, MSG_PEEK | MSG_DONTWAIT);
	free(buf);
	errno = saved;
	return n > 0 ? (int)n : 0;
}

int sock_set_nonblock(struct sock *s, int fd, bool on)
{
	enum sock_kind kind = sock_kind(s);
	int flags = NEXT(fcntl)(fd, F_GETFL);

	if (flags < 0)
		return -1;
	__atomic_store_n(&s->nonblock, on, __ATOMIC_RELEASE);
	if (kind == SOCK_LISTENER) {
		listener_mark(fd, !on);
		return 0; /* the kernel's never blocks: listen.c */
	}
	if (kind == SOCK_DIRECT)
		(void)rcalls.fcntl(s->rfd, F_SETFL, on ? O_NONBLOCK : 0);
	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return NEXT(fcntl)(fd, F_SETFL, flags);
}

static int ioctl_of(struct sock *s, int fd, unsigned long request, void *argument)
{
	bool direct = sock_kind(s) == SOCK_DIRECT;

	if (request == FIONBIO)
		return sock_set_nonblock(s, fd, *(int *)argument != 0);
	if (!direct)
		return NEXT(ioctl)(fd, request, argument);
	switch (request) {
	case FIONREAD:
		*(int *)argument = option_readable(s);
		return 0;
	case SIOCOUTQ:
	case SIOCOUTQNSD:
	case SIOCATMARK:
		*(int *)argument = 0;
		return 0;
	case FIOASYNC:
		sock_hand_on(fd);
		return NEXT(ioctl)(fd, request, argument);
	case FIOCLEX:
	case FIONCLEX:
		return NEXT(ioctl)(fd, request, argument);
	default:
		return NEXT(ioctl)(option_default(s->domain), request, argument);
	}
}

static int ioctl_ours(int fd, unsigned long request, void *argument)
{
	struct sock *s;
	int err;
	QUIET();

	s = sock_get(fd);
	if (s == NULL)
		return NEXT(ioctl)(fd, request, argument);
	err = ioctl_of(s, fd, request, argument);
	sock_put(s);
	return err;
}

AV_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *argument;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	return likely(!sock_is_at(fd)) ? NEXT(ioctl)(fd, request, argument) :
					 ioctl_ours(fd, request, argument);
}

static int fcntl_flags(struct sock *s, int fd)
{
	int flags = NEXT(fcntl)(fd, F_GETFL);

	if (flags < 0)
		return flags;
	return __atomic_load_n(&s->nonblock, __ATOMIC_ACQUIRE) ? flags | O_NONBLOCK :
								 flags & ~O_NONBLOCK;
}

static int fcntl_of(struct sock *s, int fd, int command, void *argument)
{
	int flags = (int)(intptr_t)argument;
	bool on;

	switch (command) {
	case F_GETFL:
		return fcntl_flags(s, fd);
	case F_SETFL:
		on = (flags & O_NONBLOCK) != 0;
		if (flags & O_ASYNC)
			sock_hand_on(fd);
		if (sock_kind(s) == SOCK_LISTENER)
			flags |= O_NONBLOCK;
		if (NEXT(fcntl)(fd, F_SETFL, flags) < 0)
			return -1;
		return sock_set_nonblock(s, fd, on);
	default:
		return NEXT(fcntl)(fd, command, argument);
	}
}

static int fcntl_ours(int fd, int command, void *argument)
{
	struct sock *s;
	int result;
	QUIET();

	s = sock_get(fd);
	if (s == NULL)
		return NEXT(fcntl)(fd, command, argument);
	result = fcntl_of(s, fd, command, argument);
	sock_put(s);
	return result;
}

static int fcntl_copy(int fd, int command, void *argument)
{
	int result;
	QUIET();

	result = NEXT(fcntl)(fd, command, argument);
	if (result >= 0)
		sock_copied(fd, result);
	return result;
}

static int fcntl_any(int fd, int command, void *argument)
{
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		return fcntl_copy(fd, command, argument);
	return likely(!sock_is_at(fd)) ? NEXT(fcntl)(fd, command, argument) :
					 fcntl_ours(fd, command, argument);
}

AV_EXPORT int fcntl(int fd, int command, ...)
{
	va_list args;
	void *argument;

	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	return fcntl_any(fd, command, argument);
}

AV_EXPORT int fcntl64(int fd, int command, ...)
{
	va_list args;
	void *argument;

	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	return fcntl_any(fd, command, argument);
}
