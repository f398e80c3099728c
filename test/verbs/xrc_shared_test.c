/* xrc_shared_test.c: an XRC domain that processes share by its file: one has the target, others
 * have SRQs, and the initiator is elsewhere: on their node, over shared memory or UDP, or on a node
 * of its own, as on another host (variant `nodes`).
 * In: requests, mistakes, deaths; VERBS_VARIANT    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "crew.h"

enum {
	ALL_RIGHTS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	SQ = 256,
	RNR_TIMER = 1,
};

/* An SRQ of a process of the crew. */
struct place {
	struct crew_hand hand;
	uint32_t number, rkey;
	uint64_t address;
};

static struct {
	char path[32];
	const char *node; /* of the crew; NULL: this process' own */
	union ibv_gid gid; /* of the initiator's port */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ibv_qp *ini;
	struct place a, b, c; /* a has the target */
	uint32_t target;
} x;

static void place_make(struct place *p, int oflags)
{
	struct crew_reply r;

	/* the target's place and the others' have different paths, if the test's variant says so */
	p->hand = crew_start(x.path, x.node, p == &x.a);
	crew_do(&p->hand, CREW_DOMAIN, (uint64_t)oflags, 0, 0);
	r = crew_do(&p->hand, CREW_SRQ, 0, 0, 0);
	p->number = (uint32_t)r.value[0];
	p->rkey = (uint32_t)r.value[1];
	p->address = r.value[2];
}

static void make_initiator(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_SEND,
					    .send_cq = x.cq,
					    .cap = { .max_send_wr = SQ, .max_send_sge = 1 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = x.pd };

	x.ini = ibv_create_qp_ex(x.ctx, &init);
	assert_non_null(x.ini);
}

/* Connects the initiator with the target of `p`. */
static void join_with(const struct place *p, unsigned access, uint8_t rnr_timer)
{
	struct crew_reply name = crew_do(&p->hand, CREW_NAME, 0, 0, 0);
	uint64_t half[2];
	union ibv_gid gid;

	memcpy(half, &x.gid, sizeof(half));
	memcpy(&gid, name.value, sizeof(gid));
	crew_do(&p->hand, CREW_PEER, half[0], half[1], 0);
	crew_do(&p->hand, CREW_CONNECT, x.ini->qp_num, access, rnr_timer);
	assert_int_equal(crew_connect(x.ini, x.target, &gid, access, rnr_timer), 0);
	assert_int_equal(memcmp(&gid, &x.gid, sizeof(gid)) != 0, x.node != NULL);
}

static void join(unsigned access, uint8_t rnr_timer)
{
	join_with(&x.a, access, rnr_timer);
}

static int setup(void **state)
{
	int fd;

	strcpy(x.path, "/tmp/anyverbs-xrcXXXXXX");
	fd = mkstemp(x.path);
	assert_true(fd >= 0);
	close(fd);
	place_make(&x.a, O_CREAT | O_EXCL);
	place_make(&x.b, 0);
	x.c.hand.pid = 0;
	x.target = (uint32_t)crew_do(&x.a.hand, CREW_TARGET, 0, 0, 0).value[0];
	make_initiator();
	memset(x.memory, 0, CREW_BYTES);
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(ibv_destroy_qp(x.ini), 0);
	crew_end(&x.a.hand);
	crew_end(&x.b.hand);
	crew_end(&x.c.hand);
	unlink(x.path);
	return 0;
}

static void post_signalled(enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t srqn,
			   uint64_t offset, uint32_t length, const struct place *remote,
			   uint64_t remote_offset)
{
	struct ibv_sge sge = { (uintptr_t)x.memory + offset, length, x.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = 0x01020304 },
			   *bad;

	wr.qp_type.xrc.remote_srqn = srqn;
	if (remote != NULL && opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote->address + remote_offset;
		wr.wr.atomic.rkey = remote->rkey;
		wr.wr.atomic.compare_add = 5;
	} else if (remote != NULL) {
		wr.wr.rdma.remote_addr = remote->address + remote_offset;
		wr.wr.rdma.rkey = remote->rkey;
	}
	assert_int_equal(ibv_post_send(x.ini, &wr, &bad), 0);
}

static struct ibv_wc await_wc(void)
{
	struct ibv_wc wc;

	memset(&wc, 0, sizeof(wc));
	for (int ms = 0; ms < CREW_WAIT_MS; ms++) {
		for (int i = 0; i < 200; i++)
			if (ibv_poll_cq(x.cq, 1, &wc) == 1)
				return wc;
		usleep(1000);
	}
	fail_msg("no completion");
	return wc;
}

static void request(enum ibv_wr_opcode opcode, uint32_t srqn, uint32_t length,
		    const struct place *remote, uint64_t remote_offset, enum ibv_wc_status expected)
{
	post_signalled(opcode, 7, srqn, 0, length, remote, remote_offset);
	assert_int_equal(await_wc().status, expected);
}

static struct ibv_wc recv_of(const struct place *p)
{
	return crew_do(&p->hand, CREW_POLL, CREW_WAIT_MS, 0, 0).wc;
}

/* The refusal is on its way before the target fails. */
static void await_error(void)
{
	for (int ms = 0; ms < CREW_WAIT_MS; ms++) {
		if (crew_do(&x.a.hand, CREW_QUERY, 0, 0, 0).value[0] == IBV_QPS_ERR)
			return;
		usleep(1000);
	}
	fail_msg("the target goes on");
}

/* ---- requests -------------------------------------------------------------------------------- */

static void send__lands_in_the_other_process(void **state)
{
	static const uint32_t lengths[] = {
		0, 1, 32, 33, 1024, 1025, 16384, 16385, 65536, 1 << 20
	};

	join(ALL_RIGHTS, RNR_TIMER);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const struct place *p = i % 3 == 2 ? &x.a : &x.b;
		struct ibv_wc wc;

		crew_fill(x.memory, lengths[i], i);
		crew_do(&p->hand, CREW_POST, 100 + i, 4096, 2 << 20);
		request(IBV_WR_SEND_WITH_IMM, p->number, lengths[i], NULL, 0, IBV_WC_SUCCESS);
		wc = recv_of(p);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.byte_len, lengths[i]);
		assert_int_equal(wc.qp_num, x.target);
		assert_int_equal(wc.src_qp, x.ini->qp_num);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
		assert_int_equal(wc.imm_data, 0x01020304);
		crew_do(&p->hand, CREW_CHECK, 4096, lengths[i], i);
	}
}

/* Requests without a pause, to the SRQs of three processes in turn. */
static void send__many_to_three_processes(void **state)
{
	struct place *places[] = { &x.b, &x.a, &x.c };

	place_make(&x.c, 0);
	join(ALL_RIGHTS, 12);
	for (uint32_t i = 0; i < 60; i++)
		crew_do(&places[i / 5 % 3]->hand, CREW_POST, i, (uint64_t)i * 32768, 32768);
	for (uint32_t i = 0; i < 60; i++)
		crew_fill(x.memory + (uint64_t)i * 32768, 1 + i * 500, i);
	for (uint32_t i = 0; i < 60; i++)
		post_signalled(IBV_WR_SEND_WITH_IMM, i, places[i / 5 % 3]->number,
			       (uint64_t)i * 32768, 1 + i * 500, NULL, 0);
	for (uint32_t i = 0; i < 60; i++) {
		struct ibv_wc wc = await_wc();

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
	for (uint32_t i = 0; i < 60; i++) {
		struct ibv_wc wc = recv_of(places[i / 5 % 3]);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, 1 + i * 500);
		crew_do(&places[i / 5 % 3]->hand, CREW_CHECK, (uint64_t)i * 32768, 1 + i * 500, i);
	}
}

static void one_sided__in_the_memory_of_the_srqs_process(void **state)
{
	struct ibv_wc wc;

	join(ALL_RIGHTS, RNR_TIMER);
	crew_fill(x.memory, 200000, 3);
	request(IBV_WR_RDMA_WRITE, x.b.number, 200000, &x.b, 8192, IBV_WC_SUCCESS);
	crew_do(&x.b.hand, CREW_CHECK, 8192, 200000, 3);
	crew_do(&x.b.hand, CREW_FILL, 8192, 1 << 20, 4);
	request(IBV_WR_RDMA_READ, x.b.number, 1 << 20, &x.b, 8192, IBV_WC_SUCCESS);
	assert_true(crew_is_filled(x.memory, 1 << 20, 4));
	request(IBV_WR_RDMA_READ, x.b.number, 0, &x.b, 8192, IBV_WC_SUCCESS);
	request(IBV_WR_ATOMIC_FETCH_AND_ADD, x.b.number, 8, &x.b, 0, IBV_WC_SUCCESS);
	request(IBV_WR_ATOMIC_FETCH_AND_ADD, x.b.number, 8, &x.b, 0, IBV_WC_SUCCESS);
	assert_int_equal(x.memory[0], 5);
	request(IBV_WR_RDMA_READ, x.a.number, 64, &x.a, 0, IBV_WC_SUCCESS);
	crew_do(&x.b.hand, CREW_POST, 9, 2 << 20, 64);
	crew_fill(x.memory, 3000, 5);
	request(IBV_WR_RDMA_WRITE_WITH_IMM, x.b.number, 3000, &x.b, 8192, IBV_WC_SUCCESS);
	wc = recv_of(&x.b);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 3000);
	crew_do(&x.b.hand, CREW_CHECK, 8192, 3000, 5);
	/* A key counts in the process of the SRQ that is named. */
	request(IBV_WR_RDMA_WRITE, x.a.number, 64, &x.b, 8192, IBV_WC_REM_ACCESS_ERR);
}

static void one_sided__key_of_the_targets_process(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	request(IBV_WR_RDMA_WRITE, x.b.number, 64, &x.b, CREW_BYTES - 63, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(crew_do(&x.a.hand, CREW_EVENT, CREW_WAIT_MS, 0, 0).value[0],
			 IBV_EVENT_QP_ACCESS_ERR);
	await_error();
}

static void one_sided__right_that_the_target_does_not_give(void **state)
{
	join(IBV_ACCESS_REMOTE_READ, RNR_TIMER);
	request(IBV_WR_RDMA_READ, x.b.number, 64, &x.b, 0, IBV_WC_SUCCESS);
	request(IBV_WR_RDMA_WRITE, x.b.number, 64, &x.b, 0, IBV_WC_REM_ACCESS_ERR);
}

static void one_sided__atomics_that_the_target_does_not_give(void **state)
{
	join(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, RNR_TIMER);
	request(IBV_WR_RDMA_WRITE, x.b.number, 64, &x.b, 0, IBV_WC_SUCCESS);
	request(IBV_WR_ATOMIC_FETCH_AND_ADD, x.b.number, 8, &x.b, 0, IBV_WC_REM_ACCESS_ERR);
}

/* READs behind each other, and a SEND behind them. */
static void read__several_in_flight(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_FILL, 0, 1 << 20, 6);
	crew_do(&x.a.hand, CREW_FILL, 0, 1 << 20, 7);
	crew_do(&x.b.hand, CREW_POST, 1, 2 << 20, 64);
	for (uint32_t i = 0; i < 8; i++)
		post_signalled(IBV_WR_RDMA_READ, i, i % 4 == 3 ? x.a.number : x.b.number,
			       (uint64_t)i * 100000, 100000, i % 4 == 3 ? &x.a : &x.b, 0);
	post_signalled(IBV_WR_SEND, 8, x.b.number, 0, 64, NULL, 0);
	for (uint32_t i = 0; i < 9; i++) {
		struct ibv_wc wc = await_wc();

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
	for (uint32_t i = 0; i < 8; i++)
		assert_true(crew_is_filled(x.memory + i * 100000, 100000, i % 4 == 3 ? 7 : 6));
	assert_int_equal(recv_of(&x.b).byte_len, 64);
}

/* ---- receives that are not there ------------------------------------------------------------- */

static void send__waits_for_a_receive(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_fill(x.memory, 100000, 8);
	post_signalled(IBV_WR_SEND, 1, x.b.number, 0, 100000, NULL, 0);
	post_signalled(IBV_WR_SEND, 2, x.a.number, 0, 64, NULL, 0);
	crew_do(&x.a.hand, CREW_POST, 2, 0, 64);
	usleep(20000);
	assert_int_equal(crew_try(&x.a.hand, CREW_POLL, 0, 0, 0).error, CREW_NOTHING);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 100000);
	assert_int_equal(await_wc().status, IBV_WC_SUCCESS);
	assert_int_equal(await_wc().status, IBV_WC_SUCCESS);
	crew_do(&x.b.hand, CREW_CHECK, 0, 100000, 8);
	assert_int_equal(recv_of(&x.a).wr_id, 2);
}

static void send__without_a_receive(void **state)
{
	join(ALL_RIGHTS, 0);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_RNR_RETRY_EXC_ERR);
}

/* The receive is asked for with the last packet. */
static void write_with_imm__waits_for_a_receive(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_fill(x.memory, 100000, 9);
	post_signalled(IBV_WR_RDMA_WRITE_WITH_IMM, 1, x.b.number, 0, 100000, &x.b, 0);
	usleep(20000);
	crew_do(&x.b.hand, CREW_POST, 1, 2 << 20, 64);
	assert_int_equal(await_wc().status, IBV_WC_SUCCESS);
	assert_int_equal(recv_of(&x.b).byte_len, 100000);
	crew_do(&x.b.hand, CREW_CHECK, 0, 100000, 9);
}

static void send__receive_too_short(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 63);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(recv_of(&x.b).status, IBV_WC_LOC_LEN_ERR);
	await_error();
}

static void srq_limit__in_its_own_process(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 64);
	crew_do(&x.b.hand, CREW_POST, 2, 0, 64);
	crew_do(&x.b.hand, CREW_LIMIT, 2, 0, 0);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(crew_do(&x.b.hand, CREW_EVENT, CREW_WAIT_MS, 0, 0).value[0],
			 IBV_EVENT_SRQ_LIMIT_REACHED);
}

/* ---- domains --------------------------------------------------------------------------------- */

/* The node gives a dead process' names back once it knows of the death. */
static void await_no_domain(const struct crew_hand *hand)
{
	int error = 0;

	for (int ms = 0; error == 0 && ms < CREW_WAIT_MS; ms++) {
		error = crew_try(hand, CREW_DOMAIN, 0, 0, 0).error;
		if (error == 0)
			crew_do(hand, CREW_CLOSE_DOMAIN, 0, 0, 0);
		usleep(1000);
	}
	assert_int_equal(error, EAGAIN);
}

static void domain__exists_while_a_process_has_it(void **state)
{
	struct crew_hand other = crew_start(x.path, x.node, false);

	assert_int_equal(crew_try(&other, CREW_DOMAIN, O_CREAT | O_EXCL, 0, 0).error, EINVAL);
	crew_do(&other, CREW_DOMAIN, O_CREAT, 0, 0);
	crew_do(&other, CREW_CLOSE_DOMAIN, 0, 0, 0);
	crew_kill(&x.a.hand);
	crew_do(&other, CREW_DOMAIN, 0, 0, 0);
	crew_do(&other, CREW_CLOSE_DOMAIN, 0, 0, 0);
	assert_int_equal(crew_try(&x.b.hand, CREW_CLOSE_DOMAIN, 0, 0, 0).error, EBUSY);
	crew_kill(&x.b.hand);
	await_no_domain(&other);
	crew_do(&other, CREW_DOMAIN, O_CREAT | O_EXCL, 0, 0);
	crew_end(&other);
}

static void send__to_an_srq_of_another_domain(void **state)
{
	char first[32], second[] = "/tmp/anyverbs-xrcXXXXXX";
	int fd = mkstemp(second);

	assert_true(fd >= 0);
	close(fd);
	strcpy(first, x.path);
	strcpy(x.path, second);
	place_make(&x.c, O_CREAT);
	strcpy(x.path, first);
	unlink(second);
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.c.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.c.number, 64, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(crew_try(&x.c.hand, CREW_POLL, 0, 0, 0).error, CREW_NOTHING);
	assert_int_equal(crew_do(&x.a.hand, CREW_EVENT, CREW_WAIT_MS, 0, 0).value[0],
			 IBV_EVENT_QP_REQ_ERR);
}

static void send__to_an_srq_that_is_gone(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
	crew_do(&x.b.hand, CREW_END_SRQ, 0, 0, 0);
	/* What it has received stays. */
	assert_int_equal(recv_of(&x.b).status, IBV_WC_SUCCESS);
	crew_do(&x.a.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.a.number, 64, NULL, 0, IBV_WC_SUCCESS);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
}

/* A target's transport is its process': another one cannot keep it alive, and gets no handle. */
static void open_qp__of_another_process(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	assert_int_equal(crew_try(&x.b.hand, CREW_OPEN_QP, x.target, 0, 0).error, EINVAL);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void death__of_the_srqs_process(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
	crew_kill(&x.b.hand);
	crew_do(&x.a.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.a.number, 64, NULL, 0, IBV_WC_SUCCESS);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
	await_error();
}

/* It is stopped, so that it has requests, and then it dies. */
static enum ibv_wc_status die_with_requests(void)
{
	enum ibv_wc_status first;

	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
	kill(x.b.hand.pid, SIGSTOP);
	post_signalled(IBV_WR_SEND, 1, x.b.number, 0, 64, NULL, 0);
	post_signalled(IBV_WR_SEND, 2, x.a.number, 0, 64, NULL, 0);
	crew_try(&x.a.hand, CREW_POLL, 50, 0, 0);
	crew_kill(&x.b.hand);
	first = await_wc().status;
	assert_int_equal(await_wc().status, IBV_WC_WR_FLUSH_ERR);
	return first;
}

/* On a busy host the target may not have handed them on before: then there is no such SRQ. */
static void death__with_requests_in_flight(void **state)
{
	enum ibv_wc_status first = die_with_requests();

	for (int i = 0; first == IBV_WC_REM_INV_REQ_ERR && i < 10; i++) {
		teardown(state);
		setup(state);
		first = die_with_requests();
	}
	assert_int_equal(first, IBV_WC_REM_OP_ERR);
	assert_int_equal(crew_do(&x.a.hand, CREW_EVENT, CREW_WAIT_MS, 0, 0).value[0],
			 IBV_EVENT_QP_FATAL);
}

/* It goes on where it was. */
static void stop__of_the_srqs_process(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	for (uint32_t i = 0; i < 32; i++)
		crew_do(&x.b.hand, CREW_POST, i, (uint64_t)i * 65536, 65536);
	kill(x.b.hand.pid, SIGSTOP);
	crew_fill(x.memory, 40000, 11);
	for (uint32_t i = 0; i < 32; i++)
		post_signalled(IBV_WR_SEND, i, x.b.number, 0, 40000, NULL, 0);
	usleep(100000);
	kill(x.b.hand.pid, SIGCONT);
	for (uint32_t i = 0; i < 32; i++) {
		struct ibv_wc wc = await_wc();

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
	for (uint32_t i = 0; i < 32; i++) {
		assert_int_equal(recv_of(&x.b).wr_id, i);
		crew_do(&x.b.hand, CREW_CHECK, (uint64_t)i * 65536, 40000, 11);
	}
}

/* The SRQ's process has a part of the message when its target dies. */
static struct crew_reply die_in_a_message(void)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 64);
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(recv_of(&x.b).wr_id, 1);
	crew_do(&x.b.hand, CREW_POST, 2, 0, 4 << 20);
	kill(x.b.hand.pid, SIGSTOP);
	/* more than a ring has room for */
	post_signalled(IBV_WR_SEND, 1, x.b.number, 0, 4 << 20, NULL, 0);
	crew_try(&x.a.hand, CREW_POLL, 50, 0, 0);
	crew_kill(&x.a.hand);
	kill(x.b.hand.pid, SIGCONT);
	return crew_try(&x.b.hand, CREW_POLL, 1000, 0, 0);
}

/* As above: on a busy host it may have no part of it yet. */
static void death__of_the_target_in_a_message(void **state)
{
	struct crew_reply r = die_in_a_message();

	for (int i = 0; r.error == CREW_NOTHING && i < 10; i++) {
		teardown(state);
		setup(state);
		r = die_in_a_message();
	}
	assert_int_equal(r.error, 0);
	assert_int_equal(r.wc.wr_id, 2);
	assert_int_equal(r.wc.status, IBV_WC_WR_FLUSH_ERR);
}

/* Another target takes its place, and the SRQ's process lives on. */
static void death__of_the_target(void **state)
{
	struct place *next = &x.c;

	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 2 << 20);
	request(IBV_WR_SEND, x.b.number, 1 << 20, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(recv_of(&x.b).wr_id, 1);
	crew_kill(&x.a.hand);
	place_make(next, 0);
	x.target = (uint32_t)crew_do(&next->hand, CREW_TARGET, 0, 0, 0).value[0];
	assert_int_equal(ibv_destroy_qp(x.ini), 0);
	make_initiator();
	join_with(next, ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 2, 0, 2 << 20);
	request(IBV_WR_SEND, x.b.number, 1 << 20, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(recv_of(&x.b).wr_id, 2);
}

static void reset__and_connect_again(void **state)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	for (uint32_t i = 0; i < 5; i++) {
		join(ALL_RIGHTS, RNR_TIMER);
		crew_do(&x.b.hand, CREW_POST, i, 0, 4096);
		request(IBV_WR_SEND, x.b.number, 4096, NULL, 0, IBV_WC_SUCCESS);
		assert_int_equal(recv_of(&x.b).wr_id, i);
		assert_int_equal(ibv_modify_qp(x.ini, &reset, IBV_QP_STATE), 0);
		crew_do(&x.a.hand, CREW_MODIFY, IBV_QPS_RESET, 0, 0);
	}
}

/* A message in the middle of which the target is reset: the receive is not lost. */
static void reset__in_the_middle_of_a_message(void **state)
{
	join(ALL_RIGHTS, RNR_TIMER);
	crew_do(&x.b.hand, CREW_POST, 1, 0, 4 << 20);
	/* A WRITE with immediate that has been placed, and waits for the receive that is gone. */
	request(IBV_WR_SEND, x.b.number, 64, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(recv_of(&x.b).wr_id, 1);
	post_signalled(IBV_WR_RDMA_WRITE_WITH_IMM, 1, x.b.number, 0, 1 << 20, &x.b, 0);
	usleep(20000);
	crew_do(&x.a.hand, CREW_MODIFY, IBV_QPS_ERR, 0, 0);
	crew_do(&x.a.hand, CREW_END_QP, 0, 0, 0);
	/* takes the word of that out of the ring, if its engine has not yet */
	assert_int_equal(crew_try(&x.b.hand, CREW_POLL, 20, 0, 0).error, CREW_NOTHING);
	crew_do(&x.b.hand, CREW_POST, 2, 0, 64);
	assert_int_equal(crew_try(&x.b.hand, CREW_POLL, 20, 0, 0).error, CREW_NOTHING);
}

static int begin(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list);
	x.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(x.ctx);
	assert_int_equal(ibv_query_gid(x.ctx, 1, 1, &x.gid), 0);
	x.pd = ibv_alloc_pd(x.ctx);
	x.cq = ibv_create_cq(x.ctx, 2 * SQ, NULL, NULL, 0);
	x.memory = mmap(NULL, CREW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	x.mr = ibv_reg_mr(x.pd, x.memory, CREW_BYTES, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(x.mr);
	return 0;
}

/* Each node has an address of its own. */
static void two_nodes(void)
{
	static char node[2][32];

	for (int i = 0; i < 2; i++)
		snprintf(node[i], sizeof(node[i]), "xrc-%d-%d", getpid(), i);
	setenv("ANYVERBS_NODE", node[0], 1);
	setenv("ANYVERBS_ADDR", "own", 1);
	x.node = node[1];
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(send__lands_in_the_other_process),
		TEST(send__many_to_three_processes),
		TEST(one_sided__in_the_memory_of_the_srqs_process),
		TEST(one_sided__key_of_the_targets_process),
		TEST(one_sided__right_that_the_target_does_not_give),
		TEST(one_sided__atomics_that_the_target_does_not_give),
		TEST(read__several_in_flight),
		TEST(send__waits_for_a_receive),
		TEST(send__without_a_receive),
		TEST(write_with_imm__waits_for_a_receive),
		TEST(send__receive_too_short),
		TEST(srq_limit__in_its_own_process),
		TEST(domain__exists_while_a_process_has_it),
		TEST(send__to_an_srq_of_another_domain),
		TEST(send__to_an_srq_that_is_gone),
		TEST(open_qp__of_another_process),
		TEST(death__of_the_srqs_process),
		TEST(death__with_requests_in_flight),
		TEST(stop__of_the_srqs_process),
		TEST(death__of_the_target),
		TEST(death__of_the_target_in_a_message),
		TEST(reset__and_connect_again),
		TEST(reset__in_the_middle_of_a_message),
	};

	crew_main(argc, argv);
	if (getenv("VERBS_VARIANT") && strstr(getenv("VERBS_VARIANT"), "nodes"))
		two_nodes();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, begin, NULL);
}
