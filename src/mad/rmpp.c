/* rmpp.c: the reliable multi-packet protocol (RMPP): which half a packet is for, and how a message
 * ends early.
 *
 * A packet and its answer (ACK, STOP, ABORT of the receiver) differ in the response bit of the
 * method, as in Linux. So an answer to a request finds its agent by transaction ID, and an answer
 * to a response finds it by class, version and method.
 *
 * In:    packets of RMPP for an agent that leaves it to the midlayer
 * Out:   answers, ends of sends, whole messages
 * Runs:  the port's queue    Locks: mad_lock
 * Spec:  IBA vol 1, 13.6.2 (formats), 13.6.3 (status)
 */
#include <arpa/inet.h>
#include <string.h>

#include "mad/mad_priv.h"

static const struct ib_rmpp_hdr *rmpp_hdr(const struct mad_message *m)
{
	return &((const struct ib_rmpp_mad *)(const void *)&m->mad)->rmpp_hdr;
}

void rmpp_reply(struct mad_port *port, struct mad_message *to, u8 type, u8 status, u32 segment,
		u32 window)
{
	struct ib_rmpp_mad out = { .mad_hdr = { 0 } };

	/* the class' header too: a vendor's OUI finds the agent */
	memcpy(&out, &to->mad, (size_t)ib_get_mad_data_offset(to->mad.mad_hdr.mgmt_class));
	out.mad_hdr.method ^= IB_MGMT_METHOD_RESP;
	out.rmpp_hdr = (struct ib_rmpp_hdr){ .rmpp_version = IB_MGMT_RMPP_VERSION,
					     .rmpp_type = type,
					     .rmpp_status = status,
					     .seg_num = htonl(segment),
					     .paylen_newwin = htonl(window) };
	ib_set_rmpp_resptime(&out.rmpp_hdr, IB_MGMT_RMPP_NO_RESPTIME);
	ib_set_rmpp_flags(&out.rmpp_hdr, IB_MGMT_RMPP_FLAG_ACTIVE);
	mad_reply(port, to, &out);
}

/* ---- early ends ------------------------------------------------------------------------------ */

/* The outstanding request that *m, which comes from the responder, is about; NULL: none. */
static struct mad_send *rmpp_request_of(struct mad_agent *agent, const struct mad_message *m)
{
	struct mad_send *request = NULL;

	lock_acquire(&mad_lock);
	if ((m->mad.mad_hdr.method & IB_MGMT_METHOD_RESP) != 0)
		request = mad_send_find(agent, m);
	lock_release(&mad_lock);
	return request;
}

/* Ends what the packet is about: a message that arrives, with the request that waits for it, unless
 * the packet is an ACK; a send, unless it is a segment. */
static void rmpp_end(struct mad_agent *agent, const struct mad_message *m, u8 status)
{
	u8 type = rmpp_hdr(m)->rmpp_type;
	struct mad_send *send = NULL;
	struct rmpp_recv *r = NULL;

	if (type != IB_MGMT_RMPP_TYPE_DATA)
		send = rmpp_send_find(agent, m);
	if (type != IB_MGMT_RMPP_TYPE_ACK) {
		r = rmpp_recv_find(agent->port, m);
		if (send == NULL)
			send = rmpp_request_of(agent, m);
	}
	if (r != NULL && r->agent == agent && r->state != RMPP_STATE_KEPT)
		rmpp_recv_drop(r);
	if (send != NULL)
		mad_send_end(send, IB_WC_REM_ABORT_ERR, status);
}

/* The packet breaks a rule: the peer hears so, and what it is about ends. */
static void rmpp_refuse(struct mad_agent *agent, struct mad_message *m, u8 status)
{
	bool resx = status == IB_MGMT_RMPP_STATUS_RESX;

	rmpp_reply(agent->port, m, resx ? IB_MGMT_RMPP_TYPE_STOP : IB_MGMT_RMPP_TYPE_ABORT, status,
		   0, 0);
	rmpp_end(agent, m, status);
	mad_receive_drop(m, resx ? MAD_DROP_FULL : MAD_DROP_RMPP);
}

/* A STOP or an ABORT. No answer goes out: two ends that refuse each other's would never stop. */
static void rmpp_ended_by_peer(struct mad_agent *agent, struct mad_message *m)
{
	const struct ib_rmpp_hdr *hdr = rmpp_hdr(m);
	u8 status = hdr->rmpp_status;
	bool legal = hdr->rmpp_type == IB_MGMT_RMPP_TYPE_STOP
			     ? status == IB_MGMT_RMPP_STATUS_RESX
			     : status >= IB_MGMT_RMPP_STATUS_ABORT_MIN &&
				       status <= IB_MGMT_RMPP_STATUS_ABORT_MAX;

	rmpp_end(agent, m, legal ? status : IB_MGMT_RMPP_STATUS_BAD_STATUS);
	ib_free_recv_mad(&m->recv);
}

/* ---- packets --------------------------------------------------------------------------------- */

static void rmpp_receive_ack(struct mad_agent *agent, struct mad_message *m)
{
	u8 status = rmpp_send_ack(agent, m);

	if (status != 0)
		rmpp_refuse(agent, m, status);
	else
		ib_free_recv_mad(&m->recv);
}

static void rmpp_receive_data(struct mad_agent *agent, struct mad_message *m)
{
	u8 status = rmpp_recv_data(agent, m);

	if (status != 0)
		rmpp_refuse(agent, m, status);
}

void rmpp_receive(struct mad_agent *agent, struct mad_message *m)
{
	const struct ib_rmpp_hdr *hdr = rmpp_hdr(m);

	switch (hdr->rmpp_type) {
	case IB_MGMT_RMPP_TYPE_STOP:
	case IB_MGMT_RMPP_TYPE_ABORT:
		rmpp_ended_by_peer(agent, m);
		return;
	case IB_MGMT_RMPP_TYPE_ACK:
	case IB_MGMT_RMPP_TYPE_DATA:
		if (hdr->rmpp_version != IB_MGMT_RMPP_VERSION)
			rmpp_refuse(agent, m, IB_MGMT_RMPP_STATUS_UNV);
		else if (hdr->rmpp_status != IB_MGMT_RMPP_STATUS_SUCCESS)
			rmpp_refuse(agent, m, IB_MGMT_RMPP_STATUS_BAD_STATUS);
		else if (hdr->rmpp_type == IB_MGMT_RMPP_TYPE_ACK)
			rmpp_receive_ack(agent, m);
		else
			rmpp_receive_data(agent, m);
		return;
	default:
		rmpp_refuse(agent, m, IB_MGMT_RMPP_STATUS_BADT);
	}
}
