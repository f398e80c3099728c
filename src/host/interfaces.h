/* interfaces.h: the host's interfaces and addresses, read from the kernel over rtnetlink. */
#ifndef HOST_INTERFACES_H
#define HOST_INTERFACES_H

#include "base/compiler.h"

enum { HOST_INTERFACES = 256, HOST_ADDRESSES = 512 };

struct host_interface {
	u32 ifindex;
	u32 mtu; /* bytes of an IP packet */
	char name[16];
	u8 mac[6]; /* zeroes: none */
	bool loopback;
	bool up;      /* set up by the administrator */
	bool running; /* up, and connected */
	bool bridge;  /* has a link only while interfaces are attached to it */
} OWNED_BY(the daemon);

struct host_address {
	u8 gid[16]; /* IPv4 as ::ffff:a.b.c.d */
	u32 ifindex;
} OWNED_BY(the daemon);

struct host {
	u32 link_count, address_count;
	struct host_interface links[HOST_INTERFACES];
	struct host_address addresses[HOST_ADDRESSES]; /* the usable ones */
} OWNED_BY(the daemon);

/* 0 or a negative errno; *h holds what was read until then. */
int host_read(struct host *h);
const struct host_interface *host_interface_of(const struct host *h, u32 ifindex);
const struct host_address *host_address_of(const struct host *h, const u8 gid[16]);
/* Parse one rtnetlink message: RTM_NEWLINK, RTM_NEWADDR. Malformed and useless messages are
 * skipped. */
struct nlmsghdr;
void host_take(struct host *h, const struct nlmsghdr *m);

#endif
