/* ib_device_attrs.h: what a device can do, in the words of Linux 6.1: ib_device.attrs. Reached
 * through ib_verbs.h. What the midlayer has no word for is 0. */
#ifndef IB_DEVICE_ATTRS_H
#define IB_DEVICE_ATTRS_H

#include <rdma/ib_types.h>

enum ib_kernel_cap_flags {
	IBK_LOCAL_DMA_LKEY = 1 << 0,
	IBK_INTEGRITY_HANDOVER = 1 << 1,
	IBK_ON_DEMAND_PAGING = 1 << 2,
	IBK_SG_GAPS_REG = 1 << 3,
	IBK_ALLOW_USER_UNREG = 1 << 4,
	IBK_BLOCK_MULTICAST_LOOPBACK = 1 << 5,
	IBK_UD_TSO = 1 << 6,
	IBK_VIRTUAL_FUNCTION = 1 << 7,
	IBK_RDMA_NETDEV_OPA = 1 << 8,
};

struct ib_device_attrs {
	u64 fw_ver;
	__be64 sys_image_guid;
	u64 max_mr_size;
	u64 page_size_cap;
	u32 vendor_id;
	u32 vendor_part_id;
	u32 hw_ver;
	int max_qp;
	int max_qp_wr;
	u64 device_cap_flags; /* enum ib_device_cap_flags, and the 64-bit ones of ib_extended.h */
	u64 kernel_cap_flags; /* enum ib_kernel_cap_flags */
	int max_send_sge;
	int max_recv_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	enum ib_atomic_cap atomic_cap;
	enum ib_atomic_cap masked_atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	unsigned int max_fast_reg_page_list_len;
	unsigned int max_pi_fast_reg_page_list_len; /* 0: no signatures */
	u16 max_pkeys;
	u8 local_ca_ack_delay;
	int sig_prot_cap;
	int sig_guard_cap;
	struct {
		u64 general_caps;
		struct {
			u32 rc_odp_caps;
			u32 uc_odp_caps;
			u32 ud_odp_caps;
			u32 xrc_odp_caps;
		} per_transport_caps;
	} odp_caps;
	u64 timestamp_mask;
	u64 hca_core_clock; /* kHz */
	u32 max_wq_type_rq;
	u32 raw_packet_caps;
	u64 max_dm_size;
	u32 max_sgl_rd; /* SGEs of a READ beyond which a registration is better; 0: none */
	u32 reserved[15];
};

#endif
