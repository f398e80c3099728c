/* context_test.c: the verbs that may not sleep, called from wherever that matters; and one object
 * under many threads with exact accounts.
 * In:    -    Out: -    Runs: the test's threads, a completion vector, the midlayer's event thread
 */
#include "kit.h"

#include <arpa/inet.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "event/event.h"

/* ---- where they are called from -------------------------------------------------------------- */

static void kit_comp_handler(struct ib_cq *cq, void *context)
{
	struct ib_wc wc;

	kit_round();
	EXPECT(ib_poll_cq(cq, 1, &wc) == 1);
	EXPECT(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) == 0);
	count_add(&kit.done);
}

static void never_sleep__from_a_completion_handler(void **state)
{
	kit_open();
	for (int v = 0; v < rig.dev->num_comp_vectors; v++) {
		struct ib_cq *cq = rig_handler_cq(kit_comp_handler, NULL, 64, v);
		struct link trigger;

		kit.done = 0;
		link_open(&trigger, IB_QPT_RC, cq);
		assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
		for (int i = 0; i < 5; i++) {
			link_ping(&trigger, 1, 0);
			assert_true(rig_await(&kit.done, i + 1));
		}
		link_close(&trigger);
	}
	kit_close();
}

static void kit_event_handler(struct ib_event_handler *handler, struct ib_event *event)
{
	if (event->event != IB_EVENT_PORT_ACTIVE)
		return;
	kit_round();
	count_add(&kit.done);
}

static void never_sleep__from_an_event_handler(void **state)
{
	struct ib_event event = { .device = rig.dev,
				  .event = IB_EVENT_PORT_ACTIVE,
				  .element.port_num = 1 };
	struct ib_event_handler handler;

	kit_open();
	INIT_IB_EVENT_HANDLER(&handler, rig.dev, kit_event_handler);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	for (int i = 0; i < 5; i++)
		ib_dispatch_event(&event);
	assert_true(rig_await(&kit.done, 5));
	assert_int_equal(ib_unregister_event_handler(&handler), 0);
	kit_close();
}

static void *blocked_main(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (int i = 0; i < 20; i++)
		kit_round();
	return NULL;
}

static void never_sleep__with_all_signals_blocked(void **state)
{
	pthread_t t;

	kit_open();
	assert_int_equal(pthread_create(&t, NULL, blocked_main, NULL), 0);
	pthread_join(t, NULL);
	assert_int_equal(kit.rounds, 20);
	kit_close();
}

/* ---- without any system call that could sleep ------------------------------------------------ */

static int caught_call, caught_count;

static void caught(int sig, siginfo_t *info, void *context)
{
	__atomic_store_n(&caught_call, info->si_syscall, __ATOMIC_RELEASE);
	count_add(&caught_count);
}

#define TRAP_CALL(nr)                                                                              \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
/* Unless the flags, argument `arg`, have MSG_DONTWAIT. */
#define TRAP_WAITING(nr, arg)                                                                      \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 4),                                           \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[arg])),      \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MSG_DONTWAIT, 0, 1),                          \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                                      \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
/* Unless the timeout, argument `arg`, is 0: then it only looks. */
#define TRAP_TIMED(nr, arg)                                                                        \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 4),                                           \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[arg])),      \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),                                      \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                                      \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

/* For this thread, for ever. Futexes stay: locks whose sections never block may use them. */
static bool forbid_sleep(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		TRAP_CALL(SYS_read),
		TRAP_CALL(SYS_readv),
		TRAP_CALL(SYS_openat),
		TRAP_CALL(SYS_connect),
		TRAP_CALL(SYS_accept4),
		TRAP_CALL(SYS_ppoll),
		TRAP_CALL(SYS_pselect6),
		TRAP_CALL(SYS_nanosleep),
		TRAP_CALL(SYS_clock_nanosleep),
		TRAP_CALL(SYS_wait4),
		TRAP_CALL(SYS_waitid),
		TRAP_CALL(SYS_fsync),
		TRAP_CALL(SYS_flock),
#ifdef __x86_64__
		TRAP_CALL(SYS_open),
		TRAP_CALL(SYS_select),
		TRAP_CALL(SYS_pause),
		TRAP_TIMED(SYS_poll, 2),
		TRAP_TIMED(SYS_epoll_wait, 3),
#endif
		TRAP_WAITING(SYS_sendmsg, 2),
		TRAP_WAITING(SYS_recvmsg, 2),
		TRAP_WAITING(SYS_sendto, 3),
		TRAP_WAITING(SYS_recvfrom, 3),
		TRAP_WAITING(SYS_sendmmsg, 3),
		TRAP_WAITING(SYS_recvmmsg, 3),
		TRAP_TIMED(SYS_epoll_pwait, 3),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void *sleepless_main(void *arg)
{
	int *forbidden = arg;

	if (!forbid_sleep())
		return NULL;
	usleep(1); /* the trap works */
	*forbidden = count_get(&caught_count);
	caught_count = 0;
	for (int i = 0; i < 20; i++)
		kit_round();
	return NULL;
}

static void never_sleep__without_calls_that_sleep(void **state)
{
	struct sigaction catch = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO }, before;
	int forbidden = 0;
	pthread_t t;

	caught_call = caught_count = 0;
	kit_open();
	assert_int_equal(sigaction(SIGSYS, &catch, &before), 0);
	assert_int_equal(pthread_create(&t, NULL, sleepless_main, &forbidden), 0);
	pthread_join(t, NULL);
	sigaction(SIGSYS, &before, NULL);
	if (count_get(&caught_count))
		print_error("system call %d was made\n", count_get(&caught_call));
	assert_int_equal(caught_count, 0);
	kit_close();
	if (!forbidden)
		skip();
}

/* ---- many threads on one object -------------------------------------------------------------- */

enum { CROWD = 8, CROWD_EACH = 400, CROWD_ALL = CROWD * CROWD_EACH };

static struct crowd {
	struct ib_cq *cq;
	struct ib_srq *srq;
	struct ib_qp *a, *b;
	int sent[CROWD_ALL], received[CROWD_ALL], arrived[CROWD_ALL]; /* how often; atomic */
	int completions, faults;
} crowd;

enum { CROWD_RECV = 1 << 20 }; /* in wr_id: a receive */

static void crowd_account(const struct ib_wc *wc)
{
	u32 id = (u32)wc->wr_id & (CROWD_RECV - 1);
	bool recv = wc->wr_id & CROWD_RECV;

	if (wc->status != IB_WC_SUCCESS || id >= CROWD_ALL ||
	    wc->qp != (recv ? crowd.b : crowd.a) || recv != !!(wc->opcode & IB_WC_RECV) ||
	    (recv && wc->byte_len != 8)) {
		count_add(&crowd.faults);
		return;
	}
	count_add(recv ? &crowd.received[id] : &crowd.sent[id]);
	if (recv) {
		u64 payload = ((u64 *)rig.buf)[id];

		if (payload < CROWD_ALL)
			count_add(&crowd.arrived[payload]);
		else
			count_add(&crowd.faults);
	}
	count_add(&crowd.completions);
}

static int crowd_poll(void)
{
	struct ib_wc wc[5];
	int got = ib_poll_cq(crowd.cq, 5, wc);

	for (int i = 0; i < got; i++)
		crowd_account(&wc[i]);
	if (got < 0)
		count_add(&crowd.faults);
	if (got == 0)
		usleep(50);
	return got;
}

static void crowd_post(u64 id)
{
	struct ib_sge in = rig_sge(id * 8, 8), out = { .addr = (uintptr_t)&id, .length = 8 };
	struct ib_recv_wr recv = { .wr_id = id | CROWD_RECV, .sg_list = &in, .num_sge = 1 };
	struct ib_send_wr send = { .wr_id = id,
				   .sg_list = &out,
				   .num_sge = 1,
				   .opcode = IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE };
	int err;

	while ((err = ib_post_srq_recv(crowd.srq, &recv, NULL)) == -ENOMEM)
		crowd_poll();
	if (err)
		count_add(&crowd.faults);
	while ((err = ib_post_send(crowd.a, &send, NULL)) == -ENOMEM)
		crowd_poll();
	if (err)
		count_add(&crowd.faults);
}

static void *crowd_main(void *arg)
{
	u64 first = (u64)(uintptr_t)arg * CROWD_EACH;

	for (u64 i = 0; i < CROWD_EACH; i++) {
		crowd_post(first + i);
		if (i % 3 == 0)
			crowd_poll();
		ib_req_notify_cq(crowd.cq, IB_CQ_NEXT_COMP);
	}
	for (int idle = 0; idle < 100000 && count_get(&crowd.completions) < 2 * CROWD_ALL;)
		idle = crowd_poll() > 0 ? 0 : idle + 1;
	return NULL;
}

static int crowd_events;

static void crowd_handler(struct ib_cq *cq, void *context)
{
	count_add(&crowd_events);
}

static void reentrant__eight_threads_on_one_cq_qp_srq(void **state)
{
	rig_needs(create_srq);
	struct ib_srq_init_attr si = { .attr = { .max_wr = 256, .max_sge = 1 } };
	pthread_t t[CROWD];

	memset(&crowd, 0, sizeof(crowd));
	crowd.cq = rig_handler_cq(crowd_handler, NULL, 2048, 0);
	crowd.srq = rig_ok(ib_create_srq(rig.pd, &si));
	crowd.a = rig_qp(IB_QPT_RC, crowd.cq, crowd.cq, NULL);
	crowd.b = rig_qp(IB_QPT_RC, crowd.cq, crowd.cq, crowd.srq);
	rig_connect(crowd.a, &rig.gid, crowd.b->qp_num);
	rig_connect(crowd.b, &rig.gid, crowd.a->qp_num);
	for (u64 i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&t[i], NULL, crowd_main, (void *)(uintptr_t)i), 0);
	for (int i = 0; i < CROWD; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(crowd.faults, 0);
	assert_int_equal(crowd.completions, 2 * CROWD_ALL);
	for (int i = 0; i < CROWD_ALL; i++) {
		assert_int_equal(crowd.sent[i], 1);
		assert_int_equal(crowd.received[i], 1);
		assert_int_equal(crowd.arrived[i], 1);
	}
	assert_true(rig_await(&crowd_events, 1)); /* the vector may not have had its turn yet */
	assert_int_equal(ib_peek_cq(crowd.cq, 1), 0);
	assert_int_equal(ib_destroy_qp(crowd.a), 0);
	assert_int_equal(ib_destroy_qp(crowd.b), 0);
	assert_int_equal(ib_destroy_srq(crowd.srq), 0);
	assert_int_equal(ib_destroy_cq(crowd.cq), 0);
}

/* ---- a handle that changes under its senders ------------------------------------------------- */

enum { VERSIONS = 20000, IPV4_AT = 20 };

static struct ib_ah *shifting;
static union ib_gid shift_gid[2]; /* the second one maps an IPv4 address */
static int shift_stop;

/* Two ways to the same port, of which every field says which one it is. */
static struct ib_ah_attr shift_way(int which)
{
	struct ib_ah_attr way = { .ah_flags = IB_AH_GRH, .port_num = 1, .sl = (u8)which };

	way.grh = (struct ib_global_route){ .dgid = shift_gid[which],
					    .sgid_index = (u8)which,
					    .hop_limit = (u8)(which + 1),
					    .traffic_class = (u8)(4 * which + 4) };
	return way;
}

static void *shift_main(void *arg)
{
	for (int i = 0; !count_get(&shift_stop); i++) {
		struct ib_ah_attr way = shift_way(i % 2);

		ib_modify_ah(shifting, &way);
	}
	return NULL;
}

/* Where an IPv6 header would lie, or, 20 bytes on, an IPv4 header. */
static bool shift_is_one_way(const u8 *at)
{
	const struct ib_grh *grh = (const struct ib_grh *)at;
	const u8 *ip = at + IPV4_AT;

	if (ntohl(grh->version_tclass_flow) >> 28 == 6)
		return memcmp(&grh->sgid, &shift_gid[0], 16) == 0 &&
		       memcmp(&grh->dgid, &shift_gid[0], 16) == 0 && grh->hop_limit == 1 &&
		       (ntohl(grh->version_tclass_flow) >> 20 & 0xff) == 4;
	return ip[0] == 0x45 && ip[1] == 8 && ip[8] == 2 &&
	       memcmp(ip + 12, shift_gid[1].raw + 12, 4) == 0 &&
	       memcmp(ip + 16, shift_gid[1].raw + 12, 4) == 0;
}

/* What a datagram says of its way is what some modify_ah said, never a mixture. */
static void reentrant__a_send_sees_one_version_of_its_handle(void **state)
{
	static const union ib_gid none;
	struct ib_ah_attr way, seen;
	struct ib_sge out = rig_sge(0, 8);
	struct ib_send_wr wr = { .sg_list = &out,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED };
	struct link l;
	pthread_t t;

	if (rig_on_wire()) /* there a port has one kind of address only */
		skip();
	if (ib_query_gid(rig.dev, 1, 0, &shift_gid[0]) != 0 ||
	    ib_query_gid(rig.dev, 1, 1, &shift_gid[1]) != 0 ||
	    memcmp(&shift_gid[1], &none, sizeof(none)) == 0)
		skip();
	way = shift_way(0);
	link_open(&l, IB_QPT_UD, NULL);
	shifting = rig_ok(ib_create_ah(rig.pd, &way));
	wr.wr.ud.ah = shifting;
	wr.wr.ud.remote_qpn = l.b->qp_num;
	wr.wr.ud.remote_qkey = RIG_QKEY;
	shift_stop = 0;
	assert_int_equal(pthread_create(&t, NULL, shift_main, NULL), 0);
	for (int i = 0; i < VERSIONS; i++) {
		memset(rig.buf + 4096, 0, 64);
		rig_recv(l.b, 1, 4096, 64);
		rig_send(l.a, &wr);
		rig_drain(l.rcq, 1);
		rig_drain(l.scq, 1);
		assert_true(shift_is_one_way(rig.buf + 4096));
		assert_int_equal(ib_query_ah(shifting, &seen), 0);
		assert_int_equal(seen.grh.sgid_index, seen.sl);
		assert_memory_equal(&seen.grh.dgid, &shift_gid[seen.sl], sizeof(none));
	}
	count_add(&shift_stop);
	pthread_join(t, NULL);
	assert_int_equal(ib_destroy_ah(shifting), 0);
	link_close(&l);
}

/* Creation and destruction of everything at once; what is left over would keep the PD busy. */
static void *maker_main(void *arg)
{
	int *faults = arg;

	for (int i = 0; i < 40; i++) {
		struct ib_cq *cq = ib_create_cq(rig.dev, NULL, NULL, NULL, 16, 0);
		struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, cq, cq, NULL);
		struct ib_mr *mr = ib_get_dma_mr(rig.pd, IB_ACCESS_LOCAL_WRITE);
		struct ib_qp *qp = IS_ERR(cq) ? ERR_PTR(-EINVAL) : ib_create_qp(rig.pd, &init);

		if (IS_ERR(qp) || IS_ERR(mr) || rig_try_init(qp)) {
			count_add(faults);
			return NULL;
		}
		if (ib_destroy_cq(cq) != -EBUSY || ib_destroy_qp(qp) || ib_destroy_cq(cq) ||
		    ib_dereg_mr(mr))
			count_add(faults);
	}
	return NULL;
}

static void reentrant__objects_come_and_go(void **state)
{
	pthread_t t[4];
	int faults = 0;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, maker_main, &faults), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(faults, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(never_sleep__from_a_completion_handler, rig_setup),
		cmocka_unit_test_setup(never_sleep__from_an_event_handler, rig_setup),
		cmocka_unit_test_setup(never_sleep__with_all_signals_blocked, rig_setup),
		cmocka_unit_test_setup(never_sleep__without_calls_that_sleep, rig_setup),
		cmocka_unit_test_setup(reentrant__eight_threads_on_one_cq_qp_srq, rig_setup),
		cmocka_unit_test_setup(reentrant__a_send_sees_one_version_of_its_handle,
				       rig_setup),
		cmocka_unit_test_setup(reentrant__objects_come_and_go, rig_setup),
	};

	return rig_run_tests(tests);
}
