/* repoll_test.c: repoll_create, repoll_ctl, repoll_wait as epoll's calls are described: level, edge
 * and one shot, over rsockets and ordinary descriptors, changed while a thread waits.
 * In: calls      Out: verdicts      Runs: the test's thread and one that waits
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "pair.h"

/* Newer than the header. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

enum { NOW = 0, SOON_MS = 50 };

static const uint64_t MARK = 0x123456789abc0000; /* data of events: this and the number */

static int new_set(void)
{
	int set = repoll_create(EPOLL_CLOEXEC);

	assert_true(set >= 0);
	assert_int_equal(fcntl(set, F_GETFD), FD_CLOEXEC);
	return set;
}

static void control(int set, int op, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = MARK + (uint32_t)fd };

	assert_int_equal(repoll_ctl(set, op, fd, &e), 0);
}

static void add(int set, int fd, uint32_t events)
{
	control(set, EPOLL_CTL_ADD, fd, events);
}

/* The events of `fd`, the only one that is ready; 0: none is. */
static uint32_t one(int set, int fd, int timeout_ms)
{
	struct epoll_event e[2] = { 0 };
	int n = repoll_wait(set, e, 2, timeout_ms);

	assert_in_range(n, 0, 1);
	if (n == 1)
		assert_int_equal(e[0].data.u64, MARK + (uint32_t)fd);
	return n == 1 ? e[0].events : 0;
}

static void say(int fd, const char *text)
{
	assert_int_equal(rsend(fd, text, strlen(text), 0), strlen(text));
}

static void hear(int fd, const char *text)
{
	char got[100];

	assert_int_equal(rrecv(fd, got, strlen(text), MSG_WAITALL), strlen(text));
	assert_memory_equal(got, text, strlen(text));
}

/* Until there is nothing more. */
static void drain(int fd)
{
	static char bytes[65536];

	while (rrecv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(errno, EAGAIN);
}

static void repoll_wait__level(void **state)
{
	int set = new_set();
	struct pair p;

	make_pair(&p);
	add(set, p.client, EPOLLIN);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	say(p.server, "a");
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	control(set, EPOLL_CTL_MOD, p.client, EPOLLIN | EPOLLOUT);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN | EPOLLOUT);
	hear(p.client, "a");
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLOUT);
	control(set, EPOLL_CTL_MOD, p.client, EPOLLIN | EPOLLRDHUP);
	assert_int_equal(one(set, p.client, NOW), 0);
	assert_int_equal(rshutdown(p.server, SHUT_WR), 0);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN | EPOLLRDHUP);
	assert_int_equal(repoll_ctl(set, EPOLL_CTL_DEL, p.client, NULL), 0);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	end_pair(&p);
	assert_int_equal(rclose(set), 0);
}

static void repoll_wait__edge_in(void **state)
{
	int set = new_set();
	struct pair p;

	make_pair(&p);
	say(p.server, "a");
	add(set, p.client, EPOLLIN | EPOLLET);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	say(p.server, "b"); /* what arrives is an edge, though "a" has not been read */
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	hear(p.client, "ab");
	drain(p.client);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	say(p.server, "c");
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	/* what holds is told again after a change of what the set waits for */
	control(set, EPOLL_CTL_MOD, p.client, EPOLLIN | EPOLLET);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	assert_int_equal(rclose(p.server), 0); /* an end is an edge, too */
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	p.server = rsocket(AF_INET, SOCK_STREAM, 0);
	end_pair(&p);
	assert_int_equal(rclose(set), 0);
}

/* Until the peer must read first. */
static void fill(int fd)
{
	static char bytes[65536];

	do {
		while (rsend(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			;
		assert_int_equal(errno, EAGAIN);
	} while (ready(fd, POLLOUT, SOON_MS) != 0);
	assert_int_equal(rsend(fd, bytes, 1, MSG_DONTWAIT), -1);
}

static void repoll_wait__edge_out(void **state)
{
	int set = new_set();
	struct pair p;

	make_pair(&p);
	add(set, p.client, EPOLLOUT | EPOLLET);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLOUT);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	for (int round = 0; round < 3; round++) {
		fill(p.client);
		assert_int_equal(one(set, p.client, SOON_MS), 0);
		do
			drain(p.server);
		while (ready(p.client, POLLOUT, 1) == 0);
		assert_int_equal(one(set, p.client, WAIT_MS), EPOLLOUT);
		assert_int_equal(one(set, p.client, SOON_MS), 0);
	}
	end_pair(&p);
	assert_int_equal(rclose(set), 0);
}

static void repoll_wait__one_shot(void **state)
{
	int set = new_set();
	struct pair p;

	make_pair(&p);
	add(set, p.client, EPOLLIN | EPOLLONESHOT);
	say(p.server, "a");
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	say(p.server, "b");
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	control(set, EPOLL_CTL_MOD, p.client, EPOLLIN | EPOLLONESHOT);
	assert_int_equal(one(set, p.client, WAIT_MS), EPOLLIN);
	assert_int_equal(one(set, p.client, SOON_MS), 0);
	end_pair(&p);
	assert_int_equal(rclose(set), 0);
}

static int connect_more(struct pair *p)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&p->addr, sizeof(p->addr)), -1);
	assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static void repoll_wait__listener(void **state)
{
	static const uint32_t kinds[] = { EPOLLIN, EPOLLIN | EPOLLET };
	struct pair p;

	make_pair(&p);
	assert_int_equal(rfcntl(p.listener, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < 2; i++) {
		int set = new_set(), clients = new_set(), client, server;

		add(set, p.listener, kinds[i]);
		assert_int_equal(one(set, p.listener, SOON_MS), 0);
		for (int round = 0; round < 3; round++) {
			client = connect_more(&p);
			add(clients, client, EPOLLOUT);
			assert_int_equal(one(set, p.listener, WAIT_MS), EPOLLIN);
			if (i == 1)
				assert_int_equal(one(set, p.listener, SOON_MS), 0);
			server = raccept(p.listener, NULL, NULL);
			assert_true(server >= 0);
			assert_int_equal(raccept(p.listener, NULL, NULL), -1);
			assert_int_equal(errno, EAGAIN);
			assert_int_equal(one(clients, client, WAIT_MS), EPOLLOUT);
			assert_int_equal(rclose(server), 0);
			assert_int_equal(rclose(client), 0);
		}
		assert_int_equal(rclose(set), 0);
		assert_int_equal(rclose(clients), 0);
	}
	end_pair(&p);
}

static void repoll_wait__ordinary_descriptors(void **state)
{
	int set = new_set(), ends[2];
	struct epoll_event e[4];
	struct pair p;

	make_pair(&p);
	assert_int_equal(pipe(ends), 0);
	add(set, ends[0], EPOLLIN);
	assert_int_equal(one(set, ends[0], SOON_MS), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(one(set, ends[0], WAIT_MS), EPOLLIN);
	add(set, p.client, EPOLLOUT);
	assert_int_equal(repoll_wait(set, e, 4, WAIT_MS), 2);
	/* with room for one each has its turn */
	for (int i = 0; i < 2; i++)
		assert_int_equal(repoll_wait(set, &e[i], 1, WAIT_MS), 1);
	assert_true(e[0].data.u64 != e[1].data.u64);
	assert_int_equal(repoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), 0);
	assert_int_equal(one(set, p.client, NOW), EPOLLOUT);
	close(ends[0]);
	close(ends[1]);
	end_pair(&p);
	assert_int_equal(rclose(set), 0);
}

static void repoll_ctl__errors(void **state)
{
	struct epoll_event e = { .events = EPOLLIN };
	int set = new_set(), other = new_set(), fd = rsocket(AF_INET, SOCK_STREAM, 0);
	int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

	fails(repoll_ctl(-1, EPOLL_CTL_ADD, fd, &e), EBADF);
	fails(repoll_ctl(9999, EPOLL_CTL_ADD, fd, &e), EBADF);
	fails(repoll_ctl(set, EPOLL_CTL_ADD, 9999, &e), EBADF);
	fails(repoll_ctl(fd, EPOLL_CTL_ADD, fd, &e), EINVAL);
	fails(repoll_ctl(0, EPOLL_CTL_ADD, fd, &e), EINVAL);
	fails(repoll_ctl(set, EPOLL_CTL_ADD, set, &e), EINVAL);
	fails(repoll_ctl(set, EPOLL_CTL_ADD, other, &e), ELOOP);
	fails(repoll_ctl(set, EPOLL_CTL_ADD, file, &e), EPERM);
	fails(repoll_ctl(set, 17, fd, &e), EINVAL);
	fails(repoll_ctl(set, EPOLL_CTL_ADD, fd, NULL), EFAULT);
	fails(repoll_ctl(set, EPOLL_CTL_MOD, fd, &e), ENOENT);
	fails(repoll_ctl(set, EPOLL_CTL_DEL, fd, NULL), ENOENT);
	assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, fd, &e), 0);
	fails(repoll_ctl(set, EPOLL_CTL_ADD, fd, &e), EEXIST);
	fails(repoll_wait(fd, &e, 1, 0), EINVAL);
	fails(repoll_wait(9999, &e, 1, 0), EBADF);
	fails(repoll_wait(set, &e, 0, 0), EINVAL);
	fails(repoll_wait(set, &e, -1, 0), EINVAL);
	fails(repoll_wait(set, NULL, 1, WAIT_MS), EFAULT);
	fails(repoll_create(12345), EINVAL);
	fails((int)rsend(set, "a", 1, 0), EOPNOTSUPP);
	assert_true(ready(set, POLLIN, 0) == POLLNVAL);
	close(file);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(set), 0);
	assert_int_equal(rclose(other), 0);
	fails(rclose(set), EBADF);
}

/* The next rsocket gets the number of the one that was closed, although the library's own thread
 * takes the events of the connection that ends. */
static void repoll_wait__forgets_the_closed(void **state)
{
	int set = new_set(), client;
	struct pair p;

	for (int i = 0; i < 30; i++) {
		make_pair(&p);
		add(set, p.client, EPOLLOUT);
		assert_int_equal(one(set, p.client, WAIT_MS), EPOLLOUT);
		client = p.client;
		assert_int_equal(rclose(p.client), 0);
		p.client = rsocket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(p.client, client);
		assert_int_equal(one(set, p.client, i == 0 ? SOON_MS : NOW), 0);
		add(set, p.client, EPOLLOUT);
		assert_int_equal(one(set, p.client, WAIT_MS), EPOLLOUT | EPOLLHUP);
		end_pair(&p);
	}
	assert_int_equal(rclose(set), 0);
}

struct wait {
	int set, n, error;
	struct epoll_event e;
};

static void *wait_there(void *arg)
{
	struct wait *w = arg;

	w->n = repoll_wait(w->set, &w->e, 1, WAIT_MS);
	w->error = errno;
	return NULL;
}

static void start(struct wait *w, pthread_t *thread)
{
	struct timespec soon = { .tv_nsec = SOON_MS * 1000000 };

	assert_int_equal(pthread_create(thread, NULL, wait_there, w), 0);
	nanosleep(&soon, NULL);
}

static void repoll_ctl__while_a_thread_waits(void **state)
{
	struct wait w = { .set = new_set() };
	pthread_t thread;
	struct pair p;

	make_pair(&p);
	start(&w, &thread);
	add(w.set, p.client, EPOLLOUT);
	pthread_join(thread, NULL);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.e.events, EPOLLOUT);
	control(w.set, EPOLL_CTL_MOD, p.client, EPOLLIN);
	start(&w, &thread);
	control(w.set, EPOLL_CTL_MOD, p.client, EPOLLOUT);
	pthread_join(thread, NULL);
	assert_int_equal(w.n, 1);
	control(w.set, EPOLL_CTL_MOD, p.client, EPOLLIN);
	start(&w, &thread);
	say(p.server, "a");
	pthread_join(thread, NULL);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.e.events, EPOLLIN);
	hear(p.client, "a");
	start(&w, &thread);
	assert_int_equal(rclose(w.set), 0);
	pthread_join(thread, NULL);
	assert_int_equal(w.n, -1);
	assert_int_equal(w.error, EBADF);
	end_pair(&p);
}

static void ignore(int sig)
{
}

static void repoll_wait__times_out_and_is_interrupted(void **state)
{
	struct sigaction action = { .sa_handler = ignore, .sa_flags = SA_RESTART };
	struct wait w = { .set = new_set() };
	struct timespec from, to;
	pthread_t thread;
	struct pair p;

	make_pair(&p);
	add(w.set, p.client, EPOLLIN);
	clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(repoll_wait(w.set, &w.e, 1, SOON_MS), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	assert_true((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 >=
		    SOON_MS - 1);
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	start(&w, &thread);
	/* a signal before the thread waits is lost */
	while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
		pthread_kill(thread, SIGUSR1);
		usleep(1000);
	}
	assert_int_equal(w.n, -1);
	assert_int_equal(w.error, EINTR);
	end_pair(&p);
	assert_int_equal(rclose(w.set), 0);
}

/* Fewer places than are ready: each has its turn. */
static void repoll_wait__gives_all_a_turn(void **state)
{
	enum { PAIRS = 20, PLACES = 3 };
	struct epoll_event e[PLACES];
	struct pair p[PAIRS];
	int set = new_set(), seen = 0;

	for (int i = 0; i < PAIRS; i++) {
		struct epoll_event want = { .events = EPOLLOUT, .data.u32 = (uint32_t)i };

		make_pair(&p[i]);
		assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, p[i].client, &want), 0);
	}
	for (int i = 0; i < (PAIRS + PLACES - 1) / PLACES; i++) {
		assert_int_equal(repoll_wait(set, e, PLACES, WAIT_MS), PLACES);
		for (int j = 0; j < PLACES; j++)
			seen |= 1 << e[j].data.u32;
	}
	assert_int_equal(seen, (1 << PAIRS) - 1);
	for (int i = 0; i < PAIRS; i++)
		end_pair(&p[i]);
	assert_int_equal(rclose(set), 0);
}

static void repoll_wait__datagrams(void **state)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int set = new_set(), from = rsocket(AF_INET, SOCK_DGRAM, 0);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(to);
	char byte;

	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	assert_int_equal(rbind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)&to, &len), 0);
	add(set, fd, EPOLLIN | EPOLLET);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rsendto(from, "a", 1, 0, (struct sockaddr *)&to, len), 1);
		assert_int_equal(one(set, fd, WAIT_MS), EPOLLIN);
		assert_int_equal(one(set, fd, SOON_MS), 0);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(rrecv(fd, &byte, 1, 0), 1);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(from), 0);
	assert_int_equal(rclose(set), 0);
}

static void repoll__in_a_child(void **state)
{
	struct epoll_event e;
	int set = new_set(), status;
	pid_t child = fork();

	if (child == 0) {
		int mine = repoll_create(0), bad = mine < 0;

		bad |= repoll_wait(set, &e, 1, 0) != -1 || rclose(set) != 0;
		bad |= fcntl(set, F_GETFD) != -1;
		bad |= repoll_wait(mine, &e, 1, 0) != 0 || rclose(mine) != 0;
		_exit(bad);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(repoll_wait(set, &e, 1, 0), 0);
	assert_int_equal(rclose(set), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(repoll_wait__level),
		cmocka_unit_test(repoll_wait__edge_in),
		cmocka_unit_test(repoll_wait__edge_out),
		cmocka_unit_test(repoll_wait__one_shot),
		cmocka_unit_test(repoll_wait__listener),
		cmocka_unit_test(repoll_wait__ordinary_descriptors),
		cmocka_unit_test(repoll_ctl__errors),
		cmocka_unit_test(repoll_wait__forgets_the_closed),
		cmocka_unit_test(repoll_ctl__while_a_thread_waits),
		cmocka_unit_test(repoll_wait__times_out_and_is_interrupted),
		cmocka_unit_test(repoll_wait__gives_all_a_turn),
		cmocka_unit_test(repoll_wait__datagrams),
		cmocka_unit_test(repoll__in_a_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
