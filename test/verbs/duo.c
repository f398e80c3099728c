/* duo.c: two processes and their queue pairs.
 * In:    calls of tests    Out: the same as verbs, checked
 * Runs:  each process' only thread
 * Locks: none
 */
#include "duo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

struct duo_name {
	uint32_t qpn;
	union ibv_gid gid;
};

void duo_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s (errno %d, pid %d)\n", file, line, what, errno, (int)getpid());
	exit(1);
}

void duo_tell(struct duo *d, const void *bytes, size_t n)
{
	DUO_CHECK(send(d->fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

bool duo_hear(struct duo *d, void *bytes, size_t n)
{
	ssize_t got = recv(d->fd, bytes, n, MSG_WAITALL);

	DUO_CHECK(got == (ssize_t)n || got == 0);
	return got != 0;
}

static void duo_open(struct duo *d)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 64, 64, 2, 2, 64 } };

	DUO_CHECK(list != NULL && list[0] != NULL);
	d->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	DUO_CHECK(d->context != NULL);
	d->pd = ibv_alloc_pd(d->context);
	d->cq = ibv_create_cq(d->context, 128, NULL, NULL, 0);
	DUO_CHECK(d->pd != NULL && d->cq != NULL);
	init.send_cq = init.recv_cq = d->cq;
	d->qp = ibv_create_qp(d->pd, &init);
	DUO_CHECK(d->qp != NULL);
}

static void duo_connect(struct duo *d)
{
	struct duo_name mine = { .qpn = d->qp->qp_num }, theirs;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	DUO_CHECK(ibv_query_gid(d->context, 1, 1, &mine.gid) == 0);
	duo_tell(d, &mine, sizeof(mine));
	DUO_CHECK(duo_hear(d, &theirs, sizeof(theirs)));
	DUO_CHECK(ibv_modify_qp(d->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS) == 0);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = theirs.qpn;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
					  .grh = { .dgid = theirs.gid, .sgid_index = 1,
						   .hop_limit = 8 } };
	DUO_CHECK(ibv_modify_qp(d->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 18;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	DUO_CHECK(ibv_modify_qp(d->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	/* and neither begins before the other is ready */
	duo_tell(d, &mine, 1);
	DUO_CHECK(duo_hear(d, &theirs, 1));
}

void duo_start(struct duo *d)
{
	int fd[2];

	DUO_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	d->child = fork();
	DUO_CHECK(d->child >= 0);
	if (d->child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	d->fd = fd[d->child == 0];
	close(fd[d->child != 0]);
	duo_open(d);
	duo_connect(d);
}

bool duo_end(struct duo *d)
{
	int status = 0;

	DUO_CHECK(ibv_destroy_qp(d->qp) == 0);
	DUO_CHECK(ibv_destroy_cq(d->cq) == 0);
	DUO_CHECK(ibv_dealloc_pd(d->pd) == 0);
	DUO_CHECK(ibv_close_device(d->context) == 0);
	close(d->fd);
	if (d->child == 0)
		return true;
	DUO_CHECK(waitpid(d->child, &status, 0) == d->child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct ibv_mr *duo_register(struct duo *d, void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(d->pd, p, n,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

	DUO_CHECK(mr != NULL);
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
	DUO_CHECK(ibv_post_send(d->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(d->cq, 1, &wc)) == 0)
		;
	DUO_CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
}

unsigned int duo_files_mapped(int pid)
{
	unsigned long inode, seen[16];
	char path[32], line[512];
	unsigned int n = 0, i;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "r");
	DUO_CHECK(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strstr(line, "/memfd:anyverbs-memory") == NULL ||
		    strstr(line, " rw-s ") == NULL)
			continue;
		DUO_CHECK(sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1);
		for (i = 0; i < n && seen[i] != inode; i++)
			;
		if (i == n && n < 16)
			seen[n++] = inode;
	}
	fclose(f);
	return n;
}
