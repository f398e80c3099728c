/* calls.c: the exported calls of rsockets: each finds its rsocket and goes through its operations.
 * In:    numbers                           Out: results as of sockets, -1 and errno
 * Runs:  the application's threads         Locks: none
 */
#include <limits.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <unistd.h>

#include "rsocket.h"

static ssize_t call_result(ssize_t result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

/* Runs an operation on the rsocket of a number, if that kind has it. */
#define CALL(fd, operation, ...)                                                                   \
	({                                                                                         \
		struct rsocket *call_rs = table_get(fd);                                           \
		ssize_t call_value = -EBADF;                                                       \
                                                                                                   \
		if (call_rs != NULL) {                                                             \
			call_value = -EOPNOTSUPP;                                                  \
			if (call_rs->ops->operation != NULL)                                       \
				call_value = call_rs->ops->operation(call_rs, ##__VA_ARGS__);      \
			table_put(call_rs);                                                        \
		}                                                                                  \
		call_result(call_value);                                                           \
	})

/* ---- making, connecting, ending -------------------------------------------------------------- */

static int call_protocol(int type)
{
	return type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
}

AV_EXPORT int rsocket(int domain, int type, int protocol)
{
	struct rsocket *rs;
	int err = -ENOTSUP, fd;

	if ((domain != AF_INET && domain != AF_INET6) ||
	    (protocol != 0 && protocol != call_protocol(type)) ||
	    (type != SOCK_STREAM && type != SOCK_DGRAM))
		return (int)call_result(-ENOTSUP);
	rs = type == SOCK_STREAM ? stream_open(domain, &err) : dgram_open(domain, &err);
	if (rs == NULL)
		return (int)call_result(err);
	fd = rs->fd;
	err = table_insert(rs);
	if (err == 0)
		return fd;
	rs->ops->free(rs);
	return (int)call_result(err);
}

AV_EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return (int)CALL(socket, bind, addr, addrlen);
}

AV_EXPORT int rlisten(int socket, int backlog)
{
	return (int)CALL(socket, listen, backlog);
}

AV_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)CALL(socket, accept, addr, addrlen);
}

AV_EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return (int)CALL(socket, connect, addr, addrlen);
}

AV_EXPORT int rshutdown(int socket, int how)
{
	return (int)CALL(socket, shutdown, how);
}

/* The number stays taken until the last call that uses the rsocket has returned. */
AV_EXPORT int rclose(int socket)
{
	struct rsocket *rs = table_get(socket);

	if (rs == NULL)
		return (int)call_result(table_forget(socket) ? 0 : -EBADF);
	if (!table_remove(rs)) {
		table_put(rs);
		return (int)call_result(-EBADF);
	}
	rs->ops->close(rs);
	table_free_last(rs);
	table_put(rs);
	return 0;
}

/* ---- data ------------------------------------------------------------------------------------ */

AV_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
			    socklen_t *addrlen)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };

	return CALL(socket, recv, &iov, 1, flags, src_addr, addrlen);
}

AV_EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

AV_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecvfrom(socket, buf, count, 0, NULL, NULL);
}

/* As the kernel does: a count that is none, or more bytes than a result can say, is EINVAL. */
static bool call_iov_is_valid(const struct iovec *iov, size_t count)
{
	size_t total = 0;

	if (count > IOV_MAX || (iov == NULL && count > 0))
		return false;
	for (size_t i = 0; i < count; i++) {
		if (iov[i].iov_len > (size_t)SSIZE_MAX - total)
			return false;
		total += iov[i].iov_len;
	}
	return true;
}

AV_EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	if (iovcnt < 0 || !call_iov_is_valid(iov, (size_t)iovcnt))
		return call_result(-EINVAL);
	return CALL(socket, recv, iov, iovcnt, 0, NULL, NULL);
}

AV_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	socklen_t *len = msg->msg_name != NULL ? &msg->msg_namelen : NULL;
	ssize_t result;

	if (!call_iov_is_valid(msg->msg_iov, msg->msg_iovlen))
		return call_result(-EMSGSIZE);
	result = CALL(socket, recv, msg->msg_iov, (int)msg->msg_iovlen, flags, msg->msg_name, len);
	if (result >= 0) {
		msg->msg_controllen = 0;
		msg->msg_flags = 0;
	}
	return result;
}

AV_EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
			  const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };

	return CALL(socket, send, &iov, 1, flags, dest_addr, addrlen);
}

AV_EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return rsendto(socket, buf, len, flags, NULL, 0);
}

AV_EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsendto(socket, buf, count, 0, NULL, 0);
}

AV_EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	if (iovcnt < 0 || !call_iov_is_valid(iov, (size_t)iovcnt))
		return call_result(-EINVAL);
	return CALL(socket, send, iov, iovcnt, 0, NULL, 0);
}

AV_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (msg->msg_control != NULL && msg->msg_controllen > 0)
		return call_result(-ENOTSUP);
	if (!call_iov_is_valid(msg->msg_iov, msg->msg_iovlen))
		return call_result(-EMSGSIZE);
	return CALL(socket, send, msg->msg_iov, (int)msg->msg_iovlen, flags, msg->msg_name,
		    msg->msg_namelen);
}

/* ---- names and options ----------------------------------------------------------------------- */

AV_EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)CALL(socket, name, true, addr, addrlen);
}

AV_EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)CALL(socket, name, false, addr, addrlen);
}

AV_EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	return (int)CALL(socket, setsockopt, level, optname, optval, optlen);
}

AV_EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	return (int)CALL(socket, getsockopt, level, optname, optval, optlen);
}

static int call_fcntl(struct rsocket *rs, int cmd, int arg)
{
	switch (cmd) {
	case F_GETFL:
		return __atomic_load_n(&rs->flags, __ATOMIC_RELAXED) | O_RDWR;
	case F_SETFL:
		__atomic_store_n(&rs->flags, arg & ~O_ACCMODE, __ATOMIC_RELAXED);
		return 0;
	case F_GETFD:
	case F_SETFD:
		return fcntl(rs->fd, cmd, arg) < 0 ? -errno : fcntl(rs->fd, F_GETFD);
	default:
		return -ENOTSUP;
	}
}

AV_EXPORT int rfcntl(int socket, int cmd, ...)
{
	struct rsocket *rs = table_get(socket);
	va_list args;
	int result, arg;

	if (rs == NULL)
		return (int)call_result(-EBADF);
	va_start(args, cmd);
	arg = cmd == F_SETFL || cmd == F_SETFD ? va_arg(args, int) : 0;
	va_end(args);
	result = call_fcntl(rs, cmd, arg);
	table_put(rs);
	return (int)call_result(cmd == F_SETFD && result > 0 ? 0 : result);
}

/* ---- mapped memory --------------------------------------------------------------------------- */

AV_EXPORT off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	return CALL(socket, iomap, buf, len, prot, flags, offset);
}

AV_EXPORT int riounmap(int socket, void *buf, size_t len)
{
	return (int)CALL(socket, iounmap, buf, len);
}

AV_EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	return (size_t)CALL(socket, iowrite, buf, count, offset, flags);
}
