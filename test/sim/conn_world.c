/* conn_world.c: nodes with an IB CM each: births, works, deaths; and what a seed decides.
 * In: a seed    Out: one history    Runs: the one thread
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conn.h"

enum { CONN_SALT = 0x636f6e6e, MAX_RETRIES = 15 };

struct conn conn;
struct conn_coverage conn_seen;

/* ---- what a seed decides --------------------------------------------------------------------- */

static void plan_draw_weather(struct conn_plan *p)
{
	p->loss = rng_percent(RNG, 25) ? 0 : (u32)rng_range(RNG, 1, 200);
	p->duplicate = rng_percent(RNG, 35) ? 0 : (u32)rng_range(RNG, 1, 300);
	p->delay_ns = rng_skewed(RNG, 2 * NS_PER_US, 5 * NS_PER_MS);
	p->jitter_ns = rng_percent(RNG, 25) ? 0 : rng_skewed(RNG, 1000, 60 * NS_PER_MS);
}

static void plan_draw_chaos(struct conn_plan *p)
{
	p->fair = rng_percent(RNG, 35);
	p->chaos_ns = (u32)rng_skewed(RNG, 20 * NS_PER_MS, 500 * NS_PER_MS);
	p->cuts = rng_percent(RNG, 45) && !p->fair;
	p->kills = rng_percent(RNG, 50) && !p->fair;
	p->gaps = rng_percent(RNG, 30);
	p->unplugs = p->kills && rng_percent(RNG, 40);
	p->answers = rng_percent(RNG, 50);
	if (!p->cuts && !p->kills && !p->gaps)
		p->chaos_ns = 0;
}

static void plan_draw(struct conn_plan *p)
{
	plan_draw_weather(p);
	plan_draw_chaos(p);
	p->nodes = (u32)rng_range(RNG, 1, CONN_NODES);
	p->attempts = (u32)rng_skewed(RNG, 6, CONN_ATTEMPTS);
	p->span_ns = rng_skewed(RNG, 20 * NS_PER_MS, 3 * NS_PER_S);
	p->timeout = (u8)rng_range(RNG, 10, 14);
	p->life_time = (u8)rng_range(RNG, 4, 13);
	p->mra_time = (u8)rng_range(RNG, p->fair ? p->timeout : 8, 17);
	p->ack_delay = (u8)rng_range(RNG, 0, 16);
	p->retries = p->fair || rng_percent(RNG, 40) ? MAX_RETRIES : (u8)rng_range(RNG, 0, 15);
	/* a fair world's consumers answer before the retries end: 16 timeouts */
	p->think_ns = p->fair ? 4096ull << p->timeout
			      : rng_skewed(RNG, 10 * NS_PER_US, 500 * NS_PER_MS);
	p->slow_permille = rng_percent(RNG, 50) ? 0 : (u32)rng_skewed(RNG, 2, 100);
	p->slow_ns = p->fair ? NS_PER_MS : 30 * NS_PER_MS;
	p->wild_permille = rng_percent(RNG, 50) ? 0 : 60;
	p->peer_percent = rng_percent(RNG, 50) ? 0 : (u32)rng_range(RNG, 5, 60);
	p->ask_percent = rng_percent(RNG, 50) ? 0 : (u32)rng_range(RNG, 5, 60);
	conn_again_draw(p, world.seed);
	if (p->fair)
		p->jitter_ns = MIN(p->jitter_ns, 2 * 4096ull << p->timeout);
}

/* ---- works ----------------------------------------------------------------------------------- */

static void conn_kill(struct conn_process *p);

static void process_run(void *arg, u64 at)
{
	struct conn_process *p = arg;

	if (p->run_ns != at)
		return; /* an earlier look has taken its place */
	p->run_ns = SIM_NEVER;
	if (p->dead || p->running)
		return;
	p->running = true;
	work_queue_run(&p->queue, world.now);
	p->running = false;
	if (p->dying)
		conn_kill(p);
	else
		conn_wake(p);
}

void conn_wake(struct conn_process *p)
{
	u64 next;

	if (p->dead || p->running)
		return;
	next = work_queue_next_ns(&p->queue);
	if (next == TIMER_NEVER)
		return;
	next = MAX(next, world.now) + rng_below(RNG, CONN_LAG_NS);
	if (next >= p->run_ns)
		return;
	p->run_ns = next;
	world_at(next, process_run, p, next);
}

void conn_sleep(struct conn_process *p, u64 ns)
{
	conn_trace(p->node, CONN_TR_SLEEP, ns, 0, 0, 0);
	world_sleep(ns);
}

/* ---- births and deaths ----------------------------------------------------------------------- */

static void conn_birth(struct conn_node *n)
{
	struct conn_process *p = calloc(1, sizeof(*p));

	if (p == NULL || conn.process_count == CONN_PROCESSES)
		abort();
	p->number = ++conn.process_count;
	p->slot = conn.plan.same_slot ? n->id + 1 : p->number;
	conn.processes[p->number - 1] = p;
	p->node = n;
	p->run_ns = SIM_NEVER;
	p->ib.node_guid = htobe64(0x1000 + n->id);
	work_queue_init(&p->queue, "sim", true);
	p->cm = cm_create(&p->queue, (u32)rng_next(RNG));
	if (p->cm == NULL)
		abort();
	p->dev = (struct cm_device){ .ib = &p->ib,
				     .ops = &conn_ops,
				     .id_bits = p->slot << CM_ID_BITS,
				     .hi_tid = p->slot << CM_ID_BITS,
				     .ack_delay = conn.plan.ack_delay };
	conn_again_limit(p);
	cm_device_add(p->cm, &p->dev);
	n->live = p;
	n->next_qpn = 0; /* a host that was started anew begins with the same numbers */
	conn_trace(n, CONN_TR_BIRTH, p->number, 0, 0, 0);
	for (u32 i = 0; i < CONN_SERVICES; i++)
		conn_listen(p, i);
}

static void process_lose_sides(struct conn_process *p)
{
	for (u32 i = 0; i < conn.side_count; i++) {
		struct conn_side *s = conn.sides[i];

		if (s->process != p || s->id == NULL)
			continue;
		conn_seen.killed[s->state]++;
		s->id = NULL;
		s->killed = true;
		conn_number_rest(p->node, s->local_id, conn.plan.answers);
	}
}

/* Its instance is gone from one moment to the next. */
static void process_end(struct conn_process *p)
{
	p->dead = true;
	cm_device_remove(&p->dev);
	cm_destroy(p->cm);
	timer_set_destroy(&p->queue.timers);
	p->node->live = NULL;
}

static void conn_kill(struct conn_process *p)
{
	for (u32 i = 0; i < CONN_SERVICES; i++)
		p->node->absent_ns[i] = SIM_NEVER;
	if (p->running) {
		p->dying = true;
		return;
	}
	conn_trace(p->node, CONN_TR_DEATH, p->number, 0, 0, 0);
	process_lose_sides(p);
	if (conn.plan.answers)
		conn_will_execute(p);
	process_end(p);
}

static void node_reborn(void *arg, u64 n)
{
	struct conn_node *node = arg;

	if (node->live == NULL && !conn.quiet)
		conn_birth(node);
}

/* ---- chaos ----------------------------------------------------------------------------------- */

static void chaos_cut(void)
{
	u32 from = rng_below(RNG, conn.plan.nodes), to = rng_below(RNG, conn.plan.nodes);
	u64 until = world.now + rng_range(RNG, NS_PER_MS, NS_PER_S);

	conn.cut_ns[from][to] = until;
	if (rng_percent(RNG, 60))
		conn.cut_ns[to][from] = until;
	conn_trace(&conn.nodes[from], CONN_TR_CUT, to, until, 0, 0);
}

static void chaos_death(void *arg, u64 number)
{
	struct conn_node *n = arg;

	if (n->live == NULL || n->live->number != number || n->live->dying || conn.quiet ||
	    conn.process_count > CONN_PROCESSES - 4 * CONN_NODES)
		return;
	conn_kill(n->live);
	world_at(world.now + rng_skewed(RNG, NS_PER_MS, 200 * NS_PER_MS), node_reborn, n, 0);
}

void conn_strike(struct conn_process *p)
{
	u64 soon = 2 * (conn.plan.delay_ns + conn.plan.jitter_ns);

	if (conn.plan.kills && rng_permille(RNG, 10))
		world_at(world.now + rng_skewed(RNG, 0, soon), chaos_death, p->node, p->number);
}

static void chaos_listen_again(void *arg, u64 service)
{
	struct conn_process *p = arg;

	if (!p->dead && !p->dying && !p->unplugged && !conn.quiet)
		conn_listen(p, (u32)service);
}

void conn_gap(struct conn_node *n)
{
	u32 service = rng_below(RNG, CONN_SERVICES);

	for (u32 i = 0; i < conn.side_count; i++) {
		struct conn_side *s = conn.sides[i];

		if (s->role != CONN_LISTENS || s->process != n->live || s->id == NULL ||
		    s->service != service || n->live->dying)
			continue;
		conn_destroy(s);
		world_at(world.now + rng_skewed(RNG, 1000, 50 * NS_PER_MS), chaos_listen_again,
			 s->process, service);
		return;
	}
}

/* The device goes first, and some time later the process. */
static void chaos_unplug(struct conn_node *n)
{
	struct conn_process *p = n->live;

	if (p->dying || p->running || p->unplugged)
		return;
	conn_trace(n, CONN_TR_UNPLUG, p->number, 0, 0, 0);
	p->unplugged = true;
	for (u32 i = 0; i < CONN_SERVICES; i++)
		n->absent_ns[i] = SIM_NEVER;
	cm_device_remove(&p->dev);
	for (u32 i = 0; i < conn.side_count; i++)
		if (conn.sides[i]->process == p && conn.sides[i]->id != NULL)
			conn_plan_turn(conn.sides[i]);
	world_at(world.now + rng_skewed(RNG, NS_PER_MS, 50 * NS_PER_MS), chaos_death, n, p->number);
}

static void chaos_strike(void *arg, u64 n)
{
	struct conn_node *node = &conn.nodes[rng_below(RNG, conn.plan.nodes)];
	u32 dice = rng_below(RNG, 3);

	if (conn.quiet)
		return;
	if (dice == 0 && conn.plan.cuts)
		chaos_cut();
	else if (dice == 1 && conn.plan.unplugs && node->live != NULL && rng_percent(RNG, 50))
		chaos_unplug(node);
	else if (dice == 1 && conn.plan.kills && node->live != NULL)
		chaos_death(node, node->live->number);
	else if (dice == 2 && conn.plan.gaps && node->live != NULL)
		conn_gap(node);
	world_at(world.now + rng_skewed(RNG, NS_PER_MS, 2ull * conn.plan.chaos_ns), chaos_strike,
		 NULL, 0);
}

void conn_clear_up(void)
{
	conn.quiet = true;
	conn_trace(NULL, CONN_TR_QUIET, 0, 0, 0, 0);
	conn.plan.loss = conn.plan.duplicate = 0;
	memset(conn.cut_ns, 0, sizeof(conn.cut_ns));
	for (u32 i = 0; i < conn.plan.nodes; i++) {
		struct conn_node *n = &conn.nodes[i];

		if (n->live != NULL && n->live->unplugged)
			conn_kill(n->live);
		if (n->live == NULL)
			conn_birth(n);
	}
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void conn_begin(void)
{
	memset(&conn, 0, sizeof(conn));
	plan_draw(&conn.plan);
	conn_trace(NULL, CONN_TR_BEGIN, world.seed, conn.plan.nodes, conn.plan.attempts,
		   conn.plan.fair);
	for (u32 i = 0; i < conn.plan.nodes; i++) {
		conn.nodes[i].id = i;
		conn.nodes[i].gid.raw[0] = 0xfe;
		conn.nodes[i].gid.raw[15] = (u8)(i + 1);
		conn_birth(&conn.nodes[i]);
	}
	for (u32 i = 0; i < conn.plan.attempts; i++)
		world_at(world.now + 1 + rng_range(RNG, 0, conn.plan.span_ns), conn_begin_attempt,
			 NULL, 0);
	if (conn.plan.chaos_ns != 0)
		world_at(world.now + conn.plan.chaos_ns, chaos_strike, NULL, 0);
}

static void conn_end(void)
{
	for (u32 i = 0; i < conn.plan.nodes; i++)
		if (conn.nodes[i].live != NULL)
			process_end(conn.nodes[i].live);
	for (u32 i = 0; i < conn.process_count; i++) {
		free(conn.processes[i]->wills);
		free(conn.processes[i]);
	}
	for (u32 i = 0; i < conn.side_count; i++)
		free(conn.sides[i]);
}

void conn_run(u64 seed, bool tracing)
{
	world_open(seed, CONN_SALT, tracing);
	conn_begin();
	world_run(world.now + conn.plan.span_ns + NS_PER_S, NULL);
	conn_clear_up();
	conn_final();
	conn_end();
	conn_trace(NULL, CONN_TR_END, world.events, world.hash, 0, 0);
	world_close();
}
