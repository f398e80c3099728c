/* streams_cm.c: stands in for librdmacm's connection manager and for lib/rdmacm/rsocket/service.c:
 * ids, events, and messages between the two sides. A message takes its time; while the wire is cut
 * it is sent anew, MESSAGE_TRIES times.
 * In: rdma_* calls, service_* calls    Out: events of channels, queue pairs that are connected
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "door.h"
#include "streams.h"

enum { CM_REFUSED = 28, MESSAGE_TRIES = 8 };
#define MESSAGE_RETRY_NS (4 * NS_PER_S)

enum cm_state {
	CM_IDLE,
	CM_LISTENING,
	CM_CONNECTING,
	CM_REQUESTED,
	CM_ACCEPTED,
	CM_CONNECTED,
	CM_LEFT,
};

struct cm_channel {
	struct rdma_event_channel api; /* first */
	struct list_head events;
	int side;
	bool watched, scheduled; /* by the service */
	int number; /* of the rsocket, since it is watched */
};

struct cm_id {
	struct rdma_cm_id api; /* first */
	struct list_head node;
	enum cm_state state;
	u32 number, peer; /* 0: none */
	u32 psn, peer_psn, peer_qpn;
	u16 port;
	int side;
	bool peer_left;
};

struct cm_event {
	struct rdma_cm_event api; /* first */
	struct list_head node;
	u8 data[STREAM_HELLO_SIZE];
};

enum cm_kind { CM_REQ, CM_REP, CM_RTU, CM_REJ, CM_DREQ };

struct cm_message {
	enum cm_kind kind;
	u32 from, to; /* ids; `to` of a REQ: the port */
	int to_side;
	u32 qpn, psn, tries;
	u8 data[STREAM_HELLO_SIZE];
};

static struct list_head ids = LIST_HEAD_INIT(ids);
static int side_now;
static bool is_cut;
static u32 live;

void cm_enter(int side)
{
	side_now = side;
}

void cm_cut(bool cut)
{
	is_cut = cut;
	streams_net.cut[0] = cut;
}

bool cm_is_cut(void)
{
	return is_cut;
}

u32 cm_live(void)
{
	return live;
}

static struct cm_id *cm_id(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

static struct cm_id *cm_find(u32 number)
{
	list_for_each(id, &ids, struct cm_id, node)
		if (id->number == number)
			return id;
	return NULL;
}

static void *cm_new(size_t size)
{
	void *p = calloc(1, size);

	if (p == NULL)
		abort();
	live++;
	return p;
}

static void cm_free(void *p)
{
	live--;
	free(p);
}

/* ---- channels and events ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *c = cm_new(sizeof(*c));

	c->api.fd = eventfd(0, EFD_CLOEXEC);
	streams_check(c->api.fd >= 0, "no descriptor: %d", errno);
	c->side = side_now;
	list_init(&c->events);
	return &c->api;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *c = (struct cm_channel *)channel;

	streams_check(list_empty(&c->events), "a channel ends with events");
	close(c->api.fd);
	cm_free(c);
}

/* Returns whether it was watched, and is scheduled no longer. */
static bool service_runs(struct rdma_event_channel *channel)
{
	struct cm_channel *c = (struct cm_channel *)channel;

	if (c == NULL)
		return false;
	c->scheduled = false;
	return c->watched;
}

static void service_run(void *arg, u64 fd)
{
	struct rsocket *rs = table_get_leaving((int)fd);
	bool watched;

	if (rs == NULL)
		return;
	watched = service_runs(stream_of(rs)->early);
	watched |= service_runs(stream_of(rs)->channel);
	if (watched)
		stream_take_events(stream_of(rs));
	table_put(rs);
}

static void service_schedule(struct cm_channel *c)
{
	if (!c->watched || c->scheduled || list_empty(&c->events))
		return;
	c->scheduled = true;
	agenda_add(net_now() + rng_skewed(&streams_rng, 1000, NS_PER_MS), false, service_run, NULL,
		   (u64)c->number);
}

static struct cm_event *cm_push(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	struct cm_channel *c = (struct cm_channel *)id->api.channel;
	struct cm_event *e = cm_new(sizeof(*e));

	e->api.id = &id->api;
	e->api.event = type;
	e->api.status = status;
	list_push_back(&c->events, &e->node);
	service_schedule(c);
	return e;
}

static void cm_push_data(struct cm_event *e, const u8 data[STREAM_HELLO_SIZE])
{
	memcpy(e->data, data, STREAM_HELLO_SIZE);
	e->api.param.conn.private_data = e->data;
	e->api.param.conn.private_data_len = STREAM_HELLO_SIZE;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cm_channel *c = (struct cm_channel *)channel;

	if (list_empty(&c->events)) {
		errno = EAGAIN;
		return -1;
	}
	*event = &list_entry(list_pop_front(&c->events), struct cm_event, node)->api;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	cm_free(event);
	return 0;
}

/* ---- messages ---- */

static void cm_send(struct cm_id *id, enum cm_kind kind, u32 to, const void *data);

static void cm_deliver_req(const struct cm_message *m)
{
	struct cm_id *listener = NULL, *client = cm_find(m->from), *fresh;

	list_for_each(id, &ids, struct cm_id, node)
		if (id->state == CM_LISTENING && id->side == m->to_side && id->port == m->to)
			listener = id;
	if (listener == NULL) {
		if (client != NULL && client->state == CM_CONNECTING)
			(void)cm_push(client, RDMA_CM_EVENT_REJECTED, CM_REFUSED);
		return;
	}
	if (rdma_create_id(listener->api.channel, (struct rdma_cm_id **)&fresh, NULL,
			   RDMA_PS_TCP) != 0)
		abort();
	fresh->state = CM_REQUESTED;
	fresh->peer = m->from;
	fresh->peer_qpn = m->qpn;
	fresh->peer_psn = m->psn;
	fresh->api.verbs = verbs_context(fresh->side);
	cm_push_data(cm_push(fresh, RDMA_CM_EVENT_CONNECT_REQUEST, 0), m->data);
}

static void cm_deliver_rep(const struct cm_message *m)
{
	struct cm_id *id = cm_find(m->to);

	if (id == NULL || id->state != CM_CONNECTING) {
		if (cm_find(m->from) != NULL && cm_find(m->from)->state == CM_ACCEPTED)
			(void)cm_push(cm_find(m->from), RDMA_CM_EVENT_DISCONNECTED, 0);
		return;
	}
	id->peer = m->from;
	id->state = CM_CONNECTED;
	verbs_connect_qp(id->api.qp, m->qpn, id->psn, m->psn);
	cm_push_data(cm_push(id, RDMA_CM_EVENT_ESTABLISHED, 0), m->data);
	cm_send(id, CM_RTU, m->from, NULL);
}

static void cm_deliver(struct cm_message *m)
{
	struct cm_id *id = cm_find(m->to);

	switch (m->kind) {
	case CM_REQ:
		cm_deliver_req(m);
		break;
	case CM_REP:
		cm_deliver_rep(m);
		break;
	case CM_RTU:
		if (id == NULL || id->state != CM_ACCEPTED || id->peer_left)
			break;
		id->state = CM_CONNECTED;
		(void)cm_push(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		break;
	case CM_REJ:
		if (id != NULL && id->state == CM_CONNECTING)
			(void)cm_push(id, RDMA_CM_EVENT_REJECTED, CM_REFUSED);
		break;
	case CM_DREQ:
		if (id == NULL || (id->state != CM_CONNECTED && id->state != CM_ACCEPTED) ||
		    id->peer_left)
			break;
		id->peer_left = true;
		(void)cm_push(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	}
}

/* No answer came. */
static void cm_give_up(const struct cm_message *m)
{
	struct cm_id *id = cm_find(m->kind == CM_RTU ? m->to : m->from);

	if (id == NULL || m->kind == CM_DREQ || m->kind == CM_REJ)
		return;
	if (id->state == CM_CONNECTING || id->state == CM_ACCEPTED)
		(void)cm_push(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

static void cm_arrive(void *arg, u64 n)
{
	struct cm_message *m = arg;

	if (is_cut && ++m->tries < MESSAGE_TRIES) {
		agenda_add(net_now() + MESSAGE_RETRY_NS, false, cm_arrive, m, 0);
		return;
	}
	if (is_cut)
		cm_give_up(m);
	else
		cm_deliver(m);
	cm_free(m);
}

static void cm_send(struct cm_id *id, enum cm_kind kind, u32 to, const void *data)
{
	struct cm_message *m = cm_new(sizeof(*m));

	*m = (struct cm_message){ .kind = kind, .from = id->number, .to = to };
	m->to_side = 1 - id->side;
	m->qpn = id->api.qp != NULL ? id->api.qp->qp_num : 0;
	m->psn = id->psn;
	if (data != NULL)
		memcpy(m->data, data, sizeof(m->data));
	agenda_add(net_now() + rng_skewed(&streams_rng, 10000, 5 * NS_PER_MS), false, cm_arrive, m,
		   0);
}

/* ---- ids ---- */

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
		   enum rdma_port_space ps)
{
	static u32 numbers;
	struct cm_id *id = cm_new(sizeof(*id));

	id->number = ++numbers;
	id->psn = (u32)rng_next(&streams_rng) & 0xffffff;
	id->side = ((struct cm_channel *)channel)->side;
	id->api.channel = channel;
	id->api.context = context;
	list_push_back(&ids, &id->node);
	*out = &id->api;
	return 0;
}

/* The other end is told by whoever has the adapter, once. */
static void cm_leave(struct cm_id *id)
{
	if (id->state == CM_CONNECTED || id->state == CM_ACCEPTED)
		cm_send(id, CM_DREQ, id->peer, NULL);
	else if (id->state == CM_REQUESTED)
		cm_send(id, CM_REJ, id->peer, NULL);
	id->state = CM_LEFT;
}

int rdma_destroy_id(struct rdma_cm_id *api)
{
	struct cm_channel *c = (struct cm_channel *)api->channel;
	struct cm_id *id = cm_id(api);

	streams_check(api->qp == NULL, "an id ends before its queue pair");
	cm_leave(id);
	list_for_each_safe(e, &c->events, struct cm_event, node)
		if (e->api.id == api) {
			list_remove(&e->node);
			cm_free(e);
		}
	list_remove(&id->node);
	cm_free(id);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *api, struct rdma_event_channel *channel)
{
	struct cm_channel *from = (struct cm_channel *)api->channel;
	struct cm_channel *to = (struct cm_channel *)channel;

	list_for_each_safe(e, &from->events, struct cm_event, node)
		if (e->api.id == api) {
			list_remove(&e->node);
			list_push_back(&to->events, &e->node);
		}
	api->channel = channel;
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	cm_id(id)->port = ((struct sockaddr_in *)addr)->sin_port;
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	cm_id(id)->state = CM_LISTENING;
	return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size)
{
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *api, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	struct cm_id *id = cm_id(api);

	memcpy(&api->route.addr.dst_storage, dst, sizeof(struct sockaddr_in));
	id->port = ((struct sockaddr_in *)dst)->sin_port;
	api->verbs = verbs_context(id->side);
	(void)cm_push(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)cm_push(cm_id(id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

int rdma_connect(struct rdma_cm_id *api, struct rdma_conn_param *param)
{
	struct cm_id *id = cm_id(api);

	id->state = CM_CONNECTING;
	cm_send(id, CM_REQ, id->port, param->private_data);
	return 0;
}

int rdma_accept(struct rdma_cm_id *api, struct rdma_conn_param *param)
{
	struct cm_id *id = cm_id(api);

	id->state = CM_ACCEPTED;
	verbs_connect_qp(api->qp, id->peer_qpn, id->psn, id->peer_psn);
	cm_send(id, CM_REP, id->peer, param->private_data);
	return 0;
}

/* Its own CM loses nothing, and repeats nothing. */
bool connect_answer_briefly(struct rdma_cm_id *api)
{
	return true;
}

int rdma_notify(struct rdma_cm_id *api, enum ibv_event_type event)
{
	return 0;
}

int rdma_reject(struct rdma_cm_id *api, const void *data, u8 length)
{
	cm_leave(cm_id(api));
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *api)
{
	if (api->qp != NULL)
		verbs_break_qp(api->qp);
	cm_leave(cm_id(api));
	return 0;
}

/* ---- the service ---- */

static struct {
	int fds[4 * STREAMS_USERS];
	u32 count;
	u64 due_ns; /* 0: nothing planned */
} alive;

static void alive_run(void *arg, u64 due)
{
	u64 next = UINT64_MAX;

	if (due != alive.due_ns)
		return; /* an earlier one has taken its place */
	alive.due_ns = 0;
	for (u32 i = 0; i < alive.count; i++) {
		struct rsocket *rs = table_get_leaving(alive.fds[i]);

		if (rs == NULL)
			continue;
		accept_look(stream_of(rs), net_now(), &next);
		stream_judge_left(stream_of(rs), net_now(), &next);
		stream_keepalive(stream_of(rs), net_now(), &next);
		table_put(rs);
	}
	if (next == UINT64_MAX)
		return;
	alive.due_ns = MAX(next, net_now()) + NS_PER_MS;
	agenda_add(alive.due_ns, false, alive_run, NULL, alive.due_ns);
}

int service_keepalive(struct stream *s, bool on)
{
	u32 i = 0;

	while (i < alive.count && alive.fds[i] != s->rs.fd)
		i++;
	if (on && i == alive.count) {
		streams_check(alive.count < ARRAY_LEN(alive.fds), "too many to keep alive");
		alive.fds[alive.count++] = s->rs.fd;
	} else if (!on && i < alive.count) {
		alive.fds[i] = alive.fds[--alive.count];
	}
	if (on) {
		alive.due_ns = net_now() + 1000;
		agenda_add(alive.due_ns, false, alive_run, NULL, alive.due_ns);
	}
	return 0;
}

static void service_set(struct rdma_event_channel *channel, int number, bool watched)
{
	struct cm_channel *c = (struct cm_channel *)channel;

	if (c == NULL)
		return;
	c->watched = watched;
	c->number = number;
	service_schedule(c);
}

int service_begin(void)
{
	return 0;
}

int service_watch(struct stream *s)
{
	service_set(s->channel, s->rs.fd, true);
	service_set(s->early, s->rs.fd, true);
	return 0;
}

void service_pause(struct stream *s)
{
	service_set(s->channel, s->rs.fd, false);
}

void service_unwatch(struct stream *s)
{
	service_pause(s);
	service_set(s->early, s->rs.fd, false);
}

/* One thread does everything here, and holds nothing between its steps. */
void service_leave(int fd)
{
}

/* No stream has RDMA_CLOSE_AT_ONCE. */
int linger_begin(void)
{
	return -ENOSYS;
}

void linger_keep(struct stream *s)
{
	stream_destroy(s);
}

u32 linger_count(void)
{
	return 0;
}
