/* begin.c: reserves the arena before the program begins.
 * In: nothing    Out: its bounds    Runs: the only thread    Locks: none
 */
#include "born_next.h"

u64 born_base, born_end;

__attribute__((constructor)) static void begin_arena(void)
{
	u64 base, end;

	if (!born_begin())
		return;
	born_bounds(&base, &end);
	born_base = base;
	born_end = end;
}
