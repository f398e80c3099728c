/* gone61_test.c: an upper layer in the words of Linux 6.1 whose adapter is pulled out while
 * completions come: each request has its `done`, a drain says when, and every call answers as it
 * would if the hardware had gone.
 * In:    -    Out: -    Runs: the test's thread, CQs' threads, the thread that unplugs
 */
#include <rdma/ib_verbs.h>
#include <rdma/mr_pool.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>
#include <dirent.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mistakes.h"

enum { QUEUES = 6, DEEP = 16, BYTES = 8 };

/* The device that goes. `remove` holds until the test has done with it. */
static struct {
	struct ib_device *device;
	int added, removing, released;
	struct ib_pd *pd;
	union ib_gid gid;
} doomed;

static int doomed_add(struct ib_device *device)
{
	if (device == rig.dev)
		return -EOPNOTSUPP;
	doomed.device = device;
	count_add(&doomed.added);
	return 0;
}

static void doomed_remove(struct ib_device *device, void *client_data)
{
	count_add(&doomed.removing);
	while (!count_get(&doomed.released))
		usleep(1000);
}

static struct ib_client doomed_client = { .name = "doomed",
					  .add = doomed_add,
					  .remove = doomed_remove };

static void doomed_plug(void)
{
	memset(&doomed, 0, sizeof(doomed));
	assert_int_equal(ib_register_client(&doomed_client), 0);
	assert_int_equal(rig_device("add", "roce1"), 0);
	assert_true(rig_await(&doomed.added, 1));
	doomed.pd = rig_ok(ib_alloc_pd(doomed.device, 0));
	assert_int_equal(rdma_query_gid(doomed.device, 1, rig.gid_index, &doomed.gid), 0);
}

static void doomed_pull(void)
{
	assert_int_equal(rig_device("remove", "roce1"), 0);
	assert_true(rig_await(&doomed.removing, 1));
}

static void doomed_let_go(void)
{
	ib_dealloc_pd(doomed.pd);
	count_add(&doomed.released);
	ib_unregister_client(&doomed_client);
}

/* ---- requests in flight ---------------------------------------------------------------------- */

/* A queue pair whose messages come back to itself, for ever. */
struct loop {
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_cqe sent, received;
	char in[BYTES], out[BYTES];
	bool quiet; /* no message is sent */
	int posted, done, wrong;
};

static void loop_receive(struct loop *l)
{
	struct ib_sge sge = { (uintptr_t)l->in, BYTES, doomed.pd->local_dma_lkey };
	const struct ib_recv_wr wr = { .wr_cqe = &l->received, .sg_list = &sge, .num_sge = 1 };
	int err = ib_post_recv(l->qp, &wr, NULL);

	if (!err)
		count_add(&l->posted);
	else if (err != -EIO)
		count_add(&l->wrong);
}

static void loop_send(struct loop *l)
{
	struct ib_sge sge = { (uintptr_t)l->out, BYTES, doomed.pd->local_dma_lkey };
	const struct ib_send_wr wr = { .wr_cqe = &l->sent,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IB_WR_SEND,
				       .send_flags = IB_SEND_SIGNALED };
	int err = ib_post_send(l->qp, &wr, NULL);

	if (!err)
		count_add(&l->posted);
	else if (err != -EIO)
		count_add(&l->wrong);
}

static void loop_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct loop *l = (struct loop *)cq->cq_context;

	if (wc->status != IB_WC_SUCCESS && wc->status != IB_WC_WR_FLUSH_ERR)
		count_add(&l->wrong);
	count_add(&l->done);
}

static void loop_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct loop *l = (struct loop *)cq->cq_context;

	if (wc->status == IB_WC_SUCCESS && !l->quiet) {
		loop_receive(l);
		loop_send(l);
	} else if (wc->status != IB_WC_WR_FLUSH_ERR) {
		count_add(&l->wrong);
	}
	count_add(&l->done);
}

static void loop_open(struct loop *l, enum ib_poll_context context)
{
	struct ib_qp_init_attr init = { .sq_sig_type = IB_SIGNAL_REQ_WR,
					.qp_type = IB_QPT_RC,
					.cap = { .max_send_wr = 2 * DEEP,
						 .max_recv_wr = 2 * DEEP,
						 .max_send_sge = 1,
						 .max_recv_sge = 1 } };

	*l = (struct loop){ .sent = { loop_sent },
			    .received = { loop_received },
			    .quiet = context == IB_POLL_DIRECT };
	l->cq = rig_ok(ib_alloc_cq_any(doomed.device, l, 6 * DEEP, context));
	init.send_cq = init.recv_cq = l->cq;
	l->qp = rig_ok(ib_create_qp(doomed.pd, &init));
	rig_connect(l->qp, &doomed.gid, l->qp->qp_num);
	for (int i = 0; i < DEEP; i++)
		loop_receive(l);
	if (!l->quiet)
		loop_send(l);
}

/* When a drain has returned, the consumer may free what its requests stand in. */
static void loop_close(struct loop *l)
{
	ib_drain_qp(l->qp);
	assert_int_equal(count_get(&l->done), count_get(&l->posted));
	assert_int_equal(count_get(&l->wrong), 0);
	assert_int_equal(ib_destroy_qp(l->qp), 0);
	ib_free_cq(l->cq);
}

/* A CQ polls, finds nothing and arms while the device goes: it must still hand over what is flushed
 * afterwards. */
static void gone_in(enum ib_poll_context context, bool drain)
{
	struct loop loops[QUEUES];

	doomed_plug();
	for (int i = 0; i < QUEUES; i++)
		loop_open(&loops[i], context);
	for (int i = 0; i < QUEUES && !loops[i].quiet; i++)
		assert_true(rig_await(&loops[i].done, 4 * DEEP));
	doomed_pull();
	for (int i = 0; i < QUEUES && !drain; i++)
		assert_true(rig_await(&loops[i].done, count_get(&loops[i].posted)));
	for (int i = 0; i < QUEUES; i++)
		loop_close(&loops[i]);
	doomed_let_go();
}

static void gone__each_request_has_its_done(void **state)
{
	for (int i = 0; i < 5; i++) {
		gone_in(IB_POLL_SOFTIRQ, false);
		gone_in(IB_POLL_WORKQUEUE, false);
	}
}

static void drain_qp__of_a_device_that_is_gone(void **state)
{
	gone_in(IB_POLL_SOFTIRQ, true);
	gone_in(IB_POLL_UNBOUND_WORKQUEUE, true);
	gone_in(IB_POLL_DIRECT, true);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct {
	struct ib_cq *cq, *plain, *pooled;
	struct ib_srq *srq;
	struct ib_qp *qp;
	struct ib_mr *mr;
	struct rdma_rw_ctx ctx;
	struct scatterlist sg;
	char buf[64];
} mine;

static struct ib_qp_init_attr mine_init(void)
{
	return (struct ib_qp_init_attr){
		.send_cq = mine.cq,
		.recv_cq = mine.cq,
		.qp_type = IB_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 }
	};
}

static void mine_make(void)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ib_cq_init_attr cq = { .cqe = 4 };
	struct ib_qp_init_attr init;

	mine.cq = rig_ok(ib_alloc_cq(doomed.device, NULL, 16, 0, IB_POLL_DIRECT));
	mine.plain = rig_ok(ib_create_cq(doomed.device, NULL, NULL, NULL, &cq));
	mine.pooled = rig_ok(ib_cq_pool_get(doomed.device, 4, 0, IB_POLL_SOFTIRQ));
	mine.srq = rig_ok(ib_create_srq(doomed.pd, &srq));
	init = mine_init();
	mine.qp = rig_ok(ib_create_qp(doomed.pd, &init));
	mine.mr = rig_ok(ib_alloc_mr(doomed.pd, IB_MR_TYPE_MEM_REG, 4));
	rig_connect(mine.qp, &doomed.gid, mine.qp->qp_num);
	sg_init_one(&mine.sg, mine.buf, sizeof(mine.buf));
}

static void gone_creations(void)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ib_qp_init_attr init = mine_init();
	struct ib_cq_init_attr cq = { .cqe = 4 };
	struct ib_device *device = doomed.device;
	struct ib_pd *pd = doomed.pd;

	ANSWERS(ib_alloc_pd, "the device is gone", -EIO, ib_alloc_pd(device, 0));
	ANSWERS(ib_alloc_cq, "the device is gone", -EIO,
		ib_alloc_cq(device, NULL, 4, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_alloc_cq_any, "the device is gone", -EIO,
		ib_alloc_cq_any(device, NULL, 4, IB_POLL_WORKQUEUE));
	ANSWERS(ib_cq_pool_get, "the device is gone, and no CQ there has room", -EIO,
		ib_cq_pool_get(device, 5000, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_create_cq, "the device is gone", -EIO,
		ib_create_cq(device, NULL, NULL, NULL, &cq));
	ANSWERS(ib_create_srq, "the device is gone", -EIO, ib_create_srq(pd, &srq));
	ANSWERS(ib_create_qp, "the device is gone", -EIO, ib_create_qp(pd, &init));
	ANSWERS(ib_alloc_mr, "the device is gone", -EIO, ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 4));
	ANSWERS(ib_mr_pool_init, "the device is gone", -EIO,
		ib_mr_pool_init(mine.qp, &mine.qp->rdma_mrs, 1, IB_MR_TYPE_MEM_REG, 4, 0));
}

static void gone_requests(void)
{
	const struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	const struct ib_recv_wr recv = { .num_sge = 0 };
	struct ib_qp_init_attr init;
	struct ib_wc wc;

	ANSWERS(ib_post_send, "the device is gone", -EIO, ib_post_send(mine.qp, &send, NULL));
	ANSWERS(ib_post_recv, "the device is gone", -EIO, ib_post_recv(mine.qp, &recv, NULL));
	ANSWERS(ib_post_srq_recv, "the device is gone", -EIO,
		ib_post_srq_recv(mine.srq, &recv, NULL));
	ANSWERS(ib_modify_qp, "the device is gone", -EIO,
		ib_modify_qp(mine.qp, &attr, IB_QP_STATE));
	ANSWERS(ib_query_qp, "the device is gone", -EIO,
		ib_query_qp(mine.qp, &attr, IB_QP_STATE, &init));
	ANSWERS(ib_map_mr_sg, "the device is gone", -EIO,
		ib_map_mr_sg(mine.mr, &mine.sg, 1, NULL, 4096));
	GIVES(rdma_rw_ctx_init, "the device is gone, and no region is needed", "the requests",
	      rdma_rw_ctx_init(&mine.ctx, mine.qp, 1, &mine.sg, 1, 0, 0, 1, DMA_TO_DEVICE) == 1);
	ANSWERS(rdma_rw_ctx_post, "the device is gone", -EIO,
		rdma_rw_ctx_post(&mine.ctx, mine.qp, 1, (struct ib_cqe *)&mine, NULL));
	rdma_rw_ctx_destroy(&mine.ctx, mine.qp, 1, &mine.sg, 1, DMA_TO_DEVICE);
	ANSWERS(ib_poll_cq, "the device is gone, and the CQ is empty", -EIO,
		ib_poll_cq(mine.plain, 1, &wc));
	ANSWERS(ib_process_cq_direct, "the device is gone, and the CQ is empty", 0,
		ib_process_cq_direct(mine.cq, -1));
	ANSWERS(ib_req_notify_cq, "the device is gone", -EIO,
		ib_req_notify_cq(mine.plain, IB_CQ_NEXT_COMP));
	ib_drain_qp(mine.qp);
	GIVES(ib_drain_qp, "the device is gone", "it waits for the completions that were flushed",
	      ib_process_cq_direct(mine.cq, -1) == 0);
}

static void gone_ends(void)
{
	ANSWERS(ib_destroy_qp, "the device is gone", 0, ib_destroy_qp(mine.qp));
	ANSWERS(ib_dereg_mr, "the device is gone", 0, ib_dereg_mr(mine.mr));
	ANSWERS(ib_destroy_srq, "the device is gone", 0, ib_destroy_srq(mine.srq));
	ANSWERS(ib_destroy_cq, "the device is gone", 0, ib_destroy_cq(mine.plain));
	ib_cq_pool_put(mine.pooled, 4);
	ib_free_cq(mine.cq);
}

static void gone__calls_answer(void **state)
{
	doomed_plug();
	mine_make();
	doomed_pull();
	gone_creations();
	gone_requests();
	gone_ends();
	doomed_let_go();
	mistakes_assert_none();
}

/* ---- a consumer that frees too late ---------------------------------------------------------- */

static bool task_is_unplug(const char *task)
{
	char path[300], name[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
	file = fopen(path, "r");
	if (file == NULL)
		return false;
	if (fgets(name, sizeof(name), file) == NULL)
		name[0] = '\0';
	fclose(file);
	return strcmp(name, "anyverbs/unplug\n") == 0;
}

/* The thread that takes the device away, which runs since `remove` was called, has ended. */
static bool doomed_has_gone(void)
{
	DIR *tasks = opendir("/proc/self/task");
	bool gone = true;

	assert_non_null(tasks);
	for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
		gone = gone && !task_is_unplug(entry->d_name);
	closedir(tasks);
	return gone;
}

/* What is written to standard error from here on goes to a file. Returns what was there. */
static int said_begin(int *file)
{
	int before = dup(STDERR_FILENO);

	*file = memfd_create("said", MFD_CLOEXEC);
	assert_true(before >= 0 && *file >= 0);
	assert_int_equal(dup2(*file, STDERR_FILENO), STDERR_FILENO);
	return before;
}

static void said_end(int file, int before, char *text, size_t size)
{
	ssize_t length = pread(file, text, size - 1, 0);

	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	close(file);
	assert_true(length >= 0);
	text[length] = '\0';
}

/* `remove` returns while objects of the device are left: they can be destroyed afterwards. */
static void gone__with_objects_left(void **state)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ib_srq *srq;
	struct ib_cq *cq;
	char text[4096];
	int file, before;

	doomed_plug();
	srq = rig_ok(ib_create_srq(doomed.pd, &init));
	cq = rig_ok(ib_alloc_cq(doomed.device, NULL, 16, 0, IB_POLL_SOFTIRQ));
	before = said_begin(&file);
	doomed_pull();
	count_add(&doomed.released);
	while (!doomed_has_gone())
		usleep(1000);
	said_end(file, before, text, sizeof(text));
	assert_non_null(strstr(text, "roce1 has gone, but domains (1), CQs (1), SRQs (1), "));
	assert_int_equal(ib_destroy_srq(srq), 0);
	ib_free_cq(cq);
	ib_dealloc_pd(doomed.pd);
	ib_unregister_client(&doomed_client);
	/* the name is free */
	doomed_plug();
	doomed_pull();
	doomed_let_go();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(gone__each_request_has_its_done),
		cmocka_unit_test(drain_qp__of_a_device_that_is_gone),
		cmocka_unit_test(gone__calls_answer),
		cmocka_unit_test(gone__with_objects_left),
	};

	setenv("ANYVERBS_LOG", "warn", 1);
	return rig_run_tests(tests);
}
