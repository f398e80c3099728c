/* host.h: the host's interfaces and addresses, as the kernel tells them over rtnetlink. */
#ifndef NODE_DAEMON_HOST_H
#define NODE_DAEMON_HOST_H

#include "base/compiler.h"

enum { HOST_LINKS = 256, HOST_ADDRESSES = 512 };

struct host_link {
	u32 ifindex;
	u32 mtu; /* bytes of an IP packet */
	char name[16];
	u8 mac[6]; /* zeroes where it has none */
	bool loopback;
	bool up;      /* by its administrator */
	bool running; /* up, and the other end is there, as far as it has one */
	bool bridge;  /* has a link only while something is plugged into it */
};

struct host_address {
	u8 gid[16]; /* IPv4 as ::ffff:a.b.c.d */
	u32 ifindex;
};

struct host {
	u32 link_count, address_count;
	struct host_link links[HOST_LINKS];
	struct host_address addresses[HOST_ADDRESSES]; /* those that may be used already */
};

/* 0 or a negative errno; what was read until then is in *h. */
int host_read(struct host *h);
const struct host_link *host_link_of(const struct host *h, u32 ifindex);
const struct host_address *host_address_of(const struct host *h, const u8 gid[16]);
/* Take what one rtnetlink message says: RTM_NEWLINK, RTM_NEWADDR. What is malformed or of no use
 * is passed over. */
struct nlmsghdr;
void host_take(struct host *h, const struct nlmsghdr *m);

#endif
