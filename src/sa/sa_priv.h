/* sa_priv.h: inside the SA client: questions to the subnet administrator of an InfiniBand port,
 * memberships of multicast groups, and subscriptions to traps.
 *
 *  port.c  the InfiniBand ports: an agent for each, and the way to its SA
 * query.c  one question: a request, its timeout, its answer
 *  path.c  path and service records
 * shared.c what several consumers of a port share
 * mcast.c  ... memberships of multicast groups
 * inform.c ... subscriptions to traps
 *
 * Answers are told on the MAD layer's queue of the port, joins and notices on the queue of this
 * room. sa_lock guards ports, outstanding queries, groups and topics; it is a leaf but for what
 * work_push takes, and held across no call of the MAD layer and no callback.
 */
#ifndef SA_SA_PRIV_H
#define SA_SA_PRIV_H

#include <pthread.h>

#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>

#include "base/cond.h"
#include "base/list.h"
#include "base/work.h"

enum {
	SA_RETRIES = 3,     /* of a query of a consumer */
	SA_BUCKETS = 256,   /* of outstanding queries, by id */
	SA_JOIN_MS = 3000,  /* the timeout of a join, which is repeated ... */
	SA_JOIN_RETRIES = 3,
	SA_LEAVE_MS = 1000, /* and of a leave */
};

extern struct lock sa_lock;
extern struct work_queue sa_queue;

/* An InfiniBand port. */
struct sa_port {
	struct list_head node GUARDED_BY(sa_lock);
	struct ib_device *device FIXED;
	struct ib_mad_agent *agent FIXED;
	struct ib_pd *pd FIXED;
	u8 number FIXED;
	u32 users GUARDED_BY(sa_lock);	    /* calls that use the agent */
	bool gone GUARDED_BY(sa_lock);	    /* no call begins */
	struct cond idle GUARDED_BY(sa_lock); /* signalled when `users` falls to 0 */
	struct list_head groups GUARDED_BY(sa_lock); /* sa_shared */
	struct list_head topics GUARDED_BY(sa_lock); /* sa_shared */
	struct ib_mad_agent *reports OWNED_BY(sa_queue); /* NULL: no subscription so far */
	bool kept GUARDED_BY(sa_lock);			 /* the node answers reports */
};

/* The end of a query, called exactly once, on the MAD layer's queue. status: 0: *mad is the answer;
 * -ETIMEDOUT; -EINTR: cancelled, or the port is gone; -EINVAL: the SA refuses; -EIO. */
struct sa_query;
typedef void (*sa_done_fn)(struct sa_query *q, int status, struct ib_sa_mad *mad);

struct sa_query {
	struct list_head node GUARDED_BY(sa_lock); /* of its bucket */
	int id FIXED;
	struct sa_port *port FIXED;
	struct ib_sa_client *client FIXED; /* NULL: this room's own */
	struct ib_mad_send_buf *buf FIXED;
	struct ib_ah *ah FIXED;
	bool answered OWNED_BY(the thread of the MAD layer);
	sa_done_fn done FIXED;
	void *callback FIXED; /* of the consumer: `done` knows its type */
	void *context FIXED;
};

/* What a query asks. */
struct sa_ask {
	struct ib_sa_client *client;
	u8 method;
	u16 attribute; /* host byte order */
	ib_sa_comp_mask mask;
	int timeout_ms;
	int retries;
	sa_done_fn done;
	void *callback;
	void *context;
	struct ib_sa_query **query; /* out; NULL: nobody cancels it */
} OWNED_BY(the caller);

/* ---- port.c ---- */
/* The port, with a use; NULL: no such device, or not InfiniBand. */
struct sa_port *sa_port_get(const struct ib_device *device, u8 number);
/* Takes a use of a port that exists. False: it goes. */
bool sa_port_try(struct sa_port *port) REQUIRES(sa_lock);
void sa_port_put(struct sa_port *port);
/* The default partition, in which the SA is asked: as a full member if the port is one. */
u16 sa_port_pkey_index(const struct sa_port *port);
/* A handle of the way to the port's SA, and the P_Key index for it. ERR_PTR: -EAGAIN: the port
 * knows no subnet manager; -ENOMEM. */
struct ib_ah *sa_port_way(struct sa_port *port, u16 *pkey_index);
/* A query of the client begins, if it is registered, or has ended. */
bool sa_client_hold(struct ib_sa_client *client) REQUIRES(sa_lock);
void sa_client_drop(struct ib_sa_client *client) REQUIRES(sa_lock);

/* ---- query.c ---- */
/* Asks; the caller has a use of the port. `pack` writes the record into the MAD. Returns the id,
 * above 0, and then `done` follows, perhaps before this returns; or -EAGAIN, -ENOMEM, -ENODEV,
 * -EINVAL: no timeout, or a client that is not registered. Never blocks. */
int sa_query_begin(struct sa_port *port, const struct sa_ask *ask, const void *record,
		   void (*pack)(const void *record, void *attribute));
/* The handlers of a port's agent. */
void sa_query_on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc);
void sa_query_on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv);
void sa_query_drop_in_child(void);

/* ---- shared.c ---- */
struct sa_shared;
struct sa_consumer;

/* What a kind of shared thing does. All of it under sa_lock. */
struct sa_kind {
	/* Does a consumer that brings `fresh` share `s`? */
	bool (*same)(const struct sa_shared *s, const struct sa_shared *fresh);
	void (*entered)(struct sa_shared *s, struct sa_consumer *c); /* NULL: nothing to do */
	/* One step, on sa_queue; may let go of sa_lock meanwhile. False: nothing is left to do now;
	 * then what has neither consumers nor a query under way is freed. */
	bool (*step)(struct sa_shared *s);
} FIXED;

/* What consumers share; the first member of what is allocated. */
struct sa_shared {
	struct list_head node GUARDED_BY(sa_lock); /* of its port */
	const struct sa_kind *kind FIXED;
	struct sa_port *port FIXED;
	struct work work GUARDS_ITSELF; /* its steps, one after the other */
	struct list_head consumers GUARDED_BY(sa_lock);
	bool asking GUARDED_BY(sa_lock); /* a query is under way */
	bool port_gone GUARDED_BY(sa_lock);
};

/* One that shares; the first member of what is allocated. */
struct sa_consumer {
	struct list_head node GUARDED_BY(sa_lock);
	struct sa_shared *shared FIXED;
	struct ib_sa_client *client FIXED;
	bool ending GUARDED_BY(sa_lock); /* its owner has ended it: it hears nothing more */
	bool in_callback GUARDED_BY(sa_lock);
	pthread_t caller GUARDED_BY(sa_lock); /* the thread that is in the callback */
};

/* *s is all zeroes and nobody else has it. */
void sa_shared_init(struct sa_shared *s, const struct sa_kind *kind, struct sa_port *port);
/* Returns when all of the list have ended. Lets go of the lock meanwhile. */
void sa_shared_wait(struct list_head *all) REQUIRES(sa_lock);
/* Adds the consumer to what it shares, one of the port's list or else `fresh`, and takes `fresh`.
 * -EINVAL: its client is not registered. */
int sa_consumer_enter(struct sa_consumer *c, struct list_head *all, struct sa_shared *fresh);
/* Around a callback, which the owner ends the consumer by if it returns an error. */
void sa_consumer_begin_callback(struct sa_consumer *c) RELEASE(sa_lock);
void sa_consumer_end_callback(struct sa_consumer *c, int ends) ACQUIRE(sa_lock);
/* Its owner is done with it: waits for a callback that runs on another thread. */
void sa_consumer_end(struct sa_consumer *c);
/* On sa_queue, when it is `ending` and in no callback. */
void sa_consumer_free(struct sa_consumer *c) REQUIRES(sa_lock);

/* ---- mcast.c ---- */
/* The port's memberships are lost: each member is told. Any context. */
void sa_mcast_port_changed(struct ib_device *device, u8 number);
/* The port's agent has ended: members are told. Returns when their consumers have ended them. */
void sa_mcast_port_gone(struct sa_port *port);

/* ---- inform.c ---- */
/* The port's subscriptions may be lost: it subscribes anew. Any context. */
void sa_inform_port_changed(struct ib_device *device, u8 number);
/* As sa_mcast_port_gone. */
void sa_inform_port_gone(struct sa_port *port);

#endif
