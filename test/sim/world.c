/* world.c: virtual time: a heap of events, run one after the other; and what a seed decides.
 * In: events    Out: calls of their functions    Runs: the one thread
 */
#include <stdlib.h>
#include <string.h>

#include "tagged.h"

struct event {
	u64 at, order;
	void (*fn)(void *arg, u64 n);
	void *arg;
	u64 n;
};

enum { WORLD_TAGGED = 0x746167 };

struct world world;
static struct event *heap;
static u32 heap_count, heap_room;
static u64 heap_order;

static u64 world_clock(void)
{
	return world.now;
}

static bool event_before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void world_at(u64 when, void (*fn)(void *arg, u64 n), void *arg, u64 n)
{
	struct event e = { MAX(when, world.now), heap_order++, fn, arg, n };
	u32 i = heap_count++;

	if (heap_count > heap_room) {
		heap_room = heap_room == 0 ? 256 : 2 * heap_room;
		heap = realloc(heap, heap_room * sizeof(*heap));
		if (heap == NULL)
			abort();
	}
	for (; i > 0 && event_before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = e;
}

static struct event heap_pop(void)
{
	struct event first = heap[0], last = heap[--heap_count];
	u32 i = 0;

	for (u32 child = 1; child < heap_count; child = 2 * i + 1) {
		if (child + 1 < heap_count && event_before(&heap[child + 1], &heap[child]))
			child++;
		if (!event_before(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

void world_run(u64 until, bool (*done)(void))
{
	while (heap_count > 0 && heap[0].at <= until && (done == NULL || !done())) {
		struct event e = heap_pop();

		world.now = MAX(world.now, e.at);
		e.fn(e.arg, e.n);
	}
}

void world_sleep(u64 ns)
{
	u64 until = world.now + ns;

	world_run(until, NULL);
	world.now = MAX(world.now, until);
}

static void plan_draw(struct plan *p)
{
	p->nodes = (u32)rng_range(RNG, 1, SIM_NODES);
	p->procs = (u32)rng_range(RNG, 1, SIM_PROCS);
	p->requests = rng_percent(RNG, 30) ? (u32)rng_skewed(RNG, 20, 300)
					   : (u32)rng_range(RNG, 300, 3000);
	p->pairs = (u32)rng_range(RNG, 1, 6);
	p->datagram_qps = rng_percent(RNG, 35) ? (u32)rng_range(RNG, 0, 4) : 0;
	p->fault_permille = rng_percent(RNG, 50) ? 0 : (u32)rng_skewed(RNG, 1, 80);
	p->modify_permille = rng_percent(RNG, 30) ? 0 : (u32)rng_skewed(RNG, 2, 120);
	p->rebind_permille = rng_percent(RNG, 30) ? 0 : (u32)rng_skewed(RNG, 20, 500);
	p->invalidate_permille = rng_percent(RNG, 40) ? 0 : (u32)rng_skewed(RNG, 5, 100);
	p->small_cq_percent = rng_percent(RNG, 75) ? 0 : 50;
	p->chaos_us = rng_percent(RNG, 40) ? 0 : (u32)rng_skewed(RNG, 20, 3000);
	p->late_percent = rng_percent(RNG, 50) ? 0 : (u32)rng_range(RNG, 10, 95);
	p->ring_slots = (u32)rng_skewed(RNG, 4, 256);
	p->ring_bytes = (u32)rng_skewed(RNG, 32 << 10, 256 << 10);
	p->delay_ns = (u32)rng_skewed(RNG, 50, 50000);
	p->jitter_ns = (u32)rng_skewed(RNG, 0, 50000);
	p->large_permille = rng_percent(RNG, 60) ? 0 : (u32)rng_skewed(RNG, 5, 200);
	p->direct = rng_percent(RNG, 50);
	p->air = rng_percent(RNG, 60);
	p->air_only = rng_percent(RNG, 40);
	p->ipv6 = rng_percent(RNG, 30);
	p->full_permille = rng_percent(RNG, 70) ? 0 : (u32)rng_skewed(RNG, 1, 50);
	p->kills = rng_percent(RNG, 40);
}

/* Not from the seed's sequence, so that what else a seed means stays as it was. */
static u32 plan_lone(u64 seed)
{
	u64 lot = rng_mix(seed ^ 0x6c6f6e65);

	return lot % 2 == 0 ? 0 : 1 + (u32)(lot >> 32) % (lot % 4 == 1 ? 6 : 40);
}

/* Likewise. */
static u32 plan_left(u64 seed)
{
	u64 lot = rng_mix(seed ^ 0x6c656674);

	return lot % 4 != 1 ? 0 : 10 + (u32)(lot >> 32) % 91;
}

/* Likewise. */
static bool plan_wide(u64 seed)
{
	return (rng_mix(seed ^ 0x6d6f7265) & 1) != 0;
}

/* Likewise, of those that are wide: many processes on few nodes, and in half of them less happens
 * to their connections than elsewhere. */
static void plan_hands(struct plan *p, u64 seed)
{
	u64 lot = rng_mix(seed ^ 0x68616e64);

	p->hands = p->wide && lot % 3 != 0;
	if (!p->hands)
		return;
	p->nodes = MIN(p->nodes, 2u);
	p->procs = MAX(p->procs, 4u);
	if ((lot >> 32 & 1) != 0) {
		p->fault_permille /= 8;
		p->modify_permille /= 8;
		p->invalidate_permille = 0;
		p->chaos_us *= 8;
	}
}

/* Likewise. */
static bool plan_migrates(u64 seed)
{
	return rng_mix(seed ^ 0x6d696772) % 3 == 0;
}

/* Likewise. */
static bool plan_releases(u64 seed)
{
	return (rng_mix(seed ^ 0x66726565) & 1) != 0;
}

/* Likewise. */
static bool plan_fills(u64 seed)
{
	return rng_mix(seed ^ 0x66756c6c) % 5 == 0;
}

/* Likewise. */
static bool plan_ends(u64 seed)
{
	return rng_mix(seed ^ 0x646966666572) % 4 == 0;
}

void world_open(u64 seed, u64 salt, bool tracing)
{
	memset(&world, 0, sizeof(world));
	world.seed = seed;
	world.tracing = tracing;
	world.now = 1000000;
	world.rng.state = rng_mix(seed + 1) ^ salt;
	heap_count = 0;
	heap_order = 0;
	clock_set_source(world_clock);
	clock_set_sleep(world_sleep);
}

void world_close(void)
{
	clock_set_source(NULL);
	clock_set_sleep(NULL);
	free(heap);
	heap = NULL;
	heap_room = heap_count = 0;
}

void world_begin(u64 seed, bool tagged, bool tracing)
{
	world_open(seed, tagged ? WORLD_TAGGED : 0, tracing);
	plan_draw(&world.plan);
	world.plan.lone = plan_lone(seed);
	world.plan.wide = !tagged && plan_wide(seed);
	plan_hands(&world.plan, seed);
	world.plan.migrates = !tagged && plan_migrates(seed);
	world.plan.releases = !tagged && plan_releases(seed);
	world.plan.fills = !tagged && plan_fills(seed);
	world.plan.ends = !tagged && plan_ends(seed);
	world.plan.left_percent = plan_left(seed);
	if (tagged)
		tagged_draw_plan(&world.plan);
	air_draw_weather();
	world.requests_left = world.plan.requests;
	for (u32 i = 0; i < world.plan.nodes; i++)
		world.nodes[i] = (struct node){ .id = i, .up = true };
	trace(NULL, TR_BEGIN, seed, world.plan.nodes, world.plan.procs, world.plan.requests);
	for (u32 i = 0; i < world.plan.procs; i++)
		world.procs[i] = proc_create(i, &world.nodes[rng_below(RNG, world.plan.nodes)]);
}

void world_end(void)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		proc_destroy(world.procs[i]);
	trace(NULL, TR_END, world.events, world.hash, 0, 0);
	world_close();
}
