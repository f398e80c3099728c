/* pause.c: preloaded: stops the process right before a copy to a peer's memory, as SIGSTOP might.
 * In: PAUSE_BEFORE=N: before its Nth pwritev by syscall()    Out: a stopped process
 * Runs: whoever copies    Locks: none
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>

__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*next)(long, ...);
	static int count;
	const char *at = getenv("PAUSE_BEFORE");
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (next == NULL)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	if (number == SYS_pwritev && at != NULL &&
	    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) == atoi(at))
		raise(SIGSTOP);
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
