/* rdmacm_bed.h: an id of librdmacm in each of its states, for the calls of children. */
#ifndef TEST_INHERIT_RDMACM_BED_H
#define TEST_INHERIT_RDMACM_BED_H

#include <rdma/rdma_cma.h>

#include "inherit.h"

enum {
	ID_IDLE,
	ID_BOUND,
	ID_RESOLVED,
	ID_ROUTED,
	ID_LISTENING,
	ID_CONNECTING, /* its request waits at ID_REQUESTED */
	ID_REQUESTED,
	ID_CLIENT, /* connected */
	ID_SERVER, /* to that one */
	ID_LEFT,   /* disconnected */
	ID_SHARED, /* with an SRQ */
	ID_DATAGRAM,
	ID_MEMBER, /* of a multicast group */
	ID_SYNC,   /* resolved */
	ID_SYNC_LISTENING,
	IDS,
};
extern const char *const cm_names[IDS];

struct cm_bed {
	struct rdma_event_channel *events; /* an event waits, and one is owed */
	struct rdma_event_channel *requests;
	struct rdma_cm_id *ids[IDS];
	struct rdma_cm_id *owing; /* of these events */
	struct rdma_cm_event *owed;
	struct rdma_addrinfo *info;
	struct sockaddr_in group; /* of ID_MEMBER, with its address handle */
	struct ibv_ah *ah;
};
extern struct cm_bed cm;

void cm_make(void);
/* Ends all, in the parent or in a child. */
void cm_end(void);
/* A message on the connection; now and then a new request to the listener, which rejects it. */
void cm_works(const char *after);
/* In the child: makes a channel and an id with a queue pair, and ends them. */
void cm_attach(void);
/* The test's address with this port, until the next call. */
struct sockaddr *cm_address(int port);

#endif
