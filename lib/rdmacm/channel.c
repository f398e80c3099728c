/* channel.c: event channels, and what each event does to its id before the application sees it.
 * In:    events of the RDMA CM             Out: struct rdma_cm_event
 * Runs:  the application's threads         Locks: none
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/convert_attr.h"
#include "door.h"

static struct rdma_event_channel *channel_create(bool one_id)
{
	struct door_channel *ch = calloc(1, sizeof(*ch));
	int err = -ENOMEM;

	if (ch == NULL)
		return NULL;
	ch->ucma = ucma_channel_create(&err);
	if (ch->ucma == NULL) {
		free(ch);
		errno = -err;
		return NULL;
	}
	ch->channel.fd = ucma_channel_fd(ch->ucma);
	ch->one_id = one_id;
	return &ch->channel;
}

AV_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	return channel_create(false);
}

struct rdma_event_channel *channel_of_one_id(void)
{
	return channel_create(true);
}

/* The application's channels that were destroyed last: a thread that asks one of them for events
 * once more, as rping's does while its process ends, gets EBADF, as from a closed descriptor. With
 * an adapter it would be in that call before a connection can be torn down, and stay there; rping
 * exits with an error when it returns. So it returns when whoever ends the process has had time to.
 */
enum { CHANNELS_ENDED = 64, CHANNEL_ENDED_MS = 2000 };

static struct door_channel *channel_ended[CHANNELS_ENDED];

static void channel_bury(struct door_channel *ch)
{
	static u32 next;
	u32 at = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % CHANNELS_ENDED;

	ch->channel.fd = -1;
	ch = __atomic_exchange_n(&channel_ended[at], ch, __ATOMIC_ACQ_REL);
	if (ch != NULL && __atomic_load_n(&ch->users, __ATOMIC_SEQ_CST) == 0)
		free(ch); /* else a thread sleeps in it to the end of the process */
}

/* Whoever comes first when nobody waits any more: the last of them, or rdma_destroy_event_channel.
 */
static void channel_reap(struct door_channel *ch)
{
	struct ucma_channel *ended = __atomic_exchange_n(&ch->ended, NULL, __ATOMIC_SEQ_CST);

	if (ended != NULL)
		ucma_channel_destroy(ended);
}

/* As with an adapter, a thread that waits stays where it is, and the descriptor is closed. */
static void channel_end(struct door_channel *ch)
{
	struct ucma_channel *ucma = __atomic_exchange_n(&ch->ucma, NULL, __ATOMIC_SEQ_CST);

	ucma_channel_close(ucma);
	/* Pairs with channel_leave: either it sees what is stored here, or this its leaving. */
	__atomic_store_n(&ch->ended, ucma, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ch->users, __ATOMIC_SEQ_CST) == 0)
		channel_reap(ch);
}

static void channel_leave(struct door_channel *ch)
{
	if (__atomic_fetch_sub(&ch->users, 1, __ATOMIC_SEQ_CST) == 1)
		channel_reap(ch);
}

AV_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct door_channel *ch = door_channel(channel);

	channel_end(ch);
	if (ch->one_id)
		free(ch);
	else
		channel_bury(ch);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void channel_fill_conn(struct door_event *out, const struct ucma_event *in)
{
	struct rdma_conn_param *conn = &out->event.param.conn;

	memcpy(out->data, in->data, sizeof(out->data));
	*conn = (struct rdma_conn_param){
		.private_data = in->conn.private_data_len > 0 ? out->data : NULL,
		.private_data_len = in->conn.private_data_len,
		.responder_resources = in->conn.responder_resources,
		.initiator_depth = in->conn.initiator_depth,
		.flow_control = in->conn.flow_control,
		.retry_count = in->conn.retry_count,
		.rnr_retry_count = in->conn.rnr_retry_count,
		.srq = in->conn.srq,
		.qp_num = in->conn.qp_num,
	};
}

static void channel_fill_ud(struct door_event *out, const struct ucma_event *in)
{
	struct rdma_ud_param *ud = &out->event.param.ud;

	memcpy(out->data, in->data, sizeof(out->data));
	*ud = (struct rdma_ud_param){
		.private_data = in->conn.private_data_len > 0 ? out->data : NULL,
		.private_data_len = in->conn.private_data_len,
		.qp_num = in->conn.qp_num,
		.qkey = in->qkey,
	};
	ib_convert_ah_attr(&in->ah, &ud->ah_attr);
}

/* The new id of a request belongs to the channel that its event is taken from: where the listener
 * is at this moment, rdma_migrate_id may just be changing. False: the id could not be made, and the
 * request is refused. */
static bool channel_take_request(struct rdma_event_channel *channel, struct door_event *out,
				 struct ucma_event *in)
{
	struct door_id *listen = in->cookie;
	struct door_id *id = id_new(door_channel(channel)->one_id ? NULL : channel,
				    listen->id.context, listen->id.ps, listen->id.qp_type);

	if (id == NULL) {
		ucma_destroy_id(in->id);
		return false;
	}
	id->ucma = in->id;
	ucma_set_cookie(in->id, id);
	if (id->sync)
		ucma_migrate(in->id, door_channel(id->id.channel)->ucma);
	if (id_query(id) < 0) {
		ucma_destroy_id(in->id);
		id_free(id);
		return false;
	}
	id->initiator_depth = in->conn.initiator_depth;
	id->responder_resources = in->conn.responder_resources;
	out->event.id = &id->id;
	out->event.listen_id = &listen->id;
	return true;
}

/* What this library has to do with an event fails: the status is -1, and errno of the thread that
 * takes the event says why, as with rdma-core. */
static void channel_fail(struct door_event *out, enum rdma_cm_event_type type, int err)
{
	out->event.event = type;
	out->event.status = -1;
	errno = -err;
}

/* The peer accepts: the queue pair goes on, and the connection is completed. */
static void channel_take_response(struct door_event *out)
{
	struct door_id *id = door_id(out->event.id);
	int err = qp_to_rts(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);

	if (err > 0)
		return; /* rdma_establish does it */
	if (err == 0)
		err = ucma_accept(id->ucma, NULL);
	out->event.event = RDMA_CM_EVENT_ESTABLISHED;
	out->event.status = 0;
	if (err == 0)
		return;
	(void)qp_to_err(id);
	id->failed = true;
	channel_fail(out, RDMA_CM_EVENT_CONNECT_ERROR, err);
}

/* A step of the search: the application reads its result in the id. */
static void channel_take_step(struct door_event *out, enum rdma_cm_event_type error)
{
	int err = id_query(door_id(out->event.id));

	if (err < 0)
		channel_fail(out, error, err);
}

/* A group's event carries what the application gave when it joined. */
static void channel_take_join(struct door_event *out, struct ucma_event *in)
{
	struct rdma_ud_param *ud = &out->event.param.ud;
	int err;

	ud->private_data = mcast_context(in->mcast_cookie);
	if (out->event.event != RDMA_CM_EVENT_MULTICAST_JOIN)
		return;
	err = mcast_joined(door_id(out->event.id), in->mcast_cookie, &ud->ah_attr);
	if (err < 0)
		channel_fail(out, RDMA_CM_EVENT_MULTICAST_ERROR, err);
}

/* What the event does to its id. False: the application does not hear of it. */
static bool channel_apply(struct rdma_event_channel *channel, struct door_event *out,
			  struct ucma_event *in)
{
	switch (out->event.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		channel_take_step(out, RDMA_CM_EVENT_ADDR_ERROR);
		return true;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		channel_take_step(out, RDMA_CM_EVENT_ROUTE_ERROR);
		return true;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return channel_take_request(channel, out, in);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		channel_take_response(out);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		if (!door_id(out->event.id)->failed)
			(void)qp_to_err(door_id(out->event.id));
		return !door_id(out->event.id)->failed;
	case RDMA_CM_EVENT_DISCONNECTED:
		return !door_id(out->event.id)->failed;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		channel_take_join(out, in);
		return true;
	default:
		return true;
	}
}

static bool channel_convert(struct rdma_event_channel *channel, struct door_event *out,
			    struct ucma_event *in)
{
	out->owner = in->owner;
	out->mcast = in->mcast;
	out->event.id = in->cookie;
	out->event.event = (enum rdma_cm_event_type)in->type;
	out->event.status = in->status;
	if (in->type >= DOOR_EVENT_ADDRINFO_RESOLVED) { /* param.arg in newer headers */
		memcpy(&out->event.param, &in->arg, sizeof(in->arg));
		return true;
	}
	if (in->datagram)
		channel_fill_ud(out, in);
	else
		channel_fill_conn(out, in);
	return channel_apply(channel, out, in);
}

struct channel_visit {
	struct door_channel *ch;
	struct door_event *out;
} OWNED_BY(the thread that waits);

static void channel_cancelled(void *arg)
{
	struct channel_visit *v = arg;

	free(v->out);
	channel_leave(v->ch);
}

/* A thread that is cancelled while it waits leaves nothing behind. */
static int channel_wait(struct rdma_event_channel *channel, struct door_event *out,
			struct ucma_event *in)
{
	struct channel_visit v = { door_channel(channel), out };
	struct ucma_channel *ucma;
	int err = -EBADF;

	__atomic_fetch_add(&v.ch->users, 1, __ATOMIC_SEQ_CST);
	ucma = __atomic_load_n(&v.ch->ucma, __ATOMIC_SEQ_CST);
	pthread_cleanup_push(channel_cancelled, &v);
	if (ucma != NULL)
		err = ucma_get_event(ucma, in);
	pthread_cleanup_pop(0);
	channel_leave(v.ch);
	return err;
}

AV_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct door_event *out;
	struct ucma_event in;
	int err;

	if (channel == NULL || event == NULL)
		return door_result(-EINVAL);
	out = calloc(1, sizeof(*out));
	if (out == NULL)
		return -1;
	for (;;) {
		err = channel_wait(channel, out, &in);
		if (err < 0) {
			free(out);
			if (err == -EBADF)
				usleep(CHANNEL_ENDED_MS * 1000);
			return door_result(err);
		}
		if (channel_convert(channel, out, &in))
			break;
		memset(out, 0, sizeof(*out));
		ucma_ack(in.owner, in.mcast);
	}
	*event = &out->event;
	return 0;
}

AV_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct door_event *e = (struct door_event *)event;

	if (event == NULL)
		return door_result(-EINVAL);
	ucma_ack(e->owner, e->mcast);
	free(e);
	return 0;
}

AV_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
		[DOOR_EVENT_ADDRINFO_RESOLVED] = "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
		[DOOR_EVENT_ADDRINFO_ERROR] = "RDMA_CM_EVENT_ADDRINFO_ERROR",
		[DOOR_EVENT_USER] = "RDMA_CM_EVENT_USER",
		[DOOR_EVENT_INTERNAL] = "RDMA_CM_EVENT_INTERNAL",
	};

	return (size_t)event < ARRAY_LEN(names) ? names[event] : "UNKNOWN EVENT";
}
