/* place_test.c: atomic writes and flushes by ibv_wr_* and ibv_post_send: who may, where to, and
 * what the memory and the completion show.
 * In: VERBS_VARIANT      Out: verdicts      Runs: cmocka, one process      Locks: none
 */
#include <errno.h>
#include <string.h>

#include "pair.h"

#include "key_bed.h"

/* Of later headers. */
enum { ACCESS_FLUSH_GLOBAL = 1 << 8, ACCESS_FLUSH_PERSISTENT = 1 << 9, QP_EX_WITH_FLUSH = 1 << 11 };
enum { FLUSH_GLOBAL = 1, FLUSH_PERSISTENT = 2, FLUSH_RANGE = 0, FLUSH_REGION = 1, WC_FLUSH = 8 };
enum { ODP_FLUSH = 1 << 6, ODP_ATOMIC_WRITE = 1 << 7 };
#define DEVICE_FLUSH_GLOBAL (1ull << 38)
#define DEVICE_ATOMIC_WRITE (1ull << 40)

struct qp_ex {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t length,
			 uint8_t type, uint8_t level);
};

static struct ibv_qp *sender; /* in place of near */

static struct ibv_qp *place_qp(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = bed.near_cq,
					    .recv_cq = bed.near_cq,
					    .cap = { 32, 4, 2, 2, 0 },
					    .qp_type = type,
					    .sq_sig_all = 1,
					    .pd = bed.pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .send_ops_flags = ops };

	return ibv_create_qp_ex(bed.ctx, &init);
}

/* far with or without the right to be flushed. */
static void place_connect(int access)
{
	struct ibv_qp_attr attr = { .qp_access_flags = (unsigned int)access };

	key_connect(sender, bed.far);
	assert_int_equal(ibv_modify_qp(bed.far, &attr, IBV_QP_ACCESS_FLAGS), 0);
}

static int place_setup(void **state)
{
	key_setup(state);
	sender = place_qp(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE | QP_EX_WITH_FLUSH |
					      IBV_QP_EX_WITH_RDMA_WRITE);
	assert_non_null(sender);
	place_connect(KEY_REMOTE | ACCESS_FLUSH_GLOBAL);
	return 0;
}

static int place_teardown(void **state)
{
	return ibv_destroy_qp(sender) | key_teardown(state);
}

static void place_write(uint32_t rkey, uint64_t va, uint64_t value)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sender);

	ibv_wr_start(ex);
	ex->wr_id = value;
	ex->wr_flags = 0;
	ibv_wr_atomic_write(ex, rkey, va, &value);
	value = 0; /* was copied */
	assert_int_equal(ibv_wr_complete(ex), 0);
}

static int place_try_flush(uint32_t rkey, uint64_t va, size_t length, uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sender);

	ibv_wr_start(ex);
	ex->wr_id = 7;
	ex->wr_flags = 0;
	((struct qp_ex *)ex)->wr_flush(ex, rkey, va, length, type, level);
	return ibv_wr_complete(ex);
}

static uint64_t word_at(uint32_t offset)
{
	return __atomic_load_n((uint64_t *)(bed.bytes + offset), __ATOMIC_ACQUIRE);
}

static void place__is_announced(void **state)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(bed.ctx, NULL, &attr), 0);
	assert_true(attr.device_cap_flags_ex & DEVICE_ATOMIC_WRITE);
	assert_true(attr.device_cap_flags_ex & DEVICE_FLUSH_GLOBAL);
	assert_int_equal(attr.odp_caps.per_transport_caps.rc_odp_caps &
				 (ODP_FLUSH | ODP_ATOMIC_WRITE),
			 ODP_FLUSH | ODP_ATOMIC_WRITE);
	assert_int_equal((attr.xrc_odp_caps | attr.odp_caps.per_transport_caps.uc_odp_caps) &
				 (ODP_FLUSH | ODP_ATOMIC_WRITE),
			 0);
}

static void place__of_rc_only(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		errno = 0;
		assert_null(place_qp(types[i], IBV_QP_EX_WITH_ATOMIC_WRITE));
		assert_int_equal(errno, EOPNOTSUPP);
		errno = 0;
		assert_null(place_qp(types[i], QP_EX_WITH_FLUSH));
		assert_int_equal(errno, EOPNOTSUPP);
	}
}

static void atomic_write__places_its_value(void **state)
{
	struct ibv_mr *mr = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_wc wc;

	for (uint64_t i = 1; i <= 100; i++) {
		place_write(mr->rkey, key_va(KEY_FAR) + 8 * (i % 4), i);
		wc = key_expect(bed.near_cq, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_ATOMIC_WRITE);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(word_at(KEY_FAR + 8 * (i % 4)), i);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* Behind a WRITE whose bytes it publishes; between two, the word is one value or the other. */
static void atomic_write__comes_behind_a_write(void **state)
{
	struct ibv_mr *mr = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sender);

	for (uint64_t i = 1; i <= 200; i++) {
		memset(bed.bytes, (int)i, 4096);
		ibv_wr_start(ex);
		ex->wr_id = i;
		ex->wr_flags = 0;
		ibv_wr_rdma_write(ex, mr->rkey, key_va(KEY_FAR) + 4096);
		ibv_wr_set_sge(ex, bed.own->lkey, key_va(0), 4096);
		ibv_wr_atomic_write(ex, mr->rkey, key_va(KEY_FAR), &i);
		assert_int_equal(ibv_wr_complete(ex), 0);
		while (word_at(KEY_FAR) != i)
			ibv_poll_cq(bed.far_cq, 1, &(struct ibv_wc){ 0 });
		assert_memory_equal(bed.bytes, bed.bytes + KEY_FAR + 4096, 4096);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ibv_post_send takes the value of the list, in pieces and inline. */
static void atomic_write__by_post_send(void **state)
{
	struct ibv_mr *mr = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge sge[2] = { { key_va(0), 8, bed.own->lkey }, { 0 } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_WRITE },
			   *bad;

	wr.wr.rdma.remote_addr = key_va(KEY_FAR);
	wr.wr.rdma.rkey = mr->rkey;
	*(uint64_t *)bed.bytes = 0x1234567890abcdef;
	key_send(sender, &wr);
	key_expect(bed.near_cq, IBV_WC_SUCCESS);
	assert_int_equal(word_at(KEY_FAR), 0x1234567890abcdef);
	sge[0].length = 4;
	sge[1] = (struct ibv_sge){ key_va(0), 4, bed.own->lkey };
	wr.num_sge = 2;
	key_send(sender, &wr);
	key_expect(bed.near_cq, IBV_WC_SUCCESS);
	assert_int_equal(word_at(KEY_FAR), 0x90abcdef90abcdef);
	sge[1].length = 5;
	assert_int_equal(ibv_post_send(sender, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	sge[0].length = 8;
	sge[0].lkey ^= 1; /* of nobody */
	key_send(sender, &wr);
	key_expect(bed.near_cq, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void atomic_write__refused(void **state)
{
	static const struct {
		int region, qp;
		uint32_t offset;
		enum ibv_wc_status status;
	} rows[] = {
		{ IBV_ACCESS_REMOTE_WRITE, KEY_REMOTE, 4, IBV_WC_REM_INV_REQ_ERR },
		{ IBV_ACCESS_REMOTE_WRITE, KEY_REMOTE, KEY_BYTES, IBV_WC_REM_ACCESS_ERR },
		{ IBV_ACCESS_REMOTE_ATOMIC, KEY_REMOTE, 0, IBV_WC_REM_ACCESS_ERR },
		{ IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, 0, IBV_WC_REM_ACCESS_ERR },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_mr *mr = key_region(IBV_ACCESS_LOCAL_WRITE | rows[i].region);

		place_connect(rows[i].qp);
		place_write(mr->rkey, key_va(KEY_FAR) + rows[i].offset, 1);
		key_expect(bed.near_cq, rows[i].status);
		assert_int_equal(word_at(KEY_FAR), 0);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void flush__completes(void **state)
{
	static const struct {
		int region, qp;
		uint32_t offset;
		size_t length;
		uint8_t type, level;
		enum ibv_wc_status status;
	} rows[] = {
		{ ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_GLOBAL, 0, 4096, FLUSH_GLOBAL, FLUSH_RANGE,
		  IBV_WC_SUCCESS },
		{ ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_GLOBAL, 3, 1, FLUSH_GLOBAL, FLUSH_RANGE,
		  IBV_WC_SUCCESS },
		{ ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_GLOBAL, 0, KEY_BYTES, FLUSH_GLOBAL, FLUSH_RANGE,
		  IBV_WC_REM_ACCESS_ERR },
		{ ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_GLOBAL, KEY_BYTES, 77, FLUSH_GLOBAL,
		  FLUSH_REGION, IBV_WC_SUCCESS },
		{ 0, ACCESS_FLUSH_GLOBAL, 0, 4096, FLUSH_GLOBAL, FLUSH_RANGE,
		  IBV_WC_REM_ACCESS_ERR },
		{ 0, ACCESS_FLUSH_GLOBAL, 0, 4096, FLUSH_GLOBAL, FLUSH_REGION,
		  IBV_WC_REM_ACCESS_ERR },
		{ ACCESS_FLUSH_GLOBAL, 0, 0, 4096, FLUSH_GLOBAL, FLUSH_RANGE,
		  IBV_WC_REM_ACCESS_ERR },
		{ ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_GLOBAL | ACCESS_FLUSH_PERSISTENT, 0, 4096,
		  FLUSH_PERSISTENT, FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_mr *mr = key_region(rows[i].region);
		struct ibv_wc wc;

		place_connect(KEY_REMOTE | rows[i].qp);
		assert_int_equal(place_try_flush(mr->rkey, key_va(KEY_FAR) + rows[i].offset,
						 rows[i].length, rows[i].type, rows[i].level),
				 0);
		wc = key_expect(bed.near_cq, rows[i].status);
		assert_int_equal(wc.wr_id, 7);
		if (rows[i].status == IBV_WC_SUCCESS)
			assert_int_equal(wc.opcode, WC_FLUSH);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void flush__refused_at_once(void **state)
{
	char buffer[8];

	assert_int_equal(place_try_flush(1, 0, 8, 0, FLUSH_RANGE), EINVAL);
	assert_int_equal(place_try_flush(1, 0, 8, 4, FLUSH_RANGE), EINVAL);
	assert_int_equal(place_try_flush(1, 0, 8, 16 | FLUSH_GLOBAL, FLUSH_RANGE), EINVAL);
	assert_int_equal(place_try_flush(1, 0, 8, FLUSH_GLOBAL, 2), EINVAL);
	assert_int_equal(place_try_flush(1, 0, 3ul << 30, FLUSH_GLOBAL, FLUSH_RANGE), EINVAL);
	/* no memory here is known to survive a loss of power */
	errno = 0;
	assert_null(ibv_reg_mr(bed.pd, buffer, sizeof(buffer), ACCESS_FLUSH_PERSISTENT));
	assert_int_equal(errno, EINVAL);
}

static void place__on_demand(void **state)
{
	struct ibv_mr *mr = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       ACCESS_FLUSH_GLOBAL | IBV_ACCESS_ON_DEMAND);

	for (uint64_t i = 1; i <= 10; i++) {
		place_write(mr->rkey, key_va(KEY_FAR) + 8 * i, i);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		assert_int_equal(place_try_flush(mr->rkey, key_va(KEY_FAR), 4096, FLUSH_GLOBAL,
						 i % 2 ? FLUSH_RANGE : FLUSH_REGION),
				 0);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		assert_int_equal(word_at(KEY_FAR + 8 * (uint32_t)i), i);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(place__is_announced),
		TEST(place__of_rc_only),
		TEST(atomic_write__places_its_value),
		TEST(atomic_write__comes_behind_a_write),
		TEST(atomic_write__by_post_send),
		TEST(atomic_write__refused),
		TEST(flush__completes),
		TEST(flush__refused_at_once),
		TEST(place__on_demand),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
