/* dgram.c: datagram rsockets: what the r* calls do with them.
 * In:    the application's calls, datagrams     Out: UD messages, messages of the UDP socket
 * Runs:  the application's threads              Locks: dgram.lock; none while a thread sleeps
 */
#include <netinet/udp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dgram.h"
#include "user.h"

enum { DGRAM_MOST_QUEUE = 0xfffe, DGRAM_LOOKS = 200, DGRAM_DRAIN_LOOKS = 1000 };

/* ---- waiting --------------------------------------------------------------------------------- */

/* A thread that sleeps, with or without the lock. Its end is also that of a thread that is
 * cancelled. */
struct dgram_sleep {
	struct dgram *d;
	struct sleeper me;
	struct waiter place;
} OWNED_BY(the thread that sleeps);

static void dgram_sleep_end(struct dgram_sleep *w)
{
	wait_leave(&w->d->rs.waiters, &w->place);
	sleeper_end(&w->me);
}

static int dgram_sleep(struct dgram *d, bool (*ready)(struct dgram *d)) REQUIRES(d->lock)
{
	struct dgram_sleep w CLEANUP(dgram_sleep_end) = { .d = d };
	int err = 0;

	(void)sleeper_begin(&w.me, SLEEP_CALL);
	wait_join(&d->rs.waiters, &w.place, &w.me);
	for (;;) {
		sleeper_reset(&w.me);
		dgram_qps_arm(d);
		dgram_qps_poll(d, true);
		if (d->closing)
			return -EBADF;
		if (err < 0 || ready(d))
			return err;
		lock_release(&d->lock);
		err = sleeper_sleep(&w.me, 0);
		lock_acquire(&d->lock);
	}
}

/* Waits until `ready` holds, which runs under the lock. 0, -EAGAIN, -EINTR, -EBADF (closed). */
static int dgram_wait(struct dgram *d, bool (*ready)(struct dgram *d), bool nonblock)
	REQUIRES(d->lock)
{
	for (u32 i = 0; i < (nonblock ? 1 : DGRAM_LOOKS); i++) {
		dgram_qps_poll(d, true);
		if (ready(d))
			return 0;
	}
	if (nonblock)
		return -EAGAIN;
	return dgram_sleep(d, ready);
}

static bool dgram_has_data(struct dgram *d) REQUIRES(d->lock)
{
	return d->count > 0 || d->error != 0 || d->no_receive;
}

/* Every queue pair has room, so that a datagram to anybody can be sent. */
static bool dgram_has_room(struct dgram *d) REQUIRES(d->lock)
{
	list_for_each(qp, &d->qps, struct dgram_qp, node)
		if (qp->idle_count == 0)
			return d->error != 0;
	return true;
}

static int dgram_take_error(struct dgram *d) REQUIRES(d->lock)
{
	int err = -d->error;

	d->error = 0;
	return err;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static int dgram_read_name(const struct dgram *d, union dgram_addr *name)
{
	socklen_t len = sizeof(*name);

	memset(name, 0, sizeof(*name));
	return udp_name(d->rs.fd, false, &name->sa, &len);
}

static int dgram_note_port(struct dgram *d) REQUIRES(d->lock)
{
	union dgram_addr name;
	int err = dgram_read_name(d, &name);

	if (err == 0)
		d->port = name.in.sin_port; /* both families have it there */
	return err;
}

/* Fixes the sizes of the queues; headers need a port, too. */
static int dgram_start(struct dgram *d) REQUIRES(d->lock)
{
	union dgram_addr any;
	int err = 0;

	if (!d->started) {
		d->receive_queue = MAX(MIN(d->receive_queue, d->receive_bytes / DGRAM_BYTES), 1u);
		d->send_queue = MAX(MIN(d->send_queue, d->send_bytes / DGRAM_BYTES), 1u);
		d->items = calloc(d->receive_queue, sizeof(*d->items));
		if (d->items == NULL)
			return -ENOMEM;
		d->started = true;
	}
	if (d->port != 0)
		return 0;
	memset(&any, 0, sizeof(any));
	any.sa.sa_family = (sa_family_t)d->family;
	err = udp_bind(d->rs.fd, &any.sa, dgram_addr_size(&any));
	return err < 0 ? err : dgram_note_port(d);
}

/* An address of the application for this socket: IPv6 sockets reach IPv4 ones, too. */
static int dgram_take_addr(struct dgram *d, const struct sockaddr *addr, socklen_t len,
			   union dgram_addr *out)
{
	struct sockaddr_storage given;
	union dgram_addr four;
	int err = user_take_addr(&given, addr, len);

	if (err < 0)
		return err;
	if (!dgram_addr_take(out, (struct sockaddr *)&given, len))
		return len >= sizeof(*addr) ? -EAFNOSUPPORT : -EINVAL;
	if (out->sa.sa_family == d->family)
		return 0;
	if (d->family == AF_INET)
		return -EAFNOSUPPORT;
	four = *out;
	memset(out, 0, sizeof(*out));
	out->in6.sin6_family = AF_INET6;
	out->in6.sin6_port = four.in.sin_port;
	dgram_addr_gid(&four, out->in6.sin6_addr.s6_addr);
	return 0;
}

static int dgram_bind(struct rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
	struct dgram *d = dgram_of(rs);
	int err;

	lock_acquire(&d->lock);
	err = udp_bind(rs->fd, addr, len);
	if (err == 0)
		err = dgram_note_port(d);
	if (err == 0)
		err = dgram_start(d);
	lock_release(&d->lock);
	return err;
}

/* A UDP socket whose port the kernel has chosen loses it when it is disconnected. Peers know the
 * port, which is in the headers of the queue pairs. */
static int dgram_keep_port(struct dgram *d) REQUIRES(d->lock)
{
	union dgram_addr name;
	int err = dgram_read_name(d, &name);

	if (err < 0 || d->port == 0 || name.in.sin_port != 0)
		return err;
	name.in.sin_port = d->port; /* both families have it there */
	return udp_bind(d->rs.fd, &name.sa, dgram_addr_size(&name));
}

static int dgram_disconnect(struct dgram *d) REQUIRES(d->lock)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	int err;

	d->connected = NULL;
	err = udp_connect(d->rs.fd, &none, sizeof(none));
	return err < 0 ? err : dgram_keep_port(d);
}

static int dgram_connect_to(struct dgram *d, const union dgram_addr *to) REQUIRES(d->lock)
{
	struct dgram_peer *peer;
	int err = dgram_start(d);

	if (err == 0)
		err = udp_connect(d->rs.fd, &to->sa, dgram_addr_size(to));
	if (err < 0)
		return err;
	err = dgram_peer_get(d, to, NULL, &peer);
	if (err < 0)
		(void)dgram_disconnect(d);
	else
		d->connected = peer;
	return err;
}

static int dgram_connect(struct rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
	struct dgram *d = dgram_of(rs);
	struct sockaddr_storage given;
	union dgram_addr to;
	int err = user_take_addr(&given, addr, len);

	if (err < 0)
		return err;
	lock_acquire(&d->lock);
	if (given.ss_family == AF_UNSPEC) {
		err = dgram_disconnect(d);
	} else {
		err = dgram_take_addr(d, addr, len, &to);
		if (err == 0)
			err = dgram_connect_to(d, &to);
	}
	lock_release(&d->lock);
	return err;
}

static int dgram_name(struct rsocket *rs, bool peer, struct sockaddr *addr, socklen_t *len)
{
	return udp_name(rs->fd, peer, addr, len);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* What travels as a UD message must also fit behind a message of the UDP sockets, and both into the
 * receive buffers of rdma-core's. */
u32 dgram_limit(const struct dgram *d, const struct dgram_qp *qp)
{
	return MIN(qp->room - qp->header_bytes,
		   (u32)DGRAM_BYTES - dgram_hello_bytes(d->family == AF_INET6));
}

/* To a peer whose queue pair is not known: the datagram asks for it. */
static int dgram_send_udp(struct dgram *d, struct dgram_peer *peer, const struct iovec *iov,
			  int count, size_t bytes) REQUIRES(d->lock)
{
	struct dgram_hello hello = { .op = DGRAM_DATA, .v6 = d->family == AF_INET6 };
	u8 data[DGRAM_BYTES];

	hello.qpn = peer->qp->id->qp->qp_num;
	memcpy(hello.gid, peer->qp->gid, sizeof(hello.gid));
	if (dgram_gather(data, iov, count) < 0)
		return -EFAULT;
	return udp_send(d->rs.fd, &hello, &peer->addr, NULL, data, bytes);
}

static int dgram_send_to(struct dgram *d, struct dgram_peer *peer, const struct iovec *iov,
			 int count, size_t bytes, bool nonblock) REQUIRES(d->lock)
{
	union dgram_addr addr = peer->addr;
	int err = 0;

	while (err == 0) {
		/* a wait lets go of the lock, and the peer may be forgotten meanwhile */
		if (bytes > dgram_limit(d, peer->qp))
			return -EMSGSIZE;
		if (peer->ah == NULL)
			return dgram_send_udp(d, peer, iov, count, bytes);
		if (peer->qp->idle_count == 0)
			dgram_qps_poll(d, true);
		err = dgram_qp_send(peer->qp, peer, iov, count, bytes);
		if (err != -EAGAIN)
			return err;
		err = dgram_wait(d, dgram_has_room, nonblock);
		if (err == 0 && d->error != 0)
			err = dgram_take_error(d);
		if (err == 0)
			err = dgram_peer_get(d, &addr, NULL, &peer);
	}
	return err;
}

static int dgram_size(const struct iovec *iov, int count, size_t *bytes)
{
	*bytes = 0;
	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > DGRAM_BYTES)
			return -EMSGSIZE;
		*bytes += iov[i].iov_len;
	}
	return *bytes > DGRAM_BYTES ? -EMSGSIZE : 0;
}

static int dgram_find_peer(struct dgram *d, const struct sockaddr *addr, socklen_t len,
			   struct dgram_peer **out) REQUIRES(d->lock)
{
	union dgram_addr to;
	int err;

	if (addr == NULL) {
		*out = d->connected;
		return d->connected != NULL ? 0 : -EDESTADDRREQ;
	}
	err = dgram_take_addr(d, addr, len, &to);
	return err < 0 ? err : dgram_peer_get(d, &to, NULL, out);
}

static ssize_t dgram_send(struct rsocket *rs, const struct iovec *iov, int count, int flags,
			  const struct sockaddr *addr, socklen_t len)
{
	struct dgram *d = dgram_of(rs);
	struct dgram_peer *peer;
	size_t bytes;
	int err;

	err = dgram_size(iov, count, &bytes);
	if (err < 0)
		return err;
	lock_acquire(&d->lock);
	if (d->error != 0)
		err = dgram_take_error(d);
	else if (d->no_send)
		err = -EPIPE;
	if (err == 0)
		err = dgram_start(d);
	if (err == 0)
		err = dgram_find_peer(d, addr, len, &peer);
	if (err == 0)
		err = dgram_send_to(d, peer, iov, count, bytes,
				    rsocket_is_nonblocking(rs, flags));
	lock_release(&d->lock);
	return err < 0 ? err : (ssize_t)bytes;
}

/* ---- receiving ------------------------------------------------------------------------------- */

bool dgram_arrived(struct dgram *d, const struct dgram_item *item)
{
	if (!d->started || d->count == d->receive_queue || d->closing || d->no_receive)
		return false;
	if (d->connected != NULL && !dgram_addr_same_end(&item->from, &d->connected->addr))
		return false;
	d->items[(d->head + d->count) % d->receive_queue] = *item;
	d->count++;
	__atomic_add_fetch(&d->arrived, 1, __ATOMIC_RELAXED);
	return true;
}

static void dgram_drop_first(struct dgram *d) REQUIRES(d->lock)
{
	struct dgram_item *item = &d->items[d->head];

	if (item->qp != NULL)
		dgram_qp_receive(item->qp, item->slot);
	else
		free(item->data);
	d->head = (d->head + 1) % d->receive_queue;
	d->count--;
}

/* Returns how much there was room for, or -EFAULT. */
static ssize_t dgram_scatter(const struct iovec *iov, int count, const u8 *data, size_t length)
{
	size_t done = 0;

	for (int i = 0; i < count && done < length; i++) {
		size_t part = MIN(iov[i].iov_len, length - done);

		if (user_copy(iov[i].iov_base, data + done, part) < 0)
			return -EFAULT;
		done += part;
	}
	return (ssize_t)done;
}

/* One that cannot be copied stays where it is. */
static ssize_t dgram_take(struct dgram *d, const struct iovec *iov, int count, int flags,
			  struct sockaddr *addr, socklen_t *len) REQUIRES(d->lock)
{
	struct dgram_item *item = &d->items[d->head];
	ssize_t got = dgram_scatter(iov, count, item->data, item->length);

	if (got >= 0 && addr != NULL && len != NULL &&
	    user_give_addr(&item->from, dgram_addr_size(&item->from), addr, len) < 0)
		got = -EFAULT;
	if (got < 0)
		return got;
	if (flags & MSG_TRUNC)
		got = item->length;
	if (!(flags & MSG_PEEK))
		dgram_drop_first(d);
	return got;
}

static ssize_t dgram_recv(struct rsocket *rs, const struct iovec *iov, int count, int flags,
			  struct sockaddr *addr, socklen_t *len)
{
	struct dgram *d = dgram_of(rs);
	ssize_t got = 0;

	lock_acquire(&d->lock);
	if (!dgram_has_data(d))
		got = dgram_wait(d, dgram_has_data, rsocket_is_nonblocking(rs, flags));
	if (got == 0 && d->count > 0)
		got = dgram_take(d, iov, count, flags, addr, len);
	else if (got == 0 && d->error != 0)
		got = dgram_take_error(d);
	lock_release(&d->lock);
	return got;
}

/* ---- polling --------------------------------------------------------------------------------- */

static short dgram_poll(struct rsocket *rs, short events, bool look)
{
	struct dgram *d = dgram_of(rs);
	short got = 0;

	lock_acquire(&d->lock);
	dgram_qps_poll(d, look);
	if (dgram_has_data(d))
		got |= POLLIN | POLLRDNORM;
	if (dgram_has_room(d))
		got |= POLLOUT | POLLWRNORM;
	got &= events;
	if (d->error != 0)
		got |= POLLERR;
	if (d->no_receive && d->no_send)
		got |= POLLHUP;
	lock_release(&d->lock);
	return got;
}

static void dgram_arm(struct rsocket *rs)
{
	struct dgram *d = dgram_of(rs);

	lock_acquire(&d->lock);
	dgram_qps_arm(d);
	lock_release(&d->lock);
}

/* The service's thread reads the UDP socket. */
static int dgram_poll_fd(struct rsocket *rs)
{
	(void)rs;
	return -1;
}

static u64 dgram_arrivals(struct rsocket *rs)
{
	return __atomic_load_n(&dgram_of(rs)->arrived, __ATOMIC_RELAXED);
}

/* ---- options --------------------------------------------------------------------------------- */

static int dgram_set_rdma(struct dgram *d, int name, u32 value) REQUIRES(d->lock)
{
	if (d->started)
		return -EINVAL;
	value = MIN(value, (u32)DGRAM_MOST_QUEUE);
	switch (name) {
	case RDMA_SQSIZE:
		d->send_queue = MAX(value, 1u);
		return 0;
	case RDMA_RQSIZE:
		d->receive_queue = MAX(value, 1u);
		return 0;
	case RDMA_INLINE:
		d->inline_bytes = value;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/* The kernel doubles a size, too; it is for both: the UDP socket's buffer, and the queue's. */
static void dgram_set_buffer(struct dgram *d, int name, u32 value) REQUIRES(d->lock)
{
	u32 bytes = MIN(value, (u32)INT32_MAX / 2) * 2;

	if (d->started)
		return;
	if (name == SO_RCVBUF)
		d->receive_bytes = bytes;
	else
		d->send_bytes = MAX(bytes, 2u * DGRAM_BYTES);
}

static int dgram_setsockopt(struct rsocket *rs, int level, int name, const void *value,
			    socklen_t len)
{
	struct dgram *d = dgram_of(rs);
	u32 number = 0;
	int err;

	if (level != SOL_RDMA) {
		err = udp_setsockopt(rs->fd, level, name, value, len);
		if (err < 0 || level != SOL_SOCKET || (name != SO_RCVBUF && name != SO_SNDBUF))
			return err;
	} else if (len < sizeof(number)) {
		return -EINVAL;
	}
	if (user_copy(&number, value, sizeof(number)) < 0)
		return -EFAULT;
	lock_acquire(&d->lock);
	if (level == SOL_RDMA) {
		err = dgram_set_rdma(d, name, number);
	} else {
		dgram_set_buffer(d, name, number);
		err = 0;
	}
	lock_release(&d->lock);
	return err;
}

static bool dgram_own_option(struct dgram *d, int level, int name, int *value) REQUIRES(d->lock)
{
	if (level == SOL_RDMA && name == RDMA_SQSIZE)
		*value = (int)d->send_queue;
	else if (level == SOL_RDMA && name == RDMA_RQSIZE)
		*value = (int)d->receive_queue;
	else if (level == SOL_RDMA && name == RDMA_INLINE)
		*value = (int)d->inline_bytes;
	else if (level == SOL_SOCKET && name == SO_RCVBUF)
		*value = (int)d->receive_bytes;
	else if (level == SOL_SOCKET && name == SO_SNDBUF)
		*value = (int)d->send_bytes;
	else if (level == SOL_SOCKET && name == SO_ERROR && d->error != 0)
		*value = -dgram_take_error(d);
	else
		return false;
	return true;
}

static int dgram_getsockopt(struct rsocket *rs, int level, int name, void *value, socklen_t *len)
{
	struct dgram *d = dgram_of(rs);
	socklen_t room;
	int number;
	bool own;

	if (user_copy(&room, len, sizeof(room)) < 0)
		return -EFAULT;
	lock_acquire(&d->lock);
	own = dgram_own_option(d, level, name, &number);
	lock_release(&d->lock);
	if (!own)
		return level == SOL_RDMA ? -EOPNOTSUPP
					 : udp_getsockopt(rs->fd, level, name, value, len);
	return room < sizeof(number) ? -EINVAL : user_give(&number, sizeof(number), value, len);
}

/* ---- the end --------------------------------------------------------------------------------- */

static int dgram_shutdown(struct rsocket *rs, int how)
{
	struct dgram *d = dgram_of(rs);
	int err = 0;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	lock_acquire(&d->lock);
	if (d->connected == NULL) {
		err = -ENOTCONN;
	} else {
		d->no_receive |= how != SHUT_WR;
		d->no_send |= how != SHUT_RD;
	}
	lock_release(&d->lock);
	wait_wake(&rs->waiters);
	return err;
}

/* What was sent leaves before the queue pairs end; no datagram waits for a peer. */
static void dgram_close(struct rsocket *rs)
{
	struct dgram *d = dgram_of(rs);

	udp_service_remove(d);
	lock_acquire(&d->lock);
	d->closing = true;
	for (u32 i = 0; i < DGRAM_DRAIN_LOOKS && dgram_qps_busy(d); i++)
		dgram_qps_poll(d, true);
	lock_release(&d->lock);
	wait_wake(&rs->waiters);
}

static void dgram_free(struct rsocket *rs)
{
	struct dgram *d = dgram_of(rs);

	udp_service_remove(d);
	lock_acquire(&d->lock);
	dgram_peers_destroy(d);
	for (; d->count > 0; d->count--, d->head = (d->head + 1) % d->receive_queue)
		if (d->items[d->head].qp == NULL)
			free(d->items[d->head].data);
	dgram_qps_destroy(d);
	free(d->items);
	lock_release(&d->lock);
	close(rs->fd);
	free(d);
}

static void dgram_forget(struct rsocket *rs)
{
	close(rs->fd);
}

static const struct rsocket_ops dgram_ops = {
	.bind = dgram_bind,
	.connect = dgram_connect,
	.shutdown = dgram_shutdown,
	.send = dgram_send,
	.recv = dgram_recv,
	.name = dgram_name,
	.setsockopt = dgram_setsockopt,
	.getsockopt = dgram_getsockopt,
	.poll = dgram_poll,
	.arm = dgram_arm,
	.poll_fd = dgram_poll_fd,
	.arrivals = dgram_arrivals,
	.close = dgram_close,
	.free = dgram_free,
	.forget = dgram_forget,
};

static void dgram_init(struct dgram *d, int family)
{
	const struct rsocket_defaults *def = rsocket_defaults();

	rsocket_init(&d->rs, &dgram_ops, SOCK_DGRAM);
	d->family = family;
	list_init(&d->node);
	lock_acquire(&d->lock);
	list_init(&d->qps);
	dgram_peers_init(d);
	d->receive_bytes = def->receive_bytes;
	d->send_bytes = def->send_bytes;
	d->receive_queue = def->receive_queue;
	d->send_queue = def->send_queue;
	d->inline_bytes = def->inline_bytes;
	lock_release(&d->lock);
}

struct rsocket *dgram_open(int domain, int *err)
{
	struct dgram *d = calloc(1, sizeof(*d));

	*err = -ENOMEM;
	if (d == NULL)
		return NULL;
	dgram_init(d, domain);
	d->rs.fd = udp_open(domain);
	if (d->rs.fd < 0) {
		*err = d->rs.fd;
		free(d);
		return NULL;
	}
	*err = udp_service_add(d);
	if (*err == 0)
		return &d->rs;
	close(d->rs.fd);
	free(d);
	return NULL;
}
