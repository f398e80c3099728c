/* format.h: MADs as bytes: where their fields lie, and reading and writing them.
 *
 * The common header is IBA vol 1, 13.4.3; SMPs are 14.2.1. Offsets in bytes.
 */
#ifndef FABRIC_FORMAT_H
#define FABRIC_FORMAT_H

#include <string.h>

#include "base/compiler.h"

enum fabric_mad_at {
	MAD_BASE_VERSION = 0,
	MAD_CLASS = 1,
	MAD_CLASS_VERSION = 2,
	MAD_METHOD = 3,
	MAD_STATUS = 4, /* of a directed-route SMP with the direction in its highest bit */
	MAD_HOP_POINTER = 6,
	MAD_HOP_COUNT = 7,
	MAD_TID = 8,
	MAD_ATTRIBUTE = 16,
	MAD_MODIFIER = 20,
	MAD_MKEY = 24,
	MAD_DR_SLID = 32,
	MAD_DR_DLID = 34,
	MAD_DATA = 64,	   /* of SMPs and of the class performance management */
	MAD_SMP_DATA = 64, /* how many bytes of data an SMP has */
	MAD_PM_DATA = 192,
	MAD_INITIAL_PATH = 128,
	MAD_RETURN_PATH = 192,
	MAD_HOPS_MAX = 63,
};

enum fabric_mad_class {
	CLASS_SMP_LID = 0x01,
	CLASS_SMP_DIRECTED = 0x81,
	CLASS_PERFORMANCE = 0x04,
};

enum fabric_mad_method {
	METHOD_GET = 0x01,
	METHOD_SET = 0x02,
	METHOD_SEND = 0x03,
	METHOD_TRAP = 0x05,
	METHOD_REPORT = 0x06,
	METHOD_TRAP_REPRESS = 0x07,
	METHOD_GET_RESP = 0x81,
	METHOD_RESPONSE = 0x80, /* the bit */
};

/* IBA vol 1, 13.4.7 */
enum fabric_mad_status {
	STATUS_OK = 0,
	STATUS_BAD_VERSION = 1 << 2,
	STATUS_BAD_METHOD = 2 << 2,
	STATUS_BAD_ATTRIBUTE = 3 << 2,
	STATUS_BAD_VALUE = 7 << 2,
	STATUS_DIRECTION = 0x8000,
	STATUS_NONE = 0xffff, /* none of them: there is no answer */
};

enum fabric_attribute {
	ATTR_CLASS_PORT_INFO = 0x0001,
	ATTR_NOTICE = 0x0002,
	ATTR_NODE_DESCRIPTION = 0x0010,
	ATTR_NODE_INFO = 0x0011,
	ATTR_SWITCH_INFO = 0x0012,
	ATTR_GUID_INFO = 0x0014,
	ATTR_PORT_INFO = 0x0015,
	ATTR_PKEY_TABLE = 0x0016,
	ATTR_SL_TO_VL = 0x0017,
	ATTR_VL_ARBITRATION = 0x0018,
	ATTR_LINEAR_TABLE = 0x0019,
	ATTR_MULTICAST_TABLE = 0x001b,
	ATTR_SM_INFO = 0x0020,
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
