/* stack_test.c: calls on the least stack that a thread may have (PTHREAD_STACK_MIN), the first ones
 * of the process included, which attach it to the node. A page below it faults.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "cm.h"

enum { STACK = 16384, GUARD = 4096, PAINT = 0xa5, BYTES = 64, PAGES = 1 << 20 };

static ucontext_t back, there;

/* Runs it on the small stack, and says how much it took. */
static void on_small_stack(const char *name, void (*fn)(void))
{
	unsigned char *map = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *stack = map + GUARD;
	int free_bytes = 0;

	assert_true(map != MAP_FAILED);
	assert_int_equal(mprotect(map, GUARD, PROT_NONE), 0);
	memset(stack, PAINT, STACK);
	assert_int_equal(getcontext(&there), 0);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &back;
	makecontext(&there, fn, 0);
	assert_int_equal(swapcontext(&back, &there), 0);
	while (free_bytes < STACK && stack[free_bytes] == PAINT)
		free_bytes++;
	printf("%s: %d bytes of stack\n", name, STACK - free_bytes);
	assert_int_equal(munmap(map, GUARD + STACK), 0);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static struct ibv_context *verbs;
static union ibv_gid gid;
static char bytes[2 * BYTES];

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;

	assert_non_null(list);
	verbs = ibv_open_device(list[0]);
	assert_non_null(verbs);
	ibv_free_device_list(list);
	assert_int_equal(ibv_query_device_ex(verbs, NULL, &attr), 0);
	assert_int_equal(ibv_query_port(verbs, 1, &port), 0);
	assert_int_equal(ibv_query_gid(verbs, 1, 1, &gid), 0);
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_ACCESS_FLAGS),
			 0);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = qp->qp_num;
	a.max_dest_rd_atomic = a.max_rd_atomic = 1;
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1,
					  .port_num = 1,
					  .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 9 } };
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = a.rnr_retry = 7;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void post(struct ibv_qp *qp, struct ibv_mr *mr, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)bytes, BYTES, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = (uintptr_t)bytes + BYTES;
	wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	while ((n = ibv_poll_cq(qp->send_cq, 1, &wc)) == 0)
		;
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void use_verbs(void)
{
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_READ);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(verbs);
	struct ibv_cq *cq = ibv_create_cq(verbs, 16, NULL, ch, 0);
	struct ibv_sge sge = { (uintptr_t)bytes + BYTES, BYTES, 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	assert_non_null(mr);
	init.send_cq = cq;
	init.recv_cq = ibv_create_cq(verbs, 16, NULL, NULL, 0);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	to_rts(qp);
	sge.lkey = mr->lkey;
	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
	post(qp, mr, IBV_WR_SEND);
	assert_int_equal(ibv_poll_cq(init.recv_cq, 1, &wc), 1);
	post(qp, mr, IBV_WR_RDMA_WRITE);
	post(qp, mr, IBV_WR_RDMA_READ);
	assert_int_equal(ibv_get_cq_event(ch, &cq, (void **)&bad), 0);
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(init.recv_cq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(verbs), 0);
}

/* The first region of whole pages, which asks for maps and limits of memory; a fork beside it. */
static void adopt_and_fork(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	struct ibv_mr *mr;
	char *pages = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status = 1;
	pid_t child;

	assert_true(pages != MAP_FAILED);
	assert_non_null(pd);
	mr = ibv_reg_mr(pd, pages, PAGES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(mr);
	child = fork();
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(munmap(pages, PAGES), 0);
}

static void ibv_calls__fit(void **state)
{
	on_small_stack("opening a device", open_device);
	on_small_stack("a region of pages, and fork", adopt_and_fork);
	on_small_stack("verbs", use_verbs);
}

/* ---- the RDMA CM ----------------------------------------------------------------------------- */

static void connect_and_leave(void)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	assert_int_equal(rdma_connect(e.client, &param), 0);
	event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	e.server = event->id;
	rdma_ack_cm_event(event);
	make_qp(e.server);
	assert_int_equal(rdma_accept(e.server, &param), 0);
	for (int i = 0; i < 2; i++)
		rdma_ack_cm_event(event_of(channel, RDMA_CM_EVENT_ESTABLISHED));
	assert_int_equal(rdma_disconnect(e.client), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, e.server);
	destroy_all(&e);
}

static void join_and_leave(void)
{
	struct sockaddr_in group = { .sin_family = AF_INET };
	struct rdma_cm_id *id;

	group.sin_addr.s_addr = inet_addr("239.77.4.2");
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	make_qp(id);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
	expect(RDMA_CM_EVENT_MULTICAST_JOIN, id);
	assert_int_equal(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
	destroy(id);
}

static void rdma_calls__fit(void **state)
{
	on_small_stack("a connection", connect_and_leave);
	on_small_stack("a group", join_and_leave);
}

/* ---- rsockets -------------------------------------------------------------------------------- */

static int listener;
static struct sockaddr_in at;

static void listen_at_any(void)
{
	socklen_t len = sizeof(at);

	at = *(struct sockaddr_in *)local(0);
	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_true(listener >= 0);
	assert_int_equal(rbind(listener, (struct sockaddr *)&at, len), 0);
	assert_int_equal(rlisten(listener, 4), 0);
	assert_int_equal(rgetsockname(listener, (struct sockaddr *)&at, &len), 0);
}

static void *connect_small(void *arg)
{
	int *fd = arg;

	*fd = rsocket(AF_INET, SOCK_STREAM, 0);
	return rconnect(*fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? arg : NULL;
}

static void talk(void)
{
	struct timeval limit = { .tv_sec = EVENT_MS / 1000 };
	pthread_t thread;
	void *result;
	fd_set set;
	int fd, s;

	assert_int_equal(pthread_create(&thread, NULL, connect_small, &fd), 0);
	s = raccept(listener, NULL, NULL);
	assert_true(s >= 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, &fd);
	assert_int_equal(rsend(fd, bytes, BYTES, 0), BYTES);
	FD_ZERO(&set);
	FD_SET(s, &set);
	assert_int_equal(rselect(s + 1, &set, NULL, NULL, &limit), 1);
	assert_int_equal(rrecv(s, bytes, BYTES, 0), BYTES);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(s), 0);
	assert_int_equal(rclose(listener), 0);
}

static void rsockets__fit(void **state)
{
	on_small_stack("a listening rsocket", listen_at_any);
	on_small_stack("rsockets", talk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ibv_calls__fit),
		cmocka_unit_test_setup_teardown(rdma_calls__fit, begin, end),
		cmocka_unit_test(rsockets__fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
