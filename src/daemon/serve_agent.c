/* serve_agent.c: which process receives the unsolicited MADs of a class: one table for each QP0 and
 * QP1, as an adapter's kernel has it.
 * In:    AGENT, AGENT_END                     Out: entries of the directory
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "node/agent.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/service.h"

/* So long a new node waits for the agents of processes that it has not heard of: a process that is
 * stopped comes too late. */
#define AGENT_SETTLE_NS NS_PER_S

static bool serve_agent_has_device(const struct daemon *d, u64 device)
{
	/* of the fabric: each process names CAs of its own host only */
	if (device >> 63 != 0)
		return d->fabric != NULL;
	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (d->directory->devices[i].id == device)
			return device != 0;
	return false;
}

static void serve_agent_trim(struct directory *n)
{
	while (n->agents > 0 && n->agent[n->agents - 1].process == 0)
		n->agents--;
}

/* A device that is gone takes its agents with it. */
static void serve_agent_release_devices(struct daemon *d)
{
	struct directory *n = d->directory;

	directory_write_begin(n);
	for (u32 i = 0; i < n->agents; i++)
		if (!serve_agent_has_device(d, n->agent[i].agent.device))
			n->agent[i] = (struct directory_agent){ .process = 0 };
	serve_agent_trim(n);
	directory_write_end(n);
}

static bool serve_agent_is_taken(const struct directory *n, const struct node_agent *a)
{
	for (u32 i = 0; i < n->agents; i++)
		if (n->agent[i].process != 0 && node_agent_overlaps(&n->agent[i].agent, a))
			return true;
	return false;
}

/* A free entry, or NULL. The directory is being written. */
static struct directory_agent *serve_agent_free_entry(struct directory *n)
{
	for (u32 i = 0; i < n->agents; i++)
		if (n->agent[i].process == 0)
			return &n->agent[i];
	return n->agents < NODE_AGENTS ? &n->agent[n->agents++] : NULL;
}

static int serve_agent_enter(struct request *r)
{
	const struct proto_agent *q = &r->q->agent;
	struct directory *n = r->daemon->directory;
	struct directory_agent *entry;

	directory_write_begin(n);
	entry = serve_agent_free_entry(n);
	if (entry != NULL)
		*entry = (struct directory_agent){ .agent = q->agent,
						   .process = r->proc->process,
						   .slot = q->slot };
	directory_write_end(n);
	return entry != NULL ? 0 : -ENOSPC;
}

static int serve_agent(struct request *r)
{
	const struct proto_agent *q = &r->q->agent;
	struct daemon *d = r->daemon;
	int err;

	if (!node_agent_is_valid(&q->agent))
		return -EINVAL;
	if (q->slot >= NODE_SLOTS || slots_owner(&d->slots, q->slot) != r->proc->process)
		return -ENOENT;
	if (!serve_agent_has_device(d, q->agent.device) ||
	    (q->agent.device >> 63 != 0 && !madchannel_has_device(r->proc, q->agent.device)))
		return -ENODEV;
	serve_agent_release_devices(d);
	if (serve_agent_is_taken(d->directory, &q->agent))
		return -EINVAL;
	if (!(q->held != 0 && service_claim_is_due(r->proc, PROTO_SERVICE_AGENT)) &&
	    clock_now_ns() - d->started_ns < AGENT_SETTLE_NS && route_is_incomplete(d))
		return -EAGAIN;
	if (q->held == 0)
		(void)service_claim(r->proc, PROTO_SERVICE_AGENT);
	err = serve_agent_enter(r);
	if (err == 0)
		service_status(r, 0);
	return err;
}

static int serve_agent_end(struct request *r)
{
	const struct proto_agent *q = &r->q->agent;
	struct directory *n = r->daemon->directory;
	u32 i = 0;

	while (i < n->agents && (n->agent[i].process != r->proc->process ||
				 memcmp(&n->agent[i].agent, &q->agent, sizeof(q->agent)) != 0))
		i++;
	if (i == n->agents)
		return -ENOENT;
	directory_write_begin(n);
	n->agent[i] = (struct directory_agent){ .process = 0 };
	serve_agent_trim(n);
	directory_write_end(n);
	service_status(r, 0);
	return 0;
}

static void serve_agent_release(struct proc *p)
{
	struct directory *n = p->daemon->directory;

	if (n->agents == 0)
		return;
	directory_write_begin(n);
	for (u32 i = 0; i < n->agents; i++)
		if (n->agent[i].process == p->process)
			n->agent[i] = (struct directory_agent){ .process = 0 };
	serve_agent_trim(n);
	directory_write_end(n);
}

static const struct service_rule serve_agent_rules[] = {
	[PROTO_OP(PROTO_AGENT)] = { serve_agent, sizeof(struct proto_agent), 0,
				    SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_AGENT_END)] = { serve_agent_end, sizeof(struct proto_agent), 0,
					SERVICE_FROM(PROC_ATTACHED) },
};

const struct service agent_service = {
	.rules = serve_agent_rules,
	.rule_count = ARRAY_LEN(serve_agent_rules),
	.release = serve_agent_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
