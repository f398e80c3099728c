/* cq_schedule_test.c: the completion queue's notification, step by step, over every schedule of a
 * bounded length: what the code does is what the contract says, and who obeys the contract misses
 * nothing.
 *
 * In: -    Out: -    Runs: one thread. Adding, taking and arming exclude each other by the CQ's
 * locks, so a schedule of whole steps is what threads can make of them; test/model has the steps
 * inside of these.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "queue/cq.h"

/* ---- every sequence of steps against the specification --------------------------------------- */

enum step {
	ADD,
	ADD_SOLICITED,
	ADD_ERROR,
	POLL,
	ARM_NEXT,
	ARM_NEXT_REPORT,
	ARM_SOLICITED,
	ARM_SOLICITED_REPORT,
	DELIVER,
	STEPS
};

enum { LENGTH = 6, SEQUENCES = 9 * 9 * 9 * 9 * 9 * 9, RING = 8 };
_Static_assert(STEPS == 9, "SEQUENCES is STEPS to the power of LENGTH");

static const char *const step_names[STEPS] = { "add",	      "add solicited", "add error",
					       "poll",	      "arm next",      "arm next report",
					       "arm solicited", "arm solicited report",
					       "deliver" };

/* The contract in its own words: completions by number, the arm that is pending, events raised. */
struct spec {
	bool eager;
	u32 added, taken;
	bool wakes[LENGTH]; /* by number: solicited, or in error */
	u32 armed;	    /* a kind, or 0 */
	u32 events;	    /* raised and not delivered */
	u32 announced;	    /* so many are announced by events, one each, or taken */
	bool has_event;	    /* the consumer has just looked for an event, and got one */
};

static bool spec_any_wakes(const struct spec *s, u32 from)
{
	for (u32 i = from; i < s->added; i++)
		if (s->wakes[i])
			return true;
	return false;
}

static u32 spec_unannounced(const struct spec *s)
{
	return MAX(s->announced, s->taken);
}

static void spec_raise(struct spec *s)
{
	s->armed = 0;
	s->events++;
	s->announced = spec_unannounced(s) + 1;
}

/* One event per arm; a completion added after it raises it, if it is of the kind. */
static void spec_add(struct spec *s, bool wakes)
{
	s->wakes[s->added++] = wakes;
	if (s->armed == CQ_NEXT_COMP || (s->armed == CQ_SOLICITED && wakes))
		spec_raise(s);
}

static int spec_arm(struct spec *s, u32 kind, bool report)
{
	bool holds = s->added != s->taken;
	u32 from = s->has_event ? spec_unannounced(s) : s->taken;

	if (s->armed != CQ_NEXT_COMP) /* a solicited arm never weakens a pending one */
		s->armed = kind;
	if (s->eager && (s->armed == CQ_NEXT_COMP ? s->added > from : spec_any_wakes(s, from)))
		spec_raise(s);
	return report && holds;
}

static int spec_deliver(struct spec *s)
{
	s->has_event = s->events > 0;
	if (s->has_event)
		s->events--;
	return s->has_event;
}

/* What the step returns: of a poll, the completion's number; -1: none. */
static int spec_step(struct spec *s, enum step step)
{
	switch (step) {
	case ADD:
	case ADD_SOLICITED:
	case ADD_ERROR:
		spec_add(s, step != ADD);
		return 1;
	case POLL:
		return s->taken < s->added ? (int)s->taken++ : -1;
	case ARM_NEXT:
	case ARM_NEXT_REPORT:
		return spec_arm(s, CQ_NEXT_COMP, step == ARM_NEXT_REPORT);
	case ARM_SOLICITED:
	case ARM_SOLICITED_REPORT:
		return spec_arm(s, CQ_SOLICITED, step == ARM_SOLICITED_REPORT);
	default:
		return spec_deliver(s);
	}
}

/* ---- the same steps on the real one ---------------------------------------------------------- */

struct real {
	struct cq cq;
	struct channel *ch;
	u32 added;
};

static void real_begin(struct real *r, struct channel *ch, bool eager)
{
	r->ch = ch;
	r->added = 0;
	assert_int_equal(cq_init(&r->cq, RING), 0);
	r->cq.eager = eager;
	assert_int_equal(cq_sink_to_channel(&r->cq, ch, r), 0);
}

static int real_add(struct real *r, bool solicited, enum ibv_wc_status status)
{
	struct cqe e = { .wc = { .wr_id = r->added++, .status = status } };

	return cq_push(&r->cq, &e, solicited);
}

static int real_poll(struct real *r)
{
	struct ibv_wc wc;

	return cq_pop(&r->cq, 1, &wc) == 1 ? (int)wc.wr_id : -1;
}

static int real_deliver(struct real *r)
{
	void *cookie;

	if (channel_next(r->ch, &cookie) != 0)
		return 0;
	channel_ack(&r->cq.source, 1);
	return 1;
}

static int real_step(struct real *r, enum step step)
{
	switch (step) {
	case ADD:
		return real_add(r, false, IBV_WC_SUCCESS);
	case ADD_SOLICITED:
		return real_add(r, true, IBV_WC_SUCCESS);
	case ADD_ERROR:
		return real_add(r, false, IBV_WC_WR_FLUSH_ERR);
	case POLL:
		return real_poll(r);
	case ARM_NEXT:
		return cq_arm(&r->cq, CQ_NEXT_COMP);
	case ARM_NEXT_REPORT:
		return cq_arm(&r->cq, CQ_NEXT_COMP | CQ_REPORT_MISSED);
	case ARM_SOLICITED:
		return cq_arm(&r->cq, CQ_SOLICITED);
	case ARM_SOLICITED_REPORT:
		return cq_arm(&r->cq, CQ_SOLICITED | CQ_REPORT_MISSED);
	default:
		return real_deliver(r);
	}
}

static void sequence_fail(const enum step *steps, int at, int want, int got)
{
	for (int i = 0; i <= at; i++)
		print_error("%s\n", step_names[steps[i]]);
	fail_msg("the last step answers %d, the contract wants %d", got, want);
}

static void sequence_run(struct channel *ch, bool eager, const enum step *steps)
{
	struct spec spec = { .eager = eager };
	struct real real;

	real_begin(&real, ch, eager);
	for (int i = 0; i < LENGTH; i++) {
		int want = spec_step(&spec, steps[i]), got = real_step(&real, steps[i]);

		if (got != want)
			sequence_fail(steps, i, want, got);
	}
	for (int want = 1; want;) {
		int got = real_deliver(&real);

		want = spec_deliver(&spec);
		if (got != want) /* an event too few or too many is left */
			sequence_fail(steps, LENGTH - 1, want, got);
	}
	cq_fini(&real.cq);
}

static void every_sequence(bool eager)
{
	enum step steps[LENGTH];
	int err = 0;
	struct channel *ch = channel_create(&err);

	assert_non_null(ch);
	for (u32 n = 0; n < SEQUENCES; n++) {
		for (u32 i = 0, rest = n; i < LENGTH; i++, rest /= STEPS)
			steps[i] = (enum step)(rest % STEPS);
		sequence_run(ch, eager, steps);
	}
	assert_int_equal(channel_destroy(ch), 0);
}

static void cq_arm__every_sequence_strict(void **state)
{
	every_sequence(false);
}

static void cq_arm__every_sequence_eager(void **state)
{
	every_sequence(true);
}

/* ---- consumers that sleep, under every schedule of their producers --------------------------- */

enum style {
	OBEYS,	  /* drains, arms and asks; sleeps if the arm says that nothing was missed */
	ARMS_FIRST, /* arms, drains, sleeps */
	CLASSIC,  /* drains, arms, sleeps: what was added in between wakes nobody */
	STYLES
};

enum phase { DRAINING, ARMING, SLEEPING };

enum { ADDS = 3, GAP = 9, SETTLE = 100 };

struct consumer {
	struct real *real;
	enum style style;
	u32 kind;
	enum phase phase;
};

static bool consumer_drained(struct consumer *c)
{
	return real_poll(c->real) < 0;
}

/* False: asleep, and no event wakes it. */
static bool consumer_step(struct consumer *c)
{
	bool report = c->style == OBEYS;

	switch (c->phase) {
	case DRAINING:
		if (consumer_drained(c))
			c->phase = c->style == ARMS_FIRST ? SLEEPING : ARMING;
		return true;
	case ARMING:
		if (cq_arm(&c->real->cq, c->kind | (report ? CQ_REPORT_MISSED : 0)) > 0)
			c->phase = DRAINING;
		else
			c->phase = c->style == ARMS_FIRST ? DRAINING : SLEEPING;
		return true;
	default:
		if (!real_deliver(c->real))
			return false;
		c->phase = c->style == ARMS_FIRST ? ARMING : DRAINING;
		return true;
	}
}

/* One schedule: before completion i the consumer makes gaps[i] steps; bit i of `solicited` is its
 * kind. True: it sleeps at the end while something waits that it asked to be woken for. */
static bool schedule_loses(struct channel *ch, bool eager, struct consumer c, const u32 *gaps,
			   u32 solicited)
{
	bool waits = false;
	struct real real;
	int id;

	real_begin(&real, ch, eager);
	c.real = &real;
	for (u32 i = 0; i < ADDS; i++) {
		for (u32 k = 0; k < gaps[i] && consumer_step(&c); k++)
			continue;
		real_add(&real, (solicited & 1u << i) != 0, IBV_WC_SUCCESS);
	}
	for (u32 k = 0; consumer_step(&c); k++)
		assert_true(k < SETTLE);
	while ((id = real_poll(&real)) >= 0)
		waits |= c.kind == CQ_NEXT_COMP || (solicited & 1u << id) != 0;
	cq_fini(&real.cq);
	return waits;
}

static u32 schedules_lost(enum style style, u32 kind, bool eager)
{
	struct consumer c = { .style = style,
			      .kind = kind,
			      .phase = style == ARMS_FIRST ? ARMING : DRAINING };
	int err = 0;
	struct channel *ch = channel_create(&err);
	u32 lost = 0;

	for (u32 n = 0; n < GAP * GAP * GAP << ADDS; n++) {
		u32 rest = n >> ADDS;
		u32 gaps[ADDS] = { rest % GAP, rest / GAP % GAP, rest / GAP / GAP };

		lost += schedule_loses(ch, eager, c, gaps, n % (1 << ADDS));
	}
	assert_int_equal(channel_destroy(ch), 0);
	return lost;
}

static void cq_arm__who_obeys_the_answer_misses_nothing(void **state)
{
	for (int eager = 0; eager < 2; eager++)
		for (u32 kind = CQ_SOLICITED; kind <= CQ_NEXT_COMP; kind++) {
			assert_int_equal(schedules_lost(OBEYS, kind, eager), 0);
			assert_int_equal(schedules_lost(ARMS_FIRST, kind, eager), 0);
		}
}

/* The bug that a strict adapter shows and an eager one hides. */
static void cq_arm__who_sleeps_without_a_second_look_hangs_if_strict(void **state)
{
	for (u32 kind = CQ_SOLICITED; kind <= CQ_NEXT_COMP; kind++) {
		assert_true(schedules_lost(CLASSIC, kind, false) > 0);
		assert_int_equal(schedules_lost(CLASSIC, kind, true), 0);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(cq_arm__every_sequence_strict),
		cmocka_unit_test(cq_arm__every_sequence_eager),
		cmocka_unit_test(cq_arm__who_obeys_the_answer_misses_nothing),
		cmocka_unit_test(cq_arm__who_sleeps_without_a_second_look_hangs_if_strict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
