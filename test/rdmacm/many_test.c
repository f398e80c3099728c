/* many_test.c: librdmacm with many ids: listeners that do not hinder one another, and connections
 * that leave nothing behind. Both ends are this process, without queue pairs but for their numbers.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <rdma/rdma_cma.h>

enum {
	EVENT_MS = 50000,
	LISTENERS = 10000,
	LISTENERS_KIB = 48 << 10, /* what they may take together */
	ROUNDS = 20000,
	GROWTH = 64 << 10, /* bytes, of the second half of the rounds: 6 each */
	TIMEWAIT_S = 6,
};

static struct rdma_event_channel *channel;

static int begin(void **state)
{
	channel = rdma_create_event_channel();
	return channel == NULL ? -1 : 0;
}

static int end(void **state)
{
	rdma_destroy_event_channel(channel);
	return 0;
}

static struct sockaddr *local(int port)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (struct sockaddr *)&sin;
}

static long resident_kib(void)
{
	char line[128];
	long kib = 0, sum = 0;
	FILE *f = fopen("/proc/self/status", "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "RssAnon: %ld", &kib) == 1 ||
		    sscanf(line, "RssShmem: %ld", &kib) == 1)
			sum += kib;
	fclose(f);
	return sum;
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

/* ---- a connection ---------------------------------------------------------------------------- */

struct ends {
	struct rdma_cm_id *listener, *client, *server;
	int established, left;
};

/* No number comes twice, since the peer lets the queue pair of a connection rest. */
static struct rdma_conn_param next_qp(void)
{
	static uint32_t qpn = 0x1000;

	return (struct rdma_conn_param){ .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .qp_num = qpn++ };
}

/* Takes one event, and does what it asks for. */
static void step(struct ends *e)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_conn_param param = next_qp();
	struct rdma_cm_event *event;

	assert_int_equal(poll(&p, 1, EVENT_MS), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		e->server = event->id;
		assert_int_equal(rdma_accept(e->server, &param), 0);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		assert_int_equal(rdma_establish(event->id), 0);
		e->established++;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		e->established++;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (event->id == e->server)
			assert_int_equal(rdma_disconnect(e->server), 0);
		e->left++;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		assert_int_equal(event->status, 0);
	}
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

static int listen_on(struct rdma_cm_id **id)
{
	assert_int_equal(rdma_create_id(channel, id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(*id, local(0)), 0);
	assert_int_equal(rdma_listen(*id, 8), 0);
	return ntohs(rdma_get_src_port(*id));
}

static void connect_to(struct ends *e, int port)
{
	struct rdma_conn_param param = next_qp();

	e->established = e->left = 0;
	assert_int_equal(rdma_create_id(channel, &e->client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(e->client, NULL, local(port), 1000), 0);
	step(e);
	assert_int_equal(rdma_resolve_route(e->client, 1000), 0);
	step(e);
	assert_int_equal(rdma_connect(e->client, &param), 0);
	while (e->established < 2)
		step(e);
}

static void part(struct ends *e)
{
	assert_int_equal(rdma_disconnect(e->client), 0);
	while (e->left < 2)
		step(e);
	assert_int_equal(rdma_destroy_id(e->client), 0);
	assert_int_equal(rdma_destroy_id(e->server), 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Each has a port of its own, and the last one gets what is for it. */
static void rdma_listen__has_room_for_ten_thousand(void **state)
{
	static struct rdma_cm_id *ids[LISTENERS];
	static bool taken[1 << 16];
	struct ends e = { .listener = NULL };
	long before;
	int port = 0;

	(void)listen_on(&ids[0]); /* makes what all share */
	assert_int_equal(rdma_destroy_id(ids[0]), 0);
	before = resident_kib();
	for (int i = 0; i < LISTENERS; i++) {
		port = listen_on(&ids[i]);
		assert_false(taken[port]);
		taken[port] = true;
	}
	assert_in_range(resident_kib() - before, 0, LISTENERS_KIB);
	connect_to(&e, port);
	assert_int_equal(ntohs(rdma_get_src_port(e.server)), port);
	part(&e);
	for (int i = 0; i < LISTENERS; i++)
		assert_int_equal(rdma_destroy_id(ids[i]), 0);
}

/* Bytes that are allocated once no id is in timewait any more. */
static size_t settled_bytes(void)
{
	struct mallinfo2 m;

	sleep(TIMEWAIT_S);
	m = mallinfo2();
	return m.uordblks + m.hblkhd;
}

static void rdma_destroy_id__leaves_nothing_of_a_connection(void **state)
{
	struct ends e = { .listener = NULL };
	int port = listen_on(&e.listener), descriptors = 0;
	size_t half = 0;

	for (int i = 0; i < ROUNDS; i++) {
		if (i == ROUNDS / 2) {
			half = settled_bytes();
			descriptors = open_descriptors();
		}
		connect_to(&e, port);
		part(&e);
	}
	assert_in_range(settled_bytes(), 0, half + GROWTH);
	assert_int_equal(open_descriptors(), descriptors);
	assert_int_equal(rdma_destroy_id(e.listener), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rdma_listen__has_room_for_ten_thousand, begin, end),
		cmocka_unit_test_setup_teardown(rdma_destroy_id__leaves_nothing_of_a_connection,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
