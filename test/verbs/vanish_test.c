/* vanish_test.c: registered memory is taken away, or protected, without a word: nobody dies, the
 * completions say what an adapter's would, and the other queue pairs go on.
 *
 * In:    VERBS_VARIANT; no cmocka, for that puts handlers of its own in front of ours
 * Out:   verdicts
 * Runs:  two processes, in step: each runs `scene` for itself
 * Locks: none
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum {
	LARGE = 1 << 20,
	PULLED = 64 << 10, /* from here on a SEND is fetched */
	WAIT_MS = 20000,
	INLINE = 64,
	GRH = 40,
	QKEY = 0x1234,
	SEED = 0x5a
};

/* ---- how memory goes ---- */

enum vanish { UNMAPPED, READ_ONLY, HIDDEN, FREED };

/* A sanitizer inside the library takes an access to what is freed for the mistake that it is. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { VANISHES = FREED };
#else
enum { VANISHES = FREED + 1 };
#endif
static const char *const vanish_names[] = { "unmapped", "read-only", "hidden", "freed" };

static uint8_t *memory_make(enum vanish how)
{
	uint8_t *p = how == FREED ? aligned_alloc(4096, LARGE)
				  : mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != NULL && p != MAP_FAILED);
	memset(p, SEED, LARGE);
	return p;
}

static void memory_vanish(uint8_t *p, enum vanish how)
{
	switch (how) {
	case UNMAPPED:
		must(munmap(p, LARGE) == 0);
		break;
	case FREED:
		free(p);
		break;
	default:
		must(mprotect(p, LARGE, how == HIDDEN ? PROT_NONE : PROT_READ) == 0);
		break;
	}
}

static void memory_clear(uint8_t *p, enum vanish how)
{
	if (how == READ_ONLY || how == HIDDEN)
		must(munmap(p, LARGE) == 0);
}

/* ---- what is done with it ---- */

enum {
	WRITES = 1,	/* to the memory: it is enough that it is read-only */
	NEAR = 2,	/* the sender's memory goes, else the receiver's */
	RECEIVES = 4,	/* the receiver posts a request */
	SHARED = 8,	/* ... to an SRQ */
	POST_FAILS = 16 /* EFAULT at once */
};

struct op {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	int flags;
	enum ibv_wc_status near, far; /* if the memory is not as it must be */
	uint32_t most;		      /* bytes */
};

static const struct op ops[] = {
	{ "WRITE", IBV_QPT_RC, IBV_WR_RDMA_WRITE, WRITES, IBV_WC_REM_ACCESS_ERR, 0, LARGE },
	{ "WRITE_WITH_IMM", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, WRITES | RECEIVES,
	  IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, LARGE },
	{ "SEND", IBV_QPT_RC, IBV_WR_SEND, WRITES | RECEIVES, IBV_WC_REM_OP_ERR,
	  IBV_WC_LOC_PROT_ERR, LARGE },
	{ "SEND to an SRQ", IBV_QPT_RC, IBV_WR_SEND, WRITES | RECEIVES | SHARED, IBV_WC_REM_OP_ERR,
	  IBV_WC_LOC_PROT_ERR, LARGE },
	{ "READ", IBV_QPT_RC, IBV_WR_RDMA_READ, 0, IBV_WC_REM_ACCESS_ERR, 0, LARGE },
	{ "CMP_AND_SWP", IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, WRITES, IBV_WC_REM_ACCESS_ERR, 0,
	  8 },
	{ "FETCH_AND_ADD", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, WRITES, IBV_WC_REM_ACCESS_ERR,
	  0, 8 },
	{ "SEND from", IBV_QPT_RC, IBV_WR_SEND, NEAR | RECEIVES, IBV_WC_LOC_PROT_ERR, 0, LARGE },
	{ "WRITE from", IBV_QPT_RC, IBV_WR_RDMA_WRITE, NEAR, IBV_WC_LOC_PROT_ERR, 0, LARGE },
	{ "inline", IBV_QPT_RC, IBV_WR_SEND, NEAR | RECEIVES | POST_FAILS, 0, 0, INLINE },
	{ "inline WRITE", IBV_QPT_RC, IBV_WR_RDMA_WRITE, NEAR | POST_FAILS, 0, 0, INLINE },
	{ "READ into", IBV_QPT_RC, IBV_WR_RDMA_READ, NEAR | WRITES, IBV_WC_LOC_PROT_ERR, 0, LARGE },
	{ "FETCH_AND_ADD into", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, NEAR | WRITES,
	  IBV_WC_LOC_PROT_ERR, 0, 8 },
	{ "UC WRITE", IBV_QPT_UC, IBV_WR_RDMA_WRITE, WRITES, IBV_WC_SUCCESS, 0, LARGE },
	{ "UC SEND", IBV_QPT_UC, IBV_WR_SEND, WRITES | RECEIVES, IBV_WC_SUCCESS,
	  IBV_WC_LOC_PROT_ERR, 4000 },
	{ "UC SEND from", IBV_QPT_UC, IBV_WR_SEND, NEAR | RECEIVES, IBV_WC_LOC_PROT_ERR, 0, LARGE },
	{ "UD SEND", IBV_QPT_UD, IBV_WR_SEND, WRITES | RECEIVES, IBV_WC_SUCCESS,
	  IBV_WC_LOC_PROT_ERR, 1000 },
	{ "UD SEND from", IBV_QPT_UD, IBV_WR_SEND, NEAR | RECEIVES, IBV_WC_LOC_PROT_ERR, 0, 1000 },
};

static const uint32_t lengths[] = { 8, 20, 64, 1000, 4000, 20000, 300000 };

/* ---- one scene: an operation, a way to vanish, a length ---- */

struct scene {
	struct duo *d;
	const struct op *op;
	enum vanish how;
	uint32_t length;
	struct ibv_cq *sends, *recvs;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct place {
		uint64_t addr;
		uint32_t rkey, qpn;
		union ibv_gid gid;
	} other;
};

static bool is_near(const struct scene *s)
{
	return s->d->child != 0;
}

static bool is_mine_to_vanish(const struct scene *s)
{
	return is_near(s) == ((s->op->flags & NEAR) != 0);
}

static uint8_t gid_index(void)
{
	return 1;
}

static void scene_make_qp(struct scene *s)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = s->op->type,
					 .cap = { 4, 4, 2, 2, INLINE } };

	s->sends = ibv_create_cq(s->d->context, 16, NULL, NULL, 0);
	s->recvs = ibv_create_cq(s->d->context, 16, NULL, NULL, 0);
	must(s->sends != NULL && s->recvs != NULL);
	s->srq = s->op->flags & SHARED ? ibv_create_srq(s->d->pd, &srq) : NULL;
	init.send_cq = s->sends;
	init.recv_cq = s->recvs;
	init.srq = s->srq;
	s->qp = ibv_create_qp(s->d->pd, &init);
	must(s->qp != NULL);
}

static void scene_meet(struct scene *s)
{
	struct place mine = { .addr = (uintptr_t)s->memory,
			      .rkey = s->mr->rkey,
			      .qpn = s->qp->qp_num };

	must(ibv_query_gid(s->d->context, 1, gid_index(), &mine.gid) == 0);
	duo_tell(s->d, &mine, sizeof(mine));
	must(duo_hear(s->d, &s->other, sizeof(s->other)));
}

static void scene_connect(struct scene *s)
{
	struct ibv_qp_attr a = conn_attr(s->other.qpn, &s->other.gid, gid_index());

	a.qkey = QKEY;
	a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ |
			    (s->op->type == IBV_QPT_RC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	a.timeout = 18;
	must(conn_up(s->qp, &a, IBV_QPS_RTS) == 0);
	s->ah = s->op->type == IBV_QPT_UD ? ibv_create_ah(s->d->pd, &a.ah_attr) : NULL;
}

static void scene_open(struct scene *s)
{
	scene_make_qp(s);
	s->memory = memory_make(is_mine_to_vanish(s) ? s->how : UNMAPPED);
	s->mr = ibv_reg_mr(s->d->pd, s->memory, LARGE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	must(s->mr != NULL);
	scene_meet(s);
	scene_connect(s);
	duo_step(s->d);
}

static void scene_close(struct scene *s)
{
	if (s->ah != NULL)
		must(ibv_destroy_ah(s->ah) == 0);
	must(ibv_destroy_qp(s->qp) == 0);
	if (s->srq != NULL)
		must(ibv_destroy_srq(s->srq) == 0);
	must(ibv_destroy_cq(s->sends) == 0 && ibv_destroy_cq(s->recvs) == 0);
	must(ibv_dereg_mr(s->mr) == 0);
	if (!is_mine_to_vanish(s))
		munmap(s->memory, LARGE);
	else
		memory_clear(s->memory, s->how);
	duo_step(s->d);
}

static void scene_post_recv(struct scene *s)
{
	uint32_t grh = s->op->type == IBV_QPT_UD ? GRH : 0;
	struct ibv_sge sge = { (uintptr_t)s->memory, s->length + grh, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;

	must((s->srq != NULL ? ibv_post_srq_recv(s->srq, &wr, &bad) :
				    ibv_post_recv(s->qp, &wr, &bad)) == 0);
}

static int scene_post_send(struct scene *s)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, s->length, s->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = 8,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = s->op->opcode,
		.send_flags = IBV_SEND_SIGNALED | (s->op->flags & POST_FAILS ? IBV_SEND_INLINE : 0),
	};

	if (s->ah != NULL) {
		wr.wr.ud.ah = s->ah;
		wr.wr.ud.remote_qpn = s->other.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (s->op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   s->op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = s->other.addr;
		wr.wr.atomic.rkey = s->other.rkey;
	} else {
		wr.wr.rdma.remote_addr = s->other.addr;
		wr.wr.rdma.rkey = s->other.rkey;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

static struct ibv_wc scene_poll(struct scene *s, struct ibv_cq *cq)
{
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	if (cq_wait(cq, &wc, 1, WAIT_MS) == 0) {
		fprintf(stderr, "%s, %s, %u bytes: the %s waits in vain\n", s->op->name,
			vanish_names[s->how], s->length, is_near(s) ? "sender" : "receiver");
		exit(1);
	}
	return wc;
}

/* Memory that is adopted, or that /proc/PID/mem reaches although it is protected, keeps what a
 * pinned page would have: then an operation by the other process alone succeeds, a one-sided one or
 * a long SEND, which its receiver fetches. */
static bool scene_may_reach(const struct scene *s)
{
	bool one_sided = s->op->opcode != IBV_WR_SEND, by_near = (s->op->flags & NEAR) == 0;

	return !side_on_wire() && pair_is_direct() &&
	       (one_sided ? by_near : !by_near && s->length >= PULLED);
}

static bool scene_is_harmed(const struct scene *s)
{
	return s->how != READ_ONLY || (s->op->flags & WRITES) != 0;
}

static void scene_expect(struct scene *s, enum ibv_wc_status got, enum ibv_wc_status wanted)
{
	if (!scene_is_harmed(s))
		wanted = IBV_WC_SUCCESS;
	if (got == wanted || (got == IBV_WC_SUCCESS && scene_may_reach(s)))
		return;
	fprintf(stderr, "%s, %s, %u bytes: the %s is told %s, not %s\n", s->op->name,
		vanish_names[s->how], s->length, is_near(s) ? "sender" : "receiver",
		ibv_wc_status_str(got), ibv_wc_status_str(wanted));
	exit(1);
}

static void scene_near(struct scene *s)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	int err = scene_post_send(s);
	char gone;

	if (s->op->flags & POST_FAILS && scene_is_harmed(s)) {
		must(err == EFAULT);
		must(ibv_poll_cq(s->sends, 1, &wc) == 0);
	} else {
		must(err == 0);
		wc = scene_poll(s, s->sends);
		scene_expect(s, wc.status, s->op->near);
	}
	gone = wc.status != IBV_WC_SUCCESS || err != 0;
	duo_tell(s->d, &gone, 1);
}

/* What the sender's failure leaves in the receiver's queue is none of this test's. */
static void scene_far(struct scene *s)
{
	bool receives = (s->op->flags & RECEIVES) != 0;
	struct ibv_wc wc;
	char failed;

	must(duo_hear(s->d, &failed, 1));
	if (!receives || (failed && s->op->flags & NEAR))
		return;
	wc = scene_poll(s, s->recvs);
	scene_expect(s, wc.status, s->op->far);
}

/* The queue pair that has nothing to do with it. */
static void scene_others_go_on(struct scene *s, struct ibv_mr *good, struct place *to)
{
	if (is_near(s)) {
		memset(good->addr, s->length & 0xff, 64);
		duo_do(s->d, IBV_WR_RDMA_WRITE, good, good->addr, 64, to->addr, to->rkey);
	}
	duo_step(s->d);
	must(*(volatile uint8_t *)good->addr == (s->length & 0xff));
}

static void scene_play(struct scene *s)
{
	scene_open(s);
	if (!is_near(s) && s->op->flags & RECEIVES)
		scene_post_recv(s);
	if (is_mine_to_vanish(s))
		memory_vanish(s->memory, s->how);
	duo_step(s->d);
	if (is_near(s))
		scene_near(s);
	else
		scene_far(s);
	duo_step(s->d);
}

/* ---- all of them ---- */

static void play_op(struct duo *d, const struct op *op, struct ibv_mr *good, struct place *to)
{
	for (unsigned int how = 0; how < VANISHES; how++)
		for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			struct scene s = { .d = d, .op = op, .how = (enum vanish)how,
					   .length = lengths[i] };

			if (lengths[i] > op->most)
				break;
			scene_play(&s);
			scene_others_go_on(&s, good, to);
			scene_close(&s);
		}
}

int main(void)
{
	static uint8_t bytes[64];
	struct place mine, other;
	struct ibv_mr *good;
	struct duo d;

	pair_supervise();
	mallopt(M_MMAP_THRESHOLD, 256 << 10); /* what is freed is unmapped */
	duo_start(&d);
	good = duo_register(&d, bytes, sizeof(bytes));
	mine = (struct place){ .addr = (uintptr_t)bytes, .rkey = good->rkey };
	duo_tell(&d, &mine, sizeof(mine));
	must(duo_hear(&d, &other, sizeof(other)));
	for (unsigned int i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		play_op(&d, &ops[i], good, &other);
	must(ibv_dereg_mr(good) == 0);
	return duo_end(&d) ? 0 : 1;
}
