/* ud.c: unreliable datagrams: one packet each, to one queue pair or to a multicast group.
 * In: send requests with an address vector; packets
 * Out: packets; the GRH and the payload in a receive buffer
 * Runs: the poster, or the receiving thread    Locks: sq_lock or rq_lock
 * Spec: IBA vol 1, 9.8.3; RoCEv2 annex A17
 */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>

#include "base/clock.h"
#include "ibt/block.h"
#include "ibt/receive/grh.h"
#include "ibt/receive/recv_queue.h"
#include "ibt/send/portdown.h"
#include "ibt/send/timeout.h"
#include "ibt/send/ud.h"

enum {
	UD_MAX_PAYLOAD = 4096,
	UD_ROOM_MS = 1000, /* how long a datagram waits for a receiver that does not run */
};

static void ud_fill(const struct ibt_qp *qp, const struct send_wqe *w, struct pkt *p)
	REQUIRES(qp->req.sq_lock)
{
	*p = (struct pkt){
		.opcode = w->opcode == IBV_WR_SEND_WITH_IMM ? PKT_SEND_ONLY_IMM : PKT_SEND_ONLY,
		.flags = PKT_HAS_GRH | (w->flags & IBV_SEND_SOLICITED ? PKT_SOLICITED : 0),
		.qp_type = IBV_QPT_UD,
		.dqpn = w->ud.remote_qpn,
		.sqpn = qp->qpn,
		.psn = qp->req.psn,
		.imm = w->imm,
		.length = w->length,
		/* With the top bit set the queue pair's own Q_Key travels: IBA vol 1, 3.5.3
		 * (keys). */
		.qkey = w->ud.qkey & 0x80000000 ? qp->qkey : w->ud.qkey,
		.sgid = w->ud.av.sgid,
		.dgid = w->ud.av.dgid,
		.traffic_class = w->ud.av.traffic_class,
		.hop_limit = w->ud.av.hop_limit,
		.flow_label = w->ud.av.flow_label,
		.pkey = qp->pkey,
		.sl = w->ud.av.sl,
		.no_grh = w->ud.av.no_grh,
		.slid = w->ud.av.slid,
		.dlid = w->ud.av.dlid,
	};
}

/* A receiver that does not run costs one wait: until a datagram to it is taken again, datagrams
 * that find no room are dropped. The flag belongs to the destination, since another one's room
 * proves nothing. For multicast it belongs to the queue pair, which waits again once any member has
 * room. */
static bool ud_gives_up(const struct ibt_qp *qp, enum wait_reason why, const struct path_dest *dest)
	REQUIRES(qp->req.sq_lock)
{
	return why == WAIT_MEMBER ? qp->req.member_timed_out : path_drops_when_full(dest);
}

/* Counts a datagram that finds no room. */
static void ud_drop(const struct ibt_qp *qp, const struct path_dest *dest)
{
	path_count(dest->path, COUNT_TX_BLOCKED);
	qp_count_discard(qp);
}

/* Waits a while for room. 0: it has gone, or been dropped. */
static int ud_wait(struct ibt_qp *qp, enum wait_reason why, struct path_dest *dest,
		   const struct pkt *p, const struct iovec *iov, int n) REQUIRES(qp->req.sq_lock)
{
	int err;

	if (ud_gives_up(qp, why, dest)) {
		ud_drop(qp, dest);
		return 0;
	}
	block_wait_datagram(qp, dest);
	err = dest->path->ops->send(dest, p, iov, n);
	if (err == -EAGAIN && qp->req.waiting == WAIT_NONE)
		timeout_arm(qp, why, UD_ROOM_MS * NS_PER_MS);
	return err;
}

/* A multicast GID, or an IPv4 group as RoCEv2 has it. */
static bool ud_is_group(const u8 gid[16])
{
	return gid[0] == 0xff || (grh_is_v4(gid) && gid[12] >> 4 == 0xe);
}

/* To one member; -EAGAIN: it is to be tried again. Each that takes it may be waited for anew. */
static int ud_to_member(struct ibt_qp *qp, struct path_dest *dest, const struct pkt *p,
			const struct iovec *iov, int n) REQUIRES(qp->req.sq_lock)
{
	int err = dest->path->ops->send(dest, p, iov, n);

	if (unlikely(err == -EAGAIN))
		err = ud_wait(qp, WAIT_MEMBER, dest, p, iov, n);
	if (unlikely(err == -EAGAIN))
		return err;
	if (unlikely(qp->req.waiting == WAIT_MEMBER))
		qp->req.waiting = WAIT_NONE;
	if (likely(err == 0))
		dest->path->ops->flush(dest);
	else
		ud_drop(qp, dest);
	return err == -EFAULT ? err : 0;
}

/* Any number of members: after a wait it continues with the member that it waited for. A member
 * that joins meanwhile may miss this datagram. */
static NOINLINE int ud_multicast(struct ibt_qp *qp, const struct path_av *av, struct pkt *p,
			const struct iovec *iov, int n) REQUIRES(qp->req.sq_lock)
{
	const struct ibt_config *cfg = &qp->ibt->cfg;
	struct ibt_member member[IBT_MEMBERS];
	int err = 0, found;

	p->flags |= PKT_MULTICAST;
	do {
		found = cfg->multicast(cfg->arg, av, p, qp->req.tx_member, member,
				       IBT_MEMBERS);
		for (int i = 0; i < found; i++) {
			struct path_dest *dest = member[i].dest;

			if (err == 0) {
				qp->req.tx_member = member[i].at;
				p->dqpn = member[i].qpn;
				err = ud_to_member(qp, dest, p, iov, n);
			}
			if (err == 0)
				qp->req.tx_member++;
			dest->path->ops->dest_put(dest);
		}
	} while (err == 0 && found == IBT_MEMBERS);
	return err;
}

static int ud_unicast(struct ibt_qp *qp, const struct path_av *av, const struct pkt *p,
		      const struct iovec *iov, int n) REQUIRES(qp->req.sq_lock)
{
	struct path_dest *dest = qp->ibt->cfg.route(qp->ibt->cfg.arg, av, p);
	int err;

	if (dest == NULL)
		return 0;
	err = dest->path->ops->send(dest, p, iov, n);
	if (unlikely(err == -EAGAIN))
		err = ud_wait(qp, WAIT_ROOM, dest, p, iov, n);
	else if (unlikely(path_drops_when_full(dest)))
		path_set_drops_when_full(dest, false);
	if (likely(err == 0))
		dest->path->ops->flush(dest);
	dest->path->ops->dest_put(dest);
	return err == -EAGAIN || err == -EFAULT ? err : 0;
}

int ud_transmit(struct ibt_qp *qp, struct send_wqe *w)
{
	struct iovec iov[IBT_MAX_SGE];
	struct pkt p;
	int n, err;

	if (w->length > UD_MAX_PAYLOAD)
		return -EMSGSIZE;
	if (w->flags & IBV_SEND_INLINE) {
		iov[0] = (struct iovec){ w->sge, w->length };
		n = w->length != 0;
	} else {
		struct mem_cursor c = { .sge = w->sge, .count = w->sge_count };

		n = w->length == 0 ? 0
				   : mem_pieces(qp->ibt->cfg.mem, qp->pd, &c, w->length, 0, iov,
						IBT_MAX_SGE);
	}
	if (n < 0) {
		qp->req.tx_member = 0;
		return n;
	}
	ud_fill(qp, w, &p);
	if (unlikely(qp_port_is_down(qp)))
		err = portdown_lose(qp);
	else if (ud_is_group(p.dgid))
		err = ud_multicast(qp, &w->ud.av, &p, iov, n);
	else
		err = ud_unicast(qp, &w->ud.av, &p, iov, n);
	if (err == 0) {
		qp->req.psn = (qp->req.psn + 1) & PSN_MASK;
		qp->req.tx_member = 0;
		if (unlikely(qp->req.waiting >= WAIT_ROOM))
			qp->req.waiting = WAIT_NONE;
	}
	return err;
}

/* True: the queue pair must go to ERR. */
static bool ud_deliver(struct ibt_qp *qp, const struct pkt *p, const void *payload,
		       const struct path *path) REQUIRES(qp->resp.rq_lock)
{
	struct mem_table *mem = qp->ibt->cfg.mem;
	u8 grh[IBT_GRH];
	int err;

	if (!rq_take(qp)) {
		path_count(path, COUNT_RX_NO_WQE);
		return false;
	}
	if (p->no_grh)
		memset(grh, 0, IBT_GRH);
	else
		grh_fill(grh, p);
	err = mem_scatter(mem, qp->resp.pd, &qp->resp.cursor, grh, IBT_GRH);
	if (err == 0)
		err = mem_scatter(mem, qp->resp.pd, &qp->resp.cursor, payload, p->length);
	if (err != 0) {
		rq_complete(qp, err == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR, NULL,
			      0);
		return true;
	}
	qp->counters->received++;
	qp->counters->received_bytes += p->length;
	rq_complete(qp, IBV_WC_SUCCESS, p, p->length + IBT_GRH);
	return false;
}

/* Same partition, and one of both a full member: IBA vol 1, 10.9 (P_Key matching). */
static bool ud_pkey_matches(u16 theirs, u16 ours)
{
	if (theirs == 0)
		theirs = IBT_DEFAULT_PKEY;
	return ((theirs ^ ours) & PKEY_BASE_MASK) == 0 &&
	       ((theirs | ours) & PKEY_FULL_MEMBER) != 0;
}

static NOINLINE void ud_refuse_key(const struct ibt_qp *qp, const struct path *path,
				   const struct pkt *p, bool is_qkey)
{
	path_count(path, is_qkey ? COUNT_RX_QKEY : COUNT_RX_PKEY);
	if (qp->ibt->cfg.bad_key != NULL)
		qp->ibt->cfg.bad_key(qp->ibt->cfg.arg, p, is_qkey);
}

bool ud_receive(struct ibt_qp *qp, const struct path *path, const struct pkt *p,
		const void *payload)
{
	bool fail = false;

	lock_acquire(&qp->resp.rq_lock);
	if (!qp_receives(qp))
		path_count(path, COUNT_RX_NOT_RECEIVING);
	else if (p->opcode != PKT_SEND_ONLY && p->opcode != PKT_SEND_ONLY_IMM)
		path_count(path, COUNT_RX_OPCODE);
	else if (!ud_pkey_matches(p->pkey, qp->pkey))
		ud_refuse_key(qp, path, p, false);
	else if (p->qkey != qp->qkey)
		ud_refuse_key(qp, path, p, true);
	else if ((p->flags & PKT_HAS_GRH) == 0 || p->length > UD_MAX_PAYLOAD)
		path_count(path, COUNT_RX_LENGTH);
	else
		fail = ud_deliver(qp, p, payload, path);
	fail |= rq_after(qp) != 0;
	lock_release(&qp->resp.rq_lock);
	return fail;
}
