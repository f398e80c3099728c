/* guest.c: a host program for each rule of how we behave in somebody's process. usage: guest CASE
 * In: the case's name    Out: exit status 0, or a line on standard error    Runs: as each case says
 * Locks: none
 */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

/* All but the two that cannot be blocked, the two that belong to the C library, and the two of
 * copies that fault (docs/faults.md). */
static const unsigned long long all_signals =
	~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1) | 3ull << 31 | 1ull << (SIGSEGV - 1) |
	  1ull << (SIGBUS - 1));

static unsigned long long task_blocks(const char *task)
{
	char path[300], line[256];
	unsigned long long mask = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		sscanf(line, "SigBlk: %llx", &mask);
	if (f != NULL)
		fclose(f);
	return mask;
}

static void case_signals_blocked(void)
{
	DIR *d = opendir("/proc/self/task");
	struct guest pair[2];
	struct dirent *e;
	int ours = 0;

	guest_use_everything(pair);
	rewinddir(d);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
			continue;
		ours++;
		guest_need((task_blocks(e->d_name) & all_signals) == all_signals,
			   "thread %s blocks only %llx", e->d_name, task_blocks(e->d_name));
	}
	guest_need(ours > 0, "no thread of ours was there to look at");
	closedir(d);
}

static void case_signalfd(void)
{
	struct signalfd_siginfo info;
	struct guest pair[2];
	sigset_t set;
	int fd;

	/* our threads are there before the host blocks its signal */
	guest_use_everything(pair);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	for (int i = 0; i < 20; i++) {
		kill(getpid(), SIGTERM);
		guest_need(read(fd, &info, sizeof(info)) == sizeof(info), "signalfd");
		guest_need(info.ssi_signo == SIGTERM, "signal %u", info.ssi_signo);
		guest_talk(&pair[0], &pair[1]);
	}
}

static void case_sigwait(void)
{
	struct guest pair[2];
	sigset_t set;
	int sig = 0;

	guest_use_everything(pair);
	sigfillset(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR1);
	guest_need(sigwait(&set, &sig) == 0 && sig == SIGUSR1, "sigwait says %d", sig);
}

static volatile int children_heard_of;

static void on_child(int sig)
{
	children_heard_of++;
}

/* The node is not up yet: using verbs starts it. */
static void case_no_sigchld(void)
{
	struct sigaction act = { .sa_handler = on_child };
	struct guest pair[2];

	sigaction(SIGCHLD, &act, NULL);
	guest_use_everything(pair);
	usleep(200000);
	guest_need(children_heard_of == 0, "%d times SIGCHLD", children_heard_of);
	guest_need(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD,
		   "a child is to be waited for");
	guest_need(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD, "a hidden child");
}

static void case_no_handler(void)
{
	struct sigaction before[NSIG], after;
	struct guest pair[2];

	memset(before, 0, sizeof(before));
	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, NULL, &before[sig]);
	guest_use_everything(pair);
	for (int sig = 1; sig < NSIG; sig++) {
		memset(&after, 0, sizeof(after));
		if (sigaction(sig, NULL, &after) == 0)
			guest_need(after.sa_handler == before[sig].sa_handler ||
					   sig == SIGSEGV || sig == SIGBUS,
				   "signal %d has a handler", sig);
	}
}

/* ---- descriptors, threads, exec ---- */

static int open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.' && atoi(e->d_name) > 2 && atoi(e->d_name) != dirfd(d))
			n++;
	closedir(d);
	return n;
}

/* What exec'd programs run: nothing but 0, 1 and 2 may be open. */
static void case_only_std_descriptors(void)
{
	guest_need(open_descriptors() == 0, "%d descriptors came through exec", open_descriptors());
}

static int run_self(const char *what)
{
	int status = -1, pid = fork();

	if (pid == 0) {
		execl("/proc/self/exe", "guest", what, (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void case_cloexec(void)
{
	struct guest pair[2];

	guest_need(open_descriptors() == 0, "descriptors before any verb");
	guest_use_everything(pair);
	guest_need(open_descriptors() > 0, "no descriptor to look at");
	guest_need(run_self("only_std_descriptors") == 0, "fork and exec");
	guest_talk(&pair[0], &pair[1]);
}

static int tasks(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = -2;

	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void case_no_verb(void)
{
	guest_need(tasks() == 1, "%d threads without a verb", tasks());
	guest_need(open_descriptors() == 0, "%d descriptors without a verb", open_descriptors());
	/* linked, and the linker could not drop it */
	guest_need(ibv_wc_status_str(IBV_WC_SUCCESS) != NULL, "a string");
	guest_need(tasks() == 1 && open_descriptors() == 0, "a string made threads or descriptors");
}

/* ---- exit ---- */

static struct guest exit_pair[2];

static void *exit_thread(void *arg)
{
	struct guest pair[2];
	struct ibv_context *context = exit_pair[0].context;

	guest_create(&pair[0], context);
	guest_create(&pair[1], context);
	guest_connect_pair(&pair[0], &pair[1]);
	for (;;)
		guest_talk(&pair[0], &pair[1]);
	return NULL;
}

static void *exit_event_thread(void *arg)
{
	struct ibv_cq *cq;
	void *cookie;

	ibv_req_notify_cq(exit_pair[0].cq, 0);
	ibv_get_cq_event(exit_pair[0].channel, &cq, &cookie);
	return NULL;
}

static void at_exit_use(void)
{
	guest_talk(&exit_pair[0], &exit_pair[1]);
	guest_destroy(&exit_pair[0]);
	guest_destroy(&exit_pair[1]);
}

static bool destructor_wanted;

__attribute__((destructor)) static void destructor_use(void)
{
	struct guest pair[2];

	if (destructor_wanted)
		guest_use_everything(pair);
}

static void case_exit_while_busy(void)
{
	pthread_t thread;

	guest_use_everything(exit_pair);
	pthread_create(&thread, NULL, exit_event_thread, NULL);
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, exit_thread, NULL);
	usleep(5000);
	exit(0);
}

static void case_exit_handler(void)
{
	pthread_t thread;

	atexit(at_exit_use); /* registered before ours, if there were any: runs after them */
	guest_use_everything(exit_pair);
	pthread_create(&thread, NULL, exit_thread, NULL);
	destructor_wanted = true;
	usleep(5000);
	exit(0);
}

static void at_exit_first_use(void)
{
	struct guest pair[2];

	guest_use_everything(pair);
}

static void case_exit_first_use(void)
{
	atexit(at_exit_first_use);
	exit(0);
}

/* ---- a long READ, and a SEND behind it ---- */

static void post_one_sided(struct guest *from, struct guest *of, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)from->memory, GUEST_BYTES, from->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)of->memory;
	wr.wr.rdma.rkey = of->mr->rkey;
	guest_need(ibv_post_send(from->qp, &wr, &bad) == 0, "post READ or WRITE");
}

static void case_read_then_rnr(void)
{
	struct guest pair[2];

	guest_use_everything(pair);
	/* takes the one receive that is posted */
	guest_post_send(&pair[0], 8);
	guest_need(guest_poll(&pair[0]) == 0 && guest_poll(&pair[1]) == 0, "the first message");
	for (int i = 0; i < 20; i++) {
		post_one_sided(&pair[0], &pair[1], IBV_WR_RDMA_READ);
		guest_post_send(&pair[0], 8);
		guest_need(guest_poll(&pair[0]) == 0, "round %d: READ", i);
		guest_post_receive(&pair[1]);
		guest_need(guest_poll(&pair[0]) == 0, "round %d: SEND", i);
		guest_need(guest_poll(&pair[1]) == 0, "round %d: the message", i);
	}
}

/* ---- a thread that is cancelled while it waits ---- */

static pid_t waiter_tid;

static void *wait_for_event(void *arg)
{
	struct ibv_cq *cq;
	void *cookie;

	__atomic_store_n(&waiter_tid, gettid(), __ATOMIC_RELEASE);
	guest_need(ibv_get_cq_event(arg, &cq, &cookie) == 0, "get_cq_event");
	return cq;
}

static void *wait_for_async_event(void *arg)
{
	struct ibv_comp_channel *channel = arg;
	struct ibv_async_event event;

	__atomic_store_n(&waiter_tid, gettid(), __ATOMIC_RELEASE);
	guest_need(ibv_get_async_event(channel->context, &event) == 0, "get_async_event");
	return arg;
}

static bool is_asleep(pid_t tid)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "r");
	guest_need(f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1, "no thread %d",
		   (int)tid);
	fclose(f);
	return state == 'S';
}

/* Nobody polls: the engine's thread is to do it, and not to rely on the one that is gone. */
static void await_write(struct guest *from, struct guest *to, uint8_t value)
{
	memset(from->memory, value, GUEST_BYTES);
	post_one_sided(from, to, IBV_WR_RDMA_WRITE);
	for (int ms = 0; *(volatile uint8_t *)&to->memory[GUEST_BYTES - 1] != value; ms++) {
		guest_need(ms < 60000, "WRITE %u does not arrive", value);
		usleep(1000);
	}
	guest_need(guest_poll(from) == 0, "WRITE %u", value);
}

static void case_cancelled_waiter(void)
{
	struct ibv_comp_channel *silent;
	struct guest pair[2];
	pthread_t thread;
	void *end;

	guest_use_everything(pair);
	silent = ibv_create_comp_channel(pair[0].context);
	for (uint8_t value = 1; value < 10; value++) {
		__atomic_store_n(&waiter_tid, 0, __ATOMIC_RELAXED);
		guest_need(pthread_create(&thread, NULL,
					  value % 2 ? wait_for_event : wait_for_async_event,
					  silent) == 0,
			   "thread");
		while (__atomic_load_n(&waiter_tid, __ATOMIC_ACQUIRE) == 0 ||
		       !is_asleep(waiter_tid))
			usleep(1000);
		pthread_cancel(thread);
		guest_need(pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED, "join");
		await_write(&pair[0], &pair[1], value);
	}
	guest_talk(&pair[0], &pair[1]);
}

/* ---- failing in silence ---- */

/* No node can be started: an error number and nothing else. Prints it. */
static void case_no_node(void)
{
	struct ibv_device **list;
	int n = -1;

	errno = 0;
	list = ibv_get_device_list(&n);
	guest_need(list == NULL || n == 0, "a device without a node");
	guest_need(list != NULL || errno != 0, "no error number");
	dprintf(1, "%s\n", list == NULL ? strerrorname_np(errno) : "empty");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "signals_blocked", case_signals_blocked },
		{ "signalfd", case_signalfd },
		{ "sigwait", case_sigwait },
		{ "no_sigchld", case_no_sigchld },
		{ "no_handler", case_no_handler },
		{ "only_std_descriptors", case_only_std_descriptors },
		{ "cloexec", case_cloexec },
		{ "no_verb", case_no_verb },
		{ "exit_while_busy", case_exit_while_busy },
		{ "exit_handler", case_exit_handler },
		{ "exit_first_use", case_exit_first_use },
		{ "no_node", case_no_node },
		{ "read_then_rnr", case_read_then_rnr },
		{ "cancelled_waiter", case_cancelled_waiter },
		{ "cancelled_verbs", case_cancelled_verbs },
	};

	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	guest_die("no case %s", argc > 1 ? argv[1] : "");
}
