/* drain_test.c: a consumer with Linux 6.1's calls drains queue pairs of a device that has gone, as
 * upper layers do in `remove`: each `done` has been called when the drain returns.
 * In: the command that adds and removes devices      Out: verdicts
 * Runs: cmocka, threads of the midlayer              Locks: none
 */
#include <rdma/ib_linux61.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	RECEIVES = 4,
	SLOW_US = 20000,
	CONTEXTS = IB_POLL_DIRECT + 1,
	LOOK_US = 1000,
	LOOKS = 20000
};

static struct mine {
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_cqe cqe;
	int flushed;
} mine[CONTEXTS]; /* one for each enum ib_poll_context */

static struct ib_pd *pd;
static int added, removed; /* atomic */

/* Slow, so that a drain that does not wait is found out. */
static void mine_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct mine *m = cq->cq_context;

	usleep(SLOW_US);
	assert_int_equal(wc->status, IB_WC_WR_FLUSH_ERR);
	m->flushed++;
}

static void mine_open(struct ib_device *device, struct mine *m, enum ib_poll_context context)
{
	struct ib_qp_init_attr_linux61 init = { .qp_type = IB_QPT_RC,
						.cap = { .max_send_wr = 1,
							 .max_recv_wr = RECEIVES + 1,
							 .max_send_sge = 1,
							 .max_recv_sge = 1 } };
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1 };
	struct ib_recv_wr recv = { .wr_cqe = &m->cqe }, *bad;

	m->cqe.done = mine_done;
	m->cq = ib_alloc_cq(device, m, RECEIVES + 2, 0, context);
	assert_false(IS_ERR(m->cq));
	init.send_cq = init.recv_cq = m->cq;
	m->qp = ib_create_qp_linux61(pd, &init);
	assert_false(IS_ERR(m->qp));
	assert_int_equal(
		ib_modify_qp(m->qp, &attr,
			     IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS),
		0);
	for (int i = 0; i < RECEIVES; i++)
		assert_int_equal(ib_post_recv(m->qp, &recv, &bad), 0);
}

static int client_add(struct ib_device *device)
{
	if (strcmp(device->name, "roce1") != 0)
		return -1;
	pd = ib_alloc_pd_linux61(device, 0);
	assert_false(IS_ERR(pd));
	for (int i = 0; i < CONTEXTS; i++)
		mine_open(device, &mine[i], (enum ib_poll_context)i);
	__atomic_store_n(&added, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void client_remove(struct ib_device *device, void *data)
{
	for (int i = 0; i < CONTEXTS; i++) {
		ib_drain_qp(mine[i].qp);
		assert_int_equal(mine[i].flushed, RECEIVES);
		assert_int_equal(ib_destroy_qp_linux61(mine[i].qp), 0);
		ib_free_cq(mine[i].cq);
	}
	ib_dealloc_pd_linux61(pd);
	__atomic_store_n(&removed, 1, __ATOMIC_SEQ_CST);
}

static bool reaches(const int *flag)
{
	for (int i = 0; i < LOOKS && !__atomic_load_n(flag, __ATOMIC_SEQ_CST); i++)
		usleep(LOOK_US);
	return __atomic_load_n(flag, __ATOMIC_SEQ_CST) != 0;
}

static void drain_qp__of_a_device_that_has_gone(void **state)
{
	struct ib_client_linux61 client = { .name = "drain",
					    .add = client_add,
					    .remove = client_remove };

	assert_int_equal(ib_register_client_linux61(&client), 0);
	assert_true(reaches(&added));
	assert_int_equal(system(VERBS_COMMAND " device remove roce1"), 0);
	assert_true(reaches(&removed));
	ib_unregister_client_linux61(&client);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(drain_qp__of_a_device_that_has_gone),
	};
	char node[32];

	snprintf(node, sizeof(node), "drain-%d", (int)getpid());
	setenv("ANYVERBS_NODE", node, 1);
	setenv("ANYVERBS_DEVICES", "roce0,roce1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
