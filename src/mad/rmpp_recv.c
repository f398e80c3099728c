/* rmpp_recv.c: RMPP messages that arrive: reassembly, ACKs, limits.
 *
 * The first segment opens a window of RMPP_WINDOW segments. An ACK goes out for the first and the
 * last segment, for every half window, twice for a gap, and for whatever was acknowledged before. A
 * complete message is handed over and remembered for RMPP_KEEP_MS, so that a sender which has
 * missed the last ACK gets it again.
 *
 * Limits. A message of which only one segment has come may be a flood's: when there are too many,
 * the oldest is forgotten, of that source or of all. A real sender sends its second segment within
 * an RTT. Of others each source has its share, and no message holds more segments than are still
 * free. A response that was asked for has its place by its request.
 *
 * While a response arrives, the timeout of its request rests.
 *
 * In:    segments    Out: ACKs, whole messages
 * Runs:  the port's queue    Locks: mad_lock
 * Spec:  IBA vol 1, 13.6.5 (receiver), 13.6.3 (status)
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mad/mad_priv.h"

/* What a segment says. */
struct rmpp_segment {
	u32 number;
	u32 paylen;
	bool first, last;
} OWNED_BY(the caller);

/* ---- messages by sender and transaction ------------------------------------------------------ */

void rmpp_port_init(struct rmpp_port *rmpp)
{
	*rmpp = (struct rmpp_port){ .segments = 0 };
	for (u32 i = 0; i < RMPP_BUCKETS; i++)
		list_init(&rmpp->buckets[i]);
	for (u32 i = 0; i < RMPP_STATES; i++)
		list_init(&rmpp->states[i]);
}

static struct rmpp_key rmpp_key_of(const struct mad_message *m)
{
	struct rmpp_key key;

	memset(&key, 0, sizeof(key)); /* padding too: keys are compared as bytes */
	key.tid = m->mad.mad_hdr.tid;
	key.src_qp = m->wc.src_qp;
	key.slid = m->wc.slid;
	key.mgmt_class = m->mad.mad_hdr.mgmt_class;
	key.method = m->mad.mad_hdr.method;
	if ((m->wc.wc_flags & IB_WC_GRH) != 0)
		memcpy(key.sgid, m->grh.sgid.raw, sizeof(key.sgid));
	return key;
}

static struct list_head *rmpp_bucket(struct mad_port *port, const struct rmpp_key *key)
{
	u64 mix = key->tid * 0x9e3779b97f4a7c15ull;

	return &port->rmpp.buckets[(mix >> 32) % RMPP_BUCKETS];
}

struct rmpp_recv *rmpp_recv_find(struct mad_port *port, const struct mad_message *m)
{
	struct rmpp_key key = rmpp_key_of(m);

	list_for_each(r, rmpp_bucket(port, &key), struct rmpp_recv, bucket)
		if (memcmp(&r->key, &key, sizeof(key)) == 0)
			return r;
	return NULL;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void rmpp_recv_leave_state(struct rmpp_recv *r)
{
	list_remove(&r->node);
	r->agent->port->rmpp.counts[r->state]--;
}

static void rmpp_recv_enter_state(struct rmpp_recv *r, enum rmpp_state state)
{
	struct rmpp_port *rmpp = &r->agent->port->rmpp;

	r->state = state;
	list_push_back(&rmpp->states[state], &r->node);
	rmpp->counts[state]++;
}

static void rmpp_recv_free_segments(struct rmpp_recv *r)
{
	struct list_head *node;

	r->agent->port->rmpp.segments -= r->held;
	r->held = 0;
	while ((node = list_pop_front(&r->segments)) != NULL)
		free(container_of(list_entry(node, struct ib_mad_recv_buf, list),
				  struct mad_message, recv.recv_buf));
}

void rmpp_recv_drop(struct rmpp_recv *r)
{
	work_cancel(&r->work);
	rmpp_recv_free_segments(r);
	rmpp_recv_leave_state(r);
	list_remove(&r->bucket);
	if (r->request != NULL)
		r->request->answer = NULL;
	free(r);
}

void rmpp_recv_drop_agent(struct mad_agent *agent)
{
	for (u32 i = 0; i < RMPP_STATES; i++)
		list_for_each_safe(r, &agent->port->rmpp.states[i], struct rmpp_recv, node)
			if (r->agent == agent)
				rmpp_recv_drop(r);
}

/* As rmpp_recv_drop; the request, if there is one, takes it for a timeout. */
static void rmpp_recv_give_up(struct rmpp_recv *r)
{
	struct mad_send *request = r->request;

	rmpp_recv_drop(r);
	if (request != NULL)
		mad_send_expire(request);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static struct mad_message *rmpp_recv_first(struct rmpp_recv *r)
{
	struct ib_mad_recv_buf *buf = list_first(&r->segments, struct ib_mad_recv_buf, list);

	return container_of(buf, struct mad_message, recv.recv_buf);
}

static u64 rmpp_recv_deadline_ns(const struct rmpp_recv *r)
{
	if (r->state == RMPP_STATE_KEPT)
		return r->heard_ns + RMPP_KEEP_MS * NS_PER_MS;
	return MIN(r->heard_ns + RMPP_IDLE_MS * NS_PER_MS, r->begun_ns + RMPP_TOTAL_MS * NS_PER_MS);
}

static void rmpp_recv_on_deadline(struct work *w)
{
	struct rmpp_recv *r = container_of(w, struct rmpp_recv, work);

	if (clock_now_ns() < rmpp_recv_deadline_ns(r)) {
		work_push_at(&r->work, rmpp_recv_deadline_ns(r)); /* a segment has come since */
		return;
	}
	if (r->state == RMPP_STATE_KEPT) {
		rmpp_recv_drop(r);
		return;
	}
	rmpp_reply(r->agent->port, rmpp_recv_first(r), IB_MGMT_RMPP_TYPE_ABORT,
		   IB_MGMT_RMPP_STATUS_T2L, 0, 0);
	rmpp_recv_give_up(r);
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* The request that the response answers, its timeout at rest. False: it answers none, or one whose
 * response is already arriving. */
static bool rmpp_recv_request(struct mad_agent *agent, const struct mad_message *m,
			      struct mad_send **request)
{
	bool ok;

	*request = NULL;
	if (!ib_response_mad(&m->mad))
		return true;
	lock_acquire(&mad_lock);
	*request = mad_send_find(agent, m);
	lock_release(&mad_lock);
	ok = *request != NULL && (*request)->answer == NULL;
	if (ok) {
		mad_send_pause(*request);
		(*request)->out.acked = (*request)->out.count; /* the responder has all of it */
	}
	return ok;
}

/* Unsolicited messages in a state that come from the source of `key`; *oldest is the first. */
static u32 rmpp_recv_of_source(struct rmpp_port *rmpp, enum rmpp_state state,
			       const struct rmpp_key *key, struct rmpp_recv **oldest)
{
	u32 count = 0;

	*oldest = NULL;
	list_for_each(r, &rmpp->states[state], struct rmpp_recv, node) {
		if (r->request != NULL || r->key.slid != key->slid ||
		    memcmp(r->key.sgid, key->sgid, sizeof(key->sgid)) != 0)
			continue;
		if (count++ == 0)
			*oldest = r;
	}
	return count;
}

/* Makes room for one more in a state of which the oldest may be forgotten. */
static void rmpp_recv_limit(struct rmpp_port *rmpp, enum rmpp_state state, u32 limit)
{
	if (rmpp->counts[state] >= limit)
		rmpp_recv_drop(list_first(&rmpp->states[state], struct rmpp_recv, node));
}

static void rmpp_recv_limit_half_open(struct rmpp_port *rmpp, const struct rmpp_key *key)
{
	struct rmpp_recv *oldest;

	if (rmpp_recv_of_source(rmpp, RMPP_STATE_HALF_OPEN, key, &oldest) >= RMPP_SOURCE)
		rmpp_recv_drop(oldest);
	rmpp_recv_limit(rmpp, RMPP_STATE_HALF_OPEN, RMPP_HALF_OPEN);
}

static struct rmpp_recv *rmpp_recv_new(struct mad_agent *agent, const struct mad_message *m)
{
	struct mad_port *port = agent->port;
	struct rmpp_key key = rmpp_key_of(m);
	struct mad_send *request;
	struct rmpp_recv *r;

	if (!rmpp_recv_request(agent, m, &request))
		return NULL;
	r = calloc(1, sizeof(*r));
	if (r == NULL) {
		if (request != NULL)
			mad_send_expire(request);
		return NULL;
	}
	if (request == NULL)
		rmpp_recv_limit_half_open(&port->rmpp, &key);
	else
		request->answer = r;
	r->agent = agent;
	r->request = request;
	r->key = key;
	r->begun_ns = r->heard_ns = clock_now_ns();
	r->reply_window = 1;
	list_init(&r->segments);
	list_push_back(rmpp_bucket(port, &r->key), &r->bucket);
	rmpp_recv_enter_state(r, request == NULL ? RMPP_STATE_HALF_OPEN : RMPP_STATE_OPEN);
	work_init(&r->work, port->cfg.queue, rmpp_recv_on_deadline);
	work_push_at(&r->work, rmpp_recv_deadline_ns(r));
	return r;
}

/* A second segment has come: a peer that listens to us. False: its share is used up. */
static bool rmpp_recv_open(struct rmpp_recv *r)
{
	struct rmpp_port *rmpp = &r->agent->port->rmpp;
	struct rmpp_recv *oldest;

	if (rmpp->counts[RMPP_STATE_OPEN] >= RMPP_OPEN ||
	    rmpp_recv_of_source(rmpp, RMPP_STATE_OPEN, &r->key, &oldest) >= RMPP_SOURCE)
		return false;
	rmpp_recv_leave_state(r);
	rmpp_recv_enter_state(r, RMPP_STATE_OPEN);
	return true;
}

/* ---- segments -------------------------------------------------------------------------------- */

static struct rmpp_segment rmpp_segment_of(const struct mad_message *m)
{
	const struct ib_rmpp_mad *mad = (const void *)&m->mad;
	const struct ib_rmpp_hdr *hdr = &mad->rmpp_hdr;
	u8 flags = ib_get_rmpp_flags(hdr);

	return (struct rmpp_segment){ .number = ntohl(hdr->seg_num),
				      .paylen = ntohl(hdr->paylen_newwin),
				      .first = (flags & IB_MGMT_RMPP_FLAG_FIRST) != 0,
				      .last = (flags & IB_MGMT_RMPP_FLAG_LAST) != 0 };
}

/* Bytes of the class' header behind RMPP's, which every segment repeats. */
static u32 rmpp_class_header(u8 mgmt_class)
{
	return (u32)ib_get_mad_data_offset(mgmt_class) - IB_MGMT_RMPP_HDR;
}

/* Judges a segment by itself: RMPP's status, or 0. */
static u8 rmpp_segment_judge(const struct mad_message *m, const struct rmpp_segment *s)
{
	if (s->number == 0 || s->first != (s->number == 1))
		return IB_MGMT_RMPP_STATUS_BAD_SEG;
	if (s->last && (s->paylen > IB_MGMT_RMPP_DATA ||
			s->paylen < rmpp_class_header(m->mad.mad_hdr.mgmt_class)))
		return IB_MGMT_RMPP_STATUS_BAD_LEN;
	if (s->first && !s->last && s->paylen != 0 && s->paylen <= IB_MGMT_RMPP_DATA)
		return IB_MGMT_RMPP_STATUS_BAD_LEN;
	return 0;
}

/* Judges it beside what has come before. */
static u8 rmpp_recv_judge(const struct rmpp_recv *r, const struct rmpp_segment *s)
{
	if (r->last != 0 && (s->number > r->last || s->last != (s->number == r->last)))
		return IB_MGMT_RMPP_STATUS_BAD_LEN;
	if (s->last && s->number < r->highest)
		return IB_MGMT_RMPP_STATUS_BAD_LEN;
	if (s->last && !s->first && r->total != 0 &&
	    r->total != (s->number - 1) * IB_MGMT_RMPP_DATA + s->paylen)
		return IB_MGMT_RMPP_STATUS_BAD_LEN;
	return 0;
}

/* The place behind which the segment belongs; NULL: it is there already. */
static struct list_head *rmpp_recv_place(struct rmpp_recv *r, u32 number)
{
	struct list_head *at = r->segments.prev;

	for (; at != &r->segments; at = at->prev) {
		struct ib_mad_recv_buf *buf = list_entry(at, struct ib_mad_recv_buf, list);
		u32 there = rmpp_segment_of(container_of(buf, struct mad_message, recv.recv_buf))
				    .number;

		if (there == number)
			return NULL;
		if (there < number)
			break;
	}
	return at;
}

/* How far the segments go without a gap, from in_order on. */
static void rmpp_recv_advance(struct rmpp_recv *r, struct list_head *from)
{
	for (; from != &r->segments; from = from->next) {
		struct ib_mad_recv_buf *buf = list_entry(from, struct ib_mad_recv_buf, list);
		u32 there = rmpp_segment_of(container_of(buf, struct mad_message, recv.recv_buf))
				    .number;

		if (there != r->in_order + 1)
			break;
		r->in_order = there;
	}
}

/* What the first and the last segment tell of the whole. */
static void rmpp_recv_learn(struct rmpp_recv *r, const struct rmpp_segment *s)
{
	if (s->last)
		r->last = s->number;
	if (!s->first || s->last || s->paylen == 0)
		return;
	r->total = s->paylen;
	r->last = (s->paylen - 1) / IB_MGMT_RMPP_DATA + 1;
}

static void rmpp_recv_insert(struct rmpp_recv *r, struct mad_message *m, struct list_head *behind,
			     u32 number)
{
	struct list_head *node = &m->recv.recv_buf.list;

	list_remove(node); /* of its own message of one MAD */
	list_insert(node, behind, behind->next);
	r->held++;
	r->agent->port->rmpp.segments++;
	r->highest = MAX(r->highest, number);
	r->heard_ns = clock_now_ns();
	rmpp_recv_advance(r, node);
}

/* ---- ACKs and the end ------------------------------------------------------------------------ */

static void rmpp_recv_ack(struct rmpp_recv *r, struct mad_message *to)
{
	r->acked = r->in_order;
	rmpp_reply(r->agent->port, to, IB_MGMT_RMPP_TYPE_ACK, 0, r->in_order,
		   r->in_order + RMPP_WINDOW);
}

static bool rmpp_recv_is_complete(const struct rmpp_recv *r)
{
	return r->last != 0 && r->in_order == r->last;
}

/* Is an ACK due behind a segment that was new? */
static bool rmpp_recv_owes_ack(struct rmpp_recv *r)
{
	if (r->acked == 0 || rmpp_recv_is_complete(r) ||
	    r->in_order - r->acked >= RMPP_WINDOW / 2)
		return true;
	if (r->highest == r->in_order)
		return false;
	/* a gap: the sender hears how far it goes, and once more that it stays */
	if (r->acked != r->in_order)
		return true;
	if (r->gap_acked == r->in_order)
		return false;
	r->gap_acked = r->in_order;
	return true;
}

/* Bytes of the message: the header once, and all data. */
static int rmpp_recv_length(struct rmpp_recv *r)
{
	struct ib_mad_recv_buf *buf =
		list_entry(r->segments.prev, struct ib_mad_recv_buf, list);
	struct rmpp_segment last =
		rmpp_segment_of(container_of(buf, struct mad_message, recv.recv_buf));
	u32 class_header = rmpp_class_header(r->key.mgmt_class);

	return (int)(IB_MGMT_RMPP_HDR + class_header +
		     (last.number - 1) * (IB_MGMT_RMPP_DATA - class_header) +
		     (last.paylen - class_header));
}

/* The message is whole: hands it over. What is left of *r acknowledges repeated segments. */
static void rmpp_recv_finish(struct rmpp_recv *r)
{
	struct mad_message *first = rmpp_recv_first(r);
	struct mad_send *request = r->request;
	struct mad_agent *agent = r->agent;

	first->recv.mad_len = rmpp_recv_length(r);
	list_splice(&r->segments, &first->recv.rmpp_list);
	agent->port->rmpp.segments -= r->held;
	r->held = 0;
	r->request = NULL;
	if (request != NULL)
		request->answer = NULL;
	rmpp_recv_leave_state(r);
	rmpp_recv_limit(&agent->port->rmpp, RMPP_STATE_KEPT, RMPP_KEPT);
	rmpp_recv_enter_state(r, RMPP_STATE_KEPT);
	work_push_at(&r->work, rmpp_recv_deadline_ns(r));
	mad_receive_deliver(agent, request, first);
}

/* ---- a segment comes ------------------------------------------------------------------------- */

/* The message that the segment belongs to; NULL: the segment means nothing. */
static struct rmpp_recv *rmpp_recv_of(struct mad_agent *agent, const struct mad_message *m,
				      const struct rmpp_segment *s)
{
	struct rmpp_recv *r = rmpp_recv_find(agent->port, m);
	struct mad_send *request = NULL;

	if (r != NULL && r->agent != agent)
		return NULL;
	if (r != NULL && r->state == RMPP_STATE_KEPT && s->first && ib_response_mad(&m->mad)) {
		/* a request that uses its transaction ID once more */
		lock_acquire(&mad_lock);
		request = mad_send_find(agent, m);
		lock_release(&mad_lock);
	}
	if (request != NULL) {
		rmpp_recv_drop(r);
		r = NULL;
	}
	return r == NULL && s->first ? rmpp_recv_new(agent, m) : r;
}

/* Is there room for one more segment of the message? */
static bool rmpp_recv_has_room(struct rmpp_recv *r)
{
	u32 free_segments = RMPP_SEGMENTS - r->agent->port->rmpp.segments;

	if (r->held >= free_segments || (r->held == 0 && r->last > free_segments / 2))
		return false;
	return r->state != RMPP_STATE_HALF_OPEN || r->held == 0 || rmpp_recv_open(r);
}

/* A segment that is not repeated and inside of the window. Takes *m if it answers 0. */
static u8 rmpp_recv_add(struct rmpp_recv *r, struct mad_message *m, const struct rmpp_segment *s)
{
	u8 status = rmpp_recv_judge(r, s);
	struct list_head *behind;

	if (status != 0)
		return status;
	behind = rmpp_recv_place(r, s->number);
	if (behind == NULL) {
		ib_free_recv_mad(&m->recv);
		return 0;
	}
	rmpp_recv_learn(r, s);
	if (!rmpp_recv_has_room(r))
		return IB_MGMT_RMPP_STATUS_RESX;
	rmpp_recv_insert(r, m, behind, s->number);
	if (rmpp_recv_owes_ack(r))
		rmpp_recv_ack(r, m);
	if (rmpp_recv_is_complete(r))
		rmpp_recv_finish(r);
	return 0;
}

u8 rmpp_recv_data(struct mad_agent *agent, struct mad_message *m)
{
	struct rmpp_segment s = rmpp_segment_of(m);
	u8 status = rmpp_segment_judge(m, &s);
	struct rmpp_recv *r;

	if (status != 0)
		return status;
	r = rmpp_recv_of(agent, m, &s);
	if (r == NULL) {
		mad_receive_drop(m, MAD_DROP_NO_AGENT);
		return 0;
	}
	if (s.number > r->in_order && s.number <= r->acked + RMPP_WINDOW)
		return rmpp_recv_add(r, m, &s);
	if (s.number <= r->in_order)
		rmpp_recv_ack(r, m);
	ib_free_recv_mad(&m->recv);
	return 0;
}

/* ---- double-sided ---------------------------------------------------------------------------- */

void rmpp_recv_turn(struct mad_port *port, const struct mad_message *m, u32 window)
{
	struct rmpp_recv *r = rmpp_recv_find(port, m);

	if (r != NULL && r->state == RMPP_STATE_KEPT)
		r->reply_window = window == 0 ? 1 : window;
}

/* Has the message come from where the send goes to? Without a GRH only the transaction tells. */
static bool rmpp_recv_is_of(const struct rmpp_recv *r, struct mad_send *send)
{
	static const u8 none[sizeof(r->key.sgid)];
	bool same;

	lock_acquire(&mad_lock);
	same = !send->has_dgid || memcmp(r->key.sgid, none, sizeof(none)) == 0 ||
	       memcmp(r->key.sgid, send->dgid.raw, sizeof(none)) == 0;
	lock_release(&mad_lock);
	return same;
}

u32 rmpp_recv_reply_window(struct mad_send *response)
{
	const struct ib_mad_hdr *hdr = response->buf.mad;
	struct mad_port *port = mad_agent_of(response->buf.mad_agent)->port;
	struct rmpp_key key = { .tid = hdr->tid };

	list_for_each(r, rmpp_bucket(port, &key), struct rmpp_recv, bucket)
		if (r->state == RMPP_STATE_KEPT && r->key.tid == hdr->tid &&
		    r->key.mgmt_class == hdr->mgmt_class &&
		    r->key.method == (hdr->method ^ IB_MGMT_METHOD_RESP) &&
		    rmpp_recv_is_of(r, response))
			return r->reply_window;
	return 1;
}
