/* last_test.c: who waits for the last byte of a WRITE to change finds all others in place: every
 * length up to 300 and many up to 40,000, at every alignment. Both processes in turn write, and
 * wait for the other's. On a wire nothing promises this, and adapters keep it.
 * In: VERBS_VARIANT    Out: the exit status    Runs: two processes    Locks: none
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum { BYTES = 128 << 10, HALF = BYTES / 2, FLAGS = BYTES - 4096, LONGEST = 40000 };
enum { SECONDS = 5, ROUNDS = 1000000, PATIENCE = 2000 };

struct round {
	uint32_t length, from, to;
};

/* Both draw the same. */
static struct round draw(uint64_t *seed, uint32_t number)
{
	struct round r;

	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	/* who writes changes each time: both write the short and the long ones */
	r.length = number % 4 < 2
			   ? 1 + number / 4 % 300
			   : 1 + (uint32_t)(*seed >> 33) % (number % 32 < 4 ? LONGEST : 4200);
	r.from = (uint32_t)(*seed >> 20) % 128;
	r.to = (uint32_t)(*seed >> 40) % 128;
	return r;
}

static void await(const volatile uint8_t *byte, uint8_t value)
{
	for (uint32_t i = 1; *byte != value; i++)
		if (i % PATIENCE == 0)
			sched_yield(); /* the other one may share the core */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static void check_backwards(const uint8_t *p, const struct round *r, uint8_t value)
{
	for (uint32_t i = r->length; i > 0; i--)
		if (p[i - 1] != value) {
			fprintf(stderr, "%u bytes to offset %u: byte %u is %u, not %u\n", r->length,
				r->to, i - 1, p[i - 1], value);
			exit(1);
		}
}

struct half {
	struct duo duo;
	uint8_t *memory; /* what is sent, in its first half; what comes, in the second; flags */
	struct ibv_mr *mr;
	struct duo_place there;
};

static void flag(struct half *h, uint32_t which, uint8_t value)
{
	h->memory[FLAGS + 8 * which] = value;
	duo_do(&h->duo, IBV_WR_RDMA_WRITE, h->mr, h->memory + FLAGS + 8 * which, 1,
	       h->there.addr + FLAGS + 64 + 8 * which, h->there.rkey);
}

static void send_round(struct half *h, const struct round *r, uint8_t value)
{
	memset(h->memory + r->from, value, r->length);
	await(&h->memory[FLAGS + 64], value); /* the other one is ready */
	duo_do(&h->duo, IBV_WR_RDMA_WRITE, h->mr, h->memory + r->from, r->length,
	       h->there.addr + HALF + r->to, h->there.rkey);
}

static void receive_round(struct half *h, const struct round *r, uint8_t value)
{
	uint8_t *p = h->memory + HALF + r->to;

	memset(p, (uint8_t)~value, r->length);
	flag(h, 0, value);
	await(p + r->length - 1, value);
	check_backwards(p, r, value);
}

/* The parent says when it is enough: both must make the same number of rounds. */
static uint32_t play(struct half *h)
{
	struct timespec begin, now;
	uint64_t seed = 1;
	uint32_t n = 0;
	bool more = true;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	while (more) {
		for (uint32_t k = 0; k < 200; k++, n++) {
			struct round r = draw(&seed, n);
			uint8_t value = (uint8_t)(n * 2 + 1);

			if (k % 2 == (h->duo.child != 0))
				send_round(h, &r, value);
			else
				receive_round(h, &r, value);
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		more = now.tv_sec - begin.tv_sec < SECONDS && n < ROUNDS;
		if (h->duo.child != 0)
			duo_tell(&h->duo, &more, sizeof(more));
		else
			must(duo_hear(&h->duo, &more, sizeof(more)));
	}
	return n;
}

int main(void)
{
	const char *variant;
	struct duo_place mine;
	struct half h;
	uint32_t rounds;

	pair_supervise();
	variant = getenv("VERBS_VARIANT");
	duo_start(&h.duo);
	h.memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(h.memory != MAP_FAILED);
	h.mr = duo_register(&h.duo, h.memory, BYTES);
	mine = duo_place(h.mr);
	duo_tell(&h.duo, &mine, sizeof(mine));
	must(duo_hear(&h.duo, &h.there, sizeof(h.there)));
	rounds = play(&h);
	if (variant != NULL && strstr(variant, "adopt") != NULL)
		must(duo_files_mapped((int)getpid()) == 2);
	must(ibv_dereg_mr(h.mr) == 0);
	if (!duo_end(&h.duo))
		return 1;
	if (h.duo.child != 0)
		printf("%u messages\n", rounds);
	return 0;
}
