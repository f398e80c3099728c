/* port_test.c: the port's state, from the tool's request to what every process and /sys show.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  the only thread               Locks: none
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static void port_ask(int fd, u16 type, void *request, size_t size,
		     struct proto_plain *reply)
{
	struct proto_head *head = request;
	struct message m;

	*head = (struct proto_head){ .magic = PROTO_MAGIC,
				     .version = PROTO_VERSION,
				     .type = type };
	assert_int_equal(message_send(fd, request, size, NULL, 0), 0);
	assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(fd, reply, sizeof(*reply), &m), 0);
	assert_int_equal(m.size, sizeof(*reply));
}

/* What the node answers. */
static int port_request(const char *device, u32 port, u32 up)
{
	struct proto_port request = { .port = port, .up = up };
	struct proto_plain plain, reply;
	int fd = harness_connect();

	assert_true(fd >= 0);
	memcpy(request.device, device, strlen(device));
	port_ask(fd, PROTO_TOOL, &plain, sizeof(plain), &reply);
	assert_int_equal(reply.head.status, 0);
	port_ask(fd, PROTO_PORT, &request, sizeof(request), &reply);
	close(fd);
	return reply.head.status;
}

static void port_assert_file(const char *name, const char *text)
{
	struct proto_status_reply s = harness_status();
	char path[512], found[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/1/%s", s.config.sysfs,
		 s.config.device, name);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	n = read(fd, found, sizeof(found) - 1);
	close(fd);
	assert_true(n >= 0);
	found[n] = '\0';
	assert_string_equal(found, text);
}

static void port_assert_config(struct harness *h, bool up, u32 downs)
{
	struct node_config c;

	assert_int_equal(node_device_get(h->node, 0, &c), 0);
	assert_int_equal(c.port_up, up);
	assert_int_equal(c.port_downs, downs);
}

static void port__every_process_and_sysfs_show_it(void **state)
{
	struct harness a, b, late;

	harness_attach(&a);
	harness_attach(&b);
	port_assert_config(&a, true, 0);
	assert_int_equal(port_request("", 1, 0), 0);
	harness_wait_event(&a, NODE_EVENT_CONFIG);
	harness_wait_event(&b, NODE_EVENT_CONFIG);
	port_assert_config(&a, false, 1);
	port_assert_config(&b, false, 1);
	port_assert_file("state", "1: DOWN\n");
	port_assert_file("phys_state", "3: Disabled\n");
	port_assert_file("counters/link_downed", "1\n");
	harness_attach(&late);
	port_assert_config(&late, false, 1);
	assert_int_equal(port_request("roce0", 1, 1), 0);
	harness_wait_event(&late, NODE_EVENT_CONFIG);
	port_assert_config(&late, true, 1);
	port_assert_file("state", "4: ACTIVE\n");
	port_assert_file("phys_state", "5: LinkUp\n");
	port_assert_file("counters/link_downed", "1\n");
	harness_detach(&a);
	harness_detach(&b);
	harness_detach(&late);
}

static void port__same_state_is_no_news(void **state)
{
	struct harness a;
	struct node_event ev;

	harness_attach(&a);
	assert_int_equal(port_request("", 1, 1), 0);
	assert_false(harness_readable(node_event_fd(a.node), 50));
	assert_int_equal(port_request("", 1, 0), 0);
	harness_wait_event(&a, NODE_EVENT_CONFIG);
	assert_int_equal(port_request("", 1, 0), 0);
	assert_false(harness_readable(node_event_fd(a.node), 50));
	assert_false(node_event_next(a.node, &ev));
	port_assert_config(&a, false, 1);
	harness_detach(&a);
}

static void port__wrong_requests_change_nothing(void **state)
{
	struct harness a;

	harness_attach(&a);
	assert_int_equal(port_request("roce1", 1, 0), -ENODEV);
	assert_int_equal(port_request("", 0, 0), -ENODEV);
	assert_int_equal(port_request("", 2, 0), -ENODEV);
	assert_int_equal(port_request("", 1, 2), -EINVAL);
	/* no end of the name */
	assert_int_equal(port_request("roce0roce0roce0roce0roce0roce0ro", 1, 0), -ENODEV);
	port_assert_config(&a, true, 0);
	harness_detach(&a);
}

/* Whoever has the port down does not find it up because the node crashed. */
static void port__next_node_keeps_it(void **state)
{
	struct harness a;

	harness_attach(&a);
	assert_int_equal(port_request("", 1, 0), 0);
	harness_wait_event(&a, NODE_EVENT_CONFIG);
	harness_kill_daemon();
	harness_wait_event(&a, NODE_EVENT_LOST);
	assert_int_equal(node_recover(a.node), 0);
	port_assert_config(&a, false, 1);
	port_assert_file("state", "1: DOWN\n");
	assert_int_equal(port_request("", 1, 1), 0);
	harness_kill_daemon();
	harness_wait_event(&a, NODE_EVENT_LOST);
	assert_int_equal(node_recover(a.node), 0);
	port_assert_config(&a, true, 1);
	harness_detach(&a);
}

#define PORT_TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PORT_TEST(port__every_process_and_sysfs_show_it),
		PORT_TEST(port__same_state_is_no_news),
		PORT_TEST(port__wrong_requests_change_nothing),
		PORT_TEST(port__next_node_keeps_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
