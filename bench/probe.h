/* probe.h: what the two programs of raw limits share: the command line, two processes that are
 * pinned to a core each, the median of short chunks. */
#ifndef BENCH_PROBE_H
#define BENCH_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct probe; /* each program's own */

struct probe_kind {
	const char *name, *unit, *help;
	void (*open)(struct probe *p);	  /* before there are two processes; may be NULL */
	void (*child)(struct probe *p);	  /* what the other process does until it is killed */
	void (*measure)(struct probe *p); /* one turn */
	int turns;			  /* per chunk: operations between two looks at the clock */
	double per_turn;		  /* one-way messages, or MiB, that one turn counts for */
	bool is_bandwidth;
};

struct probe_program {
	const char *name, *about;
	unsigned ms; /* how long a probe takes unless --ms says it */
	const struct probe_kind *kinds;
	size_t count;
	struct probe *probe;
	/* Around each probe. begin: before its open; enter: in the child, pinned; forked: in the
	 * parent, which measures next. */
	void (*begin)(struct probe *p);
	void (*enter)(struct probe *p);
	void (*forked)(struct probe *p, pid_t child);
	void (*end)(struct probe *p);
};

uint64_t probe_now_ns(void);
/* Says what went wrong, with errno, and ends. */
void probe_fail(const char *what) __attribute__((noreturn));
/* The whole program: prints "name value unit" for each probe that argv names. Returns main's
 * status. */
int probe_main(const struct probe_program *program, int argc, char **argv);

#endif
