/* receive.c: MADs that have been judged find their agent; responses find their request.
 * In:    arrivals of a port    Out: calls of receive handlers, ends of requests
 * Runs:  the port's queue    Locks: mad_lock
 * Spec:  IBA vol 1, 13.4.5, 13.4.6
 */
#include <endian.h>
#include <stdlib.h>

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

static void mad_receive_drop(struct mad_message *m, enum mad_counter why)
{
	mad_count_one(why);
	ib_free_recv_mad(&m->recv);
}

/* Hands the message over; the agent's hold is given up. */
static void mad_receive_deliver(struct mad_agent *agent, struct mad_message *m)
{
	agent->pub.recv_handler(&agent->pub, &m->recv);
	mad_agent_put(agent);
}

static void mad_receive_response(struct mad_port *port, struct mad_message *m)
{
	struct mad_send *send = NULL;
	struct mad_agent *agent;

	lock_acquire(&mad_lock);
	agent = mad_agent_by_tid(port, (u32)(be64toh(m->mad.mad_hdr.tid) >> 32));
	if (agent != NULL)
		send = mad_send_find(agent, m);
	if (send != NULL)
		send->waiting = false; /* its timeout counts no more */
	lock_release(&mad_lock);
	if (send == NULL) {
		mad_receive_drop(m, MAD_DROP_NO_AGENT);
		if (agent != NULL)
			mad_agent_put(agent);
		return;
	}
	work_cancel(&send->work);
	m->wc.wr_id = (u64)(uintptr_t)&send->buf;
	mad_receive_deliver(agent, m);
	mad_send_end(send, IB_WC_SUCCESS, 0);
}

static void mad_receive_unsolicited(struct mad_port *port, struct mad_message *m)
{
	struct mad_agent *agent;

	lock_acquire(&mad_lock);
	agent = mad_agent_for(port, &m->mad);
	lock_release(&mad_lock);
	if (agent != NULL)
		mad_receive_deliver(agent, m);
	else
		mad_receive_drop(m, MAD_DROP_NO_AGENT);
}

void mad_receive(struct mad_port *port, struct mad_message *m)
{
	mad_snoop_receive(port, &m->recv);
	if (ib_response_mad(&m->mad))
		mad_receive_response(port, m);
	else
		mad_receive_unsolicited(port, m);
}
