/* poll.c: rpoll and rselect: rsockets and ordinary descriptors in one wait.
 * In:    sets of descriptors               Out: what each is ready for
 * Runs:  the application's threads         Locks: wait_queue.lock of each rsocket, one by one
 *
 * A thread that finds nothing ready joins the wait queue of each rsocket, arms each, looks once
 * more, and sleeps on one eventfd beside the ordinary descriptors: however many rsockets there are,
 * the kernel sees one descriptor for all of them. An rsocket that is armed and has told nothing is
 * not driven again.
 */
#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "rsocket.h"
#include "user.h"

enum { POLL_DRIVES_ALL = 16, POLL_ON_STACK = 16 };
enum { POLL_NO_FD = INT32_MAX }; /* of which the kernel says POLLNVAL */

struct poll_entry {
	struct rsocket *rs; /* held; NULL: an ordinary descriptor */
	struct waiter place;
} OWNED_BY(the thread that polls);

struct poll_set {
	struct pollfd *fds; /* the application's */
	nfds_t count;
	struct poll_entry *entries;
	/* what the kernel watches: ordinary descriptors, then the sleeper's */
	struct pollfd *system;
	nfds_t system_count;   /* without the sleeper's */
	u32 rsockets;
	struct rsocket *driven; /* one that is no listener; NULL: there is none */
	bool joined;
	struct sleeper me;
	void *room; /* of entries and system, unless they lie on the stack */
} OWNED_BY(the thread that polls);

/* ---- the set --------------------------------------------------------------------------------- */

/* The application's array can be read and written. */
static int poll_check(struct pollfd *fds, nfds_t count)
{
	struct pollfd p;

	for (nfds_t i = 0; i < count; i++) {
		if (user_copy(&p, &fds[i], sizeof(p)) < 0)
			return -EFAULT;
		p.revents = 0;
		if (user_copy(&fds[i], &p, sizeof(p)) < 0)
			return -EFAULT;
	}
	return 0;
}

/* The kernel's descriptor for the i-th place; negative: it has none. */
static int poll_system_fd(const struct poll_set *set, nfds_t i)
{
	struct rsocket *rs = set->entries[i].rs;
	int fd = set->fds[i].fd;

	if (rs != NULL)
		return rs->ops->poll_fd(rs);
	return unlikely(table_is_parents(fd)) ? POLL_NO_FD : fd;
}

static void poll_collect(struct poll_set *set)
{
	int fd;

	for (nfds_t i = 0; i < set->count; i++) {
		struct rsocket *rs = set->fds[i].fd >= 0 ? table_get(set->fds[i].fd) : NULL;

		set->entries[i].rs = rs;
		set->rsockets += rs != NULL;
		fd = poll_system_fd(set, i);
		if (rs != NULL && fd < 0 && set->driven == NULL)
			set->driven = rs;
		if (fd < 0)
			continue;
		set->system[set->system_count++] = (struct pollfd){
			.fd = fd, .events = rs == NULL ? set->fds[i].events : POLLIN
		};
	}
}

static void poll_leave(struct poll_set *set)
{
	for (nfds_t i = 0; set->joined && i < set->count; i++)
		if (set->entries[i].rs != NULL)
			wait_leave(&set->entries[i].rs->waiters, &set->entries[i].place);
	if (set->joined)
		sleeper_end(&set->me);
	set->joined = false;
}

/* Also when the thread is cancelled. */
static void poll_end(struct poll_set *set)
{
	poll_leave(set);
	for (nfds_t i = 0; i < set->count && set->rsockets > 0; i++) {
		if (set->entries[i].rs == NULL)
			continue;
		table_put(set->entries[i].rs);
		set->rsockets--;
	}
	free(set->room);
}

/* The revents that the kernel said of the i-th ordinary descriptor, in order. */
static int poll_take_system(struct poll_set *set)
{
	nfds_t at = 0;
	int ready = 0;

	for (nfds_t i = 0; i < set->count; i++) {
		struct rsocket *rs = set->entries[i].rs;
		int fd = poll_system_fd(set, i);

		if (fd < 0 || at == set->system_count || set->system[at].fd != fd)
			continue;
		if (rs == NULL) {
			set->fds[i].revents = set->system[at].revents;
			ready += set->fds[i].revents != 0;
		}
		at++;
	}
	return ready;
}

/* What the rsockets say. With few of them each is driven; of many only those that have told
 * something, and one that drives the rest. */
static int poll_rsockets(struct poll_set *set)
{
	bool look = true;
	int ready = 0;

	for (nfds_t i = 0; i < set->count; i++) {
		struct rsocket *rs = set->entries[i].rs;

		if (rs == NULL)
			continue;
		set->fds[i].revents = rs->ops->poll(rs, set->fds[i].events, look);
		ready += set->fds[i].revents != 0;
		look = set->rsockets <= POLL_DRIVES_ALL;
	}
	return ready;
}

/* Everything, without waiting. */
static int poll_look(struct poll_set *set)
{
	int ready = poll_rsockets(set);

	if (set->system_count > 0) {
		if (poll(set->system, set->system_count, 0) < 0)
			return -errno;
		ready += poll_take_system(set);
	}
	return ready;
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static void poll_join(struct poll_set *set)
{
	set->joined = true;
	for (nfds_t i = 0; i < set->count; i++) {
		struct rsocket *rs = set->entries[i].rs;

		if (rs != NULL)
			wait_join(&rs->waiters, &set->entries[i].place, &set->me);
	}
}

static void poll_arm(struct poll_set *set)
{
	for (nfds_t i = 0; i < set->count; i++)
		if (set->entries[i].rs != NULL)
			set->entries[i].rs->ops->arm(set->entries[i].rs);
}

static bool poll_spin(struct poll_set *set)
{
	return set->driven != NULL ? sleeper_spin(&set->me, set->driven)
				   : sleeper_is_woken(&set->me);
}

/* 0; -EINTR. */
static int poll_sleep(struct poll_set *set, u64 until)
{
	u64 now;

	if (poll_spin(set))
		return 0;
	now = clock_now_ns();
	return sleeper_poll(&set->me, set->system, set->system_count,
			    until == UINT64_MAX ? 0 : until > now ? until - now : 1);
}

/* How many are ready, or a negative errno. */
static int poll_wait(struct poll_set *set, u64 until)
{
	int ready, err;

	err = sleeper_begin(&set->me, set->driven != NULL ? SLEEP_POLL : SLEEP_LISTEN);

	if (err < 0)
		return err;
	poll_join(set);
	for (;;) {
		sleeper_reset(&set->me);
		poll_arm(set);
		ready = poll_look(set);
		if (ready != 0)
			return ready;
		if (err < 0)
			return err;
		if (clock_now_ns() >= until)
			return 0;
		err = poll_sleep(set, until);
	}
}

static int poll_run(struct poll_set *set, int timeout_ms)
{
	u64 until = timeout_ms < 0 ? UINT64_MAX
				   : clock_now_ns() + (u64)timeout_ms * NS_PER_MS;
	int ready;

	poll_collect(set);
	ready = poll_look(set);
	return ready == 0 && timeout_ms != 0 ? poll_wait(set, until) : ready;
}

/* The room of a thread's last large set is kept for its next. */
static int poll_start(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	struct poll_entry few[POLL_ON_STACK];
	struct pollfd few_system[POLL_ON_STACK + SLEEPER_FDS];
	struct poll_set set CLEANUP(poll_end) = {
		.fds = fds, .count = count, .entries = few, .system = few_system
	};

	if (count > POLL_ON_STACK) {
		set.room = malloc(count * sizeof(*set.entries) +
				  (count + SLEEPER_FDS) * sizeof(*set.system));
		if (set.room == NULL)
			return -ENOMEM;
		set.entries = set.room;
		set.system = (struct pollfd *)(set.entries + count);
	}
	return poll_run(&set, timeout_ms);
}

AV_EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	int ready;

	if (nfds > INT32_MAX / sizeof(struct poll_entry))
		ready = -EINVAL;
	else
		ready = poll_check(fds, nfds);
	if (ready == 0)
		ready = poll_start(fds, nfds, timeout);
	if (ready >= 0)
		return ready;
	errno = -ready;
	return -1;
}

/* ---- rselect --------------------------------------------------------------------------------- */

static nfds_t select_to_poll(int nfds, const fd_set *in, const fd_set *out, const fd_set *except,
			     struct pollfd *fds)
{
	nfds_t count = 0;

	for (int fd = 0; fd < nfds; fd++) {
		short events = (short)((FD_ISSET(fd, in) ? POLLIN : 0) |
				       (FD_ISSET(fd, out) ? POLLOUT : 0) |
				       (FD_ISSET(fd, except) ? POLLPRI : 0));

		if (events != 0)
			fds[count++] = (struct pollfd){ .fd = fd, .events = events };
	}
	return count;
}

/* As the kernel's select: an error makes a descriptor readable and writable. */
static int select_mark(const struct pollfd *p, short asked, int ready, fd_set *set)
{
	if (!(p->events & asked) || !(p->revents & ready))
		return 0;
	FD_SET(p->fd, set);
	return 1;
}

static int select_from_poll(const struct pollfd *fds, nfds_t count, fd_set *in, fd_set *out,
			    fd_set *except)
{
	int marked = 0;

	FD_ZERO(in);
	FD_ZERO(out);
	FD_ZERO(except);
	for (nfds_t i = 0; i < count; i++) {
		if (fds[i].revents & POLLNVAL)
			return -EBADF;
		marked += select_mark(&fds[i], POLLIN, POLLIN | POLLHUP | POLLERR, in);
		marked += select_mark(&fds[i], POLLOUT, POLLOUT | POLLERR, out);
		marked += select_mark(&fds[i], POLLPRI, POLLPRI, except);
	}
	return marked;
}

/* -1: without a limit. -EFAULT, -EINVAL. */
static int select_timeout_ms(const struct timeval *timeout, int *ms)
{
	struct timeval t;
	s64 all;

	*ms = -1;
	if (timeout == NULL)
		return 0;
	if (user_copy(&t, timeout, sizeof(t)) < 0)
		return -EFAULT;
	if (t.tv_sec < 0 || t.tv_usec < 0)
		return -EINVAL;
	all = t.tv_sec > INT32_MAX / 1000 ? INT32_MAX
					  : (s64)t.tv_sec * 1000 + (t.tv_usec + 999) / 1000;
	*ms = (int)MIN(all, (s64)INT32_MAX);
	return 0;
}

enum { SELECT_SETS = 3 };

/* The application's sets have whole words for its descriptors, and perhaps no more. */
static size_t select_bytes(int nfds)
{
	return ((size_t)nfds + NFDBITS - 1) / NFDBITS * sizeof(fd_mask);
}

static int select_take(fd_set *const user[SELECT_SETS], int nfds, fd_set sets[SELECT_SETS])
{
	for (int i = 0; i < SELECT_SETS; i++) {
		FD_ZERO(&sets[i]);
		if (user[i] != NULL && user_copy(&sets[i], user[i], select_bytes(nfds)) < 0)
			return -EFAULT;
	}
	return 0;
}

static int select_give(fd_set *const user[SELECT_SETS], int nfds, const fd_set sets[SELECT_SETS])
{
	for (int i = 0; i < SELECT_SETS; i++)
		if (user[i] != NULL && user_copy(user[i], &sets[i], select_bytes(nfds)) < 0)
			return -EFAULT;
	return 0;
}

static void select_free(struct pollfd **fds)
{
	free(*fds);
}

static int select_run(int nfds, fd_set *const user[SELECT_SETS], int timeout_ms)
{
	/* as many as there may be are too much for a small stack */
	struct pollfd *fds CLEANUP(select_free) = calloc((size_t)nfds + 1, sizeof(*fds));
	fd_set sets[SELECT_SETS];
	nfds_t count;
	int ready = fds == NULL ? -ENOMEM : select_take(user, nfds, sets), err;

	if (ready < 0)
		return ready;
	count = select_to_poll(nfds, &sets[0], &sets[1], &sets[2], fds);
	ready = poll_start(fds, count, timeout_ms);
	if (ready >= 0)
		ready = select_from_poll(fds, count, &sets[0], &sets[1], &sets[2]);
	if (ready < 0)
		return ready;
	err = select_give(user, nfds, sets);
	return err < 0 ? err : ready;
}

AV_EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
		      struct timeval *timeout)
{
	fd_set *const user[SELECT_SETS] = { readfds, writefds, exceptfds };
	int ready, timeout_ms;

	ready = nfds < 0 || nfds > FD_SETSIZE ? -EINVAL : select_timeout_ms(timeout, &timeout_ms);
	if (ready == 0)
		ready = select_run(nfds, user, timeout_ms);
	if (ready >= 0)
		return ready;
	errno = -ready;
	return -1;
}
