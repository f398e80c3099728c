/* fast.c: fast registration over the key table: regions that work requests make valid.
 * In: scatter lists, IB_WR_REG_MR    Out: page lists in the key table, requests of the engine
 * Runs: any thread; map_mr_sg and posts never block    Locks: the key table's
 */
#include "driver/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

#include "shared/shared.h"

enum {
	FAST_PAGE_MIN = 1 << 12,
	FAST_PAGE_MAX = 1 << 30,
	FAST_KEY_LOW = 0xff, /* the consumer's part of a key */
};

static struct soft_fast *soft_fast(struct ib_mr *ib)
{
	return container_of(ib, struct soft_fast, mr.ib);
}

struct ib_mr *soft_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg)
{
	int err = soft_attach(soft_dev(pd->device));
	struct soft_fast *fast;
	u32 key;

	if (err == 0 && (type != IB_MR_TYPE_MEM_REG || max_num_sg > SOFT_MAX_FAST_PAGES))
		err = -EINVAL;
	if (err != 0)
		return ERR_PTR(err);
	fast = calloc(1, sizeof(*fast) + max_num_sg * sizeof(fast->pages[0]));
	if (fast == NULL)
		return ERR_PTR(-ENOMEM);
	/* Any memory may be mapped later. */
	adopt_enter_all();
	err = mem_fast_reserve(&the_seat.a.mem, soft_pd_number(pd), max_num_sg, &key);
	if (err != 0) {
		free(fast);
		return ERR_PTR(err);
	}
	fast->max_pages = max_num_sg;
	fast->mr.generation = seat_generation(&the_seat);
	fast->mr.ib.lkey = fast->mr.ib.rkey = key;
	return &fast->mr.ib;
}

static int fast_set_page(struct ib_mr *ib, u64 page)
{
	struct soft_fast *fast = soft_fast(ib);

	if (fast->count == fast->max_pages)
		return -ENOMEM;
	fast->pages[fast->count++] = page;
	return 0;
}

int soft_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int nents, unsigned int *offset)
{
	struct soft_fast *fast = soft_fast(ib);
	struct mem_region region = { .flags = MEM_PAGES, .pages = fast->pages };
	int err = soft_check(ib->device), n;

	if (err != 0 || !soft_is_ours(fast->mr.generation))
		return -EIO;
	if (ib->page_size < FAST_PAGE_MIN || ib->page_size > FAST_PAGE_MAX)
		return -EINVAL;
	fast->count = 0;
	n = ib_sg_to_pages(ib, sg, nents, offset, fast_set_page);
	if (n < 0)
		return n;
	region.iova = ib->iova;
	region.length = ib->length;
	region.page_count = fast->count;
	region.page_shift = (u32)__builtin_ctz(ib->page_size);
	err = mem_fast_stage(&the_seat.a.mem, ib->lkey, &region);
	return err != 0 ? err : n;
}

int soft_uverbs_post_reg(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	const struct ib_mr *mr = wr->wr.reg.mr;
	u32 key = wr->wr.reg.key;
	int access = wr->wr.reg.access;

	if (mr == NULL || mr->device != qp->device || access < 0 ||
	    ((key ^ mr->lkey) & ~(u32)FAST_KEY_LOW) != 0)
		return -EINVAL;
	return ibt_post_reg(soft_engine(SOFT_OF(qp, qp)), wr->wr_id, (u32)wr->send_flags, key,
			    (u32)access);
}
