/* ring_fuzz.c: what a peer may put into its ring, from the slot to the last byte of the engine.
 *
 * The input is a list of steps of 64 bytes: a slot as a peer would write it, of which some fields
 * may be told to be right (`what`), so that the fuzzer gets past the first checks. The peer is a
 * link as the node would have handed it over, without direct access. After each input, memory that
 * no key gives away must be as before.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ibt/ibt.h"
#include "path/shm/shm_priv.h"

enum {
	QPS = 5, /* RC, RC with an SRQ, UC, UD, and RC that is not connected */
	KEYS = 3,
	MEMORY = 64 << 10,
	OPEN_AT = 4104,
	OPEN_BYTES = 30000,
	SHUT_AT = 40008,
	SHUT_BYTES = 9000,
	RECEIVE_AT = 52008,
	RECEIVE_BYTES = 5000,
	CANARY = 0x5e,
	STEPS = 64,
	PSN = 77,
	QKEY = 0x1234,
	OUR_SLOT = 5,
	PEER_SLOT = 6,
};

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

/* Bits of `key`, with RIGHT_ADDRESS. */
enum { FROM_END = 0x40, ODD_LENGTH = 0x80 };

struct step {
	u8 what, qp, key;
	int8_t psn;
	u8 slot[60]; /* a ring_slot without its sequence number */
};

static struct fuzz {
	struct board *board, *peer_board;
	struct timer_set timers;
	struct mem_table mem;
	struct shm *shm;
	struct shm_link *link;
	struct ibt *ibt;
	struct cq cq;
	struct ibt_srq *srq;
	struct ibt_qp *qp[QPS];
	struct ibt_counters counters[QPS];
	u32 key[KEYS];
	u8 *memory;
} f;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void fuzz_need(bool fine, const char *what)
{
	if (fine)
		return;
	dprintf(2, "ring_fuzz: %s\n", what);
	abort();
}

static u32 fuzz_qpn(int i)
{
	return OUR_SLOT << NODE_INDEX_BITS | (u32)(i + 2);
}

static u32 fuzz_peer_qpn(int i)
{
	return PEER_SLOT << NODE_INDEX_BITS | (u32)(i + 2);
}

/* ---- what the engine asks of its adapter ---- */

static void fuzz_kick(void *arg)
{
}

static void fuzz_publish(void *arg, struct ibt_qp *qp)
{
}

static void fuzz_async(void *arg, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type)
{
}

static int fuzz_multicast(void *arg, const struct path_av *av, struct path_dest **dest, u32 *qpn,
			  int max)
{
	return 0;
}

static struct path_dest *fuzz_route(void *arg, const struct path_av *av, u32 qpn)
{
	struct path *path = shm_path(f.shm);

	path->ops->dest_hold(&f.link->dest);
	return &f.link->dest;
}

/* ---- setting up, once ---- */

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

static void fuzz_make_memory(void)
{
	struct mem_region r[KEYS] = {
		{ .length = OPEN_BYTES,
		  .pd = 1,
		  .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC },
		{ .length = SHUT_BYTES,
		  .pd = 2,
		  .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
		{ .length = RECEIVE_BYTES, .pd = 1, .access = IBV_ACCESS_LOCAL_WRITE },
	};
	static const u32 at[KEYS] = { OPEN_AT, SHUT_AT, RECEIVE_AT };

	f.memory = malloc(MEMORY);
	memset(f.memory, CANARY, MEMORY);
	for (int i = 0; i < KEYS; i++) {
		r[i].flags = MEM_CONTIGUOUS;
		r[i].addr = r[i].iova = (u64)(uintptr_t)f.memory + at[i];
		fuzz_need(mem_register(&f.mem, &r[i], &f.key[i]) == 0, "no key");
	}
}

static void fuzz_make_qps(void)
{
	static const u32 types[QPS] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
					IBV_QPT_RC };

	fuzz_need(cq_init(&f.cq, 4096) == 0, "no CQ");
	fuzz_need(ibt_srq_create(f.ibt, 1, 16, 2, NULL, &f.srq) == 0, "no SRQ");
	for (int i = 0; i < QPS; i++) {
		struct ibt_qp_init init = { .type = types[i],
					    .qpn = fuzz_qpn(i),
					    .pd = 1,
					    .cap = { 16, 16, 2, 2, 0 },
					    .send_cq = &f.cq,
					    .recv_cq = &f.cq,
					    .srq = i == 1 ? f.srq : NULL,
					    .sq_sig_all = true,
					    .owner = &f.qp[i],
					    .counters = &f.counters[i] };

		fuzz_need(ibt_qp_create(f.ibt, &init, &f.qp[i]) == 0, "no queue pair");
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct shm_config cfg = { .process = 1, .direct = false, .kick = fuzz_kick };
	struct ibt_config engine = { .mem = &f.mem,
				     .timers = &f.timers,
				     .kick = fuzz_kick,
				     .publish = fuzz_publish,
				     .async = fuzz_async,
				     .multicast = fuzz_multicast,
				     .route = fuzz_route };
	int fd, err;

	f.board = cfg.board = board_create(&fd, &err);
	fuzz_need(f.board != NULL && mem_table_init(&f.mem, f.board->keys) == 0, "no board");
	timer_set_init(&f.timers);
	cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f.shm = shm_create(&cfg, &err);
	f.ibt = ibt_create(&engine);
	fuzz_need(f.shm != NULL && f.ibt != NULL, "no engine");
	ibt_add_path(f.ibt, shm_path(f.shm));
	fuzz_make_link();
	fuzz_make_memory();
	fuzz_make_qps();
	return 0;
}

/* ---- before each input ---- */

static void fuzz_modify(int i, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = to,
				    .port_num = 1,
				    .qkey = QKEY,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = fuzz_peer_qpn(i),
				    .rq_psn = PSN,
				    .sq_psn = PSN,
				    .max_dest_rd_atomic = 4,
				    .max_rd_atomic = 4,
				    .timeout = 10,
				    .rnr_retry = 7 };
	struct path_av av = { .hop_limit = 1 };
	struct path_dest *dest = mask & IBV_QP_AV ? fuzz_route(NULL, &av, 0) : NULL;

	fuzz_need(ibt_qp_modify(f.qp[i], &attr, mask | IBV_QP_STATE, &av, dest) == 0, "modify");
}

static void fuzz_post_receives(int i)
{
	struct ibv_sge sge[2] = { { (uintptr_t)f.memory + RECEIVE_AT, 2000, f.key[2] },
				  { (uintptr_t)f.memory + RECEIVE_AT + 3000, 2000, f.key[2] } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 2 }, *bad;

	for (int k = 0; k < 4; k++)
		if (i == 1)
			ibt_srq_post(f.srq, &wr, &bad);
		else
			ibt_post_recv(f.qp[i], &wr, &bad);
}

static void fuzz_connect(int i)
{
	bool ud = i == 3;

	fuzz_modify(i, IBV_QPS_RESET, 0);
	fuzz_modify(i, IBV_QPS_INIT, IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	fuzz_post_receives(i);
	if (i == 4)
		return;
	fuzz_modify(i, IBV_QPS_RTR,
		    ud ? 0
		       : IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU |
				    IBV_QP_MAX_DEST_RD_ATOMIC);
	fuzz_modify(i, IBV_QPS_RTS,
		    IBV_QP_SQ_PSN |
			    (ud ? 0 : IBV_QP_TIMEOUT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* ---- steps ---- */

static void fuzz_post_send(int i, u8 how)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = opcodes[i == 3 ? 0 : how % 4] }, *bad;
	struct ibv_sge sge = { (uintptr_t)f.memory + RECEIVE_AT, how % 8 * 250u, f.key[2] };

	wr.sg_list = &sge;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		sge.length = 8;
	if (i != 3) /* a datagram needs an address handle of the driver's */
		ibt_post_send(f.qp[i], &wr, &bad, NULL);
}

static u32 fuzz_psn(int i)
{
	struct ibv_qp_attr attr;

	ibt_qp_query(f.qp[i], &attr);
	return attr.rq_psn;
}

static void fuzz_correct(struct ring_slot *s, const struct step *step)
{
	static const u8 types[QPS] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC };
	int i = step->qp % QPS;

	if (step->what & RIGHT_QP) {
		s->dqpn = fuzz_qpn(i);
		s->sqpn = fuzz_peer_qpn(i);
		s->qp_type = types[i];
		if (i == 3)
			s->ack_psn = QKEY;
	}
	if (step->what & RIGHT_PSN)
		s->psn = (fuzz_psn(i) + (u32)(step->psn / 8)) & 0xffffff;
	if (step->what & RIGHT_KEY)
		s->reth.rkey = f.key[step->key % KEYS];
	if (step->what & RIGHT_ADDRESS) {
		s->reth.va = (u64)(uintptr_t)f.memory + OPEN_AT + (s64)(int16_t)s->reth.va;
		if (step->key & FROM_END)
			s->reth.va += OPEN_BYTES;
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
		fuzz_post_send(step->qp % QPS, step->key);
	fuzz_put(step);
	if (!(step->what & RING_FULL)) {
		lock_acquire(&f.link->tx.lock);
		f.link->tx.shared->consumed = f.link->tx.head;
		lock_release(&f.link->tx.lock);
	}
	ibt_poll(f.ibt, (step->what & POLL_NOW) ? 64 : 1);
}

static void fuzz_check_span(u32 from, u32 to)
{
	for (u32 at = from; at < to; at++)
		if (f.memory[at] != CANARY) {
			dprintf(2, "ring_fuzz: byte %u holds %02x\n", at, f.memory[at]);
			abort();
		}
}

static void fuzz_check_memory(void)
{
	fuzz_check_span(0, OPEN_AT);
	fuzz_check_span(OPEN_AT + OPEN_BYTES, RECEIVE_AT);
	fuzz_check_span(RECEIVE_AT + 2000, RECEIVE_AT + 3000);
	fuzz_check_span(RECEIVE_AT + 5000, MEMORY);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct ibv_wc wc[64];
	struct step step;

	for (int i = 0; i < QPS; i++)
		fuzz_connect(i);
	for (int n = 0; size >= sizeof(step) && n < STEPS; n++) {
		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		fuzz_step(&step);
	}
	for (int i = 0; i < 64 && ibt_poll(f.ibt, 64) != 0; i++)
		continue;
	while (cq_pop(&f.cq, 64, wc) > 0)
		continue;
	fuzz_need(!f.cq.overflowed, "the CQ has overflowed");
	fuzz_check_memory();
	return 0;
}
