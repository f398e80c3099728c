/* adopt_kit.h: shared by the tests of adoption: memory with a pattern, and the kernel's view of it.
 * NO_THREAD_SAFETY, in tests: no other thread uses the state that the function reads.
 */
#ifndef SHARED_ADOPT_KIT_H
#define SHARED_ADOPT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process_test.h"
#include "base/vma.h"
#include "shared/adopt_priv.h"

#define PAGE 4096ul
#define BYTES (16 * PAGE)

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static inline u8 pattern(u64 i)
{
	return (u8)(i * 7 + i / 251);
}

static inline void fill(u8 *p, u64 n)
{
	for (u64 i = 0; i < n; i++)
		p[i] = pattern(i);
}

static inline void check(const u8 *p, u64 n)
{
	for (u64 i = 0; i < n; i++)
		if (p[i] != pattern(i))
			fail_msg("byte %llu is %u", (unsigned long long)i, p[i]);
}

static inline bool is_zero(const u8 *p, u64 n)
{
	for (u64 i = 0; i < n; i++)
		if (p[i] != 0)
			return false;
	return true;
}

static inline u8 *map_private(u64 n)
{
	u8 *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static inline u64 enter(u8 *p, u64 n)
{
	return adopt_enter((uintptr_t)p, n);
}

static inline void leave(u8 *p, u64 n)
{
	adopt_leave((uintptr_t)p, n, true);
}

/* Resets the credit, as if nothing had been adopted or moved out for long. */
static inline void new_credit(void) NO_THREAD_SAFETY
{
	adopt.given_back = false;
	adopt.credit_ns = adopt.small_ns = 0;
}

/* Returns BYTES of filled memory that may be adopted at once. */
static inline u8 *new_memory(void)
{
	u8 *p;

	new_credit();
	p = map_private(BYTES);
	fill(p, BYTES);
	return p;
}

/* A joined thread may still be exiting. */
static inline void wait_until_alone(void)
{
	lock_acquire(&adopt_engine_lock);
	while (!look_is_alone())
		usleep(1000);
	lock_release(&adopt_engine_lock);
}

/* Tells whether this process may adopt. If not, the test is skipped (exit status 77), and this says
 * why. */
static inline bool adopt_kit_runs(void)
{
	setenv("ANYVERBS_ADOPT", "1", 1);
	if (adopt_is_on())
		return true;
	fprintf(stderr, "SKIPPED: no adoption here (another allocator, or a sanitizer)\n");
	return false;
}

struct seen {
	u64 at;
	bool shared, found;
	int prot;
} OWNED_BY(the test);

static inline void see(const struct vma *m, void *arg)
{
	struct seen *s = arg;

	if (m->start <= s->at && s->at < m->end) {
		s->found = true;
		s->shared = m->shared;
		s->prot = m->prot;
	}
}

static inline struct seen look_at(const void *p)
{
	struct seen s = { .at = (uintptr_t)p };
	int fd = vma_open();

	assert_true(vma_each(fd, see, &s));
	close(fd);
	return s;
}

static inline bool is_shared(const void *p)
{
	struct seen s = look_at(p);

	return s.found && s.shared;
}

static inline int protection(const void *p)
{
	struct seen s = look_at(p);

	assert_true(s.found);
	return s.prot;
}

#endif
