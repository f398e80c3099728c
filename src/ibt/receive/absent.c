/* absent.c: reports to requesters on a reliable path that their target is absent or does not
 * receive.
 *
 * Such a path loses nothing, so no timer runs: the requester waits for a response. A report that
 * finds no room is therefore kept. If too many wait, one report to queue pair 0 stands for all of
 * them, and each queue pair connected to this process begins its timeout.
 *
 * In:    packets that no queue pair takes    Out: PKT_ABSENT
 * Runs:  inside the path's callbacks, which is what guards path_dest.absent    Locks: none
 */
#include <errno.h>

#include "ibt/receive/absent.h"

static int absent_send(struct path_dest *from, u8 qp_type, u32 dqpn, u32 sqpn, u32 psn)
{
	struct pkt p = { .opcode = PKT_ABSENT,
			 .qp_type = qp_type,
			 .dqpn = dqpn,
			 .sqpn = sqpn,
			 .psn = psn };
	int err = from->path->ops->send(from, &p, NULL, 0);

	if (err == 0)
		from->path->ops->flush(from);
	return err;
}

/* The type of the queue pair that sent the request. */
static u8 absent_type(const struct pkt *p)
{
	return p->qp_type == PKT_TYPE_XRC_TGT ? PKT_TYPE_XRC_INI : p->qp_type;
}

static void absent_keep(struct path_dest *from, const struct pkt *p)
{
	struct path_absent *a = &from->absent;

	/* What a sender had under way comes in a row. */
	if (a->count != 0 && a->answer[a->count - 1].dqpn == p->sqpn)
		return;
	if (a->count == PATH_ABSENT_MAX) {
		a->all = true;
	} else {
		a->answer[a->count].qp_type = absent_type(p);
		a->answer[a->count].dqpn = p->sqpn;
		a->answer[a->count].sqpn = p->dqpn;
		a->answer[a->count++].psn = p->psn;
	}
	/* has the path come back to ack_batch_end in an idle moment */
	__atomic_store_n(&from->acks_owed, true, __ATOMIC_RELAXED);
}

void absent_report(struct path_dest *from, const struct pkt *p)
{
	if (!from->path->guarantees.reliable || !pkt_is_reliable(p->qp_type))
		return;
	if (absent_is_owed(from) ||
	    absent_send(from, absent_type(p), p->sqpn, p->dqpn, p->psn) == -EAGAIN)
		absent_keep(from, p);
}

void absent_tell(struct path_dest *from)
{
	struct path_absent *a = &from->absent;

	if (a->all && absent_send(from, IBV_QPT_RC, 0, 0, 0) == -EAGAIN)
		return;
	if (a->all)
		a->count = 0;
	a->all = false;
	while (a->count != 0) {
		u32 last = a->count - 1;

		if (absent_send(from, a->answer[last].qp_type, a->answer[last].dqpn,
				a->answer[last].sqpn, a->answer[last].psn) == -EAGAIN)
			return;
		a->count = last;
	}
}
