/* listen.c: which id takes the requests for a service ID.
 * In: ib_cm_listen, service IDs of requests    Out: listening ids
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, A3 (service IDs)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

#define CM_SERVICE_ALL UINT64_MAX

static bool cm_listener_takes(const struct cm_id *id, const u8 *private_data)
{
	const struct ib_cm_compare_data *c = id->compare;

	for (u32 i = 0; c != NULL && i < IB_CM_COMPARE_SIZE; i++) {
		if (((private_data[i] ^ c->data[i]) & c->mask[i]) != 0)
			return false;
	}
	return true;
}

/* Could one request suit both? */
static bool cm_compare_overlaps(const struct ib_cm_compare_data *a,
				const struct ib_cm_compare_data *b)
{
	for (u32 i = 0; a != NULL && b != NULL && i < IB_CM_COMPARE_SIZE; i++) {
		if (((a->data[i] ^ b->data[i]) & a->mask[i] & b->mask[i]) != 0)
			return false;
	}
	return true;
}

static bool cm_listener_serves(const struct cm_id *id, const struct cm_device *dev, u64 service_id)
{
	u64 mask = be64toh(id->pub.service_mask);

	return id->dev == dev && ((be64toh(id->pub.service_id) ^ service_id) & mask) == 0;
}

struct cm_id *cm_listener_find(struct cm *cm, struct cm_device *dev, u64 service_id,
			       const u8 *private_data)
{
	struct cm_key *key = cm_table_find(&cm->tables[CM_BY_SERVICE], 0, service_id);

	for (; key != NULL; key = cm_table_next(key)) {
		if (key->id->dev == dev && cm_listener_takes(key->id, private_data))
			return key->id;
	}
	list_for_each(id, &cm->masked, struct cm_id, masked) {
		if (cm_listener_serves(id, dev, service_id) && cm_listener_takes(id, private_data))
			return id;
	}
	return NULL;
}

/* Would a request for one of these service IDs suit another listener already? */
static bool cm_service_busy(struct cm *cm, const struct cm_device *dev, u64 service_id, u64 mask,
			    const struct ib_cm_compare_data *compare) REQUIRES(&cm->lock)
{
	struct cm_key *key = cm_table_find(&cm->tables[CM_BY_SERVICE], 0, service_id);

	for (; key != NULL; key = cm_table_next(key)) {
		if (key->id->dev == dev && cm_compare_overlaps(key->id->compare, compare))
			return true;
	}
	list_for_each(id, &cm->masked, struct cm_id, masked) {
		u64 both = be64toh(id->pub.service_mask) & mask;

		if (id->dev == dev && ((be64toh(id->pub.service_id) ^ service_id) & both) == 0 &&
		    cm_compare_overlaps(id->compare, compare))
			return true;
	}
	if (mask == CM_SERVICE_ALL)
		return false;
	/* a range may hold service IDs that others listen on exactly: rare enough to look at all */
	list_for_each(id, &cm->ids, struct cm_id, all) {
		if (id->pub.state == IB_CM_LISTEN && id->dev == dev &&
		    ((be64toh(id->pub.service_id) ^ service_id) & mask) == 0 &&
		    cm_compare_overlaps(id->compare, compare))
			return true;
	}
	return false;
}

static u64 cm_service_assign(struct cm *cm, const struct cm_device *dev) REQUIRES(&cm->lock)
{
	return be64toh(IB_CM_ASSIGN_SERVICE_ID) | (u64)dev->id_bits << 8 | ++cm->next_service;
}

static struct ib_cm_compare_data *cm_compare_copy(const struct ib_cm_compare_data *from)
{
	struct ib_cm_compare_data *copy = malloc(sizeof(*copy));

	if (copy != NULL)
		*copy = *from;
	return copy;
}

static int cm_listen_begin(struct cm *cm, struct cm_id *id, u64 service_id, u64 mask,
			   struct ib_cm_compare_data *compare) REQUIRES(&cm->lock)
{
	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_IDLE)
		return -EINVAL;
	if (service_id == be64toh(IB_CM_ASSIGN_SERVICE_ID)) {
		service_id = cm_service_assign(cm, id->dev);
		mask = CM_SERVICE_ALL;
	}
	if (cm_service_busy(cm, id->dev, service_id, mask, compare))
		return -EBUSY;
	id->compare = compare;
	id->pub.service_id = htobe64(service_id & mask);
	id->pub.service_mask = htobe64(mask);
	cm_state_set(cm, id, IB_CM_LISTEN);
	if (mask == CM_SERVICE_ALL)
		cm_id_link(cm, id, CM_BY_SERVICE, 0, service_id);
	else
		list_push_back(&cm->masked, &id->masked);
	return 0;
}

/* Requests that its handler has not seen are refused as later ones will be. */
void cm_listen_end(struct cm *cm, struct cm_id *id)
{
	cm_id_unlink(cm, id, CM_BY_SERVICE);
	list_remove(&id->masked);
	cm_state_set(cm, id, IB_CM_IDLE);
	if (id->children == 0)
		return;
	list_for_each_safe(child, &cm->ids, struct cm_id, all) {
		if (child->listener != id || child->in_handler)
			continue;
		if (child->dev != NULL && child->pub.state == IB_CM_REQ_RCVD)
			cm_reject(cm, child, IB_CM_REJ_INVALID_SERVICE_ID, NULL, 0, NULL, 0);
		cm_id_abandon(cm, child);
	}
}

int ib_cm_listen(struct ib_cm_id *cm_id, __be64 service_id, __be64 service_mask,
		 struct ib_cm_compare_data *compare_data)
{
	struct cm_id *id = cm_id_of(cm_id);
	u64 mask = service_mask != 0 ? be64toh(service_mask) : CM_SERVICE_ALL;
	u64 agn = be64toh(IB_SERVICE_ID_AGN_MASK);
	struct ib_cm_compare_data *copy = NULL;
	struct cm *cm = id->cm;
	struct cm_device *dev;
	int err;

	if ((be64toh(service_id) & mask & agn) == be64toh(IB_CM_ASSIGN_SERVICE_ID) &&
	    service_id != IB_CM_ASSIGN_SERVICE_ID)
		return -EINVAL;
	if (compare_data != NULL) {
		copy = cm_compare_copy(compare_data);
		if (copy == NULL)
			return -ENOMEM;
	}
	cm_enter(cm);
	err = cm_listen_begin(cm, id, be64toh(service_id), mask, copy);
	dev = id->dev;
	cm_leave(cm);
	if (err != 0) {
		free(copy);
		return err;
	}
	if (dev->ops->listen != NULL)
		err = dev->ops->listen(dev, be64toh(cm_id->service_id), mask, compare_data, true);
	if (err != 0) {
		cm_enter(cm);
		cm_listen_end(cm, id);
		id->compare = NULL;
		cm_leave(cm);
		free(copy);
	}
	return err;
}
