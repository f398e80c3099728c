/* agent.c: the agents of a file.
 * In:    registrations of the program    Out: agents of the MAD layer
 * Runs:  the program's threads; whoever removes the device    Locks: umad_file.lock, not held
 * across calls of the MAD layer that block
 */
#include <errno.h>
#include <string.h>

#include "umad/umad_priv.h"

static int umad_agent_reserve(struct umad_file *f)
{
	int id = -ENOMEM;

	lock_acquire(&f->lock);
	if (f->dead)
		id = -EIO;
	for (u32 i = 0; i < UMAD_AGENTS && id == -ENOMEM; i++)
		if (f->agents[i].state == UMAD_AGENT_FREE)
			id = (int)i;
	if (id >= 0)
		f->agents[id].state = UMAD_AGENT_MAKING;
	lock_release(&f->lock);
	return id;
}

static struct ib_mad_agent *umad_agent_make(struct umad_file *f, struct umad_agent *agent,
					    const struct umad_agent_attr *attr)
{
	struct ib_mad_reg_req req = { .mgmt_class = attr->mgmt_class,
				      .mgmt_class_version = attr->mgmt_class_version };
	u8 rmpp_version = attr->rmpp_version;

	memcpy(req.oui, attr->oui, sizeof(req.oui));
	memcpy(req.method_mask, attr->method_mask, sizeof(req.method_mask));
	/* the class must have RMPP, also where the program does it itself */
	if (attr->user_rmpp && rmpp_version == IB_MGMT_RMPP_VERSION &&
	    (attr->mgmt_class == 0 || ib_is_mad_class_rmpp(attr->mgmt_class)))
		rmpp_version = 0;
	return ib_register_mad_agent(f->device, f->port_num, attr->smi ? IB_QPT_SMI : IB_QPT_GSI,
				     attr->mgmt_class != 0 ? &req : NULL, rmpp_version,
				     umad_send_done, umad_received, agent);
}

/* False: the device has gone meanwhile. */
static bool umad_agent_enter(struct umad_file *f, struct umad_agent *agent,
			     struct ib_mad_agent *mad)
{
	bool alive;

	lock_acquire(&f->lock);
	alive = !f->dead && !IS_ERR(mad);
	agent->mad = alive ? mad : NULL;
	agent->state = alive ? UMAD_AGENT_READY : UMAD_AGENT_FREE;
	cond_wake(&f->calm);
	lock_release(&f->lock);
	return alive;
}

int umad_file_register(struct umad_file *f, const struct umad_agent_attr *attr)
{
	int id = umad_agent_reserve(f);
	struct ib_mad_agent *mad;

	if (id < 0)
		return id;
	mad = umad_agent_make(f, &f->agents[id], attr);
	if (umad_agent_enter(f, &f->agents[id], mad))
		return id;
	if (IS_ERR(mad))
		return (int)PTR_ERR(mad);
	ib_unregister_mad_agent(mad);
	umad_tell_end(&f->agents[id]);
	return -EIO;
}

/* Takes the agent out of use and waits until no call sends for it. NULL: there is none. */
static struct ib_mad_agent *umad_agent_take(struct umad_file *f, u32 id) REQUIRES(f->lock)
{
	struct umad_agent *agent = &f->agents[id];

	if (agent->state != UMAD_AGENT_READY)
		return NULL;
	agent->state = UMAD_AGENT_ENDING;
	while (agent->users != 0)
		cond_wait(&f->calm, &f->lock);
	return agent->mad;
}

static int umad_agent_end(struct umad_file *f, u32 id)
{
	struct ib_mad_agent *mad;

	lock_acquire(&f->lock);
	mad = umad_agent_take(f, id);
	lock_release(&f->lock);
	if (mad == NULL)
		return -EINVAL;
	ib_unregister_mad_agent(mad);
	umad_tell_end(&f->agents[id]);
	lock_acquire(&f->lock);
	f->agents[id].state = UMAD_AGENT_FREE;
	f->agents[id].mad = NULL;
	cond_wake(&f->calm);
	lock_release(&f->lock);
	return 0;
}

int umad_file_unregister(struct umad_file *f, u32 id)
{
	return id < UMAD_AGENTS ? umad_agent_end(f, id) : -EINVAL;
}

void umad_agents_end(struct umad_file *f)
{
	for (u32 id = 0; id < UMAD_AGENTS; id++)
		(void)umad_agent_end(f, id);
	/* other threads register or end some */
	lock_acquire(&f->lock);
	for (u32 id = 0; id < UMAD_AGENTS; id++)
		while (f->agents[id].state != UMAD_AGENT_FREE)
			cond_wait(&f->calm, &f->lock);
	lock_release(&f->lock);
}
