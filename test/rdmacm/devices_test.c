/* devices_test.c: ids of a node with two devices, the second of which goes.
 * The node begins with roce0 and roce1 (CMakeLists.txt).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cm.h"

static struct rdma_cm_id *bind_to_second(int port)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce1", port)), 0);
	assert_string_equal(ibv_get_device_name(id->verbs->device), "roce1");
	return id;
}

static void resolve_at(struct rdma_cm_id *client, struct sockaddr *to)
{
	assert_int_equal(rdma_resolve_addr(client, NULL, to, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, client);
	assert_int_equal(rdma_resolve_route(client, 1000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, client);
}

/* A program that connects a moment before its peer listens, on a device that is not its own. */
static void rdma_connect__waits_for_a_listener_of_another_device(void **state)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7, .qp_num = 77 };
	struct rdma_cm_id *other, *listener, *client;
	struct rdma_cm_event *event;
	int port;

	/* over UDP somebody must be there who answers for the node */
	other = bind_to_second(0);
	assert_int_equal(rdma_listen(other, 1), 0);
	listener = bind_to_second(0);
	port = ntohs(rdma_get_src_port(listener));
	assert_int_equal(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(client, address_of("roce0", 0)), 0);
	assert_string_equal(ibv_get_device_name(client->verbs->device), "roce0");
	resolve_at(client, address_of("roce1", port));
	assert_int_equal(rdma_connect(client, &param), 0);
	usleep(2000);
	assert_int_equal(rdma_listen(listener, 1), 0);
	event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, listener);
	assert_int_equal(rdma_destroy_id(event->id), 0);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_int_equal(rdma_destroy_id(client), 0);
	assert_int_equal(rdma_destroy_id(listener), 0);
	assert_int_equal(rdma_destroy_id(other), 0);
}

/* localhost is this node, also for an id that is bound to a loopback address which the host routes
 * from. */
static void rdma_connect__reaches_localhost_from_another_loopback_address(void **state)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7, .qp_num = 78 };
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_cm_id *listener, *client;
	struct rdma_cm_event *event;

	assert_int_equal(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	client = bind_to_second(0);
	resolve_at(client, local(ntohs(rdma_get_src_port(listener))));
	assert_int_equal(rdma_connect(client, &param), 0);
	event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, listener);
	assert_int_equal(rdma_destroy_id(event->id), 0);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_int_equal(rdma_destroy_id(client), 0);
	assert_int_equal(rdma_destroy_id(listener), 0);
}

/* The groups of an id whose device goes: they can still be left, and end with the id. */
static void rdma_join_multicast__ends_with_the_device(void **state)
{
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_UD };
	struct sockaddr_in group = { .sin_family = AF_INET };
	struct rdma_cm_id *id;

	group.sin_addr.s_addr = inet_addr("239.77.4.1");
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce1", 0)), 0);
	assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
		expect(RDMA_CM_EVENT_MULTICAST_JOIN, id);
	}
	assert_int_equal(system(ANYVERBS " device remove roce1"), 0);
	expect(RDMA_CM_EVENT_DEVICE_REMOVAL, id);
	assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
	fails(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), EIO);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

/* A request whose device goes is told nothing before it is accepted; accepting it says so. */
static void rdma_accept__of_a_device_that_has_gone(void **state)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7, .qp_num = 79 };
	struct rdma_event_channel *others = rdma_create_event_channel();
	struct rdma_cm_id *listener = bind_to_second(0), *client, *id;
	struct rdma_cm_event *event;

	assert_int_equal(rdma_listen(listener, 1), 0);
	assert_int_equal(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(client, address_of("roce0", 0)), 0);
	resolve_at(client, address_of("roce1", ntohs(rdma_get_src_port(listener))));
	assert_int_equal(rdma_connect(client, &param), 0);
	event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_int_equal(rdma_migrate_id(client, others), 0);
	assert_int_equal(system(ANYVERBS " device remove roce1"), 0);
	expect(RDMA_CM_EVENT_DEVICE_REMOVAL, listener);
	while (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &param.srq, 1) == 0)
		usleep(1000);
	fails(rdma_accept(id, &param), EIO);
	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	fails(rdma_get_cm_event(channel, &event), EAGAIN);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_destroy_id(client), 0);
	assert_int_equal(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(others);
}

/* Another test may have removed the device, or a run before this one, whose node still lives. */
static int second_comes_back(void **state)
{
	(void)state;
	(void)!system(ANYVERBS " device add roce1 >/dev/null 2>&1");
	return 0;
}

static int begin_with_second(void **state)
{
	return second_comes_back(state) != 0 ? -1 : begin(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			rdma_connect__waits_for_a_listener_of_another_device, begin, end),
		cmocka_unit_test_setup_teardown(
			rdma_connect__reaches_localhost_from_another_loopback_address, begin, end),
		cmocka_unit_test_setup_teardown(rdma_join_multicast__ends_with_the_device, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_accept__of_a_device_that_has_gone,
						begin_with_second, end),
	};

	return cmocka_run_group_tests(tests, second_comes_back, NULL);
}
