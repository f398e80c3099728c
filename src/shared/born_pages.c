/* born_pages.c: the state of each page of the arena.
 * In: page numbers    Out: page numbers    Runs: any thread    Locks: born.lock, the caller's
 */
#include "shared/born_priv.h"

enum { PAGES_WORD = 64 };

/* Counts changes from one page to the next, up to that to `end`. */
static u64 pages_edges(u64 page, u64 end) REQUIRES(&born.lock)
{
	u64 edges = 0, stop = MIN(end + 1, born.pages);
	bool set;

	page -= page != 0;
	set = pages_next(BORN_MAPPED, page, page + 1, true) == page;
	while ((page = pages_next(BORN_MAPPED, page, stop, !set)) < stop) {
		edges++;
		set = !set;
	}
	return edges;
}

static void pages_set(u64 *words, u64 page, u64 end, bool set)
{
	while (page < end) {
		u64 at = page % PAGES_WORD, n = MIN(PAGES_WORD - at, end - page);
		u64 mask = (n == PAGES_WORD ? ~0ull : (1ull << n) - 1) << at;

		/* a clear word is not written: the table is sparse */
		if (set)
			words[page / PAGES_WORD] |= mask;
		else if ((words[page / PAGES_WORD] & mask) != 0)
			words[page / PAGES_WORD] &= ~mask;
		page += n;
	}
}

void pages_mark(enum born_bit bit, u64 page, u64 count, bool set)
{
	u64 end = page + count;

	if (bit == BORN_MAPPED)
		born.edges -= pages_edges(page, end);
	pages_set(born.bits[bit], page, end, set);
	if (bit == BORN_MAPPED)
		born.edges += pages_edges(page, end);
}

u64 pages_next(enum born_bit bit, u64 page, u64 end, bool set)
{
	while (page < end) {
		u64 word = born.bits[bit][page / PAGES_WORD];

		word = (set ? word : ~word) >> page % PAGES_WORD;
		if (word != 0)
			return MIN(page + (u64)__builtin_ctzll(word), end);
		page = (page / PAGES_WORD + 1) * PAGES_WORD;
	}
	return end;
}

bool pages_are(enum born_bit bit, u64 page, u64 end, bool set)
{
	return pages_next(bit, page, end, !set) == end;
}

static u64 pages_align(u64 page, u64 alignment)
{
	u64 addr = born.base + page * born.page_bytes;

	return ((addr + alignment - 1) / alignment * alignment - born.base) / born.page_bytes;
}

u64 pages_find(u64 count, u64 alignment)
{
	u64 page = pages_align(pages_next(BORN_TAKEN, born.low, born.pages, false), alignment);

	while (page < born.pages && count <= born.pages - page) {
		u64 taken = pages_next(BORN_TAKEN, page, page + count, true);

		if (taken == page + count)
			return page;
		page = pages_align(pages_next(BORN_TAKEN, taken, born.pages, false), alignment);
	}
	return born.pages;
}
