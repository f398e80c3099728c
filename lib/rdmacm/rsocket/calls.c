/* calls.c: the exported calls of rsockets: each finds its rsocket and goes through its operations.
 * In:    numbers                           Out: results as of sockets, -1 and errno
 * Runs:  the application's threads         Locks: none
 */
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <unistd.h>

#include "rsocket.h"
#include "user.h"

static ssize_t call_result(ssize_t result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

/* A call to move data, or to accept, has ended so: EAGAIN makes the next event an edge
 * (repoll.c), also for threads that wait for a listener. */
static ssize_t call_told(struct rsocket *rs, enum rsocket_way way, ssize_t result)
{
	/* without a set nobody waits for edges, and a program that polls is told EAGAIN often */
	if (likely(result != -EAGAIN || !__atomic_load_n(&rs->in_set, __ATOMIC_SEQ_CST)))
		return result;
	__atomic_add_fetch(&rs->refused[way], 1, __ATOMIC_SEQ_CST);
	if (way == RSOCKET_IN && rs->ops->poll_fd(rs) >= 0)
		wait_wake(&rs->waiters);
	return result;
}

/* Also when the thread is cancelled. */
static inline void call_put(struct rsocket **rs)
{
	if (likely(*rs != NULL))
		table_put(*rs);
}

/* Runs an operation on the rsocket of a number, if that kind has it; `told` sees the result. */
#define CALL_TOLD(fd, told, operation, ...)                                                        \
	call_result(({                                                                             \
		struct rsocket *call_rs CLEANUP(call_put) = table_get(fd);                         \
		ssize_t call_value = -EBADF;                                                       \
                                                                                                   \
		if (call_rs != NULL) {                                                             \
			call_value = -EOPNOTSUPP;                                                  \
			if (call_rs->ops->operation != NULL)                                       \
				call_value = call_rs->ops->operation(call_rs, ##__VA_ARGS__);      \
			call_value = told(call_rs, call_value);                                    \
		}                                                                                  \
		call_value;                                                                        \
	}))
#define CALL_AS_IT_IS(rs, value) (value)
#define CALL_IN(rs, value) call_told(rs, RSOCKET_IN, value)
#define CALL_OUT(rs, value) call_told(rs, RSOCKET_OUT, value)
#define CALL(fd, operation, ...) CALL_TOLD(fd, CALL_AS_IT_IS, operation, ##__VA_ARGS__)

/* ---- making, connecting, ending -------------------------------------------------------------- */

enum { CALL_TYPE_FLAGS = SOCK_NONBLOCK | SOCK_CLOEXEC };

/* As socket(2) judges them. */
static int call_check(int domain, int type, int protocol)
{
	if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB)
		return -EAFNOSUPPORT;
	if (type < 0 || type > SOCK_PACKET)
		return -EINVAL;
	if (type != SOCK_STREAM && type != SOCK_DGRAM)
		return -ESOCKTNOSUPPORT;
	if (domain == AF_IB && type == SOCK_DGRAM) /* its UDP socket would need an IP address */
		return -EAFNOSUPPORT;
	if (protocol != 0 && protocol != (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
		return -EPROTONOSUPPORT;
	return 0;
}

/* A number is closed by exec in any case, unless F_SETFD says otherwise: the rsocket behind it does
 * not outlive its process. */
AV_EXPORT int rsocket(int domain, int type, int protocol)
{
	int kind = type & ~CALL_TYPE_FLAGS, err = call_check(domain, kind, protocol), fd;
	struct rsocket *rs;

	if (err < 0)
		return (int)call_result(err);
	fault_guard();
	rs = kind == SOCK_STREAM ? stream_open(domain, &err) : dgram_open(domain, &err);
	if (rs == NULL)
		return (int)call_result(err);
	__atomic_store_n(&rs->flags, type & SOCK_NONBLOCK ? O_NONBLOCK : 0, __ATOMIC_RELAXED);
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
	return (int)CALL_TOLD(socket, CALL_IN, accept, addr, addrlen);
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
	const struct rsocket_ops *ops;

	if (rs == NULL)
		return (int)call_result(table_forget(socket) ? 0 : -EBADF);
	if (!table_remove(rs)) {
		table_put(rs);
		return (int)call_result(-EBADF);
	}
	ops = rs->ops;
	ops->close(rs);
	table_free_last(rs);
	table_put(rs);
	if (ops->leave != NULL)
		ops->leave(socket);
	return 0;
}

/* ---- data ------------------------------------------------------------------------------------ */

AV_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr,
			    socklen_t *addrlen)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };

	return CALL_TOLD(socket, CALL_IN, recv, &iov, 1, flags, src_addr, addrlen);
}

AV_EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

AV_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecvfrom(socket, buf, count, 0, NULL, NULL);
}

/* Runs `operation` on a copy of the vector; `too_many`: the errno of a count that is none. */
#define CALL_IOV(fd, told, operation, vector, count, too_many, ...)                                \
	({                                                                                         \
		struct user_iov call_iov CLEANUP(user_drop_iov);                                   \
		int call_err = user_take_iov(&call_iov, vector, count);                            \
		ssize_t call_done;                                                                 \
                                                                                                   \
		if (call_err == 0)                                                                 \
			call_done = CALL_TOLD(fd, told, operation, call_iov.iov, (int)(count),     \
					      __VA_ARGS__);                                        \
		else                                                                               \
			call_done = call_result(call_err == -E2BIG ? -(too_many) : call_err);      \
		call_done;                                                                         \
	})

AV_EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return CALL_IOV(socket, CALL_IN, recv, iov, (size_t)iovcnt, EINVAL, 0, NULL, NULL);
}

AV_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	struct msghdr m;
	socklen_t *len;
	ssize_t result;

	if (user_copy(&m, msg, sizeof(m)) < 0)
		return call_result(-EFAULT);
	len = m.msg_name != NULL ? &m.msg_namelen : NULL;
	result = CALL_IOV(socket, CALL_IN, recv, m.msg_iov, m.msg_iovlen, EMSGSIZE, flags,
			  m.msg_name, len);
	if (result < 0)
		return result;
	m.msg_controllen = 0;
	m.msg_flags = 0;
	return user_copy(msg, &m, sizeof(m)) < 0 ? call_result(-EFAULT) : result;
}

AV_EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
			  const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };

	return CALL_TOLD(socket, CALL_OUT, send, &iov, 1, flags, dest_addr, addrlen);
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
	return CALL_IOV(socket, CALL_OUT, send, iov, (size_t)iovcnt, EINVAL, 0, NULL, 0);
}

AV_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	struct msghdr m;

	if (user_copy(&m, msg, sizeof(m)) < 0)
		return call_result(-EFAULT);
	if (m.msg_control != NULL && m.msg_controllen > 0)
		return call_result(-ENOTSUP);
	return CALL_IOV(socket, CALL_OUT, send, m.msg_iov, m.msg_iovlen, EMSGSIZE, flags,
			m.msg_name, m.msg_namelen);
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
	return (size_t)CALL_TOLD(socket, CALL_OUT, iowrite, buf, count, offset, flags);
}
