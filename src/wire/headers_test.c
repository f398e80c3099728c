/* headers_test.c: every packet that has a wire form survives it, byte for byte as the specification
 * lays it out, and what is no packet is refused with its reason. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "wire/roce.h"

static const u8 test_types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
				 IBV_QPT_XRC_RECV };

static struct pkt test_packet(u8 opcode, u8 qp_type)
{
	return (struct pkt){ .opcode = opcode,
			     .qp_type = qp_type,
			     .flags = PKT_SOLICITED | PKT_ACK_REQUEST,
			     .syndrome = 0x6a,
			     .dqpn = 0x123456,
			     .sqpn = 0xabcdef,
			     .psn = 0x89abcd,
			     .imm = 0x04030201,
			     .qkey = 0x80112233,
			     .msn = 0x445566,
			     .rkey = 0xdeadbeef,
			     .va = 0x1122334455667788,
			     .dma_length = 0x7fffffff,
			     .compare = 0x0102030405060708,
			     .swap = 0xf1f2f3f4f5f6f7f8 };
}

/* What an XRC initiator takes; its target takes the other packets. */
static bool test_is_response(u8 opcode)
{
	return opcode >= PKT_READ_FIRST && opcode <= PKT_ATOMIC_ACK;
}

/* Whether the opcode exists for the type, by the specification's table 38. */
static bool test_exists(u8 opcode, u8 qp_type)
{
	if (qp_type == IBV_QPT_UD)
		return opcode == PKT_SEND_ONLY || opcode == PKT_SEND_ONLY_IMM;
	if (qp_type == IBV_QPT_UC)
		return opcode <= PKT_WRITE_ONLY_IMM;
	if (qp_type == IBV_QPT_XRC_SEND && !test_is_response(opcode))
		return false;
	if (qp_type == IBV_QPT_XRC_RECV && test_is_response(opcode))
		return false;
	if (opcode == PKT_FLUSH || opcode == PKT_ATOMIC_WRITE)
		return qp_type == IBV_QPT_RC;
	return opcode <= PKT_FETCH_ADD || opcode == PKT_SEND_LAST_INV ||
	       opcode == PKT_SEND_ONLY_INV;
}

static bool test_has_payload(u8 opcode)
{
	if (opcode == PKT_FLUSH)
		return false;
	return opcode < PKT_READ_REQUEST || (opcode > PKT_READ_REQUEST && opcode < PKT_ACK) ||
	       opcode > PKT_RESYNC;
}

/* Packs, appends payload and padding, unpacks; what comes back, packed again, is the same. */
static void test_round_trip(u8 opcode, u8 qp_type, u32 length)
{
	struct pkt p = test_packet(opcode, qp_type), q;
	u8 data[ROCE_UDP_MAX] = { 0 }, again[ROCE_HEADERS_MAX];
	u32 payload;
	int bytes;

	p.length = length;
	bytes = roce_pack(&p, data);
	assert_in_range(bytes, ROCE_BTH, ROCE_HEADERS_MAX);
	assert_int_equal(roce_unpack(data, (u32)bytes + length + roce_pad(length), &q, &payload),
			 0);
	assert_int_equal(payload, bytes);
	assert_int_equal(q.length, length);
	assert_int_equal(q.opcode, opcode);
	assert_int_equal(q.qp_type, qp_type);
	assert_int_equal(q.flags, p.flags);
	assert_int_equal(q.pkey, 0xffff);
	assert_int_equal(q.dqpn, p.dqpn);
	assert_int_equal(q.psn, p.psn);
	assert_int_equal(roce_pack(&q, again), bytes);
	assert_memory_equal(data, again, bytes);
}

static void roce_pack__every_opcode_survives(void **state)
{
	int packets = 0;

	for (u32 t = 0; t < ARRAY_LEN(test_types); t++)
		for (u8 opcode = 0; opcode < PKT_OPCODES; opcode++) {
			if (!test_exists(opcode, test_types[t]))
				continue;
			packets++;
			test_round_trip(opcode, test_types[t], 0);
			for (u32 length = 1; test_has_payload(opcode) && length <= 5; length++)
				test_round_trip(opcode, test_types[t], length);
			if (test_has_payload(opcode))
				test_round_trip(opcode, test_types[t], ROCE_MTU_MAX);
		}
	assert_int_equal(packets, 25 + 12 + 2 + 6 + 17);
}

static void roce_pack__refuses_what_has_no_wire_form(void **state)
{
	u8 out[ROCE_HEADERS_MAX];
	int refused = 0;

	for (u32 t = 0; t < ARRAY_LEN(test_types); t++)
		for (u8 opcode = 0; opcode < 64; opcode++) {
			struct pkt p = test_packet(opcode, test_types[t]);

			if (test_exists(opcode, test_types[t]) || opcode == PKT_CNP)
				continue;
			assert_int_equal(roce_pack(&p, out), -EINVAL);
			refused++;
		}
	assert_int_equal(refused, 5 * 64 - 62 - 5);
}

static void roce_pack__refuses_too_much_payload(void **state)
{
	struct pkt p = test_packet(PKT_SEND_ONLY, IBV_QPT_RC);
	u8 out[ROCE_HEADERS_MAX];

	p.length = ROCE_MTU_MAX + 1;
	assert_int_equal(roce_pack(&p, out), -EINVAL);
	p = test_packet(PKT_ACK, IBV_QPT_RC);
	p.length = 1;
	assert_int_equal(roce_pack(&p, out), -EINVAL);
	p.qp_type = IBV_QPT_RAW_PACKET;
	p.length = 0;
	assert_int_equal(roce_pack(&p, out), -EINVAL);
}

/* ---- the layout, written by hand from the figures of IBA vol 1, ch. 9 ---- */

static void test_layout(const struct pkt *p, const void *expected, int bytes)
{
	u8 out[ROCE_HEADERS_MAX];

	assert_int_equal(roce_pack(p, out), bytes);
	assert_memory_equal(out, expected, bytes);
}

static void roce_pack__write_only_with_immediate(void **state)
{
	static const u8 expected[] = { 0x0b, 0xd0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,
				       0x80, 0x89, 0xab, 0xcd, /* BTH: SE, MigReq, pad 1 */
				       0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
				       0xde, 0xad, 0xbe, 0xef, 0x7f, 0xff, 0xff, 0xff, /* RETH */
				       0xaa, 0xbb, 0xcc, 0xdd /* ImmDt */ };
	struct pkt p = test_packet(PKT_WRITE_ONLY_IMM, IBV_QPT_RC);

	p.length = 7;
	p.imm = htobe32(0xaabbccdd);
	test_layout(&p, expected, sizeof(expected));
}

static void roce_pack__datagram(void **state)
{
	static const u8 expected[] = { 0x64, 0x60, 0x80, 0x01, 0x00, 0x12, 0x34, 0x56,
				       0x00, 0x89, 0xab, 0xcd, /* BTH: MigReq, pad 2 */
				       0x80, 0x11, 0x22, 0x33, 0x00, 0xab, 0xcd, 0xef /* DETH */ };
	struct pkt p = test_packet(PKT_SEND_ONLY, IBV_QPT_UD);

	p.length = 2;
	p.flags = 0;
	p.pkey = 0x8001;
	test_layout(&p, expected, sizeof(expected));
}

static void roce_pack__compare_and_swap(void **state)
{
	static const u8 expected[] = { 0x13, 0xc0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0x89,
				       0xab, 0xcd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
				       0xde, 0xad, 0xbe, 0xef, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6,
				       0xf7, 0xf8, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08 };
	struct pkt p = test_packet(PKT_COMPARE_SWAP, IBV_QPT_RC);

	test_layout(&p, expected, sizeof(expected));
}

static void roce_pack__atomic_acknowledge(void **state)
{
	static const u8 expected[] = { 0x12, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,
				       0x00, 0x89, 0xab, 0xcd, 0x6a, 0x44, 0x55, 0x66,
				       0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8 };
	struct pkt p = test_packet(PKT_ATOMIC_ACK, IBV_QPT_RC);

	p.flags = 0;
	test_layout(&p, expected, sizeof(expected));
}

static void roce_pack__xrc_requests(void **state)
{
	static const u8 send[] = { 0xa5, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,
				   0x00, 0x89, 0xab, 0xcd, 0x00, 0x11, 0x22, 0x33, /* XRCETH */
				   0x01, 0x02, 0x03, 0x04 };
	static const u8 add[] = {
		0xb4, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x89, 0xab,
		0xcd, 0x00, 0x11, 0x22, 0x33, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
		0x77, 0x88, 0xde, 0xad, 0xbe, 0xef, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5,
		0xf6, 0xf7, 0xf8, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08
	};
	struct pkt p = test_packet(PKT_SEND_ONLY_IMM, IBV_QPT_XRC_RECV);

	p.flags = 0;
	p.srqn = 0x112233;
	test_layout(&p, send, sizeof(send));
	p.opcode = PKT_FETCH_ADD;
	test_layout(&p, add, ROCE_HEADERS_MAX);
}

/* IBA vol 1, A19: FETH, then RETH; a RETH and eight bytes. */
static void roce_pack__memory_placement(void **state)
{
	static const u8 flush[] = { 0x1c, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,
				    0x00, 0x89, 0xab, 0xcd, 0x00, 0x00, 0x00, 0x11,
				    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
				    0xde, 0xad, 0xbe, 0xef, 0x7f, 0xff, 0xff, 0xff };
	static const u8 write[] = { 0x1d, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x89,
				    0xab, 0xcd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
				    0xde, 0xad, 0xbe, 0xef, 0x00, 0x00, 0x00, 0x08 };
	struct pkt p = test_packet(PKT_FLUSH, IBV_QPT_RC);

	p.flags = 0;
	p.imm = FETH_REGION << FETH_LEVEL_SHIFT | FETH_GLOBAL;
	test_layout(&p, flush, sizeof(flush));
	p.opcode = PKT_ATOMIC_WRITE;
	p.length = p.dma_length = 8;
	test_layout(&p, write, sizeof(write));
}

static void roce_pack__send_with_invalidate(void **state)
{
	static const u8 expected[] = { 0x17, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,
				       0x00, 0x89, 0xab, 0xcd, 0x04, 0x03, 0x02, 0x01 };
	struct pkt p = test_packet(PKT_SEND_ONLY_INV, IBV_QPT_RC);

	p.flags = 0;
	test_layout(&p, expected, sizeof(expected));
}

/* The UDP payload of the CNP that a ConnectX-4 Lx sent (test data of scapy's RoCE layer), without
 * its ICRC. */
static const u8 test_cnp[28] = { 0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18 };

static void roce_pack__congestion_notification(void **state)
{
	struct pkt p = { .opcode = PKT_CNP, .dqpn = 0x118 }, q;
	u32 payload;

	test_layout(&p, test_cnp, sizeof(test_cnp));
	assert_int_equal(roce_unpack(test_cnp, sizeof(test_cnp), &q, &payload), 0);
	assert_int_equal(q.opcode, PKT_CNP);
	assert_false(q.unmigrated);
	assert_int_equal(q.dqpn, 0x118);
	assert_int_equal(q.length, 0);
	assert_int_equal(roce_unpack(test_cnp, sizeof(test_cnp) - 4, &q, &payload),
			 ROCE_MALFORMED);
}

/* ---- what is no packet ---- */

static void test_refuse(const u8 *data, u32 length, int why)
{
	struct pkt p;
	u32 payload;

	assert_int_equal(roce_unpack(data, length, &p, &payload), why);
}

static void roce_unpack__too_short_for_its_headers(void **state)
{
	u8 data[ROCE_UDP_MAX] = { 0 };

	for (u32 t = 0; t < ARRAY_LEN(test_types); t++)
		for (u8 opcode = 0; opcode < PKT_OPCODES; opcode++) {
			struct pkt p = test_packet(opcode, test_types[t]);
			int bytes = roce_pack(&p, data);

			for (int length = 0; length < bytes; length++)
				test_refuse(data, (u32)length, ROCE_MALFORMED);
		}
}

static void roce_unpack__length_and_padding(void **state)
{
	u8 data[ROCE_UDP_MAX + 8] = { 0x04, 0x00, 0xff, 0xff };

	test_refuse(data, 13, ROCE_MALFORMED);
	test_refuse(data, 12 + ROCE_MTU_MAX, 0);
	test_refuse(data, 12 + ROCE_MTU_MAX + 4, ROCE_MALFORMED);
	data[1] = 0x10;
	test_refuse(data, 12, ROCE_MALFORMED); /* padding of nothing */
	test_refuse(data, 16, 0);
	data[0] = 0x0c;
	test_refuse(data, 28 + 4, ROCE_MALFORMED); /* a READ request with payload */
	test_refuse(data, 28, ROCE_MALFORMED);     /* or padding */
	data[1] = 0;
	test_refuse(data, 28, 0);
}

static void roce_unpack__version(void **state)
{
	for (u8 version = 1; version < 16; version++) {
		u8 data[12] = { 0x04, version, 0xff, 0xff };

		test_refuse(data, sizeof(data), ROCE_VERSION);
	}
}

static void roce_unpack__reserved_opcodes(void **state)
{
	u8 data[64] = { 0, 0, 0xff, 0xff };
	int known = 0;

	for (int opcode = 0; opcode < 256; opcode++) {
		int transport = opcode >> 5, low = opcode & 31;
		u8 type = transport == 0   ? IBV_QPT_RC
			  : transport == 1 ? IBV_QPT_UC
			  : transport == 3 ? IBV_QPT_UD
			  : transport != 5 ? 0
			  : test_is_response((u8)low) ? IBV_QPT_XRC_SEND
						      : IBV_QPT_XRC_RECV;

		data[0] = (u8)opcode;
		if (opcode == 0x81 || (type != 0 && test_exists((u8)low, type)))
			known++;
		else
			test_refuse(data, sizeof(data), ROCE_OPCODE);
	}
	assert_int_equal(known, 38 + 25);
}

static void roce_unpack__partition_keys(void **state)
{
	u8 data[12] = { 0x04, 0, 0xff, 0xff };

	test_refuse(data, sizeof(data), 0);
	data[2] = 0x7f; /* a limited member may talk to a full one */
	test_refuse(data, sizeof(data), 0);
	data[3] = 0xfe;
	test_refuse(data, sizeof(data), ROCE_PKEY_WRONG);
	data[2] = data[3] = 0;
	test_refuse(data, sizeof(data), ROCE_PKEY_WRONG);
}

static void roce_unpack__either_migration_state(void **state)
{
	u8 data[12] = { 0x04, 0x40, 0xff, 0xff };

	test_refuse(data, sizeof(data), 0);
	data[1] = 0;
	test_refuse(data, sizeof(data), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_pack__every_opcode_survives),
		cmocka_unit_test(roce_pack__refuses_what_has_no_wire_form),
		cmocka_unit_test(roce_pack__refuses_too_much_payload),
		cmocka_unit_test(roce_pack__write_only_with_immediate),
		cmocka_unit_test(roce_pack__datagram),
		cmocka_unit_test(roce_pack__compare_and_swap),
		cmocka_unit_test(roce_pack__atomic_acknowledge),
		cmocka_unit_test(roce_pack__xrc_requests),
		cmocka_unit_test(roce_pack__memory_placement),
		cmocka_unit_test(roce_pack__send_with_invalidate),
		cmocka_unit_test(roce_pack__congestion_notification),
		cmocka_unit_test(roce_unpack__too_short_for_its_headers),
		cmocka_unit_test(roce_unpack__length_and_padding),
		cmocka_unit_test(roce_unpack__version),
		cmocka_unit_test(roce_unpack__reserved_opcodes),
		cmocka_unit_test(roce_unpack__partition_keys),
		cmocka_unit_test(roce_unpack__either_migration_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
