/* exit.c: a process that ends with connections: what it has written is still sent.
 * In: exit(), _exit(), _Exit()    Out: streams that have ended as by close()
 * Runs: the thread that ends the process, also in a signal handler; the service thread
 * Locks: none on the thread that ends
 *
 * The kernel goes on sending the data of a TCP socket when the process has ended. The data of a
 * queue pair is lost with the process. So the process waits until its connections have ended, the
 * open ones and the closed ones that linger: EXIT_LINGER_MS at most in exit() (a handler of
 * atexit), EXIT_MS at most in _exit().
 *
 * A signal handler may call _exit() while its thread holds a lock of librdmacm. So the service
 * thread ends the connections. If the service thread waits for such a lock, or for a peer that does
 * not acknowledge, the time passes and the rest of the data is lost. The kernel would stop all
 * other threads in _exit(); here they run on, but a call of theirs that fails meanwhile does not
 * return.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "anyverbs/rsocket.h"
#include "rsockets.h"

NEXT_SLOT(_exit);

enum { EXIT_MS = 1000, EXIT_LINGER_MS = 10000, EXIT_LOOK_US = 100 };

bool exit_begun;

static struct {
	u32 wanted ATOMIC_ONLY;
	u32 done ATOMIC_ONLY; /* a futex */
	bool closed ATOMIC_ONLY; /* connections were closed: some may linger */
	u64 until_ms ATOMIC_ONLY; /* exit_flush waits no longer */
} exiting;

__attribute__((constructor)) static void exit_resolve(void)
{
	NEXT_RESOLVE(_exit);
}

/* Says the end to the peer, and waits for nothing. */
static void exit_shut_write(struct sock *s)
{
	if (sock_kind(s) != SOCK_DIRECT)
		return;
	(void)rcalls.fcntl(s->rfd, F_SETFL, O_NONBLOCK);
	(void)rcalls.shutdown(s->rfd, SHUT_WR);
}

/* What is left of the time that all connections have. */
static u64 exit_left_ms(void)
{
	u64 until = __atomic_load_n(&exiting.until_ms, __ATOMIC_RELAXED), now = now_ms();

	return until > now ? until - now : 0;
}

/* Waits until the peer's adapter has all. */
static void exit_wait(struct sock *s)
{
	struct linger limit = { .l_onoff = 1, .l_linger = (int)(exit_left_ms() + 999) / 1000 };
	int off = 0;

	if (sock_kind(s) != SOCK_DIRECT)
		return;
	(void)rcalls.setsockopt(s->rfd, SOL_SOCKET, SO_LINGER, &limit, sizeof(limit));
	(void)rcalls.setsockopt(s->rfd, SOL_RDMA, RDMA_CLOSE_AT_ONCE, &off, sizeof(off));
	(void)rcalls.fcntl(s->rfd, F_SETFL, 0);
	(void)rcalls.shutdown(s->rfd, SHUT_RDWR);
}

/* Waits for those that linger. Each stream rsocket says how many there are. */
static void exit_wait_lingering(void)
{
	int rfd = rcalls.socket(AF_INET, SOCK_STREAM, 0), count = 0;
	socklen_t size = sizeof(count);
	QUIET();

	if (rfd < 0)
		return;
	while (rcalls.getsockopt(rfd, SOL_RDMA, RDMA_LINGERING, &count, &size) == 0 && count > 0 &&
	       exit_left_ms() > 0)
		usleep(EXIT_LOOK_US);
	(void)rcalls.close(rfd);
}

void exit_note_closed(void)
{
	__atomic_store_n(&exiting.closed, true, __ATOMIC_RELEASE);
}

void exit_flush(void)
{
	__atomic_store_n(&exiting.until_ms, now_ms() + EXIT_LINGER_MS, __ATOMIC_RELAXED);
	table_each(exit_shut_write);
	table_each(exit_wait);
	if (__atomic_load_n(&exiting.closed, __ATOMIC_ACQUIRE))
		exit_wait_lingering();
}

void exit_serve(void)
{
	if (!__atomic_load_n(&exiting.wanted, __ATOMIC_ACQUIRE) ||
	    __atomic_load_n(&exiting.done, __ATOMIC_RELAXED))
		return;
	exit_flush();
	__atomic_store_n(&exiting.done, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &exiting.done, FUTEX_WAKE_PRIVATE, 1000, NULL, NULL, 0);
}

void exit_child(void)
{
	__atomic_store_n(&exiting.wanted, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&exiting.done, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&exiting.closed, false, __ATOMIC_RELAXED);
	__atomic_store_n(&exit_begun, false, __ATOMIC_RELAXED);
}

void exit_stay(void)
{
	for (;;)
		pause();
}

/* Or had one. Reads no more than pointers: a sock goes back to a pool, and never to malloc. */
static bool exit_has_connection(void)
{
	if (__atomic_load_n(&exiting.closed, __ATOMIC_ACQUIRE))
		return true;
	for (int fd = 0; fd < FD_LIMIT; fd++) {
		const struct sock *s = __atomic_load_n(&table_socks[fd], __ATOMIC_ACQUIRE);

		if (s != NULL && sock_kind(s) == SOCK_DIRECT)
			return true;
	}
	return false;
}

/* Any context. */
static void exit_now(int status)
{
	u64 until = now_ms() + EXIT_MS, now;

	if (getpid() == table_pid && service_is_there() && exit_has_connection()) {
		__atomic_store_n(&exit_begun, true, __ATOMIC_SEQ_CST);
		__atomic_store_n(&exiting.wanted, 1, __ATOMIC_SEQ_CST);
		service_wake();
		while (!__atomic_load_n(&exiting.done, __ATOMIC_ACQUIRE) &&
		       (now = now_ms()) < until) {
			struct timespec t = { .tv_sec = (time_t)((until - now) / 1000),
					      .tv_nsec = (long)((until - now) % 1000) * 1000000L };

			syscall(SYS_futex, &exiting.done, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);
		}
	}
	NEXT(_exit)(status);
}

AV_EXPORT void _exit(int status)
{
	exit_now(status);
	__builtin_unreachable();
}

AV_EXPORT void _Exit(int status)
{
	exit_now(status);
	__builtin_unreachable();
}
