/* cma_priv.h: inside the RDMA CM: the identifier, and what its files share.
 *
 *      id.c    identifiers: their states, the consumer's handler, their end
 *  device.c    the devices that there are, and which has an address
 * address.c    socket addresses, GIDs and ports
 *   af_ib.c    InfiniBand's own addresses
 * resolve.c    binding to an address, finding the way to another
 *   ipoib.c    addresses of IPoIB interfaces of a fabric
 *    path.c    paths: asked of the subnet administrator, or made of what both ends know
 *  change.c    addresses that leave their device
 *  header.c    what the RDMA CM puts in front of the private data
 *  listen.c    requests that come
 *  origin.c    whether they come from the address that they name
 * connect.c    connections from the REQ to timewait
 *   mcast.c    multicast groups: who has joined, what is told
 * mcast_ib.c   those of InfiniBand, at the subnet administrator
 *      qp.c    queue pairs that the CM takes through their states
 */
#ifndef CMA_PRIV_H
#define CMA_PRIV_H

#include <rdma/ib.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_sa.h>
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

struct cma {
	struct lock lock;
	struct list_head ids GUARDED_BY(lock);	   /* struct cma_id */
	struct list_head devices GUARDED_BY(lock); /* struct cma_device, in the order they came */
	u32 device_numbers GUARDED_BY(lock);	   /* given out */
	struct cond id_gone GUARDED_BY(lock);	   /* an id has been freed */
	struct work_queue queue GUARDS_ITSELF;
	struct ib_sa_client sa GUARDS_ITSELF;
};
extern struct cma cma;

/* One device on which an id listens. */
struct cma_listener {
	struct list_head node;
	struct ib_device *device;
	struct ib_cm_id *ib;
} OWNED_BY(cma.lock);

/* What the consumer has set. */
struct cma_options {
	u8 tos;
	bool reuse, afonly;
	u8 ack_timeout; /* 0x80 and the timeout; 0: not set */
	u8 min_rnr_timer; /* likewise */
} OWNED_BY(cma.lock or, of a copy, the caller);

struct cma_id {
	/* First. `device` is the cma.lock's: it is taken away when the device goes, and no call
	 * with it is made but under that lock or cma_device_hold. */
	struct rdma_cm_id id OWNED_BY(the consumer and the handler at hand);
	struct list_head node GUARDED_BY(cma.lock); /* of all ids */
	enum cma_state state GUARDED_BY(cma.lock);
	bool busy GUARDED_BY(cma.lock); /* the consumer's handler runs, or is about to */
	u32 refs GUARDED_BY(cma.lock);  /* of those who are not in a call of the consumer's */
	struct cond idle GUARDED_BY(cma.lock); /* signalled when it is not busy, or has no refs */
	struct ib_cm_id *ib GUARDED_BY(cma.lock); /* the connection's; NULL: none */
	struct list_head listeners GUARDED_BY(cma.lock); /* struct cma_listener */
	struct list_head groups GUARDED_BY(cma.lock);    /* struct cma_mcast */
	struct node_port port GUARDS_ITSELF;
	bool user FIXED; /* a program's by librdmacm: ports are judged as for its sockets */
	struct rdma_dev_addr dev_addr OWNED_BY(the query at hand); /* of the way to the peer */
	struct work work GUARDS_ITSELF; /* says the result of a query */
	struct work change GUARDS_ITSELF; /* says that the id's address has left its device */
	bool addr_gone GUARDED_BY(cma.lock); /* that is known, or it has never been there */
	int result GUARDED_BY(cma.lock);  /* of the query: 0 or a negative errno */
	/* the question for a path: both are 0 while there is none */
	struct ib_sa_query *query GUARDED_BY(cma.lock);
	int query_id GUARDED_BY(cma.lock);
	struct ib_sa_path_rec path[2] OWNED_BY(the consumer and the handler at hand);
	u32 seq_num FIXED; /* the first PSN */
	u32 qkey OWNED_BY(the consumer and the handler at hand);
	u32 qp_num OWNED_BY(the consumer and the handler at hand); /* the consumer's own */
	/* A thread that has it may use id.qp: rdma_destroy_qp takes it to take the queue pair. */
	struct lock qp_lock ONE_AT_A_TIME;
	bool srq OWNED_BY(the consumer and the handler at hand);
	/* a request's id that no handler was told of as established */
	bool awaits_rtu OWNED_BY(the handler at hand);
	struct cma_options options GUARDED_BY(cma.lock);
};

struct cma_device {
	struct list_head node;
	struct ib_device *device;
	struct ib_event_handler events; /* of the device's GIDs */
	u32 number; /* 1 and up, of no other device of this process */
	bool infiniband; /* its link layer; else Ethernet */
	u32 users;  /* cma_device_hold: its removal waits for them */
	struct cond unused;
} OWNED_BY(cma.lock);

/* One membership of a multicast group. An id may have joined a group several times. */
struct cma_mcast {
	struct list_head node OWNED_BY(cma.lock); /* struct cma_id.groups, oldest first */
	struct cma_id *id FIXED;
	struct sockaddr_storage addr FIXED;
	union ib_gid mgid FIXED; /* InfiniBand: 0: the SA chooses one */
	u8 join_state FIXED;
	void *context FIXED;
	struct work work GUARDS_ITSELF; /* says that the id has joined, or is a member no more */
	bool left OWNED_BY(cma.lock);	/* off the list: nothing more is told */
	/* InfiniBand: the membership at the SA; NULL: none, or its device has gone */
	struct ib_sa_multicast *sa OWNED_BY(cma.lock);
	bool ending OWNED_BY(cma.lock); /* that at the SA: a thread waits for its callback */
	bool tells_join OWNED_BY(cma.lock); /* with `rec` */
	int error OWNED_BY(cma.lock);	    /* to tell; 0: none */
	struct ib_sa_mcmember_rec rec OWNED_BY(cma.lock); /* what the SA has granted */
};

static inline struct cma_id *cma_id(struct rdma_cm_id *id)
{
	return container_of(id, struct cma_id, id);
}

static inline bool cma_is_datagram(const struct rdma_cm_id *id)
{
	return id->qp_type == IB_QPT_UD;
}

/* The Q_Key of the id's datagrams: what the peer or the consumer said, else the RDMA CM's. */
static inline u32 cma_qkey(const struct cma_id *id)
{
	return id->qkey != 0 ? id->qkey : RDMA_UDP_QKEY;
}

/* ---- id.c ---- */
/* A new id in CMA_IDLE, which nobody else has. NULL: no memory. */
struct cma_id *cma_id_new(rdma_cm_event_handler handler, void *context, enum rdma_port_space ps,
			  enum ib_qp_type qp_type);
/* From one state to another. False: it was in another one. */
bool cma_move(struct cma_id *id, enum cma_state from, enum cma_state to);
bool cma_is_in(struct cma_id *id, enum cma_state state);
/* A copy, as they are now. */
struct cma_options cma_options_of(struct cma_id *id);
/* Begins a turn of the consumer's handler: waits for the one before. False: the id is in another
 * state than `state`, and there is no turn. */
bool cma_enter(struct cma_id *id, enum cma_state state);
/* As cma_enter; the id goes to state `to`. */
bool cma_enter_to(struct cma_id *id, enum cma_state state, enum cma_state to);
/* As cma_enter, in any state but those of an id whose device has gone or that is destroyed. */
bool cma_enter_alive(struct cma_id *id);
void cma_leave(struct cma_id *id);
/* Inside a turn: calls the handler. What it returns. */
int cma_tell(struct cma_id *id, struct rdma_cm_event *event);
/* The handler, inside a turn that a callback of the IB CM began, wants the id destroyed: ends the
 * turn and the id. The caller destroys the IB CM's id by returning non-zero. */
void cma_end_in_handler(struct cma_id *id);

/* ---- device.c ---- */
/* Is it a device whose link layer is InfiniBand? */
bool cma_is_infiniband(const struct ib_device *device) REQUIRES(cma.lock);
/* Has the CM told of devices. 0 or a negative errno. May block. */
int cma_start(void);
bool cma_device_is_bound(struct cma_id *id);
/* The device that the id is bound to, which does not go before cma_device_release. NULL: none,
 * or it is about to go. Calls with it may block, but run no handler. */
struct cma_device *cma_device_hold(struct cma_id *id);
void cma_device_release(struct cma_device *d); /* NULL: nothing */
/* As cma_device_hold; *ib: the connection's id of the IB CM, which stays as long, or NULL: none. */
struct cma_device *cma_device_hold_ib(struct cma_id *id, struct ib_cm_id **ib);
/* The device at this place of all, held; NULL: none. */
struct cma_device *cma_device_hold_at(u32 index);
/* Copies the name of the id's device, and returns its number; "" and 0: none. */
u32 cma_device_name(struct cma_id *id, char *out, size_t size);
/* Binds the id to the device and port that have the GID. -ENODEV: none has. -EMFILE, -ENFILE,
 * -ENOMEM: there is none for lack of that. May block. */
int cma_bind_gid(struct cma_id *id, const union ib_gid *gid);
/* Is it an address of a device here? */
bool cma_gid_is_known(const union ib_gid *gid);
/* Binds the id to the first device with an address of a family (IPv4 or IPv6), and says which.
 * Errors as cma_bind_gid. */
int cma_bind_first(struct cma_id *id, bool v4, union ib_gid *gid);
/* The first address of the device's port 1 that is of the family. False: it has none. */
bool cma_device_find_family(struct ib_device *device, bool v4, union ib_gid *gid);
/* Binds a request's id to the device that it came by. */
void cma_bind_device(struct cma_id *id, struct ib_device *device, u8 port,
		     const union ib_gid *sgid);

/* ---- address.c ---- */
bool cma_family_is_known(const struct sockaddr *addr);
bool cma_addr_is_any(const struct sockaddr *addr);
bool cma_addr_is_loopback(const struct sockaddr *addr);
/* Copies an address of a known family; the rest of *out is zero. */
void cma_addr_copy(struct sockaddr_storage *out, const struct sockaddr *addr);
/* Makes a socket address of a GID (port 0). */
void cma_addr_from_gid(struct sockaddr_storage *out, const union ib_gid *gid);
/* Is it IPv4's, mapped into IPv6? */
bool cma_gid_is_v4(const union ib_gid *gid);
/* The GID of a port of this process' host in a fabric that has the address, or whose IPoIB
 * interface has it; else as cma_addr_gid. -EADDRNOTAVAIL: another host's. May block. */
int cma_addr_port_gid(const struct sockaddr *addr, union ib_gid *out);
/* The socket address (port 0) of a port of a device that has the GID. */
void cma_addr_of_port(struct sockaddr_storage *out, const union ib_gid *gid);
/* The address as a GID: IPv4 is mapped into IPv6. */
void cma_addr_gid(const struct sockaddr *addr, union ib_gid *out);
/* Host order; 0: none. */
u16 cma_addr_port(const struct sockaddr *addr);
void cma_addr_set_port(struct sockaddr_storage *addr, u16 port);
/* Tells whether it is a link-local address of IPv6 that names no interface. */
bool cma_addr_lacks_scope(const struct sockaddr *addr);
/* Has such an address name the interface. Leaves all other addresses alone. */
void cma_addr_set_scope(struct sockaddr_storage *addr, u32 ifindex);
static inline const struct sockaddr *cma_addr(const struct sockaddr_storage *s)
{
	return (const struct sockaddr *)s;
}

/* ---- af_ib.c ---- */
/* A copy of an address of AF_IB. */
struct sockaddr_ib cma_af_ib(const struct sockaddr_storage *addr);
static inline bool cma_is_af_ib(const struct cma_id *id)
{
	return id->id.route.addr.src_addr.ss_family == AF_IB;
}
/* Completes the service ID of the id's source by its port space, and says which that is.
 * -EPROTONOSUPPORT: its known bits are another space's. */
int cma_af_ib_take_space(struct cma_id *id, enum rdma_port_space *ps);
/* Binds the id to the InfiniBand port that has the GID, and to the partition. Errors as
 * cma_bind_gid. */
int cma_af_ib_bind(struct cma_id *id, const struct sockaddr_ib *sib);
/* Finds the port that leads to a destination. -ENODEV: none does. */
int cma_af_ib_resolve(struct cma_id *id, const struct sockaddr *to);
/* The addresses of a request for a listening id of AF_IB; `path` NULL: a SIDR_REQ. */
void cma_af_ib_of_request(const struct cma_id *listen, const struct ib_sa_path_rec *path,
			  struct rdma_addr *out);

/* ---- resolve.c ---- */
/* As rdma_bind_addr. */
int cma_bind(struct cma_id *id, const struct sockaddr *addr);
/* struct cma_id.work: says the result of a query. */
void cma_resolved(struct work *w);

/* Has the result of a query told. */
void cma_resolve_result(struct cma_id *id, int result);

/* ---- ipoib.c ---- */
/* Is it the GID of an InfiniBand port of this process' host? */
bool cma_ipoib_is_port(const union ib_gid *gid);
/* The GID of the port of this process' host whose IPoIB interface has the address. -ENODEV,
 * -EADDRNOTAVAIL: none has. May block. */
int cma_ipoib_port_gid(const u8 ip[16], u32 scope, union ib_gid *out);
/* The way to the peer is known: of an id of an InfiniBand port its GID stands in the neighbour's
 * hardware address. -ENODEV: it leads over an interface of another kind. */
int cma_ipoib_take_way(struct cma_id *id);

/* ---- path.c ---- */
/* Finds the id's path, and has it told. What it returns is the call's own error. */
int cma_path_find(struct cma_id *id, int timeout_ms);
/* Nobody tells a path any more that the id has asked for. */
void cma_path_cancel(struct cma_id *id);

/* ---- change.c ---- */
/* The handler of a device's events: ids whose address has left the device are told. */
void cma_device_event(struct ib_event_handler *handler, struct ib_event *event);
/* struct cma_id.change. */
void cma_address_changed(struct work *w);

/* ---- header.c: the RDMA CM's header in front of the private data (IBA annex A11) ---- */
enum { CMA_HEADER = 36 };
/* Of the id's requests: those of AF_IB have none. */
static inline u8 cma_header_size(const struct cma_id *id)
{
	return cma_is_af_ib(id) ? 0 : (u8)CMA_HEADER;
}
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

/* ---- origin.c ---- */
/* How a request has come. */
struct cma_request_way {
	union ib_gid peer; /* zeroes: it does not say, as a SIDR_REQ inside an InfiniBand subnet */
	union ib_gid own;
	u16 lid; /* the sender's; 0 on RoCE */
} OWNED_BY(the caller);
/* Has the request come from and to the addresses that its header names (as cma_header_read gives
 * them)? Loopback addresses are those of processes of this host. May ask the kernel for routes. */
bool cma_origin_holds(const struct ib_device *device, const struct cma_request_way *way,
		      const struct rdma_addr *claimed);

/* ---- connect.c ---- */
/* The handler of connections and of listening ids. */
int cma_ib_event(struct ib_cm_id *ib, struct ib_cm_event *event);
/* listen.c: a request, for a listening id. */
int cma_request(struct ib_cm_id *ib, struct ib_cm_event *event);

/* ---- mcast.c ---- */
/* As rdma_leave_multicast, of the membership with this context. */
void cma_mcast_leave(struct cma_id *id, const void *context);
/* Leaves all groups. May block. */
void cma_mcast_leave_all(struct cma_id *id);

/* ---- mcast_ib.c ---- */
/* The group of an address on the port that the id is bound to. */
void cma_mcast_ib_gid(const struct cma_id *id, const struct sockaddr *addr, union ib_gid *out);
/* Joins at the SA; the result is told by mc->work. -EADDRNOTAVAIL: there is no broadcast group
 * of IPoIB, whose parameters a new group takes; -EAGAIN: no SM; -ETIMEDOUT. May block. */
int cma_mcast_ib_join(struct cma_mcast *mc, struct ib_device *device);
/* What the event of a join says. 0 or a negative errno. Inside a turn. */
int cma_mcast_ib_event(const struct cma_mcast *mc, struct ib_device *device,
		       struct rdma_ud_param *out);
/* Ends a membership at the SA, after which mc->work is not pushed any more. May block. */
void cma_mcast_ib_leave(struct cma_mcast *mc);
/* The id's device goes: memberships at its SA end, and nothing more is told of them. May block. */
void cma_mcast_device_gone(struct cma_id *id);
/* The Q_Key of datagrams of the port space IPOIB: that of the broadcast group. May block. */
int cma_mcast_ib_qkey(struct cma_id *id, struct ib_device *device, u32 *qkey);

/* ---- qp.c ---- */
/* From INIT; `param` NULL: with the depths that the connection says. */
int cma_qp_to_rts(struct cma_id *id, const struct rdma_conn_param *param);
void cma_qp_to_err(struct cma_id *id);
/* Returns when the MADs that the caller's last call for the id has sent are on their way. May
 * block; not in a handler. */
void cma_flush(struct rdma_cm_id *cm_id);
/* As cm_answer_briefly, before rdma_accept. */
bool cma_answer_briefly(struct rdma_cm_id *cm_id);

#endif
