/* footprint.c: memory that an idle, connected RC queue pair costs beside its rings.
 *
 * In:    a count (1000)     Out: "footprint N bytes", and what it consists of, on standard output
 * Runs:  one thread         Locks: none
 *
 * The rings are as small as can be: one send and one receive request of one element. Their bytes,
 * as the granted capacities name them, are taken off; whatever else became resident is what the
 * queue pairs cost.
 */
#include "client.h"

enum { WARM_UP = 64, COUNT = 1000, COUNT_MAX = 100000 };

/* Resident bytes of this process, shared memory included; not pages of files, which are there once
 * for all queue pairs: code that runs for the first time. */
static long resident_bytes(void)
{
	long kib, found = 0, sum = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1 ||
		    sscanf(line, "RssShmem: %ld", &kib) == 1) {
			sum += kib;
			found++;
		}
	if (found != 2)
		client_fail("/proc/self/status");
	fclose(f);
	return sum * 1024;
}

/* A request as libibverbs hands it over, with its elements and inline bytes. */
static long ring_bytes(const struct ibv_qp_cap *cap)
{
	long sge = sizeof(struct ibv_sge);
	long send = (long)sizeof(struct ibv_send_wr) + sge * cap->max_send_sge +
		    cap->max_inline_data;
	long receive = (long)sizeof(struct ibv_recv_wr) + sge * cap->max_recv_sge;

	return send * cap->max_send_wr + receive * cap->max_recv_wr;
}

/* Creates `count` queue pairs, each connected to its neighbour. */
static void create_connected(struct client *c, int count, struct ibv_qp_init_attr *init)
{
	for (int i = 0; i < count; i += 2) {
		struct ibv_qp *a = client_create_qp(c, init), *b = client_create_qp(c, init);

		client_connect(c, a, b->qp_num);
		client_connect(c, b, a->qp_num);
	}
}

int main(int argc, char **argv)
{
	struct client c = { 0 };
	struct ibv_qp_init_attr init;
	int count = argc > 1 ? atoi(argv[1]) : COUNT;
	long before, after, rings;

	if (count < 2 || count > COUNT_MAX) {
		fprintf(stderr, "usage: footprint [COUNT], 2 to %d\n", COUNT_MAX);
		return 2;
	}
	count &= ~1;
	client_open(&c, 16);
	create_connected(&c, WARM_UP, &init);
	before = resident_bytes();
	create_connected(&c, count, &init);
	after = resident_bytes();
	rings = ring_bytes(&init.cap);
	printf("footprint %ld bytes\n", (after - before) / count - rings);
	printf("resident %ld bytes\nrings %ld bytes\nqps %d\n", (after - before) / count, rings,
	       count);
	return 0;
}
