/* asleep_test.c: a consumer that sleeps on its channel's descriptor hears of a message although no
 * tick of the engine's thread ever ends.
 * In: messages of this process to itself    Out: verdicts    Runs: cmocka    Locks: none
 *
 * This program's syscall() stands before libc's: the engine's thread that sleeps for a tick sleeps
 * until something wakes it.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

enum {
	DEPTH = 64,
	LENGTH = 8,
	TICK_MS = 1,
	ROUNDS = 20,
	POLLED = 2000,		 /* messages between threads that poll */
	LINE_SENDS = 2 * POLLED, /* none of a line is signalled: no place becomes free */
	STRAY = 10,		 /* rings of earlier arms, at most */
	NEXT = 0,
	SOLICITED = 1,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char bytes[4096];
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *quiet_cq, *heard_cq;
static int sleeps, asleep; /* of the engine's thread */

/* Only system calls of the library come here. */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*libcs)(long, ...);
	char name[16] = "";
	long a[6], n;
	va_list list;
	int timeout;

	if (libcs == NULL)
		*(void **)&libcs = dlsym(RTLD_NEXT, "syscall");
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	prctl(PR_GET_NAME, name);
	if (number != SYS_epoll_pwait || strcmp(name, "anyverbs/engine") != 0)
		return libcs(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	timeout = (int)a[3];
	__atomic_add_fetch(&sleeps, timeout != 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&asleep, timeout != 0, __ATOMIC_SEQ_CST);
	if (timeout > 0 && timeout <= TICK_MS)
		a[3] = -1;
	n = libcs(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
	return n;
}

/* The engine's thread has gone to sleep after `before`. */
static void await_sleep(int before)
{
	for (int ms = 0; ms < PAIR_WAIT_MS; ms++) {
		if (__atomic_load_n(&sleeps, __ATOMIC_SEQ_CST) > before &&
		    __atomic_load_n(&asleep, __ATOMIC_SEQ_CST))
			return;
		usleep(1000);
	}
	fail_msg("the engine's thread does not come to rest");
}

/* ---- two connections: the quiet one completes where nobody is told --------------------------- */

struct line {
	struct ibv_qp *from, *to;
	struct ibv_srq *srq;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
};

static struct ibv_qp *line_qp(struct ibv_cq *recv_cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = send_cq,
					 .recv_cq = recv_cq,
					 .srq = srq,
					 .cap = { LINE_SENDS, srq ? 0 : DEPTH, 1, srq ? 0 : 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

static void line_open(struct line *l, struct ibv_cq *cq)
{
	uint8_t gid_index = side_on_wire() ? 1 : 0; /* a link-local address reaches no other host */
	struct ibv_qp_attr a;
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(ctx, CONN_PORT, gid_index, &gid), 0);
	a = conn_attr(0, &gid, gid_index);
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	l->from = line_qp(cq, NULL);
	l->to = line_qp(cq, l->srq);
	assert_int_equal(conn_pair(l->to, l->from, &a), 0);
}

static void line_close(struct line *l)
{
	assert_int_equal(ibv_destroy_qp(l->from), 0);
	assert_int_equal(ibv_destroy_qp(l->to), 0);
	if (l->srq != NULL)
		assert_int_equal(ibv_destroy_srq(l->srq), 0);
}

static void line_send(struct line *l)
{
	struct ibv_sge from = { (uintptr_t)bytes, LENGTH, mr->lkey };
	struct ibv_sge to = { (uintptr_t)bytes + LENGTH, LENGTH, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr *bad, send = { .sg_list = &from,
					  .num_sge = 1,
					  .opcode = l->opcode,
					  .send_flags = l->flags };

	send.wr.rdma.remote_addr = (uintptr_t)bytes + 2 * LENGTH;
	send.wr.rdma.rkey = mr->rkey;
	if (l->srq != NULL)
		assert_int_equal(ibv_post_srq_recv(l->srq, &recv, &bad_recv), 0);
	else
		assert_int_equal(ibv_post_recv(l->to, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(l->from, &send, &bad), 0);
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 1)
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static bool take_event(int timeout_ms)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, timeout_ms) != 1)
		return false;
	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
	assert_ptr_equal(cq, heard_cq);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void expect_event(void)
{
	if (!take_event(PAIR_WAIT_MS))
		fail_msg("the consumer sleeps, and its message waits for a tick");
}

/* Of a test that has failed nothing is left. */
static int begin(void **state)
{
	drain(heard_cq);
	drain(quiet_cq);
	drain(send_cq);
	while (take_event(0))
		continue;
	return 0;
}

/* A message that completes nothing here takes the ring of an arm; the next one is heard. */
static void hear_behind_a_quiet_message(struct line *l, int kind)
{
	struct line quiet = { .opcode = IBV_WR_SEND };

	line_open(&quiet, quiet_cq);
	for (int i = 0; i < ROUNDS; i++) {
		int before;

		drain(heard_cq);
		assert_int_equal(ibv_req_notify_cq(heard_cq, kind), 0);
		drain(heard_cq);
		before = __atomic_load_n(&sleeps, __ATOMIC_SEQ_CST);
		line_send(&quiet);
		await_sleep(before);
		line_send(l);
		expect_event();
		drain(heard_cq);
		drain(quiet_cq);
		drain(send_cq);
	}
	line_close(&quiet);
}

static void asleep__hears_of_a_send(void **state)
{
	struct line l = { .opcode = IBV_WR_SEND };

	line_open(&l, heard_cq);
	hear_behind_a_quiet_message(&l, NEXT);
	line_close(&l);
}

static void asleep__hears_of_a_solicited_send(void **state)
{
	struct line l = { .opcode = IBV_WR_SEND, .flags = IBV_SEND_SOLICITED };

	line_open(&l, heard_cq);
	hear_behind_a_quiet_message(&l, SOLICITED);
	line_close(&l);
}

static void asleep__hears_of_a_write_with_immediate(void **state)
{
	struct line l = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM };

	line_open(&l, heard_cq);
	hear_behind_a_quiet_message(&l, NEXT);
	line_close(&l);
}

static void asleep__hears_by_a_shared_receive_queue(void **state)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct line l = { .opcode = IBV_WR_SEND, .srq = ibv_create_srq(pd, &init) };

	assert_non_null(l.srq);
	line_open(&l, heard_cq);
	hear_behind_a_quiet_message(&l, NEXT);
	line_close(&l);
}

/* The engine's thread sleeps for a tick, and nobody rings it. */
static void begin_tick(struct line *quiet)
{
	int before;

	drain(quiet_cq);
	assert_int_equal(ibv_req_notify_cq(quiet_cq, NEXT), 0); /* it has no channel */
	before = __atomic_load_n(&sleeps, __ATOMIC_SEQ_CST);
	line_send(quiet);
	await_sleep(before);
}

/* The message lies in the ring when the consumer arms, and nobody polls after that. */
static void asleep__hears_of_what_came_before_the_arm(void **state)
{
	struct line quiet = { .opcode = IBV_WR_SEND }, l = quiet;
	const char *variant = getenv("VERBS_VARIANT");

	if (variant != NULL && strstr(variant, "strict") != NULL)
		skip(); /* where another thread receives it before the arm, no event is due */
	line_open(&quiet, quiet_cq);
	line_open(&l, heard_cq);
	for (int i = 0; i < ROUNDS; i++) {
		begin_tick(&quiet);
		line_send(&l);
		assert_int_equal(ibv_req_notify_cq(heard_cq, NEXT), 0);
		expect_event();
		drain(heard_cq);
		drain(quiet_cq);
		drain(send_cq);
	}
	line_close(&l);
	line_close(&quiet);
}

/* No consumer is asleep: the engine's thread stays asleep. */
static void awake__pollers_ring_nobody(void **state)
{
	struct line l = { .opcode = IBV_WR_SEND };
	struct ibv_wc wc;
	int before;

	if (side_on_wire())
		skip(); /* a process that polls now and then leaves its datagrams to that thread */
	line_open(&l, quiet_cq);
	begin_tick(&l);
	drain(quiet_cq);
	before = __atomic_load_n(&sleeps, __ATOMIC_SEQ_CST);
	for (int i = 0; i < POLLED; i++) {
		line_send(&l);
		while (ibv_poll_cq(quiet_cq, 1, &wc) == 0)
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_in_range(__atomic_load_n(&sleeps, __ATOMIC_SEQ_CST) - before, 0, STRAY);
	line_close(&l);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int asleep_setup(void **state)
{
	ctx = device_open(NULL);
	if (ctx == NULL)
		return -1;
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	channel = ibv_create_comp_channel(ctx);
	send_cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	quiet_cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	heard_cq = ibv_create_cq(ctx, DEPTH, NULL, channel, 0);
	return mr == NULL || send_cq == NULL || quiet_cq == NULL || heard_cq == NULL ? -1 : 0;
}

static int asleep_teardown(void **state)
{
	int err = ibv_destroy_cq(heard_cq);

	err |= ibv_destroy_cq(quiet_cq);
	err |= ibv_destroy_cq(send_cq);
	err |= ibv_destroy_comp_channel(channel);
	err |= ibv_dereg_mr(mr);
	err |= ibv_dealloc_pd(pd);
	err |= ibv_close_device(ctx);
	return err;
}

#define WITH(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		WITH(asleep__hears_of_a_send),
		WITH(asleep__hears_of_a_solicited_send),
		WITH(asleep__hears_of_a_write_with_immediate),
		WITH(asleep__hears_by_a_shared_receive_queue),
		WITH(asleep__hears_of_what_came_before_the_arm),
		WITH(awake__pollers_ring_nobody),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, asleep_setup, asleep_teardown);
}
