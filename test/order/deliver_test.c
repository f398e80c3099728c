/* deliver_test.c: the engine receives a small SEND while another thread polls its completion queue,
 * in every order that memory may show (memory.h): who has the completion has the data, and whoever
 * looks last has one of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ibt/ibt.h"
#include "memory.h"

enum { QPN = 0x11, PEER_QPN = 0x22, FIRST_PSN = 100, BYTES = 8, TEXT = 7 };

static struct world {
	struct path path;
	struct path_dest dest;
	u64 path_counters[PATH_COUNTERS];
	struct ibt *ibt;
	struct ibt_qp *qp;
	struct ibt_counters counters;
	struct cq cq;
	struct mem_table keys;
	struct timer_set timers;
	u64 landing;
	int taken, wrong, refused;
} w;

/* ---- a path that the test itself is the other end of ---- */

static void way_hold(struct path_dest *d)
{
}

static u32 way_send_briefs(struct path_dest *d, const struct pkt_brief *b,
			   const void *const *payload, u32 n)
{
	return n;
}

static int way_send(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int n)
{
	return 0;
}

static void way_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	fn(arg);
}

static const struct path_ops way_ops = {
	.name = "way",
	.dest_hold = way_hold,
	.dest_put = way_hold,
	.send = way_send,
	.send_briefs = way_send_briefs,
	.flush = way_hold,
	.exclude = way_exclude,
};

/* ---- an engine ---- */

static void world_kick(void *arg)
{
}

static void world_publish(void *arg, struct ibt_qp *qp)
{
}

static void world_async(void *arg, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type)
{
}

static void world_connect(void)
{
	struct path_av av = { .hop_limit = 64 };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	assert_int_equal(ibt_qp_modify(w.qp, &a, IBV_QP_STATE | IBV_QP_PORT, NULL, NULL), 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = PEER_QPN,
				  .rq_psn = FIRST_PSN };
	assert_int_equal(ibt_qp_modify(w.qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
				       &av, &w.dest),
			 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7 };
	assert_int_equal(ibt_qp_modify(w.qp, &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT,
				       NULL, NULL),
			 0);
}

static void world_post(void)
{
	struct mem_region r = { .addr = (u64)(uintptr_t)&w.landing,
				.iova = (u64)(uintptr_t)&w.landing,
				.length = BYTES,
				.access = IBV_ACCESS_LOCAL_WRITE,
				.pd = 1,
				.flags = MEM_CONTIGUOUS };
	struct ibv_sge sge = { .addr = r.addr, .length = BYTES };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(mem_register(&w.keys, &r, &sge.lkey), 0);
	assert_int_equal(ibt_post_recv(w.qp, &wr, &bad), 0);
}

static int world_open(void **state)
{
	struct ibt_config cfg = { .mem = &w.keys,
				  .timers = &w.timers,
				  .kick = world_kick,
				  .publish = world_publish,
				  .async = world_async };
	struct ibt_qp_init init = { .type = IBV_QPT_RC,
				    .qpn = QPN,
				    .pd = 1,
				    .cap = { .max_send_wr = 4,
					     .max_recv_wr = 4,
					     .max_send_sge = 1,
					     .max_recv_sge = 1 },
				    .send_cq = &w.cq,
				    .recv_cq = &w.cq,
				    .counters = &w.counters };

	timer_set_init(&w.timers);
	assert_int_equal(mem_table_init(&w.keys, NULL), 0);
	assert_int_equal(cq_init(&w.cq, 16), 0);
	w.ibt = ibt_create(&cfg);
	assert_non_null(w.ibt);
	w.path.ops = &way_ops;
	w.path.counters = w.path_counters;
	w.path.guarantees =
		(struct path_guarantees){ .ordered = true, .reliable = true, .mtu = 16 << 10 };
	path_dest_init(&w.dest, &w.path);
	ibt_add_path(w.ibt, &w.path);
	assert_int_equal(ibt_qp_create(w.ibt, &init, &w.qp), 0);
	world_connect();
	world_post();
	return 0;
}

/* ---- the two threads ---- */

static void message_comes(void)
{
	struct pkt_brief b = { .kind = PKT_BRIEF_KIND,
			       .length = BYTES,
			       .qpns = (u64)PEER_QPN << 32 | QPN,
			       .psns = FIRST_PSN };
	const u64 text = TEXT;

	if (!w.path.user_ops->receive_brief(w.path.user, &w.dest, &b, &text))
		w.refused = 1;
}

/* The same as one of a run. */
static void run_comes(void)
{
	struct pkt_brief b = { .kind = PKT_BRIEF_KIND,
			       .length = BYTES,
			       .qpns = (u64)PEER_QPN << 32 | QPN,
			       .psns = FIRST_PSN };
	const u64 text = TEXT;
	const void *payload = &text;

	if (w.path.user_ops->receive_run(w.path.user, &w.dest, &b, &payload, 1) != 1)
		w.refused = 1;
}

static void message_is_polled(void)
{
	struct ibv_wc wc;
	u64 seen = 0;

	if (cq_pop(&w.cq, 1, &wc) != 1)
		return;
	order_memcpy(&seen, &w.landing, BYTES);
	w.taken = 1;
	w.wrong = seen != TEXT || wc.status != IBV_WC_SUCCESS || wc.byte_len != BYTES;
}

static void message_begin(void)
{
	w.taken = w.wrong = w.refused = 0;
}

static const char *message_judge(void)
{
	if (w.refused)
		return "the message did not go the short way";
	if (w.wrong)
		return "a completion is there before its data";
	return w.taken || cq_peek(&w.cq, 1) == 1 ? NULL : "a completion is lost";
}

static void deliver__data_before_its_completion(void **state)
{
	struct order o = { "deliver",
			   { message_comes, message_is_polled },
			   message_begin,
			   message_judge };
	const char *wrong = order_explore(&o);

	if (wrong != NULL)
		fail_msg("%s (run %u)", wrong, order_runs());
	print_message("%u runs\n", order_runs());
	assert_true(order_runs() > 1);
}

static void deliver__data_of_a_run_before_its_completion(void **state)
{
	struct order o = {
		"run", { run_comes, message_is_polled }, message_begin, message_judge
	};
	const char *wrong = order_explore(&o);

	if (wrong != NULL)
		fail_msg("%s (run %u)", wrong, order_runs());
	print_message("%u runs\n", order_runs());
	assert_true(order_runs() > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deliver__data_before_its_completion),
		cmocka_unit_test(deliver__data_of_a_run_before_its_completion),
	};

	return cmocka_run_group_tests(tests, world_open, NULL);
}
