/* log_test.c: silent unless asked; one whole line per message; errno is left alone. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The log's own source: the level is read once per process, each case needs it anew. */
#include "log.c"

static char test_said[4096];

/* Runs one message at each level with ANYVERBS_LOG as given, and keeps what came out of standard
 * error. */
static void test_say(const char *wish, const char *text)
{
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
	dup2(fds[1], STDERR_FILENO);
	if (wish)
		setenv("ANYVERBS_LOG", wish, 1);
	else
		unsetenv("ANYVERBS_LOG");
	log_level_cached = -1;
	errno = EXDEV;
	log_error("room", "E %s", text);
	log_warn("room", "W %s", text);
	log_info("room", "I %s", text);
	log_debug("room", "D %s", text);
	assert_int_equal(errno, EXDEV);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	n = read(fds[0], test_said, sizeof(test_said) - 1);
	test_said[MAX(n, 0)] = '\0';
	close(fds[0]);
}

static int test_lines(void)
{
	int lines = 0;

	for (const char *p = test_said; *p; p++)
		lines += *p == '\n';
	return lines;
}

static void log_at__is_silent_unless_asked(void **state)
{
	test_say(NULL, "x");
	assert_string_equal(test_said, "");
	test_say("nonsense", "x");
	assert_string_equal(test_said, "");
	test_say("none", "x");
	assert_string_equal(test_said, "");
}

static void log_at__prints_up_to_the_level(void **state)
{
	test_say("warn", "text 1");
	assert_int_equal(test_lines(), 2);
	assert_non_null(strstr(test_said, "error: room: E text 1\n"));
	assert_non_null(strstr(test_said, "warn: room: W text 1\n"));
	test_say("DEBUG", "text 2");
	assert_int_equal(test_lines(), 4);
}

static void log_print__cuts_long_lines(void **state)
{
	char text[2000];

	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	test_say("error", text);
	assert_int_equal(test_lines(), 1);
	assert_true(strlen(test_said) < 600);
	assert_int_equal(test_said[strlen(test_said) - 1], '\n');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_at__is_silent_unless_asked),
		cmocka_unit_test(log_at__prints_up_to_the_level),
		cmocka_unit_test(log_print__cuts_long_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
