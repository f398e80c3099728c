/* born_fork.c: decides what a forked child gets of born memory; adopt_fork.c gives it.
 * In: fork's handlers    Out: answers    Runs: the forking thread
 * Locks: born.lock across the fork, so that no page of the arena changes hands
 */
#include "base/fork.h"
#include "shared/born_priv.h"

/* NO_THREAD_SAFETY, all: the fork holds the lock, or back_give does. */

/* Memory that the child has not inherited is no block of the child. */
static void born_forget_withheld(void) NO_THREAD_SAFETY
{
	u64 page = 0;

	while ((page = pages_next(BORN_NO_FORK, page, born.pages, true)) < born.pages)
		born.lengths[page++] = 0;
}

static void born_become_child(void) NO_THREAD_SAFETY
{
	if (born.pages == 0)
		return;
	born_forget_withheld();
	__atomic_store_n(&born.shared, false, __ATOMIC_RELAXED);
	__atomic_store_n(&born.retired, true, __ATOMIC_RELAXED);
}
FORK_TAKES(FORK_BORN, &born.lock, .child = born_become_child);

void born_unshare(void) NO_THREAD_SAFETY
{
	/* Before any content leaves the file: pairs with remap_move. */
	__atomic_store_n(&born.shared, false, __ATOMIC_SEQ_CST);
	__atomic_store_n(&born.retired, true, __ATOMIC_RELAXED);
}

void born_unshared(bool all, bool in_place) NO_THREAD_SAFETY
{
	if (!all)
		__atomic_store_n(&born.shared, true, __ATOMIC_RELAXED);
	born.in_place = in_place;
	maps_close_free();
}

enum born_heir born_at_fork(u64 addr, u64 end, u64 *stop) NO_THREAD_SAFETY
{
	u64 page, last;
	bool withheld, wiped;

	*stop = end;
	if (addr < born.base || addr - born.base >= born.pages * born.page_bytes)
		return BORN_COPIED;
	page = born_page(addr);
	last = MIN(born_page(end), born.pages);
	withheld = pages_next(BORN_NO_FORK, page, page + 1, true) == page;
	wiped = pages_next(BORN_WIPED, page, page + 1, true) == page;
	last = MIN(pages_next(BORN_NO_FORK, page, last, !withheld),
		   pages_next(BORN_WIPED, page, last, !wiped));
	*stop = born.base + last * born.page_bytes;
	return withheld ? BORN_WITHHELD : wiped ? BORN_ZEROED : BORN_COPIED;
}
