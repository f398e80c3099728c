/* capture.c: records what the adapters of this node send and receive.
 *
 * It passes a memory file to the node, which passes it to every process. The processes write
 * records there, and this command writes frames into a file. The recording ends with the command's
 * connection.
 * In:    FILE and limits      Out: a pcapng file, a summary on standard error, an exit code
 * Runs:  the only thread      Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"
#include "lids.h"
#include "pcapng.h"

enum {
	SNAPLEN_MIN = 64,
	SNAPLEN_MAX = 65535,
	TURN_MS = 2,	/* between polls while nothing comes */
	JOIN_TRIES = 3, /* at nodes that end meanwhile */
	ASK_MS = 1000,	/* between reads of the GID tables, and attempts to find a new node */
	DRAIN_MS = 200, /* for records in progress at the end */
};

/* A link layer of the file. */
struct capture_interface {
	bool begun; /* its block is written */
	u32 number;
	u64 written;
};

struct capture_command {
	const char *path;
	u32 snaplen;
	u64 count, seconds_ns; /* 0: no limit */
	FILE *out;
	int error; /* the errno of the first write that failed; 0: none did */
	bool pipe_ignored; /* SIGPIPE was, when this command began */
	int node; /* -1: no node now */
	int memory;
	struct capture_reader reader;
	struct frames frames;
	struct capture_record record;
	u64 asked_ns;
	s64 epoch_ns; /* from the records' clock to the time since 1970 */
	u64 written, last_ns;
	struct capture_interface interface[FRAME_LINKS];
	u32 interfaces;
	struct lids lids;
	bool has_fabric;
	char devices[NODE_DEVICES * NODE_DEVICE_NAME], description[64];
};

static volatile sig_atomic_t capture_ends;

static void capture_on_signal(int number)
{
	capture_ends = 1;
}

/* Parses a number between these; false: invalid. */
static bool capture_number(const char *text, double min, double max, double *out)
{
	char *end;

	if (text == NULL || *text == '\0')
		return false;
	*out = strtod(text, &end);
	return *end == '\0' && *out >= min && *out <= max;
}

/* Parses one option with its value. False: invalid. */
static bool capture_option(struct capture_command *c, const char *name, const char *value)
{
	double n;

	if (strcmp(name, "--snaplen") == 0 && capture_number(value, SNAPLEN_MIN, SNAPLEN_MAX, &n))
		c->snaplen = (u32)n;
	else if (strcmp(name, "--count") == 0 && capture_number(value, 1, 1e18, &n))
		c->count = (u64)n;
	else if (strcmp(name, "--seconds") == 0 && capture_number(value, 0.001, 1e9, &n))
		c->seconds_ns = (u64)(n * (double)NS_PER_S);
	else
		return false;
	return true;
}

static bool capture_parse(struct capture_command *c, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "--", 2) == 0) {
			if (!capture_option(c, argv[i], argv[i + 1]))
				return false;
			i++;
		} else if (c->path == NULL) {
			c->path = argv[i];
		} else {
			return false;
		}
	}
	return c->path != NULL;
}

/* ---- the node ---- */

_Static_assert(NODE_DEVICES * NODE_GIDS <= CAPTURE_GIDS, "there is a place for each GID");

/* Reads the devices and their tables of GIDs, as they are now. */
static int capture_read_devices(struct capture_command *c)
{
	struct proto_device_reply reply;
	u32 at = 0;
	int err;

	for (u32 i = 0; (err = device_read(c->node, i, &reply)) == 0; i = reply.index + 1) {
		for (u32 j = 0; j < NODE_GIDS; j++)
			memcpy(c->frames.gids[reply.index * NODE_GIDS + j],
			       reply.config.gids[j].gid, 16);
		at += (u32)snprintf(c->devices + at, sizeof(c->devices) - at, "%s%.31s",
				    at == 0 ? "" : ",", reply.config.device);
	}
	return err == -ENODEV ? 0 : err;
}

static int capture_ask(struct capture_command *c)
{
	struct proto_status_reply reply;
	struct proto_plain request;
	int err = link_ask(c->node, PROTO_STATUS, &request, sizeof(request), &reply, sizeof(reply),
			   NULL);

	c->asked_ns = clock_now_ns();
	if (err < 0)
		return err;
	snprintf(c->description, sizeof(c->description), "anyverbs node %.31s", reply.node);
	c->has_fabric = lids_read(&c->lids, c->node);
	return capture_read_devices(c);
}

static void capture_leave(struct capture_command *c)
{
	if (c->node >= 0)
		close(c->node);
	c->node = -1;
}

/* Has every process record into this command's memory. Its connection stays. */
static int capture_join_once(struct capture_command *c)
{
	int err;

	c->node = link_open(true);
	if (c->node < 0)
		return c->node;
	err = link_give(c->node, PROTO_CAPTURE, c->memory);
	if (err == 0)
		err = capture_ask(c);
	if (err < 0)
		capture_leave(c);
	return err;
}

static int capture_join(struct capture_command *c)
{
	int err, tries = 0;

	do
		err = capture_join_once(c);
	while (link_has_ended(err) && tries++ < JOIN_TRIES);
	return err;
}

/* Addresses may have been added; or the node has gone, and the next one must get the memory
 * file. */
static void capture_mind_node(struct capture_command *c)
{
	struct pollfd p = { .fd = c->node, .events = POLLIN };

	/* it never sends without a request: readable means its end */
	if (c->node >= 0 && poll(&p, 1, 0) > 0)
		capture_leave(c);
	if (clock_now_ns() - c->asked_ns < ASK_MS * NS_PER_MS)
		return;
	c->asked_ns = clock_now_ns();
	if (c->node < 0)
		(void)capture_join(c);
	else if (capture_ask(c) < 0)
		capture_leave(c);
}

/* ---- frames ---- */

/* Behind each write: stdio keeps that one failed, but not why. */
static void capture_note_error(struct capture_command *c)
{
	if (c->error == 0 && ferror(c->out))
		c->error = errno;
}

static void capture_flush(struct capture_command *c)
{
	(void)fflush(c->out);
	capture_note_error(c);
}

/* Waits a turn, or less if the pipe's reader leaves: that is known before a frame comes. */
static void capture_wait(struct capture_command *c)
{
	struct pollfd p = { .fd = fileno(c->out) };

	if (poll(&p, 1, TURN_MS) > 0 && (p.revents & POLLERR) != 0 && c->error == 0)
		c->error = EPIPE;
}

/* Writes the link layer's block, once. */
static struct capture_interface *capture_interface_get(struct capture_command *c,
						       enum frame_link link)
{
	struct capture_interface *i = &c->interface[link];

	if (i->begun)
		return i;
	pcapng_interface(c->out, link, link == FRAME_LINK_INFINIBAND ? "fabric" : c->devices,
			 c->description, c->snaplen);
	capture_note_error(c);
	i->begun = true;
	i->number = c->interfaces++;
	return i;
}

static void capture_emit(void *arg, const struct frame *f)
{
	struct capture_command *c = arg;
	struct capture_interface *i;

	if (c->count != 0 && c->written >= c->count)
		return;
	i = capture_interface_get(c, f->link);
	c->last_ns = f->time_ns + (u64)c->epoch_ns;
	pcapng_frame(c->out, i->number, f, c->last_ns);
	capture_note_error(c);
	i->written++;
	c->written++;
}

static void capture_find_way(void *arg, const struct capture_lids *w, struct frames_way *way)
{
	struct capture_command *c = arg;

	lids_find_way(&c->lids, w, way);
}

static bool capture_is_full(const struct capture_command *c)
{
	return (c->count != 0 && c->written >= c->count) || c->error != 0;
}

/* Writes the waiting frames; false: none waited. */
static bool capture_take(struct capture_command *c)
{
	int n = 0;

	while (n < 1024 && !capture_is_full(c) &&
	       capture_next(&c->reader, &c->record, clock_now_ns())) {
		frames_make(&c->frames, &c->record);
		n++;
	}
	return n != 0;
}

static void capture_run(struct capture_command *c)
{
	u64 end = c->seconds_ns == 0 ? UINT64_MAX : clock_now_ns() + c->seconds_ns;

	while (!capture_ends && !capture_is_full(c) && clock_now_ns() < end) {
		if (!capture_take(c)) {
			capture_flush(c);
			capture_wait(c);
		}
		capture_mind_node(c);
	}
	capture_leave(c);
	end = clock_now_ns() + DRAIN_MS * NS_PER_MS;
	while (!capture_is_full(c) && clock_now_ns() < end)
		if (!capture_take(c))
			capture_wait(c);
}

/* ---- beginning and end ---- */

/* A stream of its own also for standard output, which stays main's. Packets hold what programs tell
 * each other, so nobody else may read a new file. */
static FILE *capture_open_file(const char *path)
{
	int fd;

	if (strcmp(path, "-") != 0)
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	else
		fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	return fd < 0 ? NULL : fdopen(fd, "wb");
}

static int capture_open(struct capture_command *c)
{
	int err;

	/* before the first descriptor of this command, which could be a closed standard output's */
	c->out = capture_open_file(c->path);
	if (c->out == NULL)
		return command_fail(EXIT_FAILED, "capture: %s: %s", c->path, strerror(errno));
	c->memory = capture_create(c->snaplen, &c->reader);
	if (c->memory < 0)
		return command_fail(EXIT_FAILED, "capture: %s", strerror(-c->memory));
	c->frames.flows = flows_create();
	if (c->frames.flows == NULL)
		return command_fail(EXIT_FAILED, "capture: %s", strerror(ENOMEM));
	err = capture_join(c);
	if (err == -EBUSY)
		return command_fail(EXIT_FAILED, "capture: somebody else captures on this node");
	if (err < 0)
		return command_fail(EXIT_FAILED, "capture: %s", absent_strerror(err));
	return EXIT_OK;
}

/* A reader that has left wants no more: that is no failure to tell of. */
static bool capture_reader_left(const struct capture_command *c)
{
	return c->error == EPIPE && !c->pipe_ignored;
}

static int capture_close(struct capture_command *c)
{
	u64 dropped = capture_dropped(&c->reader), lost = dropped;

	/* nobody knows which of them the dropped ones were */
	for (u32 k = 0; k < FRAME_LINKS; k++) {
		const struct capture_interface *i = &c->interface[k];

		if (!i->begun)
			continue;
		pcapng_end(c->out, i->number, c->last_ns, i->written + lost, lost);
		capture_note_error(c);
		lost = 0;
	}
	capture_flush(c);
	if (fclose(c->out) != 0 && c->error == 0)
		c->error = errno;
	if (capture_reader_left(c))
		return EXIT_FAILED;
	if (c->error != 0)
		return command_fail(EXIT_FAILED, "capture: cannot write %s: %s", c->path,
				    strerror(c->error));
	fprintf(stderr, "anyverbs: %llu frames captured, %llu dropped\n",
		(unsigned long long)c->written, (unsigned long long)dropped);
	return EXIT_OK;
}

static void capture_catch_signals(struct capture_command *c)
{
	struct sigaction act = { .sa_handler = capture_on_signal };

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	c->pipe_ignored = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
}

/* Ends by SIGPIPE, as a filter does whose reader leaves. */
static void capture_die_of_pipe(void)
{
	signal(SIGPIPE, SIG_DFL);
	raise(SIGPIPE);
}

int command_capture(int argc, char **argv)
{
	static struct capture_command c = { .snaplen = SNAPLEN_MAX, .node = -1, .memory = -1 };
	struct timespec now;
	int code;

	if (!capture_parse(&c, argc, argv))
		return command_fail(EXIT_USAGE, "capture: wrong arguments; see `anyverbs capture "
						"--help`");
	clock_gettime(CLOCK_REALTIME, &now);
	c.epoch_ns = (s64)now.tv_sec * (s64)NS_PER_S + now.tv_nsec - (s64)clock_now_ns();
	c.frames.snaplen = c.snaplen;
	c.frames.emit = capture_emit;
	c.frames.find_way = capture_find_way;
	c.frames.arg = &c;
	capture_catch_signals(&c);
	code = capture_open(&c);
	if (code != EXIT_OK)
		return code;
	pcapng_begin(c.out);
	capture_note_error(&c);
	(void)capture_interface_get(&c, c.has_fabric ? FRAME_LINK_INFINIBAND : FRAME_LINK_ETHERNET);
	capture_flush(&c);
	fprintf(stderr, "anyverbs: capturing on %s%s (%s)\n", c.devices,
		c.has_fabric ? " and the fabric" : "", c.description);
	capture_run(&c);
	code = capture_close(&c);
	flows_destroy(c.frames.flows);
	lids_close(&c.lids);
	capture_destroy(&c.reader);
	if (capture_reader_left(&c))
		capture_die_of_pipe();
	return code;
}
