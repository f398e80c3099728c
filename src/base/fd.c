/* fd.c: see fd.h.
 * In: descriptors    Out: the same files at high numbers
 * Runs: any thread    Locks: none
 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static bool fd_is_hidden ATOMIC_ONLY;
static __thread int fd_first; /* that this thread shows */

int fd_own_copy(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, FD_OWN_FIRST);

	return copy >= 0 ? copy : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static int fd_move(int fd, int first)
{
	int saved = errno, high;

	if (fd < 0 || fd >= first)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, first);
	if (high >= 0)
		close(fd);
	errno = saved;
	return high >= 0 ? high : fd;
}

int fd_own(int fd)
{
	return fd_move(fd, FD_OWN_FIRST);
}

int fd_shown(int fd)
{
	bool hidden = __atomic_load_n(&fd_is_hidden, __ATOMIC_RELAXED);

	return fd_move(fd, hidden ? FD_OWN_FIRST : fd_first);
}

void fd_show_from(int first)
{
	fd_first = first;
}

void fd_hide(void)
{
	__atomic_store_n(&fd_is_hidden, true, __ATOMIC_RELAXED);
}
