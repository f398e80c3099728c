/* will_fuzz.c: the file of wills of a process, of any content.
 *
 * The input is a list of slots: each begins as a good will, of which any bytes are then written
 * over. Then the process dies. What its peer on this node receives must be a datagram of QP1 that
 * ends something, from an address of this node, in the name of the dead process. All must be over
 * in bounded time, and nothing may be left.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread, in virtual time
 * Locks: none
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memfile.h"
#include "cm/message/message.h"
#include "input.h"
#include "daemon/wills.h"
#include "daemon/qp1.h"
#include "node/steer.h"

enum { DEAD = 1, DEAD_SLOT = 3, PEER = 2, PEER_SLOT = 4, SLOTS = 100, PIECES = 8 };

static struct daemon *d;
static struct will_file *file;
static struct proc dead, peer;
static int peer_end;
static u64 now;
static const u8 own[16] = { [10] = 0xff, [11] = 0xff, 127, 77, 0, 1 };

static u64 fuzz_clock(void)
{
	return now;
}

static void make_proc(struct proc *p, u64 process, u32 slot)
{
	*p = (struct proc){ .daemon = d, .process = process, .kind = PROC_ATTACHED };
	p->events.fd = p->will_fd = -1;
	list_init(&p->waiting);
	list_push_back(&d->procs, &p->node);
	d->slots.owner[slot] = process;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int err = 0, ends[2];

	clock_set_source(fuzz_clock);
	d = calloc(1, sizeof(*d));
	list_init(&d->procs);
	list_init(&d->wills);
	fuzz_need(loop_init(&d->loop) == 0 && slots_open(&d->slots, -1, 0) == 0 &&
			  daemon_udp_init(&d->udp, &d->loop) == 0,
		  "no daemon");
	d->directory = directory_create(&d->directory_fd, &err);
	fuzz_need(d->directory != NULL, "no directory");
	d->directory->devices[0].id = 1;
	memcpy(d->directory->devices[0].gids[1].gid, own, sizeof(own));
	make_proc(&dead, DEAD, DEAD_SLOT);
	make_proc(&peer, PEER, PEER_SLOT);
	fuzz_need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) == 0, "no pair");
	peer.events.fd = ends[0];
	peer_end = ends[1];
	dead.will_fd = memfile_create("wills", sizeof(*file));
	file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, dead.will_fd, 0);
	fuzz_need(file != MAP_FAILED, "no file");
	return 0;
}

static void make_good(struct will_slot *slot, enum cm_attr attr, u32 number)
{
	struct cm_msg msg = { .attr = attr };
	u8 mad[CM_MAD_BYTES];

	/* the IDs lie alike in all of them */
	msg.dreq = (struct cm_dreq_msg){ .local_id = DEAD_SLOT << STEER_SLOT_SHIFT | number,
					 .remote_id = PEER_SLOT << STEER_SLOT_SHIFT | number };
	if (attr == CM_SIDR_REP)
		msg.sidr_rep = (struct cm_sidr_rep_msg){
			.request_id = PEER_SLOT << STEER_SLOT_SHIFT | number, .status = 2
		};
	msg_pack(&msg, mad);
	*slot = (struct will_slot){ .word = 1 };
	memcpy(slot->half[0].sgid, own, sizeof(own));
	memcpy(slot->half[0].dgid, own, sizeof(own));
	memcpy(slot->half[0].mad, mad, sizeof(slot->half[0].mad));
	slot->half[0].pkey = 0xffff;
	slot->half[1] = slot->half[0];
}

static void fill_file(struct input *in)
{
	u32 i = 0;

	file->magic = WILL_MAGIC;
	for (; i < SLOTS && in->left > 0; i++) {
		u8 pieces = input_u8(in);

		make_good(&file->slots[i], (enum cm_attr)(CM_REQ + pieces / PIECES % 11), i + 1);
		for (u8 k = 0; k < pieces % PIECES; k++) {
			u8 at = input_u8(in), size = input_u8(in) % 8;

			input_bytes(in, (u8 *)&file->slots[i] + at,
				    MIN((size_t)size, sizeof(file->slots[i]) - at));
		}
	}
	file->used = input_u8(in) == 77 ? UINT32_MAX : i;
	memset(&file->slots[i], 0, (SLOTS - i) * sizeof(file->slots[i]));
}

static void judge(const struct node_mad *mad)
{
	struct cm_msg msg;
	u32 qpn, local = 0;

	fuzz_need(qp1_judge(mad, &qpn) && qpn == 1, "no datagram of QP1");
	fuzz_need(memcmp(mad->sgid, own, sizeof(own)) == 0, "from another's address");
	fuzz_need(msg_unpack(&msg, mad->payload + QP1_MAD, CM_MAD_BYTES), "no message");
	fuzz_need(msg.attr == CM_REJ || msg.attr == CM_DREQ || msg.attr == CM_DREP ||
			  msg.attr == CM_SIDR_REP,
		  "a message that ends nothing");
	if (msg.attr != CM_SIDR_REP)
		local = msg.dreq.local_id;
	fuzz_need(local == 0 ? msg.attr == CM_REJ || msg.attr == CM_SIDR_REP
			     : local >> STEER_SLOT_SHIFT == DEAD_SLOT,
		  "in another's name");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };
	struct proto_mad event;
	u64 begin;

	now = begin = NS_PER_S;
	fill_file(&in);
	wills_open(&dead);
	for (u64 next; (next = wills_next_ns(d)) != UINT64_MAX;) {
		now = MAX(now, next);
		wills_run(d, now);
		while (recv(peer_end, &event, sizeof(event), 0) == sizeof(event))
			judge(&event.mad);
		fuzz_need(now - begin < 120 * NS_PER_S, "never ends");
	}
	fuzz_need(list_empty(&d->wills) && d->wills_count == 0, "wills are left");
	return 0;
}
