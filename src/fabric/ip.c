/* ip.c: the IP addresses that hosts of a fabric have without an IP interface.
 *
 * The n-th port of all CAs, in the order of the topology, has 127.64.0.0 + n. A loopback address is
 * this machine's in each network namespace, so that a program's TCP connection to a host's address
 * works beside its RDMA connection, without an interface, an address to configure or a privilege.
 * In:    a map    Out: addresses, ports
 * Runs:  readers in any process, the owner    Locks: none
 */
#include "fabric/layout.h"

static u32 fabric_ip_ports(const struct fabric_node_rec *n)
{
	return fabric_load(n->type) == FABRIC_CA ? fabric_load(n->ports) : 0;
}

u32 fabric_ip_of(const struct fabric_view *v, u32 port)
{
	u32 before = 0;

	for (u32 i = 0; i < v->nodes; i++) {
		u32 ports = fabric_ip_ports(&v->node[i]);
		u32 first = fabric_load(v->node[i].first_port);

		/* a CA has no port 0 */
		if (port > first && port - first <= ports)
			return before + port - first < FABRIC_IP_COUNT
				       ? FABRIC_IP_NET + before + port - first
				       : 0;
		before += ports;
	}
	return 0;
}

u32 fabric_ip_port(const struct fabric_view *v, u32 ip)
{
	u32 left = ip - FABRIC_IP_NET;

	if (!fabric_ip_is_host(ip) || left == 0)
		return FABRIC_NONE;
	for (u32 i = 0; i < v->nodes; i++) {
		u32 ports = fabric_ip_ports(&v->node[i]);

		if (left <= ports)
			return fabric_load(v->node[i].first_port) + left;
		left -= ports;
	}
	return FABRIC_NONE;
}
