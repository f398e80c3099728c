/* attach_test.c: starting a node, and what the host notices of it: nothing.
 * In:    a node of its own per test    Out: verdicts
 * Runs:  one thread, children          Locks: none
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/await.h"
#include "node/spawn.h"

#define COLD_NS (150 * NS_PER_MS) /* with a node that must start */
#define WARM_NS (20 * NS_PER_MS)

enum { RACERS = 20, QUICK_TRIES = 50 };

/* The best of some tries, of which one is enough: others use this machine, too. */
static void node_attach__is_quick(void **state)
{
	u64 cold = UINT64_MAX, warm = UINT64_MAX, begin;
	struct harness a, b;

	for (int i = 0; i < QUICK_TRIES && (cold >= COLD_NS || warm >= WARM_NS); i++) {
		begin = clock_now_ns();
		harness_attach(&a);
		cold = MIN(cold, clock_now_ns() - begin);
		begin = clock_now_ns();
		harness_attach(&b);
		warm = MIN(warm, clock_now_ns() - begin);
		harness_detach(&b);
		harness_detach(&a);
		harness_kill_daemon();
	}
	print_message("start %.2f ms, attach %.2f ms\n", (double)cold / 1e6, (double)warm / 1e6);
	assert_true(cold < COLD_NS);
	assert_true(warm < WARM_NS);
}

static volatile sig_atomic_t attach_sigchld;

static void attach_on_sigchld(int sig)
{
	attach_sigchld++;
}

static void node_attach__host_sees_no_child(void **state)
{
	struct sigaction act = { .sa_handler = attach_on_sigchld }, old;
	struct harness h;

	sigaction(SIGCHLD, &act, &old);
	attach_sigchld = 0;
	harness_attach(&h);
	usleep(50000);
	assert_int_equal(attach_sigchld, 0);
	assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	sigaction(SIGCHLD, &old, NULL);
	assert_int_not_equal(harness_daemon(), 0);
	assert_int_not_equal(getsid(harness_daemon()), getsid(0));
	harness_detach(&h);
}

/* One of the daemon's signal masks, from its /proc/PID/status. */
static u64 attach_daemon_signals(const char *which)
{
	char path[64], text[4096], *line;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", harness_daemon());
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	line = strstr(text, which);
	assert_non_null(line);
	return strtoull(line + strlen(which), NULL, 16);
}

static void node_attach__daemon_has_default_signals(void **state)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
	u64 usr1 = 1ull << (SIGUSR1 - 1), usr2 = 1ull << (SIGUSR2 - 1);
	sigset_t block, mask;
	struct harness h;

	sigaction(SIGUSR1, &ignore, &old);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR2);
	sigprocmask(SIG_BLOCK, &block, &mask);
	harness_attach(&h);
	assert_int_equal(attach_daemon_signals("SigIgn:") & usr1, 0);
	assert_int_equal(attach_daemon_signals("SigBlk:") & usr2, 0);
	/* and the host keeps its own */
	sigprocmask(SIG_SETMASK, &mask, &block);
	assert_true(sigismember(&block, SIGUSR2));
	assert_false(sigismember(&block, SIGTERM));
	sigaction(SIGUSR1, &old, &ignore);
	assert_ptr_equal(ignore.sa_handler, SIG_IGN);
	harness_detach(&h);
}

/* A descriptor that the host forgot to protect must not stay open in the daemon: readers of a
 * pipe would wait for ever. */
static void node_attach__daemon_inherits_nothing(void **state)
{
	struct harness h;
	int ends[2];
	char byte;

	assert_int_equal(pipe(ends), 0);
	harness_attach(&h);
	close(ends[1]);
	assert_true(harness_readable(ends[0], 1000));
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	harness_detach(&h);
}

static void attach_race(int ready, int out)
{
	struct harness h = { .node = NULL };
	u32 found[5];
	char byte;

	if (read(ready, &byte, 1) < 0)
		_exit(1);
	h.self.board_fd = h.self.bell_fd[0] = h.self.bell_fd[1] = 0;
	if (node_attach(&h.self, &h.node) != 0)
		_exit(1);
	found[0] = (u32)harness_daemon();
	for (int i = 1; i < 4; i++)
		if (node_slot_take(h.node, &found[i]) != 0)
			_exit(1);
	found[4] = (u32)node_process(h.node);
	if (write(out, found, sizeof(found)) != sizeof(found))
		_exit(1);
	/* holds its slots until all have theirs */
	(void)!read(ready, &byte, 1);
	pause();
	_exit(0);
}

static void node_attach__twenty_racers_start_one_daemon(void **state)
{
	int ready[2], out[2], pids[RACERS], status;
	bool taken[NODE_SLOTS] = { false };
	u32 found[5], daemon = 0, numbers[RACERS];

	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(out), 0);
	for (int i = 0; i < RACERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			close(ready[1]);
			attach_race(ready[0], out[1]);
		}
	}
	close(ready[1]); /* go */
	for (int i = 0; i < RACERS; i++) {
		assert_true(harness_readable(out[0], 10000));
		assert_int_equal(read(out[0], found, sizeof(found)), sizeof(found));
		daemon = daemon == 0 ? found[0] : daemon;
		assert_int_equal(found[0], daemon);
		for (int s = 1; s < 4; s++) {
			assert_in_range(found[s], 1, NODE_SLOTS - 1);
			assert_false(taken[found[s]]);
			taken[found[s]] = true;
		}
		numbers[i] = found[4];
		for (int k = 0; k < i; k++)
			assert_int_not_equal(numbers[k], numbers[i]);
	}
	assert_int_equal(harness_status().attached, RACERS);
	assert_int_equal(harness_status().slots_taken, 3 * RACERS);
	for (int i = 0; i < RACERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
	}
	for (int i = 0; i < 200 && harness_status().attached > 0; i++)
		usleep(10000);
	assert_int_equal(harness_status().attached, 0);
	assert_int_equal(harness_status().slots_taken, 0);
	close(ready[0]);
	close(out[0]);
	close(out[1]);
}

static void node_attach__leaves_no_descriptor_behind(void **state)
{
	struct harness h;
	int before;

	harness_attach(&h);
	harness_detach(&h);
	before = count_fds();
	for (int i = 0; i < 20; i++) {
		harness_attach(&h);
		harness_detach(&h);
	}
	assert_int_equal(count_fds(), before);
}

static void node_attach__without_descriptors_fails_cleanly(void **state)
{
	struct rlimit old, low;
	struct harness first, h;
	int before, err, limit, lowest;

	harness_attach(&first);
	h.self = first.self;
	before = count_fds();
	lowest = harness_lowest_fd();
	getrlimit(RLIMIT_NOFILE, &old);
	/* with each number of descriptors that is too few, and then one that is enough */
	for (limit = 0;; limit++) {
		low = old;
		low.rlim_cur = (rlim_t)(lowest + limit);
		setrlimit(RLIMIT_NOFILE, &low);
		err = node_attach(&h.self, &h.node);
		setrlimit(RLIMIT_NOFILE, &old);
		if (err == 0)
			break;
		assert_int_equal(err, -EMFILE);
		assert_int_equal(count_fds(), before);
		assert_true(limit < 20);
	}
	assert_true(limit > 2);
	node_detach(h.node);
	harness_detach(&first);
}

static void node_attach__refuses_a_bad_name(void **state)
{
	struct node_self self = { .board_fd = 0 };
	char *good = strdup(getenv("ANYVERBS_NODE"));
	struct node *n;

	setenv("ANYVERBS_NODE", "../etc", 1);
	assert_int_equal(node_attach(&self, &n), -EINVAL);
	setenv("ANYVERBS_NODE", ".", 1);
	assert_int_equal(node_attach(&self, &n), -EINVAL);
	setenv("ANYVERBS_NODE", "a-name-of-more-than-thirty-one-letters", 1);
	assert_int_equal(node_attach(&self, &n), -EINVAL);
	setenv("ANYVERBS_NODE", good, 1);
	free(good);
}

static void node_attach__without_a_daemon_says_so(void **state)
{
	struct node_self self = { .board_fd = 0 };
	struct node *n;

	setenv("ANYVERBS_DAEMON", "/nonexistent/anyverbsd", 1);
	assert_int_equal(node_attach(&self, &n), -ECONNREFUSED);
	unsetenv("ANYVERBS_DAEMON");
}

static void node_attach__idle_node_leaves(void **state)
{
	struct harness h;
	u64 begin;

	setenv("ANYVERBS_IDLE_S", "0.3", 1);
	harness_attach(&h);
	usleep(600000);
	assert_int_not_equal(harness_daemon(), 0);
	begin = clock_now_ns(); /* before it can be idle */
	harness_detach(&h);
	while (harness_daemon() != 0 && clock_now_ns() - begin < HARNESS_PATIENCE_NS)
		usleep(20000);
	assert_int_equal(harness_daemon(), 0);
	assert_true(clock_now_ns() - begin > 200 * NS_PER_MS);
	/* and the next one comes when it is needed */
	harness_attach(&h);
	harness_detach(&h);
}

static void node_attach__child_that_holds_copies_does_not_matter(void **state)
{
	struct harness h, watcher;
	int gate[2], parent, child = 0, out[2];

	harness_attach(&watcher);
	assert_int_equal(pipe(gate), 0);
	assert_int_equal(pipe(out), 0);
	parent = fork();
	if (parent == 0) {
		u32 slot;

		harness_drop(&watcher);
		harness_attach(&h);
		if (node_slot_take(h.node, &slot) != 0)
			_exit(1);
		child = fork();
		if (child != 0 && write(out[1], &child, sizeof(child)) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(out[0], &child, sizeof(child)), sizeof(child));
	assert_int_equal(harness_status().attached, 2);
	assert_int_equal(harness_status().slots_taken, 1);
	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
	for (int i = 0; i < 200 && harness_status().attached > 1; i++)
		usleep(10000);
	assert_int_equal(harness_status().attached, 1);
	assert_int_equal(harness_status().slots_taken, 0);
	kill(child, SIGKILL);
	harness_detach(&watcher);
	for (int i = 0; i < 2; i++) {
		close(gate[i]);
		close(out[i]);
	}
}

static void node_drop_in_child__parent_goes_on(void **state)
{
	struct harness h;
	int child, status;
	u32 slot;

	harness_attach(&h);
	child = fork();
	if (child == 0) {
		harness_drop(&h);
		harness_attach(&h);
		_exit(node_slot_take(h.node, &slot) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(node_slot_take(h.node, &slot), 0);
	harness_detach(&h);
}

static void node_config__has_what_a_device_needs(void **state)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	static const u8 empty[16];
	struct node_config c, again;
	struct harness h;
	char path[512];
	int used = 0;

	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 0, &c), 0);
	assert_string_equal(c.device, "roce0");
	assert_string_equal(c.dev_path, "uverbs0");
	assert_int_equal(c.mtu, 4096);
	assert_int_equal(c.port_up, 1);
	assert_int_equal(c.node_guid >> 56 & 3, 2);
	assert_int_equal(c.gids[0].gid[0], 0xfe);
	assert_int_equal(c.gids[0].gid[1], 0x80);
	assert_int_equal(c.gids[0].gid[15], c.node_guid & 0xff);
	assert_int_equal(c.gids[0].gid[8], c.node_guid >> 56);
	assert_memory_equal(c.gids[1].gid, mapped, 12);
	/* not the node "default": no address of the host's */
	assert_int_equal(c.gids[1].gid[12], 127);
	for (int i = 0; i < NODE_GIDS; i++)
		used += memcmp(c.gids[i].gid, empty, 16) != 0;
	assert_in_range(used, 2, NODE_GIDS - 1);
	snprintf(path, sizeof(path), "%s/class/infiniband/roce0/ports/1/gids/0", c.sysfs);
	assert_int_equal(access(path, R_OK), 0);
	harness_detach(&h);

	harness_kill_daemon();
	harness_attach(&h);
	assert_int_equal(node_device_get(h.node, 0, &again), 0);
	assert_memory_equal(&c, &again, sizeof(c));
	harness_detach(&h);
}

/* ---- a node that does not answer at once ---- */

static void spin(u64 ns)
{
	u64 end = clock_now_ns() + ns;

	while (clock_now_ns() < end)
		;
}

/* In place of a node: takes one HELLO, and refuses it after `busy_ns` on the CPU; with 0 never. */
static void fake_node(int ready, u64 busy_ns)
{
	struct sockaddr_un addr;
	socklen_t length = address_make(getenv("ANYVERBS_NODE"), 0, &addr);
	int fd, listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct proto_hello hello;
	struct proto_plain reply;
	struct message m;

	if (bind(listener, (struct sockaddr *)&addr, length) < 0 || listen(listener, 8) < 0)
		_exit(1);
	close(ready);
	close(accept(listener, NULL, NULL)); /* of address_probe, which says nothing */
	fd = accept(listener, NULL, NULL);
	if (message_wait(fd, clock_now_ns() + HARNESS_PATIENCE_NS) < 0 ||
	    message_receive(fd, &hello, sizeof(hello), &m) < 0)
		_exit(1);
	spin(busy_ns);
	reply.head = hello.head;
	reply.head.status = -ENOSPC;
	if (busy_ns > 0)
		message_send(fd, &reply, sizeof(reply), NULL, 0);
	for (;;)
		pause();
}

static int attach_to_fake(u64 busy_ns)
{
	struct node_self self = { .board_fd = open("/dev/null", O_RDWR) };
	struct node *node;
	int ready[2], err, pid;
	char byte;

	self.bell_fd[0] = self.bell_fd[1] = self.board_fd;
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		close(ready[0]);
		fake_node(ready[1], busy_ns);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	err = node_attach(&self, &node);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(self.board_fd);
	return err;
}

/* The host runs others, or the node is at work: its reply comes late, and counts. */
static void node_attach__waits_for_a_node_that_is_busy(void **state)
{
	assert_int_equal(attach_to_fake((AWAIT_SILENT_S + 2) * NS_PER_S), -ENOSPC);
}

static void node_attach__gives_up_a_node_that_sleeps(void **state)
{
	assert_int_equal(attach_to_fake(0), -ETIMEDOUT);
}

/* In place of the daemon's program: computes for a while before it becomes the daemon. */
static int slow_daemon(char **argv)
{
	spin((NODE_ATTACH_S + 2) * NS_PER_S);
	execv(getenv("ANYVERBS_SLOW_DAEMON"), argv);
	return 1;
}

static void node_attach__waits_for_a_daemon_that_starts_slowly(void **state)
{
	char path[PATH_MAX], self[PATH_MAX] = "";
	struct harness h;

	assert_int_equal(spawn_find(path, sizeof(path)), 0);
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	setenv("ANYVERBS_SLOW_DAEMON", path, 1);
	setenv("ANYVERBS_DAEMON", self, 1);
	harness_attach(&h);
	harness_detach(&h);
	unsetenv("ANYVERBS_DAEMON");
}

int main(int argc, char **argv)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, harness_setup, harness_teardown)
	const struct CMUnitTest tests[] = {
		CASE(node_attach__is_quick),
		CASE(node_attach__host_sees_no_child),
		CASE(node_attach__daemon_has_default_signals),
		CASE(node_attach__daemon_inherits_nothing),
		CASE(node_attach__twenty_racers_start_one_daemon),
		CASE(node_attach__leaves_no_descriptor_behind),
		CASE(node_attach__without_descriptors_fails_cleanly),
		CASE(node_attach__refuses_a_bad_name),
		CASE(node_attach__without_a_daemon_says_so),
		CASE(node_attach__idle_node_leaves),
		CASE(node_attach__child_that_holds_copies_does_not_matter),
		CASE(node_attach__waits_for_a_node_that_is_busy),
		CASE(node_attach__gives_up_a_node_that_sleeps),
		CASE(node_attach__waits_for_a_daemon_that_starts_slowly),
		CASE(node_drop_in_child__parent_goes_on),
		CASE(node_config__has_what_a_device_needs),
	};

	if (argc > 1)
		return slow_daemon(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
