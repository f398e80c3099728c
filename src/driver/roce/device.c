/* device.c: the adapter's attributes and its registration.
 * In: queries    Out: attributes, from limits and the node's configuration    Runs: any thread
 * Locks: config_lock, by way of config.c
 */
#include "driver/roce/roce.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ib_mtu adapter_device_mtu(u32 bytes)
{
	enum ib_mtu mtu = IB_MTU_256;

	while (mtu < IB_MTU_4096 && (u32)ib_mtu_enum_to_int(mtu + 1) <= bytes)
		mtu++;
	return mtu;
}

static int adapter_device_query_port(struct ib_device *ib, u8 port, struct ib_port_attr *attr)
{
	struct node_config config;
	int err = soft_check(ib);

	if (err != 0)
		return err;
	adapter_config_of(adapter_dev(ib), &config);
	*attr = (struct ib_port_attr){
		.state = config.port_up ? IB_PORT_ACTIVE : IB_PORT_DOWN,
		.max_mtu = IB_MTU_4096,
		.active_mtu = adapter_device_mtu(config.mtu),
		.gid_tbl_len = NODE_GIDS,
		.port_cap_flags = IB_PORT_CM_SUP | IB_PORT_IP_BASED_GIDS,
		.max_msg_sz = IBT_MAX_MESSAGE,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = IB_WIDTH_4X,
		.active_speed = 32,
		.phys_state = config.port_up ? 5 : 3,
		.link_layer = IB_LINK_LAYER_ETHERNET,
	};
	return 0;
}

static int adapter_device_query_gid(struct ib_device *ib, u8 port, int index, union ib_gid *gid)
{
	int err = soft_check(ib);

	if (err != 0)
		return err;
	return index < 0 ? -EINVAL : adapter_gid(adapter_dev(ib), (u32)index, gid->raw);
}

static int adapter_device_query_pkey(struct ib_device *ib, u8 port, u16 index, u16 *pkey)
{
	int err = soft_check(ib);

	if (err == 0 && index != 0)
		err = -EINVAL;
	if (err == 0)
		*pkey = 0xffff;
	return err;
}

static int adapter_device_query_gid_entry(struct ib_device *ib, u32 port, u32 index,
				  struct ibv_gid_entry *out)
{
	struct node_config config;
	static const u8 empty[16];
	int err = soft_check(ib);

	if (err != 0)
		return err;
	if (index >= NODE_GIDS)
		return -EINVAL;
	adapter_config_of(adapter_dev(ib), &config);
	if (memcmp(config.gids[index].gid, empty, 16) == 0)
		return -ENODATA;
	memset(out, 0, sizeof(*out));
	memcpy(out->gid.raw, config.gids[index].gid, 16);
	out->gid_index = index;
	out->port_num = port;
	out->gid_type = IBV_GID_TYPE_ROCE_V2;
	out->ndev_ifindex = config.gids[index].ifindex;
	return 0;
}

static int adapter_device_query(struct ib_device *ib, struct ib_device_attr *attr)
{
	int err = soft_query_device(ib, attr);

	if (err == 0 && seat_is_attached(&the_seat) && the_seat.a.udp != NULL)
		attr->max_mcast_grp =
			(int)MIN((u32)attr->max_mcast_grp, udp_groups_most(the_seat.a.udp));
	return err;
}

static struct ib_uverbs_ops device_uverbs FIXED; /* filled by the constructor */

static void adapter_device_fill(struct roce_device *dev, const struct node_config *config)
{
	struct ib_device *ib = &dev->soft.ib;

	snprintf(ib->name, sizeof(ib->name), "%s", config->device);
	ib->node_type = RDMA_NODE_IB_CA;
	ib->phys_port_cnt = 1;
	ib->node_guid = htobe64(config->node_guid);
	snprintf(ib->node_desc, sizeof(ib->node_desc), "anyverbs software RoCE adapter");
	ib->query_device = adapter_device_query;
	ib->query_port = adapter_device_query_port;
	ib->query_gid = adapter_device_query_gid;
	ib->query_pkey = adapter_device_query_pkey;
	adapter_fill_mcast(ib);
	ib->uverbs = &device_uverbs;
}

static const struct seat_ops device_seat_ops = {
	.publish = soft_publish,
	.async = soft_async,
	.multicast = adapter_multicast,
	.route = adapter_route_datagram,
	.general = adapter_general_receive,
	.died = adapter_general_died,
	.returned = adapter_general_returned,
	.begin = adapter_config_begin,
	.taken = adapter_config_taken,
	.config = adapter_config_changed,
	.quiesce = soft_steer_quiesce,
};

static const struct soft_kind device_kind = {
	.seat = &device_seat_ops,
	.resolve_av = adapter_resolve_av,
	.connect = adapter_connect,
	.find_gid = adapter_find_gid,
	.carrier = adapter_carrier,
	.leave = adapter_general_leave,
	.closed = adapter_config_closed,
};

struct roce_device *adapter_device_new(const struct node_config *config)
{
	size_t bytes = (sizeof(struct roce_device) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
	struct roce_device *dev = aligned_alloc(CACHE_LINE, bytes);

	if (dev == NULL)
		return NULL;
	memset(dev, 0, bytes);
	soft_init_device(&dev->soft, &device_kind);
	adapter_device_fill(dev, config);
	if (ib_set_device_ops(&dev->soft.ib, &soft_device_ops) != 0) {
		free(dev);
		return NULL;
	}
	return dev;
}

/* At the first query for devices in a process, and again in a forked child. */
static int adapter_device_probe(void)
{
	int err;

	if (node_fabric_host() != NULL) /* its devices are those of the fabric */
		return 0;
	err = seat_attach(&the_seat, &device_seat_ops);
	return err != 0 ? err : adapter_plug_register();
}

static struct ib_driver device_driver = { .name = "roce",
					   .probe = adapter_device_probe,
					   .settle = adapter_plug_settle };

__attribute__((constructor)) static void adapter_device_add(void)
{
	soft_fill_uverbs(&device_uverbs);
	device_uverbs.get_info = adapter_get_info;
	device_uverbs.find_neighbour = adapter_find_neighbour;
	device_uverbs.query_gid_entry = adapter_device_query_gid_entry;
	ib_driver_add(&device_driver);
}
