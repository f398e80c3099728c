/* verbs_test.c: counts of use, checks of arguments, and the mark on every driver call. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static struct fake_device *fake;

static int setup(void **state)
{
	fake = fake_create("fake%d");
	return ib_register_device(&fake->ib);
}

static int teardown(void **state)
{
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static struct ib_qp *core_qp_make(struct ib_pd *pd, struct ib_cq *cq, struct ib_srq *srq,
			     enum ib_qp_type type)
{
	struct ib_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type
	};

	return ib_create_qp(pd, &init);
}

static void ib_destroy__busy_while_used(void **state)
{
	struct ib_srq_init_attr srq_init = { 0 };
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 16, 0);
	struct ib_srq *srq = ib_create_srq(pd, &srq_init);
	struct ib_qp *qp = core_qp_make(pd, cq, srq, IB_QPT_RC);

	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_cq(cq), -EBUSY);
	assert_int_equal(ib_destroy_srq(srq), -EBUSY);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

/* Each kind of object keeps its PD. */
static void ib_dealloc_pd__busy_for_every_object(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_ah_attr ah_attr = { .port_num = 1 };
	struct ib_fmr_attr fmr_attr = { .max_pages = 1, .max_maps = 1, .page_shift = 12 };
	struct ib_phys_buf buffer = { .addr = 4096, .size = 4096 };
	u64 iova = 0;

	struct ib_ah *ah = ib_create_ah(pd, &ah_attr);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_ah(ah), 0);
	struct ib_mr *mr = ib_get_dma_mr(pd, IB_ACCESS_LOCAL_WRITE);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dereg_mr(mr), 0);
	mr = ib_reg_phys_mr(pd, &buffer, 1, 0, &iova);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dereg_mr(mr), 0);
	struct ib_mw *mw = ib_alloc_mw(pd);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dealloc_mw(mw), 0);
	struct ib_fmr *fmr = ib_alloc_fmr(pd, 0, &fmr_attr);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

/* Whatever the driver refuses leaves the counts as they were. */
static void ib_create__failure_holds_nothing(void **state)
{
	struct ib_srq_init_attr srq_init = { 0 };
	struct ib_ah_attr ah_attr = { .port_num = 1 };
	struct ib_fmr_attr fmr_attr = { .max_pages = 1 };
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 16, 0);

	fake->fail = -ENOMEM;
	assert_int_equal(PTR_ERR(ib_alloc_pd(&fake->ib)), -ENOMEM);
	assert_int_equal(PTR_ERR(ib_create_cq(&fake->ib, NULL, NULL, NULL, 1, 0)), -ENOMEM);
	assert_int_equal(PTR_ERR(core_qp_make(pd, cq, NULL, IB_QPT_UD)), -ENOMEM);
	assert_int_equal(PTR_ERR(ib_create_srq(pd, &srq_init)), -ENOMEM);
	assert_int_equal(PTR_ERR(ib_create_ah(pd, &ah_attr)), -ENOMEM);
	assert_int_equal(PTR_ERR(ib_get_dma_mr(pd, 0)), -ENOMEM);
	assert_int_equal(PTR_ERR(ib_alloc_mw(pd)), -ENOMEM);
	assert_int_equal(PTR_ERR(ib_alloc_fmr(pd, 0, &fmr_attr)), -ENOMEM);
	assert_int_equal(ib_dealloc_pd(pd), -ENOMEM);
	assert_int_equal(ib_destroy_cq(cq), -ENOMEM);
	fake->fail = 0;
	/* A destruction that failed can be had again, and the object is usable meanwhile. */
	struct ib_qp *qp = core_qp_make(pd, cq, NULL, IB_QPT_UD);

	assert_false(IS_ERR(qp));
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void ib_create_qp__checks(void **state)
{
	struct fake_device *other = fake_create("other");

	assert_int_equal(ib_register_device(&other->ib), 0);
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 16, 0);
	struct ib_cq *foreign = ib_create_cq(&other->ib, NULL, NULL, NULL, 16, 0);
	int calls = fake->calls;

	assert_int_equal(PTR_ERR(core_qp_make(pd, NULL, NULL, IB_QPT_RC)), -EINVAL);
	assert_int_equal(PTR_ERR(core_qp_make(pd, foreign, NULL, IB_QPT_RC)), -EINVAL);
	assert_int_equal(PTR_ERR(core_qp_make(pd, cq, NULL, IB_QPT_MAX)), -EINVAL);
	assert_int_equal(PTR_ERR(core_qp_make(pd, cq, NULL, (enum ib_qp_type)-1)), -EINVAL);
	assert_int_equal(fake->calls, calls);
	struct ib_qp *target = core_qp_make(pd, NULL, NULL, IB_QPT_XRC_TGT);

	assert_false(IS_ERR(target));
	assert_int_equal(ib_destroy_qp(target), 0);
	assert_int_equal(ib_destroy_cq(foreign), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	ib_unregister_device(&other->ib);
	fake_destroy(other);
}

/* One thread destroys what another one builds upon: the builder gets an error and holds nothing. */
static void ib_create_qp__on_a_dying_cq(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 16, 0);

	assert_true(use_claim(&cq->usecnt));
	assert_int_equal(PTR_ERR(core_qp_make(pd, cq, NULL, IB_QPT_RC)), -EINVAL);
	use_unclaim(&cq->usecnt);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_true(use_claim(&pd->usecnt));
	assert_int_equal(PTR_ERR(ib_get_dma_mr(pd, 0)), -EINVAL);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	use_unclaim(&pd->usecnt);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void ib_modify_qp__checks(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 16, 0);
	struct ib_qp *qp = core_qp_make(pd, cq, NULL, IB_QPT_UD);
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 2 };
	int mask = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY;

	assert_int_equal(ib_modify_qp(qp, &attr, mask), -EINVAL);
	attr.port_num = 1;
	assert_int_equal(ib_modify_qp(qp, &attr, mask & ~IB_QP_QKEY), -EINVAL);
	assert_int_equal(ib_modify_qp(qp, &attr, mask), 0);
	attr.qp_state = (enum ib_qp_state)9;
	assert_int_equal(ib_modify_qp(qp, &attr, IB_QP_STATE), -EINVAL);
	attr.path_mtu = (enum ib_mtu)6;
	assert_int_equal(ib_modify_qp(qp, &attr, IB_QP_PATH_MTU), -EINVAL);
	assert_int_equal(ib_query_qp(qp, &attr, 0, NULL), -ENOSYS);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void ib_create_cq__checks(void **state)
{
	assert_int_equal(PTR_ERR(ib_create_cq(&fake->ib, NULL, NULL, NULL, 0, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(&fake->ib, NULL, NULL, NULL, -1, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(&fake->ib, NULL, NULL, NULL, 1, 2)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(&fake->ib, NULL, NULL, NULL, 1, -1)), -EINVAL);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 1, 1);
	struct ib_wc wc;

	assert_int_equal(ib_req_notify_cq(cq, (enum ib_cq_notify_flags)0), -EINVAL);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_SOLICITED_MASK), -EINVAL);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_REPORT_MISSED_EVENTS), -EINVAL);
	assert_int_equal(ib_req_notify_cq(cq, (enum ib_cq_notify_flags)9), -EINVAL);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_SOLICITED), 0);
	assert_int_equal(ib_poll_cq(cq, -1, &wc), -EINVAL);
	assert_int_equal(ib_poll_cq(cq, 0, NULL), 0);
	assert_int_equal(ib_resize_cq(cq, 10), -ENOSYS);
	assert_int_equal(ib_peek_cq(cq, 1), -ENOSYS);
	assert_int_equal(ib_req_ncomp_notif(cq, 1), -ENOSYS);
	assert_int_equal(ib_modify_cq(cq, 1, 1), -ENOSYS);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static int completions;

static void on_completion(struct ib_cq *cq, void *context)
{
	struct ib_wc wc[4];

	assert_int_equal(event_driver_depth, 0);
	assert_ptr_equal(context, &completions);
	for (int n; (n = ib_poll_cq(cq, 4, wc)) > 0;)
		__atomic_add_fetch(&completions, n, __ATOMIC_RELEASE);
	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
}

static void ib_post_send__completes_through_the_handler(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, on_completion, NULL, &completions, 16, 0);
	struct ib_qp *qp = core_qp_make(pd, cq, NULL, IB_QPT_RC);
	struct ib_send_wr second = { .num_sge = 2 }, first = { .next = &second };
	struct ib_send_wr *bad = NULL;

	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
	assert_int_equal(ib_post_send(qp, &first, &bad), -EINVAL);
	assert_ptr_equal(bad, &second);
	assert_true(fake_await(&completions, 1));
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void ib_get_dma_mr__access(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	u64 iova = 0;

	assert_int_equal(PTR_ERR(ib_get_dma_mr(pd, IB_ACCESS_REMOTE_WRITE)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_get_dma_mr(pd, IB_ACCESS_REMOTE_ATOMIC)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(pd, NULL, 0, 0, &iova)), -EINVAL);
	struct ib_mr *mr = ib_get_dma_mr(pd, IB_ACCESS_REMOTE_WRITE | IB_ACCESS_LOCAL_WRITE);

	assert_false(IS_ERR(mr));
	assert_int_equal(ib_dereg_mr(mr), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void ib_rereg_phys_mr__moves_to_another_pd(void **state)
{
	struct ib_pd *old = ib_alloc_pd(&fake->ib), *new = ib_alloc_pd(&fake->ib);
	struct ib_mr *mr = ib_get_dma_mr(old, 0);

	fake->fail = -EIO;
	assert_int_equal(ib_rereg_phys_mr(mr, IB_MR_REREG_PD, new, NULL, 0, 0, NULL), -EIO);
	fake->fail = 0;
	assert_ptr_equal(mr->pd, old);
	assert_int_equal(ib_rereg_phys_mr(mr, IB_MR_REREG_PD, new, NULL, 0, 0, NULL), 0);
	assert_int_equal(ib_dealloc_pd(old), 0);
	assert_int_equal(ib_dealloc_pd(new), -EBUSY);
	mr->usecnt = 1; /* as a driver does for a bound window */
	assert_int_equal(ib_rereg_phys_mr(mr, 0, NULL, NULL, 0, 0, NULL), -EBUSY);
	assert_int_equal(ib_dereg_mr(mr), -EBUSY);
	mr->usecnt = 0;
	assert_int_equal(ib_dereg_mr(mr), 0);
	assert_int_equal(ib_dealloc_pd(new), 0);
}

static void ib_attach_mcast__counts_groups(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 16, 0);
	struct ib_qp *ud = core_qp_make(pd, cq, NULL, IB_QPT_UD),
		     *rc = core_qp_make(pd, cq, NULL, IB_QPT_RC);
	union ib_gid group = { .raw = { 0xff, 0x12 } }, host = { .raw = { 0xfe, 0x80 } };
	union ib_gid mapped = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };

	assert_int_equal(ib_attach_mcast(rc, &group, 0), -EINVAL);
	assert_int_equal(ib_attach_mcast(ud, &host, 0), -EINVAL);
	assert_int_equal(ib_attach_mcast(ud, &mapped, 0), 0);
	assert_int_equal(ib_detach_mcast(ud, &mapped, 0), 0);
	mapped.raw[12] = 192;
	assert_int_equal(ib_attach_mcast(ud, &mapped, 0), -EINVAL);
	assert_int_equal(ib_detach_mcast(ud, &group, 0), -EINVAL);
	fake->fail = -ENOSPC;
	assert_int_equal(ib_attach_mcast(ud, &group, 0), -ENOSPC);
	fake->fail = 0;
	/* Ethernet has no LIDs */
	assert_int_equal(ib_attach_mcast(ud, &group, 0xc001), 0);
	assert_int_equal(ib_attach_mcast(ud, &group, 0xc002), 0);
	assert_int_equal(ib_detach_mcast(ud, &group, 0), 0);
	assert_int_equal(ib_detach_mcast(ud, &group, 0xc001), -EINVAL);
	assert_int_equal(ud->usecnt, 0);
	fake->link_layer = IB_LINK_LAYER_INFINIBAND;
	assert_int_equal(ib_attach_mcast(ud, &group, 0), 0);
	assert_int_equal(ib_attach_mcast(ud, &group, 0), 0);
	assert_int_equal(ib_attach_mcast(ud, &group, 0xc001), 0);
	assert_int_equal(ib_destroy_qp(ud), -EBUSY);
	assert_int_equal(ib_detach_mcast(ud, &group, 0), 0);
	assert_int_equal(ib_detach_mcast(ud, &group, 0), -EINVAL);
	assert_int_equal(ib_destroy_qp(ud), -EBUSY);
	fake->fail = -EIO;
	assert_int_equal(ib_detach_mcast(ud, &group, 0xc001), -EIO);
	fake->fail = 0;
	assert_int_equal(ib_detach_mcast(ud, &group, 0xc001), 0);
	assert_int_equal(ib_destroy_qp(ud), 0);
	assert_int_equal(ib_destroy_qp(rc), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void ib_unmap_fmr__checks(void **state)
{
	struct list_head none = LIST_HEAD_INIT(none);

	assert_int_equal(ib_unmap_fmr(&none), 0);
	assert_int_equal(fake->fmr_unmaps, 0);
}

/* Many threads make and break objects on one PD and CQ; the counts come out at zero. */
static void *churn(void *arg)
{
	struct ib_cq *cq = arg;
	struct ib_pd *pd = cq->cq_context;

	for (int i = 0; i < 2000; i++) {
		struct ib_qp *qp = core_qp_make(pd, cq, NULL, IB_QPT_RC);

		if (IS_ERR(qp) || ib_destroy_qp(qp))
			return arg;
	}
	return NULL;
}

static void usecnt__concurrent(void **state)
{
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, pd, 16, 0);
	pthread_t threads[3];
	void *failed;

	for (u32 i = 0; i < ARRAY_LEN(threads); i++)
		pthread_create(&threads[i], NULL, churn, cq);
	for (u32 i = 0; i < ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ib_destroy__busy_while_used, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_dealloc_pd__busy_for_every_object, setup,
						teardown),
		cmocka_unit_test_setup_teardown(ib_create__failure_holds_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_create_qp__checks, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_create_qp__on_a_dying_cq, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_modify_qp__checks, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_create_cq__checks, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_post_send__completes_through_the_handler, setup,
						teardown),
		cmocka_unit_test_setup_teardown(ib_get_dma_mr__access, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_rereg_phys_mr__moves_to_another_pd, setup,
						teardown),
		cmocka_unit_test_setup_teardown(ib_attach_mcast__counts_groups, setup, teardown),
		cmocka_unit_test_setup_teardown(ib_unmap_fmr__checks, setup, teardown),
		cmocka_unit_test_setup_teardown(usecnt__concurrent, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
