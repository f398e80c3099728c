/* sm.h: a subnet manager (SM) with its subnet administrator (SA), as firmware of a switch has one.
 *
 * It knows the fabric by MADs only, from one port: a switch's port 0, or a CA's port. It finds
 * every node by directed routes, gives out LIDs, fills forwarding tables by shortest paths, brings
 * links to ACTIVE, and answers SA queries. Its priority is 0 unless its configuration says more. By
 * SMInfo it agrees with other SMs which one is the master: it yields to any that ranks higher,
 * polls the master, and takes over when that one is gone.
 *
 * The SM is a machine without threads, sockets or clock. Its host gives it MADs and the time, and
 * sends what it has to send.
 *
 * file        | has
 * ------------|-------------------------------------------------------------------------------
 * sm.c        | the host's calls: life, time, MADs that arrive
 * smp.c       | SMPs in flight: bounded, repeated, answered
 * sweep.c     | the steps of a sweep, and when the next one is
 * discover.c  | what nodes, ports and other SMs there are
 * subnet.c    | the subnet as it was found; ways, indices; map.c: a table by GUIDs
 * lid.c       | LIDs
 * routes.c    | forwarding tables of the shortest paths
 * config.c    | PortInfo, SwitchInfo, tables: what is set, and in which order
 * tree.c      | multicast tables
 * manager.c   | SMInfo: master, standby, handover
 * trap.c      | traps, and reports to subscribers
 * sa.c        | SA queries; sa_*.c: one file for each kind of record
 * rmpp.c      | answers of several MADs
 *
 * Results: 0 or a negative errno. No function blocks.
 */
#ifndef SM_SM_H
#define SM_SM_H

#include "fabric/fabric.h"

/* SMState of SMInfo (IBA vol 1, 14.2.5.13). */
enum sm_state { SM_NOT_ACTIVE, SM_DISCOVERING, SM_STANDBY, SM_MASTER };

struct sm_ops {
	/* A MAD from the SM's port. Answers may come by sm_receive before it returns. */
	void (*send)(void *arg, const struct fabric_mad *m);
	u64 (*now_ns)(void *arg);
} FIXED;

struct sm_config {
	u8 priority;	  /* 0 to 15 */
	u32 smps;	  /* in flight at most; 0: 64 */
	u64 light_ns;	  /* between light sweeps; 0: 10 seconds */
	u64 poll_ns;	  /* between polls of the master; 0: 1 second */
	u64 timeout_ns;	  /* of an SMP; 0: 200 ms */
	u64 seed;	  /* of transaction IDs */
} FIXED;

struct sm;

/* NULL: no memory. The first sweep is due at once. */
struct sm *sm_create(const struct sm_ops *ops, void *arg, const struct sm_config *c);
void sm_destroy(struct sm *sm);

/* A MAD that has arrived at the SM's port. False: it is not for an SM or SA, or answers nothing
 * that this SM has asked. Sends nothing: sm_run does. */
bool sm_receive(struct sm *sm, const struct fabric_mad *m);
/* The SM's own port has changed, or MADs may have been lost: it looks at the fabric soon. */
void sm_wake(struct sm *sm);
/* When sm_run must run next (of ops.now_ns; UINT64_MAX: never). Changes with each other call. */
u64 sm_due_ns(const struct sm *sm);
/* Does what is due: a bounded number of MADs. */
void sm_run(struct sm *sm);

/* What tools and tests see. */
struct sm_report {
	enum sm_state state;
	bool busy;	   /* a sweep is in progress */
	u64 sweeps;	   /* as master, that have ended without a fault */
	u32 nodes, ports;  /* of the latest: ports with a link */
	u16 lid;	   /* of the SM's port */
	u64 smps, timeouts; /* sent, with repetitions; never answered */
	u64 faults;	   /* answers with an error, or that make no sense */
	u64 queries;	   /* SA requests taken */
	u64 dropped;	   /* SA requests beyond what may wait */
	u32 groups;	   /* of multicast */
} OWNED_BY(the caller);
void sm_read_report(const struct sm *sm, struct sm_report *out);

#endif
