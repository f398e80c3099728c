/* limits.c: calls after which the arena's reserved addresses would count.
 * In: limits, mlockall    Out: the same    Runs: any thread    Locks: none
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "born_next.h"

NEXT_SLOT(setrlimit);
NEXT_SLOT(setrlimit64);
NEXT_SLOT(prlimit);
NEXT_SLOT(prlimit64);
NEXT_SLOT(mlockall);

_Static_assert(sizeof(struct rlimit) == sizeof(struct rlimit64), "one layout for both");

/* Asks the kernel, which copies the limit before it finds that there is no such process. */
static bool limits_are_readable(const struct rlimit64 *new)
{
	errno = 0;
	return NEXT(prlimit64)(-1, RLIMIT_AS, new, (void *)0) == 0 || errno != EFAULT;
}

/* `new` is the application's: NULL, or anything. The C library declares it nonnull, so the compiler
 * would drop the test, were it not volatile. */
static void limits_look(int resource, const struct rlimit64 *volatile new)
{
	int saved = errno;

	if (resource == RLIMIT_AS && new != (void *)0 && limits_are_readable(new) &&
	    new->rlim_cur != RLIM64_INFINITY)
		born_retire();
	errno = saved;
}

static bool limits_are_ours(pid_t pid)
{
	return pid == 0 || pid == getpid();
}

AV_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *new)
{
	limits_look((int)resource, (const struct rlimit64 *)new);
	return NEXT(setrlimit)(resource, new);
}

AV_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *new)
{
	limits_look((int)resource, new);
	return NEXT(setrlimit64)(resource, new);
}

AV_EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *new,
		      struct rlimit *old)
{
	if (limits_are_ours(pid))
		limits_look((int)resource, (const struct rlimit64 *)new);
	return NEXT(prlimit)(pid, resource, new, old);
}

AV_EXPORT int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *new,
			struct rlimit64 *old)
{
	if (limits_are_ours(pid))
		limits_look((int)resource, new);
	return NEXT(prlimit64)(pid, resource, new, old);
}

/* A limit of locked memory would count all reserved addresses. */
AV_EXPORT int mlockall(int flags)
{
	born_retire();
	return NEXT(mlockall)(flags);
}
