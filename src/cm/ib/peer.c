/* peer.c: two ends that ask each other for the same service, and of whose REQs one connection is
 * made. Between two processes of one node, which both listen on the service, a REQ goes to the one
 * that has not sent it.
 * In: REQs, ids that ask peer to peer    Out: the id that a REQ meets; what the node steers here
 * Runs: any thread    Locks: cm.lock, not across the node    Spec: IBA vol 1, 12.10.4
 */
#include <string.h>

#include "cm/ib/cm_priv.h"

/* ---- the node -------------------------------------------------------------------------------- */

/* Takes the service that is made known for the id, if there is one, off it. */
static bool cm_peer_take(struct cm_id *id, struct cm_device **dev, u64 *service_id)
{
	struct cm *cm = id->cm;
	bool known;

	cm_enter(cm);
	known = id->peer_known && id->dev != NULL && id->dev->ops->listen != NULL;
	id->peer_known = false;
	*dev = id->dev;
	*service_id = id->peer_service;
	cm_leave(cm);
	return known;
}

void cm_peer_close(struct cm_id *id)
{
	struct cm_device *dev;
	u64 service_id;

	if (cm_peer_take(id, &dev, &service_id))
		(void)dev->ops->listen(dev, service_id, UINT64_MAX, NULL, false);
}

int cm_peer_open(struct cm_id *id, u64 service_id)
{
	struct cm *cm = id->cm;
	struct cm_device *dev;
	int err = 0;

	cm_peer_close(id); /* of a request before */
	cm_enter(cm);
	dev = id->dev;
	cm_leave(cm);
	if (dev != NULL && dev->ops->listen != NULL)
		err = dev->ops->listen(dev, service_id, UINT64_MAX, NULL, true);
	if (err != 0)
		return err;
	cm_enter(cm);
	id->peer_known = true;
	id->peer_service = service_id;
	cm_leave(cm);
	return 0;
}

/* ---- REQs that cross ------------------------------------------------------------------------- */

bool cm_peer_goes_first(const struct cm_id *id, const struct cm_req_msg *m)
{
	u64 guid = be64toh(id->dev->ib->node_guid);

	if (m->local_ca_guid != guid)
		return m->local_ca_guid > guid;
	return m->local_qpn > id->local_qpn;
}

/* An id's own REQ, which the node has steered back to it. */
static bool cm_peer_is_itself(const struct cm_id *id, const struct cm_req_msg *m)
{
	return m->local_ca_guid == be64toh(id->dev->ib->node_guid) &&
	       m->local_id == be32toh(id->pub.local_id);
}

struct cm_id *cm_peer_find(struct cm *cm, const struct cm_received *r)
{
	const struct cm_req_msg *m = &r->msg->req;
	struct cm_key *key = cm_table_find(&cm->tables[CM_BY_PEER], 0, m->service_id);

	for (; key != NULL; key = cm_table_next(key)) {
		if (key->id->dev == r->dev && !cm_peer_is_itself(key->id, m) &&
		    memcmp(key->id->primary_path.dgid.raw, m->primary.local_gid, 16) == 0 &&
		    (key->id->pub.state == IB_CM_REQ_SENT ||
		     key->id->pub.state == IB_CM_MRA_REQ_RCVD))
			return key->id;
	}
	return NULL;
}
