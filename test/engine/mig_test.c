/* mig_test.c: path migration between two ways, each of which can be cut. IBA vol 1, 17.2.8. */
#include "watch.h"

#include <errno.h>
#include <string.h>

enum {
	DELAY_NS = 10000,
	MTU = 1024,
	TIMEOUT = 14, /* 67 ms */
	ALT_TIMEOUT = 12,
	RETRIES = 2,
	FAR = 1 << 20,
};

struct mig {
	struct net net;
	struct ibt_qp *qp[2];
	struct watch watch;
	u32 received;
};

static void mig_open(struct mig *m, u32 loss)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	q.timeout = TIMEOUT;
	q.retry_cnt = RETRIES;
	net_open(&m->net, &(struct net_config){ .seed = 7,
						.delay_ns = DELAY_NS,
						.planes = true,
						.loss = loss,
						.doubling = loss });
	net_pair(&m->net, m->qp, &q);
	watch_begin(&m->watch, &m->net);
	m->received = 0;
}

static void mig_close(struct mig *m)
{
	ibt_qp_destroy(m->qp[0]);
	ibt_qp_destroy(m->qp[1]);
	net_close(&m->net);
}

/* The way that the queue pair does not use becomes its alternate one. */
static void mig_load(struct mig *m, int side, bool to_second)
{
	struct ibv_qp_attr a = { .alt_timeout = ALT_TIMEOUT,
				 .alt_port_num = 1,
				 .alt_ah_attr = { .dlid = to_second ? 2 : 1 },
				 .path_mig_state = IBV_MIG_REARM };
	struct net_side *s = &m->net.side[side];
	struct path_dest *d = to_second ? &s->second.dest : &s->dest.dest;
	struct path_av av = { .hop_limit = 64, .pkey = 0xffff };

	d->path->ops->dest_hold(d);
	assert_int_equal(ibt_qp_load_alternate(m->qp[side], &av, d), 0);
	assert_int_equal(ibt_qp_modify(m->qp[side], &a, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
				       NULL, NULL),
			 0);
}

static int mig_modify(struct mig *m, int side, enum ibv_mig_state state)
{
	struct ibv_qp_attr a = { .path_mig_state = state };

	return ibt_qp_modify(m->qp[side], &a, IBV_QP_PATH_MIG_STATE, NULL, NULL);
}

static enum ibv_mig_state mig_state(const struct mig *m, int side)
{
	struct ibv_qp_attr a;

	ibt_qp_query(m->qp[side], &a);
	return a.path_mig_state;
}

/* Side `from` sends `n` messages, which arrive whole and in order; the last ends with `status`. */
static void mig_send(struct mig *m, int from, u32 n, enum ibv_wc_status status)
{
	struct net_side *s = &m->net.side[from], *to = &m->net.side[1 - from];
	enum ibv_wc_status last = IBV_WC_SUCCESS;
	struct ibv_sge sge;

	for (u32 i = 0; i < n; i++) {
		struct ibv_send_wr wr =
			net_wr(&sge, s, IBV_WR_SEND, i, i * 3 * MTU, 3 * MTU);

		memset(s->memory + i * 3 * MTU, (int)(m->received + i + 1), 3 * MTU);
		net_post_recv(to, m->qp[1 - from], i, FAR + i * 3 * MTU, 3 * MTU);
		net_post(m->qp[from], &wr);
	}
	net_run(&m->net, 20 * NS_PER_S);
	for (u32 i = 0; i < n; i++)
		last = net_wc(&s->send_cq).status;
	assert_int_equal(last, status);
	for (u32 i = 0; i < n && status == IBV_WC_SUCCESS; i++) {
		struct ibv_wc wc = net_wc(&to->recv_cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		for (u32 k = 0; k < 3 * MTU; k++)
			assert_int_equal(to->memory[FAR + i * 3 * MTU + k],
					 (u8)(m->received + i + 1));
	}
	m->received += n;
}

/* Both ends are armed for the second way. */
static void mig_open_armed(struct mig *m, u32 loss)
{
	mig_open(m, loss);
	mig_load(m, 0, true);
	mig_load(m, 1, true);
	mig_send(m, 0, 2, IBV_WC_SUCCESS);
	assert_int_equal(mig_state(m, 0), IBV_MIG_ARMED);
	assert_int_equal(mig_state(m, 1), IBV_MIG_ARMED);
}

static u32 mig_events(const struct mig *m, int side)
{
	return m->net.side[side].events[IBV_EVENT_PATH_MIG];
}

static void mig__both_ends_arm(void **state)
{
	static struct mig m;

	mig_open(&m, 0);
	mig_send(&m, 0, 1, IBV_WC_SUCCESS);
	assert_false(watch_nth(&m.watch, 0, OP_ALL, 0)->unmigrated);
	mig_load(&m, 0, true);
	mig_send(&m, 0, 1, IBV_WC_SUCCESS);
	/* the other end has migrated, and says so */
	assert_true(watch_nth(&m.watch, 0, OP_ALL, 3)->unmigrated);
	assert_int_equal(mig_state(&m, 0), IBV_MIG_REARM);
	mig_load(&m, 1, true);
	assert_int_equal(mig_state(&m, 1), IBV_MIG_REARM);
	mig_send(&m, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(mig_state(&m, 0), IBV_MIG_ARMED);
	assert_int_equal(mig_state(&m, 1), IBV_MIG_ARMED);
	assert_int_equal(mig_events(&m, 0) + mig_events(&m, 1), 0);
	mig_close(&m);
}

static void mig__moves_when_retries_are_used_up(void **state)
{
	static struct mig m;
	struct ibv_qp_attr a;
	u64 begin;

	mig_open_armed(&m, 0);
	m.net.cut[0] = true;
	begin = net_now();
	mig_send(&m, 0, 20, IBV_WC_SUCCESS);
	assert_true(net_now() - begin >= (RETRIES + 1) * (4096ull << TIMEOUT));
	for (int side = 0; side < 2; side++) {
		assert_int_equal(mig_events(&m, side), 1);
		ibt_qp_query(m.qp[side], &a);
		assert_int_equal(a.path_mig_state, IBV_MIG_MIGRATED);
		assert_int_equal(a.timeout, ALT_TIMEOUT);
		assert_int_equal(a.ah_attr.dlid, 2);
	}
	mig_send(&m, 1, 20, IBV_WC_SUCCESS);
	mig_close(&m);
}

/* What the old way has lost is sent on the new one at once, before any timeout. */
static void mig__sends_the_lost_ones_at_once(void **state)
{
	static struct mig m;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	u64 begin;

	mig_open_armed(&m, 0);
	m.net.cut[0] = true;
	net_post_recv(&m.net.side[1], m.qp[1], 0, FAR, MTU);
	wr = net_wr(&sge, &m.net.side[0], IBV_WR_SEND, 0, 0, MTU);
	net_post(m.qp[0], &wr);
	net_run(&m.net, 100 * DELAY_NS);
	begin = net_now();
	assert_int_equal(mig_modify(&m, 0, IBV_MIG_MIGRATED), 0);
	net_run(&m.net, 100 * DELAY_NS);
	assert_true(net_now() - begin < 4096ull << ALT_TIMEOUT);
	assert_int_equal(net_wc(&m.net.side[0].send_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(net_wc(&m.net.side[1].recv_cq).status, IBV_WC_SUCCESS);
	mig_close(&m);
}

/* READs and atomics under way, too, with answers that are lost with the way. */
static void mig__answers_come_by_the_other_way(void **state)
{
	static struct mig m;
	u64 *counter, *found;

	mig_open_armed(&m, 0);
	counter = (u64 *)(m.net.side[1].memory + FAR);
	found = (u64 *)(m.net.side[0].memory + 4096);
	*counter = 5;
	for (u32 i = 0; i < 4; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = net_wr(&sge, &m.net.side[0], IBV_WR_ATOMIC_FETCH_AND_ADD,
					       i, 4096 + 8 * i, 8);

		net_wr_remote(&wr, &m.net.side[1], FAR);
		wr.wr.atomic.compare_add = 1;
		net_post(m.qp[0], &wr);
	}
	net_run(&m.net, DELAY_NS + DELAY_NS / 2); /* they have been carried out */
	assert_int_not_equal(*counter, 5);
	m.net.cut[0] = true;
	while (m.net.count != 0 && net_step(&m.net) && mig_events(&m, 0) == 0)
		continue;
	net_run(&m.net, 20 * NS_PER_S);
	assert_int_equal(*counter, 9);
	for (u32 i = 0; i < 4; i++) {
		assert_int_equal(net_wc(&m.net.side[0].send_cq).status, IBV_WC_SUCCESS);
		assert_int_equal(found[i], 5 + i);
	}
	mig_close(&m);
}

/* An acknowledgement that finds no room on the old way goes by the new one as soon as that is used,
 * without another request. */
static void mig__sends_what_is_owed(void **state)
{
	static struct mig m;
	struct net_side *s = m.net.side;
	u32 acks;

	mig_open_armed(&m, 0);
	acks = watch_count(&m.watch, 1, OP(ACK));
	m.net.cfg.room[0] = 1; /* the first acknowledgement's */
	for (u32 i = 0; i < 2; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = net_wr(&sge, &s[0], IBV_WR_SEND, i, 0, MTU);

		net_post_recv(&s[1], m.qp[1], i, FAR, MTU);
		net_post(m.qp[0], &wr);
		net_run(&m.net, DELAY_NS / 2);
	}
	net_run(&m.net, DELAY_NS / 2);
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(net_wc(&s[1].recv_cq).status, IBV_WC_SUCCESS);
	assert_int_equal(watch_count(&m.watch, 1, OP(ACK)), acks + 1);
	m.net.cfg.room[0] = 0;
	m.net.cut[0] = true;
	assert_int_equal(mig_modify(&m, 1, IBV_MIG_MIGRATED), 0);
	assert_int_equal(watch_count(&m.watch, 1, OP(ACK)), acks + 2);
	net_run(&m.net, 2 * DELAY_NS);
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(net_wc(&s[0].send_cq).status, IBV_WC_SUCCESS);
	mig_close(&m);
}

static void mig__moves_at_the_consumers_wish(void **state)
{
	static struct mig m;

	mig_open_armed(&m, 0);
	assert_int_equal(mig_modify(&m, 0, IBV_MIG_MIGRATED), 0);
	assert_int_equal(mig_state(&m, 0), IBV_MIG_MIGRATED);
	assert_int_equal(mig_state(&m, 1), IBV_MIG_ARMED);
	m.net.cut[0] = true;
	mig_send(&m, 0, 3, IBV_WC_SUCCESS);
	assert_int_equal(mig_state(&m, 1), IBV_MIG_MIGRATED);
	assert_int_equal(mig_events(&m, 0), 0); /* who asks knows */
	assert_int_equal(mig_events(&m, 1), 1);
	mig_close(&m);
}

static void mig__moves_back_and_forth(void **state)
{
	static struct mig m;

	mig_open_armed(&m, 200);
	for (int i = 0; i < 6; i++) {
		bool second = i % 2 == 0;

		m.net.cut[!second] = true;
		mig_send(&m, i & 1, 10, IBV_WC_SUCCESS);
		m.net.cut[!second] = false;
		mig_load(&m, 0, !second);
		mig_load(&m, 1, !second);
		mig_send(&m, 0, 10, IBV_WC_SUCCESS);
		mig_send(&m, 1, 10, IBV_WC_SUCCESS);
		assert_int_equal(mig_state(&m, 0), IBV_MIG_ARMED);
		assert_int_equal(mig_state(&m, 1), IBV_MIG_ARMED);
		assert_int_equal(mig_events(&m, 0), i + 1);
		assert_int_equal(mig_events(&m, 1), i + 1);
	}
	mig_close(&m);
}

static void mig__unarmed_ends_fail(void **state)
{
	static struct mig m;

	mig_open(&m, 0);
	mig_load(&m, 0, true); /* but not the peer */
	mig_send(&m, 0, 2, IBV_WC_SUCCESS);
	m.net.cut[0] = true;
	mig_send(&m, 0, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(mig_events(&m, 0), 0);
	mig_close(&m);
}

/* Each way has a retry budget of its own. The path is found empty within a few milliseconds after
 * the end of one. */
static void mig__both_ways_fail(void **state)
{
	u64 first = (RETRIES + 1) * (4096ull << TIMEOUT);
	u64 second = (RETRIES + 1) * (4096ull << ALT_TIMEOUT), slack = 10 * NS_PER_MS;
	static struct mig m;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	u64 begin, moved;

	mig_open_armed(&m, 0);
	m.net.cut[0] = m.net.cut[1] = true;
	wr = net_wr(&sge, &m.net.side[0], IBV_WR_SEND, 0, 0, MTU);
	begin = net_now();
	net_post(m.qp[0], &wr);
	while (mig_events(&m, 0) == 0 && net_step(&m.net))
		continue;
	moved = net_now();
	assert_in_range(moved - begin, first, first + slack);
	while (cq_looks_empty(&m.net.side[0].send_cq) && net_step(&m.net))
		continue;
	assert_in_range(net_now() - moved, second, second + slack);
	assert_int_equal(net_wc(&m.net.side[0].send_cq).status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(mig_events(&m, 0), 1);
	mig_close(&m);
}

/* Gives side 1 a packet by the second way. */
static void mig_inject(struct mig *m, const struct pkt *p)
{
	struct net_side *s = &m->net.side[1];

	s->path.user_ops->receive(s->path.user, &s->from_second.dest, p, "");
	s->path.user_ops->batch_end(s->path.user, &s->from_second.dest, true);
}

/* Anyone may send with the address of the other end. */
static void mig__moves_for_no_psn_out_of_place(void **state)
{
	enum { NEXT = 106, UNKNOWN = 1 << 15 };
	static const struct pkt out_of_place[] = {
		{ .opcode = PKT_SEND_ONLY, .psn = NEXT + 1 },
		{ .opcode = PKT_SEND_ONLY, .psn = NEXT + UNKNOWN },
		{ .opcode = PKT_SEND_ONLY, .psn = (NEXT - UNKNOWN) & 0xffffff },
		{ .opcode = PKT_ACK, .psn = 100 }, /* nothing has been sent */
		{ .opcode = PKT_READ_ONLY, .psn = 100 + UNKNOWN },
	};
	static struct mig m;
	struct pkt p;

	mig_open_armed(&m, 0);
	for (u32 i = 0; i < ARRAY_LEN(out_of_place); i++) {
		p = out_of_place[i];
		p.qp_type = IBV_QPT_RC;
		p.dqpn = 0x22;
		p.pkey = 0xffff;
		mig_inject(&m, &p);
		assert_int_equal(mig_state(&m, 1), IBV_MIG_ARMED);
		net_inject(&m.net, 1, &p, "");
	}
	assert_int_equal(mig_events(&m, 1), 0);
	assert_int_equal(m.net.side[1].events[IBV_EVENT_PATH_MIG_ERR], 0);
	/* a duplicate, as of a peer that has not seen the acknowledgement */
	p.opcode = PKT_SEND_ONLY;
	p.psn = NEXT - 1;
	mig_inject(&m, &p);
	assert_int_equal(mig_state(&m, 1), IBV_MIG_MIGRATED);
	assert_int_equal(mig_events(&m, 1), 1);
	mig_close(&m);
}

/* The peer says that it has moved, but its packets come by the way before. */
static void mig__refuses_another_way(void **state)
{
	static struct mig m;
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = IBV_QPT_RC,
			 .dqpn = 0x22,
			 .psn = 106,
			 .pkey = 0xffff };

	mig_open_armed(&m, 0);
	net_post_recv(&m.net.side[1], m.qp[1], 9, FAR, MTU);
	net_inject(&m.net, 1, &p, "");
	net_inject(&m.net, 1, &p, "");
	assert_int_equal(m.net.side[1].events[IBV_EVENT_PATH_MIG_ERR], 1);
	assert_int_equal(mig_state(&m, 1), IBV_MIG_ARMED);
	assert_true(cq_looks_empty(&m.net.side[1].recv_cq));
	p.unmigrated = true;
	net_inject(&m.net, 1, &p, "");
	assert_int_equal(net_wc(&m.net.side[1].recv_cq).wr_id, 9);
	mig_close(&m);
}

static void mig__only_adapters_arm(void **state)
{
	static struct mig m;

	mig_open(&m, 0);
	assert_int_equal(mig_modify(&m, 0, IBV_MIG_ARMED), -EINVAL);
	assert_int_equal(mig_modify(&m, 0, (enum ibv_mig_state)3), -EINVAL);
	/* nothing is loaded, so nothing comes */
	assert_int_equal(mig_modify(&m, 0, IBV_MIG_REARM), 0);
	mig_send(&m, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(mig_state(&m, 0), IBV_MIG_REARM);
	mig_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mig__both_ends_arm),
		cmocka_unit_test(mig__moves_when_retries_are_used_up),
		cmocka_unit_test(mig__sends_the_lost_ones_at_once),
		cmocka_unit_test(mig__answers_come_by_the_other_way),
		cmocka_unit_test(mig__sends_what_is_owed),
		cmocka_unit_test(mig__moves_at_the_consumers_wish),
		cmocka_unit_test(mig__moves_back_and_forth),
		cmocka_unit_test(mig__unarmed_ends_fail),
		cmocka_unit_test(mig__both_ways_fail),
		cmocka_unit_test(mig__moves_for_no_psn_out_of_place),
		cmocka_unit_test(mig__refuses_another_way),
		cmocka_unit_test(mig__only_adapters_arm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
