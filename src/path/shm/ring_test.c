/* ring_test.c: how much of its data area a ring uses, and that there is always room in the end.
 * The test is producer and consumer, by turns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "path/shm/ring.h"

enum { ROUNDS = 5000 };

static struct both {
	struct ring_pair *pair;
	struct ring_tx tx;
	struct ring_rx rx;
	u32 spare, pushed, taken;
} b;

static u8 payload[RING_MTU], expected[RING_MTU];

static int setup(void **state)
{
	memset(&b, 0, sizeof(b));
	b.pair = ring_pair_private();
	b.spare = RING_SPARE;
	ring_tx_init(&b.tx, &b.pair->ring[0], &b.spare);
	ring_rx_init(&b.rx, &b.pair->ring[0]);
	return 0;
}

static int teardown(void **state)
{
	ring_tx_end(&b.tx);
	assert_int_equal(b.spare, RING_SPARE);
	ring_pair_unmap(b.pair);
	return 0;
}

/* With a mark that tells it from the others. */
static int push(u32 bytes)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = 2, .psn = b.pushed, .length = bytes };
	struct iovec iov = { payload, bytes };
	int err;

	memset(payload, (int)(b.pushed * 7 + 1), bytes);
	err = ring_push(&b.tx, &p, &iov, 1);
	b.pushed += err == 0;
	return err;
}

/* As shm.c does it: publishes when the ring says so. False: the ring is empty. */
static bool take(void)
{
	struct ring_item item;

	if (ring_looks_empty(&b.rx))
		return false;
	assert_int_equal(ring_peek(&b.rx, &item), 1);
	assert_int_equal(item.pkt.psn, b.taken);
	memset(expected, (int)(b.taken * 7 + 1), item.pkt.length);
	assert_memory_equal(item.payload, expected, item.pkt.length);
	b.taken++;
	ring_consume(&b.rx, &item);
	if (ring_should_publish(&b.rx))
		ring_publish(&b.rx);
	return true;
}

static void take_all(void)
{
	while (take())
		continue;
	assert_int_equal(b.taken, b.pushed);
}

/* Until there is no room, and once more when all of that has been taken. */
static void fill_twice(void)
{
	while (push(4096) == 0)
		continue;
	take_all();
	ring_publish(&b.rx);
	while (push(4096) == 0)
		continue;
}

static void ring_push__in_turn_uses_one_lap(void **state)
{
	static const u32 sizes[] = { 33, 1000, 4096, 8192, 10000 };

	for (u32 i = 0; i < ROUNDS; i++) {
		assert_int_equal(push(sizes[i % ARRAY_LEN(sizes)]), 0);
		take_all();
	}
	assert_in_range(b.rx.reach, RING_LAP / 2, RING_LAP);
	assert_int_equal(b.spare, RING_SPARE);
}

static void ring_push__of_the_largest_has_room(void **state)
{
	for (u32 i = 0; i < ROUNDS; i++) {
		assert_int_equal(push(RING_MTU), 0);
		take_all();
	}
	assert_in_range(b.rx.reach, RING_LAP, 2 * RING_LAP);
	assert_int_equal(b.spare, RING_SPARE);
}

static void ring_push__without_room_grows_to_all(void **state)
{
	fill_twice();
	assert_int_equal(b.rx.tail + RING_DATA / 4096, b.pushed);
	assert_int_equal(b.spare, RING_SPARE - (RING_DATA - RING_LAP));
}

static void ring_push__grows_no_more_than_it_may(void **state)
{
	b.spare = RING_LAP;
	fill_twice();
	assert_int_equal(b.rx.tail + 2 * RING_LAP / 4096, b.pushed);
	assert_int_equal(b.spare, 0);
	b.spare = RING_SPARE - RING_LAP; /* as teardown has it */
}

static u32 any_size(void)
{
	switch (rand() % 4) {
	case 0:
		return 1 + (u32)rand() % 64;
	case 1:
		return 1 + (u32)rand() % RING_MTU;
	case 2:
		return RING_MTU;
	default:
		return 1 + (u32)rand() % 4200;
	}
}

/* What has been taken but not published holds up no packet, whatever came before: the producer
 * would wait for room that nobody announces. */
static void ring_push__has_room_when_all_is_taken(void **state)
{
	for (u32 seed = 0; seed < 200; seed++) {
		u32 size;

		setup(NULL);
		srand(seed);
		size = seed % 3 == 0 ? 0 : 1 + (u32)rand() % (RING_LAP / 3);
		b.spare = seed % 2 ? RING_SPARE : 0;
		b.tx.spare = &b.spare;
		for (u32 i = 0; i < 100; i++) {
			u32 most = (u32)rand() % 40;

			for (u32 k = 0; k < most && push(size ? size : any_size()) == 0; k++)
				if (rand() % 3 == 0)
					take();
			take_all();
			if (rand() % 4 == 0)
				assert_true(ring_has_room(&b.tx));
			else
				assert_int_equal(push(size ? size : any_size()), 0);
		}
		ring_pair_unmap(b.pair);
	}
	setup(NULL);
}

/* A WRITE with immediate data: up to PATH_NOTICE_BYTES lie in its slot, and none in the data
 * area. */
static void ring_push__keeps_a_short_write_in_its_slot(void **state)
{
	for (u32 bytes = 0; bytes <= PATH_NOTICE_BYTES + 1; bytes++) {
		struct pkt p = { .opcode = PKT_WRITE_ONLY_IMM,
				 .qp_type = IBV_QPT_RC,
				 .psn = bytes,
				 .imm = 0x12345678 + bytes,
				 .va = 0x7f0000001000 + bytes,
				 .rkey = 0x99 + bytes,
				 .length = bytes,
				 .dma_length = bytes };
		struct iovec iov[2] = { { payload, bytes / 2 },
					{ payload + bytes / 2, bytes - bytes / 2 } };
		struct ring_item item;

		memset(payload, (int)bytes + 1, bytes);
		assert_int_equal(ring_push(&b.tx, &p, iov, 2), 0);
		assert_int_equal(ring_peek(&b.rx, &item), 1);
		assert_int_equal(item.pkt.opcode, PKT_WRITE_ONLY_IMM);
		assert_int_equal(item.pkt.length, bytes);
		assert_int_equal(item.pkt.dma_length, bytes);
		assert_int_equal(item.pkt.va, p.va);
		assert_int_equal(item.pkt.rkey, p.rkey);
		assert_int_equal(item.pkt.imm, p.imm);
		assert_memory_equal(item.payload, payload, bytes);
		assert_int_equal(item.data_bytes, bytes > PATH_NOTICE_BYTES ? CACHE_LINE : 0);
		ring_consume(&b.rx, &item);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(ring_push__in_turn_uses_one_lap),
		TEST(ring_push__of_the_largest_has_room),
		TEST(ring_push__without_room_grows_to_all),
		TEST(ring_push__grows_no_more_than_it_may),
		TEST(ring_push__has_room_when_all_is_taken),
		TEST(ring_push__keeps_a_short_write_in_its_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
