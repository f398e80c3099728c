/* will.c: the will of an id: the MAD that ends its exchange with the peer if this process dies
 * without a word. It is what ib_destroy_cm_id would send in the id's state. The node sends it.
 *
 * A step of the CM may go through several states; what counts is the last one, so wills are written
 * when the step ends, before its MADs leave: a peer that knows of a state has a will for it.
 * In:   changes of state    Out: calls of ops->will
 * Runs: any thread          Locks: cm.lock    Spec: IBA vol 1, 12.9.8
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

enum { CM_WILLS_FIRST = 64 };

const struct ib_cm_sidr_rep_param cm_sidr_refusal = { .status = IB_SIDR_REJECT };

enum cm_farewell cm_farewell_of(enum ib_cm_state state)
{
	switch (state) {
	case IB_CM_REQ_SENT:
	case IB_CM_MRA_REQ_RCVD:
		return CM_FAREWELL_WITHDRAW;
	case IB_CM_REQ_RCVD:
	case IB_CM_MRA_REQ_SENT:
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
	case IB_CM_REP_RCVD:
	case IB_CM_MRA_REP_SENT:
		return CM_FAREWELL_REFUSE;
	case IB_CM_ESTABLISHED:
	case IB_CM_DREQ_SENT: /* it may be lost still */
		return CM_FAREWELL_DREQ;
	case IB_CM_DREQ_RCVD:
		return CM_FAREWELL_DREP;
	case IB_CM_SIDR_REQ_RCVD:
		return CM_FAREWELL_SIDR_REP;
	default:
		return CM_FAREWELL_NONE;
	}
}

/* The message; false: the peer is owed nothing, or has not heard of the id yet. */
static bool cm_will_of(const struct cm_id *id, struct cm_msg *msg)
{
	u64 guid = id->dev->ib->node_guid;

	switch (cm_farewell_of(id->pub.state)) {
	case CM_FAREWELL_WITHDRAW:
		*msg = cm_rej_for(id, IB_CM_REJ_TIMEOUT, &guid, sizeof(guid));
		return true;
	case CM_FAREWELL_REFUSE:
		*msg = cm_rej_for(id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0);
		return true;
	case CM_FAREWELL_DREQ:
		*msg = cm_dreq_for(id);
		return true;
	case CM_FAREWELL_DREP:
		*msg = cm_drep_for(id);
		return true;
	case CM_FAREWELL_SIDR_REP:
		*msg = cm_sidr_rep_for(id, &cm_sidr_refusal);
		return true;
	case CM_FAREWELL_NONE:
		break;
	}
	return false;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static bool cm_will_slots_grow(struct cm_will_slots *s)
{
	u32 space = s->space == 0 ? CM_WILLS_FIRST : 2 * s->space;
	u32 *grown = realloc(s->free, space * sizeof(*grown));

	if (grown == NULL)
		return false;
	s->free = grown;
	s->space = space;
	return true;
}

/* False: no memory, and no will. */
static bool cm_will_take_slot(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	struct cm_will_slots *s = &cm->wills;

	if (id->will != 0)
		return true;
	if (s->free_count > 0) {
		id->will = s->free[--s->free_count];
		return true;
	}
	if (s->next == s->space && !cm_will_slots_grow(s)) {
		cm_tally(cm, CM_DROP_MEMORY);
		return false;
	}
	id->will = ++s->next;
	return true;
}

static void cm_will_clear(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	if (id->will == 0)
		return;
	id->dev->ops->will(id->dev, id->will - 1, NULL, NULL, NULL);
	cm->wills.free[cm->wills.free_count++] = id->will;
	id->will = 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

void cm_will_renew(struct cm *cm, struct cm_id *id)
{
	if (list_empty(&id->changed))
		list_push_back(&cm->changed, &id->changed);
}

void cm_state_set(struct cm *cm, struct cm_id *id, enum ib_cm_state state)
{
	id->pub.state = state;
	cm_will_renew(cm, id);
}

static struct mad_connection cm_will_connection(const struct cm_id *id)
{
	return (struct mad_connection){
		.service_id = be64toh(id->pub.service_id),
		.local_id = be32toh(id->pub.local_id),
		.remote_id = be32toh(id->pub.remote_id),
		.local_qpn = id->local_qpn,
		.remote_qpn = id->remote_qpn,
		.state = (u8)id->pub.state,
		.passive = id->passive,
	};
}

static void cm_will_write(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	struct mad_connection connection;
	u8 mad[CM_MAD_BYTES];
	struct cm_msg msg;

	if (id->dev == NULL || id->dev->ops->will == NULL)
		return;
	if (!cm_will_of(id, &msg)) {
		cm_will_clear(cm, id);
	} else if (cm_will_take_slot(cm, id)) {
		msg_pack(&msg, mad);
		connection = cm_will_connection(id);
		id->dev->ops->will(id->dev, id->will - 1, &id->av.route, mad, &connection);
	}
}

void cm_will_write_all(struct cm *cm)
{
	struct list_head *link;

	while ((link = list_pop_front(&cm->changed)) != NULL)
		cm_will_write(cm, list_entry(link, struct cm_id, changed));
}

void cm_will_drop(struct cm *cm, struct cm_id *id)
{
	list_remove(&id->changed);
	cm_will_clear(cm, id);
}
