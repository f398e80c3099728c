/* fabric.h: `anyverbs fabric`: what its parts share. */
#ifndef ANYVERBS_FABRIC_H
#define ANYVERBS_FABRIC_H

#include "command.h"
#include "fabric/fabric.h"

/* A fabric as it is mapped by the command. */
struct plan {
	struct proto_fabric_show show;
	struct fabric_view view;
	struct fabric_counters counters;
	void *map, *counters_map;
	size_t map_bytes, counters_bytes;
};

/* Asks the node and maps what it gives: 0 or a negative errno. */
int plan_open(struct plan *p, int fd);
void plan_close(struct plan *p);
/* The node with this description, first word of a description, GUID (0x...) or name S-GUID,
 * H-GUID; FABRIC_NONE: none, or several by their first word. */
u32 plan_find(const struct plan *p, const char *name);
/* "NODE:PORT", or "NODE" (*number is 0: all its ports). Returns the exit code after a message. */
int plan_find_port(const struct plan *p, const char *text, struct fabric_node_attr *node,
		   u32 *index, u32 *number);
bool plan_port(const struct plan *p, u32 port, struct fabric_port_attr *out);
/* In Gb/s, of all lanes. */
double plan_rate(const struct fabric_port_attr *a);
const char *plan_state(const struct fabric_port_attr *a);
/* The sum of a port's error counters. */
u64 plan_errors(const struct plan *p, u32 port);
const char *plan_error_name(u32 error);

/* ---- fabric_show.c ---- */

int show_text(const struct plan *p);
int show_json(const struct plan *p);
/* The graph in graphviz' language. */
int show_dot(const struct plan *p, FILE *out);
int show_hosts(const struct plan *p);

#endif
