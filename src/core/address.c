/* address.c: address handles, and the way back to a datagram's sender.
 * In: consumers, any context    Out: the driver's AH methods    Runs: the caller
 * Locks: cache_lock by way of cache.c
 */
#include <arpa/inet.h>
#include <rdma/ib_cache.h>
#include <string.h>

#include "core/core_priv.h"

struct ib_ah *ib_create_ah(struct ib_pd *pd, struct ib_ah_attr *attr)
{
	struct ib_ah *ah;

	if (!use_get(&pd->usecnt))
		return ERR_PTR(-EINVAL);
	ah = DRIVER_CALL(pd->device->create_ah(pd, attr));
	if (IS_ERR(ah)) {
		use_put(&pd->usecnt);
		return ah;
	}
	ah->device = pd->device;
	ah->pd = pd;
	return ah;
}

int ib_modify_ah(struct ib_ah *ah, struct ib_ah_attr *attr)
{
	if (!ah->device->modify_ah)
		return -ENOSYS;
	return DRIVER_CALL(ah->device->modify_ah(ah, attr));
}

int ib_query_ah(struct ib_ah *ah, struct ib_ah_attr *attr)
{
	if (!ah->device->query_ah)
		return -ENOSYS;
	return DRIVER_CALL(ah->device->query_ah(ah, attr));
}

int ib_destroy_ah(struct ib_ah *ah)
{
	struct ib_pd *pd = ah->pd;
	int err = DRIVER_CALL(ah->device->destroy_ah(ah));

	if (!err)
		use_put(&pd->usecnt);
	return err;
}

/* The part of an IPv4 header that a RoCEv2 adapter leaves in the last 20 of the 40 bytes. */
struct ipv4_header {
	u8 version_length;
	u8 tos;
	u8 middle[6];
	u8 ttl;
	u8 protocol;
	u8 checksum[2];
	u8 source[4];
	u8 destination[4];
} OWNED_BY(the caller);

static const struct ipv4_header *reverse_grh_as_ipv4(const struct ib_grh *grh)
{
	const struct ipv4_header *ip = (const void *)((const u8 *)grh + sizeof(*grh) - sizeof(*ip));
	u32 version = ntohl(grh->version_tclass_flow) >> 28;

	return version != 6 && ip->version_length == 0x45 ? ip : NULL;
}

static void gid_from_ipv4(union ib_gid *gid, const u8 address[4])
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, address, 4);
}

/* Splits the received header into the route back and the GID that the datagram was sent to. */
static void reverse_reverse(const struct ib_grh *grh, struct ib_global_route *route,
			  union ib_gid *own)
{
	const struct ipv4_header *ip = reverse_grh_as_ipv4(grh);
	u32 word = ntohl(grh->version_tclass_flow);

	if (ip) {
		gid_from_ipv4(&route->dgid, ip->source);
		gid_from_ipv4(own, ip->destination);
		route->traffic_class = ip->tos;
		route->flow_label = 0;
	} else {
		route->dgid = grh->sgid;
		*own = grh->dgid;
		route->traffic_class = (u8)(word >> 20);
		route->flow_label = word & 0xfffff;
	}
	route->hop_limit = 0xff; /* what is left of the sender's says nothing about the way back */
}

int ib_init_ah_from_wc(struct ib_device *device, u8 port_num, struct ib_wc *wc, struct ib_grh *grh,
		       struct ib_ah_attr *attr)
{
	struct ib_ah_attr way = { .dlid = wc->slid,
				  .sl = wc->sl,
				  .src_path_bits = wc->dlid_path_bits,
				  .port_num = port_num };
	union ib_gid own;

	if (wc->wc_flags & IB_WC_GRH) {
		u8 port;
		u16 index;

		reverse_reverse(grh, &way.grh, &own);
		int err = ib_find_cached_gid(device, &own, &port, &index);

		if (err)
			return err;
		way.ah_flags = IB_AH_GRH;
		way.grh.sgid_index = (u8)index;
	}
	*attr = way;
	return 0;
}

struct ib_ah *ib_create_ah_from_wc(struct ib_pd *pd, struct ib_wc *wc, struct ib_grh *grh,
				   u8 port_num)
{
	struct ib_ah_attr attr;
	int err = ib_init_ah_from_wc(pd->device, port_num, wc, grh, &attr);

	return err ? ERR_PTR(err) : ib_create_ah(pd, &attr);
}
