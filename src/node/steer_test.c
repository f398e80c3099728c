/* steer_test.c: the process that a MAD names, field by field. */
#include "node/steer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static u8 mad[STEER_MAD];

static void put_u32(u32 at, u32 value)
{
	for (u32 i = 0; i < 4; i++)
		mad[at + i] = (u8)(value >> (24 - 8 * i));
}

static enum steer_by judge(u8 class, u8 method, u16 attribute, u32 *slot, u64 *service_id)
{
	mad[STEER_CLASS] = class;
	mad[STEER_METHOD] = method;
	mad[STEER_ATTRIBUTE] = (u8)(attribute >> 8);
	mad[STEER_ATTRIBUTE + 1] = (u8)attribute;
	return steer_mad(mad, slot, service_id);
}

static int setup(void **state)
{
	memset(mad, 0, sizeof(mad));
	put_u32(STEER_TID, 11u << STEER_SLOT_SHIFT | 5);
	put_u32(STEER_LOCAL_ID, 22u << STEER_SLOT_SHIFT | 6);
	put_u32(STEER_REMOTE_ID, 1023u << STEER_SLOT_SHIFT | 7);
	put_u32(STEER_SERVICE_ID, 0x00000001);
	put_u32(STEER_SERVICE_ID + 4, 0x01064321);
	return 0;
}

static void steer_mad__cm_requests_by_service_id(void **state)
{
	u64 service_id = 0;
	u32 slot = 0;

	assert_int_equal(judge(7, 3, STEER_CM_REQ, &slot, &service_id), STEER_BY_SERVICE);
	assert_int_equal(service_id, 0x101064321);
	service_id = 0;
	put_u32(STEER_REMOTE_ID, 0);
	assert_int_equal(judge(7, 3, STEER_CM_SIDR_REQ, &slot, &service_id), STEER_BY_SERVICE);
	assert_int_equal(service_id, 0x101064321);
}

static void steer_mad__cm_messages_by_the_receivers_id(void **state)
{
	static const u16 attributes[] = { 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x19, 0x1a };
	u64 service_id;
	u32 slot;

	for (u32 i = 0; i < ARRAY_LEN(attributes); i++) {
		assert_int_equal(judge(7, 3, attributes[i], &slot, &service_id), STEER_BY_SLOT);
		assert_int_equal(slot, 1023);
	}
	assert_int_equal(judge(7, 3, STEER_CM_SIDR_REP, &slot, &service_id), STEER_BY_SLOT);
	assert_int_equal(slot, 22);
}

static void steer_names_nobody__a_rej_before_any_answer(void **state)
{
	u64 service_id;
	u32 slot;

	judge(7, 3, STEER_CM_REJ, &slot, &service_id);
	assert_false(steer_names_nobody(mad));
	put_u32(STEER_REMOTE_ID, 0);
	assert_true(steer_names_nobody(mad));
	judge(7, 3, 0x15, &slot, &service_id);
	assert_false(steer_names_nobody(mad));
	judge(4, 3, STEER_CM_REJ, &slot, &service_id);
	assert_false(steer_names_nobody(mad));
}

static void steer_mad__responses_by_transaction_id(void **state)
{
	u64 service_id;
	u32 slot;

	assert_int_equal(judge(3, 0x92, 0x35, &slot, &service_id), STEER_BY_SLOT);
	assert_int_equal(slot, 11);
	assert_int_equal(judge(3, 7, 2, &slot, &service_id), STEER_BY_SLOT);
	assert_int_equal(slot, 11);
	assert_int_equal(judge(3, 0x12, 0x35, &slot, &service_id), STEER_BY_AGENT);
	/* baseboard management marks its responses in the attribute modifier */
	assert_int_equal(judge(5, 3, 1, &slot, &service_id), STEER_BY_AGENT);
	put_u32(STEER_MODIFIER, 1);
	slot = 0;
	assert_int_equal(judge(5, 3, 1, &slot, &service_id), STEER_BY_SLOT);
	assert_int_equal(slot, 11);
	assert_int_equal(judge(3, 0x12, 0x35, &slot, &service_id), STEER_BY_AGENT);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(steer_mad__cm_requests_by_service_id, setup),
		cmocka_unit_test_setup(steer_mad__cm_messages_by_the_receivers_id, setup),
		cmocka_unit_test_setup(steer_names_nobody__a_rej_before_any_answer, setup),
		cmocka_unit_test_setup(steer_mad__responses_by_transaction_id, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
