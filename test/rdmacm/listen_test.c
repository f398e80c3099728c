/* listen_test.c: listeners of stream rsockets: clients are connected before raccept is called, as
 * by TCP, and within bounds. Both ends are this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/ib.h>
#include <rdma/rsocket.h>

#include "anyverbs/rsocket.h"
#include "pair.h"

enum { BACKLOG = 3, CLIENTS = 2 * BACKLOG + 1 }; /* one more, and what the CM keeps */

/* A client in the same thread: rconnect blocks until it is connected. */
static int connected(const struct pair *p)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(rconnect(fd, (const struct sockaddr *)&p->addr, sizeof(p->addr)), 0);
	return fd;
}

static int connecting(const struct pair *p)
{
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	fails(rconnect(fd, (const struct sockaddr *)&p->addr, sizeof(p->addr)), EINPROGRESS);
	return fd;
}

static void begin_at(struct pair *p, int backlog, int flags)
{
	listen_at(p, "127.0.0.1");
	assert_int_equal(rlisten(p->listener, backlog), 0);
	assert_int_equal(rfcntl(p->listener, F_SETFL, flags), 0);
}

/* Once more, at another port: that of rbind was any. */
static void listen_again(struct pair *p)
{
	socklen_t len = sizeof(p->addr);

	assert_int_equal(rlisten(p->listener, 5), 0);
	assert_int_equal(rgetsockname(p->listener, (struct sockaddr *)&p->addr, &len), 0);
}

/* How many clients are connected within the time, of those that were not. */
static int count_connected(const int *clients, int n, int timeout_ms)
{
	int count = 0;

	for (int i = 0; i < n; i++)
		count += (ready(clients[i], POLLOUT, timeout_ms) & POLLOUT) != 0;
	return count;
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void self_connects(int flags)
{
	struct pair p;
	char word[5];

	begin_at(&p, 5, flags);
	assert_int_equal(ready(p.listener, POLLIN, 0), 0);
	p.client = connected(&p);
	assert_int_equal(rsend(p.client, "hello", 5, 0), 5);
	assert_int_equal(ready(p.listener, POLLIN, 0), POLLIN);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_int_equal(ready(p.listener, POLLIN, 0), 0);
	assert_int_equal(rrecv(p.server, word, sizeof(word), MSG_WAITALL), 5);
	assert_memory_equal(word, "hello", 5);
	end_pair(&p);
}

static void rconnect__before_raccept_in_one_thread(void **state)
{
	self_connects(0);
}

static void rconnect__before_raccept_of_a_nonblocking_listener(void **state)
{
	self_connects(O_NONBLOCK);
}

/* A client meets a listener whose program sets an option after rlisten. True: in time. */
static bool sets_option_late(struct pair *p)
{
	const int places = 1;
	struct timespec from, to;

	listen_at(p, "127.0.0.1");
	clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(rlisten(p->listener, 5), 0);
	p->client = connecting(p);
	usleep(2000);
	assert_int_equal(
		rsetsockopt(p->listener, SOL_RDMA, RDMA_IOMAPSIZE, &places, sizeof(places)), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 20;
}

static void rsetsockopt__after_rlisten_is_for_the_first_client(void **state)
{
	char memory[64];
	struct pair p;
	bool in_time = false;

	while (!in_time) {
		in_time = sets_option_late(&p);
		p.server = raccept(p.listener, NULL, NULL);
		assert_true(p.server >= 0);
		assert_int_equal(ready(p.client, POLLOUT, WAIT_MS), POLLOUT);
		if (in_time)
			assert_int_not_equal(
				riomap(p.client, memory, sizeof(memory), PROT_WRITE, 0, -1), -1);
		end_pair(&p);
	}
}

static void rlisten__after_a_refused_rconnect_of_the_same_rsocket(void **state)
{
	struct pair p;

	listen_at(&p, "127.0.0.1");
	fails(rconnect(p.listener, (struct sockaddr *)&p.addr, sizeof(p.addr)), ECONNREFUSED);
	listen_again(&p);
	p.client = connected(&p);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	end_pair(&p);
}

/* As by TCP: a server sets its options once. */
static void raccept__gives_the_listeners_options(void **state)
{
	struct linger linger = { 1, 2 }, lingers = { 0 };
	int one = 1, idle = 77, got = 0;
	socklen_t len = sizeof(got);
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rsetsockopt(p.listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(rsetsockopt(p.listener, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)),
			 0);
	assert_int_equal(rsetsockopt(p.listener, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)), 0);
	assert_int_equal(rsetsockopt(p.listener, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)),
			 0);
	assert_int_equal(rlisten(p.listener, 5), 0);
	connect_to(&p);
	assert_int_equal(rgetsockopt(p.server, IPPROTO_TCP, TCP_NODELAY, &got, &len), 0);
	assert_int_equal(got, 1);
	assert_int_equal(rgetsockopt(p.server, IPPROTO_TCP, TCP_KEEPIDLE, &got, &len), 0);
	assert_int_equal(got, idle);
	assert_int_equal(rgetsockopt(p.server, SOL_SOCKET, SO_KEEPALIVE, &got, &len), 0);
	assert_int_equal(got, 1);
	len = sizeof(lingers);
	assert_int_equal(rgetsockopt(p.server, SOL_SOCKET, SO_LINGER, &lingers, &len), 0);
	assert_memory_equal(&lingers, &linger, sizeof(linger));
	end_pair(&p);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* As by TCP one more than the backlog; the others wait until raccept has taken some. */
static void rlisten__connects_no_more_than_its_backlog(void **state)
{
	int clients[CLIENTS], servers[CLIENTS];
	struct pair p;

	begin_at(&p, BACKLOG, 0);
	for (int i = 0; i <= BACKLOG; i++)
		clients[i] = connected(&p);
	for (int i = BACKLOG + 1; i < CLIENTS; i++)
		clients[i] = connecting(&p);
	assert_int_equal(count_connected(clients + BACKLOG + 1, CLIENTS - BACKLOG - 1, 50), 0);
	for (int i = 0; i < CLIENTS; i++) {
		servers[i] = raccept(p.listener, NULL, NULL);
		assert_true(servers[i] >= 0);
	}
	assert_int_equal(count_connected(clients, CLIENTS, WAIT_MS), CLIENTS);
	for (int i = 0; i < CLIENTS; i++) {
		rclose(clients[i]);
		rclose(servers[i]);
	}
	rclose(p.listener);
}

static void rlisten__again_changes_the_backlog(void **state)
{
	int clients[2];
	struct pair p;

	begin_at(&p, 0, 0);
	clients[0] = connected(&p);
	clients[1] = connecting(&p);
	assert_int_equal(count_connected(&clients[1], 1, 50), 0);
	assert_int_equal(rlisten(p.listener, 1), 0);
	assert_int_equal(count_connected(&clients[1], 1, WAIT_MS), 1);
	rclose(clients[0]);
	rclose(clients[1]);
	rclose(p.listener);
}

/* The buffers of all places together are bounded, too. */
static void rlisten__has_fewer_places_for_large_buffers(void **state)
{
	int clients[CLIENTS], bytes = 16 << 20;
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rsetsockopt(p.listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
	assert_int_equal(rsetsockopt(p.listener, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
	assert_int_equal(rlisten(p.listener, CLIENTS), 0);
	clients[0] = connected(&p);
	clients[1] = connected(&p);
	clients[2] = connecting(&p);
	assert_int_equal(count_connected(&clients[2], 1, 50), 0);
	for (int i = 0; i < 3; i++)
		rclose(clients[i]);
	rclose(p.listener);
}

/* ---- clients that go ------------------------------------------------------------------------- */

static struct rdma_cm_id *asks(struct rdma_event_channel *own, const struct pair *p)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct sockaddr_storage to = p->addr;
	uint8_t hello[40] = { [0] = 1, [3] = 8, [23] = 2, [39] = 64 }; /* nothing is sent */
	struct rdma_conn_param param = { .private_data = hello,
					 .private_data_len = sizeof(hello),
					 .retry_count = 7 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(own, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, WAIT_MS), 0);
	assert_int_equal(rdma_get_cm_event(own, &event), 0);
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_resolve_route(id, WAIT_MS), 0);
	assert_int_equal(rdma_get_cm_event(own, &event), 0);
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	assert_int_equal(rdma_connect(id, &param), 0);
	return id;
}

/* The listener answers, and the client goes without having heard it: it destroys its id while the
 * answer waits on its channel. */
static void raccept__does_not_hear_of_clients_that_refuse(void **state)
{
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct pollfd f = { .fd = own->fd, .events = POLLIN };
	struct pair p;

	begin_at(&p, 0, 0);
	for (int i = 0; i < 3; i++) {
		struct rdma_cm_id *id = asks(own, &p);

		/* each has the only place, so the one before has given it back */
		assert_int_equal(poll(&f, 1, WAIT_MS), 1);
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
	p.client = connected(&p);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	rfcntl(p.listener, F_SETFL, O_NONBLOCK);
	fails(raccept(p.listener, NULL, NULL), EAGAIN);
	end_pair(&p);
	rdma_destroy_event_channel(own);
}

/* All protection domains that the device has left; how many. */
static int take_domains(struct ibv_context *verbs, struct ibv_pd ***out)
{
	struct ibv_device_attr attr;
	int count = 0;

	assert_int_equal(ibv_query_device(verbs, &attr), 0);
	*out = calloc((size_t)attr.max_pd + 1, sizeof(**out));
	assert_non_null(*out);
	while (((*out)[count] = ibv_alloc_pd(verbs)) != NULL)
		assert_in_range(++count, 1, attr.max_pd);
	return count;
}

static void give_domains(struct ibv_pd **domains, int count)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(ibv_dealloc_pd(domains[i]), 0);
	free(domains);
}

/* No protection domain is left for the second client, who is refused: raccept says so, and from
 * then on the listener tells of the first client, and of nothing else. */
static void raccept__tells_an_error_once(void **state)
{
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *second;
	struct ibv_pd **domains;
	struct pair p;
	int count;

	begin_at(&p, 0, O_NONBLOCK);
	p.client = connected(&p); /* has the only place */
	second = asks(own, &p);
	count = take_domains(second->verbs, &domains);
	assert_int_equal(rlisten(p.listener, 1), 0); /* a place more */
	event = event_of(own, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, second);
	rdma_ack_cm_event(event);
	give_domains(domains, count);
	fails(raccept(p.listener, NULL, NULL), ENOMEM);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_int_equal(ready(p.listener, POLLIN, 0), 0);
	rdma_destroy_qp(second);
	rdma_destroy_id(second);
	rdma_destroy_event_channel(own);
	end_pair(&p);
}

/* As by TCP: what it has sent is there, and then the end. */
static void raccept__takes_clients_that_have_left(void **state)
{
	struct pair p;
	char word[8];

	begin_at(&p, 5, 0);
	p.client = connected(&p);
	assert_int_equal(rsend(p.client, "bye", 3, 0), 3);
	assert_int_equal(rclose(p.client), 0);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_int_equal(rrecv(p.server, word, sizeof(word), 0), 3);
	assert_int_equal(rrecv(p.server, word, sizeof(word), 0), 0);
	rclose(p.server);
	rclose(p.listener);
}

/* The program as a client: connects to the port, says so on standard output, and stays. */
static int act_as_client(const char *port)
{
	struct pair p = { .listener = -1 };
	struct sockaddr_in *to = (struct sockaddr_in *)&p.addr;

	to->sin_family = AF_INET;
	to->sin_port = htons((in_port_t)atoi(port));
	to->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p.client = connected(&p);
	if (rsend(p.client, "bye", 3, 0) == 3 && write(STDOUT_FILENO, "x", 1) == 1)
		pause();
	return 1;
}

/* A program of its own: a child of this one could not begin threads under ThreadSanitizer. */
static pid_t start_client(const struct pair *p, int out)
{
	const struct sockaddr_in *at = (const struct sockaddr_in *)&p->addr;
	pid_t child;
	char port[8];

	snprintf(port, sizeof(port), "%d", ntohs(at->sin_port));
	child = fork();
	if (child == 0) {
		dup2(out, STDOUT_FILENO);
		execl("/proc/self/exe", "listen_test", port, NULL);
		_exit(1);
	}
	return child;
}

/* In a process that is killed before raccept is called. */
static void raccept__takes_clients_that_have_died(void **state)
{
	struct pair p;
	pid_t child;
	char word[8];
	int told[2];

	begin_at(&p, 5, 0);
	assert_int_equal(pipe(told), 0);
	child = start_client(&p, told[1]);
	close(told[1]);
	assert_int_equal(read(told[0], word, 1), 1);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	if (getenv("ANYVERBS_PATHS") == NULL) { /* over a wire its last packets may end with it */
		assert_int_equal(rrecv(p.server, word, sizeof(word), 0), 3);
		assert_int_equal(rrecv(p.server, word, sizeof(word), 0), 0);
	}
	rclose(p.server);
	rclose(p.listener);
	close(told[0]);
}

/* ---- the end of the listener ----------------------------------------------------------------- */

static void clients_hear(struct pair *p, int (*ends)(int listener))
{
	int clients[3];
	char byte;

	begin_at(p, 1, 0);
	clients[0] = connected(p);
	clients[1] = connected(p);
	clients[2] = connecting(p);
	assert_int_equal(ends(p->listener), 0);
	for (int i = 0; i < 2; i++) {
		fails((int)rrecv(clients[i], &byte, 1, 0), ECONNRESET);
		rclose(clients[i]);
	}
	assert_true(ready(clients[2], POLLOUT, WAIT_MS) & POLLERR);
	assert_int_equal(error_of(clients[2]), ECONNREFUSED);
	rclose(clients[2]);
}

static void rclose__of_a_listener_ends_what_waits_in_it(void **state)
{
	struct pair p;

	clients_hear(&p, rclose);
}

static int shut(int listener)
{
	return rshutdown(listener, SHUT_RDWR);
}

static void rshutdown__of_a_listener_ends_what_waits_in_it(void **state)
{
	struct pair p;

	clients_hear(&p, shut);
	listen_again(&p);
	p.client = connected(&p);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	end_pair(&p);
}

/* The child has no listener and what waits in it stays the parent's. */
static void fork__leaves_what_waits_to_the_parent(void **state)
{
	struct pair p;
	int status = -1;
	pid_t child;
	char byte;

	begin_at(&p, 5, O_NONBLOCK);
	p.client = connected(&p);
	child = fork();
	if (child == 0)
		_exit(raccept(p.listener, NULL, NULL) != -1 || errno != EBADF ||
		      rclose(p.listener) != 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	assert_int_equal(rrecv(p.server, &byte, 1, 0), 1);
	end_pair(&p);
}

/* ---- on demand ------------------------------------------------------------------------------- */

static void RDMA_ACCEPT_ON_DEMAND__leaves_requests_to_raccept(void **state)
{
	int on = 1;
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rsetsockopt(p.listener, SOL_RDMA, RDMA_ACCEPT_ON_DEMAND, &on, sizeof(on)),
			 0);
	assert_int_equal(rlisten(p.listener, 5), 0);
	fails(rsetsockopt(p.listener, SOL_RDMA, RDMA_ACCEPT_ON_DEMAND, &on, sizeof(on)), EINVAL);
	p.client = connecting(&p);
	assert_int_equal(ready(p.listener, POLLIN, WAIT_MS), POLLIN);
	assert_int_equal(count_connected(&p.client, 1, 50), 0);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_int_equal(count_connected(&p.client, 1, WAIT_MS), 1);
	end_pair(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rconnect__before_raccept_in_one_thread),
		cmocka_unit_test(rconnect__before_raccept_of_a_nonblocking_listener),
		cmocka_unit_test(rsetsockopt__after_rlisten_is_for_the_first_client),
		cmocka_unit_test(raccept__gives_the_listeners_options),
		cmocka_unit_test(rlisten__after_a_refused_rconnect_of_the_same_rsocket),
		cmocka_unit_test(rlisten__connects_no_more_than_its_backlog),
		cmocka_unit_test(rlisten__again_changes_the_backlog),
		cmocka_unit_test(rlisten__has_fewer_places_for_large_buffers),
		cmocka_unit_test(raccept__does_not_hear_of_clients_that_refuse),
		cmocka_unit_test(raccept__tells_an_error_once),
		cmocka_unit_test(raccept__takes_clients_that_have_left),
		cmocka_unit_test(raccept__takes_clients_that_have_died),
		cmocka_unit_test(rclose__of_a_listener_ends_what_waits_in_it),
		cmocka_unit_test(rshutdown__of_a_listener_ends_what_waits_in_it),
		cmocka_unit_test(fork__leaves_what_waits_to_the_parent),
		cmocka_unit_test(RDMA_ACCEPT_ON_DEMAND__leaves_requests_to_raccept),
	};

	if (argc > 1)
		return act_as_client(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
