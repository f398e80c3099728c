/* attr.c: the attributes and the doors' methods that all software adapters share.
 * In: queries    Out: attributes, from limits    Runs: any thread    Locks: none
 */
#include "driver/soft/soft.h"

int soft_query_device(struct ib_device *ib, struct ib_device_attr *attr)
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
				    IB_DEVICE_SEND_W_INV | IB_DEVICE_MEM_MGT_EXTENSIONS |
				    IB_DEVICE_XRC | IB_DEVICE_AUTO_PATH_MIG,
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
		.atomic_cap = IB_ATOMIC_HCA,
		/* the directory's table holds all memberships, in any groups */
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
	if (soft_dev(ib)->kind->carrier != NULL) {
		attr->device_cap_flags |= IB_DEVICE_MANAGED_FLOW_STEERING;
		attr->max_raw_ethy_qp = SOFT_MAX_QP;
	}
	return 0;
}

void soft_fill_uverbs(struct ib_uverbs_ops *ops)
{
	*ops = (struct ib_uverbs_ops){
		.post_send = soft_uverbs_post_send,
		.store = soft_uverbs_store,
		.check_send = soft_uverbs_check_send,
		.post_recv = soft_uverbs_post_recv,
		.post_srq_recv = soft_uverbs_post_srq_recv,
		.post_raw_send = soft_uverbs_post_raw_send,
		.check_raw_send = soft_uverbs_check_raw_send,
		.post_raw_recv = soft_uverbs_post_raw_recv,
		.post_wq_recv = soft_uverbs_post_wq_recv,
		.poll_cq = soft_uverbs_poll_cq,
		.poll_cq_ex = soft_uverbs_poll_cq_ex,
		.create_cq = soft_uverbs_create_cq,
		.ack_cq_events = soft_uverbs_ack_cq_events,
		.alloc_buffer = soft_uverbs_alloc_buffer,
		.free_buffer = soft_uverbs_free_buffer,
		.reg_user_mr = soft_uverbs_reg_user_mr,
		.reg_dmabuf_mr = soft_uverbs_reg_dmabuf_mr,
		.rereg_user_mr = soft_uverbs_rereg_user_mr,
		.alloc_null_mr = soft_uverbs_alloc_null_mr,
		.alloc_mw2 = soft_uverbs_alloc_mw2,
		.post_reg = soft_uverbs_post_reg,
		.advise_mr = soft_uverbs_advise_mr,
		.alloc_dm = soft_uverbs_alloc_dm,
		.free_dm = soft_uverbs_free_dm,
		.dm_file = soft_uverbs_dm_file,
		.map_dm = soft_uverbs_map_dm,
		.reg_dm_mr = soft_uverbs_reg_dm_mr,
		.copy_dm = soft_uverbs_copy_dm,
		.set_rate = soft_uverbs_set_rate,
		.attach_counter = soft_uverbs_attach_counter,
		.counted_ops = IBT_COUNT_KNOWN,
		.wait_fd = soft_uverbs_wait_fd,
		.sleep = &soft_sleep_ops,
	};
}
