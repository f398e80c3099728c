/* huge_test.c: the longest messages there are, 2 GiB, and one byte more.
 * In: 5 GiB of memory; without it a loud skip    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stdio.h>

#include "pair.h"

enum { GUARD = 4096 };
#define HUGE_BYTES (2ull << 30)

static bool huge_has_memory(void)
{
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return kib >> 20 >= 5;
}

static void huge_open(void)
{
	if (!huge_has_memory()) {
		print_message("SKIPPED: a message of 2 GiB needs 5 GiB of free memory\n");
		skip();
	}
	pair_open(&(struct side_options){ .type = IBV_QPT_RC,
					  .bytes = HUGE_BYTES + GUARD,
					  .mr_access = -1,
					  .qp_access = -1 });
}

static void huge__message(void **state)
{
	enum ibv_wr_opcode op = (enum ibv_wr_opcode)(uintptr_t)*state;
	bool read = op == IBV_WR_RDMA_READ;
	struct side_wr w, r;
	struct ibv_wc wc;

	huge_open();
	w = end_op(&pair.a, op, 0, (uint32_t)HUGE_BYTES, &pair.b, 0);
	r = end_wr(&pair.b, 0, (uint32_t)HUGE_BYTES);
	end_fill(read ? &pair.b : &pair.a, 0, HUGE_BYTES, 3);
	end_fill(read ? &pair.a : &pair.b, HUGE_BYTES, GUARD, 4);
	if (op == IBV_WR_SEND)
		end_recv(&pair.b, 0, &r, 1);
	end_send(&pair.a, 0, &w);
	assert_int_equal(end_poll(&pair.a, SENDS, 1, 100000, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	if (op == IBV_WR_SEND)
		assert_int_equal(end_expect(&pair.b, RECVS, IBV_WC_SUCCESS).byte_len,
				 (uint32_t)HUGE_BYTES);
	end_check(read ? &pair.a : &pair.b, 0, HUGE_BYTES, 3);
	end_check(read ? &pair.a : &pair.b, HUGE_BYTES, GUARD, 4);
}

static void huge__one_byte_more(void **state)
{
	struct side_wr w;

	huge_open();
	w = end_op(&pair.a, IBV_WR_SEND, 0, (uint32_t)HUGE_BYTES + 1, &pair.b, 0);
	assert_int_equal(end_try_send(&pair.a, 0, &w, 1, 0, NULL), EINVAL);
}

#define OP(op) { "huge__message " #op, huge__message, NULL, pair_teardown, (void *)(uintptr_t)op }

int main(void)
{
	const struct CMUnitTest tests[] = {
		OP(IBV_WR_SEND),
		OP(IBV_WR_RDMA_WRITE),
		OP(IBV_WR_RDMA_READ),
		cmocka_unit_test_teardown(huge__one_byte_more, pair_teardown),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("huge", tests, pair_group_setup, pair_group_teardown);
}
