/* format.h: MADs as bytes: where their fields lie, and reading and writing them.
 *
 * What the midlayer's headers say of MADs and SMPs is taken from there: offsets in bytes of struct
 * ib_smp (its first 24 bytes are those of every MAD), numbers in host order.
 */
#ifndef FABRIC_FORMAT_H
#define FABRIC_FORMAT_H

#include <rdma/ib_smi.h>
#include <string.h>

#include "base/compiler.h"

enum fabric_mad_at {
	MAD_BASE_VERSION = offsetof(struct ib_smp, base_version),
	MAD_CLASS = offsetof(struct ib_smp, mgmt_class),
	MAD_CLASS_VERSION = offsetof(struct ib_smp, class_version),
	MAD_METHOD = offsetof(struct ib_smp, method),
	MAD_STATUS = offsetof(struct ib_smp, status),
	MAD_HOP_POINTER = offsetof(struct ib_smp, hop_ptr),
	MAD_HOP_COUNT = offsetof(struct ib_smp, hop_cnt),
	MAD_TID = offsetof(struct ib_smp, tid),
	MAD_ATTRIBUTE = offsetof(struct ib_smp, attr_id),
	MAD_MODIFIER = offsetof(struct ib_smp, attr_mod),
	MAD_MKEY = offsetof(struct ib_smp, mkey),
	MAD_DR_SLID = offsetof(struct ib_smp, dr_slid),
	MAD_DR_DLID = offsetof(struct ib_smp, dr_dlid),
	MAD_DATA = offsetof(struct ib_smp, data), /* of the class performance management, too */
	MAD_SMP_DATA = IB_SMP_DATA_SIZE,
	MAD_PM_DATA = IB_MGMT_MAD_SIZE - MAD_DATA,
	MAD_INITIAL_PATH = offsetof(struct ib_smp, initial_path),
	MAD_RETURN_PATH = offsetof(struct ib_smp, return_path),
	MAD_HOPS_MAX = IB_SMP_MAX_PATH_HOPS - 1,
};

enum fabric_mad_class {
	CLASS_SMP_LID = IB_MGMT_CLASS_SUBN_LID_ROUTED,
	CLASS_SMP_DIRECTED = IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE,
	CLASS_PERFORMANCE = IB_MGMT_CLASS_PERF_MGMT,
};

enum fabric_mad_method {
	METHOD_GET = IB_MGMT_METHOD_GET,
	METHOD_SET = IB_MGMT_METHOD_SET,
	METHOD_SEND = IB_MGMT_METHOD_SEND,
	METHOD_TRAP = IB_MGMT_METHOD_TRAP,
	METHOD_REPORT = IB_MGMT_METHOD_REPORT,
	METHOD_TRAP_REPRESS = IB_MGMT_METHOD_TRAP_REPRESS,
	METHOD_GET_RESP = IB_MGMT_METHOD_GET_RESP,
	METHOD_RESPONSE = IB_MGMT_METHOD_RESP, /* the bit */
};

/* IBA vol 1, 13.4.7 */
enum fabric_mad_status {
	STATUS_OK = IB_MGMT_MAD_STATUS_SUCCESS,
	STATUS_BAD_VERSION = IB_MGMT_MAD_STATUS_BAD_VERSION,
	STATUS_BAD_METHOD = IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD,
	STATUS_BAD_ATTRIBUTE = IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB,
	STATUS_BAD_VALUE = IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE,
	STATUS_DIRECTION = __constant_ntohs(IB_SMP_DIRECTION),
	STATUS_NONE = 0xffff, /* none of them: there is no answer */
};

enum fabric_attribute {
	ATTR_CLASS_PORT_INFO = 0x0001,
	ATTR_NOTICE = __constant_ntohs(IB_SMP_ATTR_NOTICE),
	ATTR_NODE_DESCRIPTION = __constant_ntohs(IB_SMP_ATTR_NODE_DESC),
	ATTR_NODE_INFO = __constant_ntohs(IB_SMP_ATTR_NODE_INFO),
	ATTR_SWITCH_INFO = __constant_ntohs(IB_SMP_ATTR_SWITCH_INFO),
	ATTR_GUID_INFO = __constant_ntohs(IB_SMP_ATTR_GUID_INFO),
	ATTR_PORT_INFO = __constant_ntohs(IB_SMP_ATTR_PORT_INFO),
	ATTR_PKEY_TABLE = __constant_ntohs(IB_SMP_ATTR_PKEY_TABLE),
	ATTR_SL_TO_VL = __constant_ntohs(IB_SMP_ATTR_SL_TO_VL_TABLE),
	ATTR_VL_ARBITRATION = __constant_ntohs(IB_SMP_ATTR_VL_ARB_TABLE),
	ATTR_LINEAR_TABLE = __constant_ntohs(IB_SMP_ATTR_LINEAR_FORWARD_TABLE),
	ATTR_MULTICAST_TABLE = __constant_ntohs(IB_SMP_ATTR_MCAST_FORWARD_TABLE),
	ATTR_SM_INFO = __constant_ntohs(IB_SMP_ATTR_SM_INFO),
	ATTR_MLNX_EXT_PORT_INFO = 0xff90,
};

static inline u16 wire_get16(const u8 *at)
{
	return (u16)(at[0] << 8 | at[1]);
}

static inline u32 wire_get32(const u8 *at)
{
	u32 v;

	memcpy(&v, at, sizeof(v));
	return __builtin_bswap32(v);
}

static inline u64 wire_get64(const u8 *at)
{
	u64 v;

	memcpy(&v, at, sizeof(v));
	return __builtin_bswap64(v);
}

static inline void wire_put16(u8 *at, u16 v)
{
	at[0] = (u8)(v >> 8);
	at[1] = (u8)v;
}

static inline void wire_put32(u8 *at, u32 v)
{
	v = __builtin_bswap32(v);
	memcpy(at, &v, sizeof(v));
}

static inline void wire_put64(u8 *at, u64 v)
{
	v = __builtin_bswap64(v);
	memcpy(at, &v, sizeof(v));
}

#endif
