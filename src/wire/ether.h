/* ether.h: Ethernet frames as flow rules see them: the fields of a frame, and which rule takes it.
 *
 * Pure functions. A key has each field at a fixed place, in network order, and zeroes where the
 * frame has no such field; so a rule is a value and a mask of the same shape, and matching is one
 * comparison of 64 bytes.
 */
#ifndef WIRE_ETHER_H
#define WIRE_ETHER_H

#include "base/compiler.h"

enum {
	ETHER_HEADER = 14,
	ETHER_TAG = 4, /* an 802.1Q tag */
	ETHER_TYPE_IPV4 = 0x0800,
	ETHER_TYPE_VLAN = 0x8100,
	ETHER_TYPE_QINQ = 0x88a8,
	ETHER_TYPE_IPV6 = 0x86dd,
	ETHER_TCP = 6,
	ETHER_UDP = 17,
	ETHER_DONT_FRAGMENT = 2, /* ether_key.ip_flags, as enum ib_ipv4_flags has them */
	ETHER_MORE_FRAGMENTS = 4,
};

struct ether_key {
	u8 dmac[6], smac[6];
	u8 ether_type[2]; /* behind the last VLAN tag */
	u8 vlan_tag[2];	  /* of the outermost tag: priority, CFI, VLAN ID */
	u8 sport[2], dport[2]; /* of TCP or UDP; none in a later fragment */
	u8 l3;		  /* 4 or 6 */
	u8 l4;		  /* ETHER_TCP or ETHER_UDP */
	u8 proto;	  /* IPv4: protocol; IPv6: next header */
	u8 tos;		  /* or traffic class */
	u8 ttl;		  /* or hop limit */
	u8 ip_flags;	  /* of IPv4 */
	u8 flow_label[4]; /* of IPv6, 20 bits */
	u8 reserved[2];	  /* 0 */
	u8 src_ip[16], dst_ip[16]; /* IPv4: the first four bytes */
} OWNED_BY(the caller);
_Static_assert(sizeof(struct ether_key) == 64, "compared in words");

/* The order in which rules are tried: sniffers, which take no frame away, then lower ranks
 * first. */
enum {
	ETHER_RANK_SNIFFER = -1,
	ETHER_RANK_NORMAL = 0, /* and the rule's priority, 16 bits */
	ETHER_RANK_MULTICAST = 1 << 16,
	ETHER_RANK_ALL = 2 << 16,
};

struct ether_rule {
	struct ether_key value, mask; /* value & ~mask is 0 */
	s32 rank;
	u8 passes; /* the frame goes on to rules of higher ranks */
	u8 drops;  /* the frame ends here, without a receiver */
	u8 reserved[2];
} OWNED_BY(the caller);

/* Reads the fields of a frame. False: it is shorter than an Ethernet header. Never reads beyond
 * `length`. */
bool ether_parse(const u8 *frame, u32 length, struct ether_key *key);

/* Does the rule take the frame? */
bool ether_matches(const struct ether_rule *rule, const struct ether_key *key);
/* Do two rules take the same frames with the same rank? */
bool ether_is_same(const struct ether_rule *a, const struct ether_rule *b);

/* The walk over a table of rules, sorted by rank, then age, for one frame. */
struct ether_walk {
	const struct ether_rule *taken; /* the rule that has taken the frame; NULL: none yet */
} OWNED_BY(the caller);

enum ether_verdict {
	ETHER_SKIP,    /* not for this rule */
	ETHER_DELIVER, /* to this rule's queue pair; go on */
	ETHER_END,     /* neither this rule nor any behind it */
};

/* Judges the next rule of the walk. A frame goes to the first rule that matches and to each rule
 * that is the same as that one, and to every sniffer. */
enum ether_verdict ether_judge(struct ether_walk *walk, const struct ether_rule *rule,
			       const struct ether_key *key);

/* ---- receive-side scaling ---- */

enum { RSS_KEY = 40 };

/* Fields of the hash; the numbers are those of enum ibv_rx_hash_fields. */
enum rss_field {
	RSS_SRC_IPV4 = 1 << 0,
	RSS_DST_IPV4 = 1 << 1,
	RSS_SRC_IPV6 = 1 << 2,
	RSS_DST_IPV6 = 1 << 3,
	RSS_SRC_PORT_TCP = 1 << 4,
	RSS_DST_PORT_TCP = 1 << 5,
	RSS_SRC_PORT_UDP = 1 << 6,
	RSS_DST_PORT_UDP = 1 << 7,
	RSS_FIELDS = (1 << 8) - 1,
};

/* Toeplitz' hash of `length` bytes, at most RSS_KEY - 4. */
u32 rss_toeplitz(const u8 key[RSS_KEY], const u8 *data, u32 length);
/* The hash of those fields of the frame that `fields` names and the frame has: source and
 * destination address, source and destination port. 0 if it has none of them. */
u32 rss_hash(const u8 key[RSS_KEY], u32 fields, const struct ether_key *frame);

#endif
