/* tm_test.c: a tag-matching SRQ of this process, a sender in a child: messages of each kind over
 * the path that the variant asks for, and a sender that is killed.
 * In: nothing    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum {
	BYTES = 16 << 20,
	ORDINARY = 1 << 20, /* of each ordinary buffer; they lie behind the entries' */
	BUFFERS = 4,
	TMH = 16,
	REQUEST = 32,
	GID = 1,
	WAIT_MS = 20000,
	MANY = 40,
	KILLS = 6,
	SENDERS = KILLS + 6, /* one for each test, and for each that is killed */
	MATCH = IBV_WC_TM_MATCH,
	VALID = IBV_WC_TM_DATA_VALID,
};

/* What the parent tells the child to send; the answer is its count of completions that came. */
struct order {
	enum { EAGER, RNDV, CONNECT, QUIT } what;
	uint32_t count; /* tags `tag` to `tag` + count - 1 */
	uint64_t tag;
	uint64_t length;
	uint32_t qpn; /* CONNECT */
};

/* One process' half. */
static struct half {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	union ibv_gid gid;
	int fd, child;
} half;

/* Forked before this process has a thread, as ThreadSanitizer demands; each begins when told. */
static struct sender {
	int fd, pid;
} senders[SENDERS];
static int next_sender;

static uint8_t pattern(uint64_t i, uint64_t tag)
{
	return (uint8_t)(i * 3 + (i >> 9) + tag);
}

static void half_open(struct half *h)
{
	h->ctx = device_open(NULL);
	must(h->ctx != NULL);
	must(ibv_query_gid(h->ctx, CONN_PORT, GID, &h->gid) == 0);
	h->pd = ibv_alloc_pd(h->ctx);
	h->cq = ibv_create_cq(h->ctx, 4096, NULL, NULL, 0);
	h->memory = aligned_alloc(4096, BYTES + BUFFERS * ORDINARY);
	must(h->pd != NULL && h->cq != NULL && h->memory != NULL);
	h->mr = ibv_reg_mr(h->pd, h->memory, BYTES + BUFFERS * ORDINARY,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	must(h->mr != NULL);
}

static void half_close(struct half *h)
{
	must(ibv_destroy_qp(h->qp) == 0);
	must(h->srq == NULL || ibv_destroy_srq(h->srq) == 0);
	must(ibv_dereg_mr(h->mr) == 0 && ibv_destroy_cq(h->cq) == 0);
	must(ibv_dealloc_pd(h->pd) == 0 && ibv_close_device(h->ctx) == 0);
	free(h->memory);
}

static void half_connect(struct half *h, uint32_t qpn)
{
	struct ibv_qp_attr attr = conn_attr(qpn, &h->gid, GID);

	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
	must(conn_up(h->qp, &attr, IBV_QPS_RTS) == 0);
}

/* ---- the sender ---- */

static void sender_post_recv(void)
{
	struct ibv_sge sge = { .addr = (uintptr_t)half.memory,
			       .length = REQUEST,
			       .lkey = half.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(half.qp, &wr, &bad) == 0);
}

/* The data of a rendezvous lies where that of an EAGER does, behind a TMH. */
static void sender_post(const struct order *o, uint64_t tag)
{
	struct ibv_tmh *tmh = (struct ibv_tmh *)(half.memory + 4096 + (tag - o->tag) * 64);
	struct ibv_rvh rvh = { .va = htobe64((uintptr_t)half.memory + 8192),
			       .rkey = htobe32(half.mr->rkey),
			       .len = htobe32((uint32_t)o->length) };
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)tmh, .length = TMH, .lkey = half.mr->lkey },
		{ .addr = (uintptr_t)half.memory + 8192,
		  .length = (uint32_t)o->length,
		  .lkey = half.mr->lkey },
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2 }, *bad;

	*tmh = (struct ibv_tmh){ .opcode = o->what == RNDV ? IBV_TMH_RNDV : IBV_TMH_EAGER,
				 .app_ctx = htobe32(7),
				 .tag = htobe64(tag) };
	if (o->what == RNDV) {
		memcpy(tmh + 1, &rvh, sizeof(rvh));
		sge[0].length = REQUEST;
		wr.num_sge = 1;
		sender_post_recv();
	}
	wr.send_flags = IBV_SEND_SIGNALED;
	must(ibv_post_send(half.qp, &wr, &bad) == 0);
}

static void sender_obey(const struct order *o)
{
	uint32_t want = o->count * (o->what == RNDV ? 2 : 1), got = 0;
	static struct ibv_wc wc[2 * MANY];

	if (o->what == CONNECT) {
		half_connect(&half, o->qpn);
		must(other_tell(half.fd, &got, sizeof(got)));
		return;
	}
	for (uint64_t i = 0; i < o->length; i++)
		half.memory[8192 + i] = pattern(i, o->tag);
	for (uint32_t i = 0; i < o->count; i++)
		sender_post(o, o->tag + i);
	must(cq_wait(half.cq, wc, (int)want, WAIT_MS) == (int)want);
	for (uint32_t i = 0; i < want; i++)
		got += wc[i].status == IBV_WC_SUCCESS;
	must(other_tell(half.fd, &got, sizeof(got)));
}

static _Noreturn void sender_main(void)
{
	struct ibv_qp_init_attr init = { .cap = { 64, 64, 2, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct order o;
	uint8_t go;

	if (other_hear(half.fd, &go, sizeof(go)) != sizeof(go))
		_exit(0);
	half_open(&half);
	init.send_cq = init.recv_cq = half.cq;
	half.qp = ibv_create_qp(half.pd, &init);
	must(half.qp != NULL);
	must(other_tell(half.fd, &half.qp->qp_num, sizeof(half.qp->qp_num)));
	while (other_hear(half.fd, &o, sizeof(o)) == sizeof(o) && o.what != QUIT)
		sender_obey(&o);
	half_close(&half);
	_exit(0);
}

/* ---- the receiver ---- */

static void tell(const struct order *o)
{
	must(other_tell(half.fd, o, sizeof(*o)));
}

static void expect_done(uint32_t count)
{
	uint32_t got;

	assert_int_equal(other_hear(half.fd, &got, sizeof(got)), sizeof(got));
	assert_int_equal(got, count);
}

static void post_ordinary(uint64_t i)
{
	struct ibv_sge sge = { .addr = (uintptr_t)half.memory + BYTES + i * ORDINARY,
			       .length = ORDINARY,
			       .lkey = half.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_srq_recv(half.srq, &wr, &bad), 0);
}

static void make_srq(void)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = BUFFERS, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = half.pd,
		.cq = half.cq,
		.tm_cap = { .max_num_tags = 2 * MANY, .max_ops = 16 },
	};
	struct ibv_qp_init_attr qp = { .send_cq = half.cq,
				       .recv_cq = half.cq,
				       .qp_type = IBV_QPT_RC };

	half.srq = ibv_create_srq_ex(half.ctx, &init);
	assert_non_null(half.srq);
	qp.srq = half.srq;
	half.qp = ibv_create_qp(half.pd, &qp);
	assert_non_null(half.qp);
}

static int setup(void **state)
{
	struct order o = { .what = CONNECT };
	uint32_t qpn;

	assert_in_range(next_sender, 0, SENDERS - 1);
	half = (struct half){ .fd = senders[next_sender].fd, .child = senders[next_sender].pid };
	next_sender++;
	must(other_tell(half.fd, "", 1));
	half_open(&half);
	make_srq();
	must(other_hear(half.fd, &qpn, sizeof(qpn)) == sizeof(qpn));
	half_connect(&half, qpn);
	o.qpn = half.qp->qp_num;
	tell(&o);
	expect_done(0);
	return 0;
}

static int teardown(void **state)
{
	struct order o = { .what = QUIT };
	int status;

	half_close(&half);
	other_tell(half.fd, &o, sizeof(o));
	close(half.fd);
	return waitpid(half.child, &status, 0) == half.child ? 0 : -1;
}

/* Adds an entry whose buffer lies at `offset`. */
static void add(uint64_t tag, uint64_t offset, uint64_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)half.memory + offset,
			       .length = (uint32_t)length,
			       .lkey = half.mr->lkey };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .recv_wr_id = 100 + tag,
					     .sg_list = &sge,
					     .num_sge = 1,
					     .tag = tag,
					     .mask = UINT64_MAX } },
			  *bad;

	assert_int_equal(ibv_post_srq_ops(half.srq, &wr, &bad), 0);
}

static struct ibv_wc next(void)
{
	struct ibv_wc wc;

	assert_int_equal(cq_wait(half.cq, &wc, 1, WAIT_MS), 1);
	return wc;
}

static void expect_data(const uint8_t *at, uint64_t length, uint64_t tag)
{
	for (uint64_t i = 0; i < length; i++)
		if (at[i] != pattern(i, tag))
			fail_msg("byte %llu of %llu", (unsigned long long)i,
				 (unsigned long long)length);
}

static void expect_nothing(void)
{
	struct ibv_wc wc;

	assert_int_equal(cq_wait(half.cq, &wc, 1, PAIR_QUIET_MS), 0);
}

static void eager(uint64_t length)
{
	struct order o = { .what = EAGER, .count = 1, .tag = 5, .length = length };
	struct ibv_wc wc;

	memset(half.memory, 0, length + 1);
	add(5, 0, length);
	tell(&o);
	wc = next();
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_TM_RECV);
	assert_true(wc.wc_flags & MATCH);
	assert_int_equal(wc.wr_id, 105);
	if ((wc.wc_flags & VALID) == 0)
		wc = next();
	assert_true(wc.wc_flags & VALID);
	assert_int_equal(wc.byte_len, length);
	expect_data(half.memory, length, 5);
	assert_int_equal(half.memory[length], 0);
	expect_done(1);
}

static void eager__of_each_size(void **state)
{
	static const uint64_t lengths[] = { 0, 1, 8, 16, 17, 32, 1008, 4096, 16368, 65519, 65520,
					    1 << 20, (1 << 20) - TMH, (8 << 20) + 5 };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		eager(lengths[i]);
	expect_nothing();
}

static void unexpected__lies_in_an_ordinary_buffer(void **state)
{
	struct order o = { .what = EAGER, .count = 1, .tag = 9 };
	static const uint64_t lengths[] = { 0, 8, 5000, 500000 };
	struct ibv_wc wc;

	for (uint64_t i = 0; i < BUFFERS; i++) {
		const uint8_t *at = half.memory + BYTES + i * ORDINARY;

		post_ordinary(i);
		o.length = lengths[i];
		tell(&o);
		wc = next();
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_TM_RECV);
		assert_int_equal(wc.wc_flags, 0);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, TMH + lengths[i]);
		assert_int_equal(at[0], IBV_TMH_EAGER);
		expect_data(at + TMH, lengths[i], 9);
		expect_done(1);
	}
}

static void rndv(uint64_t length)
{
	struct order o = { .what = RNDV, .count = 1, .tag = 3, .length = length };
	struct ibv_wc wc;

	memset(half.memory, 0, length + 1);
	add(3, 0, length);
	tell(&o);
	wc = next();
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wc_flags, MATCH);
	wc = next();
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wc_flags, VALID);
	assert_int_equal(wc.wr_id, 103);
	assert_int_equal(wc.byte_len, length);
	expect_data(half.memory, length, 3);
	assert_int_equal(half.memory[length], 0);
	expect_done(2);
}

static void rndv__of_each_size(void **state)
{
	static const uint64_t lengths[] = { 0, 1, 4096, 70000, 1 << 20, (8 << 20) + 5 };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		rndv(lengths[i]);
	expect_nothing();
}

static void rndv__many_at_once(void **state)
{
	struct order o = { .what = RNDV, .count = MANY, .tag = 0, .length = 200000 };
	uint32_t matched = 0, valid = 0;

	for (uint64_t i = 0; i < MANY; i++)
		add(i, i * 300000, 200000);
	tell(&o);
	while (valid < MANY) {
		struct ibv_wc wc = next();

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wc_flags == MATCH) {
			assert_int_equal(wc.wr_id, 100 + matched++);
			continue;
		}
		assert_int_equal(wc.wc_flags, VALID);
		assert_int_equal(wc.wr_id, 100 + valid);
		expect_data(half.memory + valid * 300000, 200000, 0);
		valid++;
	}
	expect_done(2 * MANY);
	expect_nothing();
}

static void no_request_fits_a_queue_of_none(void **state)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	assert_int_equal(ibv_post_send(half.qp, &wr, &bad), ENOMEM);
}

/* The sender is killed at some moment of many long rendezvous: each entry that was matched
 * completes once more, and no other. */
static void kill_after(unsigned int us)
{
	struct order o = { .what = RNDV, .count = MANY, .tag = 0, .length = 300000 };
	bool matched[MANY] = { false }, ended[MANY] = { false };
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	for (uint64_t i = 0; i < MANY; i++)
		add(i, i * 300000, 300000);
	tell(&o);
	wc = next();
	assert_int_equal(wc.wc_flags, MATCH);
	matched[wc.wr_id - 100] = true;
	usleep(us);
	assert_int_equal(kill(half.child, SIGKILL), 0);
	usleep(20000);
	assert_int_equal(ibv_modify_qp(half.qp, &err, IBV_QP_STATE), 0);
	while (cq_wait(half.cq, &wc, 1, PAIR_QUIET_MS) == 1) {
		bool *which = wc.status == IBV_WC_SUCCESS && wc.wc_flags == MATCH ? matched : ended;

		assert_in_range(wc.wr_id, 100, 100 + MANY - 1);
		assert_false(which[wc.wr_id - 100]);
		which[wc.wr_id - 100] = true;
	}
	assert_memory_equal(matched, ended, sizeof(ended));
}

static void killed__each_consumed_entry_completes_once(void **state)
{
	for (unsigned int i = 0; i < KILLS; i++) {
		kill_after(i * i * 400);
		assert_int_equal(teardown(NULL), 0);
		assert_int_equal(setup(NULL), 0);
	}
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(eager__of_each_size),
		EACH(unexpected__lies_in_an_ordinary_buffer),
		EACH(rndv__of_each_size),
		EACH(rndv__many_at_once),
		EACH(no_request_fits_a_queue_of_none),
		EACH(killed__each_consumed_entry_completes_once),
	};

	pair_supervise();
	for (int i = 0; i < SENDERS; i++) {
		senders[i].pid = other_fork(&senders[i].fd);
		half.fd = senders[i].fd;
		if (senders[i].pid == 0)
			sender_main();
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
