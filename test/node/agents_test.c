/* agents_test.c: MAD agents of several processes: one table for each port, which outlives the node
 * and forgets processes that end.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "node/steer.h"

enum { CLASS = 0x0a, VERSION = 1, GET = 1, SET = 2, SEND = 3 };

static u64 device_id(struct node *n)
{
	struct node_config c;

	assert_int_equal(node_device_get(n, 0, &c), 0);
	return c.id;
}

static struct node_agent agent_of(struct harness *h, u64 methods)
{
	return (struct node_agent){ .device = device_id(h->node),
				    .methods = { methods },
				    .port = 1,
				    .qpn = 1,
				    .mgmt_class = CLASS,
				    .version = VERSION };
}

static void begin(struct harness *h, u32 *slot)
{
	harness_attach(h);
	assert_int_equal(node_slot_take(h->node, slot), 0);
}

/* The slot of the process that takes this method; or what node_agent_find says. */
static int owner(struct harness *h, u8 method)
{
	u8 mad[STEER_MAD] = { 1, CLASS, VERSION, method };
	u32 slot = 0;
	int err = node_agent_find(h->node, device_id(h->node), 1, 1, mad, &slot);

	return err == 0 ? (int)slot : err;
}

static void node_agent__each_method_has_one_process(void **state)
{
	struct harness a, b;
	struct node_agent get, both, send;
	u32 slot[2];

	begin(&a, &slot[0]);
	begin(&b, &slot[1]);
	get = agent_of(&a, 1 << GET);
	both = agent_of(&b, 1 << GET | 1 << SET);
	send = agent_of(&b, 1 << SEND);
	assert_int_equal(owner(&b, GET), -ENOENT);
	assert_int_equal(node_agent_add(a.node, &get, slot[0]), 0);
	assert_int_equal(node_agent_add(b.node, &send, slot[1]), 0);
	assert_int_equal(owner(&b, GET), slot[0]);
	assert_int_equal(owner(&a, SEND), slot[1]);
	assert_int_equal(owner(&a, SET), -ENOENT);
	/* one method in common, from whichever process */
	assert_int_equal(node_agent_add(b.node, &both, slot[1]), -EINVAL);
	assert_int_equal(node_agent_add(a.node, &both, slot[0]), -EINVAL);
	/* QP0, another port and another version have tables of their own */
	both.qpn = 0;
	assert_int_equal(node_agent_add(b.node, &both, slot[1]), 0);
	both.qpn = 1;
	both.version++;
	assert_int_equal(node_agent_add(b.node, &both, slot[1]), 0);
	both.version--;
	assert_int_equal(node_agent_remove(a.node, &get), 0);
	assert_int_equal(node_agent_remove(a.node, &get), -ENOENT);
	assert_int_equal(node_agent_remove(a.node, &send), -ENOENT);
	assert_int_equal(node_agent_add(b.node, &both, slot[1]), 0);
	assert_int_equal(owner(&a, GET), slot[1]);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_agent__refuses_what_cannot_be(void **state)
{
	struct harness a, b;
	struct node_agent agent;
	u32 slot[2];

	begin(&a, &slot[0]);
	begin(&b, &slot[1]);
	agent = agent_of(&a, 1 << GET);
	assert_int_equal(node_agent_add(a.node, &agent, slot[1]), -ENOENT);
	assert_int_equal(node_agent_add(a.node, &agent, NODE_SLOTS), -ENOENT);
	agent.device += 1000;
	assert_int_equal(node_agent_add(a.node, &agent, slot[0]), -ENODEV);
	agent = agent_of(&a, 0);
	assert_int_equal(node_agent_add(a.node, &agent, slot[0]), -EINVAL);
	agent = agent_of(&a, 1 << GET);
	agent.mgmt_class = STEER_CLASS_CM;
	assert_int_equal(node_agent_add(a.node, &agent, slot[0]), -EINVAL);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_agent__as_many_as_the_table_has(void **state)
{
	struct harness a, b;
	struct node_agent agent;
	u32 slot[2];

	begin(&a, &slot[0]);
	begin(&b, &slot[1]);
	agent = agent_of(&a, 0);
	for (u32 i = 0; i < NODE_AGENTS; i++) {
		agent.version = (u8)(i / 64);
		agent.methods[0] = 1ull << i % 64;
		assert_int_equal(node_agent_add(a.node, &agent, slot[0]), 0);
	}
	agent.version++;
	assert_int_equal(node_agent_add(a.node, &agent, slot[0]), -ENOSPC);
	assert_int_equal(owner(&b, GET), slot[0]);
	/* they all go with their process */
	harness_detach(&a);
	while (harness_status().attached > 1)
		usleep(1000);
	assert_int_equal(node_agent_add(b.node, &agent, slot[1]), 0);
	harness_detach(&b);
}

static void node_agent__outlives_the_node(void **state)
{
	struct harness a, b;
	struct node_agent get, set;
	u32 slot[2];

	begin(&a, &slot[0]);
	begin(&b, &slot[1]);
	get = agent_of(&a, 1 << GET);
	set = agent_of(&a, 1 << SET);
	assert_int_equal(node_agent_add(a.node, &get, slot[0]), 0);
	assert_int_equal(node_agent_add(a.node, &set, slot[0]), 0);
	assert_int_equal(node_agent_remove(a.node, &set), 0);
	harness_kill_daemon();
	/* the one that comes first does not get what is the other's */
	assert_int_equal(node_recover(b.node), 0);
	assert_int_equal(owner(&b, GET), -EAGAIN);
	assert_int_equal(node_recover(a.node), 0);
	assert_int_equal(owner(&b, GET), slot[0]);
	assert_int_equal(node_agent_add(b.node, &get, slot[1]), -EINVAL);
	assert_int_equal(node_agent_add(b.node, &set, slot[1]), 0);
	assert_int_equal(owner(&a, SET), slot[1]);
	harness_detach(&b);
	harness_detach(&a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(node_agent__each_method_has_one_process,
						harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(node_agent__refuses_what_cannot_be, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(node_agent__as_many_as_the_table_has,
						harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(node_agent__outlives_the_node, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
