/* path.h: how packets of the transport engine reach another queue pair, wherever it is.
 *
 * A path promises (struct path_promise); the engine asks the promise and never what kind of path it
 * is. A packet here is decoded: headers as fields, named as in IBA vol 1 ch. 9, payload as pieces
 * of memory. Rooms: shm (every process of this node, this one included); later udp, tcp, vlink.
 */
#ifndef PATH_PATH_H
#define PATH_PATH_H

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include "base/list.h"
#include "base/lock.h"
#include "wire/pkt.h"

_Static_assert(PKT_TYPE_RC == (int)IBV_QPT_RC, "pkt.h knows the number");

struct path_promise {
	bool ordered;  /* packets of one sender to one destination arrive in the order sent */
	bool reliable; /* a packet taken by send() arrives unless the destination's process dies */
	bool direct;   /* write()/read() may reach the peer's registered memory */
	u32 mtu;       /* payload bytes a packet may carry */
};

/* The low two bits of a traffic class, RFC 3168: a sender who slows down when told of congestion
 * says so, and a switch that has some marks his packets instead of dropping them. */
enum { PATH_ECN_MASK = 3, PATH_ECN_CAPABLE = 2 /* ECT(0) */, PATH_ECN_MARKED = 3 };

/* An address vector, as an AH or a queue pair's ah_attr has it, resolved by the driver. A LID of 0
 * says that the link layer has none (RoCE). */
struct path_av {
	u8 dgid[16], sgid[16]; /* both known, also where no GRH travels */
	u8 traffic_class; /* DSCP; ECN as the driver resolves it, not the consumer */
	u8 hop_limit;
	u8 sl : 4;
	bool no_grh : 1; /* the packet carries no GRH: a destination in the subnet, by LID */
	u8 port;	 /* of the device, from 1 on */
	u16 dlid;
	u16 slid; /* the port's LID with the source path bits */
	u16 pkey; /* the queue pair's; 0: the default P_Key */
	/* The UDP source port that a path with such should use, so that flows spread over the
	 * routes that there are; 0: any. */
	u16 sport;
	u32 flow_label;
};
_Static_assert(sizeof(struct path_av) == 48, "a send request has one, beside 8 bytes");

/* Counted drops and events of a process, for status and tests. */
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
	COUNT_TX_BLOCKED,
	COUNT_CQ_OVERFLOW,
	COUNT_PEER_DEATHS,
	COUNT_BELLS,
	COUNT_RX_ICRC,	     /* a wrong one */
	COUNT_RX_PKEY,	     /* a wrong one */
	COUNT_RX_WRONG_SLOT, /* joined by the kernel to a datagram for this process */
	COUNT_TX_PACKETS,    /* given to the wire */
	COUNT_TX_TOO_LONG,   /* longer than the way allows */
	COUNT_TX_FAILED,     /* refused by the kernel for another reason */
	COUNT_PORT_DOWN, /* packets that met a port that is down, on their way out or in */
	COUNT_RX_MARKED, /* by a switch that has congestion, of connected queue pairs */
	COUNT_RX_CNP,	 /* congestion that the peer tells of */
	COUNT_TX_CNP,
	COUNT_TX_UNBATCHED, /* destinations that got packets one by one from then on */
	COUNT_TX_PACED, /* waits between packets, after a notification */
	COUNT_RX_REFUSED, /* requests of UC that RC would have answered with a NAK */
	PATH_COUNTERS
};
extern const char *const path_counter_names[PATH_COUNTERS];

/* Where a packet goes. Reference counted by the path. */
struct path_dest;
struct path;

enum { PATH_ABSENT_MOST = 32 };

/* Answers that found no room: who asked for a queue pair that is absent or not receiving. More of
 * them than fit: `all`. */
struct path_absent {
	u32 count;
	bool all;
	struct {
		u32 dqpn, sqpn, psn; /* of the answer */
	} answer[PATH_ABSENT_MOST];
};

/* What the engine has under way to a destination whose path loses packets. Bytes, with a charge
 * per packet. */
struct path_window {
	struct lock lock;
	u32 in_flight GUARDED_BY(lock);
	u32 limit GUARDED_BY(lock); /* 0: what a stock receive buffer holds */
	u32 fast_to GUARDED_BY(lock); /* up to here it grows fast; 0: nothing has been lost yet */
	/* The shortest way there and back that any of the engine's queue pairs has measured, and of
	 * how many measurements, up to a few */
	u32 rtt_us ATOMIC_ONLY, rtts ATOMIC_ONLY;
	u64 cut_ns GUARDED_BY(lock); /* when the limit was last lowered */
	struct list_head waiting GUARDED_BY(lock); /* the engine's queue pairs, each for its turn */
	bool any_waiting ATOMIC_ONLY; /* hint: waiting is not empty */
};

/* What a path tells its engine. Called from path_poll, with no path lock that send() needs. */
struct path_user {
	/* A packet with its payload in path memory, valid until return. The payload may change
	 * under us: copy, then judge. */
	void (*receive)(void *user, struct path_dest *from, const struct pkt *p,
			const void *payload);
	/* Does a queue pair take the packet, whose sender the path does not know yet: one of
	 * datagrams, or one that is connected with the sender? Else the engine counts the packet,
	 * and the path drops it and keeps nothing of its sender. A path that knows all senders
	 * does not ask. Called like receive. */
	bool (*awaits)(void *user, const struct path_dest *from, const struct pkt *p);
	/* A brief one, likewise. False: nothing has been done with it, receive() is to have it. */
	bool (*receive_brief)(void *user, struct path_dest *from, const struct pkt_brief *b,
			      const void *payload);
	/* The next `n` (at least 1) at once, which are brief, if they have come already. Takes the
	 * first so many and returns how many: as if receive_brief had had each; the rest is to come
	 * one by one. */
	u32 (*receive_run)(void *user, struct path_dest *from, const struct pkt_brief *b,
			   const void *const *payload, u32 n);
	/* The batch of packets from `from` has ended; with `idle`, nothing more came from it
	 * although from->acks_owed is set. Like receive: one thread at a time, which is what
	 * guards path_dest.acks. */
	void (*batch_end)(void *user, struct path_dest *from, bool idle);
	/* There is room again (or an answer about reachability) for a destination whose send()
	 * said -EAGAIN. */
	void (*writable)(void *user, struct path_dest *dest);
	/* The destination's process has died: nothing sent to it will ever be answered. */
	void (*dead)(void *user, struct path_dest *dest);
};

/* The peer's QP and memory as one one-sided operation names them. */
struct path_target {
	u32 sqpn, dqpn; /* both ends of the connection */
	u32 rkey;
	u64 va, length;
	bool write; /* else read */
	u8 type;    /* enum ibv_qp_type, of both ends */
};

/* One of several WRITEs of a connection: from our memory to the peer's. */
struct path_write {
	const void *from;
	u64 va;
	u32 length; /* not 0 */
	u32 rkey;
};

/* What a connection has found to be allowed: its path's own. All zero: nothing. To be cleared when
 * the connection's destination or queue pair is another one. */
struct path_grant {
	u64 generation;
	u64 va, length; /* as the peer names it */
	u8 *here;	/* where that lies */
	u32 rkey;
};

/* What an atomic operation does to the 8 bytes at its target, in the host's byte order. */
struct path_atomic {
	bool swap; /* compare and swap; else fetch and add */
	u64 compare;
	u64 operand; /* to put there, or to add */
	u64 before;  /* out: what was there */
};

struct path_ops {
	const char *name;
	/* The destination that `av` and `qpn` name, with a reference; NULL: not reachable by
	 * this path. Never blocks: what must be asked is asked in the background, send() says
	 * -EAGAIN until then. */
	struct path_dest *(*dest_get)(struct path *p, const struct path_av *av, u32 qpn);
	/* One that nobody is behind: send() always says -ENETUNREACH. With a reference. */
	struct path_dest *(*dest_nowhere)(struct path *p);
	void (*dest_hold)(struct path_dest *d);
	void (*dest_put)(struct path_dest *d);
	/* Takes a whole packet or nothing. -EAGAIN: no room, writable() follows; -ENETUNREACH:
	 * nobody there (may change); -EPIPE: dead; -EFAULT: the payload is not mapped any more. */
	int (*send)(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int iovcnt);
	/* The same for `n` brief ones in a row (at least 1), each with its payload. Takes the first
	 * so many and returns how many; of one that it does not take send() says why. NULL: the
	 * path has no shorter way for them. */
	u32 (*send_briefs)(struct path_dest *d, const struct pkt_brief *b,
			   const void *const *payload, u32 n);
	/* Hands what was sent to the other side's attention (doorbell). One call after a batch
	 * of send()s. */
	void (*flush)(struct path_dest *d);
	/* What was handed over together has not arrived, again and again, while what went alone
	 * has: for some time each packet goes alone. NULL: it makes no difference. */
	void (*batches_lost)(struct path_dest *d);
	/* The peer is silent, or asks for what it has been told: what was sent last may not have
	 * arrived, and a way that is only presumed to be right is left. NULL: there is none. */
	void (*peer_silent)(struct path_dest *d);
	/* Copies to or from the peer's memory at once. 0: done, and visible in ascending order;
	 * -EOPNOTSUPP or -EACCES: send packets instead, the peer's engine judges; -EFAULT:
	 * likewise, with PKT_UNREACHED, for the kernel finds nothing there. */
	int (*direct)(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		      int iovcnt);
	/* Does WRITEs of the connection (RC) of our `sqpn` with `dqpn` there, in this order, where
	 * the peer's memory is mapped here. Takes the first so many and returns how many; of one
	 * that it does not take direct() says why. `g` is the connection's, which nobody else uses
	 * meanwhile. NULL: never. */
	u32 (*writes)(struct path_dest *d, u32 sqpn, u32 dqpn, struct path_grant *g,
		      const struct path_write *w, u32 n);
	/* Does it at once where the peer's memory is mapped here (`t` has length 8, write is true).
	 * 0, or as direct(). NULL: never. */
	int (*atomic)(struct path_dest *d, const struct path_target *t, struct path_atomic *a);
	/* May a packet to `d` name the sender's memory instead of carrying it (PKT_PULL)? */
	bool (*pullable)(struct path_dest *d);
	/* Copies what such a packet from `from` names into our memory; both lists have `bytes`. 0;
	 * -EOPNOTSUPP: it cannot be read; -EPIPE: the sender's queue pair `sqpn` (connected to
	 * ours, `dqpn`) has stopped sending meanwhile, so what was copied may be anything. */
	int (*pull)(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
		    const struct iovec *ours, int m, u64 bytes);
	/* Receives at most `budget` packets; returns how many. Any thread. While another one
	 * receives, a thread that comes returns 0 at once or, if it `must` know that nothing is
	 * there, waits for its turn: for the last look before a sleep. */
	int (*poll)(struct path *p, int budget, bool must);
	/* Waits until the destination can be used or is known to be absent: 0 or -ENETUNREACH.
	 * May block (bounded). */
	int (*resolve)(struct path_dest *d);
	/* Is `from`, as receive() names it, the destination `d`? */
	bool (*same)(const struct path_dest *d, const struct path_dest *from);
	/* Did the destination's process have this queue pair when it was last seen? */
	bool (*holds)(const struct path_dest *d, u32 qpn);
	/* `emptied` is to grow soon: the next polls look everywhere. Any lock may be held. NULL:
	 * each poll that finds nothing counts anyway. */
	void (*want_look)(struct path *p);
	/* Runs fn while no thread is inside any callback of path_user, nor will enter one. May
	 * block. */
	void (*exclude)(struct path *p, void (*fn)(void *arg), void *arg);
};

struct path {
	const struct path_ops *ops;
	struct path_promise promise;
	const struct path_user *user_ops;
	void *user;
	u64 *counters; /* PATH_COUNTERS of them */
	/* Unused so far: poll() need not be called, unless it `must`. From creation until the first
	 * destination or packet; atomic */
	bool idle;
	/* Queue pairs of datagrams, whose consumers see a packet's traffic class and hop limit; the
	 * others hear of marked packets now and then. Atomic */
	u32 datagrams;
	/* Looks that found nothing anywhere, so that whatever had arrived when they began has been
	 * received. Atomic; only grows while it is wanted (want_look) */
	u64 emptied;
};

static inline u64 path_emptied(const struct path *p)
{
	return __atomic_load_n(&p->emptied, __ATOMIC_ACQUIRE); /* pairs with path_found_empty */
}

/* Inside the path's exclusion. */
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
	bool any_blocked ATOMIC_ONLY;	  /* hint: blocked is not empty */
	bool acks_owed ATOMIC_ONLY; /* hint: batch_end(idle) has something to do */
	/* a datagram has waited in vain for room; none has been taken since */
	bool given_up ATOMIC_ONLY;
	/* queue pairs that owe an acknowledgement some time, and at the end of the batch */
	struct list_head acks OWNED_BY(callbacks of the path);
	struct list_head acks_now OWNED_BY(callbacks of the path);
	struct path_absent absent OWNED_BY(callbacks of the path); /* still to be told */
	struct path_window own_window GUARDS_ITSELF;
	/* What counts: its own, or one that it shares with others to the same process there. */
	struct path_window *window FIXED;
};

/* Does anybody wait for writable()? A hint. */
static inline bool path_is_awaited(const struct path_dest *d)
{
	return __atomic_load_n(&d->any_blocked, __ATOMIC_RELAXED);
}

/* Has batch_end something to do when nothing more comes? A hint. */
static inline bool path_owes_acks(const struct path_dest *d)
{
	return __atomic_load_n(&d->acks_owed, __ATOMIC_RELAXED);
}

/* Is a datagram that finds no room to be dropped at once? A hint, of any queue pair to the next. */
static inline bool path_is_given_up(const struct path_dest *d)
{
	return __atomic_load_n(&d->given_up, __ATOMIC_RELAXED);
}

static inline void path_give_up(struct path_dest *d, bool yes)
{
	__atomic_store_n(&d->given_up, yes, __ATOMIC_RELAXED);
}

/* Has batch_end(!idle) anything to do? */
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
	d->any_blocked = d->acks_owed = d->given_up = false;
	d->absent.count = 0;
	d->absent.all = false;
	d->own_window = (struct path_window){ .in_flight = 0 };
	list_init(&d->own_window.waiting);
	d->window = &d->own_window;
}

#endif
