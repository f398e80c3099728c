/* ud_header_test.c: a datagram's headers: on RoCEv2 the bytes are those of our own wire format, on
 * other links those of the specification. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pack/pack.h"
#include "wire/roce.h"

enum { TEST_LONGEST = 256 };

static void test_transport(struct ib_ud_header *h)
{
	h->bth.solicited_event = 1;
	h->bth.mig_req = 1;
	h->bth.pkey = htobe16(0xffff);
	h->bth.destination_qpn = htobe32(0x123456);
	h->bth.psn = htobe32(0x89abcd);
	h->deth.qkey = htobe32(0x80112233);
	h->deth.source_qpn = htobe32(0xabcdef);
	h->immediate_data = htobe32(0x01020304);
}

/* The same datagram by src/wire. Returns how many bytes its headers have. */
static u32 test_wire(const struct roce_flow *flow, u32 payload, bool immediate, u8 *out)
{
	struct pkt p = { .opcode = immediate ? PKT_SEND_ONLY_IMM : PKT_SEND_ONLY,
			 .qp_type = IBV_QPT_UD,
			 .flags = PKT_SOLICITED,
			 .dqpn = 0x123456,
			 .sqpn = 0xabcdef,
			 .psn = 0x89abcd,
			 .imm = htobe32(0x01020304),
			 .qkey = 0x80112233,
			 .length = payload };
	u32 ip = roce_ip_length(flow);
	int headers = roce_pack(&p, out + ip);

	assert_true(headers > 0);
	roce_ip_pack(flow, (u32)headers + payload + roce_pad(payload) + ROCE_ICRC, out);
	return ip + (u32)headers;
}

static void test_udp(struct ib_ud_header *h, const struct roce_flow *flow)
{
	h->udp.sport = htobe16(flow->sport);
	h->udp.dport = htobe16(ROCE_PORT);
}

static const struct roce_flow test_v4 = {
	.sgid = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 },
	.dgid = { [10] = 0xff, [11] = 0xff, 192, 168, 7, 9 },
	.sport = 0xc123,
	.traffic_class = 0x6a,
	.hop_limit = 64,
	.id = 0x7788,
	.df = true,
};

static void roce_v2__over_ipv4_as_our_wire_has_it(void **state)
{
	(void)state;
	for (u32 payload = 0; payload < 9; payload++) {
		for (int imm = 0; imm < 2; imm++) {
			u8 mine[TEST_LONGEST], wire[TEST_LONGEST];
			struct ib_ud_header h;
			u32 bytes = test_wire(&test_v4, payload, imm != 0, wire);

			assert_int_equal(ib_ud_header_init((int)payload, 0, 0, 0, 0, 4, 1, imm,
							   &h), 0);
			test_transport(&h);
			test_udp(&h, &test_v4);
			h.ip4.tos = test_v4.traffic_class;
			h.ip4.id = htobe16(test_v4.id);
			h.ip4.frag_off = htobe16(0x4000);
			h.ip4.ttl = test_v4.hop_limit;
			memcpy(&h.ip4.saddr, test_v4.sgid + 12, 4);
			memcpy(&h.ip4.daddr, test_v4.dgid + 12, 4);
			h.ip4.check = 0x1234; /* not looked at */
			h.ip4.check = ib_ud_ip4_csum(&h);
			assert_int_equal(ib_ud_header_pack(&h, mine), bytes);
			assert_memory_equal(mine, wire, bytes);
		}
	}
}

static void roce_v2__over_ipv6_as_our_wire_has_it(void **state)
{
	static const struct roce_flow flow = {
		.sgid = { 0xfe, 0x80, [8] = 1, 2, 3, 4, 5, 6, 7, 8 },
		.dgid = { 0x20, 0x01, 0x0d, 0xb8, [15] = 5 },
		.sport = 0xd001,
		.traffic_class = 0xa7,
		.hop_limit = 3,
		.flow_label = 0xfedcb,
	};

	(void)state;
	for (u32 payload = 0; payload < 9; payload++) {
		u8 mine[TEST_LONGEST], wire[TEST_LONGEST];
		struct ib_ud_header h;
		u32 bytes = test_wire(&flow, payload, false, wire);

		assert_int_equal(ib_ud_header_init((int)payload, 0, 0, 0, 1, 6, 1, 0, &h), 0);
		test_transport(&h);
		test_udp(&h, &flow);
		h.grh.traffic_class = flow.traffic_class;
		h.grh.flow_label = htobe32(flow.flow_label);
		h.grh.hop_limit = flow.hop_limit;
		memcpy(h.grh.source_gid.raw, flow.sgid, 16);
		memcpy(h.grh.destination_gid.raw, flow.dgid, 16);
		assert_int_equal(ib_ud_header_pack(&h, mine), bytes);
		assert_memory_equal(mine, wire, bytes);
	}
}

static void roce_v2__udp_needs_ip(void **state)
{
	struct ib_ud_header h;

	(void)state;
	assert_int_equal(ib_ud_header_init(4, 0, 1, 0, 1, 0, 1, 0, &h), -EINVAL);
	assert_int_equal(ib_ud_header_init(4, 0, 1, 0, 1, 5, 1, 0, &h), -EINVAL);
}

static void ethernet__a_tag_lies_between_addresses_and_network(void **state)
{
	static const u8 front[] = { 1, 2, 3, 4, 5, 6, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
				    0x81, 0x00, 0x20, 0x07, 0x89, 0x15 };
	u8 out[TEST_LONGEST];
	struct ib_ud_header h;

	(void)state;
	assert_int_equal(ib_ud_header_init(256, 0, 1, 1, 1, 0, 0, 0, &h), 0);
	memcpy(h.eth.dmac_h, front, 4);
	memcpy(h.eth.dmac_l, front + 4, 2);
	memcpy(h.eth.smac_h, front + 6, 2);
	memcpy(h.eth.smac_l, front + 8, 4);
	h.vlan.tag = htobe16(0x2007);
	h.vlan.type = htobe16(0x8915);
	assert_int_equal(ib_ud_header_pack(&h, out), 14 + 4 + 40 + 12 + 8);
	assert_memory_equal(out, front, sizeof(front));
	assert_int_equal(out[18], 0x60); /* GRH */
	assert_int_equal(out[18 + 4] << 8 | out[18 + 5], 12 + 8 + 256 + 4);
	assert_int_equal(out[18 + 6], 0x1b);
}

/* Written down from the figures of the specification, not by our tables. */
static void infiniband__each_field_lies_where_the_specification_says(void **state)
{
	static const u8 expected[] = {
		0x70, 0x53, 0x12, 0x34, 0x00, 0x13, 0xab, 0xcd, /* LRH: 19 words */
		0x6a, 0x7f, 0xed, 0xcb, 0x00, 36, 0x1b, 63, /* GRH */
		0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
		0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
		0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22,
		0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0x22,
		0x65, 0xf0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0x89, 0xab, 0xcd, /* BTH */
		0x80, 0x11, 0x22, 0x33, 0, 0xab, 0xcd, 0xef, /* DETH */
		1, 2, 3, 4, /* immediate data */
	};
	u8 out[TEST_LONGEST];
	struct ib_ud_header h, again;

	(void)state;
	/* Behind 8 + 40 + 12 + 8 + 4 bytes of headers: 5 of payload, 3 of padding, ICRC. */
	assert_int_equal(ib_ud_header_init(5, 1, 0, 0, 1, 0, 0, 1, &h), 0);
	test_transport(&h);
	h.bth.ack_req = 1;
	h.lrh.virtual_lane = 7;
	h.lrh.service_level = 5;
	h.lrh.destination_lid = htobe16(0x1234);
	h.lrh.source_lid = htobe16(0xabcd);
	h.grh.traffic_class = 0xa7;
	h.grh.flow_label = htobe32(0xfedcb);
	h.grh.hop_limit = 63;
	memset(h.grh.source_gid.raw, 0x11, 16);
	memset(h.grh.destination_gid.raw, 0x22, 16);
	assert_int_equal(be16toh(h.lrh.packet_length), (72 + 8 + 4) / 4);
	h.lrh.packet_length = htobe16(19);
	assert_int_equal(be16toh(h.grh.payload_length), 12 + 8 + 4 + 8 + 4);
	assert_int_equal(ib_ud_header_pack(&h, out), sizeof(expected));
	assert_memory_equal(out, expected, sizeof(expected));
	assert_int_equal(ib_ud_header_unpack(out, &again), 0);
	assert_memory_equal(&again, &h, sizeof(h));
}

static void infiniband__without_grh_and_immediate_data(void **state)
{
	u8 out[TEST_LONGEST] = { 0 };
	struct ib_ud_header h, again;

	(void)state;
	assert_int_equal(ib_ud_header_init(256, 1, 0, 0, 0, 0, 0, 0, &h), 0);
	test_transport(&h);
	h.immediate_data = 0;
	assert_int_equal(be16toh(h.lrh.packet_length), (8 + 12 + 8 + 256 + 4) / 4);
	assert_int_equal(ib_ud_header_pack(&h, out), 8 + 12 + 8);
	assert_int_equal(ib_ud_header_unpack(out, &again), 0);
	assert_memory_equal(&again, &h, sizeof(h));
}

/* Another bit at `at` makes it something else than a datagram. */
static void test_refused(u32 at, u8 flip)
{
	u8 out[TEST_LONGEST] = { 0 };
	struct ib_ud_header h;

	ib_ud_header_init(8, 1, 0, 0, 1, 0, 0, 0, &h);
	ib_ud_header_pack(&h, out);
	assert_int_equal(ib_ud_header_unpack(out, &h), 0);
	out[at] ^= flip;
	assert_int_equal(ib_ud_header_unpack(out, &h), -EINVAL);
}

static void unpack__refuses_what_is_no_datagram(void **state)
{
	(void)state;
	test_refused(0, 1);	  /* LRH's version */
	test_refused(1, 2);	  /* a raw packet */
	test_refused(8, 0x10);	  /* GRH's version */
	test_refused(14, 1);	  /* next header */
	test_refused(48, 0x60);	  /* an RC opcode */
	test_refused(48, 2);	  /* a reserved one */
	test_refused(49, 1);	  /* the transport's version */
}

static void opcodes__are_those_of_the_specification(void **state)
{
	(void)state;
	assert_int_equal(IB_OPCODE_RC_SEND_ONLY_WITH_INVALIDATE, 0x17);
	assert_int_equal(IB_OPCODE_UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 0x2b);
	assert_int_equal(IB_OPCODE_RD_RESYNC, 0x55);
	assert_int_equal(IB_OPCODE_UD_SEND_ONLY_WITH_IMMEDIATE, 0x65);
	/* The engine numbers them alike. */
	assert_int_equal(IB_OPCODE_RC_ATOMIC_ACKNOWLEDGE, PKT_ATOMIC_ACK);
	assert_int_equal(IB_OPCODE_RC_SEND_LAST_WITH_INVALIDATE, PKT_SEND_LAST_INV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_v2__over_ipv4_as_our_wire_has_it),
		cmocka_unit_test(roce_v2__over_ipv6_as_our_wire_has_it),
		cmocka_unit_test(roce_v2__udp_needs_ip),
		cmocka_unit_test(ethernet__a_tag_lies_between_addresses_and_network),
		cmocka_unit_test(infiniband__each_field_lies_where_the_specification_says),
		cmocka_unit_test(infiniband__without_grh_and_immediate_data),
		cmocka_unit_test(unpack__refuses_what_is_no_datagram),
		cmocka_unit_test(opcodes__are_those_of_the_specification),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
