/* limits.c: raw limits of this machine, which the benchmarks are held against.
 *
 * In:    names of probes
 * Out:   one line each, "name value unit", on standard output
 * Runs:  two processes, pinned to a core each      Locks: none
 *
 * No line of anyverbs is in here: shared memory, process_vm_writev and memcpy as any program may
 * use them.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "probe.h"

enum {
	LARGE = 1 << 20,
	RING = 256 << 10, /* what stays in a core's own cache */
	RING_CHUNK = 16 << 10,
	CHUNK_CALLS = 100, /* operations between two looks at the clock */
	CHUNK_COPIES = 8,
};

/* What both processes see. Each word has a line of its own. */
struct shared {
	_Alignas(64) uint64_t ping;
	_Alignas(64) uint64_t pong;
	_Alignas(64) uint32_t ready;
	_Alignas(64) char ring[RING];
};

struct probe {
	struct shared *shared;
	uint64_t *private_word; /* at the same address in both processes, but not the same memory */
	char *buffer, *source;	/* LARGE bytes, likewise */
	int to_child, to_parent; /* eventfds */
	pid_t parent, child;
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static void *pages(size_t bytes, int sharing)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_POPULATE,
		       -1, 0);

	if (p == MAP_FAILED)
		probe_fail("mmap");
	return p;
}

/* ---- what the child does ---- */

static void child_idle(struct probe *p)
{
	for (;;)
		pause();
}

static void child_mailbox(struct probe *p)
{
	for (uint64_t turn = 1;; turn++) {
		while (__atomic_load_n(&p->shared->ping, __ATOMIC_ACQUIRE) != turn)
			relax();
		__atomic_store_n(&p->shared->pong, turn, __ATOMIC_RELEASE);
	}
}

static void write_word(pid_t to, uint64_t *word, uint64_t value)
{
	struct iovec from = { &value, sizeof(value) }, into = { word, sizeof(*word) };

	if (process_vm_writev(to, &from, 1, &into, 1, 0) != sizeof(value))
		probe_fail("process_vm_writev");
}

static void child_writev(struct probe *p)
{
	for (uint64_t turn = 1;; turn++) {
		while (__atomic_load_n(p->private_word, __ATOMIC_ACQUIRE) != turn)
			relax();
		write_word(p->parent, p->private_word, turn);
	}
}

/* ping counts the chunks that are in the ring, pong those that were taken out. */
static void child_ring(struct probe *p)
{
	for (uint64_t turn = 0;; turn++) {
		while (__atomic_load_n(&p->shared->ping, __ATOMIC_ACQUIRE) == turn)
			relax();
		memcpy(p->buffer + turn * RING_CHUNK % LARGE,
		       p->shared->ring + turn * RING_CHUNK % RING, RING_CHUNK);
		__atomic_store_n(&p->shared->pong, turn + 1, __ATOMIC_RELEASE);
	}
}

static void event_signal(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		probe_fail("write to an eventfd");
}

static void event_await(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) != sizeof(count))
		probe_fail("read of an eventfd");
}

static void child_eventfd(struct probe *p)
{
	for (;;) {
		event_await(p->to_child);
		event_signal(p->to_parent);
	}
}

/* ---- what the parent measures: nanoseconds for `turns` operations ---- */

static uint64_t turn_now;

static void measure_mailbox(struct probe *p)
{
	uint64_t turn = ++turn_now;

	__atomic_store_n(&p->shared->ping, turn, __ATOMIC_RELEASE);
	while (__atomic_load_n(&p->shared->pong, __ATOMIC_ACQUIRE) != turn)
		relax();
}

static void measure_eventfd(struct probe *p)
{
	event_signal(p->to_child);
	event_await(p->to_parent);
}

static void measure_writev_pingpong(struct probe *p)
{
	uint64_t turn = ++turn_now;

	write_word(p->child, p->private_word, turn);
	while (__atomic_load_n(p->private_word, __ATOMIC_ACQUIRE) != turn)
		relax();
}

static void measure_writev8(struct probe *p)
{
	write_word(p->child, p->private_word, ++turn_now);
}

static void measure_writev1m(struct probe *p)
{
	struct iovec from = { p->source, LARGE }, into = { p->buffer, LARGE };

	if (process_vm_writev(p->child, &from, 1, &into, 1, 0) != LARGE)
		probe_fail("process_vm_writev");
}

static void measure_ring1m(struct probe *p)
{
	for (uint64_t at = 0; at < LARGE; at += RING_CHUNK, turn_now++) {
		while (turn_now - __atomic_load_n(&p->shared->pong, __ATOMIC_ACQUIRE) >=
		       RING / RING_CHUNK)
			relax();
		memcpy(p->shared->ring + turn_now * RING_CHUNK % RING, p->source + at, RING_CHUNK);
		__atomic_store_n(&p->shared->ping, turn_now + 1, __ATOMIC_RELEASE);
	}
}

static void measure_memcpy1m(struct probe *p)
{
	memcpy(p->buffer, p->source, LARGE);
	__asm__ __volatile__("" : : "r"(p->buffer) : "memory");
}

/* ---- the table of probes ---- */

static const struct probe_kind kinds[] = {
	{ "mailbox", "us", "a shared cache-line mailbox, one way", NULL, child_mailbox,
	  measure_mailbox, CHUNK_CALLS, 2, 0 },
	{ "writev8", "us", "one process_vm_writev of 8 bytes", NULL, child_idle, measure_writev8,
	  CHUNK_CALLS, 1, 0 },
	{ "writev8_pingpong", "us",
	  "the same as a ping-pong, both sides watching their word, one way", NULL, child_writev,
	  measure_writev_pingpong, CHUNK_CALLS, 2, 0 },
	{ "eventfd", "us", "a ping-pong by eventfds, both sides asleep, one way", NULL,
	  child_eventfd, measure_eventfd, CHUNK_CALLS, 2, 0 },
	{ "writev1m", "MiB/s", "process_vm_writev of 1 MiB", NULL, child_idle, measure_writev1m,
	  CHUNK_COPIES, 1, 1 },
	{ "ring1m", "MiB/s", "1 MiB by two copies, in and out of a shared ring of 256 KiB", NULL,
	  child_ring, measure_ring1m, CHUNK_COPIES, 1, 1 },
	{ "memcpy1m", "MiB/s", "memcpy of 1 MiB within one process", NULL, child_idle,
	  measure_memcpy1m, CHUNK_COPIES, 1, 1 },
};

/* The private copies become this process' own, and present. */
static void limits_enter(struct probe *p)
{
	memset(p->buffer, 2, LARGE);
	*p->private_word = 0;
	__atomic_store_n(&p->shared->ready, 1, __ATOMIC_RELEASE); /* pairs with limits_forked */
}

static void limits_begin(struct probe *p)
{
	turn_now = 0;
	p->shared = pages(sizeof(*p->shared), MAP_SHARED);
	p->private_word = pages(sizeof(uint64_t), MAP_PRIVATE);
	p->buffer = pages(LARGE, MAP_PRIVATE);
	p->source = pages(LARGE, MAP_PRIVATE);
	p->to_child = eventfd(0, EFD_CLOEXEC);
	p->to_parent = eventfd(0, EFD_CLOEXEC);
	if (p->to_child < 0 || p->to_parent < 0)
		probe_fail("eventfd");
	p->parent = getpid();
}

static void limits_forked(struct probe *p, pid_t child)
{
	p->child = child;
	memset(p->buffer, 1, LARGE);
	memset(p->source, 3, LARGE);
	*p->private_word = 0;
	while (!__atomic_load_n(&p->shared->ready, __ATOMIC_ACQUIRE)) /* pairs with limits_enter */
		sched_yield();
}

static void limits_end(struct probe *p)
{
	close(p->to_child);
	close(p->to_parent);
	munmap(p->source, LARGE);
	munmap(p->buffer, LARGE);
	munmap(p->private_word, sizeof(uint64_t));
	munmap(p->shared, sizeof(*p->shared));
}

int main(int argc, char **argv)
{
	static struct probe p;
	const struct probe_program program = {
		.name = "limits",
		.about = "Measures raw limits of this machine.",
		.ms = 50,
		.kinds = kinds,
		.count = sizeof(kinds) / sizeof(*kinds),
		.probe = &p,
		.begin = limits_begin,
		.enter = limits_enter,
		.forked = limits_forked,
		.end = limits_end,
	};

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	return probe_main(&program, argc, argv);
}
