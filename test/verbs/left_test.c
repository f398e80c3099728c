/* left_test.c: RDMA WRITEs and READs of memory that the initiator does not map, some copied by it
 * and some left to the target's engine: none overtakes another, whether the target polls or sleeps.
 *
 * In:    VERBS_VARIANT    Out: a verdict
 * Runs:  two processes: the initiator, and a target that looks at its memory all the time
 * Locks: none
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "duo.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 400 };
#else
enum { ROUNDS = 4000 };
#endif
enum { CELLS = 48, OFF = 16, WAIT_MS = 20000, RUN_MS = 20000, ALONE = 16, JOINED = 16, LEFT = 40 };

static struct duo d;
static struct ibv_mr *mr;
static struct duo_place peer;
static uint64_t *cells, *back; /* so many; what was read lies behind what is written */
static uint32_t seed;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

static void open_memory(void)
{
	size_t length = 2 * CELLS * sizeof(uint64_t);
	char *memory = calloc(1, length + OFF); /* shares its pages: nobody maps it */
	struct duo_place own;

	must(memory != NULL);
	cells = (uint64_t *)(void *)(memory + OFF);
	back = cells + CELLS;
	mr = duo_register(&d, cells, length);
	own = duo_place(mr);
	duo_tell(&d, &own, sizeof(own));
	must(duo_hear(&d, &peer, sizeof(peer)));
}

/* ---- the target ---- */

/* Cells are written in ascending order, round by round. So a cell has what one behind it had
 * before. */
static void target_look(void)
{
	uint64_t behind = 0, v;

	for (int i = CELLS - 1; i >= 0; i--) {
		do /* the kernel may copy a cell byte by byte */
			v = __atomic_load_n(&cells[i], __ATOMIC_ACQUIRE);
		while (v != __atomic_load_n(&cells[i], __ATOMIC_ACQUIRE));
		must(v >= behind);
		behind = v;
	}
}

static void target(void)
{
	struct ibv_wc wc;
	uint64_t until;

	duo_step(&d); /* it has slept so far */
	while (!fd_is_readable(d.fd, 0)) {
		for (until = now_ms() + draw(3); now_ms() < until; target_look())
			for (int i = 0; i < 100; i++)
				must(ibv_poll_cq(d.cq, 1, &wc) == 0);
		for (until = now_ms() + draw(3); now_ms() < until;)
			target_look(); /* and its engine sleeps */
		if (draw(4) == 0)
			usleep(draw(1000));
	}
	duo_step(&d);
}

/* ---- the initiator ---- */

static void initiator_fill(struct ibv_send_wr *wr, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
			   int cell, int count)
{
	uint64_t *here = opcode == IBV_WR_RDMA_READ ? back : cells;
	size_t at = (size_t)cell * sizeof(uint64_t);

	*sge = (struct ibv_sge){ (uintptr_t)here + at, (uint32_t)count * sizeof(uint64_t),
				 mr->lkey };
	*wr = (struct ibv_send_wr){ .next = wr + 1,
				    .sg_list = sge,
				    .num_sge = 1,
				    .opcode = opcode,
				    .wr.rdma = { peer.addr + at, peer.rkey } };
}

/* Hands over so many of the requests, and waits if they end with a signalled one. */
static void initiator_post(struct ibv_send_wr *wr, int n)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr[n - 1].next = NULL;
	must(ibv_post_send(d.qp, wr, &bad) == 0);
	if ((wr[n - 1].send_flags & IBV_SEND_SIGNALED) == 0)
		return;
	must(cq_wait(d.cq, &wc, 1, WAIT_MS) == 1);
	must(wc.status == IBV_WC_SUCCESS);
}

static void initiator_pause(uint32_t us)
{
	struct timespec t = { .tv_nsec = (long)us * 1000 };

	nanosleep(&t, NULL);
}

/* Writes the cells in lists of random lengths, and reads them behind that. */
static void initiator_round(uint64_t round)
{
	struct ibv_send_wr wr[CELLS + 1];
	struct ibv_sge sge[CELLS + 1];
	int at = 0, longest = 1 << draw(7);

	for (int i = 0; i < CELLS; i++) {
		cells[i] = round;
		initiator_fill(&wr[i], &sge[i], IBV_WR_RDMA_WRITE, i, 1);
	}
	initiator_fill(&wr[CELLS], &sge[CELLS], IBV_WR_RDMA_READ, 0, CELLS);
	wr[CELLS].send_flags = IBV_SEND_SIGNALED;
	while (at <= CELLS) {
		int n = 1 + (int)draw((uint32_t)longest);

		n = n > CELLS + 1 - at ? CELLS + 1 - at : n;
		if (draw(8) == 0) /* copies are for what finds nothing in flight */
			wr[at + n - 1].send_flags = IBV_SEND_SIGNALED;
		initiator_post(&wr[at], n);
		at += n;
	}
	for (int i = 0; i < CELLS; i++)
		must(back[i] == round);
}

/* A counter of this process, as the status shows it. */
static long counter(const char *name)
{
	enum { TEXT = 1 << 20 };
	char *text = malloc(TEXT), key[64], *at;
	FILE *f = popen(VERBS_COMMAND " status --json", "r");
	size_t n;
	long v;

	must(f != NULL && text != NULL);
	n = fread(text, 1, TEXT - 1, f);
	text[n] = '\0';
	must(pclose(f) == 0);
	snprintf(key, sizeof(key), "\"pid\": %d,", (int)getpid());
	at = strstr(text, key);
	must(at != NULL);
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = strstr(at, key);
	must(at != NULL);
	v = strtol(at + strlen(key), NULL, 10);
	free(text);
	return v;
}

/* Calls of write(2) and its kin by this process so far; -1: the kernel does not say. */
static long written(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	char line[128];
	long n = -1;

	while (f != NULL && n < 0 && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "syscw: %ld", &n) != 1)
			n = -1;
	if (f != NULL)
		fclose(f);
	return n;
}

/* A list of WRITEs that adjoin, to a target that sleeps: one system call, or packets. */
static void initiator_join(void)
{
	struct ibv_send_wr wr[JOINED];
	struct ibv_sge sge[JOINED];
	long before;

	for (int i = 0; i < JOINED; i++)
		initiator_fill(&wr[i], &sge[i], IBV_WR_RDMA_WRITE, i, 1);
	wr[JOINED - 1].send_flags = IBV_SEND_SIGNALED;
	before = written();
	initiator_post(wr, JOINED);
	if (before < 0)
		printf("left: not checked: the kernel counts no system calls (/proc/self/io)\n");
	must(written() - before < JOINED / 2);
}

/* Before the target begins to look: a list that does not adjoin, of more WRITEs than copies are
 * faster for. It is left to the target's engine, which it wakes. */
static void initiator_leave(void)
{
	struct ibv_send_wr wr[LEFT];
	struct ibv_sge sge[LEFT];

	for (int i = 0; i < LEFT; i++)
		initiator_fill(&wr[i], &sge[i], IBV_WR_RDMA_WRITE, LEFT - 1 - i, 1);
	wr[LEFT - 1].send_flags = IBV_SEND_SIGNALED;
	initiator_post(wr, LEFT);
	if (counter("direct_operations") == 0)
		printf("left: the kernel permits no copies here: packets only\n");
	else
		must(counter("direct_left") > 0);
}

static void initiator(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	const char *variant = getenv("VERBS_VARIANT");
	uint64_t round = 0, end = now_ms() + RUN_MS;

	for (int i = 0; i < ALONE; i++) { /* to a target that sleeps */
		initiator_fill(&wr, &sge, IBV_WR_RDMA_WRITE, 0, 1);
		wr.send_flags = IBV_SEND_SIGNALED;
		initiator_post(&wr, 1);
		initiator_pause(100);
	}
	if (variant != NULL && strcmp(variant, "child-direct") == 0) {
		initiator_join();
		initiator_leave();
	}
	duo_step(&d);
	while (round < ROUNDS && now_ms() < end) {
		initiator_round(++round);
		if (draw(16) == 0)
			initiator_pause(draw(300));
	}
	printf("left: %d rounds of WRITEs and READs\n", (int)round);
	duo_step(&d);
}

int main(void)
{
	bool good;

	duo_start(&d);
	seed = duo_is_child(&d) ? 1 : 2;
	open_memory();
	if (duo_is_child(&d))
		target();
	else
		initiator();
	must(ibv_dereg_mr(mr) == 0);
	free((char *)cells - OFF);
	good = duo_end(&d);
	if (!duo_is_child(&d))
		printf("left: %s\n", good ? "PASS" : "FAIL");
	return good ? 0 : 1;
}
