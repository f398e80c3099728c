/* ib_pack.h: headers and records between structures and bytes, by tables of fields.
 *
 * Opcodes, header lengths and the headers of a datagram (UD) on every link: InfiniBand (LRH),
 * Ethernet with RoCE (GRH) and RoCEv2 (IPv4 or IPv6, and UDP).
 *
 * Structures hold a number of more than 8 bits in network order and right-aligned: a 24-bit queue
 * pair number is htobe32(qpn).
 * Context: any. Nothing here blocks, allocates or takes a lock.
 */
#ifndef IB_PACK_H
#define IB_PACK_H

#include <linux/types.h>
#include <rdma/ib_types.h>

enum {
	IB_LRH_BYTES = 8,
	IB_ETH_BYTES = 14,
	IB_VLAN_BYTES = 4,
	IB_GRH_BYTES = 40,
	IB_IP4_BYTES = 20,
	IB_UDP_BYTES = 8,
	IB_BTH_BYTES = 12,
	IB_DETH_BYTES = 8,
	IB_EXT_ATOMICETH_BYTES = 28,
	IB_EXT_XRC_BYTES = 4,
	IB_ICRC_BYTES = 4,
};

/* ---- fields ---------------------------------------------------------------------------------- */

/* One field: where it lies in the structure and where in the bytes. */
struct ib_field {
	size_t struct_offset_bytes;
	size_t struct_size_bytes; /* 1, 2, 4 or 8, or a whole array; 0: reserved bits */
	int offset_words;	  /* the 32-bit word in which the field begins ... */
	int offset_bits;	  /* ... and its first bit there; 0 is the most significant */
	int size_bits;
	const char *field_name;
};

/* Of a field that no member stands for: packed as zeroes, not looked at by ib_unpack. */
#define RESERVED .field_name = "reserved"

/* Writes `desc_len` fields of `structure` into `buf`; bits that no field covers stay as they are. A
 * field of at most 64 bits is a number: a value that is too wide loses its upper bits. A wider one
 * is bytes, and begins and ends on whole ones. */
AV_EXPORT void ib_pack(const struct ib_field *desc, int desc_len, void *structure, void *buf);

/* Reads them. Members that no field names stay as they are. `buf` is as long as the table says. */
AV_EXPORT void ib_unpack(const struct ib_field *desc, int desc_len, void *buf, void *structure);

/* ---- opcodes: IBA vol 1, 9.2.1 --------------------------------------------------------------- */

#define IB_OPCODE(transport, op)                                                                   \
	IB_OPCODE_##transport##_##op = IB_OPCODE_##transport + IB_OPCODE_##op

enum {
	/* the upper three bits: the transport */
	IB_OPCODE_RC = 0x00,
	IB_OPCODE_UC = 0x20,
	IB_OPCODE_RD = 0x40,
	IB_OPCODE_UD = 0x60,
	IB_OPCODE_CNP = 0x80,
	IB_OPCODE_MSP = 0xe0,

	/* the lower five: the operation */
	IB_OPCODE_SEND_FIRST = 0x00,
	IB_OPCODE_SEND_MIDDLE = 0x01,
	IB_OPCODE_SEND_LAST = 0x02,
	IB_OPCODE_SEND_LAST_WITH_IMMEDIATE = 0x03,
	IB_OPCODE_SEND_ONLY = 0x04,
	IB_OPCODE_SEND_ONLY_WITH_IMMEDIATE = 0x05,
	IB_OPCODE_RDMA_WRITE_FIRST = 0x06,
	IB_OPCODE_RDMA_WRITE_MIDDLE = 0x07,
	IB_OPCODE_RDMA_WRITE_LAST = 0x08,
	IB_OPCODE_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09,
	IB_OPCODE_RDMA_WRITE_ONLY = 0x0a,
	IB_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b,
	IB_OPCODE_RDMA_READ_REQUEST = 0x0c,
	IB_OPCODE_RDMA_READ_RESPONSE_FIRST = 0x0d,
	IB_OPCODE_RDMA_READ_RESPONSE_MIDDLE = 0x0e,
	IB_OPCODE_RDMA_READ_RESPONSE_LAST = 0x0f,
	IB_OPCODE_RDMA_READ_RESPONSE_ONLY = 0x10,
	IB_OPCODE_ACKNOWLEDGE = 0x11,
	IB_OPCODE_ATOMIC_ACKNOWLEDGE = 0x12,
	IB_OPCODE_COMPARE_SWAP = 0x13,
	IB_OPCODE_FETCH_ADD = 0x14,
	IB_OPCODE_RESYNC = 0x15, /* RD only */
	IB_OPCODE_SEND_LAST_WITH_INVALIDATE = 0x16,
	IB_OPCODE_SEND_ONLY_WITH_INVALIDATE = 0x17,
	IB_OPCODE_FLUSH = 0x1c,
	IB_OPCODE_ATOMIC_WRITE = 0x1d,

	IB_OPCODE(RC, SEND_FIRST),
	IB_OPCODE(RC, SEND_MIDDLE),
	IB_OPCODE(RC, SEND_LAST),
	IB_OPCODE(RC, SEND_LAST_WITH_IMMEDIATE),
	IB_OPCODE(RC, SEND_ONLY),
	IB_OPCODE(RC, SEND_ONLY_WITH_IMMEDIATE),
	IB_OPCODE(RC, RDMA_WRITE_FIRST),
	IB_OPCODE(RC, RDMA_WRITE_MIDDLE),
	IB_OPCODE(RC, RDMA_WRITE_LAST),
	IB_OPCODE(RC, RDMA_WRITE_LAST_WITH_IMMEDIATE),
	IB_OPCODE(RC, RDMA_WRITE_ONLY),
	IB_OPCODE(RC, RDMA_WRITE_ONLY_WITH_IMMEDIATE),
	IB_OPCODE(RC, RDMA_READ_REQUEST),
	IB_OPCODE(RC, RDMA_READ_RESPONSE_FIRST),
	IB_OPCODE(RC, RDMA_READ_RESPONSE_MIDDLE),
	IB_OPCODE(RC, RDMA_READ_RESPONSE_LAST),
	IB_OPCODE(RC, RDMA_READ_RESPONSE_ONLY),
	IB_OPCODE(RC, ACKNOWLEDGE),
	IB_OPCODE(RC, ATOMIC_ACKNOWLEDGE),
	IB_OPCODE(RC, COMPARE_SWAP),
	IB_OPCODE(RC, FETCH_ADD),
	IB_OPCODE(RC, SEND_LAST_WITH_INVALIDATE),
	IB_OPCODE(RC, SEND_ONLY_WITH_INVALIDATE),
	IB_OPCODE(RC, FLUSH),
	IB_OPCODE(RC, ATOMIC_WRITE),

	IB_OPCODE(UC, SEND_FIRST),
	IB_OPCODE(UC, SEND_MIDDLE),
	IB_OPCODE(UC, SEND_LAST),
	IB_OPCODE(UC, SEND_LAST_WITH_IMMEDIATE),
	IB_OPCODE(UC, SEND_ONLY),
	IB_OPCODE(UC, SEND_ONLY_WITH_IMMEDIATE),
	IB_OPCODE(UC, RDMA_WRITE_FIRST),
	IB_OPCODE(UC, RDMA_WRITE_MIDDLE),
	IB_OPCODE(UC, RDMA_WRITE_LAST),
	IB_OPCODE(UC, RDMA_WRITE_LAST_WITH_IMMEDIATE),
	IB_OPCODE(UC, RDMA_WRITE_ONLY),
	IB_OPCODE(UC, RDMA_WRITE_ONLY_WITH_IMMEDIATE),

	IB_OPCODE(RD, SEND_FIRST),
	IB_OPCODE(RD, SEND_MIDDLE),
	IB_OPCODE(RD, SEND_LAST),
	IB_OPCODE(RD, SEND_LAST_WITH_IMMEDIATE),
	IB_OPCODE(RD, SEND_ONLY),
	IB_OPCODE(RD, SEND_ONLY_WITH_IMMEDIATE),
	IB_OPCODE(RD, RDMA_WRITE_FIRST),
	IB_OPCODE(RD, RDMA_WRITE_MIDDLE),
	IB_OPCODE(RD, RDMA_WRITE_LAST),
	IB_OPCODE(RD, RDMA_WRITE_LAST_WITH_IMMEDIATE),
	IB_OPCODE(RD, RDMA_WRITE_ONLY),
	IB_OPCODE(RD, RDMA_WRITE_ONLY_WITH_IMMEDIATE),
	IB_OPCODE(RD, RDMA_READ_REQUEST),
	IB_OPCODE(RD, RDMA_READ_RESPONSE_FIRST),
	IB_OPCODE(RD, RDMA_READ_RESPONSE_MIDDLE),
	IB_OPCODE(RD, RDMA_READ_RESPONSE_LAST),
	IB_OPCODE(RD, RDMA_READ_RESPONSE_ONLY),
	IB_OPCODE(RD, ACKNOWLEDGE),
	IB_OPCODE(RD, ATOMIC_ACKNOWLEDGE),
	IB_OPCODE(RD, COMPARE_SWAP),
	IB_OPCODE(RD, FETCH_ADD),
	IB_OPCODE(RD, RESYNC),

	IB_OPCODE(UD, SEND_ONLY),
	IB_OPCODE(UD, SEND_ONLY_WITH_IMMEDIATE),
};

/* LRH's Link Next Header: what follows. */
enum {
	IB_LNH_RAW = 0,
	IB_LNH_IP = 1,
	IB_LNH_IBA_LOCAL = 2,  /* BTH */
	IB_LNH_IBA_GLOBAL = 3, /* GRH, then BTH */
};

/* ---- a datagram's headers -------------------------------------------------------------------- */

struct ib_unpacked_lrh {
	u8 virtual_lane;
	u8 link_version;
	u8 service_level;
	u8 link_next_header; /* IB_LNH_* */
	__be16 destination_lid;
	__be16 packet_length; /* 4-byte words, from LRH up to and with the ICRC */
	__be16 source_lid;
};

struct ib_unpacked_grh {
	u8 ip_version; /* 6 */
	u8 traffic_class;
	__be32 flow_label;
	__be16 payload_length; /* bytes behind the GRH, up to and with the ICRC */
	u8 next_header;	       /* 0x1b: BTH; 17: UDP */
	u8 hop_limit;
	union ib_gid source_gid;
	union ib_gid destination_gid;
};

struct ib_unpacked_bth {
	u8 opcode;
	u8 solicited_event;
	u8 mig_req;
	u8 pad_count;
	u8 transport_header_version;
	__be16 pkey;
	__be32 destination_qpn;
	u8 ack_req;
	__be32 psn;
};

struct ib_unpacked_deth {
	__be32 qkey;
	__be32 source_qpn;
};

struct ib_unpacked_eth {
	u8 dmac_h[4];
	u8 dmac_l[2];
	u8 smac_h[2];
	u8 smac_l[4];
	__be16 type;
};

struct ib_unpacked_ip4 {
	u8 ver;
	u8 hdr_len; /* 4-byte words: 5 */
	u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off; /* with the three flags above it */
	u8 ttl;
	u8 protocol;
	__sum16 check;
	__be32 saddr;
	__be32 daddr;
};

struct ib_unpacked_udp {
	__be16 sport;
	__be16 dport;
	__be16 length;
	__be16 csum;
};

struct ib_unpacked_vlan {
	__be16 tag;
	__be16 type;
};

/* In the order in which they are sent. */
struct ib_ud_header {
	int lrh_present;
	struct ib_unpacked_lrh lrh;
	int eth_present;
	struct ib_unpacked_eth eth;
	int vlan_present;
	struct ib_unpacked_vlan vlan;
	int grh_present; /* RoCEv2 over IPv6 has its header here, too */
	struct ib_unpacked_grh grh;
	int ipv4_present;
	struct ib_unpacked_ip4 ip4;
	int udp_present;
	struct ib_unpacked_udp udp;
	struct ib_unpacked_bth bth;
	struct ib_unpacked_deth deth;
	int immediate_present;
	__be32 immediate_data;
};

/* The most that ib_ud_header_pack writes for InfiniBand, and that ib_ud_header_unpack reads. */
enum { IB_UD_HEADER_BYTES = 72 };

/* Sets all that follows from which headers there are and how long the payload is: lengths, the
 * pad count, versions, next headers, the opcode. The rest is zero and the caller's to fill in.
 * ip_version: 4, 6, or 0 for no RoCEv2; with one, grh_present is not looked at. The lengths count
 * the immediate data, which is no part of payload_bytes. 0; -EINVAL: UDP without IP. */
AV_EXPORT int ib_ud_header_init(int payload_bytes, int lrh_present, int eth_present,
				int vlan_present, int grh_present, int ip_version, int udp_present,
				int immediate_present, struct ib_ud_header *header);

/* IPv4's header checksum; the `check` that stands there is not looked at. */
AV_EXPORT __sum16 ib_ud_ip4_csum(struct ib_ud_header *header);

/* Writes the headers that are present. Returns how many bytes. */
AV_EXPORT int ib_ud_header_pack(struct ib_ud_header *header, void *buf);

/* Reads the headers of a datagram on InfiniBand, LRH first. `buf` has IB_UD_HEADER_BYTES bytes,
 * and may hold anything. 0; -EINVAL: not a datagram of this version of the headers; *header is
 * then partly set. */
AV_EXPORT int ib_ud_header_unpack(void *buf, struct ib_ud_header *header);

#endif
