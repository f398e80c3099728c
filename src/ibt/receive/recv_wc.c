/* recv_wc.c: what a receive completion says beyond its request.
 * In:    the last packet of a message    Out: opcode, flags, immediate data of its completion
 * Runs:  whoever receives    Locks: rq_lock
 * Spec:  IBA vol 1, 11.4.2 (flags of a completion)
 */
#include "ibt/receive/grh.h"
#include "ibt/receive/recv_wc.h"

void recv_wc_flags(const struct ibt_qp *qp, struct ibv_wc *wc, const struct pkt *p)
{
	switch (p->opcode) {
	case PKT_SEND_LAST_IMM:
	case PKT_SEND_ONLY_IMM:
	case PKT_WRITE_LAST_IMM:
	case PKT_WRITE_ONLY_IMM:
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = p->imm;
		break;
	case PKT_SEND_LAST_INV:
	case PKT_SEND_ONLY_INV:
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = p->imm;
		break;
	default:
		break;
	}
	if (p->opcode == PKT_WRITE_LAST_IMM || p->opcode == PKT_WRITE_ONLY_IMM)
		wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	if ((p->flags & PKT_HAS_GRH) != 0 && p->qp_type == IBV_QPT_UD)
		grh_wc_route(qp, p, wc);
}

void recv_wc_lost(struct ibt_qp *qp)
{
	qp_count(qp, COUNT_CQ_OVERFLOW);
	if (qp_receives(qp))
		qp->resp.after |= AFTER_FAIL;
}
