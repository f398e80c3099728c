/* air.c: the simulated way between hosts: what UDP promises, which is nothing.
 *
 * Packets are real RoCEv2 packets: packed, with their ICRC, and unpacked again. On the way they are
 * lost, doubled, overtaken, hit by a bit flip, queued behind others, cut off in one direction. A
 * destination is a node on a plane, as it is an address on a wire, and a lane to it, as it is a
 * source port;
 * the QPN says which process receives. A line with a queue marks packets (ECN).
 * In: packets of engines    Out: calls of path_user, when the receiver polls
 * Runs: the one thread
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "wire/source.h"

enum {
	AIR_BUFFER = 212992, /* a stock receive buffer */
	AIR_LANES = 3,
	/* by node, plane and lane; the last one is nowhere */
	AIR_DESTS = SIM_NODES * SIM_PLANES * AIR_LANES + 1,
	AIR_CNP_NS = 50000, /* between two of one queue pair */
	/* of a thousand packets, at least, where memory is released early */
	AIR_STIR_DUPLICATE = 60,
	AIR_STIR_REORDER = 250,
};

/* A packet under way. */
struct drop {
	struct list_head node;
	u64 arrives;
	struct proc *from;
	struct pkt pkt; /* for the trace */
	u32 plane;
	bool hit, marked;
	u32 length;
	u8 data[];
};

/* A process' way to a node, and its name for what comes from there. */
struct air_dest {
	struct path_dest d; /* first */
	struct proc *owner;
	struct node *node; /* NULL: nowhere */
	u32 plane;
	u32 refs;
	u64 full_until_ns; /* the socket */
	struct roce_source source;
	bool heard; /* since the last end of a batch */
};

struct air_path {
	struct path path;
	struct proc *proc;
	struct air_dest dests[AIR_DESTS];
	struct list_head inbox; /* by arrival */
	u32 inbox_bytes;
};

static struct air_dest *air_dest_of(struct path_dest *d)
{
	return container_of(d, struct air_dest, d);
}

static struct air_path *air_path_of(struct path *p)
{
	return container_of(p, struct air_path, path);
}

static struct air_dest *air_at(struct air_path *ap, const struct node *n, u32 plane, u32 lane)
{
	return &ap->dests[(n->id * SIM_PLANES + plane) * AIR_LANES + lane];
}

void air_gid(const struct node *n, u32 plane, u8 gid[16])
{
	path_gid(n, gid);
	gid[14] = (u8)plane;
}

static void air_lost(struct proc *at, const struct proc *other, const struct pkt *k)
{
	link_trace(at, TR_LOST, other, k, 0);
	reason_lost(k->dqpn);
}

/* ---- sending ---- */

/* Headers, payload, padding, ICRC: bytes written. */
static u32 air_pack(const struct roce_flow *f, const struct pkt *k, const struct iovec *iov, int n,
		    u8 *to)
{
	int headers = roce_pack(k, to);
	u8 *at;
	u32 length, icrc;

	sim_check(headers > 0, "packet of opcode %u, flags %x has no wire form", k->opcode,
		  k->flags);
	at = to + headers;
	for (int i = 0; i < n; at += iov[i++].iov_len)
		memcpy(at, iov[i].iov_base, iov[i].iov_len);
	length = (u32)headers + k->length + roce_pad(k->length) + ROCE_ICRC;
	icrc = roce_icrc_begin(f, length, to, (u32)headers);
	icrc = roce_icrc_add(icrc, to + headers, k->length);
	roce_icrc_end(icrc, roce_pad(k->length), at);
	return length;
}

static void air_insert(struct air_path *to, struct drop *d)
{
	struct list_head *at = to->inbox.prev;

	while (at != &to->inbox && list_entry(at, struct drop, node)->arrives > d->arrives)
		at = at->prev;
	list_insert(&d->node, at, at->next);
	to->inbox_bytes += d->length;
	proc_wake(to->proc, d->arrives + rng_skewed(RNG, 0, 20000));
}

/* When it would arrive, and whether it does. */
static bool air_travel(struct weather *w, u32 bytes, u64 *arrives, bool *marked)
{
	u64 begin = MAX(w->busy_ns, world.now), end = begin + (u64)bytes * w->ns_per_kib / 1024;

	*marked = rng_permille(RNG, w->mark) || (w->marks && begin - world.now > w->queue_ns / 3);

	if (world.now < w->cut_until_ns || rng_permille(RNG, w->loss) ||
	    begin - world.now > w->queue_ns)
		return false;
	w->busy_ns = end;
	*arrives = end + w->delay_ns;
	if (rng_permille(RNG, w->reorder))
		*arrives += rng_range(RNG, 0, w->jitter_ns);
	else
		*arrives = w->last_ns = MAX(*arrives, w->last_ns + 1);
	return true;
}

static void air_launch(struct air_dest *d, struct proc *to, const struct pkt *k, const u8 *data,
		       u32 length)
{
	struct weather *w = &world.weather[d->plane][d->owner->node->id][d->node->id];
	struct drop *p;
	bool marked;
	u64 arrives;

	if (!air_travel(w, length, &arrives, &marked) || to->dead ||
	    to->air->inbox_bytes + length > AIR_BUFFER) {
		air_lost(d->owner, to, k);
		return;
	}
	p = malloc(sizeof(*p) + length);
	if (p == NULL)
		abort();
	*p = (struct drop){ .arrives = arrives, .from = d->owner, .pkt = *k, .plane = d->plane,
			    .length = length };
	memcpy(p->data, data, length);
	p->marked = marked && k->qp_type != IBV_QPT_UD;
	p->hit = rng_permille(RNG, w->corrupt);
	for (u32 flips = p->hit ? (u32)rng_range(RNG, 1, 3) : 0; flips > 0; flips--) {
		u32 bit = rng_below(RNG, length * 8);

		p->data[bit / 8] ^= (u8)(1u << bit % 8);
	}
	air_insert(to->air, p);
}

static struct proc *air_find(const struct node *n, u32 qpn)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		if (world.procs[i]->node == n && world.procs[i]->slot == qpn >> IBT_INDEX_BITS)
			return world.procs[i];
	return NULL;
}

static int air_refuse(struct air_dest *d, const struct pkt *k, int err)
{
	link_trace(d->owner, TR_TX_REFUSED, air_find(d->node, k->dqpn), k, (u64)-err);
	return err;
}

/* Only who has been marked tells of it, and not too often. */
static void air_judge_cnp(const struct proc *p, const struct pkt *k)
{
	struct sqp *q = sqp_find(p, k->sqpn);

	if (k->opcode != PKT_CNP)
		return;
	sim_check(q != NULL && q->marked, "p%u: a CNP, but no packet was marked", p->id);
	sim_check(world.now - q->cnp_ns >= AIR_CNP_NS, "qp %06x: a CNP %llu ns after the last",
		  q->qpn, (unsigned long long)(world.now - q->cnp_ns));
	q->marked = false;
	q->cnp_ns = world.now;
}

static int air_send(struct path_dest *to, const struct pkt *k, const struct iovec *iov, int n)
{
	struct air_dest *d = air_dest_of(to);
	struct roce_flow f = { .sport = ROCE_PORT, .df = true };
	u8 data[ROCE_UDP_MAX];
	struct proc *peer;
	u32 length;

	link_judge(to, k, iov, n);
	sqp_judge_port(d->owner, k->sqpn);
	if (sqp_find(d->owner, k->sqpn) != NULL)
		mig_judge(sqp_find(d->owner, k->sqpn), d->plane, k);
	if (d->node == NULL || d->owner->dead)
		return air_refuse(d, k, -ENETUNREACH);
	if (world.now < d->full_until_ns)
		return air_refuse(d, k, -EAGAIN);
	if (!world.quiet && rng_permille(RNG, world.plan.full_permille)) {
		d->full_until_ns = world.now + rng_skewed(RNG, 1000, NS_PER_MS);
		proc_wake(d->owner, d->full_until_ns);
		return air_refuse(d, k, -EAGAIN);
	}
	air_gid(d->owner->node, d->plane, f.sgid);
	air_gid(d->node, d->plane, f.dgid);
	length = air_pack(&f, k, iov, n, data);
	air_judge_cnp(d->owner, k);
	peer = air_find(d->node, k->dqpn);
	if (peer == NULL)
		return 0;
	link_trace(d->owner, TR_TX, peer, k, 0);
	link_strike(d->owner, peer);
	air_launch(d, peer, k, data, length);
	if (rng_permille(RNG, world.weather[d->plane][d->owner->node->id][d->node->id].duplicate))
		air_launch(d, peer, k, data, length);
	return 0;
}

static void air_flush(struct path_dest *d)
{
	/* Nothing waits for it. */
}

/* ---- receiving ---- */

static void air_deliver(struct air_path *ap, struct drop *drop)
{
	struct air_dest *from = air_at(ap, drop->from->node, drop->plane, 0);
	struct sqp *to = sqp_find(ap->proc, drop->pkt.dqpn);
	struct roce_flow f = { .sport = ROCE_PORT };
	struct pkt p;
	u32 payload;
	bool right;

	air_gid(drop->from->node, drop->plane, f.sgid);
	air_gid(ap->proc->node, drop->plane, f.dgid);
	right = roce_icrc_matches(&from->source, &f, drop->data, drop->length,
				  world.now / NS_PER_MS);
	sim_check(right || drop->hit, "p%u: the ICRC of a good packet is refused", ap->proc->id);
	/* One in some millions passes with an ICRC of IPv4's strength; that is known. */
	if (!ap->proc->port_up || drop->hit)
		air_lost(ap->proc, drop->from, &drop->pkt);
	if (drop->hit)
		return;
	sim_check(roce_unpack(drop->data, drop->length - ROCE_ICRC, &p, &payload) == 0,
		  "p%u: a packet cannot be unpacked", ap->proc->id);
	link_trace(ap->proc, TR_RX, drop->from, &drop->pkt, 0);
	p.sgid = f.sgid;
	p.dgid = f.dgid;
	p.flags |= PKT_HAS_GRH;
	p.hop_limit = 64;
	p.traffic_class = drop->marked ? PATH_ECN_MARKED : PATH_ECN_CAPABLE;
	if (to != NULL && drop->marked)
		to->marked = true;
	from->heard = true;
	ap->path.user_ops->receive(ap->path.user, &from->d, &p, drop->data + payload);
}

static void air_end_batch(struct air_path *ap, struct air_dest *d)
{
	if (d->heard)
		ap->path.user_ops->batch_end(ap->path.user, &d->d, false);
	else if (path_owes_acks(&d->d))
		ap->path.user_ops->batch_end(ap->path.user, &d->d, true);
	d->heard = false;
	if (path_is_awaited(&d->d) && (world.now >= d->full_until_ns || d->node == NULL))
		ap->path.user_ops->writable(ap->path.user, &d->d);
}

static int air_poll(struct path *p, int budget, bool must)
{
	struct air_path *ap = air_path_of(p);
	int n = 0;

	for (; n < budget && !list_empty(&ap->inbox); n++) {
		struct drop *d = list_first(&ap->inbox, struct drop, node);

		if (d->arrives > world.now)
			break;
		list_remove(&d->node);
		ap->inbox_bytes -= d->length;
		air_deliver(ap, d);
		free(d);
	}
	for (u32 i = 0; i < AIR_DESTS; i++)
		air_end_batch(ap, &ap->dests[i]);
	if (n == 0)
		path_found_empty(p);
	return n;
}

/* ---- destinations ---- */

struct path_dest *air_dest(struct proc *p, const struct node *n, u32 plane)
{
	u32 lane = n == NULL ? 0 : rng_below(RNG, AIR_LANES);
	struct air_dest *d = n == NULL ? &p->air->dests[AIR_DESTS - 1]
				       : air_at(p->air, n, plane, lane);

	d->refs++;
	return &d->d;
}

static struct path_dest *air_dest_get(struct path *p, const struct path_av *av, u32 qpn)
{
	u8 gid[16];

	for (u32 i = 0; i < world.plan.nodes * SIM_PLANES; i++) {
		struct node *n = &world.nodes[i / SIM_PLANES];

		air_gid(n, i % SIM_PLANES, gid);
		if (memcmp(gid, av->dgid, 16) == 0)
			return air_dest(air_path_of(p)->proc, n, i % SIM_PLANES);
	}
	return NULL;
}

static struct path_dest *air_dest_nowhere(struct path *p)
{
	return air_dest(air_path_of(p)->proc, NULL, 0);
}

static void air_dest_hold(struct path_dest *d)
{
	air_dest_of(d)->refs++;
}

static void air_dest_put(struct path_dest *d)
{
	sim_check(air_dest_of(d)->refs > 0, "a destination is given back once too often");
	air_dest_of(d)->refs--;
}

static int air_resolve(struct path_dest *d)
{
	return 0;
}

static bool air_same(const struct path_dest *d, const struct path_dest *from)
{
	const struct air_dest *a = container_of(d, const struct air_dest, d);
	const struct air_dest *b = container_of(from, const struct air_dest, d);

	return a->node == b->node && a->plane == b->plane;
}

static bool air_holds(const struct path_dest *d, u32 qpn, u32 type)
{
	return false;
}

static void air_exclude(struct path *p, void (*fn)(void *arg), void *arg)
{
	fn(arg);
}

static const struct path_ops air_ops = {
	.name = "air",
	.dest_get = air_dest_get,
	.dest_nowhere = air_dest_nowhere,
	.dest_hold = air_dest_hold,
	.dest_put = air_dest_put,
	.send = air_send,
	.flush = air_flush,
	.poll = air_poll,
	.resolve = air_resolve,
	.same = air_same,
	.holds = air_holds,
	.exclude = air_exclude,
};

struct air_path *air_create(struct proc *p)
{
	struct air_path *ap = calloc(1, sizeof(*ap));

	if (ap == NULL)
		abort();
	ap->proc = p;
	ap->path.ops = &air_ops;
	ap->path.counters = p->counters;
	ap->path.guarantees = (struct path_guarantees){ .mtu = ROCE_MTU_MAX };
	list_init(&ap->inbox);
	for (u32 i = 0; i < AIR_DESTS; i++) {
		path_dest_init(&ap->dests[i].d, &ap->path);
		ap->dests[i].owner = p;
		ap->dests[i].node =
			i < AIR_DESTS - 1 ? &world.nodes[i / AIR_LANES / SIM_PLANES] : NULL;
		ap->dests[i].plane = i / AIR_LANES % SIM_PLANES;
		/* all lanes to one place share a window */
		ap->dests[i].d.window = &ap->dests[i / AIR_LANES * AIR_LANES].d.own_window;
	}
	return ap;
}

struct path *air_path(struct proc *p)
{
	return &p->air->path;
}

u64 air_next_arrival(const struct proc *p)
{
	return list_empty(&p->air->inbox) ? SIM_NEVER
					  : list_first(&p->air->inbox, struct drop, node)->arrives;
}

bool air_owes(const struct proc *p)
{
	for (u32 i = 0; i < AIR_DESTS; i++)
		if (path_owes_acks(&p->air->dests[i].d))
			return true;
	return false;
}

void air_forget(struct proc *p)
{
	struct list_head *node;

	while ((node = list_pop_front(&p->air->inbox)) != NULL)
		free(list_entry(node, struct drop, node));
	p->air->inbox_bytes = 0;
}

void air_check_gone(const struct proc *p, const void *from, size_t size)
{
	for (u32 i = 0; i < AIR_DESTS; i++)
		path_check_off(&p->air->dests[i].d, p, from, size);
}

void air_destroy(struct proc *p) NO_THREAD_SAFETY /* there is one thread */
{
	air_forget(p);
	sim_check(p->counters[COUNT_TX_PACED] == 0 ||
			  p->counters[COUNT_RX_CNP] + p->counters[COUNT_RX_MARKED] != 0,
		  "p%u: it was paced, but nobody has told it of congestion", p->id);
	for (u32 i = 0; i < AIR_DESTS; i++) {
		struct air_dest *d = &p->air->dests[i];

		sim_check(d->refs == 0, "p%u: %u references to a node are left", p->id, d->refs);
		sim_check(list_empty(&d->d.blocked) && list_empty(&d->d.acks) &&
				  list_empty(&d->d.acks_now),
			  "p%u: a destroyed queue pair is on a list", p->id);
		sim_check(p->dead || d->d.window->in_flight == 0,
			  "p%u: a window counts %u bytes of nobody", p->id, d->d.window->in_flight);
	}
	free(p->air);
}

static struct weather *air_weather(u32 i)
{
	return &world.weather[i / SIM_NODES / SIM_NODES][i / SIM_NODES % SIM_NODES][i % SIM_NODES];
}

/* A READ is to come again when its memory has been released: doubled, one of the two overtaken. */
static void air_stir(struct weather *w)
{
	w->duplicate = MAX(w->duplicate, (u32)AIR_STIR_DUPLICATE);
	w->reorder = MAX(w->reorder, (u32)AIR_STIR_REORDER);
	w->jitter_ns = MAX(w->jitter_ns, 2 * w->delay_ns);
}

void air_draw_weather(void)
{
	u32 lines = SIM_NODES * SIM_NODES * (world.plan.migrates ? SIM_PLANES : 1);

	for (u32 i = 0; i < lines; i++) {
		struct weather *w = air_weather(i);
		bool bad = rng_percent(RNG, 70), narrow = rng_percent(RNG, 15);

		*w = (struct weather){
			.loss = bad ? (u32)rng_skewed(RNG, 0, 150) : 0,
			.duplicate = bad ? (u32)rng_skewed(RNG, 0, 100) : 0,
			.reorder = bad ? (u32)rng_skewed(RNG, 0, 300) : 0,
			.corrupt = bad ? (u32)rng_skewed(RNG, 0, 50) : 0,
			.mark = rng_percent(RNG, 25) ? (u32)rng_skewed(RNG, 1, 500) : 0,
			.marks = rng_percent(RNG, 50),
			.delay_ns = rng_skewed(RNG, 1000, 200000),
			.jitter_ns = rng_skewed(RNG, 1000, 200000),
			.ns_per_kib = narrow ? rng_range(RNG, 5000, 20000)
					     : rng_skewed(RNG, 20, 20000),
			.queue_ns = narrow ? rng_range(RNG, 100000, 400000)
					   : rng_skewed(RNG, 100000, 20 * NS_PER_MS),
		};
		if (world.plan.releases)
			air_stir(w);
	}
}

void air_clear_up(void)
{
	for (u32 i = 0; i < SIM_PLANES * SIM_NODES * SIM_NODES; i++) {
		struct weather *w = air_weather(i);

		w->loss = w->duplicate = w->reorder = w->corrupt = 0;
		w->cut_until_ns = 0;
	}
}
