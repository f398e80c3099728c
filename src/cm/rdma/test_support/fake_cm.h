/* fake_cm.h: an IB CM for the tests of this room: it sends nothing, remembers what it was asked
 * for, and a test hands the room any event it likes. Ports are granted always. */
#ifndef FAKE_CM_H
#define FAKE_CM_H

#include "cm/rdma/cma_priv.h"
#include "node/hostip.h"

/* Calls of the IB CM, in the order of fake_cm_names. */
enum fake_call {
	FAKE_LISTEN,
	FAKE_REQ,
	FAKE_REP,
	FAKE_RTU,
	FAKE_DREQ,
	FAKE_DREP,
	FAKE_REJ,
	FAKE_MRA,
	FAKE_SIDR_REQ,
	FAKE_SIDR_REP,
	FAKE_NOTIFY,
	FAKE_CALLS
};

struct fake_cm {
	int ids;	       /* alive now; atomic */
	int calls[FAKE_CALLS]; /* how often; atomic */
	int fail[FAKE_CALLS];  /* what the call answers: 0 or a negative errno */
	int fail_create;       /* the same of ib_create_cm_id */
	struct ib_cm_id *last; /* that was created */
	int data_len;	       /* of the last message */
	int misnamed;	       /* requests that did not come from where they said */
	u16 lid;	       /* that requests come from */
	u16 privileged;	       /* ports below take a right that nobody has */
	/* the fabric's hosts; NULL: none */
	int (*hostip)(const u8 ip[16], struct node_hostip *out);
	u8 data[256];
} OWNED_BY(the test);
extern struct fake_cm fake_cm;

/* Has the id's handler take an event, as the IB CM does: destroys `ib` if the handler wants it.
 * True: it is gone. */
bool fake_cm_event(struct ib_cm_id *ib, struct ib_cm_event *event);

#endif
