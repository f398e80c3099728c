/* main.c: anyverbs-ipoib: an IPoIB interface of a host of the fabric, while it runs. `anyverbs
 * ipoib up` starts it, with ANYVERBS_HOST and ANYVERBS_NODE set.
 * In:    arguments, packets of the kernel, what the kernel says    Out: packets, settings
 * Runs:  the main thread (signals, the kernel's news), one that reads packets; threads of IPoIB
 * Locks: none of its own
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "host/route.h"
#include "tool.h"

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_MTU = 2044, TOOL_LINK_S = 10 };
/* As many as a receiver has requests posted: a longer queue moves the loss there. TCP cannot tell
 * how full it is, and fills the 500 that TUN devices have. */
enum { TOOL_QUEUE = 1024 };

static struct tool {
	struct tool_options o;
	struct ipoib *ip;
	u32 ifindex;
	int tun, news, ready; /* ready: the parent waits at it; -1: nobody does */
	bool gone;	      /* the device; set before news */
	pthread_t reader;
	struct ipoib_prefix local; /* the link-local address of IPv6 that is set; bits 0: none */
	u32 mtu_most, mtu;	   /* the link's; what the interface has */
} tool = { .tun = -1, .news = -1, .ready = -1, .mtu_most = TOOL_MTU, .mtu = TOOL_MTU };

/* ---- becoming a daemon ----------------------------------------------------------------------- */

/* Tells the parent, once. */
static void tool_say_ready(char how)
{
	int fd = __atomic_exchange_n(&tool.ready, -1, __ATOMIC_ACQ_REL);

	if (fd < 0)
		return;
	while (write(fd, &how, 1) < 0 && errno == EINTR)
		;
	close(fd);
}

static void tool_say_no_link(void)
{
	char partition[64] = "";

	if (tool.o.ib.pkey != 0)
		snprintf(partition, sizeof(partition), " or is not in the partition 0x%04x,",
			 tool.o.ib.pkey);
	fprintf(stderr,
		"anyverbs: ipoib: %s is there, but has no link yet: its port is not active,%s or "
		"no subnet manager answers\n",
		tool.o.name, partition);
}

/* The parent ends when the child says so, or has ended. */
static int tool_wait_for(int fd, pid_t child)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char how = 'x';
	int status;

	if (poll(&p, 1, TOOL_LINK_S * 1000) == 0)
		how = '-';
	else if (read(fd, &how, 1) != 1)
		how = 'x';
	if (how == '-')
		tool_say_no_link();
	if (how != 'x')
		return TOOL_OK;
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status)
									: TOOL_FAILED;
}

/* Returns in the child; standard error stays open until the interface is there. */
static void tool_detach(void)
{
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) != 0 || (child = fork()) < 0) {
		fprintf(stderr, "anyverbs: ipoib: %s\n", strerror(errno));
		exit(TOOL_FAILED);
	}
	if (child != 0) {
		close(ends[1]);
		_exit(tool_wait_for(ends[0], child));
	}
	close(ends[0]);
	tool.ready = ends[1];
	setsid();
}

static void tool_quiet(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		if (fd != 2 || getenv("ANYVERBS_LOG") == NULL)
			(void)dup2(null, fd);
	if (chdir("/") != 0)
		return;
}

/* ---- what IPoIB asks of the kernel ----------------------------------------------------------- */

static void tool_receive(void *arg, const void *packet, u32 size)
{
	(void)arg;
	/* an interface that is set down takes none */
	if (write(tool.tun, packet, size) < 0)
		return;
}

/* The link-local address of the port: RFC 4391, 8. */
static void tool_set_local(const struct ipoib_hw *own)
{
	struct ipoib_prefix local = { .ip = { 0xfe, 0x80 }, .bits = 64 };

	memcpy(local.ip + 8, ipoib_hw_gid(own) + 8, 8);
	local.ip[8] |= 2;
	if (tool.local.bits != 0 && memcmp(&tool.local, &local, sizeof(local)) != 0)
		(void)link_del_address(tool.ifindex, &tool.local);
	tool.local = local;
	(void)link_add_address(tool.ifindex, &local); /* a kernel without IPv6 takes none */
}

/* The interface follows the link's MTU, unless somebody has given it a smaller one. */
static void tool_set_mtu_most(u32 most)
{
	u32 before = __atomic_exchange_n(&tool.mtu_most, most, __ATOMIC_ACQ_REL);
	u32 now = __atomic_load_n(&tool.mtu, __ATOMIC_ACQUIRE);

	if (now == before || now > most)
		(void)link_set_mtu(tool.ifindex, most);
}

/* A larger one would lose packets: the kernel's own IPoIB refuses it. */
static void tool_heed_mtu(u32 now)
{
	u32 most = __atomic_load_n(&tool.mtu_most, __ATOMIC_ACQUIRE);

	if (now == 0)
		return;
	__atomic_store_n(&tool.mtu, now, __ATOMIC_RELEASE);
	if (now > most)
		(void)link_set_mtu(tool.ifindex, most);
}

static void tool_link(void *arg, bool up, const struct ipoib_hw *own, u32 mtu)
{
	(void)arg;
	if (up) {
		tool_set_mtu_most(mtu);
		(void)link_set_name(tool.ifindex, own, tool.o.host, &tool.o.ib);
		tool_set_local(own);
	}
	tun_carrier(tool.tun, up);
	if (up)
		tool_say_ready('+');
}

static void tool_neighbour(void *arg, const u8 ip[16], const struct ipoib_hw *hw)
{
	(void)arg;
	(void)link_neighbour(tool.ifindex, ip, hw != NULL ? ipoib_hw_gid(hw) : NULL);
}

static int tool_next_hop(void *arg, const u8 to[16], u8 next[16])
{
	struct host_route route;
	int err = host_route_find(to, NULL, tool.ifindex, &route);

	(void)arg;
	if (err == 0)
		memcpy(next, route.next, 16);
	return err;
}

static void tool_news(void)
{
	u64 one = 1;

	if (write(tool.news, &one, sizeof(one)) < 0)
		return; /* it is full of news already */
}

/* Also in ipoib_close, when nobody reads it. */
static void tool_gone(void *arg)
{
	(void)arg;
	__atomic_store_n(&tool.gone, true, __ATOMIC_RELEASE);
	tool_news();
}

static const struct ipoib_ops tool_ops = { .receive = tool_receive,
					   .link = tool_link,
					   .neighbour = tool_neighbour,
					   .next_hop = tool_next_hop,
					   .gone = tool_gone };

/* ---- the two threads ------------------------------------------------------------------------- */

static void *tool_read(void *arg)
{
	struct ipoib_buffer *b = ipoib_get(tool.ip);

	(void)arg;
	pthread_setname_np(pthread_self(), "ipoib/tun");
	for (;;) {
		ssize_t n = read(tool.tun, ipoib_packet(b), IPOIB_MTU);

		if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EIO))
			continue;
		if (n <= 0)
			break; /* the interface has been deleted */
		if (watch_is_report(ipoib_packet(b), (u32)n))
			tool_news();
		ipoib_send(tool.ip, b, (u32)n);
		b = ipoib_get(tool.ip);
	}
	kill(getpid(), SIGTERM);
	return NULL;
}

static void tool_look(void)
{
	static struct ipoib_prefix prefix[IPOIB_PREFIXES];
	static u8 group[IPOIB_GROUPS][16];
	u32 count = watch_addresses(tool.ifindex, prefix, IPOIB_PREFIXES);

	ipoib_set_addresses(tool.ip, prefix, count);
	ipoib_set_groups(tool.ip, (const u8(*)[16])group,
			 watch_groups(tool.ifindex, group, IPOIB_GROUPS));
}

/* Until a signal ends it, or the interface or the device is gone. TOOL_FAILED: the device. */
static int tool_run(int signals, int watch)
{
	struct pollfd fds[3] = { { signals, POLLIN, 0 },
				 { watch, POLLIN, 0 },
				 { tool.news, POLLIN, 0 } };
	struct watch_news news = { .gone = false };
	u64 seen;

	while (!news.gone) {
		tool_look();
		/* a group that the kernel does not report: 1 s */
		if (poll(fds, 3, 1000) < 0 && errno != EINTR)
			return TOOL_OK;
		if ((fds[0].revents & POLLIN) != 0)
			return TOOL_OK;
		if ((fds[2].revents & POLLIN) != 0 && read(tool.news, &seen, sizeof(seen)) < 0)
			return TOOL_OK;
		if (__atomic_load_n(&tool.gone, __ATOMIC_ACQUIRE))
			return TOOL_FAILED;
		if ((fds[1].revents & POLLIN) == 0)
			continue;
		if (watch_read(watch, tool.ifindex, &news))
			ipoib_routes_changed(tool.ip);
		tool_heed_mtu(news.mtu);
		if (news.link_up)
			ipoib_tell_again(tool.ip);
	}
	return TOOL_OK;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int tool_usage(const char *why, const char *what)
{
	fprintf(stderr, "anyverbs: ipoib: %s%s; see `anyverbs help ipoib`\n", why, what);
	exit(TOOL_USAGE);
}

static void tool_take_address(const char *words)
{
	struct ipoib_prefix *a = &tool.o.address[tool.o.address_count];
	bool v4 = strchr(words, ':') == NULL;
	unsigned long bits = v4 ? 32 : 128;
	char text[64], *slash, *end = NULL;

	snprintf(text, sizeof(text), "%s", words);
	slash = strchr(text, '/');

	if (tool.o.address_count == TOOL_ADDRESSES)
		tool_usage("too many addresses", "");
	if (slash != NULL) {
		*slash = '\0';
		bits = strtoul(slash + 1, &end, 10);
	}
	memset(a, 0, sizeof(*a));
	if (v4)
		a->ip[10] = a->ip[11] = 0xff;
	if ((end != NULL && (*end != '\0' || end == slash + 1)) || bits > (v4 ? 32 : 128) ||
	    inet_pton(v4 ? AF_INET : AF_INET6, text, v4 ? a->ip + 12 : a->ip) != 1)
		tool_usage("no address with a prefix length, as in 10.1.0.1/24: ", words);
	a->bits = (u8)(bits + (v4 ? 96 : 0));
	tool.o.address_count++;
}

static unsigned long tool_number(const char *text, unsigned long min, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);

	if (end == text || *end != '\0' || n < min || n > max)
		tool_usage("no such number: ", text);
	return n;
}

static void tool_options(int argc, char **argv)
{
	static const struct option options[] = { { "host", 1, NULL, 'H' },
						 { "name", 1, NULL, 'n' },
						 { "netns", 1, NULL, 'N' },
						 { "device", 1, NULL, 'd' },
						 { "port", 1, NULL, 'p' },
						 { "pkey", 1, NULL, 'k' },
						 { "address", 1, NULL, 'a' },
						 { "foreground", 0, NULL, 'f' },
						 { NULL, 0, NULL, 0 } };
	int c;

	tool.o = (struct tool_options){ .name = "ib0", .ib = { .device = "ib0", .port = 1 } };
	opterr = 0;
	while ((c = getopt_long(argc, argv, "f", options, NULL)) != -1) {
		switch (c) {
		case 'H':
			tool.o.host = optarg;
			break;
		case 'n':
			tool.o.name = optarg;
			break;
		case 'N':
			tool.o.netns = optarg;
			break;
		case 'd':
			if (strlen(optarg) >= sizeof(tool.o.ib.device))
				tool_usage("no such device: ", optarg);
			snprintf(tool.o.ib.device, sizeof(tool.o.ib.device), "%s", optarg);
			break;
		case 'p':
			tool.o.ib.port = (u8)tool_number(optarg, 1, 254);
			break;
		case 'k':
			tool.o.ib.pkey = (u16)tool_number(optarg, 1, 0xffff);
			break;
		case 'a':
			tool_take_address(optarg);
			break;
		case 'f':
			tool.o.foreground = true;
			break;
		default:
			tool_usage("unknown option or no value: ", argv[optind - 1]);
		}
	}
	if (optind != argc)
		tool_usage("unknown word: ", argv[optind]);
	if (tool.o.host == NULL)
		tool_usage("--host is missing", "");
	if (tool.o.name[0] == '\0' || strlen(tool.o.name) >= IFNAMSIZ ||
	    strchr(tool.o.name, '/') != NULL)
		tool_usage("no name of an interface: ", tool.o.name);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* NAME as `ip netns` has it, a path, or the number of a process. */
static void tool_enter(const char *netns)
{
	char path[256];
	int fd;

	if (netns[0] == '/')
		snprintf(path, sizeof(path), "%s", netns);
	else if (strspn(netns, "0123456789") == strlen(netns))
		snprintf(path, sizeof(path), "/proc/%s/ns/net", netns);
	else
		snprintf(path, sizeof(path), "/run/netns/%s", netns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
		fprintf(stderr, "anyverbs: ipoib: network namespace %s: %s\n", netns,
			strerror(errno));
		exit(TOOL_FAILED);
	}
	close(fd);
}

static int tool_fail(const char *what, int err)
{
	fprintf(stderr, "anyverbs: ipoib: %s: %s\n", what, strerror(-err));
	return TOOL_FAILED;
}

static int tool_set_up(void)
{
	int err = link_set_mtu(tool.ifindex, TOOL_MTU);

	(void)link_set_queue(tool.ifindex, TOOL_QUEUE);
	(void)link_no_ipv6_addresses(tool.ifindex);
	if (err == 0)
		err = link_up(tool.ifindex);
	for (u32 i = 0; i < tool.o.address_count && err == 0; i++)
		err = link_add_address(tool.ifindex, &tool.o.address[i]);
	return err;
}

static int tool_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* What was dropped, for a person at the terminal. */
static void tool_report(void)
{
	struct ipoib_counters c;

	ipoib_count(tool.ip, &c);
	fprintf(stderr, "%s: %llu received, %llu sent", tool.o.name,
		(unsigned long long)c.received, (unsigned long long)c.sent);
	for (u32 i = 0; i < IPOIB_DROPS; i++)
		if (c.dropped[i] != 0)
			fprintf(stderr, ", %llu dropped (%s)", (unsigned long long)c.dropped[i],
				ipoib_drop_name(i));
	fputc('\n', stderr);
}

static int tool_main(int signals)
{
	int err = 0, code, watch = watch_open();

	tool.news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	tool.tun = tun_open(&tool.o, &tool.ifindex);
	if (tool.tun < 0)
		return TOOL_FAILED;
	if (watch < 0 || tool.news < 0)
		return tool_fail("no netlink", watch < 0 ? watch : -errno);
	err = tool_set_up();
	if (err != 0)
		return tool_fail("the interface is not set up", err);
	tool.ip = ipoib_open(&tool.o.ib, &tool_ops, NULL, &err);
	if (tool.ip == NULL && err == -ENODEV) {
		fprintf(stderr, "anyverbs: ipoib: host %s has no port %u of an adapter %s\n",
			tool.o.host, tool.o.ib.port, tool.o.ib.device);
		return TOOL_FAILED;
	}
	if (tool.ip == NULL)
		return tool_fail("no device", err);
	if (pthread_create(&tool.reader, NULL, tool_read, NULL) != 0)
		return tool_fail("no thread", -errno);
	if (!tool.o.foreground)
		tool_quiet();
	code = tool_run(signals, watch);
	ipoib_close(tool.ip);
	if (code != TOOL_OK && tool.o.foreground)
		fprintf(stderr, "anyverbs: ipoib: the fabric is down: %s ends\n", tool.o.name);
	if (tool.o.foreground)
		tool_report();
	return code;
}

int main(int argc, char **argv)
{
	int signals, code;

	tool_options(argc, argv);
	if (tool.o.netns != NULL)
		tool_enter(tool.o.netns);
	if (!tool.o.foreground)
		tool_detach();
	signals = tool_signals();
	code = signals < 0 ? tool_fail("signals", -errno) : tool_main(signals);
	exit(code);
}
