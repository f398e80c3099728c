/* toy.c: see toy.h. In: the door's calls      Out: toy_seen, completions      Runs: the test's
 * threads
 * Locks: toy_lock (the completions)
 */
#include "toy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOY_LEAVES_S = 5 };

struct toy_seen toy_seen;

static struct lock toy_lock;

struct toy_cq {
	struct ib_cq ib;
	struct ibv_wc ring[TOY_MAX_CQE];
	u32 head, tail; /* toy_lock */
	bool armed;
	struct channel_source source;
};

struct toy_qp {
	struct ib_qp ib;
	struct ib_qp_attr attr;
	struct ib_qp_cap cap;
};

struct toy_srq {
	struct ib_srq ib;
	struct ib_srq_attr attr;
};

static int toy_failure(void)
{
	int error = toy_seen.fail;

	toy_seen.fail = 0;
	return error;
}

static void *toy_object(size_t size)
{
	int error = toy_failure();
	void *object = error ? NULL : calloc(1, size);

	return error ? ERR_PTR(error) : object ? object : ERR_PTR(-ENOMEM);
}

static int toy_query_device(struct ib_device *device, struct ib_device_attr *attr)
{
	*attr = (struct ib_device_attr){
		.fw_ver = (7ull << 32) | (8 << 16) | 9,
		.vendor_id = 0x1234,
		.max_qp = 100,
		.max_qp_wr = TOY_MAX_WR,
		.max_sge = TOY_MAX_SGE,
		.max_cqe = TOY_MAX_CQE,
		.atomic_cap = IB_ATOMIC_HCA,
		.device_cap_flags = IB_DEVICE_RC_RNR_NAK_GEN,
		.max_pkeys = 2,
	};
	return 0;
}

static int toy_query_port(struct ib_device *device, u8 port, struct ib_port_attr *attr)
{
	if (port != 1)
		return -EINVAL;
	*attr = (struct ib_port_attr){
		.state = IB_PORT_ACTIVE,
		.max_mtu = IB_MTU_4096,
		.active_mtu = IB_MTU_1024,
		.gid_tbl_len = TOY_GIDS,
		.pkey_tbl_len = 2,
		.max_msg_sz = 1u << 31,
		.active_width = IB_WIDTH_4X,
		.active_speed = 32,
		.phys_state = 5,
		.link_layer = IB_LINK_LAYER_ETHERNET,
	};
	return 0;
}

/* 0: link-local of 02:11:22:33:44:55; 1: 10.0.0.7; 2: empty; 3: group-like global address. */
static int toy_query_gid(struct ib_device *device, u8 port, int index, union ib_gid *gid)
{
	static const u8 gids[TOY_GIDS][16] = {
		{ 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55 },
		{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7 },
		{ 0 },
		{ 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
	};

	if (port != 1 || index < 0 || index >= TOY_GIDS)
		return -EINVAL;
	memcpy(gid->raw, gids[index], sizeof(gid->raw));
	return 0;
}

static int toy_query_pkey(struct ib_device *device, u8 port, u16 index, u16 *pkey)
{
	if (port != 1 || index > 1)
		return -EINVAL;
	*pkey = index ? 0x8001 : 0xffff;
	return 0;
}

static struct ib_pd *toy_alloc_pd(struct ib_device *device)
{
	return toy_object(sizeof(struct ib_pd));
}

static int toy_dealloc_pd(struct ib_pd *pd)
{
	free(pd);
	return 0;
}

static struct ib_ah *toy_create_ah(struct ib_pd *pd, struct ib_ah_attr *attr)
{
	toy_seen.ah = *attr;
	return toy_object(sizeof(struct ib_ah));
}

static int toy_destroy_ah(struct ib_ah *ah)
{
	free(ah);
	return 0;
}

static struct ib_srq *toy_create_srq(struct ib_pd *pd, struct ib_srq_init_attr *init)
{
	struct toy_srq *srq = toy_object(sizeof(*srq));

	if (IS_ERR(srq))
		return (struct ib_srq *)srq;
	init->attr.max_wr += 1;
	srq->attr = init->attr;
	toy_seen.srq = &srq->ib;
	return &srq->ib;
}

static int toy_modify_srq(struct ib_srq *srq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask)
{
	if (mask & IB_SRQ_LIMIT)
		((struct toy_srq *)srq)->attr.srq_limit = attr->srq_limit;
	return toy_failure();
}

static int toy_query_srq(struct ib_srq *srq, struct ib_srq_attr *attr)
{
	*attr = ((struct toy_srq *)srq)->attr;
	return 0;
}

static int toy_destroy_srq(struct ib_srq *srq)
{
	free(srq);
	return 0;
}

static struct ib_qp *toy_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *init)
{
	struct toy_qp *qp;

	/* the midlayer leaves it to the driver which types it has */
	if (init->qp_type == IB_QPT_RAW_PACKET)
		return ERR_PTR(-EOPNOTSUPP);
	qp = toy_object(sizeof(*qp));
	if (IS_ERR(qp))
		return (struct ib_qp *)qp;
	init->cap.max_send_wr = TOY_MAX_WR;
	init->cap.max_send_sge = TOY_MAX_SGE;
	init->cap.max_inline_data = TOY_MAX_INLINE;
	qp->cap = init->cap;
	qp->ib.qp_num = 0x4711;
	toy_seen.qp = &qp->ib;
	return &qp->ib;
}

static int toy_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask)
{
	int error = toy_failure();

	if (error)
		return error;
	toy_seen.modify = ((struct toy_qp *)qp)->attr = *attr;
	toy_seen.modify_mask = mask;
	return 0;
}

static int toy_query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			struct ib_qp_init_attr *init)
{
	*attr = ((struct toy_qp *)qp)->attr;
	init->cap = ((struct toy_qp *)qp)->cap;
	return toy_failure();
}

static int toy_destroy_qp(struct ib_qp *qp)
{
	free(qp);
	return 0;
}

static int toy_destroy_cq(struct ib_cq *ib)
{
	struct toy_cq *cq = (struct toy_cq *)ib;

	channel_source_remove(&cq->source);
	free(cq);
	return 0;
}

static struct ib_cq *toy_create_cq(struct ib_device *dev, const struct ib_uverbs_cq_attr *attr)
{
	struct toy_cq *cq;

	if (attr->cq.flags)
		return ERR_PTR(-EOPNOTSUPP);
	if (attr->cq.cqe > TOY_MAX_CQE)
		return ERR_PTR(-EINVAL);
	cq = toy_object(sizeof(*cq));
	if (IS_ERR(cq))
		return (struct ib_cq *)cq;
	channel_source_add(&cq->source, attr->channel, attr->cookie);
	cq->ib.cqe = TOY_MAX_CQE - 1;
	toy_seen.cq = &cq->ib;
	return &cq->ib;
}

static struct ib_cq *toy_create_ib_cq(struct ib_device *dev, int cqe, int vector)
{
	const struct ib_uverbs_cq_attr attr = { .cq.cqe = cqe, .cq.comp_vector = vector };

	return toy_create_cq(dev, &attr);
}

static void toy_ack(struct ib_cq *cq, u32 events)
{
	channel_ack(&((struct toy_cq *)cq)->source, events);
}

static int toy_resize_cq(struct ib_cq *cq, int cqe)
{
	if (cqe > TOY_MAX_CQE)
		return -EINVAL;
	cq->cqe = cqe;
	return 0;
}

static int toy_poll_ib_cq(struct ib_cq *cq, int n, struct ib_wc *wc)
{
	return 0;
}

static int toy_poll_cq(struct ib_cq *ib, int n, struct ibv_wc *wc)
{
	struct toy_cq *cq = (struct toy_cq *)ib;
	int got = 0;

	lock_acquire(&toy_lock);
	while (got < n && cq->tail != cq->head)
		wc[got++] = cq->ring[cq->tail++ % TOY_MAX_CQE];
	lock_release(&toy_lock);
	return got;
}

static int toy_req_notify(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	lock_acquire(&toy_lock);
	((struct toy_cq *)cq)->armed = true;
	lock_release(&toy_lock);
	return 0;
}

void toy_complete(struct ib_cq *ib, const struct ibv_wc *wc)
{
	struct toy_cq *cq = (struct toy_cq *)ib;
	bool fire;

	lock_acquire(&toy_lock);
	cq->ring[cq->head++ % TOY_MAX_CQE] = *wc;
	fire = cq->armed;
	cq->armed = false;
	lock_release(&toy_lock);
	if (fire)
		channel_post(&cq->source);
}

static void toy_take_send(struct ib_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_wc wc = { .wr_id = wr->wr_id, .opcode = IBV_WC_SEND, .qp_num = qp->qp_num };

	if (qp->qp_type == IB_QPT_UD)
		toy_seen.send_ah = container_of(wr->wr.ud.ah, struct ib_uverbs_ah, ibv)->ah;
	if ((wr->send_flags & IBV_SEND_INLINE) && wr->num_sge)
		memcpy(toy_seen.last_inline, (void *)(uintptr_t)wr->sg_list->addr,
		       MIN(wr->sg_list->length, sizeof(toy_seen.last_inline)));
	toy_complete(qp->send_cq, &wc);
}

static int toy_post_send(struct ib_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int error = toy_failure();

	if (error) {
		*bad = wr;
		return error;
	}
	toy_seen.send = wr;
	for (toy_seen.chain = 0; wr; wr = wr->next, toy_seen.chain++)
		toy_take_send(qp, wr);
	return 0;
}

static int toy_post_recv(struct ib_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = toy_failure();

	toy_seen.recv = wr;
	if (error)
		*bad = wr;
	return error;
}

static int toy_post_srq_recv(struct ib_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = toy_failure();

	toy_seen.srq_recv = wr;
	if (error)
		*bad = wr;
	return error;
}

static struct ib_mr *toy_get_dma_mr(struct ib_pd *pd, int access)
{
	return toy_object(sizeof(struct ib_mr));
}

static struct ib_mr *toy_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	struct ib_mr *mr = toy_object(sizeof(*mr));

	if (IS_ERR(mr))
		return mr;
	toy_seen.mr_start = start;
	toy_seen.mr_length = length;
	toy_seen.mr_iova = iova;
	toy_seen.mr_access = access;
	mr->lkey = 0x1000;
	mr->rkey = 0x2000;
	return mr;
}

static int toy_dereg_mr(struct ib_mr *mr)
{
	int error = toy_failure();

	if (!error)
		free(mr);
	return error;
}

static int toy_attach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	memcpy(toy_seen.group, gid->raw, sizeof(toy_seen.group));
	return 0;
}

static int toy_detach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	memset(toy_seen.group, 0, sizeof(toy_seen.group));
	return 0;
}

static int toy_wait_fd(struct ib_device *dev, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int ready;

	toy_seen.waits++;
	ready = poll(&p, 1, fcntl(fd, F_GETFL) & O_NONBLOCK ? 0 : -1);
	return ready < 0 ? -errno : ready ? 0 : -EAGAIN;
}

static const struct ib_uverbs_ops toy_uverbs = {
	.post_send = toy_post_send,
	.post_recv = toy_post_recv,
	.post_srq_recv = toy_post_srq_recv,
	.poll_cq = toy_poll_cq,
	.create_cq = toy_create_cq,
	.ack_cq_events = toy_ack,
	.reg_user_mr = toy_reg_user_mr,
	.wait_fd = toy_wait_fd,
};

static void toy_fill_objects(struct ib_device *d)
{
	d->alloc_pd = toy_alloc_pd;
	d->dealloc_pd = toy_dealloc_pd;
	d->create_ah = toy_create_ah;
	d->destroy_ah = toy_destroy_ah;
	d->create_srq = toy_create_srq;
	d->modify_srq = toy_modify_srq;
	d->query_srq = toy_query_srq;
	d->destroy_srq = toy_destroy_srq;
	d->create_qp = toy_create_qp;
	d->modify_qp = toy_modify_qp;
	d->query_qp = toy_query_qp;
	d->destroy_qp = toy_destroy_qp;
	d->create_cq = toy_create_ib_cq;
	d->destroy_cq = toy_destroy_cq;
	d->resize_cq = toy_resize_cq;
	d->poll_cq = toy_poll_ib_cq;
	d->req_notify_cq = toy_req_notify;
	d->get_dma_mr = toy_get_dma_mr;
	d->dereg_mr = toy_dereg_mr;
	d->attach_mcast = toy_attach;
	d->detach_mcast = toy_detach;
}

struct ib_device *toy_create(void)
{
	struct ib_device *d = ib_alloc_device(sizeof(*d));

	if (!d)
		return NULL;
	memcpy(d->name, "toy0", sizeof("toy0"));
	d->node_type = RDMA_NODE_IB_CA;
	d->phys_port_cnt = 1;
	d->num_comp_vectors = 2;
	d->node_guid = 0x1122334455667788ull;
	d->uverbs = &toy_uverbs;
	d->query_device = toy_query_device;
	d->query_port = toy_query_port;
	d->query_gid = toy_query_gid;
	d->query_pkey = toy_query_pkey;
	toy_fill_objects(d);
	if (ib_register_device(d) == 0)
		return d;
	ib_dealloc_device(d);
	return NULL;
}

void toy_destroy(struct ib_device *device)
{
	ib_unregister_device(device);
	ib_dealloc_device(device);
}

int toy_door_open(void **state)
{
	struct toy_door *door = calloc(1, sizeof(*door));

	*state = door;
	memset(&toy_seen, 0, sizeof(toy_seen));
	if (!door)
		return -1;
	door->toy = toy_create();
	door->list = ibv_get_device_list(NULL);
	if (!door->toy || !door->list)
		return -1;
	for (struct ibv_device **d = door->list; *d; d++)
		if (!strcmp(ibv_get_device_name(*d), "toy0"))
			door->device = *d;
	if (door->device)
		door->context = ibv_open_device(door->device);
	return door->context ? 0 : -1;
}

static void *toy_destroy_thread(void *device)
{
	toy_destroy(device);
	return NULL;
}

/* The end of the device waits for whoever still holds it. A test that fails leaves its objects
 * behind: its message must come, and the other tests must run. */
int toy_door_close(void **state)
{
	struct toy_door *door = *state;
	struct timespec until;
	pthread_t thread;
	int err;

	ibv_close_device(door->context);
	ibv_free_device_list(door->list);
	err = pthread_create(&thread, NULL, toy_destroy_thread, door->toy);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += TOY_LEAVES_S;
	if (err == 0)
		err = pthread_timedjoin_np(thread, NULL, &until);
	if (err != 0)
		fprintf(stderr, "toy: the test has left objects of its device behind\n");
	free(door);
	return err == 0 ? 0 : -1;
}
