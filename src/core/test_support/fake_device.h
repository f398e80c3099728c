/* fake_device.h: an adapter in memory for this room's tests. It moves no data: a post completes
 * at once, by itself.
 *
 * Every method counts its calls, checks that the midlayer marked the call (event_driver_depth),
 * and can be told to fail.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include <rdma/ib_verbs.h>

#include "base/list.h"
#include "base/lock.h"
#include "event/event.h"

enum { FAKE_GIDS = 4, FAKE_PKEYS = 3, FAKE_WCS = 64 };

struct fake_device {
	struct ib_device ib;
	union ib_gid gids[FAKE_GIDS];
	u16 pkeys[FAKE_PKEYS];
	u8 lmc, link_layer;
	u16 lid;
	enum ib_port_state port_state;
	int max_map_per_fmr;
	int fail;          /* errno that the next object calls answer; 0: none */
	int objects;       /* alive now; atomic */
	int calls;         /* of any method; atomic */
	int unmarked;      /* calls outside event_driver_depth; atomic */
	int fmr_unmaps;    /* calls of unmap_fmr; atomic */
	struct ib_send_wr last_send; /* as the driver saw it */
	struct ib_recv_wr last_recv;
	struct ib_sge last_sge;
	struct ib_phys_buf last_buffer;
	void (*on_destroy_qp)(
		struct ib_qp *qp); /* what a driver does before the QP goes; NULL: nothing */
	void (*on_modify_qp)(struct ib_qp *qp);	 /* the same before a modification */
	void (*on_destroy_cq)(struct ib_cq *cq); /* the same for a CQ */
} OWNED_BY(the test);

struct fake_cq {
	struct ib_cq ib GUARDS_ITSELF;
	struct lock lock;
	struct ib_wc wcs[FAKE_WCS] GUARDED_BY(lock);
	int head GUARDED_BY(lock), count GUARDED_BY(lock);
	int armed GUARDED_BY(lock); /* enum ib_cq_notify_flags */
	struct vector_item item GUARDS_ITSELF;
};

struct fake_qp {
	struct ib_qp ib;
	enum ib_qp_state state;
} OWNED_BY(the test);

struct fake_ah {
	struct ib_ah ib;
	struct ib_ah_attr attr; /* as the driver saw it */
} OWNED_BY(the test);

struct fake_fmr {
	struct ib_fmr ib;
	int maps; /* since the last unmap */
} OWNED_BY(the test);

/* `name` may hold a %d. Not registered yet. */
struct fake_device *fake_create(const char *name);
/* After ib_unregister_device. Fails the test if objects are left. */
void fake_destroy(struct fake_device *fake);
/* Adds a completion, and has the handler run if it was armed. */
void fake_complete(struct ib_cq *cq, const struct ib_wc *wc);
/* Gives port 1 another table of P_Keys, and waits until the cache has it. */
void fake_set_pkeys(struct fake_device *fake, const u16 pkeys[FAKE_PKEYS]);
/* Waits up to 5 s for *counter (atomic) to reach `value`; false if it does not. */
bool fake_await(const int *counter, int value);

static inline struct fake_device *fake_of(struct ib_device *device)
{
	return container_of(device, struct fake_device, ib);
}

static inline int fake_count(const int *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static inline void fake_bump(int *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELEASE);
}

#endif
