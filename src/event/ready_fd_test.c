/* ready_fd_test.c: counting without ever waiting, also where the kernel cannot read without
 * waiting. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

/* The ready_fd's own source, so that the call can be made to fail. */
#define preadv2 scarce_preadv2
#include "ready_fd.c"
#undef preadv2

static bool test_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* As with a limit below the twins' numbers. */
static struct ready_fd test_open(bool with_twin)
{
	struct ready_fd t = { -1, -1 };

	assert_int_equal(ready_fd_open(&t), 0);
	assert_true(t.twin >= READY_FD_TWINS);
	if (!with_twin) {
		close(t.twin);
		__atomic_fetch_sub(&ready_fd_twins, 1, __ATOMIC_RELAXED);
		t.twin = -1;
	}
	return t;
}

static void test_count(const struct ready_fd *t)
{
	assert_true(t->fd >= 0);
	errno = EXDEV;
	ready_fd_take(t, 1); /* nothing there: would hang if it waited */
	ready_fd_add(t);
	ready_fd_add(t);
	ready_fd_add(t);
	ready_fd_take(t, 2);
	assert_true(test_readable(t->fd));
	ready_fd_take(t, UINT32_MAX);
	assert_false(test_readable(t->fd));
	assert_int_equal(errno, EXDEV);
}

static void ready_fd_take__never_waits_whatever_the_kernel_knows(void **state)
{
	static const int errors[] = { 0, EOPNOTSUPP, EPERM, ENOSYS };

	for (size_t i = 0; i < 2 * ARRAY_LEN(errors); i++) {
		struct ready_fd t = test_open(i % 2 == 0);

		scarce_errno = errors[i / 2];
		test_count(&t);
		assert_int_equal(fcntl(t.fd, F_SETFL, O_NONBLOCK), 0);
		test_count(&t);
		ready_fd_close(&t);
	}
	scarce_errno = 0;
}

/* The user closes the descriptor, and has `other` at its number. */
static void test_replace(const struct ready_fd *t, int other)
{
	assert_int_equal(dup2(other, t->fd), t->fd);
	close(other);
}

static void ready_fd_take__survives_a_closed_descriptor(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct ready_fd t = test_open(i == 0);
		int fd = t.fd;

		close(fd);
		ready_fd_add(&t);
		ready_fd_take(&t, 3);
		ready_fd_renew(&t, 3);
		assert_int_equal(fcntl(fd, F_GETFD), -1);
		ready_fd_close(&t);
	}
}

/* Not a byte goes to the file that has the number now, none is taken from it, and it stays open. */
static void ready_fd_add__leaves_a_reused_number_alone(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct ready_fd t = test_open(i == 0);
		int fd = t.fd, pair[2];
		char bytes[64];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		test_replace(&t, pair[0]);
		assert_int_equal(write(pair[1], "12345678", 8), 8);
		ready_fd_add(&t);
		ready_fd_take(&t, 1);
		ready_fd_renew(&t, 2);
		ready_fd_close(&t);
		assert_false(test_readable(pair[1]));
		assert_int_equal(read(fd, bytes, sizeof(bytes)), 8);
		close(fd);
		close(pair[1]);
	}
}

/* Another ready_fd has the number: it counts its own events only, and stays open. */
static void ready_fd_add__leaves_another_tally_alone(void **state)
{
	struct ready_fd gone = test_open(true), other;

	close(gone.fd);
	other = test_open(true);
	assert_int_equal(other.fd, gone.fd);
	ready_fd_add(&gone);
	ready_fd_renew(&gone, 1);
	assert_false(test_readable(other.fd));
	ready_fd_close(&gone);
	test_count(&other);
	ready_fd_close(&other);
	assert_int_equal(fcntl(gone.fd, F_GETFD), -1);
}

static void ready_fd_open__does_without_a_twin(void **state)
{
	struct rlimit before, low;
	struct ready_fd t;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = (struct rlimit){ READY_FD_TWINS, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(ready_fd_open(&t), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(t.twin, -1);
	test_count(&t);
	ready_fd_close(&t);
}

/* A program with many channels gets them for one descriptor each. */
static void ready_fd_open__takes_few_twins(void **state)
{
	enum { LIMIT = 2048, MOST = 1500 };
	static struct ready_fd many[MOST];
	struct rlimit before, low;
	u32 twins = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	if (before.rlim_max < LIMIT)
		skip();
	low = (struct rlimit){ LIMIT, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	for (u32 i = 0; i < MOST; i++) {
		assert_int_equal(ready_fd_open(&many[i]), 0);
		twins += many[i].twin >= 0;
	}
	assert_int_equal(twins, LIMIT / READY_FD_SHARE);
	test_count(&many[0]);
	test_count(&many[MOST - 1]);
	for (u32 i = 0; i < MOST; i++)
		ready_fd_close(&many[i]);
	many[0] = test_open(true); /* what is closed counts no more */
	assert_true(many[0].twin >= 0);
	ready_fd_close(&many[0]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void ready_fd_renew__parts_from_the_copy_and_keeps_the_flags(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct ready_fd t = test_open(i == 0), copy = { .fd = dup(t.fd), .twin = -1 };

		assert_int_equal(fcntl(t.fd, F_SETFL, O_NONBLOCK), 0);
		assert_int_equal(fcntl(t.fd, F_SETFD, 0), 0);
		ready_fd_add(&t);
		ready_fd_renew(&t, 2);
		assert_true(fcntl(t.fd, F_GETFL) & O_NONBLOCK);
		assert_int_equal(fcntl(t.fd, F_GETFD), 0);
		ready_fd_take(&copy, 1);
		assert_false(test_readable(copy.fd));
		ready_fd_take(&t, 1);
		assert_true(test_readable(t.fd));
		ready_fd_take(&t, 1);
		assert_false(test_readable(t.fd));
		ready_fd_close(&t);
		close(copy.fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ready_fd_take__never_waits_whatever_the_kernel_knows),
		cmocka_unit_test(ready_fd_take__survives_a_closed_descriptor),
		cmocka_unit_test(ready_fd_add__leaves_a_reused_number_alone),
		cmocka_unit_test(ready_fd_add__leaves_another_tally_alone),
		cmocka_unit_test(ready_fd_open__does_without_a_twin),
		cmocka_unit_test(ready_fd_open__takes_few_twins),
		cmocka_unit_test(ready_fd_renew__parts_from_the_copy_and_keeps_the_flags),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
