/* port.c: the calls by which packets leave, and the port of sockets that many destinations share:
 * those of port 4791 (sockets.c) and the lanes (lanes.c). Every call states where its packets go.
 *
 * A port (struct udp_port) is a socket as send.c sees it. Batches know a port's table and not its
 * kind; connected sockets have the other table (connected.c).
 *
 * In: packets, signed    Out: datagrams    Runs: any thread
 * Locks: the destination's tx_lock is held
 */
#include "path/udp/udp_priv.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* ---- one call ---- */

void udp_call_begin(struct udp_call *c, u8 *data, u32 bytes)
{
	c->iov = (struct iovec){ .iov_base = data, .iov_len = bytes };
	c->msg = (struct msghdr){ .msg_iov = &c->iov, .msg_iovlen = 1, .msg_control = c->control };
}

void udp_call_add(struct udp_call *c, int level, int type, const void *value, size_t size)
{
	struct cmsghdr *m = (struct cmsghdr *)(c->control + c->msg.msg_controllen);

	m->cmsg_level = level;
	m->cmsg_type = type;
	m->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(m), value, size);
	c->msg.msg_controllen += CMSG_SPACE(size);
}

int udp_call_many(int fd, const struct msghdr *like, struct iovec *iov, u32 n)
{
	struct mmsghdr many[UDP_CALL_MANY];
	long taken;

	for (u32 i = 0; i < n; i++) {
		many[i] = (struct mmsghdr){ .msg_hdr = *like };
		many[i].msg_hdr.msg_iov = &iov[i];
		many[i].msg_hdr.msg_iovlen = 1;
	}
	taken = syscall(SYS_sendmmsg, fd, many, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	return taken < 0 ? -errno : (int)taken;
}

/* ---- the fields that a shared socket must be told ---- */

/* A multicast packet leaves by the interface that has the source address. */
static void udp_port_add_interface(struct udp_call *c, const struct udp_dest *d, bool v4)
{
	struct in_pktinfo to4 = { .ipi_ifindex = (int)d->multicast_if };
	struct in6_pktinfo to6 = { .ipi6_ifindex = d->multicast_if };

	if (v4) {
		memcpy(&to4.ipi_spec_dst, d->key.local + 12, 4);
		udp_call_add(c, IPPROTO_IP, IP_PKTINFO, &to4, sizeof(to4));
	} else {
		memcpy(&to6.ipi6_addr, d->key.local, 16);
		udp_call_add(c, IPPROTO_IPV6, IPV6_PKTINFO, &to6, sizeof(to6));
	}
}

/* Adds the header fields that differ from the socket's. */
static void udp_port_add_fields(struct udp_call *c, const struct udp_dest *d,
			    const struct udp_socket *s)
{
	int tos = d->key.traffic_class, hops = d->key.hops;
	bool v4 = s->v4;

	if (tos != s->traffic_class)
		udp_call_add(c, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS, &tos,
			     sizeof(tos));
	if (d->multicast_if != 0)
		udp_port_add_interface(c, d, v4);
	if (hops != s->hops || d->multicast_if != 0)
		udp_call_add(c, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT, &hops,
			     sizeof(hops));
}

static void udp_port_fill(struct udp_call *c, const struct udp_port *p, const struct udp_dest *d,
		      u8 *data, u32 bytes) REQUIRES(d->tx_lock)
{
	udp_call_begin(c, data, bytes);
	c->msg.msg_name = (void *)(uintptr_t)&d->to;
	c->msg.msg_namelen = d->to_length;
	udp_port_add_fields(c, d, container_of(p, const struct udp_socket, port));
}

/* The kernel numbers the packets of one call from 0. */
static u16 udp_port_next_id(struct udp_port *p, u32 place)
{
	return (u16)place;
}

static int udp_port_send(struct udp_port *p, const struct udp_dest *d, u8 *data, u32 bytes,
		     u16 segment) REQUIRES(d->tx_lock)
{
	struct udp_call c;

	udp_port_fill(&c, p, d, data, bytes);
	if (segment != 0)
		udp_call_add(&c, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	if (c.msg.msg_controllen == 0)
		c.msg.msg_control = NULL;
	return syscall(SYS_sendmsg, p->fd, &c.msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int udp_port_send_many(struct udp_port *p, const struct udp_dest *d, struct iovec *iov,
			      u32 n) REQUIRES(d->tx_lock)
{
	struct udp_call c;

	udp_port_fill(&c, p, d, NULL, 0);
	if (c.msg.msg_controllen == 0)
		c.msg.msg_control = NULL;
	return udp_call_many(p->fd, &c.msg, iov, n);
}

const struct udp_port_ops udp_port_ops_shared = {
	.next_id = udp_port_next_id,
	.send = udp_port_send,
	.send_many = udp_port_send_many,
	.batch_left = connected_batch_left,
};
