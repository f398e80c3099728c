/* client.h: what the two small verbs clients share: the first device, and connected queue pairs.
 * They use libibverbs as any application does, and meet whichever library the loader finds.
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../test/pairs/pairs.h"

struct client {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	union ibv_gid gid;
	int gid_index;
};

static inline void client_fail(const char *what)
{
	fprintf(stderr, "%s failed: %s\n", what, strerror(errno));
	exit(1);
}

static inline void client_need(int fine, const char *what)
{
	if (!fine)
		client_fail(what);
}

/* A child that dies with its parent; 0 in the child. */
static inline pid_t client_fork(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	client_need(pid >= 0, "fork");
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static inline void client_open(struct client *c, int cqe)
{
	c->context = device_open(NULL);
	if (!c->context)
		client_fail("opening a device (is there one?)");
	if (ibv_query_gid(c->context, 1, c->gid_index, &c->gid))
		client_fail("ibv_query_gid");
	c->pd = ibv_alloc_pd(c->context);
	c->cq = ibv_create_cq(c->context, cqe, NULL, NULL, 0);
	if (!c->pd || !c->cq)
		client_fail("ibv_alloc_pd or ibv_create_cq");
}

static inline struct ibv_qp *client_create_qp(struct client *c, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *qp;

	*init = (struct ibv_qp_init_attr){
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	qp = ibv_create_qp(c->pd, init);
	if (!qp)
		client_fail("ibv_create_qp");
	return qp;
}

/* Brings a QP to RTS, connected to `peer` of this process (maybe itself). */
static inline void client_connect(struct client *c, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = conn_attr(peer, &c->gid, (uint8_t)c->gid_index);
	struct ibv_port_attr port;
	int err;

	if (ibv_query_port(c->context, 1, &port))
		client_fail("ibv_query_port");
	attr.ah_attr.dlid = port.lid; /* of a port of InfiniBand; elsewhere 0 */
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_LOCAL_WRITE;
	err = conn_up(qp, &attr, IBV_QPS_RTS);
	if (err) {
		errno = err;
		client_fail("ibv_modify_qp");
	}
}

#endif
