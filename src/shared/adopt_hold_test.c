/* adopt_hold_test.c: where others hold pages or limits are near: memory is not adopted, or stays
 * the file's until it may be put back; and no call that fails costs a byte. NO_THREAD_SAFETY: see
 * adopt_kit.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#include "base/clock.h"
#include "shared/adopt_kit.h"

static u8 *memory; /* of each test; filled */

static int setup(void **state) NO_THREAD_SAFETY
{
	new_credit();
	adopt.swept_ns = 0;
	memory = map_private(BYTES);
	fill(memory, BYTES);
	wait_until_alone();
	return 0;
}

/* Tries again what could not be put back. */
static void sweep(void) NO_THREAD_SAFETY
{
	adopt.swept_ns = 0;
	adopt_enter(0, 0);
	adopt_leave(0, 0, true);
}

static int teardown(void **state) NO_THREAD_SAFETY
{
	sweep();
	munmap(memory, BYTES);
	sweep();
	for (u32 i = 0; i < ADOPT_REGIONS; i++)
		assert_false(region_is_used(&adopt.regions[i]));
	assert_int_equal(adopt.bytes, 0);
	assert_int_equal(adopt.lingering, 0);
	return 0;
}

static void adopted(void)
{
	assert_int_not_equal(enter(memory, BYTES), 0);
	assert_true(is_shared(memory));
}

static void refused(void)
{
	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	assert_false(is_shared(memory));
	check(memory, BYTES);
}

/* Its registration has ended, but the pages stay where they are. */
static void lingers(void)
{
	leave(memory, BYTES);
	assert_true(is_shared(memory));
	check(memory, BYTES);
}

static void private_again(void)
{
	sweep();
	assert_false(is_shared(memory));
	check(memory, BYTES);
	madvise(memory, BYTES, MADV_DONTNEED);
	assert_true(is_zero(memory, BYTES));
}

/* ---- requests to the kernel ---- */

static aio_context_t aio_open(void)
{
	aio_context_t ctx = 0;

	return syscall(SYS_io_setup, 4, &ctx) == 0 ? ctx : 0;
}

static void adopt__not_beside_aio(void **state)
{
	aio_context_t ctx = aio_open();

	if (ctx == 0)
		skip();
	refused();
	syscall(SYS_io_destroy, ctx);
	adopted();
	ctx = aio_open();
	lingers();
	sweep();
	assert_true(is_shared(memory));
	syscall(SYS_io_destroy, ctx);
	private_again();
}

/* A read that is under way when the registration ends arrives. */
static void adopt__a_read_under_way_arrives(void **state)
{
	struct iocb cb = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = 2 * PAGE };
	struct iocb *list[] = { &cb };
	aio_context_t ctx = aio_open();
	char path[] = "./adopt-XXXXXX";
	struct io_event event;
	int fd = mkostemp(path, O_DIRECT);

	syscall(SYS_io_destroy, ctx);
	if (ctx == 0 || fd < 0)
		skip();
	unlink(path);
	assert_int_equal(pwrite(fd, memory, 2 * PAGE, 0), 2 * PAGE);
	for (int i = 0; i < 50; i++) {
		adopted();
		memset(memory, 0, 2 * PAGE);
		ctx = aio_open();
		cb.aio_fildes = (u32)fd;
		cb.aio_buf = (uintptr_t)memory;
		assert_int_equal(syscall(SYS_io_submit, ctx, 1, list), 1);
		leave(memory, BYTES);
		assert_int_equal(syscall(SYS_io_getevents, ctx, 1, 1, &event, NULL), 1);
		assert_int_equal(event.res, 2 * PAGE);
		check(memory, BYTES);
		syscall(SYS_io_destroy, ctx);
		sweep();
		assert_false(is_shared(memory));
	}
	close(fd);
}

static void adopt__not_beside_io_uring(void **state)
{
	struct io_uring_params params = { .flags = 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
	void *ring;

	if (fd < 0)
		skip(); /* the kernel forbids it here */
	adopted();
	ring = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	assert_ptr_not_equal(ring, MAP_FAILED);
	lingers();
	munmap(memory, BYTES);
	memory = map_private(BYTES);
	fill(memory, BYTES);
	refused();
	munmap(ring, PAGE);
	close(fd);
	adopted();
	leave(memory, BYTES);
	private_again();
}

/* Pages that the application unmapped are given up, held or not. */
static void adopt__unmapped_while_it_lingers(void **state) NO_THREAD_SAFETY
{
	aio_context_t ctx;

	adopted();
	ctx = aio_open();
	if (ctx == 0)
		skip();
	lingers();
	munmap(memory, BYTES);
	sweep();
	assert_int_equal(adopt.lingering, 0);
	assert_int_equal(adopt.bytes, 0);
	syscall(SYS_io_destroy, ctx);
	memory = map_private(BYTES);
}

static int child_has_it(void)
{
	for (u64 i = 0; i < BYTES; i++)
		if (memory[i] != pattern(i))
			return 1;
	memset(memory, 1, BYTES);
	return is_shared(memory) ? 2 : 0;
}

static void adopt__fork_while_it_lingers(void **state)
{
	aio_context_t ctx;

	adopted();
	ctx = aio_open();
	if (ctx == 0)
		skip();
	lingers();
	assert_int_equal(in_child(child_has_it), 0);
	check(memory, BYTES);
	syscall(SYS_io_destroy, ctx);
	private_again();
}

/* ---- locked memory ---- */

static u64 locked_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long long kb = 0;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "VmLck: %llu", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

static void adopt__locked_since(void **state)
{
	adopted();
	if (mlock(memory, BYTES) != 0)
		skip();
	lingers();
	assert_int_equal(locked_kb(), BYTES / 1024);
	munlock(memory, BYTES);
	private_again();
}

static int child_locks_all(void) NO_THREAD_SAFETY
{
	unsigned char resident[BYTES / PAGE];

	if (mlockall(MCL_CURRENT) != 0)
		return 0; /* not allowed here */
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (!region_is_used(r))
			continue;
		memset(resident, 0, sizeof(resident));
		mincore((void *)(uintptr_t)r->stash, r->length, resident);
		for (u64 at = 0; at < r->length / PAGE; at++)
			if ((resident[at] & 1) != 0)
				return 1;
	}
	return in_child(child_has_it);
}

static int child_adopts_and_locks_all(void)
{
	return enter(memory, BYTES) == 0 ? 3 : child_locks_all();
}

/* What is empty stays so; and a fork goes on to work. */
static void adopt__all_is_locked_since(void **state)
{
	assert_int_equal(in_child(child_adopts_and_locks_all), 0);
}

/* ---- descriptors ---- */

/* Sets the soft limit; returns what it was. */
static rlim_t limit(__rlimit_resource_t resource, rlim_t now)
{
	struct rlimit r;
	rlim_t before;

	assert_int_equal(getrlimit(resource, &r), 0);
	before = r.rlim_cur;
	r.rlim_cur = now;
	assert_int_equal(setrlimit(resource, &r), 0);
	return before;
}

static void adopt__no_descriptor_left(void **state)
{
	rlim_t before = limit(RLIMIT_NOFILE, 0);

	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	limit(RLIMIT_NOFILE, before);
	assert_false(is_shared(memory));
	adopted();
	limit(RLIMIT_NOFILE, 0);
	leave(memory, BYTES);
	check(memory, BYTES);
	limit(RLIMIT_NOFILE, before);
	private_again();
}

static int child_closes_all(void)
{
	int number;
	FILE *f;
	char c;

	if (enter(memory, BYTES) == 0)
		return 1;
	number = adopt_file_fd();
	close_range(3, ~0u, 0);
	f = fopen("/proc/self/exe", "r");
	if (f == NULL || fread(&c, 1, 1, f) != 1 || dup2(fileno(f), number) != number)
		return 2;
	leave(memory, BYTES);
	if (is_shared(memory))
		return 3;
	if (child_has_it() != 0)
		return 4;
	/* and nothing is adopted any more */
	fill(memory, BYTES);
	if (enter(memory, BYTES) != 0)
		return 5;
	leave(memory, BYTES);
	return child_has_it();
}

static void adopt__descriptors_closed_by_the_application(void **state)
{
	assert_int_equal(in_child(child_closes_all), 0);
}

static int grandchild_is_complete(void)
{
	if (enter(memory, BYTES) == 0)
		return 1;
	close_range(3, ~0u, 0);
	return in_child(child_has_it);
}

static void adopt__fork_with_descriptors_closed(void **state)
{
	assert_int_equal(in_child(grandchild_is_complete), 0);
}

/* ---- signals ---- */

static u64 told; /* what the handler has stored beside `memory` */

static void tell(int signal)
{
	volatile u64 *there = (volatile u64 *)(void *)memory;

	told++;
	for (u64 i = 0; i < BYTES / PAGE; i++)
		there[i * PAGE / sizeof(*there)]++;
}

/* A handler's stores, at any instant of adopting and of giving back. */
static void adopt__loses_no_store_of_a_signal_handler(void **state)
{
	struct sigaction on = { .sa_handler = tell, .sa_flags = SA_RESTART }, before;
	struct itimerval often = { { 0, 60 }, { 0, 60 } }, never = { { 0, 0 }, { 0, 0 } };
	u32 yes = 0;

	memset(memory, 0, BYTES);
	assert_int_equal(sigaction(SIGALRM, &on, &before), 0);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 500; i++) {
		new_credit();
		yes += enter(memory, BYTES) != 0;
		leave(memory, BYTES);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	assert_int_equal(yes, 500);
	assert_true(told > 100);
	for (u64 i = 0; i < BYTES / PAGE; i++)
		assert_int_equal(*(u64 *)(void *)(memory + i * PAGE), told);
}

/* ---- limits ---- */

static void adopt__not_within_a_limit_of_address_space(void **state)
{
	rlim_t before = limit(RLIMIT_AS, 1ull << 40);

	refused();
	limit(RLIMIT_AS, before);
}

/* What a peer asks before it maps: one map more, beside so many. */
static void adopt__a_peer_maps_within_limits(void **state)
{
	u32 most = allow_maps() / 4;
	rlim_t before;

	assert_in_range(most, 1, 4000);
	assert_true(adopt_may_map(most - 1));
	assert_false(adopt_may_map(most));
	before = limit(RLIMIT_AS, 1ull << 40);
	assert_false(adopt_may_map(0));
	limit(RLIMIT_AS, before);
	assert_true(adopt_may_map(0));
}

static void adopt__not_more_than_a_fork_can_copy(void **state) NO_THREAD_SAFETY
{
	adopt.bytes = allow_bytes() - BYTES + 1;
	refused();
	adopt.bytes = allow_bytes() - BYTES;
	adopted();
	leave(memory, BYTES);
	adopt.bytes = 0;
}

/* Maps are not counted each time. */
static void enter_often(void)
{
	for (int i = 0; i < 64; i++) {
		enter(memory, BYTES);
		leave(memory, BYTES);
	}
}

static void adopt__not_beside_many_maps(void **state)
{
	u64 n = 17000 * PAGE;
	u8 *p = map_private(n);

	for (u64 at = 0; at < n; at += 2 * PAGE)
		if (mprotect(p + at, PAGE, PROT_READ) != 0)
			break;
	enter_often();
	refused();
	munmap(p, n);
	enter_often();
	adopted();
	leave(memory, BYTES);
}

/* Nothing is touched here: what is refused costs no memory. */
static void adopt__not_what_is_too_long(void **state)
{
	u64 n = (256ull << 20) + PAGE;
	u8 *p = map_private(n);

	assert_int_equal(enter(p, n), 0);
	leave(p, n);
	munmap(p, n);
}

/* Of one registration more than are remembered nobody knows where it lies: perhaps here. */
static void adopt__not_beside_more_than_are_remembered(void **state)
{
	u8 *p = map_private(PAGE);

	for (u32 i = 0; i < ADOPT_RANGES; i++)
		assert_int_equal(enter(p + i, 1), 0);
	assert_int_equal(enter(memory + 8, 8), 0);
	refused();
	leave(memory + 8, 8);
	for (u32 i = 0; i < ADOPT_RANGES; i++)
		leave(p + i, 1);
	munmap(p, PAGE);
	adopted();
	leave(memory, BYTES);
}

/* A page list, or a region that is all memory, may name any page: nothing moves any more, and what
 * has moved comes back without a moment in which there is nothing. */
static void adopt__not_beside_page_lists(void **state) NO_THREAD_SAFETY
{
	u8 *p = map_private(BYTES);

	adopted();
	adopt_enter_all();
	leave(memory, BYTES);
	private_again();
	assert_int_equal(enter(p, BYTES), 0);
	leave(p, BYTES);
	adopt.everywhere = false;
	assert_int_not_equal(enter(p, BYTES), 0);
	leave(p, BYTES);
	munmap(p, BYTES);
}

static ucontext_t here, there;
static u64 entered;

static void from_the_stack(void)
{
	entered = enter(memory, BYTES);
}

static void adopt__not_the_stack_that_it_runs_on(void **state)
{
	assert_int_equal(getcontext(&there), 0);
	there.uc_stack.ss_sp = memory;
	there.uc_stack.ss_size = BYTES;
	there.uc_link = &here;
	makecontext(&there, from_the_stack, 0);
	assert_int_equal(swapcontext(&here, &there), 0);
	assert_int_equal(entered, 0);
	leave(memory, BYTES);
}

/* ---- calls that are forbidden ---- */

static bool forbid(u32 call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static u32 forbidden;
static bool forbidden_before;

static int child_goes_on(void)
{
	if (forbidden_before && !forbid(forbidden))
		return 1;
	enter(memory, BYTES);
	for (u64 i = 0; i < BYTES; i++)
		if (memory[i] != pattern(i))
			return 2;
	if (!forbidden_before && !forbid(forbidden))
		return 3;
	leave(memory, BYTES);
	for (u64 i = 0; i < BYTES; i++)
		if (memory[i] != pattern(i))
			return 4;
	memset(memory, 7, BYTES);
	return memory[BYTES - 1] == 7 ? 0 : 5;
}

static void adopt__calls_that_are_forbidden(void **state)
{
	const u32 calls[] = { SYS_memfd_create, SYS_ftruncate, SYS_fcntl,    SYS_openat,
			      SYS_pread64,	SYS_pwrite64,  SYS_mremap,   SYS_madvise,
			      SYS_mprotect,	SYS_munmap,    SYS_fallocate, SYS_mmap };

	for (size_t i = 0; i < ARRAY_LEN(calls); i++)
		for (int before = 0; before < 2; before++) {
			int verdict;

			forbidden = calls[i];
			forbidden_before = before;
			verdict = in_child(child_goes_on);
			if (verdict != 0)
				fail_msg("call %u forbidden %s: %d", calls[i],
					 before ? "before" : "since", verdict);
		}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(adopt__not_beside_aio),
		T(adopt__a_read_under_way_arrives),
		T(adopt__not_beside_io_uring),
		T(adopt__unmapped_while_it_lingers),
		T(adopt__fork_while_it_lingers),
		T(adopt__locked_since),
		T(adopt__all_is_locked_since),
		T(adopt__no_descriptor_left),
		T(adopt__descriptors_closed_by_the_application),
		T(adopt__fork_with_descriptors_closed),
		T(adopt__loses_no_store_of_a_signal_handler),
		T(adopt__not_within_a_limit_of_address_space),
		T(adopt__a_peer_maps_within_limits),
		T(adopt__not_more_than_a_fork_can_copy),
		T(adopt__not_beside_many_maps),
		T(adopt__not_what_is_too_long),
		T(adopt__not_beside_more_than_are_remembered),
		T(adopt__not_beside_page_lists),
		T(adopt__not_the_stack_that_it_runs_on),
		T(adopt__calls_that_are_forbidden),
	};

	if (!adopt_kit_runs())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
