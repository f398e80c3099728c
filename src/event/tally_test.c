/* tally_test.c: counting without ever waiting, also where the kernel cannot read without
 * waiting. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

static int scarce_errno; /* what preadv2 fails with, unless 0 */

static ssize_t scarce_preadv2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	if (scarce_errno == 0)
		return preadv2(fd, iov, n, offset, flags);
	errno = scarce_errno;
	return -1;
}

/* The tally's own source, so that the call can be made to fail. */
#define preadv2 scarce_preadv2
#include "tally.c"
#undef preadv2

static bool test_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void test_count(int fd)
{
	assert_true(fd >= 0);
	errno = EXDEV;
	tally_take(fd, 1); /* nothing there: would hang if it waited */
	tally_add(fd);
	tally_add(fd);
	tally_add(fd);
	tally_take(fd, 2);
	assert_true(test_readable(fd));
	tally_take(fd, UINT32_MAX);
	assert_false(test_readable(fd));
	assert_int_equal(errno, EXDEV);
}

static void tally_take__never_waits_whatever_the_kernel_knows(void **state)
{
	static const int errors[] = { 0, EOPNOTSUPP, EPERM, ENOSYS };

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		int fd = tally_open();

		scarce_errno = errors[i];
		test_count(fd);
		assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
		test_count(fd);
		close(fd);
	}
	scarce_errno = 0;
}

static void tally_take__survives_a_closed_descriptor(void **state)
{
	int fd = tally_open();

	close(fd);
	tally_add(fd);
	tally_take(fd, 3);
	tally_renew(fd, 3);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void tally_renew__parts_from_the_copy_and_keeps_the_flags(void **state)
{
	int fd = tally_open(), copy = dup(fd);

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
	tally_add(fd);
	tally_renew(fd, 2);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	tally_take(copy, 1);
	assert_false(test_readable(copy));
	tally_take(fd, 1);
	assert_true(test_readable(fd));
	tally_take(fd, 1);
	assert_false(test_readable(fd));
	close(fd);
	close(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tally_take__never_waits_whatever_the_kernel_knows),
		cmocka_unit_test(tally_take__survives_a_closed_descriptor),
		cmocka_unit_test(tally_renew__parts_from_the_copy_and_keeps_the_flags),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
