/* habits_ends.c: careless programs whose peer ends without closing its sockets.
 * In: -    Out: a trace, as of habits.c    Runs: a process, and a forked one
 */
#include "habits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The other side dies, and its kernel ends the stream: how a write hears of it may differ. */
void killed(void)
{
	static unsigned char data[1 << 20];
	int listener = server_socket(5), child = fork(), s;
	struct pollfd p;
	long n = 1, got = 0;

	if (child == 0) {
		nap(SETTLE_MS);
		s = client_socket();
		write_all(s, data, 100000);
		pause();
	}
	signal(SIGPIPE, SIG_IGN);
	s = accept(listener, NULL, NULL);
	while (got < 100000 && (n = read(s, data, sizeof(data))) > 0)
		got += n;
	printf("%ld bytes\n", got);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	p = (struct pollfd){ .fd = s, .events = POLLIN };
	printf("poll: %s", result(poll(&p, 1, 5000)));
	printf("%s\n", p.revents & POLLIN ? " IN" : "");
	say("read", read(s, data, 10));
	for (int i = 0; i < 1000 && n > 0; i++) {
		n = write(s, data, sizeof(data));
		nap(1);
	}
	printf("write: %s\n", end_of(n));
	printf("write again: %s\n", end_of(write(s, data, 10)));
	printf("read: %s\n", end_of(read(s, data, 10)));
	close(s);
	close(listener);
}

/* Processes that end by _exit and leave the closing to the kernel, as those of Python's
 * multiprocessing and the children of servers do. */
void exits(void)
{
	static unsigned char data[10000];
	int listener = server_socket(5), s;
	struct pollfd p;
	pid_t child;

	for (int i = 0; i < 4; i++) {
		child = fork();
		if (child == 0) {
			nap(SETTLE_MS);
			s = client_socket();
			write_all(s, data, i & 1 ? sizeof(data) : 1);
			if (i & 2)
				read_all(s, data, 1);
			_exit(i);
		}
		s = accept(listener, NULL, NULL);
		if (i & 2)
			say("write", write(s, data, 1));
		say("read", read_all(s, data, i & 1 ? sizeof(data) : 1));
		p = (struct pollfd){ .fd = s, .events = POLLIN | POLLRDHUP };
		say("poll", poll(&p, 1, 5000));
		printf("%x\n", p.revents);
		say("read", read(s, data, 1));
		say("read again", read(s, data, 1));
		waitpid(child, NULL, 0);
		close(s);
	}
	close(listener);
}

/* ---- _exit right after a write ---- */

enum { LAST_BYTES = 4 << 20, LAST_MS = 3 };

static int last_socket;

static void on_signal(int number)
{
	(void)number;
	_exit(7);
}

/* The kernel has ended this thread with the process: it says nothing. */
static void *last_reader(void *arg)
{
	char byte;

	(void)arg;
	say("a thread of the dead", read(last_socket, &byte, 1));
	return NULL;
}

/* A child writes much, and ends: by _exit, as one with O_NONBLOCK, in a signal handler, beside a
 * thread that reads, by exit. */
static void last_words(int how)
{
	unsigned char *data = pattern(LAST_BYTES);
	pthread_t thread;

	nap(SETTLE_MS);
	last_socket = client_socket();
	if (how == 3)
		pthread_create(&thread, NULL, last_reader, NULL);
	nap(LAST_MS);
	write_all(last_socket, data, LAST_BYTES);
	if (how == 1 || how == 4)
		fcntl(last_socket, F_SETFL, O_NONBLOCK);
	if (how == 4)
		exit(7);
	if (how != 2)
		_exit(7);
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
}

void exits_at_once(void)
{
	unsigned char *data = malloc(LAST_BYTES);
	int listener = server_socket(5), s, status;
	pid_t child;

	for (int how = 0; how < 5; how++) {
		child = fork();
		if (child == 0)
			last_words(how);
		s = accept(listener, NULL, NULL);
		memset(data, 0, LAST_BYTES);
		say("read", read_all(s, data, LAST_BYTES));
		printf("%x\n", sum(data, LAST_BYTES));
		say("the end", read(s, data, 1));
		waitpid(child, &status, 0);
		printf("%x\n", status);
		close(s);
	}
	close(listener);
	free(data);
}

/* ---- listeners ---- */

struct accepting {
	int fd, got, error;
};

static void *accepts(void *arg)
{
	struct accepting *a = arg;

	a->got = accept(a->fd, NULL, NULL);
	a->error = errno;
	return NULL;
}

/* A server that is told to stop: shutdown() of the listener has its threads leave accept(). */
void listener_ends(void)
{
	int listener = server_socket(5), s = client_socket(), c = accept(listener, NULL, NULL);
	struct accepting a[2] = { { .fd = listener }, { .fd = listener } };
	struct pollfd p = { .fd = listener, .events = POLLIN };
	socklen_t size = sizeof(address);
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, accepts, &a[i]);
	nap(SETTLE_MS);
	say("shutdown WR", shutdown(listener, SHUT_WR));
	say("shutdown RD", shutdown(listener, SHUT_RD));
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		errno = a[i].error;
		say("accept", a[i].got);
	}
	say("accept again", accept(listener, NULL, NULL));
	say("poll", poll(&p, 1, 0));
	say("shutdown again", shutdown(listener, SHUT_RD));
	say("write", write(s, "x", 1));
	close(s);
	s = socket(AF_INET, SOCK_STREAM, 0);
	say("connect", connect(s, (struct sockaddr *)&address, sizeof(address)));
	close(s);
	close(c);
	say("listen", listen(listener, 5));
	getsockname(listener, (struct sockaddr *)&address, &size); /* another port */
	s = client_socket();
	c = accept(listener, NULL, NULL);
	say("write", write(s, "x", 1));
	close(s);
	close(c);
	close(listener);
}

/* A client that leaves its server by connect(AF_UNSPEC), and comes back with the same socket. */
void leaves(void)
{
	static const struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
	int listener = server_socket(5), s = client_socket(), c = accept(listener, NULL, NULL);
	int copy = dup(s), one = 1;
	socklen_t size = sizeof(one);
	char byte = 'x';

	signal(SIGPIPE, SIG_IGN);
	setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	say("leave", connect(s, &nowhere, sizeof(nowhere)));
	say("read of the peer", read(c, &byte, 1));
	say("read of the peer again", read(c, &byte, 1));
	close(c);
	printf("write: %s\n", end_of(write(s, &byte, 1)));
	say("leave again", connect(copy, &nowhere, sizeof(nowhere)));
	say("too short", connect(copy, &nowhere, 1));
	say("connect", connect(copy, (struct sockaddr *)&address, sizeof(address)));
	c = accept(listener, NULL, NULL);
	say("write", write(s, &byte, 1));
	say("read", read(c, &byte, 1));
	one = 0;
	say("option", getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, &size));
	printf("%d\n", one);
	close(s);
	close(copy);
	close(c);
	close(listener);
}

/* Sending nothing says whether the stream can still be sent to. */
void sends_nothing(void)
{
	struct iovec none = { NULL, 0 };
	struct msghdr msg = { .msg_iov = &none, .msg_iovlen = 1 };
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	make_pair(fds);
	say("write", write(fds[0], "", 0));
	say("send", send(fds[0], "", 0, 0));
	say("sendmsg", sendmsg(fds[0], &msg, 0));
	say("shutdown", shutdown(fds[0], SHUT_WR));
	say("write", write(fds[0], "", 0));
	say("send", send(fds[0], "", 0, MSG_NOSIGNAL));
	say("sendmsg", sendmsg(fds[0], &msg, 0));
	say("writev", writev(fds[0], &none, 1));
	close(fds[0]);
	close(fds[1]);
}

/* Descriptors that end by a call that is rare, and some that a wrong call leaves open. */
void odd_ends(void)
{
	int spare = open("/dev/null", O_RDONLY), fds[2];
	char byte = 'x';

	make_pair(fds);
	say("dup3 with wrong flags", dup3(spare, fds[0], O_APPEND));
	say("close_range with wrong flags", close_range((unsigned)fds[0], (unsigned)fds[0], 1024));
	say("write", write(fds[0], &byte, 1));
	say("read", read(fds[1], &byte, 1));
	say("close_range", close_range((unsigned)fds[0], (unsigned)fds[0], CLOSE_RANGE_UNSHARE));
	say("read the end", read(fds[1], &byte, 1));
	printf("the number again: %d\n", dup2(spare, fds[0]) == fds[0]);
	say("read a file", read(fds[0], &byte, 1));
	close(fds[0]);
	close(fds[1]);
	close(spare);
}
