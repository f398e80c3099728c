/* mistakes.h: one line per call of Linux 6.1's level and mistake, with the answer. names_test.py
 * holds the table of docs/linux-6.1.md to these lines. */
#ifndef TEST_CONTRACT_MISTAKES_H
#define TEST_CONTRACT_MISTAKES_H

#include "rig.h"

static int mistakes_wrong;

static inline void mistake_check(const char *call, const char *mistake, long want, long got)
{
	if (got == want)
		return;
	print_error("%s, %s: %ld, not %ld\n", call, mistake, got, want);
	mistakes_wrong++;
}

/* `expression`, an int or a pointer, is the answer: 0, a count, or a negative errno. */
#define ANSWERS(call, mistake, answer, expression)                                                 \
	mistake_check(#call, mistake, (long)(answer), (long)(expression))
/* It is no mistake here: `expression` is true if the call gives `what`. */
#define GIVES(call, mistake, what, expression)                                                     \
	mistake_check(#call, mistake ": " what, true, (expression) != 0)
/* The call has no result. `after` is true when nothing has happened. */
#define NOTHING(call, mistake, expression, after)                                                  \
	do {                                                                                       \
		expression;                                                                        \
		mistake_check(#call, mistake, true, (after) != 0);                                 \
	} while (0)
/* It stays, and a warning says so. */
#define STAYS(call, mistake, expression, after)                                                    \
	do {                                                                                       \
		expression;                                                                        \
		mistake_check(#call, mistake, true, (after) != 0);                                 \
	} while (0)

#define mistakes_assert_none()                                                                     \
	do {                                                                                       \
		assert_int_equal(mistakes_wrong, 0);                                               \
	} while (0)

#endif
