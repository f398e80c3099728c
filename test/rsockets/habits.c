/* habits.c: programs that know sockets from their man pages only, and are careless in the ways that
 * programs are. Each prints what it sees; differ_test.py runs it over TCP and over rsockets and
 * compares.
 * In: the name of a program      Out: a trace without anything that may differ from run to run
 * Runs: processes and threads of each program's own
 */
#include <aio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "habits.h"

static void echo(int s)
{
	char buf[5000];
	long n;

	while ((n = read(s, buf, sizeof(buf))) > 0)
		if (write_all(s, (unsigned char *)buf, n) != n)
			break;
}

/* ---- the programs ---- */

/* One client after the other; some say nothing, one is gone before it is accepted. */
static void accept_loop(void)
{
	int listener = server_socket(3), child = fork(), n;
	char buf[100];

	if (child == 0) {
		close(listener);
		nap(SETTLE_MS);
		for (int i = 0; i < 12; i++) {
			int s = client_socket();

			if (i % 3 != 1)
				dprintf(s, "client %d", i);
			close(s);
		}
		_exit(0);
	}
	for (int i = 0; i < 12; i++) {
		struct sockaddr_in peer = { 0 };
		socklen_t size = sizeof(peer);
		int s = accept(listener, (struct sockaddr *)&peer, &size);

		if (i == 4)
			nap(50);
		n = (int)read(s, buf, sizeof(buf) - 1);
		buf[n > 0 ? n : 0] = 0;
		printf("%s \"%s\" from family %d, %u bytes\n", result(n), buf,
		       peer.sin_family, size);
		close(s);
	}
	waitpid(child, &n, 0);
	say("the client's status", n);
	close(listener);
}

static void on_child(int sig)
{
	int saved = errno;

	(void)sig;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	errno = saved;
}

/* Forks for each client; the handler of SIGCHLD interrupts accept. */
static void fork_server(void)
{
	struct sigaction action = { .sa_handler = on_child };
	int listener = server_socket(10), server = fork(), served = 0;
	unsigned char *data = pattern(100000), got[100000];

	if (server == 0) {
		sigaction(SIGCHLD, &action, NULL);
		while (served < 5) {
			int s = accept(listener, NULL, NULL);

			if (s < 0 && errno == EINTR)
				continue;
			served++;
			if (fork() == 0) {
				close(listener);
				echo(s);
				_exit(0);
			}
			close(s);
		}
		nap(500);
		_exit(0);
	}
	close(listener);
	nap(SETTLE_MS);
	for (int i = 0; i < 5; i++) {
		int s = client_socket();
		long size = 1000 + 20000 * i;

		if (write_all(s, data, size) != size)
			perror("write");
		shutdown(s, SHUT_WR);
		printf("client %d: %s back", i, result(read_all(s, got, sizeof(got))));
		printf(", %s\n", memcmp(data, got, (size_t)size) == 0 ? "the same" : "another");
		close(s);
	}
	waitpid(server, NULL, 0);
}

enum { RECORD = 64, RECORDS = 2000, WRITERS = 4 };

struct shared {
	int fd, number;
	long seen;
};

static void *write_records(void *arg)
{
	struct shared *w = arg;
	unsigned char record[RECORD];

	memset(record, 'a' + w->number, sizeof(record));
	for (int i = 0; i < RECORDS; i++)
		if (write(w->fd, record, sizeof(record)) != RECORD)
			perror("write");
	return NULL;
}

static void *read_some(void *arg)
{
	struct shared *r = arg;
	unsigned char buf[997];
	long n;

	while ((n = read(r->fd, buf, sizeof(buf))) > 0)
		__atomic_add_fetch(&r->seen, n, __ATOMIC_RELAXED);
	return NULL;
}

/* Threads share both ends: small records stay whole, and no byte comes twice. */
static void threads(void)
{
	struct shared writers[WRITERS], readers[2];
	pthread_t w[WRITERS], r[2];
	unsigned char record[RECORD];
	long mixed = 0, whole = 0;
	int fds[2];

	make_pair(fds);
	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct shared){ .fd = fds[0], .number = i };
		pthread_create(&w[i], NULL, write_records, &writers[i]);
	}
	for (int i = 0; i < WRITERS * RECORDS; i++) {
		int same = 1;

		if (read_all(fds[1], record, RECORD) != RECORD)
			perror("read");
		for (int j = 1; j < RECORD; j++)
			same &= record[j] == record[0];
		whole += same;
		mixed += !same;
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(w[i], NULL);
	printf("%ld whole, %ld mixed\n", whole, mixed);
	for (int i = 0; i < 2; i++) {
		readers[i] = (struct shared){ .fd = fds[1] };
		pthread_create(&r[i], NULL, read_some, &readers[i]);
	}
	write_records(&writers[0]);
	shutdown(fds[0], SHUT_WR);
	for (int i = 0; i < 2; i++)
		pthread_join(r[i], NULL);
	printf("two readers: %ld\n", readers[0].seen + readers[1].seen);
	close(fds[0]);
	close(fds[1]);
}

static void linger(void)
{
	struct linger off = { .l_onoff = 1, .l_linger = 0 }, on = { .l_onoff = 1, .l_linger = 5 };
	struct linger read_back = { 0 };
	socklen_t size = sizeof(read_back);
	unsigned char *data = pattern(300000), got[300000];
	char byte;
	int fds[2];

	make_pair(fds);
	say("linger 0", setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &off, sizeof(off)));
	close(fds[0]);
	nap(100);
	say("read after a reset", read(fds[1], &byte, 1));
	say("read again", read(fds[1], &byte, 1));
	close(fds[1]);
	make_pair(fds);
	say("linger 5", setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &on, sizeof(on)));
	say("getsockopt", getsockopt(fds[0], SOL_SOCKET, SO_LINGER, &read_back, &size));
	printf("%d %d, %u bytes\n", read_back.l_onoff, read_back.l_linger, size);
	if (fork() == 0) {
		close(fds[1]);
		write_all(fds[0], data, 300000);
		close(fds[0]);
		_exit(0);
	}
	close(fds[0]);
	say("all", read_all(fds[1], got, 300000));
	printf("%s\n", memcmp(data, got, 300000) == 0 ? "the same" : "another");
	say("end", read(fds[1], &byte, 1));
	close(fds[1]);
	wait(NULL);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static void half_close(void)
{
	unsigned char *data = pattern(1000000), *got = malloc(1000000);
	int fds[2], s;
	char byte;

	signal(SIGPIPE, on_pipe);
	s = socket(AF_INET, SOCK_STREAM, 0);
	say("shutdown before connect", shutdown(s, SHUT_RDWR));
	say("read before connect", read(s, &byte, 1));
	say("write before connect", write(s, &byte, 1));
	say("getpeername before connect",
	    getpeername(s, (struct sockaddr *)&address, &(socklen_t){ sizeof(address) }));
	close(s);
	make_pair(fds);
	if (fork() == 0) {
		close(fds[0]);
		read_all(fds[1], got, 1000000);
		write_all(fds[1], got, 5000);
		write_all(fds[1], data, 1000000);
		_exit(0);
	}
	close(fds[1]);
	write_all(fds[0], data, 5000);
	say("shutdown", shutdown(fds[0], SHUT_WR));
	say("shutdown again", shutdown(fds[0], SHUT_WR));
	say("shutdown how", shutdown(fds[0], 17));
	pipes = 0;
	say("write", write(fds[0], "x", 1));
	say("send", send(fds[0], "x", 1, MSG_NOSIGNAL));
	printf("SIGPIPE: %d\n", (int)pipes);
	say("the request is back", read_all(fds[0], got, 5000));
	printf("%s\n", memcmp(data, got, 5000) == 0 ? "the same" : "another");
	say("read", read_all(fds[0], got, 1000000));
	printf("%s\n", memcmp(data, got, 1000000) == 0 ? "the same" : "another");
	say("end", read(fds[0], &byte, 1));
	wait(NULL);
	close(fds[0]);
	make_pair(fds);
	say("shutdown RD", shutdown(fds[0], SHUT_RD));
	say("read", read(fds[0], &byte, 1));
	say("the other writes", write(fds[1], "x", 1));
	say("this writes", write(fds[0], "yz", 2));
	say("the other reads", read(fds[1], got, 10));
	close(fds[0]);
	close(fds[1]);
}

enum { MANY = 60 };

static void select_many(void)
{
	int pairs[MANY][2], top = 0, n;
	struct timeval t = { .tv_usec = 50000 };
	fd_set in, out;
	char byte;

	for (int i = 0; i < MANY; i++) {
		make_pair(pairs[i]);
		top = pairs[i][1] > top ? pairs[i][1] : top;
		top = pairs[i][0] > top ? pairs[i][0] : top;
	}
	FD_ZERO(&in);
	for (int i = 0; i < MANY; i++)
		FD_SET(pairs[i][1], &in);
	say("nothing", select(top + 1, &in, NULL, NULL, &t));
	printf("left: %ld.%06ld\n", (long)t.tv_sec, (long)t.tv_usec);
	for (int round = 0; round < 4; round++) {
		for (int i = round; i < MANY; i += 7)
			if (write(pairs[i][0], "x", 1) != 1)
				perror("write");
		nap(30);
		FD_ZERO(&in);
		for (int i = 0; i < MANY; i++)
			FD_SET(pairs[i][1], &in);
		n = select(top + 1, &in, NULL, NULL, NULL);
		printf("ready: %d:", n);
		for (int i = 0; i < MANY; i++)
			if (FD_ISSET(pairs[i][1], &in))
				printf(" %d%s", i, read(pairs[i][1], &byte, 1) == 1 ? "" : "?");
		printf("\n");
	}
	FD_ZERO(&out);
	for (int i = 0; i < MANY; i++)
		FD_SET(pairs[i][0], &out);
	say("writable", select(top + 1, NULL, &out, NULL, NULL));
	close(pairs[5][0]);
	FD_ZERO(&in);
	FD_SET(pairs[5][1], &in);
	FD_SET(pairs[6][1], &in);
	say("closed", select(top + 1, &in, NULL, NULL, NULL));
	say("read", read(pairs[5][1], &byte, 1));
	FD_ZERO(&in);
	FD_SET(pairs[5][0], &in);
	say("of a closed one", select(top + 1, &in, NULL, NULL, NULL));
	for (int i = 0; i < MANY; i++) {
		if (i != 5)
			close(pairs[i][0]);
		close(pairs[i][1]);
	}
}

/* Like inetd: the program that serves knows nothing of sockets. */
static void inetd(void)
{
	int fds[2], copy, status;
	char buf[200];
	FILE *f;

	make_pair(fds);
	if (fork() == 0) {
		close(fds[0]);
		dup2(fds[1], 0);
		dup2(fds[1], 1);
		close(fds[1]);
		execlp("tr", "tr", "a-z", "A-Z", NULL);
		_exit(1);
	}
	close(fds[1]);
	write_all(fds[0], (const unsigned char *)"hello, world\n", 13);
	shutdown(fds[0], SHUT_WR);
	memset(buf, 0, sizeof(buf));
	printf("%s ", result(read_all(fds[0], (unsigned char *)buf, sizeof(buf))));
	printf("%s", buf);
	wait(&status);
	say("status", status);
	close(fds[0]);
	make_pair(fds);
	copy = dup(fds[0]);
	close(fds[0]);
	say("write to the copy", write(copy, "abc", 3));
	say("dup2 over it", dup2(copy, fds[0]) == fds[0] ? 0 : -1);
	close(copy);
	say("write again", write(fds[0], "def", 3));
	memset(buf, 0, sizeof(buf));
	printf("%s ", result(read_all(fds[1], (unsigned char *)buf, 6)));
	printf("%s\n", buf);
	f = fdopen(fds[1], "r+");
	dprintf(fds[0], "line one\nline two\n");
	printf("%s", fgets(buf, sizeof(buf), f) ? buf : "nothing\n");
	printf("%s", fgets(buf, sizeof(buf), f) ? buf : "nothing\n");
	fflush(stdout);
	fclose(f);
	say("end", read(fds[0], buf, 1));
	close(fds[0]);
}

static volatile sig_atomic_t io_signals;

static void on_io(int sig)
{
	(void)sig;
	io_signals++;
}

/* Bytes that go and come by less usual calls. */
static void other_ways(void)
{
	char hello[] = "hello", buf[16] = "";
	struct iovec out = { hello, 5 }, in = { buf, sizeof(buf) };
	struct aiocb a = { .aio_buf = hello, .aio_nbytes = 5 };
	const struct aiocb *wait_for[] = { &a };
	int fds[2];

	make_pair(fds);
	say("pwritev2", pwritev2(fds[0], &out, 1, -1, 0));
	say("preadv2", preadv2(fds[1], &in, 1, -1, 0));
	say("nothing there", preadv2(fds[1], &in, 1, -1, RWF_NOWAIT));
	say("at a place", pwritev2(fds[0], &out, 1, 0, 0));
	say("write", write(fds[0], hello, 2));
	a.aio_fildes = fds[0];
	say("aio_write", aio_write(&a));
	aio_suspend(wait_for, 1, NULL);
	say("aio_return", aio_return(&a));
	say("read", read_all(fds[1], (unsigned char *)buf, 7));
	printf("%.7s\n", buf);
	signal(SIGIO, on_io);
	fcntl(fds[1], F_SETOWN, getpid());
	say("O_ASYNC", fcntl(fds[1], F_SETFL, O_ASYNC));
	say("write", write(fds[0], hello, 1));
	for (int i = 0; i < 500 && !io_signals; i++)
		nap(10);
	say("told", io_signals > 0);
	say("read", read(fds[1], buf, 1));
	close(fds[0]);
	close(fds[1]);
}

/* What a program says of the connection that is its standard input. */
static int executed(const char *ports)
{
	struct sockaddr_in own = { 0 }, peer = { 0 };
	int here, there, on = 1, value = -1;
	socklen_t size = sizeof(own);

	setvbuf(stdout, NULL, _IOLBF, 0);
	sscanf(ports, "%d,%d", &here, &there);
	say("getsockname", getsockname(0, (struct sockaddr *)&own, &size));
	say("own port", own.sin_family == AF_INET && ntohs(own.sin_port) == here);
	say("getpeername", getpeername(0, (struct sockaddr *)&peer, &size));
	say("its port", peer.sin_family == AF_INET && ntohs(peer.sin_port) == there);
	say("loopback", peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	say("TCP_NODELAY", setsockopt(0, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
	size = sizeof(value);
	say("SO_DOMAIN", getsockopt(0, SOL_SOCKET, SO_DOMAIN, &value, &size));
	say("AF_INET", value == AF_INET);
	say("SO_RCVTIMEO", setsockopt(0, SOL_SOCKET, SO_RCVTIMEO,
				      &(struct timeval){ .tv_usec = 50000 },
				      sizeof(struct timeval)));
	say("read", read(0, &value, 1));
	return 0;
}

/* A server that executes a program for each client. */
static void execute(void)
{
	struct sockaddr_in client;
	socklen_t size = sizeof(client);
	char ports[32];
	int fds[2];

	make_pair(fds);
	getsockname(fds[0], (struct sockaddr *)&client, &size);
	snprintf(ports, sizeof(ports), "%d,%d", ntohs(address.sin_port), ntohs(client.sin_port));
	if (fork() == 0) {
		dup2(fds[1], 0);
		execl("/proc/self/exe", "habits", "executed", ports, NULL);
		_exit(1);
	}
	wait(NULL);
	close(fds[0]);
	close(fds[1]);
}

static void vectors(void)
{
	struct iovec iov[IOV_MAX + 1];
	unsigned char *data = pattern(200000), *got = malloc(200000);
	struct iovec *volatile wild = (struct iovec *)16;
	volatile int below = -1;
	long total = 0, sent;
	int fds[2];

	make_pair(fds);
	for (int i = 0; i <= IOV_MAX; i++) {
		iov[i] = (struct iovec){ .iov_base = data + total, .iov_len = (size_t)(i % 97) };
		total += i < IOV_MAX ? i % 97 : 0;
	}
	say("too many", writev(fds[0], iov, IOV_MAX + 1));
	say("none", writev(fds[0], iov, 0));
	say("less", writev(fds[0], iov, below));
	sent = writev(fds[0], iov, IOV_MAX);
	say("IOV_MAX", sent);
	say("all", read_all(fds[1], got, total));
	printf("%x %x\n", sum(data, total), sum(got, total));
	write_all(fds[0], data, total);
	for (int i = 0; i < IOV_MAX; i++)
		iov[i].iov_base = got + ((unsigned char *)iov[i].iov_base - data);
	memset(got, 0, 200000);
	nap(50);
	say("readv", readv(fds[1], iov, IOV_MAX));
	printf("%x\n", sum(got, total));
	say("send nothing", send(fds[0], data, 0, 0));
	say("write nothing", write(fds[0], data, 0));
	say("NULL", send(fds[0], NULL, 10, 0));
	say("a wild vector", writev(fds[0], wild, 2));
	say("to read", readv(fds[1], wild, 2));
	say("of one", writev(fds[0], wild, 1));
	iov[0] = (struct iovec){ .iov_base = data, .iov_len = SIZE_MAX };
	iov[1] = iov[0];
	say("too much", writev(fds[0], iov, 2));
	close(fds[0]);
	close(fds[1]);
}

static void send_file(void)
{
	enum { SIZE = 3000000 };
	unsigned char *data = pattern(SIZE), *got = malloc(SIZE);
	int fds[2], file = memfd_create("file", 0);
	off_t at = 1000;
	long n, done = 0;

	write_all(file, data, SIZE);
	lseek(file, 0, SEEK_SET);
	make_pair(fds);
	if (fork() == 0) {
		char more;

		close(fds[0]);
		n = read_all(fds[1], got, SIZE);
		done = read(fds[1], &more, 1); /* the sender has said all that it says */
		say("received", n);
		printf("%x\n", sum(got, SIZE));
		say("end", done);
		fflush(stdout);
		_exit(0);
	}
	close(fds[1]);
	while (done < 1000 && (n = sendfile(fds[0], file, NULL, 1000 - (size_t)done)) > 0)
		done += n;
	while ((n = sendfile(fds[0], file, &at, 700001)) > 0)
		done += n;
	say("sendfile ends", n);
	printf("%ld sent, at %ld, file at %ld\n", done, (long)at, (long)lseek(file, 0, SEEK_CUR));
	say("no file", sendfile(fds[0], -1, NULL, 10));
	close(fds[0]);
	wait(NULL);
}

static void print_events(const char *what, int n, short revents)
{
	printf("%s: %d%s%s%s%s\n", what, n, revents & POLLIN ? " IN" : "",
	       revents & POLLOUT ? " OUT" : "", revents & POLLERR ? " ERR" : "",
	       revents & POLLHUP ? " HUP" : "");
}

static int error_of(int s)
{
	int error = -1;

	getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof(error) });
	return error;
}

static const char *name_of(int error)
{
	return error == 0 ? "none" : strerrorname_np(error);
}

/* As servers that pass connections on: the epoll has the socket before it connects. */
static void edge_client(void)
{
	struct epoll_event on = { .events = EPOLLIN | EPOLLOUT | EPOLLET }, told;
	int listener = server_socket(5), e = epoll_create1(0), s, n;

	s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say("add", epoll_ctl(e, EPOLL_CTL_ADD, s, &on));
	n = epoll_wait(e, &told, 1, 5000);
	print_events("unconnected", n, (short)told.events);
	say("connect", connect(s, (struct sockaddr *)&address, sizeof(address)));
	n = epoll_wait(e, &told, 1, 5000);
	print_events("connected", n, (short)told.events);
	say("once", epoll_wait(e, &told, 1, 100));
	printf("SO_ERROR %s\n", name_of(error_of(s)));
	close(s);
	close(e);
	close(listener);
}

static void nonblocking(void)
{
	int listener = server_socket(5), s, server;
	struct sockaddr *to = (struct sockaddr *)&address;
	struct pollfd p;
	char byte;

	s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	p = (struct pollfd){ .fd = s, .events = POLLIN | POLLOUT };
	say("connect", connect(s, to, sizeof(address)));
	print_events("poll", poll(&p, 1, 5000), p.revents);
	printf("SO_ERROR %s\n", name_of(error_of(s)));
	say("connect again", connect(s, to, sizeof(address)));
	say("and again", connect(s, to, sizeof(address)));
	say("read", read(s, &byte, 1));
	say("F_GETFL", fcntl(s, F_GETFL) & (O_NONBLOCK | O_ACCMODE));
	fcntl(listener, F_SETFL, O_NONBLOCK);
	server = accept(listener, NULL, NULL);
	say("inherited", fcntl(server, F_GETFL) & O_NONBLOCK);
	say("accept", accept(listener, NULL, NULL));
	close(server);
	close(listener);
	close(s);
	s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	p = (struct pollfd){ .fd = s, .events = POLLIN | POLLOUT };
	say("to nobody", connect(s, to, sizeof(address)) < 0 && errno != EINPROGRESS &&
					 errno != ECONNREFUSED
				 ? -1
				 : 0);
	print_events("poll", poll(&p, 1, 5000), p.revents);
	error_of(s);
	printf("SO_ERROR then %s\n", name_of(error_of(s)));
	say("write", send(s, "x", 1, MSG_NOSIGNAL));
	close(s);
	s = socket(AF_INET, SOCK_STREAM, 0);
	say("to nobody, blocking", connect(s, to, sizeof(address)));
	listener = server_socket(5);
	say("to somebody", connect(s, to, sizeof(address)));
	server = accept(listener, NULL, NULL);
	say("write", write(s, "x", 1));
	say("read", read(server, &byte, 1));
	close(server);
	close(s);
	close(listener);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void alarm_in(int ms, int flags)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval t = { .it_value.tv_usec = ms * 1000 };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

static void *write_later(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	nap(200);
	(void)!write(*(int *)arg, "late", 4);
	return NULL;
}

static void *read_later(void *arg)
{
	struct shared r = { .fd = *(int *)arg };
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	nap(300);
	return read_some(&r);
}

static void signals(void)
{
	struct timeval limit = { .tv_usec = 50000 };
	static unsigned char data[64 << 20];
	pthread_t thread;
	struct pollfd p;
	struct sigaction crash = { .sa_handler = on_alarm }; /* never called */
	char buf[10];
	int fds[2];
	long n;

	sigaction(SIGFPE, &crash, NULL);
	make_pair(fds);
	alarm_in(50, 0);
	say("read", read(fds[0], buf, sizeof(buf)));
	alarm_in(50, SA_RESTART);
	pthread_create(&thread, NULL, write_later, &fds[1]);
	say("read with SA_RESTART", read(fds[0], buf, sizeof(buf)));
	pthread_join(thread, NULL);
	p = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	alarm_in(50, SA_RESTART);
	say("poll", poll(&p, 1, 5000));
	setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	say("SO_RCVTIMEO", read(fds[0], buf, sizeof(buf)));
	limit.tv_sec = 10; /* later than the alarm rings on a busy machine */
	setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	alarm_in(20, SA_RESTART);
	say("with both", read(fds[0], buf, sizeof(buf)));
	alarm_in(100, 0);
	n = write(fds[0], data, sizeof(data));
	printf("a write that is interrupted: %s\n",
	       n > 0 && n < (long)sizeof(data) ? "a part" : result(n));
	alarm_in(100, 0);
	pthread_create(&thread, NULL, read_later, &fds[1]);
	alarm_in(400, SA_RESTART);
	n = write(fds[0], data, sizeof(data)); /* a part, or all */
	printf("a write with SA_RESTART: %s\n", n > 0 ? "some" : result(n));
	shutdown(fds[0], SHUT_WR);
	pthread_join(thread, NULL);
	for (int i = 0; alarms < 6 && i < 200; i++)
		nap(10); /* the last one rings after the write, if that was quick */
	printf("alarms: %d\n", (int)alarms);
	close(fds[0]);
	close(fds[1]);
}

static void flags(void)
{
	char buf[100];
	int fds[2], n = 0;

	make_pair(fds);
	say("DONTWAIT", recv(fds[1], buf, 10, MSG_DONTWAIT));
	say("MORE", send(fds[0], "abcdef", 6, MSG_MORE));
	say("send", send(fds[0], "ghij", 4, 0));
	nap(50);
	say("PEEK", recv(fds[1], buf, 3, MSG_PEEK));
	say("PEEK", recv(fds[1], buf, 100, MSG_PEEK));
	printf("%.10s\n", buf);
	say("FIONREAD", ioctl(fds[1], FIONREAD, &n));
	printf("%d waiting\n", n);
	say("PEEK and WAITALL", recv(fds[1], buf, 10, MSG_PEEK | MSG_WAITALL));
	say("TRUNC", recv(fds[1], buf, 4, MSG_TRUNC));
	say("recv", recv(fds[1], buf, 100, 0));
	printf("%.6s\n", buf);
	send(fds[0], "12345", 5, 0);
	shutdown(fds[0], SHUT_WR);
	say("WAITALL at the end", recv(fds[1], buf, 100, MSG_WAITALL));
	say("WAITALL behind it", recv(fds[1], buf, 100, MSG_WAITALL));
	say("PEEK behind it", recv(fds[1], buf, 100, MSG_PEEK));
	n = 1;
	say("FIONBIO", ioctl(fds[0], FIONBIO, &n));
	say("read", read(fds[0], buf, 1));
	close(fds[0]);
	close(fds[1]);
}

static void option(int s, const char *name, int level, int what, int value)
{
	int got = -1, set = setsockopt(s, level, what, &value, sizeof(value));
	socklen_t size = sizeof(got);

	printf("%s: set %s", name, result(set));
	printf(", get %s", result(getsockopt(s, level, what, &got, &size)));
	printf(", %d, %u bytes\n", got, size);
}

static void options(void)
{
	int listener = server_socket(5), second, fds[2];
	char device[16] = "";
	socklen_t device_size = sizeof(device);

	option(listener, "SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1);
	option(listener, "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1);
	option(listener, "SO_TYPE", SOL_SOCKET, SO_TYPE, 1);
	option(listener, "SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN, 1);
	option(listener, "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1);
	option(listener, "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77);
	option(listener, "SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3);
	option(listener, "IP_TOS", IPPROTO_IP, IP_TOS, 16);
	option(listener, "nonsense", 1234, 5678, 9);
	say("no device", setsockopt(listener, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
	say("a device", setsockopt(listener, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	second = socket(AF_INET, SOCK_STREAM, 0);
	say("bind to a port in use", bind(second, (struct sockaddr *)&address, sizeof(address)));
	close(second);
	say("listen again", listen(listener, 10));
	fds[0] = client_socket();
	fds[1] = accept(listener, NULL, NULL);
	option(fds[1], "SO_KEEPALIVE inherited", SOL_SOCKET, SO_KEEPALIVE, 1);
	say("the device inherited",
	    getsockopt(fds[1], SOL_SOCKET, SO_BINDTODEVICE, device, &device_size));
	printf("%s\n", device);
	option(fds[0], "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 0);
	option(fds[0], "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1);
	say("bind a connected one", bind(fds[0], (struct sockaddr *)&address, sizeof(address)));
	say("listen on it", listen(fds[0], 5));
	say("accept on it", accept(fds[0], NULL, NULL));
	close(listener);
	close(fds[1]);
	close(fds[0]);
	listener = server_socket(5); /* the same port at once */
	fds[0] = client_socket();
	fds[1] = accept(listener, NULL, NULL);
	say("the same port", write(fds[0], "x", 1));
	close(fds[0]);
	close(fds[1]);
	close(listener);
}

/* Writes much to a reader that sleeps, is stopped, and goes on. */
static void slow_reader(void)
{
	enum { SIZE = 8 << 20 };
	unsigned char *data = pattern(SIZE), *got = malloc(SIZE);
	int listener = server_socket(5), child = fork(), s;
	struct pollfd p;

	if (child == 0) {
		nap(SETTLE_MS);
		s = client_socket();
		nap(200);
		say("read", read_all(s, got, SIZE));
		printf("%x\n", sum(got, SIZE));
		fflush(stdout);
		_exit(0);
	}
	s = accept(listener, NULL, NULL);
	fcntl(s, F_SETFL, O_NONBLOCK);
	while (send(s, data, 0, 0) == 0 && send(s, data, 1, MSG_DONTWAIT) != 1)
		;
	for (long at = 1; at < SIZE;) {
		long n = write(s, data + at, (size_t)(SIZE - at));

		if (n > 0) {
			at += n;
			continue;
		}
		if (errno != EAGAIN)
			say("write", n);
		kill(child, SIGSTOP);
		p = (struct pollfd){ .fd = s, .events = POLLOUT };
		nap(10);
		kill(child, SIGCONT);
		if (poll(&p, 1, 5000) != 1)
			printf("never writable\n");
	}
	waitpid(child, NULL, 0);
	say("end", read(s, got, 1) > 0 ? 1 : 0);
	close(s);
	close(listener);
}

/* Descriptors have the lowest free numbers; a file lies where the program puts it; a number that is
 * closed is closed. */
static void numbers(void)
{
	int spare = open("/dev/null", O_RDONLY), first = spare + 20, fds[2], again[2], files = 0;
	char byte = 'x';

	make_pair(fds);
	printf("low: %d\n", fds[0] < spare + 6 && fds[1] < spare + 6);
	say("close", close(spare));
	say("close again", close(spare));
	spare = open("/proc/self/exe", O_RDONLY);
	for (int fd = first; fd < first + 40; fd++)
		dup2(spare, fd);
	say("write", write(fds[0], &byte, 1));
	say("read", read(fds[1], &byte, 1));
	make_pair(again);
	say("write", write(again[1], &byte, 1));
	say("read", read(again[0], &byte, 1));
	for (int fd = first; fd < first + 40; fd++)
		files += pread(fd, &byte, 1, 1) == 1 && byte == 'E';
	say("files", files);
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		close(again[i]);
	}
}

static const struct program {
	const char *name;
	void (*run)(void);
} programs[] = {
	{ "accept_loop", accept_loop },
	{ "fork_server", fork_server },
	{ "threads", threads },
	{ "linger", linger },
	{ "half_close", half_close },
	{ "select_many", select_many },
	{ "inetd", inetd },
	{ "vectors", vectors },
	{ "send_file", send_file },
	{ "nonblocking", nonblocking },
	{ "signals", signals },
	{ "flags", flags },
	{ "killed", killed },
	{ "exits", exits },
	{ "exits_at_once", exits_at_once },
	{ "listener_ends", listener_ends },
	{ "leaves", leaves },
	{ "sends_nothing", sends_nothing },
	{ "odd_ends", odd_ends },
	{ "options", options },
	{ "slow_reader", slow_reader },
	{ "numbers", numbers },
	{ "edge_client", edge_client },
	{ "execute", execute },
	{ "other_ways", other_ways },
	{ "cancel_deferred", cancel_deferred },
	{ "cancel_at_once", cancel_at_once },
	{ "cancel_busy", cancel_busy },
};

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "executed") == 0)
		return executed(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (argc < 2)
			puts(programs[i].name);
		else if (strcmp(argv[1], programs[i].name) == 0)
			programs[i].run();
	}
	return 0;
}
