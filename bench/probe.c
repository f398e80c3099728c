/* probe.c: runs probes of raw limits.
 *
 * In:    names of probes, --ms, --cpus     Out: one line each, "name value unit"
 * Runs:  two processes, pinned             Locks: none
 */
#include "probe.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS_MAX = 4096 };

struct probe_options {
	uint64_t limit_ns;
	int cpus[2];
};

static const char *probe_program_name = "probe";

uint64_t probe_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void probe_fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", probe_program_name, what, strerror(errno));
	exit(1);
}

static void probe_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		probe_fail("cannot pin to a core");
}

static int probe_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median chunk, so that an interrupt or another process on the core does not count. */
static uint64_t probe_median(const struct probe_kind *k, struct probe *p, uint64_t limit_ns)
{
	static uint64_t chunk_ns[CHUNKS_MAX];
	uint64_t begin = probe_now_ns(), last = begin;
	size_t n = 0;

	while (n < CHUNKS_MAX && (n == 0 || last - begin < limit_ns)) {
		for (int i = 0; i < k->turns; i++)
			k->measure(p);
		chunk_ns[n] = probe_now_ns() - last;
		last += chunk_ns[n++];
	}
	qsort(chunk_ns, n, sizeof(*chunk_ns), probe_compare);
	return chunk_ns[n / 2];
}

static void probe_child(const struct probe_program *program, const struct probe_kind *k, int cpu)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	probe_pin(cpu);
	program->enter(program->probe);
	k->child(program->probe);
	_exit(0);
}

static void probe_run(const struct probe_program *program, const struct probe_kind *k,
		      const struct probe_options *o)
{
	struct probe *p = program->probe;
	double median_ns, value;
	pid_t child;

	program->begin(p);
	if (k->open != NULL)
		k->open(p);
	child = fork();
	if (child < 0)
		probe_fail("fork");
	if (child == 0)
		probe_child(program, k, o->cpus[1]);
	program->forked(p, child);
	for (int i = 0; i < k->turns; i++)
		k->measure(p);
	median_ns = (double)probe_median(k, p, o->limit_ns) / (k->turns * k->per_turn);
	value = k->is_bandwidth ? 1e9 / median_ns : median_ns / 1e3;
	printf("%s %.4f %s\n", k->name, value, k->unit);
	fflush(stdout);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	program->end(p);
}

static void probe_usage(const struct probe_program *program, FILE *to)
{
	fprintf(to,
		"usage: %s [--ms N] [--cpus A,B] NAME...\n\n"
		"%s --ms: how long each takes (%u). Names:\n",
		program->name, program->about, program->ms);
	for (size_t i = 0; i < program->count; i++)
		fprintf(to, "  %-17s %-6s %s\n", program->kinds[i].name, program->kinds[i].unit,
			program->kinds[i].help);
}

static const struct probe_kind *probe_find(const struct probe_program *program, const char *name)
{
	for (size_t i = 0; i < program->count; i++)
		if (strcmp(program->kinds[i].name, name) == 0)
			return &program->kinds[i];
	fprintf(stderr, "%s: no such probe: %s\n", program->name, name);
	probe_usage(program, stderr);
	exit(2);
}

int probe_main(const struct probe_program *program, int argc, char **argv)
{
	struct probe_options o = { .limit_ns = program->ms * 1000000ull, .cpus = { 0, 1 } };
	int i = 1;

	probe_program_name = program->name;
	for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
		if (strcmp(argv[i], "--ms") == 0)
			o.limit_ns = strtoull(argv[i + 1], NULL, 10) * 1000000ull;
		else if (strcmp(argv[i], "--cpus") != 0 ||
			 sscanf(argv[i + 1], "%d,%d", &o.cpus[0], &o.cpus[1]) != 2)
			break;
	}
	if (i >= argc || argv[i][0] == '-') {
		bool asked = i < argc && strcmp(argv[i], "--help") == 0;

		probe_usage(program, asked ? stdout : stderr);
		return asked ? 0 : 2;
	}
	probe_pin(o.cpus[0]);
	for (; i < argc; i++)
		probe_run(program, probe_find(program, argv[i]), &o);
	return 0;
}
