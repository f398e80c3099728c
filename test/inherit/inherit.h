/* inherit.h: calls of a forked child on what it has inherited. Each call runs in a child of its
 * own, so a crash or a hang names the call. After each the parent uses its objects.
 */
#ifndef TEST_INHERIT_INHERIT_H
#define TEST_INHERIT_INHERIT_H

#include <stdbool.h>

#include "../pairs/pairs.h"

/* Who calls. */
enum who {
	CHILD,	    /* a child, as its first call */
	ATTACHED,   /* a child that uses RDMA itself already */
	GRANDCHILD, /* the child of a child */
};

/* What a program gives the kit. */
struct inherit_bed {
	enum who last; /* all callers up to this one are asked */
	void (*attach)(void); /* in the child: makes and ends an object of its own */
	void (*works)(const char *after); /* in the parent: its objects work, or the program ends */
};

/* Makes the call in a child, and notes how the child ends. The call's errno must be `error`; ANY:
 * it may be any. */
#define CALL(error, ...)                                                                           \
	do {                                                                                       \
		if (inherit_begin(#__VA_ARGS__, error))                                            \
			inherit_end((long)(__VA_ARGS__),                                           \
				    __builtin_classify_type(__VA_ARGS__) == 5);                    \
	} while (0)
/* The same for a call that returns nothing. */
#define CALL_VOID(...)                                                                             \
	do {                                                                                       \
		if (inherit_begin(#__VA_ARGS__, 0)) {                                              \
			__VA_ARGS__;                                                               \
			inherit_end(0, false);                                                     \
		}                                                                                  \
	} while (0)

enum { ANY = -1 };

/* The objects that the calls until the next one are about. */
void inherit_about(const char *kind);
/* Runs `calls` for each caller. The exit status of the program. */
int inherit_run(const struct inherit_bed *bed, void (*calls)(void));
/* True in the child that is to make the call. */
bool inherit_begin(const char *call, int error);
/* Ends the child with the call's errno: of -1 or NULL that in errno, else the number itself. */
_Noreturn void inherit_end(long result, bool is_pointer);

#endif
