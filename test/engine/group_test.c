/* group_test.c: a datagram to a multicast group: each member gets it once, however many they are
 * and whatever fits on the way; one that stands still costs a second once. */
#include "watch.h"

#include <string.h>

enum { GROUP_MAX = 1000 };

struct group {
	struct net net;
	struct ibt_qp *qp;
	u32 got[GROUP_MAX]; /* how often a member was sent it */
	u32 last;
	bool ordered;
	u32 others; /* sent to who is no member */
};

static bool group_see(struct net *net, int from, struct pkt *p)
{
	struct group *g = net->tap_arg;
	u32 at = p->dqpn - NET_MEMBER;

	if (at >= GROUP_MAX) {
		g->others++;
		return false;
	}
	assert_true(p->flags & PKT_MULTICAST);
	g->got[at]++;
	g->ordered &= at >= g->last;
	g->last = at;
	return false;
}

static bool group_av(struct ibv_ah *ah, u32 pd, struct path_av *av)
{
	*av = (struct path_av){ .dgid = { 0xff, 0x0e }, .sgid = { 0xfe, 0x80 } };
	return true;
}

static bool group_av_of_one(struct ibv_ah *ah, u32 pd, struct path_av *av)
{
	*av = (struct path_av){ .dgid = { 0xfe, 0x80 }, .sgid = { 0xfe, 0x80 } };
	return true;
}

/* To be called before each datagram of which more is asked than that it completes. */
static void group_look(struct group *g)
{
	memset(g->got, 0, sizeof(g->got));
	g->last = 0;
	g->ordered = true;
}

static void group_open(struct group *g, u32 members, u32 room)
{
	struct net_config cfg = { .seed = 1, .delay_ns = NS_PER_MS, .reliable = true };
	struct net_qp q = net_qp_defaults(IBV_QPT_UD);

	memset(g, 0, sizeof(*g));
	cfg.room[1] = room;
	net_open(&g->net, &cfg);
	g->net.tap = group_see;
	g->net.tap_arg = g;
	g->net.side[0].members = members;
	g->qp = net_qp_create(&g->net, 0, 0x11, &q);
	net_qp_datagrams(g->qp, 7, IBV_QPS_RTS);
	group_look(g);
}

static void group_close(struct group *g)
{
	struct net_side *s = &g->net.side[0];

	ibt_qp_destroy(g->qp);
	assert_int_equal(s->refs, 0);
	net_close(&g->net);
}

static void group_post_to(struct group *g, u64 wr_id, u32 length,
			  ibt_av_of *av_of)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	wr = net_wr(&sge, &g->net.side[0], IBV_WR_SEND, wr_id, 0, length);
	wr.wr.ud.ah = (struct ibv_ah *)&sge; /* only its presence counts here */
	wr.wr.ud.remote_qpn = av_of == group_av ? 0xffffff : 0x22;
	wr.wr.ud.remote_qkey = 7;
	assert_int_equal(ibt_post_send(g->qp, &wr, &bad, av_of), 0);
}

static void group_post(struct group *g, u64 wr_id)
{
	group_post_to(g, wr_id, 8, group_av);
}

static void group_expect(struct group *g, u64 wr_id)
{
	struct ibv_wc wc = net_wc(&g->net.side[0].send_cq);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static u32 group_count(const struct group *g)
{
	u32 n = 0;

	for (u32 i = 0; i < GROUP_MAX; i++)
		n += g->got[i];
	return n;
}

static u64 group_blocked(const struct group *g)
{
	return g->net.side[0].counters[COUNT_TX_BLOCKED];
}

static void group_check_all(struct group *g, u32 members)
{
	for (u32 i = 0; i < members; i++)
		assert_int_equal(g->got[i], 1);
	assert_int_equal(group_count(g), members);
	assert_true(g->ordered);
}

static void group__each_member_however_many(void **state)
{
	static const u32 members[] = { 0, 1, 255, 256, 257, 511, 512, 513, GROUP_MAX };
	static struct group g;

	for (u32 i = 0; i < ARRAY_LEN(members); i++) {
		group_open(&g, members[i], 0);
		for (u64 id = 1; id <= 2; id++) {
			group_look(&g);
			group_post(&g, id);
			group_expect(&g, id);
			group_check_all(&g, members[i]);
		}
		assert_int_equal(group_blocked(&g), 0);
		group_close(&g);
	}
}

/* More than fits on the way: those behind wait for the receiver, for seconds if he takes some now
 * and then, and nobody gets it twice. */
static void group__goes_on_where_there_was_no_room(void **state)
{
	static const u32 room[] = { 1, 100, 255, 256, 300, 999 };
	static struct group g;

	for (u32 i = 0; i < ARRAY_LEN(room); i++) {
		group_open(&g, GROUP_MAX, room[i]);
		g.net.cfg.delay_ns = 20 * NS_PER_MS;
		for (u64 id = 1; id <= 2; id++) {
			group_look(&g);
			group_post(&g, id);
			assert_int_equal(cq_peek(&g.net.side[0].send_cq, 1), 0);
			net_run(&g.net, 40 * NS_PER_S);
			group_expect(&g, id);
			group_check_all(&g, GROUP_MAX);
		}
		group_close(&g);
	}
}

/* A receiver that does not run is waited for once, and what it misses is counted. */
static void group__a_member_that_stands_still(void **state)
{
	static struct group g;
	u64 before;

	group_open(&g, 150, 100);
	g.net.cfg.delay_ns = 10 * NS_PER_S;
	group_post(&g, 1);
	net_run(&g.net, NS_PER_S / 2);
	assert_int_equal(cq_peek(&g.net.side[0].send_cq, 1), 0);
	before = group_blocked(&g);
	net_run(&g.net, NS_PER_S);
	group_expect(&g, 1);
	assert_int_equal(group_count(&g), 100);
	assert_int_equal(group_blocked(&g), before + 50);
	group_post(&g, 2);
	group_expect(&g, 2);
	assert_int_equal(group_count(&g), 100);
	assert_int_equal(group_blocked(&g), before + 200);
	/* It runs again: what does not fit waits again. */
	net_run(&g.net, 20 * NS_PER_S);
	g.net.cfg.delay_ns = NS_PER_MS;
	group_look(&g);
	group_post(&g, 3);
	net_run(&g.net, NS_PER_S);
	group_expect(&g, 3);
	group_check_all(&g, 150);
	group_close(&g);
}

/* What goes to another queue pair meanwhile says nothing of the group. */
static void group__stands_still_beside_what_moves(void **state)
{
	static struct group g;

	group_open(&g, 150, 100);
	g.net.cfg.delay_ns = 10 * NS_PER_S;
	group_post(&g, 1);
	net_run(&g.net, 2 * NS_PER_S);
	group_expect(&g, 1);
	g.net.cfg.room[1] = 0;
	group_post_to(&g, 2, 8, group_av_of_one);
	group_expect(&g, 2);
	assert_int_equal(g.others, 1);
	g.net.cfg.room[1] = 1;
	group_post(&g, 3);
	group_expect(&g, 3);
	group_close(&g);
}

/* What goes to one queue pair and finds no room in time is counted, too. */
static void group__of_one_that_stands_still(void **state)
{
	static struct group g;
	u64 before;

	group_open(&g, 0, 1);
	g.net.cfg.delay_ns = 10 * NS_PER_S;
	group_post_to(&g, 1, 8, group_av_of_one);
	group_expect(&g, 1);
	group_post_to(&g, 2, 8, group_av_of_one);
	before = group_blocked(&g);
	net_run(&g.net, 2 * NS_PER_S);
	group_expect(&g, 2);
	assert_int_equal(g.others, 1);
	assert_int_equal(group_blocked(&g), before + 1);
	group_close(&g);
}

/* A datagram that was half sent and then fails leaves nothing to the one behind it. */
static void group__half_sent_and_failed(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS };
	static struct group g;
	struct ibv_wc wc;

	group_open(&g, 150, 100);
	group_post(&g, 1);
	assert_int_equal(mem_deregister(&g.net.side[0].mem, g.net.side[0].key), 0);
	net_run(&g.net, NS_PER_S);
	wc = net_wc(&g.net.side[0].send_cq);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(group_count(&g), 100);
	assert_int_equal(ibt_qp_modify(g.qp, &a, IBV_QP_STATE, NULL, NULL), 0);
	group_look(&g);
	g.net.cfg.room[1] = 0;
	group_post_to(&g, 2, 0, group_av);
	group_expect(&g, 2);
	group_check_all(&g, 150);
	group_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(group__each_member_however_many),
		cmocka_unit_test(group__goes_on_where_there_was_no_room),
		cmocka_unit_test(group__a_member_that_stands_still),
		cmocka_unit_test(group__stands_still_beside_what_moves),
		cmocka_unit_test(group__of_one_that_stands_still),
		cmocka_unit_test(group__half_sent_and_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
