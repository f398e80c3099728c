/* ring_fuzz.c: what a peer may put into its ring, from the slot to the last byte of the engine.
 *
 * The input is a list of steps of 64 bytes: a slot as a peer would write it, of which some fields
 * may be told to be right (`what`), so that the fuzzer gets past the first checks. The peer is a
 * link as the node would have handed it over, without direct access. It also has an XRC target
 * that hands requests to this process, and the SRQ that this process' target hands some to. After
 * each input, memory that no key gives away must be as before.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bed.h"
#include "ibt/xrc/forward.h"
#include "path/shm/shm_priv.h"

enum { STEPS = 64 };

enum what {
	RIGHT_QP = 1,
	RIGHT_PSN = 2,
	RIGHT_KEY = 4,
	RIGHT_ADDRESS = 8,
	POST_SEND = 16,
	POLL_NOW = 32,
	RAW_DATA = 64,
	RING_FULL = 128,
};

/* Bits of `key`, with RIGHT_ADDRESS; with RIGHT_QP. */
enum { FROM_END = 0x40, ODD_LENGTH = 0x80, THEIR_SRQ = 0x20 };
/* With RIGHT_QP, the upper bits of `qp`: a request that the peer's target hands on; an answer to
 * one that ours has handed on. */
enum { HANDED = 0xe0, DONE = 0xe8, KIND_MASK = 0xf8 };

struct step {
	u8 what, qp, key;
	int8_t psn;
	u8 slot[60]; /* a ring_slot without its sequence number */
};

static struct fuzz {
	struct bed bed;
	struct board *board, *peer_board;
	struct shm *shm;
	struct shm_link *link;
	u32 handed_psn; /* that the proxy of the peer's target expects, if all goes well */
	u32 seen;	/* slots that have been looked at */
	u32 serial;	/* of our target's connection */
} f;

/* ---- setting up, once ---- */

static void fuzz_kick(void *arg)
{
}

static void fuzz_make_link(void)
{
	struct node_peer peer = { .process = 2, .pid = getpid() };
	int err;

	peer.ring_fd = ring_pair_create();
	f.peer_board = board_create(&peer.board_fd, &err);
	peer.bell_fd[0] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peer.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peer.pid_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	fuzz_need(f.peer_board != NULL && shm_peer_new(f.shm, &peer) == 0, "no link");
	f.link = f.shm->links[1];
}

/* The peer's target, and that its slot is that link's. */
static void fuzz_show_target(void)
{
	u32 qpn = bed_peer_qpn(BED_XRC_TGT);
	struct board_qp *q = &f.peer_board->qps[qpn % BOARD_QPS_PER_SLOT];

	q->qpn = qpn;
	q->word = board_qp_word(IBV_QPS_RTS, IBV_QPT_XRC_RECV, 0);
	f.peer_board->slots[0] = BED_PEER_SLOT;
	f.peer_board->slot_count = 1;
	lock_acquire(&f.shm->lock);
	f.shm->slots[BED_PEER_SLOT] = f.link;
	lock_release(&f.shm->lock);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct shm_config cfg = { .process = 1, .direct = false, .kick = fuzz_kick };
	int fd, err;

	f.board = cfg.board = board_create(&fd, &err);
	cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f.shm = f.board == NULL ? NULL : shm_create(&cfg, &err);
	fuzz_need(f.shm != NULL, "no path");
	fuzz_make_link();
	fuzz_show_target();
	bed_open(&f.bed, f.board->keys, shm_path(f.shm), &f.link->dest, IBV_MTU_1024);
	return 0;
}

/* ---- steps ---- */

/* Notes which connection our target tells of. */
static void fuzz_look(void)
{
	const struct ring_shared *ring = f.link->tx.shared;
	struct forward_open open;

	for (; f.seen != f.link->tx.head; f.seen++) {
		const struct ring_slot *s = &ring->slots[f.seen % RING_SLOTS];

		if (s->qp_type != PKT_TYPE_FORWARDED || s->opcode != PKT_FORWARD_OPEN)
			continue;
		memcpy(&open, s->inlined, sizeof(open));
		f.serial = open.serial;
	}
}

static void fuzz_hand(struct ring_slot *s, const struct step *step)
{
	struct forward_open open = {
		.xrcd = BED_DOMAIN, .serial = step->qp & 1, .psn_shift = 12, .resources = 4
	};

	s->qp_type = PKT_TYPE_FORWARDED;
	s->dqpn = step->qp & 4 ? bed_qpn(0) : bed_srqn();
	s->sqpn = bed_peer_qpn(BED_XRC_TGT);
	if (!(step->what & RIGHT_PSN))
		return;
	if (s->opcode == PKT_FORWARD_OPEN) {
		memcpy(s->inlined, &open, sizeof(open));
		s->length = sizeof(open);
		f.handed_psn = s->psn & 0xffffff;
	} else {
		s->psn = (f.handed_psn++ + (u32)(step->psn / 8)) & 0xffffff;
	}
}

static void fuzz_answer(struct ring_slot *s, const struct step *step)
{
	s->qp_type = (u8)(PKT_TYPE_DONE | (f.serial & PKT_DONE_SERIAL));
	s->dqpn = bed_qpn(BED_XRC_TGT);
	s->sqpn = s->dqpn;
	if (step->what & RIGHT_PSN)
		s->psn = (bed_psn(&f.bed, BED_XRC_TGT) + (u32)(step->psn / 8)) & 0xffffff;
}

static void fuzz_correct(struct ring_slot *s, const struct step *step)
{
	int i = bed_pick(step->qp);

	if ((step->what & RIGHT_QP) && (step->qp & KIND_MASK) == HANDED) {
		fuzz_hand(s, step);
	} else if ((step->what & RIGHT_QP) && (step->qp & KIND_MASK) == DONE) {
		fuzz_answer(s, step);
	} else if (step->what & RIGHT_QP) {
		s->dqpn = bed_qpn(i);
		s->sqpn = bed_peer_qpn(i);
		s->qp_type = bed_types[i];
		if (i == BED_UD_QP)
			s->ack_psn = BED_QKEY;
		if (i == BED_XRC_TGT)
			s->ack_psn = step->key & THEIR_SRQ ? bed_peer_qpn(BED_QPS) : bed_srqn();
	}
	if ((step->what & RIGHT_PSN) && (s->qp_type == bed_types[i] || !(step->what & RIGHT_QP)))
		s->psn = (bed_psn(&f.bed, i) + (u32)(step->psn / 8)) & 0xffffff;
	if (step->what & RIGHT_KEY)
		s->reth.rkey = f.bed.key[step->key % BED_KEYS];
	if (step->what & RIGHT_ADDRESS) {
		s->reth.va = (u64)(uintptr_t)f.bed.memory + BED_OPEN_AT + (s64)(int16_t)s->reth.va;
		if (step->key & FROM_END) /* or a few bytes beside */
			s->reth.va = (u64)(uintptr_t)f.bed.memory + BED_OPEN_AT + BED_OPEN_BYTES -
				     s->length + (u64)(s64)(step->psn % 4);
		if (!(step->key & ODD_LENGTH))
			s->reth.dma_length = s->length;
		s->reth.data %= RING_DATA;
	}
}

/* As a peer would: into the slot that is read next. */
static void fuzz_put(const struct step *step)
{
	struct ring_shared *ring = f.link->rx.shared;
	u32 at = f.link->rx.tail;
	struct ring_slot s;

	memcpy((u8 *)&s + sizeof(s.seq), step->slot, sizeof(step->slot));
	if (step->what & RAW_DATA) {
		memcpy(ring->data + (step->qp << 10 | step->key << 2), step->slot,
		       sizeof(step->slot));
		return;
	}
	fuzz_correct(&s, step);
	s.seq = at + 1;
	ring->slots[at % RING_SLOTS] = s;
}

static void fuzz_step(const struct step *step)
{
	if (step->what & POST_SEND)
		bed_post_send(&f.bed, bed_pick(step->qp), step->key);
	fuzz_put(step);
	if (!(step->what & RING_FULL)) {
		lock_acquire(&f.link->tx.lock);
		f.link->tx.shared->consumed = f.link->tx.head;
		lock_release(&f.link->tx.lock);
	}
	ibt_poll(f.bed.ibt, (step->what & POLL_NOW) ? 64 : 1);
	fuzz_look();
}

/* No input finds the proxy of the one before. */
static void fuzz_close(void)
{
	struct step step = { .what = RIGHT_QP, .qp = HANDED };

	step.slot[0] = PKT_FORWARD_CLOSE;
	fuzz_step(&step);
	f.handed_psn = 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct step step;

	bed_connect(&f.bed);
	fuzz_close();
	for (int n = 0; size >= sizeof(step) && n < STEPS; n++) {
		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		fuzz_step(&step);
	}
	bed_check(&f.bed);
	return 0;
}
