/* id.c: communication identifiers: numbers, tables, and their end.
 * In: the consumer, received messages    Out: ids; what is owed to the peer when one ends
 * Runs: any thread; freeing on the instance's queue only    Locks: cm.lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

/* ---- numbers and tables ---------------------------------------------------------------------- */

static bool cm_id_leads_to(const struct cm_id *id, const union ib_gid *gid)
{
	return memcmp(&id->av.route.ah.grh.dgid, gid, sizeof(*gid)) == 0 ||
	       (id->alternate.valid &&
		memcmp(&id->alternate.route.ah.grh.dgid, gid, sizeof(*gid)) == 0);
}

/* Does the id's primary path lead to the sender? Whoever sends a REQ chooses what its alternate
 * path names, and a connection may have migrated there since. */
static bool cm_id_began_with(const struct cm_id *id, const struct cm_arrival *a)
{
	const struct ib_sa_path_rec *path = &id->primary_path;

	if (a->back.ah.ah_flags & IB_AH_GRH)
		return memcmp(&path->dgid, &a->sgid, sizeof(a->sgid)) == 0;
	return be16toh(path->dlid) == a->back.ah.dlid;
}

/* Without a GRH a LID would have to tell, and a port's may change while a connection lasts. What
 * the device itself answers for a process that has ended has neither. */
bool cm_id_is_peers(const struct cm_id *id, const struct cm_arrival *a)
{
	return !(a->back.ah.ah_flags & IB_AH_GRH) || cm_id_leads_to(id, &a->sgid);
}

struct cm_id *cm_id_find(struct cm *cm, const struct cm_received *r, u32 local_id, u32 remote_id)
{
	struct cm_key *key = cm_table_find(&cm->tables[CM_BY_LOCAL], 0, local_id);

	if (key == NULL || key->id->dev == NULL || !cm_id_is_peers(key->id, r->a))
		return NULL;
	if (remote_id != 0 && be32toh(key->id->pub.remote_id) != remote_id)
		return NULL;
	return key->id;
}

struct cm_id *cm_id_find_of_port(struct cm *cm, const struct cm_received *r, enum cm_key_kind kind,
				 u64 guid, u32 number)
{
	struct cm_key *key = cm_table_find(&cm->tables[kind], guid, number);

	while (key != NULL && !cm_id_began_with(key->id, r->a))
		key = cm_table_next(key);
	return key != NULL ? key->id : NULL;
}

/* Numbers go up and round, so that one is not used again soon; 0 is none. */
static u32 cm_id_number(struct cm *cm, const struct cm_device *dev) REQUIRES(&cm->lock)
{
	u32 number;

	do {
		number = dev->id_bits | (++cm->next_number & ((1u << CM_ID_BITS) - 1));
	} while (number == 0 || cm_table_find(&cm->tables[CM_BY_LOCAL], 0, number) != NULL);
	return number;
}

struct cm_id *cm_id_create(struct cm *cm, struct cm_device *dev, ib_cm_handler handler,
			   void *context)
{
	struct cm_id *id;

	if (cm->id_count >> (CM_ID_BITS - 1) != 0)
		return NULL;
	id = calloc(1, sizeof(*id));
	if (id == NULL)
		return NULL;
	id->cm = cm;
	id->dev = dev;
	id->pub = (struct ib_cm_id){ .cm_handler = handler,
				     .context = context,
				     .device = dev->ib,
				     .remote_cm_qpn = 1 };
	id->timer.fn = cm_timer;
	list_init(&id->notes);
	list_init(&id->ready);
	list_init(&id->masked);
	list_init(&id->changed);
	list_init(&id->orphaned);
	list_push_back(&cm->ids, &id->all);
	cm->id_count++;
	for (int kind = 0; kind < CM_KEYS; kind++)
		id->keys[kind].id = id;
	id->pub.local_id = htobe32(cm_id_number(cm, dev));
	cm_id_link(cm, id, CM_BY_LOCAL, 0, be32toh(id->pub.local_id));
	return id;
}

void cm_id_link(struct cm *cm, struct cm_id *id, enum cm_key_kind kind, u64 high, u64 low)
{
	cm_table_remove(&cm->tables[kind], &id->keys[kind]);
	cm_table_insert(&cm->tables[kind], &id->keys[kind], high, low);
}

void cm_id_unlink(struct cm *cm, struct cm_id *id, enum cm_key_kind kind)
{
	cm_table_remove(&cm->tables[kind], &id->keys[kind]);
}

/* ---- the end of an exchange ------------------------------------------------------------------ */

void cm_id_reset(struct cm *cm, struct cm_id *id)
{
	cm_request_end(cm, id);
	cm_id_unlink(cm, id, CM_BY_REMOTE);
	cm_id_unlink(cm, id, CM_BY_QPN);
	cm_id_unlink(cm, id, CM_BY_SIDR);
	cm_id_unlink(cm, id, CM_BY_PEER);
	cm_state_set(cm, id, IB_CM_IDLE);
	id->pub.lap_state = IB_CM_LAP_UNINIT;
	id->pub.remote_id = 0;
	id->reply_attr = 0;
	id->peer_to_peer = false;
	if (id->orphan)
		cm_id_bury(cm, id);
}

static void cm_orphan_end(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	if (list_empty(&id->orphaned))
		return;
	list_remove(&id->orphaned);
	cm->orphan_count--;
}

static void cm_orphan_begin(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	list_push_back(&cm->orphans, &id->orphaned);
	if (++cm->orphan_count > cm->orphans_max)
		cm_id_bury(cm, list_first(&cm->orphans, struct cm_id, orphaned));
}

void cm_id_bury(struct cm *cm, struct cm_id *id)
{
	cm_orphan_end(cm, id);
	cm_request_end(cm, id);
	for (int kind = 0; kind < CM_KEYS; kind++)
		cm_id_unlink(cm, id, (enum cm_key_kind)kind);
	list_remove(&id->ready);
	list_push_back(&cm->dead, &id->ready);
}

void cm_id_free(struct cm *cm, struct cm_id *id)
{
	cm_note_drop_all(cm, id);
	cm_request_end(cm, id);
	for (int kind = 0; kind < CM_KEYS; kind++)
		cm_id_unlink(cm, id, (enum cm_key_kind)kind);
	list_remove(&id->ready);
	list_remove(&id->masked);
	cm_will_drop(cm, id);
	cm_orphan_end(cm, id);
	list_remove(&id->all);
	cm->id_count--;
	free(id->compare);
	free(id);
}

/* ---- the end of an id ------------------------------------------------------------------------ */

/* Sends what the peer is owed: IBA vol 1, 12.9.8. */
static void cm_id_end_exchange(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	u64 guid = id->dev->ib->node_guid;

	switch (cm_farewell_of(id->pub.state)) {
	case CM_FAREWELL_WITHDRAW:
		cm_reject(cm, id, IB_CM_REJ_TIMEOUT, &guid, sizeof(guid), NULL, 0);
		break;
	case CM_FAREWELL_REFUSE:
		cm_reject(cm, id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0);
		break;
	case CM_FAREWELL_DREQ:
		if (id->pub.state == IB_CM_ESTABLISHED) /* else it is being repeated */
			cm_leave_send(cm, id, NULL, 0);
		break;
	case CM_FAREWELL_DREP:
		cm_leave_answer(cm, id, NULL, 0);
		break;
	case CM_FAREWELL_SIDR_REP:
		cm_sidr_answer(cm, id, &cm_sidr_refusal);
		break;
	case CM_FAREWELL_NONE:
		break;
	}
}

void cm_id_abandon(struct cm *cm, struct cm_id *id)
{
	cm_note_drop_all(cm, id);
	list_remove(&id->ready);
	id->orphan = true;
	if (id->pub.state == IB_CM_LISTEN)
		cm_listen_end(cm, id);
	else if (id->dev != NULL)
		cm_id_end_exchange(cm, id);
	/* a DREQ is repeated, and timewait runs on, without the consumer: none of them keeps the
	 * peer's queue pair from another connection */
	cm_id_unlink(cm, id, CM_BY_QPN);
	if (id->dev == NULL ||
	    (id->pub.state != IB_CM_DREQ_SENT && id->pub.state != IB_CM_TIMEWAIT))
		cm_id_bury(cm, id);
	else
		cm_orphan_begin(cm, id);
}

void ib_destroy_cm_id(struct ib_cm_id *cm_id)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	struct cm_device *dev;
	u64 service = be64toh(cm_id->service_id), mask = be64toh(cm_id->service_mask);
	struct ib_cm_compare_data compare;
	bool listened, compares;

	cm_peer_close(id);
	cm_enter(cm);
	dev = id->dev;
	listened = id->pub.state == IB_CM_LISTEN;
	compares = id->compare != NULL;
	if (compares)
		compare = *id->compare;
	id->waiting++;
	cm_id_abandon(cm, id);
	/* on the queue's thread no other handler runs than the one that calls here */
	while ((id->in_handler || id->children > 0) &&
	       !(cm->running && pthread_equal(cm->runner, pthread_self())))
		cond_wait(&cm->idle, &cm->lock);
	id->waiting--;
	cm_leave(cm);
	if (listened && dev != NULL && dev->ops->listen != NULL)
		dev->ops->listen(dev, service, mask, compares ? &compare : NULL, false);
}
