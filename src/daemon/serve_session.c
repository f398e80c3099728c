/* serve_session.c: connections: a process attaches or comes back to a new node, or a tool connects.
 * In:    HELLO, RESUME, BACK, TOOL, SUCCEED   Out: attached processes
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/service.h"

/* Opens the process' sockets and slots file and replies. On failure the connection is left for
 * proc_drop. */
static int serve_welcome(struct request *r)
{
	struct proto_hello_reply reply;
	struct proc *p = r->proc;
	int fds[4], err = event_open(p, &fds[0]);

	if (err < 0)
		return err;
	fds[1] = r->daemon->directory_fd;
	fds[2] = p->slots_fd;
	fds[3] = r->daemon->udp.fdstore.out;
	reply.process = p->process;
	if (r->daemon->recorder != NULL)
		event_capture(p); /* arrives before the process sends anything */
	service_reply(r, &reply.head, sizeof(reply), 0, fds, 4);
	close(fds[0]);
	log_debug("node", "process %llu attached: pid %d, %.16s", (unsigned long long)p->process,
		  (int)p->pid, p->who.command);
	return 0;
}

/* Gives the process its number and a description of the slots file. */
static int serve_enter(struct request *r, u64 process, const struct proto_process *who)
{
	struct proc *p = r->proc;
	int err;

	p->slots_fd = slots_describe(&r->daemon->slots);
	if (p->slots_fd < 0)
		return p->slots_fd;
	err = proc_attach(p, process, who, r->m);
	return err < 0 ? err : serve_welcome(r);
}

static int serve_hello(struct request *r)
{
	return serve_enter(r, slots_next_process(&r->daemon->slots), &r->q->hello.who);
}

/* The last claim is made, or will not be. */
static void serve_end_claims(struct proc *p)
{
	if (service_claim(p, PROTO_SERVICE_SESSION))
		p->daemon->resuming--;
	p->claims_due = 0;
}

static int serve_resume(struct request *r)
{
	const struct proto_resume *q = &r->q->resume;
	int err;

	if (q->process == 0 || q->process == UINT64_MAX)
		return -EINVAL;
	/* the end of its old connection was not seen yet */
	if (proc_find(r->daemon, q->process) != NULL)
		return -EAGAIN;
	r->proc->claims_due = ~0u;
	r->daemon->resuming++;
	route_show(r->daemon);
	err = serve_enter(r, q->process, &q->who);
	if (err < 0)
		serve_end_claims(r->proc);
	return err;
}

static int serve_back(struct request *r)
{
	serve_end_claims(r->proc);
	route_show(r->daemon);
	service_status(r, 0);
	return 0;
}

/* Refused, the connection goes on: HELLO or RESUME follows. */
static int serve_succeed(struct request *r)
{
	int err = succession_promise(r->daemon, r->proc, r->q->head.serial, r->q->succeed.limit);

	if (err < 0)
		service_status(r, err);
	return 0;
}

static int serve_tool(struct request *r)
{
	r->proc->kind = PROC_TOOL;
	service_status(r, 0);
	return 0;
}

static const struct service_rule serve_session_rules[] = {
	[PROTO_OP(PROTO_HELLO)] = { serve_hello, sizeof(struct proto_hello), 3,
				    SERVICE_FROM(PROC_SILENT) },
	[PROTO_OP(PROTO_RESUME)] = { serve_resume, sizeof(struct proto_resume), 3,
				     SERVICE_FROM(PROC_SILENT) },
	[PROTO_OP(PROTO_SUCCEED)] = { serve_succeed, sizeof(struct proto_succeed), 0,
				      SERVICE_FROM(PROC_SILENT) },
	[PROTO_OP(PROTO_TOOL)] = { serve_tool, sizeof(struct proto_plain), 0,
				   SERVICE_FROM(PROC_SILENT) },
	[PROTO_OP(PROTO_BACK)] = { serve_back, sizeof(struct proto_plain), 0,
				   SERVICE_FROM(PROC_ATTACHED) },
};

const struct service session_service = {
	.rules = serve_session_rules,
	.rule_count = ARRAY_LEN(serve_session_rules),
	.release = serve_end_claims,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
