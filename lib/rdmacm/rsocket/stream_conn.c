/* stream_conn.c: how a stream gets its connection. Accepting one: stream_accept.c.
 * In:    calls, events of the CM           Out: phases of the stream
 * Runs:  the application's threads; events of connections on the service's thread (service.c)
 * Locks: stream.conn_lock, held across calls of the CM and of the verbs
 */
#include <infiniband/ib.h>
#include <netinet/in.h>
#include <string.h>

#include "stream.h"
#include "user.h"

enum {
	CONN_RETRIES = 6,
	CONN_TIMEOUT_MS = 1000,
	CONN_ATTEMPTS = 7,
	CONN_LEFT_MS = 100, /* within which the device hears of a death that the CM has told */
};

void stream_set_phase(struct stream *s, enum stream_phase phase)
{
	/* what the phase stands on is visible first; pairs with stream_phase */
	__atomic_store_n(&s->phase, phase, __ATOMIC_SEQ_CST);
	wait_wake(&s->rs.waiters);
}

static void conn_fail(struct stream *s, int err) REQUIRES(s->conn_lock)
{
	__atomic_store_n(&s->error, (u32)-err, __ATOMIC_RELEASE);
	stream_set_phase(s, STREAM_FAILED);
}

static bool conn_is_opening(u32 phase)
{
	return phase >= STREAM_RESOLVING_ADDR && phase <= STREAM_ACCEPTING;
}

static bool conn_is_settled(struct stream *s)
{
	return !conn_is_opening(stream_phase(s)) || (stream_ended(s) & STREAM_CLOSED);
}

int stream_await(struct stream *s, bool nonblock)
{
	u32 phase = stream_phase(s), error;
	int err = 0;

	if (conn_is_opening(phase))
		err = stream_wait(s, conn_is_settled, nonblock, 0);
	if (err < 0)
		return err;
	phase = stream_phase(s);
	if (phase == STREAM_CONNECTED)
		return 0;
	error = __atomic_load_n(&s->error, __ATOMIC_ACQUIRE);
	return phase == STREAM_FAILED && error != 0 ? -(int)error : -ENOTCONN;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static socklen_t conn_addr_size(sa_family_t family)
{
	switch (family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case AF_IB:
		return sizeof(struct sockaddr_ib);
	default:
		return 0;
	}
}

/* A copy with IPv4 as such, also where an IPv6 socket names it. */
static int conn_copy_addr(const struct stream *s, struct sockaddr_storage *out,
			  const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage given;
	struct sockaddr_in6 in6;
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	int err = user_take_addr(&given, addr, len);
	socklen_t size;

	if (err < 0)
		return err;
	size = conn_addr_size(given.ss_family);
	if (size == 0 || (given.ss_family == AF_IB) != (s->domain == AF_IB))
		return -EAFNOSUPPORT;
	if (len < size)
		return -EINVAL;
	*out = (struct sockaddr_storage){ .ss_family = given.ss_family };
	memcpy(out, &given, size);
	if (given.ss_family != AF_INET6)
		return 0;
	memcpy(&in6, &given, sizeof(in6));
	if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
		return 0;
	*out = (struct sockaddr_storage){ .ss_family = AF_INET };
	in->sin_port = in6.sin6_port;
	memcpy(&in->sin_addr, &in6.sin6_addr.s6_addr[12], sizeof(in->sin_addr));
	return 0;
}

/* An IPv6 socket shows IPv4 as mapped. */
static socklen_t conn_show_addr(const struct stream *s, const struct sockaddr_storage *addr,
				struct sockaddr_storage *out)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

	*out = *addr;
	if (addr->ss_family == 0)
		out->ss_family = (sa_family_t)s->domain;
	if (addr->ss_family != AF_INET || s->domain != AF_INET6)
		return conn_addr_size(out->ss_family);
	*out = (struct sockaddr_storage){ .ss_family = AF_INET6 };
	in6->sin6_port = in->sin_port;
	in6->sin6_addr.s6_addr[10] = in6->sin6_addr.s6_addr[11] = 0xff;
	memcpy(&in6->sin6_addr.s6_addr[12], &in->sin_addr, sizeof(in->sin_addr));
	return sizeof(*in6);
}

int stream_name(struct rsocket *rs, bool peer, struct sockaddr *addr, socklen_t *len)
{
	struct stream *s = stream_of(rs);
	struct sockaddr_storage known, shown;
	u32 phase = stream_phase(s);
	socklen_t whole;

	if (peer && phase != STREAM_CONNECTED && phase != STREAM_ACCEPTING)
		return -ENOTCONN;
	lock_acquire(&s->conn_lock);
	known = peer ? s->id->route.addr.dst_storage : s->id->route.addr.src_storage;
	lock_release(&s->conn_lock);
	whole = conn_show_addr(s, &known, &shown);
	return user_give_addr(&shown, whole, addr, len);
}

/* ---- binding and listening ------------------------------------------------------------------- */

static int conn_bind(struct stream *s, const struct sockaddr_storage *local) REQUIRES(s->conn_lock)
{
	struct sockaddr_storage copy = *local;

	return rdma_bind_addr(s->id, (struct sockaddr *)&copy) != 0 ? -errno : 0;
}

/* What the application has set for the id before. */
static void conn_renew_options(struct stream *s) REQUIRES(s->conn_lock)
{
	int on = 1;

	if (s->so_options & 1u << SO_REUSEADDR)
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
				      sizeof(on));
	if (s->ipv6_options & 1u << IPV6_V6ONLY)
		(void)rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on,
				      sizeof(on));
}

/* A new id with the address of rbind. */
static int conn_renew_id(struct stream *s) REQUIRES(s->conn_lock)
{
	struct rdma_cm_id *fresh;
	int err = 0;

	if (rdma_create_id(s->channel, &fresh, s, RDMA_PS_TCP) != 0)
		return -errno;
	service_unwatch(s);
	stream_unmake(s);
	rdma_destroy_id(s->id);
	s->id = fresh;
	conn_renew_options(s);
	if (s->bound.ss_family != 0)
		err = conn_bind(s, &s->bound);
	if (err < 0)
		return err;
	__atomic_store_n(&s->error, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->ended, 0, __ATOMIC_RELAXED);
	stream_set_phase(s, s->bound.ss_family != 0 ? STREAM_BOUND : STREAM_NEW);
	return 0;
}

/* A failed attempt has used up its id. The next one has the address of rbind again; if another
 * program has taken that meanwhile, the attempt stays failed. */
static int conn_renew(struct stream *s) REQUIRES(s->conn_lock)
{
	return stream_phase(s) == STREAM_FAILED ? conn_renew_id(s) : 0;
}

int stream_bind(struct rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
	struct stream *s = stream_of(rs);
	struct sockaddr_storage local;
	int err = conn_copy_addr(s, &local, addr, len);

	if (err < 0)
		return err;
	lock_acquire(&s->conn_lock);
	err = conn_renew(s);
	if (err == 0 && stream_phase(s) != STREAM_NEW)
		err = -EINVAL;
	if (err == 0)
		err = conn_bind(s, &local);
	if (err == 0) {
		s->bound = local;
		stream_set_phase(s, STREAM_BOUND);
	}
	lock_release(&s->conn_lock);
	return err;
}

/* An id that is bound to nothing listens on any port of any address. */
static int conn_listen(struct stream *s, int backlog) REQUIRES(s->conn_lock)
{
	struct sockaddr_storage any = { .ss_family = (sa_family_t)s->domain };
	int err = conn_renew(s);

	if (err == 0 && stream_phase(s) != STREAM_NEW && stream_phase(s) != STREAM_BOUND)
		err = -EINVAL;
	if (err == 0)
		err = service_begin(); /* raccept needs it, and could only refuse the client */
	if (err == 0 && stream_phase(s) == STREAM_NEW)
		err = conn_bind(s, &any);
	if (err == 0)
		err = accept_begin(s, backlog);
	if (err == 0 && rdma_listen(s->id, (int)accept_answers(backlog)) != 0)
		err = -errno;
	if (err == 0)
		stream_set_phase(s, STREAM_LISTENING);
	return err;
}

int stream_listen(struct rsocket *rs, int backlog)
{
	struct stream *s = stream_of(rs);
	int err = 0;

	lock_acquire(&s->conn_lock);
	if (stream_phase(s) == STREAM_LISTENING)
		accept_resize(s, backlog);
	else
		err = conn_listen(s, backlog);
	lock_release(&s->conn_lock);
	return err;
}

int stream_unlisten(struct stream *s)
{
	int err = 0;

	lock_acquire(&s->conn_lock);
	if (stream_phase(s) == STREAM_LISTENING) {
		stream_set_phase(s, STREAM_BOUND); /* nobody takes a request any more */
		accept_end(s);
		err = conn_renew_id(s);
		if (err < 0)
			stream_set_phase(s, STREAM_FAILED);
	}
	lock_release(&s->conn_lock);
	return err;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int conn_timeout_ms(struct stream *s) REQUIRES(s->conn_lock)
{
	return CONN_TIMEOUT_MS << MIN(s->retries++, (u32)CONN_RETRIES);
}

static void conn_resolve_addr(struct stream *s) REQUIRES(s->conn_lock)
{
	stream_set_phase(s, STREAM_RESOLVING_ADDR);
	if (rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&s->dest, conn_timeout_ms(s)) != 0)
		conn_fail(s, -errno);
}

/* The route that the application has set, or the one that the CM finds. */
static void conn_resolve_route(struct stream *s) REQUIRES(s->conn_lock)
{
	int result = -1;

	stream_set_phase(s, STREAM_RESOLVING_ROUTE);
	if (s->route != NULL)
		result = rdma_set_option(s->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, s->route,
					 s->route_len);
	if (result != 0)
		result = rdma_resolve_route(s->id, conn_timeout_ms(s));
	if (result != 0)
		conn_fail(s, -errno);
}

static void conn_request(struct stream *s) REQUIRES(s->conn_lock)
{
	struct rdma_conn_param param = { .flow_control = 1,
					 .retry_count = CONN_ATTEMPTS,
					 .rnr_retry_count = CONN_ATTEMPTS };
	u8 data[STREAM_HEADER_SIZE + STREAM_HELLO_SIZE];
	struct stream_hello hello;
	int err = stream_make(s);

	if (err < 0) {
		conn_fail(s, err);
		return;
	}
	stream_hello(s, &hello);
	param.private_data_len = (u8)stream_request_pack(&hello, s->domain == AF_IB, data);
	param.private_data = data;
	stream_set_phase(s, STREAM_CONNECTING);
	if (rdma_connect(s->id, &param) != 0)
		conn_fail(s, -errno);
}

/* A step has timed out, or failed for good. */
static void conn_retry(struct stream *s, int status, void (*step)(struct stream *s))
	REQUIRES(s->conn_lock)
{
	if (status == -ETIMEDOUT && s->retries <= CONN_RETRIES)
		step(s);
	else
		conn_fail(s, status < 0 ? status : -ENETUNREACH);
}

static void conn_stands(struct stream *s) REQUIRES(s->conn_lock)
{
	u32 ended;

	s->near = rsocket_hears_of_death(s->id->qp);
	stream_set_phase(s, STREAM_CONNECTED);
	ended = stream_ended(s);
	if (ended & STREAM_END_SEND) /* before it stood */
		(void)stream_say_end(s, ended & STREAM_END_RECV ? STREAM_DISCONNECT
								: STREAM_SHUTDOWN);
}

/* The peer has answered a request. */
static void conn_established(struct stream *s, const struct rdma_cm_event *event)
	REQUIRES(s->conn_lock)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	struct stream_hello hello;
	int err;

	if (stream_phase(s) == STREAM_CONNECTING) {
		err = stream_hello_unpack(conn->private_data, conn->private_data_len, &hello);
		if (err < 0) {
			(void)rdma_disconnect(s->id);
			conn_fail(s, err);
			return;
		}
		stream_begin(s, &hello);
	}
	conn_stands(s);
}

/* Both ends have said their last. A peer that leaves then has closed: it says so where it closes
 * earlier. Its acknowledgement of this end's last words may be lost, or behind its farewell. */
static void conn_part(struct stream *s)
{
	const u32 done = STREAM_END_SEND | STREAM_PEER_DONE;

	if ((stream_ended(s) & done) == done)
		stream_end(s, STREAM_PEER_GONE);
}

/* The peer is near, and has left without a word. If its process has died, the device says so, but
 * perhaps a little later: cq_take_death. Else it has aborted the connection. True: not known
 * yet. */
static bool conn_waits_for_device(struct stream *s) REQUIRES(s->conn_lock)
{
	bool waits = s->rs.fd < 0; /* raccept begins it */

	if (!s->near || s->left_ns != 0 || (stream_ended(s) & STREAM_NO_CONTROL) ||
	    stream_has_parted(s) || (!waits && service_keepalive(s, true) < 0))
		return false;
	s->left_ns = clock_now_ns();
	return true;
}

/* What the peer had sent before counts first, also where it has left before this end, which
 * accepts, heard that it was ready. */
static void conn_disconnected(struct stream *s, int err) REQUIRES(s->conn_lock)
{
	u32 phase = stream_phase(s);

	if (phase == STREAM_ACCEPTING)
		conn_stands(s);
	if (phase != STREAM_ACCEPTING && phase != STREAM_CONNECTED) {
		conn_fail(s, err);
		return;
	}
	stream_drive(s);
	if (err == -ECONNRESET)
		conn_part(s);
	if (err == -ECONNRESET && conn_waits_for_device(s))
		return;
	if (!stream_has_parted(s))
		stream_break(s, err);
	(void)rdma_disconnect(s->id);
}

void stream_judge_left(struct stream *s, u64 now_ns, u64 *next_ns)
{
	u64 due;

	lock_acquire(&s->conn_lock);
	due = s->left_ns + CONN_LEFT_MS * NS_PER_MS;
	if (s->left_ns == 0) {
		lock_release(&s->conn_lock);
		return;
	}
	stream_drive(s);
	if (now_ns >= due || (stream_ended(s) & STREAM_NO_CONTROL)) {
		s->left_ns = 0;
		if (!stream_has_parted(s))
			stream_break(s, -ECONNRESET);
		(void)rdma_disconnect(s->id);
		if (!(s->so_options & 1u << SO_KEEPALIVE))
			(void)service_keepalive(s, false);
		due = now_ns; /* the list has changed: once more */
	}
	lock_release(&s->conn_lock);
	*next_ns = MIN(*next_ns, due);
}

/* A peer that leaves at once may say so by a message that refuses. */
static void conn_refused(struct stream *s, int err) REQUIRES(s->conn_lock)
{
	conn_disconnected(s, stream_phase(s) < STREAM_ACCEPTING ? err : -ECONNRESET);
}

/* Of an event that was taken just now: -1 stands for errno. */
static int conn_event_error(const struct rdma_cm_event *event)
{
	if (event->status == -1)
		return -errno;
	return event->status < 0 ? event->status : -ETIMEDOUT;
}

void stream_event(struct stream *s, const struct rdma_cm_event *event)
{
	if (event->id != s->id)
		return; /* of an earlier attempt */
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		s->retries = 0;
		conn_resolve_route(s);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		conn_retry(s, conn_event_error(event), conn_resolve_addr);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		conn_request(s);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		conn_retry(s, conn_event_error(event), conn_resolve_route);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		conn_established(s, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		conn_refused(s, -ECONNREFUSED);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		conn_refused(s, conn_event_error(event));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		conn_disconnected(s, -ECONNRESET);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		conn_disconnected(s, -ENETDOWN);
		break;
	default:
		break;
	}
}

void stream_take_events(struct stream *s)
{
	struct rdma_cm_event *event;

	lock_acquire(&s->conn_lock);
	if (stream_phase(s) == STREAM_LISTENING)
		accept_take_events(s);
	while (stream_phase(s) != STREAM_LISTENING && rdma_get_cm_event(s->channel, &event) == 0) {
		stream_event(s, event);
		rdma_ack_cm_event(event);
	}
	lock_release(&s->conn_lock);
}

static int conn_start(struct stream *s, const struct sockaddr *addr, socklen_t len)
	REQUIRES(s->conn_lock)
{
	int err = conn_copy_addr(s, &s->dest, addr, len);

	if (err == 0)
		err = conn_renew(s);
	if (err == 0)
		err = service_watch(s);
	if (err < 0)
		return err;
	s->retries = 0;
	s->told = false;
	conn_resolve_addr(s);
	return -EINPROGRESS;
}

/* -EINPROGRESS: it is on its way. */
static int conn_begin(struct stream *s, const struct sockaddr *addr, socklen_t len)
	REQUIRES(s->conn_lock)
{
	bool told = s->told;
	u32 phase = stream_phase(s);

	s->told = true;
	if (phase == STREAM_LISTENING)
		return -EISCONN;
	if (phase == STREAM_CONNECTED)
		return told ? -EISCONN : 0;
	if (phase == STREAM_FAILED && !told)
		return stream_await(s, true);
	if (conn_is_opening(phase)) {
		s->told = told;
		return -EALREADY;
	}
	return conn_start(s, addr, len);
}

int stream_connect(struct rsocket *rs, const struct sockaddr *addr, socklen_t len)
{
	struct stream *s = stream_of(rs);
	bool nonblock = rsocket_is_nonblocking(rs, 0);
	int err;

	lock_acquire(&s->conn_lock);
	err = conn_begin(s, addr, len);
	lock_release(&s->conn_lock);
	if (nonblock || (err != -EINPROGRESS && err != -EALREADY))
		return err;
	err = stream_await(s, false);
	if (err == -EINTR)
		return err;
	lock_acquire(&s->conn_lock);
	s->told = true;
	if (err < 0)
		__atomic_store_n(&s->error, 0, __ATOMIC_RELAXED);
	lock_release(&s->conn_lock);
	return err;
}
