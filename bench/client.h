/* client.h: what the two small verbs clients share: the first device, and connected queue pairs.
 * They use libibverbs as any application does, and meet whichever library the loader finds.
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct client {
	struct ibv_device **list;
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

static inline void client_open(struct client *c, int cqe)
{
	c->list = ibv_get_device_list(NULL);
	if (!c->list || !c->list[0])
		client_fail("ibv_get_device_list (no device?)");
	c->context = ibv_open_device(c->list[0]);
	if (!c->context)
		client_fail("ibv_open_device");
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

static inline void client_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
				 const char *what)
{
	int err = ibv_modify_qp(qp, attr, mask);

	if (err) {
		errno = err;
		client_fail(what);
	}
}

/* Brings a QP to RTS, connected to `peer` of this process (maybe itself). */
static inline void client_connect(struct client *c, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE,
	};

	client_modify(qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		      "ibv_modify_qp to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = c->gid,
				      .sgid_index = (uint8_t)c->gid_index,
				      .hop_limit = 64 } },
	};
	client_modify(qp, &attr,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		      "ibv_modify_qp to RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	client_modify(qp, &attr,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		      "ibv_modify_qp to RTS");
}

#endif
