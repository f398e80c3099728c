/* alloc_test.c: memory of an allocator, registered, written by a peer, freed before or after the
 * registration ends, grown, and given out anew: nothing is lost, nothing is where it must not be.
 * The allocator is the one that is preloaded.
 * In: VERBS_VARIANT: the allocator's name, or "adopt"    Out: the exit status
 * Runs: two processes    Locks: none
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum { ROUNDS = 60, SLOTS = 64, PAGE = 4096, SKIPPED = 77 };

static const uint32_t sizes[] = { 4096, 8192, 20480, 65536, 135168, 262144, 1048576, 5242880 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = 5242880 };

/* What the child is asked to do. */
struct wish {
	struct duo_place place;
	uint8_t value;
};

static void child_serve(struct duo *d)
{
	uint8_t *buffer = aligned_alloc(PAGE, LARGEST);
	struct ibv_mr *mr;
	struct wish w;

	must(buffer != NULL);
	memset(buffer, 0, LARGEST);
	mr = duo_register(d, buffer, LARGEST);
	while (duo_hear(d, &w, sizeof(w))) {
		memset(buffer, w.value, w.place.length);
		duo_do(d, IBV_WR_RDMA_WRITE, mr, buffer, w.place.length, w.place.addr,
		       w.place.rkey);
		memset(buffer, 0, w.place.length);
		duo_do(d, IBV_WR_RDMA_READ, mr, buffer, w.place.length, w.place.addr, w.place.rkey);
		for (uint32_t i = 0; i < w.place.length; i++)
			must(buffer[i] == w.value);
		duo_tell(d, &w, sizeof(w));
	}
	must(ibv_dereg_mr(mr) == 0);
	free(buffer);
}

static void peer_fills(struct duo *d, const struct ibv_mr *mr, uint8_t value)
{
	struct wish w = { .place = duo_place(mr), .value = value };

	duo_tell(d, &w, sizeof(w));
	must(duo_hear(d, &w, sizeof(w)));
}

static void is_all(const uint8_t *p, size_t n, uint8_t value)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != value) {
			fprintf(stderr, "byte %zu of %zu is %u, not %u\n", i, n, p[i], value);
			exit(1);
		}
}

/* The heap at work: what it gives out as zeroed is, and what it keeps stays. */
static void churn(uint32_t seed)
{
	struct {
		uint8_t *p;
		size_t n;
		uint8_t value;
	} kept[SLOTS] = { { .n = 0 } };

	for (uint32_t i = 0; i < 4 * SLOTS; i++) {
		uint32_t k = i % SLOTS;
		size_t n;

		seed = seed * 1103515245 + 12345;
		n = 16 + (seed >> 8) % (i % 7 == 0 ? 600000 : 9000);
		if (kept[k].p != NULL)
			is_all(kept[k].p, kept[k].n, kept[k].value);
		free(kept[k].p);
		kept[k].p = calloc(1, n);
		must(kept[k].p != NULL);
		is_all(kept[k].p, n, 0);
		kept[k].n = n;
		kept[k].value = (uint8_t)(seed >> 16);
		memset(kept[k].p, kept[k].value, n);
	}
	for (uint32_t k = 0; k < SLOTS; k++) {
		is_all(kept[k].p, kept[k].n, kept[k].value);
		free(kept[k].p);
	}
}

static void zeroed_anew(size_t n)
{
	uint8_t *p = calloc(1, n);

	must(p != NULL);
	is_all(p, n, 0);
	free(p);
}

static uint8_t *filled(size_t n)
{
	uint8_t *p = aligned_alloc(PAGE, n);

	must(p != NULL);
	memset(p, 0x5a, n);
	return p;
}

static void freed_after(struct duo *d, uint32_t n, uint8_t value)
{
	uint8_t *p = filled(n);
	struct ibv_mr *mr = duo_register(d, p, n);

	is_all(p, n, 0x5a);
	peer_fills(d, mr, value);
	is_all(p, n, value);
	must(ibv_dereg_mr(mr) == 0);
	is_all(p, n, value);
	free(p);
	zeroed_anew(n);
}

static void freed_before(struct duo *d, uint32_t n, uint8_t value)
{
	uint8_t *p = filled(n);
	struct ibv_mr *mr = duo_register(d, p, n);

	peer_fills(d, mr, value);
	is_all(p, n, value);
	free(p);
	churn(value);
	must(ibv_dereg_mr(mr) == 0);
	churn(value + 1u);
	zeroed_anew(n);
}

static void grown(struct duo *d, uint32_t n, uint8_t value)
{
	uint8_t *p = filled(n);
	struct ibv_mr *mr = duo_register(d, p, n);

	peer_fills(d, mr, value);
	p = realloc(p, 3 * (size_t)n);
	must(p != NULL);
	is_all(p, n, value);
	memset(p + n, 0x77, 2 * (size_t)n);
	churn(value);
	must(ibv_dereg_mr(mr) == 0);
	is_all(p, n, value);
	is_all(p + n, 2 * (size_t)n, 0x77);
	p = realloc(p, n / 2);
	must(p != NULL);
	is_all(p, n / 2, value);
	free(p);
	zeroed_anew(3 * (size_t)n);
}

/* The allocator that was asked for; false: it is not installed. */
static bool is_allocator(const char *name)
{
	Dl_info info;

	must(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0);
	return strstr(info.dli_fname, strcmp(name, "adopt") == 0 ? "libc.so" : name) != NULL;
}

static void parent_play(struct duo *d, bool adopts, bool born)
{
	uint8_t *p = filled(PAGE), *shared = filled(LARGEST); /* if it is born so */
	struct ibv_mr *mr = duo_register(d, p, PAGE);

	/* Only of the C library's is anything adopted. */
	must(duo_files_mapped((int)getpid()) == adopts);
	must(ibv_dereg_mr(mr) == 0);
	must(duo_files_mapped((int)getpid()) == born);
	is_all(p, PAGE, 0x5a);
	free(p);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t n = sizes[i % SIZES];

		freed_after(d, n, (uint8_t)(3 * i + 1));
		freed_before(d, n, (uint8_t)(3 * i + 2));
		grown(d, n, (uint8_t)(3 * i + 3));
	}
	free(shared);
}

int main(void)
{
	const char *variant = getenv("VERBS_VARIANT");
	struct duo d;

	if (variant == NULL || !is_allocator(variant)) {
		fprintf(stderr, "SKIPPED: the allocator %s is not here\n",
			variant == NULL ? "(none named)" : variant);
		return SKIPPED;
	}
	pair_supervise();
	duo_start(&d);
	if (d.child == 0)
		child_serve(&d);
	else {
		parent_play(&d, strcmp(variant, "adopt") == 0 || strcmp(variant, "born") == 0,
			    strcmp(variant, "born") == 0);
		shutdown(d.fd, SHUT_WR);
	}
	return duo_end(&d) ? 0 : 1;
}
