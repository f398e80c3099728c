/* frame.h: the frames of IPoIB as bytes. All functions are pure. Spec: RFC 4391, 6 (encapsulation)
 * and 9 (ARP, neighbour discovery); RFC 826; RFC 4861. */
#ifndef ULP_IPOIB_FRAME_H
#define ULP_IPOIB_FRAME_H

#include "ulp/ipoib/ipoib.h"

enum {
	FRAME_BYTES = 96, /* of the longest frame that is written here */
	REFUSAL_BYTES = 128,
};

enum ipoib_frame_kind {
	FRAME_BAD,
	FRAME_IP,     /* a packet for the IP stack */
	FRAME_ASK,    /* who has `about`? */
	FRAME_ANSWER, /* `about` is at `hw` */
};

struct ipoib_frame {
	enum ipoib_frame_kind kind;
	u8 about[16];
	/* Of a question: the address of who asks, all zeroes where it has none yet. */
	u8 from[16];
	bool has_hw; /* a question of neighbour discovery may say none */
	struct ipoib_hw hw;
	/* Of an answer: it answers a question; it may replace what is known. */
	bool solicited, override;
} OWNED_BY(the caller);

/* Reads a frame of any content. */
void ipoib_frame_read(const u8 *bytes, u32 size, struct ipoib_frame *out);
/* Writes the question for f->about from f->from with f->hw, `to`: its hardware address if it is
 * asked alone, else NULL; or the answer, from f->about with f->hw, to f->from (all zeroes: to all).
 * `bytes` has FRAME_BYTES. Returns the size. */
u32 ipoib_frame_write_ask(u8 *bytes, const struct ipoib_frame *f, const struct ipoib_hw *to);
u32 ipoib_frame_write_answer(u8 *bytes, const struct ipoib_frame *f, const struct ipoib_hw *to);
/* Writes the encapsulation header of an IP packet, and finds its destination. False: it is none. */
bool ipoib_frame_wrap(u8 *bytes, u32 size, u8 to[16]);

/* ---- refuse.c ---- */
/* Writes the ICMP message which says that the packet's destination does not answer. Returns its
 * size; 0: none is due. */
u32 ipoib_frame_refuse(const u8 *packet, u32 size, u8 out[REFUSAL_BYTES]);

/* ---- address.c ---- */
bool ipoib_ip_is_v4(const u8 ip[16]);
bool ipoib_ip_is_none(const u8 ip[16]);
/* 224.0.0.0/4, ff00::/8. */
bool ipoib_ip_is_group(const u8 ip[16]);
/* Does the address lie in the prefix? */
bool ipoib_ip_fits(const u8 ip[16], const struct ipoib_prefix *prefix);
/* The limited broadcast address of IPv4, or that of the prefix. */
bool ipoib_ip_is_broadcast(const u8 ip[16]);
bool ipoib_ip_is_broadcast_of(const u8 ip[16], const struct ipoib_prefix *prefix);
/* The solicited-node group of an IPv6 address. */
void ipoib_ip_solicited(const u8 ip[16], u8 group[16]);
/* The MGID of a group, or of IPv4's broadcast address. RFC 4391, 4. */
void ipoib_mgid(const u8 ip[16], u16 pkey, u8 scope, u8 mgid[16]);
/* Can datagrams be sent to it? */
bool ipoib_hw_is_valid(const struct ipoib_hw *hw);
void ipoib_hw_make(struct ipoib_hw *out, u32 qpn, const u8 gid[16]);
u32 ipoib_hw_qpn(const struct ipoib_hw *hw);
static inline const u8 *ipoib_hw_gid(const struct ipoib_hw *hw)
{
	return hw->raw + 4;
}

#endif
