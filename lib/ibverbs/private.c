/* private.c: the symbols of the private nodes IBVERBS_PRIVATE_*, which hardware providers link
 * with.
 *
 * perftest, UCX, libfabric and pyverbs pull libmlx5 or libefa in, and those bind every one of these
 * at load, in the node of their release of rdma-core. Devices here need no provider, so
 * registration does nothing, and each command to a kernel driver fails. Nothing here prints. Runs:
 * constructors of providers, and any thread      Locks: none
 */
#include "door.h"

struct verbs_device_ops;
struct verbs_context_ops;
struct verbs_sysfs_dev;
struct ibv_command_buffer;

/* One function under one name in several nodes. The assembler wants a symbol for each. */
#define NODE_FIRST(name, node) __asm__(".symver " #name "," #name "@@@IBVERBS_PRIVATE_" #node)
#define NODE_ALSO(name, node)                                                                      \
	extern __typeof(name) name##_in_##node                                                     \
		__attribute__((alias(#name), visibility("default")));                              \
	__asm__(".symver " #name "_in_" #node "," #name "@IBVERBS_PRIVATE_" #node)
/* The nodes of a name, by the release that brought it. */
#define SINCE_65(name) NODE_FIRST(name, 65)
#define SINCE_64(name)                                                                             \
	NODE_ALSO(name, 65);                                                                       \
	NODE_FIRST(name, 64)
#define SINCE_62(name)                                                                             \
	NODE_ALSO(name, 65);                                                                       \
	NODE_ALSO(name, 64);                                                                       \
	NODE_FIRST(name, 59)
#define SINCE_34(name)                                                                             \
	NODE_ALSO(name, 65);                                                                       \
	NODE_ALSO(name, 64);                                                                       \
	NODE_ALSO(name, 59);                                                                       \
	NODE_ALSO(name, 57);                                                                       \
	NODE_FIRST(name, 34)

/* The kernel's RoCE types as sysfs numbers them; IB and RoCE v1 are one. */
enum ibv_gid_type_sysfs { IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2 };

AV_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				 enum ibv_gid_type_sysfs *type);
AV_EXPORT void verbs_register_driver_34(const struct verbs_device_ops *ops);
AV_EXPORT void private_register_driver(const char *name, void *init);
AV_EXPORT void __verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...);
AV_EXPORT void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
					      struct verbs_context *offset, uint32_t driver_id);
AV_EXPORT void verbs_uninit_context(struct verbs_context *ctx);
AV_EXPORT void verbs_set_ops(struct verbs_context *ctx, const struct verbs_context_ops *ops);
AV_EXPORT void verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context,
			     struct ibv_comp_channel *channel, void *cq_context);
AV_EXPORT struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);
AV_EXPORT int ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct verbs_sysfs_dev *dev,
					const char *fmt, ...);
AV_EXPORT unsigned int __ioctl_final_num_attrs(unsigned int count, struct ibv_command_buffer *link);
#ifdef __clang__ /* its AddressSanitizer would define a second symbol of the name */
#define NO_ASAN __attribute__((no_sanitize("address")))
#else
#define NO_ASAN
#endif
AV_EXPORT extern bool verbs_allow_disassociate_destroy;

NO_ASAN bool verbs_allow_disassociate_destroy;
SINCE_34(verbs_allow_disassociate_destroy);

/* The one private call that programs use themselves (perftest). 0, or -1 and errno. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
		       enum ibv_gid_type_sysfs *type)
{
	struct ibv_gid_entry entry;
	int error = ib_uverbs_query_gid_entry(door_context(context)->ib, port, index, &entry);

	if (error && error != -ENODATA)
		return door_minus_one(error);
	*type = !error && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_GID_TYPE_SYSFS_ROCE_V2
								 : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}
SINCE_34(ibv_query_gid_type);

void verbs_register_driver_34(const struct verbs_device_ops *ops)
{
}

/* Each release's node has one under its own number. */
#define REGISTER_DRIVER(node)                                                                      \
	AV_EXPORT void verbs_register_driver_##node(const struct verbs_device_ops *ops);           \
	void verbs_register_driver_##node(const struct verbs_device_ops *ops)                      \
	{                                                                                          \
	}

REGISTER_DRIVER(57)
REGISTER_DRIVER(59)
REGISTER_DRIVER(64)
REGISTER_DRIVER(65)

/* Called by providers of 2006. */
void private_register_driver(const char *name, void *init)
{
}
DOOR_COMPAT(private_register_driver, ibv_register_driver, "IBVERBS_1.1");

void __verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...)
{
}
SINCE_34(__verbs_log);

void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
				    struct verbs_context *offset, uint32_t driver_id)
{
	return door_null(-EOPNOTSUPP);
}
SINCE_34(_verbs_init_and_alloc_context);

void verbs_uninit_context(struct verbs_context *ctx)
{
}
SINCE_34(verbs_uninit_context);

void verbs_set_ops(struct verbs_context *ctx, const struct verbs_context_ops *ops)
{
}
SINCE_34(verbs_set_ops);

void verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context, struct ibv_comp_channel *channel,
		   void *cq_context)
{
}
SINCE_34(verbs_init_cq);

struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data)
{
	return door_null(-EOPNOTSUPP);
}
SINCE_34(verbs_open_device);

int ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct verbs_sysfs_dev *dev, const char *fmt,
			      ...)
{
	return door_minus_one(-EOPNOTSUPP);
}
SINCE_34(ibv_read_ibdev_sysfs_file);

unsigned int __ioctl_final_num_attrs(unsigned int count, struct ibv_command_buffer *link)
{
	return count;
}
SINCE_34(__ioctl_final_num_attrs);

/* Commands to a kernel driver. Their arguments differ and are ignored. */
#define DECLINE_BODY(name)                                                                         \
	AV_EXPORT int name(void);                                                                  \
	int name(void)                                                                             \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}
#define DECLINE(name)                                                                              \
	DECLINE_BODY(name)                                                                         \
	SINCE_34(name);
#define DECLINE_SINCE(since, name)                                                                 \
	DECLINE_BODY(name)                                                                         \
	since(name);

DECLINE(execute_ioctl)
DECLINE(ibv_cmd_advise_mr)
DECLINE(ibv_cmd_alloc_dm)
DECLINE(ibv_cmd_alloc_mw)
DECLINE(ibv_cmd_alloc_pd)
DECLINE(ibv_cmd_attach_mcast)
DECLINE(ibv_cmd_close_xrcd)
DECLINE(ibv_cmd_create_ah)
DECLINE(ibv_cmd_create_counters)
DECLINE(ibv_cmd_create_cq)
DECLINE(ibv_cmd_create_cq_ex)
DECLINE(ibv_cmd_create_cq_ex2)
DECLINE(ibv_cmd_create_flow)
DECLINE(ibv_cmd_create_flow_action_esp)
DECLINE(ibv_cmd_create_qp)
DECLINE(ibv_cmd_create_qp_ex)
DECLINE(ibv_cmd_create_qp_ex2)
DECLINE(ibv_cmd_create_rwq_ind_table)
DECLINE(ibv_cmd_create_srq)
DECLINE(ibv_cmd_create_srq_ex)
DECLINE(ibv_cmd_create_wq)
DECLINE(ibv_cmd_dealloc_mw)
DECLINE(ibv_cmd_dealloc_pd)
DECLINE(ibv_cmd_dereg_mr)
DECLINE(ibv_cmd_destroy_ah)
DECLINE(ibv_cmd_destroy_counters)
DECLINE(ibv_cmd_destroy_cq)
DECLINE(ibv_cmd_destroy_flow)
DECLINE(ibv_cmd_destroy_flow_action)
DECLINE(ibv_cmd_destroy_qp)
DECLINE(ibv_cmd_destroy_rwq_ind_table)
DECLINE(ibv_cmd_destroy_srq)
DECLINE(ibv_cmd_destroy_wq)
DECLINE(ibv_cmd_detach_mcast)
DECLINE(ibv_cmd_free_dm)
DECLINE(ibv_cmd_get_context)
DECLINE(ibv_cmd_modify_cq)
DECLINE(ibv_cmd_modify_flow_action_esp)
DECLINE(ibv_cmd_modify_qp)
DECLINE(ibv_cmd_modify_qp_ex)
DECLINE(ibv_cmd_modify_srq)
DECLINE(ibv_cmd_modify_wq)
DECLINE(ibv_cmd_open_qp)
DECLINE(ibv_cmd_open_xrcd)
DECLINE(ibv_cmd_post_recv)
DECLINE(ibv_cmd_post_send)
DECLINE(ibv_cmd_post_srq_recv)
DECLINE(ibv_cmd_query_context)
DECLINE(ibv_cmd_query_device_any)
DECLINE(ibv_cmd_query_mr)
DECLINE(ibv_cmd_query_port)
DECLINE(ibv_cmd_query_qp)
DECLINE(ibv_cmd_query_srq)
DECLINE(ibv_cmd_read_counters)
DECLINE(ibv_cmd_reg_dm_mr)
DECLINE(ibv_cmd_reg_dmabuf_mr)
DECLINE(ibv_cmd_reg_mr)
DECLINE(ibv_cmd_req_notify_cq)
DECLINE(ibv_cmd_rereg_mr)
DECLINE(ibv_cmd_resize_cq)
DECLINE_SINCE(SINCE_62, ibv_cmd_alloc_dmah)
DECLINE_SINCE(SINCE_62, ibv_cmd_export_dmabuf_fd)
DECLINE_SINCE(SINCE_62, ibv_cmd_free_dmah)
DECLINE_SINCE(SINCE_62, ibv_cmd_query_port_speed)
DECLINE_SINCE(SINCE_62, ibv_cmd_reg_mr_ex)
DECLINE_SINCE(SINCE_64, ibv_dmabuf_heap_cc_shared_init)
DECLINE_SINCE(SINCE_64, ibv_dmabuf_heap_destroy)
DECLINE_SINCE(SINCE_64, ibv_dmabuf_heap_free)
DECLINE_SINCE(SINCE_65, ibv_cmd_create_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_destroy_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_inc_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_inc_err_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_qp_attach_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_query_comp_cntr_caps)
DECLINE_SINCE(SINCE_65, ibv_cmd_read_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_read_err_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_set_comp_cntr)
DECLINE_SINCE(SINCE_65, ibv_cmd_set_err_comp_cntr)

AV_EXPORT int ibv_cmd_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
AV_EXPORT void *ibv_dmabuf_heap_alloc(void);
AV_EXPORT const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

/* The only one whose result is a count. */
int ibv_cmd_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return -EOPNOTSUPP;
}
SINCE_34(ibv_cmd_poll_cq);

/* The only one whose result is memory. */
void *ibv_dmabuf_heap_alloc(void)
{
	return door_null(-EOPNOTSUPP);
}
SINCE_64(ibv_dmabuf_heap_alloc);

const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "IBV_WR_RDMA_WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "IBV_WR_RDMA_WRITE_WITH_IMM",
		[IBV_WR_SEND] = "IBV_WR_SEND",
		[IBV_WR_SEND_WITH_IMM] = "IBV_WR_SEND_WITH_IMM",
		[IBV_WR_RDMA_READ] = "IBV_WR_RDMA_READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "IBV_WR_ATOMIC_CMP_AND_SWP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "IBV_WR_ATOMIC_FETCH_AND_ADD",
		[IBV_WR_LOCAL_INV] = "IBV_WR_LOCAL_INV",
		[IBV_WR_BIND_MW] = "IBV_WR_BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "IBV_WR_SEND_WITH_INV",
		[IBV_WR_TSO] = "IBV_WR_TSO",
	};

	return (unsigned int)opcode < ARRAY_LEN(names) && names[opcode] ? names[opcode] : "unknown";
}
SINCE_34(ibv_wr_opcode_str);
