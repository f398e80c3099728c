/* successor_test.c: a node that a program with a low limit of descriptors has started gives way to
 * one that a program with a higher limit starts.
 * In:    a node of its own for each test     Out: verdicts
 * Runs:  one thread; children with lower limits
 * Locks: none
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "base/clock.h"
#include "node/spawn.h"
#include "node/successor.h"

enum { LOW = 40, MANY = 10, ROUNDS = 10 };

/* A child that attaches with a hard limit of descriptors of its own. */
struct child {
	pid_t pid;
	int fd; /* its words, and ours to it */
};

/* What it says of itself. */
struct child_word {
	int err; /* of node_attach or node_recover */
	u64 process;
	u32 slot;
};

static int child_attach(struct harness *h)
{
	h->self = harness_self(memfd_create("board", MFD_CLOEXEC));
	return node_attach(&h->self, &h->node);
}

/* Attaches when told to, recovers when told to, and ends with its parent. */
static _Noreturn void child_run(int fd, rlim_t limit)
{
	struct rlimit r = { limit, limit };
	struct child_word w = { .err = 0 };
	static struct harness h;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (limit != 0)
		setrlimit(RLIMIT_NOFILE, &r);
	while (read(fd, &byte, 1) == 1) {
		w.err = h.node == NULL ? child_attach(&h) : node_recover(h.node);
		if (w.err == 0 && w.process == 0)
			w.err = node_slot_take(h.node, &w.slot);
		if (w.err == 0)
			w.process = node_process(h.node);
		if (write(fd, &w, sizeof(w)) != sizeof(w))
			break;
	}
	_exit(0);
}

/* limit 0: ours. */
static struct child child_begin(rlim_t limit)
{
	struct child c;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	c.fd = fds[0];
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		close(fds[0]);
		child_run(fds[1], limit);
	}
	close(fds[1]);
	return c;
}

static void child_tell(struct child *c)
{
	assert_int_equal(write(c->fd, "", 1), 1);
}

static struct child_word child_hear(struct child *c)
{
	struct child_word w = { .err = 1 };

	assert_int_equal(read(c->fd, &w, sizeof(w)), sizeof(w));
	return w;
}

static struct child_word child_do(struct child *c)
{
	child_tell(c);
	return child_hear(c);
}

static void child_end(struct child *c)
{
	shutdown(c->fd, SHUT_RDWR); /* later children have copies */
	close(c->fd);
	assert_int_equal(child_verdict(c->pid), 0);
}

static u64 daemon_limit(void)
{
	struct rlimit r = { 0, 0 };

	assert_int_equal(prlimit(harness_daemon(), RLIMIT_NOFILE, NULL, &r), 0);
	return r.rlim_max;
}

static int daemon_fds(int pid)
{
	char path[64];
	int count = -2; /* . and .. */
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d) != NULL)
		count++;
	closedir(d);
	return count;
}

/* With its own limit the node would take three processes. The one that is there stays what it
 * is. */
static void successor__many_come_after_a_low_one(void **state)
{
	struct child low = child_begin(LOW);
	struct child_word before = child_do(&low), after;
	static const u8 any[NODE_MATCH];
	struct harness many[MANY];
	u32 slots[MANY], found;
	int first = harness_daemon();

	assert_int_equal(before.err, 0);
	assert_int_equal(daemon_limit(), LOW);
	for (int i = 0; i < MANY; i++) {
		harness_attach(&many[i]);
		assert_int_equal(node_slot_take(many[i].node, &slots[i]), 0);
		assert_int_not_equal(slots[i], before.slot);
	}
	assert_int_not_equal(harness_daemon(), first);
	assert_int_equal(daemon_limit(), successor_limit());
	/* it may listen */
	assert_int_equal(node_listener_find(many[0].node, 1, any, 0, &found), -EAGAIN);
	after = child_do(&low);
	assert_int_equal(after.err, 0);
	assert_int_equal(after.process, before.process);
	assert_int_equal(harness_status().attached, MANY + 1);
	assert_int_equal(node_listener_find(many[0].node, 1, any, 0, &found), -ENOENT);
	for (int i = 0; i < MANY; i++)
		harness_detach(&many[i]);
	child_end(&low);
}

/* One that the node has accepted and kept. */
static int silent_connection(int pid)
{
	int before = daemon_fds(pid), fd = harness_connect();

	assert_true(fd >= 0);
	for (int i = 0; i < 2000 && daemon_fds(pid) == before; i++)
		usleep(1000);
	return fd;
}

/* The node has no descriptor left, not even for a connection. */
static void successor__of_a_node_that_is_full(void **state)
{
	struct child low[4];
	struct harness h;
	int silent[LOW], silents = 0, attached = 0, pid;

	for (int i = 0; i < 4; i++) {
		struct child_word w;

		low[i] = child_begin(LOW);
		w = child_do(&low[i]);
		attached += w.err == 0;
		assert_true(w.err == 0 || w.err == -ENFILE);
	}
	assert_in_range(attached, 1, 3);
	pid = harness_daemon();
	/* connections that say nothing take the rest */
	while (daemon_fds(pid) < LOW)
		silent[silents++] = silent_connection(pid);
	harness_attach(&h);
	assert_int_equal(daemon_limit(), successor_limit());
	harness_detach(&h);
	while (silents > 0)
		close(silent[--silents]);
	for (int i = 0; i < 4; i++)
		child_end(&low[i]);
}

/* Each of two programs finds the node too poor at the same time. Both attach, to one node. */
static void successor__two_ask_at_once(void **state)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct child low = child_begin(LOW), two[2];

		assert_int_equal(child_do(&low).err, 0);
		for (int i = 0; i < 2; i++)
			two[i] = child_begin(0);
		for (int i = 0; i < 2; i++)
			child_tell(&two[i]);
		for (int i = 0; i < 2; i++)
			assert_int_equal(child_hear(&two[i]).err, 0);
		assert_int_equal(daemon_limit(), successor_limit());
		assert_int_equal(child_do(&low).err, 0);
		assert_int_equal(harness_status().attached, 3);
		for (int i = 0; i < 2; i++)
			child_end(&two[i]);
		child_end(&low);
		harness_kill_daemon();
	}
}

static struct proto_head ask(int fd, u64 limit, struct message *m)
{
	struct proto_succeed q = { .head = { .magic = PROTO_MAGIC,
					     .version = PROTO_VERSION,
					     .type = PROTO_SUCCEED },
				   .limit = limit };
	struct proto_plain reply;

	assert_int_equal(message_send(fd, &q, sizeof(q), NULL, 0), 0);
	assert_int_equal(message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS), 0);
	assert_int_equal(message_receive(fd, &reply, sizeof(reply), m), 0);
	return reply.head;
}

/* While a process has what the node passes on, nobody starts another node, and connections wait.
 * That process starts none and lets go: then any other does. */
static void successor__is_never_started(void **state)
{
	struct child low = child_begin(LOW), other = child_begin(LOW);
	struct child_word before = child_do(&low);
	struct message m;
	int fd = harness_connect(), waiting;

	assert_int_equal(before.err, 0);
	assert_int_equal(ask(fd, 1000, &m).status, 0);
	assert_int_equal(m.fd_count, 2);
	waiting = harness_connect();
	assert_true(waiting >= 0);
	child_tell(&other);
	assert_false(harness_readable(other.fd, 100));
	assert_false(harness_readable(waiting, 0));
	close(waiting);
	message_close(&m);
	assert_int_equal(child_hear(&other).err, 0);
	assert_int_equal(child_do(&low).process, before.process);
	assert_int_equal(harness_status().attached, 2);
	close(fd);
	child_end(&low);
	child_end(&other);
}

static void successor__is_refused(void **state)
{
	struct child low = child_begin(LOW);
	struct message m;
	int fd;

	assert_int_equal(child_do(&low).err, 0);
	fd = harness_connect();
	assert_int_equal(ask(fd, LOW + 1, &m).status, -EALREADY);
	close(fd);
	assert_int_equal(daemon_limit(), LOW);
	child_end(&low);
}

/* Whoever starts a node by hand has decided upon its limit. */
static void successor__of_a_node_started_by_hand(void **state)
{
	struct rlimit r = { LOW, LOW };
	char path[512], name[NODE_NAME_MAX];
	struct harness h;
	pid_t pid;

	assert_int_equal(spawn_find(path, sizeof(path)), 0);
	assert_int_equal(address_node_name(name), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_NOFILE, &r);
		execl(path, "anyverbsd", "--node", name, (char *)NULL);
		_exit(127);
	}
	while (harness_daemon() != pid)
		usleep(1000);
	harness_attach(&h);
	assert_int_equal(harness_daemon(), pid);
	harness_detach(&h);
	kill(pid, SIGKILL);
	assert_int_equal(child_verdict(pid), 1000 + SIGKILL);
}

/* Such a node would answer nobody: no attempt, no wait. */
static void successor__is_not_needed_where_no_node_begins(void **state)
{
	struct child low = child_begin(SPAWN_LEAST_FDS - 1);

	assert_int_equal(child_do(&low).err, -EMFILE);
	assert_int_equal(harness_daemon(), 0);
	child_end(&low);
	low = child_begin(SPAWN_LEAST_FDS);
	assert_int_equal(child_do(&low).err, 0);
	child_end(&low);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(successor__many_come_after_a_low_one),
		CASE(successor__of_a_node_that_is_full),
		CASE(successor__two_ask_at_once),
		CASE(successor__is_never_started),
		CASE(successor__is_refused),
		CASE(successor__of_a_node_started_by_hand),
		CASE(successor__is_not_needed_where_no_node_begins),
	};

	alarm(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
