/* outsider.c: programs by one who knows rsockets from rsocket(7) alone, which says that they behave
 * as the socket calls of those names. Each runs with the kernel's sockets or with rsockets, and
 * prints what it sees; outsider_test.py compares. Not in them: the differences that
 * docs/rsockets.md names.
 * usage: outsider tcp|rdma PROGRAM
 * In:    the name of a program      Out: a trace without anything that may differ from run to run
 * Runs:  processes and threads of each program's own
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

/* ---- the two kinds of sockets ---------------------------------------------------------------- */

static const struct calls {
	const char *name;
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int s, const struct sockaddr *addr, socklen_t len);
	int (*listen)(int s, int backlog);
	int (*accept)(int s, struct sockaddr *addr, socklen_t *len);
	int (*connect)(int s, const struct sockaddr *addr, socklen_t len);
	int (*shutdown)(int s, int how);
	int (*close)(int s);
	ssize_t (*recv)(int s, void *buf, size_t len, int flags);
	ssize_t (*send)(int s, const void *buf, size_t len, int flags);
	ssize_t (*recvfrom)(int s, void *buf, size_t len, int flags, struct sockaddr *addr,
			    socklen_t *alen);
	ssize_t (*sendto)(int s, const void *buf, size_t len, int flags,
			  const struct sockaddr *addr, socklen_t alen);
	int (*poll)(struct pollfd *fds, nfds_t count, int timeout);
	int (*select)(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout);
	int (*getsockopt)(int s, int level, int name, void *value, socklen_t *len);
	int (*setsockopt)(int s, int level, int name, const void *value, socklen_t len);
	int (*getpeername)(int s, struct sockaddr *addr, socklen_t *len);
	int (*getsockname)(int s, struct sockaddr *addr, socklen_t *len);
	int (*fcntl)(int s, int cmd, ...);
} kinds[] = {
	{ "tcp", socket, bind, listen, accept, connect, shutdown, close, recv, send, recvfrom,
	  sendto, poll, select, getsockopt, setsockopt, getpeername, getsockname, fcntl },
	{ "rdma", rsocket, rbind, rlisten, raccept, rconnect, rshutdown, rclose, rrecv, rsend,
	  rrecvfrom, rsendto, rpoll, rselect, rgetsockopt, rsetsockopt, rgetpeername,
	  rgetsockname, rfcntl },
};
static const struct calls *s_;

static struct sockaddr_in address; /* of the listener */

/* ---- saying ---------------------------------------------------------------------------------- */

static void say(const char *what, long n)
{
	int error = errno;

	if (n >= 0)
		printf("%s: %ld\n", what, n);
	else
		printf("%s: %s\n", what, strerrorname_np(error));
	fflush(stdout);
}

static void say_events(const char *what, short revents)
{
	static const struct {
		short bit;
		const char *name;
	} bits[] = { { POLLIN, " IN" },	  { POLLOUT, " OUT" },	   { POLLERR, " ERR" },
		     { POLLHUP, " HUP" }, { POLLRDHUP, " RDHUP" }, { POLLNVAL, " NVAL" } };

	printf("%s:", what);
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if (revents & bits[i].bit)
			printf("%s", bits[i].name);
	printf("\n");
	fflush(stdout);
}

static short ask(int s, short events, int timeout_ms)
{
	struct pollfd p = { .fd = s, .events = events };

	return s_->poll(&p, 1, timeout_ms) < 0 ? -1 : p.revents;
}

/* Until poll says at least one of the events. */
static void await(int s, short events)
{
	while (!(ask(s, events, 1000) & events))
		;
}

static int error_of(int s)
{
	int error = -1;
	socklen_t len = sizeof(error);

	if (s_->getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		return -1;
	errno = error;
	return error != 0 ? -1 : 0;
}

static void nap(int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* ---- the usual beginnings -------------------------------------------------------------------- */

static int listener_at(int port)
{
	socklen_t len = sizeof(address);
	int s = s_->socket(AF_INET, SOCK_STREAM, 0), on = 1;

	s_->setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	address = (struct sockaddr_in){ .sin_family = AF_INET,
					.sin_port = htons((uint16_t)port),
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (s_->bind(s, (struct sockaddr *)&address, sizeof(address)) != 0)
		say("bind", -1);
	if (s_->listen(s, 64) != 0)
		say("listen", -1);
	s_->getsockname(s, (struct sockaddr *)&address, &len);
	return s;
}

static int client(void)
{
	int s = s_->socket(AF_INET, SOCK_STREAM, 0);

	if (s_->connect(s, (struct sockaddr *)&address, sizeof(address)) != 0)
		say("connect", -1);
	return s;
}

static void *accept_one(void *arg)
{
	return (void *)(intptr_t)s_->accept(*(int *)arg, NULL, NULL);
}

/* Both ends are this process', so one thread accepts while the other connects. */
static void make_pair(int fds[2])
{
	int listener = listener_at(0);
	pthread_t thread;
	void *accepted;

	pthread_create(&thread, NULL, accept_one, &listener);
	fds[0] = client();
	pthread_join(thread, &accepted);
	fds[1] = (int)(intptr_t)accepted;
	s_->close(listener);
}

static long send_all(int s, const char *buf, long size)
{
	long done = 0, n = 1;

	while (done < size && n > 0) {
		n = s_->send(s, buf + done, (size_t)(size - done), MSG_NOSIGNAL);
		done += n > 0 ? n : 0;
	}
	return n < 0 ? n : done;
}

static long recv_all(int s, char *buf, long size)
{
	long done = 0, n = 1;

	while (done < size && n > 0) {
		n = s_->recv(s, buf + done, (size_t)(size - done), 0);
		done += n > 0 ? n : 0;
	}
	return n < 0 ? n : done;
}

/* Another process that listens, and runs `program` with what it accepts. Forked before this one
 * uses its sockets. */
static pid_t fork_server(void (*program)(int s))
{
	int ends[2];
	pid_t child;

	if (pipe(ends) != 0)
		exit(1);
	child = fork();
	if (child == 0) {
		int listener = listener_at(0), s;

		if (write(ends[1], &address, sizeof(address)) != sizeof(address))
			_exit(1);
		s = s_->accept(listener, NULL, NULL);
		program(s);
		_exit(0);
	}
	if (read(ends[0], &address, sizeof(address)) != sizeof(address))
		exit(1);
	close(ends[0]);
	close(ends[1]);
	return child;
}

/* ---- connecting to nobody -------------------------------------------------------------------- */

static void nobody(void)
{
	int listener = listener_at(0), s, on = 1;
	struct sockaddr_in six = { .sin_family = AF_INET6 };
	socklen_t len;
	char byte;

	s_->close(listener);
	s = s_->socket(AF_INET, SOCK_STREAM, 0);
	say("a new one's SO_ERROR", error_of(s));
	say_events("a new one", ask(s, POLLIN | POLLOUT, 0));
	say("recv before connect", s_->recv(s, &byte, 1, 0));
	len = sizeof(six);
	say("getpeername", s_->getpeername(s, (struct sockaddr *)&six, &len));
	say("shutdown", s_->shutdown(s, SHUT_RDWR));
	say("accept", s_->accept(s, NULL, NULL));
	say("connect", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	say("SO_ERROR", error_of(s));
	say("connect again", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	say("F_SETFL", s_->fcntl(s, F_SETFL, O_NONBLOCK));
	say("without blocking", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	await(s, POLLOUT);
	say_events("then", ask(s, POLLIN | POLLOUT, 0));
	say("its SO_ERROR", error_of(s));
	say("SO_ERROR again", error_of(s));
	s_->close(s);
	s = s_->socket(AF_INET, SOCK_STREAM, 0);
	s_->fcntl(s, F_SETFL, O_NONBLOCK);
	say("once more", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	await(s, POLLOUT);
	say("connect says it", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	/* now somebody comes */
	listener = s_->socket(AF_INET, SOCK_STREAM, 0);
	s_->setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	say("bind", s_->bind(listener, (struct sockaddr *)&address, sizeof(address)));
	say("listen", s_->listen(listener, 1));
	say("connect to somebody", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	say("accept", s_->accept(listener, NULL, NULL) >= 0);
	await(s, POLLOUT);
	say("SO_ERROR", error_of(s));
	say("first connect", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	say("second connect", s_->connect(s, (struct sockaddr *)&address, sizeof(address)));
	say("listen of a connected one", s_->listen(s, 1));
	say("bind of a connected one", s_->bind(s, (struct sockaddr *)&address, sizeof(address)));
	say("connect of a listener",
	    s_->connect(listener, (struct sockaddr *)&address, sizeof(address)));
	say("recv of a listener", s_->recv(listener, &byte, 1, 0));
	say("send to a listener", s_->send(listener, "x", 1, MSG_NOSIGNAL) < 0);
	s_->close(s);
	s = s_->socket(AF_INET, SOCK_STREAM, 0);
	say("bind in use", s_->bind(s, (struct sockaddr *)&address, sizeof(address)));
	say("a short address", s_->connect(s, (struct sockaddr *)&address, 4));
	say("bind to a foreign address",
	    s_->bind(s,
		     (struct sockaddr *)&(struct sockaddr_in){ .sin_family = AF_INET,
							       .sin_addr.s_addr =
								       htonl(0xc6336401) },
		     sizeof(address)));
	s_->close(s);
	say("closed: recv", s_->recv(s, &byte, 1, 0));
	say("closed: close", s_->close(s));
	say_events("closed: poll", ask(s, POLLIN, 0));
}

/* ---- half-closed ends ------------------------------------------------------------------------ */

enum { HALF = 100000 };

static void half_close(void)
{
	static char buf[HALF];
	struct timeval tv = { .tv_usec = 1000 };
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	fd_set in;
	int p[2];

	make_pair(p);
	say("send", send_all(p[0], buf, HALF));
	say("shutdown", s_->shutdown(p[0], SHUT_WR));
	say("again", s_->shutdown(p[0], SHUT_WR));
	say("send after it", s_->send(p[0], buf, 1, MSG_NOSIGNAL));
	say("recv", recv_all(p[1], buf, HALF));
	say("recv at the end", s_->recv(p[1], buf, HALF, 0));
	say("and again", s_->recv(p[1], buf, HALF, 0));
	say_events("the reader", ask(p[1], POLLIN | POLLOUT | POLLRDHUP, 0));
	say_events("the writer", ask(p[0], POLLIN | POLLOUT | POLLRDHUP, 0));
	FD_ZERO(&in);
	FD_SET(p[1], &in);
	say("select", s_->select(p[1] + 1, &in, NULL, NULL, &tv));
	say("its bit", FD_ISSET(p[1], &in) != 0);
	say("the other way", send_all(p[1], buf, HALF));
	say("recv", recv_all(p[0], buf, HALF));
	say("MSG_DONTWAIT", s_->recv(p[0], buf, HALF, MSG_DONTWAIT));
	say("getpeername", s_->getpeername(p[0], (struct sockaddr *)&name, &len));
	say("close", s_->close(p[1]));
	say("recv", s_->recv(p[0], buf, HALF, 0));
	say_events("closed", ask(p[0], POLLIN | POLLOUT | POLLRDHUP, 1000));
	say("SO_ERROR", error_of(p[0]));
	say("shutdown of both", s_->shutdown(p[0], SHUT_RDWR) == 0 || errno == ENOTCONN);
	say("close", s_->close(p[0]));

	make_pair(p);
	say("shutdown of reading", s_->shutdown(p[0], SHUT_RD));
	say("recv", s_->recv(p[0], buf, 1, 0));
	say_events("reading is shut", ask(p[0], POLLIN | POLLOUT | POLLRDHUP, 0));
	say("send", s_->send(p[0], "x", 1, 0));
	say("recv", s_->recv(p[1], buf, 10, 0));
	say("shutdown -1", s_->shutdown(p[0], -1));
	say("shutdown 3", s_->shutdown(p[0], 3));
	s_->close(p[0]);
	say("the end", s_->recv(p[1], buf, 10, 0));
	s_->close(p[1]);

	/* the peer leaves with its last words unread by this end */
	make_pair(p);
	say("last words", s_->send(p[1], "bye", 3, 0));
	s_->close(p[1]);
	await(p[0], POLLRDHUP);
	say_events("left", ask(p[0], POLLIN | POLLRDHUP, 0));
	say("peek", s_->recv(p[0], buf, 10, MSG_PEEK));
	say("recv", s_->recv(p[0], buf, 10, 0));
	say("recv", s_->recv(p[0], buf, 10, 0));
	s_->close(p[0]);
}

/* ---- many in one poll ------------------------------------------------------------------------ */

enum { MANY = 50, MANY_ROUNDS = 20 };

static void *many_clients(void *arg)
{
	int fds[MANY];
	char byte;

	(void)arg;
	for (int i = 0; i < MANY; i++)
		fds[i] = client();
	for (int round = 0; round < MANY_ROUNDS; round++)
		for (int i = 0; i < MANY; i++) {
			byte = (char)(i + round);
			s_->send(fds[i], &byte, 1, 0);
			if (recv_all(fds[i], &byte, 1) != 1 || byte != (char)(i + round + 1))
				printf("client %d: wrong\n", i);
		}
	for (int i = 0; i < MANY; i++)
		s_->close(fds[i]);
	return NULL;
}

static void poll_many(void)
{
	struct pollfd fds[MANY + 3] = { { .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	int count = 2, bytes = 0, ends = 0, ordinary[2];
	pthread_t thread;
	char byte;

	fds[0].fd = listener_at(0);
	say("pipe", pipe(ordinary));
	fds[MANY + 2] = (struct pollfd){ .fd = ordinary[0], .events = POLLIN };
	pthread_create(&thread, NULL, many_clients, NULL);
	while (ends < MANY) {
		int n;

		fds[count] = (struct pollfd){ .fd = ordinary[0], .events = POLLIN };
		n = s_->poll(fds, (nfds_t)count + 1, -1);
		for (int i = 2; i < count && n > 0; i++) {
			if (fds[i].revents == 0)
				continue;
			if (s_->recv(fds[i].fd, &byte, 1, 0) == 1) {
				byte++;
				bytes += (int)s_->send(fds[i].fd, &byte, 1, 0);
			} else {
				ends++;
				s_->close(fds[i].fd);
				fds[i--] = fds[--count];
			}
		}
		if (fds[0].revents & POLLIN)
			fds[count++] = (struct pollfd){ .fd = s_->accept(fds[0].fd, NULL, NULL),
							.events = POLLIN };
		if (fds[1].revents != 0)
			printf("-1 is ready\n");
	}
	pthread_join(thread, NULL);
	say("bytes", bytes);
	say("ends", ends);
	say("nobody", s_->poll(NULL, 0, 1));
	fds[1] = fds[0];
	say("twice the same", s_->poll(fds, 2, 1));
	s_->close(fds[0].fd);
	say("one that is closed", s_->poll(fds, 1, 1));
	say_events("it", fds[0].revents);
}

/* ---- threads that share a socket ------------------------------------------------------------- */

enum { SHARED = 3000000, SHARED_PIECE = 777, SENDERS = 3 };

static void *shared_sender(void *arg)
{
	char piece[SHARED_PIECE];

	memset(piece, 'a', sizeof(piece));
	for (long sent = 0; sent < SHARED; sent += SHARED_PIECE)
		if (send_all(*(int *)arg, piece, SHARED_PIECE) != SHARED_PIECE)
			return (void *)1;
	return NULL;
}

static void *shared_echo(void *arg)
{
	char buf[5000];
	long n;

	while ((n = s_->recv(*(int *)arg, buf, sizeof(buf), 0)) > 0)
		if (send_all(*(int *)arg, buf, n) != n)
			return (void *)1;
	return (void *)n;
}

static void *shared_wait(void *arg)
{
	char byte;

	return (void *)s_->recv(*(int *)arg, &byte, 1, 0);
}

static void threads(void)
{
	const long total = (SHARED + SHARED_PIECE - 1) / SHARED_PIECE * SHARED_PIECE * SENDERS;
	pthread_t senders[SENDERS], echo;
	static char buf[100000];
	long got = 0, wrong = 0, n;
	void *result;
	int p[2];

	make_pair(p);
	pthread_create(&echo, NULL, shared_echo, &p[1]);
	for (int i = 0; i < SENDERS; i++)
		pthread_create(&senders[i], NULL, shared_sender, &p[0]);
	while (got < total && (n = s_->recv(p[0], buf, sizeof(buf), 0)) > 0) {
		for (long i = 0; i < n; i++)
			wrong += buf[i] != 'a';
		got += n;
	}
	say("all of it", got == total);
	say("wrong", wrong);
	for (int i = 0; i < SENDERS; i++) {
		pthread_join(senders[i], &result);
		say("a sender", (long)result);
	}
	s_->shutdown(p[0], SHUT_WR);
	pthread_join(echo, &result);
	say("the echo", (long)result);
	s_->close(p[0]);
	s_->close(p[1]);

	/* a thread that waits, and another one that shuts down */
	make_pair(p);
	pthread_create(&echo, NULL, shared_wait, &p[0]);
	nap(50);
	say("shutdown", s_->shutdown(p[0], SHUT_RDWR));
	pthread_join(echo, &result);
	say("the thread that waited", (long)result);
	s_->close(p[0]);
	s_->close(p[1]);
}

/* ---- peers that stop, and that are killed ---------------------------------------------------- */

enum { STREAM = 20000000 };

static void server_of_stream(int s)
{
	static char buf[65536];
	long got = 0, n;

	s_->send(s, "k", 1, 0);
	while ((n = s_->recv(s, buf, sizeof(buf), 0)) > 0)
		got += n;
	s_->send(s, got == STREAM ? "y" : "n", 1, MSG_NOSIGNAL);
	s_->close(s);
}

static void stopped(void)
{
	pid_t peer = fork_server(server_of_stream);
	static char buf[65536];
	struct timeval tv = { .tv_usec = 1000 };
	long sent = 0, n;
	fd_set out;
	char byte;
	int s = client(), status;

	say("it is there", s_->recv(s, &byte, 1, 0));
	kill(peer, SIGSTOP);
	waitpid(peer, &status, WUNTRACED);
	while (sent < STREAM && (n = s_->send(s, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		sent += n;
	say("full", n);
	/* TCP may find room for a part of a piece */
	while (s_->send(s, buf, 1, MSG_DONTWAIT) > 0)
		sent++;
	FD_ZERO(&out);
	FD_SET(s, &out);
	say("select", s_->select(s + 1, NULL, &out, NULL, &tv));
	say("its bit", FD_ISSET(s, &out) != 0);
	say("recv", s_->recv(s, &byte, 1, MSG_DONTWAIT));
	say_events("poll", ask(s, POLLIN | POLLOUT, 10));
	kill(peer, SIGCONT);
	for (; sent < STREAM; sent += n) {
		n = s_->send(s, buf, (size_t)(STREAM - sent < 65536 ? STREAM - sent : 65536), 0);
		if (n <= 0)
			break;
	}
	say("all sent", sent == STREAM);
	s_->shutdown(s, SHUT_WR);
	say("answer", s_->recv(s, &byte, 1, 0));
	say("all came", byte == 'y');
	say("the end", s_->recv(s, &byte, 1, 0));
	s_->close(s);
	waitpid(peer, &status, 0);
	say("status", status);
}

static void server_that_sends(int s)
{
	char buf[1000] = "";

	while (s_->send(s, buf, sizeof(buf), 0) > 0)
		;
}

/* An end that reads, of a peer that is killed: what comes last is told apart from a hang only. */
static void killed(void)
{
	pid_t peer = fork_server(server_that_sends);
	static char buf[65536];
	int s = client(), status;
	long n;

	say("it sends", s_->recv(s, buf, sizeof(buf), 0) > 0);
	kill(peer, SIGKILL);
	waitpid(peer, &status, 0);
	while ((n = s_->recv(s, buf, sizeof(buf), 0)) > 0)
		;
	say("the end", n == 0 || errno == ECONNRESET);
	say("and again", s_->recv(s, buf, sizeof(buf), 0) <= 0);
	while (s_->send(s, buf, sizeof(buf), MSG_NOSIGNAL) > 0)
		;
	say("send", errno == EPIPE || errno == ECONNRESET);
	say("poll has something", ask(s, POLLIN | POLLOUT, 1000) != 0);
	say("close", s_->close(s));
}

#ifndef __SANITIZE_THREAD__ /* its handlers run when a call returns, which here needs them */

/* ---- calls that are interrupted -------------------------------------------------------------- */

static int alarms; /* atomic */

static void on_alarm(int signal)
{
	(void)signal;
	__atomic_add_fetch(&alarms, 1, __ATOMIC_SEQ_CST);
}

/* From now on it rings again and again: a busy machine may come late to the call that is meant. */
static void set_alarm(int flags)
{
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval often = { .it_value.tv_usec = 50000, .it_interval.tv_usec = 50000 };

	__atomic_store_n(&alarms, 0, __ATOMIC_SEQ_CST);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

/* The alarm is meant for another thread. */
static void after_alarm(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (__atomic_load_n(&alarms, __ATOMIC_SEQ_CST) == 0)
		nap(10);
	nap(50);
}

static void *send_later(void *arg)
{
	after_alarm();
	s_->send(*(int *)arg, "x", 1, 0);
	return NULL;
}

static void *connect_later(void *arg)
{
	after_alarm();
	*(int *)arg = client();
	return NULL;
}

static void *read_later(void *arg)
{
	static char buf[65536];

	after_alarm();
	while (s_->recv(*(int *)arg, buf, sizeof(buf), 0) > 0)
		;
	return NULL;
}

static void signals(void)
{
	struct itimerval never = { .it_value.tv_usec = 0 };
	struct timeval tv = { .tv_sec = 100 };
	static char buf[65536];
	pthread_t thread;
	fd_set in;
	struct sigaction crash = { .sa_handler = on_alarm }; /* never called */
	int p[2], other, listener;
	char byte;
	long n;

	sigaction(SIGFPE, &crash, NULL);
	make_pair(p);
	set_alarm(0);
	say("recv", s_->recv(p[0], &byte, 1, 0));
	set_alarm(0);
	say("poll", ask(p[0], POLLIN, -1));
	set_alarm(SA_RESTART);
	say("poll, SA_RESTART", ask(p[0], POLLIN, -1));
	set_alarm(0);
	FD_ZERO(&in);
	FD_SET(p[0], &in);
	say("select", s_->select(p[0] + 1, &in, NULL, NULL, &tv));
	set_alarm(SA_RESTART);
	pthread_create(&thread, NULL, send_later, &p[1]);
	say("recv, SA_RESTART", s_->recv(p[0], &byte, 1, 0));
	pthread_join(thread, NULL);

	while (s_->send(p[0], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	while (s_->send(p[0], buf, 1, MSG_DONTWAIT) > 0)
		;
	set_alarm(0);
	say("send", s_->send(p[0], buf, sizeof(buf), 0));
	set_alarm(SA_RESTART);
	pthread_create(&thread, NULL, read_later, &p[1]);
	for (n = 0; n < STREAM;) {
		long sent = s_->send(p[0], buf, sizeof(buf), 0);

		if (sent < 0)
			break;
		n += sent;
	}
	say("send, SA_RESTART", n >= STREAM);
	s_->shutdown(p[0], SHUT_WR);
	pthread_join(thread, NULL);
	s_->close(p[0]);
	s_->close(p[1]);

	listener = listener_at(0);
	set_alarm(0);
	say("accept", s_->accept(listener, NULL, NULL));
	set_alarm(SA_RESTART);
	pthread_create(&thread, NULL, connect_later, &other);
	say("accept, SA_RESTART", s_->accept(listener, NULL, NULL) >= 0);
	pthread_join(thread, NULL);
	setitimer(ITIMER_REAL, &never, NULL);
}

#endif

/* ---- children ------------------------------------------------------------------------------- */

/* Not where a forked child of a process with threads starts none, or is said to leak what is its
 * parent's. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

/* One of a child that makes its own. */
static int child_talks(void)
{
	char byte = 0;
	int p[2];

	make_pair(p);
	s_->send(p[0], "x", 1, 0);
	s_->recv(p[1], &byte, 1, 0);
	s_->close(p[0]);
	s_->close(p[1]);
	return byte == 'x';
}

/* A program whose connection outlives its children, whatever they do when they end. */
static void children(void)
{
	char buf[10];
	pid_t child;
	int p[2];

	make_pair(p);
	say("send", s_->send(p[0], "one", 3, 0));
	child = fork();
	if (child == 0)
		exit(1);
	say("a child that exits", status_of(child));
	say("recv", s_->recv(p[1], buf, 10, 0));
	child = fork();
	if (child == 0) {
		s_->close(p[0]);
		s_->close(p[1]);
		exit(2);
	}
	say("a child that closes", status_of(child));
	say("send", s_->send(p[1], "four", 4, 0));
	say("recv", s_->recv(p[0], buf, 10, 0));
	say("a program", WEXITSTATUS(system("exit 3")));
	child = fork();
	if (child == 0)
		exit(child_talks() ? 4 : 5);
	say("a child that talks", status_of(child));
	child = fork();
	if (child == 0) {
		(void)child_talks();
		raise(SIGKILL);
	}
	say("a child that is killed", status_of(child));
	say("send", s_->send(p[0], "seven", 5, 0));
	say("recv", s_->recv(p[1], buf, 10, 0));
	s_->close(p[0]);
	say("the end", s_->recv(p[1], buf, 10, 0));
	say("close", s_->close(p[1]));
}

#endif

/* ---- flags, lengths and options -------------------------------------------------------------- */

static long get(int s, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return s_->getsockopt(s, level, name, &value, &len) != 0 ? -1 : value;
}

static void flags(void)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct linger linger = { .l_onoff = 1, .l_linger = 3 };
	char buf[10];
	int p[2], off = 0, on = 1;

	make_pair(p);
	say("recv", s_->recv(p[0], buf, 1, MSG_DONTWAIT));
	say("send of nothing", s_->send(p[0], buf, 0, 0));
	say("recv of nothing", s_->recv(p[1], buf, 0, MSG_DONTWAIT) <= 0);
	say("send", s_->send(p[0], "abcdef", 6, 0));
	await(p[1], POLLIN);
	say("peek", s_->recv(p[1], buf, 3, MSG_PEEK));
	say("peek again", s_->recv(p[1], buf, 10, MSG_PEEK));
	say("recvfrom", s_->recvfrom(p[1], buf, 2, 0, (struct sockaddr *)&from, &len));
	say("its bytes", buf[0] == 'a' && buf[1] == 'b');
	say("recv to nowhere", s_->recv(p[1], NULL, 2, 0));
	say("the rest", s_->recv(p[1], buf, 10, 0));
	say("send from nowhere", s_->send(p[0], NULL, 2, MSG_NOSIGNAL));
	say("O_NONBLOCK", s_->fcntl(p[1], F_SETFL, O_NONBLOCK));
	say("F_GETFL", s_->fcntl(p[1], F_GETFL) & (O_NONBLOCK | O_ACCMODE));
	say("recv", s_->recv(p[1], buf, 1, 0));
	say("recv, MSG_WAITALL", s_->recv(p[1], buf, 10, MSG_WAITALL));
	say("send", s_->send(p[0], "abc", 3, 0));
	await(p[1], POLLIN);
	say("recv, MSG_WAITALL", s_->recv(p[1], buf, 10, MSG_WAITALL));
	say("SO_TYPE", get(p[0], SOL_SOCKET, SO_TYPE));
	say("SO_DOMAIN", get(p[0], SOL_SOCKET, SO_DOMAIN));
	say("SO_ACCEPTCONN", get(p[0], SOL_SOCKET, SO_ACCEPTCONN));
	say("SO_ERROR", get(p[0], SOL_SOCKET, SO_ERROR));
	say("SO_KEEPALIVE", get(p[0], SOL_SOCKET, SO_KEEPALIVE));
	say("SO_KEEPALIVE on", s_->setsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
	say("SO_KEEPALIVE", get(p[0], SOL_SOCKET, SO_KEEPALIVE));
	say("SO_REUSEADDR", s_->setsockopt(p[0], SOL_SOCKET, SO_REUSEADDR, &off, sizeof(off)));
	say("SO_REUSEADDR", get(p[0], SOL_SOCKET, SO_REUSEADDR));
	say("SO_LINGER",
	    s_->setsockopt(p[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	len = sizeof(linger);
	say("SO_LINGER", s_->getsockopt(p[0], SOL_SOCKET, SO_LINGER, &linger, &len));
	say("its time", linger.l_linger);
	say("its size", len);
	say("a short value", s_->setsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, &on, 1));
	say("a value from nowhere",
	    s_->setsockopt(p[0], SOL_SOCKET, SO_KEEPALIVE, NULL, sizeof(on)));
	len = sizeof(from);
	say("getpeername to nowhere", s_->getpeername(p[0], NULL, &len));
	len = 2;
	say("a short name", s_->getsockname(p[0], (struct sockaddr *)&from, &len));
	say("its size", len);
	s_->close(p[0]);
	s_->close(p[1]);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static int datagrams_at(struct sockaddr_in *addr)
{
	int s = s_->socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(*addr);

	*addr = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	s_->bind(s, (struct sockaddr *)addr, sizeof(*addr));
	s_->getsockname(s, (struct sockaddr *)addr, &len);
	return s;
}

static void datagrams(void)
{
	struct sockaddr_in a, b, gone, from, none = { .sin_family = AF_UNSPEC };
	struct sockaddr *to_a = (struct sockaddr *)&a, *to_b = (struct sockaddr *)&b;
	int s = datagrams_at(&a), t = datagrams_at(&b), u = datagrams_at(&gone);
	socklen_t len = sizeof(from);
	char buf[100];

	s_->close(u);
	say("send to nobody", s_->send(s, "x", 1, 0));
	say("recv", s_->recv(s, buf, 1, MSG_DONTWAIT));
	say("sendto", s_->sendto(s, "hello", 5, 0, to_b, sizeof(b)));
	say("recvfrom", s_->recvfrom(t, buf, 3, 0, (struct sockaddr *)&from, &len));
	say("its sender", from.sin_port == a.sin_port && from.sin_addr.s_addr == a.sin_addr.s_addr);
	say("nothing is left", s_->recv(t, buf, 100, MSG_DONTWAIT));
	say("sendto", s_->sendto(s, "hello", 5, 0, to_b, sizeof(b)));
	await(t, POLLIN);
	say("peek", s_->recv(t, buf, 100, MSG_PEEK));
	say("MSG_TRUNC", s_->recv(t, buf, 2, MSG_TRUNC));
	say("of no bytes", s_->sendto(s, "", 0, 0, to_b, sizeof(b)));
	say("recv", s_->recv(t, buf, 100, 0));
	say_events("poll", ask(t, POLLIN | POLLOUT, 0));
	say("to one who has left",
	    s_->sendto(s, "x", 1, 0, (struct sockaddr *)&gone, sizeof(gone)));
	say("and again", s_->sendto(s, "x", 1, 0, to_b, sizeof(b)));
	say("recv", s_->recv(t, buf, 100, 0));
	say("SO_ERROR", error_of(s));
	say("a short address", s_->sendto(s, "x", 1, 0, to_b, 4));
	say("shutdown", s_->shutdown(s, SHUT_RD));
	say("connect", s_->connect(s, (struct sockaddr *)&gone, sizeof(gone)));
	say("send", s_->send(s, "x", 1, 0));
	await(s, POLLERR);
	say("recv", s_->recv(s, buf, 100, MSG_DONTWAIT));
	say("SO_ERROR", error_of(s));
	say("connect to another", s_->connect(s, to_b, sizeof(b)));
	say("send", s_->send(s, "x", 1, 0));
	say("recv", s_->recv(t, buf, 100, 0));
	u = datagrams_at(&gone);
	say("from a stranger", s_->sendto(u, "x", 1, 0, to_a, sizeof(a)));
	nap(50);
	say("recv", s_->recv(s, buf, 100, MSG_DONTWAIT));
	say("AF_UNSPEC", s_->connect(s, (struct sockaddr *)&none, sizeof(none)));
	say("send to nobody", s_->send(s, "x", 1, 0));
	say("bind in use", s_->bind(s_->socket(AF_INET, SOCK_DGRAM, 0), to_b, sizeof(b)));
	say("bind again", s_->bind(s, to_b, sizeof(b)));
	say("listen", s_->listen(s, 1));
	say("accept", s_->accept(s, NULL, NULL));
	gone.sin_addr.s_addr = INADDR_BROADCAST;
	say("broadcast", s_->sendto(s, "x", 1, 0, (struct sockaddr *)&gone, sizeof(gone)));
	gone.sin_port = 0;
	gone.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	say("to port 0", s_->sendto(s, "x", 1, 0, (struct sockaddr *)&gone, sizeof(gone)));
	s_->close(s);
	s_->close(t);
}

/* ---- main ------------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	void (*run)(void);
} programs[] = {
	{ "nobody", nobody },	{ "half_close", half_close }, { "poll_many", poll_many },
	{ "threads", threads }, { "stopped", stopped },	      { "killed", killed },
	{ "flags", flags },	{ "datagrams", datagrams },
#ifndef __SANITIZE_THREAD__
	{ "signals", signals },
#endif
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
	{ "children", children },
#endif
};

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; argc > 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(argv[1], kinds[i].name) == 0)
			s_ = &kinds[i];
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (argc < 3)
			printf("%s\n", programs[i].name);
		else if (s_ != NULL && strcmp(argv[2], programs[i].name) == 0)
			programs[i].run();
	}
	return 0;
}
