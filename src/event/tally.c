/* tally.c: the descriptor behind channels and async queues.
 * In: events counted up and down    Out: a descriptor that polls as readable    Runs: any thread
 * Locks: the owner's
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "event/event_priv.h"

int tally_open(void)
{
	int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

void tally_add(int fd)
{
	u64 one = 1;
	int saved = errno;

	/* Fails only if the user has closed the descriptor: then no thread waits on it. */
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	errno = saved;
}

/* Reads without waiting, though the descriptor may be blocking. */
static ssize_t tally_read(int fd, u64 *value)
{
	struct iovec iov = { .iov_base = value, .iov_len = sizeof(*value) };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);

	if (n >= 0 || errno == EAGAIN)
		return n;
	/* For older kernels and seccomp filters. The owner's lock keeps other threads of this
	 * process from taking the count between the two calls. */
	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) ? read(fd, value, sizeof(*value)) : -1;
}

void tally_take(int fd, u32 n)
{
	u64 value;
	int saved = errno;

	while (n > 0 && tally_read(fd, &value) == (ssize_t)sizeof(value))
		n--;
	errno = saved;
}

void tally_renew(int fd, u32 count)
{
	int saved = errno, status = fcntl(fd, F_GETFL), flags = fcntl(fd, F_GETFD), fresh;

	fresh = status < 0 || flags < 0 ? -1 : eventfd(count, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (fresh >= 0) {
		fcntl(fresh, F_SETFL, status);
		dup3(fresh, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
		close(fresh);
	}
	errno = saved;
}
