/* mads.h: what the MAD ports of software adapters share. A kind of adapter has its own way for MADs
 * out and in, and calls these for the rest of struct mad_port_ops.
 */
#ifndef DRIVER_SOFT_MADS_H
#define DRIVER_SOFT_MADS_H

#include "driver/soft/soft.h"
#include "mad/port.h"

/* The queue of all MAD ports of this process, which it is made for. */
struct work_queue *soft_mads_queue(void);

/* The GRH of a packet with so many bytes of payload behind it. */
void soft_mads_fill_grh(const struct pkt *p, u16 payload, struct ib_grh *grh);
/* The address vector of a MAD on its way out. As soft_kind.resolve_av. */
int soft_mads_av(struct soft_device *dev, const struct mad_departure *d, struct path_av *av);

/* Where an agent is. */
struct soft_mads_place {
	u64 device; /* the node's id of it */
	u8 port, qpn;
} OWNED_BY(the caller);

/* Methods of struct mad_port_ops. */
int soft_mads_listen(struct soft_device *dev, u64 service_id, u64 mask,
		     const struct ib_cm_compare_data *compare, bool on);
int soft_mads_agent(struct soft_device *dev, const struct soft_mads_place *at,
		    const struct ib_mad_reg_req *request, bool on);
int soft_mads_slot(struct soft_device *dev);

/* The MAD of a will, and its connection. */
void soft_mads_fill_will(const struct mad_will *will, struct node_will *out);
/* Keeps a will in the process' file, which the first one makes; NULL: takes it back. The queue
 * shows the file to the node before it sends the MADs that are posted after. The seat is attached.
 * Any context. */
void soft_mads_set_will(u32 index, const struct node_will *will);

/* Takes the MAD that ends a connection of this process, of a peer that cannot send it any more. On
 * the queue. */
typedef void (*soft_mads_end)(const struct node_will *will);
/* The processes of these slots have ended (seat_ops.died), and what they had sent was received:
 * `end` gets what their wills say to this process. The node may be gone as well, and sends no will
 * then; else the CM hears the same again. Any thread; never blocks. */
void soft_mads_died(const u64 slots[NODE_SLOTS / 64], soft_mads_end end);

#endif
