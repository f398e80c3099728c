/* portinfo.h: the attribute PortInfo (IBA vol 1, 14.2.5.6) between bytes and a port's record.
 */
#ifndef FABRIC_PORTINFO_H
#define FABRIC_PORTINFO_H

#include "fabric/layout.h"

/* CapabilityMask */
enum fabric_capability {
	FABRIC_CAP_SM = 1 << 1,
	FABRIC_CAP_TRAP = 1 << 3,
	FABRIC_CAP_SL_MAPPING = 1 << 6,
	FABRIC_CAP_SYS_GUID = 1 << 11,
	FABRIC_CAP_EXT_SPEEDS = 1 << 14,
	FABRIC_CAP_CM = 1 << 16,
	FABRIC_CAP_VENDOR_CLASS = 1 << 20,
	FABRIC_CAP_CAP_NOTICE = 1 << 22,
	FABRIC_CAP_REREGISTER = 1 << 25,
	FABRIC_CAP_OTHER_CHANGES = 1 << 26,
};

enum { PORTINFO_BYTES = 64, PORTINFO_LOCAL_PORT = 28, PORTINFO_REREGISTER = 51 };

/* All 64 bytes; LocalPortNum is 0, and the caller's. */
void portinfo_pack(const struct fabric_port_rec *p, u8 *out);
/* The record's fields that PortInfo has; the others stay as they are. */
void portinfo_unpack(struct fabric_port_rec *p, const u8 *in);

#endif
