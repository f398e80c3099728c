/* service.h: what a service of the node is: a table of requests, with one function for each. A new
 * service is a file serve_NAME.c, a header protocol/NAME.h and a line in service.c's table.
 */
#ifndef NODE_DAEMON_SERVICE_H
#define NODE_DAEMON_SERVICE_H

#include "node/daemon/daemon_priv.h"

/* One packet with all that belongs to it. */
struct request {
	struct proc *proc;
	struct daemon *daemon;
	const union proto_request *q;
	struct message *m;
	bool answered;
	bool broken; /* the reply could not be sent: the process does not read */
};

#define SERVICE_FROM(kind) (1u << (kind))

/* What a packet must be like to be answered at all. */
struct service_rule {
	/* A negative result is the reply's status, unless the function has replied. */
	int (*fn)(struct request *r);
	u16 size;
	u8 fds;
	u8 from; /* SERVICE_FROM of the kinds of connections that may ask */
};

struct service {
	const struct service_rule *rules; /* by PROTO_OP of the type */
	u32 rule_count;
	/* Gives back what a connection of one of these kinds holds, which ends; NULL: nothing.
	 * Where the node itself ends (daemon.ending), what an attached process has stays its own,
	 * for the next node. */
	void (*release)(struct proc *p);
	u8 release_of; /* SERVICE_FROM of the kinds */
};

extern const struct service session_service, slot_service, address_service, pair_service,
	mcast_service, device_service, capture_service, status_service;

/* Whether the process may claim what it had from this service before its RESUME: once, and before
 * it takes anything new. */
bool service_claim(struct proc *p, enum proto_service service);
/* Whether it has not yet. */
bool service_claim_is_due(const struct proc *p, enum proto_service service);
/* Has each service give back what a connection holds. */
void service_release(struct proc *p);
/* Sends the reply to a request: its head is filled here. The descriptors stay the caller's. Where
 * the kernel lets no more descriptors fly, the reply is -ENFILE without them, which reply->status
 * then says. */
void service_reply(struct request *r, struct proto_head *reply, size_t size, int status,
		   const int *fds, int fd_count);
/* A reply that carries nothing but the status. */
void service_status(struct request *r, int status);

#endif
