/* address_test.c: a datagram's address vector, from its sender to the receiver's completion. */
#include "net.h"

#include <string.h>

enum { ADDRESS_BYTES = 8, ADDRESS_QKEY = 7 };

struct address {
	struct net net;
	struct ibt_qp *from, *to;
};

/* What the next datagram's address handle says. */
static struct path_av address_next;

static bool address_av_of(struct ibv_ah *ah, u32 pd, struct path_av *av)
{
	*av = address_next;
	return true;
}

static struct ibt_qp *address_qp(struct net *net, int side, u32 qpn)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_UD);
	struct ibt_qp *qp = net_qp_create(net, side, qpn, &q);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .qkey = ADDRESS_QKEY };

	assert_int_equal(ibt_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_QKEY, NULL, NULL), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibt_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN, NULL, NULL), 0);
	return qp;
}

static void address_open(struct address *a)
{
	struct net_config cfg = { .seed = 1, .delay_ns = 1000, .reliable = true };

	net_open(&a->net, &cfg);
	a->from = address_qp(&a->net, 0, 0x11);
	a->to = address_qp(&a->net, 1, 0x22);
	address_next = (struct path_av){ .dgid = { 0xfe, 0x80, [15] = 2 },
					 .sgid = { 0xfe, 0x80, [15] = 1 },
					 .hop_limit = 9 };
}

static void address_close(struct address *a)
{
	ibt_qp_destroy(a->from);
	ibt_qp_destroy(a->to);
	net_close(&a->net);
}

static void address_send(struct address *a)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	memset(a->net.side[1].memory, 0xaa, 64);
	memset(a->net.side[0].memory, 0x5b, ADDRESS_BYTES);
	net_post_recv(&a->net.side[1], a->to, 2, 0, 64);
	wr = net_wr(&sge, &a->net.side[0], IBV_WR_SEND, 1, 0, ADDRESS_BYTES);
	wr.wr.ud.ah = (struct ibv_ah *)&sge; /* only its presence counts here */
	wr.wr.ud.remote_qpn = 0x22;
	wr.wr.ud.remote_qkey = ADDRESS_QKEY;
	assert_int_equal(ibt_post_send(a->from, &wr, &bad, address_av_of), 0);
	assert_int_equal(net_wc(&a->net.side[0].send_cq).status, IBV_WC_SUCCESS);
	net_run(&a->net, 10 * NS_PER_MS);
}

static struct ibv_wc address_receive(struct address *a)
{
	struct ibv_wc wc;

	address_send(a);
	wc = net_wc(&a->net.side[1].recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 40 + ADDRESS_BYTES);
	assert_int_equal(wc.src_qp, 0x11);
	assert_int_equal(a->net.side[1].memory[40], 0x5b);
	return wc;
}

static void address__without_lids(void **state)
{
	static struct address a;
	struct ibv_wc wc;

	address_open(&a);
	address_next.sl = 5;
	wc = address_receive(&a);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH);
	assert_int_equal(wc.sl, 1); /* RoCE: the 40 bytes are an IPv6 header */
	assert_int_equal(wc.slid, 0);
	assert_int_equal(wc.dlid_path_bits, 0);
	assert_int_equal(a.net.side[1].memory[0] >> 4, 6);
	assert_int_equal(a.net.side[1].memory[5], 8 + 12 + 8 + ADDRESS_BYTES + 4);
	assert_int_equal(a.net.side[1].memory[6], 17); /* UDP */
	address_close(&a);
}

static void address__lids_with_grh(void **state)
{
	static struct address a;
	struct ibv_wc wc;

	address_open(&a);
	ibt_qp_set_port(a.to, 0xffff, 3);
	address_next.dlid = 0x46;
	address_next.slid = 0x31;
	address_next.sl = 5;
	wc = address_receive(&a);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH);
	assert_int_equal(wc.sl, 5);
	assert_int_equal(wc.slid, 0x31);
	assert_int_equal(wc.dlid_path_bits, 2);
	assert_int_equal(a.net.side[1].memory[5], 12 + 8 + ADDRESS_BYTES + 4); /* BTH to ICRC */
	assert_int_equal(a.net.side[1].memory[6], 0x1b); /* BTH */
	address_close(&a);
}

static void address__lids_without_grh(void **state)
{
	static struct address a;
	struct ibv_wc wc;

	address_open(&a);
	address_next.dlid = 0x46;
	address_next.slid = 0x31;
	address_next.no_grh = true;
	wc = address_receive(&a);
	assert_int_equal(wc.wc_flags, 0);
	assert_int_equal(wc.slid, 0x31);
	assert_int_equal(wc.dlid_path_bits, 0);
	address_close(&a);
}

/* One of both has to be a full member of the partition. */
static void address__pkey(void **state)
{
	static const struct {
		u16 from, to;
		bool taken;
	} cases[] = {
		{ 0xffff, 0xffff, true },  { 0x7fff, 0xffff, true },  { 0xffff, 0x7fff, true },
		{ 0x7fff, 0x7fff, false }, { 0x8001, 0x8001, true },  { 0x8001, 0x0001, true },
		{ 0x0001, 0x0001, false }, { 0x8001, 0xffff, false }, { 0xffff, 0x8001, false },
	};

	for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
		static struct address a;
		u64 dropped;

		address_open(&a);
		dropped = a.net.side[1].counters[COUNT_RX_PKEY];
		ibt_qp_set_port(a.from, cases[i].from, 0);
		ibt_qp_set_port(a.to, cases[i].to, 0);
		address_send(&a);
		assert_int_equal(cq_peek(&a.net.side[1].recv_cq, 1), cases[i].taken);
		assert_int_equal(a.net.side[1].counters[COUNT_RX_PKEY] - dropped, !cases[i].taken);
		address_close(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(address__without_lids),
		cmocka_unit_test(address__lids_with_grh),
		cmocka_unit_test(address__lids_without_grh),
		cmocka_unit_test(address__pkey),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
