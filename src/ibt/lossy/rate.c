/* rate.c: paces a queue pair after congestion notifications: DCQCN's reaction point. Its requests
 * and its READ responses have a rate each.
 *
 * Nothing is paced before the first CNP. That one sets the current rate to the bytes in flight per
 * RTT, and cuts it; later ones cut it by half of alpha, which follows how often they come. In
 * between it rises in steps of time and of bytes: towards the rate before the cut (fast recovery),
 * then beyond it (additive, then hyper increase). Pacing ends at twice the first rate. The steps
 * are counted when the next packet is to be sent; the timer resumes the queue pair.
 *
 * In:    notifications (cnp.c), marked READ responses (retry.c), packets about to be sent
 * Out:   permission to send, now or later
 * Runs:  the thread that runs the requester or the responder
 * Locks:  sq_lock, or rq_lock for responses
 * Spec:  IBA annex A17 (congestion management); Zhu et al., "Congestion Control for Large-Scale
 * RDMA Deployments", SIGCOMM 2015, whose names these are
 */
#include <stdlib.h>

#include "base/clock.h"
#include "ibt/lossy/rate.h"
#include "ibt/lossy/window.h"

enum {
	RATE_MIN = 1000000, /* bytes per second */
	RATE_ADDITIVE = 2000000,
	RATE_HYPER = 20000000,
	RATE_FAST_STEPS = 5,
	RATE_TIMER_US = 300, /* a step of time; no shorter than the way there and back */
	RATE_STEP_BYTES = 10000000,
	RATE_ALPHA_ONE = 1 << 20,
	RATE_ALPHA_SHIFT = 4, /* g is 1/16 */
	RATE_ALPHA_US = 55,
	RATE_CUT_LEAST_US = 50,
	RATE_FORGET_MS = 1000, /* without a packet */
	RATE_BURST = 16 << 10, /* goes at once: few wake-ups, and packets that leave together */
	RATE_BURST_MOST_US = 100,
	/* A sleeper wakes late: what it could have sent meanwhile goes then, up to this. */
	RATE_LATE_US = 1000,
};
#define RATE_FIRST 1250000000ull /* 10 Gbit/s: where nothing has been measured */
#define RATE_MAX 12500000000ull	 /* 100 Gbit/s */

struct rate {
	struct ibt_qp *qp FIXED;
	struct timer timer GUARDS_ITSELF;
	bool on;
	bool timing; /* the timer is armed */
	bool held;   /* packets wait, or what has waited is being made up for */
	u64 current, target, ceiling; /* bytes per second */
	u32 alpha;		      /* of RATE_ALPHA_ONE */
	u32 time_steps, byte_steps;   /* since the last cut */
	u32 bytes;		      /* since the last step of bytes */
	u64 cut_ns, alpha_ns, step_ns;
	u32 way_us;  /* the way there and back; 0: not known */
	u64 now_ns;  /* when it was last asked for leave */
	u64 next_ns; /* when the next packet may go */
} OWNED_BY(its sq_lock; a rate of responses: its rq_lock);

struct ibt_qp *rate_qp(struct timer *t)
{
	return container_of(t, struct rate, timer)->qp;
}

void rate_expired(struct ibt_qp *qp)
{
	qp->req.rate->timing = false;
	qp_mark_runnable(qp);
}

void rate_answer_expired(struct ibt_qp *qp)
{
	qp->resp.answer_rate->timing = false;
}

static u64 rate_ns(const struct rate *r, u32 bytes)
{
	return bytes * NS_PER_S / r->current;
}

static u64 rate_burst_ns(const struct rate *r)
{
	return MIN(rate_ns(r, RATE_BURST), RATE_BURST_MOST_US * NS_PER_US);
}

/* ---- up ---- */

static void rate_step(struct rate *r)
{
	u32 most = MAX(r->time_steps, r->byte_steps), least = MIN(r->time_steps, r->byte_steps);

	if (least > RATE_FAST_STEPS)
		r->target += (u64)RATE_HYPER * (least - RATE_FAST_STEPS);
	else if (most > RATE_FAST_STEPS)
		r->target += RATE_ADDITIVE;
	r->target = MIN(r->target, r->ceiling);
	r->current = (r->current + r->target) / 2;
	if (r->current >= r->ceiling / 16 * 15)
		r->on = false;
}

/* What has happened by now. */
static void rate_advance(struct rate *r, u64 now_ns)
{
	u64 step = MAX((u32)RATE_TIMER_US, r->way_us) * NS_PER_US;

	if (now_ns - r->now_ns >= RATE_FORGET_MS * NS_PER_MS) {
		r->on = false;
		r->alpha = 0;
	}
	r->now_ns = now_ns;
	for (; now_ns - r->alpha_ns >= RATE_ALPHA_US * NS_PER_US && r->alpha != 0;
	     r->alpha_ns += RATE_ALPHA_US * NS_PER_US)
		r->alpha -= (r->alpha >> RATE_ALPHA_SHIFT) + (r->alpha < 1 << RATE_ALPHA_SHIFT);
	for (; r->on && now_ns - r->step_ns >= step; r->step_ns += step) {
		r->time_steps++;
		rate_step(r);
	}
}

/* ---- down ---- */

static struct rate *rate_create(struct ibt_qp *qp, void (*fn)(struct timer *t))
{
	struct rate *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->qp = qp;
	r->timer.fn = fn;
	r->alpha = RATE_ALPHA_ONE;
	r->now_ns = r->alpha_ns = clock_now_ns();
	return r;
}

/* What the queue pair has under way per time, if that is known: not of UC. */
static u64 rate_first(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	const struct stream *s = &qp->req.stream;
	u64 flight = MAX(s->cost_next - s->cost_done, (u32)RATE_BURST);

	if (!qp->streams || s->srtt_us == 0)
		return RATE_FIRST;
	return MIN(flight * 1000000 / s->srtt_us, RATE_MAX);
}

/* `first`: what it begins with if nothing has been paced so far. */
static void rate_reduce(struct rate *r, u64 now, u64 first)
{
	rate_advance(r, now);
	r->alpha += (RATE_ALPHA_ONE - r->alpha) >> RATE_ALPHA_SHIFT;
	r->alpha_ns = now;
	/* What is under way does not know of the last one yet. */
	if (now - r->cut_ns < MAX(r->way_us, (u32)RATE_CUT_LEAST_US) * NS_PER_US)
		return;
	if (!r->on) {
		r->on = true;
		r->current = first;
		r->ceiling = 2 * first;
		r->next_ns = 0;
	}
	r->target = r->current;
	r->current -= r->current / 2 * r->alpha / RATE_ALPHA_ONE;
	r->current = MAX(r->current, (u64)RATE_MIN);
	r->time_steps = r->byte_steps = r->bytes = 0;
	r->cut_ns = r->step_ns = now;
}

void rate_cut(struct ibt_qp *qp)
{
	u64 now = clock_now_ns();

	if (qp->req.rate == NULL)
		qp->req.rate = rate_create(qp, qp->ibt->rate_due);
	if (qp->req.rate != NULL) {
		qp->req.rate->way_us = qp->req.stream.srtt_us;
		rate_reduce(qp->req.rate, now, rate_first(qp));
	} else if (qp->streams) {
		window_cut(qp, qp->req.stream.srtt_us, now);
	}
}

void rate_cut_answers(struct ibt_qp *qp, u32 way_us)
{
	if (!qp->resp.has_answered)
		return;
	qp->resp.has_answered = false;
	if (qp->resp.answer_rate == NULL)
		qp->resp.answer_rate = rate_create(qp, qp->ibt->answer_rate_due);
	if (qp->resp.answer_rate == NULL)
		return;
	qp->resp.answer_rate->way_us = way_us;
	rate_reduce(qp->resp.answer_rate, clock_now_ns(), RATE_FIRST);
}

/* ---- leave to send ---- */

/* Must the next packet wait? Then the timer runs. */
static bool rate_waits(struct rate *r, const struct ibt_qp *qp, const struct path *path)
{
	rate_advance(r, clock_now_ns());
	if (!r->on || r->next_ns <= r->now_ns)
		return false;
	r->held = true;
	if (r->timing)
		return true;
	path_count(path, COUNT_TX_PACED);
	r->timing = true;
	if (timer_arm(qp->ibt->cfg.timers, &r->timer, r->next_ns + rate_burst_ns(r)))
		qp->ibt->cfg.kick(qp->ibt->cfg.arg);
	return true;
}

bool rate_must_wait(struct ibt_qp *qp)
{
	qp->req.rate->way_us = qp->req.stream.srtt_us;
	return rate_waits(qp->req.rate, qp, qp->dest->path);
}

bool rate_answer_must_wait(struct ibt_qp *qp)
{
	return rate_waits(qp->resp.answer_rate, qp, qp->dest->path);
}

/* When the next may go if so much goes now. */
static u64 rate_next_ns(const struct rate *r, u32 cost)
{
	u64 behind = r->held ? RATE_LATE_US * NS_PER_US : rate_burst_ns(r);

	return MAX(r->next_ns, r->now_ns - behind) + rate_ns(r, cost);
}

bool rate_pauses_after(struct ibt_qp *qp, u32 cost)
{
	const struct rate *r = qp->req.rate;

	return r->on && rate_next_ns(r, cost) > r->now_ns;
}

static void rate_count(struct rate *r, u32 cost)
{
	if (!r->on)
		return;
	r->next_ns = rate_next_ns(r, cost);
	if (r->next_ns > r->now_ns)
		r->held = false;
	r->bytes += cost;
	if (r->bytes < RATE_STEP_BYTES)
		return;
	r->bytes -= RATE_STEP_BYTES;
	r->byte_steps++;
	rate_step(r);
}

void rate_charge(struct ibt_qp *qp, u32 cost)
{
	rate_count(qp->req.rate, cost);
}

void rate_charge_answer(struct ibt_qp *qp, u32 cost)
{
	rate_count(qp->resp.answer_rate, cost);
}

bool rate_is_holding(const struct ibt_qp *qp)
{
	return qp->req.rate != NULL && qp->req.rate->timing;
}

static void rate_renew(struct rate *r)
{
	if (r == NULL)
		return;
	r->on = false;
	r->cut_ns = 0;
	r->alpha = RATE_ALPHA_ONE;
}

void rate_forget(struct ibt_qp *qp)
{
	rate_renew(qp->req.rate);
	rate_renew(qp->resp.answer_rate);
	qp->resp.has_answered = false;
}

void rate_quiesce(struct ibt_qp *qp)
{
	struct rate *r, *answers;

	lock_acquire(&qp->req.sq_lock);
	r = qp->req.rate;
	lock_release(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	answers = qp->resp.answer_rate;
	lock_release(&qp->resp.rq_lock);
	if (r != NULL)
		timer_cancel_wait(qp->ibt->cfg.timers, &r->timer);
	if (answers != NULL)
		timer_cancel_wait(qp->ibt->cfg.timers, &answers->timer);
}

void rate_destroy(struct ibt_qp *qp)
{
	free(qp->req.rate);
	free(qp->resp.answer_rate);
}
