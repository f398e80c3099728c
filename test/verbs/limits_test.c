/* limits_test.c: how many objects of each kind there may be, by the device's own numbers; channels,
 * thread domains and parent domains at their limits; handles and descriptors of what is gone.
 * docs/errno.md has the answers for readers; refuse_test.c the limits of single attributes.
 * In: counts, attributes, handles    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pair.h"

#include "verdict.h"

enum { XRC_DOMAINS = 65536, FEW = 200000 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW = 1 }; /* a million objects would take minutes */
#else
enum { SLOW = 0 };
#endif

static struct ibv_context *ctx, *other; /* two files of one device */
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq;
static struct ibv_device_attr dev;
static struct ibv_device_attr_ex ex;
static union ibv_gid gid;
static uint8_t buffer[4096];

static int setup(void **state)
{
	ctx = device_open(NULL);
	other = device_open(NULL);
	assert_true(ctx && other);
	pd = ibv_alloc_pd(ctx);
	other_pd = ibv_alloc_pd(other);
	cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	assert_true(pd && other_pd && cq);
	assert_int_equal(ibv_query_device(ctx, &dev), 0);
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &ex), 0);
	return ibv_query_gid(ctx, 1, 1, &gid);
}

static int teardown(void **state)
{
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(other_pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	return 0;
}

/* ---- how many ---- */

#define KIND(name, type, create, destroy)                                                          \
	static void *name##_make(void)                                                             \
	{                                                                                          \
		return create;                                                                     \
	}                                                                                          \
	static int name##_end(void *object)                                                        \
	{                                                                                          \
		return destroy((type *)object);                                                    \
	}

static struct ibv_ah *address_new(void)
{
	struct ibv_ah_attr attr = conn_address(&gid, 1);

	return ibv_create_ah(pd, &attr);
}

static struct ibv_srq *srq_new(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(pd, &init);
}

static struct ibv_qp *qp_new(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
					 .cap = { 1, 1, 1, 1, 0 } };

	return ibv_create_qp(pd, &init);
}

static struct ibv_xrcd *xrcd_new(void)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1, .oflags = O_CREAT };

	return ibv_open_xrcd(ctx, &init);
}

static struct ibv_wq *wq_new(void)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1,
					 .pd = pd, .cq = cq };

	return ibv_create_wq(ctx, &init);
}

static struct ibv_wq *table_wq;

static struct ibv_rwq_ind_table *table_new(void)
{
	struct ibv_rwq_ind_table_init_attr init = { .ind_tbl = &table_wq };

	return ibv_create_rwq_ind_table(ctx, &init);
}

KIND(pd, struct ibv_pd, ibv_alloc_pd(ctx), ibv_dealloc_pd)
KIND(region, struct ibv_mr, ibv_reg_mr(pd, buffer, 64, 0), ibv_dereg_mr)
KIND(window, struct ibv_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_dealloc_mw)
KIND(address, struct ibv_ah, address_new(), ibv_destroy_ah)
KIND(cq, struct ibv_cq, ibv_create_cq(ctx, 1, NULL, NULL, 0), ibv_destroy_cq)
KIND(srq, struct ibv_srq, srq_new(), ibv_destroy_srq)
KIND(qp, struct ibv_qp, qp_new(), ibv_destroy_qp)
KIND(xrcd, struct ibv_xrcd, xrcd_new(), ibv_close_xrcd)
KIND(wq, struct ibv_wq, wq_new(), ibv_destroy_wq)
KIND(table, struct ibv_rwq_ind_table, table_new(), ibv_destroy_rwq_ind_table)

/* One more than the most fails with ENOMEM; there is room for one again once one has gone. */
static void many_of(const char *name, uint32_t most, uint32_t there_are, void *(*make)(void),
		    int (*end)(void *object))
{
	void **objects;
	uint32_t n = 0;

	if (SLOW && most > FEW)
		return;
	objects = calloc((size_t)most + 1, sizeof(void *));
	assert_non_null(objects);
	errno = 0;
	while (n <= most && (objects[n] = make()))
		n++;
	judge(name, &(struct line){ "one more", most, ENOMEM }, errno);
	judge(name, &(struct line){ "most", most, 0 },
	      n + there_are == most ? 0 : (int)(n + there_are));
	if (n != 0) {
		assert_int_equal(end(objects[--n]), 0);
		objects[n] = make();
		judge(name, &(struct line){ "again", n, 0 }, objects[n] ? 0 : errno);
		judge(name, &(struct line){ "one more again", n, ENOMEM },
		      MADE(void, make(), end));
		n += objects[n] != NULL;
	}
	while (n-- != 0)
		assert_int_equal(end(objects[n]), 0);
	free(objects);
}

static void many__as_the_device_says(void **state)
{
#define MANY(name, most, there_are)                                                                \
	many_of(#name, (uint32_t)(most), there_are, name##_make, name##_end)
	MANY(pd, dev.max_pd, 2);
	MANY(region, dev.max_mr, 0);
	MANY(window, dev.max_mw, 0);
	MANY(address, dev.max_ah, 0);
	MANY(cq, dev.max_cq, 1);
	MANY(srq, dev.max_srq, 0);
	MANY(qp, dev.max_qp, 0);
	MANY(xrcd, XRC_DOMAINS, 0);
	MANY(wq, ex.max_wq_type_rq, 0);
	table_wq = wq_new();
	assert_non_null(table_wq);
	MANY(table, ex.rss_caps.max_rwq_indirection_tables, 0);
	assert_int_equal(ibv_destroy_wq(table_wq), 0);
#undef MANY
	verdict();
}

/* Regions and windows have their keys from one table. */
static void many__keys_of_regions_and_windows(void **state)
{
	struct ibv_mw *windows[64];
	struct ibv_mr **regions;
	int n = 0;

	if (SLOW)
		return;
	regions = calloc((size_t)dev.max_mr + 1, sizeof(*regions));
	assert_non_null(regions);
	for (size_t i = 0; i < COUNT(windows); i++)
		assert_non_null(windows[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	errno = 0;
	while (n <= dev.max_mr && (regions[n] = ibv_reg_mr(pd, buffer, 64, 0)))
		n++;
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(n, dev.max_mr - (int)COUNT(windows));
	while (n-- != 0)
		assert_int_equal(ibv_dereg_mr(regions[n]), 0);
	for (size_t i = 0; i < COUNT(windows); i++)
		assert_int_equal(ibv_dealloc_mw(windows[i]), 0);
	free(regions);
}

/* ---- channels ---- */

static int descriptors_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A channel, and a file of the device, fail while there is no descriptor for them, and leave none
 * behind; then they work again. */
static void channels__as_many_as_descriptors(void **state)
{
	struct rlimit before, few;
	int open_before = descriptors_open(), next = dup(0);

	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	judge("ibv_create_comp_channel", &(struct line){ "descriptors", 0, EMFILE },
	      MADE(struct ibv_comp_channel, ibv_create_comp_channel(ctx),
		   ibv_destroy_comp_channel));
	judge("ibv_open_device", &(struct line){ "descriptors", 0, EMFILE },
	      MADE(struct ibv_context, ibv_open_device(ctx->device), ibv_close_device));
	few.rlim_cur++; /* a file of the device takes more than one */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	judge("ibv_open_device", &(struct line){ "descriptors", 1, EMFILE },
	      MADE(struct ibv_context, ibv_open_device(ctx->device), ibv_close_device));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(descriptors_open(), open_before);
	judge("ibv_create_comp_channel", &(struct line){ "descriptors", before.rlim_cur, 0 },
	      MADE(struct ibv_comp_channel, ibv_create_comp_channel(ctx),
		   ibv_destroy_comp_channel));
	verdict();
}

/* Until the last queue of the channel has gone, its unacknowledged events included. */
static void channels__in_use(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_cq *queues[3];

	assert_non_null(channel);
	for (int i = 0; i < 3; i++)
		assert_non_null(queues[i] = ibv_create_cq(ctx, 4, NULL, channel, 0));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
		assert_int_equal(ibv_destroy_cq(queues[i]), 0);
	}
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* ---- thread domains and parent domains ---- */

static void *domain_alloc(struct ibv_pd *domain, void *context, size_t size, size_t alignment,
			  uint64_t type)
{
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void domain_free(struct ibv_pd *domain, void *context, void *memory, uint64_t type)
{
}

static void domains__of_threads(void **state)
{
	static const struct line table[] = { { "comp_mask", 0, 0 },
					     { "comp_mask", 1, EINVAL },
					     { "comp_mask", 1u << 31, EINVAL },
					     { "comp_mask", UINT32_MAX, EINVAL } };
	struct ibv_td_init_attr attr = { 0 };
	struct ibv_td *td;
	struct ibv_parent_domain_init_attr parent = { .pd = pd };
	struct ibv_pd *users[3];

	for (size_t i = 0; i < COUNT(table); i++) {
		attr.comp_mask = (uint32_t)table[i].value;
		judge("ibv_alloc_td", &table[i],
		      MADE(struct ibv_td, ibv_alloc_td(ctx, &attr), ibv_dealloc_td));
	}
	attr.comp_mask = 0;
	td = ibv_alloc_td(ctx, &attr);
	assert_non_null(td);
	parent.td = td;
	for (int i = 0; i < 3; i++)
		assert_non_null(users[i] = ibv_alloc_parent_domain(ctx, &parent));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ibv_dealloc_td(td), EBUSY);
		assert_int_equal(ibv_dealloc_pd(users[i]), 0);
	}
	assert_int_equal(ibv_dealloc_td(td), 0);
	verdict();
}

static void domains__of_parents(void **state)
{
	enum { ALLOC = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	       CONTEXT = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	       UNPROTECTED = 1 << 2 /* of later headers */ };
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(ctx, &td_attr), *foreign = ibv_alloc_td(other, &td_attr);
	struct ibv_parent_domain_init_attr plain = { .pd = pd };
	struct ibv_pd *parent = ibv_alloc_parent_domain(ctx, &plain);
	const struct {
		struct line line; /* its mask */
		struct ibv_pd *of;
		struct ibv_td *td;
		bool alloc, free;
	} table[] = {
		{ { "plain", 0, 0 }, pd, NULL, false, false },
		{ { "thread domain", 0, 0 }, pd, td, false, false },
		{ { "all", ALLOC | CONTEXT, 0 }, pd, td, true, true },
		{ { "no domain", 0, EINVAL }, NULL, td, false, false },
		{ { "a domain of another file", 0, EINVAL }, other_pd, NULL, false, false },
		{ { "a parent domain", 0, EINVAL }, parent, NULL, false, false },
		{ { "a thread domain of another file", 0, EINVAL }, pd, foreign, false, false },
		{ { "no alloc", ALLOC, EINVAL }, pd, NULL, false, true },
		{ { "no free", ALLOC, EINVAL }, pd, NULL, true, false },
		{ { "neither", ALLOC, EINVAL }, pd, NULL, false, false },
		{ { "unprotected memory", UNPROTECTED, 0 }, pd, NULL, false, false },
		{ { "mask", 1 << 3, EOPNOTSUPP }, pd, NULL, false, false },
		{ { "mask", 1u << 31, EOPNOTSUPP }, pd, NULL, false, false },
		{ { "mask", UINT32_MAX, EOPNOTSUPP }, pd, NULL, true, true },
	};

	assert_true(td && foreign && parent);
	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_parent_domain_init_attr attr = {
			.pd = table[i].of,
			.td = table[i].td,
			.comp_mask = (uint32_t)table[i].line.value,
			.alloc = table[i].alloc ? domain_alloc : NULL,
			.free = table[i].free ? domain_free : NULL,
		};

		judge("ibv_alloc_parent_domain", &table[i].line,
		      MADE(struct ibv_pd, ibv_alloc_parent_domain(ctx, &attr), ibv_dealloc_pd));
	}
	/* what was refused uses nothing */
	assert_int_equal(ibv_dealloc_td(td), 0);
	assert_int_equal(ibv_dealloc_td(foreign), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	verdict();
}

/* ---- handles ---- */

static int import_pd(uint32_t handle)
{
	struct ibv_pd *copy = (errno = 0, ibv_import_pd(ctx, handle));

	if (!copy)
		return errno;
	ibv_unimport_pd(copy);
	return 0;
}

static int import_mr(uint32_t handle)
{
	struct ibv_mr *copy = (errno = 0, ibv_import_mr(pd, handle));

	if (!copy)
		return errno;
	ibv_unimport_mr(copy);
	return 0;
}

static int import_dm(uint32_t handle)
{
	struct ibv_dm *copy = (errno = 0, ibv_import_dm(ctx, handle));

	if (!copy)
		return errno;
	ibv_unimport_dm(copy);
	return 0;
}

/* A handle names an object of its kind and its file, until that has gone; then it names nothing,
 * and no later object. */
static void handles__of_each_kind(void **state)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_pd *domain = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, 64, 0);
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);
	struct ibv_mr *foreign[8];
	const struct {
		struct line line;
		int (*import)(uint32_t handle);
	} table[] = {
		{ { "a domain", domain->handle, 0 }, import_pd },
		{ { "a region", mr->handle, 0 }, import_mr },
		{ { "device memory", dm->handle, 0 }, import_dm },
		{ { "a domain as a region", domain->handle, ENOENT }, import_mr },
		{ { "a domain as device memory", domain->handle, ENOENT }, import_dm },
		{ { "a region as a domain", mr->handle, ENOENT }, import_pd },
		{ { "a region as device memory", mr->handle, ENOENT }, import_dm },
		{ { "device memory as a domain", dm->handle, ENOENT }, import_pd },
		{ { "device memory as a region", dm->handle, ENOENT }, import_mr },
		{ { "a CQ as a domain", cq->handle, ENOENT }, import_pd },
		{ { "the next one", dm->handle + 1, ENOENT }, import_dm },
		{ { "the last one", UINT32_MAX, ENOENT }, import_pd },
		{ { "the last one", UINT32_MAX, ENOENT }, import_mr },
		{ { "the last one", UINT32_MAX, ENOENT }, import_dm },
	}, after[] = {
		{ { "a domain that is gone", domain->handle, ENOENT }, import_pd },
		{ { "a region that is gone", mr->handle, ENOENT }, import_mr },
		{ { "device memory that is gone", dm->handle, ENOENT }, import_dm },
	};

	for (size_t i = 0; i < COUNT(table); i++)
		judge("import", &table[i].line, table[i].import((uint32_t)table[i].line.value));
	/* of more objects than this file has handles */
	for (size_t i = 0; i < COUNT(foreign); i++)
		foreign[i] = ibv_reg_mr(other_pd, buffer, 64, 0);
	judge("import", &(struct line){ "another file's", foreign[7]->handle, ENOENT },
	      import_mr(foreign[7]->handle));
	for (size_t i = 0; i < COUNT(foreign); i++)
		assert_int_equal(ibv_dereg_mr(foreign[i]), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	domain = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, buffer, 64, 0);
	dm = ibv_alloc_dm(ctx, &attr);
	for (size_t i = 0; i < COUNT(after); i++)
		judge("import", &after[i].line, after[i].import((uint32_t)after[i].line.value));
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	verdict();
}

/* The second destruction, by another hold of the object, finds nothing to destroy. */
static void handles__destroyed_twice(void **state)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };

	for (int first = 0; first < 2; first++) {
		struct ibv_pd *domain[2] = { ibv_alloc_pd(ctx) };
		struct ibv_mr *mr[2] = { ibv_reg_mr(pd, buffer, 64, 0) };
		struct ibv_dm *dm[2] = { ibv_alloc_dm(ctx, &attr) };

		domain[1] = ibv_import_pd(ctx, domain[0]->handle);
		mr[1] = ibv_import_mr(pd, mr[0]->handle);
		dm[1] = ibv_import_dm(ctx, dm[0]->handle);
		assert_true(domain[1] && mr[1] && dm[1]);
		assert_int_equal(ibv_dealloc_pd(domain[first]), 0);
		assert_int_equal(ibv_dealloc_pd(domain[!first]), EINVAL);
		assert_int_equal(ibv_dereg_mr(mr[first]), 0);
		assert_int_equal(ibv_dereg_mr(mr[!first]), EINVAL);
		assert_int_equal(ibv_free_dm(dm[first]), 0);
		assert_int_equal(ibv_free_dm(dm[!first]), EINVAL);
		assert_int_equal(MADE(struct ibv_mr, ibv_reg_mr(domain[!first], buffer, 64, 0),
				      ibv_dereg_mr), EINVAL);
		assert_int_equal(MADE(struct ibv_mw,
				      ibv_alloc_mw(domain[!first], IBV_MW_TYPE_1),
				      ibv_dealloc_mw), EINVAL);
		ibv_unimport_pd(domain[!first]);
		ibv_unimport_mr(mr[!first]);
		ibv_unimport_dm(dm[!first]);
	}
}

/* The command descriptor takes no commands: a program that speaks to the kernel's device without
 * libibverbs is told so, and destroys nothing. */
static void handles__by_the_kernels_own_interface(void **state)
{
	/* IB_USER_VERBS_CMD_DEALLOC_PD, in words and out words, the handle */
	const struct {
		uint32_t command;
		uint16_t in_words, out_words;
		uint32_t handle;
	} dealloc = { 4, 3, 0, pd->handle };
	uint64_t header[8] = { sizeof(header) };

	errno = 0;
	assert_int_equal(write(ctx->cmd_fd, &dealloc, sizeof(dealloc)), -1);
	assert_int_equal(errno, EPERM);
	errno = 0;
	assert_int_equal(ioctl(ctx->cmd_fd, _IOWR(0x1b, 1, uint64_t[3]), header), -1);
	assert_int_equal(errno, ENOTTY);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->cmd_fd, 0),
			 MAP_FAILED);
	assert_int_equal(ftruncate(ctx->cmd_fd, 4096), -1);
	assert_int_equal(import_pd(pd->handle), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(many__as_the_device_says),
		TEST(many__keys_of_regions_and_windows),
		TEST(channels__as_many_as_descriptors),
		TEST(channels__in_use),
		TEST(domains__of_threads),
		TEST(domains__of_parents),
		TEST(handles__of_each_kind),
		TEST(handles__destroyed_twice),
		TEST(handles__by_the_kernels_own_interface),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
