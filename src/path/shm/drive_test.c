/* drive_test.c: what is left to a peer's engine, and when its doorbell is rung, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "path/shm/shm_priv.h"

enum { US = 1000, MS = 1000 * US, BYTES = 1024 };

static struct world {
	struct shm *shm;
	struct shm_link link;
	struct board *ours, *theirs;
	u64 now;
} w;

static u64 world_now(void)
{
	return w.now;
}

static int world_begin(void **state)
{
	memset(&w.link, 0, sizeof(w.link));
	w.now = 1000 * MS;
	w.shm = calloc(1, sizeof(*w.shm));
	w.ours = calloc(1, sizeof(*w.ours));
	w.theirs = calloc(1, sizeof(*w.theirs));
	assert_non_null(w.shm);
	assert_non_null(w.ours);
	assert_non_null(w.theirs);
	w.shm->cfg.board = w.ours;
	w.shm->links[0] = &w.link;
	w.shm->count = 1;
	w.link.shm = w.shm;
	w.link.board = w.theirs;
	w.link.bell_fd[0] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w.link.bell_fd[1] = -1;
	w.link.pid = getpid();
	clock_set_source(world_now);
	return 0;
}

static int world_end(void **state)
{
	clock_set_source(NULL);
	close(w.link.bell_fd[0]);
	free(w.theirs);
	free(w.ours);
	free(w.shm);
	return 0;
}

static void world_pass(u64 ns, u32 polls_of_the_peer)
{
	w.now += ns;
	w.theirs->drives += polls_of_the_peer;
}

/* Asks for one WRITE with `behind` more behind it. */
static bool is_left(u32 behind)
{
	struct path_target t = {
		.length = BYTES, .write = true, .type = IBV_QPT_RC, .behind = behind
	};

	return drive_is_faster(&w.link, &t);
}

/* Has the peer polled, and this process seen it. */
static void world_see_polls(void)
{
	world_pass(5 * US, 50);
	assert_false(is_left(0));
	world_pass(5 * US, 50);
	assert_true(is_left(0));
}

/* Polls that find nothing, without a pause. */
static void look(void)
{
	for (int i = 0; i < 16 && path_has_chores(&w.link.dest); i++)
		drive_look(&w.link);
}

static u64 rings(void)
{
	u64 n = 0;

	return read(w.link.bell_fd[0], &n, sizeof(n)) < 0 ? 0 : n;
}

/* So many that were left end, after `ns`. */
static void answer(u64 ns, u32 n)
{
	w.now += ns;
	drive_answered(&w.link, n, ns, false);
	assert_false(path_presses(&w.link.dest));
}

static u32 copies_until_left(u64 ns)
{
	u32 n = 0;

	for (; n < 100000 && !is_left(0); n++)
		world_pass(ns, 10);
	return n;
}

/* Answers that take so long are waited for until the account is overdrawn. */
static u32 answers_until_copied(u64 ns)
{
	u32 n = 0;

	do {
		answer(ns, 1);
		n++;
		world_pass(US, 10);
	} while (n < 10000 && is_left(0));
	return n;
}

static void peer__that_polls_gets_it(void **state)
{
	assert_false(is_left(0)); /* nothing is known */
	world_pass(MS, 0);
	world_see_polls();
	look();
	answer(US, 1);
	world_pass(30 * US, 300);
	look();
	assert_false(path_has_chores(&w.link.dest));
	assert_int_equal(rings(), 0);
}

static void peer__that_polled_long_ago_does_not(void **state)
{
	for (int i = 0; i < 5; i++) {
		world_pass(500 * US, 1); /* since the last look, but when? */
		assert_false(is_left(0));
	}
}

static void peer__that_stops_counts_as_polling_for_a_while(void **state)
{
	world_see_polls();
	answer(US, 1);
	world_pass(18 * US, 0);
	assert_true(is_left(0));
	answer(US, 1);
	world_pass(2 * US, 0);
	assert_false(is_left(0));
}

/* Once; and not while it polls, though it does not answer. */
static void peer__that_stops_is_rung(void **state)
{
	world_see_polls();
	look(); /* the first poll of this process behind it */
	world_pass(51 * US, 2);
	look();
	assert_int_equal(rings(), 0);
	world_pass(49 * US, 1); /* a poll that may have begun before */
	look();
	assert_int_equal(rings(), 0);
	world_pass(2 * US, 0);
	look();
	assert_int_equal(rings(), 1);
	world_pass(51 * US, 0);
	look();
	assert_int_equal(rings(), 0);
	assert_true(path_has_chores(&w.link.dest));
	assert_int_equal(w.ours->counters[COUNT_BELLS], 1);
	answer(US, 1);
}

static void peer__that_was_rung_with_the_packet_is_not_again(void **state) NO_THREAD_SAFETY
{
	world_see_polls();
	w.link.rung++; /* it had armed its doorbell */
	look();
	world_pass(51 * US, 0);
	look();
	drive_look_all(w.shm);
	assert_int_equal(rings(), 0);
}

static void sleep__of_this_process_rings_at_once(void **state) NO_THREAD_SAFETY
{
	world_see_polls();
	drive_look_all(w.shm);
	assert_int_equal(rings(), 1);
	drive_look_all(w.shm);
	assert_int_equal(rings(), 0);
}

static void sleep__rings_no_peer_that_has_polled_since(void **state) NO_THREAD_SAFETY
{
	world_see_polls();
	look();
	world_pass(US, 2);
	drive_look_all(w.shm);
	assert_int_equal(rings(), 0);
}

/* It polls, but too seldom, or stops too often: more copies each time. */
static void peer__that_is_slow_is_tried_seldom(void **state)
{
	u32 n = 0, before;

	world_see_polls();
	for (int i = 0; i < 8; i++) {
		before = n;
		assert_in_range(answers_until_copied(18 * US), 50, 80); /* about a millisecond */
		n = copies_until_left(US);
		if (i > 0 && i < 4)
			assert_in_range(n, 2 * before - 200, 2 * before + 200);
	}
	assert_in_range(n, 32000, 36000);
}

/* WRITEs that share a system call are as many copies. */
static void peer__that_is_slow_is_tried_after_joined_copies_too(void **state)
{
	u32 n = 0;

	world_see_polls();
	answers_until_copied(18 * US);
	for (; n < 10000 && !is_left(0); n++) {
		drive_joined(&w.link, 15);
		world_pass(US, 10);
	}
	assert_in_range(n, 4000 / 16, 4500 / 16);
	drive_joined(&w.link, 15);
	assert_true(is_left(0));
}

/* Some waits in many are paid for by the others, and then nothing is held against the peer. */
static void peer__that_is_slow_at_times_is_trusted(void **state)
{
	world_see_polls();
	for (int round = 0; round < 3; round++) {
		answers_until_copied(18 * US);
		assert_in_range(copies_until_left(US), 4000, 4500);
		for (int i = 0; i < 200; i++) {
			answer(US, 1);
			world_pass(US, 10);
			assert_true(is_left(0));
		}
		answer(400 * US, 1);
		assert_in_range(copies_until_left(US), 0, 3);
	}
}

/* Copies, one right after another: after some the peer's engine is woken, and that is worth it if
 * more come meanwhile. */
static void stream__wakes_a_peer_that_sleeps(void **state)
{
	for (int i = 0; i < 32; i++, world_pass(3 * US, 0))
		assert_false(is_left(0));
	for (int i = 0; i < 5; i++) {
		assert_true(is_left(0));
		answer(50 * US, 100);
	}
}

static void stream__ends_with_a_pause(void **state)
{
	for (int i = 0; i < 32; i++, world_pass(3 * US, 0))
		assert_false(is_left(0));
	assert_true(is_left(0));
	answer(50 * US, 100);
	world_pass(100 * US, 0);
	assert_false(is_left(0));
}

static void copies__at_leisure_are_no_stream(void **state)
{
	for (int i = 0; i < 100; i++, world_pass(10 * US, 0))
		assert_false(is_left(0));
}

/* A program that waits for each of its operations, and whose peer does not poll. */
static void stream__of_one_at_a_time_stays_with_copies(void **state)
{
	u32 left = 0;

	for (int i = 0; i < 100000; i++, world_pass(3 * US, 0))
		if (is_left(0)) {
			left++;
			answer(30 * US, 1);
		}
	assert_in_range(left, 100, 300); /* of 30 us, so not a tenth of the time */
}

static void list__goes_to_a_peer_that_sleeps(void **state)
{
	assert_false(is_left(14));
	world_pass(MS, 0);
	assert_true(is_left(63));
	look();
	world_pass(51 * US, 0);
	look(); /* its engine may sleep a tick */
	assert_int_equal(rings(), 1);
	answer(20 * US, 64);
	assert_true(is_left(63));
}

/* Such as READs, of which one at a time is permitted: all belong to the first. */
static void list__of_what_goes_one_by_one_is_copied(void **state)
{
	assert_true(is_left(63));
	w.theirs->drives++;
	answer(64 * 30 * US, 64);
	assert_false(is_left(63));
	assert_true(copies_until_left(US) > 4000);
}

/* A peer that is stopped, or gets no core, for long: many copies for each such wait. */
static void peer__that_stands_still_is_tried_seldom(void **state)
{
	world_see_polls();
	answer(10 * MS, 1);
	assert_in_range(copies_until_left(US), 39000, 42000);
}

/* A stream goes on: the peer is waited for on. */
static void stream__is_pressed_to_its_end(void **state)
{
	world_see_polls();
	w.now += US;
	drive_answered(&w.link, 1, US, true);
	look();
	world_pass(51 * US, 0);
	look();
	assert_int_equal(rings(), 1);
	answer(US, 60);
}

/* What ends otherwise leaves nothing behind: a queue pair's RESET. */
static void press__ends(void **state)
{
	world_see_polls();
	world_pass(11 * MS, 0);
	look();
	assert_false(path_has_chores(&w.link.dest));
	assert_int_equal(rings(), 0);
}

static void target__decides(void **state)
{
	struct path_target t = { .length = BYTES, .write = true, .type = IBV_QPT_RC };

	world_see_polls();
	t.length = 1 << 20;
	assert_false(drive_is_faster(&w.link, &t));
	t.length = BYTES;
	t.type = IBV_QPT_UC; /* whose packets may be lost */
	assert_false(drive_is_faster(&w.link, &t));
	world_pass(MS, 0);
	t.type = IBV_QPT_RC;
	assert_false(drive_is_faster(&w.link, &t));
	t.announced = true;
	assert_true(drive_is_faster(&w.link, &t));
}

int main(void)
{
#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_begin, world_end)
	const struct CMUnitTest tests[] = {
		WORLD_TEST(peer__that_polls_gets_it),
		WORLD_TEST(peer__that_polled_long_ago_does_not),
		WORLD_TEST(peer__that_stops_counts_as_polling_for_a_while),
		WORLD_TEST(peer__that_stops_is_rung),
		WORLD_TEST(peer__that_was_rung_with_the_packet_is_not_again),
		WORLD_TEST(sleep__of_this_process_rings_at_once),
		WORLD_TEST(sleep__rings_no_peer_that_has_polled_since),
		WORLD_TEST(peer__that_is_slow_is_tried_seldom),
		WORLD_TEST(peer__that_is_slow_is_tried_after_joined_copies_too),
		WORLD_TEST(peer__that_is_slow_at_times_is_trusted),
		WORLD_TEST(stream__wakes_a_peer_that_sleeps),
		WORLD_TEST(stream__ends_with_a_pause),
		WORLD_TEST(copies__at_leisure_are_no_stream),
		WORLD_TEST(stream__of_one_at_a_time_stays_with_copies),
		WORLD_TEST(list__goes_to_a_peer_that_sleeps),
		WORLD_TEST(list__of_what_goes_one_by_one_is_copied),
		WORLD_TEST(peer__that_stands_still_is_tried_seldom),
		WORLD_TEST(stream__is_pressed_to_its_end),
		WORLD_TEST(press__ends),
		WORLD_TEST(target__decides),
	};

	return cmocka_run_group_tests_name("drive", tests, NULL, NULL);
}
