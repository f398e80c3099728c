/* udp_program_test.c: the program, run step by step as the kernel does.
 * In:    datagrams                     Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include "daemon/udp_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "node/node.h"
#include "node/steer.h"

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
		case BPF_LD | BPF_H | BPF_ABS:
			if (f->k + 2 > size)
				return 0;
			a = (u32)data[f->k] << 8 | data[f->k + 1];
			break;
		case BPF_LD | BPF_B | BPF_ABS:
			if (f->k + 1 > size)
				return 0;
			a = data[f->k];
			break;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += (a & f->k) != 0 ? f->jt : f->jf;
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
	u8 bth[12] = { 0x64,	       0,	0xff, 0xff, reserved, (u8)(qpn >> 16),
		       (u8)(qpn >> 8), (u8)qpn, 0,    0xff, 0xff,     0xff };

	return run(length, bth, sizeof(bth));
}

static void udp_program_build__every_slot(void **state)
{
	u16 member_of[NODE_SLOTS];
	u32 length;

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		member_of[slot] = (u16)(NODE_SLOTS - slot);
	length = daemon_udp_program_build(member_of, code);
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
	u32 length = daemon_udp_program_build(member_of, code);

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		assert_int_equal(run_qpn(length, slot << NODE_INDEX_BITS, 0x80), member_of[slot]);
}

static void udp_program_build__short_datagrams(void **state)
{
	u16 member_of[NODE_SLOTS] = { [1] = 1 };
	u8 data[8] = { 0x64, 0, 0xff, 0xff, 0, 0, 0x40, 0 };
	u32 length = daemon_udp_program_build(member_of, code);

	for (size_t size = 0; size < 8; size++)
		assert_int_equal(run(length, data, size), 0);
	assert_int_equal(run(length, data, 8), 1);
}

/* A datagram to QP1 with a MAD whose fields are often those that steering looks at. */
static void fill_mad_datagram(u8 data[NODE_MAD_BYTES], unsigned int *seed)
{
	static const u8 classes[] = { 7, 3, 4, 0x30 }, methods[] = { 3, 1, 0x81, 7, 0x92 };
	u8 *mad = data + NODE_MAD_BYTES - 4 - STEER_MAD;

	for (u32 i = 0; i < NODE_MAD_BYTES; i++)
		data[i] = (u8)rand_r(seed);
	data[0] = 0x64;
	memcpy(data + 5, (u8[]){ 0, 0, 1 }, 3);
	mad[STEER_CLASS] = classes[(u32)rand_r(seed) % sizeof(classes)];
	mad[STEER_METHOD] = methods[(u32)rand_r(seed) % sizeof(methods)];
	mad[STEER_ATTRIBUTE] = rand_r(seed) % 8 == 0;
	mad[STEER_ATTRIBUTE + 1] = (u8)(0x10 + rand_r(seed) % 12);
}

static void udp_program_build__steers_mads_as_steer_mad_says(void **state)
{
	u16 member_of[NODE_SLOTS];
	u8 data[NODE_MAD_BYTES];
	unsigned int seed = 1;
	u32 length, steered = 0;

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		member_of[slot] = (u16)(NODE_SLOTS - slot);
	length = daemon_udp_program_build(member_of, code);
	for (u32 i = 0; i < 20000; i++) {
		u32 slot = 0, verdict;
		u64 service_id;

		fill_mad_datagram(data, &seed);
		verdict = run(length, data, sizeof(data));
		if (steer_mad(data + 20, &slot, &service_id) == STEER_BY_SLOT && slot != 0) {
			assert_int_equal(verdict, member_of[slot]);
			steered++;
		} else {
			assert_int_equal(verdict, 0);
		}
	}
	assert_true(steered > 5000);
}

static void udp_program_build__other_packets_to_qp1(void **state)
{
	u16 member_of[NODE_SLOTS];
	u8 data[NODE_MAD_BYTES];
	unsigned int seed = 2;
	u32 length;

	for (u32 slot = 0; slot < NODE_SLOTS; slot++)
		member_of[slot] = 1;
	length = daemon_udp_program_build(member_of, code);
	fill_mad_datagram(data, &seed);
	data[20 + STEER_CLASS] = 3;
	data[20 + STEER_METHOD] = 0x81;
	data[20 + STEER_TID] = 0xff;
	assert_int_equal(run(length, data, sizeof(data)), 1);
	/* cut off within the fields that count, and of another opcode */
	assert_int_equal(run(length, data, 20 + STEER_TID + 3), 0);
	data[0] = 0x04;
	assert_int_equal(run(length, data, sizeof(data)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(udp_program_build__every_slot),
		cmocka_unit_test(udp_program_build__only_those_that_have_a_member),
		cmocka_unit_test(udp_program_build__short_datagrams),
		cmocka_unit_test(udp_program_build__steers_mads_as_steer_mad_says),
		cmocka_unit_test(udp_program_build__other_packets_to_qp1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
