/* udp_user.h: a process with a UDP socket, and datagrams for it. */
#ifndef TEST_NODE_UDP_USER_H
#define TEST_NODE_UDP_USER_H

#include "harness.h"
#include "node/udp_socket.h"

enum { UDP_BTH = 12 };

/* A process with a slot and its socket on the node's first IPv4 address. */
struct user {
	struct harness h;
	u32 slot;
	struct node_socket socket;
};

void user_begin(struct user *u);
void user_end(struct user *u);
/* Sends a datagram of `size` bytes for this queue pair to the node's address. */
void node_udp_send(const struct user *u, u32 qpn, size_t size);
/* Whether exactly one datagram of `size` bytes comes to the socket. */
bool node_udp_came(int fd, size_t size);
bool node_udp_silent(int fd);
/* Whether each of these gets what is for its slot, and nobody what is for slot `nobody`. */
bool node_udp_steered(const struct user *users, int count, u32 nobody);

#endif
