/* other.c: a child and the socket to it.
 * In:    bytes    Out: bytes
 * Runs:  each process' own thread    Locks: none
 */
#include "pairs.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

int other_fork(int *fd)
{
	int both[2], pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0)
		return -1;
	pid = fork();
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(both[pid != 0]);
	if (pid < 0)
		close(both[0]);
	else
		*fd = both[pid == 0];
	return pid;
}

int other_fork_pinned(int *fd)
{
	cpu_set_t cpus, one;
	int pid, skip;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || (pid = other_fork(fd)) < 0)
		return -1;
	skip = pid == 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus) || skip-- != 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) != 0)
			return -1;
	}
	return pid;
}

bool other_tell(int fd, const void *bytes, size_t n)
{
	size_t told = 0;

	while (told < n) {
		ssize_t done = send(fd, (const char *)bytes + told, n - told, MSG_NOSIGNAL);

		if (done < 0 && errno != EINTR)
			return false;
		told += done > 0 ? (size_t)done : 0;
	}
	return true;
}

size_t other_hear(int fd, void *bytes, size_t n)
{
	size_t heard = 0;

	while (heard < n) {
		ssize_t done = recv(fd, (char *)bytes + heard, n - heard, MSG_WAITALL);

		if (done == 0 || (done < 0 && errno != EINTR))
			break;
		heard += done > 0 ? (size_t)done : 0;
	}
	return heard;
}
