/* query.c: attributes of the device and of its ports.
 * In: the midlayer's attributes
 * Out: libibverbs' structures, cut to the size that the caller was built with
 * Runs: the application's threads
 * Locks: none
 */
#include <stdio.h>
#include <string.h>

#include "door.h"

/* Copies as much as fits into a caller's structure of another release, and zeroes the rest of
 * that. */
static void query_copy_out(void *to, size_t to_size, const void *from, size_t from_size)
{
	size_t common = MIN(to_size, from_size);

	memcpy(to, from, common);
	memset((char *)to + common, 0, to_size - common);
}

/* One line per field that bears the same name on both sides. */
/* clang-format off */
#define DEVICE_FIELDS(X)                                                                           \
	X(sys_image_guid) X(max_mr_size) X(page_size_cap) X(vendor_id) X(vendor_part_id) X(hw_ver) \
	X(max_qp) X(max_qp_wr) X(max_sge) X(max_sge_rd) X(max_cq) X(max_cqe) X(max_mr) X(max_pd)   \
	X(max_qp_rd_atom) X(max_ee_rd_atom) X(max_res_rd_atom) X(max_qp_init_rd_atom)              \
	X(max_ee_init_rd_atom) X(max_ee) X(max_rdd) X(max_mw) X(max_raw_ipv6_qp)                   \
	X(max_raw_ethy_qp) X(max_mcast_grp) X(max_mcast_qp_attach) X(max_total_mcast_qp_attach)    \
	X(max_ah) X(max_fmr) X(max_map_per_fmr) X(max_srq) X(max_srq_wr) X(max_srq_sge)            \
	X(max_pkeys) X(local_ca_ack_delay)
#define PORT_FIELDS(X)                                                                             \
	X(gid_tbl_len) X(port_cap_flags) X(max_msg_sz) X(bad_pkey_cntr) X(qkey_viol_cntr)          \
	X(pkey_tbl_len) X(lid) X(sm_lid) X(lmc) X(max_vl_num) X(sm_sl) X(subnet_timeout)           \
	X(init_type_reply) X(active_width) X(active_speed) X(phys_state) X(link_layer)
/* clang-format on */
#define COPY_FIELD(field) to->field = from->field;

static void query_convert_device(struct ib_device *dev, const struct ib_device_attr *from,
				 struct ibv_device_attr *to)
{
	memset(to, 0, sizeof(*to));
	DEVICE_FIELDS(COPY_FIELD)
	snprintf(to->fw_ver, sizeof(to->fw_ver), "%u.%u.%u", (u32)(from->fw_ver >> 32),
		 (u32)(from->fw_ver >> 16) & 0xffff, (u32)from->fw_ver & 0xffff);
	to->node_guid = dev->node_guid;
	to->device_cap_flags = (unsigned int)from->device_cap_flags;
	to->atomic_cap = (enum ibv_atomic_cap)from->atomic_cap;
	to->phys_port_cnt = dev->phys_port_cnt;
}

AV_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct ib_device *dev = door_context(context)->ib;
	struct ib_device_attr ib;
	int error;

	memset(&ib, 0, sizeof(ib));
	error = ib_query_device(dev, &ib);
	if (!error)
		query_convert_device(dev, &ib, attr);
	return door_errno(error);
}
DOOR_DEFAULT(ibv_query_device);

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size)
{
	struct ib_device *dev = door_context(context)->ib;
	struct ib_device_attr_ex ib = { .size = sizeof(ib) };
	struct ibv_device_attr_ex full;
	int error;

	if (input && input->comp_mask)
		return EINVAL;
	if (size < offsetof(struct ibv_device_attr_ex, comp_mask) + sizeof(full.comp_mask))
		return EINVAL;
	error = ib_query_device_ex(dev, &ib);
	if (error)
		return door_errno(error);
	memset(&full, 0, sizeof(full));
	query_convert_device(dev, &ib.base, &full.orig_attr);
	full.completion_timestamp_mask = ib.base.timestamp_mask;
	full.hca_core_clock = ib.base.hca_core_clock;
	full.tm_caps = (struct ibv_tm_caps){ .max_rndv_hdr_size = ib.tm_caps.max_rndv_hdr_size,
					     .max_num_tags = ib.tm_caps.max_num_tags,
					     .flags = ib.tm_caps.flags,
					     .max_ops = ib.tm_caps.max_ops,
					     .max_sge = ib.tm_caps.max_sge };
	full.cq_mod_caps.max_cq_count = ib.cq_caps.max_cq_moderation_count;
	full.cq_mod_caps.max_cq_period = ib.cq_caps.max_cq_moderation_period;
	full.odp_caps.general_caps = ib.odp_caps.general_caps;
	full.odp_caps.per_transport_caps.rc_odp_caps = ib.odp_caps.rc_odp_caps;
	full.odp_caps.per_transport_caps.uc_odp_caps = ib.odp_caps.uc_odp_caps;
	full.odp_caps.per_transport_caps.ud_odp_caps = ib.odp_caps.ud_odp_caps;
	full.max_dm_size = ib.max_dm_size;
	full.rss_caps.supported_qpts = ib.rss_caps.supported_qpts;
	full.rss_caps.max_rwq_indirection_tables = ib.rss_caps.max_rwq_indirection_tables;
	full.rss_caps.max_rwq_indirection_table_size = ib.rss_caps.max_rwq_indirection_table_size;
	full.rss_caps.rx_hash_fields_mask = ib.rss_caps.rx_hash_fields_mask;
	full.rss_caps.rx_hash_function = ib.rss_caps.rx_hash_function;
	full.packet_pacing_caps = (struct ibv_packet_pacing_caps){
		.qp_rate_limit_min = ib.rate_caps.kbps_min,
		.qp_rate_limit_max = ib.rate_caps.kbps_max,
		.supported_qpts = ib.rate_caps.supported_qpts,
	};
	full.max_wq_type_rq = ib.max_wq_type_rq;
	full.raw_packet_caps = ib.raw_packet_caps;
	full.xrc_odp_caps = ib.odp_caps.xrc_odp_caps;
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags | ib.cap_flags_ex;
	full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
	query_copy_out(attr, size, &full, sizeof(full));
	return 0;
}

/* tv_nsec holds the whole count of the clock, as adapters report it. */
int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t wanted = values->comp_mask;
	u64 raw = 0;
	int error = 0;

	values->comp_mask = 0;
	if (!(wanted & IBV_VALUES_MASK_RAW_CLOCK))
		return 0;
	error = ib_query_clock(door_context(context)->ib, &raw);
	if (error)
		return door_errno(error);
	values->raw_clock = (struct timespec){ .tv_nsec = (long)raw };
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr full, *to = &full;
	struct ib_port_attr ib, *from = &ib;
	int error;

	memset(&ib, 0, sizeof(ib));
	error = ib_query_port(door_context(context)->ib, port, &ib);
	if (error)
		return door_errno(error);
	memset(&full, 0, sizeof(full));
	PORT_FIELDS(COPY_FIELD)
	full.state = (enum ibv_port_state)ib.state;
	full.max_mtu = (enum ibv_mtu)ib.max_mtu;
	full.active_mtu = (enum ibv_mtu)ib.active_mtu;
	if (ib.link_layer == IB_LINK_LAYER_ETHERNET)
		full.flags = IBV_QPF_GRH_REQUIRED;
	query_copy_out(attr, size, &full, sizeof(full));
	return 0;
}

/* Programs built before port_cap_flags2 was added have a structure that ends there. */
AV_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
			     struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}
DOOR_DEFAULT(ibv_query_port);
