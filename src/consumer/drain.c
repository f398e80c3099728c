/* drain.c: waits until a queue's last completion has been handed to its `done`.
 * In: a queue pair of CQs that poll themselves    Out: a last request on each queue
 * Runs: the caller, who sleeps    Locks: none
 *
 * In ERR a queue completes its requests in order, so the completion of the last request says that
 * all others have come. Both are of the same CQ, which hands them over one after the other. A
 * device that is gone takes no request; it has flushed all queues, and the drain waits until what
 * lies in the CQ is handed over.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cond.h"
#include "base/log.h"
#include "consumer/consumer_priv.h"

enum { DRAIN_NAP_NS = 1000000, DRAIN_TURNS = 1000 };

struct consumer_drain {
	struct ib_cqe cqe FIXED;
	u32 done ATOMIC_ONLY; /* the futex */
};

/* The waiting thread may leave once `done` is set; the wake needs the futex' address only. */
static void consumer_drain_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct consumer_drain *d = container_of(wc->wr_cqe, struct consumer_drain, cqe);

	__atomic_store_n(&d->done, 1, __ATOMIC_RELEASE);
	futex_wake(&d->done, 1);
}

/* Nobody else polls a CQ of the context DIRECT. */
static void consumer_drain_wait(struct consumer_drain *d, struct ib_cq *cq)
{
	struct poller *p = poller_of(cq);
	bool direct = p == NULL || p->context == IB_POLL_DIRECT;

	if (direct)
		ib_process_cq_direct(cq, -1);
	while (!__atomic_load_n(&d->done, __ATOMIC_ACQUIRE)) {
		futex_sleep_for(&d->done, 0, direct ? DRAIN_NAP_NS : 0);
		if (direct)
			ib_process_cq_direct(cq, -1);
	}
}

/* A device that goes flushes its queue pairs itself, and refuses to be armed when it has. */
static void consumer_drain_gone(struct ib_cq *cq)
{
	struct poller *p = poller_of(cq);
	bool direct = p == NULL || p->context == IB_POLL_DIRECT;

	while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) != -EIO) {
		if (direct)
			ib_process_cq_direct(cq, -1);
		usleep(DRAIN_NAP_NS / 1000);
	}
	if (direct)
		ib_process_cq_direct(cq, -1);
	else
		poller_await_turn(p);
}

/* The queue is full until its completions have been polled. False: that has been waited for often
 * enough; a queue may have no place at all. */
static bool consumer_drain_makes_room(struct ib_cq *cq, int *turns)
{
	struct poller *p = poller_of(cq);

	if (p == NULL || p->context == IB_POLL_DIRECT)
		ib_process_cq_direct(cq, -1);
	else
		usleep(DRAIN_NAP_NS / 1000);
	return (*turns)++ < DRAIN_TURNS;
}

static int consumer_drain_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	int err, turns = 0;

	do
		err = ib_post_send(qp, (struct ib_send_wr *)wr, NULL);
	while (err == -ENOMEM && consumer_drain_makes_room(qp->send_cq, &turns));
	return err;
}

static int consumer_drain_receive(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	int err, turns = 0;

	do
		err = ib_post_recv(qp, (struct ib_recv_wr *)wr, NULL);
	while (err == -ENOMEM && consumer_drain_makes_room(qp->recv_cq, &turns));
	return err;
}

/* True, with what is to be said or done about it: the queue takes no request of the drain's. */
static bool consumer_drain_is_over(int err, const struct ib_qp *qp, struct ib_cq *cq)
{
	if (err == 0)
		return false;
	if (err == -EIO && ib_peek_cq(cq, 1) == -EIO)
		consumer_drain_gone(cq);
	else
		log_warn("consumer", "queue pair %u is not drained: error %d", qp->qp_num, -err);
	return true;
}

static int consumer_drain_to_error(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

static bool consumer_drain_is_datagram(const struct ib_qp *qp)
{
	return qp->qp_type == IB_QPT_UD || qp->qp_type == IB_QPT_GSI || qp->qp_type == IB_QPT_SMI;
}

void ib_drain_sq(struct ib_qp *qp)
{
	struct consumer_drain d = { .cqe = { consumer_drain_done } };
	struct ib_send_wr wr = { .wr_cqe = &d.cqe,
				 .opcode = IB_WR_RDMA_WRITE,
				 .send_flags = IB_SEND_SIGNALED };

	if (qp == NULL || qp->send_cq == NULL ||
	    consumer_drain_is_over(consumer_drain_to_error(qp), qp, qp->send_cq))
		return;
	if (consumer_drain_is_datagram(qp) || qp->qp_type == IB_QPT_RAW_PACKET)
		wr.opcode = IB_WR_SEND;
	if (!consumer_drain_is_over(consumer_drain_send(qp, &wr), qp, qp->send_cq))
		consumer_drain_wait(&d, qp->send_cq);
}

void ib_drain_rq(struct ib_qp *qp)
{
	struct consumer_drain d = { .cqe = { consumer_drain_done } };
	struct ib_recv_wr wr = { .wr_cqe = &d.cqe };

	if (qp == NULL || qp->recv_cq == NULL ||
	    consumer_drain_is_over(consumer_drain_to_error(qp), qp, qp->recv_cq) || qp->srq != NULL)
		return;
	if (!consumer_drain_is_over(consumer_drain_receive(qp, &wr), qp, qp->recv_cq))
		consumer_drain_wait(&d, qp->recv_cq);
}

void ib_drain_qp(struct ib_qp *qp)
{
	ib_drain_sq(qp);
	ib_drain_rq(qp);
}
