/* iw_cm.h: the connection manager of iWARP devices: its types, and the methods that a driver of
 * such a device brings (struct ib_device, `iwcm`).
 *
 * No device of this stack speaks iWARP, and the midlayer calls none of the methods. The calls of
 * consumers (iw_create_cm_id and its kin) are absent until there is such a device. Addresses
 * are IPv4's, as in Linux 2.6.22.
 */
#ifndef IW_CM_H
#define IW_CM_H

#include <netinet/in.h>
#include <rdma/ib_cm.h>

struct iw_cm_id;

enum iw_cm_event_type {
	IW_CM_EVENT_CONNECT_REQUEST = 1, /* a peer asks a listening id for a connection */
	IW_CM_EVENT_CONNECT_REPLY,	 /* the peer has answered, as `status` says */
	IW_CM_EVENT_ESTABLISHED,	 /* a connection that this side accepted stands */
	IW_CM_EVENT_DISCONNECT,		 /* one side has begun to close in order */
	IW_CM_EVENT_CLOSE		 /* the connection is closed: the last event */
};

enum iw_cm_event_status {
	IW_CM_EVENT_STATUS_OK = 0,
	IW_CM_EVENT_STATUS_ACCEPTED = 0, /* of CONNECT_REPLY */
	IW_CM_EVENT_STATUS_REJECTED,	 /* by the peer */
	IW_CM_EVENT_STATUS_TIMEOUT,
	IW_CM_EVENT_STATUS_RESET, /* of the TCP connection, by the peer */
	IW_CM_EVENT_STATUS_EINVAL
};

/* Valid, with what it points at, until the handler returns. Ports are in network order. */
struct iw_cm_event {
	enum iw_cm_event_type event;
	enum iw_cm_event_status status;
	struct sockaddr_in local_addr;
	struct sockaddr_in remote_addr;
	void *private_data;  /* the peer's; NULL: none */
	u8 private_data_len; /* bytes */
	void *provider_data; /* of a CONNECT_REQUEST: the driver's, for the new id */
};

/* The consumer's, of an id. Non-zero: the connection manager destroys the id. */
typedef int (*iw_cm_handler)(struct iw_cm_id *cm_id, struct iw_cm_event *event);

/* The connection manager's, which the driver calls for each event; any context, never blocks. 0 or
 * a negative errno: the event was not taken. */
typedef int (*iw_event_handler)(struct iw_cm_id *cm_id, struct iw_cm_event *event);

/* One listening service or one end of a connection. */
struct iw_cm_id {
	iw_cm_handler cm_handler;
	void *context; /* the consumer's */
	struct ib_device *device;
	struct sockaddr_in local_addr;
	struct sockaddr_in remote_addr;
	void *provider_data; /* the driver's */
	iw_event_handler event_handler;
	void (*add_ref)(struct iw_cm_id *cm_id); /* the driver keeps the id ... */
	void (*rem_ref)(struct iw_cm_id *cm_id); /* ... until it calls this */
};

struct iw_cm_conn_param {
	const void *private_data;
	u16 private_data_len; /* bytes */
	u32 ord; /* RDMA READs that this side may have outstanding */
	u32 ird; /* RDMA READs that it answers at a time */
	u32 qpn;
};

/* What a driver of iWARP does; each returns 0 or a negative errno, and reports the rest by the id's
 * event_handler. */
struct iw_cm_verbs {
	/* The connection manager keeps a queue pair, which lives until rem_ref. Never block. */
	void (*add_ref)(struct ib_qp *qp);
	void (*rem_ref)(struct ib_qp *qp);
	/* The queue pair of that number, without a reference; NULL: none. Never blocks. */
	struct ib_qp *(*get_qp)(struct ib_device *device, int qpn);
	/* Connects from local_addr to remote_addr; CONNECT_REPLY follows. */
	int (*connect)(struct iw_cm_id *cm_id, struct iw_cm_conn_param *conn_param);
	/* Accepts the request that made the id; ESTABLISHED follows. */
	int (*accept)(struct iw_cm_id *cm_id, struct iw_cm_conn_param *conn_param);
	/* Refuses it, with pdata_len bytes of private data. */
	int (*reject)(struct iw_cm_id *cm_id, const void *pdata, u8 pdata_len);
	/* Takes requests for local_addr, `backlog` of them unanswered at most, until
	 * destroy_listen. */
	int (*create_listen)(struct iw_cm_id *cm_id, int backlog);
	int (*destroy_listen)(struct iw_cm_id *cm_id);
};

#endif
