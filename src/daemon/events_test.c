/* events_test.c: events reach every process, in order, also those for which its socket had no room.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/daemon_priv.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/service.h"

enum { PROCESSES = 3, WAITING = 5 };

static struct daemon d;
static struct proc proc[PROCESSES];
static int theirs[PROCESSES];

static int setup(void **state)
{
	memset(&d, 0, sizeof(d));
	memset(proc, 0, sizeof(proc));
	list_init(&d.procs);
	if (loop_init(&d.loop) != 0)
		return -1;
	for (int i = 0; i < PROCESSES; i++) {
		proc[i].daemon = &d;
		proc[i].kind = PROC_ATTACHED;
		proc[i].process = 1000 + (u64)i;
		list_init(&proc[i].waiting);
		list_push_back(&d.procs, &proc[i].node);
		if (event_open(&proc[i], &theirs[i]) != 0)
			return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < PROCESSES; i++) {
		int fd = proc[i].events.fd;

		event_discard(&proc[i]);
		loop_remove(&d.loop, &proc[i].events);
		close(fd);
		close(theirs[i]);
	}
	loop_destroy(&d.loop);
	return 0;
}

/* The next event of a process: false, there is none now. */
static bool next(int i, struct proto_peer *out)
{
	ssize_t n = recv(theirs[i], out, sizeof(*out), MSG_DONTWAIT);

	assert_true(n > 0 || errno == EAGAIN);
	return n > 0;
}

/* One comes when there is room again, but others wait: it waits behind them. */
static void event_peer_gone__keeps_order_behind_what_waits(void **state)
{
	struct proto_peer msg;
	u64 last = 0, due = 1;

	while (proc[0].waiting_count < WAITING)
		event_peer_gone(&proc[0], ++last, 0);
	assert_true(proc[0].blocked);
	assert_int_equal(d.blocked_count, 1);
	for (; due <= WAITING; due++) {
		assert_true(next(0, &msg));
		assert_int_equal(msg.process, due);
	}
	event_peer_gone(&proc[0], ++last, 0);
	assert_int_equal(proc[0].waiting_count, WAITING + 1);
	while (due <= last) {
		if (!next(0, &msg)) {
			event_flush(&proc[0]);
			continue;
		}
		assert_int_equal(msg.head.type, PROTO_EV_PEER_GONE);
		assert_int_equal(msg.process, due++);
	}
	assert_false(next(0, &msg));
	assert_false(proc[0].blocked);
	assert_int_equal(d.blocked_count, 0);
}

/* A beginning that has not been told is not told when its peer goes; another peer's is. */
static void event_peer_gone__withdraws_its_own_beginning_only(void **state)
{
	struct proto_peer msg;
	u64 before = 0;

	while (proc[0].waiting_count < WAITING)
		event_peer_gone(&proc[0], ++before, 0);
	for (int i = 1; i <= 2; i++) {
		proc[i].board_fd = proc[i].bell_fd[0] = proc[i].bell_fd[1] = theirs[i];
		proc[i].life.fd = -1;
		assert_int_equal(event_peer_new(&proc[0], &proc[i], dup(theirs[i])), 0);
	}
	event_peer_gone(&proc[0], proc[2].process, 0);
	for (u64 told = 0; told < before;) {
		if (next(0, &msg))
			told++;
		else
			event_flush(&proc[0]);
	}
	event_flush(&proc[0]);
	assert_true(next(0, &msg));
	assert_int_equal(msg.head.type, PROTO_EV_PEER_NEW);
	assert_int_equal(msg.process, proc[1].process);
	while (next(0, &msg))
		assert_false(msg.head.type == PROTO_EV_PEER_NEW);
}

/* The first and the last process hear of a change, one whose socket is full when there is room. */
static void event_config__tells_every_process(void **state)
{
	struct proto_peer msg;
	u64 last = 0;

	while (proc[1].waiting_count < WAITING)
		event_peer_gone(&proc[1], ++last, 0);
	event_config(&d);
	event_capture_all(&d);
	for (int i = 0; i < PROCESSES; i++) {
		for (u64 k = 0; i == 1 && k < last;) {
			if (next(i, &msg))
				k++;
			else
				event_flush(&proc[i]);
		}
		event_flush(&proc[i]);
		assert_true(next(i, &msg));
		assert_int_equal(msg.head.type, PROTO_EV_CONFIG);
		assert_true(next(i, &msg));
		assert_int_equal(msg.head.type, PROTO_EV_CAPTURE);
		assert_false(next(i, &msg));
	}
}

/* A process without room for more events: what is asked for on its behalf fails. */
static void fill(int i)
{
	while (proc[i].waiting_count < DAEMON_EVENTS)
		event_peer_gone(&proc[i], 1, 0);
}

/* What a process of a host has not been told yet of a port is one event, whatever it was. */
static void event_fabric__gathers_what_changes_of_a_port(void **state)
{
	struct proc_host host = { .change_count = 0 };
	struct proto_fabric_event msg;
	u32 heard[3] = { 0 };

	fill(0);
	proc[0].host = &host;
	event_fabric(&proc[0], 1, 2);
	event_fabric(&proc[0], 2, 4);
	event_fabric(&proc[0], 1, 8);
	event_discard(&proc[0]);
	while (recv(theirs[0], &msg, sizeof(msg), MSG_DONTWAIT) > 0)
		;
	event_flush(&proc[0]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(recv(theirs[0], &msg, sizeof(msg), MSG_DONTWAIT), sizeof(msg));
		assert_int_equal(msg.head.type, PROTO_EV_FABRIC);
		assert_in_range(msg.port, 1, 2);
		heard[msg.port] += msg.what;
	}
	assert_int_equal(heard[1], 2 | 8);
	assert_int_equal(heard[2], 4);
	assert_int_equal(recv(theirs[0], &msg, sizeof(msg), MSG_DONTWAIT), -1);
	proc[0].host = NULL;
}

/* A pair that its other end cannot be told of is none, and may be tried again. */
static void serve_connect__of_a_pair_that_cannot_be_told(void **state)
{
	union proto_request q = { .connect.slot = 7 };
	struct message m = { .fds = { theirs[1] }, .fd_count = 1 };
	struct request r = { .proc = &proc[1], .daemon = &d, .q = &q, .m = &m };

	d.slots.owner[7] = proc[0].process;
	fill(0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair_service.rules[PROTO_OP(PROTO_CONNECT)].fn(&r), -ENOBUFS);
		assert_int_equal(pairs_count(&d.pairs, proc[0].process), 0);
		assert_int_equal(pairs_count(&d.pairs, proc[1].process), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
		EACH(event_peer_gone__keeps_order_behind_what_waits),
		EACH(event_peer_gone__withdraws_its_own_beginning_only),
		EACH(event_config__tells_every_process),
		EACH(event_fabric__gathers_what_changes_of_a_port),
		EACH(serve_connect__of_a_pair_that_cannot_be_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
