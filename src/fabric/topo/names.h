/* names.h: the nodes of a topology by their ids: an open-addressed hash. */
#ifndef FABRIC_TOPO_NAMES_H
#define FABRIC_TOPO_NAMES_H

#include "fabric/topo/topo.h"

/* Begins as zeros. */
struct names {
	u32 *place; /* indices of nodes, or TOPO_NONE */
	u32 mask;   /* places - 1 */
	u32 count;
} OWNED_BY(the caller);

/* The nodes are added in the order of their indices. -EEXIST: another one has this id. */
int names_add(struct names *n, const struct topo *t, u32 node);
u32 names_find(const struct names *n, const struct topo *t, const char *id);
void names_free(struct names *n);

#endif
