/* mad_priv.h: inside the MAD layer.
 *
 *    port.c  ports; judges what arrives, and keeps it until the queue runs
 *   agent.c  registration, and which agent a MAD is for
 *    send.c  sends: posting, timeouts, retries, cancelling
 * receive.c  responses find their requests; handlers
 *  format.c  what the class of a MAD says of its layout
 *
 * Everything that calls a handler runs on the port's work queue, one work after the other. mad_lock
 * guards what calls of consumers share with it; it is a leaf and held across no call of theirs.
 */
#ifndef MAD_MAD_PRIV_H
#define MAD_MAD_PRIV_H

#include "base/cond.h"
#include "base/list.h"
#include "mad/mad.h"

enum {
	MAD_VERSIONS = 8,      /* class versions that may be registered are below */
	MAD_ARRIVALS = 4096,   /* MADs of one port that wait for its queue */
	MAD_BURST = 64,	       /* MADs handled before sends have their turn */
	MAD_SEND_BYTES = 1 << 24, /* of one RMPP message to send */
	MAD_METHOD_WORDS = IB_MGMT_MAX_METHODS / (8 * sizeof(unsigned long)),
};

extern struct lock mad_lock;

struct mad_port {
	struct mad_port_config cfg FIXED;
	u32 id_bits GUARDED_BY(mad_lock);
	struct list_head node GUARDED_BY(mad_lock);
	struct list_head agents GUARDED_BY(mad_lock);
	struct list_head arrivals GUARDED_BY(mad_lock); /* struct mad_message */
	u32 arrival_count GUARDED_BY(mad_lock);
	bool gone GUARDED_BY(mad_lock);
	u32 refs GUARDED_BY(mad_lock); /* the owner's, and one for each agent */
	struct work receive_work GUARDS_ITSELF;
};

struct mad_agent {
	struct ib_mad_agent pub FIXED; /* but for `context`, which is the consumer's */
	struct mad_port *port FIXED;
	struct list_head node GUARDED_BY(mad_lock);
	struct ib_mad_reg_req request FIXED;
	bool unsolicited FIXED; /* `request` counts */
	int snoops FIXED;	/* enum ib_mad_snoop_flags; not 0: the agent only looks */
	struct list_head sends GUARDED_BY(mad_lock); /* outstanding: struct mad_send */
	u32 refs GUARDED_BY(mad_lock); /* outstanding sends, and handlers that run */
	bool ending GUARDED_BY(mad_lock);
};

struct mad_send {
	struct ib_mad_send_buf buf OWNED_BY(the consumer unless it is outstanding);
	struct work work GUARDS_ITSELF; /* transmits, or judges a timeout */
	struct list_head node GUARDED_BY(mad_lock);
	u32 remote_qpn FIXED;
	u16 pkey_index FIXED;
	bool rmpp FIXED; /* an RMPP message */
	bool outstanding GUARDED_BY(mad_lock);
	bool cancelled GUARDED_BY(mad_lock);
	bool waiting GUARDED_BY(mad_lock); /* sent; the deadline is a timeout */
	int retries_left GUARDED_BY(mad_lock);
	bool has_dgid GUARDED_BY(mad_lock);
	union ib_gid dgid GUARDED_BY(mad_lock); /* whose response it awaits, with has_dgid */
	u64 bytes[] OWNED_BY(the consumer unless it is outstanding);
};

/* One received MAD; of an RMPP message the first holds the others. */
struct mad_message {
	struct ib_mad_recv_wc recv;
	struct ib_wc wc;
	struct ib_grh grh;
	struct list_head node; /* of the port's arrivals */
	struct ib_mad mad;
} OWNED_BY(the port until a handler has it);

static inline struct mad_agent *mad_agent_of(struct ib_mad_agent *pub)
{
	return container_of(pub, struct mad_agent, pub);
}

static inline struct mad_send *mad_send_of(struct ib_mad_send_buf *buf)
{
	return container_of(buf, struct mad_send, buf);
}

static inline bool mad_is_smi_class(u8 class)
{
	return class == IB_MGMT_CLASS_SUBN_LID_ROUTED || class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE;
}

static inline bool mad_is_vendor_oui_class(u8 class)
{
	return class >= IB_MGMT_CLASS_VENDOR_RANGE2_START &&
	       class <= IB_MGMT_CLASS_VENDOR_RANGE2_END;
}

/* ---- port.c ---- */
struct mad_port *mad_port_find(const struct ib_device *device, u8 port_num, enum ib_qp_type type)
	REQUIRES(mad_lock);
/* Gives up a hold; the last one frees the port. */
void mad_port_put(struct mad_port *port) REQUIRES(mad_lock);
void mad_count_one(enum mad_counter c);

/* ---- agent.c ---- */
/* The agent that registered for the unsolicited MAD, held; NULL: none. */
struct mad_agent *mad_agent_for(struct mad_port *port, const struct ib_mad *mad)
	REQUIRES(mad_lock);
/* The agent whose requests have this upper half of a transaction ID, held; NULL: none. */
struct mad_agent *mad_agent_by_tid(struct mad_port *port, u32 hi_tid) REQUIRES(mad_lock);
void mad_agent_hold(struct mad_agent *agent) REQUIRES(mad_lock);
void mad_agent_put(struct mad_agent *agent);
/* Shows a received MAD, or the end of a send, to the port's snooping agents. On the queue. */
void mad_snoop_receive(struct mad_port *port, struct ib_mad_recv_wc *recv);
void mad_snoop_send(struct mad_port *port, struct ib_mad_send_wc *wc);

/* ---- send.c ---- */
/* The outstanding request that the response is for; NULL: none. It stays outstanding. */
struct mad_send *mad_send_find(struct mad_agent *agent, const struct mad_message *response)
	REQUIRES(mad_lock);
/* Ends an outstanding send and tells its agent. On the queue. */
void mad_send_end(struct mad_send *send, enum ib_wc_status status, u32 vendor_err);
/* Has an outstanding send end with IB_WC_WR_FLUSH_ERR. */
void mad_send_flush(struct mad_send *send) REQUIRES(mad_lock);

/* ---- receive.c ---- */
/* Hands a judged MAD to its agent, or counts why there is none. Takes *m. On the queue. */
void mad_receive(struct mad_port *port, struct mad_message *m);

#endif
