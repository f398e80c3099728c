/* net.h: hosts with a CM each, in one process and in virtual time, and a network that loses,
 * duplicates and delays their MADs.
 *
 * One thread: handlers run inside net_run_for and net_run_until.
 */
#ifndef CM_IB_TEST_SUPPORT_NET_H
#define CM_IB_TEST_SUPPORT_NET_H

#include "cm/ib/cm_priv.h"

enum { NET_HOSTS = 3, NET_WILLS = 1024, NET_PKEY_INDEX = 5, NET_GID_INDEX = 2, NET_EVENTS = 18 };

/* What the node has of one id. */
struct net_will {
	bool set;
	struct cm_route route;
	struct mad_connection connection;
	u8 mad[CM_MAD_BYTES];
} OWNED_BY(the test);

struct net_host {
	struct cm_device dev; /* first: the ops know the host by it */
	struct ib_device ib;
	struct cm *cm;
	union ib_gid gid;
	u32 listens; /* calls of ops->listen that are on */
	struct net_will wills[NET_WILLS];
	bool dead; /* sends and receives nothing */
} OWNED_BY(the test);

struct net {
	struct work_queue queue;
	struct net_host hosts[NET_HOSTS];
	struct list_head flying; /* struct net_mad, the soonest first */
	u64 now;
	u64 random;
	u32 loss_percent, duplicate_percent;
	u64 delay_min_ns, delay_max_ns;
	bool cut;	 /* nothing arrives */
	u64 sent[CM_ATTR_END]; /* by attribute, lost ones too */
	enum cm_attr drop_attr; /* loses the next drop_count of this kind */
	u32 drop_count;
	u8 last[CM_MAD_BYTES]; /* that was sent */
} OWNED_BY(the test);

extern struct net net;

void net_open(u64 seed);
/* Asserts that no id is left. */
void net_close(void);
/* The host's process dies: nothing of it arrives any more but its wills, which leave now. */
void net_kill(u32 host);
u32 net_wills(u32 host);
/* Lets so much time pass. */
void net_run_for(u64 ns);
/* Until *flag, or so much time has passed. Returns *flag. */
bool net_run_until(const bool *flag, u64 ns);
u32 net_random(u32 below);
/* A path from one host to another, of the kind that RDMA CM makes for RoCE. */
struct ib_sa_path_rec net_path(u32 from, u32 to);
/* A REQ of usual values. */
struct ib_cm_req_param net_req(struct ib_sa_path_rec *path, u64 service_id);
/* Delivers these bytes to a host, as from the other. */
void net_inject(u32 to, u32 from, const u8 *mad, u32 length);

/* One id, and what its handler has been told. */
struct net_end {
	struct ib_cm_id *id;
	u32 seen[NET_EVENTS]; /* by event */
	u32 total;
	struct ib_cm_event last;
	u8 private_data[CM_DATA_BYTES];
	u8 info[IB_CM_REJ_ARI_LENGTH];
	struct ib_sa_path_rec primary, alternate;
	struct net_end *child; /* of a listening id: who gets the next request's id */
	int result;	       /* that the handler returns */
	/* called from the handler, if set */
	void (*act)(struct net_end *end, struct ib_cm_event *event);
} OWNED_BY(the test);

/* Records in cm_id->context, a struct net_end. */
int net_handler(struct ib_cm_id *cm_id, struct ib_cm_event *event);
/* An id of the host with net_handler. */
struct net_end net_end_create(u32 host);
/* The same, listening. `child` gets the id of the last request. */
struct net_end net_listen(u32 host, u64 service_id, struct net_end *child);
/* The ends' contexts are their addresses: to be called when they lie where they stay. */
void net_end_bind(struct net_end *end);

/* The usual three: a client on host 0, a listener on host 1 and the end that its last request
 * makes. They must lie where they stay. */
struct net_trio {
	struct net_end client, listener, server;
} OWNED_BY(the test);

/* net_open with these three. */
void net_trio_open(struct net_trio *trio, u64 seed, u64 service_id);
/* Destroys what is left on a network that loses nothing, sees that everything ends in the
 * specification's time, and net_close. */
void net_trio_close(struct net_trio *trio);

#endif
