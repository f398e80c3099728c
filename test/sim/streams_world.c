/* streams_world.c: hours of connections in virtual time. usage: simulate_streams SEED [HOURS]
 * Rounds of two hours: connections open, the wire fails now and then, and when all are over no
 * queue pair, region, id, descriptor or timer is left, and no byte more than after the first round.
 */
#include <malloc.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "streams.h"

enum { ROUND_CONNECTIONS = 200, HOURS = 24 };
#define ROUND_NS (5400 * NS_PER_S)
#define DRAIN_NS (6 * 3600 * NS_PER_S)

struct agenda_item {
	struct list_head node;
	u64 when, n;
	bool program;
	void (*fn)(void *arg, u64 n);
	void *arg;
};

struct net streams_net;
struct rng streams_rng;
static struct list_head agenda = LIST_HEAD_INIT(agenda); /* by `when` */
static u64 streams_seed;

void streams_fail(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "seed %llu, %.3f s: ", (unsigned long long)streams_seed,
		(double)net_now() / 1e9);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* ---- time ---- */

void agenda_add(u64 when, bool program, void (*fn)(void *arg, u64 n), void *arg, u64 n)
{
	struct agenda_item *it = malloc(sizeof(*it));
	struct list_head *at = &agenda;

	if (it == NULL)
		abort();
	*it = (struct agenda_item){
		.when = when, .program = program, .fn = fn, .arg = arg, .n = n
	};
	while (at->prev != &agenda && list_entry(at->prev, struct agenda_item, node)->when > when)
		at = at->prev;
	list_push_back(at, &it->node);
}

static struct agenda_item *agenda_next(bool programs)
{
	list_for_each(it, &agenda, struct agenda_item, node)
		if (programs || !it->program)
			return it;
	return NULL;
}

/* When a packet arrives or a timer is due. */
static u64 wire_next(void)
{
	u64 next = MIN(timer_next_ns(&streams_net.side[0].timers),
		       timer_next_ns(&streams_net.side[1].timers));

	for (u32 i = 0; i < streams_net.count; i++)
		next = MIN(next, streams_net.flying[i]->due_ns);
	return next;
}

static void pass_until(u64 when)
{
	if (when > net_now())
		net_freeze(when - net_now());
}

bool agenda_step(u64 limit, bool programs)
{
	struct agenda_item *it = agenda_next(programs);
	u64 wire = wire_next(), due = it != NULL ? it->when : UINT64_MAX;

	if (MIN(wire, due) >= limit) {
		if (limit != UINT64_MAX)
			pass_until(limit);
		return limit != UINT64_MAX;
	}
	if (wire <= due) {
		(void)net_step(&streams_net);
		return true;
	}
	pass_until(due);
	list_remove(&it->node);
	it->fn(it->arg, it->n);
	free(it);
	net_run(&streams_net, 0); /* what was posted leaves */
	return true;
}

/* ---- rounds ---- */

static void round_cut(void *arg, u64 on)
{
	cm_cut(on != 0);
	if (on == 0)
		return;
	user_forgive();
	agenda_add(net_now() + rng_skewed(&streams_rng, NS_PER_MS, 60 * NS_PER_S), false, round_cut,
		   NULL, 0);
}

static void round_open(void *arg, u64 n)
{
	user_open();
}

static u32 live_keys(int side) NO_THREAD_SAFETY
{
	return streams_net.side[side].mem.live;
}

static u64 heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static int next_descriptor(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

static void round_judge(u64 round)
{
	static u64 bytes;
	static int descriptor;

	streams_check(verbs_live() == 0, "%u objects of verbs are left", verbs_live());
	streams_check(cm_live() == 0, "%u ids, channels, events or messages are left", cm_live());
	for (int i = 0; i < STREAMS_SIDES; i++) {
		streams_check(live_keys(i) == 1, "%u keys are left", live_keys(i) - 1);
		streams_check(streams_net.side[i].refs == 0, "%d references to a destination",
			      streams_net.side[i].refs);
		streams_check(timer_next_ns(&streams_net.side[i].timers) == TIMER_NEVER,
			      "a timer is left");
	}
	if (round == 0) {
		descriptor = next_descriptor();
		bytes = heap_bytes();
	}
	streams_check(next_descriptor() == descriptor, "a descriptor is left");
	streams_check(heap_bytes() <= bytes, "%llu bytes more than after the first round",
		      (unsigned long long)(heap_bytes() - bytes));
}

static bool round_is_over(void)
{
	return user_count() == 0 && list_empty(&agenda) && wire_next() == UINT64_MAX;
}

static void round_run(u64 round)
{
	u64 end = net_now() + ROUND_NS, limit = end + DRAIN_NS;

	user_listen();
	for (u32 i = 0; i < ROUND_CONNECTIONS; i++)
		agenda_add(net_now() + rng_range(&streams_rng, 0, ROUND_NS), true, round_open, NULL,
			   0);
	for (u32 i = rng_below(&streams_rng, 4); i > 0; i--)
		agenda_add(net_now() + rng_range(&streams_rng, 0, ROUND_NS), false, round_cut, NULL,
			   1);
	while (net_now() < end || user_count() > 0) {
		user_hurry(net_now() >= end);
		if (net_now() >= limit)
			user_print();
		streams_check(net_now() < limit, "%u ends of connections do not end", user_count());
		(void)agenda_step(net_now() < end ? end : limit, true);
	}
	user_unlisten();
	while (!round_is_over())
		streams_check(agenda_step(limit, true) && net_now() < limit, "it does not end");
	user_forget();
	round_judge(round);
}

/* glibc counts what its caches of freed pieces hold as allocated, and they fill slowly. */
static void heap_without_caches(char **argv)
{
	static const char tunables[] = "glibc.malloc.tcache_count=0";
	const char *now = getenv("GLIBC_TUNABLES");

	if (now != NULL && strcmp(now, tunables) == 0)
		return;
	setenv("GLIBC_TUNABLES", tunables, 1);
	execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
	struct net_config cfg = { .loss = 100, .doubling = 20, .late = 100 };
	u64 begin, hours;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: simulate_streams SEED [HOURS]\n");
		return 2;
	}
	heap_without_caches(argv);
	cfg.seed = streams_seed = streams_rng.state = strtoull(argv[1], NULL, 0);
	cfg.delay_ns = rng_range(&streams_rng, 5000, 200000);
	cfg.late_ns = 2 * cfg.delay_ns;
	hours = argc == 3 ? strtoull(argv[2], NULL, 0) : HOURS;
	net_open(&streams_net, &cfg);
	begin = net_now();
	for (u64 round = 0; net_now() - begin < hours * 3600 * NS_PER_S; round++)
		round_run(round);
	printf("%.1f hours: %llu connections, %llu MiB, %llu calls that broke, %llu ends that "
	       "died, "
	       "%llu packets, %llu lost\n",
	       (double)(net_now() - begin) / 3600e9, (unsigned long long)streams_tally.connections,
	       (unsigned long long)(streams_tally.bytes >> 20),
	       (unsigned long long)streams_tally.broken, (unsigned long long)streams_tally.resets,
	       (unsigned long long)streams_net.sent, (unsigned long long)streams_net.lost);
	net_close(&streams_net);
	return 0;
}
