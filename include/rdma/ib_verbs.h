/* ib_verbs.h: the midlayer's verbs, by Linux's names and with Linux's semantics, for programs in
 * user space.
 *
 * Kernel upper-layer code of the 2.6.22 era reads the same here. What has no meaning in a
 * process (ucontext, udata, umem, mmap) is absent; what the midlayer keeps per device stands
 * behind `core`. The types of arguments stand in ib_types.h.
 *
 * Context: create_ah, modify_ah, query_ah, destroy_ah, post_send, post_recv, post_srq_recv,
 * poll_cq, peek_cq, req_notify_cq, req_ncomp_notif, map_phys_fmr, bind_mw and ib_dispatch_event
 * never block and may be called from anywhere, also from a completion handler. Everything else may
 * block. Any function may be called by any number of threads at once, also on one object.
 * Results: 0 (or a count) or a negative errno; pointers are valid or ERR_PTR. Outputs stay
 * untouched on failure.
 */
#ifndef IB_VERBS_H
#define IB_VERBS_H

#include <anyverbs/device.h>
#include <rdma/ib_device_attrs.h>
#include <rdma/ib_types.h>

struct ib_device_core;
struct ib_uverbs_ops;
struct ib_qp_pools;
struct ib_rwq_ind_table;
struct ib_sig_attrs;
struct ib_xrcd;
struct ib_mad;
struct iw_cm_verbs;

/* ---- objects --------------------------------------------------------------------------------- */

/* A number for messages: `id` is no other CQ's of the process, or no other region's. */
struct rdma_restrack_entry {
	u32 id;
};

/* Drivers embed these. The midlayer sets every field but qp_num, cqe, lkey and rkey, which are
 * the driver's. usecnt: how many objects stand on this one; changed atomically by the midlayer
 * alone. Fields marked "6.1" are of the calls of ib_linux61.h, and used only if the sizes of
 * objects in the driver's ib_device_ops say that it was compiled with them. */
struct ib_pd {
	struct ib_device *device;
	int usecnt;
	u32 local_dma_lkey;	   /* 6.1: of all memory, for local access */
	u32 unsafe_global_rkey;	   /* 6.1: with IB_PD_UNSAFE_GLOBAL_RKEY */
	unsigned int flags;	   /* 6.1: enum ib_pd_flags */
	struct ib_mr *internal_mr; /* 6.1: the midlayer's, behind both keys */
};

struct ib_ah {
	struct ib_device *device;
	struct ib_pd *pd;
};

typedef void (*ib_comp_handler)(struct ib_cq *cq, void *cq_context);

struct ib_cq {
	struct ib_device *device;
	ib_comp_handler comp_handler;
	void (*event_handler)(struct ib_event *event, void *cq_context);
	void *cq_context;
	int cqe; /* how many completions it holds */
	int usecnt;
	void *uverbs_priv; /* who makes CQs for channels: uverbs->create_cq */
	void *poller;	   /* 6.1: of ib_alloc_cq; the midlayer's */
	struct rdma_restrack_entry res; /* 6.1 */
};

struct ib_srq {
	struct ib_device *device;
	struct ib_pd *pd;
	void (*event_handler)(struct ib_event *event, void *srq_context);
	void *srq_context;
	int usecnt;
	struct ib_cq *cq; /* only if the driver has ib_device_ops.create_srq */
	u32 srq_type;	  /* enum ib_srq_type; only if it has ib_device_ops.post_srq_ops */
	/* The next two only if it has ib_device_ops.open_xrcd. */
	struct ib_xrcd *xrcd; /* NULL: the SRQ is of no XRC domain */
	u32 srq_num;	      /* 24 bits, by which XRC requests name it; the driver's */
};

struct ib_qp {
	struct ib_device *device;
	struct ib_pd *pd; /* NULL: an XRC target */
	struct ib_cq *send_cq;
	struct ib_cq *recv_cq;
	struct ib_srq *srq;
	void (*event_handler)(struct ib_event *event, void *qp_context);
	void *qp_context;
	u32 qp_num;
	enum ib_qp_type qp_type;
	int usecnt; /* multicast groups that it is attached to, flow rules that name it */
	struct ib_xrcd *xrcd; /* of an XRC target; only if the driver has ib_device_ops.open_xrcd */
	/* by which it was created; only if the driver has ib_device_ops.create_wq */
	struct ib_rwq_ind_table *rwq_ind_tbl;
	struct ib_qp_pools *pools; /* 6.1: of ib_create_qp_linux61; NULL: none */
};

struct ib_mr {
	struct ib_device *device;
	struct ib_pd *pd;
	u32 lkey;
	u32 rkey;
	int usecnt; /* memory windows bound to it, if the driver counts them */
	/* Of ib_alloc_mr only: what ib_map_mr_sg has found (ib_extended.h). */
	u64 iova;
	u64 length;
	u32 page_size;
	u32 type; /* enum ib_mr_type */
	bool need_inval; /* 6.1: the consumer's and rdma_rw's: the key is valid, or about to be */
	struct list_head qp_entry; /* 6.1: in a pool of a queue pair */
	struct ib_sig_attrs *sig_attrs; /* 6.1: of IB_MR_TYPE_INTEGRITY, so NULL */
	struct rdma_restrack_entry res; /* 6.1 */
};

struct ib_mw {
	struct ib_device *device;
	struct ib_pd *pd;
	u32 rkey;
};

struct ib_fmr {
	struct ib_device *device;
	struct ib_pd *pd;
	struct list_head list; /* the consumer's: a list of FMRs for ib_unmap_fmr */
	u32 lkey;
	u32 rkey;
};

enum ib_process_mad_flags { IB_MAD_IGNORE_MKEY = 1, IB_MAD_IGNORE_BKEY = 2, IB_MAD_IGNORE_ALL = 3 };

enum ib_mad_result {
	IB_MAD_RESULT_FAILURE = 0,
	IB_MAD_RESULT_SUCCESS = 1 << 0,
	IB_MAD_RESULT_REPLY = 1 << 1,
	IB_MAD_RESULT_CONSUMED = 1 << 2,
};

#define IB_DEVICE_NAME_MAX 64

/* A device, embedded in the driver's own structure, which ib_alloc_device made. The driver fills
 * what follows before ib_register_device and does not change it until ib_unregister_device has
 * returned. An absent method answers -ENOSYS. */
struct ib_device {
	struct ib_device_core *core; /* the midlayer's own */
	struct device *dma_device;   /* NULL here: DMA addresses are the process' own */
	char name[IB_DEVICE_NAME_MAX]; /* one %d becomes the lowest free number */
	int num_comp_vectors;          /* 0 counts as 1 */
	struct iw_cm_verbs *iwcm;

	int (*query_device)(struct ib_device *device, struct ib_device_attr *attr);
	int (*query_port)(struct ib_device *device, u8 port_num, struct ib_port_attr *attr);
	int (*query_gid)(struct ib_device *device, u8 port_num, int index, union ib_gid *gid);
	int (*query_pkey)(struct ib_device *device, u8 port_num, u16 index, u16 *pkey);
	int (*modify_device)(struct ib_device *device, int mask, struct ib_device_modify *modify);
	int (*modify_port)(struct ib_device *device, u8 port_num, int mask,
			   struct ib_port_modify *modify);
	struct ib_pd *(*alloc_pd)(struct ib_device *device);
	int (*dealloc_pd)(struct ib_pd *pd);
	struct ib_ah *(*create_ah)(struct ib_pd *pd, struct ib_ah_attr *attr);
	int (*modify_ah)(struct ib_ah *ah, struct ib_ah_attr *attr);
	int (*query_ah)(struct ib_ah *ah, struct ib_ah_attr *attr);
	int (*destroy_ah)(struct ib_ah *ah);
	struct ib_srq *(*create_srq)(struct ib_pd *pd, struct ib_srq_init_attr *init);
	int (*modify_srq)(struct ib_srq *srq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask);
	int (*query_srq)(struct ib_srq *srq, struct ib_srq_attr *attr);
	int (*destroy_srq)(struct ib_srq *srq);
	int (*post_srq_recv)(struct ib_srq *srq, struct ib_recv_wr *wr, struct ib_recv_wr **bad);
	struct ib_qp *(*create_qp)(struct ib_pd *pd, struct ib_qp_init_attr *init);
	int (*modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask);
	int (*query_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			struct ib_qp_init_attr *init);
	int (*destroy_qp)(struct ib_qp *qp);
	int (*post_send)(struct ib_qp *qp, struct ib_send_wr *wr, struct ib_send_wr **bad);
	int (*post_recv)(struct ib_qp *qp, struct ib_recv_wr *wr, struct ib_recv_wr **bad);
	struct ib_cq *(*create_cq)(struct ib_device *device, int cqe, int comp_vector);
	int (*modify_cq)(struct ib_cq *cq, u16 cq_count, u16 cq_period);
	int (*destroy_cq)(struct ib_cq *cq);
	int (*resize_cq)(struct ib_cq *cq, int cqe);
	int (*poll_cq)(struct ib_cq *cq, int num_entries, struct ib_wc *wc);
	int (*peek_cq)(struct ib_cq *cq, int wc_cnt);
	int (*req_notify_cq)(struct ib_cq *cq, enum ib_cq_notify_flags flags);
	int (*req_ncomp_notif)(struct ib_cq *cq, int wc_cnt);
	struct ib_mr *(*get_dma_mr)(struct ib_pd *pd, int access);
	struct ib_mr *(*reg_phys_mr)(struct ib_pd *pd, struct ib_phys_buf *bufs, int count,
				     int access, u64 *iova_start);
	int (*query_mr)(struct ib_mr *mr, struct ib_mr_attr *attr);
	int (*dereg_mr)(struct ib_mr *mr);
	int (*rereg_phys_mr)(struct ib_mr *mr, int mask, struct ib_pd *pd, struct ib_phys_buf *bufs,
			     int count, int access, u64 *iova_start);
	struct ib_mw *(*alloc_mw)(struct ib_pd *pd);
	int (*bind_mw)(struct ib_qp *qp, struct ib_mw *mw, struct ib_mw_bind *bind);
	int (*dealloc_mw)(struct ib_mw *mw);
	struct ib_fmr *(*alloc_fmr)(struct ib_pd *pd, int access, struct ib_fmr_attr *attr);
	int (*map_phys_fmr)(struct ib_fmr *fmr, u64 *page_list, int list_len, u64 iova);
	int (*unmap_fmr)(struct list_head *fmr_list);
	int (*dealloc_fmr)(struct ib_fmr *fmr);
	int (*attach_mcast)(struct ib_qp *qp, union ib_gid *gid, u16 lid);
	int (*detach_mcast)(struct ib_qp *qp, union ib_gid *gid, u16 lid);
	int (*process_mad)(struct ib_device *device, int flags, u8 port_num, struct ib_wc *in_wc,
			   struct ib_grh *in_grh, struct ib_mad *in_mad, struct ib_mad *out_mad);

	char node_desc[64];
	__be64 node_guid;
	u32 local_dma_lkey;
	u8 node_type; /* enum rdma_node_type */
	u8 phys_port_cnt;
	/* The data path in libibverbs' layout; NULL: the midlayer converts. */
	const struct ib_uverbs_ops *uverbs;
	void *priv; /* the driver's */
	/* 6.1: what the device can do; the midlayer asks the driver when the device is registered.
	 * All 0 before, and of a driver that was compiled without it. */
	struct ib_device_attrs attrs;
	struct device dev; /* 6.1: for messages: bears `name` once the device is registered */
};

/* ---- devices and clients --------------------------------------------------------------------- */

/* A consumer that wants to be told of devices, which owns the structure until
 * ib_unregister_client returns. The midlayer calls `add` once per device, and `remove` once for
 * each `add`, never both at once. They may block, call any verb and register clients; they may
 * not unregister the device. */
struct ib_client {
	const char *name;
	void (*add)(struct ib_device *device);
	void (*remove)(struct ib_device *device);
	struct list_head list; /* the midlayer's */
};

/* For drivers. Allocates a zeroed device of `size` bytes, at least sizeof(struct ib_device), whose
 * first member is the struct ib_device. May block. The driver owns it until ib_dealloc_device.
 * NULL: no memory, or `size` is too small. */
AV_EXPORT struct ib_device *ib_alloc_device(size_t size);

/* For drivers. Frees a device of ib_alloc_device that is not registered. May block. */
AV_EXPORT void ib_dealloc_device(struct ib_device *device);

/* For drivers. Makes a complete device visible and calls `add` of every client before it returns.
 * May block. 0; -EINVAL: a mandatory method or the name is missing; -EEXIST: the name is taken, or
 * the device is registered; -ENFILE: no number is left for %d; -ENOMEM. */
AV_EXPORT int ib_register_device(struct ib_device *device);

/* For drivers. Calls `remove` of every client in the reverse order of `add`, then waits until
 * nobody holds the device. May block. All methods have to work until this returns; no event of the
 * device is delivered after it. A device that is not registered: nothing happens. */
AV_EXPORT void ib_unregister_device(struct ib_device *device);

/* Probes the drivers, and calls client->add for every device that exists before it returns, later
 * for each that comes. May block. 0; -EINVAL: NULL; -ENOMEM. */
AV_EXPORT int ib_register_client(struct ib_client *client);

/* Calls client->remove for every device that it was added to, the last first. May block. After it
 * the midlayer does not touch *client. */
AV_EXPORT void ib_unregister_client(struct ib_client *client);

/* Returns the pointer that the client stored for the device, NULL if none. Valid from `add` to the
 * end of `remove`. Never blocks. */
AV_EXPORT void *ib_get_client_data(struct ib_device *device, struct ib_client *client);

/* Stores a pointer of the client's for the device; the midlayer never follows it. Contexts as
 * ib_get_client_data. */
AV_EXPORT void ib_set_client_data(struct ib_device *device, struct ib_client *client, void *data);

/* Has handler->handler called for every event of handler->device and its ports, after those that
 * were registered earlier, on a thread of the midlayer and never inside a verb. The consumer owns
 * *handler until ib_unregister_event_handler returns. 0; -EINVAL: no device or function; -ENODEV:
 * the device is not registered. */
AV_EXPORT int ib_register_event_handler(struct ib_event_handler *handler);

/* Ends the calls. Waits for a handler that runs, unless the caller is that handler. 0 or -EINVAL:
 * no device. */
AV_EXPORT int ib_unregister_event_handler(struct ib_event_handler *handler);

/* For drivers. Queues a copy of *event for delivery: to the event_handler of the CQ, QP or SRQ
 * that it names, or, of a port or the device, to every registered handler. An event of an object
 * that is destroyed first is dropped. Never blocks, any context, and runs no handler itself. */
AV_EXPORT void ib_dispatch_event(struct ib_event *event);

/* Reads the device's limits and capabilities into *attr. May block. 0 or the driver's errno. */
AV_EXPORT int ib_query_device(struct ib_device *device, struct ib_device_attr *attr);

/* Reads a port's state and limits; ports count from 1. May block. 0; -EINVAL: no such port. */
AV_EXPORT int ib_query_port(struct ib_device *device, u8 port_num, struct ib_port_attr *attr);

/* Asks the driver for entry `index` of the port's GID table; an empty entry is all zero. May block
 * (ib_get_cached_gid does not). 0; -EINVAL: no such port, or beyond the table. */
AV_EXPORT int ib_query_gid(struct ib_device *device, u8 port_num, int index, union ib_gid *gid);

/* Asks the driver for entry `index` of the port's P_Key table, in host order. Otherwise as
 * ib_query_gid. */
AV_EXPORT int ib_query_pkey(struct ib_device *device, u8 port_num, u16 index, u16 *pkey);

/* Changes the attributes that `mask` (enum ib_device_modify_flags) names. May block. 0; -ENOSYS:
 * the device cannot; or the driver's errno. */
AV_EXPORT int ib_modify_device(struct ib_device *device, int mask, struct ib_device_modify *modify);

/* Changes the port's attributes that `mask` (enum ib_port_modify_flags) names. May block. 0;
 * -ENOSYS: the device cannot; -EINVAL: no such port; or the driver's errno. */
AV_EXPORT int ib_modify_port(struct ib_device *device, u8 port_num, int mask,
			     struct ib_port_modify *modify);

/* Searches the GID tables of all ports, by the driver, for the first entry that equals *gid.
 * *port_num and *index may be NULL. May block. 0; -ENOENT: nowhere, or *gid is all zero, as empty
 * entries are; or the driver's errno. */
AV_EXPORT int ib_find_gid(struct ib_device *device, union ib_gid *gid, u8 *port_num, u16 *index);

/* Searches the port's P_Key table for the key, as ib_find_cached_pkey does. *index may be
 * NULL. May block. 0; -ENOENT: not there; -EINVAL: no such port. */
AV_EXPORT int ib_find_pkey(struct ib_device *device, u8 port_num, u16 pkey, u16 *index);

/* RDMA_TRANSPORT_IWARP for an RNIC, RDMA_TRANSPORT_IB for every other node. Any context. */
AV_EXPORT enum rdma_transport_type rdma_node_get_transport(enum rdma_node_type node_type);

/* The port's link layer; where the port does not say, Ethernet for an RNIC and InfiniBand for
 * others. May block. */
AV_EXPORT enum rdma_link_layer rdma_port_get_link_layer(struct ib_device *device, u8 port_num);

/* A rate as a multiple of 2.5 Gbit/s, or -1 if there is no such rate. Any context, as the next
 * two. */
AV_EXPORT int ib_rate_to_mult(enum ib_rate rate);

/* The rate of a multiple of 2.5 Gbit/s, or IB_RATE_PORT_CURRENT if there is none. */
AV_EXPORT enum ib_rate mult_to_ib_rate(int mult);

/* A rate in Mbit/s, or -1 if there is no such rate. */
AV_EXPORT int ib_rate_to_mbps(enum ib_rate rate);

/* ---- protection domains and address handles -------------------------------------------------- */

/* Creates a protection domain, which ib_dealloc_pd ends. May block. ERR_PTR: -ENOMEM, or the
 * driver's. */
AV_EXPORT struct ib_pd *ib_alloc_pd(struct ib_device *device);

/* May block. 0; -EBUSY: an object of the domain exists, and the domain stays. */
AV_EXPORT int ib_dealloc_pd(struct ib_pd *pd);

/* Creates an address handle of a copy of *attr; ib_destroy_ah ends it. Never blocks, any context.
 * ERR_PTR: -EINVAL (port, GID index, an address that the device cannot reach), -ENOMEM. */
AV_EXPORT struct ib_ah *ib_create_ah(struct ib_pd *pd, struct ib_ah_attr *attr);

/* Fills *attr with the way back to the sender of a received datagram: *wc is its completion, `grh`
 * the 40 bytes in front of it (read with IB_WC_GRH only). Never blocks, any context. 0; -EINVAL: no
 * such port; -ENOENT: the datagram's destination is no GID of the device. */
AV_EXPORT int ib_init_ah_from_wc(struct ib_device *device, u8 port_num, struct ib_wc *wc,
				 struct ib_grh *grh, struct ib_ah_attr *attr);

/* ib_init_ah_from_wc and ib_create_ah in one call; contexts and errors as both. */
AV_EXPORT struct ib_ah *ib_create_ah_from_wc(struct ib_pd *pd, struct ib_wc *wc, struct ib_grh *grh,
					     u8 port_num);

/* Replaces the address. A send that another thread posts takes the old address or the new, whole.
 * Never blocks, any context. 0; -ENOSYS: the device cannot; -EINVAL as ib_create_ah, and the
 * handle is as it was. */
AV_EXPORT int ib_modify_ah(struct ib_ah *ah, struct ib_ah_attr *attr);

/* Reads the address as the last change left it. Never blocks, any context. 0 or -ENOSYS. */
AV_EXPORT int ib_query_ah(struct ib_ah *ah, struct ib_ah_attr *attr);

/* Frees the handle. Requests that were posted with it are not affected. Never blocks, any context.
 * 0 or the driver's errno. */
AV_EXPORT int ib_destroy_ah(struct ib_ah *ah);

/* ---- shared receive queues ------------------------------------------------------------------- */

/* Creates a shared receive queue; init->attr is updated to what was granted. *init is the caller's
 * and read during the call only. May block. ERR_PTR: -EINVAL (limits), -ENOSYS (the device has
 * none), -ENOMEM. */
AV_EXPORT struct ib_srq *ib_create_srq(struct ib_pd *pd, struct ib_srq_init_attr *init);

/* Changes the number of requests (IB_SRQ_MAX_WR) or arms the limit event (IB_SRQ_LIMIT). May block.
 * 0; -EINVAL: mask, limits, fewer places than requests wait; -ENOSYS; -ENOMEM. */
AV_EXPORT int ib_modify_srq(struct ib_srq *srq, struct ib_srq_attr *attr,
			    enum ib_srq_attr_mask mask);

/* Reads size and limit; srq_limit is 0 if the event is not armed. May block. 0 or -ENOSYS. */
AV_EXPORT int ib_query_srq(struct ib_srq *srq, struct ib_srq_attr *attr);

/* Destroys the queue and drops requests that wait in it. None of its events is delivered after
 * this. May block. 0; -EBUSY: a queue pair uses it; -ENOSYS. */
AV_EXPORT int ib_destroy_srq(struct ib_srq *srq);

/* Posts a list of receive requests. Never blocks, any context. As ib_post_recv; -ENOSYS too. */
AV_EXPORT int ib_post_srq_recv(struct ib_srq *srq, struct ib_recv_wr *wr, struct ib_recv_wr **bad);

/* ---- queue pairs ----------------------------------------------------------------------------- */

/* Creates a queue pair in RESET, which stands on its CQs and SRQ until ib_destroy_qp. init->cap is
 * updated to what was granted; *init is read during the call only. May block. ERR_PTR: -EINVAL
 * (limits, type, a CQ or SRQ that is missing or of another device), -ENOMEM. */
AV_EXPORT struct ib_qp *ib_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *init);

/* Changes the attributes that `mask` (enum ib_qp_attr_mask) names, and the state with IB_QP_STATE.
 * May block. 0; -EINVAL: a transition or mask that ib_modify_qp_is_ok refuses, a value out of
 * range; or the driver's errno. On failure nothing has changed. */
AV_EXPORT int ib_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask);

/* Reads attributes and creation attributes; what `mask` does not name may be filled or not. May
 * block. 0 or -ENOSYS. */
AV_EXPORT int ib_query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			  struct ib_qp_init_attr *init);

/* Destroys the queue pair in any state. Its completions that were not polled vanish, and none of
 * its events is delivered after this. May block. 0; -EBUSY: it is attached to a multicast group. */
AV_EXPORT int ib_destroy_qp(struct ib_qp *qp);

/* For drivers. 1 if the transition is allowed for the type, every required attribute is in `mask`
 * and no forbidden one; else 0. Any context. */
AV_EXPORT int ib_modify_qp_is_ok(enum ib_qp_state cur, enum ib_qp_state next, enum ib_qp_type type,
				 enum ib_qp_attr_mask mask);

/* Posts a list of send requests in order, up to the first bad one, which *bad names (`bad` may be
 * NULL). The list and its SGEs are read during the call only; the memory that they name, unless
 * inline, belongs to the device until the completion. Never blocks, any context. 0; -EINVAL:
 * state, opcode, SGEs; -ENOMEM: the queue is full. */
AV_EXPORT int ib_post_send(struct ib_qp *qp, struct ib_send_wr *wr, struct ib_send_wr **bad);

/* Posts a list of receive requests; as ib_post_send. -EINVAL also for a queue pair with an SRQ. */
AV_EXPORT int ib_post_recv(struct ib_qp *qp, struct ib_recv_wr *wr, struct ib_recv_wr **bad);

/* ---- completion queues ----------------------------------------------------------------------- */

/* Creates a CQ for at least `cqe` completions (cq->cqe says how many). comp_handler, may be NULL,
 * runs on the thread of `comp_vector` after an event that ib_req_notify_cq asked for: one at a
 * time for one CQ, never inside a verb, and may call what does not block. event_handler, may be
 * NULL, is told of an overflow. May block. ERR_PTR: -EINVAL (cqe below 1 or beyond the limit, no
 * such vector), -ENOMEM. */
AV_EXPORT struct ib_cq *ib_create_cq(struct ib_device *device, ib_comp_handler comp_handler,
				     void (*event_handler)(struct ib_event *event, void *context),
				     void *cq_context, int cqe, int comp_vector);

/* Has the device delay events: the completion that meets an arm raises none itself; the event comes
 * when cq_count completions have been added, that one included, or cq_period microseconds have
 * passed, or the CQ is full. A limit of 0 does not count; without a period the event may never
 * come. 0 and 0, or 1 and 0, end this. Limits: ib_query_device_ex. May block. 0 or -ENOSYS. */
AV_EXPORT int ib_modify_cq(struct ib_cq *cq, u16 cq_count, u16 cq_period);

/* Destroys the CQ. Waits until no handler of it runs. May block. 0; -EBUSY: a queue pair or SRQ
 * uses it; -EOPNOTSUPP: it is of ib_alloc_cq (ib_linux61.h), and ib_free_cq ends it. */
AV_EXPORT int ib_destroy_cq(struct ib_cq *cq);

/* Changes how many completions the CQ holds; those that wait, and an arm, stay. May block. 0;
 * -EINVAL: below 1, beyond the limit, fewer than wait; -ENOSYS; -ENOMEM. */
AV_EXPORT int ib_resize_cq(struct ib_cq *cq, int cqe);

/* Takes up to num_entries completions into wc[], the oldest first. Of threads that poll one CQ
 * each completion goes to one. Never blocks, any context. Returns how many were taken; -EINVAL: a
 * negative count. */
AV_EXPORT int ib_poll_cq(struct ib_cq *cq, int num_entries, struct ib_wc *wc);

/* Returns how many completions wait, counted up to wc_cnt, and takes none. Never blocks, any
 * context. -EINVAL: a negative count; -ENOSYS. */
AV_EXPORT int ib_peek_cq(struct ib_cq *cq, int wc_cnt);

/* Arms the CQ for one event, of the next completion or of the next solicited one. Never blocks,
 * any context. 0: armed; with IB_CQ_REPORT_MISSED_EVENTS every completion that was added since the
 * last poll raises an event. Above 0, only with that flag: armed, but a completion may have been
 * added before; poll again. -EINVAL: not exactly one of IB_CQ_SOLICITED and IB_CQ_NEXT_COMP. */
AV_EXPORT int ib_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags);

/* Arms the CQ for one event when at least wc_cnt completions wait, at once if they do. Never
 * blocks, any context. 0; -EINVAL: below 1, or more than the CQ holds; -ENOSYS. */
AV_EXPORT int ib_req_ncomp_notif(struct ib_cq *cq, int wc_cnt);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Registers the whole address space with the rights `access` (enum ib_access_flags). May block.
 * ERR_PTR: -EINVAL: remote write or atomic without IB_ACCESS_LOCAL_WRITE; -ENOMEM. */
AV_EXPORT struct ib_mr *ib_get_dma_mr(struct ib_pd *pd, int access);

/* Registers `count` buffers as one region. *iova_start is the address by which requests name its
 * first byte; the driver may change it. The buffers stay the caller's memory until ib_dereg_mr;
 * bufs[] is read during the call only. May block. ERR_PTR: -EINVAL, -ENOSYS, -ENOMEM. */
AV_EXPORT struct ib_mr *ib_reg_phys_mr(struct ib_pd *pd, struct ib_phys_buf *bufs, int count,
				       int access, u64 *iova_start);

/* Changes what `mask` (enum ib_mr_rereg_flags) names: the buffers, the domain, the rights; the keys
 * may change. May block. 0; -EBUSY: a window is bound to it; -EINVAL; -ENOSYS; -ENOMEM. */
AV_EXPORT int ib_rereg_phys_mr(struct ib_mr *mr, int mask, struct ib_pd *pd,
			       struct ib_phys_buf *bufs, int count, int access, u64 *iova_start);

/* Reads the region's address, size, rights and keys. May block. 0 or -ENOSYS. */
AV_EXPORT int ib_query_mr(struct ib_mr *mr, struct ib_mr_attr *attr);

/* Ends the region: when this returns 0, no access through its keys is under way. May block. -EBUSY:
 * a window is bound to it, or a peer is stopped inside an access; the region stays. */
AV_EXPORT int ib_dereg_mr(struct ib_mr *mr);

/* Creates a memory window that is not bound. May block. ERR_PTR: -ENOSYS, -ENOMEM. */
AV_EXPORT struct ib_mw *ib_alloc_mw(struct ib_pd *pd);

/* Posts a request that binds the window to a part of bind->mr, or unbinds it (length 0). mw->rkey
 * is the new key on success. Never blocks, any context. 0; -EINVAL: objects of several devices,
 * rights, range; -EBUSY: a peer uses the old key; -ENOMEM: the send queue is full; -ENOSYS. */
AV_EXPORT int ib_bind_mw(struct ib_qp *qp, struct ib_mw *mw, struct ib_mw_bind *bind);

/* Frees the window and ends its key. May block. 0; -EBUSY as ib_dereg_mr; -ENOSYS. */
AV_EXPORT int ib_dealloc_mw(struct ib_mw *mw);

/* Creates a fast memory region, which maps no pages yet. May block. ERR_PTR: -EINVAL (rights,
 * sizes), -ENOSYS, -ENOMEM. */
AV_EXPORT struct ib_fmr *ib_alloc_fmr(struct ib_pd *pd, int access, struct ib_fmr_attr *attr);

/* Maps the pages page_list[0..list_len) at the address `iova`; the keys in *fmr are new. page_list
 * is read during the call only. Never blocks, any context. 0; -EINVAL: list_len, alignment;
 * -ENOSYS; or the driver's errno (as often mapped as the device allows). */
AV_EXPORT int ib_map_phys_fmr(struct ib_fmr *fmr, u64 *page_list, int list_len, u64 iova);

/* Unmaps every FMR of the list (linked by `list`, all of one device), and ends all keys that they
 * had. May block. 0; -EINVAL: several devices; -ENOSYS. */
AV_EXPORT int ib_unmap_fmr(struct list_head *fmr_list);

/* Frees an FMR. May block. 0; -ENOSYS; or the driver's errno. */
AV_EXPORT int ib_dealloc_fmr(struct ib_fmr *fmr);

/* ---- multicast ------------------------------------------------------------------------------- */

/* Joins a UD queue pair to a multicast group; `lid` is ignored where the link has none. Attached
 * twice it is one member. May block. 0; -EINVAL: another type, a GID that is no group, or a LID
 * that is none; -ENOMEM: as many as the device can; -ENOSYS. */
AV_EXPORT int ib_attach_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid);

/* Leaves the group. May block. 0; -EINVAL: the queue pair is not in it; -ENOSYS. */
AV_EXPORT int ib_detach_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid);

#include <rdma/ib_dma.h>

#endif
