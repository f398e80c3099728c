/* conn_air.c: MADs between nodes: lost, doubled, delayed, overtaken, cut off.
 * In: MADs of CM instances    Out: the same at other nodes, later, or never
 *
 * An exchange may send so many MADs and no more: a request its retries, an answer one for each
 * message that it answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn.h"

enum {
	AT_ATTR = 16,
	AT_LOCAL = CM_MAD_HEADER,
	AT_REMOTE = CM_MAD_HEADER + 4,
	GID_INDEX = 3,
	PKEY_INDEX = 5,
	PKEY = 0xffff,
	EARLY_TRIES = 20, /* of a request to the host that it comes from */
};

struct conn_mad {
	struct conn_node *from, *to;
	struct conn_side *by;	/* NULL: its sender has no id for it */
	struct conn_side *meant; /* for whom; NULL: nobody, or not known */
	u8 mad[CM_MAD_BYTES];
};

/* MADs that the instance has sent since it began to receive one. */
static u32 conn_sent_meanwhile;
/* The MAD that it receives; NULL: none. */
static const struct conn_mad *conn_receiving;

static u32 mad_u32(const u8 *mad, u32 at)
{
	u32 v;

	memcpy(&v, mad + at, sizeof(v));
	return be32toh(v);
}

static u32 mad_attr(const u8 *mad)
{
	return (u32)mad[AT_ATTR] << 8 | mad[AT_ATTR + 1];
}

/* The communication ID of its receiver; 0: it names a service, or nobody. */
static u32 mad_receiver(const u8 *mad)
{
	switch (mad_attr(mad)) {
	case CM_REQ:
	case CM_SIDR_REQ:
		return 0;
	case CM_SIDR_REP:
		return mad_u32(mad, AT_LOCAL);
	default:
		return mad_u32(mad, AT_REMOTE);
	}
}

/* ---- how many -------------------------------------------------------------------------------- */

static u32 *side_count(u32 *counts, u32 attr)
{
	return &counts[attr - CM_REQ];
}

/* MADs of the kind that the side may have sent by now. */
static u32 side_limit(const struct conn_side *s, u32 attr)
{
	bool home = s->attempt != NULL && s->attempt->from == s->attempt->to;
	u32 tries = conn.plan.retries + 1u;
	const u32 *came = s->came;

	switch (attr) {
	case CM_REQ:
	case CM_SIDR_REQ:
		return tries + (home ? EARLY_TRIES : 0);
	case CM_DREQ:
	case CM_LAP:
		return tries;
	case CM_REP: /* again for each REQ that comes again */
		return tries + came[CM_REQ - CM_REQ];
	case CM_RTU:
		return 1 + came[CM_REP - CM_REQ];
	case CM_DREP:
		return 1 + came[CM_DREQ - CM_REQ];
	default: /* one for each call, or for each MAD that has come: air_answers */
		return UINT32_MAX;
	}
}

/* Returns whose MAD it is; NULL: nobody's. */
static struct conn_side *air_count_sent(struct conn_process *p, const u8 *mad)
{
	u32 attr = mad_attr(mad);
	struct conn_side *s = conn_side_find(p, mad_u32(mad, AT_LOCAL));

	sim_check(attr >= CM_REQ && attr < CM_ATTR_END, "n%u sends attribute %#x", p->node->id,
		  attr);
	conn_sent_meanwhile++;
	if (attr == CM_SIDR_REP) /* it does not name its sender */
		return conn.caller;
	if (s == NULL)
		return NULL;
	++*side_count(s->sent, attr);
	s->sent_ns = world.now;
	conn_number_rest(p->node, s->local_id, false);
	sim_check(*side_count(s->sent, attr) <= side_limit(s, attr), "side %u sends its %uth %s",
		  s->index, *side_count(s->sent, attr), conn_attr_name(attr));
	return s;
}

/* MADs that may leave at once because of one that has come: a REQ of a stale connection is refused,
 * and the connection is left. */
static u32 air_answers(u32 attr)
{
	switch (attr) {
	case CM_REQ:
	case CM_REP:
		return 2;
	case CM_DREQ:
	case CM_LAP:
	case CM_SIDR_REQ:
	case CM_RTU: /* for a connection that was refused */
		return 1;
	default:
		return 0;
	}
}

/* A DREQ or REJ of its peer: the side must learn of it. */
static void air_note_farewell(struct conn_side *s, const u8 *mad)
{
	u32 attr = mad_attr(mad);

	if ((attr == CM_DREP || attr == CM_REJ) && s->ended_ns == 0)
		s->ended_ns = world.now;
	if ((attr == CM_DREQ || attr == CM_REJ) && s->peer != NULL &&
	    s->peer->local_id == mad_u32(mad, AT_LOCAL) && s->state != IB_CM_REQ_SENT)
		s->farewells++;
}

/* The REQ's passive sides are those that have its sender as their peer. */
static void air_count_came(struct conn_process *p, const u8 *mad)
{
	u32 attr = mad_attr(mad), receiver = mad_receiver(mad);
	struct conn_side *s;

	if (receiver != 0) {
		s = conn_side_find(p, receiver);
		if (s != NULL) {
			++*side_count(s->came, attr);
			air_note_farewell(s, mad);
		}
		return;
	}
	for (u32 i = 0; i < conn.side_count; i++) {
		s = conn.sides[i];
		if (s->process == p && s->peer != NULL &&
		    s->peer->local_id == mad_u32(mad, AT_LOCAL))
			++*side_count(s->came, attr);
	}
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static struct cm_route air_route_to(const struct conn_node *n)
{
	return (struct cm_route){
		.ah = { .ah_flags = IB_AH_GRH,
			.port_num = 1,
			.grh = { .dgid = n->gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
		.pkey_index = PKEY_INDEX,
	};
}

/* What an end knows. */
struct conn_hearing {
	enum ib_cm_state state;
	u32 pending;
};

static struct conn_hearing air_hearing(const struct conn_side *s)
{
	return s == NULL ? (struct conn_hearing){ 0 }
			 : (struct conn_hearing){ s->id->state, conn_pending(s) };
}

/* Who has the number now that had another owner when the MAD left; NULL: nobody. */
static struct conn_side *air_heir(const struct conn_process *p, const struct conn_mad *m)
{
	u32 receiver = mad_receiver(m->mad);
	struct conn_side *s = receiver != 0 && m->meant != NULL ? conn_side_find(p, receiver)
								: NULL;

	return s != NULL && s != m->meant && s->id != NULL &&
			       m->meant->local_id == receiver
		       ? s
		       : NULL;
}

/* The number's owner hears nothing of what was for the one before. */
static void air_judge_heir(const struct conn_side *s, const struct conn_mad *m,
			   const struct conn_hearing *before)
{
	struct conn_hearing now = air_hearing(s);

	if (s == NULL)
		return;
	conn_seen.belated++;
	sim_check(now.state == before->state && now.pending == before->pending,
		  "side %u hears a %s that was for side %u", s->index,
		  conn_attr_name(mad_attr(m->mad)), m->meant->index);
}

static void air_receive(struct conn_process *p, const struct conn_mad *m)
{
	u32 attr = mad_attr(m->mad);
	struct cm_arrival a = { .back = air_route_to(m->from),
				.sgid = m->from->gid,
				.dgid = m->to->gid,
				.mad = m->mad,
				.length = CM_MAD_BYTES };

	bool asks = attr == CM_REQ || attr == CM_SIDR_REQ;
	struct conn_limits before = conn_limits_read(p);
	struct conn_side *heir = air_heir(p, m);
	struct conn_hearing heard = air_hearing(heir);

	air_count_came(p, m->mad);
	conn_sent_meanwhile = 0;
	conn_receiving = m;
	if (asks)
		conn_number_draw(p);
	cm_receive(&p->dev, &a);
	conn_receiving = NULL;
	air_judge_heir(heir, m, &heard);
	conn_limits_judge(p, &before, asks, conn_sent_meanwhile);
	if (asks && conn.plan.gaps && conn.plan.backlog != 0 && !conn.quiet &&
	    rng_permille(RNG, 20))
		conn_gap(p->node);
	sim_check(conn_sent_meanwhile <= air_answers(attr), "n%u answers a %s with %u MADs",
		  p->node->id, conn_attr_name(attr), conn_sent_meanwhile);
	conn_wake(p);
}

static void air_fly(struct conn_node *from, struct conn_node *to, struct conn_side *by,
		    const u8 *mad);

/* Nobody is there any more, but the host says so. */
static void air_answer_for_gone(const struct conn_mad *m)
{
	u8 answer[CM_MAD_BYTES];

	conn_receiving = m;
	if (conn.plan.answers && msg_answer_for_gone(m->mad, answer))
		air_fly(m->to, m->from, NULL, answer);
	conn_receiving = NULL;
}

static void air_arrive(void *arg, u64 n)
{
	struct conn_mad *m = arg;
	struct conn_process *p = m->to->live;
	u32 receiver = mad_receiver(m->mad);

	conn.flying--;
	if (p != NULL && p->dying)
		p = NULL;
	conn_trace(m->to, p != NULL ? CONN_TR_RX : CONN_TR_LOST, mad_attr(m->mad),
		   mad_u32(m->mad, AT_LOCAL), mad_u32(m->mad, AT_REMOTE), m->from->id);
	if (p != NULL && p->unplugged) {
		free(m);
		return;
	}
	/* the node steers by the slot: what is for a dead process does not come to its successor */
	if (p == NULL || (conn.plan.answers && receiver != 0 && receiver >> CM_ID_BITS != p->slot))
		air_answer_for_gone(m);
	else
		air_receive(p, m);
	free(m);
}

static void air_fly(struct conn_node *from, struct conn_node *to, struct conn_side *by,
		    const u8 *mad)
{
	struct conn_mad *m = malloc(sizeof(*m));

	if (m == NULL)
		abort();
	m->from = from;
	m->to = to;
	m->by = by;
	m->meant = by != NULL ? by->peer : conn_receiving != NULL ? conn_receiving->by : NULL;
	memcpy(m->mad, mad, CM_MAD_BYTES);
	conn.flying++;
	world_at(world.now + conn.plan.delay_ns + rng_range(RNG, 0, conn.plan.jitter_ns),
		 air_arrive, m, 0);
}

/* ---- sending --------------------------------------------------------------------------------- */

static struct conn_node *air_node_of(const union ib_gid *gid)
{
	for (u32 i = 0; i < conn.plan.nodes; i++)
		if (memcmp(&conn.nodes[i].gid, gid, sizeof(*gid)) == 0)
			return &conn.nodes[i];
	return NULL;
}

void conn_air_launch(struct conn_node *from, const struct cm_route *route, struct conn_side *by,
		     const u8 *mad)
{
	struct conn_node *to = air_node_of(&route->ah.grh.dgid);
	bool lost;

	sim_check(to != NULL && route->ah.port_num == 1 && route->pkey_index == PKEY_INDEX &&
			  route->ah.grh.sgid_index == GID_INDEX,
		  "n%u sends along a way that nobody has given it", from->id);
	lost = rng_permille(RNG, conn.plan.loss) || conn.cut_ns[from->id][to->id] > world.now;
	conn_trace(from, lost ? CONN_TR_LOST : CONN_TR_TX, mad_attr(mad), mad_u32(mad, AT_LOCAL),
		   mad_u32(mad, AT_REMOTE), to->id);
	if (lost)
		return;
	air_fly(from, to, by, mad);
	if (rng_permille(RNG, conn.plan.duplicate))
		air_fly(from, to, by, mad);
}

static void air_send(struct cm_device *dev, const struct cm_route *route, const u8 *mad)
{
	struct conn_process *p = (struct conn_process *)dev;

	if (p->dead || p->dying)
		return;
	sim_check(!p->unplugged, "n%u sends by a device that has gone", p->node->id);
	conn_air_launch(p->node, route, air_count_sent(p, mad), mad);
}

static int air_find_gid(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index)
{
	if (memcmp(&((struct conn_process *)dev)->node->gid, gid, sizeof(*gid)) != 0)
		return -ENOENT;
	*port = 1;
	*index = GID_INDEX;
	return 0;
}

static int air_find_pkey(struct cm_device *dev, u8 port, u16 pkey, u16 *index)
{
	if (port != 1 || pkey != PKEY)
		return -ENOENT;
	*index = PKEY_INDEX;
	return 0;
}

static int air_listen(struct cm_device *dev, u64 service_id, u64 mask,
		      const struct ib_cm_compare_data *compare, bool on)
{
	((struct conn_process *)dev)->listens += on ? 1 : -1u;
	return 0;
}

const struct cm_device_ops conn_ops = {
	.send = air_send,
	.find_gid = air_find_gid,
	.find_pkey = air_find_pkey,
	.listen = air_listen,
	.will = conn_will_set,
};
