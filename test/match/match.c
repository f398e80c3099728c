/* match.c: two plain models of tag matching.
 * In: what is posted and what arrives    Out: who takes what    Runs: one thread
 */
#include <stdlib.h>
#include <string.h>

#include "match.h"

/* ---- queues ---- */

static void queue_append(struct match_queue *q, const struct match_item *item)
{
	if (q->count == q->room) {
		q->room = q->room == 0 ? 64 : 2 * q->room;
		q->item = realloc(q->item, q->room * sizeof(*q->item));
		if (q->item == NULL)
			abort();
	}
	q->item[q->count++] = *item;
}

static void queue_remove(struct match_queue *q, u32 at)
{
	memmove(&q->item[at], &q->item[at + 1], (q->count - at - 1) * sizeof(*q->item));
	q->count--;
}

static bool queue_remove_id(struct match_queue *q, u64 id)
{
	for (u32 i = 0; i < q->count; i++)
		if (q->item[i].id == id) {
			queue_remove(q, i);
			return true;
		}
	return false;
}

static void queue_close(struct match_queue *q)
{
	free(q->item);
	*q = (struct match_queue){ 0 };
}

static bool item_matches(const struct match_item *item, u64 tag)
{
	return (tag & item->mask) == item->tag;
}

/* ---- MPI ---- */

void mpi_close(struct mpi_match *m)
{
	queue_close(&m->posted);
	queue_close(&m->unexpected);
}

bool mpi_post(struct mpi_match *m, u64 recv, u64 tag, u64 mask, u64 *message)
{
	struct match_item item = { .id = recv, .tag = tag, .mask = mask };

	for (u32 i = 0; i < m->unexpected.count; i++)
		if (item_matches(&item, m->unexpected.item[i].tag)) {
			*message = m->unexpected.item[i].id;
			queue_remove(&m->unexpected, i);
			return true;
		}
	queue_append(&m->posted, &item);
	return false;
}

bool mpi_arrive(struct mpi_match *m, u64 message, u64 tag, u64 *recv)
{
	for (u32 i = 0; i < m->posted.count; i++)
		if (item_matches(&m->posted.item[i], tag)) {
			*recv = m->posted.item[i].id;
			queue_remove(&m->posted, i);
			return true;
		}
	queue_append(&m->unexpected, &(struct match_item){ .id = message, .tag = tag });
	return false;
}

bool mpi_cancel(struct mpi_match *m, u64 recv)
{
	return queue_remove_id(&m->posted, recv);
}

/* ---- the SRQ ---- */

void tmq_close(struct tmq *q)
{
	queue_close(&q->entries);
}

bool tmq_in_phase(const struct tmq *q)
{
	return q->told == q->unexpected;
}

void tmq_sync(struct tmq *q, u32 count)
{
	q->told = (u16)count;
	for (u32 i = 0; i < q->entries.count && tmq_in_phase(q); i++)
		q->entries.item[i].enabled = true;
}

void tmq_add(struct tmq *q, u64 id, u64 tag, u64 mask)
{
	queue_append(&q->entries, &(struct match_item){ .id = id,
							.tag = tag,
							.mask = mask,
							.enabled = tmq_in_phase(q) });
}

bool tmq_delete(struct tmq *q, u64 id)
{
	return queue_remove_id(&q->entries, id);
}

const struct match_item *tmq_would_take(const struct tmq *q, u64 tag)
{
	for (u32 i = 0; i < q->entries.count; i++)
		if (q->entries.item[i].enabled && item_matches(&q->entries.item[i], tag))
			return &q->entries.item[i];
	return NULL;
}

bool tmq_arrive(struct tmq *q, u64 tag, u64 *id)
{
	const struct match_item *item = tmq_would_take(q, tag);

	if (item == NULL) {
		q->unexpected++;
		return false;
	}
	*id = item->id;
	queue_remove(&q->entries, (u32)(item - q->entries.item));
	return true;
}
