/* headers.c: the transport's headers between struct pkt and bytes: BTH and the extension headers.
 *
 * In: decoded packets, received bytes    Out: bytes, decoded packets or the reason why not
 * Runs: any thread    Locks: none
 * Spec: IBA vol 1, 9.2 (BTH), 9.3 (extension headers), A14 (XRCETH), A17.9 (CNP), A19 (FETH)
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "wire/roce.h"

/* One line per field: F(member of struct pkt, first byte in its header, bytes). Big endian. */
#define BTH_FIELDS(F) F(pkey, 2, 2) F(dqpn, 5, 3) F(psn, 9, 3)
#define DETH_FIELDS(F) F(qkey, 0, 4) F(sqpn, 5, 3)
#define XRCETH_FIELDS(F) F(srqn, 1, 3)
#define FETH_FIELDS(F) F(imm, 0, 4)
#define RETH_FIELDS(F) F(va, 0, 8) F(rkey, 8, 4) F(dma_length, 12, 4)
#define ATOMIC_FIELDS(F) F(va, 0, 8) F(rkey, 8, 4) F(swap, 12, 8) F(compare, 20, 8)
#define AETH_FIELDS(F) F(syndrome, 0, 1) F(msn, 1, 3)
#define ATOMIC_ACK_FIELDS(F) F(swap, 0, 8)
#define IETH_FIELDS(F) F(imm, 0, 4)

/* BTH's bytes that are no whole fields. */
enum {
	BTH_OPCODE = 0,
	BTH_BITS = 1, /* SE, MigReq, pad count, TVer */
	BTH_SOLICITED = 0x80,
	BTH_MIGREQ = 0x40,
	BTH_PAD_SHIFT = 4,
	BTH_PAD = 3,
	BTH_TVER = 0x0f,
	BTH_FECN = 4, /* FECN, BECN, reserved bits */
	BTH_BECN = 0x40,
	BTH_ACK = 8, /* AckReq, reserved bits */
	BTH_ACK_REQUEST = 0x80,
};

/* The opcode's upper bits. */
enum {
	RC = 0x00,
	UC = 0x20,
	UD = 0x60,
	XRC = 0xa0,
	TRANSPORT = 0xe0,
	CNP = 0x81,
	CNP_RESERVED = 16
};

/* Extension headers in the order in which they lie, and whether a payload may follow. */
enum {
	DETH = 1,
	RETH = 2,
	ATOMIC = 4,
	AETH = 8,
	ATOMIC_ACK = 16,
	IMM = 32,
	IETH = 64,
	PAYLOAD = 128,
	XRCETH = 256,
	FETH = 512,
	FIRST_ETH = DETH | XRCETH | FETH, /* lies right behind BTH; one of them */
};

/* What follows BTH, by RC's opcode; IBA vol 1, 9.2.1 (OpCode). 0: reserved. */
static const u16 roce_shape[PKT_OPCODES] = {
	[PKT_SEND_FIRST] = PAYLOAD,
	[PKT_SEND_MIDDLE] = PAYLOAD,
	[PKT_SEND_LAST] = PAYLOAD,
	[PKT_SEND_LAST_IMM] = IMM | PAYLOAD,
	[PKT_SEND_ONLY] = PAYLOAD,
	[PKT_SEND_ONLY_IMM] = IMM | PAYLOAD,
	[PKT_WRITE_FIRST] = RETH | PAYLOAD,
	[PKT_WRITE_MIDDLE] = PAYLOAD,
	[PKT_WRITE_LAST] = PAYLOAD,
	[PKT_WRITE_LAST_IMM] = IMM | PAYLOAD,
	[PKT_WRITE_ONLY] = RETH | PAYLOAD,
	[PKT_WRITE_ONLY_IMM] = RETH | IMM | PAYLOAD,
	[PKT_READ_REQUEST] = RETH,
	[PKT_READ_FIRST] = AETH | PAYLOAD,
	[PKT_READ_MIDDLE] = PAYLOAD,
	[PKT_READ_LAST] = AETH | PAYLOAD,
	[PKT_READ_ONLY] = AETH | PAYLOAD,
	[PKT_ACK] = AETH,
	[PKT_ATOMIC_ACK] = AETH | ATOMIC_ACK,
	[PKT_COMPARE_SWAP] = ATOMIC,
	[PKT_FETCH_ADD] = ATOMIC,
	[PKT_SEND_LAST_INV] = IETH | PAYLOAD,
	[PKT_SEND_ONLY_INV] = IETH | PAYLOAD,
	[PKT_FLUSH] = FETH | RETH,
	[PKT_ATOMIC_WRITE] = RETH | PAYLOAD,
};

/* ---- big-endian numbers of 1 to 8 bytes; `bytes` is a constant wherever these are used ---- */

static inline __attribute__((always_inline)) void be_put(u8 *out, int bytes, u64 v)
{
	u64 be = htobe64(v << (64 - 8 * bytes));

	memcpy(out, &be, (size_t)bytes);
}

static inline __attribute__((always_inline)) u64 be_get(const u8 *data, int bytes)
{
	u64 be = 0;

	memcpy(&be, data, (size_t)bytes);
	return be64toh(be) >> (64 - 8 * bytes);
}

#define PUT(member, at, bytes) be_put(out + (at), bytes, p->member);
#define GET(member, at, bytes) p->member = (__typeof__(p->member))be_get(data + (at), bytes);

/* ---- shapes ---- */

/* The shape of an opcode on a queue pair of this type; 0: there is no such packet. */
static u32 roce_shape_of(u8 opcode, u8 qp_type)
{
	if (opcode >= PKT_OPCODES)
		return 0;
	if (qp_type == IBV_QPT_RC)
		return roce_shape[opcode];
	if (qp_type == IBV_QPT_UC)
		return opcode <= PKT_WRITE_ONLY_IMM ? roce_shape[opcode] : 0;
	if (qp_type == IBV_QPT_UD && (opcode == PKT_SEND_ONLY || opcode == PKT_SEND_ONLY_IMM))
		return roce_shape[opcode] | DETH;
	if (qp_type == IBV_QPT_XRC_SEND)
		return pkt_is_response(opcode) ? roce_shape[opcode] : 0;
	if (qp_type == IBV_QPT_XRC_RECV && !pkt_is_response(opcode) &&
	    opcode <= PKT_SEND_ONLY_INV && roce_shape[opcode] != 0)
		return roce_shape[opcode] | XRCETH;
	return 0;
}

static u32 roce_shape_length(u32 shape)
{
	u32 bytes = ROCE_BTH;

	if (unlikely(shape & FIRST_ETH))
		bytes += shape & DETH ? 8 : 4;
	bytes += shape & RETH ? 16 : 0;
	bytes += shape & ATOMIC ? 28 : 0;
	bytes += shape & AETH ? 4 : 0;
	bytes += shape & ATOMIC_ACK ? 8 : 0;
	return bytes + (shape & (IMM | IETH) ? 4 : 0);
}

static u8 roce_transport(u8 qp_type)
{
	return qp_type == IBV_QPT_RC   ? RC
	       : qp_type == IBV_QPT_UC ? UC
	       : qp_type == IBV_QPT_UD ? UD
				       : XRC;
}

/* ---- packing ---- */

static void roce_pack_bth(const struct pkt *p, u8 *out)
{
	bool cnp = p->opcode == PKT_CNP;

	memset(out, 0, ROCE_BTH);
	BTH_FIELDS(PUT)
	if (p->pkey == 0)
		be_put(out + 2, 2, ROCE_PKEY_DEFAULT);
	out[BTH_OPCODE] = cnp ? CNP : roce_transport(p->qp_type) | p->opcode;
	out[BTH_BITS] = (u8)(roce_pad(p->length) << BTH_PAD_SHIFT);
	out[BTH_BITS] |= p->flags & PKT_SOLICITED ? BTH_SOLICITED : 0;
	out[BTH_BITS] |= cnp || p->unmigrated ? 0 : BTH_MIGREQ;
	out[BTH_FECN] = cnp ? BTH_BECN : 0;
	out[BTH_ACK] = p->flags & PKT_ACK_REQUEST ? BTH_ACK_REQUEST : 0;
}

static u8 *roce_pack_first(const struct pkt *p, u32 shape, u8 *out)
{
	if (shape & XRCETH) {
		XRCETH_FIELDS(PUT)
		out[0] = 0;
		return out + 4;
	}
	if (shape & FETH) {
		FETH_FIELDS(PUT)
		return out + 4;
	}
	DETH_FIELDS(PUT)
	out[4] = 0;
	return out + 8;
}

static u8 *roce_pack_request(const struct pkt *p, u32 shape, u8 *out)
{
	if (unlikely(shape & FIRST_ETH))
		out = roce_pack_first(p, shape, out);
	if (shape & RETH) {
		RETH_FIELDS(PUT)
		out += 16;
	}
	if (shape & ATOMIC) {
		ATOMIC_FIELDS(PUT)
		out += 28;
	}
	return out;
}

static u8 *roce_pack_response(const struct pkt *p, u32 shape, u8 *out)
{
	if (shape & AETH) {
		AETH_FIELDS(PUT)
		out += 4;
	}
	if (shape & ATOMIC_ACK) {
		ATOMIC_ACK_FIELDS(PUT)
		out += 8;
	}
	return out;
}

static void roce_pack_tail(const struct pkt *p, u32 shape, u8 *out)
{
	if (shape & IMM)
		memcpy(out, &p->imm, 4); /* in network order already */
	if (shape & IETH) {
		IETH_FIELDS(PUT)
	}
}

int roce_pack(const struct pkt *p, u8 *out)
{
	u32 shape = roce_shape_of(p->opcode, p->qp_type);
	u8 *at = out + ROCE_BTH;

	if (p->opcode == PKT_CNP && p->length == 0) {
		roce_pack_bth(p, out);
		memset(at, 0, CNP_RESERVED);
		return ROCE_BTH + CNP_RESERVED;
	}
	if (shape == 0 || p->length > (shape & PAYLOAD ? ROCE_MTU_MAX : 0))
		return -EINVAL;
	roce_pack_bth(p, out);
	at = roce_pack_request(p, shape, at);
	at = roce_pack_response(p, shape, at);
	roce_pack_tail(p, shape, at);
	return (int)roce_shape_length(shape);
}

/* ---- unpacking ---- */

static void roce_unpack_bth(const u8 *data, struct pkt *p)
{
	memset(p, 0, sizeof(*p));
	BTH_FIELDS(GET)
	if (data[BTH_BITS] & BTH_SOLICITED)
		p->flags |= PKT_SOLICITED;
	if (unlikely((data[BTH_BITS] & BTH_MIGREQ) == 0))
		p->unmigrated = data[BTH_OPCODE] != CNP; /* whose bit is 0, and tells nothing */
	if (data[BTH_ACK] & BTH_ACK_REQUEST)
		p->flags |= PKT_ACK_REQUEST;
}

static const u8 *roce_unpack_first(const u8 *data, u32 shape, struct pkt *p)
{
	if (shape & XRCETH) {
		XRCETH_FIELDS(GET)
		return data + 4;
	}
	if (shape & FETH) {
		FETH_FIELDS(GET)
		return data + 4;
	}
	DETH_FIELDS(GET)
	return data + 8;
}

static const u8 *roce_unpack_request(const u8 *data, u32 shape, struct pkt *p)
{
	if (unlikely(shape & FIRST_ETH))
		data = roce_unpack_first(data, shape, p);
	if (shape & RETH) {
		RETH_FIELDS(GET)
		data += 16;
	}
	if (shape & ATOMIC) {
		ATOMIC_FIELDS(GET)
		data += 28;
	}
	return data;
}

static const u8 *roce_unpack_response(const u8 *data, u32 shape, struct pkt *p)
{
	if (shape & AETH) {
		AETH_FIELDS(GET)
		data += 4;
	}
	if (shape & ATOMIC_ACK) {
		ATOMIC_ACK_FIELDS(GET)
		data += 8;
	}
	return data;
}

static void roce_unpack_tail(const u8 *data, u32 shape, struct pkt *p)
{
	if (shape & IMM)
		memcpy(&p->imm, data, 4);
	if (shape & IETH) {
		IETH_FIELDS(GET)
	}
}

/* Sets opcode and type; the shape, 0 if there is no such packet. */
static u32 roce_unpack_opcode(u8 opcode, struct pkt *p)
{
	u8 transport = opcode & TRANSPORT;

	p->opcode = opcode & (u8)~TRANSPORT;
	p->qp_type = transport == RC   ? IBV_QPT_RC
		     : transport == UC ? IBV_QPT_UC
		     : transport == UD ? IBV_QPT_UD
		     : transport != XRC ? 0
		     : pkt_is_response(p->opcode) ? IBV_QPT_XRC_SEND
						  : IBV_QPT_XRC_RECV;
	return roce_shape_of(p->opcode, p->qp_type);
}

/* Both have the default P_Key's number, whichever kind of member the sender is: our port is a full
 * one. */
static bool roce_pkey_is_ours(u16 pkey)
{
	return (pkey & 0x7fff) == (ROCE_PKEY_DEFAULT & 0x7fff);
}

static int roce_unpack_cnp(u32 length, struct pkt *p, u32 *payload)
{
	if (length != ROCE_BTH + CNP_RESERVED)
		return ROCE_MALFORMED;
	p->opcode = PKT_CNP;
	*payload = length;
	return roce_pkey_is_ours(p->pkey) ? 0 : ROCE_PKEY_WRONG;
}

int roce_unpack(const u8 *data, u32 length, struct pkt *p, u32 *payload)
{
	u32 headers, pad, shape;

	if (length < ROCE_BTH || length % 4 != 0)
		return ROCE_MALFORMED;
	if ((data[BTH_BITS] & BTH_TVER) != 0)
		return ROCE_VERSION;
	roce_unpack_bth(data, p);
	if (data[BTH_OPCODE] == CNP)
		return roce_unpack_cnp(length, p, payload);
	shape = roce_unpack_opcode(data[BTH_OPCODE], p);
	if (shape == 0)
		return ROCE_OPCODE;
	headers = roce_shape_length(shape);
	pad = data[BTH_BITS] >> BTH_PAD_SHIFT & BTH_PAD;
	if (length < headers + pad || length - headers > (shape & PAYLOAD ? ROCE_MTU_MAX : 0))
		return ROCE_MALFORMED;
	if (!roce_pkey_is_ours(p->pkey))
		return ROCE_PKEY_WRONG;
	data = roce_unpack_request(data + ROCE_BTH, shape, p);
	roce_unpack_tail(roce_unpack_response(data, shape, p), shape, p);
	p->length = length - headers - pad;
	*payload = headers;
	return 0;
}
