/* qp1.c: datagrams to and from QP1.
 * In:    datagrams of any content, MADs    Out: verdicts, datagrams
 * Runs:  the daemon's only thread          Locks: none
 * Spec:  IBA vol 1, 13.5.1 (QP1, its Q_Key), annex A17
 */
#include "daemon/qp1.h"

#include <infiniband/verbs.h>
#include <string.h>

#include "node/datagram.h"

enum { QP1_QPN = 1 };
#define QP1_QKEY 0x80010000u

bool qp1_judge(const struct node_mad *m, u32 *sqpn)
{
	struct roce_flow flow;
	struct pkt p;
	u32 payload;

	if (!datagram_is_right(m, &flow) ||
	    roce_unpack(m->payload, sizeof(m->payload) - ROCE_ICRC, &p, &payload) != 0)
		return false;
	if (p.dqpn != QP1_QPN || p.qp_type != IBV_QPT_UD || p.opcode != PKT_SEND_ONLY ||
	    p.qkey != QP1_QKEY || p.length != QP1_MAD_BYTES)
		return false;
	*sqpn = p.sqpn;
	return true;
}

void qp1_pack(struct node_mad *m, u16 pkey, u32 dqpn, const u8 mad[QP1_MAD_BYTES])
{
	static u32 psn;
	struct roce_flow flow = datagram_flow(m);
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = IBV_QPT_UD,
			 .dqpn = dqpn,
			 .sqpn = QP1_QPN,
			 .psn = psn++ & 0xffffff,
			 .length = QP1_MAD_BYTES,
			 .pkey = pkey,
			 .qkey = QP1_QKEY };
	u8 trailer[ROCE_TRAILER_MAX];
	u32 icrc;

	flow.df = true;			 /* as the kernel sends it: IP_PMTUDISC_PROBE */
	(void)roce_pack(&p, m->payload); /* a datagram of this size has a form */
	memcpy(m->payload + QP1_MAD, mad, QP1_MAD_BYTES);
	icrc = roce_icrc_begin(&flow, sizeof(m->payload), m->payload, QP1_MAD);
	icrc = roce_icrc_add(icrc, mad, QP1_MAD_BYTES);
	memcpy(m->payload + QP1_MAD + QP1_MAD_BYTES, trailer, roce_icrc_end(icrc, 0, trailer));
}

void qp1_record(struct capture *c, const struct node_mad *m, bool inbound)
{
	struct roce_flow flow;

	if (!capture_is_on(c))
		return;
	(void)datagram_is_right(m, &flow);
	capture_datagram(c, inbound, &flow, m->payload, sizeof(m->payload));
}
