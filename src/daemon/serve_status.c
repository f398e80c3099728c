/* serve_status.c: requests of tools about the whole node.
 * In:    STATUS, PROCESSES, BOARD, NOTICE, CONNECTIONS, STOP      Out: replies; the node's end
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/fabric/fabricd.h"
#include "daemon/service.h"
#include "node/will.h"

enum { SERVE_WILLS = 256 /* looked at for one request */, SERVE_TRIES = 3 };

static int serve_node_status(struct request *r)
{
	struct daemon *d = r->daemon;
	struct proto_status_reply reply;
	u64 idle_ms = d->options.idle_ns / NS_PER_MS;

	memset(&reply, 0, sizeof(reply));
	reply.pid = getpid();
	reply.attached = d->attached;
	reply.pairs = d->pairs.count;
	reply.members = d->member_count;
	for (u32 slot = SLOTS_FIRST; slot < NODE_SLOTS; slot++)
		reply.slots_taken += slots_owner(&d->slots, slot) != 0;
	reply.idle_ms = idle_ms > UINT32_MAX ? UINT32_MAX : (u32)idle_ms;
	reply.uptime_ms = (clock_now_ns() - d->started_ns) / NS_PER_MS;
	memcpy(reply.node, d->options.node, sizeof(reply.node));
	memcpy(reply.folder, d->folder.path, sizeof(d->folder.path));
	reply.config = d->directory->devices[0];
	service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static void serve_fill_record(struct proc *p, struct proto_record *out)
{
	struct daemon *d = p->daemon;

	memset(out, 0, sizeof(*out));
	out->process = p->process;
	out->pid = p->pid;
	out->slot_count = slots_count(&d->slots, p->process, out->slots, PROTO_RECORD_SLOTS);
	out->pair_count = pairs_count(&d->pairs, p->process);
	out->age_ms = (clock_now_ns() - p->since_ns) / NS_PER_MS;
	for (u32 i = 0; i < d->directory->members; i++)
		out->member_count += d->directory->member[i].process == p->process;
	memcpy(out->command, p->who.command, sizeof(out->command));
	if (p->host != NULL)
		memcpy(out->host, p->host->at.name, sizeof(out->host));
}

/* Returns the attached process with the least number above `after`. */
static struct proc *serve_next_process(struct daemon *d, u64 after)
{
	struct proc *best = NULL;

	list_for_each(p, &d->procs, struct proc, node)
		if (p->kind == PROC_ATTACHED && p->process > after &&
		    (best == NULL || p->process < best->process))
			best = p;
	return best;
}

static int serve_processes(struct request *r)
{
	struct proto_processes_reply reply;
	struct proc *p = serve_next_process(r->daemon, r->q->processes.after);

	memset(&reply, 0, sizeof(reply));
	while (p != NULL && reply.count < PROTO_RECORDS) {
		serve_fill_record(p, &reply.records[reply.count++]);
		p = serve_next_process(r->daemon, p->process);
	}
	reply.more = p != NULL;
	service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static int serve_board(struct request *r)
{
	struct proc *p = proc_find(r->daemon, r->q->processes.after);
	struct proto_plain reply;

	if (p == NULL)
		return -ENOENT;
	service_reply(r, &reply.head, sizeof(reply), 0, &p->board_fd, 1);
	return 0;
}

static int serve_directory(struct request *r)
{
	struct proto_plain reply;

	service_reply(r, &reply.head, sizeof(reply), 0, &r->daemon->directory_fd, 1);
	return 0;
}

/* The connection of a will as one state of it. The process writes the half that is not in force, so
 * the half was whole if it is in force still. */
static bool serve_read_connection(int fd, u32 index, struct proto_connection *out)
{
	off_t at = (off_t)(offsetof(struct will_file, slots) + index * sizeof(struct will_slot));
	const struct node_will *will;
	struct will_slot slot;
	u32 word;

	for (int i = 0; i < SERVE_TRIES; i++) {
		if (pread(fd, &slot, sizeof(slot), at) != (ssize_t)sizeof(slot) ||
		    (slot.word != 1 && slot.word != 2))
			return false;
		if (pread(fd, &word, sizeof(word), at) != (ssize_t)sizeof(word))
			return false;
		if (word == slot.word)
			break;
	}
	will = &slot.half[slot.word - 1];
	memcpy(out->sgid, will->sgid, sizeof(out->sgid));
	memcpy(out->dgid, will->dgid, sizeof(out->dgid));
	out->connection = will->connection;
	return true;
}

static int serve_connections(struct request *r)
{
	const struct proto_connections *q = &r->q->connections;
	struct proc *p = proc_find(r->daemon, q->process);
	struct proto_connections_reply reply;
	u32 used, at = q->from, end;

	if (p == NULL)
		return -ENOENT;
	memset(&reply, 0, sizeof(reply));
	used = p->will_fd >= 0 ? will_used(p->will_fd) : 0;
	end = at < used ? MIN(used, at + SERVE_WILLS) : at;
	for (; at < end && reply.count < PROTO_CONNECTION_RECORDS; at++)
		reply.count += serve_read_connection(p->will_fd, at, &reply.records[reply.count]);
	reply.next = at < used ? at : 0;
	service_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static int serve_stop(struct request *r)
{
	if (r->daemon->fabric != NULL && !r->q->stop.force)
		return -ENOTEMPTY;
	if (r->daemon->attached > 0 && !r->q->stop.force)
		return -EBUSY;
	service_status(r, 0);
	daemon_stop(r->daemon, "told to stop");
	return 0;
}

static const struct service_rule serve_status_rules[] = {
	[PROTO_OP(PROTO_STATUS)] = { serve_node_status, sizeof(struct proto_plain), 0,
				     SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_PROCESSES)] = { serve_processes, sizeof(struct proto_processes), 0,
					SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_BOARD)] = { serve_board, sizeof(struct proto_processes), 0,
				    SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_DIRECTORY)] = { serve_directory, sizeof(struct proto_plain), 0,
					SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_CONNECTIONS)] = { serve_connections, sizeof(struct proto_connections), 0,
					  SERVICE_FROM(PROC_TOOL) },
	[PROTO_OP(PROTO_STOP)] = { serve_stop, sizeof(struct proto_stop), 0,
				   SERVICE_FROM(PROC_TOOL) },
};

const struct service status_service = {
	.rules = serve_status_rules,
	.rule_count = ARRAY_LEN(serve_status_rules),
};
