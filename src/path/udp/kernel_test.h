/* kernel_test.h: a test in the kernel's place: the path makes its calls by libc's syscall(), before
 * which this one stands. Each test program has one.
 */
#ifndef PATH_UDP_KERNEL_TEST_H
#define PATH_UDP_KERNEL_TEST_H

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"

/* The test's: sees each call, and may answer it: then true, *result is what it returns, and errno
 * is set if that is -1. */
static bool kernel_answers(long number, const long a[6], long *result);

long syscall(long number, ...)
{
	static long (*next)(long number, ...);
	long a[6], result;
	va_list list;

	va_start(list, number);
	for (u32 i = 0; i < ARRAY_LEN(a); i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (kernel_answers(number, a, &result))
		return result;
	if (next == NULL)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#endif
