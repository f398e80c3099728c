/* table.c: numbers of rsockets. A lookup takes no lock: it counts itself in the number's slot and
 * then reads which rsocket is there. Slots are never freed.
 * In:    numbers                           Out: rsockets, held
 * Runs:  the application's threads         Locks: none
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/fork.h"
#include "rsocket.h"

enum { CHUNK_BITS = 10, CHUNK_SLOTS = 1 << CHUNK_BITS, CHUNKS = 1024 };

struct table_slot {
	struct rsocket *rs;	 /* who has the number; NULL: no rsocket */
	struct rsocket *leaving; /* rclose is at work on it */
	struct rsocket *closing; /* its last user frees it */
	struct rsocket *parents; /* in a forked child: the parent's */
	u32 users;		 /* calls that look at this slot or hold what they found */
} CACHE_ALIGNED OWNED_BY(atomic operations);

static struct table_slot *table_chunks[CHUNKS]; /* atomic */

static struct table_slot *table_slot(int fd)
{
	u32 index = (u32)fd >> CHUNK_BITS;
	struct table_slot *chunk;

	if (index >= CHUNKS)
		return NULL;
	/* pairs with the exchange in table_slot_make */
	chunk = __atomic_load_n(&table_chunks[index], __ATOMIC_ACQUIRE);
	return chunk != NULL ? &chunk[(u32)fd & (CHUNK_SLOTS - 1)] : NULL;
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* The only thread. What the parent has here is not usable in the child. */
static void table_drop_in_child(void)
{
	for (u32 i = 0; i < CHUNKS; i++) {
		struct table_slot *chunk = table_chunks[i];

		for (u32 j = 0; chunk != NULL && j < CHUNK_SLOTS; j++) {
			if (chunk[j].rs != NULL)
				chunk[j].parents = chunk[j].rs;
			chunk[j].rs = chunk[j].leaving = chunk[j].closing = NULL;
			chunk[j].users = 0;
		}
	}
}
FORK_HOOK(FORK_RSOCKETS, .child = table_drop_in_child);

/* ---- numbers --------------------------------------------------------------------------------- */

int rsocket_number(int fd)
{
	fd_show_from(RSOCKET_NUMBER_FIRST);
	fd = fd_shown(fd);
	fd_show_from(0);
	return fd;
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct table_slot *table_slot_make(int fd)
{
	u32 index = (u32)fd >> CHUNK_BITS;
	struct table_slot *none = NULL, *chunk;

	if (index >= CHUNKS || table_slot(fd) != NULL)
		return table_slot(fd);
	chunk = aligned_alloc(CACHE_LINE, CHUNK_SLOTS * sizeof(*chunk));
	if (chunk == NULL)
		return NULL;
	for (u32 i = 0; i < CHUNK_SLOTS; i++)
		chunk[i] = (struct table_slot){ .rs = NULL };
	/* pairs with table_slot */
	if (!__atomic_compare_exchange_n(&table_chunks[index], &none, chunk, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		free(chunk);
	return table_slot(fd);
}

void rsocket_init(struct rsocket *rs, const struct rsocket_ops *ops, int type)
{
	static u64 serials; /* atomic */

	rs->ops = ops;
	rs->type = type;
	rs->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	wait_queue_init(&rs->waiters);
}

int table_insert(struct rsocket *rs)
{
	struct table_slot *slot = table_slot_make(rs->fd);

	if (slot == NULL)
		return (u32)rs->fd >> CHUNK_BITS >= CHUNKS ? -EMFILE : -ENOMEM;
	__atomic_store_n(&slot->parents, NULL, __ATOMIC_RELAXED);
	/* pairs with table_get */
	__atomic_store_n(&slot->rs, rs, __ATOMIC_SEQ_CST);
	return 0;
}

static void table_leave(struct table_slot *slot)
{
	struct rsocket *rs;

	if (__atomic_sub_fetch(&slot->users, 1, __ATOMIC_SEQ_CST) > 0)
		return;
	if (likely(__atomic_load_n(&slot->closing, __ATOMIC_SEQ_CST) == NULL))
		return;
	/* of several threads that see no user, one gets it */
	rs = __atomic_exchange_n(&slot->closing, NULL, __ATOMIC_SEQ_CST);
	if (rs != NULL)
		rs->ops->free(rs);
}

struct rsocket *table_get(int fd)
{
	struct table_slot *slot = table_slot(fd);
	struct rsocket *rs;

	if (slot == NULL)
		return NULL;
	/* counted first: table_remove takes the rsocket away first, and only then is it freed */
	__atomic_add_fetch(&slot->users, 1, __ATOMIC_SEQ_CST);
	rs = __atomic_load_n(&slot->rs, __ATOMIC_SEQ_CST);
	if (rs == NULL)
		table_leave(slot);
	return rs;
}

struct rsocket *table_get_leaving(int fd)
{
	struct table_slot *slot = table_slot(fd);
	struct rsocket *rs;

	if (slot == NULL)
		return NULL;
	__atomic_add_fetch(&slot->users, 1, __ATOMIC_SEQ_CST); /* as in table_get */
	rs = __atomic_load_n(&slot->rs, __ATOMIC_SEQ_CST);
	if (rs == NULL)
		rs = __atomic_load_n(&slot->leaving, __ATOMIC_SEQ_CST);
	if (rs == NULL)
		table_leave(slot);
	return rs;
}

void table_put(struct rsocket *rs)
{
	table_leave(table_slot(rs->fd));
}

bool table_remove(struct rsocket *rs)
{
	struct table_slot *slot = table_slot(rs->fd);
	struct rsocket *expected = rs;

	if (!__atomic_compare_exchange_n(&slot->rs, &expected, NULL, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return false;
	__atomic_store_n(&slot->leaving, rs, __ATOMIC_SEQ_CST);
	return true;
}

void table_free_last(struct rsocket *rs)
{
	struct table_slot *slot = table_slot(rs->fd);

	/* in this order: who has seen it leave has counted itself before it can be freed */
	__atomic_store_n(&slot->leaving, NULL, __ATOMIC_SEQ_CST);
	__atomic_store_n(&slot->closing, rs, __ATOMIC_SEQ_CST);
}

/* An application that has closed the number may have a file or a socket there. */
bool table_is_parents(int fd)
{
	struct table_slot *slot = table_slot(fd);
	struct stat st;

	return slot != NULL && __atomic_load_n(&slot->parents, __ATOMIC_RELAXED) != NULL &&
	       fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0;
}

bool table_forget(int fd)
{
	struct table_slot *slot = table_slot(fd);
	struct rsocket *rs = NULL;

	if (slot != NULL)
		rs = __atomic_exchange_n(&slot->parents, NULL, __ATOMIC_RELAXED);
	if (rs != NULL)
		rs->ops->forget(rs);
	return rs != NULL;
}
