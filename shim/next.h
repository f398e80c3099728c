/* next.h: the function that a call would have reached without this shim. */
#ifndef PRELOAD_NEXT_H
#define PRELOAD_NEXT_H

/* Looks `name` up behind this library, once, and remembers it in *slot. Never NULL: an absent one
 * answers -1 with ENOSYS. Keeps errno. Any context, also before the library's constructors ran. */
void *next_find(void **slot, const char *name);

static inline void *next_get(void **slot, const char *name)
{
	void *fn = __atomic_load_n(slot, __ATOMIC_RELAXED); /* any thread stores the same value */

	return fn != (void *)0 ? fn : next_find(slot, name);
}

/* One slot per function; NEXT_RESOLVE fills it early, so that signal handlers need no lookup. */
#define NEXT_SLOT(name) static void *next_##name
#define NEXT(name) ((__typeof__(&name))next_get(&next_##name, #name))
#define NEXT_RESOLVE(name) ((void)next_find(&next_##name, #name))

#endif
