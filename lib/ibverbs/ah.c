/* ah.c: address handles, and the route back to the sender of a datagram.
 * In: address vectors, or a completion with the 40 bytes in front of its datagram      Out: handles
 * Runs: any thread; making a handle waits up to a second for an unknown neighbour      Locks: none
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "core/convert_attr.h"
#include "door.h"

static struct ib_ah *ah_create(struct ib_pd *pd, struct ib_ah_attr *attr)
{
	int error = ib_uverbs_find_neighbour(pd->device, attr);

	return error ? ERR_PTR(error) : ib_create_ah(pd, attr);
}

AV_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct door_context *c = door_context(pd->context);
	struct ib_uverbs_ah *ah = calloc(1, sizeof(*ah));
	struct ib_ah_attr ib;

	if (!ah)
		return door_null(-ENOMEM);
	ib_convert_ibv_ah_attr(attr, &ib);
	ah->ah = pd_is_gone(pd) ? ERR_PTR(-EINVAL) : ah_create(door_pd(pd)->ib, &ib);
	if (IS_ERR(ah->ah)) {
		long error = PTR_ERR(ah->ah);

		free(ah);
		return door_null((int)error);
	}
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	ah->ibv.handle = ib_ucontext_new_handle(c->ucontext);
	pd_hold(pd);
	context_get(c);
	return &ah->ibv;
}
DOOR_DEFAULT(ibv_create_ah);

AV_EXPORT int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct ib_uverbs_ah *ah = container_of(ibv, struct ib_uverbs_ah, ibv);
	struct door_context *c = door_context(ibv->context);
	int error = ib_destroy_ah(ah->ah);

	if (error)
		return door_errno(error);
	pd_release(ibv->pd);
	free(ah);
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_destroy_ah);

/* The route in the header of a datagram, of either kind. */
struct ah_route {
	union ibv_gid sender, receiver;
	uint8_t traffic_class;
	uint32_t flow_label;
} OWNED_BY(the caller);

static void ah_map_ipv4(union ibv_gid *gid, const uint8_t *address)
{
	memset(gid->raw, 0, 10);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(&gid->raw[12], address, 4);
}

/* A RoCE v2 datagram over IPv4 has its IP header in the last 20 of the 40 bytes; every other has a
 * GRH in all of them, which begins with version 6. False: neither. */
static bool ah_read_route(const struct ibv_grh *grh, struct ah_route *out)
{
	const uint8_t *bytes = (const uint8_t *)grh;
	uint32_t first = ntohl(grh->version_tclass_flow);

	if (first >> 28 == 6) {
		out->sender = grh->sgid;
		out->receiver = grh->dgid;
		out->traffic_class = (uint8_t)(first >> 20);
		out->flow_label = first & 0xfffff;
		return true;
	}
	if (bytes[20] != 0x45)
		return false;
	ah_map_ipv4(&out->sender, bytes + 20 + 12);
	ah_map_ipv4(&out->receiver, bytes + 20 + 16);
	out->traffic_class = bytes[20 + 1];
	out->flow_label = 0;
	return true;
}

/* Index of one of the port's GIDs in the table; -1: none. Prefers RoCE v2 where both versions have
 * it. */
static int ah_find_gid(struct ibv_context *context, uint8_t port, const union ibv_gid *gid)
{
	struct door_context *c = door_context(context);
	struct ibv_gid_entry entry;
	int found = -1, error;

	for (u32 i = 0; i <= UINT8_MAX; i++) {
		error = ib_uverbs_query_gid_entry(c->ib, port, i, &entry);
		if (error && error != -ENODATA)
			break;
		if (error || memcmp(entry.gid.raw, gid->raw, sizeof(gid->raw)))
			continue;
		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			return (int)i;
		if (found < 0)
			found = (int)i;
	}
	return found;
}

AV_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
				  struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct ah_route route;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	if (!ah_read_route(grh, &route))
		return door_minus_one(-EINVAL);
	/* A datagram to a group names no GID of the port: respond from the first. */
	index = route.receiver.raw[0] == 0xff ? 0 : ah_find_gid(context, port_num, &route.receiver);
	if (index < 0)
		return door_minus_one(-EINVAL);
	attr->is_global = 1;
	attr->grh.dgid = route.sender;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.flow_label = route.flow_label;
	attr->grh.traffic_class = route.traffic_class;
	attr->grh.hop_limit = 0xff;
	return 0;
}

AV_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					       struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
