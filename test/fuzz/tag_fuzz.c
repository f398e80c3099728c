/* tag_fuzz.c: what a hostile peer may send to a tag-matching SRQ: TMH and RVH of any content, in
 * packets of any kind and order, and answers to the READs that they make the adapter send.
 *
 * The first byte chooses a path: one that loses packets, or one that does not, where a SEND may
 * name memory instead of carrying it. Then come steps: packets of the peer, of which some fields
 * may be told to be right, and what the program does meanwhile. After each input memory that was
 * not posted must be as before. Each signalled operation has completed once. An entry that cannot
 * be deleted has completed once, and one that can has not.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread    Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ibt/ibt.h"
#include "input.h"

enum {
	STEPS = 96,
	QPN = 5 << 14 | 3,
	PEER_QPN = 6 << 14 | 3,
	PSN = 77,
	MTU = 256,
	MOST = 4096, /* payload of a packet */
	ENTRIES = 24,
	OPS = 128,
	BUFFERS = 64,
	PIECE = 600,	/* bytes of an entry's piece, or of a buffer, at most */
	GUARD = 40,	/* between them */
	PLACES = 2 * ENTRIES + BUFFERS,
	MEMORY = PLACES * (PIECE + GUARD) + GUARD,
	CANARY = 0x5e,
	ID_OP = 1000,
	ID_BUFFER = 2000,
};

enum what {
	RIGHT_PSN = 1,
	RIGHT_OPCODE = 2, /* of the TMH: 0 to 3 */
	RIGHT_TAG = 4,	  /* one of a few */
	SMALL_READ = 8,	  /* the RVH's length is small */
	KNOWN_KEY = 16,	  /* the RVH names a key of ours */
	PULLED = 32,
};

struct entry {
	u32 handle, completions;
	bool posted;
};

static struct fuzz {
	struct path path;
	struct path_dest dest;
	u64 counters[PATH_COUNTERS];
	struct timer_set timers;
	struct mem_table mem;
	struct ibt *ibt;
	u8 *memory;
	u32 key;
} beds[2];

/* Of one input. */
static struct run {
	struct fuzz *bed;
	struct input *in;
	struct cq cq, send_cq;
	struct ibt_srq *srq;
	struct ibt_qp *qp;
	struct ibt_counters counters;
	struct entry entry[ENTRIES];
	u32 entries, ops, buffers, ops_done;
	bool open[PLACES]; /* its bytes may change */
	u32 length[PLACES];
	bool op_signalled[OPS], op_completed[OPS];
	bool buffer_done[BUFFERS];
	u32 read_psn, read_bytes; /* of the last READ request */
	u32 fins;
} r;

static u64 now_ns = NS_PER_S;

static u64 fuzz_clock(void)
{
	return now_ns;
}

/* ---- the path ---- */

static struct path_dest *path_get(struct path *p, const struct path_av *av, u32 qpn)
{
	return &container_of(p, struct fuzz, path)->dest;
}

static struct path_dest *path_nowhere(struct path *p)
{
	return &container_of(p, struct fuzz, path)->dest;
}

static void path_hold(struct path_dest *d)
{
}

/* What is sent goes to the peer, and names nothing but what the peer has said. */
static int path_send(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int n)
{
	fuzz_need(p->dqpn == PEER_QPN, "a packet for somebody else");
	if (p->opcode == PKT_READ_REQUEST) {
		r.read_psn = p->psn;
		r.read_bytes = (u32)p->dma_length;
	}
	r.fins += p->opcode == PKT_SEND_ONLY;
	return 0;
}

static void path_flush(struct path_dest *d)
{
}

static int path_direct(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		       int n)
{
	return -EOPNOTSUPP;
}

static bool path_pullable(struct path_dest *d)
{
	return d->path->guarantees.reliable;
}

/* The sender's memory is what the input has next. */
static int path_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
		     const struct iovec *ours, int m, u64 bytes)
{
	u64 sum = 0;

	for (int i = 0; i < m; i++) {
		input_bytes(r.in, ours[i].iov_base, ours[i].iov_len);
		sum += ours[i].iov_len;
	}
	fuzz_need(sum == bytes, "pieces of another length");
	return 0;
}

static int path_poll(struct path *p, int budget, bool must)
{
	path_found_empty(p);
	return 0;
}

static int path_resolve(struct path_dest *d)
{
	return 0;
}

static bool path_same(const struct path_dest *d, const struct path_dest *from)
{
	return d == from;
}

static bool path_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	return true;
}

static void path_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	fn(arg);
}

static const struct path_ops ops = {
	.name = "fuzz",
	.dest_get = path_get,
	.dest_nowhere = path_nowhere,
	.dest_hold = path_hold,
	.dest_put = path_hold,
	.send = path_send,
	.flush = path_flush,
	.direct = path_direct,
	.pullable = path_pullable,
	.pull = path_pull,
	.poll = path_poll,
	.resolve = path_resolve,
	.same = path_same,
	.holds = path_holds,
	.exclude = path_exclude,
};

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

static int fuzz_multicast(void *arg, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max)
{
	return 0;
}

static struct path_dest *fuzz_route(void *arg, const struct path_av *av, const struct pkt *p)
{
	return &((struct fuzz *)arg)->dest;
}

static void bed_open(struct fuzz *f, bool reliable)
{
	struct ibt_config engine = { .mem = &f->mem,
				     .timers = &f->timers,
				     .kick = fuzz_kick,
				     .publish = fuzz_publish,
				     .async = fuzz_async,
				     .multicast = fuzz_multicast,
				     .route = fuzz_route,
				     .arg = f };
	struct mem_region region = { .length = MEMORY,
				     .pd = 1,
				     .access = IBV_ACCESS_LOCAL_WRITE,
				     .flags = MEM_CONTIGUOUS };

	f->path.ops = &ops;
	f->path.counters = f->counters;
	f->path.guarantees = (struct path_guarantees){
		.ordered = reliable, .reliable = reliable, .direct = reliable, .mtu = MOST
	};
	path_dest_init(&f->dest, &f->path);
	timer_set_init(&f->timers);
	f->memory = malloc(MEMORY);
	region.addr = region.iova = (u64)(uintptr_t)f->memory;
	fuzz_need(mem_table_init(&f->mem, NULL) == 0 &&
			  mem_register(&f->mem, &region, &f->key) == 0,
		  "no keys");
	f->ibt = ibt_create(&engine);
	fuzz_need(f->ibt != NULL, "no engine");
	ibt_add_path(f->ibt, &f->path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	clock_set_source(fuzz_clock);
	bed_open(&beds[0], false);
	bed_open(&beds[1], true);
	return 0;
}

/* ---- the queue pair ---- */

static void qp_modify(enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = to,
				    .port_num = 1,
				    .path_mtu = IBV_MTU_256,
				    .dest_qp_num = PEER_QPN,
				    .rq_psn = PSN,
				    .sq_psn = PSN,
				    .max_dest_rd_atomic = 4,
				    .max_rd_atomic = 4,
				    .timeout = 10,
				    .retry_cnt = 3,
				    .rnr_retry = 7 };
	struct path_av av = { .hop_limit = 1 };

	fuzz_need(ibt_qp_modify(r.qp, &attr, mask | IBV_QP_STATE, &av,
				mask & IBV_QP_AV ? &r.bed->dest : NULL) == 0,
		  "modify");
}

static void qp_connect(void)
{
	qp_modify(IBV_QPS_RESET, 0);
	qp_modify(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	qp_modify(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU |
				       IBV_QP_MAX_DEST_RD_ATOMIC);
	qp_modify(IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void run_open(void)
{
	struct ibt_srq_init srq = { .pd = 1,
				    .max_wr = BUFFERS,
				    .max_sge = 1,
				    .tm_cq = &r.cq,
				    .max_num_tags = ENTRIES,
				    .max_ops = OPS };
	struct ibt_qp_init qp = { .type = IBV_QPT_RC,
				  .qpn = QPN,
				  .pd = 1,
				  .send_cq = &r.send_cq,
				  .recv_cq = &r.send_cq,
				  .counters = &r.counters };

	memset(r.bed->memory, CANARY, MEMORY);
	fuzz_need(cq_init(&r.cq, 1024) == 0 && cq_keep_sides(&r.cq) == 0 &&
			  cq_init(&r.send_cq, 64) == 0 &&
			  ibt_srq_create(r.bed->ibt, &srq, &r.srq) == 0,
		  "no SRQ");
	qp.srq = r.srq;
	fuzz_need(ibt_qp_create(r.bed->ibt, &qp, &r.qp) == 0, "no queue pair");
	qp_connect();
}

/* ---- completions ---- */

static void run_completed(const struct ibv_wc *wc)
{
	u32 id = (u32)wc->wr_id;

	if (wc->wr_id < ENTRIES) {
		fuzz_need(id < r.entries && r.entry[id].posted, "an entry that nobody posted");
		/* a match may be told before the data is there */
		if (wc->status != IBV_WC_SUCCESS || (wc->wc_flags & IBV_WC_TM_DATA_VALID))
			r.entry[id].completions++;
		fuzz_need(r.entry[id].completions <= 1, "an entry completes twice");
	} else if (wc->wr_id < ID_BUFFER) {
		fuzz_need(id - ID_OP < r.ops && r.op_signalled[id - ID_OP] &&
				  !r.op_completed[id - ID_OP],
			  "an operation that is not signalled, or twice");
		r.op_completed[id - ID_OP] = true;
	} else {
		fuzz_need(id - ID_BUFFER < r.buffers && !r.buffer_done[id - ID_BUFFER],
			  "a buffer completes twice");
		r.buffer_done[id - ID_BUFFER] = true;
	}
}

static enum ibv_wc_status run_poll(void)
{
	enum ibv_wc_status last = IBV_WC_SUCCESS;
	struct ibv_wc wc;

	while (cq_pop(&r.cq, 1, &wc) == 1) {
		run_completed(&wc);
		last = wc.status;
	}
	fuzz_need(cq_pop(&r.send_cq, 1, &wc) == 0, "a completion that nobody asked for");
	return last;
}

/* ---- what the program does ---- */

static struct ibv_sge place_open(u32 place, u32 length)
{
	r.open[place] = true;
	r.length[place] = length;
	return (struct ibv_sge){ (uintptr_t)r.bed->memory + GUARD + place * (PIECE + GUARD), length,
				 r.bed->key };
}

static void program_buffer(u32 length)
{
	struct ibv_recv_wr wr = { .wr_id = ID_BUFFER + r.buffers, .num_sge = 1 }, *bad;
	struct ibv_sge sge;

	if (r.buffers == BUFFERS)
		return;
	sge = place_open(2 * ENTRIES + r.buffers++, length % (PIECE + 1));
	wr.sg_list = &sge;
	fuzz_need(ibt_srq_post(r.srq, &wr, &bad) == 0, "no room for a buffer");
}

static int program_op(struct ibv_ops_wr *wr, u8 how)
{
	struct ibv_ops_wr *bad;
	int err;

	if (r.ops == OPS)
		return -ENOMEM;
	wr->wr_id = ID_OP + r.ops;
	wr->flags = (how & 1 ? IBV_OPS_SIGNALED : 0) | (how & 2 ? IBV_OPS_TM_SYNC : 0);
	wr->tm.unexpected_cnt = how >> 4;
	r.op_signalled[r.ops++] = how & 1;
	err = ibt_srq_post_ops(r.srq, wr, &bad);
	r.op_signalled[r.ops - 1] &= err == 0;
	return err;
}

static void program_add(u8 tag, u8 how, u16 length)
{
	static const u64 masks[] = { UINT64_MAX, UINT64_MAX, 0, 3 };
	u32 id = r.entries, total = length % (2 * PIECE), first = MIN(total, (u32)PIECE);
	struct ibv_sge sge[2];
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .recv_wr_id = id,
					     .sg_list = sge,
					     .num_sge = total == 0 ? 0 : total > PIECE ? 2 : 1,
					     .mask = masks[tag >> 6] } };

	if (id == ENTRIES)
		return;
	wr.tm.add.tag = (tag & 7) & wr.tm.add.mask;
	sge[0] = place_open(2 * id, first);
	sge[1] = place_open(2 * id + 1, total - first);
	r.entry[id].posted = true;
	r.entries++;
	if (program_op(&wr, how) != 0)
		r.entries--;
	r.entry[id].handle = wr.tm.handle;
}

static void program_delete(u8 which, u8 how)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_DEL };

	if (r.entries == 0)
		return;
	wr.tm.handle = r.entry[which % r.entries].handle;
	program_op(&wr, how);
}

static void program_sync(u8 how)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC };

	program_op(&wr, how | 2);
}

static void program_step(u8 kind, u8 how, u8 which, u16 length)
{
	switch (kind % 8) {
	case 0:
		program_add(which, how, length);
		break;
	case 1:
		program_delete(which, how);
		break;
	case 2:
		program_sync(how);
		break;
	case 3:
		program_buffer(length);
		break;
	case 4:
		run_poll();
		break;
	case 5:
		now_ns += (u64)how * how * 10 * NS_PER_US;
		timer_run(&r.bed->timers, now_ns);
		break;
	case 6:
		qp_modify(IBV_QPS_ERR, 0);
		break;
	default:
		qp_connect();
		break;
	}
}

/* ---- what the peer does ---- */

static void peer_headers(u8 *at, u8 what)
{
	struct ibv_tmh tmh;
	struct ibv_rvh rvh;

	memcpy(&tmh, at, sizeof(tmh));
	memcpy(&rvh, at + sizeof(tmh), sizeof(rvh));
	if (what & RIGHT_OPCODE)
		tmh.opcode %= 4;
	if (what & RIGHT_TAG)
		tmh.tag = htobe64(tmh.tag & 7);
	if (what & SMALL_READ)
		rvh.len = htonl(ntohl(rvh.len) % (3 * PIECE));
	if (what & KNOWN_KEY)
		rvh.rkey = htonl(r.bed->key);
	memcpy(at, &tmh, sizeof(tmh));
	memcpy(at + sizeof(tmh), &rvh, sizeof(rvh));
}

static u32 peer_psn(void)
{
	struct ibv_qp_attr attr;

	ibt_qp_query(r.qp, &attr);
	return attr.rq_psn;
}

static void peer_packet(struct pkt *p, const u8 *payload)
{
	r.bed->path.user_ops->receive(r.bed->path.user, &r.bed->dest, p, payload);
	r.bed->path.user_ops->batch_end(r.bed->path.user, &r.bed->dest, true);
}

/* A request: mostly a SEND. */
static void peer_request(u8 opcode, u8 what, u8 psn, u32 length)
{
	static u8 payload[MOST + 64];
	struct pkt p = { .opcode = opcode % PKT_OPCODES,
			 .qp_type = IBV_QPT_RC,
			 .dqpn = QPN,
			 .sqpn = PEER_QPN,
			 .pkey = 0xffff,
			 .psn = psn };

	memset(payload, 0, sizeof(payload));
	input_bytes(r.in, payload, length);
	peer_headers(payload, what);
	if (what & RIGHT_PSN)
		p.psn = (peer_psn() + (u32)((int8_t)psn / 16)) & 0xffffff;
	if ((what & PULLED) && r.bed->path.guarantees.reliable) {
		struct iovec iov = { payload, length };

		p.flags = PKT_PULL;
		p.dma_length = length;
		p.length = sizeof(iov);
		peer_packet(&p, (const u8 *)&iov);
		return;
	}
	p.length = p.dma_length = length;
	peer_packet(&p, payload);
}

/* An answer: of the last READ, or to what was sent. */
static void peer_answer(u8 opcode, u8 syndrome, u8 psn, u32 length)
{
	static const u8 opcodes[] = { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_LAST, PKT_READ_ONLY,
				      PKT_ACK,	      PKT_ACK,	       PKT_ABSENT,    PKT_CNP };
	static u8 payload[MOST];
	struct pkt p = { .opcode = opcodes[opcode % 8],
			 .qp_type = IBV_QPT_RC,
			 .syndrome = syndrome,
			 .dqpn = QPN,
			 .sqpn = PEER_QPN,
			 .pkey = 0xffff,
			 .psn = (r.read_psn + (u32)((int8_t)psn / 16)) & 0xffffff,
			 .length = length };

	if (p.opcode == PKT_ABSENT && !r.bed->path.guarantees.reliable)
		return;
	if (p.opcode >= PKT_ACK)
		p.length = 0;
	else if (opcode & 0x80)
		p.length = MIN(r.read_bytes, (u32)MTU);
	if (p.opcode == PKT_READ_FIRST || p.opcode == PKT_READ_LAST || p.opcode == PKT_READ_ONLY)
		p.syndrome = opcode & 0x40 ? syndrome : AETH_ACK;
	input_bytes(r.in, payload, p.length);
	peer_packet(&p, payload);
}

static void run_step(void)
{
	u8 kind = input_u8(r.in), what = input_u8(r.in), how = input_u8(r.in);
	u8 psn = input_u8(r.in), low = input_u8(r.in), high = input_u8(r.in);
	u16 length = (u16)(high << 8 | low);

	if (kind < 100)
		peer_request(kind % 8 < 6 ? kind % 8 : kind, what, psn, length % (MOST + 1));
	else if (kind < 150)
		peer_answer(what, how, psn, length % (MOST + 1));
	else
		program_step(kind, how, what, length);
	ibt_poll(r.bed->ibt, 16);
}

/* ---- after it ---- */

static void check_memory(void)
{
	for (u32 place = 0; place < PLACES; place++) {
		const u8 *at = r.bed->memory + place * (PIECE + GUARD);
		u32 from = r.open[place] ? GUARD + r.length[place] : 0;

		for (u32 i = 0; i < PIECE + GUARD; i++)
			fuzz_need((i >= GUARD && i < from) || at[i] == CANARY,
				  "bytes beside what was posted");
	}
}

/* The queue pair has failed, so whatever a message had taken has completed. */
static void check_entries(void)
{
	for (u32 i = 0; i < r.entries; i++) {
		struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_DEL, .tm.handle = r.entry[i].handle };
		struct ibv_ops_wr *bad;
		struct ibv_wc wc;

		wr.wr_id = ID_OP;
		wr.flags = IBV_OPS_SIGNALED;
		/* an earlier TAG_DEL of the same handle may have taken it off */
		if (ibt_srq_post_ops(r.srq, &wr, &bad) != 0)
			continue;
		fuzz_need(cq_pop(&r.cq, 1, &wc) == 1 && wc.opcode == IBV_WC_TM_DEL,
			  "an operation does not complete");
		fuzz_need(wc.status != IBV_WC_SUCCESS || r.entry[i].completions == 0,
			  "an entry has completed, and is in the list");
	}
	for (u32 i = 0; i < r.ops; i++)
		fuzz_need(r.op_completed[i] == r.op_signalled[i], "an operation is lost");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { data, size };

	memset(&r, 0, sizeof(r));
	r.in = &in;
	r.bed = &beds[input_u8(&in) & 1];
	run_open();
	for (u32 i = 0; i < STEPS && in.left != 0; i++)
		run_step();
	qp_modify(IBV_QPS_ERR, 0);
	run_poll();
	check_entries();
	ibt_qp_destroy(r.qp);
	ibt_srq_destroy(r.srq);
	check_memory();
	cq_fini(&r.cq);
	cq_fini(&r.send_cq);
	return 0;
}
