/* scale.c: what registering memory costs, and what many idle queue pairs do to a busy one.
 *
 * In:    "registration" or "idle"     Out: "name value unit" lines on standard output
 * Runs:  one thread                   Locks: none
 */
#include <sys/mman.h>
#include <time.h>

#include "client.h"

enum {
	PAGE = 4096,
	LIVE = 1000,	      /* regions that exist at a time while small ones are timed */
	ROUNDS = 51,	      /* of which the median counts */
	REGIONS = 1000000,    /* that exist at once */
	IDLE_FEW = 10,
	IDLE_MANY = 100000,
	MESSAGES = 20000,     /* per round */
};

static const size_t huge_bytes = 1ul << 30;
static const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

/* Memory of the application's own, every page present. */
static char *touched(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		client_fail("mmap");
	for (size_t at = 0; at < bytes; at += PAGE)
		p[at] = 1;
	return p;
}

static struct ibv_mr *register_region(struct client *c, void *at, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(c->pd, at, bytes, rights);

	if (!mr)
		client_fail("ibv_reg_mr");
	return mr;
}

static void deregister_regions(struct ibv_mr **mrs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		errno = ibv_dereg_mr(mrs[i]);
		if (errno)
			client_fail("ibv_dereg_mr");
	}
}

/* ---- registration ---- */

/* A page each, all apart: what one registration takes, and one registration with its end. */
static void time_small(struct client *c)
{
	static struct ibv_mr *mrs[LIVE];
	double begun[ROUNDS], both[ROUNDS];
	char *memory = touched((size_t)2 * LIVE * PAGE);

	for (int r = 0; r < ROUNDS; r++) {
		double begin = now_us();

		for (size_t i = 0; i < LIVE; i++)
			mrs[i] = register_region(c, memory + 2 * i * PAGE, PAGE);
		begun[r] = (now_us() - begin) / LIVE;
		deregister_regions(mrs, LIVE);
		both[r] = (now_us() - begin) / LIVE;
	}
	printf("reg_4k %.3f us\n", median(begun, ROUNDS));
	printf("reg_dereg_4k %.3f us\n", median(both, ROUNDS));
	munmap(memory, (size_t)2 * LIVE * PAGE);
}

static void time_large(struct client *c)
{
	char *memory = touched(huge_bytes), *other = touched(huge_bytes);
	double begin = now_us(), copied, registered;
	struct ibv_mr *mr;

	memcpy(other, memory, huge_bytes);
	copied = now_us() - begin;
	munmap(other, huge_bytes);
	begin = now_us();
	mr = register_region(c, memory, huge_bytes);
	registered = now_us() - begin;
	printf("memcpy_1g %.3f ms\nreg_1g %.3f ms\nreg_1g_copies %.4f x\n", copied / 1e3,
	       registered / 1e3, registered / copied);
	deregister_regions(&mr, 1);
	munmap(memory, huge_bytes);
}

static void time_million(struct client *c)
{
	struct ibv_mr **mrs = calloc(REGIONS, sizeof(*mrs));
	char *memory = touched(16 * PAGE);
	double begin, end;

	if (!mrs)
		client_fail("calloc");
	begin = now_us();
	for (size_t i = 0; i < REGIONS; i++)
		mrs[i] = register_region(c, memory + i % 16 * PAGE, PAGE);
	end = now_us();
	deregister_regions(mrs, REGIONS);
	printf("reg_million %.3f us\ndereg_million %.3f us\n", (end - begin) / REGIONS,
	       (now_us() - end) / REGIONS);
	free(mrs);
	munmap(memory, 16 * PAGE);
}

static void registration(struct client *c)
{
	time_small(c);
	time_large(c);
	time_million(c);
}

/* ---- idle queue pairs ---- */

static void send_one(struct client *c, struct ibv_qp *from, struct ibv_qp *to, struct ibv_mr *mr)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
				    .sg_list = &sge,
				    .num_sge = 1 };
	struct ibv_send_wr *bad_send;
	struct ibv_wc wc[2];

	if (ibv_post_recv(to, &receive, &bad_receive) || ibv_post_send(from, &send, &bad_send))
		client_fail("ibv_post_recv or ibv_post_send");
	for (int left = 2; left > 0;) {
		int n = ibv_poll_cq(c->cq, left, wc);

		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				client_fail(ibv_wc_status_str(wc[i].status));
		left -= n;
	}
}

/* Nanoseconds per message between two queue pairs of this process. */
static double time_messages(struct client *c, struct ibv_qp *a, struct ibv_qp *b, struct ibv_mr *mr)
{
	double ns[ROUNDS];

	for (int r = 0; r < ROUNDS; r++) {
		double begin = now_us();

		for (int i = 0; i < MESSAGES / ROUNDS; i++)
			send_one(c, a, b, mr);
		ns[r] = (now_us() - begin) * 1e3 / (MESSAGES / ROUNDS);
	}
	return median(ns, ROUNDS);
}

static struct ibv_qp *create_roomy(struct client *c)
{
	struct ibv_qp_init_attr init = { .send_cq = c->cq,
					 .recv_cq = c->cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16,
						  .max_recv_wr = 16,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .max_inline_data = 8 } };
	struct ibv_qp *qp = ibv_create_qp(c->pd, &init);

	if (!qp)
		client_fail("ibv_create_qp");
	return qp;
}

static void add_idle(struct client *c, int n)
{
	struct ibv_qp_init_attr init;

	for (int i = 0; i < n; i += 2) {
		struct ibv_qp *a = client_create_qp(c, &init), *b = client_create_qp(c, &init);

		client_connect(c, a, b->qp_num);
		client_connect(c, b, a->qp_num);
	}
}

static void idle(struct client *c)
{
	static uint64_t word;
	struct ibv_qp *a = create_roomy(c), *b = create_roomy(c);
	double few, many;
	struct ibv_mr *mr;

	mr = register_region(c, &word, sizeof(word));
	client_connect(c, a, b->qp_num);
	client_connect(c, b, a->qp_num);
	add_idle(c, IDLE_FEW);
	few = time_messages(c, a, b, mr);
	add_idle(c, IDLE_MANY - IDLE_FEW - 2);
	many = time_messages(c, a, b, mr);
	printf("idle_few %.1f ns\nidle_many %.1f ns\nidle_ratio %.3f x\n", few, many, many / few);
}

int main(int argc, char **argv)
{
	struct client c = { 0 };
	void (*run)(struct client *) = NULL;

	if (argc == 2 && strcmp(argv[1], "registration") == 0)
		run = registration;
	if (argc == 2 && strcmp(argv[1], "idle") == 0)
		run = idle;
	if (!run) {
		fprintf(stderr, "usage: scale registration | idle\n");
		return 2;
	}
	client_open(&c, 64);
	run(&c);
	return 0;
}
