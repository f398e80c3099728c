/* netlimits.c: what this machine's sockets can do, which the benchmarks across hosts are held
 * against.
 *
 * In:    names of probes
 * Out:   one line each, "name value unit", on standard output
 * Runs:  two processes, pinned to a core each      Locks: none
 *
 * No line of anyverbs is in here: UDP and TCP as any unprivileged program may use them, between two
 * addresses of the loopback interface.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probe.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
	SEGMENT = 4096 + 16, /* a full RoCE packet at MTU 4096: BTH, payload, ICRC */
	BURST = 15 * SEGMENT, /* as many as fit one call */
	WINDOW = 2 * BURST, /* sent and not yet received: what a stock receive buffer holds */
	TCP_WRITE = 64 << 10,
	SMALL = 8,
	LOST_NS = 1000000000, /* what has not come after a second is lost */
};

struct shared {
	_Alignas(64) uint64_t received; /* bytes */
};

struct probe {
	struct shared *shared;
	int here, there; /* sockets, connected to each other */
	char *buffer;
	uint64_t sent;
};

static void set_option(int fd, int level, int option, int value, const char *what)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)) < 0)
		probe_fail(what);
}

static struct sockaddr_in bind_to(int fd, const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t length = sizeof(at);

	inet_pton(AF_INET, address, &at.sin_addr);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &length) < 0)
		probe_fail("bind");
	return at;
}

static void connect_to(int fd, const struct sockaddr_in *to)
{
	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
		probe_fail("connect");
}

static void open_udp(struct probe *p)
{
	struct sockaddr_in here, there;

	p->here = socket(AF_INET, SOCK_DGRAM, 0);
	p->there = socket(AF_INET, SOCK_DGRAM, 0);
	here = bind_to(p->here, "127.0.0.2");
	there = bind_to(p->there, "127.0.0.3");
	connect_to(p->here, &there);
	connect_to(p->there, &here);
}

static void open_stream(struct probe *p)
{
	open_udp(p);
	set_option(p->here, IPPROTO_UDP, UDP_SEGMENT, SEGMENT, "UDP_SEGMENT");
	set_option(p->there, IPPROTO_UDP, UDP_GRO, 1, "UDP_GRO");
}

static void open_tcp(struct probe *p)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = bind_to(listener, "127.0.0.3");

	p->here = socket(AF_INET, SOCK_STREAM, 0);
	bind_to(p->here, "127.0.0.2");
	if (listen(listener, 1) < 0)
		probe_fail("listen");
	connect_to(p->here, &at);
	p->there = accept(listener, NULL, NULL);
	close(listener);
}

/* ---- what the child does ---- */

static void child_stream(struct probe *p)
{
	for (uint64_t received = 0;;) {
		ssize_t n = recv(p->there, p->buffer, BURST, MSG_DONTWAIT);

		if (n > 0)
			__atomic_store_n(&p->shared->received, received += (uint64_t)n,
					 __ATOMIC_RELEASE);
	}
}

static void child_tcp(struct probe *p)
{
	while (recv(p->there, p->buffer, TCP_WRITE, 0) > 0)
		;
}

static void child_echo(struct probe *p)
{
	for (;;)
		if (recv(p->there, p->buffer, SMALL, MSG_DONTWAIT) == SMALL)
			send(p->there, p->buffer, SMALL, 0);
}

static void child_echo_woken(struct probe *p)
{
	for (;;)
		if (recv(p->there, p->buffer, SMALL, 0) == SMALL)
			send(p->there, p->buffer, SMALL, 0);
}

/* ---- what the parent measures ---- */

static void measure_stream(struct probe *p)
{
	uint64_t begin = probe_now_ns();

	while (p->sent - __atomic_load_n(&p->shared->received, __ATOMIC_ACQUIRE) > WINDOW - BURST)
		if (probe_now_ns() - begin > LOST_NS) {
			errno = EIO;
			probe_fail("datagrams were lost");
		}
	if (send(p->here, p->buffer, BURST, 0) != BURST)
		probe_fail("send with UDP_SEGMENT");
	p->sent += BURST;
}

static void measure_tcp(struct probe *p)
{
	if (send(p->here, p->buffer, TCP_WRITE, 0) != TCP_WRITE)
		probe_fail("send");
}

static void measure_echo(struct probe *p)
{
	uint64_t begin = probe_now_ns();

	send(p->here, p->buffer, SMALL, 0);
	while (recv(p->here, p->buffer, SMALL, MSG_DONTWAIT) != SMALL)
		if (probe_now_ns() - begin > LOST_NS)
			probe_fail("an answer was lost");
}

static void measure_echo_woken(struct probe *p)
{
	send(p->here, p->buffer, SMALL, 0);
	if (recv(p->here, p->buffer, SMALL, 0) != SMALL)
		probe_fail("recv");
}

/* ---- the table of probes ---- */

static const struct probe_kind kinds[] = {
	{ "udp_stream", "MiB/s", "UDP with GSO and GRO, full RoCE packets at MTU 4096", open_stream,
	  child_stream, measure_stream, 32, 15 * 4096 / 1048576.0, true },
	{ "tcp_stream", "MiB/s", "TCP, 64 KiB per call", open_tcp, child_tcp, measure_tcp, 64,
	  TCP_WRITE / 1048576.0, true },
	{ "udp_pingpong", "us", "8 bytes of UDP, both sides polling, one way", open_udp, child_echo,
	  measure_echo, 50, 2, false },
	{ "udp_woken", "us", "8 bytes of UDP, both sides sleeping in recv, one way", open_udp,
	  child_echo_woken, measure_echo_woken, 50, 2, false },
};

static void netlimits_begin(struct probe *p)
{
	p->sent = 0;
	p->shared->received = 0;
}

/* Its own copy, and present. */
static void netlimits_enter(struct probe *p)
{
	memset(p->buffer, 2, BURST);
}

static void netlimits_forked(struct probe *p, pid_t child)
{
}

static void netlimits_end(struct probe *p)
{
	close(p->here);
	close(p->there);
}

int main(int argc, char **argv)
{
	static struct probe p;
	const struct probe_program program = {
		.name = "netlimits",
		.about = "Measures what sockets can do here.",
		.ms = 100,
		.kinds = kinds,
		.count = sizeof(kinds) / sizeof(*kinds),
		.probe = &p,
		.begin = netlimits_begin,
		.enter = netlimits_enter,
		.forked = netlimits_forked,
		.end = netlimits_end,
	};

	p.shared = mmap(NULL, sizeof(*p.shared), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p.buffer = malloc(BURST + TCP_WRITE);
	if (p.shared == MAP_FAILED || p.buffer == NULL)
		probe_fail("memory");
	memset(p.buffer, 1, BURST + TCP_WRITE);
	return probe_main(&program, argc, argv);
}
