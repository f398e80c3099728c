/* attrs.c: what a device can do, in Linux 6.1's words: ib_device.attrs.
 * In: the driver's query_device    Out: device->attrs    Runs: the registering thread
 * Locks: none
 */
#include "core/consumer.h"
#include "core/core_priv.h"

/* Fields of the same name. */
#define ATTRS_SAME(SAME)                                                                           \
	SAME(fw_ver)                                                                               \
	SAME(sys_image_guid)                                                                       \
	SAME(max_mr_size)                                                                          \
	SAME(page_size_cap)                                                                        \
	SAME(vendor_id)                                                                            \
	SAME(vendor_part_id)                                                                       \
	SAME(hw_ver)                                                                               \
	SAME(max_qp)                                                                               \
	SAME(max_qp_wr)                                                                            \
	SAME(max_sge_rd)                                                                           \
	SAME(max_cq)                                                                               \
	SAME(max_cqe)                                                                              \
	SAME(max_mr)                                                                               \
	SAME(max_pd)                                                                               \
	SAME(max_qp_rd_atom)                                                                       \
	SAME(max_ee_rd_atom)                                                                       \
	SAME(max_res_rd_atom)                                                                      \
	SAME(max_qp_init_rd_atom)                                                                  \
	SAME(max_ee_init_rd_atom)                                                                  \
	SAME(atomic_cap)                                                                           \
	SAME(max_ee)                                                                               \
	SAME(max_rdd)                                                                              \
	SAME(max_mw)                                                                               \
	SAME(max_raw_ipv6_qp)                                                                      \
	SAME(max_raw_ethy_qp)                                                                      \
	SAME(max_mcast_grp)                                                                        \
	SAME(max_mcast_qp_attach)                                                                  \
	SAME(max_total_mcast_qp_attach)                                                            \
	SAME(max_ah)                                                                               \
	SAME(max_srq)                                                                              \
	SAME(max_srq_wr)                                                                           \
	SAME(max_srq_sge)                                                                          \
	SAME(max_pkeys)                                                                            \
	SAME(local_ca_ack_delay)                                                                   \
	SAME(timestamp_mask)                                                                       \
	SAME(hca_core_clock)

static void attrs_take_odp(struct ib_device_attrs *attrs, const struct ib_odp_caps *odp)
{
	attrs->odp_caps.general_caps = odp->general_caps;
	attrs->odp_caps.per_transport_caps.rc_odp_caps = odp->rc_odp_caps;
	attrs->odp_caps.per_transport_caps.uc_odp_caps = odp->uc_odp_caps;
	attrs->odp_caps.per_transport_caps.ud_odp_caps = odp->ud_odp_caps;
	attrs->odp_caps.per_transport_caps.xrc_odp_caps = odp->xrc_odp_caps;
}

int core_fill_attrs(struct ib_device *device)
{
	struct ib_device_attr_ex attr = { .size = sizeof(attr) };
	int err;

	if (!core_serves_linux61(device))
		return 0;
	err = ib_query_device_ex(device, &attr);
	if (err)
		return err;
#define ATTRS_TAKE(field) .field = attr.base.field,
	device->attrs = (struct ib_device_attrs){ ATTRS_SAME(ATTRS_TAKE) };
	device->attrs.device_cap_flags = (u32)attr.base.device_cap_flags | attr.cap_flags_ex;
	device->attrs.max_send_sge = device->attrs.max_recv_sge = attr.base.max_sge;
	device->attrs.max_fast_reg_page_list_len = attr.max_fast_reg_page_list_len;
	device->attrs.max_wq_type_rq = attr.max_wq_type_rq;
	device->attrs.raw_packet_caps = attr.raw_packet_caps;
	device->attrs.max_dm_size = attr.max_dm_size;
	attrs_take_odp(&device->attrs, &attr.odp_caps);
	device->dev.init_name = device->name;
	return 0;
}
