/* roce.h: inside the RoCE adapter: an ib_device made of the transport engine, the paths, keys and
 * queues.
 *
 *   device.c    what the adapter is and can do
 * progress.c  who drives the engine when nobody polls
 *   attach.c    this process' place at the node
 * qp.c mr.c cq.c srq.c ah.c mcast.c  one object each
 */
#ifndef DRIVER_ROCE_ROCE_H
#define DRIVER_ROCE_ROCE_H

#include <rdma/ib_verbs.h>

#include "base/timer.h"
#include "capture/capture.h"
#include "core/uverbs.h"
#include "ibt/ibt.h"
#include "mem/mem.h"
#include "node/node.h"
#include "path/shm/shm.h"
#include "path/udp/udp.h"
#include "queue/cq.h"

enum {
	ROCE_MAX_QP = 100000,
	ROCE_MAX_CQ = 65536,
	ROCE_MAX_CQE = (1 << 22) - 1,
	ROCE_LEAST_CQE = 8, /* as adapters have it, too: see cq_entries */
	ROCE_MAX_MR = 1000000,
	ROCE_MAX_SRQ = 65536,
	ROCE_MAX_SRQ_WR = IBT_MAX_WR,
	ROCE_MAX_AH = 1 << 20,
	ROCE_MAX_PD = 65536,
	ROCE_MAX_FMR_MAPS = 255,
	ROCE_INDEXES = 1 << NODE_INDEX_BITS,
};

enum { ROCE_PATH_SHM = 1, ROCE_PATH_UDP = 2 };

/* What this process holds while it is attached to the node. Made anew in a forked child. */
struct roce_attachment {
	struct node *node;
	struct board *board;
	int board_fd;
	int bell_fd[2], bell_out[2]; /* our doorbells; what others get to ring them by */
	int epoll_fd, kick_fd;
	struct shm *shm;
	struct udp *udp;
	struct ibt *ibt;
	struct timer_set timers;
	struct mem_table mem;
	struct capture capture;
};

struct roce_device {
	struct ib_device ib FIXED; /* first */
	/* stands still while `attached` is true */
	struct roce_attachment a WRITTEN_UNDER(attach_lock);
	/* counts attachments; objects of an earlier one are dead */
	u32 generation ATOMIC_ONLY;
	bool attached ATOMIC_ONLY; /* written under attach_lock */
	struct lock attach_lock;
	struct lock config_lock ACQUIRED_AFTER(attach_lock);
	struct node_config config GUARDED_BY(config_lock);
	/* From the environment: an arm of a CQ made by ib_create_cq, or of one over a door, raises
	 * an event at once if completions wait. */
	bool eager_ib FIXED, eager_door FIXED;
	bool direct FIXED; /* from the environment */
	u32 paths FIXED; /* ROCE_PATH_*: which ones may be used; ANYVERBS_PATHS */
	bool missing_told ATOMIC_ONLY; /* that some GID reaches no other host: once */
	bool udp_armed ATOMIC_ONLY; /* the next datagram wakes the engine's thread; a hint */
	bool ticking ATOMIC_ONLY; /* the engine's thread wakes within a tick; its own to write */

	/* counts passes of threads that poll: a lease for the engine's thread */
	u32 drives CACHE_ALIGNED ATOMIC_ONLY;
	u32 claims CACHE_ALIGNED ATOMIC_ONLY; /* threads that wait in wait_fd and drive meanwhile */

	struct lock id_lock CACHE_ALIGNED;
	u32 slot_count GUARDED_BY(id_lock);
	u32 slots[BOARD_SLOTS] GUARDED_BY(id_lock);
	u32 qp_cursor GUARDED_BY(id_lock);
	u64 *qp_bitmap GUARDED_BY(id_lock); /* BOARD_QPS bits */
	struct list_head qps GUARDED_BY(id_lock);
	struct list_head cqs GUARDED_BY(id_lock);
	struct list_head srqs GUARDED_BY(id_lock);
	u32 next_pd ATOMIC_ONLY;
	u32 qp_count ATOMIC_ONLY, cq_count ATOMIC_ONLY, mr_count ATOMIC_ONLY;
	u32 srq_count ATOMIC_ONLY, pd_count ATOMIC_ONLY, ah_count ATOMIC_ONLY;
};

struct roce_pd {
	struct ib_pd ib;
	u32 number;
};

struct roce_cq {
	struct ib_cq ib GUARDS_ITSELF;
	struct cq q GUARDS_ITSELF;
	/* one change of size at a time; held while it allocates */
	struct lock size_lock ONE_AT_A_TIME;
	struct list_head node OWNED_BY(roce_device.id_lock);
};

/* Lies in front of the engine's queue pair, in one block. */
struct roce_qp {
	struct ib_qp ib GUARDS_ITSELF;
	struct list_head node OWNED_BY(roce_device.id_lock);
	struct board_qp *shown FIXED; /* our entry of the board */
	struct ib_qp_init_attr init FIXED;
	u32 generation FIXED;
	/* one transition at a time; held while modify_qp sleeps */
	struct lock modify_lock ONE_AT_A_TIME;
};

static inline struct ibt_qp *roce_engine(const struct roce_qp *qp)
{
	return ibt_qp_behind(qp, sizeof(*qp));
}

struct roce_srq {
	struct ib_srq ib;
	struct ibt_srq *engine;
	struct list_head node; /* device's list */
};

struct roce_mr {
	struct ib_mr ib;
	u64 addr, length, iova;
	int access;
	u32 generation;
	bool entered; /* adopt_enter was called for it */
};

struct roce_mw {
	struct ib_mw ib;
	u32 generation;
};

struct roce_fmr {
	struct ib_fmr ib GUARDS_ITSELF;
	struct ib_fmr_attr attr FIXED;
	int access FIXED;
	u32 generation FIXED;
	struct lock lock;
	u32 key GUARDED_BY(lock);
	int maps GUARDED_BY(lock); /* since the last unmap */
};

struct roce_ah {
	struct ib_ah ib GUARDS_ITSELF;
	u32 pd FIXED;	  /* the number of its protection domain */
	struct lock lock; /* a leaf: a send copies `av` while another thread modifies it */
	struct path_av av GUARDED_BY(lock);
	struct ib_ah_attr attr GUARDED_BY(lock);
};

#define ROCE_OF(type, ptr) container_of(ptr, struct roce_##type, ib)

static inline struct roce_device *roce_dev(struct ib_device *ib)
{
	return container_of(ib, struct roce_device, ib);
}

/* Then `a` stands still. Pairs with the store in roce_attach. */
static inline bool roce_is_attached(const struct roce_device *dev)
{
	return __atomic_load_n(&dev->attached, __ATOMIC_ACQUIRE);
}

static inline u32 roce_generation(const struct roce_device *dev)
{
	return __atomic_load_n(&dev->generation, __ATOMIC_RELAXED);
}

/* Was an object made since this process attached itself? Else it is dead, the parent's perhaps. */
static inline bool roce_is_ours(const struct roce_device *dev, u32 generation)
{
	return roce_is_attached(dev) && generation == roce_generation(dev);
}

/* ---- attach.c ---- */
/* Attaches if this process is not (a forked child, at first use). 0 or a negative errno. May
 * block. */
int roce_attach(struct roce_device *dev);
/* pthread_atfork's child handler. */
void roce_drop_in_child(void);
extern struct roce_device *roce_the_device;

/* ---- progress.c ---- */
int progress_start(struct roce_device *dev);
/* What is sent and received is recorded in the memory file `fd`, which is taken, or, if it is
 * -1, no more. */
void progress_capture(struct roce_device *dev, int fd);
void progress_kick(void *dev);
/* The same for a timer that has become the earliest. */
void progress_timer_kick(void *dev);
/* One pass for a thread that polls. */
int progress_drive(struct roce_device *dev);
int progress_wait_fd(struct ib_device *ib, int fd);
/* Somebody armed a CQ and may go to sleep on a descriptor that we do not see. */
void progress_armed(struct roce_device *dev);

/* ---- device.c ---- */
void roce_fill_device(struct roce_device *dev);

/* ---- config.c: the node's configuration as this process has it ---- */
/* Takes what the node has said last. */
void roce_config_refresh(struct roce_device *dev);
/* Index of a GID in the table, or -ENOENT. */
int roce_find_gid(struct roce_device *dev, const u8 gid[16]);
/* Whether a GID names this node: one of the table, or that of its GUID, which the table has only
 * while there is no link-local address. */
bool roce_is_own_gid(struct roce_device *dev, const u8 gid[16]);
int roce_gid(struct roce_device *dev, u32 index, u8 gid[16]);

/* ---- the objects; each fills its methods into the device ---- */
void roce_fill_pd(struct ib_device *ib);
void roce_fill_mr(struct ib_device *ib);
void roce_fill_cq(struct ib_device *ib);
void roce_fill_qp(struct ib_device *ib);
void roce_fill_srq(struct ib_device *ib);
void roce_fill_ah(struct ib_device *ib);
void roce_fill_mcast(struct ib_device *ib);

struct ib_cq *roce_uverbs_create_cq(struct ib_device *ib, int cqe, u32 vector, struct channel *ch,
				    void *cookie);
int roce_uverbs_poll_cq(struct ib_cq *cq, int n, struct ibv_wc *wc);
void roce_uverbs_ack_cq_events(struct ib_cq *cq, u32 events);
struct ib_mr *roce_uverbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
				      int access);
int roce_uverbs_post_send(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int roce_uverbs_check_send(struct ib_qp *qp, const struct ibv_send_wr *wr);
int roce_uverbs_post_recv(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int roce_uverbs_post_srq_recv(struct ib_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Callbacks of the engine. */
void roce_publish(void *dev, struct ibt_qp *qp);
void roce_async(void *dev, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type);
struct path_dest *roce_route(void *dev, const struct path_av *av, u32 qpn);
int roce_multicast(void *dev, const struct path_av *av, u32 from, struct ibt_member *out, int max);

/* Resolves an address vector's GIDs. -EINVAL: no GRH (RoCE has no LIDs), or no such source GID. */
int roce_resolve_av(struct roce_device *dev, const struct ib_ah_attr *attr, struct path_av *av);
/* The engine's look at an address handle. One of another domain than the queue pair's is no handle
 * for it (IBA vol 1, 11.4.1.1); rxe refuses it as well, mlx5 does not look. */
bool roce_av_of(struct ibv_ah *ibv, u32 pd, struct path_av *av);

#endif
