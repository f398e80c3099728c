/* ib_extended.h: creation and queries by size-versioned structures, completions with side data,
 * tag matching, fast registration, and the methods of a driver that came after struct ib_device.
 *
 * The general rule of versions: the structures of ib_verbs.h never change. What is new is a field
 * at the end of a structure of this file. Each of these structures begins with `size`, which its
 * maker sets to the structure's size in the headers that the maker was compiled with. The
 * midlayer reads no byte beyond `size`, takes missing fields as zero, and hands the driver a
 * structure of its own. A field that the midlayer or the driver does not know must be zero, or
 * the call fails with -EOPNOTSUPP. So consumer, midlayer and driver may be built with different
 * releases of the headers, in any order.
 *
 * Fields that a later release appends to struct ib_cq, ib_srq or ib_qp are used only if `size` in
 * the driver's ib_device_ops says that the driver was compiled with them.
 *
 * Results and contexts as in ib_verbs.h.
 */
#ifndef IB_EXTENDED_H
#define IB_EXTENDED_H

#include <rdma/ib_steer.h>
#include <rdma/ib_verbs.h>

struct queue_memory;

/* ---- what a device can do -------------------------------------------------------------------- */

enum ib_tm_cap_flags { IB_TM_CAP_RC = 1 << 0 }; /* RC queue pairs may use a tag-matching SRQ */

/* Limits of tag matching; all 0: the device has none. */
struct ib_tm_caps {
	u32 max_rndv_hdr_size; /* bytes of a rendezvous request, all headers included */
	u32 max_num_tags;      /* entries of one SRQ's list */
	u32 flags;	       /* enum ib_tm_cap_flags */
	u32 max_ops;	       /* of one SRQ, that have not completed */
	u32 max_sge;	       /* of one entry */
};

/* Limits of ib_modify_cq; both 0: the device delays no event. */
struct ib_cq_caps {
	u16 max_cq_moderation_count;
	u16 max_cq_moderation_period; /* microseconds */
};

enum ib_odp_general_cap_bits {
	IB_ODP_SUPPORT = 1 << 0,
	IB_ODP_SUPPORT_IMPLICIT = 1 << 1, /* one region may be the whole address space */
};

enum ib_odp_transport_cap_bits {
	IB_ODP_SUPPORT_SEND = 1 << 0,
	IB_ODP_SUPPORT_RECV = 1 << 1,
	IB_ODP_SUPPORT_WRITE = 1 << 2,
	IB_ODP_SUPPORT_READ = 1 << 3,
	IB_ODP_SUPPORT_ATOMIC = 1 << 4,
	IB_ODP_SUPPORT_SRQ_RECV = 1 << 5,
	IB_ODP_SUPPORT_FLUSH = 1 << 6,
	IB_ODP_SUPPORT_ATOMIC_WRITE = 1 << 7,
};

/* What on-demand regions are good for: operations of each type of queue pair, by enum
 * ib_odp_transport_cap_bits. All 0: the device has no on-demand paging. */
struct ib_odp_caps {
	u32 general_caps; /* enum ib_odp_general_cap_bits */
	u32 rc_odp_caps;
	u32 uc_odp_caps;
	u32 ud_odp_caps;
	u32 xrc_odp_caps;
};

/* Beyond ib_device_attr.device_cap_flags. */
#define IB_DEVICE_FLUSH_GLOBAL (1ull << 38) /* FLUSH with the placement type of that name */
#define IB_DEVICE_ATOMIC_WRITE (1ull << 40) /* atomic writes of 8 bytes */

/* Rate limits of single queue pairs, IB_QP_RATE_LIMIT of ib_modify_qp. */
struct ib_rate_caps {
	u32 kbps_min, kbps_max; /* kbit/s; 0 in ib_qp_attr.rate_limit ends a limit */
	u32 supported_qpts; /* bits by enum ib_qp_type; 0: the device has none */
};

struct ib_device_attr_ex {
	u32 size;
	struct ib_device_attr base;
	struct ib_tm_caps tm_caps;
	struct ib_cq_caps cq_caps;
	u32 max_fast_reg_page_list_len; /* pages of one ib_alloc_mr; 0: the device has none */
	struct ib_odp_caps odp_caps;
	u64 max_dm_size; /* bytes of device memory that a process may have at once; 0: none */
	struct ib_rss_caps rss_caps;
	u32 max_wq_type_rq;  /* work queues of type RQ; 0: none */
	u32 raw_packet_caps; /* enum ib_raw_packet_caps of libibverbs; none is known */
	u64 cap_flags_ex; /* the bits above */
	struct ib_rate_caps rate_caps;
};

/* Reads limits and capabilities into *attr, whose `size` the consumer has set: what ib_query_device
 * reads into attr->base, and the rest. What the device does not know is 0. May block. 0; -EINVAL:
 * size; or the driver's errno. */
AV_EXPORT int ib_query_device_ex(struct ib_device *device, struct ib_device_attr_ex *attr);

/* ---- completion queues ----------------------------------------------------------------------- */

/* What a CQ keeps beside struct ib_wc, and how it behaves. A driver refuses a flag that it does
 * not know with -EOPNOTSUPP. */
enum ib_cq_creation_flags {
	IB_CQ_FLAGS_TIMESTAMP_COMPLETION = 1 << 0, /* ib_wc_side.timestamp */
	/* The consumer promises that the CQ never overruns. A completion that finds the CQ full is
	 * lost: no event, no error of the CQ or of the queue pair. */
	IB_CQ_FLAGS_IGNORE_OVERRUN = 1 << 1,
	IB_CQ_FLAGS_WALLCLOCK = 1 << 2, /* ib_wc_side.wallclock_ns */
	IB_CQ_FLAGS_TM_INFO = 1 << 3,   /* ib_wc_side.tm_tag and tm_priv */
};

struct ib_cq_init_attr {
	u32 size;
	u32 flags; /* enum ib_cq_creation_flags */
	int cqe;   /* as in ib_create_cq, as is the next */
	int comp_vector;
};

/* Beside a struct ib_wc. What the CQ was not created for is 0. The structure never grows: later
 * releases give a meaning to reserved bytes, which are 0 until then. */
struct ib_wc_side {
	/* The device's clock (ib_query_clock) when the completion was added; valid bits in
	 * ib_device_attr.timestamp_mask, the rate in hca_core_clock. */
	u64 timestamp;
	u64 wallclock_ns; /* the same moment by CLOCK_REALTIME */
	u64 tm_tag;       /* of the tag-matching header that was matched */
	u32 tm_priv;      /* its app_ctx */
	u32 reserved[9];
};

/* Creates a completion queue as ib_create_cq does, with the properties that attr->flags name.
 * `attr` is read during the call only. May block. Returns the CQ, which ib_destroy_cq destroys, or
 * ERR_PTR: -EINVAL (attr->size too small, cqe below 1 or beyond the limit, no such vector),
 * -EOPNOTSUPP (a flag or field unknown to the midlayer or the driver), -ENOMEM. */
AV_EXPORT struct ib_cq *ib_create_cq_ex(struct ib_device *device, ib_comp_handler comp_handler,
					void (*event_handler)(struct ib_event *event,
							      void *context),
					void *cq_context, const struct ib_cq_init_attr *attr);

/* Takes up to num_entries completions, the oldest first, with their side data: side[i] belongs to
 * wc[i]. Of a CQ without side data all of side[] is zero. Never blocks, any context. Returns how
 * many were taken, or -EINVAL (a negative count). */
AV_EXPORT int ib_poll_cq_ex(struct ib_cq *cq, int num_entries, struct ib_wc *wc,
			    struct ib_wc_side *side);

/* Reads the clock that ib_wc_side.timestamp is of, in its own units, into *raw. Never blocks, any
 * context. 0, or -EOPNOTSUPP: the device has none. */
AV_EXPORT int ib_query_clock(struct ib_device *device, u64 *raw);

/* ---- XRC domains ----------------------------------------------------------------------------- */

/* What an XRC target's requests may name: the SRQs of its domain. Drivers embed it. */
struct ib_xrcd {
	struct ib_device *device;
	int usecnt;
	u64 number; /* the driver's: the same of all that are one domain */
};

struct ib_xrcd_init_attr {
	u32 size;
	int fd; /* the domain of the file that is open here; -1: a domain of nobody else */
	int oflags; /* of a file's domain: O_CREAT, O_EXCL */
};

/* Opens an XRC domain, which ib_close_xrcd closes. Domains opened by descriptors of one file (its
 * inode) are one domain, which lives until the last of them is closed. May block. ERR_PTR: -EBADF:
 * `fd` is no descriptor; -EINVAL: attr->size, another flag, or the file has a domain and O_EXCL is
 * set; -EAGAIN: it has none, and O_CREAT is not set; -EOPNOTSUPP: the device has no XRC;
 * -ENOMEM. */
AV_EXPORT struct ib_xrcd *ib_open_xrcd(struct ib_device *device,
				       const struct ib_xrcd_init_attr *attr);

/* May block. 0; -EBUSY: an SRQ or a queue pair was made with it, and it stays. */
AV_EXPORT int ib_close_xrcd(struct ib_xrcd *xrcd);

/* ---- shared receive queues ------------------------------------------------------------------- */

enum ib_srq_type { IB_SRQT_BASIC, IB_SRQT_XRC, IB_SRQT_TM };

struct ib_srq_init_attr_ex {
	u32 size;
	enum ib_srq_type srq_type;
	struct ib_srq_init_attr base;
	struct ib_cq *cq; /* XRC, TM: where the SRQ's receives complete; BASIC: NULL */
	u32 max_num_tags; /* TM: entries of the list of tags */
	u32 max_ops;      /* TM: operations that have not completed */
	struct ib_xrcd *xrcd; /* XRC: the domain; other types: NULL */
	const struct queue_memory *memory; /* as in struct ib_qp_init_attr_ex */
};

/* Creates a shared receive queue of any type. init->base.attr is updated to what was granted. The
 * SRQ stands on init->cq and init->xrcd until ib_destroy_srq. May block. ERR_PTR: -EINVAL (size; a
 * CQ or domain of another device, or one where the type has none), -EOPNOTSUPP (the device lacks
 * the type, or does not know a field), -ENOSYS (the device has no SRQs), -ENOMEM. */
AV_EXPORT struct ib_srq *ib_create_srq_ex(struct ib_pd *pd, struct ib_srq_init_attr_ex *init);

/* ---- operations of a tag-matching SRQ -------------------------------------------------------- */

enum ib_ops_wr_opcode {
	IB_WR_TAG_ADD,	/* appends a buffer to the list */
	IB_WR_TAG_DEL,	/* takes one off it */
	IB_WR_TAG_SYNC, /* tells the count alone */
};

enum ib_ops_flags {
	IB_OPS_SIGNALED = 1 << 0, /* it completes in the SRQ's CQ */
	IB_OPS_TM_SYNC = 1 << 1,  /* unexpected_cnt counts */
};

/* One operation. The structure is libibverbs' struct ibv_ops_wr, and so never grows. */
struct ib_ops_wr {
	u64 wr_id;
	struct ib_ops_wr *next;
	enum ib_ops_wr_opcode opcode;
	int flags; /* enum ib_ops_flags */
	struct {
		u32 unexpected_cnt; /* unexpected messages that the consumer has handled */
		u32 handle;	    /* of the entry: TAG_ADD writes it, TAG_DEL reads it */
		struct {
			u64 recv_wr_id; /* of the completion of the message that takes the entry */
			struct ib_sge *sg_list;
			int num_sge;
			u64 tag;
			u64 mask; /* a message matches if its tag & mask == tag */
		} add;
	} tm;
};

/* Completions of a tag-matching SRQ, of messages too, may outlive queue pairs: ib_wc.qp is NULL
 * where the driver lets them.
 *
 * Posts a list of operations in order, up to the first bad one, which *bad names (`bad` may be
 * NULL). The list and its SGEs are read during the call only; the memory that they name belongs to
 * the device until a message's completion, or that of a TAG_DEL. Never blocks, any context. 0;
 * -EINVAL: the SRQ is of another type, opcode, handle, SGEs; -ENOMEM: max_num_tags entries or
 * max_ops operations are outstanding; -EOPNOTSUPP: the device has no such SRQs. */
AV_EXPORT int ib_post_srq_ops(struct ib_srq *srq, struct ib_ops_wr *wr, struct ib_ops_wr **bad);

/* ---- queue pairs ----------------------------------------------------------------------------- */

struct ib_qp_init_attr_ex {
	u32 size;
	u32 create_flags; /* none is defined; a driver refuses what it does not know */
	struct ib_qp_init_attr base;
	struct ib_xrcd *xrcd; /* XRC_TGT: its domain; other types: NULL */
	const struct queue_memory *memory; /* a door's, for the memory of queues; consumers: NULL */
	/* RAW_PACKET: spreads what it receives over the table's work queues. Such a queue pair has
	 * no queue and no CQ of its own, and no state to modify. */
	struct ib_rwq_ind_table *rwq_ind_tbl;
	struct ib_rx_hash_conf rx_hash; /* with rwq_ind_tbl */
};

/* Creates a queue pair as ib_create_qp does. init->base.cap is updated to what was granted. An
 * XRC_TGT has a domain, and needs no PD (`pd` may be NULL); it has no queue of its own, so that
 * CQs, SRQ and cap mean nothing. An XRC_INI has no receive queue: recv_cq and srq mean nothing. May
 * block. ERR_PTR as ib_create_qp, and -EOPNOTSUPP: a flag or field that the device does not
 * know. */
AV_EXPORT struct ib_qp *ib_create_qp_ex(struct ib_pd *pd, struct ib_qp_init_attr_ex *init);

/* ---- fast registration ----------------------------------------------------------------------- */

/* The successor of FMRs. A region of ib_alloc_mr names no memory at first. ib_map_mr_sg lays a
 * scatter list into it, which changes nothing for the device; IB_WR_REG_MR, in its turn on a send
 * queue, makes that mapping valid under a key; a local invalidate (IB_WR_LOCAL_INV), or the peer's
 * IB_WR_SEND_WITH_INV, ends it, and the region can be mapped and registered anew. So keys come and
 * go at the speed of work requests, in the order of the queue. */

enum ib_mr_type {
	IB_MR_TYPE_MEM_REG, /* whole pages, but for the ends */
	IB_MR_TYPE_SG_GAPS, /* any pieces */
};

/* Work request IB_WR_REG_MR: makes the mapping of `wr.reg.mr` valid under `wr.reg.key` with the
 * rights `wr.reg.access` (enum ib_access_flags). Of the key only the low 8 bits are the consumer's
 * choice (ib_update_fast_reg_key). The region must not be mapped again, or deregistered, before the
 * request has completed. The request fails with IB_WC_MW_BIND_ERR, and its queue pair with it, if
 * the region is valid, has no mapping, or is of another protection domain, or if remote writes or
 * atomics are to be allowed without IB_ACCESS_LOCAL_WRITE. */

/* The key with its low 8 bits one higher. */
static inline u32 ib_inc_rkey(u32 rkey)
{
	return (rkey & 0xffffff00u) | ((rkey + 1) & 0xff);
}

/* Gives the region's keys other low 8 bits, for the next IB_WR_REG_MR. */
static inline void ib_update_fast_reg_key(struct ib_mr *mr, u8 newkey)
{
	mr->lkey = (mr->lkey & 0xffffff00u) | newkey;
	mr->rkey = (mr->rkey & 0xffffff00u) | newkey;
}

/* Creates a region for fast registration, of up to max_num_sg pages. ib_dereg_mr ends it. May
 * block. ERR_PTR: -EOPNOTSUPP (the device has none), -EINVAL (a type that the device does not
 * have, max_num_sg 0 or beyond ib_device_attr_ex.max_fast_reg_page_list_len), -ENOMEM. */
AV_EXPORT struct ib_mr *ib_alloc_mr(struct ib_pd *pd, enum ib_mr_type mr_type, u32 max_num_sg);

/* Lays a list of sg_nents elements, from *sg_offset bytes in its first element on (NULL: 0), into
 * the region, as pages of page_size bytes. Elements join where they meet, or at page borders. Takes
 * elements until one does not fit: returns how many, and sets *sg_offset to the bytes of the next
 * one that were taken; mr->iova and mr->length say what was mapped. The list is read during the
 * call only. Never blocks, any context. Else -EINVAL: a region that is not of ib_alloc_mr, no
 * elements, an offset beyond the first, a page size that is no power of two or that the device does
 * not have; -EOPNOTSUPP. */
AV_EXPORT int ib_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int sg_nents,
			   unsigned int *sg_offset, unsigned int page_size);

/* For drivers. The walk of ib_map_mr_sg with mr->page_size: calls set_page for each page until it
 * refuses one (a negative errno). Sets mr->iova and mr->length. Returns how many elements were
 * taken, or a negative errno. */
AV_EXPORT int ib_sg_to_pages(struct ib_mr *mr, struct scatterlist *sg, int sg_nents,
			     unsigned int *sg_offset, int (*set_page)(struct ib_mr *mr, u64 page));

/* ---- for drivers ----------------------------------------------------------------------------- */

/* Methods beyond those of struct ib_device; an absent one is NULL. The midlayer takes its place
 * where the call asks for nothing beyond the namesake in struct ib_device, else the call fails
 * with -EOPNOTSUPP. Contexts as the functions above. The structures that methods get are the
 * midlayer's, live during the call only, and are zero beyond the sizes that stand here. */
struct ib_device_ops {
	u32 size; /* sizeof(struct ib_device_ops) and, next, of what the methods read */
	u32 cq_attr_size;
	u32 srq_attr_size;
	u32 qp_attr_size;
	struct ib_cq *(*create_cq)(struct ib_device *device, const struct ib_cq_init_attr *attr);
	/* Must be there if create_cq accepts a flag that asks for side data. Fills all of
	 * side[]. */
	int (*poll_cq)(struct ib_cq *cq, int num_entries, struct ib_wc *wc,
		       struct ib_wc_side *side);
	struct ib_srq *(*create_srq)(struct ib_pd *pd, struct ib_srq_init_attr_ex *init);
	struct ib_qp *(*create_qp)(struct ib_pd *pd, struct ib_qp_init_attr_ex *init);
	int (*query_clock)(struct ib_device *device, u64 *raw);
	/* Adds to what ib_device.query_device has put into attr->base. Writes only fields that end
	 * within attr->size; all but `base` are 0 before. */
	int (*query_device)(struct ib_device *device, struct ib_device_attr_ex *attr);
	/* Of an SRQ of type TM. *bad is always there. */
	int (*post_srq_ops)(struct ib_srq *srq, struct ib_ops_wr *wr, struct ib_ops_wr **bad);
	/* A driver with these has the whole struct ib_mr, and takes IB_WR_REG_MR. mr->page_size is
	 * set when map_mr_sg is called. */
	struct ib_mr *(*alloc_mr)(struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg);
	int (*map_mr_sg)(struct ib_mr *mr, struct scatterlist *sg, int sg_nents,
			 unsigned int *sg_offset);
	/* create_srq and create_qp take init->xrcd if these are there. For an XRC_TGT create_qp is
	 * called with pd NULL. */
	struct ib_xrcd *(*open_xrcd)(struct ib_device *device,
				     const struct ib_xrcd_init_attr *attr);
	int (*close_xrcd)(struct ib_xrcd *xrcd);
	/* Of RAW_PACKET queue pairs. What the attributes say has been checked, but for fields'
	 * values. */
	struct ib_flow *(*create_flow)(struct ib_qp *qp, const struct ib_flow_attr *attr);
	int (*destroy_flow)(struct ib_flow *flow);
	/* A driver with create_wq has all of them, and create_qp takes init->rwq_ind_tbl. The
	 * midlayer sets wq->state after a modify. */
	struct ib_wq *(*create_wq)(struct ib_pd *pd, struct ib_wq_init_attr *init);
	int (*modify_wq)(struct ib_wq *wq, const struct ib_wq_attr *attr, u32 mask);
	int (*destroy_wq)(struct ib_wq *wq);
	/* ind_tbl of the result is the midlayer's to fill in. */
	struct ib_rwq_ind_table *(*create_rwq_ind_table)(
		struct ib_device *device, const struct ib_rwq_ind_table_init_attr *init);
	int (*destroy_rwq_ind_table)(struct ib_rwq_ind_table *table);
	/* A driver with create_counters has all of them, and create_flow takes
	 * IB_FLOW_SPEC_ACTION_COUNT. */
	struct ib_counters *(*create_counters)(struct ib_device *device);
	void (*destroy_counters)(struct ib_counters *counters);
	int (*read_counters)(struct ib_counters *counters, u64 values[IB_COUNTER_KINDS]);
	/* sizeof the structures of ib_verbs.h that the driver embeds. */
	u32 device_size;
	u32 pd_size;
	u32 cq_size;
	u32 qp_size;
	u32 mr_size;
	u32 reserved; /* 0 */
};

/* The first fields of a table, as the driver is compiled. */
#define IB_DEVICE_OPS_SIZES                                                                        \
	.size = sizeof(struct ib_device_ops), .cq_attr_size = sizeof(struct ib_cq_init_attr),      \
	.srq_attr_size = sizeof(struct ib_srq_init_attr_ex),                                       \
	.qp_attr_size = sizeof(struct ib_qp_init_attr_ex),                                         \
	.device_size = sizeof(struct ib_device), .pd_size = sizeof(struct ib_pd),                  \
	.cq_size = sizeof(struct ib_cq), .qp_size = sizeof(struct ib_qp),                          \
	.mr_size = sizeof(struct ib_mr)

/* Gives a device that is not registered yet these methods; the table is copied. May block. 0,
 * -EINVAL (a size is too small), -EBUSY (registered), -ENOMEM. Methods that the midlayer does not
 * know are never called. */
AV_EXPORT int ib_set_device_ops(struct ib_device *device, const struct ib_device_ops *ops);

#endif
