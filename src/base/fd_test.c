/* fd_test.c: numbers of the library's own descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"

static int test_open(void)
{
	int fd = open("/dev/null", O_RDWR);

	assert_true(fd >= 0 && fd < FD_OWN_FIRST);
	return fd;
}

static bool test_is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void fd_own__leaves_the_low_number_to_the_program(void **state)
{
	int low = test_open(), fd;
	struct stat before, after;

	assert_int_equal(fstat(low, &before), 0);
	errno = EXDEV;
	fd = fd_own(low);
	assert_int_equal(errno, EXDEV);
	assert_true(fd >= FD_OWN_FIRST);
	assert_false(test_is_open(low));
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(fd, &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(fd_own(fd), fd); /* it has such a number already */
	close(fd);
}

static void fd_own__passes_a_failure_on(void **state)
{
	errno = EXDEV;
	assert_int_equal(fd_own(-1), -1);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(fd_own(-ENOENT), -ENOENT);
}

static void fd_own__stays_low_where_the_limit_is(void **state)
{
	struct rlimit before, small;
	int low = test_open(), copy;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	small = (struct rlimit){ FD_OWN_FIRST, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	errno = EXDEV;
	assert_int_equal(fd_own(low), low);
	assert_int_equal(errno, EXDEV);
	assert_true(test_is_open(low));
	copy = fd_own_copy(low);
	assert_true(copy >= 0 && copy < FD_OWN_FIRST);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	close(copy);
	close(low);
}

static void fd_own_copy__leaves_the_original(void **state)
{
	int low = test_open(), copy = fd_own_copy(low);

	assert_true(copy >= FD_OWN_FIRST);
	assert_true(test_is_open(low));
	assert_int_equal(fcntl(copy, F_GETFD), FD_CLOEXEC);
	close(copy);
	close(low);
	assert_int_equal(fd_own_copy(low), -1);
	assert_int_equal(errno, EBADF);
}

/* In a child, since it is for the rest of the process' life. */
static void fd_shown__is_low_unless_a_layer_hides_it(void **state)
{
	int low = test_open(), status;
	pid_t pid;

	assert_int_equal(fd_shown(low), low);
	pid = fork();
	if (pid == 0) {
		fd_hide();
		_exit(fd_shown(low) >= FD_OWN_FIRST && !test_is_open(low) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(low);
}

static void fd_show_from__moves_what_is_shown(void **state)
{
	int first = FD_OWN_FIRST / 2, fd;

	fd_show_from(first);
	fd = fd_shown(test_open());
	assert_true(fd >= first && fd < FD_OWN_FIRST);
	assert_int_equal(fd_shown(fd), fd);
	close(fd);
	fd_show_from(0);
	fd = fd_shown(test_open());
	assert_true(fd < first);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fd_own__leaves_the_low_number_to_the_program),
		cmocka_unit_test(fd_own__passes_a_failure_on),
		cmocka_unit_test(fd_own__stays_low_where_the_limit_is),
		cmocka_unit_test(fd_own_copy__leaves_the_original),
		cmocka_unit_test(fd_show_from__moves_what_is_shown),
		cmocka_unit_test(fd_shown__is_low_unless_a_layer_hides_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
