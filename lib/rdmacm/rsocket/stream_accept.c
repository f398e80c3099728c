/* stream_accept.c: a listener's requests become streams.
 * In:    requests of the CM                Out: numbers of streams
 * Runs:  the application's threads
 * Locks: stream.conn_lock of the new stream
 */
#include <stdlib.h>

#include "stream.h"

/* A request, taken from its event. */
struct request {
	struct rdma_cm_id *id;
	struct rdma_conn_param param;
	struct stream_hello hello;
} OWNED_BY(the caller);

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

/* A thread that waits for a request. Its end is also that of a thread that is cancelled. */
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

/* Waits for a request, or for the end of the listener. */
static int accept_wait_request(struct stream *s)
{
	struct pollfd fds[1 + SLEEPER_FDS] = { { .fd = s->rs.fd, .events = POLLIN } };
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
	err = sleeper_poll(&w.me, fds, 1, 0);
	return err == -EINTR && sleeper_restarts() ? 0 : err;
}

/* What a listener's options are to the streams that it accepts. */
static void accept_inherit(struct stream *s, struct stream *from)
	NO_THREAD_SAFETY /* `s` is nobody else's */
{
	lock_acquire(&from->conn_lock);
	s->domain = from->domain;
	s->want = from->want;
	s->so_options = from->so_options;
	s->tcp_options = from->tcp_options;
	s->ipv6_options = from->ipv6_options;
	s->linger = from->linger;
	s->keepalive_s = from->keepalive_s;
	lock_release(&from->conn_lock);
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

/* The stream of a request, or NULL and a negative errno: the request is refused then. */
static struct stream *accept_adopt(struct stream *listener, struct request *request, int *err)
{
	struct rdma_event_channel *channel = stream_channel();
	struct stream *s = channel != NULL ? stream_new(channel) : NULL;

	*err = channel != NULL ? -ENOMEM : -errno;
	if (s == NULL)
		goto refuse;
	accept_inherit(s, listener);
	*err = 0;
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK) != 0 ||
	    rdma_migrate_id(request->id, channel) != 0)
		*err = -errno;
	if (*err == 0)
		*err = table_insert(&s->rs);
	if (*err == 0)
		return s;
	free(s);
refuse:
	(void)rdma_reject(request->id, NULL, 0);
	rdma_destroy_id(request->id);
	if (channel != NULL)
		rdma_destroy_event_channel(channel);
	return NULL;
}

/* The new number, or a negative errno. */
static int accept_one(struct stream *listener, struct request *request)
{
	struct stream *s;
	bool keepalive;
	int err, fd;

	s = accept_adopt(listener, request, &err);

	if (s == NULL)
		return err;
	(void)table_get(s->rs.fd);
	fd = s->rs.fd;
	lock_acquire(&s->conn_lock);
	s->id = request->id;
	s->id->context = s;
	err = accept_answer(s, request);
	if (err == 0)
		err = service_watch(s);
	keepalive = s->so_options & 1u << SO_KEEPALIVE;
	lock_release(&s->conn_lock);
	if (err == 0 && keepalive)
		err = service_keepalive(s, true);
	if (err < 0 && table_remove(&s->rs)) {
		(void)rdma_reject(s->id, NULL, 0);
		s->rs.ops->close(&s->rs);
		table_free_last(&s->rs);
	}
	table_put(&s->rs);
	return err < 0 ? err : fd;
}

/* A connection whose client has gone meanwhile is none; the next one is taken. */
int stream_accept(struct rsocket *rs, struct sockaddr *addr, socklen_t *len)
{
	struct stream *s = stream_of(rs);
	struct request request;
	int err;

	for (;;) {
		if (stream_phase(s) != STREAM_LISTENING)
			return -EINVAL;
		err = accept_take_request(s, &request);
		if (err == -EAGAIN && !rsocket_is_nonblocking(rs, 0)) {
			err = accept_wait_request(s);
			if (err == 0)
				continue;
		}
		if (err < 0)
			return err;
		err = accept_one(s, &request);
		if (err != -EINVAL && err != -EIO)
			break;
	}
	if (err >= 0 && addr != NULL && len != NULL) {
		struct rsocket *fresh = table_get(err);

		if (fresh != NULL) {
			(void)stream_name(fresh, true, addr, len);
			table_put(fresh);
		}
	}
	return err;
}
