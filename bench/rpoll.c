/* rpoll.c: what a wake-up costs with many rsockets in one rpoll, beside poll over as many TCP
 * connections. A second process sends a byte on one of them, the first wakes, finds it, and
 * answers. Prints the ratio of the two times, and both.
 * usage: rpoll [CONNECTIONS]
 * In:    -    Out: `name value unit` lines    Runs: two processes with a thread each
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

enum { CONNECTIONS = 1000, ROUNDS = 1000, BLOCKS = 5, DESCRIPTORS = 16384 };

/* The same calls of sockets and of rsockets. */
static const struct api {
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int fd, const struct sockaddr *addr, socklen_t len);
	int (*listen)(int fd, int backlog);
	int (*accept)(int fd, struct sockaddr *addr, socklen_t *len);
	int (*connect)(int fd, const struct sockaddr *addr, socklen_t len);
	int (*name)(int fd, struct sockaddr *addr, socklen_t *len);
	ssize_t (*send)(int fd, const void *data, size_t bytes, int flags);
	ssize_t (*recv)(int fd, void *data, size_t bytes, int flags);
	int (*poll)(struct pollfd *fds, nfds_t count, int timeout);
} apis[] = {
	{ socket, bind, listen, accept, connect, getsockname, send, recv, poll },
	{ rsocket, rbind, rlisten, raccept, rconnect, rgetsockname, rsend, rrecv, rpoll },
};

static struct pollfd fds[2][CONNECTIONS];
static int count = CONNECTIONS;

static void need(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "rpoll: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void accept_all(const struct api *api, struct pollfd *to, int pipe_fd)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	socklen_t len = sizeof(name);
	int listener = api->socket(AF_INET, SOCK_STREAM, 0);

	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(listener >= 0, "a listener");
	need(api->bind(listener, (struct sockaddr *)&name, len) == 0, "binding");
	need(api->listen(listener, count) == 0, "listening");
	need(api->name(listener, (struct sockaddr *)&name, &len) == 0, "a port");
	need(write(pipe_fd, &name.sin_port, 2) == 2, "the pipe");
	for (int i = 0; i < count; i++) {
		to[i].fd = api->accept(listener, NULL, NULL);
		to[i].events = POLLIN;
		need(to[i].fd >= 0, "accepting");
	}
}

static void connect_all(const struct api *api, struct pollfd *to, int pipe_fd)
{
	struct sockaddr_in name = { .sin_family = AF_INET };

	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(read(pipe_fd, &name.sin_port, 2) == 2, "the pipe");
	for (int i = 0; i < count; i++) {
		to[i].fd = api->socket(AF_INET, SOCK_STREAM, 0);
		need(to[i].fd >= 0, "a socket");
		need(api->connect(to[i].fd, (struct sockaddr *)&name, sizeof(name)) == 0,
		     "connecting");
	}
}

/* The one who is woken: microseconds per round. */
static double answer(const struct api *api, struct pollfd *in)
{
	double begin = now_us();
	char byte;

	for (int round = 0; round < ROUNDS; round++) {
		int at = 0;

		need(api->poll(in, (nfds_t)count, -1) == 1, "polling");
		while (!(in[at].revents & POLLIN))
			at++;
		need(api->recv(in[at].fd, &byte, 1, 0) == 1, "receiving");
		need(api->send(in[at].fd, &byte, 1, 0) == 1, "sending");
	}
	return (now_us() - begin) / ROUNDS;
}

static void ask(const struct api *api, const struct pollfd *on)
{
	char byte = 0;

	for (int round = 0; round < ROUNDS; round++) {
		int fd = on[random() % count].fd;

		need(api->send(fd, &byte, 1, 0) == 1, "sending");
		need(api->recv(fd, &byte, 1, 0) == 1, "receiving");
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void child(int pipe_fd)
{
	for (int kind = 0; kind < 2; kind++)
		connect_all(&apis[kind], fds[kind], pipe_fd);
	for (int block = 0; block <= BLOCKS; block++)
		for (int kind = 0; kind < 2; kind++)
			ask(&apis[kind], fds[kind]);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct rlimit limit = { DESCRIPTORS, DESCRIPTORS };
	double us[2][BLOCKS + 1];
	int ends[2], status;
	pid_t pid;

	if (argc > 1)
		count = atoi(argv[1]);
	need(count > 0 && count <= CONNECTIONS, "so many connections");
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	need(pipe(ends) == 0, "a pipe");
	pid = fork();
	need(pid >= 0, "forking");
	if (pid == 0)
		child(ends[0]);
	for (int kind = 0; kind < 2; kind++)
		accept_all(&apis[kind], fds[kind], ends[1]);
	for (int block = 0; block <= BLOCKS; block++) /* the first warms up */
		for (int kind = 0; kind < 2; kind++)
			us[kind][block] = answer(&apis[kind], fds[kind]);
	need(waitpid(pid, &status, 0) == pid && status == 0, "the other process");
	for (int kind = 0; kind < 2; kind++)
		qsort(us[kind] + 1, BLOCKS, sizeof(double), compare);
	printf("poll_us %.3f us\n", us[0][1 + BLOCKS / 2]);
	printf("rpoll_us %.3f us\n", us[1][1 + BLOCKS / 2]);
	printf("rpoll_per_poll %.3f x\n", us[1][1 + BLOCKS / 2] / us[0][1 + BLOCKS / 2]);
	return 0;
}
