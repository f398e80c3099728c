/* flow_test.c: flow rules of several processes: each sees the others', in the order of their
 * making; they go with their process and outlive the node.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"
#include "node/directory.h"

static u64 device_id(struct node *n)
{
	struct node_config c;

	assert_int_equal(node_device_get(n, 0, &c), 0);
	return c.id;
}

static struct node_flow flow_of(struct harness *h, u8 mac)
{
	struct node_flow f = { .device = device_id(h->node), .qpn = mac };

	f.rule.value.dmac[5] = mac;
	f.rule.mask.dmac[5] = 0xff;
	return f;
}

/* How many rules of others the process sees; the first one's MAC in *mac. */
static int others(struct harness *h, u8 *mac)
{
	struct node_flow *list = calloc(NODE_FLOWS, sizeof(*list));
	int n, tries = 0;

	do
		n = node_flow_list(h->node, device_id(h->node), list, NODE_FLOWS);
	while (n == -EAGAIN && tries++ < 1000 && usleep(2000) == 0);
	*mac = n > 0 ? list[0].rule.value.dmac[5] : 0;
	free(list);
	return n;
}

static void node_flow__others_see_it(void **state)
{
	struct harness a, b;
	struct node_flow f, g;
	u64 generation;
	u8 mac;

	harness_attach(&a);
	harness_attach(&b);
	f = flow_of(&a, 1);
	g = flow_of(&b, 2);
	generation = node_flow_generation(b.node);
	assert_int_equal(node_flow_add(a.node, &f), 0);
	assert_int_not_equal(node_flow_generation(b.node), generation);
	assert_int_equal(node_flow_add(b.node, &g), 0);
	assert_true(f.serial < g.serial);
	assert_int_equal(others(&b, &mac), 1);
	assert_int_equal(mac, 1);
	assert_int_equal(others(&a, &mac), 1);
	assert_int_equal(mac, 2);
	assert_int_equal(node_flow_remove(b.node, f.serial), -ENOENT);
	assert_int_equal(node_flow_remove(a.node, f.serial), 0);
	assert_int_equal(node_flow_remove(a.node, f.serial), -ENOENT);
	assert_int_equal(others(&b, &mac), 0);
	f.device += 1000;
	assert_int_equal(node_flow_add(a.node, &f), -ENODEV);
	f = flow_of(&a, 1);
	f.rule.rank = -2;
	assert_int_equal(node_flow_add(a.node, &f), -EINVAL);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_flow__as_many_as_the_table_has(void **state)
{
	struct harness a, b;
	struct node_flow f;
	u64 middle[2] = { 0 };
	u8 mac;

	harness_attach(&a);
	harness_attach(&b);
	f = flow_of(&a, 3);
	for (u32 i = 0; i < NODE_FLOWS; i++) {
		assert_int_equal(node_flow_add(a.node, &f), 0);
		middle[i % 2] = i / 2 == NODE_FLOWS / 4 ? f.serial : middle[i % 2];
	}
	assert_int_equal(node_flow_add(b.node, &f), -ENOSPC);
	assert_int_equal(others(&b, &mac), NODE_FLOWS);
	/* each that goes makes room for another one */
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(node_flow_remove(a.node, middle[i]), 0);
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(node_flow_add(a.node, &f), 0);
	assert_int_equal(node_flow_add(b.node, &f), -ENOSPC);
	assert_int_equal(others(&b, &mac), NODE_FLOWS);
	/* they all go with their process */
	harness_detach(&a);
	while (harness_status().attached > 1)
		usleep(1000);
	assert_int_equal(others(&b, &mac), 0);
	assert_int_equal(node_flow_add(b.node, &f), 0);
	harness_detach(&b);
}

/* A process sees the rules of other processes for one device, wherever they stand. */
static void directory_list_flows__of_one_device(void **state)
{
	enum { DEVICES = 3, PROCESSES = 3, EACH = 4 };
	struct directory *n = calloc(1, sizeof(*n));
	struct node_flow out[DEVICES * PROCESSES * EACH];

	assert_non_null(n);
	for (u32 i = 0; i < ARRAY_LEN(out); i++) {
		n->flow[i].process = 1 + i % PROCESSES;
		n->flow[i].flow.device = 1 + i / PROCESSES % DEVICES;
		n->flow[i].flow.serial = i;
	}
	n->flow[1].process = 0; /* a gap */
	n->flows = ARRAY_LEN(out);
	for (u32 device = 1; device <= DEVICES; device++) {
		u32 count = directory_list_flows(n, device, 1, out, ARRAY_LEN(out));

		assert_int_equal(count, (PROCESSES - 1) * EACH - (device == 1));
		for (u32 i = 0; i < count; i++) {
			assert_int_equal(out[i].device, device);
			assert_int_not_equal(out[i].serial % PROCESSES, 0);
			assert_true(i == 0 || out[i].serial > out[i - 1].serial);
		}
		assert_int_equal(directory_list_flows(n, device, 1, out, 3), 3);
	}
	free(n);
}

static void node_flow__outlives_the_node(void **state)
{
	struct harness a, b;
	struct node_flow f, g;
	u64 serial;
	u8 mac;

	harness_attach(&a);
	harness_attach(&b);
	f = flow_of(&a, 4);
	g = flow_of(&b, 5);
	assert_int_equal(node_flow_add(a.node, &f), 0);
	serial = f.serial;
	harness_kill_daemon();
	assert_int_equal(node_recover(b.node), 0);
	assert_int_equal(node_flow_add(b.node, &g), 0);
	assert_true(g.serial > serial);
	assert_int_equal(node_recover(a.node), 0);
	assert_int_equal(others(&b, &mac), 1);
	assert_int_equal(mac, 4);
	assert_int_equal(node_flow_remove(a.node, serial), 0);
	assert_int_equal(others(&b, &mac), 0);
	harness_detach(&b);
	harness_detach(&a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(node_flow__others_see_it, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(node_flow__as_many_as_the_table_has, harness_setup,
						harness_teardown),
		cmocka_unit_test(directory_list_flows__of_one_device),
		cmocka_unit_test_setup_teardown(node_flow__outlives_the_node, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
