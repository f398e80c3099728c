/* key_bed.c: see key_bed.h.
 * In: a variant's environment    Out: queue pairs, regions, verdicts    Runs: cmocka
 */
#include "key_bed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct key_bed bed;

static enum ibv_qp_type key_type(void **state)
{
	return *state ? *(enum ibv_qp_type *)*state : IBV_QPT_RC;
}

int key_setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(list);
	bed.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(bed.ctx);
	assert_int_equal(ibv_query_gid(bed.ctx, 1, KEY_GID, &bed.gid), 0);
	bed.pd = ibv_alloc_pd(bed.ctx);
	bed.other_pd = ibv_alloc_pd(bed.ctx);
	bed.near_cq = ibv_create_cq(bed.ctx, 256, NULL, NULL, 0);
	bed.far_cq = ibv_create_cq(bed.ctx, 256, NULL, NULL, 0);
	assert_int_equal(posix_memalign((void **)&bed.bytes, 4096, KEY_BYTES), 0);
	memset(bed.bytes, 0, KEY_BYTES);
	bed.own = key_region(IBV_ACCESS_LOCAL_WRITE);
	bed.near = key_qp(bed.near_cq, key_type(state), NULL);
	bed.far = key_qp(bed.far_cq, key_type(state), NULL);
	key_connect(bed.near, bed.far);
	return 0;
}

int key_teardown(void **state)
{
	int err = ibv_destroy_qp(bed.near) | ibv_destroy_qp(bed.far) | ibv_dereg_mr(bed.own);

	err |= ibv_destroy_cq(bed.near_cq) | ibv_destroy_cq(bed.far_cq);
	err |= ibv_dealloc_pd(bed.pd) | ibv_dealloc_pd(bed.other_pd);
	err |= ibv_close_device(bed.ctx);
	free(bed.bytes);
	return err;
}

struct ibv_qp *key_qp(struct ibv_cq *cq, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .srq = srq,
					 .cap = { 32, srq ? 0 : 32, 2, srq ? 0 : 2, 64 },
					 .qp_type = type };
	struct ibv_qp *qp = ibv_create_qp(bed.pd, &init);

	assert_non_null(qp);
	return qp;
}

/* `psn`: of both directions. Another one for each connection, since packets of the last one may
 * still be on a wire. */
static void key_connect_one(struct ibv_qp *qp, uint32_t dest, uint32_t psn)
{
	bool rc = qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = KEY_REMOTE | IBV_ACCESS_LOCAL_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.rq_psn = psn,
		.sq_psn = psn,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 17,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = bed.gid, .sgid_index = KEY_GID, .hop_limit = 4 } }
	};

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							  IBV_QP_ACCESS_FLAGS),
			 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC |
							     IBV_QP_MIN_RNR_TIMER
						   : 0)),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_SQ_PSN |
					       (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							     IBV_QP_RNR_RETRY |
							     IBV_QP_MAX_QP_RD_ATOMIC
						   : 0)),
			 0);
}

void key_connect(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	static uint32_t psn;

	psn = (psn + 0x12345) & 0xffffff;
	assert_int_equal(ibv_modify_qp(a, &reset, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(b, &reset, IBV_QP_STATE), 0);
	key_connect_one(a, b->qp_num, psn);
	key_connect_one(b, a->qp_num, psn);
}

void key_again(void)
{
	struct ibv_wc wc;

	key_connect(bed.near, bed.far);
	while (ibv_poll_cq(bed.near_cq, 1, &wc) > 0 || ibv_poll_cq(bed.far_cq, 1, &wc) > 0)
		;
}

struct ibv_mr *key_region(int access)
{
	struct ibv_mr *mr = ibv_reg_mr(bed.pd, bed.bytes, KEY_BYTES, access);

	assert_non_null(mr);
	return mr;
}

void key_send(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(qp, wr, &bad), 0);
}

struct ibv_wc key_complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int got = 0;

	for (int i = 0; i < KEY_WAIT_MS * 10 && got == 0; i++) {
		/* both sides are driven by polls of either CQ */
		got = ibv_poll_cq(cq, 1, &wc);
		if (got == 0)
			usleep(i < 1000 ? 0 : 100);
	}
	assert_int_equal(got, 1);
	return wc;
}

struct ibv_wc key_expect(struct ibv_cq *cq, enum ibv_wc_status status)
{
	struct ibv_wc wc = key_complete(cq);

	if (wc.status != status)
		print_error("%s instead of %s\n", ibv_wc_status_str(wc.status),
			    ibv_wc_status_str(status));
	assert_int_equal(wc.status, status);
	return wc;
}

enum ibv_wc_status key_try_reach(enum ibv_wr_opcode op, uint64_t va, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)bed.bytes, length, bed.own->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED };
	enum ibv_wc_status status;

	wr.wr.rdma.remote_addr = va;
	wr.wr.rdma.rkey = rkey;
	key_send(bed.near, &wr);
	status = key_complete(bed.near_cq).status;
	if (status != IBV_WC_SUCCESS)
		key_again();
	return status;
}

void key_reaches(uint64_t va, uint8_t *there, uint32_t rkey)
{
	static uint64_t count;
	uint64_t value = ++count * 0x9e3779b97f4a7c15ull;

	memcpy(bed.bytes, &value, sizeof(value));
	assert_int_equal(key_try_reach(IBV_WR_RDMA_WRITE, va, rkey, 8), IBV_WC_SUCCESS);
	assert_memory_equal(there, &value, sizeof(value));
	memset(bed.bytes, 0, sizeof(value));
	assert_int_equal(key_try_reach(IBV_WR_RDMA_READ, va, rkey, 8), IBV_WC_SUCCESS);
	assert_memory_equal(bed.bytes, &value, sizeof(value));
}

void key_refused(uint64_t va, uint32_t rkey)
{
	assert_int_equal(key_try_reach(IBV_WR_RDMA_WRITE, va, rkey, 8), IBV_WC_REM_ACCESS_ERR);
}

void key_await(const uint8_t *there)
{
	uint64_t want;
	struct ibv_wc wc;

	memcpy(&want, bed.bytes, sizeof(want));
	/* the engine's thread may be the one that stores it */
	for (int i = 0; i < KEY_WAIT_MS &&
			__atomic_load_n((const uint64_t *)there, __ATOMIC_ACQUIRE) != want;
	     i++) {
		assert_int_equal(ibv_poll_cq(bed.far_cq, 1, &wc), 0);
		usleep(1000);
	}
	assert_memory_equal(there, bed.bytes, 8);
}
