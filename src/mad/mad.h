/* mad.h: what other rooms of the midlayer (src/cm, and later SA and umad) need of the MAD layer
 * beside ib_mad.h.
 */
#ifndef MAD_MAD_H
#define MAD_MAD_H

#include <rdma/ib_cm.h>
#include <rdma/ib_mad.h>

#include "mad/port.h"

/* The slot of this process in its place (slot << MAD_SLOT_SHIFT), for communication IDs and
 * SIDR request IDs, which take the lower bits as they like. Fixed while the agent is registered.
 * Never blocks. */
u32 mad_id_bits(const struct ib_mad_agent *agent);

/* The queue on which the agent's handlers run. Outlives the agent. Never blocks. */
struct work_queue *mad_agent_queue(const struct ib_mad_agent *agent);

/* REQ and SIDR_REQ to the agent's port for a service ID that equals `service_id` in the bits of
 * `mask` come to this process from now on, if their private data matches (NULL: whatever it is).
 * Host byte order. Several processes may listen on one service ID; the first one that takes a
 * request gets it. One call of mad_unlisten for each. May block. 0, -ENOSPC (as many listeners as a
 * node has), -ENODEV. */
int mad_listen(struct ib_mad_agent *agent, u64 service_id, u64 mask,
	       const struct ib_cm_compare_data *compare);
void mad_unlisten(struct ib_mad_agent *agent, u64 service_id, u64 mask,
		  const struct ib_cm_compare_data *compare);

/* Returns when every MAD that was posted before has been sent once, or cannot be. May block; not on
 * the queue of a port. */
void mad_flush(struct ib_mad_agent *agent);

/* The node sends this MAD if the process dies before it is taken back (`will` NULL). `index` is the
 * caller's choice, and one number is one will in all of a process. Never blocks. */
void mad_will_set(struct ib_mad_agent *agent, u32 index, const struct mad_will *will);

/* Says in which states this process is a member of a group at the SA, or subscribes: before it
 * joins, and when it leaves, which the node then tells the SA, for the last process of
 * the host. The node answers reports. -EOPNOTSUPP: the port is not a node's. May block. 0 or
 * another negative errno. */
int mad_member_set(struct ib_mad_agent *agent, const struct mad_member *member);

/* Registers an agent for the reports of the port's SA. Where the port is a node's, reports
 * come to this process by its subscriptions (mad_member_set), beside other processes of the
 * host; elsewhere it is an agent as every other. May block. As ib_register_mad_agent. */
struct ib_mad_agent *mad_register_report_agent(struct ib_device *device, u8 port_num,
					       ib_mad_send_handler send_handler,
					       ib_mad_recv_handler recv_handler, void *context);

/* Counters of a process, for tests and status (path_counter_names). */
enum mad_counter {
	MAD_SENT,
	MAD_RECEIVED,
	MAD_SEND_FAILED,   /* refused by the port */
	MAD_RETRIED,
	MAD_TIMED_OUT,
	MAD_DROP_LENGTH,   /* not 256 bytes */
	MAD_DROP_VERSION,  /* base version, class 0 */
	MAD_DROP_QKEY,
	MAD_DROP_PKEY,
	MAD_DROP_FULL,     /* too many wait to be handled */
	MAD_DROP_NO_AGENT, /* nobody registered for it, or a response that nobody waits for */
	MAD_DROP_RMPP,     /* against RMPP's rules */
	MAD_COUNTERS
};
u64 mad_count(enum mad_counter c);
/* Counters of the CM of a process, which tools see behind those; index below MAD_CM_COUNTERS. Any
 * context. */
enum { MAD_CM_COUNTERS = 11 };
void mad_count_cm(u32 index);

#endif
