/* udp_program_test.c: the program, run step by step as the kernel does.
 * In:    datagrams                     Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include "node/daemon/udp_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "node/node.h"

static struct sock_filter code[UDP_PROGRAM_MAX];

/* Runs it on a datagram of `size` bytes; the instructions that it may consist of, and no others. */
static u32 run(u32 length, const u8 *data, size_t size)
{
	u32 a = 0;

	for (u32 pc = 0; pc < length; pc++) {
		const struct sock_filter *f = &code[pc];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f->k + 4 > size)
				return 0;
			a = (u32)data[f->k] << 24 | (u32)data[f->k + 1] << 16 |
			    (u32)data[f->k + 2] << 8 | data[f->k + 3];
			break;
		case BPF_ALU | BPF_RSH | BPF_K:
			a >>= f->k;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == f->k ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		default:
			fail_msg("instruction %x", f->code);
		}
	}
	fail_msg("runs over the end");
	return 0;
}

static u32 run_qpn(u32 length, u32 qpn, u8 reserved)
{
	u8 bth[12] = { 0x64, 0,	  0xff, 0xff, reserved, (u8)(qpn >> 16), (u8)(qpn >> 8), (u8)qpn,
		       0,    0xff, 0xff, 0xff };

	return run(length, bth, sizeof(bth));
}

static void udp_program_build__every_slot(void **state)
{
	u16 member_of[NODE_SLOTS];
	u32 length;

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		member_of[slot] = (u16)(NODE_SLOTS - slot);
	length = udp_program_build(member_of, code);
	assert_true(length <= UDP_PROGRAM_MAX && length <= BPF_MAXINSNS);
	for (u32 slot = 1; slot < NODE_SLOTS; slot++) {
		u32 low = slot * 7919 % (1u << NODE_INDEX_BITS);

		assert_int_equal(run_qpn(length, slot << NODE_INDEX_BITS | low, (u8)(slot * 5)),
				 NODE_SLOTS - slot);
	}
	/* QP0, QP1 and what else slot 0 has: the node's own */
	assert_int_equal(run_qpn(length, 0, 0), 0);
	assert_int_equal(run_qpn(length, 1, 0xff), 0);
	assert_int_equal(run_qpn(length, (1u << NODE_INDEX_BITS) - 1, 0), 0);
}

static void udp_program_build__only_those_that_have_a_member(void **state)
{
	u16 member_of[NODE_SLOTS] = { [5] = 1, [900] = 2, [1023] = 3 };
	u32 length = udp_program_build(member_of, code);

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		assert_int_equal(run_qpn(length, slot << NODE_INDEX_BITS, 0x80), member_of[slot]);
}

static void udp_program_build__short_datagrams(void **state)
{
	u16 member_of[NODE_SLOTS] = { [1] = 1 };
	u8 data[8] = { 0x64, 0, 0xff, 0xff, 0, 0, 0x40, 0 };
	u32 length = udp_program_build(member_of, code);

	for (size_t size = 0; size < 8; size++)
		assert_int_equal(run(length, data, size), 0);
	assert_int_equal(run(length, data, 8), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(udp_program_build__every_slot),
		cmocka_unit_test(udp_program_build__only_those_that_have_a_member),
		cmocka_unit_test(udp_program_build__short_datagrams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
