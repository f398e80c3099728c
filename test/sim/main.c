/* main.c: runs seeds. usage: simulate [--trace] [--tags | --verbs] FIRST [COUNT]
 * Each seed has two worlds, one of all verbs and one of tag-matching SRQs; an option chooses one.
 * Prints one line per seed (its hash) with COUNT 1, else a line at the end. Status 1 if an oracle
 * speaks.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

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

/* One of the seed's two worlds. */
static u64 main_run(u64 seed, bool tagged, bool tracing)
{
	struct itimerval patience = { .it_value.tv_sec = MAIN_PATIENCE_S };

	setitimer(ITIMER_PROF, &patience, NULL);
	world_begin(seed, tagged, tracing);
	final_run();
	world_end();
	return world.hash;
}

int main(int argc, char **argv)
{
	u64 first, count, hash = 0, events = 0;
	bool tracing = false;
	int from = 0, to = 1;

	for (; argc > 1 && strncmp(argv[1], "--", 2) == 0; argc--, argv++) {
		tracing |= strcmp(argv[1], "--trace") == 0;
		from |= strcmp(argv[1], "--tags") == 0;
		to &= strcmp(argv[1], "--verbs") != 0;
	}
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: simulate [--trace] [--tags | --verbs] FIRST [COUNT]\n");
		return 2;
	}
	first = strtoull(argv[1], NULL, 0);
	count = argc == 3 ? strtoull(argv[2], NULL, 0) : 1;
	signal(SIGPROF, main_out_of_patience);
#ifndef __SANITIZE_ADDRESS__
	signal(SIGSEGV, main_crashed);
	signal(SIGABRT, main_crashed);
#endif
	for (u64 seed = first; seed < first + count; seed++)
		for (int tagged = from; tagged <= to; tagged++) {
			hash ^= main_run(seed, tagged, tracing);
			events += world.events;
		}
	printf("passed seed %llu and %llu more, %llu events, hash %016llx\n",
	       (unsigned long long)first, (unsigned long long)count - 1,
	       (unsigned long long)events, (unsigned long long)hash);
	return 0;
}
