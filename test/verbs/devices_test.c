/* devices_test.c: two devices in one process, and one that goes while it is used: what its users
 * are told, what becomes of their traffic, and that the other device does not notice.
 * In: connections on roce0 and roce1, and the command that adds and removes devices
 * Out: verdicts    Runs: cmocka, threads that send and that wait    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/ib_extended.h>
#include <rdma/ib_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/list.h"

enum {
	WRS = 64,
	BYTES = 4096,
	GRH = 40,
	QKEY = 0x1234,
	WAIT_MS = 20000,
	LOAD_MS = 200, /* of traffic before the device goes */
	PROBE = 1 << 20, /* wr_id of receives */
	QUIET_MS = 30,
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

#define DEVICE(what) VERBS_COMMAND " device " what
#define PORT(what) VERBS_COMMAND " port " what

static void run(const char *command)
{
	int status = system(command);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static struct ibv_context *device_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] != NULL && ctx == NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

static struct ibv_ah_attr address_of(const union ibv_gid *gid)
{
	return (struct ibv_ah_attr){ .is_global = 1,
				     .port_num = 1,
				     .grh = { .dgid = *gid, .sgid_index = 1, .hop_limit = 64 } };
}

/* From RESET to RTS. */
static void qp_up(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qkey = QKEY,
				 .qp_access_flags = REMOTE };
	bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
	int init = ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (rc)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	a.ah_attr = address_of(gid);
	a.dest_qp_num = peer;
	a.path_mtu = IBV_MTU_1024;
	a.min_rnr_timer = 12;
	a.timeout = 18; /* eight tries: 8 s, in which a busy machine takes a port up again */
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = a.max_dest_rd_atomic = 4;
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | init),
			 0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | (ud ? 0 : rtr)), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN |
					       (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							     IBV_QP_RNR_RETRY |
							     IBV_QP_MAX_QP_RD_ATOMIC :
						     0)),
			 0);
}

/* Polls until `want` completions have come; returns how many have in the time. */
static int cq_wait(struct ibv_cq *cq, struct ibv_wc *wc, int want, int timeout_ms)
{
	uint64_t end = now_ms() + (uint64_t)timeout_ms;
	int got = 0;

	while (got < want && now_ms() < end) {
		int n = ibv_poll_cq(cq, want - got, wc + got);

		if (n < 0)
			return -1;
		got += n;
		if (n == 0)
			usleep(20);
	}
	return got;
}

/* Is a device of this name listed within the time? */
static bool listed(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool found = false;

	assert_non_null(list);
	assert_string_equal(ibv_get_device_name(list[0]), "roce0");
	for (int i = 0; list[i] != NULL; i++)
		found = found || strcmp(ibv_get_device_name(list[i]), name) == 0;
	ibv_free_device_list(list);
	return found;
}

static void await_listed(const char *name, bool want)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (listed(name) != want && now_ms() < end)
		usleep(1000);
	assert_int_equal(listed(name), want);
}

/* ---- an open device with two queue pairs ---- */

struct unit {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw, *mw2; /* of type 1 and 2 */
	struct ibv_mr *null;
	struct ibv_td *td;
	struct ibv_pd *parent;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *xsrq; /* of the domain, as is the target */
	struct ibv_qp *target;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *idle; /* `idle` has nothing but a thread that waits for its events */
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
	struct ibv_ah *ah;
	union ibv_gid gid;
	char memory[BYTES + GRH];
};

enum { GROUP_LID = 0xc001 }; /* means nothing on RoCE */
static const union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 0, 0, 7 } };

static struct ibv_qp *unit_qp(struct unit *u, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .send_cq = u->cq,
					 .recv_cq = u->cq,
					 .qp_type = type,
					 .sq_sig_all = 1,
					 .cap = { WRS, WRS, 1, 1, 0 } };

	return ibv_create_qp(u->pd, &init);
}

/* Objects that no other test of this file has, and of datagrams a multicast group. */
static void unit_open_rest(struct unit *u)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = u->pd };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_srq_init_attr_ex srq = { .attr = { .max_wr = WRS, .max_sge = 1 },
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							 IBV_SRQ_INIT_ATTR_XRCD |
							 IBV_SRQ_INIT_ATTR_CQ |
							 IBV_SRQ_INIT_ATTR_PD,
					    .srq_type = IBV_SRQT_XRC,
					    .pd = u->pd,
					    .cq = u->cq };
	struct ibv_qp_init_attr_ex target = { .qp_type = IBV_QPT_XRC_RECV,
					      .comp_mask = IBV_QP_INIT_ATTR_XRCD };

	u->null = ibv_alloc_null_mr(u->pd);
	u->td = ibv_alloc_td(u->ctx, &td);
	parent.td = u->td;
	u->parent = ibv_alloc_parent_domain(u->ctx, &parent);
	srq.xrcd = target.xrcd = u->xrcd = ibv_open_xrcd(u->ctx, &xrcd);
	assert_true(u->null && u->td && u->parent && u->xrcd);
	u->xsrq = ibv_create_srq_ex(u->ctx, &srq);
	u->target = ibv_create_qp_ex(u->ctx, &target);
	assert_true(u->xsrq && u->target);
	if (u->qp[0]->qp_type == IBV_QPT_UD)
		assert_int_equal(ibv_attach_mcast(u->qp[0], &group, GROUP_LID), 0);
}

static void unit_close_rest(struct unit *u)
{
	if (u->qp[0]->qp_type == IBV_QPT_UD) {
		assert_int_equal(ibv_destroy_qp(u->qp[0]), EBUSY);
		assert_int_equal(ibv_detach_mcast(u->qp[0], &group, GROUP_LID), 0);
	}
	assert_int_equal(ibv_destroy_qp(u->target), 0);
	assert_int_equal(ibv_destroy_srq(u->xsrq), 0);
	assert_int_equal(ibv_close_xrcd(u->xrcd), 0);
	assert_int_equal(ibv_dealloc_pd(u->parent), 0);
	assert_int_equal(ibv_dealloc_td(u->td), 0);
	assert_int_equal(ibv_dereg_mr(u->null), 0);
}

static void unit_open(struct unit *u, const char *name, enum ibv_qp_type type)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = WRS, .max_sge = 1 } };

	memset(u, 0, sizeof(*u));
	u->ctx = device_open(name);
	assert_non_null(u->ctx);
	assert_int_equal(ibv_query_gid(u->ctx, 1, 1, &u->gid), 0);
	u->pd = ibv_alloc_pd(u->ctx);
	u->mr = ibv_reg_mr(u->pd, u->memory, sizeof(u->memory), IBV_ACCESS_LOCAL_WRITE | REMOTE);
	u->channel = ibv_create_comp_channel(u->ctx);
	u->cq = ibv_create_cq(u->ctx, 8 * WRS, NULL, NULL, 0);
	u->idle = ibv_create_cq(u->ctx, 8, NULL, u->channel, 0);
	u->srq = ibv_create_srq(u->pd, &srq);
	u->mw = ibv_alloc_mw(u->pd, IBV_MW_TYPE_1);
	u->mw2 = ibv_alloc_mw(u->pd, IBV_MW_TYPE_2);
	assert_true(u->pd && u->mr && u->mw && u->mw2 && u->channel && u->cq && u->idle && u->srq);
	assert_int_equal(ibv_req_notify_cq(u->idle, 0), 0);
	for (int i = 0; i < 2; i++)
		assert_non_null(u->qp[i] = unit_qp(u, type));
	unit_open_rest(u);
}

/* Everything can be destroyed, whatever has become of the device. */
static void unit_close(struct unit *u)
{
	if (u->ah != NULL)
		assert_int_equal(ibv_destroy_ah(u->ah), 0);
	unit_close_rest(u);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(u->qp[i]), 0);
	assert_int_equal(ibv_destroy_srq(u->srq), 0);
	assert_int_equal(ibv_destroy_cq(u->cq), 0);
	assert_int_equal(ibv_destroy_cq(u->idle), 0);
	assert_int_equal(ibv_destroy_comp_channel(u->channel), 0);
	assert_int_equal(ibv_dealloc_mw(u->mw), 0);
	assert_int_equal(ibv_dealloc_mw(u->mw2), 0);
	assert_int_equal(ibv_dereg_mr(u->mr), 0);
	assert_int_equal(ibv_dealloc_pd(u->pd), 0);
	assert_int_equal(ibv_close_device(u->ctx), 0);
}

/* Queue pair `i` of one unit with queue pair `j` of another one, or of the same. */
static void unit_connect(struct unit *a, int i, struct unit *b, int j)
{
	struct ibv_ah_attr to_b = address_of(&b->gid);

	qp_up(b->qp[j], a->qp[i]->qp_num, &a->gid);
	qp_up(a->qp[i], b->qp[j]->qp_num, &b->gid);
	if (a->qp[i]->qp_type == IBV_QPT_UD && a->ah == NULL)
		assert_non_null(a->ah = ibv_create_ah(a->pd, &to_b));
}

static int unit_recv(struct unit *u, int i)
{
	struct ibv_sge sge = { (uintptr_t)u->memory, sizeof(u->memory), u->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = PROBE, .sg_list = &sge, .num_sge = 1 };

	return ibv_post_recv(u->qp[i], &wr, &bad);
}

static int unit_send(struct unit *u, int i, uint32_t peer)
{
	struct ibv_sge sge = { (uintptr_t)u->memory, 1024, u->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	if (u->qp[i]->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = u->ah;
		wr.wr.ud.remote_qpn = peer;
		wr.wr.ud.remote_qkey = QKEY;
	}
	return ibv_post_send(u->qp[i], &wr, &bad);
}

/* One message from queue pair 0 of `a` to `j` of `b`. */
static void unit_exchange(struct unit *a, struct unit *b, int j)
{
	struct ibv_wc wc[2] = { 0 };
	bool same = a == b;

	assert_int_equal(unit_recv(b, j), 0);
	assert_int_equal(unit_send(a, 0, b->qp[j]->qp_num), 0);
	assert_int_equal(cq_wait(a->cq, wc, same ? 2 : 1, WAIT_MS), same ? 2 : 1);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	if (!same)
		assert_int_equal(cq_wait(b->cq, wc, 1, WAIT_MS), 1);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
}

/* ---- two devices ---- */

static struct unit units[3];

static void devices__differ(void **state)
{
	struct ibv_device_attr attr[2];

	unit_open(&units[0], "roce0", IBV_QPT_RC);
	unit_open(&units[1], "roce1", IBV_QPT_RC);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_query_device(units[i].ctx, &attr[i]), 0);
	assert_true(attr[0].node_guid != attr[1].node_guid);
	assert_memory_not_equal(&units[0].gid, &units[1].gid, sizeof(units[0].gid));
	assert_true(units[0].mr->lkey != units[1].mr->lkey);
	assert_true(units[0].qp[0]->qp_num != units[1].qp[0]->qp_num);
	unit_close(&units[1]);
	unit_close(&units[0]);
}

static void talk_across(enum ibv_qp_type type)
{
	unit_open(&units[0], "roce0", type);
	unit_open(&units[1], "roce1", type);
	unit_connect(&units[0], 0, &units[1], 0);
	unit_exchange(&units[0], &units[1], 0);
	unit_close(&units[1]);
	unit_close(&units[0]);
}

static void devices__talk_to_each_other(void **state)
{
	talk_across(IBV_QPT_RC);
	talk_across(IBV_QPT_UC);
	talk_across(IBV_QPT_UD);
}

static void devices__share_no_protection_domain(void **state)
{
	struct ibv_wc wc;
	struct ibv_mr *own;

	unit_open(&units[0], "roce0", IBV_QPT_RC);
	unit_open(&units[1], "roce1", IBV_QPT_RC);
	unit_connect(&units[0], 0, &units[1], 0);
	own = units[0].mr;
	units[0].mr = units[1].mr;
	assert_int_equal(unit_send(&units[0], 0, 0), 0);
	assert_int_equal(cq_wait(units[0].cq, &wc, 1, WAIT_MS), 1);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	units[0].mr = own;
	unit_close(&units[1]);
	unit_close(&units[0]);
}

/* ---- ports ---- */

/* The next event of a device's port. */
static int port_event(struct unit *u)
{
	struct ibv_async_event ev;

	do {
		assert_int_equal(ibv_get_async_event(u->ctx, &ev), 0);
		ibv_ack_async_event(&ev);
	} while (ev.event_type != IBV_EVENT_PORT_ERR && ev.event_type != IBV_EVENT_PORT_ACTIVE);
	return (int)ev.event_type;
}

static enum ibv_port_state port_state(struct unit *u)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(u->ctx, 1, &attr), 0);
	return attr.state;
}

/* Sets the port of the device that `u` has open. */
static void port_set(struct unit *u, bool up)
{
	char command[256];

	snprintf(command, sizeof(command), PORT("%s %s"), ibv_get_device_name(u->ctx->device),
		 up ? "up" : "down");
	run(command);
	assert_int_equal(port_event(u), up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	assert_int_equal(port_state(u), up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
}

/* Nothing arrives while the port is down. A request of RC arrives afterwards. */
static void port_loses(struct unit *from, int i, struct unit *to, int j)
{
	struct unit *down = port_state(from) == IBV_PORT_DOWN ? from : to;
	bool rc = from->qp[i]->qp_type == IBV_QPT_RC, same = from->cq == to->cq;
	struct ibv_wc wc[2];
	int sent = rc ? 0 : 1;

	assert_int_equal(unit_recv(to, j), 0);
	assert_int_equal(unit_send(from, i, to->qp[j]->qp_num), 0);
	assert_int_equal(cq_wait(from->cq, wc, 2, QUIET_MS), sent);
	if (!same)
		assert_int_equal(cq_wait(to->cq, wc, 1, QUIET_MS), 0);
	port_set(down, true);
	if (!rc)
		assert_int_equal(unit_send(from, i, to->qp[j]->qp_num), 0);
	assert_int_equal(cq_wait(from->cq, wc, same ? 2 : 1, WAIT_MS), same ? 2 : 1);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	if (!same)
		assert_int_equal(cq_wait(to->cq, wc, 1, WAIT_MS), 1);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(cq_wait(to->cq, wc, 1, QUIET_MS), 0);
}

/* Of two devices the port of one goes down: the other does not notice. */
static void port_of_one(enum ibv_qp_type type, int down)
{
	struct unit *a = &units[down], *b = &units[1 - down];

	unit_open(&units[0], "roce0", type);
	unit_open(&units[1], "roce1", type);
	for (int i = 0; i < 2; i++)
		unit_connect(&units[i], 0, &units[i], 1);
	port_set(a, false);
	assert_int_equal(port_state(b), IBV_PORT_ACTIVE);
	unit_exchange(b, b, 1);
	port_loses(a, 0, a, 1);
	unit_exchange(b, b, 1);
	unit_exchange(a, a, 1);
	unit_close(&units[1]);
	unit_close(&units[0]);
}

static void port__of_one_device(void **state)
{
	for (int down = 0; down < 2; down++) {
		port_of_one(IBV_QPT_RC, down);
		port_of_one(IBV_QPT_UC, down);
		port_of_one(IBV_QPT_UD, down);
	}
}

/* From the device whose port is up to the one whose port is down, and the other way round. */
static void port__between_two_devices(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 3 * 2; i++) {
		unit_open(&units[0], "roce0", types[i / 2]);
		unit_open(&units[1], "roce1", types[i / 2]);
		unit_connect(&units[0], 0, &units[1], 0);
		unit_exchange(&units[0], &units[1], 0);
		port_set(&units[i % 2], false);
		port_loses(&units[0], 0, &units[1], 0);
		unit_close(&units[1]);
		unit_close(&units[0]);
	}
}

/* A queue pair that is made while the port is down. */
static void port__of_a_new_queue_pair(void **state)
{
	struct unit *u = &units[1];

	unit_open(&units[0], "roce0", IBV_QPT_RC);
	unit_open(u, "roce1", IBV_QPT_RC);
	port_set(u, false);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(u->qp[i]), 0);
		assert_non_null(u->qp[i] = unit_qp(u, IBV_QPT_RC));
	}
	unit_connect(u, 0, u, 1);
	port_loses(u, 0, u, 1);
	unit_close(u);
	unit_close(&units[0]);
}

/* What the initiator does alone where it can: not while either port is down. */
static void port__one_sided(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (int i = 0; i < 3 * 2; i++) {
		struct unit *a = &units[0], *b = &units[1];
		struct ibv_sge sge = { (uintptr_t)a->memory, 8, 0 };
		struct ibv_send_wr *bad,
			wr = { .sg_list = &sge, .num_sge = 1, .opcode = ops[i / 2] };
		struct ibv_wc wc;

		unit_open(a, "roce0", IBV_QPT_RC);
		unit_open(b, "roce1", IBV_QPT_RC);
		unit_connect(a, 0, b, 0);
		sge.lkey = a->mr->lkey;
		wr.wr.rdma.remote_addr = wr.wr.atomic.remote_addr = ((uintptr_t)b->memory + 7) &
								    ~7ul;
		if (ops[i / 2] == IBV_WR_ATOMIC_FETCH_AND_ADD)
			wr.wr.atomic.rkey = b->mr->rkey;
		else
			wr.wr.rdma.rkey = b->mr->rkey;
		for (int n = 0; n < 2; n++) { /* the second uses what the first has found */
			assert_int_equal(ibv_post_send(a->qp[0], &wr, &bad), 0);
			assert_int_equal(cq_wait(a->cq, &wc, 1, WAIT_MS), 1);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		}
		port_set(&units[i % 2], false);
		assert_int_equal(ibv_post_send(a->qp[0], &wr, &bad), 0);
		assert_int_equal(cq_wait(a->cq, &wc, 1, QUIET_MS), 0);
		port_set(&units[i % 2], true);
		assert_int_equal(cq_wait(a->cq, &wc, 1, WAIT_MS), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		unit_close(b);
		unit_close(a);
	}
}

/* ---- removal ---- */

/* Sends to its own other queue pair until the device says no. */
struct load {
	struct unit *unit;
	int posted, done, flushed; /* sends */
	int post_error, poll_error;
};

static void load_take(struct load *l, struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id == PROBE) {
			if (wc[i].status == IBV_WC_SUCCESS)
				(void)unit_recv(l->unit, 1);
			continue;
		}
		l->done++;
		l->flushed += wc[i].status == IBV_WC_WR_FLUSH_ERR;
	}
}

static void *load_run(void *arg)
{
	struct load *l = arg;
	struct ibv_wc wc[16];

	for (int i = 0; i < WRS; i++)
		(void)unit_recv(l->unit, 1);
	while (l->poll_error == 0) {
		int n;

		if (l->post_error == 0 && l->posted - l->done < WRS / 2) {
			l->post_error = unit_send(l->unit, 0, l->unit->qp[1]->qp_num);
			l->posted += l->post_error == 0;
		}
		n = ibv_poll_cq(l->unit->cq, 16, wc);
		if (n < 0)
			l->poll_error = n;
		else
			load_take(l, wc, n);
	}
	return NULL;
}

/* What a thread in ibv_get_async_event hears: an event, and then an error. */
static void *async_run(void *arg)
{
	struct unit *u = arg;
	struct ibv_async_event ev;
	long seen = 0;

	while (ibv_get_async_event(u->ctx, &ev) == 0) {
		seen |= 1l << ev.event_type;
		ibv_ack_async_event(&ev);
	}
	return (void *)(errno == EIO ? seen : 0l);
}

/* A thread in ibv_get_cq_event of a CQ that gets nothing: the error that ends it. */
static void *event_run(void *arg)
{
	struct unit *u = arg;
	struct ibv_cq *cq;
	void *context;

	return (void *)(ibv_get_cq_event(u->channel, &cq, &context) == 0 ? 0l : (long)errno);
}

/* ---- what verbs answer on a device that is gone ---- */

static void refuses_queries(struct unit *u)
{
	struct ibv_device_attr device;
	struct ibv_device_attr_ex device_ex;
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_port_attr port;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_srq_attr srq;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	uint16_t pkey;

	assert_int_equal(ibv_query_device(u->ctx, &device), EIO);
	assert_int_equal(ibv_query_device_ex(u->ctx, NULL, &device_ex), EIO);
	assert_int_equal(ibv_query_rt_values_ex(u->ctx, &values), EIO);
	assert_int_equal(ibv_query_port(u->ctx, 1, &port), EIO);
	assert_int_not_equal(ibv_query_gid(u->ctx, 1, 1, &gid), 0);
	assert_int_equal(errno, EIO);
	assert_int_not_equal(ibv_query_pkey(u->ctx, 1, 0, &pkey), 0);
	assert_int_equal(errno, EIO);
	assert_int_equal(ibv_get_pkey_index(u->ctx, 1, 0xffff), -1);
	assert_int_equal(ibv_query_gid_ex(u->ctx, 1, 1, &entry, 0), EIO);
	assert_int_equal(ibv_query_gid_table(u->ctx, &entry, 1, 0), -EIO);
	assert_int_equal(ibv_query_qp(u->qp[0], &attr, IBV_QP_STATE, &init), EIO);
	assert_int_equal(ibv_query_srq(u->srq, &srq), EIO);
}

/* Requests and verbs that change keys. */
static void refuses_keys(struct unit *u)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW }, *bad;

	wr.bind_mw.mw = u->mw2;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ u->mr, (uintptr_t)u->memory, 8, 0 };
	if (u->qp[0]->qp_type != IBV_QPT_UD) {
		assert_int_equal(ibv_post_send(u->qp[0], &wr, &bad), EIO);
		wr = (struct ibv_send_wr){ .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = 1 };
		assert_int_equal(ibv_post_send(u->qp[0], &wr, &bad), EIO);
	}
	errno = 0;
	assert_int_equal(ibv_rereg_mr(u->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EIO);
	errno = 0;
	assert_int_equal(ibv_rereg_mr(u->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, u->memory, 8,
				      0),
			 IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EIO);
}

static void refuses_changes(struct unit *u)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_srq_attr srq = { .max_wr = 1 };
	struct ibv_modify_cq_attr cq = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_mw_bind bind = { .bind_info = { .mr = u->mr, .addr = (uintptr_t)u->memory,
						   .length = 8 } };
	union ibv_gid other = { .raw = { 0xff, 0x0e, [15] = 1 } };
	struct ibv_sge sge = { (uintptr_t)u->memory, 8, u->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;

	assert_int_equal(ibv_modify_qp(u->qp[0], &attr, IBV_QP_STATE), EIO);
	assert_int_equal(ibv_modify_srq(u->srq, &srq, IBV_SRQ_LIMIT), EIO);
	assert_int_equal(ibv_resize_cq(u->cq, 4 * WRS), EIO);
	assert_int_equal(ibv_modify_cq(u->cq, &cq), EIO);
	if (u->qp[0]->qp_type == IBV_QPT_UD)
		assert_int_equal(ibv_attach_mcast(u->qp[0], &other, 0), EIO);
	else
		assert_int_equal(ibv_bind_mw(u->qp[0], u->mw, &bind), EIO);
	refuses_keys(u);
	assert_int_equal(unit_send(u, 0, 1), EIO);
	assert_int_equal(unit_recv(u, 0), EIO);
	assert_int_equal(ibv_post_srq_recv(u->srq, &wr, &bad), EIO);
	assert_int_equal(ibv_req_notify_cq(u->cq, 0), EIO);
	assert_true(ibv_poll_cq(u->cq, 1, &wc) < 0);
}

static void refuses_creates(struct unit *u)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 8 };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex srq_ex = { .attr = srq.attr,
					       .comp_mask = IBV_SRQ_INIT_ATTR_PD,
					       .pd = u->pd };
	struct ibv_ah_attr ah = address_of(&u->gid);

#define REFUSED(create) (errno = 0, (create) == NULL && errno == EIO)
	assert_true(REFUSED(ibv_alloc_pd(u->ctx)));
	assert_true(REFUSED(ibv_create_cq(u->ctx, 8, NULL, NULL, 0)));
	assert_true(REFUSED(ibv_create_cq_ex(u->ctx, &cq)));
	assert_true(REFUSED(ibv_reg_mr(u->pd, u->memory, 8, 0)));
	assert_true(REFUSED(ibv_alloc_mw(u->pd, IBV_MW_TYPE_1)));
	assert_true(REFUSED(ibv_alloc_mw(u->pd, IBV_MW_TYPE_2)));
	assert_true(REFUSED(ibv_alloc_null_mr(u->pd)));
	assert_true(REFUSED(ibv_create_ah(u->pd, &ah)));
	assert_true(REFUSED(ibv_create_srq(u->pd, &srq)));
	assert_true(REFUSED(ibv_create_srq_ex(u->ctx, &srq_ex)));
	assert_true(REFUSED(unit_qp(u, IBV_QPT_RC)));
	assert_true(REFUSED(unit_qp(u, IBV_QPT_UD)));
#undef REFUSED
}

static void refuses_everything(struct unit *u)
{
	refuses_queries(u);
	refuses_changes(u);
	refuses_creates(u);
}

static void removal_under_load(enum ibv_qp_type type)
{
	struct load gone = { .unit = &units[1] };
	pthread_t sender, async, event;
	void *seen, *error;

	unit_open(&units[0], "roce0", type);
	unit_open(&units[1], "roce1", type);
	unit_connect(&units[0], 0, &units[0], 1);
	unit_connect(&units[1], 0, &units[1], 1);
	assert_int_equal(pthread_create(&async, NULL, async_run, &units[1]), 0);
	assert_int_equal(pthread_create(&event, NULL, event_run, &units[1]), 0);
	assert_int_equal(pthread_create(&sender, NULL, load_run, &gone), 0);
	usleep(LOAD_MS * 1000);
	run(DEVICE("remove roce1"));
	pthread_join(sender, NULL);
	pthread_join(async, &seen);
	pthread_join(event, &error);
	assert_true((long)seen & 1l << IBV_EVENT_DEVICE_FATAL);
	assert_int_equal((long)error, EIO);
	assert_true(gone.done > 0);
	assert_int_equal(gone.done, gone.posted);
	assert_int_equal(gone.poll_error, -EIO);
	refuses_everything(&units[1]);
	unit_exchange(&units[0], &units[0], 1);
	await_listed("roce1", false);

	/* Another one of this name does not wait for the users of the old one. */
	run(DEVICE("add roce1"));
	await_listed("roce1", true);
	unit_open(&units[2], "roce1", type);
	unit_connect(&units[2], 0, &units[2], 1);
	unit_exchange(&units[2], &units[2], 1);
	unit_close(&units[1]);
	unit_exchange(&units[2], &units[2], 1);
	unit_close(&units[2]);
	unit_close(&units[0]);
}

static void removal__under_load_rc(void **state)
{
	removal_under_load(IBV_QPT_RC);
}

static void removal__under_load_ud(void **state)
{
	removal_under_load(IBV_QPT_UD);
}

/* The connection of a device that stays with one that goes breaks as with a dead peer: its
 * requests end with errors. */
static void removal__of_the_peer(void **state)
{
	struct ibv_wc wc;

	unit_open(&units[0], "roce0", IBV_QPT_RC);
	unit_open(&units[1], "roce1", IBV_QPT_RC);
	unit_connect(&units[0], 0, &units[1], 0);
	unit_exchange(&units[0], &units[1], 0);
	run(DEVICE("remove roce1"));
	await_listed("roce1", false);
	assert_int_equal(unit_send(&units[0], 0, 0), 0);
	assert_int_equal(cq_wait(units[0].cq, &wc, 1, 3 * WAIT_MS), 1);
	assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	unit_close(&units[0]);
	unit_close(&units[1]);
	run(DEVICE("add roce1"));
	await_listed("roce1", true);
}

/* Once the command has returned, a process that runs lists what it says. */
static void list__follows_the_command_at_once(void **state)
{
	await_listed("roce1", true);
	for (int i = 0; i < 20; i++) {
		run(DEVICE("add roce5"));
		assert_true(listed("roce5"));
		run(DEVICE("remove roce5"));
		assert_false(listed("roce5"));
	}
}

/* A list of before shows a device that is gone. */
static void list__opens_no_device_that_is_gone(void **state)
{
	struct ibv_device **list;
	int last = 0;

	run(DEVICE("add roce6"));
	list = ibv_get_device_list(&last);
	assert_non_null(list);
	assert_string_equal(ibv_get_device_name(list[last - 1]), "roce6");
	run(DEVICE("remove roce6"));
	assert_false(listed("roce6"));
	errno = 0;
	assert_null(ibv_open_device(list[last - 1]));
	assert_int_equal(errno, ENODEV);
	ibv_free_device_list(list);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(list__follows_the_command_at_once),
		cmocka_unit_test(list__opens_no_device_that_is_gone),
		cmocka_unit_test(devices__differ),
		cmocka_unit_test(devices__talk_to_each_other),
		cmocka_unit_test(devices__share_no_protection_domain),
		cmocka_unit_test(port__of_one_device),
		cmocka_unit_test(port__between_two_devices),
		cmocka_unit_test(port__of_a_new_queue_pair),
		cmocka_unit_test(port__one_sided),
		cmocka_unit_test(removal__under_load_rc),
		cmocka_unit_test(removal__under_load_ud),
		cmocka_unit_test(removal__of_the_peer),
	};
	char node[32];

	snprintf(node, sizeof(node), "devices-%d", (int)getpid());
	setenv("ANYVERBS_NODE", node, 1);
	setenv("ANYVERBS_DEVICES", "roce0,roce1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
