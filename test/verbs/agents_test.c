/* agents_test.c: one word of a process, changed by atomics of every kind of agent at the same time:
 * none is lost (IBV_ATOMIC_HCA, and the processor's own instructions as well).
 * In: VERBS_VARIANT      Out: verdicts      Runs: cmocka; a child for each agent      Locks: none
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { ROUNDS = 2000, WAIT_MS = 60000, PAGE = 4096 };

/* What an agent is told, or tells. */
struct agent_name {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t addr;
};

/* The way of its requests. */
static const struct agent_kind {
	const char *name, *variable, *value;
	bool far;    /* on a host of its own: over UDP */
	bool window; /* by the key of a window */
} kinds[] = {
	{ "maps, where the memory is adopted", "ANYVERBS_ADOPT", "1", false, false },
	{ "the same, another process", "ANYVERBS_ADOPT", "1", false, false },
	{ "packets through the ring", "ANYVERBS_DIRECT", "0", false, false },
	{ "a window", "ANYVERBS_DIRECT", "1", false, true },
	{ "UDP", "ANYVERBS_DIRECT", "1", true, false },
	{ "UDP and a window", "ANYVERBS_DIRECT", "1", true, true },
};
enum { AGENTS = sizeof(kinds) / sizeof(kinds[0]) };

static struct agent {
	int fd, pid;
	struct ibv_qp *qp;
	struct ibv_mw *mw;
} agents[AGENTS];

/* A second node, with an address of its own. */
static void agent_go_far(void)
{
	unsigned id = (unsigned)getpid();
	char name[64];

	snprintf(name, sizeof(name), "agents-%u", id);
	setenv("ANYVERBS_NODE", name, 1);
	snprintf(name, sizeof(name), "127.%u.%u.%u", 192 + (id >> 14 & 31), id >> 7 & 127,
		 1 + (id & 127));
	setenv("ANYVERBS_ADDR", name, 1);
	setenv("ANYVERBS_IDLE_S", "1", 1);
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp != NULL);
	return qp;
}

static void connect_qp(struct ibv_qp *qp, const struct agent_name *to)
{
	struct ibv_qp_attr a = conn_attr(to->qpn, &to->gid, 1);

	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	a.timeout = 18;
	must(conn_up(qp, &a, IBV_QPS_RTS) == 0);
}

static uint64_t agent_do(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr,
			 struct ibv_send_wr *wr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, 8, mr->lkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	must(ibv_post_send(qp, wr, &bad) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	must(wc.status == IBV_WC_SUCCESS);
	return *(volatile uint64_t *)mr->addr;
}

/* Adds 1 by FETCH_AND_ADD, then adds 1 by COMPARE_AND_SWAP, as often as it takes. */
static void agent_work(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr,
		       const struct agent_name *to)
{
	struct ibv_send_wr wr = { 0 };

	wr.wr.atomic.remote_addr = to->addr;
	wr.wr.atomic.rkey = to->rkey;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t seen, expected;

		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.compare_add = 1;
		seen = agent_do(qp, cq, mr, &wr) + 1;
		wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		do {
			expected = seen;
			wr.wr.atomic.compare_add = expected;
			wr.wr.atomic.swap = expected + 1;
			seen = agent_do(qp, cq, mr, &wr);
		} while (seen != expected);
	}
}

static void agent_run(const struct agent_kind *kind, int fd)
{
	static uint64_t result;
	struct agent_name mine = { .qpn = 0 }, to;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char go;

	setenv(kind->variable, kind->value, 1);
	if (kind->far)
		agent_go_far();
	context = device_open(NULL);
	must(context != NULL);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = make_qp(pd, cq);
	must(ibv_query_gid(context, 1, 1, &mine.gid) == 0);
	mine.qpn = qp->qp_num;
	must(other_tell(fd, &mine, sizeof(mine)) && other_hear(fd, &to, sizeof(to)) == sizeof(to));
	connect_qp(qp, &to);
	must(other_tell(fd, "c", 1) && other_hear(fd, &go, 1) == 1);
	agent_work(qp, cq, ibv_reg_mr(pd, &result, 8, IBV_ACCESS_LOCAL_WRITE), &to);
	must(other_tell(fd, "d", 1) && other_hear(fd, &go, 1) == 1);
	_exit(0);
}

static uint32_t bind_window(struct agent *a, struct ibv_cq *cq, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	a->mw = ibv_alloc_mw(mr->pd, IBV_MW_TYPE_2);
	must(a->mw != NULL);
	wr.bind_mw.mw = a->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(a->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mr,
		.addr = (uintptr_t)mr->addr,
		.length = PAGE,
		.mw_access_flags = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE,
	};
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
	assert_int_equal(cq_wait(cq, &wc, 1, WAIT_MS), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return wr.bind_mw.rkey;
}

static void agent_meet(struct agent *a, bool window, struct ibv_cq *cq, struct ibv_mr *mr)
{
	struct agent_name mine = { .addr = (uintptr_t)mr->addr, .rkey = mr->rkey }, theirs;
	char connected;

	assert_int_equal(other_hear(a->fd, &theirs, sizeof(theirs)), sizeof(theirs));
	assert_int_equal(ibv_query_gid(mr->context, 1, 1, &mine.gid), 0);
	a->qp = make_qp(mr->pd, cq);
	mine.qpn = a->qp->qp_num;
	connect_qp(a->qp, &theirs);
	if (window)
		mine.rkey = bind_window(a, cq, mr);
	assert_true(other_tell(a->fd, &mine, sizeof(mine)));
	assert_int_equal(other_hear(a->fd, &connected, 1), 1);
}

/* The target's own processor: it calls no verb meanwhile. */
static uint64_t target_adds(uint64_t *word)
{
	for (int i = 0; i < 100 * ROUNDS; i++)
		__atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
	return 100 * ROUNDS;
}

static void atomics__of_all_agents_count(void **state)
{
	struct ibv_context *context = device_open(NULL);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_device_attr attr;
	uint64_t *word, expected;
	struct ibv_mr *mr;
	char done;

	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_int_equal(attr.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(posix_memalign((void **)&word, PAGE, 16 * PAGE), 0);
	memset(word, 0, 16 * PAGE);
	mr = ibv_reg_mr(pd, word, 16 * PAGE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	assert_non_null(mr);
	for (int i = 0; i < AGENTS; i++)
		agent_meet(&agents[i], kinds[i].window, cq, mr);
	for (int i = 0; i < AGENTS; i++)
		assert_true(other_tell(agents[i].fd, "g", 1));
	expected = target_adds(word);
	for (int i = 0; i < AGENTS; i++)
		assert_int_equal(other_hear(agents[i].fd, &done, 1), 1);
	expected += (uint64_t)AGENTS * ROUNDS * 2;
	assert_int_equal(__atomic_load_n(word, __ATOMIC_SEQ_CST), expected);
	for (int i = 0; i < AGENTS; i++) {
		int status;

		assert_true(other_tell(agents[i].fd, "e", 1));
		assert_int_equal(waitpid(agents[i].pid, &status, 0), agents[i].pid);
		assert_int_equal(status, 0);
		assert_int_equal(ibv_destroy_qp(agents[i].qp), 0);
		assert_int_equal(agents[i].mw != NULL ? ibv_dealloc_mw(agents[i].mw) : 0, 0);
	}
	assert_int_equal(ibv_dereg_mr(mr) | ibv_destroy_cq(cq) | ibv_dealloc_pd(pd) |
				 ibv_close_device(context), 0);
	free(word);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(atomics__of_all_agents_count),
	};

	pair_supervise();
	/* Agents first: each opens the device by itself. */
	for (int i = 0; i < AGENTS; i++) {
		agents[i].pid = other_fork(&agents[i].fd);
		if (agents[i].pid == 0)
			agent_run(&kinds[i], agents[i].fd);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
