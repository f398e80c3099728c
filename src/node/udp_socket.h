/* udp_socket.h: UDP sockets as RoCEv2 needs them. The node opens those of its addresses, a process
 * those of its multicast groups. */
#ifndef NODE_UDP_SOCKET_H
#define NODE_UDP_SOCKET_H

#include <sys/socket.h>

#include "node/node.h"

bool node_udp_gid_is_v4(const u8 gid[16]);
void node_udp_gid_from_v4(u8 gid[16], u32 address_be);
/* Parses an address, IPv4 or IPv6, that a host may have; false: it is none, and gid is
 * unchanged. */
bool node_udp_gid_parse(const char *text, u8 gid[16]);
/* Returns the interface that is part of the address: that of a link-local one, else 0. */
u32 node_udp_scope(const u8 gid[16], u32 ifindex);
/* Makes the GID's address with port 4791, and the interface for a link-local one; returns its
 * length. */
socklen_t node_udp_address(const u8 gid[16], u32 ifindex, struct sockaddr_storage *out);
/* A socket of the address' family with the options that struct node_socket names, not bound: the
 * descriptor or a negative errno. */
int node_udp_socket_open(const u8 gid[16]);
/* 0 or a negative errno: -EADDRINUSE, -EADDRNOTAVAIL. */
int node_udp_socket_bind(int fd, const u8 gid[16], u32 ifindex);
/* Takes a datagram without waiting: its length, or -EAGAIN. *from gets the sender's address and
 * port, and traffic class and hop limit as they came. */
int node_udp_socket_read(int fd, void *data, size_t capacity, struct node_mad *from);
/* Sends m->payload from a bound socket to m->dgid, without waiting, with m's traffic class and hop
 * limit (0: the kernel's). `ifindex`: the interface of link-local addresses. 0 or a negative
 * errno. */
int node_udp_socket_send(int fd, const struct node_mad *m, u32 ifindex);
/* Discards waiting datagrams; returns how many, at most `max`. */
u32 node_udp_socket_drain(int fd, u32 max);
/* Datagrams lost since the socket was opened, because its buffer was full (or their checksum
 * wrong). */
u32 node_udp_socket_lost(int fd);

#endif
