/* rule.c: flow specifications as one value and one mask.
 * In: ib_flow_attr of the application    Out: an ether_rule    Runs: anywhere    Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "driver/soft/raw.h"

enum {
	LAYER_LINK = 1,
	LAYER_NETWORK = 2,
	LAYER_TRANSPORT = 4,
	LAYER_ACTION = 8,
	LAYER_COUNT = 16,
};

#define RULE_SET(rule, spec, field, filter)                                                        \
	do {                                                                                       \
		memcpy(&(rule)->value.field, &(spec)->val.filter, sizeof((spec)->val.filter));     \
		memcpy(&(rule)->mask.field, &(spec)->mask.filter, sizeof((spec)->mask.filter));    \
	} while (0)

static void rule_demand(u8 *value, u8 *mask, u8 wanted)
{
	*value = wanted;
	*mask = 0xff;
}

static void rule_add_eth(struct ether_rule *rule, const struct ib_flow_spec *spec)
{
	RULE_SET(rule, spec, dmac, eth.dst_mac);
	RULE_SET(rule, spec, smac, eth.src_mac);
	RULE_SET(rule, spec, ether_type, eth.ether_type);
	RULE_SET(rule, spec, vlan_tag, eth.vlan_tag);
}

static void rule_add_ip4(struct ether_rule *rule, const struct ib_flow_spec *spec)
{
	rule_demand(&rule->value.l3, &rule->mask.l3, 4);
	RULE_SET(rule, spec, src_ip, ipv4.src_ip);
	RULE_SET(rule, spec, dst_ip, ipv4.dst_ip);
	if (spec->type != IB_FLOW_SPEC_IPV4_EXT)
		return;
	RULE_SET(rule, spec, proto, ipv4.proto);
	RULE_SET(rule, spec, tos, ipv4.tos);
	RULE_SET(rule, spec, ttl, ipv4.ttl);
	RULE_SET(rule, spec, ip_flags, ipv4.flags);
}

static void rule_add_ip6(struct ether_rule *rule, const struct ib_flow_spec *spec)
{
	rule_demand(&rule->value.l3, &rule->mask.l3, 6);
	RULE_SET(rule, spec, src_ip, ipv6.src_ip);
	RULE_SET(rule, spec, dst_ip, ipv6.dst_ip);
	RULE_SET(rule, spec, flow_label, ipv6.flow_label);
	RULE_SET(rule, spec, proto, ipv6.next_hdr);
	RULE_SET(rule, spec, tos, ipv6.traffic_class);
	RULE_SET(rule, spec, ttl, ipv6.hop_limit);
}

static void rule_add_ports(struct ether_rule *rule, const struct ib_flow_spec *spec)
{
	rule_demand(&rule->value.l4, &rule->mask.l4,
		    spec->type == IB_FLOW_SPEC_TCP ? ETHER_TCP : ETHER_UDP);
	RULE_SET(rule, spec, sport, tcp_udp.src_port);
	RULE_SET(rule, spec, dport, tcp_udp.dst_port);
}

/* The layer that a specification describes, or a negative errno. */
static int rule_add(struct ether_rule *rule, const struct ib_flow_spec *spec)
{
	switch (spec->type) {
	case IB_FLOW_SPEC_ETH:
		rule_add_eth(rule, spec);
		return LAYER_LINK;
	case IB_FLOW_SPEC_IPV4:
	case IB_FLOW_SPEC_IPV4_EXT:
		rule_add_ip4(rule, spec);
		return LAYER_NETWORK;
	case IB_FLOW_SPEC_IPV6:
		rule_add_ip6(rule, spec);
		return LAYER_NETWORK;
	case IB_FLOW_SPEC_TCP:
	case IB_FLOW_SPEC_UDP:
		rule_add_ports(rule, spec);
		return LAYER_TRANSPORT;
	case IB_FLOW_SPEC_ACTION_DROP:
		rule->drops = 1;
		return LAYER_ACTION;
	case IB_FLOW_SPEC_ACTION_COUNT:
		return LAYER_COUNT;
	case IB_FLOW_SPEC_ESP:
	case IB_FLOW_SPEC_VXLAN_TUNNEL:
	case IB_FLOW_SPEC_GRE:
	case IB_FLOW_SPEC_MPLS:
	case IB_FLOW_SPEC_ACTION_TAG:
	case IB_FLOW_SPEC_ACTION_HANDLE:
		return -EOPNOTSUPP;
	default:
		return (u32)spec->type & IB_FLOW_SPEC_INNER ? -EOPNOTSUPP : -EINVAL;
	}
}

/* Do the layers name each other as the rule says? Where a layer's type is only partly in the mask
 * frames decide. */
static bool rule_is_consistent(const struct ether_rule *rule)
{
	const struct ether_key *v = &rule->value, *m = &rule->mask;
	u16 type = (u16)(v->ether_type[0] << 8 | v->ether_type[1]);

	if (m->l3 && (m->ether_type[0] & m->ether_type[1]) == 0xff &&
	    type != (v->l3 == 4 ? ETHER_TYPE_IPV4 : ETHER_TYPE_IPV6))
		return false;
	return !m->l4 || m->proto != 0xff || v->proto == v->l4;
}

static void rule_apply_mask(struct ether_rule *rule)
{
	u8 *value = (u8 *)&rule->value;
	const u8 *mask = (const u8 *)&rule->mask;

	for (size_t i = 0; i < sizeof(rule->value); i++)
		value[i] &= mask[i];
}

static void rule_set_rank(struct ether_rule *rule, const struct ib_flow_attr *attr)
{
	switch (attr->type) {
	case IB_FLOW_ATTR_SNIFFER:
		rule->rank = ETHER_RANK_SNIFFER;
		break;
	case IB_FLOW_ATTR_MC_DEFAULT:
		rule->rank = ETHER_RANK_MULTICAST;
		rule->value.dmac[0] = rule->mask.dmac[0] = 1;
		break;
	case IB_FLOW_ATTR_ALL_DEFAULT:
		rule->rank = ETHER_RANK_ALL;
		break;
	default:
		rule->rank = ETHER_RANK_NORMAL + attr->priority;
		break;
	}
}

int rule_of_attr(const struct ib_flow_attr *attr, struct ether_rule *rule)
{
	int layers = 0;

	memset(rule, 0, sizeof(*rule));
	if (attr->flags & IB_FLOW_ATTR_FLAGS_EGRESS)
		return -EOPNOTSUPP;
	for (u32 i = 0; i < attr->num_of_specs; i++) {
		int layer = rule_add(rule, &attr->specs[i]);

		if (layer < 0)
			return layer;
		if (layers & layer)
			return -EINVAL;
		layers |= layer;
	}
	if (!rule_is_consistent(rule))
		return -EINVAL;
	rule_apply_mask(rule);
	rule_set_rank(rule, attr);
	rule->passes = (attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP) != 0;
	return rule->passes && rule->drops ? -EINVAL : 0;
}
