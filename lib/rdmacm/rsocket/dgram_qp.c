/* dgram_qp.c: the UD queue pairs of a datagram rsocket, one per local address.
 * In:    datagrams of the application, completions     Out: UD messages, dgram_arrived
 * Runs:  the application's threads, udp.c's            Locks: dgram.lock (the caller's)
 */
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include "core/uverbs.h"
#include "dgram.h"
#include "user.h"

enum { GRH_BYTES = 40, QP_BATCH = 16, QP_ANY_PORT = 1, QP_RESOLVE_MS = 1000 };
/* wr_id: the slot, and whose. */
#define QP_RECEIVE (1ull << 32)

/* ---- buffers --------------------------------------------------------------------------------- */

static u8 *qp_send_slot(const struct dgram_qp *qp, u32 slot)
{
	return qp->memory + (size_t)qp->receives * qp->slot_bytes + (size_t)slot * DGRAM_BYTES;
}

u8 *dgram_qp_slot(const struct dgram_qp *qp, u32 slot)
{
	return qp->memory + (size_t)slot * qp->slot_bytes + GRH_BYTES;
}

void dgram_qp_receive(struct dgram_qp *qp, u32 slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)dgram_qp_slot(qp, slot) - GRH_BYTES,
			       .length = qp->slot_bytes,
			       .lkey = qp->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = QP_RECEIVE | slot, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	/* fails only when the device has gone, and with it all that could come */
	(void)ibv_post_recv(qp->id->qp, &wr, &bad);
}

static int qp_make_buffers(struct dgram_qp *qp)
{
	size_t bytes = (size_t)qp->receives * qp->slot_bytes + (size_t)qp->sends * DGRAM_BYTES;

	qp->memory = calloc(1, bytes);
	qp->idle = calloc(qp->sends, sizeof(*qp->idle));
	if (qp->memory == NULL || qp->idle == NULL)
		return -ENOMEM;
	qp->mr = ibv_reg_mr(qp->id->pd, qp->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (qp->mr == NULL)
		return -errno;
	for (u32 i = 0; i < qp->sends; i++)
		qp->idle[i] = i;
	qp->idle_count = qp->sends;
	return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* The index of a GID of the port, or -EADDRNOTAVAIL. */
static int qp_gid_index(const struct dgram_qp *qp, const u8 wanted[16])
{
	union ibv_gid gid;

	for (u32 i = 0; i < qp->gids; i++) {
		if (ibv_query_gid(qp->id->verbs, qp->id->port_num, (int)i, &gid) == 0 &&
		    memcmp(gid.raw, wanted, sizeof(gid.raw)) == 0)
			return (int)i;
	}
	return -EADDRNOTAVAIL;
}

static int qp_find_gid(struct dgram_qp *qp)
{
	int index;

	memcpy(qp->gid, qp->id->route.addr.addr.ibaddr.sgid.raw, sizeof(qp->gid));
	index = qp_gid_index(qp, qp->gid);
	if (index < 0)
		return index;
	qp->gid_index = (u8)index;
	if (qp->infiniband)
		dgram_addr_gid(&qp->local, qp->gid);
	return 0;
}

bool dgram_qp_has_near(const struct dgram_qp *qp, const u8 gid[16])
{
	union dgram_addr addr = dgram_addr_from_gid(gid);

	return qp->infiniband || dgram_addr_is_loopback(&addr) || qp_gid_index(qp, gid) >= 0;
}

/* An id of a loopback address has a device once it is resolved; the same address as destination
 * stands for this node, and nobody is asked. */
static int qp_resolve_loopback(struct dgram_qp *qp, union dgram_addr *addr)
{
	addr->in.sin_port = QP_ANY_PORT;
	if (rdma_resolve_addr(qp->id, NULL, &addr->sa, QP_RESOLVE_MS) != 0)
		return -errno;
	return qp->id->verbs != NULL ? 0 : -ENODEV;
}

/* Binds an id to the device of the address, and learns what the device can do. */
static int qp_bind(struct dgram_qp *qp)
{
	union dgram_addr addr = dgram_addr_unmapped(&qp->local);
	struct ibv_port_attr port;
	int err = 0;
	u32 mtu;

	addr.in.sin_port = 0; /* both families have it there; the UDP socket's is not the CM's */
	if (rdma_create_id(NULL, &qp->id, NULL, RDMA_PS_UDP) != 0)
		return -errno;
	if (rdma_bind_addr(qp->id, &addr.sa) != 0)
		return -errno;
	if (qp->id->verbs == NULL)
		err = qp_resolve_loopback(qp, &addr);
	if (err < 0)
		return err;
	if (ibv_query_port(qp->id->verbs, qp->id->port_num, &port) != 0)
		return -errno;
	qp->infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	mtu = 128u << port.active_mtu;
	qp->slot_bytes = GRH_BYTES + MAX(mtu, (u32)DGRAM_BYTES);
	qp->room = MIN(mtu, (u32)DGRAM_BYTES);
	qp->gids = (u32)MIN(MAX(port.gid_tbl_len, 0), UINT8_MAX + 1);
	return qp_find_gid(qp);
}

static int qp_make(struct dgram *d, struct dgram_qp *qp) REQUIRES(d->lock)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .sq_sig_all = 1 };
	int err = qp_bind(qp);

	if (err == 0)
		err = rsocket_cq_create(&qp->cq, qp->id->verbs, qp->sends + qp->receives,
					&d->rs.waiters);
	if (err < 0)
		return err;
	init.send_cq = init.recv_cq = qp->cq.cq;
	init.cap = (struct ibv_qp_cap){ .max_send_wr = qp->sends,
					.max_recv_wr = qp->receives,
					.max_send_sge = 1,
					.max_recv_sge = 1,
					.max_inline_data = d->inline_bytes };
	err = rsocket_qp_create(qp->id, NULL, &init);
	if (err < 0)
		return err;
	qp->inline_bytes = init.cap.max_inline_data;
	err = qp_make_buffers(qp);
	if (err < 0)
		return err;
	for (u32 i = 0; i < qp->receives; i++)
		dgram_qp_receive(qp, i);
	return 0;
}

static void qp_free(struct dgram_qp *qp)
{
	if (qp->id != NULL)
		rdma_destroy_qp(qp->id);
	rsocket_cq_destroy(&qp->cq);
	if (qp->mr != NULL)
		ibv_dereg_mr(qp->mr);
	if (qp->id != NULL)
		rdma_destroy_id(qp->id);
	free(qp->memory);
	free(qp->idle);
	free(qp);
}

int dgram_qp_get(struct dgram *d, const union dgram_addr *local, struct dgram_qp **out)
{
	union dgram_addr addr = *local;
	struct dgram_qp *qp;
	int err;

	addr.in.sin_port = d->port;
	list_for_each(have, &d->qps, struct dgram_qp, node) {
		if (dgram_addr_equal(&have->local, &addr)) {
			*out = have;
			return 0;
		}
	}
	if (d->qp_count == DGRAM_QPS)
		return -ENOBUFS;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL)
		return -ENOMEM;
	qp->local = addr;
	qp->receives = d->receive_queue;
	qp->sends = d->send_queue;
	qp->header_bytes = dgram_header_pack(&addr, qp->header);
	err = qp_make(d, qp);
	if (err < 0) {
		qp_free(qp);
		return err;
	}
	list_push_back(&d->qps, &qp->node);
	d->qp_count++;
	if (d->armed)
		rsocket_cq_arm(&qp->cq);
	*out = qp;
	return 0;
}

void dgram_qps_destroy(struct dgram *d)
{
	while (!list_empty(&d->qps)) {
		struct dgram_qp *qp = list_first(&d->qps, struct dgram_qp, node);

		list_remove(&qp->node);
		qp_free(qp);
	}
	d->qp_count = 0;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* A fabric's hosts without an interface share the loopback device, so the kernel says 127.0.0.1 for
 * each; the CM knows the port's own address. */
void dgram_qp_name(struct dgram_qp *qp, const union dgram_addr *peer)
{
	union dgram_addr local = dgram_addr_unmapped(&qp->local), own;
	union dgram_addr to = dgram_addr_unmapped(peer);
	struct rdma_cm_id *id;

	if (!qp->infiniband || local.sa.sa_family != AF_INET || to.sa.sa_family != AF_INET ||
	    local.in.sin_addr.s_addr != htonl(INADDR_LOOPBACK) ||
	    to.in.sin_addr.s_addr == htonl(INADDR_LOOPBACK))
		return;
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) != 0)
		return;
	if (rdma_resolve_addr(id, NULL, &to.sa, QP_RESOLVE_MS) == 0 &&
	    dgram_addr_take(&own, rdma_get_local_addr(id), sizeof(id->route.addr.src_storage)))
		dgram_addr_gid(&own, qp->gid);
	rdma_destroy_id(id);
}

/* The path from the queue pair's address to another one. 0 or a negative errno. */
static int qp_resolve_path(const struct dgram_qp *qp, const u8 gid[16], struct ibv_sa_path_rec *out)
{
	union dgram_addr from = dgram_addr_from_gid(qp->gid), to = dgram_addr_from_gid(gid);
	struct rdma_cm_id *id;
	int err = 0;

	to.in.sin_port = QP_ANY_PORT; /* both families have it there */
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP) != 0)
		return -errno;
	if (rdma_resolve_addr(id, &from.sa, &to.sa, QP_RESOLVE_MS) != 0 ||
	    rdma_resolve_route(id, QP_RESOLVE_MS) != 0)
		err = -errno;
	else if (id->route.num_paths == 0)
		err = -EHOSTUNREACH;
	else
		*out = id->route.path_rec[0];
	rdma_destroy_id(id);
	return err;
}

static struct ibv_ah *qp_ah_of_path(struct dgram_qp *qp, const u8 gid[16])
{
	struct ibv_ah_attr attr = { .port_num = qp->id->port_num };
	struct ibv_sa_path_rec path = { .sl = 0 };

	if (qp_resolve_path(qp, gid, &path) < 0)
		return NULL;
	attr.dlid = be16toh(path.dlid);
	attr.sl = path.sl;
	attr.is_global = path.hop_limit > 1;
	attr.grh = (struct ibv_global_route){ .dgid = path.dgid,
					      .flow_label = be32toh(path.flow_label),
					      .sgid_index = qp->gid_index,
					      .hop_limit = path.hop_limit,
					      .traffic_class = path.traffic_class };
	return ibv_create_ah(qp->id->pd, &attr);
}

struct ibv_ah *dgram_qp_ah(struct dgram_qp *qp, const u8 gid[16])
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = qp->id->port_num };
	struct ibv_ah *ah;
	bool asked;

	if (qp->infiniband)
		return qp_ah_of_path(qp, gid);
	memcpy(attr.grh.dgid.raw, gid, sizeof(attr.grh.dgid.raw));
	attr.grh.sgid_index = qp->gid_index;
	attr.grh.hop_limit = 64;
	asked = ib_uverbs_ask_neighbours(false); /* dgram.lock is held, and udp.c's */
	ah = ibv_create_ah(qp->id->pd, &attr);
	ib_uverbs_ask_neighbours(asked);
	return ah;
}

int dgram_gather(u8 *to, const struct iovec *iov, int count)
{
	for (int i = 0; i < count; i++) {
		if (user_copy(to, iov[i].iov_base, iov[i].iov_len) < 0)
			return -EFAULT;
		to += iov[i].iov_len;
	}
	return 0;
}

int dgram_qp_send(struct dgram_qp *qp, const struct dgram_peer *peer, const struct iovec *iov,
		  int count, size_t bytes)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .num_sge = 1 }, *bad;
	struct ibv_sge sge = { .lkey = qp->mr->lkey };
	u32 slot;
	u8 *to;
	int err;

	if (qp->idle_count == 0)
		return -EAGAIN;
	slot = qp->idle[qp->idle_count - 1];
	to = qp_send_slot(qp, slot);
	memcpy(to, qp->header, qp->header_bytes);
	if (dgram_gather(to + qp->header_bytes, iov, count) < 0)
		return -EFAULT;
	sge.addr = (uintptr_t)to;
	sge.length = qp->header_bytes + (u32)bytes;
	wr.wr_id = slot;
	wr.sg_list = &sge;
	wr.send_flags = sge.length <= qp->inline_bytes ? IBV_SEND_INLINE : 0;
	wr.wr.ud.ah = peer->ah;
	wr.wr.ud.remote_qpn = peer->qpn;
	wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
	err = -ibv_post_send(qp->id->qp, &wr, &bad);
	if (err == 0)
		qp->idle_count--;
	return err == -ENOMEM ? -EAGAIN : err;
}

/* ---- completions ----------------------------------------------------------------------------- */

/* Tells whether a message is from the address that its header says. Who sends from a loopback
 * address has any GID of this host. An InfiniBand port knows no address of its peers: the header is
 * believed there. */
static bool qp_is_sender(const struct dgram_qp *qp, const u8 *grh, const union dgram_addr *from)
{
	u8 said[16], gid[16];

	if (qp->infiniband)
		return true;
	if (!dgram_sender_gid(grh, gid))
		return false;
	dgram_addr_gid(from, said);
	return memcmp(gid, said, sizeof(gid)) == 0 ||
	       (dgram_addr_is_loopback(from) && (memcmp(gid, qp->gid, sizeof(gid)) == 0 ||
						 dgram_qp_has_near(qp, gid)));
}

static void qp_received(struct dgram *d, struct dgram_qp *qp, u32 slot, u32 bytes)
	REQUIRES(d->lock)
{
	struct dgram_item item = { .qp = qp, .slot = slot };
	u8 *at = dgram_qp_slot(qp, slot);
	u32 length = bytes > GRH_BYTES ? bytes - GRH_BYTES : 0;
	int header = dgram_header_unpack(at, length, &item.from);

	if (header > 0 && qp_is_sender(qp, at - GRH_BYTES, &item.from)) {
		item.data = at + header;
		item.length = length - (u32)header;
		if (dgram_arrived(d, &item))
			return;
	}
	dgram_qp_receive(qp, slot);
}

static void qp_completed(struct dgram *d, struct dgram_qp *qp, const struct ibv_wc *wc)
	REQUIRES(d->lock)
{
	u32 slot = (u32)wc->wr_id;

	if (!(wc->wr_id & QP_RECEIVE))
		qp->idle[qp->idle_count++] = slot;
	else if (wc->status == IBV_WC_SUCCESS)
		qp_received(d, qp, slot, wc->byte_len);
	if (wc->status != IBV_WC_SUCCESS && !d->closing && d->error == 0)
		d->error = EIO; /* the device has gone */
}

void dgram_qps_poll(struct dgram *d, bool all)
{
	struct ibv_wc wc[QP_BATCH];
	int got;

	list_for_each(qp, &d->qps, struct dgram_qp, node) {
		if (!all && rsocket_cq_is_armed(&qp->cq))
			continue;
		/* a bound, so that a flood does not keep the caller */
		for (u32 left = qp->receives + qp->sends; left > 0; left -= MIN(left, (u32)got)) {
			got = ibv_poll_cq(qp->cq.cq, QP_BATCH, wc);
			if (got <= 0)
				break;
			for (int i = 0; i < got; i++)
				qp_completed(d, qp, &wc[i]);
		}
	}
}

void dgram_qps_arm(struct dgram *d)
{
	d->armed = true;
	list_for_each(qp, &d->qps, struct dgram_qp, node)
		rsocket_cq_arm(&qp->cq);
}

bool dgram_qps_busy(struct dgram *d)
{
	list_for_each(qp, &d->qps, struct dgram_qp, node)
		if (qp->idle_count < qp->sends)
			return true;
	return false;
}
