/* compat_1_0.h: objects as programs linked with libibverbs 1.0 (2006) see them.
 *
 * Each is the structure of that release with a pointer to today's object behind it. Today's object
 * points back through its consumer's context (cq_context, qp_context, srq_context), so events find
 * the old one. */
#ifndef IBVERBS_COMPAT_1_0_H
#define IBVERBS_COMPAT_1_0_H

#include <pthread.h>

#include "door.h"

#define DOOR_OLD(old, name) DOOR_COMPAT(old, name, "IBVERBS_1.0")

/* The methods of that release's contexts, of which programs called five through inline functions.
 */
enum {
	OLD_POLL_CQ = 7,
	OLD_REQ_NOTIFY_CQ = 8,
	OLD_POST_SRQ_RECV = 16,
	OLD_POST_SEND = 21,
	OLD_POST_RECV = 22,
	OLD_METHODS = 27,
};

struct old_device {
	void *sysfs_dev;
	void *sysfs_ibdev;
	struct ibv_device *real;
	void *methods[2];
} FIXED;

struct old_context {
	struct old_device *device FIXED;
	void (*methods[OLD_METHODS])(void) FIXED;
	int cmd_fd FIXED;
	int async_fd FIXED;
	int num_comp_vectors FIXED;
	struct ibv_context *real FIXED;
	/* of the door: on compat_1_0.c's list of open contexts */
	struct list_head node OWNED_BY(old_lock);
};

struct old_pd {
	struct old_context *context;
	uint32_t handle;
	struct ibv_pd *real;
} FIXED;

struct old_mr {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
	struct ibv_mr *real;
} FIXED;

struct old_ah {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle;
	struct ibv_ah *real;
} FIXED;

struct old_cq {
	struct old_context *context FIXED;
	void *cq_context OWNED_BY(the application);
	uint32_t handle FIXED;
	int cqe OWNED_BY(the application);
	pthread_mutex_t mutex OWNED_BY(the application);
	pthread_cond_t cond GUARDS_ITSELF;
	uint32_t comp_events_completed OWNED_BY(whoever holds mutex);
	uint32_t async_events_completed OWNED_BY(whoever holds mutex);
	struct ibv_cq *real FIXED;
};

struct old_srq {
	struct old_context *context FIXED;
	void *srq_context OWNED_BY(the application);
	struct old_pd *pd FIXED;
	uint32_t handle FIXED;
	pthread_mutex_t mutex OWNED_BY(the application);
	pthread_cond_t cond GUARDS_ITSELF;
	uint32_t events_completed OWNED_BY(whoever holds mutex);
	struct ibv_srq *real FIXED;
};

struct old_qp {
	struct old_context *context FIXED;
	void *qp_context OWNED_BY(the application);
	struct old_pd *pd FIXED;
	struct old_cq *send_cq FIXED;
	struct old_cq *recv_cq FIXED;
	struct old_srq *srq FIXED;
	uint32_t handle FIXED;
	uint32_t qp_num FIXED;
	enum ibv_qp_state state OWNED_BY(the application);
	enum ibv_qp_type qp_type FIXED;
	pthread_mutex_t mutex OWNED_BY(the application);
	pthread_cond_t cond GUARDS_ITSELF;
	uint32_t events_completed OWNED_BY(whoever holds mutex);
	struct ibv_qp *real FIXED;
};

struct old_qp_init_attr {
	void *qp_context;
	struct old_cq *send_cq;
	struct old_cq *recv_cq;
	struct old_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
} OWNED_BY(the application);

struct old_send_wr {
	struct old_send_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	int send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct old_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
} OWNED_BY(the application);

struct old_recv_wr {
	struct old_recv_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
} OWNED_BY(the application);

/* compat_post.c: fills in the five methods. */
void old_fill_methods(struct old_context *context);

#endif
