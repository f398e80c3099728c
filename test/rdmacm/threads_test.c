/* threads_test.c: librdmacm and threads, signals, cancellation, fork and exit. Both ends are this
 * process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

#include "cm.h"

enum {
	TAKERS = 4,
	IDS = 40,
	TIMEOUT_MS = 1000,
	SHORT_US = 20000,
	ROUNDS = 200,
	TOGGLES = 4,
	SPIN = 200
};

static struct rdma_cm_id *make(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

static struct rdma_cm_id *listen_on(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id = make(ch);

	assert_int_equal(rdma_bind_addr(id, local(0)), 0);
	assert_int_equal(rdma_listen(id, 0), 0);
	return id;
}

static void begin_resolving(struct rdma_cm_id *id)
{
	assert_int_equal(rdma_resolve_addr(id, NULL, local(7471), TIMEOUT_MS), 0);
}

__attribute__((unused)) /* where a sanitizer has its users left out */
static void *wait_for_event(void *arg)
{
	struct rdma_cm_event *event;

	(void)rdma_get_cm_event(arg, &event);
	return NULL;
}

/* ---- one channel, many threads --------------------------------------------------------------- */

static int taken; /* atomic */

static void *take_some(void *arg)
{
	struct rdma_cm_event *event;

	while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < IDS) {
		if (rdma_get_cm_event(arg, &event) != 0)
			return NULL;
		if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
			__atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
		rdma_ack_cm_event(event);
	}
	return arg;
}

/* Each event is taken by one of the threads that wait. */
static void rdma_get_cm_event__serves_many_threads(void **state)
{
	struct rdma_cm_id *ids[IDS + TAKERS];
	pthread_t threads[TAKERS];

	taken = 0;
	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_some, channel), 0);
	for (int i = 0; i < IDS; i++) {
		ids[i] = make(channel);
		begin_resolving(ids[i]);
	}
	for (int i = 0; i < 500 && __atomic_load_n(&taken, __ATOMIC_RELAXED) < IDS; i++)
		usleep(SHORT_US);
	assert_int_equal(__atomic_load_n(&taken, __ATOMIC_RELAXED), IDS);
	for (int i = IDS; i < IDS + TAKERS; i++) { /* lets each thread see that it is over */
		ids[i] = make(channel);
		begin_resolving(ids[i]);
	}
	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < IDS + TAKERS; i++)
		assert_int_equal(rdma_destroy_id(ids[i]), 0);
}

/* ---- calls that wait for acknowledgements ---------------------------------------------------- */

struct waiter {
	struct rdma_cm_id *id;
	struct rdma_event_channel *to;
	int done; /* atomic */
};

static void *wait_to_destroy(void *arg)
{
	struct waiter *w = arg;

	rdma_destroy_id(w->id);
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *wait_to_migrate(void *arg)
{
	struct waiter *w = arg;

	rdma_migrate_id(w->id, w->to);
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void waits_for_acknowledgement(struct waiter *w, void *(*wait)(void *))
{
	struct rdma_cm_event *event;
	pthread_t thread;

	begin_resolving(w->id);
	event = event_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(pthread_create(&thread, NULL, wait, w), 0);
	usleep(SHORT_US);
	assert_int_equal(__atomic_load_n(&w->done, __ATOMIC_ACQUIRE), 0);
	rdma_ack_cm_event(event);
	pthread_join(thread, NULL);
	assert_int_equal(w->done, 1);
}

static void rdma_destroy_id__waits_for_acknowledgements(void **state)
{
	struct waiter w = { .id = make(channel) };

	waits_for_acknowledgement(&w, wait_to_destroy);
}

/* Its connection ends behind that, so a thread that handles an event may call for the id. */
static void rdma_destroy_id__waits_for_calls_of_an_events_taker(void **state)
{
	struct waiter w = { .id = make(channel) };
	struct rdma_cm_event *event;
	pthread_t thread;

	begin_resolving(w.id);
	event = event_of(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(pthread_create(&thread, NULL, wait_to_destroy, &w), 0);
	usleep(SHORT_US);
	assert_int_equal(rdma_resolve_route(event->id, TIMEOUT_MS), 0);
	rdma_ack_cm_event(event);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	fails(rdma_get_cm_event(channel, &event), EAGAIN);
}

/* After rdma_migrate_id nobody handles an event of the id on the old channel. */
static void rdma_migrate_id__waits_for_acknowledgements(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct waiter w = { .id = make(channel), .to = other };

	waits_for_acknowledgement(&w, wait_to_migrate);
	assert_ptr_equal(w.id->channel, other);
	assert_int_equal(rdma_resolve_route(w.id, TIMEOUT_MS), 0);
	rdma_ack_cm_event(event_of(other, RDMA_CM_EVENT_ROUTE_RESOLVED));
	assert_int_equal(rdma_destroy_id(w.id), 0);
	rdma_destroy_event_channel(other);
}

/* An id destroyed while a thread waits on its channel: the thread goes on waiting for others. */
static void rdma_destroy_id__leaves_waiting_threads_alone(void **state)
{
	struct rdma_cm_id *id = make(channel), *last[TAKERS];
	pthread_t threads[TAKERS];

	taken = IDS - 1;
	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_some, channel), 0);
	usleep(SHORT_US);
	assert_int_equal(rdma_destroy_id(id), 0);
	for (int i = 0; i < TAKERS; i++) {
		last[i] = make(channel);
		begin_resolving(last[i]);
	}
	for (int i = 0; i < TAKERS; i++) {
		void *result;

		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_ptr_equal(result, channel);
	}
	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(rdma_destroy_id(last[i]), 0);
}

static int stop; /* atomic */

static void *take_until_told(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct rdma_cm_id *request;

	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
		if (poll(&p, 1, 10) != 1 || rdma_get_cm_event(ch, &event) != 0)
			continue;
		request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
		rdma_ack_cm_event(event);
		if (request == NULL)
			continue;
		rdma_reject(request, NULL, 0);
		rdma_destroy_id(request);
	}
	return NULL;
}

/* A listener that moves to and fro while requests come: none is lost. */
static void rdma_migrate_id__races_with_events(void **state)
{
	struct rdma_event_channel *chs[2] = { rdma_create_event_channel(),
					      rdma_create_event_channel() };
	struct rdma_cm_id *listener = listen_on(chs[0]), *id;
	struct rdma_conn_param param = { .qp_num = 5, .retry_count = 7 };
	pthread_t threads[2];

	stop = 0;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_until_told, chs[i]), 0);
	for (int i = 0; i < ROUNDS / 4; i++) {
		id = make(channel);
		resolve(id, ntohs(rdma_get_src_port(listener)));
		assert_int_equal(rdma_connect(id, &param), 0);
		assert_int_equal(rdma_migrate_id(listener, chs[(i + 1) % 2]), 0);
		rdma_ack_cm_event(event_of(channel, RDMA_CM_EVENT_REJECTED));
		assert_int_equal(rdma_destroy_id(id), 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(chs[0]);
	rdma_destroy_event_channel(chs[1]);
}

/* ---- the id's queue pair --------------------------------------------------------------------- */

/* Takes the peer's answer, by which the queue pair goes through its states. */
static void *take_answer(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *event;

	__atomic_store_n(&taken, 1, __ATOMIC_RELEASE);
	if (rdma_get_cm_event(ch, &event) != 0)
		return NULL;
	rdma_ack_cm_event(event);
	return arg;
}

static struct rdma_cm_id *connect_with_qp(struct rdma_cm_id *listener)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id = make(channel);

	resolve(id, ntohs(rdma_get_src_port(listener)));
	make_qp(id);
	assert_int_equal(rdma_connect(id, &param), 0);
	return id;
}

/* A program gives a queue pair up while another thread takes the answer: at each moment of that. */
static void rdma_destroy_qp__races_with_the_answer(void **state)
{
	struct rdma_event_channel *servers = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(servers);
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_conn_param param = { .qp_num = 8 };
	struct rdma_cm_event *event;
	pthread_t thread;
	void *result;

	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id = connect_with_qp(listener), *server;

		event = event_of(servers, RDMA_CM_EVENT_CONNECT_REQUEST);
		server = event->id;
		rdma_ack_cm_event(event);
		assert_int_equal(rdma_accept(server, &param), 0);
		assert_int_equal(poll(&p, 1, EVENT_MS), 1);
		taken = 0;
		assert_int_equal(pthread_create(&thread, NULL, take_answer, channel), 0);
		while (__atomic_load_n(&taken, __ATOMIC_ACQUIRE) == 0)
			;
		for (volatile int spin = i * SPIN; spin > 0; spin--)
			;
		rdma_destroy_qp(id);
		assert_null(id->qp);
		assert_int_equal(pthread_join(thread, &result), 0);
		assert_ptr_equal(result, channel);
		assert_int_equal(rdma_destroy_id(id), 0);
		assert_int_equal(rdma_destroy_id(server), 0);
	}
	assert_int_equal(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(servers);
}

/* ---- signals and cancellation ---------------------------------------------------------------- */

static int signals; /* atomic */

static void on_signal(int sig)
{
	__atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
}

struct sender {
	pthread_t to;
	struct rdma_cm_id *id; /* after some signals; NULL: goes on until `stop` */
};

static void *send_signals(void *arg)
{
	struct sender *s = arg;

	while (s->id != NULL ? __atomic_load_n(&signals, __ATOMIC_RELAXED) < 3
				  : __atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
		usleep(5000);
		pthread_kill(s->to, SIGUSR1);
	}
	if (s->id != NULL)
		begin_resolving(s->id);
	return NULL;
}

static void handle_signals(int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };

	signals = stop = 0;
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

static void rdma_get_cm_event__follows_sa_restart(void **state)
{
	struct sender s = { .to = pthread_self() };
	struct rdma_cm_event *event;
	pthread_t thread;

	handle_signals(0);
	pthread_create(&thread, NULL, send_signals, &s);
	fails(rdma_get_cm_event(channel, &event), EINTR);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
#ifndef __SANITIZE_THREAD__ /* its runtime runs no handler during a bare system call */
	handle_signals(SA_RESTART);
	s.id = make(channel);
	pthread_create(&thread, NULL, send_signals, &s);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_ptr_equal(event->id, s.id);
	assert_true(__atomic_load_n(&signals, __ATOMIC_RELAXED) >= 3);
	pthread_join(thread, NULL);
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_destroy_id(s.id), 0);
#endif
}

/* A synchronous call is its request and a wait: the wait ends as that of rdma_get_cm_event. */
static void rdma_connect__is_interrupted_while_it_waits(void **state)
{
	struct rdma_cm_id *listener = listen_on(channel), *id = make(NULL);
	struct rdma_conn_param param = { .qp_num = 5, .retry_count = 7 };
	struct sender s = { .to = pthread_self() };
	pthread_t thread;
	int port = ntohs(rdma_get_src_port(listener));

	handle_signals(0);
	assert_int_equal(rdma_resolve_addr(id, NULL, local(port), TIMEOUT_MS), 0);
	assert_int_equal(rdma_resolve_route(id, TIMEOUT_MS), 0);
	pthread_create(&thread, NULL, send_signals, &s);
	fails(rdma_connect(id, &param), EINTR); /* nobody answers */
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_destroy_id(listener), 0);
}

#ifndef __SANITIZE_ADDRESS__ /* its runtime finds the frames that unwinding has left poisoned */
static void rdma_get_cm_event__may_be_cancelled(void **state)
{
	struct rdma_cm_id *id = make(channel);
	pthread_t threads[TAKERS];
	void *result;

	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for_event, channel), 0);
	usleep(SHORT_US);
	for (int i = 0; i < TAKERS; i++) {
		assert_int_equal(pthread_cancel(threads[i]), 0);
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_ptr_equal(result, PTHREAD_CANCELED);
	}
	begin_resolving(id); /* nothing of the channel was left locked, and the event is not lost */
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

#endif

/* ---- the channel's descriptor ---------------------------------------------------------------- */

static void rdma_event_channel__works_with_epoll(void **state)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	struct rdma_cm_id *ids[3];
	struct rdma_cm_event *event;
	int ep = epoll_create1(0), got = 0;

	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, channel->fd, &ev), 0);
	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
	for (int i = 0; i < 3; i++) {
		ids[i] = make(channel);
		begin_resolving(ids[i]);
	}
	while (got < 3) { /* an edge for each event; one wait may see several */
		assert_int_equal(epoll_wait(ep, &ev, 1, EVENT_MS), 1);
		while (rdma_get_cm_event(channel, &event) == 0) {
			rdma_ack_cm_event(event);
			got++;
		}
		assert_int_equal(errno, EAGAIN);
	}
	assert_int_equal(got, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rdma_destroy_id(ids[i]), 0);
	close(ep);
}

/* Whoever closes the descriptor has no channel any more. */
static void rdma_event_channel__whose_descriptor_was_closed(void **state)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = make(ch);
	struct rdma_cm_event *event;

	close(ch->fd);
	fails(rdma_get_cm_event(ch, &event), EBADF);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

/* ---- fork and exit --------------------------------------------------------------------------- */

/* ThreadSanitizer starts no thread in the child of such a fork, and to LeakSanitizer what a child
 * drops of its parent's is lost. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static struct rdma_cm_id *connected[2];

static void connect_ends(void)
{
	struct rdma_conn_param param = { .qp_num = 6, .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *listener = listen_on(channel), *id = make(channel);
	struct rdma_cm_event *event;

	resolve(id, ntohs(rdma_get_src_port(listener)));
	assert_int_equal(rdma_connect(id, &param), 0);
	event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	connected[0] = id;
	connected[1] = event->id;
	rdma_ack_cm_event(event);
	param.qp_num = 7;
	assert_int_equal(rdma_accept(connected[1], &param), 0);
	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, id);
	assert_int_equal(rdma_establish(id), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, connected[1]);
	assert_int_equal(rdma_destroy_id(listener), 0);
}

static void disconnect_ends(void)
{
	assert_int_equal(rdma_disconnect(connected[0]), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, connected[1]);
	assert_int_equal(rdma_disconnect(connected[1]), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, connected[0]);
	assert_int_equal(rdma_destroy_id(connected[0]), 0);
	assert_int_equal(rdma_destroy_id(connected[1]), 0);
}

/* In a child: ids of its own work; those of the parent are not its. */
static int child_resolves(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (ch == NULL || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) != 0)
		return 1;
	if (rdma_resolve_addr(id, NULL, local(7471), TIMEOUT_MS) != 0)
		return 2;
	if (rdma_get_cm_event(ch, &event) != 0 || event->event != RDMA_CM_EVENT_ADDR_RESOLVED)
		return 3;
	return 0; /* and leaves them to exit() */
}

static void fork__leaves_the_parents_connection_alone(void **state)
{
	int status, quick;
	pid_t pid;

	connect_ends();
	for (quick = 0; quick < 2; quick++) {
		pid = fork();
		if (pid == 0) {
			alarm(20);
			if (quick)
				exit(0);
			exit(child_resolves());
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	disconnect_ends();
}

/* Each call on an id of the parent fails at once and alike; the id can be destroyed. */
static int child_uses_its_parents(void)
{
	struct rdma_conn_param param = { .qp_num = 6 };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;

	if (ch == NULL || rdma_migrate_id(connected[1], ch) != -1 || errno != EINVAL)
		return 1;
	if (rdma_accept(connected[1], &param) != -1 || errno != EINVAL)
		return 2;
	if (rdma_init_qp_attr(connected[1], &attr, &mask) != -1 || errno != EINVAL)
		return 3;
	return rdma_destroy_id(connected[1]) == 0 ? 0 : 4;
}

static void fork__gives_no_ids(void **state)
{
	char said[512] = "";
	int status, err[2];
	pid_t pid;

	connect_ends();
	assert_int_equal(pipe(err), 0);
	pid = fork();
	if (pid == 0) {
		alarm(20);
		dup2(err[1], STDERR_FILENO);
		_exit(child_uses_its_parents());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(err[1]);
	assert_true(read(err[0], said, sizeof(said) - 1) > 0);
	close(err[0]);
	assert_non_null(strstr(said, "an id of the parent process"));
	assert_null(strstr(strstr(said, "an id of") + 1, "an id of"));
	disconnect_ends();
}

/* A process may end with ids in every state and a thread that waits for events. */
static void exit__ends_a_process_that_waits_for_events(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct rdma_cm_id *id;
		pthread_t thread;

		alarm(20);
		if (ch == NULL || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) != 0 ||
		    rdma_bind_addr(id, local(0)) != 0 || rdma_listen(id, 0) != 0 ||
		    pthread_create(&thread, NULL, wait_for_event, ch) != 0)
			exit(1);
		usleep(SHORT_US);
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#endif

/* ---- a device that goes while its ids are used ----------------------------------------------- */

static void device_command(const char *verb)
{
	char line[sizeof(ANYVERBS) + 64];

	snprintf(line, sizeof(line), ANYVERBS " device %s roce1 >/dev/null", verb);
	assert_int_equal(system(line), 0);
}

static int find_address(struct sockaddr_in *sin)
{
	struct ibv_context **list = rdma_get_devices(NULL);
	union ibv_gid gid;
	int found = -1;

	for (int i = 0; list != NULL && list[i] != NULL; i++) {
		if (strcmp(ibv_get_device_name(list[i]->device), "roce1") != 0 ||
		    ibv_query_gid(list[i], 1, 1, &gid) != 0 || gid.raw[10] != 0xff)
			continue;
		*sin = (struct sockaddr_in){ .sin_family = AF_INET };
		memcpy(&sin->sin_addr, gid.raw + 12, 4);
		found = 0;
	}
	if (list != NULL)
		rdma_free_devices(list);
	return found;
}

/* Whatever the calls answer: they find the device, or that it has gone. */
static void *use_the_device(void *arg)
{
	struct rdma_conn_param param = { .qp_num = 5, .retry_count = 7 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in sin;
	struct rdma_cm_id *id;
	int mask;

	while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
		if (find_address(&sin) != 0 || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) != 0) {
			usleep(1000);
			continue;
		}
		(void)rdma_bind_addr(id, (struct sockaddr *)&sin);
		(void)rdma_init_qp_attr(id, &attr, &mask);
		(void)rdma_resolve_addr(id, NULL, (struct sockaddr *)&sin, TIMEOUT_MS);
		usleep(1000);
		(void)rdma_resolve_route(id, TIMEOUT_MS);
		usleep(1000);
		(void)rdma_connect(id, &param);
		(void)rdma_disconnect(id);
		(void)rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(ch);
	return NULL;
}

static void rdma_calls__race_with_a_device_that_goes(void **state)
{
	pthread_t threads[TAKERS];

	stop = 0;
	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_the_device, NULL), 0);
	for (int i = 0; i < TOGGLES; i++) {
		usleep(100000);
		device_command(i % 2 == 0 ? "remove" : "add");
	}
	usleep(100000);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rdma_get_cm_event__serves_many_threads, begin, end),
		cmocka_unit_test_setup_teardown(rdma_destroy_id__waits_for_acknowledgements, begin,
						end),
		cmocka_unit_test_setup_teardown(
			rdma_destroy_id__waits_for_calls_of_an_events_taker, begin, end),
		cmocka_unit_test_setup_teardown(rdma_migrate_id__waits_for_acknowledgements, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_destroy_id__leaves_waiting_threads_alone,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_migrate_id__races_with_events, begin, end),
		cmocka_unit_test_setup_teardown(rdma_destroy_qp__races_with_the_answer, begin, end),
		cmocka_unit_test_setup_teardown(rdma_get_cm_event__follows_sa_restart, begin, end),
		cmocka_unit_test_setup_teardown(rdma_connect__is_interrupted_while_it_waits, begin,
						end),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test_setup_teardown(rdma_get_cm_event__may_be_cancelled, begin, end),
#endif
		cmocka_unit_test_setup_teardown(rdma_event_channel__works_with_epoll, begin, end),
		cmocka_unit_test(rdma_event_channel__whose_descriptor_was_closed),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
		cmocka_unit_test_setup_teardown(fork__gives_no_ids, begin, end),
		cmocka_unit_test_setup_teardown(fork__leaves_the_parents_connection_alone, begin,
						end),
		cmocka_unit_test_setup_teardown(exit__ends_a_process_that_waits_for_events, begin,
						end),
#endif
		cmocka_unit_test_setup_teardown(rdma_calls__race_with_a_device_that_goes, begin,
						end),
	};

	setenv("ANYVERBS_LOG", "warn", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
