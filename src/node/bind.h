/* bind.h: port numbers of the RDMA CM, granted once among all processes of a node.
 *
 * A port is taken by a byte lock on the slots file, through the description that the node has made
 * for this process. Each (space, port, address) has a byte, and an address that stands for all has
 * the range of all bytes of its port: so the kernel's own rule, that write locks meet nobody and
 * read locks meet read locks, is the rule of sockets. The node is not asked. The locks last as long
 * as the process, whatever becomes of the node, and no successor can grant a port twice.
 */
#ifndef NODE_BIND_H
#define NODE_BIND_H

#include <sys/socket.h>

#include "base/list.h"

enum node_port_space { NODE_PORT_TCP, NODE_PORT_UDP, NODE_PORT_IB, NODE_PORT_IPOIB };

/* A port that this process has taken, embedded in whose it is. All zeroes: none. */
struct node_port {
	struct list_head node; /* of the process' ports */
	u64 first, last;       /* its bytes */
	u32 generation;	       /* of the process' table; 0: not taken */
	u16 port;	       /* host order */
	bool shared;
} OWNED_BY(bind_table.lock);

/* What a port is wanted for. */
struct node_port_want {
	enum node_port_space space;
	u16 port; /* host order; 0: any that is free, from 32768 on */
	/* AF_INET or AF_INET6, its port is not looked at; the wildcard stands for all addresses of
	 * its family, that of AF_INET6 for those of IPv4 too */
	const struct sockaddr *addr;
	bool v6only;
	bool shared; /* as SO_REUSEADDR: with others that say so too */
} OWNED_BY(the caller);

/* Takes a port for an address. *p is the caller's and stays where it is until node_port_give.
 * -EADDRINUSE: another owner's address overlaps; -EADDRNOTAVAIL: no port of those from 32768 on
 * is free for the address; -EAFNOSUPPORT: the address' family; -ENOLCK. May block shortly. */
int node_port_take(struct node_port *p, const struct node_port_want *want);
/* May this process bind a port of IP of this number (host order)? 0; -EACCES: it is below
 * net.ipv4.ip_unprivileged_port_start, and the process lacks CAP_NET_BIND_SERVICE; -EMFILE. */
int node_port_permit(u16 port);
/* A shared port becomes its owner's alone: for whoever listens. 0; -EADDRINUSE: it is shared now.
 */
int node_port_own(struct node_port *p);
/* Gives a port back; of one that is not taken nothing. */
void node_port_give(struct node_port *p);

/* ---- for domain.c: names that several processes hold at a time ---- */

/* Locks the byte of a name through the same description: F_RDLCK, F_WRLCK, F_UNLCK of fcntl(2); a
 * lock of another type before is changed in one step. Names lie below ports: `name` has 61 bits.
 * -EADDRINUSE: a lock of another process forbids it. Without a node's file 0: there is nobody else.
 * Two locks of this process never meet. */
int bind_name_lock(short type, u64 name);
/* Does another process hold the name? */
bool bind_name_is_held(u64 name);

/* ---- for the node's client ---- */

/* The description of the slots file through which ports are locked from now on, which stays the
 * caller's; -1: none, and ports are this process' own only. Those that are taken are taken there
 * again. */
void bind_use(int slots_fd);
/* The ports of this process are those of a host of a fabric from now on, which has its own; 0: of
 * none. Called before any port is taken. */
void bind_set_host(u16 host);

#endif
