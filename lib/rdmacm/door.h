/* door.h: what the files of librdmacm share: the id behind the public one, errors.
 *
 * The door keeps what librdmacm's callers see in struct rdma_cm_id, and takes the application's
 * queue pairs through their states; all else is the RDMA CM's (cm/rdma/ucma.h). Inside the stack
 * errors are negative errno; here they become -1 and errno. */
#ifndef RDMACM_DOOR_H
#define RDMACM_DOOR_H

#include <errno.h>
#include <rdma/rdma_cma.h>

#include "base/list.h"
#include "base/lock.h"
#include "cm/rdma/ucma.h"

/* What only headers of newer releases name. */
enum {
	DOOR_EVENT_ADDRINFO_RESOLVED = 16, /* enum rdma_cm_event_type */
	DOOR_EVENT_ADDRINFO_ERROR,
	DOOR_EVENT_USER,
	DOOR_EVENT_INTERNAL,
	DOOR_RAI_SA = 0x10, /* struct rdma_addrinfo.ai_flags */
	DOOR_RAI_DNS = 0x20,
};

/* A device that this library has opened; it stays open as long as the library. */
struct door_device {
	struct list_head node OWNED_BY(door_devices.lock);
	struct ibv_context *verbs FIXED;
	u32 number OWNED_BY(door_devices.lock); /* the RDMA CM's; 0: not known yet */
	struct ibv_pd *pd OWNED_BY(door_devices.lock); /* for who brings none; made on demand */
	struct ibv_xrcd *xrcd OWNED_BY(door_devices.lock); /* as `pd` */
	u8 max_initiator_depth FIXED;
	u8 max_responder_resources FIXED;
};

struct door_channel {
	struct rdma_event_channel channel FIXED; /* first */
	struct ucma_channel *ucma FIXED; /* until it is destroyed: NULL then */
	u32 users ATOMIC_ONLY;		       /* threads that wait for an event */
	struct ucma_channel *ended ATOMIC_ONLY; /* destroyed, but for those that wait */
	bool one_id FIXED; /* it is a synchronous id's own */
};

/* Where threads that take events and others meet: the id's queue pair, which is not destroyed while
 * a thread has the lock, the groups that it is attached to, and what was resolved for it. */
struct door_shared {
	struct lock qp_lock;
	struct list_head groups GUARDED_BY(qp_lock); /* struct door_mcast, oldest first */
	/* the last answer to rdma_resolve_addrinfo; NULL: none */
	struct rdma_addrinfo *info GUARDED_BY(qp_lock);
};

/* One thread at a time changes an id; the application sees to that, as it must with Debian's. */
struct door_id {
	struct rdma_cm_id id; /* first */
	struct ucma_id *ucma;
	struct door_device *device; /* NULL: not bound to one */
	struct ibv_sa_path_rec paths[UCMA_PATHS];
	bool sync;	   /* the channel is the id's own: calls wait for their event */
	bool failed;	   /* a response that could not be answered: what follows is not told */
	bool own_queues;   /* CQs and their channels were made by rdma_create_qp */
	u8 initiator_depth, responder_resources;
	struct ibv_qp_init_attr *init; /* rdma_create_ep: for the ids of requests */
	void *connect_data;	       /* rdma_create_ep: goes before the private data */
	u8 connect_len;
	struct door_shared shared;
} OWNED_BY(the application);

/* What an event that the application holds is made of. */
struct door_event {
	struct rdma_cm_event event; /* first */
	struct ucma_id *owner;	    /* who waits for its acknowledgement */
	struct ucma_mcast *mcast;   /* likewise; NULL: it is about no group */
	u8 data[UCMA_PRIVATE_DATA];
} OWNED_BY(the application);

static inline struct door_id *door_id(struct rdma_cm_id *id)
{
	return (struct door_id *)id;
}

static inline struct door_channel *door_channel(struct rdma_event_channel *channel)
{
	return (struct door_channel *)channel;
}

/* For calls that return -1 and set errno; 0 stays 0. `error` is negative. */
static inline int door_result(int error)
{
	if (error >= 0)
		return 0;
	errno = -error;
	return -1;
}

/* ---- addrinfo.c ---- */
/* The id comes to its end. */
void addrinfo_free(struct door_id *id);

/* ---- device.c ---- */
/* The opened device of a name and the RDMA CM's number, which tells it from one of the same name
 * that has gone. 0 or a negative errno. */
int device_open(const char *name, u32 number, struct door_device **out);
/* The device's own domain. NULL: errno says why. */
struct ibv_pd *device_pd(struct door_device *d);
/* Its XRC domain, for objects whose maker names none: opened at the first call, for the life of the
 * library. NULL: errno says why. */
struct ibv_xrcd *device_xrcd(struct door_device *d);

/* ---- channel.c ---- */
/* The channel of a synchronous id: its requests get channels of their own. NULL: errno says why. */
struct rdma_event_channel *channel_of_one_id(void);

/* ---- id.c ---- */
/* An id without one of the CM; `channel` NULL: a synchronous one with a channel of its own. NULL:
 * errno says why. */
struct door_id *id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		       enum ibv_qp_type qp_type);
/* As rdma_create_id, for queue pairs of a type. */
int id_create(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
	      enum rdma_port_space ps, enum ibv_qp_type qp_type);
/* Takes the lock for a call that changes the id; lock_release() gives it back. Of a parent's id it
 * is made anew, since a thread of the parent that took events may have held it at the fork. */
void id_lock(struct door_id *id) ACQUIRE(id->shared.qp_lock);
/* Frees what id_new made. */
void id_free(struct door_id *id);
/* Copies what the CM knows of the id to the public fields. 0 or a negative errno. */
int id_query(struct door_id *id);
/* Ends a call that has posted an event, or failed with `err`. If `sync` waits for the event, and
 * says its result as -1 and errno. `sync` is id->sync from before the call: of any other id the
 * thread that takes the event may have destroyed it meanwhile. */
int id_complete(struct door_id *id, bool sync, int err);

/* ---- connect.c ---- */
/* As ucma_answer_briefly, before rdma_accept. */
bool connect_answer_briefly(struct rdma_cm_id *id);

/* ---- mcast.c ---- */
struct door_mcast;
/* A new id has joined none. */
void mcast_init(struct door_id *id);
/* What the application gave when it joined. */
void *mcast_context(const struct door_mcast *m);
/* The id has joined a group at `ah`: attaches the id's queue pair. 0 or a negative errno. */
int mcast_joined(struct door_id *id, struct door_mcast *m, const struct ibv_ah_attr *ah);
/* The queue pair comes to its end. */
void mcast_detach_all(struct door_id *id) REQUIRES(id->shared.qp_lock);
/* The RDMA CM's id has come to its end, and its memberships with it. */
void mcast_free_all(struct door_id *id);

/* ---- qp.c: 0, 1: the id has no queue pair, or a negative errno ---- */
int qp_to_rts(struct door_id *id, u8 responder_resources, u8 initiator_depth);
int qp_to_err(struct door_id *id);

#endif
