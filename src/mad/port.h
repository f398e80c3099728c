/* port.h: what the MAD layer needs of a port: a way for a MAD out and in, the identity of the
 * process, a place where listeners are made known, and a work queue.
 *
 * A driver adds its ports before it registers its device, and removes them when the device is gone.
 * A test or the simulator adds ports of its own, with a queue in virtual time.
 */
#ifndef MAD_PORT_H
#define MAD_PORT_H

#include <rdma/ib_cm.h>
#include <rdma/ib_mad.h>

#include "base/work.h"

struct mad_port;

/* Transaction IDs, communication IDs and SIDR request IDs carry the slot of their process in the
 * top bits of 32. */
enum { MAD_SLOT_SHIFT = 22 };

/* One MAD on its way out. */
struct mad_departure {
	struct ib_ah *ah; /* the way; NULL: `attr` tells it */
	const struct ib_ah_attr *attr;
	u32 remote_qpn;
	u32 qkey;
	u16 pkey_index;
	const void *mad; /* IB_MGMT_MAD_SIZE bytes */
} OWNED_BY(the caller);

/* One MAD that has arrived, as the wire or a peer says: nothing of it has been judged. */
struct mad_arrival {
	u32 src_qp;
	u32 qkey;
	u16 pkey;
	u16 slid;
	u8 sl;
	u8 dlid_path_bits;
	/* It begins an exchange of which this process knows nothing, as a REQ does. Where MADs come
	 * faster than they are handled these are dropped first: exchanges and connections that
	 * exist go on. */
	bool begins;
	bool has_grh;
	struct ib_grh grh; /* with has_grh */
	const void *mad;
	u32 length;
} OWNED_BY(the caller);

/* The connection that a will belongs to, as tools show it. Host byte order; 0: not known yet. */
struct mad_connection {
	u64 service_id;	      /* that the REQ asks for */
	u32 local_id, remote_id; /* communication IDs */
	u32 local_qpn, remote_qpn;
	u8 state; /* enum ib_cm_state */
	bool passive; /* the REQ came from the peer */
} OWNED_BY(the caller);

/* A MAD for the case that this process dies: the way to QP1 of its receiver, and the bytes with
 * which it begins; the others are 0. */
struct mad_will {
	const struct ib_ah_attr *ah;
	u16 pkey_index;
	const void *mad;
	u32 bytes;
	struct mad_connection connection;
} OWNED_BY(the caller);

/* What becomes of a directed-route SMP. */
enum mad_hop {
	MAD_HOP_ON,   /* the wire has it next */
	MAD_HOP_HERE, /* it is for this node */
	MAD_HOP_DROP,
};

/* A membership of a multicast group at the subnet administrator, or a subscription to a trap. */
struct mad_member {
	union ib_gid mgid; /* of a group */
	bool subscribes;
	u16 trap;	/* of a subscription */
	u16 pkey_index; /* of the partition in which the SA is asked */
	u8 states;	/* enum ib_sa_mc_join_states, or 1: subscribed; 0: none any more */
} OWNED_BY(the caller);

struct mad_port_ops {
	/* Sends a datagram. Runs on the port's queue, without a lock; may block for a bounded time.
	 * 0, or why it was dropped: the MAD layer takes it as lost on the way. -ENETUNREACH and
	 * -EPIPE say that nobody is there; -EAGAIN, that it shall be sent a little later. */
	int (*send)(void *arg, const struct mad_departure *d);
	/* REQ and SIDR_REQ for a service ID that equals `service_id` in the bits of `mask` come to
	 * this process from now on (`on`), or no more. Host byte order. `compare`, which may be
	 * NULL, is a hint: those whose private data does not match need not come. May block. 0,
	 * -ENOSPC or another negative errno; NULL: every MAD for the port comes here anyway. */
	int (*listen)(void *arg, u64 service_id, u64 mask, const struct ib_cm_compare_data *compare,
		      bool on);
	/* Unsolicited MADs to the port that *request describes come to this process from now on
	 * (`on`), or no more, whichever process of the host or the wire sends them. May block; not
	 * under a lock. 0, -EINVAL: an agent of another process takes some of them, or another
	 * negative errno; NULL: every MAD for the port comes here anyway. */
	int (*agent)(void *arg, const struct ib_mad_reg_req *request, bool on);
	/* Keeps the will where it outlives the process, in place of an earlier one of this index;
	 * NULL: takes that back. Any context; never blocks. NULL: nobody keeps wills. */
	void (*will)(void *arg, u32 index, const struct mad_will *will);
	/* Takes a directed-route SMP (IB_MGMT_MAD_SIZE bytes) one hop on, as IBA vol 1, 14.2.2 has
	 * it: `leaves`: a consumer or the MAD layer sends it; else it has arrived. May change it.
	 * Any context, without a lock; never blocks. NULL: the port knows no directed routes: such
	 * SMPs neither leave nor arrive. */
	enum mad_hop (*hop)(void *arg, void *smp, bool leaves);
	/* Says in which states this process is a member of a group at the SA, or subscribes: before
	 * it joins, and when it leaves. The node sends the leave, for the last process of
	 * the host, also if it dies. It gives each report to all subscribers, and answers it. May
	 * block; not under a lock. 0 or a negative errno; NULL: the port is not a node's. */
	int (*member)(void *arg, const struct mad_member *member);
	/* The process' slot. May block; a negative errno: the port cannot be used now. NULL: 0. */
	int (*slot)(void *arg);
} OWNED_BY(nobody: fixed);

struct mad_port_config {
	struct ib_device *device;
	u8 port_num;
	enum ib_qp_type qp_type; /* IB_QPT_GSI or IB_QPT_SMI */
	const struct mad_port_ops *ops;
	void *arg;
	struct work_queue *queue; /* runs all handlers of the port's agents; outlives it */
	bool at_once; /* the thread that posts a request sends it: ops->send is for any thread */
} OWNED_BY(nobody: fixed);

/* Makes the port known. NULL and *err: -EEXIST, -ENOMEM. */
struct mad_port *mad_port_add(const struct mad_port_config *config, int *err);
/* The port is gone: outstanding sends end with IB_WC_WR_FLUSH_ERR, posts say -ENODEV. Agents stay
 * their consumers' until ib_unregister_mad_agent. Not from a handler. */
void mad_port_remove(struct mad_port *port);
/* Keeps the port's memory until mad_port_release, also when it has been removed. Any context. */
void mad_port_hold(struct mad_port *port);
void mad_port_release(struct mad_port *port);
/* The process counts from now on in `place`, where tools see it: MAD_COUNTERS numbers, and behind
 * them MAD_CM_COUNTERS. It stays valid. What was counted before is added there. */
void mad_count_at(u64 *place);
/* Takes a copy of a MAD. Any context, never blocks. One that finds too many waiting, or that fails
 * the rules of Q_Key and P_Key, is counted and dropped. */
void mad_port_receive(struct mad_port *port, const struct mad_arrival *a);

#endif
