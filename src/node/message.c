/* message.c: packets with descriptors over a SOCK_SEQPACKET socket.
 * In:    structs of protocol.h, descriptors     Out: the same, on the other side
 * Runs:  any thread                             Locks: none
 */
#include "node/message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

int message_send(int fd, const void *data, size_t size, const int *fds, int fd_count)
{
	union {
		char space[CMSG_SPACE(sizeof(int) * PROTO_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = (void *)data, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd_count > 0) {
		struct cmsghdr *c = &control.align;

		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)fd_count);
	}
	do {
		n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void message_take_control(struct msghdr *msg, struct message *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int got;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (m->fd_count < PROTO_FDS)
				m->fds[m->fd_count++] = got;
			else
				close(got);
		}
	}
	m->fds_lost = (msg->msg_flags & MSG_CTRUNC) != 0;
}

int message_receive(int fd, void *data, size_t capacity, struct message *m)
{
	union {
		char space[CMSG_SPACE(sizeof(int) * PROTO_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = capacity };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n;

	memset(m, 0, sizeof(*m));
	do {
		n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	message_take_control(&msg, m);
	if (n == 0) {
		message_close(m);
		return -ECONNRESET;
	}
	if (msg.msg_flags & MSG_TRUNC) {
		message_close(m);
		return -EMSGSIZE;
	}
	m->size = (size_t)n;
	return 0;
}

void message_own(struct message *m)
{
	for (int i = 0; i < m->fd_count; i++)
		m->fds[i] = fd_own(m->fds[i]);
}

int message_wait(int fd, u64 deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		u64 now = clock_now_ns();
		int left_ms = now >= deadline_ns ? 0 : (int)((deadline_ns - now) / NS_PER_MS) + 1;
		int n = poll(&p, 1, left_ms);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}

void message_close(struct message *m)
{
	for (int i = 0; i < m->fd_count; i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	m->fd_count = 0;
}

int message_take_fd(struct message *m, int index)
{
	int fd;

	if (index >= m->fd_count)
		return -1;
	fd = m->fds[index];
	m->fds[index] = -1;
	return fd;
}
