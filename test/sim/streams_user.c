/* streams_user.c: programs that use rsockets: each end of a connection takes turns: connects, sends
 * and receives pieces of any size, rests, shuts down, closes, aborts or dies. Every byte is judged.
 * In: turns    Out: r* calls    Runs: the one thread
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "streams.h"

/* How a connection ends. */
enum conn_end {
	END_SHUTDOWN, /* both say that they have sent all, read the rest, and close */
	END_CLOSE,    /* the client closes as soon as it has sent all */
	END_ABORT,    /* an end closes with a linger time of 0 */
	END_KILL,     /* an end dies */
};

/* With a backlog below the least a client that has not been heard again may give way to another. */
enum { STREAMS_PORTS = 2, BACKLOG_MIN = 4 };
enum { PIECE_MAX = 300000, HELLO_BYTES = 8, PACE_MOST_NS = 2000000000 };

struct conn {
	struct list_head node;
	u64 serial;
	u64 bytes[STREAMS_SIDES]; /* that the client sends, and the server */
	enum conn_end end;
	u32 victim;    /* 0: the client aborts or dies, 1: the server */
	u64 victim_at; /* after so many turns */
	bool forgiven; /* the wire has failed */
};

struct user {
	struct list_head node;
	struct conn *conn; /* NULL: a server that has not read which one it is */
	int side, fd;
	bool server, connecting, sent_all, shut, ended, broken;
	u64 sent, received, turns, pace_ns;
	u8 hello[HELLO_BYTES];
};

static struct list_head users = LIST_HEAD_INIT(users), conns = LIST_HEAD_INIT(conns);
static u32 user_total, side_next;
static bool users_hurry; /* nobody rests for long */
static int listeners[STREAMS_SIDES][STREAMS_PORTS];
static u8 piece[PIECE_MAX];
struct streams_tally streams_tally;

u32 user_count(void)
{
	return user_total;
}

void user_forgive(void)
{
	list_for_each(c, &conns, struct conn, node)
		c->forgiven = true;
}

void user_print(void)
{
	list_for_each(u, &users, struct user, node)
		fprintf(stderr,
			"connection %llu, %s: end %d%s, sent %llu of %llu%s%s, received %llu of "
			"%llu%s%s\n",
			u->conn != NULL ? (unsigned long long)u->conn->serial : 0,
			u->server ? "server" : "client", u->conn != NULL ? (int)u->conn->end : -1,
			u->conn != NULL && u->conn->forgiven ? ", forgiven" : "",
			(unsigned long long)u->sent,
			u->conn != NULL ? (unsigned long long)u->conn->bytes[u->server] : 0,
			u->shut ? ", shut" : "", u->connecting ? ", connecting" : "",
			(unsigned long long)u->received,
			u->conn != NULL ? (unsigned long long)u->conn->bytes[!u->server] : 0,
			u->ended ? ", end" : "", u->broken ? ", broken" : "");
}

void user_forget(void)
{
	while (!list_empty(&conns))
		free(list_entry(list_pop_front(&conns), struct conn, node));
}

/* ---- the bytes ---- */

/* Bytes at .. at + n - 1 of that direction, till the next call; each eight are a number that tells
 * where they belong. */
static const u8 *bytes_of(const struct conn *c, bool by_server, u64 at, u32 n)
{
	static u64 words[PIECE_MAX / sizeof(u64) + 2];
	u64 first = at / sizeof(u64), last = (at + n) / sizeof(u64);

	for (u64 w = first; w <= last; w++)
		words[w - first] = rng_mix(c->serial * 2 + by_server + (w << 32));
	return (const u8 *)words + at % sizeof(u64);
}

static void bytes_make(const struct user *u, u32 n)
{
	memcpy(piece, bytes_of(u->conn, u->server, u->sent, n), n);
	for (u64 at = u->sent; !u->server && at < MIN(u->sent + n, (u64)HELLO_BYTES); at++)
		piece[at - u->sent] = (u8)(u->conn->serial >> at * 8);
}

static struct conn *conn_find(const u8 hello[HELLO_BYTES])
{
	u64 serial;

	memcpy(&serial, hello, sizeof(serial));
	list_for_each(c, &conns, struct conn, node)
		if (c->serial == serial)
			return c;
	streams_fail("the first bytes of a stream are of none");
}

static void bytes_judge(struct user *u, u32 n)
{
	if (u->server && u->received < HELLO_BYTES) { /* and reads no further (user_receive) */
		memcpy(u->hello + u->received, piece, n);
		if (u->received + n == HELLO_BYTES)
			u->conn = conn_find(u->hello);
	} else {
		const u8 *right = bytes_of(u->conn, !u->server, u->received, n);

		for (u32 i = 0; i < n; i++)
			streams_check(piece[i] == right[i],
				      "connection %llu: byte %llu of the %s is wrong",
				      (unsigned long long)u->conn->serial,
				      (unsigned long long)(u->received + i),
				      u->server ? "client" : "server");
	}
	u->received += n;
	streams_tally.bytes += n;
}

/* ---- ends ---- */

static void user_gone(struct user *u)
{
	list_remove(&u->node);
	user_total--;
	free(u);
}

static void user_close(struct user *u)
{
	streams_check(rclose(u->fd) == 0, "rclose: %d", errno);
	user_gone(u);
}

static bool user_may_break(const struct user *u)
{
	const struct conn *c = u->conn;

	return c == NULL || c->forgiven || c->end >= END_ABORT ||
	       (c->end == END_CLOSE && u->server);
}

static void user_broken(struct user *u, const char *call)
{
	streams_check(errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT ||
			      errno == ECONNREFUSED,
		      "%s: errno %d", call, errno);
	streams_check(user_may_break(u), "connection %llu breaks by itself: %s, errno %d",
		      (unsigned long long)u->conn->serial, call, errno);
	u->broken = true;
	streams_tally.broken++;
}

/* The peer has closed: all that it had to send is here, unless it was cut short. */
static void user_at_end(struct user *u)
{
	u->ended = true;
	if (u->conn == NULL || u->conn->forgiven || u->conn->end >= END_ABORT)
		return;
	if (u->conn->end == END_CLOSE && !u->server)
		return;
	streams_check(u->received == u->conn->bytes[!u->server],
		      "connection %llu ends after %llu bytes of %llu",
		      (unsigned long long)u->conn->serial, (unsigned long long)u->received,
		      (unsigned long long)u->conn->bytes[!u->server]);
}

/* As the process' end: no call, its memory and queue pairs go. */
static void user_die(struct user *u)
{
	struct rsocket *rs = table_get(u->fd);

	service_keepalive(stream_of(rs), false);
	service_unwatch(stream_of(rs));
	(void)table_remove(rs);
	table_free_last(rs);
	table_put(rs);
	streams_tally.resets++;
	user_gone(u);
}

static void user_abort(struct user *u)
{
	struct linger none = { .l_onoff = 1 };

	streams_check(rsetsockopt(u->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0,
		      "SO_LINGER: %d", errno);
	streams_tally.resets++;
	user_close(u);
}

/* ---- turns ---- */

/* Returns whether something was read. */
static bool user_receive(struct user *u)
{
	u32 most = u->server && u->conn == NULL ? (u32)(HELLO_BYTES - u->received)
						: (u32)rng_skewed(&streams_rng, 1, PIECE_MAX);
	ssize_t n;

	if (u->ended)
		return false;
	n = rrecv(u->fd, piece, most, MSG_DONTWAIT);
	if (n > 0)
		bytes_judge(u, (u32)n);
	else if (n == 0)
		user_at_end(u);
	else if (errno != EAGAIN)
		user_broken(u, "rrecv");
	return n >= 0;
}

static bool user_send(struct user *u)
{
	u64 left = u->conn != NULL ? u->conn->bytes[u->server] - u->sent : 0;
	u64 most = rng_skewed(&streams_rng, 1, PIECE_MAX);
	u32 n = (u32)MIN(left, most);
	ssize_t done;

	if (u->conn == NULL || u->sent_all)
		return false;
	if (left > 0) {
		bytes_make(u, n);
		done = rsend(u->fd, piece, n, MSG_DONTWAIT);
		if (done < 0 && errno == ECONNRESET && u->conn->end == END_CLOSE && u->server)
			u->sent_all = u->shut = true; /* the client's bytes are still to be read */
		else if (done < 0 && errno != EAGAIN)
			user_broken(u, "rsend");
		if (done <= 0)
			return false;
		u->sent += (u64)done;
		left -= (u64)done;
	}
	u->sent_all = left == 0;
	return true;
}

static bool user_strikes(struct user *u)
{
	const struct conn *c = u->conn;

	if (c == NULL || c->end < END_ABORT || c->victim != u->server || u->turns < c->victim_at)
		return false;
	if (c->end == END_KILL)
		user_die(u);
	else
		user_abort(u);
	return true;
}

static int user_error(const struct user *u)
{
	socklen_t size = sizeof(int);
	int err;

	streams_check(rgetsockopt(u->fd, SOL_SOCKET, SO_ERROR, &err, &size) == 0, "SO_ERROR: %d",
		      errno);
	return err;
}

/* 1: connected, 0: not yet, -1: the user is gone. */
static int user_connect(struct user *u)
{
	struct pollfd p = { .fd = u->fd, .events = POLLOUT };
	int err;

	if (!u->connecting)
		return 1;
	if (rpoll(&p, 1, 0) == 0)
		return 0;
	err = user_error(u);
	u->connecting = false;
	if (err == 0)
		return 1;
	errno = err;
	user_broken(u, "rconnect");
	user_close(u);
	return -1;
}

static void user_turn(void *arg, u64 n);

/* Users that find nothing to do come less often, up to PACE_MOST_NS; a few rest for long. */
static void user_plan(struct user *u, bool progress)
{
	u64 wait;

	u->pace_ns = progress ? rng_skewed(&streams_rng, 20000, 20 * NS_PER_MS)
			      : MIN(u->pace_ns * 2, (u64)PACE_MOST_NS);
	wait = rng_skewed(&streams_rng, 10000, u->pace_ns);
	if (rng_permille(&streams_rng, 10))
		wait = rng_skewed(&streams_rng, NS_PER_MS, 60 * NS_PER_S);
	if (!users_hurry && rng_below(&streams_rng, 20000) == 0)
		wait = rng_range(&streams_rng, 600 * NS_PER_S, 7200 * NS_PER_S);
	agenda_add(net_now() + wait, true, user_turn, u, 0);
}

static void user_turn(void *arg, u64 n)
{
	struct user *u = arg;
	bool progress;
	int connected;

	cm_enter(u->side);
	connected = user_connect(u);
	if (connected < 0)
		return;
	if (connected == 0) {
		user_plan(u, false);
		return;
	}
	u->turns++;
	if (user_strikes(u))
		return;
	progress = user_receive(u);
	if (!u->broken)
		progress |= user_send(u);
	if (u->broken) {
		user_close(u);
		return;
	}
	if (u->sent_all && u->conn->end == END_CLOSE && !u->server) {
		user_close(u);
		return;
	}
	if (u->sent_all && !u->shut)
		u->shut = rshutdown(u->fd, SHUT_WR) == 0;
	if (u->ended && (u->sent_all || u->conn == NULL || user_may_break(u))) {
		int err = user_error(u);

		streams_check(user_may_break(u) || err == 0, "connection %llu, %s: SO_ERROR %d",
			      (unsigned long long)u->conn->serial,
			      u->server ? "server" : "client", err);
		user_close(u);
		return;
	}
	user_plan(u, progress);
}

/* ---- beginnings ---- */

static struct user *user_new(int side, int fd, bool server)
{
	struct user *u = calloc(1, sizeof(*u));

	if (u == NULL)
		abort();
	u->side = side;
	u->fd = fd;
	u->server = server;
	u->pace_ns = 20000;
	list_push_back(&users, &u->node);
	user_total++;
	agenda_add(net_now() + rng_skewed(&streams_rng, 1000, NS_PER_MS), true, user_turn, u, 0);
	return u;
}

static void user_accept(void *listener, u64 side)
{
	int *from = listener, fd;

	if (*from < 0)
		return;
	cm_enter((int)side);
	while ((fd = raccept(*from, NULL, NULL)) >= 0)
		(void)user_new((int)side, fd, true);
	streams_check(errno == EAGAIN, "raccept: %d", errno);
	agenda_add(net_now() + rng_skewed(&streams_rng, 10000, 500 * NS_PER_MS), true, user_accept,
		   listener, side);
}

static struct sockaddr_in user_port(u32 which)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((u16)(STREAMS_PORT + which)) };
}

/* Queues and buffers of other sizes than usual, of every other stream. */
static void user_size(int fd)
{
	const struct {
		int level, name;
		u64 least, most;
	} sizes[] = { { SOL_RDMA, RDMA_SQSIZE, 1, 512 },
		      { SOL_RDMA, RDMA_RQSIZE, 1, 512 },
		      { SOL_RDMA, RDMA_INLINE, 0, 256 },
		      { SOL_SOCKET, SO_SNDBUF, 1, 256 << 10 },
		      { SOL_SOCKET, SO_RCVBUF, 1, 256 << 10 } };

	for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
		int size = (int)rng_skewed(&streams_rng, sizes[i].least, sizes[i].most);

		if (rng_percent(&streams_rng, 50))
			streams_check(rsetsockopt(fd, sizes[i].level, sizes[i].name, &size,
						  sizeof(size)) == 0,
				      "option %d of %d: %d", sizes[i].name, size, errno);
	}
}

static void user_keepalive(int fd)
{
	int on = 1, idle = (int)rng_skewed(&streams_rng, 1, 600);

	streams_check(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0 &&
			      rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) == 0,
		      "keepalive: %d", errno);
}

void user_listen(void)
{
	for (u32 i = 0; i < STREAMS_SIDES * STREAMS_PORTS; i++) {
		u32 side = i / STREAMS_PORTS, port = i % STREAMS_PORTS;
		struct sockaddr_in sin = user_port(port);
		int fd, backlog = (int)rng_skewed(&streams_rng, BACKLOG_MIN, 100);

		cm_enter((int)side);
		fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		user_keepalive(fd);
		user_size(fd);
		streams_check(rbind(fd, (void *)&sin, sizeof(sin)) == 0 &&
				      rlisten(fd, backlog) == 0,
			      "rlisten: %d", errno);
		listeners[side][port] = fd;
		user_accept(&listeners[side][port], side);
	}
}

void user_hurry(bool on)
{
	users_hurry = on;
}

void user_unlisten(void)
{
	for (u32 i = 0; i < STREAMS_SIDES * STREAMS_PORTS; i++) {
		int *fd = &listeners[i / STREAMS_PORTS][i % STREAMS_PORTS];

		streams_check(rclose(*fd) == 0, "rclose: %d", errno);
		*fd = -1;
	}
}

static struct conn *conn_new(void)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (c == NULL)
		abort();
	c->serial = ++streams_tally.connections;
	for (int i = 0; i < STREAMS_SIDES; i++)
		c->bytes[i] = rng_skewed(&streams_rng, i == 0 ? HELLO_BYTES : 0, 2 << 20);
	c->end = rng_percent(&streams_rng, 60) ? END_SHUTDOWN
					       : (enum conn_end)rng_below(&streams_rng, 4);
	c->victim = rng_below(&streams_rng, 2);
	c->victim_at = rng_skewed(&streams_rng, 1, 60);
	c->forgiven = cm_is_cut();
	list_push_back(&conns, &c->node);
	return c;
}

void user_open(void)
{
	struct sockaddr_in sin = user_port(rng_below(&streams_rng, STREAMS_PORTS));
	int side = (int)(side_next++ % STREAMS_SIDES), fd;
	struct user *u;

	if (user_total >= 2 * STREAMS_USERS)
		return;
	cm_enter(side);
	fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	streams_check(fd >= 0, "rsocket: %d", errno);
	user_keepalive(fd);
	user_size(fd);
	streams_check(rconnect(fd, (void *)&sin, sizeof(sin)) < 0 && errno == EINPROGRESS,
		      "rconnect: %d", errno);
	u = user_new(side, fd, false);
	u->conn = conn_new();
	u->connecting = true;
}
