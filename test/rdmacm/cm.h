/* cm.h: what the tests of librdmacm share: a channel for each test, addresses, events. */
#ifndef TEST_RDMACM_CM_H
#define TEST_RDMACM_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <rdma/rdma_cma.h>

enum { EVENT_MS = 10000 };

/* Of the test that runs: made by begin, ended by end. */
extern struct rdma_event_channel *channel;
int begin(void **state);
int end(void **state);

/* The loopback address with a port, until the next call. */
struct sockaddr *local(int port);
/* The last IPv4 address of a device with a port, until the next call. */
struct sockaddr *address_of(const char *device, int port);
/* The next event, which must be of this type; acknowledged by the caller. */
struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* The next event of `channel` is of this type, the id's, and says no error. */
void expect(enum rdma_cm_event_type type, struct rdma_cm_id *id);
/* The result of a call is -1, and errno this. */
void fails(int result, int error);

/* ---- the two ends of a connection, of this process ---- */
struct ends {
	struct rdma_cm_id *listener, *client, *server;
};

/* A listener at the loopback address, and nothing else. */
void make_listener(struct ends *e, enum rdma_port_space ps);
/* Has the id know the way to the port of the loopback address. */
void resolve(struct rdma_cm_id *id, int port);
/* A client that knows the way to the listener. */
void make_client(struct ends *e, enum rdma_port_space ps);
/* A queue pair with CQs of its own. */
void make_qp(struct rdma_cm_id *id);
/* The id and its queue pair; NULL: nothing. */
void destroy(struct rdma_cm_id *id);
void destroy_all(struct ends *e);

#endif
