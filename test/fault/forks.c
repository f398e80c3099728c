/* forks.c: host programs that fork. usage: forks CASE
 * In: the case's name    Out: exit status 0, or a line on standard error
 * Runs: processes and threads, as each case says    Locks: none
 */
#include "guest.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, CHILD_SECONDS = 60 };

static volatile bool traffic_stop;
static volatile unsigned long traffic_count;

/* Talks to itself all the time; any error ends the program. */
static void *traffic_main(void *arg)
{
	struct guest pair[2];
	struct ibv_context *context = arg;

	guest_create(&pair[0], context);
	guest_create(&pair[1], context);
	guest_connect_pair(&pair[0], &pair[1]);
	while (!traffic_stop) {
		guest_talk(&pair[0], &pair[1]);
		traffic_count++;
	}
	guest_destroy(&pair[0]);
	guest_destroy(&pair[1]);
	return NULL;
}

static void need_child(int pid, const char *what)
{
	int status = -1;

	guest_need(pid > 0, "fork");
	for (int i = 0; i < CHILD_SECONDS * 100 && waitpid(pid, &status, WNOHANG) == 0; i++)
		usleep(10000);
	if (status == -1) {
		kill(pid, SIGKILL);
		guest_die("%s: the child hangs", what);
	}
	guest_need(status == 0, "%s: the child ended with %x", what, (unsigned int)status);
}

/* ---- a child with its parent's context ---- */

static void child_flushes_only(struct guest *inherited)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int status;

	guest_post_send(inherited, 100);
	status = guest_poll(inherited);
	guest_need(status == IBV_WC_WR_FLUSH_ERR, "an inherited QP's send has status %d", status);
	guest_post_receive(inherited);
	status = guest_poll(inherited);
	guest_need(status == IBV_WC_WR_FLUSH_ERR, "an inherited QP's receive has status %d",
		   status);
	guest_need(ibv_modify_qp(inherited->qp, &attr, IBV_QP_STATE) != 0,
		   "an inherited QP can be modified");
}

static void exchange(struct guest *g, int in, int out)
{
	struct guest_address mine = guest_address(g), theirs;

	guest_need(write(out, &mine, sizeof(mine)) == sizeof(mine), "pipe");
	guest_need(read(in, &theirs, sizeof(theirs)) == sizeof(theirs), "the other end has gone");
	guest_connect(g, &theirs);
	/* both are connected before either sends: so say and hear */
	guest_need(write(out, "k", 1) == 1 && read(in, &theirs, 1) == 1, "pipe");
}

static void talk_with_child(struct guest *g, bool first)
{
	for (int i = 0; i < 50; i++) {
		if (first)
			guest_post_send(g, 5000);
		guest_need(guest_poll(g) == 0, "first completion, round %d", i);
		if (!first)
			guest_post_send(g, 5000);
		guest_need(guest_poll(g) == 0, "second completion, round %d", i);
		guest_post_receive(g);
	}
}

/* A fresh QP is reset before it meets another peer. */
static void reset(struct guest *g)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	guest_need(ibv_modify_qp(g->qp, &attr, IBV_QP_STATE) == 0, "to RESET");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	guest_need(ibv_modify_qp(g->qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					 IBV_QP_ACCESS_FLAGS) == 0,
		   "to INIT");
	guest_post_receive(g);
}

static void case_child_uses_context(void)
{
	struct guest pair[2], peer;
	int there[2], back[2], pid;
	pthread_t thread;

	guest_use_everything(pair);
	pthread_create(&thread, NULL, traffic_main, pair[0].context);
	guest_need(pipe(there) == 0 && pipe(back) == 0, "pipe");
	pid = fork();
	if (pid == 0) {
		struct guest fresh[2];

		close(there[1]);
		close(back[0]);
		child_flushes_only(&pair[0]);
		guest_create(&peer, pair[0].context);
		exchange(&peer, there[0], back[1]);
		talk_with_child(&peer, false);
		guest_use_everything(fresh);
		guest_need(fresh[0].context != pair[0].context, "the same context");
		reset(&fresh[0]);
		exchange(&fresh[0], there[0], back[1]);
		talk_with_child(&fresh[0], false);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	for (int i = 0; i < 2; i++) {
		guest_create(&peer, pair[0].context);
		exchange(&peer, back[0], there[1]);
		talk_with_child(&peer, true);
	}
	need_child(pid, "child with its parent's context");
	guest_talk(&pair[0], &pair[1]);
	traffic_stop = true;
	pthread_join(thread, NULL);
}

/* The child gives back what it inherited. */
static void case_child_destroys(void)
{
	struct guest pair[2];
	int pid;

	guest_use_everything(pair);
	pid = fork();
	if (pid == 0) {
		guest_destroy(&pair[0]);
		guest_destroy(&pair[1]);
		guest_need(ibv_close_device(pair[0].context) == 0, "close_device");
		_exit(0);
	}
	need_child(pid, "child that destroys");
	guest_talk(&pair[0], &pair[1]);
	guest_talk(&pair[1], &pair[0]);
}

/* ---- forks under traffic ---- */

static void child_under_traffic(struct ibv_context *context, int round)
{
	struct guest pair[2];

	if (round % 3 == 0)
		_exit(0);
	if (round % 3 == 1)
		guest_use_everything(pair);
	else {
		guest_create(&pair[0], context);
		guest_create(&pair[1], context);
		guest_connect_pair(&pair[0], &pair[1]);
		guest_talk(&pair[0], &pair[1]);
	}
	if (round % 2 != 0)
		exit(0);
	_exit(0);
}

static void fork_under_traffic(void (*child)(struct ibv_context *context, int round))
{
	struct ibv_context *context = guest_open_device();
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, traffic_main, context);
	for (int round = 0; round < ROUNDS; round++) {
		unsigned long before = traffic_count;
		int pid = fork();

		if (pid == 0)
			child(context, round);
		need_child(pid, "fork under traffic");
		for (int i = 0; i < 60000 && traffic_count == before; i++)
			usleep(1000);
		guest_need(traffic_count != before, "round %d: the traffic has stopped", round);
	}
	traffic_stop = true;
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
}

static void case_under_traffic(void)
{
	fork_under_traffic(child_under_traffic);
}

static void child_execs(struct ibv_context *context, int round)
{
	execl("/bin/true", "true", (char *)NULL);
	_exit(127);
}

static void case_exec_under_traffic(void)
{
	fork_under_traffic(child_execs);
}

/* A child of a child, after the first has used verbs. */
static void case_generations(void)
{
	struct guest pair[2];

	guest_use_everything(pair);
	for (int depth = 0; depth < 4; depth++) {
		int pid = fork();

		if (pid > 0) {
			need_child(pid, "generation");
			guest_talk(&pair[0], &pair[1]);
			return;
		}
		child_flushes_only(&pair[0]);
		guest_create(&pair[0], pair[0].context);
		guest_create(&pair[1], pair[0].context);
		guest_connect_pair(&pair[0], &pair[1]);
		guest_talk(&pair[0], &pair[1]);
	}
}

static void case_fork_init(void)
{
	struct guest pair[2];
	uint8_t byte;
	int pid;

	guest_need(ibv_fork_init() == 0, "before");
	guest_use_everything(pair);
	guest_need(ibv_fork_init() == 0, "after");
	pair[1].memory[0] = 7;
	pid = fork();
	if (pid == 0) {
		usleep(100000);
		byte = pair[1].memory[0];
		guest_need(byte == 7, "the child's copy changed to %d", byte);
		_exit(0);
	}
	/* registered memory goes on being the parent's, whatever the fork made of its pages */
	guest_talk(&pair[0], &pair[1]);
	guest_need(pair[1].memory[0] == 0x5a, "the parent's memory was not written");
	need_child(pid, "fork_init");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "child_uses_context", case_child_uses_context },
		{ "child_destroys", case_child_destroys },
		{ "under_traffic", case_under_traffic },
		{ "exec_under_traffic", case_exec_under_traffic },
		{ "generations", case_generations },
		{ "fork_init", case_fork_init },
	};

	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	guest_die("no case %s", argc > 1 ? argv[1] : "");
}
