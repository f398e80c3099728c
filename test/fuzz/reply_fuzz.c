/* reply_fuzz.c: what a node may answer, announce and show to a process.
 *
 * The input is a list of calls of node.h, each with the messages that wait on the control socket,
 * and messages of the events socket. The node never says more than that: its end of the socket is
 * shut, so whoever waits for more goes on to the next node. Numbers may be told to be right. What
 * is handed out must hold, and no descriptor may be left.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "input.h"
#include "node/await.h"
#include "node/client_priv.h"

enum { STEPS = 32, NODES = 4, SOCKETS = 8 };

/* Bits of a message's second byte. */
enum {
	RIGHT_HEAD = 1,
	RIGHT_SIZE = 2,
	RIGHT_FDS = 4,
	RIGHT_SERIAL = 8,
	NO_ERROR = 16,
	SAME_TYPE = 32
};

/* A corpus names messages by their place here: requests from 1 on, events from EVENTS on. */
enum { EVENTS = 64 };

static const struct shape {
	u16 type;
	u16 size;
	u8 fds;
} shapes[] = {
	[1] = { PROTO_HELLO, sizeof(struct proto_hello_reply), 4 },
	[2] = { PROTO_RESUME, sizeof(struct proto_hello_reply), 4 },
	[4] = { PROTO_SLOT_TAKE, sizeof(struct proto_slot_reply), 0 },
	[5] = { PROTO_UDP_SOCKETS, sizeof(struct proto_udp_sockets_reply), 1 },
	[6] = { PROTO_CONNECT, sizeof(struct proto_peer), 3 },
	[8] = { PROTO_MCAST_JOIN, sizeof(struct proto_plain), 0 },
	[9] = { PROTO_MCAST_LEAVE, sizeof(struct proto_plain), 0 },
	[17] = { PROTO_SLOT_CLAIM, sizeof(struct proto_slot_claim), 1 },
	[18] = { PROTO_SOCKETS_CLAIM, sizeof(struct proto_plain), 1 },
	[19] = { PROTO_PAIR_CLAIM, sizeof(struct proto_plain), 0 },
	[20] = { PROTO_BACK, sizeof(struct proto_plain), 0 },
	[EVENTS + 0] = { PROTO_EV_PEER_NEW, sizeof(struct proto_peer), 4 },
	[EVENTS + 1] = { PROTO_EV_PEER_GONE, sizeof(struct proto_peer), 0 },
	[EVENTS + 2] = { PROTO_EV_CONFIG, sizeof(struct proto_plain), 0 },
	[EVENTS + 3] = { PROTO_EV_CAPTURE, sizeof(struct proto_plain), 1 },
};

static struct fuzz {
	struct input in;
	struct node *node;
	struct directory *directory;
	int directory_fd;
	int server; /* the node's end of the control socket at hand; -1: none */
	int events; /* of the events socket */
	int nodes;  /* that were found */
	u32 hellos;
} f;

/* The next request's. */
static u32 fuzz_serial(void) NO_THREAD_SAFETY /* who asks may hold the lock; one thread */
{
	return f.node->serial + 1;
}

/* The place of a message in `shapes`. */
static u8 fuzz_place(u16 type)
{
	u8 at = 0;

	while (shapes[at].type != type)
		at++;
	return at;
}

static int fuzz_fds(const struct shape *shape, u8 what, int fds[PROTO_FDS])
{
	u8 count = input_u8(&f.in) % (PROTO_FDS + 1);
	int ends[2], extra[1] = { f.directory_fd };

	if (what & RIGHT_FDS)
		count = shape->fds;
	for (int i = 0; i < count; i++)
		fds[i] = handle_make(input_u8(&f.in), extra, 1);
	/* what every process must get before anything else can be tried */
	if (count == 4 && (shape->type == PROTO_HELLO || shape->type == PROTO_RESUME) &&
	    what & NO_ERROR) {
		close(fds[0]);
		close(fds[1]);
		fuzz_need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
				     ends) == 0,
			  "no pair");
		if (f.events >= 0)
			close(f.events);
		f.events = ends[0];
		fds[0] = ends[1];
		fds[1] = dup(f.directory_fd);
	}
	return count;
}

/* One message of the node; `place`, `serial`: as they should be. */
static void fuzz_say(int fd, u8 place, u32 serial)
{
	union proto_reply r;
	u8 what = input_u8(&f.in), other = input_u8(&f.in), length = input_u8(&f.in);
	size_t size = length * 8u;
	int fds[PROTO_FDS], count;

	memset(&r, 0, sizeof(r));
	input_bytes(&f.in, (u8 *)&r + sizeof(r.head), length % 100);
	input_bytes(&f.in, &r.head, what & RIGHT_HEAD ? 0 : sizeof(r.head));
	if (what & RIGHT_HEAD) {
		r.head.magic = PROTO_MAGIC;
		r.head.version = PROTO_VERSION;
		r.head.status = what & NO_ERROR ? 0 : -(s32)(other % 140);
	}
	place = what & SAME_TYPE ? place : other % ARRAY_LEN(shapes);
	r.head.type = shapes[place].type;
	r.head.serial = what & RIGHT_SERIAL ? serial : other;
	if (what & RIGHT_SIZE)
		size = shapes[place].size != 0 ? shapes[place].size : sizeof(struct proto_plain);
	count = fuzz_fds(&shapes[place], what, fds);
	message_send(fd, &r, MIN(size, sizeof(r)), fds, count);
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* Puts what the node will answer into the socket, then shuts it. */
static void fuzz_prepare(u16 type, u32 serial)
{
	int count = input_u8(&f.in) % 4;

	for (int i = 0; i < count && f.server >= 0; i++)
		fuzz_say(f.server, fuzz_place(type), serial + (u32)i);
}

/* A RESUME and the claims behind it. */
static void fuzz_prepare_resume(u32 serial)
{
	static const u16 types[] = { PROTO_RESUME, PROTO_SLOT_CLAIM, PROTO_SOCKETS_CLAIM,
				     PROTO_PAIR_CLAIM, PROTO_BACK };

	for (u32 i = 0; i < ARRAY_LEN(types); i++)
		fuzz_prepare(types[i], serial + i);
}

/* ---- in place of the real ones ---- */

int __wrap_connection_open(const char *name, enum place_scope scope, bool start);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_await_reply(int fd, struct await *a);

int __wrap_connection_open(const char *name, enum place_scope scope, bool start)
{
	int ends[2];

	if (f.in.left == 0 || f.nodes++ >= NODES)
		return -ECONNREFUSED;
	fuzz_need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
		  "no pair");
	if (f.server >= 0)
		close(f.server);
	f.server = ends[0];
	if (f.node == NULL)
		fuzz_prepare(PROTO_HELLO, ++f.hellos);
	else
		fuzz_prepare_resume(fuzz_serial());
	return ends[1];
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	return 0;
}

/* Nobody says more than what is there already. */
int __wrap_await_reply(int fd, struct await *a)
{
	return message_wait(fd, 0);
}

/* ---- calls ---- */

static void fuzz_close_peer(struct node_peer *p)
{
	events_close_peer(p);
}

static void fuzz_close_event(struct node_event *ev)
{
	if (ev->type == NODE_EVENT_PEER_NEW)
		fuzz_close_peer(&ev->peer);
	if (ev->type == NODE_EVENT_CAPTURE && ev->capture_fd >= 0)
		close(ev->capture_fd);
}

static void fuzz_slot(void)
{
	u32 slot = 0;

	fuzz_prepare(PROTO_SLOT_TAKE, fuzz_serial());
	if (node_slot_take(f.node, &slot) == 0)
		fuzz_need(slot < NODE_SLOTS, "a slot that there is not");
}

static void fuzz_sockets(void)
{
	struct node_socket s[SOCKETS];
	int n, max = input_u8(&f.in) % (SOCKETS + 1);

	fuzz_prepare(PROTO_UDP_SOCKETS, fuzz_serial());
	n = node_udp_sockets(f.node, 0, 1, s, max);
	fuzz_need(n <= max, "more sockets than there is room for");
	for (int i = 0; i < n; i++)
		fuzz_need(close(s[i].fd) == 0, "a socket that is none");
}

static void fuzz_connect(void)
{
	struct node_peer peer;

	fuzz_prepare(PROTO_CONNECT, fuzz_serial());
	if (node_connect(f.node, 3, f.directory_fd, &peer) == 0)
		fuzz_close_peer(&peer);
}

static void fuzz_mcast(bool join)
{
	u8 gid[16] = { 0xff, 1 };

	gid[15] = input_u8(&f.in) % 4;
	fuzz_prepare(join ? PROTO_MCAST_JOIN : PROTO_MCAST_LEAVE, fuzz_serial());
	if (join)
		node_mcast_join(f.node, gid, 7);
	else
		node_mcast_leave(f.node, gid, 7);
}

static void fuzz_event(bool take)
{
	struct node_event ev;
	u8 type = input_u8(&f.in);

	if (take ? node_event_take(f.node, 1 + type % NODE_EVENT_DEVICE_REMOVED, &ev)
		 : node_event_next(f.node, &ev))
		fuzz_close_event(&ev);
}

/* The directory, as a node may write it, and what is read from it. */
static void fuzz_notice(void)
{
	struct node_member members[8];
	struct node_config c;
	u8 gid[16] = { 0 };
	u32 at = (u32)input_u8(&f.in) << 8 | input_u8(&f.in);
	int n;

	input_bytes(&f.in, (u8 *)f.directory + 4 + at % 8192, 24);
	fuzz_need(node_device_get(f.node, at % NODE_DEVICES, &c) < 0 ||
			  (strlen(c.device) < sizeof(c.device) &&
			   strlen(c.sysfs) < sizeof(c.sysfs) &&
			   strlen(c.dev_path) < sizeof(c.dev_path)),
		  "a name without an end");
	n = node_mcast_members(f.node, gid, 0, members, ARRAY_LEN(members));
	fuzz_need(n >= 0 && n <= (int)ARRAY_LEN(members), "more members than there is room for");
}

static void fuzz_call(void)
{
	switch (input_u8(&f.in) % 10) {
	case 0:
		fuzz_slot();
		break;
	case 1:
		fuzz_sockets();
		break;
	case 2:
		fuzz_connect();
		break;
	case 3:
		fuzz_mcast(true);
		break;
	case 4:
		fuzz_mcast(false);
		break;
	case 5:
		fuzz_event(false);
		break;
	case 6:
		fuzz_event(true);
		break;
	case 7:
		fuzz_notice();
		break;
	case 8:
		node_recover(f.node);
		break;
	default:
		if (f.events >= 0)
			fuzz_say(f.events,
				 (u8)(EVENTS + input_u8(&f.in) % (ARRAY_LEN(shapes) - EVENTS)), 0);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	handles_open();
	return 0;
}

static void fuzz_end(void)
{
	struct node_event ev;

	for (int i = 0; i < 64 && node_event_next(f.node, &ev) && ev.type != NODE_EVENT_LOST; i++)
		fuzz_close_event(&ev);
	node_detach(f.node);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct node_self self = { 0, { 1, 2 } };
	int lowest = handle_lowest(), err;

	memset(&f, 0, sizeof(f));
	f.in = (struct input){ data, size };
	f.server = f.events = -1;
	f.directory = directory_create(&f.directory_fd, &err);
	fuzz_need(f.directory != NULL, "no directory");
	if (node_attach(&self, &f.node) == 0) {
		for (int i = 0; i < STEPS && f.in.left != 0; i++)
			fuzz_call();
		fuzz_end();
	}
	if (f.server >= 0)
		close(f.server);
	if (f.events >= 0)
		close(f.events);
	directory_unmap(f.directory);
	close(f.directory_fd);
	fuzz_need(handle_lowest() == lowest, "a descriptor is left open");
	return 0;
}
