/* mad_priv.h: inside the MAD layer.
 *
 *    port.c  ports; judges what arrives, and keeps it until the queue runs
 *   agent.c  registration, and which agent a MAD is for
 *    send.c  sends: posting, timeouts, retries, cancelling
 * receive.c  responses find their requests; the driver and handlers
 *    rmpp.c  messages of several MADs: which half a packet is for
 * rmpp_send.c  segments on their way out: windows, repetition, ACKs of the peer
 * rmpp_recv.c  segments that arrive: reassembly, ACKs, limits
 *     hop.c  directed-route SMPs that leave, arrive or stay on this node
 *   reply.c  answers of the MAD layer itself to what has arrived
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
	MAD_VERSIONS = 8, /* an agent's class version is 0 to 7 */
	/* MADs that have come to one port and wait for its queue. One that begins an exchange (a
	 * request) is dropped from MAD_BEGINNINGS on, so that answers still find room. */
	MAD_ARRIVALS = 16384,
	MAD_BEGINNINGS = 12288,
	MAD_BURST = 64, /* MADs that are handled before sends have their turn */
	/* A MAD for which the port has no room is tried again MAD_DELAYS times, MAD_DELAY_MS
	 * apart. An agent may have MAD_DELAYED sends under way; with more such a MAD fails. */
	MAD_DELAY_MS = 2,
	MAD_DELAYS = 100,
	MAD_DELAYED = 4096,
	MAD_SEND_BYTES = 1 << 24, /* of one RMPP message to send */
	MAD_METHOD_WORDS = IB_MGMT_MAX_METHODS / (8 * sizeof(unsigned long)),
};

/* RMPP */
enum {
	RMPP_BUCKETS = 64,
	RMPP_WINDOW = 64, /* segments that a sender may have in flight */
	/* Messages that one port receives: with their first segment only, with more than one
	 * segment, and of either kind from one source. */
	RMPP_HALF_OPEN = 1024,
	RMPP_OPEN = 512,
	RMPP_SOURCE = 64,
	/* Complete messages that are remembered for RMPP_KEEP_MS, to acknowledge segments that
	 * their sender repeats. */
	RMPP_KEPT = 512,
	RMPP_KEEP_MS = 10000,
	RMPP_SEGMENTS = 1 << 17,  /* segments that a port holds, of all its messages */
	RMPP_ACK_MS = 2000,	  /* the longest wait of a sender for an ACK */
	RMPP_RESP_MAX_MS = 20000, /* the most that a peer's RespTime may add to it */
	RMPP_IDLE_MS = 20000,	/* a receiver gives up a message this long after its last segment */
	RMPP_TOTAL_MS = 600000, /* and this long after its first */
};

extern struct lock mad_lock;

/* Which message a segment belongs to. */
struct rmpp_key {
	__be64 tid;
	u8 sgid[16]; /* all zeroes without a GRH */
	u32 src_qp;
	u16 slid;
	u8 mgmt_class;
	u8 method;
} OWNED_BY(nobody: fixed);

enum rmpp_state { RMPP_STATE_HALF_OPEN, RMPP_STATE_OPEN, RMPP_STATE_KEPT, RMPP_STATES };

/* A message that arrives. */
struct rmpp_recv {
	struct list_head bucket; /* of the port */
	struct list_head node;	 /* of the port's list of its state, the oldest first */
	struct work work;	 /* its deadline */
	struct mad_agent *agent;
	struct mad_send *request; /* that it answers; NULL: unsolicited */
	struct rmpp_key key;
	enum rmpp_state state;
	struct list_head segments; /* ib_mad_recv_buf.list, by number */
	u32 held;      /* segments in that list */
	u32 in_order;  /* all up to this one have come */
	u32 highest;   /* that has come */
	u32 acked;     /* the ACK that said so much was the last */
	u32 gap_acked; /* in_order when a gap was last acknowledged */
	u32 last;      /* the number of the last segment; 0: not known */
	u32 total;     /* bytes, as the first segment says; 0: not known */
	u32 reply_window; /* KEPT: with so many segments may the response begin */
	u64 begun_ns, heard_ns;
} OWNED_BY(the queue of the port);

/* A port's messages that arrive. */
struct rmpp_port {
	struct list_head buckets[RMPP_BUCKETS];
	struct list_head states[RMPP_STATES];
	u32 counts[RMPP_STATES];
	u32 segments; /* held */
} OWNED_BY(the queue of the port);

/* The RMPP half of a send. */
struct rmpp_send {
	u32 count;   /* segments; 0: no RMPP message */
	u32 sent;    /* the last one that left; a timeout sets it back to `acked` */
	u32 highest; /* that ever left */
	u32 acked;
	u32 window;  /* segments up to this one may be sent */
	u32 resent;  /* the segment that a repeated ACK had repeated last */
	u32 resp_ms; /* the peer's response time */
} OWNED_BY(the queue of the port);

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
	struct rmpp_port rmpp GUARDS_ITSELF;
};

struct mad_agent {
	struct ib_mad_agent pub FIXED; /* but for `context`, which is the consumer's */
	struct mad_port *port FIXED;
	struct list_head node GUARDED_BY(mad_lock);
	struct ib_mad_reg_req request FIXED;
	bool unsolicited FIXED; /* `request` counts */
	bool subscribes FIXED;	/* the node gives it reports by its subscriptions */
	int snoops FIXED;	/* enum ib_mad_snoop_flags; not 0: the agent only looks */
	struct list_head sends GUARDED_BY(mad_lock); /* outstanding: struct mad_send */
	u32 refs GUARDED_BY(mad_lock); /* outstanding sends, and handlers that run */
	bool ending GUARDED_BY(mad_lock);
	struct work end_work GUARDS_ITSELF; /* forgets messages that arrive for it */
};

struct mad_send {
	struct ib_mad_send_buf buf OWNED_BY(the consumer unless it is outstanding);
	struct work work GUARDS_ITSELF; /* transmits, or judges a timeout */
	struct list_head node GUARDED_BY(mad_lock);
	u32 remote_qpn FIXED;
	u16 pkey_index FIXED;
	bool rmpp FIXED; /* made for RMPP */
	bool outstanding GUARDED_BY(mad_lock);
	bool cancelled GUARDED_BY(mad_lock);
	bool waiting GUARDED_BY(mad_lock); /* sent; the deadline is a timeout */
	bool departing GUARDED_BY(mad_lock); /* its poster sends it: it does not end meanwhile */
	int retries_left GUARDED_BY(mad_lock);
	int retried GUARDED_BY(mad_lock);
	bool local FIXED; /* a directed-route SMP to this node itself */
	struct rmpp_send out GUARDS_ITSELF;
	struct rmpp_recv *answer OWNED_BY(the queue of the port); /* that arrives; NULL: none */
	u8 delays_left GUARDED_BY(mad_lock); /* while the port has no room for it */
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

/* QP0 has no Q_Key: its packets are not checked for one. */
static inline u32 mad_port_qkey(const struct mad_port *port)
{
	return port->cfg.qp_type == IB_QPT_SMI ? 0 : IB_QP1_QKEY;
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
/* Does a MAD of this transaction and class come from where the send goes to? */
bool mad_send_is_peer(const struct mad_send *send, const struct mad_message *m)
	REQUIRES(mad_lock);
/* Sends IB_MGMT_MAD_SIZE bytes to where the send goes: as mad_port_ops.send. On the queue. */
int mad_send_try(struct mad_send *send, const void *mad);
/* Counts what became of them. IB_WC_SUCCESS, also if they are lost; IB_WC_RETRY_EXC_ERR: nobody is
 * there. */
enum ib_wc_status mad_send_judge(int err);
/* The way has no room: the send's work runs later, and others go meanwhile. False: it has waited
 * long enough, or too many are under way. On the queue. */
bool mad_send_delay(struct mad_send *send);
/* Begins to wait for a response or an ACK. False: none is expected. On the queue. */
bool mad_send_await(struct mad_send *send);
/* Takes the timeout of an outstanding send away, for good or until mad_send_await. On the queue. */
void mad_send_pause(struct mad_send *send);
/* A timeout of an outstanding send has expired. On the queue. */
void mad_send_expire(struct mad_send *send);

/* ---- rmpp.c ---- */
/* Is the MAD a packet of RMPP, and does the agent leave that to the midlayer? */
static inline bool rmpp_is_packet(const struct mad_agent *agent, const struct ib_mad *mad)
{
	const struct ib_rmpp_mad *rmpp = (const void *)mad;

	return agent->pub.rmpp_version != 0 && ib_is_mad_class_rmpp(mad->mad_hdr.mgmt_class) &&
	       (ib_get_rmpp_flags(&rmpp->rmpp_hdr) & IB_MGMT_RMPP_FLAG_ACTIVE) != 0;
}
/* Deals with such a packet. Takes *m. On the queue. */
void rmpp_receive(struct mad_agent *agent, struct mad_message *m);
/* Answers a packet: an ACK, a STOP or an ABORT. */
void rmpp_reply(struct mad_port *port, struct mad_message *to, u8 type, u8 status, u32 segment,
		u32 window);

/* ---- rmpp_send.c ---- */
/* Makes a send that is about to be posted begin at its first segment. */
void rmpp_send_begin(struct mad_send *send);
/* Sends what the window allows, and waits. */
void rmpp_send_transmit(struct mad_send *send);
/* The send's timeout: goes back to the first segment without ACK. */
void rmpp_send_rewind(struct mad_send *send);
/* Not all segments are acknowledged. */
bool rmpp_send_is_under_way(const struct mad_send *send);
/* How long to wait now. */
u64 rmpp_send_timeout_ms(const struct mad_send *send);
/* Tells the peer that the sender gives up a message of which a part has left; else nothing. */
void rmpp_send_abort(struct mad_send *send, u8 status);
/* The outstanding RMPP send whose receiver has sent *m; NULL: none. */
struct mad_send *rmpp_send_find(struct mad_agent *agent, const struct mad_message *m);
/* An ACK: RMPP's status if it breaks a rule, else 0. */
u8 rmpp_send_ack(struct mad_agent *agent, struct mad_message *m);

/* ---- rmpp_recv.c ---- */
void rmpp_port_init(struct rmpp_port *rmpp);
/* What arrives from the sender of *m with its transaction ID, method and class; NULL: nothing. */
struct rmpp_recv *rmpp_recv_find(struct mad_port *port, const struct mad_message *m);
/* A segment: RMPP's status if it breaks a rule, else 0. Takes *m unless it answers a status. */
u8 rmpp_recv_data(struct mad_agent *agent, struct mad_message *m);
/* The requester waits for its response, which may begin with `window` segments. */
void rmpp_recv_turn(struct mad_port *port, const struct mad_message *m, u32 window);
/* With how many segments the response to a request that has come may begin. */
u32 rmpp_recv_reply_window(struct mad_send *response);
/* Forgets the message and frees its segments. Its request waits on. */
void rmpp_recv_drop(struct rmpp_recv *r);
/* Forgets everything that arrives for the agent. */
void rmpp_recv_drop_agent(struct mad_agent *agent);

/* ---- hop.c ---- */
/* Takes a directed-route SMP that leaves or has arrived one hop on. */
enum mad_hop mad_hop_directed(const struct mad_port *port, void *smp, bool leaves);
/* The same for any MAD: others leave, or are for this node. */
static inline enum mad_hop mad_hop(const struct mad_port *port, void *mad, bool leaves)
{
	if (likely(((struct ib_mad_hdr *)mad)->mgmt_class != IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE))
		return leaves ? MAD_HOP_ON : MAD_HOP_HERE;
	return mad_hop_directed(port, mad, leaves);
}
/* Gives the port a MAD of its own as if it had arrived. */
void mad_hop_here(struct mad_port *port, const void *mad);

/* ---- reply.c ---- */
/* Sends IB_MGMT_MAD_SIZE bytes back to where `to` came from, with the partition that it came with;
 * a directed-route SMP goes a hop on. What cannot be sent is lost, as on the way. On the queue. */
void mad_reply(struct mad_port *port, struct mad_message *to, void *mad);

/* ---- receive.c ---- */
/* Hands a judged MAD to its agent, or counts why there is none. Takes *m. On the queue. */
void mad_receive(struct mad_port *port, struct mad_message *m);
/* Hands a whole message to the agent's handler, and ends the request that it answers (NULL: none).
 * Takes *m. On the queue. */
void mad_receive_deliver(struct mad_agent *agent, struct mad_send *request, struct mad_message *m);
/* Counts and frees. */
void mad_receive_drop(struct mad_message *m, enum mad_counter why);

#endif
