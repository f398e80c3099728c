/* env_test.c: what variables of the environment mean, and what is said of those that mean
 * nothing. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"

#define NAME "ANYVERBS_DIRECT"

static const char *const words[] = { "shm", "udp", NULL };
static int real_error, file;

/* What is written to standard error from now on is kept. */
static int set_up(void **state)
{
	char path[] = "/tmp/env-test-XXXXXX";

	file = mkstemp(path);
	unlink(path);
	real_error = dup(STDERR_FILENO);
	return file < 0 || dup2(file, STDERR_FILENO) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	dup2(real_error, STDERR_FILENO);
	close(real_error);
	close(file);
	unsetenv(NAME);
	return 0;
}

/* What has been said since, with all of `what` in it; NULL: nothing has. */
static void expect_said(const char *const *what)
{
	char text[1024] = "";
	ssize_t n = pread(file, text, sizeof(text) - 1, 0);

	assert_true(n >= 0);
	assert_int_equal(ftruncate(file, 0), 0);
	lseek(file, 0, SEEK_SET);
	if (what == NULL)
		assert_string_equal(text, "");
	for (; what != NULL && *what != NULL; what++)
		if (strstr(text, *what) == NULL)
			fail_msg("%s is not in: %s", *what, text);
}

static void set(const char *value)
{
	setenv(NAME, value, 1);
}

static void env_is_on__takes_0_and_1(void **state)
{
	static const char *const bad[] = { "yes", "2", "00", "01", " 1", "1 ", "-1", "off", "\n" };
	const char *said[] = { NAME "=", "0 or 1", NULL };

	assert_true(env_is_on(NAME, true));
	assert_false(env_is_on(NAME, false));
	set("0");
	assert_false(env_is_on(NAME, true));
	set("1");
	assert_true(env_is_on(NAME, false));
	set("");
	assert_true(env_is_on(NAME, true));
	expect_said(NULL);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		set(bad[i]);
		assert_true(env_is_on(NAME, true));
		expect_said(said);
		assert_false(env_is_on(NAME, false));
		expect_said(said);
	}
}

static void env_number__takes_what_fits(void **state)
{
	static const char *const bad[] = { "9", "x", "1x", "-1", "+1", " 1", "0x1", "4294967297",
					   "99999999999999999999999999", "1.5" };
	const char *said[] = { NAME "=", "a number from 0 to 8", NULL };

	assert_int_equal(env_number(NAME, 8, 5), 5);
	set("8");
	assert_int_equal(env_number(NAME, 8, 5), 8);
	set("000");
	assert_int_equal(env_number(NAME, 8, 5), 0);
	set("4294967295");
	assert_int_equal(env_number(NAME, UINT32_MAX, 5), UINT32_MAX);
	expect_said(NULL);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		set(bad[i]);
		assert_int_equal(env_number(NAME, 8, 5), 5);
		expect_said(said);
	}
}

static void env_words__takes_those_that_are_known(void **state)
{
	static const char *const bad[] = {
		"tcp", "shm,tcp", "shmudp", "SHM", ",", "shm;udp", "sh"
	};
	const char *said[] = { NAME "=", "one or more of shm udp", NULL };

	assert_int_equal(env_words(NAME, words, 9), 9);
	set("udp");
	assert_int_equal(env_words(NAME, words, 9), 2);
	set("udp,shm");
	assert_int_equal(env_words(NAME, words, 9), 3);
	set(" shm, udp ,");
	assert_int_equal(env_words(NAME, words, 9), 3);
	expect_said(NULL);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		set(bad[i]);
		assert_int_equal(env_words(NAME, words, 9), 9);
		expect_said(said);
	}
}

static void env_seconds__takes_what_time_may_be(void **state)
{
	static const char *const bad[] = { "-1", "-0.5", "nan", "x", "5s", "1,5", "Never", "1 " };
	static const char *const ever[] = { "never", "inf", "1e10" };
	const char *said[] = { NAME "=", "a number of seconds, or never", NULL };

	assert_int_equal(env_seconds(NAME, 7), 7);
	set("0.25");
	assert_int_equal(env_seconds(NAME, 7), 250000000);
	set("0");
	assert_int_equal(env_seconds(NAME, 7), 0);
	for (size_t i = 0; i < ARRAY_LEN(ever); i++) {
		set(ever[i]);
		assert_true(env_seconds(NAME, 7) == UINT64_MAX);
	}
	expect_said(NULL);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		set(bad[i]);
		assert_int_equal(env_seconds(NAME, 7), 7);
		expect_said(said);
	}
}

static void env_means__leaves_what_it_cannot_tell(void **state)
{
	bool on = true;
	u32 n = 9, found = 9;
	u64 ns = 9;

	assert_false(env_means_switch("2", &on));
	assert_false(env_means_number("33", 32, &n));
	assert_false(env_means_number("", 32, &n));
	assert_false(env_means_words("shm tcp", words, &found));
	assert_false(env_means_seconds("-1", &ns));
	assert_true(on && n == 9 && found == 9 && ns == 9);
	assert_true(env_means_words("shm udp", words, &found) && found == 3);
	expect_said(NULL);
}

static void env_refuse__keeps_to_a_line(void **state)
{
	static char longest[100000];
	const char *said[] = { "it takes 0 or 1", NULL };

	memset(longest, 'x', sizeof(longest) - 1);
	set(longest);
	env_is_on(NAME, true);
	expect_said(said);
}

static void env_means_ports__takes_numbers_or_all(void **state)
{
	static const struct {
		const char *value;
		bool means, named; /* 80 */
	} rows[] = {
		{ "80", true, true },	    { "443, 80,", true, true }, { "all", true, true },
		{ "443", true, false },	    { "8080", true, false },	{ "80x", false, false },
		{ "80,none", false, false }, { "", false, false },	{ ",", false, false },
		{ "0", false, false },	    { "65536", false, false },	{ "-80", false, false },
	};
	bool named;

	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		named = false;
		assert_int_equal(env_means_ports(rows[i].value, 80, &named), rows[i].means);
		assert_int_equal(named, rows[i].named);
	}
}

#define ENV_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENV_TEST(env_is_on__takes_0_and_1),
		ENV_TEST(env_number__takes_what_fits),
		ENV_TEST(env_words__takes_those_that_are_known),
		ENV_TEST(env_seconds__takes_what_time_may_be),
		ENV_TEST(env_means_ports__takes_numbers_or_all),
		ENV_TEST(env_means__leaves_what_it_cannot_tell),
		ENV_TEST(env_refuse__keeps_to_a_line),
	};

	setenv("ANYVERBS_LOG", "error", 1);
	return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
