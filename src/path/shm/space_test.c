/* space_test.c: copies into an address space: what arrives, in which order, and when nothing does.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* Cuts memory into pieces that get longer, the last one takes the rest; some are empty. */
static int cut_at(u8 *at, struct iovec *iov, u64 length, int count)
{
	for (int i = 0; i < count; i++) {
		u64 k = i == count - 1 ? length : MIN(length, (u64)(i % 7) * (u64)i);

		iov[i] = (struct iovec){ at, k };
		at += k;
		length -= k;
	}
	return count;
}

static int cut(struct iovec *iov, u64 length, int count)
{
	return cut_at(here, iov, length, count);
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
		assert_int_equal(space_read(fd, NULL, from, 4, iov), 0);
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

/* ---- long reads, which name the process by its number ---- */

enum { LONG = 16 << 10, FIXED_AT = 0x10000000, FIXED_BYTES = 4 * LONG };

/* At an address that every program here has free. Its first 8 bytes may be a nonce, and the rest
 * is filled. */
static u8 *fixed_map(u64 first, u32 seed)
{
	u8 *p = mmap((void *)(uintptr_t)FIXED_AT, FIXED_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_ptr_equal(p, (void *)(uintptr_t)FIXED_AT);
	fill(p + 8, FIXED_BYTES - 8, seed);
	memcpy(p, &first, sizeof(first));
	return p;
}

static void fixed_unmap(u8 *p)
{
	assert_int_equal(munmap(p, FIXED_BYTES), 0);
}

/* Another process: that of a number, which has the nonce, while this one is that of the
 * descriptor. They differ in all bytes, so that what is read tells how it was. */
struct twin {
	u8 *memory, *ours, *theirs, *got; /* from `memory` + 8, as each has it; and what was read */
	struct space_owner owner;
	int fd, to[2];
};

static void twin_wait(int to, int done)
{
	char byte = 0;

	assert_int_equal(write(done, &byte, 1), 1);
	_exit(read(to, &byte, 1) != 1);
}

/* Ends the other process. */
static void twin_leave(const struct twin *t)
{
	assert_int_equal(write(t->to[1], "", 1), 1);
	assert_int_equal(waitpid(t->owner.pid, NULL, 0), t->owner.pid);
}

static void twin_end(struct twin *t)
{
	if (t->owner.pid != 0)
		twin_leave(t);
	close(t->to[0]);
	close(t->to[1]);
	close(t->fd);
	fixed_unmap(t->memory);
	free(t->got);
}

/* Where the kernel refuses the call, as a container's filter or Yama may, there is nothing to
 * see. */
static void twin_needs_the_call(struct twin *t)
{
	u64 found;
	const struct iovec from = { t->memory, sizeof(found) }, to = { &found, sizeof(found) };

	if (process_vm_readv(t->owner.pid, &to, 1, &from, 1, 0) >= 0)
		return;
	twin_end(t);
	skip();
}

static void twin_begin(struct twin *t)
{
	int done[2];
	char byte;

	t->memory = fixed_map(nonce, 1);
	t->got = calloc(3, FIXED_BYTES);
	t->ours = t->got + FIXED_BYTES;
	t->theirs = t->ours + FIXED_BYTES;
	fill(t->ours, FIXED_BYTES - 8, 1);
	fill(t->theirs, FIXED_BYTES - 8, 2);
	t->fd = space_open(getpid(), FIXED_AT, nonce);
	assert_true(t->fd >= 0);
	assert_int_equal(pipe(t->to) | pipe(done), 0);
	t->owner = (struct space_owner){ .pid = fork(), .nonce_addr = FIXED_AT, .nonce = nonce };
	assert_true(t->owner.pid >= 0);
	if (t->owner.pid == 0) {
		close(t->to[1]); /* so that it ends with this process */
		fill(t->memory + 8, FIXED_BYTES - 8, 2);
		twin_wait(t->to[0], done[1]);
	}
	assert_int_equal(read(done[0], &byte, 1), 1);
	close(done[0]);
	close(done[1]);
	twin_needs_the_call(t);
}

static int twin_read(struct twin *t, u64 length)
{
	const struct iovec from = { t->memory + 8, length }, to = { t->got, length };

	memset(t->got, 0, length);
	return space_read(t->fd, &t->owner, &from, 1, &to);
}

static void space_read__long_ones_by_the_number(void **state)
{
	struct twin t;

	twin_begin(&t);
	assert_int_equal(twin_read(&t, LONG - 1), 0);
	assert_memory_equal(t.got, t.ours, LONG - 1);
	assert_int_equal(t.owner.state, SPACE_UNTRIED);
	for (u64 length = LONG; length <= FIXED_BYTES - 8; length += LONG - 3) {
		assert_int_equal(twin_read(&t, length), 0);
		assert_memory_equal(t.got, t.theirs, length);
		assert_int_equal(t.got[length], 0);
	}
	assert_int_equal(t.owner.state, SPACE_SERVES);
	twin_end(&t);
}

/* Each piece there goes by its own length, wherever the pieces here begin and end. */
static void space_read__long_and_short_pieces(void **state)
{
	struct iovec to[PIECES];
	struct twin t;

	twin_begin(&t);
	const struct iovec from[] = { { t.memory + 8, 100 },
				      { t.memory + 8, LONG },
				      { t.memory + 108, 7 },
				      { t.memory + 9, LONG + 1 } };

	for (int count = 1; count <= PIECES; count++) {
		memset(t.got, 0, FIXED_BYTES);
		cut_at(t.got, to, 100 + LONG + 7 + LONG + 1, count);
		assert_int_equal(space_read(t.fd, &t.owner, from, 4, to), 0);
		assert_memory_equal(t.got, t.ours, 100);
		assert_memory_equal(t.got + 100, t.theirs, LONG);
		assert_memory_equal(t.got + 100 + LONG, t.ours + 100, 7);
		assert_memory_equal(t.got + 107 + LONG, t.theirs + 1, LONG + 1);
		assert_int_equal(t.got[108 + 2 * LONG], 0);
	}
	twin_end(&t);
}

/* It had the number from the beginning (another PID namespace), or has it by now. */
static void space_read__discards_another_process(void **state)
{
	for (u32 tried = SPACE_UNTRIED; tried <= SPACE_SERVES; tried++) {
		struct twin t;

		twin_begin(&t);
		t.owner.state = tried;
		t.owner.nonce = nonce + 1;
		assert_int_equal(twin_read(&t, LONG), 0);
		assert_memory_equal(t.got, t.ours, LONG);
		assert_int_equal(t.owner.state, SPACE_REFUSED);
		t.owner.nonce = nonce; /* it would serve now, but is not tried again */
		assert_int_equal(twin_read(&t, LONG), 0);
		assert_memory_equal(t.got, t.ours, LONG);
		twin_end(&t);
	}
}

/* What is copied takes the nonce's place: the process was the right one before, and not after. */
static void space_read__judges_after_the_copy(void **state)
{
	struct twin t;
	u64 *own;

	twin_begin(&t);
	own = (u64 *)(void *)(t.got + LONG - 16);
	const struct iovec from = { t.memory + 8, LONG }, to = { t.got, LONG };
	struct space_owner o = { .pid = getpid(),
				 .nonce_addr = (u64)(uintptr_t)own,
				 .nonce = nonce };
	int fd = space_open(t.owner.pid, FIXED_AT, nonce);

	assert_true(fd >= 0);
	*own = nonce;
	assert_int_equal(space_read(fd, &o, &from, 1, &to), 0);
	assert_int_equal(o.state, SPACE_REFUSED);
	assert_memory_equal(t.got, t.theirs, LONG);
	close(fd);
	twin_end(&t);
}

static void space_read__nothing_of_a_process_that_has_ended(void **state)
{
	struct twin t;
	int fd;

	twin_begin(&t);
	fd = space_open(t.owner.pid, FIXED_AT, nonce);
	assert_true(fd >= 0);
	assert_int_equal(twin_read(&t, LONG), 0);
	close(t.fd);
	t.fd = fd;
	assert_int_equal(kill(t.owner.pid, SIGKILL), 0);
	assert_int_equal(waitpid(t.owner.pid, NULL, 0), t.owner.pid);
	assert_int_equal(twin_read(&t, LONG), -EIO);
	assert_int_equal(t.owner.state, SPACE_REFUSED);
	t.owner.pid = 0;
	twin_end(&t);
}

/* The same number, and the same addresses, of another program. */
static void space_read__nothing_after_exec(void **state)
{
	struct twin t;
	int fd, done[2];
	char byte, to[16], told[16];

	twin_begin(&t);
	twin_leave(&t); /* for one that runs another program at the first byte */
	assert_int_equal(pipe(done), 0);
	snprintf(to, sizeof(to), "%d", t.to[0]);
	snprintf(told, sizeof(told), "%d", done[1]);
	t.owner.pid = fork();
	assert_true(t.owner.pid >= 0);
	if (t.owner.pid == 0) {
		close(t.to[1]);
		if (read(t.to[0], &byte, 1) == 1)
			execl("/proc/self/exe", "space_test", to, told, NULL);
		_exit(1);
	}
	fd = space_open(t.owner.pid, FIXED_AT, nonce);
	assert_true(fd >= 0);
	close(t.fd);
	t.fd = fd;
	assert_int_equal(twin_read(&t, LONG), 0);
	assert_int_equal(t.owner.state, SPACE_SERVES);
	assert_int_equal(write(t.to[1], "", 1), 1);
	assert_int_equal(read(done[0], &byte, 1), 1);
	assert_int_equal(twin_read(&t, LONG), -EIO);
	assert_int_equal(t.owner.state, SPACE_REFUSED);
	close(done[0]);
	close(done[1]);
	twin_end(&t);
}

/* As the descriptor has it; the next read may go by the number again. */
static void space_read__long_ones_that_are_not_all_mapped(void **state)
{
	struct twin t;
	u8 *p = half(true);
	int fd;

	twin_begin(&t);
	fd = space_open(t.owner.pid, FIXED_AT, nonce);
	assert_true(fd >= 0);
	const struct iovec from = { t.memory + FIXED_BYTES - LONG, 2 * LONG };
	const struct iovec to = { t.got, 2 * LONG };
	const struct iovec gone = { p + PAGE, LONG }, good = { t.memory + 8, LONG };

	assert_int_equal(space_read(fd, &t.owner, &good, 1, &to), 0);
	assert_int_equal(space_read(fd, &t.owner, &from, 1, &to), -EIO);
	assert_memory_equal(t.got, t.theirs + FIXED_BYTES - LONG - 8, LONG);
	assert_int_equal(space_read(fd, &t.owner, &good, 1, &gone), -EFAULT);
	assert_int_equal(space_read(fd, &t.owner, &gone, 1, &to), -EIO);
	assert_int_equal(t.owner.state, SPACE_SERVES);
	munmap(p, PAGE);
	close(fd);
	twin_end(&t);
}

/* Has the kernel refuse process_vm_readv to this process. */
static void refuse_number(u32 err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = { ARRAY_LEN(code), code };

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

static void space_read__by_the_descriptor_if_the_kernel_refuses(void **state)
{
	static const int errs[] = { EPERM, ENOSYS };
	struct twin t;

	twin_begin(&t);
	for (size_t i = 0; i < ARRAY_LEN(errs); i++)
		for (u32 tried = SPACE_UNTRIED; tried <= SPACE_SERVES; tried++) {
			pid_t child = fork();
			int status;

			assert_true(child >= 0);
			if (child == 0) { /* t.fd stays its parent's */
				refuse_number((u32)errs[i]);
				t.owner.state = tried;
				_exit(twin_read(&t, LONG) != 0 ||
				      memcmp(t.got, t.ours, LONG) != 0 ||
				      t.owner.state != SPACE_REFUSED);
			}
			assert_int_equal(waitpid(child, &status, 0), child);
			assert_int_equal(status, 0);
		}
	twin_end(&t);
}

/* The kernel stores within a piece in an order of its own. */
static void space_pieces__of_each_copy_the_last_word_last(void **state)
{
	static const size_t lengths[] = { 1, 8, 9, 100 };
	static const size_t expected[] = { 1, 8, 1, 8, 92, 8 };
	struct iovec copy[ARRAY_LEN(lengths)], part[2 * SPACE_JOINED];
	u8 memory[128], *at = memory;

	for (size_t i = 0; i < ARRAY_LEN(lengths); at += lengths[i++])
		copy[i] = (struct iovec){ at, lengths[i] };
	assert_int_equal(space_pieces(copy, ARRAY_LEN(copy), part), ARRAY_LEN(expected));
	at = memory;
	for (size_t i = 0; i < ARRAY_LEN(expected); at += expected[i++]) {
		assert_ptr_equal(part[i].iov_base, at);
		assert_int_equal(part[i].iov_len, expected[i]);
	}
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
	assert_int_equal(space_read(fd, NULL, &iov, 1, &iov), -EIO);
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

/* What space_read__nothing_after_exec has become. */
static int main_after_exec(int to, int done)
{
	fixed_map(0, 3);
	twin_wait(to, done);
	return 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(space_write__all_bytes_of_all_pieces),
		cmocka_unit_test(space_read__all_bytes_of_all_pieces),
		cmocka_unit_test(space_write__the_end_after_the_rest),
		cmocka_unit_test(space_write__says_whose_memory_is_missing),
		cmocka_unit_test(space_write__goes_past_a_protection),
		cmocka_unit_test(space_read__long_ones_by_the_number),
		cmocka_unit_test(space_read__long_and_short_pieces),
		cmocka_unit_test(space_read__discards_another_process),
		cmocka_unit_test(space_read__judges_after_the_copy),
		cmocka_unit_test(space_read__nothing_of_a_process_that_has_ended),
		cmocka_unit_test(space_read__nothing_after_exec),
		cmocka_unit_test(space_read__long_ones_that_are_not_all_mapped),
		cmocka_unit_test(space_read__by_the_descriptor_if_the_kernel_refuses),
		cmocka_unit_test(space_pieces__of_each_copy_the_last_word_last),
		cmocka_unit_test(space_open__refuses_another_nonce),
		cmocka_unit_test(space_write__nothing_after_exec),
		cmocka_unit_test(space_write__nothing_after_exit),
		cmocka_unit_test(board_nonce__is_not_inherited),
	};

	if (argc == 3)
		return main_after_exec(atoi(argv[1]), atoi(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
