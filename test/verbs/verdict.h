/* verdict.h: tables of values with the errno that each of them gets, for tests of limits. */
#ifndef TEST_VERBS_VERDICT_H
#define TEST_VERBS_VERDICT_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A line of a table. */
struct line {
	const char *name;
	uint64_t value;
	int error; /* 0: taken */
};

static int verdict_wrong; /* lines of the table that were not as it says */

/* Notes what a call has answered to the value of a line. */
static inline void judge(const char *what, const struct line *l, int error)
{
	if (error == l->error)
		return;
	print_error("%s: %s = %#llx: errno %d instead of %d\n", what, l->name,
		    (unsigned long long)l->value, error, l->error);
	verdict_wrong++;
}

/* The end of a table: fails if a line was wrong. */
static inline void verdict(void)
{
	int count = verdict_wrong;

	verdict_wrong = 0;
	assert_int_equal(count, 0);
}

/* The errno of a call that returns a pointer, or 0; what it made goes to `destroy`. */
#define MADE(type, call, destroy)                                                                  \
	({                                                                                         \
		type *made_ = (errno = 0, (call));                                                 \
		int errno_ = made_ ? 0 : errno;                                                    \
		if (made_)                                                                         \
			assert_int_equal(destroy(made_), 0);                                       \
		errno_;                                                                            \
	})

#endif
