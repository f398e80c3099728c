/* serve_fabric.c: the InfiniBand fabric: processes enter its hosts, tools bring it up, change it
 * and take it down.
 * In:    FABRIC_ENTER, _ISSM, _MEMBER, _UP, _DOWN, _COMMAND, _SHOW, _HOST
 * Out:   MAD channels; the fabric
 * Runs:  the daemon's only thread                              Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/service.h"
#include "daemon/fabric/smd.h"

/* ---- processes ------------------------------------------------------------------------------- */

static int serve_fabric_enter(struct request *r)
{
	const struct proto_fabric_enter *q = &r->q->fabric_enter;
	struct proto_fabric_entered reply = { .ca_count = 0 };
	struct proc *p = r->proc;
	struct fabricd *f = r->daemon->fabric;
	int fds[3], err;

	(void)service_claim(p, PROTO_SERVICE_FABRIC);
	if (memchr(q->host, '\0', sizeof(q->host)) == NULL)
		return -EINVAL;
	err = madchannel_enter(p, q->host, &fds[2]);
	if (err < 0)
		return err;
	fds[0] = f->map_read_fd;
	fds[1] = f->counters_fd;
	reply.ca_count = p->host->at.ca_count;
	memcpy(reply.ca, p->host->at.ca, sizeof(reply.ca));
	service_reply(r, &reply.head, sizeof(reply), 0, fds, 3);
	close(fds[2]);
	if (reply.head.status < 0)
		madchannel_leave(p);
	return 0;
}

static int serve_fabric_issm(struct request *r)
{
	int err = smhold_take(r->proc, r->q->fabric_issm.port, r->m->fds[0]);

	if (err == 0)
		service_status(r, 0);
	return err;
}

static int serve_fabric_member(struct request *r)
{
	int err = r->daemon->fabric == NULL ? -ENODEV : sagroup_set(r->proc, &r->q->fabric_member);

	if (err == 0)
		service_status(r, 0);
	return err;
}

static void serve_fabric_release(struct proc *p)
{
	madchannel_leave(p);
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* Reads the file into memory with a zero behind it: the tool may change it meanwhile. */
static char *serve_fabric_text(int fd, size_t *size, int *err)
{
	struct stat st;
	char *text;
	ssize_t n;

	*err = -EINVAL;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > TOPO_TEXT_MAX)
		return NULL;
	*err = -ENOMEM;
	text = malloc((size_t)st.st_size + 1);
	if (text == NULL)
		return NULL;
	n = pread(fd, text, (size_t)st.st_size, 0);
	*size = n < 0 ? 0 : (size_t)n;
	text[*size] = '\0';
	return text;
}

static int serve_fabric_up(struct request *r)
{
	const struct proto_fabric_up *q = &r->q->fabric_up;
	size_t size;
	char *text;
	int err;

	if (memchr(q->source, '\0', sizeof(q->source)) == NULL)
		return -EINVAL;
	text = serve_fabric_text(r->m->fds[0], &size, &err);
	if (text == NULL)
		return err;
	err = fabricd_up(r->daemon, text, size, q->source, q->flags);
	free(text);
	if (err == 0)
		service_status(r, 0);
	return err;
}

static int serve_fabric_down(struct request *r)
{
	if (r->daemon->fabric == NULL)
		return -ENODEV;
	if (r->daemon->fabric->processes > 0 && r->q->fabric_down.force == 0)
		return -EBUSY;
	fabricd_down(r->daemon, false);
	service_status(r, 0);
	return 0;
}

static int serve_fabric_host(struct request *r)
{
	const struct proto_fabric_enter *q = &r->q->fabric_enter;
	struct fabricd *f = r->daemon->fabric;
	int err = f == NULL ? -ENODEV : -ENOENT;

	if (f != NULL && memchr(q->host, '\0', sizeof(q->host)) != NULL)
		err = hosttree_show(f, q->host);
	if (err == 0)
		service_status(r, 0);
	return err;
}

/* A switch that restarts takes its subnet manager with it, which then looks at all anew. */
static int serve_fabric_reboot(struct fabricd *f, u32 node)
{
	struct fabric_node_attr n;
	int err = fabric_node_reboot(f->fabric, node);

	if (err == 0 && fabric_node_read(fabric_view(f->fabric), node, &n) == 0)
		smd_port_changed(f->smd, n.first_port);
	return err;
}

static int serve_fabric_obey(struct fabricd *fabricd, const struct proto_fabric_command *q)
{
	struct fabric *f = fabricd->fabric;

	switch (q->verb) {
	case PROTO_FABRIC_LINK:
		return fabric_link_set(f, q->index, q->value != 0);
	case PROTO_FABRIC_REBOOT:
		return serve_fabric_reboot(fabricd, q->index);
	case PROTO_FABRIC_ERROR:
		if (q->counter >= FABRIC_ERRORS)
			return -EINVAL;
		return fabric_port_error(f, q->index, (enum fabric_error)q->counter, q->value);
	}
	return -EINVAL;
}

static int serve_fabric_command(struct request *r)
{
	struct fabricd *f = r->daemon->fabric;
	int err = f == NULL ? -ENODEV : serve_fabric_obey(f, &r->q->fabric_command);

	if (err == 0)
		service_status(r, 0);
	return err;
}

static int serve_fabric_show(struct request *r)
{
	struct proto_fabric_show reply = { .processes = 0 };
	const struct fabricd *f = r->daemon->fabric;
	struct sm_report sm;
	int fds[2];

	if (f == NULL)
		return -ENODEV;
	memcpy(reply.source, f->source, sizeof(reply.source));
	reply.up_ms = (clock_now_ns() - f->since_ns) / NS_PER_MS;
	reply.sent = f->counts.sent;
	reply.received = f->counts.received;
	reply.unclaimed = f->counts.unclaimed;
	reply.overrun = f->counts.overrun;
	reply.malformed = f->counts.malformed;
	reply.processes = f->processes;
	smd_read(f->smd, &sm);
	reply.sm_state = f->smd == NULL ? PROTO_FABRIC_SM_NONE : (u32)sm.state;
	reply.sm_busy = sm.busy;
	reply.sm_sweeps = sm.sweeps;
	reply.sm_smps = sm.smps;
	reply.sm_queries = sm.queries;
	fds[0] = f->map_read_fd;
	fds[1] = f->counters_fd;
	service_reply(r, &reply.head, sizeof(reply), 0, fds, 2);
	return 0;
}

static const struct service_rule serve_fabric_rules[] = {
	[PROTO_OP(PROTO_FABRIC_ENTER)] = { serve_fabric_enter, sizeof(struct proto_fabric_enter), 0,
					   SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_FABRIC_ISSM)] = { serve_fabric_issm, sizeof(struct proto_fabric_issm), 1,
					  SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_FABRIC_MEMBER)] = { serve_fabric_member, sizeof(struct proto_fabric_member),
					    0, SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_FABRIC_UP)] = { serve_fabric_up, sizeof(struct proto_fabric_up), 1,
					SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_FABRIC_DOWN)] = { serve_fabric_down, sizeof(struct proto_fabric_down), 0,
					  SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_FABRIC_COMMAND)] = { serve_fabric_command,
					     sizeof(struct proto_fabric_command), 0,
					     SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_FABRIC_HOST)] = { serve_fabric_host, sizeof(struct proto_fabric_enter), 0,
					  SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_FABRIC_SHOW)] = { serve_fabric_show, sizeof(struct proto_plain), 0,
					  SERVICE_FROM(PROC_TOOL) },
};

const struct service fabric_service = {
	.rules = serve_fabric_rules,
	.rule_count = ARRAY_LEN(serve_fabric_rules),
	.release = serve_fabric_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
