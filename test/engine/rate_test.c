/* rate_test.c: congestion control: senders that are told of congestion slow down, recover, and
 * share a switch's bandwidth fairly; nobody is slowed down who is not told. Virtual time. */
#include "watch.h"

#include <string.h>

enum {
	FLOWS = 2,
	DEPTH = 8,
	LENGTH = 64 << 10,
	MBS = 1000000,
	QUEUE = 1 << 20,
	MARK_FROM = 20 << 10,
	MARK_TO = 100 << 10,
};

/* Queue pairs that always have something to send, each to a destination of its own. */
struct flows {
	struct net net;
	struct ibt_qp *qp[FLOWS][2];
	enum ibv_wr_opcode opcode;
	u32 count;
	bool ends; /* nothing more is posted */
	u64 bytes[FLOWS];
};

static void flows_post(struct flows *f, u32 i)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &f->net.side[0], f->opcode, i, 0, LENGTH);

	net_wr_remote(&wr, &f->net.side[1], 0);
	net_post(f->qp[i][0], &wr);
}

static void flows_open(struct flows *f, enum ibv_wr_opcode opcode, const struct net_config *cfg)
{
	memset(f, 0, sizeof(*f));
	f->opcode = opcode;
	net_open(&f->net, cfg);
}

static void flows_start(struct flows *f, enum ibv_qp_type type)
{
	struct net_qp q = net_qp_defaults(type);
	u32 i = f->count++;

	q.mtu = IBV_MTU_4096;
	q.depth = DEPTH;
	q.second = i != 0;
	f->qp[i][0] = net_qp_create(&f->net, 0, 0x11 + i, &q);
	f->qp[i][1] = net_qp_create(&f->net, 1, 0x21 + i, &q);
	net_qp_connect(&f->net, 0, f->qp[i][0], 0x21 + i, &q);
	net_qp_connect(&f->net, 1, f->qp[i][1], 0x11 + i, &q);
	for (u32 d = 0; d < DEPTH; d++)
		flows_post(f, i);
}

static void flows_completed(struct flows *f)
{
	struct ibv_wc wc;

	while (cq_pop(&f->net.side[0].send_cq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		f->bytes[wc.wr_id] += LENGTH;
		if (!f->ends)
			flows_post(f, (u32)wc.wr_id);
	}
}

/* Lets so much time pass; f->bytes is what was done in it. */
static void flows_run_us(struct flows *f, u32 us)
{
	u64 end = net_now() + us * NS_PER_US;

	for (u32 i = 0; i < FLOWS; i++)
		f->bytes[i] = 0;
	while (net_now() < end && net_step(&f->net))
		flows_completed(f);
}

static void flows_run(struct flows *f, u32 ms)
{
	flows_run_us(f, ms * 1000);
}

static void flows_close(struct flows *f)
{
	f->ends = true;
	for (int i = 0; i < 100; i++) {
		net_run(&f->net, 20 * NS_PER_MS);
		flows_completed(f);
	}
	for (u32 i = 0; i < f->count; i++) {
		ibt_qp_destroy(f->qp[i][0]);
		ibt_qp_destroy(f->qp[i][1]);
	}
	assert_int_equal(net_in_flight(&f->net.side[0]), 0);
	net_close(&f->net);
}

static u64 flows_paced(const struct flows *f)
{
	return f->net.side[0].counters[COUNT_TX_PACED];
}

static void flows_notify_side(struct flows *f, int side)
{
	struct pkt cnp = { .opcode = PKT_CNP, .dqpn = side == 0 ? 0x11 : 0x21 };

	net_inject(&f->net, side, &cnp, NULL);
}

static void flows_notify(struct flows *f)
{
	flows_notify_side(f, 0);
}

/* A switch that does not mark, however long its queue. */
static void rate__nothing_is_paced_without_a_notification(void **state)
{
	struct net_config cfg = { .delay_ns = 20000,
				  .bottleneck = 200 * MBS,
				  .queue = QUEUE,
				  .mark_from = QUEUE,
				  .mark_to = QUEUE };
	static struct flows f;

	flows_open(&f, IBV_WR_RDMA_WRITE, &cfg);
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 100);
	print_message("unmarked: %llu bytes in 100 ms, at most %llu in the queue\n",
		      (unsigned long long)f.bytes[0], (unsigned long long)f.net.most_queued);
	assert_true(f.bytes[0] > 19 * MBS);
	assert_int_equal(f.net.marked, 0);
	assert_int_equal(flows_paced(&f), 0);
	flows_close(&f);
}

static void rate__a_notification_halves_it(void **state)
{
	static struct flows f;
	u64 before;

	flows_open(&f, IBV_WR_RDMA_WRITE, &(struct net_config){ .delay_ns = 100000 });
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 20);
	before = f.bytes[0];
	assert_int_equal(flows_paced(&f), 0);
	flows_notify(&f);
	/* one that tells of the same congestion */
	flows_notify(&f);
	flows_run(&f, 1);
	print_message("before %llu bytes per ms, after one %llu\n",
		      (unsigned long long)before / 20, (unsigned long long)f.bytes[0]);
	assert_in_range(f.bytes[0], before / 20 * 3 / 10, before / 20 * 8 / 10);
	for (int i = 0; i < 60; i++) {
		flows_notify(&f);
		flows_run_us(&f, 250);
	}
	flows_run(&f, 10);
	print_message("after 62 of them %llu\n", (unsigned long long)f.bytes[0] / 10);
	assert_in_range(f.bytes[0], 1, before / 2 * 3 / 10);
	assert_int_equal(f.net.side[0].counters[COUNT_RX_CNP], 62);
	assert_int_equal(f.net.side[0].counters[COUNT_TX_RETRY], 0);
	flows_close(&f);
}

/* A peer that asks for much, and tells of marks instead of asking for less: as adapters do. */
static void rate__a_responder_is_notified(void **state)
{
	static struct flows f;
	u64 before, *counters = f.net.side[1].counters;

	flows_open(&f, IBV_WR_RDMA_READ, &(struct net_config){ .delay_ns = 100000 });
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 20);
	before = f.bytes[0] / 20;
	assert_int_equal(counters[COUNT_TX_PACED], 0);
	for (int i = 0; i < 60; i++) {
		flows_notify_side(&f, 1);
		flows_run_us(&f, 250);
	}
	flows_run(&f, 10);
	print_message("answers before %llu bytes per ms, after 60 notifications %llu\n",
		      (unsigned long long)before, (unsigned long long)f.bytes[0] / 10);
	assert_in_range(f.bytes[0], 1, before * 3);
	assert_int_equal(counters[COUNT_RX_CNP], 60);
	assert_int_not_equal(counters[COUNT_TX_PACED], 0);
	/* and as fast as before after a while */
	flows_run(&f, 1500);
	flows_run(&f, 20);
	assert_true(f.bytes[0] >= before * 18);
	flows_close(&f);
}

/* At some megabytes a second a packet waits for milliseconds. Whatever goes before such a pause
 * asks for an acknowledgement, the first packet after a time of rest as well. */
static void rate__a_pause_is_no_silence(void **state)
{
	static struct flows f;
	u64 before, *counters = f.net.side[0].counters;

	flows_open(&f, IBV_WR_RDMA_WRITE, &(struct net_config){ .delay_ns = 100000 });
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 20);
	f.ends = true;
	before = counters[COUNT_TX_RETRY];
	for (u32 i = 0; i < 4000; i++) {
		if (i >= 2000 && i % 200 == 0)
			flows_post(&f, 0);
		flows_notify(&f);
		flows_run_us(&f, 250);
		if (net_in_flight(&f.net.side[0]) == 0)
			net_freeze(250 * NS_PER_US);
	}
	print_message("%llu pauses, %llu times back\n",
		      (unsigned long long)counters[COUNT_TX_PACED],
		      (unsigned long long)(counters[COUNT_TX_RETRY] - before));
	assert_true(counters[COUNT_TX_PACED] > 100);
	assert_int_equal(counters[COUNT_TX_RETRY], before);
	flows_close(&f);
}

static void rate__recovers_and_ends(void **state)
{
	static struct flows f;
	u64 before, paced;

	flows_open(&f, IBV_WR_RDMA_WRITE, &(struct net_config){ .delay_ns = 100000 });
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 20);
	before = f.bytes[0];
	for (int i = 0; i < 3; i++) {
		flows_notify(&f);
		flows_run(&f, 1);
	}
	flows_run(&f, 200);
	paced = flows_paced(&f);
	assert_int_not_equal(paced, 0);
	flows_run(&f, 20);
	assert_true(f.bytes[0] >= before / 10 * 9);
	/* nothing is paced any more */
	assert_int_equal(flows_paced(&f), paced);
	flows_close(&f);
}

static void rate_share(enum ibv_wr_opcode opcode, u64 seed)
{
	struct net_config cfg = { .seed = seed,
				  .delay_ns = 20000,
				  .bottleneck = 200 * MBS,
				  .queue = QUEUE,
				  .mark_from = MARK_FROM,
				  .mark_to = MARK_TO };
	static struct flows f;
	u64 least, most, alone;

	flows_open(&f, opcode, &cfg);
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 50);
	flows_run(&f, 50);
	alone = f.bytes[0];
	/* the one that was there first must give half of it away */
	flows_start(&f, IBV_QPT_RC);
	flows_run(&f, 200);
	f.net.most_queued = 0;
	flows_run(&f, 200);
	least = MIN(f.bytes[0], f.bytes[1]);
	most = MAX(f.bytes[0], f.bytes[1]);
	print_message("alone %llu in 50 ms; two: %llu and %llu in 200 ms, at most %llu queued, "
		      "%llu of %llu marked, %llu CNPs\n",
		      (unsigned long long)alone, (unsigned long long)f.bytes[0],
		      (unsigned long long)f.bytes[1], (unsigned long long)f.net.most_queued,
		      (unsigned long long)f.net.marked, (unsigned long long)f.net.sent,
		      (unsigned long long)f.net.side[0].counters[COUNT_RX_CNP]);
	assert_true(alone > 50 * MBS / 1000 * 200 * 8 / 10);
	assert_true(least + most > 200ull * MBS / 1000 * 200 * 8 / 10);
	assert_true(most <= 3 * least / 2);
	/* both windows would fill it with 257,924 */
	assert_true(f.net.most_queued < 220000);
	assert_int_equal(f.net.lost, 0);
	flows_close(&f);
}

static void rate__two_writers_converge(void **state)
{
	for (u64 seed = 1; seed < 6; seed++)
		rate_share(IBV_WR_RDMA_WRITE, seed);
}

static void rate__two_readers_converge(void **state)
{
	for (u64 seed = 1; seed < 6; seed++)
		rate_share(IBV_WR_RDMA_READ, seed);
}

/* Packets that a switch loses while a UC sender always has half a megabyte to send per millisecond:
 * more than twice what gets through. */
static u64 rate_lose(bool marks)
{
	struct net_config cfg = { .delay_ns = 20000,
				  .bottleneck = 200 * MBS,
				  .queue = QUEUE,
				  .mark_from = marks ? MARK_FROM : QUEUE,
				  .mark_to = marks ? MARK_TO : QUEUE };
	static struct flows f;
	u64 sent, lost;

	flows_open(&f, IBV_WR_RDMA_WRITE, &cfg);
	flows_start(&f, IBV_QPT_UC);
	for (u32 ms = 0; ms < 100; ms++) {
		struct ibv_wc wc;
		u32 done = 0;

		net_run(&f.net, NS_PER_MS);
		while (cq_pop(&f.net.side[0].send_cq, 1, &wc) == 1)
			done++;
		while (done-- > 0)
			flows_post(&f, 0);
	}
	sent = f.net.sent;
	lost = f.net.lost;
	print_message("UC, marks %d: %llu packets, %llu lost\n", marks, (unsigned long long)sent,
		      (unsigned long long)lost);
	assert_true((sent - lost) * 4096 > 19 * MBS * 7 / 10);
	flows_close(&f);
	return lost;
}

static void rate__unreliable_senders_slow_down(void **state)
{
	u64 lost = rate_lose(false);

	assert_true(lost > 1000);
	assert_true(rate_lose(true) < lost / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rate__nothing_is_paced_without_a_notification),
		cmocka_unit_test(rate__a_notification_halves_it),
		cmocka_unit_test(rate__a_responder_is_notified),
		cmocka_unit_test(rate__a_pause_is_no_silence),
		cmocka_unit_test(rate__recovers_and_ends),
		cmocka_unit_test(rate__two_writers_converge),
		cmocka_unit_test(rate__two_readers_converge),
		cmocka_unit_test(rate__unreliable_senders_slow_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
