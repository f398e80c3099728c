/* uverbs_test.c: a driver that knows nothing of libibverbs, reached through the doors'
 * operations; and one that knows only them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/convert.h"
#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static struct fake_device *fake;
static struct ib_pd *pd;

static int setup(void **state)
{
	fake = fake_create("fake%d");
	if (ib_register_device(&fake->ib))
		return -1;
	pd = ib_alloc_pd(&fake->ib);
	return IS_ERR(pd);
}

static int teardown(void **state)
{
	assert_int_equal(ib_dealloc_pd(pd), 0);
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static struct ib_qp *core_qp_make(struct ib_cq *cq, enum ib_qp_type type)
{
	struct ib_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type };
	struct ib_qp *qp = ib_create_qp(pd, &init);

	assert_false(IS_ERR(qp));
	return qp;
}

static struct ib_cq *cq_make(struct channel *ch, void *cookie)
{
	const struct ib_uverbs_cq_attr attr = {
		.cq = { .size = sizeof(attr.cq), .cqe = 16 }, .channel = ch, .cookie = cookie
	};
	struct ib_cq *cq = ib_uverbs_create_cq(&fake->ib, &attr);

	assert_false(IS_ERR(cq));
	return cq;
}

static void post_send__reaches_a_third_party(void **state)
{
	const struct ib_uverbs_ops *ops = fake->ib.uverbs;
	struct ib_cq *cq = cq_make(NULL, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	struct ibv_sge sge = { .addr = 0x1000, .length = 8, .lkey = 5 };
	struct ibv_send_wr bad_one = { .num_sge = 2, .opcode = IBV_WR_SEND };
	struct ibv_send_wr second = { .wr_id = 2,
				      .next = &bad_one,
				      .opcode = IBV_WR_SEND_WITH_INV };
	struct ibv_send_wr first = { .wr_id = 1, .next = &second, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc[40];

	first.opcode = IBV_WR_RDMA_WRITE;
	first.send_flags = IBV_SEND_SIGNALED;
	first.wr.rdma.remote_addr = 77;
	first.wr.rdma.rkey = 78;
	second.invalidate_rkey = 0x1234;
	assert_int_equal(ops->post_send(qp, &first, &bad), -EINVAL);
	assert_ptr_equal(bad, &bad_one);
	assert_int_equal(fake->last_sge.lkey, 5);
	assert_int_equal(fake->last_send.invalidate_rkey, 0x1234);
	assert_int_equal(ops->poll_cq(cq, 40, wc), 2);
	assert_int_equal(wc[0].wr_id, 1);
	assert_int_equal(wc[0].qp_num, qp->qp_num);
	assert_int_equal(wc[1].wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(wc[1].invalidated_rkey, 0x1234);
	assert_int_equal(ops->poll_cq(cq, 40, wc), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* More than one batch of the conversion. */
static void poll_cq__many(void **state)
{
	struct ib_cq *cq = cq_make(NULL, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	struct ibv_wc wc[FAKE_WCS];

	for (u64 i = 0; i < FAKE_WCS; i++)
		fake_complete(cq, &(struct ib_wc){ .wr_id = i, .qp = qp });
	assert_int_equal(fake->ib.uverbs->poll_cq(cq, 20, wc), 20);
	assert_int_equal(fake->ib.uverbs->poll_cq(cq, FAKE_WCS, wc + 20), FAKE_WCS - 20);
	for (u64 i = 0; i < FAKE_WCS; i++)
		assert_int_equal(wc[i].wr_id, i);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void post_send__datagram_names_its_ah(void **state)
{
	struct ib_cq *cq = cq_make(NULL, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_UD);
	struct ib_ah_attr attr = { .port_num = 1 };
	struct ib_uverbs_ah ah = { .ah = ib_create_ah(pd, &attr) };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	wr.wr.ud.ah = &ah.ibv;
	wr.wr.ud.remote_qpn = 9;
	wr.wr.ud.remote_qkey = 10;
	assert_int_equal(fake->ib.uverbs->post_send(qp, &wr, &bad), 0);
	assert_ptr_equal(fake->last_send.wr.ud.ah, ah.ah);
	assert_int_equal(fake->last_send.wr.ud.remote_qpn, 9);
	assert_int_equal(fake->last_send.wr.ud.remote_qkey, 10);
	wr.wr.ud.ah = NULL;
	assert_int_equal(fake->ib.uverbs->post_send(qp, &wr, &bad), -EINVAL);
	assert_int_equal(ib_destroy_ah(ah.ah), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void post_recv__reaches_a_third_party(void **state)
{
	struct ib_srq_init_attr init = { 0 };
	struct ib_cq *cq = cq_make(NULL, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	struct ib_srq *srq = ib_create_srq(pd, &init);
	struct ibv_recv_wr second = { .wr_id = 4 }, first = { .wr_id = 3, .next = &second }, *bad;

	assert_int_equal(fake->ib.uverbs->post_recv(qp, &first, &bad), 0);
	assert_int_equal(fake->last_recv.wr_id, 4);
	assert_null(fake->last_recv.next);
	first.wr_id = 5;
	first.next = NULL;
	assert_int_equal(fake->ib.uverbs->post_srq_recv(srq, &first, &bad), 0);
	assert_int_equal(fake->last_recv.wr_id, 5);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void create_cq__events_go_to_the_channel(void **state)
{
	int err = 0, cookie;
	void *got = NULL;
	struct channel *ch = channel_create(&err);
	struct ib_cq *cq = cq_make(ch, &cookie);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	struct pollfd ready = { .fd = channel_fd(ch), .events = POLLIN };

	fake_complete(cq, &(struct ib_wc){ .qp = qp });
	assert_int_equal(channel_next(ch, &got), -EAGAIN);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
	fake_complete(cq, &(struct ib_wc){ .qp = qp });
	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(channel_next(ch, &got), 0);
	assert_ptr_equal(got, &cookie);
	assert_int_equal(channel_next(ch, &got), -EAGAIN);
	fake->ib.uverbs->ack_cq_events(cq, 1);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(channel_destroy(ch), -EBUSY);
	assert_int_equal(ib_destroy_cq(cq),
			 0); /* would wait for ever for a missing acknowledgement */
	assert_int_equal(channel_destroy(ch), 0);
}

/* One event taken by the consumer, one that waits. */
static void events_raise(struct ib_cq *cq, struct ib_qp *qp, struct channel *ch)
{
	struct pollfd ready = { .fd = channel_fd(ch), .events = POLLIN };
	void *cookie;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
		fake_complete(cq, &(struct ib_wc){ .qp = qp });
		assert_int_equal(poll(&ready, 1, 5000), 1);
		if (i == 0)
			assert_int_equal(channel_next(ch, &cookie), 0);
	}
}

static int cq_destroys;

static void cq_destroy_seen(struct ib_cq *cq)
{
	fake_bump(&cq_destroys);
}

static void *cq_destroyer(void *cq)
{
	return (void *)(intptr_t)ib_destroy_cq(cq);
}

/* The acknowledgement names the CQ, so the driver may not free it before. */
static void destroy_cq__waits_for_acknowledgements_first(void **state)
{
	int err = 0;
	struct channel *ch = channel_create(&err);
	struct ib_cq *cq = cq_make(ch, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	pthread_t destroyer;
	void *result, *cookie;

	cq_destroys = 0;
	events_raise(cq, qp, ch);
	assert_int_equal(ib_destroy_qp(qp), 0);
	fake->on_destroy_cq = cq_destroy_seen;
	assert_int_equal(pthread_create(&destroyer, NULL, cq_destroyer, cq), 0);
	usleep(20000); /* enough for a destroyer that does not wait to be seen */
	assert_int_equal(fake_count(&cq_destroys), 0);
	fake->ib.uverbs->ack_cq_events(cq, 1);
	pthread_join(destroyer, &result);
	assert_null(result);
	assert_int_equal(cq_destroys, 1);
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	assert_int_equal(channel_destroy(ch), 0);
}

static void cq_refuse(struct ib_cq *cq)
{
	fake->fail = -EIO;
}

/* What the destruction withdrew comes after all. */
static void destroy_cq__refused_by_the_driver_loses_no_event(void **state)
{
	int err = 0, taken = 0;
	struct channel *ch = channel_create(&err);
	struct ib_cq *cq = cq_make(ch, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	void *cookie;

	events_raise(cq, qp, ch);
	fake->ib.uverbs->ack_cq_events(cq, 1);
	assert_int_equal(ib_destroy_qp(qp), 0);
	fake->on_destroy_cq = cq_refuse;
	assert_int_equal(ib_destroy_cq(cq), -EIO);
	fake->on_destroy_cq = NULL;
	fake->fail = 0;
	while (channel_next(ch, &cookie) == 0)
		taken++;
	assert_int_equal(taken, 1);
	fake->ib.uverbs->ack_cq_events(cq, 1);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(channel_destroy(ch), 0);
}

static int cq_error(struct channel *ch, int cqe, int vector)
{
	const struct ib_uverbs_cq_attr attr = {
		.cq = { .size = sizeof(attr.cq), .cqe = cqe, .comp_vector = vector },
		.channel = ch,
	};

	return (int)PTR_ERR(ib_uverbs_create_cq(&fake->ib, &attr));
}

static void create_cq__failure_leaves_the_channel(void **state)
{
	int err = 0;
	struct channel *ch = channel_create(&err);

	fake->fail = -ENOMEM;
	assert_int_equal(cq_error(ch, 1, 0), -ENOMEM);
	fake->fail = 0;
	assert_int_equal(cq_error(ch, 0, 0), -EINVAL);
	assert_int_equal(cq_error(ch, 1, 2), -EINVAL);
	assert_int_equal(cq_error(ch, 1, -1), -EINVAL);
	assert_int_equal(channel_destroy(ch), 0);
}

static void reg_user_mr__checks_the_memory(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	u64 start = (u64)(uintptr_t)memory + 100;
	int write = IB_ACCESS_LOCAL_WRITE;

	munmap(memory + 2 * page, page);
	struct ib_mr *mr = ib_uverbs_reg_user_mr(pd, start, page, start, write);

	assert_false(IS_ERR(mr));
	assert_int_equal(fake->last_buffer.addr, start);
	assert_int_equal(fake->last_buffer.size, page);
	assert_int_equal(ib_dealloc_pd(pd), -EBUSY);
	assert_int_equal(ib_dereg_mr(mr), 0);
	assert_int_equal(PTR_ERR(ib_uverbs_reg_user_mr(pd, start, 2 * page, start, write)),
			 -EFAULT);
	mprotect(memory, page, PROT_READ);
	assert_int_equal(PTR_ERR(ib_uverbs_reg_user_mr(pd, start, 8, start, write)), -EFAULT);
	mr = ib_uverbs_reg_user_mr(pd, start, 8, start, 0);
	assert_false(IS_ERR(mr));
	assert_int_equal(ib_dereg_mr(mr), 0);
	assert_int_equal(PTR_ERR(ib_uverbs_reg_user_mr(pd, ~0ull, 2, 0, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_uverbs_reg_user_mr(pd, start, 8, ~0ull, 0)), -EINVAL);
	munmap(memory, 2 * page);
}

static void wait_fd__waits_as_told(void **state)
{
	int pipe_fd[2];

	assert_int_equal(pipe2(pipe_fd, O_NONBLOCK), 0);
	assert_int_equal(fake->ib.uverbs->wait_fd(&fake->ib, pipe_fd[0]), -EAGAIN);
	assert_int_equal(write(pipe_fd[1], "x", 1), 1);
	assert_int_equal(fake->ib.uverbs->wait_fd(&fake->ib, pipe_fd[0]), 0);
	close(pipe_fd[0]);
	assert_int_equal(fake->ib.uverbs->wait_fd(&fake->ib, pipe_fd[0]), -EBADF);
	close(pipe_fd[1]);
}

static void on_alarm(int signal)
{
}

static void wait_fd__interrupted(void **state)
{
	struct sigaction action = { .sa_handler = on_alarm }, old;
	int pipe_fd[2];

	sigaction(SIGALRM, &action, &old);
	assert_int_equal(pipe(pipe_fd), 0);
	ualarm(20000, 0);
	assert_int_equal(fake->ib.uverbs->wait_fd(&fake->ib, pipe_fd[0]), -EINTR);
	sigaction(SIGALRM, &old, NULL);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

static void query_gid_entry__tells_empty_from_absent(void **state)
{
	struct ibv_gid_entry entry;
	struct ib_uverbs_info info;

	assert_int_equal(ib_uverbs_query_gid_entry(&fake->ib, 1, 1, &entry), 0);
	assert_int_equal(entry.gid.raw[15], 2);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ib_uverbs_query_gid_entry(&fake->ib, 1, FAKE_GIDS - 1, &entry), -ENODATA);
	assert_int_equal(ib_uverbs_query_gid_entry(&fake->ib, 1, FAKE_GIDS, &entry), -EINVAL);
	assert_int_equal(ib_uverbs_query_gid_entry(&fake->ib, 2, 0, &entry), -EINVAL);
	assert_int_equal(ib_uverbs_query_gid_entry(&fake->ib, 257, 0, &entry), -EINVAL);
	assert_int_equal(ib_uverbs_query_gid_entry(&fake->ib, 1, ~0u, &entry), -EINVAL);
	assert_int_equal(ib_uverbs_get_info(&fake->ib, &info), 0);
	assert_string_equal(info.name, "fake0");
}

/* ---- a driver whose data path is in libibverbs' layout only ---------------------------------- */

static struct ibv_send_wr native_send;
static struct ib_ah *native_ah;
static u64 native_recv, native_srq_recv;

static int native_post_send(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	assert_true(event_driver_depth > 0);
	if (wr->num_sge > 4)
		return -ENOMEM;
	native_send = *wr;
	if (qp->qp_type == IB_QPT_UD)
		native_ah = container_of(wr->wr.ud.ah, struct ib_uverbs_ah, ibv)->ah;
	return 0;
}

static int native_post_recv(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	native_recv = wr->wr_id;
	return 0;
}

static int native_post_srq_recv(struct ib_srq *srq, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad)
{
	native_srq_recv = wr->wr_id;
	return wr->num_sge ? -EINVAL : 0;
}

static const struct ib_uverbs_ops native_ops = { .post_send = native_post_send,
						 .post_recv = native_post_recv,
						 .post_srq_recv = native_post_srq_recv };

static int setup_native(void **state)
{
	fake = fake_create("fake%d");
	fake->ib.uverbs = &native_ops;
	fake->ib.post_send = NULL;
	fake->ib.post_recv = NULL;
	fake->ib.post_srq_recv = NULL;
	if (ib_register_device(&fake->ib))
		return -1;
	pd = ib_alloc_pd(&fake->ib);
	return IS_ERR(pd);
}

static void ib_post_send__reaches_a_native_driver(void **state)
{
	struct ib_cq *cq = cq_make(NULL, NULL);
	struct ib_qp *rc = core_qp_make(cq, IB_QPT_RC), *ud = core_qp_make(cq, IB_QPT_UD);
	struct ib_send_wr third = { .num_sge = 5, .opcode = IB_WR_SEND }, *bad = NULL;
	struct ib_send_wr second = { .wr_id = 2,
				     .next = &third,
				     .opcode = IB_WR_ATOMIC_CMP_AND_SWP };
	struct ib_send_wr first = { .wr_id = 1, .next = &second, .opcode = IB_WR_RDMA_READ };
	struct ib_ah_attr attr = { .port_num = 1 };
	struct ib_ah *ah = ib_create_ah(pd, &attr);

	second.wr.atomic.remote_addr = 1;
	second.wr.atomic.compare_add = 2;
	second.wr.atomic.swap = 3;
	second.wr.atomic.rkey = 4;
	assert_int_equal(ib_post_send(rc, &first, &bad), -ENOMEM);
	assert_ptr_equal(bad, &third);
	assert_int_equal(native_send.wr_id, 2);
	assert_int_equal(native_send.wr.atomic.compare_add, 2);
	assert_int_equal(native_send.wr.atomic.swap, 3);
	assert_int_equal(native_send.wr.atomic.rkey, 4);
	first.next = NULL;
	first.opcode = IB_WR_SEND_WITH_IMM;
	first.ex.imm_data = 0xabcd;
	first.wr.ud.ah = ah;
	first.wr.ud.remote_qpn = 6;
	assert_int_equal(ib_post_send(ud, &first, NULL), 0);
	assert_int_equal(native_send.imm_data, 0xabcd);
	assert_int_equal(native_send.wr.ud.remote_qpn, 6);
	assert_ptr_equal(native_ah, ah);
	first.opcode = IB_WR_LSO;
	assert_int_equal(ib_post_send(ud, &first, &bad), -EINVAL);
	first.opcode = (enum ib_wr_opcode)-1;
	assert_int_equal(ib_post_send(ud, &first, &bad), -EINVAL);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_destroy_qp(rc), 0);
	assert_int_equal(ib_destroy_qp(ud), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void ib_post_recv__reaches_a_native_driver(void **state)
{
	struct ib_srq_init_attr init = { 0 };
	struct ib_cq *cq = cq_make(NULL, NULL);
	struct ib_qp *qp = core_qp_make(cq, IB_QPT_RC);
	struct ib_srq *srq = ib_create_srq(pd, &init);
	struct ib_recv_wr wr = { .wr_id = 7 }, *bad = NULL;

	assert_int_equal(ib_post_recv(qp, &wr, &bad), 0);
	assert_int_equal(native_recv, 7);
	wr.num_sge = 1;
	assert_int_equal(ib_post_srq_recv(srq, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(native_srq_recv, 7);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void ib_unregister_device__gives_the_methods_back(void **state)
{
	assert_non_null(fake->ib.post_send);
	assert_non_null(fake->ib.uverbs->get_info);
	assert_int_equal(ib_dealloc_pd(pd), 0);
	ib_unregister_device(&fake->ib);
	assert_null(fake->ib.post_send);
	assert_null(fake->ib.post_recv);
	assert_null(fake->ib.post_srq_recv);
	assert_ptr_equal(fake->ib.uverbs, &native_ops);
	assert_int_equal(ib_register_device(&fake->ib), 0);
	pd = ib_alloc_pd(&fake->ib);
}

/* ---- conversions by themselves --------------------------------------------------------------- */

static void ib_convert_wc__there_and_back(void **state)
{
	struct ib_qp qp = { .qp_num = 0x123456 };
	struct ibv_wc in = { .wr_id = 1,
			     .status = IBV_WC_RNR_RETRY_EXC_ERR,
			     .opcode = IBV_WC_RECV,
			     .vendor_err = 2,
			     .byte_len = 3,
			     .imm_data = 4,
			     .qp_num = 0x123456,
			     .src_qp = 5,
			     .wc_flags = IBV_WC_GRH | IBV_WC_WITH_INV,
			     .pkey_index = 6,
			     .slid = 7,
			     .sl = 8,
			     .dlid_path_bits = 9 };
	struct ib_wc middle;
	struct ibv_wc out;

	ib_convert_wc(&in, &qp, &middle);
	assert_ptr_equal(middle.qp, &qp);
	assert_int_equal(middle.wc_flags, IB_WC_GRH | IB_WC_WITH_INVALIDATE);
	assert_int_equal(middle.ex.invalidate_rkey, 4);
	assert_int_equal(middle.status, IB_WC_RNR_RETRY_EXC_ERR);
	ib_convert_ib_wc(&middle, &out);
	assert_memory_equal(&in, &out, offsetof(struct ibv_wc, dlid_path_bits) + 1);
	in.wc_flags = IBV_WC_IP_CSUM_OK | IBV_WC_WITH_IMM;
	ib_convert_wc(&in, &qp, &middle);
	assert_int_equal(middle.wc_flags, IB_WC_IP_CSUM_OK | IB_WC_WITH_IMM);
	ib_convert_ib_wc(&middle, &out);
	assert_int_equal(out.wc_flags, in.wc_flags);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define NATIVE(test) cmocka_unit_test_setup_teardown(test, setup_native, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(post_send__reaches_a_third_party),
		WITH(poll_cq__many),
		WITH(post_send__datagram_names_its_ah),
		WITH(post_recv__reaches_a_third_party),
		WITH(create_cq__events_go_to_the_channel),
		WITH(destroy_cq__waits_for_acknowledgements_first),
		WITH(destroy_cq__refused_by_the_driver_loses_no_event),
		WITH(create_cq__failure_leaves_the_channel),
		WITH(reg_user_mr__checks_the_memory),
		WITH(wait_fd__waits_as_told),
		WITH(wait_fd__interrupted),
		WITH(query_gid_entry__tells_empty_from_absent),
		NATIVE(ib_post_send__reaches_a_native_driver),
		NATIVE(ib_post_recv__reaches_a_native_driver),
		NATIVE(ib_unregister_device__gives_the_methods_back),
		cmocka_unit_test(ib_convert_wc__there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
