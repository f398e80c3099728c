/* device.c: a software adapter's lists of objects, and its life in this process; presence.c has
 * what core knows of it.
 * In: the adapter's kind, the seat    Out: devices that core can register
 * Runs: a thread that may sleep; the forked child's only thread    Locks: list_lock
 */
#include "driver/soft/raw.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/env.h"

enum { UNPLUG_LOOK_US = 1000 }; /* between looks whether a thread still waits */

void soft_init_device(struct soft_device *dev, const struct soft_kind *kind)
	NO_THREAD_SAFETY /* not yet visible to other threads */
{
	struct ib_device *ib = &dev->ib;

	dev->kind = kind;
	list_init(&dev->qps);
	list_init(&dev->cqs);
	list_init(&dev->srqs);
	list_init(&dev->raws);
	list_init(&dev->wqs);
	list_init(&dev->steer.flows);
	ib->num_comp_vectors = (int)vector_count();
	soft_fill_pd(ib);
	soft_fill_mr(ib);
	soft_fill_cq(ib);
	soft_fill_qp(ib);
	soft_fill_srq(ib);
	soft_fill_ah(ib);
}

int soft_attach(struct soft_device *dev)
{
	int err = soft_check(&dev->ib);

	return err != 0 ? err : seat_attach(&the_seat, dev->kind->seat);
}

void soft_taken(struct soft_device *dev)
{
	/* By default a CQ of a door raises an event at the arm if completions wait, as adapters do
	 * and programs expect. Consumers of the midlayer ask for that by REPORT_MISSED_EVENTS. */
	__atomic_store_n(&dev->eager_ib, !env_is_on("ANYVERBS_STRICT_NOTIFY", true),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&dev->eager_door, !env_is_on("ANYVERBS_STRICT_NOTIFY", false),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&dev->live, true, __ATOMIC_RELAXED);
}

void soft_set_removed(struct soft_device *dev)
{
	__atomic_store_n(&dev->removed, true, __ATOMIC_RELEASE);
}

void soft_set_port_up(struct soft_device *dev, u8 port, bool up, bool lost)
{
	u64 bit = 1ull << port;

	lock_acquire(&dev->list_lock);
	if (up)
		__atomic_and_fetch(&dev->ports_down, ~bit, __ATOMIC_RELAXED);
	else
		__atomic_or_fetch(&dev->ports_down, bit, __ATOMIC_RELAXED);
	if (port == 1)
		__atomic_store_n(&dev->steer.down, !up, __ATOMIC_RELAXED);
	list_for_each(qp, &dev->qps, struct soft_qp, node) {
		if (soft_qp_port(qp) != port)
			continue;
		soft_qp_look_at_way(dev, qp);
		if (lost)
			ibt_qp_suspect_loss(soft_engine(qp));
	}
	lock_release(&dev->list_lock);
}

void soft_review_routes(struct soft_device *dev)
{
	lock_acquire(&dev->list_lock);
	list_for_each(qp, &dev->qps, struct soft_qp, node)
		soft_qp_look_at_way(dev, qp);
	lock_release(&dev->list_lock);
}

void soft_charge(struct soft_device *dev)
{
	if (!lock_try(&dev->list_lock))
		return;
	list_for_each(qp, &dev->qps, struct soft_qp, node)
		soft_qp_charge(dev, qp);
	lock_release(&dev->list_lock);
}

/* A modification in progress ends first; a later one finds `removed`. The engine's queue pair
 * flushes, so every request completes. Waits for peers that copy directly. */
static void unplug_objects(struct soft_device *dev)
{
	lock_acquire(&dev->list_lock);
	list_for_each(qp, &dev->qps, struct soft_qp, node) {
		lock_acquire(&qp->modify_lock);
		ibt_qp_unplug(soft_engine(qp));
		(void)shm_drain(the_seat.a.shm, SHM_ANY_KEY, ibt_qp_number(soft_engine(qp)));
		lock_release(&qp->modify_lock);
	}
	list_for_each(srq, &dev->srqs, struct soft_srq, node)
		ibt_srq_unplug(srq->engine);
	list_for_each(raw, &dev->raws, struct soft_raw, node)
		soft_raw_unplug(raw);
	list_for_each(wq, &dev->wqs, struct soft_wq, node)
		soft_rq_unplug(&wq->rq);
	lock_release(&dev->list_lock);
}

/* Order: completions before polls return -EIO, DEVICE_FATAL before a wait returns. */
void soft_unplug(struct soft_device *dev)
{
	struct ib_event event = { .device = &dev->ib, .event = IB_EVENT_DEVICE_FATAL };

	soft_set_removed(dev);
	unplug_objects(dev);
	__atomic_store_n(&dev->live, false, __ATOMIC_RELEASE);
	ib_dispatch_event(&event);
	ib_dispatch_drain(&dev->ib);
	/* pairs with the load in progress_has_ended */
	__atomic_store_n(&dev->ended, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&dev->waiters, __ATOMIC_SEQ_CST) != 0) {
		progress_wake_waiters(&the_seat);
		usleep(UNPLUG_LOOK_US);
	}
}

void soft_drop_in_child(struct soft_device *dev) NO_THREAD_SAFETY
{
	lock_init(&dev->list_lock);
	list_for_each(cq, &dev->cqs, struct soft_cq, node) {
		lock_init(&cq->size_lock);
		cq_orphan(&cq->q);
	}
	list_for_each(srq, &dev->srqs, struct soft_srq, node)
		ibt_srq_orphan(srq->engine);
	list_for_each(qp, &dev->qps, struct soft_qp, node) {
		lock_init(&qp->way_lock);
		ibt_qp_orphan(soft_engine(qp));
	}
	list_for_each(raw, &dev->raws, struct soft_raw, node) {
		lock_init(&raw->sq_lock);
		lock_init(&raw->rq.rq_lock);
	}
	list_for_each(wq, &dev->wqs, struct soft_wq, node)
		lock_init(&wq->rq.rq_lock);
	list_init(&dev->qps);
	list_init(&dev->raws);
	list_init(&dev->wqs);
	soft_steer_drop_in_child(dev);
	dev->live = false;
	dev->waiters = 0;
	/* core has forgotten every device */
	dev->state = dev->state == SOFT_LEAVING || dev->state == SOFT_GONE ? SOFT_GONE : SOFT_NEW;
}

static int soft_query_extended(struct ib_device *ib, struct ib_device_attr_ex *attr)
{
	attr->tm_caps = (struct ib_tm_caps){ .max_rndv_hdr_size = IBT_TM_MAX_RNDV_HDR,
					     .max_num_tags = IBT_TM_MAX_TAGS,
					     .flags = IB_TM_CAP_RC,
					     .max_ops = IBT_TM_MAX_OPS,
					     .max_sge = IBT_TM_MAX_SGE };
	attr->odp_caps = soft_odp_caps;
	attr->max_dm_size = SOFT_DM_BYTES;
	if (soft_dev(ib)->kind->carrier != NULL) {
		attr->rss_caps = soft_rss_caps;
		attr->rate_caps = (struct ib_rate_caps){ .kbps_min = 1,
							 .kbps_max = PACE_KBPS_MAX,
							 .supported_qpts = 1 << IB_QPT_RAW_PACKET };
		attr->max_wq_type_rq = RAW_MAX_WQ;
	}
	attr->cap_flags_ex = IB_DEVICE_FLUSH_GLOBAL | IB_DEVICE_ATOMIC_WRITE;
	attr->cq_caps = (struct ib_cq_caps){ .max_cq_moderation_count = UINT16_MAX,
					     .max_cq_moderation_period = UINT16_MAX };
	attr->max_fast_reg_page_list_len = SOFT_MAX_FAST_PAGES;
	return 0;
}

const struct ib_device_ops soft_device_ops = {
	IB_DEVICE_OPS_SIZES,
	.create_cq = soft_create_cq,
	.poll_cq = soft_poll_cq,
	.create_srq = soft_create_srq,
	.query_clock = soft_query_clock,
	.query_device = soft_query_extended,
	.create_qp = soft_create_qp,
	.post_srq_ops = soft_post_srq_ops,
	.alloc_mr = soft_alloc_mr,
	.map_mr_sg = soft_map_mr_sg,
	.open_xrcd = soft_open_xrcd,
	.close_xrcd = soft_close_xrcd,
	.create_flow = soft_create_flow,
	.destroy_flow = soft_destroy_flow,
	.create_wq = soft_create_wq,
	.modify_wq = soft_modify_wq,
	.destroy_wq = soft_destroy_wq,
	.create_rwq_ind_table = soft_create_table,
	.destroy_rwq_ind_table = soft_destroy_table,
	.create_counters = soft_create_counters,
	.destroy_counters = soft_destroy_counters,
	.read_counters = soft_read_counters,
};

static void soft_wait_ended(void *arg)
{
	struct soft_device *dev = arg;

	__atomic_fetch_sub(&dev->waiters, 1, __ATOMIC_SEQ_CST);
}

const struct ib_sleep_ops soft_sleep_ops = {
	.begin = progress_sleep_begin,
	.prepare = progress_sleep_prepare,
	.wake = progress_sleep_wake,
	.end = progress_sleep_end,
};

int soft_uverbs_wait_fd(struct ib_device *ib, int fd)
{
	struct soft_device *dev = soft_dev(ib);
	int err;

	__atomic_fetch_add(&dev->waiters, 1, __ATOMIC_SEQ_CST);
	pthread_cleanup_push(soft_wait_ended, dev);
	err = progress_wait_fd(&the_seat, fd, &dev->ended);
	pthread_cleanup_pop(1);
	return err;
}
