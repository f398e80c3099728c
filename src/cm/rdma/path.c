/* path.c: the path to an id's destination: asked of the subnet administrator of an InfiniBand port,
 * or made of what both ends know.
 * In:    GIDs, options, answers of the SA     Out: path records, results of queries
 * Runs:  consumers' threads, the MAD layer's queue    Locks: cma.lock
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"

/* A query is repeated so often, each time after its timeout: all of it takes what the consumer
 * allows. */
enum { PATH_TRIES = 4 };

/* IPv6 has one in the source address: what the consumer has set, in network order. */
static __be32 cma_path_flow_label(const struct cma_id *id)
{
	struct sockaddr_in6 sin6;

	if (id->id.route.addr.src_addr.ss_family != AF_INET6)
		return 0;
	memcpy(&sin6, &id->id.route.addr.src_addr, sizeof(sin6));
	return sin6.sin6_flowinfo & htonl(0xfffff);
}

/* A Local ACK Timeout is twice the path's, if the delay of the device counts little: so the peer
 * takes it from the REQ. */
static u8 cma_path_life_time(const struct cma_options *options)
{
	u8 timeout = options->ack_timeout & 31;

	return timeout != 0 ? (u8)(timeout - 1) : (u8)CMA_PACKET_LIFETIME;
}

/* RoCE has no subnet administrator: the path is made of what both ends know. */
static int cma_path_make(struct cma_id *id, struct ib_device *device)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	struct cma_options options = cma_options_of(id);
	struct ib_sa_path_rec *path = &id->path[0];
	struct ib_port_attr port;
	int err = ib_query_port(device, id->id.port_num, &port);

	if (err < 0)
		return err;
	if (port.state != IB_PORT_ACTIVE)
		return -ENETDOWN;
	*path = (struct ib_sa_path_rec){
		.dgid = addr->dgid,
		.sgid = addr->sgid,
		.hop_limit = id->dev_addr.hoplimit != 0 ? (u8)id->dev_addr.hoplimit
							: (u8)CMA_HOP_LIMIT,
		.flow_label = cma_path_flow_label(id),
		.traffic_class = options.tos,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htobe16(CMA_PKEY),
		.mtu_selector = IB_SA_EQ,
		.mtu = (u8)port.active_mtu,
		.rate_selector = IB_SA_EQ,
		.rate = IB_RATE_PORT_CURRENT,
		.packet_life_time_selector = IB_SA_EQ,
		.packet_life_time = cma_path_life_time(&options),
	};
	id->id.route.path_rec = path;
	id->id.route.num_paths = 1;
	return 0;
}

/* ---- the subnet administrator ---------------------------------------------------------------- */

static void cma_path_take(struct cma_id *id, const struct ib_sa_path_rec *found)
{
	struct cma_options options = cma_options_of(id);

	id->path[0] = *found;
	if (options.ack_timeout != 0)
		id->path[0].packet_life_time = cma_path_life_time(&options);
	id->id.route.path_rec = id->path;
	id->id.route.num_paths = 1;
}

/* The id waits for this before it ends. */
static void cma_path_found(int status, struct ib_sa_path_rec *found, void *context)
{
	struct cma_id *id = context;

	if (status == 0)
		cma_path_take(id, found);
	cma_resolve_result(id, status);
	lock_acquire(&cma.lock);
	id->query = NULL;
	id->query_id = 0;
	id->refs--;
	cond_wake(&id->idle);
	lock_release(&cma.lock);
}

static void cma_path_hold(struct cma_id *id, int by)
{
	lock_acquire(&cma.lock);
	id->refs += (u32)by;
	cond_wake(&id->idle);
	lock_release(&cma.lock);
}

/* The answer may come first: what is kept then names a query that has ended, and is harmless. */
static void cma_path_keep_query(struct cma_id *id, int number, struct ib_sa_query *query)
{
	lock_acquire(&cma.lock);
	id->query = query;
	id->query_id = number;
	lock_release(&cma.lock);
}

static int cma_path_ask(struct cma_id *id, struct ib_device *device, int timeout_ms)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	struct ib_sa_path_rec want = {
		.dgid = addr->dgid,
		.sgid = addr->sgid,
		.pkey = htobe16(addr->pkey),
		.numb_path = 1,
		.reversible = 1,
		.service_id = rdma_get_service_id(&id->id, cma_addr(&addr->dst_addr)),
		.traffic_class = cma_options_of(id).tos,
	};
	ib_sa_comp_mask mask = IB_SA_PATH_REC_DGID | IB_SA_PATH_REC_SGID | IB_SA_PATH_REC_PKEY |
			       IB_SA_PATH_REC_NUMB_PATH | IB_SA_PATH_REC_REVERSIBLE |
			       IB_SA_PATH_REC_SERVICE_ID;
	struct ib_sa_query *query = NULL;
	int number;

	if (cma_is_af_ib(id)) {
		want.traffic_class = (u8)(be32toh(cma_af_ib(&addr->src_addr).sib_flowinfo) >> 20);
		mask |= IB_SA_PATH_REC_TRAFFIC_CLASS;
	}
	cma_path_hold(id, 1);
	number = ib_sa_path_rec_get(&cma.sa, device, id->id.port_num, &want, mask,
				    MAX(timeout_ms / PATH_TRIES, 1), 0, cma_path_found, id, &query);
	if (number < 0) {
		cma_path_hold(id, -1);
		return number;
	}
	cma_path_keep_query(id, number, query);
	return 0;
}

void cma_path_cancel(struct cma_id *id)
{
	struct ib_sa_query *query;
	int number;

	lock_acquire(&cma.lock);
	query = id->query;
	number = id->query_id;
	lock_release(&cma.lock);
	if (query != NULL)
		ib_sa_cancel_query(number, query);
}

int cma_path_find(struct cma_id *id, int timeout_ms)
{
	struct cma_device *d = cma_device_hold(id);
	int err = 0;

	if (d != NULL && d->infiniband)
		err = cma_path_ask(id, d->device, timeout_ms);
	else if (cma_is_af_ib(id))
		err = -ENODEV; /* no path of RoCE begins at an address that is none of IP */
	else
		cma_resolve_result(id, d != NULL ? cma_path_make(id, d->device) : -ENODEV);
	cma_device_release(d);
	return err;
}
