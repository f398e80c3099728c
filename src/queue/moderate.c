/* moderate.c: delays a CQ's event until several completions have come, or a time has passed.
 *
 * In:    arms that are met (cq.c), the end of the period (a timer)    Out: the event, once per arm
 * Runs:  whoever adds completions; whoever runs timers
 * Locks: the CQ's lock; timer_set.lock under it
 */
#include "queue/moderate.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

static bool moderation_is_on(const struct cq_moderation *m)
{
	return m->count > 1 || m->period_us > 0;
}

/* A full CQ would overflow before it had enough. */
static bool moderation_has_enough(const struct cq *cq) REQUIRES(cq->lock)
{
	const struct cq_moderation *m = cq->moderation;

	return (m->count > 0 && cq->head - m->first >= m->count) ||
	       cq->head - __atomic_load_n(&cq->tail, __ATOMIC_RELAXED) >= cq->capacity;
}

static u32 moderation_wait(struct cq *cq) REQUIRES(cq->lock)
{
	struct cq_moderation *m = cq->moderation;
	u64 due_ns = clock_now_ns() + (u64)m->period_us * NS_PER_US;

	if (m->period_us == 0)
		return CQ_AFTER_NONE;
	return timer_arm(m->clock.timers, &m->timer, due_ns) ? CQ_AFTER_KICK : CQ_AFTER_NONE;
}

static u32 moderation_end(struct cq *cq) REQUIRES(cq->lock)
{
	struct cq_moderation *m = cq->moderation;

	if (m->gathering && m->clock.timers)
		timer_cancel(m->clock.timers, &m->timer);
	m->gathering = false;
	return CQ_AFTER_FIRE;
}

u32 moderation_judge(struct cq *cq, u32 first)
{
	struct cq_moderation *m = cq->moderation;
	bool begins = !m->gathering;

	if (!moderation_is_on(m))
		return moderation_end(cq);
	if (begins)
		m->first = first;
	if (moderation_has_enough(cq))
		return moderation_end(cq);
	m->gathering = true;
	cq->armed = CQ_NEXT_COMP;
	return begins ? moderation_wait(cq) : CQ_AFTER_NONE;
}

void moderation_forget(struct cq *cq, u32 head)
{
	struct cq_moderation *m = cq->moderation;

	if (m && (s32)(m->first - head) > 0)
		m->first = head;
}

/* A callback that comes late, for an arm whose event was raised by the count, may raise the next
 * arm's early. */
static void moderation_expire(struct timer *t)
{
	struct cq_moderation *m = container_of(t, struct cq_moderation, timer);
	struct cq *cq = m->cq;
	u32 after = CQ_AFTER_NONE;

	lock_acquire(&cq->lock);
	if (m->gathering) {
		after = moderation_end(cq);
		cq_spend_gathered(cq);
	}
	lock_release(&cq->lock);
	cq_follow(cq, after);
}

static int moderation_make(struct cq *cq, const struct cq_clock *clock)
{
	struct cq_moderation *m = calloc(1, sizeof(*m)), *spare = m;

	if (!m)
		return -ENOMEM;
	m->cq = cq;
	m->clock = *clock;
	m->timer.fn = moderation_expire;
	lock_acquire(&cq->lock);
	if (!cq->moderation) {
		cq->moderation = m;
		spare = NULL;
	}
	lock_release(&cq->lock);
	free(spare);
	return 0;
}

/* The new limits hold for what is being gathered, too; its period begins anew. */
static u32 moderation_change(struct cq *cq, u32 count, u32 period_us) REQUIRES(cq->lock)
{
	struct cq_moderation *m = cq->moderation;

	m->count = count;
	m->period_us = period_us;
	if (!m->gathering)
		return CQ_AFTER_NONE;
	timer_cancel(m->clock.timers, &m->timer);
	if (moderation_is_on(m) && !moderation_has_enough(cq))
		return moderation_wait(cq);
	cq_spend_gathered(cq);
	return moderation_end(cq);
}

int cq_moderate(struct cq *cq, const struct cq_clock *clock, u32 count, u32 period_us)
{
	u32 after;
	int err = moderation_make(cq, clock);

	if (err)
		return err;
	lock_acquire(&cq->lock);
	after = moderation_change(cq, count, period_us);
	lock_release(&cq->lock);
	cq_follow(cq, after);
	return 0;
}

void moderation_stop(struct cq *cq)
{
	struct cq_moderation *m;

	lock_acquire(&cq->lock);
	m = cq->moderation;
	if (m)
		m->count = m->period_us = 0;
	lock_release(&cq->lock);
	if (m && m->clock.timers)
		timer_cancel_wait(m->clock.timers, &m->timer);
}

void moderation_fini(struct cq *cq) NO_THREAD_SAFETY /* nobody else has it any more */
{
	free(cq->moderation);
	cq->moderation = NULL;
}

void cq_orphan(struct cq *cq) NO_THREAD_SAFETY /* the child has one thread */
{
	struct cq_moderation *m = cq->moderation;

	lock_init(&cq->lock);
	lock_init(&cq->poll_lock);
	cq->owing = NULL;
	if (m) {
		m->clock.timers = NULL;
		m->count = m->period_us = 0;
		m->gathering = false;
	}
}
