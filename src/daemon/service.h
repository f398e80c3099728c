/* service.h: a service of the node: a table of requests, with one function for each. A new
 * service is a file serve_NAME.c, a header protocol/NAME.h and a line in service.c's table.
 */
#ifndef DAEMON_SERVICE_H
#define DAEMON_SERVICE_H

#include "daemon/daemon_priv.h"

/* One packet with its context. */
struct request {
	struct proc *proc;
	struct daemon *daemon;
	const union proto_request *q;
	struct message *m;
	bool answered;
	bool broken; /* the reply could not be sent: the process does not read */
} OWNED_BY(the daemon);

#define SERVICE_FROM(kind) (1u << (kind))

/* The conditions under which a packet is answered. */
struct service_rule {
	/* A negative result becomes the reply's status, unless the function has replied. */
	int (*fn)(struct request *r);
	u16 size;
	u8 fds;
	u8 from; /* SERVICE_FROM of the kinds of connections that may send it */
} FIXED;

struct service {
	const struct service_rule *rules; /* by PROTO_OP of the type */
	u32 rule_count;
	/* Releases what an ending connection of one of these kinds holds; NULL: nothing. When the
	 * node itself ends (daemon.ending) an attached process keeps what it holds, for the next
	 * node. */
	void (*release)(struct proc *p);
	u8 release_of; /* SERVICE_FROM of the kinds */
} FIXED;

extern const struct service session_service, slot_service, address_service, pair_service,
	mcast_service, listen_service, device_service, capture_service, status_service,
	will_service, agent_service, flow_service, fabric_service;

/* Tells whether the process may claim what it held from this service before its RESUME: once, and
 * before it takes anything new. */
bool service_claim(struct proc *p, enum proto_service service);
/* Tells whether that claim is still due. */
bool service_claim_is_due(const struct proc *p, enum proto_service service);
/* Has each service release what a connection holds. */
void service_release(struct proc *p);
/* Sends the reply to a request; fills its head. The descriptors stay the caller's. If the kernel
 * permits no more descriptors in flight the reply is -ENFILE without them, as reply->status then
 * says. */
void service_reply(struct request *r, struct proto_head *reply, size_t size, int status,
		   const int *fds, int fd_count);
/* Sends a reply that has only a status. */
void service_status(struct request *r, int status);

#endif
