/* serve_listen.c: which process receives the REQ and SIDR_REQ of a service ID.
 * In:    LISTEN, UNLISTEN                     Out: entries of the directory
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>

#include "daemon/fabric/fabricd.h"
#include "daemon/service.h"

/* A free entry, or NULL. */
static struct directory_listener *listen_free_entry(struct directory *n)
{
	if (n->listeners < NODE_LISTENERS)
		return &n->listener[n->listeners++];
	for (u32 i = 0; i < NODE_LISTENERS; i++)
		if (n->listener[i].process == 0)
			return &n->listener[i];
	return NULL;
}

/* The place that names the last one of a chain. */
static u32 *listen_chain_end(struct directory *n, u32 chain)
{
	u32 *at = &n->chain[chain];

	while (*at != 0)
		at = &n->listener[*at - 1].next;
	return at;
}

static int serve_listen(struct request *r)
{
	const struct proto_listen *q = &r->q->listen;
	struct directory *n = r->daemon->directory;
	struct directory_listener *entry;

	if ((q->service_id & ~q->mask) != 0)
		return -EINVAL;
	if (q->slot >= NODE_SLOTS || slots_owner(&r->daemon->slots, q->slot) != r->proc->process)
		return -ENOENT;
	directory_write_begin(n);
	entry = listen_free_entry(n);
	if (entry != NULL) {
		*entry = (struct directory_listener){ .service_id = q->service_id,
						      .mask = q->mask,
						      .process = r->proc->process,
						      .slot = q->slot,
						      .match = q->match };
		*listen_chain_end(n, directory_chain(q->service_id, q->mask)) =
			(u32)(entry - n->listener) + 1;
	}
	directory_write_end(n);
	if (entry == NULL)
		return -ENOSPC;
	service_status(r, 0);
	route_listening(r->daemon);
	madhold_listening(r->daemon);
	return 0;
}

/* Takes the entry that *at names out of its chain. The directory is being written. */
static void listen_remove(struct directory *n, u32 *at)
{
	struct directory_listener *entry = &n->listener[*at - 1];

	*at = entry->next;
	*entry = (struct directory_listener){ .process = 0 };
	while (n->listeners > 0 && n->listener[n->listeners - 1].process == 0)
		n->listeners--;
}

static int serve_unlisten(struct request *r)
{
	const struct proto_listen *q = &r->q->listen;
	struct directory *n = r->daemon->directory;
	u32 *at = &n->chain[directory_chain(q->service_id, q->mask)];

	for (; *at != 0; at = &n->listener[*at - 1].next) {
		const struct directory_listener *l = &n->listener[*at - 1];

		if (l->process == r->proc->process && l->service_id == q->service_id &&
		    l->mask == q->mask && memcmp(&l->match, &q->match, sizeof(l->match)) == 0)
			break;
	}
	if (*at == 0)
		return -ENOENT;
	directory_write_begin(n);
	listen_remove(n, at);
	directory_write_end(n);
	service_status(r, 0);
	return 0;
}

static void listen_release_chain(struct directory *n, u32 chain, u64 process)
{
	u32 *at = &n->chain[chain];

	while (*at != 0) {
		if (n->listener[*at - 1].process == process)
			listen_remove(n, at);
		else
			at = &n->listener[*at - 1].next;
	}
}

static void listen_release(struct proc *p)
{
	struct directory *n = p->daemon->directory;

	if (n->listeners == 0)
		return;
	directory_write_begin(n);
	for (u32 chain = 0; chain <= DIRECTORY_BUCKETS; chain++)
		listen_release_chain(n, chain, p->process);
	directory_write_end(n);
}

static const struct service_rule serve_listen_rules[] = {
	[PROTO_OP(PROTO_LISTEN)] = { serve_listen, sizeof(struct proto_listen), 0,
				     SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_UNLISTEN)] = { serve_unlisten, sizeof(struct proto_listen), 0,
				       SERVICE_FROM(PROC_ATTACHED) },
};

const struct service listen_service = {
	.rules = serve_listen_rules,
	.rule_count = ARRAY_LEN(serve_listen_rules),
	.release = listen_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
