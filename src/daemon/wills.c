/* wills.c: sends the wills of processes that have died.
 *
 * To a process of this node a will goes as an event, like a datagram of another host; elsewhere by
 * the UDP socket of its source address; of a process on a host of the fabric, from its port through
 * the fabric. A DREQ is repeated until the DREP comes back, which the kernel steers to the node,
 * for the slot is nobody's; what has no answer is sent a few times. All wills of a process go once,
 * then all again after a pause, in bursts between which the loop turns.
 * In:    files of any content, datagrams to nobody    Out: events, datagrams
 * Runs:  the daemon's only thread                     Locks: none
 * Spec:  IBA vol 1, 12.9.8
 */
#include "daemon/wills.h"

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
#define WILLS_FIRST_NS (10 * NS_PER_MS)
#define WILLS_PAUSE_NS (100 * NS_PER_MS)
#define WILLS_LONGEST_NS (1600 * NS_PER_MS)
/* A local receiver that has no room gets so long in a round, and is looked at so often. */
#define WILLS_ROOM_NS (200 * NS_PER_MS)
#define WILLS_LOOK_NS (2 * NS_PER_MS)

enum {
	WILLS_TRIES_DREQ = 7, /* to another host: the last one after five seconds */
	WILLS_TRIES = 3,
	WILLS_TRIES_REJ = 1, /* nothing is lost on this node; a second could meet a new request */
	WILLS_PIECE = 64,    /* slots read at a time */
	WILLS_QPN = 1,
};

/* ---- judging --------------------------------------------------------------------------------- */

/* Only messages that end something, and only in the name of the process: its slot is in its ID. A
 * SIDR_REP has no ID of its sender, nor has a REJ that refuses a REQ before it got an id. */
static bool wills_judge_mad(const struct daemon *d, u64 process, const struct cm_msg *msg,
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
static bool wills_judge_way(const struct daemon *d, u64 process, struct dead_will *w)
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

bool wills_judge(const struct daemon *d, u64 process, const struct will_slot *slot,
		 struct dead_will *out)
{
	u8 mad[CM_MAD_BYTES] = { 0 };
	struct cm_msg msg;

	if (slot->word != 1 && slot->word != 2)
		return false;
	*out = (struct dead_will){ .will = slot->half[slot->word - 1] };
	memcpy(mad, out->will.mad, sizeof(out->will.mad));
	if (!msg_unpack(&msg, mad, sizeof(mad)) ||
	    !wills_judge_mad(d, process, &msg, &out->local_id) || !wills_judge_way(d, process, out))
		return false;
	out->tries_left = msg.attr == CM_DREQ && !out->local ? WILLS_TRIES_DREQ
			  : msg.attr == CM_REJ && out->local ? WILLS_TRIES_REJ
							     : WILLS_TRIES;
	return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void wills_free(struct daemon *d, struct dead_process *e)
{
	d->wills_count -= e->count;
	list_remove(&e->node);
	free(e->wills);
	free(e);
}

/* False: no memory, or too many. */
static bool wills_append(struct daemon *d, struct dead_process *e, u32 *space,
			 const struct dead_will *w)
{
	u32 wanted = *space == 0 ? WILLS_PIECE : 2 * *space;
	struct dead_will *grown;

	if (d->wills_count >= WILLS_TOTAL)
		return false;
	if (e->count == *space) {
		grown = realloc(e->wills, wanted * sizeof(*grown));
		if (grown == NULL)
			return false;
		e->wills = grown;
		*space = wanted;
	}
	e->wills[e->count++] = *w;
	d->wills_count++;
	return true;
}

static void wills_read(struct proc *p, struct dead_process *e)
{
	static struct will_slot slots[WILLS_PIECE];
	u32 used = will_used(p->will_fd), space = 0;
	struct dead_will w;

	for (u32 i = 0; i < used; i += WILLS_PIECE) {
		off_t at = (off_t)(offsetof(struct will_file, slots) + i * sizeof(slots[0]));

		if (pread(p->will_fd, slots, sizeof(slots), at) != (ssize_t)sizeof(slots))
			return;
		for (u32 k = 0; k < WILLS_PIECE && i + k < used; k++) {
			if (wills_judge(p->daemon, p->process, &slots[k], &w) &&
			    !wills_append(p->daemon, e, &space, &w)) {
				log_warn("node", "too many wills: some are not sent");
				return;
			}
		}
	}
}

static int wills_compare(const void *a, const void *b)
{
	const struct dead_will *x = a, *y = b;

	return (x->local_id > y->local_id) - (x->local_id < y->local_id);
}

void wills_open(struct proc *p)
{
	struct dead_process *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return;
	e->process = p->process;
	e->next_ns = clock_now_ns() + WILLS_FIRST_NS;
	e->pause_ns = WILLS_PAUSE_NS;
	list_push_back(&p->daemon->wills, &e->node);
	wills_read(p, e);
	if (e->count == 0) {
		wills_free(p->daemon, e);
		return;
	}
	qsort(e->wills, e->count, sizeof(*e->wills), wills_compare);
	log_debug("node", "process %llu has left %u wills", (unsigned long long)e->process,
		  e->count);
}

void wills_discard(struct daemon *d, u64 process)
{
	list_for_each_safe(e, &d->wills, struct dead_process, node)
		if (e->process == process)
			wills_free(d, e);
}

void wills_clear(struct daemon *d)
{
	list_for_each_safe(e, &d->wills, struct dead_process, node)
		wills_free(d, e);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Who sends a DREQ himself has left as well. */
static bool wills_answers(const struct cm_msg *msg, u32 *local_id)
{
	if (msg->attr != CM_DREP && msg->attr != CM_DREQ)
		return false;
	*local_id = msg->attr == CM_DREP ? msg->drep.remote_id : msg->dreq.remote_id;
	return *local_id != 0;
}

/* Does it come from where the will goes? `in` NULL: it has come to the fabric's `port`. */
static bool wills_comes_back(const struct node_will *w, const struct node_mad *in, u32 port)
{
	return in == NULL ? w->port == port
			  : w->port == 0 && memcmp(w->dgid, in->sgid, sizeof(in->sgid)) == 0;
}

static bool wills_take(struct daemon *d, const u8 *mad, const struct node_mad *in, u32 port)
{
	struct dead_will key = { .tries_left = 0 };
	struct cm_msg msg;
	bool taken = false;

	if (!msg_unpack(&msg, mad, CM_MAD_BYTES) || !wills_answers(&msg, &key.local_id))
		return false;
	list_for_each(e, &d->wills, struct dead_process, node) {
		struct dead_will *w = bsearch(&key, e->wills, e->count, sizeof(*w), wills_compare);

		if (w == NULL || !wills_comes_back(&w->will, in, port))
			continue;
		w->tries_left = 0;
		taken = true;
	}
	return taken;
}

bool wills_take_answer(struct daemon *d, const struct node_mad *mad)
{
	u32 qpn;

	return !list_empty(&d->wills) && qp1_judge(mad, &qpn) &&
	       wills_take(d, mad->payload + QP1_MAD, mad, 0);
}

bool wills_take_fabric_answer(struct daemon *d, u32 port, const u8 *mad)
{
	return wills_take(d, mad, NULL, port);
}

/* ---- sending --------------------------------------------------------------------------------- */

enum wills_result { WILLS_SENT, WILLS_NO_ROOM, WILLS_NOBODY };

/* To the process whose slot the peer's ID names, or to all, if a REJ names nobody. */
static enum wills_result wills_send_local(struct daemon *d, const struct node_mad *m)
{
	u64 service_id, process;
	struct proc *p;
	u32 slot;

	if (steer_names_nobody(m->payload + QP1_MAD))
		return route_to_all(d, m) ? WILLS_SENT : WILLS_NO_ROOM;
	if (steer_mad(m->payload + QP1_MAD, &slot, &service_id) != STEER_BY_SLOT)
		return WILLS_NOBODY;
	process = slots_owner(&d->slots, slot);
	p = proc_find(d, process);
	if (p == NULL) /* or it has not come back to this node yet */
		return process == 0 ? WILLS_NOBODY : WILLS_NO_ROOM;
	return event_mad(p, m) ? WILLS_SENT : WILLS_NO_ROOM;
}

static enum wills_result wills_send_by_gid(struct daemon *d, const struct dead_will *w)
{
	struct node_mad m = { .sport = NODE_UDP_PORT,
			      .traffic_class = w->will.traffic_class,
			      .hop_limit = w->will.hop_limit };
	u8 mad[CM_MAD_BYTES] = { 0 };
	int err;

	memcpy(m.sgid, w->will.sgid, sizeof(m.sgid));
	memcpy(m.dgid, w->will.dgid, sizeof(m.dgid));
	memcpy(mad, w->will.mad, sizeof(w->will.mad));
	qp1_pack(&m, w->will.pkey, WILLS_QPN, mad);
	if (w->local)
		return wills_send_local(d, &m);
	err = daemon_udp_send_mad(&d->udp, &m);
	if (err == 0)
		qp1_record(&d->capture, &m, false);
	/* one that the kernel refuses for good is lost, as on the way */
	return err == -EAGAIN || err == -ENOBUFS ? WILLS_NO_ROOM : WILLS_SENT;
}

static enum wills_result wills_send(struct daemon *d, const struct dead_will *w)
{
	if (w->will.port != 0)
		return madchannel_send_will(d, &w->will) ? WILLS_SENT : WILLS_NOBODY;
	return wills_send_by_gid(d, w);
}

/* Tells whether to wait until there is room; else the will is passed over in this round. */
static bool wills_waits_for_room(struct dead_process *e, u64 now_ns)
{
	if (e->refused_ns == 0)
		e->refused_ns = now_ns;
	return now_ns - e->refused_ns < WILLS_ROOM_NS;
}

/* False: there is no room, and the burst is over. */
static bool wills_send_next(struct daemon *d, struct dead_process *e, u64 now_ns)
{
	struct dead_will *w = &e->wills[e->cursor];

	switch (wills_send(d, w)) {
	case WILLS_SENT:
		w->tries_left--;
		e->refused_ns = 0;
		break;
	case WILLS_NOBODY:
		w->tries_left = 0;
		break;
	case WILLS_NO_ROOM:
		if (wills_waits_for_room(e, now_ns))
			return false;
	}
	e->cursor++;
	return true;
}

/* True: another round follows. */
static bool wills_end_round(struct dead_process *e, u64 now_ns)
{
	u32 i = 0;

	while (i < e->count && e->wills[i].tries_left == 0)
		i++;
	e->cursor = i;
	e->refused_ns = 0;
	e->next_ns = now_ns + e->pause_ns;
	e->pause_ns = MIN(2 * e->pause_ns, WILLS_LONGEST_NS);
	return i < e->count && ++e->rounds < WILLS_ROUNDS;
}

static void wills_send_burst(struct daemon *d, struct dead_process *e, u64 now_ns)
{
	for (u32 sent = 0; e->cursor < e->count && sent < WILLS_BURST;) {
		if (e->wills[e->cursor].tries_left == 0) {
			e->cursor++;
			continue;
		}
		sent++;
		if (!wills_send_next(d, e, now_ns)) {
			e->next_ns = now_ns + WILLS_LOOK_NS;
			return;
		}
	}
	if (e->cursor == e->count && !wills_end_round(e, now_ns))
		wills_free(d, e);
}

void wills_run(struct daemon *d, u64 now_ns)
{
	list_for_each_safe(e, &d->wills, struct dead_process, node)
		if (e->next_ns <= now_ns)
			wills_send_burst(d, e, now_ns);
}

u64 wills_next_ns(const struct daemon *d)
{
	u64 next = UINT64_MAX;

	list_for_each(e, &d->wills, struct dead_process, node)
		next = MIN(next, e->next_ns);
	return next;
}
