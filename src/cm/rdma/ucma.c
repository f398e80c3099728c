/* ucma.c: the RDMA CM's ids and events for librdmacm.
 * In:    calls of the door, events of the RDMA CM      Out: events on channels
 * Runs:  the application's threads; the handler on the CM's
 * Locks: ucma_lock; the async queue's under it
 *
 * A channel's descriptor counts tokens, of which there are at least as many as events: who has
 * taken a token and finds no event (it was withdrawn meanwhile) looks again.
 */
#include "cm/rdma/ucma.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "cm/rdma/cma_priv.h"
#include "event/event.h"

enum {
	/* Descriptors that a connection takes at most: a peer of this node's, sockets for others */
	UCMA_FDS = 8,
	/* with which a process can be attached to the node and have a connection. One that could
	 * not be attached has most of them free */
	UCMA_LEAST_FDS = 20,
};

struct ucma_channel {
	struct async_queue *tokens FIXED;
	struct list_head events OWNED_BY(ucma_lock); /* struct ucma_waiting, oldest first */
	/* its ids, and the application until it destroys the channel, which it may before them */
	u32 users OWNED_BY(ucma_lock);
};

struct ucma_id {
	struct rdma_cm_id *cm FIXED;
	struct ucma_channel *channel OWNED_BY(ucma_lock);
	void *cookie OWNED_BY(ucma_lock);
	u32 owed OWNED_BY(ucma_lock);	/* events that were taken and not acknowledged */
	struct cond acked OWNED_BY(ucma_lock);
	u32 backlog OWNED_BY(ucma_lock); /* of a listening id: how many requests may still come */
	bool removed OWNED_BY(ucma_lock); /* its device has gone */
	bool told OWNED_BY(ucma_lock); /* its events: of a request's id not before ucma_accept */
	bool ended OWNED_BY(ucma_lock); /* nothing more comes of it */
	u32 process FIXED;	 /* ucma_process when it was made: another one's is a parent's */
	struct list_head groups OWNED_BY(ucma_lock); /* struct ucma_mcast */
};

struct ucma_mcast {
	struct list_head node OWNED_BY(ucma_lock); /* struct ucma_id.groups */
	struct ucma_id *id FIXED;
	void *cookie FIXED;
	u32 owed OWNED_BY(ucma_lock); /* as struct ucma_id.owed, which counts them too */
};

struct ucma_waiting {
	struct list_head node;
	struct ucma_event event;
} OWNED_BY(ucma_lock);

static struct lock ucma_lock ONE_AT_A_TIME;
/* Counts the forks between the first process and this one. */
static u32 ucma_process; /* changes in a child's first moment only */

/* ---- channels -------------------------------------------------------------------------------- */

struct ucma_channel *ucma_channel_create(int *err)
{
	struct ucma_channel *ch = calloc(1, sizeof(*ch));

	if (ch == NULL) {
		*err = -ENOMEM;
		return NULL;
	}
	ch->tokens = async_queue_create(err);
	if (ch->tokens == NULL) {
		free(ch);
		return NULL;
	}
	list_init(&ch->events);
	ch->users = 1;
	return ch;
}

void ucma_channel_close(struct ucma_channel *ch)
{
	async_queue_close(ch->tokens);
}

static bool ucma_channel_drop(struct ucma_channel *ch) REQUIRES(ucma_lock)
{
	return --ch->users == 0;
}

static void ucma_channel_free(struct ucma_channel *ch)
{
	async_queue_destroy(ch->tokens);
	free(ch);
}

void ucma_channel_destroy(struct ucma_channel *ch)
{
	bool last;

	lock_acquire(&ucma_lock);
	last = ucma_channel_drop(ch);
	lock_release(&ucma_lock);
	if (last)
		ucma_channel_free(ch);
}

int ucma_channel_fd(const struct ucma_channel *ch)
{
	return async_queue_fd(ch->tokens);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void ucma_post(struct ucma_channel *ch, struct ucma_waiting *w) REQUIRES(ucma_lock)
{
	struct async_event token = { .element = w };

	list_push_back(&ch->events, &w->node);
	async_queue_post(ch->tokens, &token);
}

/* Takes an event from its channel, with its token if nobody has that. */
static void ucma_withdraw(struct ucma_channel *ch, struct ucma_waiting *w) REQUIRES(ucma_lock)
{
	list_remove(&w->node);
	async_queue_forget(ch->tokens, w);
}

static void ucma_fill_conn(struct ucma_event *out, const struct rdma_conn_param *conn)
{
	out->conn = (struct ucma_conn){
		.private_data_len = conn->private_data_len,
		.responder_resources = conn->responder_resources,
		.initiator_depth = conn->initiator_depth,
		.flow_control = conn->flow_control,
		.retry_count = conn->retry_count,
		.rnr_retry_count = conn->rnr_retry_count,
		.srq = conn->srq,
		.qp_num = conn->qp_num,
	};
	if (conn->private_data != NULL)
		memcpy(out->data, conn->private_data, conn->private_data_len);
}

static void ucma_fill_ud(struct ucma_event *out, const struct rdma_ud_param *ud)
{
	out->conn = (struct ucma_conn){
		.private_data_len = ud->private_data_len,
		.qp_num = ud->qp_num,
	};
	out->ah = ud->ah_attr;
	out->qkey = ud->qkey;
	if (ud->private_data != NULL)
		memcpy(out->data, ud->private_data, ud->private_data_len);
}

/* The membership that an event is about; NULL: it is about another thing. */
static struct ucma_mcast *ucma_event_mcast(const struct rdma_cm_event *event)
{
	if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN &&
	    event->event != RDMA_CM_EVENT_MULTICAST_ERROR)
		return NULL;
	return (struct ucma_mcast *)event->param.ud.private_data;
}

static struct ucma_waiting *ucma_waiting_new(struct ucma_id *id, const struct rdma_cm_id *cm,
					     const struct rdma_cm_event *event)
{
	struct ucma_waiting *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->event.type = event->event;
	w->event.status = event->status;
	w->event.id = w->event.owner = id;
	w->event.mcast = ucma_event_mcast(event);
	if (w->event.mcast != NULL)
		w->event.mcast_cookie = w->event.mcast->cookie;
	w->event.datagram = cm->qp_type == IB_QPT_UD;
	if (w->event.datagram)
		ucma_fill_ud(&w->event, &event->param.ud);
	else
		ucma_fill_conn(&w->event, &event->param.conn);
	return w;
}

/* A request: its id waits with the event until the application takes both. */
static int ucma_request(struct rdma_cm_id *cm, const struct rdma_cm_event *event)
{
	struct ucma_id *listen = cm->context, *id = calloc(1, sizeof(*id));
	struct ucma_waiting *w = ucma_waiting_new(id, cm, event);
	bool refused;

	lock_acquire(&ucma_lock);
	refused = id == NULL || w == NULL || listen->backlog == 0 || listen->ended;
	if (!refused) {
		listen->backlog--;
		id->cm = cm;
		id->process = ucma_process;
		id->channel = listen->channel;
		id->channel->users++;
		list_init(&id->groups);
		w->event.owner = listen;
		cm->context = id;
		ucma_post(listen->channel, w);
	}
	lock_release(&ucma_lock);
	if (!refused)
		return 0;
	free(w);
	free(id);
	return -ENOMEM;
}

/* Servers know a new connection's context only once they accept it, so until then no event names
 * its id. If the connection has ended meanwhile, ucma_accept says so. */
static int ucma_handler(struct rdma_cm_id *cm, struct rdma_cm_event *event)
{
	struct ucma_id *id = cm->context;
	struct ucma_waiting *w;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return ucma_request(cm, event);
	w = ucma_waiting_new(id, cm, event); /* NULL: lost, but the id is the application's */
	lock_acquire(&ucma_lock);
	if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		id->removed = true;
	if (w != NULL && id->told && !id->ended) {
		ucma_post(id->channel, w);
		w = NULL;
	}
	lock_release(&ucma_lock);
	free(w);
	return 0;
}

static struct ucma_waiting *ucma_take(struct ucma_channel *ch)
{
	struct ucma_waiting *w = NULL;

	lock_acquire(&ucma_lock);
	if (!list_empty(&ch->events)) {
		w = list_first(&ch->events, struct ucma_waiting, node);
		list_remove(&w->node);
		w->event.owner->owed++;
		if (w->event.mcast != NULL)
			w->event.mcast->owed++;
		w->event.cookie = w->event.owner->cookie;
		if (w->event.owner != w->event.id)
			w->event.owner->backlog++;
	}
	lock_release(&ucma_lock);
	return w;
}

int ucma_get_event(struct ucma_channel *ch, struct ucma_event *out)
{
	struct ucma_waiting *w = NULL;
	struct async_event token;
	int err;

	while (w == NULL) {
		err = async_queue_next(ch->tokens, &token);
		if (err < 0)
			return err;
		async_queue_ack(ch->tokens, &token);
		w = ucma_take(ch);
	}
	*out = w->event;
	out->conn.private_data = out->conn.private_data_len > 0 ? out->data : NULL;
	free(w);
	return 0;
}

void ucma_ack(struct ucma_id *owner, struct ucma_mcast *mcast)
{
	lock_acquire(&ucma_lock);
	owner->owed--;
	if (mcast != NULL)
		mcast->owed--;
	cond_wake(&owner->acked);
	lock_release(&ucma_lock);
}

/* ---- ids ------------------------------------------------------------------------------------- */

struct ucma_id *ucma_create_id(struct ucma_channel *ch, void *cookie, u32 port_space, u32 qp_type)
{
	struct ucma_id *id = calloc(1, sizeof(*id));
	struct rdma_cm_id *cm;

	if (id == NULL)
		return ERR_PTR(-ENOMEM);
	id->process = ucma_process;
	id->channel = ch;
	id->cookie = cookie;
	id->told = true;
	list_init(&id->groups);
	cm = rdma_create_id(ucma_handler, id, (enum rdma_port_space)port_space,
			    (enum ib_qp_type)qp_type);
	if (IS_ERR(cm)) {
		free(id);
		return ERR_PTR(PTR_ERR(cm));
	}
	cma_id(cm)->user = true;
	id->cm = cm;
	lock_acquire(&ucma_lock);
	ch->users++;
	lock_release(&ucma_lock);
	return id;
}

/* The next waiting event that is owed to the id, and to the membership unless that is NULL,
 * withdrawn; NULL: none. */
static struct ucma_waiting *ucma_withdraw_next(struct ucma_id *id, const struct ucma_mcast *mcast)
{
	struct ucma_waiting *found = NULL;

	lock_acquire(&ucma_lock);
	list_for_each(w, &id->channel->events, struct ucma_waiting, node) {
		if (w->event.owner != id || (mcast != NULL && w->event.mcast != mcast))
			continue;
		found = w;
		break;
	}
	if (found != NULL)
		ucma_withdraw(id->channel, found);
	lock_release(&ucma_lock);
	return found;
}

/* A thread that has an event of the id may call for it until it acknowledges the event. */
void ucma_destroy_id(struct ucma_id *id)
{
	struct ucma_waiting *w;

	lock_acquire(&ucma_lock);
	id->ended = true;
	lock_release(&ucma_lock);
	while ((w = ucma_withdraw_next(id, NULL)) != NULL) {
		/* a request that nobody has seen */
		if (w->event.id != id)
			ucma_destroy_id(w->event.id);
		free(w);
	}
	ucma_wait_acked(id);
	rdma_destroy_id(id->cm);
	list_for_each_safe(m, &id->groups, struct ucma_mcast, node)
		free(m);
	ucma_channel_destroy(id->channel);
	free(id);
}

void ucma_wait_acked(struct ucma_id *id)
{
	lock_acquire(&ucma_lock);
	while (id->owed > 0)
		cond_wait(&id->acked, &ucma_lock);
	lock_release(&ucma_lock);
}

void ucma_set_cookie(struct ucma_id *id, void *cookie)
{
	lock_acquire(&ucma_lock);
	id->cookie = cookie;
	lock_release(&ucma_lock);
}

/* A connection's state and its node are the process' that made it. */
static void ucma_warn_of_parents_id(void)
{
	static bool told; /* atomic */

	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		log_warn("rdmacm", "an id of the parent process does nothing in a forked child: "
				   "the child makes its own, or the parent serves this one");
}

bool ucma_is_parents(const struct ucma_id *id)
{
	if (id->process == ucma_process)
		return false;
	ucma_warn_of_parents_id();
	return true;
}

int ucma_check(struct ucma_id *id)
{
	bool removed;

	if (ucma_is_parents(id))
		return -EINVAL;
	lock_acquire(&ucma_lock);
	removed = id->removed;
	lock_release(&ucma_lock);
	return removed ? -EIO : 0;
}

int ucma_migrate(struct ucma_id *id, struct ucma_channel *ch)
{
	struct ucma_channel *from;
	bool last;
	int err = ucma_check(id);

	if (err < 0)
		return err;
	lock_acquire(&ucma_lock);
	from = id->channel;
	id->channel = ch;
	ch->users++;
	list_for_each_safe(w, &from->events, struct ucma_waiting, node) {
		if (w->event.owner != id || from == ch)
			continue;
		ucma_withdraw(from, w);
		if (w->event.id != id) {
			w->event.id->channel = ch;
			ch->users++;
			from->users--;
		}
		ucma_post(ch, w);
	}
	last = ucma_channel_drop(from);
	lock_release(&ucma_lock);
	if (last)
		ucma_channel_free(from);
	return 0;
}

int ucma_write_event(struct ucma_id *id, u32 type, int status, u64 arg)
{
	struct ucma_waiting *w;
	bool ended;

	if (ucma_is_parents(id))
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	w->event.type = type;
	w->event.status = status;
	w->event.arg = arg;
	w->event.id = w->event.owner = id;
	lock_acquire(&ucma_lock);
	ended = id->ended; /* its events have been withdrawn, and nobody withdraws this one */
	if (!ended)
		ucma_post(id->channel, w);
	lock_release(&ucma_lock);
	if (!ended)
		return 0;
	free(w);
	return -EINVAL;
}

/* ---- multicast groups ------------------------------------------------------------------------ */

static void ucma_mcast_free(struct ucma_mcast *m)
{
	lock_acquire(&ucma_lock);
	while (m->owed > 0)
		cond_wait(&m->id->acked, &ucma_lock);
	list_remove(&m->node);
	lock_release(&ucma_lock);
	free(m);
}

int ucma_join(struct ucma_id *id, struct sockaddr *addr, bool send_only, void *cookie,
	      struct ucma_mcast **out)
{
	struct ucma_mcast *m;
	int err = ucma_check(id);

	if (err < 0)
		return err;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return -ENOMEM;
	m->id = id;
	m->cookie = cookie;
	lock_acquire(&ucma_lock);
	list_push_back(&id->groups, &m->node);
	lock_release(&ucma_lock);
	*out = m;
	err = rdma_join_multicast(id->cm, addr,
				  send_only ? IB_SA_SEND_ONLY_FULL_MEMBER : IB_SA_FULL_MEMBER, m);
	if (err < 0)
		ucma_mcast_free(m);
	return err;
}

void ucma_leave(struct ucma_mcast *m)
{
	struct ucma_waiting *w;

	cma_mcast_leave(cma_id(m->id->cm), m);
	while ((w = ucma_withdraw_next(m->id, m)) != NULL)
		free(w);
	ucma_mcast_free(m);
}

/* ---- the RDMA CM's calls --------------------------------------------------------------------- */

int ucma_bind(struct ucma_id *id, struct sockaddr *addr)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_bind_addr(id->cm, addr);
}

int ucma_resolve_addr(struct ucma_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_resolve_addr(id->cm, src, dst, timeout_ms);
}

int ucma_resolve_route(struct ucma_id *id, int timeout_ms)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_resolve_route(id->cm, timeout_ms);
}

int ucma_set_path(struct ucma_id *id, struct ib_sa_path_rec *path)
{
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_ROUTE_RESOLVED };
	int err = ucma_check(id);

	if (err == 0)
		err = rdma_set_ib_paths(id->cm, path, 1);
	return err < 0 ? err : ucma_handler(id->cm, &event);
}

void ucma_query(struct ucma_id *id, struct ucma_route *out)
{
	const struct rdma_route *route = &id->cm->route;

	memset(out, 0, sizeof(*out));
	out->device_number = cma_device_name(cma_id(id->cm), out->device, sizeof(out->device));
	out->port_num = id->cm->port_num;
	out->src_addr = route->addr.src_addr;
	out->dst_addr = route->addr.dst_addr;
	out->sgid = route->addr.sgid;
	out->dgid = route->addr.dgid;
	out->pkey = route->addr.pkey;
	out->num_paths = route->path_rec != NULL ? MIN((u32)route->num_paths, (u32)UCMA_PATHS) : 0;
	for (u32 i = 0; i < out->num_paths; i++)
		ib_copy_path_rec_to_user(&out->path[i], &route->path_rec[i]);
}

int ucma_init_qp_attr(struct ucma_id *id, struct ib_qp_attr *attr, int *mask)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_init_qp_attr(id->cm, attr, mask);
}

static struct rdma_conn_param ucma_param(const struct ucma_conn *conn)
{
	return (struct rdma_conn_param){
		.private_data = conn->private_data,
		.private_data_len = conn->private_data_len,
		.responder_resources = conn->responder_resources,
		.initiator_depth = conn->initiator_depth,
		.flow_control = conn->flow_control,
		.retry_count = conn->retry_count,
		.rnr_retry_count = conn->rnr_retry_count,
		.srq = conn->srq,
		.qp_num = conn->qp_num,
	};
}

int ucma_connect(struct ucma_id *id, const struct ucma_conn *conn)
{
	struct rdma_conn_param param = ucma_param(conn);
	int err = ucma_check(id);

	return err < 0 ? err : rdma_connect(id->cm, &param);
}

/* The kernel gives out the lowest number: from that on all are free, or nearly. */
static void ucma_warn_of_few_descriptors(void)
{
	int fd = eventfd(0, EFD_CLOEXEC), next = fd >= 0 ? fd : INT_MAX - UCMA_FDS;
	struct rlimit limit;

	if (fd >= 0)
		close(fd);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
	    MAX((rlim_t)next + UCMA_FDS, (rlim_t)UCMA_LEAST_FDS) > limit.rlim_cur)
		log_warn("rdmacm",
			 "this process listens, and has too few descriptors left for a connection: "
			 "it may have %llu (ulimit -n)",
			 (unsigned long long)limit.rlim_cur);
}

int ucma_listen(struct ucma_id *id, int backlog)
{
	int err = ucma_check(id);

	if (err < 0)
		return err;
	lock_acquire(&ucma_lock);
	id->backlog = backlog > 0 && backlog < UCMA_BACKLOG ? (u32)backlog : UCMA_BACKLOG;
	lock_release(&ucma_lock);
	err = rdma_listen(id->cm, backlog);
	if (err == 0)
		ucma_warn_of_few_descriptors();
	return err;
}

/* Inside a turn: an event comes before the connection is accepted, and then that fails, or behind
 * it. */
static int ucma_accept_request(struct ucma_id *id, struct rdma_conn_param *param)
{
	int err = -EINVAL;

	if (!cma_enter_alive(cma_id(id->cm)))
		return err;
	err = rdma_accept(id->cm, param);
	if (err == 0) {
		lock_acquire(&ucma_lock);
		id->told = true;
		lock_release(&ucma_lock);
	}
	cma_leave(cma_id(id->cm));
	return err;
}

int ucma_accept(struct ucma_id *id, const struct ucma_conn *conn)
{
	struct rdma_conn_param param;
	int err = ucma_check(id);

	if (err < 0)
		return err;
	if (conn == NULL)
		return rdma_accept(id->cm, NULL);
	param = ucma_param(conn);
	return ucma_accept_request(id, &param);
}

bool ucma_answer_briefly(struct ucma_id *id)
{
	return ucma_check(id) == 0 && cma_answer_briefly(id->cm);
}

int ucma_reject(struct ucma_id *id, const void *data, u8 len, u8 reason)
{
	int err = ucma_check(id);

	if (err == 0)
		err = rdma_reject(id->cm, data, len, reason);
	if (err == 0)
		cma_flush(id->cm);
	return err;
}

int ucma_disconnect(struct ucma_id *id)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_disconnect(id->cm);
}

int ucma_notify(struct ucma_id *id, u32 event)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_notify(id->cm, (enum ib_event_type)event);
}

int ucma_set_tos(struct ucma_id *id, u8 tos)
{
	int err = ucma_check(id);

	if (err == 0)
		rdma_set_service_type(id->cm, tos);
	return err;
}

int ucma_set_reuseaddr(struct ucma_id *id, int reuse)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_set_reuseaddr(id->cm, reuse);
}

int ucma_set_afonly(struct ucma_id *id, int afonly)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_set_afonly(id->cm, afonly);
}

int ucma_set_ack_timeout(struct ucma_id *id, u8 timeout)
{
	int err = ucma_check(id);

	return err < 0 ? err : rdma_set_ack_timeout(id->cm, timeout);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* The ids are the parent's. */
static void ucma_drop_in_child(void)
{
	ucma_process++;
}
FORK_TAKES(FORK_UCMA, &ucma_lock, .child = ucma_drop_in_child);
