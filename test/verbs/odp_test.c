/* odp_test.c: on-demand regions: their memory comes, goes and is mapped anew while the key stays
 * valid; advice, and what it refuses.
 *
 * In:    VERBS_VARIANT; no cmocka, for that puts handlers of its own in front of ours
 * Out:   verdicts
 * Runs:  two processes, in step: the parent initiates, the child owns the target
 * Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "duo.h"
#include "pair.h"

enum {
	REGION = 1 << 20,
	WAIT_MS = 20000,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND,
};

static const uint32_t lengths[] = { 8, 64, 1000, 20000, 300000 };

struct scene {
	struct duo *d;
	struct ibv_mr *mr; /* on demand */
	uint8_t *memory;   /* REGION bytes of it */
	struct duo_place other;
};

/* Puts memory that nobody has touched where the region is. */
static void map_anew(struct scene *s, int protection)
{
	int fixed = s->memory != NULL ? MAP_FIXED : 0;

	s->memory = mmap(s->memory, REGION, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
	must(s->memory != MAP_FAILED);
}

/* Whatever is mapped next may lie here. */
static void unmap(struct scene *s)
{
	must(munmap(s->memory, REGION) == 0);
	s->memory = NULL;
}

static void open_scene(struct scene *s, bool implicit)
{
	struct duo_place mine;

	s->memory = NULL;
	map_anew(s, PROT_READ | PROT_WRITE);
	s->mr = implicit ? ibv_reg_mr(s->d->pd, NULL, SIZE_MAX, ALL)
			 : ibv_reg_mr(s->d->pd, s->memory, REGION, ALL);
	must(s->mr != NULL);
	mine = (struct duo_place){ .addr = (uintptr_t)s->memory, .rkey = s->mr->rkey };
	duo_tell(s->d, &mine, sizeof(mine));
	must(duo_hear(s->d, &s->other, sizeof(s->other)));
}

static void close_scene(struct scene *s)
{
	duo_step(s->d);
	must(ibv_dereg_mr(s->mr) == 0);
	if (s->memory != NULL)
		unmap(s);
	duo_step(s->d);
}

static void check(const uint8_t *p, uint32_t length, int value)
{
	for (uint32_t i = 0; i < length; i++)
		if (p[i] != value) {
			fprintf(stderr, "byte %u is %d, not %d\n", i, p[i], value);
			exit(1);
		}
}

/* ---- the memory is another one each time ---- */

static void write_round(struct scene *s, uint32_t length, int value)
{
	if (duo_is_child(s->d))
		map_anew(s, PROT_READ | PROT_WRITE);
	duo_step(s->d);
	if (!duo_is_child(s->d)) {
		memset(s->memory, value, length);
		duo_do(s->d, IBV_WR_RDMA_WRITE, s->mr, s->memory, length, s->other.addr,
		       s->other.rkey);
	}
	duo_step(s->d);
	if (duo_is_child(s->d))
		check(s->memory, length, value);
}

static void read_round(struct scene *s, uint32_t length, int value)
{
	map_anew(s, PROT_READ | PROT_WRITE);
	if (duo_is_child(s->d))
		memset(s->memory, value, length);
	duo_step(s->d);
	if (!duo_is_child(s->d)) {
		duo_do(s->d, IBV_WR_RDMA_READ, s->mr, s->memory, length, s->other.addr,
		       s->other.rkey);
		check(s->memory, length, value);
	}
	duo_step(s->d);
}

static void atomic_round(struct scene *s, int value)
{
	if (duo_is_child(s->d)) {
		map_anew(s, PROT_READ | PROT_WRITE);
		*(uint64_t *)s->memory = (uint64_t)value;
	}
	duo_step(s->d);
	if (!duo_is_child(s->d)) {
		duo_do(s->d, IBV_WR_ATOMIC_FETCH_AND_ADD, s->mr, s->memory, 8, s->other.addr,
		       s->other.rkey);
		must(*(uint64_t *)s->memory == (uint64_t)value);
	}
	duo_step(s->d);
	must(!duo_is_child(s->d) || *(uint64_t *)s->memory == (uint64_t)value + 1);
}

static void post_recv(struct scene *s, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, length, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(s->d->qp, &wr, &bad) == 0);
}

static void await(struct scene *s, enum ibv_wc_status wanted)
{
	struct ibv_wc wc = { 0 };

	must(cq_wait(s->d->cq, &wc, 1, WAIT_MS) == 1);
	if (wc.status == wanted)
		return;
	fprintf(stderr, "%s, not %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
	exit(1);
}

static void post_op(struct scene *s, enum ibv_wr_opcode op, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, length, s->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = op,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = s->other.addr;
	wr.wr.rdma.rkey = s->other.rkey;
	must(ibv_post_send(s->d->qp, &wr, &bad) == 0);
}

/* The receive's memory is taken away and mapped anew between its posting and the message. */
static void send_round(struct scene *s, uint32_t length, int value)
{
	if (duo_is_child(s->d)) {
		post_recv(s, length);
		map_anew(s, PROT_READ | PROT_WRITE);
	}
	duo_step(s->d);
	if (!duo_is_child(s->d)) {
		map_anew(s, PROT_READ | PROT_WRITE);
		memset(s->memory, value, length);
		post_op(s, IBV_WR_SEND, length);
	}
	await(s, IBV_WC_SUCCESS);
	if (duo_is_child(s->d))
		check(s->memory, length, value);
	duo_step(s->d);
}

static void comes_and_goes(struct duo *d, bool implicit)
{
	struct scene s = { .d = d };
	int value = 1;

	open_scene(&s, implicit);
	for (int round = 0; round < 3; round++) {
		for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			write_round(&s, lengths[i], value++);
			read_round(&s, lengths[i], value++);
			send_round(&s, lengths[i], value++);
		}
		atomic_round(&s, value++);
	}
	close_scene(&s);
}

/* ---- there is none ---- */

/* The queue pair fails as an adapter's does when the kernel finds no page, or a read-only one. */
static void is_missing(struct duo *d, bool implicit, bool read_only)
{
	struct scene s = { .d = d };

	open_scene(&s, implicit);
	if (duo_is_child(s.d) && read_only) {
		memset(s.memory, 2, REGION);
		must(mprotect(s.memory, REGION, PROT_READ) == 0);
	} else if (duo_is_child(s.d)) {
		unmap(&s);
	}
	duo_step(s.d);
	if (!duo_is_child(s.d)) {
		memset(s.memory, 1, 8);
		post_op(&s, IBV_WR_RDMA_WRITE, 8);
		await(&s, IBV_WC_REM_ACCESS_ERR);
	}
	duo_step(s.d);
	if (duo_is_child(s.d) && read_only)
		check(s.memory, 8, 2);
	close_scene(&s);
}

/* ---- advice ---- */

static unsigned int present(uint8_t *p)
{
	unsigned char pages[REGION / 4096];
	unsigned int n = 0;

	must(mincore(p, REGION, pages) == 0);
	for (unsigned int i = 0; i < sizeof(pages); i++)
		n += pages[i] & 1;
	return n;
}

struct advice {
	int advice, flags, lkey_off, wanted;
	uint64_t offset;
	uint32_t length, count;
};

enum { PREFETCH, PREFETCH_WRITE, NO_FAULT, UNKNOWN, FLUSH = 1 };

static const struct advice refused[] = {
	{ PREFETCH, FLUSH, 0, 0, 0, REGION, 1 },
	{ PREFETCH, FLUSH, 0, 0, REGION - 1, 1, 1 },
	{ PREFETCH, FLUSH, 0, 0, REGION, 0, 1 },
	{ PREFETCH, FLUSH, 0, EFAULT, 0, REGION + 1, 1 },
	{ PREFETCH, FLUSH, 0, EFAULT, REGION, 1, 1 },
	{ PREFETCH, FLUSH, 0, EFAULT, UINT64_MAX, 2, 1 },
	{ PREFETCH, 0, 0, EFAULT, 0, REGION + 1, 1 },
	{ NO_FAULT, FLUSH, 0, EFAULT, 0, REGION + 1, 1 },
	{ PREFETCH, FLUSH, 1, ENOENT, 0, 8, 1 },
	{ PREFETCH, 2, 0, EINVAL, 0, 8, 1 },
	{ PREFETCH, FLUSH, 0, EINVAL, 0, 8, 0 },
	{ UNKNOWN, FLUSH, 0, EOPNOTSUPP, 0, 8, 1 },
};

static void advise_table(struct duo *d, struct ibv_mr *mr)
{
	for (unsigned int i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const struct advice *a = &refused[i];
		struct ibv_sge sge = { (uintptr_t)mr->addr + a->offset, a->length,
				       mr->lkey + (uint32_t)a->lkey_off };
		int got = ibv_advise_mr(d->pd, (enum ibv_advise_mr_advice)a->advice,
					(uint32_t)a->flags, &sge, a->count);

		if (got == a->wanted)
			continue;
		fprintf(stderr, "row %u of advice: %s, not %s\n", i, strerror(got),
			strerror(a->wanted));
		exit(1);
	}
}

static int advise(struct ibv_pd *pd, struct ibv_mr *mr, int advice, uint32_t flags)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, REGION, mr->lkey };

	return ibv_advise_mr(pd, (enum ibv_advise_mr_advice)advice, flags, &sge, 1);
}

static int advise_all(struct ibv_pd *pd, int advice, struct ibv_sge *sge, int count)
{
	return ibv_advise_mr(pd, (enum ibv_advise_mr_advice)advice, FLUSH, sge, (uint32_t)count);
}

/* Each range of a list is looked at: pages of all of them come, and a bad one is refused wherever
 * it stands. */
static void advise_ranges(struct duo *d, struct ibv_mr *mr, uint8_t *memory)
{
	enum { RANGES = 4, STEP = REGION / RANGES };
	struct ibv_sge sge[RANGES];
	unsigned char there;

	for (int i = 0; i < RANGES; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory + (uint32_t)i * STEP, 1, mr->lkey };
	must(advise_all(d->pd, PREFETCH, sge, RANGES) == 0);
	for (int i = 0; i < RANGES; i++) {
		must(mincore(memory + i * STEP, 1, &there) == 0 && (there & 1) != 0);
		sge[i].length = REGION + 1;
		must(advise_all(d->pd, PREFETCH, sge, RANGES) == EFAULT);
		must(advise_all(d->pd, NO_FAULT, sge, RANGES) == EFAULT);
		sge[i].length = 1;
		sge[i].lkey++;
		must(advise_all(d->pd, PREFETCH, sge, RANGES) == ENOENT);
		sge[i].lkey--;
	}
}

static void advice_is_judged(struct duo *d)
{
	struct ibv_pd *other = ibv_alloc_pd(d->context);
	struct scene s = { .d = d };
	struct ibv_mr *mr, *plain, *narrow;

	map_anew(&s, PROT_READ | PROT_WRITE);
	mr = ibv_reg_mr(d->pd, s.memory, REGION, ALL);
	narrow = ibv_reg_mr(d->pd, s.memory, REGION, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	must(other != NULL && mr != NULL && narrow != NULL);
	must(present(s.memory) == 0);
	must(advise(d->pd, mr, NO_FAULT, FLUSH) == 0 && present(s.memory) == 0);
	advise_ranges(d, mr, s.memory);
	must(advise(d->pd, mr, PREFETCH, 0) == 0);
	must(advise(d->pd, mr, PREFETCH_WRITE, FLUSH) == 0);
	must(present(s.memory) == REGION / 4096);
	advise_table(d, mr);
	must(advise(other, mr, PREFETCH, FLUSH) == EPERM);
	must(advise(d->pd, narrow, PREFETCH, FLUSH) == 0);
	must(advise(d->pd, narrow, PREFETCH_WRITE, FLUSH) == EPERM);
	must(munmap(s.memory + REGION / 2, REGION / 2) == 0);
	must(advise(d->pd, mr, PREFETCH, FLUSH) == EFAULT);
	plain = ibv_reg_mr(d->pd, s.memory, REGION / 2, IBV_ACCESS_LOCAL_WRITE);
	must(plain != NULL && advise(d->pd, plain, PREFETCH, FLUSH) == EINVAL);
	must(ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(narrow) == 0 && ibv_dereg_mr(mr) == 0);
	must(munmap(s.memory, REGION / 2) == 0);
	must(ibv_dealloc_pd(other) == 0);
}

static void caps_are_announced(struct duo *d)
{
	struct ibv_device_attr_ex attr;
	struct ibv_mr *mr;

	must(ibv_query_device_ex(d->context, NULL, &attr) == 0);
	must(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	must(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC);
	/* UC has no SRQ, on demand or not */
	must(!(attr.odp_caps.per_transport_caps.uc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV));
	errno = 0;
	mr = ibv_reg_mr(d->pd, (void *)4096, SIZE_MAX, ALL); /* implicit begins at 0 */
	must(mr == NULL && errno == EINVAL);
	mr = ibv_reg_mr(d->pd, (void *)4096, 0, ALL);
	must(mr == NULL && errno == EINVAL);
}

int main(void)
{
	struct duo d;

	pair_supervise();
	duo_start(&d);
	caps_are_announced(&d);
	comes_and_goes(&d, false);
	advice_is_judged(&d);
	comes_and_goes(&d, true);
	is_missing(&d, getenv("ANYVERBS_ADOPT") != NULL || side_on_wire(),
		   pair_is_direct() && !side_on_wire()); /* ends the queue pair */
	return duo_end(&d) ? 0 : 1;
}
