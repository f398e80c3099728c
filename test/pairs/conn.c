/* conn.c: a device, and the steps of its queue pairs from RESET to RTS.
 * In:    attributes    Out: what the verbs return
 * Runs:  the caller    Locks: none
 */
#include "pairs.h"
#include "../late.h"

#include <string.h>
#include <unistd.h>

struct ibv_context *device_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list != NULL && list[i] != NULL && context == NULL; i++)
		if (name == NULL || strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	return context;
}

enum ibv_qp_type conn_type(const char *name)
{
	return strcmp(name, "UD") == 0 ? IBV_QPT_UD
	       : strcmp(name, "UC") == 0 ? IBV_QPT_UC
					 : IBV_QPT_RC;
}

struct ibv_ah_attr conn_address(const union ibv_gid *gid, uint8_t gid_index)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = CONN_PORT,
		.grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 },
	};
}

struct ibv_qp_attr conn_attr(uint32_t peer, const union ibv_gid *gid, uint8_t gid_index)
{
	return (struct ibv_qp_attr){
		.port_num = CONN_PORT,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = conn_address(gid, gid_index),
	};
}

static int conn_mask_rtr(enum ibv_qp_type type)
{
	int mask = IBV_QP_STATE;

	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return mask;
}

static int conn_mask_rts(enum ibv_qp_type type)
{
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return mask;
}

int conn_mask(enum ibv_qp_type type, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_INIT:
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		return conn_mask_rtr(type);
	case IBV_QPS_RTS:
		return conn_mask_rts(type);
	default:
		return IBV_QP_STATE;
	}
}

int conn_to(struct ibv_qp *qp, const struct ibv_qp_attr *attr, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = *attr;

	a.qp_state = to;
	return ibv_modify_qp(qp, &a, conn_mask(qp->qp_type, to));
}

int conn_up(struct ibv_qp *qp, const struct ibv_qp_attr *attr, enum ibv_qp_state until)
{
	int err = conn_to(qp, attr, IBV_QPS_INIT);

	if (err == 0 && until != IBV_QPS_INIT)
		err = conn_to(qp, attr, IBV_QPS_RTR);
	if (err == 0 && until != IBV_QPS_INIT && until != IBV_QPS_RTR)
		err = conn_to(qp, attr, IBV_QPS_RTS);
	return err;
}

int conn_pair(struct ibv_qp *a, struct ibv_qp *b, const struct ibv_qp_attr *attr)
{
	struct ibv_qp_attr of_a = *attr, of_b = *attr;
	int err;

	of_a.dest_qp_num = b->qp_num;
	of_b.dest_qp_num = a->qp_num;
	err = conn_up(b, &of_b, IBV_QPS_RTS);
	return err != 0 ? err : conn_up(a, &of_a, IBV_QPS_RTS);
}

int conn_pairs(struct ibv_qp **a, struct ibv_qp **b, int n, const struct ibv_qp_attr *attr)
{
	int err = 0;

	for (int i = 0; i < n && err == 0; i++)
		err = conn_pair(a[i], b[i], attr);
	return err;
}

int cq_wait(struct ibv_cq *cq, struct ibv_wc *wc, int want, int timeout_ms)
{
	uint64_t end = now_ms() + (uint64_t)timeout_ms;
	int n = 0;

	do {
		int got = ibv_poll_cq(cq, want - n, &wc[n]);

		if (got < 0)
			return -1;
		n += got;
		if (got == 0)
			usleep(20);
	} while (n < want && now_ms() < end);
	if (n < want)
		late("completion", timeout_ms);
	return n;
}
