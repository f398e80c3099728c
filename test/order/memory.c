/* memory.c: a memory that shows stores late, and a scheduler that tries every order.
 * In:    accesses of instrumented code    Out: runs, verdicts
 * Runs:  one thread; the two that are tried are contexts of it    Locks: none
 */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "base/lock.h"

enum {
	STACK = 256 << 10,
	STORES = 64,      /* in one buffer */
	PLACES = 1 << 12, /* bytes and words that one run touches */
	STEPS = 400,
	UNDO = 1 << 14,
	RUNS = 3000000,
};

enum mode { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

struct clock {
	u32 at[2];
};

/* A store that the others do not see yet. */
struct store {
	void *to;
	u64 value;
	u32 size;
	u32 fences; /* releasing ones before it */
	bool release;
	bool exchange; /* of a relaxed exchange: until it is seen nobody else changes the place */
	struct clock clock; /* what it brings to whoever acquires it */
};

struct thread {
	ucontext_t context;
	u8 *stack;
	bool done, yielded;
	u32 steps, seen; /* its own; the other's when it last yielded */
	const u32 *waits_for; /* a lock's word, to become 0 */
	struct store buffer[STORES];
	u32 stores, fences;
	struct clock clock, released, acquired; /* at its last release fence; by relaxed loads */
};

/* What is known of a byte (races) or of an atomic word (its first byte). */
struct place {
	const u8 *at;
	u32 write, read[2];        /* when; 0: never */
	u8 writer;
	bool write_plain, read_plain[2];
	u8 readers, writers;       /* atomic: which threads */
	struct clock clock;        /* of its last release */
};

struct undo {
	u8 *at;
	u64 before;
	u32 size;
};

struct choice {
	u16 taken, count;
};

static struct machine {
	bool running;
	const struct order *order;
	const char *wrong;
	ucontext_t scheduler;
	struct thread thread[2];
	int self;
	struct place places[PLACES];
	struct undo undo[UNDO];
	u32 undone;
	struct choice choice[STEPS];
	u32 depth, planned;
	u32 runs;
	bool found; /* a word that both touch, not known before */
	const u8 *shared[PLACES];
	char trace[STEPS][96];
	u32 traced;
} m;

static void order_wrong(const char *what)
{
	if (m.wrong == NULL)
		m.wrong = what;
}

/* ---- places ---- */

static u32 place_hash(const void *at)
{
	return (u32)((u64)(uintptr_t)at * 0x9e3779b97f4a7c15ull >> 52) % PLACES;
}

static struct place *place_of(const void *at)
{
	u32 i = place_hash(at);

	while (m.places[i].at != NULL && m.places[i].at != at)
		i = (i + 1) % PLACES;
	m.places[i].at = at;
	return &m.places[i];
}

static bool place_is_shared(const void *at)
{
	u32 i = place_hash(at);

	while (m.shared[i] != NULL && m.shared[i] != at)
		i = (i + 1) % PLACES;
	return m.shared[i] == at;
}

/* From the next exploration on its accesses are steps. */
static void place_share(const void *at)
{
	u32 i = place_hash(at);

	while (m.shared[i] != NULL)
		i = (i + 1) % PLACES;
	m.shared[i] = at;
	m.found = true;
}

/* What both only read shows the same in every order. */
static void place_use(const void *at, bool write)
{
	struct place *p = place_of(at);

	*(write ? &p->writers : &p->readers) |= (u8)(1 << m.self);
	if ((p->readers | p->writers) == 3 && p->writers != 0 && !place_is_shared(at))
		place_share(at);
}

/* ---- races ---- */

static bool clock_has(const struct clock *c, int thread, u32 when)
{
	return c->at[thread] >= when;
}

static void clock_join(struct clock *to, const struct clock *from)
{
	for (int i = 0; i < 2; i++)
		to->at[i] = MAX(to->at[i], from->at[i]);
}

static void race_check(const u8 *at, bool write, bool plain)
{
	const struct clock *now = &m.thread[m.self].clock;
	struct place *p = place_of(at);
	int other = !m.self;

	if (p->write != 0 && p->writer == other && (plain || p->write_plain) &&
	    !clock_has(now, other, p->write))
		order_wrong("a race: what the other thread wrote, with nothing between");
	if (write && p->read[other] != 0 && (plain || p->read_plain[other]) &&
	    !clock_has(now, other, p->read[other]))
		order_wrong("a race: what the other thread reads, with nothing between");
	if (write) {
		p->write = now->at[m.self];
		p->writer = (u8)m.self;
		p->write_plain = plain;
	} else {
		p->read[m.self] = now->at[m.self];
		p->read_plain[m.self] = plain;
	}
}

static bool order_on_stack(const void *at)
{
	const u8 *p = at;

	for (int i = 0; i < 2; i++)
		if (p >= m.thread[i].stack && p < m.thread[i].stack + STACK)
			return true;
	return false;
}

static void race_note(const void *at, u32 size, bool write, bool plain)
{
	for (u32 i = 0; i < size; i++)
		race_check((const u8 *)at + i, write, plain);
}

/* ---- undoing ---- */

static void undo_note(void *at, u32 size)
{
	struct undo *u = &m.undo[m.undone];

	if (m.undone == UNDO) {
		order_wrong("more writes than there is room for");
		return;
	}
	*u = (struct undo){ .at = at, .size = size };
	memcpy(&u->before, at, size);
	m.undone++;
}

static void undo_all(void)
{
	while (m.undone > 0) {
		struct undo *u = &m.undo[--m.undone];

		memcpy(u->at, &u->before, u->size);
	}
}

/* ---- stores on their way ---- */

static void store_show(struct thread *t, u32 i)
{
	struct store s = t->buffer[i];
	struct place *p = place_of(s.to);

	memmove(&t->buffer[i], &t->buffer[i + 1], (t->stores - i - 1) * sizeof(s));
	t->stores--;
	memcpy(s.to, &s.value, s.size);
	p->clock = s.clock;
}

/* The thread's own last store to a place, not seen by others yet. */
static struct store *store_find(struct thread *t, const void *at)
{
	for (u32 i = t->stores; i > 0; i--)
		if (t->buffer[i - 1].to == at)
			return &t->buffer[i - 1];
	return NULL;
}

/* May the store be seen before those that are older? */
static bool store_may_go(const struct thread *t, u32 i)
{
	const struct store *others = store_find(&m.thread[t == &m.thread[0]], t->buffer[i].to);

	if (others != NULL && others->exchange)
		return false;
	if (t->buffer[i].release)
		return i == 0;
	for (u32 k = 0; k < i; k++)
		if (t->buffer[k].to == t->buffer[i].to ||
		    t->buffer[k].fences != t->buffer[i].fences)
			return false;
	return true;
}

static void store_show_all(struct thread *t)
{
	while (t->stores > 0)
		store_show(t, 0);
}

/* What has been put into one place, however much is older elsewhere. */
static void store_show_all_of(struct thread *t, const void *at)
{
	for (u32 i = 0; i < t->stores;)
		if (t->buffer[i].to == at)
			store_show(t, i);
		else
			i++;
}

static void order_say(const char *what, const void *at, u64 value, const void *from)
{
	if (m.traced < STEPS)
		snprintf(m.trace[m.traced++], sizeof(m.trace[0]), "thread %d %-6s %p = %llx  (%p)",
			 m.self, what, at, (unsigned long long)value, from);
}

/* ---- the scheduler ---- */

/* Lets the scheduler choose who goes on. */
static void order_step(void)
{
	swapcontext(&m.thread[m.self].context, &m.scheduler);
}

static void order_run_thread(void)
{
	m.order->thread[m.self]();
	m.thread[m.self].done = true;
	order_step();
}

static void thread_begin(int i)
{
	struct thread *t = &m.thread[i];
	u8 *stack = t->stack;

	memset(t, 0, sizeof(*t));
	t->stack = stack != NULL ? stack : malloc(STACK);
	t->clock.at[i] = 1;
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = STACK;
	makecontext(&t->context, order_run_thread, 0);
}

static bool thread_can_go(const struct thread *t)
{
	return !t->done && !t->yielded && (t->waits_for == NULL || *t->waits_for == 0);
}

/* What may happen next: 0, 1: that thread goes on; 2 + 64 i + k: thread i's store k is seen. */
static u32 order_options(u16 options[2 + 2 * STORES])
{
	u32 n = 0;

	for (u16 i = 0; i < 2; i++)
		if (thread_can_go(&m.thread[i]))
			options[n++] = i;
	for (u16 i = 0; i < 2; i++)
		for (u16 k = 0; k < m.thread[i].stores && !m.thread[!i].done; k++)
			if (store_may_go(&m.thread[i], k))
				options[n++] = (u16)(2 + STORES * i + k);
	return n;
}

static u16 order_choose(u32 count)
{
	if (m.depth == STEPS) {
		order_wrong("it does not end");
		return 0;
	}
	if (m.depth >= m.planned)
		m.choice[m.planned++] = (struct choice){ 0, (u16)count };
	return m.choice[m.depth++].taken;
}

static void order_take(u16 option)
{
	int i = option < 2 ? option : (option - 2) / STORES;

	m.self = i;
	m.thread[i].steps++;
	m.thread[!i].yielded = false;
	if (option < 2) {
		swapcontext(&m.scheduler, &m.thread[option].context);
	} else {
		order_say("shown", m.thread[m.self].buffer[(option - 2) % STORES].to,
			  m.thread[m.self].buffer[(option - 2) % STORES].value, NULL);
		store_show(&m.thread[m.self], (option - 2) % STORES);
	}
}

static void order_run(void)
{
	u16 options[2 + 2 * STORES];
	u32 n;

	memset(m.places, 0, sizeof(m.places));
	m.depth = m.traced = 0;
	m.order->begin();
	for (int i = 0; i < 2; i++)
		thread_begin(i);
	m.running = true;
	while (m.wrong == NULL && (n = order_options(options)) != 0)
		order_take(options[n == 1 ? 0 : order_choose(n)]);
	m.running = false;
	for (int i = 0; i < 2; i++)
		store_show_all(&m.thread[i]);
	if (m.wrong == NULL && !(m.thread[0].done && m.thread[1].done))
		order_wrong("both wait for ever");
	if (m.wrong == NULL && !m.found)
		m.wrong = m.order->judge();
	undo_all();
	m.runs++;
}

/* The next plan; false: there is none. */
static bool order_next(void)
{
	while (m.planned > 0) {
		struct choice *c = &m.choice[m.planned - 1];

		if (++c->taken < c->count)
			return true;
		m.planned--;
	}
	return false;
}

const char *order_explore(const struct order *o)
{
	memset(m.shared, 0, sizeof(m.shared));
	m.order = o;
	m.wrong = NULL;
	do {
		m.found = false;
		m.planned = m.runs = 0;
		do
			order_run();
		while (m.wrong == NULL && !m.found && m.runs < RUNS && order_next());
	} while (m.wrong == NULL && m.found);
	if (m.runs == RUNS)
		order_wrong("too many orders to try them all");
	for (u32 i = 0; m.wrong != NULL && i < m.traced; i++)
		fprintf(stderr, "%s: %s\n", o->name, m.trace[i]);
	return m.wrong;
}

u32 order_runs(void)
{
	return m.runs;
}

/* ---- in place of base/lock.c, and of the kernel ---- */

void lock_wait(struct lock *l)
{
	u32 unlocked = 0;

	while (!__atomic_compare_exchange_n(&l->word, &unlocked, 1, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		m.thread[m.self].waits_for = &l->word;
		order_step();
		m.thread[m.self].waits_for = NULL;
		unlocked = 0;
	}
	undo_note(&l->word, sizeof(l->word));
	clock_join(&m.thread[m.self].clock, &place_of(&l->word)->clock);
}

void lock_wake(struct lock *l)
{
}

int sched_yield(void);

/* Nothing changes for this thread until something has happened; since it last said so, that is. */
int sched_yield(void)
{
	struct thread *t = &m.thread[m.self];

	if (!m.running)
		return 0;
	t->yielded = t->seen == m.thread[!m.self].steps;
	t->seen = m.thread[!m.self].steps;
	order_step();
	return 0;
}

/* ---- accesses ---- */

static void access_plain(void *at, u32 size, bool write)
{
	if (!m.running || order_on_stack(at))
		return;
	for (u32 i = 0; write && i < size; i += 8)
		undo_note((u8 *)at + i, MIN(size - i, 8u));
	race_note(at, size, write, true);
}

/* A store that goes into the buffer is nobody else's step. */
static void access_point(void *at, bool write, bool step)
{
	place_use(at, write);
	if (step && place_is_shared(at))
		order_step();
	m.thread[m.self].clock.at[m.self]++;
}

static void access_acquire(struct thread *t, const struct place *p, int mode)
{
	if (mode == RELAXED || mode == RELEASE)
		clock_join(&t->acquired, &p->clock);
	else
		clock_join(&t->clock, &p->clock);
}

static u64 access_load(void *at, u32 size, int mode, const void *from)
{
	struct thread *t = &m.thread[m.self];
	u64 value = 0;

	memcpy(&value, at, size);
	if (!m.running)
		return value;
	access_point(at, false, true);
	memcpy(&value, at, size);
	race_note(at, size, false, false);
	if (store_find(t, at) != NULL)
		value = store_find(t, at)->value;
	else
		access_acquire(t, place_of(at), mode);
	order_say("load", at, value, from);
	return value;
}

static void access_buffer(void *at, u32 size, u64 value, int mode, bool exchange)
{
	struct thread *t = &m.thread[m.self];

	if (t->stores == STORES)
		store_show(t, 0);
	t->buffer[t->stores++] =
		(struct store){ .to = at,
				.value = value,
				.size = size,
				.fences = t->fences,
				.release = mode >= RELEASE,
				.exchange = exchange,
				.clock = mode >= RELEASE ? t->clock : t->released };
	/* what only this thread touches need not wait */
	if (mode == SEQ_CST)
		store_show_all(t);
	else if (!place_is_shared(at) && store_may_go(t, t->stores - 1))
		store_show(t, t->stores - 1);
}

static void access_store(void *at, u32 size, u64 value, int mode, const void *from)
{
	if (!m.running) {
		memcpy(at, &value, size);
		return;
	}
	access_point(at, true, mode == SEQ_CST);
	race_note(at, size, true, false);
	undo_note(at, size);
	order_say(mode >= RELEASE ? "store!" : "store", at, value, from);
	access_buffer(at, size, value, mode, false);
}

/* The step of an exchange: what is there now, which nobody changes before access_change. Only one
 * that releases waits for older stores. */
static u64 access_take(void *at, u32 size, int mode)
{
	struct thread *t = &m.thread[m.self], *other = &m.thread[!m.self];
	u64 value = 0;

	if (m.running) {
		bool drains = mode >= RELEASE || store_find(t, at) != NULL;

		if (drains && t->stores > 0)
			order_step();
		access_point(at, true, true);
		if (drains)
			store_show_all(t);
		if (store_find(other, at) != NULL && store_find(other, at)->exchange)
			store_show_all(other);
		race_note(at, size, false, false);
		access_acquire(t, place_of(at), mode);
	}
	memcpy(&value, at, size);
	return value;
}

static void access_change(void *at, u32 size, u64 value, int mode, const void *from)
{
	struct thread *t = &m.thread[m.self];
	struct clock before;

	if (!m.running) {
		memcpy(at, &value, size);
		return;
	}
	race_note(at, size, true, false);
	undo_note(at, size);
	order_say("change", at, value, from);
	before = place_of(at)->clock;
	access_buffer(at, size, value, mode, true);
	if (mode != RELAXED)
		store_show_all_of(t, at);
	/* goes on with what was released there before */
	if (store_find(t, at) != NULL)
		clock_join(&store_find(t, at)->clock, &before);
	else
		clock_join(&place_of(at)->clock, &before);
}

static void access_fence(int mode)
{
	struct thread *t = &m.thread[m.self];

	if (!m.running)
		return;
	/* the others may see the stores one by one */
	if (mode == SEQ_CST && t->stores > 0)
		order_step();
	t->clock.at[m.self]++;
	order_say("fence", NULL, (u64)mode, __builtin_return_address(0));
	if (mode == SEQ_CST)
		store_show_all(t);
	if (mode != RELEASE)
		clock_join(&t->clock, &t->acquired);
	if (mode != ACQUIRE) {
		t->released = t->clock;
		t->fences++;
	}
}

void *order_memcpy(void *to, const void *from, size_t size)
{
	access_plain((void *)(uintptr_t)from, (u32)size, false);
	access_plain(to, (u32)size, true);
	return memcpy(to, from, size);
}

void *order_memmove(void *to, const void *from, size_t size)
{
	access_plain((void *)(uintptr_t)from, (u32)size, false);
	access_plain(to, (u32)size, true);
	return memmove(to, from, size);
}

/* ---- what instrumented code calls ---- */

#define FROM __builtin_return_address(0)

#define ATOMIC(bits)                                                                               \
	u##bits __tsan_atomic##bits##_load(const volatile u##bits *a, int mode);                   \
	u##bits __tsan_atomic##bits##_load(const volatile u##bits *a, int mode)                    \
	{                                                                                          \
		return (u##bits)access_load((void *)(uintptr_t)a, bits / 8, mode, FROM);           \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile u##bits *a, u##bits v, int mode);                \
	void __tsan_atomic##bits##_store(volatile u##bits *a, u##bits v, int mode)                 \
	{                                                                                          \
		access_store((void *)(uintptr_t)a, bits / 8, v, mode, FROM);                       \
	}                                                                                          \
	CHANGE(bits, exchange, v)                                                                  \
	CHANGE(bits, fetch_add, was + v)                                                           \
	CHANGE(bits, fetch_sub, was - v)                                                           \
	CHANGE(bits, fetch_or, was | v)                                                            \
	CHANGE(bits, fetch_and, was & v)                                                           \
	CHANGE(bits, fetch_xor, was ^ v)                                                           \
	COMPARE(bits, strong)                                                                      \
	COMPARE(bits, weak)

#define CHANGE(bits, name, result)                                                                 \
	u##bits __tsan_atomic##bits##_##name(volatile u##bits *a, u##bits v, int mode);            \
	u##bits __tsan_atomic##bits##_##name(volatile u##bits *a, u##bits v, int mode)             \
	{                                                                                          \
		u##bits was = (u##bits)access_take((void *)(uintptr_t)a, bits / 8, mode);          \
                                                                                                   \
		access_change((void *)(uintptr_t)a, bits / 8, (u##bits)(result), mode, FROM);      \
		return was;                                                                        \
	}

#define COMPARE(bits, kind)                                                                        \
	int __tsan_atomic##bits##_compare_exchange_##kind(volatile u##bits *a, u##bits *expected,  \
							  u##bits v, int mode, int failed);        \
	int __tsan_atomic##bits##_compare_exchange_##kind(volatile u##bits *a, u##bits *expected,  \
							  u##bits v, int mode, int failed)         \
	{                                                                                          \
		u##bits was = (u##bits)access_take((void *)(uintptr_t)a, bits / 8, mode);          \
		bool same = was == *expected;                                                      \
                                                                                                   \
		if (same)                                                                          \
			access_change((void *)(uintptr_t)a, bits / 8, v, mode, FROM);              \
		else                                                                               \
			*expected = was;                                                           \
		return same;                                                                       \
	}

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

#define PLAIN(size)                                                                                \
	void __tsan_read##size(void *at);                                                          \
	void __tsan_read##size(void *at)                                                           \
	{                                                                                          \
		access_plain(at, size, false);                                                     \
	}                                                                                          \
	void __tsan_write##size(void *at);                                                         \
	void __tsan_write##size(void *at)                                                          \
	{                                                                                          \
		access_plain(at, size, true);                                                      \
	}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *at, size_t size);
void __tsan_read_range(void *at, size_t size)
{
	access_plain(at, (u32)size, false);
}

void __tsan_write_range(void *at, size_t size);
void __tsan_write_range(void *at, size_t size)
{
	access_plain(at, (u32)size, true);
}

void __tsan_atomic_thread_fence(int mode);
void __tsan_atomic_thread_fence(int mode)
{
	access_fence(mode);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *from);
void __tsan_func_entry(void *from)
{
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
