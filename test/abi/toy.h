/* toy.h: an adapter that a test can see through: it keeps what it is given and completes at once.
 */
#ifndef TEST_ABI_TOY_H
#define TEST_ABI_TOY_H

#include <infiniband/verbs.h>

#include "core/uverbs.h"

enum { TOY_GIDS = 4, TOY_MAX_CQE = 64, TOY_MAX_INLINE = 64, TOY_MAX_WR = 32, TOY_MAX_SGE = 4 };

/* What the last call of each kind brought. One test at a time. */
struct toy_seen {
	struct ibv_send_wr *send; /* the pointer itself: the door must not copy */
	struct ibv_recv_wr *recv;
	struct ibv_recv_wr *srq_recv;
	struct ib_ah *send_ah; /* what a UD request's ibv_ah leads to */
	u32 chain;	       /* requests in the last list */
	u64 last_inline[8];    /* the first bytes of the last inline request */
	struct ib_qp_attr modify;
	int modify_mask;
	struct ib_ah_attr ah;
	u64 mr_start, mr_length, mr_iova;
	int mr_access;
	u8 group[16];
	int waits; /* calls of wait_fd */
	int fail;  /* the next call that can fail does, with this negative errno */
	struct ib_qp *qp;
	struct ib_cq *cq;
	struct ib_srq *srq;
};
extern struct toy_seen toy_seen;

/* Registers "toy0"; NULL on failure. */
struct ib_device *toy_create(void);
void toy_destroy(struct ib_device *device);
/* Puts one completion into a CQ and raises its event if it is armed. */
void toy_complete(struct ib_cq *cq, const struct ibv_wc *wc);

/* ---- what every test of the door starts with ------------------------------------------------- */

struct toy_door {
	struct ib_device *toy;
	struct ibv_device **list;
	struct ibv_device *device;
	struct ibv_context *context;
};

/* cmocka's setup and teardown: registers the toy, finds it through the door and opens it. */
int toy_door_open(void **state);
int toy_door_close(void **state);

#endif
