/* drive.c: whether a peer's engine is faster than a copy by the kernel, and that it does not sleep
 * over what was left to it.
 *
 * A one-sided operation on memory that is not mapped here costs a system call of some microseconds.
 * As a packet it costs a fraction of that if a thread of the peer polls, which the peer's board
 * shows (`drives`); and a long list, or copies one right after another, cost more than to wake the
 * peer's engine once. So such operations are tried as packets, and an account decides: each that
 * was left to the peer earns a copy, the time until the last of them has ended costs as many as
 * would have fitted in. The account has a limit, for a wake-up pays off over the requests behind
 * it; when it is overdrawn, copies follow, several for each that it owes, and more each time.
 *
 * The peer's engine sleeps up to a tick without an arm of its doorbell where its threads have
 * polled just before. So what was left to it is *pressed* until it has ended: if no thread of the
 * peer polls any more its doorbell is rung, by polls that find nothing DRIVE_WAIT_US later or by
 * the last poll before a sleep. Where this process does neither the peer's next tick does.
 *
 * In: a target, the peer's board    Out: a choice, a ring
 * Runs: posters choose, the receiver looks    Locks: that of the link's ring. What a link keeps of
 * it are hints: a lost update costs some copies, a ring, or a tick
 */
#include "path/shm/shm_priv.h"

#include "base/clock.h"
#include "base/task.h"

enum {
	DRIVE_MOST = 8 << 10, /* bytes: longer ones the kernel copies faster */
	DRIVE_STREAM = 32,    /* copies in a row, or requests of a list, for which to wake it */
	DRIVE_NEXT_US = 8,    /* a copy, and the time until the next one in a row */
	DRIVE_FRESH_US = 20,  /* so long after a look that found it polling it counts as polling */
	DRIVE_RECENT_US = 40, /* a look back so far shows whether it polls */
	/* so long its threads are waited for: one whose core another has taken for a moment needs
	 * no ring, which would take it once more */
	DRIVE_WAIT_US = 50,
	DRIVE_ALIVE_MS = 1, /* so long after a look at its state it counts as not stopped */
	DRIVE_EVERY = 16,   /* idle polls from look to look */
	DRIVE_GLANCES = 8,  /* at a peer of which it is not known whether it polls now */
	/* polls to be seen: the first of them may have begun before the packet was there */
	DRIVE_PASSES = 2,
	DRIVE_COPY_NS = 2000,
	DRIVE_LONG_MS = 100,  /* a longer wait counts as that */
	DRIVE_CREDIT = 64,    /* the most that the account holds, in copies */
	DRIVE_LIMIT = 512,    /* the most that it may owe: a wake-up of a millisecond */
	DRIVE_REST = 8,	      /* so many copies for each that it owes follow */
	DRIVE_VAIN_MOST = 3,  /* doublings of that */
	DRIVE_ENOUGH_MS = 10, /* some ticks of the peer: it needs no ring */
};

#define HINT(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SET_HINT(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)

static inline u32 drive_count(const struct shm_link *l)
{
	return __atomic_load_n(&l->board->drives, __ATOMIC_ACQUIRE); /* pairs with progress_drive */
}

/* ---- the choice ---- */

/* Tells whether the count moves now, by so many passes from `count`. */
static NOINLINE bool drive_moves(const struct shm_link *l, u32 count, u32 passes)
{
	for (int i = 0; i < DRIVE_GLANCES; i++) {
		if (drive_count(l) - count >= passes)
			return true;
		cpu_relax();
	}
	return false;
}

/* Tells whether a thread of the peer polls. The count lies on a line that the peer writes at each
 * pass, so it is looked at rarely. What has changed since the last look may have changed long
 * ago. */
static bool drive_is_on(struct shm_link *l, u64 now)
{
	struct shm_drive *d = &l->drive;
	u64 look_ns = HINT(d->look_ns), on_ns = HINT(d->on_ns);
	u32 count;

	if (on_ns != 0 && now - on_ns < DRIVE_FRESH_US * NS_PER_US)
		return true;
	count = drive_count(l);
	SET_HINT(d->look_ns, now);
	if (count == HINT(d->seen))
		now = 0;
	else if (now - look_ns >= DRIVE_RECENT_US * NS_PER_US && !drive_moves(l, count, 1))
		now = 0;
	SET_HINT(d->seen, count);
	SET_HINT(d->on_ns, now);
	return now != 0;
}

/* Tells whether the peer's process is stopped. A look costs as much as some copies. */
static bool drive_is_stopped(struct shm_link *l, u64 now)
{
	struct shm_drive *d = &l->drive;
	char state;

	if (now - HINT(d->alive_ns) < DRIVE_ALIVE_MS * NS_PER_MS)
		return false;
	state = task_state(l->pid);
	if (state == 'T' || state == 't') { /* by a signal, by a debugger */
		SET_HINT(d->shy, DRIVE_STREAM);
		return true;
	}
	SET_HINT(d->alive_ns, now);
	return false;
}

/* Counts the copies until now, one right after another. */
static u32 drive_row(const struct shm_drive *d, u64 now)
{
	return now - HINT(d->next_ns) < DRIVE_NEXT_US * NS_PER_US ? HINT(d->copies) : 0;
}

/* Tells whether copies come one right after another, or would. */
static bool drive_is_stream(struct shm_link *l, const struct path_target *t, u64 now)
{
	return drive_row(&l->drive, now) + t->behind >= DRIVE_STREAM && !drive_is_stopped(l, now);
}

static bool drive_is_shy(struct shm_drive *d)
{
	u32 shy = HINT(d->shy);

	if (likely(shy == 0))
		return false;
	SET_HINT(d->shy, shy - 1);
	return true;
}

static void drive_note_copy(struct shm_drive *d, u64 now)
{
	SET_HINT(d->copies, MIN(drive_row(d, now) + 1, (u32)DRIVE_STREAM));
	SET_HINT(d->next_ns, now);
}

static void drive_press(struct shm_link *l, u64 now)
{
	struct shm_drive *d = &l->drive;

	SET_HINT(d->rung, HINT(l->rung));
	SET_HINT(d->press_ns, now);
	SET_HINT(d->look_for_ns, 0);
	SET_HINT(d->polls, 0);
	SET_HINT(l->dest.presses, true);
	SET_HINT(l->shm->presses, true);
}

bool drive_is_faster(struct shm_link *l, const struct path_target *t)
{
	struct shm_drive *d = &l->drive;
	u64 now;

	if (t->type != IBV_QPT_RC || t->length > DRIVE_MOST)
		return false;
	if (t->announced) /* by a packet, which can bring the data as well */
		return true;
	now = clock_now_ns();
	if (drive_is_shy(d) || (!drive_is_on(l, now) && !drive_is_stream(l, t, now))) {
		drive_note_copy(d, now);
		return false;
	}
	drive_press(l, now);
	return true;
}

void drive_joined(struct shm_link *l, u32 more)
{
	struct shm_drive *d = &l->drive;
	u32 shy = HINT(d->shy);

	SET_HINT(d->next_ns, clock_now_ns()); /* it took as long as several */
	if (unlikely(shy != 0))
		SET_HINT(d->shy, shy - MIN(shy, more));
}

/* ---- what becomes of it ---- */

void drive_answered(struct shm_link *l, u32 n, u64 ns, bool more)
{
	struct shm_drive *d = &l->drive;
	s64 credit = (s64)HINT(d->credit) + n -
		     (s64)(MIN(ns, DRIVE_LONG_MS * NS_PER_MS) / DRIVE_COPY_NS);
	u64 now = clock_now_ns();
	u32 vain = HINT(d->vain);

	SET_HINT(d->next_ns, now);
	SET_HINT(l->dest.presses, false);
	if (more)
		drive_press(l, now);
	if (credit >= -DRIVE_LIMIT) {
		SET_HINT(d->credit, (s32)MIN(credit, (s64)DRIVE_CREDIT));
		if (unlikely(vain != 0 && credit >= DRIVE_CREDIT))
			SET_HINT(d->vain, 0);
		return;
	}
	SET_HINT(d->credit, 0);
	SET_HINT(d->copies, 0);
	SET_HINT(d->shy, (u32)(-credit * DRIVE_REST) << vain);
	SET_HINT(d->vain, MIN(vain + 1, (u32)DRIVE_VAIN_MOST));
}

void link_answered(struct path_dest *d, u32 n, u64 ns, bool more)
{
	drive_answered(link_real(d), n, ns, more);
}

/* The peer has not been heard of. Rings once, if the packet has not. */
static void drive_wake(struct shm_link *l)
{
	struct shm_drive *d = &l->drive;
	u32 rung = HINT(l->rung);
	u32 count = HINT(d->look_for_ns) != 0 ? HINT(d->pressed) : drive_count(l);

	if (HINT(d->rung) != rung || drive_moves(l, count, DRIVE_PASSES))
		return;
	SET_HINT(d->rung, rung + 1);
	link_ring_anyway(l);
}

void drive_look(struct shm_link *l)
{
	struct shm_drive *d = &l->drive;
	u32 polls = HINT(d->polls) + 1;
	u64 now, since = HINT(d->look_for_ns);

	SET_HINT(d->polls, polls);
	if (polls % DRIVE_EVERY != 0) /* most answers come meanwhile */
		return;
	now = clock_now_ns();
	/* another thread may press meanwhile, later than `now` */
	if ((s64)(now - HINT(d->press_ns)) >= DRIVE_ENOUGH_MS * (s64)NS_PER_MS) {
		SET_HINT(l->dest.presses, false);
		return;
	}
	if (since != 0 && (s64)(now - since) < DRIVE_WAIT_US * (s64)NS_PER_US)
		return;
	if (since != 0)
		drive_wake(l);
	/* behind the packet: what it may have missed is not counted */
	SET_HINT(d->pressed, drive_count(l));
	SET_HINT(d->look_for_ns, now);
}

void drive_look_all(struct shm *shm)
{
	if (likely(!HINT(shm->presses)))
		return;
	SET_HINT(shm->presses, false);
	for (u32 i = 0; i < shm->count; i++)
		if (path_presses(&shm->links[i]->dest)) {
			SET_HINT(shm->presses, true);
			drive_wake(shm->links[i]);
		}
}
