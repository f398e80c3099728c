/* select.c: select and pselect, by poll.
 * In: sets    Out: sets    Runs: any thread    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsockets.h"

NEXT_SLOT(select);
NEXT_SLOT(pselect);

enum { SELECT_SMALL = 64 };

/* Sets may be larger than an fd_set: programs do that with more descriptors. */
static bool select_has(const fd_set *set, int fd)
{
	return set != NULL && (((const u64 *)set)[fd / 64] >> (fd % 64) & 1) != 0;
}

static void select_put(fd_set *set, int fd, bool on)
{
	u64 bit = 1ULL << (fd % 64);

	if (set == NULL)
		return;
	if (on)
		((u64 *)set)[fd / 64] |= bit;
	else
		((u64 *)set)[fd / 64] &= ~bit;
}

struct sets {
	int count;
	fd_set *in, *out, *except;
} OWNED_BY(the caller);

static short select_events(const struct sets *sets, int fd)
{
	return (short)((select_has(sets->in, fd) ? POLLIN : 0) |
		       (select_has(sets->out, fd) ? POLLOUT : 0) |
		       (select_has(sets->except, fd) ? POLLPRI : 0));
}

static bool select_is_ours(const struct sets *sets)
{
	for (int fd = 0; fd < sets->count; fd++)
		if (wait_is_ours(fd) && select_events(sets, fd) != 0)
			return true;
	return false;
}

/* The number of bits, or -1: a descriptor is none. */
static int select_answer(const struct sets *sets, const struct pollfd *fds, u32 count)
{
	int bits = 0;

	for (u32 i = 0; i < count; i++)
		if (fds[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	for (u32 i = 0; i < count; i++) {
		short got = fds[i].revents, want = fds[i].events;
		bool in = want & POLLIN && got & (POLLIN | POLLHUP | POLLERR);
		bool out = want & POLLOUT && got & (POLLOUT | POLLERR);
		bool except = want & POLLPRI && got & POLLPRI;

		select_put(sets->in, fds[i].fd, in);
		select_put(sets->out, fds[i].fd, out);
		select_put(sets->except, fds[i].fd, except);
		bits += in + out + except;
	}
	return bits;
}

static void select_free(struct pollfd **many)
{
	free(*many);
}

static int select_ours(const struct sets *sets, const struct timespec *timeout,
		       const sigset_t *mask)
{
	struct pollfd small[SELECT_SMALL], *many CLEANUP(select_free) = NULL, *fds = small;
	u32 count = 0;
	int n;

	if (sets->count > SELECT_SMALL)
		fds = many = malloc((size_t)sets->count * sizeof(*fds));
	if (fds == NULL)
		return -1;
	for (int fd = 0; fd < sets->count; fd++) {
		short events = select_events(sets, fd);

		if (events != 0)
			fds[count++] = (struct pollfd){ .fd = fd, .events = events };
	}
	n = ppoll(fds, count, timeout, mask);
	return n >= 0 ? select_answer(sets, fds, count) : n;
}

AV_EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *except,
		      const struct timespec *timeout, const sigset_t *mask)
{
	struct sets sets = { MIN(count, FD_LIMIT), in, out, except };
	CALL c = call_begin_plain();

	return select_is_ours(&sets) ? select_ours(&sets, timeout, mask) :
				       NEXT(pselect)(count, in, out, except, timeout, mask);
}

/* Linux leaves in *timeout what is left of it. */
AV_EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	struct sets sets = { MIN(count, FD_LIMIT), in, out, except };
	struct timespec t;
	CALL c = call_begin_plain();
	u64 begin, taken, all;
	int n;

	if (!select_is_ours(&sets))
		return NEXT(select)(count, in, out, except, timeout);
	if (timeout == NULL)
		return select_ours(&sets, NULL, NULL);
	if (timeout->tv_sec < 0 || timeout->tv_usec < 0) {
		errno = EINVAL;
		return -1;
	}
	t = (struct timespec){ timeout->tv_sec, timeout->tv_usec * 1000 };
	begin = now_ms();
	n = select_ours(&sets, &t, NULL);
	taken = (now_ms() - begin) * 1000;
	all = (u64)timeout->tv_sec * 1000000 + (u64)timeout->tv_usec;
	all = taken < all ? all - taken : 0;
	*timeout = (struct timeval){ (time_t)(all / 1000000), (suseconds_t)(all % 1000000) };
	return n;
}
