/* recovery_test.c: the node dies and another takes over, while processes go on.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  a few threads, children       Locks: none
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const u8 recovery_gid[16] = { 0xff, 0x0e, 7 };

/* Two processes with a pair, a slot each, and one membership. */
struct recovery {
	struct harness a, b;
	u32 slot_a, slot_b;
	u64 process_a, process_b;
	int rings;
};

static void recovery_begin(struct recovery *r)
{
	struct node_peer peer;
	struct node_event ev;

	r->rings = memfd_create("rings", MFD_CLOEXEC);
	harness_attach(&r->a);
	harness_attach(&r->b);
	assert_int_equal(node_slot_take(r->a.node, &r->slot_a), 0);
	assert_int_equal(node_slot_take(r->b.node, &r->slot_b), 0);
	assert_int_equal(node_connect(r->a.node, r->slot_b, r->rings, &peer), 0);
	harness_close_peer(&peer);
	ev = harness_wait_event(&r->b, NODE_EVENT_PEER_NEW);
	harness_close_peer(&ev.peer);
	assert_int_equal(node_mcast_join(r->a.node, recovery_gid, 77), 0);
	r->process_a = node_process(r->a.node);
	r->process_b = node_process(r->b.node);
}

static void recovery_end(struct recovery *r)
{
	harness_detach(&r->a);
	harness_detach(&r->b);
	close(r->rings);
}

static void recovery_assert_kept(struct recovery *r)
{
	struct node_peer peer;
	struct node_member m;
	u32 slot;

	assert_int_equal(node_process(r->a.node), r->process_a);
	assert_int_equal(node_process(r->b.node), r->process_b);
	assert_int_equal(harness_status().attached, 2);
	assert_int_equal(harness_status().slots_taken, 2);
	assert_int_equal(harness_status().pairs, 1);
	assert_int_equal(node_connect(r->b.node, r->slot_a, r->rings, &peer), -EALREADY);
	assert_int_equal(peer.process, r->process_a);
	assert_int_equal(node_mcast_members(r->b.node, recovery_gid, 0, &m, 1), 1);
	assert_int_equal(m.process, r->process_a);
	assert_int_equal(m.qpn, 77);
	assert_int_equal(node_slot_take(r->b.node, &slot), 0);
	assert_int_not_equal(slot, r->slot_a);
	assert_int_not_equal(slot, r->slot_b);
}

static void node_recover__keeps_what_processes_have(void **state)
{
	struct node_event ev;
	struct recovery r;
	int old, fd;

	recovery_begin(&r);
	fd = node_event_fd(r.a.node);
	old = harness_daemon();
	harness_kill_daemon();
	harness_wait_event(&r.a, NODE_EVENT_LOST);
	harness_wait_event(&r.b, NODE_EVENT_LOST);
	/* said once */
	assert_false(node_event_next(r.a.node, &ev));
	assert_false(harness_readable(fd, 0));
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_not_equal(harness_daemon(), old);
	assert_int_equal(node_event_fd(r.a.node), fd);
	harness_wait_event(&r.a, NODE_EVENT_CONFIG);
	recovery_assert_kept(&r);
	recovery_end(&r);
}

/* Others were faster, and the new node has no room for what the old one granted: who leaves the
 * group then has left it, and can join again when there is room. */
static void node_recover__leaves_a_group_that_was_refused(void **state)
{
	u8 others[16] = { 0xff, 0x0e, 8 };
	struct recovery r;

	recovery_begin(&r);
	harness_kill_daemon();
	harness_wait_event(&r.b, NODE_EVENT_LOST);
	assert_int_equal(node_recover(r.b.node), 0);
	for (u32 i = 0; i < NODE_MEMBERS; i++)
		assert_int_equal(node_mcast_join(r.b.node, others, 2 + i), 0);
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_mcast_join(r.a.node, recovery_gid, 78), -ENOSPC);
	assert_int_equal(node_mcast_leave(r.a.node, recovery_gid, 77), 0);
	assert_int_equal(node_mcast_leave(r.a.node, recovery_gid, 77), -ENOENT);
	assert_int_equal(node_mcast_leave(r.b.node, others, 2), 0);
	assert_int_equal(node_mcast_join(r.a.node, recovery_gid, 77), 0);
	recovery_end(&r);
}

/* Nobody looks at the events: requests alone find the new node. */
static void node_recover__by_a_request(void **state)
{
	struct recovery r;
	u32 slot;

	recovery_begin(&r);
	harness_kill_daemon();
	assert_int_equal(node_slot_take(r.a.node, &slot), 0);
	assert_int_not_equal(slot, r.slot_a);
	assert_int_not_equal(slot, r.slot_b);
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_equal(harness_status().slots_taken, 3);
	assert_int_equal(harness_status().pairs, 1);
	recovery_end(&r);
}

/* Nodes that end in good order leave their processes alike. */
static void node_recover__after_sigterm(void **state)
{
	struct recovery r;
	struct node_event ev;
	int old;

	recovery_begin(&r);
	old = harness_daemon();
	kill(old, SIGTERM);
	harness_wait_event(&r.a, NODE_EVENT_LOST);
	ev = harness_wait_event(&r.b, NODE_EVENT_LOST);
	assert_int_equal(ev.type, NODE_EVENT_LOST);
	for (int i = 0; i < 500 && harness_daemon() == old; i++)
		usleep(1000);
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	recovery_assert_kept(&r);
	recovery_end(&r);
}

static void node_recover__survivors_slots_are_not_given_out(void **state)
{
	struct recovery r;
	struct harness c;
	u32 slot;

	recovery_begin(&r);
	harness_kill_daemon();
	/* a newcomer starts the new node before the survivors notice */
	harness_attach(&c);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(node_slot_take(c.node, &slot), 0);
		assert_int_not_equal(slot, r.slot_a);
		assert_int_not_equal(slot, r.slot_b);
	}
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_equal(harness_status().slots_taken, 1002);
	harness_detach(&c);
	recovery_assert_kept(&r);
	recovery_end(&r);
}

static void *recovery_late(void *arg)
{
	struct recovery *r = arg;

	usleep(200000);
	if (node_recover(r->b.node) != 0)
		return NULL;
	return r;
}

static void node_connect__waits_for_a_survivor(void **state)
{
	struct node_peer peer;
	struct recovery r;
	struct harness c;
	pthread_t id;
	void *fine;

	recovery_begin(&r);
	harness_kill_daemon();
	harness_attach(&c);
	pthread_create(&id, NULL, recovery_late, &r);
	assert_int_equal(node_connect(c.node, r.slot_b, r.rings, &peer), 0);
	assert_int_equal(peer.process, r.process_b);
	pthread_join(id, &fine);
	assert_non_null(fine);
	harness_close_peer(&peer);
	/* one that does not come back is not waited for, after a while */
	assert_int_equal(node_connect(c.node, r.slot_a, r.rings, &peer), -EAGAIN);
	harness_detach(&c);
	recovery_end(&r);
}

/* The old node told one end of a new pair only: the other must not believe in it. */
static void node_recover__half_a_pair_is_over(void **state)
{
	struct node_peer peer;
	struct node_event ev;
	struct recovery r;
	struct harness c;
	struct proto_peer lost;
	struct message m;

	recovery_begin(&r);
	while (node_event_next(r.b.node, &ev))
		;
	harness_attach(&c);
	assert_int_equal(node_connect(c.node, r.slot_b, r.rings, &peer), 0);
	harness_close_peer(&peer);
	/* what b has not read would still be in its socket when the node dies: that must be
	 * lost, too */
	lock_acquire(&r.b.node->state_lock);
	assert_int_equal(message_receive(r.b.node->events, &lost, sizeof(lost), &m), 0);
	lock_release(&r.b.node->state_lock);
	assert_int_equal(lost.head.type, PROTO_EV_PEER_NEW);
	message_close(&m);
	harness_kill_daemon();
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_equal(node_recover(c.node), 0);
	ev = harness_wait_event(&c, NODE_EVENT_PEER_GONE);
	assert_int_equal(ev.peer.process, r.process_b);
	harness_detach(&c);
	recovery_end(&r);
}

/* An event that came before the node's death is not lost. */
static void node_recover__unread_events_are_kept(void **state)
{
	struct node_peer peer;
	struct node_event ev;
	struct recovery r;
	struct harness c;

	recovery_begin(&r);
	harness_attach(&c);
	assert_int_equal(node_connect(c.node, r.slot_b, r.rings, &peer), 0);
	harness_close_peer(&peer);
	harness_kill_daemon();
	assert_int_equal(node_recover(c.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_equal(node_recover(r.a.node), 0);
	ev = harness_wait_event(&r.b, NODE_EVENT_PEER_NEW);
	assert_int_equal(ev.peer.process, node_process(c.node));
	assert_true(harness_same_file(ev.peer.ring_fd, r.rings));
	harness_close_peer(&ev.peer);
	assert_int_equal(harness_status().pairs, 2);
	harness_detach(&c);
	recovery_end(&r);
}

/* A process that died while there was no node: its slots are free, its peers see the pidfd. */
static void node_recover__one_died_meanwhile(void **state)
{
	struct node_peer peer;
	struct recovery r;
	int out[2], pid;
	u32 slot;

	recovery_begin(&r);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		struct harness h;

		harness_drop(&r.a);
		harness_drop(&r.b);
		harness_attach(&h);
		if (node_slot_take(h.node, &slot) != 0 || write(out[1], &slot, sizeof(slot)) < 0)
			_exit(1);
		pause();
	}
	assert_int_equal(read(out[0], &slot, sizeof(slot)), sizeof(slot));
	assert_int_equal(node_connect(r.a.node, slot, r.rings, &peer), 0);
	harness_kill_daemon();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(harness_readable(peer.pid_fd, 1000));
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	assert_int_equal(harness_status().slots_taken, 2);
	assert_int_equal(node_connect(r.b.node, slot, r.rings, &peer), -ENOENT);
	harness_close_peer(&peer);
	close(out[0]);
	close(out[1]);
	recovery_end(&r);
}

static void node_recover__failure_is_said_again(void **state)
{
	struct recovery r;

	recovery_begin(&r);
	harness_kill_daemon();
	harness_wait_event(&r.a, NODE_EVENT_LOST);
	setenv("ANYVERBS_DAEMON", "/nonexistent/anyverbsd", 1);
	assert_int_equal(node_recover(r.a.node), -ECONNREFUSED);
	harness_wait_event(&r.a, NODE_EVENT_LOST);
	assert_int_equal(node_recover(r.a.node), -ECONNREFUSED);
	unsetenv("ANYVERBS_DAEMON");
	harness_wait_event(&r.a, NODE_EVENT_LOST);
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	recovery_assert_kept(&r);
	recovery_end(&r);
}

enum { RECOVERY_ROUNDS = 30 };

static bool recovery_stop; /* atomic */

static void *recovery_watch(void *arg)
{
	struct harness *h = arg;
	struct node_event ev;

	while (!__atomic_load_n(&recovery_stop, __ATOMIC_RELAXED)) {
		if (!harness_readable(node_event_fd(h->node), 20) ||
		    !node_event_next(h->node, &ev))
			continue;
		if (ev.type == NODE_EVENT_LOST)
			while (node_recover(h->node) != 0)
				usleep(1000);
		if (ev.type == NODE_EVENT_PEER_NEW)
			harness_close_peer(&ev.peer);
	}
	return NULL;
}

/* kill -9 at any instant: requests go on, and nobody loses a slot. */
static void node_recover__again_and_again(void **state)
{
	bool mine[NODE_SLOTS] = { false };
	struct recovery r;
	pthread_t watch[2];
	u32 slot, taken = 2;

	recovery_begin(&r);
	recovery_stop = false;
	mine[r.slot_a] = mine[r.slot_b] = true;
	pthread_create(&watch[0], NULL, recovery_watch, &r.a);
	pthread_create(&watch[1], NULL, recovery_watch, &r.b);
	srandom(1);
	for (int i = 0; i < RECOVERY_ROUNDS; i++) {
		int pid = harness_daemon();

		usleep((useconds_t)(random() % 3000));
		if (pid > 0)
			kill(pid, SIGKILL);
		for (int k = 0; k < 4; k++, taken++) {
			assert_int_equal(node_slot_take(k % 2 ? r.a.node : r.b.node, &slot), 0);
			assert_false(mine[slot]);
			mine[slot] = true;
		}
	}
	assert_int_equal(node_recover(r.a.node), 0);
	assert_int_equal(node_recover(r.b.node), 0);
	__atomic_store_n(&recovery_stop, true, __ATOMIC_RELAXED);
	pthread_join(watch[0], NULL);
	pthread_join(watch[1], NULL);
	assert_int_equal(harness_status().attached, 2);
	assert_int_equal(harness_status().slots_taken, taken);
	assert_int_equal(harness_status().pairs, 1);
	recovery_end(&r);
}

/* ---- processes that are reached over the wire only ------------------------------------------- */

static bool by_wire(const struct harness *h, u32 slot)
{
	return node_slot_is_wire_only(h->node, slot);
}

/* The node tells it of the slot, and that there is one. */
static void assert_by_wire(const struct harness *h, u32 slot, bool wanted)
{
	assert_int_equal(by_wire(h, slot), wanted);
	assert_int_equal(by_wire(h, 0), wanted);
}

/* Connections are routed while the process has not come back, and stay with their path. */
static void node_recover__knows_who_is_reached_over_the_wire(void **state)
{
	struct harness first, wire;
	u32 slot, other;

	harness_attach(&first);
	harness_attach_by_wire(&wire);
	assert_int_equal(node_slot_take(wire.node, &slot), 0);
	assert_int_equal(node_slot_take(first.node, &other), 0);
	assert_by_wire(&first, slot, true);
	harness_kill_daemon();
	assert_int_equal(node_recover(first.node), 0);
	assert_by_wire(&first, slot, true);
	assert_false(by_wire(&first, other));
	assert_int_equal(node_recover(wire.node), 0);
	assert_by_wire(&first, slot, true);
	/* it ends while there is no node */
	harness_kill_daemon();
	harness_detach(&wire);
	assert_int_equal(node_recover(first.node), 0);
	assert_by_wire(&first, slot, false);
	harness_detach(&first);
}

/* It ends when there is a node again, and has not come back to that. */
static void node_recover__forgets_one_that_does_not_come_back(void **state)
{
	struct harness first, wire;
	u32 slot;

	harness_attach(&first);
	harness_attach_by_wire(&wire);
	assert_int_equal(node_slot_take(wire.node, &slot), 0);
	harness_kill_daemon();
	assert_int_equal(node_recover(first.node), 0);
	assert_by_wire(&first, slot, true);
	harness_detach(&wire);
	for (int i = 0; i < HARNESS_PATIENCE_MS && by_wire(&first, slot); i++)
		usleep(1000);
	assert_by_wire(&first, slot, false);
	harness_detach(&first);
}

static void node_detach__has_the_slot_forgotten(void **state)
{
	struct harness first, wire;
	u32 slot;

	harness_attach(&first);
	harness_attach_by_wire(&wire);
	assert_int_equal(node_slot_take(wire.node, &slot), 0);
	assert_by_wire(&first, slot, true);
	harness_detach(&wire);
	for (int i = 0; i < HARNESS_PATIENCE_MS && harness_status().attached > 1; i++)
		usleep(1000);
	assert_by_wire(&first, slot, false);
	harness_detach(&first);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, harness_setup, harness_teardown)
	const struct CMUnitTest tests[] = {
		CASE(node_recover__keeps_what_processes_have),
		CASE(node_recover__leaves_a_group_that_was_refused),
		CASE(node_recover__by_a_request),
		CASE(node_recover__after_sigterm),
		CASE(node_recover__survivors_slots_are_not_given_out),
		CASE(node_connect__waits_for_a_survivor),
		CASE(node_recover__half_a_pair_is_over),
		CASE(node_recover__unread_events_are_kept),
		CASE(node_recover__one_died_meanwhile),
		CASE(node_recover__failure_is_said_again),
		CASE(node_recover__again_and_again),
		CASE(node_recover__knows_who_is_reached_over_the_wire),
		CASE(node_recover__forgets_one_that_does_not_come_back),
		CASE(node_detach__has_the_slot_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
