/* first.c: how long a program waits from ibv_get_device_list to its first completion.
 *
 * In:    the environment (which node, is it up)     Out: "first N.NNN ms" on standard output
 * Runs:  one thread                                 Locks: none
 */
#include <time.h>

#include "client.h"

static double first_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void write_to_itself(struct client *c, struct ibv_qp *qp, struct ibv_mr *mr, uint64_t *words)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&words[0], .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .wr.rdma = { .remote_addr = (uintptr_t)&words[1],
					       .rkey = mr->rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n, err = ibv_post_send(qp, &wr, &bad);

	if (err) {
		errno = err;
		client_fail("ibv_post_send");
	}
	while ((n = ibv_poll_cq(c->cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS || words[1] != words[0]) {
		fprintf(stderr, "the write failed: %s\n",
			n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

int main(void)
{
	static uint64_t words[2] = { 0x1122334455667788ull, 0 };
	struct client c = { 0 };
	struct ibv_qp_init_attr init;
	double begin = first_ms(), end;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	client_open(&c, 4);
	mr = ibv_reg_mr(c.pd, words, sizeof(words),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		client_fail("ibv_reg_mr");
	qp = client_create_qp(&c, &init);
	client_connect(&c, qp, qp->qp_num);
	write_to_itself(&c, qp, mr, words);
	end = first_ms();
	printf("first %.3f ms\n", end - begin);
	return 0;
}
