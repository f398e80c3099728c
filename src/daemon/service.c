/* service.c: finds a packet's service, judges the packet by the service's table, and sends the
 * reply.
 * In:    packets of any content               Out: calls of services, replies
 * Runs:  the daemon's only thread             Locks: none
 */
#include "daemon/service.h"

#include <errno.h>

void service_reply(struct request *r, struct proto_head *reply, size_t size, int status,
		   const int *fds, int fd_count)
{
	int err;

	*reply = (struct proto_head){ .magic = PROTO_MAGIC,
				      .version = PROTO_VERSION,
				      .type = r->q->head.type,
				      .serial = r->q->head.serial,
				      .status = status };
	err = message_send(r->proc->control.fd, reply, size, fds, fd_count);
	/* the kernel limits descriptors in flight: reply with that error, without them */
	if (err == -ETOOMANYREFS && fd_count > 0) {
		reply->status = -ENFILE;
		err = message_send(r->proc->control.fd, reply, sizeof(*reply), NULL, 0);
	}
	r->answered = true;
	r->broken = err < 0;
}

void service_status(struct request *r, int status)
{
	struct proto_plain reply;

	service_reply(r, &reply.head, sizeof(reply), status, NULL, 0);
}

static const struct service *const services[PROTO_SERVICES] = {
	[PROTO_SERVICE_SESSION] = &session_service, [PROTO_SERVICE_SLOT] = &slot_service,
	[PROTO_SERVICE_ADDRESS] = &address_service, [PROTO_SERVICE_PAIR] = &pair_service,
	[PROTO_SERVICE_MCAST] = &mcast_service,	    [PROTO_SERVICE_DEVICE] = &device_service,
	[PROTO_SERVICE_LISTEN] = &listen_service,   [PROTO_SERVICE_CAPTURE] = &capture_service,
	[PROTO_SERVICE_STATUS] = &status_service,   [PROTO_SERVICE_WILL] = &will_service,
	[PROTO_SERVICE_AGENT] = &agent_service,	    [PROTO_SERVICE_FLOW] = &flow_service,
	[PROTO_SERVICE_FABRIC] = &fabric_service,
};

bool service_claim_is_due(const struct proc *p, enum proto_service service)
{
	return (p->claims_due & 1u << service) != 0;
}

bool service_claim(struct proc *p, enum proto_service service)
{
	bool due = service_claim_is_due(p, service);

	p->claims_due &= ~(1u << service);
	return due;
}

void service_release(struct proc *p)
{
	if (p->kind == PROC_ATTACHED && p->daemon->ending)
		return;
	/* backwards: a pair ends while its process still has its slots */
	for (u32 i = PROTO_SERVICES; i-- > 0;)
		if (services[i] != NULL && (services[i]->release_of & SERVICE_FROM(p->kind)))
			services[i]->release(p);
}

/* Returns the rule for a type; NULL: no such request. */
static const struct service_rule *service_rule_of(u16 type)
{
	u32 number = type / PROTO_OPS, op = PROTO_OP(type);
	const struct service *s = number < PROTO_SERVICES ? services[number] : NULL;

	return s != NULL && op < s->rule_count ? &s->rules[op] : NULL;
}

static const struct service_rule *service_find_rule(const struct proc *p,
						    const union proto_request *q,
						    const struct message *m)
{
	const struct service_rule *rule = service_rule_of(q->head.type);

	if (rule == NULL || m->size != rule->size || !(rule->from & SERVICE_FROM(p->kind)))
		return NULL;
	if (!m->fds_lost && m->fd_count != rule->fds)
		return NULL;
	return rule;
}

bool service_handle(struct proc *p, const union proto_request *q, struct message *m)
{
	struct request r = { .proc = p, .daemon = p->daemon, .q = q, .m = m };
	const struct service_rule *rule;
	int err;

	if (m->size < sizeof(q->head) || q->head.magic != PROTO_MAGIC)
		return false;
	if (q->head.version != PROTO_VERSION) {
		service_status(&r, -EPROTO);
		return false;
	}
	rule = service_find_rule(p, q, m);
	if (rule == NULL)
		return false;
	err = m->fds_lost ? -EMFILE : rule->fn(&r);
	/* the daemon itself is out of descriptors, not the process */
	if (err == -EMFILE)
		err = -ENFILE;
	if (err < 0 && !r.answered)
		service_status(&r, err);
	/* a connection whose first request failed starts anew */
	return !r.broken && (err == 0 || !(rule->from & SERVICE_FROM(PROC_SILENT)));
}
