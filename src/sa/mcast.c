/* mcast.c: memberships of multicast groups that several consumers of a port share: the first joins
 * at the SA, the last leaves. Other processes may share the port as well: where its driver says so
 * (mad_member_set) the leave is theirs.
 * In:    joins and ends of consumers, answers of the SA, events of ports
 * Out:   joins and leaves at the SA; callbacks
 * Runs:  all of a group on sa_queue, one step after the other    Locks: sa_lock
 * Spec:  IBA vol 1, 15.2.5.17 (MCMemberRecord), 15.4.6 (join and leave)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "mad/mad.h"
#include "sa/sa_priv.h"

enum { SA_STATES = 4 }; /* bits of the join state */

enum sa_member_state {
	MEMBER_WAITS, /* for its turn at the SA */
	MEMBER_IN,
	MEMBER_TOLD, /* of an error: only its consumer ends it */
};

struct sa_group {
	struct sa_shared shared GUARDS_ITSELF; /* with members */
	union ib_gid mgid FIXED; /* all zeroes: the SA chooses, and nobody shares the group */
	u32 counts[SA_STATES] GUARDED_BY(sa_lock); /* members that are in, by join state */
	struct ib_sa_mcmember_rec rec GUARDED_BY(sa_lock); /* its join_state: what the SA keeps */
	u8 said GUARDED_BY(sa_lock); /* states that others of the host know of: sa_group_say */
	bool lost GUARDED_BY(sa_lock); /* members are to be told */
	struct sa_member *joins GUARDED_BY(sa_lock); /* for whom a join is under way */
	u8 leaves GUARDED_BY(sa_lock); /* states of a leave that is under way */
	int status GUARDED_BY(sa_lock); /* of the answer */
};

struct sa_member {
	struct sa_consumer consumer GUARDS_ITSELF;
	struct ib_sa_multicast pub OWNED_BY(the consumer);
	enum sa_member_state state GUARDED_BY(sa_lock);
	u8 join_state FIXED;
};

/* ---- the SA's answers ------------------------------------------------------------------------ */

static void sa_group_pack(const void *record, void *attribute)
{
	ib_sa_pack_mcmember((struct ib_sa_mcmember_rec *)(uintptr_t)record, attribute);
}

static void sa_group_done(struct sa_query *q, int status, struct ib_sa_mad *mad)
{
	struct sa_group *g = q->context;

	lock_acquire(&sa_lock);
	g->status = status;
	g->shared.asking = false;
	if (status == 0 && g->leaves == 0) {
		u8 had = g->rec.join_state;

		ib_sa_unpack_mcmember(mad->data, &g->rec);
		g->rec.join_state |= had;
	}
	if (g->leaves != 0)
		g->rec.join_state &= (u8)~g->leaves; /* unanswered, too: nobody asks again */
	g->leaves = 0;
	work_push(&g->shared.work);
	lock_release(&sa_lock);
}

/* ---- what a member asks for ------------------------------------------------------------------ */

/* Does a value that the member asked for agree with the group's? */
static bool sa_group_value_fits(u8 selector, u8 asked, u8 has)
{
	switch (selector) {
	case IB_SA_GT:
		return has > asked;
	case IB_SA_LT:
		return has < asked;
	case IB_SA_EQ:
		return has == asked;
	default:
		return true;
	}
}

#define MCAST_SAME(bit, field) ((mask & (bit)) == 0 || want->field == has->field)
#define MCAST_FITS(selector_bit, bit, field)                                                       \
	((mask & (bit)) == 0 ||                                                                    \
	 sa_group_value_fits((mask & (selector_bit)) != 0 ? want->field##_selector : IB_SA_EQ,     \
			     want->field, has->field))

static bool sa_group_fits(const struct ib_sa_mcmember_rec *want, ib_sa_comp_mask mask,
		       const struct ib_sa_mcmember_rec *has)
{
	return MCAST_SAME(IB_SA_MCMEMBER_REC_QKEY, qkey) &&
	       MCAST_SAME(IB_SA_MCMEMBER_REC_MLID, mlid) &&
	       MCAST_SAME(IB_SA_MCMEMBER_REC_TRAFFIC_CLASS, traffic_class) &&
	       MCAST_SAME(IB_SA_MCMEMBER_REC_PKEY, pkey) &&
	       MCAST_SAME(IB_SA_MCMEMBER_REC_SL, sl) &&
	       MCAST_SAME(IB_SA_MCMEMBER_REC_FLOW_LABEL, flow_label) &&
	       MCAST_SAME(IB_SA_MCMEMBER_REC_HOP_LIMIT, hop_limit) &&
	       MCAST_FITS(IB_SA_MCMEMBER_REC_MTU_SELECTOR, IB_SA_MCMEMBER_REC_MTU, mtu) &&
	       MCAST_FITS(IB_SA_MCMEMBER_REC_RATE_SELECTOR, IB_SA_MCMEMBER_REC_RATE, rate) &&
	       MCAST_FITS(IB_SA_MCMEMBER_REC_PACKET_LIFE_TIME_SELECTOR,
			  IB_SA_MCMEMBER_REC_PACKET_LIFE_TIME, packet_life_time);
}

/* ---- steps of a group, on the queue ---------------------------------------------------------- */

static void sa_group_count(struct sa_group *g, u8 join_state, int by) REQUIRES(sa_lock)
{
	for (u32 i = 0; i < SA_STATES; i++)
		if (join_state & 1u << i)
			g->counts[i] += (u32)by;
}

/* Says to those who share the port in which states this process is a member, or is about to be.
 * Lets go of the lock meanwhile. -EOPNOTSUPP: nobody shares it. */
static int sa_group_say(struct sa_group *g, u8 states) REQUIRES(sa_lock)
{
	static const union ib_gid none;
	struct mad_member member = { .mgid = g->rec.join_state != 0 ? g->rec.mgid : g->mgid,
				     .states = states };
	struct sa_port *port = g->shared.port;
	int err;

	if (memcmp(&member.mgid, &none, sizeof(none)) == 0 || !sa_port_try(port))
		return -EOPNOTSUPP;
	lock_release(&sa_lock);
	member.pkey_index = sa_port_pkey_index(port);
	err = mad_member_set(port->agent, &member);
	sa_port_put(port);
	lock_acquire(&sa_lock);
	if (err == 0)
		g->said = states;
	return err;
}

/* Tells a member; lets go of the lock meanwhile. A consumer that returns an error has ended the
 * membership by that. */
static void sa_group_tell(struct sa_member *m, int status) REQUIRES(sa_lock)
{
	int ends;

	if (m->consumer.ending)
		return;
	sa_consumer_begin_callback(&m->consumer);
	ends = m->pub.callback(status, &m->pub);
	sa_consumer_end_callback(&m->consumer, ends);
}

/* The SA has forgotten the port, or may have. */
static void sa_group_lose(struct sa_group *g) REQUIRES(sa_lock)
{
	bool told;

	g->lost = false;
	if (g->said != 0)
		(void)sa_group_say(g, 0);
	memset(g->counts, 0, sizeof(g->counts));
	g->rec.join_state = 0;
	do {
		told = false;
		list_for_each(m, &g->shared.consumers, struct sa_member, consumer.node) {
			bool was_in = m->state == MEMBER_IN;

			if (!was_in && !(g->shared.port_gone && m->state == MEMBER_WAITS))
				continue;
			m->state = MEMBER_TOLD;
			sa_group_tell(m, was_in ? -ENETRESET : -ENODEV);
			told = true;
			break; /* the list may have changed */
		}
	} while (told);
}

/* The answer to a join. */
static void sa_group_answer(struct sa_group *g) REQUIRES(sa_lock)
{
	struct sa_member *m = g->joins;
	int status = g->status;

	g->joins = NULL;
	if (g->said != g->rec.join_state)
		(void)sa_group_say(g, g->rec.join_state);
	if (m == NULL || m->state != MEMBER_WAITS)
		return;
	m->state = status == 0 ? MEMBER_IN : MEMBER_TOLD;
	if (status == 0) {
		sa_group_count(g, m->join_state, 1);
		m->pub.rec = g->rec;
		m->pub.rec.join_state = m->join_state;
	}
	sa_group_tell(m, status);
}

/* Asks the SA. On failure the answer is that. */
static void sa_group_ask(struct sa_group *g, u8 method, const struct ib_sa_mcmember_rec *rec,
		      ib_sa_comp_mask mask) REQUIRES(sa_lock)
{
	bool joins = method == IB_MGMT_METHOD_SET;
	struct sa_ask ask = { .method = method,
			      .attribute = IB_SA_ATTR_MC_MEMBER_REC,
			      .mask = mask,
			      .timeout_ms = joins ? SA_JOIN_MS : SA_LEAVE_MS,
			      .retries = joins ? SA_JOIN_RETRIES : 1,
			      .done = sa_group_done,
			      .context = g };
	struct sa_port *port = g->shared.port;
	int id = -ENODEV;

	g->shared.asking = true;
	if (sa_port_try(port)) {
		lock_release(&sa_lock);
		id = sa_query_begin(port, &ask, rec, sa_group_pack);
		sa_port_put(port);
		lock_acquire(&sa_lock);
	}
	if (id > 0)
		return;
	g->shared.asking = false;
	g->status = id;
	g->rec.join_state &= (u8)~g->leaves;
	g->leaves = 0;
	work_push(&g->shared.work);
}

static void sa_group_join(struct sa_group *g, struct sa_member *m) REQUIRES(sa_lock)
{
	struct ib_sa_mcmember_rec rec = m->pub.rec;
	union ib_gid gid;

	rec.mgid = g->mgid;
	if (ib_get_cached_gid(g->shared.port->device, g->shared.port->number, 0, &gid) == 0)
		rec.port_gid = gid;
	g->joins = m;
	(void)sa_group_say(g, g->rec.join_state | m->join_state);
	sa_group_ask(g, IB_MGMT_METHOD_SET, &rec,
		  m->pub.comp_mask | IB_SA_MCMEMBER_REC_MGID | IB_SA_MCMEMBER_REC_PORT_GID |
			  IB_SA_MCMEMBER_REC_JOIN_STATE);
}

/* A member whose states the SA knows is in at once. */
static void sa_group_admit(struct sa_group *g, struct sa_member *m) REQUIRES(sa_lock)
{
	if ((g->rec.join_state & m->join_state) != m->join_state) {
		sa_group_join(g, m);
		return;
	}
	g->joins = m;
	g->status = sa_group_fits(&m->pub.rec, m->pub.comp_mask, &g->rec) ? 0 : -EINVAL;
	sa_group_answer(g);
}

/* States that the SA keeps and no member wants any more. */
static u8 sa_group_spare(const struct sa_group *g) REQUIRES(sa_lock)
{
	u8 spare = 0;

	for (u32 i = 0; i < SA_STATES; i++)
		if (g->counts[i] == 0)
			spare |= (u8)(g->rec.join_state & 1u << i);
	return spare;
}

static void sa_group_leave(struct sa_group *g) REQUIRES(sa_lock)
{
	struct ib_sa_mcmember_rec rec = g->rec;
	u8 spare = sa_group_spare(g);

	if (g->said != 0 && sa_group_say(g, g->rec.join_state & (u8)~spare) == 0) {
		g->rec.join_state &= (u8)~spare;
		return;
	}
	rec.join_state = g->leaves = spare;
	sa_group_ask(g, IB_SA_METHOD_DELETE, &rec,
		  IB_SA_MCMEMBER_REC_MGID | IB_SA_MCMEMBER_REC_PORT_GID |
			  IB_SA_MCMEMBER_REC_JOIN_STATE);
}

/* Ends one member whose consumer has ended it. False: there is none. */
static bool sa_group_reap(struct sa_group *g) REQUIRES(sa_lock)
{
	list_for_each(m, &g->shared.consumers, struct sa_member, consumer.node) {
		if (!m->consumer.ending || m->consumer.in_callback || g->joins == m)
			continue;
		if (m->state == MEMBER_IN)
			sa_group_count(g, m->join_state, -1);
		sa_consumer_free(&m->consumer);
		return true;
	}
	return false;
}

static struct sa_member *sa_group_next(struct sa_group *g) REQUIRES(sa_lock)
{
	list_for_each(m, &g->shared.consumers, struct sa_member, consumer.node)
		if (m->state == MEMBER_WAITS)
			return m;
	return NULL;
}

static bool sa_group_step(struct sa_shared *shared) REQUIRES(sa_lock)
{
	struct sa_group *g = container_of(shared, struct sa_group, shared);
	struct sa_member *m;

	if (shared->asking)
		return false;
	if (g->joins != NULL) {
		sa_group_answer(g);
		return true;
	}
	if (g->lost) {
		sa_group_lose(g);
		return true;
	}
	if (sa_group_reap(g))
		return true;
	m = sa_group_next(g);
	if (m != NULL) {
		sa_group_admit(g, m);
		return true;
	}
	if (sa_group_spare(g) == 0)
		return false;
	sa_group_leave(g);
	return true;
}

/* ---- for consumers --------------------------------------------------------------------------- */

/* A group whose MGID the SA chooses is nobody else's. */
static bool sa_group_is(const struct sa_group *g, const union ib_gid *mgid)
{
	static const union ib_gid none;

	return memcmp(&g->mgid, mgid, sizeof(*mgid)) == 0 && memcmp(mgid, &none, sizeof(none)) != 0;
}

static bool sa_group_same(const struct sa_shared *shared, const struct sa_shared *fresh)
{
	return sa_group_is(container_of(shared, struct sa_group, shared),
			   &container_of(fresh, struct sa_group, shared)->mgid);
}

static const struct sa_kind sa_group_kind = { sa_group_same, NULL, sa_group_step };

static struct sa_group *sa_group_make(struct sa_port *port, const union ib_gid *mgid)
{
	struct sa_group *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return NULL;
	sa_shared_init(&g->shared, &sa_group_kind, port);
	g->mgid = *mgid;
	return g;
}

struct ib_sa_multicast *
ib_sa_join_multicast(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
		     struct ib_sa_mcmember_rec *rec, ib_sa_comp_mask comp_mask,
		     unsigned int gfp_mask,
		     int (*callback)(int status, struct ib_sa_multicast *multicast), void *context)
{
	u8 states = rec->join_state & 0xf;
	struct sa_port *port = sa_port_get(device, port_num);
	struct sa_member *m;
	struct sa_group *g;
	int err = -ENOMEM;

	if (port == NULL)
		return ERR_PTR(-ENODEV);
	m = states != 0 ? calloc(1, sizeof(*m)) : NULL;
	g = sa_group_make(port, &rec->mgid);
	if (m != NULL && g != NULL) {
		m->pub = (struct ib_sa_multicast){ *rec, comp_mask, callback, context };
		m->consumer.client = client;
		m->join_state = states;
		err = sa_consumer_enter(&m->consumer, &port->groups, &g->shared);
	} else {
		free(g);
	}
	sa_port_put(port);
	if (err == 0)
		return &m->pub;
	free(m);
	return ERR_PTR(states == 0 ? -EINVAL : err);
}

void ib_sa_free_multicast(struct ib_sa_multicast *multicast)
{
	sa_consumer_end(&container_of(multicast, struct sa_member, pub)->consumer);
}

static struct sa_group *sa_group_find(struct sa_port *port, const union ib_gid *mgid)
	REQUIRES(sa_lock)
{
	list_for_each(g, &port->groups, struct sa_group, shared.node)
		if (sa_group_is(g, mgid))
			return g;
	return NULL;
}

int ib_sa_get_mcmember_rec(struct ib_device *device, u8 port_num, union ib_gid *mgid,
			   struct ib_sa_mcmember_rec *rec)
{
	struct sa_port *port = sa_port_get(device, port_num);
	struct sa_group *g;
	int err = -EADDRNOTAVAIL;

	if (port == NULL)
		return -ENODEV;
	lock_acquire(&sa_lock);
	g = sa_group_find(port, mgid);
	if (g != NULL && g->rec.join_state != 0) {
		*rec = g->rec;
		err = 0;
	}
	lock_release(&sa_lock);
	sa_port_put(port);
	return err;
}

/* ---- ports ----------------------------------------------------------------------------------- */

static void sa_group_lose_all(struct sa_port *port, bool gone) REQUIRES(sa_lock)
{
	list_for_each(g, &port->groups, struct sa_group, shared.node) {
		g->lost = true;
		g->shared.port_gone |= gone;
		work_push(&g->shared.work);
	}
}

void sa_mcast_port_changed(struct ib_device *device, u8 number)
{
	struct sa_port *port = sa_port_get(device, number);

	if (port == NULL)
		return;
	lock_acquire(&sa_lock);
	sa_group_lose_all(port, false);
	lock_release(&sa_lock);
	sa_port_put(port);
}

void sa_mcast_port_gone(struct sa_port *port)
{
	lock_acquire(&sa_lock);
	sa_group_lose_all(port, true);
	/* each group ends when the consumers have ended their memberships */
	sa_shared_wait(&port->groups);
	lock_release(&sa_lock);
}
