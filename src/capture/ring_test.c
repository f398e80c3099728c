/* ring_test.c: records come out as they went in, in order, cut at the MTU; without room they are
 * counted, and a writer that died holds nobody up. */
#include <infiniband/verbs.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "capture/capture.h"

/* The reader's clock stands still, so that it gives up no writer that has only lost its processor.
 */
enum { WRITERS = 4, PACKETS = 20000, TEST_NOW_NS = 1 };

struct test {
	struct capture c;
	struct capture_reader r;
	int fd;
};

static struct capture_record test_record;

static int test_setup(void **state)
{
	static struct test t;

	capture_init(&t.c);
	t.fd = capture_create(65535, &t.r);
	assert_true(t.fd >= 0);
	assert_int_equal(capture_start(&t.c, t.fd), 0);
	*state = &t;
	return 0;
}

static int test_teardown(void **state)
{
	struct test *t = *state;

	capture_stop(&t->c);
	capture_destroy(&t->r);
	close(t->fd);
	return 0;
}

static struct capture_packet test_packet(const struct pkt *p, u64 length, u32 mtu)
{
	return (struct capture_packet){ .kind = CAPTURE_LOCAL,
					.sgid_index = 1,
					.dgid_index = 2,
					.mtu = mtu,
					.path_bytes = 16384,
					.length = length,
					.pkt = p };
}

static void test_write(struct test *t, u32 psn, u64 length, bool went)
{
	static u8 bytes[1 << 16];
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .psn = psn };
	struct capture_packet packet = test_packet(&p, length, 4096);
	struct iovec iov = { bytes, length };
	struct capture_hold h;

	capture_begin(&t->c, &packet, &h);
	capture_end(&t->c, &h, &packet, &iov, 1, went);
}

static bool test_read(struct test *t)
{
	return capture_next(&t->r, &test_record, TEST_NOW_NS);
}

static void capture_end__cuts_pieces_at_the_mtu(void **state)
{
	struct test *t = *state;
	u8 bytes[1000];
	struct iovec iov[] = { { bytes, 100 }, { bytes + 100, 0 }, { bytes + 100, 500 },
			       { bytes + 600, 400 } };
	struct pkt p = { .opcode = PKT_WRITE_ONLY, .qp_type = IBV_QPT_RC, .rkey = 77 };
	struct capture_packet packet = test_packet(&p, sizeof(bytes), 256);
	struct capture_hold h;

	for (u32 i = 0; i < sizeof(bytes); i++)
		bytes[i] = (u8)(i * 7);
	capture_begin(&t->c, &packet, &h);
	assert_false(test_read(t)); /* not before it went */
	capture_end(&t->c, &h, &packet, iov, 4, true);
	for (u32 i = 0; i < 4; i++) {
		assert_true(test_read(t));
		assert_int_equal(test_record.kind, CAPTURE_LOCAL);
		assert_int_equal(test_record.pid, getpid());
		assert_int_equal(test_record.part, i);
		assert_int_equal(test_record.parts, 4);
		assert_int_equal(test_record.length, i < 3 ? 256 : 1000 - 768);
		assert_int_equal(test_record.kept, test_record.length);
		assert_int_equal(test_record.pkt.rkey, 77);
		assert_memory_equal(test_record.data, bytes + 256 * i, test_record.kept);
	}
	assert_false(test_read(t));
}

static void capture_end__what_did_not_go_is_void(void **state)
{
	struct test *t = *state;

	test_write(t, 1, 8, false);
	test_write(t, 2, 8, true);
	assert_true(test_read(t));
	assert_int_equal(test_record.kind, CAPTURE_VOID);
	assert_true(test_read(t));
	assert_int_equal(test_record.pkt.psn, 2);
}

static void capture_begin__order_is_that_of_beginning(void **state)
{
	struct test *t = *state;
	struct pkt p = { .opcode = PKT_ACK, .qp_type = IBV_QPT_RC, .psn = 1 };
	struct capture_packet packet = test_packet(&p, 0, 4096);
	struct capture_hold h;

	capture_begin(&t->c, &packet, &h);
	test_write(t, 2, 0, true);
	assert_false(test_read(t));
	capture_end(&t->c, &h, &packet, NULL, 0, true);
	assert_true(test_read(t));
	assert_int_equal(test_record.pkt.psn, 1);
	assert_true(test_read(t));
	assert_int_equal(test_record.pkt.psn, 2);
}

static void capture_begin__without_room_it_is_counted(void **state)
{
	struct test *t = *state;
	u32 n = 0;

	for (u32 i = 0; i < CAPTURE_SLOTS - 1; i++)
		test_write(t, i, 1, true);
	test_write(t, CAPTURE_SLOTS - 1, 3 * 4096, true); /* three frames, room for one */
	assert_int_equal(capture_dropped(&t->r), 2);
	test_write(t, 99, 1, true);
	assert_int_equal(capture_dropped(&t->r), 3);
	while (test_read(t))
		assert_int_equal(test_record.pkt.psn, n++);
	assert_int_equal(n, CAPTURE_SLOTS);
	test_write(t, 7, 1, true); /* the next round */
	assert_true(test_read(t));
	assert_int_equal(test_record.pkt.psn, 7);
}

/* 16 MiB at a small MTU, say. */
static void capture_begin__has_the_beginning_of_what_never_fits(void **state)
{
	struct test *t = *state;
	struct pkt p = { .opcode = PKT_WRITE_ONLY, .qp_type = IBV_QPT_RC };
	struct capture_packet packet = test_packet(&p, (CAPTURE_SLOTS + 10) * 256, 256);
	struct capture_hold h;
	u32 n = 0;

	capture_begin(&t->c, &packet, &h);
	capture_end(&t->c, &h, &packet, NULL, 0, true);
	for (; test_read(t); n++) {
		assert_int_equal(test_record.part, n);
		assert_int_equal(test_record.parts, CAPTURE_SLOTS + 10);
	}
	assert_int_equal(n, CAPTURE_SLOTS);
	assert_int_equal(capture_dropped(&t->r), 10);
}

static void capture_next__gives_up_a_dead_writer(void **state)
{
	struct test *t = *state;
	struct pkt p = { .opcode = PKT_ACK, .qp_type = IBV_QPT_RC };
	struct capture_packet packet = test_packet(&p, 0, 4096);
	struct capture_hold h;
	u64 now = 5 * NS_PER_S;

	capture_begin(&t->c, &packet, &h);
	test_write(t, 2, 0, true);
	assert_false(capture_next(&t->r, &test_record, now));
	assert_false(capture_next(&t->r, &test_record, now + 900 * NS_PER_MS));
	assert_false(capture_next(&t->r, &test_record, now + 1100 * NS_PER_MS));
	assert_true(capture_next(&t->r, &test_record, now + 1100 * NS_PER_MS));
	assert_int_equal(test_record.pkt.psn, 2);
	assert_int_equal(capture_dropped(&t->r), 1);
	/* it was only slow: its record is of an earlier round, and changes nothing */
	capture_end(&t->c, &h, &packet, NULL, 0, true);
	for (u32 i = 0; i < CAPTURE_SLOTS; i++) {
		test_write(t, i, 0, true);
		assert_true(test_read(t));
		assert_int_equal(test_record.pkt.psn, i);
	}
}

static void capture_next__gives_up_all_of_a_dead_writer(void **state)
{
	struct test *t = *state;
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC };
	struct capture_packet packet = test_packet(&p, 300 * 4096, 4096);
	struct capture_hold h;
	u64 now = 5 * NS_PER_S;

	capture_begin(&t->c, &packet, &h);
	test_write(t, 2, 0, true);
	while (!capture_next(&t->r, &test_record, now) && now < 7 * NS_PER_S)
		now += 2 * NS_PER_MS;
	assert_int_equal(test_record.pkt.psn, 2);
	assert_int_equal(capture_dropped(&t->r), 300);
	assert_in_range(now, 6 * NS_PER_S, 7 * NS_PER_S);
	capture_end(&t->c, &h, &packet, NULL, 0, false);
}

static void capture_start__refuses_what_is_no_ring(void **state)
{
	struct test *t = *state;
	int fd = memfd_create("other", MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, sizeof(struct capture_shared)), 0);
	assert_int_equal(capture_start(&t->c, fd), -EBADF); /* could shrink */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(capture_start(&t->c, fd), -EINVAL);
	close(fd);
	assert_true(capture_is_on(&t->c)); /* the first one stays */
}

static void capture_stop__ends_between_begin_and_end(void **state) NO_THREAD_SAFETY
{
	struct test *t = *state;
	struct pkt p = { .opcode = PKT_ACK, .qp_type = IBV_QPT_RC, .psn = 5 };
	struct capture_packet packet = test_packet(&p, 0, 4096);
	struct capture_hold h, second, later;

	capture_begin(&t->c, &packet, &h);
	capture_begin(&t->c, &packet, &second);
	capture_stop(&t->c);
	assert_false(capture_is_on(&t->c));
	capture_end(&t->c, &h, &packet, NULL, 0, true); /* still mapped */
	assert_true(test_read(t));
	assert_int_equal(test_record.pkt.psn, 5);
	assert_non_null(t->c.leaving); /* until the last one has left */
	capture_end(&t->c, &second, &packet, NULL, 0, true);
	assert_true(test_read(t));
	capture_begin(&t->c, &packet, &later);
	capture_end(&t->c, &later, &packet, NULL, 0, true);
	assert_false(test_read(t));
	assert_int_equal(t->c.users, 0);
	assert_null(t->c.leaving);
}

static void capture_next__believes_no_length(void **state)
{
	struct test *t = *state;

	test_write(t, 1, 10, true);
	t->r.shared->slots[0].record.kept = UINT32_MAX;
	t->r.shared->slots[0].record.length = UINT32_MAX;
	assert_true(test_read(t));
	assert_int_equal(test_record.kept, CAPTURE_DATA);
}

static void capture_next__makes_bools_of_bytes(void **state)
{
	struct test *t = *state;
	struct capture_record *r = &t->r.shared->slots[0].record;
	bool *bools[] = { &r->flow.df, &r->pkt.no_grh, &r->pkt.unmigrated };
	u8 byte;

	test_write(t, 1, 10, true);
	for (int i = 0; i < 3; i++)
		memset(bools[i], 0xff, 1);
	assert_true(test_read(t));
	memcpy(&byte, &test_record.flow.df, 1);
	assert_int_equal(byte, 1);
	memcpy(&byte, &test_record.pkt.no_grh, 1);
	assert_int_equal(byte, 1);
	memcpy(&byte, &test_record.pkt.unmigrated, 1);
	assert_int_equal(byte, 1);
}

static void *test_writer(void *arg)
{
	struct test *t = arg;

	for (u32 i = 0; i < PACKETS; i++)
		test_write(t, i, i % 3 * 3000, i % 5 != 0);
	return NULL;
}

static void capture__many_writers(void **state)
{
	struct test *t = *state;
	pthread_t threads[WRITERS];
	u64 frames = 0, sent = 0;
	int running = WRITERS;

	for (u32 i = 0; i < PACKETS; i++)
		sent += i % 3 == 2 ? 2 : 1;
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, test_writer, t);
	while (running > 0) {
		while (test_read(t))
			frames++;
		if (pthread_tryjoin_np(threads[running - 1], NULL) == 0)
			running--;
	}
	while (test_read(t))
		frames++;
	assert_int_equal(frames + capture_dropped(&t->r), WRITERS * sent);
}

static void *test_few(void *arg)
{
	struct test *t = arg;

	for (u32 i = 0; i < CAPTURE_SLOTS / WRITERS; i++)
		test_write(t, i, 1, true);
	return NULL;
}

/* While there is room nobody is turned away, however many come at once. */
static void capture_begin__writers_do_not_crowd_each_other_out(void **state)
{
	struct test *t = *state;

	for (int round = 0; round < 20; round++) {
		pthread_t threads[WRITERS];

		for (int i = 0; i < WRITERS; i++)
			pthread_create(&threads[i], NULL, test_few, t);
		for (int i = 0; i < WRITERS; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(capture_dropped(&t->r), 0);
		for (u32 i = 0; i < CAPTURE_SLOTS; i++)
			assert_true(test_read(t));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, test_setup, test_teardown)
		CASE(capture_end__cuts_pieces_at_the_mtu),
		CASE(capture_end__what_did_not_go_is_void),
		CASE(capture_begin__order_is_that_of_beginning),
		CASE(capture_begin__without_room_it_is_counted),
		CASE(capture_begin__has_the_beginning_of_what_never_fits),
		CASE(capture_next__gives_up_a_dead_writer),
		CASE(capture_next__gives_up_all_of_a_dead_writer),
		CASE(capture_start__refuses_what_is_no_ring),
		CASE(capture_stop__ends_between_begin_and_end),
		CASE(capture_next__believes_no_length),
		CASE(capture_next__makes_bools_of_bytes),
		CASE(capture__many_writers),
		CASE(capture_begin__writers_do_not_crowd_each_other_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
