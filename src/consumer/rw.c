/* rw.c: transfers between a scatter list and a piece of the peer's memory, as lists of requests.
 * In: rdma_rw_ctx_*    Out: ib_post_send, regions of the queue pair's pool    Runs: any thread
 * Locks: none of its own
 *
 * Without registration each element is an SGE under the domain's key, and a request takes as many
 * as it may. With it the elements that a region can hold are one SGE under the region's key, and
 * the list has, for each region, an invalidation of its last key, if that may be valid, a
 * registration, and the READ or WRITE. A region's next key is chosen when the list is handed out,
 * and taken back if rdma_rw_ctx_post finds its registration refused: so a transfer that is not
 * posted changes none, and may be posted again.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "consumer/consumer_priv.h"

enum { RW_SINGLE, RW_SEVERAL, RW_REGISTERED };
enum { RW_PAGE = 4096, RW_PAGES_MAX = 256 };

/* What one region holds. */
struct rdma_rw_part {
	struct rdma_rw_part *next;
	struct ib_mr *mr;
	struct ib_sge sge;
	struct ib_send_wr_linux61 inv;
	struct ib_reg_wr reg;
	struct ib_rdma_wr wr;
	bool had_key; /* the region's key may have been valid when the next one was chosen */
} OWNED_BY(the transfer);

/* What is left to be made into requests. */
struct rw_rest {
	struct scatterlist *sg;
	u32 count; /* elements */
	u32 offset; /* bytes of the first that are done with */
	u64 remote_addr;
	u32 rkey;
	enum ib_wr_opcode opcode;
} OWNED_BY(the caller);

static bool rw_forced ATOMIC_ONLY;

void rdma_rw_set_force_mr(bool force)
{
	__atomic_store_n(&rw_forced, force, __ATOMIC_RELAXED);
}

bool rw_may_register(const struct ib_device *device)
{
	return device->attrs.max_sgl_rd > 0 || __atomic_load_n(&rw_forced, __ATOMIC_RELAXED);
}

static u32 rw_pages(const struct ib_device *device)
{
	return MIN(device->attrs.max_fast_reg_page_list_len, (u32)RW_PAGES_MAX);
}

u32 rw_add_requests(const struct ib_device *device, u32 max_send_wr, u32 ctxs)
{
	u64 all = max_send_wr + (u64)ctxs * (rw_may_register(device) ? 3 : 1);
	u32 most = (u32)device->attrs.max_qp_wr;

	return ctxs == 0 ? max_send_wr : (u32)MIN(all, (u64)most);
}

int rw_prepare(struct ib_qp *qp, u32 max_send_sge, u32 ctxs)
{
	const struct ib_device *device = qp->device;
	u32 most = (u32)device->attrs.max_sge_rd;
	int err = consumer_pools_add(qp);
	struct consumer_pools *pools = consumer_pools_of(qp);

	if (err != 0)
		return err;
	pools->max_write_sge = max_send_sge;
	pools->max_read_sge = most > 0 ? MIN(max_send_sge, most) : max_send_sge;
	pools->force = __atomic_load_n(&rw_forced, __ATOMIC_RELAXED);
	if (ctxs == 0 || !rw_may_register(device))
		return 0;
	return ib_mr_pool_init(qp, &qp->pools->rdma_mrs, (int)MIN(ctxs, (u32)INT_MAX),
			       IB_MR_TYPE_MEM_REG, rw_pages(device), 0);
}

/* ---- without registration -------------------------------------------------------------------- */

/* Takes the next element. */
static void rw_take(struct rw_rest *rest, struct ib_sge *sge, u32 lkey)
{
	*sge = (struct ib_sge){ .addr = sg_dma_address(rest->sg) + rest->offset,
				.length = sg_dma_len(rest->sg) - rest->offset,
				.lkey = lkey };
	rest->remote_addr += sge->length;
	rest->offset = 0;
	rest->count--;
	rest->sg = sg_next(rest->sg);
}

/* The next request, with up to `most` SGEs. Returns how many it has. */
static u32 rw_fill(struct rw_rest *rest, struct ib_rdma_wr *wr, struct ib_sge *sges, u32 most,
		   u32 lkey)
{
	u32 count = 0;

	*wr = (struct ib_rdma_wr){ .wr = { .sg_list = sges, .opcode = rest->opcode },
				   .remote_addr = rest->remote_addr,
				   .rkey = rest->rkey };
	while (count < most && rest->count > 0)
		rw_take(rest, &sges[count++], lkey);
	wr->wr.num_sge = (int)count;
	return count;
}

static int rw_init_single(struct rdma_rw_ctx *ctx, const struct ib_qp *qp, struct rw_rest *rest)
{
	ctx->single.sge = (struct ib_sge){ .addr = sg_dma_address(rest->sg) + rest->offset,
					   .length = sg_dma_len(rest->sg) - rest->offset,
					   .lkey = qp->pd->local_dma_lkey };
	ctx->single.wr = (struct ib_rdma_wr){ .wr = { .sg_list = &ctx->single.sge,
						      .num_sge = 1,
						      .opcode = rest->opcode },
					      .remote_addr = rest->remote_addr,
					      .rkey = rest->rkey };
	ctx->type = RW_SINGLE;
	ctx->nr_ops = 1;
	return 1;
}

static int rw_init_several(struct rdma_rw_ctx *ctx, const struct ib_qp *qp, struct rw_rest *rest)
{
	const struct consumer_pools *pools = consumer_pools_of(qp);
	u32 most = rest->opcode == IB_WR_RDMA_READ ? pools->max_read_sge : pools->max_write_sge;
	u32 ops = most > 0 ? (rest->count + most - 1) / most : 0;
	struct ib_sge *sges;

	if (ops == 0)
		return -EINVAL;
	ctx->wrs = malloc(ops * sizeof(ctx->wrs[0]) + rest->count * sizeof(sges[0]));
	if (ctx->wrs == NULL)
		return -ENOMEM;
	sges = (struct ib_sge *)&ctx->wrs[ops];
	for (u32 i = 0; i < ops; i++) {
		sges += rw_fill(rest, &ctx->wrs[i], sges, most, qp->pd->local_dma_lkey);
		if (i > 0)
			ctx->wrs[i - 1].wr.next = &ctx->wrs[i].wr;
	}
	ctx->type = RW_SEVERAL;
	ctx->nr_ops = ops;
	return (int)ops;
}

/* ---- with it --------------------------------------------------------------------------------- */

static void rw_free_parts(struct rdma_rw_ctx *ctx, struct ib_qp *qp)
{
	struct rdma_rw_part *part;

	while ((part = ctx->parts) != NULL) {
		ctx->parts = part->next;
		if (part->mr != NULL)
			ib_mr_pool_put(qp, &qp->pools->rdma_mrs, part->mr);
		free(part);
	}
}

/* Lays into the region what it can hold of the rest. 0 or a negative errno. */
static int rw_map(struct rdma_rw_part *part, struct rw_rest *rest)
{
	unsigned int offset = rest->offset;
	int taken = ib_map_mr_sg(part->mr, rest->sg, (int)MIN(rest->count, (u32)INT_MAX), &offset,
				 RW_PAGE);

	if (taken < 0)
		return taken;
	if (taken == 0 && offset == rest->offset)
		return -EINVAL;
	for (int i = 0; i < taken; i++)
		rest->sg = sg_next(rest->sg);
	rest->count -= (u32)taken;
	rest->offset = rest->count > 0 ? offset : 0;
	return 0;
}

/* Returns how many requests the part has, or a negative errno. */
static int rw_add_part(struct rdma_rw_ctx *ctx, struct ib_qp *qp, struct rdma_rw_part *part,
		       struct rw_rest *rest)
{
	struct ib_mr *mr = part->mr = ib_mr_pool_get(qp, &qp->pools->rdma_mrs);
	int err = mr != NULL ? rw_map(part, rest) : -EAGAIN;

	if (err != 0)
		return err;
	part->sge = (struct ib_sge){ .addr = mr->iova, .length = (u32)mr->length };
	part->inv.opcode = IB_WR_LOCAL_INV;
	part->inv.next = &part->reg.wr;
	part->reg.wr.opcode = IB_WR_REG_MR;
	part->reg.wr.next = &part->wr.wr;
	part->reg.mr = mr;
	part->reg.access = IB_ACCESS_LOCAL_WRITE;
	part->wr.wr.opcode = rest->opcode;
	part->wr.wr.sg_list = &part->sge;
	part->wr.wr.num_sge = 1;
	part->wr.remote_addr = rest->remote_addr;
	part->wr.rkey = rest->rkey;
	rest->remote_addr += mr->length;
	ctx->nr_ops++;
	return mr->need_inval ? 3 : 2;
}

static int rw_init_registered(struct rdma_rw_ctx *ctx, struct ib_qp *qp, struct rw_rest rest)
{
	struct rdma_rw_part **last = &ctx->parts;
	int requests = 0, added = 0;

	ctx->nr_ops = 0;
	while (rest.count > 0 && added >= 0) {
		struct rdma_rw_part *part = calloc(1, sizeof(*part));

		if (part == NULL) {
			added = -ENOMEM;
			break;
		}
		*last = part;
		last = &part->next;
		added = rw_add_part(ctx, qp, part, &rest);
		requests += added;
	}
	if (added < 0) {
		rw_free_parts(ctx, qp);
		return added;
	}
	ctx->type = RW_REGISTERED;
	return requests;
}

/* The region's next key. Returns the part's first request. */
static struct ib_send_wr_linux61 *rw_choose_key(struct rdma_rw_part *part)
{
	part->had_key = part->mr->need_inval;
	part->inv.ex.invalidate_rkey = part->mr->lkey;
	ib_update_fast_reg_key(part->mr, (u8)(part->mr->lkey + 1));
	part->mr->need_inval = true;
	part->reg.key = part->sge.lkey = part->mr->lkey;
	return part->had_key ? &part->inv : &part->reg.wr;
}

/* The registration was not posted; `invalidated`: what comes before it was. */
static void rw_take_key_back(struct rdma_rw_part *part, bool invalidated)
{
	ib_update_fast_reg_key(part->mr, (u8)(part->mr->lkey - 1));
	part->mr->need_inval = part->had_key && !invalidated;
}

/* Requests from `bad` on were not posted. */
static void rw_take_keys_back(struct rdma_rw_ctx *ctx, const struct ib_send_wr_linux61 *bad)
{
	bool posted = true;

	if (ctx->type != RW_REGISTERED)
		return;
	for (struct rdma_rw_part *part = ctx->parts; part != NULL; part = part->next) {
		bool at_inv = bad == &part->inv, at_reg = bad == &part->reg.wr;

		if (!posted || at_inv || at_reg)
			rw_take_key_back(part, posted && at_reg);
		if (at_inv || at_reg || bad == &part->wr.wr)
			posted = false;
	}
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Steps over whole elements. */
static void rw_skip(struct rw_rest *rest)
{
	while (rest->count > 0 && rest->sg != NULL && rest->offset >= sg_dma_len(rest->sg)) {
		rest->offset -= sg_dma_len(rest->sg);
		rest->sg = sg_next(rest->sg);
		rest->count--;
	}
}

static bool rw_wants_regions(const struct ib_qp *qp, const struct rw_rest *rest)
{
	const struct consumer_pools *pools = consumer_pools_of(qp);
	u32 most = qp->device->attrs.max_sgl_rd;

	return pools->force || (most > 0 && rest->opcode == IB_WR_RDMA_READ && rest->count > most);
}

int rdma_rw_ctx_init(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
		     struct scatterlist *sg, u32 sg_cnt, u32 sg_offset, u64 remote_addr, u32 rkey,
		     enum dma_data_direction dir)
{
	struct rw_rest rest = { sg, sg_cnt, sg_offset, remote_addr, rkey,
				dir == DMA_TO_DEVICE ? IB_WR_RDMA_WRITE : IB_WR_RDMA_READ };

	if (ctx == NULL || qp == NULL || sg == NULL ||
	    (dir != DMA_TO_DEVICE && dir != DMA_FROM_DEVICE))
		return -EINVAL;
	if (!core_serves_linux61(qp->device) || qp->pools == NULL)
		return -EOPNOTSUPP;
	ctx->wrs = NULL;
	ctx->parts = NULL;
	ctx->reg = NULL;
	rw_skip(&rest);
	if (rest.count == 0 || rest.sg == NULL)
		return -EIO;
	if (rw_wants_regions(qp, &rest)) {
		int made = rw_init_registered(ctx, qp, rest);

		if (made != -EAGAIN || consumer_pools_of(qp)->force)
			return made;
	}
	return rest.count > 1 ? rw_init_several(ctx, qp, &rest) : rw_init_single(ctx, qp, &rest);
}

void rdma_rw_ctx_destroy(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
			 struct scatterlist *sg, u32 sg_cnt, enum dma_data_direction dir)
{
	if (ctx == NULL || qp == NULL)
		return;
	rw_free_parts(ctx, qp);
	free(ctx->wrs);
	ctx->wrs = NULL;
}

/* Joins the parts' requests. Returns the first; *last is the end. */
static struct ib_send_wr_linux61 *rw_join(struct rdma_rw_ctx *ctx, struct ib_send_wr_linux61 **last)
{
	struct ib_send_wr_linux61 *first = NULL;

	*last = NULL;
	for (struct rdma_rw_part *part = ctx->parts; part != NULL; part = part->next) {
		struct ib_send_wr_linux61 *begin = rw_choose_key(part);

		if (first == NULL)
			first = begin;
		else
			(*last)->next = begin;
		*last = &part->wr.wr;
	}
	return first;
}

struct ib_send_wr_linux61 *rdma_rw_ctx_wrs(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
					   struct ib_cqe *cqe, struct ib_send_wr_linux61 *chain_wr)
{
	struct ib_send_wr_linux61 *first, *last;

	if (ctx == NULL || qp == NULL)
		return chain_wr;
	if (ctx->type == RW_REGISTERED) {
		first = rw_join(ctx, &last);
	} else if (ctx->type == RW_SEVERAL) {
		first = &ctx->wrs[0].wr;
		last = &ctx->wrs[ctx->nr_ops - 1].wr;
	} else {
		first = last = &ctx->single.wr.wr;
	}
	last->next = chain_wr;
	if (chain_wr == NULL) {
		last->wr_cqe = cqe;
		last->send_flags |= IB_SEND_SIGNALED;
	}
	return first;
}

int rdma_rw_ctx_post(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num, struct ib_cqe *cqe,
		     struct ib_send_wr_linux61 *chain_wr)
{
	const struct ib_send_wr_linux61 *bad = NULL;
	int err;

	if (ctx == NULL || qp == NULL || (cqe == NULL && chain_wr == NULL))
		return -EINVAL;
	err = ib_post_send_linux61(qp, rdma_rw_ctx_wrs(ctx, qp, port_num, cqe, chain_wr), &bad);
	if (err != 0)
		rw_take_keys_back(ctx, bad);
	return err;
}

int rdma_rw_ctx_signature_init(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
			       struct scatterlist *sg, u32 sg_cnt, struct scatterlist *prot_sg,
			       u32 prot_sg_cnt, struct ib_sig_attrs *sig_attrs, u64 remote_addr,
			       u32 rkey, enum dma_data_direction dir)
{
	return -EOPNOTSUPP;
}

void rdma_rw_ctx_destroy_signature(struct rdma_rw_ctx *ctx, struct ib_qp *qp, u32 port_num,
				   struct scatterlist *sg, u32 sg_cnt, struct scatterlist *prot_sg,
				   u32 prot_sg_cnt, enum dma_data_direction dir)
{
}

unsigned int rdma_rw_mr_factor(struct ib_device *device, u32 port_num, unsigned int maxpages)
{
	u32 each;

	if (device == NULL)
		return 0;
	each = rw_may_register(device) ? rw_pages(device) : (u32)device->attrs.max_sge_rd;
	each = MAX(each, 1u);
	return maxpages / each + (maxpages % each != 0);
}

unsigned int rdma_rw_max_send_wr(struct ib_device *device, u32 port_num,
				 unsigned int max_rdma_ctxs, u32 create_flags)
{
	bool registers = (create_flags & IB_QP_CREATE_INTEGRITY_EN) ||
			 (device != NULL && rw_may_register(device));
	u64 all = (u64)max_rdma_ctxs * (registers ? 3 : 1);

	return all > UINT_MAX ? UINT_MAX : (unsigned int)all;
}
