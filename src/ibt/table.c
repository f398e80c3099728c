/* table.c: finds a queue pair by its number.
 * In: queue pairs that are created and destroyed    Out: lookups, by table.h
 * Runs: the thread that creates or destroys    Locks: table_lock for changes; lookups take none
 */
#include <errno.h>
#include <stdlib.h>

#include "ibt/ibt_qp.h"
#include "ibt/table.h"

static void table_count_datagrams(struct ibt *ibt, const struct ibt_qp *qp, u32 by)
{
	for (u32 i = 0; i < ibt->path_count && !qp_is_connected(qp); i++)
		__atomic_fetch_add(&ibt->paths[i]->datagrams, by, __ATOMIC_RELAXED);
}

int table_add(struct ibt *ibt, struct ibt_qp *qp)
{
	u32 slot = qp->qpn >> IBT_INDEX_BITS;
	int err = 0;

	lock_acquire(&ibt->table_lock);
	if (ibt->tables[slot] == NULL) {
		struct ibt_qp **table = calloc(1u << IBT_INDEX_BITS, sizeof(*table));

		__atomic_store_n(&ibt->tables[slot], table, __ATOMIC_RELEASE);
	}
	if (ibt->tables[slot] == NULL)
		err = -ENOMEM;
	else
		__atomic_store_n(&ibt->tables[slot][qp->qpn & ((1u << IBT_INDEX_BITS) - 1)], qp,
				 __ATOMIC_RELEASE);
	lock_release(&ibt->table_lock);
	if (err == 0)
		table_count_datagrams(ibt, qp, 1);
	return err;
}

void table_remove(struct ibt *ibt, struct ibt_qp *qp)
{
	lock_acquire(&ibt->table_lock);
	__atomic_store_n(
		&ibt->tables[qp->qpn >> IBT_INDEX_BITS][qp->qpn & ((1u << IBT_INDEX_BITS) - 1)],
		NULL, __ATOMIC_RELEASE);
	lock_release(&ibt->table_lock);
	table_count_datagrams(ibt, qp, -1u);
}
