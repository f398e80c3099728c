/* raw.h: raw packet queue pairs over path/raw.
 *
 *   raw_qp.c    the methods of the queue pair; its send queue
 *   raw_rq.c    a receive queue: of a queue pair, or a work queue
 *   pace.c      the rate limit of a queue pair
 *   steer.c     the port's rules: which receive queue gets a frame
 *   rule.c      flow rules: from specifications to a value and a mask
 *   wq.c        work queues and their tables
 *
 * Locks, outermost first: soft_raw.sq_lock > steer_lock > soft_rq.rq_lock > the CQ's. A
 * frame that this process sends is handed to its own receivers under the sender's sq_lock, so no
 * receiver may take one.
 */
#ifndef DRIVER_SOFT_RAW_H
#define DRIVER_SOFT_RAW_H

#include "driver/soft/pace.h"
#include "driver/soft/soft.h"
#include "ibt/send/wqe.h"
#include "wire/ether.h"

enum {
	RAW_MAX_INLINE = 1024,
	RAW_MAX_WQ = 65536,
	RAW_MAX_TABLES = 65536,
	RAW_MAX_TABLE_LOG = 9,
};

/* ---- raw_rq.c ---- */

/* INIT: takes requests, but no frames. */
enum soft_rq_state { SOFT_RQ_RESET, SOFT_RQ_INIT, SOFT_RQ_READY, SOFT_RQ_FAILED };

struct soft_rq {
	struct lock rq_lock;
	enum soft_rq_state state GUARDED_BY(rq_lock);
	bool unplugged GUARDED_BY(rq_lock); /* posts answer -EIO */
	struct wqe_ring ring GUARDED_BY(rq_lock);
	struct wqe_memory memory FIXED;
	u32 head GUARDED_BY(rq_lock), tail GUARDED_BY(rq_lock);
	struct cq *cq FIXED;
	bool is_of_qp FIXED; /* a raw packet queue pair's; a work queue is named by no completion */
	struct cq_source source GUARDS_ITSELF; /* of a queue pair's completions */
	u32 pd FIXED;
	u32 number FIXED; /* of the completions */
};

/* Rounds *max_wr and *max_sge up to what is granted. `memory`: a door's, or NULL. 0, -EINVAL:
 * beyond a limit; -ENOMEM. */
int soft_rq_init(struct soft_rq *rq, const struct queue_memory *memory, u32 *max_wr, u32 *max_sge);
void soft_rq_fini(struct soft_rq *rq);
/* To FAILED: what is posted is flushed; to RESET: it vanishes. Takes rq_lock. */
void soft_rq_set(struct soft_rq *rq, enum soft_rq_state state);
/* In RESET, once none of its completions waits. */
void soft_rq_free_places(struct soft_rq *rq);
enum soft_rq_state soft_rq_state(struct soft_rq *rq);
void soft_rq_unplug(struct soft_rq *rq);
int soft_rq_post(struct soft_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Gives the queue a frame. Without a request, or out of READY, the frame is lost. A request that is
 * too short, or whose memory is wrong, completes in error, and the queue fails. */
void soft_rq_deliver(struct soft_rq *rq, const u8 *frame, u32 length);

/* ---- wq.c ---- */

struct soft_wq {
	struct ib_wq ib GUARDS_ITSELF;
	struct soft_rq rq GUARDS_ITSELF;
	struct list_head node OWNED_BY(soft_device.list_lock);
	u32 generation FIXED;
	u32 index FIXED; /* of its number: seat_qpn_give */
};

struct soft_table {
	struct ib_rwq_ind_table ib GUARDS_ITSELF;
};

/* The queue that the table has for a frame. */
struct soft_rq *soft_table_choose(const struct ib_rwq_ind_table *table,
				  const struct ib_rx_hash_conf *hash, const struct ether_key *key);

struct ib_wq *soft_create_wq(struct ib_pd *pd, struct ib_wq_init_attr *init);
int soft_modify_wq(struct ib_wq *ib, const struct ib_wq_attr *attr, u32 mask);
int soft_destroy_wq(struct ib_wq *ib);
struct ib_rwq_ind_table *
soft_create_table(struct ib_device *ib, const struct ib_rwq_ind_table_init_attr *init);
int soft_destroy_table(struct ib_rwq_ind_table *ib);
extern const struct ib_rss_caps soft_rss_caps;

/* ---- raw_qp.c ---- */

struct soft_raw {
	struct ib_qp ib GUARDS_ITSELF; /* first, as in struct soft_qp */
	struct list_head node OWNED_BY(soft_device.list_lock);
	struct ib_qp_init_attr init FIXED;
	u32 generation FIXED;
	u32 index FIXED; /* of its number */
	struct ib_rwq_ind_table *table FIXED; /* NULL: it has queues of its own */
	struct ib_rx_hash_conf hash FIXED; /* with `table` */
	u8 *frame OWNED_BY(soft_raw.sq_lock); /* being sent; RAW_FRAME_MAX bytes */
	struct soft_rq rq GUARDS_ITSELF;
	struct lock sq_lock;
	enum ib_qp_state state GUARDED_BY(sq_lock);
	bool unplugged GUARDED_BY(sq_lock);
	u8 port GUARDED_BY(sq_lock); /* as of the last IB_QP_PORT; 0 before */
	bool waits GUARDED_BY(sq_lock); /* for room in the socket */
	struct pace pace GUARDED_BY(sq_lock);
	struct wqe_ring ring GUARDED_BY(sq_lock);
	struct wqe_memory memory FIXED;
	u32 head GUARDED_BY(sq_lock), tail GUARDED_BY(sq_lock);
	struct cq_source source GUARDS_ITSELF; /* of its send completions */
};

struct ib_qp *soft_raw_create(struct ib_pd *pd, struct ib_qp_init_attr_ex *init);
int soft_raw_modify(struct ib_qp *ib, struct ib_qp_attr *attr, int mask);
int soft_raw_query(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init);
int soft_raw_destroy(struct ib_qp *ib);
/* Sends what waits for room in the socket. */
void soft_raw_resume(struct soft_raw *qp);
/* The device is gone: what is posted is flushed, and posts answer -EIO. */
void soft_raw_unplug(struct soft_raw *qp);

/* ---- steer.c ---- */

struct soft_counters {
	struct ib_counters ib GUARDS_ITSELF;
	u64 values[IB_COUNTER_KINDS] WRITTEN_UNDER(steer_lock); /* stored atomically */
};

struct ib_counters *soft_create_counters(struct ib_device *ib);
void soft_destroy_counters(struct ib_counters *ib);
int soft_read_counters(struct ib_counters *ib, u64 values[IB_COUNTER_KINDS]);

struct soft_flow {
	struct ib_flow ib GUARDS_ITSELF;
	struct list_head node OWNED_BY(steer_lock); /* sorted by rank, then age */
	struct node_flow shown FIXED; /* as other processes know it */
	struct soft_raw *qp FIXED; /* NULL: it is another process' */
	struct soft_counters *counters FIXED; /* of what it takes; may be NULL */
};

/* One more user of the device's port: opens it for the first. 0; -EPERM and so on, as raw_open. May
 * block. */
int soft_steer_get(struct soft_device *dev);
/* May block. */
void soft_steer_put(struct soft_device *dev);
/* Sends a frame of `qp` and gives it to this process' receivers. As raw_send. */
int soft_steer_send(struct soft_device *dev, const u8 *frame, u32 length);
struct ib_flow *soft_create_flow(struct ib_qp *ib, const struct ib_flow_attr *attr);
int soft_destroy_flow(struct ib_flow *ib);
/* In a forked child. */
void soft_steer_drop_in_child(struct soft_device *dev);

/* ---- rule.c ---- */

/* 0; -EINVAL: two specifications of one layer, or that contradict each other; -EOPNOTSUPP: one
 * that this adapter does not have. What is to be counted is none of the rule's. */
int rule_of_attr(const struct ib_flow_attr *attr, struct ether_rule *rule);

#endif
