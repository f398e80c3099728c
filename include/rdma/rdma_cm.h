/* rdma_cm.h: the RDMA CM: connections by IP address and port, by Linux's names and with Linux's
 * semantics.
 *
 * An identifier (rdma_cm_id) is what a socket is: bound, listening, or one end of a connection. Its
 * port is unique among all processes of the node, as a socket's among those of a host. The peer may
 * be Linux's own RDMA CM.
 *
 * Events: the consumer's handler runs on a thread of the CM, never inside a call of this header,
 * and for one id never twice at once. What an event points at is valid until the handler returns.
 *
 * Context: every call may block. Any number of threads may call at once, also on one id, and from a
 * handler; rdma_destroy_id not from a handler of the same id.
 * Results: 0 or a negative errno. -EINVAL: the id's state does not allow the call, or a parameter
 * is out of bounds; -ENOMEM; -ENODEV: the device that the id was bound to has gone.
 */
#ifndef RDMA_CM_H
#define RDMA_CM_H

#include <netinet/in.h>
#include <rdma/ib.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_sa.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

/* The status of an event is 0, a negative errno, or, of REJECTED, the peer's reason (enum
 * ib_cm_rej_reason). */
enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED,
	RDMA_CM_EVENT_ADDR_ERROR,
	RDMA_CM_EVENT_ROUTE_RESOLVED,
	RDMA_CM_EVENT_ROUTE_ERROR,
	RDMA_CM_EVENT_CONNECT_REQUEST, /* of a new id, which the listening one made */
	/* the peer accepts, and the id has no queue pair: rdma_accept with NULL completes it */
	RDMA_CM_EVENT_CONNECT_RESPONSE,
	RDMA_CM_EVENT_CONNECT_ERROR,
	RDMA_CM_EVENT_UNREACHABLE,
	RDMA_CM_EVENT_REJECTED,
	RDMA_CM_EVENT_ESTABLISHED,
	RDMA_CM_EVENT_DISCONNECTED,
	/* the id can only be destroyed, after its queue pair; the device stays until then */
	RDMA_CM_EVENT_DEVICE_REMOVAL,
	RDMA_CM_EVENT_MULTICAST_JOIN,
	RDMA_CM_EVENT_MULTICAST_ERROR,
	RDMA_CM_EVENT_ADDR_CHANGE, /* the id's own address has left its device */
	RDMA_CM_EVENT_TIMEWAIT_EXIT
};

/* RDMA_PS_TCP (connected), RDMA_PS_UDP and RDMA_PS_IPOIB (datagrams), RDMA_PS_IB (any type of queue
 * pair), of rdma_user_cm.h, which has the enumeration's name of today. Each has port numbers of its
 * own. The number is a part of the service ID: (space << 16) + port. */
#define rdma_port_space rdma_ucm_port_space

struct rdma_addr {
	struct sockaddr_storage src_addr; /* this side's; family 0: not bound */
	struct sockaddr_storage dst_addr; /* the peer's; family 0: none */
	union ib_gid sgid;		  /* once the id is bound to a device */
	union ib_gid dgid;		  /* once the peer's address is resolved */
	u16 pkey;			  /* host order */
};

struct rdma_route {
	struct rdma_addr addr;
	struct ib_sa_path_rec *path_rec; /* the CM's; NULL: no route yet */
	int num_paths;
};

struct rdma_conn_param {
	const void *private_data; /* copied by calls */
	u8 private_data_len;
	u8 responder_resources;
	u8 initiator_depth;
	u8 flow_control;
	u8 retry_count; /* not looked at when accepting */
	u8 rnr_retry_count;
	/* Without a queue pair of rdma_create_qp only: the consumer's own. */
	u8 srq;
	u32 qp_num;
};

struct rdma_ud_param {
	const void *private_data;
	u8 private_data_len;
	struct ib_ah_attr ah_attr;
	u32 qp_num;
	u32 qkey;
};

struct rdma_cm_event {
	enum rdma_cm_event_type event;
	int status;
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud;
	} param;
};

struct rdma_cm_id;

/* Returns 0, or non-zero: the CM destroys the id when the handler has returned, as rdma_destroy_id
 * would; -ENOMEM of a connected id's CONNECT_REQUEST lets the peer ask again instead of refusing. A
 * queue pair of the id must have been destroyed before. */
typedef int (*rdma_cm_event_handler)(struct rdma_cm_id *id, struct rdma_cm_event *event);

/* The consumer may replace context and event_handler from inside the handler, or before the id is
 * used; the rest it only reads. */
struct rdma_cm_id {
	struct ib_device *device; /* NULL: not bound to one */
	void *context;
	struct ib_qp *qp; /* of rdma_create_qp; NULL: none */
	rdma_cm_event_handler event_handler;
	struct rdma_route route;
	enum rdma_port_space ps;
	enum ib_qp_type qp_type;
	u8 port_num; /* of `device`; 0 while that is NULL */
};

/* Makes an id without an address, for RC (TCP, IB) or UD (UDP, IPoIB) queue pairs. Attaches the
 * process to its node on first use. ERR_PTR: -EINVAL: no such port space; -ENOMEM; or as the
 * drivers' probes. */
AV_EXPORT struct rdma_cm_id *rdma_create_id(rdma_cm_event_handler event_handler, void *context,
					    enum rdma_port_space ps, enum ib_qp_type qp_type);

/* Ends what the id is in the middle of: a connection is left, an unanswered request rejected, a
 * listening id forgets requests that no handler has seen. The port is free afterwards. Waits for
 * the id's handler; none is called afterwards, and the id is freed. */
AV_EXPORT void rdma_destroy_id(struct rdma_cm_id *id);

/* Binds the id to an IPv4, IPv6 or InfiniBand address (AF_IB) and port; the wildcard stands for
 * every device, port 0 for any free one (`route.addr.src_addr` says which). An address of one
 * interface binds the id to the device that has it, a loopback address to the first device.
 * -EADDRINUSE: the port is another id's, in this process or another of the node, at an overlapping
 * address; -EADDRNOTAVAIL: no port is free, or the host has no such address; -ENODEV: it has, but
 * no device; -EINVAL: a link-local address without a scope; -EPROTONOSUPPORT: a service ID of
 * another port space; -EAFNOSUPPORT. */
AV_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);

/* Finds the device, the source address and the neighbour that lead to dst_addr, and binds the id to
 * them. src_addr may be NULL: what the host's routes say. The wildcard as a destination is this
 * host. The event is ADDR_RESOLVED or ADDR_ERROR: -ENODEV: no device has the source; -ETIMEDOUT:
 * the neighbour did not answer within timeout_ms. The call itself tells what the routes say
 * (-ENETUNREACH, -EHOSTUNREACH), -EMFILE, and -EINVAL: the families differ; the id is bound then,
 * and may try again. Other errors as rdma_bind_addr. */
AV_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
				struct sockaddr *dst_addr, int timeout_ms);

/* Finds the path to the address that was resolved: on RoCE it is made of the GIDs. The event is
 * ROUTE_RESOLVED or ROUTE_ERROR. -EINVAL: timeout_ms is 0. */
AV_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);

/* Creates a queue pair that the CM takes through its states with the connection: INIT at once (UD:
 * RTS), RTR and RTS when it is established, ERR when it ends. The id must be bound to the domain's
 * device. Errors as ib_create_qp. */
AV_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ib_pd *pd,
			     struct ib_qp_init_attr *qp_init_attr);

/* Destroys the queue pair of rdma_create_qp. */
AV_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id);

/* Fills *qp_attr with what the transition to qp_attr->qp_state (INIT, RTR or RTS; set by the
 * caller) needs of this id, and *qp_attr_mask with which fields those are: for consumers with
 * queue pairs of their own. */
AV_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ib_qp_attr *qp_attr,
				int *qp_attr_mask);

/* Requests a connection along the resolved route, or, of a datagram id, the peer's queue pair. The
 * events are ESTABLISHED (or CONNECT_RESPONSE), REJECTED and UNREACHABLE. Private data: at most 56
 * bytes, of datagram ids 180. */
AV_EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);

/* Takes requests for the id's port, at its address; an id without an address is bound to the
 * wildcard and any port first. Each request makes a new id with this one's handler and context, and
 * calls it with CONNECT_REQUEST. `backlog` is the consumer's to keep. -EADDRINUSE: the port is
 * shared with an id that was bound with rdma_set_reuseaddr. */
AV_EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog);

/* Accepts a request (the event is ESTABLISHED), or, with NULL, completes a connection after
 * CONNECT_RESPONSE (no event). Private data: at most 196 bytes, of datagram ids 136. */
AV_EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);

/* Tells the CM of an event of the queue pair, as ib_cm_notify: IB_EVENT_COMM_EST says that a
 * message came before the peer's last message of the handshake; -EISCONN: the connection stands
 * already. Of other events than those two -EINVAL. */
AV_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ib_event_type event);

/* Refuses a request or a response. Private data: at most 148 bytes, of datagram ids 136. `reason`:
 * enum ib_cm_rej_reason, most often IB_CM_REJ_CONSUMER_DEFINED; datagram ids have none. */
AV_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, u8 private_data_len,
			  u8 reason);

/* Leaves a connection, or answers that the peer has left; the event is DISCONNECTED, then
 * TIMEWAIT_EXIT. Of a request, a datagram id or one that listens on one device 0, and nothing
 * happens. */
AV_EXPORT int rdma_disconnect(struct rdma_cm_id *id);

/* Joins a multicast group at an IPv4 or IPv6 address; the id is bound to a device, and no
 * connection has begun. On RoCE nobody is asked: the MGID is the group's address (IPv4 mapped into
 * IPv6). On InfiniBand it is made of the address as IPoIB does, and the subnet administrator is
 * asked: -EAGAIN: the port knows no SM; -EADDRNOTAVAIL: there is no broadcast group whose
 * parameters a new group could take; -ETIMEDOUT. MULTICAST_ERROR with -ENETRESET follows later if
 * the port loses its memberships: the group can be left and joined anew. The event is
 * MULTICAST_JOIN, with what a datagram to the group needs in param.ud, or MULTICAST_ERROR;
 * `context` is param.ud.private_data in both. To receive, the consumer attaches a
 * queue pair to ah_attr.grh.dgid by ib_attach_mcast, which tells the network;
 * IB_SA_SEND_ONLY_FULL_MEMBER says that it will not. A group may be joined more than once. -EINVAL:
 * no datagram id, a queue pair of rdma_create_qp, no group's address, or another join_state than
 * that one and IB_SA_FULL_MEMBER. */
AV_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, u8 join_state,
				  void *context);

/* Leaves a group, of several memberships the latest; none: nothing happens. An event that has not
 * been told is not told any more. Waits for the handler that is told of the group, unless it is the
 * caller. Queue pairs stay attached. */
AV_EXPORT void rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr);

/* Sets the traffic class of the paths that are resolved afterwards. Does not block. */
AV_EXPORT void rdma_set_service_type(struct rdma_cm_id *id, int tos);

/* Has the id share its port, if this is set before it is bound, with ids that do so too; listening
 * needs the port alone. -EINVAL: the id listens, or `reuse` is 0 and it has a port. */
AV_EXPORT int rdma_set_reuseaddr(struct rdma_cm_id *id, int reuse);

/* Says, before the id listens, whether the wildcard of IPv6 leaves IPv4's addresses to others. The
 * port is taken for one family or both when the id is bound. */
AV_EXPORT int rdma_set_afonly(struct rdma_cm_id *id, int afonly);

/* The InfiniBand service ID, in network order, of an address and port of the id's port space; of an
 * AF_IB address the ID that it names. Reads addr only. Never blocks, any context. */
AV_EXPORT __be64 rdma_get_service_id(const struct rdma_cm_id *id, const struct sockaddr *addr);

/* Sets the Local ACK Timeout that rdma_init_qp_attr gives for RTS: 4.096 us << timeout, of which
 * the low 5 bits count. -EINVAL: not an id for RC. */
AV_EXPORT int rdma_set_ack_timeout(struct rdma_cm_id *id, u8 timeout);

/* Sets the RNR timer (enum ib_rnr_timeout) that rdma_init_qp_attr gives for RTR. -EINVAL: not an id
 * for RC, or above 31. */
AV_EXPORT int rdma_set_min_rnr_timer(struct rdma_cm_id *id, u8 min_rnr_timer);

/* Returns when the id's handler does not run, and keeps it from running until rdma_unlock_handler.
 * Not from a handler of the id, and not twice; rdma_destroy_id waits for the end, and so may not be
 * called in between. */
AV_EXPORT void rdma_lock_handler(struct rdma_cm_id *id);

/* Ends rdma_lock_handler. */
AV_EXPORT void rdma_unlock_handler(struct rdma_cm_id *id);

#endif
