/* removal_test.c: a consumer of the midlayer on a device that goes: it is told, each verb refuses,
 * and all that it has made, on the verbs and above them, can be destroyed.
 * In: the command that adds and removes devices      Out: verdicts
 * Runs: cmocka, threads of the midlayer              Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <rdma/ib_extended.h>
#include <rdma/ib_fmr_pool.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
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

enum { BYTES = 4096, WAIT_MS = 20000, GROUP_LID = 0xc001 /* means nothing on RoCE */ };

#define DEVICE(what) VERBS_COMMAND " device " what

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

/* Objects of a consumer of the midlayer on roce1. */
static struct {
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_srq *srq;
	struct ib_mr *mr, *fast;
	struct ib_mw *mw;
	struct ib_fmr *fmr;
	struct ib_ah *ah;
	union ib_gid gid;
	uint64_t *page;
} mine;

static union ib_gid *mine_group(void)
{
	static union ib_gid gid = { .raw = { [10] = 0xff, 0xff, 239, 0, 0, 7 } };

	return &gid;
}

static struct ib_ah_attr mine_address(void)
{
	return (struct ib_ah_attr){ .ah_flags = IB_AH_GRH,
				    .port_num = 1,
				    .grh = { .dgid = mine.gid, .sgid_index = 1, .hop_limit = 64 } };
}

static struct ib_qp_init_attr mine_qp(void)
{
	return (struct ib_qp_init_attr){ .send_cq = mine.cq,
					 .recv_cq = mine.cq,
					 .qp_type = IB_QPT_UD,
					 .cap = { 4, 4, 1, 1, 0 } };
}

static struct ib_fmr_attr mine_fmr(void)
{
	return (struct ib_fmr_attr){ .max_pages = 1, .max_maps = 4, .page_shift = 12 };
}

static void mine_open(struct ib_device *device)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ib_qp_init_attr qp;
	struct ib_fmr_attr fmr = mine_fmr();
	struct ib_ah_attr ah;

	mine.page = aligned_alloc(BYTES, BYTES);
	assert_int_equal(ib_query_gid(device, 1, 1, &mine.gid), 0);
	ah = mine_address();
	mine.pd = ib_alloc_pd(device);
	mine.cq = ib_create_cq(device, NULL, NULL, NULL, 16, 0);
	qp = mine_qp();
	mine.qp = ib_create_qp(mine.pd, &qp);
	mine.srq = ib_create_srq(mine.pd, &srq);
	mine.mr = ib_get_dma_mr(mine.pd, IB_ACCESS_LOCAL_WRITE);
	mine.fast = ib_alloc_mr(mine.pd, IB_MR_TYPE_MEM_REG, 4);
	mine.mw = ib_alloc_mw(mine.pd);
	mine.fmr = ib_alloc_fmr(mine.pd, IB_ACCESS_LOCAL_WRITE, &fmr);
	mine.ah = ib_create_ah(mine.pd, &ah);
	assert_false(IS_ERR(mine.pd) || IS_ERR(mine.cq) || IS_ERR(mine.qp) || IS_ERR(mine.srq) ||
		     IS_ERR(mine.mr) || IS_ERR(mine.mw) || IS_ERR(mine.fmr) || IS_ERR(mine.ah) ||
		     IS_ERR(mine.fast));
	assert_int_equal(ib_attach_mcast(mine.qp, mine_group(), GROUP_LID), 0);
}

static bool reaches(int *count, int want)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < want && now_ms() < end)
		usleep(1000);
	return __atomic_load_n(count, __ATOMIC_SEQ_CST) == want;
}

/* What stands on the verbs: of the CM, the RDMA CM, MADs and a pool of FMRs. */
static struct {
	struct ib_event_handler events;
	struct ib_fmr_pool *pool;
	struct ib_mad_agent *agent;
	struct ib_cm_id *cm;
	struct rdma_cm_id *listener, *member; /* member: of a group, with a queue pair */
	int told, fatal, joined, removals;    /* atomic */
} upper;

static void upper_mad_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
}

static void upper_mad_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *wc)
{
	ib_free_recv_mad(wc);
}

static void upper_event(struct ib_event_handler *handler, struct ib_event *event)
{
	__atomic_add_fetch(event->event == IB_EVENT_DEVICE_FATAL ? &upper.fatal : &upper.told, 1,
			   __ATOMIC_SEQ_CST);
}

static int upper_cm_event(struct ib_cm_id *id, struct ib_cm_event *event)
{
	return 0;
}

static int upper_rdma_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_MULTICAST_JOIN)
		__atomic_add_fetch(&upper.joined, 1, __ATOMIC_SEQ_CST);
	if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		__atomic_add_fetch(&upper.removals, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static struct sockaddr *upper_address(struct sockaddr_in *sin, const uint8_t ip[4], uint16_t port)
{
	*sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	memcpy(&sin->sin_addr, ip, 4);
	return (struct sockaddr *)sin;
}

static void upper_open(struct ib_device *device)
{
	struct ib_fmr_pool_param pool = { .max_pages_per_fmr = 1,
					  .page_shift = 12,
					  .access = IB_ACCESS_LOCAL_WRITE,
					  .pool_size = 4,
					  .dirty_watermark = 2 };
	struct ib_mad_reg_req req = { .mgmt_class = 0x0a, .mgmt_class_version = 1 };
	struct ib_qp_init_attr qp = mine_qp();
	struct sockaddr_in sin;

	req.method_mask[0] = 1ul << IB_MGMT_METHOD_GET;
	INIT_IB_EVENT_HANDLER(&upper.events, device, upper_event);
	assert_int_equal(ib_register_event_handler(&upper.events), 0);
	upper.pool = ib_create_fmr_pool(mine.pd, &pool);
	upper.agent = ib_register_mad_agent(device, 1, IB_QPT_GSI, &req, 0, upper_mad_sent,
					    upper_mad_received, NULL);
	upper.cm = ib_create_cm_id(device, upper_cm_event, NULL);
	upper.listener = rdma_create_id(upper_rdma_event, NULL, RDMA_PS_TCP, IB_QPT_RC);
	upper.member = rdma_create_id(upper_rdma_event, NULL, RDMA_PS_UDP, IB_QPT_UD);
	assert_false(IS_ERR(upper.pool) || IS_ERR(upper.agent) || IS_ERR(upper.cm) ||
		     IS_ERR(upper.listener) || IS_ERR(upper.member));
	assert_int_equal(ib_cm_listen(upper.cm, htobe64(0x1000000000007777), 0, NULL), 0);
	assert_int_equal(
		rdma_bind_addr(upper.listener, upper_address(&sin, mine.gid.raw + 12, 7777)), 0);
	assert_int_equal(rdma_listen(upper.listener, 1), 0);
	assert_int_equal(rdma_bind_addr(upper.member, upper_address(&sin, mine.gid.raw + 12, 7778)),
			 0);
	assert_int_equal(rdma_join_multicast(upper.member,
					     upper_address(&sin, (uint8_t[]){ 239, 0, 0, 8 }, 0),
					     IB_SA_FULL_MEMBER, NULL),
			 0);
	assert_true(reaches(&upper.joined, 1));
	assert_int_equal(rdma_create_qp(upper.member, mine.pd, &qp), 0);
}

static void upper_close(void)
{
	assert_ptr_equal(upper.member->device, upper.listener->device);
	rdma_destroy_qp(upper.member);
	rdma_destroy_id(upper.member);
	rdma_destroy_id(upper.listener);
	ib_destroy_cm_id(upper.cm);
	assert_int_equal(ib_unregister_mad_agent(upper.agent), 0);
	assert_int_equal(ib_destroy_fmr_pool(upper.pool), 0);
	assert_int_equal(ib_unregister_event_handler(&upper.events), 0);
	assert_int_equal(upper.fatal, 1);
	assert_int_equal(upper.removals, 0); /* ended before the CM is told */
}

static void mine_refuses_queries(struct ib_device *device)
{
	struct ib_device_attr device_attr;
	struct ib_port_attr port;
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;
	struct ib_srq_attr srq;
	struct ib_mr_attr mr;
	struct ib_ah_attr ah = mine_address();
	u64 clock;
	u16 index;
	u8 number;

	assert_int_equal(ib_query_device(device, &device_attr), -EIO);
	assert_int_equal(ib_query_port(device, 1, &port), -EIO);
	assert_int_equal(ib_query_gid(device, 1, 1, &mine.gid), -EIO);
	assert_int_equal(ib_query_pkey(device, 1, 0, &index), -EIO);
	assert_int_equal(ib_find_gid(device, &mine.gid, &number, &index), -EIO);
	assert_int_equal(ib_find_pkey(device, 1, 0xffff, &index), -EIO);
	assert_int_equal(ib_query_clock(device, &clock), -EIO);
	assert_int_equal(ib_query_qp(mine.qp, &attr, IB_QP_STATE, &init), -EIO);
	assert_int_equal(ib_query_srq(mine.srq, &srq), -EIO);
	assert_int_equal(ib_query_mr(mine.mr, &mr), -EIO);
	assert_int_equal(ib_query_ah(mine.ah, &ah), -EIO);
	assert_int_equal(ib_modify_ah(mine.ah, &ah), -EIO);
}

static void mine_refuses_changes(struct ib_device *device)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	struct ib_srq_attr srq = { .srq_limit = 1 };
	struct ib_sge sge = { (uintptr_t)mine.page, 8, mine.mr->lkey };
	struct ib_send_wr *bad_send, send = { .sg_list = &sge,
					      .num_sge = 1,
					      .opcode = IB_WR_SEND,
					      .wr.ud = { .ah = mine.ah, .remote_qpn = 1 } };
	struct ib_recv_wr *bad, recv = { .sg_list = &sge, .num_sge = 1 };
	union ib_gid other = { .raw = { 0xff, 0x0e, [15] = 1 } };
	u64 page = (uintptr_t)mine.page;
	struct ib_wc wc;

	assert_int_equal(ib_modify_qp(mine.qp, &attr, IB_QP_STATE), -EIO);
	assert_int_equal(ib_modify_srq(mine.srq, &srq, IB_SRQ_LIMIT), -EIO);
	assert_int_equal(ib_post_send(mine.qp, &send, &bad_send), -EIO);
	assert_int_equal(ib_post_recv(mine.qp, &recv, &bad), -EIO);
	assert_int_equal(ib_post_srq_recv(mine.srq, &recv, &bad), -EIO);
	assert_int_equal(ib_attach_mcast(mine.qp, &other, 0), -EIO);
	assert_int_equal(ib_map_phys_fmr(mine.fmr, &page, 1, 0), -EIO);
	assert_int_equal(ib_resize_cq(mine.cq, 32), -EIO);
	assert_int_equal(ib_modify_cq(mine.cq, 0, 0), -EIO);
	assert_int_equal(ib_peek_cq(mine.cq, 1), -EIO);
	assert_int_equal(ib_poll_cq(mine.cq, 1, &wc), -EIO);
	assert_int_equal(ib_req_notify_cq(mine.cq, IB_CQ_NEXT_COMP), -EIO);
	assert_int_equal(ib_req_ncomp_notif(mine.cq, 1), -EIO);
}

static void mine_refuses_creates(struct ib_device *device)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ib_qp_init_attr qp = mine_qp();
	struct ib_fmr_attr fmr = mine_fmr();
	struct ib_ah_attr ah = mine_address();
	struct ib_phys_buf buf = { (uintptr_t)mine.page, BYTES };
	u64 iova = 0;

	assert_int_equal(PTR_ERR(ib_alloc_pd(device)), -EIO);
	assert_int_equal(PTR_ERR(ib_create_cq(device, NULL, NULL, NULL, 16, 0)), -EIO);
	assert_int_equal(PTR_ERR(ib_create_qp(mine.pd, &qp)), -EIO);
	assert_int_equal(PTR_ERR(ib_create_srq(mine.pd, &srq)), -EIO);
	assert_int_equal(PTR_ERR(ib_get_dma_mr(mine.pd, 0)), -EIO);
	assert_int_equal(PTR_ERR(ib_reg_phys_mr(mine.pd, &buf, 1, 0, &iova)), -EIO);
	assert_int_equal(PTR_ERR(ib_alloc_mr(mine.pd, IB_MR_TYPE_MEM_REG, 4)), -EIO);
	assert_int_equal(PTR_ERR(ib_alloc_mw(mine.pd)), -EIO);
	assert_int_equal(PTR_ERR(ib_alloc_fmr(mine.pd, 0, &fmr)), -EIO);
	assert_int_equal(PTR_ERR(ib_create_ah(mine.pd, &ah)), -EIO);
}

/* Everything can be destroyed. */
static void mine_close(void)
{
	struct list_head fmrs;

	list_init(&fmrs);
	list_push_back(&fmrs, &mine.fmr->list);
	assert_int_equal(ib_unmap_fmr(&fmrs), 0);
	assert_int_equal(ib_dealloc_fmr(mine.fmr), 0);
	assert_int_equal(ib_destroy_ah(mine.ah), 0);
	assert_int_equal(ib_dealloc_mw(mine.mw), 0);
	assert_int_equal(ib_dereg_mr(mine.fast), 0);
	assert_int_equal(ib_dereg_mr(mine.mr), 0);
	assert_int_equal(ib_destroy_srq(mine.srq), 0);
	assert_int_equal(ib_detach_mcast(mine.qp, mine_group(), GROUP_LID), 0);
	assert_int_equal(ib_detach_mcast(mine.qp, mine_group(), GROUP_LID), -EINVAL);
	assert_int_equal(ib_destroy_qp(mine.qp), 0);
	assert_int_equal(ib_destroy_cq(mine.cq), 0);
	assert_int_equal(ib_dealloc_pd(mine.pd), 0);
	free(mine.page);
}

static struct {
	int added, removed; /* of roce1; atomic */
	bool uses;	    /* has objects on it */
} heard;

static void client_add(struct ib_device *device)
{
	if (strcmp(device->name, "roce1") != 0)
		return;
	if (heard.uses) {
		mine_open(device);
		upper_open(device);
	}
	__atomic_add_fetch(&heard.added, 1, __ATOMIC_SEQ_CST);
}

static void client_remove(struct ib_device *device)
{
	if (strcmp(device->name, "roce1") != 0)
		return;
	if (heard.uses) {
		mine_refuses_queries(device);
		mine_refuses_changes(device);
		mine_refuses_creates(device);
		upper_close();
		mine_close();
	}
	heard.uses = false;
	__atomic_add_fetch(&heard.removed, 1, __ATOMIC_SEQ_CST);
}

static void removal__is_told_to_clients(void **state)
{
	struct ib_client client = { .name = "test", .add = client_add, .remove = client_remove };

	heard.uses = true;
	assert_int_equal(ib_register_client(&client), 0);
	assert_true(reaches(&heard.added, 1));
	run(DEVICE("remove roce1"));
	assert_true(reaches(&heard.removed, 1));
	run(DEVICE("add roce1"));
	assert_true(reaches(&heard.added, 2));
	ib_unregister_client(&client);
	assert_true(reaches(&heard.removed, 2));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(removal__is_told_to_clients),
	};
	char node[32];

	snprintf(node, sizeof(node), "removal-%d", (int)getpid());
	setenv("ANYVERBS_NODE", node, 1);
	setenv("ANYVERBS_DEVICES", "roce0,roce1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
