/* requester_state.h: what the requester and the completer keep in a queue pair. */
#ifndef IBT_SEND_REQUESTER_STATE_H
#define IBT_SEND_REQUESTER_STATE_H

#include "base/list.h"
#include "ibt/qp_lock_order.h"
#include "ibt/send/wqe.h"
#include "queue/cq.h"

struct rate;

enum wait_reason {
	WAIT_NONE,
	WAIT_RNR,
	WAIT_TIMEOUT,
	WAIT_ROOM,   /* UD: does not stop the queue */
	WAIT_MEMBER, /* the same for a datagram to a group */
};

/* The requester's half of an RC connection over a path that loses or reorders packets. Numbers of
 * packets are linear here, a PSN is their low 24 bits; send_wqe.first_psn and requester.psn too. */
struct stream {
	u32 una;  /* what comes before it the peer has executed */
	u32 top;  /* behind the last that was ever sent */
	bool seek; /* tx_cursor is to be moved to tx_offset */
	/* After silence one packet probes the peer; `probed`: it was sent, and no other packet is
	 * until a response comes. */
	bool probe, probed;
	bool timing; /* the timer is armed */
	u32 probe_psn;
	/* Bytes, with a charge per packet, free running: where the next PSN and the oldest
	 * packet that something is awaited for stand. */
	u32 cost_next, cost_done;
	u32 charged; /* of the destination's window: what is in flight, and what may be sent next */
	u32 uncounted; /* part of `charged` that the window does not count: a probe's */
	u32 unasked; /* sent since an acknowledgement was last asked for */
	/* packets of the longest READ request; where the RTT is long << send_wqe.stretch */
	u16 segment;
	u8 backoff;    /* retransmissions since the peer's last response */
	u8 single_steps;      /* steps back in a row that got one packet through each */
	u64 heard_ns;  /* clock: the peer's last response, or the begin of the wait for one */
	u64 resent_ns; /* when transmission last went back */
	u64 rnr_ns;    /* end of the wait for RNR */
	u32 front_seen; /* stream_front when the timer last ran */
	u32 gap;       /* where it went back to because of a gap */
	/* The peer refuses the request with packet `refused`, but the response to an earlier one is
	 * lost: the NAK code, or 0. */
	u32 refused;
	u8 refusal;
	bool rtt_ambiguous; /* the measured packet was sent again: Karn */
	bool srtt_ambiguous;	 /* srtt_us comes from such a packet */
	u8 ambiguous_run;	 /* such measurements in a row */
	u32 rtt_psn;   /* the packet whose RTT is measured */
	/* path.emptied when the retry budget ended, at end_ns */
	u32 emptied;
	u64 end_ns;
	u64 rtt_ns;    /* when it went; 0: none */
	u32 srtt_us, rttvar_us;
} OWNED_BY(requester.sq_lock);

/* The place of a queue pair among those that wait for the window: window.c. */
struct window_place {
	struct list_head node OWNED_BY(path_window.lock); /* path_window.waiting */
	u32 wants OWNED_BY(path_window.lock);		  /* room at least, while it waits */
	bool turn OWNED_BY(path_window.lock);		  /* taken from the front of `waiting` */
	/* between window_pop and window_turn_over */
	bool busy ATOMIC_ONLY;
};

/* All that a request asks first lies in the line of the lock. */
struct requester {
	/* Outer: resp.rq_lock is taken after it. */
	struct lock sq_lock CACHE_ALIGNED ACQUIRED_BEFORE(qp_lock_order);
	u8 waiting GUARDED_BY(sq_lock); /* enum wait_reason */
	u8 retry_left GUARDED_BY(sq_lock), rnr_left GUARDED_BY(sq_lock);
	/* The peer has acknowledged or answered something since the wait began. */
	bool progressed GUARDED_BY(sq_lock);
	/* With a tag-matching SRQ `size` counts what the adapter has in it, too: under sq_lock. */
	struct wqe_ring ring FIXED;
	u32 head GUARDED_BY(sq_lock);	    /* next to post */
	u32 next GUARDED_BY(sq_lock);	    /* next to transmit */
	u32 tail GUARDED_BY(sq_lock);	    /* oldest incomplete */
	struct cq_source source GUARDS_ITSELF; /* of send completions; frees places */
	u32 max_inline FIXED;		    /* bytes */
	u32 psn GUARDED_BY(sq_lock);	    /* of the next packet */
	/* `qpns` of the peer's brief packets while requests and acknowledgements may take the fast
	 * path; else 0, which no brief packet for this queue pair has. */
	u64 quick_qpns WRITTEN_UNDER(sq_lock, resp.rq_lock);
	u32 tx_offset GUARDED_BY(sq_lock); /* bytes of the message at `next` transmitted */
	u32 tx_member GUARDED_BY(sq_lock); /* UD: the place in its group that `next` is for */
	struct mem_cursor tx_cursor GUARDED_BY(sq_lock);
	struct mem_cursor rx_cursor GUARDED_BY(sq_lock); /* where the READ at `tail` scatters */
	u32 rx_offset GUARDED_BY(sq_lock);		 /* bytes of its response received */
	u32 reads_out GUARDED_BY(sq_lock); /* READ and atomic requests in flight */
	bool no_pull GUARDED_BY(sq_lock);  /* the receiver cannot read our memory */
	/* UC: a WRITE was sent in packets, which are not acknowledged: a direct copy might overtake
	 * it. */
	bool no_direct GUARDED_BY(sq_lock);
	u8 accord GUARDED_BY(sq_lock); /* accord.h */
	/* UD: a member of a group, `blocked_on`, had no room in time. */
	bool member_timed_out GUARDED_BY(sq_lock);
	bool draining GUARDED_BY(sq_lock); /* SQD: SQ_DRAINED follows the last one */
	/* The requester has work: the thread that holds sq_lock runs it before it releases that
	 * (sched.h). */
	bool runnable GUARDED_BY(sq_lock);
	struct timer timer GUARDS_ITSELF;
	struct stream stream GUARDED_BY(sq_lock);
	struct window_place place GUARDS_ITSELF;
	struct rate *rate GUARDED_BY(sq_lock); /* NULL: the peer has never sent a CNP */
	/* UD: the destination that the datagram waits for, with a reference. */
	struct path_dest *blocked_on GUARDED_BY(sq_lock);
};

#endif
