/* uverbs.c: what the doors ask of a device beyond ib_*, for drivers that do not answer it
 * themselves.
 * In: doors    Out: the driver's ib_* methods, channels
 * Runs: the caller; completions on the driver's thread
 * Locks: none of its own
 */
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_cache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/convert.h"
#include "core/core_priv.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { POLL_BATCH = 16 };

static int generic_post_send(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ib_send_wr one;
		int err = ib_convert_ibv_send_wr(qp, wr, &one);

		if (!err)
			err = ib_post_send(qp, &one, NULL);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

static int generic_check_send(struct ib_qp *qp, const struct ibv_send_wr *wr)
{
	return 0;
}

/* On the SRQ, or, without one, on the queue pair. */
static int generic_post_recvs(struct ib_qp *qp, struct ib_srq *srq, struct ibv_recv_wr *wr,
			      struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ib_recv_wr one;

		ib_convert_ibv_recv_wr(wr, &one);
		int err = srq ? ib_post_srq_recv(srq, &one, NULL) : ib_post_recv(qp, &one, NULL);

		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

static int generic_post_recv(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return generic_post_recvs(qp, NULL, wr, bad);
}

static int generic_post_srq_recv(struct ib_srq *srq, struct ibv_recv_wr *wr,
				 struct ibv_recv_wr **bad)
{
	return generic_post_recvs(NULL, srq, wr, bad);
}

static int generic_poll_cq(struct ib_cq *cq, int n, struct ibv_wc *wc)
{
	struct ib_wc batch[POLL_BATCH];
	int taken = 0;

	while (taken < n) {
		int want = MIN(n - taken, (int)POLL_BATCH);
		int got = ib_poll_cq(cq, want, batch);

		if (got < 0)
			return taken ? taken : got;
		for (int i = 0; i < got; i++)
			ib_convert_ib_wc(&batch[i], &wc[taken + i]);
		taken += got;
		if (got < want)
			break;
	}
	return taken;
}

static int generic_poll_cq_ex(struct ib_cq *cq, int n, struct ibv_wc *wc, struct ib_wc_side *side)
{
	struct ib_wc batch[POLL_BATCH];
	int taken = 0;

	while (taken < n) {
		int want = MIN(n - taken, (int)POLL_BATCH);
		int got = ib_poll_cq_ex(cq, want, batch, &side[taken]);

		if (got < 0)
			return taken ? taken : got;
		for (int i = 0; i < got; i++)
			ib_convert_ib_wc(&batch[i], &wc[taken + i]);
		taken += got;
		if (got < want)
			break;
	}
	return taken;
}

/* ---- completion channels --------------------------------------------------------------------- */

/* The driver's completion handler, made for a CQ whose events go to a channel. */
static void generic_cq_event(struct ib_cq *cq, void *cq_context)
{
	channel_post(cq->uverbs_priv);
}

static struct ib_cq *generic_create_cq(struct ib_device *dev, const struct ib_uverbs_cq_attr *attr)
{
	struct channel *ch = attr->channel;
	struct channel_source *source = ch ? calloc(1, sizeof(*source)) : NULL;
	struct ib_cq *cq;
	int err = ch && !source ? -ENOMEM : 0;

	if (attr->memory)
		err = -EOPNOTSUPP;
	if (!err && source)
		err = channel_source_add(source, ch, attr->cookie);
	if (err)
		goto free_source;
	cq = extended_create_cq(dev, &attr->cq);
	if (IS_ERR(cq)) {
		err = (int)PTR_ERR(cq);
		goto leave_channel;
	}
	cq->device = dev;
	cq->uverbs_priv = source;
	cq->comp_handler = source ? generic_cq_event : NULL;
	return cq;
leave_channel:
	uverbs_cq_gone(source);
	return ERR_PTR(err);
free_source:
	free(source);
	return ERR_PTR(err);
}

void uverbs_cq_hold(void *uverbs_priv)
{
	if (uverbs_priv)
		channel_source_hold(uverbs_priv);
}

void uverbs_cq_release(void *uverbs_priv)
{
	if (uverbs_priv)
		channel_source_release(uverbs_priv);
}

void uverbs_cq_gone(void *uverbs_priv)
{
	if (uverbs_priv)
		channel_source_remove(uverbs_priv);
	free(uverbs_priv);
}

static void generic_ack_cq_events(struct ib_cq *cq, u32 events)
{
	if (cq->uverbs_priv)
		channel_ack(cq->uverbs_priv, events);
}

static int generic_wait_fd(struct ib_device *dev, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	int ready = poll(&p, 1, flags & O_NONBLOCK ? 0 : -1);

	if (ready < 0)
		return -errno;
	return ready ? 0 : -EAGAIN;
}

/* ---- the user's memory ----------------------------------------------------------------------- */

/* Whether every page of the range is mapped, however. */
static int memory_is_mapped(u64 first, u64 end, u64 page)
{
	unsigned char resident[1024];

	for (u64 step = sizeof(resident) * page; first < end; first += MIN(step, end - first))
		if (mincore((void *)first, MIN(step, end - first), resident))
			return errno == ENOMEM ? -EFAULT : -errno;
	return 0;
}

/* Faults the pages in, which also shows that they are there and may be read or written. */
static int memory_check(u64 start, u64 length, bool write)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	u64 first = start & ~(page - 1);
	u64 end = (start + length + page - 1) & ~(page - 1);
	int how = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	if (length == 0)
		return 0;
	if (madvise((void *)first, end - first, how) == 0)
		return 0;
	if (errno != EINVAL)
		return errno == ENOMEM || errno == EFAULT ? -EFAULT : -errno;
	/* Not permitted that way, or a kernel before 5.14. */
	if (write && madvise((void *)first, end - first, MADV_POPULATE_READ) == 0)
		return -EFAULT;
	return memory_is_mapped(first, end, page);
}

static struct ib_mr *generic_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova,
					 int access)
{
	struct ib_phys_buf buffer = { .addr = start, .size = length };
	u64 named = iova;
	struct ib_mr *mr;
	int err;

	if (!pd->device->reg_phys_mr)
		return ERR_PTR(-EOPNOTSUPP);
	err = memory_check(start, length, access & IB_ACCESS_LOCAL_WRITE);
	if (err)
		return ERR_PTR(err);
	mr = pd->device->reg_phys_mr(pd, &buffer, 1, access, &named);
	if (!IS_ERR(mr) && named != iova) {
		pd->device->dereg_mr(mr); /* the user's addresses would mean something else */
		return ERR_PTR(-EINVAL);
	}
	return mr;
}

/* ---- information ----------------------------------------------------------------------------- */

static int generic_get_info(struct ib_device *dev, struct ib_uverbs_info *out)
{
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", dev->name);
	snprintf(out->dev_name, sizeof(out->dev_name), "%s", dev->name);
	out->node_guid = dev->node_guid;
	out->abi_version = 1;
	return 0;
}

static bool gid_is_empty(const union ib_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

static int generic_query_gid_entry(struct ib_device *dev, u32 port, u32 index,
				   struct ibv_gid_entry *out)
{
	union ib_gid gid;
	int err = ib_get_cached_gid(dev, (u8)port, (int)index, &gid);

	if (err)
		return err;
	if (gid_is_empty(&gid))
		return -ENODATA;
	memcpy(out->gid.raw, gid.raw, sizeof(gid.raw));
	out->gid_index = index;
	out->port_num = port;
	out->gid_type = rdma_port_get_link_layer(dev, (u8)port) == IB_LINK_LAYER_ETHERNET ?
				IBV_GID_TYPE_ROCE_V2 :
				IBV_GID_TYPE_IB;
	out->ndev_ifindex = 0;
	return 0;
}

int ib_uverbs_get_info(struct ib_device *dev, struct ib_uverbs_info *out)
{
	return DRIVER_CALL(dev->uverbs->get_info(dev, out));
}

int ib_uverbs_query_gid_entry(struct ib_device *dev, u32 port, u32 index, struct ibv_gid_entry *out)
{
	union ib_gid gid;

	if (port > 255 || index > INT32_MAX)
		return -EINVAL;
	/* Also tells whether the port and the index exist. */
	int err = ib_get_cached_gid(dev, (u8)port, (int)index, &gid);

	return err ? err : DRIVER_CALL(dev->uverbs->query_gid_entry(dev, port, index, out));
}

static __thread bool uverbs_asks_nobody;

bool ib_uverbs_ask_neighbours(bool asks)
{
	bool before = !uverbs_asks_nobody;

	uverbs_asks_nobody = !asks;
	return before;
}

int ib_uverbs_find_neighbour(struct ib_device *dev, const struct ib_ah_attr *attr)
{
	if (uverbs_asks_nobody || !dev->uverbs->find_neighbour)
		return 0;
	return DRIVER_CALL(dev->uverbs->find_neighbour(dev, attr));
}

int ib_uverbs_set_rate(struct ib_qp *qp, const struct ib_uverbs_rate *rate)
{
	const struct ib_uverbs_ops *ops = qp->device->uverbs;

	return ops->set_rate ? DRIVER_CALL(ops->set_rate(qp, rate)) : -EOPNOTSUPP;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct ib_uverbs_ops generic_ops = {
	.post_send = generic_post_send,
	.check_send = generic_check_send,
	.post_recv = generic_post_recv,
	.post_srq_recv = generic_post_srq_recv,
	.poll_cq = generic_poll_cq,
	.poll_cq_ex = generic_poll_cq_ex,
	.create_cq = generic_create_cq,
	.ack_cq_events = generic_ack_cq_events,
	.reg_user_mr = generic_reg_user_mr,
	.wait_fd = generic_wait_fd,
	.get_info = generic_get_info,
	.query_gid_entry = generic_query_gid_entry,
};

#define KEEP_OR_FILL(method)                                                                       \
	do {                                                                                       \
		if (!ops->method)                                                                  \
			ops->method = generic_ops.method;                                          \
	} while (0)

/* Posts that the driver takes in libibverbs' layout only. */
static void fill_ib_posts(struct ib_device_core *core, const struct ib_uverbs_ops *own)
{
	struct ib_device *device = core->device;

	core->filled_post_send = !device->post_send && own->post_send;
	core->filled_post_recv = !device->post_recv && own->post_recv;
	core->filled_post_srq_recv = !device->post_srq_recv && own->post_srq_recv;
	if (core->filled_post_send)
		device->post_send = ib_convert_post_send;
	if (core->filled_post_recv)
		device->post_recv = ib_convert_post_recv;
	if (core->filled_post_srq_recv)
		device->post_srq_recv = ib_convert_post_srq_recv;
}

void uverbs_detach(struct ib_device_core *core)
{
	struct ib_device *device = core->device;

	if (device->uverbs == &core->uverbs)
		device->uverbs = core->own_uverbs;
	if (device->post_send == ib_convert_post_send && core->filled_post_send)
		device->post_send = NULL;
	if (device->post_recv == ib_convert_post_recv && core->filled_post_recv)
		device->post_recv = NULL;
	if (device->post_srq_recv == ib_convert_post_srq_recv && core->filled_post_srq_recv)
		device->post_srq_recv = NULL;
}

void uverbs_attach(struct ib_device_core *core)
{
	struct ib_uverbs_ops *ops = &core->uverbs;

	uverbs_detach(core);
	core->own_uverbs = core->device->uverbs;
	*ops = core->own_uverbs ? *core->own_uverbs : generic_ops;
	fill_ib_posts(core, core->own_uverbs ? core->own_uverbs : &(struct ib_uverbs_ops){ 0 });
	KEEP_OR_FILL(post_send);
	KEEP_OR_FILL(check_send);
	KEEP_OR_FILL(post_recv);
	KEEP_OR_FILL(post_srq_recv);
	/* A driver may post to all of its queue pairs alike. */
	if (!ops->post_raw_send)
		ops->post_raw_send = ops->post_send;
	if (!ops->check_raw_send)
		ops->check_raw_send = ops->check_send;
	if (!ops->post_raw_recv)
		ops->post_raw_recv = ops->post_recv;
	KEEP_OR_FILL(poll_cq);
	KEEP_OR_FILL(poll_cq_ex);
	KEEP_OR_FILL(create_cq);
	KEEP_OR_FILL(ack_cq_events);
	KEEP_OR_FILL(reg_user_mr);
	KEEP_OR_FILL(wait_fd);
	KEEP_OR_FILL(get_info);
	KEEP_OR_FILL(query_gid_entry);
	core->device->uverbs = ops;
}
