/* fork.c: what fork() does to registered memory: nothing.
 *
 * No pages are pinned here. A peer writes through the page tables of the process that registered
 * the memory, so after a fork copy-on-write treats its writes like the parent's own: the child
 * keeps its copy, the parent sees the data. Ranges need no MADV_DONTFORK, and ibv_fork_init may
 * come before or after a registration.
 * Runs: any thread
 * Locks: none
 */
#include "door.h"

AV_EXPORT int ibv_dontfork_range(void *base, size_t size);
AV_EXPORT int ibv_dofork_range(void *base, size_t size);

AV_EXPORT int ibv_fork_init(void)
{
	return 0;
}

AV_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
