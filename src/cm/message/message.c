/* message.c: the CM's messages between decoded fields and bytes: one table per message.
 * In: decoded messages, received MADs    Out: MADs, decoded messages    Runs: any thread
 * Locks: none    Spec: IBA vol 1, 12.6 (messages), 12.7 (fields); 13.4.3 (MAD header)
 */
#include "cm/message/message.h"

#include <string.h>

/* One line per field: where it lies in its struct, its first bit behind the MAD header (bit 0 is
 * the highest of byte 0) and its width. Wider than 64 bits: bytes. */
struct cm_field {
	u16 offset, size;
	u16 bit, bits;
} FIXED;

#define BITS(member, byte, first, width)                                                           \
	{ offsetof(TYPE, member), sizeof(((TYPE *)NULL)->member), (byte) * 8 + (first), width }
#define BYTES(member, byte) BITS(member, byte, 0, 8 * sizeof(((TYPE *)NULL)->member))
#define U32(member, byte) BITS(member, byte, 0, 32)
#define U64(member, byte) BITS(member, byte, 0, 64)

/* A path of a REQ, whose first byte is `byte`. */
#define REQ_PATH(path, byte)                                                                       \
	BITS(path.local_lid, (byte), 0, 16), BITS(path.remote_lid, (byte) + 2, 0, 16),             \
		BYTES(path.local_gid, (byte) + 4), BYTES(path.remote_gid, (byte) + 20),            \
		BITS(path.flow_label, (byte) + 36, 0, 20),                                         \
		BITS(path.packet_rate, (byte) + 39, 2, 6),                                         \
		BITS(path.traffic_class, (byte) + 40, 0, 8),                                       \
		BITS(path.hop_limit, (byte) + 41, 0, 8), BITS(path.sl, (byte) + 42, 0, 4),         \
		BITS(path.subnet_local, (byte) + 42, 4, 1),                                        \
		BITS(path.local_ack_timeout, (byte) + 43, 0, 5)

#define TYPE struct cm_req_msg
static const struct cm_field cm_req_fields[] = {
	U32(local_id, 0),
	BITS(vendor_id, 5, 0, 24),
	U64(service_id, 8),
	U64(local_ca_guid, 16),
	U32(local_qkey, 28),
	BITS(local_qpn, 32, 0, 24),
	BITS(responder_resources, 35, 0, 8),
	BITS(initiator_depth, 39, 0, 8),
	BITS(remote_response_timeout, 43, 0, 5),
	BITS(transport, 43, 5, 2),
	BITS(flow_control, 43, 7, 1),
	BITS(starting_psn, 44, 0, 24),
	BITS(local_response_timeout, 47, 0, 5),
	BITS(retry_count, 47, 5, 3),
	BITS(pkey, 48, 0, 16),
	BITS(path_mtu, 50, 0, 4),
	BITS(rdc_exists, 50, 4, 1),
	BITS(rnr_retry_count, 50, 5, 3),
	BITS(max_cm_retries, 51, 0, 4),
	BITS(srq, 51, 4, 1),
	BITS(extended_transport, 51, 5, 3),
	REQ_PATH(primary, 52),
	REQ_PATH(alternate, 96),
	BYTES(private_data, 140),
};
#undef TYPE

#define TYPE struct cm_mra_msg
static const struct cm_field cm_mra_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	BITS(about, 8, 0, 2),
	BITS(service_timeout, 9, 0, 5),
	BYTES(private_data, 10),
};
#undef TYPE

#define TYPE struct cm_rej_msg
static const struct cm_field cm_rej_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	BITS(about, 8, 0, 2),
	BITS(ari_length, 9, 0, 7),
	BITS(reason, 10, 0, 16),
	BYTES(ari, 12),
	BYTES(private_data, 84),
};
#undef TYPE

#define TYPE struct cm_rep_msg
static const struct cm_field cm_rep_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	U32(local_qkey, 8),
	BITS(local_qpn, 12, 0, 24),
	BITS(vendor_id_high, 15, 0, 8),
	BITS(local_eecn, 16, 0, 24),
	BITS(vendor_id_middle, 19, 0, 8),
	BITS(starting_psn, 20, 0, 24),
	BITS(vendor_id_low, 23, 0, 8),
	BITS(responder_resources, 24, 0, 8),
	BITS(initiator_depth, 25, 0, 8),
	BITS(target_ack_delay, 26, 0, 5),
	BITS(failover_accepted, 26, 5, 2),
	BITS(flow_control, 26, 7, 1),
	BITS(rnr_retry_count, 27, 0, 3),
	BITS(srq, 27, 3, 1),
	U64(local_ca_guid, 28),
	BYTES(private_data, 36),
};
#undef TYPE

#define TYPE struct cm_pair_msg
static const struct cm_field cm_pair_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	BYTES(private_data, 8),
};
#undef TYPE

#define TYPE struct cm_dreq_msg
static const struct cm_field cm_dreq_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	BITS(remote_qpn, 8, 0, 24),
	BYTES(private_data, 12),
};
#undef TYPE

#define TYPE struct cm_lap_msg
static const struct cm_field cm_lap_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	BITS(remote_qpn, 12, 0, 24),
	BITS(remote_response_timeout, 15, 0, 5),
	BITS(alternate.local_lid, 20, 0, 16),
	BITS(alternate.remote_lid, 22, 0, 16),
	BYTES(alternate.local_gid, 24),
	BYTES(alternate.remote_gid, 40),
	BITS(alternate.flow_label, 56, 0, 20),
	BITS(alternate.traffic_class, 59, 0, 8),
	BITS(alternate.hop_limit, 60, 0, 8),
	BITS(alternate.packet_rate, 61, 2, 6),
	BITS(alternate.sl, 62, 0, 4),
	BITS(alternate.subnet_local, 62, 4, 1),
	BITS(alternate.local_ack_timeout, 63, 0, 5),
	BYTES(private_data, 64),
};
#undef TYPE

#define TYPE struct cm_apr_msg
static const struct cm_field cm_apr_fields[] = {
	U32(local_id, 0),
	U32(remote_id, 4),
	BITS(info_length, 8, 0, 8),
	BITS(status, 9, 0, 8),
	BYTES(info, 12),
	BYTES(private_data, 84),
};
#undef TYPE

#define TYPE struct cm_sidr_req_msg
static const struct cm_field cm_sidr_req_fields[] = {
	U32(request_id, 0),
	BITS(pkey, 4, 0, 16),
	U64(service_id, 8),
	BYTES(private_data, 16),
};
#undef TYPE

#define TYPE struct cm_sidr_rep_msg
static const struct cm_field cm_sidr_rep_fields[] = {
	U32(request_id, 0),
	BITS(status, 4, 0, 8),
	BITS(info_length, 5, 0, 8),
	BITS(qpn, 8, 0, 24),
	U64(service_id, 12),
	U32(qkey, 20),
	BYTES(info, 24),
	BYTES(private_data, 96),
};
#undef TYPE

/* ---- one message ----------------------------------------------------------------------------- */

struct cm_layout {
	const struct cm_field *fields;
	u32 count;
	u32 private_offset, private_bytes; /* in the decoded body */
} FIXED;

#define LAYOUT(attr, table, type)                                                                  \
	[(attr) - CM_REQ] = { table, ARRAY_LEN(table), offsetof(type, private_data),               \
			      sizeof(((type *)NULL)->private_data) }

static const struct cm_layout cm_layouts[CM_ATTR_END - CM_REQ] = {
	LAYOUT(CM_REQ, cm_req_fields, struct cm_req_msg),
	LAYOUT(CM_MRA, cm_mra_fields, struct cm_mra_msg),
	LAYOUT(CM_REJ, cm_rej_fields, struct cm_rej_msg),
	LAYOUT(CM_REP, cm_rep_fields, struct cm_rep_msg),
	LAYOUT(CM_RTU, cm_pair_fields, struct cm_pair_msg),
	LAYOUT(CM_DREQ, cm_dreq_fields, struct cm_dreq_msg),
	LAYOUT(CM_DREP, cm_pair_fields, struct cm_pair_msg),
	LAYOUT(CM_SIDR_REQ, cm_sidr_req_fields, struct cm_sidr_req_msg),
	LAYOUT(CM_SIDR_REP, cm_sidr_rep_fields, struct cm_sidr_rep_msg),
	LAYOUT(CM_LAP, cm_lap_fields, struct cm_lap_msg),
	LAYOUT(CM_APR, cm_apr_fields, struct cm_apr_msg),
};

/* The value of a member of 1, 2, 4 or 8 bytes. */
static u64 msg_member_get(const u8 *member, u32 size)
{
	u8 one;
	u16 two;
	u32 four;
	u64 eight;

	switch (size) {
	case 1:
		return memcpy(&one, member, 1), one;
	case 2:
		return memcpy(&two, member, 2), two;
	case 4:
		return memcpy(&four, member, 4), four;
	default:
		return memcpy(&eight, member, 8), eight;
	}
}

static void msg_member_set(u8 *member, u32 size, u64 value)
{
	u8 one = (u8)value;
	u16 two = (u16)value;
	u32 four = (u32)value;

	switch (size) {
	case 1:
		memcpy(member, &one, 1);
		break;
	case 2:
		memcpy(member, &two, 2);
		break;
	case 4:
		memcpy(member, &four, 4);
		break;
	default:
		memcpy(member, &value, 8);
	}
}

/* A field lies in at most eight bytes: those of 64 bits begin at a byte. */
static void msg_bits_set(u8 *data, u32 bit, u32 bits, u64 value)
{
	u32 first = bit / 8, last = (bit + bits - 1) / 8;

	value &= ~0ull >> (64 - bits);
	value <<= 7 - (bit + bits - 1) % 8;
	for (u32 i = last + 1; i-- > first; value >>= 8)
		data[i] |= (u8)value;
}

static u64 msg_bits_get(const u8 *data, u32 bit, u32 bits)
{
	u32 first = bit / 8, last = (bit + bits - 1) / 8;
	u64 value = 0;

	for (u32 i = first; i <= last; i++)
		value = value << 8 | data[i];
	value >>= 7 - (bit + bits - 1) % 8;
	return value & ~0ull >> (64 - bits);
}

/* ---- the header ------------------------------------------------------------------------------ */

/* Bits of the MAD header. */
enum {
	HEADER_BASE_VERSION = 0,
	HEADER_CLASS = 8,
	HEADER_CLASS_VERSION = 16,
	HEADER_METHOD = 24,
	HEADER_TID = 64,
	HEADER_ATTR = 128,
	HEADER_ATTR_MOD = 160,
};

static u8 *msg_body(struct cm_msg *msg)
{
	return (u8 *)&msg->req; /* all of the union begin here */
}

void msg_pack(const struct cm_msg *msg, u8 *mad)
{
	const struct cm_layout *l = &cm_layouts[msg->attr - CM_REQ];
	const u8 *body = (const u8 *)&msg->req;

	memset(mad, 0, CM_MAD_BYTES);
	msg_bits_set(mad, HEADER_BASE_VERSION, 8, 1);
	msg_bits_set(mad, HEADER_CLASS, 8, CM_CLASS);
	msg_bits_set(mad, HEADER_CLASS_VERSION, 8, CM_CLASS_VERSION);
	msg_bits_set(mad, HEADER_METHOD, 8, CM_METHOD_SEND);
	msg_bits_set(mad, HEADER_TID, 64, msg->tid);
	msg_bits_set(mad, HEADER_ATTR, 16, (u64)msg->attr);
	msg_bits_set(mad, HEADER_ATTR_MOD, 32, msg->attr_mod);
	mad += CM_MAD_HEADER;
	for (const struct cm_field *f = l->fields; f < l->fields + l->count; f++) {
		if (f->bits > 64)
			memcpy(mad + f->bit / 8, body + f->offset, f->size);
		else
			msg_bits_set(mad, f->bit, f->bits,
				     msg_member_get(body + f->offset, f->size));
	}
}

bool msg_unpack(struct cm_msg *msg, const u8 *mad, u32 length)
{
	const struct cm_layout *l;
	u8 *body = msg_body(msg);
	u64 attr;

	if (length != CM_MAD_BYTES || msg_bits_get(mad, HEADER_BASE_VERSION, 8) != 1 ||
	    msg_bits_get(mad, HEADER_CLASS, 8) != CM_CLASS ||
	    msg_bits_get(mad, HEADER_CLASS_VERSION, 8) != CM_CLASS_VERSION ||
	    msg_bits_get(mad, HEADER_METHOD, 8) != CM_METHOD_SEND)
		return false;
	attr = msg_bits_get(mad, HEADER_ATTR, 16);
	if (attr < CM_REQ || attr >= CM_ATTR_END)
		return false;
	*msg = (struct cm_msg){ .attr = (enum cm_attr)attr,
				.tid = msg_bits_get(mad, HEADER_TID, 64),
				.attr_mod = (u32)msg_bits_get(mad, HEADER_ATTR_MOD, 32) };
	l = &cm_layouts[attr - CM_REQ];
	mad += CM_MAD_HEADER;
	for (const struct cm_field *f = l->fields; f < l->fields + l->count; f++) {
		if (f->bits > 64)
			memcpy(body + f->offset, mad + f->bit / 8, f->size);
		else
			msg_member_set(body + f->offset, f->size,
				       msg_bits_get(mad, f->bit, f->bits));
	}
	return true;
}

u8 *msg_private(struct cm_msg *msg, u32 *bytes)
{
	const struct cm_layout *l = &cm_layouts[msg->attr - CM_REQ];

	*bytes = l->private_bytes;
	return msg_body(msg) + l->private_offset;
}
