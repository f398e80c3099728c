/* wr.c: the ibv_wr_* way to post: requests are built one call at a time, then posted as one list.
 * In: builders and setters between wr_start and wr_complete
 * Out: the driver's post_send
 * Runs: the application's threads
 * Locks: door_batch.lock from wr_start to wr_complete or wr_abort
 *
 * A batch is posted as a whole or not at all: requests are checked while they are built, and the
 * driver checks the rest before the post. The man page excludes other posts to the queue pair
 * meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "door.h"

/* The arrays grow together and are parallel: request i owns max_send_sge entries and
 * max_inline_data bytes. */
struct door_batch {
	struct lock lock;
	int (*check)(struct ib_qp *qp, const struct ibv_send_wr *wr) FIXED; /* the driver's */
	uint64_t allowed FIXED; /* IBV_QP_EX_WITH_* of the QP's creation */
	u32 count OWNED_BY(door_batch.lock);
	u32 capacity OWNED_BY(door_batch.lock);
	bool is_growing OWNED_BY(door_batch.lock);
	/* the first, as an errno value; 0: none */
	int error OWNED_BY(door_batch.lock);
	struct ibv_send_wr *wr OWNED_BY(door_batch.lock);
	struct ibv_sge *sge OWNED_BY(door_batch.lock);
	u8 *inline_data OWNED_BY(door_batch.lock);
};

enum { WR_FIRST_CAPACITY = 16 };

static struct door_qp *wr_qp(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct door_qp, ex);
}

static void wr_fail(struct door_batch *b, int error)
{
	if (!b->error)
		b->error = error;
}

/* Enlarges one parallel array; a width of 0 needs none. */
static bool wr_grow_array(void **array, u32 capacity, size_t width)
{
	void *bigger;

	if (!width)
		return true;
	bigger = realloc(*array, capacity * width);
	if (bigger)
		*array = bigger;
	return bigger;
}

static bool wr_grow(struct door_qp *qp)
{
	struct door_batch *b = qp->batch;
	u32 wanted = b->capacity ? b->capacity * 2 : WR_FIRST_CAPACITY;
	bool grown;

	wanted = MIN(wanted, qp->cap.max_send_wr);
	if (wanted <= b->capacity)
		return false;
	b->is_growing = true;
	grown = wr_grow_array((void **)&b->wr, wanted, sizeof(*b->wr)) &&
		wr_grow_array((void **)&b->sge, wanted, qp->cap.max_send_sge * sizeof(*b->sge)) &&
		wr_grow_array((void **)&b->inline_data, wanted, qp->cap.max_inline_data);
	b->is_growing = false;
	if (grown)
		b->capacity = wanted;
	return grown;
}

/* Appends a request; NULL (and the batch is in error) if the operation was not requested at
 * creation or the queue is full. */
static struct ibv_send_wr *wr_append(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint64_t flag)
{
	struct door_qp *qp = wr_qp(ex);
	struct door_batch *b = qp->batch;
	struct ibv_send_wr *wr;

	if (!(b->allowed & flag)) {
		wr_fail(b, EINVAL);
		return NULL;
	}
	if (b->error || (b->count == b->capacity && !wr_grow(qp))) {
		wr_fail(b, ENOMEM);
		return NULL;
	}
	wr = &b->wr[b->count++];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = ex->wr_id;
	wr->opcode = opcode;
	wr->send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE;
	return wr;
}

static struct ibv_send_wr *wr_last(struct door_batch *b)
{
	if (b->error || !b->count) {
		wr_fail(b, EINVAL);
		return NULL;
	}
	return &b->wr[b->count - 1];
}

/* ---- builders -------------------------------------------------------------------------------- */

static void wr_add_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint64_t flag,
			uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = wr_append(ex, opcode, flag);

	if (!wr)
		return;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	wr->imm_data = imm;
}

static void wr_add_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint64_t flag,
			  uint32_t rkey, uint64_t addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = wr_append(ex, opcode, flag);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_add_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
			   uint64_t swap)
{
	wr_add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, addr,
		      compare, swap);
}

static void wr_add_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	wr_add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey,
		      addr, add, 0);
}

static void wr_add_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_add_rdma(ex, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, addr, 0);
}

static void wr_add_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_add_rdma(ex, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, addr, 0);
}

static void wr_add_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	wr_add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, addr,
		    imm);
}

static void wr_add_send(struct ibv_qp_ex *ex)
{
	wr_append(ex, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

static void wr_add_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct ibv_send_wr *wr = wr_append(ex, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void wr_add_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct ibv_send_wr *wr = wr_append(ex, IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_add_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct ibv_send_wr *wr = wr_append(ex, IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_add_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
			   const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = wr_append(ex, IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

/* Builders that no QP here is created for; wr_complete returns the error. */
static void wr_refuse_tso(struct ibv_qp_ex *ex, void *header, uint16_t size, uint16_t segment)
{
	wr_fail(wr_qp(ex)->batch, EOPNOTSUPP);
}

/* ---- setters --------------------------------------------------------------------------------- */

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = wr_last(wr_qp(ex)->batch);

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	struct ibv_send_wr *wr = wr_last(wr_qp(ex)->batch);

	if (wr)
		wr->qp_type.xrc.remote_srqn = remote_srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct door_qp *qp = wr_qp(ex);
	struct door_batch *b = qp->batch;
	struct ibv_send_wr *wr = wr_last(b);

	if (!wr)
		return;
	if (count > qp->cap.max_send_sge) {
		wr_fail(b, EINVAL);
		return;
	}
	if (count)
		memcpy(&b->sge[(size_t)(b->count - 1) * qp->cap.max_send_sge], list,
		       count * sizeof(*list));
	wr->num_sge = (int)count;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
	struct door_qp *qp = wr_qp(ex);
	struct door_batch *b = qp->batch;
	struct ibv_send_wr *wr = wr_last(b);
	size_t room = qp->cap.max_inline_data, length = 0;

	if (!wr)
		return;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length > room - length || !qp->cap.max_send_sge) {
			wr_fail(b, EINVAL);
			return;
		}
		memcpy(b->inline_data + (b->count - 1) * room + length, list[i].addr,
		       list[i].length);
		length += list[i].length;
	}
	wr->send_flags |= IBV_SEND_INLINE;
	wr->num_sge = length ? 1 : 0;
	if (length)
		b->sge[(size_t)(b->count - 1) * qp->cap.max_send_sge].length = (uint32_t)length;
}

static void wr_set_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buffer = { .addr = addr, .length = length };

	wr_set_inline_list(ex, 1, &buffer);
}

/* The value travels inline, in the room that each request has. */
static void wr_add_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr,
				const void *value)
{
	wr_add_rdma(ex, IBV_WR_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE, rkey, addr, 0);
	wr_set_inline(ex, (void *)value, sizeof(uint64_t));
}

/* Placement type and selectivity level become the FETH. */
static void wr_add_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t length,
			 uint8_t type, uint8_t level)
{
	wr_add_atomic(ex, (enum ibv_wr_opcode)DOOR_WR_FLUSH, DOOR_QP_EX_WITH_FLUSH, rkey, addr,
		      length, (uint64_t)level << 4 | type);
	if (type > 15)
		wr_fail(wr_qp(ex)->batch, EINVAL);
}

/* ---- the critical region --------------------------------------------------------------------- */

/* The lock is held between two calls of the application: the analysis cannot follow. */

static void wr_start(struct ibv_qp_ex *ex) NO_THREAD_SAFETY
{
	struct door_batch *b = wr_qp(ex)->batch;

	lock_acquire(&b->lock);
	b->count = 0;
	b->error = 0;
}

/* The arrays move no more: sets the pointers between them. */
static void wr_link(struct door_qp *qp)
{
	struct door_batch *b = qp->batch;

	for (u32 i = 0; i < b->count; i++) {
		struct ibv_send_wr *wr = &b->wr[i];

		wr->next = i + 1 < b->count ? wr + 1 : NULL;
		wr->sg_list = b->sge ? &b->sge[(size_t)i * qp->cap.max_send_sge] : NULL;
		if ((wr->send_flags & IBV_SEND_INLINE) && wr->num_sge)
			wr->sg_list->addr =
				(uintptr_t)(b->inline_data + (size_t)i * qp->cap.max_inline_data);
	}
}

/* A single request needs no check beforehand. */
static int wr_post(struct door_qp *qp)
{
	struct door_batch *b = qp->batch;
	struct ibv_send_wr *bad;
	int error = 0;

	wr_link(qp);
	if (b->count > 1)
		error = b->check(qp->ib, b->wr);
	return error ? error : qp->post_send(qp->ib, b->wr, &bad);
}

static int wr_complete(struct ibv_qp_ex *ex) NO_THREAD_SAFETY
{
	struct door_qp *qp = wr_qp(ex);
	struct door_batch *b = qp->batch;
	int error = b->error;

	if (!error && b->count)
		error = door_errno(wr_post(qp));
	lock_release(&b->lock);
	return error;
}

static void wr_abort(struct ibv_qp_ex *ex) NO_THREAD_SAFETY
{
	lock_release(&wr_qp(ex)->batch->lock);
}

static uint64_t wr_supported(enum ibv_qp_type type)
{
	const uint64_t ud = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t uc = ud | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
			    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;

	switch (type) {
	case IBV_QPT_RAW_PACKET:
		return IBV_QP_EX_WITH_SEND;
	case IBV_QPT_UD:
		return ud;
	case IBV_QPT_UC:
		return uc;
	case IBV_QPT_RC:
		return wr_supported(IBV_QPT_XRC_SEND) | IBV_QP_EX_WITH_ATOMIC_WRITE |
		       DOOR_QP_EX_WITH_FLUSH;
	default:
		return uc | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
}

int wr_init(struct door_qp *qp, uint64_t flags)
{
	struct ibv_qp_ex *ex = &qp->ex;
	const struct ib_uverbs_ops *ops;

	if (flags & ~wr_supported(ex->qp_base.qp_type))
		return -EOPNOTSUPP;
	qp->batch = calloc(1, sizeof(*qp->batch));
	if (!qp->batch)
		return -ENOMEM;
	qp->batch->allowed = flags;
	ops = door_context(ex->qp_base.context)->ops;
	qp->batch->check = ex->qp_base.qp_type == IBV_QPT_RAW_PACKET ? ops->check_raw_send :
								       ops->check_send;
	ex->wr_atomic_cmp_swp = wr_add_cmp_swp;
	ex->wr_atomic_fetch_add = wr_add_fetch_add;
	ex->wr_bind_mw = wr_add_bind_mw;
	ex->wr_local_inv = wr_add_local_inv;
	ex->wr_rdma_read = wr_add_read;
	ex->wr_rdma_write = wr_add_write;
	ex->wr_rdma_write_imm = wr_add_write_imm;
	ex->wr_send = wr_add_send;
	ex->wr_send_imm = wr_add_send_imm;
	ex->wr_send_inv = wr_add_send_inv;
	ex->wr_send_tso = wr_refuse_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline;
	ex->wr_set_inline_data_list = wr_set_inline_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_atomic_write = wr_add_atomic_write;
	qp->wr_flush = wr_add_flush;
	return 0;
}

/* Arrays that another thread was enlarging may be freed ones here. */
void wr_drop_in_child(struct door_qp *qp) NO_THREAD_SAFETY
{
	struct door_batch *b = qp->batch;

	if (!b)
		return;
	lock_init(&b->lock);
	if (!b->is_growing)
		return;
	b->wr = NULL;
	b->sge = NULL;
	b->inline_data = NULL;
	b->count = b->capacity = 0;
	b->is_growing = false;
}

void wr_fini(struct door_qp *qp)
{
	struct door_batch *b = qp->batch;

	if (!b)
		return;
	free(b->wr);
	free(b->sge);
	free(b->inline_data);
	free(b);
}
