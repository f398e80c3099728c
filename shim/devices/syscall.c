/* syscall.c: syscall(2), by which some programs look at files (libuv, which Node.js uses, calls
 * statx so).
 *
 * In: a system call's number and arguments    Out: the tree's answer, or the kernel's
 * Runs: any thread, in signal handlers and before the constructors, too    Locks: none
 *
 * Only calls that look at a path, and only if the path leads into a tree, are answered here. All
 * others go on with all six arguments, as the C library passes them.
 */
#include <anyverbs/kernel.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../next.h"
#include "ours.h"
#include "redirect.h"

enum { SYSCALL_ARGS = 6 };

NEXT_SLOT(syscall);

__attribute__((constructor)) static void syscall_resolve(void)
{
	NEXT_RESOLVE(syscall);
}

/* ---- calls that go on ------------------------------------------------------------------------ */

#if defined(__x86_64__) && defined(__LP64__)
static long syscall_enter(long number, const long a[SYSCALL_ARGS])
{
	register long r10 __asm__("r10") = a[3];
	register long r8 __asm__("r8") = a[4];
	register long r9 __asm__("r9") = a[5];
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#define SYSCALL_ENTERS 1
#elif defined(__aarch64__)
static long syscall_enter(long number, const long a[SYSCALL_ARGS])
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a[0];
	register long x1 __asm__("x1") = a[1];
	register long x2 __asm__("x2") = a[2];
	register long x3 __asm__("x3") = a[3];
	register long x4 __asm__("x4") = a[4];
	register long x5 __asm__("x5") = a[5];

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#define SYSCALL_ENTERS 1
#else
#define SYSCALL_ENTERS 0
#endif

#if SYSCALL_ENTERS
/* The lookup of the next definition may allocate, and an allocator that begins may be the caller:
 * until the constructor has made it, the kernel is entered from here. */
static bool syscall_is_early(void)
{
	return __atomic_load_n(&next_syscall, __ATOMIC_RELAXED) == NULL;
}

static long syscall_pass_early(long number, const long a[SYSCALL_ARGS])
{
	long result = syscall_enter(number, a);

	if ((unsigned long)result < -4095ul)
		return result;
	errno = (int)-result;
	return -1;
}
#else
static bool syscall_is_early(void)
{
	return false;
}

static long syscall_pass_early(long number, const long a[SYSCALL_ARGS])
{
	return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif

static long syscall_pass(long number, const long a[SYSCALL_ARGS])
{
	if (syscall_is_early())
		return syscall_pass_early(number, a);
	return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- calls that look at a path --------------------------------------------------------------- */

/* The place of the path among the arguments; -1: the call is none of those. */
static int syscall_path_at(long number)
{
	switch (number) {
	case SYS_statx:
	case SYS_openat:
#ifdef SYS_newfstatat
	case SYS_newfstatat:
#endif
	case SYS_readlinkat:
	case SYS_faccessat:
#ifdef SYS_faccessat2
	case SYS_faccessat2:
#endif
		return 1;
#ifdef SYS_open
	case SYS_open:
#endif
#if defined(SYS_stat) && defined(SYS_newfstatat)
	case SYS_stat:
	case SYS_lstat:
#endif
#ifdef SYS_readlink
	case SYS_readlink:
#endif
#ifdef SYS_access
	case SYS_access:
#endif
#if defined(SYS_open) || defined(SYS_readlink) || defined(SYS_access)
		return 0;
#endif
	default:
		return -1;
	}
}

static const char *syscall_path(long argument)
{
	return (const char *)(unsigned long)argument;
}

/* Callers may ask for EFAULT, which a look at the path from here would turn into a fault. A change
 * of the signal mask in no known way reads the 8 bytes, refuses, and changes nothing. There are
 * none at NULL. */
static bool syscall_may_read(long path)
{
	const long a[SYSCALL_ARGS] = { ~0l, path & ~7l, 0, 8 };
	int saved = errno;
	bool may = a[1] != 0 && (syscall_pass(SYS_rt_sigprocmask, a) == 0 || errno != EFAULT);

	errno = saved;
	return may;
}

/* Without a tree the call goes on as it came: the C library's would end in the same system call,
 * and another library's might end here. */
static __attribute__((noinline)) bool syscall_has_tree(const char *path)
{
	struct redirect r;

	return redirect_find(path, &r);
}

static bool syscall_is_ours(long number, const long a[SYSCALL_ARGS])
{
	int at = syscall_path_at(number);

	return at >= 0 && syscall_may_read(a[at]) && redirect_is_ours(syscall_path(a[at])) &&
	       syscall_has_tree(syscall_path(a[at]));
}

/* A kernel's struct stat is the C library's where SYS_newfstatat is. */
static long syscall_ours(long number, const long a[SYSCALL_ARGS])
{
	switch (number) {
	case SYS_statx:
		return statx_ours((int)a[0], syscall_path(a[1]), (int)a[2], (unsigned)a[3],
				  (struct statx *)(unsigned long)a[4]);
	case SYS_openat:
		return open_ours((int)a[0], syscall_path(a[1]), (int)a[2], (mode_t)a[3]);
#ifdef SYS_newfstatat
	case SYS_newfstatat:
		return stat_ours((int)a[0], syscall_path(a[1]), (struct stat *)(unsigned long)a[2],
				 (int)a[3]);
#endif
	case SYS_readlinkat:
		return readlink_ours((int)a[0], syscall_path(a[1]), (char *)(unsigned long)a[2],
				     (size_t)(int)a[3]);
	case SYS_faccessat:
		return access_ours((int)a[0], syscall_path(a[1]), (int)a[2], 0);
#ifdef SYS_faccessat2
	case SYS_faccessat2:
		return access_ours((int)a[0], syscall_path(a[1]), (int)a[2], (int)a[3]);
#endif
#ifdef SYS_open
	case SYS_open:
		return open_ours(AT_FDCWD, syscall_path(a[0]), (int)a[1], (mode_t)a[2]);
#endif
#if defined(SYS_stat) && defined(SYS_newfstatat)
	case SYS_stat:
	case SYS_lstat:
		return stat_ours(AT_FDCWD, syscall_path(a[0]), (struct stat *)(unsigned long)a[1],
				 number == SYS_lstat ? AT_SYMLINK_NOFOLLOW : 0);
#endif
#ifdef SYS_readlink
	case SYS_readlink:
		return readlink_ours(AT_FDCWD, syscall_path(a[0]), (char *)(unsigned long)a[1],
				     (size_t)(int)a[2]);
#endif
#ifdef SYS_access
	case SYS_access:
		return access_ours(AT_FDCWD, syscall_path(a[0]), (int)a[1], 0);
#endif
	default:
		errno = ENOSYS;
		return -1;
	}
}

/* Most callers pass fewer arguments than it takes: as the C library's, it reads the caller's stack
 * then, of which sanitizers know. */
__attribute__((no_sanitize_address, no_sanitize_thread)) AV_EXPORT long syscall(long number, ...)
{
	long a[SYSCALL_ARGS];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < SYSCALL_ARGS; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	return syscall_is_ours(number, a) ? syscall_ours(number, a) : syscall_pass(number, a);
}
