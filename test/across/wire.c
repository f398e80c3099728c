/* wire.c: a bad wire between two interfaces: it loses, holds back, doubles and damages frames, is
 * as long as it is told to be, and marks them as a switch does that has congestion (ECN), if they
 * say that they may be.
 *
 * usage: wire A B [--seed N] [--loss P] [--reorder P] [--duplicate P] [--corrupt P] [--mark P]
 *                 [--delay MS] [--rate MBS --queue KIB [--marks 1]]
 * P is a probability. Only RoCE frames (UDP port 4791, IPv4 or IPv6) suffer; the rest passes. All
 * frames take MS milliseconds to the other side. With a rate the wire is as narrow as that (MB per
 * second, each way), what waits for it is a queue, and what finds no room there is lost; with
 * marks, frames that find a quarter of it taken are marked, too. Says "ready" when it forwards.
 * SIGUSR1: from now on nothing passes; SIGUSR2: again as before.
 * SIGTERM: the counts, and the end.
 * Frames pass with their offloads (PACKET_VNET_HDR), so that a checksum that the sender left to its
 * device stays so; the sender must not leave segmentation to it (gso_max_segs 1), or several
 * packets share one fate.
 *
 * In: frames of A and B    Out: frames of B and A    Runs: one thread    Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	FRAME_MAX = 70000,
	HELD_MAX = 32,	 /* frames held back per direction; no more are */
	HOLD_MAX = 8,	 /* so many frames may overtake one */
	HOLD_MS = 3,	 /* and it waits no longer */
	LATE_MAX = 1 << 14, /* frames under way per direction, with --delay; a power of two */
	BURST = 64,	 /* frames of one side before the other has its turn */
	ROCE_PORT = 4791,
	BUFFER = 32 << 20,
	UDP_HEADER = 8,
	FECN_BYTE = 4, /* of BTH: not under the ICRC */
	NOTICE = 0x81, /* BTH opcode of a CNP */
};

struct frame {
	struct virtio_net_hdr offload;
	uint8_t data[FRAME_MAX];
	size_t length;
};

struct held {
	struct frame frame;
	int overtakers; /* left */
	uint64_t until_ms;
	bool used;
};

/* A frame on its long way. */
struct late {
	uint64_t due_us;
	struct virtio_net_hdr offload;
	size_t length;
	uint8_t data[];
};

struct side {
	int fd;
	struct late *late[LATE_MAX]; /* on their way to this side, the oldest first */
	uint32_t late_begin, late_end;
	uint64_t busy_us; /* until then the narrow wire has frames for this side */
	struct held held[HELD_MAX]; /* on their way to this side */
};

enum fate { LOSS, REORDER, DUPLICATE, CORRUPT, MARK, FATES };

static const char *const fate_names[FATES] = { "loss", "reorder", "duplicate", "corrupt",
						     "mark" };

struct wire {
	struct side sides[2];
	double chance[FATES];
	uint64_t count[FATES], passed, roce, ipv6, notices, random, delay_ms, most_late, full;
	uint64_t rate, queue, marks, squeezed; /* bytes per ms, bytes, told to, frames */
	uint64_t classed; /* RoCE frames with a DSCP */
};

static volatile sig_atomic_t wire_is_dead, wire_ends;

static void fail(const char *what)
{
	fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void on_signal(int number)
{
	if (number == SIGTERM)
		wire_ends = 1;
	else
		wire_is_dead = number == SIGUSR1;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t now_ms(void)
{
	return now_us() / 1000;
}

/* splitmix64 */
static uint64_t wire_random(struct wire *w)
{
	uint64_t x = w->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static bool wire_strikes(struct wire *w, enum fate f)
{
	bool strikes = (double)(wire_random(w) >> 11) / (double)(1ull << 53) < w->chance[f];

	w->count[f] += strikes;
	return strikes;
}

static void side_open(struct side *s, const char *name)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = (int)if_nametoindex(name) };
	int on = 1, bytes = BUFFER;

	s->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);
	if (s->fd < 0 || at.sll_ifindex == 0)
		fail(name);
	if (setsockopt(s->fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) < 0 ||
	    setsockopt(s->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0 ||
	    setsockopt(s->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
	    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
	    bind(s->fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		fail(name);
}

/* Where the payload of a RoCE frame begins, or 0. */
static size_t frame_roce_payload(const struct frame *f)
{
	size_t ip = ETH_HLEN, udp;
	uint16_t type, port;

	if (f->length < ETH_HLEN + 40 + UDP_HEADER)
		return 0;
	memcpy(&type, f->data + 12, 2);
	if (type == htons(ETH_P_IP) && f->data[ip + 9] == IPPROTO_UDP)
		udp = ip + (f->data[ip] & 15u) * 4;
	else if (type == htons(ETH_P_IPV6) && f->data[ip + 6] == IPPROTO_UDP)
		udp = ip + 40;
	else
		return 0;
	memcpy(&port, f->data + udp + 2, 2);
	return port == htons(ROCE_PORT) && f->length > udp + UDP_HEADER + 12 ? udp + UDP_HEADER : 0;
}

static bool frame_receive(struct side *s, struct frame *f)
{
	struct iovec iov[] = { { &f->offload, sizeof(f->offload) }, { f->data, FRAME_MAX } };
	ssize_t n = readv(s->fd, iov, 2);

	if (n < (ssize_t)sizeof(f->offload))
		return false;
	f->length = (size_t)n - sizeof(f->offload);
	return true;
}

static void side_write(struct side *to, struct virtio_net_hdr *offload, uint8_t *data, size_t n)
{
	struct iovec iov[] = { { offload, sizeof(*offload) }, { data, n } };
	struct pollfd room = { .fd = to->fd, .events = POLLOUT };

	offload->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
	while (writev(to->fd, iov, 2) < 0) {
		if (errno == EAGAIN || errno == ENOBUFS)
			(void)poll(&room, 1, 1);
		else if (errno != EINTR)
			/* the interface is gone or down: as a wire would, it loses the frame */
			return;
		if (wire_ends)
			return;
	}
}

/* Congestion experienced. False: the frame is not ECN-capable. */
static bool frame_mark(struct frame *f)
{
	uint8_t *ip = f->data + ETH_HLEN;
	bool v6 = ip[0] >> 4 == 6;
	uint8_t ecn = v6 ? ip[1] >> 4 & 3 : ip[1] & 3;
	uint32_t sum;

	if (ecn == 0)
		return false;
	if (v6) {
		ip[1] |= 0x30;
		return true;
	}
	/* RFC 1624: the checksum's complement grows by as much as the word */
	sum = (uint32_t)(0xffff & ~(ip[10] << 8 | ip[11])) + 3u - ecn;
	sum = ~((sum & 0xffff) + (sum >> 16));
	ip[1] |= 3;
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
	return true;
}

/* When the narrow wire has passed it, or 0: it is lost. */
static uint64_t wire_squeeze(struct wire *w, struct side *to, struct frame *f, uint64_t now)
{
	uint64_t begin = to->busy_us > now ? to->busy_us : now;
	uint64_t queued = (begin - now) * w->rate / 1000;

	if (w->rate == 0)
		return now;
	if (queued + f->length > w->queue) {
		w->squeezed++;
		return 0;
	}
	if (w->marks != 0 && queued > w->queue / 4 && frame_mark(f))
		w->count[MARK]++;
	to->busy_us = begin + f->length * 1000 / w->rate;
	return to->busy_us;
}

static void frame_send(struct wire *w, struct side *to, struct frame *f, bool roce)
{
	uint32_t count = to->late_end - to->late_begin;
	uint64_t now = now_us(), due = roce ? wire_squeeze(w, to, f, now) : now;
	struct late *l;

	if (due == 0)
		return;
	due += w->delay_ms * 1000;
	if (due == now) {
		side_write(to, &f->offload, f->data, f->length);
		return;
	}
	l = count < LATE_MAX ? malloc(sizeof(*l) + f->length) : NULL;
	if (l == NULL) {
		w->full++;
		return;
	}
	l->due_us = due;
	l->offload = f->offload;
	l->length = f->length;
	memcpy(l->data, f->data, f->length);
	to->late[to->late_end++ % LATE_MAX] = l;
	if (count + 1 > w->most_late)
		w->most_late = count + 1;
}

/* What has been under way for long enough. False: nothing is under way. */
static bool side_deliver(struct side *to)
{
	uint64_t now = now_us();

	while (to->late_begin != to->late_end) {
		struct late *l = to->late[to->late_begin % LATE_MAX];

		if (l->due_us > now)
			return true;
		to->late_begin++;
		if (!wire_is_dead)
			side_write(to, &l->offload, l->data, l->length);
		free(l);
	}
	return false;
}

/* One bit, anywhere that the ICRC covers. */
static void frame_corrupt(struct wire *w, struct frame *f, size_t payload)
{
	size_t at = wire_random(w) % (f->length - payload);

	if (at == FECN_BYTE)
		at++;
	f->data[payload + at] ^= (uint8_t)(1u << (wire_random(w) % 8));
}

static bool side_hold(struct wire *w, struct side *to, const struct frame *f)
{
	for (struct held *h = to->held; h < to->held + HELD_MAX; h++) {
		if (h->used)
			continue;
		h->used = true;
		h->overtakers = 1 + (int)(wire_random(w) % HOLD_MAX);
		h->until_ms = now_ms() + HOLD_MS;
		h->frame.offload = f->offload;
		h->frame.length = f->length;
		memcpy(h->frame.data, f->data, f->length);
		return true;
	}
	return false;
}

/* Lets go what has been overtaken often enough, or waited long enough. `passed`: frames since. */
static bool side_release(struct wire *w, struct side *to, int passed)
{
	uint64_t now = now_ms();
	bool left = false;

	for (struct held *h = to->held; h < to->held + HELD_MAX; h++) {
		if (!h->used)
			continue;
		h->overtakers -= passed;
		if (h->overtakers <= 0 || now >= h->until_ms) {
			h->used = false;
			if (!wire_is_dead)
				frame_send(w, to, &h->frame, true);
		}
		left |= h->used;
	}
	return left;
}

static unsigned int frame_dscp(const struct frame *f)
{
	const uint8_t *ip = f->data + ETH_HLEN;

	return ip[0] >> 4 == 6 ? (ip[0] & 15u) << 2 | ip[1] >> 6 : ip[1] >> 2;
}

static void wire_forward(struct wire *w, struct side *to, struct frame *f)
{
	size_t payload = frame_roce_payload(f);

	if (wire_is_dead)
		return;
	w->passed++;
	if (payload != 0) {
		w->roce++;
		w->ipv6 += f->data[ETH_HLEN] >> 4 == 6;
		w->classed += frame_dscp(f) != 0;
		w->notices += f->data[payload] == NOTICE;
		if (wire_strikes(w, LOSS))
			return;
		if (wire_strikes(w, MARK) && !frame_mark(f))
			w->count[MARK]--;
		if (wire_strikes(w, CORRUPT))
			frame_corrupt(w, f, payload);
		if (wire_strikes(w, DUPLICATE))
			frame_send(w, to, f, true);
		if (wire_strikes(w, REORDER) && side_hold(w, to, f))
			return;
	}
	frame_send(w, to, f, payload != 0);
	side_release(w, to, 1);
}

static void wire_run(struct wire *w)
{
	static struct frame f;
	int wait_ms = -1;

	while (!wire_ends) {
		struct pollfd fds[2] = { { .fd = w->sides[0].fd, .events = POLLIN },
					 { .fd = w->sides[1].fd, .events = POLLIN } };
		bool held = false;

		(void)poll(fds, 2, wait_ms);
		for (int i = 0; i < 2; i++) {
			for (int n = 0; n < BURST && frame_receive(&w->sides[i], &f); n++)
				wire_forward(w, &w->sides[1 - i], &f);
			held |= side_release(w, &w->sides[1 - i], 0);
			held |= side_deliver(&w->sides[1 - i]);
		}
		wait_ms = held ? 1 : 100; /* a signal may come just before poll */
	}
}

static void wire_read_number(struct wire *w, const char *name, uint64_t value)
{
	if (strcmp(name, "--seed") == 0)
		w->random = value;
	else if (strcmp(name, "--delay") == 0)
		w->delay_ms = value;
	else if (strcmp(name, "--rate") == 0)
		w->rate = value * 1000;
	else if (strcmp(name, "--queue") == 0)
		w->queue = value << 10;
	else if (strcmp(name, "--marks") == 0)
		w->marks = value;
}

static void wire_read_options(struct wire *w, int argc, char **argv)
{
	for (int i = 3; i + 1 < argc; i += 2) {
		int fate = 0;

		while (fate < FATES && (argv[i][0] != '-' || argv[i][1] != '-' ||
					strcmp(argv[i] + 2, fate_names[fate]) != 0))
			fate++;
		if (fate < FATES)
			w->chance[fate] = strtod(argv[i + 1], NULL);
		else
			wire_read_number(w, argv[i], strtoull(argv[i + 1], NULL, 0));
	}
}

int main(int argc, char **argv)
{
	static struct wire w;
	struct sigaction act = { .sa_handler = on_signal };

	if (argc < 3 || argc % 2 == 0) {
		fprintf(stderr, "usage: wire A B [--seed N] [--loss P] [--reorder P] "
				"[--duplicate P] [--corrupt P] [--mark P] [--delay MS] "
				"[--rate MBS --queue KIB [--marks 1]]\n");
		return 2;
	}
	wire_read_options(&w, argc, argv);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	sigaction(SIGUSR2, &act, NULL);
	for (int i = 0; i < 2; i++)
		side_open(&w.sides[i], argv[i + 1]);
	printf("ready\n");
	fflush(stdout);
	wire_run(&w);
	printf("passed %llu\nroce %llu\nipv6 %llu\nnotices %llu\nlate %llu\nfull %llu\n"
	       "squeezed %llu\nclassed %llu\n",
	       (unsigned long long)w.passed, (unsigned long long)w.roce,
	       (unsigned long long)w.ipv6, (unsigned long long)w.notices,
	       (unsigned long long)w.most_late, (unsigned long long)w.full,
	       (unsigned long long)w.squeezed, (unsigned long long)w.classed);
	for (int i = 0; i < FATES; i++)
		printf("%s %llu\n", fate_names[i], (unsigned long long)w.count[i]);
	return 0;
}
