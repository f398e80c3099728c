/* roce.h: RoCEv2 on the wire, exact: the transport's headers, the IP and UDP headers in front, and
 * the invariant CRC behind.
 *
 * Pure functions: no system call, no lock, no memory but the caller's. A packet's UDP payload is
 *
 *	BTH | extension headers | payload | 0 to 3 bytes of padding | ICRC
 *
 *   pkt.h      a packet, decoded              headers.c  BTH and the extension headers
 *   ip.c       IP and UDP headers             sport.c    source ports
 *   icrc.c     computes the ICRC              crc.c      CRC-32
 *   lrh.h      InfiniBand's own link layer
 *   source.c   judges the ICRC of a datagram whose IP header the socket does not show
 *
 * Spec: IBA vol 1, ch. 9 (headers) and annex A17 (RoCEv2: ports, ICRC, CNP).
 */
#ifndef WIRE_ROCE_H
#define WIRE_ROCE_H

#include <endian.h>
#include <string.h>

#include "wire/pkt.h"

enum {
	ROCE_PORT = 4791,
	ROCE_BTH = 12,
	ROCE_HEADERS_MAX = 44, /* BTH, XRCETH and AtomicETH */
	ROCE_ICRC = 4,
	ROCE_TRAILER_MAX = 3 + ROCE_ICRC,
	ROCE_MTU_MAX = 4096,
	ROCE_UDP_MAX = ROCE_HEADERS_MAX + ROCE_MTU_MAX + ROCE_TRAILER_MAX,
	ROCE_IP_MAX = 48,	    /* IP (without options) and UDP header */
	ROCE_PKEY_DEFAULT = 0xffff, /* the only one in a port's table */
};

/* Why a packet is no packet. */
enum roce_fault {
	ROCE_MALFORMED = -1, /* too short, too long, no multiple of 4, padding without payload */
	ROCE_VERSION = -2,   /* TVer is not 0 */
	ROCE_OPCODE = -3,    /* reserved, or of a transport that is not spoken here */
	ROCE_PKEY_WRONG = -4,
};

/* ---- headers ---- */

/* Writes BTH and extension headers of `p` (its length is the payload's: the pad count is that).
 * Returns how many bytes, at most ROCE_HEADERS_MAX; -EINVAL: such a packet has no wire form, or its
 * payload is larger than ROCE_MTU_MAX. MigReq is 1, as adapters send it before any migration; a CNP
 * has its 16 reserved bytes and BECN. p->pkey 0 means the default one. */
int roce_pack(const struct pkt *p, u8 *out);

/* Reads `length` bytes of UDP payload, ICRC excluded. 0: *p holds the headers and p->length, and
 * the payload begins at data + *payload. Else enum roce_fault, *p is undefined. Any MigReq is
 * right; addresses, traffic class and PKT_HAS_GRH are left to the caller, sequence numbers and
 * whether the payload's length fits the opcode to the engine, which answers with a NAK. */
int roce_unpack(const u8 *data, u32 length, struct pkt *p, u32 *payload);

/* May these 12 bytes be the BTH of a packet that roce_unpack takes? 1 of 2^19 random ones may. */
static inline bool roce_may_begin(const u8 *bth)
{
	u32 first;

	memcpy(&first, bth, sizeof(first));
	/* TVer and P_Key, without its membership */
	return (be32toh(first) & 0x000f7fff) == (ROCE_PKEY_DEFAULT & 0x7fff);
}

/* Padding behind a payload. */
static inline u32 roce_pad(u32 length)
{
	return -length & 3;
}

/* ---- addresses, IP and UDP ---- */

/* What lies in front of a packet. Addresses as GIDs: ::ffff:a.b.c.d is IPv4. */
struct roce_flow {
	u8 sgid[16], dgid[16];
	u16 sport; /* source port; the destination's is ROCE_PORT */
	u8 traffic_class, hop_limit;
	u32 flow_label; /* IPv6 */
	u16 id;		/* IPv4: identification */
	bool df;	/* IPv4: don't fragment */
} OWNED_BY(the caller);

/* The flow label of a connection whose address vector has none: the same at both ends. */
u32 roce_flow_label(u32 qpn, u32 peer);
/* The source port of a flow: ROCE_SPORT_MIN or more. */
u16 roce_sport(u32 flow_label);
enum { ROCE_SPORT_MIN = 0xc000 };

bool roce_gid_is_ipv4(const u8 gid[16]);
/* Bytes of IP and UDP header between these addresses: 28 or 48. */
u32 roce_ip_length(const struct roce_flow *f);
/* Writes them, for a UDP payload of `length` bytes (ICRC included); IPv4's checksum is set, UDP's
 * is
 * 0. Returns roce_ip_length. */
u32 roce_ip_pack(const struct roce_flow *f, u32 length, u8 out[ROCE_IP_MAX]);

/* ---- ICRC ---- */

/* Begins: covers what is invariant of the IP and UDP headers for a UDP payload of `length` bytes
 * (padding and ICRC included) and of the `bytes` headers that roce_pack wrote or that were
 * received. Then roce_icrc_add for each piece of payload. */
u32 roce_icrc_begin(const struct roce_flow *f, u32 length, const u8 *headers, u32 bytes);
u32 roce_icrc_add(u32 icrc, const void *piece, u32 bytes);
/* Ends: writes `pad` bytes of padding and the ICRC, which is sent behind the payload. Returns pad +
 * 4. */
u32 roce_icrc_end(u32 icrc, u32 pad, u8 out[ROCE_TRAILER_MAX]);

/* The CRC of the headers in front of the packets of one flow, kept for some lengths, so that
 * only the packet's own bytes are left to do. All zeroes in the beginning; of another flow it
 * begins anew. */
enum { ROCE_PREFIXES = 4 };
struct roce_prefix {
	u64 gids[4]; /* sgid and dgid */
	u32 crc[ROCE_PREFIXES]; /* with identification 0 and DF */
	u16 length[ROCE_PREFIXES]; /* of the UDP payload; 0: none */
	u16 sport;
	bool v4;
} OWNED_BY(the caller);
/* The ICRC of the UDP payload `data` of `length` bytes, of which the last four, its place, are not
 * looked at; at least ROCE_BTH + ROCE_ICRC, at most ROCE_UDP_MAX. Sent least significant byte
 * first. As roce_icrc_begin, _add and _end compute it. */
u32 roce_icrc_whole(struct roce_prefix *x, const struct roce_flow *f, const u8 *data, u32 length);

/* For roce_icrc_explain: computed once for each length. All zeroes in the beginning. */
struct roce_unshift {
	u32 length;  /* of the UDP payload, for which ... */
	u32 unshift; /* ... this undoes what follows the identification, or 0 */
} OWNED_BY(the caller);
/* `difference` is the exclusive or of an IPv4 packet's ICRC and of the one that it would have with
 * f->id and f->df: sets both to those that explain it. False: none do, and *f is as before. */
bool roce_icrc_explain(struct roce_unshift *x, u32 difference, u32 length, struct roce_flow *f);

/* Memory of the two calls below, only to compute less. All zeroes in the beginning. */
struct roce_trial {
	struct roce_prefix prefix;
	struct roce_unshift unshift;
	u16 first, all; /* lengths of the last pair */
	u8 fecn;	/* that byte of its second packet */
	bool df;
	u8 same; /* how often in a row these four were the same */
	/* once that is often enough: what no identification explains of such a pair whose second
	 * one is 0, and what four bits each of that add */
	u32 residue;
	u16 by_id[4][16];
} OWNED_BY(the caller);
/* Can these `length` bytes be one packet of this flow, whatever identification and DF its sender
 * has given it? True of each packet with a right ICRC. Of other bytes it is true with probability
 * 2^-15 (IPv6: 2^-32), and false where `length` is that of no packet. */
bool roce_icrc_is_possible(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
			   u32 length);
/* The same of two joined packets, `all` bytes of which the first has `first`, whose ICRCs are
 * right; f->id and f->df are the second one's. What they contain does not matter: a packet and its
 * ICRC together have the same CRC, whatever the packet. So for a pair of lengths that comes again
 * it is a matter of the identification alone. */
bool roce_icrc_is_pair_possible(struct roce_trial *x, const struct roce_flow *f, const u8 *data,
				u32 first, u32 all);

#endif
