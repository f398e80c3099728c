/* format.c: what the class of a MAD says of its layout. Pure functions.
 * Spec: IBA vol 1, 13.4.2 to 13.4.4, 13.6.2 (RMPP header), 15.2.1.1 (SA header)
 */
#include "mad/mad_priv.h"

int ib_is_mad_class_rmpp(u8 mgmt_class)
{
	switch (mgmt_class) {
	case IB_MGMT_CLASS_SUBN_ADM:
	case IB_MGMT_CLASS_DEVICE_ADM:
	case IB_MGMT_CLASS_BIS:
		return 1;
	default:
		return mad_is_vendor_oui_class(mgmt_class);
	}
}

int ib_get_mad_data_offset(u8 mgmt_class)
{
	if (mgmt_class == IB_MGMT_CLASS_SUBN_ADM)
		return IB_MGMT_SA_HDR;
	if (mgmt_class == IB_MGMT_CLASS_DEVICE_ADM || mgmt_class == IB_MGMT_CLASS_BIS)
		return IB_MGMT_DEVICE_HDR;
	return mad_is_vendor_oui_class(mgmt_class) ? IB_MGMT_VENDOR_HDR : IB_MGMT_MAD_HDR;
}

int ib_mad_kernel_rmpp_agent(struct ib_mad_agent *agent)
{
	return agent->rmpp_version != 0;
}
