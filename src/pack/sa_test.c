/* sa_test.c: the records of subnet administration, and the address vectors of paths and groups. */
#include <endian.h>
#include <errno.h>
#include <rdma/ib_sa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/test_support/fake_device.h"
#include "pack/pack.h"

static void inform__each_field_lies_where_the_specification_says(void **state)
{
	static const u8 tail[] = {
		0x12, 0x34, 0x56, 0x78, /* LIDs */
		0, 0, 1, 1, /* generic, subscribe */
		0x00, 0x04, 0x00, 0x40, /* type, trap 64 */
		0x00, 0x00, 0x01, 0x13, /* QPN, response time */
		0, 0x01, 0x02, 0x03, /* producer */
	};
	struct ib_sa_inform rec = { .lid_range_begin = htobe16(0x1234),
				    .lid_range_end = htobe16(0x5678), .is_generic = 1,
				    .subscribe = 1, .type = htobe16(4), .trap_num = htobe16(64),
				    .qpn = htobe32(1), .resp_time = 19,
				    .producer_type = htobe32(0x10203) }, again;
	u8 out[IB_SA_INFORM_BYTES];

	(void)state;
	memset(rec.gid.raw, 0xd1, 16);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_inform(&rec, out);
	assert_memory_equal(out, rec.gid.raw, 16);
	assert_memory_equal(out + 16, tail, sizeof(tail));
	ib_sa_unpack_inform(out, &again);
	assert_int_equal(again.resp_time, 19);
	assert_int_equal(be32toh(again.producer_type), 0x10203);
}

static void notice__each_field_lies_where_the_specification_says(void **state)
{
	static const u8 head[] = {
		0x84, 0, 0, 4, /* generic, informational; a class manager */
		0, 0x42, 0x12, 0x34, /* trap 66, issuer */
		0x80, 3, /* toggle, count */
	};
	struct ib_sa_notice rec = { .is_generic = 1, .type = 4, .producer_type = htobe32(4),
				    .trap_num = htobe16(66), .issuer_lid = htobe16(0x1234),
				    .notice_toggle = 1, .notice_count = htobe16(3) }, again;
	u8 out[IB_SA_NOTICE_BYTES];

	(void)state;
	memset(rec.data.gid_event.gid.raw, 0xd1, 16);
	memset(rec.issuer_gid.raw, 0x51, 16);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_notice(&rec, out);
	assert_memory_equal(out, head, sizeof(head));
	assert_memory_equal(out + 16, rec.data.gid_event.gid.raw, 16);
	assert_memory_equal(out + 64, rec.issuer_gid.raw, 16);
	ib_sa_unpack_notice(out, &again);
	assert_memory_equal(&again.data, &rec.data, sizeof(rec.data));
	assert_int_equal(be16toh(again.notice_count), 3);
}

/* Written down from the figures of the specification, not by our tables. */
static void path__each_field_lies_where_the_specification_says(void **state)
{
	static const u8 head[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	static const u8 tail[] = {
		0x12, 0x34, 0x56, 0x78, /* LIDs */
		0x8a, 0xbc, 0xde, 63, /* raw traffic, flow label, hop limit */
		0x6a, 0x85, 0xff, 0xff, /* traffic class, reversible, 5 paths, P_Key */
		0xab, 0xc5, 0x84, 0x50, /* QoS class, SL, MTU = 4, rate < 16 */
		0xd2, 7, 0, 0, 0, 0, 0, 0, /* the best lifetime, preference */
	};
	struct ib_sa_path_rec path = { .service_id = htobe64(0x0102030405060708),
				       .dlid = htobe16(0x1234), .slid = htobe16(0x5678),
				       .raw_traffic = 1, .flow_label = htobe32(0xabcde),
				       .hop_limit = 63, .traffic_class = 0x6a, .reversible = 1,
				       .numb_path = 5, .pkey = htobe16(0xffff),
				       .qos_class = htobe16(0xabc), .sl = 5,
				       .mtu_selector = IB_SA_EQ, .mtu = 4,
				       .rate_selector = IB_SA_LT, .rate = 16,
				       .packet_life_time_selector = IB_SA_BEST,
				       .packet_life_time = 18, .preference = 7 }, again;
	u8 out[IB_SA_PATH_BYTES];

	(void)state;
	memset(path.dgid.raw, 0xd1, 16);
	memset(path.sgid.raw, 0x51, 16);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_path(&path, out);
	assert_memory_equal(out, head, sizeof(head));
	assert_memory_equal(out + 8, path.dgid.raw, 16);
	assert_memory_equal(out + 24, path.sgid.raw, 16);
	assert_memory_equal(out + 40, tail, sizeof(tail));
	ib_sa_unpack_path(out, &again);
	assert_int_equal(again.reversible, 1);
	assert_int_equal(again.raw_traffic, 1);
	assert_int_equal(again.numb_path, 5);
	assert_int_equal(again.packet_life_time_selector, IB_SA_BEST);
	assert_int_equal(be32toh(again.flow_label), 0xabcde);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_path(&again, out);
	assert_memory_equal(out + 40, tail, sizeof(tail));
}

static void mcmember__each_field_lies_where_the_specification_says(void **state)
{
	static const u8 tail[] = {
		0x80, 0x11, 0x22, 0x33, /* Q_Key */
		0xc0, 0x01, 0x83, 0x6a, /* MLID, MTU = 3, traffic class */
		0xff, 0xfe, 0x46, 0x92, /* P_Key, rate < 6, lifetime = 18 */
		0x7a, 0xbc, 0xde, 63, /* SL, flow label, hop limit */
		0xe5, 0x80, 0, 0, /* scope, join state, proxy */
	};
	struct ib_sa_mcmember_rec rec = { .qkey = htobe32(0x80112233), .mlid = htobe16(0xc001),
					  .mtu_selector = IB_SA_EQ, .mtu = 3,
					  .traffic_class = 0x6a, .pkey = htobe16(0xfffe),
					  .rate_selector = IB_SA_LT, .rate = 6,
					  .packet_life_time_selector = IB_SA_EQ,
					  .packet_life_time = 18, .sl = 7,
					  .flow_label = htobe32(0xabcde), .hop_limit = 63,
					  .scope = 0xe,
					  .join_state = IB_SA_FULL_MEMBER |
							IB_SA_SEND_ONLY_NON_MEMBER,
					  .proxy_join = 1 }, again;
	u8 out[IB_SA_MCMEMBER_BYTES];

	(void)state;
	memset(rec.mgid.raw, 0xd1, 16);
	memset(rec.port_gid.raw, 0x51, 16);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_mcmember(&rec, out);
	assert_memory_equal(out, rec.mgid.raw, 16);
	assert_memory_equal(out + 16, rec.port_gid.raw, 16);
	assert_memory_equal(out + 32, tail, sizeof(tail));
	ib_sa_unpack_mcmember(out, &again);
	assert_int_equal(again.proxy_join, 1);
	assert_int_equal(again.join_state, 5);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_mcmember(&again, out);
	assert_memory_equal(out + 32, tail, sizeof(tail));
}

static void service__each_field_lies_where_the_specification_says(void **state)
{
	struct ib_sa_service_rec rec = { .id = htobe64(0x0102030405060708),
					 .pkey = htobe16(0xffff), .lease = htobe32(0x11223344) };
	struct ib_sa_service_rec again;
	u8 out[IB_SA_SERVICE_BYTES];

	(void)state;
	memset(rec.gid.raw, 0x61, 16);
	memset(rec.key, 0x62, 16);
	memset(rec.name, 0x63, 64);
	memset(rec.data8, 0x64, 16);
	memset(rec.data16, 0x65, 16);
	memset(rec.data32, 0x66, 16);
	memset(rec.data64, 0x67, 16);
	memset(out, 0xee, sizeof(out));
	ib_sa_pack_service(&rec, out);
	assert_memory_equal(out, ((u8[]){ 1, 2, 3, 4, 5, 6, 7, 8 }), 8);
	assert_memory_equal(out + 24, ((u8[]){ 0xff, 0xff, 0, 0, 0x11, 0x22, 0x33, 0x44 }), 8);
	assert_int_equal(out[23], 0x61);
	assert_int_equal(out[32], 0x62);
	assert_int_equal(out[48], 0x63);
	assert_int_equal(out[111], 0x63);
	assert_int_equal(out[112], 0x64);
	assert_int_equal(out[128], 0x65);
	assert_int_equal(out[144], 0x66);
	assert_int_equal(out[160], 0x67);
	assert_int_equal(out[175], 0x67);
	ib_sa_unpack_service(out, &again);
	assert_int_equal(again.id, rec.id);
	assert_int_equal(again.lease, rec.lease);
	assert_memory_equal(again.name, rec.name, 64);
	assert_memory_equal(again.data64, rec.data64, 16);
}

static void comp_mask__is_in_network_order(void **state)
{
	static const u8 qos[] = { 0, 0, 0, 0, 0, 0, 0x40, 0 }, last[] = { 0, 0, 0, 0x10 };
	ib_sa_comp_mask mask = IB_SA_PATH_REC_QOS_CLASS;

	(void)state;
	assert_memory_equal(&mask, qos, 8);
	mask = IB_SA_SERVICE_REC_SERVICE_DATA64_1;
	assert_memory_equal(&mask, last, 4);
}

/* ---- address vectors ------------------------------------------------------------------------- */

static struct fake_device *fake;

static int setup(void **state)
{
	(void)state;
	fake = fake_create("fake%d");
	return ib_register_device(&fake->ib);
}

static int teardown(void **state)
{
	(void)state;
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static struct ib_sa_path_rec test_path(void)
{
	return (struct ib_sa_path_rec){ .dgid = { .raw = { 0xfe, [15] = 9 } },
					.sgid = fake->gids[1],
					.dlid = htobe16(0x1234),
					.slid = htobe16(0x5683),
					.flow_label = htobe32(0xabcde),
					.hop_limit = 1,
					.traffic_class = 0x6a,
					.sl = 5,
					.rate = IB_RATE_10_GBPS };
}

static void ah_from_path__ethernet_has_a_grh_always(void **state)
{
	struct ib_sa_path_rec path = test_path();
	struct ib_ah_attr ah;

	(void)state;
	assert_int_equal(ib_init_ah_from_path(&fake->ib, 1, &path, &ah), 0);
	assert_int_equal(ah.ah_flags, IB_AH_GRH);
	assert_int_equal(ah.grh.sgid_index, 1);
	assert_memory_equal(&ah.grh.dgid, &path.dgid, 16);
	assert_int_equal(ah.grh.flow_label, 0xabcde);
	assert_int_equal(ah.grh.hop_limit, 1);
	assert_int_equal(ah.grh.traffic_class, 0x6a);
	assert_int_equal(ah.port_num, 1);
	assert_int_equal(ah.static_rate, IB_RATE_10_GBPS);
	path.sgid.raw[0] = 0x77;
	ah.sl = 99;
	assert_int_equal(ib_init_ah_from_path(&fake->ib, 1, &path, &ah), -ENOENT);
	assert_int_equal(ib_init_ah_from_path(&fake->ib, 2, &path, &ah), -EINVAL);
	assert_int_equal(ah.sl, 99);
}

static void ah_from_path__infiniband_has_a_grh_beyond_the_subnet(void **state)
{
	struct ib_sa_path_rec path = test_path();
	struct ib_ah_attr ah;

	(void)state;
	fake->link_layer = IB_LINK_LAYER_INFINIBAND;
	assert_int_equal(ib_init_ah_from_path(&fake->ib, 1, &path, &ah), 0);
	assert_int_equal(ah.ah_flags, 0);
	assert_int_equal(ah.dlid, 0x1234);
	assert_int_equal(ah.src_path_bits, 3);
	assert_int_equal(ah.sl, 5);
	path.hop_limit = 2;
	assert_int_equal(ib_init_ah_from_path(&fake->ib, 1, &path, &ah), 0);
	assert_int_equal(ah.ah_flags, IB_AH_GRH);
}

static void ah_from_mcmember__leads_to_the_group(void **state)
{
	struct ib_sa_mcmember_rec rec = { .mgid = { .raw = { 0xff, 0x12, [15] = 3 } },
					  .port_gid = fake->gids[2],
					  .mlid = htobe16(0xc001),
					  .traffic_class = 0x6a,
					  .rate = IB_RATE_5_GBPS,
					  .sl = 2,
					  .flow_label = htobe32(0x12345),
					  .hop_limit = 4 };
	struct ib_ah_attr ah;

	(void)state;
	assert_int_equal(ib_init_ah_from_mcmember(&fake->ib, 1, &rec, &ah), 0);
	assert_memory_equal(&ah.grh.dgid, &rec.mgid, 16);
	assert_int_equal(ah.grh.sgid_index, 2);
	assert_int_equal(ah.grh.flow_label, 0x12345);
	assert_int_equal(ah.grh.hop_limit, 4);
	assert_int_equal(ah.dlid, 0xc001);
	assert_int_equal(ah.ah_flags, IB_AH_GRH);
	rec.port_gid.raw[0] = 0x77;
	assert_int_equal(ib_init_ah_from_mcmember(&fake->ib, 1, &rec, &ah), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inform__each_field_lies_where_the_specification_says),
		cmocka_unit_test(notice__each_field_lies_where_the_specification_says),
		cmocka_unit_test(path__each_field_lies_where_the_specification_says),
		cmocka_unit_test(mcmember__each_field_lies_where_the_specification_says),
		cmocka_unit_test(service__each_field_lies_where_the_specification_says),
		cmocka_unit_test(comp_mask__is_in_network_order),
		cmocka_unit_test_setup_teardown(ah_from_path__ethernet_has_a_grh_always, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			ah_from_path__infiniband_has_a_grh_beyond_the_subnet, setup, teardown),
		cmocka_unit_test_setup_teardown(ah_from_mcmember__leads_to_the_group, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
