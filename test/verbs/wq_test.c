/* wq_test.c: limits of receive work queues and of tables of them, and their neighbours, by tables:
 * what is taken, and with which errno the rest is refused. docs/errno.md has them for readers.
 * In: values below, at and beyond limits    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

#include "verdict.h"

static struct ibv_context *ctx, *other; /* two files of one device */
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq, *other_cq;
static struct ibv_device_attr dev;

static int setup(void **state)
{
	ctx = device_open(NULL);
	other = device_open(NULL);
	assert_true(ctx && other);
	pd = ibv_alloc_pd(ctx);
	other_pd = ibv_alloc_pd(other);
	cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	other_cq = ibv_create_cq(other, 4, NULL, NULL, 0);
	assert_true(pd && other_pd && cq && other_cq);
	return ibv_query_device(ctx, &dev);
}

static int teardown(void **state)
{
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_cq(other_cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(other_pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	return 0;
}

/* ---- work queues, and tables of them ---- */

static struct ibv_wq_init_attr wq_attr(void)
{
	return (struct ibv_wq_init_attr){
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq
	};
}

static void wqs__sizes_and_owners(void **state)
{
#define FIELD(name_, value_, error_)                                                               \
	{ { #name_, (uint64_t)(value_), error_ }, offsetof(struct ibv_wq_init_attr, name_),        \
	  sizeof(((struct ibv_wq_init_attr *)0)->name_) }
	const struct {
		struct line line;
		size_t at, bytes;
	} table[] = {
		FIELD(max_wr, 0, EINVAL),
		FIELD(max_wr, 1, 0),
		FIELD(max_wr, dev.max_qp_wr, 0),
		FIELD(max_wr, dev.max_qp_wr + 1, EINVAL),
		FIELD(max_wr, UINT32_MAX, EINVAL),
		FIELD(max_sge, 0, 0),
		FIELD(max_sge, dev.max_sge, 0),
		FIELD(max_sge, dev.max_sge + 1, EINVAL),
		FIELD(max_sge, UINT32_MAX, EINVAL),
		FIELD(wq_type, IBV_WQT_RQ + 1, EINVAL),
		FIELD(wq_type, UINT32_MAX, EINVAL),
		FIELD(comp_mask, IBV_WQ_INIT_ATTR_RESERVED, EINVAL),
		FIELD(pd, (uintptr_t)other_pd, EINVAL),
		FIELD(cq, (uintptr_t)other_cq, EINVAL),
		FIELD(cq, 0, EINVAL),
	};

	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_wq_init_attr init = wq_attr();

		memcpy((char *)&init + table[i].at, &table[i].line.value, table[i].bytes);
		judge("ibv_create_wq", &table[i].line,
		      MADE(struct ibv_wq, ibv_create_wq(ctx, &init), ibv_destroy_wq));
	}
#undef FIELD
	for (uint32_t flag = 0; flag < 32; flag++) {
		struct line line = { "create_flags", (uint64_t)1 << flag, EOPNOTSUPP };
		struct ibv_wq_init_attr init = wq_attr();

		init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
		init.create_flags = (uint32_t)line.value;
		judge("ibv_create_wq", &line,
		      MADE(struct ibv_wq, ibv_create_wq(ctx, &init), ibv_destroy_wq));
	}
	verdict();
}

static void wqs__changes(void **state)
{
	enum { STATE = IBV_WQ_ATTR_STATE, NOW = IBV_WQ_ATTR_CURR_STATE, FLAGS = IBV_WQ_ATTR_FLAGS };
	const struct {
		struct line line; /* the state that it shall have */
		int mask;
		uint32_t now, flags; /* the state that the caller takes it to have */
		enum ibv_wq_state after;
	} table[] = {
		{ { "state", 3, EINVAL }, STATE, 0, 0, IBV_WQS_RESET },
		{ { "state", UINT32_MAX, EINVAL }, STATE, 0, 0, IBV_WQS_RESET },
		{ { "mask", IBV_WQS_RDY, EINVAL }, STATE | 1 << 3, 0, 0, IBV_WQS_RESET },
		{ { "now", IBV_WQS_RDY, EINVAL }, STATE | NOW, IBV_WQS_RDY, 0, IBV_WQS_RESET },
		{ { "now", IBV_WQS_RDY, EINVAL }, STATE | NOW, 3, 0, IBV_WQS_RESET },
		{ { "now", IBV_WQS_RDY, EINVAL }, STATE | NOW, UINT32_MAX, 0, IBV_WQS_RESET },
		{ { "flags", IBV_WQS_RDY, EOPNOTSUPP }, STATE | FLAGS, 0, 1, IBV_WQS_RESET },
		{ { "nothing", IBV_WQS_RDY, 0 }, 0, 0, 0, IBV_WQS_RESET },
		{ { "ready", IBV_WQS_RDY, 0 }, STATE | NOW, IBV_WQS_RESET, 0, IBV_WQS_RDY },
		{ { "error", IBV_WQS_ERR, 0 }, STATE, 0, 0, IBV_WQS_ERR },
		{ { "ready again", IBV_WQS_RDY, EINVAL }, STATE, 0, 0, IBV_WQS_ERR },
		{ { "reset", IBV_WQS_RESET, 0 }, STATE | NOW, IBV_WQS_ERR, 0, IBV_WQS_RESET },
	};
	struct ibv_wq_init_attr init = wq_attr();
	struct ibv_wq *wq = ibv_create_wq(ctx, &init);

	assert_non_null(wq);
	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_wq_attr attr = { .attr_mask = (uint32_t)table[i].mask,
					    .wq_state = (enum ibv_wq_state)table[i].line.value,
					    .curr_wq_state = (enum ibv_wq_state)table[i].now,
					    .flags = table[i].flags,
					    .flags_mask = table[i].flags };

		judge("ibv_modify_wq", &table[i].line, ibv_modify_wq(wq, &attr));
		assert_int_equal(wq->state, table[i].after);
	}
	assert_int_equal(ibv_destroy_wq(wq), 0);
	verdict();
}

/* Each place of a table may have the same queue. */
static void tables__sizes_and_entries(void **state)
{
	enum { MOST = 1 << 16 };
	struct ibv_device_attr_ex ex;
	struct ibv_wq_init_attr own = wq_attr(), foreign = wq_attr();
	struct ibv_wq *wq = ibv_create_wq(ctx, &own), *strange;
	struct ibv_wq **list = calloc(MOST, sizeof(*list));
	uint32_t most;

	foreign.pd = other_pd;
	foreign.cq = other_cq;
	strange = ibv_create_wq(other, &foreign);
	assert_true(wq && strange && list);
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &ex), 0);
	most = (uint32_t)__builtin_ctz(ex.rss_caps.max_rwq_indirection_table_size);
	for (int i = 0; i < MOST; i++)
		list[i] = wq;
	const struct {
		struct line line; /* the logarithm of its size */
		struct ibv_wq **list, *last;
		uint32_t mask;
	} table[] = {
		{ { "log", 0, 0 }, list, wq, 0 },
		{ { "log", most, 0 }, list, wq, 0 },
		{ { "log", most + 1, EINVAL }, list, wq, 0 },
		{ { "log", 31, EINVAL }, list, wq, 0 },
		{ { "log", 32, EINVAL }, list, wq, 0 },
		{ { "log", UINT32_MAX, EINVAL }, list, wq, 0 },
		{ { "mask", 0, EINVAL }, list, wq, 1 },
		{ { "no list", 0, EINVAL }, NULL, wq, 0 },
		{ { "no last entry", 3, EINVAL }, list, NULL, 0 },
		{ { "last entry of another file", 3, EINVAL }, list, strange, 0 },
	};

	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_rwq_ind_table_init_attr init = {
			.log_ind_tbl_size = (uint32_t)table[i].line.value,
			.ind_tbl = table[i].list,
			.comp_mask = table[i].mask,
		};

		list[7] = table[i].last;
		judge("ibv_create_rwq_ind_table", &table[i].line,
		      MADE(struct ibv_rwq_ind_table, ibv_create_rwq_ind_table(ctx, &init),
			   ibv_destroy_rwq_ind_table));
	}
	/* what was refused has left no use of them behind */
	assert_int_equal(ibv_destroy_wq(wq), 0);
	assert_int_equal(ibv_destroy_wq(strange), 0);
	free(list);
	verdict();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(wqs__sizes_and_owners),
		TEST(wqs__changes),
		TEST(tables__sizes_and_entries),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("wq", tests, NULL, NULL);
}
