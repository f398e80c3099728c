/* layout.h: the two files of a fabric, private to this room.
 *
 * The map: a header of a page, then sections: node records, port records, P_Key tables
 * (FABRIC_PKEYS of each port), and for each switch a linear forwarding table, a multicast
 * forwarding table and its SL-to-VL tables. All numbers have the machine's byte order. A table
 * that nobody has written reads as zeroes, which is its state after power-on.
 *
 * A linear forwarding table holds, for each LID, 255 - the port: so zero is "no port".
 *
 * Writers: the owner of the map alone. Readers of one field take it by fabric_load; readers of
 * more use the port's `seq`, which is odd while the owner changes the port. Offsets and indices
 * in the file are hostile to a reader: each is bounded where it is used.
 */
#ifndef FABRIC_LAYOUT_H
#define FABRIC_LAYOUT_H

#include "fabric/fabric.h"

#define FABRIC_MAGIC 0x3162616676796e61ull
#define FABRIC_COUNTERS_MAGIC 0x31746e7576796e61ull
enum {
	FABRIC_VERSION = 1,
	FABRIC_PAGE = 4096,
	FABRIC_LFT_CAP = 0xc000, /* every unicast LID */
	FABRIC_MFT_CAP = 4096,	 /* multicast LIDs */
	FABRIC_LFT_BLOCK = 64,
	FABRIC_MFT_BLOCK = 32,
	FABRIC_NO_PORT = 255,
	FABRIC_VLARB = 8, /* entries of each VL arbitration table */
	FABRIC_SL2VL = 8, /* bytes of one SL-to-VL table: a VL for each of 16 SLs */
	FABRIC_VL15 = 15,
	FABRIC_NODES_MAX = 1 << 20,
	FABRIC_PORTS_MAX = 1 << 24,
};

struct fabric_header {
	u64 magic;
	u32 version;
	u32 nodes, ports;
	u32 header_size, node_size, port_size; /* bytes of the records */
	u32 complete;			       /* 1: all of it has been written once */
	u64 bytes;			       /* of the file */
	u64 node_at, port_at, pkey_at;	       /* offsets of the sections */
	u64 identity;
	u64 generation;
} OWNED_BY(the owner of the map);

struct fabric_node_rec {
	u32 seq;	 /* odd: being written */
	u8 type;	 /* enum fabric_node_type */
	u8 state_change; /* of SwitchInfo */
	u16 ports;	 /* the highest port number */
	u32 first_port;
	u8 enhanced; /* a switch whose port 0 is enhanced: it has a state as other ports */
	u64 guid, sys_guid;
	u64 lft_at, mft_at, sl2vl_at; /* offsets in the file; of a switch */
	u32 vendor_id, revision;
	u16 device_id;
	u16 lft_top;
	u8 default_port, mcast_primary, mcast_not_primary, life_time;
	char desc[FABRIC_DESC];
} CACHE_ALIGNED OWNED_BY(the owner of the map);

enum fabric_port_flags {
	FABRIC_PORT_CUT = 1,
	FABRIC_PORT_IN_PKEYS = 1 << 1, /* partition enforcement of what comes in */
	FABRIC_PORT_OUT_PKEYS = 1 << 2,
	FABRIC_PORT_IN_RAW = 1 << 3,
	FABRIC_PORT_OUT_RAW = 1 << 4,
};

/* Traps that a port has raised and that no TrapRepress has answered yet; bits. */
enum fabric_trap_bit {
	FABRIC_TRAP_128 = 1,
	FABRIC_TRAP_129 = 1 << 1,
	FABRIC_TRAP_130 = 1 << 2,
	FABRIC_TRAP_131 = 1 << 3,
	FABRIC_TRAP_144 = 1 << 4,
	FABRIC_TRAP_256 = 1 << 5,
	FABRIC_TRAP_257 = 1 << 6,
	FABRIC_TRAP_258 = 1 << 7,
	FABRIC_TRAPS = 8,
};

/* The first cache line has all that hops and routes ask. */
struct fabric_port_rec {
	u32 seq; /* odd: being written */
	u32 node, peer;
	u8 number;
	u8 state, phys;
	u8 flags; /* enum fabric_port_flags */
	u16 lid;
	u8 lmc;
	u8 mtu;		    /* NeighborMTU */
	u8 operational_vls; /* 1: VL0, 2: VL0-1, 3: VL0-3, 4: VL0-7, 5: VL0-14 */
	u16 sm_lid;
	u8 sl2vl[FABRIC_SL2VL]; /* of a CA's port; a switch has tables */
	u64 gid_prefix;
	u64 mkey;
	u16 mkey_lease; /* seconds */
	u8 mkey_protect;
	u8 sm_sl;
	u32 cap_mask;

	u64 guid[FABRIC_GUIDS];

	u64 lease_end_ns; /* of the M_Key; 0: does not run */
	u16 mkey_violations, pkey_violations, qkey_violations;
	u16 diag_code;
	u8 width_enabled, width_supported, width;
	u8 speed_enabled, speed_supported, speed;	      /* 1 SDR, 2 DDR, 4 QDR */
	u8 speed_ext_enabled, speed_ext_supported, speed_ext; /* 1 FDR, 2 EDR, 4 HDR */
	u8 link_down_default;
	u8 vl_cap, mtu_cap;
	u8 vl_high_limit, vl_stall_count, hoq_life;
	u8 init_type, init_type_reply;
	u8 reregister;
	u8 mcast_pkey_trap;
	u8 subnet_timeout, resp_time;
	u8 local_phy_errors, overrun_errors;
	u8 vlarb_low_cap, vlarb_high_cap;
	u8 guid_cap;
	u16 pkey_cap;

	u8 traps;		       /* enum fabric_trap_bit */
	u8 trap_changes;	       /* what trap 144 tells: its change flags */
	u8 vlarb[2][2 * FABRIC_VLARB]; /* low, high */
} CACHE_ALIGNED OWNED_BY(the owner of the map);

_Static_assert(sizeof(struct fabric_header) <= FABRIC_PAGE, "the header fits its page");
_Static_assert(sizeof(struct fabric_node_rec) <= 256, "a node is small");
_Static_assert(sizeof(struct fabric_port_rec) <= 320, "a port is small");

/* ---- the counters' file ----------------------------------------------------------------------
 */

struct fabric_counters_header {
	u64 magic;
	u64 identity; /* of the map */
	u32 ports;
	u8 reserved[44];
} OWNED_BY(the owner of the map);

enum { FABRIC_PC_BASES = 4, FABRIC_PCX_BASES = 8 };

struct fabric_port_counters {
	u64 xmit_bytes, rcv_bytes, xmit_packets, rcv_packets;
	u64 mcast_xmit_packets, mcast_rcv_packets;
	u32 errors[FABRIC_ERRORS];
	/* What the PMA has been told to count from: PortCounters, then PortCountersExtended, in
	 * the order of their fields. */
	u64 base[FABRIC_PC_BASES + FABRIC_PCX_BASES];
} CACHE_ALIGNED OWNED_BY(atomic operations);

_Static_assert(sizeof(struct fabric_counters_header) == 64, "a cache line");
_Static_assert(sizeof(struct fabric_port_counters) <= 256, "a port is small");

/* ---- reading ---------------------------------------------------------------------------------
 */

/* One field of a record that the owner may be writing: read once, so that what was judged is what
 * is used. */
#define fabric_load(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define fabric_store(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

static inline const struct fabric_header *fabric_header(const struct fabric_view *v)
{
	return (const struct fabric_header *)v->base;
}

/* NULL: `n` bytes there are not in the file. */
static inline const u8 *fabric_at(const struct fabric_view *v, u64 offset, u64 n)
{
	if (offset > v->bytes || v->bytes - offset < n)
		return NULL;
	return v->base + offset;
}

/* fabric_view_open, also for a map that is not complete. */
int fabric_view_judge(struct fabric_view *v, const void *map, size_t bytes);
/* The P_Key table of a port that exists. */
const u16 *fabric_pkeys(const struct fabric_view *v, u32 port);
/* The port that a switch forwards a unicast LID to; FABRIC_NO_PORT: none. */
u8 fabric_lft(const struct fabric_view *v, const struct fabric_node_rec *n, u16 lid);
/* Positions of 16 ports in one entry of a switch's multicast table. */
static inline u32 fabric_mft_positions(u16 ports)
{
	return (u32)ports / 16 + 1;
}
/* The ports with bit 0 for port 16 * position; 0 too for a position that is not there. */
u16 fabric_mft(const struct fabric_view *v, const struct fabric_node_rec *n, u16 mlid,
	       u32 position);
/* The VL of a packet that leaves by port `out` (in the whole fabric) and has come by port number
 * `in` of the same node; FABRIC_VL15: dropped. */
u8 fabric_vl(const struct fabric_view *v, u32 out, u8 in, u8 sl);

/* How many data VLs the code of OperationalVLs and VLCap means; 0: none. */
static inline u8 fabric_vls(u8 code)
{
	return code == 5 ? 15 : code >= 1 && code <= 4 ? 1 << (code - 1) : 0;
}

/* ---- laying out ------------------------------------------------------------------------------
 */

/* What a map for so many nodes and ports needs, before its switches' tables. */
void fabric_layout(struct fabric_header *h, u32 nodes, u32 ports);
/* Of the tables of a switch; whole pages. */
u64 fabric_switch_bytes(u16 ports);
/* Gives a switch its tables, behind h->bytes, which grows. */
void fabric_layout_switch(struct fabric_header *h, struct fabric_node_rec *n);

#endif
