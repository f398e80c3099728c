/* uncancelled.c: the C library's cancellation points without cancellation, for the libraries.
 *
 * A thread that is cancelled inside a verb would leave locks held. The shared libraries are linked
 * with --wrap for each function here (cmake/rooms.cmake), so that their calls come to these: a bare
 * system call is no cancellation point. A function that another library may interpose (the shim
 * of `anyverbs run`) is called with cancellation disabled. cancellable_poll() is the wait that may
 * be cancelled. epoll_create1 and socket are no such points, but must be past interposers as close
 * is: the shim of --rsockets, or librspreload, would keep the number as an epoll set or a socket of
 * the program that is never closed, and take the next file of that number for it.
 * In: calls of the libraries    Out: system calls    Runs: any thread    Locks: none
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The kernel's set of signals, in bytes. */
enum { UNCANCELLED_SIGSET = 8 };

/* UNCANCELLED(TYPE, NAME, PARAMETERS, NUMBER, ARGUMENTS...) */
#define UNCANCELLED(type, name, parameters, number, ...)                                           \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		return (type)syscall(number, __VA_ARGS__);                                         \
	}

UNCANCELLED(int, close, (int fd), SYS_close, fd)
UNCANCELLED(ssize_t, read, (int fd, void *to, size_t n), SYS_read, fd, to, n)
UNCANCELLED(ssize_t, write, (int fd, const void *from, size_t n), SYS_write, fd, from, n)
UNCANCELLED(ssize_t, pread, (int fd, void *to, size_t n, off_t at), SYS_pread64, fd, to, n, at)
UNCANCELLED(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), SYS_pwrite64, fd, from,
	    n, at)
UNCANCELLED(ssize_t, preadv2, (int fd, const struct iovec *to, int n, off_t at, int flags),
	    SYS_preadv2, fd, to, n, at, 0, flags)
UNCANCELLED(int, socket, (int family, int type, int protocol), SYS_socket, family, type, protocol)
UNCANCELLED(int, connect, (int fd, const struct sockaddr *to, socklen_t n), SYS_connect, fd, to, n)
UNCANCELLED(ssize_t, recv, (int fd, void *to, size_t n, int flags), SYS_recvfrom, fd, to, n, flags,
	    NULL, NULL)
UNCANCELLED(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), SYS_recvmsg, fd, m, flags)
UNCANCELLED(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), SYS_sendmsg, fd, m,
	    flags)
UNCANCELLED(int, epoll_create1, (int flags), SYS_epoll_create1, flags)
UNCANCELLED(int, epoll_wait, (int fd, struct epoll_event *to, int n, int timeout_ms),
	    SYS_epoll_pwait, fd, to, n, timeout_ms, NULL, UNCANCELLED_SIGSET)
UNCANCELLED(int, nanosleep, (const struct timespec *how_long, struct timespec *left), SYS_nanosleep,
	    how_long, left)
UNCANCELLED(ssize_t, getrandom, (void *to, size_t n, unsigned flags), SYS_getrandom, to, n, flags)
UNCANCELLED(int, fallocate, (int fd, int mode, off_t at, off_t n), SYS_fallocate, fd, mode, at, n)
UNCANCELLED(int, msync, (void *at, size_t n, int flags), SYS_msync, at, n, flags)

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
	struct timespec limit = { .tv_sec = timeout_ms / 1000,
				  .tv_nsec = timeout_ms % 1000 * 1000000L };

	return (int)syscall(SYS_ppoll, p, n, timeout_ms < 0 ? NULL : &limit, NULL,
			    UNCANCELLED_SIGSET);
}

int __wrap_usleep(useconds_t us);
int __wrap_usleep(useconds_t us)
{
	struct timespec how_long = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	return __wrap_nanosleep(&how_long, NULL);
}

static mode_t uncancelled_mode(int flags, va_list ap)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

/* UNCANCELLED_OPEN(NAME, PARAMETERS, ARGUMENTS before the flags...) */
#define UNCANCELLED_OPEN(name, parameters, ...)                                                    \
	/* Absent, and nobody's, in a program that wraps nothing. */                               \
	extern int __real_##name parameters __attribute__((weak));                                 \
	int __wrap_##name parameters;                                                              \
	int __wrap_##name parameters                                                               \
	{                                                                                          \
		int fd, cancel;                                                                    \
		mode_t mode;                                                                       \
		va_list ap;                                                                        \
                                                                                                   \
		va_start(ap, flags);                                                               \
		mode = uncancelled_mode(flags, ap);                                                \
		va_end(ap);                                                                        \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);                           \
		fd = __real_##name(__VA_ARGS__, flags, mode);                                      \
		pthread_setcancelstate(cancel, NULL);                                              \
		return fd;                                                                         \
	}

UNCANCELLED_OPEN(open, (const char *path, int flags, ...), path)
UNCANCELLED_OPEN(openat, (int at, const char *path, int flags, ...), at, path)

/* Weak, as __real_open is. */
extern int __real_pthread_join(pthread_t thread, void **result) __attribute__((weak));
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result)
{
	int err, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	err = __real_pthread_join(thread, result);
	pthread_setcancelstate(cancel, NULL);
	return err;
}
