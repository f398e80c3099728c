/* will_test.c: the file of a process' wills as the node reads it. */
#include "node/will.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/process_test.h"
#include "cm/message/message.h"

static struct will_store store;

static struct node_will a_will(u8 mark)
{
	struct node_will w = { .pkey = 0xffff };

	memset(w.mad, mark, sizeof(w.mad));
	return w;
}

static struct will_slot read_slot(u32 index, u32 *used)
{
	struct will_slot slot;
	int fd = will_describe(&store);
	off_t at = (off_t)(offsetof(struct will_file, slots) + index * sizeof(slot));

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, used, sizeof(*used), offsetof(struct will_file, used)), 4);
	assert_int_equal(pread(fd, &slot, sizeof(slot), at), sizeof(slot));
	close(fd);
	return slot;
}

/* The half that is in force is never the one that is written next. */
static void will_set__writes_the_other_half(void **state)
{
	struct node_will w;
	struct will_slot s;
	u32 used, last = 0;

	assert_int_equal(will_describe(&store), -ENOENT);
	assert_int_equal(will_set(&store, 3, NULL), 0);
	assert_int_equal(will_describe(&store), -ENOENT);
	for (u8 i = 1; i < 10; i++) {
		w = a_will(i);
		assert_int_equal(will_set(&store, 3, &w), i == 1);
		s = read_slot(3, &used);
		assert_int_equal(used, 4);
		assert_in_range(s.word, 1, 2);
		assert_int_not_equal(s.word, last);
		assert_memory_equal(&s.half[s.word - 1], &w, sizeof(w));
		if (i > 1) { /* the earlier one is whole until the new one is in force */
			w = a_will((u8)(i - 1));
			assert_memory_equal(&s.half[2 - s.word], &w, sizeof(w));
		}
		last = s.word;
	}
	assert_int_equal(will_set(&store, 3, NULL), 0);
	assert_int_equal(read_slot(3, &used).word, 0);
	assert_int_equal(read_slot(2, &used).word, 0);
	assert_int_equal(will_set(&store, NODE_WILLS, &w), -ENOSPC);
	assert_int_equal(will_set(&store, NODE_WILLS - 1, &w), 0);
	assert_int_equal(read_slot(NODE_WILLS - 1, &used).word, 1);
	will_close(&store);
}

static int child_sets(void)
{
	struct node_will w = a_will(2);

	will_drop_in_child(&store);
	if (will_describe(&store) != -ENOENT)
		return 1;
	return will_set(&store, 0, &w) == 1 ? 0 : 2; /* a file of its own */
}

static void will_set__in_a_child_leaves_the_parents_alone(void **state)
{
	struct node_will w = a_will(1);
	u32 used;

	assert_int_equal(will_set(&store, 0, &w), 1);
	assert_int_equal(in_child(child_sets), 0);
	assert_memory_equal(&read_slot(0, &used).half[0], &w, sizeof(w));
	will_close(&store);
}

/* Without a file there are no wills, and no signal. */
static void will_set__where_files_may_not_be_so_large(void **state)
{
	struct rlimit before, small;
	struct node_will w = a_will(1);

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){ 1 << 20, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(will_set(&store, 0, &w), -EFBIG);
	assert_int_equal(will_set(&store, 0, &w), 0);
	assert_int_equal(will_set(&store, 0, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	will_close(&store);
}

/* Those that are in force, in their order. */
static void will_next__passes_over_the_empty_ones(void **state)
{
	static const u32 places[] = { 0, 3, 70 };
	struct node_will w;
	u32 index = 0;

	assert_false(will_next(&store, &index, &w));
	for (u8 i = 0; i < 3; i++) {
		w = a_will(i);
		assert_true(will_set(&store, places[i], &w) >= 0);
		w = a_will((u8)(i + 10));
		assert_int_equal(will_set(&store, places[i], &w), 0);
	}
	assert_int_equal(will_set(&store, 3, NULL), 0);
	assert_true(will_next(&store, &index, &w));
	assert_int_equal(index, 1);
	assert_int_equal(w.mad[0], 10);
	assert_true(will_next(&store, &index, &w));
	assert_int_equal(index, 71);
	assert_int_equal(w.mad[0], 12);
	assert_false(will_next(&store, &index, &w));
	will_close(&store);
}

/* What the peer owes in each state of this end. */
static void node_will_of_peer__ends_the_connection(void **state)
{
	static const u8 owed[NODE_CONNECTION_SIDR_REQ_RCVD + 1] = {
		[NODE_CONNECTION_REP_RCVD] = CM_REJ,
		[NODE_CONNECTION_MRA_REP_SENT] = CM_REJ,
		[NODE_CONNECTION_ESTABLISHED] = CM_DREQ,
		[NODE_CONNECTION_DREQ_SENT] = CM_DREP,
	};
	struct node_will own = { .sgid = { 1 }, .dgid = { 2 }, .slid = 3, .dlid = 4 }, theirs;
	u8 mad[CM_MAD_BYTES] = { 0 };
	struct cm_msg msg;

	own.connection = (struct node_connection){ .local_id = 11, .remote_id = 12,
						   .local_qpn = 13, .remote_qpn = 14 };
	for (u8 i = 0; i < sizeof(owed); i++) {
		own.connection.state = i;
		assert_int_equal(node_will_of_peer(&own, &theirs), owed[i] != 0);
		if (owed[i] == 0)
			continue;
		memcpy(mad, theirs.mad, sizeof(theirs.mad));
		assert_true(msg_unpack(&msg, mad, sizeof(mad)));
		assert_int_equal(msg.attr, owed[i]);
		assert_int_equal(msg.dreq.local_id, 12); /* the IDs lie alike in all of them */
		assert_int_equal(msg.dreq.remote_id, 11);
		assert_int_equal(theirs.sgid[0], 2);
		assert_int_equal(theirs.dgid[0], 1);
		assert_int_equal(theirs.slid, 4);
		assert_int_equal(theirs.dlid, 3);
		if (msg.attr == CM_DREQ)
			assert_int_equal(msg.dreq.remote_qpn, 13);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(will_set__writes_the_other_half),
		cmocka_unit_test(will_set__in_a_child_leaves_the_parents_alone),
		cmocka_unit_test(will_next__passes_over_the_empty_ones),
		cmocka_unit_test(will_set__where_files_may_not_be_so_large),
		cmocka_unit_test(node_will_of_peer__ends_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
