/* tagged_list.c: what the adapter's list must have done. Operations and completions are brought
 * into the order in which the adapter had them: each operation knows how many completions were in
 * the CQ when it was posted. A message of several packets is judged somewhere between its first
 * packet and its completion; meanwhile nothing is known for sure, and nothing is demanded.
 * In: operations, completions    Out: an oracle's word
 */
#include "tagged.h"

u64 tagged_position(struct tagged *tm)
{
	return tm->polled + (u64)cq_peek(&tm->cq.cq, 1 << 20);
}

static bool replay_in_phase(const struct tagged *tm)
{
	return tm->replay_told == tm->unexpected;
}

static void replay_enable(struct tagged *tm, const struct tagged_op *op)
{
	for (u32 i = 0; i < tm->entry_count; i++) {
		struct tagged_entry *e = tm->entries[i];

		if (!e->listed || e->sure)
			continue;
		e->sure = true;
		e->sure_at = op->marker;
	}
}

static void replay_op(struct tagged *tm, struct tagged_op *op)
{
	if (op->syncs)
		tm->replay_told = op->count;
	op->judged = !op->doubtful;
	if (op->opcode == IBV_WR_TAG_ADD) {
		op->entry->listed = true;
	} else if (op->opcode == IBV_WR_TAG_DEL) {
		op->late = !op->entry->listed;
		op->entry->listed = false;
	}
	op->lags = !replay_in_phase(tm);
	if (!op->doubtful && !op->lags && (op->syncs || op->opcode == IBV_WR_TAG_ADD))
		replay_enable(tm, op);
}

void tagged_replay(struct tagged *tm, u64 number)
{
	while (tm->next_replay < tm->op_count && tm->ops[tm->next_replay]->marker <= number)
		replay_op(tm, tm->ops[tm->next_replay++]);
}

void tagged_replay_taken(struct tagged_entry *e)
{
	e->listed = e->sure = false;
}

void tagged_replay_unexpected(struct tagged *tm, struct sqp *q, const struct tagged_message *m,
			      u64 number)
{
	u64 since = q->tagged_begun ? q->tagged_begun_at : number;

	for (u32 i = 0; i < tm->entry_count; i++) {
		const struct tagged_entry *e = tm->entries[i];

		sim_check(!e->listed || !e->sure || e->sure_at > since ||
				  (m->tag & e->mask) != e->tag,
			  "p%u: message %u is unexpected, but entry %u matched", tm->proc->id,
			  m->id, e->number);
	}
	tm->unexpected++;
}

void tagged_replay_seen(struct sqp *q)
{
	if (q->tagged_next >= q->tagged_until)
		q->tagged_begun = false;
}
