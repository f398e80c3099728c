/* ether.c: the fields of an Ethernet frame, and the rule that takes it.
 * In: frames of anybody    Out: keys, verdicts    Runs: anywhere    Locks: none
 * Spec: IEEE 802.3, 802.1Q; RFC 791, 8200, 768, 9293
 */
#include <string.h>

#include "wire/ether.h"

enum {
	IP4_HEADER = 20,
	IP4_OFFSET_HIGH = 0x1f, /* of byte 6; byte 7 has the rest of the fragment offset */
	IP4_DF = 0x40,
	IP4_MF = 0x20,
	IP6_HEADER = 40,
	L4_PORTS = 4,
};

static u16 ether_get16(const u8 *p)
{
	return (u16)(p[0] << 8 | p[1]);
}

static void ether_parse_ports(const u8 *at, u32 left, u8 proto, struct ether_key *key)
{
	if ((proto != ETHER_TCP && proto != ETHER_UDP) || left < L4_PORTS)
		return;
	key->l4 = proto;
	memcpy(key->sport, at, 2);
	memcpy(key->dport, at + 2, 2);
}

static void ether_parse_ip4(const u8 *at, u32 left, struct ether_key *key)
{
	u32 header = left >= 1 ? (at[0] & 0xfu) * 4 : 0;

	if (left < IP4_HEADER || at[0] >> 4 != 4 || header < IP4_HEADER || header > left)
		return;
	key->l3 = 4;
	key->tos = at[1];
	key->ip_flags = (u8)((at[6] & IP4_DF ? ETHER_DONT_FRAGMENT : 0) |
			     (at[6] & IP4_MF ? ETHER_MORE_FRAGMENTS : 0));
	key->ttl = at[8];
	key->proto = at[9];
	memcpy(key->src_ip, at + 12, 4);
	memcpy(key->dst_ip, at + 16, 4);
	if ((at[6] & IP4_OFFSET_HIGH) == 0 && at[7] == 0)
		ether_parse_ports(at + header, left - header, key->proto, key);
}

/* Extension headers end the search: adapters match the next header of the base header. */
static void ether_parse_ip6(const u8 *at, u32 left, struct ether_key *key)
{
	if (left < IP6_HEADER || at[0] >> 4 != 6)
		return;
	key->l3 = 6;
	key->tos = (u8)(at[0] << 4 | at[1] >> 4);
	key->flow_label[1] = at[1] & 0xf;
	key->flow_label[2] = at[2];
	key->flow_label[3] = at[3];
	key->proto = at[6];
	key->ttl = at[7];
	memcpy(key->src_ip, at + 8, 16);
	memcpy(key->dst_ip, at + 24, 16);
	ether_parse_ports(at + IP6_HEADER, left - IP6_HEADER, key->proto, key);
}

static bool ether_is_tag(const u8 *type)
{
	return ether_get16(type) == ETHER_TYPE_VLAN || ether_get16(type) == ETHER_TYPE_QINQ;
}

bool ether_parse(const u8 *frame, u32 length, struct ether_key *key)
{
	u32 at = ETHER_HEADER - 2; /* of the EtherType */

	if (length < ETHER_HEADER)
		return false;
	memset(key, 0, sizeof(*key));
	memcpy(key->dmac, frame, 6);
	memcpy(key->smac, frame + 6, 6);
	for (bool first = true; ether_is_tag(frame + at) && length - at >= ETHER_TAG + 2;
	     first = false) {
		if (first)
			memcpy(key->vlan_tag, frame + at + 2, 2);
		at += ETHER_TAG;
	}
	memcpy(key->ether_type, frame + at, 2);
	at += 2;
	if (ether_get16(key->ether_type) == ETHER_TYPE_IPV4)
		ether_parse_ip4(frame + at, length - at, key);
	else if (ether_get16(key->ether_type) == ETHER_TYPE_IPV6)
		ether_parse_ip6(frame + at, length - at, key);
	return true;
}

bool ether_matches(const struct ether_rule *rule, const struct ether_key *key)
{
	const u8 *value = (const u8 *)&rule->value, *mask = (const u8 *)&rule->mask;
	const u8 *frame = (const u8 *)key;

	for (u32 i = 0; i < sizeof(*key); i += 8) {
		u64 v, m, f;

		memcpy(&v, value + i, 8);
		memcpy(&m, mask + i, 8);
		memcpy(&f, frame + i, 8);
		if ((f & m) != v)
			return false;
	}
	return true;
}

bool ether_is_same(const struct ether_rule *a, const struct ether_rule *b)
{
	return a->rank == b->rank && memcmp(&a->value, &b->value, sizeof(a->value)) == 0 &&
	       memcmp(&a->mask, &b->mask, sizeof(a->mask)) == 0;
}

enum ether_verdict ether_judge(struct ether_walk *walk, const struct ether_rule *rule,
			       const struct ether_key *key)
{
	if (walk->taken != NULL) {
		if (rule->rank > walk->taken->rank)
			return ETHER_END;
		return ether_is_same(rule, walk->taken) && !rule->drops && !walk->taken->drops
			       ? ETHER_DELIVER
			       : ETHER_SKIP;
	}
	if (!ether_matches(rule, key))
		return ETHER_SKIP;
	if (rule->rank != ETHER_RANK_SNIFFER && !rule->passes)
		walk->taken = rule;
	return rule->drops ? ETHER_SKIP : ETHER_DELIVER;
}
