/* qp_state_test.c: every cell (from, to, type) of the state table against an expectation of
 * another shape: attribute by attribute, where it must and where it may be given, after IBA vol
 * 1, 11.2.5.2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include <rdma/ib_verbs.h>

/* Moves that carry attributes: "from to" by the states' first letters; D is SQD, E is SQE, T is
 * RTR, S is RTS. */
enum move { RI = 1, II = 2, IT = 4, TS = 8, SS = 16, SD = 32, DS = 64, DD = 128, ES = 256 };

enum {
	RC = 1 << IB_QPT_RC,
	UC = 1 << IB_QPT_UC,
	UD = 1 << IB_QPT_UD,
	SMI = 1 << IB_QPT_SMI,
	GSI = 1 << IB_QPT_GSI,
	INI = 1 << IB_QPT_XRC_INI,
	TGT = 1 << IB_QPT_XRC_TGT,
	RAW = 1 << IB_QPT_RAW_PACKET,
};

static const struct {
	int attribute, types, required_in, optional_in;
} expected[] = {
	{ IB_QP_PKEY_INDEX, RC | UC | INI | TGT | UD | SMI | GSI, RI, II | IT | DD },
	{ IB_QP_PORT, RC | INI | TGT, RI, II | DD },
	{ IB_QP_PORT, UC | UD, RI, II },
	{ IB_QP_PORT, RAW, RI, 0 },
	{ IB_QP_QKEY, UD | SMI | GSI, RI, II | IT | TS | SS | DS | DD | ES },
	{ IB_QP_ACCESS_FLAGS, RC | INI | TGT, RI, II | IT | TS | SS | DS | DD },
	{ IB_QP_ACCESS_FLAGS, UC, RI, II | IT | TS | SS | DS | DD | ES },
	{ IB_QP_AV, RC | UC | INI | TGT, IT, DD },
	{ IB_QP_PATH_MTU, RC | UC | INI | TGT, IT, 0 },
	{ IB_QP_DEST_QPN, RC | UC | INI | TGT, IT, 0 },
	{ IB_QP_RQ_PSN, RC | UC | INI | TGT, IT, 0 },
	{ IB_QP_MAX_DEST_RD_ATOMIC, RC | TGT, IT, DD },
	{ IB_QP_MIN_RNR_TIMER, RC | TGT, IT, TS | SS | DS | DD },
	{ IB_QP_SQ_PSN, RC | UC | INI | TGT | UD | SMI | GSI, TS, 0 },
	{ IB_QP_TIMEOUT, RC | INI | TGT, TS, DD },
	{ IB_QP_RETRY_CNT, RC | INI, TS, DD },
	{ IB_QP_RNR_RETRY, RC | INI, TS, DD },
	{ IB_QP_MAX_QP_RD_ATOMIC, RC | INI, TS, DD },
	{ IB_QP_ALT_PATH, RC | UC | INI | TGT, 0, IT | TS | SS | DS | DD },
	{ IB_QP_PATH_MIG_STATE, RC | UC | INI | TGT, 0, TS | SS | DS | DD },
	{ IB_QP_CUR_STATE, RC | INI | TGT, 0, TS | SS | DS },
	{ IB_QP_CUR_STATE, UC | UD | SMI | GSI, 0, TS | SS | DS | ES },
	{ IB_QP_EN_SQD_ASYNC_NOTIFY, RC | UC | INI | TGT | UD | SMI | GSI, 0, SD },
	{ IB_QP_RATE_LIMIT, RAW, 0, TS | SS },
};

static const int types[] = { IB_QPT_RC,	     IB_QPT_UC,	     IB_QPT_UD,	 IB_QPT_SMI,
			     IB_QPT_GSI,     IB_QPT_XRC_INI, IB_QPT_XRC_TGT, IB_QPT_RAW_PACKET };

/* 0: no move that carries attributes. */
static int move_of(int from, int to)
{
	static const struct {
		int from, to, move;
	} moves[] = {
		{ IB_QPS_RESET, IB_QPS_INIT, RI }, { IB_QPS_INIT, IB_QPS_INIT, II },
		{ IB_QPS_INIT, IB_QPS_RTR, IT },   { IB_QPS_RTR, IB_QPS_RTS, TS },
		{ IB_QPS_RTS, IB_QPS_RTS, SS },	   { IB_QPS_RTS, IB_QPS_SQD, SD },
		{ IB_QPS_SQD, IB_QPS_RTS, DS },	   { IB_QPS_SQD, IB_QPS_SQD, DD },
		{ IB_QPS_SQE, IB_QPS_RTS, ES },
	};

	for (u32 i = 0; i < ARRAY_LEN(moves); i++)
		if (moves[i].from == from && moves[i].to == to)
			return moves[i].move;
	return 0;
}

static bool move_exists(int from, int to)
{
	if (to == IB_QPS_RESET)
		return true;
	if (to == IB_QPS_ERR)
		return from != IB_QPS_RESET;
	return move_of(from, to) != 0;
}

static void attributes_of(int from, int to, int type, int *required, int *optional)
{
	int move = move_of(from, to);

	*required = *optional = 0;
	for (u32 i = 0; i < ARRAY_LEN(expected); i++) {
		if (!(expected[i].types & 1 << type))
			continue;
		if (expected[i].required_in & move)
			*required |= expected[i].attribute;
		if (expected[i].optional_in & move)
			*optional |= expected[i].attribute;
	}
}

static int is_ok(int from, int to, int type, int mask)
{
	return ib_modify_qp_is_ok((enum ib_qp_state)from, (enum ib_qp_state)to,
				  (enum ib_qp_type)type, (enum ib_qp_attr_mask)mask);
}

/* Each attribute bit by itself: taken away if it is required, added if it is not. */
static void check_bits(int from, int to, int type, int required, int optional)
{
	for (int bit = 1; bit <= IB_QP_RATE_LIMIT; bit <<= 1) {
		int expect, mask = (required | IB_QP_STATE) ^ bit;

		if (bit == IB_QP_STATE)
			expect = 1; /* no change of state: what the caller makes of it */
		else
			expect = !(required & bit) && (optional & bit);
		if (is_ok(from, to, type, mask) != expect)
			fail_msg("%d to %d, type %d: mask %#x should be %d", from, to, type, mask,
				 expect);
	}
}

static void check_cell(int from, int to, int type)
{
	int required, optional;

	attributes_of(from, to, type, &required, &optional);
	if (!move_exists(from, to)) {
		for (int bit = 1; bit <= IB_QP_RATE_LIMIT; bit <<= 1)
			assert_int_equal(is_ok(from, to, type, IB_QP_STATE | bit), 0);
		return;
	}
	assert_int_equal(is_ok(from, to, type, IB_QP_STATE | required), 1);
	assert_int_equal(is_ok(from, to, type, IB_QP_STATE | required | optional), 1);
	check_bits(from, to, type, required, optional);
}

static void ib_modify_qp_is_ok__every_cell(void **state)
{
	for (u32 t = 0; t < ARRAY_LEN(types); t++)
		for (int from = IB_QPS_RESET; from <= IB_QPS_ERR; from++)
			for (int to = IB_QPS_RESET; to <= IB_QPS_ERR; to++)
				check_cell(from, to, types[t]);
}

/* What every verbs program sends. */
static void ib_modify_qp_is_ok__usual_masks(void **state)
{
	int init = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
	int rtr = IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
		  IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
	int rts = IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
		  IB_QP_MAX_QP_RD_ATOMIC;

	assert_int_equal(is_ok(IB_QPS_RESET, IB_QPS_INIT, IB_QPT_RC, init), 1);
	assert_int_equal(is_ok(IB_QPS_INIT, IB_QPS_RTR, IB_QPT_RC, rtr), 1);
	assert_int_equal(is_ok(IB_QPS_RTR, IB_QPS_RTS, IB_QPT_RC, rts), 1);
	assert_int_equal(is_ok(IB_QPS_INIT, IB_QPS_RTS, IB_QPT_RC, rts), 0);
	assert_int_equal(is_ok(IB_QPS_RTR, IB_QPS_RTS, IB_QPT_UD, rts), 0);
}

static void ib_modify_qp_is_ok__nonsense(void **state)
{
	assert_int_equal(is_ok(7, IB_QPS_RESET, IB_QPT_RC, IB_QP_STATE), 0);
	assert_int_equal(is_ok(-1, IB_QPS_RESET, IB_QPT_RC, IB_QP_STATE), 0);
	assert_int_equal(is_ok(IB_QPS_RESET, 7, IB_QPT_RC, IB_QP_STATE), 0);
	assert_int_equal(is_ok(IB_QPS_RESET, IB_QPS_RESET, IB_QPT_MAX, IB_QP_STATE), 0);
	assert_int_equal(is_ok(IB_QPS_RESET, IB_QPS_RESET, -1, IB_QP_STATE), 0);
	assert_int_equal(is_ok(IB_QPS_RESET, IB_QPS_RESET, IB_QPT_RC, IB_QP_STATE | 1 << 30), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_modify_qp_is_ok__every_cell),
		cmocka_unit_test(ib_modify_qp_is_ok__usual_masks),
		cmocka_unit_test(ib_modify_qp_is_ok__nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
