/* owner_test.c: whom a queue pair belongs to: somebody elsewhere, or who lies in front of it. */
#include "net.h"

#include "ibt/ibt_qp.h"

#include <string.h>

enum { QPN = 0x11, OWNER_BYTES = 100 };

struct owner {
	struct timer_set timers;
	struct mem_table keys;
	struct cq cq;
	struct ibt *ibt;
};

static void owner_publish(void *arg, struct ibt_qp *qp)
{
}

static void owner_open(struct owner *o)
{
	struct ibt_config cfg = { .mem = &o->keys,
				  .timers = &o->timers,
				  .publish = owner_publish };

	timer_set_init(&o->timers);
	assert_int_equal(mem_table_init(&o->keys, NULL), 0);
	assert_int_equal(cq_init(&o->cq, 16), 0);
	o->ibt = ibt_create(&cfg);
	assert_non_null(o->ibt);
}

static void owner_close(struct owner *o)
{
	ibt_destroy(o->ibt);
	cq_fini(&o->cq);
	mem_table_fini(&o->keys);
}

static struct ibt_qp *owner_qp(struct owner *o, u32 bytes)
{
	static struct ibt_counters counters;
	struct ibt_qp_init init = { .type = IBV_QPT_RC,
				    .qpn = QPN,
				    .cap = { 4, 4, 1, 1, 0 },
				    .send_cq = &o->cq,
				    .recv_cq = &o->cq,
				    .owner_bytes = bytes,
				    .counters = &counters };
	struct ibt_qp *qp;

	assert_int_equal(ibt_qp_create(o->ibt, &init, &qp), 0);
	return qp;
}

static void owner__lies_in_front_where_it_asks_for_room(void **state)
{
	struct ibt_qp *qp;
	struct owner o;
	u8 *front;

	owner_open(&o);
	qp = owner_qp(&o, 0);
	assert_ptr_equal(ibt_qp_owner(qp), qp);
	ibt_qp_destroy(qp);
	qp = owner_qp(&o, OWNER_BYTES);
	front = ibt_qp_owner(qp);
	assert_ptr_equal(ibt_qp_behind(front, OWNER_BYTES), qp);
	assert_int_equal((uintptr_t)front % CACHE_LINE, 0);
	for (u32 i = 0; i < OWNER_BYTES; i++)
		assert_int_equal(front[i], 0);
	memset(front, 0xff, OWNER_BYTES);
	assert_int_equal(ibt_qp_number(qp), QPN);
	assert_int_equal(ibt_qp_state(qp), IBV_QPS_RESET);
	ibt_qp_destroy(qp);
	owner_close(&o);
}

static void owner__leaves_no_completion_of_an_orphan(void **state)
{
	struct cqe e = { .wc = { .wr_id = 1 } };
	struct ibt_qp *qp;
	struct owner o;

	owner_open(&o);
	qp = owner_qp(&o, OWNER_BYTES);
	e.source = &qp->resp.source;
	assert_true(cq_push(&o.cq, &e, false));
	ibt_qp_orphan(qp);
	assert_int_equal(cq_peek(&o.cq, 2), 1);
	ibt_qp_free_orphan(qp);
	assert_int_equal(cq_peek(&o.cq, 2), 0);
	owner_close(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(owner__lies_in_front_where_it_asks_for_room),
		cmocka_unit_test(owner__leaves_no_completion_of_an_orphan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
