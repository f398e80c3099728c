/* error_test.c: each error status that a request can end with, what it does to both queue pairs,
 * that no byte moves that may not.
 * In: tables of mistakes    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>

#include "pair.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

enum { BYTES = 1 << 20, PART = 4096, SIZE = 256, EVERYTHING = 15 };

static void open_rc(void)
{
	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1 });
}

static void open_type(int type)
{
	pair_open(&(struct side_options){
		.type = type, .bytes = BYTES, .mr_access = -1, .qp_access = -1 });
}

/* ---- local protection ---- */

enum local_mistake {
	LOCAL_WILD,
	LOCAL_NEXT_KEY,
	LOCAL_OTHER_PD,
	LOCAL_PAST_END,
	LOCAL_BEFORE_START,
	LOCAL_DEREGISTERED,
	LOCAL_READ_ONLY,
	LOCAL_MISTAKES
};

static const char *const local_names[] = { "wild key",	  "next key",	   "other pd",
					   "past the end", "before the start", "deregistered",
					   "read only" };

/* Makes an SGE of SIZE bytes at PART of end `e` that is wrong in one way. */
static struct ibv_sge local_bad_sge(struct end *e, enum local_mistake what)
{
	int access = what == LOCAL_READ_ONLY ? 0 : IBV_ACCESS_LOCAL_WRITE;
	struct side_reply r = end_register(e, PART, SIZE, access, what == LOCAL_OTHER_PD);
	struct ibv_sge sge = { e->at.addr + PART, SIZE, r.reg.lkey };

	switch (what) {
	case LOCAL_WILD:
		sge.lkey = 0xdeadbeef;
		break;
	case LOCAL_NEXT_KEY:
		sge.lkey++;
		break;
	case LOCAL_PAST_END:
		sge.length++;
		break;
	case LOCAL_BEFORE_START:
		sge.addr--;
		break;
	case LOCAL_DEREGISTERED:
		end_deregister(e, r.reg.mr);
		break;
	default:
		break;
	}
	return sge;
}

struct local_case {
	int type;
	enum ibv_wr_opcode opcode;
	enum local_mistake what;
};

static bool local_writes(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_READ || op == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* The request fails; the one behind it is flushed; the peer has seen nothing. */
static void local__protection(void **state)
{
	const struct local_case *k = *state;
	struct side_wr w, next;

	open_type(k->type);
	w = end_op(&pair.a, k->opcode, 0, 8, &pair.b, 0);
	w.sge[0] = local_bad_sge(&pair.a, k->what);
	if (k->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		if (k->what == LOCAL_PAST_END)
			w.sge[0].addr += SIZE - 7;
		w.sge[0].length = 8;
	}
	next = end_op(&pair.a, IBV_WR_SEND, 0, 8, &pair.b, 0);
	w.wr_id = 10;
	next.wr_id = 11;
	end_fill(&pair.b, 0, PART, 3);
	end_send(&pair.a, 0, &w);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_LOC_PROT_ERR).wr_id, 10);
	end_send(&pair.a, 0, &next);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_WR_FLUSH_ERR).wr_id, 11);
	end_expect_state(&pair.a, 0, k->type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
	end_check(&pair.b, 0, k->opcode == IBV_WR_RDMA_WRITE ? PART : 8, 3);
}

/* What was posted before it completes first and well, what comes after it is flushed, in order. */
static void local__order_around_an_error(void **state)
{
	struct side_wr good, bad, room;

	open_rc();
	good = end_op(&pair.a, IBV_WR_SEND, 0, 3000, &pair.b, 0);
	bad = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 8, &pair.b, 0);
	bad.sge[0].lkey++;
	bad.wr_id = 50;
	room = end_wr(&pair.b, PART, 3000);
	end_recv(&pair.b, 0, &room, 40);
	end_send_many(&pair.a, 0, &good, 20, 0);
	end_send(&pair.a, 0, &bad);
	good.wr_id = 100;
	good.flags = 0;
	end_send_many(&pair.a, 0, &good, 20, 0);
	end_expect_in_order(&pair.a, SENDS, 20, 1, IBV_WC_SUCCESS);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_LOC_PROT_ERR).wr_id, 50);
	end_expect_in_order(&pair.a, SENDS, 20, 100, IBV_WC_WR_FLUSH_ERR);
	end_expect_in_order(&pair.b, RECVS, 20, 1, IBV_WC_SUCCESS);
	end_expect_none(&pair.b, RECVS);
	end_expect_state(&pair.a, 0, IBV_QPS_ERR);
}

/* The second SGE is bad, after the first has filled several packets. */
static void local__error_in_the_middle(void **state)
{
	struct side_wr w, room;

	open_rc();
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100000, &pair.b, 0);
	w.num_sge = 2;
	w.sge[1] = w.sge[0];
	w.sge[1].lkey++;
	room = end_wr(&pair.b, 0, 300000);
	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_LOC_PROT_ERR);
	end_expect_none(&pair.b, RECVS);
	end_state(&pair.b, 0, IBV_QPS_ERR);
	end_expect(&pair.b, RECVS, IBV_WC_WR_FLUSH_ERR);
}

/* ---- the receiver's own mistakes ---- */

static void receive__protection(void **state)
{
	enum local_mistake what = (enum local_mistake)(uintptr_t)*state;
	struct side_wr w, room;

	open_rc();
	w = end_op(&pair.a, IBV_WR_SEND, 0, SIZE + 1, &pair.b, 0);
	room = end_wr(&pair.b, 0, SIZE);
	room.sge[0] = local_bad_sge(&pair.b, what);
	room.sge[0].length = SIZE + (what == LOCAL_PAST_END);
	w.sge[0].length = room.sge[0].length;
	end_fill(&pair.b, 0, BYTES, 7);
	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_OP_ERR);
	end_expect(&pair.b, RECVS, IBV_WC_LOC_PROT_ERR);
	end_expect_state(&pair.a, 0, IBV_QPS_ERR);
	end_await_state(&pair.b, 0, IBV_QPS_ERR);
	if (what != LOCAL_PAST_END)
		end_check(&pair.b, 0, BYTES, 7);
}

/* One byte too long, short and over many packets. */
static void receive__too_short(void **state)
{
	static const uint32_t lengths[] = { 1, 32, 4096, 100000, 300000 };

	for (size_t i = 0; i < ELEMENTS(lengths); i++) {
		struct side_wr w, room;

		open_rc();
		w = end_op(&pair.a, IBV_WR_SEND, 0, lengths[i], &pair.b, 0);
		room = end_wr(&pair.b, 0, lengths[i] - 1);
		end_fill(&pair.b, lengths[i] - 1, 64, 5);
		end_recv(&pair.b, 0, &room, 3);
		end_send(&pair.a, 0, &w);
		end_expect(&pair.a, SENDS, IBV_WC_REM_INV_REQ_ERR);
		assert_int_equal(end_expect(&pair.b, RECVS, IBV_WC_LOC_LEN_ERR).wr_id, 1);
		end_expect_in_order(&pair.b, RECVS, 2, 2, IBV_WC_WR_FLUSH_ERR);
		end_expect_event(&pair.b, IBV_EVENT_QP_REQ_ERR, pair.b.at.qpn[0]);
		end_check(&pair.b, lengths[i] - 1, 64, 5);
		pair_teardown(NULL);
	}
}

/* ---- remote access ---- */

enum remote_mistake {
	REMOTE_WILD,
	REMOTE_NEXT_KEY,
	REMOTE_OTHER_PD,
	REMOTE_PAST_END,
	REMOTE_BEFORE_START,
	REMOTE_DEREGISTERED,
	REMOTE_REGION_FORBIDS,
	REMOTE_QP_FORBIDS,
	REMOTE_WRAPS,
	REMOTE_MISTAKES
};

static const char *const remote_names[] = {
	"wild key",	"next key",	  "other pd",	"past the end",	  "before the start",
	"deregistered", "region forbids", "qp forbids", "wraps around 0",
};

struct remote_case {
	enum ibv_wr_opcode opcode;
	enum remote_mistake what;
};

static int remote_right(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_REMOTE_ATOMIC;
	default:
		return IBV_ACCESS_REMOTE_WRITE;
	}
}

static bool remote_is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The region of SIZE bytes at PART of b, named wrongly. */
static void remote_spoil(struct side_wr *w, enum remote_mistake what, int right, bool atomic)
{
	int access = what == REMOTE_REGION_FORBIDS ? EVERYTHING & ~right : EVERYTHING;
	struct side_reply r = end_register(&pair.b, PART, SIZE, access | IBV_ACCESS_LOCAL_WRITE,
					   what == REMOTE_OTHER_PD);

	w->rkey = r.reg.rkey;
	w->remote_addr = pair.b.at.addr + PART;
	if (what == REMOTE_WILD)
		w->rkey = 0x12345678;
	if (what == REMOTE_NEXT_KEY)
		w->rkey++;
	if (what == REMOTE_PAST_END)
		w->remote_addr += atomic ? SIZE : 1;
	if (what == REMOTE_BEFORE_START)
		w->remote_addr -= atomic ? 8 : 1;
	if (what == REMOTE_WRAPS)
		w->remote_addr = 0ull - 8;
	if (what == REMOTE_DEREGISTERED)
		end_deregister(&pair.b, r.reg.mr);
}

static void remote__access(void **state)
{
	const struct remote_case *k = *state;
	int right = remote_right(k->opcode);
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_options b = o;
	struct side_wr w, room;

	b.qp_access = k->what == REMOTE_QP_FORBIDS ? EVERYTHING & ~right : EVERYTHING;
	pair_open_two(&o, &b);
	w = end_op(&pair.a, k->opcode, 0, remote_is_atomic(k->opcode) ? 8 : SIZE, &pair.b, 0);
	remote_spoil(&w, k->what, right, remote_is_atomic(k->opcode));
	end_fill(&pair.a, 0, BYTES, 11);
	end_fill(&pair.b, 0, BYTES, 12);
	room = end_wr(&pair.b, 0, 16);
	if (k->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_ACCESS_ERR);
	end_expect_state(&pair.a, 0, IBV_QPS_ERR);
	end_expect_event(&pair.b, IBV_EVENT_QP_ACCESS_ERR, pair.b.at.qpn[0]);
	end_await_state(&pair.b, 0, IBV_QPS_ERR);
	end_check(&pair.a, 0, BYTES, 11);
	end_check(&pair.b, 0, BYTES, 12);
	if (k->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		end_expect(&pair.b, RECVS, IBV_WC_WR_FLUSH_ERR);
}

/* Nothing is moved, so no key is looked at. */
static void remote__zero_length_needs_no_key(void **state)
{
	struct side_wr w;

	open_rc();
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 0, &pair.b, 0);
	w.rkey = 0xdeadbeef;
	w.sge[0].lkey = 0xdeadbeef;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	w.opcode = IBV_WR_RDMA_READ;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
}

/* A region that is taken away while it is used: every WRITE either arrives or fails. */
static void remote__deregistered_under_fire(void **state)
{
	struct side_reply r;
	struct side_wr w;
	uint32_t good = 0;
	struct ibv_wc wc;

	open_rc();
	r = end_register(&pair.b, 0, BYTES / 2, EVERYTHING, false);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 100000, &pair.b, 0);
	w.rkey = r.reg.rkey;
	end_send_many(&pair.a, 0, &w, 60, 0);
	end_deregister(&pair.b, r.reg.mr);
	end_fill(&pair.b, 0, BYTES / 2, 77);
	while (end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc) == 1 && wc.status == IBV_WC_SUCCESS &&
	       ++good < 60)
		continue;
	if (good < 60)
		assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	if (good < 59)
		end_expect_in_order(&pair.a, SENDS, 59 - good, good + 2, IBV_WC_WR_FLUSH_ERR);
	end_check(&pair.b, 0, BYTES / 2, 77);
}

/* ---- invalid requests ---- */

static void invalid__unaligned_atomic(void **state)
{
	for (uint64_t off = 1; off < 8; off += 3) {
		struct side_wr w;

		open_rc();
		end_fill(&pair.b, 0, PART, 8);
		w = end_op(&pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, &pair.b, off);
		w.compare = 1;
		end_send(&pair.a, 0, &w);
		end_expect(&pair.a, SENDS, IBV_WC_REM_INV_REQ_ERR);
		end_expect_event(&pair.b, IBV_EVENT_QP_REQ_ERR, pair.b.at.qpn[0]);
		end_check(&pair.b, 0, PART, 8);
		pair_teardown(NULL);
	}
}

/* A target that takes no READs nor atomics at all. */
static void invalid__no_responder_resources(void **state)
{
	enum ibv_wr_opcode op = (enum ibv_wr_opcode)(uintptr_t)*state;
	struct side_options o = { .type = IBV_QPT_RC, .mr_access = -1, .qp_access = -1 };
	struct side_link l;
	struct side_wr w;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = pair_default_link(&pair.a, 0);
	l.dest_rd_atomic = 0;
	pair_connect(1, NULL, &l);
	w = end_op(&pair.a, op, 0, 8, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_INV_REQ_ERR);
}

/* Many more READs than the target takes at once; the initiator keeps to its own depth. */
static void invalid__depth_is_kept(void **state)
{
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_link l;
	struct side_wr w;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = pair_default_link(&pair.b, 0);
	l.rd_atomic = 1;
	l.dest_rd_atomic = 1;
	pair_connect(1, &l, &l);
	/* The link of b names b: only its numbers matter. */
	w = end_op(&pair.a, IBV_WR_RDMA_READ, 0, 90000, &pair.b, 0);
	end_send_many(&pair.a, 0, &w, 40, 0);
	end_expect_in_order(&pair.a, SENDS, 40, 1, IBV_WC_SUCCESS);
}

/* An ordinary region's key is not one that a peer may invalidate. */
static void invalid__send_with_invalidate(void **state)
{
	struct side_wr w, room;

	open_rc();
	w = end_op(&pair.a, IBV_WR_SEND_WITH_INV, 0, 100, &pair.b, 0);
	w.imm = pair.b.at.rkey;
	room = end_wr(&pair.b, 0, 100);
	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_ACCESS_ERR);
	end_expect(&pair.b, RECVS, IBV_WC_LOC_PROT_ERR);
}

static void invalid__datagram_too_long(void **state)
{
	struct side_wr w, room;

	open_type(IBV_QPT_UD);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 4097, &pair.b, 0);
	room = end_wr(&pair.b, 0, 8192);
	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_LOC_LEN_ERR);
	end_expect_state(&pair.a, 0, IBV_QPS_SQE);
	end_expect_none(&pair.b, RECVS);
}

/* ---- a refusal does not overtake answers ---- */

/* A long READ, then a WRITE that is refused: the READ is whole, the WRITE alone is at fault. */
static void order__refusal_after_read(void **state)
{
	enum { LONG = 8 << 20 };
	struct side_wr read, bad;

	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = LONG, .mr_access = -1, .qp_access = -1 });
	end_fill(&pair.b, 0, LONG, 21);
	read = end_op(&pair.a, IBV_WR_RDMA_READ, 0, LONG, &pair.b, 0);
	bad = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 8, &pair.b, 0);
	bad.rkey++;
	read.wr_id = 1;
	bad.wr_id = 2;
	end_send(&pair.a, 0, &read);
	end_send(&pair.a, 0, &bad);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).wr_id, 1);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_REM_ACCESS_ERR).wr_id, 2);
	end_check(&pair.a, 0, LONG, 21);
}

/* The region of a READ goes away while its answer is on the way: REM_ACCESS_ERR, never a hang. */
static void order__region_goes_during_read(void **state)
{
	enum { LONG = 8 << 20 };
	struct side_reply r;
	struct side_wr read;
	struct ibv_wc wc;

	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = LONG, .mr_access = -1, .qp_access = -1 });
	r = end_register(&pair.b, 0, LONG, EVERYTHING, false);
	read = end_op(&pair.a, IBV_WR_RDMA_READ, 0, LONG, &pair.b, 0);
	read.rkey = r.reg.rkey;
	end_send_many(&pair.a, 0, &read, 4, 0);
	end_deregister(&pair.b, r.reg.mr);
	for (uint32_t n = 0; n < 4; n++) {
		assert_int_equal(end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc), 1);
		assert_int_equal(wc.wr_id, n + 1);
		if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR)
			assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	}
}

/* ---- tables become tests ---- */

enum { MAX_TESTS = 128 };
static struct CMUnitTest tests[MAX_TESTS];
static char names[MAX_TESTS][80];
static size_t test_count;

static void add(void (*fn)(void **), const void *state, const char *format, ...)
{
	va_list args;

	assert_true(test_count < MAX_TESTS);
	va_start(args, format);
	vsnprintf(names[test_count], sizeof(names[0]), format, args);
	va_end(args);
	tests[test_count] = (struct CMUnitTest){ names[test_count], fn, NULL, pair_teardown,
						 (void *)(uintptr_t)state };
	test_count++;
}

static void add_local(void)
{
	static const struct {
		int type;
		enum ibv_wr_opcode opcode;
		const char *name;
	} ops[] = { { IBV_QPT_RC, IBV_WR_SEND, "rc/send" },
		    { IBV_QPT_RC, IBV_WR_RDMA_WRITE, "rc/write" },
		    { IBV_QPT_RC, IBV_WR_RDMA_READ, "rc/read" },
		    { IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, "rc/compare_swap" },
		    { IBV_QPT_UC, IBV_WR_SEND, "uc/send" },
		    { IBV_QPT_UC, IBV_WR_RDMA_WRITE, "uc/write" },
		    { IBV_QPT_UD, IBV_WR_SEND, "ud/send" } };
	static struct local_case cases[ELEMENTS(ops) * LOCAL_MISTAKES];
	size_t n = 0;

	for (size_t i = 0; i < ELEMENTS(ops); i++)
		for (int what = 0; what < LOCAL_MISTAKES; what++) {
			if (what == LOCAL_READ_ONLY && !local_writes(ops[i].opcode))
				continue;
			cases[n] = (struct local_case){ ops[i].type, ops[i].opcode,
							(enum local_mistake)what };
			add(local__protection, &cases[n++], "local__protection %s %s", ops[i].name,
			    local_names[what]);
		}
	for (uintptr_t what = 0; what < LOCAL_MISTAKES; what++)
		add(receive__protection, (void *)what, "receive__protection %s",
		    local_names[what]);
}

static void add_remote(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		const char *name;
	} ops[] = { { IBV_WR_RDMA_WRITE, "write" },
		    { IBV_WR_RDMA_WRITE_WITH_IMM, "write_with_imm" },
		    { IBV_WR_RDMA_READ, "read" },
		    { IBV_WR_ATOMIC_CMP_AND_SWP, "compare_swap" },
		    { IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch_add" } };
	static struct remote_case cases[ELEMENTS(ops) * REMOTE_MISTAKES];
	size_t n = 0;

	for (size_t i = 0; i < ELEMENTS(ops); i++)
		for (int what = 0; what < REMOTE_MISTAKES; what++) {
			cases[n] = (struct remote_case){ ops[i].opcode,
							 (enum remote_mistake)what };
			add(remote__access, &cases[n++], "remote__access %s %s", ops[i].name,
			    remote_names[what]);
		}
}

#define ADD(fn) add(fn, NULL, "%s", #fn)

int main(void)
{
	pair_supervise();
	add_local();
	add_remote();
	ADD(local__order_around_an_error);
	ADD(local__error_in_the_middle);
	ADD(receive__too_short);
	ADD(remote__zero_length_needs_no_key);
	ADD(remote__deregistered_under_fire);
	ADD(invalid__unaligned_atomic);
	add(invalid__no_responder_resources, (void *)(uintptr_t)IBV_WR_RDMA_READ,
	    "invalid__no_responder_resources read");
	add(invalid__no_responder_resources, (void *)(uintptr_t)IBV_WR_ATOMIC_FETCH_AND_ADD,
	    "invalid__no_responder_resources fetch_add");
	ADD(invalid__depth_is_kept);
	ADD(invalid__send_with_invalidate);
	ADD(invalid__datagram_too_long);
	ADD(order__refusal_after_read);
	ADD(order__region_goes_during_read);
	return _cmocka_run_group_tests("error", tests, test_count, pair_group_setup,
				       pair_group_teardown);
}
