/* request_fuzz.c: what processes and tools may send to the daemon, in any order and with any
 * descriptors.
 *
 * The input is a list of steps of up to four connections: messages, of which some fields may be
 * told to be right, and ends. Each input has a daemon of its own, with one address of the loopback
 * network. Afterwards nothing may be left of anybody: no process, no pair, no membership, no
 * descriptor.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "input.h"
#include "daemon/daemon_priv.h"
#include "daemon/wills.h"

enum { CLIENTS = 4, STEPS = 48, TURNS = 64, PROCESSES = 4 };

/* Bits of a step's second byte. */
enum { RIGHT_HEAD = 1, RIGHT_SIZE = 2, RIGHT_FDS = 4, SMALL_NUMBERS = 8, END = 128 };

/* As the services have them. A corpus names requests by their place here: new ones come last. */
static const struct shape {
	u16 type;
	u16 size;
	u8 fds;
} shapes[] = {
	{ 0, 0, 0 },
	{ PROTO_HELLO, sizeof(struct proto_hello), 3 },
	{ PROTO_RESUME, sizeof(struct proto_resume), 3 },
	{ PROTO_TOOL, sizeof(struct proto_plain), 0 },
	{ PROTO_SLOT_TAKE, sizeof(struct proto_plain), 0 },
	{ PROTO_UDP_SOCKETS, sizeof(struct proto_udp_sockets), 0 },
	{ PROTO_CONNECT, sizeof(struct proto_connect), 1 },
	{ PROTO_PAIR_DROP, sizeof(struct proto_pair_end), 0 },
	{ PROTO_MCAST_JOIN, sizeof(struct proto_mcast), 0 },
	{ PROTO_MCAST_LEAVE, sizeof(struct proto_mcast), 0 },
	{ PROTO_STATUS, sizeof(struct proto_plain), 0 },
	{ PROTO_ADDRESSES, sizeof(struct proto_plain), 0 },
	{ PROTO_PROCESSES, sizeof(struct proto_processes), 0 },
	{ PROTO_BOARD, sizeof(struct proto_processes), 0 },
	{ PROTO_STOP, sizeof(struct proto_stop), 0 },
	{ PROTO_PORT, sizeof(struct proto_port), 0 },
	{ PROTO_CAPTURE, sizeof(struct proto_plain), 1 },
	{ PROTO_DEVICE_READ, sizeof(struct proto_device_read), 0 },
	{ PROTO_DEVICE_ADD, sizeof(struct proto_device_name), 0 },
	{ PROTO_DEVICE_REMOVE, sizeof(struct proto_device_name), 0 },
	{ PROTO_SLOT_CLAIM, sizeof(struct proto_slot_claim), 1 },
	{ PROTO_SOCKETS_CLAIM, sizeof(struct proto_plain), 1 },
	{ PROTO_PAIR_CLAIM, sizeof(struct proto_pair_claim), 0 },
	{ PROTO_LISTEN, sizeof(struct proto_listen), 0 },
	{ PROTO_UNLISTEN, sizeof(struct proto_listen), 0 },
	{ PROTO_WILL, sizeof(struct proto_plain), 1 },
	{ PROTO_SUCCEED, sizeof(struct proto_succeed), 0 },
	{ PROTO_CONNECTIONS, sizeof(struct proto_connections), 0 },
	{ PROTO_AGENT, sizeof(struct proto_agent), 0 },
	{ PROTO_AGENT_END, sizeof(struct proto_agent), 0 },
	{ PROTO_FLOW, sizeof(struct proto_flow), 0 },
	{ PROTO_FLOW_END, sizeof(struct proto_flow), 0 },
	{ PROTO_BACK, sizeof(struct proto_plain), 0 },
};

static struct fuzz {
	struct daemon *daemon;
	int client[CLIENTS];
	int extra[3]; /* slots file, fdstore, what an earlier fdstore left */
	u32 slot;     /* given out last */
} f;

static u8 address[16] = { [10] = 0xff, [11] = 0xff, 127, 77 };

/* ---- a daemon ---- */

static void fuzz_begin(void)
{
	struct daemon *d = f.daemon = calloc(1, sizeof(*d));
	int err = 0;

	strcpy(d->options.node, "fuzz");
	d->options.idle_ns = UINT64_MAX;
	list_init(&d->procs);
	list_init(&d->wills);
	list_init(&d->held);
	d->folder.fd = d->listener.fd = d->inner.fd = d->addresses.fd = d->capture_fd = -1;
	d->look_again_ns = UINT64_MAX;
	fuzz_need(loop_init(&d->loop) == 0 && slots_open(&d->slots, -1, 0) == 0, "no daemon");
	d->slots.file.next_process = 1;
	d->directory = directory_create(&d->directory_fd, &err);
	fuzz_need(d->directory != NULL && daemon_udp_init(&d->udp, &d->loop) == 0, "no daemon");
	d->directory->devices[0].id = d->devices[0].id = 1;
	strcpy(d->devices[0].name, "roce0");
	d->next_device_id = 2;
	/* a device that is added has a loopback address, never one of this host */
	for (u32 i = 0; i < NODE_DEVICES; i++)
		d->devices[i].told.given = true;
	d->devices[0].told.count = 1;
	memcpy(d->devices[0].told.gid[0], address, 16);
	memcpy(d->directory->devices[0].gids[1].gid, address, 16);
	daemon_udp_look_begin(&d->udp);
	daemon_udp_want(&d->udp, address, 1);
	daemon_udp_look_end(&d->udp);
	daemon_udp_mark(&d->udp, &d->directory->devices[0]);
	d->started_ns = d->idle_since_ns = clock_now_ns();
	f.extra[0] = d->slots.fd;
	f.extra[1] = d->udp.fdstore.out;
	f.extra[2] = d->directory_fd;
	for (int i = 0; i < CLIENTS; i++)
		f.client[i] = -1;
}

static void fuzz_turn(void)
{
	for (int i = 0; i < TURNS; i++)
		loop_turn(&f.daemon->loop, 0);
}

static void fuzz_finish(void)
{
	struct daemon *d = f.daemon;

	for (int i = 0; i < CLIENTS; i++)
		if (f.client[i] >= 0)
			close(f.client[i]);
	fuzz_turn();
	fuzz_need(list_empty(&d->procs) && d->proc_count == 0, "a connection is left");
	fuzz_need(d->attached == 0 && d->blocked_count == 0, "a process is counted that has gone");
	fuzz_need(d->resuming == 0, "claims of a process are awaited that has gone");
	fuzz_need(d->member_count == 0 && d->directory->members == 0, "a membership is left");
	fuzz_need(d->directory->agents == 0, "an agent is left");
	fuzz_need(d->recorder == NULL && d->capture_fd < 0, "a recorder is left");
	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		fuzz_need(d->slots.owner[slot] == 0, "a slot is left");
	for (u32 chain = 0; chain <= DIRECTORY_BUCKETS; chain++)
		fuzz_need(d->directory->chain[chain] == 0, "a listener is left");
	wills_clear(d);
	fuzz_need(d->wills_count == 0, "wills are counted that nobody has");
	pairs_clear(&d->pairs);
	daemon_udp_destroy(&d->udp);
	directory_unmap(d->directory);
	close(d->directory_fd);
	slots_close(&d->slots);
	loop_destroy(&d->loop);
	free(d);
}

/* ---- clients ---- */

static void fuzz_connect(int i)
{
	int ends[2];

	if (f.client[i] >= 0)
		return;
	fuzz_need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
		  "no pair");
	f.client[i] = ends[0];
	proc_accept(f.daemon, ends[1]);
}

/* Reads replies until there are none; what they bring is closed. */
static void fuzz_drain(int i)
{
	union proto_reply reply;
	struct message m;

	while (message_receive(f.client[i], &reply, sizeof(reply), &m) == 0) {
		fuzz_need(m.size >= sizeof(reply.head) && reply.head.magic == PROTO_MAGIC &&
				  reply.head.version == PROTO_VERSION,
			  "a reply that is none");
		if (reply.head.type == PROTO_SLOT_TAKE && reply.head.status == 0)
			f.slot = reply.slot.slot;
		message_close(&m);
	}
}

/* Numbers that name somebody. */
static void fuzz_small(union proto_request *q)
{
	switch (q->head.type) {
	case PROTO_RESUME:
		q->resume.process %= PROCESSES;
		break;
	case PROTO_PAIR_CLAIM:
		q->pair_claim.count %= 8;
		for (int i = 0; i < 8; i++)
			q->pair_claim.pairs[i] %= PROCESSES;
		break;
	case PROTO_UDP_SOCKETS:
		q->udp_sockets.slot = f.slot;
		q->udp_sockets.from %= NODE_GIDS;
		q->udp_sockets.device %= 3;
		break;
	case PROTO_CONNECT:
		q->connect.slot = f.slot;
		break;
	case PROTO_PAIR_DROP:
		q->pair_end.process %= PROCESSES;
		break;
	case PROTO_LISTEN:
	case PROTO_UNLISTEN:
		q->listen.slot = f.slot;
		q->listen.mask = q->listen.mask & 1 ? UINT64_MAX : 0xff;
		q->listen.service_id &= 3;
		break;
	case PROTO_AGENT:
	case PROTO_AGENT_END:
		q->agent.slot = f.slot;
		q->agent.agent.device %= 3;
		q->agent.agent.mgmt_class &= 3;
		q->agent.agent.version = 1;
		q->agent.agent.port = 1;
		q->agent.agent.qpn &= 1;
		break;
	case PROTO_FLOW:
	case PROTO_FLOW_END:
		q->flow.flow.device %= 3;
		q->flow.flow.rule.rank %= 4;
		break;
	case PROTO_MCAST_JOIN:
	case PROTO_MCAST_LEAVE:
		q->mcast.gid[0] = 0xff;
		q->mcast.qpn %= 4;
		break;
	case PROTO_PORT:
		q->port.port = 1;
		q->port.device[0] = '\0';
		q->port.up &= 1;
		break;
	case PROTO_DEVICE_READ:
		q->device_read.index %= NODE_DEVICES + 1;
		break;
	case PROTO_DEVICE_ADD:
	case PROTO_DEVICE_REMOVE:
		snprintf(q->device_name.name, sizeof(q->device_name.name), "roce%u",
			 (u8)q->device_name.name[0] % (NODE_DEVICES + 2));
		break;
	default:
		q->processes.after %= PROCESSES;
	}
}

static void fuzz_send(int i, u8 what, struct input *in)
{
	union proto_request q;
	const struct shape *shape = &shapes[input_u8(in) % ARRAY_LEN(shapes)];
	u8 count = input_u8(in), length = input_u8(in);
	size_t size = length * 8u;
	int fds[PROTO_FDS];

	memset(&q, 0, sizeof(q));
	input_bytes(in, (u8 *)&q + sizeof(q.head), length);
	if (what & RIGHT_HEAD)
		q.head = (struct proto_head){ PROTO_MAGIC, PROTO_VERSION, shape->type, 0, 0 };
	else
		input_bytes(in, &q.head, sizeof(q.head));
	if (what & RIGHT_SIZE)
		size = shape->size;
	if (what & SMALL_NUMBERS)
		fuzz_small(&q);
	count = (what & RIGHT_FDS) ? shape->fds : count % (PROTO_FDS + 1);
	for (int k = 0; k < count; k++)
		fds[k] = handle_make(input_u8(in), f.extra, ARRAY_LEN(f.extra));
	message_send(f.client[i], &q, MIN(size, sizeof(q)), fds, count);
	for (int k = 0; k < count; k++)
		close(fds[k]);
}

static void fuzz_step(struct input *in)
{
	int i = input_u8(in) % CLIENTS;
	u8 what = input_u8(in);

	fuzz_connect(i);
	if (what & END) {
		close(f.client[i]);
		f.client[i] = -1;
	} else {
		fuzz_send(i, what, in);
	}
	for (int k = 0; k < 8; k++)
		loop_turn(&f.daemon->loop, 0);
	if (f.client[i] >= 0)
		fuzz_drain(i);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* another one's may run beside */
	address[14] = (u8)(getpid() >> 8);
	address[15] = (u8)getpid();
	handles_open();
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };
	int lowest = handle_lowest();

	fuzz_begin();
	for (int n = 0; in.left != 0 && n < STEPS; n++)
		fuzz_step(&in);
	fuzz_finish();
	fuzz_need(handle_lowest() == lowest, "a descriptor is left open");
	return 0;
}
