/* group.c: multicast groups: the broadcast group of the partition, which gives the others their
 * parameters; those to which the stack above listens; those to which it only sends.
 *
 * A membership that is lost (another subnet manager, a link that was down) is begun anew; what was
 * known of the group is used meanwhile.
 * In:    addresses, frames, answers of the SA    Out: memberships, frames
 * Runs:  joining and leaving on the thread of works; sending anywhere    Locks: ipoib.lock
 * Spec:  RFC 4391, 5 (joining) and 7 (sending)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ulp/ipoib/ipoib_priv.h"

#define GROUP_FIRST_WAIT_NS (NS_PER_S / 4)
#define GROUP_LAST_WAIT_NS (16 * NS_PER_S)
#define GROUP_UNUSED_NS (60 * NS_PER_S)

static const u8 group_broadcast[16] = { [10] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
static const u8 group_all_v4[16] = { [10] = 0xff, 0xff, 224, 0, 0, 1 };
static const u8 group_all_v6[16] = { 0xff, 2, [15] = 1 };

static struct ipoib_group *ipoib_group_first(struct ipoib *ip) REQUIRES(ip->lock)
{
	return list_empty(&ip->groups) ? NULL : list_first(&ip->groups, struct ipoib_group, node);
}

static bool ipoib_group_is_broadcast(struct ipoib *ip, const struct ipoib_group *g)
	REQUIRES(ip->lock)
{
	return ipoib_group_first(ip) == g;
}

static struct ipoib_group *ipoib_group_find(struct ipoib *ip, const u8 mgid[16]) REQUIRES(ip->lock)
{
	list_for_each(g, &ip->groups, struct ipoib_group, node)
		if (memcmp(g->mgid.raw, mgid, 16) == 0)
			return g;
	return NULL;
}

/* NULL: there is no room. */
static struct ipoib_group *ipoib_group_new(struct ipoib *ip, const u8 mgid[16]) REQUIRES(ip->lock)
{
	struct ipoib_group *g =
		ip->group_count < IPOIB_ALL_GROUPS ? calloc(1, sizeof(*g)) : NULL;

	if (g == NULL)
		return NULL;
	g->ip = ip;
	memcpy(g->mgid.raw, mgid, 16);
	g->wait_ns = GROUP_FIRST_WAIT_NS;
	g->used_ns = clock_now_ns();
	ipoib_wait_init(&g->waiting);
	list_push_back(&ip->groups, &g->node);
	ip->group_count++;
	return g;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void ipoib_group_flush(struct ipoib *ip, struct ipoib_group *g) REQUIRES(ip->lock)
{
	struct ipoib_buffer *b;

	while ((b = ipoib_wait_pop(ip, &g->waiting)) != NULL)
		ipoib_ring_post(ip, b, g->ah, IPOIB_QPN_MULTICAST);
}

void ipoib_group_send(struct ipoib *ip, const u8 addr[16], struct ipoib_buffer *b)
{
	struct ipoib_group *g;
	u8 mgid[16];

	ipoib_mgid(addr, ip->pkey, 2, mgid);
	g = ipoib_group_find(ip, mgid);
	if (g == NULL && ip->link) {
		g = ipoib_group_new(ip, mgid);
		ipoib_kick(ip);
	}
	if (g == NULL) {
		ipoib_ring_drop(ip, b, ip->link ? IPOIB_DROP_ROOM : IPOIB_DROP_LINK);
		return;
	}
	g->used_ns = clock_now_ns();
	if (g->ah != NULL) {
		ipoib_ring_post(ip, b, g->ah, IPOIB_QPN_MULTICAST);
		return;
	}
	ipoib_wait_push(ip, &g->waiting, b);
	/* an idle group that nobody was in may have members by now */
	if (g->state == GROUP_IDLE)
		ipoib_kick(ip);
}

/* ---- which groups ---------------------------------------------------------------------------- */

static void ipoib_group_want(struct ipoib *ip, const u8 addr[16]) REQUIRES(ip->lock)
{
	struct ipoib_group *g;
	u8 mgid[16];

	ipoib_mgid(addr, ip->pkey, 2, mgid);
	g = ipoib_group_find(ip, mgid);
	if (g == NULL)
		g = ipoib_group_new(ip, mgid);
	if (g != NULL)
		g->wanted = true;
}

/* The broadcast group comes first: it is the first that is ever wanted. */
static void ipoib_group_want_all(struct ipoib *ip) REQUIRES(ip->lock)
{
	u8 solicited[16];

	list_for_each(g, &ip->groups, struct ipoib_group, node)
		g->wanted = false;
	ipoib_group_want(ip, group_broadcast);
	ipoib_group_want(ip, group_all_v4);
	for (u32 i = 0; i < ip->prefix_count; i++) {
		if (ipoib_ip_is_v4(ip->prefix[i].ip))
			continue;
		ipoib_group_want(ip, group_all_v6);
		ipoib_ip_solicited(ip->prefix[i].ip, solicited);
		ipoib_group_want(ip, solicited);
	}
	for (u32 i = 0; i < ip->listen_count; i++)
		ipoib_group_want(ip, ip->listens[i]);
	ip->groups_changed = false;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* The answer of the SA, or news of it later. */
static int ipoib_group_told(int status, struct ib_sa_multicast *member)
{
	struct ipoib_group *g = member->context;
	struct ipoib *ip = g->ip;

	lock_acquire(&ip->lock);
	if (status == 0) {
		g->status = 0;
		g->state = GROUP_ANSWERED;
	} else {
		g->status = status;
		g->lost = true;
	}
	ipoib_kick(ip);
	lock_release(&ip->lock);
	return 0;
}

static ib_sa_comp_mask ipoib_group_fill(struct ipoib *ip, const struct ipoib_group *g,
					struct ib_sa_mcmember_rec *rec) REQUIRES(ip->lock)
{
	const struct ib_sa_mcmember_rec *b = &ip->broadcast;
	ib_sa_comp_mask mask = IB_SA_MCMEMBER_REC_MGID | IB_SA_MCMEMBER_REC_PORT_GID |
			       IB_SA_MCMEMBER_REC_PKEY | IB_SA_MCMEMBER_REC_JOIN_STATE;

	*rec = (struct ib_sa_mcmember_rec){ .mgid = g->mgid,
					    .pkey = htobe16(ip->pkey),
					    .join_state = g->full ? IB_SA_FULL_MEMBER
								  : IB_SA_SEND_ONLY_NON_MEMBER };
	memcpy(rec->port_gid.raw, ipoib_hw_gid(&ip->own), 16);
	if (ipoib_group_is_broadcast(ip, g))
		return mask;
	rec->qkey = b->qkey;
	rec->mtu_selector = rec->rate_selector = IB_SA_EQ;
	rec->mtu = b->mtu;
	rec->rate = b->rate;
	rec->traffic_class = b->traffic_class;
	rec->sl = b->sl;
	rec->flow_label = b->flow_label;
	rec->hop_limit = b->hop_limit;
	return mask | IB_SA_MCMEMBER_REC_QKEY | IB_SA_MCMEMBER_REC_MTU_SELECTOR |
	       IB_SA_MCMEMBER_REC_MTU | IB_SA_MCMEMBER_REC_RATE_SELECTOR |
	       IB_SA_MCMEMBER_REC_RATE | IB_SA_MCMEMBER_REC_TRAFFIC_CLASS |
	       IB_SA_MCMEMBER_REC_SL | IB_SA_MCMEMBER_REC_FLOW_LABEL |
	       IB_SA_MCMEMBER_REC_HOP_LIMIT;
}

static void ipoib_group_wait(struct ipoib *ip, struct ipoib_group *g, u64 now) REQUIRES(ip->lock)
{
	g->state = GROUP_IDLE;
	g->again_ns = now + g->wait_ns;
	g->wait_ns = MIN(2 * g->wait_ns, GROUP_LAST_WAIT_NS);
	if (g->ah == NULL)
		ipoib_wait_drop(ip, &g->waiting, IPOIB_DROP_GROUP);
}

/* The callback waits for the lock, and so comes behind this. */
static void ipoib_group_join(struct ipoib *ip, struct ipoib_group *g, u64 now) REQUIRES(ip->lock)
{
	struct ib_sa_mcmember_rec rec;
	ib_sa_comp_mask mask;

	g->full = g->wanted;
	g->lost = false;
	g->state = GROUP_JOINING;
	mask = ipoib_group_fill(ip, g, &rec);
	g->member = ib_sa_join_multicast(&ip->sa, ip->device, ip->config.port, &rec, mask,
					 0, ipoib_group_told, g);
	if (!IS_ERR(g->member))
		return;
	g->member = NULL;
	ipoib_group_wait(ip, g, now);
}

/* What the broadcast group says holds for the interface. */
static int ipoib_group_take_broadcast(struct ipoib *ip, const struct ib_sa_mcmember_rec *rec)
	EXCLUDES(ip->lock)
{
	struct ib_qp_attr attr = { .qkey = be32toh(rec->qkey) };
	int err = rec->mtu < IB_MTU_256 || rec->mtu > IB_MTU_4096 ? -EINVAL : 0;

	if (err == 0)
		err = ib_modify_qp(ip->qp, &attr, IB_QP_QKEY);
	if (err != 0)
		return err;
	lock_acquire(&ip->lock);
	ip->broadcast = *rec;
	ip->qkey = attr.qkey;
	ip->mtu = (128u << rec->mtu) - IPOIB_HEAD;
	lock_release(&ip->lock);
	return 0;
}

/* Attaches the queue pair, and makes the handle. 0 or a negative errno. */
static int ipoib_group_enter(struct ipoib_group *g, bool is_broadcast) EXCLUDES(g->ip->lock)
{
	struct ib_sa_mcmember_rec rec = g->member->rec;
	struct ipoib *ip = g->ip;
	struct ib_ah_attr attr;
	struct ib_ah *ah, *old;
	int err = is_broadcast ? ipoib_group_take_broadcast(ip, &rec) : 0;

	if (err == 0 && g->full && !g->attached) {
		g->mlid = be16toh(rec.mlid);
		err = ib_attach_mcast(ip->qp, &g->mgid, g->mlid);
		g->attached = err == 0;
	}
	if (err == 0)
		err = ib_init_ah_from_mcmember(ip->device, ip->config.port, &rec, &attr);
	if (err != 0)
		return err;
	ah = ib_create_ah(ip->pd, &attr);
	if (IS_ERR(ah))
		return (int)PTR_ERR(ah);
	lock_acquire(&ip->lock);
	old = g->ah;
	g->ah = ah;
	g->state = GROUP_JOINED;
	g->wait_ns = GROUP_FIRST_WAIT_NS;
	ipoib_group_flush(ip, g);
	lock_release(&ip->lock);
	if (old != NULL)
		ib_destroy_ah(old);
	return 0;
}

static void ipoib_group_link_up(struct ipoib *ip)
{
	struct ipoib_hw own;
	bool was;
	u32 mtu;

	lock_acquire(&ip->lock);
	was = ip->link;
	ip->link = true;
	ip->announce = true;
	own = ip->own;
	mtu = ip->mtu;
	lock_release(&ip->lock);
	if (!was)
		ip->ops->link(ip->arg, true, &own, mtu);
}

/* Ends the membership at the SA; what is known of the group stays. */
static void ipoib_group_leave(struct ipoib_group *g) EXCLUDES(g->ip->lock)
{
	if (g->member != NULL)
		ib_sa_free_multicast(g->member);
	g->member = NULL;
}

/* The group is of no use any more. */
static void ipoib_group_free(struct ipoib_group *g) EXCLUDES(g->ip->lock)
{
	struct ipoib *ip = g->ip;

	ipoib_group_leave(g);
	if (g->attached)
		(void)ib_detach_mcast(ip->qp, &g->mgid, g->mlid);
	lock_acquire(&ip->lock);
	ipoib_wait_drop(ip, &g->waiting, IPOIB_DROP_GROUP);
	list_remove(&g->node);
	ip->group_count--;
	lock_release(&ip->lock);
	if (g->ah != NULL)
		ib_destroy_ah(g->ah);
	free(g);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool ipoib_group_is_unused(const struct ipoib_group *g, u64 now)
{
	return !g->wanted && (g->full || now > g->used_ns + GROUP_UNUSED_NS);
}

/* A group that is only sent to is asked for when there is something to send. */
static bool ipoib_group_is_due(struct ipoib *ip, const struct ipoib_group *g, u64 now)
	REQUIRES(ip->lock)
{
	return g->state == GROUP_IDLE && now >= g->again_ns && ip->active &&
	       (ipoib_group_is_broadcast(ip, g) || ip->link) &&
	       (g->wanted || g->waiting.count > 0 || g->ah != NULL);
}

static void ipoib_group_answered(struct ipoib *ip, struct ipoib_group *g, bool is_broadcast,
				 u64 now)
{
	int err = ipoib_group_enter(g, is_broadcast);

	if (err == 0 && is_broadcast)
		ipoib_group_link_up(ip);
	if (err == 0)
		return;
	log_warn("ipoib", "a multicast group that was joined cannot be used: error %d", -err);
	ipoib_group_leave(g);
	lock_acquire(&ip->lock);
	ipoib_group_wait(ip, g, now);
	lock_release(&ip->lock);
}

static void ipoib_group_again(struct ipoib *ip, struct ipoib_group *g, u64 now)
{
	ipoib_group_leave(g);
	lock_acquire(&ip->lock);
	g->lost = false;
	if (g->status == -ENETRESET) {
		g->state = GROUP_IDLE;
		g->again_ns = now;
		g->wait_ns = GROUP_FIRST_WAIT_NS;
	} else {
		log_info("ipoib", "a multicast group is not joined: error %d", -g->status);
		ipoib_group_wait(ip, g, now);
	}
	lock_release(&ip->lock);
}

/* One thing about one group. False: nothing is left to do now. */
static bool ipoib_group_do(struct ipoib *ip, u64 now)
{
	lock_acquire(&ip->lock);
	list_for_each(g, &ip->groups, struct ipoib_group, node) {
		bool is_broadcast = ipoib_group_is_broadcast(ip, g);

		if (!is_broadcast && ipoib_group_is_unused(g, now)) {
			lock_release(&ip->lock);
			ipoib_group_free(g);
			return true;
		}
		if (g->lost || (g->wanted && !g->full && g->state == GROUP_JOINED)) {
			g->status = g->lost ? g->status : -ENETRESET;
			lock_release(&ip->lock);
			ipoib_group_again(ip, g, now);
			return true;
		}
		if (g->state == GROUP_ANSWERED) {
			lock_release(&ip->lock);
			ipoib_group_answered(ip, g, is_broadcast, now);
			return true;
		}
		if (ipoib_group_is_due(ip, g, now)) {
			ipoib_group_join(ip, g, now);
			lock_release(&ip->lock);
			return true;
		}
	}
	lock_release(&ip->lock);
	return false;
}

u64 ipoib_group_step(struct ipoib *ip, u64 now)
{
	u64 next = now + GROUP_UNUSED_NS;

	lock_acquire(&ip->lock);
	if (ip->groups_changed)
		ipoib_group_want_all(ip);
	lock_release(&ip->lock);
	while (ipoib_group_do(ip, now))
		;
	lock_acquire(&ip->lock);
	list_for_each(g, &ip->groups, struct ipoib_group, node)
		if (g->state == GROUP_IDLE && g->again_ns > now)
			next = MIN(next, g->again_ns);
	lock_release(&ip->lock);
	return next;
}

void ipoib_group_lose(struct ipoib *ip)
{
	list_for_each(g, &ip->groups, struct ipoib_group, node) {
		g->status = -ENETRESET;
		g->lost = g->state == GROUP_JOINED || g->state == GROUP_ANSWERED;
		g->again_ns = 0;
		g->wait_ns = GROUP_FIRST_WAIT_NS;
	}
}

void ipoib_group_end(struct ipoib *ip)
{
	struct ipoib_group *g;

	for (;;) {
		lock_acquire(&ip->lock);
		g = ipoib_group_first(ip);
		lock_release(&ip->lock);
		if (g == NULL)
			return;
		ipoib_group_free(g);
	}
}
