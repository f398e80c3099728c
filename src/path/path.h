/* path.h: how packets of the transport engine reach another queue pair, wherever it is.
 *
 * Each path states its guarantees (struct path_guarantees); the engine tests those and never the
 * kind of path. A packet here is decoded: headers as fields, named as in IBA vol 1 ch. 9, payload
 * as pieces of memory. Rooms: shm (every process of this node, this one included) and udp (other
 * hosts).
 */
#ifndef PATH_PATH_H
#define PATH_PATH_H

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include "base/list.h"
#include "base/lock.h"
#include "wire/pkt.h"

_Static_assert(PKT_TYPE_RC == (int)IBV_QPT_RC, "pkt.h knows the number");

struct path_guarantees {
	bool ordered;  /* packets of one sender to one destination arrive in the order sent */
	bool reliable; /* a packet taken by send() arrives unless the destination's process dies */
	/* `direct`, `writes`, `atomic` and `pull` may reach the peer's registered memory */
	bool direct;
	u32 mtu;       /* payload bytes a packet may carry */
} FIXED;

/* The low two bits of a traffic class, RFC 3168: a sender that reacts to congestion notifications
 * sets ECT, and a congested switch may mark such a packet instead of dropping it. */
enum { PATH_ECN_MASK = 3, PATH_ECN_CAPABLE = 2 /* ECT(0) */, PATH_ECN_MARKED = 3 };

/* An address vector, as an AH or a queue pair's ah_attr has it, resolved by the driver. A LID of 0
 * says that the link layer has none (RoCE). */
struct path_av {
	u8 dgid[16], sgid[16]; /* both set, also where the packet carries no GRH */
	u8 traffic_class; /* DSCP and ECN; the driver sets ECN, not the consumer */
	u8 hop_limit;
	u8 sl : 4;
	bool no_grh : 1; /* the packet carries no GRH: a destination in the subnet, by LID */
	u8 port;	 /* of the device, from 1 on */
	u16 dlid;
	u16 slid; /* the port's LID with the source path bits */
	u16 pkey; /* the queue pair's; 0: the default P_Key */
	/* The UDP source port for this flow, so that flows spread over the network's routes; 0:
	 * any. */
	u16 sport;
	u32 flow_label;
} OWNED_BY(the caller);
_Static_assert(sizeof(struct path_av) == 48, "a send request has one, beside 8 bytes");

/* What explains a queue pair to a reader of its process' memory (`anyverbs qp`): the engine
 * publishes where each lies, so that it need not write it anywhere else. */
enum path_inside {
	/* in the queue pair */
	INSIDE_QPN,
	INSIDE_SQ_PSN,
	INSIDE_EPSN,
	INSIDE_MSN,
	INSIDE_SQ_HEAD,
	INSIDE_SQ_NEXT,
	INSIDE_SQ_TAIL,
	INSIDE_SQ_SIZE,
	INSIDE_RQ_HEAD,
	INSIDE_RQ_TAIL,
	INSIDE_RQ_SIZE,
	INSIDE_SRQ,
	INSIDE_WAITS_RNR, /* 1: so it is */
	INSIDE_RETRY_LEFT,
	INSIDE_RNR_LEFT,
	INSIDE_STREAMS, /* the path loses packets: the following ones count */
	INSIDE_UNA,
	INSIDE_BACKOFF,
	INSIDE_SRTT_US,
	INSIDE_CHARGED,
	INSIDE_DEST,
	INSIDE_QP_COUNT,
	/* in what INSIDE_DEST points to */
	INSIDE_DEST_WINDOW = INSIDE_QP_COUNT,
	/* in what that points to */
	INSIDE_IN_FLIGHT,
	INSIDE_LIMIT,
	INSIDE_COUNT,
};

/* 1, 2, 4 or 8 bytes, this far behind the begin. */
struct path_place {
	u16 offset, bytes;
} FIXED;

/* Counters of a process, for status and tests. */
enum path_counter {
	COUNT_RX_PACKETS,
	COUNT_RX_MALFORMED,
	COUNT_RX_NO_QP,
	COUNT_RX_NOT_RECEIVING,
	COUNT_RX_WRONG_PEER,
	COUNT_RX_OPCODE,
	COUNT_RX_PSN,
	COUNT_RX_QKEY,
	COUNT_RX_NO_WQE,
	COUNT_RX_LENGTH,
	COUNT_RX_DUPLICATE,
	COUNT_TX_NAK,
	COUNT_TX_RNR,
	COUNT_TX_RETRY,
	COUNT_DIRECT,
	COUNT_DIRECT_REFUSED,
	COUNT_DIRECT_LEFT, /* operations that the peer's engine was faster for */
	COUNT_DIRECT_HELD, /* waits for a peer's direct operations that were given up */
	COUNT_TX_BLOCKED,
	COUNT_CQ_OVERFLOW,
	COUNT_PEER_DEATHS,
	COUNT_BELLS,
	COUNT_RX_ICRC,	     /* wrong */
	COUNT_RX_PKEY,	     /* wrong */
	COUNT_RX_WRONG_SLOT, /* joined by the kernel to a datagram for another process */
	COUNT_TX_PACKETS,    /* handed to the kernel */
	COUNT_TX_TOO_LONG,   /* longer than the route allows */
	COUNT_TX_FAILED,     /* refused by the kernel for another reason */
	COUNT_PORT_DOWN, /* dropped at a port that is down, outbound or inbound */
	COUNT_RX_MARKED, /* marked by a congested switch; of connected queue pairs */
	COUNT_RX_CNP,	 /* congestion notifications from the peer */
	COUNT_TX_CNP,
	COUNT_TX_UNBATCHED, /* destinations that fell back to one packet per call */
	COUNT_TX_PACED, /* waits between packets, after a notification */
	/* UC requests that RC would have refused with a NAK; connections of other processes' XRC
	 * targets that may not hand requests on to this one */
	COUNT_RX_REFUSED,
	COUNT_MAD_FIRST,  /* enum mad_counter (mad/mad.h), in its order */
	COUNT_MAD_LAST = COUNT_MAD_FIRST + 11,
	COUNT_CM_FIRST, /* enum cm_counter (cm/ib/cm.h), in its order */
	COUNT_CM_LAST = COUNT_CM_FIRST + 10,
	PATH_COUNTERS
};
extern const char *const path_counter_names[PATH_COUNTERS];

/* What is counted at the port of a device. Bytes are those from BTH to ICRC. */
enum path_traffic_count {
	TRAFFIC_XMIT_PACKETS,
	TRAFFIC_XMIT_BYTES,
	TRAFFIC_RCV_PACKETS,
	TRAFFIC_RCV_BYTES,
	TRAFFIC_RCV_ERRORS,    /* damaged packets: a wrong ICRC, malformed headers */
	TRAFFIC_XMIT_DISCARDS, /* packets that found no room, no route, or the port down */
	TRAFFIC_COUNTS
};
struct path_traffic {
	u64 count[TRAFFIC_COUNTS];
} OWNED_BY(nobody : atomic);

/* Where a packet goes. Reference counted by the path. */
struct path_dest;
struct path;

enum { PATH_ABSENT_MAX = 32 };

/* PKT_ABSENT reports that found no room: for queue pairs that are absent or not receiving. `all`:
 * more than fit. */
struct path_absent {
	u32 count;
	bool all;
	struct {
		u8 qp_type;
		u32 dqpn, sqpn, psn; /* of the answer */
	} answer[PATH_ABSENT_MAX];
} OWNED_BY(callbacks of the path);

/* Bytes in flight to one destination whose path loses packets, with a charge per packet. */
struct path_window {
	struct lock lock;
	u32 in_flight GUARDED_BY(lock);
	u32 limit GUARDED_BY(lock); /* 0: the size of a stock receive buffer */
	u32 fast_to GUARDED_BY(lock); /* below this it doubles per RTT; 0: no loss yet */
	/* The minimum RTT that any of the engine's queue pairs has measured, and the number of
	 * measurements, up to a few */
	u32 rtt_us ATOMIC_ONLY, rtts ATOMIC_ONLY;
	u64 cut_ns GUARDED_BY(lock); /* clock: the last cut of the limit */
	/* the engine's queue pairs that wait for the window, in order */
	struct list_head waiting GUARDED_BY(lock);
	bool any_waiting ATOMIC_ONLY; /* hint: waiting is not empty */
};

/* A path's callbacks into its engine. Called from path_poll, without any path lock that send()
 * needs. */
struct path_user {
	/* Receives a packet. Its payload lies in path memory, valid until return, and may change
	 * meanwhile: copy, then judge. */
	void (*receive)(void *user, struct path_dest *from, const struct pkt *p,
			const void *payload);
	/* Tells whether a queue pair takes a packet from a sender that the path does not know: one
	 * of datagrams, or one connected to that sender. If none does, the engine counts the
	 * packet, and the path drops it and keeps no state of its sender. A path that knows all
	 * senders does not call this. Called like receive. */
	bool (*awaits)(void *user, const struct path_dest *from, const struct pkt *p);
	/* Receives a brief packet. False: nothing was done, and receive() is called for it. */
	bool (*receive_brief)(void *user, struct path_dest *from, const struct pkt_brief *b,
			      const void *payload);
	/* Receives the next `n` (at least 1) brief packets that have come already. Takes the first
	 * ones and returns how many, as receive_brief would have; the rest follows one by one. */
	u32 (*receive_run)(void *user, struct path_dest *from, const struct pkt_brief *b,
			   const void *const *payload, u32 n);
	/* The batch of packets from `from` has ended. `idle`: no more came from it although
	 * from->acks_owed is set. Like receive it runs in one thread at a time, which guards
	 * path_dest.acks. */
	void (*batch_end)(void *user, struct path_dest *from, bool idle);
	/* A destination whose send() returned -EAGAIN has room, or it is known whether it is
	 * reachable. */
	void (*writable)(void *user, struct path_dest *dest);
	/* The destination's process has died: nothing sent to it will be answered. */
	void (*dead)(void *user, struct path_dest *dest);
} FIXED;

/* The peer's queue pair and memory that one one-sided operation names. */
struct path_target {
	u32 sqpn, dqpn; /* both ends of the connection */
	u32 rkey;
	u64 va, length;
	bool write; /* else read */
	bool announced; /* a packet follows in any case */
	u8 type;    /* enum ibv_qp_type, of both ends */
	u32 behind; /* requests of the same kind and key that are posted and come next */
} OWNED_BY(the caller);

/* A WRITE with immediate data of so few bytes, or fewer, is cheaper as one packet than by
 * direct() and a packet that announces it: on a path of shared memory it is one cache line. */
enum { PATH_NOTICE_BYTES = 20 };

/* One of several WRITEs of a connection: from our memory to the peer's. */
struct path_write {
	const void *from;
	u64 va;
	u32 length; /* not 0 */
	u32 rkey;
} OWNED_BY(the caller);

/* What the peer's end of a connection was given. */
struct path_end {
	u32 psn; /* of the first packet that it expects */
	u8 mtu;	 /* enum ibv_mtu: its path MTU; 0: not known */
} OWNED_BY(the caller);

/* The access that a connection was last granted, private to its path. All zero: none. The engine
 * clears it when the connection gets another destination or queue pair. */
struct path_grant {
	u64 generation;
	u64 va, length; /* as in the peer's address space */
	u8 *here;	/* address of that memory here */
	u32 rkey;
	u32 given_up; /* of the peer's board, when this was found */
} OWNED_BY(the caller);

/* What an atomic operation does to the 8 bytes at its target, in the host's byte order. */
struct path_atomic {
	bool swap; /* compare and swap; else fetch and add */
	u64 compare;
	u64 operand; /* the value to swap in, or to add */
	u64 before;  /* out: the value before */
} OWNED_BY(the caller);

struct path_ops {
	const char *name;
	/* Returns the destination that `av` and `qpn` name, with a reference; NULL: not reachable
	 * by this path. Never blocks: questions go on in the background, and send() returns -EAGAIN
	 * until then. */
	struct path_dest *(*dest_get)(struct path *p, const struct path_av *av, u32 qpn);
	/* Returns a destination that never answers: send() always returns -ENETUNREACH. With a
	 * reference. */
	struct path_dest *(*dest_nowhere)(struct path *p);
	void (*dest_hold)(struct path_dest *d);
	void (*dest_put)(struct path_dest *d);
	/* Takes a whole packet or nothing. -EAGAIN: no room, writable() follows; -ENETUNREACH: no
	 * process there (may change); -EPIPE: dead; -EFAULT: the payload is not mapped any more. */
	int (*send)(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int iovcnt);
	/* Sends `n` brief packets in a row (at least 1), each with its payload. Takes the first
	 * ones and returns how many; send() says why one is not taken. NULL: the path has no
	 * shorter code for them. */
	u32 (*send_briefs)(struct path_dest *d, const struct pkt_brief *b,
			   const void *const *payload, u32 n);
	/* Rings the destination's doorbell, or sends its batch. Called once after a batch of
	 * send()s. */
	void (*flush)(struct path_dest *d);
	/* Batches have been lost repeatedly while single packets arrived: the path sends each
	 * packet alone for some time. NULL: the path has no batches. */
	void (*batches_lost)(struct path_dest *d);
	/* The peer is silent, or requests packets again: recent packets may be lost, and the path
	 * checks a port whose identifications it only predicts. NULL: it has none. */
	void (*peer_silent)(struct path_dest *d);
	/* Copies to or from the peer's memory at once. 0: done, and visible in ascending order;
	 * -EOPNOTSUPP or -EACCES: send packets instead, and the peer's engine judges; -EBUSY:
	 * likewise, at once, for that is faster; -EFAULT: likewise, with PKT_UNREACHED, since
	 * nothing is mapped there. */
	int (*direct)(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		      int iovcnt);
	/* `n` requests that direct() left to the peer (-EBUSY) have ended, the last after so long;
	 * `more`: others have followed meanwhile. NULL: it never leaves any. */
	void (*answered)(struct path_dest *d, u32 n, u64 ns, bool more);
	/* Does RDMA WRITEs of the RC connection from `sqpn` here to `dqpn` there, in order, where
	 * the peer's memory is mapped here. Takes the first ones and returns how many; direct()
	 * says why one is not taken. `g` is the connection's; no other thread uses it meanwhile.
	 * NULL: never. */
	u32 (*writes)(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_grant *g,
		      const struct path_write *w, u32 n);
	/* Does the first of such WRITEs together where the peer's memory is not mapped here, in
	 * order, if their targets adjoin. Returns how many; direct() says why one is not done.
	 * NULL: never. */
	u32 (*writes_joined)(struct path_dest *d, u32 sqpn, u32 dqpn, const struct path_write *w,
			     u32 n);
	/* Looks up the peer's end of the connection from `sqpn` here to `dqpn` there. False: it is
	 * not shown yet. NULL: the packets tell, for the path cuts them at the path MTU. */
	bool (*peer_end)(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_end *out);
	/* Executes it at once where the peer's memory is mapped here (`t` has length 8, write is
	 * true). 0, or as direct(). NULL: never. */
	int (*atomic)(struct path_dest *d, const struct path_target *t, struct path_atomic *a);
	/* Tells whether direct() reaches the target, or is about to: then it is worth the wait for
	 * earlier requests. NULL: as pullable(). */
	bool (*reaches)(struct path_dest *d, const struct path_target *t);
	/* Tells whether a packet to `d` may name the sender's memory instead of carrying it
	 * (PKT_PULL). */
	bool (*pullable)(struct path_dest *d);
	/* Copies the memory that such a packet from `from` names; both lists have `bytes`. 0;
	 * -EOPNOTSUPP: it cannot be read; -EPIPE: the sender's queue pair `sqpn` (connected to
	 * `dqpn` here) has stopped sending meanwhile, so the copied bytes are undefined. */
	int (*pull)(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
		    const struct iovec *ours, int m, u64 bytes);
	/* Receives at most `budget` packets; returns how many. Any thread. While another thread
	 * receives, this returns 0 at once; with `must` it waits for its turn instead, for the last
	 * poll before a sleep. */
	int (*poll)(struct path *p, int budget, bool must);
	/* Waits until the destination can be used or is known to be absent: 0 or -ENETUNREACH;
	 * -EAGAIN: absent now, and its process lives; -EMFILE, -ENFILE, -ENOMEM: this process has
	 * no descriptor or no memory for it, or its process refuses for want of them. May block
	 * (bounded). */
	int (*resolve)(struct path_dest *d);
	/* Tells whether `from`, as receive() names it, is the destination `d`: both are this
	 * path's (path_is_from). */
	bool (*same)(const struct path_dest *d, const struct path_dest *from);
	/* Tells whether the destination's process had this queue pair when it was last looked
	 * at, of this type (enum ibv_qp_type) or, with 0, of any. */
	bool (*holds)(const struct path_dest *d, u32 qpn, u32 type);
	/* Tells whether that queue pair had posted requests that it had not sent yet, when it was
	 * last looked at. NULL: not known. */
	bool (*behind)(const struct path_dest *d, u32 qpn);
	/* `emptied` must grow soon: the next polls look everywhere. Any lock may be held. NULL:
	 * every empty poll counts anyway. */
	void (*want_look)(struct path *p);
	/* Runs fn while no thread is inside any callback of path_user, nor enters one. May
	 * block. */
	void (*exclude)(struct path *p, void (*fn)(void *arg), void *arg);
} FIXED;

struct path {
	const struct path_ops *ops FIXED;
	struct path_guarantees guarantees FIXED;
	const struct path_user *user_ops FIXED;
	void *user FIXED;
	u64 *counters FIXED; /* PATH_COUNTERS of them */
	/* Unused so far: poll() need not be called without `must`. True from creation until the
	 * first destination or packet; atomic */
	bool idle OWNED_BY(nobody: atomic);
	/* Number of datagram queue pairs, whose consumers see a packet's traffic class and hop
	 * limit; other queue pairs sample marked packets. Atomic */
	u32 datagrams OWNED_BY(nobody: atomic);
	/* Counts polls that found nothing anywhere: every packet that had arrived when such a poll
	 * began has been received. Atomic; grows only on request (want_look) */
	u64 emptied ATOMIC_ONLY;
};

static inline u64 path_emptied(const struct path *p)
{
	return __atomic_load_n(&p->emptied, __ATOMIC_ACQUIRE); /* pairs with path_found_empty */
}

/* Called inside the path's exclusion. */
static inline void path_found_empty(struct path *p)
{
	__atomic_fetch_add(&p->emptied, 1, __ATOMIC_RELEASE);
}

static inline bool path_shows_headers(const struct path *p)
{
	return __atomic_load_n(&p->datagrams, __ATOMIC_RELAXED) != 0;
}

static inline bool path_is_idle(const struct path *p)
{
	return __atomic_load_n(&p->idle, __ATOMIC_RELAXED);
}

static inline void path_wake(struct path *p)
{
	if (unlikely(path_is_idle(p)))
		__atomic_store_n(&p->idle, false, __ATOMIC_RELAXED);
}

static inline void path_count_many(const struct path *p, enum path_counter c, u32 n)
{
	__atomic_fetch_add(&p->counters[c], n, __ATOMIC_RELAXED);
}

static inline void path_count(const struct path *p, enum path_counter c)
{
	path_count_many(p, c, 1);
}

/* Each destination begins with this; the path initialises it with path_dest_init. */
struct path_dest {
	struct path *path FIXED;
	struct lock blocked_lock;
	struct list_head blocked
		GUARDED_BY(blocked_lock); /* the engine's queue pairs that wait for writable() */
	/* what a poll that finds nothing has to do; hints */
	union {
		struct {
			bool acks_owed ATOMIC_ONLY;   /* batch_end(idle) has something to do */
			bool any_blocked ATOMIC_ONLY; /* blocked is not empty; for each poll */
			bool presses ATOMIC_ONLY;     /* the path waits for the peer */
		};
		u32 chores; /* all of them */
	};
	/* a datagram has waited for room until its timeout; none was taken since */
	bool drops_when_full ATOMIC_ONLY;
	/* queue pairs that owe an acknowledgement, at once or at the end of the batch */
	struct list_head acks OWNED_BY(callbacks of the path);
	struct list_head acks_now OWNED_BY(callbacks of the path);
	struct path_absent absent OWNED_BY(callbacks of the path); /* not yet reported */
	struct path_window own_window GUARDS_ITSELF;
	/* The window that counts: its own, or one shared with other destinations in the same
	 * process. */
	struct path_window *window FIXED;
};

/* Tells whether `from`, as receive() names it, is the destination `d`: of the same path, too. */
static inline bool path_is_from(const struct path_dest *d, const struct path_dest *from)
{
	return d == from || (d->path == from->path && d->path->ops->same(d, from));
}

/* Tells whether a queue pair waits for writable(). A hint. */
static inline bool path_is_awaited(const struct path_dest *d)
{
	return __atomic_load_n(&d->any_blocked, __ATOMIC_RELAXED);
}

/* Tells whether a poll that has found nothing has something to do. A hint. */
static inline bool path_has_chores(const struct path_dest *d)
{
	return __atomic_load_n(&d->chores, __ATOMIC_RELAXED) != 0;
}

static inline bool path_presses(const struct path_dest *d)
{
	return __atomic_load_n(&d->presses, __ATOMIC_RELAXED);
}

/* Tells whether batch_end has work when nothing more comes. A hint. */
static inline bool path_owes_acks(const struct path_dest *d)
{
	return __atomic_load_n(&d->acks_owed, __ATOMIC_RELAXED);
}

/* Tells whether a datagram that finds no room is dropped at once. A hint from one queue pair to the
 * next. */
static inline bool path_drops_when_full(const struct path_dest *d)
{
	return __atomic_load_n(&d->drops_when_full, __ATOMIC_RELAXED);
}

static inline void path_set_drops_when_full(struct path_dest *d, bool yes)
{
	__atomic_store_n(&d->drops_when_full, yes, __ATOMIC_RELAXED);
}

/* Tells whether batch_end(!idle) has work. */
static inline bool path_batch_owes(const struct path_dest *d)
{
	return !list_empty(&d->acks_now) || d->absent.count != 0 || d->absent.all;
}

static inline void path_dest_init(struct path_dest *d, struct path *p) NO_THREAD_SAFETY
{
	d->path = p;
	lock_init(&d->blocked_lock);
	list_init(&d->blocked);
	list_init(&d->acks);
	list_init(&d->acks_now);
	d->chores = 0;
	d->drops_when_full = false;
	d->absent.count = 0;
	d->absent.all = false;
	d->own_window = (struct path_window){ .in_flight = 0 };
	list_init(&d->own_window.waiting);
	d->window = &d->own_window;
}

#endif
