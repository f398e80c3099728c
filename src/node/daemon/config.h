/* config.h: what the node's adapter looks like: its GUID and addresses. */
#ifndef NODE_DAEMON_CONFIG_H
#define NODE_DAEMON_CONFIG_H

#include "node/daemon/host.h"
#include "node/node.h"

/* What ANYVERBS_ADDR says. */
struct config_told {
	bool given;
	u32 count;
	u8 gid[NODE_GIDS][16];
};

/* Where a configuration comes from. */
struct config_source {
	const struct host *host;
	const char *node;
	const char *device; /* its name */
	u32 index;          /* of the device */
	u64 id;
	const struct config_told *told;
	bool first; /* the host's addresses are this device's */
	/* Whether an address may be this node's; NULL: every one. */
	bool (*mine)(void *arg, const u8 gid[16], u32 ifindex);
	void *arg;
};

/* The interfaces whose links are the port's. */
struct config_links {
	u32 count;
	u32 ifindex[HOST_LINKS];
};

/* Addresses with commas between, or "own": none of the host's. NULL or empty: not given. What is no
 * address is logged. */
void config_parse_told(const char *text, struct config_told *told);
/* Fills everything but `sysfs`. The same host, user, node, namespace and device always give the
 * same GUID. Only roce0 of the first node of a namespace shows the host's addresses unasked. */
void config_fill(struct node_config *c, const struct config_source *s);
/* The largest MTU of InfiniBand that passes through an interface of this MTU; 256 at least. */
u32 config_mtu(const u8 gid[16], u32 ip_mtu);
/* Whether the port has a link: any of its interfaces has one, or it has none that could. *links
 * carries over what was counted last time, at first nothing. */
bool config_link(struct config_links *links, const struct config_source *s);
/* Brings MTU and GIDs of `c` up to those of `fresh`: what is in both keeps its index, so that
 * connections that use it go on; GIDs 0 and 1 are
 * never empty. Returns whether anything changed. */
bool config_merge(struct node_config *c, const struct node_config *fresh);
/* The GUID of a device of a node: an EUI-64, locally administered, never 0. */
u64 config_guid(const char *node, const char *device);
/* Deals the addresses out to `count` devices in turns: the first one to the first device, and so
 * on. An address that comes twice is dealt once. */
void config_deal(const struct config_told *all, u32 count, struct config_told told[NODE_DEVICES]);

#endif
