/* proxy.c: executes requests that XRC targets of other processes have taken.
 *
 * A proxy is a queue pair that no number finds and no consumer sees: a target whose peer is the
 * real one. The real target counts the PSNs, so a proxy begins where PKT_FORWARD_OPEN says, and
 * after a refusal it executes nothing until the next one.
 *
 * In:    requests of a target, and what it tells of its connection
 * Out:   registered memory, receive completions; acknowledgements, answers, refusals
 * Runs:  the receiving thread    Locks: the proxy's rq_lock, then SRQ and CQ locks
 * Spec:  IBA vol 1, A14
 */
#include <errno.h>
#include <stdlib.h>

#include "base/line.h"
#include "ibt/receive/answer.h"
#include "ibt/block.h"
#include "ibt/xrc/forward.h"
#include "ibt/xrc/proxy.h"
#include "ibt/receive/recv_queue.h"
#include "ibt/receive/refuse.h"
#include "ibt/receive/responder.h"
#include "ibt/xrc/xrc.h"

enum {
	PROXY_SWEEP = 64, /* proxies from which on idle ones are looked for */
	PROXY_MAX = 2048, /* of the targets of one process */
};

static struct list_head *proxy_bucket(struct ibt *ibt, u32 qpn)
{
	if (ibt->proxies != NULL)
		return &ibt->proxies[qpn % IBT_PROXY_BUCKETS];
	ibt->proxies = malloc(IBT_PROXY_BUCKETS * sizeof(*ibt->proxies));
	for (u32 i = 0; ibt->proxies != NULL && i < IBT_PROXY_BUCKETS; i++)
		list_init(&ibt->proxies[i]);
	return ibt->proxies == NULL ? NULL : &ibt->proxies[qpn % IBT_PROXY_BUCKETS];
}

static struct xrc_conn *proxy_find(struct ibt *ibt, const struct path_dest *from, u32 qpn)
{
	struct list_head *bucket = ibt->proxies == NULL ? NULL : proxy_bucket(ibt, qpn);

	if (bucket != NULL)
		list_for_each(c, bucket, struct xrc_conn, node)
			if (c->qp->qpn == qpn && c->qp->dest == from)
				return c;
	return NULL;
}

/* ---- life ---- */

static void proxy_free(struct ibt_qp *qp) NO_THREAD_SAFETY /* nobody else has it any more */
{
	free(qp->resp.resources);
	xrc_conn_free(qp);
	free(qp);
}

static void proxy_destroy(struct ibt *ibt, struct xrc_conn *c)
{
	struct ibt_qp *qp = c->qp;

	list_remove(&c->node);
	ibt->proxy_count--;
	lock_acquire(&qp->resp.rq_lock);
	rq_flush(qp);
	lock_release(&qp->resp.rq_lock);
	list_remove(&qp->resp.ack_node);
	lock_acquire(&qp->req.sq_lock);
	block_leave(qp);
	lock_release(&qp->req.sq_lock);
	qp->dest->path->ops->dest_put(qp->dest);
	proxy_free(qp);
}

/* Those of targets that do not exist any more. */
static void proxy_sweep(struct ibt *ibt)
{
	for (u32 b = 0; b < IBT_PROXY_BUCKETS; b++)
		list_for_each_safe(c, &ibt->proxies[b], struct xrc_conn, node)
			if (!c->qp->dest->path->ops->holds(c->qp->dest, c->qp->qpn,
							       IBV_QPT_XRC_RECV))
				proxy_destroy(ibt, c);
	ibt->proxy_sweep = 2 * ibt->proxy_count + PROXY_SWEEP;
}

static struct ibt_qp *proxy_alloc(struct ibt *ibt, struct path_dest *from, u32 qpn)
	NO_THREAD_SAFETY /* not reachable yet */
{
	struct ibt_qp *qp = line_alloc(sizeof(*qp));

	if (qp == NULL)
		return NULL;
	qp->ibt = ibt;
	qp->qpn = qp->dest_qpn = qpn;
	qp->traits = TRAIT_CONNECTED | TRAIT_RELIABLE | TRAIT_TARGET | TRAIT_PROXY;
	qp->resp.marked = true;
	qp->access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	qp->state = IBV_QPS_RTR;
	qp->takes = QP_TAKES_WATCHED - 1; /* no type's; the port is the target's */
	list_init(&qp->resp.ack_node);
	list_init(&qp->blocked_node);
	list_init(&qp->req.place.node);
	if (xrc_conn_create(qp) != 0) {
		free(qp);
		return NULL;
	}
	qp->counters = &xrc_conn(qp)->counters;
	from->path->ops->dest_hold(from);
	qp->dest = from;
	return qp;
}

/* Has the process as many as it may? They are counted only if all processes have as many. */
static bool proxy_is_crowded(struct ibt *ibt, const struct path_dest *from)
{
	u32 count = 0;

	if (likely(ibt->proxy_count < PROXY_MAX))
		return false;
	for (u32 b = 0; b < IBT_PROXY_BUCKETS; b++)
		list_for_each(c, &ibt->proxies[b], struct xrc_conn, node)
			count += c->qp->dest == from;
	return count >= PROXY_MAX;
}

/* NULL: no memory, or too many. */
static struct xrc_conn *proxy_create(struct ibt *ibt, struct path_dest *from, u32 qpn)
{
	struct list_head *bucket = proxy_bucket(ibt, qpn);
	struct ibt_qp *qp;

	if (bucket == NULL)
		return NULL;
	if (ibt->proxy_count >= MAX(ibt->proxy_sweep, (u32)PROXY_SWEEP))
		proxy_sweep(ibt);
	if (proxy_is_crowded(ibt, from)) {
		path_count(from->path, COUNT_RX_REFUSED);
		return NULL;
	}
	qp = proxy_alloc(ibt, from, qpn);
	if (qp == NULL)
		return NULL;
	list_push_back(bucket, &xrc_conn(qp)->node);
	ibt->proxy_count++;
	return xrc_conn(qp);
}

/* ---- what the target says ---- */

/* Room for the answers of another connection, which is empty. */
static bool proxy_make_room(struct ibt_qp *qp, u32 count) REQUIRES(qp->resp.rq_lock)
{
	struct resp_resource *r = count == 0 ? NULL : calloc(count, sizeof(*r));

	if (count != 0 && r == NULL)
		return false;
	free(qp->resp.resources);
	qp->resp.resources = r;
	qp->resp.resource_count = count;
	qp->resp.resource_head = qp->resp.resource_next = 0;
	return true;
}

/* False: no memory. */
static bool proxy_begin(struct ibt_qp *qp, const struct forward_open *open, u32 psn)
	REQUIRES(qp->resp.rq_lock)
{
	struct xrc_conn *c = xrc_conn(qp);
	bool fresh = c->serial != open->serial || qp->resp.resource_count != open->resources;

	if (fresh && !proxy_make_room(qp, open->resources))
		return false;
	/* The rest of a message comes after a refusal, and then with the PSN that was refused. */
	if (fresh || psn != qp->resp.epsn)
		rq_flush(qp);
	c->xrcd = open->xrcd;
	c->serial = open->serial;
	c->initiator = open->initiator & PSN_MASK;
	qp->packet_type = (u8)(PKT_TYPE_DONE | (open->serial & PKT_DONE_SERIAL));
	qp->psn_shift = open->psn_shift;
	qp->resp.epsn = psn;
	qp->resp.owed = RESP_OK;
	qp->resp.after = 0;
	c->open = true;
	return true;
}

/* There is no proxy to say it. */
static void proxy_refuse(struct path_dest *from, const struct pkt *p, u32 serial)
{
	struct pkt nak = { .opcode = PKT_ACK,
			   .qp_type = (u8)(PKT_TYPE_DONE | (serial & PKT_DONE_SERIAL)),
			   .syndrome = AETH_NAK | NAK_REMOTE_OPERATION,
			   .dqpn = p->sqpn,
			   .sqpn = p->sqpn,
			   .psn = p->psn };

	if (from->path->ops->send(from, &nak, NULL, 0) == 0)
		from->path->ops->flush(from);
}

/* A domain of this process alone is reached by its own targets only, and nothing but a target hands
 * requests on. */
static bool proxy_may_open(const struct path_dest *from, u32 qpn, const struct forward_open *open)
{
	return open->xrcd >= IBT_XRC_SHARED &&
	       from->path->ops->holds(from, qpn, IBV_QPT_XRC_RECV);
}

static void proxy_open(struct ibt *ibt, struct path_dest *from, const struct pkt *p,
		       const void *payload)
{
	struct xrc_conn *c = proxy_find(ibt, from, p->sqpn);
	struct forward_open open;
	struct ibt_qp *qp;
	bool began = false;

	if (p->length != sizeof(open)) {
		path_count(from->path, COUNT_RX_MALFORMED);
		return;
	}
	memcpy(&open, payload, sizeof(open));
	if (open.psn_shift < 8 || open.psn_shift > 14 || open.resources > IBT_MAX_RD_ATOMIC) {
		path_count(from->path, COUNT_RX_MALFORMED);
		return;
	}
	if (!proxy_may_open(from, p->sqpn, &open)) {
		path_count(from->path, COUNT_RX_REFUSED);
		c = NULL;
	} else if (c == NULL) {
		c = proxy_create(ibt, from, p->sqpn);
	}
	if (c != NULL) {
		qp = c->qp;
		lock_acquire(&qp->resp.rq_lock);
		began = proxy_begin(qp, &open, p->psn);
		lock_release(&qp->resp.rq_lock);
	}
	if (!began)
		proxy_refuse(from, p, open.serial);
}

/* It was executed before, and its answer is wanted again. */
static void proxy_repeat(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock)
{
	if (qp->resp.owed != RESP_OK || answer_duplicate(qp, p))
		return;
	qp->resp.owed = RESP_GONE;
	qp->resp.owed_psn = p->psn;
}

/* The verdict on the next request. */
static enum resp_verdict proxy_execute(struct ibt_qp *qp, struct path_dest *from,
				       const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict;
	struct pkt named = *p;

	named.srqn = p->dqpn;
	if ((p->flags & (PKT_PULL | PKT_PLACED | PKT_HAS_GRH)) != 0)
		return RESP_NAK_INVALID;
	verdict = xrc_select(qp, &named);
	if (verdict == RESP_OK)
		verdict = resp_execute(qp, from, &named, payload);
	/* The completion found no room. */
	if (rq_after(qp) != 0)
		verdict = RESP_NAK_OPERATION;
	return verdict == RESP_ELSEWHERE ? RESP_NAK_INVALID : verdict;
}

static void proxy_request(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			  const void *payload) REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict;
	s32 ahead = psn_ahead(p->psn, qp->resp.epsn);

	if (ahead != 0 || qp->resp.owed != RESP_OK) {
		if (ahead < 0)
			proxy_repeat(qp, p);
		else
			path_count(from->path, COUNT_RX_PSN);
		return;
	}
	verdict = proxy_execute(qp, from, p, payload);
	if (verdict == RESP_OK) {
		resp_acknowledge(qp, from, p);
		return;
	}
	refuse_note(qp, verdict);
	xrc_conn(qp)->open = false;
	if (verdict != RESP_RNR)
		rq_flush(qp);
}

void proxy_receive(struct ibt *ibt, struct path_dest *from, const struct pkt *p,
		   const void *payload)
{
	enum resp_verdict verdict;
	struct xrc_conn *c;
	struct ibt_qp *qp;

	if (from->path != ibt->paths[0] || p->opcode == PKT_FORWARD_OPEN) {
		if (from->path == ibt->paths[0])
			proxy_open(ibt, from, p, payload);
		return;
	}
	c = proxy_find(ibt, from, p->sqpn);
	if (c == NULL) {
		path_count(from->path, COUNT_RX_NO_QP);
		return;
	}
	if (p->opcode == PKT_FORWARD_CLOSE) {
		proxy_destroy(ibt, c);
		return;
	}
	if (!c->open) {
		path_count(from->path, COUNT_RX_PSN);
		return;
	}
	qp = c->qp;
	lock_acquire(&qp->resp.rq_lock);
	proxy_request(qp, from, p, payload);
	if (qp->resp.owed != RESP_OK)
		(void)refuse_tell(qp, &verdict);
	lock_release(&qp->resp.rq_lock);
}

void proxy_peer_died(struct ibt *ibt, const struct path_dest *dest)
{
	for (u32 b = 0; ibt->proxies != NULL && b < IBT_PROXY_BUCKETS; b++)
		list_for_each_safe(c, &ibt->proxies[b], struct xrc_conn, node)
			if (c->qp->dest == dest)
				proxy_destroy(ibt, c);
}

void proxy_free_all(struct ibt *ibt)
{
	for (u32 b = 0; ibt->proxies != NULL && b < IBT_PROXY_BUCKETS; b++)
		list_for_each_safe(c, &ibt->proxies[b], struct xrc_conn, node)
			proxy_free(c->qp);
	free(ibt->proxies);
}
