/* route.c: datagrams to QP1 that no process' own socket gets: REQ and SIDR_REQ, which name a
 * service only, unsolicited MADs of other classes, which are for an agent, and messages for IDs of
 * processes that are gone.
 *
 * A process that lives gets them as an event, and judges them. Nobody else will answer the others,
 * so the node does, as the CM of a process that is gone would have, and as a port without an agent.
 * In:    datagrams of any content             Out: events, datagrams
 * Runs:  the daemon's only thread             Locks: none
 * Spec:  IBA vol 1, 12.9.8 (messages for unknown IDs), 12.11 (SIDR), 13.4.7 (status)
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cm/message/message.h"
#include "daemon/daemon_priv.h"
#include "daemon/wills.h"
#include "daemon/qp1.h"
#include "node/steer.h"

enum {
	ROUTE_HOPS = 64,
	ROUTE_ECN = 3,
	ROUTE_HELD = 256,
	ROUTE_QPN = 1,
	ROUTE_PORT = 1,
	/* of MADs */
	ROUTE_GET = 1,
	ROUTE_SET = 2,
	ROUTE_GET_RESP = 0x81,
	ROUTE_STATUS = 4,	  /* where it lies */
	ROUTE_UNSUPPORTED = 0x0c, /* method and attribute: none has this combination */
};
/* Between adapters a REQ is under way for so long that a program which listens only after the
 * handshake with its peer is in time: perftest -R. So a request that finds no listener waits for
 * it, as the CM lets one wait on its own host. */
#define ROUTE_HOLD_NS (20 * NS_PER_MS)

_Static_assert((int)QP1_MAD_BYTES == (int)CM_MAD_BYTES && (int)STEER_MAD == (int)CM_MAD_BYTES,
	       "MADs have one size");

/* A REQ or SIDR_REQ for which nobody listens yet. */
struct route_request {
	struct list_head node; /* daemon.held, the oldest first */
	u64 until_ns;
	struct node_mad mad;
} OWNED_BY(the daemon);

/* Sends `answer` back to where the datagram came from. */
static bool route_send_back(struct daemon *d, const struct node_mad *in, u32 qpn,
			    const u8 answer[CM_MAD_BYTES])
{
	struct node_mad out = { .sport = NODE_UDP_PORT,
				.traffic_class = in->traffic_class & (u8)~ROUTE_ECN,
				.hop_limit = ROUTE_HOPS };

	memcpy(out.sgid, in->dgid, sizeof(out.sgid));
	memcpy(out.dgid, in->sgid, sizeof(out.dgid));
	qp1_pack(&out, 0, qpn, answer);
	if (daemon_udp_send_mad(&d->udp, &out) != 0)
		return false;
	qp1_record(&d->capture, &out, false);
	return true;
}

/* Answers for whoever is gone. False: there is nothing to say. */
static bool route_answer(struct daemon *d, const struct node_mad *in)
{
	u8 answer[CM_MAD_BYTES];
	u32 qpn;

	qp1_record(&d->capture, in, true);
	if (!qp1_judge(in, &qpn) || !msg_answer_for_gone(in->payload + QP1_MAD, answer))
		return false;
	return route_send_back(d, in, qpn, answer);
}

/* Answers a Get or Set that no agent takes, as the MAD layer of a process does. */
static bool route_refuse(struct daemon *d, const struct node_mad *in)
{
	const u8 *mad = in->payload + QP1_MAD;
	u8 answer[CM_MAD_BYTES], method = mad[STEER_METHOD];
	u32 qpn;

	qp1_record(&d->capture, in, true);
	if ((method != ROUTE_GET && method != ROUTE_SET) || mad[STEER_CLASS] == 0 ||
	    !qp1_judge(in, &qpn))
		return false;
	memcpy(answer, mad, sizeof(answer));
	answer[STEER_METHOD] = ROUTE_GET_RESP;
	answer[ROUTE_STATUS] = 0;
	answer[ROUTE_STATUS + 1] = ROUTE_UNSUPPORTED;
	return route_send_back(d, in, qpn, answer);
}

bool route_is_incomplete(struct daemon *d)
{
	return d->resuming > 0 || slots_has_absent(&d->slots);
}

void route_show(struct daemon *d)
{
	bool incomplete = route_is_incomplete(d);

	serve_slot_show(d); /* the bits of slots whose processes have ended are gone */
	/* pairs with the acquire in directory_is_incomplete */
	__atomic_store_n(&d->directory->incomplete, incomplete, __ATOMIC_RELEASE);
}

/* The process that listens for a request; NULL: none. */
static struct proc *route_listener(struct daemon *d, const struct node_mad *mad)
{
	const u8 *payload = mad->payload + QP1_MAD;
	u64 service_id, process;
	u32 slot, from = devices_have_gid(d, mad->sgid) ? steer_sender(payload) : 0;

	if (steer_mad(payload, &slot, &service_id) != STEER_BY_SERVICE ||
	    !directory_read_listener(d->directory, service_id, steer_private(payload), from, NULL,
				     &process, &slot))
		return NULL;
	return proc_find(d, process);
}

/* ---- requests that wait for their listener --------------------------------------------------- */

/* A sender of this host repeats by itself. False: the request does not wait. */
static bool route_hold(struct daemon *d, const struct node_mad *mad)
{
	struct route_request *r;
	u32 qpn;

	if (d->held_count >= ROUTE_HELD || devices_have_gid(d, mad->sgid) || !qp1_judge(mad, &qpn))
		return false;
	r = malloc(sizeof(*r));
	if (r == NULL)
		return false;
	r->until_ns = clock_now_ns() + ROUTE_HOLD_NS;
	r->mad = *mad;
	list_push_back(&d->held, &r->node);
	d->held_count++;
	return true;
}

static void route_let_go(struct daemon *d, struct route_request *r)
{
	list_remove(&r->node);
	d->held_count--;
	free(r);
}

void route_listening(struct daemon *d)
{
	list_for_each_safe(r, &d->held, struct route_request, node) {
		struct proc *p = route_listener(d, &r->mad);

		if (p == NULL)
			continue;
		(void)event_mad(p, &r->mad);
		route_let_go(d, r);
	}
}

void route_run(struct daemon *d, u64 now_ns)
{
	list_for_each_safe(r, &d->held, struct route_request, node) {
		if (r->until_ns > now_ns)
			return;
		if (!route_is_incomplete(d))
			(void)route_answer(d, &r->mad);
		route_let_go(d, r);
	}
}

u64 route_next_ns(const struct daemon *d)
{
	return list_empty(&d->held) ? UINT64_MAX
				    : list_first(&d->held, struct route_request, node)->until_ns;
}

void route_clear(struct daemon *d)
{
	list_for_each_safe(r, &d->held, struct route_request, node)
		route_let_go(d, r);
}

/* ---- which way ------------------------------------------------------------------------------- */

static bool route_to_listener(struct daemon *d, const struct node_mad *mad)
{
	struct proc *p = route_listener(d, mad);

	if (p != NULL)
		return event_mad(p, mad);
	if (route_is_incomplete(d))
		return false;
	return route_hold(d, mad) || route_answer(d, mad);
}

/* To the agent that takes the unsolicited MAD. */
static bool route_to_agent(struct daemon *d, const struct node_mad *mad)
{
	u64 process = 0;
	u32 slot;

	if (directory_read_agent(d->directory, devices_of_gid(d, mad->dgid), ROUTE_PORT, ROUTE_QPN,
				 mad->payload + QP1_MAD, &process, &slot)) {
		struct proc *p = proc_find(d, process);

		return p != NULL && event_mad(p, mad);
	}
	return !route_is_incomplete(d) && route_refuse(d, mad);
}

bool route_to_all(struct daemon *d, const struct node_mad *mad)
{
	bool any = false;

	list_for_each(p, &d->procs, struct proc, node)
		if (p->kind == PROC_ATTACHED && p->will_fd >= 0)
			any |= event_mad(p, mad);
	return any;
}

/* A process may own the slot without a socket for this address. */
static bool route_to_slot(struct daemon *d, const struct node_mad *mad, u32 slot)
{
	u64 process = slots_owner(&d->slots, slot);
	struct proc *p = proc_find(d, process);
	bool taken;

	if (steer_names_nobody(mad->payload + QP1_MAD))
		return route_to_all(d, mad);
	if (p != NULL)
		return event_mad(p, mad);
	if (process != 0)
		return false;
	taken = wills_take_answer(d, mad);
	return route_answer(d, mad) || taken;
}

bool route_datagram(void *arg, const struct node_mad *mad)
{
	static const u8 qp1[3] = { 0, 0, 1 };
	const u8 *payload = mad->payload + QP1_MAD;
	struct daemon *d = arg;
	u64 service_id;
	u32 slot;

	if (memcmp(mad->payload + 5, qp1, sizeof(qp1)) != 0)
		return false;
	switch (steer_mad(payload, &slot, &service_id)) {
	case STEER_BY_SERVICE:
		return route_to_listener(d, mad);
	case STEER_BY_SLOT:
		return route_to_slot(d, mad, slot);
	case STEER_BY_AGENT:
		return route_to_agent(d, mad);
	}
	return false;
}
