/* stream.c: stream rsockets: made, shut down, closed.
 * In:    calls                             Out: the end of a connection
 * Runs:  the application's threads         Locks: stream.conn_lock
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "stream.h"

/* ---- what has ended -------------------------------------------------------------------------- */

u32 stream_end(struct stream *s, u32 bits)
{
	u32 before = __atomic_fetch_or(&s->ended, bits, __ATOMIC_SEQ_CST);

	wait_wake(&s->rs.waiters);
	return before;
}

void stream_break(struct stream *s, int err)
{
	u32 none = 0;

	__atomic_compare_exchange_n(&s->error, &none, (u32)-err, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
	stream_end(s, STREAM_BROKEN);
}

int stream_recv_error(struct stream *s)
{
	u32 ended = stream_ended(s);

	if (ended & STREAM_CLOSED)
		return -EBADF;
	if (ended & (STREAM_END_RECV | STREAM_PEER_DONE | STREAM_PEER_GONE))
		return 0;
	return ended & STREAM_BROKEN ? -ECONNRESET : 0;
}

int stream_send_error(struct stream *s)
{
	u32 ended = stream_ended(s);

	if (ended & STREAM_CLOSED)
		return -EBADF;
	if (ended & STREAM_END_SEND)
		return -EPIPE;
	stream_end(s, STREAM_SEND_FAILED);
	return -ECONNRESET;
}

/* ---- making ---------------------------------------------------------------------------------- */

u32 stream_buffer_size(s64 bytes)
{
	return (u32)MIN(MAX(bytes, (s64)STREAM_BUFFER_MIN), (s64)STREAM_BUFFER_MAX) & ~1u;
}

static short stream_poll(struct rsocket *rs, short events, bool look);

static int stream_poll_fd(struct rsocket *rs)
{
	struct stream *s = stream_of(rs);

	return stream_phase(s) == STREAM_LISTENING ? accept_fd(s) : -1;
}

/* Bytes, and above them what has ended. */
static u64 stream_arrivals(struct rsocket *rs)
{
	struct stream *s = stream_of(rs);

	return __atomic_load_n(&s->arrived_bytes, __ATOMIC_SEQ_CST) ^
	       (u64)stream_ended(s) << (64 - 8);
}

/* How long rclose and rshutdown wait for the peer's adapter. */
static u64 stream_linger_ns(struct stream *s)
{
	u64 ns = __atomic_load_n(&s->at_once, __ATOMIC_RELAXED) ? 0 : STREAM_LINGER_NS;

	lock_acquire(&s->conn_lock);
	if (s->linger.l_onoff)
		ns = (u64)s->linger.l_linger * NS_PER_S;
	lock_release(&s->conn_lock);
	return ns;
}

static bool stream_is_accepted(struct stream *s)
{
	return stream_phase(s) != STREAM_ACCEPTING;
}

/* Waits for a connection that is being accepted. If it does not stand in time the peer hears of the
 * end once it does. False: it stands, or there is none. */
static bool stream_end_early(struct stream *s, u32 bits, u64 ns)
{
	bool early;

	if (ns > 0 && !stream_is_accepted(s))
		(void)stream_wait(s, stream_is_accepted, false, ns);
	lock_acquire(&s->conn_lock);
	early = !stream_is_accepted(s);
	if (early)
		stream_end(s, bits);
	lock_release(&s->conn_lock);
	return early;
}

/* A blocking one also waits until the peer's adapter has what was sent. */
static int stream_shutdown(struct rsocket *rs, int how)
{
	const u32 both = STREAM_END_RECV | STREAM_END_SEND;
	struct stream *s = stream_of(rs);
	bool at_once = __atomic_load_n(&s->at_once, __ATOMIC_RELAXED);
	u32 before, after, bits;
	int err = 0;
	u64 ns;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	if (stream_phase(s) == STREAM_LISTENING)
		return how == SHUT_WR ? 0 : stream_unlisten(s);
	bits = (how != SHUT_WR ? STREAM_END_RECV : 0) | (how != SHUT_RD ? STREAM_END_SEND : 0);
	ns = at_once || rsocket_is_nonblocking(rs, 0) ? 0 : stream_linger_ns(s);
	if (stream_end_early(s, bits, ns))
		return 0;
	if (stream_await(s, at_once) < 0)
		return -ENOTCONN;
	before = stream_end(s, bits) & both;
	after = before | bits;
	if (!(after & STREAM_END_SEND))
		return 0;
	if (after != before)
		err = stream_say_end(s, after == both ? STREAM_DISCONNECT : STREAM_SHUTDOWN);
	if (err == 0 && ns > 0)
		err = stream_wait(s, stream_is_flushed, false, ns);
	return err == -EINTR || err == -ETIMEDOUT ? 0 : err;
}

static bool stream_is_delivered(struct stream *s)
{
	return stream_is_accepted(s) && stream_is_flushed(s);
}

/* The peer hears of the end behind all data that was sent. */
static void stream_part(struct stream *s, u64 ns)
{
	u32 ended;

	if (stream_end_early(s, STREAM_END_RECV | STREAM_END_SEND, ns) ||
	    stream_phase(s) != STREAM_CONNECTED)
		return;
	ended = stream_ended(s);
	if (!(ended & STREAM_END_SEND) || !(ended & (STREAM_END_RECV | STREAM_PEER_DONE)))
		(void)stream_say_end(s, STREAM_DISCONNECT);
	/* the least limit is that of a thread that polls and does not sleep */
	(void)stream_wait(s, stream_is_flushed, false, MAX(ns, 1ull));
}

/* Is there something to be delivered behind the application's back? */
static bool stream_may_linger(struct stream *s)
{
	u32 phase = stream_phase(s);

	return __atomic_load_n(&s->at_once, __ATOMIC_RELAXED) &&
	       (phase == STREAM_ACCEPTING || phase == STREAM_CONNECTED) &&
	       !stream_is_delivered(s) && linger_begin() == 0;
}

/* What the peer's adapter has not acknowledged when rclose returns is lost, unless the stream goes
 * on to linger. SO_LINGER with a time of 0 tells the peer by the end of the connection alone. */
static void stream_close(struct rsocket *rs) NO_THREAD_SAFETY /* `linger` of a socket that ends */
{
	struct stream *s = stream_of(rs);

	service_keepalive(s, false);
	if (!s->linger.l_onoff || s->linger.l_linger != 0) {
		stream_part(s, stream_linger_ns(s));
		s->lingers = stream_may_linger(s);
	}
	if (s->lingers)
		s->lingers_until_ns = clock_now_ns() + STREAM_LINGER_NS;
	stream_end(s, STREAM_CLOSED);
	service_unwatch(s);
	lock_acquire(&s->conn_lock);
	accept_end(s);
	lock_release(&s->conn_lock);
}

/* One that raccept has not taken has no channel. */
static void stream_drop_descriptors(struct stream *s)
{
	if (s->channel != NULL)
		rdma_destroy_event_channel(s->channel);
	if (s->early != NULL)
		rdma_destroy_event_channel(s->early);
	if (s->bell >= 0)
		close(s->bell);
}

void stream_destroy(struct stream *s) NO_THREAD_SAFETY /* its last user */
{
	stream_free_maps(s);
	stream_unmake(s);
	if (s->id != NULL)
		rdma_destroy_id(s->id);
	stream_drop_descriptors(s);
	free(s->route);
	free(s);
}

static void stream_free(struct rsocket *rs)
{
	struct stream *s = stream_of(rs);

	if (s->lingers)
		linger_keep(s);
	else
		stream_destroy(s);
}

/* Only the descriptors are the child's; the rest is the parent's, and stays where it is. */
static void stream_forget(struct rsocket *rs)
{
	stream_drop_descriptors(stream_of(rs));
}

static const struct rsocket_ops stream_ops = {
	.bind = stream_bind,
	.listen = stream_listen,
	.accept = stream_accept,
	.connect = stream_connect,
	.shutdown = stream_shutdown,
	.send = stream_send,
	.recv = stream_recv,
	.name = stream_name,
	.setsockopt = stream_setsockopt,
	.getsockopt = stream_getsockopt,
	.poll = stream_poll,
	.arm = stream_arm,
	.poll_fd = stream_poll_fd,
	.arrivals = stream_arrivals,
	.iomap = stream_iomap,
	.iounmap = stream_iounmap,
	.iowrite = stream_iowrite,
	.close = stream_close,
	.leave = service_leave,
	.free = stream_free,
	.forget = stream_forget,
};

struct stream *stream_new(struct rdma_event_channel *channel) NO_THREAD_SAFETY /* nobody has it */
{
	const struct rsocket_defaults *d = rsocket_defaults();
	struct stream *s = aligned_alloc(CACHE_LINE, sizeof(*s));

	if (s == NULL)
		return NULL;
	*s = (struct stream){ .channel = channel, .phase = STREAM_NEW, .bell = -1 };
	rsocket_init(&s->rs, &stream_ops, SOCK_STREAM);
	s->rs.fd = channel != NULL ? channel->fd : -1;
	list_init(&s->mappings);
	list_init(&s->asking);
	list_init(&s->waiting);
	s->want = (struct stream_sizes){ .send_bytes = stream_buffer_size(d->send_bytes),
					 .recv_bytes = stream_buffer_size(d->receive_bytes),
					 .sq = d->send_queue,
					 .rq = d->receive_queue,
					 .inline_bytes = d->inline_bytes,
					 .iomaps = d->iomaps };
	return s;
}

struct rdma_event_channel *stream_channel(void)
{
	struct rdma_event_channel *channel;

	fd_show_from(RSOCKET_NUMBER_FIRST);
	channel = rdma_create_event_channel();
	fd_show_from(0);
	return channel;
}

struct rsocket *stream_open(int domain, int *err)
{
	struct rdma_event_channel *channel = stream_channel();
	struct stream *s;

	if (channel == NULL) {
		*err = -errno;
		return NULL;
	}
	s = stream_new(channel);
	*err = -ENOMEM;
	if (s == NULL)
		goto destroy_channel;
	s->domain = domain;
	*err = 0;
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0 ||
	    rdma_create_id(channel, &s->id, s, RDMA_PS_TCP) != 0)
		*err = -errno;
	if (*err == 0)
		return &s->rs;
	free(s);
destroy_channel:
	rdma_destroy_event_channel(channel);
	return NULL;
}

/* ---- polling --------------------------------------------------------------------------------- */

static short stream_poll_listening(const struct stream *s, short events)
{
	struct pollfd p = { .fd = accept_fd(s), .events = POLLIN };

	if (!(events & (POLLIN | POLLRDNORM)) || poll(&p, 1, 0) <= 0)
		return 0;
	return (short)(events & (POLLIN | POLLRDNORM));
}

/* What is true whether it was asked for or not. As with TCP a peer that has closed is no POLLHUP,
 * but the end of what can be read, until a call to send has found out. POLLHUP comes behind the
 * last byte: to a program such as rstream it is an error, also beside POLLIN. */
static short stream_poll_ended(u32 ended, bool has_data)
{
	bool no_recv = ended & (STREAM_END_RECV | STREAM_PEER_DONE | STREAM_PEER_GONE);
	short revents = 0;

	if (!has_data && ((ended & (STREAM_BROKEN | STREAM_SEND_FAILED)) ||
			  (no_recv && (ended & STREAM_END_SEND))))
		revents |= POLLHUP;
	if (ended & STREAM_BROKEN)
		revents |= POLLERR;
	return ended & STREAM_CLOSED ? POLLNVAL : revents;
}

static short stream_poll(struct rsocket *rs, short events, bool look)
{
	const short in = POLLIN | POLLRDNORM, out = POLLOUT | POLLWRNORM;
	struct stream *s = stream_of(rs);
	u32 phase = stream_phase(s), ended;
	short revents;
	bool has_data;

	if (phase == STREAM_LISTENING)
		return stream_poll_listening(s, events);
	if (phase == STREAM_FAILED)
		return (short)((events & (in | out)) | POLLERR | POLLHUP);
	if (phase == STREAM_NEW || phase == STREAM_BOUND)
		return (short)((events & out) | POLLHUP);
	if (phase != STREAM_CONNECTED)
		return 0;
	if (look || !rsocket_cq_is_armed(&s->cq))
		stream_drive(s);
	ended = stream_ended(s);
	has_data = stream_has_data(s);
	revents = stream_poll_ended(ended, has_data);
	if ((events & in) && ((ended & STREAM_NO_RECV) || has_data))
		revents |= events & in;
	if ((events & out) && ((ended & STREAM_NO_SEND) || stream_can_send(s)))
		revents |= events & out;
	if (ended & (STREAM_END_RECV | STREAM_PEER_DONE | STREAM_PEER_GONE))
		revents |= events & POLLRDHUP;
	return revents;
}
