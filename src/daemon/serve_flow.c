/* serve_flow.c: flow rules of raw packet queue pairs, on the directory: a process receives the
 * frames of its interface itself, and leaves those that a rule of another process takes.
 * In:    FLOW, FLOW_END                       Out: entries of the directory
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>

#include "daemon/service.h"

static bool serve_flow_has_device(const struct daemon *d, u64 device)
{
	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (d->directory->devices[i].id == device)
			return device != 0;
	return false;
}

static bool serve_flow_is_valid(const struct ether_rule *rule)
{
	return rule->rank >= ETHER_RANK_SNIFFER && rule->rank <= ETHER_RANK_ALL &&
	       rule->passes <= 1 && rule->drops <= 1;
}

/* The directory is being written from begin to end. */
static void serve_flow_begin(struct directory *n)
{
	directory_write_begin(n);
}

static void serve_flow_end(struct directory *n)
{
	while (n->flows > 0 && n->flow[n->flows - 1].process == 0)
		n->flows--;
	n->flow_generation++;
	directory_write_end(n);
}

/* Entries are found again by `free_flow`, below which all are in use. */
static int serve_flow_enter(struct request *r, u64 serial)
{
	struct daemon *d = r->daemon;
	struct directory *n = d->directory;

	while (d->free_flow < NODE_FLOWS && n->flow[d->free_flow].process != 0)
		d->free_flow++;
	if (d->free_flow == NODE_FLOWS)
		return -ENOSPC;
	serve_flow_begin(n);
	n->flow[d->free_flow] = (struct directory_flow){ .flow = r->q->flow.flow,
							 .process = r->proc->process };
	n->flow[d->free_flow].flow.serial = serial;
	n->flows = MAX(n->flows, d->free_flow + 1);
	serve_flow_end(n);
	return 0;
}

/* A process that comes back keeps its rule's number. Numbers of a new node are higher than those of
 * the last one, for they begin with the time. */
static u64 serve_flow_serial(struct request *r)
{
	const struct proto_flow *q = &r->q->flow;
	struct daemon *d = r->daemon;

	if (q->held != 0 && service_claim_is_due(r->proc, PROTO_SERVICE_FLOW))
		return q->flow.serial;
	d->flow_serial = MAX(d->flow_serial, d->started_ns) + 1;
	return d->flow_serial;
}

static int serve_flow(struct request *r)
{
	const struct proto_flow *q = &r->q->flow;
	struct proto_flow_reply reply;
	int err;

	if (!serve_flow_is_valid(&q->flow.rule))
		return -EINVAL;
	if (!serve_flow_has_device(r->daemon, q->flow.device))
		return -ENODEV;
	if (q->held == 0)
		(void)service_claim(r->proc, PROTO_SERVICE_FLOW);
	reply.serial = serve_flow_serial(r);
	err = serve_flow_enter(r, reply.serial);
	if (err == 0)
		service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return err;
}

static void serve_flow_free(struct daemon *d, u32 index)
{
	d->directory->flow[index] = (struct directory_flow){ .process = 0 };
	d->free_flow = MIN(d->free_flow, index);
}

static int serve_flow_remove(struct request *r)
{
	struct directory *n = r->daemon->directory;
	u64 serial = r->q->flow.flow.serial;

	for (u32 i = 0; i < n->flows; i++) {
		if (n->flow[i].process != r->proc->process || n->flow[i].flow.serial != serial)
			continue;
		serve_flow_begin(n);
		serve_flow_free(r->daemon, i);
		serve_flow_end(n);
		service_status(r, 0);
		return 0;
	}
	return -ENOENT;
}

static void serve_flow_release(struct proc *p)
{
	struct directory *n = p->daemon->directory;

	if (n->flows == 0)
		return;
	serve_flow_begin(n);
	for (u32 i = 0; i < n->flows; i++)
		if (n->flow[i].process == p->process)
			serve_flow_free(p->daemon, i);
	serve_flow_end(n);
}

static const struct service_rule serve_flow_rules[] = {
	[PROTO_OP(PROTO_FLOW)] = { serve_flow, sizeof(struct proto_flow), 0,
				   SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_FLOW_END)] = { serve_flow_remove, sizeof(struct proto_flow), 0,
				       SERVICE_FROM(PROC_ATTACHED) },
};

const struct service flow_service = {
	.rules = serve_flow_rules,
	.rule_count = ARRAY_LEN(serve_flow_rules),
	.release = serve_flow_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
