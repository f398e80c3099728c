/* rate.c: how fast a queue pair sends once the network has said that it is congested: DCQCN's
 * reaction point.
 *
 * Nothing is paced before the first notification. That one sets the current rate to what was under
 * way per time of a way there and back, and cuts it; others cut it by half of alpha, which follows
 * how often they come. In between it rises in steps of time and of bytes: towards the rate before
 * the cut (fast recovery), then beyond it (additive, then hyper increase). Where it reaches twice
 * what it began with pacing ends. The steps are counted when the next packet wants to go; the timer
 * only says when it may.
 *
 * In:    notifications (cnp.c), marked answers of READs (retry.c), packets about to be sent
 * Out:   leave to send, now or later
 * Runs:  whoever runs the requester    Locks: sq_lock
 * Spec:  IBA annex A17, 17.9; Zhu et al., "Congestion Control for Large-Scale RDMA Deployments",
 *        SIGCOMM 2015, whose names these are
 */
#include <stdlib.h>

#include "base/clock.h"
#include "ibt/ibt_priv.h"

enum {
	RATE_LEAST = 1000000, /* bytes per second */
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
#define RATE_MOST 12500000000ull /* 100 Gbit/s */

struct rate {
	struct ibt_qp *qp;
	struct timer timer;
	bool on;
	bool timing; /* the timer is armed */
	bool held;   /* packets wait, or what has waited is being made up for */
	u64 current, target, ceiling; /* bytes per second */
	u32 alpha;		      /* of RATE_ALPHA_ONE */
	u32 time_steps, byte_steps;   /* since the last cut */
	u32 bytes;		      /* since the last step of bytes */
	u64 cut_ns, alpha_ns, step_ns;
	u64 now_ns;  /* when it was last asked for leave */
	u64 next_ns; /* when the next packet may go */
};

static void rate_timer(struct timer *t)
{
	struct rate *r = container_of(t, struct rate, timer);
	struct ibt_qp *qp = r->qp;
	struct path_dest *others = NULL;

	lock_acquire(&qp->sq_lock);
	r->timing = false;
	req_pump(qp);
	if (qp->streams)
		others = window_claim(qp);
	lock_release(&qp->sq_lock);
	window_wake(others);
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

static u64 rate_timer_ns(const struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	return MAX((u32)RATE_TIMER_US, qp->stream.srtt_us) * NS_PER_US;
}

/* What has happened by now. */
static void rate_advance(struct ibt_qp *qp, u64 now_ns) REQUIRES(qp->sq_lock)
{
	struct rate *r = qp->rate;
	u64 step = rate_timer_ns(qp);

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

static struct rate *rate_create(struct ibt_qp *qp)
{
	struct rate *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->qp = qp;
	r->timer.fn = rate_timer;
	r->alpha = RATE_ALPHA_ONE;
	r->now_ns = r->alpha_ns = clock_now_ns();
	return r;
}

/* From what the queue pair has under way, if that is known: not of UC. */
static void rate_begin(struct ibt_qp *qp, struct rate *r) REQUIRES(qp->sq_lock)
{
	const struct stream *s = &qp->stream;
	u64 flight = MAX(s->cost_next - s->cost_done, (u32)RATE_BURST);

	r->on = true;
	r->current = RATE_FIRST;
	if (qp->streams && s->srtt_us != 0)
		r->current = MIN(flight * 1000000 / s->srtt_us, RATE_MOST);
	r->ceiling = 2 * r->current;
	r->next_ns = 0;
}

void rate_cut(struct ibt_qp *qp)
{
	u64 now = clock_now_ns(), least = MAX(qp->stream.srtt_us, (u32)RATE_CUT_LEAST_US);
	struct rate *r = qp->rate;

	if (r == NULL)
		r = qp->rate = rate_create(qp);
	if (r == NULL) {
		if (qp->streams)
			window_cut(qp, qp->stream.srtt_us, now);
		return;
	}
	rate_advance(qp, now);
	r->alpha += (RATE_ALPHA_ONE - r->alpha) >> RATE_ALPHA_SHIFT;
	r->alpha_ns = now;
	/* What is under way does not know of the last one yet. */
	if (now - r->cut_ns < least * NS_PER_US)
		return;
	if (!r->on)
		rate_begin(qp, r);
	r->target = r->current;
	r->current -= r->current / 2 * r->alpha / RATE_ALPHA_ONE;
	r->current = MAX(r->current, (u64)RATE_LEAST);
	r->time_steps = r->byte_steps = r->bytes = 0;
	r->cut_ns = r->step_ns = now;
}

/* ---- leave to send ---- */

bool rate_must_wait(struct ibt_qp *qp)
{
	struct rate *r = qp->rate;

	rate_advance(qp, clock_now_ns());
	if (!r->on || r->next_ns <= r->now_ns)
		return false;
	r->held = true;
	if (r->timing)
		return true;
	path_count(qp->dest->path, COUNT_TX_PACED);
	r->timing = true;
	if (timer_arm(qp->ibt->cfg.timers, &r->timer, r->next_ns + rate_burst_ns(r)))
		qp->ibt->cfg.kick(qp->ibt->cfg.arg);
	return true;
}

bool rate_pauses_after(struct ibt_qp *qp, u32 cost)
{
	const struct rate *r = qp->rate;

	return r->on && r->next_ns + rate_ns(r, cost) > r->now_ns;
}

void rate_charge(struct ibt_qp *qp, u32 cost)
{
	struct rate *r = qp->rate;
	u64 behind;

	if (!r->on)
		return;
	behind = r->held ? RATE_LATE_US * NS_PER_US : rate_burst_ns(r);
	r->next_ns = MAX(r->next_ns, r->now_ns - behind) + rate_ns(r, cost);
	if (r->next_ns > r->now_ns)
		r->held = false;
	r->bytes += cost;
	if (r->bytes < RATE_STEP_BYTES)
		return;
	r->bytes -= RATE_STEP_BYTES;
	r->byte_steps++;
	rate_step(r);
}

bool rate_is_holding(const struct ibt_qp *qp)
{
	return qp->rate != NULL && qp->rate->timing;
}

void rate_forget(struct ibt_qp *qp)
{
	if (qp->rate == NULL)
		return;
	qp->rate->on = false;
	qp->rate->cut_ns = 0;
	qp->rate->alpha = RATE_ALPHA_ONE;
}

void rate_quiesce(struct ibt_qp *qp)
{
	struct rate *r;

	lock_acquire(&qp->sq_lock);
	r = qp->rate;
	lock_release(&qp->sq_lock);
	if (r != NULL)
		timer_cancel_wait(qp->ibt->cfg.timers, &r->timer);
}

void rate_destroy(struct ibt_qp *qp)
{
	free(qp->rate);
}
