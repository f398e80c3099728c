/* receive.c: MADs that have been judged find their agent; responses find their request.
 * In:    arrivals of a port    Out: calls of receive handlers, ends of requests
 * Runs:  the port's queue    Locks: mad_lock
 * Spec:  IBA vol 1, 13.4.5, 13.4.6
 */
#include <arpa/inet.h>
#include <endian.h>
#include <rdma/ib_smi.h>
#include <stdlib.h>

#include "event/event.h"
#include "mad/mad_priv.h"

void ib_free_recv_mad(struct ib_mad_recv_wc *mad_recv_wc)
{
	struct list_head all, *node;

	list_init(&all);
	list_splice(&mad_recv_wc->rmpp_list, &all);
	while ((node = list_pop_front(&all)) != NULL)
		free(container_of(list_entry(node, struct ib_mad_recv_buf, list),
				  struct mad_message, recv.recv_buf));
}

void mad_receive_drop(struct mad_message *m, enum mad_counter why)
{
	mad_count_one(why);
	ib_free_recv_mad(&m->recv);
}

void mad_receive_deliver(struct mad_agent *agent, struct mad_send *request, struct mad_message *m)
{
	if (request != NULL) {
		work_cancel(&request->work);
		m->wc.wr_id = (u64)(uintptr_t)&request->buf;
	}
	agent->pub.recv_handler(&agent->pub, &m->recv);
	if (request != NULL)
		mad_send_end(request, IB_WC_SUCCESS, 0);
}

/* A packet of RMPP that an agent deals with itself: one that is no response to an outstanding
 * request is the peer's ACK, or a segment behind the first. */
static bool mad_receive_is_raw(const struct mad_agent *agent, const struct ib_mad *mad)
{
	const struct ib_rmpp_mad *rmpp = (const void *)mad;

	return agent->pub.rmpp_version == 0 && agent->pub.recv_handler != NULL &&
	       ib_is_mad_class_rmpp(mad->mad_hdr.mgmt_class) &&
	       (ib_get_rmpp_flags(&rmpp->rmpp_hdr) & IB_MGMT_RMPP_FLAG_ACTIVE) != 0;
}

/* For the agent that the transaction ID names. */
static void mad_receive_for(struct mad_agent *agent, struct mad_message *m)
{
	struct mad_send *request;

	if (rmpp_is_packet(agent, &m->mad)) {
		rmpp_receive(agent, m);
		return;
	}
	lock_acquire(&mad_lock);
	request = mad_send_find(agent, m);
	if (request != NULL)
		request->waiting = false; /* its timeout counts no more */
	lock_release(&mad_lock);
	if (request != NULL || mad_receive_is_raw(agent, &m->mad))
		mad_receive_deliver(agent, request, m);
	else
		mad_receive_drop(m, MAD_DROP_NO_AGENT);
}

static void mad_receive_response(struct mad_port *port, struct mad_message *m)
{
	struct mad_agent *agent;

	lock_acquire(&mad_lock);
	agent = mad_agent_by_tid(port, (u32)(be64toh(m->mad.mad_hdr.tid) >> 32));
	lock_release(&mad_lock);
	if (agent == NULL) {
		mad_receive_drop(m, MAD_DROP_NO_AGENT);
		return;
	}
	mad_receive_for(agent, m);
	mad_agent_put(agent);
}

/* Answers a Get or Set that nobody serves, as Linux does. */
static void mad_receive_refuse(struct mad_port *port, struct mad_message *m)
{
	struct ib_mad out = m->mad;
	__be16 status = htons(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);

	if (out.mad_hdr.method != IB_MGMT_METHOD_GET && out.mad_hdr.method != IB_MGMT_METHOD_SET)
		return;
	if (out.mad_hdr.mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE)
		status |= IB_SMP_DIRECTION;
	out.mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	out.mad_hdr.status = status;
	mad_reply(port, m, &out);
}

/* `refuse`: a request that nobody serves is answered. */
static void mad_receive_unsolicited(struct mad_port *port, struct mad_message *m, bool refuse)
{
	struct mad_agent *agent;

	lock_acquire(&mad_lock);
	agent = mad_agent_for(port, &m->mad);
	lock_release(&mad_lock);
	if (agent != NULL) {
		if (rmpp_is_packet(agent, &m->mad))
			rmpp_receive(agent, m);
		else
			mad_receive_deliver(agent, NULL, m);
		mad_agent_put(agent);
		return;
	}
	if (refuse)
		mad_receive_refuse(port, m);
	mad_receive_drop(m, MAD_DROP_NO_AGENT);
}

/* Shows the MAD to the device's driver first: enum ib_mad_result. The driver's answer leaves here.
 * */
static int mad_receive_process(struct mad_port *port, struct mad_message *m)
{
	struct ib_device *device = port->cfg.device;
	struct ib_mad out = { .mad_hdr = { 0 } };
	int result;

	event_driver_depth++;
	result = device->process_mad(device, 0, port->cfg.port_num, &m->wc, &m->grh, &m->mad, &out);
	event_driver_depth--;
	if ((result & IB_MAD_RESULT_SUCCESS) == 0)
		return IB_MAD_RESULT_FAILURE;
	if ((result & IB_MAD_RESULT_CONSUMED) == 0 && (result & IB_MAD_RESULT_REPLY) != 0)
		mad_reply(port, m, &out);
	return result;
}

void mad_receive(struct mad_port *port, struct mad_message *m)
{
	int result = IB_MAD_RESULT_SUCCESS;

	if (mad_hop(port, &m->mad, false) != MAD_HOP_HERE) {
		mad_receive_drop(m, MAD_DROP_NO_AGENT);
		return;
	}
	mad_snoop_receive(port, &m->recv);
	if (port->cfg.device->process_mad != NULL)
		result = mad_receive_process(port, m);
	if ((result & (IB_MAD_RESULT_REPLY | IB_MAD_RESULT_CONSUMED)) != 0)
		ib_free_recv_mad(&m->recv);
	else if (ib_response_mad(&m->mad))
		mad_receive_response(port, m);
	else
		mad_receive_unsolicited(port, m, (result & IB_MAD_RESULT_SUCCESS) != 0);
}
