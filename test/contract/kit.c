/* kit.c: one round of every verb that may not sleep, on objects made beforehand.
 * In: -    Out: kit.failures    Runs: whatever thread a test is about    Locks: none
 */
#include "kit.h"

#include <rdma/ib_cache.h>
#include <rdma/ib_extended.h>

struct kit kit;
static union ib_gid kit_group;

static void kit_open_tags(void)
{
	struct ib_device_attr_ex attr = { .size = sizeof(attr) };
	struct ib_srq_init_attr_ex init = { .size = sizeof(init),
					    .srq_type = IB_SRQT_TM,
					    .base.attr = { .max_wr = 64, .max_sge = 1 },
					    .max_num_tags = 64,
					    .max_ops = 64 };

	assert_int_equal(ib_query_device_ex(rig.dev, &attr), 0);
	if (attr.tm_caps.max_num_tags == 0)
		return;
	init.cq = kit.tags_cq = rig_cq(256);
	kit.tags = rig_ok(ib_create_srq_ex(rig.pd, &init));
}

static void kit_close_tags(void)
{
	if (!kit.tags)
		return;
	assert_int_equal(ib_destroy_srq(kit.tags), 0);
	assert_int_equal(ib_destroy_cq(kit.tags_cq), 0);
}

void kit_open(void)
{
	struct ib_ah_attr way;
	struct ib_srq_init_attr si = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ib_fmr_attr fa = { .max_pages = 1, .max_maps = 255, .page_shift = 12 };
	struct ib_fmr_pool_param pp = { .max_pages_per_fmr = 1,
					.page_shift = 12,
					.access = IB_ACCESS_LOCAL_WRITE,
					.pool_size = 4,
					.dirty_watermark = 2 };

	memset(&kit, 0, sizeof(kit));
	kit_group = rig_group(99);
	way = rig_way(&kit_group);
	link_open(&kit.rc, IB_QPT_RC, NULL);
	link_open(&kit.ud, IB_QPT_UD, NULL);
	assert_int_equal(ib_attach_mcast(kit.ud.b, &kit_group, 0), 0);
	kit.group_ah = rig_ok(ib_create_ah(rig.pd, &way));
	kit.srq = rig_ok(ib_create_srq(rig.pd, &si));
	kit.fmr = rig_ok(ib_alloc_fmr(rig.pd, IB_ACCESS_LOCAL_WRITE, &fa));
	if (rig.dev->alloc_mw)
		kit.mw = rig_ok(ib_alloc_mw(rig.pd));
	kit.pool = rig_ok(ib_create_fmr_pool(rig.pd, &pp));
	kit_open_tags();
}

void kit_close(void)
{
	assert_int_equal(count_get(&kit.first_failure), 0);
	assert_int_equal(kit.failures, 0);
	kit_close_tags();
	assert_int_equal(ib_destroy_fmr_pool(kit.pool), 0);
	if (kit.mw)
		assert_int_equal(ib_dealloc_mw(kit.mw), 0);
	assert_int_equal(ib_dealloc_fmr(kit.fmr), 0);
	assert_int_equal(ib_destroy_srq(kit.srq), 0);
	assert_int_equal(ib_destroy_ah(kit.group_ah), 0);
	assert_int_equal(ib_detach_mcast(kit.ud.b, &kit_group, 0), 0);
	link_close(&kit.rc);
	link_close(&kit.ud);
}

void kit_expect(bool ok, int line)
{
	if (ok)
		return;
	if (count_add(&kit.failures) == 1)
		__atomic_store_n(&kit.first_failure, line, __ATOMIC_RELEASE);
}

enum { KIT_POLL_MS = 3000 };

/* One completion in time, by polling alone, for this thread may not sleep either. */
static bool kit_poll(struct ib_cq *cq)
{
	struct ib_wc wc;

	for (u64 end = rig_now_ms() + KIT_POLL_MS; rig_now_ms() < end;) {
		int got = ib_poll_cq(cq, 1, &wc);

		if (got)
			return got == 1 && wc.status == IB_WC_SUCCESS;
	}
	return false;
}

static void kit_address_handles(void)
{
	struct ib_ah_attr way = rig_way(&rig.gid), seen;
	struct ib_ah *ah = ib_create_ah(rig.pd, &way);
	union ib_gid gid;

	EXPECT(!IS_ERR(ah));
	EXPECT(ib_get_cached_gid(rig.dev, 1, rig.gid_index, &gid) == 0);
	if (IS_ERR(ah))
		return;
	way.sl = 2;
	EXPECT(ib_modify_ah(ah, &way) == 0);
	EXPECT(ib_query_ah(ah, &seen) == 0 && seen.sl == 2);
	EXPECT(ib_destroy_ah(ah) == 0);
}

static void kit_datagrams(void)
{
	struct ib_ah_attr way = rig_way(&rig.gid);
	struct ib_ah *ah = ib_create_ah(rig.pd, &way);
	struct ib_sge sge = rig_sge(0, 64), in = rig_sge(4096, 1024);
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED };

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = kit.ud.b->qp_num;
	wr.wr.ud.remote_qkey = RIG_QKEY;
	EXPECT(ib_post_recv(kit.ud.b, &recv, NULL) == 0);
	EXPECT(ib_post_send(kit.ud.a, &wr, NULL) == 0);
	EXPECT(kit_poll(kit.ud.scq));
	EXPECT(kit_poll(kit.ud.rcq));
	wr.wr.ud.ah = kit.group_ah;
	wr.wr.ud.remote_qpn = IB_MULTICAST_QPN;
	EXPECT(ib_post_recv(kit.ud.b, &recv, NULL) == 0);
	EXPECT(ib_post_send(kit.ud.a, &wr, NULL) == 0);
	EXPECT(kit_poll(kit.ud.scq));
	EXPECT(kit_poll(kit.ud.rcq));
	EXPECT(ib_destroy_ah(ah) == 0);
}

static void kit_connected(void)
{
	static const enum ib_wr_opcode ops[] = { IB_WR_RDMA_WRITE, IB_WR_RDMA_READ };
	struct ib_sge sge = rig_sge(0, 64), in = rig_sge(4096, 1024);
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED | IB_SEND_SOLICITED };

	EXPECT(ib_req_notify_cq(kit.rc.rcq, IB_CQ_SOLICITED | IB_CQ_REPORT_MISSED_EVENTS) == 0);
	EXPECT(ib_req_ncomp_notif(kit.rc.rcq, 2) == 0);
	EXPECT(ib_post_recv(kit.rc.b, &recv, NULL) == 0);
	EXPECT(ib_post_send(kit.rc.a, &wr, NULL) == 0);
	EXPECT(kit_poll(kit.rc.scq));
	EXPECT(kit_poll(kit.rc.rcq));
	EXPECT(ib_peek_cq(kit.rc.rcq, 1) == 0);
	wr.wr.rdma.remote_addr = (uintptr_t)rig.buf + 8192;
	wr.wr.rdma.rkey = rig.mr->rkey;
	for (int i = 0; i < 2; i++) {
		wr.opcode = ops[i];
		EXPECT(ib_post_send(kit.rc.a, &wr, NULL) == 0);
		EXPECT(kit_poll(kit.rc.scq));
	}
	sge.length = 8;
	wr.opcode = IB_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)rig.buf + 8192;
	wr.wr.atomic.rkey = rig.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	EXPECT(ib_post_send(kit.rc.a, &wr, NULL) == 0);
	EXPECT(kit_poll(kit.rc.scq));
}

static void kit_memory(void)
{
	u64 page = (uintptr_t)rig.buf + 8192;
	struct ib_mw_bind bind = { .mr = rig.mr,
				   .addr = page,
				   .length = 64,
				   .send_flags = IB_SEND_SIGNALED,
				   .mw_access_flags = IB_ACCESS_REMOTE_READ };
	struct ib_pool_fmr *mapped;

	EXPECT(ib_map_phys_fmr(kit.fmr, &page, 1, 0x10000) == 0);
	EXPECT(ib_map_phys_fmr(kit.fmr, &page, 1, 0x20000) == 0);
	mapped = ib_fmr_pool_map_phys(kit.pool, &page, 1, 0x30000);
	EXPECT(!IS_ERR(mapped));
	if (!IS_ERR(mapped))
		EXPECT(ib_fmr_pool_unmap(mapped) == 0);
	if (!kit.mw)
		return;
	EXPECT(ib_bind_mw(kit.rc.a, kit.mw, &bind) == 0);
	EXPECT(kit_poll(kit.rc.scq));
}

static void kit_tags(void)
{
	struct ib_sge sge = rig_sge(4096, 64);
	struct ib_ops_wr wr = { .opcode = IB_WR_TAG_ADD,
				.flags = IB_OPS_SIGNALED,
				.tm.add = { .sg_list = &sge, .num_sge = 1, .tag = 1, .mask = 1 } };

	if (!kit.tags)
		return;
	EXPECT(ib_post_srq_ops(kit.tags, &wr, NULL) == 0);
	EXPECT(kit_poll(kit.tags_cq));
	wr.opcode = IB_WR_TAG_DEL;
	EXPECT(ib_post_srq_ops(kit.tags, &wr, NULL) == 0);
	EXPECT(kit_poll(kit.tags_cq));
}

static void kit_rest(void)
{
	struct ib_event event = { .device = rig.dev,
				  .event = IB_EVENT_CLIENT_REREGISTER,
				  .element.port_num = 1 };
	struct ib_sge in = rig_sge(4096, 64);
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };

	ib_dispatch_event(&event);
	if (count_get(&kit.rounds) < 32)
		EXPECT(ib_post_srq_recv(kit.srq, &recv, NULL) == 0);
}

void kit_round(void)
{
	kit_address_handles();
	kit_connected();
	kit_datagrams();
	kit_memory();
	kit_tags();
	kit_rest();
	count_add(&kit.rounds);
}
