/* smd.h: the subnet managers that the node adds to its fabric, as managed switches have them.
 */
#ifndef DAEMON_FABRIC_SMD_H
#define DAEMON_FABRIC_SMD_H

#include "daemon/fabric/fabricd.h"
#include "sm/sm.h"

struct smd;

/* One SM for each part of the fabric that cables connect: at the node with the highest port GUID,
 * so that any other SM of priority 0 ranks higher. NULL: no memory. */
struct smd *smd_new(struct fabricd *f);
/* IsSM of their ports stays, if the next node goes on with the fabric (`keep`). */
void smd_free(struct smd *s, bool keep);
/* A MAD for the software at a port. False: no SM takes it. */
bool smd_receive(struct smd *s, u32 port, const struct fabric_mad *m);
/* Is an SM at the port? */
bool smd_is_at(const struct smd *s, u32 port);
/* A process is an SM at the port, or no longer: the node's own steps aside meanwhile. */
void smd_yield(struct smd *s, u32 port, bool yields);
/* The port's state has changed, or its node has restarted. */
void smd_port_changed(struct smd *s, u32 port);
u64 smd_next_ns(const struct smd *s);
void smd_run(struct smd *s, u64 now_ns);
/* Sums over all SMs; state: the highest. */
void smd_read(const struct smd *s, struct sm_report *out);

#endif
