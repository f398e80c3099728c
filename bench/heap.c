/* heap.c: WRITEs and READs of memory that is not mapped here (of malloc: it shares its pages with
 * other data), by default beside ANYVERBS_DIRECT=0, where all go as packets.
 * Prints the ratio of the two times of each size, length of list and kind of target, their mean
 * for each kind, and the rates that belong to it: the best of three runs in turn each.
 * usage: heap
 * In:    -    Out: `name value unit` lines    Runs: a target and its clients, with a thread each
 */
#include "client.h"

#include <math.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { LIST = 64, CLIENTS = 8, RUNS = 3, WARM_MS = 30, RUN_MS = 100, OFF = 16 };
enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

struct cell {
	enum ibv_wr_opcode opcode;
	int polls; /* the target does, or sleeps */
	int clients;
	uint32_t size;
	int list; /* requests handed over together; the last is signalled */
};

/* What the other process must know. */
struct place {
	uint32_t qpn, rkey;
	uint64_t addr;
};

struct talk {
	struct client c;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct place peer;
	int fd;
};

static double time_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- both ends ---- */

static void talk_meet(struct talk *t)
{
	char c = 0;

	client_need(write(t->fd, &c, 1) == 1 && read(t->fd, &c, 1) == 1, "the other process");
}

static void talk_open(struct talk *t, const struct client *c, int fd, uint32_t size)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 2 * LIST, 1, 1, 1, 0 } };
	size_t length = (size_t)size * LIST;
	char *memory = malloc(length + OFF);
	struct place own;

	t->fd = fd;
	t->c = *c;
	init.send_cq = init.recv_cq = t->c.cq;
	client_need(memory != NULL, "malloc");
	memset(memory, 1, length + OFF);
	t->qp = ibv_create_qp(t->c.pd, &init);
	t->mr = ibv_reg_mr(t->c.pd, memory + OFF, length, ACCESS);
	client_need(t->qp != NULL && t->mr != NULL, "ibv_create_qp or ibv_reg_mr");
	own = (struct place){ t->qp->qp_num, t->mr->rkey, (uintptr_t)t->mr->addr };
	client_need(write(fd, &own, sizeof(own)) == sizeof(own) &&
			    read(fd, &t->peer, sizeof(t->peer)) == sizeof(t->peer),
		    "the other process");
	client_connect(&t->c, t->qp, t->peer.qpn);
	talk_meet(t);
}

/* ---- the target ---- */

static int target_is_over(const struct talk *t, int clients)
{
	struct pollfd p[CLIENTS];

	for (int i = 0; i < clients; i++)
		p[i] = (struct pollfd){ .fd = t[i].fd, .events = POLLIN };
	return poll(p, (nfds_t)clients, 0) == clients;
}

static void target(const struct cell *x, const int *fds)
{
	struct client c = { 0 };
	struct talk t[CLIENTS] = { 0 };
	struct ibv_wc wc;

	client_open(&c, 8);
	for (int i = 0; i < x->clients; i++)
		talk_open(&t[i], &c, fds[i], x->size);
	while (x->polls && !target_is_over(t, x->clients))
		for (int i = 0; i < 1000; i++)
			ibv_poll_cq(c.cq, 1, &wc);
	for (int i = 0; i < x->clients; i++)
		talk_meet(&t[i]);
}

/* ---- a client ---- */

static void client_post(struct talk *t, const struct cell *x)
{
	struct ibv_send_wr wr[LIST] = { 0 }, *bad;
	struct ibv_sge sge[LIST];
	struct ibv_wc wc;
	int n;

	for (int i = 0; i < x->list; i++) {
		uint64_t at = (uint64_t)x->size * (uint64_t)i;

		sge[i] = (struct ibv_sge){ (uintptr_t)t->mr->addr + at, x->size, t->mr->lkey };
		wr[i] = (struct ibv_send_wr){ .next = i + 1 < x->list ? &wr[i + 1] : NULL,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = x->opcode,
					      .wr.rdma = { t->peer.addr + at, t->peer.rkey } };
	}
	wr[x->list - 1].send_flags = IBV_SEND_SIGNALED;
	client_need(ibv_post_send(t->qp, wr, &bad) == 0, "ibv_post_send");
	do
		n = ibv_poll_cq(t->c.cq, 1, &wc);
	while (n == 0);
	client_need(n == 1 && wc.status == IBV_WC_SUCCESS, "a completion");
}

/* Returns requests per microsecond. */
static double client_run(const struct cell *x, int fd)
{
	struct client c = { 0 };
	struct talk t = { 0 };
	double begin, end;
	long done = 0;

	client_open(&c, 8);
	talk_open(&t, &c, fd, x->size);
	for (begin = time_ms(); time_ms() - begin < WARM_MS;)
		client_post(&t, x);
	begin = time_ms();
	do {
		client_post(&t, x);
		done += x->list;
		end = time_ms();
	} while (end - begin < RUN_MS);
	talk_meet(&t);
	return (double)done / (end - begin) / 1e3;
}

/* ---- cells ---- */

/* Returns the rate of all clients together. `rate` is shared with them. */
static double cell_run(const struct cell *x, int ring, double *rate)
{
	int fds[2][CLIENTS], status;
	double sum = 0;

	setenv("ANYVERBS_DIRECT", ring ? "0" : "1", 1);
	for (int i = 0; i < x->clients; i++) {
		int pair[2];

		client_need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
		fds[0][i] = pair[0];
		fds[1][i] = pair[1];
	}
	if (client_fork() == 0) {
		target(x, fds[0]);
		_exit(0);
	}
	for (int i = 0; i < x->clients; i++)
		if (client_fork() == 0) {
			rate[i] = client_run(x, fds[1][i]);
			_exit(0);
		}
	for (int i = 0; i <= x->clients; i++)
		client_need(wait(&status) > 0 && status == 0, "a process of the benchmark");
	for (int i = 0; i < x->clients; i++) {
		close(fds[0][i]);
		close(fds[1][i]);
		sum += rate[i];
	}
	return sum;
}

/* Prints and returns the ratio. */
static double cell_compare(const struct cell *x, double *rate)
{
	double best[2] = { 0 };

	for (int run = 0; run < RUNS; run++)
		for (int ring = 0; ring < 2; ring++)
			best[ring] = fmax(best[ring], cell_run(x, ring, rate));
	printf("%s_%s_%u_%d", x->opcode == IBV_WR_RDMA_READ ? "read" : "write",
	       x->clients > 1 ? "shared"
	       : x->polls     ? "polls"
			      : "asleep",
	       x->size, x->list);
	printf(" %.3f x (%.3f M/s, %.3f by packets)\n", best[1] / best[0], best[0], best[1]);
	return best[1] / best[0];
}

int main(void)
{
	static const uint32_t sizes[] = { 8, 1024, 8192 };
	static const int lists[] = { 1, 8, LIST };
	double *rate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct cell x = { .opcode = IBV_WR_RDMA_WRITE, .polls = 1, .clients = CLIENTS };
	double log_sum;

	client_need(rate != MAP_FAILED, "mmap");
	for (int kind = 0; kind < 4; kind++) {
		log_sum = 0;
		for (int cell = 0; cell < 9; cell++)
			log_sum += log(cell_compare(
				&(struct cell){ kind & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
						kind & 2, 1, sizes[cell / 3], lists[cell % 3] },
				rate));
		printf("%s_%s %.3f x\n", kind & 1 ? "read" : "write", kind & 2 ? "polls" : "asleep",
		       exp(log_sum / 9));
	}
	x.size = 8;
	x.list = 1;
	cell_compare(&x, rate);
	x.list = LIST;
	cell_compare(&x, rate);
	return 0;
}
