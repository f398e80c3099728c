/* ucma.h: what librdmacm needs of the RDMA CM: ids whose events wait on channels with descriptors,
 * as Linux's ucma has them.
 *
 * Its own names and types, since librdmacm's header and rdma_cm.h name other things alike. Nothing
 * here touches a queue pair: the door takes it through its states, by ucma_init_qp_attr.
 * Context: every call may block. Any number of threads. Results: 0 or a negative errno, as the
 * rdma_* calls of rdma_cm.h; -EIO: the id's device has gone, and the id can only be destroyed.
 */
#ifndef UCMA_H
#define UCMA_H

#include <rdma/ib_marshall.h>
#include <sys/socket.h>

#include "base/compiler.h"

enum { UCMA_PRIVATE_DATA = 256, UCMA_PATHS = 2, UCMA_BACKLOG = 8192 };

struct ucma_channel;
struct ucma_id;
struct ucma_mcast;

struct ucma_conn {
	const void *private_data;
	u8 private_data_len;
	u8 responder_resources;
	u8 initiator_depth;
	u8 flow_control;
	u8 retry_count;
	u8 rnr_retry_count;
	u8 srq;
	u32 qp_num;
} OWNED_BY(the caller);

struct ucma_event {
	/* enum rdma_cm_event_type, whose numbers both headers share, or what ucma_write_event was
	 * given */
	u32 type;
	int status;
	struct ucma_id *id; /* of CONNECT_REQUEST the new one, which is the caller's */
	void *cookie;	    /* of `id`, or of CONNECT_REQUEST that of the listening id */
	struct ucma_id *owner; /* whose ucma_ack this event is owed */
	struct ucma_mcast *mcast; /* of MULTICAST_*, else NULL; this event is owed it, too */
	void *mcast_cookie;	  /* of `mcast` */
	bool datagram;	       /* conn has the private data and qp_num only; `ah` and `qkey` */
	struct ucma_conn conn; /* private_data points at `data` */
	struct ib_ah_attr ah;
	u32 qkey;
	u64 arg; /* of ucma_write_event */
	u8 data[UCMA_PRIVATE_DATA];
} OWNED_BY(the caller);

/* What is known of an id. */
struct ucma_route {
	char device[64]; /* its name; empty: not bound to one */
	u32 device_number; /* tells it from others that had or will have the name */
	u8 port_num;
	struct sockaddr_storage src_addr, dst_addr;
	union ib_gid sgid, dgid;
	u16 pkey; /* host order */
	u32 num_paths;
	struct ib_user_path_rec path[UCMA_PATHS];
} OWNED_BY(the caller);

/* A channel with a close-on-exec descriptor that is readable while events wait. NULL and a negative
 * errno in *err. */
AV_EXPORT struct ucma_channel *ucma_channel_create(int *err);
/* Closes the descriptor: a thread that waits for an event stays where it is. Before
 * ucma_channel_destroy, when no thread comes anew. */
AV_EXPORT void ucma_channel_close(struct ucma_channel *ch);
/* Its threads must be gone. Its memory stays until its ids have gone, too. */
AV_EXPORT void ucma_channel_destroy(struct ucma_channel *ch);
AV_EXPORT int ucma_channel_fd(const struct ucma_channel *ch);

/* ERR_PTR on failure. */
AV_EXPORT struct ucma_id *ucma_create_id(struct ucma_channel *ch, void *cookie, u32 port_space,
					 u32 qp_type);
/* Withdraws the id's events, and those ids that wait with them, waits until every event that was
 * taken is acknowledged, and ends the id. */
AV_EXPORT void ucma_destroy_id(struct ucma_id *id);
AV_EXPORT void ucma_set_cookie(struct ucma_id *id, void *cookie);
/* The id's waiting events, and all that come, go to the other channel. */
AV_EXPORT int ucma_migrate(struct ucma_id *id, struct ucma_channel *ch);
/* Waits until every event of the id that was taken is acknowledged. */
AV_EXPORT void ucma_wait_acked(struct ucma_id *id);
/* In a forked child: is the id its parent's? Warns of it once. */
AV_EXPORT bool ucma_is_parents(const struct ucma_id *id);
/* 0, or -EIO as every call. */
AV_EXPORT int ucma_check(struct ucma_id *id);

/* Takes the next event, and waits for it unless the descriptor is O_NONBLOCK: 0, -EAGAIN, -EINTR.
 * out->conn points into *out. */
AV_EXPORT int ucma_get_event(struct ucma_channel *ch, struct ucma_event *out);
/* Adds an event that the CM itself has none of, also of an id whose device has gone. Another thread
 * may take the event, and then end the id, before this returns. 0, -ENOMEM, or -EINVAL of a
 * parent's id and of one that ucma_destroy_id has begun to end. */
AV_EXPORT int ucma_write_event(struct ucma_id *id, u32 type, int status, u64 arg);
/* `mcast`: that of the event. */
AV_EXPORT void ucma_ack(struct ucma_id *owner, struct ucma_mcast *mcast);

AV_EXPORT int ucma_bind(struct ucma_id *id, struct sockaddr *addr);
AV_EXPORT int ucma_resolve_addr(struct ucma_id *id, struct sockaddr *src, struct sockaddr *dst,
				int timeout_ms);
AV_EXPORT int ucma_resolve_route(struct ucma_id *id, int timeout_ms);
/* In place of ucma_resolve_route: the event is ROUTE_RESOLVED. */
AV_EXPORT int ucma_set_path(struct ucma_id *id, struct ib_sa_path_rec *path);
AV_EXPORT void ucma_query(struct ucma_id *id, struct ucma_route *out);
AV_EXPORT int ucma_init_qp_attr(struct ucma_id *id, struct ib_qp_attr *attr, int *mask);
AV_EXPORT int ucma_connect(struct ucma_id *id, const struct ucma_conn *conn);
/* At most `backlog` requests wait on the channel (0 or more than UCMA_BACKLOG: that many). More
 * count as lost, and their senders ask again; those of datagram ids are refused. */
AV_EXPORT int ucma_listen(struct ucma_id *id, int backlog);
/* NULL: completes a connection after CONNECT_RESPONSE. Else the id is a request's, of which no
 * event comes before this has succeeded; -EINVAL: its connection has ended. */
AV_EXPORT int ucma_accept(struct ucma_id *id, const struct ucma_conn *conn);
/* What ucma_accept answers is sent once a second, four times at most, and then the connection has
 * failed, whatever the request says. False: the request has come from this host, so that its source
 * is not forged, and nothing changes. */
AV_EXPORT bool ucma_answer_briefly(struct ucma_id *id);
AV_EXPORT int ucma_reject(struct ucma_id *id, const void *data, u8 len, u8 reason);
AV_EXPORT int ucma_disconnect(struct ucma_id *id);
AV_EXPORT int ucma_notify(struct ucma_id *id, u32 event);
/* As rdma_join_multicast. *out is set before the event comes. */
AV_EXPORT int ucma_join(struct ucma_id *id, struct sockaddr *addr, bool send_only, void *cookie,
			struct ucma_mcast **out);
/* Ends a membership, withdraws its event, and waits until one that was taken is acknowledged.
 * ucma_destroy_id ends all that are left. */
AV_EXPORT void ucma_leave(struct ucma_mcast *m);
AV_EXPORT int ucma_set_tos(struct ucma_id *id, u8 tos);
AV_EXPORT int ucma_set_reuseaddr(struct ucma_id *id, int reuse);
AV_EXPORT int ucma_set_afonly(struct ucma_id *id, int afonly);
AV_EXPORT int ucma_set_ack_timeout(struct ucma_id *id, u8 timeout);

#endif
