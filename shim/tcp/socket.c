/* socket.c: socket, bind, and the addresses of a connection.
 * In: the program's calls    Out: a TCP socket that may become a connection or a listener
 * Runs: any thread    Locks: table.lock
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(socket);
NEXT_SLOT(bind);
NEXT_SLOT(getsockname);
NEXT_SLOT(getpeername);

static bool socket_is_tcp(int domain, int type, int protocol)
{
	return (domain == AF_INET || domain == AF_INET6) &&
	       (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
	       (protocol == 0 || protocol == IPPROTO_TCP);
}

AV_EXPORT int socket(int domain, int type, int protocol)
{
	struct sock *s;
	int fd;
	QUIET();

	fd = NEXT(socket)(domain, type, protocol);
	if (fd < 0 || fd >= FD_LIMIT || !socket_is_tcp(domain, type, protocol))
		return fd;
	s = sock_new(SOCK_FRESH, domain);
	if (s == NULL)
		return fd; /* it stays TCP */
	__atomic_store_n(&s->nonblock, (type & SOCK_NONBLOCK) != 0, __ATOMIC_RELAXED);
	table_add(fd, s);
	return fd;
}

AV_EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t size)
{
	struct sock *s;
	int err;
	QUIET();

	err = NEXT(bind)(fd, addr, size);
	s = err == 0 ? sock_get(fd) : NULL;
	if (s == NULL)
		return err;
	if (sock_kind(s) == SOCK_FRESH && size <= sizeof(s->local.store)) {
		memcpy(&s->local.store, addr, size);
		s->local.size = size;
	}
	sock_put(s);
	return 0;
}

int address_give(const struct address *a, struct sockaddr *addr, socklen_t *size)
{
	if (addr == NULL || size == NULL) {
		errno = EFAULT;
		return -1;
	}
	memcpy(addr, &a->store, MIN(*size, a->size));
	*size = a->size;
	return 0;
}

/* The socket of a connection is a pair of Unix sockets: the addresses are those of the rsocket. */
static bool name_is_ours(const struct sock *s)
{
	return s != NULL && (sock_kind(s) == SOCK_DIRECT || sock_kind(s) == SOCK_KERNEL);
}

/* Also that of a connection which came by exec. */
static struct sock *name_sock(int fd)
{
	struct sock *s = sock_get(fd);

	return s != NULL ? s : inherit_get(fd);
}

AV_EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *size)
{
	struct sock *s;
	int err;
	QUIET();

	s = name_sock(fd);
	err = name_is_ours(s) ? address_give(&s->local, addr, size) :
				NEXT(getsockname)(fd, addr, size);
	if (s != NULL)
		sock_put(s);
	return err;
}

AV_EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *size)
{
	struct sock *s;
	int err;
	QUIET();

	s = name_sock(fd);
	err = name_is_ours(s) ? address_give(&s->peer, addr, size) :
				NEXT(getpeername)(fd, addr, size);
	if (s != NULL)
		sock_put(s);
	return err;
}
