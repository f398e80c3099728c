/* pair_test.c: slots, pairs, multicast, and the deaths of processes.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  a few threads, children       Locks: none
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static int pair_rings(void)
{
	return memfd_create("rings", MFD_CLOEXEC);
}

/* The peer's descriptors are those of `h`. */
static void pair_assert_is(const struct node_peer *peer, const struct harness *h, int rings)
{
	u64 one = 1, got = 0;

	assert_int_equal(peer->process, node_process(h->node));
	assert_int_equal(peer->pid, getpid());
	assert_true(harness_same_file(peer->ring_fd, rings));
	assert_true(harness_same_file(peer->board_fd, h->self.board_fd));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(write(peer->bell_fd[i], &one, sizeof(one)), sizeof(one));
		assert_int_equal(read(h->self.bell_fd[i], &got, sizeof(got)), sizeof(got));
		assert_int_equal(got, 1);
	}
	assert_true(peer->pid_fd >= 0);
	assert_false(harness_readable(peer->pid_fd, 0));
	assert_true(fcntl(peer->ring_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(peer->board_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(peer->pid_fd, F_GETFD) & FD_CLOEXEC);
}

static void node_connect__both_ends_get_each_other(void **state)
{
	struct node_peer peer;
	struct node_event ev;
	struct harness a, b;
	int rings = pair_rings();
	u32 slot;

	harness_attach(&a);
	harness_attach(&b);
	assert_int_equal(node_slot_take(b.node, &slot), 0);
	assert_int_equal(node_connect(a.node, slot, rings, &peer), 0);
	pair_assert_is(&peer, &b, rings);
	assert_int_not_equal(peer.ring_fd, rings);
	harness_close_peer(&peer);
	ev = harness_wait_event(&b, NODE_EVENT_PEER_NEW);
	pair_assert_is(&ev.peer, &a, rings);
	harness_close_peer(&ev.peer);
	assert_false(harness_readable(node_event_fd(a.node), 0));
	assert_false(node_event_next(a.node, &ev));
	close(rings);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_connect__later_one_hears_of_the_earlier(void **state)
{
	struct node_peer peer = { .process = 0 };
	struct node_event ev;
	struct harness a, b;
	int rings = pair_rings();
	u32 slot[2];

	harness_attach(&a);
	harness_attach(&b);
	assert_int_equal(node_slot_take(a.node, &slot[0]), 0);
	assert_int_equal(node_slot_take(b.node, &slot[1]), 0);
	assert_int_equal(node_connect(a.node, slot[1], rings, &peer), 0);
	harness_close_peer(&peer);
	assert_int_equal(node_connect(a.node, slot[1], rings, &peer), -EALREADY);
	memset(&peer, 0, sizeof(peer));
	assert_int_equal(node_connect(b.node, slot[0], rings, &peer), -EALREADY);
	assert_int_equal(peer.process, node_process(a.node));
	ev = harness_wait_event(&b, NODE_EVENT_PEER_NEW);
	assert_int_equal(ev.peer.process, node_process(a.node));
	harness_close_peer(&ev.peer);
	assert_int_equal(harness_status().pairs, 1);
	close(rings);
	harness_detach(&b);
	harness_detach(&a);
	assert_int_equal(harness_status().pairs, 0);
}

static void node_connect__to_nobody_and_to_oneself(void **state)
{
	struct node_peer peer;
	struct harness a;
	int rings = pair_rings();
	u32 slot;

	harness_attach(&a);
	assert_int_equal(node_slot_take(a.node, &slot), 0);
	assert_int_equal(node_connect(a.node, slot, rings, &peer), -EINVAL);
	assert_int_equal(node_connect(a.node, slot + 1, rings, &peer), -ENOENT);
	assert_int_equal(node_connect(a.node, NODE_SLOTS, rings, &peer), -ENOENT);
	assert_int_equal(node_connect(a.node, UINT32_MAX, rings, &peer), -ENOENT);
	assert_int_equal(node_connect(a.node, 0, rings, &peer), -ENOENT);
	assert_int_equal(node_connect(a.node, slot + 1, -1, &peer), -EBADF);
	close(rings);
	harness_detach(&a);
}

struct pair_thread {
	struct node *node;
	pthread_barrier_t *start;
	u32 slot;
	int rings, err;
	struct node_peer peer;
};

static void *pair_connect(void *arg)
{
	struct pair_thread *t = arg;

	pthread_barrier_wait(t->start);
	t->err = node_connect(t->node, t->slot, t->rings, &t->peer);
	return NULL;
}

static void node_connect__at_the_same_time_makes_one_pair(void **state)
{
	pthread_barrier_t start;
	int rings[2] = { pair_rings(), pair_rings() };

	pthread_barrier_init(&start, NULL, 2);
	for (int round = 0; round < 50; round++) {
		struct harness h[2];
		struct pair_thread t[2];
		struct node_event ev;
		pthread_t id[2];
		int loser;

		for (int i = 0; i < 2; i++) {
			harness_attach(&h[i]);
			t[i].node = h[i].node;
			t[i].start = &start;
			t[i].rings = rings[i];
			assert_int_equal(node_slot_take(h[i].node, &t[!i].slot), 0);
		}
		for (int i = 0; i < 2; i++)
			pthread_create(&id[i], NULL, pair_connect, &t[i]);
		for (int i = 0; i < 2; i++)
			pthread_join(id[i], NULL);
		loser = t[0].err == 0;
		assert_int_equal(t[!loser].err, 0);
		assert_int_equal(t[loser].err, -EALREADY);
		pair_assert_is(&t[!loser].peer, &h[loser], rings[!loser]);
		ev = harness_wait_event(&h[loser], NODE_EVENT_PEER_NEW);
		pair_assert_is(&ev.peer, &h[!loser], rings[!loser]);
		harness_close_peer(&t[!loser].peer);
		harness_close_peer(&ev.peer);
		harness_detach(&h[0]);
		harness_detach(&h[1]);
	}
	pthread_barrier_destroy(&start);
	close(rings[0]);
	close(rings[1]);
}

/* Connects with so few descriptors that not all of the peer's can be received. */
static void node_connect__without_descriptors_undoes_the_pair(void **state)
{
	struct rlimit old, low;
	struct node_peer peer;
	struct node_event ev;
	struct harness a, b;
	int rings = pair_rings(), before;
	u32 slot;

	harness_attach(&a);
	harness_attach(&b);
	assert_int_equal(node_slot_take(b.node, &slot), 0);
	before = count_fds();
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = (rlim_t)(harness_lowest_fd() + 2);
	setrlimit(RLIMIT_NOFILE, &low);
	assert_int_equal(node_connect(a.node, slot, rings, &peer), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(count_fds(), before);
	ev = harness_wait_event(&b, NODE_EVENT_PEER_NEW);
	harness_close_peer(&ev.peer);
	ev = harness_wait_event(&b, NODE_EVENT_PEER_GONE);
	assert_int_equal(ev.peer.process, node_process(a.node));
	assert_int_equal(ev.error, -EMFILE);
	/* and it may be tried again */
	assert_int_equal(node_connect(a.node, slot, rings, &peer), 0);
	harness_close_peer(&peer);
	close(rings);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_event_next__without_descriptors_refuses_the_pair(void **state)
{
	struct rlimit old, low;
	struct node_peer peer;
	struct node_event ev;
	struct harness a, b;
	int rings = pair_rings(), before;
	u32 slot;

	harness_attach(&a);
	harness_attach(&b);
	assert_int_equal(node_slot_take(b.node, &slot), 0);
	assert_int_equal(node_connect(a.node, slot, rings, &peer), 0);
	harness_close_peer(&peer);
	before = count_fds();
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = (rlim_t)(harness_lowest_fd() + 1);
	setrlimit(RLIMIT_NOFILE, &low);
	assert_true(harness_readable(node_event_fd(b.node), HARNESS_PATIENCE_MS));
	assert_false(node_event_next(b.node, &ev));
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(count_fds(), before);
	ev = harness_wait_event(&a, NODE_EVENT_PEER_GONE);
	assert_int_equal(ev.peer.process, node_process(b.node));
	assert_int_equal(ev.error, -EMFILE);
	assert_int_equal(harness_status().pairs, 0);
	close(rings);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_event_take__leaves_the_others(void **state)
{
	struct node_peer peer;
	struct node_event ev;
	struct harness a, b;
	int rings = pair_rings();
	u32 slot;

	harness_attach(&a);
	harness_attach(&b);
	assert_int_equal(node_slot_take(b.node, &slot), 0);
	assert_int_equal(node_connect(a.node, slot, rings, &peer), 0);
	harness_close_peer(&peer);
	node_pair_refuse(a.node, node_process(b.node), -ENOMEM);
	assert_true(node_event_take(b.node, NODE_EVENT_PEER_GONE, &ev));
	assert_int_equal(ev.type, NODE_EVENT_PEER_GONE);
	assert_int_equal(ev.peer.process, node_process(a.node));
	assert_false(node_event_take(b.node, NODE_EVENT_PEER_GONE, &ev));
	assert_true(harness_readable(node_event_fd(b.node), 0));
	assert_true(node_event_next(b.node, &ev));
	assert_int_equal(ev.type, NODE_EVENT_PEER_NEW);
	pair_assert_is(&ev.peer, &a, rings);
	harness_close_peer(&ev.peer);
	assert_false(node_event_next(b.node, &ev));
	assert_false(harness_readable(node_event_fd(b.node), 0));
	/* the end of the node waits as well */
	harness_kill_daemon();
	for (int i = 0; i < 1000 && !harness_readable(node_event_fd(b.node), 1); i++)
		;
	assert_false(node_event_take(b.node, NODE_EVENT_PEER_NEW, &ev));
	assert_true(harness_readable(node_event_fd(b.node), 0));
	assert_true(node_event_next(b.node, &ev));
	assert_int_equal(ev.type, NODE_EVENT_LOST);
	close(rings);
	harness_detach(&b);
	harness_detach(&a);
}

/* ---- slots ---- */

static void node_slot_take__slots_rest_before_reuse(void **state)
{
	bool seen[NODE_SLOTS] = { false };
	struct harness a;
	u32 slot;

	for (int i = 0; i < 100; i++) {
		harness_attach(&a);
		assert_int_equal(node_slot_take(a.node, &slot), 0);
		assert_in_range(slot, 1, NODE_SLOTS - 1);
		assert_false(seen[slot]);
		seen[slot] = true;
		harness_detach(&a);
	}
}

static void node_slot_take__ends_with_the_last(void **state)
{
	bool seen[NODE_SLOTS] = { false };
	struct harness a, b;
	u32 slot;

	harness_attach(&a);
	harness_attach(&b);
	for (int i = 1; i < NODE_SLOTS; i++) {
		assert_int_equal(node_slot_take(i % 2 ? a.node : b.node, &slot), 0);
		assert_in_range(slot, 1, NODE_SLOTS - 1);
		assert_false(seen[slot]);
		seen[slot] = true;
	}
	assert_int_equal(node_slot_take(a.node, &slot), -ENOSPC);
	/* none has rested enough, but there are no others */
	harness_detach(&b);
	for (int i = 0; i < 500 && harness_status().attached > 1; i++)
		usleep(1000);
	assert_int_equal(node_slot_take(a.node, &slot), 0);
	harness_detach(&a);
}

/* ---- death ---- */

/* A child that owns a slot and waits for its end. */
static int pair_spawn_owner(struct harness *mine, u32 *slot, bool (*end)(void))
{
	int out[2], pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		struct harness h;

		harness_drop(mine);
		harness_attach(&h);
		if (node_slot_take(h.node, slot) != 0 || write(out[1], slot, sizeof(*slot)) < 0)
			_exit(1);
		close(out[1]);
		if (end != NULL)
			end();
		pause();
		_exit(0);
	}
	assert_int_equal(read(out[0], slot, sizeof(*slot)), sizeof(*slot));
	close(out[0]);
	close(out[1]);
	return pid;
}

/* Two processes that are connected, the second one by pair_spawn_owner. */
struct pair {
	struct harness a;
	struct node_peer peer;
	int rings, pid;
	u32 slot;
};

static void pair_open(struct pair *p, bool (*end)(void))
{
	p->rings = pair_rings();
	harness_attach(&p->a);
	p->pid = pair_spawn_owner(&p->a, &p->slot, end);
	assert_int_equal(node_connect(p->a.node, p->slot, p->rings, &p->peer), 0);
	assert_int_equal(p->peer.pid, p->pid);
}

static void pair_expect_gone(struct pair *p)
{
	struct node_event ev = harness_wait_event(&p->a, NODE_EVENT_PEER_GONE);

	assert_int_equal(ev.peer.process, p->peer.process);
	assert_int_equal(harness_status().slots_taken, 0);
}

static void pair_close(struct pair *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	harness_close_peer(&p->peer);
	close(p->rings);
	harness_detach(&p->a);
}

static void node_connect__peer_killed(void **state)
{
	struct node_peer again;
	struct pair p;

	pair_open(&p, NULL);
	kill(p.pid, SIGKILL);
	assert_true(harness_readable(p.peer.pid_fd, HARNESS_PATIENCE_MS));
	pair_expect_gone(&p);
	assert_int_equal(node_connect(p.a.node, p.slot, p.rings, &again), -ENOENT);
	assert_int_equal(harness_status().attached, 1);
	assert_int_equal(harness_status().pairs, 0);
	pair_close(&p);
}

static bool pair_exec(void)
{
	usleep(200000);
	execlp("sleep", "sleep", "100", NULL);
	return false;
}

/* The process lives on, but its memory is another: to its peers that is a death. */
static void node_connect__peer_calls_exec(void **state)
{
	struct pair p;

	pair_open(&p, pair_exec);
	pair_expect_gone(&p);
	assert_false(harness_readable(p.peer.pid_fd, 0));
	pair_close(&p);
}

/* ---- multicast ---- */

static void node_mcast__members_are_seen_at_once(void **state)
{
	static const u8 gid[16] = { 0xff, 0x0e, 1 }, other[16] = { 0xff, 0x0e, 2 };
	static const u8 unicast[16] = { 0xfe, 0x80 };
	struct node_member m[4];
	struct harness a, b;

	harness_attach(&a);
	harness_attach(&b);
	assert_int_equal(node_mcast_members(a.node, gid, 0, m, 4), 0);
	assert_int_equal(node_mcast_join(b.node, gid, 0x4001), 0);
	assert_int_equal(node_mcast_join(b.node, gid, 0x4001), 0);
	assert_int_equal(node_mcast_join(b.node, gid, 0x4002), 0);
	assert_int_equal(node_mcast_join(a.node, other, 0x8001), 0);
	assert_int_equal(node_mcast_join(a.node, unicast, 0x8001), -EINVAL);
	assert_int_equal(node_mcast_members(a.node, gid, 0, m, 4), 2);
	assert_int_equal(m[0].process, node_process(b.node));
	assert_int_equal(m[0].qpn, 0x4001);
	assert_int_equal(m[1].qpn, 0x4002);
	assert_int_equal(node_mcast_members(b.node, gid, 0, m, 1), 1);
	assert_int_equal(node_mcast_leave(b.node, gid, 0x4001), 0);
	assert_int_equal(node_mcast_leave(b.node, gid, 0x4001), -ENOENT);
	assert_int_equal(node_mcast_members(a.node, gid, 0, m, 4), 1);
	assert_int_equal(harness_status().members, 2);
	harness_detach(&b);
	for (int i = 0; i < 500 && node_mcast_members(a.node, gid, 0, m, 4) > 0; i++)
		usleep(1000);
	assert_int_equal(node_mcast_members(a.node, gid, 0, m, 4), 0);
	assert_int_equal(harness_status().members, 1);
	harness_detach(&a);
}

/* Piece by piece: each that stays comes once, whoever leaves meanwhile. */
static void node_mcast__members_go_on_behind_a_place(void **state)
{
	static const u8 gid[16] = { 0xff, 0x0e, 1 }, other[16] = { 0xff, 0x0e, 2 };
	struct node_member m[4];
	struct harness a;
	u32 from = 0, seen = 0;
	int n;

	harness_attach(&a);
	for (u32 i = 0; i < 10; i++) {
		assert_int_equal(node_mcast_join(a.node, gid, 100 + i), 0);
		assert_int_equal(node_mcast_join(a.node, other, 200 + i), 0);
	}
	do {
		n = node_mcast_members(a.node, gid, from, m, 4);
		for (int i = 0; i < n; i++) {
			assert_true(m[i].at >= from && m[i].at < NODE_MEMBERS);
			assert_int_equal(m[i].qpn, 100 + seen++);
			from = m[i].at + 1;
		}
		if (seen == 4)
			assert_int_equal(node_mcast_leave(a.node, gid, 100), 0);
	} while (n == 4);
	assert_int_equal(seen, 10);
	harness_detach(&a);
}

static void node_mcast__table_is_bounded(void **state)
{
	u8 gid[16] = { 0xff, 0x0e };
	struct harness a;

	harness_attach(&a);
	for (u32 i = 0; i < DIRECTORY_MEMBERS; i++)
		assert_int_equal(node_mcast_join(a.node, gid, 2 + i), 0);
	assert_int_equal(node_mcast_join(a.node, gid, 1), -ENOSPC);
	assert_int_equal(node_mcast_leave(a.node, gid, 100), 0);
	assert_int_equal(node_mcast_join(a.node, gid, 1), 0);
	harness_detach(&a);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, harness_setup, harness_teardown)
	const struct CMUnitTest tests[] = {
		CASE(node_connect__both_ends_get_each_other),
		CASE(node_connect__later_one_hears_of_the_earlier),
		CASE(node_connect__to_nobody_and_to_oneself),
		CASE(node_connect__at_the_same_time_makes_one_pair),
		CASE(node_connect__without_descriptors_undoes_the_pair),
		CASE(node_event_next__without_descriptors_refuses_the_pair),
		CASE(node_event_take__leaves_the_others),
		CASE(node_slot_take__slots_rest_before_reuse),
		CASE(node_slot_take__ends_with_the_last),
		CASE(node_connect__peer_killed),
		CASE(node_connect__peer_calls_exec),
		CASE(node_mcast__members_are_seen_at_once),
		CASE(node_mcast__members_go_on_behind_a_place),
		CASE(node_mcast__table_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
