/* net.h: two engines in one process, joined by a path in memory that loses, doubles and delays
 * packets from a seed, in virtual time. One thread. */
#ifndef ENGINE_NET_H
#define ENGINE_NET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ibt/ibt.h"

enum {
	NET_MAX = 8192, /* packets on their way */
	NET_PAYLOAD = 4096,
	NET_MEMORY = 4 << 20, /* registered bytes of a side */
	NET_COMPLETIONS = 4096,
	NET_BUFFER = 212992, /* a stock receive buffer */
	NET_SEEN = 4096,
	NET_BATCH = 256,
	NET_SECOND_QPN = 0x55, /* a datagram to it goes by net_side.second */
	NET_MEMBER = 0x1000,
	NET_RUN = 16, /* packets that a receiver is shown together */
};

struct net;

/* A packet on its way, or one that was seen. */
struct net_packet {
	u64 due_ns, order;
	int to;
	u8 plane;
	struct pkt pkt;
	u8 payload[NET_PAYLOAD];
};

struct net_dest {
	struct path_dest dest;
	int side, to;
	u8 plane; /* 1: another way, with other addresses; only with net_config.planes */
	struct net *net;
};

/* One engine and what it stands on. */
struct net_side {
	struct net *net;
	int index;
	struct path path;
	u64 counters[PATH_COUNTERS];
	struct net_dest dest, from; /* what it sends to; how its receiver names the source */
	struct net_dest second;     /* the same peer again, with a window of its own */
	struct net_dest from_second; /* how its receiver names the source, with planes */
	struct mem_table mem;
	struct timer_set timers;
	struct cq send_cq, recv_cq;
	struct ibt *ibt;
	struct ibt_counters qp_counters;
	u8 *memory;
	u32 key;
	/* whom it knows as members of any multicast group: of NET_MEMBER's number and on */
	u32 members;
	int refs; /* of `dest` */
	u32 events[32]; /* asynchronous events by type */
	/* Whoever receives does not run, as if he had lost his core inside; timers do. */
	bool held_up;
	bool flooded; /* with what is for nobody here: a look never finds nothing */
};

struct net_config {
	u64 seed;
	u32 loss, doubling, late; /* of 10,000 packets */
	u64 delay_ns, late_ns;	  /* all; those that are overtaken */
	bool reliable;
	bool planes; /* net_side.second is another way */
	bool singly; /* each packet is received by itself */
	bool direct; /* the initiator may reach the other side's memory by itself */
	bool unreadable; /* but a receiver finds that it cannot */
	u32 pulls; /* a receiver finds so at this one, counted from 1; 0: at none */
	u32 room[2]; /* packets that fit on the way to a side; 0: no limit */
	u32 mtu;  /* of the path; 0: 4096 */
	/* what is sent together, up to a flush, is lost until that is found out */
	bool batches_lost;
	/* What a switch on the way does with the packets of either direction. 0: there is none */
	u64 bottleneck;		/* bytes per second */
	u32 queue;		/* bytes that it keeps; what comes beyond is lost */
	u32 mark_from, mark_to; /* of its queue: marks a few from here on, and all from there on */
};

struct net {
	struct net_config cfg;
	struct net_side side[2];
	struct net_packet *flying[NET_MAX];
	u32 count;
	u64 order, random;
	u64 buffered[2], most_buffered; /* bytes of requests on their way to a side */
	struct net_packet *batch[NET_BATCH]; /* sent since the last flush */
	u32 batch_count;
	u32 distrusted[2]; /* how often a side has found that out */
	u64 busy_ns[2];			/* until when the switch has something for a side */
	u64 most_queued, marked;	/* bytes in the switch, packets */
	/* Looks at what is sent; true: the packet is lost. */
	bool (*tap)(struct net *net, int from, struct pkt *p);
	void *tap_arg;
	bool cut[2]; /* ways by which nothing gets through */
	u8 sending;  /* the way of the packet that the tap sees */
	u64 sent, lost;
	u64 briefs; /* packets that went the short way at the receiver */
	u64 in_runs; /* of those, together with others */
};

/* Fills *net. */
void net_open(struct net *net, const struct net_config *cfg);
void net_close(struct net *net);
/* The time, for all of them. */
u64 net_now(void);
/* Time passes, but nobody runs meanwhile. */
void net_freeze(u64 ns);
u32 net_random(struct net *net, u32 below);
/* The next thing happens: a packet arrives or a timer is due. False: nothing will. */
bool net_step(struct net *net);
/* Until nothing happens any more or so much time has passed. */
void net_run(struct net *net, u64 limit_ns);
/* What a side's window counts as under way. */
u32 net_in_flight(const struct net_side *s);
/* A packet as if it had come off the wire, at once. */
void net_inject(struct net *net, int to, const struct pkt *p, const void *payload);

struct net_qp {
	enum ibv_qp_type type;
	enum ibv_mtu mtu;
	u32 depth, rq_psn, sq_psn;
	u8 timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic;
	bool all_signalled;
	bool second; /* connected by net_side.second */
	bool receives; /* stays in RTR */
	struct ibt_srq *srq; /* of the side on which the queue pair is made */
};
/* What a test changes some of. */
struct net_qp net_qp_defaults(enum ibv_qp_type type);
/* A queue pair of number `qpn`, in INIT. */
struct ibt_qp *net_qp_create(struct net *net, int side, u32 qpn, const struct net_qp *q);
/* To RTS, or RTR, connected with `peer` of the other side. */
void net_qp_connect(struct net *net, int side, struct ibt_qp *qp, u32 peer,
		    const struct net_qp *q);
/* Brings one for datagrams from INIT to RTR or RTS. */
void net_qp_datagrams(struct ibt_qp *qp, u32 qkey, enum ibv_qp_state until);
/* A pair of them, numbers 0x11 and 0x22. */
void net_pair(struct net *net, struct ibt_qp *qp[2], const struct net_qp *q);

void net_post_recv(struct net_side *s, struct ibt_qp *qp, u64 wr_id, u32 offset, u32 length);
/* A request on one SGE of the side's memory. */
struct ibv_send_wr net_wr(struct ibv_sge *sge, struct net_side *s, enum ibv_wr_opcode opcode,
			  u64 wr_id, u32 offset, u32 length);
/* The same with an address in the other side's memory. */
void net_wr_remote(struct ibv_send_wr *wr, struct net_side *other, u32 offset);
void net_post(struct ibt_qp *qp, struct ibv_send_wr *wr);
/* The next completion; fails where there is none. */
struct ibv_wc net_wc(struct cq *cq);

#endif
