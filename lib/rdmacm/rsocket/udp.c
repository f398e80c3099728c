/* udp.c: the UDP sockets of datagram rsockets, and the one thread of the process that reads them.
 * In:    messages of peers' UDP sockets       Out: what they say of the peers, their datagrams
 * Runs:  the application's threads, its own   Locks: udp_service.lock, then dgram.lock
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fork.h"
#include "base/thread.h"
#include "dgram.h"

enum { UDP_BATCH = 64, UDP_EVENTS = 8 };

static struct udp_service {
	struct lock lock;
	struct list_head list GUARDED_BY(lock); /* struct dgram */
	int epoll_fd GUARDED_BY(lock);
	bool runs GUARDED_BY(lock);
} udp_service;

/* ---- sockets --------------------------------------------------------------------------------- */

static int udp_result(int result)
{
	return result < 0 ? -errno : 0;
}

int udp_open(int family)
{
	int fd = rsocket_number(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)), on = 1;

	if (fd < 0)
		return -errno;
	if (family == AF_INET)
		(void)setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
	else
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	return fd;
}

int udp_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	return udp_result(bind(fd, addr, len));
}

int udp_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	return udp_result(connect(fd, addr, len));
}

int udp_name(int fd, bool peer, struct sockaddr *addr, socklen_t *len)
{
	return udp_result(peer ? getpeername(fd, addr, len) : getsockname(fd, addr, len));
}

int udp_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	return udp_result(setsockopt(fd, level, name, value, len));
}

int udp_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	return udp_result(getsockopt(fd, level, name, value, len));
}

static bool udp_is_any(const union dgram_addr *a)
{
	static const u8 any[16], any4[4];
	u8 gid[16];

	dgram_addr_gid(a, gid);
	if (a->sa.sa_family == AF_INET)
		return memcmp(gid + 12, any4, sizeof(any4)) == 0;
	return memcmp(gid, any, sizeof(any)) == 0;
}

/* The kernel chooses a source for a socket that is connected. */
static int udp_preferred(const union dgram_addr *to, union dgram_addr *out)
{
	socklen_t len = sizeof(*out);
	int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	err = udp_connect(fd, &to->sa, dgram_addr_size(to));
	if (err == 0)
		err = udp_name(fd, false, &out->sa, &len);
	close(fd);
	return err;
}

int udp_source(int fd, const union dgram_addr *to, union dgram_addr *out)
{
	socklen_t len = sizeof(*out);
	in_port_t port;
	int err;

	memset(out, 0, sizeof(*out));
	err = udp_name(fd, false, &out->sa, &len);
	if (err < 0 || !udp_is_any(out))
		return err;
	port = out->in.sin_port; /* both families have it there */
	err = udp_preferred(to, out);
	out->in.sin_port = port;
	return err;
}

/* ---- messages -------------------------------------------------------------------------------- */

union udp_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(struct in_pktinfo))];
};

/* The local address that a message shall have as its source. */
static void udp_put_source(struct msghdr *m, union udp_control *control,
			   const union dgram_addr *local)
{
	struct in6_pktinfo six = { .ipi6_addr = local->in6.sin6_addr,
				   .ipi6_ifindex = local->in6.sin6_scope_id };
	struct in_pktinfo four = { .ipi_spec_dst = local->in.sin_addr };
	bool v6 = local->sa.sa_family == AF_INET6;
	struct cmsghdr *c;

	memset(control, 0, sizeof(*control));
	m->msg_control = control->bytes;
	m->msg_controllen = v6 ? CMSG_SPACE(sizeof(six)) : CMSG_SPACE(sizeof(four));
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	c->cmsg_type = v6 ? IPV6_PKTINFO : IP_PKTINFO;
	c->cmsg_len = v6 ? CMSG_LEN(sizeof(six)) : CMSG_LEN(sizeof(four));
	if (v6)
		memcpy(CMSG_DATA(c), &six, sizeof(six));
	else
		memcpy(CMSG_DATA(c), &four, sizeof(four));
}

int udp_send(int fd, const struct dgram_hello *hello, const union dgram_addr *to,
	     const union dgram_addr *local, const u8 *data, size_t bytes)
{
	u8 head[DGRAM_HELLO_BYTES];
	struct iovec parts[2];
	union udp_control control;
	struct msghdr m = { .msg_name = (void *)&to->sa, .msg_namelen = dgram_addr_size(to) };

	parts[0] = (struct iovec){ .iov_base = head, .iov_len = dgram_hello_pack(hello, head) };
	parts[1] = (struct iovec){ .iov_base = (void *)data, .iov_len = bytes };
	m.msg_iov = parts;
	m.msg_iovlen = bytes > 0 ? 2 : 1;
	if (local != NULL)
		udp_put_source(&m, &control, local);
	return udp_result((int)sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static void udp_take_local(struct msghdr *m, union dgram_addr *local)
{
	struct in6_pktinfo six;
	struct in_pktinfo four;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&four, CMSG_DATA(c), sizeof(four));
			local->in.sin_family = AF_INET;
			local->in.sin_addr = four.ipi_addr;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&six, CMSG_DATA(c), sizeof(six));
			local->in6.sin6_family = AF_INET6;
			local->in6.sin6_addr = six.ipi6_addr;
			if (IN6_IS_ADDR_LINKLOCAL(&six.ipi6_addr))
				local->in6.sin6_scope_id = six.ipi6_ifindex;
		}
	}
}

ssize_t udp_receive(int fd, void *to, size_t size, union dgram_addr *from, union dgram_addr *local)
{
	struct iovec part = { .iov_base = to, .iov_len = size };
	union udp_control control;
	struct msghdr m = { .msg_name = &from->sa,
			    .msg_namelen = sizeof(*from),
			    .msg_iov = &part,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	ssize_t got;

	memset(from, 0, sizeof(*from));
	memset(local, 0, sizeof(*local));
	got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_TRUNC);
	if (got < 0)
		return -errno;
	udp_take_local(&m, local);
	return got;
}

/* ---- what a message does --------------------------------------------------------------------- */

/* The application's datagram behind a message. */
static void udp_deliver(struct dgram *d, const union dgram_addr *from, const u8 *data, u32 length)
	REQUIRES(d->lock)
{
	struct dgram_item item = { .length = length, .from = *from };

	item.data = malloc(MAX(length, 1u));
	if (item.data == NULL)
		return;
	memcpy(item.data, data, length);
	if (!dgram_arrived(d, &item))
		free(item.data);
}

static void udp_message(struct dgram *d, const u8 *in, u32 bytes, const union dgram_addr *from,
			const union dgram_addr *local) REQUIRES(d->lock)
{
	struct dgram_hello hello, answer = { .op = DGRAM_CTRL };
	struct dgram_peer *peer;
	int head = dgram_hello_unpack(in, bytes, from->sa.sa_family, &hello);

	if (head < 0 || d->port == 0 || d->closing)
		return;
	if (dgram_peer_get(d, from, local, &peer) < 0)
		return;
	dgram_peer_learn(peer, &hello);
	if (hello.op != DGRAM_DATA)
		return;
	answer.v6 = hello.v6;
	answer.qpn = peer->qp->id->qp->qp_num;
	memcpy(answer.gid, peer->qp->gid, sizeof(answer.gid));
	(void)udp_send(d->rs.fd, &answer, from, local, NULL, 0);
	udp_deliver(d, from, in + head, bytes - (u32)head);
}

/* Takes one datagram, or an error. False: nothing waits at the socket. */
static bool udp_take(struct dgram *d) REQUIRES(d->lock)
{
	static u8 in[DGRAM_HELLO_BYTES + DGRAM_BYTES]; /* the thread's */
	union dgram_addr from, local;
	ssize_t got = udp_receive(d->rs.fd, in, sizeof(in), &from, &local);

	if (got == -EAGAIN)
		return false;
	if (got < 0 && got != -EINTR)
		d->error = (int)-got;
	else if (got >= 0 && (size_t)got <= sizeof(in))
		udp_message(d, in, (u32)got, &from, &local);
	return true;
}

/* Takes what waits at the socket, up to a limit: others shall have their turn. */
static void udp_ready(struct dgram *d)
{
	bool more = true;
	int taken = 0;

	while (more && taken < UDP_BATCH) {
		lock_acquire(&d->lock);
		more = udp_take(d);
		lock_release(&d->lock);
		taken += more;
	}
	if (taken > 0)
		wait_wake(&d->rs.waiters);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void udp_ready_fd(int fd)
{
	lock_acquire(&udp_service.lock);
	list_for_each_safe(d, &udp_service.list, struct dgram, node)
		if (d->rs.fd == fd)
			udp_ready(d);
	lock_release(&udp_service.lock);
}

static void *udp_run(void *argument)
{
	int epoll_fd = (int)(intptr_t)argument;
	struct epoll_event events[UDP_EVENTS];

	for (;;) {
		int count = epoll_wait(epoll_fd, events, UDP_EVENTS, -1);

		for (int i = 0; i < count; i++)
			udp_ready_fd(events[i].data.fd);
	}
	return NULL;
}

static int udp_begin(void) REQUIRES(udp_service.lock)
{
	int epoll_fd = fd_own(epoll_create1(EPOLL_CLOEXEC)), err;

	if (epoll_fd < 0)
		return -errno;
	err = thread_start("anyverbs/udp", 0, NULL, udp_run, (void *)(intptr_t)epoll_fd);
	if (err != 0) {
		close(epoll_fd);
		return err;
	}
	list_init(&udp_service.list);
	udp_service.epoll_fd = epoll_fd;
	udp_service.runs = true;
	return 0;
}

/* A forked child has no such thread, and its parent's rsockets are none of its own. */
static void udp_in_child(void) NO_THREAD_SAFETY
{
	if (udp_service.runs)
		close(udp_service.epoll_fd);
	udp_service.runs = false;
}
FORK_MAKES_ANEW(FORK_UDP_SERVICE, &udp_service.lock, .child = udp_in_child);

int udp_service_add(struct dgram *d)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = d->rs.fd };
	int err = 0;

	lock_acquire(&udp_service.lock);
	if (!udp_service.runs)
		err = udp_begin();
	if (err == 0)
		err = udp_result(epoll_ctl(udp_service.epoll_fd, EPOLL_CTL_ADD, d->rs.fd, &event));
	if (err == 0)
		list_push_back(&udp_service.list, &d->node);
	lock_release(&udp_service.lock);
	return err;
}

void udp_service_remove(struct dgram *d)
{
	lock_acquire(&udp_service.lock);
	if (udp_service.runs && !list_empty(&d->node)) {
		(void)epoll_ctl(udp_service.epoll_fd, EPOLL_CTL_DEL, d->rs.fd, NULL);
		list_remove(&d->node);
	}
	lock_release(&udp_service.lock);
}
