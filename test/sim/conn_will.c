/* conn_will.c: the MADs that a host sends in the name of a process that has died.
 * In: wills of CM instances, deaths    Out: MADs to their peers, some times
 */
#include <stdlib.h>
#include <string.h>

#include "conn.h"

enum { WILLS_MAX = 4096, WILL_TRIES = 8 };

struct conn_will {
	bool set;
	struct cm_route route;
	u8 mad[CM_MAD_BYTES];
};

static void will_grow(struct conn_process *p, u32 slot)
{
	u32 count = slot + 1;

	sim_check(slot < WILLS_MAX, "n%u: a will at slot %u", p->node->id, slot);
	if (slot < p->will_count)
		return;
	p->wills = realloc(p->wills, count * sizeof(*p->wills));
	if (p->wills == NULL)
		abort();
	memset(p->wills + p->will_count, 0, (count - p->will_count) * sizeof(*p->wills));
	p->will_count = count;
}

void conn_will_set(struct cm_device *dev, u32 slot, const struct cm_route *route, const u8 *mad,
		   const struct mad_connection *connection)
{
	struct conn_process *p = (struct conn_process *)dev;
	struct conn_will *w;

	if (p->dead || p->dying)
		return;
	will_grow(p, slot);
	w = &p->wills[slot];
	sim_check(mad != NULL || w->set, "n%u: a will is taken back twice", p->node->id);
	w->set = mad != NULL;
	if (mad == NULL)
		return;
	w->route = *route;
	memcpy(w->mad, mad, CM_MAD_BYTES);
	for (u32 i = CM_WILL_BYTES; i < CM_MAD_BYTES; i++)
		sim_check(mad[i] == 0, "n%u: byte %u of a will is not zero", p->node->id, i);
}

u32 conn_will_count(const struct conn_process *p)
{
	u32 n = 0;

	for (u32 i = 0; i < p->will_count; i++)
		n += p->wills[i].set;
	return n;
}

/* ---- execution ------------------------------------------------------------------------------- */

struct wills {
	struct conn_node *node;
	struct conn_will will;
};

static void wills_send(void *arg, u64 tries)
{
	struct wills *e = arg;

	if (tries == WILL_TRIES) {
		free(e);
		return;
	}
	conn_air_launch(e->node, &e->will.route, NULL, e->will.mad);
	world_at(world.now + (4096ull << conn.plan.timeout), wills_send, e, tries + 1);
}

void conn_will_execute(struct conn_process *p)
{
	for (u32 i = 0; i < p->will_count; i++) {
		struct wills *e;

		if (!p->wills[i].set)
			continue;
		e = malloc(sizeof(*e));
		if (e == NULL)
			abort();
		*e = (struct wills){ .node = p->node, .will = p->wills[i] };
		conn_seen.wills++;
		world_at(world.now + rng_below(RNG, NS_PER_MS), wills_send, e, 0);
	}
}
