/* newer_test.c: the calls that rdma-core has added since release 44: what they do, and what those
 * answer that no device of ours can do. Called as their programs do, by name and node.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "toy.h"

enum { BY_IOVA = 1, BY_ADDR = 2, BY_FD = 4, BY_FD_OFFSET = 8, BY_DMAH = 16,
       BY_BUF = 32 };

struct newer_mr_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

static void *newer(const char *name, const char *node)
{
	void *found = dlvsym(RTLD_DEFAULT, name, node);

	if (!found)
		print_error("%s@%s\n", name, node);
	assert_non_null(found);
	return found;
}

static struct ibv_context *newer_context(void **state)
{
	return ((struct toy_door *)*state)->context;
}

static void reg_mr_ex__by_address(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(newer_context(state));
	struct ibv_mr *(*reg)(void *, void *) = newer("ibv_reg_mr_ex", "IBVERBS_1.15");
	static char bytes[100];
	struct newer_mr_attr attr = { .length = 50,
				      .access = IBV_ACCESS_LOCAL_WRITE,
				      .comp_mask = BY_ADDR,
				      .iova = 0x5000,
				      .addr = bytes + 1 };
	struct ibv_mr *mr = reg(pd, &attr);

	assert_non_null(mr);
	assert_int_equal(toy_seen.mr_start, (uintptr_t)bytes + 1);
	assert_int_equal(toy_seen.mr_iova, (uintptr_t)bytes + 1);
	assert_int_equal(toy_seen.mr_length, 50);
	assert_int_equal(toy_seen.mr_access, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	attr.comp_mask = BY_ADDR | BY_IOVA;
	mr = reg(pd, &attr);
	assert_non_null(mr);
	assert_int_equal(toy_seen.mr_iova, 0x5000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void reg_mr_ex__refuses(void **state)
{
	static const struct {
		uint64_t mask;
		int access, error;
	} cases[] = {
		{ 0, 0, EINVAL },
		{ BY_IOVA, 0, EINVAL },
		{ BY_ADDR | BY_FD, 0, EINVAL },
		{ BY_ADDR | BY_FD_OFFSET, 0, EINVAL },
		{ BY_FD, 0, EOPNOTSUPP },
		{ BY_FD | BY_FD_OFFSET | BY_IOVA, 0, EOPNOTSUPP },
		{ BY_ADDR | BY_DMAH, 0, EOPNOTSUPP },
		{ BY_ADDR | 1ULL << 40, 0, EOPNOTSUPP },
		{ BY_ADDR, IBV_ACCESS_REMOTE_WRITE, EINVAL },
	};
	struct ibv_pd *pd = ibv_alloc_pd(newer_context(state));
	struct ibv_mr *(*reg)(void *, void *) = newer("ibv_reg_mr_ex", "IBVERBS_1.15");
	static char bytes[8];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct newer_mr_attr attr = { .length = sizeof(bytes),
					      .access = cases[i].access,
					      .comp_mask = cases[i].mask,
					      .addr = bytes };

		errno = 0;
		assert_null(reg(pd, &attr));
		assert_int_equal(errno, cases[i].error);
	}
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void buf__is_memory_that_can_be_registered(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(newer_context(state));
	struct ibv_pd *other = ibv_alloc_pd(newer_context(state));
	void *(*alloc)(void *, size_t, void **) = newer("ibv_alloc_buf", "IBVERBS_1.17");
	void (*release)(void *) = newer("ibv_free_buf", "IBVERBS_1.17");
	struct ibv_mr *(*reg)(void *, void *, void *, size_t, int) =
		newer("ibv_reg_buf_mr", "IBVERBS_1.17");
	int (*export)(void *) = newer("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	void *buf = NULL;
	char *bytes = alloc(pd, 5000, &buf);
	struct ibv_mr *mr;

	assert_non_null(bytes);
	assert_non_null(buf);
	memset(bytes, 7, 5000);
	mr = reg(pd, buf, bytes + 1000, 4000, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_int_equal(toy_seen.mr_start, (uintptr_t)bytes + 1000);
	assert_int_equal(toy_seen.mr_length, 4000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_null(reg(pd, buf, bytes + 1000, 4001, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(reg(pd, buf, bytes - 1, 1, 0));
	assert_null(reg(other, buf, bytes, 1, 0));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_int_equal(export(buf), -1);
	assert_int_equal(errno, ENODATA);
	release(buf);
	release(NULL);
	assert_null(alloc(pd, 0, &buf));
	assert_int_equal(errno, EINVAL);
	assert_null(alloc(pd, SIZE_MAX, &buf));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

/* Parts of one buffer, each a region; what is no part of it is none. */
static void buf__by_attributes(void **state)
{
	static const struct {
		ptrdiff_t offset;
		size_t length;
		uint64_t mask;
		int error; /* 0: it is registered */
	} cases[] = {
		{ 0, 4096, BY_ADDR | BY_BUF, 0 },
		{ 4096, 4096, BY_ADDR | BY_BUF, 0 },
		{ 8191, 1, BY_ADDR | BY_BUF | BY_IOVA, 0 },
		{ 4096, 4097, BY_ADDR | BY_BUF, EINVAL },
		{ 8193, 1, BY_ADDR | BY_BUF, EINVAL },
		{ -1, 1, BY_ADDR | BY_BUF, EINVAL },
		{ 1, SIZE_MAX, BY_ADDR | BY_BUF, EINVAL },
		{ 0, 8, BY_BUF, EINVAL },
		{ 0, 8, BY_BUF | BY_FD, EINVAL },
		{ 0, 8, BY_ADDR | BY_BUF | BY_FD_OFFSET, EINVAL },
	};
	struct ibv_pd *pd = ibv_alloc_pd(newer_context(state));
	struct ibv_pd *other = ibv_alloc_pd(newer_context(state));
	void *(*alloc)(void *, size_t, void **) = newer("ibv_alloc_buf", "IBVERBS_1.17");
	void (*release)(void *) = newer("ibv_free_buf", "IBVERBS_1.17");
	struct ibv_mr *(*reg)(void *, void *) = newer("ibv_reg_mr_ex", "IBVERBS_1.15");
	struct newer_mr_attr attr = { .iova = 0x5000 };
	char *bytes = alloc(pd, 8192, &attr.buf);

	assert_non_null(bytes);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ibv_mr *mr;

		attr.length = cases[i].length;
		attr.comp_mask = cases[i].mask;
		attr.addr = (void *)((uintptr_t)bytes + (uintptr_t)cases[i].offset);
		errno = 0;
		mr = reg(pd, &attr);
		assert_int_equal(mr ? 0 : errno, cases[i].error);
		if (mr) {
			assert_int_equal(toy_seen.mr_start, (uintptr_t)attr.addr);
			assert_int_equal(ibv_dereg_mr(mr), 0);
		}
	}
	attr = (struct newer_mr_attr){ .length = 8, .comp_mask = BY_ADDR | BY_BUF, .addr = bytes,
				       .buf = attr.buf };
	assert_null(reg(other, &attr));
	assert_int_equal(errno, EINVAL);
	release(attr.buf);
	attr.buf = NULL;
	assert_null(reg(pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void port_speed__is_width_times_speed(void **state)
{
	int (*speed)(void *, uint32_t, uint64_t *) = newer("ibv_query_port_speed", "IBVERBS_1.16");
	struct ibv_context *ctx = newer_context(state);
	uint64_t got = 77;

	assert_int_equal(speed(ctx, 1, &got), 0);
	assert_int_equal(got, 1000); /* 4x EDR, in 100 Mbit/s */
	got = 77;
	assert_int_equal(speed(ctx, 0, &got), EINVAL);
	assert_int_equal(speed(ctx, 257, &got), EINVAL);
	assert_int_equal(got, 77);
}

static void newer__declines_what_no_device_has(void **state)
{
	static const char *const pointers[][2] = { { "ibv_alloc_dmah", "IBVERBS_1.15" } };
	static const char *const descriptors[][2] = {
		{ "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16" },
	};
	static const char *const errors[][2] = { { "ibv_dealloc_dmah", "IBVERBS_1.15" } };

	for (size_t i = 0; i < ARRAY_LEN(pointers); i++) {
		void *(*call)(void *, void *) = newer(pointers[i][0], pointers[i][1]);

		errno = 0;
		assert_null(call(newer_context(state), NULL));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	for (size_t i = 0; i < ARRAY_LEN(descriptors); i++) {
		int (*call)(void *) = newer(descriptors[i][0], descriptors[i][1]);

		errno = 0;
		assert_int_equal(call(NULL), -1);
		assert_int_equal(errno, EOPNOTSUPP);
	}
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		int (*call)(void *, void *) = newer(errors[i][0], errors[i][1]);

		assert_int_equal(call(NULL, NULL), EOPNOTSUPP);
	}
}

/* The toy counts nothing, and the door does not do it in its place. */
static void comp_counters__are_the_drivers(void **state)
{
	int (*caps)(void *, void *, size_t) = newer("_ibv_query_comp_cntr_caps", "IBVERBS_1.18");
	void *(*create)(void *, void *) = newer("ibv_create_comp_cntr", "IBVERBS_1.18");
	uint64_t out[2] = { 7, 7 }, in[2] = { 0, 0 };

	assert_int_equal(caps(newer_context(state), out, sizeof(out)), EOPNOTSUPP);
	assert_int_equal(out[0], 7);
	errno = 0;
	assert_null(create(newer_context(state), in));
	assert_int_equal(errno, EOPNOTSUPP);
	for (const char *const *name = (const char *const[]){
		     "ibv_destroy_comp_cntr", "ibv_qp_attach_comp_cntr", "ibv_set_comp_cntr",
		     "ibv_set_err_comp_cntr", "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr",
		     "ibv_read_comp_cntr", "ibv_read_err_comp_cntr", NULL }; *name; name++)
		newer(*name, "IBVERBS_1.18");
}

/* Each release's providers find the same functions in their own node. */
static void private__nodes_are_one(void **state)
{
	static const char *const nodes[] = { "34", "57", "59", "64", "65" };
	void *command = NULL;
	char node[32], name[40];

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		void (*add)(const void *);
		const char *(*opcode)(int);

		snprintf(node, sizeof(node), "IBVERBS_PRIVATE_%s", nodes[i]);
		snprintf(name, sizeof(name), "verbs_register_driver_%s", nodes[i]);
		add = newer(name, node);
		add(NULL);
		opcode = newer("ibv_wr_opcode_str", node);
		assert_string_equal(opcode(IBV_WR_SEND), "IBV_WR_SEND");
		assert_string_equal(opcode(-1), "unknown");
		if (i == 0)
			command = newer("ibv_cmd_create_cq_ex2", node);
		assert_ptr_equal(newer("ibv_cmd_create_cq_ex2", node), command);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_DOOR(test) cmocka_unit_test_setup_teardown(test, toy_door_open, toy_door_close)
		WITH_DOOR(reg_mr_ex__by_address),
		WITH_DOOR(reg_mr_ex__refuses),
		WITH_DOOR(buf__is_memory_that_can_be_registered),
		WITH_DOOR(buf__by_attributes),
		WITH_DOOR(port_speed__is_width_times_speed),
		WITH_DOOR(newer__declines_what_no_device_has),
		WITH_DOOR(comp_counters__are_the_drivers),
		WITH_DOOR(private__nodes_are_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
