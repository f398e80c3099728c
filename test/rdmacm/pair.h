/* pair.h: what the tests of stream rsockets share: two ends in one process. */
#ifndef TEST_RDMACM_PAIR_H
#define TEST_RDMACM_PAIR_H

#include <sys/socket.h>

#include "cm.h"

enum { WAIT_MS = 20000 };

struct pair {
	int listener, client, server;
	struct sockaddr_storage addr; /* of the listener */
};

/* A listener that is bound to any port of `ip`, and does not listen yet. */
void listen_at(struct pair *p, const char *ip);
/* Connects p->client, which raccept answers: rconnect waits for that. */
void connect_client(struct pair *p);
/* The same with a new client. */
void connect_to(struct pair *p);
void make_pair_at(struct pair *p, const char *ip);
/* At the loopback address. */
void make_pair(struct pair *p);
void end_pair(struct pair *p);

/* What rpoll says of one rsocket. */
short ready(int fd, short events, int timeout_ms);
/* SO_ERROR. */
int error_of(int fd);

#endif
