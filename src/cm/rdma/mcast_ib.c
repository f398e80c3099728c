/* mcast_ib.c: multicast groups of InfiniBand ports: MGIDs made of IP addresses, memberships at the
 * subnet administrator. A group that does not exist yet takes its parameters from the broadcast
 * group of IPoIB in the id's partition.
 * In:    addresses, answers of the SA      Out: joins and leaves, the address vector of a group
 * Runs:  consumers' threads; the SA client's queues, which only note results
 * Locks: cma.lock
 * Spec:  RFC 4391, 4 and 5 (MGIDs of IPv4 and IPv6 groups); IBA vol 1, 15.2.5.17
 */
#include <errno.h>
#include <netinet/in.h>
#include <rdma/ib_mad.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"

/* Where the parts of an MGID lie that stands for an IP address. */
enum { GROUP_FLAGS = 1, GROUP_SIGNATURE = 2, GROUP_PKEY = 4, GROUP_V6 = 6, GROUP_V4 = 12 };
enum {
	GROUP_LINK_LOCAL = 0x12, /* transient, of the link's scope, as the broadcast group */
	GROUP_IPV4 = 0x401b,
	GROUP_IPV6 = 0x601b,
	GROUP_RDMA_CM = 0x01, /* the low byte in place of 0x1b: no group of IPoIB's */
	GROUP_PKEY_FULL = 0x8000,
	GROUP_TRIES_MS = 500, /* a question for the broadcast group, asked four times */
};

/* ---- MGIDs ----------------------------------------------------------------------------------- */

static void cma_mcast_ib_put16(u8 *at, u32 value)
{
	at[0] = (u8)(value >> 8);
	at[1] = (u8)value;
}

static void cma_mcast_ib_begin(union ib_gid *out, u16 pkey, u32 signature)
{
	memset(out, 0, sizeof(*out));
	out->raw[0] = 0xff;
	out->raw[GROUP_FLAGS] = GROUP_LINK_LOCAL;
	cma_mcast_ib_put16(out->raw + GROUP_SIGNATURE, signature);
	cma_mcast_ib_put16(out->raw + GROUP_PKEY, pkey | GROUP_PKEY_FULL);
}

static void cma_mcast_ib_broadcast_gid(u16 pkey, union ib_gid *out)
{
	cma_mcast_ib_begin(out, pkey, GROUP_IPV4);
	memset(out->raw + GROUP_V4, 0xff, 4);
}

/* An IPv6 address of this form is an MGID that an SA has chosen (IBA vol 1, 10.5.1). */
static bool cma_mcast_ib_is_chosen(const union ib_gid *ip)
{
	return ip->raw[0] == 0xff && (ip->raw[1] & 0xf0) == 0x10 && ip->raw[2] == 0xa0 &&
	       ip->raw[3] == 0x1b;
}

void cma_mcast_ib_gid(const struct cma_id *id, const struct sockaddr *addr, union ib_gid *out)
{
	u16 pkey = id->id.route.addr.pkey;
	union ib_gid ip;

	cma_addr_gid(addr, &ip);
	if (cma_addr_is_any(addr)) {
		memset(out, 0, sizeof(*out));
		return;
	}
	if (addr->sa_family == AF_IB ||
	    (addr->sa_family == AF_INET6 && cma_mcast_ib_is_chosen(&ip))) {
		*out = ip;
		return;
	}
	if (addr->sa_family == AF_INET) {
		cma_mcast_ib_begin(out, pkey, GROUP_IPV4);
		memcpy(out->raw + GROUP_V4, ip.raw + GROUP_V4, 4);
		out->raw[GROUP_V4] &= 0x0f;
	} else {
		cma_mcast_ib_begin(out, pkey, GROUP_IPV6);
		memcpy(out->raw + GROUP_V6, ip.raw + GROUP_V6, sizeof(ip.raw) - GROUP_V6);
	}
	if (id->id.ps == RDMA_PS_UDP)
		out->raw[GROUP_SIGNATURE + 1] = GROUP_RDMA_CM;
}

/* ---- the broadcast group --------------------------------------------------------------------- */

struct cma_mcast_ib_question {
	struct lock lock;
	struct cond answered GUARDED_BY(lock);
	bool over GUARDED_BY(lock);
	int status GUARDED_BY(lock);
	struct ib_sa_mcmember_rec rec GUARDED_BY(lock);
};

static void cma_mcast_ib_answer(int status, struct ib_sa_mcmember_rec *rec, void *context)
{
	struct cma_mcast_ib_question *q = context;

	lock_acquire(&q->lock);
	q->status = status;
	if (status == 0)
		q->rec = *rec;
	q->over = true;
	cond_wake(&q->answered);
	lock_release(&q->lock);
}

/* The SA refuses a question for a group that there is not. */
static int cma_mcast_ib_errno(int status)
{
	if (status == -EINVAL)
		return -EADDRNOTAVAIL;
	return status == -EINTR ? -ENODEV : status;
}

static int cma_mcast_ib_ask(struct cma_id *id, struct ib_device *device, const union ib_gid *mgid,
			struct ib_sa_mcmember_rec *out)
{
	struct cma_mcast_ib_question q = { .over = false };
	struct ib_sa_mcmember_rec want = { .mgid = *mgid };
	struct ib_sa_query *query;
	int err;

	err = ib_sa_mcmember_rec_query(&cma.sa, device, id->id.port_num, IB_MGMT_METHOD_GET, &want,
				       IB_SA_MCMEMBER_REC_MGID, GROUP_TRIES_MS, 0,
				       cma_mcast_ib_answer, &q, &query);
	if (err < 0)
		return err;
	lock_acquire(&q.lock);
	while (!q.over)
		cond_wait(&q.answered, &q.lock);
	err = cma_mcast_ib_errno(q.status);
	if (err == 0)
		*out = q.rec;
	lock_release(&q.lock);
	return err;
}

/* The broadcast group of the id's partition: known if this process is a member, else the SA's. */
static int cma_mcast_ib_broadcast(struct cma_id *id, struct ib_device *device,
			      struct ib_sa_mcmember_rec *out)
{
	union ib_gid mgid;

	cma_mcast_ib_broadcast_gid(id->id.route.addr.pkey, &mgid);
	if (ib_sa_get_mcmember_rec(device, id->id.port_num, &mgid, out) == 0)
		return 0;
	return cma_mcast_ib_ask(id, device, &mgid, out);
}

int cma_mcast_ib_qkey(struct cma_id *id, struct ib_device *device, u32 *qkey)
{
	struct ib_sa_mcmember_rec rec;
	int err = cma_mcast_ib_broadcast(id, device, &rec);

	if (err == 0)
		*qkey = be32toh(rec.qkey);
	return err;
}

/* ---- memberships ----------------------------------------------------------------------------- */

/* Of the SA client: a join has ended, or the port has lost its memberships. */
static int cma_mcast_ib_result(int status, struct ib_sa_multicast *sa)
{
	struct cma_mcast *mc = sa->context;

	lock_acquire(&cma.lock);
	if (status == 0) {
		mc->rec = sa->rec;
		mc->tells_join = true;
	} else {
		mc->error = status;
	}
	work_push(&mc->work);
	lock_release(&cma.lock);
	return 0;
}

int cma_mcast_ib_join(struct cma_mcast *mc, struct ib_device *device)
{
	ib_sa_comp_mask mask = IB_SA_MCMEMBER_REC_MGID | IB_SA_MCMEMBER_REC_PORT_GID |
			       IB_SA_MCMEMBER_REC_PKEY | IB_SA_MCMEMBER_REC_JOIN_STATE |
			       IB_SA_MCMEMBER_REC_QKEY | IB_SA_MCMEMBER_REC_SL |
			       IB_SA_MCMEMBER_REC_FLOW_LABEL | IB_SA_MCMEMBER_REC_TRAFFIC_CLASS;
	bool ipoib = mc->id->id.ps == RDMA_PS_IPOIB;
	struct ib_sa_mcmember_rec rec;
	struct ib_sa_multicast *sa;
	int err = cma_mcast_ib_broadcast(mc->id, device, &rec);

	if (err < 0)
		return err;
	rec.mgid = mc->mgid;
	rec.port_gid = mc->id->id.route.addr.sgid;
	rec.join_state = mc->join_state;
	if (mc->id->qkey != 0 || !ipoib)
		rec.qkey = htobe32(cma_qkey(mc->id));
	if (ipoib)
		mask |= IB_SA_MCMEMBER_REC_RATE | IB_SA_MCMEMBER_REC_RATE_SELECTOR |
			IB_SA_MCMEMBER_REC_MTU | IB_SA_MCMEMBER_REC_MTU_SELECTOR |
			IB_SA_MCMEMBER_REC_HOP_LIMIT;
	sa = ib_sa_join_multicast(&cma.sa, device, mc->id->id.port_num, &rec, mask, 0,
				  cma_mcast_ib_result, mc);
	if (IS_ERR(sa))
		return (int)PTR_ERR(sa);
	lock_acquire(&cma.lock);
	mc->sa = sa;
	lock_release(&cma.lock);
	return 0;
}

int cma_mcast_ib_event(const struct cma_mcast *mc, struct ib_device *device,
		       struct rdma_ud_param *out)
{
	struct cma_id *id = mc->id;
	struct ib_sa_mcmember_rec rec;
	u32 qkey;

	lock_acquire(&cma.lock);
	rec = mc->rec;
	lock_release(&cma.lock);
	qkey = be32toh(rec.qkey);
	if (id->qkey != 0 && id->qkey != qkey)
		return -EINVAL; /* the queue pair has another one */
	id->qkey = qkey;
	out->qkey = qkey;
	return ib_init_ah_from_mcmember(device, id->id.port_num, &rec, &out->ah_attr);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Takes what is to be ended; until cma_mcast_ib_end no one else ends the membership. */
static struct ib_sa_multicast *cma_mcast_ib_take(struct cma_mcast *mc) REQUIRES(cma.lock)
{
	struct ib_sa_multicast *sa = mc->sa;

	mc->sa = NULL;
	mc->ending |= sa != NULL;
	return sa;
}

static void cma_mcast_ib_end(struct cma_mcast *mc, struct ib_sa_multicast *sa)
{
	ib_sa_free_multicast(sa);
	lock_acquire(&cma.lock);
	mc->ending = false;
	cond_wake(&mc->id->idle);
	lock_release(&cma.lock);
}

void cma_mcast_ib_leave(struct cma_mcast *mc)
{
	struct ib_sa_multicast *sa;

	lock_acquire(&cma.lock);
	while (mc->ending)
		cond_wait(&mc->id->idle, &cma.lock);
	sa = cma_mcast_ib_take(mc);
	lock_release(&cma.lock);
	if (sa != NULL)
		cma_mcast_ib_end(mc, sa);
}

void cma_mcast_device_gone(struct cma_id *id)
{
	struct cma_mcast *found;
	struct ib_sa_multicast *sa;

	do {
		found = NULL;
		sa = NULL;
		lock_acquire(&cma.lock);
		list_for_each(mc, &id->groups, struct cma_mcast, node)
			if (found == NULL && mc->sa != NULL)
				found = mc;
		if (found != NULL)
			sa = cma_mcast_ib_take(found);
		lock_release(&cma.lock);
		if (sa != NULL)
			cma_mcast_ib_end(found, sa);
	} while (sa != NULL);
}
