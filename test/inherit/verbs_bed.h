/* verbs_bed.h: an object of every kind that libibverbs makes, for the calls of children. */
#ifndef TEST_INHERIT_VERBS_BED_H
#define TEST_INHERIT_VERBS_BED_H

#include <infiniband/verbs.h>

#include "inherit.h"

/* Of rdma-core's later releases. */
struct ibv_buf;
struct ibv_comp_cntr;

enum { BED_BYTES = 1 << 16, BED_ROOM = 4096, BED_DEPTH = 32, BED_STUCK = 3 };

enum bed_pair { BED_RC, BED_UC, BED_UD, BED_SHARED, BED_TAGS, BED_XRC, BED_STUCK_RC, BED_PAIRS };

/* What the pairs are called. */
extern const char *const bed_pairs[BED_PAIRS];

/* The parent's objects. Of each pair `a` sends to `b`. */
struct verbs_bed {
	struct ibv_device **devices;
	struct ibv_context *context;
	struct ibv_device_attr device;
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_mr *mr, *null_mr, *dm_mr, *imported_mr;
	struct ibv_mw *mw, *mw2;
	struct ibv_dm *dm;
	struct ibv_buf *buf;
	void *buf_memory;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *spare_cq, *raw_cq; /* spare: of `failed` alone */
	struct ibv_cq_ex *cq_ex;
	struct ibv_srq *srq, *tag_srq, *xrc_srq;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *a[BED_PAIRS], *b[BED_PAIRS], *fresh; /* fresh: in RESET */
	/* in ERR; failed_ex: two completions wait in cq_ex; LAST_WQE_REACHED of last[0] is owed */
	struct ibv_qp *failed, *failed_ex, *last[2];
	struct ibv_async_event owed;
	struct ibv_qp *raw;				    /* NULL: this user may have none */
	struct ibv_flow *flow;
	struct ibv_wq *wq;
	struct ibv_rwq_ind_table *table;
	struct ibv_counters *counters;
	struct ibv_comp_cntr *counter;
	struct ibv_ah *ah;
	struct ibv_ah_attr address;
	union ibv_gid gid, group;
	uint8_t gid_index;
	uint8_t *memory;
};
extern struct verbs_bed bed;

void bed_make(void);
/* Ends all, which must work. The parent's requests that wait complete first; in a child
 * (`inherited`) they do not. */
void bed_end(bool inherited);
/* Each pair carries a message, and the CQ raises an event. `after`: the call before. */
void bed_works(const char *after);
/* Makes a domain, a region, a CQ and a queue pair, and ends them. */
void bed_attach(void);
/* In the child: a pair of its own in the place of its parent's, over domains, CQ and address
 * handle of its parent. Carries a message. 0. */
int bed_own(enum bed_pair pair);

/* One request of the pair's sender; `flags`: IBV_SEND_*. */
int bed_send(enum bed_pair pair, enum ibv_wr_opcode op, int flags);
int bed_receive(struct ibv_qp *qp);
int bed_receive_shared(struct ibv_srq *srq);
struct ibv_sge bed_sge(void);

#endif
