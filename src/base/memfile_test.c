/* memfile_test.c: the size, the marks, and the limit of file sizes. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memfile.h"

static void memfile_create__has_its_size_and_can_be_sealed(void **state)
{
	int fd = memfile_create("anyverbs-test", 12345);
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 12345);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	close(fd);
}

/* The signal that the kernel would send ends this program. */
static void memfile_create__asks_for_the_limit_first(void **state)
{
	struct rlimit before, small;
	int fd;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){ 4096, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(memfile_create("anyverbs-test", 4097), -EFBIG);
	fd = memfile_create("anyverbs-test", 4096);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memfile_create__has_its_size_and_can_be_sealed),
		cmocka_unit_test(memfile_create__asks_for_the_limit_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
