/* uverbs.h: what the doors need beyond the midlayer's ib_* calls: the data path in libibverbs'
 * own layout, channels instead of completion handlers, and registration of the user's memory.
 *
 * A driver that sets ib_device.uverbs takes posts and polls as ibv_* structures and passes them
 * on without conversion. For one that does not (a third party's), ib_register_device fills in
 * conversions to its ib_* methods, method by method: from then on until ib_unregister_device
 * returns, device->uverbs is a complete table.
 */
#ifndef CORE_UVERBS_H
#define CORE_UVERBS_H

#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/ib_extended.h>

#include "base/queue_memory.h"
#include "event/event.h"

struct ib_uverbs_info;

/* A CQ for a door. `cq` and its size as in ib_create_cq_ex. */
struct ib_uverbs_cq_attr {
	struct ib_cq_init_attr cq;
	struct channel *channel; /* where its events go, as `cookie`; NULL: nowhere */
	void *cookie;
	void (*event_handler)(struct ib_event *event, void *cq_context); /* on vector 0's thread */
	void *cq_context;
	/* where the ring's memory comes from; it outlives the CQ. NULL: the driver's own */
	const struct queue_memory *memory;
} OWNED_BY(the caller);

/* The new state of a region. */
struct ib_uverbs_rereg {
	struct ib_pd *pd;
	u64 start, length, iova;
	int access;
} OWNED_BY(the caller);

/* How a thread of a door sleeps until the engine has something for it, on descriptors of the door's
 * beside the driver's. Between begin and end it drives the engine, if begin has returned true: then
 * it is the process' only one, and calls prepare before each sleep and wake after it. Otherwise
 * another thread drives, and the events of channels say what has come. No lock is held across
 * prepare and wake, nor one across the others that a channel's notify function takes. */
enum { IB_SLEEP_FDS = 2 };
struct ib_sleep_ops {
	bool (*begin)(void);
	/* Receives what is there. False: something was; the caller looks at its objects again.
	 * True: POLLIN of these descriptors ends the sleep, as does the timeout (ms; -1: none). */
	bool (*prepare)(struct pollfd fds[IB_SLEEP_FDS], int *timeout_ms);
	/* With the descriptors' revents and that timeout. */
	void (*wake)(const struct pollfd fds[IB_SLEEP_FDS], int timeout_ms);
	/* `claimed`: what begin returned. */
	void (*end)(bool claimed);
} FIXED;

struct ib_dm;
struct op_counter;

/* A limit of one queue pair. */
struct ib_uverbs_rate {
	u32 kbps;	    /* kbit/s; 0: none */
	u32 burst;	    /* bytes that may leave at once; 0: as the driver likes */
	u32 typical_packet; /* bytes; 0: unknown */
} OWNED_BY(the caller);

/* Same rules of context as their ib_* namesakes. Results: 0 or a negative errno, *bad as in
 * ibv_post_send. */
struct ib_uverbs_ops {
	int (*post_send)(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	/* Copies to the peer's memory at once, as an RDMA WRITE without a request: what is posted
	 * later arrives behind it; `from` is the caller's again on return. False: not possible
	 * now, and nothing counts as written. NULL: never. Of 0 bytes: true if the death of the
	 * peer's process completes requests with IBV_WC_RETRY_EXC_ERR at once, behind all that it
	 * has posted; false when it has died with more to send, which is lost. */
	bool (*store)(struct ib_qp *qp, u32 rkey, u64 va, const void *from, u32 length);
	/* The result that post_send would give for this list if nothing else is posted before: 0
	 * if it would take all of it. A driver without this method counts as answering 0. */
	int (*check_send)(struct ib_qp *qp, const struct ibv_send_wr *wr);
	int (*post_recv)(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	int (*post_srq_recv)(struct ib_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	/* Of RAW_PACKET queue pairs; absent: post_send, check_send and post_recv serve. Then of
	 * work queues. */
	int (*post_raw_send)(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*check_raw_send)(struct ib_qp *qp, const struct ibv_send_wr *wr);
	int (*post_raw_recv)(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	int (*post_wq_recv)(struct ib_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	int (*poll_cq)(struct ib_cq *cq, int n, struct ibv_wc *wc);
	/* The whole entries of a CQ that was created with flags: side[i] belongs to wc[i]. */
	int (*poll_cq_ex)(struct ib_cq *cq, int n, struct ibv_wc *wc, struct ib_wc_side *side);
	/* -EOPNOTSUPP: a flag that the driver does not know. attr->cq is complete and checked; the
	 * handler and its context are the midlayer's. */
	struct ib_cq *(*create_cq)(struct ib_device *dev, const struct ib_uverbs_cq_attr *attr);
	void (*ack_cq_events)(struct ib_cq *cq, u32 events);
	/* Registers the user's memory; checks and faults in the pages as pinning would. ERR_PTR:
	 * -EFAULT, -EINVAL, -ENOMEM. */
	struct ib_mr *(*reg_user_mr)(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access);
	/* Registers bytes of the DMA buffer `fd`, which outlives the descriptor; iova is at the
	 * same place of its page as offset. ERR_PTR: -EBADF; -EINVAL: not a DMA buffer, or beyond
	 * its end; -EACCES: it is read-only; -EOPNOTSUPP: the driver cannot reach its memory;
	 * -ENOMEM, -EIO. NULL: the driver reaches none. */
	struct ib_mr *(*reg_dmabuf_mr)(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
				       int access);
	/* Changes what `mask` (enum ib_mr_rereg_flags) names; the rest of *to means nothing. The
	 * keys of `mr` change with the addresses, and only then. On any error nothing has changed.
	 * Errors of reg_user_mr and of dereg_mr. NULL: the driver cannot. */
	int (*rereg_user_mr)(struct ib_mr *mr, int mask, const struct ib_uverbs_rereg *to);
	/* Whole pages, zeroed, for a buffer of the door's own that peers will reach: registered, it
	 * is reached in the shortest way that the driver has. A forked child does not have it.
	 * NULL: the driver has no such memory, or no more; the door takes ordinary memory. Freed by
	 * free_buffer, when no region names it. Either method NULL: never. */
	void *(*alloc_buffer)(struct ib_device *dev, u64 length);
	void (*free_buffer)(struct ib_device *dev, void *buffer);
	/* A region whose local reads find zeros and whose writes vanish. NULL: the driver
	 * cannot. */
	struct ib_mr *(*alloc_null_mr)(struct ib_pd *pd);
	/* A window of type 2, which IBV_WR_BIND_MW binds. NULL: the driver cannot. */
	struct ib_mw *(*alloc_mw2)(struct ib_pd *pd);
	/* Posts an IB_WR_REG_MR, for a driver without ib_device.post_send. NULL: it cannot. */
	int (*post_reg)(struct ib_qp *qp, const struct ib_send_wr *wr);
	/* Device memory: reached by the methods below and by the keys of regions only.
	 * `align`: log2 of the alignment of its first byte. ERR_PTR: -EINVAL, -ENOMEM (length,
	 * alignment), -EIO. NULL: the driver has none, and none of the other three. */
	struct ib_dm *(*alloc_dm)(struct ib_device *dev, u64 length, u32 align);
	/* -EBUSY: a region names it. */
	int (*free_dm)(struct ib_dm *dm);
	/* A region of [offset, offset + length), which may be empty; its addresses begin at 0.
	 * ERR_PTR: as reg_user_mr. */
	struct ib_mr *(*reg_dm_mr)(struct ib_pd *pd, struct ib_dm *dm, u64 offset, u64 length,
				   int access);
	/* Copies to the memory or, if `out`, from it, in units of 4 bytes. -EINVAL: not in such
	 * units. -EFAULT: out of bounds. */
	int (*copy_dm)(struct ib_dm *dm, u64 offset, void *host, u64 length, bool out);
	/* The descriptor of the file that the memory lies in, and where; other processes may map
	 * it. It stays the driver's. -1: there is none. NULL: never. */
	int (*dm_file)(struct ib_dm *dm, u64 *offset);
	/* Maps `length` bytes of such a file of another process; the descriptor stays the
	 * caller's. Freed by free_dm. ERR_PTR: -EINVAL: no such file; -ENOMEM. */
	struct ib_dm *(*map_dm)(struct ib_device *dev, int fd, u64 offset, u64 length);
	/* Contract of ibv_advise_mr; errors negative. NULL: the driver has no regions on demand. */
	int (*advise_mr)(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice, u32 flags,
			 const struct ibv_sge *sge, u32 count);
	/* Limits the rate of a queue pair, as IB_QP_RATE_LIMIT of ib_modify_qp does, with the
	 * bursts beside. -EINVAL: out of range, or a queue pair or state that has no limit.
	 * NULL: none has. */
	int (*set_rate)(struct ib_qp *qp, const struct ib_uverbs_rate *rate);
	/* Counts what the queue pair completes of `ops`, the bits of IBV_QP_ATTACH_COMP_CNTR_OP_*,
	 * in RESET and INIT only, till it is destroyed; `counter` outlives it. -EINVAL: no
	 * operation, the state; -EBUSY: an operation is counted already; -EOPNOTSUPP: an operation
	 * or queue pair that the driver does not count; -ENOMEM. NULL: it counts none. */
	int (*attach_counter)(struct ib_qp *qp, struct op_counter *counter, u32 ops);
	/* Answers what attach_counter takes of such bits. */
	u32 counted_ops;
	/* A thread that is about to wait for events drives the engine meanwhile: returns when
	 * `fd` is readable (0), after a signal (-EINTR), or at once with -EAGAIN if the
	 * descriptor is O_NONBLOCK and nothing is there. */
	int (*wait_fd)(struct ib_device *dev, int fd);
	/* NULL: a thread that sleeps drives nothing. */
	const struct ib_sleep_ops *sleep;
	/* Answer ib_uverbs_get_info and ib_uverbs_query_gid_entry; port and index are valid. */
	int (*get_info)(struct ib_device *dev, struct ib_uverbs_info *out);
	int (*query_gid_entry)(struct ib_device *dev, u32 port, u32 index,
			       struct ibv_gid_entry *out);
	/* Answers ib_uverbs_find_neighbour; no lock of the midlayer is held. NULL: every peer
	 * counts as found. */
	int (*find_neighbour)(struct ib_device *dev, const struct ib_ah_attr *attr);
	/* A descriptor: while it or a copy of it is open, the port is a subnet manager's (IsSM).
	 * The port is valid. May block. -EBUSY: it is another one's. NULL: the driver has no
	 * ports that a subnet manager can be at. */
	int (*open_sm)(struct ib_device *dev, u8 port);
} FIXED;

/* The doors create with these the two kinds of objects that ib_* cannot create as a door needs
 * them. They call the methods above and set the object's fields and counts of use. ib_destroy_cq
 * and ib_dereg_mr destroy the objects. */
AV_EXPORT struct ib_cq *ib_uverbs_create_cq(struct ib_device *dev,
					    const struct ib_uverbs_cq_attr *attr);
AV_EXPORT struct ib_mr *ib_uverbs_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
					      int access);
/* By the methods of their names; NULL where the driver has none. */
AV_EXPORT void *ib_uverbs_alloc_buffer(struct ib_device *dev, u64 length);
AV_EXPORT void ib_uverbs_free_buffer(struct ib_device *dev, void *buffer);
/* Likewise, by the methods of their names; -EOPNOTSUPP where the driver has none. ib_dereg_mr and
 * ib_dealloc_mw destroy the objects. */
AV_EXPORT int ib_uverbs_rereg_user_mr(struct ib_mr *mr, int mask, const struct ib_uverbs_rereg *to);
AV_EXPORT struct ib_mr *ib_uverbs_reg_dmabuf_mr(struct ib_pd *pd, u64 offset, u64 length, u64 iova,
						int fd, int access);
/* Likewise. */
AV_EXPORT int ib_uverbs_set_rate(struct ib_qp *qp, const struct ib_uverbs_rate *rate);
AV_EXPORT struct ib_mr *ib_uverbs_alloc_null_mr(struct ib_pd *pd);
AV_EXPORT struct ib_mw *ib_uverbs_alloc_mw2(struct ib_pd *pd);

struct ib_dm {
	struct ib_device *device FIXED;
	u64 length FIXED;
};
/* Device memory, by the methods of their names; -EOPNOTSUPP where the driver has none. ib_dereg_mr
 * destroys the region. */
AV_EXPORT struct ib_dm *ib_uverbs_alloc_dm(struct ib_device *dev, u64 length, u32 align);
AV_EXPORT int ib_uverbs_free_dm(struct ib_dm *dm);
AV_EXPORT struct ib_mr *ib_uverbs_reg_dm_mr(struct ib_pd *pd, struct ib_dm *dm, u64 offset,
					    u64 length, int access);
AV_EXPORT int ib_uverbs_dm_file(struct ib_dm *dm, u64 *offset);
AV_EXPORT struct ib_dm *ib_uverbs_map_dm(struct ib_device *dev, int fd, u64 offset, u64 length);
AV_EXPORT int ib_uverbs_copy_dm(struct ib_dm *dm, u64 offset, void *host, u64 length, bool out);

/* Contract of ibv_advise_mr; errors negative. */
AV_EXPORT int ib_uverbs_advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice,
				  u32 flags, const struct ibv_sge *sge, u32 count);

/* How a UD work request names its address handle: the door allocates its ibv_ah as one of these. */
struct ib_uverbs_ah {
	struct ibv_ah ibv OWNED_BY(the application);
	struct ib_ah *ah FIXED;
};

/* A software adapter's entry into the stack. Each driver room adds itself with a constructor
 * that does nothing else; core calls probe on the first request for devices
 * (ib_uverbs_get_devices, ib_register_client), once per process (again in a forked child; a
 * probe that failed is tried again, at most once per second). */
struct ib_driver {
	const char *name FIXED;
	int (*probe)(void) FIXED;
	/* Optional: waits, for a bounded time, until the devices that are registered are those that
	 * exist now. Called before devices are listed, after a probe that has succeeded. */
	void (*settle)(void) FIXED;
	struct list_head node OWNED_BY(turn.held);
	/* core's: DRIVER_NEW, DRIVER_READY or the errno of the last probe */
	int result OWNED_BY(turn.held);
	u64 retry_at_ns OWNED_BY(turn.held); /* core's: when a failed probe is tried again */
};
enum { DRIVER_NEW = 0, DRIVER_READY = 1 };
void ib_driver_add(struct ib_driver *driver);
/* Probes every driver that has not been. 0, or the first failure, which ib_register_client does not
 * tell. May block. */
int driver_probe_all(void);

/* Takes a device that is gone for good off every list, and frees its name for another one. Those
 * who have it keep it until ib_unregister_device, which follows. */
void ib_device_unlist(struct ib_device *device);
/* Tells whether lists have the device. The caller holds it (ib_uverbs_get_devices). */
AV_EXPORT bool ib_device_is_listed(struct ib_device *device);
/* Waits until the handlers of every event of the device that was dispatched before have returned.
 * May block; not from a handler. */
void ib_dispatch_drain(struct ib_device *device);

/* The devices, each held until ib_uverbs_put_devices: attaches to the node on first use. Returns
 * the count or a negative errno; *list is allocated, NULL-terminated. */
AV_EXPORT int ib_uverbs_get_devices(struct ib_device ***list);
AV_EXPORT void ib_uverbs_put_devices(struct ib_device **list);

/* The values that ibv_* queries show and that ib_* has no field for. */
struct ib_uverbs_info {
	char name[64];      /* "roce0" */
	char dev_name[64];  /* "uverbs0" */
	char dev_path[256]; /* sysfs folder of the character device */
	char ibdev_path[256]; /* sysfs folder of the device: .../class/infiniband/roce0 */
	char sysfs[256];    /* what ibv_get_sysfs_path answers */
	u64 node_guid;      /* network order */
	u32 abi_version;
} OWNED_BY(the caller);
AV_EXPORT int ib_uverbs_get_info(struct ib_device *dev, struct ib_uverbs_info *out);
/* The RoCE type (IBV_GID_TYPE_*) and interface index of a GID; -ENODATA for an empty slot,
 * -EINVAL beyond the table. */
AV_EXPORT int ib_uverbs_query_gid_entry(struct ib_device *dev, u32 port, u32 index,
					struct ibv_gid_entry *out);

/* Finds the link's neighbour on the way to the peer of an address vector, as Linux does for user
 * space before an address handle is made or a connection gets its vector; ib_create_ah and
 * ib_modify_qp never do. Waits up to a second, so the caller holds no lock that another thread
 * needs. 0: the neighbour is known, there is none to ask, or the host does not tell; a vector that
 * is invalid is left to the verb. -ETIMEDOUT: no neighbour answers. -ENETUNREACH, -EHOSTUNREACH:
 * no route. -EINVAL: source and destination are an IPv4 and an IPv6 address, whoever has them. */
AV_EXPORT int ib_uverbs_find_neighbour(struct ib_device *dev, const struct ib_ah_attr *attr);
/* Whether ib_uverbs_find_neighbour asks, of the calling thread; at first it does. For a door that
 * calls verbs under a lock. Returns what held before. */
AV_EXPORT bool ib_uverbs_ask_neighbours(bool asks);

#endif
