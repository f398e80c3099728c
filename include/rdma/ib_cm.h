/* ib_cm.h: the InfiniBand communication manager: connections and service IDs, by Linux's names and
 * with Linux's semantics (IBA vol 1, chapter 12).
 *
 * A communication identifier (cm_id) is one side of a connection, a service that listens, or one
 * SIDR exchange. The CM keeps its state and exchanges the messages; it never touches a queue pair:
 * the consumer makes the transitions with the attributes that ib_cm_init_qp_attr gives.
 *
 * Events: the handler of an id is called on a work queue, never inside a call of this header, and
 * for one id never twice at once. What an event points at is valid until the handler returns.
 * An id that a listening id made (IB_CM_REQ_RECEIVED, IB_CM_SIDR_REQ_RECEIVED) has the listening
 * id's handler and context until the handler replaces them.
 *
 * Context: ib_create_cm_id, ib_destroy_cm_id, ib_cm_listen and ib_send_cm_req of a peer may block;
 * no other call does. Any number of threads may call at once, also on one id, and from its handler.
 * Results: 0 or a negative errno; -EINVAL: the id's state does not allow the call, or a parameter
 * is out of bounds; -ENODEV: the device has gone; -ENOMEM. Service IDs and communication IDs are in
 * network byte order, all else in host order, if its type does not say otherwise. Private data is
 * copied by each call.
 */
#ifndef IB_CM_H
#define IB_CM_H

#include <endian.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

/* ---- states ---------------------------------------------------------------------------------- */

/* IBA vol 1, 12.9.6. */
enum ib_cm_state {
	IB_CM_IDLE,
	IB_CM_LISTEN,
	IB_CM_REQ_SENT,
	IB_CM_REQ_RCVD,
	IB_CM_MRA_REQ_SENT, /* this side has sent the MRA */
	IB_CM_MRA_REQ_RCVD,
	IB_CM_REP_SENT,
	IB_CM_REP_RCVD,
	IB_CM_MRA_REP_SENT,
	IB_CM_MRA_REP_RCVD,
	IB_CM_ESTABLISHED,
	IB_CM_DREQ_SENT,
	IB_CM_DREQ_RCVD,
	IB_CM_TIMEWAIT,
	IB_CM_SIDR_REQ_SENT,
	IB_CM_SIDR_REQ_RCVD
};

/* Of the alternate path, while the connection is established. */
enum ib_cm_lap_state {
	IB_CM_LAP_UNINIT, /* not established */
	IB_CM_LAP_IDLE,
	IB_CM_LAP_SENT,
	IB_CM_LAP_RCVD,
	IB_CM_MRA_LAP_SENT,
	IB_CM_MRA_LAP_RCVD
};

enum ib_cm_event_type {
	IB_CM_REQ_ERROR, /* no answer to the REQ within the retries */
	IB_CM_REQ_RECEIVED,
	IB_CM_REP_ERROR, /* no RTU */
	IB_CM_REP_RECEIVED,
	IB_CM_RTU_RECEIVED,
	IB_CM_USER_ESTABLISHED, /* by ib_cm_notify */
	IB_CM_DREQ_ERROR,	/* no DREP; timewait follows */
	IB_CM_DREQ_RECEIVED,
	IB_CM_DREP_RECEIVED,
	IB_CM_TIMEWAIT_EXIT, /* the queue pair may be used again */
	IB_CM_MRA_RECEIVED,
	IB_CM_REJ_RECEIVED,
	IB_CM_LAP_ERROR,
	IB_CM_LAP_RECEIVED,
	IB_CM_APR_RECEIVED,
	IB_CM_SIDR_REQ_ERROR,
	IB_CM_SIDR_REQ_RECEIVED,
	IB_CM_SIDR_REP_RECEIVED
};

/* Bytes of each message that the consumer may fill; a receiver always gets all of them. */
enum ib_cm_data_size {
	IB_CM_REQ_PRIVATE_DATA_SIZE = 92,
	IB_CM_MRA_PRIVATE_DATA_SIZE = 222,
	IB_CM_REJ_PRIVATE_DATA_SIZE = 148,
	IB_CM_REP_PRIVATE_DATA_SIZE = 196,
	IB_CM_RTU_PRIVATE_DATA_SIZE = 224,
	IB_CM_DREQ_PRIVATE_DATA_SIZE = 220,
	IB_CM_DREP_PRIVATE_DATA_SIZE = 224,
	IB_CM_REJ_ARI_LENGTH = 72,
	IB_CM_LAP_PRIVATE_DATA_SIZE = 168,
	IB_CM_APR_PRIVATE_DATA_SIZE = 148,
	IB_CM_APR_INFO_LENGTH = 72,
	IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE = 216,
	IB_CM_SIDR_REP_PRIVATE_DATA_SIZE = 136,
	IB_CM_SIDR_REP_INFO_LENGTH = 72,
	IB_CM_COMPARE_SIZE = 64
};

/* ---- events ---------------------------------------------------------------------------------- */

struct ib_cm_id;

/* Enhanced connection establishment: options of a vendor, passed on unread. */
struct ib_cm_ece {
	u32 vendor_id; /* 24 bits; 0: none */
	u32 attr_mod;
};

/* Names and directions are the receiver's: `remote` is the sender of the REQ,
 * primary_path->sgid is this side's address. */
struct ib_cm_req_event_param {
	struct ib_cm_id *listen_id; /* NULL: a peer-to-peer request met this id */
	u8 port;
	struct ib_sa_path_rec *primary_path;
	struct ib_sa_path_rec *alternate_path; /* NULL: none */
	__be64 remote_ca_guid;
	u32 remote_qkey;
	u32 remote_qpn;
	enum ib_qp_type qp_type;
	u32 starting_psn;
	u8 responder_resources; /* what this side may need: the sender's initiator depth */
	u8 initiator_depth;
	unsigned int local_cm_response_timeout : 5; /* 4.096 us << this */
	unsigned int flow_control : 1;
	unsigned int remote_cm_response_timeout : 5;
	unsigned int retry_count : 3;
	unsigned int rnr_retry_count : 3;
	unsigned int srq : 1;
	struct ib_cm_ece ece;
};

struct ib_cm_rep_event_param {
	__be64 remote_ca_guid;
	u32 remote_qkey;
	u32 remote_qpn;
	u32 starting_psn;
	u8 responder_resources; /* as this side's, like those of the REQ event */
	u8 initiator_depth;
	unsigned int target_ack_delay : 5;
	unsigned int failover_accepted : 2;
	unsigned int flow_control : 1;
	unsigned int rnr_retry_count : 3;
	unsigned int srq : 1;
	struct ib_cm_ece ece;
};

/* IBA vol 1, table 111. */
enum ib_cm_rej_reason {
	IB_CM_REJ_NO_QP = 1,
	IB_CM_REJ_NO_EEC = 2,
	IB_CM_REJ_NO_RESOURCES = 3,
	IB_CM_REJ_TIMEOUT = 4,
	IB_CM_REJ_UNSUPPORTED = 5,
	IB_CM_REJ_INVALID_COMM_ID = 6,
	IB_CM_REJ_INVALID_COMM_INSTANCE = 7,
	IB_CM_REJ_INVALID_SERVICE_ID = 8,
	IB_CM_REJ_INVALID_TRANSPORT_TYPE = 9,
	IB_CM_REJ_STALE_CONN = 10,
	IB_CM_REJ_RDC_NOT_EXIST = 11,
	IB_CM_REJ_INVALID_GID = 12,
	IB_CM_REJ_INVALID_LID = 13,
	IB_CM_REJ_INVALID_SL = 14,
	IB_CM_REJ_INVALID_TRAFFIC_CLASS = 15,
	IB_CM_REJ_INVALID_HOP_LIMIT = 16,
	IB_CM_REJ_INVALID_PACKET_RATE = 17,
	IB_CM_REJ_INVALID_ALT_GID = 18,
	IB_CM_REJ_INVALID_ALT_LID = 19,
	IB_CM_REJ_INVALID_ALT_SL = 20,
	IB_CM_REJ_INVALID_ALT_TRAFFIC_CLASS = 21,
	IB_CM_REJ_INVALID_ALT_HOP_LIMIT = 22,
	IB_CM_REJ_INVALID_ALT_PACKET_RATE = 23,
	IB_CM_REJ_PORT_CM_REDIRECT = 24,
	IB_CM_REJ_PORT_REDIRECT = 25,
	IB_CM_REJ_INVALID_MTU = 26,
	IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES = 27,
	IB_CM_REJ_CONSUMER_DEFINED = 28,
	IB_CM_REJ_INVALID_RNR_RETRY = 29,
	IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID = 30,
	IB_CM_REJ_INVALID_CLASS_VERSION = 31,
	IB_CM_REJ_INVALID_FLOW_LABEL = 32,
	IB_CM_REJ_INVALID_ALT_FLOW_LABEL = 33,
	IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED = 35
};

struct ib_cm_rej_event_param {
	enum ib_cm_rej_reason reason; /* any value that the peer has put there */
	void *ari;
	u8 ari_length; /* valid bytes at ari */
};

struct ib_cm_mra_event_param {
	u8 service_timeout; /* 4.096 us << this: how much longer the peer may take */
};

struct ib_cm_lap_event_param {
	struct ib_sa_path_rec *alternate_path; /* as seen from this side */
};

enum ib_cm_apr_status {
	IB_CM_APR_SUCCESS,
	IB_CM_APR_INVALID_COMM_ID,
	IB_CM_APR_UNSUPPORTED,
	IB_CM_APR_REJECT,
	IB_CM_APR_REDIRECT,
	IB_CM_APR_IS_CURRENT,
	IB_CM_APR_INVALID_QPN_EECN,
	IB_CM_APR_INVALID_LID,
	IB_CM_APR_INVALID_GID,
	IB_CM_APR_INVALID_FLOW_LABEL,
	IB_CM_APR_INVALID_TCLASS,
	IB_CM_APR_INVALID_HOP_LIMIT,
	IB_CM_APR_INVALID_PACKET_RATE,
	IB_CM_APR_INVALID_SL
};

struct ib_cm_apr_event_param {
	enum ib_cm_apr_status ap_status;
	void *apr_info;
	u8 info_len; /* valid bytes at apr_info */
};

struct ib_cm_sidr_req_event_param {
	struct ib_cm_id *listen_id;
	__be64 service_id; /* that was asked for */
	u8 port;
	u16 pkey;
	union ib_gid dgid; /* the request's destination: this side; zero without a GRH */
	union ib_gid sgid;
};

enum ib_cm_sidr_status {
	IB_SIDR_SUCCESS,
	IB_SIDR_UNSUPPORTED,
	IB_SIDR_REJECT,
	IB_SIDR_NO_QP,
	IB_SIDR_REDIRECT,
	IB_SIDR_UNSUPPORTED_VERSION
};

struct ib_cm_sidr_rep_event_param {
	enum ib_cm_sidr_status status;
	u32 qkey;
	u32 qpn;
	void *info;
	u8 info_len; /* valid bytes at info */
};

struct ib_cm_event {
	enum ib_cm_event_type event;
	union {
		struct ib_cm_req_event_param req_rcvd;
		struct ib_cm_rep_event_param rep_rcvd;
		struct ib_cm_rej_event_param rej_rcvd;
		struct ib_cm_mra_event_param mra_rcvd;
		struct ib_cm_lap_event_param lap_rcvd;
		struct ib_cm_apr_event_param apr_rcvd;
		struct ib_cm_sidr_req_event_param sidr_req_rcvd;
		struct ib_cm_sidr_rep_event_param sidr_rep_rcvd;
		enum ib_wc_status send_status; /* of the *_ERROR events */
	} param;
	void *private_data; /* NULL for events that no message carries */
	u8 private_data_len; /* all that the message has room for (enum ib_cm_data_size) */
};

/* Returns 0, or non-zero: the CM destroys the id when the handler has returned, as ib_destroy_cm_id
 * would, and does not call the handler again. -ENOMEM of IB_CM_REQ_RECEIVED: nothing is answered,
 * so that the peer asks again. The handler must not call ib_destroy_cm_id for its
 * own id. */
typedef int (*ib_cm_handler)(struct ib_cm_id *cm_id, struct ib_cm_event *event);

/* ---- identifiers ----------------------------------------------------------------------------- */

/* The consumer may replace cm_handler and context from inside the handler, or before the first call
 * that starts an exchange; the rest it only reads. */
struct ib_cm_id {
	ib_cm_handler cm_handler;
	void *context;
	struct ib_device *device;
	__be64 service_id;   /* a listening id's; else of the REQ or SIDR_REQ */
	__be64 service_mask; /* a listening id's */
	enum ib_cm_state state;
	enum ib_cm_lap_state lap_state;
	__be32 local_id;
	__be32 remote_id;  /* 0: not known yet */
	u32 remote_cm_qpn; /* 1 */
};

/* Allocates an idle id for exchanges through `device`, which must stay registered until
 * ib_destroy_cm_id. The first call in a process may block. ERR_PTR: -ENOMEM; -ENODEV: the CM
 * does not serve the device. */
AV_EXPORT struct ib_cm_id *ib_create_cm_id(struct ib_device *device, ib_cm_handler cm_handler,
					   void *context);

/* Ends what the id is in the middle of, as its state demands: a listening id forgets requests that
 * no handler has seen; an outstanding REQ or REP is withdrawn by a REJ (timeout), an unanswered REQ
 * is rejected, an established connection is left by a DREQ, an unanswered DREQ or SIDR_REQ is
 * answered. Timewait runs on without the id. Blocks until a handler of the id that runs has
 * returned; none is called afterwards, and the id is freed. Not from a handler of the same id. */
AV_EXPORT void ib_destroy_cm_id(struct ib_cm_id *cm_id);

/* ---- listening ------------------------------------------------------------------------------- */

#define IB_SERVICE_ID_AGN_MASK ((__be64)htobe64(0xff00000000000000ull))
#define IB_CM_ASSIGN_SERVICE_ID ((__be64)htobe64(0x0200000000000000ull))
#define IB_CMA_SERVICE_ID ((__be64)htobe64(0x0000000001000000ull))
#define IB_CMA_SERVICE_ID_MASK ((__be64)htobe64(0xffffffffff000000ull))
#define IB_SDP_SERVICE_ID ((__be64)htobe64(0x0000000000010000ull))
#define IB_SDP_SERVICE_ID_MASK ((__be64)htobe64(0xffffffffffff0000ull))

/* Which requests a listening id takes, by the first bytes of their private data: those with
 * (private_data & mask) == data. Bits of `data` outside the mask are ignored. */
struct ib_cm_compare_data {
	u8 data[IB_CM_COMPARE_SIZE];
	u8 mask[IB_CM_COMPARE_SIZE];
};

/* Begins to take REQs and SIDR_REQs for service_id; with a mask, for every ID that equals it in the
 * mask's bits (0: in all bits). IB_CM_ASSIGN_SERVICE_ID: the CM assigns one, cm_id->service_id has
 * it. compare_data may be NULL: whatever the private data. Several ids may listen on one service ID
 * with compare data that cannot match the same request.
 * -EBUSY: another id of the device listens there; -EINVAL: the id is not idle, or the ID is of the
 * locally assigned kind. */
AV_EXPORT int ib_cm_listen(struct ib_cm_id *cm_id, __be64 service_id, __be64 service_mask,
			   struct ib_cm_compare_data *compare_data);

/* ---- connecting ------------------------------------------------------------------------------ */

struct ib_cm_req_param {
	struct ib_sa_path_rec *primary_path;
	struct ib_sa_path_rec *alternate_path; /* NULL: none */
	__be64 service_id;
	u32 qp_num;
	enum ib_qp_type qp_type; /* IB_QPT_RC or IB_QPT_UC */
	u32 starting_psn;
	const void *private_data;
	u8 private_data_len; /* 0..IB_CM_REQ_PRIVATE_DATA_SIZE */
	/* Both sides may send a REQ, service_id names the same service, and one connection is
	 * made. The sides are two hosts, or two ids of one process. */
	u8 peer_to_peer;
	u8 responder_resources;
	u8 initiator_depth;
	u8 remote_cm_response_timeout; /* 4.096 us << this: how long the peer may take */
	u8 flow_control;
	u8 local_cm_response_timeout; /* likewise, this side */
	u8 retry_count;
	u8 rnr_retry_count;
	u8 max_cm_retries; /* 0..15: sent at most once more than this */
	u8 srq;
	struct ib_cm_ece ece;
};

/* Sends a REQ from an idle id along primary_path, and repeats it until the peer answers or
 * max_cm_retries are used up (IB_CM_REQ_ERROR; the id is idle again). *param and the paths may go
 * after the call. -EINVAL also: no GID of the device is the path's sgid. */
AV_EXPORT int ib_send_cm_req(struct ib_cm_id *cm_id, struct ib_cm_req_param *param);

struct ib_cm_rep_param {
	u32 qp_num;
	u32 starting_psn;
	const void *private_data;
	u8 private_data_len; /* 0..IB_CM_REP_PRIVATE_DATA_SIZE */
	u8 responder_resources;
	u8 initiator_depth;
	u8 failover_accepted;
	u8 flow_control;
	u8 rnr_retry_count;
	u8 srq;
	struct ib_cm_ece ece;
};

/* Accepts a received REQ: sends a REP, and repeats it until an RTU comes or the retries of the REQ
 * are used up (IB_CM_REP_ERROR). */
AV_EXPORT int ib_send_cm_rep(struct ib_cm_id *cm_id, struct ib_cm_rep_param *param);

/* Completes a connection whose REP was received: sends an RTU; the id is established. A repeated
 * REP is answered by the same RTU. Private data: 0..IB_CM_RTU_PRIVATE_DATA_SIZE bytes. */
AV_EXPORT int ib_send_cm_rtu(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len);

/* Leaves an established connection: sends a DREQ, and repeats it until a DREP comes or the retries
 * are used up (IB_CM_DREQ_ERROR). Timewait follows either. Private data:
 * 0..IB_CM_DREQ_PRIVATE_DATA_SIZE bytes. */
AV_EXPORT int ib_send_cm_dreq(struct ib_cm_id *cm_id, const void *private_data,
			      u8 private_data_len);

/* Answers a received DREQ; the id is in timewait afterwards. Private data:
 * 0..IB_CM_DREP_PRIVATE_DATA_SIZE bytes. */
AV_EXPORT int ib_send_cm_drep(struct ib_cm_id *cm_id, const void *private_data,
			      u8 private_data_len);

/* Tells the CM what the consumer has seen on the queue pair. IB_EVENT_COMM_EST: a message came
 * before the RTU; the id is established (IB_CM_USER_ESTABLISHED). IB_EVENT_PATH_MIG: the connection
 * has moved to the alternate path, CM messages follow it. -EISCONN: established already. */
AV_EXPORT int ib_cm_notify(struct ib_cm_id *cm_id, enum ib_event_type event);

/* Refuses a received REQ or REP, or withdraws the REQ or REP sent. `ari`: additional information,
 * 0..IB_CM_REJ_ARI_LENGTH bytes; private data: 0..IB_CM_REJ_PRIVATE_DATA_SIZE bytes. The id
 * is idle afterwards; in timewait, if it has sent a REP. */
AV_EXPORT int ib_send_cm_rej(struct ib_cm_id *cm_id, enum ib_cm_rej_reason reason, void *ari,
			     u8 ari_length, const void *private_data, u8 private_data_len);

/* Do not send the MRA now, but when the peer repeats its message. */
#define IB_CM_MRA_FLAG_DELAY 0x80

/* Asks the peer for more time for the answer to its REQ, REP or LAP: 4.096 us << the low five bits
 * of service_timeout. Private data: 0..IB_CM_MRA_PRIVATE_DATA_SIZE bytes. */
AV_EXPORT int ib_send_cm_mra(struct ib_cm_id *cm_id, u8 service_timeout, const void *private_data,
			     u8 private_data_len);

/* Proposes an alternate path for an established connection; repeated as a REQ is. Private data:
 * 0..IB_CM_LAP_PRIVATE_DATA_SIZE bytes. */
AV_EXPORT int ib_send_cm_lap(struct ib_cm_id *cm_id, struct ib_sa_path_rec *alternate_path,
			     const void *private_data, u8 private_data_len);

/* Answers a received LAP. `info`: 0..IB_CM_APR_INFO_LENGTH bytes; private data:
 * 0..IB_CM_APR_PRIVATE_DATA_SIZE bytes. */
AV_EXPORT int ib_send_cm_apr(struct ib_cm_id *cm_id, enum ib_cm_apr_status status, void *info,
			     u8 info_length, const void *private_data, u8 private_data_len);

/* Fills *qp_attr with what the transition to qp_attr->qp_state (INIT, RTR or RTS; set by the
 * caller) needs of this connection, and *qp_attr_mask with which fields those are. The caller may
 * change them before it modifies the queue pair. A side that goes to RTR before its ib_send_cm_rep
 * sets rq_psn itself: to the starting_psn that it will say. */
AV_EXPORT int ib_cm_init_qp_attr(struct ib_cm_id *cm_id, struct ib_qp_attr *qp_attr,
				 int *qp_attr_mask);

/* ---- service ID resolution ------------------------------------------------------------------- */

struct ib_cm_sidr_req_param {
	struct ib_sa_path_rec *path;
	__be64 service_id;
	int timeout_ms; /* for each try */
	const void *private_data;
	u8 private_data_len; /* 0..IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE */
	u8 max_cm_retries;   /* 0..15 */
};

/* Asks for the datagram queue pair of a service, from an idle id; repeated until the answer comes
 * or the retries are used up (IB_CM_SIDR_REQ_ERROR). After either the id is idle. */
AV_EXPORT int ib_send_cm_sidr_req(struct ib_cm_id *cm_id, struct ib_cm_sidr_req_param *param);

struct ib_cm_sidr_rep_param {
	u32 qp_num;
	u32 qkey;
	enum ib_cm_sidr_status status;
	const void *info;
	u8 info_length; /* 0..IB_CM_SIDR_REP_INFO_LENGTH */
	const void *private_data;
	u8 private_data_len; /* 0..IB_CM_SIDR_REP_PRIVATE_DATA_SIZE */
};

/* Answers a received SIDR_REQ, once; the id is idle afterwards. A repeated SIDR_REQ is a new
 * request. */
AV_EXPORT int ib_send_cm_sidr_rep(struct ib_cm_id *cm_id, struct ib_cm_sidr_rep_param *param);

#endif
