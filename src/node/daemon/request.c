/* request.c: what processes and tools ask, judged by one table and answered one by one.
 * In:    packets of any content               Out: replies; slots, pairs, memberships
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/daemon/daemon_priv.h"

/* One packet with all that belongs to it. */
struct request {
	struct proc *proc;
	struct daemon *daemon;
	const union proto_request *q;
	struct message *m;
	bool answered;
	bool broken; /* the reply could not be sent: the process does not read */
};

static void request_reply(struct request *r, struct proto_head *reply, size_t size, int status,
			  const int *fds, int fd_count)
{
	int err;

	*reply = (struct proto_head){ .magic = PROTO_MAGIC,
				      .version = PROTO_VERSION,
				      .type = r->q->head.type,
				      .serial = r->q->head.serial,
				      .status = status };
	err = message_send(r->proc->control.fd, reply, size, fds, fd_count);
	/* descriptors in flight are limited: say so instead of handing them over */
	if (err == -ETOOMANYREFS && fd_count > 0) {
		reply->status = -ENFILE;
		err = message_send(r->proc->control.fd, reply, sizeof(*reply), NULL, 0);
	}
	r->answered = true;
	r->broken = err < 0;
}

static void request_status(struct request *r, int status)
{
	struct proto_plain reply;

	request_reply(r, &reply.head, sizeof(reply), status, NULL, 0);
}

/* ---- attaching ---- */

/* Opens the process' sockets and slots file and answers. On failure the connection is left for
 * proc_drop. */
static int request_welcome(struct request *r, struct proto_hello_reply *reply)
{
	struct proc *p = r->proc;
	int fds[4], err = event_open(p, &fds[0]);

	if (err < 0)
		return err;
	fds[1] = r->daemon->notice_fd;
	fds[2] = p->slots_fd;
	fds[3] = r->daemon->udp.keeper.out;
	reply->process = p->process;
	if (r->daemon->recorder != NULL)
		event_capture(p); /* is there before the process sends anything */
	request_reply(r, &reply->head, sizeof(*reply), 0, fds, 4);
	close(fds[0]);
	log_debug("node", "process %llu attached: pid %d, %.16s", (unsigned long long)p->process,
		  (int)p->pid, p->who.command);
	return 0;
}

static int request_hello(struct request *r)
{
	struct proto_hello_reply reply;
	struct proc *p = r->proc;
	int err;

	memset(&reply, 0, sizeof(reply));
	p->slots_fd = slots_describe(&r->daemon->slots);
	if (p->slots_fd < 0)
		return p->slots_fd;
	err = proc_attach(p, slots_next_process(&r->daemon->slots), &r->q->hello.who, r->m);
	return err < 0 ? err : request_welcome(r, &reply);
}

/* The process' slots: those of its own description if it is of our file, else as many as are free
 * in ours. */
static int request_claim_slots(struct request *r, struct proto_hello_reply *reply)
{
	const struct proto_resume *q = &r->q->resume;
	struct proc *p = r->proc;
	struct slots *s = &r->daemon->slots;

	p->slots_fd = slots_same_file(s, r->m->fds[3]) ? message_take_fd(r->m, 3)
						       : slots_describe(s);
	if (p->slots_fd < 0)
		return p->slots_fd;
	for (u32 slot = 0; slot < NODE_SLOTS; slot++) {
		u8 bit = (u8)(1u << (slot % 8));

		if ((q->slots[slot / 8] & bit) &&
		    slots_claim(s, q->process, p->slots_fd, slot) == 0)
			reply->slots[slot / 8] |= bit;
	}
	/* one that the last node gave, but could not say so */
	slots_tidy(s, q->process, p->slots_fd);
	return 0;
}

/* A pair that a returning process has. If its peer is back and does not know it, it is over. */
static void request_claim_pair(struct request *r, u64 other)
{
	struct daemon *d = r->daemon;
	u64 process = r->proc->process;
	struct proc *peer = proc_find(d, other);
	struct pair *pair = pairs_find(&d->pairs, process, other);

	if (other == 0 || other == process)
		return;
	if (peer != NULL && (pair == NULL || !pair->known[pairs_end(pair, other)])) {
		event_peer_gone(r->proc, other);
		pairs_remove(&d->pairs, process, other);
		return;
	}
	pair = pairs_make(&d->pairs, process, other);
	if (pair != NULL)
		pair->known[pairs_end(pair, process)] = true;
}

/* The other way round: pairs that a returning process should have and did not name. */
static void request_unknown_pair(struct pair *pair, u64 other, void *arg)
{
	struct proc *p = arg;
	struct proc *peer = proc_find(p->daemon, other);

	if (pair->known[pairs_end(pair, p->process)])
		return;
	if (peer != NULL)
		event_peer_gone(peer, p->process);
	pairs_remove(&p->daemon->pairs, p->process, other);
}

static bool request_slot_in_use(void *arg, u32 slot)
{
	return slots_owner(arg, slot) != 0;
}

/* The UDP sockets that the node before left, if nobody has brought them yet. */
static void request_take_sockets(struct request *r)
{
	struct daemon *d = r->daemon;
	u32 count = udp_adopt(&d->udp, r->m->fds[4], request_slot_in_use, &d->slots);

	if (count == 0)
		return;
	log_info("node", "process %llu brought the UDP sockets of %u addresses",
		 (unsigned long long)r->proc->process, count);
	/* before the answer: the process must not see its sockets go and come */
	daemon_look_again(d);
}

static int request_resume(struct request *r)
{
	const struct proto_resume *q = &r->q->resume;
	struct proto_hello_reply reply;
	int err;

	if (q->process == 0 || q->process == UINT64_MAX || q->pair_count > PROTO_PAIRS)
		return -EINVAL;
	/* its old connection has not been seen to end yet */
	if (proc_find(r->daemon, q->process) != NULL)
		return -EAGAIN;
	memset(&reply, 0, sizeof(reply));
	err = proc_attach(r->proc, q->process, &q->who, r->m);
	if (err == 0)
		err = request_claim_slots(r, &reply);
	if (err == 0) {
		request_take_sockets(r);
		err = request_welcome(r, &reply);
	}
	if (err < 0)
		return err;
	for (u32 i = 0; i < q->pair_count; i++)
		request_claim_pair(r, q->pairs[i]);
	pairs_each(&r->daemon->pairs, q->process, request_unknown_pair, r->proc);
	return 0;
}

static int request_tool(struct request *r)
{
	r->proc->kind = PROC_TOOL;
	request_status(r, 0);
	return 0;
}

/* ---- what attached processes ask ---- */

static int request_slot_take(struct request *r)
{
	struct proto_slot_reply reply;
	struct slots *s = &r->daemon->slots;
	int slot = slots_take(s, r->proc->process, r->proc->slots_fd, clock_now_ns());

	if (slot < 0)
		return slot;
	reply.slot = (u32)slot;
	reply.generation = s->file.generation[slot];
	request_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

/* As many sockets as one reply carries. */
static int request_udp_sockets(struct request *r)
{
	const struct proto_udp_sockets *q = &r->q->udp_sockets;
	const struct node_config *c = &r->daemon->notice->config;
	struct proto_udp_sockets_reply reply;
	int fds[PROTO_FDS], err = 0;

	memset(&reply, 0, sizeof(reply));
	if (q->slot >= NODE_SLOTS || slots_owner(&r->daemon->slots, q->slot) != r->proc->process)
		return -ENOENT;
	for (u32 i = q->from; i < NODE_GIDS; i++) {
		struct proto_socket *out = &reply.sockets[reply.count];
		struct udp_group *g = udp_find(&r->daemon->udp, c->gids[i].gid);
		const struct udp_member *m;

		if (g == NULL || !(c->gids[i].flags & NODE_GID_WIRE))
			continue;
		if (reply.count == PROTO_FDS) {
			reply.next = i;
			break;
		}
		m = udp_member_of(&r->daemon->udp, g, q->slot, &err);
		if (m == NULL)
			return err;
		memcpy(out->gid, g->gid, 16);
		out->id = m->id;
		out->gid_index = i;
		out->ifindex = g->ifindex;
		fds[reply.count++] = m->fd;
	}
	request_reply(r, &reply.head, sizeof(reply), 0, fds, (int)reply.count);
	return 0;
}

/* Whether a pair of these two may be made: 0 and the owner of the slot. */
static int request_may_connect(struct request *r, u32 slot, struct proc **out)
{
	struct daemon *d = r->daemon;
	u64 owner;

	if (slot >= NODE_SLOTS)
		return -ENOENT;
	owner = slots_owner(&d->slots, slot);
	if (owner == UINT64_MAX)
		return -EAGAIN; /* a survivor of an earlier node: it will come back */
	*out = proc_find(d, owner);
	if (*out == NULL)
		return -ENOENT;
	if (*out == r->proc)
		return -EINVAL;
	if (pairs_find(&d->pairs, owner, r->proc->process) != NULL)
		return -EALREADY;
	if (pairs_count(&d->pairs, owner) >= PROTO_PAIRS ||
	    pairs_count(&d->pairs, r->proc->process) >= PROTO_PAIRS)
		return -ENOSPC;
	return 0;
}

static int request_connect(struct request *r)
{
	struct proto_peer reply;
	struct proc *owner;
	struct pair *pair;
	int fds[4], count, err = request_may_connect(r, r->q->connect.slot, &owner);

	memset(&reply, 0, sizeof(reply));
	if (err == -EALREADY) {
		reply.process = owner->process; /* tells the asker which pair it is */
		request_reply(r, &reply.head, sizeof(reply), err, NULL, 0);
	}
	if (err < 0)
		return err;
	pair = pairs_make(&r->daemon->pairs, r->proc->process, owner->process);
	if (pair == NULL)
		return -ENOMEM;
	err = event_peer_new(owner, r->proc, r->m->fds[0]);
	if (err < 0) {
		pairs_remove(&r->daemon->pairs, r->proc->process, owner->process);
		return -ENOBUFS;
	}
	pair->known[0] = pair->known[1] = true;
	count = event_describe(owner, r->proc, &reply, fds);
	request_reply(r, &reply.head, sizeof(reply), 0, fds, count);
	if (reply.head.status < 0) {
		event_peer_gone(owner, r->proc->process);
		pairs_remove(&r->daemon->pairs, r->proc->process, owner->process);
	}
	return 0;
}

static int request_pair_drop(struct request *r)
{
	struct daemon *d = r->daemon;
	u64 other = r->q->peer.process;
	struct proc *peer = proc_find(d, other);

	if (pairs_find(&d->pairs, r->proc->process, other) == NULL)
		return -ENOENT;
	if (peer != NULL)
		event_peer_gone(peer, r->proc->process);
	pairs_remove(&d->pairs, r->proc->process, other);
	request_status(r, 0);
	return 0;
}

/* The membership's entry, or NULL; *free_entry: the first that could take a new one, NULL if there
 * is none. */
static struct notice_member *request_find_member(struct request *r,
						 struct notice_member **free_entry)
{
	const struct proto_mcast *q = &r->q->mcast;
	struct notice *n = r->daemon->notice;

	*free_entry = NULL;
	for (u32 i = 0; i < n->members; i++) {
		struct notice_member *m = &n->member[i];

		if (m->process == r->proc->process && m->qpn == q->qpn &&
		    memcmp(m->gid, q->gid, 16) == 0)
			return m;
		if (m->process == 0 && *free_entry == NULL)
			*free_entry = m;
	}
	if (*free_entry == NULL && n->members < NOTICE_MEMBERS)
		*free_entry = &n->member[n->members];
	return NULL;
}

static int request_mcast_join(struct request *r)
{
	const struct proto_mcast *q = &r->q->mcast;
	struct notice *n = r->daemon->notice;
	struct notice_member *entry;

	if (!node_is_mcast(q->gid))
		return -EINVAL;
	if (request_find_member(r, &entry) == NULL) {
		if (entry == NULL)
			return -ENOSPC;
		notice_write_begin(n);
		memcpy(entry->gid, q->gid, 16);
		entry->qpn = q->qpn;
		entry->process = r->proc->process;
		if (entry == &n->member[n->members])
			n->members++;
		notice_write_end(n);
		r->daemon->member_count++;
	}
	request_status(r, 0);
	return 0;
}

static int request_mcast_leave(struct request *r)
{
	struct notice *n = r->daemon->notice;
	struct notice_member *unused, *entry = request_find_member(r, &unused);

	if (entry == NULL)
		return -ENOENT;
	notice_write_begin(n);
	entry->process = 0;
	while (n->members > 0 && n->member[n->members - 1].process == 0)
		n->members--;
	notice_write_end(n);
	r->daemon->member_count--;
	request_status(r, 0);
	return 0;
}

/* ---- what tools ask ---- */

static int request_node_status(struct request *r)
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
	reply.config = d->notice->config;
	request_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static int request_addresses(struct request *r)
{
	struct proto_addresses_reply reply;

	memset(&reply, 0, sizeof(reply));
	reply.count = udp_report(&r->daemon->udp, reply.addresses);
	request_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static void request_fill_record(struct proc *p, struct proto_record *out)
{
	struct daemon *d = p->daemon;

	memset(out, 0, sizeof(*out));
	out->process = p->process;
	out->pid = p->pid;
	out->slot_count = slots_count(&d->slots, p->process, out->slots, PROTO_RECORD_SLOTS);
	out->pair_count = pairs_count(&d->pairs, p->process);
	out->age_ms = (clock_now_ns() - p->since_ns) / NS_PER_MS;
	for (u32 i = 0; i < d->notice->members; i++)
		out->member_count += d->notice->member[i].process == p->process;
	memcpy(out->command, p->who.command, sizeof(out->command));
}

/* The attached process with the least number above `after`. */
static struct proc *request_next_process(struct daemon *d, u64 after)
{
	struct proc *best = NULL;

	list_for_each(p, &d->procs, struct proc, node)
		if (p->kind == PROC_ATTACHED && p->process > after &&
		    (best == NULL || p->process < best->process))
			best = p;
	return best;
}

static int request_processes(struct request *r)
{
	struct proto_processes_reply reply;
	struct proc *p = request_next_process(r->daemon, r->q->processes.after);

	memset(&reply, 0, sizeof(reply));
	while (p != NULL && reply.count < PROTO_RECORDS) {
		request_fill_record(p, &reply.records[reply.count++]);
		p = request_next_process(r->daemon, p->process);
	}
	reply.more = p != NULL;
	request_reply(r, &reply.head, sizeof(reply), 0, NULL, 0);
	return 0;
}

static int request_board(struct request *r)
{
	struct proc *p = proc_find(r->daemon, r->q->processes.after);
	struct proto_plain reply;

	if (p == NULL)
		return -ENOENT;
	request_reply(r, &reply.head, sizeof(reply), 0, &p->board_fd, 1);
	return 0;
}

static int request_stop(struct request *r)
{
	if (r->daemon->attached > 0 && !r->q->stop.force)
		return -EBUSY;
	request_status(r, 0);
	daemon_stop(r->daemon, "told to stop");
	return 0;
}

static int request_port(struct request *r)
{
	const struct proto_port *q = &r->q->port;
	const struct node_config *c = &r->daemon->notice->config;

	if (q->port != 1 || (q->device[0] != '\0' &&
			     strncmp(q->device, c->device, sizeof(q->device)) != 0))
		return -ENODEV;
	if (q->up > 1)
		return -EINVAL;
	daemon_port_set(r->daemon, q->up != 0);
	request_status(r, 0);
	return 0;
}

static int request_capture(struct request *r)
{
	if (r->daemon->recorder != NULL)
		return -EBUSY;
	proc_record(r->proc, message_take_fd(r->m, 0));
	request_status(r, 0);
	return 0;
}

/* ---- the table ---- */

#define FROM(kind) (1u << (kind))

/* What a packet must be like to be answered at all. */
static const struct request_rule {
	int (*fn)(struct request *r); /* a negative result is the reply's status */
	u16 size;
	u8 fds;
	u8 from; /* kinds of connections that may ask */
} request_rules[PROTO_REQUESTS] = {
	[PROTO_HELLO] = { request_hello, sizeof(struct proto_hello), 3, FROM(PROC_SILENT) },
	[PROTO_RESUME] = { request_resume, sizeof(struct proto_resume), 5, FROM(PROC_SILENT) },
	[PROTO_TOOL] = { request_tool, sizeof(struct proto_plain), 0, FROM(PROC_SILENT) },
	[PROTO_SLOT_TAKE] = { request_slot_take, sizeof(struct proto_plain), 0,
			      FROM(PROC_ATTACHED) },
	[PROTO_UDP_SOCKETS] = { request_udp_sockets, sizeof(struct proto_udp_sockets), 0,
				FROM(PROC_ATTACHED) },
	[PROTO_CONNECT] = { request_connect, sizeof(struct proto_connect), 1, FROM(PROC_ATTACHED) },
	[PROTO_PAIR_DROP] = { request_pair_drop, sizeof(struct proto_peer), 0,
			      FROM(PROC_ATTACHED) },
	[PROTO_MCAST_JOIN] = { request_mcast_join, sizeof(struct proto_mcast), 0,
			       FROM(PROC_ATTACHED) },
	[PROTO_MCAST_LEAVE] = { request_mcast_leave, sizeof(struct proto_mcast), 0,
				FROM(PROC_ATTACHED) },
	[PROTO_STATUS] = { request_node_status, sizeof(struct proto_plain), 0, FROM(PROC_TOOL) },
	[PROTO_ADDRESSES] = { request_addresses, sizeof(struct proto_plain), 0, FROM(PROC_TOOL) },
	[PROTO_PROCESSES] = { request_processes, sizeof(struct proto_processes), 0,
			      FROM(PROC_TOOL) },
	[PROTO_BOARD] = { request_board, sizeof(struct proto_processes), 0, FROM(PROC_TOOL) },
	[PROTO_STOP] = { request_stop, sizeof(struct proto_stop), 0, FROM(PROC_TOOL) },
	[PROTO_CAPTURE] = { request_capture, sizeof(struct proto_plain), 1, FROM(PROC_TOOL) },
	[PROTO_PORT] = { request_port, sizeof(struct proto_port), 0, FROM(PROC_TOOL) },
};

static const struct request_rule *request_find_rule(const struct proc *p,
						    const union proto_request *q,
						    const struct message *m)
{
	const struct request_rule *rule;

	if (q->head.type == 0 || q->head.type >= PROTO_REQUESTS)
		return NULL;
	rule = &request_rules[q->head.type];
	if (m->size != rule->size || !(rule->from & FROM(p->kind)))
		return NULL;
	if (!m->fds_lost && m->fd_count != rule->fds)
		return NULL;
	return rule;
}

bool request_handle(struct proc *p, const union proto_request *q, struct message *m)
{
	struct request r = { .proc = p, .daemon = p->daemon, .q = q, .m = m };
	const struct request_rule *rule;
	int err;

	if (m->size < sizeof(q->head) || q->head.magic != PROTO_MAGIC)
		return false;
	if (q->head.version != PROTO_VERSION) {
		request_status(&r, -EPROTO);
		return false;
	}
	rule = request_find_rule(p, q, m);
	if (rule == NULL)
		return false;
	/* the daemon itself is out of descriptors */
	err = m->fds_lost ? -ENFILE : rule->fn(&r);
	if (err < 0 && !r.answered)
		request_status(&r, err);
	/* one who could not be welcomed starts anew */
	return !r.broken && (err == 0 || !(rule->from & FROM(PROC_SILENT)));
}
