/* link.c: the simulated path: what shared memory promises, in one address space and virtual time.
 *
 * Reliable and ordered: a packet that send() takes arrives, in order, unless the receiver dies or a
 * port is down. Rings have limits. A process may be slow to find out who a peer is (asking).
 * In: packets of engines    Out: calls of path_user, when the receiver polls
 * Runs: the one thread
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tagged.h"

/* A packet under way. */
struct flight {
	struct list_head node;
	u64 arrives;
	struct pkt pkt;
	u8 sgid[16], dgid[16];
	u8 payload[];
};

/* One process' way to another. The receiver's own way back is its name for the sender. */
struct sim_dest {
	struct path_dest d; /* first */
	struct proc *owner, *peer; /* peer NULL: nowhere */
	bool asking, told_dead;
	u32 refs;
	struct list_head flights; /* by arrival */
	u64 last_arrival;
	u32 slots, bytes; /* taken */
};

struct sim_path {
	struct path path;
	struct proc *proc;
	struct sim_dest dests[SIM_PROCS + 1]; /* by process; the last one is nowhere */
	u32 turn;
};

enum {
	LINK_MTU = 16 << 10,
	LINK_RUN = 16,		  /* what a receiver takes together */
	LINK_LEFT_MOST = 1 << 16, /* a send queue */
};

static struct sim_dest *dest_of(struct path_dest *d)
{
	return container_of(d, struct sim_dest, d);
}

static struct sim_path *sim_path_of(struct path *p)
{
	return container_of(p, struct sim_path, path);
}

/* ---- tracing ---- */

void link_trace(const struct proc *p, enum trace_kind kind, const struct proc *peer,
		const struct pkt *k, u64 extra)
{
	u64 other = peer == NULL ? 99 : peer->id;

	if (kind == TR_RX)
		tagged_saw(p, k);

	trace(p, kind, other << 32 | (u64)k->flags << 16 | (u64)k->syndrome << 8 | k->opcode,
	      (u64)k->ack_psn << 24 | k->psn, k->dqpn, extra << 32 | k->length);
}

/* ---- sending ---- */

void link_judge(const struct path_dest *d, const struct pkt *k, const struct iovec *iov, int n)
{
	u64 sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	sim_check(sum == k->length, "packet says %u bytes, its pieces have %llu", k->length,
		  (unsigned long long)sum);
	sim_check(k->length <= d->path->guarantees.mtu, "packet of %u bytes", k->length);
	sim_check(k->psn <= 0xffffff && k->ack_psn <= 0xffffff && k->dqpn <= 0xffffff,
		  "packet with PSN %x, acknowledged PSN %x, QPN %x: 24 bits each", k->psn,
		  k->ack_psn, k->dqpn);
	sim_check(k->opcode < PKT_OPCODES, "packet of unknown opcode %u", k->opcode);
}

void link_strike(struct proc *from, struct proc *to)
{
	if (!world.plan.kills || !rng_permille(RNG, 1) || !rng_percent(RNG, 30))
		return;
	world_at(world.now + rng_skewed(RNG, 0, 50000), chaos_kill,
		 rng_percent(RNG, 50) ? from : to, 0);
}

static int link_push(struct sim_dest *d, const struct pkt *k, const struct iovec *iov, int n)
{
	struct flight *f;
	u8 *to;

	if (d->slots >= world.plan.ring_slots ||
	    (d->bytes != 0 && d->bytes + k->length > world.plan.ring_bytes)) {
		link_trace(d->owner, TR_TX_REFUSED, d->peer, k, EAGAIN);
		return -EAGAIN;
	}
	f = malloc(sizeof(*f) + k->length);
	if (f == NULL)
		abort();
	f->pkt = *k;
	if (k->flags & PKT_HAS_GRH) {
		memcpy(f->sgid, k->sgid, 16);
		memcpy(f->dgid, k->dgid, 16);
		f->pkt.sgid = f->sgid;
		f->pkt.dgid = f->dgid;
	}
	to = f->payload;
	for (int i = 0; i < n; to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
	f->arrives = world.now + world.plan.delay_ns + rng_range(RNG, 0, world.plan.jitter_ns);
	d->last_arrival = f->arrives = MAX(f->arrives, d->last_arrival);
	list_push_back(&d->flights, &f->node);
	d->slots++;
	d->bytes += k->length;
	link_trace(d->owner, TR_TX, d->peer, k, 0);
	proc_wake(d->peer, f->arrives + rng_skewed(RNG, 0, 20000));
	return 0;
}

static int link_send(struct path_dest *to, const struct pkt *k, const struct iovec *iov, int n)
{
	struct sim_dest *d = dest_of(to);
	int err = 0;

	link_judge(to, k, iov, n);
	if (k->opcode != PKT_ABSENT && k->qp_type != PKT_TYPE_FORWARDED && !pkt_is_done(k->qp_type))
		sqp_judge_port(d->owner, k->sqpn);
	if (d->peer == NULL)
		err = -ENETUNREACH;
	else if (d->told_dead || d->owner->dead)
		err = -EPIPE;
	else if (d->asking)
		err = -EAGAIN;
	if (err != 0) {
		link_trace(d->owner, TR_TX_REFUSED, d->peer, k, (u64)-err);
		return err;
	}
	link_strike(d->owner, d->peer);
	return link_push(d, k, iov, n);
}

static u32 link_send_briefs(struct path_dest *d, const struct pkt_brief *b,
			   const void *const *payload, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		struct iovec iov = { (void *)(uintptr_t)payload[i], b[i].length };
		struct pkt p = pkt_from_brief(&b[i]);

		if (link_send(d, &p, &iov, 1) != 0)
			return i;
	}
	return n;
}

static void link_flush(struct path_dest *d)
{
	/* Whoever receives is woken by each packet's arrival. */
}

/* ---- the peer's memory ---- */

static bool link_qp_allows(const struct sqp *q, const struct path_target *t)
{
	u32 need = t->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;

	return q != NULL && sqp_state_receives(q->shown_state) && (q->shown_access & need) != 0 &&
	       q->shown_peer == t->sqpn;
}

/* The initiator's own check of the key, as a path over shared memory makes it. NULL: refused. */
static u8 *link_find(struct proc *peer, const struct sqp *q, const struct path_target *t)
{
	const struct mem_entry *e = &peer->mem.entries[t->rkey >> MEM_TAG_BITS];
	u64 piece = 0;
	u8 *at;

	if ((e->flags & (MEM_CONTIGUOUS | MEM_WINDOW)) != MEM_CONTIGUOUS)
		return NULL;
	at = mem_remote(&peer->mem, q->pd_number, q->qpn, t->rkey, t->va, t->length,
			t->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ, &piece);
	return piece == t->length ? at : NULL;
}

/* Not from the seed's sequence. */
static bool link_leaves(const struct sim_dest *d)
{
	return rng_mix(world.now ^ world.seed << 20 ^ (u64)d->owner->id << 56 ^ 0x6c656674) % 100 <
	       world.plan.left_percent;
}

static void link_answered(struct path_dest *to, u32 n, u64 ns, bool more)
{
	sim_check(world.plan.left_percent != 0, "a request has ended that was not left");
	sim_check(n <= LINK_LEFT_MOST && ns <= world.now, "%u that were left took %llu ns", n,
		  (unsigned long long)ns);
}

static int link_direct(struct path_dest *to, const struct path_target *t, const struct iovec *iov,
		       int n)
{
	struct sim_dest *d = dest_of(to);
	struct sqp *q;
	u8 *at = NULL;

	sqp_judge_port(d->owner, t->sqpn);
	if (!world.plan.direct || d->peer == NULL || d->told_dead || d->asking)
		return -EOPNOTSUPP;
	q = sqp_find(d->peer, t->dqpn);
	if (!d->peer->dead && link_qp_allows(q, t))
		at = link_find(d->peer, q, t);
	trace(d->owner, TR_DIRECT, t->sqpn, t->write, t->length, at == NULL);
	sim_check(at == NULL || d->peer->port_up,
		  "qp %06x grants access through a port that is down", t->dqpn);
	if (at == NULL)
		return -EACCES;
	if (link_leaves(d))
		return -EBUSY;
	for (int i = 0; i < n; at += iov[i++].iov_len)
		if (!t->write)
			memmove(iov[i].iov_base, at, iov[i].iov_len);
		else if (mem_copy_ordered(at, iov[i].iov_base, iov[i].iov_len) != 0)
			return -EOPNOTSUPP;
	return 0;
}

static bool link_pullable(struct path_dest *to)
{
	struct sim_dest *d = dest_of(to);

	return world.plan.direct && d->peer != NULL && !d->told_dead && !d->asking;
}

/* As a path over shared memory shows it. */
static bool link_peer_end(struct path_dest *to, u32 sqpn, u32 dqpn, struct path_end *out)
{
	struct sim_dest *d = dest_of(to);
	const struct sqp *q = NULL;

	if (world.plan.ends && d->peer != NULL && !d->told_dead)
		q = sqp_find(d->peer, dqpn);
	if (q == NULL || !sqp_state_receives(q->shown_state) || q->shown_peer != sqpn)
		return false;
	*out = (struct path_end){ .psn = q->rq_psn, .mtu = q->mtu };
	return true;
}

static void link_copy(const struct iovec *theirs, int n, const struct iovec *ours)
{
	size_t done = 0;

	for (int i = 0; i < n; i++)
		for (size_t from = 0; from < theirs[i].iov_len;) {
			size_t piece = MIN(theirs[i].iov_len - from, ours->iov_len - done);

			memcpy((u8 *)ours->iov_base + done, (u8 *)theirs[i].iov_base + from, piece);
			from += piece;
			done += piece;
			if (done == ours->iov_len) {
				ours++;
				done = 0;
			}
		}
}

static int link_pull(struct path_dest *from, u32 sqpn, u32 dqpn, const struct iovec *theirs, int n,
		     const struct iovec *ours, int m, u64 bytes)
{
	struct sim_dest *d = dest_of(from);
	struct sqp *q = sqp_find(d->peer, sqpn);
	bool sends = q != NULL && q->shown_peer == dqpn &&
		     (q->shown_state == IBV_QPS_RTS || q->shown_state == IBV_QPS_SQD);
	int err = !world.plan.direct || d->peer->dead || rng_permille(RNG, 20) ? -EOPNOTSUPP
		  : sends						       ? 0
									       : -EPIPE;

	trace(d->owner, TR_PULL, dqpn, bytes, err != 0, 0);
	if (err == 0)
		link_copy(theirs, n, ours);
	return err;
}

/* ---- receiving ---- */

static struct sim_dest *link_from(const struct proc *sender, const struct proc *receiver)
{
	return &sender->path->dests[receiver->id];
}

static void link_consume(struct sim_dest *way, struct flight *f)
{
	list_remove(&f->node);
	way->slots--;
	way->bytes -= f->pkt.length;
	if (path_is_awaited(&way->d))
		proc_wake(way->owner, world.now + rng_skewed(RNG, 0, 20000));
}

/* The one way or the other, as the path of one host does. */
static void link_give(struct sim_path *sp, struct sim_dest *back, const struct flight *f)
{
	const struct path_user *user = sp->path.user_ops;
	struct pkt_brief b;

	if (!pkt_to_brief(&f->pkt, &b) ||
	    !user->receive_brief(sp->path.user, &back->d, &b, f->payload))
		user->receive(sp->path.user, &back->d, &f->pkt, f->payload);
}

/* Those at the front that have arrived and that the engine takes together: how many. */
static int link_receive_run(struct sim_path *sp, struct sim_dest *way, int budget)
{
	struct sim_dest *back = &sp->dests[way->owner->id];
	struct pkt_brief b[LINK_RUN];
	const void *payload[LINK_RUN];
	u32 n = 0;

	list_for_each(f, &way->flights, struct flight, node) {
		if (n == MIN((u32)budget, (u32)LINK_RUN) || f->arrives > world.now ||
		    !pkt_to_brief(&f->pkt, &b[n]))
			break;
		payload[n++] = f->payload;
	}
	if (n < 2)
		return 0;
	n = sp->path.user_ops->receive_run(sp->path.user, &back->d, b, payload, n);
	for (u32 i = 0; i < n; i++) {
		struct flight *f = list_first(&way->flights, struct flight, node);

		link_trace(sp->proc, TR_RX, way->owner, &f->pkt, 0);
		link_consume(way, f);
		free(f);
	}
	return (int)n;
}

/* Receives what has arrived on one way, up to the budget. */
static int link_receive(struct sim_path *sp, struct sim_dest *way, int budget)
{
	struct sim_dest *back = &sp->dests[way->owner->id];
	const struct path_user *user = sp->path.user_ops;
	int n = 0;

	for (; n < budget && !list_empty(&way->flights); n++) {
		struct flight *f;

		n += link_receive_run(sp, way, budget - n);
		if (n == budget || list_empty(&way->flights))
			break;
		f = list_first(&way->flights, struct flight, node);
		if (f->arrives > world.now)
			break;
		link_trace(sp->proc, TR_RX, way->owner, &f->pkt, 0);
		back->asking = false;
		link_give(sp, back, f);
		link_consume(way, f);
		free(f);
	}
	if (n != 0)
		user->batch_end(sp->path.user, &back->d, false);
	else if (path_owes_acks(&back->d))
		user->batch_end(sp->path.user, &back->d, true);
	return n;
}

/* Those that wait for a destination try again if there is reason to. */
static void link_resume(struct sim_path *sp, struct sim_dest *d)
{
	if (!path_is_awaited(&d->d) || d->asking)
		return;
	if (d->peer != NULL && !d->told_dead && d->slots * 2 > world.plan.ring_slots)
		return;
	sp->path.user_ops->writable(sp->path.user, &d->d);
}

/* The last packet of a dead process has been received. */
static void link_bury(struct sim_path *sp, struct sim_dest *way)
{
	struct sim_dest *back = &sp->dests[way->owner->id];

	if (!way->owner->dead || back->told_dead || !list_empty(&way->flights))
		return;
	back->told_dead = true;
	sp->path.user_ops->dead(sp->path.user, &back->d);
	while (path_is_awaited(&back->d))
		sp->path.user_ops->writable(sp->path.user, &back->d);
}

static int link_poll(struct path *p, int budget, bool must)
{
	struct sim_path *sp = sim_path_of(p);
	u32 count = world.plan.procs;
	int n = 0;

	for (u32 i = 0; i < count && n < budget; i++) {
		struct proc *sender = world.procs[sp->turn++ % count];
		struct sim_dest *way = link_from(sender, sp->proc);

		n += link_receive(sp, way, budget - n);
		link_resume(sp, &sp->dests[sender->id]);
		if (n < budget)
			link_bury(sp, way);
	}
	link_resume(sp, &sp->dests[SIM_PROCS]);
	return n;
}

void path_drain(struct proc *p)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		list_for_each(f, &link_from(world.procs[i], p)->flights, struct flight, node)
			f->arrives = MIN(f->arrives, world.now);
	while (link_poll(path_of(p), 256, true) > 0)
		continue;
}

u64 path_next_arrival(const struct proc *p)
{
	u64 next = air_next_arrival(p);
	for (u32 i = 0; i < world.plan.procs; i++) {
		struct sim_dest *way = link_from(world.procs[i], p);

		if (!list_empty(&way->flights))
			next = MIN(next, list_first(&way->flights, struct flight, node)->arrives);
	}
	return next;
}

bool path_owes(const struct proc *p)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		if (path_owes_acks(&p->path->dests[i].d))
			return true;
	return air_owes(p);
}

bool path_is_quiet(void)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		if (!world.procs[i]->dead && path_next_arrival(world.procs[i]) != SIM_NEVER)
			return false;
	return true;
}

/* ---- destinations ---- */

void path_gid(const struct node *n, u8 gid[16])
{
	static const u8 mapped[16] = { [10] = 0xff, [11] = 0xff, [12] = 10 };
	static const u8 local[16] = { [0] = 0xfe, [1] = 0x80 };

	memcpy(gid, world.plan.ipv6 ? local : mapped, 16);
	gid[15] = (u8)(n->id + 1);
}

static struct path_dest *link_dest_get(struct path *p, const struct path_av *av, u32 qpn)
{
	struct sim_path *sp = sim_path_of(p);
	u32 slot = qpn >> IBT_INDEX_BITS;
	struct sim_dest *d = &sp->dests[SIM_PROCS];

	for (u32 i = 0; i < world.plan.procs; i++)
		if (world.procs[i]->slot == slot)
			d = &sp->dests[i];
	d->refs++;
	return &d->d;
}

bool path_is_air(const struct proc *a, const struct proc *b)
{
	return world.plan.air && (world.plan.air_only || a->node != b->node);
}

struct path_dest *path_dest_of(struct proc *p, struct proc *peer)
{
	struct sim_dest *d = &p->path->dests[peer->id];

	if (path_is_air(p, peer))
		return air_dest(p, peer->node, 0);
	d->refs++;
	return &d->d;
}

static struct path_dest *link_dest_nowhere(struct path *p)
{
	struct sim_dest *d = &sim_path_of(p)->dests[SIM_PROCS];

	d->refs++;
	return &d->d;
}

struct path_dest *path_nowhere(struct proc *p, struct proc *peer)
{
	return path_is_air(p, peer) ? air_dest(p, NULL, 0) : link_dest_nowhere(path_of(p));
}

static void link_dest_hold(struct path_dest *d)
{
	dest_of(d)->refs++;
}

static void link_dest_put(struct path_dest *d)
{
	sim_check(dest_of(d)->refs > 0, "a destination is given back once too often");
	dest_of(d)->refs--;
}

static int link_resolve(struct path_dest *d)
{
	dest_of(d)->asking = false;
	return 0;
}

static bool link_same(const struct path_dest *d, const struct path_dest *from)
{
	return d == from;
}

static bool link_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	struct proc *peer = container_of(d, const struct sim_dest, d)->peer;

	return peer != NULL && sqp_find(peer, qpn) != NULL;
}

static void link_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	fn(arg);
}

static const struct path_ops link_ops = {
	.name = "sim",
	.dest_get = link_dest_get,
	.dest_nowhere = link_dest_nowhere,
	.dest_hold = link_dest_hold,
	.dest_put = link_dest_put,
	.send = link_send,
	.send_briefs = link_send_briefs,
	.flush = link_flush,
	.direct = link_direct,
	.answered = link_answered,
	.peer_end = link_peer_end,
	.pullable = link_pullable,
	.pull = link_pull,
	.poll = link_poll,
	.resolve = link_resolve,
	.same = link_same,
	.holds = link_holds,
	.exclude = link_exclude,
};

static void link_answer(void *arg, u64 n)
{
	struct sim_path *sp = arg;

	sp->dests[n].asking = false;
	proc_wake(sp->proc, world.now);
}

struct path *path_of(struct proc *p)
{
	return &p->path->path;
}

struct sim_path *path_create(struct proc *p)
{
	struct sim_path *sp = calloc(1, sizeof(*sp));

	if (sp == NULL)
		abort();
	sp->proc = p;
	sp->path.ops = &link_ops;
	sp->path.counters = p->counters;
	sp->path.guarantees = (struct path_guarantees){
		.ordered = true, .reliable = true, .direct = world.plan.direct, .mtu = LINK_MTU
	};
	for (u32 i = 0; i <= SIM_PROCS; i++) {
		struct sim_dest *d = &sp->dests[i];

		path_dest_init(&d->d, &sp->path);
		list_init(&d->flights);
		d->owner = p;
		d->asking = i < SIM_PROCS && i != p->id && rng_percent(RNG, 30);
		if (d->asking)
			world_at(world.now + rng_skewed(RNG, 1000, 2 * NS_PER_MS), link_answer, sp,
				 i);
	}
	return sp;
}

void path_connect(struct proc *p)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		p->path->dests[i].peer = world.procs[i];
}

void path_proc_died(struct proc *p)
{
	air_forget(p);
	for (u32 i = 0; i < world.plan.procs; i++) {
		struct sim_dest *way = link_from(world.procs[i], p);
		struct list_head *node;

		while ((node = list_pop_front(&way->flights)) != NULL)
			free(list_entry(node, struct flight, node));
		way->slots = way->bytes = 0;
		proc_wake(world.procs[i], world.now + rng_skewed(RNG, 1000, NS_PER_MS));
	}
}

void path_check_off(const struct path_dest *d, const struct proc *p, const void *from, size_t size)
{
	const struct list_head *heads[] = { &d->blocked, &d->acks, &d->acks_now };

	for (size_t i = 0; i < ARRAY_LEN(heads); i++)
		for (const struct list_head *at = heads[i]->next; at != heads[i]; at = at->next)
			sim_check((uintptr_t)at - (uintptr_t)from >= size,
				  "p%u: a destroyed queue pair is on a list", p->id);
}

void path_check_gone(const struct proc *p, const void *from, size_t size)
{
	for (u32 i = 0; i <= SIM_PROCS; i++)
		path_check_off(&p->path->dests[i].d, p, from, size);
	air_check_gone(p, from, size);
}

void path_destroy(struct sim_path *sp)
{
	for (u32 i = 0; i <= SIM_PROCS; i++) {
		struct sim_dest *d = &sp->dests[i];
		struct list_head *node;

		/* an engine keeps what it has for a target of another process until it ends */
		sim_check(d->refs <= (i < SIM_PROCS && world.plan.hands ? world.targets[i] : 0),
			  "p%u: %u references to a destination are left", sp->proc->id, d->refs);
		sim_check(list_empty(&d->d.blocked) && list_empty(&d->d.acks) &&
				  list_empty(&d->d.acks_now),
			  "p%u: a destroyed queue pair is on a list", sp->proc->id);
		while ((node = list_pop_front(&d->flights)) != NULL)
			free(list_entry(node, struct flight, node));
	}
	free(sp);
}
