/* ib_linux61.h: the midlayer's calls as Linux 6.1 has them, beside those of ib_verbs.h and over the
 * same objects: completion queues that poll themselves, drains, pools of regions, transfers.
 *
 * Where Linux 6.1 gives another meaning or other arguments to a name of ib_verbs.h or rdma_cm.h,
 * the name here ends in _linux61. The headers in include/linux-6.1/rdma/ map Linux's name to it by
 * a macro that renames the identifier: a rename of every occurrence in a translation unit changes
 * nothing that it can see, needs no symbol of its own for what is only a cast, and works without
 * optimisation. This header alone may be used beside the older calls, too.
 *
 * A device serves these calls if its driver was compiled with the fields marked "6.1" in
 * ib_verbs.h (ib_device_ops.device_size and what follows it); else they are -EOPNOTSUPP, and no
 * client of ib_register_client_linux61 is told of it.
 *
 * Context: rdma_rw_ctx_wrs, rdma_rw_ctx_post, ib_mr_pool_get, ib_mr_pool_put, ib_process_cq_direct
 * and the inline functions never block; everything else may. Results as in ib_verbs.h. A NULL
 * object is -EINVAL where a call has a result, and otherwise nothing happens; of the calls of
 * ib_verbs.h, ib_extended.h and rdma_cm.h that docs/linux-6.1.md lists, too.
 */
#ifndef IB_LINUX61_H
#define IB_LINUX61_H

#include <rdma/ib_cache.h>
#include <rdma/ib_extended.h>
#include <rdma/ib_signature.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* ---- clients --------------------------------------------------------------------------------- */

/* As struct ib_client. A client whose `add` returns non-zero does not want the device: it keeps no
 * data for it, and its `remove` is not called. */
struct ib_client_linux61 {
	const char *name;
	int (*add)(struct ib_device *device);
	void (*remove)(struct ib_device *device, void *client_data);
	void (*rename)(struct ib_device *device, void *client_data); /* never called */
	struct ib_client base; /* the midlayer's */
};

/* As ib_register_client. */
AV_EXPORT int ib_register_client_linux61(struct ib_client_linux61 *client);

/* As ib_unregister_client. */
AV_EXPORT void ib_unregister_client_linux61(struct ib_client_linux61 *client);

static inline void *ib_get_client_data_linux61(struct ib_device *device,
					       struct ib_client_linux61 *client)
{
	return device && client ? ib_get_client_data(device, &client->base) : NULL;
}

static inline void ib_set_client_data_linux61(struct ib_device *device,
					      struct ib_client_linux61 *client, void *data)
{
	if (device && client)
		ib_set_client_data(device, &client->base, data);
}

/* ---- completion queues that poll themselves -------------------------------------------------- */

/* Embedded in the consumer's request. `done` gets each completion of a request that was posted with
 * it, in the context of the CQ; *wc is the CQ's and valid until `done` returns. */
struct ib_cqe {
	void (*done)(struct ib_cq *cq, struct ib_wc *wc);
};

/* Where `done` runs. In no context do two calls of one CQ overlap, but for DIRECT, where the
 * callers of ib_process_cq_direct see to that. */
enum ib_poll_context {
	IB_POLL_SOFTIRQ,	   /* on the thread of the CQ's vector; it may not block */
	IB_POLL_WORKQUEUE,	   /* on a thread that the CQ has while it lives; it may block */
	IB_POLL_UNBOUND_WORKQUEUE, /* the same */
	IB_POLL_LAST_POOL_TYPE = IB_POLL_UNBOUND_WORKQUEUE,
	IB_POLL_DIRECT, /* inside ib_process_cq_direct only */
};

/* Creates a CQ for at least nr_cqe completions that hands each of them to the `done` of its
 * wr_cqe. One turn takes at most 256 completions (SOFTIRQ) or 65536
 * (WORKQUEUE), then others have theirs. ERR_PTR: -EINVAL (nr_cqe, comp_vector as in ib_create_cq;
 * poll_ctx), -EAGAIN (no thread), -ENOMEM, -EOPNOTSUPP. */
AV_EXPORT struct ib_cq *ib_alloc_cq(struct ib_device *device, void *cq_context, int nr_cqe,
				    int comp_vector, enum ib_poll_context poll_ctx);

/* ib_alloc_cq on a vector of the midlayer's choice, each in turn. */
AV_EXPORT struct ib_cq *ib_alloc_cq_any(struct ib_device *device, void *cq_context, int nr_cqe,
					enum ib_poll_context poll_ctx);

/* Frees a CQ of ib_alloc_cq. When it returns no `done` of the CQ runs, nor will; not from such a
 * one. A CQ that a queue pair or SRQ uses, or that was taken from a pool and not put, stays, with a
 * warning. */
AV_EXPORT void ib_free_cq(struct ib_cq *cq);

/* Hands up to `budget` completions that wait (-1: until none waits) to their `done`, here and now.
 * Returns how many. Never blocks by itself, any context. */
AV_EXPORT int ib_process_cq_direct(struct ib_cq *cq, int budget);

/* Returns a CQ of the context that other consumers may use, too, with room for nr_cqe completions
 * more; of the vector comp_vector_hint modulo their number (-1: each in turn). Its cq_context is
 * NULL. ERR_PTR: -EINVAL (IB_POLL_DIRECT, or more than a CQ of the device holds), else as
 * ib_alloc_cq. */
AV_EXPORT struct ib_cq *ib_cq_pool_get(struct ib_device *device, unsigned int nr_cqe,
				       int comp_vector_hint, enum ib_poll_context poll_ctx);

/* Gives back what ib_cq_pool_get gave for the same nr_cqe. The consumer's queue pairs of the CQ are
 * gone. Frees the CQ after its last consumer. */
AV_EXPORT void ib_cq_pool_put(struct ib_cq *cq, unsigned int nr_cqe);

/* In the place of the arguments of ib_create_cq. */
struct ib_cq_init_attr_linux61 {
	unsigned int cqe;
	u32 comp_vector;
	u32 flags; /* 0 */
};

/* As ib_create_cq. -EOPNOTSUPP: a flag. */
AV_EXPORT struct ib_cq *ib_create_cq_linux61(struct ib_device *device, ib_comp_handler comp_handler,
					     void (*event_handler)(struct ib_event *event,
								   void *context),
					     void *cq_context,
					     const struct ib_cq_init_attr_linux61 *attr);

/* ---- shared receive queues ------------------------------------------------------------------- */

struct ib_srq_init_attr_linux61 {
	void (*event_handler)(struct ib_event *event, void *srq_context);
	void *srq_context;
	struct ib_srq_attr attr;
	enum ib_srq_type srq_type;
	struct {
		struct ib_cq *cq;
		union {
			struct {
				struct ib_xrcd *xrcd;
			} xrc;
			struct {
				u32 max_num_tags;
			} tag_matching;
		};
	} ext;
};

/* As ib_create_srq_ex. */
AV_EXPORT struct ib_srq *ib_create_srq_linux61(struct ib_pd *pd,
					       struct ib_srq_init_attr_linux61 *init);

/* ---- drains ---------------------------------------------------------------------------------- */

/* Takes the queue pair to ERR and returns when every completion of its send queue has been handed
 * to its `done`; of a device that was pulled out, too, which flushes its queue pairs itself. The
 * send CQ is of ib_alloc_cq, CQ and queue have room for one more, and nobody posts meanwhile. A
 * queue pair that cannot go to ERR, or that refuses the request, is left alone, with a warning. */
AV_EXPORT void ib_drain_sq(struct ib_qp *qp);

/* The same of the receive queue. With an SRQ nothing happens but the change to ERR: requests of an
 * SRQ belong to no queue pair. */
AV_EXPORT void ib_drain_rq(struct ib_qp *qp);

/* Both. */
AV_EXPORT void ib_drain_qp(struct ib_qp *qp);

/* ---- protection domains ---------------------------------------------------------------------- */

enum ib_pd_flags { IB_PD_UNSAFE_GLOBAL_RKEY = 1 << 0 };

/* Creates a protection domain with local_dma_lkey, which is valid for local access to all of memory
 * and, with IB_PD_UNSAFE_GLOBAL_RKEY, unsafe_global_rkey for remote access. ERR_PTR: as
 * ib_alloc_pd, -EOPNOTSUPP. */
AV_EXPORT struct ib_pd *ib_alloc_pd_linux61(struct ib_device *device, unsigned int flags);

/* Ends a protection domain of ib_alloc_pd_linux61. One that an object uses stays, with a
 * warning. */
AV_EXPORT void ib_dealloc_pd_linux61(struct ib_pd *pd);

/* ---- work requests --------------------------------------------------------------------------- */

/* The head of struct ib_send_wr. */
struct ib_send_wr_linux61 {
	struct ib_send_wr_linux61 *next;
	union {
		u64 wr_id;
		struct ib_cqe *wr_cqe;
	};
	struct ib_sge *sg_list;
	int num_sge;
	enum ib_wr_opcode opcode;
	int send_flags; /* enum ib_send_flags */
	union {
		__be32 imm_data;
		u32 invalidate_rkey;
	} ex;
};

struct ib_rdma_wr {
	struct ib_send_wr_linux61 wr;
	u64 remote_addr;
	u32 rkey;
};

struct ib_atomic_wr {
	struct ib_send_wr_linux61 wr;
	u64 remote_addr;
	u64 compare_add;
	u64 swap;
	u64 compare_add_mask;
	u64 swap_mask;
	u32 rkey;
};

struct ib_ud_wr {
	struct ib_send_wr_linux61 wr;
	struct ib_ah *ah;
	void *header;
	int hlen;
	int mss;
	u32 remote_qpn;
	u32 remote_qkey;
	u16 pkey_index;
	u32 port_num;
};

struct ib_reg_wr {
	struct ib_send_wr_linux61 wr;
	struct ib_mr *mr;
	u32 key;
	int access;
};

/* Opcodes that no device has. */
enum {
	IB_WR_MASKED_ATOMIC_CMP_AND_SWP = 12,
	IB_WR_MASKED_ATOMIC_FETCH_AND_ADD = 13,
	IB_WR_REG_MR_INTEGRITY = 0x21,
};

/* The midlayer reads a request as its own structure, of which it is the head (ib_types.h). */
static inline int ib_post_send_linux61(struct ib_qp *qp, const struct ib_send_wr_linux61 *wr,
				       const struct ib_send_wr_linux61 **bad)
{
	if (__builtin_expect(!qp, 0))
		return -22; /* EINVAL */
	return ib_post_send(qp, (struct ib_send_wr *)(uintptr_t)wr, (struct ib_send_wr **)bad);
}

static inline int ib_post_recv_linux61(struct ib_qp *qp, const struct ib_recv_wr *wr,
				       const struct ib_recv_wr **bad)
{
	if (__builtin_expect(!qp, 0))
		return -22; /* EINVAL */
	return ib_post_recv(qp, (struct ib_recv_wr *)(uintptr_t)wr, (struct ib_recv_wr **)bad);
}

static inline int ib_post_srq_recv_linux61(struct ib_srq *srq, const struct ib_recv_wr *wr,
					   const struct ib_recv_wr **bad)
{
	if (__builtin_expect(!srq, 0))
		return -22; /* EINVAL */
	return ib_post_srq_recv(srq, (struct ib_recv_wr *)(uintptr_t)wr, (struct ib_recv_wr **)bad);
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

enum ib_qp_create_flags_linux61 {
	IB_QP_CREATE_INTEGRITY_EN = 1 << 6, /* no device has it */
};

struct ib_qp_cap_linux61 {
	u32 max_send_wr;
	u32 max_recv_wr;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_inline_data;
	u32 max_rdma_ctxs; /* transfers (struct rdma_rw_ctx) that may be in flight */
};

struct ib_qp_init_attr_linux61 {
	void (*event_handler)(struct ib_event *event, void *qp_context);
	void *qp_context;
	struct ib_cq *send_cq;
	struct ib_cq *recv_cq;
	struct ib_srq *srq;
	struct ib_xrcd *xrcd;
	struct ib_qp_cap_linux61 cap;
	enum ib_sig_type sq_sig_type;
	enum ib_qp_type qp_type;
	u32 create_flags;
	u32 port_num; /* with cap.max_rdma_ctxs */
	struct ib_rwq_ind_table *rwq_ind_tbl;
	u32 source_qpn;
};

/* As ib_create_qp. -EOPNOTSUPP: a create flag, source_qpn. */
AV_EXPORT struct ib_qp *ib_create_qp_linux61(struct ib_pd *pd,
					     struct ib_qp_init_attr_linux61 *init);

/* As ib_destroy_qp; regions in the queue pair's own pools go with it. */
AV_EXPORT int ib_destroy_qp_linux61(struct ib_qp *qp);

/* As ib_query_qp. */
AV_EXPORT int ib_query_qp_linux61(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
				  struct ib_qp_init_attr_linux61 *init);

/* As rdma_create_qp. Errors also as ib_create_qp_linux61. */
AV_EXPORT int rdma_create_qp_linux61(struct rdma_cm_id *id, struct ib_pd *pd,
				     struct ib_qp_init_attr_linux61 *init);

/* As rdma_destroy_qp; regions in the queue pair's own pools go with it. */
AV_EXPORT void rdma_destroy_qp_linux61(struct rdma_cm_id *id);

/* ---- pools of regions ------------------------------------------------------------------------ */

/* A queue pair's own lists, apart from it, so that others are no larger. Code of Linux 6.1 reads
 * them as fields of the queue pair: `rdma_mrs` is a macro for `pools->rdma_mrs` there, and so is
 * the other. The head of what the midlayer has there. */
struct ib_qp_pools {
	struct list_head rdma_mrs; /* regions of ib_mr_pool_init */
	struct list_head sig_mrs;  /* empty, for no device protects data by signatures */
};

/* Of enum ib_mr_type; ib_alloc_mr knows none of them. */
enum {
	IB_MR_TYPE_DM = 2,
	IB_MR_TYPE_USER = 3,
	IB_MR_TYPE_DMA = 4,
	IB_MR_TYPE_INTEGRITY = 5,
};

/* Adds `nr` regions of ib_alloc_mr to a list, the queue pair's rdma_mrs or the consumer's own. 0;
 * -EOPNOTSUPP: IB_MR_TYPE_INTEGRITY, a queue pair that was not created by ib_create_qp_linux61;
 * or as ib_alloc_mr, and the list is empty. */
AV_EXPORT int ib_mr_pool_init(struct ib_qp *qp, struct list_head *list, int nr,
			      enum ib_mr_type type, u32 max_num_sg, u32 max_num_meta_sg);

/* Ends the regions of the list; those that were got stay. May block. */
AV_EXPORT void ib_mr_pool_destroy(struct ib_qp *qp, struct list_head *list);

/* Takes a region off the list. NULL: it is empty. Never blocks, any context, as the next. */
AV_EXPORT struct ib_mr *ib_mr_pool_get(struct ib_qp *qp, struct list_head *list);

/* Gives it back. Whether its key is valid is mr->need_inval's to say. */
AV_EXPORT void ib_mr_pool_put(struct ib_qp *qp, struct list_head *list, struct ib_mr *mr);

/* ---- transfers ------------------------------------------------------------------------------- */

struct rdma_rw_part;

/* Of a transfer whose data is protected by signatures. */
struct rdma_rw_reg_ctx {
	struct ib_sge sge;
	struct ib_rdma_wr wr;
	struct ib_reg_wr reg_wr;
	struct ib_send_wr_linux61 inv_wr;
	struct ib_mr *mr;
};

/* One transfer between a scatter list here and one piece of the peer's memory. The consumer's
 * memory, the midlayer's fields. */
struct rdma_rw_ctx {
	u32 nr_ops; /* READs or WRITEs */
	u8 type;
	struct {
		struct ib_sge sge;
		struct ib_rdma_wr wr;
	} single;
	struct ib_rdma_wr *wrs; /* of more elements than one */
	struct rdma_rw_part *parts; /* of registered memory */
	struct rdma_rw_reg_ctx *reg; /* of rdma_rw_ctx_signature_init, so NULL */
};

/* Makes the requests of a transfer: of sg_cnt elements from byte sg_offset on, to (DMA_TO_DEVICE:
 * WRITE) or from (DMA_FROM_DEVICE: READ) `remote_addr` under `rkey`. The queue pair is of
 * ib_create_qp_linux61 and its domain of ib_alloc_pd_linux61. The memory is registered with
 * regions of qp->rdma_mrs if rdma_rw_set_force_mr says so, or a READ has more than
 * ib_device.attrs.max_sgl_rd elements (0: no limit); else the requests have an SGE for each
 * element. Returns how many requests there are; the list stays as it is until
 * rdma_rw_ctx_destroy. May block. -EINVAL: a direction, elements that a region cannot hold;
 * -EIO: the list is not longer than sg_offset; -EAGAIN: no region is left; -ENOMEM. */
AV_EXPORT int rdma_rw_ctx_init(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
			       struct scatterlist *sg, u32 sg_cnt, u32 sg_offset, u64 remote_addr,
			       u32 rkey, enum dma_data_direction dir);

/* Frees what rdma_rw_ctx_init has made, when the requests have completed or were not posted. */
AV_EXPORT void rdma_rw_ctx_destroy(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
				   struct scatterlist *sg, u32 sg_cnt,
				   enum dma_data_direction dir);

/* The list of requests, to be posted once. At its end stands chain_wr, or, without it, the last
 * request is signalled and completes with `cqe`. Never blocks, any context. */
AV_EXPORT struct ib_send_wr_linux61 *rdma_rw_ctx_wrs(struct rdma_rw_ctx *ctx, struct ib_qp *qp,
						     u32 port_num, struct ib_cqe *cqe,
						     struct ib_send_wr_linux61 *chain_wr);

/* Posts that list. As ib_post_send. */
AV_EXPORT int rdma_rw_ctx_post(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
			       struct ib_cqe *cqe, struct ib_send_wr_linux61 *chain_wr);

/* -EOPNOTSUPP: no device protects data by signatures. */
AV_EXPORT int rdma_rw_ctx_signature_init(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
					 struct scatterlist *sg, u32 sg_cnt,
					 struct scatterlist *prot_sg, u32 prot_sg_cnt,
					 struct ib_sig_attrs *sig_attrs, u64 remote_addr, u32 rkey,
					 enum dma_data_direction dir);

/* Nothing: there is no such transfer. */
AV_EXPORT void rdma_rw_ctx_destroy_signature(struct rdma_rw_ctx *ctx, struct ib_qp *qp,
					     u32 port_num, struct scatterlist *sg, u32 sg_cnt,
					     struct scatterlist *prot_sg, u32 prot_sg_cnt,
					     enum dma_data_direction dir);

/* Returns how many transfers (cap.max_rdma_ctxs) are needed for `maxpages` pages. Any context, as
 * the next two. 0: no device. */
AV_EXPORT unsigned int rdma_rw_mr_factor(struct ib_device *device, u32 port_num,
					 unsigned int maxpages);

/* Returns how many send requests that many transfers take; UINT_MAX: more than can be counted. */
AV_EXPORT unsigned int rdma_rw_max_send_wr(struct ib_device *device, u32 port_num,
					   unsigned int max_rdma_ctxs, u32 create_flags);

/* Has transfers registered whose queue pairs are created afterwards: Linux's module parameter
 * force_mr. */
AV_EXPORT void rdma_rw_set_force_mr(bool force);

/* ---- connections ----------------------------------------------------------------------------- */

struct net;

/* `net` is not looked at: the id is of the process' node. */
static inline struct rdma_cm_id *rdma_create_id_linux61(struct net *net,
							rdma_cm_event_handler event_handler,
							void *context, enum rdma_port_space ps,
							enum ib_qp_type qp_type)
{
	(void)net;
	return rdma_create_id(event_handler, context, ps, qp_type);
}

static inline int rdma_resolve_addr_linux61(struct rdma_cm_id *id, struct sockaddr *src_addr,
					    const struct sockaddr *dst_addr,
					    unsigned long timeout_ms)
{
	return rdma_resolve_addr(id, src_addr, (struct sockaddr *)(uintptr_t)dst_addr,
				 (int)timeout_ms);
}

/* In a handler of the id, or between rdma_lock_handler and rdma_unlock_handler, where rdma_connect
 * may be called, too. */
static inline int rdma_connect_locked(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	return rdma_connect(id, conn_param);
}

static inline int rdma_resolve_route_linux61(struct rdma_cm_id *id, unsigned long timeout_ms)
{
	return rdma_resolve_route(id, (int)timeout_ms);
}

/* Either may be NULL. All 0: the id is bound to no device. */
static inline void rdma_read_gids(struct rdma_cm_id *id, union ib_gid *sgid, union ib_gid *dgid)
{
	static const union ib_gid none = { { 0 } };

	if (sgid)
		*sgid = id && id->device ? id->route.addr.sgid : none;
	if (dgid)
		*dgid = id && id->device ? id->route.addr.dgid : none;
}

/* Memory of a program is of no node: NUMA_NO_NODE. */
static inline int ibdev_to_node(struct ib_device *device)
{
	(void)device;
	return -1;
}

/* ---- ports ----------------------------------------------------------------------------------- */

static inline u32 rdma_start_port(const struct ib_device *device)
{
	return device->node_type == RDMA_NODE_IB_SWITCH ? 0 : 1;
}

static inline u32 rdma_end_port(const struct ib_device *device)
{
	return device->node_type == RDMA_NODE_IB_SWITCH ? 0 : device->phys_port_cnt;
}

#define rdma_for_each_port(device, port)                                                           \
	for ((port) = rdma_start_port(device); (port) <= rdma_end_port(device); (port)++)

static inline int rdma_is_port_valid(const struct ib_device *device, unsigned int port_num)
{
	return port_num >= rdma_start_port(device) && port_num <= rdma_end_port(device);
}

/* What a port speaks. These may block, for they ask the driver. */
static inline bool rdma_protocol_ib(const struct ib_device *device, u32 port_num)
{
	return rdma_port_get_link_layer((struct ib_device *)(uintptr_t)device, (u8)port_num) ==
	       IB_LINK_LAYER_INFINIBAND;
}

static inline bool rdma_protocol_roce(const struct ib_device *device, u32 port_num)
{
	return !rdma_protocol_ib(device, port_num);
}

static inline bool rdma_protocol_roce_udp_encap(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_roce(device, port_num);
}

static inline bool rdma_ib_or_roce(const struct ib_device *device, u32 port_num)
{
	(void)device;
	(void)port_num;
	return true;
}

static inline bool rdma_protocol_iwarp(const struct ib_device *device, u32 port_num)
{
	(void)device;
	(void)port_num;
	return false;
}

static inline bool rdma_cap_ib_mad(const struct ib_device *device, u32 port_num)
{
	return rdma_ib_or_roce(device, port_num);
}

static inline bool rdma_cap_ib_cm(const struct ib_device *device, u32 port_num)
{
	return rdma_ib_or_roce(device, port_num);
}

static inline bool rdma_cap_iw_cm(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_iwarp(device, port_num);
}

static inline bool rdma_cap_ib_smi(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_ib(device, port_num);
}

static inline bool rdma_cap_ib_sa(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_ib(device, port_num);
}

static inline bool rdma_cap_ib_mcast(const struct ib_device *device, u32 port_num)
{
	return rdma_cap_ib_sa(device, port_num);
}

static inline bool rdma_cap_af_ib(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_ib(device, port_num);
}

static inline bool rdma_cap_eth_ah(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_roce(device, port_num);
}

/* IB_WR_RDMA_READ_WITH_INV is iWARP's. */
static inline bool rdma_cap_read_inv(const struct ib_device *device, u32 port_num)
{
	return rdma_protocol_iwarp(device, port_num);
}

/* As ib_get_cached_gid, but for an empty entry: -ENOENT. Never blocks. */
static inline int rdma_query_gid(struct ib_device *device, u32 port_num, int index,
				 union ib_gid *gid)
{
	union ib_gid found;
	int err;

	if (!rdma_is_port_valid(device, port_num))
		return -22; /* EINVAL */
	err = ib_get_cached_gid(device, (u8)port_num, index, &found);
	if (!err && !found.global.subnet_prefix && !found.global.interface_id)
		err = -2; /* ENOENT */
	if (!err)
		*gid = found;
	return err;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* What the number means, in a few words, for logs; any number. The texts are never freed. Any
 * context. */
AV_EXPORT const char *ib_event_msg(enum ib_event_type event);

/* As ib_event_msg, of a completion's status. */
AV_EXPORT const char *ib_wc_status_msg(enum ib_wc_status status);

/* As ib_event_msg, of an event of the RDMA CM. */
AV_EXPORT const char *rdma_event_msg(enum rdma_cm_event_type event);

/* As ib_event_msg, of the status of RDMA_CM_EVENT_REJECTED. */
AV_EXPORT const char *rdma_reject_msg(struct rdma_cm_id *id, int reason);

/* Returns the private data of the peer's rdma_reject, *data_len bytes; NULL and 0: another party
 * has refused. Valid as long as *event. Any context. */
AV_EXPORT const void *rdma_consumer_reject_data(struct rdma_cm_id *id, struct rdma_cm_event *event,
						u8 *data_len);

/* ---- what no device has ---------------------------------------------------------------------- */

enum { IB_ACCESS_ON_DEMAND = 1 << 6, IB_MR_CHECK_SIG_STATUS = 1 };

static inline int ib_check_mr_status(struct ib_mr *mr, u32 check_mask, struct ib_mr_status *status)
{
	(void)mr;
	(void)check_mask;
	(void)status;
	return -95; /* EOPNOTSUPP, as the others */
}

static inline struct ib_mr *ib_alloc_mr_integrity(struct ib_pd *pd, u32 max_num_data_sg,
						  u32 max_num_meta_sg)
{
	(void)pd;
	(void)max_num_data_sg;
	(void)max_num_meta_sg;
	return (struct ib_mr *)ERR_PTR(-95);
}

static inline int ib_map_mr_sg_pi(struct ib_mr *mr, struct scatterlist *data_sg, int data_sg_nents,
				  unsigned int *data_sg_offset, struct scatterlist *meta_sg,
				  int meta_sg_nents, unsigned int *meta_sg_offset,
				  unsigned int page_size)
{
	(void)mr;
	(void)data_sg;
	(void)data_sg_nents;
	(void)data_sg_offset;
	(void)meta_sg;
	(void)meta_sg_nents;
	(void)meta_sg_offset;
	(void)page_size;
	return -95;
}

/* A region's addresses do not begin at 0. */
static inline int ib_map_mr_sg_zbva(struct ib_mr *mr, struct scatterlist *sg, int sg_nents,
				    unsigned int *sg_offset, unsigned int page_size)
{
	(void)mr;
	(void)sg;
	(void)sg_nents;
	(void)sg_offset;
	(void)page_size;
	return -95;
}

/* Memory of a program is registered by ib_get_dma_mr, ib_reg_phys_mr and ib_map_mr_sg. */
static inline struct ib_mr *ib_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt_addr,
					   int access)
{
	(void)pd;
	(void)start;
	(void)length;
	(void)virt_addr;
	(void)access;
	return (struct ib_mr *)ERR_PTR(-95);
}

static inline int ib_advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice, u32 flags,
			       struct ib_sge *sg_list, u32 num_sge)
{
	(void)pd;
	(void)advice;
	(void)flags;
	(void)sg_list;
	(void)num_sge;
	return -95;
}

static inline bool ib_dma_pci_p2p_dma_supported(struct ib_device *device)
{
	(void)device;
	return false;
}

/* DMA addresses are the process' own, of any length. */
static inline bool ib_uses_virt_dma(struct ib_device *device)
{
	(void)device;
	return true;
}

static inline void *ib_virt_dma_to_ptr(u64 dma_addr)
{
	return (void *)(uintptr_t)dma_addr;
}

static inline unsigned int ib_dma_max_seg_size(struct ib_device *device)
{
	(void)device;
	return 0xffffffff;
}

static inline void ib_dma_sync_sg_for_cpu(struct ib_device *device, struct scatterlist *sg,
					  int count, enum dma_data_direction direction)
{
	(void)device;
	(void)sg;
	(void)count;
	(void)direction;
}

static inline void ib_dma_sync_sg_for_device(struct ib_device *device, struct scatterlist *sg,
					     int count, enum dma_data_direction direction)
{
	(void)device;
	(void)sg;
	(void)count;
	(void)direction;
}

#endif
