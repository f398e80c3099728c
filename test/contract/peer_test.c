/* peer_test.c: the midlayer's contract between two processes: a child that serves by its handlers
 * alone, and exposes memory to its parent.
 * In:    a socket pair for what the two must tell each other    Out: -
 * Runs:  the test's thread, the child's main thread, vectors of both
 */
#include "rig.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static int channel; /* to the other process */

static void tell(const void *what, size_t size)
{
	assert_int_equal(write(channel, what, size), size);
}

static void hear(void *what, size_t size)
{
	assert_int_equal(recv(channel, what, size, MSG_WAITALL), size);
}

static void tell_number(u64 number)
{
	tell(&number, sizeof(number));
}

static void settle(void);

static u64 hear_number(void)
{
	u64 number;

	hear(&number, sizeof(number));
	settle();
	return number;
}

/* ---- one side -------------------------------------------------------------------------------- */

static struct side {
	struct ib_cq *scq, *rcq;
	struct ib_qp *qp;
} mine;

static void side_open(enum ib_qp_type type, struct ib_cq *rcq)
{
	mine.scq = rig_cq(512);
	mine.rcq = rcq ? rcq : rig_cq(512);
	mine.qp = rig_qp(type, mine.scq, mine.rcq, NULL);
}

/* The peer's word that it has written orders our engine's writes before our reads; here the queue
 * pair's lock says so too, for ThreadSanitizer, which sees one process only. */
static void settle(void)
{
	if (mine.qp)
		rig_state(mine.qp);
}

static u32 peer_qpn;

static void side_connect(void)
{
	tell_number(mine.qp->qp_num);
	peer_qpn = (u32)hear_number();
	rig_connect(mine.qp, &rig.gid, peer_qpn);
	tell_number(1);
	assert_int_equal(hear_number(), 1);
}

static void side_close(void)
{
	if (mine.qp)
		assert_int_equal(ib_destroy_qp(mine.qp), 0);
	assert_int_equal(ib_destroy_cq(mine.scq), 0);
	assert_int_equal(ib_destroy_cq(mine.rcq), 0);
	memset(&mine, 0, sizeof(mine));
}

static u64 at(u64 offset)
{
	return (uintptr_t)rig.buf + offset;
}

static void fill(u64 offset, u32 n, u8 seed)
{
	for (u32 i = 0; i < n; i++)
		rig.buf[offset + i] = (u8)(seed + i * 11 + (i >> 8));
}

static void check(const u8 *where, u32 n, u32 skip, u8 seed)
{
	for (u32 i = 0; i < n; i++)
		assert_int_equal(where[i], (u8)(seed + (i + skip) * 11 + ((i + skip) >> 8)));
}

static enum ib_wc_status reach(enum ib_wr_opcode op, u64 own, u64 va, u64 rkey, u32 length)
{
	rig_reach(mine.qp, op, own, va, (u32)rkey, length);
	return rig_outcome(mine.scq);
}

static void write_ok(u64 own, u64 va, u64 rkey, u32 length)
{
	assert_int_equal(reach(IB_WR_RDMA_WRITE, own, va, rkey, length), IB_WC_SUCCESS);
}

static void read_ok(u64 own, u64 va, u64 rkey, u32 length)
{
	assert_int_equal(reach(IB_WR_RDMA_READ, own, va, rkey, length), IB_WC_SUCCESS);
}

/* The refusal ends the connection: both sides make it anew. */
static void write_refused(u64 own, u64 va, u64 rkey, u32 length)
{
	assert_int_equal(reach(IB_WR_RDMA_WRITE, own, va, rkey, length), IB_WC_REM_ACCESS_ERR);
	assert_int_equal(rig_try_state(mine.qp, IB_QPS_RESET), 0);
	tell_number(2);
	side_connect();
}

static void child_after_refusal(void)
{
	assert_int_equal(hear_number(), 2);
	assert_int_equal(rig_try_state(mine.qp, IB_QPS_RESET), 0);
	side_connect();
}

/* ---- handlers on both sides ------------------------------------------------------------------ */

enum { ECHOES = 400 };

static int echoed;

/* The child: takes messages and sends them back, from its handler alone. */
static void echo_handler(struct ib_cq *cq, void *context)
{
	struct ib_wc wc;

	do {
		while (ib_poll_cq(cq, 1, &wc) > 0) {
			if (wc.status != IB_WC_SUCCESS || wc.qp != mine.qp)
				continue;
			rig_recv(mine.qp, wc.wr_id, 4096 + wc.wr_id * 8, 8);
			rig_send_bytes(mine.qp, 0, 4096 + wc.wr_id * 8, 8, IB_SEND_SOLICITED);
			while (ib_poll_cq(mine.scq, 1, &wc) > 0)
				continue;
			count_add(&echoed);
		}
	} while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

static void child_echo(void)
{
	echoed = 0;
	side_open(IB_QPT_RC, rig_handler_cq(echo_handler, NULL, 512, 0));
	side_connect();
	for (u64 i = 0; i < 16; i++)
		rig_recv(mine.qp, i, 4096 + i * 8, 8);
	assert_int_equal(ib_req_notify_cq(mine.rcq, IB_CQ_NEXT_COMP), 0);
	tell_number(3);
	assert_true(rig_await(&echoed, ECHOES));
	assert_int_equal(hear_number(), 4);
	side_close();
}

static sem_t echo_came;

static void wake_handler(struct ib_cq *cq, void *context)
{
	sem_post(&echo_came);
}

/* The parent sleeps for each answer; it arms before it sends. */
static void handlers__carry_a_conversation(void **state)
{
	struct timespec until;

	sem_init(&echo_came, 0, 0);
	side_open(IB_QPT_RC, rig_handler_cq(wake_handler, NULL, 512, 0));
	side_connect();
	assert_int_equal(hear_number(), 3);
	for (u64 i = 0; i < ECHOES; i++) {
		memcpy(rig.buf, &i, 8);
		rig_recv(mine.qp, i, 64, 8);
		assert_int_equal(ib_req_notify_cq(mine.rcq, IB_CQ_SOLICITED), 0);
		rig_send_bytes(mine.qp, i, 0, 8, 0);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 20;
		assert_int_equal(sem_timedwait(&echo_came, &until), 0);
		rig_drain(mine.rcq, 1);
		rig_drain(mine.scq, 1);
		assert_int_equal(*(u64 *)(rig.buf + 64), i);
	}
	tell_number(4);
	side_close();
	sem_destroy(&echo_came);
}

/* ---- memory that the child exposes ----------------------------------------------------------- */

static void child_regions(void)
{
	struct ib_phys_buf piece[2] = { { at(8 * 4096 + 512), 4096 - 512 },
					{ at(3 * 4096), 4096 } };
	u64 iova = 0x123000;
	struct ib_mr *mr = rig_ok(ib_reg_phys_mr(rig.pd, piece, 2, RIG_ALL, &iova));

	side_open(IB_QPT_RC, NULL);
	side_connect();
	tell_number(iova);
	tell_number(mr->rkey);
	tell_number(at(20 * 4096));
	tell_number(rig.mr->rkey);
	assert_int_equal(hear_number(), 5);
	check(rig.buf + 8 * 4096 + 512, 4096 - 512, 0, 7);
	check(rig.buf + 3 * 4096, 4096, 4096 - 512, 7);
	check(rig.buf + 20 * 4096, 8000, 0, 7);
	assert_int_equal(ib_dereg_mr(mr), 0);
	tell_number(6);
	child_after_refusal();
	side_close();
}

static void regions__scattered_and_whole(void **state)
{
	u64 iova, rkey, va, dma_rkey;

	side_open(IB_QPT_RC, NULL);
	side_connect();
	iova = hear_number();
	rkey = hear_number();
	va = hear_number();
	dma_rkey = hear_number();
	fill(0, 8192, 7);
	write_ok(0, iova, rkey, 8192 - 512);
	write_ok(0, va, dma_rkey, 8000);
	read_ok(16384, iova, rkey, 8192 - 512);
	check(rig.buf + 16384, 8192 - 512, 0, 7);
	read_ok(32768, va, dma_rkey, 8000);
	check(rig.buf + 32768, 8000, 0, 7);
	tell_number(5);
	assert_int_equal(hear_number(), 6);
	write_refused(0, iova, rkey, 8);
	side_close();
}

static void child_pool(void)
{
	struct ib_fmr_pool_param p = { .max_pages_per_fmr = 3,
				       .page_shift = 12,
				       .access = RIG_ALL & ~IB_ACCESS_MW_BIND,
				       .pool_size = 4,
				       .dirty_watermark = 2,
				       .cache = 1 };
	u64 pages[3] = { at(9 * 4096), at(5 * 4096), at(30 * 4096) };
	struct ib_fmr_pool *pool = rig_ok(ib_create_fmr_pool(rig.pd, &p));
	struct ib_pool_fmr *f = rig_ok(ib_fmr_pool_map_phys(pool, pages, 3, 0x40000));

	side_open(IB_QPT_RC, NULL);
	side_connect();
	tell_number(f->fmr->rkey);
	assert_int_equal(hear_number(), 7);
	for (u32 i = 0; i < 3; i++)
		check((u8 *)(uintptr_t)pages[i], 4096, i * 4096, 5);
	assert_int_equal(ib_fmr_pool_unmap(f), 0);
	assert_int_equal(ib_flush_fmr_pool(pool), 0);
	tell_number(8);
	child_after_refusal();
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
	side_close();
}

static void fmr_pool__reached_until_the_flush(void **state)
{
	u64 rkey;

	side_open(IB_QPT_RC, NULL);
	side_connect();
	rkey = hear_number();
	fill(0, 3 * 4096, 5);
	write_ok(0, 0x40000, rkey, 3 * 4096);
	read_ok(16384, 0x40000, rkey, 3 * 4096);
	check(rig.buf + 16384, 3 * 4096, 0, 5);
	tell_number(7);
	assert_int_equal(hear_number(), 8);
	write_refused(0, 0x40000, rkey, 8);
	side_close();
}

static void child_bind(struct ib_mw *mw, u64 addr, u32 length)
{
	struct ib_mw_bind bind = { .mr = rig.mr,
				   .addr = addr,
				   .length = length,
				   .send_flags = IB_SEND_SIGNALED,
				   .mw_access_flags = IB_ACCESS_REMOTE_WRITE };

	assert_int_equal(ib_bind_mw(mine.qp, mw, &bind), 0);
	assert_int_equal(rig_expect(mine.scq, IB_WC_SUCCESS).opcode, IB_WC_BIND_MW);
	tell_number(mw->rkey);
}

static void child_window(void)
{
	struct ib_mw *mw = rig_ok(ib_alloc_mw(rig.pd));

	side_open(IB_QPT_RC, NULL);
	side_connect();
	tell_number(at(8192));
	child_bind(mw, at(8192), 100);
	child_after_refusal();
	child_bind(mw, at(12288), 100);
	child_after_refusal();
	check(rig.buf + 8192, 100, 0, 2);
	check(rig.buf + 12288, 100, 0, 2);
	child_bind(mw, 0, 0);
	child_after_refusal();
	assert_int_equal(ib_dealloc_mw(mw), 0);
	side_close();
}

static void window__bounds_rebind_unbind(void **state)
{
	u64 va, first, second;

	side_open(IB_QPT_RC, NULL);
	side_connect();
	va = hear_number();
	first = hear_number();
	fill(0, 100, 2);
	write_ok(0, va, first, 100);
	write_refused(0, va + 93, first, 8);
	second = hear_number();
	write_ok(0, va + 4096, second, 100);
	write_refused(0, va, first, 8);
	write_refused(0, va + 4096, hear_number(), 8);
	side_close();
}

/* ---- atomics from both sides ----------------------------------------------------------------- */

enum { ADDS = 300 };

static void add_often(u64 va, u64 rkey)
{
	struct ib_sge sge = rig_sge(64, 8);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IB_SEND_SIGNALED };

	wr.wr.atomic.remote_addr = va;
	wr.wr.atomic.rkey = (u32)rkey;
	wr.wr.atomic.compare_add = 3;
	for (int i = 0; i < ADDS; i++) {
		rig_send(mine.qp, &wr);
		assert_int_equal(rig_expect(mine.scq, IB_WC_SUCCESS).opcode, IB_WC_FETCH_ADD);
	}
}

static struct link own; /* the child's way to its own memory */

static void child_atomics(void)
{
	side_open(IB_QPT_RC, NULL);
	side_connect();
	link_open(&own, IB_QPT_RC, NULL);
	tell_number(at(0));
	tell_number(rig.mr->rkey);
	struct side other = mine;

	mine = (struct side){ .scq = own.scq, .rcq = own.rcq, .qp = own.a };
	add_often(at(0), rig.mr->rkey);
	mine = other;
	assert_int_equal(hear_number(), 9);
	assert_int_equal(*(u64 *)rig.buf, 2 * ADDS * 3);
	link_close(&own);
	side_close();
}

static void atomics__from_two_processes_add_up(void **state)
{
	u64 va;

	side_open(IB_QPT_RC, NULL);
	side_connect();
	va = hear_number();
	add_often(va, hear_number());
	tell_number(9);
	side_close();
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void child_destroy(void)
{
	for (int round = 0; round < 3; round++) {
		side_open(IB_QPT_RC, NULL);
		side_connect();
		for (u64 i = 0; i < 100; i++)
			rig_recv(mine.qp, i, 4096, 64);
		tell_number(10);
		rig_drain(mine.rcq, 5 + round);
		assert_int_equal(ib_destroy_qp(mine.qp), 0);
		mine.qp = NULL;
		assert_int_equal(ib_peek_cq(mine.rcq, 100), 0);
		side_close();
		assert_int_equal(hear_number(), 11);
	}
}

static void destroy_qp__inside_the_peers_traffic(void **state)
{
	for (int round = 0; round < 3; round++) {
		bool failed = false;

		side_open(IB_QPT_RC, NULL);
		side_connect();
		assert_int_equal(hear_number(), 10);
		for (u64 i = 0; i < 120; i++)
			rig_send_bytes(mine.qp, i, 0, 64, 0);
		for (u64 i = 0; i < 120; i++) {
			struct ib_wc wc;

			assert_int_equal(rig_poll(mine.scq, 1, &wc, RIG_WAIT_MS), 1);
			assert_int_equal(wc.wr_id, i);
			if (!failed && wc.status != IB_WC_SUCCESS)
				assert_int_equal(wc.status, IB_WC_RETRY_EXC_ERR);
			else if (failed)
				assert_int_equal(wc.status, IB_WC_WR_FLUSH_ERR);
			failed |= wc.status != IB_WC_SUCCESS;
		}
		assert_true(failed);
		assert_int_equal(rig_state(mine.qp), IB_QPS_ERR);
		side_close();
		tell_number(11);
	}
}

static int access_errors;

static void access_error(struct ib_event *event, void *context)
{
	if (event->event == IB_EVENT_QP_ACCESS_ERR && event->element.qp == mine.qp &&
	    context == &mine)
		count_add(&access_errors);
}

static void child_event(void)
{
	struct ib_qp_init_attr init;

	access_errors = 0;
	side_open(IB_QPT_RC, NULL);
	assert_int_equal(ib_destroy_qp(mine.qp), 0);
	init = rig_qp_init(IB_QPT_RC, mine.scq, mine.rcq, NULL);
	init.event_handler = access_error;
	init.qp_context = &mine;
	mine.qp = rig_ok(ib_create_qp(rig.pd, &init));
	side_connect();
	tell_number(at(0));
	assert_true(rig_await(&access_errors, 1));
	rig_await_state(mine.qp, IB_QPS_ERR);
	assert_int_equal(access_errors, 1);
	tell_number(12);
	child_after_refusal();
	side_close();
}

static void event__tells_the_target_of_a_refusal(void **state)
{
	u64 va;

	side_open(IB_QPT_RC, NULL);
	side_connect();
	va = hear_number();
	assert_int_equal(reach(IB_WR_RDMA_WRITE, 0, va, 0x7fff, 8), IB_WC_REM_ACCESS_ERR);
	assert_int_equal(hear_number(), 12);
	assert_int_equal(rig_try_state(mine.qp, IB_QPS_RESET), 0);
	tell_number(2);
	side_connect();
	side_close();
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static union ib_gid group;

static void datagram(struct ib_ah *ah, u32 qpn)
{
	rig_datagram(mine.qp, ah, qpn, 0, 32);
	rig_drain(mine.scq, 1);
}

/* Answers each datagram by what its completion and header say. */
static void child_datagrams(void)
{
	side_open(IB_QPT_UD, NULL);
	side_connect();
	assert_int_equal(ib_attach_mcast(mine.qp, &group, 0), 0);
	for (u64 i = 0; i < 2; i++)
		rig_recv(mine.qp, i, 4096 + i * 4096, 1024);
	tell_number(13);
	struct ib_wc wc = rig_expect(mine.rcq, IB_WC_SUCCESS);

	assert_int_equal(wc.wc_flags, IB_WC_GRH);
	assert_int_equal(wc.src_qp, peer_qpn);
	struct ib_grh *grh = (struct ib_grh *)(rig.buf + 4096 + wc.wr_id * 4096);
	struct ib_ah *ah = rig_ok(ib_create_ah_from_wc(rig.pd, &wc, grh, 1));

	memcpy(rig.buf, (u8 *)grh + 40, 32);
	datagram(ah, wc.src_qp);
	wc = rig_expect(mine.rcq, IB_WC_SUCCESS); /* from the group */
	check(rig.buf + 4096 + wc.wr_id * 4096 + 40, 32, 0, 3);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_detach_mcast(mine.qp, &group, 0), 0);
	tell_number(14);
	side_close();
}

static void datagrams__answered_by_the_completion_and_to_a_group(void **state)
{
	struct ib_ah_attr way = rig_way(&rig.gid);
	struct ib_ah *ah = rig_ok(ib_create_ah(rig.pd, &way));

	way.grh.dgid = group;
	struct ib_ah *all = rig_ok(ib_create_ah(rig.pd, &way));

	side_open(IB_QPT_UD, NULL);
	side_connect();
	assert_int_equal(hear_number(), 13);
	rig_recv(mine.qp, 1, 16384, 1024);
	fill(0, 32, 9);
	datagram(ah, peer_qpn);
	assert_int_equal(rig_expect(mine.rcq, IB_WC_SUCCESS).src_qp, peer_qpn);
	check(rig.buf + 16384 + 40, 32, 0, 9);
	fill(0, 32, 3);
	datagram(all, IB_MULTICAST_QPN);
	assert_int_equal(hear_number(), 14);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_destroy_ah(all), 0);
	side_close();
}

static void child_late(void)
{
	side_open(IB_QPT_UD, NULL);
	side_connect();
	rig_recv(mine.qp, 1, 4096, 1024);
	tell_number(17);
	rig_expect(mine.rcq, IB_WC_SUCCESS);
	check(rig.buf + 4096 + 40, 32, 0, 5);
	tell_number(18);
	side_close();
}

/* The first datagram to a process, which needs a link. */
static void datagrams__before_the_queue_pair_is_destroyed(void **state)
{
	struct ib_ah_attr way = rig_way(&rig.gid);
	struct ib_ah *ah = rig_ok(ib_create_ah(rig.pd, &way));

	side_open(IB_QPT_UD, NULL);
	side_connect();
	assert_int_equal(hear_number(), 17);
	fill(0, 32, 5);
	rig_datagram(mine.qp, ah, peer_qpn, 0, 32);
	side_close();
	assert_int_equal(hear_number(), 18);
	assert_int_equal(ib_destroy_ah(ah), 0);
}

/* ---- a crowd of them ------------------------------------------------------------------------- */

enum { CROWD = 700, CROWD_BYTES = 2000, CROWD_SENDS = 4 };

static struct ib_qp *crowd[CROWD];

static void crowd_open(struct ib_srq *srq)
{
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_UD, mine.scq, mine.rcq, srq);

	init.cap.max_send_wr = 1;
	for (int i = 0; i < CROWD; i++) {
		crowd[i] = rig_ok(ib_create_qp(rig.pd, &init));
		rig_connect(crowd[i], &rig.gid, 0);
		assert_int_equal(ib_attach_mcast(crowd[i], &group, 0), 0);
	}
}

static void crowd_close(void)
{
	for (int i = 0; i < CROWD; i++) {
		assert_int_equal(ib_destroy_qp(crowd[i]), -EBUSY);
		assert_int_equal(ib_detach_mcast(crowd[i], &group, 0), 0);
		assert_int_equal(ib_destroy_qp(crowd[i]), 0);
	}
}

/* All that its members get, in buffers that are one. */
static void child_crowd(void)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = CROWD * CROWD_SENDS, .max_sge = 1 } };
	struct ib_sge sge = rig_sge(4096, 4096);
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ib_srq *srq = rig_ok(ib_create_srq(rig.pd, &init));
	struct ib_wc wc;

	side_open(IB_QPT_UD, rig_cq(CROWD * CROWD_SENDS + 1));
	for (int i = 0; i < CROWD * CROWD_SENDS; i++)
		assert_int_equal(ib_post_srq_recv(srq, &wr, &bad), 0);
	crowd_open(srq);
	tell_number(15);
	for (int i = 0; i < CROWD * CROWD_SENDS; i++) {
		wc = rig_expect(mine.rcq, IB_WC_SUCCESS);
		assert_int_equal(wc.byte_len, CROWD_BYTES + 40);
		wc.qp->qp_context = (u8 *)wc.qp->qp_context + 1;
	}
	for (int i = 0; i < CROWD; i++)
		assert_int_equal((uintptr_t)crowd[i]->qp_context, CROWD_SENDS);
	crowd_close();
	assert_int_equal(ib_destroy_srq(srq), 0);
	tell_number(16);
	side_close();
}

static void datagrams__to_a_crowd_of_another_process(void **state)
{
	struct ib_ah_attr way = rig_way(&group);
	struct ib_ah *all = rig_ok(ib_create_ah(rig.pd, &way));

	side_open(IB_QPT_UD, NULL);
	rig_connect(mine.qp, &rig.gid, 0);
	assert_int_equal(hear_number(), 15);
	for (int i = 0; i < CROWD_SENDS; i++)
		rig_datagram(mine.qp, all, IB_MULTICAST_QPN, 0, CROWD_BYTES);
	rig_drain(mine.scq, CROWD_SENDS);
	assert_int_equal(hear_number(), 16);
	assert_int_equal(ib_destroy_ah(all), 0);
	side_close();
}

/* ---- both processes -------------------------------------------------------------------------- */

/* The child's half of each test. */
enum story { ECHO, REGIONS, POOL, WINDOW, ATOMICS, DESTROY, EVENT, DATAGRAMS, LATE, CROWDED };

static void (*const stories[])(void) = {
	[ECHO] = child_echo,	   [REGIONS] = child_regions, [POOL] = child_pool,
	[WINDOW] = child_window,   [ATOMICS] = child_atomics, [DESTROY] = child_destroy,
	[EVENT] = child_event,	   [DATAGRAMS] = child_datagrams,
	[LATE] = child_late,	   [CROWDED] = child_crowd,
};

#define told_with(test, story)                                                                     \
	cmocka_unit_test_prestate_setup_teardown(test, setup, NULL, (void *)(uintptr_t)(story))

static int setup(void **state)
{
	rig_setup(state);
	tell_number((uintptr_t)*state);
	return 0;
}

/* A failing assertion outside a test ends the process, and so the parent's next hear. */
static void child_main(void)
{
	u64 number;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (rig_group_setup(NULL))
		_exit(3);
	while (recv(channel, &number, sizeof(number), MSG_WAITALL) == sizeof(number)) {
		rig_setup(NULL);
		stories[number]();
	}
	_exit(rig_group_teardown(NULL) ? 4 : 0);
}

/* The other process of the test's conversation. */
static void fork_peer(void)
{
	int ends[2];

	group = rig_group(77); /* for both sides */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		exit(1);
	if (fork() == 0) {
		close(ends[0]);
		channel = ends[1];
		child_main();
	}
	close(ends[1]);
	channel = ends[0];
	signal(SIGPIPE, SIG_IGN);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		told_with(handlers__carry_a_conversation, ECHO),
		told_with(regions__scattered_and_whole, REGIONS),
		told_with(fmr_pool__reached_until_the_flush, POOL),
		told_with(window__bounds_rebind_unbind, WINDOW),
		told_with(atomics__from_two_processes_add_up, ATOMICS),
		told_with(destroy_qp__inside_the_peers_traffic, DESTROY),
		told_with(event__tells_the_target_of_a_refusal, EVENT),
		told_with(datagrams__answered_by_the_completion_and_to_a_group, DATAGRAMS),
		told_with(datagrams__before_the_queue_pair_is_destroyed, LATE),
		told_with(datagrams__to_a_crowd_of_another_process, CROWDED),
	};

	return rig_run(tests, sizeof(tests) / sizeof(tests[0]), fork_peer);
}
