/* run.c: what every program of this folder begins with: a node of its own, and one process per
 * test. A test that fails leaves handlers and contexts behind on a stack that is gone: in a process
 * of its own that harms nobody, and the next one begins clean.
 * In: the tests, CONTRACT_TEST    Out: cmocka's report of each, an exit status    Locks: none
 */
#include "rig.h"

#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* An address of its own: other programs do the same at the same time. */
static void run_settle_on_wire(void)
{
	unsigned id = (unsigned)getpid();
	char address[32];

	snprintf(address, sizeof(address), "127.%u.%u.%u", 128 + (id >> 14 & 63), id >> 7 & 127,
		 1 + (id & 127));
	setenv("ANYVERBS_ADDR", address, 1);
	rig.gid_index = 1; /* only what has an address can be reached so */
}

static void run_settle(void)
{
	char name[64];

	snprintf(name, sizeof(name), "contract-%d", (int)getpid());
	setenv("ANYVERBS_NODE", name, 1);
	setenv("ANYVERBS_ADDR", "own", 1);
	setenv("ANYVERBS_IDLE_S", "30", 1);
	if (rig_on_wire())
		run_settle_on_wire();
}

static void run_stop_node(void)
{
	if (fork() == 0) {
		execl(CONTRACT_COMMAND, CONTRACT_COMMAND, "stop", "--force", (char *)NULL);
		_exit(127);
	}
	wait(NULL);
}

int rig_device(const char *verb, const char *name)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		execl(CONTRACT_COMMAND, CONTRACT_COMMAND, "device", verb, name, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum { RUN_GAP = 256 << 10 };

static CMUnitTestFunction run_function;
static bool run_returned;

/* Far down the stack: what a failed test has on it lies still, for the handlers that know it, while
 * we report. */
static void run_deep(void **state)
{
	volatile char gap[RUN_GAP];

	gap[0] = 0;
	run_function(state);
	run_returned = gap[0] == 0;
}

/* Who failed has left his objects, and nothing of the device may be touched. */
static int run_teardown(void **state)
{
	return run_returned ? rig_group_teardown(state) : 0;
}

/* In a process of its own. */
static void run_alone(struct CMUnitTest test, void (*begin)(void))
{
	int failed;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (begin)
		begin();
	run_function = test.test_func;
	test.test_func = run_deep;
	failed = _cmocka_run_group_tests(test.name, &test, 1, rig_group_setup, run_teardown);
	if (run_returned)
		exit(failed != 0);
	fflush(NULL);
	_exit(failed != 0);
}

static bool run_passes(const struct CMUnitTest *test, void (*begin)(void))
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		run_alone(*test, begin);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status))
		print_error("[  FAILED  ] %s: ended by signal %d\n", test->name, WTERMSIG(status));
	return status == 0;
}

int rig_run(const struct CMUnitTest *tests, size_t count, void (*begin)(void))
{
	const char *pattern = getenv("CONTRACT_TEST");
	int ran = 0, failed = 0;

	run_settle();
	for (size_t i = 0; i < count; i++) {
		if (pattern && fnmatch(pattern, tests[i].name, 0) != 0)
			continue;
		ran++;
		failed += !run_passes(&tests[i], begin);
	}
	run_stop_node();
	if (ran == 0)
		print_error("no test is called %s\n", pattern);
	print_message("%d of %d failed\n", failed, ran);
	return failed || ran == 0;
}
