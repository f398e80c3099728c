/* death_test.c: an end of a connection that dies in each of its states, and what the other end is
 * told. Each end is a process; `local`: of one node; `apart`: of two nodes, which are two hosts to
 * each other. With `node` all nodes are killed in between. And two that listen on one port, one
 * that is stopped while its node dies, and ends that die while the node of both is stopped.
 * usage: rdmacm_death local|apart [node]
 * In:    two roles in a script for each death    Out: a line for each failure; exit code 0 or 1
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "base/clock.h"
#include "node/client_priv.h"

enum { SOON_MS = 20000, LATE_MS = 60000, GONE_MS = 500, LOOK_MS = 50,
       QUIET_MS = 100 };

/* A way to a state: ROLE (c, s) and STEP, one after the other. Steps: L listen, C connect, Q
 * connect with a queue pair of the program's own, A accept, D disconnect, F a child is forked
 * and ends, G accept a client that has gone: EINVAL, or REJECTED follows. Or the event that is
 * expected: R CONNECT_REQUEST, P CONNECT_RESPONSE, E ESTABLISHED, J REJECTED, j that with the
 * server's words, X DISCONNECTED, T TIMEWAIT_EXIT. Ways to die: k SIGKILL, s SIGSTOP before, o
 * exit, x exec, r _exit right after a refusal. */
#define REQUESTED "sLcCsR"
#define ANSWERED "sLcQsRsAcP"
#define CONNECTED "sLcCsRsAcEsE"
#define LEAVING CONNECTED "cDsX"
#define LEFT LEAVING "sDcX"
#define REFUSES { "a server that refuses", REQUESTED, 's', 'r', "cj" }

static const struct death {
	const char *name, *way;
	char victim, how;
	const char *then;
} deaths[] = {
	{ "a listener", "sL", 's', 'k', "cCcJ" },
	{ "the server behind a REQ", REQUESTED, 's', 'k', "cJ" },
	{ "the client behind a REQ", REQUESTED, 'c', 'k', "sG" },
	{ "the server behind a REP", ANSWERED, 's', 'k', "cJ" },
	{ "the client behind a REP", ANSWERED, 'c', 'k', "sJ" },
	{ "the server of a connection", CONNECTED, 's', 'k', "cXcDcT" },
	{ "the client of a connection", CONNECTED, 'c', 'k', "sXsDsT" },
	{ "a server that was stopped", CONNECTED, 's', 's', "cX" },
	{ "a client that exits", CONNECTED, 'c', 'o', "sX" },
	{ "a client that calls exec", CONNECTED, 'c', 'x', "sX" },
	{ "a client after its child", CONNECTED "cF", 'c', 'k', "sX" },
	{ "the client that leaves", LEAVING, 'c', 'k', "sDsT" },
	{ "the server that is left", LEAVING, 's', 'k', "cXcT" },
	{ "the client in timewait", LEFT, 'c', 'k', "sT" },
	{ "the server in timewait", LEFT, 's', 'k', "cT" },
	REFUSES, REFUSES,
};
enum { DEATHS = sizeof(deaths) / sizeof(deaths[0]) };

/* ---- an end ---------------------------------------------------------------------------------- */

struct order {
	char step;
	int number; /* a port, or how long to wait in ms */
};

struct answer {
	int value; /* an event, REFUSED, a port, or 0; below 0: a negative errno */
	int status;
};

enum { REFUSED = 10000 }; /* RDMA_CM_EVENT_REJECTED with these words as private data */
static const char refusal[] = "not today";

static char server_address[32];

static struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
} e;

static int failed(void)
{
	return errno != 0 ? -errno : -EIO;
}

static const struct sockaddr *address_of(int port)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	inet_pton(AF_INET, server_address, &sin.sin_addr);
	return (struct sockaddr *)&sin;
}

static int end_event(int wait_ms, int *status)
{
	struct pollfd p = { .fd = e.channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int type;

	if (poll(&p, 1, wait_ms) != 1)
		return -ETIMEDOUT;
	if (rdma_get_cm_event(e.channel, &event) != 0)
		return failed();
	type = (int)event->event;
	*status = event->status;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		e.id = event->id;
	if (type == RDMA_CM_EVENT_REJECTED &&
	    event->param.conn.private_data_len >= sizeof(refusal) &&
	    memcmp(event->param.conn.private_data, refusal, sizeof(refusal)) == 0)
		type = REFUSED;
	rdma_ack_cm_event(event);
	return type;
}

static int end_listen(int port)
{
	if (rdma_create_id(e.channel, &e.listener, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(e.listener, (struct sockaddr *)address_of(port)) != 0 ||
	    rdma_listen(e.listener, 8) != 0)
		return failed();
	return ntohs(rdma_get_src_port(e.listener));
}

static int end_make_qp(void)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return rdma_create_qp(e.id, NULL, &init) != 0 ? failed() : 0;
}

static int end_connect(int port, bool own_qp)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7, .qp_num = 77 };
	int status, event;

	if (rdma_create_id(e.channel, &e.id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_resolve_addr(e.id, NULL, (struct sockaddr *)address_of(port), 1000) != 0)
		return failed();
	event = end_event(LATE_MS, &status);
	if (event != RDMA_CM_EVENT_ADDR_RESOLVED)
		return event < 0 ? event : -1000 - event;
	if (rdma_resolve_route(e.id, 1000) != 0)
		return failed();
	event = end_event(LATE_MS, &status);
	if (event != RDMA_CM_EVENT_ROUTE_RESOLVED)
		return event < 0 ? event : -1000 - event;
	if (!own_qp && end_make_qp() != 0)
		return failed();
	return rdma_connect(e.id, &param) != 0 ? failed() : 0;
}

static int end_accept(void)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	int err = end_make_qp();

	return err != 0 ? err : rdma_accept(e.id, &param) != 0 ? failed() : 0;
}

/* The event, or what accepting says in its place. */
static int end_accept_the_gone(int wait_ms, int *status)
{
	int err = end_accept();

	if (err == -EINVAL)
		return RDMA_CM_EVENT_REJECTED;
	return err != 0 ? err : end_event(wait_ms, status);
}

/* Nobody's death but that of a child. */
static int end_fork(void)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : -ECHILD;
}

static int end_obey(const struct order *o, int *status)
{
	errno = 0;
	switch (o->step) {
	case 'L':
		return end_listen(o->number);
	case 'C':
	case 'Q':
		return end_connect(o->number, o->step == 'Q');
	case 'A':
		return end_accept();
	case 'G':
		return end_accept_the_gone(o->number, status);
	case 'D':
		return rdma_disconnect(e.id) != 0 ? failed() : 0;
	case 'F':
		return end_fork();
	case 'o':
		exit(0);
	case 'r':
		(void)rdma_reject(e.id, refusal, sizeof(refusal));
		_exit(0);
	case 'x':
		execlp("sleep", "sleep", "60", NULL);
		return failed();
	default:
		return end_event(o->number, status);
	}
}

static void end_run(int fd, const char *node, const char *addresses)
{
	struct answer a;
	struct order o;

	setenv("ANYVERBS_NODE", node, 1);
	if (addresses != NULL)
		setenv("ANYVERBS_ADDR", addresses, 1);
	e.channel = rdma_create_event_channel();
	if (e.channel == NULL)
		_exit(1);
	while (read(fd, &o, sizeof(o)) == sizeof(o)) {
		a = (struct answer){ .status = 0 };
		a.value = end_obey(&o, &a.status);
		if (write(fd, &a, sizeof(a)) != sizeof(a))
			break;
	}
	_exit(0);
}

/* ---- the director ---------------------------------------------------------------------------- */

struct actor {
	pid_t pid;
	int fd;
};

static struct play {
	const char *name;
	struct actor client, server;
	int port;
	bool bad;
} plays[DEATHS];

/* Of the servers and of the clients; the third node has two addresses. */
static char nodes[3][NODE_NAME_MAX];
static char addresses[4][32], both[64];
static bool apart;
static int failures;

/* `connects`: the address that it listens at or asks for. */
static struct actor actor_start_at(int node, const char *addr, const char *connects)
{
	struct actor a;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		abort();
	fflush(stdout);
	a.pid = fork();
	if (a.pid == 0) {
		close(ends[0]);
		strcpy(server_address, connects);
		end_run(ends[1], nodes[node], addr);
	}
	close(ends[1]);
	a.fd = ends[0];
	return a;
}

static struct actor actor_start(int role)
{
	int node = apart ? role : 0;

	return actor_start_at(node, apart ? addresses[node] : NULL,
			      apart ? addresses[0] : "127.0.0.1");
}

static void actor_end(struct actor *a)
{
	close(a->fd);
	kill(a->pid, SIGKILL);
	waitpid(a->pid, NULL, 0);
}

static struct answer actor_do(struct actor *a, char step, int number)
{
	struct order o = { step, number };
	struct answer answer = { .value = -EPIPE };

	if (write(a->fd, &o, sizeof(o)) == sizeof(o) &&
	    read(a->fd, &answer, sizeof(answer)) != sizeof(answer))
		answer.value = -EPIPE;
	return answer;
}

static const char expected_steps[] = "RPEJXTjG";
static const int expected_events[] = {
	RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED,
	RDMA_CM_EVENT_REJECTED,	       RDMA_CM_EVENT_DISCONNECTED,     RDMA_CM_EVENT_TIMEWAIT_EXIT,
	REFUSED,		       RDMA_CM_EVENT_REJECTED,
};

static void fail(struct play *p, const char *where, char role, char step, struct answer a)
{
	printf("%s: %s: %c%c: %d (%s), status %d\n", p->name, where, role, step, a.value,
	       a.value < 0	    ? strerror(-a.value) :
	       a.value == REFUSED ? "refused" :
				    rdma_event_str((enum rdma_cm_event_type)a.value),
	       a.status);
	p->bad = true;
	failures++;
}

/* Timewait lasts for seconds; all else is told soon. */
static void act(struct play *p, const char *script, const char *where)
{
	for (; *script != '\0' && !p->bad; script += 2) {
		struct actor *who = script[0] == 's' ? &p->server : &p->client;
		const char *expected = strchr(expected_steps, script[1]);
		bool connects = script[1] == 'C' || script[1] == 'Q';
		struct answer a = actor_do(who, script[1],
					   expected == NULL ? (connects ? p->port : 0)
					   : script[1] == 'T' ? LATE_MS
							      : SOON_MS);

		if (script[1] == 'L')
			p->port = a.value;
		if (expected != NULL ? a.value != expected_events[expected - expected_steps]
				     : a.value < 0)
			fail(p, where, script[0], script[1], a);
	}
}

static void kill_victim(struct play *p, const struct death *d)
{
	struct actor *victim = d->victim == 's' ? &p->server : &p->client;
	struct order o = { d->how, 0 };

	if (d->how == 's') {
		kill(victim->pid, SIGSTOP);
		usleep(GONE_MS * 1000);
	}
	if (d->how == 'k' || d->how == 's')
		kill(victim->pid, SIGKILL);
	else if (write(victim->fd, &o, sizeof(o)) != sizeof(o))
		printf("%s: does not die\n", d->name);
}

/* The port of a server that has died is anybody's. */
static void port_is_free(struct play *p)
{
	struct actor next = actor_start(0);
	struct answer a = actor_do(&next, 'L', p->port);

	if (a.value != p->port)
		fail(p, "its port", 's', 'L', a);
	actor_end(&next);
}

/* 0: there is none. */
static pid_t node_pid(const char *name)
{
	int fd = connection_open(name, place_scope_wanted(), false);
	s32 pid = 0;

	if (fd < 0)
		return 0;
	if (!address_peer_is_mine(fd, &pid))
		pid = 0;
	close(fd);
	return pid;
}

static void kill_node(const char *name, int signal)
{
	pid_t pid = node_pid(name);

	if (pid > 0)
		kill(pid, signal);
}

static u32 attached_to(const char *name)
{
	struct proto_plain q = { .head = { .magic = PROTO_MAGIC, .version = PROTO_VERSION } };
	struct proto_status_reply status = { .attached = 0 };
	static const u16 types[] = { PROTO_TOOL, PROTO_STATUS };
	int fd = connection_open(name, place_scope_wanted(), false);
	struct message m;

	for (int i = 0; fd >= 0 && i < 2; i++) {
		q.head.type = types[i];
		if (message_send(fd, &q, sizeof(q), NULL, 0) < 0 ||
		    message_wait(fd, clock_now_ns() + LATE_MS * NS_PER_MS) < 0 ||
		    message_receive(fd, &status, sizeof(status), &m) < 0)
			break;
	}
	if (fd >= 0)
		close(fd);
	return status.head.type == PROTO_STATUS ? status.attached : 0;
}

/* Until so many processes have found the next node, and claimed what they had. */
static void await_processes(const char *name, u32 expected)
{
	for (int ms = 0; ms < LATE_MS && attached_to(name) < expected; ms += LOOK_MS)
		usleep(LOOK_MS * 1000);
	usleep(GONE_MS * 1000);
}

static void run_all(bool kill_nodes)
{
	u32 attached[2] = { 0 };

	for (int i = 0; i < DEATHS; i++) {
		plays[i].name = deaths[i].name;
		plays[i].server = actor_start(0);
		plays[i].client = actor_start(1);
		act(&plays[i], deaths[i].way, "before");
	}
	for (int i = 0; kill_nodes && i < (apart ? 2 : 1); i++) {
		attached[i] = attached_to(nodes[i]);
		kill_node(nodes[i], SIGKILL);
	}
	for (int i = 0; kill_nodes && i < (apart ? 2 : 1); i++)
		await_processes(nodes[i], attached[i]);
	for (int i = 0; i < DEATHS; i++) {
		if (!plays[i].bad)
			kill_victim(&plays[i], &deaths[i]);
	}
	for (int i = 0; i < DEATHS; i++) {
		act(&plays[i], deaths[i].then, "after");
		if (deaths[i].victim == 's' && !plays[i].bad)
			port_is_free(&plays[i]);
		actor_end(&plays[i].server);
		actor_end(&plays[i].client);
	}
}

/* Of two that listen on one port, at two addresses, each gets the requests for its own. */
static void ask_both(void)
{
	struct actor servers[2], client;
	struct answer a;
	int port = 0;

	for (int i = 0; i < 2; i++) {
		servers[i] = actor_start_at(2, both, addresses[2 + i]);
		a = actor_do(&servers[i], 'L', port);
		port = a.value;
	}
	for (int i = 1; i >= 0; i--) {
		client = apart ? actor_start_at(1, addresses[1], addresses[2 + i])
			       : actor_start_at(2, both, addresses[2 + i]);
		a = actor_do(&client, 'C', port);
		if (a.value == 0)
			a = actor_do(&servers[i], 'R', SOON_MS);
		if (a.value != RDMA_CM_EVENT_CONNECT_REQUEST) {
			printf("two listeners: number %d: %d\n", i, a.value);
			failures++;
		}
		actor_end(&client);
	}
	actor_end(&servers[0]);
	actor_end(&servers[1]);
}

/* The node dies beside a listener that is stopped, so the next node does not hear of it before it
 * goes on: until then a client waits, whether it was there before or not. */
static void ask_a_stopped_one(bool client_was_there)
{
	struct actor server = actor_start(0), client;
	int port = actor_do(&server, 'L', 0).value;
	struct answer a;

	if (client_was_there) {
		client = actor_start(1);
		(void)actor_do(&client, 'L', 0); /* attaches */
	}
	kill(server.pid, SIGSTOP);
	kill_node(nodes[0], SIGKILL);
	if (!client_was_there)
		client = actor_start(1);
	a = actor_do(&client, 'C', port);
	if (a.value == 0)
		a = actor_do(&client, 'J', QUIET_MS);
	kill(server.pid, SIGCONT);
	if (a.value == -ETIMEDOUT)
		a = actor_do(&server, 'R', SOON_MS);
	if (a.value != RDMA_CM_EVENT_CONNECT_REQUEST) {
		printf("a stopped listener, a client that %s: %d\n",
		       client_was_there ? "was there" : "comes later", a.value);
		failures++;
	}
	actor_end(&client);
	actor_end(&server);
}

/* The node cannot send what a process has left: the survivors see the death themselves. The node
 * sends it later, and nobody hears of the death again. */
static void die_beside_a_stopped_node(void)
{
	static const struct {
		const char *name, *way, *soon, *later;
		char victim;
	} cases[] = {
		{ "the server of a connection", CONNECTED, "cX", "cDcT", 's' },
		{ "the client of a connection", CONNECTED, "sX", "sDsT", 'c' },
		{ "the server behind a REP", ANSWERED, "cJ", "", 's' },
		{ "the server that is left", LEAVING, "cX", "cT", 's' },
	};
	enum { CASES = sizeof(cases) / sizeof(cases[0]) };
	struct play lives[CASES];
	pid_t node;

	for (int i = 0; i < CASES; i++) {
		lives[i] = (struct play){ .name = cases[i].name,
					 .server = actor_start(0),
					 .client = actor_start(0) };
		act(&lives[i], cases[i].way, "before the node stops");
	}
	node = node_pid(nodes[0]);
	if (node == 0 || kill(node, SIGSTOP) != 0)
		abort();
	for (int i = 0; i < CASES; i++)
		kill(cases[i].victim == 's' ? lives[i].server.pid : lives[i].client.pid, SIGKILL);
	for (int i = 0; i < CASES; i++)
		act(&lives[i], cases[i].soon, "beside a stopped node");
	kill(node, SIGCONT);
	for (int i = 0; i < CASES; i++) {
		act(&lives[i], cases[i].later, "when the node goes on");
		actor_end(&lives[i].server);
		actor_end(&lives[i].client);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	apart = strcmp(argv[1], "apart") == 0;
	for (int i = 0; i < 4; i++) {
		int pid = getpid();

		snprintf(nodes[i % 3], sizeof(nodes[0]), "death-%d-%d", pid, i % 3);
		snprintf(addresses[i], sizeof(addresses[i]), "127.%d.%d.%d", 130 + (pid >> 13 & 63),
			 pid >> 5 & 255, (pid << 3 | (i + 1)) & 255);
	}
	snprintf(both, sizeof(both), "%s,%s", addresses[2], addresses[3]);
	run_all(argc > 2);
	ask_both();
	ask_a_stopped_one(false);
	ask_a_stopped_one(true);
	if (!apart)
		die_beside_a_stopped_node();
	for (int i = 0; i < 3; i++)
		kill_node(nodes[i], SIGTERM);
	printf("%d deaths, %d failures\n", DEATHS, failures);
	return failures != 0;
}
