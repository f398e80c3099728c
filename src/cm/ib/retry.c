/* retry.c: what an id sends again, and when: requests, answers, timewait.
 * In: requests, answers, deadlines    Out: MADs; the failure of a request
 * Runs: any thread; deadlines on the instance's queue    Locks: cm.lock    Spec: IBA vol 1, 12.9.8
 */
#include <string.h>

#include "cm/ib/cm_priv.h"

/* Between adapters a REQ is under way for a millisecond. Programs count on it: the server of
 * perftest's -R listens only after the handshake that lets its client connect, and the client does
 * not survive a rejection. On one host a REQ takes a tenth of that, so there it waits for its
 * listener. */
enum { CM_EARLY_TRIES = 20 };
#define CM_EARLY_NS NS_PER_MS

u64 cm_exponent_ns(u8 exponent)
{
	return 4096ull << (exponent & 31);
}

u64 cm_request_timeout(u8 exponent)
{
	return MIN(MAX(cm_exponent_ns(exponent), (u64)CM_TIMEOUT_MIN_NS), (u64)CM_TIMEOUT_MAX_NS);
}

u8 cm_request_retries(u64 timeout_ns, u8 retries)
{
	return (u8)MIN((u64)retries, CM_HOLD_NS / timeout_ns - 1);
}

/* ---- the deadline ---------------------------------------------------------------------------- */

static void cm_deadline_set(struct cm *cm, struct cm_id *id, u64 ns) REQUIRES(&cm->lock)
{
	u64 at = clock_now_ns() + ns;

	id->armed = true;
	id->early = false;
	if (timer_arm(&cm->timers, &id->timer, at))
		work_push_at(&cm->alarm, at);
}

static void cm_deadline_clear(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	if (id->armed)
		timer_cancel(&cm->timers, &id->timer);
	id->armed = false;
}

void cm_alarm(struct work *w)
{
	struct cm *cm = container_of(w, struct cm, alarm);
	u64 next;

	timer_run(&cm->timers, clock_now_ns());
	cm_enter(cm);
	next = timer_next_ns(&cm->timers);
	if (next != TIMER_NEVER)
		work_push_at(&cm->alarm, next);
	cm_leave(cm);
}

/* ---- requests -------------------------------------------------------------------------------- */

void cm_request_start(struct cm *cm, struct cm_id *id, const struct cm_msg *msg, u64 timeout_ns,
		      u8 retries)
{
	msg_pack(msg, id->request);
	id->timeout_ns = timeout_ns;
	id->tries_left = retries;
	id->early_left = CM_EARLY_TRIES;
	cm_request_repeat(cm, id);
	cm_deadline_set(cm, id, timeout_ns);
}

void cm_request_repeat(struct cm *cm, struct cm_id *id)
{
	cm_queue(cm, id->dev, &id->av.route, id->request);
}

void cm_request_end(struct cm *cm, struct cm_id *id)
{
	cm_deadline_clear(cm, id);
}

void cm_request_extend(struct cm *cm, struct cm_id *id, u64 timeout_ns)
{
	cm_deadline_set(cm, id, timeout_ns);
}

bool cm_request_again(struct cm *cm, struct cm_id *id, const struct cm_received *r)
{
	if (id->early_left == 0 || !cm_gid_is_own(cm, &r->a->sgid))
		return false;
	id->early_left--;
	cm_deadline_set(cm, id, CM_EARLY_NS);
	id->early = true;
	return true;
}

/* ---- answers --------------------------------------------------------------------------------- */

void cm_reply_keep(struct cm *cm, struct cm_id *id, const struct cm_msg *msg)
{
	(void)cm;
	msg_pack(msg, id->reply);
	id->reply_attr = msg->attr;
}

void cm_reply_send(struct cm *cm, struct cm_id *id, const struct cm_msg *msg)
{
	cm_reply_keep(cm, id, msg);
	cm_queue(cm, id->dev, &id->av.route, id->reply);
}

void cm_reply_repeat(struct cm *cm, struct cm_id *id, enum cm_attr attr)
{
	if (id->reply_attr == attr)
		cm_queue(cm, id->dev, &id->av.route, id->reply);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* Packets of the connection may be under way for so long. The peer, whose queue pair it is, judges
 * whether that may be connected anew. */
void cm_timewait_enter(struct cm *cm, struct cm_id *id)
{
	cm_request_end(cm, id);
	cm_id_unlink(cm, id, CM_BY_QPN);
	cm_state_set(cm, id, IB_CM_TIMEWAIT);
	id->pub.lap_state = IB_CM_LAP_UNINIT;
	cm_deadline_set(cm, id, MIN(cm_exponent_ns(id->av.timeout), (u64)CM_TIMEWAIT_MAX_NS));
}

static void cm_timewait_exit(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	struct cm_note *note = cm_note_create(cm, id, IB_CM_TIMEWAIT_EXIT);

	cm_id_reset(cm, id);
	cm_note_post(cm, id, note);
}

static void cm_error_post(struct cm *cm, struct cm_id *id, enum ib_cm_event_type type)
	REQUIRES(&cm->lock)
{
	struct cm_note *note = cm_note_create(cm, id, type);

	if (note != NULL)
		note->event.param.send_status = IB_WC_RESP_TIMEOUT_ERR;
	cm_note_post(cm, id, note);
}

/* No answer after all retries. */
static void cm_request_fail(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	cm_tally(cm, CM_FAILED);
	switch (id->pub.state) {
	case IB_CM_REQ_SENT:
	case IB_CM_MRA_REQ_RCVD:
		cm_error_post(cm, id, IB_CM_REQ_ERROR);
		cm_reject_for_timeout(cm, id);
		cm_id_reset(cm, id);
		break;
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
		cm_error_post(cm, id, IB_CM_REP_ERROR);
		cm_reject_for_timeout(cm, id);
		cm_id_reset(cm, id);
		break;
	case IB_CM_DREQ_SENT:
		cm_error_post(cm, id, IB_CM_DREQ_ERROR);
		cm_timewait_enter(cm, id);
		break;
	case IB_CM_SIDR_REQ_SENT:
		cm_error_post(cm, id, IB_CM_SIDR_REQ_ERROR);
		cm_id_reset(cm, id);
		break;
	case IB_CM_ESTABLISHED:
		cm_error_post(cm, id, IB_CM_LAP_ERROR);
		id->pub.lap_state = IB_CM_LAP_IDLE;
		break;
	default:
		break;
	}
}

void cm_timer(struct timer *t)
{
	struct cm_id *id = container_of(t, struct cm_id, timer);
	struct cm *cm = id->cm;

	cm_enter(cm);
	/* it may have been cleared, or moved, since it was due */
	if (id->armed && t->place == 0) {
		id->armed = false;
		if (id->pub.state == IB_CM_TIMEWAIT) {
			cm_timewait_exit(cm, id);
		} else if (id->early || id->tries_left > 0) {
			id->tries_left -= !id->early;
			cm_tally(cm, CM_RESENT);
			cm_request_repeat(cm, id);
			cm_deadline_set(cm, id, id->timeout_ns);
		} else {
			cm_request_fail(cm, id);
		}
	}
	cm_leave(cm);
}
