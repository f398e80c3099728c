/* crowd.c: many processes on one machine, one on each host of a fabric, connected all to all.
 *
 * In:    a count of processes, and options; the fabric has hosts h1, h2, ...
 * Out:   "name value unit" lines on standard output; the status is not 0 if a byte was wrong
 * Runs:  one thread in each process     Locks: none
 *
 * Each process connects an RC queue pair to every other one, takes part in a barrier, sends small
 * messages and a large one to every other, and the first two measure what a poll and a message cost
 * while the others sleep. The first process' parent reads what all of it has cost from /proc.
 */
#include <dirent.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "client.h"

enum {
	CROWD_MAX = 1000,
	WINDOW = 16, /* receive requests of a queue pair */
	BARRIER_BYTES = 8,
	POLLS = 20000,
	PINGS = 20000,
	PATIENCE_S = 600,
};

enum phase { BEGUN, CONNECTED, SMALL, LARGE, IDLE, PINGED, PHASES };
static const char *const phase_names[PHASES] = { "begun", "connected", "small", "large" };

static int messages = 40, small_bytes = 1000, large_bytes = 256 << 10;
static int count;

/* What the processes tell each other beside RDMA, as programs do by TCP. */
struct shared {
	int arrived[PHASES], allowed; /* phases */
	int failed;
	double poll_ns, ping_ns;
	struct {
		union ibv_gid gid;
		uint16_t lid;
	} at[CROWD_MAX];
	uint32_t qpn[]; /* count * count: [of][to] */
};
static struct shared *shared;

struct member {
	struct client c;
	int rank;
	struct ibv_qp *qp[CROWD_MAX];
	struct ibv_mr *mr;
	char *out, *in; /* a large message each; `in` also holds the window of small ones */
	int sent, received; /* completions not yet waited for */
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	__atomic_store_n(&shared->failed, 1, __ATOMIC_SEQ_CST);
	client_fail(what);
}

/* ---- in step ---- */

static void arrive(enum phase phase)
{
	__atomic_fetch_add(&shared->arrived[phase], 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&shared->allowed, __ATOMIC_SEQ_CST) <= (int)phase)
		usleep(20000);
}

/* ---- one member ---- */

static void post_receive(struct member *m, int from, char *at, int bytes)
{
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)bytes, m->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	errno = ibv_post_recv(m->qp[from], &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

static void post_send(struct member *m, int to, char *at, int bytes)
{
	struct ibv_sge sge = { (uintptr_t)at, (uint32_t)bytes, m->mr->lkey };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED,
					.sg_list = &sge,
					.num_sge = 1 };

	errno = ibv_post_send(m->qp[to], &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

/* Polls until so many sends and receives have completed. */
static void wait_for(struct member *m, int sends, int receives)
{
	double limit = now_s() + PATIENCE_S;
	struct ibv_wc wc[16];

	while (m->sent < sends || m->received < receives) {
		int n = ibv_poll_cq(m->c.cq, 16, wc);

		if (n == 0) {
			sched_yield();
			if (now_s() > limit) {
				errno = ETIMEDOUT;
				fail("a completion");
			}
		}
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "rank %d: %s\n", m->rank,
					ibv_wc_status_str(wc[i].status));
				fail("a request");
			}
			if (wc[i].opcode & IBV_WC_RECV)
				m->received++;
			else
				m->sent++;
		}
	}
	m->sent -= sends;
	m->received -= receives;
}

static char pattern(int from, int to, int message, int at)
{
	return (char)(from * 31 + to * 7 + message * 13 + at + (at >> 8));
}

static void fill(char *p, int from, int to, int message, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = pattern(from, to, message, i);
}

static void judge(const char *p, int from, int to, int message, int bytes)
{
	for (int i = 0; i < bytes; i++)
		if (p[i] != pattern(from, to, message, i)) {
			fprintf(stderr, "rank %d: byte %d of message %d from %d is wrong\n", to, i,
				message, from);
			errno = EBADMSG;
			fail("the data");
		}
}

static void open_member(struct member *m)
{
	struct ibv_port_attr port;
	size_t bytes = (size_t)large_bytes;

	client_open(&m->c, 4 * count + 64);
	if (ibv_query_port(m->c.context, 1, &port))
		fail("ibv_query_port");
	if (bytes < (size_t)(WINDOW * small_bytes))
		bytes = (size_t)(WINDOW * small_bytes);
	m->out = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->out == MAP_FAILED)
		fail("mmap");
	m->in = m->out + bytes;
	m->mr = ibv_reg_mr(m->c.pd, m->out, 2 * bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!m->mr)
		fail("ibv_reg_mr");
	shared->at[m->rank].gid = m->c.gid;
	shared->at[m->rank].lid = port.lid;
	for (int to = 0; to < count; to++) {
		struct ibv_qp_init_attr init = {
			.send_cq = m->c.cq,
			.recv_cq = m->c.cq,
			.qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = WINDOW, .max_recv_wr = WINDOW, .max_send_sge = 1,
				 .max_recv_sge = 1 },
		};

		if (to == m->rank)
			continue;
		m->qp[to] = ibv_create_qp(m->c.pd, &init);
		if (!m->qp[to])
			fail("ibv_create_qp");
		shared->qpn[m->rank * count + to] = m->qp[to]->qp_num;
	}
}

static void connect_member(struct member *m)
{
	for (int step = 1; step < count; step++) {
		int to = (m->rank + step) % count;
		struct ibv_qp_attr attr =
			conn_attr(shared->qpn[to * count + m->rank], &shared->at[to].gid, 0);

		attr.ah_attr.dlid = shared->at[to].lid;
		attr.ah_attr.is_global = attr.ah_attr.dlid == 0;
		attr.rnr_retry = 7;
		attr.timeout = 22;
		errno = conn_up(m->qp[to], &attr, IBV_QPS_RTS);
		if (errno)
			fail("ibv_modify_qp");
	}
}

/* A dissemination barrier: in round r each member hears from the one 2^r before it. */
static void barrier(struct member *m)
{
	for (int far = 1; far < count; far *= 2) {
		int to = (m->rank + far) % count, from = (m->rank + count - far) % count;

		post_receive(m, from, m->in, BARRIER_BYTES);
		post_send(m, to, m->out, BARRIER_BYTES);
		wait_for(m, 1, 1);
	}
}

/* In each step every member sends to one and hears from another. */
static void all_to_all(struct member *m, int n, int bytes)
{
	for (int step = 1; step < count; step++) {
		int to = (m->rank + step) % count, from = (m->rank + count - step) % count;

		for (int i = 0; i < n; i += WINDOW) {
			int some = n - i < WINDOW ? n - i : WINDOW;

			for (int k = 0; k < some; k++)
				post_receive(m, from, m->in + k * bytes, bytes);
			for (int k = 0; k < some; k++) {
				fill(m->out + k * bytes, m->rank, to, i + k, bytes);
				post_send(m, to, m->out + k * bytes, bytes);
			}
			wait_for(m, some, some);
			for (int k = 0; k < some; k++)
				judge(m->in + k * bytes, from, m->rank, i + k, bytes);
		}
	}
}

static void measure_polls(struct member *m)
{
	struct ibv_wc wc;
	double begin;

	for (int i = 0; i < POLLS; i++)
		ibv_poll_cq(m->c.cq, 1, &wc);
	begin = now_s();
	for (int i = 0; i < POLLS; i++)
		ibv_poll_cq(m->c.cq, 1, &wc);
	shared->poll_ns = (now_s() - begin) / POLLS * 1e9;
}

static void measure_pings(struct member *m)
{
	int peer = m->rank == 0 ? 1 : 0;
	double begin = 0;

	post_receive(m, peer, m->in, 8);
	for (int i = 0; i < PINGS; i++) {
		if (i == PINGS / 4)
			begin = now_s();
		if (m->rank == 0)
			post_send(m, peer, m->out, 8);
		wait_for(m, m->rank == 0, 1);
		if (i < PINGS - 1)
			post_receive(m, peer, m->in, 8);
		if (m->rank == 1) {
			post_send(m, peer, m->out, 8);
			wait_for(m, 1, 0);
		}
	}
	shared->ping_ns = (now_s() - begin) / (PINGS - PINGS / 4) * 1e9 / 2;
}

static _Noreturn void run_member(int rank)
{
	static struct member m;
	char host[16];

	m.rank = rank;
	snprintf(host, sizeof(host), "h%d", rank + 1);
	setenv("ANYVERBS_HOST", host, 1);
	open_member(&m);
	arrive(BEGUN);
	connect_member(&m);
	arrive(CONNECTED);
	barrier(&m);
	all_to_all(&m, messages, small_bytes);
	barrier(&m);
	arrive(SMALL);
	all_to_all(&m, 1, large_bytes);
	barrier(&m);
	arrive(LARGE);
	if (rank == 0)
		measure_polls(&m);
	arrive(IDLE);
	if (rank < 2)
		measure_pings(&m);
	arrive(PINGED);
	exit(0);
}

/* ---- what it costs ---- */

static long read_kib(const char *path, const char *name)
{
	char line[256];
	long kib = 0;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, name, strlen(name)) == 0)
			kib = atol(line + strlen(name));
	if (f)
		fclose(f);
	return kib;
}

static long count_descriptors(pid_t pid)
{
	char path[64];
	long n = -2; /* "." and ".." */
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void report(enum phase phase, const pid_t *pids, double seconds)
{
	long shared_kib = 0, private = 0, tables = 0, descriptors = 0;

	for (int i = 0; i < count; i++) {
		char path[64];
		long n = count_descriptors(pids[i]);

		snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pids[i]);
		private += read_kib(path, "Pss_Anon:");
		shared_kib += read_kib(path, "Pss_Shmem:");
		snprintf(path, sizeof(path), "/proc/%d/status", (int)pids[i]);
		tables += read_kib(path, "VmPTE:");
		descriptors = n > descriptors ? n : descriptors;
	}
	printf("%s_time %.2f s\n", phase_names[phase], seconds);
	printf("%s_shared %ld KiB\n", phase_names[phase], shared_kib);
	printf("%s_private %ld KiB\n", phase_names[phase], private);
	printf("%s_tables %ld KiB\n", phase_names[phase], tables);
	printf("%s_descriptors %ld of a process, at most\n", phase_names[phase], descriptors);
	fflush(stdout);
}

/* Until all members have arrived; false if one has failed. */
static bool gather(enum phase phase)
{
	double limit = now_s() + PATIENCE_S;

	while (__atomic_load_n(&shared->arrived[phase], __ATOMIC_SEQ_CST) < count) {
		if (__atomic_load_n(&shared->failed, __ATOMIC_SEQ_CST) || now_s() > limit ||
		    waitpid(-1, NULL, WNOHANG) > 0)
			return false;
		usleep(2000);
	}
	return true;
}

static bool run_phases(const pid_t *pids)
{
	for (int phase = 0; phase < PHASES; phase++) {
		double begin = now_s();

		if (!gather((enum phase)phase)) {
			fprintf(stderr, "a process has failed before phase %d\n", phase);
			return false;
		}
		if (phase_names[phase])
			report((enum phase)phase, pids, now_s() - begin);
		__atomic_store_n(&shared->allowed, phase + 1, __ATOMIC_SEQ_CST);
	}
	printf("poll %.1f ns\nping %.1f ns\n", shared->poll_ns, shared->ping_ns);
	return true;
}

static void usage(void)
{
	fprintf(stderr,
		"usage: crowd [-m MESSAGES] [-s BYTES] [-l BYTES] COUNT\n"
		"2 to %d processes; MESSAGES of BYTES to each other one, then a large one of "
		"BYTES\n",
		CROWD_MAX);
	exit(2);
}

int main(int argc, char **argv)
{
	static pid_t pids[CROWD_MAX];
	size_t bytes;
	bool good;
	int c;

	while ((c = getopt(argc, argv, "m:s:l:")) != -1) {
		if (c == 'm')
			messages = atoi(optarg);
		else if (c == 's')
			small_bytes = atoi(optarg);
		else if (c == 'l')
			large_bytes = atoi(optarg);
		else
			usage();
	}
	count = optind < argc ? atoi(argv[optind]) : 0;
	if (count < 2 || count > CROWD_MAX || messages < 0 || small_bytes < BARRIER_BYTES ||
	    large_bytes < BARRIER_BYTES)
		usage();
	bytes = sizeof(*shared) + sizeof(uint32_t) * (size_t)count * (size_t)count;
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		client_fail("mmap");
	for (int i = 0; i < count; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			client_fail("fork");
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_member(i);
		}
	}
	good = run_phases(pids);
	for (int i = 0; i < count; i++) {
		int status = 0;

		if (!good)
			kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		good &= status == 0;
	}
	return good ? 0 : 1;
}
