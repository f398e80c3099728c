/* config.h: the configuration of a device: its GUID, addresses and MTU. */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include "host/interfaces.h"
#include "node/node.h"

/* The addresses that ANYVERBS_ADDR names. */
struct config_told {
	bool given;
	u32 count;
	u8 gid[NODE_GIDS][16];
} OWNED_BY(the daemon);

/* The inputs of a configuration. */
struct config_source {
	const struct host *host;
	const char *node;
	const char *device; /* its name */
	u32 index;	    /* of the device */
	u64 id;
	const struct config_told *told;
	bool first; /* this device shows the host's addresses */
	/* Tells whether an address may be this node's; NULL: each may. */
	bool (*mine)(void *arg, const u8 gid[16], u32 ifindex);
	void *arg;
} OWNED_BY(the daemon);

/* The interfaces whose links make the port's. */
struct config_links {
	u32 count;
	u32 ifindex[HOST_INTERFACES];
} OWNED_BY(the daemon);

/* Parses addresses with commas between, or "own": none of the host's. NULL or empty: not set. Logs
 * what is no address. */
void config_parse_told(const char *text, struct config_told *told);
/* Fills everything but `sysfs`. The same host, user, node, namespace and device always give the
 * same GUID. Only roce0 of the first node of a namespace shows the host's addresses unasked. */
void config_fill(struct node_config *c, const struct config_source *s);
/* Returns the largest InfiniBand MTU that passes through an interface of this MTU; 256 at least. */
u32 config_mtu(const u8 gid[16], u32 ip_mtu);
/* Tells whether the port has a link: one of its interfaces has one, or none can have one. *links
 * carries the last count over, initially zero. */
bool config_link(struct config_links *links, const struct config_source *s);
/* Updates MTU and GIDs of `c` from `fresh`. A GID in both keeps its index, so that its connections
 * continue; GIDs 0 and 1 are never empty. Returns whether `c` changed. */
bool config_merge(struct node_config *c, const struct node_config *fresh);
/* Returns the GUID of a device of a node: an EUI-64, locally administered, never 0. */
u64 config_guid(const char *node, const char *device);
/* Deals the addresses out to `count` devices in turn: the first address to the first device, and so
 * on. A repeated address counts once. */
void config_deal(const struct config_told *all, u32 count, struct config_told told[NODE_DEVICES]);

#endif
