/* fdstore_test.c: what goes into the queue comes out at the next node, and nothing else does.
 * In:    descriptors, queues of any content      Out: verdicts
 * Runs:  one thread                              Locks: none
 */
#include "daemon/fdstore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/process_test.h"

static struct fdstore_found found;

static bool test_same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_ino == sb.st_ino &&
	       sa.st_dev == sb.st_dev;
}

/* The node puts them in and dies; the process' end holds everything. */
static void fdstore_receive__what_was_added(void **state)
{
	struct fdstore k;
	int sockets[3], before = count_fds(), out;

	assert_int_equal(fdstore_open(&k), 0);
	k.table->slot_of[7][2] = 99;
	for (u32 i = 0; i < 3; i++) {
		struct fdstore_item item = {
			.row = 7, .index = i, .ifindex = 4, .gid = { 10, 11 }
		};

		sockets[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_int_equal(fdstore_add(&k, &item, sockets[i]), 0);
	}
	k.table->slot_of[7][1] = 98; /* also what is written later */
	out = dup(k.out);
	fdstore_close(&k);
	assert_int_equal(fdstore_receive(out, &found), 0);
	assert_int_equal(found.count, 3);
	assert_int_equal(found.table.slot_of[7][1], 98);
	assert_int_equal(found.table.slot_of[7][2], 99);
	for (u32 i = 0; i < 3; i++) {
		assert_int_equal(found.items[i].row, 7);
		assert_int_equal(found.items[i].index, i);
		assert_int_equal(found.items[i].ifindex, 4);
		assert_int_equal(found.items[i].gid[1], 11);
		assert_true(test_same_file(found.fds[i], sockets[i]));
		close(sockets[i]);
	}
	fdstore_discard(&found);
	/* the next process brings an empty one */
	assert_int_equal(fdstore_receive(out, &found), -ENODATA);
	close(out);
	assert_int_equal(count_fds(), before);
}

static void fdstore_clear__leaves_the_table(void **state)
{
	struct fdstore k;
	struct fdstore_item item = { .row = 1 };
	int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(fdstore_open(&k), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(fdstore_add(&k, &item, socket_fd), 0);
	fdstore_clear(&k);
	assert_int_equal(k.count, 0);
	item.row = 2;
	assert_int_equal(fdstore_add(&k, &item, socket_fd), 0);
	assert_int_equal(fdstore_receive(k.out, &found), 0);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.items[0].row, 2);
	fdstore_discard(&found);
	fdstore_close(&k);
	close(socket_fd);
}

static void fdstore_add__says_when_it_is_full(void **state)
{
	struct fdstore k;
	struct fdstore_item item = { .row = 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(fdstore_open(&k), 0);
	for (item.index = 0; item.index < FDSTORE_MAX; item.index++)
		assert_int_equal(fdstore_add(&k, &item, fd), 0);
	assert_int_equal(fdstore_add(&k, &item, fd), -ENOSPC);
	assert_int_equal(fdstore_receive(k.out, &found), 0);
	assert_int_equal(found.count, FDSTORE_MAX);
	fdstore_discard(&found);
	fdstore_close(&k);
	close(fd);
}

/* What a process hands over need not be a fdstore. */
static void fdstore_receive__refuses_what_is_none(void **state)
{
	int ends[2], before = count_fds(), short_table = memfd_create("short", MFD_CLOEXEC);
	struct fdstore k;
	int others[] = { open("/dev/null", O_RDWR), eventfd(0, 0), socket(AF_INET, SOCK_DGRAM, 0),
			 socket(AF_UNIX, SOCK_SEQPACKET, 0) };

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		assert_int_equal(fdstore_receive(others[i], &found), -ENODATA);
		close(others[i]);
	}
	assert_int_equal(fdstore_receive(-1, &found), -ENODATA);
	/* packets of other sizes and without descriptors */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	for (size_t size = 1; size < 200; size += 13)
		assert_int_equal(send(ends[0], &found, size, 0), size);
	assert_int_equal(fdstore_receive(ends[1], &found), -ENODATA);
	close(ends[0]);
	close(ends[1]);
	/* a table that is too short */
	assert_int_equal(fdstore_open(&k), 0);
	assert_int_equal(dup2(short_table, k.table_fd), k.table_fd);
	close(short_table);
	fdstore_clear(&k);
	assert_int_equal(fdstore_receive(k.out, &found), -ENODATA);
	fdstore_close(&k);
	assert_int_equal(count_fds(), before);
}

/* Each process can receive the descriptor of the table that the node has mapped. */
static void fdstore_open__makes_a_table_that_nobody_cuts_off(void **state)
{
	struct fdstore k;

	(void)state;
	assert_int_equal(fdstore_open(&k), 0);
	assert_int_equal(ftruncate(k.table_fd, 100), -1);
	assert_int_equal(errno, EPERM);
	fdstore_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fdstore_receive__what_was_added),
		cmocka_unit_test(fdstore_clear__leaves_the_table),
		cmocka_unit_test(fdstore_add__says_when_it_is_full),
		cmocka_unit_test(fdstore_receive__refuses_what_is_none),
		cmocka_unit_test(fdstore_open__makes_a_table_that_nobody_cuts_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
