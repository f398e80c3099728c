/* fork_test.c: a process forks while its peer works in its memory. Nothing that the peer does is
 * lost, before, during and after the fork, and each child has a snapshot of one instant. Alone, and
 * beside a thread that stores all the time.
 * In: VERBS_VARIANT: with "adopt" or "born" in it the memory is in the file first
 * Out: the exit status    Runs: two processes and their children    Locks: none
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum { PAGE = 4096, SLOTS = 128, BYTES = (SLOTS + 4) * PAGE, OPS = 6000, FORKS = 6, TIMES = 6 };
enum { WAIT_STEPS = 200000 };
enum { X = SLOTS * PAGE, Y = (SLOTS + 2) * PAGE, COUNT = (SLOTS + 3) * PAGE };

static uint8_t *memory;
static bool stop;

static uint64_t *word(size_t at)
{
	return (uint64_t *)(void *)(memory + at);
}

static void *thread_count(void *arg)
{
	for (uint64_t i = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		__atomic_store_n(word(X), i, __ATOMIC_RELEASE);
		__atomic_store_n(word(Y), i, __ATOMIC_RELEASE);
	}
	return arg;
}

/* What the initiator has stored last in each slot. */
struct done {
	uint8_t last[SLOTS];
	uint64_t count;
};

static void initiator(struct duo *d)
{
	struct ibv_mr *mr = duo_register(d, memory, BYTES);
	struct done done = { .count = 0 };
	struct duo_place there;

	must(duo_hear(d, &there, sizeof(there)));
	for (uint32_t i = 1; i <= OPS; i++) {
		uint32_t slot = i * 7 % SLOTS;
		uint8_t value = (uint8_t)(i % 251);

		memset(memory, value, PAGE);
		duo_do(d, IBV_WR_RDMA_WRITE, mr, memory, PAGE, there.addr + slot * PAGE,
		       there.rkey);
		done.last[slot] = value;
		duo_do(d, IBV_WR_RDMA_READ, mr, memory + PAGE, PAGE, there.addr + slot * PAGE,
		       there.rkey);
		must(memcmp(memory, memory + PAGE, PAGE) == 0);
		duo_do(d, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, memory + 2 * PAGE, 8,
		       there.addr + COUNT, there.rkey);
		must(*word(2 * PAGE) == done.count);
		done.count += 1;
	}
	duo_tell(d, &done, sizeof(done));
	must(ibv_dereg_mr(mr) == 0);
}

/* 0: of one instant, and all its own. */
static int child_looks(void)
{
	uint64_t y = *word(Y), x = *word(X), count = *word(COUNT);
	static uint8_t before[BYTES];

	memcpy(before, memory, BYTES);
	if (y > x)
		return 1;
	usleep(2000);
	return memcmp(before, memory, BYTES) == 0 && *word(COUNT) == count ? 0 : 2;
}

static void fork_once(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(child_looks());
	must(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status != 0)
		fprintf(stderr, "child: %#x\n", status);
	must(status == 0);
}

static void target(struct duo *d, bool shared, bool threaded)
{
	struct ibv_mr *mr = duo_register(d, memory, BYTES);
	struct duo_place mine = duo_place(mr);
	pthread_t thread;
	struct done done;

	/* the peer's, too, perhaps: born memory is shown when the connection is made */
	must(!shared || duo_files_mapped((int)getpid()) >= 1);
	if (threaded)
		must(pthread_create(&thread, NULL, thread_count, NULL) == 0);
	duo_tell(d, &mine, sizeof(mine));
	for (int i = 0; __atomic_load_n(word(COUNT), __ATOMIC_RELAXED) < OPS / 100; i++) {
		must(i < WAIT_STEPS);
		usleep(100); /* by a map, if there is one */
	}
	must(!shared || duo_files_mapped((int)getpid()) >= 1);
	for (int i = 0; i < FORKS; i++) {
		fork_once();
		usleep(1000);
	}
	must(duo_hear(d, &done, sizeof(done)));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		for (uint32_t i = 0; i < PAGE; i++)
			must(memory[slot * PAGE + i] == done.last[slot]);
	must(*word(COUNT) == done.count);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	if (threaded)
		pthread_join(thread, NULL);
	must(ibv_dereg_mr(mr) == 0);
	must(*word(COUNT) == done.count);
}

static int play(bool shared, bool threaded)
{
	struct duo d;

	duo_start(&d);
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(memory != MAP_FAILED);
	memset(memory, 0, BYTES);
	if (d.child == 0)
		initiator(&d);
	else
		target(&d, shared, threaded);
	return duo_end(&d) ? 0 : 1;
}

/* Each time in a process of its own: memory is given back once. */
int main(void)
{
	const char *variant;
	bool shared;

	pair_supervise();
	variant = getenv("VERBS_VARIANT");
	shared = variant != NULL &&
		 (strstr(variant, "adopt") != NULL || strstr(variant, "born") != NULL);
	for (int i = 0; i < TIMES; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			exit(play(shared, i % 2 == 1));
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			return 1;
	}
	return 0;
}
