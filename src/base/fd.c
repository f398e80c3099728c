/* fd.c: see fd.h.
 * In: descriptors    Out: the same files at high numbers
 * Runs: any thread    Locks: none
 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static bool fd_is_hidden ATOMIC_ONLY;

int fd_own_copy(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, FD_OWN_FIRST);

	return copy >= 0 ? copy : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int fd_own(int fd)
{
	int saved = errno, high;

	if (fd < 0 || fd >= FD_OWN_FIRST)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, FD_OWN_FIRST);
	if (high >= 0)
		close(fd);
	errno = saved;
	return high >= 0 ? high : fd;
}

int fd_shown(int fd)
{
	return __atomic_load_n(&fd_is_hidden, __ATOMIC_RELAXED) ? fd_own(fd) : fd;
}

void fd_hide(void)
{
	__atomic_store_n(&fd_is_hidden, true, __ATOMIC_RELAXED);
}
