/* rmessages.c: so many messages of 8 bytes between two rsockets of one thread, for a tool that
 * counts instructions (bench/instructions).
 *
 * In:    a count    Out: nothing but the exit status
 * Runs:  one thread            Locks: none
 *
 * The two ends answer each other in turn, as `rstream` does. Nothing is polled in vain: what is
 * polled for has been sent before.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <rdma/rsocket.h>

enum { BYTES = 8 };

static void need(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "rmessages: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Both ends of a connection. */
static void connect_pair(int ends[2])
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	socklen_t len = sizeof(name);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);

	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(listener >= 0, "a listener");
	need(rbind(listener, (struct sockaddr *)&name, len) == 0, "binding");
	need(rlisten(listener, 1) == 0, "listening");
	need(rgetsockname(listener, (struct sockaddr *)&name, &len) == 0, "a port");
	ends[0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	need(ends[0] >= 0, "a socket");
	need(rconnect(ends[0], (struct sockaddr *)&name, sizeof(name)) == 0 || errno == EINPROGRESS,
	     "connecting");
	ends[1] = raccept(listener, NULL, NULL);
	need(ends[1] >= 0, "accepting");
	for (int i = 0; i < 2; i++) {
		struct pollfd p = { .fd = ends[i], .events = POLLOUT };

		need(rpoll(&p, 1, -1) == 1 && p.revents == POLLOUT, "a connection");
	}
}

static void talk(int from, int to)
{
	char data[BYTES] = "message";

	need(rsend(from, data, sizeof(data), 0) == sizeof(data), "sending");
	while (rrecv(to, data, sizeof(data), MSG_DONTWAIT) < 0) {
		need(errno == EAGAIN, "receiving");
		sched_yield(); /* the engine's thread has it */
	}
}

int main(int argc, char **argv)
{
	int ends[2], count = argc == 2 ? atoi(argv[1]) : 0;

	if (count < 1) {
		fputs("usage: rmessages COUNT\n", stderr);
		return 2;
	}
	connect_pair(ends);
	for (int i = 0; i < count; i++)
		talk(ends[i & 1], ends[!(i & 1)]);
	return 0;
}
