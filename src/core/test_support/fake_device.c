/* fake_device.c: an adapter in memory for this room's tests.
 * In: the midlayer's calls    Out: completions on vector threads    Runs: the caller
 * Locks: cq->lock
 */
#include "core/test_support/fake_device.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <rdma/ib_cache.h>

static void fake_enter(struct ib_device *device)
{
	struct fake_device *fake = fake_of(device);

	fake_bump(&fake->calls);
	if (event_driver_depth < 1)
		fake_bump(&fake->unmarked);
}

/* A zeroed object, or ERR_PTR if the device is told to fail. */
static void *fake_object(struct ib_device *device, size_t size)
{
	struct fake_device *fake = fake_of(device);

	fake_enter(device);
	if (fake->fail)
		return ERR_PTR(fake->fail);
	fake_bump(&fake->objects);
	return calloc(1, size);
}

static int fake_free(struct ib_device *device, void *object)
{
	struct fake_device *fake = fake_of(device);

	fake_enter(device);
	if (fake->fail)
		return fake->fail;
	__atomic_sub_fetch(&fake->objects, 1, __ATOMIC_RELEASE);
	free(object);
	return 0;
}

/* ---- device ---------------------------------------------------------------------------------- */

static int fake_query_device(struct ib_device *device, struct ib_device_attr *attr)
{
	fake_enter(device);
	memset(attr, 0, sizeof(*attr));
	attr->max_map_per_fmr = fake_of(device)->max_map_per_fmr;
	return 0;
}

static int fake_query_port(struct ib_device *device, u8 port_num, struct ib_port_attr *attr)
{
	fake_enter(device);
	memset(attr, 0, sizeof(*attr));
	attr->state = fake_of(device)->port_state;
	attr->gid_tbl_len = FAKE_GIDS;
	attr->pkey_tbl_len = FAKE_PKEYS;
	attr->lid = fake_of(device)->lid;
	attr->lmc = fake_of(device)->lmc;
	attr->link_layer = fake_of(device)->link_layer;
	return 0;
}

static int fake_query_gid(struct ib_device *device, u8 port_num, int index, union ib_gid *gid)
{
	fake_enter(device);
	if (index >= FAKE_GIDS)
		return -EINVAL;
	*gid = fake_of(device)->gids[index];
	gid->raw[14] = (u8)(port_num - 1); /* each port has its own */
	return 0;
}

static int fake_query_pkey(struct ib_device *device, u8 port_num, u16 index, u16 *pkey)
{
	fake_enter(device);
	if (index >= FAKE_PKEYS)
		return -EINVAL;
	*pkey = fake_of(device)->pkeys[index];
	return 0;
}

/* ---- objects --------------------------------------------------------------------------------- */

static struct ib_pd *fake_alloc_pd(struct ib_device *device)
{
	return fake_object(device, sizeof(struct ib_pd));
}

static int fake_dealloc_pd(struct ib_pd *pd)
{
	return fake_free(pd->device, pd);
}

static struct ib_ah *fake_create_ah(struct ib_pd *pd, struct ib_ah_attr *attr)
{
	struct fake_ah *ah = fake_object(pd->device, sizeof(*ah));

	if (IS_ERR(ah))
		return ERR_PTR(PTR_ERR(ah));
	ah->attr = *attr;
	return &ah->ib;
}

static int fake_destroy_ah(struct ib_ah *ah)
{
	return fake_free(ah->device, container_of(ah, struct fake_ah, ib));
}

static struct ib_srq *fake_create_srq(struct ib_pd *pd, struct ib_srq_init_attr *init)
{
	return fake_object(pd->device, sizeof(struct ib_srq));
}

static int fake_destroy_srq(struct ib_srq *srq)
{
	return fake_free(srq->device, srq);
}

static int fake_post_srq_recv(struct ib_srq *srq, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	fake_enter(srq->device);
	fake_of(srq->device)->last_recv = *wr;
	return 0;
}

static struct ib_qp *fake_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *init)
{
	static u32 last_qp_num = 100;
	struct fake_qp *qp = fake_object(pd->device, sizeof(*qp));

	if (IS_ERR(qp))
		return (struct ib_qp *)qp;
	qp->ib.qp_num = __atomic_add_fetch(&last_qp_num, 1, __ATOMIC_RELAXED);
	return &qp->ib;
}

static int fake_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask)
{
	struct fake_qp *qp = container_of(ibqp, struct fake_qp, ib);

	fake_enter(ibqp->device);
	if (fake_of(ibqp->device)->on_modify_qp)
		fake_of(ibqp->device)->on_modify_qp(ibqp);
	if (!ib_modify_qp_is_ok(qp->state, attr->qp_state, ibqp->qp_type,
				(enum ib_qp_attr_mask)mask))
		return -EINVAL;
	qp->state = attr->qp_state;
	return 0;
}

static int fake_destroy_qp(struct ib_qp *qp)
{
	if (fake_of(qp->device)->on_destroy_qp)
		fake_of(qp->device)->on_destroy_qp(qp);
	return fake_free(qp->device, container_of(qp, struct fake_qp, ib));
}

static int fake_post_send(struct ib_qp *qp, struct ib_send_wr *wr, struct ib_send_wr **bad)
{
	struct fake_device *fake = fake_of(qp->device);

	fake_enter(qp->device);
	for (; wr; wr = wr->next) {
		struct ib_wc wc = { .wr_id = wr->wr_id, .opcode = IB_WC_SEND, .qp = qp };

		if (wr->num_sge > 1) {
			*bad = wr;
			return -EINVAL;
		}
		fake->last_send = *wr;
		if (wr->num_sge)
			fake->last_sge = wr->sg_list[0];
		if (wr->opcode == IB_WR_SEND_WITH_INV) {
			wc.wc_flags = IB_WC_WITH_INVALIDATE;
			wc.invalidate_rkey = wr->invalidate_rkey;
		}
		fake_complete(qp->send_cq, &wc);
	}
	return 0;
}

static int fake_post_recv(struct ib_qp *qp, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	fake_enter(qp->device);
	fake_of(qp->device)->last_recv = *wr;
	return 0;
}

static int fake_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	fake_enter(qp->device);
	return fake_of(qp->device)->fail;
}

/* ---- completion queues ----------------------------------------------------------------------- */

static void fake_cq_run(struct vector_item *item)
{
	struct fake_cq *cq = container_of(item, struct fake_cq, item);

	if (cq->ib.comp_handler)
		cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

static struct ib_cq *fake_create_cq(struct ib_device *device, int cqe, int comp_vector)
{
	struct fake_cq *cq = fake_object(device, sizeof(*cq));

	if (IS_ERR(cq))
		return (struct ib_cq *)cq;
	cq->ib.cqe = cqe;
	vector_item_init(&cq->item, vector_get((u32)comp_vector), fake_cq_run);
	return &cq->ib;
}

static int fake_destroy_cq(struct ib_cq *ibcq)
{
	struct fake_cq *cq = container_of(ibcq, struct fake_cq, ib);

	if (fake_of(ibcq->device)->on_destroy_cq)
		fake_of(ibcq->device)->on_destroy_cq(ibcq);
	vector_item_flush(&cq->item);
	return fake_free(ibcq->device, cq);
}

void fake_complete(struct ib_cq *ibcq, const struct ib_wc *wc)
{
	struct fake_cq *cq = container_of(ibcq, struct fake_cq, ib);

	lock_acquire(&cq->lock);
	int armed = cq->armed;

	assert_true(cq->count < FAKE_WCS);
	cq->wcs[(cq->head + cq->count++) % FAKE_WCS] = *wc;
	cq->armed = 0;
	lock_release(&cq->lock);
	if (armed)
		vector_item_queue(&cq->item);
}

static int fake_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc)
{
	struct fake_cq *cq = container_of(ibcq, struct fake_cq, ib);
	int n;

	fake_enter(ibcq->device);
	lock_acquire(&cq->lock);
	for (n = 0; n < num_entries && cq->count; n++, cq->count--) {
		wc[n] = cq->wcs[cq->head];
		cq->head = (cq->head + 1) % FAKE_WCS;
	}
	lock_release(&cq->lock);
	return n;
}

static int fake_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct fake_cq *cq = container_of(ibcq, struct fake_cq, ib);

	fake_enter(ibcq->device);
	lock_acquire(&cq->lock);
	cq->armed = flags & IB_CQ_SOLICITED_MASK;
	int missed = (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->count;
	lock_release(&cq->lock);
	return missed;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct ib_mr *fake_get_dma_mr(struct ib_pd *pd, int access)
{
	return fake_object(pd->device, sizeof(struct ib_mr));
}

static struct ib_mr *fake_reg_phys_mr(struct ib_pd *pd, struct ib_phys_buf *bufs, int count,
				      int access, u64 *iova_start)
{
	fake_of(pd->device)->last_buffer = bufs[0];
	return fake_object(pd->device, sizeof(struct ib_mr));
}

static int fake_rereg_phys_mr(struct ib_mr *mr, int mask, struct ib_pd *pd,
			      struct ib_phys_buf *bufs, int count, int access, u64 *iova_start)
{
	fake_enter(mr->device);
	return fake_of(mr->device)->fail;
}

static int fake_dereg_mr(struct ib_mr *mr)
{
	return fake_free(mr->device, mr);
}

static struct ib_mw *fake_alloc_mw(struct ib_pd *pd)
{
	return fake_object(pd->device, sizeof(struct ib_mw));
}

static int fake_dealloc_mw(struct ib_mw *mw)
{
	return fake_free(mw->device, mw);
}

static struct ib_fmr *fake_alloc_fmr(struct ib_pd *pd, int access, struct ib_fmr_attr *attr)
{
	struct fake_fmr *fmr = fake_object(pd->device, sizeof(*fmr));

	return IS_ERR(fmr) ? (struct ib_fmr *)fmr : &fmr->ib;
}

static int fake_map_phys_fmr(struct ib_fmr *ibfmr, u64 *page_list, int list_len, u64 iova)
{
	struct fake_fmr *fmr = container_of(ibfmr, struct fake_fmr, ib);

	fake_enter(ibfmr->device);
	if (fake_of(ibfmr->device)->fail)
		return fake_of(ibfmr->device)->fail;
	fmr->maps++;
	return 0;
}

static int fake_unmap_fmr(struct list_head *fmr_list)
{
	struct ib_device *device = list_first(fmr_list, struct ib_fmr, list)->device;

	fake_enter(device);
	list_for_each(fmr, fmr_list, struct ib_fmr, list)
		container_of(fmr, struct fake_fmr, ib)->maps = 0;
	fake_bump(&fake_of(device)->fmr_unmaps);
	return 0;
}

static int fake_dealloc_fmr(struct ib_fmr *fmr)
{
	return fake_free(fmr->device, container_of(fmr, struct fake_fmr, ib));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const struct ib_device fake_methods = {
	.num_comp_vectors = 2,
	.query_device = fake_query_device,
	.query_port = fake_query_port,
	.query_gid = fake_query_gid,
	.query_pkey = fake_query_pkey,
	.alloc_pd = fake_alloc_pd,
	.dealloc_pd = fake_dealloc_pd,
	.create_ah = fake_create_ah,
	.destroy_ah = fake_destroy_ah,
	.create_srq = fake_create_srq,
	.destroy_srq = fake_destroy_srq,
	.post_srq_recv = fake_post_srq_recv,
	.create_qp = fake_create_qp,
	.modify_qp = fake_modify_qp,
	.destroy_qp = fake_destroy_qp,
	.post_send = fake_post_send,
	.post_recv = fake_post_recv,
	.create_cq = fake_create_cq,
	.destroy_cq = fake_destroy_cq,
	.poll_cq = fake_poll_cq,
	.req_notify_cq = fake_req_notify_cq,
	.get_dma_mr = fake_get_dma_mr,
	.reg_phys_mr = fake_reg_phys_mr,
	.rereg_phys_mr = fake_rereg_phys_mr,
	.dereg_mr = fake_dereg_mr,
	.alloc_mw = fake_alloc_mw,
	.dealloc_mw = fake_dealloc_mw,
	.alloc_fmr = fake_alloc_fmr,
	.map_phys_fmr = fake_map_phys_fmr,
	.unmap_fmr = fake_unmap_fmr,
	.dealloc_fmr = fake_dealloc_fmr,
	.attach_mcast = fake_mcast,
	.detach_mcast = fake_mcast,
	.node_type = RDMA_NODE_IB_CA,
	.phys_port_cnt = 1,
};

struct fake_device *fake_create(const char *name)
{
	struct ib_device *device = ib_alloc_device(sizeof(struct fake_device));
	struct fake_device *fake = fake_of(device);

	assert_non_null(device);
	*device = fake_methods;
	memcpy(device->name, name, strlen(name) + 1);
	for (u8 i = 0; i < FAKE_GIDS - 1; i++) /* the last one stays empty */
		fake->gids[i].raw[15] = i + 1;
	for (u16 i = 0; i < FAKE_PKEYS; i++)
		fake->pkeys[i] = 0x8001 + i;
	fake->max_map_per_fmr = 2;
	fake->link_layer = IB_LINK_LAYER_ETHERNET;
	fake->port_state = IB_PORT_ACTIVE;
	return fake;
}

void fake_destroy(struct fake_device *fake)
{
	assert_int_equal(fake_count(&fake->objects), 0);
	assert_int_equal(fake_count(&fake->unmarked), 0);
	ib_dealloc_device(&fake->ib);
}

bool fake_await(const int *counter, int value)
{
	for (int i = 0; i < 60000; i++) { /* a minute: a busy machine is no fault */
		if (fake_count(counter) >= value)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

static bool fake_has_pkeys(struct fake_device *fake, const u16 pkeys[FAKE_PKEYS])
{
	u16 cached;

	for (int i = 0; i < FAKE_PKEYS; i++)
		if (ib_get_cached_pkey(&fake->ib, 1, i, &cached) != 0 || cached != pkeys[i])
			return false;
	return true;
}

/* The cache follows the event on a thread of its own. */
void fake_set_pkeys(struct fake_device *fake, const u16 pkeys[FAKE_PKEYS])
{
	struct ib_event event = { .device = &fake->ib,
				  .event = IB_EVENT_PKEY_CHANGE,
				  .element.port_num = 1 };

	memcpy(fake->pkeys, pkeys, sizeof(fake->pkeys));
	ib_dispatch_event(&event);
	for (int i = 0; i < 60000 && !fake_has_pkeys(fake, pkeys); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_true(fake_has_pkeys(fake, pkeys));
}
