/* limits.c: calls after which the arena's reserved addresses would count.
 * In: limits, mlockall    Out: the same    Runs: any thread    Locks: none
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "born_next.h"

NEXT_SLOT(setrlimit);
NEXT_SLOT(setrlimit64);
NEXT_SLOT(prlimit);
NEXT_SLOT(prlimit64);
NEXT_SLOT(mlockall);

static void limits_look(int resource, bool unlimited)
{
	if (resource == RLIMIT_AS && !unlimited)
		born_retire();
}

static bool limits_are_ours(pid_t pid)
{
	return pid == 0 || pid == getpid();
}

AV_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *new)
{
	limits_look((int)resource, new->rlim_cur == RLIM_INFINITY);
	return NEXT(setrlimit)(resource, new);
}

AV_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *new)
{
	limits_look((int)resource, new->rlim_cur == RLIM64_INFINITY);
	return NEXT(setrlimit64)(resource, new);
}

AV_EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *new,
		      struct rlimit *old)
{
	if (new != (void *)0 && limits_are_ours(pid))
		limits_look((int)resource, new->rlim_cur == RLIM_INFINITY);
	return NEXT(prlimit)(pid, resource, new, old);
}

AV_EXPORT int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *new,
			struct rlimit64 *old)
{
	if (new != (void *)0 && limits_are_ours(pid))
		limits_look((int)resource, new->rlim_cur == RLIM64_INFINITY);
	return NEXT(prlimit64)(pid, resource, new, old);
}

/* A limit of locked memory would have all that is reserved under it. */
AV_EXPORT int mlockall(int flags)
{
	born_retire();
	return NEXT(mlockall)(flags);
}
