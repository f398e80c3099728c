/* core_priv.h: inside the midlayer: its half of a device, and how a driver is called.
 *
 *   device.c    registration               client.c     tells clients of devices
 *   driver.c    probes the adapters        dispatch.c   asynchronous events
 *   verbs.c     PDs, CQs, SRQs, QPs        extended.c   size-versioned creation
 *   qp_state.c  the table of transitions   mr.c         regions, windows, FMRs
 *   address.c   address handles            fmr_pool.c   FMR pools
 *   mcast.c     multicast attachments      query.c, cache.c  attributes; cached GIDs and P_Keys
 *   flow.c      flow rules                 wq.c         work queues, tables of them
 *   ucontext.c  handles of the doors       uverbs.c     the doors' calls beyond ib_*
 *   convert.c   to libibverbs' layout      rate.c       static rates
 *   attrs.c     what a device can do, in Linux 6.1's words
 *
 * Locks, outermost first: a device's turn (held across clients' callbacks, so a sleeping one) >
 * clients.lock > registry.lock > core->lock > a vector's own. None of the struct locks is held
 * across a callback or a driver's method.
 */
#ifndef CORE_PRIV_H
#define CORE_PRIV_H

#include <errno.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "core/turn.h"
#include "core/uverbs.h"
#include "event/event.h"

/* P_Keys of one partition: all but the highest bit, which says of what kind the member is. */
static inline bool pkey_is_same(u16 a, u16 b)
{
	return ((a ^ b) & 0x7fff) == 0;
}

/* Full members reach all members, limited ones full members only. */
static inline bool pkey_is_full(u16 pkey)
{
	return (pkey & 0x8000) != 0;
}

/* One client on one device, from its add to its remove. */
struct client_pair {
	/* core->pairs: services, then others, both in the order of the adds */
	struct list_head node OWNED_BY(ib_device_core.lock);
	struct ib_client *client FIXED;
	bool service FIXED;
	const struct client_calls *calls FIXED; /* the client's */
	void *data OWNED_BY(ib_device_core.lock);
	bool refused OWNED_BY(turn.held);  /* by the client's add: there is no remove */
	bool removing OWNED_BY(turn.held); /* inside the client's remove */
};

/* An object that is being destroyed: its events are dropped. On the destroyer's stack. */
struct dispatch_mute {
	struct list_head node OWNED_BY(ib_device_core.lock); /* core->mutes */
	const void *element FIXED;
};

struct cache;

struct ib_device_core {
	struct ib_device *device FIXED;
	struct list_head node OWNED_BY(registry.lock); /* registry's list of devices */
	u64 serial FIXED; /* order of registration; set once, before the device is on the list */
	u32 holders ATOMIC_ONLY; /* who keeps ib_unregister_device from returning; waited for */
	bool registered OWNED_BY(registry.lock);
	bool unlisted OWNED_BY(registry.lock); /* gone for good: see ib_device_unlist */
	bool dying OWNED_BY(registry.lock); /* being unregistered: no new client or holder */
	struct turn turn GUARDS_ITSELF; /* one add or remove at a time, and the pairs' order */

	struct lock lock;
	struct list_head pairs GUARDED_BY(lock);
	struct list_head handlers GUARDED_BY(lock); /* ib_event_handler.list */
	struct list_head *cursor GUARDED_BY(lock);  /* the handler that deliver runs next */
	struct list_head events GUARDED_BY(lock);   /* not yet delivered */
	const void *delivering GUARDED_BY(lock);    /* the element or handler whose callback runs */
	struct list_head mutes GUARDED_BY(lock);
	bool stopped GUARDED_BY(lock); /* not registered: events are dropped */
	struct vector_item item GUARDS_ITSELF; /* runs the delivery on vector 0 */
	struct list_head groups GUARDED_BY(lock); /* multicast attachments */

	struct lock cache_lock ACQUIRED_AFTER(lock);
	struct cache *cache PT_GUARDED_BY(cache_lock);

	struct ib_uverbs_ops uverbs FIXED; /* what device->uverbs points at while registered */
	const struct ib_uverbs_ops *own_uverbs FIXED; /* what the driver had there */
	/* what the driver has beyond struct ib_device; zero: nothing */
	struct ib_device_ops ops FIXED;
	/* Which methods of the device are the midlayer's conversions. */
	bool filled_post_send FIXED, filled_post_recv FIXED, filled_post_srq_recv FIXED;
};

/* Calls a driver's method. While it runs, event_driver_depth tells that no consumer's callback
 * may. */
#define DRIVER_CALL(expr)                                                                          \
	({                                                                                         \
		event_driver_depth++;                                                              \
		__auto_type result_ = (expr);                                                      \
		event_driver_depth--;                                                              \
		result_;                                                                           \
	})

/* Counts of use. A count of 0 can be claimed for destruction; from then on it cannot be raised. */
static inline bool use_get(int *usecnt)
{
	if (__atomic_add_fetch(usecnt, 1, __ATOMIC_RELAXED) > 0)
		return true;
	__atomic_sub_fetch(usecnt, 1, __ATOMIC_RELAXED);
	return false;
}

/* Pairs with the acquire in use_claim: what the user did with the object is over before it goes. */
static inline void use_put(int *usecnt)
{
	__atomic_sub_fetch(usecnt, 1, __ATOMIC_RELEASE);
}

/* False: somebody uses it. */
static inline bool use_claim(int *usecnt)
{
	int none = 0;

	return __atomic_compare_exchange_n(usecnt, &none, -(1 << 30), false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static inline void use_unclaim(int *usecnt)
{
	__atomic_add_fetch(usecnt, 1 << 30, __ATOMIC_RELAXED);
}

/* device.c: the registry */
/* A device's core by the order of registration: the first with a serial above `after`, or the
 * last below `before`; held. Devices that are leaving count too unless `alive`. NULL: none. */
struct ib_device_core *registry_next(u64 after, bool alive);
struct ib_device_core *registry_previous(u64 before);
/* Pairs with the hold in registry_next and registry_previous. */
void registry_put(struct ib_device_core *core);
bool registry_is_alive(struct ib_device_core *core);

/* The device's core, made at the first call; NULL: no memory. */
struct ib_device_core *core_device_make_core(struct ib_device *device);
bool core_device_is_registered(const struct ib_device_core *core);

/* extended.c */
/* Copies a consumer's attributes into a structure of this release. 0, -EINVAL (too short),
 * -EOPNOTSUPP (a field that this release does not have is set). */
int extended_take_cq_attr(struct ib_cq_init_attr *own, const struct ib_cq_init_attr *theirs);
int extended_take_qp_attr(struct ib_qp_init_attr_ex *own, const struct ib_qp_init_attr_ex *theirs);
/* The driver's object; its common fields are the caller's to fill. ERR_PTR(-EOPNOTSUPP): the
 * driver has neither the method nor, for what is asked, the older one. May block. */
struct ib_cq *extended_create_cq(struct ib_device *device, const struct ib_cq_init_attr *attr);
struct ib_qp *extended_create_qp(struct ib_device *device, struct ib_pd *pd,
				 struct ib_qp_init_attr_ex *own);
/* Has the driver XRC domains? */
bool extended_has_xrc(const struct ib_device *device);
/* Has the driver work queues? */
bool extended_has_wq(const struct ib_device *device);
/* The table that the queue pair was created with; NULL: none, or no such field. */
struct ib_rwq_ind_table *extended_qp_table(const struct ib_qp *qp);
/* Is it of ib_alloc_cq, and not being freed? */
bool extended_cq_polls_itself(const struct ib_cq *cq);
/* Empties the fields of ib_linux61.h, if the driver has them, and gives CQs and regions numbers. */
void extended_pd_clear(struct ib_pd *pd);
void extended_cq_clear(struct ib_cq *cq);
void extended_mr_clear(struct ib_mr *mr);
void extended_qp_clear(struct ib_qp *qp);
/* Nothing where the driver's struct has no such field. */
void extended_qp_set_table(struct ib_qp *qp, struct ib_rwq_ind_table *table);
/* Copies a consumer's attributes of `size` bytes, whose first u32 is `size`, into a structure of
 * this release. 0, -EINVAL (shorter than `least`), -EOPNOTSUPP (a field that this release does not
 * have is set). */
int extended_take_attr(void *own, u32 own_size, const void *theirs, u32 size, u32 least);
/* The XRC domain that the object stands on; NULL: none, or the driver's struct has no such
 * field. */
struct ib_xrcd *extended_srq_xrcd(const struct ib_srq *srq);
struct ib_xrcd *extended_qp_xrcd(const struct ib_qp *qp);
/* Nothing where the driver's struct has no such field. */
void extended_srq_set_xrcd(struct ib_srq *srq, struct ib_xrcd *xrcd);
void extended_qp_set_xrcd(struct ib_qp *qp, struct ib_xrcd *xrcd);
/* The CQ that the SRQ stands on; NULL: none, or the driver's struct ib_srq has no such field. */
struct ib_cq *extended_srq_cq(const struct ib_srq *srq);
void extended_srq_set_cq(struct ib_srq *srq, struct ib_cq *cq);
/* Nothing where the driver's struct ib_srq has no such field. */
void extended_srq_set_type(struct ib_srq *srq, enum ib_srq_type type);

/* verbs.c */
/* The common fields of an SRQ that the driver has just made. */
void verbs_fill_srq(struct ib_srq *srq, struct ib_pd *pd, const struct ib_srq_init_attr_ex *init);

/* client.c */
/* Calls `add` of every client that the device does not have yet, in the order of their
 * registration. May block. */
void core_client_catch_up(struct ib_device_core *core);
/* Calls `remove` of every client that the device has, the last first. May block. */
void core_client_remove_all(struct ib_device_core *core);

/* dispatch.c */
void dispatch_init(struct ib_device_core *core);
void dispatch_start(struct ib_device_core *core);
/* No event is delivered after this. May block. */
void dispatch_stop(struct ib_device_core *core);
/* From here to unmute no event of `element` is delivered; waits for a handler that runs. May
 * block. */
void dispatch_mute(struct ib_device_core *core, const void *element, struct dispatch_mute *mute);
void dispatch_unmute(struct ib_device_core *core, struct dispatch_mute *mute);
void dispatch_drop_in_child(struct ib_device_core *core);

/* attrs.c */
/* Asks the driver for device->attrs, if the driver has them. 0 or the driver's errno. May block. */
int core_fill_attrs(struct ib_device *device);

/* cache.c */
/* Reads the tables, in place of those of an earlier registration. May block. */
int cache_init(struct ib_device_core *core);
void cache_fini(struct ib_device_core *core);
/* Reads the port's tables again if the event may have changed them. May block. */
void cache_event(struct ib_device_core *core, const struct ib_event *event);
/* An empty entry of a GID table, which is nobody's GID and never found. */
static inline bool core_gid_is_empty(const union ib_gid *gid)
{
	return gid->global.subnet_prefix == 0 && gid->global.interface_id == 0;
}

/* The port's link layer (enum rdma_link_layer) as it was last read. Errors as
 * ib_get_cached_lmc. */
int cache_link_layer(struct ib_device *device, u8 port_num, u8 *link_layer);

/* uverbs.c */
/* Completes the driver's methods; detach gives them back. A forked child may attach again what
 * its parent had attached. */
void uverbs_attach(struct ib_device_core *core);
void uverbs_detach(struct ib_device_core *core);
/* `uverbs_priv`: the part of a CQ of ib_uverbs_create_cq beside the driver's. Called before the
 * driver destroys the CQ: waits until every event of the CQ is acknowledged, and keeps further
 * events back. May block. */
void uverbs_cq_hold(void *uverbs_priv);
/* The driver has refused to destroy it: takes uverbs_cq_hold back. */
void uverbs_cq_release(void *uverbs_priv);
/* The driver has destroyed it. */
void uverbs_cq_gone(void *uverbs_priv);

#endif
