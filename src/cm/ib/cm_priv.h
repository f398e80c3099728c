/* cm_priv.h: the inside of the IB CM.
 *
 * One lock, cm.lock, guards an instance: its tables and all its ids. What is to be sent is
 * queued under it and leaves in cm_leave, without it. Timers, handlers and freeing run on the
 * instance's queue only, one after the other: so no timer of an id can run while it is freed.
 */
#ifndef CM_IB_CM_PRIV_H
#define CM_IB_CM_PRIV_H

#include "base/clock.h"
#include "base/cond.h"
#include "cm/ib/cm.h"
#include "cm/message/message.h"
#include "mad/mad.h"

struct cm_id;

/* ---- tables: ids by a key of two numbers ----------------------------------------------------- */

enum cm_key_kind {
	CM_BY_LOCAL,
	CM_BY_REMOTE,
	CM_BY_QPN,
	CM_BY_SIDR,
	CM_BY_SERVICE,
	CM_BY_PEER,
	CM_KEYS
};

/* An id's place in one table. Ids of one key lie in the order of insertion. */
struct cm_key {
	struct cm_key *next;
	struct cm_id *id;
	u64 high, low;
	bool linked;
} OWNED_BY(cm.lock);

struct cm_table {
	struct cm_key **buckets;
	u32 mask, count;
} OWNED_BY(cm.lock);

/* 0 or -ENOMEM. */
int cm_table_init(struct cm_table *t);
void cm_table_destroy(struct cm_table *t);
/* The table grows if it can. */
void cm_table_insert(struct cm_table *t, struct cm_key *key, u64 high, u64 low);
/* One that is in no table stays as it is. */
void cm_table_remove(struct cm_table *t, struct cm_key *key);
/* The first key, or the next behind `key`, with these numbers; or NULL. */
struct cm_key *cm_table_find(const struct cm_table *t, u64 high, u64 low);
struct cm_key *cm_table_next(const struct cm_key *key);

/* ---- ids ------------------------------------------------------------------------------------- */

/* A route, and what the path says of time. */
struct cm_av {
	struct cm_route route;
	u8 timeout; /* Local ACK Timeout: 4.096 us << timeout */
	bool valid;
} OWNED_BY(cm.lock);

/* An event on its way to the handler. */
struct cm_note {
	struct list_head link;
	struct ib_cm_event event;
	struct ib_sa_path_rec primary, alternate;
	u8 private_data[CM_DATA_BYTES];
	u8 info[IB_CM_REJ_ARI_LENGTH];
} OWNED_BY(cm.lock until the handler gets it);

struct cm_id {
	struct ib_cm_id pub; /* the consumer's view. First */
	struct cm *cm;
	struct cm_device *dev;
	struct cm_key keys[CM_KEYS];
	struct list_head all;	 /* cm.ids */
	struct list_head masked; /* cm.masked */
	struct list_head notes; /* struct cm_note, oldest first */
	struct list_head ready; /* cm.ready: notes wait for the handler; or cm.dead */
	struct list_head changed; /* cm.changed: its will is to be written anew */
	u32 will;		  /* slot + 1 of its will; 0: none */

	bool orphan;	/* the consumer has destroyed it */
	struct list_head orphaned; /* cm.orphans */
	bool in_handler;
	u32 waiting;	/* threads in ib_destroy_cm_id */
	u32 children;	/* of a listening id: requests that its handler has not returned from */
	struct cm_id *listener; /* of such a request */

	/* The one deadline: of the outstanding request, or of timewait. */
	struct timer timer;
	bool armed;
	bool early; /* the deadline is a repetition of cm_request_again */
	u8 early_left; /* such repetitions of this REQ or SIDR_REQ */

	/* What is repeated until it is answered (REQ, REP, DREQ, LAP, SIDR_REQ). */
	u8 request[CM_MAD_BYTES];
	u8 tries_left;
	u64 timeout_ns;
	/* The last answer (MRA, RTU, DREP, APR), for whoever asks again. */
	u8 reply[CM_MAD_BYTES];
	enum cm_attr reply_attr; /* 0: none */

	struct cm_av av, alternate;
	struct cm_av proposed; /* the alternate path of a LAP that the consumer has not answered */
	u64 tid; /* of the exchange */
	u64 req_tid; /* of the REQ that began the connection */
	u64 remote_guid;
	u32 local_qpn, remote_qpn;
	u32 rq_psn, sq_psn;
	enum ib_qp_type qp_type;
	u16 pkey;
	u8 path_mtu, responder_resources, initiator_depth, retry_count, rnr_retry_count;
	u8 max_cm_retries, remote_response_timeout, target_ack_delay;
	bool near; /* its REQ has come from this host */
	bool brief; /* cm_answer_briefly */
	bool alternate_refused; /* its REQ has one that cm_alternate_is_peers denies */
	bool peer_to_peer;
	bool peer_known; /* the node steers REQs for peer_service here, for this id */
	u64 peer_service;
	bool passive; /* the REQ came from the peer */
	struct ib_cm_compare_data *compare;
	struct ib_sa_path_rec primary_path;
} OWNED_BY(cm.lock);

/* ---- the instance ---------------------------------------------------------------------------- */

/* A MAD that leaves when the lock is released. */
struct cm_departure {
	struct list_head link;
	struct cm_device *dev;
	struct cm_route route;
	u8 mad[CM_MAD_BYTES];
} OWNED_BY(cm.lock until it leaves);

enum { CM_BACKLOG_MAX = 8192, CM_ORPHANS_MAX = 65536 };
/* Peers name times by exponents of up to 2.4 hours; these are the bounds of what they get. The
 * longest that IBA's fabrics need are exponents of about 22 (17 s). */
#define CM_TIMEOUT_MIN_NS NS_PER_MS
#define CM_TIMEOUT_MAX_NS (60 * NS_PER_S)
#define CM_TIMEWAIT_MAX_NS (60 * NS_PER_S)
#define CM_HOLD_NS (300 * NS_PER_S)

/* Slots of wills: those that were given back, and the lowest that nobody has had. */
struct cm_will_slots {
	u32 *free;
	u32 free_count, space; /* `space` >= `next`, so that giving back needs no memory */
	u32 next;
} OWNED_BY(cm.lock);

struct cm {
	struct lock lock;
	struct cm_table tables[CM_KEYS] GUARDED_BY(lock);
	struct list_head ids GUARDED_BY(lock);
	struct list_head masked GUARDED_BY(lock); /* listeners with a mask */
	struct list_head ready GUARDED_BY(lock);
	struct list_head dead GUARDED_BY(lock);
	struct list_head outbox GUARDED_BY(lock);
	struct list_head changed GUARDED_BY(lock); /* ids whose wills are written in cm_leave */
	struct cm_will_slots wills GUARDED_BY(lock);
	struct cond idle GUARDED_BY(lock); /* signalled when a handler has returned */
	pthread_t runner GUARDED_BY(lock); /* who runs handlers, while `running` */
	bool running GUARDED_BY(lock);
	u32 id_count GUARDED_BY(lock);
	u32 next_number GUARDED_BY(lock);
	u32 next_service GUARDED_BY(lock);
	u32 next_tid GUARDED_BY(lock);
	u32 backlog GUARDED_BY(lock); /* requests that no handler has seen */
	u32 backlog_max FIXED;
	/* Orphans whose DREQ or timewait has not ended, the oldest first. It gives way to one more
	 * than orphans_max: the peer has been told already. */
	struct list_head orphans GUARDED_BY(lock);
	u32 orphan_count GUARDED_BY(lock);
	u32 orphans_max FIXED;
	u64 counters[CM_COUNTERS] GUARDED_BY(lock);
	bool shown FIXED; /* the process' own: tools see its counters */
	struct timer_set timers GUARDS_ITSELF;
	struct work work GUARDS_ITSELF;	 /* something is ready or dead */
	struct work alarm GUARDS_ITSELF; /* a deadline */
};

static inline struct cm_id *cm_id_of(struct ib_cm_id *pub)
{
	return container_of(pub, struct cm_id, pub);
}

void cm_enter(struct cm *cm) ACQUIRE(&cm->lock);
/* Releases the lock, sends what was queued, and has the queue run what is ready. */
void cm_leave(struct cm *cm) RELEASE(&cm->lock);

/* In a forked child: makes the lock anew; the ids lose their device. */
void cm_drop_in_child(struct cm *cm);

static inline void cm_tally(struct cm *cm, enum cm_counter c) REQUIRES(&cm->lock)
{
	cm->counters[c]++;
	if (cm->shown)
		mad_count_cm(c);
}

/* One for each message; the lock is held. */
struct cm_received {
	struct cm_device *dev;
	const struct cm_arrival *a;
	struct cm_msg *msg;
} OWNED_BY(cm.lock);

/* instance.c. All of these need the lock. Queues a MAD; one that finds no memory is lost. */
void cm_queue(struct cm *cm, struct cm_device *dev, const struct cm_route *route, const u8 *mad)
	REQUIRES(&cm->lock);
/* Packs and queues. */
void cm_queue_msg(struct cm *cm, struct cm_device *dev, const struct cm_route *route,
		  const struct cm_msg *msg) REQUIRES(&cm->lock);

/* Is it a GID of any device of the instance: of this host? */
bool cm_gid_is_own(struct cm *cm, const union ib_gid *gid) REQUIRES(&cm->lock);

/* id.c */
struct cm_id *cm_id_create(struct cm *cm, struct cm_device *dev, ib_cm_handler handler,
			   void *context) REQUIRES(&cm->lock);
void cm_id_link(struct cm *cm, struct cm_id *id, enum cm_key_kind kind, u64 high, u64 low)
	REQUIRES(&cm->lock);
void cm_id_unlink(struct cm *cm, struct cm_id *id, enum cm_key_kind kind) REQUIRES(&cm->lock);
/* IDLE again: nothing outstanding, no peer. An orphan is dead then. */
void cm_id_reset(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* Has the id freed, as soon as nobody uses it. */
void cm_id_bury(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* The consumer lets go: ends what the id is in the middle of. */
void cm_id_abandon(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
void cm_id_free(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);

/* event.c. A note for the id, or NULL: no memory (counted). */
struct cm_note *cm_note_create(struct cm *cm, struct cm_id *id, enum ib_cm_event_type type)
	REQUIRES(&cm->lock);
/* With the message's private data. */
struct cm_note *cm_note_of(struct cm *cm, struct cm_id *id, enum ib_cm_event_type type,
			   struct cm_msg *msg) REQUIRES(&cm->lock);
/* Gives the note to the id's handler; an orphan has none. NULL: nothing. */
void cm_note_post(struct cm *cm, struct cm_id *id, struct cm_note *note) REQUIRES(&cm->lock);
void cm_note_free(struct cm_note *note); /* one that was not posted, or NULL */
void cm_note_drop_all(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* `id` is a request for the listener, whose handler has not returned from it. */
void cm_child_new(struct cm *cm, struct cm_id *listener, struct cm_id *id) REQUIRES(&cm->lock);
void cm_run(struct work *w);
void cm_alarm(struct work *w);

/* retry.c. Queues the message and repeats it up to `retries` times. */
void cm_request_start(struct cm *cm, struct cm_id *id, const struct cm_msg *msg, u64 timeout_ns,
		      u8 retries) REQUIRES(&cm->lock);
/* The request has been answered. */
void cm_request_end(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* The answer may take longer, from now on. */
void cm_request_extend(struct cm *cm, struct cm_id *id, u64 timeout_ns) REQUIRES(&cm->lock);
void cm_request_repeat(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* Queues an answer, and keeps it for whoever asks again. */
void cm_reply_send(struct cm *cm, struct cm_id *id, const struct cm_msg *msg) REQUIRES(&cm->lock);
void cm_reply_keep(struct cm *cm, struct cm_id *id, const struct cm_msg *msg) REQUIRES(&cm->lock);
/* Sends the kept answer once more, if it is of this kind. */
void cm_reply_repeat(struct cm *cm, struct cm_id *id, enum cm_attr attr) REQUIRES(&cm->lock);
void cm_timewait_enter(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
void cm_timer(struct timer *t);
/* Nanoseconds of an exponent: 4.096 us << exponent. */
u64 cm_exponent_ns(u8 exponent);
/* What a peer that has sent a REQ may ask of this host's requests, by the exponent and the
 * number of retries of that REQ: a timeout of at least CM_TIMEOUT_MIN_NS and at most
 * CM_TIMEOUT_MAX_NS, and so few retries that all timeouts together are no more than CM_HOLD_NS. */
u64 cm_request_timeout(u8 exponent);
u8 cm_request_retries(u64 timeout_ns, u8 retries);

/* path.c */
int cm_av_from_path(struct cm_device *dev, const struct ib_sa_path_rec *path, struct cm_av *av);
/* May the alternate path that a REQ or LAP names lead to the message's sender? With a GRH only its
 * own GID may, and any of this host if the message comes from there: else this host would send to a
 * third one, which has not asked. Without a GRH nothing tells which LIDs one host has. */
bool cm_alternate_is_peers(struct cm *cm, const struct cm_received *r,
			   const struct cm_wire_path *wire) REQUIRES(&cm->lock);
/* Does the message leave the LID to the datagram that carries it, as between subnets? */
bool cm_path_leaves_lid(u16 lid, const struct cm_wire_path *wire);
/* The path of a message as its receiver sees it. LIDs that it leaves open are those of `back`. */
void cm_path_from_wire(const struct cm_wire_path *wire, const struct cm_req_msg *req,
		       const struct cm_route *back, struct ib_sa_path_rec *path);
void cm_path_to_wire(const struct ib_sa_path_rec *path, u8 ack_delay, struct cm_wire_path *wire);
/* The Local ACK Timeout of a path: there, its answer, and the answerer's delay. */
u8 cm_ack_timeout(u8 ack_delay, u8 packet_life_time);

/* will.c */
/* What an id that ends owes its peer. */
enum cm_farewell {
	CM_FAREWELL_NONE,     /* nothing, or the peer has not heard of it */
	CM_FAREWELL_WITHDRAW, /* REJ by the GUID: the peer may not have answered yet */
	CM_FAREWELL_REFUSE,   /* REJ */
	CM_FAREWELL_DREQ,
	CM_FAREWELL_DREP,
	CM_FAREWELL_SIDR_REP, /* a refusal: cm_sidr_refusal */
};
/* In each state: IBA vol 1, 12.9.8. */
enum cm_farewell cm_farewell_of(enum ib_cm_state state);
extern const struct ib_cm_sidr_rep_param cm_sidr_refusal;
/* Every change of an id's state. */
void cm_state_set(struct cm *cm, struct cm_id *id, enum ib_cm_state state) REQUIRES(&cm->lock);
/* The id's will is out of date, though its state stays. */
void cm_will_renew(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* Before the lock is released and MADs leave. */
void cm_will_write_all(struct cm *cm) REQUIRES(&cm->lock);
/* The id is about to be freed, or to lose its device. */
void cm_will_drop(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);

/* listen.c */
struct cm_id *cm_listener_find(struct cm *cm, struct cm_device *dev, u64 service_id,
			       const u8 *private_data) REQUIRES(&cm->lock);
void cm_listen_end(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);

/* reject.c. A REJ to whoever sent `msg`, for which there is no id. */
void cm_reject_stranger(struct cm *cm, struct cm_device *dev, const struct cm_arrival *a,
			const struct cm_msg *msg, enum ib_cm_rej_reason reason, const void *ari,
			u8 ari_length) REQUIRES(&cm->lock);
/* The REJ for the peer in the id's present state; and so DREQ, DREP and SIDR_REP below. */
struct cm_msg cm_rej_for(const struct cm_id *id, enum ib_cm_rej_reason reason, const void *ari,
			 u8 ari_length);
/* Tells the peer that the id waits no longer for its answer; the id stays as it is. */
void cm_reject_for_timeout(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
/* What ib_send_cm_rej does. */
int cm_reject(struct cm *cm, struct cm_id *id, enum ib_cm_rej_reason reason, const void *ari,
	      u8 ari_length, const void *private_data, u8 private_data_len) REQUIRES(&cm->lock);

/* leave.c */
struct cm_msg cm_dreq_for(const struct cm_id *id);
struct cm_msg cm_drep_for(const struct cm_id *id);
int cm_leave_send(struct cm *cm, struct cm_id *id, const void *private_data, u8 private_data_len)
	REQUIRES(&cm->lock);
int cm_leave_answer(struct cm *cm, struct cm_id *id, const void *private_data, u8 private_data_len)
	REQUIRES(&cm->lock);

/* sidr.c */
struct cm_msg cm_sidr_rep_for(const struct cm_id *id, const struct ib_cm_sidr_rep_param *param);
int cm_sidr_answer(struct cm *cm, struct cm_id *id, const struct ib_cm_sidr_rep_param *param)
	REQUIRES(&cm->lock);

/* A header for a message of the id: `attr` and the exchange's transaction ID. */
struct cm_msg cm_msg_for(const struct cm_id *id, enum cm_attr attr);
/* A new exchange of the id's own begins. */
void cm_tid_renew(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock);
void cm_msg_fill_private(struct cm_msg *msg, const void *private_data, u8 length);

/* id.c. The id with this local communication ID, and the remote one, if that is not 0, whose peer
 * has sent the message. */
struct cm_id *cm_id_find(struct cm *cm, const struct cm_received *r, u32 local_id, u32 remote_id)
	REQUIRES(&cm->lock);
/* Has the id's peer sent the message? */
bool cm_id_is_peers(const struct cm_id *id, const struct cm_arrival *a);
/* The first id in the table of CM_BY_REMOTE or CM_BY_QPN with these numbers whose REQ has gone to,
 * or come from, the port that has sent the message. NULL: none. Another port may name both numbers:
 * GUIDs are no secret, and containers may share one. */
struct cm_id *cm_id_find_of_port(struct cm *cm, const struct cm_received *r, enum cm_key_kind kind,
				 u64 guid, u32 number) REQUIRES(&cm->lock);

/* peer.c */
/* REQs for the service come to this process from now on, and no more. Without the lock; may block.
 * 0 or a negative errno. */
int cm_peer_open(struct cm_id *id, u64 service_id);
void cm_peer_close(struct cm_id *id);
/* Of two that ask each other, the one with the greater GUID, or else QPN, is the active side. */
bool cm_peer_goes_first(const struct cm_id *id, const struct cm_req_msg *m);
/* An id of ours that asks for the same service, peer to peer, and of the sender; NULL: none. */
struct cm_id *cm_peer_find(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);

/* retry.c */
/* The outstanding REQ or SIDR_REQ has found no listener, or no room. True: it may have come before
 * its listener, or before a descriptor was free, and is sent again soon. False: the consumer is to
 * be told. */
bool cm_request_again(struct cm *cm, struct cm_id *id, const struct cm_received *r)
	REQUIRES(&cm->lock);

void cm_receive_req(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_mra(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_rej(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_rep(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_rtu(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_dreq(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_drep(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_lap(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_apr(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_sidr_req(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);
void cm_receive_sidr_rep(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock);

#endif
