/* end.c: one end of a transfer, told what to do by lines on its standard input.
 *
 * qp KIND ROLE            a new queue pair (the old one goes): "qp QPN RKEY ADDR GID"
 * connect QPN RKEY ADDR GID                                     "connected"
 * go                      starts the traffic                    "going"
 * count                   completions so far                    "count N"
 * wait MS                 for the first error, at most so long  "ended STATUS" or "running N"
 * stop                    ends the traffic                      "stopped STATUS"
 * forget                  destroys the queue pair               "forgotten"
 * usage                   "usage DESCRIPTORS MAPS RSS_KB THREADS"
 * child                   a child that nobody is told of, with all descriptors   "child PID"
 * exec PROGRAM WORDS      becomes that program
 * vfork PROGRAM WORDS     a child does, which says the next lines
 * fill BYTE               all of its memory                     "filled"
 * dereg                   ibv_dereg_mr                          "dereg ERRNO MICROSECONDS"
 * other BYTE              how many bytes of it are not that     "other N"
 * quit                    gives everything back                 "bye"
 * KIND: send big uc ud write read atomic event; ROLE: sender receiver.
 * In the environment: END_UNDUMPABLE, peers may not reach its memory; END_NEVER_POLLS, a one-sided
 * target leaves its CQ alone; END_SPARE_MAPS=N, all maps but N are taken before the first verb;
 * END_AT=ADDRESS, there its memory lies; END_TWICE, it is registered twice.
 * In:   lines                 Out: lines, traffic
 * Runs: main reads the lines, one thread makes the traffic      Locks: none
 */
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../pairs/pairs.h"

enum {
	END_MEMORY = 4 << 20,
	END_RECEIVES = 64,
	END_SENDS = 64,
	END_NAP_US = 20000, /* a one-sided target looks at its CQ so seldom */
	END_GRH = 40,
	END_PSN = 77,
	END_QKEY = 0x1234,
};

struct kind {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t length, window;
	bool one_sided, events;
};

static const struct kind kinds[] = {
	{ "send", IBV_QPT_RC, IBV_WR_SEND, 64, 16, false, false },
	{ "big", IBV_QPT_RC, IBV_WR_SEND, 1 << 20, 4, false, false },
	{ "uc", IBV_QPT_UC, IBV_WR_SEND, 64 << 10, 4, false, false },
	{ "ud", IBV_QPT_UD, IBV_WR_SEND, 1024, 8, false, false },
	{ "write", IBV_QPT_RC, IBV_WR_RDMA_WRITE, 256 << 10, 4, true, false },
	{ "read", IBV_QPT_RC, IBV_WR_RDMA_READ, 256 << 10, 4, true, false },
	{ "atomic", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4, true, false },
	{ "event", IBV_QPT_RC, IBV_WR_SEND, 256, 1, false, true },
};

static struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr, *twice;
	uint8_t *memory;
	const struct kind *kind;
	bool sender;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint32_t remote_qpn, remote_rkey;
	uint64_t remote_addr;
	pthread_t thread;
	bool running;
	volatile bool stop;
	volatile int status; /* of the first completion in error */
	volatile unsigned long count;
} end;

static void end_die(const char *what)
{
	printf("error %s: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(3);
}

/* For verbs that return an errno value, and need not set errno. */
static void end_need(int error, const char *what)
{
	errno = error;
	if (error != 0)
		end_die(what);
}

static void end_say(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

/* ---- set up ---- */

/* Neighbours of different protection are never one map. */
static void end_take_maps(int spare)
{
	static void *last[4096];
	unsigned int n = 0;
	void *p;

	while ((p = mmap(NULL, 4096, n % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0)) != MAP_FAILED)
		last[n++ % 4096] = p;
	for (int i = 0; i < spare && i < 4096; i++)
		munmap(last[--n % 4096], 4096);
}

static void end_prepare(void)
{
	const char *spare = getenv("END_SPARE_MAPS");

	if (getenv("END_UNDUMPABLE") != NULL)
		prctl(PR_SET_DUMPABLE, 0);
	if (spare != NULL)
		end_take_maps(atoi(spare));
}

static void end_make_memory(void)
{
	const char *at = getenv("END_AT");
	int fixed = at == NULL ? 0 : MAP_FIXED_NOREPLACE;

	end.memory = mmap((void *)(at == NULL ? 0 : strtoul(at, NULL, 0)), END_MEMORY,
			  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
	if (end.memory == MAP_FAILED)
		end_die("memory");
}

static void end_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;

	/* which of the two calls a missing right stops is what tests ask */
	if (list == NULL || list[0] == NULL)
		end_die("devices");
	end.context = ibv_open_device(list[0]);
	if (end.context == NULL)
		end_die("open");
	ibv_free_device_list(list);
	end_make_memory();
	end.pd = ibv_alloc_pd(end.context);
	if (end.pd == NULL)
		end_die("pd");
	end.mr = ibv_reg_mr(end.pd, end.memory, END_MEMORY, access);
	if (end.mr == NULL)
		end_die("mr");
	if (getenv("END_TWICE") != NULL &&
	    (end.twice = ibv_reg_mr(end.pd, end.memory, END_MEMORY, access)) == NULL)
		end_die("the second mr");
}

static void end_post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)end.memory, end.kind->length + END_GRH, end.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int error = ibv_post_recv(end.qp, &wr, &bad);

	if (!end.stop)
		end_need(error, "post_recv");
}

static struct ibv_qp_attr end_attr(const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = conn_attr(end.remote_qpn, gid, 0);

	attr.qkey = END_QKEY;
	if (end.kind->type != IBV_QPT_UD)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (end.kind->type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	attr.path_mtu = IBV_MTU_4096;
	attr.rq_psn = attr.sq_psn = END_PSN;
	attr.max_dest_rd_atomic = attr.max_rd_atomic = 8;
	attr.min_rnr_timer = 1;
	attr.timeout = 12;
	attr.retry_cnt = 3;
	attr.ah_attr.grh.hop_limit = 1;
	return attr;
}

static void end_forget_qp(void)
{
	if (end.qp == NULL)
		return;
	end_need(ibv_destroy_qp(end.qp), "destroy_qp");
	if (end.ah != NULL)
		end_need(ibv_destroy_ah(end.ah), "destroy_ah");
	end_need(ibv_destroy_cq(end.cq), "destroy_cq");
	if (end.channel != NULL)
		end_need(ibv_destroy_comp_channel(end.channel), "destroy_comp_channel");
	end.qp = NULL;
	end.ah = NULL;
	end.channel = NULL;
}

static void end_make_qp(const char *kind, const char *role)
{
	struct ibv_qp_init_attr init = { .cap = { END_SENDS, END_RECEIVES, 1, 1, 0 },
					 .sq_sig_all = 1 };
	union ibv_gid gid = { 0 };
	struct ibv_qp_attr attr;
	char hex[33];

	end_forget_qp();
	end.kind = NULL;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, kind) == 0)
			end.kind = &kinds[i];
	if (end.kind == NULL)
		end_die(kind);
	end.sender = strcmp(role, "sender") == 0;
	if (end.kind->events && (end.channel = ibv_create_comp_channel(end.context)) == NULL)
		end_die("create_comp_channel");
	end.cq = ibv_create_cq(end.context, 256, NULL, end.channel, 0);
	if (end.cq == NULL)
		end_die("create_cq");
	init.qp_type = end.kind->type;
	init.send_cq = init.recv_cq = end.cq;
	end.qp = ibv_create_qp(end.pd, &init);
	if (end.qp == NULL)
		end_die("create_qp");
	end.count = 0;
	end.status = 0;
	end.stop = false;
	attr = end_attr(&gid);
	end_need(conn_to(end.qp, &attr, IBV_QPS_INIT), "to INIT");
	for (int i = 0; i < END_RECEIVES; i++)
		end_post_receive();
	if (ibv_query_gid(end.context, 1, 0, &gid) != 0)
		end_die("query_gid");
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", gid.raw[i]);
	end_say("qp %u %u %lu %s", end.qp->qp_num, end.mr->rkey,
		(unsigned long)(uintptr_t)end.memory, hex);
}

static void end_connect(const char *hex)
{
	struct ibv_qp_attr attr;
	union ibv_gid gid;

	for (int i = 0; i < 16; i++) {
		unsigned int byte = 0;

		sscanf(hex + 2 * i, "%2x", &byte);
		gid.raw[i] = (uint8_t)byte;
	}
	attr = end_attr(&gid);
	if (end.kind->type == IBV_QPT_UD &&
	    (end.ah = ibv_create_ah(end.pd, &attr.ah_attr)) == NULL)
		end_die("create_ah");
	end_need(conn_to(end.qp, &attr, IBV_QPS_RTR), "to RTR");
	end_need(conn_to(end.qp, &attr, IBV_QPS_RTS), "to RTS");
	end_say("connected");
}

/* ---- traffic ---- */

static bool end_post_send(void)
{
	struct ibv_sge sge = { (uintptr_t)end.memory, end.kind->length, end.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = end.kind->opcode }, *bad;

	switch (end.kind->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		wr.wr.rdma.remote_addr = end.remote_addr + (1 << 20);
		wr.wr.rdma.rkey = end.remote_rkey;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr.wr.atomic.remote_addr = end.remote_addr + (1 << 20);
		wr.wr.atomic.rkey = end.remote_rkey;
		wr.wr.atomic.compare_add = 1;
		break;
	default:
		break;
	}
	if (end.kind->type == IBV_QPT_UD) {
		wr.wr.ud.ah = end.ah;
		wr.wr.ud.remote_qpn = end.remote_qpn;
		wr.wr.ud.remote_qkey = END_QKEY;
	}
	return ibv_post_send(end.qp, &wr, &bad) == 0;
}

/* Takes what completions there are; how many, or -1 after the first in error. */
static int end_poll(void)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(end.cq, 16, wc);

	if (n < 0)
		end_die("poll_cq");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			end.status = (int)wc[i].status;
			return -1;
		}
		end.count++;
		if (!end.sender)
			end_post_receive();
	}
	return n;
}

/* Sleeps until the CQ may have something. */
static void end_await(void)
{
	struct ibv_cq *cq;
	void *cookie;

	if (!end.kind->events) {
		if (end.kind->one_sided && !end.sender)
			usleep(END_NAP_US);
		return;
	}
	if (ibv_get_cq_event(end.channel, &cq, &cookie) != 0)
		end_die("get_cq_event");
	ibv_ack_cq_events(cq, 1);
	end_need(ibv_req_notify_cq(end.cq, 0), "req_notify_cq");
}

static void *end_traffic(void *arg)
{
	bool asleep = !end.sender && end.kind->one_sided && getenv("END_NEVER_POLLS") != NULL;
	uint32_t out = 0;
	int n;

	while (asleep && !end.stop)
		usleep(END_NAP_US);
	while (!end.stop) {
		while (end.sender && out < end.kind->window && end_post_send())
			out++;
		end_await();
		n = end_poll();
		if (n < 0)
			break;
		if (end.sender)
			out -= (uint32_t)n;
	}
	return NULL;
}

static void end_go(void)
{
	if (end.kind->events)
		end_need(ibv_req_notify_cq(end.cq, 0), "req_notify_cq");
	end_need(pthread_create(&end.thread, NULL, end_traffic, NULL), "pthread_create");
	end.running = true;
	end_say("going");
}

static void end_wait(int ms)
{
	for (int i = 0; i < ms && end.status == 0; i++)
		usleep(1000);
	if (end.status != 0)
		end_say("ended %d", end.status);
	else
		end_say("running %lu", end.count);
}

static void end_stop(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int status = end.status;

	end.stop = true;
	if (end.qp != NULL)
		end_need(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), "to ERR");
	if (end.running)
		pthread_join(end.thread, NULL);
	end.running = false;
	end_say("stopped %d", status);
}

/* ---- what it costs ---- */

static int end_count_entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d != NULL && readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void end_usage(void)
{
	char line[512];
	long rss = 0;
	int maps = 0;
	FILE *f = fopen("/proc/self/maps", "r");

	while (fgets(line, sizeof(line), f) != NULL)
		maps++;
	fclose(f);
	f = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof(line), f) != NULL)
		sscanf(line, "VmRSS: %ld", &rss);
	fclose(f);
	end_say("usage %d %d %ld %d", end_count_entries("/proc/self/fd"), maps, rss,
		end_count_entries("/proc/self/task"));
}

/* As a runtime does that makes its own system calls: no handler of pthread_atfork runs. */
static void end_child(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			syscall(SYS_pause);
	}
	end_say("child %ld", pid);
}

static void end_exec(char *words)
{
	char *argv[8] = { strtok(words, " \n") };

	for (int i = 1; i < 7 && argv[i - 1] != NULL; i++)
		argv[i] = strtok(NULL, " \n");
	execv(argv[0], argv);
	_exit(4);
}

static void end_deregister(void)
{
	struct timespec from, to;
	int err;

	clock_gettime(CLOCK_MONOTONIC, &from);
	err = ibv_dereg_mr(end.mr);
	clock_gettime(CLOCK_MONOTONIC, &to);
	if (err == 0)
		end.mr = NULL;
	end_say("dereg %d %ld", err,
		(to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
}

static void end_other(int byte)
{
	unsigned long n = 0;

	for (int i = 0; i < END_MEMORY; i++)
		n += ((volatile uint8_t *)end.memory)[i] != byte;
	end_say("other %lu", n);
}

/* What one does to its own memory, and what it becomes. */
static bool end_turn(char *line)
{
	int byte;

	if (sscanf(line, "fill %d", &byte) == 1) {
		memset(end.memory, byte, END_MEMORY);
		end_say("filled");
	} else if (strcmp(line, "dereg\n") == 0) {
		end_deregister();
	} else if (sscanf(line, "other %d", &byte) == 1) {
		end_other(byte);
	} else if (strncmp(line, "exec ", 5) == 0) {
		end_exec(line + 5);
	} else if (strncmp(line, "vfork ", 6) == 0) {
		if (vfork() == 0)
			end_exec(line + 6);
	} else {
		return false;
	}
	return true;
}

static void end_quit(void)
{
	end_forget_qp();
	if (end.twice != NULL)
		end_need(ibv_dereg_mr(end.twice), "dereg_mr");
	if (end.mr != NULL)
		end_need(ibv_dereg_mr(end.mr), "dereg_mr");
	end_need(ibv_dealloc_pd(end.pd), "dealloc_pd");
	if (ibv_close_device(end.context) != 0)
		end_die("close_device");
	end_say("bye");
}

static bool end_command(const char *line)
{
	char kind[16], role[16], hex[64];
	int ms;

	if (sscanf(line, "qp %15s %15s", kind, role) == 2)
		end_make_qp(kind, role);
	else if (sscanf(line, "connect %u %u %lu %63s", &end.remote_qpn, &end.remote_rkey,
			&end.remote_addr, hex) == 4)
		end_connect(hex);
	else if (strcmp(line, "go\n") == 0)
		end_go();
	else if (strcmp(line, "count\n") == 0)
		end_say("count %lu", end.count);
	else if (sscanf(line, "wait %d", &ms) == 1)
		end_wait(ms);
	else if (strcmp(line, "stop\n") == 0)
		end_stop();
	else if (strcmp(line, "forget\n") == 0) {
		end_forget_qp();
		end_say("forgotten");
	} else if (strcmp(line, "usage\n") == 0)
		end_usage();
	else if (strcmp(line, "child\n") == 0)
		end_child();
	else
		return false;
	return true;
}

int main(void)
{
	char line[256];

	end_prepare();
	end_open();
	end_say("open");
	while (fgets(line, sizeof(line), stdin) != NULL)
		if (!end_command(line) && !end_turn(line))
			break;
	end_quit();
	return 0;
}
