/* cage.c: runs a test so that no process and no pipe of it outlives it.
 *
 * usage: cage [--apart] PROGRAM ARGUMENTS...
 * Its status, or the signal that ended it, is the cage's.
 *
 * AV_CAGE_SECONDS=T in the environment limits the test: T seconds of processor time for it and all
 * processes below it, 4 T seconds by the clock, and 120 seconds in which they use no processor
 * time: a hang. So a busy machine does not end a test that a quiet one lets pass. The cage then
 * prints a line that begins with "LATE: ", kills the test, and ends with status 124.
 * AV_CAGE_IDLE_SECONDS and AV_CAGE_CLOCK_SECONDS set the other two limits.
 *
 * --apart: in a network namespace of its own, whose loopback interface is up, so that two tests
 * may use one TCP port. Without the right to make one the test shares the caller's.
 *
 * Three processes. The outer one alone holds the output that ctest reads: it copies what the test
 * says, and ends with it, whoever else still has the pipe. The inner one is the test's parent and
 * adopts every orphan below it. When the test has ended, or the outer process is killed, as ctest
 * does after TIMEOUT, the inner one kills what is left. A node (anyverbsd) stays: tests share it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	ROUNDS = 100,
	LATE = 124,	  /* the status of a test that was ended by a limit */
	CLOCK_FACTOR = 4, /* seconds by the clock per second of processor time */
	IDLE_SECONDS = 120,
	IDLE_PERCENT = 1, /* of one processor: a thread that wakes at a timer uses less */
	MOST_PROCESSES = 4096,
};

/* ---- the inner process ---- */

/* What /proc/PID/stat says of a process. */
struct process {
	pid_t pid, parent;
	double seconds; /* of processor time, its own and of children that it has waited for */
	char name[32], state;
	bool below; /* this process is an ancestor */
};

/* "PID (NAME) STATE PPID ...". The name may hold anything, so the last parenthesis counts. */
static bool process_read(pid_t pid, struct process *p)
{
	unsigned long user, system;
	long user_below, system_below;
	char path[64], text[512], *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	end = strrchr(text, ')');
	if (end == NULL ||
	    sscanf(end, ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &p->state,
		   &p->parent, &user, &system, &user_below, &system_below) != 6)
		return false;
	*end = 0;
	snprintf(p->name, sizeof(p->name), "%s", strchr(text, '(') + 1);
	p->pid = pid;
	p->seconds = (double)(user + system + (unsigned long)user_below +
			      (unsigned long)system_below) /
		     (double)sysconf(_SC_CLK_TCK);
	return true;
}

/* All processes below this one, up to `most`: how many. */
static int processes_below(struct process *list, int most)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int count = 0, kept = 0;
	bool more;

	while (dir != NULL && count < most && (e = readdir(dir)) != NULL)
		if (atoi(e->d_name) > 0 && process_read(atoi(e->d_name), &list[count])) {
			list[count].below = list[count].parent == getpid();
			count++;
		}
	if (dir != NULL)
		closedir(dir);
	do {
		more = false;
		for (int i = 0; i < count; i++)
			for (int k = 0; k < count && !list[i].below; k++)
				if (list[k].below && list[k].pid == list[i].parent)
					list[i].below = more = true;
	} while (more);
	for (int i = 0; i < count; i++)
		if (list[i].below)
			list[kept++] = list[i];
	return kept;
}

/* Kills all children but nodes: how many. Their own become children of this process. */
static int kill_children(bool say)
{
	static struct process list[MOST_PROCESSES];
	int n = processes_below(list, MOST_PROCESSES), count = 0;

	for (int i = 0; i < n; i++) {
		if (list[i].parent != getpid() || strcmp(list[i].name, "anyverbsd") == 0)
			continue;
		if (kill(list[i].pid, SIGKILL) == 0)
			count++;
		if (say)
			printf("cage: killed %s (%d), which had outlived the test\n", list[i].name,
			       list[i].pid);
	}
	fflush(stdout);
	return count;
}

static void kill_survivors(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		if (kill_children(i == 0) == 0)
			return;
		usleep(1000);
	}
}

/* Ends this process as the test has ended. */
static void end_as(int status)
{
	struct rlimit none = { 0, 0 };

	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	setrlimit(RLIMIT_CORE, &none);
	signal(WTERMSIG(status), SIG_DFL);
	raise(WTERMSIG(status));
	_exit(128 + WTERMSIG(status));
}

/* ---- limits ---- */

struct limits {
	double seconds; /* of processor time; 0: no limit */
	double clock_seconds, idle_seconds;
	double begin, looked_at, active_at; /* by the clock: start, last look, last time used */
	double used, active_used;
};

static double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double time_seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static double seconds_of(const char *name, double otherwise)
{
	const char *value = getenv(name);

	return value != NULL ? atof(value) : otherwise;
}

static struct limits limits_read(void)
{
	struct limits l = { .begin = clock_seconds() };

	l.seconds = seconds_of("AV_CAGE_SECONDS", 0);
	l.clock_seconds = seconds_of("AV_CAGE_CLOCK_SECONDS", l.seconds * CLOCK_FACTOR);
	l.idle_seconds = seconds_of("AV_CAGE_IDLE_SECONDS", IDLE_SECONDS);
	l.active_at = l.begin;
	unsetenv("AV_CAGE_SECONDS"); /* a cage in the cage has none */
	return l;
}

/* Says which limit the test has passed, and what there is of it. */
static void limits_tell(const char *limit, double seconds, const struct limits *l,
			const struct process *list, int count)
{
	printf("LATE: cage: ended after %.0f s %s "
	       "(%.1f s of processor time, %.0f s by the clock)\n",
	       seconds, limit, l->used, l->looked_at - l->begin);
	for (int i = 0; i < count; i++)
		printf("cage: there is %s (%d), state %c, %.1f s of processor time\n", list[i].name,
		       list[i].pid, list[i].state, list[i].seconds);
	fflush(stdout);
}

/* True: the test has passed a limit. */
static bool limits_passed(struct limits *l)
{
	static struct process list[MOST_PROCESSES];
	double now = clock_seconds(), used;
	struct rusage ended;
	int count;

	if (l->seconds == 0 || now - l->looked_at < 1)
		return false;
	l->looked_at = now;
	count = processes_below(list, MOST_PROCESSES);
	getrusage(RUSAGE_CHILDREN, &ended);
	used = time_seconds(ended.ru_utime) + time_seconds(ended.ru_stime);
	for (int i = 0; i < count; i++)
		used += list[i].seconds;
	if (used > l->used)
		l->used = used; /* less: what a process has used vanished with its last ancestor */
	if (l->used - l->active_used > l->idle_seconds * IDLE_PERCENT / 100) {
		l->active_used = l->used;
		l->active_at = now;
	}
	if (l->used > l->seconds)
		limits_tell("of processor time", l->seconds, l, list, count);
	else if (now - l->begin > l->clock_seconds)
		limits_tell("by the clock", l->clock_seconds, l, list, count);
	else if (now - l->active_at > l->idle_seconds)
		limits_tell("without processor time", l->idle_seconds, l, list, count);
	else
		return false;
	return true;
}

enum ending { TEST_ENDED, TEST_LATE, OUTER_GONE };

/* Waits for the test, its limits, or the outer process, which has gone or wants an end. Orphans
 * that end meanwhile are reaped. */
static enum ending await_end(pid_t test, struct limits *limits, const sigset_t *set, int *status)
{
	struct timespec second = { .tv_sec = 1 };
	pid_t ended;
	int its;

	while (sigtimedwait(set, NULL, &second) != SIGTERM) {
		while ((ended = waitpid(-1, &its, WNOHANG)) > 0)
			if (ended == test) {
				*status = its;
				return TEST_ENDED;
			}
		if (limits_passed(limits))
			return TEST_LATE;
	}
	return OUTER_GONE;
}

/* Puts this process into a network namespace of its own. False: it has one, without a loopback. */
static bool enter_namespace(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd, err;

	if (unshare(CLONE_NEWNET) != 0)
		return true;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	err = ioctl(fd, SIOCSIFFLAGS, &lo);
	close(fd);
	return err == 0;
}

static void inner(char **command, pid_t outer_pid)
{
	struct limits limits = limits_read();
	int status = 0;
	sigset_t set, before;
	enum ending ending;
	pid_t test;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &before);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != outer_pid)
		_exit(125);
	test = fork();
	if (test == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		execvp(command[0], command);
		fprintf(stderr, "cage: %s: %s\n", command[0], strerror(errno));
		_exit(127);
	}
	if (test < 0)
		_exit(125);
	ending = await_end(test, &limits, &set, &status);
	signal(SIGPIPE, SIG_IGN); /* nobody may read any more */
	kill_survivors();
	if (ending != TEST_ENDED)
		_exit(ending == TEST_LATE ? LATE : 125);
	end_as(status);
}

/* ---- the outer process ---- */

static pid_t inner_pid;

static void on_end(int signal)
{
	kill(inner_pid, SIGTERM);
}

/* False: there is nothing more to read now. */
static bool copy_some(int from)
{
	char data[65536];
	ssize_t n = read(from, data, sizeof(data)), done = 0;

	while (n > 0 && done < n) {
		ssize_t k = write(STDOUT_FILENO, data + done, (size_t)(n - done));

		if (k < 0 && errno != EINTR)
			return false;
		done += k > 0 ? k : 0;
	}
	return n > 0 || (n < 0 && errno == EINTR);
}

static void copy_until_end(int from)
{
	struct pollfd p[2] = { { .fd = from, .events = POLLIN },
			       { .fd = (int)syscall(SYS_pidfd_open, inner_pid, 0),
				 .events = POLLIN } };

	while (p[1].revents == 0) {
		poll(p, 2, -1);
		if (p[0].revents != 0 && !copy_some(from))
			p[0].fd = -1;
	}
	fcntl(from, F_SETFL, O_NONBLOCK);
	while (copy_some(from))
		continue;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_end };
	bool apart = argc > 1 && strcmp(argv[1], "--apart") == 0;
	pid_t self = getpid();
	int ends[2], status;

	argv += apart ? 2 : 1;
	argc -= apart ? 2 : 1;
	if (argc < 1 || pipe2(ends, O_CLOEXEC) != 0 || (apart && !enter_namespace()))
		return 125;
	inner_pid = fork();
	if (inner_pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		inner(argv, self);
	}
	if (inner_pid < 0)
		return 125;
	close(ends[1]);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	copy_until_end(ends[0]);
	while (waitpid(inner_pid, &status, 0) < 0 && errno == EINTR)
		continue;
	end_as(status);
}
