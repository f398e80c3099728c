/* portinfo.h: bits of PortInfo's CapabilityMask (IBA vol 1, 14.2.5.6).
 */
#ifndef FABRIC_PORTINFO_H
#define FABRIC_PORTINFO_H

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

#endif
