/* ibt_priv.h: inside the engine: queue pairs, work queue elements, and who calls whom.
 *
 *   post_send -> wqe -> requester -> path          (sq_lock)
 *   path -> engine -> responder -> memory, CQ      (rq_lock)
 *                  -> completer -> memory, CQ      (sq_lock), then the requester again
 *
 * Over a path that loses packets, RC: requester -> stream -> window -> path, and
 * completer -> retry -> stream; window sets others going whose turn it is. After a notification of
 * congestion rate says when, for UC too.
 */
#ifndef IBT_IBT_PRIV_H
#define IBT_IBT_PRIV_H

#include <string.h>

#include "ibt/ibt.h"

enum {
	PULL_BYTES = 1 << 20,  /* at most, per packet: others want the engine too */
	PULL_FROM = 64 << 10,  /* smaller messages go through the ring */
	DIRECT_WAIT_FROM = 16 << 10, /* one-sided ones that are not shorter wait for their turn */
};
enum { PSN_MASK = 0xffffff, IBT_DEFAULT_PKEY = 0xffff };

/* A send work request. Followed by its SGEs or its inline data. */
struct send_wqe {
	u64 wr_id;
	u8 opcode; /* enum ibv_wr_opcode */
	u8 flags;  /* enum ibv_send_flags; SIGNALED is set where sq_sig_all says so */
	u8 sge_count;
	bool answered; /* READ, atomic: the response has come */
	bool pull;     /* the receiver copies from our memory */
	bool placed;   /* WRITE_WITH_IMM: its data went by ourselves, only the notice in a packet */
	u8 stretch;    /* READ: log2 of how much longer its segments are than stream.segment */
	u32 imm;       /* immediate data, or the key to invalidate */
	u32 length;
	u32 first_psn; /* set when first transmitted */
	/* The same, with `pull` and `placed`; 0 before. Sent again it keeps them: the peer may have
	 * counted its PSNs, and then a part of it would seem new */
	u32 psn_count;
	u32 rkey;
	u32 first_cost; /* stream.cost_next when it was first transmitted */
	union {
		struct {
			u64 va, compare, swap; /* FETCH_ADD: the addend is in `compare` */
		};
		struct {
			struct path_av av;
			u32 remote_qpn, qkey;
		} ud;
	};
	struct ibv_sge sge[];
};

struct recv_wqe {
	u64 wr_id;
	u32 sge_count;
	u32 length;
	struct ibv_sge sge[];
};

/* A ring of work queue elements. Free-running indexes. */
struct wqe_ring {
	u8 *memory;
	u32 stride, mask, size; /* size: what the consumer may have outstanding */
	u32 max_sge;
};

/* A READ or atomic that the responder has accepted. Kept after the answer for duplicates. */
struct resp_resource {
	u8 opcode; /* enum pkt_opcode of the request */
	u32 psn, psn_count;
	/* what is answered now: all of it, or what a repeated request names */
	u32 answer_psn;
	u32 rkey, length;
	u32 sent; /* bytes of the answer sent */
	u64 va;
	u64 original; /* atomics: the answer */
	bool done;
	bool answered; /* once, to the end: what is sent now is a repetition */
	bool unreached; /* PKT_UNREACHED */
};

enum wait_reason {
	WAIT_NONE,
	WAIT_RNR,
	WAIT_TIMEOUT,
	WAIT_ROOM,   /* UD: does not stop the queue */
	WAIT_MEMBER, /* the same for a datagram to a group */
};

/* The requester's half of an RC connection over a path that loses or reorders packets. Numbers of
 * packets are linear here, a PSN is their low 24 bits; send_wqe.first_psn and ibt_qp.sq_psn too. */
struct stream {
	u32 una;  /* what comes before it the peer has executed */
	u32 top;  /* behind the last that was ever sent */
	bool seek; /* tx_cursor is to be moved to tx_offset */
	/* After silence one packet asks what has arrived; `probed`: it has gone, and nothing else
	 * does until there is an answer. */
	bool probe, probed;
	bool timing; /* the timer is armed */
	u32 probe_psn;
	/* Bytes, with a charge per packet, free running: where sq_psn and the oldest packet that
	 * something is awaited for stand. */
	u32 cost_next, cost_done;
	u32 charged; /* of the destination's window: what is in flight, and what may be sent next */
	u32 uncounted; /* part of `charged` that the window does not count: a probe's */
	u32 unasked; /* sent since an acknowledgement was last asked for */
	u16 segment; /* packets of the longest READ request where the way is short */
	u8 backoff;    /* retransmissions without any word from the peer */
	u8 stuck;      /* steps back since more than one packet came through at a time */
	u64 heard_ns;  /* the peer's last word, or when there was first something to wait for */
	u64 resent_ns; /* when transmission last went back */
	u64 rnr_ns;    /* end of the wait for RNR */
	u32 front_seen; /* stream_front when the timer last ran */
	u32 gap;       /* where it went back to because of a gap */
	/* The peer refuses the request with packet `refused`, but the answer to one before it is
	 * lost: the NAK code, or 0. */
	u32 refused;
	u8 refusal;
	bool rtt_unsure; /* what is measured was sent again since */
	bool guessed;	 /* srtt_us was measured by such a packet */
	u8 unsure;	 /* such measurements in a row */
	u32 rtt_psn;   /* the packet whose way there and back is measured */
	/* How often the path had been found empty (path.emptied) when patience ended, at end_ns */
	u32 emptied;
	u64 end_ns;
	u64 rtt_ns;    /* when it went; 0: none */
	u32 srtt_us, rttvar_us;
};

/* Its place among those who wait for their turn: window.c. */
struct window_place {
	struct list_head node OWNED_BY(path_window.lock); /* path_window.waiting */
	u32 wants OWNED_BY(path_window.lock);		  /* room at least, while it waits */
	bool turn OWNED_BY(path_window.lock);		  /* taken from the front of `waiting` */
	bool busy ATOMIC_ONLY;				  /* window_serve works on it */
};

struct ibt_qp {
	/* fixed from creation on */
	struct ibt *ibt FIXED;
	void *owner FIXED;
	u32 qpn FIXED, pd FIXED;
	u8 type FIXED;
	bool sig_all FIXED;
	bool quick WRITTEN_UNDER(sq_lock, rq_lock); /* RC, on a path with send_briefs */
	u8 psn_shift WRITTEN_UNDER(sq_lock, rq_lock); /* log2 of the payload of one packet */
	struct cq *send_cq FIXED, *recv_cq FIXED;
	struct ibt_srq *srq FIXED;
	struct ibt_counters *counters FIXED;

	/* the connection */
	u8 state WRITTEN_UNDER(sq_lock, rq_lock); /* enum ibv_qp_state */
	/* The peer's process died while no request was outstanding: the next one ends with
	 * RETRY_EXC_ERR, as it would with an adapter that has heard of nothing. */
	bool owes_retry_exc WRITTEN_UNDER(sq_lock);
	/* the path loses or reorders packets */
	bool lossy WRITTEN_UNDER(sq_lock, rq_lock);
	/* lossy, and RC: `stream` is in use */
	bool streams WRITTEN_UNDER(sq_lock, rq_lock);
	u32 dest_qpn WRITTEN_UNDER(sq_lock, rq_lock);
	struct path_dest *dest WRITTEN_UNDER(sq_lock, rq_lock); /* RC, UC */
	/* What the path calls `dest` when packets come from there, where it is known to be the
	 * same although it has another address. Only to compare with */
	const struct path_dest *heard_as ATOMIC_ONLY;
	struct path_grant grant WRITTEN_UNDER(sq_lock); /* of `dest` and `dest_qpn` */

	/* All that a request asks first lies in the line of the lock */
	struct lock sq_lock CACHE_ALIGNED;
	u8 waiting GUARDED_BY(sq_lock);	    /* enum wait_reason */
	u8 retry_left GUARDED_BY(sq_lock), rnr_left GUARDED_BY(sq_lock);
	bool progressed GUARDED_BY(sq_lock); /* the peer has done something since the wait began */
	struct wqe_ring sq FIXED;
	u32 sq_head GUARDED_BY(sq_lock); /* next to post */
	u32 sq_next GUARDED_BY(sq_lock); /* next to transmit */
	u32 sq_tail GUARDED_BY(sq_lock); /* oldest incomplete */
	u32 sq_stop GUARDED_BY(sq_lock); /* SQD: what comes before it has begun and is finished */
	u32 max_inline FIXED;
	u32 sq_psn GUARDED_BY(sq_lock); /* of the next packet */
	/* What the other end's brief packets have for `qpns` while requests and acknowledgements
	 * may go the quick way; else 0, which none has that is for this queue pair. */
	u64 quick_qpns WRITTEN_UNDER(sq_lock, rq_lock);
	u32 tx_offset GUARDED_BY(sq_lock); /* bytes of sq_next's message transmitted */
	u32 tx_member GUARDED_BY(sq_lock); /* UD: the place in its group that sq_next's is for */
	struct mem_cursor tx_cursor GUARDED_BY(sq_lock);
	struct mem_cursor rx_cursor GUARDED_BY(sq_lock); /* where the READ at hand is scattered */
	u32 rx_offset GUARDED_BY(sq_lock);
	u32 reads_out GUARDED_BY(sq_lock);
	bool no_pull GUARDED_BY(sq_lock);            /* the receiver cannot reach our memory */
	/* UC: a WRITE went in packets, which nobody acknowledges: one by ourselves might overtake
	 * it */
	bool no_direct GUARDED_BY(sq_lock);
	/* UD: a member of a group, `blocked_on`, had no room in time */
	bool hurried GUARDED_BY(sq_lock);
	bool draining GUARDED_BY(sq_lock);  /* SQD: tell when the last one is done */
	struct timer timer GUARDS_ITSELF;
	struct stream stream GUARDED_BY(sq_lock);
	struct window_place place GUARDS_ITSELF;
	struct rate *rate GUARDED_BY(sq_lock); /* NULL: no congestion has ever been notified */
	/* UD: what it waits for, or did, with a reference */
	struct path_dest *blocked_on GUARDED_BY(sq_lock);

	struct lock rq_lock CACHE_ALIGNED ACQUIRED_AFTER(sq_lock);
	struct wqe_ring rq FIXED;
	u32 rq_head GUARDED_BY(rq_lock);
	u32 rq_tail GUARDED_BY(rq_lock);
	u32 epsn GUARDED_BY(rq_lock);
	u32 msn GUARDED_BY(rq_lock);
	struct recv_wqe *current GUARDED_BY(rq_lock); /* taken by the message at hand */
	struct recv_wqe *srq_copy GUARDED_BY(rq_lock);
	struct mem_cursor in_cursor GUARDED_BY(rq_lock);
	u32 in_offset GUARDED_BY(rq_lock); /* bytes of the message at hand that arrived */
	u8 in_message GUARDED_BY(rq_lock); /* 0 none, else the opcode of its first packet */
	/* The same for messages that come: in RTR too, once it is known to be established */
	u64 quick_from GUARDED_BY(rq_lock);
	bool comm_established GUARDED_BY(rq_lock);
	bool nak_sent GUARDED_BY(rq_lock); /* further packets are dropped until epsn comes */
	u32 gap_psn GUARDED_BY(rq_lock);   /* of the last packet that was dropped so */
	bool acked_ahead GUARDED_BY(rq_lock); /* the packet at hand, before it was completed */
	bool ack_listed OWNED_BY(callbacks of the path);
	bool ack_waits OWNED_BY(callbacks of the path); /* an urgent one waits for a ride */
	/* The consumer answered the last message at once, so its acknowledgement rode on the
	 * answer: the next one may wait for that. A hint. */
	bool ack_rides ATOMIC_ONLY;
	/* The last one went at once; if the consumer sends something before the next message
	 * comes, it could have ridden. A hint. */
	bool ack_went_ahead ATOMIC_ONLY;
	u64 cnp_ns GUARDED_BY(rq_lock);    /* when congestion was last notified */
	struct rate *answer_rate GUARDED_BY(rq_lock); /* NULL: as `rate`, but of answers */
	/* READs have been answered since congestion of answers was last notified */
	bool has_answered GUARDED_BY(rq_lock);
	u16 uc_run GUARDED_BY(rq_lock);    /* UC: packets before epsn that have come; saturates */
	/* a completion found no room: the queue pair is to fail */
	bool unheard GUARDED_BY(rq_lock);
	/* enum resp_verdict that the peer is still to be told, after the answers that wait */
	u8 untold GUARDED_BY(rq_lock);
	/* the request repeated last, how often since the last new one, and when that was counted */
	u32 asked_psn GUARDED_BY(rq_lock);
	u8 asked_again GUARDED_BY(rq_lock);
	u32 repeated_psn GUARDED_BY(rq_lock); /* of the last duplicate; 0: none, or that one */
	u64 asked_ns GUARDED_BY(rq_lock);
	u32 untold_psn GUARDED_BY(rq_lock); /* of the request that it is about */
	u64 in_va GUARDED_BY(rq_lock);	   /* WRITE at hand */
	u32 in_rkey GUARDED_BY(rq_lock);
	u32 in_length GUARDED_BY(rq_lock);
	struct resp_resource *resources GUARDED_BY(rq_lock);
	u32 resource_count GUARDED_BY(rq_lock);
	u32 resource_head GUARDED_BY(rq_lock), resource_next GUARDED_BY(rq_lock);
	u32 ack_word ATOMIC_ONLY; /* ACK_OWED | PSN; exchanged atomically by whoever sends it */

	/* on its destination's acks or acks_now */
	struct list_head ack_node OWNED_BY(callbacks of the path);

	/* what is seldom asked for */
	/* first PSN of the request whose number the peer has contradicted; 0: none has been */
	u32 doubted GUARDED_BY(sq_lock);
	u32 access WRITTEN_UNDER(sq_lock, rq_lock); /* remote access flags */
	u32 qkey WRITTEN_UNDER(sq_lock, rq_lock);
	/* what query_qp shows */
	struct ibv_qp_attr attr WRITTEN_UNDER(sq_lock, rq_lock);
	struct path_av av WRITTEN_UNDER(sq_lock, rq_lock);
	struct list_head blocked_node OWNED_BY(path_dest.blocked_lock); /* dest->blocked */
	void *block FIXED; /* what was allocated: it, behind the room for its owner */
};

enum { ACK_OWED = 1u << 31, COMP_DOUBTED = 1u << 31 /* of ibt_qp.doubted */ };

struct ibt_srq {
	struct ibt *ibt FIXED;
	void *owner FIXED;
	u32 pd FIXED;
	u32 max_sge FIXED;
	struct lock lock;
	struct wqe_ring ring GUARDED_BY(lock); /* another one once its size is changed */
	u32 head GUARDED_BY(lock), tail GUARDED_BY(lock);
	u32 limit GUARDED_BY(lock); /* 0: not armed */
};

struct ibt {
	struct ibt_config cfg FIXED;
	struct path *paths[4] FIXED;
	u32 path_count FIXED;
	u32 polls ATOMIC_ONLY; /* hint: every so often timers are looked at */
	struct lock table_lock;
	/* by slot; entries are stored with release, and looked up without a lock */
	struct ibt_qp **tables[IBT_TABLES] WRITTEN_UNDER(table_lock);
};

/* ---- wqe.c ---- */
int wqe_ring_init(struct wqe_ring *r, u32 size, u32 stride, u32 max_sge);
void wqe_ring_fini(struct wqe_ring *r);
/* Checks and copies one request into `w`. -EINVAL; -EFAULT: inline data is not mapped. */
int wqe_fill_send(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
		  ibt_av_of *av_of);
void wqe_fill_bound(struct ibt_qp *qp, struct send_wqe *w, u64 wr_id, u32 flags)
	REQUIRES(qp->sq_lock);
int wqe_fill_recv(const struct wqe_ring *r, struct recv_wqe *w, const struct ibv_recv_wr *wr);
u32 wqe_send_stride(u32 max_sge, u32 max_inline);

static inline struct send_wqe *sq_at(const struct ibt_qp *qp, u32 index)
{
	return (struct send_wqe *)(qp->sq.memory + (size_t)(index & qp->sq.mask) * qp->sq.stride);
}

static inline struct recv_wqe *ring_recv_at(const struct wqe_ring *r, u32 index)
{
	return (struct recv_wqe *)(r->memory + (size_t)(index & r->mask) * r->stride);
}

static inline bool wqe_is_answered_op(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Waits for the peer's acknowledgement, or for its turn among others. */
enum { REQ_STALL = 1 };

/* Signed distance of two PSNs: how far a is ahead of b. */
static inline s32 psn_ahead(u32 a, u32 b)
{
	return (s32)((a - b) << 8) >> 8;
}

/* ---- requester.c ---- */
/* Transmits what may be transmitted. */
void req_pump(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Goes back to the oldest request to be transmitted again. The peer has executed all before psn: of
 * those, READs and atomics at the front only wait for their answers. */
void req_rewind(struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock);
void req_timer(struct timer *t);
/* The peer is not there or not receiving: waits for the timeout, then tries again or gives up. */
void req_absent(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Waits for a destination that is full. */
void req_block(struct ibt_qp *qp, struct path_dest *dest);
/* UD: each request has a destination of its own, so what the queue pair waits for is held. */
void req_block_datagram(struct ibt_qp *qp, struct path_dest *dest) REQUIRES(qp->sq_lock);
void req_unblock(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
void req_arm_timer(struct ibt_qp *qp, enum wait_reason why, u64 delay_ns) REQUIRES(qp->sq_lock);

/* Hands a packet to the path: 0, also where UC or a lossy path drops it; -EAGAIN (and the queue
 * pair will be resumed), -ENETUNREACH, -EPIPE, -EFAULT. */
int req_send(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
	REQUIRES(qp->sq_lock);
/* The local bytes of the next `n` of the message: count of pieces, or a negative errno. The
 * cursor moves. */
int req_pieces(struct ibt_qp *qp, struct send_wqe *w, u32 n, u32 access, struct iovec *iov)
	REQUIRES(qp->sq_lock);
/* Which part of a message has which opcode. */
u8 req_message_opcode(const struct send_wqe *w, bool first, bool last);
/* The fields that every packet of the connection has; without payload. An acknowledgement that is
 * owed travels along: if the packet cannot be sent, req_return_ack. */
void req_fill(struct ibt_qp *qp, struct pkt *p, u8 opcode) REQUIRES(qp->sq_lock);
/* The acknowledgement that is owed, if any: ACK_OWED | PSN. It is the caller's to send, or to give
 * back. */
static inline u32 req_take_ack(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
void req_return_ack(struct ibt_qp *qp, u32 psn);
static inline bool req_wants_ack(const struct ibt_qp *qp, u32 flags)
	REQUIRES(qp->sq_lock)
{
	return (flags & IBV_SEND_SIGNALED) != 0 || (qp->sq_head - qp->sq_tail) * 2 > qp->sq.size;
}

/* Nothing was owed when a message went: if an acknowledgement went ahead of it, the next may
 * wait for a ride. */
static inline void req_missed_ride(struct ibt_qp *qp)
{
	if (unlikely(__atomic_load_n(&qp->ack_went_ahead, __ATOMIC_RELAXED))) {
		__atomic_store_n(&qp->ack_went_ahead, false, __ATOMIC_RELAXED);
		__atomic_store_n(&qp->ack_rides, true, __ATOMIC_RELAXED);
	}
}

static inline u32 req_take_ack(struct ibt_qp *qp)
{
	if (__atomic_load_n(&qp->ack_word, __ATOMIC_RELAXED) & ACK_OWED)
		/* Whoever clears the word sends it; pairs with resp_owe_ack. */
		return __atomic_exchange_n(&qp->ack_word, 0, __ATOMIC_ACQUIRE);
	req_missed_ride(qp);
	return 0;
}

/* ---- quick.c ---- */
/* path_user.receive_brief: `user` is the engine. */
bool quick_receive(void *user, struct path_dest *from, const struct pkt_brief *b,
		   const void *payload);
/* path_user.receive_run, likewise. */
u32 quick_receive_run(void *user, struct path_dest *from, const struct pkt_brief *b,
		      const void *const *payload, u32 n);
u32 req_packets(const struct ibt_qp *qp, u32 length);

/* ---- write.c ---- */
/* Does the WRITEs at the front that can be done at once, some at least if any; returns what is
 * left. The queue pair is one that quick.c may send on. */
struct ibv_send_wr *write_post(struct ibt_qp *qp, struct ibv_send_wr *wr) REQUIRES(qp->sq_lock);

/* ---- stream.c: the requester over a path that loses packets (qp->streams) ---- */
/* Numbers begin at sq_psn, nothing is under way. */
void stream_begin(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Transmits one request, or what is left of it: 0, REQ_STALL, or an error of req_send and
 * req_pieces. */
int stream_transmit(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock);
/* The queue has been looked through: gives back what it need not send. */
void stream_pumped(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* The oldest number that something is awaited for; `top` if there is none. */
u32 stream_front(const struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Goes on from the front, where transmission has been behind it; tells the window what has come
 * back. */
void stream_settle(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Goes back to the front. */
void stream_rewind(struct ibt_qp *qp) REQUIRES(qp->sq_lock);

/* ---- retry.c: what the peer says to that, and what if it says nothing ---- */
void retry_receive(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->sq_lock);
void retry_timer(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Something awaits an answer: sees to it that the timer runs. now_ns: 0, or the time. */
void retry_watch(struct ibt_qp *qp, u64 now_ns) REQUIRES(qp->sq_lock);

/* ---- window.c: how much may be under way to one destination, and whose turn it is ---- */
/* What a packet with so many bytes counts. */
u32 window_cost(u32 packets, u32 bytes);
/* Is there room for `cost` more than is in flight, and for what goes along with it of the `left`
 * that its message counts? Else it waits for its turn. */
bool window_reserve(struct ibt_qp *qp, u32 cost, u32 left) REQUIRES(qp->sq_lock);
/* Keeps what is in flight and gives the rest back. `acked`: so much has arrived, which lets the
 * limit grow. */
void window_settle(struct ibt_qp *qp, u32 acked) REQUIRES(qp->sq_lock);
/* The peer has answered a probe: what of its answer is still to come counts like all others. */
void window_count_probe(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* log2 of how much longer the requests of a READ may be than where the way is short, so that as
 * many as may be under way, of `cost` each as they are, fill what may be. */
u8 window_stretch(struct ibt_qp *qp, u32 cost) REQUIRES(qp->sq_lock);
/* Does not wait any more. */
void window_unlist(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Leaves the destination: nothing is charged, nothing waits. */
void window_leave(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Packets were lost: less may be under way. Counts once within rtt_us. */
void window_cut(struct ibt_qp *qp, u32 rtt_us, u64 now_ns) REQUIRES(qp->sq_lock);
/* The way there and back has taken so long. */
void window_measured(struct ibt_qp *qp, u32 rtt_us) REQUIRES(qp->sq_lock);
/* The queue pair's destination, with a reference, if others wait there: for window_wake, when
 * sq_lock has been let go. NULL: nobody waits. */
struct path_dest *window_claim(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Sets those going whose turn it is; drops the reference. No lock is held. */
void window_serve(struct path_dest *dest);
/* Waits until no window_serve works on it. The caller has made sure that none begins to. */
void window_quiesce(struct ibt_qp *qp);

/* ---- rate.c: how fast it sends after a notification of congestion ---- */
/* There is congestion: slower. Counts once in a way there and back. */
void rate_cut(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* The same for the answers to READs, if any have gone since the last time. `way_us`: the way there
 * and back, or 0. */
void rate_cut_answers(struct ibt_qp *qp, u32 way_us) REQUIRES(qp->rq_lock);
/* With qp->rate. Must the next packet wait? Then req_pump is called when it may go. */
bool rate_must_wait(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* The same. Will the next one have to wait if so much goes now? */
bool rate_pauses_after(struct ibt_qp *qp, u32 cost) REQUIRES(qp->sq_lock);
/* The same. So much has gone; rate_must_wait has been asked before. */
void rate_charge(struct ibt_qp *qp, u32 cost) REQUIRES(qp->sq_lock);
/* With qp->answer_rate, as rate_must_wait and rate_charge: resp_resume is called then. */
bool rate_answer_must_wait(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
void rate_charge_answer(struct ibt_qp *qp, u32 cost) REQUIRES(qp->rq_lock);
/* Does something wait? */
bool rate_is_holding(const struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* The connection is another one. */
void rate_forget(struct ibt_qp *qp) REQUIRES(qp->sq_lock) REQUIRES(qp->rq_lock);
/* Waits until its timers do nothing any more; the queue pair sends nothing. */
void rate_quiesce(struct ibt_qp *qp) EXCLUDES(qp->sq_lock) EXCLUDES(qp->rq_lock);
void rate_destroy(struct ibt_qp *qp) REQUIRES(qp->sq_lock) REQUIRES(qp->rq_lock);

static inline bool rate_holds(struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	return unlikely(qp->rate != NULL) && rate_must_wait(qp);
}

/* ---- completer.c ---- */
void comp_ack(struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock);
/* The peer acknowledges what has not been sent, or is to be sent again after a step back. */
NOINLINE void comp_beyond(struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock);
void comp_receive(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p,
		  const void *payload);
/* Completes the oldest request with success and moves on. */
void comp_retire(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock);
/* Completes it with an error and moves the queue pair to ERR (RC) or SQE. */
void comp_fail(struct ibt_qp *qp, enum ibv_wc_status status) REQUIRES(qp->sq_lock);
void comp_flush_sq(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
/* Copies n bytes of an answer to where the request at the front wants them. 0 or an errno. */
int comp_scatter(struct ibt_qp *qp, struct send_wqe *w, const void *data, u32 n)
	REQUIRES(qp->sq_lock);
bool comp_is_fatal_nak(u8 code);
/* Fails the oldest request with what a fatal NAK (its code) says of it. */
void comp_fatal_nak(struct ibt_qp *qp, u8 code) REQUIRES(qp->sq_lock);
/* The wait that an RNR timer code stands for. IBA vol 1, table 45. */
u64 comp_rnr_ns(u8 code);
void comp_check_drained(struct ibt_qp *qp) REQUIRES(qp->sq_lock);

/* ---- responder.c ---- */
/* What the responder thinks of a request. */
enum resp_verdict {
	RESP_OK,
	RESP_RNR,
	RESP_NAK_INVALID,
	RESP_NAK_ACCESS,
	RESP_NAK_OPERATION,
	RESP_NAK_PULL,
	RESP_DROP,
	RESP_GONE, /* answers are owed that will never come */
};
void resp_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		  const void *payload);
void resp_flush_rq(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
void resp_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
	REQUIRES(qp->rq_lock);
/* Has its completion queue overflowed, so that the consumer would never hear of a message? Once. */
bool resp_is_unheard(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
/* Takes a receive request for the message at hand; false: none is there. */
bool resp_take_wqe(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
void resp_owe_ack(struct ibt_qp *qp, struct path_dest *from, bool urgent)
	REQUIRES(qp->rq_lock);
/* True: it has been handed over, and so has whatever was sent before it. */
bool resp_send_ack(struct ibt_qp *qp, u8 syndrome, u32 psn) REQUIRES(qp->rq_lock);
/* An acknowledgement that is owed goes now, a packet of its own behind those just sent: on a path
 * that carries none in other packets it still shares their way. The caller holds sq_lock. True: as
 * resp_send_ack. */
bool resp_ride_ack(struct ibt_qp *qp) EXCLUDES(qp->rq_lock);
void resp_batch_end(struct path_dest *from, bool idle);
/* There is room again, or a new destination: says what is owed. No lock is held. */
void resp_resume(struct ibt_qp *qp);
/* The queue pair stops receiving: acknowledges what it has accepted, and lets a peer that waits
 * for more know that it waits in vain. */
void resp_leave(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
/* Has the peer been told all that resp_leave had to tell? */
bool resp_has_left(struct ibt_qp *qp);

/* ---- cnp.c ---- */
/* Notifies the peer of congestion, but not more often than it can act on. */
void cnp_send(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
/* The peer notifies us. */
void cnp_receive(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p);

static inline bool cnp_is_marked(const struct pkt *p)
{
	return (p->traffic_class & PATH_ECN_MASK) == PATH_ECN_MARKED;
}

/* ---- absent.c: answers for queue pairs that do not receive; all inside the path's callbacks
 * ---- */
/* Tells an RC requester on a reliable path that nobody is there, or receiving, or that the request
 * will not be answered: its timeout begins. Without room it is told later. */
void absent_say(struct path_dest *from, const struct pkt *p);
/* Tells what is still to be told, as far as there is room. */
void absent_tell(struct path_dest *from);

static inline bool absent_is_owed(const struct path_dest *from)
{
	return from->absent.count != 0 || from->absent.all;
}

/* ---- loss.c ---- */
/* Each RC queue pair connected with `from` that waits for an answer begins its timeout. Inside the
 * path's callbacks. */
void loss_suspect_from(struct ibt *ibt, const struct path_dest *from);

/* ---- answer.c: READ and atomic ---- */
enum resp_verdict answer_read(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->rq_lock);
enum resp_verdict answer_atomic(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->rq_lock);
/* Sends answers that wait. True: none waits any more. */
bool answer_pump(struct ibt_qp *qp) REQUIRES(qp->rq_lock);
/* False: it is none that can be answered. */
bool answer_duplicate(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->rq_lock);
/* ---- ud.c ---- */
/* Transmits one UD request: 0, -EAGAIN (blocked), -EACCES (local protection error). */
int ud_transmit(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock);
void ud_receive(struct ibt_qp *qp, const struct path *path, const struct pkt *p,
		const void *payload);

/* What a completion's SL says on RoCE about the 40 bytes in front of the payload (annex A17.4.5.1):
 * 1 a GRH as IPv6 has it, 2 an IPv4 header. Consumers that check the destination need it. */
u8 ud_header_type(const struct pkt *p);

/* ---- qp.c ---- */
/* What is left of a post, the general way. They let go of the lock. */
int qp_post_send(struct ibt_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		 ibt_av_of *av_of) RELEASE(qp->sq_lock);
int qp_post_recv(struct ibt_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
	RELEASE(qp->rq_lock);
/* Moves to ERR and flushes both queues. The second form for callers inside sq_lock. */
void qp_fail(struct ibt_qp *qp);
void qp_fail_locked(struct ibt_qp *qp) REQUIRES(qp->sq_lock);
void qp_peer_died(struct ibt_qp *qp, struct path_dest *dest);

/* ---- engine.c ---- */
/* Of 24 bits; NULL: there is none. */
static inline struct ibt_qp *engine_lookup(const struct ibt *ibt, u32 qpn)
{
	struct ibt_qp **table = __atomic_load_n(&ibt->tables[qpn >> IBT_INDEX_BITS],
						__ATOMIC_ACQUIRE); /* pairs with engine_table_add */

	if (unlikely(table == NULL))
		return NULL;
	return __atomic_load_n(&table[qpn & ((1u << IBT_INDEX_BITS) - 1)], __ATOMIC_ACQUIRE);
}
int engine_table_add(struct ibt *ibt, struct ibt_qp *qp);
void engine_table_remove(struct ibt *ibt, struct ibt_qp *qp);

/* ---- srq.c ---- */
bool srq_take(struct ibt_srq *srq, struct recv_wqe *copy);

/* Read under either lock, and without any by ibt_qp_state. */
static inline void qp_set_state(struct ibt_qp *qp, enum ibv_qp_state state)
	REQUIRES(qp->sq_lock) REQUIRES(qp->rq_lock)
{
	qp->quick_qpns = qp->quick_from =
		qp->quick && state == IBV_QPS_RTS ? (u64)qp->dest_qpn << 32 | qp->qpn : 0;
	__atomic_store_n(&qp->state, (u8)state, __ATOMIC_RELAXED);
}

static inline bool qp_sends(const struct ibt_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* Has any request that is not complete been sent, at least in part? */
static inline bool qp_has_outstanding(const struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	return qp->sq_tail != qp->sq_next || qp->tx_offset != 0;
}

static inline bool qp_receives(const struct ibt_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

/* Does a packet come from the other end of the connection? The caller holds either lock. */
static inline bool qp_is_peer(const struct ibt_qp *qp, const struct path_dest *from,
			      const struct pkt *p)
{
	/* A wire does not name the sender's queue pair. */
	return (p->sqpn == qp->dest_qpn || (p->sqpn == 0 && qp->lossy)) && qp->dest != NULL &&
	       (qp->dest == from || from->path->ops->same(qp->dest, from));
}

/* For what window_claim gave. No lock is held. */
static inline void window_wake(struct path_dest *dest)
{
	if (unlikely(dest != NULL))
		window_serve(dest);
}

static inline u32 qp_packet_bytes(const struct ibt_qp *qp)
{
	return 1u << qp->psn_shift;
}

#endif
