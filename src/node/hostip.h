/* hostip.h: the IP addresses of the hosts of a fabric (fabric/fabric.h), for a process that has
 * entered one. Addresses are GIDs: IPv4 as ::ffff:a.b.c.d.
 */
#ifndef NODE_HOSTIP_H
#define NODE_HOSTIP_H

#include "base/compiler.h"

/* The port that has an address. */
struct node_hostip {
	u8 gid[16]; /* of index 0 of the port, as it is now */
	bool own;   /* of this process' host */
} OWNED_BY(the caller);

/* -ENODEV: this process is on no host; -EADDRNOTAVAIL: the address is not one of a fabric's hosts;
 * -EHOSTUNREACH: no host of this fabric has it. Any thread; never blocks. */
int node_hostip_find(const u8 ip[16], struct node_hostip *out);
/* The address of the port of this process' host that has the GID. -ENODEV as above; -ENOENT. */
int node_hostip_of(const u8 gid[16], u8 ip[16]);
/* The index of the port of this process' host that has the GID. Errors as node_hostip_of. */
int node_hostip_port(const u8 gid[16], u32 *port);

#endif
