/* qp1.c: datagrams to and from QP1.
 * In:    datagrams of any content, MADs    Out: verdicts, datagrams
 * Runs:  the daemon's only thread          Locks: none
 * Spec:  IBA vol 1, 13.5.1 (QP1, its Q_Key), annex A17
 */
#include "node/daemon/qp1.h"

#include <infiniband/verbs.h>
#include <string.h>

#include "base/clock.h"
#include "wire/source.h"

enum { QP1_QPN = 1 };
#define QP1_QKEY 0x80010000u

static struct roce_flow qp1_flow(const struct node_mad *m)
{
	struct roce_flow flow = { .sport = m->sport,
				  .traffic_class = m->traffic_class,
				  .hop_limit = m->hop_limit };

	memcpy(flow.sgid, m->sgid, sizeof(flow.sgid));
	memcpy(flow.dgid, m->dgid, sizeof(flow.dgid));
	return flow;
}

/* Nothing is known of the sender's identifications: the first packet of a source may have any. */
bool qp1_judge(const struct node_mad *m, u32 *sqpn)
{
	struct roce_source source = { .tracks = 0 };
	struct roce_flow flow = qp1_flow(m);
	struct pkt p;
	u32 payload;

	if (!roce_icrc_matches(&source, &flow, m->payload, sizeof(m->payload), clock_coarse_ms()) ||
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
	struct roce_flow flow = qp1_flow(m);
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

	flow.df = true; /* as the kernel sends it: IP_PMTUDISC_PROBE */
	(void)roce_pack(&p, m->payload); /* a datagram of this size has a form */
	memcpy(m->payload + QP1_MAD, mad, QP1_MAD_BYTES);
	icrc = roce_icrc_begin(&flow, sizeof(m->payload), m->payload, QP1_MAD);
	icrc = roce_icrc_add(icrc, mad, QP1_MAD_BYTES);
	memcpy(m->payload + QP1_MAD + QP1_MAD_BYTES, trailer, roce_icrc_end(icrc, 0, trailer));
}

/* What a socket does not show of the IP header, the ICRC says. */
void qp1_record(struct capture *c, const struct node_mad *m, bool inbound)
{
	struct roce_source source = { .tracks = 0 };
	struct roce_flow flow = qp1_flow(m);

	if (!capture_is_on(c))
		return;
	(void)roce_icrc_matches(&source, &flow, m->payload, sizeof(m->payload), clock_coarse_ms());
	flow.id = source.id;
	flow.df = source.df;
	capture_datagram(c, inbound, &flow, m->payload, sizeof(m->payload));
}
