/* addr.h: the way to an IP address: route, interface, neighbour.
 *
 * The calls of consumers are those of rdma/ib_addr.h. An instance has a work queue, on which
 * requests wait for their neighbour, and asks by a table of functions: the kernel (host.c), or in a
 * test something else, in virtual time.
 *
 * One lock guards an instance. No question to the kernel is asked under it, and no callback runs
 * under it.
 *
 *   request.c   requests: the route at once, then the neighbour until it is known or time is up
 * neighbour.c   neighbours that are known, until the kernel tells of a change
 *      host.c   the instance of this process, which asks the kernel
 *        ip.c   socket addresses, interfaces
 */
#ifndef ADDR_ADDR_H
#define ADDR_ADDR_H

#include <pthread.h>
#include <rdma/ib_addr.h>

#include "base/cond.h"
#include "base/list.h"
#include "base/work.h"
#include "host/neighbour.h"
#include "host/route.h"

enum { ADDR_NEIGHBOURS = 256, ADDR_REQUESTS = 65536 };

/* Whom to ask. As host_route_find and the calls of host/neighbour.h. */
struct addr_ops {
	int (*route)(const u8 to[16], const u8 *from, u32 ifindex, struct host_route *out);
	int (*link)(u32 ifindex, struct host_link *out);
	int (*address)(const u8 gid[16], u32 scope, u32 *ifindex);
	int (*neighbour)(u32 ifindex, const u8 gid[16], struct host_neighbour *out);
	int (*probe)(u32 ifindex, const u8 gid[16]);
	int (*watch_open)(struct host_watch *w);
	void (*watch_close)(struct host_watch *w);
	bool (*watch_read)(struct host_watch *w,
			   void (*take)(const struct host_change *c, void *context), void *context);
} FIXED;

/* The way to an address. */
struct addr_way {
	struct host_route route;
	u8 to[16];
} OWNED_BY(the caller);

struct addr_instance {
	const struct addr_ops *ops FIXED;
	struct work_queue *queue GUARDS_ITSELF;
	struct lock lock;
	struct list_head requests GUARDED_BY(lock); /* struct addr_request */
	u32 request_count GUARDED_BY(lock);
	struct cond idle GUARDED_BY(lock); /* signalled when a request is over */
	struct host_watch watch GUARDED_BY(lock); /* none: nothing is kept */
	bool watch_tried GUARDED_BY(lock);
	struct host_neighbour neighbours[ADDR_NEIGHBOURS] GUARDED_BY(lock); /* by hash; ifindex 0:
									       empty */
};

/* The queue is the caller's, as are the ops. */
void addr_init(struct addr_instance *a, const struct addr_ops *ops, struct work_queue *queue);
/* There are no requests left. */
void addr_close(struct addr_instance *a);
/* The process' own, ready for use. */
struct addr_instance *addr_host(void);

/* ---- request.c ---- */
/* Asks for the route. `to`: a GID, no wildcard; `from`: NULL or all zeroes: any; `ifindex`: 0: any.
 * Errors as rdma_resolve_ip. May block. */
int addr_route(struct addr_instance *a, const u8 to[16], const u8 *from, u32 ifindex,
	       struct addr_way *out);
/* The link layer's side of a way. -ENODATA: the neighbour is not known, and the kernel looks for
 * it. -ENODEV: the interface has gone. May block. */
int addr_link(struct addr_instance *a, const struct addr_way *way, struct rdma_dev_addr *out);
/* Has the callback told on the queue, with 0, when addr_link no longer says -ENODATA, else with
 * -ETIMEDOUT after timeout_ms, or its errno. -ENOMEM. */
int addr_wait(struct addr_instance *a, struct rdma_addr_client *client,
	      const struct addr_way *way, struct rdma_dev_addr *addr, int timeout_ms,
	      void (*callback)(int status, struct sockaddr *src_addr, struct rdma_dev_addr *addr,
			       void *context),
	      void *context);
/* As addr_link, but waits in the caller's thread until the neighbour is known. -ETIMEDOUT: it is
 * not known after timeout_ms. */
int addr_link_wait(struct addr_instance *a, const struct addr_way *way, int timeout_ms,
		   struct rdma_dev_addr *out);
/* As rdma_addr_cancel and rdma_addr_unregister_client. */
void addr_cancel(struct addr_instance *a, const struct rdma_dev_addr *addr);
void addr_client_wait(struct addr_instance *a, const struct rdma_addr_client *client);

/* ---- neighbour.c ---- */
/* The neighbour's MAC. -ENODATA: not known, and the kernel looks for it. -EOPNOTSUPP: this kernel
 * does not tell, or does not let this process have it looked for. May block. */
int addr_neighbour(struct addr_instance *a, u32 ifindex, const u8 gid[16],
		   u8 out[HOST_LINK_ADDRESS]);

/* ---- ip.c ---- */
/* An address' interface, by which a link-local one of IPv6 is reached; 0: none is named. */
u32 addr_scope(const struct sockaddr *addr);
/* As rdma_copy_addr; *vlan_id: the interface's VLAN, as rdma_translate_ip has it; may be NULL. */
int addr_copy(struct addr_instance *a, struct rdma_dev_addr *dev_addr, u32 ifindex,
	      const unsigned char *dst, u16 *vlan_id);
/* As rdma_translate_ip and rdma_resolve_ip. */
int addr_translate(struct addr_instance *a, const struct sockaddr *addr,
		   struct rdma_dev_addr *dev_addr, u16 *vlan_id);
/* The GID of the port whose IPoIB interface has the address. -EADDRNOTAVAIL: no interface has it.
 * -ENODEV: an interface of another kind has. May block. */
int addr_ipoib_gid(struct addr_instance *a, const u8 ip[16], u32 scope, u8 gid[16]);
/* The same; *ifindex: the interface. */
int addr_ipoib_find(struct addr_instance *a, const u8 ip[16], u32 scope, u32 *ifindex,
		    u8 gid[16]);
/* The same, inside a hardware address. */
static inline const u8 *addr_ipoib_of(const unsigned char *link_address)
{
	return link_address + IB_ADDR_GID;
}
int addr_resolve(struct addr_instance *a, struct rdma_addr_client *client,
		 const struct sockaddr *src_addr, const struct sockaddr *dst_addr,
		 struct rdma_dev_addr *addr, int timeout_ms,
		 void (*callback)(int status, struct sockaddr *src_addr,
				  struct rdma_dev_addr *addr, void *context),
		 void *context);

#endif
