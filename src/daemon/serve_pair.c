/* serve_pair.c: pairs of processes.
 * In:    CONNECT, PAIR_DROP, PAIR_CLAIM       Out: pairs; events to the other end
 * Runs:  the daemon's only thread             Locks: none
 */
#include <errno.h>
#include <string.h>

#include "daemon/service.h"

/* Tells whether a pair of these two may be made: 0 and the owner of the slot. */
static int serve_may_connect(struct request *r, u32 slot, struct proc **out)
{
	struct daemon *d = r->daemon;
	u64 owner;

	if (slot >= NODE_SLOTS)
		return -ENOENT;
	owner = slots_owner(&d->slots, slot);
	if (owner == UINT64_MAX)
		return -EAGAIN; /* a survivor of an earlier node, which will come back */
	*out = proc_find(d, owner);
	if (*out == NULL)
		return -ENOENT;
	if (*out == r->proc)
		return -EINVAL;
	/* its pairs are not known yet */
	if (service_claim_is_due(*out, PROTO_SERVICE_PAIR))
		return -EAGAIN;
	if (pairs_find(&d->pairs, owner, r->proc->process) != NULL)
		return -EALREADY;
	if (pairs_count(&d->pairs, owner) >= PROTO_PAIRS ||
	    pairs_count(&d->pairs, r->proc->process) >= PROTO_PAIRS)
		return -ENOSPC;
	return 0;
}

static int serve_connect(struct request *r)
{
	struct proto_peer reply;
	struct proc *owner;
	struct pair *pair;
	int fds[4], count, err = serve_may_connect(r, r->q->connect.slot, &owner);

	memset(&reply, 0, sizeof(reply));
	if (err == -EALREADY) {
		reply.process = owner->process; /* tells the requester which pair it is */
		service_reply(r, &reply.head, sizeof(reply), err, NULL, 0);
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
	service_reply(r, &reply.head, sizeof(reply), 0, fds, count);
	if (reply.head.status < 0) {
		event_peer_gone(owner, r->proc->process, 0);
		pairs_remove(&r->daemon->pairs, r->proc->process, owner->process);
	}
	return 0;
}

static int serve_pair_drop(struct request *r)
{
	struct daemon *d = r->daemon;
	u64 other = r->q->pair_end.process;
	struct proc *peer = proc_find(d, other);

	if (pairs_find(&d->pairs, r->proc->process, other) == NULL)
		return -ENOENT;
	if (peer != NULL)
		event_peer_gone(peer, r->proc->process, r->q->pair_end.error);
	pairs_remove(&d->pairs, r->proc->process, other);
	service_status(r, 0);
	return 0;
}

/* Tells the other end of a dead process' pair. */
static void serve_end_pair(struct pair *pair, u64 other, void *arg)
{
	struct proc *p = arg;
	struct proc *peer = proc_find(p->daemon, other);

	if (peer != NULL && pair->known[pairs_end(pair, other)])
		event_peer_gone(peer, p->process, 0);
	pairs_remove(&p->daemon->pairs, p->process, other);
}

static void serve_pair_release(struct proc *p)
{
	pairs_each(&p->daemon->pairs, p->process, serve_end_pair, p);
}

/* Confirms a pair of a returning process. The pair has ended if its peer is back and has not named
 * it. */
static void serve_claim_pair(struct request *r, u64 other)
{
	struct daemon *d = r->daemon;
	u64 process = r->proc->process;
	struct proc *peer = proc_find(d, other);
	struct pair *pair = pairs_find(&d->pairs, process, other);

	if (other == 0 || other == process)
		return;
	if (peer != NULL && !service_claim_is_due(peer, PROTO_SERVICE_PAIR) &&
	    (pair == NULL || !pair->known[pairs_end(pair, other)])) {
		event_peer_gone(r->proc, other, 0);
		pairs_remove(&d->pairs, process, other);
		return;
	}
	pair = pairs_make(&d->pairs, process, other);
	if (pair != NULL)
		pair->known[pairs_end(pair, process)] = true;
}

/* Ends pairs that a returning process has not named. */
static void serve_unknown_pair(struct pair *pair, u64 other, void *arg)
{
	struct proc *p = arg;
	struct proc *peer = proc_find(p->daemon, other);

	if (pair->known[pairs_end(pair, p->process)])
		return;
	if (peer != NULL)
		event_peer_gone(peer, p->process, 0);
	pairs_remove(&p->daemon->pairs, p->process, other);
}

static int serve_pair_claim(struct request *r)
{
	const struct proto_pair_claim *q = &r->q->pair_claim;

	if (q->count > PROTO_PAIRS || !service_claim(r->proc, PROTO_SERVICE_PAIR))
		return -EINVAL;
	for (u32 i = 0; i < q->count; i++)
		serve_claim_pair(r, q->pairs[i]);
	pairs_each(&r->daemon->pairs, r->proc->process, serve_unknown_pair, r->proc);
	service_status(r, 0);
	return 0;
}

static const struct service_rule serve_pair_rules[] = {
	[PROTO_OP(PROTO_PAIR_CLAIM)] = { serve_pair_claim, sizeof(struct proto_pair_claim), 0,
					 SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_CONNECT)] = { serve_connect, sizeof(struct proto_connect), 1,
				      SERVICE_FROM(PROC_ATTACHED) },
	[PROTO_OP(PROTO_PAIR_DROP)] = { serve_pair_drop, sizeof(struct proto_pair_end), 0,
					SERVICE_FROM(PROC_ATTACHED) },
};

const struct service pair_service = {
	.rules = serve_pair_rules,
	.rule_count = ARRAY_LEN(serve_pair_rules),
	.release = serve_pair_release,
	.release_of = SERVICE_FROM(PROC_ATTACHED),
};
