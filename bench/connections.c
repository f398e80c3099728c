/* connections.c: what connections by librdmacm cost: time for each, memory of each id, and what
 * many listeners add to a request.
 *
 * In:    rate | memory | listeners, and a count     Out: "name value unit" lines on standard output
 * Runs:  two processes, the active side and the passive one, a thread each      Locks: none
 *
 * The programs use librdmacm as any application does, and meet whichever library the loader finds.
 * The two sides agree over a socket pair. Where queue pairs are not what is measured, they are
 * numbers that the application brings, and rdma_establish completes the connection.
 */
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	COUNT = 5000,
	COUNT_MAX = 100000,
	WINDOW = 500, /* requests that wait for their answer: fewer than a listener's backlog */
	LISTENERS_FEW = 10,
	LISTENERS_MANY = 10000,
	ROUNDS = 15, /* of as many connections as follow */
	PER_ROUND = 100,
	QPN_ACTIVE = 0x100000, /* the first of the application's own numbers */
	QPN_PASSIVE = 0x800000,
	WAIT_MS = 2000,
};

/* One of the two processes. */
struct side {
	int peer; /* the socket pair's end */
	int count;
	bool has_qps;
	struct rdma_event_channel *channel;
	struct rdma_cm_id **ids;
	int used;	 /* of ids */
	int established; /* events */
	int left;	 /* events of disconnection */
	struct rdma_cm_id *last_left;
	/* of queue pairs that are numbers only: none comes twice, for the peer lets one rest */
	uint32_t next_qpn;
	struct ibv_cq *cq;
};

static void fail(const char *what)
{
	fprintf(stderr, "connections: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare);
	return values[count / 2];
}

/* Resident bytes of this process, shared memory included, without pages of files. */
static double resident_bytes(void)
{
	long kib, sum = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "RssAnon: %ld", &kib) == 1 ||
		    sscanf(line, "RssShmem: %ld", &kib) == 1)
			sum += kib;
	if (f == NULL)
		fail("/proc/self/status");
	fclose(f);
	return (double)sum * 1024;
}

/* ---- the two sides agree --------------------------------------------------------------------- */

static void say(const struct side *s, double value)
{
	if (write(s->peer, &value, sizeof(value)) != sizeof(value))
		fail("the other side is gone");
}

static double hear(const struct side *s)
{
	double value;

	if (read(s->peer, &value, sizeof(value)) != sizeof(value))
		fail("the other side is gone");
	return value;
}

static void side_open(struct side *s)
{
	s->channel = rdma_create_event_channel();
	s->ids = calloc((size_t)s->count, sizeof(struct rdma_cm_id *));
	if (s->channel == NULL || s->ids == NULL)
		fail("rdma_create_event_channel");
}

static struct sockaddr *address(int port)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (struct sockaddr *)&sin;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

/* All of a side share a completion queue: what two for each would cost is not the CM's. */
static void create_qp(struct side *s, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (!s->has_qps)
		return;
	if (s->cq == NULL)
		s->cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->cq;
	if (s->cq == NULL || rdma_create_qp(id, NULL, &init) != 0)
		fail("rdma_create_qp");
}

static struct rdma_conn_param conn_param(struct side *s)
{
	return (struct rdma_conn_param){ .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .qp_num = s->next_qpn++ };
}

/* ---- events ---------------------------------------------------------------------------------- */

static void accept_request(struct side *s, struct rdma_cm_id *id)
{
	struct rdma_conn_param param = conn_param(s);

	if (s->used == s->count)
		fail("more requests than were sent");
	create_qp(s, id);
	if (rdma_accept(id, &param) != 0)
		fail("rdma_accept");
	s->ids[s->used++] = id;
}

/* Takes one event. */
static void side_step(struct side *s)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(s->channel, &event) != 0)
		fail("rdma_get_cm_event");
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		accept_request(s, event->id);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (rdma_establish(event->id) != 0)
			fail("rdma_establish");
		s->established++;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		s->established++;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		s->left++;
		s->last_left = event->id;
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		fprintf(stderr, "connections: %s, status %d\n", rdma_event_str(event->event),
			event->status);
		exit(1);
	}
	rdma_ack_cm_event(event);
}

static void wait_for(struct side *s, const int *events, int count)
{
	while (*events < count)
		side_step(s);
}

/* ---- the passive side ------------------------------------------------------------------------ */

static int listen_somewhere(struct side *s, struct rdma_cm_id **id)
{
	if (rdma_create_id(s->channel, id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(*id, address(0)) != 0 || rdma_listen(*id, 2 * WINDOW) != 0)
		fail("rdma_listen");
	return ntohs(rdma_get_src_port(*id));
}

static void end_id(struct rdma_cm_id *id)
{
	rdma_disconnect(id);
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/* Disconnects what the peer has left, and ends all ids. */
static void side_close(struct side *s)
{
	for (int i = 0; i < s->used; i++)
		end_id(s->ids[i]);
	s->used = s->established = s->left = 0;
}

static void passive_main(struct side *s)
{
	struct rdma_cm_id *listener;
	double before;

	side_open(s);
	before = 0;
	say(s, listen_somewhere(s, &listener));
	/* the first connection makes what all share */
	for (int rounds = 0; rounds < 2; rounds++) {
		int count = rounds == 0 ? 1 : s->count;

		before = resident_bytes();
		wait_for(s, &s->established, count);
		say(s, now_us());
		say(s, (resident_bytes() - before) / count);
		wait_for(s, &s->left, count);
		side_close(s);
		say(s, 0);
	}
	rdma_destroy_id(listener);
}

/* ---- the active side ------------------------------------------------------------------------- */

static void active_create(struct side *s, int count)
{
	for (; s->used < count; s->used++)
		if (rdma_create_id(s->channel, &s->ids[s->used], NULL, RDMA_PS_TCP) != 0)
			fail("rdma_create_id");
}

static void active_resolve(struct side *s, int port, bool route)
{
	for (int i = 0; i < s->used; i++)
		if (route ? rdma_resolve_route(s->ids[i], WAIT_MS) != 0
			  : rdma_resolve_addr(s->ids[i], NULL, address(port), WAIT_MS) != 0)
			fail("rdma_resolve_addr");
	for (int i = 0; i < s->used; i++)
		side_step(s);
}

static void active_connect(struct side *s)
{
	for (int i = 0; i < s->used; i++) {
		struct rdma_conn_param param = conn_param(s);

		wait_for(s, &s->established, i - WINDOW);
		if (rdma_connect(s->ids[i], &param) != 0)
			fail("rdma_connect");
	}
	wait_for(s, &s->established, s->used);
}

/* The end of a step: its time for each connection. */
static double lap(double *begin, int count)
{
	double now = now_us(), us = (now - *begin) / count;

	*begin = now;
	return us;
}

/* What `count` connections took, step by step, in microseconds for each. */
struct steps {
	double create, addr, route, qp, connect, whole, leave;
	double bytes, peer_bytes;
};

static struct steps active_round(struct side *s, int port, int count)
{
	double before = resident_bytes(), start = now_us(), begin = start, last;
	struct steps t;

	active_create(s, count);
	t.create = lap(&begin, count);
	active_resolve(s, port, false);
	t.addr = lap(&begin, count);
	active_resolve(s, port, true);
	t.route = lap(&begin, count);
	for (int i = 0; i < count; i++)
		create_qp(s, s->ids[i]);
	t.qp = lap(&begin, count);
	active_connect(s);
	last = hear(s); /* when the passive side was done */
	t.connect = (last - begin) / count;
	t.whole = (last - start) / count;
	t.bytes = (resident_bytes() - before) / count;
	t.peer_bytes = hear(s);
	begin = now_us();
	side_close(s);
	hear(s);
	t.leave = lap(&begin, count);
	return t;
}

/* ---- TCP, for comparison --------------------------------------------------------------------- */

static int tcp_listen(struct sockaddr_in *sin)
{
	socklen_t length = sizeof(*sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*sin = *(struct sockaddr_in *)address(0);
	if (fd < 0 || bind(fd, (struct sockaddr *)sin, sizeof(*sin)) != 0 ||
	    listen(fd, 2 * WINDOW) != 0 || getsockname(fd, (struct sockaddr *)sin, &length) != 0)
		fail("a TCP socket");
	return fd;
}

/* Accepts `count` connections and holds them until the peer has its own. */
static void tcp_accept(int listener, int count)
{
	int last = -1;

	for (int i = 0; i < count; i++) {
		last = accept(listener, NULL, NULL);
		if (last < 0)
			fail("accept");
	}
	(void)!write(last, "", 1);
	_exit(0);
}

/* Microseconds for each of `count` connections that stay open, both processes' part included. */
static double time_tcp(int count)
{
	struct sockaddr_in sin;
	int listener = tcp_listen(&sin), *fds = calloc((size_t)count, sizeof(int));
	double begin;
	pid_t child;
	char byte;

	fflush(stdout);
	child = fork();
	if (child == 0)
		tcp_accept(listener, count);
	if (child < 0 || fds == NULL)
		fail("fork");
	begin = now_us();
	for (int i = 0; i < count; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fds[i] < 0 || connect(fds[i], (struct sockaddr *)&sin, sizeof(sin)) != 0)
			fail("connect");
	}
	if (read(fds[count - 1], &byte, 1) != 1)
		fail("the last TCP connection");
	begin = (now_us() - begin) / count;
	for (int i = 0; i < count; i++)
		close(fds[i]);
	close(listener);
	free(fds);
	waitpid(child, NULL, 0);
	return begin;
}

/* ---- what is measured ------------------------------------------------------------------------ */

static void print_steps(const struct steps *t)
{
	printf("create_id %.2f us\nresolve_addr %.2f us\nresolve_route %.2f us\ncreate_qp %.2f us\n"
	       "connect %.2f us\nleave %.2f us\nwhole %.2f us\nrate %.0f 1/s\n",
	       t->create, t->addr, t->route, t->qp, t->connect, t->leave, t->whole,
	       1e6 / t->whole);
}

static void run_rate(struct side *s)
{
	double tcp = time_tcp(s->count);
	int port = (int)hear(s);
	struct steps t;

	side_open(s);
	(void)active_round(s, port, 1);
	t = active_round(s, port, s->count);
	print_steps(&t);
	printf("tcp %.2f us\nconnect_per_tcp %.3f x\n", tcp, t.connect / tcp);
}

static void run_memory(struct side *s)
{
	int port = (int)hear(s);
	struct steps t;

	side_open(s);
	(void)active_round(s, port, 1);
	t = active_round(s, port, s->count);
	printf("active_id %.0f bytes\npassive_id %.0f bytes\nlarger_id %.0f bytes\n", t.bytes,
	       t.peer_bytes, t.bytes > t.peer_bytes ? t.bytes : t.peer_bytes);
}

/* Adds listeners until there are `count`; the last one's port. */
static int listen_more(struct side *s, int *have, int count)
{
	struct rdma_cm_id *id;
	int port = 0;

	for (; *have < count; (*have)++)
		port = listen_somewhere(s, &id);
	return port;
}

static void passive_of_listeners(struct side *s)
{
	int have = 0;

	side_open(s);
	for (int pass = 0; pass < 2; pass++) {
		double begin = now_us();
		int port = listen_more(s, &have, pass == 0 ? LISTENERS_FEW : LISTENERS_MANY);

		say(s, port);
		say(s, (now_us() - begin) / have);
		s->used = s->left = 0;
		for (int i = 1; i <= ROUNDS * PER_ROUND; i++) {
			wait_for(s, &s->left, i);
			end_id(s->last_left); /* the next one's request may have come */
		}
	}
}

/* One connection after the other, so that nothing hides what a request waits for. */
static double time_requests(struct side *s, int port)
{
	double us[ROUNDS];

	for (int r = 0; r < ROUNDS; r++) {
		us[r] = 0;
		for (int i = 0; i < PER_ROUND; i++) {
			double begin;

			active_create(s, 1);
			active_resolve(s, port, false);
			active_resolve(s, port, true);
			begin = now_us();
			active_connect(s);
			us[r] += (now_us() - begin) / PER_ROUND;
			side_close(s);
		}
	}
	return median(us, ROUNDS);
}

static void run_listeners(struct side *s)
{
	double us[2], each[2];

	side_open(s);
	for (int pass = 0; pass < 2; pass++) {
		int port = (int)hear(s);

		each[pass] = hear(s);
		us[pass] = time_requests(s, port);
	}
	printf("few_listeners %.2f us\nmany_listeners %.2f us\nlisteners_ratio %.3f x\n"
	       "listen %.2f us\n",
	       us[0], us[1], us[1] / us[0], each[1]);
}

static const struct mode {
	const char *name;
	void (*active)(struct side *s);
	void (*passive)(struct side *s);
	bool has_qps;
} modes[] = {
	{ "rate", run_rate, passive_main, true },
	{ "memory", run_memory, passive_main, false },
	{ "listeners", run_listeners, passive_of_listeners, false },
};

static void run(const struct mode *m, int count)
{
	struct side s = { .count = count, .has_qps = m->has_qps };
	pid_t parent = getpid(), child;
	int ends[2], status;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		fail("socketpair");
	child = fork();
	if (child < 0)
		fail("fork");
	s.peer = ends[child == 0];
	s.next_qpn = child == 0 ? QPN_PASSIVE : QPN_ACTIVE;
	close(ends[child != 0]);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			m->passive(&s);
		exit(0);
	}
	m->active(&s);
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("the passive side");
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : COUNT;
	struct rlimit files;

	/* malloc's arenas would differ in what they keep */
	mallopt(M_ARENA_MAX, 1);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(*modes); i++) {
		if (strcmp(argv[1], modes[i].name) != 0 || count < 1 || count > COUNT_MAX)
			continue;
		run(&modes[i], count);
		return 0;
	}
	fprintf(stderr, "usage: connections rate | memory | listeners [COUNT], 1 to %d\n",
		COUNT_MAX);
	return 2;
}
