/* region_test.c: regions that change (ibv_rereg_mr), that name no memory (ibv_alloc_null_mr), that
 * peers know by another address (ibv_reg_mr_iova), of huge pages.
 * In: tables of changes    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pair.h"

#include "key_bed.h"

enum {
	TRANS = IBV_REREG_MR_CHANGE_TRANSLATION,
	PD = IBV_REREG_MR_CHANGE_PD,
	ACCESS = IBV_REREG_MR_CHANGE_ACCESS,
	NEW_BYTES = 8192,
	ALL = KEY_REMOTE | IBV_ACCESS_LOCAL_WRITE,
};

static uint8_t *other; /* NEW_BYTES elsewhere */

static int region_setup(void **state)
{
	key_setup(state);
	return posix_memalign((void **)&other, 4096, NEW_BYTES);
}

static int region_teardown(void **state)
{
	free(other);
	return key_teardown(state);
}

/* ---- rereg ---- */

/* Every combination of flags, there and back. Where the region lies, to whom it belongs and what it
 * allows follows exactly the flags. */
static void rereg__every_combination(void **state)
{
	for (int flags = 1; flags <= (TRANS | PD | ACCESS); flags++) {
		struct ibv_mr *mr = key_region(ALL);
		uint32_t rkey = mr->rkey;
		uint8_t *there = flags & TRANS ? other : bed.bytes + KEY_FAR;
		struct ibv_pd *pd = flags & PD ? bed.other_pd : bed.pd;
		int err = ibv_rereg_mr(mr, flags, flags & PD ? pd : NULL,
				       flags & TRANS ? other : NULL,
				       flags & TRANS ? NEW_BYTES : 0,
				       flags & ACCESS ? IBV_ACCESS_LOCAL_WRITE : 0);

		print_message("flags %d\n", flags);
		assert_int_equal(err, 0);
		assert_ptr_equal(mr->pd, pd);
		assert_ptr_equal(mr->addr, flags & TRANS ? other : bed.bytes);
		assert_int_equal(mr->length, flags & TRANS ? NEW_BYTES : KEY_BYTES);
		assert_int_equal(mr->lkey, mr->rkey);
		/* peers need no new key while the addresses stay */
		assert_int_equal(mr->rkey != rkey, (flags & TRANS) != 0);
		if (flags & (PD | ACCESS))
			key_refused((uintptr_t)there, mr->rkey);
		else
			key_reaches((uintptr_t)there, there, mr->rkey);
		if (flags & TRANS) {
			key_refused((uintptr_t)there, rkey);
			key_refused(key_va(KEY_FAR), rkey);
			key_refused(key_va(KEY_FAR), mr->rkey);
		}
		assert_int_equal(ibv_rereg_mr(mr, PD | ACCESS, bed.pd, NULL, 0, ALL), 0);
		key_reaches((uintptr_t)there, there, mr->rkey);
		assert_int_equal(ibv_rereg_mr(mr, TRANS, NULL, bed.bytes, KEY_BYTES, 0), 0);
		key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, mr->rkey);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

/* A peer that was just inside the region is refused from the return on, also one that writes by
 * itself and knows the grant. */
static void rereg__withdraws_at_once(void **state)
{
	struct ibv_mr *mr = key_region(ALL);

	for (int i = 0; i < 50; i++) {
		key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, mr->rkey);
		assert_int_equal(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
				 0);
		key_refused(key_va(KEY_FAR), mr->rkey);
		assert_int_equal(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, ALL), 0);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* The domain is in use by the region that has moved to it, the old one no longer. */
static void rereg__moves_between_domains(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(bed.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, bed.bytes, KEY_BYTES, ALL);

	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, PD, bed.pd, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	pd = ibv_alloc_pd(bed.ctx);
	assert_int_equal(ibv_rereg_mr(mr, PD, pd, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

struct rereg_case {
	const char *name;
	int flags, error, result;
	uint64_t addr; /* 0: `other` */
	uint64_t length;
	int access;
	int odd; /* enum odd */
};

enum odd { NO_ADDR = 1, NO_PD = 2 };

enum { INPUT = IBV_REREG_MR_ERR_INPUT, CMD = IBV_REREG_MR_ERR_CMD };

static const struct rereg_case rereg_cases[] = {
	{ "nothing to change", 0, EINVAL, INPUT, 0, NEW_BYTES, 0, 0 },
	{ "a flag that is none", 8, EINVAL, INPUT, 0, NEW_BYTES, 0, 0 },
	{ "all bits", -1, EINVAL, INPUT, 0, NEW_BYTES, 0, 0 },
	{ "no address", TRANS, EINVAL, INPUT, 0, NEW_BYTES, 0, NO_ADDR },
	{ "no length", TRANS, EINVAL, INPUT, 0, 0, 0, 0 },
	{ "wraps around", TRANS, EINVAL, CMD, UINT64_MAX - 4095, 8192, 0, 0 },
	{ "not mapped", TRANS, EFAULT, CMD, 4096, 8192, 0, 0 },
	{ "no domain", PD, EINVAL, INPUT, 0, 0, 0, NO_PD },
	{ "access unasked for", TRANS, EINVAL, INPUT, 0, NEW_BYTES, ALL, 0 },
	{ "remote writes alone", ACCESS, EINVAL, INPUT, 0, 0, IBV_ACCESS_REMOTE_WRITE, 0 },
	{ "remote atomics alone", ACCESS, EINVAL, INPUT, 0, 0, IBV_ACCESS_REMOTE_ATOMIC, 0 },
	{ "a right that is none", ACCESS, EINVAL, INPUT, 0, 0, ALL | 1 << 19, 0 },
	{ "both wrong", TRANS | ACCESS, EINVAL, INPUT, 0, NEW_BYTES, IBV_ACCESS_REMOTE_WRITE, 0 },
	{ "one wrong of three", TRANS | PD | ACCESS, EFAULT, CMD, 4096, 8192, ALL, 0 },
};

static void rereg__refused_changes_nothing(void **state)
{
	struct ibv_mr *mr = key_region(ALL);
	struct ibv_mr before = *mr;

	for (unsigned int i = 0; i < sizeof(rereg_cases) / sizeof(rereg_cases[0]); i++) {
		const struct rereg_case *k = &rereg_cases[i];
		void *addr = k->odd & NO_ADDR ? NULL : k->addr ? (void *)(uintptr_t)k->addr : other;

		print_message("%s\n", k->name);
		errno = 0;
		assert_int_equal(ibv_rereg_mr(mr, k->flags, k->odd & NO_PD ? NULL : bed.other_pd,
					      addr, k->length, k->access),
				 k->result);
		assert_int_equal(errno, k->error);
		assert_memory_equal(mr, &before, sizeof(before));
		key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, mr->rkey);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void rereg__not_under_a_window(void **state)
{
	struct ibv_mr *mr = key_region(ALL | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { mr, key_va(KEY_FAR), 64, KEY_REMOTE } };
	const int flags[] = { TRANS, PD, ACCESS };

	assert_int_equal(ibv_bind_mw(bed.far, mw, &bind), 0);
	key_expect(bed.far_cq, IBV_WC_SUCCESS);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ibv_rereg_mr(mr, flags[i], bed.other_pd, other, NEW_BYTES, 0),
				 CMD);
		assert_int_equal(errno, EBUSY);
		key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, mw->rkey);
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_rereg_mr(mr, ACCESS, NULL, NULL, 0, 0), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* A domain of another context of the device will do, as long as it lives. */
static void rereg__domain_of_another_context(void **state)
{
	struct ibv_context *context = ibv_open_device(bed.ctx->device);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = key_region(ALL);

	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, PD, pd, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_ptr_equal(mr->pd, bed.pd);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* ---- null regions ---- */

static void null_recv(struct ibv_mr *null, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { addr, length, null->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(bed.far, &recv, &bad), 0);
}

/* Any address, any length. Writes leave nothing for later reads. */
static void null__reads_zeros_and_swallows_writes(void **state)
{
	const uint32_t lengths[] = { 1, 8, 1025, KEY_FAR };
	struct ibv_mr *null = ibv_alloc_null_mr(bed.pd);
	struct ibv_mr *mr = key_region(ALL);
	static const uint8_t zeros[KEY_FAR];

	assert_non_null(null);
	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct ibv_sge sge = { 0x1234567890 + i, lengths[i], null->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_READ,
					  .send_flags = IBV_SEND_SIGNALED };

		memset(bed.bytes, 0xaa, KEY_BYTES);
		wr.wr.rdma.rkey = mr->rkey;
		wr.wr.rdma.remote_addr = key_va(KEY_FAR);
		key_send(bed.near, &wr); /* into nothing */
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		wr.opcode = IBV_WR_RDMA_WRITE;
		key_send(bed.near, &wr);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		assert_memory_equal(bed.bytes + KEY_FAR, zeros, lengths[i]);
		null_recv(null, 0, lengths[i]);
		sge = (struct ibv_sge){ key_va(0), lengths[i], bed.own->lkey };
		wr.opcode = IBV_WR_SEND;
		key_send(bed.near, &wr);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		assert_int_equal(key_expect(bed.far_cq, IBV_WC_SUCCESS).byte_len, lengths[i]);
	}
	assert_int_equal(ibv_dereg_mr(null), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* Longer than any piece that the adapter has of zeros. */
static void null__long(void **state)
{
	enum { LONG = 5 << 20 };
	struct ibv_mr *null = ibv_alloc_null_mr(bed.pd);
	uint8_t *bytes = malloc(LONG);
	struct ibv_mr *mr = ibv_reg_mr(bed.pd, bytes, LONG, ALL);
	struct ibv_sge sge = { UINT64_MAX - LONG, LONG, null->lkey };
	struct ibv_sge room = { (uintptr_t)bytes, LONG, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &room, .num_sge = 1 }, *bad;
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)bytes;
	for (int i = 0; i < 2; i++) {
		memset(bytes, 0xaa, LONG);
		if (i == 1)
			assert_int_equal(ibv_post_recv(bed.far, &recv, &bad), 0);
		key_send(bed.near, &wr);
		key_expect(bed.near_cq, IBV_WC_SUCCESS);
		if (i == 1)
			key_expect(bed.far_cq, IBV_WC_SUCCESS);
		for (int at = 0; at < LONG; at++)
			assert_int_equal(bytes[at], 0);
		wr.opcode = IBV_WR_SEND;
	}
	assert_int_equal(ibv_dereg_mr(null), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	free(bytes);
}

static void null__is_for_its_own_domain_alone(void **state)
{
	struct ibv_mr *null = ibv_alloc_null_mr(bed.other_pd);
	struct ibv_sge sge = { 0, 8, null->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	assert_int_equal(ibv_dealloc_pd(bed.other_pd), EBUSY);
	key_refused(0, null->rkey);
	key_refused(0, null->lkey);
	key_send(bed.near, &wr);
	key_expect(bed.near_cq, IBV_WC_LOC_PROT_ERR);
	key_again();
	assert_int_equal(ibv_rereg_mr(null, PD, bed.pd, NULL, 0, 0), 0);
	key_refused(0, null->lkey);
	assert_int_equal(ibv_dereg_mr(null), 0);
}

/* ---- other addresses, huge pages ---- */

static void iova__is_what_peers_know(void **state)
{
	const uint64_t iovas[] = { 0, 1, 4096, 0x123456789000, UINT64_MAX - KEY_BYTES };

	for (unsigned int i = 0; i < sizeof(iovas) / sizeof(iovas[0]); i++) {
		struct ibv_mr *mr = ibv_reg_mr_iova(bed.pd, bed.bytes, KEY_BYTES, iovas[i],
						    ALL | IBV_ACCESS_RELAXED_ORDERING);

		assert_non_null(mr);
		key_reaches(iovas[i] + KEY_FAR, bed.bytes + KEY_FAR, mr->rkey);
		key_reaches(iovas[i] + KEY_BYTES - 8, bed.bytes + KEY_BYTES - 8, mr->rkey);
		key_refused(iovas[i] + KEY_BYTES - 7, mr->rkey);
		key_refused(iovas[i] - 1, mr->rkey);
		key_refused(key_va(KEY_FAR), mr->rkey);
		/* a translation names memory by its address */
		assert_int_equal(ibv_rereg_mr(mr, TRANS, NULL, other, NEW_BYTES, 0), 0);
		key_reaches((uintptr_t)other, other, mr->rkey);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	errno = 0;
	assert_null(ibv_reg_mr_iova(bed.pd, bed.bytes, KEY_BYTES, UINT64_MAX - KEY_BYTES + 2, ALL));
	assert_int_equal(errno, EINVAL);
}

enum { HUGE_BYTES = 2 << 20 };

/* Two huge pages; NULL: this machine has none to give. */
static uint8_t *region_huge(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
	void *p = mmap(NULL, 2 * HUGE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
	FILE *f;

	if (p != MAP_FAILED)
		return p;
	f = fopen("/proc/sys/vm/nr_hugepages", "w");
	if (f != NULL) {
		fputs("16", f);
		fclose(f);
	}
	p = mmap(NULL, 2 * HUGE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void huge__pages_of_the_hugetlb(void **state)
{
	uint8_t *p = region_huge();
	struct ibv_mr *mr;

	if (p == NULL)
		skip();
	mr = ibv_reg_mr(bed.pd, p, 2 * HUGE_BYTES, ALL | IBV_ACCESS_HUGETLB);
	assert_non_null(mr);
	key_reaches((uintptr_t)p, p, mr->rkey);
	key_reaches((uintptr_t)p + HUGE_BYTES - 4, p + HUGE_BYTES - 4, mr->rkey);
	key_reaches((uintptr_t)p + 2 * HUGE_BYTES - 8, p + 2 * HUGE_BYTES - 8, mr->rkey);
	key_refused((uintptr_t)p + 2 * HUGE_BYTES - 7, mr->rkey);
	assert_int_equal(ibv_rereg_mr(mr, TRANS, NULL, p + HUGE_BYTES, HUGE_BYTES, 0), 0);
	key_reaches((uintptr_t)p + HUGE_BYTES, p + HUGE_BYTES, mr->rkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(munmap(p, 2 * HUGE_BYTES), 0);
}

#define REGION_TEST(name) cmocka_unit_test_setup_teardown(name, region_setup, region_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REGION_TEST(rereg__every_combination),
		REGION_TEST(rereg__withdraws_at_once),
		REGION_TEST(rereg__moves_between_domains),
		REGION_TEST(rereg__refused_changes_nothing),
		REGION_TEST(rereg__not_under_a_window),
		REGION_TEST(rereg__domain_of_another_context),
		REGION_TEST(null__reads_zeros_and_swallows_writes),
		REGION_TEST(null__long),
		REGION_TEST(null__is_for_its_own_domain_alone),
		REGION_TEST(iova__is_what_peers_know),
		REGION_TEST(huge__pages_of_the_hugetlb),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
