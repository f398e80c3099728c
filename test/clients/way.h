/* way.h: how the tests' own verbs programs find a device and connect a queue pair, step by step.
 * All return what the verb returns: 0 or an errno. */
#ifndef TEST_CLIENTS_WAY_H
#define TEST_CLIENTS_WAY_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WAY_PORT = 1, WAY_QKEY = 0x11111111 };

struct way {
	enum ibv_qp_type type;
	union ibv_gid dgid;
	uint32_t dqpn, psn; /* PSNs of both directions start there */
	uint16_t dlid;
	enum ibv_mtu mtu;
	uint8_t sgid_index, hops, traffic_class, timeout, retries;
};

static inline enum ibv_qp_type way_type(const char *name)
{
	return strcmp(name, "UD") == 0 ? IBV_QPT_UD
	       : strcmp(name, "UC") == 0 ? IBV_QPT_UC
					 : IBV_QPT_RC;
}

/* The device of this name, or without one the first; NULL. */
static inline struct ibv_context *way_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list != NULL && list[i] != NULL && ctx == NULL; i++)
		if (name == NULL || strcmp(ibv_get_device_name(list[i]), name) == 0)
			ctx = ibv_open_device(list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	return ctx;
}

static inline struct ibv_ah_attr way_address(const struct way *w)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = WAY_PORT,
		.dlid = w->dlid,
		.grh = { .dgid = w->dgid,
			 .sgid_index = w->sgid_index,
			 .hop_limit = w->hops,
			 .traffic_class = w->traffic_class },
	};
}

static inline int way_to_init(const struct way *w, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = WAY_PORT,
				    .qkey = WAY_QKEY,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (w->type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	mask |= w->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int way_to_rtr(const struct way *w, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = w->mtu,
		.dest_qp_num = w->dqpn,
		.rq_psn = w->psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = way_address(w),
	};
	int mask = IBV_QP_STATE;

	if (w->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (w->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int way_to_rts(const struct way *w, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = w->psn,
				    .timeout = w->timeout,
				    .retry_cnt = w->retries,
				    .rnr_retry = 7,
				    .max_rd_atomic = 4 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (w->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

#endif
