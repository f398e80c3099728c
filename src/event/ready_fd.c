/* ready_fd.c: the descriptor behind channels and async queues.
 * In: events counted up and down    Out: a descriptor that polls as readable    Runs: any thread
 * Locks: the owner's
 *
 * An application may close the descriptor, and its number then belongs to another file. So events
 * are counted through a twin: a second descriptor of the same open file, at a number that the
 * kernel gives out last. Where there is no such number, or twins would take more than their share
 * of the descriptors, each use first reads the mark of the open file behind the user's number. The
 * mark is the signal number of F_SETSIG: it belongs to the open file, and an eventfd never sends
 * it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "event/event_priv.h"

enum {
	READY_FD_TWINS = 896, /* twins have numbers from here on: the table of 1024 stays small */
	READY_FD_MARK = 61,
	READY_FD_OTHER_MARK = 62,
	/* Of RLIMIT_NOFILE twins have so small a part, so that those that have one take a quarter,
	 * with their twins. */
	READY_FD_SHARE = 8,
};

static u32 ready_fd_twins ATOMIC_ONLY; /* of this process */

static int ready_fd_twin(int fd)
{
	u32 others = __atomic_fetch_add(&ready_fd_twins, 1, __ATOMIC_RELAXED);
	struct rlimit limit;
	int twin = -1;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && others < limit.rlim_cur / READY_FD_SHARE)
		twin = fcntl(fd, F_DUPFD_CLOEXEC, READY_FD_TWINS);
	if (twin < 0)
		__atomic_fetch_sub(&ready_fd_twins, 1, __ATOMIC_RELAXED);
	return twin;
}

static bool ready_fd_is_marked(int fd, int mark)
{
	return fcntl(fd, F_GETSIG) == mark;
}

/* Tells whether the user's number still stands for the ready_fd's file. */
static bool ready_fd_has_number(const struct ready_fd *t)
{
	bool same = ready_fd_is_marked(t->fd, READY_FD_MARK);

	if (!same || t->twin < 0)
		return same;
	/* not even another ready_fd follows the twin's mark */
	fcntl(t->twin, F_SETSIG, READY_FD_OTHER_MARK);
	same = ready_fd_is_marked(t->fd, READY_FD_OTHER_MARK);
	fcntl(t->twin, F_SETSIG, READY_FD_MARK);
	return same;
}

/* The descriptor to count through; -1: there is none any more. */
static int ready_fd_file(const struct ready_fd *t)
{
	if (t->twin >= 0)
		return t->twin;
	return ready_fd_is_marked(t->fd, READY_FD_MARK) ? t->fd : -1;
}

int ready_fd_open(struct ready_fd *t)
{
	t->fd = fd_shown(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
	if (t->fd < 0)
		return -errno;
	fcntl(t->fd, F_SETSIG, READY_FD_MARK);
	t->twin = ready_fd_twin(t->fd);
	return 0;
}

void ready_fd_close(struct ready_fd *t)
{
	if (ready_fd_has_number(t))
		close(t->fd);
	if (t->twin >= 0) {
		close(t->twin);
		__atomic_fetch_sub(&ready_fd_twins, 1, __ATOMIC_RELAXED);
	}
	t->fd = t->twin = -1;
}

void ready_fd_add(const struct ready_fd *t)
{
	u64 one = 1;
	int saved = errno, fd = ready_fd_file(t);

	while (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	errno = saved;
}

/* Reads without waiting, though the descriptor may be blocking. */
static ssize_t ready_fd_read(int fd, u64 *value)
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

void ready_fd_take(const struct ready_fd *t, u32 n)
{
	u64 value;
	int saved = errno, fd = n > 0 ? ready_fd_file(t) : -1;

	while (fd >= 0 && n > 0 && ready_fd_read(fd, &value) == (ssize_t)sizeof(value))
		n--;
	errno = saved;
}

void ready_fd_renew(const struct ready_fd *t, u32 count)
{
	bool has_number = ready_fd_has_number(t);
	int saved = errno, status = fcntl(ready_fd_file(t), F_GETFL), flags = fcntl(t->fd, F_GETFD);
	int fresh = status < 0 ? -1 : eventfd(count, EFD_SEMAPHORE | EFD_CLOEXEC);

	if (fresh >= 0) {
		fcntl(fresh, F_SETFL, status);
		fcntl(fresh, F_SETSIG, READY_FD_MARK);
		if (has_number)
			dup3(fresh, t->fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
		if (t->twin >= 0)
			dup3(fresh, t->twin, O_CLOEXEC);
		close(fresh);
	}
	errno = saved;
}
