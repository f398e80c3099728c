/* ends_test.c: connections whose ends were given different path MTUs or first PSNs: each row of the
 * tables has the same outcome within a process, between processes and on a wire.
 */
#include <stdio.h>

#include "pair.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

enum {
	BYTES = 1 << 18,
	SEED = 77,
	OLD_SEED = 78,
	SHORT_TIMEOUT = 12, /* 16 ms */
};

/* What becomes of one request of end a. */
struct outcome {
	enum ibv_wc_status status;
	bool arrives; /* the bytes, at b or, of a READ, at a */
	bool b_fails; /* its queue pair goes to ERR */
};

struct ends_row {
	int type;
	enum ibv_wr_opcode op;
	uint32_t length;
	enum ibv_mtu mtu_a, mtu_b;
	int ahead; /* PSNs that a is ahead of what b expects */
	struct outcome wanted;
};

static bool ends_is_read(const struct ends_row *r)
{
	return r->op == IBV_WR_RDMA_READ;
}

static bool ends_has_receive(const struct ends_row *r)
{
	return r->op == IBV_WR_SEND || r->op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void ends_connect(const struct ends_row *r)
{
	struct side_link la = pair_default_link(&pair.b, 0), lb = pair_default_link(&pair.a, 0);

	la.mtu = (uint8_t)r->mtu_a;
	lb.mtu = (uint8_t)r->mtu_b;
	la.psn = (lb.psn + (uint32_t)r->ahead) & 0xffffff;
	if (r->wanted.status == IBV_WC_RETRY_EXC_ERR) {
		la.timeout = SHORT_TIMEOUT;
		la.retry_cnt = 1;
	}
	pair_connect(1, &la, &lb);
}

/* Different seeds begin with different words. */
static bool ends_has_arrived(const struct ends_row *r)
{
	bool arrived = end_word(&pair.a, 0) == end_word(&pair.b, 0);

	if (arrived)
		end_check(ends_is_read(r) ? &pair.a : &pair.b, 0, r->length, SEED);
	return arrived;
}

static struct outcome ends_run(const struct ends_row *r)
{
	struct side_options o = {
		.type = r->type, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_wr room, w;
	struct outcome got;
	struct ibv_wc wc;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	ends_connect(r);
	end_fill(ends_is_read(r) ? &pair.b : &pair.a, 0, r->length, SEED);
	end_fill(ends_is_read(r) ? &pair.a : &pair.b, 0, r->length, OLD_SEED);
	room = end_wr(&pair.b, 0, r->length);
	end_recv(&pair.b, 0, &room, 1);
	w = end_op(&pair.a, r->op, 0, r->length, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	assert_int_equal(end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc), 1);
	got.status = wc.status;
	if (r->wanted.arrives && ends_has_receive(r))
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	else if (r->wanted.b_fails)
		end_expect(&pair.b, RECVS, IBV_WC_WR_FLUSH_ERR);
	else
		end_expect_none(&pair.b, RECVS);
	got.b_fails = end_query(&pair.b, 0).query.attr.qp_state == IBV_QPS_ERR;
	got.arrives = ends_has_arrived(r);
	pair_teardown(NULL);
	return got;
}

static void ends_check_rows(const struct ends_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct ends_row *r = &rows[i];
		struct outcome got = ends_run(r);

		if (got.status != r->wanted.status || got.arrives != r->wanted.arrives ||
		    got.b_fails != r->wanted.b_fails)
			fail_msg("row %zu: status %d, arrives %d, b fails %d; not %d, %d, %d", i,
				 got.status, got.arrives, got.b_fails, r->wanted.status,
				 r->wanted.arrives, r->wanted.b_fails);
	}
}

/* ---- path MTU ---- */

#define SEND IBV_WR_SEND
#define WRITE IBV_WR_RDMA_WRITE
#define NOTICE IBV_WR_RDMA_WRITE_WITH_IMM
#define READ IBV_WR_RDMA_READ
#define SMALL IBV_MTU_1024
#define LARGE IBV_MTU_4096
#define ARRIVES                                                                                    \
	{                                                                                          \
		IBV_WC_SUCCESS, true, false                                                        \
	}
#define INVALID                                                                                    \
	{                                                                                          \
		IBV_WC_REM_INV_REQ_ERR, false, true                                                \
	}
#define BAD_ANSWER                                                                                 \
	{                                                                                          \
		IBV_WC_BAD_RESP_ERR, false, false                                                  \
	}
#define DROPPED                                                                                    \
	{                                                                                          \
		IBV_WC_SUCCESS, false, false                                                       \
	}
#define SILENT                                                                                     \
	{                                                                                          \
		IBV_WC_RETRY_EXC_ERR, false, false                                                 \
	}

static void mtu__rc(void **state)
{
	static const struct ends_row rows[] = {
		{ IBV_QPT_RC, SEND, 8, SMALL, LARGE, 0, ARRIVES },
		{ IBV_QPT_RC, SEND, 512, SMALL, LARGE, 0, ARRIVES },
		{ IBV_QPT_RC, SEND, 512, LARGE, SMALL, 0, ARRIVES },
		{ IBV_QPT_RC, SEND, 1024, LARGE, SMALL, 0, ARRIVES },
		{ IBV_QPT_RC, SEND, 1025, LARGE, SMALL, 0, INVALID },
		{ IBV_QPT_RC, SEND, 1025, SMALL, LARGE, 0, INVALID },
		{ IBV_QPT_RC, SEND, 4096, SMALL, LARGE, 0, INVALID },
		{ IBV_QPT_RC, SEND, 4096, LARGE, SMALL, 0, INVALID },
		{ IBV_QPT_RC, SEND, 100000, SMALL, LARGE, 0, INVALID },
		{ IBV_QPT_RC, SEND, 100000, LARGE, SMALL, 0, INVALID },
		{ IBV_QPT_RC, WRITE, 512, SMALL, LARGE, 0, ARRIVES },
		{ IBV_QPT_RC, WRITE, 512, LARGE, SMALL, 0, ARRIVES },
		{ IBV_QPT_RC, WRITE, 4096, SMALL, LARGE, 0, INVALID },
		{ IBV_QPT_RC, WRITE, 4096, LARGE, SMALL, 0, INVALID },
		{ IBV_QPT_RC, WRITE, 100000, LARGE, SMALL, 0, INVALID },
		{ IBV_QPT_RC, NOTICE, 512, LARGE, SMALL, 0, ARRIVES },
		{ IBV_QPT_RC, NOTICE, 4096, LARGE, SMALL, 0, INVALID },
		{ IBV_QPT_RC, NOTICE, 4096, SMALL, LARGE, 0, INVALID },
		{ IBV_QPT_RC, READ, 512, SMALL, LARGE, 0, ARRIVES },
		{ IBV_QPT_RC, READ, 512, LARGE, SMALL, 0, ARRIVES },
		{ IBV_QPT_RC, READ, 4096, SMALL, LARGE, 0, BAD_ANSWER },
		{ IBV_QPT_RC, READ, 4096, LARGE, SMALL, 0, BAD_ANSWER },
		{ IBV_QPT_RC, READ, 100000, LARGE, SMALL, 0, BAD_ANSWER },
	};

	(void)state;
	ends_check_rows(rows, ELEMENTS(rows));
}

static void mtu__uc(void **state)
{
	static const struct ends_row rows[] = {
		{ IBV_QPT_UC, SEND, 512, SMALL, LARGE, 0, ARRIVES },
		{ IBV_QPT_UC, SEND, 512, LARGE, SMALL, 0, ARRIVES },
		{ IBV_QPT_UC, SEND, 4096, SMALL, LARGE, 0, DROPPED },
		{ IBV_QPT_UC, SEND, 4096, LARGE, SMALL, 0, DROPPED },
		{ IBV_QPT_UC, NOTICE, 512, SMALL, LARGE, 0, ARRIVES },
		{ IBV_QPT_UC, NOTICE, 4096, SMALL, LARGE, 0, DROPPED },
		{ IBV_QPT_UC, NOTICE, 4096, LARGE, SMALL, 0, DROPPED },
	};

	(void)state;
	ends_check_rows(rows, ELEMENTS(rows));
}

/* ---- PSN ---- */

static void psn__rc(void **state)
{
	static const struct ends_row rows[] = {
		{ IBV_QPT_RC, SEND, 8, LARGE, LARGE, 1, SILENT },
		{ IBV_QPT_RC, WRITE, 8, LARGE, LARGE, 1, SILENT },
		{ IBV_QPT_RC, WRITE, 4096, LARGE, LARGE, 1000, SILENT },
		{ IBV_QPT_RC, READ, 8, LARGE, LARGE, 1, SILENT },
		{ IBV_QPT_RC, READ, 4096, LARGE, LARGE, 1000, SILENT },
		{ IBV_QPT_RC, SEND, 8, LARGE, LARGE, -1, DROPPED },
		{ IBV_QPT_RC, WRITE, 8, LARGE, LARGE, -1, DROPPED },
		{ IBV_QPT_RC, WRITE, 4096, LARGE, LARGE, -1, DROPPED },
		{ IBV_QPT_RC, WRITE, 8, LARGE, LARGE, -1000, SILENT },
		{ IBV_QPT_RC, READ, 8, LARGE, LARGE, -1, SILENT },
		{ IBV_QPT_RC, READ, 4096, LARGE, LARGE, -1000, SILENT },
	};

	(void)state;
	ends_check_rows(rows, ELEMENTS(rows));
}

/* UC follows its sender. */
static void psn__uc(void **state)
{
	static const struct ends_row rows[] = {
		{ IBV_QPT_UC, SEND, 512, LARGE, LARGE, 1000, ARRIVES },
		{ IBV_QPT_UC, SEND, 512, LARGE, LARGE, -1000, ARRIVES },
		{ IBV_QPT_UC, NOTICE, 4096, LARGE, LARGE, 1000, ARRIVES },
	};

	(void)state;
	ends_check_rows(rows, ELEMENTS(rows));
}

/* Each direction has PSNs of its own. */
static void psn__of_one_direction(void **state)
{
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_link la, lb;
	struct side_wr w;

	(void)state;
	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	la = pair_default_link(&pair.b, 0);
	lb = pair_default_link(&pair.a, 0);
	la.rq_ahead = 5;
	lb.timeout = SHORT_TIMEOUT;
	lb.retry_cnt = 1;
	pair_connect(1, &la, &lb);
	end_fill(&pair.a, 0, 4096, SEED);
	w = end_op(&pair.a, WRITE, 0, 4096, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.b, 0, 4096, SEED);
	w = end_op(&pair.b, WRITE, 8192, 4096, &pair.a, 0);
	end_send(&pair.b, 0, &w);
	end_expect(&pair.b, SENDS, IBV_WC_RETRY_EXC_ERR);
	end_check(&pair.a, 0, 4096, SEED);
}

/* A connection that failed is made anew with what both ends agree on, and copies directly again. */
static void ends__connected_anew(void **state)
{
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct ends_row r = { .mtu_a = LARGE, .mtu_b = SMALL };
	struct side_wr w;

	(void)state;
	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	ends_connect(&r);
	w = end_op(&pair.a, WRITE, 0, 4096, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_INV_REQ_ERR);
	end_state(&pair.a, 0, IBV_QPS_RESET);
	end_state(&pair.b, 0, IBV_QPS_RESET);
	r.mtu_b = LARGE;
	ends_connect(&r);
	end_fill(&pair.a, 0, 4096, SEED);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.b, 0, 4096, SEED);
}

#define END(test) cmocka_unit_test_teardown(test, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		END(mtu__rc),
		END(mtu__uc),
		END(psn__rc),
		END(psn__uc),
		END(psn__of_one_direction),
		END(ends__connected_anew),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, pair_group_setup, pair_group_teardown);
}
