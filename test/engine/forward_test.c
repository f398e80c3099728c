/* forward_test.c: an XRC target hands requests on to the processes of the SRQs that they name.
 * In: seeds    Out: verdicts    Runs: cmocka, one thread    Locks: none
 */
#include <errno.h>

#include "forward_kit.h"

static void forward__all_arrives_in_order_and_once(void **state)
{
	for (u64 seed = 1; seed <= SEEDS; seed++) {
		forward_open(seed);
		forward_requests(REQUESTS);
		assert_false(h.failed);
		/* the target has received each, whoever has executed it */
		assert_int_equal(h.qp_counters.received, REQUESTS);
		for (int i = 1; i < MEMBERS; i++) {
			u64 adds;

			memcpy(&adds, h.m[i].memory + AT_COUNT, sizeof(adds));
			assert_int_equal(adds, h.m[i].adds);
		}
		forward_close();
	}
}

static void member_die(int index)
{
	h.m[index].dead = true;
	for (int i = 0; i < MEMBERS; i++) {
		struct way *w = &h.m[i].way[index];

		for (struct flight *f; (f = way_first(w)) != NULL; free(f))
			way_take(w, f);
		/* what it has sent arrives before its death is known */
		while (i != index && way_first(&h.m[index].way[i]) != NULL)
			forward_step();
		if (i != index)
			h.m[i].path.user_ops->dead(h.m[i].path.user, &w->dest);
	}
}

/* At any instant. What has completed well was done. How many requests have failed? */
static u32 forward_deaths(int first, int last)
{
	u32 failed = 0;

	for (u64 seed = 1; seed <= SEEDS; seed++) {
		forward_open(seed + 1000 * (u64)last);
		forward_requests(1 + lot(REQUESTS - OUT));
		member_die(first + (int)lot((u32)(last - first + 1)));
		forward_requests(REQUESTS);
		failed += h.failed;
		forward_close();
	}
	return failed;
}

static void forward__an_srqs_process_dies(void **state)
{
	assert_in_range(forward_deaths(2, MEMBERS - 1), SEEDS * 9 / 10, SEEDS);
}

/* A message that it has begun to hand on takes one receive along. */
static void forward__the_target_dies(void **state)
{
	assert_int_equal(forward_deaths(1, 1), SEEDS);
}

/* Tells member 2 of a target of member 1 with that number. */
static void forward_tell(u32 qpn)
{
	/* as struct forward_open */
	const struct {
		u64 xrcd;
		u32 serial, initiator;
		u8 psn_shift, resources, zero[6];
	} open = { .xrcd = h.domain, .psn_shift = 12, .resources = 4 };
	struct pkt p = { .opcode = PKT_FORWARD_OPEN,
			 .qp_type = PKT_TYPE_FORWARDED,
			 .dqpn = number_of(2, 9),
			 .sqpn = qpn,
			 .length = sizeof(open) };
	struct member *m = &h.m[2];

	m->path.user_ops->receive(m->path.user, &m->way[1].dest, &p, &open);
}

static void forward_expect_refused(u32 refused)
{
	assert_int_equal(h.m[2].counters[COUNT_RX_REFUSED], refused);
}

static void forward__only_targets_hand_on(void **state)
{
	forward_begin(1, DOMAIN);
	forward_tell(number_of(1, QPN));
	forward_expect_refused(0);
	forward_tell(number_of(1, QPN + 1));
	forward_expect_refused(1);
	forward_close();
}

/* Two processes have a domain of their own with the same number. */
static void forward__a_private_domain_has_no_proxies(void **state)
{
	forward_begin(1, PRIVATE);
	forward_tell(number_of(1, QPN));
	forward_expect_refused(1);
	forward_close();
}

static void forward__a_private_domain_hands_nothing_on(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND },
			   *bad;
	struct ibv_wc wc;

	forward_begin(1, PRIVATE);
	sge = (struct ibv_sge){ (u64)(uintptr_t)h.out, 8, h.m[0].key };
	wr.qp_type.xrc.remote_srqn = number_of(2, 9);
	assert_int_equal(ibt_post_send(h.ini, &wr, &bad, NULL), 0);
	for (u32 i = 0; i < 1000; i++) {
		h.now += 10000;
		ibt_poll(h.m[i % 2].ibt, 16);
	}
	assert_int_equal(cq_pop(&h.m[0].cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_REM_INV_REQ_ERR);
	forward_close();
}

static void forward__proxies_of_one_process_have_a_limit(void **state)
{
	enum { MOST = 2048 };

	forward_begin(1, DOMAIN);
	h.crowd = true;
	for (u32 i = 0; i < MOST + 5; i++)
		forward_tell(number_of(1, 100 + i));
	forward_expect_refused(5);
	/* one that it has is not refused */
	forward_tell(number_of(1, 100));
	forward_expect_refused(5);
	forward_close();
}

/* The initiator's packet `p` comes once more, and gets so many answers. */
static void forward_again(const struct pkt *p, u32 answers)
{
	struct pkt ours = h.asked;
	u32 before = h.answers;

	assert_int_equal(forward_path_send(&h.m[0].way[1].dest, p, NULL, 0), 0);
	forward_pass(50 * NS_PER_MS);
	assert_int_equal(h.answers - before, answers);
	assert_int_equal(ibt_qp_state(h.tgt), IBV_QPS_RTS);
	h.asked = ours;
}

/* As again__repeated_request_of_other_memory_is_dropped (again_test.c), in the target's process and
 * by its proxy in another one. */
static void forward__a_duplicate_of_other_memory_is_dropped(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	forward_open(1);
	for (u32 i = 0; i < 2 * ARRAY_LEN(opcodes); i++) {
		struct request *r = &h.request[h.posted];
		struct pkt first, p;

		*r = (struct request){ .tag = h.posted + 1,
				       .opcode = opcodes[i % 2],
				       .to = 1 + (int)i / 2,
				       .length = 8 };
		request_post();
		forward_pass(50 * NS_PER_MS);
		assert_int_equal(h.done, h.posted);
		p = first = h.asked;
		p.rkey ^= 1 << 12;
		forward_again(&p, 0);
		p = first;
		p.va += 8;
		forward_again(&p, 0);
		p = first;
		p.dma_length += 8;
		forward_again(&p, 0);
		forward_again(&first, 1);
	}
	forward_close();
}

/* The initiator has no other word of requests that the target holds. */
static void forward__the_target_fails_with_requests_held(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	forward_open(1);
	h.request[0] =
		(struct request){ .tag = 1, .opcode = IBV_WR_RDMA_WRITE, .to = 2, .length = 8 };
	request_post();
	while (way_first(&h.m[1].way[2]) == NULL)
		forward_step();
	h.gone = true;
	assert_int_equal(ibt_qp_modify(h.tgt, &a, IBV_QP_STATE, NULL, NULL), 0);
	forward_pass(5 * NS_PER_S);
	assert_int_equal(h.done, 1);
	assert_true(h.failed);
	forward_close();
}

/* ---- what a process has several of ---- */

/* A packet of a target of member 1 for member 2's SRQ. */
static void forward_give(u32 qpn, u8 opcode, u32 psn, u32 length)
{
	static const u8 payload[MTU];
	struct pkt p = { .opcode = opcode,
			 .qp_type = PKT_TYPE_FORWARDED,
			 .dqpn = number_of(2, 9),
			 .sqpn = qpn,
			 .psn = psn,
			 .length = length };
	struct member *m = &h.m[2];

	m->path.user_ops->receive(m->path.user, &m->way[1].dest, &p, payload);
}

/* Each of several targets has taken a receive of the SRQ for the first part of its message. */
static void forward_begin_messages(u32 first_qpn, u32 step)
{
	struct member *m = &h.m[2];

	h.crowd = true;
	h.room = 8 * RECEIVES;
	for (u32 i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { (u64)(uintptr_t)m->memory + i * ROOM, ROOM, m->key };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		assert_int_equal(ibt_srq_post(m->srq, &wr, &bad), 0);
		m->receive[i] = 1;
		forward_tell(number_of(1, first_qpn + i * step));
		forward_give(number_of(1, first_qpn + i * step), PKT_SEND_FIRST, 0, MTU);
	}
	forward_expect_refused(0);
}

/* A process dies with several targets in the middle of a message: each receive comes back. Their
 * numbers share a bucket, or not. */
static void forward__a_process_dies_with_several_targets(void **state)
{
	static const u32 steps[] = { 1, 1024 };

	for (u32 k = 0; k < ARRAY_LEN(steps); k++) {
		struct member *m;
		struct ibv_wc wc;

		forward_begin(1, DOMAIN);
		m = &h.m[2];
		forward_begin_messages(100, steps[k]);
		assert_int_equal(cq_pop(&m->cq, 1, &wc), 0);
		m->path.user_ops->dead(m->path.user, &m->way[1].dest);
		for (u32 i = 0; i < RECEIVES; i++) {
			assert_int_equal(cq_pop(&m->cq, 1, &wc), 1);
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(m->receive[wc.wr_id], 1);
			m->receive[wc.wr_id] = 0;
		}
		forward_close();
	}
}

/* The SRQ goes while handed messages have receives of it: the targets let go of it, and what comes
 * of their messages is refused. */
static void forward__an_srq_goes_under_its_messages(void **state)
{
	struct ibv_wc wc;
	struct member *m;

	forward_begin(1, DOMAIN);
	m = &h.m[2];
	forward_begin_messages(100, 1);
	ibt_srq_leave_domain(m->srq);
	ibt_srq_destroy(m->srq);
	m->srq = NULL;
	for (u32 i = 0; i < RECEIVES; i++)
		forward_give(number_of(1, 100 + i), PKT_SEND_MIDDLE, 1, MTU);
	forward_tell(number_of(1, 100));
	forward_give(number_of(1, 100), PKT_SEND_FIRST, 0, MTU);
	assert_int_equal(cq_pop(&m->cq, 1, &wc), 0);
	assert_int_equal(m->counters[COUNT_TX_NAK], RECEIVES + 1);
	forward_close();
}

/* ---- what is held ---- */

/* Requests of a packet each; the first may be one that needs a receive. */
static void held_post(u32 count, bool send)
{
	for (u32 i = 0; i < count; i++) {
		struct ibv_sge sge = { (u64)(uintptr_t)h.out, 1024, h.m[0].key };
		struct ibv_send_wr wr = { .wr_id = i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = i == 0 && send ? IBV_WR_SEND
								   : IBV_WR_RDMA_WRITE },
				   *bad;

		wr.wr.rdma.remote_addr = (u64)(uintptr_t)h.m[2].memory;
		wr.wr.rdma.rkey = h.m[2].key;
		wr.qp_type.xrc.remote_srqn = number_of(2, 9);
		assert_int_equal(ibt_post_send(h.ini, &wr, &bad, NULL), 0);
	}
}

/* Without lots: the first `members` run, and time passes. */
static void held_run(u32 steps, u32 members)
{
	for (u32 i = 0; i < steps; i++) {
		h.now += 30000;
		for (u32 k = 0; k < members; k++) {
			ibt_poll(h.m[k].ibt, 64);
			timer_run(&h.m[k].timers, h.now);
		}
	}
}

/* The target holds copies while there is no room on the way to the other process. That executes
 * them, or refuses the first one until there is a receive. */
static void held_round(u32 count, bool refused)
{
	struct ibv_sge sge = { (u64)(uintptr_t)h.m[2].memory, ROOM, h.m[2].key };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	h.room = 1;
	held_post(count, refused);
	held_run(2 * count, 2);
	h.room = 2 * OUT;
	held_run(refused ? 20 : 100, 3);
	if (refused) {
		assert_int_not_equal(h.m[1].counters[COUNT_TX_RNR], 0);
		assert_int_equal(ibt_srq_post(h.m[2].srq, &recv, &bad), 0);
		held_run(100, 3);
		assert_int_equal(cq_pop(&h.m[2].cq, 1, &wc), 1);
	}
	for (u32 i = 0; i < count; i++) {
		assert_int_equal(cq_pop(&h.m[0].cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
}

/* Executed or dropped, they make room for others, however many there were: else the target drops
 * some and says that they are missing. */
static void forward__bytes_held_are_given_back(void **state)
{
	enum { EACH = OUT - 1, ROUNDS = 2 * (512 << 10) / (EACH * 1024) };

	for (u32 refused = 0; refused < 2; refused++) {
		forward_begin(1, DOMAIN);
		for (u32 i = 0; i < ROUNDS; i++)
			held_round(EACH, refused != 0);
		held_round(EACH, false);
		assert_int_equal(h.m[1].counters[COUNT_TX_NAK], 0);
		forward_close();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forward__all_arrives_in_order_and_once),
		cmocka_unit_test(forward__an_srqs_process_dies),
		cmocka_unit_test(forward__the_target_dies),
		cmocka_unit_test(forward__only_targets_hand_on),
		cmocka_unit_test(forward__a_private_domain_has_no_proxies),
		cmocka_unit_test(forward__a_private_domain_hands_nothing_on),
		cmocka_unit_test(forward__proxies_of_one_process_have_a_limit),
		cmocka_unit_test(forward__a_duplicate_of_other_memory_is_dropped),
		cmocka_unit_test(forward__the_target_fails_with_requests_held),
		cmocka_unit_test(forward__a_process_dies_with_several_targets),
		cmocka_unit_test(forward__an_srq_goes_under_its_messages),
		cmocka_unit_test(forward__bytes_held_are_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
