/* short_test.c: a server or a client that has no descriptor left when the two first meet. Of one
 * node the client is refused at once, with a reason, and who is short says so; by UDP no end needs
 * a descriptor.
 * In:    a client in a child, told by a pipe    Out: verdicts
 * Runs:  two processes                                   Locks: none
 */
#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_RESOURCES = 3, CONSUMER = 28, SIDR_REJECTED = 2, SIDR_NO_QP = 3 };

/* What the client shall do, and what came of it. */
struct ask {
	enum rdma_port_space ps;
	int port; /* network byte order */
	bool is_short;
};
struct answer {
	int event; /* -1: none */
	int status;
};

static int asks[2], answers[2], heard, stderr_before;
static pid_t child;
static struct rlimit limit_before;

/* ---- a process without a descriptor ---------------------------------------------------------- */

static void become_short(void)
{
	struct rlimit none;
	int lowest = dup(STDERR_FILENO);

	close(lowest);
	getrlimit(RLIMIT_NOFILE, &limit_before);
	none = limit_before;
	none.rlim_cur = (rlim_t)lowest;
	setrlimit(RLIMIT_NOFILE, &none);
}

static void become_rich(void)
{
	setrlimit(RLIMIT_NOFILE, &limit_before);
}

/* ---- the client ------------------------------------------------------------------------------ */

/* The next event and its status. */
static struct answer client_event(struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct answer a = { .event = -1 };
	struct rdma_cm_event *event;

	if (poll(&p, 1, EVENT_MS) == 1 && rdma_get_cm_event(ch, &event) == 0) {
		a = (struct answer){ (int)event->event, event->status };
		rdma_ack_cm_event(event);
	}
	return a;
}

static bool client_resolve(struct rdma_cm_id *id, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = (in_port_t)port };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, EVENT_MS) == 0 &&
	       client_event(id->channel).event == RDMA_CM_EVENT_ADDR_RESOLVED &&
	       rdma_resolve_route(id, EVENT_MS) == 0 &&
	       client_event(id->channel).event == RDMA_CM_EVENT_ROUTE_RESOLVED;
}

static struct answer client_connect(const struct ask *ask)
{
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct answer a = { .event = -1 };
	struct rdma_cm_id *id;

	if (ch == NULL || rdma_create_id(ch, &id, NULL, ask->ps) != 0)
		return a;
	init.qp_type = id->qp_type;
	if (client_resolve(id, ask->port) && rdma_create_qp(id, NULL, &init) == 0) {
		if (ask->is_short)
			become_short();
		if (rdma_connect(id, &param) == 0)
			a = client_event(ch);
		if (ask->is_short)
			become_rich();
		rdma_destroy_qp(id);
	}
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	return a;
}

static void client_run(void)
{
	struct ask ask;

	while (read(asks[0], &ask, sizeof(ask)) == sizeof(ask)) {
		struct answer a = client_connect(&ask);

		if (write(answers[1], &a, sizeof(a)) != sizeof(a))
			_exit(1);
	}
	_exit(0);
}

/* Standard error of both processes is kept. */
static int set_up(void **state)
{
	heard = memfd_create("stderr", MFD_CLOEXEC);
	stderr_before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (dup2(heard, STDERR_FILENO) < 0 || pipe(asks) != 0 || pipe(answers) != 0)
		return -1;
	child = fork();
	if (child == 0) {
		close(asks[1]);
		client_run();
	}
	close(asks[0]);
	close(answers[1]);
	return begin(state);
}

static int tear_down(void **state)
{
	int status, err = end(state);

	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	close(heard);
	close(asks[1]);
	close(answers[0]);
	return waitpid(child, &status, 0) == child && status == 0 ? err : -1;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static bool by_udp(void)
{
	const char *paths = getenv("ANYVERBS_PATHS");

	return paths != NULL && strcmp(paths, "udp") == 0;
}

static void tell(const struct ends *e, enum rdma_port_space ps, bool is_short)
{
	struct ask ask = { ps, rdma_get_src_port(e->listener), is_short };

	assert_int_equal(write(asks[1], &ask, sizeof(ask)), sizeof(ask));
}

static void hears(enum rdma_cm_event_type type, int status)
{
	struct answer a;

	assert_int_equal(read(answers[0], &a, sizeof(a)), sizeof(a));
	assert_int_equal(a.event, type);
	assert_int_equal(a.status, status);
}

static void refuse_next(void)
{
	struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	assert_int_equal(rdma_reject(id, NULL, 0), 0);
	rdma_ack_cm_event(event);
	rdma_destroy_id(id);
}

/* The client asks, and the server hears of it and refuses. It may hear of an earlier request first,
 * which the client's end has repeated and then given up. */
static void is_heard(const struct ends *e, enum rdma_port_space ps, bool is_short)
{
	struct pollfd p[2] = { { .fd = answers[0], .events = POLLIN },
			       { .fd = channel->fd, .events = POLLIN } };

	tell(e, ps, is_short);
	refuse_next();
	while (poll(p, 2, -1) > 0 && p[0].revents == 0)
		refuse_next();
	if (ps == RDMA_PS_TCP)
		hears(RDMA_CM_EVENT_REJECTED, CONSUMER);
	else
		hears(RDMA_CM_EVENT_UNREACHABLE, SIDR_REJECTED);
}

static void is_refused(const struct ends *e, enum rdma_port_space ps, bool is_short)
{
	tell(e, ps, is_short);
	if (ps == RDMA_PS_TCP)
		hears(RDMA_CM_EVENT_REJECTED, NO_RESOURCES);
	else
		hears(RDMA_CM_EVENT_UNREACHABLE, SIDR_NO_QP);
}

/* One line was said, unasked. */
static void assert_said(void)
{
	static const char line[] = "no connection with another process of this host: "
				   "Too many open files (RLIMIT_NOFILE is ";
	char text[4096] = "", *at;

	assert_true(pread(heard, text, sizeof(text) - 1, 0) >= 0);
	at = strstr(text, line);
	assert_non_null(at);
	if (getenv("ANYVERBS_LOG") == NULL)
		assert_null(strstr(at + 1, line));
}

static void connect_short(enum rdma_port_space ps, bool is_client)
{
	struct ends e;

	make_listener(&e, ps);
	if (!is_client)
		become_short();
	for (int i = 0; i < 2; i++) {
		if (by_udp())
			is_heard(&e, ps, is_client);
		else
			is_refused(&e, ps, is_client);
	}
	if (!is_client)
		become_rich();
	/* each test has a client of its own, and all have one server */
	if (!by_udp() && (is_client || ps == RDMA_PS_TCP))
		assert_said();
	is_heard(&e, ps, false);
	destroy_all(&e);
}

static void connect__short_client(void **state)
{
	connect_short(RDMA_PS_TCP, true);
}

static void connect__short_client_of_datagrams(void **state)
{
	connect_short(RDMA_PS_UDP, true);
}

static void connect__short_server(void **state)
{
	connect_short(RDMA_PS_TCP, false);
}

static void connect__short_server_of_datagrams(void **state)
{
	connect_short(RDMA_PS_UDP, false);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(connect__short_client, set_up, tear_down),
		cmocka_unit_test_setup_teardown(connect__short_client_of_datagrams, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(connect__short_server, set_up, tear_down),
		cmocka_unit_test_setup_teardown(connect__short_server_of_datagrams, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
