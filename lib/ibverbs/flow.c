/* flow.c: flow rules of raw packet queue pairs.
 * In: libibverbs' attributes, with specifications of various sizes behind them
 * Out: the midlayer's rules
 * Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "door.h"

/* One line per specification: the filters begin alike in both worlds. */
struct flow_layout {
	enum ibv_flow_spec_type type;
	u16 size; /* of the whole specification */
	u16 value, mask, length; /* places and size of the filters */
} FIXED;

#define FLOW_LAYOUT(type, spec, filter)                                                            \
	{ type, sizeof(struct spec), offsetof(struct spec, val), offsetof(struct spec, mask),      \
	  sizeof(struct filter) }
#define FLOW_ACTION(type, spec) { type, sizeof(struct spec), 0, 0, 0 }

static const struct flow_layout flow_layouts[] = {
	FLOW_LAYOUT(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth, ibv_flow_eth_filter),
	FLOW_LAYOUT(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4, ibv_flow_ipv4_filter),
	FLOW_LAYOUT(IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, ibv_flow_ipv4_ext_filter),
	FLOW_LAYOUT(IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, ibv_flow_ipv6_filter),
	FLOW_LAYOUT(IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp, ibv_flow_tcp_udp_filter),
	FLOW_LAYOUT(IBV_FLOW_SPEC_UDP, ibv_flow_spec_tcp_udp, ibv_flow_tcp_udp_filter),
	FLOW_ACTION(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop),
};

_Static_assert(sizeof(struct ib_flow_eth_filter) == sizeof(struct ibv_flow_eth_filter) &&
		       sizeof(struct ib_flow_ipv4_filter) ==
			       sizeof(struct ibv_flow_ipv4_ext_filter) &&
		       sizeof(struct ib_flow_ipv6_filter) == sizeof(struct ibv_flow_ipv6_filter) &&
		       sizeof(struct ib_flow_tcp_udp_filter) ==
			       sizeof(struct ibv_flow_tcp_udp_filter),
	       "same filters");
_Static_assert(offsetof(struct ib_flow_ipv6_filter, hop_limit) ==
			       offsetof(struct ibv_flow_ipv6_filter, hop_limit) &&
		       offsetof(struct ib_flow_ipv4_filter, flags) ==
			       offsetof(struct ibv_flow_ipv4_ext_filter, flags) &&
		       offsetof(struct ib_flow_tcp_udp_filter, src_port) ==
			       offsetof(struct ibv_flow_tcp_udp_filter, src_port),
	       "same filters");

struct door_flow {
	struct ibv_flow ibv FIXED;
	struct ib_flow *ib FIXED;
};

/* Types that libibverbs knows and the door has no layout for. */
static bool flow_is_known(enum ibv_flow_spec_type type)
{
	switch (type & ~IBV_FLOW_SPEC_INNER) {
	case IBV_FLOW_SPEC_ETH:
	case IBV_FLOW_SPEC_IPV4:
	case IBV_FLOW_SPEC_IPV6:
	case IBV_FLOW_SPEC_IPV4_EXT:
	case IBV_FLOW_SPEC_ESP:
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
	case IBV_FLOW_SPEC_GRE:
	case IBV_FLOW_SPEC_MPLS:
	case IBV_FLOW_SPEC_ACTION_TAG:
	case IBV_FLOW_SPEC_ACTION_HANDLE:
		return true;
	default:
		return false;
	}
}

/* Specs lie one behind the other without padding: their fields may not be aligned. */
struct flow_head {
	enum ibv_flow_spec_type type;
	u16 size;
} FIXED;

/* Counters of another file of the device are none of this one's. */
static int flow_read_count(struct ibv_context *context, const u8 *bytes,
			   const struct flow_head *head, struct ib_flow_spec *to)
{
	struct ibv_flow_spec_counter_action spec;

	if (head->size != sizeof(spec))
		return -EINVAL;
	memcpy(&spec, bytes, sizeof(spec));
	if (!spec.counters || !context_is_same(spec.counters->context, context))
		return -EINVAL;
	to->type = IB_FLOW_SPEC_ACTION_COUNT;
	to->counters = door_counters(spec.counters)->ib;
	return 0;
}

static int flow_read_spec(struct ibv_context *context, const u8 *bytes,
			  const struct flow_head *head, struct ib_flow_spec *to)
{
	if (head->type == IBV_FLOW_SPEC_ACTION_COUNT)
		return flow_read_count(context, bytes, head, to);
	for (u32 i = 0; i < ARRAY_LEN(flow_layouts); i++) {
		const struct flow_layout *l = &flow_layouts[i];

		if (l->type != head->type)
			continue;
		if (head->size != l->size)
			return -EINVAL;
		to->type = (enum ib_flow_spec_type)l->type;
		memcpy(&to->val, bytes + l->value, l->length);
		memcpy(&to->mask, bytes + l->mask, l->length);
		return 0;
	}
	return flow_is_known(head->type) ? -EOPNOTSUPP : -EINVAL;
}

static int flow_read(struct ibv_context *context, const struct ibv_flow_attr *from,
		     struct ib_flow_attr *to)
{
	const u8 *spec = (const u8 *)(from + 1);

	if (from->comp_mask || from->num_of_specs > IB_FLOW_SPEC_LAYERS)
		return -EINVAL;
	*to = (struct ib_flow_attr){ .size = sizeof(*to),
				     .type = (enum ib_flow_attr_type)from->type,
				     .priority = from->priority,
				     .num_of_specs = from->num_of_specs,
				     .port = from->port,
				     .flags = from->flags };
	for (u32 i = 0; i < from->num_of_specs; i++) {
		struct flow_head head;
		int error;

		memcpy(&head, spec, sizeof(head));
		error = flow_read_spec(context, spec, &head, &to->specs[i]);
		if (error)
			return error;
		spec += head.size;
	}
	return 0;
}

struct ibv_flow *flow_create(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct door_context *c = door_context(qp->context);
	struct ib_flow_attr ib;
	int error = flow_read(qp->context, attr, &ib);
	struct door_flow *flow;

	if (error)
		return door_null(error);
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return door_null(-ENOMEM);
	flow->ib = ib_create_flow(door_qp(qp)->ib, &ib);
	if (IS_ERR(flow->ib)) {
		long err = PTR_ERR(flow->ib);

		free(flow);
		return door_null((int)err);
	}
	flow->ibv.context = qp->context;
	flow->ibv.handle = ib_ucontext_new_handle(c->ucontext);
	context_get(c);
	return &flow->ibv;
}

int flow_destroy(struct ibv_flow *ibv)
{
	struct door_context *c = door_context(ibv->context);
	struct door_flow *flow = (struct door_flow *)ibv;
	int error = ib_destroy_flow(flow->ib);

	if (error)
		return door_errno(error);
	free(flow);
	context_put(c);
	return 0;
}
