/* counters_test.c: sums of messages become packets and bytes at every port of the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "fabric/test_support/bed.h"

enum { HEADERS = 24, MTU = 2048 };

struct charged {
	struct bed b;
	struct fabric_counters c;
	void *map;
	size_t bytes;
	struct fabric_path way; /* from h1 through the switch to h2 */
};

static void begin(struct charged *t)
{
	struct stat st;

	*t = (struct charged){ .bytes = 0 };
	bed_star(&t->b, 2);
	assert_int_equal(fstat(t->b.counters_fd, &st), 0);
	t->bytes = (size_t)st.st_size;
	t->map = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->b.counters_fd, 0);
	assert_ptr_not_equal(t->map, MAP_FAILED);
	assert_int_equal(fabric_counters_open(&t->c, t->map, t->bytes, t->b.v), 0);
	t->way.hops = 2;
	t->way.through[0] = (struct fabric_hop){ bed_port(&t->b, 1, 1), bed_port(&t->b, 0, 1) };
	t->way.through[1] = (struct fabric_hop){ bed_port(&t->b, 0, 2), bed_port(&t->b, 2, 1) };
}

static void end(struct charged *t)
{
	munmap(t->map, t->bytes);
	bed_end(&t->b);
}

static void charge(struct charged *t, u64 messages, u64 bytes)
{
	fabric_charge_load(&t->c, &t->way,
			   &(struct fabric_load){ messages, bytes, MTU, HEADERS });
}

static void assert_port(const struct charged *t, u32 node, u8 number, bool sends, u64 packets,
			u64 bytes)
{
	struct fabric_counts n;

	assert_int_equal(fabric_counts_read(&t->c, bed_port(&t->b, node, number), &n), 0);
	assert_int_equal(n.xmit_packets, sends ? packets : 0);
	assert_int_equal(n.xmit_bytes, sends ? bytes : 0);
	assert_int_equal(n.rcv_packets, sends ? 0 : packets);
	assert_int_equal(n.rcv_bytes, sends ? 0 : bytes);
}

static void assert_way(const struct charged *t, u64 packets, u64 bytes)
{
	assert_port(t, 1, 1, true, packets, bytes);
	assert_port(t, 0, 1, false, packets, bytes);
	assert_port(t, 0, 2, true, packets, bytes);
	assert_port(t, 2, 1, false, packets, bytes);
}

static void charge_load__counts_each_port_of_the_way(void **state)
{
	struct charged t;

	(void)state;
	begin(&t);
	charge(&t, 10, 10 * 5000); /* three packets each */
	assert_way(&t, 30, 50000 + 30 * HEADERS);
	end(&t);
}

static void charge_load__pads_each_message(void **state)
{
	struct charged t;

	(void)state;
	begin(&t);
	charge(&t, 4, 4 * 5);
	assert_way(&t, 4, 4 * (8 + HEADERS));
	end(&t);
}

static void charge_load__of_empty_messages_is_headers(void **state)
{
	struct charged t;

	(void)state;
	begin(&t);
	charge(&t, 3, 0);
	assert_way(&t, 3, 3 * HEADERS);
	end(&t);
}

static void charge_load__of_nothing_counts_nothing(void **state)
{
	struct charged t;

	(void)state;
	begin(&t);
	charge(&t, 0, 0);
	assert_way(&t, 0, 0);
	end(&t);
}

static void charge_load__has_no_fewer_packets_than_the_bytes_need(void **state)
{
	struct charged t;

	(void)state;
	begin(&t);
	charge(&t, 2, 1 + 8 * MTU); /* one of a byte, one of eight packets */
	assert_way(&t, 9, 8 * MTU + 4 + 9 * HEADERS);
	charge(&t, 0, MTU); /* stores of an rsocket's own are no messages */
	assert_way(&t, 10, 9 * MTU + 4 + 10 * HEADERS);
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(charge_load__counts_each_port_of_the_way),
		cmocka_unit_test(charge_load__pads_each_message),
		cmocka_unit_test(charge_load__of_empty_messages_is_headers),
		cmocka_unit_test(charge_load__of_nothing_counts_nothing),
		cmocka_unit_test(charge_load__has_no_fewer_packets_than_the_bytes_need),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
