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

struct path_promise {
	bool ordered;  /* packets of one sender to one destination arrive in the order sent */
	bool reliable; /* a packet taken by send() arrives unless the destination's process dies */
	bool direct;   /* write()/read() may reach the peer's registered memory */
	u32 mtu;       /* payload bytes a packet may carry */
};

/* BTH opcodes without the transport's bits (the QP's type says which): IBA vol 1, table 38. */
enum pkt_opcode {
	PKT_SEND_FIRST,
	PKT_SEND_MIDDLE,
	PKT_SEND_LAST,
	PKT_SEND_LAST_IMM,
	PKT_SEND_ONLY,
	PKT_SEND_ONLY_IMM,
	PKT_WRITE_FIRST,
	PKT_WRITE_MIDDLE,
	PKT_WRITE_LAST,
	PKT_WRITE_LAST_IMM,
	PKT_WRITE_ONLY,
	PKT_WRITE_ONLY_IMM,
	PKT_READ_REQUEST,
	PKT_READ_FIRST,
	PKT_READ_MIDDLE,
	PKT_READ_LAST,
	PKT_READ_ONLY,
	PKT_ACK,
	PKT_ATOMIC_ACK,
	PKT_COMPARE_SWAP,
	PKT_FETCH_ADD,
	PKT_RESYNC,
	PKT_SEND_LAST_INV,
	PKT_SEND_ONLY_INV,
	/* no wire form: a reliable path's answer that the QP is absent or not receiving */
	PKT_ABSENT,
	PKT_OPCODES
};

enum pkt_flags {
	PKT_SOLICITED = 1,
	PKT_ACK_REQUEST = 2,
	/* ack_psn acknowledges the reverse direction; only where the path is reliable */
	PKT_HAS_ACK = 4,
	/* sgid and dgid are set (UD) */
	PKT_HAS_GRH = 8,
	PKT_MULTICAST = 16,
	/* WRITE with immediate: a direct path has placed the data already, only the notice
	 * travels */
	PKT_PLACED = 32,
	/* the payload is a list of iovecs in the sender's memory, of dma_length bytes */
	PKT_PULL = 64,
};

/* AETH syndromes, IBA vol 1, 9.7.5.1.2. */
enum { AETH_ACK = 0x1f, AETH_RNR = 0x20, AETH_NAK = 0x60 };
enum {
	NAK_PSN_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATION = 3,
	NAK_CANNOT_PULL = 31 /* no wire form: send the bytes instead */
};

struct pkt {
	u8 opcode;   /* enum pkt_opcode */
	u8 flags;    /* enum pkt_flags */
	u8 qp_type;  /* enum ibv_qp_type: RC, UC, UD */
	u8 syndrome; /* AETH */
	u32 dqpn, sqpn;
	u32 psn;     /* 24 bits */
	u32 ack_psn; /* PKT_HAS_ACK */
	u32 imm;     /* immediate data, network order as in ibv_wc; or the key of SEND_WITH_INV */
	u32 length;  /* payload bytes */
	u32 qkey;    /* UD */
	u32 msn;     /* AETH */
	u32 rkey;    /* RETH, AtomicETH */
	u64 va;	     /* RETH, AtomicETH */
	u64 dma_length;	       /* RETH: bytes of the whole message */
	u64 compare, swap;     /* AtomicETH; ATOMIC_ACK: the original value is in `swap` */
	const u8 *sgid, *dgid; /* 16 bytes each, with PKT_HAS_GRH */
	u8 traffic_class, hop_limit;
	u32 flow_label;
};

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
	COUNT_PORT_DOWN, /* packets that met a port that is down, on their way out or in */
	PATH_COUNTERS
};
extern const char *const path_counter_names[PATH_COUNTERS];

/* Where a packet goes. Reference counted by the path. */
struct path_dest;
struct path;

/* What a path tells its engine. Called from path_poll, with no path lock that send() needs. */
struct path_user {
	/* A packet with its payload in path memory, valid until return. The payload may change
	 * under us: copy, then judge. */
	void (*receive)(void *user, struct path_dest *from, const struct pkt *p,
			const void *payload);
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
};

struct path_ops {
	const char *name;
	/* The destination that `gid` and `qpn` name, with a reference; NULL: not reachable by
	 * this path. Never blocks: what must be asked is asked in the background, send() says
	 * -EAGAIN until then. */
	struct path_dest *(*dest_get)(struct path *p, const u8 gid[16], u32 qpn);
	/* One that nobody is behind: send() always says -ENETUNREACH. With a reference. */
	struct path_dest *(*dest_nowhere)(struct path *p);
	void (*dest_hold)(struct path_dest *d);
	void (*dest_put)(struct path_dest *d);
	/* Takes a whole packet or nothing. -EAGAIN: no room, writable() follows; -ENETUNREACH:
	 * nobody there (may change); -EPIPE: dead. */
	int (*send)(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int iovcnt);
	/* Hands what was sent to the other side's attention (doorbell). One call after a batch
	 * of send()s. */
	void (*flush)(struct path_dest *d);
	/* Copies to or from the peer's memory at once. 0: done, and visible in ascending order;
	 * -EOPNOTSUPP or -EACCES: send packets instead, the peer's engine judges. */
	int (*direct)(struct path_dest *d, const struct path_target *t, const struct iovec *iov,
		      int iovcnt);
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
	/* Is it still being looked for, so that send() would say -EAGAIN? */
	bool (*asking)(const struct path_dest *d);
	/* Is `from`, as receive() names it, the destination `d`? */
	bool (*same)(const struct path_dest *d, const struct path_dest *from);
	/* Did the destination's process have this queue pair when it was last seen? */
	bool (*holds)(const struct path_dest *d, u32 qpn);
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
};

static inline void path_count(const struct path *p, enum path_counter c)
{
	__atomic_fetch_add(&p->counters[c], 1, __ATOMIC_RELAXED);
}

/* Each destination begins with this; the path initialises it with path_dest_init. */
struct path_dest {
	struct path *path;
	struct lock blocked_lock;
	struct list_head blocked
		GUARDED_BY(blocked_lock); /* the engine's queue pairs that wait for writable() */
	bool any_blocked;		  /* hint: blocked is not empty */
	bool acks_owed; /* hint: batch_end(idle) has something to do */
	/* The engine's queue pairs, all guarded by being in a callback: */
	struct list_head acks;     /* owe an acknowledgement some time */
	struct list_head acks_now; /* owe one at the end of the batch */
};

static inline void path_dest_init(struct path_dest *d, struct path *p) NO_THREAD_SAFETY
{
	d->path = p;
	lock_init(&d->blocked_lock);
	list_init(&d->blocked);
	list_init(&d->acks);
	list_init(&d->acks_now);
	d->any_blocked = d->acks_owed = false;
}

#endif
