/* route.h: one packet's steps through the fabric, for data (route.c) and for MADs (hop.c).
 */
#ifndef FABRIC_ROUTE_H
#define FABRIC_ROUTE_H

#include "fabric/layout.h"

struct fabric_packet {
	struct fabric_flow flow;
	bool smp; /* VL15: needs no active port, no VL and no P_Key */
	/* A MAD's packet, for those who look on; of a hop of a directed route both LIDs are
	 * permissive. `seen`: it has left a CA. */
	const struct fabric_mad *mad;
	bool directed, seen;
	/* What has dropped it: the port and its counter. */
	u32 blamed;
	enum fabric_error blame;
} OWNED_BY(the caller);

/* Is this one of the LIDs of the port? */
static inline bool fabric_has_lid(const struct fabric_port_rec *p, u16 lid)
{
	u16 own = fabric_load(p->lid);

	return own != 0 &&
	       (lid >> (fabric_load(p->lmc) & 7)) == (own >> (fabric_load(p->lmc) & 7));
}

/* Over the link of port `out`, which the packet leaves by, having come by port number `in_number`
 * of the node. *in: the other end. Errors as fabric_route. */
int fabric_cross(const struct fabric_view *v, struct fabric_packet *k, u32 out, u8 in_number,
		 u32 *in);
/* Through a switch, unicast. *out: the port by which the packet leaves; the switch's port 0 if it
 * is for the switch itself. */
int fabric_forward(const struct fabric_view *v, struct fabric_packet *k, u32 in, u32 *out);
/* Does a port's table let a packet with this P_Key in? In the same partition, and one of both a
 * full member (IBA vol 1, 10.9.3). */
bool fabric_pkey_matches(const struct fabric_view *v, u32 port, u16 pkey);
/* The switch that a port belongs to; NULL: another node does. */
const struct fabric_node_rec *fabric_switch_of(const struct fabric_view *v, u32 port);

/* counters.c: counts packets over a link, with `mcast` as multicast ones, too. False: no such
 * port. */
bool fabric_charge_link(const struct fabric_counters *c, u32 out, u32 in, u64 packets, u64 bytes,
			bool mcast);

/* A step of a multicast packet: over the link out -> in. */
typedef void (*fabric_mcast_visit)(void *arg, const struct fabric_packet *k, u32 out, u32 in);
/* The packet was dropped there. */
typedef void (*fabric_mcast_drop)(void *arg, u32 port, enum fabric_error e);
/* Follows the tree of k->flow.dlid from a CA's port. `visit` is called for each link that the
 * packet crosses; `in` may be a switch's port. `dropped` (or NULL) for each that it does not.
 * Returns -EINVAL or -ENETUNREACH as fabric_mcast_route; else 0. */
int fabric_mcast_walk(const struct fabric_view *v, struct fabric_packet *k, u32 from,
		      fabric_mcast_visit visit, fabric_mcast_drop dropped, void *arg);

#endif
