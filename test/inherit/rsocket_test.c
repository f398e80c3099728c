/* rsocket_test.c: every call of rsockets of a forked child on an rsocket of its parent in each
 * state, and on a set of repoll_create.
 * In:    -    Out: the exit status
 * Runs:  one thread and a peer's; a child for each call    Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "inherit.h"

int repoll_create(int flags);
int repoll_ctl(int set, int op, int fd, struct epoll_event *event);
int repoll_wait(int set, struct epoll_event *events, int max, int timeout_ms);

enum { NEW, BOUND, LISTENING, CLIENT, SERVER, SHUT, DATAGRAM, DATAGRAM_TO, SET, SOCKETS };
enum { WAIT_MS = 20000, BYTES = 4096 };

static const char *const names[SOCKETS] = {
	"new rsocket",	    "bound rsocket",	 "listener",	     "client",
	"server",	    "shut rsocket",	 "datagram rsocket", "connected datagram rsocket",
	"set of rsockets",
};
static int fds[SOCKETS];
static struct sockaddr_in at[SOCKETS];
static uint8_t mapped[BYTES] __attribute__((aligned(4096)));
static off_t mapping;

static void await(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	must(rpoll(&p, 1, WAIT_MS) == 1);
}

/* A connection to the listener; rconnect waits for raccept. */
static void *connecting(void *arg)
{
	must(rconnect(*(int *)arg, (struct sockaddr *)&at[LISTENING], sizeof(at[0])) == 0);
	return NULL;
}

static int join(int *client)
{
	pthread_t thread;
	int server, maps = 4;

	*client = rsocket(AF_INET, SOCK_STREAM, 0);
	must(*client >= 0);
	must(rsetsockopt(*client, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof(maps)) == 0);
	must(pthread_create(&thread, NULL, connecting, client) == 0);
	server = raccept(fds[LISTENING], NULL, NULL);
	must(server >= 0 && pthread_join(thread, NULL) == 0);
	return server;
}

static void bind_to(int which, int type)
{
	socklen_t size = sizeof(at[0]);

	at[which] = (struct sockaddr_in){ .sin_family = AF_INET };
	at[which].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fds[which] = rsocket(AF_INET, type, 0);
	must(fds[which] >= 0);
	must(rbind(fds[which], (struct sockaddr *)&at[which], size) == 0);
	must(rgetsockname(fds[which], (struct sockaddr *)&at[which], &size) == 0);
}

static void bed_make(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	char bytes[5];
	int peer;

	fds[NEW] = rsocket(AF_INET, SOCK_STREAM, 0);
	bind_to(BOUND, SOCK_STREAM);
	bind_to(LISTENING, SOCK_STREAM);
	must(rlisten(fds[LISTENING], 8) == 0);
	fds[SERVER] = join(&fds[CLIENT]);
	mapping = riomap(fds[SERVER], mapped, BYTES, PROT_WRITE, 0, -1);
	must(mapping != -1 && rsend(fds[SERVER], "hello", 5, 0) == 5);
	await(fds[CLIENT], POLLIN); /* it knows the map from here on */
	must(rrecv(fds[CLIENT], bytes, 5, 0) == 5);
	must(riowrite(fds[CLIENT], "hello", 5, mapping, 0) == 5);
	fds[SHUT] = join(&peer);
	must(rshutdown(fds[SHUT], SHUT_RDWR) == 0 && rclose(peer) == 0);
	bind_to(DATAGRAM, SOCK_DGRAM);
	bind_to(DATAGRAM_TO, SOCK_DGRAM);
	must(rconnect(fds[DATAGRAM_TO], (struct sockaddr *)&at[DATAGRAM], sizeof(at[0])) == 0);
	fds[SET] = repoll_create(0);
	must(fds[SET] >= 0 && repoll_ctl(fds[SET], EPOLL_CTL_ADD, fds[SERVER], &event) == 0);
	/* so that reads have something to find */
	must(rsend(fds[CLIENT], "hello", 5, 0) == 5);
	await(fds[SERVER], POLLIN);
}

static void bed_works(const char *after)
{
	char bytes[16];

	must(rsend(fds[CLIENT], "hello", 5, 0) == 5);
	await(fds[SERVER], POLLIN);
	if (rrecv(fds[SERVER], bytes, 5, 0) != 5 || memcmp(bytes, "hello", 5) != 0) {
		fprintf(stderr, "the parent's connection after %s\n", after);
		must(false);
	}
	must(rsend(fds[DATAGRAM_TO], "hello", 5, 0) == 5);
	await(fds[DATAGRAM], POLLIN);
	must(rrecv(fds[DATAGRAM], bytes, sizeof(bytes), 0) == 5);
}

static void bed_attach(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in any = { .sin_family = AF_INET };

	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(fd >= 0 && rbind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	must(rlisten(fd, 1) == 0 && rclose(fd) == 0);
}

static int poll_one(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };

	return rpoll(&p, 1, timeout_ms) == 1 && (p.revents & POLLNVAL) != 0 ? EBADF : 0;
}

static int select_one(int fd, bool waits)
{
	struct timeval none = { 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return rselect(fd + 1, &set, NULL, NULL, waits ? NULL : &none);
}

static int add(int set, int op, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return repoll_ctl(set, op, fd, &event);
}

static void calls_of_options(int fd, bool stream)
{
	socklen_t size = sizeof(struct sockaddr_in);
	struct sockaddr_in sin;
	int value = 1;

	CALL(EBADF, rgetpeername(fd, (struct sockaddr *)&sin, &size));
	CALL(EBADF, rgetsockname(fd, (struct sockaddr *)&sin, &size));
	CALL(EBADF, rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof(value)));
	CALL(EBADF, rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value)));
	CALL(EBADF, rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, sizeof(value)));
	CALL(EBADF, rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &size));
	CALL(EBADF, rfcntl(fd, F_GETFL));
	CALL(EBADF, rfcntl(fd, F_SETFL, O_NONBLOCK));
	CALL(ANY, poll_one(fd, stream ? -1 : 0));
	CALL(ANY, select_one(fd, stream));
	CALL(EBADF, riomap(fd, mapped, BYTES, PROT_WRITE, 0, -1));
	CALL(EBADF, riounmap(fd, mapped, BYTES));
	CALL(EBADF, (int)riowrite(fd, mapped, 8, mapping, 0));
	CALL(EBADF, add(fds[SET], EPOLL_CTL_ADD, fd));
	CALL(EBADF, add(fds[SET], EPOLL_CTL_MOD, fd));
	CALL(EBADF, add(fds[SET], EPOLL_CTL_DEL, fd));
}

static void calls_of_socket(int fd, struct sockaddr *to, bool stream)
{
	socklen_t size = sizeof(struct sockaddr_in);
	struct sockaddr_in sin;
	char bytes[16] = "hello";
	struct iovec iov = { bytes, 5 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	CALL(EBADF, rbind(fd, to, size));
	CALL(EBADF, rlisten(fd, 1));
	CALL(EBADF, raccept(fd, NULL, NULL));
	CALL(EBADF, rconnect(fd, to, size));
	CALL(EBADF, (int)rrecv(fd, bytes, 5, 0));
	CALL(EBADF, (int)rrecvfrom(fd, bytes, 5, 0, (struct sockaddr *)&sin, &size));
	CALL(EBADF, (int)rrecvmsg(fd, &msg, 0));
	CALL(EBADF, (int)rread(fd, bytes, 5));
	CALL(EBADF, (int)rreadv(fd, &iov, 1));
	CALL(EBADF, (int)rsend(fd, bytes, 5, 0));
	CALL(EBADF, (int)rsendto(fd, bytes, 5, 0, to, sizeof(struct sockaddr_in)));
	CALL(EBADF, (int)rsendmsg(fd, &msg, 0));
	CALL(EBADF, (int)rwrite(fd, bytes, 5));
	CALL(EBADF, (int)rwritev(fd, &iov, 1));
	CALL(EBADF, rshutdown(fd, SHUT_RDWR));
	CALL(0, rclose(fd));
	CALL(0, rclose(fd) + rclose(rsocket(AF_INET, SOCK_STREAM, 0)));
	CALL(0, close(fd));
	calls_of_options(fd, stream);
}

static void calls(void)
{
	struct epoll_event event;

	for (int i = 0; i < SET; i++) {
		inherit_about(names[i]);
		calls_of_socket(fds[i],
				(struct sockaddr *)&at[i == DATAGRAM ? DATAGRAM_TO : LISTENING],
				i < DATAGRAM);
	}
	inherit_about(names[SET]);
	CALL(EBADF, repoll_wait(fds[SET], &event, 1, -1));
	CALL(0, rclose(fds[SET]));
}

int main(void)
{
	static const struct inherit_bed kit = {
		.last = ATTACHED, .attach = bed_attach, .works = bed_works
	};
	int status;

	bed_make();
	status = inherit_run(&kit, calls);
	for (int i = 0; i < SOCKETS; i++)
		must(rclose(fds[i]) == 0);
	return status;
}
