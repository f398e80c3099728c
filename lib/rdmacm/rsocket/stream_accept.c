/* stream_accept.c: a listener's requests become streams. The service's thread accepts them as they
 * come, so that a client is connected before raccept is called; raccept gives them their numbers.
 *
 * A request costs its sender one packet, whose source may be forged. So a stream that was answered
 * is *asking* until its client is heard again: its RTU, or its first packet. Few ask at a time, for
 * four seconds each, and the oldest gives way to a new request. What has been heard, and what comes
 * from this host, *waits* for raccept. While all places of those are taken, further requests stay
 * on the CM's channel, whose backlog is bounded, too. The CM's ids of all such streams have a
 * channel of their own: their events are heard also while requests wait. A client that is refused
 * gives its place back.
 *
 * In:    requests of the CM                Out: numbers of streams
 * Runs:  the service's thread (service.c), the application's threads
 * Locks: conn_lock of the listener, and under it that of the new stream
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../door.h"
#include "base/fd.h"
#include "stream.h"

enum { ACCEPT_PLACES_MAX = 128 };
/* How long after rlisten the service leaves requests to raccept: programs set options of a listener
 * then (riostream), which its first client is to have. */
#define ACCEPT_OPTIONS_NS (25 * NS_PER_MS)
/* How long a client that was answered may ask: as long as the CM repeats a brief answer. The CM's
 * own limit is the client's to prolong (MRA). */
#define ACCEPT_SILENCE_NS (4 * NS_PER_S)
#define ACCEPT_LOOK_NS (100 * NS_PER_MS) /* for first packets of clients whose RTU is lost */
#define ACCEPT_BYTES_MAX (128ull << 20)	 /* of the buffers of all places, unless there is one */

/* A request, taken from its event. */
struct request {
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	struct stream_hello hello;
} OWNED_BY(the caller);

/* ---- the streams that wait for raccept ------------------------------------------------------- */

u32 accept_answers(int backlog)
{
	if (backlog < 0 || backlog > ACCEPT_PLACES_MAX)
		return ACCEPT_PLACES_MAX;
	return MAX((u32)backlog, 1u);
}

static void accept_set_places(struct stream *s, int backlog) REQUIRES(s->conn_lock)
{
	u64 each = (u64)s->want.send_bytes + s->want.recv_bytes;
	u32 most = (u32)MAX(MIN(ACCEPT_BYTES_MAX / each, (u64)ACCEPT_PLACES_MAX), 1ull);

	s->backlog = backlog;
	s->answers = MIN(accept_answers(backlog), most);
	/* as by TCP, one more than the backlog */
	s->places = backlog < 0 || (u32)backlog >= most ? most : (u32)backlog + 1;
	if (s->on_demand)
		s->places = 0;
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
	if (early->asks) {
		s->asking_count--;
		return;
	}
	s->waiting_count--;
	accept_hush(s);
}

/* Behind all that wait: for raccept. */
static void accept_wait_for_number(struct stream *s, struct stream *early) REQUIRES(s->conn_lock)
{
	early->asks = false;
	list_push_back(&s->waiting, &early->waits);
	s->waiting_count++;
	accept_ring(s);
}

/* The service calls accept_look from time to time. 0 or a negative errno. */
static int accept_list(struct stream *s) REQUIRES(s->conn_lock)
{
	int err = s->listed ? 0 : service_keepalive(s, true);

	s->listed = err == 0;
	return err;
}

static void accept_unlist(struct stream *s) REQUIRES(s->conn_lock)
{
	if (s->listed)
		(void)service_keepalive(s, false);
	s->listed = false;
}

static void accept_ask(struct stream *s, struct stream *early) REQUIRES(s->conn_lock)
{
	early->answered_ns = clock_now_ns();
	list_push_back(&s->asking, &early->waits);
	s->asking_count++;
	(void)accept_list(s);
}

/* Its client has been heard again. */
static void accept_confirm(struct stream *s, struct stream *early) REQUIRES(s->conn_lock)
{
	accept_remove(s, early);
	accept_wait_for_number(s, early);
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
	accept_set_places(s, backlog);
	s->paused = true;
	s->opens_ns = clock_now_ns() + ACCEPT_OPTIONS_NS;
	return s->places == 0 ? 0 : accept_list(s);
}

void accept_resize(struct stream *s, int backlog)
{
	accept_set_places(s, backlog);
	accept_pace(s);
}

int accept_in_background(struct stream *s)
{
	int err;

	if (!s->on_demand)
		return 0;
	err = service_watch(s);
	if (err < 0)
		return err;
	s->on_demand = false;
	s->paused = false;
	accept_set_places(s, s->backlog);
	wait_wake(&s->rs.waiters); /* for another descriptor */
	return 0;
}

static void accept_refuse(struct request *request)
{
	(void)rdma_reject(request->id, NULL, 0);
	rdma_destroy_id(request->id);
}

void accept_end(struct stream *s)
{
	list_for_each_safe(asking, &s->asking, struct stream, waits)
		accept_drop(s, asking);
	list_for_each_safe(early, &s->waiting, struct stream, waits)
		accept_drop(s, early);
	if (s->held != NULL)
		accept_refuse(s->held);
	free(s->held);
	s->held = NULL;
	if (s->untold != 0)
		accept_hush(s);
	accept_unlist(s);
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
		accept_refuse(out);
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
	s->linger_set = from->linger_set;
	s->at_once = from->at_once;
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
	s->asks = connect_answer_briefly(s->id);
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
		if (early->asks && !s->on_demand)
			accept_ask(s, early);
		else
			accept_wait_for_number(s, early);
		return 0;
	}
	(void)rdma_reject(request->id, NULL, 0);
	if (early == NULL || early->id == NULL)
		rdma_destroy_id(request->id);
	if (early != NULL)
		early->rs.ops->free(&early->rs);
	return err;
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
		else if (early->asks && stream_phase(early) != STREAM_ACCEPTING)
			accept_confirm(s, early);
	}
}

/* Has every stream its place that a new one could have? */
static bool accept_is_full(struct stream *s, u32 places) REQUIRES(s->conn_lock)
{
	return s->asking_count >= s->answers || s->waiting_count + s->asking_count >= places;
}

/* Makes a place for a request. What the CM has told before that counts first: clients that ask may
 * have been heard. False: none of those that have a place gives way. */
static bool accept_make_place(struct stream *s, u32 places) REQUIRES(s->conn_lock)
{
	if (accept_is_full(s, places))
		accept_take_early_events(s);
	while (accept_is_full(s, places) && s->waiting_count < places && s->asking_count > 0)
		accept_drop(s, list_first(&s->asking, struct stream, waits));
	return s->waiting_count < places;
}

/* The request waits on until raccept has taken a stream, or is refused for want of memory. */
static void accept_hold(struct stream *s, struct request *request) REQUIRES(s->conn_lock)
{
	s->held = malloc(sizeof(*s->held));
	if (s->held != NULL)
		*s->held = *request;
	else
		accept_refuse(request);
}

static bool accept_next(struct stream *s, struct request *out) REQUIRES(s->conn_lock)
{
	if (s->held == NULL)
		return accept_take_request(s, out) == 0;
	*out = *s->held;
	free(s->held);
	s->held = NULL;
	return true;
}

/* Accepts requests while fewer than `places` streams wait. A client that has gone meanwhile is
 * none; what else goes wrong the next raccept tells. */
static void accept_fill(struct stream *s, u32 places) REQUIRES(s->conn_lock)
{
	struct request request;

	while (s->waiting_count < places && accept_next(s, &request)) {
		int err;

		if (!accept_make_place(s, places)) {
			accept_hold(s, &request);
			return;
		}
		err = accept_request(s, &request);
		if (err == 0 || err == -EINVAL || err == -EIO)
			continue;
		if (s->untold == 0)
			accept_ring(s);
		s->untold = -err;
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

/* The CM answers by an event, unless the client has left. */
static void accept_take_word(struct stream *early)
{
	if (stream_hears(early))
		(void)rdma_notify(early->id, IBV_EVENT_COMM_EST);
}

/* Clients for whom the time has come are dropped, the others looked at. */
static void accept_drop_silent(struct stream *s, u64 now_ns) REQUIRES(s->conn_lock)
{
	list_for_each_safe(early, &s->asking, struct stream, waits) {
		if (now_ns >= early->answered_ns + ACCEPT_SILENCE_NS)
			accept_drop(s, early);
		else
			accept_take_word(early);
	}
}

void accept_look(struct stream *s, u64 now_ns, u64 *next_ns)
{
	u64 due = now_ns + ACCEPT_LOOK_NS;

	lock_acquire(&s->conn_lock);
	if (s->listed) {
		accept_drop_silent(s, now_ns);
		if (now_ns < s->opens_ns) {
			due = s->opens_ns;
		} else {
			accept_pace(s);
			if (s->asking_count == 0) {
				accept_unlist(s);
				due = now_ns; /* the list has changed: once more */
			}
		}
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
		if (s->held != NULL)
			accept_fill(s, s->places);
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
