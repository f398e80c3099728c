/* newer.c: the public calls that rdma-core has added since release 44, whose headers the door is
 * built with: buffers, registration by attributes, a port's speed; the others return EOPNOTSUPP.
 * In: addresses and sizes of the application
 * Out: regions, memory
 * Runs: the application's threads
 * Locks: none
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "door.h"

struct ibv_dmah;

enum {
	MR_MASK_IOVA = 1 << 0,
	MR_MASK_ADDR = 1 << 1,
	MR_MASK_FD = 1 << 2,
	MR_MASK_FD_OFFSET = 1 << 3,
	MR_MASK_BUF = 1 << 5, /* the attributes end with buf */
	MR_MASK_KNOWN = MR_MASK_IOVA | MR_MASK_ADDR | MR_MASK_FD | MR_MASK_FD_OFFSET | MR_MASK_BUF,
};

/* The layout that ibv_reg_mr_ex's callers use. */
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct ibv_dmah *dmah;
	struct ibv_buf *buf; /* since rdma-core 65: read with MR_MASK_BUF only */
} OWNED_BY(the caller);
_Static_assert(offsetof(struct ibv_mr_init_attr, comp_mask) == 16 &&
		       offsetof(struct ibv_mr_init_attr, addr) == 32 &&
		       offsetof(struct ibv_mr_init_attr, dmah) == 56 &&
		       offsetof(struct ibv_mr_init_attr, buf) == 64,
	       "rdma-core 59, 65");

struct ibv_buf {
	struct ibv_pd *pd;
	void *addr;
	size_t length, mapped;
} FIXED;

AV_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
AV_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
AV_EXPORT void ibv_free_buf(struct ibv_buf *buf);
AV_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
					size_t length, int access);
AV_EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
AV_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);

/* ---- registration ---------------------------------------------------------------------------- */

static struct ibv_mr *newer_reg_fd(struct ibv_pd *pd, const struct ibv_mr_init_attr *attr)
{
	uint64_t offset = attr->comp_mask & MR_MASK_FD_OFFSET ? attr->fd_offset : 0;

	return ibv_reg_dmabuf_mr(pd, offset, attr->length,
				 attr->comp_mask & MR_MASK_IOVA ? attr->iova : offset, attr->fd,
				 attr->access);
}

/* The range lies in the buffer, which is of this domain. */
static bool newer_is_within(const struct ibv_pd *pd, const struct ibv_buf *buf, const void *addr,
			    size_t length)
{
	uintptr_t offset = (uintptr_t)addr - (uintptr_t)buf->addr;

	return pd == buf->pd && offset <= buf->length && length <= buf->length - offset;
}

/* Takes either an address, which may be one in a buffer, or a descriptor of a DMA buffer. */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	uint64_t mask = attr->comp_mask;
	bool by_addr = mask & MR_MASK_ADDR, by_fd = mask & MR_MASK_FD;

	if (by_addr == by_fd || (by_addr && (mask & MR_MASK_FD_OFFSET)) ||
	    (by_fd && (mask & MR_MASK_BUF)))
		return door_null(-EINVAL);
	if (mask & ~(uint64_t)MR_MASK_KNOWN)
		return door_null(-EOPNOTSUPP);
	if ((mask & MR_MASK_BUF) &&
	    (!attr->buf || !newer_is_within(pd, attr->buf, attr->addr, attr->length)))
		return door_null(-EINVAL);
	if (by_fd)
		return newer_reg_fd(pd, attr);
	return ibv_reg_mr_iova2(pd, attr->addr, attr->length,
				mask & MR_MASK_IOVA ? attr->iova : (uintptr_t)attr->addr,
				(unsigned int)attr->access);
}

/* ---- buffers: plain memory, since no device here needs another kind --------------------------
 *  */

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ibv_buf *buf;

	if (!size || size > SIZE_MAX - page)
		return door_null(-EINVAL);
	buf = malloc(sizeof(*buf));
	if (!buf)
		return door_null(-ENOMEM);
	*buf = (struct ibv_buf){ .pd = pd,
				 .length = size,
				 .mapped = (size + page - 1) / page * page };
	buf->addr = mmap(NULL, buf->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	if (buf->addr == MAP_FAILED) {
		free(buf);
		return door_null(-ENOMEM);
	}
	*out = buf;
	return buf->addr;
}

void ibv_free_buf(struct ibv_buf *buf)
{
	if (!buf)
		return;
	munmap(buf->addr, buf->mapped);
	free(buf);
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access)
{
	if (!newer_is_within(pd, buf, addr, length))
		return door_null(-EINVAL);
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

/* No buffer here is a DMA buffer, so none has a descriptor. */
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	return door_minus_one(buf ? -ENODATA : -EINVAL);
}

/* ---- a port's speed -------------------------------------------------------------------------- */

static unsigned int port_lanes(uint8_t width)
{
	switch (width) {
	case 1:
		return 1;
	case 2:
		return 4;
	case 4:
		return 8;
	case 8:
		return 12;
	case 16:
		return 2;
	default:
		return 0;
	}
}

/* Of one lane, in 100 Mbit/s. */
static unsigned int port_lane_speed(uint8_t speed)
{
	switch (speed) {
	case 1:
		return 25;
	case 2:
		return 50;
	case 4:
	case 8:
		return 100;
	case 16:
		return 140;
	case 32:
		return 250;
	case 64:
		return 500;
	case 128:
		return 1000;
	default:
		return 0;
	}
}

/* In 100 Mbit/s. 0 or an errno value. */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct ibv_port_attr attr;
	int error = port > UINT8_MAX ? EINVAL :
				       query_port(context, (uint8_t)port, &attr, sizeof(attr));
	unsigned int lanes, lane_speed;

	if (error)
		return error;
	lanes = port_lanes(attr.active_width);
	lane_speed = port_lane_speed(attr.active_speed);
	if (!lanes || !lane_speed)
		return EOPNOTSUPP;
	*speed = (uint64_t)lanes * lane_speed;
	return 0;
}

/* ---- what no device here has: hints for DMA, descriptors of device memory -------------------- */

#define DECLINE_POINTER(name)                                                                      \
	AV_EXPORT void *name(void);                                                                \
	void *name(void)                                                                           \
	{                                                                                          \
		return door_null(-EOPNOTSUPP);                                                     \
	}
#define DECLINE_DESCRIPTOR(name)                                                                   \
	AV_EXPORT int name(void);                                                                  \
	int name(void)                                                                             \
	{                                                                                          \
		return door_minus_one(-EOPNOTSUPP);                                                \
	}
#define DECLINE(name)                                                                              \
	AV_EXPORT int name(void);                                                                  \
	int name(void)                                                                             \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}

DECLINE_POINTER(ibv_alloc_dmah)
DECLINE(ibv_dealloc_dmah)
DECLINE_DESCRIPTOR(ibv_dm_export_dmabuf_fd)
