/* takeover_test.c: the node dies while processes have UDP sockets, and another takes them over.
 * In:    a node of its own for each test, on a loopback address of its own
 * Out:   verdicts
 * Runs:  one thread; children          Locks: none
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "udp_user.h"

enum { TAKEOVER_NOBODY = 900 /* a slot that no test reaches */ };

/* What a survivor sees at once when it comes back: its address with its socket, as before. */
static void takeover_assert_kept(struct user *u)
{
	struct node_config c;
	struct node_socket again;

	assert_int_equal(node_device_get(u->h.node, 0, &c), 0);
	assert_int_equal(c.gids[u->socket.gid_index].flags & NODE_GID_WIRE, NODE_GID_WIRE);
	assert_memory_equal(c.gids[u->socket.gid_index].gid, u->socket.gid, 16);
	assert_int_equal(node_udp_sockets(u->h.node, 0, u->slot, &again, 1), 1);
	assert_true(again.id == u->socket.id);
	close(again.fd);
}

static void takeover_recover(struct user *u)
{
	assert_int_equal(node_recover(u->h.node), 0);
	takeover_assert_kept(u);
}

/* Datagrams are steered as before while there is no node, although the members of nobody and of the
 * node itself lost their owner; and so they are when there is one again. */
static void takeover__nothing_moves(void **state)
{
	struct user users[4], late;

	for (int i = 0; i < 4; i++)
		user_begin(&users[i]);
	/* member 2 of 4 is free when the node dies */
	user_end(&users[1]);
	while (harness_status().attached > 3)
		usleep(1000);
	users[1] = users[3];
	harness_kill_daemon();
	assert_true(node_udp_steered(users, 3, TAKEOVER_NOBODY));

	for (int i = 0; i < 3; i++)
		takeover_recover(&users[i]);
	assert_true(node_udp_steered(users, 3, TAKEOVER_NOBODY));
	/* a new process gets the free member, and the next one a new one */
	user_begin(&users[3]);
	user_begin(&late);
	assert_true(node_udp_steered(users, 4, TAKEOVER_NOBODY));
	node_udp_send(&late, late.slot << NODE_INDEX_BITS, UDP_BTH);
	assert_true(node_udp_came(late.socket.fd, UDP_BTH));
	user_end(&late);
	for (int i = 0; i < 4; i++)
		user_end(&users[i]);
}

/* The node dies again and again. */
static void takeover__several_times(void **state)
{
	struct user users[3];

	for (int i = 0; i < 3; i++)
		user_begin(&users[i]);
	for (int round = 0; round < 4; round++) {
		harness_kill_daemon();
		assert_true(node_udp_steered(users, 3, TAKEOVER_NOBODY));
		/* not always the same comes first */
		for (int i = 0; i < 3; i++)
			takeover_recover(&users[(i + round) % 3]);
		assert_true(node_udp_steered(users, 3, TAKEOVER_NOBODY));
	}
	for (int i = 0; i < 3; i++)
		user_end(&users[i]);
}

/* While there is no node a process dies: its socket is free at the next node, and empty. */
static void takeover__an_owner_dies_meanwhile(void **state)
{
	struct user stays, dies, late;

	user_begin(&stays);
	user_begin(&dies);
	harness_kill_daemon();
	node_udp_send(&stays, dies.slot << NODE_INDEX_BITS, UDP_BTH);
	user_end(&dies);
	node_udp_send(&stays, stays.slot << NODE_INDEX_BITS, UDP_BTH);
	assert_true(node_udp_came(stays.socket.fd, UDP_BTH));
	takeover_recover(&stays);
	user_begin(&late);
	assert_true(late.socket.id == dies.socket.id);
	assert_true(node_udp_silent(late.socket.fd));
	node_udp_send(&stays, late.slot << NODE_INDEX_BITS, UDP_BTH);
	assert_true(node_udp_came(late.socket.fd, UDP_BTH));
	user_end(&late);
	user_end(&stays);
}

/* A node that ends in good order, though processes have sockets of it. */
static void takeover__after_a_forced_stop(void **state)
{
	struct user users[2];

	user_begin(&users[0]);
	user_begin(&users[1]);
	kill(harness_daemon(), SIGTERM);
	while (harness_daemon() != 0)
		usleep(1000);
	assert_true(node_udp_steered(users, 2, TAKEOVER_NOBODY));
	takeover_recover(&users[0]);
	takeover_recover(&users[1]);
	assert_true(node_udp_steered(users, 2, TAKEOVER_NOBODY));
	user_end(&users[0]);
	user_end(&users[1]);
}

/* When everybody has gone, nothing holds the port. */
static void takeover__nobody_survives(void **state)
{
	struct user user;
	u64 id;

	user_begin(&user);
	id = user.socket.id;
	harness_kill_daemon();
	user_end(&user);
	user_begin(&user);
	assert_true(user.socket.id != id);
	node_udp_send(&user, user.slot << NODE_INDEX_BITS, UDP_BTH);
	assert_true(node_udp_came(user.socket.fd, UDP_BTH));
	user_end(&user);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)
		TEST(takeover__nothing_moves),	     TEST(takeover__several_times),
		TEST(takeover__an_owner_dies_meanwhile), TEST(takeover__after_a_forced_stop),
		TEST(takeover__nobody_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
