/* far_test.c: a peer that is far away: 20 ms to 400 ms there and back, with perftest's Local ACK
 * Timeout of 67 ms. What is under way is not taken for lost, and the window becomes as
 * long as the way. */
#include "watch.h"

#include <string.h>

enum {
	FAR_LENGTH = 256 << 10,
	FAR_DEPTH = 64,
	FAR_WAYS = 40,		/* there and back, for a stream */
	FAR_WINDOW = 208 << 10, /* what may always be under way */
	FAR_MIN = 140 << 10,	/* bytes that go each time */
	FAR_STALL_MS = 4,	/* for each of them of the way so much may */
	FAR_READS = 16,		/* requests for READs under way, */
	FAR_READ = 128 << 10,	/* and what each asks for, at most */
	FAR_TIMEOUT = 14,
	FAR_RETRIES = 7,
	FAR_PATIENCE_MS = 536, /* of these two */
	FAR_SINGLE = 20,
};

/* How often a send queue has been asked for more to send. */
static u64 far_pumps;

void __real_req_pump(struct ibt_qp *qp);
void __wrap_req_pump(struct ibt_qp *qp);

void __wrap_req_pump(struct ibt_qp *qp)
{
	far_pumps++;
	__real_req_pump(qp);
}

struct far {
	struct net net;
	struct ibt_qp *qp[2];
	u32 posted, done;
	enum ibv_wc_status status; /* the last that was no success */
};

static void far_post(struct far *f, enum ibv_wr_opcode opcode, u32 length)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &f->net.side[0], opcode, f->posted, 0, length);

	net_wr_remote(&wr, &f->net.side[1], 1 << 20);
	net_post(f->qp[0], &wr);
	f->posted++;
}

static void far_open_lossy(struct far *f, u32 rtt_ms, u32 loss)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct net_config cfg = { .seed = 1, .delay_ns = rtt_ms * NS_PER_MS / 2, .loss = loss };

	*f = (struct far){ .status = IBV_WC_SUCCESS };
	far_pumps = 0;
	net_open(&f->net, &cfg);
	q.mtu = IBV_MTU_4096;
	q.depth = FAR_DEPTH;
	q.timeout = FAR_TIMEOUT;
	q.retry_cnt = FAR_RETRIES;
	q.rd_atomic = FAR_READS;
	net_pair(&f->net, f->qp, &q);
}

static void far_open(struct far *f, u32 rtt_ms)
{
	far_open_lossy(f, rtt_ms, 0);
}

static void far_close(struct far *f)
{
	ibt_qp_destroy(f->qp[0]);
	ibt_qp_destroy(f->qp[1]);
	net_close(&f->net);
}

static void far_reap(struct far *f)
{
	struct ibv_wc wc;

	while (cq_pop(&f->net.side[0].send_cq, 1, &wc) == 1) {
		f->done++;
		if (wc.status != IBV_WC_SUCCESS)
			f->status = wc.status;
	}
}

static u64 far_retries(const struct far *f)
{
	return f->net.side[0].counters[COUNT_TX_RETRY];
}

/* Requests that follow each other closely: how many bytes go per way there and back, with so much
 * loss of 10,000 packets. The first half of the time is theirs to find out how many may. */
static u64 far_stream(enum ibv_wr_opcode opcode, u32 rtt_ms, u32 loss, u64 *retries)
{
	static struct far f;
	u64 bytes, end;

	far_open_lossy(&f, rtt_ms, loss);
	end = net_now() + FAR_WAYS * rtt_ms * NS_PER_MS;
	for (u32 i = 0; i < FAR_DEPTH; i++)
		far_post(&f, opcode, FAR_LENGTH);
	for (u32 half = 0; half < 2; half++) {
		bytes = f.done;
		for (; net_now() < end; far_reap(&f)) {
			assert_true(net_step(&f.net));
			while (f.posted < f.done + FAR_DEPTH)
				far_post(&f, opcode, FAR_LENGTH);
		}
		end += FAR_WAYS * rtt_ms * NS_PER_MS;
	}
	assert_int_equal(f.status, IBV_WC_SUCCESS);
	bytes = (f.done - bytes) * FAR_LENGTH / FAR_WAYS;
	*retries = far_retries(&f);
	print_message("%u ms, loss %u: %lu bytes each time, %lu times back\n", rtt_ms, loss,
		      (unsigned long)bytes, (unsigned long)*retries);
	/* what comes makes room, or not; nobody is asked over and over who finds none */
	assert_true(far_pumps <= f.net.sent);
	far_close(&f);
	return bytes;
}

/* Before anything is known of the way, some packets go twice; then none does. */
static void far__window_grows_with_the_way(void **state)
{
	static const u32 rtts[] = { 8, 20, 50, 100, 130 };
	u64 retries, most;

	for (u32 i = 0; i < ARRAY_LEN(rtts); i++) {
		most = (u64)FAR_WINDOW * rtts[i] / FAR_STALL_MS;
		assert_true(far_stream(IBV_WR_RDMA_WRITE, rtts[i], 0, &retries) >= most / 10 * 7);
		assert_in_range(retries, 0, 5);
	}
	for (u32 i = 1; i < ARRAY_LEN(rtts); i += 2) {
		most = MIN((u64)FAR_WINDOW * rtts[i] / FAR_STALL_MS, (u64)FAR_READS * FAR_READ);
		assert_true(far_stream(IBV_WR_RDMA_READ, rtts[i], 0, &retries) >= most / 10 * 7);
		assert_in_range(retries, 0, 5);
	}
}

/* It does not where the way is short, for there it all lies in the buffer. */
static void far__window_stays_where_the_way_is_short(void **state)
{
	static const u32 rtts[] = { 1, 4, 7 };
	u64 retries;

	for (u32 i = 0; i < ARRAY_LEN(rtts); i++)
		assert_in_range(far_stream(IBV_WR_RDMA_WRITE, rtts[i], 0, &retries), FAR_MIN,
				FAR_WINDOW);
}

/* What is lost on a long way, 0.01, 0.1 and 1 %, takes away what had grown, and little more. */
static void far__window_and_loss(void **state)
{
	u64 retries;

	assert_true(far_stream(IBV_WR_RDMA_WRITE, 50, 1, &retries) >= 4 * FAR_WINDOW);
	assert_true(far_stream(IBV_WR_RDMA_WRITE, 50, 10, &retries) >= 2 * FAR_WINDOW);
	assert_true(far_stream(IBV_WR_RDMA_WRITE, 50, 100, &retries) >= FAR_WINDOW / 3);
	assert_true(far_stream(IBV_WR_RDMA_READ, 50, 1, &retries) >= 4 * FAR_WINDOW);
	assert_true(far_stream(IBV_WR_RDMA_READ, 50, 10, &retries) >= 2 * FAR_WINDOW);
	assert_true(far_stream(IBV_WR_RDMA_READ, 50, 100, &retries) >= FAR_WINDOW / 3);
}

/* ---- READs whose requests have become longer ---- */

enum {
	FAR_SLOTS = 8, /* more messages than arrive at once */
	FAR_MESSAGES = 120,
	FAR_SOURCE = 3 << 20,
	FAR_SOURCES = 4,
};

/* The requests that are new to the peer: a repetition must lie within one of the last ones. */
struct far_asked {
	u32 end; /* of all so far */
	u32 next, first[FAR_READS], count[FAR_READS];
	u32 repeated, longest, strange;
};

static void far_asked_new(struct far_asked *a, u32 first, u32 count)
{
	a->first[a->next % FAR_READS] = first;
	a->count[a->next++ % FAR_READS] = count;
	a->end = first + count;
}

static bool far_was_asked(const struct far_asked *a, u32 first, u32 count)
{
	for (u32 i = 0; i < FAR_READS; i++)
		if (first >= a->first[i] && first + count <= a->first[i] + a->count[i])
			return true;
	return false;
}

static bool far_watch_requests(struct net *net, int from, struct pkt *p)
{
	struct far_asked *a = net->tap_arg;
	u32 count = (u32)p->dma_length / NET_PAYLOAD;

	if (from != 0 || p->opcode != PKT_READ_REQUEST)
		return false;
	a->longest = MAX(a->longest, (u32)p->dma_length);
	if (p->psn >= a->end) {
		far_asked_new(a, p->psn, count);
		return false;
	}
	a->repeated++;
	a->strange += !far_was_asked(a, p->psn, count);
	return false;
}

static void far_read(struct far *f)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr =
		net_wr(&sge, &f->net.side[0], IBV_WR_RDMA_READ, f->posted,
		       f->posted % FAR_SLOTS * FAR_LENGTH, FAR_LENGTH);

	net_wr_remote(&wr, &f->net.side[1],
		      FAR_SOURCE + f->posted % FAR_SOURCES * FAR_LENGTH);
	net_post(f->qp[0], &wr);
	f->posted++;
}

/* What has come is right, and makes way for the next. */
static void far_check_reads(struct far *f)
{
	struct ibv_wc wc;

	while (cq_pop(&f->net.side[0].send_cq, 1, &wc) == 1) {
		u8 *got = f->net.side[0].memory + wc.wr_id % FAR_SLOTS * FAR_LENGTH;

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, f->done);
		assert_memory_equal(got,
				    f->net.side[1].memory + FAR_SOURCE +
					    wc.wr_id % FAR_SOURCES * FAR_LENGTH,
				    FAR_LENGTH);
		memset(got, 0, FAR_LENGTH);
		f->done++;
	}
}

static void far_read_all(u64 seed, u32 harm, struct far_asked *asked)
{
	static struct far f;

	far_open_lossy(&f, 50, harm);
	f.net.random += seed;
	f.net.cfg.doubling = f.net.cfg.late = harm;
	f.net.cfg.late_ns = 2 * NS_PER_MS;
	*asked = (struct far_asked){ .end = 0 };
	f.net.tap = far_watch_requests;
	f.net.tap_arg = asked;
	for (u32 i = 0; i < FAR_SOURCES * FAR_LENGTH; i++)
		f.net.side[1].memory[FAR_SOURCE + i] = (u8)net_random(&f.net, 256);
	while (f.done < FAR_MESSAGES) {
		while (f.posted < FAR_MESSAGES && f.posted < f.done + FAR_SLOTS)
			far_read(&f);
		assert_true(net_step(&f.net));
		far_check_reads(&f);
	}
	print_message("seed %lu, harm %u: %u of %u requests repeated, %u bytes at most\n",
		      (unsigned long)seed, harm, asked->repeated, asked->next, asked->longest);
	far_close(&f);
}

/* They are cut anew for each message and never within one, so the peer knows what is repeated. */
static void far__long_requests_bring_what_they_should(void **state)
{
	struct far_asked asked;

	far_read_all(1, 0, &asked);
	assert_int_equal(asked.longest, FAR_READ);
	assert_int_equal(asked.strange, 0);
	for (u64 seed = 2; seed < 6; seed++) {
		far_read_all(seed, seed < 4 ? 3 : 50, &asked);
		assert_int_not_equal(asked.repeated, 0);
		assert_int_equal(asked.strange, 0);
	}
}

static void far_say(struct far *f, u32 rtt_ms)
{
	far_open(f, rtt_ms);
	while (f->posted < FAR_SINGLE && f->status == IBV_WC_SUCCESS) {
		far_post(f, IBV_WR_RDMA_WRITE, 8);
		while (f->done < f->posted) {
			assert_true(net_step(&f->net));
			far_reap(f);
		}
	}
}

static void far__nothing_goes_twice(void **state)
{
	static const u32 rtts[] = { 20, 50, 100, 130 };
	static struct far f;

	for (u32 i = 0; i < ARRAY_LEN(rtts); i++) {
		far_say(&f, rtts[i]);
		assert_int_equal(f.status, IBV_WC_SUCCESS);
		assert_in_range(far_retries(&f), 1, 5);
		far_close(&f);
	}
}

/* A way that changes is measured anew: what was near is far all at once. */
static void far__way_becomes_longer(void **state)
{
	static struct far f;
	u64 retries;

	far_say(&f, 1);
	f.net.cfg.delay_ns = 50 * NS_PER_MS;
	for (u32 n = 0; n < 2; n++) {
		retries = far_retries(&f);
		for (u32 i = 0; i < FAR_SINGLE; i++) {
			far_post(&f, IBV_WR_RDMA_WRITE, 8);
			while (f.done < f.posted) {
				assert_true(net_step(&f.net));
				far_reap(&f);
			}
		}
	}
	assert_int_equal(f.status, IBV_WC_SUCCESS);
	assert_int_equal(far_retries(&f), retries);
	far_close(&f);
}

/* As long as (retry_cnt + 1) timeouts, 537 ms, leave room for an answer, it comes; and no
 * longer. */
static void far__patience_has_its_end(void **state)
{
	static struct far f;

	far_say(&f, 400);
	assert_int_equal(f.status, IBV_WC_SUCCESS);
	assert_int_equal(f.done, FAR_SINGLE);
	far_close(&f);
	far_say(&f, 600);
	assert_int_equal(f.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(f.done, 1);
	far_close(&f);
}

/* Who receives has lost his core for as long as patience lasts, and longer, while others ran
 * timers: the answer lies there. */
static void far__what_nobody_received_is_not_the_peers_silence(void **state)
{
	static struct far f;

	far_open(&f, 20);
	f.net.side[0].held_up = true;
	far_post(&f, IBV_WR_RDMA_WRITE, 8);
	net_run(&f.net, FAR_PATIENCE_MS * NS_PER_MS + FAR_PATIENCE_MS * NS_PER_MS / 2);
	f.net.side[0].held_up = false;
	net_run(&f.net, NS_PER_S);
	far_reap(&f);
	assert_int_equal(f.done, 1);
	assert_int_equal(f.status, IBV_WC_SUCCESS);
	far_close(&f);
}

static bool far_lose(struct net *net, int from, struct pkt *p)
{
	return true;
}

/* How long after a request that nobody hears it fails, in milliseconds. */
static u64 far_gives_up_after(bool flooded)
{
	static struct far f;
	u64 began;

	far_open(&f, 20);
	f.net.side[0].flooded = flooded;
	f.net.tap = far_lose;
	began = net_now();
	far_post(&f, IBV_WR_RDMA_WRITE, 8);
	for (; f.done == 0; far_reap(&f))
		assert_true(net_step(&f.net));
	assert_int_equal(f.status, IBV_WC_RETRY_EXC_ERR);
	far_close(&f);
	return (net_now() - began) / NS_PER_MS;
}

/* Whoever looks and hears nothing gives up in time; whoever never sees the end of what comes, after
 * as long again. */
static void far__silence_has_its_end(void **state)
{
	assert_in_range(far_gives_up_after(false), FAR_PATIENCE_MS, FAR_PATIENCE_MS + 3);
	assert_in_range(far_gives_up_after(true), 2 * FAR_PATIENCE_MS, 2 * FAR_PATIENCE_MS + 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(far__window_grows_with_the_way),
		cmocka_unit_test(far__window_stays_where_the_way_is_short),
		cmocka_unit_test(far__window_and_loss),
		cmocka_unit_test(far__long_requests_bring_what_they_should),
		cmocka_unit_test(far__nothing_goes_twice),
		cmocka_unit_test(far__way_becomes_longer),
		cmocka_unit_test(far__patience_has_its_end),
		cmocka_unit_test(far__what_nobody_received_is_not_the_peers_silence),
		cmocka_unit_test(far__silence_has_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
