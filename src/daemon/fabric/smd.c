/* smd.c: the subnet managers that the node adds to its fabric.
 * In:    MADs for their ports, time     Out: MADs
 * Runs:  the daemon's only thread       Locks: none
 *
 * The node looks at the map to choose where they are, and for nothing else: what they know of the
 * fabric comes by MADs.
 */
#include "daemon/fabric/smd.h"

#include <stdlib.h>

#include "base/clock.h"

enum { SMD_MAX = 16 /* parts of a fabric that have an SM */ };

/* An SM and its port. */
struct smd_one {
	struct smd *all;
	struct sm *sm; /* NULL: it has stepped aside */
	u32 port;
} OWNED_BY(the daemon);

struct smd {
	struct fabricd *fabricd;
	struct smd_one one[SMD_MAX];
	u32 count;
} OWNED_BY(the daemon);

/* ---- an SM ----------------------------------------------------------------------------------- */

static void smd_send(void *arg, const struct fabric_mad *m)
{
	struct smd_one *o = arg;

	fabric_send(o->all->fabricd->fabric, o->port, m);
}

static u64 smd_now_ns(void *arg)
{
	return clock_now_ns();
}

static const struct sm_ops smd_ops = { .send = smd_send, .now_ns = smd_now_ns };

static void smd_start(struct smd_one *o)
{
	/* transaction IDs of slot 0, which no process has: they differ from node to node */
	struct sm_config c = { .seed = (clock_now_ns() >> 10) & 0x3fffff };

	o->sm = sm_create(&smd_ops, o, &c);
	if (o->sm != NULL)
		fabric_set_issm(o->all->fabricd->fabric, o->port, true);
}

static void smd_stop(struct smd_one *o, bool keep)
{
	if (o->sm != NULL && !keep)
		fabric_set_issm(o->all->fabricd->fabric, o->port, false);
	sm_destroy(o->sm);
	o->sm = NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The parts of the fabric: each port's way to the one that stands for its part. */
struct smd_parts {
	const struct fabric_view *view;
	u32 *of;
	u32 *best; /* of the part: the port with the highest GUID that may be an SM's */
	u64 *guid;
} OWNED_BY(the daemon);

static u32 smd_part_of(struct smd_parts *p, u32 port)
{
	while (p->of[port] != port)
		port = p->of[port] = p->of[p->of[port]];
	return port;
}

static void smd_join(struct smd_parts *p, u32 a, u32 b)
{
	p->of[smd_part_of(p, a)] = smd_part_of(p, b);
}

static void smd_join_node(struct smd_parts *p, const struct fabric_node_attr *n)
{
	struct fabric_port_attr a;

	for (u32 k = 0; k <= n->ports; k++) {
		if (n->type == FABRIC_SWITCH)
			smd_join(p, n->first_port, n->first_port + k);
		if (fabric_port_read(p->view, n->first_port + k, &a) == 0 &&
		    a.peer < p->view->ports)
			smd_join(p, n->first_port + k, a.peer);
	}
}

/* A switch's port 0, a CA's ports that have a cable. */
static void smd_rate_node(struct smd_parts *p, const struct fabric_node_attr *n)
{
	bool is_switch = n->type == FABRIC_SWITCH;
	u32 first = is_switch ? 0 : 1, last = is_switch ? 0 : n->ports;
	struct fabric_port_attr a;

	for (u32 k = first; k <= last; k++) {
		u32 part = smd_part_of(p, n->first_port + k);

		if (fabric_port_read(p->view, n->first_port + k, &a) < 0 ||
		    a.guid <= p->guid[part] || (!is_switch && a.peer == FABRIC_NONE))
			continue;
		p->guid[part] = a.guid;
		p->best[part] = n->first_port + k;
	}
}

static void smd_choose(struct smd *s, struct smd_parts *p)
{
	struct fabric_node_attr n;

	for (u32 i = 0; i < p->view->ports; i++)
		p->of[i] = i;
	for (u32 i = 0; i < p->view->nodes; i++)
		if (fabric_node_read(p->view, i, &n) == 0)
			smd_join_node(p, &n);
	for (u32 i = 0; i < p->view->nodes; i++)
		if (fabric_node_read(p->view, i, &n) == 0)
			smd_rate_node(p, &n);
	for (u32 i = 0; i < p->view->ports && s->count < SMD_MAX; i++)
		if (p->guid[i] != 0)
			s->one[s->count++] = (struct smd_one){ .all = s, .port = p->best[i] };
}

struct smd *smd_new(struct fabricd *f)
{
	struct smd_parts p = { .view = fabric_view(f->fabric) };
	struct smd *s = calloc(1, sizeof(*s));

	p.of = calloc(p.view->ports, sizeof(*p.of));
	p.best = calloc(p.view->ports, sizeof(*p.best));
	p.guid = calloc(p.view->ports, sizeof(*p.guid));
	if (s != NULL && p.of != NULL && p.best != NULL && p.guid != NULL) {
		s->fabricd = f;
		smd_choose(s, &p);
		for (u32 i = 0; i < s->count; i++)
			smd_start(&s->one[i]);
	}
	free(p.of);
	free(p.best);
	free(p.guid);
	return s;
}

void smd_free(struct smd *s, bool keep)
{
	for (u32 i = 0; s != NULL && i < s->count; i++)
		smd_stop(&s->one[i], keep);
	free(s);
}

/* ---- events ---------------------------------------------------------------------------------- */

bool smd_receive(struct smd *s, u32 port, const struct fabric_mad *m)
{
	for (u32 i = 0; s != NULL && i < s->count; i++)
		if (s->one[i].port == port && s->one[i].sm != NULL)
			return sm_receive(s->one[i].sm, m);
	return false;
}

bool smd_is_at(const struct smd *s, u32 port)
{
	for (u32 i = 0; s != NULL && i < s->count; i++)
		if (s->one[i].port == port && s->one[i].sm != NULL)
			return true;
	return false;
}

void smd_yield(struct smd *s, u32 port, bool yields)
{
	for (u32 i = 0; s != NULL && i < s->count; i++) {
		struct smd_one *o = &s->one[i];

		if (o->port != port || yields == (o->sm == NULL))
			continue;
		if (yields)
			smd_stop(o, true); /* the process is the SM there */
		else
			smd_start(o);
	}
}

void smd_port_changed(struct smd *s, u32 port)
{
	struct fabric_port_attr a;

	/* what an SM itself does to its port is no news to it */
	if (s == NULL || fabric_port_read(fabric_view(s->fabricd->fabric), port, &a) < 0 ||
	    (a.number != 0 && a.state > FABRIC_INIT))
		return;
	for (u32 i = 0; i < s->count; i++)
		if (s->one[i].port == port && s->one[i].sm != NULL)
			sm_wake(s->one[i].sm);
}

u64 smd_next_ns(const struct smd *s)
{
	u64 next = UINT64_MAX;

	for (u32 i = 0; s != NULL && i < s->count; i++)
		if (s->one[i].sm != NULL)
			next = MIN(next, sm_due_ns(s->one[i].sm));
	return next;
}

void smd_run(struct smd *s, u64 now_ns)
{
	for (u32 i = 0; s != NULL && i < s->count; i++)
		if (s->one[i].sm != NULL && sm_due_ns(s->one[i].sm) <= now_ns)
			sm_run(s->one[i].sm);
}

void smd_read(const struct smd *s, struct sm_report *out)
{
	struct sm_report one;

	*out = (struct sm_report){ .state = SM_NOT_ACTIVE };
	for (u32 i = 0; s != NULL && i < s->count; i++) {
		if (s->one[i].sm == NULL)
			continue;
		sm_read_report(s->one[i].sm, &one);
		out->state = MAX(out->state, one.state);
		out->busy = out->busy || one.busy;
		out->sweeps += one.sweeps;
		out->smps += one.smps;
		out->timeouts += one.timeouts;
		out->queries += one.queries;
	}
}
