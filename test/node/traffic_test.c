/* traffic_test.c: what processes count for the ports of devices, from their boards to /sys: while
 * they live, when they have ended, and after the node's death.
 * In:    a node of its own per test, boards that the test fills    Out: verdicts
 * Runs:  the only thread                                           Locks: none
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness.h"
#include "path/shm/board.h"

enum { TRAFFIC_LOOK_US = 10000 };

struct process {
	struct harness h;
	struct board *board;
};

static void process_begin(struct process *p)
{
	int fd, err;

	p->board = board_create(&fd, &err);
	assert_non_null(p->board);
	p->h.self = harness_self(fd);
	assert_int_equal(node_attach(&p->h.self, &p->h.node), 0);
}

static void process_end(struct process *p)
{
	harness_detach(&p->h);
	munmap(p->board, sizeof(*p->board));
}

static void process_count(struct process *p, u32 device, enum path_traffic_count c, u64 n)
{
	__atomic_fetch_add(&p->board->traffic[device].count[c], n, __ATOMIC_RELAXED);
}

static void traffic_path(const char *device, const char *name, char *out, size_t size)
{
	struct proto_status_reply s = harness_status();

	snprintf(out, size, "%s/class/infiniband/%s/ports/1/counters/%s", s.config.sysfs, device,
		 name);
}

static u64 traffic_read(const char *device, const char *name)
{
	char path[512], text[32] = "";
	int fd;

	traffic_path(device, name, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoull(text, NULL, 10);
}

/* Waits for it. It never is more. */
static void traffic_await(const char *device, const char *name, u64 expected)
{
	u64 limit = clock_now_ns() + HARNESS_PATIENCE_NS, now;

	while ((now = traffic_read(device, name)) < expected && clock_now_ns() < limit)
		usleep(TRAFFIC_LOOK_US);
	assert_int_equal(now, expected);
}

static int traffic_request(void *request, size_t size, u16 type)
{
	struct proto_head *head = request;
	struct proto_plain plain = { .head.type = PROTO_TOOL }, reply;
	struct message m;
	int fd = harness_connect();

	head->type = type;
	for (int i = 0; i < 2; i++) {
		struct proto_head *h = i == 0 ? &plain.head : head;

		h->magic = PROTO_MAGIC;
		h->version = PROTO_VERSION;
		assert_int_equal(message_send(fd, h, i == 0 ? sizeof(plain) : size, NULL, 0), 0);
		assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
		assert_int_equal(message_receive(fd, &reply, sizeof(reply), &m), 0);
	}
	close(fd);
	return reply.head.status;
}

static void traffic_device(u16 type, const char *name)
{
	struct proto_device_name q = { .name = "" };

	snprintf(q.name, sizeof(q.name), "%s", name);
	assert_int_equal(traffic_request(&q, sizeof(q), type), 0);
}

/* Everything that the port can count has happened here. */
static void traffic__no_counter_is_always_0(void **state)
{
	struct proto_port down = { .port = 1, .up = 0 };
	struct process a;
	struct dirent *e;
	char path[512];
	u32 count = 0;
	DIR *dir;

	process_begin(&a);
	assert_int_equal(traffic_request(&down, sizeof(down), PROTO_PORT), 0);
	for (u32 i = 0; i < TRAFFIC_COUNTS; i++)
		process_count(&a, 0, i, 4000 + 4 * i);
	traffic_path("roce0", "", path, sizeof(path));
	dir = opendir(path);
	assert_non_null(dir);
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		for (int i = 0; i < HARNESS_PATIENCE_MS && traffic_read("roce0", e->d_name) == 0;
		     i++)
			usleep(1000);
		assert_true(traffic_read("roce0", e->d_name) > 0);
		count++;
	}
	closedir(dir);
	assert_int_equal(count, 7);
	assert_int_equal(traffic_read("roce0", "link_downed"), 1);
	assert_int_equal(traffic_read("roce0", "port_xmit_packets"), 4000);
	assert_int_equal(traffic_read("roce0", "port_xmit_data"), 4004 / 4);
	assert_int_equal(traffic_read("roce0", "port_rcv_packets"), 4008);
	assert_int_equal(traffic_read("roce0", "port_rcv_data"), 4012 / 4);
	assert_int_equal(traffic_read("roce0", "port_rcv_errors"), 4016);
	assert_int_equal(traffic_read("roce0", "port_xmit_discards"), 4020);
	process_end(&a);
}

static void traffic__processes_add_up_and_leave_what_they_counted(void **state)
{
	struct process a, b;

	process_begin(&a);
	process_begin(&b);
	process_count(&a, 0, TRAFFIC_XMIT_PACKETS, 10);
	process_count(&b, 0, TRAFFIC_XMIT_PACKETS, 200);
	traffic_await("roce0", "port_xmit_packets", 210);
	/* not seen before it ends */
	process_count(&b, 0, TRAFFIC_XMIT_PACKETS, 3000);
	process_end(&b);
	process_count(&a, 0, TRAFFIC_XMIT_PACKETS, 10);
	traffic_await("roce0", "port_xmit_packets", 3220);
	process_end(&a);
	traffic_await("roce0", "port_xmit_packets", 3220);
}

static void traffic__the_next_node_goes_on(void **state)
{
	struct process a, b;

	process_begin(&a);
	process_begin(&b);
	process_count(&a, 0, TRAFFIC_RCV_BYTES, 400);
	process_count(&b, 0, TRAFFIC_RCV_BYTES, 8000);
	process_end(&b);
	traffic_await("roce0", "port_rcv_data", 2100);
	harness_kill_daemon();
	harness_wait_event(&a.h, NODE_EVENT_LOST);
	assert_int_equal(node_recover(a.h.node), 0);
	assert_int_equal(traffic_read("roce0", "port_rcv_data"), 2100);
	process_count(&a, 0, TRAFFIC_RCV_BYTES, 40);
	traffic_await("roce0", "port_rcv_data", 2110);
	process_end(&a);
}

/* Another device with the index of one that is gone, and with its name, begins at 0. */
static void traffic__a_device_counts_its_own(void **state)
{
	struct process a;

	process_begin(&a);
	traffic_device(PROTO_DEVICE_ADD, "roce1");
	process_count(&a, 1, TRAFFIC_XMIT_PACKETS, 5);
	traffic_await("roce1", "port_xmit_packets", 5);
	assert_int_equal(traffic_read("roce0", "port_xmit_packets"), 0);
	traffic_device(PROTO_DEVICE_REMOVE, "roce1");
	traffic_device(PROTO_DEVICE_ADD, "roce1");
	assert_int_equal(traffic_read("roce1", "port_xmit_packets"), 0);
	process_count(&a, 1, TRAFFIC_XMIT_PACKETS, 7);
	traffic_await("roce1", "port_xmit_packets", 7);
	process_end(&a);
	traffic_await("roce1", "port_xmit_packets", 7);
}

#define TRAFFIC_TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TRAFFIC_TEST(traffic__no_counter_is_always_0),
		TRAFFIC_TEST(traffic__processes_add_up_and_leave_what_they_counted),
		TRAFFIC_TEST(traffic__the_next_node_goes_on),
		TRAFFIC_TEST(traffic__a_device_counts_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
