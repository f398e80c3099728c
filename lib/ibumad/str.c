/* str.c: the names of what stands in a MAD's header, by which tools show it.
 * In:    numbers    Out: strings that stay    Runs: any thread    Locks: none
 */
#include <endian.h>
#include <infiniband/umad_str.h>

#include "door.h"

struct str_name {
	u16 number;
	const char *name;
} FIXED;

static const char *str_find(const struct str_name *table, size_t count, u16 number)
{
	for (size_t i = 0; i < count; i++)
		if (table[i].number == number)
			return table[i].name;
	return NULL;
}

static const char *str_or_unknown(const char *name)
{
	return name != NULL ? name : "<unknown>";
}

/* ---- classes --------------------------------------------------------------------------------- */

static const struct str_name str_classes[] = {
	{ 0x01, "Subn" },   { 0x81, "Subn" },	 { 0x03, "SubnAdm" }, { 0x04, "Perf" },
	{ 0x05, "BM" },	    { 0x06, "DevMgt" },	 { 0x07, "ComMgt" },  { 0x08, "SNMP" },
	{ 0x10, "DevAdm" }, { 0x11, "BootMgt" }, { 0x12, "BIS" },
	{ 0x21, "CongestionManagment" },
};

AV_EXPORT const char *umad_class_str(uint8_t mgmt_class)
{
	const char *name = str_find(str_classes, ARRAY_LEN(str_classes), mgmt_class);

	if (name != NULL)
		return name;
	if (mgmt_class >= 0x13 && mgmt_class <= 0x2f)
		return "Application";
	return (mgmt_class >= 0x09 && mgmt_class <= 0x0f) ||
			       (mgmt_class >= 0x30 && mgmt_class <= 0x4f) ?
		       "Vendor" :
		       "<unknown>";
}

/* ---- methods --------------------------------------------------------------------------------- */

static const struct str_name str_methods[] = {
	{ 0x01, "Get" },    { 0x02, "Set" },	     { 0x03, "Send" },	  { 0x05, "Trap" },
	{ 0x06, "Report" }, { 0x07, "TrapRepress" }, { 0x81, "GetResp" }, { 0x86, "ReportResp" },
};

static const struct str_name str_sa_methods[] = {
	{ 0x12, "GetTable" },	  { 0x13, "GetTraceTable" }, { 0x14, "GetMulti" },
	{ 0x15, "Delete" },	  { 0x92, "GetTableResp" },  { 0x94, "GetMultiResp" },
	{ 0x95, "DeleteResp" },
};

AV_EXPORT const char *umad_method_str(uint8_t mgmt_class, uint8_t method)
{
	const char *name = str_find(str_methods, ARRAY_LEN(str_methods), method);

	if (name == NULL && mgmt_class == IB_MGMT_CLASS_SUBN_ADM)
		name = str_find(str_sa_methods, ARRAY_LEN(str_sa_methods), method);
	return str_or_unknown(name);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static const struct str_name str_attributes[] = {
	{ 0x0001, "Class Port Info" },
	{ 0x0002, "Notice" },
	{ 0x0003, "Inform Info" },
};

static const struct str_name str_smp_attributes[] = {
	{ 0x0010, "NodeDescription" },
	{ 0x0011, "NodeInfo" },
	{ 0x0012, "SwitchInfo" },
	{ 0x0014, "GUIDInfo" },
	{ 0x0015, "PortInfo" },
	{ 0x0016, "P_KeyTable" },
	{ 0x0017, "SLtoVLMappingTable" },
	{ 0x0018, "VLArbitrationTable" },
	{ 0x0019, "LinearForwardingTable" },
	{ 0x001a, "RandomForwardingTable" },
	{ 0x001b, "MulticastForwardingTable" },
	{ 0x001c, "LinkSpeedWidthPairsTable" },
	{ 0x001d, "VendorSpecificMadsTable" },
	{ 0x001e, "HierarchyInfo" },
	{ 0x0020, "SMInfo" },
	{ 0x0030, "VendorDiag" },
	{ 0x0031, "LedInfo" },
	{ 0x0032, "CableInfo" },
	{ 0x0033, "PortInfoExtended" },
};

static const struct str_name str_sa_attributes[] = {
	{ 0x0011, "NodeRecord" },
	{ 0x0012, "PortInfoRecord" },
	{ 0x0013, "SLtoVLMappingTableRecord" },
	{ 0x0014, "SwitchInfoRecord" },
	{ 0x0015, "LinearForwardingTableRecord" },
	{ 0x0016, "RandomForwardingTableRecord" },
	{ 0x0017, "MulticastForwardingTableRecord" },
	{ 0x0018, "SMInfoRecord" },
	{ 0x0019, "LinkSpeedWidthPairsTableRecord" },
	{ 0x0020, "LinkRecord" },
	{ 0x0030, "GuidInfoRecord" },
	{ 0x0031, "ServiceRecord" },
	{ 0x0033, "P_KeyTableRecord" },
	{ 0x0035, "PathRecord" },
	{ 0x0036, "VLArbitrationTableRecord" },
	{ 0x0038, "MCMemberRecord" },
	{ 0x0039, "TraceRecord" },
	{ 0x003a, "MultiPathRecord" },
	{ 0x003b, "ServiceAssociationRecord" },
	{ 0x003c, "HierarchyInfoRecord" },
	{ 0x003d, "CableInfoRecord" },
	{ 0x003e, "PortInfoExtendedRecord" },
	{ 0x00f3, "InformInfoRecord" },
};

static const struct str_name str_cm_attributes[] = {
	{ 0x0010, "ConnectRequest" },
	{ 0x0011, "MsgRcptAck" },
	{ 0x0012, "ConnectReject" },
	{ 0x0013, "ConnectReply" },
	{ 0x0014, "ReadyToUse" },
	{ 0x0015, "DisconnectRequest" },
	{ 0x0016, "DisconnectReply" },
	{ 0x0017, "ServiceIDResReq" },
	{ 0x0018, "ServiceIDResReqResp" },
	{ 0x0019, "LoadAlternatePath" },
	{ 0x001a, "AlternatePathResponse" },
	{ 0x001b, "SuggestAlternatePath" },
	{ 0x001c, "SuggestPathResponse" },
};

static const char *str_class_attribute(uint8_t mgmt_class, u16 attr)
{
	switch (mgmt_class) {
	case IB_MGMT_CLASS_SUBN_LID_ROUTED:
	case IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE:
		return str_find(str_smp_attributes, ARRAY_LEN(str_smp_attributes), attr);
	case IB_MGMT_CLASS_SUBN_ADM:
		return str_find(str_sa_attributes, ARRAY_LEN(str_sa_attributes), attr);
	case IB_MGMT_CLASS_CM:
		return str_find(str_cm_attributes, ARRAY_LEN(str_cm_attributes), attr);
	default:
		return NULL;
	}
}

AV_EXPORT const char *umad_attribute_str(uint8_t mgmt_class, __be16 attr_id)
{
	u16 attr = be16toh(attr_id);
	const char *name = str_find(str_attributes, ARRAY_LEN(str_attributes), attr);

	return str_or_unknown(name != NULL ? name : str_class_attribute(mgmt_class, attr));
}

/* ---- status ---------------------------------------------------------------------------------- */

AV_EXPORT const char *umad_common_mad_status_str(__be16 _status)
{
	u16 status = be16toh(_status);

	if ((status & IB_MGMT_MAD_STATUS_BUSY) != 0)
		return "Busy";
	if ((status & IB_MGMT_MAD_STATUS_REDIRECT_REQD) != 0)
		return "Redirection required";
	switch (status & 0x1c) {
	case IB_MGMT_MAD_STATUS_BAD_VERSION:
		return "Bad Version";
	case IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD:
		return "Method not supported";
	case IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB:
		return "Method/Attribute combo not supported";
	case IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE:
		return "Invalid attribute/modifier field";
	default:
		return "Success";
	}
}

AV_EXPORT const char *umad_sa_mad_status_str(__be16 _status)
{
	static const char *const names[] = { "Success",
					     "No Resources",
					     "Request Invalid",
					     "No Records",
					     "Too Many Records",
					     "Invalid GID",
					     "Insufficient Components",
					     "Request Denied",
					     "Priority Suggested" };
	u16 code = be16toh(_status) >> 8;

	return code < ARRAY_LEN(names) ? names[code] : "Undefined Error";
}
