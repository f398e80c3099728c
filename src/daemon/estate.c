/* estate.c: sends the wills of processes that have died.
 *
 * To a process of this node a will goes as an event, like a datagram of another host; elsewhere by
 * the UDP socket of its source address; of a process on a host of the fabric, from its port through
 * the fabric. A DREQ is repeated until the DREP comes back, which the
 * kernel steers to the node, for the slot is nobody's; what has no answer is sent a few times. All
 * of an estate go once, then all again after a pause, in bursts between which the loop turns.
 * In:    files of any content, datagrams to nobody    Out: events, datagrams
 * Runs:  the daemon's only thread                     Locks: none
 * Spec:  IBA vol 1, 12.9.8
 */
#include "daemon/estate.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cm/message/message.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/qp1.h"
#include "node/steer.h"
#include "wire/roce.h"

/* What the process itself had sent comes before its will. */
#define ESTATE_FIRST_NS (10 * NS_PER_MS)
#define ESTATE_PAUSE_NS (100 * NS_PER_MS)
#define ESTATE_LONGEST_NS (1600 * NS_PER_MS)
/* A local receiver that has no room gets so long in a round, and is looked at so often. */
#define ESTATE_ROOM_NS (200 * NS_PER_MS)
#define ESTATE_LOOK_NS (2 * NS_PER_MS)

enum {
	ESTATE_TRIES_DREQ = 7, /* to another host: the last one after six seconds */
	ESTATE_TRIES = 3,
	ESTATE_TRIES_REJ = 1, /* on this node nothing is lost, and the peer may ask anew */
	ESTATE_PIECE = 64,    /* slots read at a time */
	ESTATE_QPN = 1,
};

/* ---- judging --------------------------------------------------------------------------------- */

/* Only messages that end something, and only in the name of the process: its slot is in its ID.
 * Some have no ID of their sender. */
static bool estate_judge_mad(const struct daemon *d, u64 process, const struct cm_msg *msg,
			     u32 *local_id)
{
	switch (msg->attr) {
	case CM_REJ:
		*local_id = msg->rej.local_id;
		break;
	case CM_DREQ:
		*local_id = msg->dreq.local_id;
		break;
	case CM_DREP:
		*local_id = msg->drep.local_id;
		break;
	case CM_SIDR_REP:
		*local_id = 0;
		return msg->sidr_rep.status != 0;
	default:
		return false;
	}
	if (*local_id == 0)
		return msg->attr == CM_REJ;
	return slots_owner(&d->slots, *local_id >> STEER_SLOT_SHIFT) == process;
}

/* May it be sent the way that it names, in the name of the process? */
static bool estate_judge_way(const struct daemon *d, u64 process, struct estate_will *w)
{
	const struct node_will *will = &w->will;

	if (will->port != 0)
		return will->dlid != 0 && will->dlid < FABRIC_MLID_FIRST &&
		       madchannel_was_at(d, process, will->port);
	if (will->pkey != ROCE_PKEY_DEFAULT || !devices_have_gid(d, will->sgid) ||
	    node_is_mcast(will->dgid))
		return false;
	w->local = devices_have_gid(d, will->dgid);
	return true;
}

bool estate_judge(const struct daemon *d, u64 process, const struct will_slot *slot,
		  struct estate_will *out)
{
	u8 mad[CM_MAD_BYTES] = { 0 };
	struct cm_msg msg;

	if (slot->word != 1 && slot->word != 2)
		return false;
	*out = (struct estate_will){ .will = slot->half[slot->word - 1] };
	memcpy(mad, out->will.mad, sizeof(out->will.mad));
	if (!msg_unpack(&msg, mad, sizeof(mad)) ||
	    !estate_judge_mad(d, process, &msg, &out->local_id) ||
	    !estate_judge_way(d, process, out))
		return false;
	out->tries_left = msg.attr == CM_DREQ && !out->local ? ESTATE_TRIES_DREQ
			  : msg.attr == CM_REJ && out->local ? ESTATE_TRIES_REJ
							     : ESTATE_TRIES;
	return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void estate_free(struct daemon *d, struct estate *e)
{
	d->estate_wills -= e->count;
	list_remove(&e->node);
	free(e->wills);
	free(e);
}

/* False: no memory, or too many. */
static bool estate_append(struct daemon *d, struct estate *e, u32 *space,
			  const struct estate_will *w)
{
	u32 wanted = *space == 0 ? ESTATE_PIECE : 2 * *space;
	struct estate_will *grown;

	if (d->estate_wills >= ESTATE_WILLS)
		return false;
	if (e->count == *space) {
		grown = realloc(e->wills, wanted * sizeof(*grown));
		if (grown == NULL)
			return false;
		e->wills = grown;
		*space = wanted;
	}
	e->wills[e->count++] = *w;
	d->estate_wills++;
	return true;
}

static void estate_read(struct proc *p, struct estate *e)
{
	static struct will_slot slots[ESTATE_PIECE];
	u32 used = will_used(p->will_fd), space = 0;
	struct estate_will w;

	for (u32 i = 0; i < used; i += ESTATE_PIECE) {
		off_t at = (off_t)(offsetof(struct will_file, slots) + i * sizeof(slots[0]));

		if (pread(p->will_fd, slots, sizeof(slots), at) != (ssize_t)sizeof(slots))
			return;
		for (u32 k = 0; k < ESTATE_PIECE && i + k < used; k++) {
			if (estate_judge(p->daemon, p->process, &slots[k], &w) &&
			    !estate_append(p->daemon, e, &space, &w)) {
				log_warn("node", "too many wills: some are not sent");
				return;
			}
		}
	}
}

static int estate_compare(const void *a, const void *b)
{
	const struct estate_will *x = a, *y = b;

	return (x->local_id > y->local_id) - (x->local_id < y->local_id);
}

void estate_open(struct proc *p)
{
	struct estate *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return;
	e->process = p->process;
	e->next_ns = clock_now_ns() + ESTATE_FIRST_NS;
	e->pause_ns = ESTATE_PAUSE_NS;
	list_push_back(&p->daemon->estates, &e->node);
	estate_read(p, e);
	if (e->count == 0) {
		estate_free(p->daemon, e);
		return;
	}
	qsort(e->wills, e->count, sizeof(*e->wills), estate_compare);
	log_debug("node", "process %llu has left %u wills", (unsigned long long)e->process,
		  e->count);
}

void estate_discard(struct daemon *d, u64 process)
{
	list_for_each_safe(e, &d->estates, struct estate, node)
		if (e->process == process)
			estate_free(d, e);
}

void estate_clear(struct daemon *d)
{
	list_for_each_safe(e, &d->estates, struct estate, node)
		estate_free(d, e);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Who sends a DREQ himself has left as well. */
static bool estate_answers(const struct cm_msg *msg, u32 *local_id)
{
	if (msg->attr != CM_DREP && msg->attr != CM_DREQ)
		return false;
	*local_id = msg->attr == CM_DREP ? msg->drep.remote_id : msg->dreq.remote_id;
	return *local_id != 0;
}

/* Does it come from where the will goes? `in` NULL: it has come to the fabric's `port`. */
static bool estate_comes_back(const struct node_will *w, const struct node_mad *in, u32 port)
{
	return in == NULL ? w->port == port
			  : w->port == 0 && memcmp(w->dgid, in->sgid, sizeof(in->sgid)) == 0;
}

static bool estate_take(struct daemon *d, const u8 *mad, const struct node_mad *in, u32 port)
{
	struct estate_will key = { .tries_left = 0 };
	struct cm_msg msg;
	bool taken = false;

	if (!msg_unpack(&msg, mad, CM_MAD_BYTES) || !estate_answers(&msg, &key.local_id))
		return false;
	list_for_each(e, &d->estates, struct estate, node) {
		struct estate_will *w = bsearch(&key, e->wills, e->count, sizeof(*w),
						estate_compare);

		if (w == NULL || !estate_comes_back(&w->will, in, port))
			continue;
		w->tries_left = 0;
		taken = true;
	}
	return taken;
}

bool estate_take_answer(struct daemon *d, const struct node_mad *mad)
{
	u32 qpn;

	return !list_empty(&d->estates) && qp1_judge(mad, &qpn) &&
	       estate_take(d, mad->payload + QP1_MAD, mad, 0);
}

bool estate_take_fabric_answer(struct daemon *d, u32 port, const u8 *mad)
{
	return estate_take(d, mad, NULL, port);
}

/* ---- sending --------------------------------------------------------------------------------- */

enum estate_result { ESTATE_SENT, ESTATE_NO_ROOM, ESTATE_NOBODY };

/* To the process whose slot the peer's ID names. */
static enum estate_result estate_send_local(struct daemon *d, const struct node_mad *m)
{
	u64 service_id, process;
	struct proc *p;
	u32 slot;

	if (steer_names_nobody(m->payload + QP1_MAD))
		return route_to_all(d, m) ? ESTATE_SENT : ESTATE_NO_ROOM;
	if (steer_mad(m->payload + QP1_MAD, &slot, &service_id) != STEER_BY_SLOT)
		return ESTATE_NOBODY;
	process = slots_owner(&d->slots, slot);
	p = proc_find(d, process);
	if (p == NULL) /* or it has not come back to this node yet */
		return process == 0 ? ESTATE_NOBODY : ESTATE_NO_ROOM;
	return event_mad(p, m) ? ESTATE_SENT : ESTATE_NO_ROOM;
}

static enum estate_result estate_send_by_gid(struct daemon *d, const struct estate_will *w)
{
	struct node_mad m = { .sport = NODE_UDP_PORT,
			      .traffic_class = w->will.traffic_class,
			      .hop_limit = w->will.hop_limit };
	u8 mad[CM_MAD_BYTES] = { 0 };
	int err;

	memcpy(m.sgid, w->will.sgid, sizeof(m.sgid));
	memcpy(m.dgid, w->will.dgid, sizeof(m.dgid));
	memcpy(mad, w->will.mad, sizeof(w->will.mad));
	qp1_pack(&m, w->will.pkey, ESTATE_QPN, mad);
	if (w->local)
		return estate_send_local(d, &m);
	err = daemon_udp_send_mad(&d->udp, &m);
	if (err == 0)
		qp1_record(&d->capture, &m, false);
	/* one that the kernel refuses for good is lost, as on the way */
	return err == -EAGAIN || err == -ENOBUFS ? ESTATE_NO_ROOM : ESTATE_SENT;
}

static enum estate_result estate_send(struct daemon *d, const struct estate_will *w)
{
	if (w->will.port != 0)
		return madchannel_send_will(d, &w->will) ? ESTATE_SENT : ESTATE_NOBODY;
	return estate_send_by_gid(d, w);
}

/* Tells whether to wait until there is room; else the will is passed over in this round. */
static bool estate_waits_for_room(struct estate *e, u64 now_ns)
{
	if (e->refused_ns == 0)
		e->refused_ns = now_ns;
	return now_ns - e->refused_ns < ESTATE_ROOM_NS;
}

/* False: there is no room, and the burst is over. */
static bool estate_send_next(struct daemon *d, struct estate *e, u64 now_ns)
{
	struct estate_will *w = &e->wills[e->cursor];

	switch (estate_send(d, w)) {
	case ESTATE_SENT:
		w->tries_left--;
		e->refused_ns = 0;
		break;
	case ESTATE_NOBODY:
		w->tries_left = 0;
		break;
	case ESTATE_NO_ROOM:
		if (estate_waits_for_room(e, now_ns))
			return false;
	}
	e->cursor++;
	return true;
}

/* True: the estate goes on. */
static bool estate_end_round(struct estate *e, u64 now_ns)
{
	u32 i = 0;

	while (i < e->count && e->wills[i].tries_left == 0)
		i++;
	e->cursor = i;
	e->refused_ns = 0;
	e->next_ns = now_ns + e->pause_ns;
	e->pause_ns = MIN(2 * e->pause_ns, ESTATE_LONGEST_NS);
	return i < e->count && ++e->rounds < ESTATE_ROUNDS;
}

static void estate_send_burst(struct daemon *d, struct estate *e, u64 now_ns)
{
	for (u32 sent = 0; e->cursor < e->count && sent < ESTATE_BURST;) {
		if (e->wills[e->cursor].tries_left == 0) {
			e->cursor++;
			continue;
		}
		sent++;
		if (!estate_send_next(d, e, now_ns)) {
			e->next_ns = now_ns + ESTATE_LOOK_NS;
			return;
		}
	}
	if (e->cursor == e->count && !estate_end_round(e, now_ns))
		estate_free(d, e);
}

void estate_run(struct daemon *d, u64 now_ns)
{
	list_for_each_safe(e, &d->estates, struct estate, node)
		if (e->next_ns <= now_ns)
			estate_send_burst(d, e, now_ns);
}

u64 estate_next_ns(const struct daemon *d)
{
	u64 next = UINT64_MAX;

	list_for_each(e, &d->estates, struct estate, node)
		next = MIN(next, e->next_ns);
	return next;
}
