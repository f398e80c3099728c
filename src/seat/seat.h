/* seat.h: what a process has once, for all its adapters: its attachment to the node.
 *
 *   attach.c    takes the seat, and drops it in a forked child
 * progress.c    who drives the engine when no thread polls
 *      qpn.c    queue pair numbers
 *
 * The seat holds the node connection, the board and the doorbells, the paths, the key table, the
 * transport engine and the engine's thread. Adapters (driver/) put their objects on it; it calls
 * them through struct seat_ops only.
 */
#ifndef SEAT_SEAT_H
#define SEAT_SEAT_H

#include <poll.h>

#include "base/timer.h"
#include "capture/capture.h"
#include "ibt/ibt.h"
#include "mem/mem.h"
#include "node/node.h"
#include "path/shm/shm.h"
#include "path/udp/udp.h"

enum { SEAT_INDEXES = 1 << NODE_INDEX_BITS }; /* queue pairs of a slot */
enum { SEAT_PATH_SHM = 1, SEAT_PATH_UDP = 2 };

struct seat;

/* The adapters' callbacks. */
struct seat_ops {
	/* The engine's callbacks: as in struct ibt_config, with the seat as `arg`. */
	void (*publish)(void *seat, struct ibt_qp *qp);
	void (*async)(void *seat, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type);
	int (*multicast)(void *seat, const struct path_av *av, const struct pkt *p, u32 from,
			 struct ibt_member *out, int max);
	struct path_dest *(*route)(void *seat, const struct path_av *av, const struct pkt *p);
	void (*general)(void *seat, const struct pkt *p, const void *payload);
	/* shm_config.returned, with the seat as `arg`; may be NULL. */
	void (*returned)(void *seat, const struct pkt *p, const void *payload);
	void (*bad_key)(void *seat, const struct pkt *p, bool is_qkey);
	/* As shm_config.died, with the seat as `arg`. On the engine's thread. */
	void (*died)(void *seat, const u64 slots[NODE_SLOTS / 64]);
	/* The paths and the engine exist, the thread does not yet: reads the node's configuration.
	 * 0 or a negative errno. Runs under attach_lock. */
	int (*begin)(struct seat *seat);
	/* The seat is taken: objects may be created. Runs under attach_lock. */
	void (*taken)(struct seat *seat);
	/* The node's configuration or its list of devices has changed. Runs on the engine's thread;
	 * may block. */
	void (*config)(struct seat *seat);
	/* Waits until no thread of the adapters copies by an earlier lookup of a key (the engine's
	 * own are the seat's). NULL: they have none. Any thread. */
	void (*quiesce)(void *seat);
	/* A port of the fabric has changed, or all routes: node_fabric_event. On the engine's
	 * thread; may block. NULL: of no interest. */
	void (*fabric)(struct seat *seat, u32 port, u32 what);
} FIXED;

/* Everything that this process holds while it is attached to the node. Made anew in a forked
 * child. */
struct seat_attachment {
	struct node *node FIXED;
	struct board *board FIXED;
	int board_fd FIXED;
	/* this process' doorbells; the ends that peers ring */
	int bell_fd[2] FIXED, bell_out[2] FIXED;
	int epoll_fd FIXED, kick_fd FIXED;
	struct shm *shm FIXED;
	struct udp *udp FIXED;
	struct ibt *ibt FIXED;
	struct timer_set timers GUARDS_ITSELF;
	struct mem_table mem GUARDS_ITSELF;
	struct capture capture GUARDS_ITSELF;
};

struct seat {
	/* constant while `attached` is true */
	struct seat_attachment a WRITTEN_UNDER(attach_lock);
	const struct seat_ops *ops WRITTEN_UNDER(attach_lock); /* as `a` */
	/* counts attachments; objects of an earlier one are dead */
	u32 generation ATOMIC_ONLY;
	bool attached ATOMIC_ONLY; /* written under attach_lock */
	struct lock attach_lock;
	/* `a` has descriptors and memory, perhaps not all of them; written under attach_lock */
	bool begun ATOMIC_ONLY;
	bool direct FIXED; /* from the environment */
	u32 paths FIXED; /* SEAT_PATH_*: the permitted paths; ANYVERBS_PATHS */
	bool udp_armed ATOMIC_ONLY; /* the next datagram wakes the engine's thread; a hint */
	/* the engine's thread wakes within a tick; only that thread writes it */
	bool ticking ATOMIC_ONLY;

	/* passes of threads that poll: a lease for the engine's thread */
	u32 drives CACHE_ALIGNED ATOMIC_ONLY;
	u32 claims CACHE_ALIGNED ATOMIC_ONLY; /* threads that wait for events and drive meanwhile */
	/* Consumers that may sleep until an event: CQs that owe one to a handler or a descriptor
	 * (cq.owing), and threads between progress_sleep_begin and progress_sleep_end. */
	u32 sleepers ATOMIC_ONLY;
	u32 armed_at ATOMIC_ONLY; /* `drives` at the last arm of a CQ; a hint */

	struct lock id_lock CACHE_ALIGNED;
	u32 slot_count GUARDED_BY(id_lock);
	u32 slots[BOARD_SLOTS] GUARDED_BY(id_lock);
	u32 qp_cursor GUARDED_BY(id_lock);
	u64 *qp_bitmap GUARDED_BY(id_lock); /* BOARD_QPS bits */
	u32 next_pd ATOMIC_ONLY;
};

/* The one seat of this process. */
extern struct seat the_seat;

/* While true, `a` is constant. Pairs with the store in seat_attach. */
static inline bool seat_is_attached(const struct seat *s)
{
	return __atomic_load_n(&s->attached, __ATOMIC_ACQUIRE);
}

/* Number of the current attachment. An object keeps it: in a forked child a different number marks
 * it as the parent's. */
static inline u32 seat_generation(const struct seat *s)
{
	return __atomic_load_n(&s->generation, __ATOMIC_RELAXED);
}

/* ---- attach.c ---- */
/* Attaches this process to the node if it is not attached: at first use, and at first use in a
 * forked child. The first call's `ops` stay. 0, or a negative errno as of node_attach; then nothing
 * is held. May block. */
int seat_attach(struct seat *s, const struct seat_ops *ops);

/* ---- qpn.c ---- */
/* Takes a free queue pair number: `index` is its place on the board, `qpn` the number that peers
 * use. The search continues behind the last number taken, so a number that was given back rests.
 * -ENOSPC, -ENOMEM, or as node_slot_take. May block. */
int seat_qpn_take(struct seat *s, u32 *index, u32 *qpn);
/* The slot that identifies this process, taken if there is none yet; or as seat_qpn_take. May
 * block. */
int seat_slot(struct seat *s);
/* Gives a number back by its index. */
void seat_qpn_give(struct seat *s, u32 index);
/* Number of a protection domain. It comes again after 2^32 domains of the process, so that keys and
 * queue pairs of two adapters do not match by chance. */
static inline u32 seat_pd_number(struct seat *s)
{
	return __atomic_add_fetch(&s->next_pd, 1, __ATOMIC_RELAXED);
}

/* ---- progress.c ---- */
/* Starts the engine's thread. 0 or a negative errno. */
int progress_start(struct seat *s);
/* Records packets into the memory file `fd`; takes `fd`. -1: stops recording. May block. */
void progress_capture(struct seat *s, int fd);
/* Wakes the engine's thread for one pass. `seat` is a struct seat. Never blocks. */
void progress_kick(void *seat);
/* The same for a timer that has become the earliest. */
void progress_timer_kick(void *seat);
/* One pass over the_seat, which is attached, for a thread that polls. Returns packets handled. No
 * argument: this is the small-message path. */
int progress_drive(void);
/* Waits for `fd` and drives the engine meanwhile: 0 when it is readable, -EINTR after a signal,
 * -EAGAIN at once if `fd` is O_NONBLOCK and empty, -EIO if the seat is not attached, or if *end
 * (atomic) is true and `fd` is empty. A cancellation point while it sleeps. */
int progress_wait_fd(struct seat *s, int fd, const bool *end);
/* Has threads that sleep in progress_wait_fd look at their *end. A thread that is about to sleep
 * may miss it: the caller repeats this until all have left. Never blocks. */
void progress_wake_waiters(struct seat *s);
/* Threads that sleep on descriptors of their own, over the_seat (struct ib_sleep_ops). One at a
 * time has the claim. */
bool progress_sleep_begin(void);
bool progress_sleep_prepare(struct pollfd fds[2], int *timeout_ms);
void progress_sleep_wake(const struct pollfd fds[2], int timeout_ms);
void progress_sleep_end(bool claimed);
/* A consumer has armed a CQ, which `sleepers` counts by now, and may sleep on a descriptor that the
 * seat does not see. Waits for a thread that receives datagrams. */
void progress_armed(struct seat *s);

#endif
