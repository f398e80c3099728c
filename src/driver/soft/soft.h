/* soft.h: what all software adapters share: the objects of an ib_device over the seat's transport
 * engine, paths, keys and queues.
 *
 *                         device.c  the device's lists, its life, its end in a forked child
 *                       presence.c  its registration with core, and its end
 *                           attr.c  attributes, and the table of methods for the doors
 *   pd.c mr.c cq.c qp.c srq.c ah.c  one object each; fast.c: regions of fast registration;
 *                                   xrcd.c: XRC domains; dm.c: device memory; dmabuf.c, odp.c:
 *                                   regions of DMA buffers, on-demand paging
 *                           mads.h  what MAD ports share
 *          raw.h and its files: raw packet queue pairs, flow rules, work queues
 *
 * A kind of adapter (driver/roce) adds attributes, address resolution and multicast:
 * struct soft_kind, and the methods of ib_device that are not set here. Its struct begins with a
 * struct soft_device.
 */
#ifndef DRIVER_SOFT_SOFT_H
#define DRIVER_SOFT_SOFT_H

#include <rdma/ib_verbs.h>

#include "base/lock.h"
#include "core/uverbs.h"
#include "queue/cq.h"
#include "seat/seat.h"

enum {
	SOFT_MAX_QP = 100000,
	SOFT_MAX_CQ = 65536,
	SOFT_MAX_CQE = (1 << 22) - 1,
	SOFT_LEAST_CQE = 8, /* adapters have such a minimum: see soft_cq_entries */
	SOFT_MAX_MR = MEM_MAX_KEYS - 1, /* regions and windows together: 0 is no key's index */
	SOFT_MAX_SRQ = 65536,
	SOFT_MAX_SRQ_WR = IBT_MAX_WR,
	SOFT_MAX_AH = 1 << 20,
	SOFT_MAX_PD = 1 << 17, /* more than queue pairs: each may have one of its own */
	SOFT_MAX_FMR_MAPS = 255,
	SOFT_MAX_FAST_PAGES = 1 << 16, /* of one ib_alloc_mr */
	SOFT_MAX_XRCD = 65536,
};

struct soft_device;
struct raw;
struct soft_flow;

/* The host's interface that carries a port's raw packets. */
struct soft_carrier {
	u32 ifindex;
	/* a number that all processes of this node have in common, and other nodes, most probably,
	 * have not */
	u32 node;
	u64 device; /* the node's id of the device */
} OWNED_BY(the caller);

/* What a queue pair has completed as requester, READs included. */
struct soft_load {
	u64 sent, sent_bytes;
	u64 reads, read_bytes;
} OWNED_BY(the caller);

/* The way of a connection. */
struct soft_way {
	struct path_av av;
	u32 mtu;		  /* payload bytes of a packet */
	struct soft_load charged; /* to the ports of this way or of earlier ones */
} OWNED_BY(soft_qp.way_lock);

/* The part of one kind of adapter. */
struct soft_kind {
	const struct seat_ops *seat;
	/* Resolves an address handle's vector. -EINVAL: the vector is invalid on this device. */
	int (*resolve_av)(struct soft_device *dev, const struct ib_ah_attr *attr,
			  struct path_av *av);
	/* Resolves the vector of a connection from queue pair `from` of this device to `to`: *av,
	 * whose `pkey` is the queue pair's on entry, and *dest with a reference, for the engine to
	 * take over. May block. */
	int (*connect)(struct soft_device *dev, const struct ib_ah_attr *attr, u32 from, u32 to,
		       struct path_av *av, struct path_dest **dest);
	/* The number of a GID among those of all devices, or -ENOENT. For captures: the device's
	 * index times NODE_GIDS and the index in its table. Not asked if there are LIDs. */
	int (*find_gid)(const u8 gid[16]);
	/* (1 << LMC) - 1 of the device's port. NULL: the link layer has no LIDs. */
	u8 (*lid_mask)(struct soft_device *dev);
	/* Who carries the port's raw packets. -ENODEV. NULL: the device is none of Ethernet. */
	int (*carrier)(struct soft_device *dev, struct soft_carrier *out);
	/* Tells whether packets of this vector get to queue pair `to` now. Any context; never
	 * blocks. NULL: they do. */
	bool (*reaches)(struct soft_device *dev, const struct path_av *av, u32 to);
	/* Counts what a connection has sent this way, at the ports of the way. Any context; never
	 * blocks. NULL where `reaches` is. */
	void (*charge)(struct soft_device *dev, const struct soft_way *way,
		       const struct soft_load *load);
	/* The device leaves: ends what waits for an answer at its MAD ports. May block. */
	void (*leave)(struct soft_device *dev);
	/* The last user has closed a device that has left, and no object of it is there any more.
	 * NULL: its memory stays. */
	void (*closed)(struct soft_device *dev);
} FIXED;

/* Of a device, as core knows it: presence.c. */
enum soft_state {
	SOFT_NEW,
	SOFT_REGISTERING,
	SOFT_REGISTERED,
	SOFT_REFUSED, /* registering failed: the next soft_register tries again */
	SOFT_LEAVING,
	SOFT_GONE, /* for good; on no list of core's */
};

/* Which raw packet queue pair of a device's port gets a frame (raw.h). */
struct soft_steer {
	struct lock use_lock; /* held while sockets are opened and closed */
	u32 users GUARDED_BY(use_lock); /* raw packet queue pairs */
	u32 count GUARDED_BY(use_lock); /* flows */
	struct raw *raw WRITTEN_UNDER(use_lock); /* while there are users */
	bool any ATOMIC_ONLY;  /* hint: flows is not empty */
	bool down ATOMIC_ONLY; /* the port is: frames are lost both ways */
	struct list_head flows OWNED_BY(steer_lock); /* soft_flow.node */
	/* Rules of the node's other processes, as the directory had them at `seen`. */
	struct soft_flow *others OWNED_BY(steer_lock);
	u32 other_count OWNED_BY(steer_lock);
	u64 seen ATOMIC_ONLY; /* node_flow_generation */
	u64 device WRITTEN_UNDER(use_lock); /* the node's id of the device, while there are users */
};

struct soft_device {
	struct ib_device ib FIXED; /* first */
	const struct soft_kind *kind FIXED;
	u32 index FIXED; /* among the node's RoCE devices */
	/* The seat is taken and the device is registered: threads that poll drive the engine. */
	bool live ATOMIC_ONLY;
	bool removed ATOMIC_ONLY; /* gone for good: no object is created on it */
	bool ended ATOMIC_ONLY;	  /* gone, and waits for its events return */
	u32 waiters ATOMIC_ONLY;  /* threads in soft_uverbs_wait_fd */
	u32 state ATOMIC_ONLY;	  /* enum soft_state; presence.c and a fork write it */
	/* From the environment, when the seat is taken: an arm of a CQ made by ib_create_cq, or of
	 * one over a door, raises an event at once if completions wait. */
	bool eager_ib ATOMIC_ONLY, eager_door ATOMIC_ONLY;
	struct lock list_lock CACHE_ALIGNED;
	/* bit N: port N; at first all are up. Changed under list_lock */
	u64 ports_down ATOMIC_ONLY;
	struct list_head qps GUARDED_BY(list_lock);
	struct list_head cqs GUARDED_BY(list_lock);
	struct list_head srqs GUARDED_BY(list_lock);
	struct list_head raws GUARDED_BY(list_lock); /* raw packet queue pairs */
	struct list_head wqs GUARDED_BY(list_lock);
	struct soft_steer steer GUARDS_ITSELF;
	u32 wq_count ATOMIC_ONLY, table_count ATOMIC_ONLY, table_number ATOMIC_ONLY;
	u32 qp_count ATOMIC_ONLY, cq_count ATOMIC_ONLY;
	u32 srq_count ATOMIC_ONLY, pd_count ATOMIC_ONLY, ah_count ATOMIC_ONLY;
	u32 xrcd_count ATOMIC_ONLY;
};

struct soft_pd {
	struct ib_pd ib GUARDS_ITSELF;
	u32 number FIXED;
};

struct soft_cq {
	struct ib_cq ib GUARDS_ITSELF;
	struct cq q GUARDS_ITSELF;
	/* one change of size at a time; held while it allocates */
	struct lock size_lock ONE_AT_A_TIME;
	struct list_head node OWNED_BY(soft_device.list_lock);
	u32 flags FIXED; /* enum ib_cq_creation_flags */
	u32 generation FIXED;
};

/* Lies in front of the engine's queue pair, in one block. */
struct soft_qp {
	struct ib_qp ib GUARDS_ITSELF;
	struct list_head node OWNED_BY(soft_device.list_lock);
	struct board_qp *shown FIXED; /* this queue pair's entry on the board */
	struct ib_qp_cap cap FIXED;
	enum ib_sig_type sq_sig_type FIXED;
	u32 generation FIXED;
	/* one transition at a time; held while modify_qp sleeps */
	struct lock modify_lock ONE_AT_A_TIME;
	u16 pkey GUARDED_BY(modify_lock); /* value at its pkey_index; 0 before INIT */
	bool had_peer GUARDED_BY(modify_lock); /* a step to RTR has been asked for */
	u8 port ATOMIC_ONLY;		  /* as of the last IB_QP_PORT; 0 before */
	/* held while the engine is told whether the way is open, so the last look counts */
	struct lock way_lock;
	bool shut GUARDED_BY(way_lock);	   /* the port is down, or no route leads to the peer */
	/* leads to its peer; NULL: it has none, or the kind does not ask for routes */
	struct soft_way *way GUARDED_BY(way_lock);
};

/* The port that the queue pair is bound to; before that, the one whose state it has. */
static inline u8 soft_qp_port(const struct soft_qp *qp)
{
	return MAX(__atomic_load_n(&qp->port, __ATOMIC_RELAXED), (u8)1);
}

static inline struct ibt_qp *soft_engine(const struct soft_qp *qp)
{
	return ibt_qp_behind(qp, sizeof(*qp));
}

struct soft_srq {
	struct ib_srq ib GUARDS_ITSELF;
	struct ibt_srq *engine FIXED;
	struct list_head node OWNED_BY(soft_device.list_lock); /* device's list */
	u32 generation FIXED;
	u32 index FIXED; /* of its number, if it is of an XRC domain: seat_qpn_give */
};

struct soft_xrcd {
	struct ib_xrcd ib GUARDS_ITSELF;
	struct xrc_domain *domain FIXED;
};

struct soft_mr {
	struct ib_mr ib GUARDS_ITSELF;
	/* a rereg changes them, which the midlayer lets nobody else interrupt */
	u64 addr OWNED_BY(the rereg), length OWNED_BY(the rereg), iova OWNED_BY(the rereg);
	int access OWNED_BY(the rereg);
	u32 generation FIXED;
	bool entered FIXED; /* adopt_enter was called for it */
	struct soft_dm *dm FIXED; /* NULL: the application's memory */
	void *mapping FIXED; /* of a DMA buffer, `mapped` bytes, or NULL: ends with the region */
	u64 mapped FIXED;
};

/* A region of ib_alloc_mr. */
struct soft_fast {
	struct soft_mr mr GUARDS_ITSELF; /* first */
	u32 max_pages FIXED;
	/* what ib_map_mr_sg has listed; the consumer maps a region from one thread at a time */
	u32 count OWNED_BY(the thread that maps);
	u64 pages[] OWNED_BY(the thread that maps);
};

struct soft_mw {
	struct ib_mw ib GUARDS_ITSELF;
	u32 generation FIXED;
};

struct soft_fmr {
	struct ib_fmr ib GUARDS_ITSELF;
	struct ib_fmr_attr attr FIXED;
	int access FIXED;
	u32 generation FIXED;
	struct lock lock;
	u32 key GUARDED_BY(lock);
	int maps GUARDED_BY(lock); /* since the last unmap */
};

struct soft_ah {
	struct ib_ah ib GUARDS_ITSELF;
	u32 pd FIXED;	  /* the number of its protection domain */
	struct lock lock; /* a leaf: a send copies `av` while another thread modifies it */
	struct path_av av GUARDED_BY(lock);
	struct ib_ah_attr attr GUARDED_BY(lock);
	struct list_head node OWNED_BY(ah_list.lock);
};

#define SOFT_OF(type, ptr) container_of(ptr, struct soft_##type, ib)

static inline struct soft_device *soft_dev(struct ib_device *ib)
{
	return container_of(ib, struct soft_device, ib);
}

/* 0, or -EIO: the device is gone. */
static inline int soft_check(struct ib_device *ib)
{
	return __atomic_load_n(&soft_dev(ib)->removed, __ATOMIC_ACQUIRE) ? -EIO : 0;
}

static inline bool soft_is_live(const struct soft_device *dev)
{
	return __atomic_load_n(&dev->live, __ATOMIC_RELAXED);
}

static inline bool soft_has_port(const struct soft_device *dev, u32 port)
{
	return port >= 1 && port <= dev->ib.phys_port_cnt;
}

/* Tells whether an object was made by the present attachment. Else it is dead: the parent's,
 * perhaps. */
static inline bool soft_is_ours(u32 generation)
{
	return seat_is_attached(&the_seat) && generation == seat_generation(&the_seat);
}

/* The same of a queue pair that is not for raw packets. */
static inline bool soft_qp_is_ours(const struct ib_qp *ib)
{
	return soft_is_ours(SOFT_OF(qp, ib)->generation);
}

/* ---- device.c ---- */
/* Initializes the shared part of a device that no other thread sees yet: its lists, and the methods
 * of its objects. */
void soft_init_device(struct soft_device *dev, const struct soft_kind *kind);
/* Takes the seat if this process has not (a forked child, at first use). 0, -EIO if the device is
 * gone, or a negative errno as of seat_attach. May block. */
int soft_attach(struct soft_device *dev);
/* The seat is taken: reads the environment, and lets pollers drive the engine. */
void soft_taken(struct soft_device *dev);
/* Unplugs a device for good. Its queue pairs flush, its consumers get DEVICE_FATAL, threads that
 * wait for its events return, and verbs that create, modify, post or query return -EIO; objects can
 * still be destroyed. Core knows the device. May block for some seconds, waiting for peers. */
void soft_unplug(struct soft_device *dev);
/* Sets a port of the device (1 to 63), and of its queue pairs, up or down. `lost`: the port was
 * down, so their outstanding requests may be lost. A queue pair that is bound to the port later
 * takes its state; before that it has port 1's. May block. */
void soft_set_port_up(struct soft_device *dev, u8 port, bool up, bool lost);
/* Routes of the network have changed: asks the kind for each connection whether it reaches its
 * peer. One that does not loses its packets, as at a port that is down. */
void soft_review_routes(struct soft_device *dev);
/* Has the kind charge what the device's connections have sent since the last time. Does not wait
 * for locks: what is left out is charged the next time, or by the verb that has the lock. */
void soft_charge(struct soft_device *dev);
/* Waits, for half a second at most, until what datagram queue pairs of the device have taken is
 * sent: as soft_qp_destroy does. */
void soft_await_datagrams(struct soft_device *dev);
/* Sets `removed` only: for a device without users in this process. */
void soft_set_removed(struct soft_device *dev);
/* In a forked child: the device's objects are the parent's, and its queue pairs only flush here.
 * Runs with one thread, after core has dropped the device. */
void soft_drop_in_child(struct soft_device *dev);

/* ---- presence.c ---- */
/* Registers the device with core, unless it is registered or gone, or another thread is at it. 0 or
 * a negative errno. May block; calls clients. */
int soft_register(struct soft_device *dev);
/* Tells whether registering has succeeded or failed. */
bool soft_is_settled(const struct soft_device *dev);
/* Takes the device away for good, once: soft_unplug for its users, if it is registered, then
 * clients' remove, from a thread of its own. Waits for a registration that another thread makes.
 * May block for some seconds; calls clients. */
void soft_leave(struct soft_device *dev);
/* Tells whether no list of core's has the device any more. */
bool soft_has_left(const struct soft_device *dev);

/* ---- attr.c ---- */
/* ib_device.query_device. */
int soft_query_device(struct ib_device *ib, struct ib_device_attr *attr);
/* Fills the methods that do not depend on the kind of adapter: all but get_info and
 * query_gid_entry. */
void soft_fill_uverbs(struct ib_uverbs_ops *ops);

/* uverbs.store. */
bool soft_uverbs_store(struct ib_qp *qp, u32 rkey, u64 va, const void *from, u32 length);
/* uverbs.attach_counter. */
int soft_uverbs_attach_counter(struct ib_qp *ib, struct op_counter *counter, u32 ops);
/* uverbs.sleep. */
extern const struct ib_sleep_ops soft_sleep_ops;
/* uverbs.wait_fd. */
int soft_uverbs_wait_fd(struct ib_device *ib, int fd);

/* ---- the objects; each fills its methods into the device ---- */
void soft_fill_pd(struct ib_device *ib);
void soft_fill_mr(struct ib_device *ib);
void soft_fill_cq(struct ib_device *ib);
void soft_fill_qp(struct ib_device *ib);
void soft_fill_srq(struct ib_device *ib);
void soft_fill_ah(struct ib_device *ib);

/* device.c: the methods beyond struct ib_device. */
extern const struct ib_device_ops soft_device_ops;
/* cq.c */
struct ib_cq *soft_create_cq(struct ib_device *ib, const struct ib_cq_init_attr *attr);
int soft_poll_cq(struct ib_cq *ib, int n, struct ib_wc *wc, struct ib_wc_side *side);
int soft_query_clock(struct ib_device *ib, u64 *raw);
/* srq.c */
struct ib_srq *soft_create_srq(struct ib_pd *pd, struct ib_srq_init_attr_ex *init);
int soft_post_srq_ops(struct ib_srq *ib, struct ib_ops_wr *wr, struct ib_ops_wr **bad);

/* fast.c */
struct ib_mr *soft_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg);
int soft_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int nents, unsigned int *offset);

/* pd.c: the number of a protection domain, as the key table knows it. */
u32 soft_pd_number(struct ib_pd *pd);
/* qp.c */
struct ib_qp *soft_create_qp(struct ib_pd *pd, struct ib_qp_init_attr_ex *init);
/* The state of its port, or of the routes, has changed: tells the engine. Any context but under a
 * lock of the engine. */
void soft_qp_look_at_way(struct soft_device *dev, struct soft_qp *qp);
/* soft_charge for one queue pair of the present attachment. */
void soft_qp_charge(struct soft_device *dev, struct soft_qp *qp);
/* xrcd.c */
struct ib_xrcd *soft_open_xrcd(struct ib_device *ib, const struct ib_xrcd_init_attr *attr);
int soft_close_xrcd(struct ib_xrcd *ib);

/* mr.c: registers what *region says, and nothing else. ERR_PTR: -ENOMEM, -EINVAL. */
struct ib_mr *soft_mr_register(struct ib_pd *pd, const struct mem_region *region);
/* odp.c: the same on demand: nothing is made present, checked or shared. The whole address space if
 * `region` begins at 0 and has length SIZE_MAX. */
struct ib_mr *soft_mr_on_demand(struct ib_pd *pd, struct mem_region *region);
extern const struct ib_odp_caps soft_odp_caps;

/* dm.c: bytes of device memory that a process may have at once. */
enum { SOFT_DM_BYTES = 1 << 20 };
struct soft_dm;
/* A region of the memory has ended. */
void soft_dm_put(struct soft_dm *dm);

/* Methods of struct ib_uverbs_ops, which has their contract. */
struct ib_cq *soft_uverbs_create_cq(struct ib_device *ib, const struct ib_uverbs_cq_attr *attr);
int soft_uverbs_poll_cq(struct ib_cq *cq, int n, struct ibv_wc *wc);
int soft_uverbs_poll_cq_ex(struct ib_cq *cq, int n, struct ibv_wc *wc, struct ib_wc_side *side);
void soft_uverbs_ack_cq_events(struct ib_cq *cq, u32 events);
void *soft_uverbs_alloc_buffer(struct ib_device *dev, u64 length);
void soft_uverbs_free_buffer(struct ib_device *dev, void *buffer);
int soft_uverbs_set_rate(struct ib_qp *ib, const struct ib_uverbs_rate *rate);
struct ib_mr *soft_uverbs_reg_dmabuf_mr(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
					int access);
struct ib_mr *soft_uverbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
				      int access);
int soft_uverbs_rereg_user_mr(struct ib_mr *ib, int mask, const struct ib_uverbs_rereg *to);
struct ib_mr *soft_uverbs_alloc_null_mr(struct ib_pd *pd);
struct ib_mw *soft_uverbs_alloc_mw2(struct ib_pd *pd);
int soft_uverbs_post_reg(struct ib_qp *qp, const struct ib_send_wr *wr);
struct ib_dm *soft_uverbs_alloc_dm(struct ib_device *ib, u64 length, u32 align);
int soft_uverbs_free_dm(struct ib_dm *ib);
int soft_uverbs_dm_file(struct ib_dm *ib, u64 *offset);
struct ib_dm *soft_uverbs_map_dm(struct ib_device *ib, int fd, u64 offset, u64 length);
struct ib_mr *soft_uverbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *ib, u64 offset, u64 length,
				    int access);
int soft_uverbs_copy_dm(struct ib_dm *ib, u64 offset, void *host, u64 length, bool out);
int soft_uverbs_advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice, u32 flags,
			  const struct ibv_sge *sge, u32 count);
int soft_uverbs_post_send(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int soft_uverbs_check_send(struct ib_qp *qp, const struct ibv_send_wr *wr);
int soft_uverbs_post_recv(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int soft_uverbs_post_raw_send(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int soft_uverbs_check_raw_send(struct ib_qp *qp, const struct ibv_send_wr *wr);
int soft_uverbs_post_raw_recv(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int soft_uverbs_post_wq_recv(struct ib_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int soft_uverbs_post_srq_recv(struct ib_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* seat_ops.quiesce */
void soft_steer_quiesce(void *seat);

/* Callbacks of the engine for struct seat_ops. */
void soft_publish(void *seat, struct ibt_qp *qp);
void soft_async(void *seat, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type);

/* Copies an address handle's vector. Any context. */
void soft_ah_av(struct ib_ah *ah, struct path_av *av);
/* The engine's view of an address handle. False: the handle's PD is not the queue pair's (IBA vol
 * 1, 11.4.1.1); rxe refuses it as well, mlx5 does not check. */
bool soft_av_of(struct ibv_ah *ibv, u32 pd, struct path_av *av);

#endif
