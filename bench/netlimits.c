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
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
	CHUNKS_MAX = 4096,
	LOST_NS = 1000000000, /* what has not come after a second is lost */
};

struct shared {
	_Alignas(64) uint64_t received; /* bytes */
};

struct probe {
	struct shared *shared;
	int here, there; /* sockets, connected to each other */
	char *buffer;
	uint64_t limit_ns, sent;
	int cpus[2];
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "netlimits: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		fail("cannot pin to a core");
}

static void set_option(int fd, int level, int option, int value, const char *what)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)) < 0)
		fail(what);
}

static struct sockaddr_in bind_to(int fd, const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t length = sizeof(at);

	inet_pton(AF_INET, address, &at.sin_addr);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &length) < 0)
		fail("bind");
	return at;
}

static void connect_to(int fd, const struct sockaddr_in *to)
{
	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
		fail("connect");
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
		fail("listen");
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
	uint64_t begin = now_ns();

	while (p->sent - __atomic_load_n(&p->shared->received, __ATOMIC_ACQUIRE) > WINDOW - BURST)
		if (now_ns() - begin > LOST_NS) {
			errno = EIO;
			fail("datagrams were lost");
		}
	if (send(p->here, p->buffer, BURST, 0) != BURST)
		fail("send with UDP_SEGMENT");
	p->sent += BURST;
}

static void measure_tcp(struct probe *p)
{
	if (send(p->here, p->buffer, TCP_WRITE, 0) != TCP_WRITE)
		fail("send");
}

static void measure_echo(struct probe *p)
{
	uint64_t begin = now_ns();

	send(p->here, p->buffer, SMALL, 0);
	while (recv(p->here, p->buffer, SMALL, MSG_DONTWAIT) != SMALL)
		if (now_ns() - begin > LOST_NS)
			fail("an answer was lost");
}

static void measure_echo_woken(struct probe *p)
{
	send(p->here, p->buffer, SMALL, 0);
	if (recv(p->here, p->buffer, SMALL, 0) != SMALL)
		fail("recv");
}

/* ---- the table of probes ---- */

struct kind {
	const char *name, *unit, *help;
	void (*open)(struct probe *p);
	void (*child)(struct probe *p);
	void (*measure)(struct probe *p);
	int turns;	 /* per chunk */
	double per_turn; /* one-way messages, or MiB of payload, that one turn counts for */
	bool is_bandwidth;
};

static const struct kind kinds[] = {
	{ "udp_stream", "MiB/s", "UDP with GSO and GRO, full RoCE packets at MTU 4096", open_stream,
	  child_stream, measure_stream, 32, 15 * 4096 / 1048576.0, true },
	{ "tcp_stream", "MiB/s", "TCP, 64 KiB per call", open_tcp, child_tcp, measure_tcp, 64,
	  TCP_WRITE / 1048576.0, true },
	{ "udp_pingpong", "us", "8 bytes of UDP, both sides polling, one way", open_udp, child_echo,
	  measure_echo, 50, 2, false },
	{ "udp_woken", "us", "8 bytes of UDP, both sides sleeping in recv, one way", open_udp,
	  child_echo_woken, measure_echo_woken, 50, 2, false },
};

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median chunk, so that an interrupt or another process on the core does not count. */
static double measure_median(const struct kind *k, struct probe *p)
{
	static uint64_t chunk_ns[CHUNKS_MAX];
	uint64_t begin = now_ns(), last = begin;
	size_t n = 0;

	while (n < CHUNKS_MAX && last - begin < p->limit_ns) {
		for (int i = 0; i < k->turns; i++)
			k->measure(p);
		chunk_ns[n] = now_ns() - last;
		last += chunk_ns[n++];
	}
	qsort(chunk_ns, n, sizeof(*chunk_ns), compare);
	return (double)chunk_ns[n / 2] / (k->turns * k->per_turn);
}

static void probe_run(const struct kind *k, struct probe *p)
{
	double median_ns, value;
	pid_t child;

	p->sent = 0;
	p->shared->received = 0;
	k->open(p);
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(p->cpus[1]);
		memset(p->buffer, 2, BURST); /* its own copy, and present */
		k->child(p);
		_exit(0);
	}
	for (int i = 0; i < k->turns; i++)
		k->measure(p);
	median_ns = measure_median(k, p);
	value = k->is_bandwidth ? 1e9 / median_ns : median_ns / 1e3;
	printf("%s %.4f %s\n", k->name, value, k->unit);
	fflush(stdout);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(p->here);
	close(p->there);
}

static void usage(FILE *to)
{
	fprintf(to, "usage: netlimits [--ms N] [--cpus A,B] NAME...\n\n"
		    "Measures what sockets can do here. --ms: how long each takes (100). Names:\n");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		fprintf(to, "  %-17s %-6s %s\n", kinds[i].name, kinds[i].unit, kinds[i].help);
}

static const struct kind *kind_find(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	fprintf(stderr, "netlimits: no such probe: %s\n", name);
	usage(stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	struct probe p = { .limit_ns = 100 * 1000000ull, .cpus = { 0, 1 } };
	int i = 1;

	for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
		if (strcmp(argv[i], "--ms") == 0)
			p.limit_ns = strtoull(argv[i + 1], NULL, 10) * 1000000ull;
		else if (strcmp(argv[i], "--cpus") != 0 ||
			 sscanf(argv[i + 1], "%d,%d", &p.cpus[0], &p.cpus[1]) != 2)
			break;
	}
	if (i >= argc || argv[i][0] == '-') {
		int asked = i < argc && strcmp(argv[i], "--help") == 0;

		usage(asked ? stdout : stderr);
		return asked ? 0 : 2;
	}
	p.shared = mmap(NULL, sizeof(*p.shared), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p.buffer = malloc(BURST + TCP_WRITE);
	if (p.shared == MAP_FAILED || p.buffer == NULL)
		fail("memory");
	memset(p.buffer, 1, BURST + TCP_WRITE);
	pin(p.cpus[0]);
	for (; i < argc; i++)
		probe_run(kind_find(argv[i]), &p);
	return 0;
}
