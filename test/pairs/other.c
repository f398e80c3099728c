/* other.c: a child and the socket to it.
 * In:    bytes    Out: bytes
 * Runs:  each process' own thread    Locks: none
 */
#include "pairs.h"

#include <errno.h>
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
