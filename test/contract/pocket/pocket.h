/* pocket.h: inside the pocket adapter, a third party's driver: it knows the installed headers,
 * libc and threads, and nothing else of anyverbs. Queue pairs of one device reach each other; a
 * post moves the data at once.
 *
 *  device.c  what it is, its ports and address handles
 *      cq.c  completion queues and the threads of their vectors
 *  memory.c  regions and fast memory regions
 *      qp.c  queue pairs and shared receive queues
 *    move.c  what a request does
 *
 * Locks: device lock, then a CQ's, then a vector's. None is held across a handler or a call that
 * may sleep.
 */
#ifndef TEST_CONTRACT_POCKET_H
#define TEST_CONTRACT_POCKET_H

#include <errno.h>
#include <pthread.h>
#include <rdma/ib_extended.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	POCKET_VECTORS = 2,
	POCKET_QPS = 4096,
	POCKET_KEYS = 4096,
	POCKET_SGES = 4,
	POCKET_INLINE = 64,
	POCKET_GROUPS = 4,
	POCKET_MAX_WR = 16384,
	POCKET_MAX_CQE = 65536,
	POCKET_MESSAGE = 1 << 20,
	POCKET_MAPS = 255,
	POCKET_GRH = 40,
};

struct pocket_cq;

/* One thread that runs the handlers of its CQs. */
struct pocket_vector {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	struct pocket_cq *first, *last; /* whose handler is to run */
	struct pocket_cq *running;
	bool stop;
};

struct pocket_region {
	u32 key;
	struct ib_pd *pd;
	int access;
	u64 iova, length;
	struct ib_phys_buf *pieces; /* NULL: the whole address space */
	int count;
	bool valid;
};

struct pocket_device {
	struct ib_device ib; /* first */
	union ib_gid gid;
	bool eager;
	struct pocket_vector vectors[POCKET_VECTORS];

	pthread_mutex_t lock; /* guards what follows, queue pairs, SRQs, regions and AHs */
	struct pocket_qp *qps[POCKET_QPS];
	struct pocket_region *keys[POCKET_KEYS];
	u32 last_tag;
	u8 bounce[POCKET_MESSAGE];
};

struct pocket_entry {
	struct ib_wc wc;
	u64 time; /* pocket_clock */
};

struct pocket_cq {
	struct ib_cq ib; /* first */
	struct pocket_vector *vector;
	struct pocket_cq *next; /* vector's lock */
	bool queued;		/* vector's lock */

	pthread_mutex_t lock; /* guards what follows */
	struct pocket_entry *ring;
	bool timed; /* after creation, never again */
	u32 size, head, tail; /* free running */
	u32 wakes_end;	      /* behind the last completion that a solicited arm wants */
	u32 armed, ncomp;
	bool overflowed;
};

struct pocket_recv {
	u64 wr_id;
	struct ib_sge sge[POCKET_SGES];
	int num_sge;
};

struct pocket_rq {
	struct pocket_recv *ring;
	u32 size, head, tail;
	int max_sge;
};

struct pocket_srq {
	struct ib_srq ib; /* first */
	struct pocket_rq rq;
	u32 limit;
};

struct pocket_send {
	struct ib_send_wr wr;
	struct ib_sge sge[POCKET_SGES];
	u8 inlined[POCKET_INLINE];
	u32 inline_length;
};

struct pocket_qp {
	struct ib_qp ib; /* first */
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;
	struct pocket_send *sq;
	u32 sq_size, sq_head, sq_tail;
	struct pocket_rq rq; /* unless there is an SRQ */
	struct pocket_srq *srq;
	union ib_gid groups[POCKET_GROUPS];
	int group_count;
	bool established;
};

struct pocket_ah {
	struct ib_ah ib; /* first */
	struct ib_ah_attr attr;
};

struct pocket_mr {
	struct ib_mr ib; /* first */
	struct pocket_region region;
};

struct pocket_fmr {
	struct ib_fmr ib; /* first */
	struct ib_fmr_attr attr;
	struct pocket_region region;
	int maps;
};

static inline struct pocket_device *pocket_of(struct ib_device *ib)
{
	return (struct pocket_device *)ib;
}

/* device.c */
bool pocket_way_is_ok(const struct ib_ah_attr *way);
void pocket_event(struct ib_device *ib, enum ib_event_type type, void *element);

/* cq.c */
extern const struct ib_device_ops pocket_ops;
void pocket_cq_methods(struct ib_device *ib);
int pocket_vectors_start(struct pocket_device *d);
void pocket_vectors_stop(struct pocket_device *d);
void pocket_push(struct ib_cq *cq, const struct ib_wc *wc, bool solicited);
void pocket_forget(struct ib_cq *cq, const struct ib_qp *qp);

/* memory.c: with the device's lock */
void pocket_memory_methods(struct ib_device *ib);
/* Copies between the region's bytes from `va` on and `bytes`. False: it may not. */
bool pocket_copy(struct pocket_device *d, struct ib_pd *pd, u32 key, int access, u64 va,
		 void *bytes, u32 length, bool into);
/* Address of 8 aligned bytes for an atomic, or NULL. */
u64 *pocket_word(struct pocket_device *d, struct ib_pd *pd, u32 key, u64 va);
bool pocket_invalidate(struct pocket_device *d, struct ib_pd *pd, u32 key);

/* qp.c: with the device's lock */
void pocket_qp_methods(struct ib_device *ib);
void pocket_qp_fail(struct pocket_qp *qp);
/* The next receive, taken out; false: none. */
bool pocket_take_recv(struct pocket_qp *qp, struct pocket_recv *recv);

/* move.c: with the device's lock. Does what waits at the head of the send queue, as far as it
 * goes. */
void pocket_run(struct pocket_device *d, struct pocket_qp *qp);

#endif
