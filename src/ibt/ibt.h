/* ibt.h: the InfiniBand transport engine: requester, responder and completer of RC, UC and UD queue
 * pairs.
 *
 * It works in libibverbs' layout and knows memory (mem), completions (queue) and packets (path.h);
 * no socket, no clock of its own, no process. One instance per process. Locks: a queue pair's
 * sq_lock, then its rq_lock; CQ and SRQ locks are leaves.
 *
 * Here lies what every role stands on: the engine, its queue pairs and their table, what is
 * runnable and what waits for room; traits.c has all that the transport types differ in.
 *
 *     send/   requester and completer: from a post to the completion of the request
 *  receive/   responder: from a packet to the completion of the receive, and its answers
 *    lossy/   the requester over a path that loses packets: window, retransmission, rate
 *  migrate/   a second path to the peer
 *      xrc/   XRC targets, whose requests another process executes
 *   tagged/   tag-matching SRQs
 */
#ifndef IBT_IBT_H
#define IBT_IBT_H

#include "base/timer.h"
#include "mem/mem.h"
#include "path/path.h"
#include "queue/cq.h"

enum {
	IBT_INDEX_BITS = 14,
	IBT_TABLES = 1024,
	IBT_MAX_SGE = 32,
	IBT_MAX_INLINE = 1024,
	IBT_MAX_WR = 32768,
	IBT_MAX_RD_ATOMIC = 128,
	IBT_MAX_MESSAGE = 1u << 31,
	IBT_GRH = 40,
	IBT_TM_MAX_TAGS = 1 << 16,
	IBT_TM_MAX_OPS = 4096,
	IBT_TM_MAX_SGE = 16,
	IBT_TM_MAX_RNDV_HDR = 256, /* bytes of a whole rendezvous request: the smallest path MTU */
	IBT_MEMBERS = 256, /* of a multicast group, asked for at once */
};

struct ibt;
struct ibt_qp;
struct ibt_srq;

/* Per queue pair, shown by status, which reads them without a lock. */
struct ibt_counters {
	u64 sent WRITTEN_UNDER(requester.sq_lock), received WRITTEN_UNDER(responder.rq_lock);
	u64 sent_bytes WRITTEN_UNDER(requester.sq_lock);
	u64 received_bytes WRITTEN_UNDER(responder.rq_lock);
	u64 errors ATOMIC_ONLY;
	/* enum ibv_wc_status of the last completion with an error that was no flush, with
	 * IBT_ERROR_OF_RECEIVE; 0: none */
	u32 last_error ATOMIC_ONLY;
	/* 1: requests are posted that have not been sent. Peers read it when this process has
	 * died */
	u32 behind WRITTEN_UNDER(requester.sq_lock);
	/* READs among `sent`; stored before it */
	u64 reads WRITTEN_UNDER(requester.sq_lock);
	u64 read_bytes WRITTEN_UNDER(requester.sq_lock);
};

enum { IBT_ERROR_OF_RECEIVE = 0x100 };

/* A member of a multicast group. */
struct ibt_member {
	struct path_dest *dest; /* with a reference */
	u32 qpn;
	u32 at; /* its place in the group; the same as long as it is a member */
} OWNED_BY(the caller);

/* What the adapter gives its engine. Callbacks may come from any thread, inside a verb, and must
 * not call back into ibt. */
struct ibt_config {
	struct mem_table *mem;
	struct timer_set *timers;
	void (*kick)(void *arg); /* a timer became the earliest: a sleeper must look again */
	void (*publish)(
		void *arg,
		struct ibt_qp *qp); /* state, access or peer changed: tell peers. Never blocks */
	void (*async)(void *arg, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type);
	/* Members of a multicast address whose place is `from` or behind it, in the order of their
	 * places: fills up to max, which is IBT_MEMBERS at most; returns the count. Fewer than max:
	 * that was the last of them. Never blocks. */
	int (*multicast)(void *arg, const struct path_av *av, const struct pkt *p, u32 from,
			 struct ibt_member *out, int max);
	/* The path and destination of a unicast datagram; NULL: unreachable. Never blocks. */
	struct path_dest *(*route)(void *arg, const struct path_av *av, const struct pkt *p);
	/* A datagram to QP1, which is no queue pair of the engine: the midlayer's MAD layer is its
	 * only consumer. The payload may change under us. NULL: nobody takes any. Never blocks. */
	void (*general)(void *arg, const struct pkt *p, const void *payload);
	/* A datagram had another P_Key or Q_Key than its queue pair, and is dropped. NULL: nobody
	 * is told. Runs under the queue pair's rq_lock; never blocks. */
	void (*bad_key)(void *arg, const struct pkt *p, bool is_qkey);
	void *arg;
	/* By the device's index, where to count packets that found no room or a port that is down.
	 * NULL: nobody asks. */
	struct path_traffic *traffic;
	/* A place in a work queue is free when its request is complete, not only when that has been
	 * polled (struct cq_source). */
	bool frees_early;
} FIXED;

enum { IBT_NO_DEVICE = 0xff };

struct ibt_qp_init {
	u32 type; /* enum ibv_qp_type: RC, UC, UD, XRC_SEND, XRC_RECV */
	u32 qpn;
	u32 pd; /* XRC_RECV: none */
	u64 xrcd; /* XRC_RECV: the number of its XRC domain */
	struct ibv_qp_cap cap; /* in and out */
	/* What a type does not use is NULL: XRC_SEND has no recv_cq, XRC_RECV neither. Both have no
	 * srq: each request names one. */
	struct cq *send_cq, *recv_cq;
	struct ibt_srq *srq;
	bool sq_sig_all;
	/* of the driver's QP, in front of the queue pair; 0: it is the queue pair itself */
	u32 owner_bytes;
	struct ibt_counters *counters; /* where to count; the owner's */
	u8 device; /* index in ibt_config.traffic of the device that it is of, or IBT_NO_DEVICE */
	const struct queue_memory *memory; /* for its queues, outlives it; NULL: the heap */
} OWNED_BY(the caller);

struct ibt *ibt_create(const struct ibt_config *cfg);
void ibt_destroy(struct ibt *ibt);
/* Registers a path: sets its user. */
void ibt_add_path(struct ibt *ibt, struct path *p);
/* Receives on every path; returns packets handled. Runs due timers now and then. Any thread. */
int ibt_poll(struct ibt *ibt, int budget);
/* The same for the last look before a sleep: waits until another thread that receives has finished,
 * for that one may have looked before a packet came whose sender found no sleeper to wake. */
int ibt_look(struct ibt *ibt, int budget);

/* Tells where the fields lie that explain a queue pair, for a reader of this process' memory. */
void ibt_show_places(struct path_place out[INSIDE_COUNT]);

/* Creates a queue pair in RESET. Caps beyond the limits, memory that is not aligned: -EINVAL;
 * -ENOMEM. The owner's room, zeroed, is freed with the queue pair. */
int ibt_qp_create(struct ibt *ibt, struct ibt_qp_init *init, struct ibt_qp **out);
/* Makes the queue pair unreachable, waits for threads inside it, drops its completions, frees
 * it. May block. */
void ibt_qp_destroy(struct ibt_qp *qp);
/* Do datagrams that the queue pair has taken still wait, for room or for their link? */
bool ibt_qp_has_datagrams(struct ibt_qp *qp);
/* What of its completions a queue pair counts: the bits of libibverbs' attach operations. */
enum ibt_count {
	IBT_COUNT_SEND = 1 << 0,
	IBT_COUNT_RECV = 1 << 1,
	IBT_COUNT_READ = 1 << 2,
	IBT_COUNT_WRITE = 1 << 4,
	IBT_COUNT_KNOWN = IBT_COUNT_SEND | IBT_COUNT_RECV | IBT_COUNT_READ | IBT_COUNT_WRITE,
};
enum { IBT_COUNTS = 5 }; /* places of the bits */
struct op_counter;
/* Counts what ends from now on, signalled or not, till the queue pair is destroyed; the counter
 * outlives it. In RESET and INIT only. 0; -EINVAL: the state, no kinds; -EBUSY: one of the kinds
 * has a counter; -EOPNOTSUPP: other kinds, an XRC target, a tag-matching SRQ; -EIO: unplugged;
 * -ENOMEM. Takes both locks. */
int ibt_qp_attach_counter(struct ibt_qp *qp, struct op_counter *counter, u32 kinds);
/* The adapter is gone. The queue pair enters ERR for good: what was posted is flushed, and posts
 * answer -EIO. Modifications must have ended, and none follows. Never blocks. */
void ibt_qp_unplug(struct ibt_qp *qp);
/* In a forked child: the queue pair belongs to the parent, here it only flushes what is posted.
 * Single-threaded. */
void ibt_qp_orphan(struct ibt_qp *qp);
/* Frees an orphan and drops its completions, nothing else. */
void ibt_qp_free_orphan(struct ibt_qp *qp);
/* The transition has been checked (attribute masks); values are checked here: -EINVAL. `av` and
 * `dest` (taken over) come with IBV_QP_AV. One at a time for one queue pair. May block. */
int ibt_qp_modify(struct ibt_qp *qp, const struct ibv_qp_attr *attr, int mask,
		  const struct path_av *av, struct path_dest *dest);
/* The P_Key that the queue pair's pkey_index names, and the port's (1 << LMC) - 1. The driver calls
 * it after each change of either, before the queue pair sends or receives. Without it a queue pair
 * has the default P_Key and LMC 0. A connection's P_Key is judged by the driver where it resolves
 * the address (path_av.pkey), a datagram's by its receiver. Takes both locks of the queue pair;
 * never blocks. */
void ibt_qp_set_port(struct ibt_qp *qp, u16 pkey, u8 lid_mask);
/* The port of the queue pair's device comes up, as it is at first, or goes down. While it is down
 * the queue pair's packets are lost, those that it sends and those to it, and counted
 * (COUNT_PORT_DOWN); peers find that it grants no access. What is lost on a path that promises to
 * be reliable is told to its sender (PKT_ABSENT), and what the queue pair itself has outstanding is
 * suspected to be lost. A packet that is being received meanwhile may still be executed. Takes both
 * locks of the queue pair; calls publish; never blocks. */
void ibt_qp_set_port_up(struct ibt_qp *qp, bool up);
/* Packets in flight may be lost in spite of what their path promised (the port was down): an RC
 * queue pair that waits for an answer begins its Local ACK Timeout, and sends again when that ends
 * what is not answered. Takes sq_lock; never blocks. */
void ibt_qp_suspect_loss(struct ibt_qp *qp);
/* Loads the alternate path of a connection, instead of the one before; takes `dest` over, and
 * av.pkey. What query shows of it and the migration state come by ibt_qp_modify; MIGRATED moves an
 * armed queue pair. One at a time with modifications. -ENOMEM. May block. */
int ibt_qp_load_alternate(struct ibt_qp *qp, const struct path_av *av, struct path_dest *dest);
void ibt_qp_query(struct ibt_qp *qp, struct ibv_qp_attr *attr);
enum ibv_qp_state ibt_qp_state(const struct ibt_qp *qp);
u32 ibt_qp_number(const struct ibt_qp *qp);
enum ibv_qp_type ibt_qp_type(const struct ibt_qp *qp);
u32 ibt_qp_peer(const struct ibt_qp *qp);
/* The remote access flags as peers must take them: without READ where none can be answered; none
 * while the port is down. */
u32 ibt_qp_access(const struct ibt_qp *qp);
void *ibt_qp_owner(const struct ibt_qp *qp);
/* Are the places of a queue with this CQ (or NULL) free once their requests are complete? So
 * ibt_config.frees_early wishes, and so it is where completions may be lost. */
bool ibt_frees_early(const struct ibt *ibt, const struct cq *cq);
/* cq.credit of the CQs of the engine's queue pairs. */
void ibt_credit(struct cq_source *source);
/* The queue pair behind an owner that lies in front of it. Reads nothing. */
static inline struct ibt_qp *ibt_qp_behind(const void *owner, size_t owner_bytes)
{
	size_t lines = (owner_bytes + CACHE_LINE - 1) / CACHE_LINE;

	return (struct ibt_qp *)((uintptr_t)owner + lines * CACHE_LINE);
}

/* Prefetches the lines that a send request reads first. A hint. */
void ibt_qp_fetch(const struct ibt_qp *qp);

/* Copies a datagram's address vector, as it is at that moment; false: there is none, or it is of
 * another protection domain than `pd`. */
typedef bool ibt_av_of(struct ibv_ah *ah, u32 pd, struct path_av *av);

/* -EINVAL (state, opcode, SGEs), -ENOMEM (queue full); *bad names the culprit. Never block. */
int ibt_post_send(struct ibt_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		  ibt_av_of *av_of);
int ibt_post_recv(struct ibt_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Would ibt_post_send take all of the list now? 0 or what it would say. Never blocks. */
int ibt_check_send(struct ibt_qp *qp, const struct ibv_send_wr *wr,
		   ibt_av_of *av_of);
/* Copies `length` bytes at `from`, which need no key, to the peer's memory (RC) at once, if that
 * memory is mapped here and the peer permits it, as an RDMA WRITE that completes before this
 * returns: requests that are posted later arrive after it, those in flight may arrive before or
 * after. False: nothing of it counts as written; a request does it. Never blocks.
 * Of 0 bytes, in any state: is the queue pair connected by a reliable path? Such a path reports the
 * death of the peer's process behind all packets of that process. False after such a death, too, if
 * its queue pair had posted more than it had sent. */
bool ibt_store(struct ibt_qp *qp, u32 rkey, u64 va, const void *from, u32 length);
/* Would a send request be taken now? 0 or what ibt_post_send would say; -EPIPE: it would be taken
 * only to be flushed. */
int ibt_may_send(struct ibt_qp *qp);
/* Posts what is left of a bind when the driver has bound the window: a completion in its place in
 * the queue. flags: IBV_SEND_SIGNALED, IBV_SEND_FENCE. Errors as of ibt_post_send; never blocks. */
int ibt_post_bound(struct ibt_qp *qp, u64 wr_id, u32 flags);
/* Posts a fast registration: when its turn comes, what was staged (mem_fast_stage) becomes valid
 * under `key` with the rights `access` (IBV_ACCESS_*). A failure then ends the request with
 * MW_BIND_ERR. flags and errors as of ibt_post_bound, and -EINVAL: not a connected type. */
int ibt_post_reg(struct ibt_qp *qp, u64 wr_id, u32 flags, u32 key, u32 access);

/* A shared receive queue. With tm_cq it matches tags (ibv_post_srq_ops(3)), and its receive and
 * list completions go to that CQ, whatever CQ a queue pair names; the CQ outlives it. Without, it
 * is a basic one, and the two limits that follow mean nothing. */
struct ibt_srq_init {
	u32 pd;
	u32 max_wr, max_sge; /* of its ordinary buffers */
	struct cq *tm_cq;    /* NULL: a basic SRQ */
	u32 max_num_tags;    /* 1 to IBT_TM_MAX_TAGS entries of up to IBT_TM_MAX_SGE elements */
	u32 max_ops;	     /* 1 to IBT_TM_MAX_OPS signalled operations that are not polled yet */
	void *owner;	     /* the driver's SRQ */
	const struct queue_memory *memory; /* for its queue, outlives it; NULL: the heap */
} OWNED_BY(the caller);

/* XRC domains with numbers below this are of one process: its targets hand no request on, and
 * nobody hands it one for them. */
#define IBT_XRC_SHARED (1ull << 32)

/* 0, -EINVAL: a limit; -ENOMEM. */
int ibt_srq_create(struct ibt *ibt, const struct ibt_srq_init *init, struct ibt_srq **out);
void ibt_srq_destroy(struct ibt_srq *srq);
/* Makes a basic SRQ one of the XRC domain `xrcd` (not 0): requests that reach a target of that
 * domain name it by `number`, 24 bits, which no other SRQ of the engine has. Its receives complete
 * in `cq`, which outlives it, and name no queue pair. Once, before it is used. 0, -ENOMEM. */
int ibt_srq_enter_domain(struct ibt_srq *srq, struct cq *cq, u64 xrcd, u32 number);
/* Ends that: requests that name the SRQ, also those whose message is in progress, are refused. What
 * such a message has taken completes no more. Before ibt_srq_destroy. May block. */
void ibt_srq_leave_domain(struct ibt_srq *srq);
/* In a forked child: lets go of a lock whose holder the child does not have. */
void ibt_srq_orphan(struct ibt_srq *srq);
/* The adapter is gone: posts answer -EIO. Never blocks. */
void ibt_srq_unplug(struct ibt_srq *srq);
/* Arms the limit event (0: disarms) or resizes. -EINVAL, -ENOMEM. May block. */
int ibt_srq_modify(struct ibt_srq *srq, const struct ibv_srq_attr *attr, int mask);
void ibt_srq_query(struct ibt_srq *srq, struct ibv_srq_attr *attr);
int ibt_srq_post(struct ibt_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Executes tag-matching operations in the order of the list, as ibv_post_srq_ops(3); tm.handle of
 * each TAG_ADD is written. 0, or *bad names the first that was refused, and those before it stand:
 * -EINVAL: no TM SRQ, opcode, handle, number of elements; -ENOMEM: more than max_ops or
 * max_num_tags; -EIO: the adapter is gone, or the CQ has overflowed. Any thread; never blocks. */
int ibt_srq_post_ops(struct ibt_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);
void *ibt_srq_owner(const struct ibt_srq *srq);

#endif
