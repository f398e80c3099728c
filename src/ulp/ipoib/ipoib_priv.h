/* ipoib_priv.h: inside IPoIB: the instance, its neighbours, its groups.
 *
 * One lock guards an instance. No call that may block is made under it, and no function of the
 * stack above; those are made by the thread of works (ipoib_step), which does all that takes time:
 * one step after the other, so that nothing there meets itself. Callbacks of the midlayer and the
 * completion handler take the lock, change fields, and wake that thread.
 */
#ifndef ULP_IPOIB_IPOIB_PRIV_H
#define ULP_IPOIB_IPOIB_PRIV_H

#include <rdma/ib_sa.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/list.h"
#include "base/work.h"
#include "ulp/ipoib/frame.h"
#include "ulp/ipoib/ipoib.h"

enum {
	IPOIB_GRH = 40,
	IPOIB_SEND_RING = 256,
	IPOIB_SPARE = 32, /* requests that are kept for frames of this room's own */
	IPOIB_RECEIVE_RING = 1024,
	IPOIB_RECEIVE_BYTES = IPOIB_GRH + IPOIB_HEAD + IPOIB_MTU,
	IPOIB_BUDGET = 64,		     /* completions of one look */
	IPOIB_BUCKETS = 256,
	IPOIB_NEIGHBOURS = 4096,
	IPOIB_HOPS = 256,
	IPOIB_WAITING = 16,	 /* packets that wait for one neighbour or group: 64 KiB */
	IPOIB_WAITING_ALL = 256, /* for all of them: 1 MiB */
	/* the device's, those that wait, and those being filled: one is always idle */
	IPOIB_BUFFERS = IPOIB_SEND_RING + IPOIB_WAITING_ALL + IPOIB_CALLERS + 1,
	IPOIB_ALL_GROUPS = 1024,
	IPOIB_QKEY = 0x0b1b, /* until the broadcast group says its own */
	IPOIB_QPN_MULTICAST = 0xffffff,
};

/* Neighbours age as RFC 4861, 10 has it. */
#define IPOIB_TICK_NS NS_PER_S
#define IPOIB_REACHABLE_NS (30 * NS_PER_S)
#define IPOIB_UNUSED_NS (120 * NS_PER_S)
#define IPOIB_AGAIN_NS NS_PER_S
enum { IPOIB_ASKS = 3, IPOIB_PATH_MS = 1000 };

/* Packets that wait for something. */
struct ipoib_wait {
	struct list_head buffers;
	u32 count;
} OWNED_BY(ipoib.lock);

enum ipoib_neigh_state {
	NEIGH_ASKED,	 /* by multicast; nothing is known, or not any more */
	NEIGH_REACHABLE, /* it has answered lately */
	NEIGH_STALE,	 /* what is known is used, and confirmed with the next use */
	NEIGH_PROBED,	 /* asked alone */
};

struct ipoib_neigh {
	struct list_head node; /* of its bucket */
	u8 ip[16];
	enum ipoib_neigh_state state;
	bool known; /* `hw` is an address that it has, or had */
	bool shown; /* the stack above knows it */
	bool news;  /* the stack above is to be told */
	struct ipoib_hw hw;
	u64 confirmed_ns, used_ns, asked_ns;
	u32 asks;	  /* without an answer */
	struct ib_ah *ah; /* NULL: no path yet */
	bool path_stale;  /* what is known of the path may be wrong by now; it is used meanwhile */
	bool path_asked;
	u64 path_again_ns;
	struct ipoib_wait waiting;
} OWNED_BY(ipoib.lock);

enum ipoib_group_state {
	GROUP_IDLE,
	GROUP_JOINING,
	GROUP_ANSWERED, /* `status` is to be looked at */
	GROUP_JOINED,
};

struct ipoib_group {
	struct list_head node OWNED_BY(ipoib.lock);
	struct ipoib *ip FIXED;
	union ib_gid mgid FIXED;
	enum ipoib_group_state state OWNED_BY(ipoib.lock);
	bool wanted OWNED_BY(ipoib.lock); /* the stack above listens: else it is only sent to */
	bool full OWNED_BY(ipoib.lock);   /* how the port has joined */
	bool lost OWNED_BY(ipoib.lock);   /* the membership is to be ended and begun anew */
	int status OWNED_BY(ipoib.lock);
	struct ib_sa_multicast *member OWNED_BY(the thread of works);
	bool attached OWNED_BY(the thread of works);
	u16 mlid OWNED_BY(the thread of works); /* with which it is attached */
	struct ib_ah *ah OWNED_BY(ipoib.lock);
	u64 again_ns OWNED_BY(ipoib.lock), wait_ns OWNED_BY(ipoib.lock);
	u64 used_ns OWNED_BY(ipoib.lock);
	struct ipoib_wait waiting OWNED_BY(ipoib.lock);
};

/* A question for a path. */
struct ipoib_query {
	struct list_head node;
	struct ipoib *ip;
	u8 neighbour[16];
	struct ib_sa_query *query;
	int id;
} OWNED_BY(ipoib.lock);

struct ipoib_hop {
	u8 to[16], next[16];
	bool known;
} OWNED_BY(ipoib.lock);

struct ipoib_rx {
	u8 bytes[IPOIB_RECEIVE_BYTES];
} OWNED_BY(the device or, once completed, the completion handler);

struct ipoib {
	struct ipoib_config config FIXED;
	const struct ipoib_ops *ops FIXED;
	void *arg FIXED;
	struct work_queue queue GUARDS_ITSELF;
	struct work work GUARDS_ITSELF; /* ipoib_step */
	struct ib_sa_client sa GUARDS_ITSELF;
	struct ib_event_handler events OWNED_BY(the midlayer);
	struct ipoib_rx *rx FIXED; /* IPOIB_RECEIVE_RING of them */

	struct lock lock;
	/* The device; NULL: none is there, or it is about to go. The objects below are FIXED while
	 * `open`. */
	bool open GUARDED_BY(lock);
	struct ib_device *device OWNED_BY(add and remove of the client);
	struct ib_pd *pd OWNED_BY(add and remove of the client);
	struct ib_mr *mr OWNED_BY(add and remove of the client);
	struct ib_cq *cq OWNED_BY(add and remove of the client);
	struct ib_qp *qp OWNED_BY(add and remove of the client);

	bool port_changed GUARDED_BY(lock); /* it is to be looked at */
	bool active GUARDED_BY(lock);	    /* the port, as it was last seen */
	u16 lid GUARDED_BY(lock);
	u16 pkey GUARDED_BY(lock), pkey_index GUARDED_BY(lock);
	u32 qkey GUARDED_BY(lock);
	u32 mtu GUARDED_BY(lock); /* of IP packets */
	bool link GUARDED_BY(lock); /* the broadcast group is joined */
	struct ipoib_hw own GUARDED_BY(lock);

	struct list_head idle GUARDED_BY(lock); /* struct ipoib_buffer */
	struct cond idle_news GUARDED_BY(lock);
	u32 in_flight GUARDED_BY(lock); /* send requests */
	struct list_head waiting GUARDED_BY(lock); /* all that wait somewhere, the oldest first */
	u32 waiting_count GUARDED_BY(lock);

	struct ipoib_prefix prefix[IPOIB_PREFIXES] GUARDED_BY(lock);
	u32 prefix_count GUARDED_BY(lock);
	u8 listens[IPOIB_GROUPS][16] GUARDED_BY(lock);
	u32 listen_count GUARDED_BY(lock);
	bool announce GUARDED_BY(lock); /* the addresses, when there is a link */
	bool groups_changed GUARDED_BY(lock);

	struct list_head groups GUARDED_BY(lock); /* the first is the broadcast group */
	u32 group_count GUARDED_BY(lock);
	/* from the answer of the broadcast group's join */
	struct ib_sa_mcmember_rec broadcast GUARDED_BY(lock);

	struct list_head bucket[IPOIB_BUCKETS] GUARDED_BY(lock); /* struct ipoib_neigh */
	u32 neigh_count GUARDED_BY(lock);
	struct ipoib_wait refused GUARDED_BY(lock); /* their neighbours do not answer */
	struct list_head queries GUARDED_BY(lock); /* struct ipoib_query */
	u64 ticked_ns GUARDED_BY(lock);
	u64 wake_ns GUARDED_BY(lock); /* when the thread of works runs by itself; 0: not set */
	bool tell GUARDED_BY(lock); /* some neighbour is to be told */
	struct ipoib_hop hop[IPOIB_HOPS] GUARDED_BY(lock);

	struct ipoib_counters counters GUARDED_BY(lock);
};

/* ---- client.c ---- */
/* Has the thread of works look at everything. Any context. */
void ipoib_kick(struct ipoib *ip) REQUIRES(ip->lock);
/* As ipoib_kick, at the latest at that time. */
void ipoib_kick_at(struct ipoib *ip, u64 ns) REQUIRES(ip->lock);

/* Does the address lie in a subnet of the interface? */
bool ipoib_is_on_link(const struct ipoib *ip, const u8 addr[16]) REQUIRES(ip->lock);

/* ---- ring.c ---- */
/* Makes the queue pair and what it stands on. 0 or a negative errno; ipoib_ring_close undoes
 * also half of it. May block. */
int ipoib_ring_open(struct ipoib *ip);
void ipoib_ring_close(struct ipoib *ip);
/* A buffer for a frame of this room's own. NULL: none is idle. */
struct ipoib_buffer *ipoib_ring_get(struct ipoib *ip) REQUIRES(ip->lock);
/* Gives it back, and counts why it was not sent. */
void ipoib_ring_drop(struct ipoib *ip, struct ipoib_buffer *b, enum ipoib_drop why)
	REQUIRES(ip->lock);
/* Posts the frame, which is the device's until its completion. */
void ipoib_ring_post(struct ipoib *ip, struct ipoib_buffer *b, struct ib_ah *ah, u32 qpn)
	REQUIRES(ip->lock);

/* ---- wait.c ---- */
void ipoib_wait_init(struct ipoib_wait *w);
/* The buffer waits, and is dropped where too many do. */
void ipoib_wait_push(struct ipoib *ip, struct ipoib_wait *w, struct ipoib_buffer *b)
	REQUIRES(ip->lock);
/* The one that has waited longest. NULL: none. */
struct ipoib_buffer *ipoib_wait_pop(struct ipoib *ip, struct ipoib_wait *w) REQUIRES(ip->lock);
/* All wait elsewhere now. */
void ipoib_wait_move(struct ipoib *ip, struct ipoib_wait *from, struct ipoib_wait *to)
	REQUIRES(ip->lock);
/* None waits any more. */
void ipoib_wait_drop(struct ipoib *ip, struct ipoib_wait *w, enum ipoib_drop why)
	REQUIRES(ip->lock);

/* ---- group.c ---- */
/* Sends the frame to the group, or keeps it until it is joined. */
void ipoib_group_send(struct ipoib *ip, const u8 ip_group[16], struct ipoib_buffer *b)
	REQUIRES(ip->lock);
/* A step of the thread of works: joins and leaves. Returns when to look again. May block. */
u64 ipoib_group_step(struct ipoib *ip, u64 now) EXCLUDES(ip->lock);
/* Ends all memberships. May block. */
void ipoib_group_end(struct ipoib *ip) EXCLUDES(ip->lock);
/* All memberships are to be begun anew. */
void ipoib_group_lose(struct ipoib *ip) REQUIRES(ip->lock);

/* ---- neigh.c ---- */
struct ipoib_neigh *ipoib_neigh_find(struct ipoib *ip, const u8 addr[16]) REQUIRES(ip->lock);
/* Sends the frame to the neighbour, or keeps it until the way is known. */
void ipoib_neigh_send(struct ipoib *ip, const u8 addr[16], struct ipoib_buffer *b)
	REQUIRES(ip->lock);
/* Somebody says its hardware address. create: keep it even if nobody has asked. confirmed: it has
 * answered. NULL: it is not kept. */
struct ipoib_neigh *ipoib_neigh_learn(struct ipoib *ip, const u8 addr[16],
				      const struct ipoib_hw *hw, bool create, bool confirmed)
	REQUIRES(ip->lock);
/* Sends what waits, or asks for what it waits for. */
void ipoib_neigh_push(struct ipoib *ip, struct ipoib_neigh *n) REQUIRES(ip->lock);
/* Neighbours age. */
void ipoib_neigh_tick(struct ipoib *ip, u64 now) REQUIRES(ip->lock);
/* Tells the stack above what is known. May block. */
void ipoib_neigh_tell(struct ipoib *ip) EXCLUDES(ip->lock);
/* Tells the stack above that packets cannot be sent. */
void ipoib_neigh_refuse(struct ipoib *ip) EXCLUDES(ip->lock);
/* Forgets all. */
void ipoib_neigh_end(struct ipoib *ip) REQUIRES(ip->lock);

/* ---- path.c ---- */
/* Asks for the neighbour's path, unless that is under way or was tried lately. */
void ipoib_path_ask(struct ipoib *ip, struct ipoib_neigh *n) REQUIRES(ip->lock);
/* LIDs or routes may have changed. */
void ipoib_path_flush(struct ipoib *ip) REQUIRES(ip->lock);
void ipoib_path_cancel(struct ipoib *ip) REQUIRES(ip->lock);

/* ---- speak.c ---- */
/* Asks for the neighbour: alone, or all. */
void ipoib_speak_ask(struct ipoib *ip, struct ipoib_neigh *n, bool alone) REQUIRES(ip->lock);
/* A question or an answer has come. */
void ipoib_speak_hear(struct ipoib *ip, const struct ipoib_frame *f) REQUIRES(ip->lock);
/* Says to all which addresses the interface has. */
void ipoib_speak_announce(struct ipoib *ip) REQUIRES(ip->lock);

#endif
