/* udp_test.c: two paths over real loopback sockets, and a bare socket that sends what no path
 * would. */
#include "path/udp/test_support/world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/process_test.h"
#include "node/datagram.h"
#include "wire/roce.h"

/* ---- there and back ---- */

static void send__arrives_as_it_was(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17)), *back;
	u8 data[] = "a payload in pieces";
	struct iovec iov[] = { { data, 2 }, { data + 2, 0 }, { data + 2, 5 }, { data + 7, 12 } };
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 0xfffffe, 19);

	p.opcode = PKT_SEND_ONLY_IMM;
	p.imm = 0x01020304;
	p.flags = PKT_ACK_REQUEST | PKT_SOLICITED;
	assert_int_equal(side[0].path->ops->send(d, &p, iov, 4), 0);
	assert_int_equal(side[1].count, 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	assert_int_equal(side[1].got[0].opcode, PKT_SEND_ONLY_IMM);
	assert_int_equal(side[1].got[0].qp_type, IBV_QPT_RC);
	assert_int_equal(side[1].got[0].dqpn, side_qpn_of(SLOT_B, 17));
	assert_int_equal(side[1].got[0].psn, 0xfffffe);
	assert_int_equal(side[1].got[0].imm, 0x01020304);
	assert_int_equal(side[1].got[0].flags & (PKT_ACK_REQUEST | PKT_SOLICITED),
			 PKT_ACK_REQUEST | PKT_SOLICITED);
	assert_int_equal(side[1].got[0].length, 19);
	assert_memory_equal(side[1].data[0], data, 19);
	assert_memory_equal(side[1].sgid, side[0].gid, 16);
	assert_memory_equal(side[1].dgid, side[1].gid, 16);
	assert_int_equal(side[1].batches, 1);
	/* the source is the destination of the way back, and nobody else's */
	back = dest_to(&side[1], &side[0], side_qpn_of(SLOT_A, 1));
	assert_true(side[1].path->ops->same(back, side[1].from));
	assert_false(side[1].path->ops->same(dest_to(&side[1], &side[1], 2), side[1].from));
}

/* DSCP, with and without ECT(0), which is what the sockets say by themselves. */
static void send__says_traffic_class_and_hops(void **state)
{
	static const u8 classes[] = { 0, PATH_ECN_CAPABLE, 0x68, 0x68 | PATH_ECN_CAPABLE };

	for (u32 i = 0; i < ARRAY_LEN(classes); i++) {
		struct path_av av = { .hop_limit = 3, .traffic_class = classes[i] };
		struct path_dest *d;

		memcpy(av.sgid, side[0].gid, 16);
		memcpy(av.dgid, side[1].gid, 16);
		d = side[0].path->ops->dest_get(side[0].path, &av, side_qpn_of(SLOT_B, 17));
		assert_int_equal(send_one(&side[0], d, i, 8), 0);
		side[0].path->ops->flush(d);
		receive(&side[1], i + 1);
		assert_int_equal(side[1].got[i].traffic_class, classes[i]);
		assert_int_equal(side[1].got[i].hop_limit, 3);
	}
}

static void flush__hands_over_equal_packets_as_one(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	for (u32 i = 0; i < 15; i++)
		assert_int_equal(send_one(&side[0], d, i, 4096), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 15);
	for (u32 i = 0; i < 15; i++)
		check_packet(&side[1], i, i, 4096);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
	assert_int_equal(side[0].counters[COUNT_TX_PACKETS], 15);
}

static void flush__keeps_order_among_many_lengths(void **state)
{
	static const u32 lengths[] = { 0,    1,	   1, 2,    64,	  64, 64, 63, 64,
				       1024, 1024, 3, 4096, 4096, 5,  5,  4 };
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	u32 n = (u32)ARRAY_LEN(lengths);

	for (u32 i = 0; i < 5 * n; i++)
		assert_int_equal(send_one(&side[0], d, i, lengths[i % n]), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 5 * n);
	for (u32 i = 0; i < 5 * n; i++)
		check_packet(&side[1], i, i, lengths[i % n]);
}

static void send__hands_over_what_fills_a_batch(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	for (u32 i = 0; i < 200; i++)
		assert_int_equal(send_one(&side[0], d, i, 32), 0);
	receive(&side[1], 192);
	side[0].path->ops->flush(d);
	receive(&side[1], 200);
	for (u32 i = 0; i < 200; i++)
		check_packet(&side[1], i, i, 32);
}

static void send__refuses_what_has_no_wire_form(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 0, 0);

	p.opcode = PKT_ABSENT;
	assert_int_equal(side[0].path->ops->send(d, &p, NULL, 0), -EINVAL);
	/* and the batch is as it was */
	assert_int_equal(send_one(&side[0], d, 1, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	check_packet(&side[1], 0, 1, 8);
}

/* ---- who looks, and when ---- */

static void poll__looks_only_with_a_reason(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	assert_int_equal(send_one(&side[0], d, 1, 8), 0);
	side[0].path->ops->flush(d);
	/* nobody holds a destination there, and nothing has come */
	for (int i = 0; i < 1000; i++)
		assert_int_equal(side[1].path->ops->poll(side[1].path, 16, false), 0);
	udp_look(side[1].udp);
	assert_int_equal(side[1].path->ops->poll(side[1].path, 16, false), 1);
	/* from now on polls look by themselves for a while */
	assert_int_equal(send_one(&side[0], d, 2, 8), 0);
	side[0].path->ops->flush(d);
	for (int i = 0; i < 1000 && side[1].count < 2; i++)
		side[1].path->ops->poll(side[1].path, 16, false);
	assert_int_equal(side[1].count, 2);
}

static void poll__gives_back_acknowledgements_when_idle(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	u32 batches;

	assert_int_equal(send_one(&side[0], d, 1, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	__atomic_store_n(&side[1].from->acks_owed, true, __ATOMIC_RELAXED);
	assert_int_equal(send_one(&side[0], d, 2, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 2);
	batches = side[1].batches;
	for (int i = 0; i < 1000 && side[1].batches == batches; i++)
		side[1].path->ops->poll(side[1].path, 16, false);
	assert_int_equal(side[1].batches, batches + 1);
}

/* ---- what is dropped, and counted ---- */

static void dest_nowhere__is_unreachable(void **state)
{
	struct path_dest *d = side[0].path->ops->dest_nowhere(side[0].path);

	assert_int_equal(send_one(&side[0], d, 1, 8), -ENETUNREACH);
	assert_int_equal(side[0].path->ops->resolve(d), -ENETUNREACH);
	side[0].path->ops->dest_put(d);
}

static void refresh__follows_the_address(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	side[0].absent = true;
	udp_refresh(side[0].udp);
	assert_false(udp_has_source(side[0].udp, side[0].gid));
	assert_int_equal(send_one(&side[0], d, 1, 8), -ENETUNREACH);
	side[0].absent = false;
	udp_refresh(side[0].udp);
	assert_int_equal(send_one(&side[0], d, 2, 8), 0);
	side[0].path->ops->flush(d);
	/* asked again without a change: the sockets stay */
	udp_refresh(side[0].udp);
	udp_refresh(side[1].udp);
	receive(&side[1], 1);
	assert_int_equal(send_one(&side[0], d, 3, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 2);
}

/* A datagram by hand, from another port. */
static void send_raw_from(const u8 gid[16], const u8 *data, size_t length)
{
	struct sockaddr_in from = { .sin_family = AF_INET }, to = from;
	int fd = socket(AF_INET, SOCK_DGRAM, 0), probe = IP_PMTUDISC_PROBE;

	assert_true(fd >= 0);
	memcpy(&from.sin_addr, gid + 12, 4);
	from.sin_port = htons(40000);
	memcpy(&to.sin_addr, side[1].gid + 12, 4);
	to.sin_port = htons(ROCE_PORT);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
	assert_int_equal(sendto(fd, data, length, 0, (struct sockaddr *)&to, sizeof(to)), length);
	close(fd);
}

static void send_raw(const u8 *data, size_t length)
{
	send_raw_from(side[0].gid, data, length);
}

/* Packs `p` with 8 bytes of payload and a right ICRC, but for what `change` did to the headers. */
static u32 make_raw_from(const u8 gid[16], u8 *out, const struct pkt *p,
			 void (*change)(u8 *headers))
{
	struct roce_flow flow = { .sport = 40000, .df = true };
	u32 headers = (u32)roce_pack(p, out), icrc;

	memcpy(flow.sgid, gid, 16);
	memcpy(flow.dgid, side[1].gid, 16);
	pattern(out + headers, p->length, p->psn);
	if (change != NULL)
		change(out);
	icrc = roce_icrc_begin(&flow, headers + p->length + ROCE_ICRC, out, headers);
	icrc = roce_icrc_add(icrc, out + headers, p->length);
	roce_icrc_end(icrc, 0, out + headers + p->length);
	return headers + p->length + ROCE_ICRC;
}

static u32 make_raw(u8 *out, const struct pkt *p, void (*change)(u8 *headers))
{
	return make_raw_from(side[0].gid, out, p, change);
}

static void expect_drop(enum path_counter counter, u64 count)
{
	struct pollfd p = { .fd = udp_wait_fd(side[1].udp), .events = POLLIN };

	for (int i = 0; i < 100 && side[1].counters[counter] < count; i++) {
		poll(&p, 1, 10);
		udp_look(side[1].udp);
		side[1].path->ops->poll(side[1].path, 16, false);
	}
	assert_int_equal(side[1].counters[counter], count);
	assert_int_equal(side[1].count, 0);
}

static void receive__right_by_hand(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	send_raw(data, make_raw(data, &p, NULL));
	receive(&side[1], 1);
	check_packet(&side[1], 0, 3, 8);
}

/* Datagrams that come one at a time are taken so; a crowd after them is one batch again. */
static void receive__a_crowd_after_lonely_ones(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	u32 psn = 0, batches;

	for (; psn < 8; psn++) {
		assert_int_equal(send_one(&side[0], d, psn, 8), 0);
		side[0].path->ops->flush(d);
		receive(&side[1], psn + 1);
	}
	assert_int_equal(side[1].batches, 8);
	for (; psn < 20; psn++) {
		assert_int_equal(send_one(&side[0], d, psn, 8), 0);
		side[0].path->ops->flush(d);
	}
	batches = side[1].batches;
	receive(&side[1], 20);
	assert_in_range(side[1].batches - batches, 1, 4);
	for (psn = 0; psn < 20; psn++)
		check_packet(&side[1], psn, psn, 8);
}

/* A message with an acknowledgement behind it, in one datagram. Polls until something has come, and
 * returns how much. */
static u32 take_pair(struct path_dest *d, u32 psn)
{
	struct pkt ack = { .opcode = PKT_ACK,
			   .qp_type = IBV_QPT_RC,
			   .dqpn = side_qpn_of(SLOT_B, 17),
			   .psn = psn + 1 };
	u32 before = side[1].count = 0;

	/* in vain, as in turn: who finds something each time takes more at once */
	side[1].path->ops->poll(side[1].path, 16, false);
	assert_int_equal(send_one(&side[0], d, psn, 8), 0);
	assert_int_equal(side[0].path->ops->send(d, &ack, NULL, 0), 0);
	side[0].path->ops->flush(d);
	for (int i = 0; i < 1000 && side[1].count == before; i++)
		side[1].path->ops->poll(side[1].path, 16, false);
	check_packet(&side[1], 0, psn, 8);
	return side[1].count;
}

/* Pairs until the acknowledgement of one waits, or so many. Returns whether one does. */
static bool take_until_one_waits(struct path_dest *d, u32 most)
{
	for (u32 psn = 0; psn < most; psn++)
		if (take_pair(d, psn) == 1)
			return true;
	return false;
}

static void receive__an_acknowledgement_behind_a_message_waits(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	u64 packets;

	side[1].count = 0;
	assert_int_equal(send_one(&side[0], d, 0, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	assert_false(take_until_one_waits(d, 200)); /* nobody else looks in */
	side[1].ticking = true;
	for (int i = 0; i < 40; i++) {
		assert_true(take_until_one_waits(d, 32));
		packets = side[1].counters[COUNT_RX_PACKETS];
		if (i % 2 == 0)
			assert_true(udp_look(side[1].udp)); /* though no socket has anything */
		assert_int_equal(side[1].path->ops->poll(side[1].path, 16, i % 4 == 1), 1);
		assert_int_equal(side[1].count, 2);
		assert_int_equal(side[1].got[1].opcode, PKT_ACK);
		assert_int_equal(side[1].counters[COUNT_RX_PACKETS], packets + 1);
		assert_false(udp_look(side[1].udp));
	}
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
	side[1].sleepers = 1;
	assert_false(take_until_one_waits(d, 200)); /* a consumer waits for no tick */
	side[1].sleepers = 0;
	side[1].ticking = false;
	assert_false(take_until_one_waits(d, 200));
}

static void receive__what_waits_goes_with_the_address(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	assert_int_equal(send_one(&side[0], d, 0, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	side[1].ticking = true;
	assert_true(take_until_one_waits(d, 200));
	side[1].absent = true;
	udp_refresh(side[1].udp);
	assert_int_equal(side[1].path->ops->poll(side[1].path, 16, true), 0);
	assert_int_equal(side[1].count, 1);
}

static void receive__wrong_icrc(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];
	u32 n = make_raw(data, &p, NULL);

	for (u32 at = ROCE_BTH; at < n; at++) { /* one bit of payload or ICRC each */
		data[at] ^= 0x10;
		send_raw(data, n);
		data[at] ^= 0x10;
	}
	expect_drop(COUNT_RX_ICRC, n - ROCE_BTH);
}

static void receive__truncated(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	make_raw(data, &p, NULL);
	for (u32 n = 1; n < ROCE_BTH + ROCE_ICRC; n++)
		send_raw(data, n);
	expect_drop(COUNT_RX_MALFORMED, ROCE_BTH + ROCE_ICRC - 1);
}

static void receive__nothing_at_all(void **state)
{
	send_raw((const u8 *)"", 0);
	expect_drop(COUNT_RX_MALFORMED, 1);
}

static void receive__oversize(void **state)
{
	static u8 data[60000];
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);

	make_raw(data, &p, NULL);
	send_raw(data, ROCE_UDP_MAX + 1);
	send_raw(data, sizeof(data));
	expect_drop(COUNT_RX_MALFORMED, 2);
}

static void change_pkey(u8 *headers)
{
	headers[2] ^= 0x01;
}

static void receive__wrong_pkey(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	send_raw(data, make_raw(data, &p, change_pkey));
	expect_drop(COUNT_RX_PKEY, 1);
}

static void change_opcode(u8 *headers)
{
	headers[0] = 0x1f;
}

static void receive__reserved_opcode(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	send_raw(data, make_raw(data, &p, change_opcode));
	expect_drop(COUNT_RX_OPCODE, 1);
}

static void receive__another_process_slot(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B + 1, 17), 3, 8);
	u8 data[256];

	send_raw(data, make_raw(data, &p, NULL));
	expect_drop(COUNT_RX_WRONG_SLOT, 1);
}

/* ---- datagrams of other users of this host ---- */

static void receive__from_an_own_address(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	expect_drop(COUNT_RX_WRONG_PEER, 1);
	assert_int_equal(side[1].strangers, 0);
}

/* ... or of a process of this node that has no other path: of a datagram its slot tells. */
static void receive__from_an_own_address_by_wire(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	side[1].wire_slot = WIRE_SLOT;
	p.qp_type = IBV_QPT_UD;
	p.sqpn = side_qpn_of(WIRE_SLOT + 1, 5);
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	expect_drop(COUNT_RX_WRONG_PEER, 1);
	p.sqpn = side_qpn_of(WIRE_SLOT, 5);
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	receive(&side[1], 1);
	/* the sender is known by now, and the next one may be another user */
	side[1].count = 0;
	p.sqpn = side_qpn_of(WIRE_SLOT + 1, 5);
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	expect_drop(COUNT_RX_WRONG_PEER, 2);
	/* connected queue pairs judge for themselves, also when that process has ended */
	side[1].wire_slot = 0;
	p = packet(side_qpn_of(SLOT_B, 17), 4, 8);
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	receive(&side[1], 1);
}

/* ... or from one that becomes an own address when its sender is known already. */
static void receive__from_an_address_that_becomes_own(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	p.qp_type = IBV_QPT_UD;
	p.sqpn = side_qpn_of(SLOT_A, 5);
	send_raw_from(side[0].gid, data, make_raw_from(side[0].gid, data, &p, NULL));
	receive(&side[1], 1);
	side[1].count = 0;
	side[1].both = true;
	udp_refresh(side[1].udp);
	send_raw_from(side[0].gid, data, make_raw_from(side[0].gid, data, &p, NULL));
	expect_drop(COUNT_RX_WRONG_PEER, 1);
	side[1].both = false;
	udp_refresh(side[1].udp);
	send_raw_from(side[0].gid, data, make_raw_from(side[0].gid, data, &p, NULL));
	receive(&side[1], 1);
}

/* A connection's packet comes first: its sender's datagrams are judged none the less. */
static void receive__from_an_own_address_behind_a_connection(void **state)
{
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	u8 data[256];

	side[1].wire_slot = WIRE_SLOT;
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	receive(&side[1], 1);
	side[1].count = 0;
	p.qp_type = IBV_QPT_UD;
	p.sqpn = side_qpn_of(WIRE_SLOT + 1, 5);
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	expect_drop(COUNT_RX_WRONG_PEER, 1);
	p.sqpn = side_qpn_of(WIRE_SLOT, 5);
	send_raw_from(side[1].gid, data, make_raw_from(side[1].gid, data, &p, NULL));
	receive(&side[1], 1);
}

/* A MAD that the node has passed on. */
static bool unpack_mad(const u8 sgid[16], u16 sport)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_UD, .dqpn = 1, .sqpn = 1 }, q;
	struct node_mad m = { .sport = sport };
	struct roce_flow flow;
	const u8 *payload;
	u32 headers, icrc;

	memcpy(m.sgid, sgid, 16);
	memcpy(m.dgid, side[1].gid, 16);
	p.length = 256;
	headers = (u32)roce_pack(&p, m.payload);
	flow = datagram_flow(&m);
	icrc = roce_icrc_begin(&flow, sizeof(m.payload), m.payload, headers);
	icrc = roce_icrc_add(icrc, m.payload + headers, p.length);
	roce_icrc_end(icrc, 0, m.payload + headers + p.length);
	return udp_unpack_mad(side[1].udp, &m, &q, &payload);
}

/* The node itself speaks for processes that have ended. */
static void unpack_mad__from_an_own_address(void **state)
{
	assert_true(unpack_mad(side[0].gid, 40000));
	assert_false(unpack_mad(side[1].gid, 40000));
	assert_int_equal(side[1].counters[COUNT_RX_WRONG_PEER], 1);
	assert_true(unpack_mad(side[1].gid, NODE_UDP_PORT));
	side[1].wire_slot = WIRE_SLOT;
	assert_true(unpack_mad(side[1].gid, 40000));
}

/* ---- datagrams from anywhere ---- */

enum { STRANGERS = 4000, STRANGERS_BETWEEN = 100, STRANGER_MOST_BYTES = 6 << 20 };

static u64 counted(void)
{
	return side[1].counters[COUNT_RX_PACKETS] + side[1].counters[COUNT_RX_ICRC] +
	       side[1].strangers;
}

/* Until so much has been counted. */
static void take_strangers(u64 count)
{
	struct pollfd p = { .fd = udp_wait_fd(side[1].udp), .events = POLLIN };

	while (counted() < count && poll(&p, 1, 1000) > 0) {
		udp_look(side[1].udp);
		side[1].path->ops->poll(side[1].path, 1000, false);
	}
	assert_true(counted() >= count);
}

/* A good packet from side 0 arrives. */
static void send_good(struct path_dest *d, u32 psn)
{
	side[1].count = 0;
	assert_int_equal(send_one(&side[0], d, psn, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	check_packet(&side[1], 0, psn, 8);
}

/* A datagram from each of many addresses, with good traffic in between. Returns by how much the
 * heap has grown. Side 1 is connected with side 0. */
static s64 flood(bool right)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	struct pkt p = packet(side_qpn_of(SLOT_B, 17), 3, 8);
	bool deaf = side[1].deaf;
	u32 n, asked;
	u8 gid[16], data[256];
	u64 before = 0;

	dest_to(&side[1], &side[0], side_qpn_of(SLOT_A, 17));
	side_gid(gid, 0);
	gid[13]++;
	side[1].deaf = false;
	for (u32 psn = 0; psn < 8; psn++)
		send_good(d, psn);
	side[1].deaf = deaf;
	asked = side[1].strangers;
	for (u32 i = 0; i < STRANGERS; i++) {
		if (i == STRANGERS_BETWEEN)
			before = mallinfo2().uordblks;
		gid[14] = (u8)(i >> 8);
		gid[15] = (u8)i;
		n = make_raw_from(gid, data, &p, NULL);
		data[n - 1] ^= right ? 0 : 0xff;
		data[n - 3] ^= right ? 0 : 0xa5;
		send_raw_from(gid, data, n);
		side[1].count = 0;
		take_strangers(counted() + 1);
		if (i % STRANGERS_BETWEEN == STRANGERS_BETWEEN - 1)
			send_good(d, i);
	}
	/* who is connected with us never became a stranger */
	assert_int_equal(side[1].strangers - asked, right ? STRANGERS : 0);
	return (s64)(mallinfo2().uordblks - before);
}

static void strangers__with_a_wrong_icrc_leave_nothing(void **state)
{
	assert_int_equal(flood(false), 0);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], STRANGERS);
}

static void strangers__that_nobody_awaits_leave_nothing(void **state)
{
	side[1].deaf = true;
	assert_int_equal(flood(true), 0);
}

static void strangers__that_are_taken_leave_little(void **state)
{
	s64 grown = flood(true);

	print_message("%d sources: %ld bytes\n", STRANGERS, (long)grown);
	assert_in_range(grown, 0, STRANGER_MOST_BYTES);
}

/* ---- multicast ---- */

/* A group of this test's own. */
static void test_group(u8 gid[16])
{
	side_gid(gid, 7);
	gid[12] = 239;
}

static struct path_dest *group_to(struct side *s)
{
	struct path_av av = { .hop_limit = 1 };

	memcpy(av.sgid, s->gid, 16);
	test_group(av.dgid);
	return udp_group_dest(s->udp, &av);
}

static int send_to_group(struct side *s, u32 psn)
{
	struct path_dest *d = group_to(s);
	struct pkt p = packet(UDP_GROUP_QPN, psn, 8);
	u8 data[8];
	struct iovec iov = { data, 8 };
	int err;

	assert_non_null(d);
	p.qp_type = IBV_QPT_UD;
	p.sqpn = 77;
	pattern(data, 8, psn);
	err = s->path->ops->send(d, &p, &iov, 1);
	s->path->ops->flush(d);
	s->path->ops->dest_put(d);
	return err;
}

static void group__reaches_every_member(void **state)
{
	u8 gid[16];

	test_group(gid);
	assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 3)), 0);
	assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 4)), 0);
	assert_int_equal(send_to_group(&side[0], 1), 0);
	receive(&side[1], 2);
	for (u32 i = 0; i < 2; i++) {
		check_packet(&side[1], i, 1, 8);
		assert_int_equal(side[1].got[i].dqpn, side_qpn_of(SLOT_B, 3 + i));
		assert_int_equal(side[1].got[i].sqpn, 77);
		assert_true(side[1].got[i].flags & PKT_MULTICAST);
	}
	assert_memory_equal(side[1].dgid, gid, 16);
	assert_memory_equal(side[1].sgid, side[0].gid, 16);
	/* the sockets follow a change of addresses, and one member alone stays */
	udp_refresh(side[1].udp);
	udp_group_leave(side[1].udp, gid, side_qpn_of(SLOT_B, 3));
	assert_int_equal(send_to_group(&side[0], 2), 0);
	receive(&side[1], 3);
	assert_int_equal(side[1].got[2].dqpn, side_qpn_of(SLOT_B, 4));
	udp_group_leave(side[1].udp, gid, side_qpn_of(SLOT_B, 4));
	assert_int_equal(send_to_group(&side[0], 3), 0);
	assert_int_equal(send_to_group(&side[0], 4), 0);
	udp_look(side[1].udp);
	side[1].path->ops->poll(side[1].path, 16, true);
	assert_int_equal(side[1].count, 3);
}

/* Whatever socket it lies in, and although nobody's polls look any more. */
static void want_look__says_when_nothing_is_left(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	struct path *path = side[1].path;
	u8 gid[16];
	u64 emptied;

	test_group(gid);
	assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 3)), 0);
	path->ops->want_look(path);
	assert_int_equal(path->ops->poll(path, 16, false), 0);
	assert_int_equal(path_emptied(path), 1);
	assert_int_equal(path->ops->poll(path, 16, true), 0);
	assert_int_equal(path_emptied(path), 1);
	for (u32 i = 1; i < 40; i++) {
		assert_int_equal(send_one(&side[0], d, i, 8), 0);
		side[0].path->ops->flush(d);
		receive(&side[1], 2 * i - 1); /* there one looks first from now on */
		assert_int_equal(send_to_group(&side[0], i), 0);
		emptied = path_emptied(path);
		path->ops->want_look(path);
		assert_int_equal(path->ops->poll(path, 16, false), 1);
		assert_int_equal(side[1].count, 2 * i);
		assert_int_equal(path_emptied(path), emptied);
		assert_int_equal(path->ops->poll(path, 16, false), 0);
		assert_int_equal(path_emptied(path), emptied + 1);
	}
	udp_group_leave(side[1].udp, gid, side_qpn_of(SLOT_B, 3));
	side[0].path->ops->dest_put(d);
}

static void group__own_datagrams_pass_by(void **state)
{
	u8 gid[16];

	test_group(gid);
	assert_int_equal(udp_group_join(side[0].udp, gid, side_qpn_of(SLOT_A, 3)), 0);
	assert_int_equal(send_to_group(&side[0], 1), 0);
	assert_int_equal(send_to_group(&side[1], 2), 0);
	receive(&side[0], 1);
	assert_int_equal(side[0].got[0].psn, 2);
	udp_group_leave(side[0].udp, gid, side_qpn_of(SLOT_A, 3));
}

static struct rlimit limit_descriptors(rlim_t most)
{
	struct rlimit before, limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ MIN(most, before.rlim_max), before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return before;
}

/* Whatever the groups, a program can open its files. */
static void group__leaves_descriptors_to_the_application(void **state)
{
	enum { LIMIT = 256 };
	struct rlimit before = limit_descriptors(LIMIT);
	u32 most = udp_groups_most(side[1].udp);
	int file[LIMIT / 2];
	u8 gid[16];

	test_group(gid);
	gid[13] ^= 1;
	assert_true(most > 0 && most <= LIMIT / 4);
	for (u32 i = 0; i <= most; i++) {
		gid[15] = (u8)i;
		assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 3)),
				 i < most ? 0 : -ENOMEM);
	}
	for (int i = 0; i < LIMIT / 2; i++) {
		file[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_true(file[i] >= 0);
	}
	for (int i = 0; i < LIMIT / 2; i++)
		close(file[i]);
	for (u32 i = 0; i < most; i++) {
		gid[15] = (u8)i;
		udp_group_leave(side[1].udp, gid, side_qpn_of(SLOT_B, 3));
	}
	assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 3)), 0);
	udp_group_leave(side[1].udp, gid, side_qpn_of(SLOT_B, 3));
	setrlimit(RLIMIT_NOFILE, &before);
}

/* More than the sockets that a process has of the node; the last ones hear as the first do. */
static void group__as_many_as_one_wants(void **state)
{
	enum { GROUPS = 700 };
	u8 gid[16];

	limit_descriptors(RLIM_INFINITY);
	test_group(gid);
	gid[13] ^= 1;
	for (u32 i = 0; i < GROUPS; i++) {
		gid[14] = (u8)(i >> 8);
		gid[15] = (u8)i;
		assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 3)), 0);
	}
	test_group(gid); /* to which all of these tests send */
	assert_int_equal(udp_group_join(side[1].udp, gid, side_qpn_of(SLOT_B, 3)), 0);
	assert_int_equal(send_to_group(&side[0], 1), 0);
	receive(&side[1], 1);
	check_packet(&side[1], 0, 1, 8);
	udp_refresh(side[1].udp);
	assert_int_equal(send_to_group(&side[0], 2), 0);
	receive(&side[1], 2);
	udp_group_leave(side[1].udp, gid, side_qpn_of(SLOT_B, 3));
}

/* ---- many ---- */

static void dests__that_nobody_holds_are_forgotten(void **state)
{
	struct path_av av = { .hop_limit = 64 };

	memcpy(av.sgid, side[0].gid, 16);
	memcpy(av.dgid, side[1].gid, 16);
	for (u32 i = 0; i < 20000; i++) {
		struct path_dest *d;

		av.flow_label = i & 0xfffff;
		d = side[0].path->ops->dest_get(side[0].path, &av, side_qpn_of(SLOT_B, 1));
		assert_non_null(d);
		if (i % 100 == 0)
			assert_int_equal(send_one(&side[0], d, i, 8), 0);
		side[0].path->ops->flush(d);
		if (i % 64 == 0) {
			side[0].path->ops->poll(side[0].path, 16, true);
			udp_look(side[1].udp);
			side[1].path->ops->poll(side[1].path, 1000, false);
		}
		side[0].path->ops->dest_put(d);
	}
	receive(&side[1], 200);
}

static void drop_in_child__leaves_the_parents_alone(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));
	pid_t child = fork();

	if (child == 0) {
		udp_drop_in_child(side[0].udp);
		udp_drop_in_child(side[1].udp);
		_exit(0);
	}
	assert_int_equal(child_verdict(child), 0);
	assert_int_equal(send_one(&side[0], d, 1, 8), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(send__arrives_as_it_was),
		EACH(send__says_traffic_class_and_hops),
		EACH(flush__hands_over_equal_packets_as_one),
		EACH(flush__keeps_order_among_many_lengths),
		EACH(send__hands_over_what_fills_a_batch),
		EACH(send__refuses_what_has_no_wire_form),
		EACH(poll__looks_only_with_a_reason),
		EACH(poll__gives_back_acknowledgements_when_idle),
		EACH(dest_nowhere__is_unreachable),
		EACH(refresh__follows_the_address),
		EACH(receive__right_by_hand),
		EACH(receive__a_crowd_after_lonely_ones),
		EACH(receive__an_acknowledgement_behind_a_message_waits),
		EACH(receive__what_waits_goes_with_the_address),
		EACH(receive__wrong_icrc),
		EACH(receive__truncated),
		EACH(receive__nothing_at_all),
		EACH(receive__oversize),
		EACH(receive__wrong_pkey),
		EACH(receive__reserved_opcode),
		EACH(receive__another_process_slot),
		EACH(receive__from_an_own_address),
		EACH(receive__from_an_own_address_by_wire),
		EACH(receive__from_an_own_address_behind_a_connection),
		EACH(receive__from_an_address_that_becomes_own),
		EACH(unpack_mad__from_an_own_address),
		EACH(strangers__with_a_wrong_icrc_leave_nothing),
		EACH(strangers__that_nobody_awaits_leave_nothing),
		EACH(strangers__that_are_taken_leave_little),
		EACH(group__reaches_every_member),
		EACH(want_look__says_when_nothing_is_left),
		EACH(group__own_datagrams_pass_by),
		EACH(group__leaves_descriptors_to_the_application),
		EACH(group__as_many_as_one_wants),
		EACH(dests__that_nobody_holds_are_forgotten),
		EACH(drop_in_child__leaves_the_parents_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
