/* udp_test.c: groups, and what is taken over of them.
 * In:    loopback addresses of this test's own, queues of any content      Out: verdicts
 * Runs:  one thread                                                        Locks: none
 */
#include "daemon/udp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/process_test.h"
#include "node/udp_socket.h"

static struct udp_addresses first, next;
static struct loop loop;

/* An address that no other process has, and a new one each time. */
static void test_address(u8 gid[16])
{
	static u8 count = 1;
	u32 pid = (u32)getpid();
	u8 address[16] = { [10] = 0xff,	   [11] = 0xff, 127, (u8)(200 + (pid >> 16 & 31)),
			   (u8)(pid >> 8), (u8)pid };

	address[13] = (u8)(address[13] ^ count++);
	memcpy(gid, address, 16);
}

static struct reuseport_group *test_open(struct udp_addresses *u, u8 gid[16])
{
	test_address(gid);
	daemon_udp_look_begin(u);
	assert_true(daemon_udp_want(u, gid, 1));
	assert_true(daemon_udp_look_end(u));
	assert_non_null(daemon_udp_find(u, gid));
	return daemon_udp_find(u, gid);
}

static int test_setup(void **state)
{
	return loop_init(&loop) < 0 || daemon_udp_init(&first, &loop) < 0 ||
	       daemon_udp_init(&next, &loop) < 0;
}

static int test_teardown(void **state)
{
	daemon_udp_destroy(&first);
	daemon_udp_destroy(&next);
	loop_destroy(&loop);
	return 0;
}

static bool test_even(void *arg, u32 slot)
{
	return slot % 2 == 0;
}

/* The first node goes; what a process held of it. */
static int test_end_first(void)
{
	int out = dup(first.fdstore.out);

	daemon_udp_destroy(&first);
	assert_int_equal(daemon_udp_init(&first, &loop), 0);
	return out;
}

static u64 test_id(int fd)
{
	u64 id = 0;
	socklen_t length = sizeof(id);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &id, &length), 0);
	return id;
}

static void udp_adopt__a_group_in_its_order(void **state)
{
	u8 gid[16];
	struct reuseport_group *g = test_open(&first, gid);
	const struct udp_member *m;
	u64 ids[4];
	int out, err;

	for (u32 slot = 2; slot < 5; slot++)
		assert_non_null(daemon_udp_member_of(&first, g, slot, &err));
	for (u32 i = 0; i < 4; i++)
		ids[i] = g->members[i].id;
	out = test_end_first();
	/* the port is not free: sockets of the first live on */
	daemon_udp_look_begin(&next);
	assert_true(daemon_udp_want(&next, gid, 1));
	assert_false(daemon_udp_look_end(&next));
	assert_null(daemon_udp_find(&next, gid));
	assert_int_equal(daemon_udp_adopt(&next, out, test_even, NULL), 1);
	g = daemon_udp_find(&next, gid);
	assert_non_null(g);
	assert_int_equal(g->count, 4);
	for (u32 i = 0; i < 4; i++)
		assert_int_equal(test_id(g->members[i].fd), ids[i]);
	/* slot 3 has no owner any more: the next that asks gets its member */
	m = daemon_udp_member_of(&next, g, 9, &err);
	assert_int_equal(m->id, ids[2]);
	assert_int_equal(daemon_udp_member_of(&next, g, 2, &err)->id, ids[1]);
	assert_int_equal(daemon_udp_member_of(&next, g, 4, &err)->id, ids[3]);
	/* a second process brings the same queue, empty now */
	assert_int_equal(daemon_udp_adopt(&next, out, test_even, NULL), 0);
	close(out);
}

/* Takes the kept sockets out, has `change` spoil them, and puts them into a new queue. */
static int test_spoil(int out, void (*change)(struct fdstore_found *f))
{
	static struct fdstore_found f;
	struct fdstore k;
	int result;

	assert_int_equal(fdstore_receive(out, &f), 0);
	close(out);
	change(&f);
	assert_int_equal(fdstore_open(&k), 0);
	for (u32 i = 0; i < f.count; i++)
		if (f.fds[i] >= 0)
			assert_int_equal(fdstore_add(&k, &f.items[i], f.fds[i]), 0);
	fdstore_discard(&f);
	result = dup(k.out);
	fdstore_close(&k);
	return result;
}

static void spoil_lose_one(struct fdstore_found *f)
{
	close(f->fds[1]);
	f->fds[1] = -1;
}

static void spoil_lose_the_first(struct fdstore_found *f)
{
	close(f->fds[0]);
	f->fds[0] = -1;
}

static void spoil_double_one(struct fdstore_found *f)
{
	f->items[2].index = 1;
}

static void spoil_change_address(struct fdstore_found *f)
{
	f->items[1].gid[15] ^= 1;
}

static void spoil_replace(struct fdstore_found *f)
{
	close(f->fds[1]);
	f->fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void spoil_high_row(struct fdstore_found *f)
{
	for (u32 i = 0; i < f->count; i++)
		f->items[i].row = 0xfffffff0;
}

static void udp_adopt__nothing_that_is_not_whole(void **state)
{
	void (*const spoils[])(struct fdstore_found * f) = {
		spoil_lose_one,	      spoil_lose_the_first, spoil_double_one,
		spoil_change_address, spoil_replace,	    spoil_high_row,
	};
	u8 gid[16];
	int before = count_fds(), err;

	for (size_t i = 0; i < ARRAY_LEN(spoils); i++) {
		struct reuseport_group *g = test_open(&first, gid);
		int out;

		for (u32 slot = 2; slot < 5; slot++)
			assert_non_null(daemon_udp_member_of(&first, g, slot, &err));
		out = test_spoil(test_end_first(), spoils[i]);
		assert_int_equal(daemon_udp_adopt(&next, out, test_even, NULL), 0);
		close(out);
		assert_null(daemon_udp_find(&next, gid));
		assert_int_equal(count_fds(), before);
	}
}

/* An address that goes and comes keeps its sockets; one that is needed for another's place does
 * not, nor do they stay in the fdstore. */
static void udp_want__addresses_come_and_go(void **state)
{
	u8 gid[16], other[16];
	struct reuseport_group *g = test_open(&first, gid);
	u64 id = g->members[0].id;
	int before;

	daemon_udp_look_begin(&first);
	assert_true(daemon_udp_look_end(&first));
	daemon_udp_look_begin(&first);
	assert_true(daemon_udp_want(&first, gid, 1));
	assert_true(daemon_udp_look_end(&first));
	assert_int_equal(daemon_udp_find(&first, gid)->members[0].id, id);
	daemon_udp_look_begin(&first);
	assert_true(daemon_udp_look_end(&first));
	before = count_fds();
	for (int i = 0; i < 2 * NODE_GIDS; i++)
		test_open(&first, other);
	assert_null(daemon_udp_find(&first, gid));
	assert_int_equal(first.fdstore.count, NODE_GIDS);
	/* a socket and a name for each */
	assert_int_equal(count_fds(), before + 2 * (NODE_GIDS - 1));
	/* the port of the first is free again */
	daemon_udp_look_begin(&next);
	assert_true(daemon_udp_want(&next, gid, 1));
	assert_true(daemon_udp_look_end(&next));
}

static void udp_want__belongs_to_one_node(void **state)
{
	u8 gid[16];
	struct node_config c = { .port_up = 1 };
	struct proto_address report[NODE_GIDS];
	int out;

	test_open(&first, gid);
	memcpy(c.gids[1].gid, gid, 16);
	daemon_udp_mark(&first, &c);
	assert_int_equal(c.gids[1].flags, NODE_GID_WIRE);
	daemon_udp_look_begin(&next);
	assert_false(daemon_udp_want(&next, gid, 1));
	assert_false(daemon_udp_look_end(&next));
	daemon_udp_mark(&next, &c);
	assert_int_equal(c.gids[1].flags, 0);
	assert_int_equal(daemon_udp_report(&next, report), 1);
	assert_int_equal(report[0].state, PROTO_UDP_OTHER);
	/* a process still holds what the first had: the name is free, the port is not */
	out = test_end_first();
	daemon_udp_look_begin(&next);
	assert_true(daemon_udp_want(&next, gid, 1));
	assert_false(daemon_udp_look_end(&next));
	assert_int_equal(daemon_udp_report(&next, report), 1);
	assert_int_equal(report[0].state, PROTO_UDP_TAKEN);
	close(out);
	daemon_udp_look_begin(&next);
	assert_true(daemon_udp_want(&next, gid, 1));
	assert_true(daemon_udp_look_end(&next));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
		TEST(udp_adopt__a_group_in_its_order),
		TEST(udp_adopt__nothing_that_is_not_whole),
		TEST(udp_want__addresses_come_and_go),
		TEST(udp_want__belongs_to_one_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
