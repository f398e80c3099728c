/* ib_mad.h: management datagrams (MADs) over the special queue pairs, by Linux's names and with
 * Linux's semantics: formats, agents, sending with timeout and retries, RMPP.
 *
 * An agent sends requests and responses, matches responses to its requests by transaction ID, and
 * receives the unsolicited MADs of the class, version and methods that it registered.
 *
 * Transaction IDs: the upper 32 bits of every MAD that an agent sends as a request are its hi_tid,
 * whose top bits name this process' slot at the node. So responses reach this process without a
 * table. The lower 32 bits are the consumer's.
 *
 * Context: ib_create_send_mad, ib_free_send_mad, ib_post_send_mad, ib_modify_mad, ib_cancel_mad and
 * ib_free_recv_mad never block and may be called from anywhere, also from a handler. Registration
 * may block. Handlers run one at a time for one port, on a thread of the midlayer: never inside a
 * call of the agent's consumer, never from a timer, and without any lock. They may block, but
 * then hold up the port's other agents.
 * What arrives: the driver's process_mad sees each MAD first, and may answer or consume it. A Get
 * or Set that neither the driver nor an agent serves is answered: unsupported method or attribute.
 * Results: 0 or a negative errno; pointers are valid or ERR_PTR. Outputs stay untouched on failure.
 */
#ifndef IB_MAD_H
#define IB_MAD_H

#include <asm/byteorder.h>
#include <rdma/ib_verbs.h>

/* ---- numbers --------------------------------------------------------------------------------- */

#define IB_MGMT_BASE_VERSION 1

#define IB_MGMT_CLASS_SUBN_LID_ROUTED 0x01
#define IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE 0x81
#define IB_MGMT_CLASS_SUBN_ADM 0x03
#define IB_MGMT_CLASS_PERF_MGMT 0x04
#define IB_MGMT_CLASS_BM 0x05
#define IB_MGMT_CLASS_DEVICE_MGMT 0x06
#define IB_MGMT_CLASS_CM 0x07
#define IB_MGMT_CLASS_SNMP 0x08
#define IB_MGMT_CLASS_DEVICE_ADM 0x10
#define IB_MGMT_CLASS_BOOT_MGMT 0x11
#define IB_MGMT_CLASS_BIS 0x12
#define IB_MGMT_CLASS_CONG_MGMT 0x21
#define IB_MGMT_CLASS_VENDOR_RANGE2_START 0x30
#define IB_MGMT_CLASS_VENDOR_RANGE2_END 0x4F

#define IB_OPENIB_OUI 0x001405

#define IB_MGMT_METHOD_GET 0x01
#define IB_MGMT_METHOD_SET 0x02
#define IB_MGMT_METHOD_GET_RESP 0x81
#define IB_MGMT_METHOD_SEND 0x03
#define IB_MGMT_METHOD_TRAP 0x05
#define IB_MGMT_METHOD_REPORT 0x06
#define IB_MGMT_METHOD_REPORT_RESP 0x86
#define IB_MGMT_METHOD_TRAP_REPRESS 0x07
#define IB_MGMT_METHOD_RESP 0x80 /* the bit of a response */
#define IB_BM_ATTR_MOD_RESP __constant_htonl(1) /* class BM: the bit is in attr_mod */
#define IB_MGMT_MAX_METHODS 128

/* mad_hdr.status: bits common to all classes */
#define IB_MGMT_MAD_STATUS_SUCCESS 0x0000
#define IB_MGMT_MAD_STATUS_BUSY 0x0001
#define IB_MGMT_MAD_STATUS_REDIRECT_REQD 0x0002
#define IB_MGMT_MAD_STATUS_BAD_VERSION 0x0004
#define IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD 0x0008
#define IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB 0x000c
#define IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE 0x001c

/* ib_rmpp_hdr.rmpp_status */
#define IB_MGMT_RMPP_STATUS_SUCCESS 0
#define IB_MGMT_RMPP_STATUS_RESX 1
#define IB_MGMT_RMPP_STATUS_ABORT_MIN 118
#define IB_MGMT_RMPP_STATUS_T2L 118
#define IB_MGMT_RMPP_STATUS_BAD_LEN 119
#define IB_MGMT_RMPP_STATUS_BAD_SEG 120
#define IB_MGMT_RMPP_STATUS_BADT 121
#define IB_MGMT_RMPP_STATUS_W2S 122
#define IB_MGMT_RMPP_STATUS_S2B 123
#define IB_MGMT_RMPP_STATUS_BAD_STATUS 124
#define IB_MGMT_RMPP_STATUS_UNV 125
#define IB_MGMT_RMPP_STATUS_TMR 126
#define IB_MGMT_RMPP_STATUS_UNSPEC 127
#define IB_MGMT_RMPP_STATUS_ABORT_MAX 127

#define IB_QP0 0
#define IB_QP1 __constant_htonl(1)
#define IB_QP1_QKEY 0x80010000
#define IB_QP_SET_QKEY 0x80000000 /* a send request's: take the queue pair's own Q_Key */

/* Who raises a notice, and how much it matters: ib_mad_notice_attr */
#define IB_NOTICE_TYPE_FATAL 0x80
#define IB_NOTICE_TYPE_URGENT 0x81
#define IB_NOTICE_TYPE_SECURITY 0x82
#define IB_NOTICE_TYPE_SM 0x83
#define IB_NOTICE_TYPE_INFO 0x84
#define IB_NOTICE_PROD_CA __constant_htons(1)
#define IB_NOTICE_PROD_SWITCH __constant_htons(2)
#define IB_NOTICE_PROD_ROUTER __constant_htons(3)
#define IB_NOTICE_PROD_CLASS_MGR __constant_htons(4)

#define IB_DEFAULT_PKEY_PARTIAL 0x7FFF
#define IB_DEFAULT_PKEY_FULL 0xFFFF

enum {
	IB_MGMT_MAD_HDR = 24,
	IB_MGMT_MAD_DATA = 232,
	IB_MGMT_RMPP_HDR = 36,
	IB_MGMT_RMPP_DATA = 220,
	IB_MGMT_VENDOR_HDR = 40,
	IB_MGMT_VENDOR_DATA = 216,
	IB_MGMT_SA_HDR = 56,
	IB_MGMT_SA_DATA = 200,
	IB_MGMT_DEVICE_HDR = 64,
	IB_MGMT_DEVICE_DATA = 192,
	IB_MGMT_MAD_SIZE = IB_MGMT_MAD_HDR + IB_MGMT_MAD_DATA,
};

/* ---- formats: as they lie on the wire -------------------------------------------------------- */

struct ib_mad_hdr {
	u8 base_version;
	u8 mgmt_class;
	u8 class_version;
	u8 method;
	__be16 status;
	__be16 class_specific;
	__be64 tid;
	__be16 attr_id;
	__be16 resv;
	__be32 attr_mod;
};

#define IB_MGMT_RMPP_VERSION 1

#define IB_MGMT_RMPP_TYPE_DATA 1
#define IB_MGMT_RMPP_TYPE_ACK 2
#define IB_MGMT_RMPP_TYPE_STOP 3
#define IB_MGMT_RMPP_TYPE_ABORT 4

#define IB_MGMT_RMPP_FLAG_ACTIVE 1
#define IB_MGMT_RMPP_FLAG_FIRST (1 << 1)
#define IB_MGMT_RMPP_FLAG_LAST (1 << 2)

#define IB_MGMT_RMPP_NO_RESPTIME 0x1F

#define IB_MGMT_RMPP_PASSTHRU 0

struct ib_rmpp_hdr {
	u8 rmpp_version;
	u8 rmpp_type;
	u8 rmpp_rtime_flags; /* response time in the upper five bits, flags in the lower three */
	u8 rmpp_status;
	__be32 seg_num;
	__be32 paylen_newwin; /* DATA: payload length; ACK: last segment of the new window */
};

typedef u64 ib_sa_comp_mask;

/* 56 bytes in front of the data; the 64-bit fields are not aligned. */
struct ib_sa_hdr {
	__be64 sm_key;
	__be16 attr_offset;
	__be16 reserved;
	__be64 comp_mask;
} __attribute__((packed));

struct ib_mad {
	struct ib_mad_hdr mad_hdr;
	u8 data[IB_MGMT_MAD_DATA];
};

struct ib_rmpp_mad {
	struct ib_mad_hdr mad_hdr;
	struct ib_rmpp_hdr rmpp_hdr;
	u8 data[IB_MGMT_RMPP_DATA];
};

struct ib_sa_mad {
	struct ib_mad_hdr mad_hdr;
	struct ib_rmpp_hdr rmpp_hdr;
	struct ib_sa_hdr sa_hdr;
	u8 data[IB_MGMT_SA_DATA];
} __attribute__((packed, aligned(8)));

struct ib_vendor_mad {
	struct ib_mad_hdr mad_hdr;
	struct ib_rmpp_hdr rmpp_hdr;
	u8 reserved;
	u8 oui[3];
	u8 data[IB_MGMT_VENDOR_DATA];
};

#define IB_MGMT_CLASSPORTINFO_ATTR_ID __constant_htons(0x0001)

struct ib_class_port_info {
	u8 base_version;
	u8 class_version;
	__be16 capability_mask;
	u8 reserved[3];
	u8 resp_time_value; /* the lower five bits: 4.096 us * 2^value */
	u8 redirect_gid[16];
	__be32 redirect_tcslfl;
	__be16 redirect_lid;
	__be16 redirect_pkey;
	__be32 redirect_qp; /* the lower 24 bits */
	__be32 redirect_qkey;
	u8 trap_gid[16];
	__be32 trap_tcslfl;
	__be16 trap_lid;
	__be16 trap_pkey;
	__be32 trap_hlqp;
	__be32 trap_qkey;
};

/* The attribute Notice, as a trap carries it: IBA vol 1, 13.4.8.2 and 14.2.5.1. The generic form;
 * `details` by trap number. */
struct ib_mad_notice_attr {
	u8 generic_type; /* IB_NOTICE_TYPE_* */
	u8 prod_type_msb;
	__be16 prod_type_lsb; /* IB_NOTICE_PROD_* */
	__be16 trap_num;
	__be16 issuer_lid;
	__be16 toggle_count; /* the bit, then how many traps there were */
	union {
		struct {
			u8 details[54];
		} raw_data;
		struct { /* threshold of a link counter exceeded */
			__be16 reserved;
			__be16 lid;
			u8 port_num;
		} __attribute__((packed)) ntc_129_131;
		struct { /* capability mask, description or width changed */
			__be16 reserved;
			__be16 lid;
			u8 reserved2;
			u8 local_changes; /* the lowest bit */
			__be32 new_cap_mask;
			u8 reserved3;
			u8 change_flags; /* the lowest three bits */
		} __attribute__((packed)) ntc_144;
		struct { /* system image GUID changed */
			__be16 reserved;
			__be16 lid;
			__be16 reserved2;
			__be64 new_sys_guid;
		} __attribute__((packed)) ntc_145;
		struct { /* bad M_Key */
			__be16 reserved;
			__be16 lid;
			__be16 dr_slid;
			u8 method;
			u8 reserved2;
			__be16 attr_id;
			__be32 attr_mod;
			__be64 mkey;
			u8 reserved3;
			u8 dr_trunc_hop;
			u8 dr_rtn_path[30];
		} __attribute__((packed)) ntc_256;
		struct { /* bad P_Key, bad Q_Key */
			__be16 reserved;
			__be16 lid1;
			__be16 lid2;
			__be32 key;
			__be32 sl_qp1; /* the SL in the upper four bits */
			__be32 qp2;
			union ib_gid gid1;
			union ib_gid gid2;
		} __attribute__((packed)) ntc_257_258;
	} details;
};

/* ---- sending --------------------------------------------------------------------------------- */

struct ib_mad_agent;
struct ib_mad_send_wc;
struct ib_mad_recv_wc;

/* A MAD to send, from ib_create_send_mad. `mad` and the header fields are the consumer's to fill
 * before it posts; `ah`, `context`, `timeout_ms` and `retries` too. The midlayer sets the rest.
 * Between ib_post_send_mad and the send handler the buffer is the midlayer's; only `context` stays
 * the consumer's. */
struct ib_mad_send_buf {
	struct ib_mad_send_buf *next; /* ib_post_send_mad posts the whole list */
	void *mad;		      /* hdr_len bytes, then data; a multiple of a segment */
	struct ib_mad_agent *mad_agent;
	struct ib_ah *ah; /* stays valid until the send handler or ib_free_send_mad */
	void *context[2];
	int hdr_len;
	int data_len;
	int seg_count; /* RMPP: segments of the message; else 0 */
	int seg_size;  /* bytes of data per segment */
	int seg_rmpp_size; /* the same with the class' header behind RMPP's */
	int timeout_ms; /* wait for a response so long; 0: none is expected */
	int retries; /* sends after the first that a timeout may cause, with RMPP for each window;
			the send handler finds how many there were */
};

/* Why a send has ended. IB_WC_SUCCESS: sent, and answered if a response was expected;
 * IB_WC_RETRY_EXC_ERR: no response was expected, and the receiver is known not to exist;
 * IB_WC_RESP_TIMEOUT_ERR: no response in time, after all retries; IB_WC_WR_FLUSH_ERR: cancelled, or
 * the agent or port ended; IB_WC_REM_ABORT_ERR: RMPP was stopped or aborted, vendor_err is its
 * status. */
struct ib_mad_send_wc {
	struct ib_mad_send_buf *send_buf;
	enum ib_wc_status status;
	u32 vendor_err;
};

/* ---- receiving ------------------------------------------------------------------------------- */

/* One received MAD. */
struct ib_mad_recv_buf {
	struct list_head list;
	struct ib_grh *grh; /* 40 bytes in front of the MAD; valid with IB_WC_GRH */
	struct ib_mad *mad;
};

/* A received message, which is the consumer's until ib_free_recv_mad. wc->src_qp, slid, sl,
 * pkey_index and the GRH say where it came from. With RMPP `rmpp_list` links the
 * ib_mad_recv_bufs of all segments in order, recv_buf the first; else it holds recv_buf alone. */
struct ib_mad_recv_wc {
	struct ib_wc *wc;
	struct ib_mad_recv_buf recv_buf;
	struct list_head rmpp_list;
	int mad_len; /* bytes: of one MAD 256; of an RMPP message header and data */
	size_t mad_seg_size; /* of each ib_mad_recv_buf: 256 */
};

/* Which unsolicited MADs an agent receives. `oui` only for vendor classes 0x30 to 0x4f. Bit m of
 * method_mask: method m, without the response bit. */
struct ib_mad_reg_req {
	u8 mgmt_class;
	u8 mgmt_class_version;
	u8 oui[3];
	unsigned long method_mask[IB_MGMT_MAX_METHODS / (8 * sizeof(unsigned long))];
};

/* A send has ended: exactly once for each buffer that ib_post_send_mad took. The buffer is the
 * consumer's again. For a request that was answered it runs behind the receive handler. */
typedef void (*ib_mad_send_handler)(struct ib_mad_agent *mad_agent,
				    struct ib_mad_send_wc *mad_send_wc);

/* A MAD of the registered methods, or the response to a request, has come. The handler owns
 * *mad_recv_wc and ends it by ib_free_recv_mad, then or later. For a response wc->wr_id is the
 * address of the request's struct ib_mad_send_buf; for others it is 0. */
typedef void (*ib_mad_recv_handler)(struct ib_mad_agent *mad_agent,
				    struct ib_mad_recv_wc *mad_recv_wc);

/* Sees what other agents send. Everything is valid until it returns, and read-only. */
typedef void (*ib_mad_snoop_handler)(struct ib_mad_agent *mad_agent,
				     struct ib_mad_send_buf *send_buf,
				     struct ib_mad_send_wc *mad_send_wc);

/* ---- agents ---------------------------------------------------------------------------------- */

/* The midlayer sets every field but `context`; the consumer reads them. */
struct ib_mad_agent {
	struct ib_device *device;
	struct ib_qp *qp; /* QP0 or QP1 of the port; NULL where the port has no queue pair here */
	struct ib_mr *mr; /* NULL: memory of MADs needs no registration */
	ib_mad_recv_handler recv_handler;
	ib_mad_send_handler send_handler;
	ib_mad_snoop_handler snoop_handler;
	void *context;
	u32 hi_tid; /* upper half of the transaction IDs of its requests */
	u8 port_num;
	u8 rmpp_version;
};

enum ib_mad_snoop_flags {
	IB_MAD_SNOOP_SEND_COMPLETIONS = 1 << 2,
	IB_MAD_SNOOP_RECVS = 1 << 4,
};

/* Registers an agent on the port's QP0 (IB_QPT_SMI) or QP1 (IB_QPT_GSI). *mad_reg_req is read
 * during the call only; NULL: the agent receives no unsolicited MAD. rmpp_version 0: the agent does
 * RMPP itself, if at all: it receives each packet as a MAD of its own, also those that answer no
 * outstanding request. 1: the midlayer segments and reassembles for classes that have RMPP; the
 * agent receives whole messages only. Messages of up to 12 MiB. recv_handler may be NULL without
 * mad_reg_req. May block. ERR_PTR: -EINVAL: queue pair type, class (0; 0x81 and 0x01 outside of
 * QP0), version, a missing handler, a vendor class without OUI, or another agent of the port, in
 * whichever process, has one of the methods (of the CM's class: in this process; its messages name
 * theirs); -EAGAIN: a new node has not heard of all processes for three seconds; -ENODEV: the
 * device has no such port, or the port no management; -ENOMEM. */
AV_EXPORT struct ib_mad_agent *ib_register_mad_agent(struct ib_device *device, u8 port_num,
						     enum ib_qp_type qp_type,
						     struct ib_mad_reg_req *mad_reg_req,
						     u8 rmpp_version,
						     ib_mad_send_handler send_handler,
						     ib_mad_recv_handler recv_handler,
						     void *context);

/* Registers an agent that only sees what others receive (IB_MAD_SNOOP_RECVS: by recv_handler, whose
 * *mad_recv_wc stays the midlayer's here) and how their sends end (IB_MAD_SNOOP_SEND_COMPLETIONS).
 * It cannot send. May block. ERR_PTR as ib_register_mad_agent; -EINVAL also: a flag without its
 * handler, or none. */
AV_EXPORT struct ib_mad_agent *ib_register_mad_snoop(struct ib_device *device, u8 port_num,
						     enum ib_qp_type qp_type, int mad_snoop_flags,
						     ib_mad_snoop_handler snoop_handler,
						     ib_mad_recv_handler recv_handler,
						     void *context);

/* Ends the agent. Its outstanding sends end with IB_WC_WR_FLUSH_ERR by the send handler before this
 * returns; no handler of it runs afterwards. Received MADs that the consumer still holds stay
 * valid until ib_free_recv_mad. May block; not from a handler. 0. */
AV_EXPORT int ib_unregister_mad_agent(struct ib_mad_agent *mad_agent);

/* Posts a list of send buffers (linked by `next`), in order, each to its `ah`. With timeout_ms the
 * buffer is a request: it ends with the response of the same transaction ID, class and source, or
 * after 1 + retries timeouts. Without, it ends when it is sent. The send handler reports each end.
 * An RMPP message ends when the receiver has acknowledged all of it, and has been answered if it is
 * a request. Until then `retries` limits the repetitions of each window, each after timeout_ms, or
 * 2 s if that is less or there is no timeout_ms. While the segments of a response arrive, its
 * request's timeout rests. A request's transaction ID must not be that of another outstanding
 * request of the agent. Never blocks. 0; else *bad_send_buf (may be NULL) is the first that was not
 * taken, and: -EINVAL: no address, a timeout without receive handler, a directed-route SMP that
 * cannot leave, an RMPP message of a class without RMPP; -ENODEV: the port ends; -ENOMEM. */
AV_EXPORT int ib_post_send_mad(struct ib_mad_send_buf *send_buf,
			       struct ib_mad_send_buf **bad_send_buf);

/* Frees a received message, all its segments included. Never blocks. */
AV_EXPORT void ib_free_recv_mad(struct ib_mad_recv_wc *mad_recv_wc);

/* Ends an outstanding send with IB_WC_WR_FLUSH_ERR; the send handler reports it, later. A send that
 * has ended or never was posted: nothing happens. Never blocks. */
AV_EXPORT void ib_cancel_mad(struct ib_mad_agent *mad_agent, struct ib_mad_send_buf *send_buf);

/* Sets how long an outstanding request waits for its response, from now on; 0 cancels it. Never
 * blocks. 0; -EINVAL: it is not outstanding. */
AV_EXPORT int ib_modify_mad(struct ib_mad_agent *mad_agent, struct ib_mad_send_buf *send_buf,
			    u32 timeout_ms);

/* Always -ENOSYS as a negative errno or ERR_PTR: redirected QPs are the consumer's own, as they
 * are in Linux. */
AV_EXPORT struct ib_mad_agent *ib_redirect_mad_qp(struct ib_qp *qp, u8 rmpp_version,
						  ib_mad_send_handler send_handler,
						  ib_mad_recv_handler recv_handler, void *context);

/* Always -ENOSYS, since there are no agents of redirected QPs. */
AV_EXPORT int ib_process_mad_wc(struct ib_mad_agent *mad_agent, struct ib_wc *wc);

/* Allocates a zeroed MAD of hdr_len + data_len bytes for the agent, to be sent to queue pair
 * remote_qpn with the P_Key at pkey_index. hdr_len is the class' (IB_MGMT_MAD_HDR, _RMPP_HDR,
 * _SA_HDR, ...), data_len what follows it: with rmpp_active of any length, rounded up to
 * segments; without, both make IB_MGMT_MAD_SIZE at most. rmpp_active marks the MAD as an RMPP
 * message: rmpp_hdr is set but for rmpp_type, which the consumer sets to DATA. `gfp_mask` has no
 * meaning. Never blocks. ERR_PTR: -EINVAL: lengths, rmpp_active without the agent's RMPP version;
 * -ENOMEM. */
AV_EXPORT struct ib_mad_send_buf *ib_create_send_mad(struct ib_mad_agent *mad_agent, u32 remote_qpn,
						     u16 pkey_index, int rmpp_active, int hdr_len,
						     int data_len, unsigned int gfp_mask);

/* Does the class have RMPP headers? Any context. */
AV_EXPORT int ib_is_mad_class_rmpp(u8 mgmt_class);

/* Where the data begins in a MAD of the class. Any context. */
AV_EXPORT int ib_get_mad_data_offset(u8 mgmt_class);

/* The data of segment seg_num (from 1) of an RMPP message to send: seg_size bytes. NULL: there is
 * no such segment. Any context. */
AV_EXPORT void *ib_get_rmpp_segment(struct ib_mad_send_buf *send_buf, int seg_num);

/* Frees a buffer that is the consumer's: not posted, or ended. Never blocks. */
AV_EXPORT void ib_free_send_mad(struct ib_mad_send_buf *send_buf);

/* Nonzero if the agent leaves RMPP to the midlayer. Any context. */
AV_EXPORT int ib_mad_kernel_rmpp_agent(struct ib_mad_agent *agent);

/* ---- header fields --------------------------------------------------------------------------- */

/* Is the MAD a response? TRAP_REPRESS counts as one, and so does a BM send with its bit. */
static inline int ib_response_mad(const struct ib_mad *mad)
{
	return (mad->mad_hdr.method & IB_MGMT_METHOD_RESP) != 0 ||
	       mad->mad_hdr.method == IB_MGMT_METHOD_TRAP_REPRESS ||
	       (mad->mad_hdr.mgmt_class == IB_MGMT_CLASS_BM &&
		(mad->mad_hdr.attr_mod & IB_BM_ATTR_MOD_RESP) != 0);
}

static inline u8 ib_get_rmpp_resptime(const struct ib_rmpp_hdr *rmpp_hdr)
{
	return rmpp_hdr->rmpp_rtime_flags >> 3;
}

static inline u8 ib_get_rmpp_flags(const struct ib_rmpp_hdr *rmpp_hdr)
{
	return rmpp_hdr->rmpp_rtime_flags & 7;
}

static inline void ib_set_rmpp_resptime(struct ib_rmpp_hdr *rmpp_hdr, u8 rtime)
{
	rmpp_hdr->rmpp_rtime_flags = (u8)(ib_get_rmpp_flags(rmpp_hdr) | rtime << 3);
}

static inline void ib_set_rmpp_flags(struct ib_rmpp_hdr *rmpp_hdr, u8 flags)
{
	rmpp_hdr->rmpp_rtime_flags = (u8)((rmpp_hdr->rmpp_rtime_flags & 0xf8) | (flags & 7));
}

#endif
