/* convert_test.c: attributes go to libibverbs' layout and back, none of them forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/convert_attr.h"

/* A value of its own for every field; flags are what both sides can say. */
static void fill(struct ib_qp_attr *attr)
{
	u8 *bytes = (u8 *)attr;

	for (size_t i = 0; i < sizeof(*attr); i++)
		bytes[i] = (u8)(i * 37 + 11);
	attr->ah_attr.ah_flags = IB_AH_GRH;
	attr->alt_ah_attr.ah_flags = 0;
}

#define SAME(field) assert_int_equal(a->field, b->field);

static void same_ah(const struct ib_ah_attr *a, const struct ib_ah_attr *b)
{
	CONVERT_AH_FIELDS(SAME)
	assert_int_equal(a->ah_flags, b->ah_flags);
	assert_memory_equal(a->grh.dgid.raw, b->grh.dgid.raw, sizeof(a->grh.dgid.raw));
}

static void ib_convert_qp_attr__there_and_back(void **state)
{
	struct ib_qp_attr there, back, *a = &there, *b = &back;
	struct ibv_qp_attr ibv;

	fill(&there);
	ib_convert_qp_attr(&there, &ibv);
	assert_int_equal(ibv.ah_attr.is_global, 1);
	assert_int_equal(ibv.alt_ah_attr.is_global, 0);
	assert_int_equal(ibv.dest_qp_num, there.dest_qp_num);
	memset(&back, 0x5a, sizeof(back));
	ib_convert_ibv_qp_attr(&ibv, &back);
	CONVERT_QP_FIELDS(SAME)
	SAME(qp_state)
	SAME(cur_qp_state)
	SAME(path_mtu)
	SAME(path_mig_state)
	SAME(qp_access_flags)
	assert_memory_equal(&a->cap, &b->cap, sizeof(a->cap));
	same_ah(&a->ah_attr, &b->ah_attr);
	same_ah(&a->alt_ah_attr, &b->alt_ah_attr);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_convert_qp_attr__there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
