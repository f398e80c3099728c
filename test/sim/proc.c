/* proc.c: a simulated process: when it looks around, is stopped, continues, dies.
 * In: wishes to be woken    Out: passes of its engine, turns of its program    Runs: the one thread
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "model.h"

static struct rng proc_keys;

static void proc_kick(void *arg)
{
	struct proc *p = arg;

	proc_wake(p, timer_next_ns(&p->timers));
}

static int proc_multicast(void *arg, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max)
{
	return group_members(arg, av->dgid, from, out, max);
}

static struct path_dest *proc_route(void *arg, const struct path_av *av, const struct pkt *pkt)
{
	struct proc *p = arg;
	struct path *path = path_of(p);

	for (u32 i = 0; i < world.plan.procs; i++)
		if (world.procs[i]->slot == pkt->dqpn >> IBT_INDEX_BITS &&
		    path_is_air(p, world.procs[i]))
			path = air_path(p);
	return path->ops->dest_get(path, av, pkt->dqpn);
}

/* When there is something to do next, as far as can be told now. */
static void proc_plan(struct proc *p)
{
	u64 next = path_next_arrival(p);

	if (next != SIM_NEVER)
		next = MAX(next, world.now) + rng_skewed(RNG, 100, 20000);
	next = MIN(next, timer_next_ns(&p->timers));
	if (path_owes(p))
		next = MIN(next, world.now + rng_skewed(RNG, 500, NS_PER_MS));
	if (!world.quiet)
		next = MIN(next, p->program_ns);
	if (next != SIM_NEVER)
		proc_wake(p, next);
}

static void proc_pass(struct proc *p)
{
	int ran;

	ibt_poll(p->ibt, rng_percent(RNG, 50) ? 256 : (int)rng_range(RNG, 1, 16));
	ran = timer_run(&p->timers, world.now);
	if (ran != 0)
		trace(p, TR_TIMERS, (u64)ran, 0, 0, 0);
	if (!p->asleep) {
		program_poll(p);
		if (!world.quiet && p->program_ns <= world.now) {
			p->program_ns = world.now + rng_skewed(RNG, 100, 2ull * p->pace_ns);
			program_turn(p);
		}
	}
}

static void proc_run(void *arg, u64 at)
{
	struct proc *p = arg;

	if (p->wake_ns != at)
		return; /* an earlier wish has taken its place */
	p->wake_ns = SIM_NEVER;
	if (!proc_runs(p))
		return;
	proc_pass(p);
	if (proc_runs(p))
		proc_plan(p);
}

void proc_wake(struct proc *p, u64 at)
{
	at = MAX(at, world.now + 100);
	if (at >= p->wake_ns || p->dead)
		return;
	p->wake_ns = at;
	world_at(at, proc_run, p, at);
}

void proc_enter(struct proc *p)
{
	p->asleep = true;
	proc_wake(p, world.now);
}

void proc_stop(struct proc *p)
{
	if (!proc_runs(p))
		return;
	trace(p, TR_STOP, 0, 0, 0, 0);
	p->stopped = true;
	p->stopped_ns = world.now;
}

void proc_continue(struct proc *p)
{
	if (p->dead || !p->stopped)
		return;
	trace(p, TR_CONTINUE, 0, 0, 0, 0);
	p->stopped = false;
	p->stops_ns += world.now - p->stopped_ns;
	p->stopped_ns = world.now;
	proc_wake(p, world.now);
}

void proc_kill(struct proc *p)
{
	if (p->dead)
		return;
	trace(p, TR_KILL, 0, 0, 0, 0);
	p->dead = true;
	p->dead_ns = world.now;
	path_proc_died(p);
}

/* The process sees what is so now; one that did not look while the port was down and up again hears
 * of the losses all the same. */
static void proc_hear_port(void *arg, u64 n)
{
	struct proc *p = arg;
	bool was = p->port_up;

	if (p->dead || p->port_seen_ns == p->node->changed_ns)
		return;
	p->port_up = p->node->up;
	p->port_seen_ns = p->node->changed_ns;
	sqp_set_port(p, was);
	proc_wake(p, world.now);
}

void node_set_port(struct node *n, bool up)
{
	if (n->up == up)
		return;
	trace(NULL, TR_PORT, n->id, up, 0, 0);
	n->up = up;
	n->changed_ns = world.now;
	for (u32 i = 0; i < world.plan.procs; i++)
		if (world.procs[i]->node == n)
			world_at(world.now + rng_skewed(RNG, 0, NS_PER_MS), proc_hear_port,
				 world.procs[i], 0);
}

/* Keys by lot, but by the seed's: this stands in for the C library's call. */
ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
	for (size_t i = 0; i < bytes; i++)
		((u8 *)to)[i] = (u8)(rng_next(&proc_keys) >> 32);
	return (ssize_t)bytes;
}

static void proc_init_keys(struct proc *p)
{
	if (mem_table_init(&p->mem, NULL) != 0)
		abort();
	proc_keys.state = rng_next(RNG);
}

struct proc *proc_create(u32 id, struct node *node)
{
	struct proc *p = calloc(1, sizeof(*p));
	struct ibt_config cfg = { .mem = p == NULL ? NULL : &p->mem,
				  .timers = p == NULL ? NULL : &p->timers,
				  .kick = proc_kick,
				  .publish = sqp_publish,
				  .async = sqp_async,
				  .multicast = proc_multicast,
				  .route = proc_route,
				  .arg = p };

	if (p == NULL)
		abort();
	p->id = id;
	p->slot = id + 1;
	p->node = node;
	p->port_up = true;
	p->wake_ns = SIM_NEVER;
	p->pace_ns = (u32)rng_skewed(RNG, 500, 200000);
	p->program_ns = world.now + rng_skewed(RNG, 100, p->pace_ns);
	p->next_index = (u32)rng_range(RNG, 2, 1000);
	timer_set_init(&p->timers);
	proc_init_keys(p);
	p->ibt = ibt_create(&cfg);
	p->path = path_create(p);
	p->air = air_create(p);
	if (p->ibt == NULL)
		abort();
	ibt_add_path(p->ibt, path_of(p));
	ibt_add_path(p->ibt, air_path(p));
	p->arena = arena_create();
	return p;
}

static u32 proc_keys_left(struct proc *p) NO_THREAD_SAFETY
{
	return p->mem.live;
}

/* Its objects are gone. */
void proc_destroy(struct proc *p)
{
	sim_check(timer_next_ns(&p->timers) == TIMER_NEVER, "p%u: a timer is armed at the end",
		  p->id);
	sim_check(proc_keys_left(p) == 0, "p%u: %u keys are left", p->id, proc_keys_left(p));
	path_destroy(p->path);
	air_destroy(p);
	ibt_destroy(p->ibt);
	timer_set_destroy(&p->timers);
	mem_table_fini(&p->mem);
	arena_destroy(p->arena);
	free(p);
}
