/* answer.c: the responder's READs and atomics: executed in order, answered when the path has room,
 * kept for duplicates.
 * In: requests in sequence, and duplicates    Out: registered memory, answers
 * Runs: the receiving thread    Locks: rq_lock    Spec: IBA vol 1, 9.4.4, 9.4.5, 9.7.5.1
 */
#include <errno.h>

#include "base/clock.h"
#include "ibt/receive/answer.h"
#include "ibt/block.h"
#include "ibt/receive/opcode.h"
#include "ibt/send/packet.h"
#include "ibt/lossy/rate.h"
#include "ibt/send/portdown.h"
#include "ibt/lossy/window.h"

enum {
	ANSWER_DISTRUST = 4, /* times that one is repeated: then the path is to help */
	ANSWER_ASKED_MS = 5, /* between two that count */
};

static struct resp_resource *answer_slot(struct ibt_qp *qp, u32 index) REQUIRES(qp->resp.rq_lock)
{
	return &qp->resp.resources[index % qp->resp.resource_count];
}

/* A peer that respects max_rd_atomic requests one more when it has the oldest response: a
 * repetition of that one can be dropped. */
static bool answer_has_place(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	if (qp->resp.resource_head - qp->resp.resource_next < qp->resp.resource_count)
		return true;
	if (qp->resp.resource_count == 0 || !answer_slot(qp, qp->resp.resource_next)->answered)
		return false;
	qp->resp.resource_next++;
	return true;
}

static struct resp_resource *answer_new(struct ibt_qp *qp, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	struct resp_resource *r;

	if (!answer_has_place(qp))
		return NULL;
	r = answer_slot(qp, qp->resp.resource_head);
	*r = (struct resp_resource){ .opcode = p->opcode,
				     .psn = p->psn,
				     .psn_count = 1,
				     .rkey = p->rkey,
				     .pd = qp->pd,
				     .va = p->va,
				     .length = (u32)p->dma_length,
				     .end = (u32)p->dma_length,
				     .unreached = (p->flags & PKT_UNREACHED) != 0 };
	return r;
}

static void answer_accept(struct ibt_qp *qp, const struct resp_resource *r)
	REQUIRES(qp->resp.rq_lock)
{
	qp->resp.resource_head++;
	qp->resp.repeats = 0;
	qp->resp.epsn = (qp->resp.epsn + r->psn_count) & PSN_MASK;
	qp->resp.msn = (qp->resp.msn + 1) & PSN_MASK;
	__atomic_store_n(&qp->counters->received, qp->counters->received + 1, __ATOMIC_RELAXED);
}

enum resp_verdict answer_read(struct ibt_qp *qp, const struct pkt *p)
{
	struct resp_resource *r;
	u64 piece;

	if (p->dma_length > IBT_MAX_MESSAGE)
		return RESP_NAK_INVALID;
	if (p->dma_length != 0 &&
	    ((qp->access & IBV_ACCESS_REMOTE_READ) == 0 ||
	     mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey, p->va, p->dma_length,
			IBV_ACCESS_REMOTE_READ, &piece) == NULL))
		return RESP_NAK_ACCESS;
	r = answer_new(qp, p);
	if (r == NULL)
		return RESP_NAK_INVALID;
	r->psn_count = packet_count(qp, r->length);
	answer_accept(qp, r);
	return RESP_OK;
}

enum resp_verdict answer_atomic(struct ibt_qp *qp, const struct pkt *p)
{
	struct resp_resource *r;
	u64 piece = 0;
	u64 *target;

	if (p->va % 8 != 0)
		return RESP_NAK_INVALID;
	if ((qp->access & IBV_ACCESS_REMOTE_ATOMIC) == 0)
		return RESP_NAK_ACCESS;
	target = mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey, p->va, 8,
			    IBV_ACCESS_REMOTE_ATOMIC, &piece);
	if (target == NULL || piece < 8 || (uintptr_t)target % 8 != 0)
		return RESP_NAK_ACCESS;
	r = answer_new(qp, p);
	if (r == NULL)
		return RESP_NAK_INVALID;
	if (!(p->opcode == PKT_FETCH_ADD
		      ? fault_fetch_add(target, p->swap, &r->original)
		      : fault_compare_swap(target, p->compare, p->swap, &r->original)))
		return RESP_NAK_ACCESS;
	answer_accept(qp, r);
	return RESP_OK;
}

/* IBA vol 1, A19: eight bytes as one, behind everything that was executed before. */
static enum resp_verdict answer_write(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	u64 piece = 0;
	void *target;

	if (p->va % 8 != 0 || p->length != ATOMIC_WRITE_BYTES ||
	    p->dma_length != ATOMIC_WRITE_BYTES)
		return RESP_NAK_INVALID;
	if ((qp->access & IBV_ACCESS_REMOTE_WRITE) == 0)
		return RESP_NAK_ACCESS;
	target = mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey, p->va, ATOMIC_WRITE_BYTES,
			    IBV_ACCESS_REMOTE_WRITE, &piece);
	if (target == NULL || piece < ATOMIC_WRITE_BYTES || (uintptr_t)target % 8 != 0 ||
	    !fault_copy_u64(target, payload))
		return RESP_NAK_ACCESS;
	return RESP_OK;
}

/* IBA vol 1, A19. What was executed before is in the memory of the host, visible to each of its
 * processors: nothing is left to be done. No memory here is known to be persistent. */
static enum resp_verdict answer_flush(struct ibt_qp *qp, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	u32 type = p->imm & FETH_TYPE, level = p->imm >> FETH_LEVEL_SHIFT;
	u64 piece;

	if (type == 0 || level > FETH_REGION || p->length != 0 || p->dma_length > IBT_MAX_MESSAGE)
		return RESP_NAK_INVALID;
	if (type != FETH_GLOBAL || (qp->access & MEM_ACCESS_FLUSH) == 0)
		return RESP_NAK_ACCESS;
	if (level == FETH_REGION)
		return mem_remote_whole(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey,
					MEM_ACCESS_FLUSH) ?
			       RESP_OK :
			       RESP_NAK_ACCESS;
	return mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey, p->va, p->dma_length,
			  MEM_ACCESS_FLUSH, &piece) == NULL ?
		       RESP_NAK_ACCESS :
		       RESP_OK;
}

enum resp_verdict answer_placed(struct ibt_qp *qp, const struct pkt *p, const void *payload)
{
	enum resp_verdict verdict;

	if (!qp_takes_fast_paths(qp) || !answer_has_place(qp)) /* RC only */
		return RESP_NAK_INVALID;
	verdict = p->opcode == PKT_FLUSH ? answer_flush(qp, p) : answer_write(qp, p, payload);
	if (verdict == RESP_OK) {
		struct resp_resource *r = answer_new(qp, p);

		r->end = 0; /* of the response */
		answer_accept(qp, r);
	}
	return verdict;
}

static u32 answer_psn(const struct ibt_qp *qp, const struct resp_resource *r)
{
	return (r->psn + (r->sent >> qp->psn_shift)) & PSN_MASK;
}

static void answer_fill(struct ibt_qp *qp, const struct resp_resource *r, struct pkt *a, u32 n)
	REQUIRES(qp->resp.rq_lock)
{
	*a = (struct pkt){
		.opcode = opcode_of_answer(r->sent == r->begin, r->sent + n == r->end),
		.qp_type = qp->packet_type,
		.syndrome = AETH_ACK,
		.dqpn = qp->dest_qpn,
		.sqpn = qp->qpn,
		.psn = answer_psn(qp, r),
		.msn = qp->resp.msn,
		.length = n,
	};
	if (r->opcode == PKT_COMPARE_SWAP || r->opcode == PKT_FETCH_ADD) {
		a->opcode = PKT_ATOMIC_ACK;
		a->swap = r->original;
		a->length = 0;
	}
}

/* The memory of the next n bytes: pieces, or 0 if it or the key has gone meanwhile. */
static int answer_pieces(struct ibt_qp *qp, const struct resp_resource *r, u32 n, struct iovec *iov,
			 int max) REQUIRES(qp->resp.rq_lock)
{
	u64 va = r->va + r->sent;
	int count = 0;

	while (n != 0 && count < max) {
		u64 piece = 0;
		void *from = mem_remote(qp->ibt->cfg.mem, r->pd, qp->qpn, r->rkey, va, n,
					IBV_ACCESS_REMOTE_READ, &piece);

		if (from == NULL || piece == 0 ||
		    (unlikely(r->unreached) &&
		     !mem_is_there((uintptr_t)from, MIN(piece, (u64)n), false)))
			return 0;
		iov[count].iov_base = from;
		iov[count++].iov_len = MIN(piece, (u64)n);
		va += iov[count - 1].iov_len;
		n -= (u32)iov[count - 1].iov_len;
	}
	return n == 0 ? count : 0;
}

/* As path_ops.send. With -EAGAIN the queue pair waits for room. */
static int answer_send(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int count)
	REQUIRES(qp->resp.rq_lock)
{
	int err = portdown_answer(qp, p, iov, count);

	if (err == -EAGAIN) {
		block_wait(qp, qp->dest);
		err = portdown_answer(qp, p, iov, count);
	}
	return err;
}

/* A repetition is none for which the queue pair fails. Its request was late on its way, or was sent
 * again while this process slept; the initiator has the data, and has released the memory
 * meanwhile. An initiator that still waits learns it from the NAK, and another one has no request
 * of this number. 0, or -EAGAIN. */
static int answer_refuse_again(struct ibt_qp *qp, struct resp_resource *r, u32 psn)
	REQUIRES(qp->resp.rq_lock)
{
	struct pkt nak = { .opcode = PKT_ACK,
			   .qp_type = qp->packet_type,
			   .syndrome = AETH_NAK | NAK_REMOTE_ACCESS,
			   .dqpn = qp->dest_qpn,
			   .sqpn = qp->qpn,
			   .psn = psn,
			   .msn = qp->resp.msn };

	if (answer_send(qp, &nak, NULL, 0) == -EAGAIN)
		return -EAGAIN;
	qp_count(qp, COUNT_TX_NAK);
	r->done = true;
	return 0;
}

/* The memory of the rest has gone, or its key. */
static int answer_refuse(struct ibt_qp *qp, struct resp_resource *r) REQUIRES(qp->resp.rq_lock)
{
	u32 psn = answer_psn(qp, r);

	if (r->answered && !qp_is_proxy(qp))
		return answer_refuse_again(qp, r, psn);
	qp->resp.owed = RESP_NAK_ACCESS;
	qp->resp.owed_psn = psn;
	qp->resp.nak_sent = true;
	return -EACCES;
}

/* 0, -EAGAIN, or -EACCES: the rest is refused. */
static int answer_send_packet(struct ibt_qp *qp, struct resp_resource *r) REQUIRES(qp->resp.rq_lock)
{
	struct iovec iov[IBT_MAX_SGE];
	bool read = r->opcode == PKT_READ_REQUEST;
	u32 n = read ? MIN(r->end - r->sent, qp_packet_bytes(qp)) : 0;
	struct pkt a;
	int count = n == 0 ? 0 : answer_pieces(qp, r, n, iov, IBT_MAX_SGE), err;

	if (n != 0 && count == 0)
		return answer_refuse(qp, r);
	if (unlikely(qp->resp.answer_rate != NULL) && n != 0 && rate_answer_must_wait(qp))
		return -EAGAIN;
	answer_fill(qp, r, &a, n);
	err = answer_send(qp, &a, iov, count);
	if (err == -EAGAIN)
		return err;
	if (unlikely(err == -EFAULT))
		return answer_refuse(qp, r);
	if (unlikely(qp->resp.answer_rate != NULL))
		rate_charge_answer(qp, window_cost(1, n));
	qp->resp.has_answered |= n != 0;
	r->sent += n;
	r->done = !read || r->sent == r->end || err != 0;
	r->answered |= r->done;
	return 0;
}

bool answer_pump(struct ibt_qp *qp)
{
	bool sent = false;
	int err = 0;

	if (qp->resp.resource_next == qp->resp.resource_head || !qp_receives(qp))
		return true;
	while (qp->resp.resource_next != qp->resp.resource_head && err == 0) {
		struct resp_resource *r = answer_slot(qp, qp->resp.resource_next);

		while (!r->done && (err = answer_send_packet(qp, r)) == 0)
			sent = true;
		if (r->done)
			qp->resp.resource_next++;
	}
	if (sent)
		qp->dest->path->ops->flush(qp->dest);
	/* The first refusal counts: nothing behind it is answered. */
	if (unlikely(err == -EACCES))
		qp->resp.resource_next = qp->resp.resource_head;
	/* Writes and sends that came after the answers may be acknowledged now; receive or the
	 * next idle poll sends it. */
	if (err == 0)
		__atomic_store_n(&qp->resp.ack_word, ACK_OWED | ((qp->resp.epsn - 1) & PSN_MASK),
				 __ATOMIC_RELEASE);
	return err != -EAGAIN;
}

/* Tells whether it is a duplicate of this request: it names the same key, and memory within. A READ
 * may be requested again from any packet of its response on. What names more has not been judged
 * before, and as a duplicate could be judged again and again. IBA vol 1, 9.4.4 (RDMA READ), 9.7.5.1
 * (duplicate requests). */
static bool answer_is_repeated(const struct ibt_qp *qp, const struct resp_resource *r,
			       const struct pkt *p)
{
	u32 offset = (p->psn - r->psn) & PSN_MASK;
	u64 skipped = (u64)offset << qp->psn_shift;

	return r->opcode == p->opcode && offset < r->psn_count && p->rkey == r->rkey &&
	       p->va == r->va + skipped && p->dma_length <= r->length - skipped;
}

/* May the duplicate of a READ be answered? */
static bool answer_take_again(struct ibt_qp *qp, struct resp_resource *r, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	if (p->opcode != PKT_READ_REQUEST)
		return true;
	if (p->dma_length != 0 && (qp->access & IBV_ACCESS_REMOTE_READ) == 0)
		return false;
	r->begin = r->sent = (u32)(p->va - r->va);
	r->end = r->begin + (u32)p->dma_length;
	return true;
}

/* Tells whether responses sent in a batch are lost. Requests that came at once, while this process
 * slept, count as one. */
static void answer_repeated(struct ibt_qp *qp, u32 psn) REQUIRES(qp->resp.rq_lock)
{
	u64 now = clock_now_ns();

	if (now - qp->resp.asked_ns < ANSWER_ASKED_MS * NS_PER_MS)
		return;
	qp->resp.asked_ns = now;
	if (psn != qp->resp.asked_psn)
		qp->resp.repeats = 0;
	qp->resp.asked_psn = psn;
	if (++qp->resp.repeats < ANSWER_DISTRUST)
		return;
	qp->resp.repeats = 0;
	if (qp->dest->path->ops->batches_lost != NULL)
		qp->dest->path->ops->batches_lost(qp->dest);
}

/* A duplicate: an atomic's response is repeated, a READ executed again from the requested packet
 * on, even if the first response still waits for room. Later requests that were answered are
 * skipped. */
bool answer_duplicate(struct ibt_qp *qp, const struct pkt *p)
{
	answer_repeated(qp, p->psn);
	for (u32 back = 1; back <= qp->resp.resource_count; back++) {
		u32 index = qp->resp.resource_head - back;
		struct resp_resource *r = answer_slot(qp, index);

		if (!answer_is_repeated(qp, r, p))
			continue;
		if (!answer_take_again(qp, r, p))
			return false;
		r->done = false;
		if ((s32)(qp->resp.resource_next - index) > 0)
			qp->resp.resource_next = index;
		answer_pump(qp);
		return true;
	}
	return false;
}
