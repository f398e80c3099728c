/* dm_test.c: device memory: limits, copies, regions, imports; its bytes by WRITE, READ and SEND.
 * In: VERBS_VARIANT      Out: verdicts      Runs: cmocka, one process      Locks: none
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { LENGTH = 4096, PART = 256, ACCESS = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE };
enum { WAIT_MS = 20000, MANY = 300 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static uint64_t most;

static int setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr_ex attr;

	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	if (context == NULL || pd == NULL || ibv_query_device_ex(context, NULL, &attr) != 0)
		return -1;
	most = attr.max_dm_size;
	return 0;
}

static int teardown(void **state)
{
	return ibv_dealloc_pd(pd) | ibv_close_device(context);
}

static struct ibv_dm *alloc(uint64_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);

	assert_non_null(dm);
	return dm;
}

static uint32_t word_of(struct ibv_dm *dm, uint64_t offset)
{
	uint32_t word = 0;

	assert_int_equal(ibv_memcpy_from_dm(&word, dm, offset, 4), 0);
	return word;
}

static void alloc_dm__limits(void **state)
{
	static const struct {
		uint64_t length;
		uint32_t align, mask;
		int error;
	} rows[] = {
		{ .length = 4 },
		{ .length = 1 },
		{ .length = 4, .align = 12 },
		{ .length = 4, .align = 13, .error = EINVAL },
		{ .length = 4, .align = UINT32_MAX, .error = EINVAL },
		{ .length = 4, .mask = 1, .error = EINVAL },
		{ .length = 0, .error = EINVAL },
		{ .length = UINT64_MAX, .error = ENOMEM },
	};

	assert_true(most >= 64 << 10);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_alloc_dm_attr attr = { .length = rows[i].length,
						  .log_align_req = rows[i].align,
						  .comp_mask = rows[i].mask };
		struct ibv_dm *dm = ibv_alloc_dm(context, &attr);

		assert_int_equal(dm != NULL, rows[i].error == 0);
		assert_int_equal(dm != NULL ? ibv_free_dm(dm) : errno,
				 dm != NULL ? 0 : rows[i].error);
	}
}

/* All allocations of the process together have the limit. */
static void alloc_dm__the_last_byte(void **state)
{
	struct ibv_alloc_dm_attr attr = { .length = 4 };
	struct ibv_dm *all = alloc(most - 4), *rest = alloc(4);

	assert_null(ibv_alloc_dm(context, &attr));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_free_dm(rest), 0);
	rest = alloc(4);
	assert_int_equal(ibv_free_dm(rest), 0);
	assert_int_equal(ibv_free_dm(all), 0);
	all = alloc(most);
	assert_int_equal(ibv_free_dm(all), 0);
}

static void memcpy_dm__bounds_and_units(void **state)
{
	static const struct {
		uint64_t offset, length;
		int error;
	} rows[] = {
		{ 0, LENGTH, 0 },	  { LENGTH - 4, 4, 0 },
		{ LENGTH, 0, 0 },	  { 0, 0, 0 },
		{ LENGTH, 4, EFAULT },	  { 0, LENGTH + 4, EFAULT },
		{ UINT64_MAX - 3, 4, EFAULT }, { 4, UINT64_MAX - 3, EFAULT },
		{ 1, 4, EINVAL },	  { 4, 3, EINVAL },
	};
	static uint8_t out[LENGTH], in[LENGTH];
	struct ibv_dm *dm = alloc(LENGTH);

	memset(out, 7, sizeof(out));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(ibv_memcpy_to_dm(dm, rows[i].offset, out, rows[i].length),
				 rows[i].error);
		assert_int_equal(ibv_memcpy_from_dm(in, dm, rows[i].offset, rows[i].length),
				 rows[i].error);
	}
	assert_int_equal(ibv_memcpy_from_dm(in, dm, 0, LENGTH), 0);
	assert_memory_equal(in, out, LENGTH);
	assert_int_equal(ibv_free_dm(dm), 0);
}

static void reg_dm_mr__errors(void **state)
{
	static const struct {
		uint64_t offset, length;
		unsigned int access;
		int error;
	} rows[] = {
		{ 0, LENGTH, ACCESS, 0 },
		{ LENGTH - 4, 4, ACCESS | IBV_ACCESS_REMOTE_WRITE, 0 },
		{ 0, LENGTH, IBV_ACCESS_ZERO_BASED, 0 },
		{ 0, 0, ACCESS, 0 },
		{ 0, LENGTH, IBV_ACCESS_LOCAL_WRITE, EINVAL },
		{ 0, LENGTH, ACCESS | IBV_ACCESS_ON_DEMAND, EINVAL },
		{ 0, LENGTH, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ 0, LENGTH + 1, ACCESS, EINVAL },
		{ 4, LENGTH, ACCESS, EINVAL },
		{ UINT64_MAX, 2, ACCESS, EINVAL },
	};
	struct ibv_dm *dm = alloc(LENGTH);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, rows[i].offset, rows[i].length,
						  rows[i].access);

		assert_int_equal(mr != NULL, rows[i].error == 0);
		if (mr == NULL) {
			assert_int_equal(errno, rows[i].error);
			continue;
		}
		assert_null(mr->addr);
		assert_int_equal(ibv_free_dm(dm), EBUSY);
		assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
				 IBV_REREG_MR_ERR_CMD);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	assert_int_equal(ibv_free_dm(dm), 0);
}

/* More than pages are left for. */
static void alloc_dm__many(void **state)
{
	static struct ibv_dm *dm[MANY];

	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < MANY; i++) {
			dm[i] = alloc(sizeof(i));
			assert_int_equal(word_of(dm[i], 0), 0);
			assert_int_equal(ibv_memcpy_to_dm(dm[i], 0, &i, sizeof(i)), 0);
		}
		for (uint32_t i = 0; i < MANY; i++) {
			assert_int_equal(word_of(dm[i], 0), i);
			assert_int_equal(ibv_free_dm(dm[i]), 0);
		}
	}
}

/* How many files hold device memory that is not of the process' memory file. */
static int count_own_files(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *e;
	char target[64];
	int count = 0;

	assert_non_null(fds);
	while ((e = readdir(fds)) != NULL) {
		ssize_t n = readlinkat(dirfd(fds), e->d_name, target, sizeof(target) - 1);

		target[n < 0 ? 0 : n] = 0;
		count += strstr(target, "anyverbs-dm") != NULL;
	}
	closedir(fds);
	return count;
}

/* What finds no room between others takes no page from them: each page that was freed serves again.
 */
static void alloc_dm__between_others(void **state)
{
	const uint32_t pages = (uint32_t)(most / LENGTH);
	struct ibv_dm **dm = calloc(pages, sizeof(*dm)), *large;
	int files;

	assert_non_null(dm);
	for (uint32_t i = 0; i < pages; i++)
		dm[i] = alloc(LENGTH);
	files = count_own_files();
	for (uint32_t i = 0; i < pages; i += 2)
		assert_int_equal(ibv_free_dm(dm[i]), 0);
	large = alloc(2 * LENGTH);
	assert_int_equal(count_own_files(), files == 0 ? 1 : files - (int)pages / 2 + 1);
	assert_int_equal(ibv_free_dm(large), 0);
	for (uint32_t i = 0; i < pages; i += 2)
		dm[i] = alloc(LENGTH);
	assert_int_equal(count_own_files(), files);
	for (uint32_t i = 0; i < pages; i++)
		assert_int_equal(ibv_free_dm(dm[i]), 0);
	free(dm);
}

#ifndef __SANITIZE_THREAD__ /* its runtime starts no thread in a forked child */
/* The child's own memory is none of the parent's, and it shares what the parent had. */
static int child_uses_dm(struct ibv_dm *shared)
{
	const uint32_t word = 7, own = 8;
	struct ibv_dm *dm[2];

	if (word_of(shared, 0) != 6)
		return 1;
	for (int i = 0; i < 2; i++) {
		dm[i] = alloc(LENGTH);
		if (word_of(dm[i], 0) != 0 || ibv_memcpy_to_dm(dm[i], 0, &own, sizeof(own)) != 0)
			return 2;
	}
	if (ibv_memcpy_to_dm(shared, 0, &word, sizeof(word)) != 0)
		return 3;
	return ibv_free_dm(dm[0]) | ibv_free_dm(shared);
}

static void alloc_dm__in_a_forked_child(void **state)
{
	struct ibv_dm *dm = alloc(LENGTH), *other;
	uint32_t word = 6;
	int status, child;

	assert_int_equal(ibv_memcpy_to_dm(dm, 0, &word, sizeof(word)), 0);
	child = fork();
	if (child == 0)
		_exit(child_uses_dm(dm));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(word_of(dm, 0), 7);
	other = alloc(LENGTH);
	assert_int_equal(word_of(other, 0), 0);
	assert_int_equal(word_of(dm, 0), 7);
	assert_int_equal(ibv_free_dm(other), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
}
#endif

static void import_dm__shares_the_bytes(void **state)
{
	struct ibv_context *other = ibv_import_device(dup(context->cmd_fd));
	struct ibv_dm *dm = alloc(LENGTH), *import;
	uint32_t word = 42, seen = 0;

	assert_non_null(other);
	import = ibv_import_dm(other, dm->handle);
	assert_non_null(import);
	assert_int_equal(import->handle, dm->handle);
	assert_int_equal(ibv_memcpy_to_dm(dm, 8, &word, 4), 0);
	assert_int_equal(ibv_memcpy_from_dm(&seen, import, 8, 4), 0);
	assert_int_equal(seen, word);
	assert_null(ibv_import_dm(other, dm->handle + 1000));
	assert_int_equal(errno, ENOENT);
	ibv_unimport_dm(import);
	import = ibv_import_dm(other, dm->handle);
	assert_int_equal(ibv_free_dm(import), 0); /* of the two either may */
	assert_int_equal(ibv_free_dm(dm), EINVAL);
	ibv_unimport_dm(dm);
	assert_int_equal(ibv_close_device(other), 0);
}

/* ---- as memory of requests ------------------------------------------------------------------- */

struct bed {
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	struct ibv_dm *dm[2];
	struct ibv_mr *mr[2];
};

static void bed_make(struct bed *b)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 8 } };
	union ibv_gid gid;
	struct ibv_qp_attr a;

	b->cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = b->cq;
	assert_int_equal(ibv_query_gid(context, 1, 1, &gid), 0);
	for (int i = 0; i < 2; i++) {
		b->qp[i] = ibv_create_qp(pd, &init);
		b->dm[i] = alloc(LENGTH);
		b->mr[i] = ibv_reg_dm_mr(pd, b->dm[i], PART, LENGTH - PART,
					 ACCESS | IBV_ACCESS_REMOTE_WRITE |
						 IBV_ACCESS_REMOTE_READ |
						 IBV_ACCESS_REMOTE_ATOMIC);
		assert_non_null(b->qp[i]);
		assert_non_null(b->mr[i]);
	}
	a = conn_attr(0, &gid, 1);
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			    IBV_ACCESS_REMOTE_ATOMIC;
	assert_int_equal(conn_pair(b->qp[0], b->qp[1], &a), 0);
}

static void bed_end(struct bed *b)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(b->qp[i]), 0);
		assert_int_equal(ibv_dereg_mr(b->mr[i]), 0);
		assert_int_equal(ibv_free_dm(b->dm[i]), 0);
	}
	assert_int_equal(ibv_destroy_cq(b->cq), 0);
}

static void bed_expect(struct bed *b, int count, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	for (int i = 0; i < count; i++) {
		assert_int_equal(cq_wait(b->cq, &wc, 1, WAIT_MS), 1);
		assert_int_equal(wc.status, status);
	}
}

static void bed_post(struct bed *b, enum ibv_wr_opcode op, uint64_t from, uint32_t length,
		     uint64_t to)
{
	struct ibv_sge sge = { from, length, b->mr[0]->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = op,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = b->mr[1]->rkey;
	assert_int_equal(ibv_post_send(b->qp[0], &wr, &bad), 0);
}

static void set_word(struct ibv_dm *dm, uint64_t offset, uint32_t word)
{
	assert_int_equal(ibv_memcpy_to_dm(dm, offset, &word, 4), 0);
}

static void dm__carries_every_operation(void **state)
{
	struct bed b;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

	bed_make(&b);
	set_word(b.dm[0], PART, 11);
	bed_post(&b, IBV_WR_RDMA_WRITE, 0, 4, 100); /* addresses begin at 0 */
	bed_expect(&b, 1, IBV_WC_SUCCESS);
	assert_int_equal(word_of(b.dm[1], PART + 100), 11);
	bed_post(&b, IBV_WR_RDMA_READ, 200, 4, 100);
	bed_expect(&b, 1, IBV_WC_SUCCESS);
	assert_int_equal(word_of(b.dm[0], PART + 200), 11);
	sge = (struct ibv_sge){ 300, 64, b.mr[1]->lkey };
	assert_int_equal(ibv_post_recv(b.qp[1], &recv, &bad), 0);
	bed_post(&b, IBV_WR_SEND, 200, 4, 0);
	bed_expect(&b, 2, IBV_WC_SUCCESS);
	assert_int_equal(word_of(b.dm[1], PART + 300), 11);
	bed_post(&b, IBV_WR_RDMA_WRITE, 0, LENGTH - PART, 0);
	bed_expect(&b, 1, IBV_WC_SUCCESS);
	bed_post(&b, IBV_WR_RDMA_WRITE, 0, 4, LENGTH - PART);
	bed_expect(&b, 1, IBV_WC_REM_ACCESS_ERR);
	bed_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alloc_dm__limits),
		cmocka_unit_test(alloc_dm__the_last_byte),
		cmocka_unit_test(memcpy_dm__bounds_and_units),
		cmocka_unit_test(reg_dm_mr__errors),
		cmocka_unit_test(alloc_dm__many),
		cmocka_unit_test(alloc_dm__between_others),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(alloc_dm__in_a_forked_child),
#endif
		cmocka_unit_test(import_dm__shares_the_bytes),
		cmocka_unit_test(dm__carries_every_operation),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("dm", tests, setup, teardown);
}
