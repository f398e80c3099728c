/* forks.c: a process that forks while its threads are inside calls of the doors, or of the shim of
 * --rsockets: whichever lock a thread has at that moment, the child, which makes the same call,
 * does not wait for it.
 * In:    how many forks per row; "shim": the rows of the shim, under anyverbs run --rsockets
 * Out:   0, or the rows whose children hung or failed
 * Runs:  two threads per row; children
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/umad.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

enum { THREADS = 2, CHILD_SECONDS = 60, ATTACH_STEPS = 16, ATTACH_STEP_US = 400 };

static struct sockaddr_in loopback = { .sin_family = AF_INET };
static struct ibv_context *context;
static int tcp; /* a socket that all threads and children have */
/* likewise; `raw` is NULL in a process that may not have one */
static struct {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_qp *qp, *raw;
	struct ibv_counters *counters;
	struct rdma_cm_id *id;
} old;
static int stop; /* atomic */

/* ---- the calls: 0 if they did what they should ----------------------------------------------- */

static int call_list(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (list == NULL)
		return 1;
	ibv_free_device_list(list);
	return count == 0;
}

static int call_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = list == NULL ? NULL : ibv_open_device(list[0]);

	if (opened == NULL)
		return 1;
	ibv_free_device_list(list);
	return ibv_close_device(opened);
}

static int call_query(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;

	return ibv_query_port(context, 1, &port) != 0 || ibv_query_gid(context, 1, 0, &gid) != 0;
}

/* A region, a CQ and a queue pair. */
static int call_objects(void)
{
	static char bytes[4096];
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = pd == NULL ? NULL : ibv_reg_mr(pd, bytes, sizeof(bytes), 1);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp = mr == NULL || cq == NULL ? NULL : ibv_create_qp(pd, &init);

	return qp == NULL || ibv_destroy_qp(qp) != 0 || ibv_destroy_cq(cq) != 0 ||
	       ibv_dereg_mr(mr) != 0 || ibv_dealloc_pd(pd) != 0;
}

/* An XRC domain and a target queue pair. */
static int call_xrc(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = xrcd };
	struct ibv_qp *qp = xrcd == NULL ? NULL : ibv_create_qp_ex(context, &init);

	return qp == NULL || ibv_destroy_qp(qp) != 0 || ibv_close_xrcd(xrcd) != 0;
}

static int call_devices(void)
{
	int count = 0;
	struct ibv_context **list = rdma_get_devices(&count);

	if (list != NULL)
		rdma_free_devices(list);
	return count == 0;
}

static int call_cm(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int err;

	if (channel == NULL || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
		return 1;
	err = rdma_bind_addr(id, (struct sockaddr *)&loopback) != 0 || rdma_listen(id, 1) != 0;
	err |= rdma_destroy_id(id) != 0;
	rdma_destroy_event_channel(channel);
	return err;
}

static int call_rsocket(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), dgram = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int err = fd < 0 || dgram < 0 ||
		  rbind(fd, (struct sockaddr *)&loopback, sizeof(loopback)) != 0 ||
		  rlisten(fd, 1) != 0 || rpoll(&p, 1, 0) != 0 ||
		  rbind(dgram, (struct sockaddr *)&loopback, sizeof(loopback)) != 0;

	return err | (rclose(fd) != 0) | (rclose(dgram) != 0);
}

static int call_umad(void)
{
	char names[UMAD_MAX_DEVICES][UMAD_CA_NAME_LEN];
	int port;

	if (umad_init() != 0 || umad_get_cas_names(names, UMAD_MAX_DEVICES) <= 0)
		return 1;
	port = umad_open_port(NULL, 0);
	return port >= 0 && umad_close_port(port) != 0;
}

static int call_option(void)
{
	int on = 1, err = 0;

	for (int i = 0; i < 20; i++) {
		err |= setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		err |= setsockopt(tcp, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	return err != 0;
}

/* To a port where nobody listens. */
static int call_connect(void)
{
	struct sockaddr_in to = loopback;
	int fd = socket(AF_INET, SOCK_STREAM, 0), err;

	to.sin_port = htons(9);
	err = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno != ECONNREFUSED;
	return close(fd) != 0 || err;
}

/* Sets of the kernel's, and sockets in them. */
static int call_epoll(void)
{
	int set = epoll_create1(0), fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, twin;
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int err = epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev) != 0 || epoll_wait(set, &ev, 1, 0) < 0;

	twin = dup(fd);
	err |= close(twin) != 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0;
	err |= bind(fd, (struct sockaddr *)&loopback, sizeof(loopback)) != 0 || listen(fd, 1) != 0;
	err |= poll(&p, 1, 0) < 0 || close(fd) != 0;
	return err | (close(set) != 0);
}

/* ---- objects that the child inherits: each call comes back
 * ------------------------------------ */

static int use_cq(void)
{
	return ibv_resize_cq(old.cq, 64) != 0 || ibv_resize_cq(old.cq, 128) != 0;
}

static int use_channel(void)
{
	struct ibv_cq *one = ibv_create_cq(context, 4, NULL, old.channel, 0);

	return one == NULL || ibv_destroy_cq(one) != 0;
}

static int use_counters(void)
{
	struct ibv_counter_attach_attr to = { .counter_desc = IBV_COUNTER_PACKETS };
	uint64_t value[2];

	for (int i = 0; i < 20; i++) {
		(void)ibv_attach_counters_point_flow(old.counters, &to, NULL);
		(void)ibv_read_counters(old.counters, value, 2, 0);
	}
	return 0;
}

static int use_raw(void)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND };

	for (int i = 0; i < 20; i++)
		(void)ibv_post_send(old.raw, &wr, &bad);
	return 0;
}

static int use_group(void)
{
	for (int i = 0; i < 20; i++)
		(void)rdma_leave_multicast(old.id, (struct sockaddr *)&loopback);
	return 0;
}

static int use_poll(void)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };

	return ibv_start_poll(old.cq_ex, &attr) != ENOENT;
}

static int use_batch(void)
{
	ibv_wr_start(ibv_qp_to_qp_ex(old.qp));
	ibv_wr_abort(ibv_qp_to_qp_ex(old.qp));
	return 0;
}

static int use_ack(void)
{
	ibv_ack_cq_events(old.cq, 1);
	return 0;
}

/* What a thread holds while the process forks. */
static void hold_batch(void)
{
	ibv_wr_start(ibv_qp_to_qp_ex(old.qp));
}

static void leave_batch(void)
{
	ibv_wr_abort(ibv_qp_to_qp_ex(old.qp));
}

static void hold_poll(void)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };

	if (ibv_start_poll(old.cq_ex, &attr) != 0)
		abort();
}

static void leave_poll(void)
{
	ibv_end_poll(old.cq_ex);
}

static void hold_count(void)
{
	pthread_mutex_lock(&old.cq->mutex);
}

static void leave_count(void)
{
	pthread_mutex_unlock(&old.cq->mutex);
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* 0: the child's call did what it should; else how it ended. */
static int fork_once(int (*call)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(CHILD_SECONDS);
		_exit(call());
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid ? -1 : status;
}

static void *call_until_stopped(void *call)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		((int (*)(void))call)();
	return NULL;
}

static int beside_calls(int (*call)(void), int forks)
{
	pthread_t threads[THREADS];
	int status = call();

	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, call_until_stopped, (void *)call);
	for (int i = 0; i < forks && status == 0; i++)
		status = fork_once(call);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return status;
}

struct holder {
	const char *name;
	void (*hold)(void), (*leave)(void);
	int (*call)(void); /* the child's */
	pthread_barrier_t turn;
};

static void *hold_over_fork(void *arg)
{
	struct holder *h = arg;

	h->hold();
	pthread_barrier_wait(&h->turn);
	pthread_barrier_wait(&h->turn);
	h->leave();
	return NULL;
}

static int beside_holder(struct holder *h)
{
	pthread_t thread;
	int status;

	pthread_barrier_init(&h->turn, NULL, 2);
	pthread_create(&thread, NULL, hold_over_fork, h);
	pthread_barrier_wait(&h->turn);
	status = fork_once(h->call);
	pthread_barrier_wait(&h->turn);
	pthread_join(thread, NULL);
	return status;
}

/* In a process that has not attached: a thread does, and the process forks some time later. */
static int first_call_us;

static void *call_first(void *call)
{
	((int (*)(void))call)();
	return NULL;
}

static int first_call(void)
{
	struct timespec pause = { .tv_nsec = first_call_us * 1000L };
	pthread_t thread;
	int status;

	pthread_create(&thread, NULL, call_first, (void *)call_devices);
	nanosleep(&pause, NULL);
	status = fork_once(call_devices);
	pthread_join(thread, NULL);
	return WIFSIGNALED(status) ? 2 : status != 0;
}

static int beside_attachments(int forks)
{
	int status = 0;

	for (int i = 0; i < forks && status == 0; i++) {
		first_call_us = i % ATTACH_STEPS * ATTACH_STEP_US;
		status = fork_once(first_call);
	}
	return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct row {
	const char *name;
	int (*call)(void);
	bool shim;
} rows[] = {
	{ "ibv_get_device_list", call_list, false }, { "ibv_open_device", call_open, false },
	{ "ibv_query_port", call_query, false },     { "ibv_create_qp", call_objects, false },
	{ "ibv_open_xrcd", call_xrc, false },	     { "rdma_get_devices", call_devices, false },
	{ "rdma_create_id", call_cm, false },	     { "rsocket", call_rsocket, false },
	{ "umad_open_port", call_umad, false },	     { "setsockopt", call_option, true },
	{ "connect", call_connect, true },	     { "epoll_ctl", call_epoll, true },
	{ "ibv_resize_cq", use_cq, false },	     { "a channel", use_channel, false },
	{ "counters", use_counters, false },	     { "a raw queue pair", use_raw, false },
	{ "rdma_leave_multicast", use_group, false },
};

static struct holder holders[] = {
	{ "ibv_start_poll", hold_poll, leave_poll, use_poll, { { 0 } } },
	{ "ibv_wr_start", hold_batch, leave_batch, use_batch, { { 0 } } },
	{ "ibv_cq.mutex", hold_count, leave_count, use_ack, { { 0 } } },
};

static int row_told(const char *name, int status)
{
	if (status != 0)
		printf("%s: a child %s: status %#x\n", name,
		       WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "hung" : "failed",
		       status);
	return status != 0;
}

static int open_context(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	context = list == NULL || list[0] == NULL ? NULL : ibv_open_device(list[0]);
	return context == NULL;
}

/* A queue pair in the error state: a receive completes at once. */
static int make_completion(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr *bad, wr = { .wr_id = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int err = ibv_modify_qp(old.qp, &attr, mask);

	attr.qp_state = IBV_QPS_ERR;
	return err != 0 || ibv_modify_qp(old.qp, &attr, IBV_QP_STATE) != 0 ||
	       ibv_post_recv(old.qp, &wr, &bad) != 0;
}

static int make_objects(void)
{
	struct ibv_cq_init_attr_ex ex = { .cqe = 4 };
	struct ibv_counters_init_attr ci = { 0 };
	struct ibv_qp_init_attr raw_init = { .qp_type = IBV_QPT_RAW_PACKET,
					     .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC,
					    .cap = { 1, 1, 1, 1, 0 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .send_ops_flags = IBV_QP_EX_WITH_SEND };

	init.pd = old.pd = ibv_alloc_pd(context);
	old.channel = ibv_create_comp_channel(context);
	old.cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	old.cq_ex = ibv_create_cq_ex(context, &ex);
	old.counters = ibv_create_counters(context, &ci);
	if (old.pd == NULL || old.channel == NULL || old.cq == NULL || old.cq_ex == NULL ||
	    old.counters == NULL)
		return 1;
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(old.cq_ex);
	old.qp = ibv_create_qp_ex(context, &init);
	raw_init.send_cq = raw_init.recv_cq = old.cq;
	old.raw = ibv_create_qp(old.pd, &raw_init);
	return old.qp == NULL || make_completion() != 0 ||
	       rdma_create_id(rdma_create_event_channel(), &old.id, NULL, RDMA_PS_UDP) != 0;
}

static int library_begin(int forks)
{
	int failed = row_told("the first call", beside_attachments(forks));

	if (open_context() != 0 || make_objects() != 0) {
		perror("objects");
		return 1;
	}
	for (size_t i = 0; i < sizeof(holders) / sizeof(holders[0]); i++)
		failed |= row_told(holders[i].name, beside_holder(&holders[i]));
	return failed;
}

int main(int argc, char **argv)
{
	int forks = argc > 1 ? atoi(argv[1]) : 0, failed = 0;
	bool shim = argc > 2 && strcmp(argv[2], "shim") == 0;

	loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!shim)
		failed = library_begin(forks);
	tcp = shim ? socket(AF_INET, SOCK_STREAM, 0) : -1;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].shim == shim && (rows[i].call != use_raw || old.raw != NULL))
			failed |= row_told(rows[i].name, beside_calls(rows[i].call, forks));
	return failed;
}
