/* traffic.h: what crosses the ports of the node's RoCE devices. */
#ifndef DAEMON_TRAFFIC_H
#define DAEMON_TRAFFIC_H

#include "node/node.h"
#include "path/path.h"

struct board;
struct daemon;
struct proc;

/* What counters/ of a device shows. */
struct traffic_device {
	u64 id; /* of the device; 0: none */
	struct path_traffic shown;
} OWNED_BY(the daemon);

struct traffic {
	struct traffic_device devices[NODE_DEVICES]; /* by index; FOLDER/traffic has them, too */
	struct path_traffic news[NODE_DEVICES];	     /* counted, and not shown yet */
	u64 due_ns; /* clock: when to look at the boards; UINT64_MAX: no process is attached */
	u32 silent; /* looks in a row that found nothing new */
} OWNED_BY(the daemon);

/* The board of one process. */
struct traffic_source {
	const struct board *board; /* NULL: of another build, or there was no room for it */
	struct path_traffic seen[NODE_DEVICES]; /* the greatest sums so far, which are shown */
} OWNED_BY(the daemon);

/* Reads what the node before has left. Before the devices. */
void traffic_init(struct daemon *d);
/* Writes counters/ of a device that is to be shown: 0, unless the node before had it. 0 or a
 * negative errno. */
int traffic_begin_device(struct daemon *d, u32 index, const struct node_config *c);
/* Maps the board of a process that attaches. What it has counted so far is shown already. */
void traffic_watch(struct proc *p);
/* The process leaves this node: looks at its board once more, for the next traffic_run. */
void traffic_collect(struct proc *p);
/* Shows what processes have counted, if it is due. */
void traffic_run(struct daemon *d, u64 now_ns);

#endif
