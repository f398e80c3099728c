/* fault_test.c: copies that fault answer, those that do not copy, and other faults are the
 * program's. What ends a process happens in a child.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

enum { PAGE = 4096, LONGEST = 3 * PAGE, SPACE = 8 * PAGE, THREADS = 3, ROUNDS = 20000 };

static const size_t sizes[] = { 1,  2,	 3,   4,   5,	7,   8,	  9,	15,   16,   17,
				31, 32,	 33,  48,  63,	64,  65,  96,	127,  128,  129,
				200, 256, 511, 999, 1024, 2048, 3000, 4096, 5000, LONGEST };

static u8 *test_map(int prot)
{
	u8 *p = mmap(NULL, SPACE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void test_fill(u8 *at, size_t n, u8 seed)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (u8)(seed + i * 7 + (i >> 8));
}

static struct sigaction ours[2];

/* Before each test: cmocka puts handlers of its own in front. */
static void test_guard(void)
{
	fault_guard();
	if (ours[0].sa_flags == 0) {
		sigaction(SIGSEGV, NULL, &ours[0]);
		sigaction(SIGBUS, NULL, &ours[1]);
	}
	sigaction(SIGSEGV, &ours[0], NULL);
	sigaction(SIGBUS, &ours[1], NULL);
}

/* ---- copies ---- */

static void fault_copy__copies_any_size_and_alignment(void **state)
{
	u8 *from = test_map(PROT_READ | PROT_WRITE), *to = test_map(PROT_READ | PROT_WRITE);

	test_guard();
	test_fill(from, SPACE, 3);
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++)
		for (u32 shift = 0; shift < 9; shift += 4) {
			memset(to, 0xee, SPACE);
			assert_int_equal(fault_copy(to + 16 + shift, from + shift / 2, sizes[i]),
					 0);
			assert_memory_equal(to + 16 + shift, from + shift / 2, sizes[i]);
			assert_int_equal(to[15 + shift], 0xee);
			assert_int_equal(to[16 + shift + sizes[i]], 0xee);
		}
	munmap(from, SPACE);
	munmap(to, SPACE);
}

/* The UBSan build would report a NULL that reaches memmove. */
static void fault_copy__zero_bytes_need_no_memory(void **state)
{
	test_guard();
	assert_int_equal(fault_copy(NULL, NULL, 0), 0);
}

static void fault_copy__ends_may_overlap(void **state)
{
	u8 *memory = test_map(PROT_READ | PROT_WRITE), *before = test_map(PROT_READ | PROT_WRITE);

	test_guard();
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++)
		for (int by = -9; by < 10; by += 3) {
			test_fill(memory, SPACE, 5);
			memcpy(before, memory, SPACE);
			assert_int_equal(fault_copy(memory + PAGE + by, memory + PAGE, sizes[i]),
					 0);
			assert_memory_equal(memory + PAGE + by, before + PAGE, sizes[i]);
		}
	munmap(memory, SPACE);
	munmap(before, SPACE);
}

/* How a page goes away. */
static void test_unmap(u8 *page)
{
	munmap(page, PAGE);
}

static void test_hide(u8 *page)
{
	mprotect(page, PAGE, PROT_NONE);
}

static void test_protect(u8 *page)
{
	mprotect(page, PAGE, PROT_READ);
}

/* All copies that end, or begin, within the page that goes. */
static void test_gone(void (*go)(u8 *page), bool reading)
{
	u8 *there = test_map(PROT_READ | PROT_WRITE), *gone = test_map(PROT_READ | PROT_WRITE);
	u8 *hole = gone + 4 * PAGE;

	go(hole);
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = sizes[i];

		assert_int_equal(fault_copy(hole + 1 - n, there, n), -EFAULT);
		assert_int_equal(fault_copy(hole, there, n), -EFAULT);
		assert_int_equal(fault_copy(hole + PAGE - 1, there, n), -EFAULT);
		assert_int_equal(fault_copy(hole - n, there, n), 0);
		assert_int_equal(fault_copy(there, hole + 1 - n, n), reading ? -EFAULT : 0);
		assert_int_equal(fault_copy(there, hole + PAGE - 1, n), reading ? -EFAULT : 0);
		if (n <= SMALL_COPY_MAX) {
			assert_false(fault_small_copy(hole + 1 - n, there, (u32)n));
			assert_true(fault_small_copy(hole - n, there, (u32)n));
			assert_true(fault_small_copy(there, hole + 1 - n, (u32)n) == !reading);
		}
	}
	munmap(there, SPACE);
	munmap(gone, SPACE);
}

static void fault_copy__unmapped_memory_is_efault(void **state)
{
	test_guard();
	test_gone(test_unmap, true);
}

static void fault_copy__protected_memory_is_efault(void **state)
{
	test_guard();
	test_gone(test_hide, true);
	test_gone(test_protect, false);
}

/* A file that has become shorter: SIGBUS. */
static void fault_copy__a_truncated_file_is_efault(void **state)
{
	int fd = memfd_create("fault-test", MFD_CLOEXEC);
	u8 *p, there[LONGEST];

	test_guard();
	assert_int_equal(ftruncate(fd, SPACE), 0);
	p = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	memset(p, 1, SPACE);
	assert_int_equal(ftruncate(fd, 0), 0);
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
		assert_int_equal(fault_copy(p, there, sizes[i]), -EFAULT);
		assert_int_equal(fault_copy(there, p, sizes[i]), -EFAULT);
	}
	munmap(p, SPACE);
	close(fd);
}

/* The processor says of such an address only that it is none. */
static void fault_copy__an_address_that_no_page_can_have_is_efault(void **state)
{
	u8 *memory = test_map(PROT_READ | PROT_WRITE);
	u8 *wild = (u8 *)(uintptr_t)0xdead000000000000ull;

	test_guard();
	for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
#ifdef __SANITIZE_ADDRESS__ /* which looks for the address' shadow itself */
		break;
#endif
#ifdef __SANITIZE_THREAD__
		if (sizes[i] > 256) /* libc's copy is the sanitizer's: no shadow, no copy */
			continue;
#endif
		assert_int_equal(fault_copy(wild, memory, sizes[i]), -EFAULT);
		assert_int_equal(fault_copy(memory, wild, sizes[i]), -EFAULT);
	}
	munmap(memory, SPACE);
}

static void fault_words__answer_or_work(void **state)
{
	u8 *p = test_map(PROT_READ | PROT_WRITE);
	u64 *word = (u64 *)(void *)p, *gone = (u64 *)(void *)(p + PAGE), before = 77;

	test_guard();
	munmap(gone, PAGE);
	assert_true(fault_copy_u64(word, &before));
	assert_int_equal(*word, 77);
	before = 78;
	assert_true(fault_copy_u8(word, &before));
	assert_int_equal(*word, 78);
	assert_false(fault_copy_u64(gone, &before));
	assert_false(fault_copy_u8(gone, &before));
	assert_false(fault_copy_u64(&before, gone));
	assert_false(fault_copy_u8(&before, gone));
	assert_false(fault_compare_swap(gone, 1, 2, &before));
	assert_false(fault_fetch_add(gone, 1, &before));
	mprotect(p, PAGE, PROT_READ);
	assert_true(fault_copy_u64(&before, word));
	assert_int_equal(before, 78);
	assert_false(fault_copy_u64(word, &before));
	assert_false(fault_compare_swap(word, 1, 2, &before));
	assert_false(fault_fetch_add(word, 1, &before));
	munmap(p, SPACE);
}

static u64 counted;

static void fault_compare_swap__swaps_only_what_it_expects(void **state)
{
	u64 before;

	test_guard();
	counted = 5;
	assert_true(fault_compare_swap(&counted, 4, 9, &before));
	assert_int_equal(before, 5);
	assert_int_equal(counted, 5);
	assert_true(fault_compare_swap(&counted, 5, UINT64_MAX, &before));
	assert_int_equal(before, 5);
	assert_true(counted == UINT64_MAX);
	assert_true(fault_fetch_add(&counted, 3, &before));
	assert_true(before == UINT64_MAX);
	assert_int_equal(counted, 2);
}

static void *test_add_many(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		u64 old = __atomic_load_n(&counted, __ATOMIC_RELAXED), seen;

		if (!fault_fetch_add(&counted, 1, &seen))
			abort();
		while (fault_compare_swap(&counted, old, old + 2, &seen) && seen != old)
			old = seen;
	}
	return NULL;
}

static void fault_fetch_add__loses_nothing(void **state)
{
	pthread_t threads[THREADS];

	test_guard();
	counted = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, test_add_many, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(counted, 3ull * THREADS * ROUNDS);
}

/* ---- the program's own faults ---- */

static volatile int heard;
static void *volatile heard_at;
static sigjmp_buf back;
static u8 *hole; /* PROT_NONE */

static void test_die(void)
{
	*(volatile u8 *)hole = 1;
}

/* In a child without a core: its exit status, or 1000 + the signal that ended it. */
static int test_child(void (*run)(void))
{
	struct rlimit none = { 0, 0 };
	int status;
	pid_t child = fork();

	if (child == 0) {
		setrlimit(RLIMIT_CORE, &none);
		run();
		_exit(99);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_set(int number, void (*handler)(int), int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags };

	fault_program_action(number, &act, NULL);
}

static void run_default(void)
{
	test_set(SIGSEGV, SIG_DFL, 0);
	test_die();
}

static void run_sent(void)
{
	test_set(SIGSEGV, SIG_DFL, 0);
	raise(SIGSEGV);
}

static void run_ignored(void)
{
	test_set(SIGSEGV, SIG_IGN, 0);
	test_set(SIGBUS, SIG_IGN, 0);
	raise(SIGSEGV);
	raise(SIGBUS);
	test_die();
}

static void fault_handler__default_action_ends_the_process(void **state)
{
	test_guard();
	hole = test_map(PROT_NONE);
	assert_int_equal(test_child(run_default), 1000 + SIGSEGV);
	assert_int_equal(test_child(run_sent), 1000 + SIGSEGV);
	assert_int_equal(test_child(run_ignored), 1000 + SIGSEGV);
	munmap(hole, SPACE);
}

static void on_fault(int number)
{
	heard++;
	if (heard > 1)
		_exit(heard == 2 && number == SIGSEGV ? 42 : 43);
	mprotect(hole, PAGE, PROT_READ | PROT_WRITE);
}

/* It mends what was wrong, and hears of the next; that it installed last may forget it. */
static void run_handler(void)
{
	u8 there[600] = { 0 };

	test_set(SIGSEGV, on_fault, 0);
	if (fault_copy(hole, there, sizeof(there)) != -EFAULT || heard != 0)
		_exit(1);
	test_die();
	if (heard != 1 || *hole != 1)
		_exit(2);
	hole += PAGE;
	test_die();
}

static void run_once(void)
{
	test_set(SIGSEGV, on_fault, SA_RESETHAND);
	test_die();
	hole += PAGE;
	test_die();
}

/* The second fault comes while the first is handled: the kernel makes an end of that. */
static void on_fault_again(int number)
{
	test_die();
	_exit(44);
}

static void run_within(void)
{
	test_set(SIGSEGV, on_fault_again, 0);
	test_die();
}

static void fault_handler__calls_the_programs_handler(void **state)
{
	test_guard();
	hole = test_map(PROT_NONE);
	assert_int_equal(test_child(run_handler), 42);
	assert_int_equal(test_child(run_once), 1000 + SIGSEGV);
	assert_int_equal(test_child(run_within), 1000 + SIGSEGV);
	munmap(hole, SPACE);
}

static void on_info(int number, siginfo_t *info, void *context)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	heard = sigismember(&now, SIGUSR1) + 2 * sigismember(&now, number);
	heard_at = info->si_addr;
	siglongjmp(back, 1);
}

static void run_jump(void)
{
	struct sigaction act = { .sa_sigaction = on_info, .sa_flags = SA_SIGINFO }, old;

	sigaddset(&act.sa_mask, SIGUSR1);
	fault_program_action(SIGSEGV, &act, &old);
	fault_program_action(SIGSEGV, NULL, &old);
	if (old.sa_sigaction != on_info || old.sa_flags != SA_SIGINFO)
		_exit(1);
	for (int i = 0; i < 3; i++)
		if (sigsetjmp(back, 1) == 0)
			test_die();
		else if (heard != 3 || heard_at != hole)
			_exit(2);
	_exit(0);
}

static void fault_handler__leaves_mask_and_address_as_they_were(void **state)
{
	test_guard();
	hole = test_map(PROT_NONE);
	assert_int_equal(test_child(run_jump), 0);
	munmap(hole, SPACE);
}

/* A handler of the program that interrupts a copy of ours and faults itself, by the very memmove,
 * is not taken for the copy. */
static void on_alarm(int number)
{
	memmove(hole, hole + PAGE, 600);
}

static void run_interrupting(void)
{
	struct sigaction act = { .sa_handler = on_alarm };
	u8 *from = test_map(PROT_READ | PROT_WRITE), *to = test_map(PROT_READ | PROT_WRITE);

	test_set(SIGSEGV, SIG_DFL, 0);
	sigaction(SIGALRM, &act, NULL);
	ualarm(2000, 0);
	while (fault_copy(to, from, SPACE) == 0)
		;
	_exit(45);
}

static void fault_handler__tells_a_copy_from_who_interrupts_it(void **state)
{
	test_guard();
	hole = test_map(PROT_NONE);
	assert_int_equal(test_child(run_interrupting), 1000 + SIGSEGV);
	munmap(hole, SPACE);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(fault_copy__copies_any_size_and_alignment),
		TEST(fault_copy__zero_bytes_need_no_memory),
		TEST(fault_copy__ends_may_overlap),
		TEST(fault_compare_swap__swaps_only_what_it_expects),
		TEST(fault_fetch_add__loses_nothing),
#ifndef __SANITIZE_THREAD__ /* its runtime does not survive a jump out of its own copy */
		TEST(fault_copy__unmapped_memory_is_efault),
		TEST(fault_copy__protected_memory_is_efault),
		TEST(fault_copy__a_truncated_file_is_efault),
		TEST(fault_copy__an_address_that_no_page_can_have_is_efault),
		TEST(fault_words__answer_or_work),
		TEST(fault_handler__default_action_ends_the_process),
		TEST(fault_handler__calls_the_programs_handler),
		TEST(fault_handler__leaves_mask_and_address_as_they_were),
		TEST(fault_handler__tells_a_copy_from_who_interrupts_it),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
