/* responder_state.h: what the responder keeps in a queue pair. */
#ifndef IBT_RECEIVE_RESPONDER_STATE_H
#define IBT_RECEIVE_RESPONDER_STATE_H

#include "ibt/qp_lock_order.h"
#include "ibt/send/wqe.h"
#include "queue/cq.h"

struct rate;
struct counted;

/* A READ or atomic that the responder has accepted. Kept after the response, for duplicates. */
struct resp_resource {
	u8 opcode; /* enum pkt_opcode of the request */
	bool done;
	bool answered; /* once, to the end: what is sent now is a repetition */
	bool unreached; /* PKT_UNREACHED */
	u32 psn, psn_count;
	u32 rkey, length;
	u32 pd; /* that judges rkey */
	/* the bytes that are answered now: all, or those that a repeated request names */
	u32 begin, end;
	u32 sent; /* up to here the response is sent */
	u64 va;
	u64 original; /* atomics: the response */
} OWNED_BY(responder.rq_lock);

/* What the responder thinks of a request. */
enum resp_verdict {
	RESP_OK,
	RESP_RNR,
	RESP_NAK_INVALID,
	RESP_NAK_ACCESS,
	RESP_NAK_OPERATION,
	RESP_NAK_PULL,
	RESP_DROP,
	RESP_GONE,	   /* responses are owed that will never be sent */
	RESP_TAGGED,	   /* no verdict yet: the receive source is a tag-matching SRQ (tm.c) */
	RESP_ELSEWHERE,	   /* no verdict yet: the SRQ may be another process' (forward.c) */
	RESP_NAK_SEQUENCE, /* requests were dropped: the initiator is to send them again */
};

/* What the responder leaves to do when it has released rq_lock, as bits. */
enum resp_after {
	AFTER_FAIL = 1, /* a completion found no room: the queue pair is to fail */
	AFTER_SEND = 2, /* a rendezvous waits for its READ: sched_send */
};

enum { ACK_OWED = 1u << 31 }; /* of ibt_qp.ack_word */

struct responder {
	struct lock rq_lock CACHE_ALIGNED ACQUIRED_AFTER(qp_lock_order); /* inner: after sq_lock */
	/* Of receive completions. With an SRQ they free its places: ibt_credit */
	struct cq_source source GUARDS_ITSELF;
	struct wqe_ring ring FIXED;
	u32 head GUARDED_BY(rq_lock); /* next to post */
	u32 tail GUARDED_BY(rq_lock); /* oldest receive request */
	u32 epsn GUARDED_BY(rq_lock); /* expected PSN */
	u32 msn GUARDED_BY(rq_lock);
	struct recv_wqe *current GUARDED_BY(rq_lock); /* taken by the message in progress */
	struct recv_wqe *srq_copy FIXED; /* tm_conn.copy, xrc_conn.copy */
	struct mem_cursor cursor GUARDED_BY(rq_lock);
	u32 offset GUARDED_BY(rq_lock); /* bytes of the message in progress that have arrived */
	u8 message GUARDED_BY(rq_lock); /* 0: none in progress, else what its first packet is */
	/* As requester.quick_qpns, for messages that arrive: in RTR too, once the connection is
	 * known to be established. */
	u64 quick_qpns GUARDED_BY(rq_lock);
	bool comm_established GUARDED_BY(rq_lock);
	bool nak_sent GUARDED_BY(rq_lock); /* further packets are dropped until epsn comes */
	u32 gap_next GUARDED_BY(rq_lock);  /* what follows the last packet that was dropped so */
	bool acked_ahead GUARDED_BY(rq_lock); /* the packet at hand, before it was completed */
	bool ack_listed OWNED_BY(callbacks of the path);
	bool ack_waits OWNED_BY(callbacks of the path); /* an urgent one waits to be piggybacked */
	/* The consumer answered the last message at once, so its acknowledgement was piggybacked:
	 * the next one may wait for that. A hint. */
	bool ack_piggybacks ATOMIC_ONLY;
	/* The last one went at once; if the consumer sends something before the next message
	 * comes, it could have been piggybacked. A hint. */
	bool ack_went_ahead ATOMIC_ONLY;
	u64 cnp_ns GUARDED_BY(rq_lock);		      /* when the last CNP was sent */
	struct rate *answer_rate GUARDED_BY(rq_lock); /* as requester.rate, of responses */
	/* READs have been answered since the peer's last CNP. */
	bool has_answered GUARDED_BY(rq_lock);
	u16 uc_run GUARDED_BY(rq_lock); /* UC: packets before epsn that have come; saturates */
	u8 after GUARDED_BY(rq_lock); /* enum resp_after */
	/* enum resp_verdict: the pending refusal, sent behind the waiting responses. */
	u8 owed GUARDED_BY(rq_lock);
	/* The receive source is none of its own, or its receives are counted. */
	bool marked WRITTEN_UNDER(requester.sq_lock, rq_lock);
	/* The request repeated last, how often since the last new one, and when that was
	 * counted. */
	u32 asked_psn GUARDED_BY(rq_lock);
	u8 repeats GUARDED_BY(rq_lock);
	u32 repeated_psn GUARDED_BY(rq_lock); /* of the last duplicate; 0: none, or that one */
	u64 asked_ns GUARDED_BY(rq_lock);
	u32 owed_psn GUARDED_BY(rq_lock); /* of the request that `owed` is about */
	u32 pd FIXED; /* of the receive source: the SRQ's, or the queue pair's */
	u64 write_va GUARDED_BY(rq_lock); /* WRITE in progress */
	u32 write_rkey GUARDED_BY(rq_lock);
	u32 write_length GUARDED_BY(rq_lock);
	struct resp_resource *resources GUARDED_BY(rq_lock);
	u32 resource_count GUARDED_BY(rq_lock);
	u32 resource_head GUARDED_BY(rq_lock), resource_next GUARDED_BY(rq_lock);
	u32 ack_word ATOMIC_ONLY; /* ACK_OWED | PSN; the thread that exchanges it away sends it */
	struct list_head ack_node OWNED_BY(callbacks of the path); /* dest->acks or acks_now */
	/* What of the queue pair is counted for the consumer, in both directions; NULL: nothing */
	struct counted *counted WRITTEN_UNDER(requester.sq_lock, rq_lock);
};

#endif
