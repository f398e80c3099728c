/* bed.h: a fabric in memory for tests: a topology made by hand, a clock, and what was delivered.
 */
#ifndef FABRIC_BED_H
#define FABRIC_BED_H

#include "fabric/fabric.h"

enum { BED_MADS = 512 };

struct bed {
	struct topo topo;
	struct fabric *f;
	const struct fabric_view *v;
	int map_fd, counters_fd;
	u64 now_ns;
	u32 delivered; /* MADs in all; the latest ones are in `mad` */
	struct {
		u32 port;
		struct fabric_mad m;
	} mad[BED_MADS];
	u32 changes;
	u32 changed_port, changed_what;					      /* the latest one */
	void (*deliver)(struct bed *b, u32 port, const struct fabric_mad *m); /* or NULL */
	void (*change)(struct bed *b, u32 port);			      /* or NULL */
} OWNED_BY(the test);

/* ---- topologies: begin, add nodes and cables, then bed_up
 * -------------------------------------- */

void bed_begin(struct bed *b);
u32 bed_add(struct bed *b, enum fabric_node_type type, u8 ports, const char *desc);
void bed_connect(struct bed *b, u32 node_a, u8 port_a, u32 node_b, u8 port_b);
void bed_up(struct bed *b);
/* Ends the owner, as kill does, and begins a new one on the same files. */
void bed_again(struct bed *b);
void bed_end(struct bed *b);

/* Hosts "h1 ib0", ... on one switch, node 0; host i is node i, at the switch's port i. */
void bed_star(struct bed *b, u32 hosts);

u32 bed_port(const struct bed *b, u32 node, u8 number);
/* The latest MAD; the test fails if there is none. */
const struct fabric_mad *bed_last(const struct bed *b, u32 port);

#endif
