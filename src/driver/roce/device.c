/* device.c: what the adapter is and can do; its entry into the stack.
 * In: queries    Out: attributes, from limits and the node's configuration    Runs: any thread
 * Locks: config_lock
 */
#include "driver/roce/roce.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct roce_device *roce_the_device;

static int device_query(struct ib_device *ib, struct ib_device_attr *attr)
{
	*attr = (struct ib_device_attr){
		.fw_ver = 1ull << 32,
		.sys_image_guid = ib->node_guid,
		.max_mr_size = 1ull << 47,
		.page_size_cap = 0xfffff000,
		.vendor_id =
			/* no OUI's owner; never 0 or a real vendor's, whom clients treat
			 * specially */
			0xa7b5,
		.vendor_part_id = 1,
		.hw_ver = 1,
		.max_qp = ROCE_MAX_QP,
		.max_qp_wr = IBT_MAX_WR,
		.device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD | IB_DEVICE_RC_RNR_NAK_GEN |
				    IB_DEVICE_SRQ_RESIZE | IB_DEVICE_N_NOTIFY_CQ |
				    IB_DEVICE_PORT_ACTIVE_EVENT | IB_DEVICE_SYS_IMAGE_GUID |
				    IB_DEVICE_MEM_WINDOW | IB_DEVICE_SEND_W_INV |
				    IB_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = IBT_MAX_SGE,
		.max_sge_rd = IBT_MAX_SGE,
		.max_cq = ROCE_MAX_CQ,
		.max_cqe = ROCE_MAX_CQE,
		.max_mr = ROCE_MAX_MR,
		.max_pd = ROCE_MAX_PD,
		.max_mw = ROCE_MAX_MR,
		.max_qp_rd_atom = IBT_MAX_RD_ATOMIC,
		.max_res_rd_atom = ROCE_MAX_QP * 16,
		.max_qp_init_rd_atom = IBT_MAX_RD_ATOMIC,
		.atomic_cap = IB_ATOMIC_GLOB,
		/* one board has them all, and which groups they are is nothing to it */
		.max_mcast_grp = NODE_MEMBERS,
		.max_mcast_qp_attach = NODE_MEMBERS,
		.max_total_mcast_qp_attach = NODE_MEMBERS,
		.max_ah = ROCE_MAX_AH,
		.max_fmr = ROCE_MAX_MR,
		.max_map_per_fmr = ROCE_MAX_FMR_MAPS,
		.max_srq = ROCE_MAX_SRQ,
		.max_srq_wr = ROCE_MAX_SRQ_WR,
		.max_srq_sge = IBT_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
	};
	return 0;
}

static enum ib_mtu device_mtu(u32 bytes)
{
	enum ib_mtu mtu = IB_MTU_256;

	while (mtu < IB_MTU_4096 && (u32)ib_mtu_enum_to_int(mtu + 1) <= bytes)
		mtu++;
	return mtu;
}

static int device_query_port(struct ib_device *ib, u8 port, struct ib_port_attr *attr)
{
	struct roce_device *dev = roce_dev(ib);

	lock_acquire(&dev->config_lock);
	*attr = (struct ib_port_attr){
		.state = dev->config.port_up ? IB_PORT_ACTIVE : IB_PORT_DOWN,
		.max_mtu = IB_MTU_4096,
		.active_mtu = device_mtu(dev->config.mtu),
		.gid_tbl_len = NODE_GIDS,
		.port_cap_flags = IB_PORT_CM_SUP | IB_PORT_IP_BASED_GIDS,
		.max_msg_sz = IBT_MAX_MESSAGE,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = IB_WIDTH_4X,
		.active_speed = 32,
		.phys_state = dev->config.port_up ? 5 : 3,
		.link_layer = IB_LINK_LAYER_ETHERNET,
	};
	lock_release(&dev->config_lock);
	return 0;
}

static int device_query_gid(struct ib_device *ib, u8 port, int index, union ib_gid *gid)
{
	return index < 0 ? -EINVAL : roce_gid(roce_dev(ib), (u32)index, gid->raw);
}

static int device_query_pkey(struct ib_device *ib, u8 port, u16 index, u16 *pkey)
{
	if (index != 0)
		return -EINVAL;
	*pkey = 0xffff;
	return 0;
}

static int device_query_gid_entry(struct ib_device *ib, u32 port, u32 index,
				  struct ibv_gid_entry *out)
{
	struct roce_device *dev = roce_dev(ib);
	static const u8 empty[16];
	int err = index >= NODE_GIDS ? -EINVAL : 0;

	if (err != 0)
		return err;
	lock_acquire(&dev->config_lock);
	if (memcmp(dev->config.gids[index].gid, empty, 16) == 0) {
		err = -ENODATA;
	} else {
		memset(out, 0, sizeof(*out));
		memcpy(out->gid.raw, dev->config.gids[index].gid, 16);
		out->gid_index = index;
		out->port_num = port;
		out->gid_type = IBV_GID_TYPE_ROCE_V2;
		out->ndev_ifindex = dev->config.gids[index].ifindex;
	}
	lock_release(&dev->config_lock);
	return err;
}

static int device_get_info(struct ib_device *ib, struct ib_uverbs_info *out)
{
	struct roce_device *dev = roce_dev(ib);
	const struct node_config *c = &dev->config;

	memset(out, 0, sizeof(*out));
	lock_acquire(&dev->config_lock);
	snprintf(out->name, sizeof(out->name), "%s", c->device);
	snprintf(out->dev_name, sizeof(out->dev_name), "%s", c->dev_path);
	snprintf(out->sysfs, sizeof(out->sysfs), "%s", c->sysfs);
	if (snprintf(out->dev_path, sizeof(out->dev_path), "%s/class/infiniband_verbs/%s", c->sysfs,
		     c->dev_path) >= (int)sizeof(out->dev_path))
		log_warn("roce", "the path %s is too long", c->sysfs);
	if (snprintf(out->ibdev_path, sizeof(out->ibdev_path), "%s/class/infiniband/%s", c->sysfs,
		     c->device) >= (int)sizeof(out->ibdev_path))
		log_warn("roce", "the path %s is too long", c->sysfs);
	out->node_guid = htobe64(c->node_guid);
	lock_release(&dev->config_lock);
	out->abi_version = 1;
	return 0;
}

static const struct ib_uverbs_ops device_uverbs = {
	.post_send = roce_uverbs_post_send,
	.check_send = roce_uverbs_check_send,
	.post_recv = roce_uverbs_post_recv,
	.post_srq_recv = roce_uverbs_post_srq_recv,
	.poll_cq = roce_uverbs_poll_cq,
	.create_cq = roce_uverbs_create_cq,
	.ack_cq_events = roce_uverbs_ack_cq_events,
	.reg_user_mr = roce_uverbs_reg_user_mr,
	.wait_fd = progress_wait_fd,
	.get_info = device_get_info,
	.query_gid_entry = device_query_gid_entry,
};

void roce_fill_device(struct roce_device *dev) NO_THREAD_SAFETY /* not registered yet */
{
	struct ib_device *ib = &dev->ib;

	snprintf(ib->name, sizeof(ib->name), "%s", dev->config.device);
	ib->num_comp_vectors = (int)vector_count();
	ib->node_type = RDMA_NODE_IB_CA;
	ib->phys_port_cnt = 1;
	ib->node_guid = htobe64(dev->config.node_guid);
	snprintf(ib->node_desc, sizeof(ib->node_desc), "anyverbs software RoCE adapter");
	ib->query_device = device_query;
	ib->query_port = device_query_port;
	ib->query_gid = device_query_gid;
	ib->query_pkey = device_query_pkey;
	roce_fill_pd(ib);
	roce_fill_mr(ib);
	roce_fill_cq(ib);
	roce_fill_qp(ib);
	roce_fill_srq(ib);
	roce_fill_ah(ib);
	roce_fill_mcast(ib);
	ib->uverbs = &device_uverbs;
}

/* On the first wish for devices in a process, and again in a forked child. */
static int device_probe(void)
{
	struct roce_device *dev = roce_the_device;
	int err;

	if (dev == NULL) {
		dev = aligned_alloc(CACHE_LINE, sizeof(*dev));
		if (dev == NULL)
			return -ENOMEM;
		memset(dev, 0, sizeof(*dev));
		list_init(&dev->qps);
		list_init(&dev->cqs);
		list_init(&dev->srqs);
	}
	err = roce_attach(dev);
	if (err != 0) {
		if (roce_the_device == NULL)
			free(dev);
		return err;
	}
	if (roce_the_device == NULL)
		pthread_atfork(NULL, NULL, roce_drop_in_child);
	roce_the_device = dev;
	roce_fill_device(dev);
	return ib_register_device(&dev->ib);
}

static struct ib_driver device_driver = { .name = "roce", .probe = device_probe };

__attribute__((constructor)) static void device_add(void)
{
	ib_driver_add(&device_driver);
}
