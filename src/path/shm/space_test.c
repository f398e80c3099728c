/* space_test.c: copies into an address space: what arrives, in which order, and when nothing does.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "path/shm/board.h"
#include "path/shm/space.h"

enum { PAGE = 4096, PIECES = 40, LENGTH = 3 * PAGE };

static u64 nonce = 0x1234567;
static u8 there[LENGTH + 16], here[LENGTH];

static int open_own(void)
{
	int fd = space_open(getpid(), (u64)(uintptr_t)&nonce, nonce);

	assert_true(fd >= 0);
	return fd;
}

/* Cuts `here` into pieces that get longer, the last one takes the rest; some are empty. */
static int cut(struct iovec *iov, u64 length, int count)
{
	u8 *at = here;

	for (int i = 0; i < count; i++) {
		u64 k = i == count - 1 ? length : MIN(length, (u64)(i % 7) * (u64)i);

		iov[i] = (struct iovec){ at, k };
		at += k;
		length -= k;
	}
	return count;
}

static void fill(u8 *p, size_t n, u32 seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (u8)(seed + i * 31 + i / 251);
}

static void space_write__all_bytes_of_all_pieces(void **state)
{
	int fd = open_own();
	struct iovec iov[PIECES];

	for (u64 length = 1; length <= LENGTH; length += length < 40 ? 1 : 397)
		for (int count = 1; count <= PIECES; count += 3) {
			fill(here, length, (u32)length + (u32)count);
			memset(there, 0, sizeof(there));
			cut(iov, length, count);
			assert_int_equal(space_write(fd, (u64)(uintptr_t)there + 3, length, iov),
					 0);
			assert_memory_equal(there + 3, here, length);
			assert_int_equal(there[2] | there[length + 3], 0);
		}
	close(fd);
}

static void space_read__all_bytes_of_all_pieces(void **state)
{
	int fd = open_own();
	struct iovec iov[PIECES];
	const struct iovec from[] = { { there + 1000, 1 },
				      { there, 0 },
				      { there + 5, 900 },
				      { there + 2000, LENGTH - 2000 } };
	u64 length = 1 + 900 + LENGTH - 2000;

	fill(there, sizeof(there), 9);
	for (int count = 1; count <= PIECES; count++) {
		memset(here, 0, sizeof(here));
		cut(iov, length, count);
		assert_int_equal(space_read(fd, from, 4, iov), 0);
		assert_int_equal(here[0], there[1000]);
		assert_memory_equal(here + 1, there + 5, 900);
		assert_memory_equal(here + 901, there + 2000, LENGTH - 2000);
	}
	close(fd);
}

/* Two pages, of which the one or the other is missing. */
static u8 *half(bool first)
{
	u8 *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(munmap(first ? p + PAGE : p, PAGE), 0);
	return p;
}

/* The end of the message lies in a page that is there, what comes before it does not. */
static void space_write__the_end_after_the_rest(void **state)
{
	int fd = open_own();
	struct iovec iov[2] = { { here, 60 }, { here + 60, 4 } };
	u8 *p = half(false);

	fill(here, 64, 1);
	assert_int_equal(space_write(fd, (u64)(uintptr_t)p + PAGE - 56, 64, iov), -EIO);
	for (int i = 0; i < 8; i++)
		assert_int_equal(p[PAGE + i], 0);
	munmap(p + PAGE, PAGE);
	p = half(true);
	assert_int_equal(space_write(fd, (u64)(uintptr_t)p + PAGE - 56, 64, iov), -EIO);
	assert_memory_equal(p + PAGE - 56, here, 56);
	munmap(p, PAGE);
	close(fd);
}

static void space_write__says_whose_memory_is_missing(void **state)
{
	int fd = open_own();
	u8 *p = half(true);
	struct iovec iov = { p + PAGE - 4, 8 };

	assert_int_equal(space_write(fd, (u64)(uintptr_t)there, 8, &iov), -EFAULT);
	iov.iov_base = here;
	assert_int_equal(space_write(fd, (u64)(uintptr_t)p + PAGE, 8, &iov), -EIO);
	munmap(p, PAGE);
	close(fd);
}

/* As an adapter does, which has the pages pinned: shared memory refuses it. */
static void space_write__goes_past_a_protection(void **state)
{
	int fd = open_own();
	struct iovec iov = { here, 8 };
	u8 *own = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u8 *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int err;

	assert_true(own != MAP_FAILED && shared != MAP_FAILED);
	fill(here, 8, 5);
	err = space_write(fd, (u64)(uintptr_t)own, 8, &iov);
	/* A system may forbid it (proc_mem.force_override). */
	assert_true(err == 0 ? memcmp(own, here, 8) == 0 : err == -EIO && own[0] == 0);
	assert_int_equal(space_write(fd, (u64)(uintptr_t)shared, 8, &iov), -EIO);
	assert_int_equal(shared[0], 0);
	munmap(own, PAGE);
	munmap(shared, PAGE);
	close(fd);
}

static void space_open__refuses_another_nonce(void **state)
{
	assert_int_equal(space_open(getpid(), (u64)(uintptr_t)&nonce, nonce + 1), -ESRCH);
	assert_int_equal(space_open(getpid(), 8, nonce), -EIO);
	assert_int_equal(space_open(0, (u64)(uintptr_t)&nonce, nonce), -ESRCH);
	assert_int_equal(space_open(1 << 30, (u64)(uintptr_t)&nonce, nonce), -ENOENT);
}

/* A child that waits for a byte, and then goes away in the way of its number. */
static pid_t child_make(int to[2], bool execs)
{
	pid_t child;
	char byte;

	assert_int_equal(pipe(to), 0);
	child = fork();
	assert_true(child >= 0);
	if (child != 0)
		return child;
	if (read(to[0], &byte, 1) != 1)
		_exit(1);
	if (execs) /* waits for another byte */
		execl("/bin/sh", "sh", "-c", "read x <&$0; exit 0", "0", NULL);
	_exit(0);
}

static void check_nothing_arrives(bool execs)
{
	struct iovec iov = { here, 8 };
	int to[2], fd, err = 0;
	pid_t child = child_make(to, execs);

	fd = space_open(child, (u64)(uintptr_t)&nonce, nonce);
	assert_true(fd >= 0);
	assert_int_equal(space_write(fd, (u64)(uintptr_t)there, 8, &iov), 0);
	assert_int_equal(write(to[1], "\n", 1), 1);
	if (!execs)
		assert_int_equal(waitpid(child, NULL, 0), child);
	for (int i = 0; i < 10000 && err == 0; i++) {
		err = space_write(fd, (u64)(uintptr_t)there, 8, &iov);
		usleep(1000);
	}
	assert_int_equal(err, -EIO);
	iov = (struct iovec){ here, 8 };
	assert_int_equal(space_read(fd, &iov, 1, &iov), -EIO);
	close(fd);
	close(to[1]);
	close(to[0]);
	if (execs)
		assert_int_equal(waitpid(child, NULL, 0), child);
}

static void space_write__nothing_after_exec(void **state)
{
	check_nothing_arrives(true);
}

static void space_write__nothing_after_exit(void **state)
{
	check_nothing_arrives(false);
}

/* A child has its parent's memory, and not its board's nonce. */
static void board_nonce__is_not_inherited(void **state)
{
	int board_fd, err, to[2], fd;
	struct board *b = board_create(&board_fd, &err);
	pid_t child;

	assert_non_null(b);
	fd = space_open(getpid(), b->nonce_addr, b->nonce);
	assert_true(fd >= 0);
	close(fd);
	child = child_make(to, false);
	assert_int_equal(space_open(child, b->nonce_addr, b->nonce), -ESRCH);
	assert_int_equal(write(to[1], "\n", 1), 1);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(to[0]);
	close(to[1]);
	board_unmap(b);
	close(board_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(space_write__all_bytes_of_all_pieces),
		cmocka_unit_test(space_read__all_bytes_of_all_pieces),
		cmocka_unit_test(space_write__the_end_after_the_rest),
		cmocka_unit_test(space_write__says_whose_memory_is_missing),
		cmocka_unit_test(space_write__goes_past_a_protection),
		cmocka_unit_test(space_open__refuses_another_nonce),
		cmocka_unit_test(space_write__nothing_after_exec),
		cmocka_unit_test(space_write__nothing_after_exit),
		cmocka_unit_test(board_nonce__is_not_inherited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
