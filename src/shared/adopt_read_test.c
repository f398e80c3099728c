/* adopt_read_test.c: another process reads this one's memory by process_vm_readv, as CMA transports
 * and debuggers do, while pages go into the file and back. It finds the bytes at every instant,
 * alone and beside a thread. Where no hole lies below the map, it may find nothing (EFAULT, or a
 * short read) at the map's first page for a moment of the way in, but never other bytes.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "shared/adopt_kit.h"

enum {
	ROUNDS = 60,
	ROUNDS_MAX = 1200,
	READS_IN = 20,
	REGIONS = 64,
	READ = 4 * PAGE,
	WAIT_STEPS = 100000
};

enum phase { IN, OUT, END };

/* Shared with the reader. */
struct scene {
	enum phase phase;
	u64 reads[2], missing[2], wrong; /* IN: begun or ended then; missing: not all was there */
	bool begun, refused;
};

static struct scene *scene;
static u8 *memory;
static u64 bytes;

static void reader_read(pid_t target, u32 seed)
{
	static u8 got[READ];
	u64 at = seed % (bytes / PAGE - READ / PAGE + 1) * PAGE;
	struct iovec ours = { got, READ }, theirs = { memory + at, READ };
	enum phase before = __atomic_load_n(&scene->phase, __ATOMIC_ACQUIRE), after, of;
	ssize_t n = process_vm_readv(target, &ours, 1, &theirs, 1, 0);

	scene->refused |= n < 0 && errno == EPERM;
	after = __atomic_load_n(&scene->phase, __ATOMIC_ACQUIRE);
	for (ssize_t i = 0; i < n; i++)
		scene->wrong += got[i] != pattern(at + (u64)i);
	if (before == END && after == END)
		return;
	of = before == IN || after == IN ? IN : OUT;
	scene->reads[of]++;
	scene->missing[of] += n != READ;
}

/* Until it is killed, or the target ends. */
static pid_t reader_begin(void)
{
	pid_t target = getpid(), child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (u32 seed = 1;; seed = seed * 1664525 + 1013904223) {
			reader_read(target, seed >> 8);
			__atomic_store_n(&scene->begun, true, __ATOMIC_RELEASE);
		}
	}
	prctl(PR_SET_PTRACER, child);
	for (int i = 0; i < WAIT_STEPS && !__atomic_load_n(&scene->begun, __ATOMIC_ACQUIRE); i++)
		usleep(100);
	return child;
}

static void phase(enum phase now)
{
	__atomic_store_n(&scene->phase, now, __ATOMIC_RELEASE);
}

/* So many reads more. */
static void await_reads(enum phase of, u64 more)
{
	u64 until = __atomic_load_n(&scene->reads[of], __ATOMIC_RELAXED) + more;

	for (int i = 0; i < WAIT_STEPS; i++) {
		if (__atomic_load_n(&scene->reads[of], __ATOMIC_RELAXED) >= until)
			return;
		sched_yield();
	}
}

/* `hole`: below the memory, in which its map can get a page; else another map is there. */
static void setup_bytes(u64 n, bool hole)
{
	scene = mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_ptr_not_equal(scene, MAP_FAILED);
	bytes = n;
	memory = map_private(PAGE + bytes) + PAGE;
	if (hole)
		munmap(memory - PAGE, PAGE);
	else
		mprotect(memory - PAGE, PAGE, PROT_NONE);
	fill(memory, bytes);
	scene->phase = END;
}

static void judge(pid_t reader, bool hole)
{
	phase(END);
	kill(reader, SIGKILL);
	child_verdict(reader);
	check(memory, bytes);
	print_message("in: %llu of %llu reads found nothing; out: %llu of %llu\n",
		      (unsigned long long)scene->missing[IN], (unsigned long long)scene->reads[IN],
		      (unsigned long long)scene->missing[OUT],
		      (unsigned long long)scene->reads[OUT]);
	munmap(memory, bytes);
	if (scene->refused)
		skip();
	assert_int_equal(scene->wrong, 0);
	assert_true(scene->reads[OUT] > 0);
	assert_int_equal(scene->missing[OUT], 0);
	if (hole)
		assert_int_equal(scene->missing[IN], 0);
	munmap(scene, sizeof(*scene));
}

static void move_by_rounds(bool hole)
{
	pid_t reader;

	setup_bytes(64 * PAGE, hole);
	reader = reader_begin();
	for (int i = 0; i < ROUNDS_MAX && (i < ROUNDS || scene->reads[IN] < READS_IN); i++) {
		new_credit();
		phase(IN);
		assert_int_not_equal(enter(memory, bytes), 0);
		phase(OUT);
		await_reads(OUT, 1);
		leave(memory, bytes);
		await_reads(OUT, 1);
	}
	assert_true(scene->refused || scene->reads[IN] >= READS_IN);
	judge(reader, hole);
}

static void adopt__read_by_another_process(void **state)
{
	move_by_rounds(true);
}

static void adopt__read_where_no_hole_lies_below(void **state)
{
	move_by_rounds(false);
}

static void *thread_waits(void *arg)
{
	while (__atomic_load_n(&scene->phase, __ATOMIC_RELAXED) != END)
		usleep(1000);
	return arg;
}

static void adopt__read_beside_a_thread(void **state)
{
	pthread_t thread;
	pid_t reader;

	setup_bytes(REGIONS * BYTES, true);
	reader = reader_begin();
	phase(IN);
	new_credit();
	/* from the top: below each of them is memory of its map, and the hole at last */
	for (u64 i = REGIONS; i-- > 0;)
		assert_int_not_equal(enter(memory + i * BYTES, BYTES), 0);
	assert_int_equal(pthread_create(&thread, NULL, thread_waits, NULL), 0);
	phase(OUT);
	for (u64 i = 0; i < REGIONS; i++) {
		await_reads(OUT, 4);
		leave(memory + i * BYTES, BYTES);
	}
	phase(END);
	pthread_join(thread, NULL);
	judge(reader, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adopt__read_by_another_process),
		cmocka_unit_test(adopt__read_where_no_hole_lies_below),
		cmocka_unit_test(adopt__read_beside_a_thread),
	};

	if (!adopt_kit_runs())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
