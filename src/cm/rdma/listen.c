/* listen.c: listening for requests on one device or on all, and the ids of requests.
 * In:    rdma_listen, devices that come, REQ and SIDR_REQ     Out: CONNECT_REQUEST
 * Runs:  consumers' threads, core's, the IB CM's              Locks: cma.lock
 */
#include <errno.h>
#include <rdma/ib_cache.h>
#include <stdlib.h>
#include <string.h>

#include "addr/addr.h"
#include "base/log.h"
#include "cm/ib/cm.h"
#include "cm/rdma/cma_priv.h"
#include "host/neighbour.h"

/* ---- listening ------------------------------------------------------------------------------- */

static bool cma_listen_has_device(struct cma_id *id, const struct ib_device *device)
	REQUIRES(cma.lock)
{
	list_for_each(l, &id->listeners, struct cma_listener, node)
		if (l->device == device)
			return true;
	return false;
}

/* Enters a listener that has no id of the IB CM yet, so that nobody else begins one. */
static bool cma_listen_claim(struct cma_id *id, struct cma_listener *l)
{
	bool mine;

	lock_acquire(&cma.lock);
	mine = id->state == CMA_LISTEN && !cma_listen_has_device(id, l->device);
	if (mine)
		list_push_back(&id->listeners, &l->node);
	lock_release(&cma.lock);
	return mine;
}

static bool cma_listen_device_is_there(const struct ib_device *device) REQUIRES(cma.lock)
{
	list_for_each(d, &cma.devices, struct cma_device, node)
		if (d->device == device)
			return true;
	return false;
}

/* A listener is complete. False: id or device came to their end meanwhile, and it is no more. */
static bool cma_listen_keep(struct cma_id *id, struct cma_listener *l, struct ib_cm_id *ib)
{
	bool keep;

	lock_acquire(&cma.lock);
	keep = ib != NULL && id->state == CMA_LISTEN && cma_listen_device_is_there(l->device);
	if (keep)
		l->ib = ib;
	else
		list_remove(&l->node);
	lock_release(&cma.lock);
	return keep;
}

static int cma_listen_begin(struct cma_id *id, struct ib_cm_id *ib)
{
	const struct sockaddr *addr = cma_addr(&id->id.route.addr.src_addr);
	__be64 service = rdma_get_service_id(&id->id, addr);
	struct ib_cm_compare_data compare;

	/* the wildcard of both families takes all; requests of AF_IB have no header */
	if (addr->sa_family == AF_IB)
		return ib_cm_listen(ib, service, 0, NULL);
	if (addr->sa_family == AF_INET6 && cma_addr_is_any(addr) && !cma_options_of(id).afonly)
		return ib_cm_listen(ib, service, 0, NULL);
	cma_header_compare(addr, &compare);
	return ib_cm_listen(ib, service, 0, &compare);
}

static int cma_listen_on(struct cma_id *id, struct ib_device *device)
{
	struct cma_listener *l = calloc(1, sizeof(*l));
	struct ib_cm_id *ib;
	int err;

	if (l == NULL)
		return -ENOMEM;
	l->device = device;
	if (!cma_listen_claim(id, l)) {
		free(l);
		return 0;
	}
	ib = ib_create_cm_id(device, cma_request, id);
	err = IS_ERR(ib) ? (int)PTR_ERR(ib) : cma_listen_begin(id, ib);
	if (cma_listen_keep(id, l, err == 0 ? ib : NULL))
		return 0;
	if (!IS_ERR(ib))
		ib_destroy_cm_id(ib);
	free(l);
	return err;
}

static struct cma_listener *cma_listen_take(struct cma_id *id, const struct ib_device *device)
{
	struct cma_listener *taken = NULL;

	lock_acquire(&cma.lock);
	list_for_each(l, &id->listeners, struct cma_listener, node) {
		if (l->ib == NULL || (device != NULL && l->device != device))
			continue;
		list_remove(&l->node);
		taken = l;
		break;
	}
	lock_release(&cma.lock);
	return taken;
}

void cma_unlisten(struct cma_id *id, const struct ib_device *device)
{
	struct cma_listener *l;

	while ((l = cma_listen_take(id, device)) != NULL) {
		ib_destroy_cm_id(l->ib);
		free(l);
	}
}

/* A device on which the id does not listen yet; NULL: none. */
static struct ib_device *cma_listen_next_device(struct cma_id *id)
{
	struct ib_device *device = NULL;

	lock_acquire(&cma.lock);
	list_for_each(d, &cma.devices, struct cma_device, node) {
		if (cma_listen_has_device(id, d->device))
			continue;
		device = d->device;
		break;
	}
	lock_release(&cma.lock);
	return device;
}

static int cma_listen_on_all(struct cma_id *id)
{
	struct ib_device *device;
	int err = 0;

	while (err == 0 && (device = cma_listen_next_device(id)) != NULL)
		err = cma_listen_on(id, device);
	return err;
}

/* An id that listens on all devices, but not on this one, with a reference; NULL: none. */
static struct cma_id *cma_listen_next_id(const struct ib_device *device)
{
	struct cma_id *found = NULL;

	lock_acquire(&cma.lock);
	list_for_each(id, &cma.ids, struct cma_id, node) {
		if (id->state != CMA_LISTEN || id->id.device != NULL ||
		    cma_listen_has_device(id, device))
			continue;
		id->refs++;
		found = id;
		break;
	}
	lock_release(&cma.lock);
	return found;
}

static void cma_listen_put(struct cma_id *id)
{
	lock_acquire(&cma.lock);
	id->refs--;
	cond_wake(&id->idle);
	lock_release(&cma.lock);
}

void cma_listen_device(struct ib_device *device)
{
	struct cma_id *id;
	int err = 0;

	while (err == 0 && (id = cma_listen_next_id(device)) != NULL) {
		err = cma_listen_on(id, device);
		cma_listen_put(id);
	}
	if (err < 0)
		log_warn("rdmacm", "not every id listens on device %s: error %d", device->name,
			 -err);
}

int rdma_listen(struct rdma_cm_id *cm_id, int backlog)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct cma_id *id = cma_id(cm_id);
	int err;

	if (cm_id == NULL)
		return -EINVAL;
	if (cma_is_in(id, CMA_IDLE)) {
		err = rdma_bind_addr(cm_id, (struct sockaddr *)&any);
		if (err < 0)
			return err;
	}
	if (!cma_move(id, CMA_ADDR_BOUND, CMA_LISTEN))
		return -EINVAL;
	err = node_port_own(&id->port);
	if (err == 0)
		err = cm_id->device != NULL ? cma_listen_on(id, cm_id->device)
					    : cma_listen_on_all(id);
	if (err < 0) {
		cma_unlisten(id, NULL);
		cma_move(id, CMA_LISTEN, CMA_ADDR_BOUND);
	}
	return err;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void cma_request_fill_conn(const struct ib_cm_event *event, u8 header,
				  struct rdma_cm_event *out)
{
	const struct ib_cm_req_event_param *req = &event->param.req_rcvd;

	out->param.conn = (struct rdma_conn_param){
		.private_data = (const u8 *)event->private_data + header,
		.private_data_len = (u8)(IB_CM_REQ_PRIVATE_DATA_SIZE - header),
		.responder_resources = req->responder_resources,
		.initiator_depth = req->initiator_depth,
		.flow_control = req->flow_control,
		.retry_count = req->retry_count,
		.rnr_retry_count = req->rnr_retry_count,
		.srq = req->srq,
		.qp_num = req->remote_qpn,
	};
}

static void cma_request_fill_ud(const struct ib_cm_event *event, u8 header,
				struct rdma_cm_event *out)
{
	out->param.ud = (struct rdma_ud_param){
		.private_data = (const u8 *)event->private_data + header,
		.private_data_len = (u8)(IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE - header),
	};
}

/* What a REQ says of the path. */
static void cma_request_take_path(struct cma_id *id, const struct ib_cm_req_event_param *req)
{
	id->path[0] = *req->primary_path;
	id->id.route.num_paths = 1;
	if (req->alternate_path != NULL) {
		id->path[1] = *req->alternate_path;
		id->id.route.num_paths = 2;
	}
	id->id.route.path_rec = id->path;
	id->id.route.addr.dgid = id->path[0].dgid;
}

/* In an InfiniBand subnet a SIDR_REQ need not have a GRH: it has come to the port's own GID. */
static union ib_gid cma_request_own_gid(struct ib_device *device,
					const struct ib_cm_sidr_req_event_param *req)
{
	static const union ib_gid none;
	union ib_gid gid = req->dgid;
	bool infiniband;

	lock_acquire(&cma.lock);
	infiniband = cma_is_infiniband(device);
	lock_release(&cma.lock);
	if (infiniband && memcmp(&gid, &none, sizeof(gid)) == 0)
		(void)ib_get_cached_gid(device, req->port, 0, &gid);
	return gid;
}

static struct cma_request_way cma_request_way(struct ib_cm_id *ib, const struct ib_cm_event *event)
{
	const struct ib_sa_path_rec *path = event->param.req_rcvd.primary_path;
	struct cma_request_way way = { .lid = cm_request_back(ib).dlid };

	if (event->event == IB_CM_SIDR_REQ_RECEIVED) {
		way.peer = event->param.sidr_req_rcvd.sgid;
		way.own = cma_request_own_gid(ib->device, &event->param.sidr_req_rcvd);
	} else {
		way.peer = path->dgid;
		way.own = path->sgid;
	}
	return way;
}

/* The header has no scopes. The interface is the one that the listener names, or that has the
 * address; the peer of a link-local address is behind the same one. */
static void cma_request_set_scopes(const struct cma_id *listen, struct rdma_addr *addr)
{
	u32 ifindex = addr_scope(cma_addr(&listen->id.route.addr.src_addr));
	union ib_gid own;

	if (!cma_addr_lacks_scope(cma_addr(&addr->src_addr)) &&
	    !cma_addr_lacks_scope(cma_addr(&addr->dst_addr)))
		return;
	cma_addr_gid(cma_addr(&addr->src_addr), &own);
	if (ifindex == 0 && host_address_find(own.raw, 0, &ifindex) != 0)
		return;
	cma_addr_set_scope(&addr->src_addr, ifindex);
	cma_addr_set_scope(&addr->dst_addr, ifindex);
}

/* The addresses of a request for `listen`. False: it has none, or not those that it names. */
static bool cma_request_addresses(const struct cma_id *listen, struct ib_cm_id *ib,
				  const struct ib_cm_event *event,
				  const struct cma_request_way *way, struct rdma_addr *out)
{
	u16 port = cma_addr_port(cma_addr(&listen->id.route.addr.src_addr));

	if (cma_is_af_ib(listen)) {
		cma_af_ib_of_request(listen,
				     event->event == IB_CM_SIDR_REQ_RECEIVED
					     ? NULL
					     : event->param.req_rcvd.primary_path,
				     out);
		return true;
	}
	if (cma_header_read(event->private_data, event->private_data_len, port, out) < 0)
		return false;
	if (cma_origin_holds(ib->device, way, out))
		return true;
	cm_request_misnames(ib);
	return false;
}

/* The id of a request that came for `listen`. NULL: the request is refused. */
static struct cma_id *cma_request_id(struct cma_id *listen, struct ib_cm_id *ib,
				 const struct ib_cm_event *event)
{
	bool datagram = event->event == IB_CM_SIDR_REQ_RECEIVED;
	struct cma_request_way way = cma_request_way(ib, event);
	struct rdma_addr addr = { .pkey = 0 };
	struct cma_id *id;

	if (!cma_request_addresses(listen, ib, event, &way, &addr))
		return NULL;
	cma_request_set_scopes(listen, &addr);
	id = cma_id_new(listen->id.event_handler, listen->id.context, listen->id.ps,
			datagram ? IB_QPT_UD : event->param.req_rcvd.qp_type);
	if (id == NULL)
		return NULL;
	id->id.route.addr = addr;
	id->awaits_rtu = !datagram;
	if (datagram) {
		id->id.route.addr.dgid = way.peer;
		cma_bind_device(id, ib->device, event->param.sidr_req_rcvd.port, &way.own);
	} else {
		cma_request_take_path(id, &event->param.req_rcvd);
		cma_bind_device(id, ib->device, event->param.req_rcvd.port, &id->path[0].sgid);
	}
	return id;
}

/* Begins the first turn of a request's id: nobody else knows it. */
static void cma_request_enter(struct cma_id *id, struct ib_cm_id *ib)
{
	lock_acquire(&cma.lock);
	id->state = CMA_CONNECT;
	id->busy = true;
	id->ib = ib;
	lock_release(&cma.lock);
	ib->context = id;
	ib->cm_handler = cma_ib_event;
}

/* Inside a turn of the listening id. Non-zero: the request is refused, and `ib` to be destroyed. */
static int cma_request_tell(struct cma_id *listen, struct ib_cm_id *ib, struct ib_cm_event *event)
{
	struct rdma_cm_event out = { .event = RDMA_CM_EVENT_CONNECT_REQUEST };
	struct cma_id *id = cma_request_id(listen, ib, event);
	int refused;

	if (id == NULL)
		return -EINVAL;
	cma_request_enter(id, ib);
	if (event->event == IB_CM_SIDR_REQ_RECEIVED)
		cma_request_fill_ud(event, cma_header_size(id), &out);
	else
		cma_request_fill_conn(event, cma_header_size(id), &out);
	refused = cma_tell(id, &out);
	if (refused != 0) {
		cma_end_in_handler(id);
		return refused;
	}
	/* the consumer may take its time: the peer shall wait instead of giving up */
	if (cma_is_in(id, CMA_CONNECT) && !cma_is_datagram(&id->id))
		(void)ib_send_cm_mra(ib, IB_CM_MRA_FLAG_DELAY | CMA_MRA_TIMEOUT, NULL, 0);
	cma_leave(id);
	return 0;
}

int cma_request(struct ib_cm_id *ib, struct ib_cm_event *event)
{
	struct cma_id *listen = ib->context;
	int refused;

	if (event->event != IB_CM_REQ_RECEIVED && event->event != IB_CM_SIDR_REQ_RECEIVED)
		return 0;
	if (!cma_enter(listen, CMA_LISTEN))
		return -ECONNABORTED;
	refused = cma_request_tell(listen, ib, event);
	cma_leave(listen);
	return refused;
}
