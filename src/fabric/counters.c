/* counters.c: what ports have sent and received. Processes charge the ports of their packets'
 * way. In:    a counters' file, which other processes write    Out: numbers Runs:  any process
 * Locks: none: atomic additions, whose order does not matter
 */
#include "fabric/route.h"

#include <errno.h>

int fabric_counters_open(struct fabric_counters *c, void *map, size_t bytes,
			 const struct fabric_view *v)
{
	const struct fabric_counters_header *h = map;

	if (bytes < sizeof(*h) || h->magic != FABRIC_COUNTERS_MAGIC ||
	    h->identity != fabric_identity(v) || h->ports != v->ports ||
	    (bytes - sizeof(*h)) / sizeof(struct fabric_port_counters) < v->ports)
		return -EINVAL;
	c->port = (void *)((u8 *)map + sizeof(*h));
	c->ports = v->ports;
	return 0;
}

static void add(u64 *counter, u64 n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

bool fabric_charge_link(const struct fabric_counters *c, u32 out, u32 in, u64 packets, u64 bytes,
			bool mcast)
{
	if (out >= c->ports || in >= c->ports)
		return false;
	add(&c->port[out].xmit_bytes, bytes);
	add(&c->port[out].xmit_packets, packets);
	add(&c->port[in].rcv_bytes, bytes);
	add(&c->port[in].rcv_packets, packets);
	if (mcast) {
		add(&c->port[out].mcast_xmit_packets, packets);
		add(&c->port[in].mcast_rcv_packets, packets);
	}
	return true;
}

void fabric_charge(const struct fabric_counters *c, const struct fabric_path *p, u64 packets,
		   u64 bytes)
{
	for (u32 i = 0; i < MIN(p->hops, FABRIC_HOPS); i++)
		if (!fabric_charge_link(c, p->through[i].out, p->through[i].in, packets, bytes,
					false))
			return;
}

void fabric_charge_load(const struct fabric_counters *c, const struct fabric_path *p,
			const struct fabric_load *l)
{
	u64 messages = MAX(l->messages, (u64)1), mtu = MAX(l->mtu, 1u);
	u64 length = l->bytes / messages;
	u64 packets = messages * MAX((length + mtu - 1) / mtu, (u64)1);
	u64 bytes = l->bytes + messages * (-length & 3);

	if (l->messages == 0 && l->bytes == 0)
		return;
	packets = MAX(packets, (l->bytes + mtu - 1) / mtu);
	bytes += packets * l->headers;
	fabric_charge(c, p, packets, (bytes + 3) & ~3ull);
}

int fabric_counts_read(const struct fabric_counters *c, u32 port, struct fabric_counts *out)
{
	const struct fabric_port_counters *p;

	if (port >= c->ports)
		return -EINVAL;
	p = &c->port[port];
	*out = (struct fabric_counts){
		.xmit_bytes = fabric_load(p->xmit_bytes),
		.rcv_bytes = fabric_load(p->rcv_bytes),
		.xmit_packets = fabric_load(p->xmit_packets),
		.rcv_packets = fabric_load(p->rcv_packets),
		.mcast_xmit_packets = fabric_load(p->mcast_xmit_packets),
		.mcast_rcv_packets = fabric_load(p->mcast_rcv_packets),
	};
	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		out->errors[i] = fabric_load(p->errors[i]);
	return 0;
}
