/* memory.h: runs two threads of the real code through every order in which memory may show their
 * steps.
 *
 * The rooms are compiled as for ThreadSanitizer, so that each access calls this file instead of
 * libtsan. The threads take turns before every load of what both touch. A store first waits in its
 * thread's buffer, and the other sees it later: never before what was stored before it into the
 * same place, and if it releases, never before anything that came before it. So do relaxed
 * exchanges; others are seen at once, but older stores need not be, unless the exchange releases. A
 * full fence waits until the buffer is empty. All choices are tried. So a missing fence is a run
 * that ends wrongly, whatever processor this runs on; a missing release or acquire is a race: two
 * accesses, one of them plain, that nothing orders.
 *
 * Not shown: loads that come early (a missing acquire is seen as a race instead); more than two
 * threads.
 */
#ifndef TEST_ORDER_MEMORY_H
#define TEST_ORDER_MEMORY_H

#include "base/compiler.h"

struct order {
	const char *name;
	/* What the two threads do; what they change is as before in the next run. */
	void (*thread[2])(void);
	/* Between two runs, for what no access of the rooms has changed (descriptors). */
	void (*begin)(void);
	/* After both have ended and all is visible: NULL, or what is wrong. */
	const char *(*judge)(void);
};

/* Tries everything: NULL, or what is wrong, with the steps that led there on standard error. */
const char *order_explore(const struct order *o);
/* Runs of the last exploration. */
u32 order_runs(void);

/* What the rooms call in place of memcpy and memmove. */
void *order_memcpy(void *to, const void *from, size_t size);
void *order_memmove(void *to, const void *from, size_t size);

#endif
