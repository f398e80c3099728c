/* qp.c: the methods of queue pairs, and their entries on the board.
 * In: verbs    Out: the engine's queue pairs, entries of the board, asynchronous events
 * Runs: any thread    Locks: list_lock for the device's list
 */
#include "driver/soft/raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/convert_attr.h"
#include "path/shm/traffic.h"

enum { QP_DATAGRAMS_MS = 500, QP_STALE_MS = 100, QP_STALE_BATCH = 64 };

_Static_assert(offsetof(struct board_tally, errors) == offsetof(struct ibt_counters, errors),
	       "the board shows the engine's counters");
_Static_assert(offsetof(struct board_tally, last_error) ==
			       offsetof(struct ibt_counters, last_error) &&
		       (u32)BOARD_ERROR_OF_RECEIVE == (u32)IBT_ERROR_OF_RECEIVE,
	       "the board shows the engine's last error");
_Static_assert(offsetof(struct board_tally, reads) == offsetof(struct ibt_counters, reads) &&
		       sizeof(struct ibt_counters) <= sizeof(struct board_tally),
	       "the board shows READs, too");

/* ---- what peers see ---- */

/* Peers, this process among them, load the word first and last. The other fields change only while
 * the word is 0 or that of RESET. Each store releases, so a peer that sees one of them sees that
 * word, too (direct_judge, direct_pull_is_valid). */
static void shown_begin(struct board_qp *shown, u32 qpn, u32 pd)
{
	__atomic_store_n(&shown->word, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->pd, pd, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->peer_qpn, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->qpn, qpn, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->from, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->to, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->mtu, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->link, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->pkey, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->inside, 0, __ATOMIC_RELAXED);
}

static void shown_connect(struct board_qp *shown, u32 type, u32 peer_qpn)
{
	if (shown->peer_qpn == peer_qpn)
		return;
	__atomic_store_n(&shown->word, board_qp_word(IB_QPS_RESET, type, 0), __ATOMIC_RELEASE);
	__atomic_store_n(&shown->peer_qpn, peer_qpn, __ATOMIC_RELEASE);
}

/* What is tallied of traffic. Others read it at any time. */
static void shown_clear_traffic(u32 index)
{
	struct board_tally *t = &the_seat.a.board->tallies[index];
	u64 *counts[] = { &t->sent,	      &t->received, &t->sent_bytes,
			  &t->received_bytes, &t->reads,    &t->read_bytes };

	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		__atomic_store_n(counts[i], 0, __ATOMIC_RELAXED);
}

/* The `link` of a RoCE device's queue pair. `dest`: of its connection; NULL: it has none yet. */
static u8 shown_link(const struct soft_device *dev, u32 type, const struct path_dest *dest)
{
	u32 link = dev->index << BOARD_DEVICE_SHIFT;

	if (type == IB_QPT_UD)
		link |= BOARD_DATAGRAMS;
	else if (dest != NULL && dest->path->guarantees.reliable)
		link |= BOARD_TALLIED;
	return (u8)link;
}

/* ---- callbacks of the engine ---- */

void soft_publish(void *arg, struct ibt_qp *engine)
{
	struct seat *s = arg;
	struct soft_qp *qp = ibt_qp_owner(engine);
	/* the midlayer fills in qp->ib only after it has been created */
	enum ib_qp_type type = (enum ib_qp_type)ibt_qp_type(engine);
	u32 word = board_qp_word(ibt_qp_state(engine), type, ibt_qp_access(engine));

	shown_connect(qp->shown, type, ibt_qp_peer(engine));
	/* pairs with direct_judge and direct_pull_is_valid */
	__atomic_store_n(&qp->shown->word, word, __ATOMIC_RELEASE);
	board_change(s->a.board);
}

static enum ib_event_type soft_qp_event_type(enum ibv_event_type type)
{
	return (enum ib_event_type)type; /* the same numbers up to GID_CHANGE */
}

void soft_async(void *seat, struct ibt_qp *engine, struct ibt_srq *srq, enum ibv_event_type type)
{
	struct ib_event ev = { .event = soft_qp_event_type(type) };

	if (engine != NULL) {
		ev.element.qp = &((struct soft_qp *)ibt_qp_owner(engine))->ib;
		ev.device = ev.element.qp->device;
	} else {
		ev.element.srq = &((struct soft_srq *)ibt_srq_owner(srq))->ib;
		ev.device = ev.element.srq->device;
	}
	ib_dispatch_event(&ev);
}

/* ---- create, modify, query, destroy ---- */

static struct cq *soft_qp_cq(struct ib_cq *ib)
{
	return ib == NULL ? NULL : &SOFT_OF(cq, ib)->q;
}

/* Creates the device's part and the engine's queue pair. ERR_PTR. */
static struct soft_qp *soft_qp_create_both(const struct soft_device *dev, struct ib_pd *pd,
					   struct ib_qp_init_attr_ex *ex)
{
	struct ib_qp_init_attr *init = &ex->base;
	u32 index = 0, qpn = 0;
	int err = seat_qpn_take(&the_seat, &index, &qpn);
	struct board_qp *shown = &the_seat.a.board->qps[index];
	struct ibt_qp *engine;
	struct soft_qp *qp;
	struct ibt_qp_init e = { .type = init->qp_type,
				 .pd = pd == NULL ? 0 : SOFT_OF(pd, pd)->number,
				 .xrcd = ex->xrcd == NULL ? 0 : ex->xrcd->number,
				 .send_cq = soft_qp_cq(init->send_cq),
				 .recv_cq = soft_qp_cq(init->recv_cq),
				 .sq_sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR,
				 .memory = ex->memory,
				 .owner_bytes = sizeof(*qp) };

	if (err != 0)
		return ERR_PTR(err);
	e.qpn = qpn;
	shown_begin(shown, e.qpn, e.pd);
	memset(&the_seat.a.board->tallies[index], 0, sizeof(struct board_tally));
	e.device = dev->kind->lid_mask == NULL ? (u8)dev->index : IBT_NO_DEVICE;
	e.counters = (struct ibt_counters *)&the_seat.a.board->tallies[index];
	e.srq = init->srq == NULL ? NULL : SOFT_OF(srq, init->srq)->engine;
	e.cap = (struct ibv_qp_cap){ init->cap.max_send_wr, init->cap.max_recv_wr,
				     init->cap.max_send_sge, init->cap.max_recv_sge,
				     init->cap.max_inline_data };
	err = ibt_qp_create(the_seat.a.ibt, &e, &engine);
	if (err != 0) {
		seat_qpn_give(&the_seat, index);
		return ERR_PTR(err);
	}
	/* In RESET the engine calls nothing that uses the owner. */
	qp = ibt_qp_owner(engine);
	qp->shown = shown;
	__atomic_store_n(&shown->inside, (u64)(uintptr_t)engine, __ATOMIC_RELAXED);
	qp->ib.qp_num = qpn;
	qp->ib.qp_type = init->qp_type;
	init->cap = (struct ib_qp_cap){ e.cap.max_send_wr, e.cap.max_recv_wr, e.cap.max_send_sge,
					e.cap.max_recv_sge, e.cap.max_inline_data };
	soft_publish(&the_seat, engine);
	return qp;
}

/* An adapter has sent a datagram long before the call that destroys its queue pair gets there. Here
 * the first one to a process may still wait for the link to it. */
static void soft_qp_await_datagrams(struct soft_qp *qp)
{
	for (int ms = 0; ms < QP_DATAGRAMS_MS && ibt_qp_has_datagrams(soft_engine(qp)); ms++)
		clock_sleep_ns(NS_PER_MS);
}

static bool soft_has_datagrams(struct soft_device *dev)
{
	bool has = false;

	lock_acquire(&dev->list_lock);
	list_for_each(qp, &dev->qps, struct soft_qp, node)
		has |= soft_is_ours(qp->generation) && ibt_qp_has_datagrams(soft_engine(qp));
	lock_release(&dev->list_lock);
	return has;
}

void soft_await_datagrams(struct soft_device *dev)
{
	for (int ms = 0; ms < QP_DATAGRAMS_MS && soft_has_datagrams(dev); ms++)
		clock_sleep_ns(NS_PER_MS);
}

static const struct board_tally *soft_qp_tally(const struct soft_qp *qp)
{
	return &the_seat.a.board->tallies[qp->shown - the_seat.a.board->qps];
}

/* READs first: they are among what is sent. */
static struct soft_load soft_qp_load(const struct soft_qp *qp)
{
	const struct board_tally *t = soft_qp_tally(qp);
	struct soft_load now;

	now.reads = __atomic_load_n(&t->reads, __ATOMIC_RELAXED);
	now.read_bytes = __atomic_load_n(&t->read_bytes, __ATOMIC_RELAXED);
	now.sent = __atomic_load_n(&t->sent, __ATOMIC_RELAXED);
	now.sent_bytes = __atomic_load_n(&t->sent_bytes, __ATOMIC_RELAXED);
	return now;
}

static void soft_qp_charge_way(struct soft_device *dev, struct soft_qp *qp)
	REQUIRES(qp->way_lock)
{
	struct soft_load now, before;

	if (qp->way == NULL)
		return;
	now = soft_qp_load(qp);
	before = qp->way->charged;
	qp->way->charged = now;
	if (now.sent == before.sent && now.sent_bytes == before.sent_bytes)
		return;
	dev->kind->charge(dev, qp->way,
			  &(struct soft_load){ .sent = now.sent - before.sent,
					       .sent_bytes = now.sent_bytes - before.sent_bytes,
					       .reads = now.reads - before.reads,
					       .read_bytes = now.read_bytes - before.read_bytes });
}

void soft_qp_charge(struct soft_device *dev, struct soft_qp *qp)
{
	if (!lock_try(&qp->way_lock))
		return;
	soft_qp_charge_way(dev, qp);
	lock_release(&qp->way_lock);
}

static void soft_qp_set_way(struct soft_qp *qp, const struct path_av *av)
	REQUIRES(qp->way_lock)
{
	u8 mtu = qp->shown->mtu;

	if (qp->way == NULL) {
		qp->way = calloc(1, sizeof(*qp->way));
		if (qp->way == NULL)
			return;
		qp->way->charged = soft_qp_load(qp);
	}
	qp->way->av = *av;
	qp->way->mtu = mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 4096 : 128u << mtu;
}

/* Without memory the routes of a connection are not watched. `av` NULL: the way is the one
 * before. */
static void soft_qp_keep_way(struct soft_device *dev, struct soft_qp *qp,
			     const struct path_av *av, enum ib_qp_state to)
{
	if (dev->kind->reaches == NULL)
		return;
	lock_acquire(&qp->way_lock);
	if (soft_is_ours(qp->generation))
		soft_qp_charge_way(dev, qp);
	if (av != NULL)
		soft_qp_set_way(qp, av);
	if (to == IB_QPS_RESET) {
		free(qp->way);
		qp->way = NULL;
	}
	lock_release(&qp->way_lock);
}

static int soft_qp_destroy(struct ib_qp *ib)
{
	struct soft_qp *qp = SOFT_OF(qp, ib);
	struct soft_device *dev = soft_dev(ib->device);
	struct board_qp *shown;

	if (ib->qp_type == IB_QPT_RAW_PACKET)
		return soft_raw_destroy(ib);
	shown = qp->shown;
	__atomic_sub_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED);
	soft_qp_keep_way(dev, qp, NULL, IB_QPS_RESET);
	if (!soft_is_ours(qp->generation)) {
		ibt_qp_free_orphan(soft_engine(qp));
		return 0;
	}
	soft_qp_await_datagrams(qp);
	lock_acquire(&dev->list_lock);
	list_remove(&qp->node);
	lock_release(&dev->list_lock);
	__atomic_store_n(&shown->word, 0, __ATOMIC_RELEASE);
	/* A peer that was not waited for still writes to a region, and mem_deregister keeps that
	 * region. */
	(void)shm_drain(the_seat.a.shm, SHM_ANY_KEY, ib->qp_num);
	ibt_qp_destroy(soft_engine(qp)); /* frees `qp`, too */
	board_traffic_end(the_seat.a.board, (u32)(shown - the_seat.a.board->qps));
	shown_begin(shown, 0, 0);
	seat_qpn_give(&the_seat, (u32)(shown - the_seat.a.board->qps));
	return 0;
}

/* Of a new queue pair: which device and link layer it is of. */
static void soft_qp_show_kind(const struct soft_device *dev, const struct soft_qp *qp)
{
	bool has_lids = dev->kind->lid_mask != NULL;
	u8 link = has_lids ? BOARD_LIDS : shown_link(dev, qp->ib.qp_type, NULL);
	struct board *b = the_seat.a.board;

	/* pairs with tally_kind_of */
	__atomic_store_n(&qp->shown->link, link, __ATOMIC_RELEASE);
	if (!has_lids)
		board_traffic_begin(b, (u32)(qp->shown - b->qps));
}

/* Has it the queues and the domain that its type needs? */
static int soft_qp_check_init(const struct ib_qp_init_attr_ex *init)
{
	const struct ib_qp_init_attr *base = &init->base;
	bool initiator = base->qp_type == IB_QPT_XRC_INI;

	if (init->create_flags != 0)
		return -EOPNOTSUPP;
	if (base->qp_type == IB_QPT_XRC_TGT)
		return init->xrcd == NULL ? -EINVAL : 0;
	return base->send_cq == NULL || (base->recv_cq == NULL && !initiator) ? -EINVAL : 0;
}

struct ib_qp *soft_create_qp(struct ib_pd *pd, struct ib_qp_init_attr_ex *init)
{
	struct soft_device *dev = soft_dev(pd == NULL ? init->xrcd->device : pd->device);
	struct soft_qp *qp = ERR_PTR(-ENOMEM);
	int err = soft_attach(dev);

	if (err == 0 && init->base.qp_type == IB_QPT_RAW_PACKET)
		return soft_raw_create(pd, init);
	if (err == 0)
		err = soft_qp_check_init(init);
	if (err != 0)
		return ERR_PTR(err);
	if (__atomic_add_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED) <= SOFT_MAX_QP)
		qp = soft_qp_create_both(dev, pd, init);
	if (IS_ERR(qp)) {
		__atomic_sub_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(PTR_ERR(qp));
	}
	qp->generation = seat_generation(&the_seat);
	qp->cap = init->base.cap;
	qp->sq_sig_type = init->base.sq_sig_type;
	soft_qp_show_kind(dev, qp);
	lock_acquire(&dev->list_lock);
	list_push_back(&dev->qps, &qp->node);
	soft_qp_look_at_way(dev, qp);
	err = soft_check(&dev->ib); /* else soft_unplug finds it on the list */
	lock_release(&dev->list_lock);
	if (err != 0) {
		qp->ib.device = &dev->ib;
		soft_qp_destroy(&qp->ib);
		return ERR_PTR(err);
	}
	return &qp->ib;
}

static struct ib_qp *soft_qp_create(struct ib_pd *pd, struct ib_qp_init_attr *init)
{
	struct ib_qp_init_attr_ex ex = { .size = sizeof(ex), .base = *init };
	struct ib_qp *qp = soft_create_qp(pd, &ex);

	if (!IS_ERR(qp))
		init->cap = ex.base.cap;
	return qp;
}

static u16 soft_qp_gid_number(const struct soft_device *dev, const u8 gid[16])
{
	int found = dev->kind->find_gid(gid);

	return found < 0 ? BOARD_NO_GID : (u16)found;
}

/* A resolved path: for the engine to take over. */
struct soft_path {
	struct path_av av;
	struct path_dest *dest; /* NULL: none */
} OWNED_BY(the caller);

/* What a queue pair has counted before it is connected to another place belongs to the place
 * before. It sends and receives nothing while it connects. If its path is replaced later, what it
 * counts from then on is in no sum, for its requester may be at it. */
static void soft_qp_show_place(const struct soft_device *dev, const struct soft_qp *qp,
			       const struct soft_path *way, u8 mtu, bool connects)
{
	struct board_qp *shown = qp->shown;
	struct board *b = the_seat.a.board;
	u32 index = (u32)(shown - b->qps);
	u16 to = soft_qp_gid_number(dev, way->av.dgid);
	u8 link = shown_link(dev, qp->ib.qp_type, way->dest);

	__atomic_store_n(&shown->from, soft_qp_gid_number(dev, way->av.sgid), __ATOMIC_RELAXED);
	if (link == shown->link && to == shown->to && mtu == shown->mtu)
		return;
	board_traffic_end(b, index);
	if (connects)
		shown_clear_traffic(index);
	/* pair with tally_kind_of */
	__atomic_store_n(&shown->mtu, mtu, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->to, to, __ATOMIC_RELEASE);
	__atomic_store_n(&shown->link, link, __ATOMIC_RELEASE);
	if (connects)
		board_traffic_begin(b, index);
}

static void soft_qp_show_lids(struct board_qp *shown, const struct path_av *av)
{
	__atomic_store_n(&shown->from, av->slid, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->to, av->dlid, __ATOMIC_RELAXED);
	__atomic_store_n(&shown->link,
			 (u8)(BOARD_LIDS | (av->no_grh ? 0 : BOARD_GRH) | av->sl << BOARD_SL_SHIFT),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&shown->pkey, av->pkey, __ATOMIC_RELAXED);
}

/* Shows peers the PSNs, before the state that comes with them. */
static void soft_qp_show_psns(const struct soft_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	struct board *b = the_seat.a.board;
	struct board_first *first = &b->firsts[qp->shown - b->qps];

	if (mask & IB_QP_RQ_PSN)
		__atomic_store_n(&first->rq, attr->rq_psn & 0xffffff, __ATOMIC_RELAXED);
	if (mask & IB_QP_SQ_PSN)
		__atomic_store_n(&first->sq, attr->sq_psn & 0xffffff, __ATOMIC_RELAXED);
}

/* Shows captures the addresses, captures and peers the MTU of its packets, and the node where they
 * count. */
static void soft_qp_show_way(struct soft_device *dev, struct soft_qp *qp,
			     const struct ib_qp_attr *attr, const struct soft_path *way, int mask)
{
	bool connects = (mask & IB_QP_STATE) != 0 && attr->qp_state == IB_QPS_RTR;
	u8 mtu = mask & IB_QP_PATH_MTU ? (u8)attr->path_mtu : qp->shown->mtu;

	if ((mask & IB_QP_AV) != 0 && dev->kind->lid_mask != NULL)
		soft_qp_show_lids(qp->shown, &way->av);
	else if (mask & IB_QP_AV)
		soft_qp_show_place(dev, qp, way, mtu, connects);
	__atomic_store_n(&qp->shown->mtu, mtu, __ATOMIC_RELAXED);
}

/* Finds the P_Key that the attributes name, if they name one. -EINVAL: the device has no such port
 * or no such index. */
static int soft_qp_check_port(struct soft_device *dev, const struct soft_qp *qp,
			 const struct ib_qp_attr *attr, int mask, u16 *pkey)
	REQUIRES(qp->modify_lock)
{
	u8 port = mask & IB_QP_PORT ? attr->port_num : soft_qp_port(qp);

	*pkey = qp->pkey;
	if (!soft_has_port(dev, port))
		return -EINVAL;
	if ((mask & IB_QP_PKEY_INDEX) == 0)
		return 0;
	return dev->ib.query_pkey(&dev->ib, port, attr->pkey_index, pkey);
}

/* A change that is not seen here is followed by another look. */
static bool soft_qp_is_shut(struct soft_device *dev, const struct soft_qp *qp)
	REQUIRES(qp->way_lock)
{
	u64 down = __atomic_load_n(&dev->ports_down, __ATOMIC_RELAXED);

	if (down & 1ull << soft_qp_port(qp))
		return true;
	return qp->way != NULL &&
	       !dev->kind->reaches(dev, &qp->way->av, ibt_qp_peer(soft_engine(qp)));
}

void soft_qp_look_at_way(struct soft_device *dev, struct soft_qp *qp)
{
	bool shut;

	lock_acquire(&qp->way_lock);
	shut = soft_qp_is_shut(dev, qp);
	if (shut != qp->shut)
		ibt_qp_set_port_up(soft_engine(qp), !shut);
	qp->shut = shut;
	lock_release(&qp->way_lock);
}

/* After each successful modification. */
static void soft_qp_take_way(struct soft_device *dev, struct soft_qp *qp,
			     const struct path_av *av, int mask, enum ib_qp_state to)
{
	soft_qp_keep_way(dev, qp, mask & IB_QP_AV ? av : NULL, to);
	if (mask & (IB_QP_AV | IB_QP_PORT | IB_QP_STATE))
		soft_qp_look_at_way(dev, qp);
}

static u8 soft_qp_lid_mask(struct soft_device *dev)
{
	return dev->kind->lid_mask == NULL ? 0 : dev->kind->lid_mask(dev);
}

static void soft_qp_take_port(struct soft_device *dev, struct soft_qp *qp,
			      const struct ib_qp_attr *attr, int mask, u16 pkey)
	REQUIRES(qp->modify_lock)
{
	if (mask & IB_QP_PORT)
		__atomic_store_n(&qp->port, attr->port_num, __ATOMIC_RELAXED);
	if (mask & IB_QP_PKEY_INDEX) {
		qp->pkey = pkey;
		ibt_qp_set_port(soft_engine(qp), pkey, soft_qp_lid_mask(dev));
	}
}

/* The path that the attributes name, if they name one. */
static int soft_qp_resolve(struct soft_device *dev, const struct soft_qp *qp,
			   const struct ib_qp_attr *attr, int mask, u16 pkey,
			   struct soft_path *primary, struct soft_path *alternate)
	REQUIRES(qp->modify_lock)
{
	u32 to = mask & IB_QP_DEST_QPN ? attr->dest_qp_num : ibt_qp_peer(soft_engine(qp));
	int err = 0;

	primary->av.pkey = pkey;
	if (mask & IB_QP_AV)
		err = dev->kind->connect(dev, &attr->ah_attr, qp->ib.qp_num, to, &primary->av,
					 &primary->dest);
	primary->av.pkey = pkey;
	if (err != 0 || (mask & IB_QP_ALT_PATH) == 0)
		return err;
	err = dev->ib.query_pkey(&dev->ib, attr->alt_port_num, attr->alt_pkey_index, &pkey);
	alternate->av.pkey = pkey;
	if (err == 0)
		err = dev->kind->connect(dev, &attr->alt_ah_attr, qp->ib.qp_num, to,
					 &alternate->av, &alternate->dest);
	alternate->av.pkey = pkey;
	return err;
}

static void soft_path_put(struct soft_path *path)
{
	if (path->dest != NULL)
		path->dest->path->ops->dest_put(path->dest);
	path->dest = NULL;
}

static void soft_qp_expect(const struct soft_path *path)
{
	if (path->dest != NULL && the_seat.a.shm != NULL)
		shm_expect(the_seat.a.shm, path->dest);
}

/* Before a queue pair is connected once more: receives all that has arrived, which its state drops.
 * On a busy machine it may be of its last connection, a late retransmission for one, and programs
 * begin each connection with the same PSN. An adapter has received it long before. With a limit,
 * since a flooded path is never empty. */
static void soft_qp_drop_stale(struct path *path)
{
	u64 began = clock_now_ns(), emptied = path_emptied(path);
	bool empty;

	do {
		if (path->ops->want_look != NULL)
			path->ops->want_look(path);
		empty = path->ops->poll(path, QP_STALE_BATCH, true) == 0;
		/* the first may be of a poll that had begun before */
		if (path->ops->want_look != NULL)
			empty = path_emptied(path) - emptied >= 2;
	} while (!empty && clock_now_ns() - began < QP_STALE_MS * NS_PER_MS);
}

/* -EAGAIN: the engine has left the state for which the masks were checked. */
static int soft_qp_modify_once(struct soft_device *dev, struct soft_qp *qp,
			  const struct ib_qp_attr *attr, int mask) REQUIRES(qp->modify_lock)
{
	struct ibt_qp *engine = soft_engine(qp);
	enum ib_qp_state now = (enum ib_qp_state)ibt_qp_state(engine);
	enum ib_qp_state from = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : now;
	enum ib_qp_state to = mask & IB_QP_STATE ? attr->qp_state : from;
	struct soft_path primary = { .dest = NULL }, alternate = { .dest = NULL };
	struct ibv_qp_attr a;
	u16 pkey;
	int err;

	if (!ib_modify_qp_is_ok(from, to, qp->ib.qp_type, (enum ib_qp_attr_mask)mask))
		return -EINVAL;
	err = soft_qp_check_port(dev, qp, attr, mask, &pkey);
	if (err == 0)
		err = soft_qp_resolve(dev, qp, attr, mask, pkey, &primary, &alternate);
	if (err != 0) {
		soft_path_put(&primary);
		return err;
	}
	soft_qp_expect(&primary);
	soft_qp_expect(&alternate);
	soft_qp_show_way(dev, qp, attr, &primary, mask);
	soft_qp_show_psns(qp, attr, mask);
	ib_convert_qp_attr(attr, &a);
	a.cur_qp_state = (enum ibv_qp_state)from;
	if (from == IB_QPS_INIT && to == IB_QPS_RTR && primary.dest != NULL) {
		if (qp->had_peer)
			soft_qp_drop_stale(primary.dest->path);
		qp->had_peer = true;
	}
	err = ibt_qp_modify(engine, &a, mask | IBV_QP_CUR_STATE, &primary.av, primary.dest);
	if (err == 0 && alternate.dest != NULL)
		err = ibt_qp_load_alternate(engine, &alternate.av, alternate.dest);
	else
		soft_path_put(&alternate);
	if (err == -EINVAL && from == now && (enum ib_qp_state)ibt_qp_state(engine) != now)
		return -EAGAIN;
	if (err == 0) {
		soft_qp_take_port(dev, qp, attr, mask, pkey);
		soft_qp_take_way(dev, qp, &primary.av, mask, to);
	}
	if (err == 0 && (mask & IB_QP_STATE) != 0 && (to == IB_QPS_ERR || to == IB_QPS_RESET))
		(void)shm_drain(the_seat.a.shm, SHM_ANY_KEY, qp->ib.qp_num);
	return err;
}

static int soft_qp_modify(struct ib_qp *ib, struct ib_qp_attr *attr, int mask)
{
	struct soft_qp *qp = SOFT_OF(qp, ib);
	int err;

	if (ib->qp_type == IB_QPT_RAW_PACKET)
		return soft_raw_modify(ib, attr, mask);
	if (!soft_is_ours(qp->generation))
		return -EIO;
	lock_acquire(&qp->modify_lock);
	err = soft_check(ib->device);
	if (err != 0)
		goto unlock;
	do
		err = soft_qp_modify_once(soft_dev(ib->device), qp, attr, mask);
	while (err == -EAGAIN);
unlock:
	lock_release(&qp->modify_lock);
	return err;
}

static int soft_qp_query(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	struct soft_qp *qp = SOFT_OF(qp, ib);
	struct ibv_qp_attr a;
	int err;

	if (ib->qp_type == IB_QPT_RAW_PACKET)
		return soft_raw_query(ib, attr, mask, init);
	err = soft_check(ib->device);

	if (err != 0)
		return err;
	ibt_qp_query(soft_engine(qp), &a);
	ib_convert_ibv_qp_attr(&a, attr);
	attr->cap = qp->cap;
	*init = (struct ib_qp_init_attr){ .event_handler = ib->event_handler,
					  .qp_context = ib->qp_context,
					  .send_cq = ib->send_cq,
					  .recv_cq = ib->recv_cq,
					  .srq = ib->srq,
					  .cap = qp->cap,
					  .sq_sig_type = qp->sq_sig_type,
					  .qp_type = ib->qp_type };
	init->event_handler = ib->event_handler;
	init->qp_context = ib->qp_context;
	return 0;
}

/* ---- posting ---- */

int soft_uverbs_post_send(struct ib_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return ibt_post_send(soft_engine(SOFT_OF(qp, ib)), wr, bad, soft_av_of);
}

int soft_uverbs_attach_counter(struct ib_qp *ib, struct op_counter *counter, u32 ops)
{
	struct soft_qp *qp = SOFT_OF(qp, ib);
	int err = soft_check(ib->device);

	if (err == 0 && ib->qp_type == IB_QPT_RAW_PACKET)
		return -EOPNOTSUPP;
	if (err == 0 && !soft_is_ours(qp->generation))
		err = -EIO;
	return err != 0 ? err : ibt_qp_attach_counter(soft_engine(qp), counter, ops);
}

bool soft_uverbs_store(struct ib_qp *ib, u32 rkey, u64 va, const void *from, u32 length)
{
	return ibt_store(soft_engine(SOFT_OF(qp, ib)), rkey, va, from, length);
}

int soft_uverbs_check_send(struct ib_qp *ib, const struct ibv_send_wr *wr)
{
	return ibt_check_send(soft_engine(SOFT_OF(qp, ib)), wr, soft_av_of);
}

int soft_uverbs_post_recv(struct ib_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ibt_post_recv(soft_engine(SOFT_OF(qp, ib)), wr, bad);
}

void soft_fill_qp(struct ib_device *ib)
{
	ib->create_qp = soft_qp_create;
	ib->modify_qp = soft_qp_modify;
	ib->query_qp = soft_qp_query;
	ib->destroy_qp = soft_qp_destroy;
}
