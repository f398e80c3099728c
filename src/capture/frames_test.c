/* frames_test.c: local packets become frames that a wire could have carried: cut, numbered,
 * acknowledged; each is taken apart again by the receiver's own code. */
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "capture/capture.h"
#include "wire/lrh.h"
#include "wire/source.h"

enum { MTU = 1024, PATH = 16384, MAX_SEEN = 64, A = 0x4000, B = 0x8000 };

/* A frame, taken apart. */
struct seen {
	struct pkt p;
	struct roce_flow flow;
	bool commented, whole;
};

static struct test {
	struct frames m;
	struct seen seen[MAX_SEEN];
	u32 count;
} t;

static void test_take(void *arg, const struct frame *f)
{
	struct seen *s = &t.seen[t.count++];
	const u8 *ip = f->data + FRAME_ETHERNET;
	bool v4 = ip[0] >> 4 == 4;
	u32 headers = FRAME_ETHERNET + (v4 ? 28 : 48), payload;
	struct roce_source source = { 0 };

	assert_in_range(t.count, 1, MAX_SEEN);
	memset(&s->flow, 0, sizeof(s->flow));
	if (v4)
		s->flow.sgid[10] = s->flow.sgid[11] = s->flow.dgid[10] = s->flow.dgid[11] = 0xff;
	memcpy(v4 ? s->flow.sgid + 12 : s->flow.sgid, ip + (v4 ? 12 : 8), v4 ? 4 : 16);
	memcpy(v4 ? s->flow.dgid + 12 : s->flow.dgid, ip + (v4 ? 16 : 24), v4 ? 4 : 16);
	s->flow.sport = (u16)(f->data[headers - 8] << 8 | f->data[headers - 7]);
	s->whole = f->kept == f->length;
	s->commented = f->comment != NULL;
	if (!s->whole)
		return;
	assert_true(
		roce_icrc_matches(&source, &s->flow, f->data + headers, f->length - headers, 1));
	assert_int_equal(roce_unpack(f->data + headers, f->length - headers - ROCE_ICRC, &s->p,
				     &payload),
			 0);
}

static int test_setup(void **state)
{
	memset(&t, 0, sizeof(t));
	t.m.flows = flows_create();
	t.m.snaplen = 65535;
	t.m.emit = test_take;
	for (u8 i = 0; i < 4; i++) {
		t.m.gids[i][0] = 0xfe;
		t.m.gids[i][15] = i;
	}
	memset(t.m.gids[1], 0, 16);
	memcpy(t.m.gids[1] + 10, (const u8[]){ 0xff, 0xff, 10, 0, 0, 1 }, 6);
	return 0;
}

static int test_teardown(void **state)
{
	flows_destroy(t.m.flows);
	return 0;
}

/* Of frames of the fabric. */
static struct link {
	struct lrh h[4];
	struct pkt p[4];
	u8 grh[4][LRH_GRH];
	bool has_grh[4];
	u32 count;
} l;

static void link_take(void *arg, const struct frame *f)
{
	const u8 *at = f->data;
	u32 link = LRH_BYTES + ((at[1] & 3) == 3 ? LRH_GRH : 0), payload;
	u32 covered = f->length - LRH_VCRC;
	u16 crc = lrh_vcrc(at, covered);

	assert_int_equal(f->link, FRAME_LINK_INFINIBAND);
	assert_in_range(l.count, 0, 3);
	assert_int_equal(at[4] << 8 | at[5], covered / 4);
	l.h[l.count] = (struct lrh){ .slid = (u16)(at[6] << 8 | at[7]),
				     .dlid = (u16)(at[2] << 8 | at[3]),
				     .sl = at[1] >> 4,
				     .vl = at[0] >> 4 };
	l.has_grh[l.count] = link != LRH_BYTES;
	memcpy(l.grh[l.count], at + LRH_BYTES, LRH_GRH);
	assert_int_equal(
		roce_unpack(at + link, covered - link - ROCE_ICRC, &l.p[l.count], &payload), 0);
	if (f->kept == f->length) {
		assert_int_equal(at[covered], crc & 0xff);
		assert_int_equal(at[covered + 1], crc >> 8);
	}
	l.count++;
}

static void link_find_way(void *arg, const struct capture_lids *lids, struct frames_way *way)
{
	way->vl = lids->sl;
	memset(way->sgid, lids->slid, 16);
	memset(way->dgid, lids->dlid, 16);
}

static struct capture_record link_record(enum capture_kind kind, const struct pkt *p)
{
	memset(&l, 0, sizeof(l)); /* the GIDs come from find_way */
	t.m.emit = link_take;
	t.m.find_way = link_find_way;
	return (struct capture_record){ .kind = (u8)kind,
					.lids = { 2, 3, ROCE_PKEY_DEFAULT, 5, true },
					.mtu = MTU,
					.path_bytes = PATH,
					.parts = 1,
					.length = 9,
					.kept = 9,
					.total = 9,
					.pkt = *p };
}

/* A packet of a local path, as its records. */
static void test_local(enum capture_kind kind, const struct pkt *p, u64 length)
{
	struct capture_record r = { .kind = (u8)kind,
				    .sgid_index = 1,
				    .dgid_index = 1,
				    .mtu = MTU,
				    .path_bytes = PATH,
				    .parts = length == 0 ? 1 : (u32)((length + MTU - 1) / MTU),
				    .total = length,
				    .pkt = *p };

	for (; r.part < r.parts; r.part++) {
		r.length = r.kept = (u32)MIN(length - r.part * MTU, (u64)MTU);
		memset(r.data, (int)r.part, r.kept);
		frames_make(&t.m, &r);
	}
}

static struct pkt test_pkt(u8 opcode, u32 psn)
{
	return (struct pkt){ .opcode = opcode,
			     .qp_type = IBV_QPT_RC,
			     .sqpn = A,
			     .dqpn = B,
			     .psn = psn };
}

static struct pkt test_answer(u8 opcode, u32 psn)
{
	struct pkt p = test_pkt(opcode, psn);

	p.sqpn = B;
	p.dqpn = A;
	p.syndrome = AETH_ACK;
	p.msn = 1;
	return p;
}

static void test_expect(u32 i, u8 opcode, u32 psn)
{
	assert_in_range(i, 0, t.count - 1);
	assert_int_equal(t.seen[i].p.opcode, opcode);
	assert_int_equal(t.seen[i].p.psn, psn);
}

static void frames_make__small_packets_keep_their_numbers(void **state)
{
	struct pkt p = test_pkt(PKT_SEND_ONLY, 0xffffff), ack = test_answer(PKT_ACK, 0xffffff);

	test_local(CAPTURE_LOCAL, &p, 8);
	test_local(CAPTURE_LOCAL, &ack, 0);
	p.psn = 0;
	test_local(CAPTURE_LOCAL, &p, MTU);
	assert_int_equal(t.count, 3);
	test_expect(0, PKT_SEND_ONLY, 0xffffff);
	test_expect(1, PKT_ACK, 0xffffff);
	test_expect(2, PKT_SEND_ONLY, 0);
	assert_int_equal(t.seen[1].p.dqpn, A);
}

static void frames_make__cuts_a_packet(void **state)
{
	struct pkt p = test_pkt(PKT_SEND_ONLY_IMM, 100), ack = test_answer(PKT_ACK, 100);

	p.flags = PKT_SOLICITED | PKT_ACK_REQUEST;
	test_local(CAPTURE_LOCAL, &p, 2 * MTU + 5);
	test_local(CAPTURE_LOCAL, &ack, 0);
	p.psn = 101;
	test_local(CAPTURE_LOCAL, &p, 1);
	assert_int_equal(t.count, 5);
	test_expect(0, PKT_SEND_FIRST, 100);
	test_expect(1, PKT_SEND_MIDDLE, 101);
	test_expect(2, PKT_SEND_LAST_IMM, 102);
	test_expect(3, PKT_ACK, 102); /* the last frame's */
	test_expect(4, PKT_SEND_ONLY_IMM, 103);
	assert_int_equal(t.seen[0].p.flags, 0);
	assert_int_equal(t.seen[2].p.flags, PKT_SOLICITED | PKT_ACK_REQUEST);
	assert_int_equal(t.seen[2].p.length, 5);
}

static void frames_make__every_kind_of_packet_is_cut(void **state)
{
	static const u8 kinds[][4] = {
		{ PKT_SEND_FIRST, PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE },
		{ PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE },
		{ PKT_SEND_LAST, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_LAST },
		{ PKT_SEND_ONLY, PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST },
		{ PKT_SEND_LAST_INV, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_LAST_INV },
		{ PKT_SEND_ONLY_INV, PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST_INV },
		{ PKT_WRITE_FIRST, PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE },
		{ PKT_WRITE_LAST_IMM, PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE, PKT_WRITE_LAST_IMM },
		{ PKT_WRITE_ONLY, PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST },
		{ PKT_WRITE_ONLY_IMM, PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST_IMM },
	};

	for (u32 i = 0; i < ARRAY_LEN(kinds); i++) {
		struct pkt p = test_pkt(kinds[i][0], i);

		t.count = 0;
		test_local(CAPTURE_LOCAL, &p, 3 * MTU);
		assert_int_equal(t.count, 3);
		for (u32 k = 0; k < 3; k++)
			test_expect(k, kinds[i][k + 1], 3 * i + k);
	}
}

static void frames_make__a_repeated_packet_has_its_old_numbers(void **state)
{
	struct pkt p = test_pkt(PKT_WRITE_ONLY, 7), q = test_pkt(PKT_SEND_ONLY, 8);
	struct pkt rnr = test_answer(PKT_ACK, 7);

	rnr.syndrome = AETH_RNR | 3;
	test_local(CAPTURE_LOCAL, &p, 2 * MTU);
	test_local(CAPTURE_LOCAL, &q, 1);
	test_local(CAPTURE_LOCAL, &rnr, 0);
	test_local(CAPTURE_LOCAL, &p, 2 * MTU);
	test_local(CAPTURE_LOCAL, &q, 1);
	test_expect(2, PKT_SEND_ONLY, 9);
	test_expect(3, PKT_ACK, 7); /* what is refused begins there */
	test_expect(4, PKT_WRITE_FIRST, 7);
	test_expect(6, PKT_SEND_ONLY, 9);
}

/* Beyond a number of connections all begin anew, once: then each keeps its numbers again. */
static void frames_make__of_many_connections(void **state)
{
	enum { MANY = 5000 };
	struct pkt p = test_pkt(PKT_WRITE_ONLY, 7), q = test_pkt(PKT_SEND_ONLY, 8), other;

	for (u32 i = 0; i < MANY; i++) {
		other = test_pkt(PKT_SEND_ONLY, 1);
		other.sqpn = 0x1000 + i;
		test_local(CAPTURE_LOCAL, &other, 1);
		t.count = 0;
	}
	test_local(CAPTURE_LOCAL, &p, 2 * MTU);
	other.sqpn = 0x1000 + MANY;
	test_local(CAPTURE_LOCAL, &other, 1);
	test_local(CAPTURE_LOCAL, &q, 1);
	test_expect(0, PKT_WRITE_FIRST, 7);
	test_expect(2, PKT_SEND_ONLY, 1);
	test_expect(3, PKT_SEND_ONLY, 9);
}

static void frames_make__reads(void **state)
{
	struct pkt p = test_pkt(PKT_READ_REQUEST, 50), after = test_pkt(PKT_SEND_ONLY, 52);
	struct pkt one = test_answer(PKT_READ_FIRST, 50), two = test_answer(PKT_READ_LAST, 51);

	p.dma_length = PATH + 3;
	test_local(CAPTURE_LOCAL, &p, 0);
	test_local(CAPTURE_LOCAL, &after, 4);
	test_local(CAPTURE_LOCAL, &one, PATH);
	test_local(CAPTURE_LOCAL, &two, 3);
	assert_int_equal(t.count, 2 + 16 + 1);
	test_expect(0, PKT_READ_REQUEST, 50);
	test_expect(1, PKT_SEND_ONLY, 50 + 17); /* the response takes 17 */
	test_expect(2, PKT_READ_FIRST, 50);
	test_expect(17, PKT_READ_MIDDLE, 65);
	test_expect(18, PKT_READ_LAST, 66);
}

static void frames_make__a_copy_is_a_write_or_a_read(void **state)
{
	struct pkt p = test_pkt(PKT_SEND_ONLY, 10), ack = test_answer(PKT_ACK, 11);
	struct pkt w = test_pkt(PKT_WRITE_ONLY, 0), r = test_pkt(PKT_READ_ONLY, 0);

	w.dma_length = r.dma_length = 2 * MTU;
	w.rkey = r.rkey = 99;
	test_local(CAPTURE_LOCAL, &p, 4);
	test_local(CAPTURE_DIRECT, &w, 2 * MTU);
	test_local(CAPTURE_DIRECT, &r, 2 * MTU);
	p.psn = 11;
	test_local(CAPTURE_LOCAL, &p, 4);
	test_local(CAPTURE_LOCAL, &ack, 0);
	assert_int_equal(t.count, 9);
	test_expect(1, PKT_WRITE_FIRST, 11);
	test_expect(2, PKT_WRITE_LAST, 12);
	test_expect(3, PKT_ACK, 12);
	test_expect(4, PKT_READ_REQUEST, 13);
	test_expect(5, PKT_READ_FIRST, 13);
	test_expect(6, PKT_READ_LAST, 14);
	test_expect(7, PKT_SEND_ONLY, 15);
	test_expect(8, PKT_ACK, 15);
	assert_int_equal(t.seen[1].p.rkey, 99);
	assert_int_equal(t.seen[3].p.dqpn, A);
	assert_int_equal(t.seen[5].p.dqpn, A);
	assert_int_equal(t.seen[4].p.dma_length, 2 * MTU);
	assert_true(t.seen[3].commented);
	assert_int_equal(t.seen[8].p.msn, 1 + 2); /* the copies are messages, too */
}

static void frames_make__a_copy_of_uc_is_not_acknowledged(void **state)
{
	struct pkt w = test_pkt(PKT_WRITE_ONLY, 0);

	w.qp_type = IBV_QPT_UC;
	w.dma_length = 2 * MTU;
	test_local(CAPTURE_DIRECT, &w, 2 * MTU);
	assert_int_equal(t.count, 2);
	test_expect(0, PKT_WRITE_FIRST, 0);
	test_expect(1, PKT_WRITE_LAST, 1);
}

static void frames_make__an_acknowledgement_that_rides(void **state)
{
	struct pkt p = test_pkt(PKT_SEND_ONLY, 10), back = test_answer(PKT_SEND_ONLY, 500);

	test_local(CAPTURE_LOCAL, &p, 2 * MTU);
	back.flags = PKT_HAS_ACK;
	back.ack_psn = 10;
	test_local(CAPTURE_LOCAL, &back, 4);
	assert_int_equal(t.count, 4);
	test_expect(2, PKT_ACK, 11);
	test_expect(3, PKT_SEND_ONLY, 500);
	assert_int_equal(t.seen[2].p.dqpn, A);
}

static void frames_make__a_gap_stays_one(void **state)
{
	struct pkt p = test_pkt(PKT_SEND_ONLY, 10);

	test_local(CAPTURE_LOCAL, &p, 2 * MTU);
	p.psn = 14; /* three were not recorded */
	test_local(CAPTURE_LOCAL, &p, 4);
	test_expect(2, PKT_SEND_ONLY, 15);
}

static void frames_make__datagrams(void **state)
{
	static struct capture_record r = { .kind = CAPTURE_LOCAL,
					   .mtu = CAPTURE_MTU,
					   .parts = 1,
					   .length = 5,
					   .kept = 5 };

	r.pkt = (struct pkt){ .opcode = PKT_SEND_ONLY,
			      .qp_type = IBV_QPT_UD,
			      .flags = PKT_HAS_GRH,
			      .traffic_class = 0x20,
			      .qkey = 0x11111111,
			      .sqpn = A,
			      .dqpn = B,
			      .psn = 3 };
	memcpy(r.flow.sgid, t.m.gids[2], 16);
	memcpy(r.flow.dgid, t.m.gids[3], 16);
	frames_make(&t.m, &r);
	test_expect(0, PKT_SEND_ONLY, 3);
	assert_int_equal(t.seen[0].p.sqpn, A);
	assert_memory_equal(t.seen[0].flow.sgid, t.m.gids[2], 16);
	assert_memory_equal(t.seen[0].flow.dgid, t.m.gids[3], 16);
}

/* RFC 1112: of an IPv4 group 23 bits are in its Ethernet address. */
static void frames_make__a_group_has_its_ethernet_address(void **state)
{
	static const u8 group[16] = { [10] = 0xff, 0xff, 239, 0x81, 2, 3 };
	static const u8 mac[6] = { 0x01, 0x00, 0x5e, 0x01, 2, 3 };
	static struct capture_record r = { .kind = CAPTURE_LOCAL, .mtu = CAPTURE_MTU, .parts = 1 };

	r.pkt = (struct pkt){ .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_UD, .dqpn = B };
	memcpy(r.flow.sgid, t.m.gids[2], 16);
	memcpy(r.flow.dgid, group, 16);
	frames_make(&t.m, &r);
	assert_int_equal(t.count, 1);
	assert_memory_equal(t.m.frame.data, mac, sizeof(mac));
}

/* Numbers of GIDs name those of every device; one that is too great or empty is as good as none. */
static void frames_make__each_device_has_its_addresses(void **state)
{
	static const u8 v4[16] = { [10] = 0xff, 0xff, 10, 0, 0, 9 };
	static const u16 unknown[] = { CAPTURE_GIDS, CAPTURE_GIDS - 2, CAPTURE_NO_GID };
	struct capture_record r = {
		.kind = CAPTURE_LOCAL, .mtu = MTU, .path_bytes = PATH, .parts = 1, .sgid_index = 1
	};

	memcpy(t.m.gids[CAPTURE_GIDS - 1], v4, 16);
	r.pkt = test_pkt(PKT_SEND_ONLY, 1);
	r.dgid_index = CAPTURE_GIDS - 1;
	frames_make(&t.m, &r);
	assert_memory_equal(t.seen[0].flow.sgid, t.m.gids[1], 16);
	assert_memory_equal(t.seen[0].flow.dgid, v4, 16);
	for (u32 i = 0; i < ARRAY_LEN(unknown); i++) {
		r.dgid_index = unknown[i];
		frames_make(&t.m, &r);
		assert_memory_equal(t.seen[i + 1].flow.dgid, t.m.gids[1], 16);
	}
}

static void frames_make__what_has_no_wire_form_is_left_out(void **state)
{
	struct pkt p = test_pkt(PKT_ABSENT, 1), nak = test_answer(PKT_ACK, 1);

	nak.syndrome = AETH_NAK | NAK_CANNOT_PULL;
	test_local(CAPTURE_LOCAL, &p, 0);
	p.opcode = PKT_RESYNC;
	test_local(CAPTURE_LOCAL, &p, 0);
	p.opcode = 200;
	test_local(CAPTURE_LOCAL, &p, 0);
	test_local(CAPTURE_LOCAL, &nak, 0);
	test_local(CAPTURE_VOID, &nak, 0);
	assert_int_equal(t.count, 0);
}

static void frames_make__snaplen(void **state)
{
	struct pkt p = test_pkt(PKT_SEND_ONLY, 1);

	t.m.snaplen = 100;
	test_local(CAPTURE_LOCAL, &p, 500);
	test_local(CAPTURE_LOCAL, &p, 8);
	assert_int_equal(t.count, 2);
	assert_false(t.seen[0].whole);
	assert_true(t.seen[1].whole);
}

static void frames_make__of_the_fabric(void **state)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .sqpn = A, .dqpn = B };
	struct capture_record r = link_record(CAPTURE_LOCAL, &p);

	frames_make(&t.m, &r);
	r.lids.has_grh = 0;
	frames_make(&t.m, &r);
	assert_int_equal(l.count, 2);
	for (u32 i = 0; i < 2; i++) {
		assert_int_equal(l.h[i].slid, 2);
		assert_int_equal(l.h[i].dlid, 3);
		assert_int_equal(l.h[i].sl, 5);
		assert_int_equal(l.h[i].vl, 5);
		assert_int_equal(l.p[i].dqpn, B);
	}
	assert_true(l.has_grh[0]);
	assert_false(l.has_grh[1]);
	assert_int_equal(l.grh[0][8], 2);
	assert_int_equal(l.grh[0][39], 3);
}

/* What goes back has the addresses the other way round. */
static void frames_make__a_copy_in_the_fabric(void **state)
{
	struct pkt p = { .opcode = PKT_READ_ONLY,
			 .qp_type = IBV_QPT_RC,
			 .sqpn = A,
			 .dqpn = B,
			 .dma_length = 9 };
	struct capture_record r = link_record(CAPTURE_DIRECT, &p);

	frames_make(&t.m, &r);
	assert_int_equal(l.count, 2);
	assert_int_equal(l.p[0].opcode, PKT_READ_REQUEST);
	assert_int_equal(l.h[0].slid, 2);
	assert_int_equal(l.p[1].opcode, PKT_READ_ONLY);
	assert_int_equal(l.h[1].slid, 3);
	assert_int_equal(l.h[1].dlid, 2);
	assert_int_equal(l.grh[1][8], 3);
}

static void frames_make__an_smp(void **state)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_UD, .sqpn = 0, .dqpn = 0 };
	struct capture_record r = link_record(CAPTURE_LOCAL, &p);

	r.mtu = r.length = r.kept = 256;
	r.lids = (struct capture_lids){ .slid = 0xffff, .dlid = 0xffff, .pkey = 0xffff };
	frames_make(&t.m, &r);
	assert_int_equal(l.count, 1);
	assert_int_equal(l.h[0].vl, LRH_VL_SMP);
	assert_int_equal(l.h[0].dlid, 0xffff);
	r.kept = 64; /* the recorder has cut it: no CRC */
	frames_make(&t.m, &r);
	assert_int_equal(l.count, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, test_setup, test_teardown)
		CASE(frames_make__small_packets_keep_their_numbers),
		CASE(frames_make__cuts_a_packet),
		CASE(frames_make__every_kind_of_packet_is_cut),
		CASE(frames_make__a_repeated_packet_has_its_old_numbers),
		CASE(frames_make__of_many_connections),
		CASE(frames_make__reads),
		CASE(frames_make__a_copy_is_a_write_or_a_read),
		CASE(frames_make__an_acknowledgement_that_rides),
		CASE(frames_make__a_gap_stays_one),
		CASE(frames_make__datagrams),
		CASE(frames_make__a_group_has_its_ethernet_address),
		CASE(frames_make__a_copy_of_uc_is_not_acknowledged),
		CASE(frames_make__each_device_has_its_addresses),
		CASE(frames_make__what_has_no_wire_form_is_left_out),
		CASE(frames_make__snaplen),
		CASE(frames_make__of_the_fabric),
		CASE(frames_make__a_copy_in_the_fabric),
		CASE(frames_make__an_smp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
