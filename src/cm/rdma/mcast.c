/* mcast.c: multicast groups of datagram ids. RoCE has no subnet administrator to ask: a group's
 * MGID is made of its IP address, and who attaches a queue pair to it is a member. On InfiniBand
 * the SA is asked (mcast_ib.c).
 * In:    rdma_join_multicast, rdma_leave_multicast     Out: MULTICAST_JOIN, MULTICAST_ERROR
 * Runs:  consumers' threads; results are told on the work queue; may block
 * Locks: cma.lock
 */
#include <errno.h>
#include <rdma/ib_cache.h>
#include <stdlib.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"
#include "node/node.h"

/* ---- the result ------------------------------------------------------------------------------ */

/* The GID that datagrams to the group come from: the id's own, or, if that is of the other family,
 * the port's first of the group's family, for no IPv4 datagram goes to an IPv6 group. */
static int cma_mcast_source(const struct cma_mcast *mc, struct ib_device *device, u16 *index)
{
	union ib_gid gid = mc->id->id.route.addr.sgid;
	bool v4 = node_mcast_v4(mc->mgid.raw) != 0;
	u8 port = mc->id->id.port_num;

	if (cma_gid_is_v4(&gid) != v4 && !cma_device_find_family(device, v4, &gid) && !v4)
		(void)ib_get_cached_gid(device, port, 0, &gid); /* the link-local one */
	return ib_find_cached_gid(device, &gid, &port, index);
}

static int cma_mcast_roce_event(const struct cma_mcast *mc, struct ib_device *device,
				struct rdma_ud_param *out)
{
	struct cma_id *id = mc->id;
	u16 index = 0;
	int err = cma_mcast_source(mc, device, &index);

	if (err < 0)
		return err;
	out->qkey = cma_qkey(id);
	out->ah_attr = (struct ib_ah_attr){
		.grh = { .dgid = mc->mgid,
			 .sgid_index = (u8)index,
			 .hop_limit = CMA_HOP_LIMIT,
			 .traffic_class = cma_options_of(id).tos },
		.static_rate = IB_RATE_PORT_CURRENT,
		.ah_flags = IB_AH_GRH,
		.port_num = id->id.port_num,
	};
	return 0;
}

/* `error` 0: the id has joined. */
static void cma_mcast_event(const struct cma_mcast *mc, struct ib_device *device, bool infiniband,
			    int error, struct rdma_cm_event *out)
{
	*out = (struct rdma_cm_event){ .event = RDMA_CM_EVENT_MULTICAST_JOIN, .status = error };
	out->param.ud.private_data = mc->context;
	out->param.ud.qp_num = IB_MULTICAST_QPN;
	if (error == 0)
		out->status = infiniband ? cma_mcast_ib_event(mc, device, &out->param.ud)
					 : cma_mcast_roce_event(mc, device, &out->param.ud);
	if (out->status == 0)
		return;
	out->event = RDMA_CM_EVENT_MULTICAST_ERROR;
	out->param.ud = (struct rdma_ud_param){ .private_data = mc->context };
}

/* What is to be told next. */
struct cma_mcast_news {
	struct ib_device *device; /* the id's, which stays until the turn ends */
	bool infiniband;
	int error; /* 0: the id has joined */
} OWNED_BY(the caller);

static bool cma_mcast_take_news(struct cma_mcast *mc, struct cma_mcast_news *out)
	REQUIRES(cma.lock)
{
	const struct cma_id *id = mc->id;

	if (mc->left || id->state == CMA_DESTROYING || id->state == CMA_REMOVED ||
	    id->id.device == NULL || (!mc->tells_join && mc->error == 0))
		return false;
	*out = (struct cma_mcast_news){ .device = id->id.device,
					.infiniband = cma_is_infiniband(id->id.device),
					.error = mc->tells_join ? 0 : mc->error };
	if (mc->tells_join)
		mc->tells_join = false;
	else
		mc->error = 0;
	return true;
}

/* Begins the turn in which the next result is told. False: there is none, or nobody to tell. */
static bool cma_mcast_enter(struct cma_mcast *mc, struct cma_mcast_news *out)
{
	struct cma_id *id = mc->id;
	bool entered;

	lock_acquire(&cma.lock);
	/* the handler at hand may be leaving this group, and waits for us then */
	while (id->busy && !mc->left && id->state != CMA_DESTROYING)
		cond_wait(&id->idle, &cma.lock);
	entered = cma_mcast_take_news(mc, out);
	id->busy |= entered;
	/* another result has a turn of its own */
	if (entered && (mc->tells_join || mc->error != 0))
		work_push(&mc->work);
	lock_release(&cma.lock);
	return entered;
}

static void cma_mcast_tell(struct work *w)
{
	struct cma_mcast *mc = container_of(w, struct cma_mcast, work);
	struct cma_mcast_news news;
	struct cma_id *id = mc->id;
	struct rdma_cm_event event;
	bool destroy;

	if (!cma_mcast_enter(mc, &news))
		return;
	cma_mcast_event(mc, news.device, news.infiniband, news.error, &event);
	destroy = cma_tell(id, &event) != 0; /* the handler may leave: `mc` is gone */
	cma_leave(id);
	if (destroy)
		rdma_destroy_id(&id->id);
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool cma_mcast_may_join(const struct cma_id *id) REQUIRES(cma.lock)
{
	return (id->state == CMA_ADDR_BOUND || id->state == CMA_ADDR_RESOLVED) &&
	       id->id.device != NULL && id->id.qp == NULL && cma_is_datagram(&id->id);
}

static int cma_mcast_enlist(struct cma_mcast *mc)
{
	struct cma_id *id = mc->id;
	int err = -EINVAL;

	lock_acquire(&cma.lock);
	if (cma_mcast_may_join(id)) {
		list_push_back(&id->groups, &mc->node);
		err = 0;
	}
	lock_release(&cma.lock);
	return err;
}

/* Takes it back: `mc` has told nothing. */
static void cma_mcast_delist(struct cma_mcast *mc)
{
	lock_acquire(&cma.lock);
	list_remove(&mc->node);
	lock_release(&cma.lock);
}

static int cma_mcast_roce_join(struct cma_mcast *mc)
{
	if (mc->addr.ss_family == AF_IB || !node_is_mcast(mc->mgid.raw))
		return -EINVAL;
	lock_acquire(&cma.lock);
	mc->tells_join = true;
	work_push(&mc->work);
	lock_release(&cma.lock);
	return 0;
}

static int cma_mcast_join_on(struct cma_mcast *mc, const struct cma_device *d)
{
	const struct sockaddr *addr = cma_addr(&mc->addr);
	int err;

	if (d->infiniband)
		cma_mcast_ib_gid(mc->id, addr, &mc->mgid);
	else
		cma_addr_gid(addr, &mc->mgid);
	err = cma_mcast_enlist(mc);
	if (err < 0)
		return err;
	err = d->infiniband ? cma_mcast_ib_join(mc, d->device) : cma_mcast_roce_join(mc);
	if (err < 0)
		cma_mcast_delist(mc);
	return err;
}

int rdma_join_multicast(struct rdma_cm_id *cm_id, struct sockaddr *addr, u8 join_state,
			void *context)
{
	struct cma_device *d;
	struct cma_mcast *mc;
	int err = -EINVAL;

	if (!cma_family_is_known(addr) ||
	    (join_state != IB_SA_FULL_MEMBER && join_state != IB_SA_SEND_ONLY_FULL_MEMBER))
		return -EINVAL;
	mc = calloc(1, sizeof(*mc));
	if (mc == NULL)
		return -ENOMEM;
	mc->id = cma_id(cm_id);
	mc->join_state = join_state;
	mc->context = context;
	cma_addr_copy(&mc->addr, addr);
	work_init(&mc->work, &cma.queue, cma_mcast_tell);
	d = cma_device_hold(mc->id);
	if (d != NULL)
		err = cma_mcast_join_on(mc, d);
	cma_device_release(d);
	if (err < 0)
		free(mc);
	return err;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Takes the latest membership at an address (NULL: any), with a context (NULL: any), off the list.
 * NULL: there is none. */
static struct cma_mcast *cma_mcast_take(struct cma_id *id, const struct sockaddr_storage *addr,
				    const void *context)
{
	struct cma_mcast *found = NULL;

	lock_acquire(&cma.lock);
	list_for_each(mc, &id->groups, struct cma_mcast, node) {
		if ((addr == NULL || memcmp(&mc->addr, addr, sizeof(*addr)) == 0) &&
		    (context == NULL || mc->context == context))
			found = mc;
	}
	if (found != NULL) {
		list_remove(&found->node);
		found->left = true;
		cond_wake(&id->idle); /* cma_mcast_enter */
	}
	lock_release(&cma.lock);
	return found;
}

/* Returns when nothing is told any more, unless the handler that is told is the caller. */
static void cma_mcast_end(struct cma_mcast *mc)
{
	if (mc == NULL)
		return;
	cma_mcast_ib_leave(mc);
	work_cancel_wait(&mc->work);
	free(mc);
}

void rdma_leave_multicast(struct rdma_cm_id *cm_id, struct sockaddr *addr)
{
	struct sockaddr_storage copy;

	if (!cma_family_is_known(addr))
		return;
	cma_addr_copy(&copy, addr);
	cma_mcast_end(cma_mcast_take(cma_id(cm_id), &copy, NULL));
}

void cma_mcast_leave(struct cma_id *id, const void *context)
{
	cma_mcast_end(cma_mcast_take(id, NULL, context));
}

void cma_mcast_leave_all(struct cma_id *id)
{
	struct cma_mcast *mc;

	while ((mc = cma_mcast_take(id, NULL, NULL)) != NULL)
		cma_mcast_end(mc);
}
