/* traffic_test.c: sums of what has crossed the ports of devices, of boards that the test fills. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "path/shm/traffic.h"

enum { AT = 3 * 64 + 5, HERE = 2, THERE = 6, HEADERS = 16, DETH = 8 };

static struct board *board;

static int setup(void **state)
{
	int fd, err;

	board = board_create(&fd, &err);
	if (board == NULL)
		return -1;
	close(fd);
	board->slot_count = 1;
	return 0;
}

static int teardown(void **state)
{
	return munmap(board, sizeof(*board));
}

static void show(u8 link)
{
	board->qps[AT] = (struct board_qp){ .link = (u8)(link | HERE << BOARD_DEVICE_SHIFT),
					    .mtu = IBV_MTU_1024,
					    .to = THERE * NODE_GIDS + 1 };
	board_traffic_begin(board, AT);
}

static void expect(u32 device, const struct path_traffic *t)
{
	struct path_traffic sum[NODE_DEVICES] = { 0 };

	board_traffic_sum(board, sum);
	for (u32 i = 0; i < TRAFFIC_COUNTS; i++)
		assert_int_equal(sum[device].count[i], t->count[i]);
}

static void expect_nothing_elsewhere(void)
{
	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (i != HERE && i != THERE)
			expect(i, &(struct path_traffic){ 0 });
}

/* Three messages of 100 bytes, and a READ whose response is four packets. */
static void tally(void)
{
	board->tallies[AT] = (struct board_tally){ .sent = 4,
						   .sent_bytes = 4300,
						   .reads = 1,
						   .read_bytes = 4000,
						   .received = 9,
						   .received_bytes = 900 };
}

static const struct path_traffic here = { { 4, 300 + 4 * HEADERS, 4, 4000 + 4 * HEADERS } };
static const struct path_traffic there = { { 4, 4000 + 4 * HEADERS, 4, 300 + 4 * HEADERS } };

static void sum__the_initiator_tells_for_both_ends(void **state)
{
	show(BOARD_TALLIED);
	tally();
	expect(HERE, &here);
	expect(THERE, &there);
	expect_nothing_elsewhere();
}

static void sum__long_messages_are_several_packets(void **state)
{
	show(BOARD_TALLIED);
	board->tallies[AT] = (struct board_tally){ .sent = 2, .sent_bytes = 5000 };
	expect(HERE, &(struct path_traffic){ { 5, 5000 + 5 * HEADERS } });
	expect(THERE, &(struct path_traffic){ { 0, 0, 5, 5000 + 5 * HEADERS } });
	board->tallies[AT] = (struct board_tally){ .sent = 6, .sent_bytes = 5000 };
	expect(HERE, &(struct path_traffic){ { 6, 5000 + 6 * HEADERS } });
}

static void sum__datagrams_tell_for_their_own_end(void **state)
{
	show(BOARD_DATAGRAMS);
	board->tallies[AT] = (struct board_tally){
		.sent = 2, .sent_bytes = 200, .received = 3, .received_bytes = 90
	};
	board->traffic[HERE].count[TRAFFIC_XMIT_DISCARDS] = 1;
	expect(HERE, &(struct path_traffic){ { 2, 200 + 2 * (HEADERS + DETH), 3,
					       90 + 3 * (HEADERS + DETH), 0, 1 } });
	expect(THERE, &(struct path_traffic){ 0 });
}

/* Its packets are counted where they pass. */
static void sum__the_wire_s_connections_tell_nothing(void **state)
{
	show(0);
	tally();
	board->traffic[HERE].count[TRAFFIC_XMIT_PACKETS] = 77;
	expect(HERE, &(struct path_traffic){ { 77 } });
	expect(THERE, &(struct path_traffic){ 0 });
}

static void sum__nothing_of_infiniband(void **state)
{
	show(BOARD_LIDS | BOARD_TALLIED);
	tally();
	for (u32 i = 0; i < NODE_DEVICES; i++)
		expect(i, &(struct path_traffic){ 0 });
}

static void end__keeps_what_was_counted(void **state)
{
	show(BOARD_TALLIED);
	tally();
	board_traffic_end(board, AT);
	expect(HERE, &here);
	expect(THERE, &there);
	board_traffic_end(board, AT); /* once only */
	expect(HERE, &here);
	memset(&board->tallies[AT], 0, sizeof(board->tallies[AT]));
	show(BOARD_TALLIED);
	expect(HERE, &here);
	expect(THERE, &there);
}

/* The owner counts a READ as one before it counts it as sent. */
static void sum__a_read_that_completes_just_now(void **state)
{
	show(BOARD_TALLIED);
	board->tallies[AT] = (struct board_tally){ .reads = 1, .read_bytes = 8 };
	expect(HERE, &(struct path_traffic){ { 0, 0, 1, 8 + HEADERS } });
}

/* The peer's address is another host's, or has left: only the own port is known. */
static void sum__a_peer_without_a_number(void **state)
{
	show(BOARD_TALLIED);
	board->qps[AT].to = BOARD_NO_GID;
	tally();
	expect(HERE, &here);
	expect(THERE, &(struct path_traffic){ 0 });
	expect_nothing_elsewhere();
}

#define SUM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SUM_TEST(sum__the_initiator_tells_for_both_ends),
		SUM_TEST(sum__long_messages_are_several_packets),
		SUM_TEST(sum__datagrams_tell_for_their_own_end),
		SUM_TEST(sum__the_wire_s_connections_tell_nothing),
		SUM_TEST(sum__nothing_of_infiniband),
		SUM_TEST(sum__a_peer_without_a_number),
		SUM_TEST(sum__a_read_that_completes_just_now),
		SUM_TEST(end__keeps_what_was_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
