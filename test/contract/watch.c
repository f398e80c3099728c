/* watch.c: stands in front of every call that may block, and follows locks.
 * In: calls of all libraries of the process    Out: breaches, parked threads
 * Runs: whatever thread calls    Locks: none: its state is thread-local or atomic
 *
 * Not watched: futexes of libc's own locks (malloc's, stdio's), copies to and from a peer
 * (preadv, pwritev of /proc/PID/mem).
 */
#include "watch.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

enum { HELD = 32, SHORT_SLOTS = 1 << 16, BREACHES = 16, FRAMES = 16 };

/* What a thread is, and holds. */
static __thread struct watched {
	bool sleepless, parkable, inside;
	const void *wanted; /* the lock that it is about to take */
	const void *held[HELD];
	int held_count;
	int seen;
} me;

struct breach {
	const char *call, *why;
	void *frames[FRAMES];
	int frame_count;
};

static bool watching;
static const void *short_locks[SHORT_SLOTS];
static struct breach breaches[BREACHES];
static int breach_count;
enum { PARK_NONE, PARK_PARKED, PARK_GO };
static int park_state;

/* ---- short locks ----------------------------------------------------------------------------- */

/* The lock's place in the table, or the free one where it belongs; NULL: full. */
static const void **short_slot(const void *lock)
{
	uintptr_t start = (uintptr_t)lock / 4 * 2654435761u;

	for (uintptr_t i = 0; i < SHORT_SLOTS; i++) {
		const void **slot = &short_locks[(start + i) % SHORT_SLOTS];
		const void *there = __atomic_load_n(slot, __ATOMIC_RELAXED);

		if (there == lock || there == NULL)
			return slot;
	}
	return NULL;
}

static bool short_is(const void *lock)
{
	const void **slot = short_slot(lock);

	return slot && __atomic_load_n(slot, __ATOMIC_RELAXED) == lock;
}

static void short_add(const void *lock)
{
	const void **slot;
	const void *none;

	do {
		slot = short_slot(lock);
		none = NULL;
	} while (slot && *slot != lock &&
		 !__atomic_compare_exchange_n(slot, &none, lock, false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
}

static void watch_lock(const void *lock, enum lock_step step)
{
	if (step == LOCK_WANTED) {
		me.wanted = lock;
	} else if (step == LOCK_HELD) {
		me.wanted = NULL;
		if (me.held_count < HELD)
			me.held[me.held_count] = lock;
		me.held_count++;
		if (me.sleepless && watching)
			short_add(lock);
	} else {
		for (int i = me.held_count - 1; i >= 0; i--) {
			if (i >= HELD || me.held[i] != lock)
				continue;
			memmove(&me.held[i], &me.held[i + 1],
				(size_t)(HELD - 1 - i) * sizeof(me.held[0]));
			break;
		}
		me.held_count--;
	}
}

static void watch_our_lock(const struct lock *l, enum lock_step step)
{
	watch_lock(l, step);
}

/* ---- breaches -------------------------------------------------------------------------------- */

static void breach(const char *call, const char *why)
{
	int i = __atomic_fetch_add(&breach_count, 1, __ATOMIC_RELAXED);

	if (i >= BREACHES)
		return;
	breaches[i].call = call;
	breaches[i].why = why;
	breaches[i].frame_count = backtrace(breaches[i].frames, FRAMES);
}

static bool holds_short(void)
{
	for (int i = 0; i < me.held_count && i < HELD; i++)
		if (short_is(me.held[i]))
			return true;
	return false;
}

static void park(void)
{
	int go = PARK_GO;

	__atomic_store_n(&park_state, PARK_PARKED, __ATOMIC_RELEASE); /* pairs with await_parked */
	while (!__atomic_compare_exchange_n(&park_state, &go, PARK_NONE, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		go = PARK_GO;
		sched_yield();
	}
}

/* Before every call that may block. */
static void blocking(const char *call)
{
	if (me.inside || !__atomic_load_n(&watching, __ATOMIC_RELAXED))
		return;
	me.inside = true;
	me.seen++;
	if (me.sleepless)
		breach(call, "from a call that may not sleep");
	if (holds_short())
		breach(call, "with a lock held that calls wait for which may not sleep");
	else if (me.parkable) /* else the round beside it would wait for ever */
		park();
	me.inside = false;
}

/* ---- what the test calls --------------------------------------------------------------------- */

/* Absent from a library that is built without it. */
__attribute__((weak)) extern void (*lock_watch)(const struct lock *l, enum lock_step step);

bool watch_sees_locks(void)
{
	return &lock_watch != NULL;
}

__attribute__((constructor)) static void watch_from_the_start(void)
{
	void *frame;

	if (&lock_watch != NULL)
		lock_watch = watch_our_lock;
	backtrace(&frame, 1); /* loads what it needs while that may block */
}

void watch_begin(void)
{
	memset(short_locks, 0, sizeof(short_locks));
	breach_count = 0;
	me.seen = 0;
	__atomic_store_n(&watching, true, __ATOMIC_RELEASE);
}

int watch_end(void)
{
	__atomic_store_n(&watching, false, __ATOMIC_RELEASE);
	for (int i = 0; i < breach_count && i < BREACHES; i++) {
		fprintf(stderr, "%s %s:\n", breaches[i].call, breaches[i].why);
		fflush(stderr);
		backtrace_symbols_fd(breaches[i].frames, breaches[i].frame_count, 2);
	}
	return breach_count;
}

int watch_seen(void)
{
	return me.seen;
}

void watch_sleepless(bool on)
{
	me.sleepless = on;
}

void watch_parkable(bool on)
{
	me.parkable = on;
}

bool watch_await_parked(const int *done)
{
	for (;;) {
		if (__atomic_load_n(&park_state, __ATOMIC_ACQUIRE) == PARK_PARKED)
			return true;
		if (__atomic_load_n(done, __ATOMIC_ACQUIRE))
			return false;
		sched_yield();
	}
}

void watch_unpark(void)
{
	__atomic_store_n(&park_state, PARK_GO, __ATOMIC_RELEASE); /* pairs with park */
}

/* ---- the calls ------------------------------------------------------------------------------- */

#define REAL(name)                                                                                 \
	({                                                                                         \
		static __typeof__(name) *real_;                                                    \
		if (!real_)                                                                        \
			real_ = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);                       \
		real_;                                                                             \
	})

static bool fd_waits(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_NONBLOCK);
}

/* Only a write that would bring an eventfd to 2^64 - 1 waits: nobody gets there by ones. */
static bool fd_is_eventfd(int fd)
{
	char path[32], name[32];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name));
	return n > 0 && memmem(name, (size_t)n, "[eventfd]", 9) != NULL;
}

static bool write_waits(int fd)
{
	return __atomic_load_n(&watching, __ATOMIC_RELAXED) && fd_waits(fd) && !fd_is_eventfd(fd);
}

AV_EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	if (fd_waits(fd))
		blocking("read");
	return REAL(read)(fd, buf, n);
}

AV_EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	if (fd_waits(fd))
		blocking("readv");
	return REAL(readv)(fd, iov, n);
}

AV_EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	if (write_waits(fd))
		blocking("write");
	return REAL(write)(fd, buf, n);
}

AV_EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (write_waits(fd))
		blocking("writev");
	return REAL(writev)(fd, iov, n);
}

AV_EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	if (!(flags & MSG_DONTWAIT) && fd_waits(fd))
		blocking("recv");
	return REAL(recv)(fd, buf, n, flags);
}

AV_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (!(flags & MSG_DONTWAIT) && fd_waits(fd))
		blocking("recvmsg");
	return REAL(recvmsg)(fd, msg, flags);
}

AV_EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	if (!(flags & MSG_DONTWAIT) && fd_waits(fd))
		blocking("send");
	return REAL(send)(fd, buf, n, flags);
}

AV_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (!(flags & MSG_DONTWAIT) && fd_waits(fd))
		blocking("sendmsg");
	return REAL(sendmsg)(fd, msg, flags);
}

AV_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (timeout)
		blocking("poll");
	return REAL(poll)(fds, n, timeout);
}

AV_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *limit,
		    const sigset_t *mask)
{
	if (!limit || limit->tv_sec || limit->tv_nsec)
		blocking("ppoll");
	return REAL(ppoll)(fds, n, limit, mask);
}

AV_EXPORT int select(int n, fd_set *in, fd_set *out, fd_set *bad, struct timeval *limit)
{
	if (!limit || limit->tv_sec || limit->tv_usec)
		blocking("select");
	return REAL(select)(n, in, out, bad, limit);
}

AV_EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
	if (timeout)
		blocking("epoll_wait");
	return REAL(epoll_wait)(fd, events, n, timeout);
}

AV_EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout,
			  const sigset_t *mask)
{
	if (timeout)
		blocking("epoll_pwait");
	return REAL(epoll_pwait)(fd, events, n, timeout, mask);
}

AV_EXPORT int nanosleep(const struct timespec *time, struct timespec *left)
{
	blocking("nanosleep");
	return REAL(nanosleep)(time, left);
}

AV_EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
			      struct timespec *left)
{
	blocking("clock_nanosleep");
	return REAL(clock_nanosleep)(clock, flags, time, left);
}

AV_EXPORT int usleep(useconds_t us)
{
	blocking("usleep");
	return REAL(usleep)(us);
}

AV_EXPORT unsigned int sleep(unsigned int seconds)
{
	blocking("sleep");
	return REAL(sleep)(seconds);
}

AV_EXPORT int connect(int fd, const struct sockaddr *to, socklen_t n)
{
	if (fd_waits(fd))
		blocking("connect");
	return REAL(connect)(fd, to, n);
}

AV_EXPORT int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
	if (fd_waits(fd))
		blocking("accept4");
	return REAL(accept4)(fd, from, n, flags);
}

AV_EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
	if (!(options & WNOHANG))
		blocking("waitpid");
	return REAL(waitpid)(pid, status, options);
}

AV_EXPORT int fsync(int fd)
{
	blocking("fsync");
	return REAL(fsync)(fd);
}

AV_EXPORT int pthread_join(pthread_t thread, void **result)
{
	blocking("pthread_join");
	return REAL(pthread_join)(thread, result);
}

AV_EXPORT int sem_wait(sem_t *sem)
{
	blocking("sem_wait");
	return REAL(sem_wait)(sem);
}

AV_EXPORT int sem_timedwait(sem_t *sem, const struct timespec *limit)
{
	blocking("sem_timedwait");
	return REAL(sem_timedwait)(sem, limit);
}

AV_EXPORT int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	blocking("pthread_barrier_wait");
	return REAL(pthread_barrier_wait)(barrier);
}

/* ---- mutexes and their conditions ------------------------------------------------------------ */

AV_EXPORT int pthread_mutex_lock(pthread_mutex_t *m)
{
	int err = REAL(pthread_mutex_lock)(m);

	if (!err)
		watch_lock(m, LOCK_HELD);
	return err;
}

AV_EXPORT int pthread_mutex_trylock(pthread_mutex_t *m)
{
	int err = REAL(pthread_mutex_trylock)(m);

	if (!err)
		watch_lock(m, LOCK_HELD);
	return err;
}

AV_EXPORT int pthread_mutex_unlock(pthread_mutex_t *m)
{
	watch_lock(m, LOCK_LEFT);
	return REAL(pthread_mutex_unlock)(m);
}

AV_EXPORT int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	int err;

	watch_lock(m, LOCK_LEFT); /* it is let go meanwhile, others are not */
	blocking("pthread_cond_wait");
	err = REAL(pthread_cond_wait)(c, m);
	watch_lock(m, LOCK_HELD);
	return err;
}

AV_EXPORT int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
				     const struct timespec *limit)
{
	int err;

	watch_lock(m, LOCK_LEFT);
	blocking("pthread_cond_timedwait");
	err = REAL(pthread_cond_timedwait)(c, m, limit);
	watch_lock(m, LOCK_HELD);
	return err;
}

/* A futex is the lock that this thread is about to take, or a sleep. */
AV_EXPORT long syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT &&
	    (const void *)a[0] != me.wanted)
		blocking("futex");
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
