/* order_test.c: pairs of barriers of docs/locking.md, in the real code, in every order that memory
 * may show (memory.h). The first tests are of the explorer: without what a pair has, it must see
 * it.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "litmus.h"
#include "memory.h"
#include "path/shm/shm_priv.h"
#include "queue/cq.h"

enum {
	SLOT = 5,
	QPN = SLOT << NODE_INDEX_BITS | 2,
	PEER_QPN = SLOT << NODE_INDEX_BITS | 3,
	BYTES = 8
};

static void nothing(void)
{
}

static void explore(const struct order *o)
{
	const char *wrong = order_explore(o);

	if (wrong != NULL)
		fail_msg("%s: %s (run %u)", o->name, wrong, order_runs());
	print_message("%s: %u runs\n", o->name, order_runs());
	assert_true(order_runs() > 1);
}

/* ---- the explorer ---- */

static void explorer__sees_a_missing_fence(void **state)
{
	struct order o = { "two flags", { litmus_flag_0, litmus_flag_1 }, nothing, litmus_both };

	assert_null(order_explore(&o));
	o.thread[0] = litmus_flag_0_bare;
	assert_non_null(order_explore(&o));
}

static void explorer__sees_a_missing_release_or_acquire(void **state)
{
	struct order o = { "message", { litmus_tell, litmus_hear }, nothing, litmus_heard };

	assert_null(order_explore(&o));
	o.thread[0] = litmus_tell_bare;
	assert_non_null(order_explore(&o));
	o.thread[0] = litmus_tell;
	o.thread[1] = litmus_hear_bare;
	assert_non_null(order_explore(&o));
}

static void explorer__sees_a_missing_lock(void **state)
{
	struct order o = { "counter", { litmus_count, litmus_count }, nothing, litmus_counted };

	assert_null(order_explore(&o));
	o.thread[1] = litmus_count_bare;
	assert_non_null(order_explore(&o));
}

/* ---- a path with a link to itself ---- */

static struct world {
	struct board *board;
	struct shm *shm;
	struct path *path;
	struct path_dest *self;
	int bell;
	u32 received;
	struct mem_table keys;
	struct mem_region region;
	struct path_grant grant;
	u32 key;
	u64 memory[BYTES / 8];
	int err;
} w;

static void world_receive(void *user, struct path_dest *from, const struct pkt *p,
			  const void *payload)
{
	w.received++;
}

/* What brief_send sends, in its order. */
static bool world_receive_brief(void *user, struct path_dest *from, const struct pkt_brief *b,
				const void *payload)
{
	struct pkt_brief copy;
	u64 data;

	order_memcpy(&copy, b, sizeof(copy));
	order_memcpy(&data, payload, sizeof(data));
	w.received++;
	if (copy.kind != PKT_BRIEF_KIND || copy.length != sizeof(data) || copy.qpns != QPN ||
	    copy.psns != w.received || data != 7)
		w.err = 1;
	return true;
}

static u32 world_receive_run(void *user, struct path_dest *from, const struct pkt_brief *b,
			     const void *const *payload, u32 n)
{
	for (u32 i = 0; i < n; i++)
		world_receive_brief(user, from, &b[i], payload[i]);
	return n;
}

static void bell_send(void);
static bool sends_inside; /* once, from within a poll that has found nothing */

static void world_batch_end(void *user, struct path_dest *from, bool idle)
{
	if (!idle || !sends_inside)
		return;
	sends_inside = false;
	bell_send();
}

static void world_writable(void *user, struct path_dest *dest)
{
}

static bool world_drain(void *arg, u32 key_index)
{
	return shm_drain(w.shm, key_index, UINT32_MAX) == SHM_LEFT_NOTHING;
}

static void world_kick(void *arg)
{
}

/* Who waits too long gives up, which is no part of this. */
static u64 world_clock(void)
{
	return NS_PER_S;
}

static int world_open(void **state)
{
	static const struct path_user user = { .receive = world_receive,
					       .receive_brief = world_receive_brief,
					       .receive_run = world_receive_run,
					       .batch_end = world_batch_end,
					       .writable = world_writable };
	struct shm_config cfg = { .process = 1, .direct = true, .kick = world_kick };
	int fd, err;

	clock_set_source(world_clock);
	w.board = cfg.board = board_create(&fd, &err);
	assert_non_null(w.board);
	w.board->direct = 1;
	w.board->slot_count = 1;
	w.board->slots[0] = SLOT;
	w.bell = cfg.bell_fd[0] = cfg.bell_fd[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cfg.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	w.shm = shm_create(&cfg, &err);
	assert_non_null(w.shm);
	w.path = shm_path(w.shm);
	w.path->user_ops = &user;
	w.self = &w.shm->self->dest;
	assert_int_equal(mem_table_init(&w.keys, w.board->keys), 0);
	w.keys.drain = world_drain;
	w.board->qps[2] = (struct board_qp){ .word = board_qp_word(IBV_QPS_RTS, IBV_QPT_RC, 15),
					     .pd = 1,
					     .peer_qpn = PEER_QPN,
					     .qpn = QPN };
	return 0;
}

static void world_begin(void)
{
	u64 count;

	w.received = 0;
	w.err = 0;
	while (read(w.bell, &count, sizeof(count)) > 0)
		continue;
}

static struct pkt world_packet(u32 psn)
{
	return (struct pkt){ .opcode = PKT_SEND_ONLY,
			     .qp_type = IBV_QPT_RC,
			     .dqpn = QPN,
			     .psn = psn,
			     .length = 8 };
}

/* ---- the doorbell: link_ring_bell and shm_bell_arm ---- */

static void bell_send(void)
{
	struct pkt p = world_packet(1);
	u64 data = 7;
	struct iovec iov = { &data, sizeof(data) };

	w.path->ops->send(w.self, &p, &iov, 1);
	w.path->ops->flush(w.self);
}

static void bell_sleep(void)
{
	shm_bell_arm(w.shm, 0);
	w.path->ops->poll(w.path, 16, true);
}

static const char *bell_judge(void)
{
	u64 count = 0;
	bool rung = read(w.bell, &count, sizeof(count)) > 0;

	return w.received != 0 || rung ? NULL : "a packet waits, and nobody has been rung";
}

static void bell__a_packet_is_seen_or_rings(void **state)
{
	explore(&(struct order){ "bell", { bell_send, bell_sleep }, world_begin, bell_judge });
}

/* ---- the last look, while another thread is receiving that has looked already ---- */

static void look_begin(void)
{
	world_begin();
	sends_inside = true;
	w.self->acks_owed = true; /* an empty poll has a callback */
}

static void look_poll(void)
{
	w.path->ops->poll(w.path, 16, false);
}

static void bell__the_last_look_waits_for_whoever_receives(void **state)
{
	explore(&(struct order){ "look", { look_poll, bell_sleep }, look_begin, bell_judge });
	sends_inside = w.self->acks_owed = false;
}

/* ---- the ring: ring_show and ring_peek, ring_publish and ring_refresh ---- */

static void ring_take_one(void)
{
	struct ring_rx *rx = &w.shm->self->rx;
	struct ring_item item;
	u64 data;

	w.received = (u32)ring_peek(rx, &item);
	if (w.received == 0)
		return;
	order_memcpy(&data, item.payload, sizeof(data));
	if (item.pkt.psn != 1 || item.pkt.length != 8 || data != 7)
		w.err = 1;
	ring_consume(rx, &item);
}

static const char *slot_judge(void)
{
	return w.err != 0 ? "a slot that is not whole" : NULL;
}

static void ring__a_slot_is_whole_when_it_is_seen(void **state)
{
	explore(&(struct order){ "slot", { bell_send, ring_take_one }, world_begin, slot_judge });
}

static void brief_send(void)
{
	static const u64 data[2] = { 7, 7 };
	static const void *const payload[2] = { &data[0], &data[1] };
	static const struct pkt_brief b[2] = { { PKT_BRIEF_KIND, 8, QPN, 1 },
					       { PKT_BRIEF_KIND, 8, QPN, 2 } };

	w.path->ops->send_briefs(w.self, b, payload, 2);
}

/* Without the doorbell, which has its own test: the orders would be a hundred times as many. */
static void brief_take(void)
{
	w.path->ops->poll(w.path, 16, true);
}

static const char *brief_judge(void)
{
	return w.received == 1 ? "the second is seen later than the first" : slot_judge();
}

static void ring__brief_slots_are_whole_and_seen_together(void **state)
{
	explore(&(struct order){ "briefs", { brief_send, brief_take }, world_begin, brief_judge });
}

static void ring_put(void)
{
	struct pkt p = world_packet(1);
	u64 data = 7;
	struct iovec iov = { &data, sizeof(data) };

	w.err = ring_push(&w.shm->self->tx, &p, &iov, 1);
}

static bool ring_told;

static void ring_take_and_tell(void)
{
	struct ring_item item;

	ring_peek(&w.shm->self->rx, &item);
	ring_consume(&w.shm->self->rx, &item);
	ring_told = ring_publish(&w.shm->self->rx);
}

static const char *room_judge(void)
{
	return w.err == 0 || ring_told ? NULL : "it waits for room that there is, and is not told";
}

static void ring__a_producer_without_room_is_told(void **state)
{
	u32 filled = 0;

	for (ring_put(); w.err == 0; ring_put())
		filled++;
	assert_int_equal(filled, RING_SLOTS);
	/* what is left of being refused just now */
	w.shm->self->tx.shared->waiting = 0;
	explore(&(struct order){
		"room", { ring_put, ring_take_and_tell }, world_begin, room_judge });
	for (u32 i = 0; i < filled; i++)
		ring_take_and_tell();
}

/* ---- a copy by the initiator alone: hazard_raise and shm_drain ---- */

static void hazard_copy(void)
{
	static u64 source[BYTES / 8] = { 2 };
	struct path_target t = { .sqpn = PEER_QPN,
				 .dqpn = QPN,
				 .rkey = w.key,
				 .va = (u64)(uintptr_t)w.memory,
				 .length = BYTES,
				 .write = true,
				 .type = IBV_QPT_RC };
	struct iovec iov = { source, BYTES };

	w.err = w.path->ops->direct(w.self, &t, &iov, 1);
}

/* The memory is the application's again, which writes there. */
/* The same with what the connection found last time. */
static void hazard_write(void)
{
	static u64 source[BYTES / 8] = { 2 };
	struct path_write write = { source, (u64)(uintptr_t)w.memory, BYTES, w.key };

	w.err = w.path->ops->writes(w.self, PEER_QPN, QPN, &w.grant, &write, 1) == 1 ? 0 : -EACCES;
}

static void hazard_deregister(void)
{
	static const u64 mine[BYTES / 8] = { 9 };

	mem_deregister(&w.keys, w.key);
	order_memcpy(w.memory, mine, BYTES);
}

static const char *hazard_judge(void)
{
	return w.memory[0] == 9 ? NULL : "memory was written after its deregistration";
}

static void hazard_register(void)
{
	w.region = (struct mem_region){ .addr = (u64)(uintptr_t)w.memory,
					.iova = (u64)(uintptr_t)w.memory,
					.length = BYTES,
					.pd = 1,
					.flags = MEM_CONTIGUOUS,
					.access = IBV_ACCESS_LOCAL_WRITE |
						  IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(mem_register(&w.keys, &w.region, &w.key), 0);
}

static void hazard_explore(const char *name, void (*act)(void))
{
	struct order o = { name, { act, hazard_deregister }, world_begin, hazard_judge };
	u64 done = w.board->hazards[0].done;

	hazard_register();
	act();
	assert_int_equal(w.err, 0);
	assert_int_equal(w.memory[0], 2);
	assert_int_equal(w.board->hazards[0].done, done + 1);
	explore(&o);
}

static void hazard__nobody_copies_after_deregistration(void **state)
{
	hazard_explore("hazard", hazard_copy);
}

static void hazard__what_was_found_is_forgotten(void **state)
{
	hazard_explore("grant", hazard_write);
}

/* ---- notification: cq_arm and cq_commit ---- */

static struct cq cq;
static struct channel *channel;
static int missed;

static void arm_add(void)
{
	struct cqe e = { .wc = { .wr_id = 1 } };

	cq_push(&cq, &e, false);
}

static void arm_arm(void)
{
	missed = cq_arm(&cq, CQ_NEXT_COMP | CQ_REPORT_MISSED);
}

static void arm_begin(void)
{
	struct pollfd p = { .fd = channel_fd(channel), .events = POLLIN };
	u64 count;

	while (poll(&p, 1, 0) > 0 && read(p.fd, &count, sizeof(count)) > 0)
		continue;
}

static const char *arm_judge(void)
{
	return missed == 1 || cq.source.undelivered != 0 ? NULL
							 : "a completion that nobody hears of";
}

static void arm__a_completion_is_told_or_missed(void **state)
{
	int err;

	channel = channel_create(&err);
	assert_non_null(channel);
	assert_int_equal(cq_init(&cq, 16), 0);
	assert_int_equal(cq_sink_to_channel(&cq, channel, NULL), 0);
	explore(&(struct order){ "arm", { arm_add, arm_arm }, arm_begin, arm_judge });
}

static u32 taken;

static void poll_take(void)
{
	struct ibv_wc wc;

	__atomic_fetch_add(&taken, (u32)cq_pop(&cq, 1, &wc), __ATOMIC_RELAXED);
}

static void poll_begin(void)
{
	taken = 0;
	arm_begin();
}

static const char *poll_judge(void)
{
	return taken == 1 ? NULL : "one completion, taken by none or by two";
}

static void poll__a_completion_is_taken_once(void **state)
{
	arm_add();
	explore(&(struct order){ "poll", { poll_take, poll_take }, poll_begin, poll_judge });
}

static void add__two_producers_lose_nothing(void **state)
{
	struct ibv_wc wc[4];

	while (cq_pop(&cq, 4, wc) > 0)
		continue;
	explore(&(struct order){ "add", { arm_add, arm_add }, arm_begin, litmus_nothing });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(explorer__sees_a_missing_fence),
		cmocka_unit_test(explorer__sees_a_missing_release_or_acquire),
		cmocka_unit_test(explorer__sees_a_missing_lock),
		cmocka_unit_test(ring__a_slot_is_whole_when_it_is_seen),
		cmocka_unit_test(ring__brief_slots_are_whole_and_seen_together),
		cmocka_unit_test(bell__a_packet_is_seen_or_rings),
		cmocka_unit_test(bell__the_last_look_waits_for_whoever_receives),
		cmocka_unit_test(ring__a_producer_without_room_is_told),
		cmocka_unit_test(hazard__nobody_copies_after_deregistration),
		cmocka_unit_test(hazard__what_was_found_is_forgotten),
		cmocka_unit_test(arm__a_completion_is_told_or_missed),
		cmocka_unit_test(poll__a_completion_is_taken_once),
		cmocka_unit_test(add__two_producers_lose_nothing),
	};

	cmocka_set_test_filter(getenv("ORDER_TEST"));
	return cmocka_run_group_tests(tests, world_open, NULL);
}
