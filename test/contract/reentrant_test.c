/* reentrant_test.c: every method of the device, called by many threads at once on the same objects.
 * In: the rig's device    Out: -    Runs: the test's threads, the driver's vectors
 */
#include <stdlib.h>

#include "rig.h"

enum { THREADS = 8, CALLS = 500, CQES = 4096 };

static struct {
	struct link rc, ud;
	struct ib_cq *cq; /* of the queue pair that comes and goes */
	struct ib_ah *ah;
	struct ib_srq *srq;
	struct ib_mr *mr;
	struct ib_mw *mw;
	struct ib_fmr *fmr;
	pthread_mutex_t fmr_list; /* fmr->list is the consumer's to guard */
	int posted, completed;	  /* of rc.a */
	int received, taken;	  /* rc.b's receives: posted, flushed */
	struct ib_event_handler handler;
	int events;
	int failures;
	const char *first_failure;
} all;

/* Each returns whether what came back is right; `who` is the thread. */

static bool do_query_device(int who)
{
	struct ib_device_attr device;
	struct ib_port_attr port;
	union ib_gid gid;
	u16 pkey;

	return ib_query_device(rig.dev, &device) == 0 && ib_query_port(rig.dev, 1, &port) == 0 &&
	       ib_query_gid(rig.dev, 1, rig.gid_index, &gid) == 0 &&
	       memcmp(&gid, &rig.gid, sizeof(gid)) == 0 &&
	       ib_query_pkey(rig.dev, 1, 0, &pkey) == 0 && pkey == 0xffff;
}

/* A device need not be modifiable; it must say so. */
static bool do_modify_device(int who)
{
	struct ib_device_modify device = { .sys_image_guid = 0 };
	struct ib_port_modify port = { .init_type = 0 };

	return ib_modify_device(rig.dev, 0, &device) <= 0 &&
	       ib_modify_port(rig.dev, 1, 0, &port) <= 0;
}

static bool do_pd(int who)
{
	struct ib_pd *pd = ib_alloc_pd(rig.dev);

	return !IS_ERR(pd) && ib_dealloc_pd(pd) == 0 && ib_dealloc_pd(rig.pd) == -EBUSY;
}

static bool do_ah(int who)
{
	struct ib_ah_attr way = rig_way(&rig.gid), seen;
	struct ib_ah *ah = ib_create_ah(rig.pd, &way);

	way.sl = (u8)who;
	return !IS_ERR(ah) && ib_destroy_ah(ah) == 0 && ib_modify_ah(all.ah, &way) == 0 &&
	       ib_query_ah(all.ah, &seen) == 0 && seen.sl < THREADS;
}

static bool do_srq(int who)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ib_srq_attr attr = { .srq_limit = (u32)who }, size = { .max_wr = 64u << (who & 1) };
	struct ib_sge in = rig_sge(4096, 64);
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };
	struct ib_srq *srq = ib_create_srq(rig.pd, &init);
	int posted = ib_post_srq_recv(all.srq, &recv, NULL);

	/* the size may be refused: more requests wait, or it is fixed */
	return !IS_ERR(srq) && ib_destroy_srq(srq) == 0 && (posted == 0 || posted == -ENOMEM) &&
	       ib_modify_srq(all.srq, &size, IB_SRQ_MAX_WR) <= 0 &&
	       ib_modify_srq(all.srq, &attr, IB_SRQ_LIMIT) == 0 &&
	       ib_query_srq(all.srq, &attr) == 0 && attr.max_wr >= 64;
}

static bool do_qp(int who)
{
	struct ib_qp_attr attr = { .min_rnr_timer = IB_RNR_TIMER_000_64 };
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, all.cq, all.cq, all.srq), seen;
	struct ib_qp *qp = ib_create_qp(rig.pd, &init);

	return !IS_ERR(qp) && rig_try_init(qp) == 0 && ib_destroy_cq(all.cq) == -EBUSY &&
	       ib_destroy_qp(qp) == 0 &&
	       ib_modify_qp(all.rc.a, &attr, IB_QP_MIN_RNR_TIMER) == 0 &&
	       ib_query_qp(all.rc.a, &attr, IB_QP_STATE, &seen) == 0 &&
	       attr.qp_state == IB_QPS_RTS;
}

/* What has been posted is counted, and so is what comes out again. */
static bool do_post_send(int who)
{
	struct ib_sge out = rig_sge(0, 64);
	struct ib_send_wr wr = { .sg_list = &out,
				 .num_sge = 1,
				 .opcode = IB_WR_RDMA_WRITE,
				 .send_flags = IB_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = (uintptr_t)rig.buf + 8192;
	wr.wr.rdma.rkey = rig.mr->rkey;
	int err = ib_post_send(all.rc.a, &wr, NULL);

	if (err == 0)
		count_add(&all.posted);
	return err == 0 || err == -ENOMEM;
}

static bool do_post_recv(int who)
{
	struct ib_sge in = rig_sge(4096, 64);
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };
	int err = ib_post_recv(all.rc.b, &recv, NULL);

	if (err == 0)
		count_add(&all.received);
	return err == 0 || err == -ENOMEM;
}

static bool do_poll(int who)
{
	struct ib_wc wc[4];
	int got = ib_poll_cq(all.rc.scq, 4, wc);

	for (int i = 0; i < got; i++) {
		if (wc[i].status != IB_WC_SUCCESS || wc[i].qp != all.rc.a)
			return false;
		count_add(&all.completed);
	}
	return got >= 0 && ib_peek_cq(all.rc.scq, 8) >= 0;
}

static bool do_notify(int who)
{
	int err = rig.dev->req_ncomp_notif ? ib_req_ncomp_notif(all.rc.scq, who + 1) : 0;

	return err == 0 && ib_req_notify_cq(all.rc.scq, IB_CQ_NEXT_COMP) == 0 &&
	       ib_req_notify_cq(all.rc.scq, IB_CQ_SOLICITED | IB_CQ_REPORT_MISSED_EVENTS) >= 0;
}

static bool do_cq(int who)
{
	struct ib_cq *cq = ib_create_cq(rig.dev, NULL, NULL, NULL, 16, 0);

	return !IS_ERR(cq) && ib_destroy_cq(cq) == 0 &&
	       ib_modify_cq(all.rc.scq, (u16)(who & 3), 10) <= 0 &&
	       (!rig.dev->resize_cq || ib_resize_cq(all.rc.scq, CQES << (who & 1)) == 0);
}

static bool do_mr(int who)
{
	struct ib_phys_buf page = { .addr = (uintptr_t)rig.buf, .size = RIG_PAGE };
	u64 start = 0x10000;
	struct ib_mr *dma = ib_get_dma_mr(rig.pd, IB_ACCESS_LOCAL_WRITE);
	struct ib_mr *phys = ib_reg_phys_mr(rig.pd, &page, 1, IB_ACCESS_LOCAL_WRITE, &start);
	struct ib_mr_attr attr;
	int asked = ib_query_mr(all.mr, &attr);

	return !IS_ERR(dma) && !IS_ERR(phys) && ib_dereg_mr(dma) == 0 && ib_dereg_mr(phys) == 0 &&
	       (asked == 0 ? attr.rkey == all.mr->rkey : asked == -ENOSYS);
}

static bool do_mw(int who)
{
	struct ib_mw_bind bind = { .mr = all.mr,
				   .addr = (uintptr_t)rig.buf,
				   .length = 64,
				   .send_flags = IB_SEND_SIGNALED,
				   .mw_access_flags = IB_ACCESS_REMOTE_READ };

	if (!all.mw)
		return true;
	struct ib_mw *mw = ib_alloc_mw(rig.pd);
	int err = ib_bind_mw(all.rc.a, all.mw, &bind);

	if (err == 0)
		count_add(&all.posted);
	return !IS_ERR(mw) && ib_dealloc_mw(mw) == 0 && (err == 0 || err == -ENOMEM);
}

static bool do_fmr(int who)
{
	struct ib_fmr_attr attr = { .max_pages = 1, .max_maps = 4, .page_shift = 12 };
	u64 page = (uintptr_t)rig.buf;

	if (!all.fmr)
		return true;
	struct ib_fmr *fmr = ib_alloc_fmr(rig.pd, IB_ACCESS_LOCAL_WRITE, &attr);
	int mapped = ib_map_phys_fmr(all.fmr, &page, 1, 0x10000);

	/* mapped once too often: then it is unmapped, while others go on mapping it */
	if (mapped == -EINVAL) {
		struct list_head list = { &all.fmr->list, &all.fmr->list };

		pthread_mutex_lock(&all.fmr_list);
		all.fmr->list = (struct list_head){ &list, &list };
		mapped = ib_unmap_fmr(&list);
		pthread_mutex_unlock(&all.fmr_list);
	}
	return !IS_ERR(fmr) && ib_dealloc_fmr(fmr) == 0 && mapped == 0;
}

/* Every thread a group of its own, on one queue pair. */
static bool do_mcast(int who)
{
	union ib_gid group = rig_group((u8)(100 + who));

	if (!rig.dev->attach_mcast)
		return true;
	return ib_attach_mcast(all.ud.a, &group, 0) == 0 &&
	       ib_destroy_qp(all.ud.a) == -EBUSY && ib_detach_mcast(all.ud.a, &group, 0) == 0;
}

static void on_event(struct ib_event_handler *handler, struct ib_event *event)
{
	count_add(&all.events);
}

static bool do_event(int who)
{
	struct ib_event_handler handler;
	struct ib_event event = { .device = rig.dev,
				  .event = IB_EVENT_CLIENT_REREGISTER,
				  .element.port_num = 1 };

	INIT_IB_EVENT_HANDLER(&handler, rig.dev, on_event);
	if (ib_register_event_handler(&handler))
		return false;
	ib_dispatch_event(&event);
	return ib_unregister_event_handler(&handler) == 0;
}

#define DO(name) { #name, do_##name }
static const struct {
	const char *name;
	bool (*run)(int who);
} menu[] = { DO(query_device), DO(modify_device), DO(pd),    DO(ah),	 DO(srq),  DO(qp),
	     DO(post_send),    DO(post_recv),	  DO(poll),  DO(notify), DO(cq),   DO(mr),
	     DO(mw),	       DO(fmr),		  DO(mcast), DO(event),	 DO(poll), DO(post_send) };

static void *caller_main(void *arg)
{
	int who = (int)(intptr_t)arg;
	u32 random = 12345u * (u32)(who + 1);

	for (int i = 0; i < CALLS; i++) {
		random = random * 1664525u + 1013904223u;
		u32 pick = (random >> 16) % (sizeof(menu) / sizeof(menu[0]));

		if (!menu[pick].run(who) && count_add(&all.failures) == 1)
			__atomic_store_n(&all.first_failure, menu[pick].name, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void all_open(void)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ib_fmr_attr fmr = { .max_pages = 1, .max_maps = 4, .page_shift = 12 };
	struct ib_phys_buf page = { .addr = (uintptr_t)rig.buf, .size = RIG_PAGE };
	struct ib_ah_attr way = rig_way(&rig.gid);
	u64 start = (uintptr_t)rig.buf;

	memset(&all, 0, sizeof(all));
	pthread_mutex_init(&all.fmr_list, NULL);
	link_open(&all.rc, IB_QPT_RC, NULL);
	link_open(&all.ud, IB_QPT_UD, NULL);
	INIT_IB_EVENT_HANDLER(&all.handler, rig.dev, on_event);
	assert_int_equal(ib_register_event_handler(&all.handler), 0);
	all.cq = rig_cq(64);
	all.ah = rig_ok(ib_create_ah(rig.pd, &way));
	all.srq = rig_ok(ib_create_srq(rig.pd, &srq));
	all.mr = rig_ok(ib_reg_phys_mr(rig.pd, &page, 1, RIG_ALL, &start));
	if (rig.dev->alloc_mw)
		all.mw = rig_ok(ib_alloc_mw(rig.pd));
	if (rig.dev->alloc_fmr)
		all.fmr = rig_ok(ib_alloc_fmr(rig.pd, RIG_ALL & ~IB_ACCESS_MW_BIND, &fmr));
}

static void all_close(void)
{
	assert_int_equal(ib_unregister_event_handler(&all.handler), 0);
	if (all.fmr)
		assert_int_equal(ib_dealloc_fmr(all.fmr), 0);
	if (all.mw)
		assert_int_equal(ib_dealloc_mw(all.mw), 0);
	assert_int_equal(ib_dereg_mr(all.mr), 0);
	assert_int_equal(ib_destroy_srq(all.srq), 0);
	assert_int_equal(ib_destroy_ah(all.ah), 0);
	assert_int_equal(ib_destroy_cq(all.cq), 0);
	link_close(&all.rc);
	link_close(&all.ud);
}

/* What is outstanding comes out: as often as it was posted, no more and no less. */
static void all_settle(void)
{
	struct ib_wc wc;

	while (all.completed < all.posted) {
		assert_int_equal(rig_poll(all.rc.scq, 1, &wc, RIG_WAIT_MS), 1);
		assert_int_equal(wc.status, IB_WC_SUCCESS);
		all.completed++;
	}
	assert_int_equal(rig_poll(all.rc.scq, 1, &wc, RIG_QUIET_MS), 0);
	assert_int_equal(rig_try_state(all.rc.b, IB_QPS_ERR), 0);
	while (all.taken < all.received) {
		assert_int_equal(rig_poll(all.rc.rcq, 1, &wc, RIG_WAIT_MS), 1);
		assert_int_equal(wc.status, IB_WC_WR_FLUSH_ERR);
		all.taken++;
	}
	assert_int_equal(rig_poll(all.rc.rcq, 1, &wc, RIG_QUIET_MS), 0);
}

static void reentrant__every_method_on_the_same_objects(void **state)
{
	pthread_t t[THREADS];

	all_open();
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, caller_main, (void *)(intptr_t)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	if (all.first_failure)
		print_error("%s: not what it should answer\n", all.first_failure);
	assert_int_equal(all.failures, 0);
	assert_true(count_get(&all.posted) > THREADS && count_get(&all.received) > 0);
	assert_true(rig_await(&all.events, 1)); /* handlers run on a thread of their own */
	all_settle();
	link_reset(&all.rc);
	link_ping(&all.rc, 16, 0);
	rig_drain(all.rc.rcq, 16);
	all_close();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(reentrant__every_method_on_the_same_objects, rig_setup),
	};

	return rig_run_tests(tests);
}
