/* verbs_test.c: objects, states, work requests and completions through ib_*, over the real
 * adapter, two queue pairs of one process looped back.
 * In:    -    Out: -    Runs: the test's threads
 */
#include "rig.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

static u64 at(u64 offset)
{
	return (uintptr_t)rig.buf + offset;
}

/* Fills n bytes with a pattern that `seed` names. */
static void fill(u64 offset, u32 n, u8 seed)
{
	for (u32 i = 0; i < n; i++)
		rig.buf[offset + i] = (u8)(seed + i * 7);
}

static void check(u64 offset, u32 n, u8 seed)
{
	for (u32 i = 0; i < n; i++)
		assert_int_equal(rig.buf[offset + i], (u8)(seed + i * 7));
}

/* ---- states ---------------------------------------------------------------------------------- */

static void modify_qp__walks_all_states(void **state)
{
	static const enum ib_qp_type types[] = { IB_QPT_RC, IB_QPT_UC, IB_QPT_UD };
	struct ib_cq *cq = rig_cq(64);

	for (int i = 0; i < 3; i++) {
		struct ib_qp *qp = rig_qp(types[i], cq, cq, NULL);

		assert_int_equal(rig_state(qp), IB_QPS_RESET);
		assert_int_equal(rig_try_init(qp), 0);
		assert_int_equal(rig_state(qp), IB_QPS_INIT);
		assert_int_equal(rig_try_init(qp), 0);
		assert_int_equal(rig_try_rtr(qp, &rig.gid, qp->qp_num), 0);
		assert_int_equal(rig_state(qp), IB_QPS_RTR);
		assert_int_equal(rig_try_rts(qp), 0);
		assert_int_equal(rig_state(qp), IB_QPS_RTS);
		assert_int_equal(rig_try_state(qp, IB_QPS_SQD), 0);
		assert_int_equal(rig_state(qp), IB_QPS_SQD);
		assert_int_equal(rig_try_state(qp, IB_QPS_RTS), 0);
		assert_int_equal(rig_try_state(qp, IB_QPS_ERR), 0);
		assert_int_equal(rig_state(qp), IB_QPS_ERR);
		assert_int_equal(rig_try_state(qp, IB_QPS_ERR), 0);
		assert_int_equal(rig_try_state(qp, IB_QPS_RESET), 0);
		assert_int_equal(rig_state(qp), IB_QPS_RESET);
		rig_connect(qp, &rig.gid, qp->qp_num);
		assert_int_equal(ib_destroy_qp(qp), 0);
	}
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void modify_qp__refuses_and_changes_nothing(void **state)
{
	struct ib_cq *cq = rig_cq(64);
	struct ib_qp *qp = rig_qp(IB_QPT_RC, cq, cq, NULL);
	struct ib_qp_attr a = { .qp_state = IB_QPS_INIT,
				.port_num = 1,
				.cur_qp_state = IB_QPS_RTS };
	int init = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;

	assert_int_equal(rig_try_rtr(qp, &rig.gid, 5), -EINVAL);
	assert_int_equal(rig_try_rts(qp), -EINVAL);
	assert_int_equal(rig_try_state(qp, IB_QPS_SQD), -EINVAL);
	assert_int_equal(rig_try_state(qp, IB_QPS_INIT), -EINVAL);
	assert_int_equal(rig_try_state(qp, (enum ib_qp_state)17), -EINVAL);
	assert_int_equal(ib_modify_qp(qp, &a, init | IB_QP_QKEY), -EINVAL);
	assert_int_equal(ib_modify_qp(qp, &a, init | IB_QP_CUR_STATE), -EINVAL);
	a.port_num = 2;
	assert_int_equal(ib_modify_qp(qp, &a, init), -EINVAL);
	a.port_num = 1;
	a.pkey_index = 1;
	assert_int_equal(ib_modify_qp(qp, &a, init), -EINVAL);
	assert_int_equal(rig_state(qp), IB_QPS_RESET);
	assert_int_equal(rig_try_init(qp), 0);
	assert_int_equal(rig_try_rts(qp), -EINVAL);
	assert_int_equal(rig_try_state(qp, IB_QPS_RTR), -EINVAL);
	assert_int_equal(rig_state(qp), IB_QPS_INIT);
	assert_int_equal(rig_try_rtr(qp, &rig.gid, 5), 0);
	assert_int_equal(rig_try_init(qp), -EINVAL);
	assert_int_equal(rig_state(qp), IB_QPS_RTR);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void query_qp__tells_what_modify_set(void **state)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr a;
	struct link l;

	link_open(&l, IB_QPT_RC, NULL);
	assert_int_equal(ib_query_qp(l.a, &a, IB_QP_STATE | IB_QP_AV | IB_QP_CAP, &init), 0);
	assert_int_equal(a.qp_state, IB_QPS_RTS);
	assert_int_equal(a.cur_qp_state, IB_QPS_RTS);
	assert_int_equal(a.path_mtu, IB_MTU_1024);
	assert_int_equal(a.dest_qp_num, l.b->qp_num);
	assert_int_equal(a.rq_psn, 77);
	assert_int_equal(a.sq_psn, 77);
	assert_int_equal(a.timeout, rig_timeout());
	assert_int_equal(a.retry_cnt, 7);
	assert_int_equal(a.rnr_retry, 7);
	assert_int_equal(a.max_rd_atomic, 4);
	assert_int_equal(a.max_dest_rd_atomic, 4);
	assert_int_equal(a.min_rnr_timer, IB_RNR_TIMER_000_64);
	assert_int_equal(a.port_num, 1);
	assert_int_equal(a.qp_access_flags, RIG_ALL & ~IB_ACCESS_MW_BIND);
	assert_memory_equal(a.ah_attr.grh.dgid.raw, rig.gid.raw, 16);
	assert_int_equal(a.ah_attr.ah_flags, IB_AH_GRH);
	assert_true(a.cap.max_send_wr >= 128 && a.cap.max_recv_wr >= 128);
	assert_ptr_equal(init.send_cq, l.scq);
	assert_ptr_equal(init.recv_cq, l.arcq);
	assert_int_equal(init.qp_type, IB_QPT_RC);
	assert_int_equal(init.sq_sig_type, IB_SIGNAL_REQ_WR);
	link_close(&l);
}

static void create_qp__refuses_what_it_cannot_do(void **state)
{
	struct ib_cq *cq = rig_cq(64);
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, cq, cq, NULL);

	init.cap.max_send_sge = 1000;
	assert_int_equal(PTR_ERR(ib_create_qp(rig.pd, &init)), -EINVAL);
	assert_int_equal(init.cap.max_send_sge, 1000);
	init = rig_qp_init(IB_QPT_RC, cq, NULL, NULL);
	assert_int_equal(PTR_ERR(ib_create_qp(rig.pd, &init)), -EINVAL);
	init = rig_qp_init((enum ib_qp_type)42, cq, cq, NULL);
	assert_int_equal(PTR_ERR(ib_create_qp(rig.pd, &init)), -EINVAL);
	init = rig_qp_init(IB_QPT_RAW_ETY, cq, cq, NULL);
	assert_true(IS_ERR(ib_create_qp(rig.pd, &init)));
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void usecnt__holds_what_others_stand_on(void **state)
{
	struct ib_pd *pd = rig_ok(ib_alloc_pd(rig.dev));
	struct ib_cq *cq = rig_cq(64);
	struct ib_srq_init_attr si = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ib_srq *srq = rig_ok(ib_create_srq(pd, &si));
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, cq, cq, srq);
	struct ib_qp *qp = rig_ok(ib_create_qp(pd, &init));

	assert_int_equal(ib_destroy_cq(cq), -EBUSY);
	assert_int_equal(ib_destroy_srq(srq), -EBUSY);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_srq(srq), 0);
	struct ib_mr *mr = rig_ok(ib_get_dma_mr(pd, IB_ACCESS_LOCAL_WRITE));

	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dereg_mr(mr), 0);
	if (rig.dev->alloc_mw) {
		struct ib_mw *mw = rig_ok(ib_alloc_mw(pd));

		assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
		assert_int_equal(ib_dealloc_mw(mw), 0);
	}
	struct ib_ah_attr way = rig_way(&rig.gid);
	struct ib_ah *ah = rig_ok(ib_create_ah(pd, &way));

	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_destroy_ah(ah), 0);
	struct ib_fmr_attr fa = { .max_pages = 1, .max_maps = 1, .page_shift = 12 };
	struct ib_fmr *fmr = rig_ok(ib_alloc_fmr(pd, IB_ACCESS_LOCAL_WRITE, &fa));

	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* ---- work requests --------------------------------------------------------------------------- */

static void post_send__send_and_what_the_receiver_sees(void **state)
{
	struct link l;
	struct ib_wc wc;

	link_open(&l, IB_QPT_RC, NULL);
	fill(0, 1000, 3);
	rig_recv(l.b, 11, 8192, 2000);
	rig_send_bytes(l.a, 12, 0, 1000, 0);
	wc = rig_expect(l.scq, IB_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 12);
	assert_int_equal(wc.opcode, IB_WC_SEND);
	assert_ptr_equal(wc.qp, l.a);
	assert_int_equal(wc.port_num, 1);
	wc = rig_expect(l.rcq, IB_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 11);
	assert_int_equal(wc.opcode, IB_WC_RECV);
	assert_true(wc.opcode & IB_WC_RECV);
	assert_int_equal(wc.byte_len, 1000);
	assert_int_equal(wc.wc_flags, 0);
	assert_ptr_equal(wc.qp, l.b);
	assert_int_equal(wc.port_num, 1);
	check(8192, 1000, 3);
	link_close(&l);
}

static void post_send__immediate_data(void **state)
{
	struct link l;
	struct ib_sge sge = rig_sge(0, 16);
	struct ib_send_wr wr = { .wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND_WITH_IMM,
				 .send_flags = IB_SEND_SIGNALED,
				 .ex.imm_data = htonl(0xcafe1234) };
	struct ib_wc wc;

	link_open(&l, IB_QPT_RC, NULL);
	fill(0, 16, 9);
	rig_recv(l.b, 1, 4096, 64);
	rig_send(l.a, &wr);
	wc = rig_expect(l.rcq, IB_WC_SUCCESS);
	assert_int_equal(wc.opcode, IB_WC_RECV);
	assert_int_equal(wc.wc_flags, IB_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, htonl(0xcafe1234));
	rig_recv(l.b, 2, 0, 0);
	wr.opcode = IB_WR_RDMA_WRITE_WITH_IMM;
	wr.wr.rdma.remote_addr = at(8192);
	wr.wr.rdma.rkey = rig.mr->rkey;
	rig_send(l.a, &wr);
	wc = rig_expect(l.rcq, IB_WC_SUCCESS);
	assert_int_equal(wc.opcode, IB_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wc_flags, IB_WC_WITH_IMM);
	assert_int_equal(wc.ex.imm_data, htonl(0xcafe1234));
	assert_int_equal(wc.byte_len, 16);
	check(8192, 16, 9);
	assert_int_equal(rig_expect(l.scq, IB_WC_SUCCESS).opcode, IB_WC_SEND);
	assert_int_equal(rig_expect(l.scq, IB_WC_SUCCESS).opcode, IB_WC_RDMA_WRITE);
	link_close(&l);
}

static void post_send__write_and_read(void **state)
{
	struct link l;
	struct ib_sge sge[2] = { rig_sge(0, 3000), rig_sge(5000, 96) };
	struct ib_send_wr wr = { .wr_id = 4,
				 .sg_list = sge,
				 .num_sge = 2,
				 .opcode = IB_WR_RDMA_WRITE,
				 .send_flags = IB_SEND_SIGNALED };
	struct ib_wc wc;

	link_open(&l, IB_QPT_RC, NULL);
	wr.wr.rdma.remote_addr = at(20000);
	wr.wr.rdma.rkey = rig.mr->rkey;
	fill(0, 3000, 1);
	fill(5000, 96, 2);
	rig_send(l.a, &wr);
	wc = rig_expect(l.scq, IB_WC_SUCCESS);
	assert_int_equal(wc.opcode, IB_WC_RDMA_WRITE);
	check(20000, 3000, 1);
	check(23000, 96, 2);
	memset(rig.buf, 0, 6000);
	wr.opcode = IB_WR_RDMA_READ;
	rig_send(l.a, &wr);
	wc = rig_expect(l.scq, IB_WC_SUCCESS);
	assert_int_equal(wc.opcode, IB_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, 3096);
	check(0, 3000, 1);
	check(5000, 96, 2);
	link_close(&l);
}

static void post_send__atomics(void **state)
{
	struct link l;
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IB_SEND_SIGNALED };
	u64 *here = (u64 *)rig.buf, *there = (u64 *)(rig.buf + 4096);

	link_open(&l, IB_QPT_RC, NULL);
	wr.wr.atomic.remote_addr = at(4096);
	wr.wr.atomic.rkey = rig.mr->rkey;
	wr.wr.atomic.compare_add = 5;
	*there = 100;
	rig_send(l.a, &wr);
	assert_int_equal(rig_expect(l.scq, IB_WC_SUCCESS).opcode, IB_WC_FETCH_ADD);
	assert_int_equal(*here, 100);
	assert_int_equal(*there, 105);
	wr.opcode = IB_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 105;
	wr.wr.atomic.swap = 7;
	rig_send(l.a, &wr);
	assert_int_equal(rig_expect(l.scq, IB_WC_SUCCESS).opcode, IB_WC_COMP_SWAP);
	assert_int_equal(*here, 105);
	assert_int_equal(*there, 7);
	rig_send(l.a, &wr); /* compares unequal now */
	rig_drain(l.scq, 1);
	assert_int_equal(*here, 7);
	assert_int_equal(*there, 7);
	link_close(&l);
}

/* The peer's FMR is invalidated by the message; its key says so in Linux's bit and no longer
 * works. */
static void post_send__send_with_invalidate(void **state)
{
	rig_needs(alloc_fmr);
	struct ib_fmr_attr fa = { .max_pages = 1, .max_maps = 4, .page_shift = 12 };
	struct ib_fmr *fmr = rig_ok(ib_alloc_fmr(rig.pd, RIG_ALL & ~IB_ACCESS_MW_BIND, &fa));
	u64 page = at(8192);
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND_WITH_INV,
				 .send_flags = IB_SEND_SIGNALED };
	struct ib_wc wc;
	struct link l;

	link_open(&l, IB_QPT_RC, NULL);
	assert_int_equal(ib_map_phys_fmr(fmr, &page, 1, 0x10000), 0);
	wr.ex.invalidate_rkey = fmr->rkey;
	rig_recv(l.b, 1, 4096, 8);
	rig_send(l.a, &wr);
	rig_drain(l.scq, 1);
	wc = rig_expect(l.rcq, IB_WC_SUCCESS);
	assert_int_equal(wc.wc_flags, IB_WC_WITH_INVALIDATE);
	assert_int_equal(wc.ex.invalidate_rkey, fmr->rkey);
	wr.opcode = IB_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = 0x10000;
	wr.wr.rdma.rkey = fmr->rkey;
	rig_send(l.a, &wr);
	rig_expect(l.scq, IB_WC_REM_ACCESS_ERR);
	link_close(&l);
	assert_int_equal(ib_dealloc_fmr(fmr), 0);
}

static void post_send__inline_data_is_taken_at_once(void **state)
{
	struct link l;

	link_open(&l, IB_QPT_RC, NULL);
	struct ib_sge sge = { .addr = at(0), .length = 64, .lkey = 0xdead };
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE };

	for (int waits = 0; waits < 2; waits++) {
		fill(0, 64, (u8)(5 + waits));
		if (!waits)
			rig_recv(l.b, 1, 4096, 64);
		rig_send(l.a, &wr);
		memset(rig.buf, 0, 64);
		if (waits) /* it has gone nowhere yet */
			rig_recv(l.b, 2, 4096, 64);
		rig_drain(l.rcq, 1);
		rig_drain(l.scq, 1);
		check(4096, 64, (u8)(5 + waits));
	}
	link_close(&l);
}

/* Requests are taken in order up to the first bad one, which *bad names. */
static void post_send__names_the_bad_request(void **state)
{
	struct link l;
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr[3], *bad = NULL;
	struct ib_wc wc[4];

	link_open(&l, IB_QPT_RC, NULL);
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ib_send_wr){ .next = i < 2 ? &wr[i + 1] : NULL,
					     .wr_id = (u64)i,
					     .sg_list = &sge,
					     .num_sge = 1,
					     .opcode = IB_WR_SEND,
					     .send_flags = IB_SEND_SIGNALED };
	wr[1].opcode = IB_WR_LSO;
	rig_recv(l.b, 1, 4096, 8);
	assert_int_equal(ib_post_send(l.a, wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(rig_poll(l.scq, 3, wc, 200), 1);
	assert_int_equal(wc[0].wr_id, 0);
	wr[1].opcode = (enum ib_wr_opcode)77;
	assert_int_equal(ib_post_send(l.a, &wr[1], NULL), -EINVAL);
	wr[1].opcode = IB_WR_SEND;
	wr[1].num_sge = 5;
	assert_int_equal(ib_post_send(l.a, &wr[1], NULL), -EINVAL);
	struct ib_recv_wr rr = { .sg_list = &sge, .num_sge = 5 }, *rbad = NULL;

	assert_int_equal(ib_post_recv(l.b, &rr, &rbad), -EINVAL);
	assert_ptr_equal(rbad, &rr);
	link_close(&l);
}

static void post_send__refused_before_rts_and_flushed_in_error(void **state)
{
	struct ib_cq *cq = rig_cq(64);
	struct ib_qp *qp = rig_qp(IB_QPT_RC, cq, cq, NULL);
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND };
	struct ib_recv_wr rr = { .wr_id = 6, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(rig_try_send(qp, &wr), -EINVAL);
	assert_int_equal(ib_post_recv(qp, &rr, &bad), -EINVAL);
	assert_int_equal(rig_try_init(qp), 0);
	assert_int_equal(rig_try_send(qp, &wr), -EINVAL);
	assert_int_equal(ib_post_recv(qp, &rr, &bad), 0);
	assert_int_equal(rig_try_state(qp, IB_QPS_ERR), 0);
	assert_int_equal(rig_expect(cq, IB_WC_WR_FLUSH_ERR).wr_id, 6);
	rig_send(qp, &wr); /* unsignalled: its failure completes all the same */
	assert_int_equal(rig_expect(cq, IB_WC_WR_FLUSH_ERR).wr_id, 5);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void post_send__full_queue_says_enomem(void **state)
{
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND };
	int err = 0, posted = 0;
	struct link l;

	link_open(&l, IB_QPT_RC, NULL);
	/* no receive is posted: everything waits in RNR */
	while (posted < 5000 && !(err = rig_try_send(l.a, &wr)))
		posted++;
	assert_int_equal(err, -ENOMEM);
	assert_true(posted >= 128);
	link_close(&l);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static struct ib_ah_attr way_to(const union ib_gid *gid)
{
	struct ib_ah_attr way = rig_way(gid);

	way.sl = 3;
	way.grh.hop_limit = 9;
	way.grh.traffic_class = 4;
	way.grh.flow_label = 0x12345;
	return way;
}

static void ah__create_query_modify_destroy(void **state)
{
	struct ib_ah_attr way = way_to(&rig.gid), seen;
	struct ib_ah *ah = rig_ok(ib_create_ah(rig.pd, &way));

	assert_int_equal(ib_query_ah(ah, &seen), 0);
	assert_int_equal(seen.sl, 3);
	assert_int_equal(seen.grh.flow_label, 0x12345);
	assert_memory_equal(seen.grh.dgid.raw, rig.gid.raw, 16);
	way.sl = 5;
	assert_int_equal(ib_modify_ah(ah, &way), 0);
	assert_int_equal(ib_query_ah(ah, &seen), 0);
	assert_int_equal(seen.sl, 5);
	way.sl = 6;
	way.grh.sgid_index = 255;
	assert_int_equal(ib_modify_ah(ah, &way), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_ah(rig.pd, &way)), -EINVAL);
	way = way_to(&rig.gid);
	way.ah_flags = 0; /* RoCE has no LIDs */
	assert_int_equal(PTR_ERR(ib_create_ah(rig.pd, &way)), -EINVAL);
	way = way_to(&rig.gid);
	way.port_num = 2;
	assert_int_equal(PTR_ERR(ib_create_ah(rig.pd, &way)), -EINVAL);
	assert_int_equal(ib_query_ah(ah, &seen), 0);
	assert_int_equal(seen.sl, 5);
	assert_int_equal(ib_destroy_ah(ah), 0);
}

static void ud__there_and_back_by_the_completion(void **state)
{
	struct ib_ah_attr way = way_to(&rig.gid), back;
	struct ib_wc wc;
	struct link l;

	link_open(&l, IB_QPT_UD, NULL);
	struct ib_ah *ah = rig_ok(ib_create_ah(rig.pd, &way));

	fill(0, 500, 8);
	rig_recv(l.b, 1, 4096, 2048);
	rig_datagram(l.a, ah, l.b->qp_num, 0, 500);
	rig_drain(l.scq, 1);
	wc = rig_expect(l.rcq, IB_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 540);
	assert_int_equal(wc.wc_flags, IB_WC_GRH);
	assert_int_equal(wc.src_qp, l.a->qp_num);
	assert_ptr_equal(wc.qp, l.b);
	check(4096 + 40, 500, 8);
	struct ib_grh *grh = (struct ib_grh *)(rig.buf + 4096);

	assert_int_equal(ib_init_ah_from_wc(rig.dev, 1, &wc, grh, &back), 0);
	assert_memory_equal(back.grh.dgid.raw, rig.gid.raw, 16);
	struct ib_ah *ah_back = rig_ok(ib_create_ah_from_wc(rig.pd, &wc, grh, 1));

	rig_recv(l.a, 2, 8192, 2048);
	fill(100, 60, 1);
	rig_datagram(l.b, ah_back, wc.src_qp, 100, 60);
	rig_drain(l.bscq, 1);
	wc = rig_expect(l.arcq, IB_WC_SUCCESS);
	assert_int_equal(wc.src_qp, l.b->qp_num);
	check(8192 + 40, 60, 1);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_destroy_ah(ah_back), 0);
	link_close(&l);
}

static void ud__multicast_reaches_every_member(void **state)
{
	rig_needs(attach_mcast);
	union ib_gid group = rig_group(42);
	struct ib_ah_attr way = way_to(&group);
	struct link l;

	link_open(&l, IB_QPT_UD, NULL);
	struct ib_ah *ah = rig_ok(ib_create_ah(rig.pd, &way));

	assert_int_equal(ib_attach_mcast(l.a, &rig.gid, 0), -EINVAL);
	assert_int_equal(ib_detach_mcast(l.a, &group, 0), -EINVAL);
	assert_int_equal(ib_attach_mcast(l.a, &group, 0), 0);
	assert_int_equal(ib_attach_mcast(l.b, &group, 0), 0);
	assert_int_equal(ib_attach_mcast(l.b, &group, 0), 0);
	assert_int_equal(ib_destroy_qp(l.b), -EBUSY);
	fill(0, 100, 6);
	rig_recv(l.a, 1, 4096, 2048);
	rig_recv(l.b, 2, 8192, 2048);
	rig_recv(l.b, 3, 12288, 2048);
	rig_datagram(l.a, ah, IB_MULTICAST_QPN, 0, 100);
	rig_drain(l.scq, 1);
	assert_int_equal(rig_expect(l.rcq, IB_WC_SUCCESS).wr_id, 2);
	check(8192 + 40, 100, 6);
	/* a member gets what it sends itself, as on every port */
	assert_int_equal(rig_expect(l.arcq, IB_WC_SUCCESS).wr_id, 1);
	check(4096 + 40, 100, 6);
	assert_int_equal(ib_detach_mcast(l.b, &group, 0), 0);
	assert_int_equal(ib_detach_mcast(l.b, &group, 0), -EINVAL);
	assert_int_equal(ib_detach_mcast(l.a, &group, 0), 0);
	rig_datagram(l.a, ah, IB_MULTICAST_QPN, 0, 100);
	rig_drain(l.scq, 1);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(ib_peek_cq(l.rcq, 1), 0);
	assert_int_equal(ib_destroy_ah(ah), 0);
	link_close(&l);
}

static void attach_mcast__datagram_queue_pairs_only(void **state)
{
	rig_needs(attach_mcast);
	union ib_gid group = { .raw = { 0xff, 0x0e, [15] = 43 } };
	struct link l;

	link_open(&l, IB_QPT_RC, NULL);
	assert_int_equal(ib_attach_mcast(l.a, &group, 0), -EINVAL);
	link_close(&l);
}

/* ---- destruction in the middle of it --------------------------------------------------------- */

static void destroy_qp__inside_the_peers_traffic(void **state)
{
	/* over a wire each ends with all of its timeouts: 8 s */
	int rounds = rig_on_wire() ? 2 : 5;
	struct link l;
	struct ib_wc wc;

	for (int round = 0; round < rounds; round++) {
		link_open(&l, IB_QPT_RC, NULL);
		for (int i = 0; i < 100; i++)
			rig_recv(l.b, (u64)i, 4096, 64);
		for (int i = 0; i < 120; i++)
			rig_send_bytes(l.a, (u64)i, 0, 64, 0);
		rig_poll(l.rcq, 1 + round, (struct ib_wc[8]){ 0 }, RIG_WAIT_MS);
		assert_int_equal(ib_destroy_qp(l.b), 0);
		/* what b left in its CQs is gone with it */
		assert_int_equal(ib_peek_cq(l.rcq, 200), 0);
		bool failed = false;

		for (int i = 0; i < 120; i++) {
			assert_int_equal(rig_poll(l.scq, 1, &wc, RIG_WAIT_MS), 1);
			assert_int_equal(wc.wr_id, i);
			failed |= wc.status != IB_WC_SUCCESS;
			assert_true(!failed || wc.status != IB_WC_SUCCESS);
		}
		assert_true(failed);
		assert_int_equal(rig_state(l.a), IB_QPS_ERR);
		l.b = rig_qp(IB_QPT_RC, l.bscq, l.rcq, NULL);
		link_reset(&l);
		link_ping(&l, 1, 0);
		link_close(&l);
	}
}

/* ---- the same object from many threads ------------------------------------------------------- */

static int stop;

static void *modifier_main(void *arg)
{
	struct ib_qp *qp = arg;

	while (!count_get(&stop)) {
		rig_try_init(qp);
		rig_try_rtr(qp, &rig.gid, qp->qp_num);
		rig_try_rts(qp);
		if (rig_try_state(qp, IB_QPS_RESET) != 0)
			count_add(&stop);
	}
	return NULL;
}

/* Whatever transitions race, the queue pair ends in a state that works. */
static void modify_qp__from_many_threads(void **state)
{
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_RDMA_WRITE,
				 .send_flags = IB_SEND_SIGNALED };
	struct ib_cq *cq = rig_cq(512);
	struct ib_qp *qp = rig_qp(IB_QPT_RC, cq, cq, NULL);
	pthread_t t[3];
	struct ib_wc wc[16];

	wr.wr.rdma.remote_addr = at(4096);
	wr.wr.rdma.rkey = rig.mr->rkey;
	stop = 0;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, modifier_main, qp), 0);
	for (int i = 0; i < 30000; i++) {
		rig_try_send(qp, &wr);
		ib_poll_cq(cq, 16, wc);
	}
	assert_int_equal(count_get(&stop), 0);
	count_add(&stop);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(rig_try_state(qp, IB_QPS_RESET), 0);
	while (ib_poll_cq(cq, 16, wc) > 0)
		continue;
	rig_connect(qp, &rig.gid, qp->qp_num);
	rig_send(qp, &wr);
	rig_drain(cq, 1);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(modify_qp__walks_all_states, rig_setup),
		cmocka_unit_test_setup(modify_qp__refuses_and_changes_nothing, rig_setup),
		cmocka_unit_test_setup(query_qp__tells_what_modify_set, rig_setup),
		cmocka_unit_test_setup(create_qp__refuses_what_it_cannot_do, rig_setup),
		cmocka_unit_test_setup(usecnt__holds_what_others_stand_on, rig_setup),
		cmocka_unit_test_setup(post_send__send_and_what_the_receiver_sees, rig_setup),
		cmocka_unit_test_setup(post_send__immediate_data, rig_setup),
		cmocka_unit_test_setup(post_send__write_and_read, rig_setup),
		cmocka_unit_test_setup(post_send__atomics, rig_setup),
		cmocka_unit_test_setup(post_send__send_with_invalidate, rig_setup),
		cmocka_unit_test_setup(post_send__inline_data_is_taken_at_once, rig_setup),
		cmocka_unit_test_setup(post_send__names_the_bad_request, rig_setup),
		cmocka_unit_test_setup(post_send__refused_before_rts_and_flushed_in_error,
				       rig_setup),
		cmocka_unit_test_setup(post_send__full_queue_says_enomem, rig_setup),
		cmocka_unit_test_setup(ah__create_query_modify_destroy, rig_setup),
		cmocka_unit_test_setup(ud__there_and_back_by_the_completion, rig_setup),
		cmocka_unit_test_setup(ud__multicast_reaches_every_member, rig_setup),
		cmocka_unit_test_setup(attach_mcast__datagram_queue_pairs_only, rig_setup),
		cmocka_unit_test_setup(destroy_qp__inside_the_peers_traffic, rig_setup),
		cmocka_unit_test_setup(modify_qp__from_many_threads, rig_setup),
	};

	return rig_run_tests(tests);
}
