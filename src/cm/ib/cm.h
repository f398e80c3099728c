/* cm.h: what the IB CM needs of the rest of the stack: a way for MADs out and in, the device's
 * GIDs and keys, and a work queue. Consumers use <rdma/ib_cm.h>.
 *
 * A process has one instance, over the MAD layer (mad.c). Tests and the simulator have as many as
 * they want, with ports of their own and a queue in virtual time.
 */
#ifndef CM_IB_CM_H
#define CM_IB_CM_H

#include <rdma/ib_cm.h>

#include "base/work.h"

struct cm;
struct cm_device;
struct mad_connection;

/* Local communication IDs: the process' slot above, the CM's number below. */
enum { CM_ID_BITS = 22 };
/* Bytes of a will's MAD that may be other than zero. */
enum { CM_WILL_BYTES = 80 };

/* Which way a MAD goes out of a device, to QP1 there. */
struct cm_route {
	struct ib_ah_attr ah; /* port_num too */
	u16 pkey_index;
} OWNED_BY(whoever fills it);

/* One MAD that has arrived, not judged yet. */
struct cm_arrival {
	struct cm_route back; /* the way to its sender */
	union ib_gid sgid, dgid; /* of its GRH; zero without */
	const u8 *mad;
	u32 length;
} OWNED_BY(its receiver);

struct cm_device_ops {
	/* Sends CM_MAD_BYTES, once, unreliably. Called without a lock; never blocks. */
	void (*send)(struct cm_device *dev, const struct cm_route *route, const u8 *mad);
	/* Returns when what was given to `send` before is on its way. May block; not on the queue
	 * of the MAD layer. NULL: it is at once. */
	void (*flush)(struct cm_device *dev);
	/* Where the GID stands in the device's tables. 0 or -ENOENT. Never blocks. */
	int (*find_gid)(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index);
	/* Where the P_Key (host order) stands in the port's table. 0 or -ENOENT. Never blocks. */
	int (*find_pkey)(struct cm_device *dev, u8 port, u16 pkey, u16 *index);
	/* Requests for the service IDs come to this process from now on (`on`), or no more. Host
	 * order. `compare` may be NULL; requests that it does not match need not come. May block. 0
	 * or a negative errno. NULL: they come anyway. */
	int (*listen)(struct cm_device *dev, u64 service_id, u64 mask,
		      const struct ib_cm_compare_data *compare, bool on);
	/* The MAD that the node sends along the route if this process dies. `slot` is a small
	 * number, an id's own from the first call with a MAD until the one without (route NULL,
	 * too), which takes it back. CM_MAD_BYTES, of which only the first CM_WILL_BYTES are not
	 * zero. Called under cm.lock, before the MADs of the same step go to `send`; never blocks,
	 * and calls nothing of the CM. `connection` is what tools show of the id; NULL with the
	 * route. NULL: no wills. */
	void (*will)(struct cm_device *dev, u32 slot, const struct cm_route *route, const u8 *mad,
		     const struct mad_connection *connection);
} FIXED;

/* Embedded by whoever adds the device; his but for the last three. */
struct cm_device {
	struct ib_device *ib;
	const struct cm_device_ops *ops;
	u32 id_bits;  /* of the process' slot, above the lowest CM_ID_BITS */
	u32 hi_tid;   /* upper half of transaction IDs */
	u8 ack_delay; /* the device's local_ca_ack_delay */
	struct cm *cm;
	u32 departing ATOMIC_ONLY; /* MADs that wait for `send` or are in it; calls of `flush` */
	struct list_head link OWNED_BY(cm_devices_lock);
} FIXED;

/* Makes an instance whose callbacks, timers and handlers run on `queue`, which outlives it.
 * `seed`: where its communication and transaction IDs begin. NULL: no memory. */
struct cm *cm_create(struct work_queue *queue, u32 seed);
/* Frees it with all ids; no device may be left, and the queue runs nothing of it any more. */
void cm_destroy(struct cm *cm);

/* Returns when the MADs that the caller's last call for the id has sent are on their way: the
 * process may end then. May block; not on the queue of the MAD layer, nor in a handler. */
void cm_flush(struct ib_cm_id *cm_id);
/* The next REP of the id is sent once a second, four times at most, whatever the REQ says, and then
 * the connection has failed. For a server that keeps little room for clients that it has not heard
 * again: the source of a REQ may be forged. False: this one has come from this host, where it is
 * not, and nothing changes. */
bool cm_answer_briefly(struct ib_cm_id *cm_id);

/* Lets ids of dev->ib be created. The device stays until cm_device_remove. */
void cm_device_add(struct cm *cm, struct cm_device *dev);
/* No id can be created any more. Those that the consumer still has stay his, and no MAD of theirs
 * leaves; the others (timewait) are freed. May block. */
void cm_device_remove(struct cm_device *dev);

/* Takes a MAD that has come to QP1 of the device. Any context without locks; never blocks, and
 * calls no handler itself. */
void cm_receive(struct cm_device *dev, const struct cm_arrival *arrival);

/* The way back to the sender of the request that made the id. A REQ's is that of its path, which
 * its datagram has confirmed. Any context without locks. */
struct ib_ah_attr cm_request_back(struct ib_cm_id *cm_id);
/* The request that made the id names an address that it has not come from or to: counts it. Any
 * context without locks. */
void cm_request_misnames(struct ib_cm_id *cm_id);

/* Makes the process' own instance, over the MAD layer, and learns of all devices; once. A consumer
 * that creates ids from ib_client.add calls it before it registers that client. May block. 0 or
 * -ENOMEM. */
int cm_start(void);

/* path_counter_names has their names in this order. */
enum cm_counter {
	CM_SENT,
	CM_RECEIVED,
	CM_RESENT,	 /* by a timeout */
	CM_FAILED,	 /* requests whose retries were used up */
	CM_DUPLICATES,	 /* messages that had been taken before */
	CM_DROP_FORMAT,	 /* no CM message */
	CM_DROP_UNKNOWN, /* for no id, or not in its state */
	CM_DROP_BACKLOG, /* too many requests that no handler has seen */
	CM_DROP_MEMORY,
	CM_STALE, /* connections found stale */
	CM_DROP_SOURCE, /* requests that name an address that they have not come from or to */
	CM_COUNTERS
};
u64 cm_count(struct cm *cm, enum cm_counter c);
/* How many ids exist, those in timewait included. */
u32 cm_id_count(struct cm *cm);

#endif
