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

static int adapter_device_query(struct ib_device *ib, struct ib_device_attr *attr)
{
	int err = soft_check(ib);

	if (err != 0)
		return err;
	*attr = (struct ib_device_attr){
		.fw_ver = 1ull << 32,
		.sys_image_guid = ib->node_guid,
		.max_mr_size = 1ull << 47,
		.page_size_cap = 0xfffff000,
		.vendor_id =
			/* nobody's OUI; 0 or a real vendor's would select a vendor's quirks in
			 * clients */
			0xa7b5,
		.vendor_part_id = 1,
		.hw_ver = 1,
		.max_qp = SOFT_MAX_QP,
		.max_qp_wr = IBT_MAX_WR,
		.device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD | IB_DEVICE_RC_RNR_NAK_GEN |
				    IB_DEVICE_SRQ_RESIZE | IB_DEVICE_N_NOTIFY_CQ |
				    IB_DEVICE_PORT_ACTIVE_EVENT | IB_DEVICE_SYS_IMAGE_GUID |
				    IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B |
				    IB_DEVICE_SEND_W_INV |
				    IB_DEVICE_MEM_MGT_EXTENSIONS | IB_DEVICE_XRC,
		.max_sge = IBT_MAX_SGE,
		.max_sge_rd = IBT_MAX_SGE,
		.max_cq = SOFT_MAX_CQ,
		.max_cqe = SOFT_MAX_CQE,
		.max_mr = SOFT_MAX_MR,
		.max_pd = SOFT_MAX_PD,
		.max_mw = SOFT_MAX_MR,
		.max_qp_rd_atom = IBT_MAX_RD_ATOMIC,
		.max_res_rd_atom = SOFT_MAX_QP * 16,
		.max_qp_init_rd_atom = IBT_MAX_RD_ATOMIC,
		.atomic_cap = IB_ATOMIC_GLOB,
		/* the board's table holds all memberships, in any groups */
		.max_mcast_grp = NODE_MEMBERS,
		.max_mcast_qp_attach = NODE_MEMBERS,
		.max_total_mcast_qp_attach = NODE_MEMBERS,
		.max_ah = SOFT_MAX_AH,
		.max_fmr = SOFT_MAX_MR,
		.max_map_per_fmr = SOFT_MAX_FMR_MAPS,
		.max_srq = SOFT_MAX_SRQ,
		.max_srq_wr = SOFT_MAX_SRQ_WR,
		.max_srq_sge = IBT_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.timestamp_mask = (1ull << 63) - 1, /* struct cqe has one bit less than a word */
		.hca_core_clock = 1000000,	    /* a clock of nanoseconds */
	};
	return 0;
}

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

static const struct ib_uverbs_ops device_uverbs = {
	.post_send = soft_uverbs_post_send,
	.check_send = soft_uverbs_check_send,
	.post_recv = soft_uverbs_post_recv,
	.post_srq_recv = soft_uverbs_post_srq_recv,
	.poll_cq = soft_uverbs_poll_cq,
	.poll_cq_ex = soft_uverbs_poll_cq_ex,
	.create_cq = soft_uverbs_create_cq,
	.ack_cq_events = soft_uverbs_ack_cq_events,
	.reg_user_mr = soft_uverbs_reg_user_mr,
	.rereg_user_mr = soft_uverbs_rereg_user_mr,
	.alloc_null_mr = soft_uverbs_alloc_null_mr,
	.alloc_mw2 = soft_uverbs_alloc_mw2,
	.post_reg = soft_uverbs_post_reg,
	.advise_mr = soft_uverbs_advise_mr,
	.alloc_dm = soft_uverbs_alloc_dm,
	.free_dm = soft_uverbs_free_dm,
	.reg_dm_mr = soft_uverbs_reg_dm_mr,
	.copy_dm = soft_uverbs_copy_dm,
	.wait_fd = soft_uverbs_wait_fd,
	.get_info = adapter_get_info,
	.query_gid_entry = adapter_device_query_gid_entry,
};

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
	.route = adapter_route,
	.general = adapter_general_receive,
	.begin = adapter_config_begin,
	.taken = adapter_config_taken,
	.config = adapter_config_changed,
	.drop_in_child = adapter_config_drop_in_child,
};

static const struct soft_kind device_kind = {
	.seat = &device_seat_ops,
	.resolve_av = adapter_resolve_av,
	.connect = adapter_connect,
	.find_gid = adapter_find_gid,
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
	int err = seat_attach(&the_seat, &device_seat_ops);

	return err != 0 ? err : adapter_plug_register();
}

static struct ib_driver device_driver = { .name = "roce",
					   .probe = adapter_device_probe,
					   .settle = adapter_plug_settle };

__attribute__((constructor)) static void adapter_device_add(void)
{
	ib_driver_add(&device_driver);
}
