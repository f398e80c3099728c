/* route.h: which way this host sends to an IP address, as its kernel says. */
#ifndef HOST_ROUTE_H
#define HOST_ROUTE_H

#include "base/compiler.h"

struct host_route {
	u8 source[16]; /* the preferred source address, as a GID; zeroes: the kernel names none */
	u8 next[16];   /* the gateway, or the destination itself where it is on the link */
	u32 ifindex;   /* of the interface that it leaves by */
	u8 hop_limit;  /* 0: the host's default */
	bool local;    /* the destination is this host's own */
} OWNED_BY(the caller);

/* Asks the kernel for the route to `to`; both addresses as GIDs (IPv4 mapped). `from`: of a source
 * that stands fixed; NULL: any. `ifindex`: of a link-local IPv6 address; 0: any. 0; -ENETUNREACH,
 * -EHOSTUNREACH or another errno of the kernel's; -EMFILE. Blocks as long as the kernel looks. */
int host_route_find(const u8 to[16], const u8 *from, u32 ifindex, struct host_route *out);

#endif
