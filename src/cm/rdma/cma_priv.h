/* cma_priv.h: inside the RDMA CM: the identifier, and what its files share.
 *
 *      id.c    identifiers: their states, the consumer's handler, their end
 *  device.c    the devices that there are, and which has an address
 * address.c    socket addresses, GIDs and ports
 * resolve.c    binding to an address, finding the way to another
 *  header.c    what the RDMA CM puts in front of the private data
 *  listen.c    requests that come
 * connect.c    connections from the REQ to timewait
 *      qp.c    queue pairs that the CM takes through their states
 */
#ifndef CMA_PRIV_H
#define CMA_PRIV_H

#include <rdma/rdma_cm_ib.h>

#include "base/cond.h"
#include "base/work.h"
#include "node/bind.h"

/* 4.096 us << 20: 4.3 s for each try, as Linux's CM says. */
enum { CMA_RESPONSE_TIMEOUT = 20, CMA_MAX_RETRIES = 15, CMA_MRA_TIMEOUT = 24 };
enum { CMA_PACKET_LIFETIME = 18, CMA_SIDR_TIMEOUT_MS = 4000, CMA_HOP_LIMIT = 64 };
enum { CMA_PKEY = 0xffff };

enum cma_state {
	CMA_IDLE,
	CMA_ADDR_BOUND,
	CMA_ADDR_QUERY,
	CMA_ADDR_RESOLVED,
	CMA_ROUTE_QUERY,
	CMA_ROUTE_RESOLVED,
	CMA_CONNECT, /* from the REQ, sent or received, until a side leaves */
	CMA_DISCONNECT,
	CMA_LISTEN,
	CMA_REMOVED, /* its device has gone */
	CMA_DESTROYING
};

/* One device on which an id listens. */
struct cma_listener {
	struct list_head node;
	struct ib_device *device;
	struct ib_cm_id *ib;
} OWNED_BY(cma.lock);

/* Fields are the cma.lock's where no other mark stands; `id` the consumer's, too. */
struct cma_id {
	struct rdma_cm_id id OWNED_BY(the consumer and the handler at hand); /* first */
	struct list_head node OWNED_BY(cma.lock); /* of all ids */
	enum cma_state state OWNED_BY(cma.lock);
	bool busy OWNED_BY(cma.lock); /* the consumer's handler runs, or is about to */
	u32 refs OWNED_BY(cma.lock);  /* of those who are not in a call of the consumer's */
	struct cond idle OWNED_BY(cma.lock); /* signalled when it is not busy, or has no refs */
	struct ib_cm_id *ib OWNED_BY(cma.lock); /* the connection's; NULL: none */
	struct list_head listeners OWNED_BY(cma.lock); /* struct cma_listener */
	struct node_port port GUARDS_ITSELF;
	struct work work GUARDS_ITSELF; /* says the result of a query */
	int result OWNED_BY(cma.lock);  /* of the query: 0 or a negative errno */
	struct ib_sa_path_rec path[2] OWNED_BY(the consumer and the handler at hand);
	u32 seq_num FIXED; /* the first PSN */
	u32 qkey OWNED_BY(the consumer and the handler at hand);
	u32 qp_num OWNED_BY(the consumer and the handler at hand); /* the consumer's own */
	bool srq OWNED_BY(the consumer and the handler at hand);
	u8 tos OWNED_BY(cma.lock);
	bool reuse OWNED_BY(cma.lock), afonly OWNED_BY(cma.lock);
	u8 ack_timeout OWNED_BY(cma.lock); /* 0x80 and the timeout; 0: not set */
};

struct cma_device {
	struct list_head node;
	struct ib_device *device;
} OWNED_BY(cma.lock);

struct cma {
	struct lock lock;
	struct list_head ids GUARDED_BY(lock);	   /* struct cma_id */
	struct list_head devices GUARDED_BY(lock); /* struct cma_device, in the order they came */
	struct work_queue queue GUARDS_ITSELF;
};
extern struct cma cma;

static inline struct cma_id *cma_id(struct rdma_cm_id *id)
{
	return container_of(id, struct cma_id, id);
}

static inline bool cma_is_datagram(const struct rdma_cm_id *id)
{
	return id->qp_type == IB_QPT_UD;
}

/* ---- id.c ---- */
/* A new id in CMA_IDLE, which nobody else has. NULL: no memory. */
struct cma_id *cma_id_new(rdma_cm_event_handler handler, void *context, enum rdma_port_space ps,
			  enum ib_qp_type qp_type);
/* From one state to another. False: it was in another one. */
bool cma_move(struct cma_id *id, enum cma_state from, enum cma_state to);
bool cma_is_in(struct cma_id *id, enum cma_state state);
/* Begins a turn of the consumer's handler: waits for the one before. False: the id is in another
 * state than `state`, and there is no turn. */
bool cma_enter(struct cma_id *id, enum cma_state state);
/* As cma_enter; the id goes to state `to`. */
bool cma_enter_to(struct cma_id *id, enum cma_state state, enum cma_state to);
void cma_leave(struct cma_id *id);
/* Inside a turn: calls the handler. What it returns. */
int cma_tell(struct cma_id *id, struct rdma_cm_event *event);
/* The handler, inside a turn that a callback of the IB CM began, wants the id destroyed: ends the
 * turn and the id. The caller destroys the IB CM's id by returning non-zero. */
void cma_end_in_handler(struct cma_id *id);
/* The connection's id of the IB CM; NULL: none. */
struct ib_cm_id *cma_ib(struct cma_id *id);

/* ---- device.c ---- */
/* Has the CM told of devices. 0 or a negative errno. May block. */
int cma_start(void);
/* Binds the id to the device and port that have the GID. -ENODEV: none has. */
int cma_bind_gid(struct cma_id *id, const union ib_gid *gid);
/* Binds the id to the first device with an address of a family (IPv4 or IPv6), and says which. */
int cma_bind_first(struct cma_id *id, bool v4, union ib_gid *gid);
/* Binds a request's id to the device that it came by. */
void cma_bind_device(struct cma_id *id, struct ib_device *device, u8 port,
		     const union ib_gid *sgid);

/* ---- address.c ---- */
bool cma_family_is_known(const struct sockaddr *addr);
bool cma_addr_is_any(const struct sockaddr *addr);
bool cma_addr_is_loopback(const struct sockaddr *addr);
/* Copies an address of AF_INET or AF_INET6; the rest of *out is zero. */
void cma_addr_copy(struct sockaddr_storage *out, const struct sockaddr *addr);
/* Makes a socket address of a GID (port 0). */
void cma_addr_from_gid(struct sockaddr_storage *out, const union ib_gid *gid);
/* The address as a GID: IPv4 is mapped into IPv6. */
void cma_addr_gid(const struct sockaddr *addr, union ib_gid *out);
/* Host order; 0: none. */
u16 cma_addr_port(const struct sockaddr *addr);
void cma_addr_set_port(struct sockaddr_storage *addr, u16 port);
static inline const struct sockaddr *cma_addr(const struct sockaddr_storage *s)
{
	return (const struct sockaddr *)s;
}

/* ---- resolve.c ---- */
/* As rdma_bind_addr. */
int cma_bind(struct cma_id *id, const struct sockaddr *addr);
/* struct cma_id.work: says the result of a query. */
void cma_resolved(struct work *w);

/* ---- header.c: the RDMA CM's header in front of the private data (IBA annex A11) ---- */
enum { CMA_HEADER = 36 };
/* Writes the header of a request from src_addr to dst_addr. */
void cma_header_write(u8 out[CMA_HEADER], const struct rdma_addr *addr);
/* Reads the header of a request for `port` (host order): the addresses as the side that received
 * it has them. -EINVAL: not one. */
int cma_header_read(const void *data, u32 size, u16 port, struct rdma_addr *out);
/* The service ID of a port, in network order. */
__be64 cma_service_id(enum rdma_port_space ps, u16 port);
/* Which requests a listener at an address takes. */
void cma_header_compare(const struct sockaddr *addr, struct ib_cm_compare_data *out);

/* ---- listen.c ---- */
/* A device has come: ids that listen on all devices listen on it. Called with no lock. */
void cma_listen_device(struct ib_device *device);
/* Ends listening, on one device or (NULL) on all. May block. */
void cma_unlisten(struct cma_id *id, const struct ib_device *device);

/* ---- connect.c ---- */
/* The handler of connections and of listening ids. */
int cma_ib_event(struct ib_cm_id *ib, struct ib_cm_event *event);
/* listen.c: a request, for a listening id. */
int cma_request(struct ib_cm_id *ib, struct ib_cm_event *event);

/* ---- qp.c ---- */
int cma_qp_to_rtr(struct cma_id *id, struct rdma_conn_param *param);
int cma_qp_to_rts(struct cma_id *id, struct rdma_conn_param *param);
void cma_qp_to_err(struct cma_id *id);

#endif
