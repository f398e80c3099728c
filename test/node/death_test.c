/* death_test.c: what a process has left for its death reaches its peer, however it ends, and
 * nothing does while it lives.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  one thread                    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cm/message/message.h"
#include "harness.h"

enum { INDEX = 5, QUIET_MS = 300, THEIR_NUMBER = 9 };

/* The survivor, and pipes to and from the process that dies. */
static struct harness survivor;
static u32 survivor_slot;
static int orders[2], replies[2];

static struct node_will make_will(struct node *n, u32 own_slot)
{
	struct node_will w = { .pkey = 0xffff, .hop_limit = 64 };
	struct cm_msg msg = { .attr = CM_DREQ };
	struct node_config c;
	u8 mad[CM_MAD_BYTES];

	assert_int_equal(node_device_get(n, 0, &c), 0);
	memcpy(w.sgid, c.gids[1].gid, 16);
	memcpy(w.dgid, c.gids[1].gid, 16);
	msg.dreq = (struct cm_dreq_msg){ .local_id = own_slot << 22 | 1,
					 .remote_id = survivor_slot << 22 | THEIR_NUMBER };
	msg_pack(&msg, mad);
	memcpy(w.mad, mad, sizeof(w.mad));
	return w;
}

static void say(char what)
{
	if (write(replies[1], &what, 1) != 1)
		_exit(2);
}

static char told(int fd)
{
	char what = 0;

	return read(fd, &what, 1) == 1 ? what : 0;
}

/* A child that lives on, and one that ends: neither is the process. */
static void beget(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	(void)child_verdict(child);
	child = fork();
	if (child == 0) {
		/* with all descriptors of its parent */
		sleep(1);
		_exit(0);
	}
	say('f');
}

static void obey(struct node *n, u32 slot)
{
	struct node_will w = make_will(n, slot);

	for (;;) {
		switch (told(orders[0])) {
		case 'w': /* leave a will */
			if (node_will_set(n, INDEX, &w) == 1 && node_will_offer(n) != 0)
				_exit(3);
			say('w');
			break;
		case 't': /* take it back */
			if (node_will_set(n, INDEX, NULL) != 0)
				_exit(4);
			say('t');
			break;
		case 'r': /* find the next node */
			if (node_recover(n) != 0)
				_exit(5);
			say('r');
			break;
		case 'f':
			beget();
			break;
		case 'x':
			execlp("sleep", "sleep", "60", NULL);
			_exit(6);
		default:
			_exit(0);
		}
	}
}

static pid_t begin(void)
{
	struct harness h;
	pid_t pid;
	u32 slot;

	harness_attach(&survivor);
	assert_int_equal(node_slot_take(survivor.node, &survivor_slot), 0);
	assert_int_equal(pipe2(orders, O_CLOEXEC), 0);
	assert_int_equal(pipe2(replies, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(orders[1]);
		harness_drop(&survivor);
		harness_attach(&h);
		if (node_slot_take(h.node, &slot) != 0)
			_exit(1);
		obey(h.node, slot);
	}
	return pid;
}

static void order(char what)
{
	assert_int_equal(write(orders[1], &what, 1), 1);
	assert_int_equal(told(replies[0]), what);
}

static void end(void)
{
	for (int i = 0; i < 2; i++) {
		close(orders[i]);
		close(replies[i]);
	}
	harness_detach(&survivor);
}

static void kill_it(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(child_verdict(pid), 1000 + SIGKILL);
}

static void will_comes(void)
{
	struct node_event ev = harness_wait_event(&survivor, NODE_EVENT_MAD);
	struct cm_msg msg;

	assert_true(msg_unpack(&msg, ev.mad.payload + 20, CM_MAD_BYTES));
	assert_int_equal(msg.attr, CM_DREQ);
	assert_int_equal(msg.dreq.remote_id, survivor_slot << 22 | THEIR_NUMBER);
}

static void nothing_comes(void)
{
	struct node_event ev;

	usleep(QUIET_MS * 1000);
	assert_false(node_event_take(survivor.node, NODE_EVENT_MAD, &ev));
}

static void will__of_a_process_that_is_killed(void **state)
{
	pid_t pid = begin();

	order('w');
	nothing_comes();
	kill_it(pid);
	will_comes();
	end();
}

static void will__of_a_process_that_exits(void **state)
{
	pid_t pid = begin();
	char exit = 'e';

	order('w');
	assert_int_equal(write(orders[1], &exit, 1), 1);
	assert_int_equal(child_verdict(pid), 0);
	will_comes();
	end();
}

static void will__of_a_process_that_calls_exec(void **state)
{
	pid_t pid = begin();
	char exec = 'x';

	order('w');
	assert_int_equal(write(orders[1], &exec, 1), 1);
	will_comes();
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	kill_it(pid);
	end();
}

static void will__of_a_process_that_was_stopped(void **state)
{
	pid_t pid = begin();

	order('w');
	kill(pid, SIGSTOP);
	nothing_comes();
	kill_it(pid);
	will_comes();
	end();
}

static void will__that_was_taken_back(void **state)
{
	pid_t pid = begin();

	order('w');
	order('t');
	kill_it(pid);
	nothing_comes();
	end();
}

static void will__is_not_that_of_a_child(void **state)
{
	pid_t pid = begin();

	order('w');
	order('f');
	nothing_comes();
	kill_it(pid);
	will_comes();
	end();
}

/* The next node knows of it, too; one that was left between both as well. */
static void will__outlives_the_node(void **state)
{
	pid_t pid = begin();

	order('w');
	harness_kill_daemon();
	assert_int_equal(node_recover(survivor.node), 0);
	order('r');
	kill_it(pid);
	will_comes();
	end();
}

/* With no idle time the node ends with its last process, but not before its wills are out. */
static void will__is_sent_before_the_node_ends(void **state)
{
	pid_t pid;
	int daemon;

	setenv("ANYVERBS_IDLE_S", "0", 1);
	pid = begin();
	order('w');
	daemon = harness_daemon();
	assert_true(daemon > 0);
	kill_it(pid);
	will_comes();
	end();
	for (int i = 0; i < 200 && kill(daemon, 0) == 0; i++)
		usleep(100000);
	assert_int_not_equal(kill(daemon, 0), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)
	static const struct CMUnitTest tests[] = {
		CASE(will__of_a_process_that_is_killed),
		CASE(will__of_a_process_that_exits),
		CASE(will__of_a_process_that_calls_exec),
		CASE(will__of_a_process_that_was_stopped),
		CASE(will__that_was_taken_back),
		CASE(will__is_not_that_of_a_child),
		CASE(will__outlives_the_node),
		CASE(will__is_sent_before_the_node_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
