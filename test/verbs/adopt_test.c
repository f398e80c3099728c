/* adopt_test.c: one-sided operations on memory that the initiator has mapped (docs/adoption.md), or
 * has no descriptor left for. Fails where this process may not adopt.
 * In: VERBS_VARIANT: with "poor" in it, the latter    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum { BYTES = 64 * 4096, WAS = 3, IS = 4, OTHER = 5 };

static void write_once(uint64_t offset, uint32_t length)
{
	struct side_wr w = end_op(&pair.a, IBV_WR_RDMA_WRITE, offset, length, &pair.b, offset);

	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
}

/* The first operations may go another way, while the map is being made; then this process has so
 * many files mapped: its own, and those of peers that it has had. */
static void open_and_map_files(unsigned int files)
{
	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1 });
	for (int i = 0; i < 2000 && duo_files_mapped(getpid()) < files; i++) {
		write_once(0, 8);
		usleep(1000);
	}
	assert_true(duo_files_mapped(getpid()) >= files);
	/* The connection had the peer map ours. */
	for (int i = 0; i < 2000 && duo_files_mapped(pair.b.pid) < 2; i++)
		usleep(1000);
	assert_int_equal(duo_files_mapped(pair.b.pid), 2);
}

static void open_and_map(void)
{
	open_and_map_files(2);
}

static void adopt__all_operations_by_a_map(void **state)
{
	struct side_wr w;

	open_and_map();
	end_fill(&pair.a, 0, BYTES, IS);
	write_once(0, BYTES);
	end_check(&pair.b, 0, BYTES, IS);
	end_fill(&pair.b, 8, 4104, OTHER);
	w = end_op(&pair.a, IBV_WR_RDMA_READ, 8, 4099, &pair.b, 8);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.a, 8, 4096, OTHER);
	end_check(&pair.a, 0, 8, IS);
}

/* Before anything is asked of it: a connection brings the peer's few regions along. */
static void adopt__mapped_by_the_connection(void **state)
{
	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1 });
	for (int i = 0; i < 5000 && duo_files_mapped(getpid()) < 2; i++)
		usleep(1000);
	assert_int_equal(duo_files_mapped(getpid()), 2);
	end_fill(&pair.a, 0, BYTES, IS);
	write_once(0, BYTES);
	end_check(&pair.b, 0, BYTES, IS);
}

static bool status_says(const char *what)
{
	char text[32768];
	FILE *f = popen(VERBS_COMMAND " status --json", "r");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	assert_int_equal(pclose(f), 0);
	return strstr(text, what) != NULL;
}

static void adopt__shows_in_the_status(void **state)
{
	assert_false(status_says("\"adopted\": {\"regions\": 1, \"bytes\": 262144}"));
	open_and_map();
	assert_true(status_says("\"adopted\": {\"regions\": 1, \"bytes\": 262144}"));
}

static void adopt__atomics_return_what_was_there(void **state)
{
	struct side_wr w;
	uint64_t was;

	open_and_map();
	was = end_word(&pair.b, 64);
	w = end_op(&pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, &pair.b, 64);
	w.compare = 5;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	assert_int_equal(end_word(&pair.a, 0), was);
	assert_int_equal(end_word(&pair.b, 64), was + 5);
	w = end_op(&pair.a, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, &pair.b, 64);
	w.compare = was + 5;
	w.swap = 77;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	assert_int_equal(end_word(&pair.a, 0), was + 5);
	w.compare = was;
	w.swap = 78;
	end_send(&pair.a, 0, &w); /* does not match */
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	assert_int_equal(end_word(&pair.a, 0), 77);
	assert_int_equal(end_word(&pair.b, 64), 77);
}

/* A region that comes into the slot of one that has ended is found in the old map. */
static void adopt__new_region_by_the_old_map(void **state)
{
	struct side_reply mr;
	struct side_wr w;

	open_and_map();
	end_deregister(&pair.b, 0);
	assert_int_equal(duo_files_mapped(pair.b.pid), 1); /* its peer's */
	mr = end_register(&pair.b, 0, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			  false);
	assert_int_equal(duo_files_mapped(pair.b.pid), 2);
	end_fill(&pair.a, 0, 4096, OTHER);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 4096, &pair.b, 0);
	w.rkey = mr.reg.rkey;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.b, 0, 4096, OTHER);
}

static void swap_peers(void)
{
	struct end b = pair.b;

	pair.b = pair.c;
	pair.c = b;
}

/* What has been deregistered is its owner's alone, though the initiator still has the map. The
 * refusal raises an event in its target, and with that event's thread it adopts no more: so the
 * target is the third end, and later tests have the second one. */
static void adopt__ends_with_the_region(void **state)
{
	struct side_wr w;

	swap_peers();
	open_and_map_files(3);
	end_fill(&pair.a, 0, BYTES, IS);
	end_deregister(&pair.b, 0);
	end_fill(&pair.b, 0, BYTES, WAS);
	assert_int_equal(duo_files_mapped(pair.b.pid), 1); /* its peer's */
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 4096, &pair.b, 0);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_REM_ACCESS_ERR);
	end_check(&pair.b, 0, BYTES, WAS);
}

static int swap_teardown(void **state)
{
	swap_peers();
	return pair_teardown(state);
}

/* A target that is stopped is written and read all the same, and holds up nobody. */
static void adopt__target_is_stopped(void **state)
{
	struct side_wr w;

	open_and_map();
	end_fill(&pair.a, 0, BYTES, IS);
	end_fill(&pair.b, BYTES / 2, 4096, OTHER);
	assert_int_equal(kill(pair.b.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pair.b.pid, NULL, WUNTRACED), pair.b.pid);
	write_once(0, 4096);
	w = end_op(&pair.a, IBV_WR_RDMA_READ, BYTES / 2, 4096, &pair.b, BYTES / 2);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.a, BYTES / 2, 4096, OTHER);
	end_deregister(&pair.a, 0);
	assert_int_equal(kill(pair.b.pid, SIGCONT), 0);
	end_check(&pair.b, 0, 4096, IS);
}

/* The other end goes on when its peer, which has mapped its memory and whose memory it has mapped,
 * is gone without a word. */
static void adopt__peer_is_killed(void **state)
{
	struct side_wr w;
	struct ibv_wc wc;

	open_and_map();
	assert_int_equal(kill(pair.b.pid, SIGKILL), 0);
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 4096, &pair.b, 0);
	for (int i = 0; i < 1000; i++) {
		end_send(&pair.a, 0, &w);
		assert_int_equal(end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc), 1);
		if (wc.status != IBV_WC_SUCCESS)
			break;
		usleep(1000);
	}
	assert_true(wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
	end_fill(&pair.a, 0, BYTES, IS);
	end_check(&pair.a, 0, BYTES, IS);
}

/* Who cannot take the peer's file goes on as if the peer had none. */
static void adopt__no_descriptor_for_the_map(void **state)
{
	struct rlimit before, none;
	struct side_reply mr;
	struct side_wr w;

	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = BYTES + 1, .mr_access = -1, .qp_access = -1 });
	end_fill(&pair.a, 0, BYTES, IS);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ .rlim_max = before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	end_deregister(&pair.b, 0); /* its end is no page's, so it was not adopted */
	mr = end_register(&pair.b, 0, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			  false);
	for (uint64_t i = 0; i < 100; i++) { /* the engine's thread tries to map it meanwhile */
		w = end_op(&pair.a, IBV_WR_RDMA_WRITE, i * 64, 64, &pair.b, i * 64);
		w.rkey = mr.reg.rkey;
		end_send(&pair.a, 0, &w);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		usleep(1000);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(duo_files_mapped(getpid()), 0);
	assert_int_equal(duo_files_mapped(pair.b.pid), 1); /* its own */
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, BYTES, &pair.b, 0);
	w.rkey = mr.reg.rkey;
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_check(&pair.b, 0, BYTES, IS);
}

/* A link that could not map has no map for the rest of its life: this runs alone. */
static int main_poor(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(adopt__no_descriptor_for_the_map, pair_teardown),
	};

	return cmocka_run_group_tests_name("poor", tests, pair_group_setup, pair_group_teardown);
}

int main(void)
{
	const char *variant;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(adopt__mapped_by_the_connection, pair_teardown),
		cmocka_unit_test_teardown(adopt__all_operations_by_a_map, pair_teardown),
		cmocka_unit_test_teardown(adopt__shows_in_the_status, pair_teardown),
		cmocka_unit_test_teardown(adopt__atomics_return_what_was_there, pair_teardown),
		cmocka_unit_test_teardown(adopt__new_region_by_the_old_map, pair_teardown),
		cmocka_unit_test_teardown(adopt__ends_with_the_region, swap_teardown),
		cmocka_unit_test_teardown(adopt__target_is_stopped, pair_teardown),
		/* the last one: it takes the peer away */
		cmocka_unit_test(adopt__peer_is_killed),
	};

	pair_supervise();
	variant = getenv("VERBS_VARIANT");
	if (variant != NULL && strstr(variant, "poor") != NULL)
		return main_poor();
	return cmocka_run_group_tests_name("adopt", tests, pair_group_setup, pair_group_teardown);
}
