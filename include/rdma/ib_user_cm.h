/* ib_user_cm.h: the ABI of /dev/infiniband/ucmN, the InfiniBand CM for programs, version 5. Linux
 * has dropped the file and this header. There is no such file here, either: the header is for code
 * that uses the types.
 *
 * A command is written to the file: ib_ucm_cmd_hdr, then the structure of the command. `response`,
 * `data`, `info` and the paths are addresses of the program's memory; `len` and its kin are bytes
 * there. `id` names a cm_id of the file, `uid` is the program's own word for it. The fields mean
 * what they mean in ib_cm.h.
 */
#ifndef IB_USER_CM_H
#define IB_USER_CM_H

#include <linux/types.h>
#include <rdma/ib_user_sa.h>

#define IB_USER_CM_ABI_VERSION 5

enum {
	IB_USER_CM_CMD_CREATE_ID,
	IB_USER_CM_CMD_DESTROY_ID,
	IB_USER_CM_CMD_ATTR_ID,
	IB_USER_CM_CMD_LISTEN,
	IB_USER_CM_CMD_NOTIFY,
	IB_USER_CM_CMD_SEND_REQ,
	IB_USER_CM_CMD_SEND_REP,
	IB_USER_CM_CMD_SEND_RTU,
	IB_USER_CM_CMD_SEND_DREQ,
	IB_USER_CM_CMD_SEND_DREP,
	IB_USER_CM_CMD_SEND_REJ,
	IB_USER_CM_CMD_SEND_MRA,
	IB_USER_CM_CMD_SEND_LAP,
	IB_USER_CM_CMD_SEND_APR,
	IB_USER_CM_CMD_SEND_SIDR_REQ,
	IB_USER_CM_CMD_SEND_SIDR_REP,
	IB_USER_CM_CMD_EVENT,
	IB_USER_CM_CMD_INIT_QP_ATTR
};

/* ---- commands -------------------------------------------------------------------------------- */

struct ib_ucm_cmd_hdr {
	__u32 cmd;
	__u16 in;  /* bytes that follow */
	__u16 out; /* bytes of room at `response` */
};

struct ib_ucm_create_id {
	__u64 uid;
	__u64 response; /* ib_ucm_create_id_resp */
};

struct ib_ucm_create_id_resp {
	__u32 id;
};

struct ib_ucm_destroy_id {
	__u64 response; /* ib_ucm_destroy_id_resp */
	__u32 id;
	__u32 reserved;
};

struct ib_ucm_destroy_id_resp {
	__u32 events_reported; /* of this id, over its life */
};

struct ib_ucm_attr_id {
	__u64 response; /* ib_ucm_attr_id_resp */
	__u32 id;
	__u32 reserved;
};

struct ib_ucm_attr_id_resp {
	__be64 service_id;
	__be64 service_mask;
	__be32 local_id;
	__be32 remote_id;
};

struct ib_ucm_init_qp_attr {
	__u64 response; /* ib_uverbs_qp_attr */
	__u32 id;
	__u32 qp_state;
};

struct ib_ucm_listen {
	__be64 service_id;
	__be64 service_mask;
	__u32 id;
	__u32 reserved;
};

struct ib_ucm_notify {
	__u32 id;
	__u32 event; /* enum ib_event_type */
};

/* RTU, DREQ, DREP. */
struct ib_ucm_private_data {
	__u64 data;
	__u32 id;
	__u8 len;
	__u8 reserved[3];
};

struct ib_ucm_req {
	__u32 id;
	__u32 qpn;
	__u32 qp_type;
	__u32 psn;
	__be64 sid;
	__u64 data;
	__u64 primary_path;   /* ib_user_path_rec, as the next */
	__u64 alternate_path; /* 0: none */
	__u8 len;
	__u8 peer_to_peer;
	__u8 responder_resources;
	__u8 initiator_depth;
	__u8 remote_cm_response_timeout;
	__u8 flow_control;
	__u8 local_cm_response_timeout;
	__u8 retry_count;
	__u8 rnr_retry_count;
	__u8 max_cm_retries;
	__u8 srq;
	__u8 reserved[5];
};

struct ib_ucm_rep {
	__u64 uid;
	__u64 data;
	__u32 id;
	__u32 qpn;
	__u32 psn;
	__u8 len;
	__u8 responder_resources;
	__u8 initiator_depth;
	__u8 target_ack_delay;
	__u8 failover_accepted;
	__u8 flow_control;
	__u8 rnr_retry_count;
	__u8 srq;
	__u8 reserved[4];
};

/* REJ, APR: `status` is the reason or the AP status. */
struct ib_ucm_info {
	__u32 id;
	__u32 status;
	__u64 info;
	__u64 data;
	__u8 info_len;
	__u8 data_len;
	__u8 reserved[6];
};

struct ib_ucm_mra {
	__u64 data;
	__u32 id;
	__u8 len;
	__u8 timeout; /* 4.096 us << timeout */
	__u8 reserved[2];
};

struct ib_ucm_lap {
	__u64 path; /* ib_user_path_rec */
	__u64 data;
	__u32 id;
	__u8 len;
	__u8 reserved[3];
};

struct ib_ucm_sidr_req {
	__u32 id;
	__u32 timeout; /* ms */
	__be64 sid;
	__u64 data;
	__u64 path; /* ib_user_path_rec */
	__u16 reserved_pkey;
	__u8 len;
	__u8 max_cm_retries;
	__u8 reserved[4];
};

struct ib_ucm_sidr_rep {
	__u32 id;
	__u32 qpn;
	__u32 qkey;
	__u32 status;
	__u64 info;
	__u64 data;
	__u8 info_len;
	__u8 data_len;
	__u8 reserved[6];
};

/* ---- events ---------------------------------------------------------------------------------- */

struct ib_ucm_event_get {
	__u64 response; /* ib_ucm_event_resp */
	__u64 data;
	__u64 info;
	__u8 data_len;
	__u8 info_len;
	__u8 reserved[6];
};

struct ib_ucm_req_event_resp {
	struct ib_user_path_rec primary_path;
	struct ib_user_path_rec alternate_path;
	__be64 remote_ca_guid;
	__u32 remote_qkey;
	__u32 remote_qpn;
	__u32 qp_type;
	__u32 starting_psn;
	__u8 responder_resources;
	__u8 initiator_depth;
	__u8 local_cm_response_timeout;
	__u8 flow_control;
	__u8 remote_cm_response_timeout;
	__u8 retry_count;
	__u8 rnr_retry_count;
	__u8 srq;
	__u8 port;
	__u8 reserved[7];
};

struct ib_ucm_rep_event_resp {
	__be64 remote_ca_guid;
	__u32 remote_qkey;
	__u32 remote_qpn;
	__u32 starting_psn;
	__u8 responder_resources;
	__u8 initiator_depth;
	__u8 target_ack_delay;
	__u8 failover_accepted;
	__u8 flow_control;
	__u8 rnr_retry_count;
	__u8 srq;
	__u8 reserved[5];
};

struct ib_ucm_rej_event_resp {
	__u32 reason; /* the ARI is the event's `info` */
};

struct ib_ucm_mra_event_resp {
	__u8 timeout;
	__u8 reserved[3];
};

struct ib_ucm_lap_event_resp {
	struct ib_user_path_rec path;
};

struct ib_ucm_apr_event_resp {
	__u32 status; /* the APR's information is the event's `info` */
};

struct ib_ucm_sidr_req_event_resp {
	__u16 pkey;
	__u8 port;
	__u8 reserved;
};

struct ib_ucm_sidr_rep_event_resp {
	__u32 status;
	__u32 qkey;
	__u32 qpn;
};

/* ib_ucm_event_resp.present */
#define IB_UCM_PRES_DATA 0x01
#define IB_UCM_PRES_INFO 0x02
#define IB_UCM_PRES_PRIMARY 0x04
#define IB_UCM_PRES_ALTERNATE 0x08

struct ib_ucm_event_resp {
	__u64 uid;
	__u32 id;
	__u32 event; /* enum ib_cm_event_type */
	__u32 present;
	__u32 reserved;
	union {
		struct ib_ucm_req_event_resp req_resp;
		struct ib_ucm_rep_event_resp rep_resp;
		struct ib_ucm_rej_event_resp rej_resp;
		struct ib_ucm_mra_event_resp mra_resp;
		struct ib_ucm_lap_event_resp lap_resp;
		struct ib_ucm_apr_event_resp apr_resp;
		struct ib_ucm_sidr_req_event_resp sidr_req_resp;
		struct ib_ucm_sidr_rep_event_resp sidr_rep_resp;
		__u32 send_status;
	} u;
};

#endif
