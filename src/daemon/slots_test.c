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

/* A folder for the slots file of several nodes. */
static int make_folder(char *folder)
{
	int dir;

	assert_non_null(mkdtemp(folder));
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	return dir;
}

static void remove_folder(const char *folder, int dir)
{
	assert_int_equal(unlinkat(dir, "slots", 0), 0);
	close(dir);
	assert_int_equal(rmdir(folder), 0);
}

/* The next node. */
static void reopen_slots(int dir)
{
	slots_close(&slots);
	assert_int_equal(slots_open(&slots, dir, REST_S * NS_PER_S), 0);
}

/* Nor does a node that starts again begin with the slots that it gave out last. */
static void slots_take__goes_on_behind_the_last_node(void **state)
{
	char folder[] = "/tmp/anyverbs-slots-XXXXXX";
	int dir = make_folder(folder), fd, last = 0;

	for (int node = 0; node < 3; node++) {
		reopen_slots(dir);
		fd = slots_describe(&slots);
		for (int i = 0; i < 2; i++) {
			int slot = slots_take(&slots, 1, fd, 0);

			assert_true(slot > last);
			last = slot;
		}
		slots_release(&slots, 1, fd, 0);
		close(fd);
	}
	remove_folder(folder, dir);
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

/* ---- processes that are reached over the wire only ------------------------------------------- */

static bool is_noted(int slot)
{
	return (slots.file.wire_only[slot / 64] & 1ull << slot % 64) != 0;
}

/* Gives process 1, which is reached over the wire only, a slot, and another one to process 2. */
static int note_one_of_two(int a, int b, int *other)
{
	int slot = slots_take(&slots, 1, a, 0);

	*other = slots_take(&slots, 2, b, 0);
	slots_note_wire_only(&slots, 1, true);
	slots_note_wire_only(&slots, 2, false);
	assert_true(is_noted(slot));
	assert_false(is_noted(*other));
	return slot;
}

static void slots_note_wire_only__is_for_the_next_node(void **state)
{
	char folder[] = "/tmp/anyverbs-slots-XXXXXX";
	int dir = make_folder(folder), a, b, slot, other;

	reopen_slots(dir);
	a = slots_describe(&slots);
	b = slots_describe(&slots);
	slot = note_one_of_two(a, b, &other);
	reopen_slots(dir);
	assert_true(is_noted(slot));
	assert_false(is_noted(other));
	assert_true(slots_has_absent(&slots));
	assert_true(is_noted(slot));
	/* the process comes back, and ends */
	assert_int_equal(slots_claim(&slots, 1, a, (u32)slot), 0);
	slots_note_wire_only(&slots, 1, true);
	slots_release(&slots, 1, a, 0);
	assert_false(is_noted(slot));
	reopen_slots(dir);
	assert_false(is_noted(slot));
	close(a);
	close(b);
	remove_folder(folder, dir);
}

static void slots_note_wire_only__ends_with_the_process(void **state)
{
	char folder[] = "/tmp/anyverbs-slots-XXXXXX";
	int dir = make_folder(folder), a, b, slot, other;

	reopen_slots(dir);
	a = slots_describe(&slots);
	b = slots_describe(&slots);
	slot = note_one_of_two(a, b, &other);
	close(a); /* while there is no node */
	reopen_slots(dir);
	assert_false(is_noted(slot));
	assert_int_equal(slots_claim(&slots, 2, b, (u32)other), 0);
	slots_note_wire_only(&slots, 2, true);
	reopen_slots(dir);
	assert_true(is_noted(other));
	close(b); /* before it has come back */
	assert_false(slots_has_absent(&slots));
	assert_false(is_noted(other));
	remove_folder(folder, dir);
}

/* What the last owner left does not count for the next one. */
static void slots_note_wire_only__is_noted_anew_of_each_owner(void **state)
{
	int a = slots_describe(&slots);
	int slot = slots_take(&slots, 1, a, 0);

	slots_note_wire_only(&slots, 1, true);
	assert_true(is_noted(slot));
	slots.owner[slot] = 0;
	assert_int_equal(slots_claim(&slots, 2, a, (u32)slot), 0);
	slots_note_wire_only(&slots, 2, false);
	assert_false(is_noted(slot));
	close(a);
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
		EACH(slots_note_wire_only__is_for_the_next_node),
		EACH(slots_note_wire_only__ends_with_the_process),
		EACH(slots_note_wire_only__is_noted_anew_of_each_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
