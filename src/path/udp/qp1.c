/* qp1.c: datagrams to QP1 that the node has received for this process.
 * In:    node events    Out: packets, or a counted drop
 * Runs:  any thread     Locks: none
 */
#include "node/datagram.h"
#include "path/udp/udp_priv.h"

/* 0, or a counter's number + 1 saying why not. */
static int udp_qp1_judge(struct udp *udp, const struct node_mad *m, struct pkt *p, u32 *payload)
{
	struct roce_flow flow;
	bool right = datagram_is_right(m, &flow);
	int err;

	if (udp_is_captured(udp))
		capture_datagram(udp->cfg.capture, true, &flow, m->payload, sizeof(m->payload));
	if (!right)
		return COUNT_RX_ICRC + 1;
	/* the node sends a dead process' last words by its own port, which nobody else may have;
	 * slot 0 has QP1, and stands for the processes that reach this one by no other path */
	if (m->sport != NODE_UDP_PORT && udp_is_own(udp, m->sgid) && !udp_slot_is_wire_only(udp, 0))
		return COUNT_RX_WRONG_PEER + 1;
	err = roce_unpack(m->payload, sizeof(m->payload) - ROCE_ICRC, p, payload);
	return err == ROCE_PKEY_WRONG ? COUNT_RX_PKEY + 1 : err != 0 ? COUNT_RX_MALFORMED + 1 : 0;
}

bool udp_unpack_mad(struct udp *udp, const struct node_mad *m, struct pkt *p, const u8 **payload)
{
	u32 offset = 0;
	int why = udp_qp1_judge(udp, m, p, &offset);

	if (why == 0 && (p->dqpn != 1 || p->qp_type != IBV_QPT_UD || p->opcode != PKT_SEND_ONLY))
		why = COUNT_RX_OPCODE + 1;
	if (why != 0) {
		udp_count(udp, (enum path_counter)(why - 1));
		return false;
	}
	udp_count(udp, COUNT_RX_PACKETS);
	p->sgid = m->sgid;
	p->dgid = m->dgid;
	p->traffic_class = m->traffic_class;
	p->hop_limit = m->hop_limit;
	p->flow_label = 0;
	p->slid = p->dlid = 0;
	p->sl = 0;
	p->no_grh = false;
	p->flags |= PKT_HAS_GRH;
	*payload = m->payload + offset;
	return true;
}
