/* rig.c: the adapter as a kernel upper-layer driver gets it, and shorthand for its verbs.
 * In:    tests' calls    Out: ib_* calls    Runs: the test's threads    Locks: none
 */
#include "rig.h"
#include "../late.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct rig rig;

bool rig_on_wire(void)
{
	const char *paths = getenv("ANYVERBS_PATHS");

	return paths && strcmp(paths, "udp") == 0;
}

static void rig_added(struct ib_device *device)
{
	if (!rig.dev)
		rig.dev = device;
}

static struct ib_client rig_client = { .name = "rig", .add = rig_added };

/* The driver under test, if it is not our own. Its objects never leave memory: handlers of it may
 * still be on a stack. */
static bool rig_load_driver(void)
{
	const char *path = getenv("CONTRACT_DRIVER");
	void *module = path ? dlopen(path, RTLD_NOW | RTLD_NODELETE) : NULL;

	if (!path)
		return true;
	if (!module) {
		print_error("%s\n", dlerror());
		return false;
	}
	rig.plug = (struct ib_device * (*)(void)) dlsym(module, "contract_plug");
	rig.unplug = (void (*)(struct ib_device *))dlsym(module, "contract_unplug");
	if (rig.plug && rig.unplug)
		rig.dev = rig.plug();
	return rig.dev;
}

int rig_group_setup(void **state)
{
	if (!rig_load_driver() || ib_register_client(&rig_client) || !rig.dev)
		return -1;
	rig.pd = ib_alloc_pd(rig.dev);
	rig.mr = IS_ERR(rig.pd) ? ERR_PTR(-EINVAL) : ib_get_dma_mr(rig.pd, RIG_ALL);
	rig.buf = aligned_alloc(RIG_PAGE, RIG_BYTES);
	if (IS_ERR(rig.mr) || !rig.buf || ib_query_gid(rig.dev, 1, rig.gid_index, &rig.gid))
		return -1;
	return 0;
}

/* A test that leaves an object behind makes this fail. */
int rig_group_teardown(void **state)
{
	int err = ib_dereg_mr(rig.mr);

	if (!err)
		err = ib_dealloc_pd(rig.pd);
	ib_unregister_client(&rig_client);
	if (rig.unplug)
		rig.unplug(rig.dev);
	free(rig.buf);
	return err;
}

int rig_setup(void **state)
{
	memset(rig.buf, 0, RIG_BYTES);
	return 0;
}

void rig_sleep_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

u64 rig_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

bool rig_await(const int *c, int value)
{
	u64 end = rig_now_ms() + RIG_WAIT_MS;

	while (count_get(c) < value) {
		if (rig_now_ms() > end) {
			late("call", RIG_WAIT_MS);
			return false;
		}
		usleep(100);
	}
	return true;
}

/* ---- the other process ----------------------------------------------------------------------- */

void rig_fork_peer(int *channel, void (*child)(void))
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		exit(1);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		*channel = ends[1];
		child();
	}
	close(ends[1]);
	*channel = ends[0];
	signal(SIGPIPE, SIG_IGN);
}

/* ---- queues ---------------------------------------------------------------------------------- */

struct ib_cq *rig_handler_cq(ib_comp_handler handler, void *context, int cqe, int vector)
{
	return rig_ok(ib_create_cq(rig.dev, handler, NULL, context, cqe, vector));
}

struct ib_cq *rig_cq(int cqe)
{
	return rig_handler_cq(NULL, NULL, cqe, 0);
}

struct ib_qp_init_attr rig_qp_init(enum ib_qp_type type, struct ib_cq *send_cq,
				   struct ib_cq *recv_cq, struct ib_srq *srq)
{
	return (struct ib_qp_init_attr){ .send_cq = send_cq,
					 .recv_cq = recv_cq,
					 .srq = srq,
					 .cap = { .max_send_wr = 128,
						  .max_recv_wr = 128,
						  .max_send_sge = 4,
						  .max_recv_sge = 4,
						  .max_inline_data = 64 },
					 .sq_sig_type = IB_SIGNAL_REQ_WR,
					 .qp_type = type };
}

struct ib_qp *rig_qp(enum ib_qp_type type, struct ib_cq *send_cq, struct ib_cq *recv_cq,
		     struct ib_srq *srq)
{
	struct ib_qp_init_attr init = rig_qp_init(type, send_cq, recv_cq, srq);

	return rig_ok(ib_create_qp(rig.pd, &init));
}

int rig_try_init(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT,
				   .port_num = 1,
				   .qkey = RIG_QKEY,
				   .qp_access_flags = RIG_ALL & ~IB_ACCESS_MW_BIND };
	bool ud = qp->qp_type == IB_QPT_UD;

	return ib_modify_qp(qp, &attr,
			    IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
				    (ud ? IB_QP_QKEY : IB_QP_ACCESS_FLAGS));
}

/* Over a wire the group is an IPv4 one, as the address is; who else of this host has joined the
 * same one would hear it too. */
union ib_gid rig_group(u8 number)
{
	union ib_gid group = { .raw = { 0xff, 0x0e, [15] = number } };
	const char *own = strrchr(rig_on_wire() ? getenv("ANYVERBS_ADDR") : ".", '.');

	if (rig_on_wire())
		group = (union ib_gid){ .raw = { 0xff, 0x0e, [10] = 0xff, 0xff, 239, 77,
					      (u8)atoi(own + 1), number } };
	return group;
}

struct ib_ah_attr rig_way(const union ib_gid *gid)
{
	return (struct ib_ah_attr){ .ah_flags = IB_AH_GRH,
				    .port_num = 1,
				    .grh = { .dgid = *gid,
					     .sgid_index = rig.gid_index,
					     .hop_limit = 64 } };
}

int rig_try_rtr(struct ib_qp *qp, const union ib_gid *gid, u32 qpn)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTR,
				   .path_mtu = IB_MTU_1024,
				   .dest_qp_num = qpn,
				   .rq_psn = 77,
				   .max_dest_rd_atomic = 4,
				   .min_rnr_timer = IB_RNR_TIMER_000_64 };
	int mask = IB_QP_STATE;

	attr.ah_attr = rig_way(gid);
	if (qp->qp_type != IB_QPT_UD)
		mask |= IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;
	if (qp->qp_type == IB_QPT_RC)
		mask |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
	return ib_modify_qp(qp, &attr, mask);
}

u8 rig_timeout(void)
{
	return rig_on_wire() ? 18 : 14;
}

int rig_try_rts(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTS,
				   .sq_psn = 77,
				   .timeout = rig_timeout(),
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .max_rd_atomic = 4 };
	int mask = IB_QP_STATE | IB_QP_SQ_PSN;

	if (qp->qp_type == IB_QPT_RC)
		mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
			IB_QP_MAX_QP_RD_ATOMIC;
	return ib_modify_qp(qp, &attr, mask);
}

int rig_try_state(struct ib_qp *qp, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

void rig_connect(struct ib_qp *qp, const union ib_gid *gid, u32 qpn)
{
	assert_int_equal(rig_try_init(qp), 0);
	assert_int_equal(rig_try_rtr(qp, gid, qpn), 0);
	assert_int_equal(rig_try_rts(qp), 0);
}

enum ib_qp_state rig_state(struct ib_qp *qp)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	assert_int_equal(ib_query_qp(qp, &attr, IB_QP_STATE, &init), 0);
	return attr.qp_state;
}

void rig_await_state(struct ib_qp *qp, enum ib_qp_state state)
{
	for (int ms = 0; ms < RIG_WAIT_MS && rig_state(qp) != state; ms++)
		rig_sleep_ms(1);
	assert_int_equal(rig_state(qp), state);
}

struct sockaddr_in rig_address(void)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	union ib_gid gid;
	int index = 0;

	do {
		assert_int_equal(ib_query_gid(rig.dev, 1, index++, &gid), 0);
	} while (memcmp(gid.raw, mapped, sizeof(mapped)) != 0);
	memcpy(&sin.sin_addr, gid.raw + 12, sizeof(sin.sin_addr));
	return sin;
}

/* ---- links ----------------------------------------------------------------------------------- */

void link_open(struct link *l, enum ib_qp_type type, struct ib_cq *rcq)
{
	*l = (struct link){ .scq = rig_cq(512), .bscq = rig_cq(512), .arcq = rig_cq(512) };
	l->rcq = rcq ? rcq : rig_cq(512);
	l->a = rig_qp(type, l->scq, l->arcq, NULL);
	l->b = rig_qp(type, l->bscq, l->rcq, NULL);
	rig_connect(l->a, &rig.gid, l->b->qp_num);
	rig_connect(l->b, &rig.gid, l->a->qp_num);
}

void link_close(struct link *l)
{
	assert_int_equal(ib_destroy_qp(l->a), 0);
	assert_int_equal(ib_destroy_qp(l->b), 0);
	assert_int_equal(ib_destroy_cq(l->scq), 0);
	assert_int_equal(ib_destroy_cq(l->rcq), 0);
	assert_int_equal(ib_destroy_cq(l->bscq), 0);
	assert_int_equal(ib_destroy_cq(l->arcq), 0);
}

void link_reset(struct link *l)
{
	assert_int_equal(rig_try_state(l->a, IB_QPS_RESET), 0);
	assert_int_equal(rig_try_state(l->b, IB_QPS_RESET), 0);
	rig_connect(l->a, &rig.gid, l->b->qp_num);
	rig_connect(l->b, &rig.gid, l->a->qp_num);
}

struct ib_sge rig_sge(u64 offset, u32 length)
{
	return (struct ib_sge){ .addr = (uintptr_t)rig.buf + offset,
				.length = length,
				.lkey = rig.mr->lkey };
}

int rig_try_send(struct ib_qp *qp, struct ib_send_wr *wr)
{
	struct ib_send_wr *bad;

	return ib_post_send(qp, wr, &bad);
}

void rig_send(struct ib_qp *qp, struct ib_send_wr *wr)
{
	assert_int_equal(rig_try_send(qp, wr), 0);
}

void rig_send_bytes(struct ib_qp *qp, u64 wr_id, u64 offset, u32 length, int flags)
{
	struct ib_sge sge = rig_sge(offset, length);
	struct ib_send_wr wr = { .wr_id = wr_id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED | flags };

	rig_send(qp, &wr);
}

void rig_datagram(struct ib_qp *qp, struct ib_ah *ah, u32 qpn, u64 offset, u32 length)
{
	struct ib_sge sge = rig_sge(offset, length);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED };

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = RIG_QKEY;
	rig_send(qp, &wr);
}

void rig_reach(struct ib_qp *qp, enum ib_wr_opcode op, u64 own, u64 va, u32 rkey, u32 length)
{
	struct ib_sge sge = rig_sge(own, length);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IB_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = va;
	wr.wr.rdma.rkey = rkey;
	rig_send(qp, &wr);
}

void rig_recv(struct ib_qp *qp, u64 wr_id, u64 offset, u32 length)
{
	struct ib_sge sge = rig_sge(offset, length);
	struct ib_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ib_post_recv(qp, &wr, &bad), 0);
}

void link_ping(struct link *l, int count, int flags)
{
	for (int i = 0; i < count; i++) {
		rig_recv(l->b, (u64)i, 8, 8);
		rig_send_bytes(l->a, (u64)i, 0, 8, flags);
		rig_drain(l->scq, 1);
	}
}

int rig_poll(struct ib_cq *cq, int want, struct ib_wc *wc, int timeout_ms)
{
	u64 end = rig_now_ms() + (u64)timeout_ms;
	int n = 0;

	do {
		int got = ib_poll_cq(cq, want - n, &wc[n]);

		assert_true(got >= 0);
		n += got;
		if (got == 0)
			usleep(20);
	} while (n < want && rig_now_ms() < end);
	if (n < want)
		late("completion", timeout_ms);
	return n;
}

enum ib_wc_status rig_outcome(struct ib_cq *cq)
{
	struct ib_wc wc;

	assert_int_equal(rig_poll(cq, 1, &wc, RIG_WAIT_MS), 1);
	return wc.status;
}

struct ib_wc rig_expect(struct ib_cq *cq, enum ib_wc_status status)
{
	struct ib_wc wc[2];

	assert_int_equal(rig_poll(cq, 1, wc, RIG_WAIT_MS), 1);
	assert_int_equal(wc[0].status, status);
	return wc[0];
}

void rig_drain(struct ib_cq *cq, int count)
{
	while (count--)
		rig_expect(cq, IB_WC_SUCCESS);
}
