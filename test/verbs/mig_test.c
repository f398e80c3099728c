/* mig_test.c: path migration between two addresses of a host, one of which no packet reaches any
 * more: the queue pairs of a connection move to the other one, and say so. IBA vol 1, 17.2.8.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "own_net.h"
#include "pair.h"

enum { MIG_SKIPPED = 77, MIG_BYTES = 3000, MIG_WAIT_MS = 10000, MIG_TIMEOUT = 12 };

struct mig_end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t memory[2][MIG_BYTES]; /* to send, to receive */
	struct ibv_mr *mr;
};

static struct mig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct mig_end end[2];
	int gid_index[2];
	union ibv_gid gid[2];
	uint8_t message;
} m;

/* ---- the host: a network namespace with two addresses ---- */

/* The table of local routes comes behind the rules by which an address is cut off. */
static bool mig_host(void)
{
	return own_net_enter() &&
	       system("ip link set lo up && ip link add va type veth peer name vb &&"
		      " ip link set va up && ip link set vb up &&"
		      " ip addr add 10.98.0.1/24 dev va && ip addr add 10.98.0.2/24 dev va &&"
		      " ip rule add pref 100 lookup local && ip rule del pref 0") == 0;
}

static void mig_cut(int address, bool cut)
{
	char command[128];

	snprintf(command, sizeof(command), "ip rule %s pref 50 to 10.98.0.%d blackhole",
		 cut ? "add" : "del", address + 1);
	assert_int_equal(system(command), 0);
}

/* ---- the connection ---- */

static int mig_find_gid(int address)
{
	uint8_t last = (uint8_t)(address + 1);
	const uint8_t want[4] = { 10, 98, 0, last };
	union ibv_gid gid;

	for (int i = 0; ibv_query_gid(m.ctx, 1, i, &gid) == 0 && i < 64; i++)
		if (gid.raw[10] == 0xff && memcmp(gid.raw + 12, want, 4) == 0) {
			m.gid[address] = gid;
			return i;
		}
	return -1;
}

static struct ibv_ah_attr mig_ah(int address)
{
	return (struct ibv_ah_attr){ .is_global = 1,
				     .port_num = 1,
				     .grh = { .dgid = m.gid[address],
					      .sgid_index = (uint8_t)m.gid_index[address],
					      .hop_limit = 64 } };
}

static void mig_create(struct mig_end *e)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { 16, 16, 1, 1, 0 } };

	e->cq = ibv_create_cq(m.ctx, 64, NULL, NULL, 0);
	e->mr = ibv_reg_mr(m.pd, e->memory, sizeof(e->memory), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(m.pd, &init);
	assert_non_null(e->qp);
}

static void mig_connect(struct mig_end *e, const struct mig_end *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	assert_int_equal(ibv_modify_qp(e->qp, &a,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = peer->qp->qp_num,
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 12,
				  .ah_attr = mig_ah(0) };
	assert_int_equal(ibv_modify_qp(e->qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = MIG_TIMEOUT,
				  .retry_cnt = 1,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	assert_int_equal(ibv_modify_qp(e->qp, &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static struct ibv_qp_attr mig_query(struct mig_end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(ibv_query_qp(e->qp, &a,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_ALT_PATH |
					      IBV_QP_PATH_MIG_STATE | IBV_QP_TIMEOUT,
				      &init),
			 0);
	return a;
}

static void mig_load(struct mig_end *e, int address)
{
	struct ibv_qp_attr a = { .alt_ah_attr = mig_ah(address),
				 .alt_port_num = 1,
				 .alt_timeout = MIG_TIMEOUT + 1,
				 .path_mig_state = IBV_MIG_REARM };

	assert_int_equal(ibv_modify_qp(e->qp, &a, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), 0);
	a = mig_query(e);
	assert_int_equal(a.alt_port_num, 1);
	assert_int_equal(a.alt_ah_attr.grh.sgid_index, m.gid_index[address]);
}

static struct ibv_wc mig_wc(struct mig_end *e)
{
	struct ibv_wc wc = { .status = IBV_WC_FATAL_ERR };
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		if (ibv_poll_cq(e->cq, 1, &wc) == 1)
			return wc;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 < MIG_WAIT_MS);
	fail_msg("no completion");
	return wc;
}

/* One message, which arrives. */
static void mig_send(struct mig_end *from, struct mig_end *to)
{
	struct ibv_sge out = { (uintptr_t)from->memory[0], MIG_BYTES, from->mr->lkey };
	struct ibv_sge in = { (uintptr_t)to->memory[1], MIG_BYTES, to->mr->lkey };
	struct ibv_recv_wr rwr = { .sg_list = &in, .num_sge = 1 }, *rbad;
	struct ibv_send_wr wr = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	memset(from->memory[0], ++m.message, MIG_BYTES);
	assert_int_equal(ibv_post_recv(to->qp, &rwr, &rbad), 0);
	assert_int_equal(ibv_post_send(from->qp, &wr, &bad), 0);
	assert_int_equal(mig_wc(to).status, IBV_WC_SUCCESS);
	assert_int_equal(mig_wc(from).status, IBV_WC_SUCCESS);
	assert_memory_equal(from->memory[0], to->memory[1], MIG_BYTES);
}

static void mig_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list[0]);
	m.ctx = ibv_open_device(list[0]);
	assert_non_null(m.ctx);
	ibv_free_device_list(list);
	for (int i = 0; i < 2; i++) {
		m.gid_index[i] = mig_find_gid(i);
		assert_true(m.gid_index[i] >= 0);
	}
	m.pd = ibv_alloc_pd(m.ctx);
	mig_create(&m.end[0]);
	mig_create(&m.end[1]);
	mig_connect(&m.end[0], &m.end[1]);
	mig_connect(&m.end[1], &m.end[0]);
}

static void mig_close(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(m.end[i].qp), 0);
		assert_int_equal(ibv_destroy_cq(m.end[i].cq), 0);
		assert_int_equal(ibv_dereg_mr(m.end[i].mr), 0);
	}
	assert_int_equal(ibv_dealloc_pd(m.pd), 0);
	assert_int_equal(ibv_close_device(m.ctx), 0);
}

static void mig_arm(int address)
{
	for (int i = 0; i < 2; i++)
		mig_load(&m.end[i], address);
	mig_send(&m.end[0], &m.end[1]);
	mig_send(&m.end[1], &m.end[0]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(mig_query(&m.end[i]).path_mig_state, IBV_MIG_ARMED);
}

/* The next event is the queue pair's. */
static void mig_expect_event(const struct mig_end *e)
{
	struct pollfd p = { .fd = m.ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	assert_int_equal(poll(&p, 1, MIG_WAIT_MS), 1);
	assert_int_equal(ibv_get_async_event(m.ctx, &event), 0);
	if (event.event_type == IBV_EVENT_COMM_EST || event.event_type == IBV_EVENT_GID_CHANGE) {
		ibv_ack_async_event(&event);
		mig_expect_event(e);
		return;
	}
	assert_int_equal(event.event_type, IBV_EVENT_PATH_MIG);
	if (e != NULL)
		assert_ptr_equal(event.element.qp, e->qp);
	ibv_ack_async_event(&event);
}

static void mig_expect_moved(struct mig_end *e, int address)
{
	struct ibv_qp_attr a = mig_query(e);

	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.path_mig_state, IBV_MIG_MIGRATED);
	assert_int_equal(a.ah_attr.grh.sgid_index, m.gid_index[address]);
	assert_memory_equal(a.ah_attr.grh.dgid.raw, m.gid[address].raw, 16);
	assert_int_equal(a.timeout, MIG_TIMEOUT + 1);
}

/* ---- what is seen ---- */

static void mig__moves_when_an_address_is_cut_off(void **state)
{
	mig_open();
	mig_arm(1);
	mig_cut(0, true);
	mig_send(&m.end[0], &m.end[1]);
	mig_expect_event(NULL);
	mig_expect_event(NULL);
	for (int i = 0; i < 2; i++)
		mig_expect_moved(&m.end[i], 1);
	mig_send(&m.end[1], &m.end[0]);
	mig_cut(0, false);
	mig_close();
}

static void mig__moves_at_the_programs_wish(void **state)
{
	struct ibv_qp_attr a = { .path_mig_state = IBV_MIG_MIGRATED };

	mig_open();
	mig_arm(1);
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_PATH_MIG_STATE), 0);
	mig_expect_moved(&m.end[0], 1);
	mig_cut(0, true);
	mig_send(&m.end[0], &m.end[1]);
	mig_expect_event(&m.end[1]);
	mig_expect_moved(&m.end[1], 1);
	mig_cut(0, false);
	mig_close();
}

static void mig__bad_wishes_are_refused(void **state)
{
	struct ibv_qp_attr a = { .path_mig_state = IBV_MIG_ARMED };
	struct ibv_device_attr device;

	mig_open();
	assert_int_equal(ibv_query_device(m.ctx, &device), 0);
	assert_true(device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_PATH_MIG_STATE), EINVAL);
	a.path_mig_state = (enum ibv_mig_state)3;
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_PATH_MIG_STATE), EINVAL);
	a = (struct ibv_qp_attr){ .alt_ah_attr = mig_ah(1), .alt_port_num = 2 };
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_ALT_PATH), EINVAL);
	a.alt_port_num = 1;
	a.alt_timeout = 32;
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_ALT_PATH), EINVAL);
	a.alt_timeout = 31;
	a.alt_pkey_index = 1;
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_ALT_PATH), EINVAL);
	a.alt_pkey_index = 0;
	a.alt_ah_attr.is_global = 0;
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_ALT_PATH), EINVAL);
	a.alt_ah_attr = mig_ah(1);
	assert_int_equal(ibv_modify_qp(m.end[0].qp, &a, IBV_QP_ALT_PATH), 0);
	mig_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mig__moves_when_an_address_is_cut_off),
		cmocka_unit_test(mig__moves_at_the_programs_wish),
		cmocka_unit_test(mig__bad_wishes_are_refused),
	};

	if (!mig_host()) {
		fprintf(stderr, "skipped: this user may not make interfaces\n");
		return MIG_SKIPPED;
	}
	pair_supervise();
	unsetenv("ANYVERBS_ADDR"); /* the host's own */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
