/* listen_test.c: listeners on service IDs: who finds them, who loses them, and the REQ of other
 * hosts.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/steer.h"
#include "udp_user.h"

#define SERVICE 0x0000000001064321ull

static const u8 any[NODE_MATCH]; /* private data */

static void listener_begin(struct harness *h, u32 *slot)
{
	harness_attach(h);
	assert_int_equal(node_slot_take(h->node, slot), 0);
}

static void node_listen__found_by_every_process(void **state)
{
	struct harness a, b;
	u32 slot[2], found = 0;

	listener_begin(&a, &slot[0]);
	listener_begin(&b, &slot[1]);
	assert_int_equal(node_listener_find(a.node, SERVICE, any, 0, &found), -ENOENT);
	assert_int_equal(node_listen(a.node, SERVICE, UINT64_MAX, NULL, slot[0]), 0);
	assert_int_equal(node_listener_find(b.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(found, slot[0]);
	assert_int_equal(node_listener_find(b.node, SERVICE + 1, any, 0, &found), -ENOENT);
	/* the first has it, unless it asks itself; then the next one */
	assert_int_equal(node_listen(b.node, SERVICE, UINT64_MAX, NULL, slot[1]), 0);
	assert_int_equal(node_listener_find(b.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(found, slot[0]);
	assert_int_equal(node_listener_find(b.node, SERVICE, any, slot[1], &found), 0);
	assert_int_equal(found, slot[0]);
	assert_int_equal(node_listener_find(a.node, SERVICE, any, slot[0], &found), 0);
	assert_int_equal(found, slot[1]);
	assert_int_equal(node_unlisten(a.node, SERVICE, UINT64_MAX, NULL), 0);
	assert_int_equal(node_listener_find(a.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(found, slot[1]);
	assert_int_equal(node_listener_find(b.node, SERVICE, any, slot[1], &found), 0);
	assert_int_equal(found, slot[1]);
	assert_int_equal(node_unlisten(a.node, SERVICE, UINT64_MAX, NULL), -ENOENT);
	assert_int_equal(node_unlisten(b.node, SERVICE, UINT64_MAX, NULL), 0);
	assert_int_equal(node_listener_find(a.node, SERVICE, any, 0, &found), -ENOENT);
	harness_detach(&b);
	harness_detach(&a);
}

static void node_listen__by_mask_and_only_with_an_own_slot(void **state)
{
	struct harness a, b;
	u32 slot[2], found = 0;

	listener_begin(&a, &slot[0]);
	listener_begin(&b, &slot[1]);
	assert_int_equal(node_listen(a.node, SERVICE, ~0xffffull, NULL, slot[0]), 0);
	assert_int_equal(node_listener_find(b.node, SERVICE ^ 0x5555, any, 0, &found), 0);
	assert_int_equal(found, slot[0]);
	assert_int_equal(node_listener_find(b.node, SERVICE ^ 0x10000, any, 0, &found), -ENOENT);
	/* the whole service ID goes before */
	assert_int_equal(node_listen(b.node, SERVICE, UINT64_MAX, NULL, slot[1]), 0);
	assert_int_equal(node_listener_find(a.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(found, slot[1]);
	assert_int_equal(node_listen(b.node, SERVICE, UINT64_MAX, NULL, slot[0]), -ENOENT);
	assert_int_equal(node_listen(b.node, SERVICE, UINT64_MAX, NULL, NODE_SLOTS), -ENOENT);
	harness_detach(&b);
	harness_detach(&a);
}

/* Two listen on one service ID at different addresses, as the RDMA CM's header has them. */
static void node_listen__by_the_private_data(void **state)
{
	enum { AT = 32, BYTES = 4 };
	struct node_match match[2] = { { .data = { [AT] = 127, 0, 0, 1 } },
				       { .data = { [AT] = 127, 0, 0, 2 } } };
	u8 request[NODE_MATCH] = { [0] = 99, [AT] = 127, 0, 0, 2 };
	struct harness h[2];
	u32 slot[2], found = 0;

	for (int i = 0; i < 2; i++) {
		memset(match[i].mask + AT, 0xff, BYTES);
		listener_begin(&h[i], &slot[i]);
		assert_int_equal(node_listen(h[i].node, SERVICE, UINT64_MAX, &match[i], slot[i]),
				 0);
	}
	assert_int_equal(node_listener_find(h[0].node, SERVICE, request, 0, &found), 0);
	assert_int_equal(found, slot[1]);
	request[AT + 3] = 1;
	assert_int_equal(node_listener_find(h[1].node, SERVICE, request, 0, &found), 0);
	assert_int_equal(found, slot[0]);
	request[AT + 3] = 3;
	assert_int_equal(node_listener_find(h[1].node, SERVICE, request, 0, &found), -ENOENT);
	/* the next node is told so, too */
	harness_kill_daemon();
	for (int i = 0; i < 2; i++)
		assert_int_equal(node_recover(h[i].node), 0);
	request[AT + 3] = 2;
	assert_int_equal(node_listener_find(h[0].node, SERVICE, request, 0, &found), 0);
	assert_int_equal(found, slot[1]);
	assert_int_equal(node_unlisten(h[1].node, SERVICE, UINT64_MAX, &match[0]), -ENOENT);
	assert_int_equal(node_unlisten(h[1].node, SERVICE, UINT64_MAX, NULL), -ENOENT);
	assert_int_equal(node_unlisten(h[1].node, SERVICE, UINT64_MAX, &match[1]), 0);
	assert_int_equal(node_listener_find(h[0].node, SERVICE, request, 0, &found), -ENOENT);
	harness_detach(&h[1]);
	harness_detach(&h[0]);
}

/* Many, and they all go with their process. */
static void node_listen__ends_with_the_process(void **state)
{
	enum { MANY = 3000 };
	const u64 masked = SERVICE ^ 0x100000;
	struct harness a, b;
	u32 slot[2], found = 0;

	listener_begin(&a, &slot[0]);
	listener_begin(&b, &slot[1]);
	for (u64 i = 0; i < MANY; i++)
		assert_int_equal(node_listen(a.node, SERVICE + i, UINT64_MAX, NULL, slot[0]), 0);
	assert_int_equal(node_listen(a.node, masked, ~0xffffull, NULL, slot[0]), 0);
	for (u64 i = 0; i < MANY; i++)
		assert_int_equal(node_listener_find(b.node, SERVICE + i, any, 0, &found), 0);
	assert_int_equal(node_listener_find(b.node, masked + 1, any, 0, &found), 0);
	harness_detach(&a);
	while (harness_status().attached > 1)
		usleep(1000);
	for (u64 i = 0; i < MANY; i++)
		assert_int_equal(node_listener_find(b.node, SERVICE + i, any, 0, &found), -ENOENT);
	assert_int_equal(node_listener_find(b.node, masked + 1, any, 0, &found), -ENOENT);
	assert_int_equal(node_listen(b.node, SERVICE, UINT64_MAX, NULL, slot[1]), 0);
	harness_detach(&b);
}

static void node_listen__outlives_the_node(void **state)
{
	struct harness a;
	u32 slot, found = 0;

	listener_begin(&a, &slot);
	assert_int_equal(node_listen(a.node, SERVICE, UINT64_MAX, NULL, slot), 0);
	assert_int_equal(node_listen(a.node, SERVICE + 1, UINT64_MAX, NULL, slot), 0);
	assert_int_equal(node_unlisten(a.node, SERVICE + 1, UINT64_MAX, NULL), 0);
	harness_kill_daemon();
	assert_int_equal(node_recover(a.node), 0);
	assert_int_equal(node_listener_find(a.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(found, slot);
	assert_int_equal(node_listener_find(a.node, SERVICE + 1, any, 0, &found), -ENOENT);
	harness_detach(&a);
}

/* What a node that has just begun does not show may be a listener of the node before: to a process
 * that came later, and to one that still reads the dead node's directory. */
static void node_listen__may_come_back_to_the_next_node(void **state)
{
	struct harness exact, masked, late;
	u32 slot[3], found = 0;

	listener_begin(&exact, &slot[0]);
	listener_begin(&masked, &slot[1]);
	assert_int_equal(node_listen(exact.node, SERVICE, UINT64_MAX, NULL, slot[0]), 0);
	assert_int_equal(node_listen(masked.node, SERVICE ^ 0xf0000, ~0xffffull, NULL, slot[1]), 0);
	harness_kill_daemon();
	assert_int_equal(node_listener_find(exact.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(node_listener_find(exact.node, SERVICE + 1, any, 0, &found), -EAGAIN);
	listener_begin(&late, &slot[2]);
	assert_int_equal(node_listen(late.node, SERVICE + 1, UINT64_MAX, NULL, slot[2]), 0);
	assert_int_equal(node_listener_find(exact.node, SERVICE + 1, any, 0, &found), -EAGAIN);
	assert_int_equal(node_listener_find(late.node, SERVICE, any, 0, &found), -EAGAIN);
	assert_int_equal(node_recover(exact.node), 0);
	assert_int_equal(node_listener_find(late.node, SERVICE, any, 0, &found), 0);
	assert_int_equal(found, slot[0]);
	assert_int_equal(node_listener_find(exact.node, SERVICE + 1, any, 0, &found), 0);
	assert_int_equal(node_listener_find(late.node, SERVICE ^ 0xf0003, any, 0, &found), -EAGAIN);
	assert_int_equal(node_recover(masked.node), 0);
	assert_int_equal(node_listener_find(late.node, SERVICE ^ 0xf0003, any, 0, &found), 0);
	assert_int_equal(found, slot[1]);
	assert_int_equal(node_listener_find(late.node, SERVICE + 2, any, 0, &found), -ENOENT);
	harness_detach(&late);
	harness_detach(&masked);
	harness_detach(&exact);
}

/* Nobody waits for one that has died instead. */
static void node_listen__does_not_come_back(void **state)
{
	struct harness stays, dies;
	u32 slot[2], found = 0;

	listener_begin(&stays, &slot[0]);
	listener_begin(&dies, &slot[1]);
	harness_kill_daemon();
	assert_int_equal(node_recover(stays.node), 0);
	assert_int_equal(node_listener_find(stays.node, SERVICE, any, 0, &found), -EAGAIN);
	harness_detach(&dies);
	while (node_listener_find(stays.node, SERVICE, any, 0, &found) == -EAGAIN)
		usleep(1000);
	assert_int_equal(node_listener_find(stays.node, SERVICE, any, 0, &found), -ENOENT);
	harness_detach(&stays);
}

/* A REQ to QP1, as another host sends it; its ICRC is the receiver's to judge. */
static void fill_req(u8 datagram[NODE_MAD_BYTES], u64 service_id)
{
	u8 *mad = datagram + 20;

	memset(datagram, 0, NODE_MAD_BYTES);
	datagram[0] = 0x64;
	datagram[7] = 1;
	mad[0] = 1;
	mad[STEER_CLASS] = STEER_CLASS_CM;
	mad[STEER_METHOD] = 3;
	mad[STEER_ATTRIBUTE + 1] = STEER_CM_REQ;
	for (u32 i = 0; i < 8; i++)
		mad[STEER_SERVICE_ID + i] = (u8)(service_id >> (56 - 8 * i));
}

static void send_datagram(const struct user *u, const void *data, size_t size)
{
	struct sockaddr_storage to;
	socklen_t length = node_udp_address(u->socket.gid, u->socket.ifindex, &to);
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(sendto(fd, data, size, 0, (struct sockaddr *)&to, length), size);
	close(fd);
}

static void req__of_another_host_reaches_the_listener(void **state)
{
	u8 datagram[NODE_MAD_BYTES];
	struct user u, other;
	struct node_event ev;

	user_begin(&other);
	user_begin(&u);
	assert_int_equal(node_listen(other.h.node, SERVICE + 1, UINT64_MAX, NULL, other.slot), 0);
	assert_int_equal(node_listen(u.h.node, SERVICE, UINT64_MAX, NULL, u.slot), 0);
	fill_req(datagram, SERVICE);
	send_datagram(&u, datagram, sizeof(datagram));
	ev = harness_wait_event(&u.h, NODE_EVENT_MAD);
	assert_memory_equal(ev.mad.payload, datagram, sizeof(datagram));
	assert_memory_equal(ev.mad.dgid, u.socket.gid, 16);
	assert_int_not_equal(ev.mad.sport, 0);
	assert_int_not_equal(ev.mad.hop_limit, 0);
	/* what is no REQ, or not whole, is for nobody */
	datagram[20 + STEER_CLASS] = 4;
	send_datagram(&u, datagram, sizeof(datagram));
	fill_req(datagram, SERVICE);
	send_datagram(&u, datagram, sizeof(datagram) - 4);
	/* of one that nobody listens for no process hears: the node refuses it by itself */
	fill_req(datagram, SERVICE + 2);
	send_datagram(&u, datagram, sizeof(datagram));
	fill_req(datagram, SERVICE + 1);
	send_datagram(&u, datagram, sizeof(datagram));
	ev = harness_wait_event(&other.h, NODE_EVENT_MAD);
	assert_memory_equal(ev.mad.payload, datagram, sizeof(datagram));
	assert_false(node_event_take(u.h.node, NODE_EVENT_MAD, &ev));
	user_end(&u);
	user_end(&other);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(node_listen__found_by_every_process, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(node_listen__by_mask_and_only_with_an_own_slot,
						harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(node_listen__by_the_private_data, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(node_listen__ends_with_the_process, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(node_listen__outlives_the_node, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(node_listen__may_come_back_to_the_next_node,
						harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(node_listen__does_not_come_back, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(req__of_another_host_reaches_the_listener,
						harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
