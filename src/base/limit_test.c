/* limit_test.c: which limits are named behind a refusal, and how often it is said. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limit.h"
#include "base/log.h"
#include "base/process_test.h"

/* So large that nothing meets them. */
enum { TEST_AS = 0, TEST_DATA = 1, TEST_FSIZE = 2 };
static const rlim_t test_large = (rlim_t)1 << 50;

static const int test_resources[] = { RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE };

static void test_set(int which, rlim_t value)
{
	struct rlimit r;

	assert_int_equal(getrlimit((__rlimit_resource_t)test_resources[which], &r), 0);
	r.rlim_cur = MIN(value, r.rlim_max);
	assert_int_equal(setrlimit((__rlimit_resource_t)test_resources[which], &r), 0);
}

static int test_unlimited(void **state)
{
	for (int i = TEST_AS; i <= TEST_FSIZE; i++)
		test_set(i, RLIM_INFINITY);
	return 0;
}

static void limit_behind__names_those_that_are_set(void **state)
{
	char text[LIMIT_TEXT];

	assert_string_equal(limit_behind(ENOMEM, text), "");
	test_set(TEST_DATA, test_large);
	assert_string_equal(limit_behind(ENOMEM, text), "RLIMIT_DATA is 1125899906842624");
	test_set(TEST_AS, test_large);
	assert_string_equal(limit_behind(ENOMEM, text),
			    "RLIMIT_AS is 1125899906842624, RLIMIT_DATA is 1125899906842624");
	assert_string_equal(limit_behind(EFBIG, text), "");
	test_set(TEST_FSIZE, test_large);
	assert_string_equal(limit_behind(EFBIG, text), "RLIMIT_FSIZE is 1125899906842624");
	assert_string_equal(limit_behind(EPERM, text), "");
}

/* The C library says EAGAIN also of a stack that finds no room. */
static void limit_behind__thread_may_lack_address_space(void **state)
{
	char text[LIMIT_TEXT];

	limit_behind(EAGAIN, text);
	assert_null(strstr(text, "RLIMIT_AS"));
	test_set(TEST_AS, test_large);
	assert_ptr_equal(strstr(limit_behind(EAGAIN, text), "RLIMIT_AS is 1125899906842624"), text);
}

/* What is said, and by whom. */
struct saying {
	pid_t said;
	int err;
};

static void test_say(void *arg)
{
	struct saying *s = arg;

	limit_say(&s->said, "test", "no thing", s->err);
}

static void limit_say__unasked_once(void **state)
{
	struct saying s = { .err = -ENFILE };
	char text[512];

	if (log_level_get() != LOG_NONE)
		skip();
	hear(test_say, &s, text, sizeof(text));
	assert_non_null(strstr(text, "error: test: no thing: Too many open files in system\n"));
	hear(test_say, &s, text, sizeof(text));
	assert_string_equal(text, "");
	s.said = getppid(); /* a forked child says it anew */
	test_set(TEST_AS, test_large);
	s.err = -ENOMEM;
	hear(test_say, &s, text, sizeof(text));
	assert_non_null(strstr(text, ": Cannot allocate memory (RLIMIT_AS is 1125899906842624)\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(limit_behind__names_those_that_are_set, test_unlimited),
		cmocka_unit_test_setup(limit_behind__thread_may_lack_address_space, test_unlimited),
		cmocka_unit_test_setup(limit_say__unasked_once, test_unlimited),
	};

	return cmocka_run_group_tests(tests, NULL, test_unlimited);
}
