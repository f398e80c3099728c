/* notify_test.c: completion notification as the midlayer promises it, over the real adapter.
 * In:    loopback traffic    Out: -    Runs: the test's threads, the adapter's vectors
 */
#include "rig.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "event/event.h"

/* What a handler saw. All counters are atomic. */
struct seen {
	struct ib_cq *cq;
	int runs, inside, most_inside, in_verb, wrong_cq;
	int rearm; /* flags to arm with inside the handler; 0: none */
	int linger_us;
	pthread_t thread;
	sem_t wake;
};

static void seen_handler(struct ib_cq *cq, void *context)
{
	struct seen *s = context;
	int inside = count_add(&s->inside);

	if (inside > count_get(&s->most_inside))
		__atomic_store_n(&s->most_inside, inside, __ATOMIC_RELEASE);
	if (event_driver_depth != 0)
		count_add(&s->in_verb);
	if (cq != __atomic_load_n(&s->cq, __ATOMIC_ACQUIRE))
		count_add(&s->wrong_cq);
	s->thread = pthread_self();
	if (s->rearm && ib_req_notify_cq(cq, (enum ib_cq_notify_flags)s->rearm) < 0)
		count_add(&s->wrong_cq);
	if (s->linger_us)
		usleep((useconds_t)s->linger_us);
	sem_post(&s->wake);
	__atomic_sub_fetch(&s->inside, 1, __ATOMIC_RELEASE);
	count_add(&s->runs);
}

/* More than any test leaves waiting, however late its consumer is. */
enum { SEEN_CQE = 4096 };

static void seen_open(struct seen *s, struct link *l, int vector)
{
	memset(s, 0, sizeof(*s));
	sem_init(&s->wake, 0, 0);
	__atomic_store_n(&s->cq, rig_handler_cq(seen_handler, s, SEEN_CQE, vector),
			 __ATOMIC_RELEASE);
	link_open(l, IB_QPT_RC, s->cq);
}

static void seen_close(struct seen *s, struct link *l)
{
	link_close(l);
	assert_int_equal(s->in_verb, 0);
	assert_int_equal(s->wrong_cq, 0);
	assert_true(s->most_inside <= 1);
	sem_destroy(&s->wake);
}

static int arm(struct seen *s, int flags)
{
	return ib_req_notify_cq(s->cq, (enum ib_cq_notify_flags)flags);
}

static void expect_runs(struct seen *s, int runs)
{
	assert_true(rig_await(&s->runs, runs));
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&s->runs), runs);
}

static bool is_eager(void)
{
	const char *strict = getenv("ANYVERBS_STRICT_NOTIFY");

	return strict && strcmp(strict, "0") == 0;
}

/* ---- flags and results ----------------------------------------------------------------------- */

static void req_notify_cq__refuses_bad_flags(void **state)
{
	static const int bad[] = { 0, 3, 4, 7, 8, 9, 10, -1 };
	struct ib_cq *cq = rig_cq(4);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(ib_req_notify_cq(cq, (enum ib_cq_notify_flags)bad[i]), -EINVAL);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void req_notify_cq__reports_missed_only_if_asked(void **state)
{
	static const int kinds[] = { IB_CQ_NEXT_COMP, IB_CQ_SOLICITED };
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(arm(&s, kinds[i]), 0);
		assert_int_equal(arm(&s, kinds[i] | IB_CQ_REPORT_MISSED_EVENTS), 0);
	}
	/* whatever waits, also what a solicited arm does not want */
	for (int solicited = 0; solicited < 2; solicited++) {
		link_ping(&l, 1, solicited ? IB_SEND_SOLICITED : 0);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(arm(&s, kinds[i]), 0);
			assert_true(arm(&s, kinds[i] | IB_CQ_REPORT_MISSED_EVENTS) > 0);
		}
		rig_drain(s.cq, 1);
		for (int i = 0; i < 2; i++)
			assert_int_equal(arm(&s, kinds[i] | IB_CQ_REPORT_MISSED_EVENTS), 0);
	}
	seen_close(&s, &l);
}

/* ---- which completions raise an event -------------------------------------------------------- */

static void req_notify_cq__unarmed_is_silent(void **state)
{
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	link_ping(&l, 3, IB_SEND_SOLICITED);
	expect_runs(&s, 0);
	seen_close(&s, &l);
}

static void req_notify_cq__one_event_per_arm(void **state)
{
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 1);
	link_ping(&l, 2, 0); /* with the first one's event over: two might have become one */
	expect_runs(&s, 1);
	rig_drain(s.cq, 3);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 2);
	seen_close(&s, &l);
}

/* Strict: an event comes for a completion added after the arm. Eager: for a waiting one too. */
static void req_notify_cq__completion_before_the_arm(void **state)
{
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	link_ping(&l, 1, 0);
	assert_int_equal(ib_peek_cq(s.cq, 4), 1);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	expect_runs(&s, is_eager() ? 1 : 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 1);
	seen_close(&s, &l);
}

static void req_notify_cq__solicited_waits_for_solicited(void **state)
{
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	assert_int_equal(arm(&s, IB_CQ_SOLICITED), 0);
	link_ping(&l, 2, 0);
	expect_runs(&s, 0);
	link_ping(&l, 1, IB_SEND_SOLICITED);
	expect_runs(&s, 1);
	seen_close(&s, &l);
}

static void req_notify_cq__solicited_takes_errors(void **state)
{
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	assert_int_equal(arm(&s, IB_CQ_SOLICITED), 0);
	rig_recv(l.b, 1, 0, 8);
	assert_int_equal(rig_try_state(l.b, IB_QPS_ERR), 0);
	expect_runs(&s, 1);
	assert_int_equal(rig_expect(s.cq, IB_WC_WR_FLUSH_ERR).wr_id, 1);
	seen_close(&s, &l);
}

static void req_notify_cq__solicited_never_weakens(void **state)
{
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	assert_int_equal(arm(&s, IB_CQ_SOLICITED), 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 1);
	rig_drain(s.cq, 1);
	/* the other way round it grows */
	assert_int_equal(arm(&s, IB_CQ_SOLICITED), 0);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 2);
	seen_close(&s, &l);
}

static void req_notify_cq__send_side(void **state)
{
	struct seen s = { 0 };
	struct link l;

	sem_init(&s.wake, 0, 0);
	link_open(&l, IB_QPT_RC, NULL);
	struct ib_cq *plain = l.scq;

	/* a's sends go to a CQ with a handler */
	assert_int_equal(ib_destroy_qp(l.a), 0);
	s.cq = rig_handler_cq(seen_handler, &s, 64, 0);
	l.a = rig_qp(IB_QPT_RC, s.cq, l.arcq, NULL);
	link_reset(&l);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS), 0);
	rig_recv(l.b, 1, 8, 8);
	rig_send_bytes(l.a, 2, 0, 8, 0);
	expect_runs(&s, 1);
	assert_int_equal(rig_expect(s.cq, IB_WC_SUCCESS).wr_id, 2);
	link_close(&(struct link){ s.cq, l.rcq, l.bscq, l.arcq, l.a, l.b });
	assert_int_equal(ib_destroy_cq(plain), 0);
	assert_int_equal(s.in_verb, 0);
	sem_destroy(&s.wake);
}

/* ---- counting arms, peeking ------------------------------------------------------------------ */

static void req_ncomp_notif__fires_at_the_count(void **state)
{
	rig_needs(req_ncomp_notif);
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	assert_int_equal(ib_req_ncomp_notif(s.cq, 0), -EINVAL);
	assert_int_equal(ib_req_ncomp_notif(s.cq, -1), -EINVAL);
	assert_int_equal(ib_req_ncomp_notif(s.cq, s.cq->cqe + 1), -EINVAL);
	assert_int_equal(ib_req_ncomp_notif(s.cq, 3), 0);
	link_ping(&l, 2, IB_SEND_SOLICITED);
	expect_runs(&s, 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 1);
	link_ping(&l, 3, 0);
	expect_runs(&s, 1);
	/* enough wait already */
	assert_int_equal(ib_req_ncomp_notif(s.cq, 2), 0);
	expect_runs(&s, 2);
	seen_close(&s, &l);
}

static void peek_cq__counts_and_takes_nothing(void **state)
{
	rig_needs(peek_cq);
	struct link l;

	link_open(&l, IB_QPT_RC, NULL);
	assert_int_equal(ib_peek_cq(l.rcq, 4), 0);
	link_ping(&l, 3, 0);
	assert_int_equal(ib_peek_cq(l.rcq, 0), 0);
	assert_int_equal(ib_peek_cq(l.rcq, 2), 2);
	assert_int_equal(ib_peek_cq(l.rcq, 100), 3);
	assert_int_equal(ib_peek_cq(l.rcq, -1), -EINVAL);
	rig_drain(l.rcq, 3);
	assert_int_equal(ib_peek_cq(l.rcq, 100), 0);
	link_close(&l);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static void comp_handler__runs_on_every_vector_outside_verbs(void **state)
{
	assert_true(rig.dev->num_comp_vectors >= 1);
	for (int v = 0; v < rig.dev->num_comp_vectors; v++) {
		struct seen s;
		struct link l;

		seen_open(&s, &l, v);
		assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
		link_ping(&l, 1, 0);
		expect_runs(&s, 1);
		assert_false(pthread_equal(s.thread, pthread_self()));
		seen_close(&s, &l);
	}
}

static void create_cq__refuses_unknown_vectors_and_sizes(void **state)
{
	struct ib_device_attr attr;
	int vectors = rig.dev->num_comp_vectors;

	assert_int_equal(ib_query_device(rig.dev, &attr), 0);
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, 8, vectors)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, 8, -1)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, 0, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, attr.max_cqe + 1, 0)),
			 -EINVAL);
	struct ib_cq *cq = rig_ok(ib_create_cq(rig.dev, NULL, NULL, NULL, attr.max_cqe, 0));

	assert_true(cq->cqe >= attr.max_cqe);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

struct pinger {
	struct link *l;
	int count, pause_us;
	const int *taken; /* by the consumer; NULL: it has room for all */
	int window;       /* how many may wait for him */
	const int *until; /* stops when this is PINGER_RUNS; NULL: never */
	int sent;
};

enum { PINGER_RUNS = 50 };

/* Sends, and refills its peer's receive queue; completions of sends it takes itself. */
static void *pinger_main(void *arg)
{
	struct pinger *p = arg;

	for (int i = 0; i < p->count; i++) {
		if (p->until && count_get(p->until) >= PINGER_RUNS)
			break;
		if (p->taken && !rig_await(p->taken, i + 1 - p->window))
			break;
		link_ping(p->l, 1, 0);
		if (p->pause_us)
			usleep((useconds_t)p->pause_us);
		p->sent++;
	}
	return NULL;
}

/* A link whose receives go to s->cq as well. */
static void second_link(struct link *l, struct seen *s)
{
	link_open(l, IB_QPT_RC, s->cq);
}

static void second_link_close(struct link *l)
{
	assert_int_equal(ib_destroy_qp(l->a), 0);
	assert_int_equal(ib_destroy_qp(l->b), 0);
	assert_int_equal(ib_destroy_cq(l->scq), 0);
	assert_int_equal(ib_destroy_cq(l->bscq), 0);
	assert_int_equal(ib_destroy_cq(l->arcq), 0);
}

static void comp_handler__never_overlaps_itself(void **state)
{
	struct link l, l2;
	pthread_t t[2];
	struct seen s;
	struct pinger each = { .count = SEEN_CQE / 2 - 1, .pause_us = 50, .until = &s.runs };
	struct pinger p[2] = { each, each };

	seen_open(&s, &l, 0);
	second_link(&l2, &s);
	s.rearm = IB_CQ_NEXT_COMP;
	s.linger_us = 300;
	p[0].l = &l;
	p[1].l = &l2;
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, pinger_main, &p[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_true(rig_await(&s.runs, 1)); /* and it has armed again */
	link_ping(&l, 1, 0);
	assert_true(rig_await(&s.runs, 2));
	rig_drain(s.cq, p[0].sent + p[1].sent + 1);
	assert_int_equal(count_get(&s.most_inside), 1);
	second_link_close(&l2);
	seen_close(&s, &l);
}

static int meeting; /* handlers of two CQs that are inside at the same time */
static int met;

static void meeting_handler(struct ib_cq *cq, void *context)
{
	count_add(&meeting);
	for (int ms = 0; ms < 5000 && count_get(&meeting) < 2; ms++)
		rig_sleep_ms(1);
	if (count_get(&meeting) >= 2)
		count_add(&met);
}

static void comp_handler__two_vectors_run_in_parallel(void **state)
{
	struct link l[2];

	if (rig.dev->num_comp_vectors < 2)
		skip();
	meeting = met = 0;
	for (int v = 0; v < 2; v++) {
		link_open(&l[v], IB_QPT_RC, rig_handler_cq(meeting_handler, NULL, 64, v));
		assert_int_equal(ib_req_notify_cq(l[v].rcq, IB_CQ_NEXT_COMP), 0);
	}
	for (int v = 0; v < 2; v++)
		link_ping(&l[v], 1, 0);
	assert_true(rig_await(&met, 2));
	for (int v = 0; v < 2; v++)
		link_close(&l[v]);
}

/* ---- the consumer's loop --------------------------------------------------------------------- */

/* Whoever polls until an arm with REPORT_MISSED_EVENTS says 0 and sleeps then misses nothing. */
static void consume_by_the_book(struct seen *s, int total)
{
	struct timespec until;
	struct ib_wc wc[8];
	int got, taken = 0;

	while (taken < total) {
		do {
			while ((got = ib_poll_cq(s->cq, 8, wc)) > 0)
				taken += got;
			assert_int_equal(got, 0);
		} while (arm(s, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
		if (taken == total)
			break;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 10;
		assert_int_equal(sem_timedwait(&s->wake, &until), 0);
	}
	assert_int_equal(taken, total);
}

static void req_notify_cq__no_lost_wakeup_under_two_producers(void **state)
{
	struct pinger p[2] = { { .count = 1500 }, { .count = 1500, .pause_us = 1 } };
	struct link l, l2;
	pthread_t t[2];
	struct seen s;

	seen_open(&s, &l, 0);
	second_link(&l2, &s);
	p[0].l = &l;
	p[1].l = &l2;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, pinger_main, &p[i]), 0);
	consume_by_the_book(&s, 3000);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	second_link_close(&l2);
	seen_close(&s, &l);
}

/* ---- a consumer that lives in its handler ---------------------------------------------------- */

static int handled;

static void draining_handler(struct ib_cq *cq, void *context)
{
	struct ib_wc wc[4];
	int got;

	do {
		while ((got = ib_poll_cq(cq, 4, wc)) > 0)
			__atomic_add_fetch(&handled, got, __ATOMIC_ACQ_REL);
	} while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

static void comp_handler__drains_by_itself(void **state)
{
	struct ib_cq *cq = rig_handler_cq(draining_handler, NULL, SEEN_CQE, 0);
	struct pinger p = { .count = 1000 };
	struct link l;

	handled = 0;
	link_open(&l, IB_QPT_RC, cq);
	p.l = &l;
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
	pinger_main(&p);
	assert_true(rig_await(&handled, 1000));
	assert_int_equal(count_get(&handled), 1000);
	link_close(&l);
}

/* ---- resizing and destroying ----------------------------------------------------------------- */

static void resize_cq__keeps_every_completion(void **state)
{
	rig_needs(resize_cq);
	static const int sizes[] = { 16, 300, 33, 1024, 64 };
	int taken = 0, got = 1, idle = 0; /* polls in a row, of 1 ms at least, that found nothing */
	struct pinger p = { .count = 600, .taken = &taken, .window = 16 };
	struct link l;
	struct ib_wc wc[4];
	pthread_t t;

	link_open(&l, IB_QPT_RC, NULL);
	p.l = &l;
	assert_int_equal(pthread_create(&t, NULL, pinger_main, &p), 0);
	for (int i = 0; taken < 600 && idle < RIG_WAIT_MS / 4; i++) {
		int size = sizes[i % 5], err = ib_resize_cq(l.rcq, size);

		assert_true(err == 0 || err == -EINVAL);
		assert_true(err || l.rcq->cqe >= size);
		got = rig_poll(l.rcq, 4, wc, i % 8 ? 1 : 5);
		for (int k = 0; k < got; k++) {
			assert_int_equal(wc[k].status, IB_WC_SUCCESS);
			assert_ptr_equal(wc[k].qp, l.b);
		}
		__atomic_add_fetch(&taken, got, __ATOMIC_ACQ_REL);
		idle = got == 0 ? idle + 1 : 0;
	}
	pthread_join(t, NULL);
	assert_int_equal(taken, 600);
	link_close(&l);
}

static void resize_cq__refuses_less_than_waits(void **state)
{
	rig_needs(resize_cq);
	struct link l;
	struct ib_wc wc[8];

	link_open(&l, IB_QPT_RC, NULL);
	link_ping(&l, 8, 0);
	assert_int_equal(ib_resize_cq(l.rcq, 4), -EINVAL);
	assert_int_equal(ib_resize_cq(l.rcq, 0), -EINVAL);
	assert_int_equal(ib_resize_cq(l.rcq, -5), -EINVAL);
	assert_int_equal(ib_resize_cq(l.rcq, 8), 0);
	assert_int_equal(rig_poll(l.rcq, 8, wc, RIG_WAIT_MS), 8);
	for (u64 i = 0; i < 8; i++)
		assert_int_equal(wc[i].wr_id, i);
	link_close(&l);
}

static void *resizer_main(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)&seed;

	for (int i = 0; i < 50; i++)
		ib_resize_cq(arg, 1 << rand_r(&seed) % 12);
	return NULL;
}

/* Whoever is the last, what the CQ says of its size is its size. */
static void resize_cq__from_many_threads(void **state)
{
	struct ib_cq *cq;
	pthread_t t[4];

	rig_needs(resize_cq);
	rig_needs(req_ncomp_notif);
	cq = rig_cq(16);
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&t[i], NULL, resizer_main, cq), 0);
		for (int i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
		assert_int_equal(ib_req_ncomp_notif(cq, cq->cqe + 1), -EINVAL);
		assert_int_equal(ib_req_ncomp_notif(cq, cq->cqe), 0);
	}
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* A count that no longer fits is told when the CQ is full. */
static void resize_cq__keeps_the_counting_arm(void **state)
{
	struct seen s;
	struct link l;

	rig_needs(resize_cq);
	rig_needs(req_ncomp_notif);
	seen_open(&s, &l, 0);
	assert_int_equal(ib_req_ncomp_notif(s.cq, 64), 0);
	link_ping(&l, 7, 0);
	assert_int_equal(ib_resize_cq(s.cq, 8), 0);
	expect_runs(&s, 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 1);
	rig_drain(s.cq, 8);
	assert_int_equal(ib_resize_cq(s.cq, 64), 0);
	assert_int_equal(ib_req_ncomp_notif(s.cq, 64), 0);
	link_ping(&l, 8, 0);
	assert_int_equal(ib_resize_cq(s.cq, 8), 0); /* full already */
	expect_runs(&s, 2);
	seen_close(&s, &l);
}

/* An arm outlives a change of size. */
static void resize_cq__keeps_the_arm(void **state)
{
	rig_needs(resize_cq);
	struct seen s;
	struct link l;

	seen_open(&s, &l, 0);
	assert_int_equal(arm(&s, IB_CQ_NEXT_COMP), 0);
	assert_int_equal(ib_resize_cq(s.cq, 2000), 0);
	link_ping(&l, 1, 0);
	expect_runs(&s, 1);
	seen_close(&s, &l);
}

static int slow_entered, slow_left;

/* Arms again, as handlers do: while its CQ is being destroyed. */
static void slow_handler(struct ib_cq *cq, void *context)
{
	count_add(&slow_entered);
	rig_sleep_ms(200);
	if (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) < 0)
		return;
	count_add(&slow_left);
}

static void destroy_cq__waits_for_its_handler(void **state)
{
	struct ib_cq *cq = rig_handler_cq(slow_handler, NULL, 64, 0);
	struct link l;

	slow_entered = slow_left = 0;
	link_open(&l, IB_QPT_RC, cq);
	assert_int_equal(ib_destroy_cq(cq), -EBUSY);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
	link_ping(&l, 1, 0);
	assert_true(rig_await(&slow_entered, 1));
	link_close(&l); /* destroys the CQ too */
	assert_int_equal(count_get(&slow_left), 1);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&slow_entered), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(req_notify_cq__refuses_bad_flags, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__reports_missed_only_if_asked, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__unarmed_is_silent, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__one_event_per_arm, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__completion_before_the_arm, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__solicited_waits_for_solicited, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__solicited_takes_errors, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__solicited_never_weakens, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__send_side, rig_setup),
		cmocka_unit_test_setup(req_ncomp_notif__fires_at_the_count, rig_setup),
		cmocka_unit_test_setup(peek_cq__counts_and_takes_nothing, rig_setup),
		cmocka_unit_test_setup(comp_handler__runs_on_every_vector_outside_verbs, rig_setup),
		cmocka_unit_test_setup(create_cq__refuses_unknown_vectors_and_sizes, rig_setup),
		cmocka_unit_test_setup(comp_handler__never_overlaps_itself, rig_setup),
		cmocka_unit_test_setup(comp_handler__two_vectors_run_in_parallel, rig_setup),
		cmocka_unit_test_setup(req_notify_cq__no_lost_wakeup_under_two_producers,
				       rig_setup),
		cmocka_unit_test_setup(comp_handler__drains_by_itself, rig_setup),
		cmocka_unit_test_setup(resize_cq__keeps_every_completion, rig_setup),
		cmocka_unit_test_setup(resize_cq__refuses_less_than_waits, rig_setup),
		cmocka_unit_test_setup(resize_cq__keeps_the_arm, rig_setup),
		cmocka_unit_test_setup(resize_cq__keeps_the_counting_arm, rig_setup),
		cmocka_unit_test_setup(resize_cq__from_many_threads, rig_setup),
		cmocka_unit_test_setup(destroy_cq__waits_for_its_handler, rig_setup),
	};

	return rig_run_tests(tests);
}
