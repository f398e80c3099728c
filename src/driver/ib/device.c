/* device.c: the adapter's attributes and its registration.
 * In:    queries    Out: attributes, from limits and the fabric's map
 * Runs:  any thread    Locks: none
 */
#include "driver/ib/ib.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A forked child has no map of the fabric before it has entered its host anew. */
static int hca_device_check(struct ib_device *ib)
{
	return hca_fabric() != NULL ? soft_check(ib) : soft_attach(soft_dev(ib));
}

static int hca_device_query(struct ib_device *ib, struct ib_device_attr *attr)
{
	struct hca_device *dev = hca_dev(ib);
	struct fabric_node_attr node;
	struct ib_device_attr shared;
	int err = hca_device_check(ib);

	if (err == 0)
		err = soft_query_device(ib, &shared);
	if (err == 0)
		err = fabric_node_read(hca_view(), dev->node, &node);
	if (err != 0)
		return err;
	*attr = shared;
	attr->sys_image_guid = htobe64(node.sys_guid);
	attr->max_pkeys = FABRIC_PKEYS;
	return 0;
}

static int hca_device_query_port(struct ib_device *ib, u8 port, struct ib_port_attr *attr)
{
	struct fabric_port_attr p;
	int err = hca_device_check(ib);

	if (err == 0)
		err = hca_port_read(hca_dev(ib), port, &p);
	if (err != 0)
		return err;
	*attr = (struct ib_port_attr){
		.state = (enum ib_port_state)p.state,
		.max_mtu = (enum ib_mtu)p.mtu_cap,
		.active_mtu = (enum ib_mtu)p.mtu,
		.gid_tbl_len = (int)p.guid_count,
		.port_cap_flags = p.cap_mask,
		.max_msg_sz = IBT_MAX_MESSAGE,
		.bad_pkey_cntr = p.pkey_violations,
		.qkey_viol_cntr = p.qkey_violations,
		.pkey_tbl_len = (u16)p.pkey_count,
		.lid = p.lid,
		.sm_lid = p.sm_lid,
		.lmc = p.lmc,
		.max_vl_num = p.vl_cap,
		.sm_sl = p.sm_sl,
		.subnet_timeout = p.subnet_timeout,
		.init_type_reply = p.init_type_reply,
		.active_width = p.width,
		.active_speed = p.speed,
		.phys_state = p.phys,
		.link_layer = IB_LINK_LAYER_INFINIBAND,
	};
	return 0;
}

static u64 hca_device_guid(const struct fabric_port_attr *p, u32 index)
{
	return index == 0 ? p->guid : p->guids[index];
}

static void hca_device_fill_gid(const struct fabric_port_attr *p, u32 index, u8 gid[16])
{
	__be64 prefix = htobe64(p->gid_prefix), guid = htobe64(hca_device_guid(p, index));

	memcpy(gid, &prefix, 8);
	memcpy(gid + 8, &guid, 8);
}

static int hca_device_query_gid(struct ib_device *ib, u8 port, int index, union ib_gid *gid)
{
	struct fabric_port_attr p;
	int err = hca_device_check(ib);

	if (err == 0)
		err = hca_port_read(hca_dev(ib), port, &p);
	if (err == 0 && (index < 0 || (u32)index >= p.guid_count))
		err = -EINVAL;
	if (err == 0)
		hca_device_fill_gid(&p, (u32)index, gid->raw);
	return err;
}

static int hca_device_query_pkey(struct ib_device *ib, u8 port, u16 index, u16 *pkey)
{
	struct fabric_port_attr p;
	int err = hca_device_check(ib);

	if (err == 0)
		err = hca_port_read(hca_dev(ib), port, &p);
	if (err == 0 && index >= p.pkey_count)
		err = -EINVAL;
	if (err == 0)
		*pkey = p.pkeys[index];
	return err;
}

static int hca_device_query_gid_entry(struct ib_device *ib, u32 port, u32 index,
				      struct ibv_gid_entry *out)
{
	struct fabric_port_attr p;
	int err = hca_device_check(ib);

	if (err == 0)
		err = hca_port_read(hca_dev(ib), port, &p);
	if (err == 0 && index >= p.guid_count)
		err = -EINVAL;
	if (err == 0 && hca_device_guid(&p, index) == 0)
		err = -ENODATA;
	if (err != 0)
		return err;
	memset(out, 0, sizeof(*out));
	hca_device_fill_gid(&p, index, out->gid.raw);
	out->gid_index = index;
	out->port_num = port;
	out->gid_type = IBV_GID_TYPE_IB;
	return 0;
}

static struct ib_uverbs_ops hca_device_uverbs FIXED; /* filled by the constructor */

static void hca_device_fill(struct hca_device *dev, const struct fabric_node_attr *node)
{
	struct ib_device *ib = &dev->soft.ib;

	snprintf(ib->name, sizeof(ib->name), "ib%u", dev->index);
	ib->node_type = RDMA_NODE_IB_CA;
	ib->phys_port_cnt = (u8)MIN(node->ports, (u16)HCA_PORTS);
	ib->node_guid = htobe64(node->guid);
	snprintf(ib->node_desc, sizeof(ib->node_desc), "%.63s", node->desc);
	ib->query_device = hca_device_query;
	ib->query_port = hca_device_query_port;
	ib->query_gid = hca_device_query_gid;
	ib->query_pkey = hca_device_query_pkey;
	hca_fill_mcast(ib);
	ib->uverbs = &hca_device_uverbs;
}

static const struct seat_ops hca_device_seat_ops = {
	.publish = soft_publish,
	.async = soft_async,
	.multicast = hca_multicast,
	.route = hca_route,
	.general = hca_mads_receive,
	.bad_key = hca_bad_key,
	.begin = hca_host_begin,
	.taken = hca_host_taken,
	.config = hca_host_changed,
	.fabric = hca_host_fabric,
};

static const struct soft_kind hca_device_kind = {
	.seat = &hca_device_seat_ops,
	.resolve_av = hca_resolve_av,
	.connect = hca_connect,
	.lid_mask = hca_lid_mask,
	.reaches = hca_reaches,
	.charge = hca_charge,
	.leave = hca_gone_leave,
};

struct hca_device *hca_device_new(u32 index, const struct fabric_node_attr *node)
{
	size_t bytes = (sizeof(struct hca_device) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	struct hca_device *dev = aligned_alloc(CACHE_LINE, bytes);

	if (dev == NULL)
		return NULL;
	memset(dev, 0, bytes);
	dev->index = index;
	soft_init_device(&dev->soft, &hca_device_kind);
	hca_device_fill(dev, node);
	if (ib_set_device_ops(&dev->soft.ib, &soft_device_ops) != 0) {
		free(dev);
		return NULL;
	}
	return dev;
}

/* At the first query for devices in a process, and again in a forked child. A process that is of no
 * host has no such device. */
static int hca_device_probe(void)
{
	int err;

	if (hca_host() == NULL)
		return 0;
	err = seat_attach(&the_seat, &hca_device_seat_ops);
	return err != 0 ? err : hca_host_register();
}

static struct ib_driver hca_device_driver = { .name = "ib", .probe = hca_device_probe };

__attribute__((constructor)) static void hca_device_add(void)
{
	soft_fill_uverbs(&hca_device_uverbs);
	hca_device_uverbs.get_info = hca_get_info;
	hca_device_uverbs.open_sm = hca_open_sm;
	hca_device_uverbs.query_gid_entry = hca_device_query_gid_entry;
	ib_driver_add(&hca_device_driver);
}
