/* domain_test.c: parent domains whose callbacks allocate the memory of queues.
 * In: VERBS_VARIANT      Out: verdicts      Runs: cmocka, one process      Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum { KINDS = 4, SEND = 0, RECV = 1, SRQ = 2, CQ = 3, WAIT_MS = 20000, BYTES = 64 };

/* What the callbacks do, and what they have seen. */
struct ledger {
	struct ibv_pd *domain;	  /* the first argument of each call */
	bool by_default[KINDS];	  /* answer IBV_ALLOCATOR_USE_DEFAULT */
	int fail_at;		  /* this call, counted from 1, returns NULL; 0: none */
	size_t skew;		  /* added to each address */
	struct ibv_qp *reenter;	  /* is queried in each call */
	int calls, live[KINDS], freed[KINDS];
	size_t bytes[KINDS];
};

static struct ibv_context *context;
static struct ibv_pd *pd;

static int setup(void **state)
{
	context = device_open(NULL);
	pd = context == NULL ? NULL : ibv_alloc_pd(context);
	return pd == NULL ? -1 : 0;
}

static int teardown(void **state)
{
	return ibv_dealloc_pd(pd) | ibv_close_device(context);
}

static void *ledger_alloc(struct ibv_pd *domain, void *pd_context, size_t size, size_t alignment,
			  uint64_t type)
{
	struct ledger *l = pd_context;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_true(type < KINDS);
	assert_true(l->domain == NULL || domain == l->domain);
	if (l->reenter != NULL)
		assert_int_equal(ibv_query_qp(l->reenter, &attr, IBV_QP_STATE, &init), 0);
	if (++l->calls == l->fail_at)
		return NULL;
	if (l->by_default[type])
		return IBV_ALLOCATOR_USE_DEFAULT;
	l->live[type]++;
	l->bytes[type] += size;
	return (char *)aligned_alloc(alignment, size + alignment) + l->skew;
}

static void ledger_free(struct ibv_pd *domain, void *pd_context, void *ptr, uint64_t type)
{
	struct ledger *l = pd_context;

	assert_true(type < KINDS);
	l->live[type]--;
	l->freed[type]++;
	free((char *)ptr - l->skew);
}

static struct ibv_pd *domain_of(struct ledger *l)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = ledger_alloc,
		.free = ledger_free,
		.pd_context = l,
	};

	l->domain = ibv_alloc_parent_domain(context, &attr);
	assert_non_null(l->domain);
	return l->domain;
}

static struct ibv_cq *cq_of(struct ibv_pd *domain, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = cqe,
					    .wc_flags = IBV_WC_STANDARD_FLAGS,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					    .parent_domain = domain };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);

	return cq == NULL ? NULL : ibv_cq_ex_to_cq(cq);
}

static struct ibv_srq *srq_of(struct ibv_pd *domain, uint32_t wr)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = wr, .max_sge = 2 } };

	return ibv_create_srq(domain, &init);
}

static struct ibv_qp *qp_of(struct ibv_pd *domain, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .srq = srq,
					 .cap = { 16, 8, 2, 2, 32 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };

	return ibv_create_qp(domain, &init);
}

static void ledger_is_even(const struct ledger *l)
{
	for (int kind = 0; kind < KINDS; kind++)
		assert_int_equal(l->live[kind], 0);
}

/* One message, from a region of the plain domain. */
static void send_one(struct ibv_qp *to, struct ibv_srq *srq, struct ibv_qp *from, struct ibv_cq *cq)
{
	static uint8_t buffer[2 * BYTES];
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge in = { (uintptr_t)buffer, BYTES, mr->lkey };
	struct ibv_sge out = { (uintptr_t)buffer + BYTES, BYTES, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &in, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &out, .num_sge = 1,
				    .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_wc wc[2];

	memset(buffer, 0, BYTES);
	memset(buffer + BYTES, 0x5a, BYTES);
	assert_int_equal(srq != NULL ? ibv_post_srq_recv(srq, &recv, &bad_recv) :
				       ibv_post_recv(to, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(from, &send, &bad_send), 0);
	assert_int_equal(cq_wait(cq, wc, 2, WAIT_MS), 2);
	assert_int_equal(wc[0].status | wc[1].status, IBV_WC_SUCCESS);
	assert_memory_equal(buffer, buffer + BYTES, BYTES);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void connect_two(struct ibv_qp *a, struct ibv_qp *b)
{
	union ibv_gid gid;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_gid(context, 1, 1, &gid), 0);
	attr = conn_attr(b->qp_num, &gid, 1);
	assert_int_equal(conn_pair(a, b, &attr), 0);
}

/* Queues of each kind lie in the memory that the callbacks give, work there, and give it back once,
 * at their destruction. */
static void domain__allocates_each_queue(void **state)
{
	struct ledger l = { 0 };
	struct ibv_pd *domain = domain_of(&l);
	struct ibv_cq *cq = cq_of(domain, 100);
	struct ibv_srq *srq = srq_of(domain, 10);
	struct ibv_qp *a = qp_of(domain, cq, NULL), *b = qp_of(domain, cq, srq);

	assert_int_equal(l.live[SEND], 2);
	assert_int_equal(l.live[RECV], 1); /* with an SRQ there is none */
	assert_int_equal(l.live[SRQ], 1);
	assert_int_equal(l.live[CQ], 1);
	assert_true(l.bytes[CQ] >= 100 * sizeof(struct ibv_wc));
	assert_true(l.bytes[SRQ] >= 10 * 2 * sizeof(struct ibv_sge));
	assert_true(l.bytes[SEND] >= 2 * 16 * 2 * sizeof(struct ibv_sge));
	connect_two(a, b);
	for (int i = 0; i < 40; i++) /* more than any queue has places */
		send_one(b, srq, a, cq);
	assert_int_equal(ibv_dealloc_pd(domain), EBUSY);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	ledger_is_even(&l);
	assert_int_equal(l.freed[SEND] + l.freed[RECV] + l.freed[SRQ] + l.freed[CQ], l.calls);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
}

/* What the callback leaves to the device is not given back to it. */
static void domain__default_of_each_kind(void **state)
{
	for (int kind = 0; kind <= KINDS; kind++) {
		struct ledger l = { 0 };
		struct ibv_pd *domain = domain_of(&l);
		struct ibv_cq *cq;
		struct ibv_srq *srq;
		struct ibv_qp *a, *b;

		for (int i = 0; i < KINDS; i++)
			l.by_default[i] = i == kind || kind == KINDS;
		cq = cq_of(domain, 100);
		srq = srq_of(domain, 10);
		a = qp_of(domain, cq, NULL);
		b = qp_of(domain, cq, srq);
		connect_two(a, b);
		send_one(b, srq, a, cq);
		send_one(a, NULL, b, cq);
		assert_int_equal(ibv_destroy_qp(a) | ibv_destroy_qp(b) | ibv_destroy_srq(srq) |
					 ibv_destroy_cq(cq) | ibv_dealloc_pd(domain), 0);
		ledger_is_even(&l);
		for (int i = 0; i < KINDS; i++)
			assert_int_equal(l.freed[i] == 0, l.by_default[i]);
	}
}

/* A callback that has no memory, or gives some that is not aligned, fails the creation; what was
 * given before it is given back. */
static void domain__failures(void **state)
{
	static const struct {
		int fail_at;
		size_t skew;
		int error;
	} rows[] = { { 1, 0, ENOMEM }, { 2, 0, ENOMEM }, { 0, 8, EINVAL } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ledger l = { 0 };
		struct ibv_pd *domain = domain_of(&l);
		struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);

		l.fail_at = rows[i].fail_at;
		l.skew = rows[i].skew;
		errno = 0;
		assert_null(qp_of(domain, cq, NULL));
		assert_int_equal(errno, rows[i].error);
		ledger_is_even(&l);
		l.calls = l.fail_at == 2 ? 1 : 0;
		errno = 0;
		assert_null(cq_of(domain, 8));
		assert_int_equal(errno, rows[i].error);
		l.calls = l.fail_at == 2 ? 1 : 0;
		errno = 0;
		assert_null(srq_of(domain, 8));
		assert_int_equal(errno, rows[i].error);
		ledger_is_even(&l);
		assert_int_equal(ibv_destroy_cq(cq) | ibv_dealloc_pd(domain), 0);
	}
}

/* A queue of another size is asked for anew, and the old one given back; a failure changes
 * nothing. No lock is held meanwhile: the callback calls verbs. */
static void domain__resizes(void **state)
{
	struct ledger l = { 0 };
	struct ibv_pd *domain = domain_of(&l);
	struct ibv_cq *cq = cq_of(domain, 64);
	struct ibv_srq *srq = srq_of(domain, 8);
	struct ibv_srq_attr attr = { .max_wr = 64 };
	struct ibv_qp *a = qp_of(domain, cq, NULL), *b = qp_of(domain, cq, srq);

	l.reenter = a;
	connect_two(a, b);
	assert_int_equal(ibv_resize_cq(cq, 1000), 0);
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(l.live[CQ], 1);
	assert_int_equal(l.live[SRQ], 1);
	assert_int_equal(l.freed[CQ], 1);
	assert_int_equal(l.freed[SRQ], 1);
	l.fail_at = l.calls + 1;
	assert_int_equal(ibv_resize_cq(cq, 2000), ENOMEM);
	l.fail_at = l.calls + 1;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), ENOMEM);
	attr.max_wr = 0;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	send_one(b, srq, a, cq);
	assert_int_equal(ibv_destroy_qp(a) | ibv_destroy_qp(b) | ibv_destroy_srq(srq) |
				 ibv_destroy_cq(cq) | ibv_dealloc_pd(domain), 0);
	ledger_is_even(&l);
}

/* An address handle, a region, a window have no queue: the callbacks hear nothing. */
static void domain__other_objects(void **state)
{
	struct ledger l = { 0 };
	struct ibv_pd *domain = domain_of(&l);
	char buffer[8];
	struct ibv_mr *mr = ibv_reg_mr(domain, buffer, sizeof(buffer), 0);
	struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_2);

	assert_int_equal(l.calls, 0);
	assert_int_equal(ibv_dealloc_mw(mw) | ibv_dereg_mr(mr) | ibv_dealloc_pd(domain), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(domain__allocates_each_queue),
		cmocka_unit_test(domain__default_of_each_kind),
		cmocka_unit_test(domain__failures),
		cmocka_unit_test(domain__resizes),
		cmocka_unit_test(domain__other_objects),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
