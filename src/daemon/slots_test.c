/* slots_test.c: slots go round, rest after their owner's end, and are locked through the owner's
 * description. Time is a number here.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/slots.h"

enum { REST_S = 10, SLOTS = NODE_SLOTS - SLOTS_FIRST };

static struct slots slots;

static int open_slots(void **state)
{
	return slots_open(&slots, -1, REST_S * NS_PER_S);
}

static int close_slots(void **state)
{
	slots_close(&slots);
	return 0;
}

/* A process that takes `count` slots and ends at once. Returns the last slot. */
static u32 pass_through(u64 process, u32 count, u64 now_ns)
{
	int fd = slots_describe(&slots), slot = 0;

	assert_true(fd >= 0);
	for (u32 i = 0; i < count; i++) {
		slot = slots_take(&slots, process, fd, now_ns);
		assert_in_range(slot, SLOTS_FIRST, NODE_SLOTS - 1);
	}
	slots_release(&slots, process, fd, now_ns);
	close(fd);
	return (u32)slot;
}

/* The cursor comes round to a slot that still rests: the slot is passed over. */
static void slots_take__passes_over_those_at_rest(void **state)
{
	u32 tired = pass_through(1, 1, REST_S / 2 * NS_PER_S);

	pass_through(2, SLOTS - 1, 0);
	for (u32 i = 0; i < SLOTS - 1; i++)
		assert_int_not_equal(pass_through(3, 1, REST_S * NS_PER_S), tired);
}

/* After its rest a slot is as good as any. */
static void slots_take__takes_the_rested(void **state)
{
	u32 first = pass_through(1, 1, 0);

	pass_through(2, SLOTS - 1, 0);
	assert_int_equal(pass_through(3, 1, REST_S * NS_PER_S), first);
}

/* Nor does a node that starts again begin with the slots that it gave out last. */
static void slots_take__goes_on_behind_the_last_node(void **state)
{
	char folder[] = "/tmp/anyverbs-slots-XXXXXX";
	int dir, fd, last = 0;

	assert_non_null(mkdtemp(folder));
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	for (int node = 0; node < 3; node++) {
		slots_close(&slots);
		assert_int_equal(slots_open(&slots, dir, REST_S * NS_PER_S), 0);
		fd = slots_describe(&slots);
		for (int i = 0; i < 2; i++) {
			int slot = slots_take(&slots, 1, fd, 0);

			assert_true(slot > last);
			last = slot;
		}
		slots_release(&slots, 1, fd, 0);
		close(fd);
	}
	assert_int_equal(unlinkat(dir, "slots", 0), 0);
	close(dir);
	assert_int_equal(rmdir(folder), 0);
}

/* No slot has rested enough: the one that has rested longest serves, wherever it lies. */
static void slots_take__takes_what_rested_longest(void **state)
{
	u32 longest;

	pass_through(1, SLOTS / 2, 3 * NS_PER_S);
	longest = pass_through(2, 1, 1 * NS_PER_S);
	pass_through(3, SLOTS - SLOTS / 2 - 1, 2 * NS_PER_S);
	assert_int_equal(pass_through(4, 1, 4 * NS_PER_S), longest);
	/* and of the rest the search has locked nothing */
	for (u32 slot = SLOTS_FIRST; slot < NODE_SLOTS; slot++)
		assert_int_equal(slots_owner(&slots, slot), 0);
}

/* Of two processes the end of one frees its slots, the first and the last, and no other. */
static void slots_release__frees_all_of_one_process(void **state)
{
	int a = slots_describe(&slots), b = slots_describe(&slots);
	int of_a[3], of_b;
	u16 list[2];

	of_a[0] = slots_take(&slots, 1, a, 0);
	of_b = slots_take(&slots, 2, b, 0);
	of_a[1] = slots_take(&slots, 1, a, 0);
	of_a[2] = slots_take(&slots, 1, a, 0);
	assert_int_equal(slots_count(&slots, 1, list, 2), 3);
	/* the cursor may have gone round between any two */
	assert_int_equal(list[0], MIN(MIN(of_a[0], of_a[1]), of_a[2]));
	slots_release(&slots, 1, a, 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(slots_owner(&slots, (u32)of_a[i]), 0);
		assert_int_equal(slots_claim(&slots, 2, b, (u32)of_a[i]), 0);
	}
	assert_int_equal(slots_owner(&slots, (u32)of_b), 2);
	assert_int_equal(slots_count(&slots, 2, list, 2), 4);
	slots_release(&slots, 2, b, 0);
	close(a);
	close(b);
}

/* A lock without an owner is that of a survivor; the edges of the range belong to nobody. */
static void slots_claim__respects_other_owners(void **state)
{
	int a = slots_describe(&slots), b = slots_describe(&slots);
	u32 last = NODE_SLOTS - 1;

	assert_int_equal(slots_claim(&slots, 1, a, 0), -EEXIST);
	assert_int_equal(slots_claim(&slots, 1, a, NODE_SLOTS), -EEXIST);
	assert_int_equal(slots_claim(&slots, 1, a, last), 0);
	assert_int_equal(slots_claim(&slots, 1, a, last), 0);
	assert_int_equal(slots_claim(&slots, 2, b, last), -EEXIST);
	slots_tidy(&slots, 1, a); /* what it owns it keeps */
	slots.owner[last] = 0;
	assert_int_equal(slots_owner(&slots, last), UINT64_MAX);
	assert_int_equal(slots_claim(&slots, 2, b, last), -EEXIST);
	slots_tidy(&slots, 1, a);
	assert_int_equal(slots_owner(&slots, last), 0);
	assert_int_equal(slots_claim(&slots, 2, b, last), 0);
	close(a);
	close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define EACH(test) cmocka_unit_test_setup_teardown(test, open_slots, close_slots)
		EACH(slots_take__passes_over_those_at_rest),
		EACH(slots_take__takes_the_rested),
		EACH(slots_take__goes_on_behind_the_last_node),
		EACH(slots_take__takes_what_rested_longest),
		EACH(slots_release__frees_all_of_one_process),
		EACH(slots_claim__respects_other_owners),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
