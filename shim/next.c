/* next.c: finds the next definition of a function.
 * In: a name    Out: an address    Runs: any thread, any time
 * Locks: the loader's, which is recursive
 */
#include "next.h"

#include <dlfcn.h>
#include <errno.h>

static long next_absent(void)
{
	errno = ENOSYS;
	return -1;
}

void *next_find(void **slot, const char *name)
{
	int saved = errno;
	void *fn = dlsym(RTLD_NEXT, name);

	if (fn == (void *)0)
		fn = (void *)next_absent;
	__atomic_store_n(slot, fn, __ATOMIC_RELAXED);
	errno = saved;
	return fn;
}
