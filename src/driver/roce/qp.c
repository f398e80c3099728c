/* qp.c: queue pairs as the midlayer and the doors see them; what peers and status see of them.
 * In: verbs    Out: the engine's queue pairs, entries of the board, asynchronous events
 * Runs: any thread    Locks: id_lock for numbers
 */
#include "driver/roce/roce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/convert_attr.h"

_Static_assert(offsetof(struct board_tally, errors) == offsetof(struct ibt_counters, errors),
	       "the board shows the engine's counters");

/* ---- numbers ---- */

static int qp_take_slot(struct roce_device *dev) REQUIRES(dev->id_lock)
{
	u32 slot, n = dev->slot_count;
	int err;

	if (n == BOARD_SLOTS)
		return -ENOSPC;
	if (dev->qp_bitmap == NULL &&
	    (dev->qp_bitmap = calloc(BOARD_QPS / 64, sizeof(u64))) == NULL)
		return -ENOMEM;
	err = node_slot_take(dev->a.node, &slot);
	if (err != 0)
		return err;
	dev->slots[n] = dev->a.board->slots[n] = slot;
	dev->slot_count = n + 1;
	__atomic_store_n(&dev->a.board->slot_count, n + 1, __ATOMIC_RELEASE);
	shm_slot_own(dev->a.shm, slot);
	if (dev->paths & ROCE_PATH_UDP)
		(void)udp_slot_own(dev->a.udp, slot); /* without it there is still this host */
	/* QPNs 0, 1 and 0xffffff have meanings of their own. */
	if (slot == 0)
		dev->qp_bitmap[n * ROCE_INDEXES / 64] |= 3;
	if (slot == NODE_SLOTS - 1)
		dev->qp_bitmap[(n + 1) * ROCE_INDEXES / 64 - 1] |= 1ull << 63;
	return 0;
}

static int qp_find_free(struct roce_device *dev, u32 *index) REQUIRES(dev->id_lock)
{
	u32 limit = dev->slot_count * ROCE_INDEXES;

	for (u32 step = 0; step < limit; step++) {
		u32 i = (dev->qp_cursor + step) % limit;

		if (i % 64 == 0 && dev->qp_bitmap[i / 64] == UINT64_MAX) {
			step += 63;
			continue;
		}
		if ((dev->qp_bitmap[i / 64] & 1ull << i % 64) == 0) {
			*index = i;
			return 0;
		}
	}
	return -ENOSPC;
}

/* The next number after the one given last, so that a freed one rests. */
static int qp_take_number(struct roce_device *dev, u32 *index, u32 *qpn)
{
	int err;

	lock_acquire(&dev->id_lock);
	err = qp_find_free(dev, index);
	if (err == -ENOSPC) {
		err = qp_take_slot(dev);
		if (err == 0)
			err = qp_find_free(dev, index);
	}
	if (err == 0) {
		dev->qp_bitmap[*index / 64] |= 1ull << *index % 64;
		dev->qp_cursor = *index + 1;
		*qpn = dev->slots[*index / ROCE_INDEXES] << NODE_INDEX_BITS | *index % ROCE_INDEXES;
	}
	lock_release(&dev->id_lock);
	return err;
}

static void qp_give_number(struct roce_device *dev, u32 index)
{
	lock_acquire(&dev->id_lock);
	dev->qp_bitmap[index / 64] &= ~(1ull << index % 64);
	lock_release(&dev->id_lock);
}

/* ---- what peers see ---- */

/* Peers, this process among them, read the word first and last: the rest may only change while it
 * says that nobody is welcome. The stores release, so that whoever sees one of them sees that too
 * (direct_judge, pull_is_valid). */
static void shown_begin(struct board_qp *shown, u32 qpn, u32 pd)
{
	__atomic_store_n(&shown->word, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->pd, pd, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->peer_qpn, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->qpn, qpn, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->sgid_index, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->dgid_index, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->mtu, 0, __ATOMIC_RELAXED);
}

static void shown_connect(struct board_qp *shown, u32 type, u32 peer_qpn)
{
	if (shown->peer_qpn == peer_qpn)
		return;
	__atomic_store_n(&shown->word, board_qp_word(IB_QPS_RESET, type, 0), __ATOMIC_RELEASE);
	__atomic_store_n(&shown->peer_qpn, peer_qpn, __ATOMIC_RELEASE);
}

/* ---- callbacks of the engine ---- */

void roce_publish(void *arg, struct ibt_qp *engine)
{
	struct roce_device *dev = arg;
	struct roce_qp *qp = ibt_qp_owner(engine);
	u32 word = board_qp_word(ibt_qp_state(engine), qp->ib.qp_type, ibt_qp_access(engine));

	shown_connect(qp->shown, qp->ib.qp_type, ibt_qp_peer(engine));
	/* pairs with direct_judge and pull_is_valid */
	__atomic_store_n(&qp->shown->word, word, __ATOMIC_RELEASE);
	board_change(dev->a.board);
}

static enum ib_event_type qp_event_type(enum ibv_event_type type)
{
	return (enum ib_event_type)type; /* the same numbers up to GID_CHANGE */
}

void roce_async(void *arg, struct ibt_qp *engine, struct ibt_srq *srq, enum ibv_event_type type)
{
	struct roce_device *dev = arg;
	struct ib_event ev = { .device = &dev->ib, .event = qp_event_type(type) };

	if (engine != NULL)
		ev.element.qp = &((struct roce_qp *)ibt_qp_owner(engine))->ib;
	else
		ev.element.srq = &((struct roce_srq *)ibt_srq_owner(srq))->ib;
	ib_dispatch_event(&ev);
}

/* Who sends to another host by an address from which no datagram leaves would hear of nothing but
 * its timeouts. Once: it may be so for each datagram. */
static void route_is_missing(struct roce_device *dev, const struct path_av *av)
{
	char gid[INET6_ADDRSTRLEN];

	if (__atomic_load_n(&dev->missing_told, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&dev->missing_told, true, __ATOMIC_RELAXED);
	inet_ntop(AF_INET6, av->sgid, gid, sizeof(gid));
	log_warn("roce", "no datagram leaves this host from GID %s; `anyverbs status` says why",
		 gid);
}

struct path_dest *roce_route(void *arg, const struct path_av *av, u32 qpn)
{
	struct roce_device *dev = arg;
	bool local = (dev->paths & ROCE_PATH_SHM) != 0 && roce_is_own_gid(dev, av->dgid);
	struct path *path = local ? shm_path(dev->a.shm) : udp_path(dev->a.udp);

	if (!local &&
	    ((dev->paths & ROCE_PATH_UDP) == 0 || !udp_has_source(dev->a.udp, av->sgid))) {
		route_is_missing(dev, av);
		return NULL;
	}
	return path->ops->dest_get(path, av, qpn);
}

/* A node that is not the first of its network namespace has a loopback address only: other hosts'
 * addresses are out of its reach, for ever. */
static int route_check(struct roce_device *dev, const struct path_av *av)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];

	if ((dev->paths & ROCE_PATH_UDP) == 0 || roce_is_own_gid(dev, av->dgid) ||
	    !udp_is_confined(av->sgid, av->dgid))
		return 0;
	inet_ntop(AF_INET6, av->sgid, from, sizeof(from));
	inet_ntop(AF_INET6, av->dgid, to, sizeof(to));
	log_warn("roce",
		 "no route from GID %s, a loopback address, to %s, which is another host's; "
		 "`anyverbs status` says whose this host's addresses are",
		 from, to);
	return -ENETUNREACH;
}

/* ---- create, modify, query, destroy ---- */

static struct cq *qp_cq(struct ib_cq *ib)
{
	return &ROCE_OF(cq, ib)->q;
}

/* It and the engine's queue pair behind it. ERR_PTR. */
static struct roce_qp *qp_create_both(struct roce_device *dev, struct ib_pd *pd,
				      struct ib_qp_init_attr *init)
{
	u32 index = 0, qpn = 0;
	int err = qp_take_number(dev, &index, &qpn);
	struct board_qp *shown = &dev->a.board->qps[index];
	struct ibt_qp *engine;
	struct roce_qp *qp;
	struct ibt_qp_init e = { .type = init->qp_type,
				 .pd = ROCE_OF(pd, pd)->number,
				 .send_cq = qp_cq(init->send_cq),
				 .recv_cq = qp_cq(init->recv_cq),
				 .sq_sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR,
				 .owner_bytes = sizeof(*qp) };

	if (err != 0)
		return ERR_PTR(err);
	e.qpn = qpn;
	shown_begin(shown, e.qpn, e.pd);
	memset(&dev->a.board->tallies[index], 0, sizeof(struct board_tally));
	e.counters = (struct ibt_counters *)&dev->a.board->tallies[index];
	e.srq = init->srq == NULL ? NULL : ROCE_OF(srq, init->srq)->engine;
	e.cap = (struct ibv_qp_cap){ init->cap.max_send_wr, init->cap.max_recv_wr,
				     init->cap.max_send_sge, init->cap.max_recv_sge,
				     init->cap.max_inline_data };
	err = ibt_qp_create(dev->a.ibt, &e, &engine);
	if (err != 0) {
		qp_give_number(dev, index);
		return ERR_PTR(err);
	}
	/* Nobody asks for it while the engine's is in RESET. */
	qp = ibt_qp_owner(engine);
	qp->shown = shown;
	qp->ib.qp_num = qpn;
	qp->ib.qp_type = init->qp_type;
	init->cap = (struct ib_qp_cap){ e.cap.max_send_wr, e.cap.max_recv_wr, e.cap.max_send_sge,
					e.cap.max_recv_sge, e.cap.max_inline_data };
	roce_publish(dev, engine);
	return qp;
}

static struct ib_qp *qp_create(struct ib_pd *pd, struct ib_qp_init_attr *init)
{
	struct roce_device *dev = roce_dev(pd->device);
	struct roce_qp *qp = ERR_PTR(-ENOMEM);
	int err = roce_attach(dev);

	if (err != 0)
		return ERR_PTR(err);
	if (init->send_cq == NULL || init->recv_cq == NULL)
		return ERR_PTR(-EINVAL);
	if (__atomic_add_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED) <= ROCE_MAX_QP)
		qp = qp_create_both(dev, pd, init);
	if (IS_ERR(qp)) {
		__atomic_sub_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(PTR_ERR(qp));
	}
	qp->generation = roce_generation(dev);
	qp->init = *init;
	lock_acquire(&dev->id_lock);
	list_push_back(&dev->qps, &qp->node);
	lock_release(&dev->id_lock);
	return &qp->ib;
}

static bool qp_is_ours(const struct roce_qp *qp)
{
	return roce_is_ours(roce_the_device, qp->generation);
}

static int qp_destroy(struct ib_qp *ib)
{
	struct roce_qp *qp = ROCE_OF(qp, ib);
	struct roce_device *dev = roce_dev(ib->device);
	struct board_qp *shown = qp->shown;

	__atomic_sub_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED);
	if (!qp_is_ours(qp)) {
		ibt_qp_free_orphan(roce_engine(qp));
		return 0;
	}
	lock_acquire(&dev->id_lock);
	list_remove(&qp->node);
	lock_release(&dev->id_lock);
	__atomic_store_n(&shown->word, 0, __ATOMIC_RELEASE);
	/* What is left writes to a region, which stays registered for so long (mem_deregister). */
	(void)shm_drain(dev->a.shm, SHM_ANY_KEY, ib->qp_num);
	ibt_qp_destroy(roce_engine(qp)); /* and `qp` with it */
	shown_begin(shown, 0, 0);
	qp_give_number(dev, (u32)(shown - dev->a.board->qps));
	return 0;
}

/* The address vector's destination, resolved: the caller may sleep. NULL in *dest without
 * IB_QP_AV. */
static int qp_resolve(struct roce_device *dev, const struct roce_qp *qp,
		      const struct ib_qp_attr *attr, int mask, u32 dqpn, struct path_av *av,
		      struct path_dest **dest)
{
	int err;

	*dest = NULL;
	if ((mask & IB_QP_AV) == 0)
		return 0;
	err = roce_resolve_av(dev, &attr->ah_attr, av);
	/* A connection has one other end. */
	if (err == 0 && node_is_mcast(av->dgid))
		err = -EINVAL;
	if (err == 0)
		err = route_check(dev, av);
	if (err != 0)
		return err;
	av->traffic_class |= PATH_ECN_CAPABLE;
	if (av->sport == 0)
		av->sport = roce_sport(roce_flow_label(qp->ib.qp_num, dqpn));
	*dest = roce_route(dev, av, dqpn);
	if (*dest == NULL) {
		/* No way leads there: somebody who never answers. */
		struct path *path = shm_path(dev->a.shm);

		*dest = path->ops->dest_nowhere(path);
		return *dest == NULL ? -ENOMEM : 0;
	}
	(*dest)->path->ops->resolve(*dest);
	return 0;
}

/* Where captures say that packets go and come from. */
static void qp_show_way(struct roce_device *dev, struct roce_qp *qp, const struct ib_qp_attr *attr,
			int mask)
{
	int dgid = mask & IB_QP_AV ? roce_find_gid(dev, attr->ah_attr.grh.dgid.raw) : -1;

	if (mask & IB_QP_AV) {
		__atomic_store_n(&qp->shown->sgid_index, attr->ah_attr.grh.sgid_index,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&qp->shown->dgid_index, dgid < 0 ? BOARD_NO_GID : (u8)dgid,
				 __ATOMIC_RELAXED);
	}
	if (mask & IB_QP_PATH_MTU)
		__atomic_store_n(&qp->shown->mtu, (u8)attr->path_mtu, __ATOMIC_RELAXED);
}

/* -EAGAIN: the engine has moved the QP to another state than the masks were checked for. */
static int qp_modify_once(struct roce_device *dev, struct roce_qp *qp,
			  const struct ib_qp_attr *attr, int mask) REQUIRES(qp->modify_lock)
{
	struct ibt_qp *engine = roce_engine(qp);
	enum ib_qp_state now = (enum ib_qp_state)ibt_qp_state(engine);
	enum ib_qp_state from = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : now;
	enum ib_qp_state to = mask & IB_QP_STATE ? attr->qp_state : from;
	struct path_dest *dest;
	struct ibv_qp_attr a;
	struct path_av av;
	int err;

	if (!ib_modify_qp_is_ok(from, to, qp->ib.qp_type, (enum ib_qp_attr_mask)mask))
		return -EINVAL;
	err = qp_resolve(dev, qp, attr, mask,
			 mask & IB_QP_DEST_QPN ? attr->dest_qp_num : ibt_qp_peer(engine), &av,
			 &dest);
	if (err != 0)
		return err;
	qp_show_way(dev, qp, attr, mask);
	ib_convert_qp_attr(attr, &a);
	a.cur_qp_state = (enum ibv_qp_state)from;
	err = ibt_qp_modify(engine, &a, mask | IBV_QP_CUR_STATE, &av, dest);
	if (err == -EINVAL && from == now && (enum ib_qp_state)ibt_qp_state(engine) != now)
		return -EAGAIN;
	if (err == 0 && (mask & IB_QP_STATE) != 0 && (to == IB_QPS_ERR || to == IB_QPS_RESET))
		(void)shm_drain(dev->a.shm, SHM_ANY_KEY, qp->ib.qp_num);
	return err;
}

static int qp_modify(struct ib_qp *ib, struct ib_qp_attr *attr, int mask)
{
	struct roce_qp *qp = ROCE_OF(qp, ib);
	int err;

	if (!qp_is_ours(qp))
		return -EIO;
	lock_acquire(&qp->modify_lock);
	do
		err = qp_modify_once(roce_dev(ib->device), qp, attr, mask);
	while (err == -EAGAIN);
	lock_release(&qp->modify_lock);
	return err;
}

static int qp_query(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	struct roce_qp *qp = ROCE_OF(qp, ib);
	struct ibv_qp_attr a;

	ibt_qp_query(roce_engine(qp), &a);
	ib_convert_ibv_qp_attr(&a, attr);
	attr->cap = qp->init.cap;
	*init = qp->init;
	init->event_handler = ib->event_handler;
	init->qp_context = ib->qp_context;
	return 0;
}

/* ---- posting ---- */

int roce_uverbs_post_send(struct ib_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return ibt_post_send(roce_engine(ROCE_OF(qp, ib)), wr, bad, roce_av_of);
}

int roce_uverbs_check_send(struct ib_qp *ib, const struct ibv_send_wr *wr)
{
	return ibt_check_send(roce_engine(ROCE_OF(qp, ib)), wr, roce_av_of);
}

int roce_uverbs_post_recv(struct ib_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ibt_post_recv(roce_engine(ROCE_OF(qp, ib)), wr, bad);
}

void roce_fill_qp(struct ib_device *ib)
{
	ib->create_qp = qp_create;
	ib->modify_qp = qp_modify;
	ib->query_qp = qp_query;
	ib->destroy_qp = qp_destroy;
}
