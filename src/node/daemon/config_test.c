/* config_test.c: GUIDs, GIDs, and what happens to them when addresses change.
 * In:    made-up tables                Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include "node/daemon/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_put(struct node_config *c, int i, u8 kind, u8 last)
{
	memset(&c->gids[i], 0, sizeof(c->gids[i]));
	c->gids[i].gid[0] = kind;
	c->gids[i].gid[15] = last;
}

static void config_guid__differs_by_node_and_is_a_local_eui(void **state)
{
	u64 a = config_guid("a"), b = config_guid("b");

	assert_true(a != b);
	assert_true(a == config_guid("a"));
	assert_int_equal(a >> 56 & 3, 2);
	assert_int_equal(b >> 56 & 3, 2);
}

static void config_fill__gives_every_node_two_gids(void **state)
{
	struct node_config c;

	unsetenv("ANYVERBS_ADDR");
	for (int i = 0; i < 2; i++) {
		config_fill(&c, i == 0 ? "default" : "other");
		assert_int_equal(c.gids[0].gid[0], 0xfe);
		assert_int_equal(c.gids[1].gid[10], 0xff);
		assert_int_equal(c.gids[NODE_GIDS - 1].gid[0] | c.gids[NODE_GIDS - 1].gid[15], 0);
	}
	assert_int_equal(c.gids[1].gid[12], 127);
	assert_int_not_equal(c.gids[1].gid[13], 0);
	assert_int_equal(c.gids[2].gid[10], 0);
}

static void config_fill__takes_what_it_is_told(void **state)
{
	struct node_config c;

	setenv("ANYVERBS_ADDR", "10.0.0.7", 1);
	config_fill(&c, "other");
	assert_int_equal(c.gids[1].gid[12], 10);
	assert_int_equal(c.gids[1].gid[15], 7);
	setenv("ANYVERBS_ADDR", "none of it", 1);
	config_fill(&c, "other");
	assert_int_equal(c.gids[1].gid[12], 127);
	unsetenv("ANYVERBS_ADDR");
}

static void config_merge__keeps_indices(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	test_put(&c, 2, 0x0a, 2);
	test_put(&c, 3, 0x0a, 3);
	fresh = c;
	assert_false(config_merge(&c, &fresh));
	/* 2 goes, 4 comes: the others stay where they are */
	test_put(&fresh, 2, 0x0a, 3);
	test_put(&fresh, 3, 0x0a, 4);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[1].gid[15], 1);
	assert_int_equal(c.gids[2].gid[15], 4);
	assert_int_equal(c.gids[3].gid[15], 3);
	assert_int_equal(c.gids[4].gid[15], 0);
}

static void config_merge__first_address_goes(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	test_put(&c, 2, 0x0a, 2);
	test_put(&fresh, 0, 0xfe, 1);
	test_put(&fresh, 1, 0x0a, 9);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[1].gid[15], 9);
	assert_int_equal(c.gids[2].gid[15], 0);
	/* the only one that is left stands elsewhere: index 1 must not be empty */
	test_put(&c, 2, 0x0a, 2);
	test_put(&fresh, 1, 0x0a, 2);
	assert_true(config_merge(&c, &fresh));
	assert_int_equal(c.gids[1].gid[15], 2);
	assert_int_equal(c.gids[2].gid[15], 2);
}

static void config_merge__table_never_full(void **state)
{
	struct node_config c = { .mtu = 1 }, fresh = { .mtu = 1 };

	test_put(&c, 0, 0xfe, 1);
	test_put(&c, 1, 0x0a, 1);
	for (int i = 0; i < NODE_GIDS - 1; i++)
		test_put(&fresh, i, 0x0b, (u8)(i + 1));
	for (int i = 0; i < 3; i++)
		config_merge(&c, &fresh);
	assert_int_equal(c.gids[NODE_GIDS - 1].gid[0], 0);
	assert_int_equal(c.gids[1].gid[0], 0x0b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config_guid__differs_by_node_and_is_a_local_eui),
		cmocka_unit_test(config_fill__gives_every_node_two_gids),
		cmocka_unit_test(config_fill__takes_what_it_is_told),
		cmocka_unit_test(config_merge__keeps_indices),
		cmocka_unit_test(config_merge__first_address_goes),
		cmocka_unit_test(config_merge__table_never_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
