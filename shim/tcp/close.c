/* close.c: close, dup, shutdown and fork: the lives of descriptors.
 * In: the program's calls    Out: connections that end, or go on as another process'
 * Runs: any thread    Locks: table.lock, epoll.lock, service.lock, one after the other
 *
 * A child of vfork or clone, which libc itself makes, runs in its parent's memory: what it closes
 * is its own, not the table's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsockets.h"

NEXT_SLOT(close);
NEXT_SLOT(close_range);
NEXT_SLOT(closefrom);
NEXT_SLOT(dup);
NEXT_SLOT(dup2);
NEXT_SLOT(dup3);
NEXT_SLOT(shutdown);
NEXT_SLOT(fork);
NEXT_SLOT(posix_spawn);
NEXT_SLOT(posix_spawnp);
NEXT_SLOT(posix_spawn_file_actions_adddup2);

static bool close_is_ours(int fd)
{
	return (unsigned)fd < FD_LIMIT &&
	       (__atomic_load_n(&table_socks[fd], __ATOMIC_ACQUIRE) != NULL ||
		__atomic_load_n(&ep_table[fd], __ATOMIC_ACQUIRE) != NULL) &&
	       getpid() == table_pid;
}

/* Another process still has the pair, or has written to it. */
static bool pair_is_used(const struct sock *s)
{
	struct pollfd p = { .fd = s->far, .events = POLLIN };
	u8 byte;

	if (s->far < 0 || poll(&p, 1, 0) <= 0 || (p.revents & POLLHUP) == 0)
		return true;
	/* the other processes have ended: what they wrote is still to be sent */
	return recv(s->far, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* The connection goes to the service, at most once. */
static bool sock_take(struct sock *s)
{
	u8 direct = SOCK_DIRECT;

	return __atomic_compare_exchange_n(&s->kind, &direct, SOCK_KERNEL, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

void sock_give_away(struct sock *s)
{
	if (!sock_take(s))
		return;
	sock_hold(s);
	service_relay(s);
	ep_moved(s);
}

void sock_hand_on(int fd)
{
	struct sock *s;
	QUIET();

	s = sock_get(fd);
	if (s == NULL)
		return;
	sock_use(s);
	if (sock_kind(s) == SOCK_DIRECT)
		sock_give_away(s);
	sock_put(s);
}

/* The last descriptor is gone: `s` comes with the table's reference. */
static void sock_end(struct sock *s)
{
	int saved = errno;

	ep_forget(s);
	if (sock_kind(s) == SOCK_LISTENER) {
		service_withdraw(s);
	} else if (sock_kind(s) == SOCK_DIRECT) {
		if (pair_is_used(s) && sock_take(s)) {
			service_relay(s);
			errno = saved;
			return;
		}
		/* a call of another thread may still be in the rsocket */
		if (__atomic_load_n(&s->refs, __ATOMIC_ACQUIRE) > 1)
			(void)rcalls.shutdown(s->rfd, SHUT_RDWR);
	}
	sock_put(s);
	errno = saved;
}

/* Takes the descriptor out of the tables; sock_end may follow once it is closed. */
static struct sock *close_forget(int fd)
{
	ep_closed(fd);
	return table_remove(fd);
}

static int close_ours(int fd)
{
	struct sock *s;
	int err;
	QUIET();

	s = close_forget(fd);
	err = NEXT(close)(fd);
	if (s != NULL)
		sock_end(s);
	return err;
}

AV_EXPORT int close(int fd)
{
	if (likely(!close_is_ours(fd)))
		return NEXT(close)(fd);
	return close_ours(fd);
}

AV_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	/* the threads that serve the connections have the table of all */
	if (getpid() == table_pid)
		flags &= ~CLOSE_RANGE_UNSHARE;
	for (unsigned fd = first; flags == 0 && fd <= last && fd < FD_LIMIT; fd++)
		if (close_is_ours((int)fd))
			close((int)fd);
	return NEXT(close_range)(first, last, flags);
}

AV_EXPORT void closefrom(int first)
{
	for (int fd = MAX(first, 0); fd < FD_LIMIT; fd++)
		if (close_is_ours(fd))
			close(fd);
	NEXT(closefrom)(first);
}

void sock_copied(int from, int to)
{
	struct sock *s;
	QUIET();

	if (!close_is_ours(from))
		return;
	ep_copied(from, to);
	s = sock_get(from);
	if (s == NULL)
		return;
	sock_use(s); /* the copy may be a new program's */
	if (to < FD_LIMIT)
		table_add(to, s);
	else
		sock_give_away(s);
	sock_put(s);
}

AV_EXPORT int dup(int fd)
{
	int copy;
	QUIET();

	copy = NEXT(dup)(fd);
	if (copy >= 0)
		sock_copied(fd, copy);
	return copy;
}

static int dup_over(int from, int to, int flags, bool three)
{
	struct sock *s = NULL;
	int copy;
	QUIET();

	if (close_is_ours(to) && from != to && (flags & ~O_CLOEXEC) == 0 &&
	    fcntl(from, F_GETFD) >= 0)
		s = close_forget(to);
	copy = three ? NEXT(dup3)(from, to, flags) : NEXT(dup2)(from, to);
	if (s != NULL)
		sock_end(s);
	if (copy >= 0 && from != to)
		sock_copied(from, copy);
	return copy;
}

AV_EXPORT int dup2(int from, int to)
{
	return dup_over(from, to, 0, false);
}

AV_EXPORT int dup3(int from, int to, int flags)
{
	return dup_over(from, to, flags, true);
}

AV_EXPORT int shutdown(int fd, int how)
{
	struct sock *s;
	int err;
	QUIET();

	s = sock_get(fd);
	if (s == NULL)
		return NEXT(shutdown)(fd, how);
	if (sock_kind(s) == SOCK_DIRECT) {
		err = rcalls.shutdown(s->rfd, how);
		if (err == 0 && how != SHUT_RD)
			__atomic_store_n(&s->shut_write, 1, __ATOMIC_RELEASE);
		sock_rearm(s, REARM_IN | REARM_OUT);
	} else {
		sock_use(s);
		err = NEXT(shutdown)(fd, how);
		if (err == 0 && how != SHUT_WR && sock_kind(s) == SOCK_LISTENER)
			listener_shut(s, fd);
	}
	sock_put(s);
	return err;
}

/* ---- fork ---- */

static void fork_withdraw(struct sock *s)
{
	if (sock_kind(s) == SOCK_LISTENER && !__atomic_load_n(&s->wanted, __ATOMIC_ACQUIRE))
		service_withdraw(s);
}

/* A listener that this process has not waited for is the child's, if the child waits for it.
 *
 * QUIET() here and in fork(): the thread must not be cancelled inside, since close() and the calls
 * of the service are cancellation points and table_each holds references. fork() returns twice, so
 * the child's thread gets the state of its cancellation back, too. */
static void fork_begins(void)
{
	QUIET();

	if (rcalls.socket != NULL)
		table_each(fork_withdraw);
}

AV_EXPORT pid_t fork(void)
{
	QUIET();

	fork_begins();
	if (rcalls.socket != NULL)
		share_prepare();
	return NEXT(fork)();
}

/* A child that shares its parent's memory could not tell which calls are its own. */
AV_EXPORT pid_t vfork(void)
{
	return fork();
}

AV_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	fork_begins();
	return NEXT(posix_spawn)(pid, path, actions, attr, argv, envp);
}

AV_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	fork_begins();
	return NEXT(posix_spawnp)(pid, file, actions, attr, argv, envp);
}

/* posix_spawn's child runs none of this: what it gets is relayed. */
AV_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int to)
{
	sock_hand_on(fd);
	return NEXT(posix_spawn_file_actions_adddup2)(actions, fd, to);
}

/* The rsockets are the parent's; what they lead to is reached through the pairs. */
static void fork_sock(struct sock *s)
{
	if (s->far >= 0)
		NEXT(close)(s->far);
	if (s->bell >= 0)
		NEXT(close)(s->bell);
	s->far = s->rfd = s->bell = -1;
	__atomic_store_n(&s->wanted, false, __ATOMIC_RELEASE);
	s->withdraw = false;
	__atomic_store_n(&s->tried_ms, 0, __ATOMIC_RELAXED);
	list_init(&s->accepted);
	list_init(&s->service);
	if (sock_kind(s) == SOCK_DIRECT) {
		sock_set_kind(s, SOCK_KERNEL);
		__atomic_store_n(&s->ask, share_parent(), __ATOMIC_RELEASE);
	}
}

static void fork_child(void)
{
	table_each(fork_sock);
}
FORK_HOOK(FORK_SHIM_SOCKS, .child = fork_child);
