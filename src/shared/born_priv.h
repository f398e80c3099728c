/* born_priv.h: inside born memory.
 *
 *   born.c         the arena: allocates pages and frees them
 *   born_pages.c   the state of each page
 *   born_over.c    mmap over it, mremap, madvise
 *   born_fork.c    what a forked child gets of it
 */
#ifndef SHARED_BORN_PRIV_H
#define SHARED_BORN_PRIV_H

#include "base/lock.h"
#include "shared/shared.h"

/* A bit of each page. */
enum born_bit {
	BORN_TAKEN,   /* not free */
	BORN_FOREIGN, /* the application's own map lies there; taken, too */
	BORN_MAPPED,  /* the file is mapped there: taken, or free and left mapped (maps_close) */
	BORN_NO_FORK, /* MADV_DONTFORK, */
	BORN_WIPED,   /* MADV_WIPEONFORK: the kernel has neither for a file */
	BORN_BITS
};

struct born {
	struct lock lock;
	u64 base FIXED, pages FIXED; /* 0: there is no arena */
	u64 page_bytes FIXED;
	u64 offset FIXED;  /* in the file */
	u64 longest FIXED; /* bytes: the kernel would refuse more than all its memory */
	u64 low GUARDED_BY(lock); /* no free page lies before this one */
	/* edges between mapped and other pages: about the number of maps */
	u64 edges GUARDED_BY(lock);
	u64 *bits[BORN_BITS] GUARDED_BY(lock);
	u64 *lengths GUARDED_BY(lock); /* of the block that begins on a page; else 0 */
	/* cleared by a fork: from then on private memory, in parent and child */
	bool shared ATOMIC_ONLY;
	/* No memory is given out any more, and free pages are the kernel's. */
	bool retired ATOMIC_ONLY;
	/* Part of it is private maps of the file: the first touch of a page makes one there,
	 * too. */
	bool in_place GUARDED_BY(lock);
	bool hidden ATOMIC_ONLY; /* peers find nothing by address */
};

extern struct born born;

/* ---- born_pages.c ---- */

/* Sets or clears a bit of `count` pages. */
void pages_mark(enum born_bit bit, u64 page, u64 count, bool set) REQUIRES(&born.lock);
/* Returns the first page in [page, end) whose bit is `set`; `end`: none. */
u64 pages_next(enum born_bit bit, u64 page, u64 end, bool set) REQUIRES(&born.lock);
/* Tells whether all pages have the bit so. */
bool pages_are(enum born_bit bit, u64 page, u64 end, bool set) REQUIRES(&born.lock);
/* Finds `count` free pages; born.pages: none. */
u64 pages_find(u64 count, u64 alignment) REQUIRES(&born.lock);

/* ---- born.c ---- */

void *born_pointer(u64 page);
/* Returns the page in which the address lies. */
u64 born_page(u64 addr);
bool born_is_shared(void);
bool born_is_retired(void);
/* Begins a section in which maps of this thread go past shim/born. */
bool born_enter(void) ACQUIRE(&born.lock);
void born_leave(bool before) RELEASE(&born.lock);

/* Other maps lie within it. A peer that knows only an address would read the file instead: peers
 * find nothing by address from now on. Without born.lock. */
void born_hide(void);

/* Maps pages of the file over any map there. False: not mapped, or only in part. */
bool maps_open(u64 page, u64 count) REQUIRES(&born.lock);
/* Unmaps the pages. */
void maps_close(u64 page, u64 count) REQUIRES(&born.lock);
/* After the end of the arena: returns its free pages to the kernel. */
void maps_close_free(void) REQUIRES(&born.lock);
/* Makes holes in the file. False: the content is still there. */
bool maps_zero(u64 page, u64 count) REQUIRES(&born.lock);
/* The same, for those of the pages that are the file's. */
bool maps_zero_ours(u64 page, u64 end) REQUIRES(&born.lock);
/* Drops all notes about the pages. */
void maps_forget(u64 page, u64 count) REQUIRES(&born.lock);
/* Frees pages, including the application's own maps there. */
void maps_end(u64 page, u64 count) REQUIRES(&born.lock);

/* ---- born_over.c ---- */

/* Grows or shrinks the `count` pages from `page` on to `wanted` in place. False: no room. */
bool born_grow(u64 page, u64 count, u64 wanted) REQUIRES(&born.lock);

/* ---- born_fork.c ---- */

enum born_heir { BORN_COPIED, BORN_ZEROED, BORN_WITHHELD };

/* Turns all of it into private memory, in a forked child and in its parent. born_unshared follows.
 * `all`: nothing stayed shared; `in_place`: some became private maps of the file. Both under
 * born.lock. */
void born_unshare(void);
void born_unshared(bool all, bool in_place);

/* Tells what a child gets of the memory at `addr`, and up to where (`end` at most) that holds. Any
 * address. Under born.lock. */
enum born_heir born_at_fork(u64 addr, u64 end, u64 *stop);

#endif
