/* duo.c: two processes and their queue pairs.
 * In:    calls of tests    Out: the same as verbs, checked
 * Runs:  each process' only thread
 * Locks: none
 */
#include "duo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct duo_name {
	uint32_t qpn;
	union ibv_gid gid;
};

void duo_tell(struct duo *d, const void *bytes, size_t n)
{
	must(other_tell(d->fd, bytes, n));
}

bool duo_hear(struct duo *d, void *bytes, size_t n)
{
	size_t got = other_hear(d->fd, bytes, n);

	must(got == n || got == 0);
	return got != 0;
}

static void duo_open(struct duo *d)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 64, 64, 2, 2, 64 } };

	d->context = device_open(NULL);
	must(d->context != NULL);
	d->pd = ibv_alloc_pd(d->context);
	d->cq = ibv_create_cq(d->context, 128, NULL, NULL, 0);
	must(d->pd != NULL && d->cq != NULL);
	init.send_cq = init.recv_cq = d->cq;
	d->qp = ibv_create_qp(d->pd, &init);
	must(d->qp != NULL);
}

void duo_step(struct duo *d)
{
	char c = 0;

	duo_tell(d, &c, 1);
	must(duo_hear(d, &c, 1));
}

static void duo_connect(struct duo *d)
{
	struct duo_name mine = { .qpn = d->qp->qp_num }, theirs;
	struct ibv_qp_attr a;

	must(ibv_query_gid(d->context, 1, 1, &mine.gid) == 0);
	duo_tell(d, &mine, sizeof(mine));
	must(duo_hear(d, &theirs, sizeof(theirs)));
	a = conn_attr(theirs.qpn, &theirs.gid, 1);
	a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	a.timeout = 18;
	must(conn_up(d->qp, &a, IBV_QPS_RTS) == 0);
	duo_step(d); /* neither begins before the other is ready */
}

void duo_start(struct duo *d)
{
	d->child = other_fork(&d->fd);
	must(d->child >= 0);
	duo_open(d);
	duo_connect(d);
}

bool duo_end(struct duo *d)
{
	int status = 0;

	must(ibv_destroy_qp(d->qp) == 0);
	must(ibv_destroy_cq(d->cq) == 0);
	must(ibv_dealloc_pd(d->pd) == 0);
	must(ibv_close_device(d->context) == 0);
	close(d->fd);
	if (d->child == 0)
		return true;
	must(waitpid(d->child, &status, 0) == d->child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct ibv_mr *duo_register(struct duo *d, void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(d->pd, p, n,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

	must(mr != NULL);
	return mr;
}

struct duo_place duo_place(const struct ibv_mr *mr)
{
	return (struct duo_place){ .addr = (uintptr_t)mr->addr,
				   .rkey = mr->rkey,
				   .length = (uint32_t)mr->length };
}

void duo_do(struct duo *d, enum ibv_wr_opcode op, struct ibv_mr *mr, void *local, uint32_t length,
	    uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)local, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = remote, .rkey = rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = rkey;
	}
	must(ibv_post_send(d->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(d->cq, 1, &wc)) == 0)
		;
	must(n == 1 && wc.status == IBV_WC_SUCCESS);
}

unsigned int duo_files_mapped(int pid)
{
	unsigned long inode, seen[16];
	char path[32], line[512];
	unsigned int n = 0, i;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "r");
	must(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strstr(line, "/memfd:anyverbs-memory") == NULL ||
		    strstr(line, " rw-s ") == NULL)
			continue;
		must(sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1);
		for (i = 0; i < n && seen[i] != inode; i++)
			;
		if (i == n && n < 16)
			seen[n++] = inode;
	}
	fclose(f);
	return n;
}
