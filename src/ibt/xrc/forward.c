/* forward.c: requests of an XRC initiator on their way to the process of the SRQ that they name.
 *
 * In:    requests in sequence; the proxy's acknowledgements, answers and refusals
 * Out:   packets to the SRQ's process; resp.epsn and msn; answers to the initiator; verdicts
 * Runs:  the receiving thread; the timer    Locks: rq_lock    Spec: IBA vol 1, A14, 9.7.4.1
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ibt/block.h"
#include "ibt/receive/answer.h"
#include "ibt/xrc/forward.h"
#include "ibt/send/packet.h"
#include "ibt/lossy/rate.h"
#include "ibt/receive/opcode.h"
#include "ibt/send/portdown.h"
#include "ibt/lossy/window.h"

enum {
	FORWARD_HELD = 512,		/* requests */
	FORWARD_BYTES = 512 << 10,	/* of payload that waits here */
	FORWARD_RETRY_US = 500,		/* the way to the other process had no room */
	FORWARD_FLUSH_BYTES = 32 << 10, /* of an answer, sent together */
};

struct forward {
	struct ibt_qp *qp FIXED;
	struct timer timer GUARDS_ITSELF;
	struct path_dest *dest; /* of `slot`, with a reference; NULL: none yet */
	u32 slot;
	u32 serial; /* of the connection */
	bool open;  /* what is sent to `dest` is executed there: since HAND_OPEN no refusal came */
	bool met;   /* `dest` has a proxy of this connection */
	bool leaving; /* HAND_CLOSE is due */
	bool gap;
	u8 psn_shift;	       /* that `dest` was told */
	u32 their_psn;	       /* the next one that `dest` executes */
	u32 srqn;	       /* of the message that is in progress there; 0: none */
	struct list_head held; /* struct forward_item, in the order of their PSNs */
	u32 count, sent;
	u32 bytes; /* of all copies */
} OWNED_BY(responder.rq_lock);

static u32 forward_last_serial; /* atomic */

static struct forward *forward_of(const struct ibt_qp *qp)
{
	return qp_is_target(qp) ? xrc_conn(qp)->forward : NULL;
}

static struct forward *forward_make(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	struct forward *h = xrc_conn(qp)->forward;

	if (h != NULL)
		return h;
	h = calloc(1, sizeof(*h));
	if (h == NULL)
		return NULL;
	h->qp = qp;
	h->timer.fn = qp->ibt->forward_due;
	h->serial = __atomic_add_fetch(&forward_last_serial, 1, __ATOMIC_RELAXED);
	list_init(&h->held);
	__atomic_store_n(&xrc_conn(qp)->forward, h,
			 __ATOMIC_RELEASE); /* pairs with forward_quiesce */
	return h;
}

struct ibt_qp *forward_qp(struct timer *t)
{
	return container_of(t, struct forward, timer)->qp;
}

static void forward_arm(struct forward *h)
{
	struct ibt *ibt = h->qp->ibt;

	if (timer_arm(ibt->cfg.timers, &h->timer, clock_now_ns() + FORWARD_RETRY_US * NS_PER_US))
		ibt->cfg.kick(ibt->cfg.arg);
}

static struct forward_item *forward_first(const struct forward *h)
{
	return list_empty(&h->held) ? NULL : list_entry(h->held.next, struct forward_item, node);
}

bool forward_is_busy(const struct ibt_qp *qp)
{
	const struct forward *h = forward_of(qp);

	return h != NULL && h->count != 0;
}

bool forward_continues(const struct ibt_qp *qp, const struct pkt *p)
{
	const struct forward *h = forward_of(qp);

	return h != NULL && h->srqn != 0 && h->srqn == p->srqn;
}

/* ---- what is held ---- */

static u32 forward_psn_count(const struct ibt_qp *qp, const struct pkt *p)
{
	return p->opcode == PKT_READ_REQUEST ? packet_count(qp, (u32)p->dma_length) : 1;
}

u32 forward_next_psn(const struct ibt_qp *qp)
{
	const struct forward *h = forward_of(qp);
	const struct forward_item *last = list_entry(h->held.prev, struct forward_item, node);

	if (last->again)
		return qp->resp.epsn;
	return (last->pkt.psn + forward_psn_count(qp, &last->pkt)) & PSN_MASK;
}

void forward_note_gap(struct ibt_qp *qp)
{
	forward_of(qp)->gap = true;
}

static void forward_pop(struct forward *h, struct forward_item *item)
{
	list_remove(&item->node);
	h->count--;
	h->sent -= item->sent;
	if (item->payload == item->copy)
		h->bytes -= item->pkt.length;
}

void forward_drop(struct ibt_qp *qp)
{
	struct forward *h = forward_of(qp);
	struct forward_item *item;

	while (h != NULL && (item = forward_first(h)) != NULL) {
		forward_pop(h, item);
		free(item);
	}
	if (h != NULL)
		h->open = h->gap = false;
}

static struct forward_item *forward_add(struct forward *h, const struct pkt *p, const void *payload)
{
	struct forward_item *item;

	if (h->count >= FORWARD_HELD)
		return NULL;
	item = calloc(1, sizeof(*item));
	if (item == NULL)
		return NULL;
	item->pkt = *p;
	item->payload = payload;
	list_push_back(&h->held, &item->node);
	h->count++;
	return item;
}

bool forward_hold(struct ibt_qp *qp, const struct pkt *p, const void *payload)
{
	struct forward *h = forward_make(qp);

	if (h != NULL && forward_add(h, p, payload) == NULL)
		h->gap = true;
	return h != NULL;
}

void forward_settle(struct ibt_qp *qp)
{
	struct forward *h = forward_of(qp);
	struct forward_item *item, *kept = NULL;

	if (h == NULL || h->count == 0)
		return;
	item = list_entry(h->held.prev, struct forward_item, node);
	if (item->sent || item->payload == item->copy)
		return;
	list_remove(&item->node);
	if (h->bytes + item->pkt.length <= FORWARD_BYTES)
		kept = malloc(sizeof(*kept) + item->pkt.length);
	if (kept != NULL) {
		*kept = *item;
		memcpy(kept->copy, item->payload, item->pkt.length);
		kept->payload = kept->copy;
		h->bytes += item->pkt.length;
		list_push_back(&h->held, &kept->node);
	} else {
		h->count--;
		h->gap = true;
	}
	free(item);
}

/* ---- to the other process ---- */

static int forward_send_open(struct ibt_qp *qp, struct forward *h, u32 srqn)
	REQUIRES(qp->resp.rq_lock)
{
	struct forward_open open = { .xrcd = xrc_conn(qp)->xrcd,
				     .serial = h->serial,
				     .initiator = qp->dest_qpn,
				     .psn_shift = qp->psn_shift,
				     .resources = (u8)MIN(qp->resp.resource_count,
							  (u32)IBT_MAX_RD_ATOMIC) };
	struct iovec iov = { .iov_base = &open, .iov_len = sizeof(open) };
	struct pkt p = { .opcode = PKT_FORWARD_OPEN,
			 .qp_type = PKT_TYPE_FORWARDED,
			 .dqpn = srqn,
			 .sqpn = qp->qpn,
			 .psn = qp->resp.epsn,
			 .length = sizeof(open) };
	int err = h->dest->path->ops->send(h->dest, &p, &iov, 1);

	if (err != 0)
		return err;
	h->open = h->met = true;
	h->leaving = false;
	h->psn_shift = qp->psn_shift;
	h->their_psn = p.psn;
	return 0;
}

static void forward_send_close(struct ibt_qp *qp, struct forward *h) REQUIRES(qp->resp.rq_lock)
{
	struct pkt p = { .opcode = PKT_FORWARD_CLOSE,
			 .qp_type = PKT_TYPE_FORWARDED,
			 .dqpn = h->slot << IBT_INDEX_BITS,
			 .sqpn = qp->qpn };
	int err = h->dest->path->ops->send(h->dest, &p, NULL, 0);

	h->leaving = err == -EAGAIN;
	if (err == 0)
		h->dest->path->ops->flush(h->dest);
	else if (h->leaving)
		forward_arm(h);
}

static void forward_put_dest(struct forward *h)
{
	if (h->dest != NULL)
		h->dest->path->ops->dest_put(h->dest);
	h->dest = NULL;
	h->open = h->met = h->leaving = false;
}

/* The process with that slot. False: no memory. */
static bool forward_turn_to(struct ibt_qp *qp, struct forward *h, u32 slot)
{
	static const struct path_av none;
	struct path *path = qp->ibt->paths[0];

	if (h->dest != NULL && h->slot == slot)
		return true;
	forward_put_dest(h);
	h->dest = path->ops->dest_get(path, &none, slot << IBT_INDEX_BITS);
	h->slot = slot;
	return h->dest != NULL;
}

static int forward_send(struct ibt_qp *qp, struct forward *h, struct forward_item *item)
	REQUIRES(qp->resp.rq_lock)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)item->payload,
			     .iov_len = item->pkt.length };
	struct pkt p = item->pkt;
	int err;

	if (!forward_turn_to(qp, h, p.srqn >> IBT_INDEX_BITS))
		return -EPIPE;
	/* It knows nothing of what others have executed meanwhile. */
	if (h->sent == 0 && (h->psn_shift != qp->psn_shift || h->their_psn != qp->resp.epsn))
		h->open = false;
	if (!h->open && (err = forward_send_open(qp, h, p.srqn)) != 0)
		return err;
	p.dqpn = p.srqn;
	p.sqpn = qp->qpn;
	p.srqn = 0;
	p.qp_type = PKT_TYPE_FORWARDED;
	p.flags = (u8)((p.flags & (PKT_SOLICITED | PKT_UNREACHED)) | PKT_ACK_REQUEST);
	if (item->answered != 0) {
		p.psn = (p.psn + (item->answered >> qp->psn_shift)) & PSN_MASK;
		p.va += item->answered;
		p.dma_length -= item->answered;
	}
	err = h->dest->path->ops->send(h->dest, &p, &iov, p.length != 0);
	if (err == 0) {
		h->sent += !item->sent;
		item->sent = true;
		if (!item->again)
			h->their_psn = (item->pkt.psn + forward_psn_count(qp, &item->pkt)) &
				       PSN_MASK;
	}
	return err;
}

/* What the target itself refuses: all that needs no key and no SRQ. IBA vol 1, 9.7.4.1. */
static enum resp_verdict forward_judge(const struct ibt_qp *qp, const struct forward_item *item)
	REQUIRES(qp->resp.rq_lock)
{
	const struct pkt *p = &item->pkt;
	u8 op = opcode_ops[p->opcode];
	bool begins = (op & (OP_WRITE | OP_FIRST)) == (OP_WRITE | OP_FIRST), atomic;
	u32 right = 0;

	if (op == 0 || !opcode_has_size(qp, p) || p->opcode > PKT_SEND_ONLY_INV)
		return RESP_NAK_INVALID;
	if (opcode_is_pulled(qp, p))
		return RESP_NAK_PULL;
	atomic = p->opcode == PKT_COMPARE_SWAP || p->opcode == PKT_FETCH_ADD;
	if ((begins || p->opcode == PKT_READ_REQUEST) && p->dma_length > IBT_MAX_MESSAGE)
		return RESP_NAK_INVALID;
	if (begins && p->dma_length != 0)
		right = IBV_ACCESS_REMOTE_WRITE;
	else if (p->opcode == PKT_READ_REQUEST && p->dma_length != 0)
		right = IBV_ACCESS_REMOTE_READ;
	else if (atomic)
		right = IBV_ACCESS_REMOTE_ATOMIC;
	if (atomic && p->va % 8 != 0)
		return RESP_NAK_INVALID;
	return (qp->access & right) == right ? RESP_OK : RESP_NAK_ACCESS;
}

/* The path says why it takes nothing. */
static enum resp_verdict forward_failed(struct forward *h, int err)
{
	if (err == -EAGAIN) {
		forward_arm(h);
		return RESP_DROP;
	}
	/* What was sent before ends when the death is noticed. */
	if (h->sent != 0)
		return RESP_DROP;
	forward_put_dest(h);
	return RESP_NAK_INVALID;
}

/* One request that is not on its way. RESP_OK: it is now; RESP_ELSEWHERE: it is for this process;
 * RESP_DROP: it must wait. */
static enum resp_verdict forward_step(struct ibt_qp *qp, struct forward *h,
				      struct forward_item *item) REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict = item->again ? RESP_OK : forward_judge(qp, item);
	const struct forward_item *before;
	int err;

	if (h->sent == 0 && verdict == RESP_OK && qp->resp.message != 0 &&
	    h->srqn != item->pkt.srqn && xrc_is_foreign(qp, item->pkt.srqn))
		verdict = RESP_NAK_INVALID;
	if (verdict != RESP_OK)
		return h->sent != 0 ? RESP_DROP : verdict;
	if (!xrc_is_foreign(qp, item->pkt.srqn))
		return h->sent != 0 ? RESP_DROP : RESP_ELSEWHERE;
	if (h->sent != 0) {
		before = list_entry(item->node.prev, struct forward_item, node);
		if (item->pkt.srqn >> IBT_INDEX_BITS != h->slot ||
		    (opcode_ops[before->pkt.opcode] & OP_ANSWERED) != 0)
			return RESP_DROP;
	}
	err = forward_send(qp, h, item);
	return err == 0 ? RESP_OK : forward_failed(h, err);
}

enum resp_verdict forward_run(struct ibt_qp *qp, struct forward_item **here)
{
	struct forward *h = forward_of(qp);
	enum resp_verdict verdict = RESP_OK;
	bool sent = false;

	if (h == NULL)
		return RESP_DROP;
	forward_say_end(qp);
	list_for_each_safe(item, &h->held, struct forward_item, node) {
		if (item->sent)
			continue;
		verdict = forward_step(qp, h, item);
		if (verdict == RESP_ELSEWHERE) {
			forward_pop(h, item);
			*here = item;
			return RESP_OK;
		}
		if (verdict != RESP_OK)
			break;
		sent = true;
	}
	if (sent)
		h->dest->path->ops->flush(h->dest);
	if (verdict != RESP_OK && verdict != RESP_DROP) {
		forward_drop(qp);
		return verdict;
	}
	if (h->count == 0 && h->gap) {
		h->gap = false;
		return RESP_NAK_SEQUENCE;
	}
	return RESP_DROP;
}

/* ---- what the other process says ---- */

/* The proxy has executed the oldest request. */
static void forward_complete(struct ibt_qp *qp, struct forward *h, struct forward_item *item)
	REQUIRES(qp->resp.rq_lock)
{
	u8 op = opcode_ops[item->pkt.opcode];

	if (!item->again) {
		qp->resp.epsn = (qp->resp.epsn + forward_psn_count(qp, &item->pkt)) & PSN_MASK;
		qp->resp.nak_sent = false;
		qp->resp.message = op & OP_LAST ? 0 : qp->resp.message | (op & OP_MESSAGE);
		h->srqn = qp->resp.message != 0 ? item->pkt.srqn : 0;
		__atomic_store_n(&qp->counters->received_bytes,
				 qp->counters->received_bytes + item->pkt.length, __ATOMIC_RELAXED);
	}
	if (!item->again && (op & (OP_LAST | OP_ANSWERED)) != 0) {
		qp->resp.msn = (qp->resp.msn + 1) & PSN_MASK;
		__atomic_store_n(&qp->counters->received, qp->counters->received + 1,
				 __ATOMIC_RELAXED);
	}
	forward_pop(h, item);
	free(item);
}

/* It has executed everything up to `psn`, but what it answers has its answer first. */
static bool forward_confirm(struct ibt_qp *qp, struct forward *h, u32 psn)
	REQUIRES(qp->resp.rq_lock)
{
	struct forward_item *item;
	bool any = false;

	while ((item = forward_first(h)) != NULL && item->sent &&
	       psn_ahead(psn, item->pkt.psn) >= 0 &&
	       (opcode_ops[item->pkt.opcode] & OP_ANSWERED) == 0) {
		forward_complete(qp, h, item);
		any = true;
	}
	return any;
}

static void forward_fill_answer(struct ibt_qp *qp, const struct forward_item *item,
				const struct pkt *p, struct pkt *out) REQUIRES(qp->resp.rq_lock)
{
	bool first = item->answered == 0, last = item->answered + p->length == item->pkt.dma_length;

	*out = (struct pkt){ .opcode = p->opcode == PKT_ATOMIC_ACK ? PKT_ATOMIC_ACK
								   : opcode_of_answer(first, last),
			     .qp_type = qp->packet_type,
			     .syndrome = AETH_ACK,
			     .dqpn = qp->dest_qpn,
			     .sqpn = qp->qpn,
			     .psn = p->psn,
			     .msn = (qp->resp.msn + !item->again) & PSN_MASK,
			     .length = p->length,
			     .swap = p->swap };
}

/* Sends a part of an answer on. 0, -EAGAIN; else it is as good as sent. */
static int forward_pass_on(struct ibt_qp *qp, const struct forward_item *item, const struct pkt *p,
			   const void *payload) REQUIRES(qp->resp.rq_lock)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)payload, .iov_len = p->length };
	struct pkt out;
	int err;

	if (!answer_pump(qp) ||
	    (qp->resp.answer_rate != NULL && p->length != 0 && rate_answer_must_wait(qp)))
		return -EAGAIN;
	forward_fill_answer(qp, item, p, &out);
	err = portdown_answer(qp, &out, &iov, p->length != 0);
	if (err == -EAGAIN) {
		block_wait(qp, qp->dest);
		err = portdown_answer(qp, &out, &iov, p->length != 0);
	}
	if (err == 0 && qp->resp.answer_rate != NULL)
		rate_charge_answer(qp, window_cost(1, p->length));
	qp->resp.has_answered |= p->length != 0;
	return err;
}

/* Is it the next part of the answer to the oldest request? */
static bool forward_awaits(const struct ibt_qp *qp, const struct forward_item *item,
			   const struct pkt *p)
{
	bool read = item->pkt.opcode == PKT_READ_REQUEST;
	u32 rest = (u32)item->pkt.dma_length - item->answered;

	if ((opcode_ops[item->pkt.opcode] & OP_ANSWERED) == 0 || !item->sent || item->stalled ||
	    read != (p->opcode != PKT_ATOMIC_ACK) ||
	    p->psn != ((item->pkt.psn + (item->answered >> qp->psn_shift)) & PSN_MASK))
		return false;
	return p->length == (read ? MIN(rest, qp_packet_bytes(qp)) : 0);
}

static bool forward_answered(struct ibt_qp *qp, struct forward *h, const struct pkt *p,
			     const void *payload) REQUIRES(qp->resp.rq_lock)
{
	bool any = forward_confirm(qp, h, (p->psn - 1) & PSN_MASK), last;
	struct forward_item *item = forward_first(h);

	if (item == NULL || !forward_awaits(qp, item, p))
		return any;
	if (forward_pass_on(qp, item, p, payload) == -EAGAIN) {
		item->stalled = true;
		return any;
	}
	item->answered += p->length;
	last = p->opcode == PKT_ATOMIC_ACK || item->answered == item->pkt.dma_length;
	if (last || item->answered % FORWARD_FLUSH_BYTES < p->length)
		qp->dest->path->ops->flush(qp->dest);
	if (last)
		forward_complete(qp, h, item);
	return any;
}

/* There is no answer that could come again; its initiator will ask once more. */
static void forward_forget_again(struct forward *h, struct forward_item *item)
{
	forward_pop(h, item);
	free(item);
	h->open = false;
}

/* The proxy refuses the oldest request. */
static enum resp_verdict forward_refused(struct ibt_qp *qp, struct forward *h, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	static const u8 verdicts[] = { [NAK_PSN_SEQUENCE] = RESP_NAK_SEQUENCE,
				       [NAK_INVALID_REQUEST] = RESP_NAK_INVALID,
				       [NAK_REMOTE_ACCESS] = RESP_NAK_ACCESS,
				       [NAK_REMOTE_OPERATION] = RESP_NAK_OPERATION };
	struct forward_item *item = forward_first(h);
	u8 code = p->syndrome & 31;

	if (item == NULL || !item->sent ||
	    ((p->psn - item->pkt.psn) & PSN_MASK) >= forward_psn_count(qp, &item->pkt))
		return RESP_DROP;
	if (item->again) {
		forward_forget_again(h, item);
		return RESP_DROP;
	}
	forward_drop(qp);
	if ((p->syndrome & 0xe0) == AETH_RNR)
		return RESP_RNR;
	return code < ARRAY_LEN(verdicts) ? (enum resp_verdict)verdicts[code] : RESP_NAK_OPERATION;
}

enum resp_verdict forward_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
				  const void *payload, bool *done)
{
	struct forward *h = forward_of(qp);

	*done = false;
	if (h == NULL || h->dest == NULL || qp->dest == NULL || !qp_receives(qp) ||
	    !path_is_from(h->dest, from) ||
	    (p->qp_type & PKT_DONE_SERIAL) != (h->serial & PKT_DONE_SERIAL))
		return RESP_DROP;
	switch (p->opcode) {
	case PKT_ACK:
		if ((p->syndrome & 0xe0) == 0) {
			*done = forward_confirm(qp, h, p->psn);
			return RESP_DROP;
		}
		*done = forward_confirm(qp, h, (p->psn - 1) & PSN_MASK);
		return forward_refused(qp, h, p);
	case PKT_READ_FIRST:
	case PKT_READ_MIDDLE:
	case PKT_READ_LAST:
	case PKT_READ_ONLY:
	case PKT_ATOMIC_ACK:
		*done = forward_answered(qp, h, p, payload);
		return RESP_DROP;
	case PKT_ABSENT: /* it has no such answer any more */
		if (forward_is_busy(qp) && forward_first(h)->again && forward_first(h)->sent)
			forward_forget_again(h, forward_first(h));
		return RESP_DROP;
	default:
		return RESP_DROP;
	}
}

bool forward_repeat(struct ibt_qp *qp, const struct pkt *p)
{
	struct forward *h = forward_of(qp);
	struct forward_item *item;

	if (h == NULL || h->count != 0 || qp->resp.message != 0 || qp->resp.owed != RESP_OK ||
	    !xrc_is_foreign(qp, p->srqn) ||
	    (p->opcode == PKT_READ_REQUEST && p->dma_length > IBT_MAX_MESSAGE))
		return false;
	item = forward_add(h, p, NULL);
	if (item == NULL)
		return false;
	item->again = true;
	item->pkt.length = 0;
	item->payload = item->copy;
	return true;
}

void forward_resume(struct ibt_qp *qp)
{
	struct forward *h = forward_of(qp);
	struct forward_item *item = h == NULL ? NULL : forward_first(h);
	int err;

	if (item == NULL || !item->stalled)
		return;
	err = forward_send(qp, h, item);
	if (err == 0) {
		item->stalled = false;
		h->dest->path->ops->flush(h->dest);
	} else {
		(void)forward_failed(h, err);
	}
}

/* ---- ends ---- */

enum resp_verdict forward_peer_died(struct ibt_qp *qp, struct path_dest *dest)
{
	struct forward *h = forward_of(qp);
	bool had;

	if (h == NULL || h->dest == NULL || !path_is_from(h->dest, dest))
		return RESP_DROP;
	had = h->sent != 0 && !forward_first(h)->again;
	if (h->sent != 0)
		forward_drop(qp);
	forward_put_dest(h);
	return had && qp_receives(qp) ? RESP_NAK_OPERATION : RESP_DROP;
}

void forward_stop(struct ibt_qp *qp)
{
	struct forward *h = forward_of(qp);

	if (h == NULL)
		return;
	forward_drop(qp);
	h->srqn = 0;
	h->serial = __atomic_add_fetch(&forward_last_serial, 1, __ATOMIC_RELAXED);
	if (h->met)
		forward_send_close(qp, h);
	h->met = false;
}

void forward_say_end(struct ibt_qp *qp)
{
	struct forward *h = forward_of(qp);

	if (h->leaving)
		forward_send_close(qp, h);
}

bool forward_is_leaving(const struct ibt_qp *qp)
{
	const struct forward *h = forward_of(qp);

	return h != NULL && h->leaving;
}

void forward_quiesce(struct ibt_qp *qp)
{
	/* pairs with forward_make */
	struct forward *h = qp_is_target(qp)
				    ? __atomic_load_n(&xrc_conn(qp)->forward, __ATOMIC_ACQUIRE)
				    : NULL;

	if (h == NULL)
		return;
	lock_acquire(&qp->resp.rq_lock);
	h->leaving = false; /* so that the timer is not armed again */
	lock_release(&qp->resp.rq_lock);
	timer_cancel_wait(qp->ibt->cfg.timers, &h->timer);
}

void forward_free(struct ibt_qp *qp, bool orphan) NO_THREAD_SAFETY /* nobody else has it any more */
{
	struct forward *h = forward_of(qp);

	if (h == NULL)
		return;
	forward_drop(qp);
	if (!orphan)
		forward_put_dest(h);
	xrc_conn(qp)->forward = NULL;
	free(h);
}
