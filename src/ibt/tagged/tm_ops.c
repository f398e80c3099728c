/* tm_ops.c: the operations on the tag list of an SRQ: TAG_ADD, TAG_DEL, TAG_SYNC.
 *
 * They are executed at the call, under the SRQ's lock, and their completions added there: so they
 * complete in order, and an entry's TM_ADD comes before its match. An operation that is not
 * signalled is done with the call; a signalled one is outstanding until its completion is polled.
 *
 * In: ibv_ops_wr    Out: the tag list, completions TM_ADD, TM_DEL, TM_SYNC
 * Runs: the poster    Locks: the SRQ's, then the CQ's    Spec: ibv_post_srq_ops(3)
 */
#include <errno.h>

#include "ibt/instance.h"
#include "ibt/receive/srq.h"

static bool ops_is_own(const struct cqe *e, const void *arg)
{
	const struct ibt_srq *srq = arg;

	return (e->wc.opcode == IBV_WC_TM_ADD || e->wc.opcode == IBV_WC_TM_DEL ||
		e->wc.opcode == IBV_WC_TM_SYNC) &&
	       e->source == &cq_source_none && e->wc.src_qp == srq->tm_id;
}

/* Are there fewer than max_ops that are not polled? They are counted only when so many have been
 * posted since the last count that there may be too many. */
static bool ops_has_room(struct ibt_srq *srq) REQUIRES(srq->lock)
{
	if (likely(srq->ops < srq->max_ops))
		return true;
	srq->ops = cq_count(srq->tm_cq, ops_is_own, srq);
	return srq->ops < srq->max_ops;
}

static void ops_complete(struct ibt_srq *srq, const struct ibv_ops_wr *wr,
			 enum ibv_wc_opcode opcode, enum ibv_wc_status status) REQUIRES(srq->lock)
{
	struct cqe *e = cq_reserve(srq->tm_cq);

	if (unlikely(!e)) {
		srq->tm_failed = true;
		return;
	}
	cqe_set(e, wr->wr_id, status, opcode, 0, 0, srq->tm_id, &cq_source_none, 0);
	if (!tag_list_in_phase(&srq->tags))
		e->wc.wc_flags = IBV_WC_TM_SYNC_REQ;
	cq_commit_tagged(srq->tm_cq, e, false, 0, 0);
	srq->ops++;
}

static int ops_add(struct ibt_srq *srq, struct ibv_ops_wr *wr) REQUIRES(srq->lock)
{
	struct tag_add add = { .tag = wr->tm.add.tag,
			       .mask = wr->tm.add.mask,
			       .recv_wr_id = wr->tm.add.recv_wr_id,
			       .sge = wr->tm.add.sg_list,
			       .sge_count = (u32)wr->tm.add.num_sge };

	if (wr->tm.add.num_sge < 0 || wr->tm.add.num_sge > IBT_TM_MAX_SGE)
		return -EINVAL;
	if (tag_list_is_full(&srq->tags))
		return -ENOMEM;
	if (wr->flags & IBV_OPS_TM_SYNC)
		tag_list_sync(&srq->tags, wr->tm.unexpected_cnt);
	return tag_list_add(&srq->tags, &add, &wr->tm.handle);
}

/* 0, or why it is refused; then nothing has changed. */
static int ops_execute(struct ibt_srq *srq, struct ibv_ops_wr *wr) REQUIRES(srq->lock)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	enum ibv_wc_opcode opcode = IBV_WC_TM_SYNC;
	int err = 0;

	if (wr->opcode != IBV_WR_TAG_ADD && wr->opcode != IBV_WR_TAG_DEL &&
	    wr->opcode != IBV_WR_TAG_SYNC)
		return -EINVAL;
	if ((wr->flags & IBV_OPS_SIGNALED) != 0 && !ops_has_room(srq))
		return -ENOMEM;
	if (wr->opcode == IBV_WR_TAG_ADD) {
		opcode = IBV_WC_TM_ADD;
		err = ops_add(srq, wr);
	} else if (wr->opcode == IBV_WR_TAG_DEL) {
		opcode = IBV_WC_TM_DEL;
		err = tag_list_delete(&srq->tags, wr->tm.handle);
		if (err == -ENOENT) {
			status = IBV_WC_TM_ERR;
			err = 0;
		}
	}
	if (err != 0)
		return err;
	if (wr->opcode != IBV_WR_TAG_ADD && (wr->flags & IBV_OPS_TM_SYNC) != 0)
		tag_list_sync(&srq->tags, wr->tm.unexpected_cnt);
	if (wr->flags & IBV_OPS_SIGNALED)
		ops_complete(srq, wr, opcode, status);
	return 0;
}

int ibt_srq_post_ops(struct ibt_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	bool failed = false, before;
	int err = srq_matches_tags(srq) ? 0 : -EINVAL;

	lock_acquire(&srq->lock);
	before = srq->tm_failed;
	for (; wr != NULL && err == 0; wr = wr->next) {
		err = srq->unplugged || srq->tm_failed ? -EIO : ops_execute(srq, wr);
		if (err != 0)
			break;
	}
	failed = srq->tm_failed && !before;
	lock_release(&srq->lock);
	if (unlikely(failed))
		srq->ibt->cfg.async(srq->ibt->cfg.arg, NULL, srq, IBV_EVENT_SRQ_ERR);
	if (err != 0 && bad != NULL)
		*bad = wr;
	return err;
}
