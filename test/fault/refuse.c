/* refuse.c: preloaded: the system refuses a program the Nth thread, or the Nth descriptor, that the
 * libraries ask for.
 * In:  REFUSE="PROGRAM KIND N TIMES": KIND thread or descriptor; TIMES 0: from the Nth on
 *      REFUSE_SEEN=FILE: gets a line for the first refusal: the call or the path, and where it is
 * Out: EAGAIN from pthread_create; EMFILE from calls that make a descriptor
 * Runs: whoever calls    Locks: none
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define NEXT(name) ((__typeof__(&name))refuse_next(#name))
#define HERE __builtin_return_address(0)

static char refuse_kind[16];
static int refuse_at, refuse_times, refuse_asked;

static void *refuse_next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void refuse_begin(void)
{
	const char *what = getenv("REFUSE");
	char program[64], kind[16];
	int at, times;

	if (what == NULL || sscanf(what, "%63s %15s %d %d", program, kind, &at, &times) != 4 ||
	    strcmp(program, program_invocation_short_name) != 0)
		return;
	refuse_at = at;
	refuse_times = times;
	strcpy(refuse_kind, kind);
}

/* Does one of our libraries call, and not the program? */
static bool refuse_is_ours(const void *caller, Dl_info *info)
{
	return dladdr(caller, info) != 0 && info->dli_fname != NULL &&
	       (strstr(info->dli_fname, "libanyverbs") != NULL ||
		strstr(info->dli_fname, "librdmacm") != NULL ||
		strstr(info->dli_fname, "libibverbs") != NULL);
}

static void refuse_show(const char *call, const void *caller, const Dl_info *info)
{
	const char *seen = getenv("REFUSE_SEEN");
	long fd = seen == NULL ? -1
			       : NEXT(syscall)(SYS_openat, AT_FDCWD, seen,
					       O_CREAT | O_EXCL | O_WRONLY, 0666);

	if (fd < 0)
		return;
	dprintf((int)fd, "%s at %s+%#zx\n", call, info->dli_fname,
		(size_t)((const char *)caller - (const char *)info->dli_fbase));
	close((int)fd);
}

static bool refuse(const char *kind, const char *call, const void *caller)
{
	int n, saved = errno;
	Dl_info info;

	if (strcmp(kind, refuse_kind) != 0 || !refuse_is_ours(caller, &info))
		return false;
	n = __atomic_add_fetch(&refuse_asked, 1, __ATOMIC_RELAXED) - refuse_at;
	if (n < 0 || (refuse_times != 0 && n >= refuse_times))
		return false;
	refuse_show(call, caller, &info);
	errno = saved;
	return true;
}

static bool refuse_descriptor(const char *call, const void *caller)
{
	bool refused = refuse("descriptor", call, caller);

	if (refused)
		errno = EMFILE;
	return refused;
}

SHOWN int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			 void *arg)
{
	if (refuse("thread", __func__, HERE))
		return EAGAIN;
	return NEXT(pthread_create)(thread, attr, fn, arg);
}

/* ---- calls that make a descriptor ----------------------------------------------------------- */

#define MAKER(name, parameters, ...)                                                               \
	SHOWN int name parameters                                                                  \
	{                                                                                          \
		return refuse_descriptor(#name, HERE) ? -1 : NEXT(name)(__VA_ARGS__);              \
	}

MAKER(socket, (int domain, int type, int protocol), domain, type, protocol)
MAKER(socketpair, (int domain, int type, int protocol, int fds[2]), domain, type, protocol, fds)
MAKER(epoll_create1, (int flags), flags)
MAKER(eventfd, (unsigned int count, int flags), count, flags)
MAKER(memfd_create, (const char *name, unsigned int flags), name, flags)
MAKER(signalfd, (int fd, const sigset_t *set, int flags), fd, set, flags)
MAKER(pipe2, (int fds[2], int flags), fds, flags)

#define OPENER(name, parameters, ...)                                                              \
	SHOWN int name parameters                                                                  \
	{                                                                                          \
		mode_t mode;                                                                       \
		va_list ap;                                                                        \
                                                                                                   \
		va_start(ap, flags);                                                               \
		mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(ap, mode_t) : 0;              \
		va_end(ap);                                                                        \
		return refuse_descriptor(path, HERE) ? -1 : NEXT(name)(__VA_ARGS__, mode);         \
	}

OPENER(open, (const char *path, int flags, ...), path, flags)
OPENER(openat, (int at, const char *path, int flags, ...), at, path, flags)

SHOWN FILE *fopen(const char *path, const char *mode)
{
	return refuse_descriptor(path, HERE) ? NULL : NEXT(fopen)(path, mode);
}

SHOWN int fcntl(int fd, int command, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, command);
	arg = va_arg(ap, void *);
	va_end(ap);
	if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && refuse_descriptor(__func__, HERE))
		return -1;
	return NEXT(fcntl)(fd, command, arg);
}

/* The kernel drops descriptors of a message that find no room, and says MSG_CTRUNC. */
static void refuse_received(struct msghdr *m, const void *caller)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int made;

	if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    !refuse_descriptor("recvmsg", caller))
		return;
	for (size_t at = CMSG_LEN(0); at + sizeof(made) <= c->cmsg_len; at += sizeof(made)) {
		memcpy(&made, (const char *)c + at, sizeof(made));
		close(made);
	}
	m->msg_controllen = 0;
	m->msg_flags |= MSG_CTRUNC;
}

SHOWN long syscall(long number, ...)
{
	long a[6], result;
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_pidfd_getfd && refuse_descriptor(__func__, HERE))
		return -1;
	result = NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_recvmsg && result >= 0)
		refuse_received((struct msghdr *)a[1], HERE);
	return result;
}
