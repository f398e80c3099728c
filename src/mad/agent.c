/* agent.c: registration of agents, and which agent a MAD is for.
 * In:    registrations, MADs    Out: agents
 * Runs:  consumers; the port's queue    Locks: mad_lock
 * Spec:  IBA vol 1, 13.4.4 (classes), 13.4.5 (methods)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mad/mad_priv.h"

static u32 agent_numbers GUARDED_BY(mad_lock); /* the last one given */
static struct cond agent_idle GUARDED_BY(mad_lock); /* an agent that ends has no reference left */

/* ---- what is registered ---------------------------------------------------------------------- */

static bool request_is_valid(const struct ib_mad_reg_req *r, enum ib_qp_type type, u8 rmpp_version)
{
	static const u8 none[3];

	if (r->mgmt_class == 0 || r->mgmt_class_version >= MAD_VERSIONS)
		return false;
	if (mad_is_smi_class(r->mgmt_class) != (type == IB_QPT_SMI))
		return false;
	if (r->mgmt_class >= 0x80 && type != IB_QPT_SMI)
		return false;
	if (rmpp_version != 0 && !ib_is_mad_class_rmpp(r->mgmt_class))
		return false;
	return !mad_is_vendor_oui_class(r->mgmt_class) || memcmp(r->oui, none, 3) != 0;
}

static bool request_has_method(const struct ib_mad_reg_req *r, u8 method)
{
	const u32 bits = 8 * sizeof(unsigned long);

	method &= (u8)~IB_MGMT_METHOD_RESP;
	return (r->method_mask[method / bits] >> method % bits & 1) != 0;
}

static bool request_is_of(const struct ib_mad_reg_req *a, const struct ib_mad_reg_req *b)
{
	return a->mgmt_class == b->mgmt_class && a->mgmt_class_version == b->mgmt_class_version &&
	       (!mad_is_vendor_oui_class(a->mgmt_class) || memcmp(a->oui, b->oui, 3) == 0);
}

static bool request_is_taken(const struct mad_port *port, const struct ib_mad_reg_req *r)
	REQUIRES(mad_lock)
{
	list_for_each(agent, &port->agents, struct mad_agent, node) {
		if (!agent->unsolicited || !request_is_of(&agent->request, r))
			continue;
		for (u32 i = 0; i < MAD_METHOD_WORDS; i++)
			if ((agent->request.method_mask[i] & r->method_mask[i]) != 0)
				return true;
	}
	return false;
}

/* ---- registration ---------------------------------------------------------------------------- */

static void agent_on_end(struct work *w)
{
	struct mad_agent *agent = container_of(w, struct mad_agent, end_work);

	rmpp_recv_drop_agent(agent);
	mad_agent_put(agent);
}

/* Puts the agent on its port. */
static int agent_enter(struct mad_agent *agent, struct mad_port *port, u32 id_bits)
	REQUIRES(mad_lock)
{
	if (port->gone)
		return -ENODEV;
	if (agent->unsolicited && request_is_taken(port, &agent->request))
		return -EINVAL;
	agent->port = port;
	port->id_bits = id_bits;
	port->refs++;
	work_init(&agent->end_work, port->cfg.queue, agent_on_end);
	/* an agent of the same number would have to be 4 million registrations old */
	agent_numbers = (agent_numbers + 1) & ((1u << MAD_SLOT_SHIFT) - 1);
	agent->pub.hi_tid = id_bits | agent_numbers;
	list_push_back(&port->agents, &agent->node);
	return 0;
}

/* The slot of this process in its place; the port may have to take one first. */
static int agent_id_bits(const struct mad_port *port, u32 *bits)
{
	int slot = port->cfg.ops->slot != NULL ? port->cfg.ops->slot(port->cfg.arg) : 0;

	if (slot < 0)
		return slot;
	*bits = (u32)slot << MAD_SLOT_SHIFT;
	return 0;
}

/* Makes what the agent takes known to the other processes, or no more. */
static int agent_announce(const struct mad_agent *agent, const struct mad_port *port, bool on)
{
	unsigned long any = 0;

	for (u32 i = 0; i < MAD_METHOD_WORDS; i++)
		any |= agent->request.method_mask[i];
	if (!agent->unsolicited || any == 0 || port->cfg.ops->agent == NULL ||
	    (agent->subscribes && port->cfg.ops->member != NULL))
		return 0;
	return port->cfg.ops->agent(port->cfg.arg, &agent->request, on);
}

/* The port is held. */
static int agent_begin(struct mad_agent *agent, struct mad_port *port)
{
	u32 bits = 0;
	int err = work_queue_begin(port->cfg.queue);

	if (err == 0)
		err = agent_id_bits(port, &bits);
	if (err == 0)
		err = agent_announce(agent, port, true);
	if (err != 0)
		return err;
	lock_acquire(&mad_lock);
	err = agent_enter(agent, port, bits);
	lock_release(&mad_lock);
	if (err != 0)
		(void)agent_announce(agent, port, false);
	return err;
}

static struct ib_mad_agent *agent_register(struct mad_agent *agent, enum ib_qp_type type)
{
	struct mad_port *port;
	int err = -ENODEV;

	list_init(&agent->node);
	list_init(&agent->sends);
	lock_acquire(&mad_lock);
	port = mad_port_find(agent->pub.device, agent->pub.port_num, type);
	if (port != NULL)
		port->refs++;
	lock_release(&mad_lock);
	if (port != NULL) {
		err = agent_begin(agent, port);
		mad_port_release(port);
	}
	if (err == 0)
		return &agent->pub;
	free(agent);
	return ERR_PTR(err);
}

static struct mad_agent *agent_new(struct ib_device *device, u8 port_num, void *context)
{
	struct mad_agent *agent = calloc(1, sizeof(*agent));

	if (agent == NULL)
		return NULL;
	agent->pub.device = device;
	agent->pub.port_num = port_num;
	agent->pub.context = context;
	return agent;
}

struct ib_mad_agent *ib_register_mad_agent(struct ib_device *device, u8 port_num,
					   enum ib_qp_type qp_type,
					   struct ib_mad_reg_req *mad_reg_req, u8 rmpp_version,
					   ib_mad_send_handler send_handler,
					   ib_mad_recv_handler recv_handler, void *context)
{
	struct mad_agent *agent;

	if ((qp_type != IB_QPT_SMI && qp_type != IB_QPT_GSI) ||
	    rmpp_version > IB_MGMT_RMPP_VERSION || send_handler == NULL)
		return ERR_PTR(-EINVAL);
	if (mad_reg_req != NULL && (recv_handler == NULL ||
				    !request_is_valid(mad_reg_req, qp_type, rmpp_version)))
		return ERR_PTR(-EINVAL);
	agent = agent_new(device, port_num, context);
	if (agent == NULL)
		return ERR_PTR(-ENOMEM);
	agent->pub.send_handler = send_handler;
	agent->pub.recv_handler = recv_handler;
	agent->pub.rmpp_version = rmpp_version;
	agent->unsolicited = mad_reg_req != NULL;
	if (mad_reg_req != NULL)
		agent->request = *mad_reg_req;
	return agent_register(agent, qp_type);
}

struct ib_mad_agent *ib_register_mad_snoop(struct ib_device *device, u8 port_num,
					   enum ib_qp_type qp_type, int mad_snoop_flags,
					   ib_mad_snoop_handler snoop_handler,
					   ib_mad_recv_handler recv_handler, void *context)
{
	const int all = IB_MAD_SNOOP_SEND_COMPLETIONS | IB_MAD_SNOOP_RECVS;
	struct mad_agent *agent;

	if ((qp_type != IB_QPT_SMI && qp_type != IB_QPT_GSI) || mad_snoop_flags == 0 ||
	    (mad_snoop_flags & ~all) != 0 ||
	    ((mad_snoop_flags & IB_MAD_SNOOP_RECVS) != 0 && recv_handler == NULL) ||
	    ((mad_snoop_flags & IB_MAD_SNOOP_SEND_COMPLETIONS) != 0 && snoop_handler == NULL))
		return ERR_PTR(-EINVAL);
	agent = agent_new(device, port_num, context);
	if (agent == NULL)
		return ERR_PTR(-ENOMEM);
	agent->pub.snoop_handler = snoop_handler;
	agent->pub.recv_handler = recv_handler;
	agent->snoops = mad_snoop_flags;
	return agent_register(agent, qp_type);
}

struct ib_mad_agent *ib_redirect_mad_qp(struct ib_qp *qp, u8 rmpp_version,
					ib_mad_send_handler send_handler,
					ib_mad_recv_handler recv_handler, void *context)
{
	return ERR_PTR(-ENOSYS);
}

int ib_process_mad_wc(struct ib_mad_agent *mad_agent, struct ib_wc *wc)
{
	return -ENOSYS;
}

int ib_unregister_mad_agent(struct ib_mad_agent *mad_agent)
{
	struct mad_agent *agent = mad_agent_of(mad_agent);
	struct work_queue *queue = agent->port->cfg.queue;
	bool gone;

	lock_acquire(&mad_lock);
	agent->ending = true;
	gone = agent->port->gone;
	list_remove(&agent->node);
	list_for_each(send, &agent->sends, struct mad_send, node)
		mad_send_flush(send);
	if (ib_mad_kernel_rmpp_agent(mad_agent)) {
		mad_agent_hold(agent);
		work_push(&agent->end_work);
	}
	lock_release(&mad_lock);
	if (!gone)
		(void)agent_announce(agent, agent->port, false);
	if (queue->manual)
		work_queue_run(queue, clock_now_ns());
	lock_acquire(&mad_lock);
	while (agent->refs != 0)
		cond_wait(&agent_idle, &mad_lock);
	mad_port_put(agent->port);
	lock_release(&mad_lock);
	free(agent);
	return 0;
}

/* ---- references ------------------------------------------------------------------------------ */

void mad_agent_hold(struct mad_agent *agent)
{
	agent->refs++;
}

void mad_agent_put(struct mad_agent *agent)
{
	lock_acquire(&mad_lock);
	if (--agent->refs == 0 && agent->ending)
		cond_wake(&agent_idle);
	lock_release(&mad_lock);
}

/* ---- whose is it ----------------------------------------------------------------------------- */

static bool agent_wants(const struct mad_agent *agent, const struct ib_mad *mad)
{
	const struct ib_mad_hdr *hdr = &mad->mad_hdr;
	const struct ib_mad_reg_req *r = &agent->request;
	const struct ib_vendor_mad *vendor = (const void *)mad;

	return agent->unsolicited && r->mgmt_class == hdr->mgmt_class &&
	       r->mgmt_class_version == hdr->class_version &&
	       request_has_method(r, hdr->method) &&
	       (!mad_is_vendor_oui_class(hdr->mgmt_class) ||
		memcmp(r->oui, vendor->oui, sizeof(r->oui)) == 0);
}

struct mad_agent *mad_agent_for(struct mad_port *port, const struct ib_mad *mad)
{
	list_for_each(agent, &port->agents, struct mad_agent, node)
		if (agent_wants(agent, mad)) {
			mad_agent_hold(agent);
			return agent;
		}
	return NULL;
}

struct mad_agent *mad_agent_by_tid(struct mad_port *port, u32 hi_tid)
{
	list_for_each(agent, &port->agents, struct mad_agent, node)
		if (agent->pub.hi_tid == hi_tid && agent->snoops == 0) {
			mad_agent_hold(agent);
			return agent;
		}
	return NULL;
}

/* ---- snooping -------------------------------------------------------------------------------- */

/* The next snooping agent behind `last` (whose hold is given up), held. */
static struct mad_agent *snoop_next(struct mad_port *port, struct mad_agent *last, int flag)
{
	struct mad_agent *found = NULL;
	bool behind = last == NULL;

	lock_acquire(&mad_lock);
	list_for_each(agent, &port->agents, struct mad_agent, node) {
		if (behind && found == NULL && (agent->snoops & flag) != 0)
			found = agent;
		behind = behind || agent == last;
	}
	if (found != NULL)
		mad_agent_hold(found);
	lock_release(&mad_lock);
	if (last != NULL)
		mad_agent_put(last);
	return found;
}

void mad_snoop_receive(struct mad_port *port, struct ib_mad_recv_wc *recv)
{
	struct mad_agent *agent = NULL;

	while ((agent = snoop_next(port, agent, IB_MAD_SNOOP_RECVS)) != NULL)
		agent->pub.recv_handler(&agent->pub, recv);
}

void mad_snoop_send(struct mad_port *port, struct ib_mad_send_wc *wc)
{
	struct mad_agent *agent = NULL;

	while ((agent = snoop_next(port, agent, IB_MAD_SNOOP_SEND_COMPLETIONS)) != NULL)
		agent->pub.snoop_handler(&agent->pub, wc->send_buf, wc);
}

/* ---- for other rooms ------------------------------------------------------------------------- */

struct work_queue *mad_agent_queue(const struct ib_mad_agent *agent)
{
	return container_of(agent, const struct mad_agent, pub)->port->cfg.queue;
}

u32 mad_id_bits(const struct ib_mad_agent *agent)
{
	return agent->hi_tid >> MAD_SLOT_SHIFT << MAD_SLOT_SHIFT;
}

void mad_will_set(struct ib_mad_agent *agent, u32 index, const struct mad_will *will)
{
	const struct mad_port_config *cfg = &mad_agent_of(agent)->port->cfg;

	if (cfg->ops->will != NULL)
		cfg->ops->will(cfg->arg, index, will);
}

void mad_flush(struct ib_mad_agent *agent)
{
	work_queue_flush(mad_agent_of(agent)->port->cfg.queue);
}

int mad_member_set(struct ib_mad_agent *agent, const struct mad_member *member)
{
	const struct mad_port_config *cfg = &mad_agent_of(agent)->port->cfg;

	return cfg->ops->member == NULL ? -EOPNOTSUPP : cfg->ops->member(cfg->arg, member);
}

struct ib_mad_agent *mad_register_report_agent(struct ib_device *device, u8 port_num,
					       ib_mad_send_handler send_handler,
					       ib_mad_recv_handler recv_handler, void *context)
{
	struct mad_agent *agent = agent_new(device, port_num, context);

	if (agent == NULL)
		return ERR_PTR(-ENOMEM);
	agent->pub.send_handler = send_handler;
	agent->pub.recv_handler = recv_handler;
	agent->unsolicited = agent->subscribes = true;
	agent->request = (struct ib_mad_reg_req){ .mgmt_class = IB_MGMT_CLASS_SUBN_ADM,
						  .mgmt_class_version = 2,
						  .method_mask = { 1ul << IB_MGMT_METHOD_REPORT } };
	return agent_register(agent, IB_QPT_GSI);
}

int mad_listen(struct ib_mad_agent *agent, u64 service_id, u64 mask,
	       const struct ib_cm_compare_data *compare)
{
	const struct mad_port_config *cfg = &mad_agent_of(agent)->port->cfg;

	return cfg->ops->listen == NULL
		       ? 0
		       : cfg->ops->listen(cfg->arg, service_id, mask, compare, true);
}

void mad_unlisten(struct ib_mad_agent *agent, u64 service_id, u64 mask,
		  const struct ib_cm_compare_data *compare)
{
	const struct mad_port_config *cfg = &mad_agent_of(agent)->port->cfg;

	if (cfg->ops->listen != NULL)
		(void)cfg->ops->listen(cfg->arg, service_id, mask, compare, false);
}
