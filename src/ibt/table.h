/* table.h: which queue pair has a number. */
#ifndef IBT_TABLE_H
#define IBT_TABLE_H

#include "ibt/instance.h"

/* The queue pair with the number `qpn` (24 bits); NULL: there is none. Takes no lock: it stays
 * while the caller is in a callback of a path. */
static inline struct ibt_qp *table_lookup(const struct ibt *ibt, u32 qpn)
{
	struct ibt_qp **table = __atomic_load_n(&ibt->tables[qpn >> IBT_INDEX_BITS],
						__ATOMIC_ACQUIRE); /* pairs with table_add */

	if (unlikely(table == NULL))
		return NULL;
	return __atomic_load_n(&table[qpn & ((1u << IBT_INDEX_BITS) - 1)], __ATOMIC_ACQUIRE);
}

/* Makes the queue pair reachable by its number. 0, -ENOMEM. Takes table_lock. */
int table_add(struct ibt *ibt, struct ibt_qp *qp);
/* Makes it unreachable; callbacks that have looked it up may still run. Takes table_lock. */
void table_remove(struct ibt *ibt, struct ibt_qp *qp);

#endif
