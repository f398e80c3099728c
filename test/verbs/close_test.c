/* close_test.c: a device that is closed while objects of it live: for peers they end, and no
 * descriptor stays open.
 * In: VERBS_VARIANT    Out: the exit status    Runs: two processes    Locks: none
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum { BYTES = 4096, ROUNDS = 40, OLD = 0x11, NEW = 0x22 };

static uint8_t memory[BYTES] __attribute__((aligned(4096)));

static int files_open(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	must(folder != NULL);
	while (readdir(folder) != NULL)
		n++;
	closedir(folder);
	return n;
}

/* As a program that frees nothing before it closes. */
static void open_and_close(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_context *context = device_open(NULL);
	struct ibv_pd *pd;

	must(context != NULL);
	pd = ibv_alloc_pd(context);
	init.send_cq = init.recv_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	must(pd != NULL && init.send_cq != NULL);
	must(ibv_create_qp(pd, &init) != NULL);
	must(ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE) != NULL);
	must(ibv_close_device(context) == 0);
}

static void leaks_no_descriptor(void)
{
	int before;

	open_and_close();
	before = files_open();
	for (int i = 0; i < ROUNDS; i++)
		open_and_close();
	/* a thread of the library may have one open for a moment */
	for (int i = 0; i < 1000 && files_open() > before; i++)
		usleep(10000);
	if (files_open() > before)
		fprintf(stderr, "%d descriptors became %d\n", before, files_open());
	must(files_open() <= before);
}

/* A context that imports the other's objects keeps them. */
static void closes_one_of_two(struct duo *d)
{
	struct ibv_context *second = ibv_import_device(dup(d->context->cmd_fd));
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(second != NULL);
	must(ibv_close_device(second) == 0);
	must(ibv_query_qp(d->qp, &attr, IBV_QP_STATE, &init) == 0);
	must(attr.qp_state == IBV_QPS_RTS);
}

static void closes(struct duo *d, struct ibv_mr *mr)
{
	int number = d->context->cmd_fd, events = d->context->async_fd;

	closes_one_of_two(d);
	must(ibv_close_device(d->context) == 0);
	must(fcntl(number, F_GETFD) < 0 && errno == EBADF);
	must(fcntl(events, F_GETFD) < 0 && errno == EBADF);
	duo_step(d); /* now the peer tries */
	duo_step(d);
	must(memory[0] == OLD);
	must(ibv_dereg_mr(mr) == 0);
	must(ibv_destroy_qp(d->qp) == 0);
	must(ibv_destroy_cq(d->cq) == 0);
	must(ibv_dealloc_pd(d->pd) == 0);
	leaks_no_descriptor();
}

static enum ibv_wc_status write_fails(struct duo *d, struct ibv_mr *mr, const struct duo_place *at)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = at->addr, .rkey = at->rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	must(ibv_post_send(d->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(d->cq, 1, &wc)) == 0)
		;
	must(n == 1);
	return wc.status;
}

int main(void)
{
	struct duo_place mine, there;
	enum ibv_wc_status status;
	struct ibv_mr *mr;
	struct duo d;

	pair_supervise();
	duo_start(&d);
	memset(memory, duo_is_child(&d) ? OLD : NEW, BYTES);
	mr = duo_register(&d, memory, BYTES);
	mine = duo_place(mr);
	duo_tell(&d, &mine, sizeof(mine));
	must(duo_hear(&d, &there, sizeof(there)));
	/* what is to fail later succeeds now */
	duo_do(&d, IBV_WR_RDMA_WRITE, mr, memory, 8, there.addr + 64, there.rkey);
	duo_step(&d);
	if (duo_is_child(&d)) {
		closes(&d, mr);
		return 0;
	}
	duo_step(&d);
	status = write_fails(&d, mr, &there);
	if (status != IBV_WC_RETRY_EXC_ERR)
		fprintf(stderr, "a WRITE to a closed device: %s\n", ibv_wc_status_str(status));
	must(status == IBV_WC_RETRY_EXC_ERR);
	duo_step(&d);
	must(ibv_dereg_mr(mr) == 0);
	return duo_end(&d) ? 0 : 1;
}
