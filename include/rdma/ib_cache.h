/* ib_cache.h: a port's GIDs, P_Keys, LMC and state from memory: never blocks, any context.
 *
 * The tables are read when the device is registered and again at every event that may have
 * changed them (port up or down, LID, P_Key, SM or GID change, client reregistration), before
 * any consumer's handler sees that event.
 * Results: 0; -EINVAL: no such port or index; -ENODATA: the device could not tell; outputs stay
 * untouched on failure.
 */
#ifndef IB_CACHE_H
#define IB_CACHE_H

#include <rdma/ib_verbs.h>

/* Copies entry `index` of the port's GID table; an empty entry is all zero. */
AV_EXPORT int ib_get_cached_gid(struct ib_device *device, u8 port_num, int index,
				union ib_gid *gid);

/* The first port and index that hold `gid`; either output may be NULL. -ENOENT: nowhere, or `gid`
 * is all zero, as empty entries are. */
AV_EXPORT int ib_find_cached_gid(struct ib_device *device, union ib_gid *gid, u8 *port_num,
				 u16 *index);

/* The first index of the port that holds `gid`. Linux's parameters for the GID's type and interface
 * are absent: a GID stands in a table once here. -ENOENT: not in the port's table. */
AV_EXPORT int ib_find_cached_gid_by_port(struct ib_device *device, const union ib_gid *gid,
					 u8 port_num, u16 *index);

/* Copies entry `index` of the port's P_Key table, in host order. */
AV_EXPORT int ib_get_cached_pkey(struct ib_device *device, u8 port_num, int index, u16 *pkey);

/* The first index of the port that holds `pkey`, whatever the membership bit (the highest) of
 * either. Of a port that is a full and a limited member, it is the full one's. -ENOENT: not in the
 * port's table. */
AV_EXPORT int ib_find_cached_pkey(struct ib_device *device, u8 port_num, u16 pkey, u16 *index);

/* The first index of the port that holds `pkey` with this very membership bit. -ENOENT: not in the
 * port's table. */
AV_EXPORT int ib_find_exact_cached_pkey(struct ib_device *device, u8 port_num, u16 pkey,
					u16 *index);

/* The port's LMC: how many low bits of a LID are path bits. */
AV_EXPORT int ib_get_cached_lmc(struct ib_device *device, u8 port_num, u8 *lmc);

/* The port's state at the last event of it. */
AV_EXPORT int ib_get_cached_port_state(struct ib_device *device, u8 port_num,
				       enum ib_port_state *port_state);

#endif
