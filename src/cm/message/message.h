/* message.h: the CM's messages, decoded, and between that and the bytes of a MAD. The CM of each
 * process needs them, and the node, which answers for processes that are gone. Pure functions.
 *
 *   message.c  a table of fields for each message
 *      gone.c  what is answered to a message for a process that is gone
 *
 * Names are those of IBA vol 1, 12.6; local and remote are the sender's. Numbers are in host order.
 */
#ifndef CM_MESSAGE_MESSAGE_H
#define CM_MESSAGE_MESSAGE_H

#include "base/compiler.h"

enum { CM_MAD_BYTES = 256, CM_MAD_HEADER = 24, CM_DATA_BYTES = CM_MAD_BYTES - CM_MAD_HEADER };
enum { CM_CLASS = 0x07, CM_CLASS_VERSION = 2, CM_METHOD_SEND = 3 };

/* Attribute IDs of the MAD header: IBA vol 1, table 104. */
enum cm_attr {
	CM_REQ = 0x10,
	CM_MRA,
	CM_REJ,
	CM_REP,
	CM_RTU,
	CM_DREQ,
	CM_DREP,
	CM_SIDR_REQ,
	CM_SIDR_REP,
	CM_LAP,
	CM_APR,
	CM_ATTR_END
};

/* Which message an MRA or REJ is about: 12.7.32 and 12.7.33. */
enum cm_about { CM_ABOUT_REQ, CM_ABOUT_REP, CM_ABOUT_OTHER };

/* Reasons and status values of the answers to messages that find nobody: 12.6.7.2, 12.8.7,
 * 12.11. */
enum {
	CM_REASON_NO_RESOURCES = 3,
	CM_REASON_UNKNOWN_ID = 6,
	CM_REASON_UNKNOWN_SERVICE = 8,
	CM_REASON_CONSUMER = 28,
	CM_APR_UNKNOWN_ID = 1,
	CM_SIDR_UNKNOWN_SERVICE = 1,
	CM_SIDR_NO_QP = 3,
};

/* EXTENDED: extended_transport says which, and XRC is the only one. */
enum { CM_TRANSPORT_RC = 0, CM_TRANSPORT_UC = 1, CM_TRANSPORT_EXTENDED = 3 };
enum { CM_EXTENDED_XRC = 1 };

/* A path as REQ and LAP have it. */
struct cm_wire_path {
	u8 local_gid[16], remote_gid[16];
	u32 flow_label;
	u16 local_lid, remote_lid;
	u8 packet_rate, traffic_class, hop_limit, sl, subnet_local, local_ack_timeout;
} OWNED_BY(whoever has decoded it);

struct cm_req_msg {
	u64 service_id, local_ca_guid;
	u32 local_id, vendor_id, local_qkey, local_qpn, starting_psn;
	u16 pkey;
	u8 responder_resources, initiator_depth;
	u8 remote_response_timeout, transport, flow_control, local_response_timeout;
	u8 retry_count, path_mtu, rdc_exists, rnr_retry_count, max_cm_retries, srq;
	u8 extended_transport;
	struct cm_wire_path primary, alternate;
	u8 private_data[92];
} OWNED_BY(whoever has decoded it);

struct cm_mra_msg {
	u32 local_id, remote_id;
	u8 about, service_timeout;
	u8 private_data[222];
} OWNED_BY(whoever has decoded it);

struct cm_rej_msg {
	u32 local_id, remote_id;
	u16 reason;
	u8 about, ari_length;
	u8 ari[72];
	u8 private_data[148];
} OWNED_BY(whoever has decoded it);

struct cm_rep_msg {
	u64 local_ca_guid;
	u32 local_id, remote_id, local_qkey, local_qpn, starting_psn;
	u32 local_eecn; /* an XRC target's number, and then there is no local_qpn */
	u8 vendor_id_high, vendor_id_middle, vendor_id_low;
	u8 responder_resources, initiator_depth, target_ack_delay, failover_accepted;
	u8 flow_control, rnr_retry_count, srq;
	u8 private_data[196];
} OWNED_BY(whoever has decoded it);

/* RTU and DREP. */
struct cm_pair_msg {
	u32 local_id, remote_id;
	u8 private_data[224];
} OWNED_BY(whoever has decoded it);

struct cm_dreq_msg {
	u32 local_id, remote_id, remote_qpn;
	u8 private_data[220];
} OWNED_BY(whoever has decoded it);

struct cm_lap_msg {
	u32 local_id, remote_id, remote_qpn;
	u8 remote_response_timeout;
	struct cm_wire_path alternate;
	u8 private_data[168];
} OWNED_BY(whoever has decoded it);

struct cm_apr_msg {
	u32 local_id, remote_id;
	u8 info_length, status;
	u8 info[72];
	u8 private_data[148];
} OWNED_BY(whoever has decoded it);

struct cm_sidr_req_msg {
	u64 service_id;
	u32 request_id;
	u16 pkey;
	u8 private_data[216];
} OWNED_BY(whoever has decoded it);

struct cm_sidr_rep_msg {
	u64 service_id;
	u32 request_id, qpn, qkey;
	u8 status, info_length;
	u8 info[72];
	u8 private_data[136];
} OWNED_BY(whoever has decoded it);

/* The MAD header's fields that a CM message has, and its body. */
struct cm_msg {
	enum cm_attr attr;
	u64 tid;
	u32 attr_mod;
	union {
		struct cm_req_msg req;
		struct cm_mra_msg mra;
		struct cm_rej_msg rej;
		struct cm_rep_msg rep;
		struct cm_pair_msg rtu, drep;
		struct cm_dreq_msg dreq;
		struct cm_lap_msg lap;
		struct cm_apr_msg apr;
		struct cm_sidr_req_msg sidr_req;
		struct cm_sidr_rep_msg sidr_rep;
	};
} OWNED_BY(whoever has decoded it);

/* Writes all CM_MAD_BYTES of the MAD; what no field covers is zero. Bits of a value above its
 * field's width are lost. */
void msg_pack(const struct cm_msg *msg, u8 *mad);

/* Reads a MAD of `length` bytes. Every field is within its width, which is all that is judged.
 * False, *msg undefined: not the length of a MAD, not a CM message of our class version, or an
 * unknown attribute. */
bool msg_unpack(struct cm_msg *msg, const u8 *mad, u32 length);

/* Where the private data of a message lies, and how much there is. */
u8 *msg_private(struct cm_msg *msg, u32 *bytes);

/* What the CM of a process that is gone would answer to a MAD of CM_MAD_BYTES for one of its
 * ids, or for a service ID on which nobody listens: writes CM_MAD_BYTES. False: it would say
 * nothing. */
bool msg_answer_for_gone(const u8 *mad, u8 *answer);
/* The same of a process that lacks what it needs to receive a REQ or SIDR_REQ. Its REJ is about no
 * message, and so differs from a consumer's. False: the MAD is neither. */
bool msg_answer_for_full(const u8 *mad, u8 *answer);

#endif
