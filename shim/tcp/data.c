/* data.c: read, write, recv, send and their families.
 * In: the program's calls    Out: bytes of the rsocket, or of the kernel's descriptor
 * Runs: any thread    Locks: none
 *
 * The rsocket has the program's O_NONBLOCK, so a call that blocks blocks in the rsocket, but for
 * one with SO_RCVTIMEO or SO_SNDTIMEO, which rsockets do not have.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(read);
NEXT_SLOT(write);
NEXT_SLOT(readv);
NEXT_SLOT(writev);
NEXT_SLOT(preadv2);
NEXT_SLOT(pwritev2);
NEXT_SLOT(recv);
NEXT_SLOT(send);
NEXT_SLOT(recvfrom);
NEXT_SLOT(sendto);
NEXT_SLOT(recvmsg);
NEXT_SLOT(sendmsg);
NEXT_SLOT(recvmmsg);
NEXT_SLOT(sendmmsg);

__attribute__((constructor)) static void data_resolve(void)
{
	NEXT_RESOLVE(read);
	NEXT_RESOLVE(write);
	NEXT_RESOLVE(readv);
	NEXT_RESOLVE(writev);
	NEXT_RESOLVE(recv);
	NEXT_RESOLVE(send);
	NEXT_RESOLVE(recvfrom);
	NEXT_RESOLVE(sendto);
	NEXT_RESOLVE(recvmsg);
	NEXT_RESOLVE(sendmsg);
}

/* What rsockets know of the flags; MSG_NOSIGNAL is the shim's, MSG_MORE a hint. */
enum { DATA_FLAGS = MSG_DONTWAIT | MSG_PEEK };

/* DATA_THEIRS: the vector is the program's: librdmacm, which answers EFAULT, reads it first.
 * DATA_WRITEV: of writev, which the kernel ends before the socket if there are no bytes. No flag of
 * recv or send has these bits. */
enum { DATA_THEIRS = 1 << 28, DATA_WRITEV = 1 << 29 };

static bool data_blocks(const struct sock *s, int flags)
{
	return (flags & MSG_DONTWAIT) == 0 && !__atomic_load_n(&s->nonblock, __ATOMIC_ACQUIRE);
}

/* Waits as SO_RCVTIMEO or SO_SNDTIMEO says. False: errno is EAGAIN or EINTR. */
static bool data_wait(struct sock *s, int which)
{
	int timeout = __atomic_load_n(&s->timeout_ms[which], __ATOMIC_RELAXED);
	int ready = wait_one(s, which == 0 ? POLLIN : POLLOUT, timeout);

	if (ready == 0)
		errno = EAGAIN;
	return ready > 0;
}

static ssize_t recv_once(struct sock *s, struct iovec *v, int count, int flags)
{
	struct msghdr msg = { .msg_iov = v, .msg_iovlen = (size_t)count };

	if (flags & DATA_THEIRS)
		return rcalls.recvmsg(s->rfd, &msg, flags & DATA_FLAGS);
	return rcalls.recv(s->rfd, v->iov_base, v->iov_len, flags & DATA_FLAGS);
}

static ssize_t send_once(struct sock *s, const struct iovec *v, int count, int flags)
{
	struct msghdr msg = { .msg_iov = (void *)v, .msg_iovlen = (size_t)count };

	if (flags & DATA_THEIRS)
		return rcalls.sendmsg(s->rfd, &msg, flags & DATA_FLAGS);
	return rcalls.send(s->rfd, v->iov_base, v->iov_len, flags & DATA_FLAGS);
}

static size_t data_size(const struct iovec *v, int count)
{
	size_t size = 0;

	for (int i = 0; i < count; i++)
		size += v[i].iov_len;
	return size;
}

/* One transfer, as long as handlers of signals let the call begin again. */
static ssize_t data_recv_some(struct sock *s, struct iovec *v, int count, int flags)
{
	bool blocks = data_blocks(s, flags);
	bool timed = blocks && __atomic_load_n(&s->timeout_ms[0], __ATOMIC_RELAXED) > 0;
	int how = flags | (timed ? MSG_DONTWAIT : 0);
	ssize_t n;

	for (;;) {
		n = recv_once(s, v, count, how);
		if (likely(n >= 0))
			return n;
		if (timed && errno == EAGAIN) {
			if (!data_wait(s, 0))
				return -1;
		} else if (!(errno == EINTR && blocks && !timed && signal_restarts())) {
			return -1;
		}
	}
}

/* MSG_WAITALL: the rest, until the stream ends or fails. */
static ssize_t data_recv_rest(struct sock *s, const struct iovec *v, int count, size_t got,
			      int flags)
{
	size_t skip = got;

	for (int i = 0; i < count; i++) {
		size_t done = MIN(skip, v[i].iov_len);

		skip -= done;
		while (done < v[i].iov_len) {
			struct iovec left = { (u8 *)v[i].iov_base + done, v[i].iov_len - done };
			ssize_t n = data_recv_some(s, &left, 1, flags);

			if (n <= 0)
				return (ssize_t)got;
			done += (size_t)n;
			got += (size_t)n;
		}
	}
	return (ssize_t)got;
}

/* As of TCP only one call is told that the connection was reset; then it is at its end. */
static ssize_t data_recv_reset(struct sock *s)
{
	if (__atomic_exchange_n(&s->reset, 1, __ATOMIC_ACQ_REL) != 0)
		return 0;
	errno = ECONNRESET;
	return -1;
}

ssize_t data_recv(struct sock *s, struct iovec *v, int count, int flags)
{
	ssize_t n;

	if (flags & (MSG_OOB | MSG_ERRQUEUE)) {
		errno = flags & MSG_OOB ? EINVAL : EAGAIN;
		return -1;
	}
	if (count == 0 || (!(flags & DATA_THEIRS) && v->iov_len == 0))
		return 0;
	n = data_recv_some(s, v, count, flags);
	if (n < 0 && errno == ECONNRESET)
		n = data_recv_reset(s);
	if (n > 0 && flags & MSG_WAITALL && (flags & MSG_PEEK) == 0 && data_blocks(s, flags))
		n = data_recv_rest(s, v, count, (size_t)n, flags & ~DATA_THEIRS);
	if (unlikely(n <= 0 && __atomic_load_n(&exit_begun, __ATOMIC_RELAXED)))
		exit_stay();
	sock_rearm(s, REARM_IN);
	return n;
}

/* True: the program's vector can be read. */
static bool data_is_there(const struct iovec *v, int count)
{
	enum { AT_ONCE = 64 };
	struct iovec copy[AT_ONCE];

	for (int at = 0; at < count; at += AT_ONCE) {
		int n = count - at < AT_ONCE ? count - at : AT_ONCE;
		struct iovec from = { (void *)(v + at), (size_t)n * sizeof(*v) };
		struct iovec to = { copy, from.iov_len };

		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)to.iov_len)
			continue;
		errno = EFAULT;
		return false;
	}
	return true;
}

/* With a timeout, what has been sent when it is over is the result. */
static ssize_t data_send_timed(struct sock *s, const struct iovec *v, int count, int flags)
{
	size_t sent = 0;

	if ((flags & DATA_THEIRS) && !data_is_there(v, count))
		return -1;
	flags &= DATA_FLAGS;
	for (int i = 0; i < count; i++) {
		for (size_t done = 0; done < v[i].iov_len;) {
			ssize_t n = rcalls.send(s->rfd, (u8 *)v[i].iov_base + done,
						v[i].iov_len - done, flags | MSG_DONTWAIT);

			if (n > 0) {
				done += (size_t)n;
				sent += (size_t)n;
			} else if (n == 0 || errno != EAGAIN || !data_wait(s, 1)) {
				return sent > 0 ? (ssize_t)sent : -1;
			}
		}
	}
	return (ssize_t)sent;
}

/* A writev of no bytes, which says nothing of the socket. May set EFAULT. */
static bool data_ends_before(const struct iovec *v, int count, int flags)
{
	return (flags & DATA_WRITEV) != 0 && data_is_there(v, count) && data_size(v, count) == 0;
}

ssize_t data_send(struct sock *s, const struct iovec *v, int count, int flags)
{
	bool blocks = data_blocks(s, flags);
	ssize_t n;

	if (flags & MSG_OOB) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (count == 0 || (!(flags & DATA_THEIRS) && v->iov_len == 0)) {
		n = 0;
	} else if (blocks && __atomic_load_n(&s->timeout_ms[1], __ATOMIC_RELAXED) > 0) {
		n = data_send_timed(s, v, count, flags);
	} else {
		do
			n = send_once(s, v, count, flags);
		while (n < 0 && errno == EINTR && blocks && signal_restarts());
	}
	if (n == 0 && __atomic_load_n(&s->shut_write, __ATOMIC_ACQUIRE)) {
		errno = EPIPE; /* of no bytes, too */
		n = -1;
	}
	if (n < 0 && errno == EPIPE && data_ends_before(v, count, flags))
		n = 0;
	if (n < 0 || (n > 0 && (size_t)n < data_size(v, count)))
		sock_rearm(s, REARM_OUT);
	if (n < 0 && __atomic_load_n(&exit_begun, __ATOMIC_RELAXED))
		exit_stay();
	if (n < 0 && errno == ECONNRESET &&
	    __atomic_exchange_n(&s->reset, 1, __ATOMIC_ACQ_REL) != 0)
		errno = EPIPE;
	if (n < 0 && errno == EPIPE && (flags & MSG_NOSIGNAL) == 0) {
		raise(SIGPIPE);
		errno = EPIPE;
	}
	return n;
}

static ssize_t data_recv_one(struct sock *s, void *buf, size_t size, int flags)
{
	struct iovec v = { buf, size };

	return data_recv(s, &v, 1, flags);
}

static ssize_t data_send_one(struct sock *s, const void *buf, size_t size, int flags)
{
	struct iovec v = { (void *)buf, size };

	return data_send(s, &v, 1, flags);
}

AV_EXPORT ssize_t read(int fd, void *buf, size_t size)
{
	CALL c = call_begin_data(fd);

	return likely(c.s == NULL) ? NEXT(read)(fd, buf, size) :
				     data_recv_one(c.s, buf, size, 0);
}

AV_EXPORT ssize_t write(int fd, const void *buf, size_t size)
{
	CALL c = call_begin_data(fd);

	return likely(c.s == NULL) ? NEXT(write)(fd, buf, size) :
				     data_send_one(c.s, buf, size, 0);
}

AV_EXPORT ssize_t recv(int fd, void *buf, size_t size, int flags)
{
	CALL c = call_begin_data(fd);

	return c.s == NULL ? NEXT(recv)(fd, buf, size, flags) :
			     data_recv_one(c.s, buf, size, flags);
}

AV_EXPORT ssize_t send(int fd, const void *buf, size_t size, int flags)
{
	CALL c = call_begin_data(fd);

	return c.s == NULL ? NEXT(send)(fd, buf, size, flags) :
			     data_send_one(c.s, buf, size, flags);
}

AV_EXPORT ssize_t recvfrom(int fd, void *buf, size_t size, int flags, struct sockaddr *addr,
			   socklen_t *addr_size)
{
	CALL c = call_begin_data(fd);

	if (c.s == NULL)
		return NEXT(recvfrom)(fd, buf, size, flags, addr, addr_size);
	if (addr != NULL && addr_size != NULL)
		*addr_size = 0; /* as TCP's */
	return data_recv_one(c.s, buf, size, flags);
}

AV_EXPORT ssize_t sendto(int fd, const void *buf, size_t size, int flags,
			 const struct sockaddr *addr, socklen_t addr_size)
{
	CALL c = call_begin_data(fd);

	return c.s == NULL ? NEXT(sendto)(fd, buf, size, flags, addr, addr_size) :
			   data_send_one(c.s, buf, size, flags);
}

static bool data_vector_fits(int count)
{
	if (count >= 0 && count <= IOV_MAX)
		return true;
	errno = EINVAL;
	return false;
}

AV_EXPORT ssize_t readv(int fd, const struct iovec *v, int count)
{
	CALL c = call_begin_data(fd);

	if (likely(c.s == NULL))
		return NEXT(readv)(fd, v, count);
	return data_vector_fits(count) ? data_recv(c.s, (struct iovec *)v, count, DATA_THEIRS) : -1;
}

AV_EXPORT ssize_t writev(int fd, const struct iovec *v, int count)
{
	CALL c = call_begin_data(fd);

	if (likely(c.s == NULL))
		return NEXT(writev)(fd, v, count);
	return data_vector_fits(count) ? data_send(c.s, v, count, DATA_THEIRS | DATA_WRITEV) : -1;
}

/* Linux's vectors at a place, which a connection does not have: -1 stands for none. */
static ssize_t data_placed(off_t at, int *flags)
{
	if (at != -1) {
		errno = ESPIPE;
		return -1;
	}
	if (*flags & ~(RWF_NOWAIT | RWF_HIPRI | RWF_DSYNC | RWF_SYNC)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	*flags = DATA_THEIRS | (*flags & RWF_NOWAIT ? MSG_DONTWAIT : 0);
	return 0;
}

AV_EXPORT ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags)
{
	CALL c = call_begin_data(fd);
	ssize_t n;

	if (likely(c.s == NULL))
		return NEXT(preadv2)(fd, v, count, at, flags);
	n = data_placed(at, &flags);
	if (n == 0)
		n = data_vector_fits(count) ? data_recv(c.s, (struct iovec *)v, count, flags) : -1;
	return n;
}

AV_EXPORT ssize_t pwritev2(int fd, const struct iovec *v, int count, off_t at, int flags)
{
	CALL c = call_begin_data(fd);
	ssize_t n;

	if (likely(c.s == NULL))
		return NEXT(pwritev2)(fd, v, count, at, flags);
	n = data_placed(at, &flags);
	if (n == 0)
		n = data_vector_fits(count) ? data_send(c.s, v, count, flags | DATA_WRITEV) : -1;
	return n;
}

AV_EXPORT ssize_t preadv64v2(int fd, const struct iovec *v, int count, off64_t at, int flags)
{
	return preadv2(fd, v, count, at, flags);
}

AV_EXPORT ssize_t pwritev64v2(int fd, const struct iovec *v, int count, off64_t at, int flags)
{
	return pwritev2(fd, v, count, at, flags);
}

static ssize_t data_recvmsg(struct sock *s, struct msghdr *msg, int flags)
{
	ssize_t n;

	if (msg->msg_iovlen > IOV_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	n = data_recv(s, msg->msg_iov, (int)msg->msg_iovlen, flags | DATA_THEIRS);
	if (n < 0)
		return n;
	msg->msg_namelen = 0;
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	return n;
}

AV_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	CALL c = call_begin_data(fd);

	return c.s == NULL ? NEXT(recvmsg)(fd, msg, flags) : data_recvmsg(c.s, msg, flags);
}

/* A connection whose descriptor goes to another process is relayed from now on. */
static void data_give_rights(const struct msghdr *msg)
{
	QUIET();

	if (msg == NULL || msg->msg_control == NULL)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL;
	     c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0);
		     at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			sock_hand_on(fd);
		}
	}
}

AV_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	CALL c = call_begin_data(fd);

	if (c.s == NULL) {
		data_give_rights(msg);
		return NEXT(sendmsg)(fd, msg, flags);
	}
	if (msg->msg_iovlen <= IOV_MAX)
		return data_send(c.s, msg->msg_iov, (int)msg->msg_iovlen, flags | DATA_THEIRS);
	errno = EMSGSIZE;
	return -1;
}

AV_EXPORT int recvmmsg(int fd, struct mmsghdr *list, unsigned count, int flags,
		       struct timespec *timeout)
{
	CALL c = call_begin_data(fd);
	unsigned done = 0;
	ssize_t n = 0;

	if (c.s == NULL)
		return NEXT(recvmmsg)(fd, list, count, flags, timeout);
	for (; done < count && n >= 0; done++) {
		n = data_recvmsg(c.s, &list[done].msg_hdr,
				 done > 0 && flags & MSG_WAITFORONE ? flags | MSG_DONTWAIT : flags);
		if (n < 0)
			break;
		list[done].msg_len = (unsigned)n;
		if (n == 0)
			count = done + 1;
	}
	return done > 0 ? (int)done : -1;
}

AV_EXPORT int sendmmsg(int fd, struct mmsghdr *list, unsigned count, int flags)
{
	CALL c = call_begin_data(fd);
	unsigned done = 0;

	if (c.s == NULL)
		return NEXT(sendmmsg)(fd, list, count, flags);
	for (; done < count; done++) {
		ssize_t n = data_send(c.s, list[done].msg_hdr.msg_iov,
				      (int)MIN(list[done].msg_hdr.msg_iovlen, (size_t)IOV_MAX),
				      flags | DATA_THEIRS);

		if (n < 0)
			break;
		list[done].msg_len = (unsigned)n;
	}
	return done > 0 || count == 0 ? (int)done : -1;
}
