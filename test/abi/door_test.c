/* door_test.c: libibverbs' control calls, seen from a program: layouts, conversions, errors.
 * The device is toy.c's; the library under test is the one that programs load.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "toy.h"

#undef ibv_query_port

static struct ibv_context *door_ctx(void **state)
{
	return ((struct toy_door *)*state)->context;
}

/* ---- devices and contexts -------------------------------------------------------------------- */

static void device__names_and_guid(void **state)
{
	struct toy_door *door = *state;

	assert_string_equal(ibv_get_device_name(door->device), "toy0");
	assert_true(ibv_get_device_guid(door->device) == 0x1122334455667788ull);
	assert_int_equal(door->device->node_type, IBV_NODE_CA);
	assert_int_equal(door->device->transport_type, IBV_TRANSPORT_IB);
	assert_true(ibv_get_device_index(door->device) >= 0);
}

static void device__same_pointer_in_every_list(void **state)
{
	struct toy_door *door = *state;
	int count = -1, found = 0;
	struct ibv_device **again = ibv_get_device_list(&count);

	assert_non_null(again);
	for (int i = 0; i < count; i++)
		found += again[i] == door->device;
	assert_int_equal(found, 1);
	assert_null(again[count]);
	ibv_free_device_list(again);
	ibv_free_device_list(NULL);
}

/* libmlx5 takes what lies behind the public part for its own operations: must be there, and zero.
 */
static void device__zeroes_behind_public_part(void **state)
{
	struct toy_door *door = *state;
	const char *behind = (const char *)door->device + sizeof(struct ibv_device);

	for (int i = 0; i < 712 - (int)sizeof(struct ibv_device); i++)
		assert_int_equal(behind[i], 0);
}

static void device__open_null_is_einval(void **state)
{
	errno = 0;
	assert_null(ibv_open_device(NULL));
	assert_int_equal(errno, EINVAL);
}

static void context__serves_newer_clients(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct verbs_context *verbs = verbs_get_ctx(ctx);
	void **newer = (void **)((char *)ctx - 368);

	assert_non_null(verbs);
	assert_true(verbs->sz >= 696);
	assert_non_null(verbs->query_port);
	assert_non_null(verbs->query_device_ex);
	assert_null(verbs->create_flow_action_esp);
	for (int i = 0; i < 6; i++)
		assert_null(newer[i]);
	assert_int_equal(ctx->num_comp_vectors, 2);
	assert_ptr_equal(ctx->device, ((struct toy_door *)*state)->device);
}

/* What the inline functions answer for operations that the device lacks. */
static void context__absent_operations_decline(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_alloc_dm_attr dm = { .length = 64 };

	errno = 0;
	assert_null(ibv_alloc_dm(ctx, &dm));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	assert_null(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	assert_null(ibv_alloc_mw(pd, 3));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_alloc_null_mr(pd));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void context__cmd_fd_names_it_after_dup(void **state)
{
	struct toy_door *door = *state;
	struct ibv_context *other = ibv_open_device(door->device);
	int copy = dup(door->context->cmd_fd);
	struct pollfd p = { .fd = copy, .events = POLLIN };
	struct stat a, b, c;

	assert_non_null(other);
	assert_int_equal(
		fstat(door->context->cmd_fd, &a) | fstat(copy, &b) | fstat(other->cmd_fd, &c), 0);
	assert_true(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
	assert_false(a.st_ino == c.st_ino && a.st_dev == c.st_dev);
	assert_true(poll(&p, 1, 0) >= 0);
	assert_true(fcntl(door->context->cmd_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(door->context->async_fd, F_GETFD) & FD_CLOEXEC);
	close(copy);
	assert_int_equal(ibv_close_device(other), 0);
}

/* Objects that a program leaves behind keep what they stand on. */
static void context__closed_before_its_objects(void **state)
{
	struct toy_door *door = *state;
	struct ibv_context *other = ibv_open_device(door->device);
	struct ibv_pd *pd = ibv_alloc_pd(other);

	assert_non_null(pd);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* ---- queries --------------------------------------------------------------------------------- */

static void query_device__converts(void **state)
{
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex ex;

	assert_int_equal(ibv_query_device(door_ctx(state), &attr), 0);
	assert_string_equal(attr.fw_ver, "7.8.9");
	assert_true(attr.node_guid == 0x1122334455667788ull);
	assert_int_equal(attr.max_cqe, TOY_MAX_CQE);
	assert_int_equal(attr.phys_port_cnt, 1);
	assert_int_equal(attr.atomic_cap, IBV_ATOMIC_HCA);
	assert_int_equal(attr.device_cap_flags, IBV_DEVICE_RC_RNR_NAK_GEN);
	assert_int_equal(ibv_query_device_ex(door_ctx(state), NULL, &ex), 0);
	assert_memory_equal(&ex.orig_attr, &attr, sizeof(attr));
	assert_int_equal(ex.phys_port_cnt_ex, 1);
	assert_true(ex.device_cap_flags_ex == attr.device_cap_flags);
}

/* A client of another release has a shorter or a longer structure. */
static void query_device__other_sizes(void **state)
{
	struct verbs_context *verbs = verbs_get_ctx(door_ctx(state));
	struct {
		struct ibv_device_attr_ex attr;
		uint64_t beyond;
	} wide;
	size_t narrow = offsetof(struct ibv_device_attr_ex, tso_caps);

	memset(&wide, 0xee, sizeof(wide));
	assert_int_equal(verbs->query_device_ex(door_ctx(state), NULL, &wide.attr, sizeof(wide)),
			 0);
	assert_true(wide.beyond == 0);
	memset(&wide, 0xee, sizeof(wide));
	assert_int_equal(verbs->query_device_ex(door_ctx(state), NULL, &wide.attr, narrow), 0);
	assert_int_equal(((unsigned char *)&wide)[narrow], 0xee);
	assert_int_equal(verbs->query_device_ex(door_ctx(state), NULL, &wide.attr, 8), EINVAL);
}

static void query_port__inline_and_export(void **state)
{
	struct ibv_port_attr attr, old;

	assert_int_equal(___ibv_query_port(door_ctx(state), 1, &attr), 0);
	assert_int_equal(attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(attr.active_mtu, IBV_MTU_1024);
	assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(attr.flags, IBV_QPF_GRH_REQUIRED);
	assert_int_equal(attr.gid_tbl_len, TOY_GIDS);
	assert_int_equal(___ibv_query_port(door_ctx(state), 2, &attr), EINVAL);
	assert_int_equal(___ibv_query_port(door_ctx(state), 0, &attr), EINVAL);
	memset(&old, 0xee, sizeof(old));
	assert_int_equal(ibv_query_port(door_ctx(state), 1, (struct _compat_ibv_port_attr *)&old),
			 0);
	assert_int_equal(old.gid_tbl_len, TOY_GIDS);
	assert_int_equal(old.port_cap_flags2, 0xeeee);
}

static void query_gid__empty_slot_is_zeroes(void **state)
{
	union ibv_gid gid, none = { .raw = { 0 } };

	assert_int_equal(ibv_query_gid(door_ctx(state), 1, 1, &gid), 0);
	assert_int_equal(gid.raw[15], 7);
	assert_int_equal(ibv_query_gid(door_ctx(state), 1, 2, &gid), 0);
	assert_memory_equal(&gid, &none, sizeof(gid));
	errno = 0;
	assert_int_equal(ibv_query_gid(door_ctx(state), 1, TOY_GIDS, &gid), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_query_gid(door_ctx(state), 1, -1, &gid), -1);
	assert_int_equal(ibv_query_gid(door_ctx(state), 2, 0, &gid), -1);
}

static void query_gid_ex__errors(void **state)
{
	struct ibv_gid_entry entry;

	assert_int_equal(ibv_query_gid_ex(door_ctx(state), 1, 1, &entry, 0), 0);
	assert_int_equal(entry.gid_index, 1);
	assert_int_equal(entry.port_num, 1);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ibv_query_gid_ex(door_ctx(state), 1, 2, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(door_ctx(state), 1, 99, &entry, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(door_ctx(state), 300, 0, &entry, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(door_ctx(state), 1, 1, &entry, 1), EOPNOTSUPP);
}

static void query_gid_table__lists_valid_entries(void **state)
{
	struct ibv_gid_entry entries[4];

	assert_int_equal(ibv_query_gid_table(door_ctx(state), entries, 4, 0), 3);
	assert_int_equal(entries[2].gid_index, 3);
	assert_int_equal(ibv_query_gid_table(door_ctx(state), entries, 3, 0), 3);
	assert_int_equal(ibv_query_gid_table(door_ctx(state), entries, 2, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_table(door_ctx(state), entries, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_gid_table(door_ctx(state), entries, 4, 1), -EOPNOTSUPP);
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);

static void query_gid_type__private_numbers(void **state)
{
	int type = -1;

	assert_int_equal(ibv_query_gid_type(door_ctx(state), 1, 0, &type), 0);
	assert_int_equal(type, 1);
	assert_int_equal(ibv_query_gid_type(door_ctx(state), 1, 99, &type), -1);
}

static void query_pkey__both_ways(void **state)
{
	__be16 pkey = 0;

	assert_int_equal(ibv_query_pkey(door_ctx(state), 1, 1, &pkey), 0);
	assert_int_equal(pkey, __builtin_bswap16(0x8001));
	assert_int_equal(ibv_get_pkey_index(door_ctx(state), 1, pkey), 1);
	assert_int_equal(ibv_get_pkey_index(door_ctx(state), 1, 0x0203), -1);
	assert_int_equal(ibv_query_pkey(door_ctx(state), 1, 2, &pkey), -1);
	assert_int_equal(ibv_query_pkey(door_ctx(state), 1, -1, &pkey), -1);
	assert_int_equal(errno, EINVAL);
}

static void resolve_l2__what_the_gid_tells(void **state)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	static const uint8_t own[6] = { 0x02, 0x11, 0x22, 0x33, 0x44, 0x55 };
	uint8_t mac[6];
	uint16_t vid = 0;

	assert_int_equal(ibv_query_gid(door_ctx(state), 1, 0, &attr.grh.dgid), 0);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(door_ctx(state), &attr, mac, &vid), 0);
	assert_memory_equal(mac, own, 6);
	assert_int_equal(vid, 0xffff);
	attr.grh.dgid.raw[0] = 0xfd;
	assert_int_not_equal(ibv_resolve_eth_l2_from_gid(door_ctx(state), &attr, mac, &vid), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static void mr__addresses_and_keys(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(door_ctx(state));
	char buffer[100];
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);

	assert_non_null(mr);
	assert_true(toy_seen.mr_start == (uintptr_t)buffer &&
		    toy_seen.mr_iova == (uintptr_t)buffer);
	assert_int_equal(toy_seen.mr_length, sizeof(buffer));
	assert_int_equal(mr->lkey, 0x1000);
	assert_int_equal(mr->rkey, 0x2000);
	assert_ptr_equal(mr->addr, buffer);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr_iova(pd, buffer, sizeof(buffer), 0x5000, 0);
	assert_true(toy_seen.mr_iova == 0x5000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_ZERO_BASED);
	assert_true(toy_seen.mr_iova == 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void mr__access_flags(void **state)
{
	static const struct {
		unsigned int access;
		int error;
	} cases[] = {
		{ 0, 0 },
		{ IBV_ACCESS_REMOTE_READ, 0 },
		{ IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0 },
		{ IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ 1u << 29, 0 },
		{ 1u << 30, EINVAL },
		{ 1u << 12, EINVAL },
		{ IBV_ACCESS_ON_DEMAND, EOPNOTSUPP },
	};
	struct ibv_pd *pd = ibv_alloc_pd(door_ctx(state));
	char buffer[8];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ibv_mr *mr = ibv_reg_mr_iova2(pd, buffer, sizeof(buffer), 0,
						     cases[i].access);

		if (cases[i].error) {
			assert_null(mr);
			assert_int_equal(errno, cases[i].error);
		} else {
			assert_non_null(mr);
			assert_int_equal(ibv_dereg_mr(mr), 0);
		}
	}
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void mr__errors_of_the_driver(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(door_ctx(state));
	char buffer[8];
	struct ibv_mr *mr;

	toy_seen.fail = -EFAULT;
	assert_null(ibv_reg_mr(pd, buffer, sizeof(buffer), 0));
	assert_int_equal(errno, EFAULT);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
	toy_seen.fail = -EBUSY;
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, pd, NULL, 0, 0),
			 IBV_REREG_MR_ERR_CMD); /* the driver has no such method */
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_null(ibv_reg_dmabuf_mr(pd, 0, 8, 0, -1, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* ---- import and parent domains --------------------------------------------------------------- */

static void import__shares_objects_by_number(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *other_pd = ibv_alloc_pd(ctx), *shared;
	char buffer[8];
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0), *shared_mr;
	struct ibv_context *imported = ibv_import_device(dup(ctx->cmd_fd));

	assert_non_null(imported);
	assert_ptr_equal(imported->device, ctx->device);
	assert_int_not_equal(pd->handle, other_pd->handle);
	shared = ibv_import_pd(imported, pd->handle);
	assert_non_null(shared);
	assert_int_equal(shared->handle, pd->handle);
	assert_ptr_equal(shared->context, imported);
	shared_mr = ibv_import_mr(shared, mr->handle);
	assert_non_null(shared_mr);
	assert_int_equal(shared_mr->lkey, mr->lkey);
	assert_int_equal(shared_mr->rkey, mr->rkey);
	assert_null(shared_mr->addr);
	errno = 0;
	assert_null(ibv_import_pd(imported, mr->handle));
	assert_int_equal(errno, ENOENT);
	ibv_unimport_mr(shared_mr);
	ibv_unimport_pd(shared);
	assert_int_equal(ibv_close_device(imported), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(other_pd), 0);
}

/* The destroyer may be either; who comes second is told. */
static void import__destroyed_once(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *shared;
	struct ibv_context *imported = ibv_import_device(dup(ctx->cmd_fd));

	shared = ibv_import_pd(imported, pd->handle);
	assert_int_equal(ibv_dealloc_pd(shared), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EINVAL);
	assert_null(ibv_import_pd(imported, pd->handle));
	ibv_unimport_pd(pd);
	assert_int_equal(ibv_close_device(imported), 0);
}

/* By another number of it, nothing stands on what is gone any more. */
static void import__gone_is_no_domain(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct ibv_context *imported = ibv_import_device(dup(ctx->cmd_fd));
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *shared = ibv_import_pd(imported, pd->handle);
	struct ibv_parent_domain_init_attr parent = { .pd = shared };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1 };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_cq *cq = ibv_create_cq(imported, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr qp = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	char buffer[8];

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, EINVAL);                                                   \
	} while (0)
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	REFUSED(ibv_reg_mr(shared, buffer, sizeof(buffer), 0));
	REFUSED(ibv_alloc_mw(shared, IBV_MW_TYPE_1));
	REFUSED(ibv_create_ah(shared, &ah));
	REFUSED(ibv_create_srq(shared, &srq));
	REFUSED(ibv_create_qp(shared, &qp));
	REFUSED(ibv_alloc_parent_domain(imported, &parent));
#undef REFUSED
	assert_int_equal(ibv_dealloc_pd(shared), EINVAL);
	ibv_unimport_pd(shared);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_close_device(imported), 0);
}

/* A parent domain holds the domain, whichever import of it that stands on; what was made with an
 * import may outlive it. */
static void import__keeps_what_stands_on_it(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct ibv_context *imported = ibv_import_device(dup(ctx->cmd_fd));
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *shared = ibv_import_pd(imported, pd->handle);
	struct ibv_parent_domain_init_attr attr = { .pd = shared };
	struct ibv_pd *domain = ibv_alloc_parent_domain(imported, &attr);
	char buffer[8];
	struct ibv_mr *mr = ibv_reg_mr(shared, buffer, sizeof(buffer), 0);

	assert_non_null(domain);
	assert_non_null(mr);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	ibv_unimport_pd(shared);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(imported), 0);
}

static void import__foreign_descriptor(void **state)
{
	int fd = open("/dev/null", O_RDWR);

	errno = 0;
	assert_null(ibv_import_device(fd));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_import_device(-1));
	close(fd);
	assert_null(ibv_import_dm(door_ctx(state), 1));
	assert_int_equal(errno, ENOENT);
}

static void parent_domain__stands_on_its_pd(void **state)
{
	struct ibv_context *ctx = door_ctx(state);
	struct ibv_td_init_attr none = { 0 };
	struct ibv_td *td = ibv_alloc_td(ctx, &none);
	struct ibv_parent_domain_init_attr attr = { .pd = ibv_alloc_pd(ctx), .td = td };
	struct ibv_pd *domain = ibv_alloc_parent_domain(ctx, &attr);
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_cq_ex *cq;
	char buffer[8];
	struct ibv_mr *mr;

	assert_non_null(domain);
	mr = ibv_reg_mr(domain, buffer, sizeof(buffer), 0);
	assert_non_null(mr);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	assert_int_equal(ibv_dealloc_pd(domain), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	cq_attr.parent_domain = domain;
	cq = ibv_create_cq_ex(ctx, &cq_attr);
	assert_non_null(cq);
	assert_int_equal(ibv_dealloc_pd(domain), EBUSY);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	attr.td = NULL;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	assert_null(ibv_alloc_parent_domain(ctx, &attr)); /* without the two functions */
	assert_int_equal(errno, EINVAL);
	attr.comp_mask = 1 << 3;
	assert_null(ibv_alloc_parent_domain(ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(attr.pd), 0);
	attr.pd = NULL;
	assert_null(ibv_alloc_parent_domain(ctx, &attr));
	assert_int_equal(errno, EINVAL);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void ah__converts_the_route(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(door_ctx(state));
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .sl = 3,
				    .grh = { .flow_label = 77, .sgid_index = 1, .hop_limit = 9 } };
	struct ibv_ah *ah;

	attr.grh.dgid.raw[5] = 0x55;
	ah = ibv_create_ah(pd, &attr);
	assert_non_null(ah);
	assert_int_equal(toy_seen.ah.ah_flags, IB_AH_GRH);
	assert_int_equal(toy_seen.ah.grh.dgid.raw[5], 0x55);
	assert_int_equal(toy_seen.ah.grh.flow_label, 77);
	assert_int_equal(toy_seen.ah.sl, 3);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	toy_seen.fail = -EINVAL;
	assert_null(ibv_create_ah(pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void ah_from_wc__ipv6_header(void **state)
{
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .sl = 2 };
	struct ibv_grh grh = { .version_tclass_flow = __builtin_bswap32(0x6ab12345) };
	struct ibv_ah_attr attr;

	grh.sgid.raw[3] = 0x77;
	assert_int_equal(ibv_query_gid(door_ctx(state), 1, 3, &grh.dgid), 0);
	assert_int_equal(ibv_init_ah_from_wc(door_ctx(state), 1, &wc, &grh, &attr), 0);
	assert_int_equal(attr.is_global, 1);
	assert_int_equal(attr.grh.sgid_index, 3);
	assert_int_equal(attr.grh.dgid.raw[3], 0x77);
	assert_int_equal(attr.grh.flow_label, 0x12345);
	assert_int_equal(attr.grh.traffic_class, 0xab);
	assert_int_equal(attr.port_num, 1);
	assert_int_equal(attr.sl, 2);
	grh.dgid.raw[9] ^= 1;
	assert_int_equal(ibv_init_ah_from_wc(door_ctx(state), 1, &wc, &grh, &attr), -1);
}

/* RoCE v2 over IPv4 leaves an IP header in the last 20 of the 40 bytes. */
static void ah_from_wc__ipv4_header(void **state)
{
	static const uint8_t ip[20] = { 0x45, 0x12, 0,	0, 0, 0,  0,  0, 64, 17,
					0,    0,    10, 0, 0, 99, 10, 0, 0,  7 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_ah_attr attr;
	struct ibv_grh grh;

	memset(&grh, 0, sizeof(grh));
	memcpy((char *)&grh + 20, ip, sizeof(ip));
	assert_int_equal(ibv_init_ah_from_wc(door_ctx(state), 1, &wc, &grh, &attr), 0);
	assert_int_equal(attr.grh.sgid_index, 1);
	assert_int_equal(attr.grh.dgid.raw[11], 0xff);
	assert_int_equal(attr.grh.dgid.raw[15], 99);
	assert_int_equal(attr.grh.traffic_class, 0x12);
	memset(&grh, 0, sizeof(grh));
	assert_int_equal(ibv_init_ah_from_wc(door_ctx(state), 1, &wc, &grh, &attr), -1);
}

static void ah_from_wc__without_grh(void **state)
{
	struct ibv_wc wc = { .slid = 12, .sl = 1, .dlid_path_bits = 3 };
	struct ibv_ah_attr attr;

	assert_int_equal(ibv_init_ah_from_wc(door_ctx(state), 1, &wc, NULL, &attr), 0);
	assert_int_equal(attr.is_global, 0);
	assert_int_equal(attr.dlid, 12);
	assert_int_equal(attr.src_path_bits, 3);
}

/* ---- calls that need no device --------------------------------------------------------------- */

static void enum_str__names(void **state)
{
	assert_string_equal(ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR), "remote access error");
	assert_string_equal(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR),
			    "transport retry counter exceeded");
	assert_string_equal(ibv_wc_status_str((enum ibv_wc_status) - 1), "unknown");
	assert_string_equal(ibv_wc_status_str((enum ibv_wc_status)1000), "unknown");
	assert_string_equal(ibv_event_type_str(IBV_EVENT_SRQ_LIMIT_REACHED), "SRQ limit reached");
	assert_string_equal(ibv_event_type_str((enum ibv_event_type)20), "unknown");
	assert_string_equal(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
	assert_string_equal(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
}

static void rate__both_ways(void **state)
{
	for (int rate = 2; rate <= IBV_RATE_1200_GBPS; rate++) {
		int mbps = ibv_rate_to_mbps(rate), mult = ibv_rate_to_mult(rate);

		assert_true(mbps > 0);
		assert_int_equal(mbps_to_ibv_rate(mbps), rate);
		if (mult != -1)
			assert_int_equal(mult_to_ibv_rate(mult), rate);
	}
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
	assert_int_equal(ibv_rate_to_mult(IBV_RATE_MAX), -1);
	assert_int_equal(ibv_rate_to_mbps(1), -1);
	assert_int_equal(mult_to_ibv_rate(-1), IBV_RATE_MAX);
	assert_int_equal(mult_to_ibv_rate(0), IBV_RATE_MAX);
	assert_int_equal(mbps_to_ibv_rate(2501), IBV_RATE_MAX);
}

static void fork__nothing_to_prepare(void **state)
{
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
const char *ibv_get_sysfs_path(void);

static void sysfs__reads_a_line(void **state)
{
	char dir[] = "/tmp/door_test_XXXXXX", path[64], text[16];
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/rate", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "25 Gb\n", 6), 6);
	close(fd);
	assert_int_equal(ibv_read_sysfs_file(dir, "rate", text, sizeof(text)), 5);
	assert_string_equal(text, "25 Gb");
	assert_int_equal(ibv_read_sysfs_file(dir, "rate", text, 2), 2);
	assert_int_equal(ibv_read_sysfs_file(dir, "none", text, sizeof(text)), -1);
	assert_int_equal(errno, ENOENT);
	unlink(path);
	rmdir(dir);
	assert_non_null(ibv_get_sysfs_path());
	assert_ptr_equal(ibv_get_sysfs_path(), ibv_get_sysfs_path());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_DOOR(test) cmocka_unit_test_setup_teardown(test, toy_door_open, toy_door_close)
		WITH_DOOR(device__names_and_guid),
		WITH_DOOR(device__same_pointer_in_every_list),
		WITH_DOOR(device__zeroes_behind_public_part),
		WITH_DOOR(device__open_null_is_einval),
		WITH_DOOR(context__serves_newer_clients),
		WITH_DOOR(context__absent_operations_decline),
		WITH_DOOR(context__cmd_fd_names_it_after_dup),
		WITH_DOOR(context__closed_before_its_objects),
		WITH_DOOR(query_device__converts),
		WITH_DOOR(query_device__other_sizes),
		WITH_DOOR(query_port__inline_and_export),
		WITH_DOOR(query_gid__empty_slot_is_zeroes),
		WITH_DOOR(query_gid_ex__errors),
		WITH_DOOR(query_gid_table__lists_valid_entries),
		WITH_DOOR(query_gid_type__private_numbers),
		WITH_DOOR(query_pkey__both_ways),
		WITH_DOOR(resolve_l2__what_the_gid_tells),
		WITH_DOOR(mr__addresses_and_keys),
		WITH_DOOR(mr__access_flags),
		WITH_DOOR(mr__errors_of_the_driver),
		WITH_DOOR(import__shares_objects_by_number),
		WITH_DOOR(import__destroyed_once),
		WITH_DOOR(import__gone_is_no_domain),
		WITH_DOOR(import__keeps_what_stands_on_it),
		WITH_DOOR(import__foreign_descriptor),
		WITH_DOOR(parent_domain__stands_on_its_pd),
		WITH_DOOR(ah__converts_the_route),
		WITH_DOOR(ah_from_wc__ipv6_header),
		WITH_DOOR(ah_from_wc__ipv4_header),
		WITH_DOOR(ah_from_wc__without_grh),
		cmocka_unit_test(enum_str__names),
		cmocka_unit_test(rate__both_ways),
		cmocka_unit_test(fork__nothing_to_prepare),
		cmocka_unit_test(sysfs__reads_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
