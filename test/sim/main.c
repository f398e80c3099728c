/* main.c: runs seeds. usage: simulate [--trace] [--coverage] [WORLD] FIRST [COUNT]
 * Each seed has three worlds: --verbs, one of all verbs; --tags, one of tag-matching SRQs;
 * --connections, one of connection managers. An option chooses one.
 * Prints one line per seed (its hash) with COUNT 1, else a line at the end. Status 1 if an oracle
 * speaks. --coverage: how often the world of connections has seen what its oracles judge.
 */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "conn.h"
#include "model.h"

enum { MAIN_PATIENCE_S = 120 }; /* processor time: a seed takes a fraction of a second */

static void main_out_of_patience(int signal)
{
	sim_fail("it does not end (%u s of processor time)", MAIN_PATIENCE_S);
}

#ifndef __SANITIZE_ADDRESS__
static void main_crashed(int number)
{
	signal(number, SIG_DFL);
	sim_fail("crashed with signal %d", number);
}
#endif

enum main_world { MAIN_VERBS, MAIN_TAGS, MAIN_CONNECTIONS, MAIN_WORLDS };

static const char *const main_options[] = { "--verbs", "--tags", "--connections" };

static void main_run(u64 seed, enum main_world which, bool tracing)
{
	struct itimerval patience = { .it_value.tv_sec = MAIN_PATIENCE_S };

	setitimer(ITIMER_PROF, &patience, NULL);
	if (which == MAIN_CONNECTIONS) {
		conn_run(seed, tracing);
		return;
	}
	world_begin(seed, which == MAIN_TAGS, tracing);
	final_run();
	world_end();
}

static void main_catch(void)
{
	signal(SIGPROF, main_out_of_patience);
#ifndef __SANITIZE_ADDRESS__
	signal(SIGSEGV, main_crashed);
	signal(SIGABRT, main_crashed);
#endif
}

/* What a world has freed stays mapped for the next one: else the kernel clears the same 6 MiB of
 * each process once per world. AddressSanitizer has a heap of its own. */
static void main_keep_memory(void)
{
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	mallopt(M_TOP_PAD, 16 << 20);
}

int main(int argc, char **argv)
{
	u64 first, count, hash = 0, events = 0;
	bool tracing = false, coverage = false;
	u32 from = 0, to = MAIN_WORLDS - 1;

	for (; argc > 1 && strncmp(argv[1], "--", 2) == 0; argc--, argv++) {
		tracing |= strcmp(argv[1], "--trace") == 0;
		coverage |= strcmp(argv[1], "--coverage") == 0;
		for (u32 i = 0; i < MAIN_WORLDS; i++)
			if (strcmp(argv[1], main_options[i]) == 0)
				from = to = i;
	}
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: simulate [--trace] [--coverage] "
				"[--verbs | --tags | --connections] FIRST [COUNT]\n");
		return 2;
	}
	first = strtoull(argv[1], NULL, 0);
	count = argc == 3 ? strtoull(argv[2], NULL, 0) : 1;
	main_catch();
	main_keep_memory();
	for (u64 seed = first; seed < first + count; seed++)
		for (u32 which = from; which <= to; which++) {
			main_run(seed, (enum main_world)which, tracing);
			hash ^= world.hash;
			events += world.events;
		}
	if (coverage)
		conn_print_coverage();
	printf("passed seed %llu and %llu more, %llu events, hash %016llx\n",
	       (unsigned long long)first, (unsigned long long)count - 1,
	       (unsigned long long)events, (unsigned long long)hash);
	return 0;
}
