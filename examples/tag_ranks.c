/* tag_ranks.c: ranks that send each other messages by the small MPI in tag_mpi.c.
 *
 * usage: tag_ranks [options] [HOST]; --help lists the options
 * build: cc tag_mpi.c tag_ranks.c -libverbs
 *
 * Every rank sends messages of all sizes to random ranks with random tags. It receives all that are
 * sent to it, by exact and wildcard receives, which are posted before and after the messages come,
 * and now and then cancelled. Each byte is checked. With --trace each rank writes what it posted
 * and what took what, for a judge (test/match/judge.c). Without -p all ranks are processes on this
 * host. With -p half of them are here and half at HOST, where the same command runs without a HOST.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tag_mpi.h"

enum { TAGS = 4 };

struct options opt = {
	.ranks = 4, .messages = 100, .gid = 1, .seed = 1, .bytes = 1 << 20
};
int rank; /* of this process */

void die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "rank %d: ", rank);
	vfprintf(stderr, fmt, args);
	fprintf(stderr, "\n");
	exit(1);
}

void must(int ok, const char *what)
{
	if (!ok)
		die("%s: %s", what, strerror(errno));
}

void *new(size_t size)
{
	void *p = calloc(1, size);

	must(p != NULL, "memory");
	return p;
}

/* ---- chance ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t chance(uint64_t *state)
{
	return mix(*state += 0x9e3779b97f4a7c15ull);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(chance(state) % n);
}

/* ---- the other ranks, before they are connected: a TCP socket to the first host
 * --------------- */

enum { RECORD = 8 * MAX_RANKS + 64 };

static int root; /* this rank's socket to the gatherer */

static void tell(int fd, const void *bytes, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = write(fd, (const char *)bytes + at, n - at);

		must(k > 0, "write to another rank");
		at += (size_t)k;
	}
}

static void hear(int fd, void *bytes, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = read(fd, (char *)bytes + at, n - at);

		if (k <= 0)
			die("another rank has ended");
		at += (size_t)k;
	}
}

void gather(const void *mine, size_t size, void *all)
{
	char record[RECORD] = { 0 };
	char *records = new((size_t)opt.ranks * RECORD);

	memcpy(record, mine, size);
	tell(root, &rank, sizeof(rank));
	tell(root, record, RECORD);
	hear(root, records, (size_t)opt.ranks * RECORD);
	for (int i = 0; i < opt.ranks; i++)
		memcpy((char *)all + (size_t)i * size, records + (size_t)i * RECORD, size);
	free(records);
}

/* A process of the first host serves them until one of them ends. */
static void gather_serve(int listener)
{
	char *records = new((size_t)opt.ranks * RECORD);
	int *fds = new(sizeof(int) * (size_t)opt.ranks);

	for (int i = 0; i < opt.ranks; i++)
		must((fds[i] = accept(listener, NULL, NULL)) >= 0, "accept");
	for (;;) {
		for (int i = 0; i < opt.ranks; i++) {
			int who;

			if (read(fds[i], &who, sizeof(who)) != sizeof(who))
				exit(0);
			hear(fds[i], records + (size_t)who * RECORD, RECORD);
		}
		for (int i = 0; i < opt.ranks; i++)
			tell(fds[i], records, (size_t)opt.ranks * RECORD);
	}
}

/* ---- the application ------------------------------------------------------------------------- */

/* A receive that is to be posted. */
struct wish {
	int source, tag;
	uint32_t length;
};

static struct wish *wishes;
static uint32_t wish_count, wished, incoming;
static uint64_t luck;

/* Everybody knows what everybody sends. Lengths are as often small as large. */
static int plan(int source, uint32_t number, int *tag, uint32_t *length)
{
	uint64_t state = mix((uint64_t)opt.seed ^ mix((uint64_t)source << 32 | number));
	int to = (int)below(&state, (uint32_t)opt.ranks - 1);

	*tag = (int)below(&state, TAGS);
	*length = below(&state, ((uint32_t)opt.bytes >> below(&state, 24)) + 1);
	return to + (to >= source);
}

static uint8_t byte_of(uint64_t message, uint32_t at)
{
	return (uint8_t)(mix(message * 0x9e3779b97f4a7c15ull + (at >> 3)) >> (at & 7) * 8);
}

static void fill(uint8_t *bytes, uint64_t message, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = byte_of(message, i);
}

void receive_done(struct receive *r, uint32_t length)
{
	uint32_t want;
	int tag, source = (int)(r->message >> 32);

	if (plan(source, (uint32_t)r->message, &tag, &want) != rank || want != length ||
	    !receive_matches(r, tag_of(source, tag)))
		die("receive %u of %u bytes got %u of message %llx, which has %u", r->id, r->length,
		    length, (unsigned long long)r->message, want);
	for (uint32_t i = 0; i < length; i++)
		if (r->bytes[i] != byte_of(r->message, i))
			die("byte %u of message %llx is wrong", i, (unsigned long long)r->message);
	receive_free(r);
	counts.receives_done++;
}

/* No message that the wish matches is longer. */
static void wish_bound(struct wish *w)
{
	for (int source = 0; source < opt.ranks; source++)
		for (uint32_t i = 0; i < (uint32_t)opt.messages; i++) {
			uint32_t length;
			int tag;

			if (source == rank || plan(source, i, &tag, &length) != rank ||
			    (w->source != ANY && w->source != source) ||
			    (w->tag != ANY && w->tag != tag))
				continue;
			w->length = length > w->length ? length : w->length;
		}
}

/* One for each message, some with wildcards, in any order. */
static void wishes_make(void)
{
	wishes = new(sizeof(*wishes) * (size_t)(opt.ranks * opt.messages + 1));
	for (int source = 0; source < opt.ranks; source++)
		for (uint32_t i = 0; i < (uint32_t)opt.messages; i++) {
			uint32_t length, lot = below(&luck, 100), at;
			struct wish w = { .source = source };

			if (source == rank || plan(source, i, &w.tag, &length) != rank)
				continue;
			if (lot < 30)
				w.source = ANY;
			if (lot >= 15 && lot < 45)
				w.tag = ANY;
			at = below(&luck, ++wish_count);
			wishes[wish_count - 1] = wishes[at];
			wishes[at] = w;
		}
	incoming = wish_count;
	for (uint32_t i = 0; i < wish_count; i++)
		wish_bound(&wishes[i]);
}

static bool send_next(uint32_t *sent)
{
	struct transfer *t;
	uint32_t length;
	int tag, to;

	if (*sent == (uint32_t)opt.messages)
		return false;
	to = plan(rank, *sent, &tag, &length);
	if (counts.sends_open[to] >= SENDS)
		return false;
	t = transfer_new(to, length);
	t->number = (*sent)++;
	fill(t->bytes, (uint64_t)rank << 32 | t->number, length);
	message_send(t, tag);
	return true;
}

/* All that was planned is posted, or has come: what has no partner by now gets one or is
 * cancelled. */
static void finish_receives(void)
{
	struct wish any = { ANY, ANY, 0 };

	if (wished < wish_count)
		return;
	if (is_unexpected()) {
		wish_bound(&any);
		receive_post(ANY, ANY, any.length);
	} else if (counts.arrived == incoming && posted.next != &posted) {
		for (struct receive *r = posted.next; r != &posted && counts.ops_open < MAX_OPS / 2;
		     r = r->next)
			if (!r->cancelling)
				receive_cancel(r);
	}
}

/* Now and then a receive is cancelled, and posted anew later. */
static void change_mind(void)
{
	struct receive *r = posted.prev;
	struct wish *w;

	if (r == &posted || r->cancelling || wish_count == (uint32_t)(opt.ranks * opt.messages))
		return;
	w = &wishes[wish_count++];
	*w = (struct wish){ r->source, r->tag, r->length };
	receive_cancel(r);
}

static void application(void)
{
	uint32_t sent = 0, late = below(&luck, 90);

	wishes_make();
	while (sent < (uint32_t)opt.messages || counts.transfers_open != 0 ||
	       counts.ops_open != 0 || counts.arrived < incoming || is_unexpected() ||
	       counts.receives_done + counts.receives_cancelled < counts.receive_count) {
		if (below(&luck, 100) < 50)
			send_next(&sent);
		if (wished < wish_count && counts.ops_open < MAX_OPS / 2 &&
		    below(&luck, 100) >= late) {
			const struct wish *w = &wishes[wished++];

			receive_post(w->source, w->tag, w->length);
		}
		if (below(&luck, 100) < 2 && counts.arrived < incoming)
			change_mind();
		finish_receives();
		progress();
	}
}

/* ---- processes ------------------------------------------------------------------------------- */

static void rank_run(const struct sockaddr_in *gatherer)
{
	char ready = 1, *readies = new((size_t)opt.ranks);
	char name[4096];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	luck = mix((uint64_t)opt.seed * MAX_RANKS + (uint64_t)rank);
	root = socket(AF_INET, SOCK_STREAM, 0);
	must(root >= 0 && connect(root, (const struct sockaddr *)gatherer, sizeof(*gatherer)) == 0,
	     "connect");
	if (opt.trace != NULL) {
		snprintf(name, sizeof(name), "%s.%d", opt.trace, rank);
		must((trace = fopen(name, "w")) != NULL, name);
	}
	adapter_open();
	ranks_connect();
	application();
	printf("rank %d: %u messages received, %u of them unexpected, %u receives cancelled\n",
	       rank, counts.arrived, counts.unexpected_count, counts.receives_cancelled);
	must(trace == NULL || fclose(trace) == 0, "the trace");
	gather(&ready, 1, readies);
	adapter_close();
	free(readies);
}

/* Where the gatherer listens: here, or at HOST. */
static int gatherer_find(struct sockaddr_in *a)
{
	struct addrinfo hint = { .ai_family = AF_INET }, *found;
	socklen_t size = sizeof(*a);
	int fd, one = 1;

	*a = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port) };
	if (opt.host != NULL) {
		must(getaddrinfo(opt.host, NULL, &hint, &found) == 0, opt.host);
		a->sin_addr = ((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr;
		freeaddrinfo(found);
		return -1;
	}
	a->sin_addr.s_addr = htonl(opt.port == 0 ? INADDR_LOOPBACK : INADDR_ANY);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
		     bind(fd, (struct sockaddr *)a, sizeof(*a)) == 0 &&
		     listen(fd, MAX_RANKS) == 0 &&
		     getsockname(fd, (struct sockaddr *)a, &size) == 0,
	     "listen");
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return fd;
}

static const char usage[] =
	"usage: tag_ranks [options] [HOST]\n"
	"  --ranks N      how many ranks send messages to each other (4)\n"
	"  --seed N       decides on messages, receives and their order (1)\n"
	"  --messages N   messages that each rank sends (100)\n"
	"  --bytes N      the longest of them (1048576)\n"
	"  --gid N        index of the GID (1)\n"
	"  --trace FILE   each rank writes FILE.RANK: what it posted, and what took what\n"
	"  -p PORT        half of the ranks are here, and half on another host, where HOST is\n"
	"                 given: the name of this one\n"
	"  --help\n";

static void options(int argc, char **argv)
{
	static const struct {
		const char *name;
		long *value;
	} numbers[] = { { "--ranks", &opt.ranks },	 { "--seed", &opt.seed },
			{ "--messages", &opt.messages }, { "--bytes", &opt.bytes },
			{ "--gid", &opt.gid },		 { "-p", &opt.port } };
	size_t k, n = sizeof(numbers) / sizeof(numbers[0]);
	char none[] = "", *end = none;

	for (int i = 1; i < argc && *end == 0; i++) {
		for (k = 0; k < n && strcmp(argv[i], numbers[k].name) != 0; k++)
			;
		if (strcmp(argv[i], "--help") == 0) {
			fputs(usage, stdout);
			exit(0);
		} else if (k < n && i + 1 < argc) {
			*numbers[k].value = strtol(argv[++i], &end, 0);
		} else if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc) {
			opt.trace = argv[++i];
		} else if (argv[i][0] != '-' && opt.host == NULL) {
			opt.host = argv[i];
		} else {
			end = argv[i];
		}
	}
	if (*end != 0 || opt.ranks < 2 || opt.ranks > MAX_RANKS || opt.messages < 1 ||
	    opt.messages > 1 << 20 || opt.bytes < 0 || opt.bytes > 1 << 30) {
		fputs(usage, stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in gatherer;
	long first, last;
	int listener, failed = 0, status;
	pid_t pid, server = 0;

	options(argc, argv);
	first = opt.host != NULL ? opt.ranks / 2 : 0;
	last = opt.host == NULL && opt.port != 0 ? opt.ranks / 2 : opt.ranks;
	listener = gatherer_find(&gatherer);
	if (listener >= 0 && (server = fork()) == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		gather_serve(listener);
	}
	for (rank = (int)first; rank < last; rank++) {
		must((pid = fork()) >= 0, "fork");
		if (pid == 0) {
			rank_run(&gatherer);
			exit(0);
		}
	}
	rank = -1;
	while ((pid = wait(&status)) > 0)
		failed |= pid != server && status != 0;
	printf("%s\n", failed ? "FAILED" : "ok");
	return failed;
}
