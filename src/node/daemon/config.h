/* config.h: what the node's adapter looks like: its GUID and addresses. */
#ifndef NODE_DAEMON_CONFIG_H
#define NODE_DAEMON_CONFIG_H

#include "node/node.h"

/* Fills everything but `sysfs`, from the host's interfaces and ANYVERBS_ADDR. The same host, user,
 * node and namespace always give the same GUID. Only the node "default" shows the host's
 * addresses. */
void config_fill(struct node_config *c, const char *node);
/* Brings the GIDs of `c` up to those of `fresh`: what is in both keeps its index, so that
 * connections that use it go on; GID 1 is never empty. Returns whether anything changed. */
bool config_merge(struct node_config *c, const struct node_config *fresh);
/* An EUI-64, locally administered, never 0. */
u64 config_guid(const char *node);

#endif
