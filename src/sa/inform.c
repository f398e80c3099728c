/* inform.c: subscriptions to traps that several consumers of a port share. The first has the port
 * subscribe at the SA, the last unsubscribe. Where other processes have the port, too, the node
 * (mad_member_set) unsubscribes for the last of them, and answers reports.
 * In:    subscriptions and ends of consumers, reports and answers of the SA, events of ports
 * Out:   InformInfo; ReportResp; callbacks
 * Runs:  all of a trap on sa_queue, one step after the other; reports arrive on the MAD layer's
 * Locks: sa_lock
 * Spec:  IBA vol 1, 13.4.8.3 (InformInfo), 13.4.11 (event forwarding)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mad/mad.h"
#include "sa/sa_priv.h"

enum {
	SA_INFORM_MS = 1000, /* the timeout of a subscription, which is repeated ... */
	SA_INFORM_RETRIES = 9,
	SA_INFORM_RESP_TIME = 19, /* 2 s, as the node's unsubscription has it */
	SA_REPORTS = 256, /* that wait for the consumers of a trap */
};

/* A notice that consumers have not heard yet. */
struct sa_report {
	struct list_head node;
	u64 number;
	struct ib_sa_notice notice;
} OWNED_BY(its topic);

/* A trap of a port. */
struct sa_topic {
	struct sa_shared shared GUARDS_ITSELF; /* with subscribers */
	u16 trap FIXED; /* or IB_SA_TRAP_ALL */
	struct list_head reports GUARDED_BY(sa_lock);
	u32 report_count GUARDED_BY(sa_lock); /* in that list */
	u64 report_number GUARDED_BY(sa_lock); /* of the last report that came */
	u32 outcome GUARDED_BY(sa_lock); /* the number of `status`; 0: there is none yet */
	int status GUARDED_BY(sa_lock);
	bool due GUARDED_BY(sa_lock); /* the port shall subscribe, for the first time or again */
	bool said GUARDED_BY(sa_lock);	  /* SA and node may know: to be ended */
	bool leaving GUARDED_BY(sa_lock); /* the query that is under way unsubscribes */
	int id GUARDED_BY(sa_lock); /* of the query, or 0: it is not to be cancelled */
	struct ib_sa_query *query GUARDED_BY(sa_lock);
};

struct sa_subscriber {
	struct sa_consumer consumer GUARDS_ITSELF;
	struct ib_inform_info pub OWNED_BY(the consumer);
	u64 heard GUARDED_BY(sa_lock);	 /* the number of the last report */
	u32 outcome GUARDED_BY(sa_lock); /* that it has been told */
};

static void sa_inform_set_status(struct sa_topic *t, int status) REQUIRES(sa_lock)
{
	t->status = status;
	t->outcome++;
	t->outcome += t->outcome == 0;
	work_push(&t->shared.work);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Consumers that do not keep up miss notices, and are told so. */
static void sa_inform_take(struct sa_topic *t, const struct ib_sa_notice *notice) REQUIRES(sa_lock)
{
	struct sa_report *r = t->report_count < SA_REPORTS ? malloc(sizeof(*r)) : NULL;

	if (r == NULL) {
		if (t->status == 0)
			sa_inform_set_status(t, 0);
		return;
	}
	r->number = ++t->report_number;
	r->notice = *notice;
	list_push_back(&t->reports, &r->node);
	t->report_count++;
	work_push(&t->shared.work);
}

static bool sa_inform_is_about(const struct sa_topic *t, const struct ib_sa_notice *notice)
{
	return notice->is_generic && (t->trap == IB_SA_TRAP_ALL ||
				      t->trap == be16toh(notice->trap_num));
}

static void sa_inform_on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	(void)ib_destroy_ah(wc->send_buf->ah);
	ib_free_send_mad(wc->send_buf);
}

/* A report that is not answered comes again. */
static void sa_inform_answer(struct sa_port *port, struct ib_mad_agent *agent,
			     struct ib_mad_recv_wc *recv)
{
	struct ib_mad_send_buf *buf;
	struct ib_ah *ah = ib_create_ah_from_wc(port->pd, recv->wc, recv->recv_buf.grh,
						port->number);

	if (IS_ERR(ah))
		return;
	buf = ib_create_send_mad(agent, recv->wc->src_qp, recv->wc->pkey_index, 0, IB_MGMT_SA_HDR,
				 IB_MGMT_SA_DATA, 0);
	if (IS_ERR(buf)) {
		(void)ib_destroy_ah(ah);
		return;
	}
	memcpy(buf->mad, recv->recv_buf.mad, IB_MGMT_MAD_SIZE);
	((struct ib_mad *)buf->mad)->mad_hdr.method = IB_MGMT_METHOD_REPORT_RESP;
	((struct ib_mad *)buf->mad)->mad_hdr.status = 0;
	buf->ah = ah;
	if (ib_post_send_mad(buf, NULL) == 0)
		return;
	(void)ib_destroy_ah(ah);
	ib_free_send_mad(buf);
}

static void sa_inform_on_report(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	struct ib_sa_mad *mad = (struct ib_sa_mad *)recv->recv_buf.mad;
	struct sa_port *port = agent->context;
	struct ib_sa_notice notice;
	bool kept;

	if (mad->mad_hdr.method == IB_MGMT_METHOD_REPORT &&
	    be16toh(mad->mad_hdr.attr_id) == IB_SA_ATTR_NOTICE) {
		ib_sa_unpack_notice(mad->data, &notice);
		lock_acquire(&sa_lock);
		list_for_each(t, &port->topics, struct sa_topic, shared.node)
			if (sa_inform_is_about(t, &notice))
				sa_inform_take(t, &notice);
		kept = port->kept;
		lock_release(&sa_lock);
		if (!kept)
			sa_inform_answer(port, agent, recv);
	}
	ib_free_recv_mad(recv);
}

/* ---- at the SA ------------------------------------------------------------------------------- */

static void sa_inform_pack(const void *record, void *attribute)
{
	ib_sa_pack_inform((struct ib_sa_inform *)(uintptr_t)record, attribute);
}

static void sa_inform_done(struct sa_query *q, int status, struct ib_sa_mad *mad)
{
	struct sa_topic *t = q->context;

	lock_acquire(&sa_lock);
	t->shared.asking = false;
	t->id = 0;
	/* one that was cancelled is asked again, or its port is gone */
	if (!t->leaving && status != -EINTR)
		sa_inform_set_status(t, status);
	work_push(&t->shared.work);
	lock_release(&sa_lock);
}

/* With a use of the port, which waits for the first subscription; on sa_queue only. */
static int sa_inform_listen(struct sa_port *port)
{
	struct ib_mad_agent *agent;

	if (port->reports != NULL)
		return 0;
	agent = mad_register_report_agent(port->device, port->number, sa_inform_on_sent,
					  sa_inform_on_report, port);
	if (IS_ERR(agent)) /* -EINVAL: somebody else has the reports */
		return PTR_ERR(agent) == -EINVAL ? -EBUSY : (int)PTR_ERR(agent);
	port->reports = agent;
	return 0;
}

/* Has the node know; -EOPNOTSUPP: the port is not a node's. */
static int sa_inform_say(struct sa_topic *t, bool on)
{
	struct mad_member member = { .subscribes = true, .trap = t->trap, .states = on };

	member.pkey_index = sa_port_pkey_index(t->shared.port);
	return mad_member_set(t->shared.port->agent, &member);
}

static int sa_inform_post(struct sa_topic *t, bool on, struct ib_sa_query **query)
{
	struct ib_sa_inform rec = { .lid_range_begin = 0xffff,
				    .is_generic = 1,
				    .subscribe = on,
				    .type = 0xffff,
				    .trap_num = htobe16(t->trap),
				    .qpn = htobe32(1),
				    .resp_time = SA_INFORM_RESP_TIME,
				    .producer_type = htobe32(0xffffff) };
	struct sa_ask ask = { .method = IB_MGMT_METHOD_SET,
			      .attribute = IB_SA_ATTR_INFORM_INFO,
			      .timeout_ms = on ? SA_INFORM_MS : SA_LEAVE_MS,
			      .retries = on ? SA_INFORM_RETRIES : 1,
			      .done = sa_inform_done,
			      .context = t,
			      .query = query };

	return sa_query_begin(t->shared.port, &ask, &rec, sa_inform_pack);
}

/* A subscription that is under way, and goes to an SA that may be none any more. */
static struct sa_topic *sa_inform_outdated(struct sa_port *port) REQUIRES(sa_lock)
{
	list_for_each(t, &port->topics, struct sa_topic, shared.node)
		if (t->shared.asking && !t->leaving && t->due && t->id != 0)
			return t;
	return NULL;
}

/* Cancels subscriptions that are to be asked for again; lets go of the lock meanwhile. */
static void sa_inform_cancel(struct sa_port *port) REQUIRES(sa_lock)
{
	struct sa_topic *t;

	while ((t = sa_inform_outdated(port)) != NULL) {
		struct ib_sa_query *query = t->query;
		int id = t->id;

		t->id = 0;
		lock_release(&sa_lock);
		ib_sa_cancel_query(id, query);
		lock_acquire(&sa_lock);
	}
}

/* Has the port subscribe, or unsubscribe; lets go of the lock meanwhile. Without a use of the port
 * nothing is left to ask. */
static void sa_inform_ask(struct sa_topic *t, bool on) REQUIRES(sa_lock)
{
	struct sa_port *port = t->shared.port;
	struct ib_sa_query *query = NULL;
	int err, id = 0;

	t->due = false;
	t->said = on;
	if (!sa_port_try(port))
		return;
	t->shared.asking = true;
	t->leaving = !on;
	lock_release(&sa_lock);
	err = on ? sa_inform_listen(port) : 0;
	if (err == 0)
		err = sa_inform_say(t, on);
	lock_acquire(&sa_lock);
	port->kept |= err == 0;
	lock_release(&sa_lock);
	if (err == -EOPNOTSUPP || (on && err == 0))
		err = id = sa_inform_post(t, on, &query);
	sa_port_put(port);
	lock_acquire(&sa_lock);
	if (id > 0) { /* it may have ended by now */
		t->id = t->shared.asking ? id : 0;
		t->query = query;
		sa_inform_cancel(port);
		return;
	}
	t->shared.asking = false;
	if (on)
		sa_inform_set_status(t, err);
}

/* ---- steps of a topic, on the queue ---------------------------------------------------------- */

/* Lets go of the lock meanwhile. A consumer that returns an error has ended by that. */
static void sa_inform_tell(struct sa_subscriber *s, int status, struct ib_sa_notice *notice)
	REQUIRES(sa_lock)
{
	int ends;

	sa_consumer_begin_callback(&s->consumer);
	ends = s->pub.callback(status, &s->pub, notice);
	sa_consumer_end_callback(&s->consumer, ends);
}

/* Ends one consumer. False: there is none to end. */
static bool sa_inform_reap(struct sa_topic *t) REQUIRES(sa_lock)
{
	list_for_each(c, &t->shared.consumers, struct sa_consumer, node)
		if (c->ending && !c->in_callback) {
			sa_consumer_free(c);
			return true;
		}
	return false;
}

static bool sa_inform_tell_status(struct sa_topic *t) REQUIRES(sa_lock)
{
	list_for_each(s, &t->shared.consumers, struct sa_subscriber, consumer.node) {
		if (s->consumer.ending || s->outcome == t->outcome)
			continue;
		s->outcome = t->outcome;
		sa_inform_tell(s, t->status, NULL);
		return true;
	}
	return false;
}

/* The oldest report goes when all have heard it. */
static bool sa_inform_tell_report(struct sa_topic *t) REQUIRES(sa_lock)
{
	struct sa_report *r;

	if (list_empty(&t->reports))
		return false;
	r = list_entry(t->reports.next, struct sa_report, node);
	list_for_each(s, &t->shared.consumers, struct sa_subscriber, consumer.node) {
		if (s->consumer.ending || s->heard >= r->number)
			continue;
		s->heard = r->number;
		sa_inform_tell(s, 0, &r->notice);
		return true;
	}
	list_remove(&r->node);
	t->report_count--;
	free(r);
	return true;
}

static bool sa_inform_step(struct sa_shared *shared) REQUIRES(sa_lock)
{
	struct sa_topic *t = container_of(shared, struct sa_topic, shared);
	bool wanted;

	if (sa_inform_reap(t) || sa_inform_tell_status(t) || sa_inform_tell_report(t))
		return true;
	wanted = !list_empty(&shared->consumers);
	if (shared->asking || !(wanted ? t->due && !shared->port_gone : t->said))
		return false;
	sa_inform_ask(t, wanted);
	return true;
}

/* ---- for consumers --------------------------------------------------------------------------- */

static bool sa_inform_same(const struct sa_shared *shared, const struct sa_shared *fresh)
{
	return container_of(shared, struct sa_topic, shared)->trap ==
	       container_of(fresh, struct sa_topic, shared)->trap;
}

static void sa_inform_entered(struct sa_shared *shared, struct sa_consumer *c) REQUIRES(sa_lock)
{
	struct sa_topic *t = container_of(shared, struct sa_topic, shared);
	struct sa_subscriber *s = container_of(c, struct sa_subscriber, consumer);

	s->heard = t->report_number;
	if (t->said && t->status == 0)
		return;
	/* a failure is not its own: it is tried again */
	s->outcome = t->outcome;
	t->due = true;
}

static const struct sa_kind sa_inform_kind = { sa_inform_same, sa_inform_entered, sa_inform_step };

static struct sa_topic *sa_inform_make(struct sa_port *port, u16 trap) NO_THREAD_SAFETY
{
	struct sa_topic *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	sa_shared_init(&t->shared, &sa_inform_kind, port);
	t->trap = trap;
	list_init(&t->reports);
	return t;
}

struct ib_inform_info *
ib_sa_register_inform_info(struct ib_sa_client *client, struct ib_device *device, u8 port_num,
			   u16 trap_number, unsigned int gfp_mask,
			   int (*callback)(int status, struct ib_inform_info *info,
					   struct ib_sa_notice *notice),
			   void *context)
{
	struct sa_port *port = sa_port_get(device, port_num);
	struct sa_subscriber *s;
	struct sa_topic *t;
	int err = -ENOMEM;

	if (port == NULL)
		return ERR_PTR(-ENODEV);
	s = calloc(1, sizeof(*s));
	t = sa_inform_make(port, trap_number);
	if (s != NULL && t != NULL) {
		s->pub = (struct ib_inform_info){ context, callback, trap_number };
		s->consumer.client = client;
		err = sa_consumer_enter(&s->consumer, &port->topics, &t->shared);
	} else {
		free(t);
	}
	sa_port_put(port);
	if (err == 0)
		return &s->pub;
	free(s);
	return ERR_PTR(err);
}

int ib_sa_unregister_inform_info(struct ib_inform_info *info)
{
	sa_consumer_end(&container_of(info, struct sa_subscriber, pub)->consumer);
	return 0;
}

/* ---- ports ----------------------------------------------------------------------------------- */

void sa_inform_port_changed(struct ib_device *device, u8 number)
{
	struct sa_port *port = sa_port_get(device, number);

	if (port == NULL)
		return;
	lock_acquire(&sa_lock);
	list_for_each(each, &port->topics, struct sa_topic, shared.node) {
		each->due = true;
		work_push(&each->shared.work);
	}
	sa_inform_cancel(port);
	lock_release(&sa_lock);
	sa_port_put(port);
}

void sa_inform_port_gone(struct sa_port *port)
{
	if (port->reports != NULL)
		(void)ib_unregister_mad_agent(port->reports);
	lock_acquire(&sa_lock);
	list_for_each(t, &port->topics, struct sa_topic, shared.node) {
		t->shared.port_gone = true;
		sa_inform_set_status(t, -ENODEV);
	}
	/* each topic ends when the consumers have ended their subscriptions */
	sa_shared_wait(&port->topics);
	lock_release(&sa_lock);
}
