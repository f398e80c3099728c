/* cage.c: runs a test so that no process and no pipe of it outlives it.
 *
 * usage: cage [--apart] PROGRAM ARGUMENTS...
 * Its status, or the signal that ended it, is the cage's.
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
#include <unistd.h>

enum { ROUNDS = 100 };

/* ---- the inner process ---- */

/* "PID (NAME) STATE PPID ...". The name may hold anything, so the last parenthesis counts. */
static bool is_child(pid_t pid, char name[32])
{
	char path[64], text[512], *end;
	ssize_t n;
	int fd, parent;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = 0;
	end = strrchr(text, ')');
	if (end == NULL || sscanf(end, ") %*c %d", &parent) != 1 || parent != getpid())
		return false;
	*end = 0;
	snprintf(name, 32, "%s", strchr(text, '(') + 1);
	return true;
}

/* Kills all children but nodes: how many. Their own become children of this process. */
static int kill_children(bool say)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	char name[32];
	int count = 0;

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		pid_t pid = atoi(e->d_name);

		if (pid <= 0 || !is_child(pid, name) || strcmp(name, "anyverbsd") == 0)
			continue;
		if (kill(pid, SIGKILL) == 0)
			count++;
		if (say)
			printf("cage: killed %s (%d), which had outlived the test\n", name, pid);
	}
	if (dir != NULL)
		closedir(dir);
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

/* False: the outer process has gone, or wants an end. Orphans that end meanwhile are reaped. */
static bool await_end(pid_t test, const sigset_t *set, int *status)
{
	int number, its;
	pid_t ended;

	while (sigwait(set, &number) == 0 && number != SIGTERM)
		while ((ended = waitpid(-1, &its, WNOHANG)) > 0)
			if (ended == test) {
				*status = its;
				return true;
			}
	return false;
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
	int status = 0;
	sigset_t set, before;
	pid_t test;
	bool ended;

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
	ended = await_end(test, &set, &status);
	signal(SIGPIPE, SIG_IGN); /* nobody may read any more */
	kill_survivors();
	if (!ended)
		_exit(125);
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
