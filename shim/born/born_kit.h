/* born_kit.h: shared by the tests of born memory: the kernel's view of an address, born and
 * ordinary memory.
 */
#ifndef BORN_KIT_H
#define BORN_KIT_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/process_test.h"

enum { PAGE = 4096, LONG = 1 << 20 };

/* The line of the list of maps that contains the address. */
struct map {
	bool there, shared, ours;
	char prot[5];
} OWNED_BY(the caller);

static inline struct map map_of(const void *p)
{
	struct map m = { .there = false };
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long start, end;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%lx-%lx %4s", &start, &end, m.prot) != 3 ||
		    (unsigned long)p < start || (unsigned long)p >= end)
			continue;
		m.there = true;
		m.shared = m.prot[3] == 's';
		m.ours = strstr(line, "anyverbs-memory") != NULL;
		break;
	}
	fclose(f);
	return m;
}

static inline bool is_born(const void *p)
{
	struct map m = map_of(p);

	return m.shared && m.ours;
}

static inline bool is_all(const char *p, size_t n, char value)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != value)
			return false;
	return true;
}

static inline char *map_long(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(is_born(p));
	return p;
}

/* Tells whether reading it ends a child by SIGSEGV. */
static inline bool faults(const volatile char *p)
{
	pid_t child = fork();

	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*p & 0);
	}
	return child_verdict(child) == 1000 + SIGSEGV;
}

/* The same, but ordinary. */
static inline char *map_ordinary(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_false(is_born(p));
	return p;
}

/* Descriptor of the memory file; -1: none. */
static inline int file_of_memory(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		struct stat st;

		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 1ll << 60)
			return fd;
	}
	return -1;
}

/* Bytes in the memory file. */
static inline uint64_t file_bytes(void)
{
	struct stat st;

	assert_int_equal(fstat(file_of_memory(), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

#endif
