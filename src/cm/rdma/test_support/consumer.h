/* consumer.h: a consumer of the RDMA CM for the tests of this room: what it was told, what it
 * answers, and ids of it in some state, on an adapter in memory. */
#ifndef CONSUMER_H
#define CONSUMER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cm/rdma/test_support/fake_cm.h"
#include "core/test_support/fake_device.h"

enum { SEEN = 64, PORT = 7471 };

extern struct fake_device *adapter;

/* What the consumer was told, and what it answers. */
struct consumer {
	int count; /* atomic */
	enum rdma_cm_event_type seen[SEEN];
	int status[SEEN];
	struct ib_ah_attr ah;		    /* of the latest event, if its id is of datagrams */
	struct rdma_cm_id *last;	    /* whose event came last */
	int answer;			    /* that the handler returns */
	int (*call)(struct rdma_cm_id *id); /* made inside the handler; NULL: none */
	int called;			    /* what it said */
} OWNED_BY(the test);
extern struct consumer consumer;

int consumer_handle(struct rdma_cm_id *id, struct rdma_cm_event *event);
int consumer_open(void **state);
/* The IB CM's id of a connection; NULL: none. */
struct ib_cm_id *consumer_ib(struct rdma_cm_id *id);
int consumer_ids(void);
/* Nothing is left of any id. */
int consumer_close(void **state);
struct rdma_cm_id *consumer_make(enum rdma_port_space ps);
/* As after resolving its address: bound to the adapter. */
void consumer_resolve(struct rdma_cm_id *id);
/* As after resolving all: with a path, too. */
void consumer_route(struct rdma_cm_id *id);
struct rdma_cm_id *consumer_connecting(enum rdma_port_space ps);
/* A connection that a side has left. */
struct rdma_cm_id *consumer_disconnected(void);
struct rdma_cm_id *consumer_listener(void);
/* The IB CM's id on the adapter of an id that listens. */
struct ib_cm_id *consumer_listener_ib(struct rdma_cm_id *id);

#endif
