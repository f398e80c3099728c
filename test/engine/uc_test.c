/* uc_test.c: UC and UD on a path that loses packets: what arrives is whole, and after a gap the
 * next message is the first that arrives. */
#include "watch.h"

#include <string.h>

enum { MTU = 1024, FIRST_PSN = 100, SLOT = 16 << 10, RECEIVES = 100 };

struct uc {
	struct net net;
	struct ibt_qp *qp[2];
	struct watch watch;
};

static void uc_open(struct uc *u, const struct net_config *cfg, u32 rq_psn)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_UC);

	net_open(&u->net, cfg);
	q.rq_psn = rq_psn;
	net_pair(&u->net, u->qp, &q);
	watch_begin(&u->watch, &u->net);
	for (u32 i = 0; i < RECEIVES; i++)
		net_post_recv(&u->net.side[1], u->qp[1], i, i * SLOT, SLOT);
}

static void uc_close(struct uc *u)
{
	ibt_qp_destroy(u->qp[0]);
	ibt_qp_destroy(u->qp[1]);
	net_close(&u->net);
}

/* All bytes of message `id` are `id`. */
static void uc_send(struct uc *u, u32 id, u32 length)
{
	u8 *at = u->net.side[0].memory + id * SLOT;
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &u->net.side[0], IBV_WR_SEND_WITH_IMM, id, id * SLOT,
				       length);

	memset(at, (int)id, length);
	net_post(u->qp[0], &wr);
	assert_int_equal(net_wc(&u->net.side[0].send_cq).status, IBV_WC_SUCCESS);
}

/* The next message that has arrived, whole; UINT32_MAX: none. */
static u32 uc_received(struct uc *u, u32 length)
{
	struct ibv_wc wc;
	u8 *at;

	if (cq_pop(&u->net.side[1].recv_cq, 1, &wc) == 0)
		return UINT32_MAX;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, length);
	at = u->net.side[1].memory + wc.wr_id * SLOT;
	for (u32 i = 0; i < length; i++)
		assert_int_equal(at[i], (u8)wc.imm_data);
	return wc.imm_data;
}

static void uc__gap_drops_the_rest_of_the_message(void **state)
{
	static const u32 kinds[] = { OP(SEND_FIRST), OP(SEND_MIDDLE), OP(SEND_LAST_IMM) };

	for (u32 i = 0; i < ARRAY_LEN(kinds); i++) {
		static struct uc u;

		uc_open(&u, &(struct net_config){ .delay_ns = 10000 }, FIRST_PSN);
		u.watch.drop[0] =
			(struct watch_drop){ .opcodes = kinds[i], .first = 2, .count = 1 };
		for (u32 id = 0; id < 4; id++)
			uc_send(&u, id, 3 * MTU);
		net_run(&u.net, NS_PER_MS);
		assert_int_equal(uc_received(&u, 3 * MTU), 0);
		/* the second one lacks a packet */
		assert_int_equal(uc_received(&u, 3 * MTU), 2);
		assert_int_equal(uc_received(&u, 3 * MTU), 3);
		assert_int_equal(uc_received(&u, 3 * MTU), UINT32_MAX);
		assert_int_equal(watch_count(&u.watch, 1, OP_ALL), 0);
		uc_close(&u);
	}
}

static void uc__what_arrives_is_whole_and_in_order(void **state)
{
	for (u64 seed = 0; seed < 20; seed++) {
		struct net_config cfg = { .seed = seed,
					  .loss = 300,
					  .doubling = 500,
					  .late = 300,
					  .delay_ns = 10000,
					  .late_ns = 5000 };
		static struct uc u;
		u32 arrived = 0, id, next = 0;

		uc_open(&u, &cfg, FIRST_PSN);
		for (u32 i = 0; i < RECEIVES; i++) {
			uc_send(&u, i, 5 * MTU);
			net_run(&u.net, 500);
		}
		net_run(&u.net, NS_PER_S);
		for (; (id = uc_received(&u, 5 * MTU)) != UINT32_MAX; arrived++) {
			assert_true(id >= next);
			next = id + 1;
		}
		assert_in_range(arrived, RECEIVES / 4, RECEIVES - 1);
		uc_close(&u);
	}
}

/* Nobody has told the receiver where numbers begin. */
static void uc__follows_a_sender_that_begins_elsewhere(void **state)
{
	static const u32 rq_psn[] = { 0, FIRST_PSN + 1, FIRST_PSN + 5000, 0xffffff };

	for (u32 i = 0; i < ARRAY_LEN(rq_psn); i++) {
		static struct uc u;

		uc_open(&u, &(struct net_config){ .delay_ns = 10000 }, rq_psn[i]);
		uc_send(&u, 0, 8);
		uc_send(&u, 1, 2 * MTU);
		net_run(&u.net, NS_PER_MS);
		assert_int_equal(uc_received(&u, 8), 0);
		assert_int_equal(uc_received(&u, 2 * MTU), 1);
		uc_close(&u);
	}
}

static void uc__wrong_sizes_are_dropped(void **state)
{
	static u8 payload[8192];
	struct pkt p = { .qp_type = IBV_QPT_UC, .dqpn = 0x22, .psn = FIRST_PSN };
	static struct uc u;

	uc_open(&u, &(struct net_config){ .delay_ns = 10000 }, FIRST_PSN);
	p.opcode = PKT_SEND_ONLY;
	p.length = MTU + 1;
	net_inject(&u.net, 1, &p, payload);
	p.opcode = PKT_SEND_FIRST;
	p.length = MTU - 1;
	p.psn++;
	net_inject(&u.net, 1, &p, payload);
	assert_int_equal(u.net.side[1].counters[COUNT_RX_LENGTH], 2);
	assert_int_equal(ibt_qp_state(u.qp[1]), IBV_QPS_RTS);
	uc_send(&u, 1, 2 * MTU);
	net_run(&u.net, NS_PER_MS);
	assert_int_equal(uc_received(&u, 2 * MTU), UINT32_MAX); /* seen as sent already */
	uc_send(&u, 2, 2 * MTU);
	net_run(&u.net, NS_PER_MS);
	assert_int_equal(uc_received(&u, 2 * MTU), 2);
	uc_close(&u);
}

static void uc_write(struct uc *u, u32 id)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &u->net.side[0], IBV_WR_RDMA_WRITE, id, id * SLOT, 64);

	memset(u->net.side[0].memory + id * SLOT, (int)id, 64);
	net_wr_remote(&wr, &u->net.side[1], 0);
	net_post(u->qp[0], &wr);
	assert_int_equal(net_wc(&u->net.side[0].send_cq).status, IBV_WC_SUCCESS);
}

/* Of UC nobody is told what became of a packet: the receiver's counters alone say it. */
static void uc__what_is_refused_is_counted(void **state)
{
	static u8 payload[MTU];
	const struct {
		u8 opcode;
		u32 length, dma_length;
		bool wrong_key;
		enum path_counter counter;
	} wrong[] = { { PKT_WRITE_ONLY, 64, 64, true, COUNT_RX_REFUSED },
		      { PKT_WRITE_ONLY, 64, 63, false, COUNT_RX_REFUSED },
		      { PKT_WRITE_FIRST, MTU, 2 * MTU, true, COUNT_RX_REFUSED },
		      /* of no message any more */
		      { PKT_WRITE_MIDDLE, MTU, 0, false, COUNT_RX_PSN },
		      { PKT_WRITE_LAST, 8, 0, false, COUNT_RX_PSN },
		      { PKT_SEND_LAST, 8, 0, false, COUNT_RX_PSN },
		      { PKT_READ_REQUEST, 0, 8, false, COUNT_RX_OPCODE },
		      { PKT_FETCH_ADD, 0, 0, false, COUNT_RX_OPCODE } };
	struct pkt p = { .qp_type = IBV_QPT_UC, .dqpn = 0x22, .psn = FIRST_PSN };
	static struct uc u;

	uc_open(&u, &(struct net_config){ .delay_ns = 10000 }, FIRST_PSN);
	for (u32 i = 0; i < ARRAY_LEN(wrong); i++) {
		u64 before = u.net.side[1].counters[wrong[i].counter];

		p.opcode = wrong[i].opcode;
		p.length = wrong[i].length;
		p.dma_length = wrong[i].dma_length;
		p.va = (u64)(uintptr_t)u.net.side[1].memory;
		p.rkey = u.net.side[1].key ^ (wrong[i].wrong_key ? 1u : 0);
		net_inject(&u.net, 1, &p, payload);
		assert_int_equal(u.net.side[1].counters[wrong[i].counter], before + 1);
		if (wrong[i].counter != COUNT_RX_OPCODE)
			p.psn++;
	}
	assert_int_equal(ibt_qp_state(u.qp[1]), IBV_QPS_RTS);
	uc_close(&u);
}

/* Where the initiator may reach the peer's memory by itself, a WRITE may have had to go in packets
 * all the same: nobody says when that has arrived, so the next one may not overtake it. */
static void uc__write_overtakes_none_in_packets(void **state)
{
	struct net_config cfg = { .delay_ns = 10000, .reliable = true, .direct = true };
	static struct uc u;

	uc_open(&u, &cfg, FIRST_PSN);
	uc_write(&u, 1);
	assert_int_equal(u.net.side[1].memory[63], 1); /* by itself, at once */
	u.net.cfg.direct = false;
	uc_write(&u, 2);
	u.net.cfg.direct = true;
	uc_write(&u, 3);
	net_run(&u.net, NS_PER_MS);
	assert_int_equal(u.net.side[1].memory[0], 3);
	assert_int_equal(u.net.side[1].memory[63], 3);
	uc_close(&u);
}

/* A datagram is taken if it is one packet with the right Q_Key, for a queue pair that receives and
 * has a request; else it is dropped and counted. */
static void ud__drops_what_is_wrong(void **state)
{
	static const u8 gid[16] = { 0xfe, 0x80 };
	static u8 payload[8192];
	const struct {
		u8 opcode;
		u32 qkey, length;
		enum path_counter counter;
	} wrong[] = { { PKT_SEND_ONLY, 8, 100, COUNT_RX_QKEY },
		      { PKT_SEND_ONLY, 7, 4097, COUNT_RX_LENGTH },
		      { PKT_SEND_FIRST, 7, 100, COUNT_RX_OPCODE },
		      { PKT_WRITE_ONLY, 7, 100, COUNT_RX_OPCODE } };
	struct net_qp q = net_qp_defaults(IBV_QPT_UD);
	struct pkt p = { .qp_type = IBV_QPT_UD,
			 .flags = PKT_HAS_GRH,
			 .dqpn = 0x22,
			 .sqpn = 0x11,
			 .sgid = gid,
			 .dgid = gid };
	struct ibt_qp *qp;
	struct ibv_wc wc;
	struct net net;

	net_open(&net, &(struct net_config){ .delay_ns = 10000 });
	qp = net_qp_create(&net, 1, 0x22, &q);
	net_inject(&net, 1, &p, payload);
	assert_int_equal(net.side[1].counters[COUNT_RX_NOT_RECEIVING], 1);
	net_qp_datagrams(qp, 7, IBV_QPS_RTR);
	net_post_recv(&net.side[1], qp, 1, 0, SLOT);
	for (u32 i = 0; i < ARRAY_LEN(wrong); i++) {
		u64 before = net.side[1].counters[wrong[i].counter];

		p.opcode = wrong[i].opcode;
		p.qkey = wrong[i].qkey;
		p.length = wrong[i].length;
		net_inject(&net, 1, &p, payload);
		assert_int_equal(net.side[1].counters[wrong[i].counter], before + 1);
		assert_int_equal(cq_peek(&net.side[1].recv_cq, 1), 0);
	}
	p.opcode = PKT_SEND_ONLY;
	p.qkey = 7;
	p.length = 100;
	net_inject(&net, 1, &p, payload);
	wc = net_wc(&net.side[1].recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 140);
	assert_int_equal(wc.src_qp, 0x11);
	net_inject(&net, 1, &p, payload);
	assert_int_equal(net.side[1].counters[COUNT_RX_NO_WQE], 1);
	assert_int_equal(cq_peek(&net.side[1].recv_cq, 1), 0);
	ibt_qp_destroy(qp);
	net_close(&net);
}

static u32 ud_be16(const u8 *at)
{
	return (u32)at[0] << 8 | at[1];
}

/* Programs tell RoCEv2 from RoCEv1 by the next header, 17, and find lengths as on the wire: 8 bytes
 * of UDP, 12 of BTH, 8 of DETH, the immediate data, the payload with its padding, ICRC. */
static void ud__header_is_that_of_the_wire(void **state)
{
	static const u8 v6[16] = { 0xfd, [15] = 9 };
	static const u8 v4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 9 };
	static const struct {
		const u8 *gid;
		u8 opcode;
		u32 length, bytes;
	} cases[] = { { v6, PKT_SEND_ONLY, 0, 32 },	     { v6, PKT_SEND_ONLY, 5, 40 },
		      { v6, PKT_SEND_ONLY_IMM, 1024, 1060 }, { v4, PKT_SEND_ONLY, 0, 52 },
		      { v4, PKT_SEND_ONLY_IMM, 5, 64 },	     { v4, PKT_SEND_ONLY, 1024, 1076 } };
	static u8 payload[1024];
	struct net_qp q = net_qp_defaults(IBV_QPT_UD);
	struct ibt_qp *qp;
	struct net net;

	net_open(&net, &(struct net_config){ .delay_ns = 10000 });
	qp = net_qp_create(&net, 1, 0x22, &q);
	net_qp_datagrams(qp, 7, IBV_QPS_RTR);
	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		const u8 *at = net.side[1].memory;
		struct pkt p = { .qp_type = IBV_QPT_UD,
				 .flags = PKT_HAS_GRH,
				 .opcode = cases[i].opcode,
				 .length = cases[i].length,
				 .dqpn = 0x22,
				 .qkey = 7,
				 .hop_limit = 3,
				 .sgid = cases[i].gid,
				 .dgid = cases[i].gid };

		net_post_recv(&net.side[1], qp, i, 0, SLOT);
		net_inject(&net, 1, &p, payload);
		assert_int_equal(net_wc(&net.side[1].recv_cq).status, IBV_WC_SUCCESS);
		if (cases[i].gid == v6) {
			assert_int_equal(at[0] >> 4, 6);
			assert_int_equal(ud_be16(at + 4), cases[i].bytes);
			assert_int_equal(at[6], 17);
			assert_int_equal(at[7], 3);
			assert_memory_equal(at + 24, v6, 16);
			continue;
		}
		assert_int_equal(at[20], 0x45);
		assert_int_equal(ud_be16(at + 22), cases[i].bytes);
		assert_int_equal(at[28], 3);
		assert_int_equal(at[29], 17);
		assert_memory_equal(at + 36, v4 + 12, 4);
	}
	ibt_qp_destroy(qp);
	net_close(&net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uc__gap_drops_the_rest_of_the_message),
		cmocka_unit_test(uc__what_arrives_is_whole_and_in_order),
		cmocka_unit_test(uc__follows_a_sender_that_begins_elsewhere),
		cmocka_unit_test(uc__wrong_sizes_are_dropped),
		cmocka_unit_test(uc__what_is_refused_is_counted),
		cmocka_unit_test(uc__write_overtakes_none_in_packets),
		cmocka_unit_test(ud__drops_what_is_wrong),
		cmocka_unit_test(ud__header_is_that_of_the_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
