/* instance.c: an instance of the CM: its lock, what it sends, its devices.
 * In: received MADs    Out: MADs, once the lock is released; works
 * Runs: any thread    Locks: cm.lock, then cm_devices_lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "cm/ib/cm_priv.h"

/* ---- the lock -------------------------------------------------------------------------------- */

void cm_enter(struct cm *cm)
{
	lock_acquire(&cm->lock);
}

void cm_leave(struct cm *cm)
{
	struct list_head out;
	struct list_head *link;
	bool run = !list_empty(&cm->ready) || !list_empty(&cm->dead);

	cm_will_write_all(cm);
	list_init(&out);
	list_splice(&cm->outbox, &out);
	lock_release(&cm->lock);
	while ((link = list_pop_front(&out)) != NULL) {
		struct cm_departure *d = list_entry(link, struct cm_departure, link);

		d->dev->ops->send(d->dev, &d->route, d->mad);
		/* pairs with cm_device_remove */
		__atomic_fetch_sub(&d->dev->departing, 1, __ATOMIC_RELEASE);
		free(d);
	}
	if (run)
		work_push(&cm->work);
}

void cm_queue(struct cm *cm, struct cm_device *dev, const struct cm_route *route, const u8 *mad)
{
	struct cm_departure *d = malloc(sizeof(*d));

	if (d == NULL) {
		cm_tally(cm, CM_DROP_MEMORY);
		return;
	}
	d->dev = dev;
	d->route = *route;
	memcpy(d->mad, mad, CM_MAD_BYTES);
	list_push_back(&cm->outbox, &d->link);
	__atomic_fetch_add(&dev->departing, 1, __ATOMIC_RELAXED);
	cm_tally(cm, CM_SENT);
}

void cm_queue_msg(struct cm *cm, struct cm_device *dev, const struct cm_route *route,
		  const struct cm_msg *msg)
{
	u8 mad[CM_MAD_BYTES];

	msg_pack(msg, mad);
	cm_queue(cm, dev, route, mad);
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void cm_free(struct cm *cm) NO_THREAD_SAFETY /* nobody else has it */
{
	for (int i = 0; i < CM_KEYS; i++)
		cm_table_destroy(&cm->tables[i]);
	timer_set_destroy(&cm->timers);
	free(cm->wills.free);
	free(cm);
}

struct cm *cm_create(struct work_queue *queue, u32 seed) NO_THREAD_SAFETY /* nobody else has it */
{
	struct cm *cm = calloc(1, sizeof(*cm));
	int err = 0;

	if (cm == NULL)
		return NULL;
	list_init(&cm->ids);
	list_init(&cm->masked);
	list_init(&cm->ready);
	list_init(&cm->dead);
	list_init(&cm->outbox);
	list_init(&cm->changed);
	list_init(&cm->orphans);
	cm->backlog_max = CM_BACKLOG_MAX;
	cm->orphans_max = CM_ORPHANS_MAX;
	timer_set_init(&cm->timers);
	work_init(&cm->work, queue, cm_run);
	work_init(&cm->alarm, queue, cm_alarm);
	cm->next_number = seed;
	cm->next_service = seed;
	/* a later process in this place may come to the same numbers while peers still answer the
	 * former one: a REP is told from its by the transaction */
	cm->next_tid = seed;
	for (int i = 0; i < CM_KEYS; i++)
		err |= cm_table_init(&cm->tables[i]);
	if (err != 0) {
		cm_free(cm);
		return NULL;
	}
	return cm;
}

void cm_destroy(struct cm *cm)
{
	work_cancel_wait(&cm->work);
	work_cancel_wait(&cm->alarm);
	cm_enter(cm);
	/* requests that no handler has seen let go of their listeners first */
	list_for_each(id, &cm->ids, struct cm_id, all)
		cm_note_drop_all(cm, id);
	list_for_each_safe(id, &cm->ids, struct cm_id, all)
		cm_id_free(cm, id);
	lock_release(&cm->lock);
	cm_free(cm);
}

/* ---- devices --------------------------------------------------------------------------------- */

static struct lock cm_devices_lock;
static struct list_head cm_devices GUARDED_BY(cm_devices_lock) = LIST_HEAD_INIT(cm_devices);
FORK_TAKES(FORK_CM_DEVICES, &cm_devices_lock);

void cm_device_add(struct cm *cm, struct cm_device *dev)
{
	dev->cm = cm;
	lock_acquire(&cm_devices_lock);
	list_push_back(&cm_devices, &dev->link);
	lock_release(&cm_devices_lock);
}

/* Ids that the consumer still has lose their device, and with it every way out. */
static void cm_device_desert(struct cm *cm, struct cm_device *dev) REQUIRES(&cm->lock)
{
	list_for_each_safe(id, &cm->ids, struct cm_id, all) {
		if (id->dev != dev)
			continue;
		cm_request_end(cm, id);
		cm_will_drop(cm, id);
		id->dev = NULL;
		if (id->orphan)
			cm_id_bury(cm, id);
	}
}

void cm_device_remove(struct cm_device *dev)
{
	struct cm *cm = dev->cm;

	lock_acquire(&cm_devices_lock);
	list_remove(&dev->link);
	lock_release(&cm_devices_lock);
	cm_enter(cm);
	cm_device_desert(cm, dev);
	cm_leave(cm);
	/* pairs with cm_leave, of other threads */
	while (__atomic_load_n(&dev->departing, __ATOMIC_ACQUIRE) != 0)
		clock_sleep_ns(NS_PER_US);
}

void cm_flush(struct ib_cm_id *cm_id)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm_device *dev;

	cm_enter(id->cm);
	dev = id->dev;
	if (dev != NULL)
		__atomic_fetch_add(&dev->departing, 1, __ATOMIC_RELAXED);
	cm_leave(id->cm);
	if (dev == NULL)
		return;
	if (dev->ops->flush != NULL)
		dev->ops->flush(dev);
	/* pairs with cm_device_remove */
	__atomic_fetch_sub(&dev->departing, 1, __ATOMIC_RELEASE);
}

struct ib_ah_attr cm_request_back(struct ib_cm_id *cm_id)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct ib_ah_attr back;

	cm_enter(id->cm);
	back = id->av.route.ah;
	cm_leave(id->cm);
	return back;
}

void cm_request_misnames(struct ib_cm_id *cm_id)
{
	struct cm_id *id = cm_id_of(cm_id);

	cm_enter(id->cm);
	cm_tally(id->cm, CM_DROP_SOURCE);
	cm_leave(id->cm);
}

bool cm_gid_is_own(struct cm *cm, const union ib_gid *gid)
{
	bool own = false;
	u16 index;
	u8 port;

	lock_acquire(&cm_devices_lock);
	list_for_each(d, &cm_devices, struct cm_device, link) {
		if (d->cm == cm && d->ops->find_gid(d, gid, &port, &index) == 0)
			own = true;
	}
	lock_release(&cm_devices_lock);
	return own;
}

static struct cm_device *cm_device_find(const struct ib_device *device)
{
	struct cm_device *dev = NULL;

	lock_acquire(&cm_devices_lock);
	list_for_each(d, &cm_devices, struct cm_device, link) {
		if (d->ib == device)
			dev = d;
	}
	lock_release(&cm_devices_lock);
	return dev;
}

struct ib_cm_id *ib_create_cm_id(struct ib_device *device, ib_cm_handler cm_handler, void *context)
{
	struct cm_device *dev = cm_device_find(device);
	struct cm_id *id;
	struct cm *cm;
	int err = dev == NULL ? cm_start() : 0;

	if (err != 0)
		return ERR_PTR(err);
	if (dev == NULL)
		dev = cm_device_find(device);
	if (dev == NULL)
		return ERR_PTR(-ENODEV);
	cm = dev->cm;
	cm_enter(cm);
	id = cm_id_create(cm, dev, cm_handler, context);
	cm_leave(cm);
	return id != NULL ? &id->pub : ERR_PTR(-ENOMEM);
}

/* ---- fork ------------------------------------------------------------------------------------ */

void cm_drop_in_child(struct cm *cm) NO_THREAD_SAFETY
{
	lock_init(&cm->lock);
	list_init(&cm_devices);
	list_init(&cm->outbox);
	list_init(&cm->changed);
	timer_set_init(&cm->timers);
	cm->running = false;
	list_for_each(id, &cm->ids, struct cm_id, all) {
		id->dev = NULL;
		list_init(&id->changed);
		id->will = 0; /* the parent's */
		id->armed = false;
		id->in_handler = false;
		id->waiting = 0;
		id->children = 0;
		id->timer.place = 0;
	}
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void (*const cm_receivers[CM_ATTR_END - CM_REQ])(struct cm *cm,
							 const struct cm_received *r) = {
	[CM_REQ - CM_REQ] = cm_receive_req,
	[CM_MRA - CM_REQ] = cm_receive_mra,
	[CM_REJ - CM_REQ] = cm_receive_rej,
	[CM_REP - CM_REQ] = cm_receive_rep,
	[CM_RTU - CM_REQ] = cm_receive_rtu,
	[CM_DREQ - CM_REQ] = cm_receive_dreq,
	[CM_DREP - CM_REQ] = cm_receive_drep,
	[CM_SIDR_REQ - CM_REQ] = cm_receive_sidr_req,
	[CM_SIDR_REP - CM_REQ] = cm_receive_sidr_rep,
	[CM_LAP - CM_REQ] = cm_receive_lap,
	[CM_APR - CM_REQ] = cm_receive_apr,
};

void cm_receive(struct cm_device *dev, const struct cm_arrival *arrival)
{
	struct cm *cm = dev->cm;
	struct cm_msg msg;
	struct cm_received r = { .dev = dev, .a = arrival, .msg = &msg };
	bool ok = msg_unpack(&msg, arrival->mad, arrival->length);

	cm_enter(cm);
	cm_tally(cm, CM_RECEIVED);
	if (ok)
		cm_receivers[msg.attr - CM_REQ](cm, &r);
	else
		cm_tally(cm, CM_DROP_FORMAT);
	cm_leave(cm);
}

u64 cm_count(struct cm *cm, enum cm_counter c)
{
	u64 n;

	cm_enter(cm);
	n = cm->counters[c];
	lock_release(&cm->lock);
	return n;
}

u32 cm_id_count(struct cm *cm)
{
	u32 n;

	cm_enter(cm);
	n = cm->id_count;
	lock_release(&cm->lock);
	return n;
}
