/* fabric_priv.h: the owner's handle, and what the files of this room share.
 */
#ifndef FABRIC_PRIV_H
#define FABRIC_PRIV_H

#include "fabric/layout.h"

enum { FABRIC_QUEUE_MAX = 4096 }; /* MADs that callbacks may have waiting */

/* A MAD that a callback has sent. */
struct fabric_queued {
	u32 port;
	struct fabric_mad mad;
} OWNED_BY(the thread of the owner);

struct fabric {
	struct fabric_view view; /* the same memory as `header`, `node` and `port` */
	struct fabric_counters counters;
	struct fabric_header *header;
	struct fabric_node_rec *node;
	struct fabric_port_rec *port;
	u16 *pkeys;
	u8 *tables; /* the whole map */
	void *counters_map;
	size_t counters_bytes;
	const struct fabric_ops *ops;
	void *arg;
	/* MADs of callbacks: a ring of `queue_room` */
	struct fabric_queued *queue;
	u32 queue_room, queue_head, queue_count;
	struct trap_set *traps;
	bool told; /* the owner has its handle: it hears of changes */
	bool busy; /* some function of the owner's side runs */
} OWNED_BY(the thread of the owner);

/* ---- the owner's writing (owner.c) ------------------------------------------------------------
 */

/* Between begin and end readers wait for the record, and for the port's P_Keys. Do not nest. */
struct fabric_port_rec *fabric_port_begin(struct fabric *f, u32 port);
void fabric_port_end(struct fabric *f, u32 port);
/* Routes that were looked up before may be wrong now. */
void fabric_routes_changed(struct fabric *f);
/* Tells the owner of a change at a CA's port. */
void fabric_tell(struct fabric *f, u32 port, u32 what);
/* Adds to a counter of the port, which stays at its maximum. */
void fabric_count(struct fabric *f, u32 port, enum fabric_error which, u32 n);

static inline u64 fabric_now(struct fabric *f)
{
	return f->ops->now_ns(f->arg);
}

static inline struct fabric_node_rec *fabric_node_of(struct fabric *f, u32 port)
{
	return &f->node[f->port[port].node];
}

static inline bool fabric_is_switch(struct fabric *f, u32 port)
{
	return fabric_node_of(f, port)->type == FABRIC_SWITCH;
}

/* Is software at the port? At a CA's ports always; at a switch's port 0 while it is a subnet
 * manager. */
bool fabric_has_software(const struct fabric *f, u32 port);

/* The port that has the node's PortInfo as far as it is the node's: a switch's port 0. */
static inline u32 fabric_home(struct fabric *f, u32 port)
{
	return fabric_is_switch(f, port) ? fabric_node_of(f, port)->first_port : port;
}

/* ---- the owner's calls (enter.c)
 * --------------------------------------------------------------- */

/* Around each function of the owner's side. The outermost leave sends what callbacks have left to
 * send, and traps. */
bool fabric_enter(struct fabric *f);
void fabric_leave(struct fabric *f, bool outermost);

/* ---- power-on (reset.c) -----------------------------------------------------------------------
 */

/* Gives a node and its ports what hardware has after power-on; keeps what the topology says.
 * is_new: its tables have never been written. */
void fabric_node_reset(struct fabric *f, u32 node, bool is_new);

/* ---- links (link.c) ---------------------------------------------------------------------------
 */

/* What a link of enum topo_width and enum topo_speed lets its ports be capable of. */
void fabric_link_capability(struct fabric_port_rec *p, u8 width, u8 speed);
/* The width and speed of a port without a link. */
void fabric_link_clear(struct fabric_port_rec *p);
/* Brings a link up if both of its ends are ready for it. */
void fabric_link_train(struct fabric *f, u32 port);
/* Ends a link that is up. The port itself goes to `phys`, the other end to its default. */
void fabric_link_drop(struct fabric *f, u32 port, u8 phys);

#endif
