/* rdmacm.c: a librdmacm.so.1 for the shim's tests: rsockets that are Unix sockets. A port is
 * an abstract name, so an rsocket and a TCP socket of one port never meet.
 * In: r* calls    Out: bytes of Unix sockets    Runs: any thread
 * Locks: none; a descriptor's slot belongs to whoever has the descriptor
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/compiler.h"

enum { STANDINS = 65536, FIRST_PORT = 40000, PORTS = 20000 };

static struct {
	int domain;
	u16 local, peer; /* 0: none */
} standins[STANDINS];

static socklen_t standin_path(struct sockaddr_un *un, u16 port)
{
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "anyverbs-standin-%u", port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static u16 standin_port(const struct sockaddr *addr)
{
	return ntohs(addr->sa_family == AF_INET ? ((const struct sockaddr_in *)addr)->sin_port :
						  ((const struct sockaddr_in6 *)addr)->sin6_port);
}

static int standin_name(int domain, u16 port, struct sockaddr *addr, socklen_t *size)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port),
				    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t full = domain == AF_INET ? sizeof(four) : sizeof(six);

	memcpy(addr, domain == AF_INET ? (void *)&four : (void *)&six, MIN(*size, full));
	*size = full;
	return 0;
}

static int standin_bind(int s, u16 port)
{
	struct sockaddr_un un;
	socklen_t size;

	if (port != 0) {
		size = standin_path(&un, port);
		standins[s].local = port;
		return bind(s, (void *)&un, size);
	}
	for (int i = 0; i < PORTS; i++) {
		u16 any = (u16)(FIRST_PORT + (getpid() * 7 + s + i) % PORTS);

		if (standin_bind(s, any) == 0)
			return 0;
	}
	return -1;
}

AV_EXPORT int rsocket(int domain, int type, int protocol)
{
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)protocol;
	if (s < 0 || type != SOCK_STREAM)
		return -1;
	standins[s].domain = domain;
	standins[s].local = standins[s].peer = 0;
	return s;
}

AV_EXPORT int rbind(int s, const struct sockaddr *addr, socklen_t size)
{
	(void)size;
	return standin_bind(s, standin_port(addr));
}

AV_EXPORT int rlisten(int s, int backlog)
{
	return listen(s, backlog);
}

AV_EXPORT int raccept(int s, struct sockaddr *addr, socklen_t *size)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t room = sizeof(un);
	int got = accept4(s, (void *)&un, &room, SOCK_CLOEXEC);

	if (got < 0)
		return -1;
	standins[got].domain = standins[s].domain;
	standins[got].local = standins[s].local;
	standins[got].peer = (u16)atoi(un.sun_path + 1 + strlen("anyverbs-standin-"));
	if (addr != NULL)
		(void)standin_name(standins[got].domain, standins[got].peer, addr, size);
	return got;
}

AV_EXPORT int rconnect(int s, const struct sockaddr *addr, socklen_t size)
{
	struct sockaddr_un un;

	(void)size;
	if (standins[s].local == 0 && standin_bind(s, 0) != 0)
		return -1;
	standins[s].peer = standin_port(addr);
	size = standin_path(&un, standins[s].peer);
	return connect(s, (void *)&un, size);
}

AV_EXPORT int rshutdown(int s, int how)
{
	return shutdown(s, how);
}

AV_EXPORT int rclose(int s)
{
	return close(s);
}

AV_EXPORT ssize_t rrecv(int s, void *buf, size_t size, int flags)
{
	return recv(s, buf, size, flags);
}

AV_EXPORT ssize_t rsend(int s, const void *buf, size_t size, int flags)
{
	return send(s, buf, size, flags | MSG_NOSIGNAL);
}

AV_EXPORT ssize_t rrecvmsg(int s, struct msghdr *msg, int flags)
{
	return recvmsg(s, msg, flags);
}

AV_EXPORT ssize_t rsendmsg(int s, const struct msghdr *msg, int flags)
{
	return sendmsg(s, msg, flags | MSG_NOSIGNAL);
}

AV_EXPORT int rpoll(struct pollfd *fds, nfds_t count, int timeout)
{
	return poll(fds, count, timeout);
}

AV_EXPORT int rgetpeername(int s, struct sockaddr *addr, socklen_t *size)
{
	return standin_name(standins[s].domain, standins[s].peer, addr, size);
}

AV_EXPORT int rgetsockname(int s, struct sockaddr *addr, socklen_t *size)
{
	return standin_name(standins[s].domain, standins[s].local, addr, size);
}

AV_EXPORT int rsetsockopt(int s, int level, int name, const void *value, socklen_t size)
{
	return level == SOL_SOCKET ? setsockopt(s, level, name, value, size) : 0;
}

AV_EXPORT int rgetsockopt(int s, int level, int name, void *value, socklen_t *size)
{
	return getsockopt(s, level, name, value, size);
}

AV_EXPORT int rfcntl(int s, int command, ...)
{
	va_list args;
	int flags;

	va_start(args, command);
	flags = va_arg(args, int);
	va_end(args);
	return fcntl(s, command, flags);
}
