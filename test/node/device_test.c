/* device_test.c: devices of a node: those that it begins with, those that come and go at run time,
 * and what the next node makes of them.
 * In:    a node of its own for each test      Out: verdicts
 * Runs:  one thread                           Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness.h"

static int device_request(u16 type, const char *name)
{
	struct proto_head *head;
	struct proto_plain reply;
	struct proto_device_name request = { .name = "" };
	struct proto_plain plain;
	struct message m;
	int fd = harness_connect();

	for (int i = 0; i < 2; i++) {
		head = i == 0 ? &plain.head : &request.head;
		*head = (struct proto_head){ .magic = PROTO_MAGIC,
					     .version = PROTO_VERSION,
					     .type = i == 0 ? (u16)PROTO_TOOL : type };
		memcpy(request.name, name, MIN(strlen(name), sizeof(request.name)));
		assert_int_equal(message_send(fd, head, i == 0 ? sizeof(plain) : sizeof(request),
					      NULL, 0),
				 0);
		assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
		assert_int_equal(message_receive(fd, &reply, sizeof(reply), &m), 0);
	}
	close(fd);
	return reply.head.status;
}

static int device_file(const struct node_config *c, const char *path)
{
	char full[1024];

	snprintf(full, sizeof(full), "%s/class/%s", c->sysfs, path);
	return access(full, R_OK);
}

static int device_setup_two(void **state)
{
	setenv("ANYVERBS_DEVICES", "roce1", 1);
	return harness_setup(state);
}

static int device_teardown(void **state)
{
	unsetenv("ANYVERBS_DEVICES");
	unsetenv("ANYVERBS_ADDR");
	return harness_teardown(state);
}

static void device__roce0_is_alone_unless_others_are_named(void **state)
{
	struct node_config c;
	struct harness h;

	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 0, &c), 0);
	assert_string_equal(c.device, "roce0");
	assert_int_equal(c.link_layer, NODE_LINK_ETHERNET);
	for (u32 i = 1; i <= NODE_DEVICES; i++)
		assert_int_equal(node_device_get(h.node, i, &c), -ENODEV);
	harness_detach(&h);
}

/* roce0 need not be named; each has a GUID, GIDs, sockets and a tree of its own. */
static void device__two_have_nothing_in_common(void **state)
{
	struct node_config a, b;
	struct node_socket s[2];
	struct harness h;
	u32 slot;

	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 0, &a), 0);
	assert_int_equal(node_device_get(h.node, 1, &b), 0);
	assert_string_equal(a.device, "roce0");
	assert_string_equal(b.device, "roce1");
	assert_string_equal(b.dev_path, "uverbs1");
	assert_true(a.node_guid != b.node_guid && a.id != b.id);
	for (int i = 0; i < 2; i++)
		assert_memory_not_equal(a.gids[i].gid, b.gids[i].gid, 16);
	assert_int_equal(b.gids[1].gid[12], 127);
	assert_int_equal(b.port_up, 1);
	assert_int_equal(device_file(&b, "infiniband/roce1/ports/1/gids/1"), 0);
	assert_int_equal(device_file(&b, "infiniband_verbs/uverbs1/ibdev"), 0);
	assert_int_equal(device_file(&a, "infiniband/roce0/ports/1/gids/1"), 0);
	assert_int_equal(node_slot_take(h.node, &slot), 0);
	for (u32 i = 0; i < 2; i++) {
		assert_int_equal(node_udp_sockets(h.node, i, slot, &s[i], 1), 1);
		assert_memory_equal(s[i].gid, i == 0 ? a.gids[1].gid : b.gids[1].gid, 16);
		close(s[i].fd);
	}
	assert_true(s[0].id != s[1].id);
	assert_int_equal(node_udp_sockets(h.node, 2, slot, s, 1), -ENODEV);
	harness_detach(&h);
}

static void device__addresses_are_dealt_out_in_turns(void **state)
{
	struct node_config c;
	struct harness h;
	char text[64];

	snprintf(text, sizeof(text), "127.9.%d.1,127.9.%d.2,127.9.%d.1,127.9.%d.3", getpid() % 250,
		 getpid() % 250, getpid() % 250, getpid() % 250);
	setenv("ANYVERBS_ADDR", text, 1);
	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 0, &c), 0);
	assert_int_equal(c.gids[1].gid[15], 1);
	assert_int_equal(c.gids[2].gid[15], 3);
	assert_int_equal(node_device_get(h.node, 1, &c), 0);
	assert_int_equal(c.gids[1].gid[15], 2);
	assert_int_equal(c.gids[2].gid[15], 0);
	harness_detach(&h);
}

static void device__comes_and_goes_with_events(void **state)
{
	struct node_config c;
	struct node_event ev;
	struct harness h, late;

	harness_attach(&h);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce7"), 0);
	ev = harness_wait_event(&h, NODE_EVENT_DEVICE_ADDED);
	assert_int_equal(ev.device.index, 1);
	assert_int_equal(node_device_get(h.node, 1, &c), 0);
	assert_string_equal(c.device, "roce7");
	assert_true(c.id == ev.device.id);
	/* one that attaches now knows it already */
	harness_attach(&late);
	assert_false(node_event_take(late.node, NODE_EVENT_DEVICE_ADDED, &ev));
	assert_int_equal(device_request(PROTO_DEVICE_REMOVE, "roce7"), 0);
	ev = harness_wait_event(&h, NODE_EVENT_DEVICE_REMOVED);
	assert_int_equal(ev.device.index, 1);
	assert_true(c.id == ev.device.id);
	assert_int_equal(node_device_get(h.node, 1, &c), -ENODEV);
	(void)harness_wait_event(&late, NODE_EVENT_DEVICE_REMOVED);
	assert_int_not_equal(device_file(&c, "infiniband/roce7"), 0);
	assert_int_not_equal(device_file(&c, "infiniband_verbs/uverbs1"), 0);
	harness_detach(&late);
	harness_detach(&h);
}

/* Between two looks of a process: it is another one nevertheless. */
static void device__that_came_again_is_another(void **state)
{
	struct node_event gone, come;
	struct node_config c;
	struct harness h;

	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 1, &c), 0);
	assert_int_equal(device_request(PROTO_DEVICE_REMOVE, "roce1"), 0);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce1"), 0);
	gone = harness_wait_event(&h, NODE_EVENT_DEVICE_REMOVED);
	come = harness_wait_event(&h, NODE_EVENT_DEVICE_ADDED);
	assert_true(gone.device.id == c.id && come.device.id > c.id);
	assert_int_equal(gone.device.index, come.device.index);
	harness_detach(&h);
}

static void device__wrong_requests_change_nothing(void **state)
{
	char name[NODE_DEVICE_NAME];
	struct node_event ev;
	struct harness h;

	harness_attach(&h);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce0"), -EEXIST);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce"), -EINVAL);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce01"), -EINVAL);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce12345"), -EINVAL);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "../roce1"), -EINVAL);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce1roce1roce1roce1roce1roce1roce1"),
			 -EINVAL);
	assert_int_equal(device_request(PROTO_DEVICE_REMOVE, "roce1"), -ENODEV);
	assert_int_equal(device_request(PROTO_DEVICE_REMOVE, "roce0"), -EPERM);
	assert_false(node_event_take(h.node, NODE_EVENT_CONFIG, &ev));
	for (int i = 1; i < NODE_DEVICES; i++) {
		snprintf(name, sizeof(name), "roce%d", i);
		assert_int_equal(device_request(PROTO_DEVICE_ADD, name), 0);
	}
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce99"), -ENOSPC);
	harness_detach(&h);
}

/* A process that lives goes on with the devices of the node that was killed, whatever the
 * environment of the next one says. */
static void device__outlives_its_node(void **state)
{
	struct node_config before, after;
	struct node_event ev;
	struct harness h;

	harness_attach(&h);
	assert_int_equal(device_request(PROTO_DEVICE_ADD, "roce5"), 0);
	(void)harness_wait_event(&h, NODE_EVENT_DEVICE_ADDED);
	assert_int_equal(node_device_get(h.node, 1, &before), 0);
	setenv("ANYVERBS_DEVICES", "roce0,roce9", 1);
	harness_kill_daemon();
	assert_int_equal(node_recover(h.node), 0);
	assert_int_equal(node_device_get(h.node, 1, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_false(node_event_take(h.node, NODE_EVENT_DEVICE_REMOVED, &ev));
	assert_false(node_event_take(h.node, NODE_EVENT_DEVICE_ADDED, &ev));
	harness_detach(&h);
}

/* `entry` of the class has a link `device`, which leads back to it. */
static void device_assert_link_of(const struct node_config *c, const char *class, const char *entry,
				  const char *name)
{
	char path[512], to[128] = "", wanted[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/class/%s/%s/device", c->sysfs, class, entry);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_true(readlink(path, to, sizeof(to) - 1) > 0);
	snprintf(wanted, sizeof(wanted), "../../../devices/anyverbs/%s", name);
	assert_string_equal(to, wanted);
	snprintf(path, sizeof(path), "%s/%s/device/numa_node", class, entry);
	assert_int_equal(device_file(c, path), 0);
	snprintf(path, sizeof(path), "%s/%s/device/%s/%s", class, entry, class, entry);
	assert_int_equal(device_file(c, path), 0);
}

static void device_assert_link(const struct node_config *c, const char *name, u32 number)
{
	char entry[16];

	device_assert_link_of(c, "infiniband", name, name);
	snprintf(entry, sizeof(entry), "uverbs%u", number);
	device_assert_link_of(c, "infiniband_verbs", entry, name);
	snprintf(entry, sizeof(entry), "umad%u", number);
	device_assert_link_of(c, "infiniband_mad", entry, name);
}

/* What earlier builds had in its place. */
static void device_put_folder(const struct node_config *c, const char *entry)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/class/%s/device", c->sysfs, entry);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* Also where the node before, of an earlier build, has left a folder. */
static void device__function_is_behind_a_link(void **state)
{
	struct node_config a, b;
	struct node_event ev;
	char path[512];
	struct harness h;

	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 0, &a), 0);
	assert_int_equal(node_device_get(h.node, 1, &b), 0);
	device_assert_link(&a, "roce0", 0);
	device_assert_link(&b, "roce1", 1);
	assert_int_equal(device_request(PROTO_DEVICE_REMOVE, "roce1"), 0);
	(void)harness_wait_event(&h, NODE_EVENT_DEVICE_REMOVED);
	assert_false(node_event_take(h.node, NODE_EVENT_DEVICE_REMOVED, &ev));
	assert_int_not_equal(device_file(&b, "../devices/anyverbs/roce1"), 0);
	assert_int_not_equal(device_file(&b, "infiniband_verbs/uverbs1"), 0);
	assert_int_not_equal(device_file(&b, "infiniband_mad/umad1"), 0);
	harness_kill_daemon();
	device_put_folder(&a, "infiniband/roce0");
	device_put_folder(&a, "infiniband_verbs/uverbs0");
	device_put_folder(&a, "infiniband_mad/umad0");
	snprintf(path, sizeof(path), "%s/class/infiniband/roce0/device/net", a.sysfs);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(node_recover(h.node), 0);
	device_assert_link(&a, "roce0", 0);
	harness_detach(&h);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, harness_setup, device_teardown)
#define TWO(fn) cmocka_unit_test_setup_teardown(fn, device_setup_two, device_teardown)
	const struct CMUnitTest tests[] = {
		CASE(device__roce0_is_alone_unless_others_are_named),
		TWO(device__two_have_nothing_in_common),
		TWO(device__addresses_are_dealt_out_in_turns),
		CASE(device__comes_and_goes_with_events),
		TWO(device__that_came_again_is_another),
		CASE(device__wrong_requests_change_nothing),
		CASE(device__outlives_its_node),
		TWO(device__function_is_behind_a_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
