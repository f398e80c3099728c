/* convert_test.c: attributes go to libibverbs' layout and back, none of them forgotten; of a work
 * request no more is read than its opcode has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>

#include "core/convert.h"
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

/* A request of Linux 6.1's layout ends before `wr`; behind it nothing may be read. */
static void ib_convert_send_wr__reads_no_operands_of_a_send(void **state)
{
	static const enum ib_wr_opcode opcodes[] = { IB_WR_SEND, IB_WR_SEND_WITH_IMM,
						     IB_WR_SEND_WITH_INV, IB_WR_LOCAL_INV };
	size_t page = 4096, head = offsetof(struct ib_send_wr, wr);
	char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	struct ib_qp qp = { .qp_type = IB_QPT_RC };

	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		struct ib_send_wr whole = { .wr_id = 7 + i, .opcode = opcodes[i] };
		struct ib_send_wr *wr = memcpy(memory + page - head, &whole, head);
		struct ib_uverbs_ah ah;
		struct ibv_send_wr out;

		assert_int_equal(ib_convert_send_wr(&qp, wr, &out, &ah), 0);
		assert_int_equal(out.wr_id, 7 + i);
		assert_int_equal(out.opcode, opcodes[i]);
	}
	munmap(memory, 2 * page);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_convert_qp_attr__there_and_back),
		cmocka_unit_test(ib_convert_send_wr__reads_no_operands_of_a_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
