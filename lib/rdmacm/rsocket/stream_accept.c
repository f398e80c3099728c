/* stream_accept.c: a listener's requests become streams. The service's thread accepts them as they
 * come, so that a client is connected before raccept is called; raccept gives them their numbers.
 *
 * A listener has so many places for streams that raccept has not taken. When all are taken, further
 * requests stay on the CM's channel, whose backlog is bounded, too. The CM's ids of such streams
 * have a channel of their own: their events are heard also while requests wait. A client that is
 * refused, or does not answer, gives its place back.
 *
 * In:    requests of the CM                Out: numbers of streams
 * Runs:  the service's thread (service.c), the application's threads
 * Locks: conn_lock of the listener, and under it that of the new stream
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "stream.h"

enum { ACCEPT_PLACES_MOST = 128 };
/* How long a client that was answered may hold a place without a word, as by TCP. The CM's own
 * limit is the client's to prolong (MRA). */
#define ACCEPT_SILENCE_NS (60 * NS_PER_S)
#define ACCEPT_BYTES_MOST (128ull << 20) /* of the buffers of all places, unless there is one */

/* A request, taken from its event. */
struct request {
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	struct stream_hello hello;
} OWNED_BY(the caller);

/* ---- the streams that wait for raccept ------------------------------------------------------- */

static u32 accept_places(const struct stream *s, int backlog) REQUIRES(s->conn_lock)
{
	u64 each = (u64)s->want.send_bytes + s->want.recv_bytes;
	u32 most = (u32)MAX(MIN(ACCEPT_BYTES_MOST / each, (u64)ACCEPT_PLACES_MOST), 1ull);

	if (s->on_demand)
		return 0;
	/* as by TCP, one more than the backlog */
	return backlog < 0 || (u32)backlog >= most ? most : (u32)backlog + 1;
}

/* The descriptor that tells of waiting streams counts them. */
static void accept_ring(const struct stream *s)
{
	u64 one = 1;

	(void)!write(s->bell, &one, sizeof(one));
}

static void accept_hush(const struct stream *s)
{
	u64 one;

	(void)!read(s->bell, &one, sizeof(one));
}

static void accept_remove(struct stream *s, struct stream *early) REQUIRES(s->conn_lock)
{
	list_remove(&early->waits);
	s->waiting_count--;
	accept_hush(s);
}

static void accept_drop(struct stream *s, struct stream *early) REQUIRES(s->conn_lock)
{
	accept_remove(s, early);
	early->rs.ops->free(&early->rs);
}

/* Requests are heard of while there is a place. */
static void accept_pace(struct stream *s) REQUIRES(s->conn_lock)
{
	bool full = s->waiting_count >= s->places;

	if (full == s->paused || s->places == 0)
		return;
	if (full)
		service_pause(s);
	s->paused = full || service_watch(s) < 0;
}

int accept_begin(struct stream *s, int backlog)
{
	if (s->bell < 0)
		s->bell = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
	if (s->bell < 0)
		return -errno;
	if (s->early == NULL)
		s->early = rdma_create_event_channel();
	if (s->early == NULL || fcntl(s->early->fd, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	s->places = accept_places(s, backlog);
	s->paused = false;
	return s->places == 0 ? 0 : service_watch(s);
}

void accept_resize(struct stream *s, int backlog)
{
	s->places = accept_places(s, backlog);
	accept_pace(s);
}

void accept_end(struct stream *s)
{
	list_for_each_safe(early, &s->waiting, struct stream, waits)
		accept_drop(s, early);
	if (s->untold != 0)
		accept_hush(s);
	if (s->limits_silence)
		(void)service_keepalive(s, false);
	s->limits_silence = false;
	s->untold = 0;
	s->places = 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* 0: a request is there; -EAGAIN: none. What is no stream's is refused. */
static int accept_take_request(struct stream *s, struct request *out)
{
	struct rdma_cm_event *event;
	int err;

	for (;;) {
		if (rdma_get_cm_event(s->channel, &event) != 0)
			return -errno;
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_ack_cm_event(event);
			continue;
		}
		out->id = event->id;
		out->param = event->param.conn;
		err = stream_request_unpack(event->param.conn.private_data,
					    event->param.conn.private_data_len,
					    s->domain == AF_IB, &out->hello);
		rdma_ack_cm_event(event);
		if (err == 0)
			return 0;
		(void)rdma_reject(out->id, NULL, 0);
		rdma_destroy_id(out->id);
	}
}

/* What a listener's options are to the streams that it accepts. */
static void accept_inherit(struct stream *s, const struct stream *from)
	NO_THREAD_SAFETY /* `s` is nobody else's, and the caller holds the listener's lock */
{
	s->domain = from->domain;
	s->want = from->want;
	s->so_options = from->so_options;
	s->tcp_options = from->tcp_options;
	s->ipv6_options = from->ipv6_options;
	s->linger = from->linger;
	s->keepalive_s = from->keepalive_s;
	s->told = true;
}

static int accept_answer(struct stream *s, struct request *request) REQUIRES(s->conn_lock)
{
	u8 data[STREAM_HELLO_SIZE];
	struct stream_hello hello;
	int err = stream_make(s);

	if (err < 0)
		return err;
	stream_begin(s, &request->hello);
	stream_hello(s, &hello);
	stream_hello_pack(&hello, data);
	request->param.private_data = data;
	request->param.private_data_len = sizeof(data);
	stream_set_phase(s, STREAM_ACCEPTING);
	return rdma_accept(s->id, &request->param) != 0 ? -errno : 0;
}

/* The request becomes a stream that waits, or is refused. 0 or a negative errno. */
static int accept_request(struct stream *s, struct request *request) REQUIRES(s->conn_lock)
{
	struct stream *early = stream_new(NULL);
	int err = early == NULL ? -ENOMEM : 0;

	if (err == 0 && rdma_migrate_id(request->id, s->early) != 0)
		err = -errno;
	if (err == 0) {
		accept_inherit(early, s);
		lock_acquire(&early->conn_lock);
		early->id = request->id;
		early->id->context = early;
		err = accept_answer(early, request);
		lock_release(&early->conn_lock);
	}
	if (err == 0) {
		early->answered_ns = clock_now_ns();
		list_push_back(&s->waiting, &early->waits);
		s->waiting_count++;
		accept_ring(s);
		if (!s->limits_silence && !s->on_demand)
			s->limits_silence = service_keepalive(s, true) == 0;
		return 0;
	}
	(void)rdma_reject(request->id, NULL, 0);
	if (early == NULL || early->id == NULL)
		rdma_destroy_id(request->id);
	if (early != NULL)
		early->rs.ops->free(&early->rs);
	return err;
}

/* Accepts requests until `places` streams wait. A client that has gone meanwhile is none; what else
 * goes wrong the next raccept tells. */
static void accept_fill(struct stream *s, u32 places) REQUIRES(s->conn_lock)
{
	struct request request;

	while (s->waiting_count < places && accept_take_request(s, &request) == 0) {
		int err = accept_request(s, &request);

		if (err == 0 || err == -EINVAL || err == -EIO)
			continue;
		if (s->untold == 0)
			accept_ring(s);
		s->untold = -err;
	}
}

/* ---- events of the streams that wait --------------------------------------------------------- */

static bool accept_is_refusal(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_CONNECT_ERROR ||
	       type == RDMA_CM_EVENT_UNREACHABLE;
}

/* True: the client has never been connected, nor sent anything. */
static bool accept_event(struct stream *early, const struct rdma_cm_event *event)
{
	bool accepting, failed;

	lock_acquire(&early->conn_lock);
	accepting = stream_phase(early) == STREAM_ACCEPTING;
	stream_event(early, event);
	failed = stream_phase(early) == STREAM_FAILED ||
		 (accepting && accept_is_refusal(event->event) && !stream_has_data(early));
	lock_release(&early->conn_lock);
	return failed;
}

static void accept_take_early_events(struct stream *s) REQUIRES(s->conn_lock)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(s->early, &event) == 0) {
		struct stream *early = event->id->context;
		bool failed = accept_event(early, event);

		rdma_ack_cm_event(event);
		if (failed)
			accept_drop(s, early);
	}
}

void accept_take_events(struct stream *s)
{
	if (stream_ended(s) & STREAM_CLOSED)
		return;
	accept_take_early_events(s);
	accept_fill(s, s->places);
	accept_pace(s);
}

/* The time at which the first client that has not completed its connection has been silent for too
 * long; UINT64_MAX: there is none. Clients for whom it has come are dropped. */
static u64 accept_drop_silent(struct stream *s, u64 now_ns) REQUIRES(s->conn_lock)
{
	u64 first = UINT64_MAX;

	list_for_each_safe(early, &s->waiting, struct stream, waits) {
		u64 due = early->answered_ns + ACCEPT_SILENCE_NS;

		if (stream_phase(early) != STREAM_ACCEPTING)
			continue;
		if (now_ns >= due)
			accept_drop(s, early);
		else
			first = MIN(first, due);
	}
	return first;
}

void accept_limit_silence(struct stream *s, u64 now_ns, u64 *next_ns)
{
	u64 due;

	lock_acquire(&s->conn_lock);
	if (s->limits_silence) {
		due = accept_drop_silent(s, now_ns);
		s->limits_silence = due != UINT64_MAX;
		if (!s->limits_silence) {
			(void)service_keepalive(s, false);
			due = now_ns; /* the list has changed: once more */
		}
		accept_pace(s);
		*next_ns = MIN(*next_ns, due);
	}
	lock_release(&s->conn_lock);
}

/* ---- raccept --------------------------------------------------------------------------------- */

/* A thread that waits for a stream. Its end is also that of a thread that is cancelled. */
struct accept_sleep {
	struct stream *s;
	struct sleeper me;
	struct waiter place;
	bool joined;
} OWNED_BY(the thread that sleeps);

static void accept_sleep_end(struct accept_sleep *w)
{
	if (!w->joined)
		return;
	wait_leave(&w->s->rs.waiters, &w->place);
	sleeper_end(&w->me);
}

/* Waits for a stream, or for the end of the listener. */
static int accept_wait(struct stream *s)
{
	struct pollfd fds[1 + SLEEPER_FDS] = { { .events = POLLIN } };
	struct accept_sleep w CLEANUP(accept_sleep_end) = { .s = s };
	int err = sleeper_begin(&w.me, SLEEP_LISTEN);

	if (err < 0)
		return err;
	wait_join(&s->rs.waiters, &w.place, &w.me);
	w.joined = true;
	if (stream_ended(s) & STREAM_CLOSED)
		return -EBADF;
	if (stream_phase(s) != STREAM_LISTENING)
		return 0;
	fds[0].fd = accept_fd(s);
	err = sleeper_poll(&w.me, fds, 1, 0);
	return err == -EINTR && sleeper_restarts() ? 0 : err;
}

/* Gives a stream its number. */
static int accept_number(struct stream *early)
{
	struct rdma_event_channel *channel = stream_channel();
	int err;

	if (channel == NULL)
		return -errno;
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0 ||
	    rdma_migrate_id(early->id, channel) != 0) {
		err = -errno;
		rdma_destroy_event_channel(channel);
		return err;
	}
	early->channel = channel;
	early->rs.fd = channel->fd;
	return table_insert(&early->rs);
}

/* Without a number it waits on, as by TCP, unless it has just been accepted on demand. */
static int accept_take_first(struct stream *s, struct stream **out) REQUIRES(s->conn_lock)
{
	struct stream *early = list_entry(s->waiting.next, struct stream, waits);
	int err = accept_number(early);

	if (err == 0) {
		accept_remove(s, early);
		*out = early;
	} else if (s->on_demand || early->channel != NULL) {
		accept_drop(s, early);
	}
	return err;
}

/* The first stream that waits, with its number; or a negative errno. */
static int accept_take(struct stream *s, struct stream **out) REQUIRES(s->conn_lock)
{
	int err = s->untold;

	if (stream_ended(s) & STREAM_CLOSED)
		return -EBADF;
	if (stream_phase(s) != STREAM_LISTENING)
		return -EINVAL;
	if (err == 0 && list_empty(&s->waiting)) {
		accept_take_early_events(s);
		accept_fill(s, MAX(s->places, 1u));
		err = s->untold;
	}
	if (err != 0) {
		s->untold = 0;
		accept_hush(s);
		return -err;
	}
	return list_empty(&s->waiting) ? -EAGAIN : accept_take_first(s, out);
}

/* From now on the service watches the stream itself. The number, or a negative errno. */
static int accept_watch(struct stream *s)
{
	bool alive;
	int err, fd = s->rs.fd;

	(void)table_get(fd);
	lock_acquire(&s->conn_lock);
	err = service_watch(s);
	alive = (s->so_options & 1u << SO_KEEPALIVE) || s->left_ns != 0;
	lock_release(&s->conn_lock);
	if (err == 0 && alive)
		err = service_keepalive(s, true);
	if (err < 0 && table_remove(&s->rs)) {
		(void)rdma_reject(s->id, NULL, 0);
		s->rs.ops->close(&s->rs);
		table_free_last(&s->rs);
	}
	table_put(&s->rs);
	return err < 0 ? err : fd;
}

int stream_accept(struct rsocket *rs, struct sockaddr *addr, socklen_t *len)
{
	struct stream *s = stream_of(rs), *fresh = NULL;
	int err;

	for (;;) {
		lock_acquire(&s->conn_lock);
		err = accept_take(s, &fresh);
		accept_pace(s);
		lock_release(&s->conn_lock);
		if (err == -EAGAIN && !rsocket_is_nonblocking(rs, 0))
			err = accept_wait(s);
		else
			break;
		if (err < 0)
			return err;
	}
	if (err == 0)
		err = accept_watch(fresh);
	if (err >= 0 && addr != NULL && len != NULL) {
		struct rsocket *named = table_get(err);

		if (named != NULL) {
			(void)stream_name(named, true, addr, len);
			table_put(named);
		}
	}
	return err;
}
