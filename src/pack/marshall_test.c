/* marshall_test.c: what user programs see: every field in its place, the reserved bytes zero. */
#include <endian.h>
#include <rdma/ib_marshall.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"

/* The layout that the kernel has: checked here, because these are its numbers, not our compiler's.
 */
_Static_assert(sizeof(struct ib_uverbs_ah_attr) == 32 && sizeof(struct ib_uverbs_qp_attr) == 144,
	       "attributes");
_Static_assert(sizeof(struct ib_user_path_rec) == 64, "a path");

static struct ib_ah_attr test_ah(u8 seed)
{
	struct ib_ah_attr ah = { .grh = { .flow_label = 0x12345u + seed,
					  .sgid_index = (u8)(seed + 1),
					  .hop_limit = (u8)(seed + 2),
					  .traffic_class = (u8)(seed + 3) },
				 .dlid = (u16)(0x4400 + seed),
				 .sl = (u8)(seed + 4),
				 .src_path_bits = (u8)(seed + 5),
				 .static_rate = (u8)(seed + 6),
				 .ah_flags = IB_AH_GRH,
				 .port_num = (u8)(seed + 7) };

	memset(ah.grh.dgid.raw, seed, 16);
	return ah;
}

static void test_ah_is(const u8 *out, u8 seed)
{
	struct ib_ah_attr ah = test_ah(seed);

	assert_memory_equal(out, ah.grh.dgid.raw, 16);
	assert_memory_equal(out + 16, &ah.grh.flow_label, 4);
	assert_int_equal(out[20], seed + 1);
	assert_int_equal(out[21], seed + 2);
	assert_int_equal(out[22], seed + 3);
	assert_int_equal(out[23], 0);
	assert_memory_equal(out + 24, &ah.dlid, 2);
	assert_int_equal(out[26], seed + 4);
	assert_int_equal(out[27], seed + 5);
	assert_int_equal(out[28], seed + 6);
	assert_int_equal(out[29], 1);
	assert_int_equal(out[30], seed + 7);
	assert_int_equal(out[31], 0);
}

static void ah_attr__each_field_lies_where_the_kernel_has_it(void **state)
{
	struct ib_ah_attr ah = test_ah(0x30);
	u8 out[32];

	(void)state;
	memset(out, 0xee, sizeof(out));
	ib_copy_ah_attr_to_user((void *)out, &ah);
	test_ah_is(out, 0x30);
	ah.ah_flags = 0;
	ib_copy_ah_attr_to_user((void *)out, &ah);
	assert_int_equal(out[29], 0);
}

static u32 test_u32(const u8 *at)
{
	u32 value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void qp_attr__each_field_lies_where_the_kernel_has_it(void **state)
{
	struct ib_qp_attr qp = { .qp_state = IB_QPS_RTS, .cur_qp_state = IB_QPS_SQD,
				 .path_mtu = IB_MTU_2048, .path_mig_state = IB_MIG_ARMED,
				 .qkey = 11, .rq_psn = 12, .sq_psn = 13, .dest_qp_num = 14,
				 .qp_access_flags = 15, .cap = { 21, 22, 23, 24, 25 },
				 .pkey_index = 0x101, .alt_pkey_index = 0x202,
				 .en_sqd_async_notify = 31, .sq_draining = 32, .max_rd_atomic = 33,
				 .max_dest_rd_atomic = 34, .min_rnr_timer = 35, .port_num = 36,
				 .timeout = 37, .retry_cnt = 38, .rnr_retry = 39,
				 .alt_port_num = 40, .alt_timeout = 41, .rate_limit = 99 };
	static const u32 first[] = { 0, 3, 4, 4, 2, 11, 12, 13, 14, 15 };
	static const u8 last[] = { 1, 1, 2, 2, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41,
				   0, 0, 0, 0, 0 };
	u8 out[144];

	(void)state;
	qp.ah_attr = test_ah(0x40);
	qp.alt_ah_attr = test_ah(0x60);
	memset(out, 0xee, sizeof(out));
	ib_copy_qp_attr_to_user((void *)out, &qp);
	for (u32 i = 0; i < ARRAY_LEN(first); i++)
		assert_int_equal(test_u32(out + 4 * i), first[i]);
	test_ah_is(out + 40, 0x40);
	test_ah_is(out + 72, 0x60);
	for (u32 i = 0; i < 5; i++)
		assert_int_equal(test_u32(out + 104 + 4 * i), 21 + i);
	assert_memory_equal(out + 124, last, sizeof(last));
}

static struct ib_sa_path_rec test_path(void)
{
	struct ib_sa_path_rec path = { .dlid = htobe16(0x1234), .slid = htobe16(0x5678),
				       .raw_traffic = 1, .flow_label = htobe32(0xabcde),
				       .hop_limit = 64, .traffic_class = 0x6a, .reversible = 1,
				       .numb_path = 3, .pkey = htobe16(0xffff), .sl = 5,
				       .mtu_selector = 2, .mtu = 4, .rate_selector = 1,
				       .rate = 10, .packet_life_time_selector = 3,
				       .packet_life_time = 18, .preference = 7 };

	memset(path.dgid.raw, 0xd1, 16);
	memset(path.sgid.raw, 0x51, 16);
	return path;
}

static void path_rec__each_field_lies_where_the_kernel_has_it(void **state)
{
	static const u8 lids[] = { 0x12, 0x34, 0x56, 0x78 }, flow[] = { 0, 0x0a, 0xbc, 0xde };
	static const u8 last[] = { 0xff, 0xff, 64, 0x6a, 3, 5, 2, 1, 10, 3, 18, 7 };
	struct ib_sa_path_rec path = test_path(), again;
	u8 out[64];

	(void)state;
	memset(out, 0xee, sizeof(out));
	ib_copy_path_rec_to_user((void *)out, &path);
	assert_memory_equal(out, path.dgid.raw, 16);
	assert_memory_equal(out + 16, path.sgid.raw, 16);
	assert_memory_equal(out + 32, lids, 4);
	assert_int_equal(test_u32(out + 36), 1);
	assert_memory_equal(out + 40, flow, 4);
	assert_int_equal(test_u32(out + 44), 1);
	assert_int_equal(test_u32(out + 48), 4);
	assert_memory_equal(out + 52, last, sizeof(last));
	memset(&again, 0xee, sizeof(again));
	ib_copy_path_rec_from_user(&again, (void *)out);
	assert_memory_equal(&again.dgid, &path.dgid, 32);
	assert_int_equal(again.reversible, 1);
	assert_int_equal(again.mtu, 4);
	memset(out, 0xee, sizeof(out));
	ib_copy_path_rec_to_user((void *)out, &again);
	assert_memory_equal(out + 52, last, sizeof(last));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ah_attr__each_field_lies_where_the_kernel_has_it),
		cmocka_unit_test(qp_attr__each_field_lies_where_the_kernel_has_it),
		cmocka_unit_test(path_rec__each_field_lies_where_the_kernel_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
